# engine => 'thread': while Perl computes, the engine does all that needs no Perl.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use File::Temp ();
use Future::AsyncAwait;
use PAGI::Server;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(patience);
use TestWebSocket;
use Time::HiRes qw(sleep time);

my $signals = File::Temp->newdir;
my $large   = 'x' x 16_000_000;

sub say_line { print STDERR "@_\n"; return }

# Computes, so that the process does nothing else, until the test opens the gate of this name.
sub compute {
    my ($name) = @_;
    my $end = time + patience(60);
    say_line("$name computes");
    sleep 0.01 while !-e "$signals/$name" && time < $end;
    say_line("$name has computed");
    return;
}

async sub answer {
    my ($send, $body) = @_;
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body', body => $body });
    return;
}

my %handlers = (
    '/compute' => async sub {
        my ($scope, $receive, $send) = @_;
        compute($scope->{query_string});
        await answer($send, 'computed');
    },
    '/large' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.start', status => 200, headers => [] });
        my $sent = $send->({ type => 'http.response.body', body => $large });
        compute('large');
        await $sent;
        say_line('large is sent');
    },
    '/upload' => async sub {
        my ($scope, $receive, $send) = @_;
        my ($len, $event) = (0);
        do { $event = await $receive->(); $len += length $event->{body} } while $event->{more};
        await answer($send, "took $len");
    },
    '/socket' => async sub {
        my ($scope, $receive, $send) = @_;
        await $receive->();
        await $send->({ type => 'websocket.accept' });
        while ((my $event = await $receive->())->{type} eq 'websocket.receive') {
            await $send->({ type => 'websocket.send', text => "you said $event->{text}" });
        }
    },
    '/quick' => async sub { await answer($_[2], 'quick') },
    '/noted' => async sub {
        say_line("works on $_[0]{query_string}");
        await answer($_[2], 'noted');
    },
);

sub app { return $_[0]{type} eq 'lifespan' ? die "no\n" : $handlers{ $_[0]{path} }->(@_) }

sub server {
    my (%options) = @_;
    return TestServer->start(
        app           => \&app,
        engine        => 'thread',
        access_log    => undef,
        health_path   => '/health',
        max_body_size => 20_000_000,
        limits        => { head_ms => 500 },
        %options
    );
}

# Runs while the server's Perl computes.
sub while_computing {
    my ($server, $name, $code) = @_;
    my $busy = TestClient->new($server->port)->send("GET /compute?$name HTTP/1.1\r\nHost: h\r\n\r\n");
    ok($server->wait_for_log(qr/^$name computes$/m), "$name: Perl computes");
    $code->();
    unlike($server->log, qr/^$name has computed/m, '... all the time');
    open my $signal, '>', "$signals/$name" or die "$signals/$name: $!";
    is($busy->response->{body}, 'computed', '... and answers when it is done');
    return;
}

subtest 'bad values' => sub {
    for my $bad ('elsewhere', 'threads', '', [], undef) {
        my $shown = $bad // 'undef';
        ok(!eval { PAGI::Server->new(app => \&app, engine => $bad); 1 }, "refused: $shown");
        like($@, qr/option 'engine' must be (?:one of )?inline/, '... with what is allowed');
    }
};

my $server = server();
my $port   = $server->port;
is(get($port, '/quick')->{body}, 'quick', 'a request is answered');

while_computing(
    $server, 'first',
    sub {
        is(TestClient->new($port)->send("GET / HTTP/1.1\r\n\r\n")->response->{status},
            400, 'a malformed request is refused');
        my $text = "POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 20000001\r\n\r\n";
        is(TestClient->new($port)->send($text)->response->{status}, 413,    'too large a body, too');
        is(get($port, '/health')->{body},                           "ok\n", 'the health path is answered');
        is(TestClient->new($port)->send("GET / HTTP/1.1\r\nHo")->response->{status},
            408, 'a slow head meets its deadline');
    }
);

my $socket = TestWebSocket->open($port, '/socket');
is($socket->text('a')->next, 'text you said a', 'a WebSocket is open');
while_computing(
    $server, 'second',
    sub {
        $socket->send_frame(TestWebSocket::PING(), 'still there?');
        is($socket->next, 'pong still there?', 'a ping is answered');
        $socket->text("$_") for 1 .. 3;
    }
);
is($socket->next, "text you said $_", '... and what was sent meanwhile comes through') for 1 .. 3;
$socket->close_frame(1000);
is($socket->next, 'close 1000', '... to the end');

