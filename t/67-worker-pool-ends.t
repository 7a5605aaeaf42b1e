# Ends in a worker pool: of calls by their deadlines and by their callers, of processes by crashes, by their
# number of calls and by HUP, of the master. A call that is lost says so, and no other call notices.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use JSON::PP ();
use Test::More;
use TestClient qw(get);
use TestPool   qw(application asked calls handlers pool_processes);
use TestServer;
use TestTools   qw(wait_for);
use TestWorkers qw(are_gone directory is_gone pid_in stop_master write_file);
use Time::HiRes qw(time);

plan skip_all => 'Linux only' if $^O ne 'linux';

my ($app, $pool) = (application(), handlers());

sub server {
    my (@arguments) = @_;
    return TestServer->command(@arguments, '--worker-pool', $pool, $app);
}

# A request that is sent and not answered yet.
sub begin {
    my ($server, $path, @calls) = @_;
    my $client = TestClient->new($server->port);
    my $body   = JSON::PP::encode_json(\@calls);
    $client->send("POST $path HTTP/1.1\r\nHost: h\r\nContent-Length: ${\length $body}\r\n\r\n$body");
    return $client;
}

sub outcomes {
    my ($client) = @_;
    return map { $_->[0] } @{ JSON::PP::decode_json($client->response->{body}) };
}

sub wait_for_stats {
    my ($server, %wanted) = @_;
    my $stats;
    wait_for(sub {
        $stats = asked($server, '/stats');
        return !grep { $stats->{$_} != $wanted{$_} } keys %wanted;
    });
    is $stats->{$_}, $wanted{$_}, "$_: $wanted{$_}" for sort keys %wanted;
    return;
}

for my $how (
    [ 'one process' => () ],
    [ 'two workers' => '--workers', 2 ],
    [ 'process'     => '--workers', 2, '--engine', 'process' ],
    )
{
    my ($title, @arguments) = @$how;

    subtest "$title: deadlines" => sub {
        my $server = server(@arguments, '--pool-workers', 2, '--pool-timeout', 2);
        my $began  = time;
        is_deeply [ map { $_->[0] } calls($server, [ sleep => [60] ], [ spin => [], 0.5 ]) ],
            [ 'Timeout', 'Timeout' ], 'calls end by the deadline of the option, and by their own';
        cmp_ok time - $began, '<', 30, 'in time';
        ok $server->wait_for_log(qr/pool process \d \(\d+\) was at a call whose time is up and was killed/),
            'the processes are killed';
        like $server->log, qr/pool process \d: process \d+ is stuck at \S+pool\.pl line \d+/,
            'the log says where they were';
        wait_for_stats($server, workers => 2, idle => 2);
        is_deeply [ calls($server, [ echo => [1] ]) ], [ [ done => [1] ] ], 'others take their places';
        my $first = begin($server, '/together', map { [ sleep => [1.5], 0 ] } 1, 2);
        wait_for_stats($server, busy => 2);
        my $waited = begin($server, '/together', map { [ note => ["late $_"], 0.3 ] } 1, 2);
        is_deeply [ outcomes($waited) ], [ 'Timeout', 'Timeout' ], 'the time of a call counts its wait';
        is_deeply [ outcomes($first) ],  [ 'done',    'done' ],    'and 0 is no deadline';
        is_deeply [ calls($server, ['nothing'], ['nothing']) ], [ ([ done => undef ]) x 2 ],
            'the pool goes on';
        unlike $server->log, qr/noted late/, 'calls whose time was up are not made';
        is $server->stop, 0, 'the server stops';
    };

    subtest "$title: cancelled" => sub {
        my $server = server(@arguments, '--pool-workers', 1);
        asked($server, '/cancel', [ [ sleep => [1] ], map { [ note => ["cancelled $_"] ] } 1 .. 3 ]);
        is_deeply [ calls($server, [ echo => [1] ]) ], [ [ done => [1] ] ], 'the pool goes on';
        unlike $server->log, qr/noted/, 'calls that waited are not made';
        is $server->stop, 0, 'the server stops';
    };

    subtest "$title: killed" => sub {
        my $server = server(@arguments, '--pool-workers', 2);
        my @before = pool_processes($server->pid);
        is scalar @before, 2, 'two processes';
        my $client = begin($server, '/together', map { [ sleep => [1.5] ] } 1 .. 3);
        wait_for_stats($server, busy => 2);
        kill KILL => $before[0];
        is_deeply [ sort { $a cmp $b } outcomes($client) ], [ 'WorkerDied', 'done', 'done' ],
            'the call of a process that is killed says so, and no other';
        wait_for_stats($server, workers => 2, idle => 2);
        is $server->stop, 0, 'the server stops';
    };

    subtest "$title: recycled" => sub {
        my $server = server(@arguments, '--pool-workers', 2, '--pool-max-calls', 20);
        my @calls  = map { [ echo => [$_] ] } 1 .. 50;
        my @before = pool_processes($server->pid);
        my @lost;
        wait_for(sub {
            push @lost, grep { $_->[0] ne 'done' } map { calls($server, @calls) } 1;
            return are_gone(@before);
        });
        ok are_gone(@before), 'processes are replaced after their number of calls';
        is_deeply \@lost, [], 'no call is lost';
        is $server->stop, 0, 'the server stops';
    };
}

