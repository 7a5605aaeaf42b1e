package Plack::Handler::Peregrine::Mounts;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use PAGI::Server::Application;
use PAGI::Server::Mounts;
use Plack::Handler::Peregrine::Application;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# The class for a kind of applications, and arguments of its `new`. Mojolicious sends early hints.
my %KINDS = (
    pagi => ['PAGI::Server::Application'],
    mojo => [ 'PAGI::Server::Application', extensions => { informational => {} } ],
    psgi => ['Plack::Handler::Peregrine::Application'],
);

# `mounts`: the settings of the mounts, which are known before their applications are loaded.
sub new {
    my ($class, %args) = @_;
    my $self = bless { mounts => $args{mounts} || [] }, $class;
    return defined $args{app} ? $self->load($args{app}) : $self;
}

sub load {
    my ($self, $app) = @_;
    $self->{app}    = $app;
    $self->{mounts} = [ PAGI::Server::Mounts->of($app) ];
    $self->{parts}  = [ map { $_->{app} ? _part($_) : undef } @{ $self->{mounts} } ];
    return $self;
}

sub _part {
    my ($mount) = @_;
    my ($class, @more) = @{ $KINDS{ $mount->{kind} } };
    return $class->new(app => $mount->{app}, @more);
}

sub app             { return $_[0]{app} }
sub name            { return 'Peregrine' }
sub title           { return 'Peregrine' }
sub way_to_new_code { return "peregrine with the file of the application, or plackup's -L Delayed" }
sub shows_errors    { return PAGI::Server::Application->shows_errors }

sub is_async {
    my ($self) = @_;
    return (grep { $_->{kind} ne 'psgi' } @{ $self->{mounts} }) ? 1 : 0;
}

# Whether clones can run all applications: those of PAGI have a lifespan in each interpreter.
sub can_be_cloned { return !$_[0]->is_async }

# The names of hosts for which there are applications; undef among them: an application serves any host.
sub hosts {
    my ($self) = @_;
    my %seen;
    return grep { !$seen{ $_ // '' }++ } map { $_->{host} } grep { $_->{app} } @{ $self->{mounts} };
}

# Mounts with interpreters of their own, in the order of their groups.
sub groups {
    my ($self) = @_;
    return sort { $a->{group} <=> $b->{group} } grep { $_->{group} } @{ $self->{mounts} };
}

# Prefixes of topics for which responses may be held; `default`: for mounts that name none.
sub grips {
    my ($self, $default) = @_;
    return grep { defined } map { $_->{grip} // $default } grep { $_->{kind} eq 'psgi' } @{ $self->{mounts} };
}

# Mounts whose applications are loaded in this process.
sub _parts {
    my ($self) = @_;
    return grep { defined } @{ $self->{parts} || [] };
}

sub _place {
    my ($mount) = @_;
    return map { $_ => $mount->{$_} } qw(path host), $mount->{group} ? 'group' : ();
}

# Adds routes for all mounts, because the engine divides requests also for applications that are not loaded.
sub add_routes {
    my ($self, $worker) = @_;
    _add_route($worker, $_) for @{ $self->{mounts} };
    return;
}

sub _add_route {
    my ($worker, $mount) = @_;
    $worker->route({ _place($mount) }, $mount->{kind} eq 'psgi');
    return;
}

# Starts applications one after another. If one fails, those before it are ended.
sub start {
    my ($self, $instance) = @_;
    my $starting = Future->done;
    for my $part ($self->_parts) {
        $starting = $starting->then(sub { return $part->start($instance) });
    }
    return $starting->else(sub {
        my @failure = @_;
        return $self->end(sub { return $instance->time_to_stop })->then(sub { Future->fail(@failure) });
    });
}

sub stop_start {
    my ($self) = @_;
    $_->stop_start for $self->_parts;
    return;
}

sub attach {
    my ($self, $worker, $instance) = @_;
    my ($mounts, $parts) = @{$self}{qw(mounts parts)};
    for my $at (0 .. $#$mounts) {
        my ($mount, $part) = ($mounts->[$at], $parts->[$at]);
        if ($part) { $part->attach($worker, $instance, _place($mount), grip => $mount->{grip}) }
        else       { _add_route($worker, $mount) }
    }
    # Parts with applications of their own report themselves. Without them this worker is told when the last
    # connection has gone.
    $worker->serve_for($instance->reports) if !$self->_parts;
    return;
}

sub end {
    my ($self, $seconds) = @_;
    my $ending = Future->done;
    for my $part (reverse $self->_parts) {
        $ending = $ending->then(sub { return $part->end($seconds) });
    }
    return $ending;
}

sub abandon {
    my ($self) = @_;
    $_->abandon for $self->_parts;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Plack::Handler::Peregrine::Mounts - applications with a place each, as a server has them

=head1 DESCRIPTION

The methods of L<PAGI::Server::Application> for several applications of both kinds, see
L<PAGI::Server::Mounts>.

=head1 METHODS

=head2 new

    my $application = Plack::Handler::Peregrine::Mounts->new(app => PAGI::Server::Mounts->new(@mounts));
    my $application = Plack::Handler::Peregrine::Mounts->new(mounts => \@mounts);

The second way is for processes that have not loaded the applications: C<path>, C<host> and C<kind> of each.

=head2 load, app, name, title, way_to_new_code, can_be_cloned, is_async, shows_errors

=head2 groups

    my @mounts = $application->groups;

Those with interpreters of their own, in the order of their groups.

=head2 grips

    my @prefixes = $application->grips($default);

How names of topics begin for which applications of PSGI may have their responses held.

=head2 add_routes, start, stop_start, attach, end, abandon

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
