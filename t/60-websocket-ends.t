# How WebSockets end that nobody closes: clients that vanish in every state, keep-alive, idle limit, shutdown.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use Hash::Util ();
use IO::Async::Loop;
use JSON::PP ();
use Test::More;
use TestClient;
use TestGate;
use TestServer;
use TestWebSocket;

my $json = JSON::PP->new->canonical->ascii;
my $gate = TestGate->new;

sub say_line { print STDERR @_, "\n";    return }
sub event    { my ($type, @fields) = @_; return { type => "websocket.$type", @fields } }

# Receives until the end and logs it as "path?query: event".
async sub see_end {
    my ($scope, $receive) = @_;
    my $event = { type => '' };
    $event = await $receive->() while $event->{type} ne 'websocket.disconnect';
    say_line("$scope->{path}?$scope->{query_string}: ", $json->encode($event));
}

my %handlers = (
    '/before' => async sub {
        my ($scope, $receive, $send) = @_;
        say_line("$scope->{query_string} is here");
        await $receive->();
        my $event  = await $receive->();
        my $future = $send->(event('accept'));
        say_line(
            "before?$scope->{query_string}: ",
            $json->encode($event),
            $future->is_done ? ' accept does nothing' : ''
        );
    },
    '/asleep' => async sub {
        my ($scope, $receive, $send) = @_;
        say_line("$scope->{query_string} is here");
        await $gate->passed($scope->{query_string});
        my @futures = map { $send->($_) } event('accept'), event('send', text => 'x'), event('close');
        my @types   = map { $_->{type} } await($receive->()), await($receive->());
        say_line(
            "asleep?$scope->{query_string}: @types, ",
            scalar(grep { $_->is_done } @futures),
            ' events do nothing'
        );
    },
    '/open' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->(event('accept'));
        if ($scope->{query_string} eq 'locked') {
            delete $scope->{http_version};
            Hash::Util::lock_keys(%$scope);
        }
        await see_end($scope, $receive);
    },
    '/closing' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->(event('accept'));
        await $send->(event('close', code => 4000));
        await see_end($scope, $receive);
    },
    '/sending' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->(event('accept'));
        my $future;
        do { $future = $send->(event('send', bytes => 'x' x 100_000)) } until !$future->is_ready;
        say_line("$scope->{query_string} is blocked");
        await $future;
        say_line("$scope->{query_string}: the pending send is done, buffered=",
            $scope->{'pagi.transport'}->buffered_amount);
        await see_end($scope, $receive);
    },
    '/keepalive' => async sub {
        my ($scope, $receive, $send) = @_;
        my ($before, $after) = $scope->{query_string} =~ /\A(?:before=([^;]*);)?(.*)\z/;
        for my $setting (split(/,/, $before // ''), 'accept', split /,/, $after) {
            my ($interval, $timeout) = split /-/, $setting;
            await $send->(
                $setting eq 'accept'
                ? event('accept')
                : event('keepalive', interval => $interval, timeout => $timeout)
            );
        }
        await see_end($scope, $receive);
    },
);

my $app = async sub {
    my ($scope, $receive, $send) = @_;
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'websocket';
    await $handlers{ $scope->{path} }->(@_);
};
my $server = TestServer->start(app => $app);
my $port   = $server->port;

# The end that the application saw, as "code reason".
sub seen {
    my ($from, $target) = @_;
    my $text  = $from->wait_for_log(qr/^\Q$target\E: (\{.*?\})/m) or return "nothing\n" . $from->log;
    my $event = $json->decode($text);
    return "$event->{code} $event->{reason}";
}

my $mute = TestWebSocket->open($port, '/closing?mute');
is($mute->next, 'close 4000', 'the application closes a WebSocket, and its peer does not answer');

my $next_one = sub {
    my ($after) = @_;
    my $websocket = TestWebSocket->open($port, '/open');
    is($websocket->close_frame(1000)->next, 'close 1000', "the next client is served after: $after");
};

