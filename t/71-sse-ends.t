# How a stream ends: by its client, by a limit, by the server, by its application; and what
# each of them learns.
use strict;
use warnings;

use lib 't/lib';
use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient qw(get);
use TestServer;
use TestStream;
use TestTools   qw(wait_for);
use TestWorkers qw(directory pid_in stop_master write_file);

sub start    { return $_[0]->({ type => 'sse.start' }) }
sub message  { return $_[0]->({ type => 'sse.send', data => $_[1] }) }
sub later    { return IO::Async::Loop->new->delay_future(after => $_[0] || 0.05) }
sub say_line { print STDERR @_, "\n"; return }

# Not written where it is used: Future::AsyncAwait 0.63 loses a folded constant in a loop that it has resumed.
my $piece = 'x' x 100_000;

# Waits for the disconnect and tells how it came.
async sub wait_for_end {
    my ($name, $receive, $send) = @_;
    my $event;
    do { $event = await $receive->() } while $event->{type} eq 'sse.request';
    say_line("$name: $event->{type} $event->{reason}");
    my $again = await $receive->();
    say_line("$name again: $again->{type} $again->{reason}");
    say_line("$name send: ", message($send, 'to nobody')->state);
    return;
}

my %handlers = (
    '/quiet' => async sub {
        my ($scope, $receive, $send) = @_;
        await start($send);
        await message($send, 'hello');
        say_line('quiet: waits');
        await wait_for_end($scope->{query_string}, $receive, $send);
    },
    '/undecided' => async sub {
        my ($scope, $receive, $send) = @_;
        await $receive->();
        say_line("undecided: $scope->{query_string} waits");
        await wait_for_end("undecided-$scope->{query_string}", $receive, $send);
    },
    '/late' => async sub {
        my ($scope, $receive, $send) = @_;
        await later(0.3);
        if ($scope->{query_string} eq 'response') {
            await $send->({ type => 'sse.http.response.start', status => 404 });
            await $send->({ type => 'sse.http.response.body',  body   => 'not here' });
            return;
        }
        await start($send);
        say_line('late send: ', message($send, 'x')->state);
        await wait_for_end('late', $receive, $send);
    },
    '/flood' => async sub {
        my ($scope, $receive, $send) = @_;
        my $transport = $scope->{'pagi.transport'};
        $transport->on_high_water(sub { say_line("$scope->{query_string}: high") });
        $transport->on_drain(sub { say_line("$scope->{query_string}: drained") });
        await start($send);
        my $more_than_a_kernel_takes = $piece x 160;
        my $sent;
        for my $round (1 .. 200) {
            $sent = message($send, $more_than_a_kernel_takes);
            last if !$sent->is_ready;
        }
        say_line(
            "$scope->{query_string}: ",
            $sent->is_ready                                            ? "never waits " : "waits ",
            $transport->buffered_amount >= $transport->high_water_mark ? 1              : 0
        );
        await $sent;
        say_line("$scope->{query_string}: goes on");
        await message($send, 'end');
        await wait_for_end($scope->{query_string}, $receive, $send) if $scope->{query_string} ne 'reader';
    },
    '/returns'      => async sub { return },
    '/dies'         => async sub { die "at once\n" },
    '/dies-started' => async sub { await start($_[2]); await message($_[2], 'x'); die "on the stream\n" },
    '/dies-late'    => async sub {
        my (undef, undef, $send) = @_;
        await start($send);
        await later();
        await message($send, 'x');
        die "later on the stream\n";
    },
    '/dies-closed' => async sub {
        my (undef, undef, $send) = @_;
        await start($send);
        await $send->({ type => 'sse.close' });
        await later();
        die "behind the stream\n";
    },
    '/dies-declining' => async sub {
        my (undef, undef, $send) = @_;
        await $send->(
            { type => 'sse.http.response.start', status => 200, headers => [ [ 'content-length', 10 ] ] });
        await $send->({ type => 'sse.http.response.body', body => 'half', more => 1 });
        await later();
        die "in a response\n";
    },
);

my $app    = sub { $_[0]{type} ne 'lifespan' ? $handlers{ $_[0]{path} }->(@_) : die "no\n" };
my $server = TestServer->start(app => $app);
my $port   = $server->port;

