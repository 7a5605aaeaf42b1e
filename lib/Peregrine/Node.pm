package Peregrine::Node;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use Peregrine;
use Peregrine::Later qw(later weakly);
use Scalar::Util     qw(weaken);
use Socket           qw(AF_UNIX PF_UNSPEC SOCK_STREAM);

# Constants of peregrine_node_poll, peregrine_node_request and their results; see peregrine.h.
use constant { CONNECTED => 1, DEADLINES => 4 };
use constant {
    OK          => 0,
    GONE        => 1,
    FULL        => 2,
    TOO_MANY    => 3,
    UNAVAILABLE => 4,
    UNKNOWN     => 5,
    NAME        => 6,
    TOO_LARGE   => 7,
    FORBIDDEN   => 8,
};
my %KINDS = (
    subscribe => 1,
    publish   => 2,
    send      => 3,
    add       => 4,
    discard   => 5,
    flush     => 6,
    append    => 7,
    look      => 8,
    who       => 9
);
my %AS = (text => 0, binary => 1, events => 2);

# Seconds between looks at requests that wait for an answer.
use constant TICK_S => 1;

# Seconds until the next attempt to join a hub, the first and the longest.
use constant { AGAIN_S => 0.02, AGAIN_MAX_S => 1 };

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP                        { return 1 }
sub Peregrine::NodeHandle::CLONE_SKIP { return 1 }

# `join`: the socket that leads to the hub; `limits`: capacity, milliseconds of expiry, bytes of a message;
# `history`: entries, bytes and milliseconds of the history of a topic.
sub new {
    my ($class, %args) = @_;
    my $handle = Peregrine::NodeHandle->new or die "no memory for a node of the hub\n";
    my $self   = bless {
        %args{qw(loop join)},
        handle => $handle,
        asked  => {},
        mail   => {},
        again  => AGAIN_S,
        pid    => $$,
    }, $class;
    weaken($self->{loop});
    $handle->limit(@{ $args{limits} })          if $args{limits};
    $handle->limit_history(@{ $args{history} }) if $args{history};
    $self->_join;
    return $self;
}

sub handle { return $_[0]{handle} }

# ---- The connection -----------------------------------------------------------------------------

# Sends one end of a new connection through the join socket, where the hub finds it, or the next hub.
sub _join {
    my ($self) = @_;
    delete $self->{timer};
    socketpair my $here, my $there, AF_UNIX, SOCK_STREAM, PF_UNSPEC or return $self->_join_later;
    Peregrine::hide_from_forks(fileno $_, 1) for $here, $there;
    my $sent = Peregrine::send_descriptors(fileno $self->{join}, 'j', fileno $there);
    _close($there);
    if (!$sent || !$self->{handle}->connected(fileno $here)) {
        _close($here);
        return $self->_join_later;
    }
    $self->{socket} = $here;
    $self->{loop}->watch_io(handle => $here, on_read_ready => weakly($self, '_poll'));
    $self->_poll;
    return;
}

# Closes a socket. Its number must not stay hidden from forks, because other files get that number.
sub _close {
    my ($socket) = @_;
    Peregrine::hide_from_forks(fileno $socket, 0);
    close $socket;
    return;
}

sub _join_later {
    my ($self) = @_;
    $self->{timer} = later($self->{loop}, $self->{again}, $self, '_join');
    $self->{again} = $self->{again} * 2 < AGAIN_MAX_S ? $self->{again} * 2 : AGAIN_MAX_S;
    return;
}

# Leaves the hub. Watches are removed before the socket is closed.
sub _leave {
    my ($self) = @_;
    my $socket = delete $self->{socket} or return;
    $self->{loop}->unwatch_io(handle => $socket, on_read_ready => 1) if $self->{loop};
    $self->_watch_writing($socket, 0);
    _close($socket);
    return;
}

sub _watch_writing {
    my ($self, $socket, $wanted) = @_;
    return if !$wanted == !$self->{writes} || !$self->{loop};
    $self->{writes} = $wanted;
    return $self->{loop}->unwatch_io(handle => $socket, on_write_ready => 1) if !$wanted;
    $self->{loop}->watch_io(handle => $socket, on_write_ready => weakly($self, '_poll'));
    return;
}

