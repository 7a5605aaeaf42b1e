# Worker processes: a master that binds, forks, watches and replaces them, and serves nothing itself.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use Future::AsyncAwait;
use IO::Async::Loop;
use IO::Socket::UNIX ();
use PAGI::Server;
use Peregrine::Processors;
use POSIX ();
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools   qw(content wait_for);
use TestWorkers qw(children directory write_file);

my $dir = directory();

# The application answers with its process and the number of its worker; what the path asks for comes before
# that.
my $app = write_file('app.pl', <<'APP');
use Future::AsyncAwait;
use IO::Async::Loop;
my $lifespan;
END { print STDERR "END in worker $lifespan->{worker_num} of $$\n" if $lifespan }
my %DO = (
    '/sleep' => sub { print STDERR "asleep\n"; sleep 1000 },
    '/exit'  => sub { exit 7 },
    '/kill'  => sub { kill KILL => $$ },
    '/wait'  => sub { return IO::Async::Loop->new->delay_future(after => 1) },
    '/fds'   => sub { return scalar(my @all = glob '/proc/self/fd/*') },
    '/fork'  => sub {
        my $out = `echo from a child`;
        my $pid = fork // die;
        exec 'true' if !$pid;
        waitpid $pid, 0;
        return $out . $?;
    },
    '/sockets' => sub { return `ls -l /proc/self/fd` =~ /socket:/ ? 'sockets' : 'none' },
    '/ignored' => sub { return `grep SigIgn /proc/self/status` },
    '/loop'  => sub { return ref IO::Async::Loop->new },
    '/rand'  => sub { return rand },
);
async sub {
    my ($scope, $receive, $send) = @_;
    if ($scope->{type} eq 'lifespan') {
        await $receive->();
        $lifespan = $scope->{pagi};
        if ($ENV{FAIL}) {
            return await $send->({ type => 'lifespan.startup.failed', message => "no database\nhere" });
        }
        exit 3 if $ENV{EXIT};
        await $send->({ type => 'lifespan.startup.complete' });
        await $receive->();
        print STDERR "shutdown in worker $lifespan->{worker_num}\n";
        return await $send->({ type => 'lifespan.shutdown.complete' });
    }
    my $do     = $DO{ $scope->{path} };
    my $answer = $do ? $do->() : '';
    $answer = '' . await $answer if ref $answer;
    my $text = "$$ $lifespan->{worker_num} $lifespan->{is_worker} $answer";
    my @length = ([ 'content-length', length $text ]);
    await $send->({ type => 'http.response.start', status => 200, headers => \@length });
    await $send->({ type => 'http.response.body', body => $text });
};
APP