sub learns {
    my ($name, $reason, $server) = (@_, $server);
    ok($server->wait_for_log(qr/^$name: sse\.disconnect $reason\n/m), "the application learns of it: $reason")
        or diag $server->log;
    ok($server->wait_for_log(qr/^$name again: sse\.disconnect $reason\n/m), '... as often as it asks');
    ok($server->wait_for_log(qr/^$name send: done$/m),                      '... and $send raises nothing');
    return;
}

subtest 'the client' => sub {
    my $stream = TestStream->open($port, '/quiet?closed');
    is($stream->message->{data}, 'hello', 'the stream is on');
    $stream->close;
    learns('closed', 'client_closed');
    $stream = TestStream->open($port, '/quiet?half-closed');
    $stream->message;
    $stream->half_close;
    learns('half-closed', 'client_closed');
    is($stream->ending, 'terminated', '... a client that only stopped sending reads the end of the stream');
    $stream = TestStream->open($port, '/quiet?reset');
    $stream->message;
    $stream->reset;
    learns('reset', 'read_error');
    $stream = TestStream->open($port, '/undecided?gone');
    ok($server->wait_for_log(qr/^undecided: gone waits/m), 'before anything was sent');
    $stream->reset;
    learns('undecided-gone', 'read_error');
    $stream =
        TestClient->new($port)
        ->send(
        "POST /undecided?half HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\nContent-Length: 9\r\n\r\nhalf"
        );
    ok($server->wait_for_log(qr/^undecided: half waits/m), 'in the middle of its body');
    $stream->close;
    learns('undecided-half', 'client_closed');
};

subtest 'a client that stopped sending before the answer' => sub {
    my $client =
        TestClient->new($port)
        ->send("GET /late?response HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n")->half_close;
    is($client->response->{body}, 'not here', 'gets a response');
    my $stream = TestStream->open($port, '/late?stream')->half_close;
    is($stream->head->{status}, 200,          'gets the start of a stream');
    is($stream->ending,         'terminated', '... and its end');
    ok($server->wait_for_log(qr/^late send: done$/m), '... what is sent meanwhile raises nothing');
    learns('late', 'client_closed');
};

subtest 'a slow client' => sub {
    my $stream = TestStream->open($port, '/flood?reader', receive_buffer => 65_536);
    ok($server->wait_for_log(qr/^reader: high\nreader: waits 1$/m),
        '$send is pending above the high-water mark');
    is(get($port, '/dies')->{status}, 500, '... and others are served');
    my $count = 0;
    while (my $message = $stream->message) { $count++; last if $message->{data} eq 'end' }
    cmp_ok($count, '>', 1, 'the client gets everything');
    ok($server->wait_for_log(qr/^reader: drained\nreader: goes on$/m),
        '... and on_drain comes before $send goes on');
    is($stream->ending, 'terminated', '... to the end');
    my $hasty = TestServer->start(app => $app, limits => { write_ms => 400 });
    my $deaf  = TestStream->open($hasty->port, '/flood?deaf', receive_buffer => 65_536);
    learns('deaf', 'write_timeout', $hasty);
    like($hasty->log, qr/^deaf: goes on$/m, 'the pending $send resolves');
    is($hasty->stop, 0, '... and its server ends well');
    my $gone = TestStream->open($port, '/flood?gone', receive_buffer => 65_536);
    ok($server->wait_for_log(qr/^gone: waits/m), 'a client that leaves while $send is pending');
    $gone->reset;
    learns('gone', '(?:read|write)_error');
    like($server->log, qr/^gone: goes on$/m, '... makes it resolve');
};

