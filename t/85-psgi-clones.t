# PSGI in interpreters that are cloned into threads of one process (plackup -s EVHTP, --engine thread): what
# each has of its own, what its end costs, and who gets signals.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use Fcntl      qw(LOCK_EX LOCK_UN);
use OnlyInFull qw(only_in_full);
use Peregrine::Server::Configuration;
use Peregrine::Threads;
use Plack::Handler::EVHTP;
use POSIX ();
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools   qw(content program_path wait_for);
use TestWorkers qw(are_gone descriptors directory write_file);
use Time::HiRes qw(sleep);

plan skip_all => 'this Perl has no threads, or this is not Linux' if !Peregrine::Threads::are_possible();

my $dir = directory();

# The application answers with its process and its thread. /wait takes until a file exists; /dbi asks a
# database through a handle that each interpreter has made for itself.
our $psgi = write_file('app.psgi', <<"APP");
use DBI;
use IO::Async::Loop ();
my (\$dbh, \$requests) = (undef, 0);
our \@cloned;
use POSIX ();
sub connected { return DBI->connect('dbi:SQLite:dbname=$dir/db', '', '', { RaiseError => 1 }) }
\$dbh = connected();
\$dbh->do('CREATE TABLE IF NOT EXISTS calls (thread TEXT)');
sub CLONE { \$dbh = connected(); push \@cloned, threads->tid }

sub wait_here {
    my (\$env) = \@_;
    open my \$mark, '>', '$dir/waits.' . threads->tid or die \$!;
    select undef, undef, undef, 0.02 until -e '$dir/go';
    return 'waited';
}

# Blocked inside a library, where no Perl function is called for a signal.
sub wait_for_lock {
    open my \$in, '<', '$dir/lock' or die \$!;
    flock \$in, 2;
    return 'locked';
}

my \@plain = ('Content-Type' => 'text/plain');
my %DO = (
    '/wait'  => \\&wait_here,
    '/lock'  => \\&wait_for_lock,
    '/die'   => sub { die "on purpose\\n" },
    '/exit'  => sub { exit 7 },
    '/leave' => sub { select undef, undef, undef, 0.02 until -e '$dir/leave'; exit 7 },
    '/flags' => sub { join ' ', map { \$_[0]{"psgi.\$_"} ? 1 : 0 } qw(multithread multiprocess run_once) },
    '/count' => sub { ++\$requests . ' ' . scalar \@cloned },
    '/rand'  => sub { rand },
    '/error' => sub { \$_[0]{'psgi.errors'}->print("told\\n"); 'ok' },
    '/dbi'   => sub {
        \$dbh->do('INSERT INTO calls VALUES (?)', undef, threads->tid);
        return (\$dbh->selectrow_array('SELECT COUNT(*) FROM calls'))[0];
    },
    '/term'  => sub { kill TERM => \$\$; 'told' },
    '/fork'  => sub {
        pipe my \$in, my \$out or die \$!;
        my \$pid = fork // die \$!;
        if (!\$pid) {
            open STDOUT, '>&', \$out or die \$!;
            \$ENV{FROM_CLONE} = 'set';
            exec 'echo \$FROM_CLONE' or POSIX::_exit(1);
        }
        close \$out;
        waitpid \$pid, 0;
        return readline \$in;
    },
    '/large' => sub { 'x' x 3_000_000 },
    '/harakiri' => sub { \$_[0]{'psgix.harakiri.commit'} = 1; \$_[0]{'psgix.harakiri'} },
);
sub {
    my (\$env) = \@_;
    if (\$env->{PATH_INFO} eq '/later') {
        return sub {
            my (\$respond) = \@_;
            IO::Async::Loop->new->watch_time(after => 0.05,
                code => sub { \$respond->([ 200, [\@plain], [ "\$\$ " . threads->tid . ' later' ] ]) });
        };
    }
    if (\$env->{PATH_INFO} eq '/begun') {
        return sub {
            my \$writer = \$_[0]->([ 200, [\@plain] ]);
            \$writer->write('begun');
            \$writer->write(wait_for_lock());
        };
    }
    my \$do = \$DO{ \$env->{PATH_INFO} };
    my \$said = \$do ? \$do->(\$env) : '';
    return [ 200, [\@plain], [ "\$\$ ", threads->tid, " \$said" ] ];
};
APP