# Calls that wait find a process as soon as it has started; processes without calls end, all but one.
for my $how ([], [qw(--workers 2 --engine process)], [qw(--workers 1 --preload-app)]) {
    subtest "idle: @$how" => sub {
        my $server = server(@$how, '--pool-workers', 4, '--pool-idle-timeout', 1);
        wait_for_stats($server, workers => 1, idle => 1);
        my $file    = directory() . '/go-on' . @$how;
        my $clients = begin($server, '/together', map { [ wait => [$file], 0 ] } 1 .. 4);
        wait_for_stats($server, workers => 4, busy => 4, queue_depth => 0);
        write_file('go-on' . @$how, '');
        is_deeply [ outcomes($clients) ], [ ('done') x 4 ], 'calls bring the processes back, and are made';
        wait_for_stats($server, workers => 1, idle => 1);
        is_deeply [ calls($server, [ echo => [1] ]) ], [ [ done => [1] ] ], 'the one that stays makes calls';
        ok wait_for(sub { 6 <= (() = $server->log =~ /cleans up after/g) }), 'the others have cleaned up';
        is $server->stop, 0, 'the server stops';
    };
}

# Whichever processes are at the calls: the last ones have to stay, and one has to stay for the next call.
subtest 'idle beside calls that go on' => sub {
    my $server = server(qw(--pool-workers 4 --pool-idle-timeout 1 --shutdown-timeout 1 --recycle-timeout 0));
    my $file   = directory() . '/beside';
    my $client = begin($server, '/together', map { [ wait => [$file], 0 ] } 1 .. 2);
    wait_for_stats($server, busy => 2);
    my $began = time;
    my @failed;
    # Long enough for processes that are let go to be killed.
    wait_for(sub {
        push @failed, grep { $_->[0] ne 'done' } calls($server, [ echo => [1], 5 ]);
        select undef, undef, undef, 2;
        return @failed || time - $began > 8;
    });
    is_deeply \@failed, [], 'the next call finds a process';
    write_file('beside', '');
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

for my $how ([], ['--preload-app'], [ '--engine', 'process' ], [ '--engine', 'process', '--preload-app' ]) {
    subtest "HUP: @$how" => sub {
        my $file = write_file('changing.pl', '+{ handlers => { version => sub { 1 } } };');
        my $server =
            TestServer->command('--workers', 2, @$how, '--worker-pool', $file, '--pool-workers', 2, $app);
        is_deeply [ calls($server, ['version']) ], [ [ done => 1 ] ], 'the first version';
        write_file('changing.pl', '+{ handlers => { version => sub { 2 }, more => sub { 3 } } };');
        my $waits = begin($server, '/calls', map { ['version'] } 1 .. 200);
        $server->signal('HUP');
        my $new = wait_for(sub { my ($said) = calls($server, ['more']); $said->[0] eq 'done' ? $said : 0 });
        is_deeply $new,                                       [ done => 3 ], 'a HUP brings new handlers';
        is_deeply [ grep { $_ ne 'done' } outcomes($waits) ], [],            'calls are not lost meanwhile';
        my $seen = wait_for(sub {
            !grep { $_->[1] != 2 } calls($server, map { ['version'] } 1 .. 8);
        });
        ok $seen, 'old processes leave';
        write_file('changing.pl', 'die "spoilt\n";');
        $server->signal('HUP');
        ok $server->wait_for_log(qr/the restart is given up, .*spoilt/), 'code that does not load is refused';
        ok $server->wait_for_log(qr/the workers go on as they are, too/), 'with all of the restart';
        is_deeply [ calls($server, ['more']) ], [ [ done => 3 ] ], 'the pool goes on as it was';
        write_file('changing.pl', '+{ handlers => { version => sub { 4 } } };');
        $server->signal('HUP');
        ok wait_for(sub { my ($said) = calls($server, ['version']); $said->[1] == 4 }),
            'until the code is mended';
        is $server->stop, 0, 'the server stops';
    };
}

subtest 'the master has gone' => sub {
    my $server = server('--workers', 1, '--pool-workers', 2);
    my @pool   = pool_processes($server->pid);
    kill KILL => $server->pid;
    ok wait_for(sub { are_gone(@pool) }), 'the processes of the pool leave';
    is scalar(() = $server->log =~ /cleans up/g), 2, 'and clean up';
};

for my $how ([], [ '--workers', 2 ], [ '--workers', 2, '--engine', 'process' ]) {
    subtest "status: @$how" => sub {
        my $server = server(@$how, '--pool-workers', 2, '--pool-queue', 1, '--status', '127.0.0.1:0');
        my $status = $server->wait_for_log(qr{status at http://127\.0\.0\.1:(\d+)/});
        calls($server, (['nothing']) x 3, ['object'], ['exit'], [ sleep => [60], 0.1 ]);
        wait_for_stats($server, idle => 2);
        asked($server, '/together', [ map { [ sleep => [0.5] ] } 1 .. 4 ]);
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
            calls       => { done => @$how ? 8 : 7, died => 1, timeout => 1, lost => 1, refused => 1 },
            },
            'calls by what became of them';
        cmp_ok $seconds, '>', 1.4, 'and the time of processes';
        my $metrics = get($status, '/metrics')->{body};
        like $metrics, qr/^peregrine_pool_calls_total\{outcome="refused"\} 1$/m, 'metrics of calls';
        like $metrics, qr/^peregrine_pool_processes\{state="idle"\} 2$/m,        'of processes';
        is $server->stop, 0, 'the server stops';
    };
}

subtest '--reload' => sub {
    my $file   = write_file('reloaded.pl', '+{ handlers => { version => sub { 1 } } };');
    my $server = TestServer->command('--reload', '--worker-pool', $file, $app);
    is_deeply [ calls($server, ['version']) ], [ [ done => 1 ] ], 'the first version';
    write_file('reloaded.pl', '+{ handlers => { version => sub { "second" } } };');
    ok wait_for(sub { my ($said) = calls($server, ['version']); $said->[1] eq 'second' }),
        'a file that changes is loaded again';
    is $server->stop, 0, 'the server stops';
};

subtest 'a start that is stopped' => sub {
    for my $how ([], [ '--workers', 1 ], [ '--workers', 1, '--engine', 'process' ]) {
        my $file   = write_file('slow.pl', '+{ init => sub { sleep 60 }, handlers => { a => sub { } } };');
        my $server = TestServer->spawn($^X, (map { "-I$_" } @INC),
            'bin/pagi-server', @$how, '--port', 0, '--worker-pool', $file, $app);
        wait_for(sub { pool_processes($server->pid) == 4 });
        my @pool  = pool_processes($server->pid);
        my $began = time;
        is $server->stop, 0, "the server stops while its pool starts (@$how)";
        cmp_ok time - $began, '<', 20, '... soon';
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
        cmp_ok time - $began, '<', 20, '... after shutdown_timeout';
    }
};

subtest 'USR2' => sub {
    my $server = server('--workers', 1, '--pool-workers', 1, '--pid', directory() . '/pool.pid');
    my $old    = $server->pid;
    my $client = begin($server, '/calls', [ sleep => [2] ]);
    wait_for_stats($server, busy => 1);
    $server->signal('USR2');
    is_deeply [ outcomes($client) ], ['done'], 'a call of the old program ends';
    ok wait_for(sub { my $pid = pid_in('pool.pid'); return $pid && $pid != $old }), 'a new program serves';
    ok wait_for(sub { is_gone($old) }),                                             'the old one goes';
    is_deeply [ calls($server, [ echo => [1] ]) ], [ [ done => [1] ] ], 'the new one has a pool';
    stop_master('pool.pid');
};

done_testing;