subtest 'the application' => sub {
    my %says = (
        '/returns' => qr/the application ended without a response/,
        '/dies'    => qr/the application died before its response had started: at once/,
    );
    for my $path (sort keys %says) {
        my $client = TestClient->new($port)
            ->send("GET $path HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n");
        my $response = $client->response;
        is($response->{status}, 500, "$path before the start: 500");
        is($client->rest,       '',  '... and the connection is closed');
        ok($server->wait_for_log($says{$path}), '... and it is logged');
    }
    for my $path ('/dies-started', '/dies-late') {
        my $stream = TestStream->open($port, $path);
        is($stream->head->{status}, 200, "$path: a stream that its application leaves by dying")
            if $path eq '/dies-late';
        isnt($stream->ending, 'terminated', "$path: the client can tell that the stream was cut");
    }
    ok(
        $server->wait_for_log(
            qr/died after its response had started: on the stream.*died after its response had started: later on the stream/s
        ),
        'both are logged'
    );
    is(
        TestStream->open($port, '/dies-closed')->ending,
        'terminated',
        'one that dies after it has closed the stream'
    );
    ok($server->wait_for_log(qr/died after its response was complete: behind the stream/), '... is logged');
    is(TestStream->open($port, '/dies-declining')->ending, 'cut', 'one that dies in a response');
    ok($server->wait_for_log(qr/died after its response had started: in a response/),
        '... is logged as well');
};

my @open = map { TestStream->open($port, "/quiet?shutdown$_") } 1 .. 3;
is($_->message->{data}, 'hello', 'a stream is on') for @open;
my $undecided = TestStream->open($port, '/late?stream');
select undef, undef, undef, 0.1;
$server->signal('TERM');
is($_->ending, 'terminated', 'at shutdown it ends') for @open, $undecided;
is($server->wait, 0, 'the server ends well, at once');
for my $number (1 .. 3) { learns("shutdown$number", 'server_shutdown') }

my @more = map { [ engine => $_, workers => 2 ] } 'process', only_in_full('thread');
for my $placed ([], only_in_full([ workers => 2 ]), @more) {
    subtest "a stop with (@$placed)" => sub {
        $server = TestServer->start(app => $app, @$placed);
        my @streams = map { TestStream->open($server->port, "/quiet?placed$_") } 1 .. 3;
        is($_->message->{data}, 'hello', 'a stream is on') for @streams;
        $server->signal('TERM');
        is($_->ending,    'terminated', 'it ends in order') for @streams;
        is($server->wait, 0,            'the server ends well');
        learns("placed$_", 'server_shutdown', $server) for 1 .. 3;
        unlike($server->log, qr/Shutdown timeout/, 'and has not waited until the time was up');
    };
}

subtest 'another program takes over' => sub {
    my $file = write_file('quiet.pl', <<'PERL');
use Future::AsyncAwait;
async sub {
    my ($scope, $receive, $send) = @_;
    die "no\n" if $scope->{type} ne 'sse';
    await $send->({ type => 'sse.start' });
    await $send->({ type => 'sse.send', data => 'hello' });
    my $event;
    do { $event = await $receive->() } while $event->{type} eq 'sse.request';
    print STDERR "$scope->{query_string}: $event->{type} $event->{reason}\n";
}
PERL
    for my $placed ('process', 'thread') {
        my $name = "$placed.pid";
        $server =
            TestServer->command('--engine', $placed, qw(--workers 2 --pid), directory() . "/$name", $file);
        my @streams = map { TestStream->open($server->port, "/?over$_") } 1 .. 3;
        is($_->message->{data}, 'hello', "$placed: a stream is on") for @streams;
        my $old = $server->pid;
        $server->signal('USR2');
        ok(wait_for(sub { pid_in($name) && pid_in($name) != $old }), 'USR2 is obeyed');
        is($_->ending,    'terminated', 'it ends in order') for @streams;
        is($server->wait, 0,            'the old program ends well');
        ok($server->wait_for_log(qr/^over$_: sse\.disconnect server_shutdown$/m),
            'its application learns why')
            for 1 .. 3;
        unlike($server->log, qr/Shutdown timeout/, 'and the time was not up');
        ok(stop_master($name), 'the new program stops');
    }
};

subtest 'a quiet stream' => sub {
    $server = TestServer->start(app => $app, sse_idle_timeout => 0.3);
    my $stream = TestStream->open($server->port, '/quiet?idle');
    is($stream->message->{data}, 'hello', 'is on');
    is($stream->ending,          'cut',   '... until the idle limit');
    learns('idle', 'idle_timeout');
    ok(
        $server->wait_for_log(
            qr/request \d+-1 \(127\.0\.0\.1:\d+\) GET \S+: SSE idle timeout \(0\.3s\) - closing connection/),
        '... which is logged'
    );
    is($server->stop, 0, 'the server ends well');
};

done_testing;
