package Peregrine::Server::Takeover;

use strict;
use warnings;

our $VERSION = '0.003000';

use Peregrine::Fork;
use Peregrine::Handover;
use Peregrine::Inherited;
use Peregrine::Later qw(later weakly);
use Peregrine::Listener;
use Scalar::Util qw(weaken);

# `loop`, `log`, `process`, `pid_file`; `listeners`: returns a list; `limit`: seconds that a new program has
# for its start; `set_by`: the options that say so; `leave`: called in the old program when the new one
# serves.
sub new {
    my ($class, %args) = @_;
    my $self = bless {%args}, $class;
    weaken($self->{$_}) for qw(loop process);
    return $self;
}

# ---- In the old program -------------------------------------------------------------------------

# Starts a new program. `handover` are the arguments of Peregrine::Handover.
sub start {
    my ($self, %handover) = @_;
    my $before = $self->{handover};
    return $self->{log}->warn('SIGUSR2: process ' . $before->pid . ' is about to take over already')
        if $before;
    my $instead = $self->_instead;
    return $self->{log}->warn("SIGUSR2: nothing to do: $instead") if defined $instead;
    my $file     = $self->{pid_file};
    my $keep     = delete $handover{keep} || {};
    my $handover = eval {
        Peregrine::Handover->start(
            %handover,
            source => Peregrine::Inherited->source,
            keep   => { %$keep, $file && $file->handle ? (pid_file => $file->handle) : () },
            fork   => \&Peregrine::Fork::equal_child,
        );
    };
    return $self->{log}->error('SIGUSR2: a new program cannot be started: ' . $@ =~ s/\s+\z//r)
        if !$handover;
    $self->{handover} = $handover;
    my $pid = $handover->pid;
    $self->{log}->info("SIGUSR2: process $pid is to take over when it serves");
    $handover->link->watch($self->{loop}, weakly($self, '_hear'), sub { });
    $self->{loop}->watch_process($pid => weakly($self, '_ended'));
    $self->_limit($pid);
    return;
}

# The reason why USR2 cannot start a new program: the sockets of other servers would not come along, or a
# program that watches this process would take its end for that of the server.
sub _instead {
    my ($self) = @_;
    return 'this program has several servers, and would have to hand over all of them'
        if Peregrine::Listener->has_others(map { $_->all } $self->{listeners}->());
    my $source = Peregrine::Inherited->source;
    return 'Server::Starter starts new servers itself: send HUP to start_server' if $source eq 'starter';
    return if $source ne 'systemd' || $self->{process}->has_service;
    return 'systemd would not know the new process: set Type=notify in the unit of this service';
}

# Ends a new program that hangs while it starts, so that another attempt is possible.
sub _limit {
    my ($self, $pid) = @_;
    my $seconds = $self->{limit} or return;
    $self->{timer} = later($self->{loop}, $seconds, $self, _kill => $pid, $seconds);
    return;
}

sub _kill {
    my ($self, $pid, $seconds) = @_;
    $self->{log}->error("SIGUSR2: process $pid does not serve after $seconds s ($self->{set_by}): SIGKILL");
    return kill KILL => $pid;
}

sub unlimit {
    my ($self) = @_;
    my $timer = delete $self->{timer} or return;
    $self->{loop}->unwatch_time($timer) if $self->{loop};
    return;
}

# Leaves when the new program serves. Connections that this process has are served to their end.
sub _hear {
    my ($self, $word, $text) = @_;
    $self->{unused}{$text} = 1 if $word eq 'unused';
    return if $word ne 'serving' || $self->{is_over}++;
    my $pid = $self->{handover}->pid;
    $self->unlimit;
    $self->{log}->info("process $pid serves: this one leaves");
    $_->leave_files($self->{unused}) for $self->{listeners}->();
    $self->{pid_file}->let_go if $self->{pid_file};
    $self->{process}->hand_over($pid);
    $self->{leave}->();
    return;
}

sub _ended {
    my ($self, undef, $status) = @_;
    $self->unlimit;
    return if $self->{is_over};
    my ($handover) = delete @{$self}{qw(handover unused)};
    $handover->link->close;
    $self->{log}->error('SIGUSR2: process '
            . $handover->pid . ' '
            . Peregrine::Fork::how_it_ended($status)
            . ' and has not taken over: this one goes on');
    return;
}

# Ends the new program, because the server stops for another reason.
sub cancel {
    my ($self) = @_;
    kill TERM => $self->{handover}->pid if $self->{handover} && !$self->{is_over};
    return;
}

# ---- In the new program -------------------------------------------------------------------------

# Tells the old program that this one serves. `log`, `pid_file`, `listeners` (a list).
sub serves {
    my ($class, %args) = @_;
    my $handover = Peregrine::Handover->from_environment or return;
    my $file     = $args{pid_file};
    $args{log}->error("the pid file cannot be written, it names another process: $!")
        if $file && !$file->take_over;
    $_->own_files for @{ $args{listeners} };
    my $inherited = Peregrine::Inherited->from_environment;
    $handover->serving($inherited ? $inherited->names_of_rest : ());
    $inherited->close_rest(1) if $inherited;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::Takeover - a new program takes over the sockets of a running server

=head1 DESCRIPTION

What C<USR2> does (L<PAGI::Server/WORKERS>), in the old program and in the new one: L<Peregrine::Handover>
starts the program, this class decides when the old one leaves.

=head1 METHODS

=head2 new

    my $takeover = Peregrine::Server::Takeover->new(
        loop => $loop, log => $log, limit => 80, set_by => 'lifespan_startup_timeout', process => $process,
        pid_file => $file, listeners => sub { return $listeners }, leave => sub { $supervisor->retire },
    );

=head2 start

    $takeover->start(sockets => [...]);

Starts the program. The arguments go to L<Peregrine::Handover/start>. Under Server::Starter, and under systemd
if that is not told of the new process, it says what to do instead.

=head2 serves

    Peregrine::Server::Takeover->serves(log => $log, pid_file => $file, listeners => [$listeners]);

When a server serves: if an old program has started it, that one may leave.

=head2 unlimit, cancel

No deadline holds any more for the new program; it is told to stop.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
