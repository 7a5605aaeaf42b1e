# Flow control of WebSockets: an application that does not receive makes its peer wait, up to the limits of
# its queue; a peer that does not read makes the application wait.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use IO::Async::Loop;
use IO::Select ();
use JSON::PP   ();
use Test::More;
use TestServer;
use TestWebSocket;

my $json = JSON::PP->new->canonical->ascii;
my %signals;

sub say_line { print STDERR @_, "\n";    return }
sub event    { my ($type, @fields) = @_; return { type => "websocket.$type", @fields } }

sub rss_kib {
    my ($pid) = @_;
    open my $in, '<', "/proc/$pid/status" or return 0;
    my ($kib) = map { /VmRSS:\s+(\d+)/ } <$in>;
    return $kib;
}

# A Future for each name, resolved by a message "go NAME" on any WebSocket to /go.
sub go_for { return $signals{ $_[0] } ||= IO::Async::Loop->new->new_future }

my %handlers = (
    '/go' => async sub {
        my ($scope, $receive) = @_;
        go_for($scope->{query_string})->done;
    },
    # Receives nothing before it is told to, then all that there is.
    '/late' => async sub {
        my ($scope, $receive, $send) = @_;
        await go_for($scope->{query_string});
        my ($messages, $bytes, $last) = (0, 0, '');
        while (1) {
            my $event = await $receive->();
            if ($event->{type} eq 'websocket.disconnect') {
                say_line(
                    "$scope->{query_string}: $messages messages, $bytes bytes, $event->{code} $event->{reason}"
                );
                my $future = $send->(event('send', text => 'too late'));
                say_line("$scope->{query_string}: then a send ", $future->is_done ? 'does nothing' : 'fails');
                return;
            }
            my $message = defined $event->{text} ? $event->{text} : $event->{bytes};
            say_line("$scope->{query_string}: out of order") if $message le $last;
            $last = $message;
            $messages++;
            $bytes += length $message;
            await $send->(event('send', text => 'all')) if $message =~ /last/;
        }
    },
    # Sends this many messages of 10,000 bytes, each when the one before is accepted.
    '/stream' => async sub {
        my ($scope, $receive, $send) = @_;
        my $transport = $scope->{'pagi.transport'};
        my ($high, $drained, $most, $waits) = (0, 0, 0, 0);
        $transport->on_high_water(sub { $high++ });
        $transport->on_drain(sub { $drained++ });
        say_line('marks: ', $transport->low_water_mark, ' ', $transport->high_water_mark);
        for my $number (1 .. $scope->{query_string}) {
            my $future = $send->(event('send', bytes => pack('N', $number) . 'x' x 9_996));
            $most = $transport->buffered_amount if $most < $transport->buffered_amount;
            # the message may also wait for its turn
            my $is_full = $transport->buffered_amount >= $transport->high_water_mark;
            say_line('waits: ', ++$waits) if $is_full && !$future->is_done;
            await $future;
        }
        say_line("stream: waits=$waits high=$high drained=$drained most=$most");
    },
);

my $server = TestServer->start(
    max_receive_queue      => 50,
    max_receive_queue_size => 100_000,
    max_ws_frame_size      => 1_000_000,
    write_high_watermark   => 100_000,
    write_low_watermark    => 20_000,
    app                    => async sub {
        my ($scope, $receive, $send) = @_;
        die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'websocket';
        await $receive->();
        await $send->(event('accept'));
        await $handlers{ $scope->{path} }->($scope, $receive, $send);
    },
);
my $port = $server->port;

sub tell_to_go { return TestWebSocket->open($port, "/go?$_[0]")->close }

sub numbered { return sprintf '%06d%s', @_ }

subtest 'a queue that overflows' => sub {
    my $websocket = TestWebSocket->open($port, '/late?overflow');
    $websocket->text(numbered($_, '')) for 1 .. 50;
    $websocket->{client}{timeout} = 0.3;
    is($websocket->next, 'nothing', 'as many messages as may wait');
    $websocket->{client}{timeout} = 10;
    $websocket->text(numbered($_, '')) for 51 .. 60;
    is($websocket->next,                    'close 1008 Message queue overflow', 'one more: 1008');
    is($websocket->close_frame(1008)->next, 'end', '... and the connection ends');
    tell_to_go('overflow');
    ok($server->wait_for_log(qr/^overflow: 50 messages, 300 bytes, 1008 queue_overflow$/m),
        'the application gets those that waited, then the reason');
    ok($server->wait_for_log(qr/^overflow: then a send does nothing$/m), '... and sending does nothing');

    $websocket = TestWebSocket->open($port, '/late?mute');
    $websocket->text(numbered($_, '')) for 1 .. 60;
    is($websocket->next, 'close 1008 Message queue overflow', 'a peer that does not answer the close');
    tell_to_go('mute');
    ok($server->wait_for_log(qr/^mute: 50 messages, 300 bytes, 1008 queue_overflow$/m),
        '... is not waited for');
};

