package Peregrine::Server::Stop;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use List::Util qw(max min);
use Peregrine::Deadline;
use Peregrine::Inherited;
use Scalar::Util qw(weaken);

# A part of the time for the whole stop is kept for the application's end: a quarter, and at most this number
# of seconds.
use constant { END_S => 5, END_PART => 4 };

# Seconds, at least and at most, in which refusals are sent of requests that have waited for an interpreter
# until the time was up, however short shutdown_timeout is.
use constant { REFUSAL_LEAST_S => 0.05, REFUSAL_S => 0.5 };

# Seconds in which applications have to return after they were told that the server stops.
use constant LEAVE_S => 5;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

sub new {
    my ($class, $instance) = @_;
    my $self = bless { instance => $instance, deadline => Peregrine::Deadline->new }, $class;
    weaken($self->{instance});
    return $self;
}

sub stopping { return $_[0]{stopping} }
sub deadline { return $_[0]{deadline} }

sub _log    { return $_[0]{instance}->log }
sub _loop   { return $_[0]{instance}->loop }
sub _worker { return $_[0]{instance}->engine->worker }

# Whether another server accepts at the same sockets: Server::Starter starts it before it stops this one.
sub others_accept { return Peregrine::Inherited->source eq 'starter' }

sub shutdown {
    my ($self) = @_;
    my ($instance, $stopping) = @{$self}{qw(instance stopping)};
    if ($stopping) {
        $self->_drain if $self->{retiring};
        return $stopping;
    }
    return $self->_stop_start       if $instance->is_starting;
    return Future->done             if !$instance->is_running;
    return $self->retire('restart') if others_accept();
    return $self->_stop_by(sub { $self->_drain });
}

sub retire {
    my ($self, $why) = @_;
    return $self->shutdown if $self->{stopping} || !$self->{instance}->is_running;
    return $self->_stop_by(sub { $self->_retire($why) });
}

# Stops: `begin` makes connections end, and the last one ends the wait.
sub _stop_by {
    my ($self,     $begin) = @_;
    my ($instance, $loop)  = ($self->{instance}, $self->_loop);
    $instance->leave_service;
    my $stopping = $self->{stopping} = $loop->new_future;
    my $stopped  = $self->{stopped}  = $loop->new_future;
    $begin->();
    # The end of an application may come in a signal's callback, see Peregrine::Process/detach_signals.
    my $steps =
        $stopped->on_ready(sub { $self->_stop_waiting(qw(retiring drain_timer)) })
        ->then(sub { $instance->end_interpreters })->then(sub { $instance->end_application })
        ->then(sub { $loop->later });
    $self->{steps} = $steps->on_ready(sub { $self->give_up($_[0]->failure) });
    return $stopping;
}

sub _stop_waiting {
    my ($self, @timers) = @_;
    $self->_loop->unwatch_time($_) for grep { defined } delete @{$self}{@timers};
    return;
}

# The startup is interrupted in the loop's next turn, because signals cannot be detached in their callbacks
# (Peregrine::Process/detach_signals). The application may complete it before.
sub _stop_start {
    my ($self) = @_;
    my ($instance, $loop) = ($self->{instance}, $self->_loop);
    my $stopping = $self->{stopping} = $loop->new_future;
    $instance->starting->on_ready(sub {
        delete $self->{stopping} or return;
        return $stopping->done if !$instance->is_running;
        $self->shutdown->on_ready(sub { $stopping->done });
    });
    $loop->later(sub { $instance->stop_start });
    return $stopping;
}

sub give_up {
    my ($self, $failure) = @_;
    my $stopping = delete $self->{stopping} or return;
    my $instance = $self->{instance};
    $self->_log->error("the stop went wrong: $failure") if defined $failure;
    $instance->finish(1);
    delete $self->{steps};
    $self->{deadline}->clear;
    $self->_log->info('the server has stopped') if !$instance->number;
    $stopping->done;
    return;
}

# Ends a stop, because the loop does not run any more for this instance.
sub abandon {
    my ($self) = @_;
    $self->_stop_waiting(qw(retiring drain_timer leave_timer)) if $self->_loop;
    my ($stopping, $stopped) = delete @{$self}{qw(stopping stopped steps patience)};
    $stopped->cancel if $stopped;
    $stopping->done  if $stopping;
    return;
}

# Lets requests in flight finish, and cuts the rest when the time is up.
sub _drain {
    my ($self) = @_;
    $self->_stop_waiting(qw(retiring drain_timer));
    $self->_worker->drain;
    $self->{instance}->listeners->remove_files;
    my $count = $self->_worker->stats->{exchanges};
    $self->_limit_drain;
    my $seconds = sprintf '%.3g', $self->_time_to_drain;
    $self->_log->info("requests in flight: $count, which have $seconds seconds") if $count;
    return;
}

