# The server's own messages: levels, JSON, repetition, whom they are about; on_error;
# request_timeout; the banner.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Future::AsyncAwait;
use IO::Async::Loop;
use IO::Socket::UNIX ();
use JSON::PP         ();
use PAGI::Server;
use PAGI::Server::Log;
use Test::More;
use TestClient qw(get);
use TestHTTP2;
use TestServer;
use TestTools   qw(content patience);
use Time::HiRes qw(time);

my $app = async sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n"               if $scope->{type} ne 'http';
    die "at once on $scope->{path}\n" if $scope->{path} =~ m{\A/die};
    if ($scope->{path} eq '/later') {
        await IO::Async::Loop->new->delay_future(after => 0.01);
        die "later\n";
    }
    await IO::Async::Loop->new->delay_future(after => 5) if $scope->{path} eq '/slow';
    my @headers =
        $scope->{path} eq '/fields'
        ? ([ connection => 'keep-alive' ], [ 'transfer-encoding' => 'chunked' ])
        : ();
    await $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    await $send->({ type => 'http.response.body', body => 'well' });
};

sub lines_of {
    my ($code, %options) = @_;
    my @lines;
    local $SIG{__WARN__} = sub { push @lines, @_ };
    $code->(PAGI::Server::Log->new(%options));
    return @lines;
}

subtest 'levels and formats' => sub {
    my $all = sub { my ($log) = @_; $log->$_("a $_") for qw(error warn info debug) };
    is_deeply([ lines_of($all) ], [ "a error\n", "a warn\n", "a info\n" ],    'info is the default');
    is_deeply([ lines_of($all, level => 'warn', quiet => 1) ], ["a error\n"], 'quiet leaves errors');
    my ($line) = lines_of(sub { $_[0]->warn("tab\tand \x{e4}\n") }, format => 'json');
    my $message = JSON::PP::decode_json($line);
    is_deeply(
        [ lines_of(sub { $_[0]->warn("wide \x{263a}"); $_[0]->warn("bytes \xe4") }) ],
        [ "wide \xe2\x98\xba\n", "bytes \xe4\n" ],
        'characters are written as UTF-8'
    );
    like($message->{time}, qr/\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[-+]\d\d:\d\d\z/, 'JSON has the time');
    is_deeply(
        [ @{$message}{qw(level message pid)} ],
        [ 'warn', "tab\tand \x{e4}", $$ ],
        '... level, message and process'
    );
    like($line, qr/\A\{[ -~]+\}\n\z/, '... in one line of ASCII');
};