subtest 'messages and the end of a WebSocket in one piece' => sub {
    my $talker = TestWebSocket->open($port, '/socket');
    my @frames = ((map { TestWebSocket::frame(TestWebSocket::TEXT(), "word $_") } 1 .. 3));
    my $busy   = TestClient->new($port)->send("GET /compute?sixth HTTP/1.1\r\nHost: h\r\n\r\n");
    $server->wait_for_log(qr/^sixth computes$/m);
    $talker->{client}->send(join '', @frames, TestWebSocket::frame(TestWebSocket::CLOSE(), pack 'n', 1000));
    sleep 0.2;
    open my $signal, '>', "$signals/sixth" or die "$signals/sixth: $!";
    is($talker->next,           "text you said word $_", 'a message is answered') for 1 .. 3;
    is($talker->next,           'close 1000',            '... then the end');
    is($busy->response->{body}, 'computed',              'Perl was busy meanwhile');
};

subtest 'output that is queued' => sub {
    my $client = TestClient->new($port)->send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    ok($server->wait_for_log(qr/^large computes$/m), 'Perl has sent and computes');
    ok($client->response->{body} eq $large,          'the client gets all of it');
    unlike($server->log, qr/^large has computed/m, '... meanwhile');
    open my $signal, '>', "$signals/large" or die "$signals/large: $!";
    ok($server->wait_for_log(qr/^large is sent$/m), '... which Perl learns then');
};

subtest 'an upload' => sub {
    my $client =
        TestClient->new($port)->send("POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 16000000\r\n\r\n");
    $client->send(substr $large, 0, 100_000);
    while_computing(
        $server, 'third',
        sub {
            my $other =
                TestClient->new($port)
                ->send("POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
            is(get($port, '/health')->{body}, "ok\n", 'other clients send their requests');
            push @{ $server->{others} }, $other;
        }
    );
    is($server->{others}[0]->response->{body}, 'took 5', '... and are answered');
    $client->send(substr $large, 100_000);
    is($client->response->{body}, 'took 16000000', 'and the upload arrives');
};

is($server->stop, 0, 'the server ends well');

SKIP: {
    skip 'built without TLS', 1 if !PAGI::Server->has_tls;
    require IO::Socket::SSL;
    my $certificates = Certificates->new->authority('ca')->issue('localhost');
    my $secure       = server(ssl => { $certificates->pair('localhost') });
    my %tls          = (tls => {});
    is(
        TestClient->new($secure->port, %tls)->send("GET /quick HTTP/1.1\r\nHost: h\r\n\r\n")
            ->response->{body},
        "quick",
        "TLS works"
    );
    my $busy = TestClient->new($secure->port, %tls)->send("GET /compute?fourth HTTP/1.1\r\nHost: h\r\n\r\n");
    ok($secure->wait_for_log(qr/^fourth computes$/m), 'Perl computes');
    my $client = TestClient->new($secure->port, %tls);
    ok($client, 'a handshake is done');
    is($client->send("GET /health HTTP/1.1\r\nHost: h\r\n\r\n")->response->{body},
        "ok\n", '... and a request is answered');
    unlike($secure->log, qr/^fourth has computed/m, '... meanwhile');
    open my $signal, '>', "$signals/fourth" or die "$signals/fourth: $!";
    is($busy->response->{body}, 'computed', '... and the other one at last');
    is($secure->stop,           0,          'the server ends well');
}

subtest 'a client that leaves while Perl computes' => sub {
    my $other = server();
    my $busy  = TestClient->new($other->port)->send("GET /compute?fifth HTTP/1.1\r\nHost: h\r\n\r\n");
    $other->wait_for_log(qr/^fifth computes$/m);
    $busy->reset;
    my @requests = map { "GET /noted?$_ HTTP/1.1\r\nHost: h\r\n\r\n" } qw(stays leaves);
    my ($stays, $leaves) = map { TestClient->new($other->port)->send($_) } @requests;
    get($other->port, '/health');    # the engine has read both, and offered them
    $leaves->reset;
    get($other->port, '/health') for 1 .. 2;    # the engine has seen which clients have left
    my $next = TestClient->new($other->port)->send("GET /quick HTTP/1.1\r\nHost: h\r\n\r\n");
    open my $signal, '>', "$signals/fifth" or die "$signals/fifth: $!";
    is($next->response->{body},  'quick', 'the next one is answered');
    is($stays->response->{body}, 'noted', 'clients that wait are answered');
    like($other->log, qr/^works on stays$/m, '... as the application works on that');
    unlike($other->log, qr/^works on leaves$/m, '... and not on what nobody waits for');
    is($other->stop, 0, 'the server ends well');
};

done_testing;
