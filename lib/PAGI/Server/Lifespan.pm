package PAGI::Server::Lifespan;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use PAGI::Server::AppKind;
use PAGI::Server::EventCheck;
use PAGI::Server::Exception;
use Peregrine::Later qw(weakly);
use Peregrine::Nearest;
use Scalar::Util qw(blessed weaken);

my %EVENTS = map { $_ => 1 } qw(
    lifespan.startup.complete lifespan.startup.failed lifespan.shutdown.complete lifespan.shutdown.failed
);

sub new {
    my ($class, %args) = @_;
    my $self = bless {
        %args{qw(app loop log mode worker_num channels pool)},
        state   => {},
        phase   => 'idle',    # idle -> startup -> started -> shutdown -> over; or declined
        queue   => [],
        waiting => [],
        pid     => $$,
    }, $class;
    return $self;
}

sub state {
    my ($self) = @_;
    return $self->{supported} ? $self->{state} : undef;
}

# ---- The application's arguments -----------------------------------------------------------------

sub _scope {
    my ($self) = @_;
    my $number = $self->{worker_num};
    return {
        type => 'lifespan',
        pagi => {
            version      => '0.3',
            spec_version => '0.3',
            is_worker    => $number ? 1 : 0,
            $number       ? (worker_num => $number)         : (),
            $self->{pool} ? (extensions => ['worker_pool']) : (),
        },
        state => $self->{state},
        $self->{pool} ? ('pagi.worker_pool' => $self->{pool}) : (),
        $self->_channel,
    };
}

# A channel for the lifespan, with the same end.
sub _channel {
    my ($self) = @_;
    my $node = $self->{channels} or return;
    ($self->{mailbox}, my $name) = $node->open_mailbox(weakly($self, '_deliver'));
    require PAGI::Server::Channels;
    require PAGI::Server::Topics;
    return (
        'pagi.channels' => PAGI::Server::Channels->new($node, $self->{mailbox}, $name),
        'pagi.topics'   => PAGI::Server::Topics->new($node),
        'pagi.channel'  => $name,
    );
}

sub _end_channel {
    my ($self) = @_;
    my $mailbox = delete $self->{mailbox} // return;
    $self->{channels}->close_mailbox($mailbox);
    return;
}

# The next event, or the next message of the channel.
sub _next {
    my ($self) = @_;
    return shift @{ $self->{queue} } if @{ $self->{queue} };
    return defined $self->{mailbox} ? $self->{channels}->take($self->{mailbox}) : undef;
}

sub _deliver {
    my ($self) = @_;
    my $waiting = $self->{waiting};
    while (1) {
        shift @$waiting while @$waiting && $waiting->[0]->is_ready;
        my $event = @$waiting ? $self->_next : undef;
        return if !$event;
        $self->{has_heard} = 1;
        shift(@$waiting)->done($event);
    }
    return;
}

sub _receive {
    my ($self) = @_;
    $self->_check_process;
    my $future = $self->{loop}->new_future;
    if ($self->{phase} eq 'over') {
        $self->{let_go} = 1;
        return $future->cancel;
    }
    push @{ $self->{waiting} }, $future;
    $self->_deliver;
    return $future;
}

# Handles an event of the application. If reading it dies (it may be tied), the Future fails, as for any wrong
# event.
sub _send {
    my ($self, $event) = @_;
    $self->_check_process;
    my $future = eval {
        local $SIG{__DIE__};    # the application's handler is for its own exceptions
        $self->_take($event);
    };
    return $future // Future->fail(PAGI::Server::Exception::text($@), 'pagi');
}

sub _take {
    my ($self, $event) = @_;
    die "\$send: an event must be a hash reference\n" if ref $event ne 'HASH';
    my $type = $event->{type};
    die "\$send: the event has no type\n" if !defined $type || ref $type;
    die "\$send: unknown event type '$type' in a scope of type lifespan"
        . Peregrine::Nearest::hint($type, sort keys %EVENTS) . "\n"
        if !$EVENTS{$type};
    my $problem = PAGI::Server::EventCheck::problem($event);
    die "$problem\n" if defined $problem;
    my (undef, $phase, $outcome) = split /\./, $type;
    my $answer = $self->{answer};
    die "$type: nothing waits for this answer now\n"
        if $self->{phase} ne $phase || !$answer || $answer->is_ready;
    my $message = defined $event->{message} ? "$event->{message}" : '';
    $answer->done($outcome, $message);
    return Future->done;
}

