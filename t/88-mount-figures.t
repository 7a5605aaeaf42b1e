# Mounts with workers of their own are told apart: by the access log, refusals in status, metrics and log, and
# memory and descriptors that processes of one mount do not share with those of another.
use strict;
use warnings;

use lib 't/lib';
use JSON::PP   ();
use OnlyInFull qw(only_in_full);
use POSIX      ();
use Test::More;
use TestClient qw(get);
use TestHTTP2;
use TestServer;
use TestTools qw(content wait_for);
use TestWebSocket;
use TestWorkers qw(children directory write_file);

my $dir = directory();

my $psgi = write_file('app.psgi', <<'PSGI');
sub {
    my ($env) = @_;
    select undef, undef, undef, 1000 if $env->{PATH_INFO} eq '/block';
    return [ 200, [], ["$$"] ];
};
PSGI
my $pagi = write_file('app.pl', <<'PAGI');
use Future::AsyncAwait;
async sub {
    my ($scope, $receive, $send) = @_;
    die "no\n" if $scope->{type} eq 'lifespan';
    if ($scope->{type} eq 'websocket') {
        await $send->({ type => 'websocket.accept' });
        await $send->({ type => 'websocket.close' });
        return;
    }
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body', body => "$$" });
}
PAGI

sub started {
    my (@arguments) = @_;
    return TestServer->command_of('peregrine', qw(-E production --shutdown-timeout 1), @arguments);
}