for my $way (qw(reset close)) {
    my $expected =
        $way eq 'reset' ? qr/\A1006 (?:read_error|client_closed|write_error)\z/ : qr/\A1006 client_closed\z/;
    subtest "clients that vanish by $way" => sub {
        my $websocket = TestWebSocket->start($port, "/before?$way");
        $server->wait_for_log(qr/^$way is here$/m);
        $websocket->$way;
        like(seen($server, "before?$way"), $expected, 'before accept, while the application receives');
        like($server->log, qr/^before\?$way: .* accept does nothing$/m,
            '... what it sends then does nothing');

        $websocket = TestWebSocket->start($port, "/asleep?sleep-$way");
        $server->wait_for_log(qr/^sleep-$way is here$/m);
        $websocket->$way;
        $next_one->("one that vanishes by $way");    # by then the server has seen that
        $gate->open("sleep-$way");
        ok(
            $server->wait_for_log(
                qr/^asleep\?sleep-$way: websocket\.connect websocket\.disconnect, 3 events do nothing$/m),
            'before accept, while it does something else'
        );

        $websocket = TestWebSocket->open($port, "/open?idle-$way");
        $websocket->$way;
        like(seen($server, "/open?idle-$way"), $expected, 'while open');

        $websocket = TestWebSocket->open($port, "/open?middle-$way");
        $websocket->{client}->send(substr TestWebSocket::frame(1, 'half a frame'), 0, 9);
        $websocket->$way;
        like(seen($server, "/open?middle-$way"), $expected, 'within a frame');

        $websocket = TestWebSocket->open($port, "/open?fragment-$way");
        $websocket->send_frame(1, 'half a message', fin => 0);
        $websocket->$way;
        like(seen($server, "/open?fragment-$way"), $expected, 'within a message');

        $websocket = TestWebSocket->open($port, "/closing?$way");
        is($websocket->next, 'close 4000', 'the application closes');
        $websocket->$way;
        like(seen($server, "/closing?$way"), $expected, '... and the client vanishes instead of answering');

        $websocket = TestWebSocket->open($port, "/sending?send-$way", receive_buffer => 65_536);
        $server->wait_for_log(qr/^send-$way is blocked$/m);
        $websocket->$way;
        # Bytes that the client has not read make the kernel reset the connection even then, and chance
        # decides who notices first.
        like(
            seen($server, "/sending?send-$way"),
            qr/$expected|\A1006 (?:read|write)_error\z/,
            'while a $send is pending'
        );
        like($server->log, qr/^send-$way: the pending send is done, buffered=0$/m, '... which resolves');
        $next_one->("clients that vanish by $way");
    };
}

subtest 'half-closed' => sub {
    my $websocket = TestWebSocket->open($port, '/open?half');
    is($websocket->half_close->next, 'end', 'a peer that sends no more has ended the connection');
    is(seen($server, '/open?half'),  '1006 client_closed', '... as the application sees');
    $websocket = TestWebSocket->start($port, '/before?half');
    $server->wait_for_log(qr/^half is here$/m);
    $websocket->half_close;
    is(seen($server, 'before?half'), '1006 client_closed', '... before accept as well');
};

subtest 'keep-alive' => sub {
    my $websocket = TestWebSocket->open($port, '/keepalive?0.05');
    is($websocket->next,                    'ping ',      'a ping') for 1 .. 3;
    is($websocket->close_frame(1000)->next, 'close 1000', 'no timeout: pongs do not matter');

    $websocket = TestWebSocket->open($port, '/keepalive?0.05-5');
    for (1 .. 3) {
        is($websocket->next, 'ping ', 'a ping');
        $websocket->send_frame(10, '');
    }
    $websocket->close;

    $websocket = TestWebSocket->open($port, '/keepalive?0.05-0.1');
    is($websocket->next, 'ping ', 'a ping that is not answered');
    my $last = $websocket->next;
    $last = $websocket->next while $last eq 'ping ';
    is($last,                                'end',                    '... ends the connection');
    is(seen($server, '/keepalive?0.05-0.1'), '1006 keepalive_timeout', '... as the application sees');

    $websocket = TestWebSocket->open($port, '/keepalive?0.05-0.1,0', timeout => 0.4);
    is($websocket->next, 'nothing', 'an interval of 0 stops the pings');
    $websocket = TestWebSocket->open($port, '/keepalive?0.01-0.02,60-30', timeout => 0.4);
    is($websocket->next, 'nothing', 'the last setting wins');
    $websocket = TestWebSocket->open($port, '/keepalive?60-30,0.05-5');
    is($websocket->next, 'ping ', '... either way');

    $websocket = TestWebSocket->open($port, '/keepalive?before=60-30,0.05-0.1;');
    is($websocket->next, 'ping ', 'a setting that comes before websocket.accept counts from there on');
    $last = $websocket->next;
    $last = $websocket->next while $last eq 'ping ';
    is($last, 'end', '... with its timeout');
    is(
        seen($server, '/keepalive?before=60-30,0.05-0.1;'),
        '1006 keepalive_timeout',
        '... as the application sees'
    );
    $websocket = TestWebSocket->open($port, '/keepalive?before=0.01,0;', timeout => 0.4);
    is($websocket->next, 'nothing', 'an interval of 0 stops the pings before they begin');
};

