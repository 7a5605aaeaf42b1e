# Restarts of a worker pool: HUP, USR2 and --reload, with and without processes that end while they are idle;
# and new logs, by USR1. No call is lost.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;
use TestGate;
use TestPool qw(application asked begin calls handlers outcomes pool_processes wait_for_stats waits);
use TestServer;
use TestTools   qw(content wait_for);
use TestWorkers qw(directory is_gone pid_in stop_master write_file);

plan skip_all => 'Linux only' if $^O ne 'linux';

my $app = application();

for my $how (
    [],
    only_in_full(
        ['--preload-app'],                          [ '--engine', 'process' ],
        [ '--engine', 'process', '--preload-app' ], [qw(--pool-idle-timeout 1)],
    ),
    [qw(--pool-idle-timeout 1 --engine process --preload-app)],
    )
{
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

subtest '--reload' => sub {
    my $file   = write_file('reloaded.pl', '+{ handlers => { version => sub { 1 } } };');
    my $server = TestServer->command('--reload', '--worker-pool', $file, $app);
    is_deeply [ calls($server, ['version']) ], [ [ done => 1 ] ], 'the first version';
    write_file('reloaded.pl', '+{ handlers => { version => sub { "second" } } };');
    ok wait_for(sub { my ($said) = calls($server, ['version']); $said->[1] eq 'second' }),
        'a file that changes is loaded again';
    is $server->stop, 0, 'the server stops';
};

# Code of a pool with this version, whose processes wait at a gate before they start.
sub waiting_handlers {
    my ($version, $gate) = @_;
    return handlers(<<"PERL");
\$pool{handlers}{version} = sub { warn "version $version\\n"; return };
\$pool{init} = sub { select undef, undef, undef, 0.02 until -e '$gate->{folder}/start'; return {} };
PERL
}

subtest '--reload beside calls that wait' => sub {
    my ($first, $gate) = (TestGate->new, TestGate->new);
    $first->open('start');
    my $file   = waiting_handlers(1, $first);
    my $server = TestServer->command(qw(--reload --pool-workers 1), '--worker-pool', $file, $app);
    my ($old)  = pool_processes($server->pid);
    asked($server, '/forget', [ waits($gate), map { ['version'] } 1 .. 3 ]);
    wait_for_stats($server, busy => 1, queue_depth => 3);
    waiting_handlers(2, $gate);
    ok $server->wait_for_log(qr/changed: .*: the application is loaded again/), 'the code has changed';
    ok wait_for(sub { pool_processes($server->pid) == 2 }), 'a new process of the pool starts';
    $gate->open('open');
    ok wait_for(sub { is_gone($old) }), 'the process with the old code leaves after its call';
    $gate->open('start');
    ok $server->wait_for_log(qr/(?:\bversion \d\b.*){3}/s), 'calls that waited are made';
    unlike $server->log, qr/\bversion 1\b/, '... by the new code';
    is $server->stop, 0, 'the server stops';
};

subtest 'HUP, and a stop at once' => sub {
    my ($first, $gate) = (TestGate->new, TestGate->new);
    $first->open('start');
    my $file   = waiting_handlers(1, $first);
    my $server = TestServer->command(qw(--workers 1 --pool-workers 1 --shutdown-timeout 5),
        '--worker-pool', $file, $app);
    waiting_handlers(2, $gate);
    $server->signal('HUP');
    ok wait_for(sub { pool_processes($server->pid) == 2 }), 'a new process of the pool starts';
    is $server->stop, 0, 'the server stops';
    unlike $server->log, qr/go on as they are/, 'and says nothing else';
};

for my $how ([], only_in_full([qw(--workers 1)]), [qw(--workers 1 --engine process --preload-app)]) {
    subtest "USR1: @$how" => sub {
        my $log    = directory() . '/pool.log';
        my $server = TestServer->spawn(
            $^X, (map { "-I$_" } @INC),
            'bin/pagi-server', qw(--port 0 --pool-workers 1 --pool-max-calls 0), @$how,
            '--error-log'   => $log,
            '--worker-pool' => handlers(),
            $app
        );
        my $port;
        ok wait_for(sub { ($port) = content($log) =~ /listening on \S+:(\d+)/ }), 'the server runs';
        $server->{port} = $port;
        rename $log, "$log.1" or die "$log: $!";
        $server->signal('USR1');
        my $notes = sub { calls($server, [ note => [@_] ]); return content($log) =~ /noted @_/ };
        ok wait_for(sub { $notes->('in time') }), 'a process of the pool writes to the new log';
        my ($pid) = pool_processes($server->pid);
        calls($server, ['exit']);
        ok wait_for(sub { is_gone($pid) }),     'a process that has ended';
        ok wait_for(sub { $notes->('later') }), '... is followed by one that writes there, too';
        unlike content("$log.1"), qr/noted later/, '... only';
        is $server->stop, 0, 'the server stops';
        unlink $log, "$log.1";
    };
}

for my $how (only_in_full([qw(--pool-workers 1)]), [qw(--pool-workers 3 --pool-idle-timeout 1)]) {
    subtest "USR2: @$how" => sub {
        my $server = TestServer->command('--workers', 1, @$how, '--pid', directory() . '/pool.pid',
            '--worker-pool', handlers(), $app);
        wait_for_stats($server, workers => 1, idle => 1);
        my $old    = $server->pid;
        my $gate   = TestGate->new;
        my $client = begin($server, '/calls', waits($gate));
        wait_for_stats($server, busy => 1);
        $server->signal('USR2');
        ok wait_for(sub { my $pid = pid_in('pool.pid'); return $pid && $pid != $old }),
            'a new program serves';
        $gate->open('open');
        is_deeply [ outcomes($client) ], ['done'], 'a call of the old program ends';
        ok wait_for(sub { is_gone($old) }), 'the old one goes';
        is_deeply [ calls($server, [ echo => [1] ]) ], [ [ done => [1] ] ], 'the new one has a pool';
        wait_for_stats($server, workers => 1, idle => 1);
        ok stop_master('pool.pid'), 'it stops';
    };
}

done_testing;
