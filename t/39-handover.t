# USR2: a new program on the sockets of the old one, which leaves when the new one serves and goes on if that
# does not start.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use Cwd              qw(getcwd);
use Fcntl            qw(F_SETFD);
use IO::Socket::INET ();
use IO::Socket::UNIX ();
use OnlyInFull       qw(only_in_full);
use Peregrine;
use Socket qw(MSG_DONTWAIT SOCK_DGRAM);
use Test::More;
use TestClient qw(exchange get);
use TestLoad;
use TestPrepared ();
use TestServer;
use TestTools   qw(content free_port wait_for);
use TestWorkers qw(are_gone children directory is_gone load no_failure pid_in stop_master write_file);

# The new program begins with the words of the command line, which are there where a program was executed.
TestPrepared::leave_out();

my $dir = directory();
my $app = write_file('app.pl', TestLoad::application(1));

# The second program gives its sockets on as the first one does, whatever they are.
for my $more (only_in_full([]), ['--reuseport'], [ '--listen', "$dir/app.sock", '--listen', '127.0.0.1:0' ]) {
    my $rounds = @$more > 1 ? 2 : only_in_full(2) || 1;
    subtest "taking over, @{[ @$more ? $more->[0] : 'a port' ]}" => sub {
        write_file('app.pl', TestLoad::application(1));
        my $server = TestServer->spawn(
            $^X, (map { "-I$_" } @INC),
            'bin/pagi-server', qw(-E production --workers 2 --lifespan-startup-timeout 600 --pid),
            "$dir/pid",        '--error-log',
            "$dir/log", (@$more > 1 ? () : qw(--port 0)),
            @$more, $app
        );
        my $port;
        ok(wait_for(sub { ($port) = content("$dir/log") =~ m{listening on http://\S+:(\d+)/} }),
            'the server runs');
        my @clients = load($port);
        for my $round (1 .. $rounds) {
            my $old = pid_in('pid');
            write_file('app.pl', "die 'broken';\n");
            die "no pid\n" if !$old;
            kill USR2 => $old;
            ok(
                wait_for(sub {
                    content("$dir/log") =~
                        /has exited with status 1 and has not taken over: this one goes on\n/;
                }),
                'a new program that does not start'
            );
            is(pid_in('pid'), $old, '... leaves the old one alone');
            write_file('app.pl', TestLoad::application($round + 1));
            die "no pid\n" if !$old;
            kill USR2 => $old;
            ok(wait_for(sub { pid_in('pid') && pid_in('pid') != $old }),
                'one that starts is in the pid file');
            ok(wait_for(sub { is_gone($old) }), '... the old one has gone');
            like(get($port, '/')->{body}, qr/ ${\($round + 1)}\z/, '... and the new code serves');
            open my $log, '>', "$dir/log" or die $!;
        }
        no_failure('handovers', @clients);
        is($server->wait, 0, 'the first program has ended well');
        if (@$more > 1) {
            my $socket = IO::Socket::UNIX->new(Peer => "$dir/app.sock") or die "$dir/app.sock: $!";
            print {$socket} "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
            like(do { local $/; readline $socket }, qr/ ${\($rounds + 1)}\z/, 'the Unix socket is served');
        }
        ok(stop_master('pid'),  'the last one stops on TERM');
        ok(!-e "$dir/app.sock", '... and removes the file of its socket') if @$more > 1;
    };
}

# The options of an old and of a new program. Connections are spread over as many sockets as the old one has
# had.
my %changes = (
    'from processes with sockets of their own to one engine' => [
        "workers = 4\nreuseport = on\nengine = inline\n",
        "workers = 1\nreuseport = on\nengine = process\n"
    ],
    'from processes with sockets of their own to a shared one' =>
        [ "workers = 3\nreuseport = on\nengine = inline\n", "workers = 2\nengine = inline\n" ],
    'from workers to none' => [ "workers = 2\nengine = inline\n", "workers = 0\nengine = inline\n" ],
    'from processes that share a socket to sockets of their own' =>
        [ "workers = 2\nengine = inline\n", "workers = 2\nreuseport = on\nengine = inline\n" ],
);
my @changes = (
    'from processes with sockets of their own to one engine',
    'from processes that share a socket to sockets of their own',
);
for my $change (only_in_full(1) ? sort keys %changes : @changes) {
    subtest $change => sub {
        my ($before, $after) = @{ $changes{$change} };
        write_file('app.pl', TestLoad::application(1));
        my $config = write_file('change.conf', $before);
        my $server =
            TestServer->command(qw(-E production --config), $config, '--pid', "$dir/change.pid", $app);
        write_file('change.conf', $after);
        $server->signal('USR2');
        my $is_other = sub { pid_in('change.pid') != $server->pid };
        wait_for(sub { $is_other->() || $server->log =~ /has not taken over/ });
        ok($is_other->(), 'the new program takes over') or return $server->stop;
        is($server->wait, 0, '... and the old one ends');
        my $served = 0;
        # Expected: no process accepts a connection.
        $served++ while $served < 40 && eval { get($server->port, '/')->{status} == 200 };
        is($served, 40, '... each connection is served');
        ok(stop_master('change.pid'), 'the server stops');
    };
}

subtest 'an address at which the new program does not listen' => sub {
    write_file('app.pl', TestLoad::application(1));
    my @ports  = map { free_port() } 1 .. 2;
    my @listen = map { "listen = 127.0.0.1:$_\n" } @ports;
    my $config = write_file('places.conf', "workers = 2\nengine = inline\nstatus = 127.0.0.1:0\n@listen");
    my $server = TestServer->spawn(
        $^X, (map { "-I$_" } @INC),
        'bin/pagi-server', qw(-E production --config),
        $config, '--pid', "$dir/places.pid", $app
    );
    ok($server->wait_for_log(qr{listening on http://127\.0\.0\.1:$ports[1]/}), 'the server runs');
    is(get($ports[1], '/')->{status}, 200, '... at two ports');
    write_file('places.conf', "workers = 2\nengine = inline\nstatus = 127.0.0.1:0\n$listen[0]");
    $server->signal('USR2');
    is($server->wait,                 0,   'the new program has taken over');
    is(get($ports[0], '/')->{status}, 200, '... and serves');
    ok(!IO::Socket::INET->new(PeerAddr => "127.0.0.1:$ports[1]"), '... while no process has the other port');
    ok(stop_master('places.pid'),                                 'the server stops');
};

subtest 'files of Unix sockets at which the new program does not listen' => sub {
    write_file('app.pl', TestLoad::application(1));
    my %paths  = map { $_ => "$dir/$_.sock" } qw(kept left status);
    my $always = "workers = 2\nengine = inline\nlisten = $paths{kept}\n";
    my $status = "status = $paths{status}\n";
    my $config = write_file('files.conf', $always . "listen = $paths{left}\n$status");
    my $server = TestServer->spawn(
        $^X, (map { "-I$_" } @INC),
        'bin/pagi-server', qw(-E production --config),
        $config, '--pid', "$dir/files.pid", $app
    );
    ok($server->wait_for_log(qr{listening on unix:\Q$paths{left}\E}), 'the server runs');
    is_deeply([ grep { !-S $paths{$_} } sort keys %paths ], [], '... at three files');
    write_file('files.conf', $always . $status);
    $server->signal('USR2');
    is($server->wait, 0, 'the new program has taken over');
    is_deeply([ grep { -e $paths{$_} } sort keys %paths ], [qw(kept status)], '... and the other has gone');
    write_file('files.conf', $always);
    my $second = pid_in('files.pid');
    kill USR2 => $second;
    ok(wait_for(sub { is_gone($second) }), 'a third program has taken over');
    is_deeply([ grep { -e $paths{$_} } sort keys %paths ], ['kept'], '... and the status has gone');
    is(exchange($paths{kept}, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")->{status}, 200, '... while one is served');
    ok(stop_master('files.pid'), 'the server stops');
    ok(!-e $paths{kept},         '... and removes its file');
};

subtest 'several servers in a program' => sub {
    my $server = TestServer->spawn($^X, (map { "-I$_" } @INC), '-e', <<'PROGRAM');
use strict; use warnings; use IO::Async::Loop; use PAGI::Server;
my $loop    = IO::Async::Loop->new;
my @servers = map { PAGI::Server->new(app => sub { die "no lifespan\n" }, port => 0, workers => $_) } 1, 0;
$servers[1]->ignore_signals;
for my $server (@servers) { $loop->add($server); $server->listen->get }
print STDERR "ready\n";
$loop->run;
PROGRAM
    ok($server->wait_for_log(qr/^ready$/m), 'they serve');
    $server->signal('USR2');
    my $why = qr/SIGUSR2: nothing to do: this program has several servers/;
    ok($server->wait_for_log($why), 'they say why not');
    is($server->stop, 0, 'they stop');
    unlike($server->log, qr/is to take over/, 'no program was started');
};

subtest 'in the background, with relative paths' => sub {
    write_file('app.pl', TestLoad::application(1) =~ s{'t/lib'}{'${\getcwd()}/t/lib'}r);
    my $here = getcwd();
    chdir $dir or die $!;
    local @INC = map { m{\A/} || ref ? $_ : "$here/$_" } @INC;
    my ($status, undef, $error) = TestServer->finish_at(
        "$here/bin/pagi-server",
        qw(-E production --workers 1 --daemonize),
        qw(--port 0 --pid daemon.pid --error-log daemon.log app.pl)
    );
    chdir $here                 or die $!;
    is($status, 0, 'it starts') or diag $error;
    my ($port) = content("$dir/daemon.log") =~ m{listening on http://\S+:(\d+)/};
    my $old = pid_in('daemon.pid');
    die "no pid\n" if !$old;
    kill USR2 => $old;
    ok(wait_for(sub { pid_in('daemon.pid') && pid_in('daemon.pid') != $old }), 'the new one takes over')
        or diag content("$dir/daemon.log");
    ok(wait_for(sub { is_gone($old) }), '... and the old one leaves');
    is(get($port, '/')->{status}, 200, 'the server serves');
    ok(stop_master('daemon.pid'), '... and stops');
};

subtest 'a new program that hangs' => sub {
    write_file('app.pl', TestLoad::application(1));
    my $server = TestServer->command(
        qw(-E production --workers 1 --lifespan-startup-timeout 1 --heartbeat-timeout 6 --pid),
        "$dir/hang.pid", '--status', '127.0.0.1:0', $app);
    my $port   = $server->port;
    my $status = $server->wait_for_log(qr{status at http://127\.0\.0\.1:(\d+)/});
    write_file('app.pl', "open my \$out, '>', '$dir/loads'; print {\$out} \$\$; close \$out; sleep 1000;\n");
    $server->signal('USR2');
    my $new = $server->wait_for_log(qr/SIGUSR2: process (\d+) is to take over/);
    $server->signal('USR2');
    ok($server->wait_for_log(qr/process $new is about to take over already/), 'one at a time');
    # The process that loads, and hears of nothing; on a busy machine it may not come to that in 7 s.
    wait_for(sub { content("$dir/loads") || $server->log =~ /process $new does not serve/ });
    my @all  = ($new, content("$dir/loads") || (), children($new));
    my $late = 'does not serve after 7 s (lifespan_startup_timeout + heartbeat_timeout): SIGKILL';
    ok($server->wait_for_log(qr/process $new \Q$late\E/), 'the new program is given up');
    ok($server->wait_for_log(qr/$new was killed by SIGKILL and has not taken over: this one goes on/),
        '... and the old one goes on');
    ok(wait_for(sub { are_gone(@all) }), '... nothing of it is left');
    write_file('app.pl', TestLoad::application(2));
    # On a busy machine one that is well may need more than 7 s, too: then another one is asked for.
    my $given_up = 0;
    wait_for(
        sub {
            my $now = () = $server->log =~ /has not taken over: this one goes on/g;
            $server->signal('USR2') if $now > $given_up;
            $given_up = $now;
            return pid_in('hang.pid') != $server->pid;
        },
        100
    );
    isnt(pid_in('hang.pid'), $server->pid, 'the next one takes over');
    is($server->wait, 0, '... and the first program ends');
    like(get($port, '/')->{body}, qr/ 2\z/, '... the new code serves');
    ok(
        wait_for(sub {
            my $answer = eval { get($status, '/healthz') };
            $answer && $answer->{status} == 200;
        }),
        '... and the status is where it was'
    );
    ok(stop_master('hang.pid'), 'the server stops');
};

# Service managers send TERM to all processes. Requests wait in the engine for an interpreter that is at work.
subtest 'TERM to an old program that leaves' => sub {
    my $gate = "$dir/gate";
    my $psgi = write_file('gate.psgi', <<"PERL");
sub {
    open my \$came, '>', "$dir/came" or die \$!;
    select undef, undef, undef, 0.01 until \$_[0]{PATH_INFO} ne '/gate' || -e '$gate';
    return [ 200, [], ["\$\$"] ];
}
PERL
    my $server =
        TestServer->command_of('peregrine',
        qw(-E production --engine process --workers 1 --health-path /healthz --queue-timeout 600 --pid),
        "$dir/term.pid", $psgi);
    my $port = $server->port;
    my $idle = TestClient->new($port);
    $idle->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    is($idle->response->{status}, 200, 'a connection that is idle');
    unlink "$dir/came";
    my @clients = map { TestClient->new($port) } 1 .. 3;
    $_->send("GET /gate HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n") for @clients;
    ok(wait_for(sub { -e "$dir/came" }), 'a request is at work');
    is(get($port, '/healthz')->{status}, 200, '... the engine has them all');
    $server->signal('USR2');
    ok($server->wait_for_log(qr/serves: this one leaves/), 'a new program takes over');
    $server->signal('TERM');
    is($idle->rest, '', 'the engine is told to stop');
    write_file('gate', '');
    is_deeply([ map { ($_->response || {})->{status} } @clients ], [ 200, 200, 200 ], 'all are answered');
    is($server->wait, 0, 'the old program ends');
    ok(stop_master('term.pid'), 'the new one stops');
};

# Sockets that were passed to the program, from descriptor 3 on.
sub inheriting {
    my ($socket, $environment, @arguments) = @_;
    my $number  = fileno $socket;
    my $set     = join ' ', map { "$_=$environment->{$_}" } sort keys %$environment;
    my @command = ($^X, (map { "-I$_" } @INC), 'bin/pagi-server', qw(-E production --workers 1), @arguments);
    my $exec    = "exec 3<&$number; export $set LISTEN_PID=\$\$; exec \"\$\@\"";
    fcntl $socket, F_SETFD, 0 or die $!;
    return TestServer->spawn('/bin/sh', '-c', $exec, 'sh', @command, $app);
}

subtest 'a Unix socket that systemd has passed' => sub {
    write_file('app.pl', TestLoad::application(1));
    my $path    = "$dir/systemd.sock";
    my $manager = "$dir/notify";
    unlink $manager;
    my $told   = IO::Socket::UNIX->new(Local => $manager, Type   => SOCK_DGRAM) or die $!;
    my $unix   = IO::Socket::UNIX->new(Local => $path,    Listen => 100)        or die $!;
    my %units  = (LISTEN_FDS => 1, NOTIFY_SOCKET => $manager);
    my $served = inheriting($unix, \%units, '--pid', "$dir/unix.pid", '--listen', $path);
    ok($served->wait_for_log(qr/listening on/), 'the server runs');
    $served->signal('USR2');
    is($served->wait,                                                  0,   'the new program has taken over');
    is(exchange($path, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")->{status}, 200, '... which serves');
    ok(stop_master('unix.pid'), '... and stops');
    ok(-S $path,                '... while the file stays');
};

subtest 'sockets that were passed to the old program' => sub {
    write_file('app.pl', TestLoad::application(1));
    my @given = ([ 'by number', {}, '--listen', 'fd:3' ], [ 'by systemd', { LISTEN_FDS => 1 } ]);
    for my $case (@given) {
        my ($how, $environment, @arguments) = @$case;
        my $socket  = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 100) or die $!;
        my $manager = "$dir/notify";
        unlink $manager;
        my $told = IO::Socket::UNIX->new(Local => $manager, Type => SOCK_DGRAM) or die $!;
        $environment->{NOTIFY_SOCKET} = $manager if %$environment;
        my $server = inheriting($socket, $environment, '--pid', "$dir/given.pid", @arguments);
        ok($server->wait_for_log(qr/listening on/), "$how: the server runs");
        my @clients = load($socket->sockport);
        my $old     = pid_in('given.pid');
        $server->signal('USR2');
        ok(wait_for(sub { pid_in('given.pid') != $old }), '... a new program takes over');
        is($server->wait, 0, '... the old one ends');
        no_failure($how, @clients);
        my $new = pid_in('given.pid');

        if (%$environment) {
            my $last = '';
            while (defined $told->recv(my $text, 65_536, MSG_DONTWAIT)) {
                $last = $1 if $text =~ /^MAINPID=(\d+)/m;
            }
            is($last, $new, '... systemd knows it');
        }
        kill USR2 => $new;
        ok(wait_for(sub { pid_in('given.pid') != $new && is_gone($new) }), '... another one from that');
        is(get($socket->sockport, '/')->{status}, 200, '... serves');
        ok(stop_master('given.pid'), '... and stops');
    }
    my $socket = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 100) or die $!;
    my $server = inheriting($socket, { LISTEN_FDS => 1 });
    ok($server->wait_for_log(qr/listening on/), 'by a systemd that is not told: the server runs');
    $server->signal('USR2');
    ok($server->wait_for_log(qr/SIGUSR2: nothing to do: systemd would not know .* Type=notify/),
        '... and has no successor');
    is($server->stop, 0, '... it goes on, and ends well');
};

SKIP: {
    skip 'built without TLS', 1 if !Peregrine::has_tls();
    subtest 'tickets' => sub {
        write_file('app.pl', TestLoad::application(1));
        my $certificates = Certificates->new->authority('server');
        my $server       = TestServer->command(
            qw(-E production --workers 2 --pid),
            "$dir/tls.pid", '--ssl-cert',                      $certificates->path('server.pem'),
            '--ssl-key',    $certificates->path('server.key'), $app
        );
        my $port = $server->port;
        like(s_client($port, '-sess_out', "$dir/session"), qr/^New, TLSv1/m, 'a handshake is whole');
        my $log = $server->log;
        $server->signal('HUP');
        ok($server->wait_for_log(qr/certificate files are loaded again/), 'HUP');
        like(
            s_client($port, '-sess_in', "$dir/session"),
            qr/^Reused, TLSv1/m,
            '... and the next one is shortened'
        );
        my @clients = load($port, tls => 1);
        my $old     = pid_in('tls.pid');
        $server->signal('USR2');
        ok(wait_for(sub { pid_in('tls.pid') && pid_in('tls.pid') != $old }), 'a new program takes over');
        is($server->wait, 0, '... the old one ends well');
        like(
            s_client($port, '-sess_in', "$dir/session"),
            qr/^Reused, TLSv1/m,
            'handshakes are still shortened'
        );
        no_failure('over TLS', @clients);
        ok(stop_master('tls.pid'), 'the server stops');
    };
}

sub s_client {
    my ($port, @arguments) = @_;
    my $command = join ' ', 'openssl s_client -ign_eof -tls1_2 -connect', "127.0.0.1:$port", @arguments;
    return `printf 'GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n' | $command 2>&1`;
}

done_testing;