# Called when bytes have come, when there is room to send again, and when time has passed.
sub _poll {
    my ($self) = @_;
    return if $self->{pid} != $$;
    my $flags = $self->{handle}->poll;
    $self->_tell_events;
    return if $self->{is_over};
    if ($flags & CONNECTED) {
        $self->{again} = AGAIN_S;
        # Asked after `_tell_events`: its callbacks may have published messages, which wait until the socket
        # has room.
        $self->_watch_writing($self->{socket}, $self->{handle}->is_behind);
    }
    elsif ($self->{socket}) {
        $self->_leave;
        $self->_join_later;
    }
    $self->_tick_later if $flags & DEADLINES;
    return;
}

sub _tick_later {
    my ($self) = @_;
    $self->{tick} //= later($self->{loop}, TICK_S, $self, '_tick');
    return;
}

sub _tick {
    my ($self) = @_;
    delete $self->{tick};
    return $self->_poll;
}

sub _tell_events {
    my ($self) = @_;
    while (my ($number, $result, $mailbox, $position) = $self->{handle}->next) {
        if (!$number) {
            my $code = $self->{mail}{$mailbox};
            $code->() if $code;
            next;
        }
        my ($future, @told) = @{ delete $self->{asked}{$number} || next };
        answered($future, $result, $position, @told);
    }
    return;
}

# Settles a Future by its answer: a result of the hub, and a position for topics with history.
sub answered {
    my ($future, $result, $position, @told) = @_;
    return                          if $future->is_ready;
    return $future->done($position) if $result == OK && length $position;
    return _settle($future, $result, @told);
}

sub new_future   { return $_[0]{loop}->new_future }
sub number_of_as { return $AS{ $_[0] } }

sub end {
    my ($self) = @_;
    return if $self->{is_over}++ || $self->{pid} != $$;
    $self->_leave;
    my $loop = $self->{loop} or return;
    $loop->unwatch_time($_) for grep { defined } delete @{$self}{qw(timer tick)};
    for my $asked (map { $_->[0] } values %{ delete $self->{asked} }) {
        $asked->fail('Unknown', 'unknown') if !$asked->is_ready;
    }
    return;
}

sub DESTROY {
    my ($self) = @_;
    $self->end if ${^GLOBAL_PHASE} ne 'DESTRUCT';
    return;
}

# ---- Requests -----------------------------------------------------------------------------------

# The names of failures, with their categories.
my %FAILURES = (
    FULL()        => [qw(ChannelFull channel)],
    TOO_MANY()    => [qw(TooMany limit)],
    UNAVAILABLE() => [qw(Unavailable hub)],
    UNKNOWN()     => [qw(Unknown hub)],
    NAME()        => [qw(InvalidChannelName channel)],
    TOO_LARGE()   => [qw(MessageTooLarge size)],
    FORBIDDEN()   => [qw(Forbidden topics)],
);

