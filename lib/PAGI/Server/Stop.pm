package PAGI::Server::Stop;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use List::Util qw(max min);
use Peregrine::Inherited;
use Time::HiRes qw(CLOCK_MONOTONIC);

# The part of the stop's time that is kept for the application's shutdown: at most this many seconds, and at
# most a quarter.
use constant { END_S => 5, END_PART => 4 };

# Seconds that applications have which were told that the server stops.
use constant LEAVE_S => 5;

sub shutdown {
    my ($self) = @_;
    $self->_croak_if_foreign;
    return $self->_stop_workers                   if $self->{master};
    return $self->_stop_start                     if $self->_is_starting && !$self->{stopping};
    return Future->done                           if !$self->{stopping}  && !$self->{running};
    return $self->retire('restart')               if !$self->{stopping}  && others_accept();
    return $self->_stop_by(sub { $self->_drain }) if !$self->{stopping};
    $self->_drain                                 if $self->{retiring};
    return $self->{stopping};
}

# Server::Starter has started another server on the same sockets when it tells this one to stop.
sub others_accept { return Peregrine::Inherited->source eq 'starter' }

sub retire {
    my ($self, $why) = @_;
    return $self->shutdown if $self->{stopping} || !$self->{running};
    return $self->_stop_by(sub { $self->_retire($why) });
}

# `begin` makes connections end, the last of which ends the wait.
sub _stop_by {
    my ($self, $begin) = @_;
    $self->{running} = 0;
    my $loop     = $self->loop;
    my $stopping = $self->{stopping} = $loop->new_future;
    my $stopped  = $self->{stopped}  = $loop->new_future;
    $begin->();
    # The end of an application may come in a signal's callback, see Peregrine::Process/detach_signals.
    my $steps = $stopped->on_ready(sub { $self->_stop_waiting(qw(retiring drain_timer)) })
        ->then(sub { $self->_end_clones })->then(sub { $self->_end_application })->then(sub { $loop->later });
    $self->{steps} = $steps->on_ready(sub { $self->_finish_stop($_[0]->failure) });
    return $stopping;
}

sub _stop_waiting {
    my ($self, @timers) = @_;
    $self->loop->unwatch_time($_) for grep { defined } delete @{$self}{@timers};
    return;
}

sub _is_starting {
    my ($self) = @_;
    return $self->{starting} && !$self->{starting}->is_ready;
}

# Not in a signal's callback, see Peregrine::Process/detach_signals. The application may complete its startup
# before that.
sub _stop_start {
    my ($self)   = @_;
    my $loop     = $self->loop;
    my $stopping = $self->{stopping} = $loop->new_future;
    $self->{starting}->on_ready(sub {
        delete $self->{stopping} or return;
        return $stopping->done if !$self->{running};
        $self->shutdown->on_ready(sub { $stopping->done });
    });
    $loop->later(sub { $self->_stop_startup });
    return $stopping;
}

sub _finish_stop {
    my ($self, $failure) = @_;
    my $stopping = delete $self->{stopping} or return;
    $self->{log}->error("PAGI: the stop went wrong: $failure") if defined $failure;
    $self->_close_worker($self->loop, 1);
    $self->_abandon_application;
    delete @{$self}{qw(starting steps stop_until)};
    $self->{log}->info('PAGI: the server has stopped') if !$self->{worker_num};
    $stopping->done;
    return;
}

# Lets the requests in flight finish, and cuts what is left when the time is up.
sub _drain {
    my ($self) = @_;
    $self->_stop_waiting(qw(retiring drain_timer));
    $self->{worker}->drain;
    $self->{listeners}->remove_files;
    my $count = $self->{worker}->stats->{exchanges};
    $self->_limit_drain;
    my $seconds = sprintf '%.3g', $self->_time_to_drain;
    $self->{log}->info("PAGI: requests in flight: $count, which have $seconds seconds") if $count;
    return;
}

sub _limit_drain {
    my ($self) = @_;
    $self->_begin_stop;
    $self->{drain_timer} = $self->loop->watch_time(
        after => $self->_time_to_drain,
        code  => sub { $self->_cut('Shutdown timeout') }
    );
    return;
}

# The whole stop has one deadline, from where it begins: a worker's master says how much of it is left.
sub stop_within {
    my ($self, $seconds) = @_;
    my $until = _now() + $seconds;
    $self->{stop_until} = $until if !$self->{stop_until} || $until < $self->{stop_until};
    return;
}

