# PAGI::Server itself: options, addresses, embedding in a loop, start and stop.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use IO::Socket::IP ();
use PAGI::Server;
use Socket ();
use Test::More;
use TestClient qw(get);
use TestGate;
use TestServer;
use TestTools   qw(has_ipv6 patience refused);
use Time::HiRes qw(time);

my $gate = TestGate->new;

my $app = async sub {
    my ($scope, $receive, $send) = @_;
    die "no\n"                                             if $scope->{type} ne 'http';
    await IO::Async::Loop->new->delay_future(after => 0.5) if $scope->{path} eq '/slow';
    if ($scope->{path} eq '/held') {
        print STDERR "a request is held\n";
        await $gate->passed($scope->{query_string});
    }
    my $body = "served on $scope->{server}[0] for $scope->{client}[0]";
    await $send->(
        { type => 'http.response.start', status => 200, headers => [ [ 'content-length', length $body ] ] });
    await $send->({ type => 'http.response.body', body => $body });
};

subtest 'options' => sub {
    like(refused(), qr/app is required/, 'without an application');
    like(
        refused(app => $app, no_such => 1),
        qr/Unrecognised configuration keys for PAGI::Server - no_such/,
        'an unknown option'
    );
    my %wrong = (
        app           => [ 'word', qr/option 'app' must be a code reference, not 'word'/ ],
        port          => [ 70_000, qr/option 'port' must be an integer from 0 to 65535, not '70000'/ ],
        host          => [ '',     qr/option 'host' must be a string/ ],
        log_level     => [ 'loud', qr/option 'log_level' must be one of error warn info debug, not 'loud'/ ],
        lifespan_mode => [ 'yes',  qr/option 'lifespan_mode' must be one of auto on off/ ],
        listener_backlog         => [ 0,     qr/option 'listener_backlog' must be an integer from 1/ ],
        timeout                  => [ -1,    qr/option 'timeout' must be a number of seconds from 0 to/ ],
        shutdown_timeout         => [ 'x',   qr/option 'shutdown_timeout' must be a number of seconds/ ],
        lifespan_startup_timeout => [ undef, qr/option 'lifespan_startup_timeout' must be .*, not undef/ ],
        max_connections          => [ 1.5,   qr/option 'max_connections' must be an integer/ ],
        max_header_size          => [ 1,     qr/option 'max_header_size' must be an integer from 64/ ],
        max_header_count         => [ 0,     qr/option 'max_header_count' must be an integer from 1/ ],
        max_body_size            => [ 'big', qr/option 'max_body_size' must be an integer/ ],
        write_high_watermark     => [ 0,     qr/option 'write_high_watermark' must be an integer/ ],
        ws_per_message_deflate   => [ [],    qr/option 'ws_per_message_deflate' must be 0 or 1/ ],
        extensions               => [ [],    qr/option 'extensions' must be a hash reference/ ],
        on_error                 => [ 1,     qr/option 'on_error' must be a code reference/ ],
        loop_type                => [ 'a b', qr/option 'loop_type' must be/ ],
        access_log        => [ [], qr/option 'access_log' must be a path, "-" for standard output, an open/ ],
        access_log_format => [ '%z', qr/option 'access_log_format' must be clf, combined, .*, not '%z'/ ],
    );
    for my $name (sort keys %wrong) {
        my ($value, $says) = @{ $wrong{$name} };
        like(refused(app => $app, $name => $value), $says, $name);
    }
    like(
        refused(app => $app, write_high_watermark => 100, write_low_watermark => 200),
        qr/'write_low_watermark' \(200\) must not be above/,
        'marks that contradict each other'
    );
    is(refused(app => $app, access_log => undef, quiet => 1, extensions => {}), '', 'good options are taken');
    my $server = PAGI::Server->new(app => $app, max_connections => 7);
    is($server->effective_max_connections, 7, 'the limit on connections');
    cmp_ok(PAGI::Server->new(app => $app)->effective_max_connections, '>', 50, '... and an automatic one');
    is($server->port, 5000, 'the port that it would listen on');
    ok(!eval { $server->configure(nonsense => 1); 1 }, 'configure refuses an unknown option');
    like($@, qr/Unrecognised configuration keys for PAGI::Server - nonsense/, '... naming it');
    ok(!eval { $server->listen; 1 }, 'listen wants a loop');
    like($@, qr/Add the server to an IO::Async::Loop/, '... and says so');
    ok(!$server->is_running, 'it is not running');
    is($server->connection_count, 0, '... and has no connection');
    ok($server->shutdown->is_done, '... and shutting it down does nothing');
};

