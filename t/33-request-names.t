# Errors in a request are told with the request's name: in lines of text, in JSON and to on_error. Clients and
# applications cannot break the lines with names that they choose.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Future::AsyncAwait;
use IO::Async::Loop;
use JSON::PP ();
use PAGI::Server::RequestName;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(content);
use TestWebSocket;

my $file = File::Temp->new;
print {$file} 'x' x 5_000_000;
close $file;

my $app = async sub {
    my ($scope, $receive, $send) = @_;
    my $path = $scope->{path};
    die "no lifespan\n" if $scope->{type} eq 'lifespan';
    if ($scope->{type} eq 'websocket') {
        await $receive->();
        await $send->({ type => 'websocket.accept' });
        die "as a WebSocket\n";
    }
    die "as a stream\n" if $scope->{type} eq 'sse';
    die "at once\n"     if $path eq '/die';
    return              if $path eq '/nothing';
    if ($path eq '/later') {
        await IO::Async::Loop->new->delay_future(after => 0.01);
        die "later\n";
    }
    if ($path eq '/spoiled') {
        %$scope = (
            client       => [ [], undef ],
            method       => {},
            raw_path     => \1,
            query_string => "\n\x{263a}",
            headers      => [ 1, [2], [ 3, [] ] ]
        );
        die "spoiled\n";
    }
    $scope->{'pagi.connection'}->on_complete(sub { die "a callback\n" }) if $path eq '/callback';
    if ($path eq '/future') {
        my $disconnected = $receive->()->then($receive);    # the request, then its end
        $disconnected->on_done(sub { die "a Future's callback\n" });
        $disconnected->retain;
    }
    my @more = $path eq '/fields' ? ([ connection => 'keep-alive' ]) : ();
    await $send->({ type => 'http.response.start', status => 200, headers => \@more });
    return await $send->({ type => 'http.response.body', body => 'well' }) if $path ne '/file';
    my $sent = $send->({ type => 'http.response.body', file => $file->filename });
    await $sent if $scope->{query_string} eq 'whole';
    truncate $file->filename, 10 if $scope->{query_string} ne 'whole';
    await $sent;
};

sub heard {
    my ($exception, $scope, $request) = @_;
    print STDERR 'heard ', JSON::PP->new->canonical->encode([ $exception, $scope->{type}, $request ]), "\n";
    return;
}

sub request {
    my ($server, $target, @lines) = @_;
    my $client = TestClient->new($server->port);
    $client->send(join "\r\n", "GET $target HTTP/1.1", 'Host: h', @lines, 'Connection: close', '', '')->rest;
    return;
}

