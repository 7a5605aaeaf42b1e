# $receive: request bodies as they arrive, trailers, what comes after the end, and Futures used in every way.
use strict;
use warnings;

use lib 't/lib';
use Digest::MD5 ();
use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use IO::Select;
use JSON::PP ();
use Test::More;
use TestClient qw(get post exchange);
use TestServer;
use TestTools qw(patience);

my $json = JSON::PP->new->canonical->latin1;

async sub answer {
    my ($send, $value) = @_;
    my $body = ref $value ? $json->encode($value) : $value;
    await $send->(
        { type => 'http.response.start', status => 200, headers => [ [ 'content-length', length $body ] ] });
    await $send->({ type => 'http.response.body', body => $body });
    return;
}

# All events until the body is complete.
async sub collect {
    my ($receive) = @_;
    my @events;
    while (1) {
        push @events, await $receive->();
        last if $events[-1]{type} ne 'http.request' || !$events[-1]{more};
    }
    return @events;
}

my $loop = sub { IO::Async::Loop->new };
my $go   = Future->new;

my %handlers = (
    '/collect' => async sub {
        my ($scope, $receive, $send) = @_;
        my @events = await collect($receive);
        my $body   = join '', map { $_->{body} } @events;
        await answer(
            $send,
            {
                length   => length $body,
                sum      => unpack('%32C*', $body),
                types    => [ keys %{ { map { $_->{type} => 1 } @events } } ],
                last     => $events[-1]{more},
                trailers => $events[-1]{trailers},
                count    => scalar @events,
            }
        );
    },
    # Says what has come so far.
    '/trickle' => async sub {
        my ($scope, $receive, $send) = @_;
        my ($body, $event) = ('');
        print STDERR "takes a trickle\n";
        do {
            $event = await $receive->();
            $body .= $event->{body};
            print STDERR "has <$body> more=$event->{more}\n";
        } while $event->{more};
        await answer($send, $body);
    },
    '/after' => async sub {
        my ($scope, $receive, $send) = @_;
        await collect($receive);
        await answer($send, 'x');
        my $event = await $receive->();
        print STDERR "after the response: $event->{type}\n";
    },
    '/waiting' => async sub {
        my ($scope, $receive, $send) = @_;
        await collect($receive);
        my $next = $receive->();
        print STDERR 'while waiting: ', ($next->is_ready ? 'ready' : 'pending'), "\n";
        await answer($send, 'x');
        print STDERR 'then: ', (await $next)->{type}, "\n";
    },
    '/gone' => async sub {
        my ($scope, $receive, $send) = @_;
        print STDERR "waiting for more\n";
        my $event = await $receive->();
        $event = await $receive->() while $event->{type} eq 'http.request';
        print STDERR "the client left: $event->{type}\n";
    },
    '/cancel' => async sub {
        my ($scope, $receive, $send) = @_;
        my $first = $receive->();
        await Future->wait_any($first, $loop->()->delay_future(after => 0.05));
        print STDERR "has cancelled its first\n";
        my @events = await collect($receive);
        await answer($send, join '', map { $_->{body} } @events);
    },
    '/two' => async sub {
        my ($scope, $receive, $send)  = @_;
        my ($first, $second,  $third) = map { $receive->() } 1 .. 3;
        $first->on_done(sub { print STDERR "one of two has come\n" });
        print STDERR "waits for two\n";
        my @events = await Future->needs_all($first, $second);
        await answer($send, [ map { [ $_->{type}, $_->{body}, $_->{more} ] } @events ]);
        print STDERR 'the third got ', (await $third)->{type}, "\n";
    },
    '/then' => sub {
        my ($scope, $receive, $send) = @_;
        return $receive->()->then(sub { answer($send, "then $_[0]{body}") });
    },
    '/ignore' => async sub {
        my ($scope, $receive, $send) = @_;
        $receive->();
        await answer($send, 'ignored');
    },
    '/get' => sub {
        my ($scope, $receive, $send) = @_;
        my $body = '';
        while (1) {
            my $event = $receive->()->get;
            $body .= $event->{body};
            last if !$event->{more};
        }
        return answer($send, "blocking $body");
    },
    # Works on the pieces as applications do, once they have had time to come.
    '/pieces' => async sub {
        my ($scope, $receive, $send) = @_;
        await $go;
        my ($longest, $whole, @kept) = (0, '');
        while (1) {
            my $event = await $receive->();
            my $piece = $event->{body};
            $longest = length $piece if length $piece > $longest;
            push @kept, $piece;
            $whole .= $piece;
            $piece .= 'more';
            substr($piece, 0, 5, '');
            $event->{body} =~ tr/a-z/-/;
            last if !$event->{more};
        }
        my $same = join('', @kept) eq $whole;
        await answer($send, { longest => $longest, whole => Digest::MD5::md5_hex($whole), same => $same });
    },
    '/go' => async sub {
        my ($scope, $receive, $send) = @_;
        $go->done;
        await answer($send, 'gone');
    },
    '/unread' => async sub {
        my ($scope, $receive, $send) = @_;
        await answer($send, 'not read');
    },
);