# Writes until the socket takes no more for a while; the number of bytes that it took.
sub flood {
    my ($websocket, $bytes, $seconds) = @_;
    my $socket = $websocket->{client}{socket};
    my $at     = 0;
    $socket->blocking(0);
    while ($at < length $bytes && IO::Select->new($socket)->can_write($seconds)) {
        my $written = syswrite $socket, $bytes, length($bytes) - $at, $at;
        last if !defined $written && !$!{EAGAIN};
        $at += $written || 0;
    }
    $socket->blocking(1);
    return $at;
}

subtest 'a queue with many bytes' => sub {
    my $websocket = TestWebSocket->open($port, '/late?large');
    my $before    = rss_kib($server->pid);
    my $messages  = join '', map { TestWebSocket::frame(2, numbered($_, 'x' x 499_994)) } 1 .. 60;
    my $taken     = flood($websocket, $messages, 0.5);
    cmp_ok($taken, '<', length $messages,              'the peer has to wait: the socket is not read');
    cmp_ok(rss_kib($server->pid) - $before, '<', 4096, '... and 30 MB of messages need little memory');
    tell_to_go('large');
    is(
        $taken + flood($websocket, substr($messages, $taken), 10),
        length $messages,
        'it goes on when the application receives'
    );
    $websocket->text('9999999 last');
    is($websocket->next, 'text all', 'nothing is lost');
    $websocket->close_frame(1000);
    ok($server->wait_for_log(qr/^large: 61 messages, 30000012 bytes, 1000 $/m), '... not one byte');
    unlike($server->log, qr/out of order/, '... and the order is kept');
};

subtest 'a peer that waits is not taken for dead' => sub {
    my $other = TestServer->start(
        max_receive_queue_size => 1000,
        app                    => async sub {
            my ($scope, $receive, $send) = @_;
            die "no\n" if $scope->{type} ne 'websocket';
            await $send->(event('accept'));
            await $send->(event('keepalive', interval => 0.1, timeout => 0.1));
            await IO::Async::Loop->new->delay_future(after => 1);
            my $type = '';
            $type = (await $receive->())->{type} while $type ne 'websocket.receive';
            await $send->(event('send', text => 'awake'));
            await $receive->();
        },
    );
    my $websocket = TestWebSocket->open($other->port, '/');
    $websocket->binary('x' x 2000);
    my $frame;
    do {
        $frame = $websocket->next;
        $websocket->send_frame(10, '') if $frame eq 'ping ';
    } while $frame eq 'ping ';
    is($frame, 'text awake', 'its pongs are behind a message that nobody has received');
    $websocket->close;
    is($other->stop, 0, 'the server ends well');
};

subtest 'a peer that does not read' => sub {
    my $websocket = TestWebSocket->open($port, '/stream?3000', receive_buffer => 65_536);
    ok($server->wait_for_log(qr/^marks: 20000 100000\n(?:.*\n)*?waits: 1$/m), '$send waits');
    unlike($server->log, qr/^stream/m, '... for long');
    my $wrong = 0;
    for my $number (1 .. 3000) {
        # More is to come than the kernel holds.
        $server->wait_for_log(qr/^waits: 2$/m) if $number == 1500;
        my $frame = $websocket->next_frame or last;
        $wrong++ if unpack('N', $frame->[1]) != $number || length $frame->[1] != 10_000;
    }
    is($wrong, 0, 'when it reads, it gets every message in its order');
    my $text = $server->wait_for_log(qr/^stream: (.*)\n/m);
    my ($waits, $high, $drained, $most) = $text =~ /waits=(\d+) high=(\d+) drained=(\d+) most=(\d+)/;
    cmp_ok($waits, '>', 1, "\$send waited $waits times");
    is($high,    $waits, 'on_high_water was called each time');
    is($drained, $waits, '... and on_drain');
    cmp_ok($most, '<', 120_000, "no more than the high mark and one message were queued ($most)");
    is($websocket->next, 'close 1000', 'the end');
    $websocket->close_frame(1000);
};

is($server->stop, 0, 'the server ends well');
unlike($server->log, qr/application (?:died|ended)|callback died|panic/, 'nothing died') or diag $server->log;

done_testing;
