# Messages and closing: what the peer sends and the application sees, and the other way round.
use strict;
use warnings;

use lib 't/lib';
use Encode qw(encode);
use Future::AsyncAwait;
use IO::Async::Loop;
use JSON::PP ();
use Test::More;
use TestServer;
use TestWebSocket;

my $json = JSON::PP->new->canonical->ascii;
my $euro = "\x{20ac}";

sub say_line { print STDERR @_, "\n"; return }
sub later    { return IO::Async::Loop->new->delay_future(after => $_[0]) }
sub event    { my ($type, @fields) = @_; return { type => "websocket.$type", @fields } }

# The application sends what it receives, and logs how each send ended as "path: event".
async sub echo {
    my ($scope, $receive, $send) = @_;
    while (1) {
        my $event = await $receive->();
        if ($event->{type} eq 'websocket.disconnect') {
            say_line("$scope->{path}: ", $json->encode($event));
            last;
        }
        my ($kind) = grep { defined $event->{$_} } qw(text bytes);
        await $send->(event('send', $kind => $event->{$kind}));
    }
    return;
}

# The application answers each message with its length.
async sub measure {
    my ($scope, $receive, $send) = @_;
    while (1) {
        my $event = await $receive->();
        last if $event->{type} eq 'websocket.disconnect';
        await $send->(event(
            'send',
            text => join ' ',
            map { "$_ " . length $event->{$_} } grep { $_ ne 'type' } keys %$event
        ));
    }
    return;
}

