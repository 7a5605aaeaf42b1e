# Workers that do not come back: found, named and replaced, by the request (request_kill_timeout) and by the
# event loop (heartbeat_timeout), with the engine in the loop and on a thread of its own.
use strict;
use warnings;

use lib 't/lib';
use Fcntl      qw(LOCK_EX LOCK_UN);
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient qw(get);
use TestServer;
use TestTools qw(can_read content not_repeated wait_for);
use TestWebSocket;
use TestWorkers qw(directory write_file);
use Time::HiRes qw(sleep time);

# A process that waits for this lock is blocked inside a library, where Perl calls no function for a signal.
my $lock = write_file('lock', '');
open my $locked, '<', $lock or die $!;
flock $locked, LOCK_EX or die $!;

my $COMMON = <<'CODE';
use Fcntl qw(LOCK_EX);
use Time::HiRes qw(sleep);
sub wait_for_lock {
    open my $in, '<', 'THE FILE' or die $!;
    flock $in, LOCK_EX;
    return 'locked';
}
my %DO = (
    '/lock' => \&wait_for_lock,
    '/spin' => sub { 1 while 1 },
    '/sleep' => sub { sleep 100; 'slept' },
    '/stay' => sub { print STDERR "asleep\n"; sleep 100 while 1 },
    '/loop' => sub { print STDERR "loops\n"; 1 while 1 },
    '/nap'  => sub { sleep 0.3; $$ },
    '/'     => sub { $$ },
);
CODE
$COMMON =~ s/THE FILE/$lock/;

my $PAGI = $COMMON . <<'CODE';
use Future::AsyncAwait;
use IO::Async::Loop;
async sub chat {
    my ($receive, $send) = @_;
    await $send->({ type => 'websocket.accept' });
    await $receive->();
    await $receive->();
    $DO{'/spin'}->();
}
async sub http {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} eq 'lifespan';
    if ($scope->{method} eq 'POST') { 1 while (await $receive->())->{more} }
    await IO::Async::Loop->new->delay_future(after => 2.5) if $scope->{path} eq '/wait';
    await IO::Async::Loop->new->delay_future(after => 0.1) if $scope->{query_string} eq 'later';
    my $text = ($DO{ $scope->{path} } || $DO{'/'})->();
    my @length = ([ 'content-length', length $text ]);
    await $send->({ type => 'http.response.start', status => 200, headers => \@length });
    await $send->({ type => 'http.response.body', body => $text });
}
sub { return $_[0]{type} eq 'websocket' ? chat(@_[1, 2]) : http(@_) };
CODE
my $app = write_file('app.pl', $PAGI);

# Takes the code of a PSGI application, whose stack has a line of its own.
my $psgi = eval $COMMON . 'sub { [ 200, [], [ $DO{ $_[0]{PATH_INFO} }->() ] ] }' or die $@;

