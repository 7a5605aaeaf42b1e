package Peregrine::Publisher;

use strict;
use warnings;

our $VERSION = '0.003000';

use IO::Handle ();
use IO::Select ();
use Peregrine;
use Peregrine::Deadline;
use Socket qw(AF_UNIX MSG_DONTWAIT MSG_NOSIGNAL MSG_PEEK PF_UNSPEC SOCK_STREAM SOL_SOCKET SO_SNDTIMEO
    pack_sockaddr_un);

# The frames of engine/src/hub/wire.zig: its version (WIRE), the kinds that are used here, and the codes.
use constant {
    WIRE    => 5,
    HELLO   => 0,
    PUBLISH => 3,
    APPEND  => 10,
    LOOK    => 13,
    COUNT   => 15,
    WELCOME => 16,
    DONE    => 17
};
use constant OK => 0;
my %FAILURES = (3 => 'TooMany', 4 => 'Unavailable', 9 => 'Forbidden');
use constant SECRET_BYTES => 16;
use constant HEAD         => 24;
my $HEAD = 'L< C C S< L< Q< L<';

use constant { NAME_BYTES => 100, MESSAGE_BYTES => 1 << 20 };

# Seconds that a call may take.
use constant PATIENCE_S => 5;

# The socket through which processes of a server reach its hub.
my $own;

sub of_server {
    my ($class, %args) = @_;
    die "Peregrine::Publisher: this is no process of a server with channels\n" if !$own;
    return $class->_new(join => $own, %args);
}

sub new {
    my ($class, %args) = @_;
    die "Peregrine::Publisher->new needs socket, the path of a server's channels_socket\n"
        if !defined $args{socket} || keys %args > 1;
    return $class->_new(%args);
}

sub _new {
    my ($class, %args) = @_;
    return bless { patience => PATIENCE_S, %args, number => 0 }, $class;
}

# Sets the socket of this process; called by Peregrine::Server::Hub.
sub _serve {
    my ($join) = @_;
    $own = $join;
    return;
}

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# ---- Calls --------------------------------------------------------------------------------------

sub publish {
    my ($self, $topic, $bytes) = @_;
    _check_name($topic);
    die "InvalidMessage\n" if !defined $bytes || ref $bytes || !length $bytes;
    my $copy = $bytes;
    die "InvalidMessage\n" if !utf8::downgrade($copy, 1);
    return _position($self->_ask(APPEND, $topic, $copy));
}

# The names of the hub's counters: Counts of broker.zig, then Events and Now of tally.zig.
my @COUNTS = (
    qw(interpreters subscribed topics history_bytes published sent message_bytes entries entry_bytes cut redis
        redis_lost redis_failed),
    qw(mailed mailed_bytes dropped_full dropped_expired delivered delivered_bytes resets readers_cut),
    qw(readers orphans lag),
);

sub counts {
    my ($self) = @_;
    my %counts;
    @counts{@COUNTS} = unpack 'Q<*', $self->_ask(COUNT, '', '');
    return \%counts;
}

sub position {
    my ($self, $topic) = @_;
    _check_name($topic);
    return _position($self->_ask(LOOK, $topic, ''));
}

sub publish_message {
    my ($self, $topic, $message) = @_;
    _check_name($topic);
    my ($bytes, $failure) = Peregrine::encode_message($message);
    die "$failure\n" if !defined $bytes;
    $self->_ask(PUBLISH, $topic, $bytes);
    return 1;
}

sub _check_name {
    my ($name) = @_;
    return if defined $name && !ref $name && length $name <= NAME_BYTES && $name =~ /\A[A-Za-z0-9._:-]+\z/;
    die "InvalidTopicName\n";
}

# The text of a position, from epoch, offset and check.
sub _position {
    my ($extra) = @_;
    return sprintf '%012x.%d.%012x', unpack 'Q< Q< Q<', $extra;
}