subtest 'the time of a message' => sub {
    my $time   = qr/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[-+]\d\d:\d\d/;
    my $file   = File::Temp->new;
    my @status = stat $file;
    my $write  = sub { PAGI::Server::Log->new->error("well,\nthen") };
    # Returns the text that is written to this file in an environment.
    my $written = sub {
        my (%environment) = @_;
        local @ENV{ keys %environment } = values %environment;
        open my $before, '>&', \*STDERR        or die $!;
        open STDERR,     '>',  $file->filename or die $!;
        $write->();
        open STDERR, '>&', $before or die $!;
        return content($file->filename);
    };
    like($written->(), qr/\A$time well,\n    then\n\z/,           'a line of text begins with the time');
    like($written->(TZ => 'Asia/Kolkata'), qr/\A\S+\+05:30 well/, '... the local one')
        if -e '/usr/share/zoneinfo/Asia/Kolkata';
    is(
        $written->(JOURNAL_STREAM => "$status[0]:$status[1]"),
        "<3>well,\n<3>    then\n",
        'systemd\'s journal adds it, and gets the priority of each line'
    );
    like($written->(JOURNAL_STREAM => "$status[0]:1"), qr/\A$time well/,
        '... where it is the standard error');
    $write = sub {
        my $log = PAGI::Server::Log->new(level => 'debug', format => 'json');
        $log->$_('so') for qw(warn info debug);
        print STDERR PAGI::Server::Log->line(text => warn => 'and so');
    };
    my @ranks = $written->(JOURNAL_STREAM => "$status[0]:$status[1]") =~ /^(<[0-9]>)(?:\{|and)/mg;
    is_deeply(\@ranks, [qw(<4> <6> <7> <4>)], '... that of JSON and of others\' warnings as well');
    my $server = TestServer->command('--no-access-log', '-e', 'sub { warn "in passing\n"; die "hard\n" }');
    get($server->port, '/');
    is($server->stop, 0, 'the command ends well');
    my @lines = split /\n/, $server->raw_log;
    cmp_ok(@lines, '>', 2, '... and has written');
    is_deeply([ grep { !/\A$time (?:PAGI|in passing)/ } @lines ],
        [], '... lines with the time, the application\'s too');
};

subtest 'bytes of a peer in a message' => sub {
    my $forged = "bad: /a\nPAGI: fake line\e[31m\r\x{7f}\tend";
    is_deeply(
        [ lines_of(sub { $_[0]->error("PAGI: $forged"); $_[0]->error("csi \x{9b}31m \x{263a}") }) ],
        [ "PAGI: bad: /a\n    PAGI: fake line\\x1b[31m\\x0d\\x7f\tend\n", "csi \\x{9b}31m \xe2\x98\xba\n" ],
        'neither looks like another message nor reaches the terminal'
    );
    my $server = TestServer->start(app => $app, access_log => undef);
    get($server->port, '/die%0aPAGI:%20fake%20line%1b%5b31m');
    ok($server->wait_for_log(qr/^    PAGI: fake line\\x1b\[31m$/m), 'neither does a path');
    unlike($server->log, qr/^PAGI: fake|\e/m, '... as it came');
    $server->stop;
};

subtest 'JSON for all that the command writes' => sub {
    my ($status, undef, $error) =
        TestServer->finish('--log-format', 'json', '-e', 'warn "by the way\n"; die "no good\n"');
    is($status, 1, 'an application that cannot be loaded');
    my @messages = map { JSON::PP::decode_json($_) } split /\n/, $error;
    is_deeply([ map { $_->{level} } @messages ], [qw(warn error)], 'its warning and its end are objects');
    is($messages[0]{message}, 'by the way', '... with their text');
    like($messages[1]{message}, qr/no good/, '... both');
    ($status, undef, $error) = TestServer->finish('--log-format', 'json', '--app', 'app.pl', '-e', 'sub { }');
    is($status, 2, 'a misuse');
    like(JSON::PP::decode_json($error)->{message}, qr/both -e and --app/, '... is one as well');
    my $server =
        TestServer->command('--log-format', 'json', '--no-access-log', '-e',
        'sub { warn "in passing" ; die }');
    get($server->port, '/');
    is($server->stop, 0, 'a server that runs ends well');
    my @levels = map { JSON::PP::decode_json($_)->{level} } split /\n/, $server->log;
    ok((grep { $_ eq 'warn' } @levels) && (grep { $_ eq 'error' } @levels),
        '... and has written nothing else');
};

subtest 'repetition' => sub {
    my @lines = lines_of(sub {
        my ($log) = @_;
        $log->error("connection $_ failed") for 1 .. 50;
        $log->error('something else');
        $log->flush;
    });
    is(scalar(grep { /failed/ } @lines),
        11, 'of fifty messages that differ in a number ten are written, and how many more');
    is($lines[-1], "(40 more like this) connection 50 failed\n", '... with the last one');
    ok((grep { /else/ } @lines), 'another one is written');
    # A clock that is set back would hold them back until it has come to that time again.
    my $now = 1000;
    no warnings 'redefine';
    local *Peregrine::Deadline::now = sub { return $now };
    @lines = lines_of(sub {
        my ($log) = @_;
        $log->error("connection $_ failed") for 1 .. 12;
        $now += PAGI::Server::Log::WINDOW;
        $log->error('connection 13 failed');
    });
    is_deeply(
        [ @lines[ 10 .. $#lines ] ],
        [ "(2 more like this) connection 12 failed\n", "connection 13 failed\n" ],
        'repetition is over after a time that no clock changes'
    );
    my @words = map { tr/0-9/a-j/r } 1 .. 1000;
    @lines = lines_of(sub { my ($log) = @_; $log->error($_) for @words; $log->flush });
    is(scalar @lines, 1000, 'many kinds of messages are no repetition');
};

subtest 'whom it is about, and on_error' => sub {
    my @heard;
    my $loop   = IO::Async::Loop->new;
    my $server = PAGI::Server->new(
        app        => $app,
        port       => 0,
        access_log => undef,
        log_level  => 'error',
        on_error   => sub { push @heard, [@_] },
    );
    $loop->add($server);
    my @lines;
    local $SIG{__WARN__} = sub { push @lines, @_ };
    $server->listen->get;
    for my $path ('/die', '/later') {
        my $client = TestClient->new($server->port)->send("GET $path HTTP/1.1\r\nHost: h\r\n\r\n");
        my $end    = time + patience(30);
        my $before = @heard;
        $loop->loop_once(0.1) while @heard == $before && time < $end;
    }
    is_deeply([ map { $_->[0] } @heard ], [ "at once on /die\n", "later\n" ], 'on_error gets the exception');
    is_deeply(
        [ map { "$_->[1]{type} $_->[1]{path}" } @heard ],
        [ 'http /die', 'http /later' ],
        '... and the scope'
    );
    like(
        $lines[0],
        qr{\APAGI: request 1-1 \(127\.0\.0\.1:\d+\) GET /die: the application died before its response had started: at once on},
        'the line names request and peer'
    );
    like(
        $lines[1],
        qr{\APAGI: request 2-1 \(127\.0\.0\.1:\d+\) GET /later: .*: later},
        '... also of one that died later'
    );
    $server->configure(on_error => undef);
    my $count  = @lines;
    my $client = TestClient->new($server->port)->send("GET /die HTTP/1.1\r\nHost: h\r\n\r\n");
    my $end    = time + 10;
    $loop->loop_once(0.1) while @lines == $count && time < $end;
    is(@lines - $count, 1, 'without on_error an exception is logged');
    is(scalar @heard,   2, '... and that is all');
    $server->shutdown->get;
    $loop->remove($server);
};

subtest 'request_timeout' => sub {
    my $server = TestServer->start(app => $app, request_timeout => 0.2);
    my $client = TestClient->new($server->port)->send("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n");
    is($client->rest, '', 'a request on which nothing moves ends without an answer');
    ok(
        $server->wait_for_log(
            qr{request 1-1 \(127\.0\.0\.1:\d+\) GET /slow: Request stall timeout \(200 ms\) - closing connection}
        ),
        '... and is logged'
    );
    is(get($server->port, '/')->{body}, 'well', 'others are served');
    is($server->stop,                   0,      'the server ends well');
};

# RFC 9110 wants refusals to be of use to their clients; these lines are for who set the limits.
subtest 'refused requests are logged, with the option that would have to change' => sub {
    my $server = TestServer->start(
        app => sub {
            my ($scope, $receive, $send) = @_;
            return $send->({ type => 'websocket.accept' })->then(sub { $receive->() })
                ->then(sub { $receive->() })
                if $scope->{type} eq 'websocket';
            die "no $scope->{type}\n" if $scope->{type} ne 'http';
            return $receive->()->then(sub { $send->({ type => 'http.response.start', status => 200 }) })
                ->then(sub { $send->({ type => 'http.response.body', body => 'x' }) });
        },
        access_log            => undef,
        http2                 => 1,
        max_body_size         => 1000,
        max_header_size       => 2000,
        max_header_count      => 20,
        max_request_line_size => 500,
        max_ws_frame_size     => 100,
        header_timeout        => 1,
        body_timeout          => 1,
    );
    my $head    = "Host: h\r\n";
    my $upgrade = "GET / HTTP/1.1\r\n${head}Upgrade: websocket\r\nConnection: Upgrade\r\n"
        . "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    my @cases = (
        [ 413,  'max_body_size',         "POST / HTTP/1.1\r\n${head}Content-Length: 1001\r\n\r\n" ],
        [ 431,  'max_header_size',       "GET / HTTP/1.1\r\n${head}X: " . 'x' x 3000 . "\r\n\r\n" ],
        [ 431,  'max_header_count',      "GET / HTTP/1.1\r\n$head" . "X: y\r\n" x 20 . "\r\n" ],
        [ 414,  'max_request_line_size', 'GET /' . 'x' x 600 . " HTTP/1.1\r\n$head\r\n" ],
        [ 408,  'header_timeout',        "GET / HTTP/1.1\r\n$head" ],
        [ 408,  'body_timeout',          "POST / HTTP/1.1\r\n${head}Content-Length: 10\r\n\r\n" ],
        [ 1009, 'max_ws_frame_size',     "$upgrade\x82\xfe\x01\x00\x00\x00\x00\x00" . 'x' x 256 ],
    );
    my @clients = map { TestClient->new($server->port)->send($_->[2]) } @cases;
    for my $case (@cases) {
        my ($status, $option) = @$case;
        ok(
            $server->wait_for_log(
                qr/^PAGI: Refused with $status \(connection \d+, 127[.]0[.]0[.]1\): .*, see $option$/m),
            "$status: $option"
        );
    }
    my $h2 = TestHTTP2->new($server->port);
    $h2->send_frame(TestHTTP2::DATA, 0, 1, '', length => 100_000);
    ok($server->wait_for_log(qr/its peer broke the protocol: frame too long, see h2_max_frame_size$/m),
        'a frame of HTTP/2');
    TestClient->new($server->port)->send($cases[0][2])->response for 1 .. 10;
    $server->stop;
    my @told = $server->log =~ /see max_body_size(?:; (\d+) more since the last report)?$/mg;
    cmp_ok(scalar @told, '<', 8, 'a line a second at most');
    like(
        $server->log,
        qr/(?:see max_body_size; \d+ more|\d+ more requests or messages were refused)/,
        '... and the others are counted'
    );
};

subtest 'the banner' => sub {
    my $server =
        TestServer->start(app => $app, access_log => undef, max_connections => 77, loop_type => 'Poll');
    my ($details) = $server->log =~ m{PAGI Server listening on http://127\.0\.0\.1:\d+/ \((.*)\)$}m;
    ok($details, 'is there');
    like($details, qr/\bmax_conn: 77\b/, '... with the limit');
    my $engine = $ENV{PEREGRINE_ENGINE} || 'inline';
    like($details, qr/\bloop: \w+, engine: $engine,/, '... the loop, and where the engine is');
    like(
        $details,
        qr/\bhttp2: off, tls: \w+, ktls: [\w ]+, future_xs: \w+, sendfile: \w+, access_log: off, PAGI::Server /,
        '... and what is on'
    );
    like(
        $details,
        qr/, PAGI::Server [\d.]+, Peregrine [\d.]+, (?:OpenSSL [\d.]+|no OpenSSL), Perl 5\.\d+/,
        '... and versions'
    );
    is($server->stop, 0, 'the server ends well');
};

subtest 'fields that are not sent, and a client without an address' => sub {
    my $directory = File::Temp->newdir;
    my $server    = TestServer->start(app => $app, socket => "$directory/s", quiet => 0);
    my $request   = "GET /fields HTTP/1.1\r\nHost: h\r\n";
    my $client    = IO::Socket::UNIX->new(Peer => "$directory/s") or die "$directory/s: $!";
    print {$client} "$request\r\n${request}Connection: close\r\n\r\n";
    my $answers = do { local $/; <$client> };
    is(scalar(() = $answers =~ m{HTTP/1\.1 200 }g), 2, 'two answers');
    unlike(
        $answers,
        qr/^(?:connection: keep-alive|transfer-encoding: chunked)\r$/m,
        '... without what the server decides on'
    ) or diag $answers;
    is($server->stop, 0, 'the server ends well');
    my @lines = grep { /are left out/ } split /\n/, $server->log;
    is(scalar @lines, 1, 'one line is enough for a minute');
    like(
        $lines[0],
        qr{request \d+-1 \(unix\) GET /fields: .*Connection, Transfer-Encoding.*: they are left out\z},
        '... and says whose it was'
    );
};

done_testing;
