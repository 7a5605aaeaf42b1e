# Ends in a worker pool: of calls by their deadlines and by their callers, of processes by crashes, by their
# number of calls, of the master. A call that is lost says so, and no other call notices.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use JSON::PP   ();
use OnlyInFull qw(crossed only_in_full);
use Test::More;
use TestClient qw(get);
use TestGate;
use TestPool qw(application asked begin calls handlers outcomes pool_processes wait_for_stats waits);
use TestServer;
use TestTools   qw(patience wait_for);
use TestWorkers qw(are_gone write_file);
use Time::HiRes qw(time);

plan skip_all => 'Linux only' if $^O ne 'linux';

my ($app, $pool) = (application(), handlers());

sub server {
    my (@arguments) = @_;
    return TestServer->command(@arguments, '--worker-pool', $pool, $app);
}

my %ENDS = (
    deadlines => sub {
        my (@arguments) = @_;
        my $server      = server(@arguments, '--pool-workers', 2, '--pool-timeout', 2);
        my $began       = time;
        is_deeply [ map { $_->[0] } calls($server, [ sleep => [60] ], [ spin => [], 0.5 ]) ],
            [ 'Timeout', 'Timeout' ], 'calls end by the deadline of the option, and by their own';
        cmp_ok time - $began, '<', patience(30), 'in time';
        my $late = 'was at a call whose time is up (pool_timeout, or the timeout of the call) and was killed';
        ok $server->wait_for_log(qr/pool process \d \(\d+\) \Q$late\E/), 'the processes are killed';
        like $server->log, qr/pool process \d: process \d+ is stuck at \S+pool\.pl line \d+/,
            'the log says where they were';
        wait_for_stats($server, workers => 2, idle => 2);
        is_deeply [ calls($server, [ echo => [1] ]) ], [ [ done => [1] ] ], 'others take their places';
        my $gate  = TestGate->new;
        my $first = begin($server, '/together', map { waits($gate) } 1, 2);
        wait_for_stats($server, busy => 2);
        my $waited = begin($server, '/together', map { [ note => ["late $_"], 0.3 ] } 1, 2);
        is_deeply [ outcomes($waited) ], [ 'Timeout', 'Timeout' ], 'the time of a call counts its wait';
        $gate->open('open');
        is_deeply [ outcomes($first) ], [ 'done', 'done' ], 'and 0 is no deadline';
        is_deeply [ calls($server, ['nothing'], ['nothing']) ], [ ([ done => undef ]) x 2 ],
            'the pool goes on';
        unlike $server->log, qr/noted late/, 'calls whose time was up are not made';
        is $server->stop, 0, 'the server stops';
    },
    cancelled => sub {
        my (@arguments) = @_;
        my $server      = server(@arguments, '--pool-workers', 1);
        my $gate        = TestGate->new;
        asked($server, '/cancel', [ waits($gate), map { [ note => ["cancelled $_"] ] } 1 .. 3 ]);
        $gate->open('open');
        is_deeply [ calls($server, [ echo => [1] ]) ], [ [ done => [1] ] ], 'the pool goes on';
        unlike $server->log, qr/noted/, 'calls that waited are not made';
        is $server->stop, 0, 'the server stops';
    },
    killed => sub {
        my (@arguments) = @_;
        my $server      = server(@arguments, '--pool-workers', 2);
        my @before      = pool_processes($server->pid);
        is scalar @before, 2, 'two processes';
        my $gate   = TestGate->new;
        my $client = begin($server, '/together', map { waits($gate) } 1 .. 3);
        wait_for_stats($server, busy => 2);
        kill KILL => $before[0];
        wait_for_stats($server, workers => 2, busy => 2);
        $gate->open('open');
        is_deeply [ sort { $a cmp $b } outcomes($client) ], [ 'WorkerDied', 'done', 'done' ],
            'the call of a process that is killed says so, and no other';
        wait_for_stats($server, workers => 2, idle => 2);
        is $server->stop, 0, 'the server stops';
    },
    recycled => sub {
        my (@arguments) = @_;
        my $server      = server(@arguments, '--pool-workers', 2, '--pool-max-calls', 20);
        my @calls       = map { [ echo => [$_] ] } 1 .. 50;
        my @before      = pool_processes($server->pid);
        my @lost;
        wait_for(sub {
            push @lost, grep { $_->[0] ne 'done' } map { calls($server, @calls) } 1;
            return are_gone(@before);
        });
        ok are_gone(@before), 'processes are replaced after their number of calls';
        is_deeply \@lost, [], 'no call is lost';
        is $server->stop, 0, 'the server stops';
    },
);

