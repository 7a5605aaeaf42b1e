package IO::Async::Loop::Peregrine;

# IO::Async's epoll loop with timers that stay cheap by the thousand: a server has at least one for each
# stream that it paces. A loop with an engine waits in the engine, which has an epoll descriptor of its own
# and watches the loop's: so there is one wait for everything. The loop uses what IO::Async::Loop documents
# for its subclasses, except in unwatch_signal and watch_engine.

use strict;
use warnings;

our $VERSION = '0.003000';

use Carp         qw(croak);
use POSIX        ();
use Scalar::Util qw(weaken);
use Time::HiRes  qw(CLOCK_MONOTONIC);
use parent 'IO::Async::Loop::Epoll';

use constant API_VERSION => '0.76';

# Nested turns that handle events of the engine; deeper turns handle only the loop's own.
use constant NESTED_MAX => 16;

# Turns that find work at once, and so do not wait in the kernel, where signals arrive: after so many of them
# the loop lets signals in.
use constant SIGNAL_TURNS => 64;

# A timer is [ time, function, time of day ]. Timers are sorted by time, those of one time by their age. Times
# are of a clock that never goes back: the machine's time may be set back by hours, and timers would wait
# longer. A timer that was asked for by a time of day keeps it, and moves when the machine's time is set.
use constant { AT => 0, CODE => 1, DATE => 2 };

# Seconds by which the difference between the two clocks must change to count as another one. A smaller change
# is the time between two readings, by which timers of one time would change places.
use constant DRIFT_S => 0.01;

sub new {
    my ($class, @arguments) = @_;
    my $self = $class->SUPER::new(@arguments);
    $self->{peregrine_timers} = [];
    $self->{peregrine_dated}  = 0;    # timers that have a time of day
    $self->{peregrine_idle}   = [];
    return $self;
}

