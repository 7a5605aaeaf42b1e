# Servers listen at Unix sockets, at several places at once, and at sockets that another program has bound.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use Fcntl      qw(F_SETFD);
use File::Temp ();
use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use IO::Socket::IP   ();
use IO::Socket::UNIX ();
use OnlyInFull       qw(crossed);
use PAGI::Server;
use Peregrine::Listeners;
use Socket qw(SOCK_STREAM);
use Test::More;
use TestServer;
use TestClient ();
use TestTools  qw(content free_port has_ipv6 refused wait_for);

my $directory = File::Temp->newdir;
my $app_file  = "$directory/app.pl";
my $app_code  = <<'APP';
sub {
    my ($scope, $receive, $send) = @_;
    die "no\n" if $scope->{type} ne 'http';
    my $body = join ' ', $scope->{scheme}, map({ $_ // 'undef' } @{ $scope->{server} }),
        exists $scope->{client} ? $scope->{client}[0] : 'nobody';
    $send->({ type => 'http.response.start', status => 200, headers => [] });
    return $send->({ type => 'http.response.body', body => $body });
}
APP
{
    open my $out, '>', $app_file or die $!;
    print {$out} $app_code;
}
my $app = eval $app_code or die $@;

sub curl {
    my (@arguments) = @_;
    open my $out, '-|', 'curl', '--silent', '--show-error', '--max-time', 10, @arguments or die "curl: $!";
    local $/;
    return scalar <$out>;
}

subtest 'options' => sub {
    my @wrong = (
        [ { socket => '/tmp/x', port => 1 },       qr/Cannot specify both 'socket' and 'port' options/ ],
        [ { socket => '/tmp/x', host => '::' },    qr/Cannot specify both 'socket' and 'host' options/ ],
        [ { listen => ['/tmp/x'], host => '::' },  qr/Cannot specify both 'listen' and 'host' options/ ],
        [ { listen => ['/tmp/x'], socket => 'y' }, qr/Cannot specify both 'listen' and 'socket' options/ ],
        [ { listen => [] },     qr/option 'listen' must name at least one address/ ],
        [ { listen => undef },  qr/option 'listen' must be HOST:PORT, .*, not undef/ ],
        [ { listen => {} },     qr/option 'listen' cannot have '': it needs host and port, a socket, or fd/ ],
        [ { listen => [ \1 ] }, qr{it must be HOST:PORT, :PORT, /path, } ],
        [ { listen => ['5000'] },      qr/cannot have '5000': it must be HOST:PORT/ ],
        [ { listen => [':http'] },     qr/cannot have ':http': it must be HOST:PORT/ ],
        [ { listen => ['h:'] },        qr/cannot have 'h:': port is missing/ ],
        [ { listen => ['[]:80'] },     qr/cannot have '\[\]:80': host is missing/ ],
        [ { host   => '[]' },          qr/cannot have 'host => \[\], port => 5000': host is missing/ ],
        [ { listen => ['h:70000'] },   qr/the port must be an integer from 0 to 65535, not '70000'/ ],
        [ { listen => ['::1:80'] },    qr/an IPv6 address needs brackets/ ],
        [ { listen => ['localhost'] }, qr/cannot have 'localhost': it must be HOST:PORT, :PORT, \/path/ ],
        [ { listen => ['@abstract'] }, qr/cannot have '\@abstract': it must be HOST:PORT, :PORT, \/path/ ],
        [ { listen => ['fd:x'] },      qr/fd must be the number of a descriptor, not 'x'/ ],
        [
            { listen => ['h:1,loud'] },
            qr/there is no setting 'loud'; there are ca cert certs chain direct group key mode/
        ],
        [ { listen => ['h:1,mode'] },      qr/setting 'mode' needs a value/ ],
        [ { listen => ['h:1,plain=1'] },   qr/setting 'plain' takes no value/ ],
        [ { listen => ['h:1,mode=0600'] }, qr/there is no key 'socket_mode' here|cannot have both/ ],
        [
            { listen => ['/x,mode=0888'] },
            qr/socket_mode must be an octal mode from 0000 to 0777, not '0888'/
        ],
        [ { listen => ['/x,owner=no-such-user'] }, qr/there is no user 'no-such-user'/ ],
        [ { listen => [ { host => 'h' } ] }, qr/cannot have 'host => h': port is missing/ ],
        [ { listen => [ { host => 'h', port => 1, socket => 'x' } ] }, qr/it cannot have both/ ],
        [
            { listen => [ { socket => '/x', bogus => 1 } ] },
            qr/there is no key 'bogus' here; there are proxy_protocol socket socket_gr/
        ],
        [ { listen => [ { socket => '/' . 'x' x 107 } ] }, qr/may have 107 bytes, and '\/x+' has 108/ ],
        [ { listen => ['h:1,cert=/c,key=/k,plain'] }, qr/settings 'plain' and 'cert' contradict each other/ ],
        [
            { listen => ['h:1,verify=require,plain'] },
            qr/settings 'plain' and 'verify' contradict each other/
        ],
        [ { listen => ['h:1,ca=/ca'] },           qr/option 'listen': 'h:1,ca=\/ca' needs a cert_file/ ],
        [ { listen => ['h:1,proxy=::1,direct'] }, qr/settings 'direct' and 'proxy' contradict each other/ ],
        [ { listen => ['h:1,tls,tls'] },          qr/setting 'tls' is given twice/ ],
        [ { listen => ['h:1,tls'] }, qr/'h:1,tls' is to speak TLS, but there is no option 'ssl'/ ],
        [ { listen => ['h:1,cert=/none,key=/none'] }, qr/SSL certificate file not found: \/none/ ],
        [
            { socket_mode => 660 },
            qr/option 'socket_mode' must be an octal mode from 0000 to 0777, not '660'/
        ],
        [
            { socket_mode => '440' },
            qr/option 'socket_mode' must be an octal mode from 0000 to 0777, not '440'/
        ],
        [ { listen => ['/x,mode=9'] }, qr/socket_mode must be an octal mode from 0000 to 0777, not '9'/ ],
        [ { socket_mode => '0600' },   qr/option 'socket_mode' is given, but no Unix socket/ ],
        [ { socket      => '/x', socket_group => 'no-such-group' }, qr/there is no group 'no-such-group'/ ],
    );
    for my $case (@wrong) {
        my ($options, $says) = @$case;
        like(refused(app => $app, %$options), $says, "$says");
    }
    is(
        refused(
            app    => $app,
            listen =>
                [ '/a:b', 'x:1', '[::1]:2', { host => 'h', port => 3, ssl => 0 }, 'fd:3', './x', 'unix:y' ]
        ),
        '',
        'good ones'
    );
    is(refused(app => $app, socket => '/x', socket_mode => oct '0660'), '',    'a mode as a number');
    is(PAGI::Server->new(app => $app, socket => 'x')->port,             undef, 'a Unix socket has no port');
    my ($status, undef, $error) = TestServer->finish_of('pagi-server', '--listen', 'h:x', $app_file);
    is($status, 2, 'a wrong flag');
    like(
        $error,
        qr/option --listen cannot have 'h:x': the port must be an integer from 0 to 65535, not 'x'/,
        '... is explained'
    );
};

subtest 'a port of both families' => sub {
    plan skip_all => 'this machine has no IPv6' if !has_ipv6();
    for my $hosts ([ '0.0.0.0', '[::]' ], [ '[::]', '0.0.0.0' ]) {
        my $free   = free_port();
        my $server = TestServer->command(map({ ('--listen', "$_:$free") } @$hosts), $app_file);
        for my $host ('127.0.0.1', '::1') {
            my $client = TestClient->new($free, host => $host)->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
            is($client->response->{body}, "http $host $free $host", "@$hosts: $host");
        }
        is($server->stop, 0, '... and it stops');
    }
};

subtest 'a Unix socket' => sub {
    my $path   = "$directory/one.sock";
    my $server = TestServer->command('--socket', $path, '--socket-mode', '0620', $app_file);
    is($server->port,              $path,   'the banner names it');
    is((stat $path)[2] & oct 7777, oct 620, 'its mode is the wanted one');
    is(
        curl('--unix-socket', $path, 'http://h/'),
        "http $path undef nobody",
        'scope has the path, and no client'
    );

    my ($status, undef, $error) = TestServer->finish_of('pagi-server', '--socket', $path, $app_file);
    is($status, 1, 'a second server does not start');
    like($error, qr/Cannot listen on unix:\Q$path\E: another process listens there/, '... and says why');
    is(curl('--unix-socket', $path, 'http://h/'), "http $path undef nobody", '... the first one goes on');

    $server->signal('KILL')->wait;
    ok(-S $path, 'a server that is killed leaves its file');
    $server = TestServer->command('--socket', $path, $app_file);
    is(
        curl('--unix-socket', $path, 'http://h/'),
        "http $path undef nobody",
        '... which the next one replaces'
    );
    is($server->stop, 0, 'TERM');
    ok(!-e $path, '... removes the file');

    $server = TestServer->command('--socket', $path, $app_file);
    rename $path, "$path.old" or die $!;
    my $other = IO::Socket::UNIX->new(Type => SOCK_STREAM, Local => $path, Listen => 1) or die $!;
    $server->stop;
    ok(-S $path, "a file that is another one's stays");
    close $other;

    open my $plain, '>', "$directory/plain" or die $!;
    ($status, undef, $error) =
        TestServer->finish_of('pagi-server', '--socket', "$directory/plain", $app_file);
    is($status, 1, 'a file that is no socket');
    like($error, qr/not a socket/, '... is refused');
    ok(-f "$directory/plain", '... and stays');
    ($status, undef, $error) =
        TestServer->finish_of('pagi-server', '--socket', "$directory/none/x", $app_file);
    like(
        $error,
        qr{Cannot listen on unix:\S+/none/x: No such file or directory},
        'a directory that is not there'
    );
};

subtest 'a Unix socket while requests are in flight' => sub {
    my ($path, $go) = map { "$directory/$_" } qw(held.sock go);
    my $server = TestServer->start(
        socket => $path,
        app    => async sub {
            my ($scope, $receive, $send) = @_;
            die "no\n" if $scope->{type} ne 'http';
            print STDERR "held\n";
            while (!-e $go) { await IO::Async::Loop->new->delay_future(after => 0.02) }
            await $send->({ type => 'http.response.start', status => 200 });
            await $send->({ type => 'http.response.body',  body   => 'let go' });
        }
    );
    my $client = IO::Socket::UNIX->new(Type => SOCK_STREAM, Peer => $path) or die "$path: $!";
    syswrite $client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    $server->wait_for_log(qr/^held$/m);
    $server->signal('TERM');
    ok($server->wait_for_log(qr/requests in flight: 1/), 'the server waits for one');
    ok(!-e $path,                                        '... and its socket is not there any more');
    open my $file, '>', $go or die "$go: $!";
    like(do { local $/; <$client> }, qr/let go/, '... the request is answered');
    is($server->wait, 0, '... and the server ends well');
};

subtest 'a Unix socket of an application that calls exit' => sub {
    my %programs = (
        'pagi-server' => 'sub { die "no\n" if $_[0]{type} ne "http"; exit 7 }',
        peregrine     => 'sub { my ($env) = @_; exit 7 }',
    );
    for my $case (crossed([ sort keys %programs ], [qw(inline thread)])) {
        my ($program, $engine) = @$case;
        my $path = "$directory/exits.sock";
        my $server =
            TestServer->command_of($program, '--socket', $path, '--engine', $engine, qw(-E production -e),
            $programs{$program});
        ok(-S $path, "$program, $engine: there is a file");
        TestClient->new($path)->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")->rest;
        is($server->wait, 7 << 8, '... the program ends');
        ok(!-e $path, '... and has removed the file');
    }
};

# `our` keeps the server to the end of the program; `my` destroys it before.
for my $declared (qw(our my)) {
    subtest "a program that opens a Unix socket for a process that it forks ($declared)" => sub {
        my $path   = "$directory/forks-$declared.sock";
        my $server = TestServer->spawn($^X, (map { "-I$_" } @INC), '-e', <<"PROGRAM", $path);
use strict; use warnings; use PAGI::Server;
$declared \$server = PAGI::Server->new(app => sub { die "no lifespan\n" }, socket => \$ARGV[0], quiet => 1);
\$server->open_listeners;
pipe my \$reader, our \$writer or die \$!;
my \$pid = fork // die \$!;
exit 0 if \$pid;
close \$writer;
readline \$reader;
print STDERR 'the file is ', -S \$ARGV[0] ? 'there' : 'gone', "\\n";
PROGRAM
        is($server->wait, 0, 'the program ends');
        # The pipe's end is closed after END blocks.
        ok($server->wait_for_log(qr/the file is (there)$/m), '... and leaves the file');
    };
}

subtest 'a program that opens a Unix socket, and does not serve' => sub {
    my $path = "$directory/unused.sock";
    {
        my $server = PAGI::Server->new(app => sub { die "no lifespan\n" }, socket => $path, quiet => 1);
        $server->open_listeners;
        ok(-S $path, 'the file is there');
    }
    ok(!-e $path, '... and goes with the server');
};

subtest 'several places' => sub {
    my $certificates = Certificates->new->authority("server");
    my ($cert, $key) = map { $certificates->path($_) } qw(server.pem server.key);
    my @paths  = map { "$directory/many$_.sock" } 1, 2;
    my $server = TestServer->command(
        '--listen',   '127.0.0.1:0',         '--listen',  '127.0.0.1:0,plain',
        '--listen',   "$paths[0],mode=0600", '--listen',  "$paths[1],tls",
        '--ssl-cert', $cert,                 '--ssl-key', $key,
        $app_file
    );
    $server->wait_for_log(qr/unix:\Q$paths[1]\E/);
    my @ports = $server->log =~ m{listening on https?://127\.0\.0\.1:(\d+)/}g;
    is(@ports, 2, 'the banner names all');
    is(
        curl('--insecure', "https://127.0.0.1:$ports[0]/"),
        "https 127.0.0.1 $ports[0] 127.0.0.1",
        'TLS by default'
    );
    is(curl("http://127.0.0.1:$ports[1]/"), "http 127.0.0.1 $ports[1] 127.0.0.1",
        'none where none is wanted');
    is(
        curl('--unix-socket', $paths[0], 'http://h/'),
        "http $paths[0] undef nobody",
        'a Unix socket does not speak it'
    );
    is(
        curl('--insecure', '--unix-socket', $paths[1], 'https://h/'),
        "https $paths[1] undef nobody",
        '... unless asked for'
    );
    like($server->log, qr/unix:\Q$paths[1]\E with TLS/, '... as the banner says');
    is($server->stop,        0, 'the server stops');
    is((grep { -e } @paths), 0, '... and removes the files');

    my @own = ("127.0.0.1:0,cert=$cert,key=$key", '127.0.0.1:0');
    $server = TestServer->command((map { ('--listen', $_) } @own), $app_file);
    $server->wait_for_log(qr{listening on http://});
    my ($secure) = $server->log =~ m{listening on https://127\.0\.0\.1:(\d+)/};
    like(curl('--insecure', "https://127.0.0.1:$secure/"), qr/\Ahttps /, 'certificates of its own');
    $server->signal('HUP');
    ok($server->wait_for_log(qr/certificate files are loaded again/), '... are loaded again on HUP');

    $certificates->authority('ca')->issue('client', extensions => ['extendedKeyUsage=clientAuth']);
    my $ca = $certificates->path('ca.pem');
    $certificates->write('tickets', 'x' x 80);
    my $strict =
        "127.0.0.1:0,cert=$cert,key=$key,chain=$ca,ca=$ca,verify=require,tickets="
        . $certificates->path('tickets');
    $server = TestServer->command('--listen', $strict, $app_file);
    my $url  = 'https://127.0.0.1:' . $server->port . '/';
    my @name = map { $certificates->path("client.$_") } qw(pem key);
    is(curl('--insecure', $url), '', 'a place that verifies clients refuses one without a certificate');
    like(curl('--insecure', '--cert', $name[0], '--key', $name[1], $url),
        qr/\Ahttps /, '... and serves one with it');

    my $taken = IO::Socket::IP->new(LocalHost => '127.0.0.1', Listen => 1);
    my ($status, undef, $error) =
        TestServer->finish_of('pagi-server', '--listen', $paths[0], '--listen',
        '127.0.0.1:' . $taken->sockport, $app_file);
    is($status, 1, 'a place that is taken');
    like($error, qr/Port \d+ is already in use/, '... is named');
    ok(!-e $paths[0], '... and the other one is given up');
};

# Runs the command with listening sockets as descriptors from 3 on, as systemd does.
sub inheriting {
    my ($sockets, $environment, @arguments) = @_;
    local %ENV = (%ENV, %$environment);
    fcntl $_, F_SETFD, 0 for @$sockets;
    my $starter = q{
        use POSIX ();
        my $count = shift;
        my @high  = map { POSIX::dup2($_, 100 + $_); 100 + $_ } splice @ARGV, 0, $count;
        POSIX::dup2($high[$_], 3 + $_) for 0 .. $#high;
        POSIX::close($_) for @high;
        $ENV{LISTEN_PID} = $$;
        exec @ARGV;
    };
    my @descriptors = map { fileno $_ } @$sockets;
    my @command     = ($^X, (map { "-I$_" } @INC), 'bin/pagi-server', @arguments);
    return TestServer->spawn($^X, '-e', $starter, scalar @descriptors, @descriptors, @command);
}

subtest 'inherited sockets' => sub {
    my $tcp    = IO::Socket::IP->new(LocalHost => '127.0.0.1', Listen => 5) or die $@;
    my $path   = "$directory/inherited.sock";
    my $unix   = IO::Socket::UNIX->new(Type => SOCK_STREAM, Local => $path, Listen => 5) or die $!;
    my $port   = $tcp->sockport;
    my $server = inheriting([ $tcp, $unix ], { LISTEN_FDS => 2, LISTEN_FDNAMES => 'a:b' }, $app_file);
    ok($server->wait_for_log(qr/unix:\Q$path\E/), 'all that systemd passes are used');
    is(curl("http://127.0.0.1:$port/"),           "http 127.0.0.1 $port 127.0.0.1", '... a TCP one');
    is(curl('--unix-socket', $path, 'http://h/'), "http $path undef nobody",        '... and a Unix one');
    unlike($server->log, qr/is closed/, '... without a complaint');
    is($server->stop, 0, 'the server stops');
    ok(-S $path, '... and leaves the file to whoever made it');

    $server = inheriting([$tcp], { LISTEN_FDS => 1 },
        '--listen', "127.0.0.1:$port", '--listen', "$directory/own.sock", $app_file);
    ok($server->wait_for_log(qr/unix:/), 'an inherited socket that is bound at a place is used there');
    is(curl("http://127.0.0.1:$port/"), "http 127.0.0.1 $port 127.0.0.1", '... and serves');
    unlike($server->log, qr/is closed/, '... without a complaint');
    $server->stop;

    $server = inheriting([$unix], { LISTEN_FDS => 1 }, '--listen', "$path,mode=0600", $app_file);
    ok($server->wait_for_log(qr{unix:\Q$path\E}), 'a Unix one that a place asks for is used, too');
    is(curl('--unix-socket', $path, 'http://h/'), "http $path undef nobody", '... and serves');
    unlike($server->log, qr/is closed/, '... without a complaint');
    $server->stop;

    $server = inheriting([ $tcp, $unix ], { LISTEN_FDS => 2 }, '--port', $port, $app_file);
    ok($server->wait_for_log(qr/listening on/), 'an inherited socket that no place asks for');
    like(
        $server->log,
        qr/nothing is to listen on the inherited descriptor 4: it is closed/,
        '... is closed with a warning'
    );
    $server->stop;

    $server = inheriting([ $tcp, $unix ], { LISTEN_FDS => 2 }, '--listen', 'fd:3', $app_file);
    ok($server->wait_for_log(qr{listening on http://127\.0\.0\.1:$port/}), 'fd:3');
    is(curl("http://127.0.0.1:$port/"), "http 127.0.0.1 $port 127.0.0.1", '... serves');
    is_deeply([ $server->log =~ /inherited descriptor (\d+): it is closed/g ],
        [4], '... and only the other one is closed');
    $server->stop;

    my $pid_file = "$directory/inherited.pid";
    $server = inheriting([$tcp], { LISTEN_FDS => 1 }, '--daemonize', '--pid', $pid_file, $app_file);
    is($server->wait,                   0, 'in the background') or diag $server->log;
    is(curl("http://127.0.0.1:$port/"), "http 127.0.0.1 $port 127.0.0.1", '... it serves as well');
    my ($pid) = content($pid_file) =~ /(\d+)/;
    kill TERM => $pid if $pid;
    ok(wait_for(sub { !-e $pid_file }), '... until it is stopped');

    $server = inheriting([$tcp], {}, '--listen', 'fd:3', $app_file);
    ok($server->wait_for_log(qr{listening on http://127\.0\.0\.1:$port/}), 'fd:3 that no variable tells of');
    is(curl("http://127.0.0.1:$port/"), "http 127.0.0.1 $port 127.0.0.1", '... serves');
    $server->stop;

    $server = inheriting([ $tcp, $unix ], { SERVER_STARTER_PORT => "127.0.0.1:$port=3;$path=4" }, $app_file);
    ok($server->wait_for_log(qr/unix:\Q$path\E/), 'Server::Starter');
    is(curl("http://127.0.0.1:$port/"), "http 127.0.0.1 $port 127.0.0.1", '... serves');
    $server->stop;

    $server = inheriting([], {}, '--listen', 'fd:99', $app_file);
    ok($server->wait, 'a descriptor that is none');
    like($server->log, qr/Cannot listen on fd:99: descriptor 99 cannot be used/, '... is named');
    local $ENV{LISTEN_PID} = 1;
    local $ENV{LISTEN_FDS} = 1;
    my ($status, $out) = TestServer->finish_of('pagi-server', '--check', $app_file);
    is($status, 0, 'sockets for another process are left alone');
};

subtest 'embedded' => sub {
    require IO::Async::Loop;
    my $path   = "$directory/embedded.sock";
    my $loop   = IO::Async::Loop->new;
    my $server = PAGI::Server->new(
        app        => $app,
        listen     => [ $path, { host => '127.0.0.1', port => 0 } ],
        quiet      => 1,
        access_log => undef,
    );
    $loop->add($server);
    $server->listen->get;
    is($server->socket_path, $path, 'socket_path');
    cmp_ok($server->port, '>', 0, 'port');
    is_deeply(
        $server->listeners,
        [
            { type => 'unix', path => $path,       socket_mode => (stat $path)[2] & oct 7777 },
            { type => 'tcp',  host => '127.0.0.1', port        => $server->port },
        ],
        'listeners'
    );
    $server->shutdown->get;
    ok(!-e $path, 'shutdown removes the file');
    $server->listen->get;
    ok(-S $path, 'another start makes it again');
    $loop->remove($server);
    ok(!-e $path, 'removing the server removes the file');
};

# The last one: from here on this process is one that Server::Starter has started.
subtest 'inherited sockets that are used twice' => sub {
    my $tcp    = IO::Socket::IP->new(LocalHost => '127.0.0.1', Listen => 5) or die $@;
    my $passed = '127.0.0.1:' . $tcp->sockport . '=' . fileno $tcp;
    local $ENV{SERVER_STARTER_PORT} = $passed;
    my $listeners = Peregrine::Listeners->new->choose([], unnamed => 1);
    my $facts     = { type => 'inherited', descriptor => fileno $tcp };
    is_deeply([ $listeners->facts ], [$facts], 'found');
    # Expected: an exception that has nothing to do with them.
    eval { die "another problem\n" };
    is_deeply([ $listeners->facts ], [$facts], 'found again');

    my $taken  = IO::Socket::IP->new(LocalHost => '127.0.0.1', Listen => 5) or die $@;
    my $server = PAGI::Server->new(
        app        => $app,
        listen     => [ map { '127.0.0.1:' . $_->sockport } $tcp, $taken ],
        quiet      => 1,
        access_log => undef,
    );
    my $loop = IO::Async::Loop->new;
    $loop->add($server);
    $ENV{SERVER_STARTER_PORT} = $passed;
    like($server->listen->await->failure, qr/already in use/, 'a start that fails for another place');
    close $taken;

    for my $start (qw(second third)) {
        is($server->listen->await->failure, undef, "the $start start has the inherited socket");
        $server->shutdown->await;
    }
    $loop->remove($server);
};

done_testing;
