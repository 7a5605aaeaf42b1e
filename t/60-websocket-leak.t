# 10,000 WebSockets that are used, refused, overfilled or abandoned in every state leave neither live
# values nor memory.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use IO::Async::Loop;
use OnlyInFull qw(only_in_full);
use Test::More;
use TestServer;
use TestUsage qw(growth report);
use TestWebSocket;

my $cycles = $ENV{PEREGRINE_LEAK_WEBSOCKETS} || only_in_full(10_000) || 2_000;

sub event { my ($type, @fields) = @_; return { type => "websocket.$type", @fields } }

async sub echo {
    my ($scope, $receive, $send) = @_;
    while (1) {
        my $event = await $receive->();
        return if $event->{type} eq 'websocket.disconnect';
        await $send->(event('send', text => $event->{text}));
    }
}

async sub wait_for_end {
    my ($receive, $send) = @_;
    await $send->(event('accept'));
    await $receive->();
    await $receive->();
}

my %handlers = (
    '/echo' => async sub {
        my ($scope, $receive, $send) = @_;
        await $receive->();
        await $send->(
            event('accept', headers => [ [ 'x-a', 'b' ] ], subprotocol => $scope->{subprotocols}[0]));
        await $send->(event('keepalive', interval => 60, timeout => 60));
        await echo($scope, $receive, $send);
    },
    '/wait' => async sub {
        my ($scope, $receive) = @_;
        await $receive->();
        await $receive->();
    },
    '/deny' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->(event('http.response.start', status => 401, headers => [ [ 'x-a', 'b' ] ]));
        await $send->(event('http.response.body', body => 'no'));
        await $receive->();
    },
    '/refuse' => async sub { await $_[2]->(event('close')) },
    '/die'    => async sub {
        await $_[2]->(event('accept'));
        $_[2]->(event('send'))->failure;
        die "on purpose\n";
    },
    '/close' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->(event('accept'));
        await $send->(event('close', reason => 'because'));
        await $receive->();
    },
    '/cancel' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->(event('accept'));
        $receive->()->cancel for 1 .. 3;
        await Future->wait_any($receive->(), IO::Async::Loop->new->delay_future(after => 0.001));
    },
    '/let-go' => sub { return wait_for_end(@_[ 1, 2 ]) },
    '/sleep'  => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->(event('accept'));
        await IO::Async::Loop->new->delay_future(after => 0.01);
    },
    '/block' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->(event('accept'));
        my $future;
        for (1 .. 100) {
            $future = $send->(event('send', bytes => 'x' x 500_000));
            last if !$future->is_ready;
        }
        await $future;
    },
    '/usage' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->(event('accept'));
        await $send->(event('send', text => report()));
    },
);

my $server = TestServer->start(
    max_receive_queue => 5,
    log_level         => 'error',
    on_error          => sub { },
    app               => sub {
        my ($scope) = @_;
        die "no\n" if $scope->{type} ne 'websocket';
        return $handlers{ $scope->{path} }->(@_);
    },
);
my $port   = $server->port;
my $opened = 10_000;
my $frames = join '', map { TestWebSocket::frame(1, "n$_") } 1 .. 20;

sub expect {
    my ($websocket, @expected) = @_;
    my @got = map { $websocket->next } @expected;
    return "@got" eq "@expected" ? 1 : 0;
}

# Each runs a cycle, and is true if the expected messages came.
my @ways = (
    sub {
        my $websocket = TestWebSocket->open($port, '/echo', lines => ['Sec-WebSocket-Protocol: one, two']);
        my $ok        = expect($websocket->text('hello'), 'text hello');
        return $ok && expect($websocket->close_frame(1000), 'close 1000', 'end');
    },
    sub { TestWebSocket->start($port, '/wait')->reset; 1 },
    sub { TestWebSocket->start($port, '/wait')->close; 1 },
    sub { TestWebSocket->open($port, '/echo')->reset; 1 },
    sub {
        my $websocket = TestWebSocket->open($port, '/echo');
        $websocket->send_frame(1, 'half a message', fin => 0);
        $websocket->{client}->send("\x81\xfe\x10");
        return !$websocket->reset;
    },
    sub { TestWebSocket->start($port, '/deny')->answer->{body} eq 'no' },
    sub { TestWebSocket->start($port, '/refuse')->answer->{status} == 403 },
    sub { expect(TestWebSocket->open($port, '/die'), 'close 1011') },
    sub {
        my $websocket = TestWebSocket->open($port, '/close');
        return expect($websocket, 'close 1000 because') && expect($websocket->close_frame(1000), 'end');
    },
    sub {
        my $websocket = TestWebSocket->open($port, '/close');
        my $ok        = expect($websocket, 'close 1000 because');
        return !$websocket->reset && $ok;
    },
    sub { expect(TestWebSocket->open($port, '/cancel'), 'close 1000') },
    sub {
        my $long = ++$opened x 600;    # a string that two fields share
        return !TestWebSocket->open($port, '/let-go', lines => [ map { "X-$_: $long" } 1, 2 ])->reset;
    },
    sub {
        my $websocket = TestWebSocket->start($port, '/sleep', more => $frames);
        # On a busy machine the messages may come after the application has slept.
        return $websocket->next =~ /\Aclose (?:1008 Message queue overflow|1000)\z/;
    },
    sub {
        my $websocket = TestWebSocket->open($port, '/echo');
        $websocket->{client}->send($frames);
        return !$websocket->reset;
    },
);

# A client that leaves while a $send is pending has to fill the kernel's buffers first: 1 of 100 cycles.
sub block {
    my $websocket = TestWebSocket->open($port, '/block', receive_buffer => 4096);
    select undef, undef, undef, 0.003;
    $websocket->reset;
    return;
}

# The numbers of the ways that did not work, each as often as that happened.
sub run_cycles {
    my ($count) = @_;
    my @wrong;
    for my $number (1 .. $count) {
        my $way = $number % @ways;
        push @wrong, $way if !eval { $ways[$way]->() };
        block() if $number % 100 == 0;
    }
    return "@wrong";
}

is(run_cycles(int $cycles / 10), '', 'every way works, for warming up');
my ($before, $after) = growth(
    sub { TestWebSocket->open($port, '/usage')->next },
    sub { is(run_cycles($cycles), '', "$cycles cycles") },
    values => 50,
    kib    => 1024
);
note("live values $before->{values} -> $after->{values}, RSS $before->{kib} -> $after->{kib} KiB");
cmp_ok($after->{values} - $before->{values}, '<', 50,   'live values did not grow');
cmp_ok($after->{kib} - $before->{kib},       '<', 1024, 'memory did not grow');
is($server->stop, 0, 'the server ends well');

done_testing;
