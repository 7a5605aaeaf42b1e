# pagi-server changes its process: pid file, background, user and group.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use Cwd        qw(getcwd);
use File::Temp ();
use IO::Socket::UNIX;
use Peregrine::File;
use POSIX ();
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools   qw(content free_port wait_for);
use Time::HiRes qw(sleep time);

my $directory = File::Temp->newdir;
chmod oct(755), "$directory" or die $!;

sub write_file {
    my ($name, $text) = @_;
    open my $out, '>', "$directory/$name" or die "$name: $!";
    print {$out} $text;
    close $out or die "$name: $!";
    return "$directory/$name";
}

# The application answers with its user, its groups and its folder.
my $who = write_file('who.pl', <<'APP');
use Cwd ();
sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} ne 'http';
    my $ppid = getppid;
    open my $in, '<', '/proc/self/status' or die;
    my ($groups) = map { /^Groups:\s*(.*?)\s*$/ ? $1 : () } <$in>;
    my $text = join ' ', "$</$>", $( + 0, "[$groups]", Cwd::getcwd(), -t STDERR ? 'tty' : 'none', $$;
    $send->({ type => 'http.response.start', status => 200 });
    return $send->({ type => 'http.response.body', body => $text });
}
APP

subtest 'the pid file' => sub {
    my $path   = "$directory/server.pid";
    my $server = TestServer->command('--pid', $path, $who);
    is(content($path), $server->pid . "\n", 'has the process id');
    my ($status, undef, $error) = TestServer->finish_of('pagi-server', '--port', 0, '--pid', $path, $who);
    is($status, 1, 'a second start fails');
    like(
        $error,
        qr/\AError: \Q$path\E belongs to process ${\$server->pid}, which is running/,
        '... and says whose it is'
    );
    is(content($path), $server->pid . "\n", '... and leaves the file alone');
    is($server->stop,  0,                   'the server ends well');
    ok(!-e $path, '... and removes the file');
    write_file('server.pid', "1\n");
    my $next = TestServer->command('--pid', $path, $who);
    is(content($path), $next->pid . "\n", 'a file that nobody holds is taken over');
    is($next->stop,    0,                 '... and the server ends well');

    my $master = TestServer->command('--pid', $path, '--workers', 2, $who);
    my ($worker) = (split ' ', get($master->port, '/')->{body})[-1];
    isnt($worker, $master->pid, 'with workers');
    kill KILL => $worker;
    ok($master->wait_for_log(qr/another one takes its place/), '... of which one dies');
    is(content($path), $master->pid . "\n", '... the file stays');
    is($master->stop,  0,                   '... and the server ends well');
    ok(!-e $path, '... and removes it');

    my $forking = write_file('forking.pl', <<'APP');
sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} ne 'http';
    my $pid = fork;
    exit 0 if !$pid;
    waitpid $pid, 0;
    $send->({ type => 'http.response.start', status => 200 });
    return $send->({ type => 'http.response.body', body => $? });
}
APP
    my $parent = TestServer->command('--pid', $path, '--access-log', "$directory/forked.log", $forking);
    is(get($parent->port, '/')->{body}, '0',                 'a fork of the server ends well');
    is(content($path),                  $parent->pid . "\n", '... and does not take the file with it');
    is(get($parent->port, '/')->{body}, '0',                 '... and the server goes on');
    is($parent->stop,                   0,                   '... and ends well');
    is(() = content("$directory/forked.log") =~ /\n/g, 2,    '... with each line of its access log once');
    ($status, undef, $error) =
        TestServer->finish_of('pagi-server', '--port', 0, '--pid', "$directory/no/such/file", $who);
    is($status, 1, 'a file that cannot be written fails');
    like($error, qr{Error: Cannot write the pid file .*no/such/file: No such file}, '... and is named');
};

