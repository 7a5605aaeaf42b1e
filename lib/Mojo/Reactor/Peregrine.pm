package Mojo::Reactor::Peregrine;

# Mojo::Reactor::Poll until a server attaches its loop; from then on timers and handles are watched by that
# loop. The fields of Mojo::Reactor::Poll are kept up to date all the time (timers: time, io: mode), so that
# the reactor can be attached and detached, and works on as Mojo::Reactor::Poll in a process that the
# application forks. EV needs no such reactor: IO::Async::Loop::Peregrine waits inside EV if it is loaded.

use strict;
use warnings;

use Mojo::Base 'Mojo::Reactor::Poll';

use Carp       qw(croak);
use IO::Poll   qw(POLLIN POLLOUT POLLPRI);
use Mojo::Util qw(steady_time);

our $VERSION = '0.003000';

# Seconds of a timer at least, as in Mojo::Reactor::EV: a recurring timer of 0 seconds leaves others a turn.
use constant SHORTEST => 0.0001;

my $INSTANCES = 0;

# The first instance is attached to the server's only loop. Others (for blocking user agents, or of
# Mojo::IOLoop->new) have a loop of their own.
sub new {
    my ($class, @arguments) = @_;
    return Mojo::Reactor::Poll->new(@arguments) if $INSTANCES;
    $INSTANCES = 1;
    return $class->SUPER::new(@arguments);
}

sub DESTROY {
    my ($self) = @_;
    return if ${^GLOBAL_PHASE} eq 'DESTRUCT';
    $self->detach;
    $INSTANCES = 0;
    return;
}

# ---- The server's loop --------------------------------------------------------------------------

