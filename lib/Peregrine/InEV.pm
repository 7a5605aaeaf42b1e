package Peregrine::InEV;

use strict;
use warnings;

our $VERSION = '0.003000';

use Peregrine;
use Scalar::Util qw(weaken);

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# Nested waits of the application in which the loop has its turns.
use constant NESTED_MAX => 16;

sub new {
    my ($class, %args) = @_;
    my $self = bless { %args{qw(left turn child_ended)} }, $class;
    @{$self}{qw(pid depth nested signal_fd)} = ($$, 0, 0, -1);
    @{$self}{qw(due signals)}                = ({}, {});
    weaken(my $weak = $self);
    my $watchers = $self->{watchers} = {
        timer   => EV::timer_ns(0, 0, sub { $weak->_happened('timer') }),
        prepare => EV::prepare_ns(sub { $weak->_set_timer }),
        check   => EV::check_ns(sub { $weak->_note_work(1) }),
        child   => EV::child_ns(0, 0, sub { $weak->{child_ended}->($_[0]->rpid, $_[0]->rstatus) }),
    };
    _make_quiet($_) for values %$watchers;
    $watchers->{check}->priority(EV::MAXPRI());    # callbacks after it may take long
    $watchers->{$_}->start for qw(prepare check child);
    $self->watch_loop($args{descriptor});
    return $self;
}

sub watch_loop {
    my ($self, $fd) = @_;
    return $self->_watch_descriptor(loop => $fd);
}

# Gives the watcher the lowest priority, and lets it keep no EV::run going. So idle watchers, which always
# have something to do, do not delay the loop, and the loop does not delay them.
sub _make_quiet {
    my ($watcher) = @_;
    $watcher->priority(EV::MINPRI());
    $watcher->keepalive(0);
    return $watcher;
}

sub _watch_descriptor {
    my ($self, $what, $fd) = @_;
    weaken(my $weak = $self);
    my $watcher = EV::io_ns($fd, EV::READ(), sub { $weak->_happened($what) });
    $self->{watchers}{$what} = _make_quiet($watcher);
    $watcher->start;
    return;
}

sub is_foreign { return $_[0]{pid} != $$ }

# ---- Waiting ------------------------------------------------------------------------------------

# Waits in EV, which waits only if some watcher keeps it going, and then for a millisecond at least.
sub wait {
    my ($self, $limit) = @_;
    my $left = $self->{left}->($limit);
    local $self->{depth} = EV::depth() + 1;
    local $self->{limit} = $limit;
    return EV::run(EV::RUN_NOWAIT()) if defined $left && $left <= 0;
    my $watcher = $self->{watchers}{loop};
    $watcher->keepalive(1);
    EV::run(EV::RUN_ONCE());
    $watcher->keepalive(0);
    return;
}

# Waits without the engine, whose descriptor stays readable meanwhile.
sub wait_without_engine {
    my ($self, $limit) = @_;
    my $watcher = $self->{watchers}{engine};
    $watcher->stop if $watcher;
    $self->wait($limit);
    $watcher->start if $watcher && $self->{watchers}{engine};
    return;
}

sub take_due {
    my ($self) = @_;
    my $due = $self->{due};
    $self->{due} = {};
    return $due;
}

# Sets the timer for the loop's next deadline, when EV is about to wait.
sub _set_timer {
    my ($self) = @_;
    return $self->_leave if $self->is_foreign;
    $self->_note_work(0);
    my $timer = $self->{watchers}{timer};
    my $left  = $self->{left}->(EV::depth() == $self->{depth} ? $self->{limit} : undef);
    return $timer->stop if !defined $left;
    $timer->set($left > 0 ? $left : 0);
    $timer->start;
    return;
}

# Tells the engine whether callbacks run, of whatever module: meanwhile it gives new requests to other
# interpreters.
sub _note_work {
    my ($self, $works) = @_;
    my $engine = $self->engine or return;
    $engine->in_loop($works);
    return;
}

# Handles an event. If the loop itself waits, its turn follows. Otherwise the application waits, perhaps in a
# request, and the loop has a turn now, because other requests have to go on.
sub _happened {
    my ($self, $what) = @_;
    $self->{due}{$what} = 1;
    return              if EV::depth() == $self->{depth};
    return $self->_rest if $self->{nested} == NESTED_MAX;
    local $self->{nested} = $self->{nested} + 1;
    my $ok    = eval { $self->{turn}->(); 1 };
    my $error = $@;
    $self->_go_on;
    die $error if !$ok;    # EV passes it to $EV::DIED
    return;
}

sub _resting {
    return grep { defined } @{ $_[0]{watchers} }{qw(loop engine signals prepare)};
}

sub _rest {
    my ($self) = @_;
    $_->stop for $self->_resting, $self->{watchers}{timer};
    $self->{rests} = 1;
    return;
}

sub _go_on {
    my ($self) = @_;
    delete $self->{rests} or return;
    $_->start for $self->_resting;
    return;
}