# Root may do everything, so nobody asks.
sub problem_of_nobody {
    my ($path) = @_;
    pipe my $reader, my $writer or die "pipe: $!";
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        POSIX::setgid(65_534);
        POSIX::setuid(65_534);
        syswrite $writer, Peregrine::File::problem($path) // 'none';
        POSIX::_exit(0);
    }
    close $writer;
    my $problem = do { local $/; <$reader> };
    waitpid $pid, 0;
    return $problem;
}

subtest 'whether a file could be written' => sub {
    plan skip_all => 'needs root, to become nobody' if $>;
    my $folder = File::Temp->newdir;
    chmod oct 755, $folder;
    mkdir "$folder/$_" or die "$_: $!" for qw(open closed);
    chmod oct 777, "$folder/open"   or die $!;
    chmod oct 222, "$folder/closed" or die $!;
    is(problem_of_nobody("$folder/open/log"), 'none', 'a new one in a folder');
    like(problem_of_nobody("$folder/$_"), qr/\Acannot write to '.*': Permission denied\z/, "not $_")
        for qw(log closed/log);
};

subtest 'in the background' => sub {
    my $port  = free_port();
    my $here  = getcwd();
    my $start = sub {
        chdir $directory or die $!;
        local @INC = map { m{\A/} || ref ? $_ : "$here/$_" } @INC;
        my @result = TestServer->finish_at(
            "$here/bin/pagi-server", '--port',     $port,          '--daemonize',
            '--pid',                 'daemon.pid', '--access-log', 'daemon.log',
            @_
        );
        chdir $here or die $!;
        return @result;
    };
    my ($status, undef, $error) = $start->('who.pl');
    is($status, 0, 'the command ends well when the server listens') or diag $error;
    my ($pid) = content("$directory/daemon.pid") =~ /\A(\d+)\n\z/;
    ok($pid, 'the pid file is there');
    my @told = split ' ', get($port, '/')->{body};
    is($told[-1], $pid,         'that process serves');
    is($told[-3], "$directory", '... in the same directory');
    is($told[-2], 'none',       '... without a terminal');
    ($status, undef, $error) = $start->('who.pl');
    is($status, 1, 'a second start fails in front');
    like($error, qr/belongs to process $pid/, '... with its reason');
    kill TERM => $pid;
    ok(wait_for(sub { !-e "$directory/daemon.pid" }), 'TERM ends it, and its pid file goes');
    like(
        content("$directory/daemon.log"),
        qr{"GET / HTTP/1.1" 200},
        'its access log is where a relative path says'
    );
    my $taken = IO::Socket::IP->new(LocalHost => '127.0.0.1', LocalPort => $port, Listen => 1)
        or die "port $port: $@";
    ($status, undef, $error) = $start->('who.pl');
    is($status, 1, 'a server that cannot listen fails in front');
    like($error, qr/Error: Port $port is already in use on 127\.0\.0\.1/, '... with its reason');
};

subtest 'a reader of what a start in the background prints' => sub {
    my $loud = write_file('loud.pl', <<'APP');
warn "it loads\n";
print "it prints\n";
sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} ne 'http';
    my $status = system q{echo 'a program' >&2 && echo 'its file' >>/dev/stderr};
    $send->({ type => 'http.response.start', status => 200 });
    return $send->({ type => 'http.response.body', body => "the program ended with $status" });
}
APP
    my $port = free_port();
    for my $case (
        ['one process'],
        [ 'streams of UTF-8',            qw(--workers 2) ],
        [ 'interpreters',                qw(--workers 2) ],
        [ 'an engine of its own',        qw(--workers 2 --engine process) ],
        [ 'a template',                  qw(--workers 2 --preload-app) ],
        [ 'a template and an error log', qw(--workers 2 --preload-app --error-log), "$directory/loud.log" ],
        )
    {
        my ($name, @options) = @$case;
        my $pid_file = "$directory/loud.pid";
        my $pid      = open my $out, '-|' // die "fork: $!";
        if (!$pid) {
            open STDERR, '>&', \*STDOUT or die $!;
            local $ENV{PERL_UNICODE} = 'SD' if $name =~ /UTF-8/;
            exec $^X, (map { "-I$_" } @INC), 'bin/pagi-server', '--port', $port, '--daemonize', '--pid',
                $pid_file, @options, $loud
                or POSIX::_exit(127);
        }
        my $text = '';
        my $end  = wait_for(sub {
            vec(my $bits = '', fileno $out, 1) = 1;
            return 0 if !select $bits, undef, undef, 0.1;
            return !sysread $out, $text, 65_536, length $text;
        });
        ok $end, "$name: sees the end while the server runs" or diag $text;
        my ($server) = content($pid_file) =~ /(\d+)/;
        ok $server && kill(0, $server), '... which does';
        is get($port, '/')->{body}, 'the program ended with 0',
            '... and programs that it starts write to standard error';
        like $text . content("$directory/loud.log"), qr/it loads/, '... and what the application warned of';
        kill TERM => $server;
        ok wait_for(sub { !-e $pid_file }), '... until TERM';
        close $out;
    }
};

