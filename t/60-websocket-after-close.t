# $send after the end of a WebSocket or event stream (PAGI::Spec::Www): it fails after the application's own
# websocket.close or sse.close, because an application cannot race itself, and does nothing after the peer has
# ended it. With and without validate_events.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use IO::Async::Loop;
use Test::More;
use TestServer;
use TestStream;
use TestWebSocket;

my @SOCKET_EVENTS = (
    { type => 'websocket.accept' },
    { type => 'websocket.send',                text     => 'late' },
    { type => 'websocket.keepalive',           interval => 1 },
    { type => 'websocket.http.response.start', status   => 401, headers => [] },
    { type => 'websocket.http.response.body',  body     => 'late' },
    { type => 'websocket.close' },
);
my @STREAM_EVENTS = (
    { type => 'sse.send',      data     => 'late' },
    { type => 'sse.comment',   comment  => 'late' },
    { type => 'sse.keepalive', interval => 1 },
    { type => 'sse.close' },
);

# Sends each event; writes one line of the log with the results.
sub try_all {
    my ($scope, $when, $send, @events) = @_;
    print STDERR "$scope->{path} $when: ", join(' ', map { $send->($_)->state } @events), "\n";
    return;
}

async sub last_event {
    my ($receive) = @_;
    my $event = { type => '' };
    $event = await $receive->() while $event->{type} !~ /disconnect/;
    return $event;
}

my %handlers = (
    '/own' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'websocket.accept' });
        await $send->({ type => 'websocket.close', code => 4000 });
        try_all($scope, 'closing', $send, @SOCKET_EVENTS);
        await last_event($receive);
        try_all($scope, 'gone', $send, @SOCKET_EVENTS);
    },
    '/refused' => async sub {
        my ($scope, $receive, $send) = @_;
        await $receive->();
        await $send->({ type => 'websocket.close' });
        try_all($scope, 'closing', $send, @SOCKET_EVENTS);
        await last_event($receive);
        try_all($scope, 'gone', $send, @SOCKET_EVENTS);
    },
    '/peer' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'websocket.accept' });
        await last_event($receive);
        try_all($scope, 'gone', $send, @SOCKET_EVENTS);
    },
    '/stream' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'sse.start' });
        my $sent;
        do { $sent = $send->({ type => 'sse.send', data => 'x' x 8_000_000 }) } until !$sent->is_ready;
        $send->({ type => 'sse.close', reason => 'own' });
        try_all($scope, 'closing', $send, @STREAM_EVENTS);
        my $reason = 'own';
        while ($reason eq 'own') {
            await IO::Async::Loop->new->delay_future(after => 0.02);
            $reason = (await last_event($receive))->{reason};
        }
        try_all($scope, 'gone', $send, @STREAM_EVENTS);
    },
    '/stream-peer' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'sse.start' });
        await last_event($receive);
        try_all($scope, 'gone', $send, @STREAM_EVENTS);
    },
);

sub says {
    my ($server, $path, $when, $expected, $name) = @_;
    is $server->wait_for_log(qr/^\Q$path\E $when: (.*)\n/m), $expected, $name;    # whole lines only
    return;
}

for my $checked (0, 1) {
    subtest "validate_events $checked" => sub {
        my $server = TestServer->start(
            validate_events => $checked,
            app => sub { $handlers{ $_[0]{path} } ? $handlers{ $_[0]{path} }->(@_) : die "no $_[0]{type}\n" },
        );
        my $port    = $server->port;
        my $fails   = join ' ', ('failed') x @SOCKET_EVENTS;
        my $nothing = join ' ', ('done') x @SOCKET_EVENTS;

        my $websocket = TestWebSocket->open($port, '/own');
        is $websocket->next, 'close 4000', 'the application closes';
        says $server, '/own', 'closing', $fails, '... and what it sends after that fails';
        is $websocket->close_frame(4000)->next, 'end', 'the peer answers';
        says $server, '/own', 'gone', $fails, '... which changes nothing';

        is(TestWebSocket->start($port, '/refused')->answer->{status},
            403, 'the application refuses a handshake');
        says $server, '/refused', 'closing', $fails, '... and what it sends after that fails';
        says $server, '/refused', 'gone',    $fails, '... then, too';

        TestWebSocket->open($port, '/peer')->close_frame(1000);
        says $server, '/peer', 'gone', $nothing, 'after the peer has closed it does nothing';
        my $log = length $server->log;
        TestWebSocket->open($port, '/peer')->reset;
        ok $server->wait_for_log(qr/\A.{$log}.*^\/peer gone: $nothing$/ms), '... nor after it has vanished';

        my $stream = TestStream->open($port, '/stream', receive_buffer => 65_536);
        says $server, '/stream', 'closing', 'failed failed failed done',
            'an event stream, closed by its application';
        $stream->reset;
        says $server, '/stream', 'gone', 'failed failed failed done',
            '... likewise when the client is gone as well';

        $stream = TestStream->open($port, '/stream-peer');
        is $stream->head->{status}, 200, 'another one';
        $stream->close;
        says $server, '/stream-peer', 'gone', 'done done done done', '... that its client leaves';

        is $server->stop, 0, 'the server ends well';
        unlike $server->log, qr/died|panic/, 'nothing died';
    };
}

done_testing;