my %handlers = (
    '/measure' => \&measure,
    '/strings' => async sub {
        my ($scope, $receive, $send) = @_;
        my $upgraded   = "\xe9";
        my $downgraded = "\xe9";
        utf8::upgrade($upgraded);
        utf8::downgrade($downgraded);
        for my $string ($upgraded, $downgraded) {
            await $send->(event('send', text  => $string));
            await $send->(event('send', bytes => $string));
        }
        await $send->(event('send', text  => $euro));
        await $send->(event('send', text  => ''));
        await $send->(event('send', bytes => ''));
        await $send->(event('send', text  => 42,    bytes => undef));
        await $send->(event('send', text  => undef, bytes => 43));
        await $send->(event('send', text  => "\x{fffe}\x{10ffff}"));
    },
    '/close' => async sub {
        my ($scope, $receive, $send) = @_;
        my ($code, $reason) = split /,/, $scope->{query_string};
        my %fields =
            (defined $code ? (code => $code) : (), defined $reason ? (reason => "$reason $euro") : ());
        await $send->(event('close', %fields));
        for my $late (event('send', text => 'late'), event('close'), event('keepalive', interval => 1)) {
            my $future = $send->($late);
            say_line("late $late->{type}: ", ($future->failure // $future->state) =~ s/ at \S+ line .*//sr);
        }
        my $event = await $receive->();
        say_line("/close?$scope->{query_string}: ", $json->encode($event));
        my $again = await $receive->();
        say_line('the same again: ', $again->{code} == $event->{code} ? 1 : 0);
    },
    '/return' => async sub { return },
    '/die'    => async sub { die "with it open\n" },
    '/waits'  => async sub {
        my ($scope, $receive, $send) = @_;
        my @futures = map { $receive->() } 1 .. 4;
        $futures[1]->cancel;
        say_line('waiting');
        my @events = await Future->needs_all(@futures[ 0, 2, 3 ]);
        await $send->(event('send', text => join ',', map { $_->{text} } @events));
    },
);

my $server = TestServer->start(
    max_ws_frame_size   => 1000,
    max_ws_message_size => 2000,
    app                 => async sub {
        my ($scope, $receive, $send) = @_;
        die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'websocket';
        await $receive->();
        await $send->(event('accept'));
        await(($handlers{ $scope->{path} } || \&echo)->(@_));
    },
);
my $port   = $server->port;
my $number = 0;

# A WebSocket with a path of its own, so that the log says what its application saw.
sub open_echo {
    my $path = '/echo' . ++$number;
    return (TestWebSocket->open($port, $path), $path);
}

# The end of a WebSocket that the application saw, as [code, reason].
sub seen {
    my ($path) = @_;
    my $text   = $server->wait_for_log(qr/^\Q$path\E: (\{.*\})$/m) or return;
    my $event  = $json->decode($text);
    return [ @{$event}{qw(code reason)} ];
}

subtest 'messages' => sub {
    my ($websocket) = open_echo();
    my $utf8 = encode('UTF-8', "$euro\x{1f600}\x{e9}");
    for my $message ('hello', '', $utf8, "\0", 'x' x 125, 'x' x 126, 'x' x 1000) {
        is($websocket->text($message)->next,   "text $message",   'text of ' . length $message);
        is($websocket->binary($message)->next, "binary $message", 'the same as binary');
    }
    my $all = join '', map { chr } 0 .. 255;
    is($websocket->binary($all)->next, "binary $all", 'all bytes');

    my $measure = TestWebSocket->open($port, '/measure');
    is($measure->text($utf8)->next,          'text text 3',    'text is characters');
    is($measure->binary($utf8)->next,        'text bytes 9',   'bytes are bytes');
    is($measure->text('plain')->next,        'text text 5',    'ASCII is both');
    is($measure->binary("\xe9" x 200)->next, 'text bytes 200', 'bytes above 127 are bytes');
};

subtest 'strings of the application' => sub {
    my $websocket = TestWebSocket->open($port, '/strings');
    for my $form ('upgraded', 'downgraded') {
        is($websocket->next, "text \xc3\xa9", "text goes out as UTF-8 ($form)");
        is($websocket->next, "binary \xe9",   "bytes go out as they are ($form)");
    }
    is($websocket->next, "text \xe2\x82\xac",                 'a wide character');
    is($websocket->next, 'text ',                             'an empty text');
    is($websocket->next, 'binary ',                           'no bytes');
    is($websocket->next, 'text 42',                           'a number, and an undefined field');
    is($websocket->next, 'binary 43',                         '... the other way round');
    is($websocket->next, "text \xef\xbf\xbe\xf4\x8f\xbf\xbf", 'noncharacters are characters');
    is($websocket->next, 'close 1000',                        'an application that returns: 1000');
};

subtest 'frames' => sub {
    my ($websocket) = open_echo();
    $websocket->send_frame(1,  'in ', fin => 0);
    $websocket->send_frame(9,  'ping');
    $websocket->send_frame(0,  "three \xe2\x82", fin => 0);
    $websocket->send_frame(10, 'nobody asked');
    $websocket->send_frame(0,  "\xac frames");
    is($websocket->next, 'pong ping', 'a ping within a message is answered');
    is(
        $websocket->next,
        "text in three $euro frames" =~ s/$euro/\xe2\x82\xac/r,
        'its fragments are one message'
    );
    $websocket->{client}->send(join '', map { TestWebSocket::frame(1, "n$_") } 1 .. 100);
    is(
        join(' ', map { $websocket->next } 1 .. 100),
        join(' ', map { "text n$_" } 1 .. 100),
        '100 at once keep their order'
    );
    for my $byte (split //, TestWebSocket::frame(1, 'bytewise')) { $websocket->{client}->send($byte) }
    is($websocket->next, 'text bytewise', 'a frame may come byte by byte');
};

subtest 'several $receive at once' => sub {
    my $websocket = TestWebSocket->open($port, '/waits');
    $server->wait_for_log(qr/^waiting$/m);
    $websocket->text($_) for qw(a b c);
    is($websocket->next, 'text a,b,c', 'they are served in their order, without the cancelled one');
};

subtest 'the peer closes' => sub {
    my @codes = (1000 .. 1003, 1007 .. 1011, 3000, 3999, 4000, 4999);
    for my $code (@codes) {
        my ($websocket, $path) = open_echo();
        my $reason = "because $euro" =~ s/$euro/\xe2\x82\xac/r;
        is(
            $websocket->close_frame($code, $reason)->next,
            "close $code $reason",
            "$code is answered, with its reason"
        );
        is($websocket->next, 'end', '... and the connection ends');
        is_deeply(seen($path), [ $code, "because $euro" ], '... the application sees code and reason');
    }
    my ($websocket, $path) = open_echo();
    is($websocket->close_frame->next, 'close', 'no code: answered without one');
    is_deeply(seen($path), [ 1005, '' ], '... the application sees 1005');
};

subtest 'the peer breaks the rules' => sub {
    my $broken = sub {
        my ($name, $code, $reason, @frames) = @_;
        my ($websocket, $path) = open_echo();
        $websocket->{client}->send(join '', @frames);
        like($websocket->next, qr/\Aclose $code\b/, "$name: $code");
        is($websocket->next, 'end', '... and the connection ends');
        is_deeply(seen($path), [ $code, $reason ], '... as the application sees');
    };
    my $frame = \&TestWebSocket::frame;
    $broken->("close code $_", 1002, 'protocol_error', $frame->(8, pack 'n', $_))
        for 0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535;
    $broken->('half a close code',           1002, 'protocol_error', $frame->(8, 'x'));
    $broken->('a close reason not in UTF-8', 1007, 'protocol_error', $frame->(8, pack('n', 1000) . "\xff"));
    $broken->('no mask',                   1002, 'protocol_error', $frame->(1, 'x', masked => 0));
    $broken->("reserved bits $_",          1002, 'protocol_error', $frame->(1,  'x', rsv => $_)) for 1, 2, 4;
    $broken->("opcode $_",                 1002, 'protocol_error', $frame->($_, 'x')) for 3, 7, 11, 15;
    $broken->('a ping of 126 bytes',       1002, 'protocol_error', $frame->(9, 'x' x 126));
    $broken->('half a ping',               1002, 'protocol_error', $frame->(9, 'x', fin => 0));
    $broken->('a continuation of nothing', 1002, 'protocol_error', $frame->(0, 'x'));
    $broken->(
        'a message within a message',
        1002, 'protocol_error',
        $frame->(1, 'x', fin => 0),
        $frame->(1, 'y')
    );
    $broken->('text not in UTF-8',      1007, 'protocol_error', $frame->(1, "\xc0\xaf"));
    $broken->('... known early',        1007, 'protocol_error', $frame->(1, "\xf5", fin => 0));
    $broken->('... cut short',          1007, 'protocol_error', $frame->(1, "\xe2\x82"));
    $broken->('a frame over the limit', 1009, 'protocol_error', $frame->(2, '', length => 1001));
    $broken->(
        'a message over its limit',
        1009, 'protocol_error', map { $frame->($_ ? 0 : 2, 'x' x 999, fin => 0) } 0 .. 2
    );
};

subtest 'the application closes' => sub {
    for my $case ([ '', 'close 1000' ], [ '1001', 'close 1001' ],
        [ '4999,bye', "close 4999 bye \xe2\x82\xac" ])
    {
        my ($query, $expected) = @$case;
        my $websocket = TestWebSocket->open($port, "/close?$query");
        is($websocket->next,                                $expected, "with '$query'");
        is($websocket->close_frame(3456, 'answered')->next, 'end',     '... the answer ends the connection');
        is_deeply(
            seen("/close?$query"),
            [ 3456, 'answered' ],
            '... and the application sees what the peer said'
        );
    }
    ok($server->wait_for_log(qr/^the same again: 1$/m), 'the end can be received more than once');
    my @late = $server->log =~ /^(late .*)$/mg;
    is_deeply(
        \@late,
        [
            map {
                (
                    "late websocket.$_: websocket.$_: the application has closed the WebSocket with websocket.close"
                )
            } (qw(send close keepalive)) x 3
        ],
        'what is sent after the close fails'
    );
    my $websocket = TestWebSocket->open($port, '/close');
    is($websocket->next,                         'close 1000', 'a message that crosses the close');
    is($websocket->text('x')->close_frame->next, 'end',        '... is dropped');

    $websocket = TestWebSocket->open($port, '/return');
    is($websocket->next, 'close 1000', 'returning closes with 1000');
    $websocket = TestWebSocket->open($port, '/die');
    is($websocket->next,                    'close 1011', 'dying closes with 1011');
    is($websocket->close_frame(1011)->next, 'end',        '... and the connection ends');
    ok($server->wait_for_log(qr/the application died with its WebSocket open: with it open/),
        '... the exception is logged');
};

is($server->stop,                                      0, 'the server ends well');
is(() = $server->log =~ /application (?:died|ended)/g, 1, 'only the one died that was meant to')
    or diag $server->log;

subtest 'large messages' => sub {
    my $mib     = 1 << 20;
    my $largest = 16 * $mib;
    my $large   = TestServer->start(
        quiet               => 1,
        max_ws_frame_size   => $largest,
        max_ws_message_size => $largest,
        app                 => async sub {
            my ($scope, $receive, $send) = @_;
            die "no\n" if $scope->{type} ne 'websocket';
            await $send->(event('accept'));
            await $receive->();
            await echo(@_);
        },
    );
    my $websocket = TestWebSocket->open($large->port, '/', timeout => 60);
    my $payload   = join '', map { pack('N', $_) . chr($_ % 256) x 1020 } 1 .. $largest / 1024;
    ok($websocket->binary($payload)->next eq "binary $payload", 'a frame of 16 MiB comes back');
    my $text = "\xe2\x82\xac" x ($mib / 3);
    $websocket->send_frame($_ ? 0 : 1, $text, fin => $_ == 14) for 0 .. 14;
    ok($websocket->next eq 'text ' . $text x 15, 'a text of 15 MiB in 15 frames comes back');
    is($websocket->send_frame(2, '', length => $largest + 1)->next =~ /\A(close 1009)/ ? $1 : '',
        'close 1009', 'one byte more: 1009');
    is($large->stop, 0, 'the server ends well');
};

done_testing;
