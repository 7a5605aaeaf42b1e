# The access log: who gets a line, what it says in each format, where it goes, and that it never
# holds the server up.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use Fcntl      qw(O_NONBLOCK O_RDONLY);
use File::Temp ();
use Future::AsyncAwait;
use IO::Async::Loop;
use List::Util qw(sum0);
use PAGI::Server;
use POSIX ();
use Test::More;
use TestClient qw(exchange get post);
use TestServer;
use TestTools qw(content patience wait_for);

my $directory = File::Temp->newdir;

my $app = async sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} ne 'http';
    my $path = $scope->{path};
    die "on purpose\n"                                      if $path eq '/die';
    await IO::Async::Loop->new->delay_future(after => 0.05) if $path eq '/later';
    await $send->({ type => 'http.response.start', status => $path eq '/missing' ? 404 : 200 });
    if ($path eq '/pieces') {
        await $send->({ type => 'http.response.body', body => 'x' x 10, more => 1 });
        await IO::Async::Loop->new->delay_future(after => 0.05);
    }
    if ($path eq '/left') {
        await $send->({ type => 'http.response.body', body => 'x' x 10, more => 1 });
        1 while (await $receive->())->{type} ne 'http.disconnect';
    }
    return await $send->({ type => 'http.response.body', file => $0 }) if $path eq '/file';
    await $send->({ type => 'http.response.body', body => $path eq '/missing' ? '' : 'hello' });
};

# The log of a server that answered what the code asks of it, complete.
sub log_of {
    my ($format, $ask, %options) = @_;
    my $path   = "$directory/access.log";
    my $server = TestServer->start(app => $app, access_log => $path, access_log_format => $format, %options);
    $ask->($server->port);
    is($server->stop, 0, 'the server ends well') or diag $server->log;
    my $text = content($path);
    unlink $path or diag "$path: $!";
    return $text;
}

my $time = qr{\[\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d [-+]\d{4}\]};

subtest 'presets' => sub {
    my $parent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    my @agent  = (
        'User-Agent: test/1 "quoted"',
        'Referer: http://a.example/',
        'X-Request-ID: from-a-proxy',
        "Traceparent: $parent"
    );
    my $ask     = sub { get($_[0], '/path?query=1', @agent) };
    my $request = qr{"GET /path\?query=1 HTTP/1\.1"};
    my $agent   = qr{"http://a\.example/" "test/1 \\x22quoted\\x22"};
    like(log_of('clf',      $ask), qr/\A127\.0\.0\.1 - - $time $request 200 5\n\z/,        'clf');
    like(log_of('common',   $ask), qr/\A127\.0\.0\.1 - - $time $request 200 5\n\z/,        'common');
    like(log_of('combined', $ask), qr/\A127\.0\.0\.1 - - $time $request 200 5 $agent\n\z/, 'combined');
    like(log_of('tiny',     $ask), qr/\AGET \/path\?query=1 200 \d+\.\d{3}ms\n\z/,         'tiny');
    my $json = log_of('json', $ask);
    require JSON::PP;
    my $line = JSON::PP::decode_json($json);
    is_deeply(
        [ @{$line}{qw(client method path query protocol status bytes referer user_agent id)} ],
        [
            '127.0.0.1',       'GET', '/path', '?query=1', 'HTTP/1.1', 200, 5, 'http://a.example/',
            'test/1 "quoted"', '1-1'
        ],
        'json'
    );
    is_deeply(
        [ @{$line}{qw(request_id traceparent)} ],
        [ 'from-a-proxy', $parent ],
        '... with what proxies call it'
    );
    like($line->{time}, qr/\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[-+]\d\d:\d\d\z/, '... with the time of RFC 3339');
    cmp_ok($line->{duration_us}, '>=', 0, '... and a duration');
    like($line->{queue_us}, qr{\A\d+\z}, '... a part of which it waited');
};

