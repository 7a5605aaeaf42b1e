# The other examples: a streamed response, an echoed body, state that lifespan startup made, static files.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient qw(get exchange post);
use TestServer;
use TestStream;
use TestTools   qw(content wait_for);
use TestWorkers qw(is_gone);
use TestWebSocket;

subtest 'streaming' => sub {
    my $server = TestServer->command('examples/pagi/streaming/app.pl');
    my ($first, $response);
    for (1 .. 10) {
        my $client = TestClient->new($server->port)->send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        $first    = $client->{buffer} = $client->some(5);
        $response = $client->response;
        last if $first !~ /done/;    # on a machine that is busy everything may be there when we look
    }
    like($first, qr/line 1/, 'the first line is there early');
    unlike($first, qr/done/, '... before the last one');
    is($response->{body}, join('', map { "line $_\n" } 1 .. 5) . "done\n", 'the whole response arrives');
    is($server->stop,     0,                                               'the server ends well');
};

subtest 'echo' => sub {
    my $server = TestServer->command('examples/pagi/echo/app.pl');
    my $body   = join '', map { chr int rand 256 } 1 .. 300_000;
    my $head   = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: image/x\r\n";
    my $client = TestClient->new($server->port);
    $client->send($head . 'Content-Length: ' . length($body) . "\r\n\r\n$body");
    my $response = $client->response;
    ok($response->{body} eq $body, '300,000 bytes come back');
    is($response->{header}{'content-type'}, 'image/x', '... with their type');
    $client->send($head . "Transfer-Encoding: chunked\r\n\r\n");

    for my $piece (map { substr $body, $_ * 1000, 1000 } 0 .. 9) {
        $client->send(sprintf "%x\r\n%s\r\n", length $piece, $piece);
    }
    $client->send("0\r\n\r\n");
    ok($client->response->{body} eq substr($body, 0, 10_000), 'a chunked body comes back');
    $client->send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    is($client->response->{body}, '', 'and so does an empty one');
    is($server->stop,             0,  'the server ends well');
    unlike($server->log, qr/application died/, 'nothing died');
};

subtest 'lifespan' => sub {
    my $server = TestServer->command('examples/pagi/lifespan/app.pl');
    like($server->log,                    qr/application: started/,    'startup ran');
    like(get($server->port, '/')->{body}, qr/\Arequest 1 since \d+\n/, 'its state is in a request');
    like(
        get($server->port, '/')->{body},
        qr/\Arequest 2 since \d+\n/,
        '... and shared where it is a reference'
    );
    is($server->stop, 0, 'the server ends well');
    like($server->log, qr/application: stopped after 2 requests/, 'shutdown ran');
};

subtest 'websocket-echo' => sub {
    my $server    = TestServer->command('examples/pagi/websocket-echo/app.pl');
    my $websocket = TestWebSocket->open($server->port, '/');
    is($websocket->text("h\xc3\xa9llo")->next, "text h\xc3\xa9llo", 'text comes back as text');
    is($websocket->binary("\xff\0")->next,     "binary \xff\0",     'bytes as bytes');
    is($websocket->close_frame(1000)->next,    'close 1000',        'the close is answered');
    is(get($server->port, '/')->{status},      500,                 'an http request is declined');
    is($server->stop,                          0,                   'the server ends well');
};

subtest 'restart' => sub {
    plan skip_all => 'Linux only' if $^O ne 'linux';
    for my $engine (only_in_full('inline'), 'process') {
        my @command = ('--channels', '--workers', 1, '--engine', $engine, 'examples/pagi/restart/app.pl');
        my $server  = TestServer->command(@command);
        my $port    = $server->port;
        my $page    = get($port, '/')->{body};
        my ($since) = $page =~ /since=([0-9a-f.]+)/;
        like($page, qr/Number\('\Q$since\E'/, 'the page counts from there');
        my $stream = TestStream->open($port, "/?since=$since");
        is(post($port, $_, '')->{status}, 200, "$engine: POST $_") for '/', '/restart';
        my $first = $stream->message;
        my ($pid) = $first->{data} =~ /\A(\d+) is here\z/;
        my $end   = $stream->message;
        is($end->{data}, "$pid ends", 'the stream tells of the end of its process');
        ok(wait_for(sub { is_gone($pid) }), 'which ends');
        my $serves = sub {
            # Expected: the next one does not listen yet.
            my $answer = eval { post($port, '/', '') } or return 0;
            return ($answer->{status} // 0) == 200;
        };
        ok(wait_for($serves), 'another one serves');
        $stream = TestStream->open($port, '/', fields => ["Last-Event-ID: $end->{id}"])
            if $engine eq 'inline';
        my $next = $stream->message->{data};
        like($next, qr/\A\d+ is here\z/, 'a stream goes on behind it');
        isnt($next, "$pid is here", 'with what another process says');
        is($server->stop, 0, 'the server ends well');
    }
    my $alone = TestServer->command('--channels', 'examples/pagi/restart/app.pl');
    is(post($alone->port, '/restart', '')->{status}, 409, 'a server without workers is not ended');
    is($alone->stop,                                 0,   'but ends well');
};

subtest 'static files' => sub {
    my $folder = 'examples/pagi/static';
    my $story  = content("$folder/site/story.txt");
    my $server = TestServer->command('--chdir', $folder, '--config', "$folder/server.conf", 'app.pl');
    my $port   = $server->port;
    is(get($port, '/')->{header}{location}, '/site/', 'the root leads to the site');
    like(get($port, '/site/')->{body}, qr/<title>The falcon/, 'which has an index');
    my $site = get($port, '/site/story.txt');
    is($site->{body},                    $story,               'a file of the engine');
    is($site->{header}{'cache-control'}, 'public, max-age=60', '... with what server.conf says');
    my $file = get($port, '/files/story.txt');
    is($file->{body},                    $story, 'the same of the application');
    is($file->{header}{'cache-control'}, undef,  '... which does not say that');
    like(get($port, '/files/stars/')->{body}, qr/>lyra\.txt</, '... but lists a directory');
    is(get($port, '/report')->{status}, 403, 'a report, but not for everybody');
    my $report = get($port, '/report?key=sesame');
    is($report->{body},                 content("$folder/private/report.txt"), '... but for who has the key');
    is($report->{header}{'x-sendfile'}, undef,                                 '... and its path for nobody');
    is(get($port, $_)->{status},        404,                                   "nothing at $_")
        for qw(/private/report.txt /files/..%2fapp.pl /site/..%2fapp.pl /none);
    is($server->stop, 0, 'the server ends well');

    my $psgi = TestServer->spawn(
        $^X,
        (map { "-I$_" } @INC),
        qw(bin/peregrine --port 0 examples/psgi/static/app.psgi)
    );
    $psgi->{port} = $psgi->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/}) or die $psgi->log;
    is(get($psgi->port, '/story.txt')->{body}, $story, 'the same for PSGI');
    like(get($psgi->port, '/')->{body}, qr/<title>The falcon/, '... index');
    is($psgi->stop, 0, '... ends well');
};

done_testing;
