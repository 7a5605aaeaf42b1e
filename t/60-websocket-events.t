# Malformed events of the websocket scope: each fails its own $send with a text that names the event, the
# field and what is allowed, and leaves the WebSocket as it was.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use JSON::PP ();
use PAGI::Server::EventCheck;
use Test::More;
use TestServer;
use TestWebSocket;

my $json = JSON::PP->new->ascii;
my $nan  = 9**9**9 / 9**9**9;

package Text {
    use overload '""' => sub { ${ $_[0] } }, fallback => 1;
}

# For an unanswered handshake: fields of websocket.accept, and what has to be said about them.
my @accepts = (
    [ { subprotocol => [] },         qr/\Awebsocket\.accept: subprotocol is a reference, not a string at / ],
    [ { subprotocol => "\x{20ac}" }, qr/\Awebsocket\.accept: subprotocol has a wide character/ ],
    [
        { subprotocol => '' },
        qr/\Awebsocket\.accept: subprotocol "" was not offered by the client, which offered 'good'/
    ],
    [ { compress    => [] },     qr/\Awebsocket\.accept: compress must be 0 or 1, not a reference/ ],
    [ { subprotocol => 'GOOD' }, qr/\Awebsocket\.accept: subprotocol "GOOD" was not offered/ ],
    [
        { headers => {} },
        qr/\Awebsocket\.accept: headers must be an array reference of \[name, value\] pairs/
    ],
    [ { headers => [ ['x'] ] }, qr/\Awebsocket\.accept: headers\[0\] must be a \[name, value\] pair/ ],
    [
        { headers => [ [ 'x', undef ] ] },
        qr/\Awebsocket\.accept: the value of headers\[0\] \(x\) is undefined/
    ],
    [
        { headers => [ [ 'x', 1 ], [ 'x y', 1 ] ] },
        qr/\Awebsocket\.accept: headers\[1\] \("x y"\): header name is not a token/
    ],
    [
        { headers => [ [ 'x', "a\r\nb" ] ] },
        qr/\Awebsocket\.accept: headers\[0\] \("x"\): header value holds CR, LF/
    ],
    [
        { headers => [ [ 'x', "\x{100}" ] ] },
        qr/\Awebsocket\.accept: the value of headers\[0\] \(x\) has a wide character/
    ],
);

# For a handshake that is denied, and for one that is closed.
my @denials = (
    [ {}, qr/\Awebsocket\.http\.response\.start: status is missing/ ],
    [
        { status => 'no' },
        qr/\Awebsocket\.http\.response\.start: status must be an integer from 200 to 599, not 'no'/
    ],
    [
        { status => 101 },
        qr/\Awebsocket\.http\.response\.start: status must be an integer from 200 to 599, not '101'/
    ],
    [
        { status => 401, headers => 1 },
        qr/\Awebsocket\.http\.response\.start: headers must be an array reference/
    ],
);

my $code   = qr/\Awebsocket\.close: code must be/;
my $number = qr/must be a number from 0 to 1000000, not/;

# Events of an open WebSocket that must be refused.
my @events = (
    [ undef,            qr/\A\$send: an event must be a hash reference/ ],
    [ 'websocket.send', qr/\A\$send: an event must be a hash reference/ ],
    [ {},               qr/\A\$send: the event has no type \(a string is required\)/ ],
    [ { type => [] },   qr/\A\$send: the event has no type/ ],
    [
        { type => 'websocket.message' },
        qr/\A\$send: unknown event type 'websocket\.message' in a scope of type websocket/
    ],
    [
        { type => 'http.response.body' },
        qr/\A\$send: unknown event type 'http\.response\.body' in a scope of type websocket \(did you mean 'websocket\.http\.response\.body'\?\)/
    ],
    (
        map { [
            { type => 'websocket.send', @$_ },
            qr/\Awebsocket\.send: exactly one of text and bytes must be given/
        ] } [],
        [ text  => undef ],
        [ bytes => undef ],
        [ text  => 'a',   bytes => 'b' ],
        [ text  => undef, bytes => undef ],
        [ body  => 'x' ]
    ),
    [ { type => 'websocket.send', text  => {} }, qr/\Awebsocket\.send: text is a reference, not a string/ ],
    [ { type => 'websocket.send', bytes => [] }, qr/\Awebsocket\.send: bytes is a reference, not a string/ ],
    [
        { type => 'websocket.send', bytes => "\x{20ac}" },
        qr/\Awebsocket\.send: bytes has a wide character; encode it to bytes first/
    ],
    [
        { type => 'websocket.send', text => "\x{d800}" },
        qr/\Awebsocket\.send: text has a surrogate or another code point that/
    ],
    [
        { type => 'websocket.send', text => "\x{110000}" },
        qr/\Awebsocket\.send: text has a surrogate or another code point that/
    ],
    [
        { type => 'websocket.keepalive' },
        qr/\Awebsocket\.keepalive: interval is missing \(seconds; 0 stops the pings\)/
    ],
    (
        map { [ { type => 'websocket.keepalive', interval => $_ },
            qr/\Awebsocket\.keepalive: interval $number/ ] } 'often',
        -1,
        [],
        $nan,
        9**9**9,
        1_000_001,
        ''
    ),
    [
        { type => 'websocket.keepalive', interval => 1, timeout => -0.1 },
        qr/\Awebsocket\.keepalive: timeout $number '-0\.1'/
    ],
    (
        map { [ { type => 'websocket.close', code => $_ }, $code ] } -1,
        0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 1000.5, 'normal', [], ''
    ),
    [
        { type => 'websocket.close', code => 1005 },
        qr/$code 1000 to 1003, 1007 to 1014 or 3000 to 4999, not 1005/
    ],
    [
        { type => 'websocket.close', reason => {} },
        qr/\Awebsocket\.close: reason is a reference, not a string/
    ],
    [ { type => 'websocket.close', reason => "\x{dfff}" }, qr/\Awebsocket\.close: reason has a surrogate/ ],
    [
        { type => 'websocket.close', reason => 'x' x 124 },
        qr/\Awebsocket\.close: reason must have at most 123 bytes as UTF-8, not 124/
    ],
    [
        { type => 'websocket.close', reason => "\xe9" x 62 },
        qr/\Awebsocket\.close: reason must have at most 123 bytes as UTF-8, not 124/
    ],
);

