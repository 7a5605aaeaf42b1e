# The health path: answered by the engine, however many connections there are; with the engine on a thread of
# its own also while the application is busy.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Future::AsyncAwait;
use IO::Async::Loop;
use Test::More;
use Time::HiRes qw(sleep time);

use Certificates;
use PAGI::Server;
use TestClient qw(exchange get post);
use TestGate;
use TestServer;

my $gate  = TestGate->new;
my $times = 0;

async sub app {
    my ($scope, $receive, $send) = @_;
    die "unsupported\n" if $scope->{type} ne 'http';
    my ($text, $event) = ('');
    do { $event = await $receive->(); $text .= $event->{body} } while $event->{more};
    if ($scope->{path} eq '/block') {
        print STDERR "blocked by $scope->{query_string}\n";
        $gate->block($scope->{query_string});
    }
    my $body = "app: $scope->{method} $scope->{path} $text";
    await $send->(
        { type => 'http.response.start', status => 200, headers => [ [ 'content-length', length $body ] ] });
    await $send->({ type => 'http.response.body', body => $body });
    return;
}

sub start {
    return TestServer->start(app => \&app, quiet => 1, access_log => undef, health_path => '/health', @_);
}

sub is_alive {
    my ($response, $name) = @_;
    is($response && $response->{status}, 200,    "$name: answered");
    is($response && $response->{body},   "ok\n", '... by the engine');
    return;
}

# Asks for a request that holds the process until its gate is open.
sub blocking {
    my ($server, $name, %tls) = @_;
    my $busy = TestClient->new($server->port, %tls)->send("GET /block?$name HTTP/1.1\r\nHost: h\r\n\r\n");
    ok($server->wait_for_log(qr/^blocked by $name$/m), 'the application is busy');
    return $busy;
}

# Runs while a request holds the process, and says whether it still did at the end.
sub while_busy {
    my ($server, $code, %tls) = @_;
    my $name   = 'busy' . ++$times;
    my $busy   = blocking($server, $name, %tls);
    my $result = $code->();
    # Over TLS there is more to read than answers.
    is($busy->some(0.01), '', 'while the application is still busy') if !%tls;
    $gate->open($name);
    is($busy->response->{body}, 'app: GET /block ', '... and it comes to its end');
    return $result;
}

subtest 'bad values' => sub {
    for my $bad ('health', '/a b', '/a?b', "/a\n", '', '/' . 'x' x 255, []) {
        my $ok = eval { PAGI::Server->new(app => \&app, health_path => $bad); 1 };
        ok(!$ok, 'refused: ' . substr $bad, 0, 20);
        like(
            $@,
            qr/option 'health_path' must be a path that begins with/,
            '... with the option and what is allowed'
        );
    }
    ok(eval { PAGI::Server->new(app => \&app, health_path => undef); 1 }, 'undef: none');
};