my $app    = sub { $_[0]{type} eq 'http' ? $handlers{ $_[0]{path} }->(@_) : die "no\n" };
my $server = TestServer->start(app => $app);
my $port   = $server->port;

sub collected { return $json->decode($_[0]{body}) }

subtest 'bodies' => sub {
    my $none = collected(get($port, '/collect'));
    is_deeply([ @{$none}{qw(length count last)} ], [ 0, 1, 0 ],      'no body is one empty event');
    is_deeply($none->{types},                      ['http.request'], '... of type http.request');
    ok(!defined $none->{trailers}, '... without trailers');
    my $small = collected(post($port, '/collect', 'abc'));
    is_deeply([ @{$small}{qw(length sum count last)} ], [ 3, 294, 1, 0 ], 'a small body is one event');
    my $bytes = substr join('', map { chr } 0 .. 255) x 7813, 1, 2_000_000;
    my $large = collected(post($port, '/collect', $bytes));
    is($large->{length}, length $bytes,           'two million bytes arrive');
    is($large->{sum},    unpack('%32C*', $bytes), '... unchanged');
    cmp_ok($large->{count}, '>', 4, '... in pieces');
};

# Bytes that wait in the kernel come in few large pieces, and the application owns their memory.
subtest 'a long body that has come already' => sub {
    my $body   = substr join('', map { chr(33 + $_ * 7 % 90) } 1 .. 90) x 33_334, 0, 3_000_000;
    my $client = TestClient->new($port);
    my $socket = $client->socket;
    my $bytes  = "POST /pieces HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n$body";
    my $sent   = 0;
    $socket->blocking(0);
    while ($sent < length $bytes && IO::Select->new($socket)->can_write(patience(1))) {
        $sent += syswrite($socket, $bytes, 65536, $sent) // last;
    }
    $socket->blocking(1);
    cmp_ok($sent, '>', 200_000, 'more than one piece waits');
    get($port, '/go');
    $client->send(substr $bytes, $sent);
    my $seen = collected($client->response);
    is($seen->{whole}, Digest::MD5::md5_hex($body), 'it arrives unchanged');
    ok($seen->{same}, '... and pieces that are kept stay as they are');
    cmp_ok($seen->{longest}, '>', 65536, '... in pieces larger than the shared buffer')
        if !$ENV{PEREGRINE_ENGINE};
};

# Every $receive used to begin the waiting anew.
subtest 'a trickle does not keep body_timeout from passing' => sub {
    my $impatient = TestServer->start(body_timeout => 0.5, app => $app);
    for my $framing ("Content-Length: 1000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n3e8\r\n") {
        my $client = TestClient->new($impatient->port);
        $client->send("POST /gone HTTP/1.1\r\nHost: h\r\n$framing");
        my $sent = 0;
        while ($sent < 200) {
            last if IO::Select->new($client->socket)->can_read(0.05);
            $client->send('x');
            $sent++;
        }
        is($client->response->{status}, 408, "408 before the body was complete ($sent bytes)");
    }
    is($impatient->stop, 0, '... and the server goes on');
};

