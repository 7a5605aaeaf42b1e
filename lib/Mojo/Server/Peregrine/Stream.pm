package Mojo::Server::Peregrine::Stream;

# The stream that Mojo::IOLoop->stream finds for the connection of an exchange. It is no Mojo::IOLoop::Stream,
# because the engine has the socket.

use strict;
use warnings;

use Mojo::Base 'Mojo::EventEmitter';

use Carp         qw(croak);
use Scalar::Util qw(weaken);

our $VERSION = '0.003000';

has high_water_mark => 1_048_576;

sub new {
    my ($class, $exchange) = @_;
    my $self = $class->SUPER::new(exchange => $exchange, timeout => $exchange->idle_limit);
    weaken $self->{exchange};
    return $self;
}

sub reactor { return Mojo::IOLoop->singleton->reactor }

# Sets the limit of silence in the engine, which sees pings, and how much a slow client takes.
sub timeout {
    my ($self, $seconds) = @_;
    return $self->{timeout} if !defined $seconds;
    $self->{timeout} = $seconds;
    $self->{exchange}->limit_idle($seconds) if $self->{exchange};
    return $self;
}

sub bytes_waiting {
    my ($self) = @_;
    return $self->{exchange} ? $self->{exchange}->bytes_waiting : 0;
}

# Whether no write is under way. False: the exchange waits for room, and a `drain` follows. True, too, when
# the exchange is over.
sub can_write {
    my ($self) = @_;
    return !($self->{exchange} && $self->{exchange}->is_sending);
}

sub is_writing {
    my ($self) = @_;
    return !!($self->{exchange} && ($self->{exchange}->is_sending || $self->has_subscribers('drain')));
}

sub is_readable { return !!0 }

sub handle { return undef }

sub start {
    my ($self) = @_;
    $self->{exchange}->read_on if $self->{exchange};
    return $self;
}

sub stop {
    my ($self) = @_;
    $self->{exchange}->pause_reading if $self->{exchange};
    return $self;
}

sub close {
    my ($self) = @_;
    $self->{exchange}->cut if $self->{exchange};
    return $self;
}

sub close_gracefully {
    my ($self) = @_;
    return $self->close if !$self->is_writing;
    $self->{is_leaving} = 1;
    return $self;
}

# Called when all output has left, or has room.
sub drained {
    my ($self) = @_;
    $self->_tell('drain');
    $self->close if $self->{is_leaving} && !$self->is_writing;
    return;
}

# Ends the stream with its exchange.
sub closed {
    my ($self) = @_;
    return if !delete $self->{exchange};
    # Code that waits for room can go on.
    $self->_tell('drain') if $self->has_subscribers('drain');
    $self->_tell('close');
    return;
}

# Emits an event. A subscriber that dies interrupts nothing, as in the daemon, whose reactor catches
# exceptions.
sub _tell {
    my ($self, $event) = @_;
    $self->reactor->_try('Stream', sub { $self->emit($event) });
    return;
}

sub write { croak 'The connection is the engine\'s: write to the response, or send to the WebSocket' }

sub steal_handle { croak 'The connection is the engine\'s: its handle cannot be taken' }

1;

__END__

=encoding UTF-8

=head1 NAME

Mojo::Server::Peregrine::Stream - the connection of an exchange, as Mojo::IOLoop shows it

=head1 SYNOPSIS

    my $stream = Mojo::IOLoop->stream($c->tx->connection);
    $stream->timeout(300);
    $stream->on(close => sub { ... });

=head1 DESCRIPTION

Stands for a L<Mojo::IOLoop::Stream> in applications on L<Mojo::Server::Peregrine>. It lives as long as its
request, or WebSocket; its connection may serve others before and after.

=head1 EVENTS

C<close> when the exchange is over, and C<drain> when the client has taken so much that there is room again.
There are no events C<read>, C<write>, C<error> and C<timeout>.

=head1 METHODS

=head2 new

    my $stream = Mojo::Server::Peregrine::Stream->new($exchange);

=head2 timeout

Seconds without a byte in either direction after which the engine ends the exchange, pings and pongs included;
0: no limit. Such an end is logged.

=head2 bytes_waiting

Bytes that wait for the client.

=head2 can_write

Whether there is room for more; where there is not, C<drain> follows.

=head2 high_water_mark

Means nothing: the option C<write_high_watermark> decides.

=head2 is_writing

=head2 is_readable

=head2 reactor

=head2 handle

Undef.

=head2 start

=head2 stop

What the client sends waits in between: a body, or messages of a WebSocket.

=head2 close

Cuts the connection.

=head2 close_gracefully

Cuts it when what was sent has room.

=head2 drained

=head2 closed

What the exchange tells it.

=head2 write

=head2 steal_handle

Die.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
