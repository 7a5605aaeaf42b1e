package PAGI::Server::HandleBody;

# Bodies from handles that the kernel cannot send by itself, or must not send: pipes, sockets, devices, files
# without a size as those in /proc, handles that exist in Perl only. They are read piece by piece, as fast as
# the client takes the pieces.

use strict;
use warnings;

our $VERSION = '0.003000';

use Errno qw(EAGAIN EINTR);
use Fcntl qw(O_NONBLOCK O_RDONLY SEEK_SET);
use Future;
use Future::AsyncAwait;
use Peregrine;
use Peregrine::Later qw(later weakly);

use constant {
    PIECE_BYTES => 65_536,
    PIECES_MAX  => 16,       # in a row, if neither handle nor client delays them
};

sub send {
    my ($class, $event, %args) = @_;
    my $self = bless { %args{qw(loop send patience)}, type => $event->{type}, left => $event->{length} },
        $class;
    my $peer = $self->{peer} = $args{connection};
    my $future =
        $self->_send($event, $args{gone})
        ->else(sub { return $peer->is_connected ? Future->fail(@_) : Future->done });
    $future->retain if !$future->is_ready;
    return $future;
}

async sub _send {
    my ($self, $event, $gone) = @_;
    $self->_open($event);
    $self->_seek($event->{offset})
        if $event->{offset} || defined $event->{offset} && $self->{kind} eq 'a file';
    # A request may last longer than this body: the callback must not keep this object or its descriptor.
    $gone->on_ready(weakly($self, _wake_as => 'over'));
    $self->{peer}->disconnect_future->on_ready(weakly($self, '_limit_silence')) if $self->{waits};
    my $pieces = 0;
    while (!$self->{over} && length(my $piece = await $self->_piece)) {
        await $self->{send}->({ type => $self->{type}, body => $piece, more => 1 });
        await $self->{loop}->later if ++$pieces % PIECES_MAX == 0;
    }
    return await $self->{send}->({ type => $self->{type}, body => '' });
}

# Limits the silence of a handle after the client has ended its side. The client may still read, but a client
# that does not could never be noticed: a silent pipe would keep its connection for ever.
sub _limit_silence {
    my ($self) = @_;
    return if !$self->{readable};
    $self->{limit} = later($self->{loop}, $self->{patience}, $self, _wake_as => 'silent');
    return;
}

# ---- The handle ---------------------------------------------------------------------------------

sub _open {
    my ($self, $event) = @_;
    my $fh = $event->{fh};
    if (defined $event->{file}) {
        $self->{name} = "file '$event->{file}'";
        sysopen $fh, $event->{file}, O_RDONLY | O_NONBLOCK or $self->_fail('cannot be opened');
    }
    else {
        $self->{name} = 'fh';
    }
    my $number = tied *$fh ? -1 : fileno $fh;
    $self->{kind} = _kind($fh, $number);
    $self->_fail('cannot be sent', 'it cannot be read') if $self->{kind} eq 'a directory';
    $self->{waits} = $self->{kind} =~ /pipe|socket|character/;
    return @{$self}{qw(read handle)} = (\&_read_perl, $fh) if $number < 0;

    # A descriptor of this object's own: layers of the handle do not change the bytes, and the loop may watch
    # the other one.
    open my $own, '<&', $number or $self->_fail('cannot be sent');
    binmode $own;
    sysseek $own, tell $fh, SEEK_SET if !$self->{waits};
    $self->{ahead} = Peregrine::take_buffered($fh) if $self->{waits};
    return @{$self}{qw(read handle)} = (\&_read_descriptor, $own);
}

sub _kind {
    my ($fh, $number) = @_;
    return 'a tied handle'      if tied *$fh;
    return 'an in-memory file'  if $number < 0;
    return 'a pipe'             if -p $fh;
    return 'a socket'           if -S _;
    return 'a character device' if -c _;
    return 'a directory'        if -d _;
    return 'a block device'     if -b _;
    return 'a file';
}

