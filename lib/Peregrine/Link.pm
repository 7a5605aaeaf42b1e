package Peregrine::Link;

use strict;
use warnings;

our $VERSION = '0.003000';

use Errno      qw(EAGAIN EINTR EWOULDBLOCK);
use Fcntl      qw(F_SETFD FD_CLOEXEC);
use IO::Handle ();
use Peregrine;
use POSIX  ();
use Socket qw(AF_UNIX PF_UNSPEC SOCK_STREAM);

# Bytes of a text that is sent, and of a line that is read.
use constant { TEXT_MAX => 16_384, LINE_MAX => 65_536, READ_MAX => 65_536 };
# Descriptors in one message at most.
use constant DESCRIPTORS_MAX => 250;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

sub pair {
    my ($class) = @_;
    socketpair my $here, my $there, AF_UNIX, SOCK_STREAM, PF_UNSPEC or die "socketpair: $!\n";
    return map { $class->of($_) } $here, $there;
}

sub of {
    my ($class, $handle) = @_;
    $handle->blocking(0);
    Peregrine::hide_from_forks(fileno $handle, 1);
    return bless { handle => $handle, pid => $$, input => '' }, $class;
}

sub from_descriptor {
    my ($class, $descriptor) = @_;
    open my $handle, '+<&=', $descriptor or die "descriptor $descriptor: $!\n";
    fcntl $handle, F_SETFD, FD_CLOEXEC or die "descriptor $descriptor: $!\n";
    return $class->of($handle);
}

sub release    { return delete $_[0]{handle} }
sub handle     { return $_[0]{handle} }
sub descriptor { return fileno $_[0]{handle} }

sub keep_in_child {
    my ($self) = @_;
    Peregrine::hide_from_forks(fileno $self->{handle}, 0);
    return $self;
}

sub use_in_child {
    my ($self) = @_;
    $self->{pid} = $$;
    Peregrine::hide_from_forks(fileno $self->{handle}, 1);
    return $self;
}

# Closes descriptors that come to this end, where none is expected: they would stay open.
sub refuse_descriptors {
    my ($self) = @_;
    $self->{refuses} = 1;
    return $self;
}

sub say {
    my ($self, $word, $text, @descriptors) = @_;
    return 0 if !$self->{handle} || $self->{pid} != $$;
    my $line = @descriptors ? "$word\@" . @descriptors : $word;
    if (defined $text) {
        utf8::encode($text) if utf8::is_utf8($text);
        $line .= ' ' . substr($text, 0, TEXT_MAX) =~ s/([%\n])/sprintf '%%%02x', ord $1/ger;
    }
    # Descriptors that do not fit into the line's message are sent before it, with an empty line.
    while (@descriptors > DESCRIPTORS_MAX) {
        $self->_send("\n", splice @descriptors, 0, DESCRIPTORS_MAX) or return 0;
    }
    return $self->_send("$line\n", @descriptors);
}

sub _send {
    my ($self, $bytes, @descriptors) = @_;
    local $SIG{PIPE} = 'IGNORE';
    my $sent = Peregrine::send_descriptors(fileno $self->{handle}, $bytes, @descriptors);
    return defined $sent ? 1 : 0;
}

sub read_lines {
    my ($self) = @_;
    $self->_read;
    my @lines;
    while ($self->{input} =~ s/\A([^\n]*)\n//) {
        my $line = $1;
        my ($word, $text) = split / /, $line, 2;
        $self->_take_descriptors(1 + length $line);
        next if !defined $word;
        my $count       = $word =~ s/\@([0-9]+)\z// ? $1 : 0;
        my @descriptors = splice @{ $self->{taken} };
        close_received(splice @descriptors, $count) if @descriptors > $count;
        if (@descriptors < $count) {    # the process had no room for the descriptors
            close_received(@descriptors);
            my $text = "no descriptor is left for those of the message '$word', which is lost";
            next if $self->{on_no_room} && $self->{on_no_room}->($text, $word);
            $self->{ended} = 1;
            last;
        }
        $text =~ s/%([0-9a-f]{2})/chr hex $1/ge if defined $text;
        push @lines, [ $word, $text, @descriptors ];
    }
    return @lines;
}

