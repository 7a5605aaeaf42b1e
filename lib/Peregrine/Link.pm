package Peregrine::Link;

use strict;
use warnings;

our $VERSION = '0.003000';

use Errno      qw(EAGAIN EINTR EWOULDBLOCK);
use Fcntl      qw(F_SETFD FD_CLOEXEC);
use IO::Handle ();
use Peregrine;
use Socket qw(AF_UNIX PF_UNSPEC SOCK_STREAM);

# Bytes of a text that is sent, and of a line that is read.
use constant { TEXT_MAX => 16_384, LINE_MAX => 65_536, READ_MAX => 65_536 };

sub pair {
    my ($class) = @_;
    socketpair my $here, my $there, AF_UNIX, SOCK_STREAM, PF_UNSPEC or die "socketpair: $!\n";
    return map { $class->_of($_) } $here, $there;
}

sub _of {
    my ($class, $handle) = @_;
    $handle->blocking(0);
    Peregrine::hide_from_forks(fileno $handle, 1);
    return bless { handle => $handle, pid => $$, input => '' }, $class;
}

sub from_descriptor {
    my ($class, $descriptor) = @_;
    open my $handle, '+<&=', $descriptor or die "descriptor $descriptor: $!\n";
    fcntl $handle, F_SETFD, FD_CLOEXEC or die "descriptor $descriptor: $!\n";
    return $class->_of($handle);
}

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

sub say {
    my ($self, $word, $text) = @_;
    return 0 if !$self->{handle} || $self->{pid} != $$;
    my $line = $word;
    if (defined $text) {
        utf8::encode($text) if utf8::is_utf8($text);
        $line .= ' ' . substr($text, 0, TEXT_MAX) =~ s/([%\n])/sprintf '%%%02x', ord $1/ger;
    }
    local $SIG{PIPE} = 'IGNORE';
    my $written = syswrite $self->{handle}, "$line\n";
    return defined $written ? 1 : 0;
}

sub read_lines {
    my ($self) = @_;
    my $handle = $self->{handle} or return;
    while (1) {
        my $read = sysread $handle, $self->{input}, READ_MAX, length $self->{input};
        if (!defined $read) {
            next               if $! == EINTR;
            $self->{ended} = 1 if $! != EAGAIN && $! != EWOULDBLOCK;
            last;
        }
        if (!$read) {
            $self->{ended} = 1;
            last;
        }
        last if length $self->{input} > LINE_MAX;
    }
    my @lines;
    while ($self->{input} =~ s/\A([^\n]*)\n//) {
        my ($word, $text) = split / /, $1, 2;
        push @lines, [ $word, defined $text ? $text =~ s/%([0-9a-f]{2})/chr hex $1/ger : undef ];
    }
    return @lines;
}

sub has_ended { return $_[0]{ended} ? 1 : 0 }

sub watch {
    my ($self, $loop, $on_line, $on_end) = @_;
    $self->{loop} = $loop;
    $loop->watch_io(
        handle        => $self->{handle},
        on_read_ready => sub {
            for my $line ($self->read_lines) { $on_line->(@$line) }
            return if !$self->{ended} || !$self->{handle};
            $self->close;
            $on_end->();
        }
    );
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

A pair of connected sockets that carry lines: a word, and a text if need be. Neither end is inherited by
programs that are run, nor by further children that are forked: so the end of one process is seen at
once by the other.

=head1 METHODS

=head2 pair

    my ($here, $there) = Peregrine::Link->pair;

Two ends. Dies with a text if there is no descriptor left.

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

=head2 say

    $link->say('ready');
    $link->say(failed => $text);

Sends a message; what is beyond 16 KiB of the text is left out. Never waits: false when the other end has
gone, or takes nothing.

=head2 read_lines

    for my $line ($link->read_lines) { my ($word, $text) = @$line }

What has come. Never waits.

=head2 has_ended

    exit if $link->has_ended;

Whether the other end was found closed.

=head2 watch

    $link->watch($loop, $on_line, $on_end);

Calls C<$on_line> with word and text of each message, and C<$on_end> once when the other end is closed.

=head2 close

    $link->close;

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