sub start {
    my (@options) = @_;
    unlink glob "$dir/waits.* $dir/go";
    my $server = TestServer->spawn(
        $^X,
        (map { "-I$_" } @INC),
        qw(-S plackup -E deployment --listen 127.0.0.1:0),
        @options, $psgi
    );
    my $port = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/}) or die $server->log;
    return ($server, $port);
}

# The response to a request on a connection that stays.
sub asked {
    my ($client, $path) = @_;
    $client->send("GET $path HTTP/1.1\r\nHost: h\r\n\r\n");
    return $client->response || { status => 'none', body => '', header => {} };
}

# Process, thread, and what else the application says.
sub words { return split / /, asked(@_)->{body}, 3 }

sub threads_of { my ($pid) = @_; return scalar(() = glob "/proc/$pid/task/*") }

# Of each thread of a process, the process's own left out: whether it would take a TERM now.
sub takers_of_term {
    my ($pid) = @_;
    # The lower 32 bits, among which TERM is.
    my @blocked = map { content($_) =~ /^SigBlk:\s+[0-9a-f]{8}([0-9a-f]{8})$/m ? hex $1 : () }
        grep { !m{/\Q$pid\E/status\z} } glob "/proc/$pid/task/*/status";
    return [ map { $_ >> POSIX::SIGTERM() - 1 & 1 ? 0 : 1 } @blocked ];
}

