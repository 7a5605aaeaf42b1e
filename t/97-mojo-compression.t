# Whether the WebSockets of a Mojolicious application are compressed says the action, by `with_compression`:
# over HTTP/1.1 and HTTP/2, in each placement, whatever the server's option is. Limits hold for what a message
# inflates to.
# Not repeated for each PEREGRINE_ENGINE.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;
use TestHPACK qw(block);
use TestHTTP2 qw(frame request_fields);
use TestServer;
use TestTools ();
use TestWebSocket;
use TestWorkers qw(write_file);

BEGIN {
    for my $module (qw(Mojolicious Linux::Epoll IO::Async::Loop::Epoll)) {
        plan skip_all => "needs $module" if !TestTools::has_module($module);
    }
}

my $app = write_file('app.pl', <<'END');
use Mojolicious::Lite -signatures;
app->log->level('fatal');
sub echo ($c) {
    $c->tx->max_websocket_size(30_000);
    # `built` is a frame that the application makes itself.
    $c->on(text => sub ($c, $bytes) {
        $c->send($bytes eq 'compressed' ? $c->tx->compressed ? 'yes' : 'no'
            : $bytes =~ /\Abuilt/ ? $c->tx->build_message({ text => $bytes }) : { text => $bytes });
    });
}
websocket '/with' => sub ($c) {
    $c->tx->with_compression;
    echo($c);
};
websocket '/without' => \&echo;
websocket '/denied'  => sub ($c) {
    $c->tx->with_compression;
    $c->render(text => 'no', status => 403);
};
app->start;
END

my $OFFER = 'Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits';
my $RSV1  = 4;
my $LONG  = join ' ', map { "word $_" } 1 .. 500;

# A WebSocket on a stream of HTTP/2, with the methods of TestWebSocket that are used here.
{

    package Streamed;

    sub open {
        my ($class, $port, $path) = @_;
        my $h2 = TestHTTP2->new($port);
        my $id = $h2->next_id;
        my ($method, $value, @others) = TestHTTP2::request_fields($path, method => 'CONNECT');
        my @fields = (
            $method, $value,
            ':protocol' => 'websocket',
            @others,
            'sec-websocket-version'    => 13,
            'sec-websocket-extensions' => 'permessage-deflate; client_max_window_bits'
        );
        $h2->send_frame(TestHTTP2::HEADERS, TestHTTP2::END_HEADERS, $id, TestHPACK::block(@fields));
        my $stream = $h2->stream($id);
        $h2->until(sub { defined $stream->{status} || $stream->{reset} });
        return bless { h2 => $h2, id => $id, answer => $stream }, $class;
    }

    sub answer { return $_[0]{answer} }

    sub send_frame {
        my ($self, @frame) = @_;
        $self->{h2}->data($self->{id}, $_) for unpack '(a16384)*', TestWebSocket::frame(@frame);
        return $self;
    }

    # TestWebSocket reads frames from this.
    sub _bytes {
        my ($self, $count) = @_;
        my $stream = $self->{answer};
        $self->{h2}->until(sub { length($stream->{body} // '') >= $count || $stream->{ended} });
        return if length($stream->{body} // '') < $count;
        return substr $stream->{body}, 0, $count, '';
    }

    sub next_frame { return TestWebSocket::next_frame({ client => $_[0] }) }
}

# The next frame in words: whether it was compressed, and what it says.
sub heard {
    my ($socket) = @_;
    my $frame = $socket->next_frame or return 'nothing';
    my ($opcode, $payload, undef, $rsv) = @$frame;
    return 'close ' . unpack 'n', $payload if $opcode == TestWebSocket::CLOSE;
    return $rsv ? 'compressed ' . TestWebSocket::inflated($payload) : "plain $payload";
}

sub text {
    my ($socket, $bytes, %options) = @_;
    $bytes = TestWebSocket::deflated($bytes) if $options{rsv};
    $socket->send_frame(TestWebSocket::TEXT, $bytes, %options);
    return heard($socket);
}

sub check {
    my ($open) = @_;
    my $socket = $open->('/with');
    like $socket->answer->{header}{'sec-websocket-extensions'}, qr/\Apermessage-deflate/,
        'with_compression: agreed on';
    is text($socket, 'compressed'),        'plain yes',         '... which `compressed` says';
    is text($socket, $LONG),               "compressed $LONG",  '... a message is compressed';
    is text($socket, $LONG, rsv => $RSV1), "compressed $LONG",  '... both ways';
    is text($socket, "built $LONG"), "compressed built $LONG",  '... also one that the application builds';
    is text($socket, 'x' x 30_001, rsv => $RSV1), 'close 1009', '... max_websocket_size is for what it was';
    is text($open->('/with'), "\xe2\x82\xac" x 10_001),    'close 1009', '... in bytes';
    is text($open->('/with'), 'x' x 50_001, rsv => $RSV1), 'close 1009', '... and so is the server\'s limit';
    $socket = $open->('/without');
    is $socket->answer->{header}{'sec-websocket-extensions'}, undef,      'without with_compression: nothing';
    is text($socket, 'compressed'),                           'plain no', '... which `compressed` says';
    is text($socket, $LONG),               "plain $LONG", '... a message is not compressed';
    is text($socket, $LONG, rsv => $RSV1), 'close 1002',  '... and a compressed one is a fault';
    return;
}

for my $placement ([qw(inline 0)], only_in_full([qw(thread 0)]), [qw(process 1)]) {
    my ($engine, $workers) = @$placement;
    for my $configured (0, 1) {
        my $server = TestServer->spawn(
            $^X,
            (map { "-I$_" } @INC),
            'bin/peregrine',
            qw(--no-access-log --port 0 --http2 --max-ws-message-size 50000 --engine),
            $engine,
            '--workers' => $workers,
            $configured ? '--ws-per-message-deflate' : '--no-ws-per-message-deflate', $app
        );
        my $port  = $server->wait_for_log(qr{listening on http://\S+?:(\d+)}) or die $server->log;
        my $where = "--engine $engine, the option is $configured";
        subtest "HTTP/1.1, $where" => sub {
            check(sub { return TestWebSocket->open($port, $_[0], lines => [$OFFER]) });
            my $denied = TestWebSocket->start($port, '/denied', lines => [$OFFER])->answer;
            is "$denied->{status} $denied->{body}", '403 no', 'a handshake may still be refused';
            my $plain = TestWebSocket->open($port, '/with');
            is $plain->answer->{header}{'sec-websocket-extensions'}, undef, 'a client without an offer';
            is text($plain, 'compressed'), 'plain no',    '... gets none';
            is text($plain, $LONG),        "plain $LONG", '... and messages are not compressed';
        };
        subtest "HTTP/2, $where" => sub {
            check(sub { return Streamed->open($port, $_[0]) });
        };
    }
}

done_testing;
