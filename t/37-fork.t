# A child that an application forks shares nothing with its parent: no connection, no listening socket, no
# watch, no lock. However the child ends, its parent goes on; functions of the server die in the child.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use File::Temp ();
use Future;
use Future::AsyncAwait;
use IO::Async::Function;
use IO::Async::Loop;
use IO::Socket::IP ();
use PAGI::Server;
use POSIX ();
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(content free_port patience wait_for);
use TestWebSocket;

my $dir  = File::Temp->newdir;
my $pids = "$dir/pids";          # of the children that have to be ended here

my $main = $$;

END {
    local $?;
    kill KILL => split ' ', content($pids) if $main == $$;
}

sub note_pid {
    open my $out, '>>', $pids or die $!;
    print {$out} "$$\n";
    close $out;
    return;
}

sub loop { return IO::Async::Loop->new }

async sub answer {
    my ($send, $text) = @_;
    my $headers = [ [ 'content-length', length $text ] ];
    await $send->({ type => 'http.response.start', status => 200, headers => $headers });
    await $send->({ type => 'http.response.body', body => $text });
}

# The sockets and epoll instances that a child has open.
sub open_now {
    opendir my $fds, '/proc/self/fd' or return 'unknown';
    my @links = map { readlink "/proc/self/fd/$_" || () } readdir $fds;
    return sprintf '%d sockets, %d epolls', scalar(grep { /\Asocket:/ } @links),
        scalar grep { /eventpoll/ } @links;
}

sub failure {
    my ($code) = @_;
    return eval { $code->(); 1 } ? 'nothing' : $@ =~ s/\n.*//sr;
}

package Witness {
    sub new { my ($class) = @_; return bless [$$], $class }
    sub DESTROY { my ($self) = @_; return if $self->[0] == $$; print STDERR "destroyed in a child\n" }
}

# The child's code, by the path of the request. The child ends if the code returns false.
my %CHILD = (
    returns => sub { 1 },
    dies    => sub { die "the child's own words\n" },
    exits   => sub { exit 3 },
    quits   => sub { POSIX::_exit(4) },
    calls   => sub {
        my ($scope, $receive, $send, $server) = @_;
        my $connection = $scope->{'pagi.connection'};
        my %calls      = (
            receive      => sub { $receive->() },
            send         => sub { $send->({ type => 'http.response.start', status => 500 }) },
            is_connected => sub { $connection->is_connected },
            buffered     => sub { $scope->{'pagi.transport'}->buffered_amount },
            shutdown     => sub { $server->shutdown },
            listen       => sub { $server->listen },
            configure    => sub { $server->configure(timeout => 1) },
            count        => sub { $server->connection_count },
        );
        print STDERR "$_: " . failure($calls{$_}) . "\n" for sort keys %calls;
        print STDERR 'running: ' . $server->is_running . "\n";
        POSIX::_exit(0);
    },
    lists => sub { print STDERR 'child: ' . open_now() . "\n"; POSIX::_exit(0) },
    loops => sub {
        my ($user, $system) = times;
        loop()->delay_future(after => 1)->get;
        loop()->watch_time(after => 1, code => sub { loop()->stop });
        loop()->run;
        my @after = times;
        print STDERR 'looped, CPU: '
            . ($after[0] + $after[1] - $user - $system < 0.5 ? 'little' : 'much') . "\n";
        exit 0;
    },
    waits => sub {
        note_pid();
        print STDERR "child waits: $$\n";
        loop()->delay_future(after => 1000)->get;
        exit 0;
    },
    sleeps => sub {
        note_pid();
        print STDERR "child sleeps: $$\n";
        sleep 1000;
        exit 0;
    },
    forks => sub {
        my $grandchild = fork // die $!;
        alarm patience(60);
        return 1 if !$grandchild;
        waitpid $grandchild, 0;
        print STDERR "grandchild: $?\n";
        POSIX::_exit(0);
    },
);

our $witness = Witness->new;

