# A stop lets applications come to their end: the code behind a last answer, behind a response, behind a
# disconnect. It never fails for where in the event loop it happens.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use Future;
use Future::AsyncAwait;
use IO::Async::Function;
use IO::Async::Loop;
use IO::Socket::INET;
use IO::Socket::SSL;
use OnlyInFull qw(only_in_full);
use PAGI::Server;
use Test::More;
use TestClient qw(get);
use TestGate;
use TestServer;
use TestTools qw(freeze patience);
use TestWebSocket;

# Messages that a log may not contain: Perl's words for a Future that was dropped, and for a signal's function
# that was removed while the loop went through them.
my $BROKEN = qr/lost its returning future|freed value|exception in the event loop/;

# Runs an application whose lifespan half is given to its end by TERM.
sub stopped {
    my ($lifespan, %options) = @_;
    my $server = TestServer->start(
        app => async sub {
            my ($scope, $receive, $send) = @_;
            die if $scope->{type} ne 'lifespan';
            await $receive->();
            await $lifespan->($receive, $send);
        },
        %options
    );
    my $status = $server->stop;
    return ($status, $server->log);
}

sub started   { return $_[0]->({ type => 'lifespan.startup.complete' }) }
sub completed { return $_[0]->({ type => 'lifespan.shutdown.complete' }) }
sub pause     { return IO::Async::Loop->new->delay_future(after => $_[0]) }

subtest 'behind the answer to lifespan.shutdown' => sub {
    my ($status, $log) = stopped(
        async sub {
            my ($receive, $send) = @_;
            await started($send);
            await $receive->();
            await completed($send);
            await pause(0.2);
            print STDERR "cleaned up\n";
        }
    );
    is($status, 0, 'the server ends well');
    like(
        $log,
        qr/^cleaned up\n.*the server has stopped$/ms,
        'what the application awaits there comes to its end first'
    );
    unlike($log, $BROKEN, 'nothing was dropped');

    ($status, $log) = stopped(
        async sub {
            my ($receive, $send) = @_;
            await started($send);
            await $receive->();
            await completed($send);
            await pause(0.1);
            die "too late\n";
        }
    );
    is($status, 0, 'an exception there changes nothing');
    like($log, qr/the lifespan application died after its last answer: too late/, '... and is told');

    ($status, $log) = stopped(
        async sub {
            my ($receive, $send) = @_;
            await started($send);
            while (my $event = await $receive->()) {
                print STDERR "event: $event->{type}\n";
                await completed($send);
            }
        }
    );
    is($status,                          0, 'an application that asks for more events ends');
    is(scalar(() = $log =~ /^event:/mg), 1, '... there are none');
    unlike($log, qr/died|cancelled|in time/, '... and that is in order');

    ($status, $log) = stopped(
        async sub {
            my ($receive, $send) = @_;
            await started($send);
            $receive->()->cancel;
            my $event = await $receive->();
            print STDERR "got $event->{type}\n";
            await completed($send);
        }
    );
    is($status, 0, 'the server ends well');
    like($log, qr/^got lifespan\.shutdown$/m, 'a $receive that was cancelled takes no event away');

    ($status, $log) = stopped(
        async sub {
            my ($receive, $send) = @_;
            await started($send);
            await $receive->();
            await completed($send);
            await Future->new;
        },
        shutdown_timeout => 0.2
    );
    is($status, 0, 'an application that does not end is left');
    like($log, qr/the application did not return in time after its last answer/, '... with a word');
    unlike($log, $BROKEN, '... not by dropping it');

    ($status, $log) = stopped(
        async sub {
            my ($receive, $send) = @_;
            await started($send);
            await $receive->();
            await Future->new;
        },
        shutdown_timeout => 0
    );
    is($status, 0, 'with shutdown_timeout 0 there is no time');
    like($log, qr/lifespan shutdown timed out after 0s/, '... for an answer');
};

subtest 'behind a failed startup' => sub {
    my $loop   = IO::Async::Loop->new;
    my $behind = 0;
    my $server = PAGI::Server->new(
        app => async sub {
            my ($scope, $receive, $send) = @_;
            await $send->({ type => 'lifespan.startup.failed', message => 'no database' });
            await pause(0.1);
            $behind = 1;
        },
        port  => 0,
        quiet => 1,
    );
    local $SIG{__WARN__} = sub { };
    $loop->add($server);
    like($server->listen->await->failure, qr/no database/, 'it fails');
    ok($behind, '... after the application has returned');
    $loop->remove($server);
};

