# HTTP/2 as applications see it, with a client that says exactly what a test wants: in the clear and over TLS,
# with the engine in the loop and on a thread of its own.
# Not repeated for each PEREGRINE_ENGINE: it names its engines.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use JSON::PP ();
use PAGI::Server;
use Test::More;

use Certificates;
use TestClient qw(get);
use TestHPACK  qw(block);
use TestHTTP2  qw(frame request_fields);
use TestServer;
use TestTools qw(wait_for);
use TestWebSocket;

my $json = JSON::PP->new->canonical->latin1;
my $text = join '', map { chr(ord('a') + $_ % 26) } 1 .. 10_000;

# The reasons for which requests have ended, by path.
my (%ends, %calls);

sub content {
    my ($path, $size) = @_;
    return substr $text x (1 + $size / length $text), 0, $size;
}

my %ACTIONS = (
    '/scope' => async sub {
        my ($scope, $receive, $send) = @_;
        my %seen =
            map { $_ => $scope->{$_} } qw(type http_version method scheme path raw_path query_string headers);
        await answer($send, $json->encode(\%seen));
    },
    '/echo' => async sub {
        my ($scope, $receive, $send) = @_;
        my ($body, $pieces) = ('', 0);
        while (1) {
            my $event = await $receive->();
            return if $event->{type} ne 'http.request';
            $body .= $event->{body};
            $pieces++;
            last if !$event->{more};
        }
        await answer($send, length($body) . ' ' . unpack('%32C*', $body));
    },
    '/ignore' => async sub { await answer($_[2], 'ignored') },
    '/wait'   => async sub {
        my ($scope, $receive, $send) = @_;
        $scope->{'pagi.connection'}->on_disconnect(sub { $ends{ $scope->{query_string} } = $_[0] });
        $ends{ $scope->{query_string} } = 'at work';
        1 while (await $receive->())->{type} ne 'http.disconnect';
    },
    '/begin' => async sub {
        my ($scope, $receive, $send) = @_;
        $scope->{'pagi.connection'}->on_disconnect(sub { $ends{ $scope->{query_string} } = $_[0] });
        $ends{ $scope->{query_string} } = 'at work';
        await $send->({ type => 'http.response.start', status => 200,     headers => [] });
        await $send->({ type => 'http.response.body',  body   => 'begun', more    => 1 });
        1 while (await $receive->())->{type} ne 'http.disconnect';
    },
    '/size' => async sub {
        my ($scope, $receive, $send) = @_;
        await answer($send, content('', $scope->{query_string}));
    },
    '/pieces' => async sub {
        my ($scope, $receive, $send) = @_;
        my ($count, $size) = split /,/, $scope->{query_string};
        await $send->({ type => 'http.response.start', status => 200, headers => [] });
        for my $number (1 .. $count) {
            my $more = $number < $count;
            await $send->({ type => 'http.response.body', body => content('', $size), more => $more });
        }
    },
    '/file' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.start', status => 200, headers => [] });
        await $send->({ type => 'http.response.body', file => __FILE__ });
    },
    '/trailers' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.start',    status  => 200,    headers => [], trailers => 1 });
        await $send->({ type => 'http.response.body',     body    => 'body', more    => 0 });
        await $send->({ type => 'http.response.trailers', headers => [ [ 'x-sum', '42' ] ] });
    },
    '/status' => async sub {
        my ($scope, $receive, $send) = @_;
        my @headers = ([ 'X-Mixed-Case', 'a' ], [ 'set-cookie', 'a=1' ], [ 'set-cookie', 'b=2' ]);
        await $send->(
            { type => 'http.response.start', status => $scope->{query_string}, headers => \@headers });
        await $send->({ type => 'http.response.body', body => '' });
    },
    '/dies'       => async sub { die "on purpose\n" },
    '/dies-later' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.start', status => 200,     headers => [] });
        await $send->({ type => 'http.response.body',  body   => 'begun', more    => 1 });
        die "on purpose\n";
    },
    '/ends' => async sub { await answer($_[2], $ends{ $_[0]{query_string} } // 'not yet') },
);

async sub answer {
    my ($send, $body) = @_;
    my @headers = ([ 'content-type', 'text/plain' ], [ 'content-length', length $body ]);
    await $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    await $send->({ type => 'http.response.body', body => $body });
}

async sub app {
    my ($scope, $receive, $send) = @_;
    return await stream($send)                 if $scope->{type} eq 'sse';
    return await talk($scope, $receive, $send) if $scope->{type} eq 'websocket';
    die "no $scope->{type}\n"                  if $scope->{type} ne 'http';
    await $ACTIONS{ $scope->{path} }->($scope, $receive, $send);
}

async sub stream {
    my ($send) = @_;
    await $send->({ type => 'sse.start' });
    for my $number (1 .. 3) { await $send->({ type => 'sse.send', data => "message $number" }) }
}

# The WebSocket answers each message with the version of HTTP and the message.
async sub talk {
    my ($scope, $receive, $send) = @_;
    await $receive->();
    await $send->({ type => 'websocket.accept', subprotocol => $scope->{subprotocols}[0] });
    while (1) {
        my $event = await $receive->();
        last if $event->{type} ne 'websocket.receive';
        await $send->({ type => 'websocket.send', text => "$scope->{http_version} $event->{text}" });
    }
}

# ---- Over every kind of connection ------------------------------------------------------------------

my $tls = PAGI::Server->has_tls;
my $files;
if ($tls) {
    $files = Certificates->new;
    $files->authority('ca');
    $files->issue('localhost', extensions => ['subjectAltName=DNS:localhost,IP:127.0.0.1']);
}

sub start {
    my (%options) = @_;
    my @places = ({ host => '127.0.0.1', port => 0 });
    push @places, { host => '127.0.0.1', port => 0, ssl => { $files->pair('localhost') } } if $tls;
    return TestServer->start(app => \&app, http2 => 1, listen => \@places, %options);
}

# Ports of a server: in the clear, and over TLS.
sub ports {
    my ($server) = @_;
    return map { $server->log =~ m{listening on $_://127\.0\.0\.1:(\d+)/} ? $1 : undef } qw(http https);
}

sub sum_of { return length($_[0]) . ' ' . unpack '%32C*', $_[0] }

sub requests {
    my ($connect, $scheme) = @_;
    my $h2 = $connect->();

    my $id = $h2->request(
        '/scope?a=%20b',
        scheme    => $scheme,
        authority => 'example.org:81',
        fields    => [ 'x-a' => 1, cookie => 'a=1', 'x-b' => 2, cookie => 'b=2', 'x-a' => 3 ]
    );
    my $scope = eval { $json->decode($h2->response($id)->{body}) } || {};
    is_deeply(
        $scope,
        {
            type         => 'http',
            http_version => '2',
            method       => 'GET',
            scheme       => $scheme,
            path         => '/scope',
            raw_path     => '/scope',
            query_string => 'a=%20b',
            headers      => [
                [ 'x-a'  => 1 ],
                [ cookie => 'a=1; b=2' ],
                [ 'x-b'  => 2 ],
                [ 'x-a'  => 3 ],
                [ host   => 'example.org:81' ],
            ],
        },
        'a scope'
    ) or diag explain $scope;

    for my $size (0, 1, 16_384, 65_535, 65_536, 300_000) {
        my $body   = content('', $size);
        my $stream = $h2->response(upload($h2, '/echo', $body));
        is $stream->{body},                 sum_of($body), "a body of $size bytes";
        is $h2->get("/size?$size")->{body}, $body,         '... and back';
    }
    is $h2->get('/pieces?20,30000')->{body}, content('', 30_000) x 20,     'a response in pieces';
    is $h2->get('/file')->{body},            TestTools::content(__FILE__), 'a file';
    my $stream = $h2->get('/trailers');
    is_deeply [ @{$stream}{qw(body trailers)} ], [ 'body', { 'x-sum' => 42 } ], 'trailers of a response';
    is $h2->response($h2->request('/echo', method => 'POST', body => 'abc', trailers => [ 'x-sum' => 1 ]))
        ->{body}, sum_of('abc'), 'trailers of a request';

    my $head = $h2->get('/size?1000', method => 'HEAD');
    is_deeply [ $head->{status}, $head->{header}{'content-length'}, $head->{body} ], [ 200, 1000, '' ],
        'HEAD';
    for my $status (204, 304, 404) {
        $stream = $h2->get("/status?$status");
        is $stream->{status}, $status, "status $status";
        is_deeply
            [ map { $_->[1] } grep { $_->[0] eq 'set-cookie' } @{ $stream->{fields} } ],
            [ 'a=1', 'b=2' ],
            '... its cookies stay apart';
        is $stream->{header}{'x-mixed-case'}, 'a', '... names are in lower case';
        ok !defined $stream->{header}{connection}, '... nothing of the connection is a field';
    }
    $id = $h2->next_id;
    $h2->send_frame(TestHTTP2::HEADERS, TestHTTP2::END_HEADERS,
        $id, block(request_fields('/echo', method => 'POST', fields => [ expect => '100-continue' ])));
    ok $h2->until(sub { $h2->stream($id)->{interim} }), '100 when the application reads';
    $h2->data($id, 'abc', 1);
    is $h2->response($id)->{body}, sum_of('abc'), '... then its answer';

    $stream = $h2->get('/dies');
    is $stream->{status}, 500, 'an application that dies';
    $stream = $h2->get('/dies-later');
    is_deeply [ @{$stream}{qw(status reset ended body)} ], [ 200, 'INTERNAL_ERROR', undef, 'begun' ],
        'one that dies in its response: what it has said comes first';
    is $h2->get('/x/../nothing')->{status}, 500, '... and others go on';
    my $sse = $h2->get('/', fields => [ accept => 'text/event-stream' ]);
    is $sse->{header}{'content-type'}, 'text/event-stream',                             'an event stream';
    is $sse->{body} =~ s/\r//gr,       join('', map { "data: message $_\n\n" } 1 .. 3), '... its messages';
    ok !$h2->{goaways}, 'all that on one connection';
    return;
}

# Sends content as the windows let it out.
sub upload {
    my ($h2, $path, $body) = @_;
    my $id     = $h2->request($path, method => 'POST', open => 1);
    my $stream = $h2->stream($id);
    my ($at, $connection) = (0, $h2->{sent} // 0);
    while ($at < length $body) {
        my $room = 65_535 + ($stream->{window} || 0) - $at;
        my $most = 65_535 + ($h2->{window}     || 0) - $connection;
        $room = $most if $most < $room;
        if ($room <= 0) {
            $h2->next_frame or last;
            next;
        }
        my $piece = substr $body, $at, $room < 16_384 ? $room : 16_384;
        $h2->data($id, $piece);
        $at         += length $piece;
        $connection += length $piece;
    }
    $h2->{sent} = $connection;
    $h2->data($id, '', 1);
    return $id;
}

# Streams of the same connection do not wait for each other.
sub many {
    my ($connect) = @_;
    my $h2        = $connect->();
    my @waits     = map { $h2->request("/wait?many$_") } 1 .. 30;
    my @ids       = map { $h2->request('/pieces?10,5000') } 1 .. 60;
    is $h2->get('/ignore')->{body}, 'ignored', 'beside 30 streams that wait and 60 that send';
    my $right = grep { $h2->response($_)->{body} eq content('', 5000) x 10 } @ids;
    is $right, @ids, '... all of which come whole';
    $h2->reset($_) for @waits;
    ok $h2->is_alive, '... and the others are given up';
    return;
}

# The fields of a WebSocket's handshake on a stream (RFC 8441).
sub handshake_fields {
    my ($path, @more) = @_;
    my ($method, $value, @others) = request_fields($path, method => 'CONNECT');
    return ($method, $value, ':protocol' => 'websocket', @others, 'sec-websocket-version' => 13, @more);
}

# Handshakes that cannot be accepted end their streams only.
sub no_websocket {
    my ($connect) = @_;
    my $h2 = $connect->();
    my ($method, $value, @others) = request_fields('/talk', method => 'CONNECT');
    my @fields  = handshake_fields('/talk');
    my @refused = (
        [ 'the stream has ended', TestHTTP2::END_HEADERS | TestHTTP2::END_STREAM, @fields ],
        [ 'a length',   TestHTTP2::END_HEADERS, @fields, 'content-length' => 5 ],
        [ 'no version', TestHTTP2::END_HEADERS, $method, $value, ':protocol' => 'websocket', @others ],
    );
    for my $case (@refused) {
        my ($name, $flags, @block) = @$case;
        my $id = $h2->next_id;
        $h2->send_frame(TestHTTP2::HEADERS, $flags, $id, block(@block));
        is(($h2->response($id) || {})->{status}, 400, "$name: 400");
        is $h2->get('/ignore')->{body}, 'ignored', '... and the connection goes on';
    }
    ok !$h2->{goaways}, '... without a word of its end';
    return;
}

# A WebSocket on a stream, beside requests.
sub websocket {
    my ($connect) = @_;
    my $h2        = $connect->();
    my $id        = $h2->next_id;
    my @fields    = handshake_fields('/talk', 'sec-websocket-protocol' => 'chat');
    $h2->send_frame(TestHTTP2::HEADERS, TestHTTP2::END_HEADERS, $id, block(@fields));
    my $stream = $h2->stream($id);
    ok $h2->until(sub { defined $stream->{status} || $stream->{reset} }), 'a handshake is answered';
    is_deeply [ @{$stream}{qw(status reset)}, ($stream->{header} || {})->{'sec-websocket-protocol'} ],
        [ 200, undef, 'chat' ], '... with 200';
    like(($stream->{header} || {})->{date}, qr/ GMT\z/, '... and the date (RFC 9110 section 6.6.1)');

    for my $word (qw(one two)) {
        delete $stream->{body};
        $h2->data($id, TestWebSocket::frame(TestWebSocket::TEXT, $word));
        ok $h2->until(sub { length($stream->{body} // '') >= 7 }), 'a message, and its answer';
        is $stream->{body}, "\x81\x052 $word", '... is what was said';
    }
    is $h2->get('/ignore')->{body}, 'ignored', '... beside a request';
    $h2->data($id, TestWebSocket::frame(TestWebSocket::CLOSE, pack 'n', 1000));
    ok $h2->until(sub { $stream->{ended} || $stream->{reset} }), 'the stream ends';
    is $h2->get('/ignore')->{body}, 'ignored', '... alone';
    return;
}

# Applications are told that clients leave.
sub endings {
    my ($connect) = @_;
    my $ask = $connect->();
    for my $path (qw(/wait /begin)) {
        my %leave = (
            reset  => sub { $_[0]->reset($_[1]) },
            cut    => sub { $_[0]->close },
            goaway => sub {
                $_[0]->send_frame(TestHTTP2::GOAWAY, 0, 0, pack 'NN', 0, 0);
                $_[0]->close;
            },
        );
        for my $how (sort keys %leave) {
            my $h2 = $connect->();
            my $id = $h2->request("$path?$how$path");
            # A request whose client leaves before its application begins is never given to the application.
            my $news = sub { $ask->get("/ends?$how$path")->{body} };
            ok wait_for(sub { $news->() eq 'at work' }), "$path, $how";
            $leave{$how}->($h2, $id);
            my $end = wait_for(sub {
                my $body = $news->();
                return $body eq 'at work' ? '' : $body;
            });
            # A peer that closes with bytes unread resets its connection.
            like $end, qr{\A(?:client_closed|read_error)\z}, '... the application hears of it';
        }
    }
    return;
}

# Events of applications whose clients have left before the first of them: none fails because the one before
# it did nothing.
my %IN_VAIN = (
    '/' => [
        { type => 'http.response.start', status => 200, headers => [] },
        { type => 'http.response.body',  body   => 'x', more    => 1 },
        { type => 'http.response.body',  body   => 'x' },
    ],
    '/events'    => [ { type => 'sse.start' }, { type => 'sse.send', data => 'x' } ],
    '/websocket' => [
        { type => 'websocket.accept' },
        { type => 'websocket.send',  text => 'x' },
        { type => 'websocket.close', code => 1000 },
    ],
    '/denial' => [
        { type => 'websocket.http.response.start', status => 400, headers => [] },
        { type => 'websocket.http.response.body',  body   => 'x' },
    ],
);

sub resets_at_once {
    my ($engine) = @_;
    my @said;
    my $app = async sub {
        my ($scope, $receive, $send) = @_;
        die "no $scope->{type}\n"                         if $scope->{type} eq 'lifespan';
        return await answer($send, $json->encode(\@said)) if $scope->{path} eq '/said';
        my $told = '';
        for my $event (@{ $IN_VAIN{ $scope->{path} } }) {
            $told = eval { await $send->($event); 1 } ? 'nothing' : "$event->{type}: $@";
            last if $told ne 'nothing';
        }
        push @said, "$scope->{path} $told";
    };
    my $server = TestServer->start(app => $app, http2 => 1, access_log => undef, engine => $engine);
    my $h2     = TestHTTP2->new($server->port);
    for my $path (sort keys %IN_VAIN) {
        my @fields = $path =~ /websocket|denial/ ? handshake_fields($path) : request_fields($path);
        push @fields, accept => 'text/event-stream' if $path eq '/events';
        for (1 .. 5) {
            my $id = $h2->next_id;
            $h2->send(frame(TestHTTP2::HEADERS, TestHTTP2::END_HEADERS, $id, block(@fields)),
                frame(TestHTTP2::RST_STREAM, 0, $id, pack 'N', 8));
            $h2->is_alive;
        }
    }
    my $said = $json->decode($h2->get('/said')->{body});
    my %seen = map { $_ => 1 } @$said;
    my @want = map { "$_ nothing" } sort keys %IN_VAIN;
    is_deeply [ sort keys %seen ], [ grep { $seen{$_} || $engine eq 'inline' } @want ],
        'whoever answers a client that has left before is told of nothing that fails';
    return;
}

for my $engine (qw(inline thread)) {
    subtest "resets that come with their requests, $engine" => sub { resets_at_once($engine) };
    subtest "engine $engine"                                => sub {
        my $server = start(engine => $engine, access_log => '/dev/null');
        my ($plain, $secure) = ports($server);
        my $in_clear = sub { return TestHTTP2->new($plain) };
        my $over_tls = sub { return TestHTTP2->new($secure, tls => {}) };
        subtest 'in the clear' => sub { requests($in_clear, 'http') };
        subtest 'over TLS' => sub { requests($over_tls, 'https') }
            if $tls;
        subtest 'many streams' => sub { many($in_clear) };
        subtest 'many streams, over TLS' => sub { many($over_tls) }

            if $tls;
        subtest 'handshakes that are refused' => sub { no_websocket($in_clear) };
        subtest 'WebSockets'                  => sub { websocket($in_clear) };
        subtest 'WebSockets, over TLS' => sub { websocket($over_tls) }
            if $tls;
        subtest 'clients that leave' => sub { endings($in_clear) };
        subtest 'clients that leave, over TLS' => sub { endings($over_tls) }
            if $tls;
        is get($plain, '/ignore')->{body}, 'ignored', 'HTTP/1 at the same port';
        is $server->stop,                  0,         'the server ends well';
    };
}

# ---- What is agreed on ------------------------------------------------------------------------------

subtest 'ALPN' => sub {
    plan skip_all => 'built without TLS' if !$tls;
    my $server = start(access_log => undef);
    my (undef, $port) = ports($server);
    my $agreed = sub {
        my $client = TestClient->new($port, tls => {@_});
        return $client->socket->alpn_selected // 'nothing';
    };
    is $agreed->(SSL_alpn_protocols => [qw(http/1.1 h2)]), 'h2',       'both: HTTP/2';
    is $agreed->(SSL_alpn_protocols => ['http/1.1']),      'http/1.1', 'HTTP/1.1 alone';
    is $agreed->(), 'nothing', 'nothing is asked for';
    my $h1 = TestClient->new($port, tls => { SSL_alpn_protocols => ['http/1.1'] });
    $h1->send(TestHTTP2::PREFACE . frame(TestHTTP2::SETTINGS, 0, 0));
    is $h1->response->{status}, 400, 'a client that has agreed on HTTP/1.1 cannot change over';
    my $weak = start(
        access_log => undef,
        listen     => [ {
            host => '127.0.0.1',
            port => 0,
            ssl  => {
                $files->pair('localhost'),
                cipher_list => 'ECDHE-ECDSA-AES128-SHA256:ECDHE-RSA-AES128-SHA256'
            }
        } ]
    );
    (undef, $port) = ports($weak);
    my @old = (SSL_version => 'TLSv1_2', SSL_cipher_list => 'ALL:@SECLEVEL=1');
    is $agreed->(@old, SSL_alpn_protocols => [qw(h2 http/1.1)]), 'http/1.1',
        'a cipher that HTTP/2 does not allow: HTTP/1.1';
    ok !eval { $agreed->(@old, SSL_alpn_protocols => ['h2']) },
        '... and none of both for who takes only HTTP/2';
    ok !eval {
        TestClient->new($port, tls => { SSL_version => 'TLSv1_1', SSL_cipher_list => 'ALL:@SECLEVEL=0' });
    }, 'nothing for TLS 1.1';
};

subtest 'off' => sub {
    my $server = start(http2 => 0, access_log => undef);
    my ($plain, $secure) = ports($server);
    my $client = TestClient->new($plain)->send(TestHTTP2::PREFACE . frame(TestHTTP2::SETTINGS, 0, 0));
    is $client->response->{status}, 400, 'in the clear its preface is no request';
    if ($tls) {
        my $agreed = TestClient->new($secure, tls => { SSL_alpn_protocols => [qw(h2 http/1.1)] });
        is $agreed->socket->alpn_selected, 'http/1.1', 'over TLS it is not offered';
    }
    my $on     = start(access_log => undef);
    my ($port) = ports($on);
    my $answer = TestClient->new($port)->send(
        join "\r\n",    'GET /ignore HTTP/1.1',
        'Host: h',      'Connection: Upgrade, HTTP2-Settings',
        'Upgrade: h2c', 'HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA',
        '',             ''
    )->response;
    is_deeply [ @{$answer}{qw(status version body)} ], [ 200, '1.1', 'ignored' ],
        'on, too: Upgrade: h2c is passed over';
};

subtest 'unless said otherwise' => sub {
    my $server = start(http2 => undef, access_log => undef);
    my ($plain, $secure) = ports($server);
    my $client = TestClient->new($plain)->send(TestHTTP2::PREFACE . frame(TestHTTP2::SETTINGS, 0, 0));
    is $client->response->{status}, 400, 'not in the clear';
    return if !$tls;
    my $h2 = TestHTTP2->new($secure, tls => {});
    is $h2->get('/ignore')->{body}, 'ignored', 'over TLS';
    for my $offered ([], ['http/1.1']) {
        my $old = TestClient->new($secure, tls => { @$offered ? (SSL_alpn_protocols => $offered) : () });
        is $old->send("GET /ignore HTTP/1.1\r\nHost: h\r\n\r\n")->response->{body}, 'ignored',
            "who offers '@$offered' gets HTTP/1.1";
    }
};

subtest 'settings' => sub {
    my $server = start(
        access_log                 => undef,
        h2_max_concurrent_streams  => 7,
        h2_initial_window_size     => 1234,
        h2_max_frame_size          => 20_000,
        h2_max_header_list_size    => 5000,
        h2_enable_connect_protocol => 0,
        h2_connection_window_size  => 200_000,
        h2_rst_rate_limit          => { burst => 3, rate => 1 },
    );
    my ($port) = ports($server);
    my $h2 = TestHTTP2->new($port);
    ok $h2->is_alive, 'a connection';
    is_deeply(
        $h2->{settings},
        {
            MAX_CONCURRENT_STREAMS  => 7,
            INITIAL_WINDOW_SIZE     => 1234,
            MAX_FRAME_SIZE          => 20_000,
            MAX_HEADER_LIST_SIZE    => 5000,
            ENABLE_CONNECT_PROTOCOL => 0,
            NO_RFC7540_PRIORITIES   => 1,
        },
        'the settings say what the options say'
    );
    is $h2->{window}, 200_000 - 65_535, '... and so does the credit of the connection';
    my @ids = map { $h2->request('/wait') } 1 .. 8;
    is $h2->response($ids[-1])->{reset}, 'REFUSED_STREAM', 'a stream too many is refused';
    is $h2->response(
        $h2->request('/echo', method => 'POST', body => 'x' x 1000, fields => [ 'x-a' => 'y' x 5000 ]))
        ->{reset} // 'none', 'REFUSED_STREAM', '... another one, too';
    $h2->reset($_) for @ids[ 0 .. 6 ];
    is $h2->end->{code}, 'ENHANCE_YOUR_CALM', 'more than three are given up: the connection ends';
    $h2 = TestHTTP2->new($port);
    is $h2->get('/ignore', fields => [ 'x-a' => 'y' x 5000 ])->{status}, 431, 'fields that are too long';
};

# ---- The end ----------------------------------------------------------------------------------------

subtest 'a server that stops' => sub {
    my $server = start(access_log => undef);
    my ($port) = ports($server);
    my $h2     = TestHTTP2->new($port);
    my $id     = $h2->request('/echo', method => 'POST', open => 1);
    my $idle   = TestHTTP2->new($port);
    ok $_->is_alive, 'a connection' for $h2, $idle;
    $server->signal('TERM');
    ok $h2->until(sub { $h2->{goaways} }), 'is told of the end';
    is $h2->{goaways}[0]{code}, 'NO_ERROR', '... which is nobody\'s fault';
    $h2->data($id, 'abc', 1);
    is $h2->response($id)->{body}, sum_of('abc'), '... and what has begun is answered';
    is $_->end->{code},            'NO_ERROR',    '... before the connection ends' for $h2, $idle;
    is $server->wait,              0,             'the server ends well';
};

subtest 'access log' => sub {
    my $log    = File::Temp->new;
    my $server = start(access_log => $log->filename, access_log_format => '%m %U %H %s %B');
    my ($port) = ports($server);
    my $h2     = TestHTTP2->new($port);
    $h2->get('/ignore');
    $h2->get('/size?100000');
    get($port, '/ignore');
    is $server->stop, 0, 'the server ends well';
    is TestTools::content($log->filename),
        "GET /ignore HTTP/2.0 200 7\nGET /size HTTP/2.0 200 100000\nGET /ignore HTTP/1.1 200 7\n",
        'each request has its line';
};

done_testing;