my %HOW = (
    'one process' => [],
    'two workers' => [ '--workers', 2 ],
    'process'     => [ '--workers', 2, '--engine', 'process' ],
);
for my $case (crossed([ sort keys %HOW ], [ sort keys %ENDS ])) {
    my ($how, $end) = @$case;
    subtest "$how: $end" => sub { $ENDS{$end}->(@{ $HOW{$how} }) };
}

# Calls that wait find a process as soon as it has started; processes without calls end, all but one.
for my $how (only_in_full([], [qw(--workers 1 --preload-app)]), [qw(--workers 2 --engine process)]) {
    subtest "idle: @$how" => sub {
        my $server = server(@$how, '--pool-workers', 4, '--pool-idle-timeout', 1);
        wait_for_stats($server, workers => 1, idle => 1);
        my $gate    = TestGate->new;
        my $clients = begin($server, '/together', map { waits($gate) } 1 .. 4);
        wait_for_stats($server, workers => 4, busy => 4, queue_depth => 0);
        $gate->open('open');
        is_deeply [ outcomes($clients) ], [ ('done') x 4 ], 'calls bring the processes back, and are made';
        wait_for_stats($server, workers => 1, idle => 1);
        is_deeply [ calls($server, [ echo => [1] ]) ], [ [ done => [1] ] ], 'the one that stays makes calls';
        ok wait_for(sub { 6 <= (() = $server->log =~ /cleans up after/g) }), 'the others have cleaned up';
        is $server->stop, 0, 'the server stops';
    };
}

# A pool that has let processes go takes as many calls as one that has all of them.
subtest 'idle beside a short queue' => sub {
    my $server = server(qw(--pool-workers 4 --pool-idle-timeout 1 --pool-queue 1));
    wait_for_stats($server, workers => 1, idle => 1);
    my $gate   = TestGate->new;
    my $client = begin($server, '/together', map { waits($gate) } 1 .. 6);
    wait_for_stats($server, busy => 4, queue_depth => 1);
    $gate->open('open');
    is_deeply [ sort { $a cmp $b } outcomes($client) ], [ 'Backpressure', ('done') x 5 ],
        'one call more is refused';
    is $server->stop, 0, 'the server stops';
};

# Whichever processes are at the calls: the last ones have to stay, and one has to stay for the next call.
subtest 'idle beside calls that go on' => sub {
    my $server = server(qw(--pool-workers 4 --pool-idle-timeout 1 --shutdown-timeout 1 --recycle-timeout 0));
    my $gate   = TestGate->new;
    my $client = begin($server, '/together', map { waits($gate) } 1 .. 2);
    wait_for_stats($server, busy => 2);
    my $began = time;
    my @failed;
    # Long enough for processes that are let go to be killed.
    wait_for(sub {
        push @failed, grep { $_->[0] ne 'done' } calls($server, [ echo => [1], patience(10) ]);
        select undef, undef, undef, 2;
        return @failed || time - $began > 8;
    });
    is_deeply \@failed, [], 'the next call finds a process';
    $gate->open('open');
    is_deeply [ outcomes($client) ], [ 'done', 'done' ], 'processes at calls are not let go';
    is $server->stop, 0, 'the server stops';
};

subtest 'an interpreter that is late' => sub {
    my $server = server('--workers', 1, '--pool-workers', 1);
    my $said   = asked($server, '/late', [ [ sleep => [60], 0.2 ] ]);
    ok $server->wait_for_log(qr/was at a call whose time is up/),
        'the process has been killed before it looks';
    is $said->[0],    'Timeout', 'and the call was not in time';
    is $server->stop, 0,         'the server stops';
};