# Leaves EV's watchers in a forked child that goes on with EV. They are its parent's, as are the descriptors
# by which EV watches, until EV is told of the fork.
sub _leave {
    my ($self) = @_;
    EV::default_loop()->loop_fork;
    $self->{watchers} = {};
    $self->{signals}  = {};
    return;
}

# ---- The engine ---------------------------------------------------------------------------------

sub watch_engine {
    my ($self, $engine) = @_;
    return 0 if $self->{engine};
    weaken($self->{engine} = $engine);
    $self->_watch_descriptor(engine => $engine->fd);
    return 1;
}

sub unwatch_engine {
    my ($self, $engine) = @_;
    return if !$self->{engine} || $self->{engine} != $engine;
    $self->_note_work(0);
    delete $self->{engine};
    delete $self->{watchers}{engine};
    return;
}

sub engine { return $_[0]{engine} }

# ---- Signals ------------------------------------------------------------------------------------

# Makes EV and the loop share a signal. EV takes a signal from others with its first watcher, and resets it
# with the last one. The first one is made here, and does nothing; then the loop may take the signal back.
# EV's wait is ended by a descriptor for signals that are blocked.
sub share_signal {
    my ($self, $name, $number) = @_;
    return if $self->is_foreign;
    my $watcher = _make_quiet(EV::signal_ns($name, sub { }));
    if (!eval { $watcher->start; 1 }) {
        die $@ if $@ !~ /already registered in another loop/;
        return;
    }
    $self->{signals}{$name} = [ $number, $watcher ];
    $self->_watch_signals;
    return;
}

sub unshare_signal {
    my ($self, $name) = @_;
    return if $self->is_foreign || ${^GLOBAL_PHASE} eq 'DESTRUCT' || !delete $self->{signals}{$name};
    $self->_watch_signals;
    return;
}

sub _watch_signals {
    my ($self) = @_;
    my $before = $self->{signal_fd};
    my $fd     = Peregrine::signal_descriptor($before, map { $_->[0] } values %{ $self->{signals} });
    die "cannot watch signals: $!\n" if $fd < 0;
    return                           if $fd == $before;
    $self->{signal_fd} = $fd;
    open $self->{signal_handle}, '<&=', $fd or die "cannot watch signals: $!\n";
    $self->_watch_descriptor(signals => $fd);
    return;
}

# Tells EV's watchers of signals that have come to the loop.
sub tell_signals {
    my ($self, @names) = @_;
    return if $self->is_foreign;
    EV::feed_signal_event($_) for @names;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::InEV - what an event loop needs that waits inside EV's default loop

=head1 SYNOPSIS

    my $ev = Peregrine::InEV->new(
        descriptor  => fileno $epoll,
        left        => sub { my ($limit) = @_; return $seconds },
        turn        => sub { ... },
        child_ended => sub { my ($pid, $status) = @_; ... },
    );
    $ev->wait(5);
    my $due = $ev->take_due;
    look_at($epoll) if $due->{loop};

=head1 DESCRIPTION

For L<IO::Async::Loop::Peregrine>, where the application has loaded L<EV>: the loop's wait is one turn of
C<EV::run>, so that both have their events. When the application itself calls C<EV::run> meanwhile, in a
request for instance, or waits for an L<AnyEvent> condition variable, the loop has its turns in there, up to
16 deep; those that wait deeper in each other have EV's events only. An exception in such a turn goes to
C<$EV::DIED>.

=head1 METHODS

=head2 new

C<descriptor> is readable when the loop has something to do. C<left> is given for how many seconds the loop is
willing to wait (undef: for ever), and tells for how many there is nothing to do. C<turn> does what is due.
C<child_ended> is told of each child that EV has taken: EV takes all.

=head2 watch_loop

    $ev->watch_loop(fileno $epoll);

The loop has another descriptor now.

=head2 is_foreign

Whether it was made by another process, from which this one was forked: then it is of no use here.

=head2 wait

    $ev->wait($limit);

Waits until something is due, or that many seconds are over; undef: for ever.

=head2 wait_without_engine

    $ev->wait_without_engine($limit);

Like C<wait>, for everything but the engine.

=head2 take_due

The events since the last call, as a hash: C<loop> (its descriptor is readable), C<engine>, C<signals>
(some are pending), C<timer>.

=head2 watch_engine

=head2 engine

=head2 unwatch_engine

    $ev->watch_engine($worker) or ...;

Waits for a L<Peregrine::Worker>, too, which it keeps not alive; false: there is one already.

=head2 share_signal

=head2 unshare_signal

    $ev->share_signal(TERM => 15);

The loop watches the signal and keeps it blocked. EV is to leave its handler alone from now on, which has to
be set afterwards.

=head2 tell_signals

    $ev->tell_signals(qw(TERM CHLD));

They came to the loop: those who watch them with EV are called in EV's next turn.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