# Takes the descriptors that came with the next `$length` bytes of the input. The kernel gives bytes behind a
# message with descriptors separately, so lost descriptors are never mistaken for those of another message.
sub _take_descriptors {
    my ($self, $length) = @_;
    return if !$self->{descriptors};
    my @later;
    for my $came (@{ $self->{descriptors} }) {
        my ($end, @descriptors) = @$came;
        if ($end <= $length) { push @{ $self->{taken} }, @descriptors }
        else                 { push @later, [ $end - $length, @descriptors ] }
    }
    $self->{descriptors} = @later ? \@later : undef;
    return;
}

# Reads bytes. The kernel closes descriptors that came with them.
sub _bytes_of {
    my ($handle) = @_;
    my $count    = sysread $handle, my $bytes, READ_MAX;
    return defined $count ? $bytes : undef;
}

sub _read {
    my ($self) = @_;
    my $handle = $self->{handle} or return;
    while (length $self->{input} <= LINE_MAX) {
        my ($bytes, @descriptors) =
            $self->{refuses}
            ? _bytes_of($handle)
            : Peregrine::receive_descriptors(fileno $handle, READ_MAX);
        if (!defined $bytes) {
            next               if $! == EINTR;
            $self->{ended} = 1 if $! != EAGAIN && $! != EWOULDBLOCK;
            last;
        }
        push @{ $self->{descriptors} }, [ length($self->{input}) + length $bytes, @descriptors ]
            if @descriptors;
        if (!length $bytes) {
            $self->{ended} = 1;
            last;
        }
        $self->{input} .= $bytes;
    }
  # Ends the link at a line that is too long: only a broken or hostile peer writes it, and the loop would turn
  # for ever.
    $self->{ended} = 1 if length $self->{input} > LINE_MAX && index($self->{input}, "\n") < 0;
    return;
}

# Closes descriptors that have come over a link.
sub close_received {
    my (@descriptors) = @_;
    for my $descriptor (@descriptors) {
        Peregrine::hide_from_forks($descriptor, 0);
        POSIX::close($descriptor);
    }
    return;
}

sub wait {
    my ($self, $seconds) = @_;
    vec(my $bits = '', fileno $self->{handle}, 1) = 1;
    return select $bits, undef, undef, $seconds;
}

# Waits for a line that is this word alone; lines before it are read later.
sub wait_for {
    my ($self, $word) = @_;
    until ($self->_take_line($word)) {
        return 0 if $self->{ended};
        $self->wait;
        $self->_read;
    }
    return 1;
}

# Takes a line that is this word alone out of the input. A function of its own, because Perl forgets the place
# of a match that is a loop's condition at the loop's end.
sub _take_line {
    my ($self, $word) = @_;
    return 0 if $self->{input} !~ s/^\Q$word\E\n//m;
    my ($at, $length) = ($-[0], 1 + length $word);
    for my $came (@{ $self->{descriptors} || [] }) { $came->[0] -= $length if $came->[0] > $at }
    return 1;
}

sub has_ended { return $_[0]{ended} ? 1 : 0 }

# Sets a function for messages whose descriptors find no room. Without it such a message ends the link.
sub on_no_room {
    my ($self, $code) = @_;
    $self->{on_no_room} = $code;
    return $self;
}

sub has_news {
    my ($self) = @_;
    $self->_read;
    return length $self->{input} || $self->{ended} ? 1 : 0;
}

sub watch {
    my ($self, $loop, $on_line, $on_end) = @_;
    $self->{loop} = $loop;
    my $read = sub {
        for my $line ($self->read_lines) { $on_line->(@$line) }
        return if !$self->{ended} || !$self->{handle};
        $self->close;
        $on_end->();
    };
    $loop->watch_io(handle => $self->{handle}, on_read_ready => $read);
    # Bytes that were read already make no descriptor readable.
    $loop->later(sub { $read->() if $self->{handle} }) if length $self->{input};
    return;
}

