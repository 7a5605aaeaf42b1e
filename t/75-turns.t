# A client that keeps its application busy without end, by reading all that it sends or by sending more than
# it reads, keeps neither other clients waiting nor the server from its signals, whatever the loop.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use IO::Socket::INET;
use OnlyInFull qw(only_in_full);
use POSIX      ();
use Test::More;
use TestClient qw(get);
use TestServer;
use TestStream;
use TestTools qw(patience wait_for);
use TestWebSocket;
use Time::HiRes qw(time);

my $REQUESTS = 20;
my $SECONDS  = patience(10);    # seconds for all requests; without turns each takes a second or more

# Endless on purpose. What is late does nothing, but may come for ever as well.
my $complete = { type => 'http.response.body', body => '' };
my %start    = (
    small    => [ { type => 'http.response.start', status => 200 } ],
    large    => [ { type => 'http.response.start', status => 200 } ],
    empty    => [ { type => 'http.response.start', status => 200 } ],
    late     => [ { type => 'http.response.start', status => 200 }, $complete ],
    sse      => [ { type => 'sse.start' } ],
    messages => [ { type => 'websocket.accept' } ],
    taken    => [ { type => 'websocket.accept' } ],
    echo     => [ { type => 'websocket.accept' } ],
);
my %sent = (
    small    => { type => 'http.response.body', body => 'more',          more => 1 },
    large    => { type => 'http.response.body', body => 'more' x 10_000, more => 1 },
    empty    => { type => 'http.response.body', body => '',              more => 1 },
    late     => $complete,
    sse      => { type => 'sse.send',       data => 'more' },
    messages => { type => 'websocket.send', text => 'more' },
    echo     => { type => 'websocket.send', text => 'echo' },
);
my %received = map { $_ => 1 } qw(taken echo body);

my $app = async sub {
    my ($scope, $receive, $send) = @_;
    die "no\n" if $scope->{type} eq 'lifespan';
    if ($scope->{path} eq '/') {
        await $send->({ type => 'http.response.start', status => 200 });
        return await $send->({ type => 'http.response.body', body => 'served' });
    }
    my $kind = substr $scope->{path}, 1;
    await $receive->() if $scope->{type} eq 'websocket';
    for my $event (@{ $start{$kind} || [] }) { await $send->($event) }
    while (1) {
        await $receive->()          if $received{$kind};
        await $send->($sent{$kind}) if $sent{$kind};
    }
};

my %piece = (
    taken => TestWebSocket::frame(TestWebSocket::TEXT, 'x') x 10_000,
    echo  => TestWebSocket::frame(TestWebSocket::TEXT, 'x') x 10_000,
    body  => "1\r\nx\r\n" x 10_000,
);

sub connected {
    my ($port, $kind) = @_;
    return TestStream->open($port, '/sse')->socket if $kind eq 'sse';
    return TestWebSocket->open($port, "/$kind")->{client}->socket
        if $start{$kind} && $start{$kind}[0]{type} =~ /websocket/;
    my $head =
        $kind eq 'body'
        ? "POST /body HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked"
        : "GET /$kind HTTP/1.1\r\nHost: h";
    return TestClient->new($port)->send("$head\r\n\r\n")->socket;
}

# Takes what comes, and sends the bytes again and again, as fast as it can, in a process of its own.
sub busy_client {
    my ($socket, $bytes) = @_;
    my $pid = fork // die "fork: $!";
    if ($pid) {
        POSIX::setpgid($pid, $pid);    # so that one signal ends both of its processes
        return $pid;
    }
    $SIG{PIPE} = 'DEFAULT';
    POSIX::setpgid(0, 0);
    my $reader = length $bytes ? fork // POSIX::_exit(1) : 0;
    if (!$reader) { 1 while sysread $socket, my $taken, 1 << 20 }
    else          { 1 while syswrite $socket, $bytes }
    POSIX::_exit(0);
}

sub requests_served {
    my ($port) = @_;
    my $end = time + $SECONDS;
    for my $served (0 .. $REQUESTS - 1) {
        my $response = get($port, '/');
        return $served if !$response || $response->{body} ne 'served' || time > $end;
    }
    return $REQUESTS;
}

sub takes_turns {
    my ($loop, $kind) = @_;
    local $ENV{IO_ASYNC_LOOP} = $loop;
    my $server = TestServer->start(quiet => 1, shutdown_timeout => patience(3), app => $app);
    my $port   = $server->port;
    my $pid    = busy_client(connected($port, $kind), $piece{$kind} // '');
    is(requests_served($port),          $REQUESTS, "$loop, $kind: requests of others are answered");
    is(waitpid($pid, POSIX::WNOHANG()), 0,         '... while the client goes on');
    $server->signal('TERM');
    ok wait_for(sub { !IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) }),
        '... and the server takes TERM';
    kill 'KILL', -$pid;
    waitpid $pid, 0;
    is($server->wait, 0, '... and ends');
    return;
}

takes_turns('Peregrine', $_) for sort keys %start, 'body';
for my $loop ('Epoll', only_in_full('Poll', 'Select')) { takes_turns($loop, $_) for qw(small taken) }

done_testing;
