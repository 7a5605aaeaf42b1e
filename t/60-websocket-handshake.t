# The websocket scope, and every way in which its handshake can be answered.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use IO::Async::Loop;
use JSON::PP ();
use Test::More;
use Certificates;
use PAGI::Server;
use TestClient qw(get exchange);
use TestServer;
use TestWebSocket;

my $json = JSON::PP->new->canonical->ascii->allow_blessed;

sub say_line { print STDERR @_, "\n"; return }
sub later    { return IO::Async::Loop->new->delay_future(after => $_[0]) }
sub event    { my ($type, @fields) = @_; return { type => "websocket.$type", @fields } }

# Sends an event and logs its result.
async sub try_event {
    my ($send, $type, @fields) = @_;
    eval { await $send->(event($type, @fields)); 1 } and return say_line("$type: done");
    return say_line("$type: $@");
}

async sub deny {
    my ($send, $status, @headers) = @_;
    await $send->(event('http.response.start', status => $status, headers => \@headers));
}

my %handlers = (
    '/scope' => async sub {
        my ($scope, $receive, $send) = @_;
        my $transport = ref delete $scope->{'pagi.transport'};
        $scope->{state}{count}++;
        await $send->(event('accept'));
        await $send->(event('send', text => $json->encode({ %$scope, transport => $transport })));
    },
    '/subprotocol' => async sub {
        my ($scope, $receive, $send) = @_;
        my $event   = await $receive->();
        my $offered = $scope->{subprotocols};
        await try_event($send, 'accept', subprotocol => 'mine');
        my @headers = ([ 'x-own', 'yes' ], [ 'set-cookie', 'a=1' ], [ 'set-cookie', 'b=2' ]);
        await $send->(event('accept', subprotocol => pop @$offered, headers => \@headers));
        await try_event($send, 'accept');
        await $send->(event('send', text => $event->{type}));
    },
    '/reserved' => async sub {
        my ($scope, $receive, $send) = @_;
        for my $name ('Sec-WebSocket-Accept', 'sec-websocket-protocol', 'Upgrade') {
            await try_event($send, 'accept', headers => [ [ 'x-a', 1 ], [ $name, 'x' ] ]);
        }
        await $send->(event('accept', headers => [ [ connection => 'close' ], [ 'content-length' => 3 ] ]));
    },
    '/close' => async sub {
        my ($scope, $receive, $send) = @_;
        await $receive->();
        await $send->(event('close', code => 4000, reason => 'not for you'));
        await try_event($send, 'accept');
        say_line('after the refusal: ', $json->encode(await $receive->()));
    },
    '/deny' => async sub {
        my ($scope, $receive, $send) = @_;
        await $receive->();
        await try_event($send, 'http.response.body', body => 'early');
        await deny($send, 401, [ 'www-authenticate', 'Bearer' ], [ 'content-type', 'text/x' ]);
        for my $type (qw(accept send close keepalive)) { await try_event($send, $type) }
        await deny($send, 402) if $scope->{query_string} eq 'twice';
        await try_event($send, 'http.response.body', file => $0);
        await $send->(event('http.response.body', body => 'not ', more => 1));
        await $send->(event('http.response.body', body => 'you'));
        await try_event($send, 'http.response.body', body => 'more');
        my $future = $receive->();
        await later(0.2);
        say_line('the application ends, cancelled=', $future->is_cancelled ? 1 : 0);
        await $receive->() if $scope->{query_string} eq 'wait';
    },
    '/deny-partly' => async sub {
        my ($scope, $receive, $send) = @_;
        await deny($send, 403);
        await $send->(event('http.response.body', body => 'some', more => 1));
        die "in the middle\n" if $scope->{query_string} eq 'die';
    },
    '/deny-late' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->(event('accept'));
        await try_event($send, 'http.response.start', status => 401);
        await try_event($send, 'http.response.body',  body   => 'x');
        await $send->(event('send', text => 'still open'));
    },
    '/return'       => async sub { return },
    '/die'          => async sub { die "on purpose\n" },
    '/not-a-future' => sub { return 42 },
    '/unaccepted'   => async sub {
        my ($scope, $receive, $send) = @_;
        await try_event($send, 'send', text => 'x');
        await $send->(event('accept'));
    },
);