# Functions for `later` are taken from the queue one by one: IO::Async's own loop loses all others when one
# dies.
sub watch_idle {
    my ($self, %args) = @_;
    my $code = $args{code};
    croak q(Expected 'code' to be a reference) if !ref $code;
    croak q(Expected 'when' to be 'later')     if ($args{when} // '') ne 'later';
    my $watch = [$code];
    push @{ $self->{peregrine_idle} }, $watch;
    return $watch;
}

sub unwatch_idle {
    my ($self, $watch) = @_;
    undef $watch->[0];
    return;
}

sub watch_time {
    my ($self, %args) = @_;
    my $code = $args{code};
    croak q(Expected 'code' to be a CODE reference) if !ref $code;
    my ($at, $after, $now) = @args{qw(at after now)};
    croak q(Expected one of 'at' or 'after') if !defined $at && !defined $after;
    my $date = $at;
    $at //= $now + $after if defined $now;
    $self->_follow_clock  if defined $at;
    $at = defined $at ? $at - $self->{peregrine_ahead} : _steady_now() + $after;

    my $timers = $self->{peregrine_timers};
    my $timer  = [ $at, $code, $date ];
    $self->{peregrine_dated}++ if defined $date;
    if (!@$timers || $timers->[-1][AT] <= $at) {
        push @$timers, $timer;    # timers of one length come in order
    }
    else {
        splice @$timers, _first_from($timers, $at, 1), 0, $timer;
    }
    return $timer;
}

sub _steady_now { return Time::HiRes::clock_gettime(CLOCK_MONOTONIC) }

# Notes by how many seconds the time of day is ahead of the timers' clock. If it was set, timers that have a
# time of day move.
sub _follow_clock {
    my ($self) = @_;
    my $ahead  = $self->time - _steady_now();
    my $known  = $self->{peregrine_ahead};
    return if defined $known && abs($ahead - $known) <= DRIFT_S;
    $self->{peregrine_ahead} = $ahead;
    return if !$self->{peregrine_dated};
    my $timers = $self->{peregrine_timers};
    for my $timer (@$timers) { $timer->[AT] = $timer->[DATE] - $ahead if defined $timer->[DATE] }
    @$timers = sort { $a->[AT] <=> $b->[AT] } @$timers;
    return;
}

sub unwatch_time {
    my ($self, $timer) = @_;
    my $timers = $self->{peregrine_timers};
    for (my $index = _first_from($timers, $timer->[AT], 0); $index < @$timers; $index++) {
        last if $timers->[$index][AT] != $timer->[AT];
        next if $timers->[$index] != $timer;
        splice @$timers, $index, 1;
        $self->{peregrine_dated}-- if defined $timer->[DATE];
        last;
    }
    undef $timer->[CODE];    # the function holds objects
    return;
}

# Waits in the engine from now on. False: the engine cannot wait for others, or another engine does already,
# or the epoll loop is measured (Metrics::Any, IO_ASYNC_WATCHDOG); then the engine's descriptor has to be
# watched.
sub watch_engine {
    my ($self, $engine) = @_;
    my $ev = $self->_ev;
    return $ev->watch_engine($engine) if $ev;
    return 0 if $self->{peregrine_engine} || $self->WATCHDOG_ENABLE || _is_measured();
    return 0 if $self->{pid} != $$ || !$engine->wait_for_loop(fileno $self->{epoll});
    weaken($self->{peregrine_engine} = $engine);
    return 1;
}

sub _is_measured {
    my $adapter = Metrics::Any::Adapter->can('adapter') ? Metrics::Any::Adapter->adapter : undef;
    return $adapter && !$adapter->isa('Metrics::Any::Adapter::Null');
}

# Gets another epoll descriptor, for the present engine; in a fork for none.
sub post_fork {
    my ($self) = @_;
    my $is_fork = $self->{pid} != $$;
    # Version 0.22 does not watch a descriptor again that it still knows.
    @{$self}{qw(masks refaddr_for_fileno fakeevents)} = ({}, {}, {})
        if IO::Async::Loop::Epoll->VERSION < 0.23;
    $self->SUPER::post_fork;
    delete $self->{peregrine_engine} if $is_fork;
    my $engine = $self->{peregrine_engine};
    my $ev     = $self->{peregrine_ev};
    $engine->wait_for_loop(fileno $self->{epoll}) if $engine;
    $ev->watch_loop(fileno $self->{epoll})        if $ev && !$ev->is_foreign;
    return;
}

sub unwatch_engine {
    my ($self, $engine) = @_;
    $self->{peregrine_ev}->unwatch_engine($engine) if $self->{peregrine_ev};
    my $watched = $self->{peregrine_engine} or return;
    return if $watched != $engine;
    delete $self->{peregrine_engine};
    $engine->wait_for_loop(-1) if $self->{pid} == $$;
    return;
}

# Lets signals in. The epoll loop blocks signals that it watches except while it waits, and a loop that is
# never idle does not wait. Works with any epoll loop.
sub let_signals_in {
    my ($self)  = @_;
    my $watched = $self->{signals};
    my @quiet   = grep { !$watched->{$_}->pending } keys %$watched;
    my $signals = POSIX::SigSet->new(map { $self->signame2num($_) } keys %$watched);
    my $blocked = POSIX::SigSet->new;
    POSIX::sigprocmask(POSIX::SIG_UNBLOCK(), $signals, $blocked);
    POSIX::sigprocmask(POSIX::SIG_SETMASK(), $blocked);
    $self->{peregrine_signals} = 1;    # callbacks of signals are due
    $self->{peregrine_ev}->tell_signals(grep { $watched->{$_}->pending } @quiet) if $self->{peregrine_ev};
    return;
}

# Runs the loop. While only the engine has something to do, its turns need no Perl code.
sub run {
    my ($self) = @_;
    local $self->{running} = 1;
    local $self->{result}  = [];
    while ($self->{running}) {
        my $engine = $self->_ev ? undef                 : $self->{peregrine_engine};
        my $is_due = $engine    ? $engine->turns($self) : undef;
        if    (!$self->{running}) { last }
        elsif (defined $is_due)   { $self->_after_wait($is_due) }
        else                      { $self->loop_once }
    }
    return wantarray ? @{ $self->{result} } : $self->{result}[0];
}

# Makes a turn. The epoll loop's own turn follows only if it has something to do.
sub loop_once {
    my ($self, $timeout) = @_;
    my $is_deep = ($self->{peregrine_depth} // 0) >= NESTED_MAX;
    local $self->{peregrine_depth} = ($self->{peregrine_depth} // 0) + 1;
    if (my $ev = $self->_ev) {
        if   ($is_deep) { $ev->wait_without_engine($timeout) }
        else            { $ev->wait($timeout) }
        return $self->_turn_in_ev;
    }
    my $engine = $is_deep ? undef : $self->{peregrine_engine};
    return $self->_own_turn($timeout) if !$engine;
    my $left   = $self->_time_left($timeout);
    my $is_due = $engine->wait(defined $left ? POSIX::ceil($left * 1000) : -1);
    if (!defined $is_due) {    # in a fork the loop has no engine
        delete $self->{peregrine_engine};
        return $self->_own_turn($timeout);
    }
    return $self->_after_wait($is_due);
}

# Seconds until the loop has something to do, or until the timeout.
sub _time_left {
    my ($self, $timeout) = @_;
    $timeout = 0 if $self->{peregrine_signals} || %{ $self->{fakeevents} };
    $self->_adjust_timeout(\$timeout);
    return $timeout;
}

sub _after_wait {
    my ($self, $is_due) = @_;
    if (!$is_due && !%{ $self->{fakeevents} }) {
        $self->_note_turn;
        return 1 + $self->_as_work('_manage_queues') if !$self->{peregrine_signals};
    }
    # deleted, because the processing time would include the wait
    delete @{$self}{qw(peregrine_signals processing_start)};
    return $self->_as_work(_own_turn => 0);
}

# Runs the loop's own callbacks, which may take long, or never return. Meanwhile the engine gives new requests
# to other interpreters.
sub _as_work {
    my ($self, $method, @arguments) = @_;
    my $engine = $self->{peregrine_turns} ? undef : $self->{peregrine_engine};
    return $self->$method(@arguments) if !$engine;
    $engine->in_loop(1);
    my $count = $self->$method(@arguments);
    $engine->in_loop(0);
    return $count;
}

sub _note_turn {
    my ($self) = @_;
    $self->let_signals_in if ++$self->{peregrine_busy} % SIGNAL_TURNS == 0 && %{ $self->{signals} };
    return;
}

# Makes the epoll loop's own turn. Callbacks may turn the loop themselves; values that unwatch_signal keeps
# are freed by the outermost turn.
sub _own_turn {
    my ($self, $timeout) = @_;
    my $is_nested = $self->{peregrine_turns};
    local $self->{peregrine_turns} = 1;
    $timeout = 0 if delete $self->{peregrine_signals};
    my $count = $self->SUPER::loop_once($timeout);
    $self->{peregrine_worked} = $count;
    delete $self->{peregrine_kept} if !$is_nested;
    return $count;
}

# ---- Inside EV ----------------------------------------------------------------------------------

sub stay_out_of_ev {
    my ($self) = @_;
    $self->{peregrine_ev} //= 0;
    return;
}

# The loop waits inside of EV (Peregrine::InEV) as soon as the process has loaded EV.
sub _ev {
    my ($self) = @_;
    return if !$INC{'EV.pm'};
    my $ev = $self->{peregrine_ev};
    return $ev              if defined $ev && !($ev && $ev->is_foreign);
    return $self->_enter_ev if defined &EV::run;
    return;
}

sub _enter_ev {
    my ($self) = @_;
    require Peregrine::InEV;
    if ($self->{pid} != $$) {
        $self->post_fork;
        EV::default_loop()->loop_fork;
    }
    my $engine = delete $self->{peregrine_engine};
    $engine->wait_for_loop(-1) if $engine;
    weaken(my $weak = $self);
    my $ev = $self->{peregrine_ev} = Peregrine::InEV->new(
        descriptor  => fileno $self->{epoll},
        left        => sub { return $weak->_time_left(@_) },
        turn        => sub { return $weak->_turn_in_ev },
        child_ended => sub { return $weak->_child_ended(@_) },
    );
    $ev->watch_engine($engine) if $engine;
    $self->_share_signal($_) for keys %{ $self->{signals} };
    # Only let_signals_in lets signals in from now on, and tells EV.
    $self->{sigmask}->fillset;
    # EV hears of ended children in any case, and waits for all of them, so IO::Async's loop must not do it as
    # well. The watch for this process, which is no child of its own, keeps the loop from it.
    local $?;
    $self->watch_process($$ => sub { });
    ${ $self->{childwatch_sigid} } = sub { };
    return $ev;
}

sub _turn_in_ev {
    my ($self) = @_;
    my $ev     = $self->{peregrine_ev};
    my $due    = $ev->take_due;
    $self->let_signals_in if $due->{signals};
    $due->{loop} = 1 if delete $self->{peregrine_signals};
    my $engine = $ev->engine;
    $engine->dispatch                if $due->{engine} && $engine;
    return 1 + $self->_manage_queues if !$due->{loop}  && !%{ $self->{fakeevents} };
    delete $self->{processing_start};
    return $self->_own_turn(0);
}

sub watch_signal {
    my ($self, $signal, $code) = @_;
    my $ev = $self->{peregrine_ev};
    $ev->share_signal($signal, $self->signame2num($signal)) if $ev;
    return $self->SUPER::watch_signal($signal, $code);
}

# Gives a signal to EV that the loop watched before EV was loaded.
sub _share_signal {
    my ($self, $signal) = @_;
    my $number  = $self->signame2num($signal);
    my $pending = \$self->{signals}{$signal}->pending;
    POSIX::sigprocmask(POSIX::SIG_BLOCK(), POSIX::SigSet->new($number));
    $self->{peregrine_ev}->share_signal($signal, $number);
    POSIX::sigprocmask(POSIX::SIG_BLOCK(), POSIX::SigSet->new($number));
    POSIX::sigaction($number, POSIX::SigAction->new(sub { $$pending = 1 }));
    return;
}

# Calls the callbacks for a child that has ended, which EV has noticed. They are called in the loop's turn,
# which handles exceptions.
sub _child_ended {
    my ($self, $pid, $status) = @_;
    my $watches = $self->{childwatches};
    my @codes   = (delete $watches->{$pid}, $watches->{0});
    for my $code (grep { defined } @codes) {
        $self->watch_idle(when => 'later', code => sub { $code->($pid, $status) });
    }
    return;
}

# ---- Signals and processes ----------------------------------------------------------------------

# The epoll loop iterates over the values of its hash of signals in place, so a callback that unwatches a
# signal would end it with "Use of freed value in iteration". The value is kept until the iteration has ended.
sub unwatch_signal {
    my ($self, $signal) = @_;
    my $signals = $self->{signals};
    my $kept    = $signals && exists $signals->{$signal} ? \$signals->{$signal} : undef;
    my $ev      = $self->{peregrine_ev};
    $ev->unshare_signal($signal) if $ev;
    $self->SUPER::unwatch_signal($signal);
    push @{ $self->{peregrine_kept} }, $kept if $kept;
    return;
}

# Forks with the signals unblocked that the epoll loop blocks, so that a child, and a program that it runs,
# has them as any other process.
sub fork {
    my ($self, %params) = @_;
    my $code = $params{code};
    return $self->SUPER::fork(%params) if !ref $code || $params{keep_signals};
    my $watched   = POSIX::SigSet->new(map { $self->signame2num($_) } keys %{ $self->{signals} || {} });
    my $unblocked = sub { POSIX::sigprocmask(POSIX::SIG_UNBLOCK(), $watched); return $code->() };
    return $self->SUPER::fork(%params, code => $unblocked);
}

# Forgets a descriptor. A handle that was closed while it was watched cannot be unwatched any more, and
# another handle may have its number.
sub forget_descriptor {
    my ($self, $fd) = @_;
    delete $self->{$_}{$fd} for qw(iowatches masks callbacks refaddr_for_fileno fakeevents);
    return;
}

# The index of the first timer that is due at `$at` or later; with `$later` later only.
sub _first_from {
    my ($timers, $at, $later) = @_;
    my ($low, $high) = (0, scalar @$timers);
    while ($low < $high) {
        my $middle = ($low + $high) >> 1;
        my $time   = $timers->[$middle][AT];
        if   ($time < $at || $later && $time == $at) { $low  = $middle + 1 }
        else                                         { $high = $middle }
    }
    return $low;
}

sub _adjust_timeout {
    my ($self, $timeout, %params) = @_;
    $self->SUPER::_adjust_timeout($timeout, %params);
    $$timeout = 0        if @{ $self->{peregrine_idle} };
    $self->_follow_clock if $self->{peregrine_dated};
    if (my $next = $self->{peregrine_timers}[0]) {
        my $left = $next->[AT] - _steady_now();
        $left     = 0     if $left < 0;
        $$timeout = $left if !defined $$timeout || $left < $$timeout;
    }
    # A handle that is always ready prevents waits, too.
    $self->_note_turn if $self->{peregrine_worked} || defined $$timeout && $$timeout <= 0;
    $$timeout = 0     if $self->{peregrine_signals};
    return;
}

sub _manage_queues {
    my ($self) = @_;
    my $timers = $self->{peregrine_timers};
    my $count  = 0;
    if (@$timers) {
        $self->_follow_clock if $self->{peregrine_dated};
        my $now = _steady_now();
        while (@$timers && $timers->[0][AT] <= $now) {
            my $timer = shift @$timers;
            my $code  = $timer->[CODE];
            $self->{peregrine_dated}-- if defined $timer->[DATE];
            undef $timer->[CODE];
            $code->();
            $count++;
        }
    }
    # Functions that are added meanwhile are for the next turn.
    my $idle = $self->{peregrine_idle};
    for (my $left = @$idle; $left > 0 && @$idle; $left--) {
        my $watch = shift @$idle;
        my $code  = delete $watch->[0] or next;
        $code->();
        $count++;
    }
    return $count + $self->SUPER::_manage_queues;
}

1;

__END__

=head1 NAME

IO::Async::Loop::Peregrine - IO::Async's epoll loop with cheap timers

=head1 SYNOPSIS

    pagi-server app.pl                            # uses it by default on Linux
    IO_ASYNC_LOOP=Peregrine perl program.pl       # any IO::Async program

=head1 DESCRIPTION

L<IO::Async::Loop::Epoll>, but C<watch_time> and C<unwatch_time> keep timers in an array in the order of their
times. A timer that is due after all others, as those of one length always are, is added in constant time, any
other by a binary search. IO::Async's own queue searches from its front, or takes about 45 microseconds a
timer with L<Heap::Fibonacci>.

C<PAGI::Server-E<gt>run> and C<pagi-server> make this loop unless C<loop_type>, C<--loop> or the environment
variable C<IO_ASYNC_LOOP> name another one, or L<IO::Async::Loop::Epoll> cannot be loaded. A server that is
added to a loop of yours works with whatever that is.

=head2 EV

L<EV> has a loop of its own, which nobody would run. As soon as it is loaded this loop waits in there, with
C<EV::run>: timers and watchers of both are called, and those of L<AnyEvent>, which uses one or the other.
This costs an additional system call for each turn; without EV it costs nothing.

=over

=item *

When somebody else calls C<EV::run>, in a callback or a request, this loop has its turns in there, too, unless
16 of these calls lie in each other. C<EV::break> does not stop this loop.

=item *

A signal that both watch is told to both, whoever came first; so is the end of a child. EV takes all children
that end, as it always does: who waits for one by C<waitpid> without having blocked finds it gone.

=item *

An exception in a callback of EV goes to C<$EV::DIED>, and the loop goes on. An exception in a callback
of IO::Async leaves C<run>, as ever, unless the callback runs within another module's C<EV::run>.

=item *

It is EV's default loop that runs, and no other one.

=back

=head1 METHODS

=head2 new

See L<IO::Async::Loop::Epoll>.

=head2 watch_time

=head2 unwatch_time

As L<IO::Async::Loop> has them. To unwatch a timer that has fired, or that is not watched any
more, does nothing. When the machine's time is set, timers with C<at> move, and those with C<after> do not.

=head2 stay_out_of_ev

    $loop->stay_out_of_ev;

For a process that runs no application: L</EV> stands still there. To be said before the loop runs.

=head2 watch_engine

=head2 unwatch_engine

    $loop->watch_engine($worker) or ...;
    $loop->unwatch_engine($worker);

For L<PAGI::Server>: from now on the loop waits in the engine of a L<Peregrine::Worker>, which ends the wait
when there is something to do for the loop: one wait for both, instead of an engine's within a loop's. False
if the engine cannot do so, or if the loop has another engine. The loop keeps neither alive.

=head2 post_fork

As L<IO::Async::Loop> has it: the loop gets a new epoll descriptor. In a forked child it has no engine then.

=head2 let_signals_in

    $loop->let_signals_in;

Lets the loop see the signals that are pending. L<IO::Async::Loop::Epoll> does so only when it is idle. This
loop does it by itself when it has been busy for 64 turns.

=head2 run

As L<IO::Async::Loop> has it. While only the engine has something to do, its turns run no Perl code of the
loop.

=head2 loop_once

As L<IO::Async::Loop> has it. Returns a value other than 0 if the loop has an engine. In callbacks and
requests it may be called again; 16 of such turns may lie in each other, deeper ones are without the engine:
no request is served in them.

=head2 fork

As L<IO::Async::Loop> has it; so do processes and functions that it runs. In the child the signals that
the loop watches, and keeps blocked, are not blocked, unless C<keep_signals> is given: what it runs can
be ended with TERM.

=head2 forget_descriptor

    $loop->forget_descriptor($number);

Whatever was watched of the descriptor with that number, whose handle was closed meanwhile, is not watched any
more.

=head2 watch_signal

=head2 unwatch_signal

As L<IO::Async::Loop> has it, and may be called, like C<detach_signal> and C<unwatch_process>, by the
callback of any signal.

=cut