my $time = qr/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[-+]\d\d:\d\d/;

subtest 'an error log' => sub {
    my $dying = write_file('dying.pl', <<'APP');
sub {
    my ($scope) = @_;
    die "no lifespan\n" if $scope->{type} ne 'http';
    warn "a warning\n";
    die "on purpose for $scope->{path}\n";
}
APP
    my ($path, $pid_file, $port) = ("$directory/error.log", "$directory/errors.pid", free_port());
    my @command = ('--port', $port, '--daemonize', '--pid', $pid_file, $dying);
    my ($status, undef, $error) = TestServer->finish('--error-log', $path, @command);
    is($status, 0,  'a server in the background') or diag $error;
    is($error,  '', '... has nothing to say in front');
    like(content($path), qr/listening on/, '... says it in the log');
    get($port, '/before');
    ok(wait_for(sub { content($path) =~ m{on purpose for /before} }), 'an exception is there');
    like(content($path), qr/^$time a warning$/m, '... and a warning of the application');
    is(() = content($path) =~ /^(?!$time )/mg, 0, '... each with the time') or diag content($path);
    rename $path, "$path.1" or die $!;
    my ($pid) = content($pid_file) =~ /(\d+)/;
    kill USR1 => $pid;
    ok(wait_for(sub { -e $path }), 'after USR1 there is a new file');
    get($port, '/after');
    ok(wait_for(sub { content($path) =~ m{on purpose for /after} }), '... for what comes after');
    unlike(content("$path.1"), qr{/after}, '... only');
    kill TERM => $pid;
    ok(wait_for(sub { !-e $pid_file }), 'TERM ends it');

    my $taken = IO::Socket::IP->new(LocalHost => '127.0.0.1', LocalPort => $port, ReuseAddr => 1, Listen => 1)
        or die "port $port: $@";
    ($status, undef, $error) = TestServer->finish('--error-log', $path, @command);
    is($status, 1, 'a server that cannot start');
    like($error, qr/\AError: Port $port is already in use on 127\.0\.0\.1$/m, '... tells it in front');
    like(
        content($path),
        qr/^$time Error: Port $port is already in use on 127\.0\.0\.1$/m,
        '... and in the log'
    );
    close $taken;

    ($status, undef, $error) = TestServer->finish(@command);
    like($error, qr/\A$time PAGI: --daemonize without --error-log: nobody will be told of what goes wrong$/m,
        'without one');
    kill TERM => content($pid_file) =~ /(\d+)/;
    ok(wait_for(sub { !-e $pid_file }), '... it runs');

    ($status, undef, $error) =
        TestServer->finish_of('pagi-server', '--error-log', "$directory/no/error.log", @command);
    is($status, 1, 'a log that cannot be written');
    like($error, qr{Error: Cannot write the error log .*/no/error\.log: No such file}, '... is named');

    my $front = TestServer->spawn($^X, (map { "-I$_" } @INC),
        'bin/pagi-server', '-E', 'development', '--port', $port, '--error-log', "$directory/front.log", $who);
    ok(wait_for(sub { content("$directory/front.log") =~ /listening/ }), 'a server in front');
    get($port, '/');
    ok(wait_for(sub { content("$directory/front.log") =~ m{"GET / } }), '... has its access log there, too');
    is($front->stop, 0,  'the server ends well');
    is($front->log,  '', '... and has said nothing elsewhere');
};

subtest 'an application that goes elsewhere' => sub {
    my $here   = getcwd();
    my $moving = write_file('moving.pl', 'chdir "/" or die; do "' . "$directory/who.pl" . '"');
    my @command =
        ("$here/bin/pagi-server", '--pid', 'moved.pid', qw(--access-log moved.log --error-log moved.err));
    chdir $directory or die $!;
    my $port   = free_port();
    my $server = TestServer->spawn($^X, (map { m{\A/} || ref ? "-I$_" : "-I$here/$_" } @INC),
        @command, '--port', $port, 'moving.pl');
    chdir $here or die $!;
    ok(wait_for(sub { content("$directory/moved.err") =~ /listening/ }),
        'the error log is where the command was started');
    is(content("$directory/moved.pid"), $server->pid . "\n", '... and so is the pid file');
    my @told = split ' ', get($port, '/')->{body};
    is($told[-3], '/', '... though the application has gone');
    like(
        content("/proc/${\$server->pid}/cmdline"),
        qr/\Apagi-server --pid moved\.pid .*moving\.pl/,
        'ps shows what runs'
    );
    is($server->stop, 0, 'the server ends well');
    like(content("$directory/moved.log"), qr/"GET/, 'the access log is there, too');
};

subtest 'a directory, a mask, no new rights' => sub {
    my $here = getcwd();
    mkdir "$directory/elsewhere" or die $!;
    write_file('elsewhere/rights.pl', <<'APP');
use Cwd ();
sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} ne 'http';
    open my $in, '<', '/proc/self/status' or die;
    my ($new) = map { /^NoNewPrivs:\s*(\d)/ ? $1 : () } <$in>;
    $send->({ type => 'http.response.start', status => 200 });
    my $body = join ' ', Cwd::getcwd(), sprintf('%04o', umask), $new;
    return $send->({ type => 'http.response.body', body => $body });
}
APP
    write_file('elsewhere.conf', "chdir = $directory/elsewhere\n");
    my @base = (
        $^X, (map { m{\A/} || ref ? "-I$_" : "-I$here/$_" } @INC),
        "$here/bin/pagi-server", '-E', 'production'
    );
    my @paths = (qw(--pid here.pid --error-log here.err --access-log here.log), '--socket', './here.sock');
    chdir $directory or die $!;
    my $server =
        TestServer->spawn(@base, qw(--chdir elsewhere --umask 0027 --no-new-privs), @paths, 'rights.pl');
    chdir $here or die $!;
    ok(wait_for(sub { content("$directory/elsewhere/here.err") =~ /listening/ }), 'the error log is there')
        or diag $server->log;
    my $client = IO::Socket::UNIX->new("$directory/elsewhere/here.sock") or die "here.sock: $!";
    print {$client} "GET / HTTP/1.0\r\n\r\n";
    my ($told) = reverse readline $client;
    is($told, "$directory/elsewhere 0027 1", 'the application is, has the mask and no way to new rights');
    is(sprintf('%04o', (stat "$directory/elsewhere/$_")[2] & oct 7777), '0640', "nobody else reads $_")
        for qw(here.err here.log);
    is(content("$directory/elsewhere/here.pid"), $server->pid . "\n", 'the pid file is there, too');
    is($server->stop,                            0,                   'the server ends well');

    chdir $directory or die $!;
    $server =
        TestServer->spawn(@base, '-c', 'elsewhere.conf', '--port', free_port(), '--error-log', 'two.err',
        'rights.pl');
    chdir $here or die $!;
    ok(wait_for(sub { content("$directory/elsewhere/two.err") =~ /listening/ }),
        'a configuration file may say so');
    is($server->stop, 0, 'the server ends well');

    my ($status, undef, $error) = TestServer->finish_of('pagi-server', '--chdir', "$directory/nowhere", $who);
    is($status, 2, 'a directory that is not there');
    like($error, qr/option --chdir: cannot go to '.*nowhere': No such file/, '... is named');
    ($status, undef, $error) = TestServer->finish_of('pagi-server', '--umask', '999', $who);
    is($status, 2, 'a mask that is none');
    like($error, qr/option --umask must be an octal mode/, '... is refused');
};

subtest 'a directory that a symbolic link leads to' => sub {
    for my $version (1, 2) {
        mkdir "$directory/$_" or die $! for "version$version", "version$version/lib";
        write_file("version$version/lib/Newest.pm", "package Newest; sub number { $version } 1;");
        write_file("version$version/pool.pl",       "+{ handlers => { number => sub { $version } } };");
        write_file("version$version/app.env",       "NEWEST=$version\n");
        write_file("version$version/app.pl",        <<"APP");
use Future::AsyncAwait;
use Newest;
async sub {
    my (\$scope, \$receive, \$send) = \@_;
    die "no lifespan\n" if \$scope->{type} ne 'http';
    my \$pool = await \$scope->{pagi}{extensions}{worker_pool}->call('number');
    await \$send->({ type => 'http.response.start', status => 200 });
    my \$body = "$version \$ENV{NEWEST} \$pool " . Newest::number();
    await \$send->({ type => 'http.response.body', body => \$body });
};
APP
    }
    symlink 'version1', "$directory/current" or die $!;
    my $here   = getcwd();
    my $server = TestServer->spawn(
        $^X,
        (map { m{\A/} || ref ? "-I$_" : "-I$here/$_" } @INC),
        qw(bin/pagi-server -E production --port 0 --workers 1 -I lib --env-file app.env --pool-workers 1),
        qw(--worker-pool pool.pl --chdir),
        "$directory/current",
        'app.pl'
    );
    $server->{port} = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/}) or die $server->log;
    is(get($server->port, '/')->{body}, '1 1 1 1', 'application, variables, pool and module are there');
    symlink 'version2', "$directory/next" or die $!;
    rename "$directory/next", "$directory/current" or die $!;
    $server->signal('HUP');
    ok(wait_for(sub { get($server->port, '/')->{body} eq '2 2 2 2' }), 'HUP brings those where it leads now')
        or diag $server->log;
    unlink "$directory/current" or die $!;
    $server->signal('HUP');
    ok(wait_for(sub { $server->log =~ m{cannot go to '\S+/current' again} }), 'a path that is none is told');
    is($server->stop, 0, 'the server ends well');
};

subtest 'mounts in a directory that a symbolic link leads to' => sub {
    for my $version (3, 4) {
        mkdir "$directory/$_" or die $! for map { "version$version$_" } '', '/lib', '/shop';
        write_file("version$version/lib/Latest.pm", "package Latest; sub number { $version } 1;");
        write_file("version$version/app.env",       "LATEST=$version\n");
        write_file("version$version/main.psgi",     <<"APP");
use Latest;
sub { [ 200, [], ["$version \$ENV{LATEST} " . Latest::number()] ] };
APP
        write_file("version$version/shop/shop.psgi", "sub { [ 200, [], ['shop $version'] ] };");
    }
    symlink 'version3', "$directory/latest" or die $!;
    my $here   = getcwd();
    my $server = TestServer->spawn(
        $^X,
        (map { m{\A/} || ref ? "-I$_" : "-I$here/$_" } @INC),
        qw(bin/peregrine -E production --port 0 --engine process --workers 1 --chdir),
        "$directory/latest",
        '--mount',
        '/=main.psgi,workers=1,lib=lib,env=app.env',
        '--mount',
        '/shop=shop.psgi,workers=1,chdir=shop'
    );
    $server->{port} = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/}) or die $server->log;
    my $said = sub {
        join ', ', map { get($server->port, $_)->{body} } qw(/ /shop);
    };
    is($said->(), '3 3 3, shop 3', 'mounts, variables and modules are there');
    symlink 'version4', "$directory/next" or die $!;
    rename "$directory/next", "$directory/latest" or die $!;
    $server->signal('HUP');
    ok(wait_for(sub { $said->() eq '4 4 4, shop 4' }), 'HUP brings those where it leads now')
        or diag $said->();
    is($server->stop, 0, 'the server ends well');
};