my $server = TestServer->start(
    access_log => \*STDERR,
    app        => async sub {
        my ($scope, $receive, $send) = @_;
        if ($scope->{type} eq 'lifespan') {
            await $receive->();
            $scope->{state}{started} = 1;
            await $send->({ type => 'lifespan.startup.complete' });
            await $receive->();
            return await $send->({ type => 'lifespan.shutdown.complete' });
        }
        if ($scope->{type} eq 'http') {
            await $send->({ type => 'http.response.start', status => 200 });
            return await $send->({ type => 'http.response.body', body => 'plain http' });
        }
        my $handler = $handlers{ $scope->{path} } || $handlers{'/scope'};
        return await $handler->(@_) if $scope->{path} ne '/not-a-future';
        return $handler->(@_);
    },
);
my $port = $server->port;

sub answer_of { return TestWebSocket->start($port, @_)->answer }

subtest 'scope' => sub {
    my $websocket = TestWebSocket->open(
        $port,
        '/a%20b/%E2%82%AC?x=1&y=%20',
        lines => [
            'Cookie: a=1', 'Sec-WebSocket-Protocol: chat  , , v2.chat ',
            'Cookie: b=2', 'Sec-WebSocket-Protocol: third'
        ],
    );
    my ($text) = $websocket->next =~ /\Atext (.*)\z/ or return fail('no text');
    my $scope = $json->decode($text);
    my ($client, $server_address) = @{$scope}{qw(client server)};
    is($client->[0], '127.0.0.1', 'client');
    cmp_ok($client->[1], '>', 0, '... with its port');
    is_deeply($server_address, [ '127.0.0.1', $port ], 'server');
    delete @{$scope}{qw(client server)};
    is_deeply(
        $scope,
        {
            type         => 'websocket',
            pagi         => { version => '0.3', spec_version => '0.3' },
            http_version => '1.1',
            scheme       => 'ws',
            path         => "/a b/\x{20ac}",
            raw_path     => '/a%20b/%E2%82%AC',
            query_string => 'x=1&y=%20',
            root_path    => '',
            headers      => [
                [ 'host',                   'localhost' ],
                [ 'upgrade',                'websocket' ],
                [ 'connection',             'Upgrade' ],
                [ 'sec-websocket-key',      'cGVyZWdyaW5lIHRlc3Rlcg==' ],
                [ 'sec-websocket-version',  '13' ],
                [ 'cookie',                 'a=1; b=2' ],
                [ 'sec-websocket-protocol', 'chat  , , v2.chat' ],
                [ 'sec-websocket-protocol', 'third' ],
            ],
            subprotocols => [ 'chat', 'v2.chat', 'third' ],
            state        => { started                   => 1, count => 1 },
            extensions   => { 'websocket.http.response' => {} },
            transport    => 'PAGI::Server::Transport',
        },
        'all keys, and no others'
    );
    my $second = $json->decode(substr TestWebSocket->open($port, '/')->next, 5);
    is($second->{state}{count}, 1, 'the state is a copy');
    is_deeply($second->{subprotocols}, [], 'no subprotocols: an empty list');
};

subtest 'accept' => sub {
    my $websocket = TestWebSocket->open($port, '/subprotocol', lines => ['Sec-WebSocket-Protocol: one, two']);
    my $answer    = $websocket->answer;
    is($answer->{reason},                           'Switching Protocols',       'the status');
    is($answer->{header}{'sec-websocket-accept'},   TestWebSocket::accept_key(), 'the key is answered');
    is($answer->{header}{'sec-websocket-protocol'}, 'two',       'the subprotocol that was chosen');
    is($answer->{header}{'x-own'},                  'yes',       'headers of the application');
    is($answer->{header}{'set-cookie'},             'a=1, b=2',  '... each of them');
    is(lc $answer->{header}{upgrade},               'websocket', 'Upgrade');
    is(lc $answer->{header}{connection},            'upgrade',   'Connection');
    is($websocket->next, 'text websocket.connect',               'the first event is websocket.connect');
    ok(
        $server->wait_for_log(
            qr/^accept: websocket\.accept: subprotocol "mine" was not offered by the client, which offered 'one', 'two' at /m
        ),
        'another subprotocol is an error that says so'
    );
    ok($server->wait_for_log(qr/^accept: websocket\.accept: the WebSocket has already been accepted/m),
        'accept only once');

    answer_of('/subprotocol');
    ok($server->wait_for_log(qr/subprotocol "mine" was not offered by the client, which offered none/),
        '... also when none was');

    $answer = answer_of('/reserved');
    is($answer->{status},                   101,       'accepted after errors');
    is(lc $answer->{header}{connection},    'upgrade', 'Connection is the server\'s');
    is($answer->{header}{'content-length'}, undef,     'a 101 has no Content-Length');
    for my $name ('Sec-WebSocket-Accept', 'sec-websocket-protocol', 'Upgrade') {
        like(
            $server->log,
            qr/^accept: websocket\.accept: headers\[1\] \("$name"\.*\): the handshake itself has the field/m,
            "$name cannot be given"
        );
    }
    TestWebSocket->open($port, '/unaccepted');
    like(
        $server->log,
        qr/^send: websocket\.send: the WebSocket has not been accepted; send websocket\.accept first/m,
        'send too early'
    );
};