subtest 'lines of text' => sub {
    my $server = TestServer->start(app => $app, access_log => undef, on_error => \&heard);
    my $peer   = qr/127\.0\.0\.1:\d+/;
    my %lines  = (
        '/die' => qr{^PAGI: request \d+-1 \($peer\) GET /die: the application died before .*: at once$}m,
        '/die?a=b%20' => qr{^PAGI: request \d+-1 \($peer\) GET /die\?a=b%20: the application died}m,
        '/later'    => qr{^PAGI: request \d+-1 \($peer\) GET /later: the application died before .*: later$}m,
        '/nothing'  => qr{^PAGI: request \d+-1 \($peer\) GET /nothing: the application ended without}m,
        '/callback' => qr{^PAGI: request \d+-1 \($peer\) GET /callback: a callback died: a callback$}m,
        '/future'   => qr{^PAGI: request \d+-1 \($peer\) GET /future: a callback died: a Future's callback$}m,
        '/fields'   => qr{^PAGI: request \d+-1 \(127\.0\.0\.1\) GET /fields: The response has fields}m,
        '/file'     => qr{^PAGI: request \d+-1 \($peer\) GET /file: The file of a response ended before}m,
    );
    request($server, '/file?whole');    # from now on it is opened at once
    for my $target (sort keys %lines) {
        request($server, $target);
        ok($server->wait_for_log($lines{$target}), $target);
    }
    like(
        $server->log,
        qr/^heard \["at once\\n","http",\{"client":"$peer","id":"\d+-1","method":"GET","target":"\/die"\}\]$/m,
        'on_error'
    );

    request($server, '/die?' . 'x' x 1000);
    ok($server->wait_for_log(qr{GET /die\?x{195}\.\.\.: the application}), 'a long target is cut');
    request($server, '/die?bytes', "X-Request-ID: \xfe 1\"");
    ok($server->wait_for_log(qr{\($peer, id \\xfe\\x201"\) GET /die\?bytes: }), 'bytes are escaped');
    my $trace = '0af7651916cd43dd8448eb211c80319c';
    request($server, '/later?trace', "Traceparent: 00-$trace-b7ad6b7169203331-01");
    ok($server->wait_for_log(qr{\($peer, id $trace\) GET /later\?trace: }), 'a trace has its id');
    request($server, '/spoiled');
    like(
        $server->log,
        qr{request \d+-1 \(:\) GET \?\\x0a\\xe2\\x98\\xba: the application died.*: spoiled},
        'a scope that the application has spoiled'
    );

    my $socket = TestWebSocket->open($server->port, '/socket');
    ok(
        $server->wait_for_log(
            qr{\($peer\) GET /socket: the application died with its WebSocket open: as a WebSocket}),
        'a WebSocket'
    );
    request($server, '/stream', 'Accept: text/event-stream');
    ok($server->wait_for_log(qr{\($peer\) GET /stream: the application died .*: as a stream}),
        'an event stream');

    my $client = TestClient->new($server->port);
    $client->send(
        "POST /fine HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\nDELETE /die/2 HTTP/1.1\r\nHost: h\r\n\r\n"
    );
    $client->send("GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n") for 1;
    ok($server->wait_for_log(qr{request (\d+)-3 \($peer\) GET /nothing: }),
        'the third request of a connection');
    is($server->stop, 0, 'the server ends well');
};

subtest 'JSON, and the number of lines' => sub {
    my $server = TestServer->start(app => $app, access_log => undef, log_format => 'json');
    request($server, "/die?number=$_", 'X-Request-ID: from-a-proxy') for 1 .. 15;
    is($server->stop, 0, 'the server ends well');
    my @lines = map { JSON::PP::decode_json($_) } grep { /the application died/ } split /\n/, $server->log;
    is(scalar @lines, 11, 'requests of all targets are one kind of message');
    my %first = %{ $lines[0] };
    is_deeply(
        { %first{qw(id method target request_id level)} },
        {
            id         => '1-1',
            method     => 'GET',
            target     => '/die?number=1',
            request_id => 'from-a-proxy',
            level      => 'error'
        },
        'keys of their own'
    );
    like($first{client}, qr/\A127\.0\.0\.1:\d+\z/, '... the peer, too');
    like(
        $first{message},
        qr{\APAGI: request 1-1 \(\S+, id from-a-proxy\) GET /die\?number=1: the application},
        '... and the message'
    );
    like(
        $lines[-1]{message},
        qr/\A\(5 more like this\) PAGI: request 15-1 /,
        'the last one stands for the others'
    );
    is($lines[-1]{target}, '/die?number=15', '... with its keys');
};

package Evil {
    sub TIESCALAR { return bless [] }
    sub FETCH     { die "not this way\n" }
}

subtest 'names' => sub {
    my $text = sub { PAGI::Server::RequestName::text(PAGI::Server::RequestName::of(@_)) };
    is($text->(), '', 'nothing about no request');
    is($text->(undef,                                7, 2), 'request 7-2', 'a request whose scope is gone');
    is($text->({ method => 'GET', raw_path => '/' }, 7, 2), 'request 7-2 (unix) GET /', 'a Unix socket');
    my $trace  = '0af7651916cd43dd8448eb211c80319c';
    my $traced = sub {
        my ($traceparent, @more) = @_;
        return PAGI::Server::RequestName::of({ headers => [ [ traceparent => $traceparent ], @more ] }, 1, 1);
    };
    is($traced->("00-$trace-b7ad6b7169203331-01")->{trace_id},      $trace, 'a trace');
    is($traced->("01-$trace-b7ad6b7169203331-01-more")->{trace_id}, $trace, '... of a later version');
    is($traced->("$_")->{trace_id},                                 undef,  "... but not $_")
        for "00-$trace-b7ad6b7169203331-01-more", "ff-$trace-b7ad6b7169203331-01",
        '00-' . '0' x 32 . '-b7ad6b7169203331-01',
        "00-$trace-0000000000000000-01", "00-\U$trace\E-b7ad6b7169203331-01", "00-$trace-b7ad6b7169203331",
        'x';
    is(
        PAGI::Server::RequestName::text(
            $traced->("00-$trace-b7ad6b7169203331-01", [ 'x-request-id', 'mine' ])
        ),
        "request 1-1 (unix, id mine, trace $trace) GET ",
        'beside an id'
    );
    is(
        $text->({ raw_path => '/', client => [ '::1', 80 ] }, 1, 1),
        'request 1-1 (::1:80) GET /',
        'a scope without a method'
    );
};

subtest 'an application of PSGI' => sub {
    my $trace = '0af7651916cd43dd8448eb211c80319c';
    my $about = sub {
        my (%env) = @_;
        my %of = (
            REQUEST_METHOD => 'PUT',
            REQUEST_URI    => '/x?y=1',
            REMOTE_ADDR    => '::1',
            REMOTE_PORT    => 80,
            %env
        );
        return PAGI::Server::RequestName::text(PAGI::Server::RequestName::of(\%of, 17, 3));
    };
    is($about->(),                            'request 17-3 (::1:80) PUT /x?y=1',          'its request');
    is($about->(HTTP_X_REQUEST_ID => 'mine'), 'request 17-3 (::1:80, id mine) PUT /x?y=1', '... with an id');
    is(
        $about->(HTTP_TRACEPARENT => "00-$trace-b7ad6b7169203331-01"),
        "request 17-3 (::1:80, id $trace) PUT /x?y=1",
        '... with that of a trace'
    );
    is($about->(REMOTE_ADDR    => undef), 'request 17-3 (unix) PUT /x?y=1', '... on a Unix socket');
    is($about->(REQUEST_METHOD => [], REQUEST_URI => undef), 'request 17-3 (::1:80)  ', '... spoiled');
    tie my %tied, 'Tie::OfNames';
    is(PAGI::Server::RequestName::text(PAGI::Server::RequestName::of(\%tied, 17, 3)),
        'request 17-3', '... tied');
    my $psgi = sub {
        my ($env) = @_;
        die "on purpose\n" if $env->{PATH_INFO} eq '/die';
        return [ 200, [], ["\x{263a}"] ];
    };
    for my $engine (qw(inline thread)) {
        my $server = TestServer->start(app => $psgi, psgi => 1, engine => $engine);
        get($server->port, '/die?x', 'X-Request-ID: mine');
        like(
            $server->log,
            qr{request \d+-1 \(127\.0\.0\.1:\d+, id mine\) GET /die\?x: .*on purpose},
            "$engine: one that dies"
        );
        get($server->port, '/wide');
        like(
            $server->log,
            qr{request \d+-1 \(127\.0\.0\.1:\d+\) GET /wide: .*cannot be sent},
            '... and one whose response cannot be sent'
        );
        is($server->stop, 0, '... and the server stops');
    }
};

sub Tie::OfNames::TIEHASH { return bless {}, shift }

done_testing;
