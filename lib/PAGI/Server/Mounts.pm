package PAGI::Server::Mounts;

use strict;
use warnings;

our $VERSION = '0.003000';

use PAGI::Server::Folders;
use PAGI::Server::Options;
use PAGI::Server::Options::Type;
use Peregrine::Nearest;
use Scalar::Util qw(blessed);

# Settings behind an application: key, and 1 if the setting has a value.
my %SETTINGS = (host => 1, workers => 1, grip => 1, topics => 1, pagi => 0, psgi => 0, mojo => 0);

# Options of the server that a mount with workers of its own may set for these, and short words for some.
my @OPTIONS = qw(
    env_file chdir lib user group preload_app
    max_worker_rss max_worker_age max_requests canary warm_up heartbeat_timeout request_kill_timeout
    request_timeout queue_max queue_timeout max_concurrency channels
);
my %SHORT   = (env => 'env_file', preload => 'preload_app', memory => 'max_worker_rss');
my %OPTIONS = ((map { $_ => $_ } @OPTIONS), %SHORT);

# Mounts that may have workers of their own: groups of one engine.
use constant GROUPS_MAX  => 15;
use constant WORKERS_MAX => 64;

# The object is a code reference, because code that only passes an application on expects one.
sub new {
    my ($class, @mounts) = @_;
    return bless sub { return @mounts }, $class;
}

sub of {
    my ($class, $app) = @_;
    return $app->() if blessed $app && $app->isa($class);
    return { path => '', kind => 'pagi', app => $app };
}