subtest 'refusal' => sub {
    my $websocket = TestWebSocket->start($port, '/close');
    my $answer    = $websocket->answer;
    is($answer->{status},             403,     'close before accept: 403');
    is($answer->{header}{connection}, 'close', '... and the connection closes');
    is($websocket->next,              'end',   '... indeed');
    ok($server->wait_for_log(qr/^accept: websocket\.accept: the application has closed the WebSocket/m),
        'what is sent after that fails');
    ok(
        $server->wait_for_log(
            qr/^after the refusal: \{"code":1006,"reason":"","type":"websocket\.disconnect"\}$/m),
        'the application sees the end'
    );
};

subtest 'denial' => sub {
    my $websocket = TestWebSocket->start($port, '/deny');
    my $answer    = $websocket->answer;
    is($answer->{status},                     401,       'the status');
    is($answer->{header}{'www-authenticate'}, 'Bearer',  'its headers');
    is($answer->{header}{'content-type'},     'text/x',  '... all of them');
    is($answer->{body},                       'not you', 'its body in two pieces');
    is($answer->{header}{connection},         'close',   'the connection closes');
    is($websocket->next,                      'end',     '... indeed');
    ok(
        $server->wait_for_log(qr/^the application ends, cancelled=1$/m),
        'no websocket.disconnect comes, and nobody waits for it'
    );
    my $log = $server->log;
    like(
        $log,
        qr/^http\.response\.body: websocket\.http\.response\.body: the response has not been started with websocket\.http\.response\.start/m,
        'a body needs its start'
    );
    like(
        $log,
        qr/^http\.response\.body: websocket\.http\.response\.body: only body can be sent, not file /m,
        '... and cannot be a file'
    );
    like($log, qr/^$_: websocket\.$_: the handshake is being answered with a response/m, "no $_ then")
        for qw(accept send close keepalive);
    is(scalar(() = $log =~ /^http\.response\.body: done$/mg), 1,   'events after the end do nothing');
    is(answer_of('/deny?wait')->{status},                     401, 'an application that waits for more');
    is(answer_of('/deny?twice')->{status},                    401, 'a second start');
    ok($server->wait_for_log(qr/websocket\.http\.response\.start: the response has already started/),
        '... is an error');

    $websocket = TestWebSocket->open($port, '/deny-late');
    is($websocket->next, 'text still open', 'a denial after accept does not disturb the WebSocket');
    like($server->log, qr/^$_: websocket\.$_: the WebSocket has already been accepted/m, "$_: it fails")
        for qw(http.response.start http.response.body);

    for my $how ('', '?die') {
        $answer = answer_of("/deny-partly$how");
        is($answer->{status},   403, "a denial that is not finished ($how)");
        is($answer->{complete}, 0,   '... is truncated');
    }
    ok($server->wait_for_log(qr/ended with its denial response incomplete/), '... and logged');
    ok($server->wait_for_log(qr/died after it had denied its WebSocket: in the middle/),
        '... with its exception');
};