# The path and the group of each line.
sub groups_in {
    my ($log, $count) = @_;
    my @lines;
    wait_for(sub { @lines = split /\n/, content($log) // ''; @lines >= $count });
    return { map { split ' ', $_, 2 } @lines };
}

subtest 'the access log' => sub {
    my $log    = "$dir/groups.log";
    my @mounts = map { ('--mount', $_) } "/=$psgi", "/shop=$psgi,workers=1,queue_timeout=1",
        "/api=$pagi,workers=1,host=localhost", "/caf\xc3\xa9 \"=$psgi,workers=1", "/plain=$psgi";
    my $server = started(qw(--engine process --workers 1 --http2),
        @mounts, '--access-log', $log, '--access-log-format', '%U %M');
    my $port = $server->port;
    get($port, $_) for '/', '/plain/x', '/shop', '/shop/x', '/caf%C3%A9%20%22/x', '/none';
    get($port, '/api/x');
    my $http2 = TestHTTP2->new($port);
    $http2->get('/shop/http2');
    $http2->close;
    my $socket = TestWebSocket->open($port, '/api/socket');
    $socket->close;
    my $bad = TestClient->new($port);
    $bad->send("GET /shop/bad HTTP/1.1\r\n\r\n");    # without a host
    $bad->rest;
    my $stuck = TestClient->new($port);
    $stuck->send("GET /shop/block HTTP/1.1\r\nHost: h\r\n\r\n");
    is get($port, '/shop/late')->{status}, 503, 'a request that is refused';
    my %expected = (
        '/'                  => '*',
        '/plain/x'           => '*',
        '/none'              => '*',
        '/shop'              => '/shop',
        '/shop/x'            => '/shop',
        '/shop/http2'        => '/shop',
        '/shop/late'         => '/shop',
        '/shop/bad'          => '-',
        '/caf%C3%A9%20%22/x' => '/caf%c3%a9%20%22',
        '/api/x'             => 'localhost/api',
        '/api/socket'        => 'localhost/api',
    );
    my $groups = groups_in($log, scalar keys %expected);
    is $groups->{$_}, $expected{$_}, "the group of $_" for sort keys %expected;
    $server->stop;
};

subtest 'the access log as JSON' => sub {
    for my $case ([ '/shop', '/shop', ',workers=1' ], [ '', '', '' ]) {
        my ($mount, $expected, $settings) = @$case;
        my $log    = "$dir/json.log";
        my $server = started(qw(--engine process --workers 1 --access-log-format json --access-log),
            $log, '--mount', "$mount/=$psgi$settings");
        get($server->port, '/shop');
        my $line = wait_for(sub { content($log) });
        is JSON::PP::decode_json($line)->{mount}, $expected, "the mount '$expected'";
        $server->stop;
        unlink $log;
    }
};

subtest 'without workers of a mount' => sub {
    for my $engine (only_in_full('inline', 'thread'), 'process') {
        my $log    = "$dir/$engine.log";
        my $server = started(
            '--engine',     $engine,   '--workers',           1,
            '--mount',      "/=$psgi", '--mount',             "/shop=$psgi",
            '--access-log', $log,      '--access-log-format', '%U %M'
        );
        get($server->port, $_) for '/', '/shop';
        is_deeply groups_in($log, 2), { '/' => '-', '/shop' => '-' }, "no group, engine: $engine";
        $server->stop;
    }
};

# The facts of a mount in status.json, and its refusals in the metrics.
sub status_of {
    my ($place, $mount) = @_;
    my %body;
    for my $page (qw(status.json metrics)) {
        my $client = TestClient->new($place);
        $client->send("GET /$page HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        $body{$page} = ($client->response || {})->{body} // '';
    }
    my ($facts)  = grep { $_->{mount} eq $mount } @{ JSON::PP::decode_json($body{'status.json'})->{mounts} };
    my ($metric) = $body{metrics} =~ /^peregrine_mount_refused_total\{mount="\Q$mount\E"\} (\d+)$/m;
    return ($facts->{refused}, $metric);
}

# Two mounts whose application dies when it is loaded. Three requests of the first, where two may wait, and
# one of the second come together, and all that wait are refused together.
subtest 'refusals' => sub {
    my $broken = write_file('broken.psgi', qq{die "no database\n";\n});
    my $server = started(
        qw(--engine process --workers 1 --no-access-log),      '--status',
        "$dir/status",                                         '--mount',
        "/=$psgi",                                             '--mount',
        "/shop=$broken,workers=1,queue_max=2,queue_timeout=1", '--mount',
        "/api=$broken,workers=1,queue_timeout=1"
    );
    my @clients = map { TestClient->new($server->port) } 1 .. 4;
    $_->send("GET /shop HTTP/1.1\r\nHost: h\r\n\r\n") for @clients[ 0 .. 2 ];
    $clients[3]->send("GET /api HTTP/1.1\r\nHost: h\r\n\r\n");
    is_deeply [ map { $_->response->{status} } @clients ], [ (503) x 4 ], 'requests that are refused';
    is get($server->port, '/')->{status}, 200, '... beside others that are not';
    is_deeply [ status_of("$dir/status", '/shop') ], [ 3, 3 ], 'status and metrics count those of a mount';
    is_deeply [ status_of("$dir/status", '/api') ],  [ 1, 1 ], '... and of another one';
    is_deeply [ status_of("$dir/status", '*') ],     [ 0, 0 ], '... and of all others';
    my $said = 'Refused with 503 .*: all interpreters of the mount';

    for my $line (
        "$said /shop are busy, see queue_max",
        "$said /shop are busy, see queue_timeout",
        "$said /api are busy, see queue_timeout"
        )
    {
        ok $server->wait_for_log(qr/$line/), "the log: $line";
    }
    $server->stop;
};

# ---- What processes have in common --------------------------------------------------------------

# Shared memory without a name that a process can write, by its number.
sub memory_of {
    my ($pid) = @_;
    return map { $_ => 1 } content("/proc/$pid/maps") =~ m{^\S+ rw-s \S+ \S+ (\d+) +/dev/zero \(deleted\)$}mg;
}

sub common {
    my ($first, $second) = map { { memory_of($_) } } @_;
    return grep { $second->{$_} } keys %$first;
}

# The numbers of a process's epoll descriptors.
sub epolls {
    my ($pid)       = @_;
    my @descriptors = grep { (readlink $_ // '') =~ /eventpoll/ } glob "/proc/$pid/fd/*";
    return map { m{([0-9]+)\z} ? $1 + 0 : () } @descriptors;
}

# Whether an epoll descriptor of a process is one of another's; undef where kcmp has no known number.
sub shares_epoll {
    my ($pid, $other) = map { $_ + 0 } @_;
    my %numbers = (x86_64 => 312, aarch64 => 272);
    my $number  = $numbers{ (POSIX::uname())[4] } or return undef;
    for my $own (epolls($pid)) {
        return 1 if grep { syscall($number, $pid, $other, 0, $own, $_) == 0 } epolls($other);
    }
    return 0;
}

for my $more (only_in_full([]), ['--preload-app']) {
    subtest "memory and descriptors @$more" => sub {
        my $server = started(
            qw(--engine process --workers 1 --no-access-log --channels --request-kill-timeout 50 --canary 1),
            '--status',
            "$dir/status",
            '--mount',
            "/=$psgi",
            '--mount',
            "/shop=$psgi,workers=1",
            '--mount',
            "/api=$pagi,workers=1",
            @$more
        );
        my ($port, $master) = ($server->port, $server->pid);
        my %pid = map { $_ => get($port, $_)->{body} } '/', '/shop', '/api';
        ok scalar(common($master, $pid{'/shop'})), 'a worker can write its figures';
        for my $pair ([ '/', '/shop' ], [ '/', '/api' ], [ '/shop', '/api' ]) {
            is_deeply [ common(map { $pid{$_} } @$pair) ], [], "... and none that it shares: @$pair";
        }
        my @sharing = map { shares_epoll($_, $master) } grep { $_ != $master } $server->family;
    SKIP: {
            skip 'descriptors cannot be compared', 1 if grep { !defined } @sharing;
            is_deeply [ grep { $_ } @sharing ], [], 'no process has the epoll descriptor of the master';
        }
        $server->stop;
    };
}

done_testing;
