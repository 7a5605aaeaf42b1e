package Mojo::Server::Peregrine::WebSocket;

# A Mojo::Transaction::WebSocket whose messages are framed by the engine.

use strict;
use warnings;

use Mojo::Base 'Mojo::Transaction::WebSocket';

use Mojo::JSON      qw(j to_json);
use Mojo::Util      qw(steady_time);
use Mojo::WebSocket qw(WS_BINARY WS_CLOSE WS_CONTINUATION WS_PING WS_TEXT);

our $VERSION = '0.003000';

# Seconds between pings after the first ping of the application, before a second one tells its pace.
use constant FIRST_PACE => 15;

# ---- Sending ------------------------------------------------------------------------------------

sub send {
    my ($self, $message, $code) = @_;
    $self->once(drain => $code) if $code;
    my $event = $self->_event($message);
    $self->{peregrine}->queue($event) if $event && $self->{peregrine} && !$self->{closing};
    return $self;
}

# Builds frames without compression, which the engine does.
sub build_message {
    my ($self, $message) = @_;
    local $self->{compressed} = 0;
    return $self->SUPER::build_message($message);
}

sub _event {
    my ($self, $message) = @_;
    return $self->_event_of_frame(@$message) if ref $message eq 'ARRAY';
    return _text("$message")                 if ref $message ne 'HASH';
    return _text(to_json($message->{json}))  if exists $message->{json};
    return _decoded($message->{text})        if exists $message->{text};
    return { type => 'websocket.send', bytes => $message->{binary} };
}

# Joins the frames of a message.
sub _event_of_frame {
    my ($self, $is_last, undef, undef, undef, $op, $payload) = @_;
    return $self->_pings        if $op == WS_PING;
    return                      if $op != WS_TEXT && $op != WS_BINARY && $op != WS_CONTINUATION;
    $self->{peregrine_op} = $op if $op != WS_CONTINUATION;
    $self->{peregrine_parts} .= $payload;
    return if !$is_last;
    my $whole = delete $self->{peregrine_parts};
    return _decoded($whole) if $self->{peregrine_op} == WS_TEXT;
    return { type => 'websocket.send', bytes => $whole };
}

# Starts pings of the engine, at the pace of the application's first two pings.
sub _pings {
    my ($self) = @_;
    my ($count, $before) = (++$self->{peregrine_pings}, $self->{peregrine_pinged});
    return if $count > 2;
    $self->{peregrine_pinged} = steady_time;
    my $pace = defined $before ? $self->{peregrine_pinged} - $before : FIRST_PACE;
    return { type => 'websocket.keepalive', interval => $pace > 1 ? $pace : 1 };
}

sub _text {
    my ($text) = @_;
    return { type => 'websocket.send', text => $text };
}

sub _decoded {
    my ($bytes) = @_;
    # Encode refuses noncharacters, which are valid UTF-8. The engine has checked the bytes.
    utf8::decode($bytes);
    return _text($bytes);
}

sub finish {
    my ($self, @args) = @_;
    return $self if $self->{closing};
    $self->{close} = [@args];
    my ($code, $reason) = @args;
    $self->{close}[0] //= 1005;
    my $socket = $self->{peregrine};
    $self->{closing} = 1;
    # PAGI sends 1000 for a close without a code.
    $socket->queue(
        defined $code ? { type => 'websocket.close', code => $code, reason => $reason // '' } : undef)
        if $socket;
    return $self;
}

# ---- Receiving ----------------------------------------------------------------------------------

sub heard {
    my ($self, $event) = @_;
    return if $self->{closing};
    my ($text, $bytes) = @{$event}{qw(text bytes)};
    my $is_text     = defined $text;
    my $subscribers = $self->{events};    # as Mojo::EventEmitter keeps them
    utf8::encode($bytes = $text)
        if $is_text && ($subscribers->{text} || $subscribers->{json} || $subscribers->{frame});
    return $self->finish(1009) if ($is_text ? _bytes_of($text) : length $bytes) > $self->max_websocket_size;
    $self->emit(frame => [ 1, 0, 0, 0, $is_text ? WS_TEXT : WS_BINARY, $bytes ]) if $subscribers->{frame};
    $self->emit(json  => j($bytes))                                              if $subscribers->{json};
    $self->emit($is_text ? 'text' : 'binary' => $bytes);
    $self->emit(message => $is_text ? $text : $bytes) if $subscribers->{message};
    return;
}

# Bytes of a text as it was sent: the limit is about bytes, and text beyond ASCII comes decoded.
sub _bytes_of {
    my ($text) = @_;
    use bytes;
    return length $text;
}

# Notes the code of a close by the peer, unless the application has closed before.
sub left {
    my ($self, $code, $reason) = @_;
    return if $self->{close} || $code == 1006;
    $self->{close} = $code == 1005 ? [$code] : [ $code, $reason ];
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Mojo::Server::Peregrine::WebSocket - a WebSocket transaction whose frames are the engine's

=head1 DESCRIPTION

A L<Mojo::Transaction::WebSocket> for L<Mojo::Server::Peregrine>.

=head1 METHODS

Those of L<Mojo::Transaction::WebSocket>, and

=head2 heard

A message has come: an event of PAGI.

=head2 left

The peer has gone, with a code and a reason.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
