# permessage-deflate: offered, agreed on, used for what is worth it, and switched off by option and by flag.
use strict;
use warnings;

use lib 't/lib';
use Compress::Raw::Zlib qw(MAX_WBITS WANT_GZIP_OR_ZLIB Z_OK Z_STREAM_END Z_SYNC_FLUSH);
use Future::AsyncAwait;
use Test::More;
use TestServer;
use TestWebSocket;

my $OFFER = 'Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits';
my $RSV1  = 4;
my $TAIL  = "\x00\x00\xff\xff";

async sub echo {
    my ($scope, $receive, $send) = @_;
    die "Unsupported protocol type: $scope->{type}" if $scope->{type} ne 'websocket';
    await $receive->();
    await $send->({ type => 'websocket.accept' });
    while (1) {
        my $event = await $receive->();
        last if $event->{type} eq 'websocket.disconnect';
        await $send->(
            { type => 'websocket.send', map { $_ => $event->{$_} } grep { $_ ne 'type' } keys %$event });
    }
    return;
}

sub deflated {
    my ($plain)   = @_;
    my ($deflate) = Compress::Raw::Zlib::Deflate->new(-WindowBits => -MAX_WBITS(), -AppendOutput => 1);
    my $bytes     = '';
    $deflate->deflate($plain, $bytes);
    $deflate->flush($bytes, Z_SYNC_FLUSH);
    return substr $bytes, 0, -length $TAIL;
}

sub inflated {
    my ($bytes)   = @_;
    my ($inflate) = Compress::Raw::Zlib::Inflate->new(-WindowBits => -MAX_WBITS());
    my $plain     = '';
    $inflate->inflate($bytes .= $TAIL, $plain);
    return $plain;
}

sub opened {
    my ($server) = @_;
    my $socket = TestWebSocket->open($server->port, '/', lines => [$OFFER]);
    return ($socket, $socket->answer->{header}{'sec-websocket-extensions'});
}

my $long = join ' ', map { "word $_" } 1 .. 500;

subtest 'on by default' => sub {
    my $server = TestServer->start(app => \&echo);
    my ($socket, $agreed) = opened($server);
    is $agreed, 'permessage-deflate; server_no_context_takeover; client_no_context_takeover', 'agreed on';
    for my $text ($long, "$long again", 'short') {
        $socket->send_frame(TestWebSocket::TEXT, deflated($text), rsv => $RSV1);
        my ($opcode, $payload, $fin, $rsv) = @{ $socket->next_frame };
        is "$opcode $fin", TestWebSocket::TEXT . ' 1', 'one frame of text comes back';
        my $compressed = length $text > 1024;
        is $rsv, $compressed ? $RSV1 : 0, $compressed ? 'compressed' : 'not compressed: too short';
        is $compressed ? inflated($payload) : $payload, $text, 'the same text';
    }
    $socket->send_frame(TestWebSocket::TEXT, deflated("\xff"), rsv => $RSV1);
    is $socket->next, 'close 1007 text is not UTF-8', 'a message that inflates to no text is refused';
};

subtest 'a bomb' => sub {
    my $server = TestServer->start(app => \&echo, max_ws_message_size => 100_000);
    my ($socket) = opened($server);
    $socket->send_frame(TestWebSocket::BINARY, deflated("\0" x 100_001), rsv => $RSV1);
    is $socket->next, 'close 1009 message too big', 'is stopped at the limit';
};

subtest 'off' => sub {
    my $server = TestServer->start(app => \&echo, ws_per_message_deflate => 0);
    my ($socket, $agreed) = opened($server);
    is $agreed,                    undef,        'nothing is agreed on';
    is $socket->text($long)->next, "text $long", 'and nothing compressed';
    $socket->send_frame(TestWebSocket::TEXT, deflated($long), rsv => $RSV1);
    like $socket->next, qr/\Aclose 1002/, 'a compressed message is a fault';
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
