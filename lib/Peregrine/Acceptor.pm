package Peregrine::Acceptor;

use strict;
use warnings;

our $VERSION = '0.003000';

use Errno            qw(EMFILE ENFILE ENOBUFS ENOMEM);
use Peregrine::Later qw(later weakly);
use Scalar::Util     qw(weaken);

# Connections that are accepted in one turn of the loop: other handles and signals are to have their turn.
use constant ACCEPT_MAX => 64;

# Seconds for which nothing is accepted when the process or the system has no room. The socket stays readable,
# so without the pause the loop would turn all the time.
use constant PAUSE_S => 1;

my %NO_ROOM = map { $_ => 1 } EMFILE, ENFILE, ENOBUFS, ENOMEM;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

sub new {
    my ($class, %args) = @_;
    my $self = bless { %args{qw(loop socket on_connection)} }, $class;
    weaken($self->{loop});
    $self->{socket}->blocking(0);
    $self->_watch;
    return $self;
}

sub _watch {
    my ($self) = @_;
    delete $self->{timer};
    $self->{watched} = 1;
    $self->{loop}->watch_io(handle => $self->{socket}, on_read_ready => weakly($self, '_accept'));
    return;
}

sub _unwatch {
    my ($self) = @_;
    my $is_watched = delete $self->{watched};
    $self->{loop}->unwatch_io(handle => $self->{socket}, on_read_ready => 1) if $is_watched && $self->{loop};
    return;
}

sub _accept {
    my ($self) = @_;
    for (1 .. ACCEPT_MAX) {
        if    (accept my $connection, $self->{socket}) { $self->{on_connection}->($connection) }
        elsif ($NO_ROOM{ $! + 0 })                     { return $self->_pause }
        else                                           { return }
        # The function may have stopped the acceptor.
        return if !$self->{watched};
    }
    return;
}

sub _pause {
    my ($self) = @_;
    $self->_unwatch;
    $self->{timer} = later($self->{loop}, PAUSE_S, $self, '_watch');
    return;
}

sub stop {
    my ($self) = @_;
    $self->_unwatch;
    my $timer = delete $self->{timer};
    $self->{loop}->unwatch_time($timer) if $timer && $self->{loop};
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Acceptor - accepts connections at a socket that Perl serves

=head1 SYNOPSIS

    my $acceptor = Peregrine::Acceptor->new(
        loop          => $loop,
        socket        => $socket,
        on_connection => sub { my ($connection) = @_; ... },
    );
    ...
    $acceptor->stop;

=head1 DESCRIPTION

Where there is no descriptor, or no memory, for a connection, it waits for a second: the kernel keeps the
connection and the loop would find the socket ready in each turn. Other errors are those of one connection.

=head1 METHODS

=head2 new

See above.

=head2 stop

    $acceptor->stop;

Accepts nothing more. The socket stays open.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