# A message for a channel that has ended is no failure, as channels promise at most once; the result tells it.
sub _settle {
    my ($future, $result, $subject) = @_;
    return $future->done($result == GONE ? 0 : 1) if $result <= GONE;
    my ($name, $category) = @{ $FAILURES{$result} };
    return $future->fail($name, $category, $category =~ /\A(?:channel|topics)\z/ ? $subject // () : ());
}

# Makes a request to the hub; `kind` is one of %KINDS. Its Future is done with 1, or with 0 if the channel
# does not exist any more.
sub ask {
    my ($self, $kind, %what) = @_;
    my $number = $self->{handle}->request(
        $KINDS{$kind},
        $what{mailbox} // 0,
        $what{name}    // '',
        $what{extra}   // '',
        $what{bytes}   // ''
    );
    return $self->_asked($number, $what{name});
}

# The Future of a hash reference: the subscribers of a topic of channels, or the readers of one with history
# (`kind` is `history`).
sub present {
    my ($self, $name, $kind) = @_;
    return $self->ask(who => (name => $name, extra => $kind // ''))->then(sub {
        my ($count, $is_complete, $names) = unpack 'Q< C a*', $_[0];
        my %present = (count => $count, complete => $is_complete, channels => [ split ' ', $names ]);
        return $self->{loop}->new_future->done(\%present);
    });
}

# A new Future for a request that was made under this number.
sub _asked {
    my ($self, $number, $name) = @_;
    my $future = $self->{loop}->new_future;
    if ($number <= 0) {
        _settle($future, -$number, $name);
        return $future;
    }
    $self->{asked}{$number} = [ $future, $name ];
    $self->_tick_later;
    $self->_watch_writing($self->{socket}, 1) if $self->{socket} && $self->{handle}->is_behind;
    return $future;
}

# Lets a mailbox read a topic with history. The Future is done with the position where it begins.
sub follow {
    my ($self, $mailbox, $name, %how) = @_;
    my $number = $self->{handle}->follow($mailbox, $name, $AS{ $how{as} }, $how{cuts} ? 1 : 0, $how{since});
    # A topic that is already read here answers at once.
    $self->{soon} //= $self->{loop}->later(weakly($self, '_poll_soon'));
    return $self->_asked($number, $name);
}

sub _poll_soon {
    my ($self) = @_;
    delete $self->{soon};
    return $self->_poll;
}

sub unfollow {
    my ($self, $mailbox, $name) = @_;
    $self->{handle}->unfollow($mailbox, $name);
    $self->{soon} //= $self->{loop}->later(weakly($self, '_poll_soon'));
    return;
}

sub unsubscribe {
    my ($self, $mailbox, $name) = @_;
    $self->{handle}->unsubscribe($mailbox, $name);
    return;
}

# ---- Mailboxes of Perl code ----------------------------------------------------------------------

# `code` is called when there is mail, after `take` has found none.
sub open_mailbox {
    my ($self, $code) = @_;
    my $mailbox = $self->{handle}->open or die "no memory for a mailbox\n";
    $self->{mail}{$mailbox} = $code;
    return ($mailbox, $self->{handle}->name($mailbox));
}

sub take {
    my ($self, $mailbox) = @_;
    return $self->{handle}->take($mailbox);
}

sub close_mailbox {
    my ($self, $mailbox) = @_;
    return if $self->{pid} != $$;
    delete $self->{mail}{$mailbox};
    $self->{handle}->close($mailbox);
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Node - an interpreter's end of the channels between interpreters

=head1 SYNOPSIS

    my $node = Peregrine::Node->new(loop => $loop, join => $join_socket);
    my ($mailbox, $channel) = $node->open_mailbox(sub { ... });
    $node->ask(subscribe => (name => 'chat.room', mailbox => $mailbox))->get;

=head1 DESCRIPTION

The connection to the hub (L<Peregrine::Server::Hub>) in the interpreter's loop. When the hub is lost the node
joins the next one, and tells it of its subscriptions.

=head1 METHODS

=head2 new

=head2 handle

The object of the engine's library.

=head2 ask

    my $future = $node->ask(publish => (name => $topic, bytes => $bytes, extra => "$one $other"));

Asks the hub: C<subscribe>, C<publish>, C<send>, C<add>, C<discard> or C<flush>; for topics with history
C<append> and C<look>. The Future is done with 1, or with 0 if there is no such channel any more, for topics
with a position, or fails with one of the names in L<PAGI::Server::Channels/FAILURES>.

=head2 follow, unfollow

    my $future = $node->follow($mailbox, $topic, as => 'events', since => $position, cuts => 0);
    $node->unfollow($mailbox, $topic);

The connection of a mailbox reads a topic with history; the bridge sends it the entries. The Future is done
with the position where it begins.

=head2 answered, new_future, number_of_as

For who asks the hub by another way (L<PAGI::Server::Topics>).

=head2 unsubscribe

    $node->unsubscribe($mailbox, $topic);

=head2 open_mailbox, take, close_mailbox

    my ($mailbox, $channel) = $node->open_mailbox($code);
    my $message = $node->take($mailbox);
    $node->close_mailbox($mailbox);

A mailbox, and the name of its channel. The code is called when there is a message, after C<take> has found
none. (Those of requests are opened by the bridge.)

=head2 end

Leaves the hub. Requests that wait fail.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