# Sends an event that has to fail; the failure.
async sub failure_of {
    my ($send, $event) = @_;
    return eval { await $send->($event); 1 } ? 'it did not fail' : "$@";
}

my $server = TestServer->start(
    app => async sub {
        my ($scope, $receive, $send) = @_;
        die "no\n" if $scope->{type} ne 'websocket';
        my @failures;
        for my $case (@accepts) {
            push @failures, await failure_of($send, { type => 'websocket.accept', %{ $case->[0] } });
        }
        for my $case (@denials) {
            push @failures,
                await failure_of($send, { type => 'websocket.http.response.start', %{ $case->[0] } });
        }
        for my $case ({ code => 'x' }, { reason => [] }) {
            push @failures, await failure_of($send, { type => 'websocket.close', %$case });
        }
        await $send->({ type => 'websocket.accept', subprotocol => 'good', more => 'is ignored' });
        for my $case (@events) { push @failures, await failure_of($send, $case->[0]) }
        await $send->({ type => 'websocket.send', text => $json->encode(\@failures) });

        # Odd values of the right types are accepted.
        my ($text, $bytes) = map { my $value = $_; bless \$value, 'Text' } "\x{20ac}", 'octets';
        await $send->({ type => 'websocket.send',      text     => $text,  more => 'is ignored' });
        await $send->({ type => 'websocket.send',      bytes    => $bytes, more => 'is ignored' });
        await $send->({ type => 'websocket.keepalive', interval => '1e-9', timeout => undef });
        await $send->({ type => 'websocket.keepalive', interval => 0 });
        await $send->(
            { type => 'websocket.close', code => '3000', reason => "\xe9" x 61, more => 'is ignored' });
    },
);

my $websocket = TestWebSocket->open($server->port, '/', lines => ['Sec-WebSocket-Protocol: good']);
my $first     = $websocket->next;
my ($text)    = $first =~ /\Atext (.*)\z/s or die "got $first: ", $server->log;
my @failures  = @{ $json->decode($text) };

sub named {
    my ($event) = @_;
    return defined $event ? ref $event ? $json->encode($event) : $event : 'undef';
}

like(shift @failures, $_->[1], 'accept ' . named($_->[0])) for @accepts;
like(shift @failures, $_->[1], 'denial ' . named($_->[0])) for @denials;
like(
    shift @failures,
    qr/\Awebsocket\.close: code must be an integer from 0 to 4999, not 'x'/,
    'a code, before accept'
);
like(shift @failures, qr/\Awebsocket\.close: reason is a reference/, 'a reason, before accept');
like(shift @failures, $_->[1],                                       named($_->[0])) for @events;
is(scalar @failures, 0, 'that is all');

is($websocket->next, "text \xe2\x82\xac", 'an object that is a string can be text');
is($websocket->next, 'binary octets',     '... or bytes');
my $frame = $websocket->next;
$frame = $websocket->next while $frame eq 'ping ';
is($frame, 'close 3000 ' . "\xc3\xa9" x 61, 'and the WebSocket went on through all of it');
$websocket->close_frame(3000);
is($server->stop, 0, 'the server ends well');
unlike($server->log, qr/application died|panic|uninitialized/, 'nothing died') or diag $server->log;

# With validate_events, what the server could live with fails as well; see t/72-validation.t for the checks
# that all events share.
my $check = \&PAGI::Server::EventCheck::problem;
like(
    $check->({ type => 'websocket.accept', headers => [ [ 'x y', 1 ] ] }),
    qr/headers must be .* without spaces/,
    'validated: accept'
);
like(
    $check->({ type => 'websocket.send', text => 'a', bytes => 'b' }),
    qr/only one of text bytes may be given/,
    'validated: send'
);
like($check->({ type => 'websocket.close', code => $_ }), qr/code must be an integer/, "validated: close $_")
    for 1000.5, 'normal';
like(
    $check->({ type => 'websocket.keepalive', timeout => 1 }),
    qr/interval is missing/,
    'validated: keepalive'
);
like(
    $check->({ type => 'websocket.http.response.start' }),
    qr/status is missing/,
    'validated: the start of a denial'
);
like(
    $check->({ type => 'websocket.http.response.body', more => 'yes' }),
    qr/more must be 0 or 1/,
    'validated: the body of a denial'
);

done_testing;