sub _limit_drain {
    my ($self) = @_;
    $self->{deadline}->begin($self->{instance}->options->{shutdown_timeout});
    $self->{drain_timer} = $self->_loop->watch_time(
        after => $self->_time_to_drain,
        code  => sub { $self->_cut('Shutdown timeout') }
    );
    return;
}

sub _time_to_drain {
    my ($self) = @_;
    my $seconds = $self->{instance}->time_to_stop;
    return $seconds - min(END_S, $seconds / END_PART);
}

# Retires, because another process serves at the same sockets. WebSockets and event streams may go on for a
# while, unless that process has newer code.
sub _retire {
    my ($self, $why) = @_;
    $self->_worker->retire;
    my $end = sub {
        delete $self->{retiring};
        $self->_worker->end_streams;
        $self->_limit_drain;
    };
    $self->{retiring} = $self->_loop->watch_time(
        after => $why eq 'restart' ? 0 : $self->{instance}->options->{recycle_timeout},
        code  => $end
    );
    return;
}

# A second signal ends the wait for requests, a third one the wait for the application's shutdown. An
# interpreter without an engine stops later: the engine, which is elsewhere, ends its requests then.
sub hurry {
    my ($self, $why) = @_;
    my $instance = $self->{instance};
    return                   if $instance->is_starting;
    return $self->_cut($why) if $self->{stopped};
    if (!$self->{stopping} && !$self->{patience}) {
        $self->{patience} = 'none';
        return;
    }
    $self->_log->warn("$why: not waiting for the application's shutdown");
    $instance->abandon_application;
    return;
}

sub _cut {
    my ($self, $why) = @_;
    my $count    = $self->{instance}->connection_count;
    my $is_first = ($self->{patience} // '') ne 'none';
    $self->{patience} = 'none';
    return $self->connections_gone if !$count;
    return                         if $is_first && $self->_refuse_waiting($why);
    $self->_log->warn("$why: force-closing $count active connections");
    $self->_worker->cut;
    return;
}

# Refuses requests that no interpreter has taken, so that clients may send them again. True: there were some.
sub _refuse_waiting {
    my ($self, $why) = @_;
    my $count = $self->_worker->refuse_waiting or return;
    $self->_log->warn("$why: refusing requests that still wait for an interpreter (503): $count");
    $self->_stop_waiting('drain_timer');
    $self->{drain_timer} = $self->_loop->watch_time(
        after => max(REFUSAL_LEAST_S, min(REFUSAL_S, $self->{instance}->time_to_stop / 2)),
        code  => sub { $self->_cut($why) }
    );
    return 1;
}

# Called when all connections are gone, and after that when an application has ended. The last of them ends
# the stop.
sub connections_gone {
    my ($self) = @_;
    my $stopped = $self->{stopped} or return;
    my ($busy, $leaving) = $self->_worker->applications;
    my $patience = $self->{patience} || 'all';
    if ($patience ne 'none' && ($busy || $leaving && $patience eq 'all')) {
        $self->_wait_for_applications($busy + $leaving);
        return;
    }
    $self->_stop_waiting('leave_timer');
    $self->_log->warn("not waiting for applications that run on: ${\($busy + $leaving)}")
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
    $self->_log->info("all connections are closed, applications still running: $count");
    $self->{leave_timer} = $self->_loop->watch_time(
        after => LEAVE_S,
        code  => sub {
            $self->{patience} = 'busy';
            $self->connections_gone;
        }
    );
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::Stop - how an instance of a server stops

=head1 DESCRIPTION

Of a L<Peregrine::Server::Instance>: lets requests in flight finish, ends the interpreters that were cloned,
then the application, all of it within one L<Peregrine::Deadline>. Another process may serve at the
same sockets meanwhile: then connections are answered once more before they are closed.

=head1 METHODS

=head2 new

    my $stop = Peregrine::Server::Stop->new($instance);

=head2 shutdown, retire

    my $stopping = $stop->shutdown;
    my $stopping = $stop->retire('max_requests');

=head2 stopping, deadline

The Future of the stop, if it has begun, and its deadline.

=head2 hurry, give_up, abandon

    $stop->hurry('SIGTERM again');
    $stop->give_up;
    $stop->abandon;

Does not wait any longer: for requests, then for the application; for anything; not even for the loop.

=head2 connections_gone

The engine's worker says so when it has no connection any more, and when an application has ended after that.

=head2 others_accept

Whether Server::Starter has started another server on the same sockets when it tells this one to stop.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