my $app = async sub {
    my ($scope, $receive, $send) = @_;
    if ($scope->{type} eq 'websocket') {
        await $receive->();
        await $send->({ type => 'websocket.accept' });
        while ((my $event = await $receive->())->{type} eq 'websocket.receive') {
            await $send->({ type => 'websocket.send', text => "echo $event->{text}" });
        }
        return;
    }
    die "no $scope->{type}\n" if $scope->{type} ne 'http';
    if ($scope->{path} eq '/slowly') {
        await $send->({ type => 'http.response.start', status => 200 });
        for my $number (1 .. 40) {
            await $send->({ type => 'http.response.body', body => "$number\n" x 1000, more => 1 });
            await loop()->delay_future(after => 0.05);
        }
        return await $send->({ type => 'http.response.body', body => 'end' });
    }
    my ($late, $what) = $scope->{path} =~ m{\A/(late-)?(\w*)\z};
    my $child = $CHILD{ $what // '' } or return await answer($send, $$);
    await loop()->delay_future(after => 0.01) if $late;
    my $pid = fork // die $!;
    if (!$pid) {
        alarm patience(60);    # ends the process in any case
        return if $child->($scope, $receive, $send, (grep { $_->isa('PAGI::Server') } loop()->notifiers)[0]);
        POSIX::_exit(9);
    }
    my $ended = loop()->new_future;
    loop()->watch_process($pid => sub { $ended->done($_[1]) });
    return await answer($send, $pid) if $what eq 'waits' || $what eq 'sleeps';
    my $status = await $ended;
    await answer($send, 'the child ended with ' . ($status & 127 ? "signal $status" : $status >> 8));
};

# Sends two requests on a connection that is older than the child: a second answer to a request would show,
# and so would a lost watch.
sub ask_twice {
    my ($client, $path) = @_;
    my $request  = sub { "GET $_[0] HTTP/1.1\r\nHost: localhost\r\n\r\n" };
    my $first    = $client->send($request->("/$path"))->response or return 'no answer';
    my $second   = $client->send($request->('/'))->response      or return "$first->{body}, then nothing";
    my $leftover = $client->some(0.1);
    return "$first->{body}, then an answer" if $second->{body} =~ /\A\d+\z/ && $leftover eq '';
    return "$first->{body}, then $second->{body} $leftover";
}

subtest 'a child that comes to an end' => sub {
    for my $loop (qw(Peregrine Epoll Select)) {
        local $ENV{IO_ASYNC_LOOP} = $loop;
        my $server = TestServer->start(app => $app);
        my $port   = $server->port;
        my $client = TestClient->new($port);
        my $other  = TestClient->new($port);
        my %ends   = (returns => 1, dies => 1, exits => 3, quits => 4, calls => 0);
        for my $how (sort keys %ends) {
            for my $path ($how, "late-$how") {
                is(
                    ask_twice($client, $path),
                    "the child ended with $ends{$how}, then an answer",
                    "$loop: after one that $how ($path)"
                );
            }
        }
        is(
            ask_twice($other, 'lists'),
            'the child ended with 0, then an answer',
            'a connection that was idle meanwhile'
        );
        is($server->stop, 0, 'the server ends well');
        my $log = $server->log;
        like(
            $log,
            qr/process \d+, which the application has forked, returned from it; a child has to end by exit/,
            'one that returns says so'
        );
        my @died = $log =~ /process \d+, which the application has forked, died: the child's own words$/mg;
        is(scalar @died, 2, 'a child that dies says of what, at once or later');
        like($log, qr/^destroyed in a child$/m, 'destructors run in one that exits');
        like(
            $log,
            qr/^child: 0 sockets, ${\($loop eq 'Select' ? 0 : 1)} epolls$/m,
            'a child has no socket, and no epoll but its loop\'s'
        );
        my %says =
            map {
            $_ =>
                qr/^\Q$_\E: PAGI: the request belongs to process \d+, from which this one \(\d+\) was forked/m
            } qw(receive send is_connected buffered);
        $says{$_} = qr/^$_: .*the server belongs to process \d+, from which this one \(\d+\) was forked/m
            for qw(shutdown listen configure count);
        like($log, $says{$_},         "$_ dies in a child") for sort keys %says;
        like($log, qr/^running: 0$/m, 'for a child the server does not run');
    }
};

subtest 'a child that goes on' => sub {
    for my $loop (qw(Peregrine Epoll Select)) {
        local $ENV{IO_ASYNC_LOOP} = $loop;
        my $server = TestServer->start(app => $app);
        my $client = TestClient->new($server->port);
        is(
            ask_twice($client, 'loops'),
            'the child ended with 0, then an answer',
            "$loop: with the loop, for a while"
        );
        like($server->log, qr/^looped, CPU: little$/m, '... in which it sleeps');
        is(ask_twice($client, 'forks'), 'the child ended with 0, then an answer', 'with a child of its own');
        like($server->log, qr/^grandchild: 256$/m, '... which ends as it does');
        next if $loop eq 'Select';    # whose signals go through a pipe that a child shares
        my $pid = get($server->port, '/waits')->{body};
        ok($server->wait_for_log(qr/^child waits: $pid$/m), 'with the loop, for ever');
        kill TERM => $pid;
        ok(wait_for(sub { !kill 0 => $pid }), '... until TERM');
        is(
            ask_twice($client, 'quits'),
            'the child ended with 4, then an answer',
            '... which ends nothing else'
        );
        is($server->stop, 0, 'the server ends well');
    }
};

subtest 'connections that live meanwhile' => sub {
    my $files = Certificates->new->authority('ca')->issue('localhost', subject => '/CN=localhost');
    my @tls   = PAGI::Server->has_tls ? [ 'TLS', ssl => { $files->pair('localhost') } ] : ();
    for my $case (['HTTP'], @tls) {
        my ($name, @options) = @$case;
        my $server = TestServer->start(app => $app, @options);
        my $port   = $server->port;
        my @client = @options ? (tls => {}) : ();
        my $reader = TestClient->new($port, @client)->send("GET /slowly HTTP/1.1\r\nHost: h\r\n\r\n");
        my $socket = TestWebSocket->open($port, '/', @client);
        my $client = TestClient->new($port, @client);
        for my $how (qw(returns dies exits quits late-returns)) {
            like(ask_twice($client, $how), qr/then an answer\z/, "$name: a child ($how)");
            is($socket->text($how)->next, "text echo $how", '... leaves WebSockets alone');
        }
        is(
            $reader->response->{body},
            join('', map { "$_\n" x 1000 } 1 .. 40) . 'end',
            '... and responses that are on'
        );
    }
};

subtest 'a parent that goes' => sub {
    my $file = "$dir/app.pl";
    open my $out, '>', $file or die $!;
    print {$out} <<'APP';
use Future::AsyncAwait;
END { print STDERR 'END in ' . ($$ == $main::PID ? 'the server' : 'a child') . "\n" }
$main::PID //= $$;
async sub {
    my ($scope, $receive, $send) = @_;
    die if $scope->{type} ne 'http';
    if ($scope->{path} eq '/sleeps' && !fork) {
        open my $out, '>>', $ENV{TEST_PIDS};
        print {$out} "$$\n";
        close $out;
        alarm 60;
        sleep 1000;
        exit 0;
    }
    return if $scope->{path} eq '/returns' && !fork;
    exit 0 if $scope->{path} eq '/exits' && !fork;
    await $send->({ type => 'http.response.start', status => 200 });
    await $send->({ type => 'http.response.body', body => "from $$" });
};
APP
    close $out;
    local $ENV{TEST_PIDS} = $pids;
    my ($pid_file, $unix, $port) = ("$dir/server.pid", "$dir/server.sock", free_port());
    my @arguments = ('--pid', $pid_file, '--listen', "unix:$unix", '--access-log', "$dir/access.log", $file);
    push @arguments, '--listen', "127.0.0.1:$port";
    my $server = TestServer->command(@arguments);
    ok($server->wait_for_log(qr{listening on .*http://127\.0\.0\.1:$port/}s), 'a server with children');
    my $before = content($pids);
    get($port, $_) for qw(/returns /exits /sleeps /);
    ok($server->wait_for_log(qr/which the application has forked, returned from it/),
        'a child that returns ends');
    ok($server->wait_for_log(qr/^END in a child$/m), 'a child that exits runs its END blocks');
    unlike($server->log, qr/END in a child.*END in a child/s, '... the other one does not');
    ok(-S $unix, 'the Unix socket is there');
    is(content($pid_file), $server->pid . "\n", 'the pid file, too');
    ok(wait_for(sub { content("$dir/access.log") =~ m{"GET / } }), 'the access log is written');
    $server->signal('KILL');
    $server->wait;
    ok(wait_for(sub { content($pids) ne $before }), 'a child has said who it is');
    my ($child) = content($pids) =~ /(\d+)\n\z/;
    ok(kill(0 => $child), 'a child has survived');
    my $listener =
        IO::Socket::IP->new(LocalHost => '127.0.0.1', LocalPort => $port, Listen => 1, ReuseAddr => 1);
    ok($listener, 'the port is free') or diag $@;
    close $listener if $listener;
    $server = TestServer->command(@arguments);
    is(get($port, '/')->{body}, 'from ' . $server->pid, 'a new server takes everything over');
    is($server->stop,           0,                      '... and ends well');
    is(scalar(() = content("$dir/access.log") =~ m{"GET /sleeps }g),
        1, 'each request has one line in the access log');
    ok(!-e $_, "$_ is gone") for $pid_file, $unix;
};

subtest 'a child of the lifespan application' => sub {
    my $app = async sub {
        my ($scope, $receive, $send) = @_;
        return await answer($send, $$) if $scope->{type} eq 'http';
        await $receive->();
        await loop()->delay_future(after => 0.05) if $ENV{TEST_LATE};
        my $pid = fork // die $!;
        if (!$pid) {
            alarm patience(60);
            print STDERR 'child: ' . open_now() . "\n";    # in one write: the parent has something to say
        }
        await $send->({ type => 'lifespan.startup.complete' }) if $pid || $ENV{TEST_SENDS};
        return                                                 if !$pid;
        await $receive->();
        waitpid $pid, 0;
        print STDERR "the child ended with $?\n";
        await $send->({ type => 'lifespan.shutdown.complete' });
    };
    for my $late (0, 1) {
        for my $sends (0, 1) {
            local @ENV{qw(TEST_LATE TEST_SENDS)} = ($late, $sends);
            my $server = TestServer->start(app => $app);
            is(get($server->port, '/')->{body}, $server->pid, 'the server starts, once');
            is($server->stop,                   0,            '... and ends well');
            like($server->log, qr/^child: 0 sockets/m,          '... its child has no socket');
            like($server->log, qr/^the child ended with 256$/m, '... and ends');
        }
    }
};

subtest 'children that run another program' => sub {
    local $ENV{IO_ASYNC_LOOP} = 'Peregrine';    # as pagi-server has it
    my $server = TestServer->start(
        app => async sub {
            my ($scope, $receive, $send) = @_;
            die if $scope->{type} ne 'http';
            my $loop = loop();
            my @said = ('system ' . (system('sh', '-c', 'exit 7') >> 8), 'backticks ' . `echo hello`);
            open my $pipe, '-|', 'echo piped' or die $!;
            push @said, readline $pipe;
            close $pipe;
            if (!(open($pipe, '-|') // die $!)) { print 'from a child'; POSIX::_exit(0) }
            push @said, readline $pipe;
            push @said,
                await $loop->run_process(command => [ 'sh', '-c', 'echo process' ], capture => ['stdout']);
            my $killed = $loop->new_future;
            my $process =
                $loop->open_process(command => [ 'sleep', 60 ], on_finish => sub { $killed->done($_[1]) });
            $process->kill('TERM');
            push @said, 'killed by ' . await $killed;
            my $function = IO::Async::Function->new(code => sub { return $_[0] + 1 }, max_workers => 1);
            $loop->add($function);
            push @said, 'function ' . await $function->call(args => [1]);
            await $function->stop;
            my $status = $loop->new_future;
            $loop->fork(code => sub { return 5 }, on_exit => sub { $status->done($_[1] >> 8) });
            push @said, 'fork ' . await $status;
            chomp @said;
            await answer($send, join ', ', @said);
        }
    );
    my $client = TestClient->new($server->port);
    for (1 .. 2) {
        my $response = $client->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")->response;
        is($response->{body},
            'system 7, backticks hello, piped, from a child, process, killed by 15, function 2, fork 5');
    }
    is($server->stop, 0, 'the server ends well');
    unlike($server->log, qr/forked/, '... without a word');
};

subtest 'SIGPIPE' => sub {
    my $server = TestServer->start(
        app => async sub {
            my ($scope, $receive, $send) = @_;
            die "unsupported\n" if $scope->{type} ne 'http';
            my ($ignored) = qx(cat /proc/self/status) =~ /^SigIgn:\s*([0-9a-f]+)/m;
            pipe my $reader, my $writer or die $!;
            close $reader;
            my $told = syswrite($writer, 'x') // "$!";
            await answer($send,
                (hex($ignored) & 1 << POSIX::SIGPIPE() - 1 ? 'ignored' : 'default') . ", $told");
        },
        quiet => 1
    );
    is(get($server->port, '/')->{body}, 'default, Broken pipe', 'ends programs, and not the server')
        for 1 .. 2;
    is($server->stop, 0, 'the server ends well');
};

done_testing;