subtest 'as it arrives' => sub {
    my $client = TestClient->new($port);
    $client->send("POST /trickle HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n");
    ok($server->wait_for_log(qr/^takes a trickle$/m), 'the application reads a body that has yet to come');
    my $sent = '';
    for my $byte (split //, 'abcdef') {
        $client->send($byte);
        $sent .= $byte;
        my $more = $sent eq 'abcdef' ? 0 : 1;
        ok($server->wait_for_log(qr/^has <$sent> more=$more$/m), "... and gets $byte when it comes");
    }
    is($client->response->{body}, 'abcdef', 'all bytes arrive');
};

subtest 'chunked with trailers' => sub {
    my $head = "POST /collect HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n";
    my $seen =
        collected(
        exchange($port, $head . "3;x=y\r\nabc\r\n4\r\ndefg\r\n0\r\nX-Sum: 12\r\nX-B: a\r\nx-b: b\r\n\r\n"));
    is($seen->{length}, 7, 'the chunks are joined');
    is_deeply(
        $seen->{trailers},
        [ [ 'x-sum', '12' ], [ 'x-b', 'a' ], [ 'x-b', 'b' ] ],
        'the trailers are delivered, unmerged'
    );
};

subtest '100-continue' => sub {
    my $client = TestClient->new($port);
    $client->send("POST /collect HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    is($client->response->{status}, 100, 'the interim response comes when the application reads');
    $client->send('abc');
    is(collected($client->response)->{length}, 3, 'then the body arrives');
    my $other = TestClient->new($port);
    $other->send("POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    is($other->response->{status}, 200, 'without a read there is none');
};

subtest 'the end' => sub {
    get($port, '/after');
    ok($server->wait_for_log(qr/after the response: http\.disconnect/),
        'after the response comes http.disconnect');
    get($port, '/waiting');
    ok(
        $server->wait_for_log(qr/while waiting: pending/),
        'with the whole body read, the next event is not there yet'
    );
    ok(
        $server->wait_for_log(qr/then: http\.disconnect/),
        '... and is http.disconnect when the response is out'
    );
    my $client = TestClient->new($port);
    $client->send("POST /gone HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
    ok($server->wait_for_log(qr/waiting for more/), 'the application waits for a body');
    $client->reset;
    ok($server->wait_for_log(qr/the client left: http\.disconnect/), 'a client that leaves wakes it');
};

subtest 'Futures' => sub {
    my $client = TestClient->new($port);
    $client->send("POST /cancel HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n");
    ok($server->wait_for_log(qr/^has cancelled its first$/m), 'nothing comes, and a $receive is cancelled');
    $client->send('abc')->send('def');
    is($client->response->{body}, 'abcdef', 'an event after a cancelled $receive goes to the next');

    $client = TestClient->new($port);
    $client->send("POST /two HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n");
    ok($server->wait_for_log(qr/^waits for two$/m), 'several are asked for');
    $client->send('abc');
    ok($server->wait_for_log(qr/^one of two has come$/m), '... one comes');
    $client->send('def');
    is_deeply(
        $json->decode($client->response->{body}),
        [ [ 'http.request', 'abc', 1 ], [ 'http.request', 'def', 0 ] ],
        'several at once are served in order'
    );
    ok($server->wait_for_log(qr/the third got http\.disconnect/), '... and the last one is told of the end');

    is(post($port, '/then',   'abc')->{body}, 'then abc',     'then-chaining works');
    is(post($port, '/ignore', 'abc')->{body}, 'ignored',      'ignoring works');
    is(post($port, '/get',    'abc')->{body}, 'blocking abc', 'a blocking get of a ready one works');
    my $slow = TestClient->new($port)->send("POST /get HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc");
    select undef, undef, undef, 0.2;
    is(post($port, '/then', 'abc')->{body},
        'then abc', 'while a handler blocks in a nested loop, others are served');
    is($slow->send('def')->response->{body}, 'blocking abcdef', '... and it gets its body');
};

subtest 'an unread body' => sub {
    my $client = TestClient->new($port);
    $client->send(
        "POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 26\r\n\r\nGET /then HTTP/1.1\r\nX: y\r\n");
    is($client->response->{body}, 'not read', 'is answered');
    $client->send("POST /then HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nz");
    my $next = $client->response;
    ok(!$next || $next->{body} eq 'then z', '... and never taken for the next request');
};

is($server->stop, 0, 'the server ends well');
unlike($server->log, qr/application died|lost|callback/, 'nothing died') or diag $server->log;

done_testing;