subtest 'an idle server' => sub {
    my $log    = File::Temp->new;
    my $server = start(access_log => $log->filename);
    my $got    = get($server->port, '/health');
    is_alive($got, 'GET');
    is($got->{header}{connection}, 'close', '... and closes, so that each check is a connection of its own');
    is($got->{header}{'cache-control'}, 'no-store', '... and no cache answers the next one');
    my $head = exchange($server->port, "HEAD /health HTTP/1.1\r\nHost: h\r\n\r\n", head => 1);
    is($head->{status},                   200, 'HEAD');
    is($head->{header}{'content-length'}, 3,   '... with the length that GET has');
    is_alive(get($server->port, '/health?verbose=1'),                 'with a query');
    is_alive(exchange($server->port, "GET /health HTTP/1.0\r\n\r\n"), 'HTTP/1.0');
    is(get($server->port, '/healthy')->{body}, 'app: GET /healthy ', 'another path is the application\'s');
    is(post($server->port, '/health', 'x')->{body}, 'app: POST /health x', '... and another method');
    my $pipelined = TestClient->new($server->port);
    $pipelined->send("GET /one HTTP/1.1\r\nHost: h\r\n\r\nGET /health HTTP/1.1\r\nHost: h\r\n\r\n");
    is($pipelined->response->{body}, 'app: GET /one ', 'behind another request: the first answer');
    is($pipelined->response->{body}, "ok\n",           '... and then its own');
    $server->stop;
    my $lines = do { local (@ARGV, $/) = $log->filename; <> };
    unlike($lines, qr/"(?:GET|HEAD) \/health[ ?]/, 'not in the access log');
    is(() = $lines =~ /\n/g, 3, '... where the others are');
};

subtest 'Perl is busy, the engine is on a thread of its own' => sub {
    my $server = start(engine => 'thread');
    while_busy(
        $server,
        sub {
            is_alive(get($server->port, '/health'), 'GET');
            is_alive(get($server->port, '/health'), 'again');
            my $slow = TestClient->new($server->port);
            for my $piece ('GE', 'T /hea', "lth HTTP/1.1\r\nHo", "st: h\r\n\r\n") {
                $slow->send($piece);
                sleep 0.05;
            }
            is_alive($slow->response, 'in pieces');
            return;
        }
    );
    is_alive(get($server->port, '/health'), 'afterwards');
};

subtest 'Perl is busy, and the engine with it' => sub {
    my $server  = start(engine => 'inline');
    my $clients = while_busy(
        $server,
        sub {
            my @clients = map { TestClient->new($server->port) } 1 .. 5;
            $clients[0]->send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
            $clients[1]->send("POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc");
            $clients[2]->send("GET /hea");
            $clients[3]->send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n");
            $clients[1]->send('def');
            $clients[2]->send("vy HTTP/1.1\r\nHost: h\r\n\r\n");
            return \@clients;
        }
    );
    is($clients->[0]->response->{body}, 'app: GET /a ',        'a request that came meanwhile');
    is($clients->[1]->response->{body}, 'app: POST /b abcdef', 'one with a body in two pieces');
    is(
        $clients->[2]->response->{body},
        'app: GET /heavy ',
        'one that could have been a health check for a while'
    );
    is_alive($clients->[3]->response, 'a health check');
    $clients->[4]->send("GET /e HTTP/1.1\r\nHost: h\r\n\r\n");
    is($clients->[4]->response->{body}, 'app: GET /e ', 'one that said nothing at first');
    is($server->stop,                   0,              'and the server stops in order');
};

subtest 'a request that is refused meanwhile has a line in the access log' => sub {
    my $log    = File::Temp->new;
    my $server = start(
        engine                      => 'thread',
        access_log                  => $log->filename,
        access_log_format           => '%h "%r" %s %B',
        max_connections_per_address => 2,
    );
    while_busy(
        $server,
        sub {
            my $second = TestClient->new($server->port);
            like(
                TestClient->new($server->port, timeout => 5)->rest,
                qr{\AHTTP/1\.1 429 },
                'one too many of an address'
            ) for 1, 2;
            return;
        }
    );
    is($server->stop, 0, 'the server ends well');
    my $lines = do { local (@ARGV, $/) = $log->filename; <> };
    is(() = $lines =~ /^127\.0\.0\.1 "-" 429 \d+$/mg, 2, 'a line for each') or diag $lines;
};

subtest 'over TLS' => sub {
    plan skip_all => 'built without TLS' if !PAGI::Server->has_tls;
    my $files  = Certificates->new->authority('ca')->issue('server', subject => '/CN=localhost');
    my $server = start(engine => 'thread', ssl => { $files->pair('server') });
    my %tls    = (tls => {});
    my $ask    = sub {
        my ($path) = @_;
        return TestClient->new($server->port, %tls)->send("GET $path HTTP/1.1\r\nHost: h\r\n\r\n");
    };
    is_alive($ask->('/health')->response, 'idle');
    my $other = while_busy(
        $server,
        sub {
            is_alive($ask->('/health')->response, 'busy');
            return $ask->('/other');
        },
        %tls
    );
    is($other->response->{body}, 'app: GET /other ', 'another request, whose handshake was made meanwhile');
    $other->send("GET /more HTTP/1.1\r\nHost: h\r\n\r\n");
    is($other->response->{body}, 'app: GET /more ', '... and the next one');
    my $log     = File::Temp->new;
    my $logging = start(
        ssl               => { $files->pair('server') },
        access_log        => $log->filename,
        access_log_format => '"%r" %s'
    );
    is(get($logging->port, '/plain')->{status}, 400, 'plain HTTP');
    $logging->stop;
    like(do { local (@ARGV, $/) = $log->filename; <> }, qr{^"GET /plain HTTP/1\.1" 400$}m,
        '... has its line');
};

subtest 'at capacity' => sub {
    my $server = start(max_connections => 2, timeout => 60);
    my @held   = map { TestClient->new($server->port) } 1 .. 2;
    is(exchange($server->port, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")->{status}, 503, 'no room for a request');
    is_alive(get($server->port, '/health'), 'the health path');
    my $silent = TestClient->new($server->port);
    like($silent->rest, qr{\AHTTP/1\.1 503 }, 'a client that says nothing is turned away in time');
};

subtest 'stopping' => sub {
    my $server = start();
    my $kept   = TestClient->new($server->port);
    my $busy   = blocking($server, 'stopping');
    $server->signal('TERM');
    $gate->open('stopping');
    is($busy->response->{body}, 'app: GET /block ', 'running requests are answered');
    is($server->wait,           0,                  'and the thread does not keep the process');
};

subtest 'from the command line' => sub {
    my $app = File::Temp->new(SUFFIX => '.pl');
    print {$app}
        'use Future::AsyncAwait; async sub app { my ($scope, $receive, $send) = @_; die if $scope->{type} ne "http";'
        . ' $send->({ type => "http.response.start", status => 404 });'
        . ' await $send->({ type => "http.response.body", body => "" }) }'
        . ' \&app';
    close $app or die $!;
    my $server = TestServer->command('--health-path', '/up', $app->filename);
    is_alive(get($server->port, '/up'), '--health-path');
};

done_testing;
