package Mojo::Server::Peregrine::Socket;

# A WebSocket: a Mojo::Transaction::WebSocket on the handles of PAGI.

use strict;
use warnings;

use parent qw(Mojo::Server::Peregrine::Connection);

use Future;
use Mojo::Server::Peregrine::WebSocket;
use Mojo::WebSocket qw(server_handshake);

our $VERSION = '0.003000';

# Fields of the handshake that the engine sets.
my %FRAMING = map { $_ => 1 } qw(
    connection content-length date keep-alive sec-websocket-accept sec-websocket-extensions
    sec-websocket-protocol transfer-encoding upgrade
);

sub new {
    my ($class, $server, $scope, $receive, $send) = @_;
    my $self = bless { server => $server, scope => $scope, receive => $receive, send => $send }, $class;
    my $tx   = $self->{handshake} = $server->transaction($self, $scope);
    $tx->req->headers->upgrade('websocket')->connection('Upgrade');    # HTTP/2 has neither
    $tx->req->parse('');
    $self->{ws} = Mojo::Server::Peregrine::WebSocket->new(handshake => $tx);
    return $self;
}

# Returns a Future of the socket's end.
sub run {
    my ($self) = @_;
    my ($ws, $tx) = @{$self}{qw(ws handshake)};
    $self->{done} = Future->new;
    my $done = $self->{done};
    $self->{events}  = [];
    $ws->{peregrine} = $self;
    $self->{arrived} = sub { $self->_arrived(@_) };
    # The first event tells of the connection, and has no content.
    $self->{waiting} = $self->{receive}->();
    $self->{waiting}->on_ready(sub { $self->_connected(@_) });
    return $done;
}

# ---- The handshake ------------------------------------------------------------------------------

sub _connected {
    my ($self, $future) = @_;
    return             if $self->{ended} || $future->is_cancelled;
    return $self->_end if _event($future)->{type} ne 'websocket.connect';
    my ($ws, $tx) = @{$self}{qw(ws handshake)};
    $self->_listen;    # the client may leave before the application has answered
    $self->{server}->emit(request => server_handshake($ws));
    return if $self->{ended};
    # Not before, as in the daemon: an action may refuse after an `on` has prepared the 101.
    $tx->on(resume => sub { $self->_answer });
    $self->_answer;
    return;
}

sub _answer {
    my ($self) = @_;
    my $tx = $self->{handshake};
    return if !$tx->{writing} || $self->{answered} || $self->{ended};
    $self->{answered} = 1;
    my $res     = $tx->res;
    my $all     = $res->fix_headers->headers->{headers};
    my @headers = map {
        my $name = $_;
        map { [ $name, $_ ] } @{ $all->{$name} }
    } grep { !$FRAMING{$_} } sort keys %$all;
    return $self->_refuse($res, \@headers) if $res->code != 101;
    my $protocol = $res->headers->sec_websocket_protocol;
    $self->_send(
        {
            type     => 'websocket.accept',
            headers  => \@headers,
            compress => $self->{ws}->compressed ? 1 : 0,
            defined $protocol ? (subprotocol => $protocol) : (),
        },
        sub {
            $self->close_transaction($tx);
            $self->{ws}->established(1);
            $self->limit_idle;    # the engine's limit for WebSockets holds until here
            $self->_pump;
        }
    );
    return;
}