# Dies in a process that the application has forked: its answer would count for its parent.
sub _check_process {
    my ($self, $failure) = @_;
    return                                                             if $self->{pid} == $$;
    die "process $$, which the application has forked, died: $failure" if length($failure // '');
    die "process $$, which the application has forked, came back to lifespan; a child has to end"
        . " by exit or exec\n";
}

# ---- The application's end ----------------------------------------------------------------------

sub _ended {
    my ($self, $failure) = @_;
    $self->_check_process($failure);
    delete $self->{running};
    my ($answer, $end) = @{$self}{qw(answer end)};
    if ($answer && !$answer->is_ready) {
        $answer->done(ended => $failure);
    }
    elsif (defined $failure && $self->{phase} ne 'declined' && !$self->{let_go}) {
        my $when = $self->{phase} eq 'over' ? 'its last answer' : 'startup';
        $self->{log}->error("the lifespan application died after $when: $failure");
    }
    $end->done('ended');
    return;
}

# Handles the end of an application that returned no Future. If it is made for another server, it would answer
# each request so, and cannot start.
sub _ended_without {
    my ($self, $returned) = @_;
    my $problem = PAGI::Server::AppKind::no_future($returned);
    return $self->_ended($problem)
        if $self->{answer}->is_ready || !defined PAGI::Server::AppKind::of_answer($returned);
    $self->{answer}->done(cannot => $problem);
    $self->{end}->done('ended');
    return;
}

sub _call_app {
    my ($self) = @_;
    weaken(my $weak = $self);
    my $receive = sub { $weak ? $weak->_receive  : Future->new->cancel };
    my $send    = sub { $weak ? $weak->_send(@_) : Future->done };
    $self->{end} = $self->{loop}->new_future;
    my $future = eval { $self->{app}->($self->_scope, $receive, $send) };
    $self->_check_process($@);
    return $self->_ended($@)              if $@;
    return $self->_ended_without($future) if !blessed $future || !$future->can('on_ready');
    $self->{running} = $future;
    $future->on_ready(sub {
        my ($done) = @_;
        return if !$weak || !$weak->{running};
        return $weak->_ended($done->is_cancelled ? "its Future was cancelled\n" : $done->failure);
    });
    return;
}

# Waits for the end of an application that has given its last answer, but may have code to run after it. No
# event follows, so an application that waits for one is ended.
sub _let_end {
    my ($self, $time_up) = @_;
    $self->{phase} = 'over';
    $self->_end_channel;
    $self->{let_go} = 1 if @{ $self->{waiting} };
    $_->cancel for splice @{ $self->{waiting} };
    return _first($self->{end}, $time_up)->then(sub {
        my ($outcome) = @_;
        $self->{log}
            ->warn('the application did not return in time after its last answer: its Future is cancelled')
            if $outcome eq 'timeout';
        $self->abandon;
        return Future->done;
    });
}

sub abandon {
    my ($self) = @_;
    $self->{phase} = 'over';
    $self->_end_channel;
    my $running = delete $self->{running};
    $running->cancel if $running && $running->can('cancel');
    for my $future (grep { defined } @{$self}{qw(answer end)}) {
        $future->done('abandoned') if !$future->is_ready;
    }
    return;
}

# ---- Waiting ------------------------------------------------------------------------------------

sub _ask {
    my ($self, $phase) = @_;
    $self->{phase}  = $phase;
    $self->{answer} = $self->{loop}->new_future;
    push @{ $self->{queue} }, { type => "lifespan.$phase" };
    return $self->{answer};
}

# Resolves with `timeout` after this many seconds.
sub _timer {
    my ($self, $seconds) = @_;
    return $self->{loop}->delay_future(after => $seconds)->then(sub { Future->done('timeout') });
}

# Resolves as the first of these Futures does, and leaves the others alone.
sub _first {
    my (@futures) = @_;
    return Future->wait_any(map { $_->without_cancel } @futures);
}

# ---- Startup and shutdown -----------------------------------------------------------------------

sub startup {
    my ($self, $timeout, $end_timeout) = @_;
    return Future->done(0) if $self->{mode} eq 'off';
    my $answer = $self->_ask('startup');
    $self->_call_app;
    # Nearly all applications have answered by now. Timers and Futures would make each forked interpreter copy
    # further pages of its template.
    return $self->_answered($timeout, $end_timeout, $answer->get) if $answer->is_ready;
    my $time_up = $timeout ? $self->_timer($timeout) : $self->{loop}->new_future;
    return _first($answer, $time_up)->then(sub {
        $time_up->cancel;
        return $self->_answered($timeout, $end_timeout, @_);
    });
}

sub _answered {
    my ($self, $timeout, $end_timeout, $outcome, $detail) = @_;
    return $self->_declined($detail) if $outcome eq 'ended';
    return $self->_stopped           if $outcome eq 'stopped';
    if ($outcome eq 'complete') {
        @{$self}{qw(phase supported)} = ('started', 1);
        return Future->done(1);
    }
    my $message =
          $outcome eq 'timeout'   ? "Lifespan startup timed out after ${timeout}s (lifespan_startup_timeout)"
        : $outcome eq 'abandoned' ? 'Lifespan startup was given up: the server was taken out of its loop'
        : $outcome eq 'cannot'    ? $detail
        : length $detail          ? "Lifespan startup failed: $detail"
        :                           'Lifespan startup failed';
    $self->abandon if $outcome ne 'failed';
    return $self->_failed($message, $end_timeout);
}

sub _failed {
    my ($self, $message, $end_timeout) = @_;
    $message =~ s/\s+\z//;
    # The master logs the failure of an interpreter.
    $self->{log}->error($message) if !$self->{worker_num};
    my $time_up = $self->_timer($end_timeout);
    return $self->_let_end($time_up)->then(sub {
        $time_up->cancel;
        return Future->fail("$message\n", 'lifespan');
    });
}

sub stop_startup {
    my ($self) = @_;
    my $answer = $self->{answer};
    return $answer->done('stopped') if $answer && !$answer->is_ready && $self->{phase} eq 'startup';
    $self->abandon                  if $self->{phase} eq 'over';
    return;
}

sub _stopped {
    my ($self) = @_;
    $self->abandon;
    $self->{log}->info("the application's startup is cancelled, the server has stopped");
    return Future->fail("The server was told to stop during the application's startup\n", 'stopped');
}

sub _declined {
    my ($self, $failure) = @_;
    my $reason = defined $failure ? "it died: $failure" : 'it returned';
    $reason =~ s/\s+\z//;
    return $self->_failed(
        "Lifespan is required (lifespan_mode on), but the application does not support it: $reason", 0)
        if $self->{mode} eq 'on';
    $self->{phase} = 'declined';
    # An application that does not know the scope dies before it asks for an event. A later exception is a
    # mistake, which may be that of one interpreter only.
    if (defined $failure && $self->{has_heard}) {
        $self->{log}
            ->error("the application died during lifespan startup, and gets requests all the same: $failure");
        return Future->done(0);
    }
    # A message that holds for all interpreters is logged by the first one.
    my $level = ($self->{worker_num} || 1) == 1 ? 'info' : 'debug';
    $self->{log}->$level('the application does not support lifespan'
            . (defined $failure && $failure =~ /\blifespan\b/i ? ', and gets requests only' : " ($reason)"));
    return Future->done(0);
}

sub shutdown {
    my ($self, $timeout) = @_;
    return Future->done if $self->{phase} ne 'started';
    my $time_up = $self->_timer($timeout);
    return $self->_answer_to_shutdown($time_up, $timeout)->then(sub { $self->_let_end($time_up) })
        ->on_ready(sub { $time_up->cancel });
}

# Resolves when the application has answered, has ended, or its deadline has passed.
sub _answer_to_shutdown {
    my ($self, $time_up, $timeout) = @_;
    return Future->done if !$self->{running};
    my $answer = $self->_ask('shutdown');
    $self->_deliver;
    return _first($answer, $time_up)->then(sub {
        my ($outcome, $detail) = @_;
        my $trouble =
            $outcome eq 'timeout'
            ? 'lifespan shutdown timed out after '
            . (sprintf('%.1f', $timeout) =~ s/\.0\z//r)
            . 's (shutdown_timeout)'
            : $outcome eq 'failed' ? "lifespan shutdown failed: $detail"
            : $outcome eq 'ended'
            && defined $detail ? "the application died during lifespan shutdown: $detail"
            : undef;
        $self->{log}->error($trouble) if defined $trouble;
        $self->abandon                if $outcome eq 'timeout';
        return Future->done;
    });
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Lifespan - startup and shutdown of an application

=head1 SYNOPSIS

    my $lifespan = PAGI::Server::Lifespan->new(app => $app, loop => $loop, log => $log, mode => 'auto');
    $lifespan->startup(30, 30)->get;
    ...
    $lifespan->shutdown(30)->get;

=head1 DESCRIPTION

Speaks the lifespan protocol of L<PAGI::Spec::Lifespan> with an application: one call with a scope of
type C<lifespan> for the life of the server.

=head1 METHODS

=head2 new

    my $lifespan = PAGI::Server::Lifespan->new(
        app => $app, loop => $loop, log => $log, mode => 'on', worker_num => 1,
    );

C<worker_num>: the number of the worker process, undef in a server without such. C<mode> is C<auto> (an
application may decline), C<on> (it must not) or C<off> (it is not asked).

=head2 startup

    my $supported = $lifespan->startup($seconds, $end_seconds)->get;

Calls the application and waits for its answer, at most C<$seconds> (0: for ever). The Future resolves with 1,
or with 0 when the application declined by dying or returning, and fails when it sent
C<lifespan.startup.failed> or did not answer in time. In the first of these two cases the application has
C<$end_seconds> to return before the Future fails.

=head2 shutdown

    $lifespan->shutdown($seconds)->get;

Tells the application to clean up and waits until it has answered and returned, at most C<$seconds> for both;
what has not returned then is cancelled. After its answer there are no further events: a C<$receive> that
waits for one is cancelled. The Future never fails; what goes wrong is logged.

=head2 stop_startup

    $lifespan->stop_startup;

Cancels the application's Future during its startup; that of L</startup> fails with the category C<stopped>.
After a failed startup: waits for nothing any more. Else does nothing.

=head2 abandon

    $lifespan->abandon;

Cancels the application's Future and waits for nothing any more.

=head2 state

    my $state = $lifespan->state;

The hash that the application filled during startup; undef unless it has completed that. Each request gets a
shallow copy.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