sub parse {
    my ($class, @texts) = @_;
    my (@mounts, %seen);
    for my $text (@texts) {
        my $mount = _parse($text);
        my $place = lc($mount->{host} // '') . ($mount->{path} || '/');
        die "'$text': there is an application at $place already\n" if $seen{$place}++;
        push @mounts, $mount;
    }
    @mounts = sort { PAGI::Server::Folders::rank($a, $b) } @mounts;
    my $group = 0;
    $_->{group} = ++$group for grep { $_->{workers} } @mounts;
    for my $mount (grep { !$_->{workers} } @mounts) {
        my ($option) = sort keys %{ $mount->{options} }, grep { defined $mount->{$_} } 'topics' or next;
        die "'$mount->{text}': setting '$option' is for workers that only this mount has: "
            . "set 'workers' as well\n";
    }
    die "$group mounts have workers of their own; ${\GROUPS_MAX} may have them\n" if $group > GROUPS_MAX;
    return @mounts;
}

sub _parse {
    my ($text) = @_;
    my ($path, $rest) = $text =~ m{\A(/[^=]*)=(.+)\z}s
        or die "'$text' is not PATH=APPLICATION, such as /api=app.pl\n";
    die "'$text': a path has no '?' and no '#'\n" if $path =~ /[?#]/;
    my ($name, @settings) = split /,/, $rest;
    my %mount = (path => $path =~ s{/+\z}{}r, name => $name, text => $text, options => {});
    for my $setting (@settings) {
        my ($key, $value) = split /=/, $setting, 2;
        if (exists $OPTIONS{$key}) { _take_option(\%mount, $key, $value); next }
        die "'$text': there is no setting '$key'" . _known($key) . "\n" if !exists $SETTINGS{$key};
        die "'$text': setting '$key' takes " . ($SETTINGS{$key} ? 'a' : 'no') . " value\n"
            if $SETTINGS{$key} != length($value // '') > 0;
        die "'$text': setting '$key' is a number from 1 to ${\WORKERS_MAX}\n"
            if $key eq 'workers' && ($value !~ /\A[1-9][0-9]?\z/ || $value > WORKERS_MAX);
        if ($key eq 'grip' || $key eq 'topics') {
            my $problem = PAGI::Server::Options::Type::problem(PAGI::Server::Options::find('grip'), $value);
            die "'$text': setting '$key' $problem\n" if defined $problem;
        }
        my ($name_of_it, $content) = $SETTINGS{$key} ? ($key, $value) : (kind => $key);
        die "'$text': setting '$key' comes after another one of its kind\n" if exists $mount{$name_of_it};
        $mount{$name_of_it} = $content;
    }
    for my $key (grep { defined $mount{$_} } qw(grip topics)) {
        die "'$text': setting '$key' needs topics, which 'channels=off' keeps from the mount\n"
            if exists $mount{options}{channels};
    }
    die "'$text': setting 'grip' begins with '$mount{topics}', as all topics of the mount\n"
        if defined $mount{grip} && defined $mount{topics} && index($mount{grip}, $mount{topics}) != 0;
    return \%mount;
}

sub _known {
    my ($word) = @_;
    return
          Peregrine::Nearest::hint($word, keys %SETTINGS, keys %OPTIONS)
        . '; these are: host=NAME, pagi, psgi, mojo, grip=PREFIX, workers=N, and with workers topics=PREFIX, '
        . join ', ', map { "$_=" . _argument(PAGI::Server::Options::find($_)) } @OPTIONS;
}

sub _argument {
    my ($option) = @_;
    return 'off' if $option->{name} eq 'channels';
    my %argument = (boolean => 'on|off', bytes => 'BYTES', seconds => 'SECONDS', integer => 'NUMBER');
    return $option->{arg} // $argument{ $option->{type} };
}

# Takes a setting that is an option of the server, for the workers of one mount.
sub _take_option {
    my ($mount, $key,     $word) = @_;
    my ($text,  $options, $name) = (@{$mount}{qw(text options)}, $OPTIONS{$key});
    my $option = PAGI::Server::Options::find($name);
    die "'$text': setting '$key' takes a value\n" if !length($word // '');
    my $value   = PAGI::Server::Options::Type::parse($option, $word);
    my $problem = PAGI::Server::Options::Type::problem($option, $value);
    die "'$text': setting '$key' $problem\n" if defined $problem;
    $value = PAGI::Server::Options::Type::number($option, $value);
    die "'$text': setting 'channels' can only be off: the server has one hub for all mounts\n"
        if $name eq 'channels' && $value;
    return push @{ $options->{$name} }, $value if $option->{many};
    die "'$text': setting '$key' comes after another one of its kind\n"
        if exists $options->{$name} && $name ne 'warm_up';
    # A comma ends the setting, so each path of warm_up is one of its own.
    $options->{$name} = exists $options->{$name} ? "$options->{$name},$value" : $value;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Mounts - several applications as one, each for its part of a server

=head1 SYNOPSIS

    my @mounts = PAGI::Server::Mounts->parse('/api=app.pl', '/=app.psgi,host=example.org');
    $_->{app} = load($_->{name}) for @mounts;
    my $app = PAGI::Server::Mounts->new(@mounts);

=head1 DESCRIPTION

The applications that L<Plack::Handler::Peregrine::Mounted> serves. A mount is a hash reference
with

=over

=item path

Its path: the application gets the requests for this path and for all below it. No slash at its end, so
that the empty string is the root.

=item host

The name that requests must be for; optional.

=item workers, group

The number of interpreters of its own, if it has some, and their group in the engine, from 1 on.

=item grip

How names of topics begin for which an application of PSGI may have its responses held
(L<Plack::Handler::Peregrine::Grip>); optional.

=item topics

How names of topics begin that the interpreters of this mount may name; optional: any.

=item options

A hash reference: options of the server that the interpreters of this mount have in its place, by the names
that L<PAGI::Server::Options> has for them.

=item kind

C<pagi>, C<psgi> or C<mojo>, an application of Mojolicious for L<Mojo::Server::Peregrine>.

=item app

The application, a code reference.

=back

=head1 METHODS

=head2 new

Makes one of all of them, which can be passed on in place of an application.

=head2 of

    my @mounts = PAGI::Server::Mounts->of($app);

The mounts of such a one. Any other application is one of PAGI at the root.

=head2 parse

Mounts of texts, as C<--mount> gets them: C<PATH=NAME>, perhaps with C<,host=NAME>, C<,workers=N>,
C<,grip=PREFIX>, C<,topics=PREFIX>, C<,pagi>, C<,psgi> or C<,mojo>, and options. The name of the application
is in C<name>, the text in C<text>. Mounts with a host come first, then long paths: the first mount that
matches a request gets it. Dies of what is none, and of two at the same place.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl itself.

=cut