subtest 'plackup -s EVHTP' => sub {
    my ($server, $port) = start(qw(-s EVHTP --max-workers 3 --retire-idle 0.2));
    my @kept = map { TestClient->new($port) } 1 .. 4;
    my ($pid) = words($kept[0], '/');
    wait_for(sub { threads_of($pid) == 5 }, 60);
    sleep 0.2;    # all of them wait by then
    is_deeply takers_of_term($pid), [ (0) x 4 ], 'signals are for the process, and no interpreter';
    is((words($kept[0], '/flags'))[2], '1 0 0', 'psgi.multithread, and no psgi.multiprocess');
    is_deeply [ map { (words($_, '/later'))[2] } @kept ], [ ('later') x 4 ], 'an interpreter has a loop';
    is asked($kept[0], '/error')->{status}, 200, 'psgi.errors';
    ok $server->wait_for_log(qr/^told$/m), '... is written at once';

    $_->send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n") for @kept[ 0 .. 1 ];
    ok wait_for(sub { 2 == (() = glob "$dir/waits.*") }, 60), 'two requests block at the same time';
    is asked($kept[3], '/')->{status}, 200, '... while the third interpreter serves' for 1 .. 10;
    $kept[2]->send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    ok wait_for(sub { 3 == (() = glob "$dir/waits.*") }, 60), 'all of them block';
    $kept[3]->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    write_file('go', '');
    my @waited = map { [ split / /, $_->response->{body} ] } @kept[ 0 .. 2 ];
    is_deeply [ map { $_->[2] } @waited ], [ ('waited') x 3 ], '... and answer';
    is $kept[3]->response->{status}, 200, '... as does one to a request that has waited';
    my %in = map { $_->[1] => 1 } @waited;
    is keys %in, 3, 'each in a thread of its own';
    is_deeply [ map { $_->[0] } @waited ], [ ($pid) x 3 ], '... of one process';
    my %cloned = map { my ($p, $t, $said) = words($kept[0], '/count'); ((split / /, $said)[1] => 1) } 1 .. 6;
    is_deeply [ keys %cloned ], [1], 'CLONE has run once in each';

    unlink "$dir/go", glob "$dir/waits.*";
    my $body = asked($kept[0], '/fork')->{body};
    like $body, qr/ set\n\z/, 'a program that the application starts gets the environment';
    is asked($kept[0], '/die')->{status}, 500, 'an application that dies';
    my $slow = TestClient->new($port, receive_buffer => 4096)->send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    my @slow = (
        $slow,
        map { TestClient->new($port, receive_buffer => 4096)->send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n") }
            1 .. 5
    );
    is asked($kept[1], '/')->{status}, 200, 'clients that do not read keep nobody from being served'
        for 1 .. 5;
    $_->close for @slow;

    my $answer = asked($kept[0], '/exit');
    is $answer->{status},              500, 'an application that calls exit';
    is asked($kept[0], '/')->{status}, 200, '... its connection goes on';
    ok $server->wait_for_log(qr/has called exit: another one takes its place/), '... and the log says so';
    ok $server->wait_for_log(qr/has called exit at \S+app\.psgi line \d+$/m),   '... and where';
    is((words($kept[0], '/'))[0], $pid, '... as does the process');
    ok wait_for(sub { threads_of($pid) == 5 }, 60), '... with as many interpreters as before';

    $server->signal('TTOU');
    ok wait_for(sub { threads_of($pid) == 4 }, 60), 'TTOU: one interpreter less';
    $server->signal('TTIN');
    ok wait_for(sub { threads_of($pid) == 5 }, 60), 'TTIN: one more';

    $server->signal('HUP');
    ok wait_for(
        sub { my ($now) = split / /, (get($port, '/') || { body => $pid })->{body}; $now != $pid }, 60
        ),
        'HUP: another process takes over';
    $_->close for @kept;
    ok wait_for(sub { are_gone($pid) }, 60), '... and the old one leaves';
    my $last = TestClient->new($port);
    ($pid) = words($last, '/');
    $server->signal('TERM');
    is $server->wait, 0, 'TERM ends all';
    ok are_gone($pid), '... and nobody is left';
    unlike $server->raw_log, qr/panic|Attempt to free|segfault|SIGSEGV|owned by thread/,
        'nothing strange in the log';
};

subtest 'a database' => sub {
    my ($server, $port) = start(qw(-s EVHTP --max-workers 4));
    my @clients = map { TestClient->new($port) } 1 .. 4;
    my %threads;
    my $rounds = 0;
    until (keys %threads == 4 || $rounds++ == 50) {
        $_->send("GET /dbi HTTP/1.1\r\nHost: h\r\n\r\n")   for @clients;
        $threads{ (split / /, $_->response->{body})[1] }++ for @clients;
    }
    my ($pid, $thread, $count) = words($clients[0], '/dbi');
    my $sum = 1;
    $sum += $_ for values %threads;
    is $count, $sum, 'each interpreter uses the handle that it has made in CLONE';
    cmp_ok keys %threads, '>', 1, '... of which there are several';
    is $server->stop, 0, 'the server stops';
    unlike $server->raw_log, qr/died|owned by thread/, 'nothing in the log';
};

subtest 'interpreters are renewed' => sub {
    my ($server, $port) = start(qw(-s EVHTP --max-workers 1 --max-reqs-per-child 1));
    my $kept = TestClient->new($port);
    my ($pid) = words($kept, '/');
    my (%seen, %random);
    ok wait_for(
        sub {
            my ($now, $thread) = words($kept, '/');
            is($now, $pid, 'the process stays') if $now ne $pid;
            $seen{$thread}++;
            $random{ (words($kept, '/rand'))[2] }++;
            return keys %seen >= (only_in_full(12) || 6);
        },
        60
        ),
        'after so many requests another one takes the place of each';
    is((grep { $_ > 1 } values %random), 0, '... with random numbers of its own');
    ok wait_for(sub { threads_of($pid) == 3 }, 60), 'the old one is gone in the end';
    my %files  = descriptors($pid);
    my $before = keys %seen;
    my $more   = only_in_full(20) || 12;
    ok wait_for(sub { $seen{ (words($kept, '/'))[1] }++; keys %seen >= $before + $more }, 60),
        '... again and again';
    # A clone that ends may still be closing its descriptors.
    my %now;
    ok wait_for(sub { %now = descriptors($pid); threads_of($pid) == 3 && keys %now < keys(%files) + 10 }, 60),
        'no threads are left, and no descriptors'
        or diag explain { threads => threads_of($pid), before => \%files, now => \%now };
    is $server->stop, 0, 'the server stops';
    unlike $server->raw_log, qr/panic|Attempt to free|SIGSEGV|left alone/, 'nothing strange in the log';
};

subtest 'an interpreter is renewed while its process leaves' => sub {
    my ($server, $port)  = start(qw(-s EVHTP --workers 3));
    my ($leaves, $waits) = map { TestClient->new($port) } 1 .. 2;
    my ($pid) = words($waits, '/');
    $leaves->send("GET /leave HTTP/1.1\r\nHost: h\r\n\r\n");
    $waits->send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    ok wait_for(sub { scalar(() = glob "$dir/waits.*") }, 60), 'requests are in flight';
    $server->signal('HUP');
    ok wait_for(sub { my $now = get($port, '/'); $now && $now->{body} !~ /\A$pid / }, 60),
        'HUP: another process takes over';
    write_file('leave', '');
    is $leaves->response->{status}, 500, '... an interpreter of the old one ends by exit';
    ok $server->wait_for_log(qr/has called exit: another one takes its place/), '... and is replaced';
    write_file('go', '');
    like $waits->response->{body}, qr/\A$pid \d+ waited\z/, '... while the other request is answered';
    ok wait_for(sub { are_gone($pid) }, 60), 'the old process ends';
    is $server->stop, 0, 'the server stops';
    unlike $server->raw_log, qr/panic|SIGSEGV|was killed/, 'nothing strange in the log';
};

# In which order packages are told of a clone depends on Perl's hashes. In some of them a module that knows an
# object by its address finds nothing where the object was.
subtest 'a clone is made while the process leaves' => sub {
    my $program = write_file('stopping.pl', <<'PROGRAM');
use threads;
use IO::Async::Loop;
use Peregrine::Process;
use Peregrine::Threads;
my $loop = IO::Async::Loop->new;
my $server = bless {}, 'Stopping';
sub Stopping::shutdown { return $_[0]{stopping} ||= $loop->new_future }
my $process = Peregrine::Process->new(loop => $loop, server => $server, name => 'test');
$process->stop_once;
threads->create(sub { print "cloned\n" })->join;
$loop->later(sub { $server->shutdown->done });
$loop->run;
print "stopped\n";
PROGRAM
    local $ENV{PERL_PERTURB_KEYS} = 0;
    my %said;
    my $seeds = only_in_full(10) || 4;
    for my $seed (1 .. $seeds) {
        local $ENV{PERL_HASH_SEED} = $seed;
        open my $out, '-|', $^X, (map { "-I$_" } @INC), $program or die $!;
        my $text = do { local $/; readline $out };
        close $out;
        $said{"$text$?"}++;
    }
    is_deeply \%said, { "cloned\nstopped\n0" => $seeds }, 'it ends as it should';
};

subtest 'a new process accepts nothing before one of its interpreters serves' => sub {
    local $psgi = write_file('held.psgi', <<"APP");
sub CLONE {
    return if !-e '$dir/hold';
    open my \$mark, '>', '$dir/held' or die \$!;
    select undef, undef, undef, 0.02 while -e '$dir/hold';
}
sub { [ 200, [], ["\$\$"] ] };
APP
    my ($server, $port) = start(qw(-s EVHTP --workers 2));
    my $old = get($port, '/')->{body};
    write_file('hold', '');
    $server->signal('HUP');
    ok wait_for(sub { -e "$dir/held" }, 60), 'HUP: an interpreter of the new process is being made';
    is_deeply [ map { my $answer = get($port, '/'); $answer && $answer->{body} } 1 .. 20 ], [ ($old) x 20 ],
        '... the old process answers';
    unlink "$dir/hold";
    ok wait_for(sub { get($port, '/')->{body} ne $old }, 60), '... until that serves';
    is $server->stop, 0, 'the server stops';
};

# The process would take requests along that wait in the kernel.
subtest 'a process whose interpreters do not start accepts nothing when it is to leave' => sub {
    local $psgi = write_file('tries.psgi', <<"APP");
sub CLONE {
    return if !-e '$dir/hold';
    open my \$mark, '>', '$dir/tries.' . \$\$ or die \$!;
    select undef, undef, undef, 0.02 while -e '$dir/hold';
}
sub { [ 200, [], ["\$\$"] ] };
APP
    unlink "$dir/hold";
    my ($server, $port) = start(qw(-s EVHTP --workers 2));
    my $first = get($port, '/')->{body};
    write_file('hold', '');
    kill KILL => $first;
    my $held;
    ok wait_for(
        sub {
            ($held) = map { /\.(\d+)\z/ } glob "$dir/tries.*";
        },
        60
        ),
        'a worker was killed, and no interpreter of the next one starts';
    my $waits = TestClient->new($port)->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    $server->signal('HUP');
    ok wait_for(
        sub {
            are_gone($held) && grep { /\d\z/ && !/\.$held\z/ } glob "$dir/tries.*";
        },
        60
        ),
        'HUP: it leaves, and another one tries to start';
    unlink "$dir/hold";
    is(($waits->response || { status => 'none' })->{status}, 200, '... which answers the client that waits');
    is $server->stop, 0, 'the server stops';
};

# In time for a machine that is busy: an interpreter that is not stuck has to come back sooner.
my $PATIENCE = 3;

# An interpreter that never comes to the end of its start would keep the others from being replaced, and the
# process from its end.
subtest 'an interpreter that does not come to the end of its start' => sub {
    local $psgi = write_file('held.psgi', <<"APP");
sub CLONE {
    return if !-e '$dir/hold';
    open my \$mark, '>', '$dir/held' or die \$!;
    select undef, undef, undef, 0.02 while -e '$dir/hold';
}
sub { \$_[0]{PATH_INFO} eq '/exit' and exit; [ 200, [], ["\$\$"] ] };
APP
    unlink "$dir/held";
    my @limits = ('--lifespan-startup-timeout', $PATIENCE, '--heartbeat-timeout', $PATIENCE);
    for my $limited (1, only_in_full(0)) {
        my ($server, $port) = start(qw(-s EVHTP --workers 2), $limited ? @limits : ());
        my $pid = get($port, '/')->{body};
        write_file('hold', '');
        get($port, '/exit');
        ok wait_for(sub { -e "$dir/held" }, 60), 'an interpreter hangs at its start';
        if ($limited) {
            my $late = 'the thread did not start within ' . 2 * $PATIENCE . ' s ';
            my $why  = '(lifespan_startup_timeout + heartbeat_timeout) and is left alone';
            ok $server->wait_for_log(qr/interpreter \d cannot start: $late\Q$why\E/), '... and is given up';
            unlink "$dir/hold";
            ok wait_for(sub { threads_of($pid) == 5 }, 60), '... another one takes its place';
        }
        my $begun = time;
        is $server->stop, 0, 'the server stops';
        cmp_ok time - $begun, '<', 20, '... before the end of shutdown_timeout';
        unlink "$dir/hold", "$dir/held";
    }
    my $configuration = Peregrine::Server::Configuration->new(heartbeat_timeout => 0);
    is $configuration->start_timeout, 90, 'a start has a minute where workers may be silent for ever';
};

subtest 'plackup -s Peregrine --engine thread' => sub {
    my ($server, $port) = start(qw(-s Peregrine --engine thread --workers 2));
    my $kept = TestClient->new($port);
    is((words($kept, '/flags'))[2], '1 0 0', 'the same');
    my (undef, $before, $may) = words($kept, '/harakiri');
    ok $may, 'psgix.harakiri';
    # Idle interpreters do not take turns: the same one is always asked.
    ok wait_for(
        sub {
            !grep { (words($kept, '/'))[1] == $before } 1 .. 5;
        },
        60
        ),
        '... ends the interpreter';
    my ($pid) = words($kept, '/term');
    $kept->close;
    ok wait_for(sub { my $now = get($port, '/'); $now && $now->{body} !~ /\A$pid / }, 60),
        'TERM ends the process, which is replaced';
    is $server->stop, 0, 'the server stops';
};

subtest 'interpreters that do not come back' => sub {
    open my $lock, '<', write_file('lock', '') or die $!;
    flock $lock, LOCK_EX or die $!;
    my ($server, $port) = start(qw(-s EVHTP --max-workers 3 --request-kill-timeout), $PATIENCE);
    my @kept = map { TestClient->new($port) } 1 .. 3;
    my ($pid) = words($kept[2], '/');
    $kept[0]->send("GET /lock?x=1 HTTP/1.1\r\nHost: h\r\n\r\n");
    $kept[1]->send("GET /begun HTTP/1.1\r\nHost: h\r\n\r\n");
    is asked($kept[2], '/')->{status}, 200, 'the third interpreter serves' for 1 .. 3;
    my $answer = $kept[0]->response;
    is $answer->{status},              504, 'a request that keeps an interpreter for too long';
    is $kept[1]->response->{complete}, 0,   '... one whose response has begun is cut';
    my $where =
        qr/GET \/lock\?x=1, which came \d+\.\d s ago, at .+ line \d+\n    \S+::wait_for_lock called at/;
    ok $server->wait_for_log(qr/interpreter \d is stuck in request \d+-\d+ $where/), 'the log says where';
    ok $server->wait_for_log(qr/is stuck in request \d+-\d+ GET \/begun/),           '... of both';
    my $why  = "has been at one event for $PATIENCE s (request_kill_timeout) and is left alone";
    my $left = qr/interpreter \d \Q$why\E: another one takes/;
    ok wait_for(sub { 2 == (() = $server->raw_log =~ /$left/g) }, 60),
        '... and that others take their places';
    is((words($kept[0], '/'))[0], $pid, 'the connection goes on, as does the process');
    ok wait_for(sub { threads_of($pid) == 7 }, 60), 'there are three interpreters beside those two';
    flock $lock, LOCK_UN;
    ok wait_for(sub { threads_of($pid) == 5 }, 60), '... which end when they come back';

    flock $lock, LOCK_EX or die $!;
    my @stuck = map { TestClient->new($port)->send("GET /lock HTTP/1.1\r\nHost: h\r\n\r\n") } 1 .. 4;
    is_deeply [ map { ($_->response || { status => 'none' })->{status} } @stuck ], [ (504) x 4 ], 'four more';
    ok $server->wait_for_log(qr/interpreters that do not come back: 4: a new process takes over/),
        '... are too many';
    $_->close for @kept, @stuck;
    ok wait_for(
        sub { my $now = get($port, '/'); $now && $now->{body} =~ /\A\d+ / && $now->{body} !~ /\A$pid / }, 60),
        'another process takes over';
    ok wait_for(sub { are_gone($pid) }, 60), '... and the old one ends';
    is $server->stop, 0, 'the server stops';
    unlike $server->raw_log, qr/panic|Attempt to free|SIGSEGV|active threads/, 'nothing strange in the log';
};

# An interpreter that is asked writes its stack, and may be in the middle of changing it.
subtest 'an interpreter is asked while it calls functions' => sub {
    local $psgi = write_file('calls.psgi', <<"APP");
use POSIX ();
my \$asked = '$dir/asked';
my %DO = (
    '/calls' => sub {
        open my \$mark, '>', "\$asked.new" or die \$!;
        print {\$mark} Peregrine::thread_number();
        close \$mark;
        rename "\$asked.new", \$asked or die \$!;
        my \$end = time + 60;
        while (-e \$asked && time < \$end) { calls(30) for 1 .. 100 }
    },
    '/ask' => sub {
        open my \$in, '<', \$asked or die \$!;
        my \$thread = readline \$in;
        open my \$null, '>', '/dev/null' or die \$!;
        my \$before = POSIX::dup(2);
        POSIX::dup2(fileno \$null, 2);
        for (1 .. 2000) { Peregrine::ask_stuck_thread(\$thread); select undef, undef, undef, 0.0002 }
        POSIX::dup2(\$before, 2);
        unlink \$asked;
    },
);
sub calls { my (\$more) = \@_; return \$more ? calls(\$more - 1) : sub { } }
sub { (\$DO{ \$_[0]{PATH_INFO} } || sub { })->(); return [ 200, [], ["\$\$"] ] };
APP
    my ($server, $port) = start(qw(-s EVHTP --max-workers 2));
    my $pid   = get($port, '/')->{body};
    my $calls = TestClient->new($port)->send("GET /calls HTTP/1.1\r\nHost: h\r\n\r\n");
    ok wait_for(sub { -e "$dir/asked" }, 60), 'an interpreter calls functions';
    my $asked = get($port, '/ask') || { body => '' };
    is $asked->{body},             $pid, 'it is asked again and again where it is';
    is $calls->response->{status}, 504,  '... its request is given up';
    is get($port, '/')->{body},    $pid, '... and the process goes on';
    is $server->stop,              0,    'the server stops';
    unlike $server->raw_log, qr/SIGSEGV|SIGBUS|panic/, 'nothing strange in the log';
};

subtest 'applications that cannot be cloned' => sub {
    my $loop = write_file('loop.psgi',
        "use IO::Async::Loop; my \$loop = IO::Async::Loop->new; sub { [ 200, [], [] ] }\n");
    my $plackup = program_path('plackup');
    my ($status, undef, $error) = TestServer->finish_at($plackup, qw(-s EVHTP --port 0), $loop);
    isnt $status, 0, 'an application that makes a loop when it is loaded';
    like $error, qr/made an IO::Async::Loop.*--engine process/, '... is refused';
    ($status, undef, $error) = TestServer->finish_at($plackup, qw(-s EVHTP --port 0 --loop-type EV), $psgi);
    isnt $status, 0, 'a loop that is one for all threads';
    like $error, qr/option 'loop_type': EV cannot be in several threads/, '... is refused';

    return if system($^X, '-MEV', '-e', '1') != 0;
    my $ev = write_file('ev.psgi', "use EV; sub { [ 200, [], [] ] }\n");
    ($status, undef, $error) =
        TestServer->finish_at($plackup, qw(-s EVHTP --port 0 --engine thread --workers 2), $ev);
    isnt $status, 0, 'an application that has loaded EV';
    like $error, qr/has loaded EV, which cannot be cloned.*--engine process/, '... is refused';
    my $late =
        write_file('late.psgi', "sub { require EV if \$_[0]{PATH_INFO} eq '/ev'; [ 200, [], ['ok'] ] }\n");
    my $server = TestServer->spawn($^X, (map { "-I$_" } @INC),
        $plackup, qw(-s EVHTP --listen 127.0.0.1:0 --max-workers 1), $late);
    my ($port) = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)}) =~ /(\d+)\z/;
    is get($port, '/ev')->{status}, 500, 'one that loads it in a clone';
    ok $server->wait_for_log(qr/EV cannot be in several threads: .*--engine process/), '... dies';
    is get($port, '/')->{body}, 'ok', '... and goes on';
    is $server->stop,           0,    '... to its end';
};

subtest 'a Perl without threads' => sub {
    my @warned;
    no warnings 'redefine';
    local *Peregrine::Threads::are_possible = sub { 0 };
    local $SIG{__WARN__} = sub { push @warned, @_ };
    my $default = sub { my %of = Plack::Handler::EVHTP->new(@_)->defaults; return \%of };
    is_deeply $default->(), { engine => 'process', max_workers => 8 }, 'the workers are processes';
    like $warned[0], qr/no threads: the workers are processes/, '... which it says';
    is $default->(max_workers => 0)->{engine}, 'thread', 'without workers nothing changes';
    is_deeply $default->(workers => 2, engine => 'inline'), { engine => 'thread' },
        'nor where somebody chooses';
};

done_testing;