# Ends the link for the other end, even if another process has a copy of the handle.
sub cut {
    my ($self) = @_;
    shutdown $self->{handle}, 1 if $self->{handle};
    return;
}

sub close {
    my ($self) = @_;
    my $handle = delete $self->{handle} or return;
    my $loop   = delete $self->{loop};
    if ($self->{pid} == $$) {
        $loop->unwatch_io(handle => $handle, on_read_ready => 1) if $loop;
        Peregrine::hide_from_forks(fileno $handle, 0);
    }
    close $handle;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Link - short messages between the master and one of its processes

=head1 SYNOPSIS

    my ($here, $there) = Peregrine::Link->pair;
    if (!fork) {
        $there->use_in_child->say(ready => 'text with any bytes');
        ...
    }
    $there->close;
    $here->watch($loop, sub { my ($word, $text) = @_; ... }, sub { warn "the other end is closed\n" });

=head1 DESCRIPTION

A pair of connected sockets that carry lines: a word, and a text and descriptors if need be. Neither end is
inherited by programs that are run, nor by further children that are forked: so the end of one process is seen
at once by the other.

=head1 METHODS

=head2 pair

    my ($here, $there) = Peregrine::Link->pair;

Two ends. Dies with a text if there is no descriptor left.

=head2 of

    my $link = Peregrine::Link->of($handle);

The end whose handle it is.

=head2 release

    my $handle = $link->release;

Takes the handle out of a link that nobody watches.

=head2 from_descriptor

    my $link = Peregrine::Link->from_descriptor(7);

An end that this process has inherited. It is closed on C<exec> from now on.

=head2 handle, descriptor

    my $number = $link->descriptor;

=head2 keep_in_child

    $there->keep_in_child;

Before C<fork>: the child is to have this end.

=head2 use_in_child

    $there->use_in_child;

After C<fork>, in the child: the end is its own now.

=head2 refuse_descriptors

    $link->refuse_descriptors;

This end gets none: the kernel closes those that the other end sends.

=head2 say

    $link->say('ready');
    $link->say(failed => $text);
    $link->say(sockets => $text, 7, 8);

Sends a message; what is beyond 16 KiB of the text is left out. The other end gets descriptors of its own for
the same files. Never waits: false when the other end has gone, or takes nothing.

=head2 read_lines

    for my $line ($link->read_lines) { my ($word, $text, @descriptors) = @$line }

Returns the messages that have come. Never waits. Descriptors are hidden from programs that are run and
from children that are forked.

=head2 close_received

    Peregrine::Link::close_received(@descriptors);

Closes descriptors of a message.

=head2 wait

    $link->wait;
    $link->wait(0.1);

Waits until the other end has said something, or has ended; for some seconds at most.

=head2 wait_for

    $link->wait_for('go') or exit;

Waits, without a deadline, until a line has come that is this word alone, and takes it; L</read_lines> gives
the others. False when the other end is closed.

=head2 has_ended

    exit if $link->has_ended;

Whether the other end was found closed.

=head2 on_no_room

    $link->on_no_room(sub { my ($text, $word) = @_; warn "$text\n"; return $word eq 'reopen' });

Is called, with a text and the word, in place of a message whose descriptors find no room in this process.
Where it returns false, and without it, the link ends there, as if the other end was closed.

=head2 has_news

    last if $link->has_news;

Whether there is something to read, or nothing will come any more. Never waits.

=head2 watch

    $link->watch($loop, $on_line, $on_end);

Calls C<$on_line> with word and text of each message, and C<$on_end> once when the other end is closed.

=head2 cut

    $link->cut;

The other end sees the end, also while copies of this one are open.

=head2 close

    $link->close;

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