subtest 'embedded' => sub {
    my $loop = IO::Async::Loop->new;
    my $server =
        PAGI::Server->new(app => $app, host => '127.0.0.1', port => 0, quiet => 1, access_log => undef);
    $loop->add($server);
    is($server->listen->get, $server, 'listen resolves with the server');
    ok($server->is_running, 'it is running');
    my $port = $server->port;
    cmp_ok($port, '>', 0, 'port 0 has become a real one');
    is_deeply($server->listeners, [ { type => 'tcp', host => '127.0.0.1', port => $port } ], 'listeners');
    ok($server->listen->is_done, 'listening again does nothing');

    my $client = TestClient->new($port);
    $client->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    $loop->loop_once(1) until $client->some(0.01) =~ /served on/ && pass('the host loop serves');
    is($server->connection_count, 1, 'connections are counted');
    my $ticks = 0;
    $loop->watch_time(after => 0.01, code => sub { $ticks++ });
    $loop->loop_once(0.2) until $ticks;
    is($ticks, 1, 'other things in the loop run');

    my $stopping = $server->shutdown;
    ok(!$server->is_running, 'after shutdown it is not running');
    $stopping->get;
    is($client->rest, '', 'an idle connection is closed');
    ok(!IO::Socket::IP->new(PeerHost => '127.0.0.1', PeerPort => $port), 'nothing listens any more');
    $server->listen->get;
    ok($server->is_running, 'it can be started again');
    cmp_ok($server->port, '>', 0, '... on a port');
    $server->shutdown->get;
    $loop->remove($server);

    my $removed = PAGI::Server->new(app => $app, port => 0, quiet => 1, access_log => undef);
    $loop->add($removed);
    $removed->listen->get;
    my $left = $removed->port;
    $loop->remove($removed);
    ok(!IO::Socket::IP->new(PeerHost => '127.0.0.1', PeerPort => $left),
        'a server that is removed from its loop stops');
};

