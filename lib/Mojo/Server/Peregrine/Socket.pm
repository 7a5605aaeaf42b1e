package Mojo::Server::Peregrine::Socket;

# A WebSocket: a Mojo::Transaction::WebSocket on the handles of PAGI.

use strict;
use warnings;

use parent qw(Mojo::Server::Peregrine::Connection);

use Future;
use Mojo::Server::Peregrine::WebSocket;
use Mojo::WebSocket qw(server_handshake);

our $VERSION = '0.003000';

# Fields of the handshake that are the engine's.
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
    $ws->{peregrine} = sub { $self->_queue(@_) };
    # The first event says nothing.
    $self->_receive(sub {
        my ($event) = @_;
        return $self->_end if $event->{type} ne 'websocket.connect';
        $self->_receive(sub { $self->_heard(@_) });
        $self->{server}->emit(request => server_handshake($ws));
        return if $self->{ended};
        # As in the daemon, not before: an action may refuse after an `on` has prepared the 101.
        $tx->on(resume => sub { $self->_answer });
        $self->_answer;
    });
    return $done;
}

# ---- The handshake ------------------------------------------------------------------------------

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
            type    => 'websocket.accept',
            headers => \@headers,
            defined $protocol ? (subprotocol => $protocol) : (),
        },
        sub {
            $tx->closed;
            $self->{ws}->established(1);
            $self->limit_idle;    # the engine's own for WebSockets until here
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

sub _receive {
    my ($self, $code) = @_;
    if ($self->{paused}) {
        $self->{read_on} = sub { $self->_receive($code) };
        return;
    }
    my $future = $self->{receive}->();
    $self->{waiting} = $future->on_ready(sub {
        my ($ready) = @_;
        return if $self->{ended} || $ready->is_cancelled;
        $code->($ready->is_failed ? { type => 'gone' } : $ready->get);
    });
    return;
}

sub _heard {
    my ($self, $event) = @_;
    my $ws = $self->{ws};
    if ($event->{type} eq 'websocket.receive') {
        $ws->heard($event);
        $self->_receive(sub { $self->_heard(@_) }) if !$self->{ended};
        return;
    }
    $self->note_idle                            if ($event->{reason} // '') eq 'idle_timeout';
    $ws->left($event->{code}, $event->{reason}) if defined $event->{code};
    $self->_end;
    return;
}

sub _queue {
    my ($self, $event) = @_;
    push @{ $self->{events} }, $event;
    $self->_pump;
    return;
}

# Sends what waits; when all is sent, `drain` says so.
sub _pump {
    my ($self) = @_;
    my $ws = $self->{ws};
    return if !$ws->established || $self->{sending} || $self->{pumping} || $self->{ended};
    local $self->{pumping} = 1;
    while (!$self->{sending} && !$self->{ended}) {
        if (@{ $self->{events} }) {
            my $event = shift @{ $self->{events} };
            if   ($event) { $self->_send($event) }
            else          { $self->{scope}{'pagi.transport'}->_close_plainly }
            next;
        }
        $ws->emit('drain');
        last if !@{ $self->{events} };
    }
    return;
}

sub _send {
    my ($self, $event, $then) = @_;
    my $future = $self->{send}->($event);
    my $sent   = sub {
        my ($ready) = @_;
        return if $self->{ended};
        if ($ready->is_failed) {
            $self->{server}->app->log->error('WebSocket failed: ' . ($ready->failure)[0]);
            return $self->_end;
        }
        $then->() if $then;
    };
    return $sent->($future) if $future->is_ready;
    $self->{sending} = $future->on_ready(sub {
        delete $self->{sending};
        $sent->($_[0]);
        $self->_pump;
        $self->{stream}->drained if $self->{stream} && !$self->{sending};
    });
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
    $tx->closed if !$tx->is_finished;
    delete $ws->{peregrine};
    my $waiting = delete $self->{waiting};
    $waiting->cancel if $waiting && !$waiting->is_ready;
    $self->close_transaction($ws);
    delete $tx->{peregrine};
    $self->forget_stream if $self->{stream};
    my $done = delete $self->{done};
    delete @{$self}{qw(send receive scope sending read_on)};
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

=head2 gone

Ends it without a close.

=head2 run

Has the application answer the handshake, and gives a Future of the WebSocket's end.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