subtest 'no answer' => sub {
    is(answer_of('/return')->{status}, 500, 'an application that neither accepts nor closes: 500');
    ok($server->wait_for_log(qr/the application ended without accepting or closing its WebSocket/),
        '... which is logged');
    my $answer = answer_of('/die');
    is($answer->{status},             500,     'one that dies: 500');
    is($answer->{header}{connection}, 'close', '... and the connection closes');
    ok($server->wait_for_log(qr/the application died before its WebSocket was accepted: on purpose/),
        '... with its exception');
    is(answer_of('/not-a-future')->{status}, 500, 'one that returns no Future: 500');
};

subtest 'over TLS' => sub {
    plan skip_all => 'built without TLS' if !PAGI::Server->has_tls;
    my $files = Certificates->new->authority('ca')->issue('localhost');
    my $wss   = TestServer->start(
        ssl => { $files->pair('localhost') },
        app => async sub {
            my ($scope, $receive, $send) = @_;
            die "no\n" if $scope->{type} ne 'websocket';
            await $receive->();
            await $send->(event('accept'));
            await $send->(
                event('send', text => join ' ', $scope->{scheme}, sort keys %{ $scope->{extensions} }));
            my $event = await $receive->();
            await $send->(event('send', bytes => $event->{bytes}));
        },
    );
    my $websocket = TestWebSocket->open($wss->port, '/', tls => {});
    is($websocket->next, 'text wss tls websocket.http.response', 'scheme and extensions');
    my $bytes = join '', map { chr $_ % 251 } 1 .. 60_000;
    ok($websocket->binary($bytes)->next eq "binary $bytes", 'a message comes back');
    is($websocket->next,                    'close 1000', 'the application closes');
    is($websocket->close_frame(1000)->next, 'end',        '... and the connection ends');
    is($wss->stop,                          0,            'the server ends well');
};

subtest 'requests that are no handshake' => sub {
    my $send = sub {
        my ($pattern, $replacement) = @_;
        my $request = TestWebSocket::handshake('/scope');
        $request =~ s/$pattern/$replacement/;
        return exchange($port, $request);
    };
    my $answer = $send->(qr/Version: 13/, 'Version: 8');
    is($answer->{status},                          426,                            'another version: 426');
    is($answer->{header}{'sec-websocket-version'}, 13,                             '... which names ours');
    is($answer->{header}{upgrade},                 'websocket',                    '... and the protocol');
    is($answer->{header}{connection},              'close, Upgrade',               '... as Connection says');
    is($answer->{header}{'content-length'},        length $answer->{body},         '... and how long it is');
    is($send->(qr/Sec-WebSocket-Version: .*\r\n/, '')->{status},              400, 'no version: 400');
    is($send->(qr/\r\n\r\n/, "\r\nContent-Length: 5\r\n\r\nhello")->{status}, 400, 'content: 400');
    is($send->(qr/\r\n\r\n/, "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")->{status},
        400, 'content in chunks: 400');
    is($send->(qr/-Key: /, '-Key: x')->{header}{'transfer-encoding'}, undef, 'no refusal is chunked');
    is($send->(qr/\AGET/,  'POST')->{status},                         405,   'another method: 405');
    is($send->(qr/Sec-WebSocket-Key: .*\r\n/, '')->{status},          400,   'no key: 400');
    is($send->(qr/-Key: /,                    '-Key: x')->{status},   400,   'a key of another length: 400');
    is($send->(qr/Upgrade: websocket\r\n/,    '')->{body}, 'plain http',     'no Upgrade: an http scope');
    is($send->(qr/Connection: Upgrade/,       'X: x')->{body},
        'plain http', 'no upgrade in Connection: an http scope');
    is($send->(qr/Upgrade: websocket/, 'Upgrade: h2c')->{body},
        'plain http', 'another protocol: an http scope');
    is($send->(qr{HTTP/1\.1}, 'HTTP/1.0')->{body}, 'plain http', 'HTTP/1.0: an http scope');
};

is(get($port, '/')->{body}, 'plain http', 'the next client is served');
is($server->stop,           0,            'the server ends well');
unlike($server->log, qr/was cancelled/, 'to wait for what does not come is no error');
like($server->log, qr{"GET /subprotocol HTTP/1\.1" 101 }, 'the access log has the handshake');
like($server->log, qr{"GET /close HTTP/1\.1" 403 },       '... a refusal');
like($server->log, qr{"GET /deny HTTP/1\.1" 401 7},       '... a denial');

done_testing;