subtest 'atoms' => sub {
    my $format = '%h|%l|%u|%m|%U|%q|%H|%s|%b|%B|%X|%L|%{X-Own}i|%{X-None}i|%%|%P';
    my $text   = log_of($format, sub { get($_[0], '/a%20b?', 'X-Own: mine') });
    like($text, qr{\A127\.0\.0\.1\|-\|-\|GET\|/a%20b\|\?\|HTTP/1\.1\|200\|5\|5\|\+\|1-1\|mine\|-\|%\|\d+\n\z},
        'all of them');
    $text = log_of('%d %D %T %{ms}T %{us}T %{s}T', sub { get($_[0], '/pieces') });
    my @durations = split ' ', $text;
    cmp_ok($durations[0], '>=', 0.04,   '%d is in seconds');
    cmp_ok($durations[1], '>=', 40_000, '%D in microseconds');
    is($durations[2], int $durations[0], '%T in whole seconds');
    cmp_ok($durations[3], '>=', 40, '%{ms}T in milliseconds');
    is($durations[4], $durations[1], '%{us}T is %D');
    is($durations[5], $durations[2], '%{s}T is %T');
    $text = log_of('%^FB %{us}^FB %{ms}^FB %{s}^FB %D', sub { get($_[0], $_) for '/later', '/pieces' });
    my ($later, $pieces) = map { [ split ' ' ] } split /\n/, $text;
    cmp_ok($later->[0], '>=', 40_000, '%^FB is the time until the answer began');
    is($later->[1], $later->[0], '%{us}^FB is the same');
    cmp_ok($later->[2], '>=', 40, '%{ms}^FB in milliseconds');
    is($later->[3], int($later->[0] / 1_000_000), '%{s}^FB in whole seconds');
    cmp_ok($pieces->[4] - $pieces->[0], '>=', 40_000, '... not until it ended');
    local $ENV{TZ} = 'Asia/Kolkata';
    like(log_of('%t', sub { get($_[0], '/') }), qr/\A\[.* \+0530\]\n\z/, '%t is local time')
        if -e '/usr/share/zoneinfo/Asia/Kolkata';
};

subtest 'every answered request has a line' => sub {
    my $text = log_of(
        '%m %U %s %B %X',
        sub {
            my ($port) = @_;
            get($port, '/missing');
            get($port, '/die');
            get($port, '/pieces');
            get($port, '/file');
            # The answer can come while the application is still at work: so the client stays.
            my $client = TestClient->new($port);
            $client->send("HEAD /head HTTP/1.1\r\nHost: h\r\n\r\n")->response(head => 1);
            $client->send("GET /$_ HTTP/1.1\r\nHost: h\r\n\r\n") for 1 .. 3;
            $client->response for 1 .. 3;
            exchange($port, "BAD\x01LINE\r\n\r\n");
            exchange($port, "GET /\e[31m HTTP/1.1\r\nHost: h\r\n\r\n");
            post($port, '/large', 'x' x 200);
        },
        max_body_size => 100,
    );
    my $size = -s $0;
    is($text, <<"LOG", 'answered by the application, or for it');
GET /missing 404 0 +
GET /die 500 22 -
GET /pieces 200 15 +
GET /file 200 $size +
HEAD /head 200 0 +
GET /1 200 5 +
GET /2 200 5 +
GET /3 200 5 +
- - 400 23 -
- - 400 23 -
POST /large 413 18 -
LOG
SKIP: {
        skip 'built without TLS', 2 if !PAGI::Server->has_tls;
        my $files = Certificates->new->authority('ca')->issue('server', subject => '/CN=localhost');
        $text = log_of('%U %s', sub { get($_[0], '/plain') }, ssl => { $files->pair('server') });
        is($text, "/plain 400\n", 'plain HTTP at a TLS port');
    }
    $text = log_of('"%r" %s', sub { exchange($_[0], "GET /\e[31m\"x HTTP/1.1\r\n\r\n") });
    is(
        $text,
        qq{"GET /\\x1b[31m\\x22x HTTP/1.1" 400\n},
        'a request line that was refused is shown, and harmless'
    );
    $text = log_of('%m %U %H %s', sub { exchange($_[0], "delete /x HTTP/1.1\r\nHost: h\r\n\r\n") });
    is($text, "delete /x HTTP/1.1 501\n", 'so is a method that nobody serves');
    my $asked = join "\r\n", 'GET http://target.example HTTP/1.1', 'Host: other.example', '', '';
    $text = log_of('%{Host}i %U%q %s', sub { exchange($_[0], $asked) });
    is($text, "target.example / 200\n", 'the host is that of an absolute-form target');
};