subtest 'the master has gone' => sub {
    my $server = server('--workers', 1, '--pool-workers', 2);
    my @pool   = pool_processes($server->pid);
    kill KILL => $server->pid;
    ok wait_for(sub { are_gone(@pool) }), 'the processes of the pool leave';
    is scalar(() = $server->log =~ /cleans up/g), 2, 'and clean up';
};

for my $how (only_in_full([], [ '--workers', 2 ]), [ '--workers', 2, '--engine', 'process' ]) {
    subtest "status: @$how" => sub {
        my $server = server(@$how, '--pool-workers', 2, '--pool-queue', 1, '--status', '127.0.0.1:0');
        my $status = $server->wait_for_log(qr{status at http://127\.0\.0\.1:(\d+)/});
        calls($server, (['nothing']) x 3, ['object'], ['exit'], [ sleep => [60], 0.1 ], [ sleep => [1.5] ]);
        wait_for_stats($server, idle => 2);
        my $gate   = TestGate->new;
        my $client = begin($server, '/together', map { waits($gate) } 1 .. 4);
        wait_for_stats($server, busy => 2, queue_depth => 1);
        $gate->open('open');
        is_deeply [ sort { $a cmp $b } outcomes($client) ], [ 'Backpressure', ('done') x 3 ],
            'a call that is refused';
        my $pool = wait_for(sub {
            my $pool = JSON::PP::decode_json(get($status, '/status.json')->{body})->{pool};
            return $pool->{idle} == 2 ? $pool : 0;
        });
        my $seconds = delete $pool->{seconds};    # the lifespan of each interpreter makes a call, too
        is_deeply $pool,
            {
            workers     => 2,
            busy        => 0,
            idle        => 2,
            queue_depth => 0,
            queue_limit => 1,
            calls       => { done => @$how ? 9 : 8, died => 1, timeout => 1, lost => 1, refused => 1 },
            },
            'calls by what became of them';
        cmp_ok $seconds, '>', 1.4, 'and the time of processes';
        my $metrics = get($status, '/metrics')->{body};
        like $metrics, qr/^peregrine_pool_calls_total\{outcome="refused"\} 1$/m, 'metrics of calls';
        like $metrics, qr/^peregrine_pool_processes\{state="idle"\} 2$/m,        'of processes';
        is $server->stop, 0, 'the server stops';
    };
}

subtest 'a start that is stopped' => sub {
    for my $how ([], only_in_full([ '--workers', 1 ]), [ '--workers', 1, '--engine', 'process' ]) {
        my $file   = write_file('slow.pl', '+{ init => sub { sleep 60 }, handlers => { a => sub { } } };');
        my $server = TestServer->spawn($^X, (map { "-I$_" } @INC),
            'bin/pagi-server', @$how, '--port', 0, '--worker-pool', $file, $app);
        wait_for(sub { pool_processes($server->pid) == 4 });
        my @pool  = pool_processes($server->pid);
        my $began = time;
        is $server->stop, 0, "the server stops while its pool starts (@$how)";
        cmp_ok time - $began, '<', patience(20), '... soon';
        ok wait_for(sub { are_gone(@pool) }), '... and its processes with it';
    }
};

subtest 'a stop' => sub {
    my $server = server('--pool-workers', 1);
    asked($server, '/forget', [ [ sleep => [1] ], map { [ note => ["late $_"] ] } 1 .. 3 ]);
    is $server->stop,                              0, 'the server stops';
    is scalar(() = $server->log =~ /noted late/g), 3, 'calls that nobody waits for are made before';

    for my $how ([], [ '--workers', 1 ]) {
        $server = server(@$how, '--pool-workers', 1, '--shutdown-timeout', 3);
        asked($server, '/forget', [ [ sleep => [60] ] ]);
        wait_for_stats($server, busy => 1);
        my $began = time;
        is $server->stop, 0, "the server stops beside a call that goes on (@$how)";
        cmp_ok time - $began, '<', patience(20), '... after shutdown_timeout';
    }
};

done_testing;