# Makes a request; returns the `extra` of its answer. Dies with the name of a failure.
sub _ask {
    my ($self, $kind, $name, $payload) = @_;
    die "MessageTooLarge\n" if length $payload > MESSAGE_BYTES;
    my $until = Peregrine::Deadline::now() + $self->{patience};
    $self->_connect($until);
    my $number = $self->{number} = $self->{number} % 0xFFFF_FFFF + 1;
    # The hub does not handle a frame that is cut short.
    my $went = $self->_send(_frame($kind, $number, name => $name, payload => $payload), $until);
    $self->_fail('Unavailable') if !$went;
    while (my ($got, $code, $answered, $extra) = $self->_receive($until)) {
        next          if $got != DONE || $answered != $number;
        return $extra if $code == OK;
        die +($FAILURES{$code} // 'Unknown') . "\n";
    }
    return $self->_fail('Unknown');
}

sub _fail {
    my ($self, $name) = @_;
    delete $self->{handle};
    die "$name\n";
}

# ---- The connection -----------------------------------------------------------------------------

# Connects to the hub, unless there is a connection of this process whose hub has not gone.
sub _connect {
    my ($self, $until) = @_;
    delete $self->{handle} if $self->{handle} && ($self->{pid} != $$ || $self->_has_ended);
    return                 if $self->{handle};
    @{$self}{qw(handle pid received)} = (scalar $self->_open($until), $$, '');
    $self->_fail('Unavailable') if !$self->{handle};
    if ($self->_send(_frame(HELLO, WIRE, extra => _secret()), $until)) {
        while (my ($kind, undef, $version) = $self->_receive($until)) {
            return if $kind == WELCOME && $version == WIRE;
        }
    }
    return $self->_fail('Unavailable');
}

sub _open {
    my ($self, $until) = @_;
    return _open_path($self->{socket}, $until) if defined $self->{socket};
    socketpair my $here, my $there, AF_UNIX, SOCK_STREAM, PF_UNSPEC or return;
    $here->blocking(0);
    return Peregrine::send_descriptors(fileno $self->{join}, 'j', fileno $there) ? $here : undef;
}

# Connects to a path. If the hub's queue is full of connections, the kernel waits for room.
sub _open_path {
    my ($path, $until) = @_;
    my $address = eval { pack_sockaddr_un($path) } or return;    # Expected: a path that is too long.
    socket my $handle, AF_UNIX, SOCK_STREAM, PF_UNSPEC or return;
    while ((my $left = $until - Peregrine::Deadline::now()) > 0) {
        my $seconds = int $left;
        my $more    = int 1_000_000 * ($left - $seconds);
        setsockopt $handle, SOL_SOCKET, SO_SNDTIMEO, pack 'l!l!', $seconds, $more || 1;
        if (connect $handle, $address) {
            $handle->blocking(0);
            return $handle;
        }
        return if !$!{EINTR};
    }
    return;
}

sub _has_ended {
    my ($self) = @_;
    my $got    = recv $self->{handle}, my $byte, 1, MSG_PEEK | MSG_DONTWAIT;
    return defined $got && !length $byte;
}

# The secret of a connection to the hub: a program that knew it could take the connection's place.
sub _secret {
    open my $random, '<:raw', '/dev/urandom' or die "/dev/urandom: $!\n";
    read($random, my $secret, SECRET_BYTES) == SECRET_BYTES or die "/dev/urandom: $!\n";
    return $secret;
}

sub _frame {
    my ($kind, $number, %parts)   = @_;
    my ($name, $extra,  $payload) = map { $_ // '' } @parts{qw(name extra payload)};
    my $rest = $name . $extra . $payload;
    return pack($HEAD, HEAD - 4 + length $rest, $kind, 0, length $name, $number, 0, length $extra) . $rest;
}

# Waits until the socket is ready; false: the time is up. A signal that the program handles meanwhile, that of
# a child's end for instance, ends a wait early.
sub _is_ready {
    my ($self, $can, $until) = @_;
    my $select = IO::Select->new($self->{handle});
    while ((my $left = $until - Peregrine::Deadline::now()) > 0) {
        return 1 if $select->$can($left);
    }
    return 0;
}

sub _send {
    my ($self, $bytes, $until) = @_;
    while (length $bytes) {
        my $sent = send $self->{handle}, $bytes, MSG_NOSIGNAL;
        if    (defined $sent)                          { substr $bytes, 0, $sent, '' }
        elsif (!$!{EAGAIN} && !$!{EINTR})              { return 0 }
        elsif (!$self->_is_ready('can_write', $until)) { return 0 }
    }
    return 1;
}

# The next frame: kind, code, number, extra. Nothing at the end, or when the time is up.
sub _receive {
    my ($self, $until) = @_;
    while (1) {
        my $received = \$self->{received};
        if (length $$received >= HEAD) {
            my ($len, $kind, $code, $name, $number, undef, $extra) = unpack $HEAD, $$received;
            if (length $$received >= $len + 4) {
                my $frame = substr $$received, 0, $len + 4, '';
                return ($kind, $code, $number, substr $frame, HEAD + $name, $extra);
            }
        }
        my $got = sysread $self->{handle}, $$received, 65_536, length $$received;
        next   if $got;
        return if defined $got || (!$!{EAGAIN} && !$!{EINTR});
        $self->_is_ready('can_read', $until) or return;
    }
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Publisher - publish to topics from PSGI, from jobs and from any Perl program

=head1 SYNOPSIS

    # in an application of PSGI, or anywhere else in a server with the option channels
    my $publisher = Peregrine::Publisher->of_server;
    my $position  = $publisher->publish(news => $bytes);

    # in a program of the same machine: peregrine --channels --channels-socket /run/app/channels.sock
    my $publisher = Peregrine::Publisher->new(socket => '/run/app/channels.sock');
    $publisher->publish(news => $bytes);

=head1 DESCRIPTION

What is published goes to the hub of a server with the option C<channels>, and from there to the clients that
read the topic (L<PAGI::Server::Topics>), whichever interpreter has their connections. Calls wait for the
hub's answer, five seconds at most, and need no event loop; applications of PAGI have C<pagi.topics>, which
does not wait. From a shell, C<peregrine publish> does the same.

The server's C<channels_socket> has mode 0600: whoever may open it may publish everything, and is not to be a
client.

A connection is made with the first call, and again when the hub was started again. An object may be used on
both sides of a fork.

=head1 METHODS

=head2 of_server

For code in an interpreter of the server. Dies if that has no channels.

=head2 new

    my $publisher = Peregrine::Publisher->new(socket => $path);

For other programs.

=head2 publish

    my $position = $publisher->publish($topic, $bytes);

Adds an entry to a topic, and returns its position.

=head2 position

    my $position = $publisher->position($topic);

The position of the topic's newest entry.

=head2 counts

    my $counts = $publisher->counts;

A hash reference: C<interpreters> that the hub has (with programs that publish), C<topics> with history and
their C<history_bytes>, C<subscribed> (topics of channels), and since the hub's start C<entries> and
C<entry_bytes> that were published to topics, C<published> and C<sent> (messages of channels, to topics and to
single ones) and their C<message_bytes>, C<cut> (connections to the hub that read too slowly). C<redis> is 0
without a Redis, 2 when the hub has its connections to it, otherwise 1; C<redis_lost> counts connections that
ended, C<redis_failed> messages that did not get there.

Interpreters, or the engine where that delivers, tell the hub once a second of what they have done since its
start: C<delivered> entries that went to clients and their C<delivered_bytes> with framing, C<resets>,
C<readers_cut> (readers too far behind that wanted to be cut), C<mailed> messages that came to channels and
their C<mailed_bytes>, C<dropped_full> and C<dropped_expired> (messages that a full mailbox or their age has
cost); and what there is now: C<readers> of topics, C<orphans> (connections that read without an interpreter),
and C<lag>, the entries that the slowest reader has yet to get.

=head2 publish_message

    $publisher->publish_message($topic, { type => 'chat.message', text => 'Hello' });

Sends a message to the channels that have subscribed to a topic (L<PAGI::Server::Channels/publish>).

=head1 FAILURES

Methods die with the name of the failure and a line feed: C<InvalidTopicName>, C<InvalidMessage>,
C<MessageTooLarge>, C<TooMany>, C<Unavailable> (there is no hub now, or no Redis: the call has had no effect),
C<Unknown> (the hub went, or did not answer: what was published may be there).

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