subtest 'a client that leaves' => sub {
    my $text = log_of(
        '%U %s %X',
        sub {
            my $client = TestClient->new($_[0])->send("GET /left HTTP/1.1\r\nHost: h\r\n\r\n");
            $client->some(5);
            $client->reset;
        }
    );
    is($text, "/left 200 X\n", 'its response is cut short');
};

subtest 'the place of the log' => sub {
    my $loop   = IO::Async::Loop->new;
    my $memory = '';
    open my $handle, '>', \$memory or die $!;
    my $server = PAGI::Server->new(
        app               => $app,
        port              => 0,
        quiet             => 1,
        access_log        => $handle,
        access_log_format => '%U'
    );
    $loop->add($server);
    $server->listen->get;
    my $client = TestClient->new($server->port)->send("GET /memory HTTP/1.1\r\nHost: h\r\n\r\n");
    my $end    = time + patience(30);
    $loop->loop_once(0.1) while !length $memory && time < $end;
    is($memory, "/memory\n", 'a handle without a descriptor gets whole lines');
    $server->shutdown->get;
    $loop->remove($server);

    my $file = TestServer->start(app => $app, access_log_format => 'line %U');
    get($file->port, '/stderr');
    ok($file->wait_for_log(qr{^line /stderr$}m),
        'without a word it goes to standard error, within a second, while the server runs');
    is($file->stop, 0, '... and the server ends well');
    my $none = TestServer->start(app => $app, access_log => undef, access_log_format => 'line %U');
    get($none->port, '/none');
    is($none->stop, 0, 'undef is taken');
    unlike($none->log, qr/^line /m, '... and means none');

    my $wrong = PAGI::Server->new(app => $app, port => 0, quiet => 1, access_log => "$directory/no/such/log");
    $loop->add($wrong);
    like(
        scalar $wrong->listen->failure,
        qr{option 'access_log': cannot write to '\Q$directory\E/no/such/log': No such file},
        'a file that cannot be opened is named'
    );
    $loop->remove($wrong);
};

subtest 'rotation' => sub {
    my $path   = "$directory/rotated.log";
    my $server = TestServer->start(app => $app, access_log => $path, access_log_format => '%U');
    get($server->port, '/before');
    ok(wait_for(sub { content($path) eq "/before\n" }), 'a line is in the file while the server runs');
    rename $path, "$path.1" or die $!;
    $server->signal('USR1');
    ok(wait_for(sub { -e $path }), 'after USR1 there is a new file');
    get($server->port, '/after');
    is($server->stop,      0,           'the server ends well');
    is(content("$path.1"), "/before\n", 'the old file has what came before');
    is(content($path),     "/after\n",  '... the new one what came after');
};

subtest 'a disk that is full' => sub {
    my $server = TestServer->start(app => $app, access_log => '/dev/full', access_log_format => '%U');
    get($server->port, '/') for 1 .. 3;
    is($server->stop, 0, 'the server ends well');
    my $why     = qr{Access log '/dev/full': it cannot be written \(no space left on device\);};
    my @dropped = $server->log =~ /$why (\d+) lines were dropped$/mg;
    is(sum0(@dropped), 3, '... and says how many lines were lost, where and why') or diag $server->log;
};

subtest 'a log that nobody reads' => sub {
    my $path = "$directory/fifo";
    POSIX::mkfifo($path, oct 600) or die "mkfifo: $!";
    sysopen my $reader, $path, O_RDONLY | O_NONBLOCK or die "$path: $!";
    my $server = TestServer->start(
        app               => $app,
        access_log        => $path,
        access_log_format => '%U ' . 'x' x 2000,
        access_log_buffer => 4096
    );
    my $client = TestClient->new($server->port);
    my $count  = 0;
    for (1 .. 100) {
        $client->send("GET /$_ HTTP/1.1\r\nHost: h\r\n\r\n");
        $count++ if $client->response->{status} == 200;
    }
    is($count, 100, 'costs no answer');
    ok($server->wait_for_log(qr/Access log '\Q$path\E': \d+ lines were dropped/),
        '... but lines, which are counted');
    is($server->stop, 0, 'the server ends well');
};

subtest 'an application that sets how Perl prints' => sub {
    local ($\, $,) = ("end\n", 'comma');
    open my $out, '>', \my $lines or die $!;
    PAGI::Server::AccessLog::take($out, "line\n");
    is $lines, "line\n", 'changes no line of a handle';
};

done_testing;