sub attach {
    my ($self, $loop, %args) = @_;
    croak 'Mojo::Reactor::Peregrine: it has a loop already' if $self->_loop;
    @{$self}{qw(peregrine_loop peregrine_pid peregrine_on_stop)} = ($loop, $$, $args{on_stop});
    $self->{running} = 1 if $args{on_stop};    # the server runs the loop
    my $timers = $self->{timers};
    $self->_arm($_) for sort { $timers->{$a}{time} <=> $timers->{$b}{time} } keys %{ $timers // {} };
    $self->_watch_mode($_) for values %{ $self->{io} // {} };
    return $self;
}

sub detach {
    my ($self) = @_;
    my $loop = $self->_loop or return $self;
    for my $timer (values %{ $self->{timers} // {} }) {
        $loop->unwatch_time(delete $timer->{watch}) if $timer->{watch};
    }
    $self->_unwatch($_) for values %{ $self->{io} // {} };
    $self->_forget_loop;
    delete $self->{running};
    return $self;
}

sub is_attached {
    my ($self) = @_;
    return !!$self->_loop;
}

# The server's loop, in the process that was attached: a forked child goes on as Mojo::Reactor::Poll.
sub _loop {
    my ($self) = @_;
    my $loop = $self->{peregrine_loop} // return;
    return $loop if $self->{peregrine_pid} == $$;
    $self->_forget_loop;
    return;
}

sub _forget_loop {
    my ($self) = @_;
    delete @{$self}{ grep { /\Aperegrine_/ } keys %$self };
    delete $_->{watch}   for values %{ $self->{timers} // {} };
    delete $_->{watched} for values %{ $self->{io}     // {} };
    $self->{next_timer} = $self->timer(0 => \&Mojo::Reactor::Poll::_next) if delete $self->{next_timer};
    return;
}

# ---- Running ------------------------------------------------------------------------------------

sub one_tick {
    my ($self) = @_;
    return $self->SUPER::one_tick if !$self->_loop;
    return $self->_nest(sub { $self->_tick });
}

sub start {
    my ($self) = @_;
    return $self->SUPER::start if !$self->_loop;
    return $self->_nest(sub { $self->_tick while $self->{running} });
}

sub _nest {
    my ($self, $run) = @_;
    local $self->{running}        = ($self->{running}        // 0) + 1;
    local $self->{peregrine_nest} = ($self->{peregrine_nest} // 0) + 1;
    $run->();
    return;
}

# Makes a tick. In a handler that is a turn of the server's loop, which may handle other events, too.
sub _tick {
    my ($self) = @_;
    my $before = $self->{peregrine_events} // 0;
    while ($self->{running} && ($self->{peregrine_events} // 0) == $before) {
        my $loop = $self->_loop or return $self->SUPER::one_tick;
        return $self->stop if !$self->{peregrine_on_stop} && !$self->_has_work;
        $loop->loop_once;
        last if $self->{peregrine_on_stop};
    }
    return;
}

sub _has_work {
    my ($self) = @_;
    return %{ $self->{timers} // {} } || %{ $self->{io} // {} } || $self->{next_timer};
}

# Ends the innermost `start`; outside of any, the server is to stop.
sub stop {
    my ($self) = @_;
    my $on_stop = $self->_loop && !$self->{peregrine_nest} ? $self->{peregrine_on_stop} : undef;
    return $self->SUPER::stop if !$on_stop;
    $on_stop->();
    return;
}

sub reset {
    my ($self) = @_;
    my $loop = $self->_loop or return $self->SUPER::reset;
    $self->remove($_)   for keys %{ $self->{timers} // {} };
    $self->_unwatch($_) for values %{ $self->{io}   // {} };
    $loop->unwatch_idle($self->{next_timer}) if $self->{next_timer};
    $self->SUPER::reset;
    $self->{running} = 1 if $self->{peregrine_on_stop};
    return;
}

# ---- Timers -------------------------------------------------------------------------------------

sub _timer {
    my ($self, $recurring, $after, $code) = @_;
    my $id = $self->SUPER::_timer($recurring, $after, $code);
    $self->_arm($id) if $self->_loop;
    return $id;
}

sub _arm {
    my ($self, $id) = @_;
    my $timer = $self->{timers}{$id};
    my $after = $timer->{time} - steady_time;
    $timer->{watch} =
        $self->{peregrine_loop}
        ->watch_time(after => $after > 0 ? $after : 0, code => sub { $self->_expired($id) });
    return;
}

sub _expired {
    my ($self, $id) = @_;
    my $timer = $self->{timers}{$id} or return;
    if ($timer->{recurring}) {
        my $after = $timer->{after} > SHORTEST ? $timer->{after} : SHORTEST;
        $timer->{time} = steady_time + $after;
        $self->_arm($id);
    }
    else { delete $self->{timers}{$id} }
    $self->{peregrine_events}++;
    $self->_try('Timer', $timer->{cb});
    return;
}

sub again {
    my ($self, $id, @after) = @_;
    $self->SUPER::again($id, @after);
    my $loop = $self->_loop or return;
    $loop->unwatch_time($self->{timers}{$id}{watch});
    $self->_arm($id);
    return;
}

sub next_tick {
    my ($self, $code) = @_;
    my $loop = $self->_loop or return $self->SUPER::next_tick($code);
    push @{ $self->{next_tick} }, $code;
    $self->{next_timer} //= $loop->watch_idle(when => 'later', code => sub { $self->_ticked });
    return undef;
}

# Runs functions of next_tick. As in Mojo::Reactor::Poll, a chain of settled promises is done in one turn.
sub _ticked {
    my ($self) = @_;
    delete $self->{next_timer};
    $self->{peregrine_events}++;
    while (my $code = shift @{ $self->{next_tick} || [] }) { $self->_try('Timer', $code) }
    return;
}

# ---- Handles ------------------------------------------------------------------------------------

sub io {
    my ($self, $handle, $code) = @_;
    my $fd = fileno($handle) // croak 'Handle is closed';
    $self->_unwatch($self->{io}{$fd}) if $self->{io}{$fd};
    $self->{io}{$fd} = { cb => $code, fd => $fd };
    return $self->watch($handle, 1, 1);
}

sub watch {
    my ($self, $handle, $read, $write) = @_;
    $self->SUPER::watch($handle, $read, $write);
    my $io = $self->{io}{ fileno $handle };
    $io->{handle} = $handle;
    $self->_watch_mode($io) if $self->_loop;
    return $self;
}

# Tells the loop of changes only: a stream asks for the same mode again and again.
sub _watch_mode {
    my ($self, $io)     = @_;
    my ($loop, $handle) = ($self->{peregrine_loop}, $io->{handle});
    for my $way ([ on_read_ready => POLLIN | POLLPRI, 0 ], [ on_write_ready => POLLOUT, 1 ]) {
        my ($name, $bits, $is_write) = @$way;
        my $is_wanted = $io->{mode} & $bits ? 1 : 0;
        next if $is_wanted == ($io->{watched}{$name} // 0);
        if ($is_wanted) {
            my $fd = $io->{fd};
            $loop->watch_io(handle => $handle, $name => sub { $self->_ready($fd, $is_write) });
        }
        else { $loop->unwatch_io(handle => $handle, $name => 1) }
        $io->{watched}{$name} = $is_wanted;
    }
    return;
}

sub _ready {
    my ($self, $fd, $is_write) = @_;
    my $io = $self->{io}{$fd} or return;
    $self->{peregrine_events}++;
    $self->_try('I/O watcher', $io->{cb}, $is_write);
    return;
}

sub _unwatch {
    my ($self, $io) = @_;
    my $watched = delete $io->{watched} or return;
    my $loop    = $self->_loop          or return;
    my $handle  = delete $io->{handle};
    my $fd      = fileno $handle;
    # The number of a handle that was closed before it was removed may belong to another one.
    return $loop->forget_descriptor($io->{fd}) if !defined $fd || $fd != $io->{fd};
    my @ways = grep { $watched->{$_} } keys %$watched;
    $loop->unwatch_io(handle => $handle, map { $_ => 1 } @ways) if @ways;
    return;
}

sub remove {
    my ($self, $remove) = @_;
    my $loop = $self->_loop or return $self->SUPER::remove($remove);
    if (!ref $remove) {
        my $timer = delete $self->{timers}{$remove} or return !!0;
        $loop->unwatch_time($timer->{watch}) if $timer->{watch};
        return !!1;
    }
    my $io = delete $self->{io}{ fileno($remove) // croak 'Handle is closed' } or return !!0;
    $self->_unwatch($io);
    return !!1;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Mojo::Reactor::Peregrine - Mojolicious' event loop on the loop of a Peregrine server

=head1 SYNOPSIS

    MOJO_REACTOR=Mojo::Reactor::Peregrine ...       # before Mojo::IOLoop is loaded

    my $reactor = Mojo::IOLoop->singleton->reactor;
    $reactor->attach($io_async_loop, on_stop => sub { $server->shutdown });

=head1 DESCRIPTION

With this reactor L<Mojo::IOLoop> has no loop of its own inside a Peregrine server: its timers, handles and
ticks are watched by the L<IO::Async::Loop> that the server runs, with one wait for all of them. Timers of
IO::Async, Futures, and (where L<EV> is loaded) watchers of EV and L<AnyEvent> work beside them. See
L<IO::Async::Loop::Peregrine/EV>.

Until a server attaches its loop, and in processes that the application forks, it is a L<Mojo::Reactor::Poll>.
Timers and handles from before, of the application's startup for instance, move to the loop.

L<Mojo::Server::Peregrine> does all this. The reactor has to be chosen before L<Mojo::IOLoop> is loaded, which
makes it at once; so MOJO_REACTOR names it.

=head2 Differences from the daemon's loop

=over

=item *

C<is_running> is true in every handler, as with the daemon. C<one_tick> within a handler is one turn of the
server's loop, in which other requests are served; these turns nest 16 deep, and in deeper ones no requests
are.

=item *

C<stop> ends the innermost C<start> or C<one_tick>. Outside of these it stops the server, or the interpreter.

=item *

The first instance is the server's. Further reactors, of blocking user agents and of C<< Mojo::IOLoop->new >>,
are L<Mojo::Reactor::Poll>: code that waits in such a reactor blocks the interpreter.

=item *

The loop keeps a handle that is watched, until it is removed.

=item *

Not for clones of an interpreter (C<--engine thread> with C<--workers>): a loop belongs to its interpreter.

=back

=head1 METHODS

Those of L<Mojo::Reactor>, and

=head2 attach

    $reactor->attach($loop);
    $reactor->attach($loop, on_stop => sub {...});

With C<on_stop> it is somebody else who runs the loop, and the function is called when it is to stop; without,
C<start> and C<one_tick> run it.

=head2 detach

Back to L<Mojo::Reactor::Poll>, with all timers and handles.

=head2 is_attached

Whether this process has attached it to a loop.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