subtest 'idle limit' => sub {
    my $limited   = TestServer->start(app => $app, ws_idle_timeout => 0.5);
    my $websocket = TestWebSocket->open($limited->port, '/open?idle');
    my $busy      = TestWebSocket->open($limited->port, '/keepalive?0.1');
    is($websocket->next,             'end',               'a WebSocket on which nothing moves ends');
    is(seen($limited, '/open?idle'), '1006 idle_timeout', '... as the application sees');
    ok(
        $limited->wait_for_log(
            qr/request \d+-1 \(127\.0\.0\.1:\d+\) GET \S+: WebSocket idle timeout \(0\.5s\)/),
        '... and as the log says, with the client\'s address'
    );
    is($busy->next, 'ping ', 'one on which pings go out does not') for 1 .. 8;
    my $changed = TestWebSocket->open($limited->port, '/open?locked');
    is($changed->next, 'end', 'one whose scope is locked, and has lost a key, ends as well');
    ok($limited->wait_for_log(qr{GET /open\?locked: WebSocket idle timeout}), '... and the log says so');
    my $asleep = TestWebSocket->start($limited->port, '/before?asleep', timeout => 1);
    is($asleep->next, 'nothing', 'nor does one that is not accepted yet');
    $_->close for $busy, $asleep;
    is($limited->stop, 0, 'the server ends well');
};

is($mute->next,                    'end',                 'the peer that does not answer a close is left');
is(seen($server, '/closing?mute'), '1006 client_timeout', '... as the application sees');

subtest 'shutdown' => sub {
    my $polite = TestWebSocket->open($port, '/open?polite');
    my $late   = TestClient->new($port)->send("GET /before?late HTTP/1.1\r\nHost: h\r\n");
    my $early  = TestWebSocket->start($port, '/asleep?early');
    ok($server->wait_for_log(qr/^early is here$/m), 'a handshake is unanswered');
    $server->signal('TERM');
    is($polite->next,                    'close 1001',           'an open WebSocket is told: 1001');
    is($polite->close_frame(1001)->next, 'end',                  '... its answer ends the connection');
    is(seen($server, '/open?polite'),    '1001 server_shutdown', '... as the application sees');
    is($early->answer->{status},         503, 'a handshake that is not accepted yet is refused at once');
    $gate->open('early');
    ok(
        $server->wait_for_log(
            qr/^asleep\?early: websocket\.connect websocket\.disconnect, 3 events do nothing$/m),
        '... as the application sees'
    );
    $late->send(
        join "\r\n",
        'Upgrade: websocket',
        'Connection: upgrade',
        'Sec-WebSocket-Version: 13',
        'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
        '', ''
    );
    is($late->response->{status}, 503, '... and so is one that comes only now');
    $_->close for $early, $late;
    is($server->wait, 0, 'the server ends well');
    unlike($server->log, qr/^late is here$/m, '... and the application has not heard of the latter');

    my $hasty = TestServer->start(app => $app, shutdown_timeout => 0.2);
    my $open  = TestWebSocket->open($hasty->port, '/open?cut');
    my $asked = TestWebSocket->start($hasty->port, '/before?cut');
    ok($hasty->wait_for_log(qr/^cut is here$/m), 'a handshake is unanswered');
    is($hasty->stop,              0,                      'the time for shutdown is up');
    is(seen($hasty, '/open?cut'), '1006 server_shutdown', 'an open WebSocket is cut');
    is(
        seen($hasty, 'before?cut'),
        '1006 server_shutdown',
        '... and what was not accepted has ended the same way'
    );
    is($asked->answer->{status}, 503, '... with an answer');
};

unlike($server->log, qr/application (?:died|ended)|callback died|panic/, 'nothing died') or diag $server->log;

done_testing;