subtest 'user and group' => sub {
    my ($status, undef, $error) = TestServer->finish_of('pagi-server', '--user', 'no-such-user', $who);
    is($status, 2, 'an unknown user is a mistake');
    like($error, qr/option --user: there is no user 'no-such-user'/, '... and is named');
    ($status, undef, $error) = TestServer->finish_of('pagi-server', '--group', 'no-such-group', $who);
    like($error, qr/option --group: there is no group 'no-such-group'/, 'and so is a group');
    plan skip_all => 'only root can become somebody else' if $> != 0;
    my ($uid, $gid) = (getpwnam 'nobody')[ 2, 3 ];
    plan skip_all => 'there is no user nobody' if !$uid;
    mkdir "$directory/private" or die $!;
    chmod oct(700), "$directory/private" or die $!;
    my $port   = 81;
    my $server = TestServer->command('--user', 'nobody', '--access-log', "$directory/private/log", '--pid',
        "$directory/private/pid", $who);
    my @told = split ' ', get($server->port, '/')->{body};
    is($told[0],      "$uid/$uid", 'the application runs as that user');
    is($told[1],      $gid,        '... and in its group');
    is($told[2],      "[$gid]",    '... without other groups');
    is($server->stop, 0,           'the server ends well');
    like(content("$directory/private/log"), qr/"GET/, 'its log was opened before');
    is(content("$directory/private/pid"), '', 'its pid file names nobody any more');
    my $certificates = Certificates->new->authority('site');
    chmod oct(755), $certificates->path('')         or die $!;
    chmod oct(600), $certificates->path('site.key') or die $!;
    $server = TestServer->spawn(
        $^X, (map { "-I$_" } @INC),
        'bin/pagi-server',               '--user',
        'nobody',                        '--listen',
        '127.0.0.1:0,tls',               '--listen',
        "$directory/owned.sock",         '--ssl-cert',
        $certificates->path('site.pem'), '--ssl-key',
        $certificates->path('site.key'), '--access-log',
        "$directory/owned.access.log",   '--error-log',
        "$directory/owned.error.log",    $who
    );
    ok(wait_for(sub { content("$directory/owned.error.log") =~ /listening on unix/ }),
        'a server that can read less than before');
    is((stat "$directory/$_")[4], $uid, "$_ belongs to the user")
        for qw(owned.sock owned.access.log owned.error.log);
    my $said = content("$directory/owned.error.log");
    like(
        $said,
        qr/SSL key file cannot be read now: \S+site.key: Permission denied: a renewed/,
        'a key for root is told of'
    );
    unlike($said, qr/site\.pem/, '... and a certificate for all is not');
    rename "$directory/owned.$_", "$directory/owned.$_.1" or die $! for qw(access.log error.log);

    for my $name (qw(access.log error.log)) {
        open my $made, '>', "$directory/owned.$name" or die $!;
        chown $uid, -1, $made or die $!;
    }
    $server->signal('USR1');
    ok(wait_for(sub { $server->signal('HUP'); content("$directory/owned.error.log") =~ /certificate/ }),
        'files that were made for it are taken on USR1');
    is($server->stop, 0, 'the server ends well');
    my $other = TestServer->command('--group', 'nogroup', $who);
    @told = split ' ', get($other->port, '/')->{body};
    is($told[0],     '0/0',                      'a group alone changes the group only');
    is($told[1],     scalar getgrnam('nogroup'), '... to that one');
    is($other->stop, 0,                          '... and the server ends well');
};

done_testing;
