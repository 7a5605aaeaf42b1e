package IO::Async::Loop::Peregrine;

# IO::Async's epoll loop with timers that stay cheap by the thousand: a server has at least one for each
# stream that it paces. Uses what IO::Async::Loop documents for its subclasses; unwatch_signal says what else.

use strict;
use warnings;

our $VERSION = '0.003000';

use Carp  qw(croak);
use POSIX ();
use parent 'IO::Async::Loop::Epoll';

use constant API_VERSION => '0.76';

# A timer is [ when, what ]; they lie in the order of their times, those of one time in the
# order of their making.
use constant { AT => 0, CODE => 1 };

sub new {
    my ($class, @arguments) = @_;
    my $self = $class->SUPER::new(@arguments);
    $self->{peregrine_timers} = [];
    $self->{peregrine_idle}   = [];
    return $self;
}

# What is to be done later is taken from its queue one by one: IO::Async's own loses all others when one dies.
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
    my $at =
          defined $args{at}    ? $args{at}
        : defined $args{after} ? ($args{now} // $self->time) + $args{after}
        :                        croak q(Expected one of 'at' or 'after');

    my $timers = $self->{peregrine_timers};
    my $timer  = [ $at, $code ];
    if (!@$timers || $timers->[-1][AT] <= $at) {
        push @$timers, $timer;    # timers of one length come in order
    }
    else {
        splice @$timers, _first_from($timers, $at, 1), 0, $timer;
    }
    return $timer;
}

sub unwatch_time {
    my ($self, $timer) = @_;
    my $timers = $self->{peregrine_timers};
    for (my $index = _first_from($timers, $timer->[AT], 0); $index < @$timers; $index++) {
        last if $timers->[$index][AT] != $timer->[AT];
        next if $timers->[$index] != $timer;
        splice @$timers, $index, 1;
        last;
    }
    undef $timer->[CODE];    # it holds whatever it was made for
    return;
}

# The epoll loop goes through the values of its hash of signals in place, so that a callback that
# unwatches one of them would end it with "Use of freed value in iteration". The value lives until the
# loop has gone through them.
sub unwatch_signal {
    my ($self, $signal) = @_;
    my $signals = $self->{signals};
    my $kept    = $signals && exists $signals->{$signal} ? \$signals->{$signal} : undef;
    $self->SUPER::unwatch_signal($signal);
    $self->later(sub { undef $kept }) if $kept;
    return;
}

# The epoll loop blocks the signals that it watches. A child, and the program that it may run, has them as
# any other process.
sub fork {
    my ($self, %params) = @_;
    my $code = $params{code};
    return $self->SUPER::fork(%params) if !ref $code || $params{keep_signals};
    my $watched = POSIX::SigSet->new(map { $self->signame2num($_) } keys %{ $self->{signals} || {} });
    my $unblock = sub { POSIX::sigprocmask(POSIX::SIG_UNBLOCK(), $watched) };
    return $self->SUPER::fork(%params, code => sub { $unblock->(); $code->() });
}

# The index of the first timer that is due at that time or later, or later only.
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
    $$timeout = 0 if @{ $self->{peregrine_idle} };
    my $next = $self->{peregrine_timers}[0] or return;
    my $left = $next->[AT] - ($params{now} // $self->time);
    $left     = 0     if $left < 0;
    $$timeout = $left if !defined $$timeout || $left < $$timeout;
    return;
}

sub _manage_queues {
    my ($self) = @_;
    my $timers = $self->{peregrine_timers};
    my $count  = 0;
    if (@$timers) {
        my $now = $self->time;
        while (@$timers && $timers->[0][AT] <= $now) {
            my $timer = shift @$timers;
            my $code  = $timer->[CODE];
            undef $timer->[CODE];
            $code->();
            $count++;
        }
    }
    # What they add is for the next turn.
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

=head1 METHODS

=head2 new

See L<IO::Async::Loop::Epoll>.

=head2 watch_time

=head2 unwatch_time

As L<IO::Async::Loop> has them. To unwatch a timer that has fired, or that is not watched any
more, does nothing.

=head2 fork

As L<IO::Async::Loop> has it; so do processes and functions that it runs. In the child the signals that
the loop watches, and keeps blocked, are not blocked, unless C<keep_signals> is given: what it runs can
be ended with TERM.

=head2 unwatch_signal

As L<IO::Async::Loop> has it, and may be called, like C<detach_signal> and C<unwatch_process>, by the
callback of any signal.

=cut