sub _begin_stop {
    my ($self) = @_;
    $self->stop_within($self->{options}{shutdown_timeout}) if !$self->{stop_until};
    return;
}

# Seconds that are left.
sub _time_to_stop {
    my ($self) = @_;
    my $until = $self->{stop_until} // return $self->{options}{shutdown_timeout};
    return max(0, $until - _now());
}

sub _time_to_drain {
    my ($self) = @_;
    my $seconds = $self->_time_to_stop;
    return $seconds - min(END_S, $seconds / END_PART);
}

sub _now { return Time::HiRes::clock_gettime(CLOCK_MONOTONIC) }

# Another process serves at the same sockets. WebSockets and event streams may go on for a while, unless that
# one has newer code.
sub _retire {
    my ($self, $why) = @_;
    $self->{worker}->retire;
    my $end = sub {
        delete $self->{retiring};
        $self->{worker}->end_streams;
        $self->_limit_drain;
    };
    $self->{retiring} = $self->loop->watch_time(
        after => $why eq 'restart' ? 0 : $self->{options}{recycle_timeout},
        code  => $end
    );
    return;
}

# A second signal ends the wait for requests, a third one the wait for the application's shutdown.
sub hurry {
    my ($self, $why) = @_;
    if ($self->{master}) {
        $_->hurry for grep { defined } @{$self}{qw(engine_master master)};
        return;
    }
    return                   if $self->_is_starting;
    return $self->_cut($why) if $self->{stopped};
    $self->{log}->warn("PAGI: $why: not waiting for the application's shutdown");
    $self->_abandon_clones;
    $self->_abandon_application;
    return;
}

sub give_up_stop {
    my ($self) = @_;
    return $self->_finish_stop;
}

sub _cut {
    my ($self, $why) = @_;
    my $count = $self->connection_count;
    $self->{patience} = 'none';
    return $self->_stopped if !$count;
    $self->{log}->warn("PAGI: $why: force-closing $count active connections");
    $self->{worker}->cut;
    return;
}

# All connections are gone; and, after that, an application has ended. The last of them ends the stop.
sub _stopped {
    my ($self) = @_;
    my $stopped = $self->{stopped} or return $self->{join_socket} ? $self->_lost_engine : ();
    my ($busy, $leaving) = $self->{worker}->applications;
    my $patience = $self->{patience} || 'all';
    if ($patience ne 'none' && ($busy || $leaving && $patience eq 'all')) {
        $self->_wait_for_applications($busy + $leaving);
        return;
    }
    my $timer = delete $self->{leave_timer};
    $self->loop->unwatch_time($timer) if $timer;
    $self->{log}->warn("PAGI: not waiting for applications that run on: ${\($busy + $leaving)}")
        if $busy + $leaving;
    delete @{$self}{qw(stopped patience)};
    $stopped->done;
    return;
}

# Applications of WebSockets and event streams, which were told of the stop, get less time than requests in
# flight, because many run on although they were told.
sub _wait_for_applications {
    my ($self, $count) = @_;
    return if $self->{leave_timer};
    $self->{log}->info("PAGI: all connections are closed, applications still running: $count");
    $self->{leave_timer} = $self->loop->watch_time(
        after => LEAVE_S,
        code  => sub {
            $self->{patience} = 'busy';
            $self->_stopped;
        }
    );
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Stop - how a server comes to its end

=head1 DESCRIPTION

A base class of L<PAGI::Server::Base>: C<shutdown> and C<hurry>, which are described there.

=head1 METHODS

=head2 retire

    $server->retire('restart');

Stops because another process takes this one's place at the same sockets, which goes on accepting. Each
connection is answered once more, with C<Connection: close>, and closed after C<retire_idle> without a
request. WebSockets are closed with 1012, and event streams end: after C<recycle_timeout>, at once with the
reason C<restart>. Then what L</shutdown> does. Returns the Future of L</shutdown>, which may be called to end
it faster.

=head2 stop_within

    $server->stop_within(12.5);

Seconds that are left for the stop; C<shutdown_timeout> unless this is said. Requests in flight have them
but for 5 seconds, or a quarter, which are kept for the application's shutdown.

=head2 shutdown, hurry

    $server->shutdown->get;

See L<PAGI::Server/shutdown> and L<PAGI::Server/hurry>.

=head2 give_up_stop

    $server->give_up_stop;

Ends a stop that does not come to its end by itself.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
