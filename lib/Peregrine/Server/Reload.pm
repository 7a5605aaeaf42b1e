package Peregrine::Server::Reload;

use strict;
use warnings;

our $VERSION = '0.003000';

use File::Spec ();
use PAGI::Server::StandIn;
use Peregrine::FileWatch;
use Scalar::Util qw(weaken);

# Seconds in which an interpreter with old code has to end its requests.
use constant LEAVE_S => 5;
# Seconds between two reports of an interpreter about the files that it has loaded, and bytes of a message.
use constant { REPORT_S => 1, MESSAGE_MAX => 4000 };
# Changed files that a message names at most.
use constant NAMED_MAX => 3;

# `log`; `folders`, `sources` and `ignore` for Peregrine::FileWatch.
sub new {
    my ($class, %args) = @_;
    return bless {%args}, $class;
}

# ---- In the master ------------------------------------------------------------------------------

# Watches files, before the first interpreter loads any: later changes are newer. Returns settings for the
# master of interpreters.
sub watch {
    my ($self, $loop, $on_change) = @_;
    weaken(my $weak = $self);
    $self->{watch} = Peregrine::FileWatch->new(
        loop => $loop,
        %{$self}{qw(folders sources ignore)},
        on_change => sub { $weak && $on_change->($weak->_changed(@_)) },
        on_excess => sub {
            my ($max) = @_;
            $weak->{log}->warn("only $max files are watched: name other folders by --reload-dir") if $weak;
        },
    );
    $self->{log}->info('the application is loaded again when files change in: '
            . join(', ', map { _shown($_) } @{ $self->{folders} }, @{ $self->{sources} || [] }));
    return (
        stands_in => 1,
        hear      => { loaded => sub { $weak && $weak->{watch}->add(split /\n/, $_[1]) } },
    );
}

# The changed files, in words.
sub _changed {
    my ($self, @paths) = @_;
    my @names = map { _shown($_) } @paths;
    my $more  = @names - NAMED_MAX;
    splice @names, NAMED_MAX if $more > 0;
    my %own = map  { $_ => 1 } _loaded_files();
    my @own = grep { $own{$_} } @paths;
    $self->{log}->warn("the server has loaded @own itself: for that, start it again") if @own;
    return 'changed: ' . join(', ', @names) . ($more > 0 ? " and $more more" : '');
}

sub _shown {
    my ($path) = @_;
    my $relative = File::Spec->abs2rel($path);
    return $relative =~ m{\A\.\./} ? $path : $relative;
}

# Seconds in which interpreters with old code have to end.
sub timeout { return LEAVE_S }

sub stop {
    my ($self) = @_;
    my $watch = delete $self->{watch} or return;
    $watch->stop;
    return;
}

# ---- In an interpreter --------------------------------------------------------------------------------

# Loads the application, and tells the master which files that has loaded, now and later.
sub load {
    my ($self, $loop, $link, $load) = @_;
    my $app   = eval { $load->() };
    my $error = $@;
    $self->_report_loaded($link);
    die $error if !$app;
    $self->_report_later($loop, $link);
    return $app;
}

# The application that stands in for one that could not start, and answers with the reason.
sub stand_in { return PAGI::Server::StandIn->app($_[1]) }

sub _report_later {
    my ($self, $loop, $link) = @_;
    weaken(my $weak = $self);
    weaken($loop);
    $loop->watch_time(
        after => REPORT_S,
        code  => sub {
            return if !$weak || !$loop;
            $weak->_report_loaded($link);
            $weak->_report_later($loop, $link);
        }
    );
    return;
}

# Tells the master of files that were loaded since the last message. A message for which there is no room is
# sent the next time.
sub _report_loaded {
    my ($self, $link) = @_;
    my $told  = $self->{told} ||= {};
    my @files = grep { !$told->{$_} && !/\n/ } _loaded_files();
    while (@files) {
        my $text = shift @files;
        $text .= "\n" . shift @files while @files && length("$text$files[0]") < MESSAGE_MAX;
        last if !$link->say(loaded => $text);
        $told->{$_} = 1 for split /\n/, $text;
    }
    return;
}

# The paths of loaded files. Perl does not tell that of a file which could not be compiled, so it is looked
# for.
sub _loaded_files {
    my @files;
    for my $name (keys %INC) {
        my $path = $INC{$name};
        ($path) = grep { -f } map { "$_/$name" } grep { !ref } @INC if !defined $path;
        push @files, File::Spec->rel2abs($path) if defined $path && !ref $path && -f $path;
    }
    return @files;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::Reload - loads the application again when its files change

=head1 DESCRIPTION

What C<--reload> of L<pagi-server> does: the master watches the files (L<Peregrine::FileWatch>), interpreters
tell it which ones they have loaded. When one changes, all interpreters are replaced at once; in place of an
application that cannot start there is one that says why.

=head1 METHODS

=head2 new

    my $reload = Peregrine::Server::Reload->new(
        log => $log, folders => \@folders, sources => \@sources, ignore => \@files,
    );

=head2 watch, stop

    my %for_master = $reload->watch($loop, sub { my ($why) = @_; ... });
    $reload->stop;

In the master; the arguments are for its L<Peregrine::Master>.

=head2 timeout

Seconds that interpreters have which are replaced.

=head2 load

    my $app = $reload->load($loop, $link, sub { return load_application() });

In an interpreter.

=head2 stand_in

    my $app = $reload->stand_in($failure);

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
