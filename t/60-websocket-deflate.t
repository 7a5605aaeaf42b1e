# permessage-deflate: offered, agreed on, used for what is worth it, and switched off by option and by flag.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use Test::More;
use TestServer;
use TestWebSocket;

my $OFFER = 'Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits';
my $RSV1  = 4;

async sub echo {
    my ($scope, $receive, $send) = @_;
    die "Unsupported protocol type: $scope->{type}" if $scope->{type} ne 'websocket';
    await $receive->();
    # The path may say whether messages are compressed.
    my ($compress) = $scope->{path} =~ m{\A/([01])\z};
    await $send->({ type => 'websocket.accept', compress => $compress });
    while (1) {
        my $event = await $receive->();
        last if $event->{type} eq 'websocket.disconnect';
        await $send->(
            { type => 'websocket.send', map { $_ => $event->{$_} } grep { $_ ne 'type' } keys %$event });
    }
    return;
}

sub opened {
    my ($server, $path) = @_;
    my $socket = TestWebSocket->open($server->port, $path // '/', lines => [$OFFER]);
    return ($socket, $socket->answer->{header}{'sec-websocket-extensions'});
}

my $long = join ' ', map { "word $_" } 1 .. 500;

subtest 'on by default' => sub {
    my $server = TestServer->start(app => \&echo);
    my ($socket, $agreed) = opened($server);
    is $agreed, 'permessage-deflate; server_no_context_takeover; client_no_context_takeover', 'agreed on';
    for my $text ($long, "$long again", 'short') {
        $socket->send_frame(TestWebSocket::TEXT, TestWebSocket::deflated($text), rsv => $RSV1);
        my ($opcode, $payload, $fin, $rsv) = @{ $socket->next_frame };
        is "$opcode $fin", TestWebSocket::TEXT . ' 1', 'one frame of text comes back';
        my $compressed = length $text > 1024;
        is $rsv, $compressed ? $RSV1 : 0, $compressed ? 'compressed' : 'not compressed: too short';
        is $compressed ? TestWebSocket::inflated($payload) : $payload, $text, 'the same text';
    }
    $socket->send_frame(TestWebSocket::TEXT, TestWebSocket::deflated("\xff"), rsv => $RSV1);
    is $socket->next, 'close 1007 text is not UTF-8', 'a message that inflates to no text is refused';
};

subtest 'a bomb' => sub {
    my $server = TestServer->start(app => \&echo, max_ws_message_size => 100_000);
    my ($socket) = opened($server);
    $socket->send_frame(TestWebSocket::BINARY, TestWebSocket::deflated("\0" x 100_001), rsv => $RSV1);
    is $socket->next, 'close 1009 message too big', 'is stopped at the limit';
};

subtest 'off' => sub {
    my $server = TestServer->start(app => \&echo, ws_per_message_deflate => 0);
    my ($socket, $agreed) = opened($server);
    is $agreed,                    undef,        'nothing is agreed on';
    is $socket->text($long)->next, "text $long", 'and nothing compressed';
    $socket->send_frame(TestWebSocket::TEXT, TestWebSocket::deflated($long), rsv => $RSV1);
    like $socket->next, qr/\Aclose 1002/, 'a compressed message is a fault';
};

subtest 'the application says whether' => sub {
    for my $configured (0, 1) {
        my $server = TestServer->start(
            app                    => \&echo,
            max_ws_message_size    => 100_000,
            ws_per_message_deflate => $configured
        );
        for my $wanted (0, 1) {
            my ($socket, $agreed) = opened($server, "/$wanted");
            is defined $agreed, !!$wanted, "compress $wanted, where the option is $configured";
            $socket->text($long);
            is $socket->next_frame->[3], $wanted ? $RSV1 : 0, '... messages are as it says';
            $socket->send_frame(TestWebSocket::BINARY, TestWebSocket::deflated("\0" x 100_001), rsv => $RSV1);
            like $socket->next, $wanted ? qr/\Aclose 1009/ : qr/\Aclose 1002/, '... and so are limits';
        }
    }
};

subtest 'the size from which on' => sub {
    my $server = TestServer->start(app => \&echo, ws_deflate_min_size => 30);
    my ($socket) = opened($server);
    for my $length (29, 30) {
        $socket->text('x' x $length);
        is $socket->next_frame->[3], $length < 30 ? 0 : $RSV1, "$length bytes";
    }
};

done_testing;