# Of workers that share a socket one may accept nearly always where their engines are on threads: these have
# nothing else to do.
my @spread = ($ENV{PEREGRINE_ENGINE} // '') eq 'thread' ? '--reuseport' : ();

sub command { return TestServer->command('-E', 'production', @spread, @_, $app) }

# Connections of clients that come together, which wakes several workers: [ client, pid, number ].
sub several {
    my ($port) = @_;
    my @clients = map { TestClient->new($port) } 1 .. 8;
    $_->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n") for @clients;
    return map { [ $_, split ' ', ($_->response || {})->{body} // '' ] } @clients;
}

# Which workers answer: number => pid.
sub workers {
    my ($port, $count) = @_;
    my (%found, $tries);
    while (keys %found < $count && $tries++ < 250) {
        $found{ $_->[2] } = $_->[1] for several($port);
    }
    return %found;
}

# Keep-alive connections, one to each worker.
sub connections {
    my ($port, $count) = @_;
    my (%found, $tries);
    while (keys %found < $count && $tries++ < 250) {
        $found{ $_->[2] } ||= $_->[0] for several($port);
    }
    return %found;
}

sub s_client {
    my ($port, @arguments) = @_;
    my $command = join ' ', 'openssl s_client -ign_eof -tls1_2 -connect', "127.0.0.1:$port", @arguments;
    return `printf 'GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n' | $command 2>&1`;
}

subtest 'a master and its workers' => sub {
    my $server = command('--workers', 3);
    like($server->log, qr/listening on \S+ \(workers: 3, /, 'the banner says how many');
    is(() = $server->log =~ /listening on/g, 1, '... once');
    my %pids = workers($server->port, 3);
    is_deeply([ sort keys %pids ], [ 1 .. 3 ], 'each has its number');
    is_deeply(
        [ sort { $a <=> $b } values %pids ],
        [ sort { $a <=> $b } children($server->pid) ],
        '... and is a process of the master'
    );
    my $answer = get($server->port, '/loop')->{body};
    like($answer, qr/\A\d+ [1-3] 1 IO::Async::Loop::Peregrine\z/, 'is_worker is 1, the loop is its own');
    my %numbers = map { (split ' ', get($server->port, '/rand')->{body})[3] => 1 } 1 .. 6;
    is(keys %numbers, 6, 'chance is no other worker\'s');
    like(get($server->port, '/fork')->{body}, qr/from a child\n0\z/,
        'an application runs programs and forks');
    like(get($server->port, '/sockets')->{body}, qr/none\z/, '... which inherit no socket');
    my ($ignored) = get($server->port, '/ignored')->{body} =~ /SigIgn:\s*([0-9a-f]+)/;
    is(hex($ignored // 'ffff') & 1 << POSIX::SIGPIPE() - 1, 0, '... and end by SIGPIPE as usual');
    like(
        content("/proc/$pids{2}/cmdline"),
        qr/\Apagi-server .*app\.pl \(worker 2\)/,
        'ps shows which one it is'
    );

    my %alive = connections($server->port, 3);
    my $slow  = TestClient->new($server->port)->send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    select undef, undef, undef, 0.2;
    $server->signal('TERM');
    is(($slow->response || {})->{status}, 200, 'TERM: what is in flight is answered');
    is($server->wait,                     0,   '... and the server ends well');
    for my $number (1 .. 3) {
        like($server->log, qr/^shutdown in worker $number$/m,              "worker $number had its shutdown");
        like($server->log, qr/^END in worker $number of $pids{$number}$/m, '... and its END blocks');
    }
    is(() = $server->log =~ /^END/mg, 3, '... once each');
    ok(!(grep { kill 0 => $_ } values %pids), 'no worker is left');
    like($server->log, qr/the server has stopped\n\z/, 'the master goes last');
};

subtest 'a plain program' => sub {
    my $path   = "$dir/plain.sock";
    my $state  = 0;
    my $server = TestServer->start(
        workers           => 2,
        listen            => [ { host => '127.0.0.1', port => 0 }, { socket => $path } ],
        access_log        => "$dir/plain.log",
        access_log_format => '%P %U',
        max_body_size     => 5,
        max_connections   => 77,
        app               => async sub {
            my ($scope, $receive, $send) = @_;
            if ($scope->{type} eq 'lifespan') {
                await $receive->();
                $scope->{state}{number} = $scope->{pagi}{worker_num};
                await $send->({ type => 'lifespan.startup.complete' });
                return await $receive->();
            }
            my $text = join ' ', $$, $scope->{state}{number}, ++$state;
            await $send->({ type => 'http.response.start', status => 200 });
            await $send->({ type => 'http.response.body',  body   => $text });
        },
    );
    my %pids = workers($server->port, 2);
    is_deeply([ sort keys %pids ], [ 1, 2 ], 'the workers serve');
    ok(!(grep { $_ == $server->pid } values %pids), '... and the program does not');
    my $socket = IO::Socket::UNIX->new(Peer => $path) or die "$path: $!";
    print {$socket} "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    like(do { local $/; readline $socket }, qr/\r\n\r\n\d+ [12] \d+\z/, 'at the Unix socket as well');
    my $long = TestClient::post($server->port, '/', 'x' x 6);
    is($long->{status}, 413, 'options of the engine are those of the program');
    is($server->stop,   0,   'the server ends well');
    ok(!-e $path, 'the file of the socket is gone');
    my %written = map { (split)[0] => 1 } split /\n/, content("$dir/plain.log");
    is_deeply(
        \%written,
        { map { $_ => 1 } values %pids },
        'the access log has the lines of all, in its format'
    );
};

subtest 'a worker that dies' => sub {
    my $server = command('--workers', 2);
    my $port   = $server->port;
    my %before = workers($port, 2);
    my %alive  = connections($port, 2);
    get($port, '/fds');
    my $fds = () = glob "/proc/${\$server->pid}/fd/*";
    $alive{1}->send("GET /kill HTTP/1.1\r\nHost: h\r\n\r\n");
    ok(!defined $alive{1}->response, 'its connection ends');
    ok($server->wait_for_log(qr/worker 1 \($before{'1'}\) was killed by SIGKILL: another one/),
        'the master says so');
    my %after;
    ok(wait_for(sub { %after = workers($port, 2); $after{1} != $before{1} }), 'another one has its number');
    is($after{2}, $before{2}, '... the other one is the same');
    $alive{2}->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    is($alive{2}->response->{status}, 200, '... and so are its connections');
    $alive{2}->send("GET /exit HTTP/1.1\r\nHost: h\r\n\r\n");
    ok($server->wait_for_log(qr/worker 2 \($before{'2'}\) has exited with status 7/), 'one that calls exit');
    kill TERM => $after{1};
    ok($server->wait_for_log(qr/worker 1 \($after{'1'}\) has exited with status 0/),
        'one that somebody stops');
    ok(wait_for(sub { 2 == children($server->pid) }), 'there are two again');
    my %last = workers($port, 2);
    isnt($last{$_}, $after{$_}, "worker $_ is replaced") for 1, 2;
    ok(wait_for(sub { $fds == (() = glob "/proc/${\$server->pid}/fd/*") }),
        'the master has as many descriptors as before');
    is($server->stop, 0, 'the server ends well');
};

subtest 'a worker that dies again and again' => sub {
    my $server = command('--workers', 1);
    my $port   = $server->port;
    for my $count (1 .. 3) {
        my %now = workers($port, 1);
        kill KILL => $now{1};
        ok($server->wait_for_log(qr/worker 1 \($now{'1'}\) was killed/), "death $count is seen");
    }
    ok(
        $server->wait_for_log(
            qr/worker 1 has failed 2 times in a row, soon after its start: the next one starts in 0\.5 s/),
        'the start after the second waits'
    );
    ok($server->wait_for_log(qr/worker 1 has failed 3 times .* the next one starts in 1 s/),
        '... twice as long after the third');
    my $answer = get($port, '/');
    is($answer->{status}, 200, '... and who comes meanwhile waits for it');
    is($server->stop,     0,   'the server ends well');
};

subtest 'workers that cannot start' => sub {
    local $ENV{FAIL} = 1;
    my ($status, undef, $error) = TestServer->finish(qw(-E production --port 0 --workers 3), $app);
    is($status, 1, 'the server ends with status 1');
    like($error, qr/worker \d cannot start: Lifespan startup failed: no database/, '... and its reason');
    is(() = $error =~ /worker \d cannot start/g, 1, '... once');
    like($error, qr/^Error: Lifespan startup failed: no database$/m, '... in front as well') or diag $error;
    delete $ENV{FAIL};
    local $ENV{EXIT} = 1;
    ($status, undef, $error) = TestServer->finish(qw(-E production --port 0 --workers 2), $app);
    is($status, 1, 'workers that exit');
    like($error, qr/has exited with status 3 during its start/, '... are told of');
    delete $ENV{EXIT};
    my $bad = write_file('bad.pl', "use strict;\nmy \$x = ;\n");
    ($status, undef, $error) = TestServer->finish(qw(-E production --port 0 --workers 2), $bad);
    is($status, 1, 'code that does not compile');
    like($error, qr/^Error: Error loading \S*bad\.pl: syntax error at \S+ line 2/m, '... is told of')
        or diag $error;
    my $half = write_file('half.pl', <<'APP');
open my $lock, '>>', $ENV{LOCK};
flock $lock, 2;
my $first = !-s $ENV{LOCK};
syswrite $lock, "x\n";
close $lock;
die "the first one dies\n" if $first;
sub {
    die "no lifespan\n" if $_[0]{type} eq 'lifespan';
    $_[2]->({ type => 'http.response.start', status => 200 });
    $_[2]->({ type => 'http.response.body', body => "$$ 0" });
};
APP
    local $ENV{LOCK} = "$dir/lock";
    my $server = TestServer->command(qw(-E production --workers 2), $half);
    ok($server->wait_for_log(qr/cannot start: .*the first one dies/), 'one that cannot is told of');
    ok(wait_for(sub { 2 == children($server->pid) }),                 '... and another one tries again');
    is($server->stop, 0, 'the server ends well');
};

subtest 'a worker that is stuck' => sub {
    my $server = command('--workers', 2, '--heartbeat-timeout', 1);
    my $port   = $server->port;
    my %before = workers($port, 2);
    my %alive  = connections($port, 2);
    $alive{1}->send("GET /sleep HTTP/1.1\r\nHost: h\r\n\r\n");
    my $late = qr/has not answered for 1 s \(heartbeat_timeout\) and was killed/;
    ok($server->wait_for_log(qr/worker 1 \($before{'1'}\) $late/), 'is killed');
    my $at = qr/at \S*app\.pl line \d+/;
    like(
        $server->log,
        qr/process $before{'1'} is stuck in request \d+-\d+ GET \/sleep $at\n    \S+::\S+ called $at/,
        '... and has said where it was'
    );
    my %after;
    ok(wait_for(sub { %after = workers($port, 2); $after{1} != $before{1} }), '... and replaced');
    is($after{2},     $before{2}, 'the other one is not');
    is($server->stop, 0,          'the server ends well');
};

subtest 'a master that is killed' => sub {
    my $server = command('--workers', 2);
    my %pids   = workers($server->port, 2);
    $server->signal('KILL');
    ok(
        wait_for(sub {
            !grep { content("/proc/$_/stat") =~ /\) [^Z]/ } values %pids;
        }),
        'its workers end'
    );
    like($server->log, qr/worker 1: the master has gone/, '... and say why');
};

# Whether a process has not taken a signal yet.
sub is_pending {
    my ($pid, $number) = @_;
    my ($low) = content("/proc/$pid/status") =~ /^ShdPnd:\s*[0-9a-f]{8}([0-9a-f]{8})$/m;
    return hex($low // 0) >> $number - 1 & 1;
}

subtest 'hurry' => sub {
    my $server = command('--workers', 2, '--shutdown-timeout', 100);
    my $client = TestClient->new($server->port)->send("GET /sleep HTTP/1.1\r\nHost: h\r\n\r\n");
    ok($server->wait_for_log(qr/asleep/), 'a request keeps a worker');
    $server->signal('INT');
    ok($server->wait_for_log(qr/SIGINT: the server stops/), 'INT stops');
    # Wait until the master has seen each signal: two signals that are pending at the same time count as one.
    for my $count (1 .. 3) {
        $server->signal('QUIT');
        ok(wait_for(sub { !is_pending($server->pid, POSIX::SIGQUIT) }), "... QUIT $count comes to it");
    }
    is($server->wait, 0, 'signals again and again end even a worker that is stuck');
    like($server->log, qr/was told to stop again and again/, '... and the log says so');
};

subtest 'limits are shared' => sub {
    my $server = PAGI::Server->new(
        app                             => sub { },
        workers                         => 4,
        max_connections_per_address     => 10,
        max_connection_rate_per_address => 4,
        memory_max                      => '256M',
        max_connections                 => 50,
        quiet                           => 1,
    );
    IO::Async::Loop->new->add($server);
    is($server->effective_memory_max, 64 << 20, 'memory_max is divided');
    my $inner = $server->_part->configuration_of_child->options;
    is($inner->{max_connections_per_address},
        3, 'an address may have a part of its connections in each, rounded up');
    is($inner->{max_connection_rate_per_address}, 1,        '... and of its rate');
    is($inner->{memory_max},                      64 << 20, 'each has its part of the memory');
    is($inner->{max_connections},                 50,       'max_connections holds for each');
    is($server->connection_count,                 0,        'nothing runs');
    my $placement = $server->_part->placement;
    no warnings 'redefine';
    local *Peregrine::Server::Placement::limit_in_force = sub { die "no descriptor is left\n" };
    $placement->set_interpreters(8);
    my %share = $placement->share;
    is($share{memory_max}, 32 << 20, 'parts change without another question for the whole');
    IO::Async::Loop->new->remove($server);
};

subtest 'a running master has its options' => sub {
    my $program = <<'PROGRAM';
use IO::Async::Loop;
use PAGI::Server;
my $server = PAGI::Server->new(port => 0, workers => 1, quiet => 1, app => sub { die "no lifespan\n" });
IO::Async::Loop->new->add($server);
$server->configure(timeout => 2);
$server->listen->get;
$server->configure(notifier_name => 'master');
print STDERR eval { $server->configure(timeout => 3); 1 } ? "taken\n" : $@;
$server->shutdown->get;
$server->configure(timeout => 4);
print STDERR "over\n";
PROGRAM
    my $server = TestServer->spawn($^X, (map { "-I$_" } @INC), '-e', $program);
    is($server->wait, 0, 'a program that configures its server');
    like(
        $server->log,
        qr/workers run with the options .* stop the server before .*: timeout at/,
        '... is told so'
    );
    like($server->log, qr/over\n\z/, '... and may do so after the stop');
};

subtest 'a socket for each' => sub {
    my $server = command(qw(--workers 4 --reuseport));
    my $port   = $server->port;
    my %count;
    for (1 .. 400) { $count{ (split ' ', get($port, '/')->{body})[1] }++ }
    is(keys %count, 4, 'all four serve');
    my ($least) = sort { $a <=> $b } values %count;
    cmp_ok($least, '>', 50, 'the kernel spreads connections') or diag explain \%count;
    my %pids = workers($port, 4);
    kill KILL => $pids{3};
    my @answers = map { get($port, '/') } 1 .. 40;
    is((grep { $_ && $_->{status} == 200 } @answers), 40, 'while one is replaced its connections wait');
    is($server->stop,                                 0,  'the server ends well');
};

subtest 'as many as there are processors' => sub {
    my $count = Peregrine::Processors::count();
    cmp_ok($count, '>=', 1, 'there is one at least');
    my $server = command(qw(--workers auto));
    like($server->log, qr/\(workers: $count, /, 'auto');
    is($server->stop, 0, 'the server ends well');
};

SKIP: {
    skip 'built without TLS', 1 if !Peregrine::has_tls();
    subtest TLS => sub {
        my $certificates = Certificates->new->authority('server');
        my $server       = command(
            qw(--workers 3),                   '--ssl-cert',
            $certificates->path('server.pem'), '--ssl-key',
            $certificates->path('server.key')
        );
        my $kept = "$dir/session";
        my $port = $server->port;
        like(s_client($port, '-sess_out', $kept), qr/^New, TLSv1/m, 'a first handshake is whole');
        my $reused = grep { s_client($port, '-sess_in', $kept) =~ /^Reused, TLSv1/m } 1 .. 12;
        is($reused,       12, '... the others are shortened, whichever worker they come to');
        is($server->stop, 0,  'the server ends well');
    };
}

done_testing;