subtest 'an await that ends with a child process' => sub {
    my $app = async sub {
        my ($receive, $send) = @_;
        my $function = IO::Async::Function->new(code => sub { $_[0] * 2 }, min_workers => 2);
        IO::Async::Loop->new->add($function);
        await $function->call(args => [1]);
        await started($send);
        await $receive->();
        await $function->stop;
        print STDERR "stopped\n";
        await completed($send);
    };
    for my $loop (qw(Peregrine Epoll Select Poll)) {
        local $ENV{IO_ASYNC_LOOP} = $loop;
        for my $round (1 .. only_in_full(3) || 1) {
            my ($status, $log) = stopped($app);
            is($status, 0, "$loop: the server ends well");
            like($log, qr/^stopped$/m, '... after the application');
            unlike($log, $BROKEN, '... and without a trace');
        }
    }
};

subtest 'applications behind the end of their responses' => sub {
    my $gate = TestGate->new;
    my $app  = async sub {
        my ($scope, $receive, $send) = @_;
        if ($scope->{type} eq 'websocket') {
            await $receive->();
            await $send->({ type => 'websocket.accept' });
            my $event = await $receive->();
            await pause(0.2);
            print STDERR "left by $event->{reason}\n";
            return;
        }
        die if $scope->{type} ne 'http';
        await $send->(
            { type => 'http.response.start', status => 200, headers => [ [ 'content-length', 2 ] ] });
        await $send->({ type => 'http.response.body', body => 'ok' });
        await $scope->{path} eq '/never' ? pause(1000) : $gate->passed('commit');
        print STDERR "committed\n";
    };
    my $server = TestServer->start(app => $app);
    is(get($server->port, '/')->{body}, 'ok', 'a response is complete');
    $server->signal('TERM');
    ok($server->wait_for_log(qr/applications still running: 1$/m), '... and its application is not');
    $gate->open('commit');
    is($server->wait, 0, 'the server stops');
    like($server->log, qr/^committed\n.*the server has stopped$/ms, '... when the application has returned');

    $server = TestServer->start(app => $app);
    my $socket = TestWebSocket->open($server->port, '/');
    $server->signal('TERM');
    is($socket->next, 'close 1001', 'with a WebSocket open, too');
    $socket->close_frame(1001);
    is($server->wait, 0, '... it ends well');
    like($server->log, qr/^left by server_shutdown$/m, '... whose application cleans up');

    $server = TestServer->start(app => $app, shutdown_timeout => 0.2);
    get($server->port, '/never');
    is($server->stop, 0, 'one that does not return is left');
    like($server->log, qr/not waiting for applications that run on: 1$/m, '... with a word');

    $server = TestServer->start(app => $app);
    get($server->port, '/never');
    $server->signal('TERM');
    ok($server->wait_for_log(qr/applications still running: 1/), 'one that takes its time');
    $server->signal('TERM');
    is($server->wait, 0, '... is left at a second signal');

    $server = TestServer->start(
        app => async sub {
            my ($scope, $receive, $send) = @_;
            die if $scope->{type} ne 'sse';
            await $send->({ type => 'sse.start' });
            while (1) {
                await $send->({ type => 'sse.send', data => 'tick' });
                await pause(0.1);
            }
        }
    );
    my $stream = TestClient->new($server->port)
        ->send("GET / HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n");
    like($stream->some(10), qr/200 OK/, 'a stream without end');
    is($server->stop, 0, '... does not keep the server for shutdown_timeout');
    like(
        $server->log,
        qr/not waiting for applications that run on: 1$/m,
        '... though its application does not hear'
    );
};

subtest 'two servers in one loop' => sub {
    my $log    = '';
    my $server = TestServer->spawn($^X, (map { "-I$_" } @INC), '-e', <<'PROGRAM');
use strict; use warnings; use Future::AsyncAwait; use IO::Async::Loop; use PAGI::Server;
my $loop = IO::Async::Loop->new;
for my $name (qw(one two three)) {
    my $server = PAGI::Server->new(port => 0, app => async sub {
        my ($scope, $receive, $send) = @_;
        await $receive->();
        await $send->({ type => 'lifespan.startup.complete' });
        await $receive->();
        await $loop->delay_future(after => 0.1) if $name ne 'one';
        print STDERR "$name is over\n";
        await $send->({ type => 'lifespan.shutdown.complete' });
    });
    $loop->add($server);
    $server->listen->get;
}
print STDERR "ready\n";
$loop->run;
PROGRAM
    ok($server->wait_for_log(qr/^ready$/m), 'they run');
    is($server->stop, 0, 'one signal');
    like($server->log, qr/^$_ is over$/m, "... stops server $_ in order") for qw(one two three);
};