sub _refuse {
    my ($self, $res, $headers) = @_;
    my $type = 'websocket.http.response';
    my $body = $res->content->is_dynamic ? '' : $res->body;
    $self->_send(
        { type => "$type.start", status => $res->code // 404, headers => $headers },
        sub {
            $self->_send({ type => "$type.body", body => $body }, sub { $self->_end });
        }
    );
    return;
}

# ---- Messages -----------------------------------------------------------------------------------

# Handles events until there is none yet.
sub _listen {
    my ($self) = @_;
    while (!$self->{ended}) {
        if ($self->{paused}) {
            $self->{read_on} = sub { $self->_listen };
            return;
        }
        my $future = $self->{receive}->();
        if (!$future->is_ready) {
            $self->{waiting} = $future;
            $future->on_ready($self->{arrived});
            return;
        }
        $self->_take(_event($future));
    }
    return;
}

sub _arrived {
    my ($self, $future) = @_;
    return if $self->{ended} || $future->is_cancelled;
    $self->_take(_event($future));
    $self->_listen;
    return;
}

sub _event {
    my ($future) = @_;
    return $future->is_failed ? { type => 'gone' } : $future->get;
}

# Passes an event on. As in the daemon, a subscriber that dies does not end the WebSocket.
sub _take {
    my ($self, $event) = @_;
    eval { $self->_heard($event); 1 }
        or $self->{server}->ioloop->reactor->emit(error => "WebSocket failed: $@");
    return;
}

sub _heard {
    my ($self, $event) = @_;
    my $ws = $self->{ws};
    return $ws->heard($event)                   if $event->{type} eq 'websocket.receive';
    $self->note_idle                            if ($event->{reason} // '') eq 'idle_timeout';
    $ws->left($event->{code}, $event->{reason}) if defined $event->{code};
    $self->_end;
    return;
}

# Queues an event; `undef` is a close without a code.
sub queue {
    my ($self, $event) = @_;
    push @{ $self->{events} }, $event;
    $self->_pump if !$self->{sending} && !$self->{pumping};
    return;
}

# Sends queued events, and emits `drain` when all were sent.
sub _pump {
    my ($self) = @_;
    my ($ws, $events) = @{$self}{qw(ws events)};
    return if $self->{sending} || $self->{pumping} || $self->{ended} || !$ws->established;
    local $self->{pumping} = 1;
    while (!$self->{sending} && !$self->{ended}) {
        if (@$events) {
            my $event = shift @$events;
            if   ($event) { $self->_send($event) }
            else          { $self->{scope}{'pagi.transport'}->_close_plainly }
            next;
        }
        $ws->emit('drain');
        last if !@$events;
    }
    return;
}

sub _send {
    my ($self, $event, $then) = @_;
    my $future = $self->{send}->($event);
    return $self->_sent($future, $then) if $future->is_ready;
    $self->{sending} = $future->on_ready(sub {
        delete $self->{sending};
        $self->_sent($_[0], $then);
        $self->_pump;
        $self->{stream}->drained if $self->{stream} && !$self->{sending};
    });
    return;
}

sub _sent {
    my ($self, $future, $then) = @_;
    return if $self->{ended};
    if ($future->is_failed) {
        $self->{server}->app->log->error('WebSocket failed: ' . ($future->failure)[0]);
        return $self->_end;
    }
    $then->() if $then;
    return;
}

# ---- The end ------------------------------------------------------------------------------------

sub gone {
    my ($self) = @_;
    return $self->_end;
}

sub _end {
    my ($self) = @_;
    return if $self->{ended}++;
    my ($ws, $tx) = delete @{$self}{qw(ws handshake)};
    $tx->unsubscribe('resume');
    $self->close_transaction($tx) if !$tx->is_finished;
    delete $ws->{peregrine};
    my $waiting = delete $self->{waiting};
    $waiting->cancel if $waiting && !$waiting->is_ready;
    $self->close_transaction($ws);
    delete $tx->{peregrine};
    $self->forget_stream if $self->{stream};
    my $done = delete $self->{done};
    delete @{$self}{qw(arrived send receive scope sending read_on)};
    $done->done if $done && !$done->is_ready;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Mojo::Server::Peregrine::Socket - a WebSocket of Mojolicious

=head1 DESCRIPTION

For L<Mojo::Server::Peregrine>.

=head1 METHODS

=head2 new

    my $socket = Mojo::Server::Peregrine::Socket->new($server, $scope, $receive, $send);

=head2 queue

Sends an event when its turn comes.

=head2 gone

Ends it without a close.

=head2 run

Has the application answer the handshake, and gives a Future of the WebSocket's end.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
