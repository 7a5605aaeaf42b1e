# Workers are replaced, added and removed while clients ask all the time: no request may fail.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use OnlyInFull qw(only_in_full);
use Peregrine;
use Test::More;
use TestClient qw(get);
use TestGate;
use TestLoad;
use TestServer;
use TestTools qw(content patience wait_for);
use TestWebSocket;
use TestWorkers qw(are_gone children descriptors directory load no_failure write_file);

my $dir = directory();
my $app = write_file('app.pl', TestLoad::application(1));

# Whether there are this many workers, none of which was there before.
sub are_new {
    my ($server, $count, @before) = @_;
    my %before = map { $_ => 1 } @before;
    my @now    = children($server->pid);
    return @now == $count && !grep { $before{$_} } @now;
}

subtest 'HUP loads new code' => sub {
    my $server  = TestServer->command('-E', 'production', '--workers', 2, $app);
    my $port    = $server->port;
    my @clients = load($port);
    my $socket  = TestWebSocket->open($port, '/');
    like($socket->next, qr/\Atext \d+ 1\z/, 'a WebSocket is open');
    my $silent = TestClient->new($port)->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    like($silent->response->{body}, qr/ 1\z/, 'version 1 answers');
    my @before = children($server->pid);
    write_file('app.pl', TestLoad::application(2));
    $server->signal('HUP');
    is($socket->next, 'close 1012', 'the WebSocket is closed with 1012');
    my ($last, $end) = ({}, time + patience(30));

    while ($last && ($last->{header}{connection} // '') ne 'close' && time < $end) {
        $last = $silent->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")->response;
    }
    is($last && $last->{header}{connection},
        'close', 'a connection that is open is answered once more, and told to close');
    ok(wait_for(sub { are_new($server, 2, @before) }), 'all workers are new');
    like(get($port, '/')->{body}, qr/ 2\z/, '... and have the new code');
    no_failure('HUP', @clients);
    like(
        $server->log,
        qr/SIGHUP: the workers are replaced by others, which load the application anew/,
        'the log says so'
    );
    is($server->stop, 0, 'the server ends well');
};

subtest 'HUP with code that does not start' => sub {
    my $server  = TestServer->command('-E', 'production', '--workers', 2, $app);
    my $port    = $server->port;
    my @clients = load($port);
    my %serving;
    ok(wait_for(sub { $serving{ get($port, '/')->{body} =~ s/ .*//r } = 1; keys %serving == 2 }),
        'both workers serve');
    my @before = sort(children($server->pid));
    write_file('app.pl', "die 'broken';\n");
    $server->signal('HUP');
    ok(
        $server->wait_for_log(
            qr/the restart is given up, a new worker [12] cannot start: Error loading \S+: broken.*: 2$/m),
        'the log says that the restart is given up'
    );
    is_deeply([ sort(children($server->pid)) ], \@before, 'the workers are the old ones');
    like(get($port, '/')->{body}, qr/ 2\z/, '... and serve');
    write_file('app.pl', TestLoad::application(3));
    $server->signal('HUP');
    ok(wait_for(sub { are_new($server, 2, @before) }), 'the next HUP replaces them');
    like(get($port, '/')->{body}, qr/ 3\z/, '... with what starts');
    no_failure('two HUPs', @clients);
    is($server->stop, 0, 'the server ends well');
};

SKIP: {
    skip 'built without TLS', 1 if !Peregrine::has_tls();
    subtest 'HUP over TLS' => sub {
        my $certificates = Certificates->new->authority('server');
        my $server       = TestServer->command(
            '-E', 'production', '--workers', 2,
            '--ssl-cert' => $certificates->path('server.pem'),
            '--ssl-key'  => $certificates->path('server.key'),
            $app
        );
        my @clients = load($server->port, tls => 1);
        my @before  = children($server->pid);
        $server->signal('HUP');
        ok(wait_for(sub { are_new($server, 2, @before) }), 'all workers are new');
        no_failure('HUP', @clients);
        like($server->log, qr/certificate files are loaded again/, 'certificates are loaded again');
        is($server->stop, 0, 'the server ends well');
    };
}

subtest 'HUP, HUP' => sub {
    my $server  = TestServer->command('-E', 'production', '--workers', 3, $app);
    my @clients = load($server->port);
    for (1 .. 3) {
        $server->signal('HUP');
        select undef, undef, undef, 0.1;
    }
    my @before = children($server->pid);
    select undef, undef, undef, 0.3;
    $server->signal('HUP');
    ok(wait_for(sub { are_new($server, 3, @before) }), 'a restart during another one ends with new workers');
    no_failure('HUPs', @clients);
    is($server->stop, 0, 'the server ends well');
};

# The worker has their connections already; the other one, whose listeners take new ones, cannot have them.
subtest 'HUP and handshakes' => sub {
    my $gate   = TestGate->new;
    my $folder = $gate->{folder};
    my $text   = TestLoad::application(1) =~ s/(?=await \$send->.*accept)/print STDERR "asked\\n";
        await \$gate->passed('accept') if \$scope->{path} eq '\/gate'; /r;
    my $gated =
        write_file('gated.pl', "use TestGate; my \$gate = bless { folder => '$folder' }, 'TestGate';\n$text");
    my $server = TestServer->command('-E', 'production', '--workers', 1, $gated);
    my $port   = $server->port;
    my $open   = TestWebSocket->open($port, '/');
    like($open->next, qr/\Atext \d+ 1\z/, 'a WebSocket is open');
    my $asks = TestWebSocket->start($port, '/gate');
    ok($server->wait_for_log(qr/asked.*asked/s), 'a handshake waits for the application');
    my @silent = map { TestClient->new($port) } 1 .. 3;
    # A connection that the worker has accepted is counted, and this one came last.
    get($port, '/');
    $server->signal('HUP');
    is($open->next, 'close 1012', 'HUP closes the WebSocket with 1012');

    for my $client (@silent) {
        my $late = TestWebSocket->on($client, '/');
        is(($late->answer || {})->{status}, 101, 'a handshake that comes to the old worker is completed');
        is($late->next,                     'close 1012', '... and closed with 1012');
    }
    $gate->open('accept');
    is(($asks->answer || {})->{status}, 101,          'that which has waited is completed');
    is($asks->next,                     'close 1012', '... and closed with 1012');
    is($server->stop,                   0,            'the server ends well');
};

# Loads code that never comes to its end.
sub hang {
    return write_file('app.pl', "print STDERR qq{hangs \$\$\\n};\nsleep 1000 while 1;\n");
}

for my $template (only_in_full([]), ['--preload-app']) {
    subtest "HUP while new code hangs @$template" => sub {
        write_file('app.pl', TestLoad::application(4));
        my $server = TestServer->command('-E', 'production', '--workers', 2, @$template, $app);
        my @before = children($server->pid);
        my $newest = 4;
        my @hung;
        for (1, 2) {
            hang();
            $server->signal('HUP');
            my $before = @hung;
            ok(wait_for(sub { (@hung = $server->log =~ /hangs (\d+)/g) > $before }), 'new code hangs');
            write_file('app.pl', TestLoad::application(++$newest));
            $server->signal('HUP');
            ok(wait_for(sub { are_gone(@hung) }),                                 'HUP ends it at once');
            ok(wait_for(sub { get($server->port, '/')->{body} =~ / $newest\z/ }), 'repaired code serves');
            ok(wait_for(sub { are_gone(@before) }),                               '... alone');
            @before = children($server->pid);
        }
        unlike($server->log, qr/given up|did not/, 'nothing was given up');
        is($server->stop, 0, 'the server ends well');
    };
}

# A template hangs alone.
for my $case ([qr/hangs.*hangs/s], [ qr/hangs/, '--preload-app' ]) {
    my ($both, @template) = @$case;
    subtest "HUP while the first workers hang @template" => sub {
        my $hung   = hang();
        my $server = TestServer->spawn(
            $^X, (map { "-I$_" } @INC), 'bin/pagi-server', '-E', 'production',
            '--port'    => 0,
            '--workers' => 2,
            @template, $hung
        );
        ok($server->wait_for_log($both), 'a worker that loads hangs');
        write_file('app.pl', TestLoad::application(1));
        $server->signal('HUP');
        my $port = $server->wait_for_log(qr{listening on http://\S+:(\d+)});
        ok($port, 'HUP starts others, with the repaired code');
        like(get($port, '/')->{body}, qr/ 1\z/, '... which serve') if $port;
        is($server->stop, 0, 'the server ends well');
    };
}

for my $reuseport (only_in_full(0), 1) {
    subtest 'TTIN and TTOU' . ($reuseport ? ' with reuseport' : '') => sub {
        my $server =
            TestServer->command('-E', 'production', '--workers', 1, $reuseport ? '--reuseport' : (), $app);
        my @clients = load($server->port);
        for my $count (2, 3) {
            $server->signal('TTIN');
            ok(wait_for(sub { children($server->pid) == $count }), "TTIN: $count");
        }
        for my $count (2, 1) {
            $server->signal('TTOU');
            ok(wait_for(sub { children($server->pid) == $count }), "TTOU: $count");
        }
        $server->signal('TTOU');
        ok($server->wait_for_log(qr/there is one worker only, which stays/), 'the last one stays');
        no_failure('TTIN and TTOU', @clients);
        is($server->stop, 0, 'the server ends well');
    };
}

# Opens many connections, and returns the processes that have answered: those that were turned away have none.
sub admitted {
    my ($port)  = @_;
    my @clients = map { TestClient->new($port)->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n") } 1 .. 16;
    return map { ($_->{header}{'x-process'} // ()) x ($_->{status} == 200) } map { $_->response } @clients;
}

for my $preload (only_in_full(0), 1) {
    subtest 'limits that are shared, at TTIN and TTOU' . ($preload ? ' with a template' : '') => sub {
        my $server = TestServer->command(
            '-E', 'production',
            qw(--workers 2 --max-connections-per-address 4),
            $preload ? '--preload-app' : (), $app
        );
        my ($count, $most, %serving) = (2, 0);
        my $all_serve = sub {
            my @by = admitted($server->port);
            $most = @by if @by > $most;
            @serving{@by} = ();
            return keys %serving == $count;
        };
        ok(wait_for($all_serve), 'two workers serve');
        for (3, 4) {
            $server->signal('TTIN');
            ok($server->wait_for_log(qr/SIGTTIN: workers: $_$/m), "TTIN: $_");
        }
        $count = 4;
        ok(wait_for($all_serve), 'four workers serve');
        cmp_ok($most, '<=', 4, '... no more connections than the limit is for all of them');
        for (3, 2, 1) {
            $server->signal('TTOU');
            ok($server->wait_for_log(qr/SIGTTOU: workers: $_$/m), "TTOU: $_");
        }
        ok(wait_for(sub { admitted($server->port) == 4 }), 'one worker has the whole limit');
        is($server->stop, 0, 'the server ends well');
    };
}

subtest 'max_requests' => sub {
    my $server = TestServer->command('-E', 'production', qw(--workers 2 --max-requests 300 --access-log),
        "$dir/count", $app);
    my $port    = $server->port;
    my @clients = load($port);
    my @before  = children($server->pid);
    ok(
        wait_for(sub {
            are_new($server, 2, @before) || grep { !-e "/proc/$_" } @before;
        }),
        'workers are replaced'
    );
    ok(wait_for(sub { are_gone(@before) }), '... all of the first ones');
    no_failure('max_requests', @clients);
    is($server->stop, 0, 'the server ends well');
};

subtest 'age and memory' => sub {
    my $server  = TestServer->command('-E', 'production', qw(--workers 2 --max-worker-age 1), $app);
    my @clients = load($server->port);
    my @before  = children($server->pid);
    ok(wait_for(sub { are_gone(@before) }), 'workers that are old are replaced');
    no_failure('max_worker_age', @clients);
    is($server->stop, 0, 'the server ends well');
    $server = TestServer->command('-E', 'production', qw(--workers 1 --max-worker-rss 1M), $app);
    @before = children($server->pid);
    ok(wait_for(sub { $server->log =~ /at its start than max_worker_rss allows \(1048576 bytes\)/ }),
        'the log names the limit that is less than workers have at their start');
    sleep 2;
    is_deeply([ children($server->pid) ], \@before, '... and they serve for a while');
    is($server->stop,                          0, 'the server ends well');
    is(() = $server->log =~ /max_worker_rss/g, 1, '... and has said so once');
};

# A repeated constant would be a string of the template, too, which a newer Perl shares with who assigns it.
# Memory that a template has filled is there once, however many workers are forked from it.
subtest 'memory that is shared' => sub {
    my $text  = TestLoad::application(1) =~ s/(?=async sub)/our \$SHARED = 'x' x 120_000_000; our \$OWN;\n/r;
    my $large = write_file('large.pl',
        $text =~
            s{(?=my \(undef, \$first)}{\$OWN = 'y' x length \$SHARED if \$scope->{path} eq '/grow';\n    }r);
    my $server =
        TestServer->command('-E', 'production', qw(--workers 1 --preload-app --max-worker-rss 100M), $large);
    my ($pid) = split ' ', get($server->port, '/')->{body};
    cmp_ok((split ' ', content("/proc/$pid/statm"))[1] * 4096, '>', 100 << 20,
        'a worker has a lot of memory');
    # The master looks twice a second, and counts what is a worker's own every five seconds.
    sleep 3;
    is((split ' ', get($server->port, '/')->{body})[0], $pid, '... that is not its own, and stays');
    get($server->port, '/grow');
    ok(wait_for(sub { are_gone($pid) }), '... until it has as much of its own');
    is($server->stop, 0, 'the server ends well');
};

subtest 'a recycled worker waits for its WebSockets' => sub {
    my $server =
        TestServer->command('-E', 'production', qw(--workers 1 --max-worker-age 1 --recycle-timeout 3), $app);
    my $socket = TestWebSocket->open($server->port, '/');
    my (undef, $pid) = split ' ', $socket->next;
    ok(
        wait_for(sub {
            !grep { $_ == $pid } (split ' ', get($server->port, '/')->{body})[0];
        }),
        'another worker serves'
    );
    $socket->text('still here');
    is($socket->next, 'text still here', 'the WebSocket goes on');
    is($socket->next, 'close 1012',      '... until recycle_timeout');
    is($server->stop, 0,                 'the server ends well');
};

subtest 'TERM for the whole process group' => sub {
    write_file('app.pl', TestLoad::application(1));
    for my $engine ([], [qw(--engine process)]) {
        my $server = TestServer->command(@$engine, '-E', 'production', '--workers', 2, $app);
        get($server->port, '/') for 1 .. 2;
        my @workers = children($server->pid);
        # The workers end before the master can look at anything.
        kill STOP => $server->pid;
        kill TERM => @workers;
        ok(wait_for(sub { are_gone(@workers) }), "@$engine: the workers end");
        kill TERM => $server->pid;
        kill CONT => $server->pid;
        is($server->wait, 0, '... the server ends well');
        unlike($server->log, qr/takes its place/, '... no other ones are announced');
    }
};

# systemd sends TERM to all processes at once: the master may have told a worker before.
for my $engine (qw(inline thread)) {
    subtest "TERM for a worker that is told to stop: $engine" => sub {
        my $gate  = TestGate->new;
        my $waits = write_file('waits.pl', <<"APP");
use Future::AsyncAwait;
use TestGate;
my \$gate = bless { folder => '$gate->{folder}' }, 'TestGate';
async sub {
    my (\$scope, \$receive, \$send) = \@_;
    die "no lifespan\\n" if \$scope->{type} ne 'http';
    print STDERR "asked\\n";
    await \$gate->passed('waits');
    await \$send->({ type => 'http.response.start', status => 200 });
    await \$send->({ type => 'http.response.body', body => 'waited' });
}
APP
        my $server = TestServer->command(qw(-E production --workers 1 --engine), $engine, $waits);
        my $client = TestClient->new($server->port)->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        ok($server->wait_for_log(qr/asked/), 'a request is at work');
        my ($worker) = children($server->pid);
        kill TERM => $server->pid;
        ok($server->wait_for_log(qr/requests in flight: 1/), 'the worker is told to stop');
        kill TERM => $worker;
        ok(wait_for(sub { content("/proc/$worker/status") =~ /^ShdPnd:\s+0+$/m }), '... and hears TERM');
        $gate->open('waits');
        is(($client->response || {})->{status}, 200, 'the request is answered');
        is($server->wait,                       0,   'the server ends well');
        unlike($server->log, qr/again|force-closing/, 'nothing was cut');
    };
}

subtest 'USR1 opens logs anew' => sub {
    my $log    = "$dir/access.log";
    my $server = TestServer->spawn(
        $^X, (map { "-I$_" } @INC),
        'bin/pagi-server', qw(-E production --port 0 --workers 2 --channels --status 127.0.0.1:0),
        '--access-log',    $log, '--error-log', "$dir/error.log", $app
    );
    my $port;
    ok(wait_for(sub { ($port) = content("$dir/error.log") =~ /listening on \S+:(\d+)/ }), 'the server runs');
    get($port, '/before') for 1 .. 20;
    ok(wait_for(sub { 20 == (() = content($log) =~ m{/before}g) }), 'the log has 20 lines');
    rename $_, "$_.1" or die $! for $log, "$dir/error.log";
    $server->signal('USR1');
    ok(wait_for(sub { -e $log && -e "$dir/error.log" }), 'there are new files');
    ok(
        wait_for(sub {
            !grep { m{\Q$dir\E/\w+\.log\.1\z} }
                map { my %open = descriptors($_); values %open } children($server->pid);
        }),
        'no process has the old ones open'
    );
    get($port, '/after') for 1 .. 20;
    ok(wait_for(sub { 20 == (() = content($log) =~ m{/after}g) }), 'what comes after is in the new one')
        or diag content($log);
    unlike(content("$log.1"), qr{/after}, '... only');
    is($server->stop, 0, 'the server ends well');
};

done_testing;