subtest 'two servers in one loop' => sub {
    my $loop    = IO::Async::Loop->new;
    my @servers = map { PAGI::Server->new(app => $app, port => 0, quiet => 1, access_log => undef) } 1 .. 2;
    $loop->add($_) for @servers;
    Future->needs_all(map { $_->listen } @servers)->get;
    isnt($servers[0]->port, $servers[1]->port, 'each has a port of its own');
    my @clients = map { TestClient->new($_->port)->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n") } @servers;
    for my $client (@clients) {
        my $text = '';
        my $end  = time + patience(30);
        while ($text !~ /served on/ && time < $end) { $loop->loop_once(0.05); $text .= $client->some(0.01) }
        like($text, qr/served on/, '... and serves');
    }
    Future->needs_all(map { $_->shutdown } @servers)->get;
};

subtest 'addresses' => sub {
    plan skip_all => 'this machine has no IPv6' if !has_ipv6();
    my $six    = TestServer->start(app => $app, host => '::1');
    my $client = TestClient->new($six->port, host => '::1')->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    is($client->response->{body}, 'served on ::1 for ::1', 'IPv6');
    my (undef, @found) = Socket::getaddrinfo('localhost', 0, { socktype => Socket::SOCK_STREAM() });
    my $both = TestServer->start(app => $app, host => 'localhost');
    like(get($both->port, '/')->{body}, qr/served on 127\.0\.0\.1/, 'localhost is 127.0.0.1');
    if (grep { $_->{family} == Socket::AF_INET6() } @found) {
        $client = TestClient->new($both->port, host => '::1')->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        is($client->response->{body}, 'served on ::1 for ::1', '... and ::1, on the same port');
    }
    is($_->stop, 0, 'the server ends well') for $six, $both;
};

subtest 'addresses that cannot be' => sub {
    my $loop  = IO::Async::Loop->new;
    my $taken = IO::Socket::IP->new(LocalHost => '127.0.0.1', LocalPort => 0, Listen => 1);
    my %wrong = (
        'a taken port' => [
            { port => $taken->sockport },
            qr/Cannot listen on 127\.0\.0\.1 port \d+: Address already in use/
        ],
        'an unknown name' => [
            { host => 'no-such-host.invalid', port => 0 },
            qr/Cannot listen on no-such-host\.invalid port 0: /
        ],
        'a foreign address' =>
            [ { host => '192.0.2.1', port => 0 }, qr/Cannot listen on 192\.0\.2\.1 port 0: Cannot assign/ ],
    );
    for my $name (sort keys %wrong) {
        my ($options, $says) = @{ $wrong{$name} };
        my $server = PAGI::Server->new(app => $app, quiet => 1, access_log => undef, %$options);
        $loop->add($server);
        my $future = $server->listen;
        ok($future->is_failed, $name) or next;
        like(scalar $future->failure, $says, '... is named');
        ok(!$server->is_running, '... and nothing runs');
        $loop->remove($server);
    }
    my $asked  = 0;
    my $server = PAGI::Server->new(app => sub { $asked++; die }, quiet => 1, port => $taken->sockport);
    $loop->add($server);
    ok($server->listen->is_failed, 'a taken port');
    is($asked, 0, '... is found before the application is asked for anything');
    $loop->remove($server);
};

subtest 'listeners before listen' => sub {
    my $loop   = IO::Async::Loop->new;
    my @places = (
        { host   => 'localhost', port => 0 },
        { socket => '/tmp/never.sock', socket_mode => '0600' }, '[::1]:80'
    );
    my $server = PAGI::Server->new(app => $app, quiet => 1, access_log => undef, listen => \@places);
    is_deeply(
        $server->listeners,
        [
            { type => 'tcp',  host => 'localhost',       port        => 0 },
            { type => 'unix', path => '/tmp/never.sock', socket_mode => oct 600 },
            { type => 'tcp',  host => '::1',             port        => 80 },
        ],
        'what was asked for'
    );
    $server = PAGI::Server->new(app => $app, quiet => 1, access_log => undef, port => 0);
    is_deeply(
        $server->listeners,
        [ { type => 'tcp', host => '127.0.0.1', port => 0 } ],
        'the default address'
    );
    $loop->add($server);
    $server->listen->get;
    isnt($server->listeners->[0]{port}, 0, 'then what it is');
    $server->shutdown->get;
    is($server->listeners->[0]{port}, 0, '... and what it was to be');
    $loop->remove($server);
};

subtest 'stopping with a request in flight' => sub {
    my $server = TestServer->start(app => $app);
    my $client = TestClient->new($server->port)->send("GET /held?flight HTTP/1.1\r\nHost: h\r\n\r\n");
    ok($server->wait_for_log(qr/^a request is held$/m), 'a request is in flight');
    my $idle = TestClient->new($server->port)->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    is($idle->response->{status}, 200, 'another connection is idle');
    $server->signal('QUIT');
    is($idle->rest, '', '... and closed at once');
    $gate->open('flight');
    my $response = $client->response;
    is($response->{status},             200,     'the request in flight is answered');
    is($response->{header}{connection}, 'close', '... with a word that it was the last');
    is($server->wait,                   0,       'then the server ends');
    like(
        $server->log,
        qr/^PAGI: SIGQUIT: the server stops\nPAGI: requests in flight: 1, which have 25 seconds\n.*^PAGI: the server has stopped$/ms,
        '... and has told so'
    );

    my $hasty = TestServer->start(app => $app);
    my $held  = TestClient->new($hasty->port)->send("GET /held?never HTTP/1.1\r\nHost: h\r\n\r\n");
    ok($hasty->wait_for_log(qr/^a request is held$/m), 'another one');
    $hasty->signal('TERM');
    ok($hasty->wait_for_log(qr/in flight: 1/), 'a server that waits for a request');
    $hasty->signal('TERM');
    ok(defined $held->rest, '... cuts it at the second signal');
    is($hasty->wait, 0, '... and ends');
    like($hasty->log, qr/PAGI: SIGTERM again: force-closing 1 active connections/, '... with a word');

    my $tardy = TestServer->start(
        app => async sub {
            my ($scope, $receive, $send) = @_;
            die if $scope->{type} ne 'lifespan';
            await $receive->();
            await $send->({ type => 'lifespan.startup.complete' });
            await $receive->();
            print STDERR "tardy\n";
            await IO::Async::Loop->new->delay_future(after => 60);
        }
    );
    $tardy->signal('INT');
    ok($tardy->wait_for_log(qr/tardy/), 'a server that waits for the shutdown of its application');
    $tardy->signal('INT');
    is($tardy->wait, 0, '... ends at the second signal');

    my $stubborn = TestServer->start(app => $app, shutdown_timeout => 0.2);
    my $cut      = TestClient->new($stubborn->port)->send("GET /held?never HTTP/1.1\r\nHost: h\r\n\r\n");
    ok($stubborn->wait_for_log(qr/^a request is held$/m), 'one more');
    $stubborn->signal('INT');
    is($cut->rest,      '', 'a request that takes too long is cut');
    is($stubborn->wait, 0,  '... and the server ends all the same');
    like(
        $stubborn->log,
        qr/Shutdown timeout: force-closing 1 active connections/,
        '... with a word in the log'
    );
};

subtest 'a signal stops all servers of a loop' => sub {
    my $go     = File::Temp->newdir;
    my $script = q{
        use strict; use warnings; use Future::AsyncAwait; use IO::Async::Loop; use PAGI::Server;
        my $loop = IO::Async::Loop->new;
        my $app  = async sub {
            my ($scope, $receive, $send) = @_;
            die if $scope->{type} ne 'http';
            print STDERR "held\n";
            while (!-e "$ARGV[0]/go") { await $loop->delay_future(after => 0.02) }
            await $send->({ type => 'http.response.start', status => 200 });
            await $send->({ type => 'http.response.body', body => 'let go' });
        };
        for (1 .. 2) {
            my $server = PAGI::Server->new(port => 0, app => $app);
            $loop->add($server);
            $server->listen->get;
        }
        $loop->run;
    };
    my $servers = TestServer->spawn($^X, (map { "-I$_" } @INC), '-e', $script, "$go");
    my $port    = $servers->wait_for_log(qr{listening on .*listening on http://127\.0\.0\.1:(\d+)/}s);
    my $client  = TestClient->new($port)->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    $servers->wait_for_log(qr/^held$/m);
    $servers->signal('TERM');
    ok($servers->wait_for_log(qr/the server has stopped/), 'one has nothing to do and stops');
    open my $file, '>', "$go/go" or die "$go: $!";
    is($client->response->{body}, 'let go', '... the loop goes on until the other one has answered');
    is($servers->wait,            0,        '... and then it ends');
    is(scalar(() = $servers->log =~ /the server has stopped/g), 2, '... with both stopped');
};

subtest 'signals that have nothing to do here' => sub {
    my $server = TestServer->start(app => $app);
    my %says   = (
        HUP  => qr/SIGHUP: .*no listener speaks TLS.*start the server again$/m,
        USR2 => qr/SIGUSR2: .*has no workers.*start the server again$/m,
        TTIN => qr/SIGTTIN: .*would add a worker, and this server has none$/m,
        TTOU => qr/SIGTTOU: .*would remove a worker, and this server has none$/m,
    );
    for my $name (sort keys %says) {
        $server->signal($name);
        ok($server->wait_for_log($says{$name}), "$name says what it is for");
    }
    is(get($server->port, '/')->{status}, 200, 'the server goes on');
};

subtest 'limits' => sub {
    my $server = TestServer->start(
        app              => $app,
        max_connections  => 2,
        max_header_size  => 500,
        max_header_count => 3,
        max_body_size    => 10,
    );
    my $port = $server->port;
    is(get($port, '/' . 'x' x 600)->{status} >= 400,        1,   'max_header_size');
    is(get($port, '/', map { "X-$_: y" } 1 .. 5)->{status}, 431, 'max_header_count');
    is(TestClient::post($port, '/', 'x' x 11)->{status},    413, 'max_body_size');
    my @held = map { TestClient->new($port)->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n") } 1 .. 2;
    $_->response for @held;
    my $refused = TestClient->new($port)->response;
    is($refused->{status}, 503, 'max_connections');
    ok($refused->{header}{'retry-after'}, '... with Retry-After');
    $server = TestServer->start(app => $app, timeout => 0.3);
    $port   = $server->port;
    is(TestClient->new($port)->rest,  '',  'timeout closes an idle connection');
    is(get($port, '/slow')->{status}, 200, '... but never one with a request that runs');
};

subtest 'max_header_count of a running server' => sub {
    my $loop   = IO::Async::Loop->new;
    my $server = PAGI::Server->new(
        app              => sub { die },
        port             => 0,
        quiet            => 1,
        access_log       => undef,
        max_header_count => 50
    );
    $loop->add($server);
    $server->configure(max_header_count => 60);
    $server->listen->get;
    $server->configure(max_header_count => 20);
    $server->configure(max_header_count => 60);
    ok(!eval { $server->configure(max_header_count => 61); 1 },
        'cannot be raised above what it started with');
    like(
        $@,
        qr/option 'max_header_count' cannot be raised above 60 while the server runs, not to 61 at /,
        '... and says so'
    );
    $server->shutdown->get;
    $loop->remove($server);
};

subtest 'few descriptors' => sub {
    for my $case (
        [
            '-n 64',
            '--max-connections 500',
            qr/max_connections is 500, but the limit on open files \(ulimit -n: 64\) leaves room for 14$/
        ],
        [ '-n 64',  '--max-connections 10', undef ],
        [ '-n 90',  '', qr/the limit on open files \(ulimit -n: 90\) leaves room for 40 connections$/ ],
        [ '-n 120', '--engine process --workers 2', qr/\(ulimit -n: 120\) leaves room for 62 connections$/ ],
        )
    {
        my ($limit, $options, $expected) = @$case;
        my $server = TestServer->spawn(
            'sh', '-c', qq{ulimit $limit; exec "\$@"},
            'sh', $^X,
            (map { "-I$_" } @INC),
            qw(bin/pagi-server --no-access-log -p 0),
            split(' ', $options),
            '-e', 'sub { die }'
        );
        ok($server->wait_for_log(qr/listening on/), "ulimit $limit $options: starts");
        is($server->stop, 0, '... and ends well');
        my @told = grep { /ulimit/ } split /\n/, $server->log;
        is(scalar @told, $expected ? 1 : 0, $expected ? '... with a warning' : '... without a word');
        like($told[0], $expected, '... which says what it can keep') if $expected;
    }
};

subtest 'run' => sub {
    my $script = q{
        use strict; use warnings; use Future::AsyncAwait; use PAGI::Server;
        PAGI::Server->new(port => 0, loop_type => 'Poll', app => async sub {
            my ($scope, $receive, $send) = @_;
            die if $scope->{type} ne 'http';
            await $send->({ type => 'http.response.start', status => 200 });
            await $send->({ type => 'http.response.body', body => 'run' });
        })->run;
    };
    my $server = TestServer->spawn($^X, (map { "-I$_" } @INC), '-e', $script);
    my $port   = $server->wait_for_log(qr{listening on \S+:(\d+)/ \(loop: Poll});
    ok($port, 'run listens, in a loop of the given type') or return diag $server->log;
    is(get($port, '/')->{body}, 'run', '... and serves');
    is($server->stop,           0,     '... and returns after TERM');
};

done_testing;