my %START = (
    'inline'      => sub { TestServer->command(qw(-E production --reuseport --engine inline), @_, $app) },
    'thread'      => sub { TestServer->command(qw(-E production --reuseport --engine thread), @_, $app) },
    'preload_app' => sub { TestServer->command(qw(-E production --reuseport --preload-app),   @_, $app) },
    'PSGI'        => sub {
        my %options = map { s/\A--//r =~ tr/-/_/r } @_;
        my @as      = (engine => 'inline', reuseport => 1, psgi => 1, heartbeat_timeout => 0);
        return TestServer->start(%options, @as, app => $psgi);
    },
);

# Keep-alive connections to two workers.
sub two_connections {
    my ($port) = @_;
    my %found;
    wait_for(sub {
        my $client = TestClient->new($port)->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        my $answer = $client->response or return;
        $found{ $answer->{body} } ||= $client;
        return keys %found == 2;
    });
    return map { [ $_, $found{$_} ] } sort keys %found;
}

sub is_alive {
    my ($client) = @_;
    my $answer = $client->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")->response or return 0;
    return $answer->{body};
}

# The first of the two workers is at this request from now on.
sub begin {
    my ($server, $request) = @_;
    my ($stuck,  $other)   = two_connections($server->port);
    $stuck->[1]->send($request);
    return [ $server, $stuck, $other ];
}

# True if the engine has a thread, which answers in place of an application that is stuck.
sub has_thread {
    my ($mode) = @_;
    return 1 if $mode eq 'thread';
    return $mode !~ /\A(?:inline|PSGI)\z/ && ($ENV{PEREGRINE_ENGINE} // '') eq 'thread' ? 1 : 0;
}

# The stuck worker is replaced, the other worker is not.
sub finds {
    my ($begun, $name, $killed, $where, $mode) = @_;
    my ($server, $stuck, $other) = @$begun;
    ok($server->wait_for_log(qr/worker \d \($stuck->[0]\) $killed and was killed/), "$name: it is killed");
    like($server->log, qr/process $stuck->[0] is stuck $where/, '... and has said where it was');
    is(is_alive($other->[1]), $other->[0], '... the other worker and its connection are there');
    my $answer = $stuck->[1]->response;
    # In a callback of the loop no request is known for its own.
    if    ($mode =~ /callback/) { ok(!defined $answer, '... its client is cut off') }
    elsif (has_thread($mode))   { is(($answer || {})->{status}, 504, '... the engine answers its client') }
    else                        { ok(!defined $answer, '... its client is cut off') }
    ok(
        wait_for(sub { my ($one, $two) = two_connections($server->port); $two && $one->[0] ne $stuck->[0] }),
        '... another worker takes its place'
    );
    return;
}

# All requests wait for their deadlines at the same time.
my $LOCK  = "GET /lock?x=1 HTTP/1.1\r\nHost: h\r\n\r\n";
my $LATER = "GET /lock?later HTTP/1.1\r\nHost: h\r\n\r\n";    # in a callback of the loop
my $SLEEP = "GET /sleep HTTP/1.1\r\nHost: h\r\n\r\n";
my @BLOCKED =
    map { [ $_, begin($START{$_}->('--workers', 2, '--request-kill-timeout', 1), $LOCK) ] } 'preload_app',
    not_repeated('inline', 'thread', only_in_full('PSGI'));
my @LATER = map { [ $_, begin($START{$_}->('--workers', 2, '--request-kill-timeout', 1), $LATER) ] }
    not_repeated(only_in_full('inline'), 'thread');
my @STANDING = map { [ $_, begin($START{$_}->('--workers', 2, '--heartbeat-timeout', 2), $SLEEP) ] }
    not_repeated(only_in_full('inline'), 'thread');
my $AGE = qr/which came [1-9]\d*\.\d s ago/;
my $STACK =
    qr/    \S+::wait_for_lock .+\n(?:    \S+::(?:http|__ANON__) .+\n)*(?! )/;    # the application's frames
my $LONG = qr/has been at one event for 1 s \(request_kill_timeout\)/;

for (@BLOCKED) {
    my ($mode, $begun) = @$_;
    my $server = $begun->[0];
    subtest "request_kill_timeout, $mode" => sub {
        finds($begun, 'a request that is blocked in a library',
            $LONG, qr{in request \d+-\d+ GET /lock\?x=1, $AGE, at .+\n$STACK}, $mode);
        further_requests($server) if $mode eq 'inline';
        is($server->stop, 0, 'the server ends well');
    };
}

for (@LATER) {
    my ($mode, $begun) = @$_;
    subtest "request_kill_timeout, $mode, a request that goes on in a callback of the loop" => sub {
        my $where = qr{at .+\n    \S+::wait_for_lock .+\n    \S+::http };
        finds($begun, 'it blocks', $LONG, $where, "$mode, callback");
        is($begun->[0]->stop, 0, 'the server ends well');
    };
}

sub further_requests {
    my ($server) = @_;
    finds(
        begin($server, "POST /spin HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"),
        'one that computes, after its body has come',
        $LONG,
        qr{in request \d+-\d+ POST /spin, $AGE, at .+ line \d+\n},
        'inline'
    );
    finds(
        begin($server, TestWebSocket::handshake('/chat') . TestWebSocket::frame(1, 'a message')),
        'a WebSocket whose scope is let go',
        $LONG, qr{in request \d+-\d+ \? /chat, $AGE, at .+ line \d+\n}, 'inline'
    );
    my $slow   = TestClient->new($server->port)->send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    my $client = TestClient->new($server->port);
    for (1 .. 6) { $client->send("GET /nap HTTP/1.1\r\nHost: h\r\n\r\n")->response }
    is(($slow->response || {})->{status},
        200, 'a request that awaits, or keeps the worker for short times only,');
    is(() = $server->log =~ /another one takes its place/g, 3, '... is left alone');
    return;
}

for (@STANDING) {
    my ($mode, $begun) = @$_;
    subtest "heartbeat_timeout, $mode" => sub {
        finds(
            $begun,
            'a worker whose loop stands',
            qr/has not answered for 2 s \(heartbeat_timeout\)/,
            qr{in request \d+-\d+ GET /sleep at \S+ line \d+\n    \S+::\S+ called at}, $mode
        );
        is($begun->[0]->stop, 0, 'the server ends well');
    };
}

# Each worker's engine has a thread, and could accept while its application stands.
connections_come(@$_)
    for not_repeated(
    [ 'in a request',                      $LOCK,  2 ],
    [ 'in a callback of its loop',         $LATER, 2 ],
    [ 'that was the only one before TTIN', $LOCK,  1 ]
    );

sub connections_come {
    my ($where, @how) = @_;
    return subtest "connections that come while a worker stands $where" => sub { are_served(@how) };
}

sub are_served {
    my ($request, $workers) = @_;
    flock $locked, LOCK_EX or die $!;
    my $server =
        TestServer->command(qw(-E production --engine thread --heartbeat-timeout 0 --workers), $workers,
        $app);
    my $ask   = sub { TestClient->new($server->port)->send("GET $_[0] HTTP/1.1\r\nHost: h\r\n\r\n") };
    my $stuck = TestClient->new($server->port);
    ok(my $pid = is_alive($stuck), 'a worker') or return;
    if ($workers < 2) {
        $server->signal('TTIN');
        ok(scalar two_connections($server->port), 'TTIN adds another one');
    }
    $stuck->send($request);
    sleep 0.4;    # the engine gives the application 5 ms to accept
    my @come = map { $ask->('/') } 1 .. 12;
    # On a busy machine a connection may come before the engine notices that its application stands.
    my @answered = grep { can_read($_->socket, 2) } @come;
    cmp_ok(scalar @answered, '>=', 11, '... that stands: the other worker serves all who come');
    flock $locked, LOCK_UN or die $!;
    is(($stuck->response || {})->{body}, 'locked', '... and goes on');
    my $naps = sub {
        my @naps = map { $ask->('/nap') } 1 .. 6;
        return grep { (($_->response || {})->{body} // '') eq $pid } @naps;
    };
    ok(wait_for($naps), '... accepts again');
    is($server->stop, 0, '... and ends well');
    return;
}

# The deadline is that of the whole stop, whatever workers do.
for my $placement (only_in_full([]), ['--preload-app'],
    not_repeated(only_in_full([qw(--engine thread)]), [qw(--engine process)]))
{
    subtest "shutdown_timeout @$placement" => sub {
        my $server =
            TestServer->command(qw(-E production --workers 1 --shutdown-timeout 2), @$placement, $app);
        my $client = TestClient->new($server->port)->send("GET /stay HTTP/1.1\r\nHost: h\r\n\r\n");
        ok($server->wait_for_log(qr/asleep/), 'a worker sleeps');
        my $begun = time;
        $server->signal('TERM');
        is($server->wait, 0, 'TERM ends the server');
        cmp_ok(time - $begun, '<', 10, '... in time');
        like(
            $server->log,
            qr/did not leave in time \(shutdown_timeout\): SIGKILL/,
            '... and the worker is killed'
        );
    };
}

# The deadline holds while END blocks run, too, those of a template as well.
my $never_ends = write_file('never-ends.pl', <<'APP');
END { print STDERR "END\n"; my $end = time + 300; select undef, undef, undef, 0.1 while time < $end }
use Future::AsyncAwait;
async sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} ne 'http';
    await $send->({ type => 'http.response.start', status => 200 });
    await $send->({ type => 'http.response.body', body => 'hello' });
}
APP
for my $placement ([], only_in_full(['--preload-app']), not_repeated([qw(--engine process --preload-app)])) {
    subtest "shutdown_timeout and END @$placement" => sub {
        my $server =
            TestServer->command(qw(-E production --workers 1 --shutdown-timeout 2), @$placement, $never_ends);
        is(get($server->port, '/')->{body}, 'hello', 'the worker serves');
        my $begun = time;
        is($server->stop, 0, 'TERM ends the server');
        cmp_ok(time - $begun, '<', 6, '... in time');
        my $where = qr{process \d+ is stuck at \S*never-ends\.pl line 1$}m;
        like($server->log, $where, '... and says where it was');
        like(
            $server->log,
            qr/::END called at \S+Fork\.pm line \d+\n(?!    )/,
            '... without what is the server'
        );
    };
}

for my $engine (not_repeated('inline', only_in_full('thread'))) {
    subtest "TERM, TERM, TERM: $engine" => sub {
        my $server = TestServer->command(qw(-E production --shutdown-timeout 100 --engine), $engine, $app);
        my $client = TestClient->new($server->port)->send("GET /loop HTTP/1.1\r\nHost: h\r\n\r\n");
        ok($server->wait_for_log(qr/loops/), 'the application does not return');
        for my $count (1 .. 3) {
            $server->signal('TERM');
            # A process that the third one has ended is a zombie until it is waited for.
            my $heard = qr/^(?:ShdPnd:\s+0+|State:\s+Z.*)$/m;
            wait_for(sub { content("/proc/${\$server->pid}/status") =~ $heard });
        }
        ok(defined $server->wait, 'the third signal ends the process');
        like(
            $server->log,
            qr{is stuck in request \d+-\d+ GET /loop at \S+ line \d+},
            '... and says where it was'
        );
    };
}

# Server::Starter sends one signal and waits.
for my $engine (not_repeated(only_in_full('inline'), 'thread')) {
    subtest "one TERM: $engine" => sub {
        my $server = TestServer->command(qw(-E production --shutdown-timeout 1 --engine), $engine, $app);
        my $client = TestClient->new($server->port)->send("GET /loop HTTP/1.1\r\nHost: h\r\n\r\n");
        ok($server->wait_for_log(qr/loops/), 'the application does not return');
        $server->signal('TERM');
        ok(defined $server->wait, 'the end of shutdown_timeout ends the process');
        like($server->log, qr{is stuck in request \d+-\d+ GET /loop at}, '... and says where it was');
    };
}

subtest 'without workers' => sub {
    my $server = TestServer->command(qw(-E production --request-kill-timeout 0.2), $app);
    like(get($server->port, '/nap')->{body}, qr/\A\d+\z/, 'the option has no effect');
    is($server->stop, 0, 'the server ends well');
};

done_testing;