sub _seek {
    my ($self, $offset) = @_;
    my $handle = $self->{handle};
    $! = 0;
    my $ok = eval {
        $self->{read} == \&_read_perl ? seek $handle, $offset, SEEK_SET : sysseek $handle, $offset, SEEK_SET;
    };
    $self->_fail("cannot begin at offset $offset", $@ || $!) if !$ok;
    return;
}

# ---- Reading ------------------------------------------------------------------------------------

# The next piece of the body, empty at the end.
async sub _piece {
    my ($self) = @_;
    my $left   = $self->{left};
    my $size   = defined $left && $left < PIECE_BYTES ? $left : PIECE_BYTES;
    return '' if !$size;
    my $piece = length($self->{ahead} // '') ? substr $self->{ahead}, 0, $size, '' : undef;
    while (!defined $piece && !$self->{over}) {
        await $self->_readable if $self->{waits};
        $self->_fail('gives nothing', "the client has ended its side $self->{patience} s ago")
            if $self->{silent};
        $piece = $self->{read}->($self, $size) if !$self->{over};
    }
    $self->{left} -= length $piece if defined $left && defined $piece;
    return $piece // '';
}

# Reads available bytes, at most `$size`; undef: there are none yet.
sub _read_descriptor {
    my ($self, $size) = @_;
    my $piece = '';
    my $count = sysread $self->{handle}, $piece, $size;
    return $piece                  if defined $count;
    $self->_fail('cannot be read') if $! != EAGAIN && $! != EINTR;
    $self->{waits} = 1;    # a handle that says "not now" is not read again at once
    return;
}

# Reads by the handle's own methods, which may block.
sub _read_perl {
    my ($self, $size) = @_;
    $! = 0;
    my $piece = '';
    my $count = eval { read $self->{handle}, $piece, $size };
    $self->_fail('cannot be read', $@ || $!) if !defined $count;
    return $piece;
}

sub _readable {
    my ($self) = @_;
    my ($loop, $handle) = @{$self}{qw(loop handle)};
    my $readable = $self->{readable} = $loop->new_future;
    $loop->watch_io(handle => $handle, on_read_ready => sub { $self->_wake });
    $self->_limit_silence if !$self->{peer}->is_connected;
    return $readable->on_ready(sub { $loop->unwatch_io(handle => $handle, on_read_ready => 1) });
}

# Ends the wait. The keys `over` and `silent` say why the body ends.
sub _wake_as {
    my ($self, $why) = @_;
    delete $self->{limit} if $why eq 'silent';    # the timer has run
    $self->{$why} = 1;
    return $self->_wake;
}

sub _wake {
    my ($self) = @_;
    my $readable = delete $self->{readable};
    $self->{loop}->unwatch_time(delete $self->{limit}) if $self->{limit};
    $readable->done                                    if $readable && !$readable->is_ready;
    return;
}

sub _fail {
    my ($self, $what, $reason) = @_;
    $reason = "$!" if !defined $reason;
    my $kind = $self->{kind} ? " ($self->{kind})" : '';
    $reason =~ s/\s+\z//;
    die "$self->{type}: $self->{name}$kind $what: $reason\n";
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::HandleBody - response bodies from pipes, sockets, devices and handles of Perl's own

=head1 SYNOPSIS

    my $future = PAGI::Server::HandleBody->send(
        $event,
        loop       => $loop,
        send       => $send,
        gone       => $gone,
        connection => $connection,
        patience   => $seconds,
    );

=head1 DESCRIPTION

Files are sent by the engine. Other files and handles that an application gives as C<file> or C<fh> are read
here, in pieces of 64 KiB at most, each sent before the next one is read.

=head1 METHODS

=head2 send

    my $future = PAGI::Server::HandleBody->send(
        $event,
        loop       => $loop,
        send       => $send,
        gone       => $gone,
        connection => $connection,
        patience   => $seconds,
    );

Sends what the C<file> or C<fh> of an event gives as the rest of a body, with C<$send>, until C<$gone> is
ready. The Future fails with a message that says what kind of handle it was; if nothing has been sent by then,
the response is as it was before. It does not fail once C<$connection>, the request's C<pagi.connection>, is
not connected any more: then a handle that gives nothing for C<$seconds> is given up, and the response is cut.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