subtest 'a server that stops while the workers of another one run' => sub {
    my $server = TestServer->spawn($^X, (map { "-I$_" } @INC), '-e', <<'PROGRAM');
use strict; use warnings; use IO::Async::Loop; use IO::Socket::INET; use PAGI::Server;
my $loop    = IO::Async::Loop->new;
my @servers = map { PAGI::Server->new(port => 0, workers => 1, app => sub { die "no lifespan\n" }) } 1 .. 2;
for my $server (@servers) { $loop->add($server); $server->listen->get }
my @ports = map { $_->port } @servers;
$servers[0]->shutdown->get;
my $where = sub { return IO::Socket::INET->new(PeerAddr => "127.0.0.1:$_[0]") ? 'there' : 'gone' };
print STDERR join(' ', map { $where->($_) } @ports), " is what clients find\n";
$loop->run;
PROGRAM
    is($server->wait_for_log(qr/^(.*) is what clients find$/m), 'gone there', 'its port is free');
    is($server->stop,                                           0,            'the other one stops');
};

subtest 'a server that is taken out of its loop' => sub {
    my $program = <<'PROGRAM';
use strict; use warnings; use Future::AsyncAwait; use IO::Async::Loop; use PAGI::Server;
my ($when) = @ARGV;
my $loop = IO::Async::Loop->new;
my $server = PAGI::Server->new(port => 0, app => async sub {
    my ($scope, $receive, $send) = @_;
    await $receive->();
    await Future->new if $when =~ /startup/;
    await $send->({ type => 'lifespan.startup.complete' });
    await $receive->();
    await Future->new;
});
$loop->add($server);
my $listen = $server->listen;
$listen->get if $when !~ /startup/;
if ($when eq 'signal') {
    $loop->attach_signal(CONT => sub { $loop->remove($server); print STDERR "removed\n"; $loop->stop });
    kill CONT => $$;
    $loop->run;
    kill TERM => $$;
    die "not stopped by TERM";
}
my $shutdown = $when eq 'startup' ? Future->done : $server->shutdown;
my $remove = sub { $loop->remove($server); print STDERR "removed\n" };
$when =~ /at once/ ? $remove->() : $loop->later($remove);
print STDERR "shutdown is over\n" if $shutdown->await->is_done;
print STDERR 'listen: ' . ($listen->await->failure || "done\n");
PROGRAM
    my %expected = (
        startup                      => [ 0,  qr/^listen: Lifespan startup was given up/m ],
        'startup, shutdown'          => [ 0,  qr/^shutdown is over\nlisten: The server was told to stop/m ],
        'startup, shutdown, at once' => [ 0,  qr/^shutdown is over\nlisten: Lifespan startup was given up/m ],
        shutdown                     => [ 0,  qr/^shutdown is over$/m ],
        signal                       => [ 15, qr/^removed$/m ],
    );
    for my $loop ('Peregrine', only_in_full('Epoll'), 'Select') {
        local $ENV{IO_ASYNC_LOOP} = $loop;
        for my $when (sort keys %expected) {
            my $server = TestServer->spawn($^X, (map { "-I$_" } @INC), '-e', $program, $when);
            is($server->wait, $expected{$when}[0], "$loop, $when: the program ends");
            like($server->log, $expected{$when}[1], '... and nobody waits for ever');
            unlike($server->log, $BROKEN, '... nor was anything dropped');
        }
    }
};

# A client that the kernel has let in is served: those in its queue, those that have yet to say what they want
# or to begin their handshake.
subtest 'connections that have come when the server stops' => sub {
    my $files = Certificates->new;
    $files->authority('ca');
    $files->issue('localhost', extensions => ['subjectAltName=DNS:localhost,IP:127.0.0.1']);
    for my $tls (0, 1) {
        my $what   = $tls ? 'over TLS' : 'in plain text';
        my $server = TestServer->start(
            app => async sub {
                my ($scope, $receive, $send) = @_;
                die if $scope->{type} ne 'http';
                await $send->({ type => 'http.response.start', status => 200, headers => [] });
                await $send->({ type => 'http.response.body', body => $scope->{path} });
            },
            $tls ? (ssl => { $files->pair('localhost') }) : (),
            # As long as clients of a busy machine may need until they have asked, all of them.
            limits => { linger_ms => 60_000 },
        );
        my $come = sub {
            return IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $server->port, Timeout => 10);
        };
        my @early = map { $come->() } 1 .. 5;
        freeze($server->pid);
        my @queued = map { $come->() } 1 .. 5;
        $server->signal('TERM')->signal('CONT');
        my $deadline = time + patience(60);
        while (time < $deadline && $come->()) { select undef, undef, undef, 0.02 }
        my $served = 0;

        for my $socket (@early, @queued) {
            $tls and (IO::Socket::SSL->start_SSL($socket, SSL_verify_mode => 0, SSL_ca => []) or next);
            print {$socket} "GET /after HTTP/1.1\r\nHost: localhost\r\n\r\n";
            my $answer = do { local $/; <$socket> };
            close $socket;
            $served++ if ($answer // '') =~ m{\AHTTP/1\.1 200 .*\nConnection: close\r\n.*/after\z}s;
        }
        is($served,       10, "$what: so are all who have come before it stops, and they hear of that");
        is($server->wait, 0,  "$what: it ends well");
    }
};

done_testing;
