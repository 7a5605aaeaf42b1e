# $send: heads, bodies, chunks, trailers, files; and every mistake fails that $send with a
# message and nothing else.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Future;
use Future::AsyncAwait;
use IO::Async::Loop;
use Test::More;
use TestClient qw(get exchange);
use TestServer;

my $file = File::Temp->new;
print {$file} join '', map { "$_\n" } 100_000 .. 199_999;
$file->close;
my $path    = $file->filename;
my $content = do { open my $in, '<:raw', $path or die $!; local $/; <$in> };

# Not written where it is used: Future::AsyncAwait 0.63 loses a folded constant in a loop that it has resumed.
my $piece = 'x' x 100_000;

sub start {
    my ($send, @headers) = @_;
    return $send->({ type => 'http.response.start', status => 200, headers => \@headers });
}

sub body {
    my ($send, $body, $more) = @_;
    return $send->({ type => 'http.response.body', body => $body, more => $more ? 1 : 0 });
}

# The events that must fail, by the name of the case, with what the message must say. Each is sent before a
# response starts (`early`) or after it has.
my %mistakes = (
    'no hash'             => [ early => 'event', qr/\$send: an event must be a hash reference/ ],
    'no type'             => [ early => { status => 200 }, qr/the event has no type/ ],
    'a reference as type' => [ early => { type   => [] },  qr/the event has no type/ ],
    'unknown type'        =>
        [ early => { type => 'http.response.begin' }, qr/unknown event type 'http\.response\.begin'/ ],
    'a type with a letter too few' => [
        early => { type => 'http.respose.start' },
        qr/'http\.respose\.start' in a scope of type http \(did you mean 'http\.response\.start'\?\)/
    ],
    'a type of websocket' =>
        [ early => { type => 'websocket.send' }, qr/unknown event type 'websocket\.send'/ ],
    'body first' => [
        early => { type => 'http.response.body' },
        qr/http\.response\.body: the response has not been started/
    ],
    'trailers first' =>
        [ early => { type => 'http.response.trailers' }, qr/trailers: the response has not been started/ ],
    'no fullflush' =>
        [ early => { type => 'http.fullflush' }, qr/does not advertise the extension fullflush/ ],
    'no interim' => [
        early => { type => 'http.response.informational' },
        qr/does not advertise the extension informational/
    ],
    'no status' =>
        [ early => { type => 'http.response.start' }, qr/http\.response\.start: status is missing/ ],
    'status undef'  => [ early => { type => 'http.response.start', status => undef }, qr/status is missing/ ],
    'status a word' => [
        early => { type => 'http.response.start', status => 'fine' },
        qr/status must be an integer.*'fine'/
    ],
    'status a list' =>
        [ early => { type => 'http.response.start', status => [200] }, qr/status must be an integer/ ],
    'status a float' =>
        [ early => { type => 'http.response.start', status => 200.5 }, qr/status must be an integer/ ],
    'a head that nobody takes' => [
        early => {
            type    => 'http.response.start',
            status  => 200,
            headers => [ map { [ "x-$_" => 'v' x 1000 ] } 1 .. 300 ]
        },
        qr/http\.response\.start: headers or trailers are longer than 256 KiB/
    ],
    'status negative' =>
        [ early => { type => 'http.response.start', status => -200 }, qr/status must be an integer/ ],
    'status abc' => [
        early => { type => 'http.response.start', status => 'abc' },
        qr/status must be an integer from 200 to 599, not 'abc'/
    ],
    'status long' => [
        early => { type => 'http.response.start', status => 'x' x 64 . 'y' },
        qr/status must be an integer from 200 to 599, not 'x{64}\.\.\.'/
    ],
    'status long and wide' => [
        early => { type => 'http.response.start', status => "\x{e9}" x 64 },
        qr/status must be an integer from 200 to 599, not '(?:\xe9|\xc3\xa9){64}'/
    ],
    'status 600' => [
        early => { type => 'http.response.start', status => 600 },
        qr/status must be an integer from 200 to 599/
    ],
    'status 100' => [
        early => { type => 'http.response.start', status => 100 },
        qr/status must be an integer from 200 to 599/
    ],
    'status 999' => [
        early => { type => 'http.response.start', status => 999 },
        qr/status must be an integer from 200 to 599/
    ],
    'status 70000' =>
        [ early => { type => 'http.response.start', status => 70_000 }, qr/status must be an integer/ ],
    'headers a hash' => [
        early => { type => 'http.response.start', status => 200, headers => {} },
        qr/headers must be an array/
    ],
    'headers flat' => [
        early => { type => 'http.response.start', status => 200, headers => [ 'a', 'b' ] },
        qr/headers\[0\] must be a \[name, value\] pair/
    ],
    'header of three' => [
        early =>
            { type => 'http.response.start', status => 200, headers => [ [ 'x', 'y' ], [ 'a', 'b', 'c' ] ] },
        qr/headers\[1\] must be a \[name, value\] pair/
    ],
    'value undef' => [
        early => { type => 'http.response.start', status => 200, headers => [ [ 'x-a', undef ] ] },
        qr/value of headers\[0\] \(x-a\) is undefined/
    ],
    'value a reference' => [
        early => { type => 'http.response.start', status => 200, headers => [ [ 'x-a', [] ] ] },
        qr/value of headers\[0\] \(x-a\) is a reference/
    ],
    'value wide' => [
        early => { type => 'http.response.start', status => 200, headers => [ [ 'x-a', "\x{20ac}" ] ] },
        qr/value of headers\[0\] \(x-a\) has a wide character/
    ],
    'name undef' => [
        early => { type => 'http.response.start', status => 200, headers => [ [ undef, 'x' ] ] },
        qr/name of headers\[0\] is undefined/
    ],
    'name wide' => [
        early => { type => 'http.response.start', status => 200, headers => [ [ "\x{20ac}", 'x' ] ] },
        qr/name of headers\[0\] has a wide character/
    ],
    (
        map {
            my ($what, $bytes) = @$_;
            (
                "$what in a value" => [
                    early => {
                        type    => 'http.response.start',
                        status  => 200,
                        headers => [ [ 'x-ok', 1 ], [ 'x-bad', "a${bytes}b" ] ]
                    },
                    qr/http\.response\.start: headers\[1\] \(.*x-bad/
                ],
                "$what in a name" => [
                    early => {
                        type    => 'http.response.start',
                        status  => 200,
                        headers => [ [ "x${bytes}bad", 1 ] ]
                    },
                    qr/http\.response\.start: headers\[0\]/
                ],
            )
        } [ 'CR LF', "\r\n" ],
        [ 'CR',  "\r" ],
        [ 'LF',  "\n" ],
        [ 'NUL', "\0" ]
    ),
    'space in a name' => [
        early => { type => 'http.response.start', status => 200, headers => [ [ 'x y', 1 ] ] },
        qr/headers\[0\]/
    ],
    'empty name' => [
        early => { type => 'http.response.start', status => 200, headers => [ [ '', 1 ] ] },
        qr/headers\[0\]/
    ],
    'length a word' => [
        early => { type => 'http.response.start', status => 200, headers => [ [ 'content-length', 'x' ] ] },
        qr/headers\[0\] \(.*content-length/
    ],
    'two starts' => [
        late => { type => 'http.response.start', status => 200 },
        qr/http\.response\.start: the response has already started/
    ],
    'wide body' => [
        late => { type => 'http.response.body', body => "\x{20ac}" },
        qr/http\.response\.body: body has a wide character/
    ],
    'body a reference' => [ late => { type => 'http.response.body', body => [] }, qr/body is a reference/ ],
    'body and file'    => [
        late => { type => 'http.response.body', body => 'x', file => $path },
        qr/only one of body, file and fh/
    ],
    'no such file' => [
        late => { type => 'http.response.body', file => '/no/such/file' },
        qr{file '/no/such/file' cannot be opened: No such file}
    ],
    'a closed handle' => [
        late => {
            type => 'http.response.body',
            fh   => do { open my $fh, '<', $path or die; close $fh; $fh }
        },
        qr/fh must be an open file handle/
    ],
    'no handle' =>
        [ late => { type => 'http.response.body', fh => 'word' }, qr/fh must be an open file handle/ ],
    'offset negative' => [
        late => { type => 'http.response.body', file => $path, offset => -1 },
        qr/offset must be an integer/
    ],
    'length a float' => [
        late => { type => 'http.response.body', file => $path, length => 1.5 },
        qr/length must be an integer/
    ],
    'trailers unpromised' =>
        [ late => { type => 'http.response.trailers', headers => [] }, qr/did not promise trailers/ ],
);

package Overloaded {
    use overload '""' => sub { ${ $_[0] } }
}

my %handlers = (
    '/mistake' => async sub {
        my ($scope, $receive, $send) = @_;
        my ($when, $event) = @{ $mistakes{ $scope->{query_string} =~ s/%20/ /gr } };
        await start($send) if $when eq 'late';
        my $future  = $send->($event);
        my $failure = $future->failure;
        await start($send) if $when eq 'early';
        await body($send, defined $failure ? $failure : 'no failure');
    },
    '/upgraded' => async sub {
        my ($scope, $receive, $send) = @_;
        my ($name,  $value,   $text) = ('x-latin', "caf\x{e9}", "d\x{e9}j\x{e0} vu");
        utf8::upgrade($_) for $name, $value, $text;
        await start($send, [ $name, $value ]);
        await body($send, $text, 1);
        await body($send, utf8::is_utf8($text) && utf8::is_utf8($value) ? ' untouched' : ' changed');
    },
    '/chunks' => async sub {
        my ($scope, $receive, $send) = @_;
        await start($send);
        for my $number (1 .. 3) { await body($send, "piece $number,", 1) }
        await body($send, '', 1);
        await $send->({ type => 'http.response.body', extra => 'is ignored' });
    },
    '/counted' => async sub {
        my ($scope, $receive, $send) = @_;
        await start($send, [ 'content-length', 10 ]);
        await body($send, '12345', 1);
        my $long  = body($send, '1234567', 1)->failure;
        my $short = body($send, '')->failure;
        print STDERR "too long: $long", "too short: $short";
        await body($send, '67890');
    },
    '/transfer' => async sub {
        my ($scope, $receive, $send) = @_;
        await start($send, [ 'transfer-encoding', 'chunked' ], [ 'connection', 'close' ], [ 'date', 'once' ]);
        await body($send, 'x', 1);
        await body($send, 'y');
    },
    '/trailers' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.start', status => 200, headers => [], trailers => 1 });
        await body($send, 'with', 1);
        await body($send, ' trailers');
        my $late = body($send, 'more')->failure;
        my $bad  = $send->({ type => 'http.response.trailers', headers => [ [ 'x', "a\r\nb" ] ] })->failure;
        print STDERR "late: $late", "bad: $bad";
        await $send->({ type => 'http.response.trailers', headers => [ [ 'x-sum', '42' ] ] });
    },
    '/length-and-trailers' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({
            type     => 'http.response.start',
            status   => 200,
            headers  => [ [ 'content-length', 4 ] ],
            trailers => 1,
        });
        await body($send, 'four');
        for my $headers ([ [ 'x-sum', '42' ] ], []) {
            my $failure = $send->({ type => 'http.response.trailers', headers => $headers })->failure;
            print STDERR 'with ', scalar @$headers, " trailers: $failure" if defined $failure;
        }
    },
    '/after' => async sub {
        my ($scope, $receive, $send) = @_;
        await start($send);
        await body($send, 'all');
        my @later = (
            body($send, 'more', more => 1),
            start($send),
            body($send, ''),
            $send->({ type => 'http.response.trailers' })
        );
        await IO::Async::Loop->new->later;
        push @later, body($send, 'still more');
        print STDERR 'after the end: ', join(' ', map { $_->state } @later), "\n";
    },
    '/status' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.start', status => $scope->{query_string}, headers => [] });
        await body($send, 'body');
    },
    '/file' => async sub {
        my ($scope, $receive, $send) = @_;
        my %range = map { split /=/ } split /&/, $scope->{query_string};
        await start($send);
        await $send->({ type => 'http.response.body', file => $path, %range });
    },
    '/handle' => async sub {
        my ($scope, $receive, $send) = @_;
        open my $fh, '<:raw', $path or die $!;
        <$fh> for 1 .. 2;
        my %range = map { split /=/ } split /&/, $scope->{query_string};
        await start($send);
        await $send->({ type => 'http.response.body', fh => $fh, %range });
        close $fh;
    },
    '/unreadable' => async sub {
        my ($scope, $receive, $send) = @_;
        my $connection = $scope->{'pagi.connection'};
        $connection->on_disconnect(sub { print STDERR "unreadable: on_disconnect $_[0]\n" });
        $connection->on_complete(sub { print STDERR "unreadable: on_complete\n" });
        my $fh = File::Temp->new;
        print {$fh} 'x' x 9_000_000;
        $fh->flush;
        await start($send);
        my $sent = $send->({ type => 'http.response.body', fh => $fh, offset => 0 });
        truncate $fh, 0 or die $!;
        print STDERR "unreadable: truncated\n";
        $sent = await $sent->else_done('failed');
        print STDERR "unreadable: $sent\n" if $sent;
    },
    '/recover' => async sub {
        my ($scope, $receive, $send) = @_;
        await start($send);
        eval { await $send->({ type => 'http.response.body', file => '/no/such/file' }); 1 }
            or await body($send, 'instead');
    },
    '/status-object' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.start', status => bless \(my $text = '203'), 'Overloaded' });
        await body($send, 'x');
    },
    '/chain' => sub {
        my ($scope, $receive, $send) = @_;
        return start($send)->then(sub { body($send, 'chained') });
    },
    '/ignore' => sub {
        my ($scope, $receive, $send) = @_;
        start($send);
        body($send, 'not awaited');
        return Future->done;
    },
    '/cancel' => async sub {
        my ($scope, $receive, $send) = @_;
        await start($send);
        my @sent = map { body($send, 'x' x 1_000_000, 1) } 1 .. 9;
        print STDERR 'pending: ', scalar(grep { !$_->is_ready } @sent), "\n";
        $_->cancel for @sent;
        await body($send, 'y');
    },
    '/large' => async sub {
        my ($scope, $receive, $send) = @_;
        await start($send);
        for my $number (1 .. 50) { await body($send, $piece, 1) }
        await body($send, 'end');
    },
    '/nested' => sub {
        my ($scope, $receive, $send) = @_;
        start($send)->get;
        body($send, $piece, 1)->get for 1 .. 50;
        return body($send, 'end');
    },
    '/later' => async sub {
        my ($scope, $receive, $send) = @_;
        await IO::Async::Loop->new->delay_future(after => 0.05);
        await start($send);
        await IO::Async::Loop->new->delay_future(after => 0.05);
        await body($send, 'later');
    },
    '/trailers-later' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'http.response.start', status => 200, trailers => 1 });
        await body($send, 'x');
        await IO::Async::Loop->new->delay_future(after => 0.05);
        await $send->({ type => 'http.response.trailers', headers => [ [ 'x-sum', '1' ] ] });
    },
    '/empty-file-later' => async sub {
        my ($scope, $receive, $send) = @_;
        my $empty = File::Temp->new;
        await start($send);
        await body($send, 'x', 1);
        await IO::Async::Loop->new->delay_future(after => 0.05);
        await $send->({ type => 'http.response.body', fh => $empty });
    },
    '/error' => async sub {
        my ($scope, $receive, $send) = @_;
        eval { die "mine\n" };
        await start($send);
        await body($send, "kept: $@");
    },
);

my $server =
    TestServer->start(app => sub { $_[0]{type} eq 'http' ? $handlers{ $_[0]{path} }->(@_) : die "no\n" });
my $port = $server->port;

subtest 'mistakes' => sub {
    for my $name (sort keys %mistakes) {
        my $response = get($port, '/mistake?' . $name =~ s/ /%20/gr);
        like($response->{body}, $mistakes{$name}[2],                   $name);
        like($response->{body}, qr/ at \S+22-response\.t line \d+\.$/, '... with the place')
            if $name ne 'no failure';
    }
};

subtest 'bodies' => sub {
    my $upgraded = get($port, '/upgraded');
    is($upgraded->{body}, "d\xe9j\xe0 vu untouched", 'text below 256 goes out as bytes and stays as it is');
    is($upgraded->{header}{'x-latin'}, "caf\xe9",    '... in headers as well');
    my $chunks = get($port, '/chunks');
    is_deeply(
        $chunks->{chunks},
        [ map { "piece $_," } 1 .. 3 ],
        'without a length the body is chunked, empty pieces are none'
    );
    my $old = exchange($port, "GET /chunks HTTP/1.0\r\n\r\n");
    is($old->{body},                   'piece 1,piece 2,piece 3,', 'in HTTP/1.0 the close ends it');
    is(get($port, '/counted')->{body}, '1234567890',               'with a length it is counted');
    ok($server->wait_for_log(qr/too long: http\.response\.body: .*too short: http\.response\.body: /s),
        '... and policed');
    my $transfer = get($port, '/transfer');
    is($transfer->{header}{'transfer-encoding'},
        'chunked', 'Transfer-Encoding of the application is not doubled');
    is($transfer->{header}{date}, 'once', 'a Date of the application is kept, alone');
    ok(get($port, '/large')->{body} eq ('x' x 5_000_000) . 'end', 'five million bytes in large pieces');
    is(get($port, '/later')->{body},                       'later', 'an answer that comes later');
    is(get($port, '/trailers-later')->{trailers}{'x-sum'}, '1',     '... and one whose trailers do');
    is(get($port, '/empty-file-later')->{body},            'x',     '... and one that an empty file ends');
    is(get($port, '/error')->{body}, "kept: mine\n",                q{the application's $@ is not touched});
};

subtest 'trailers' => sub {
    my $response = get($port, '/trailers');
    is($response->{body}, 'with trailers', 'the body is whole');
    is_deeply($response->{trailers}, { 'x-sum' => '42' }, 'the trailers follow');
    ok(
        $server->wait_for_log(
            qr/late: http\.response\.body: the body is complete.*bad: http\.response\.trailers: headers\[0\]/s
        ),
        'mistakes fail'
    );
};

subtest 'trailers behind a length' => sub {
    my $response = get($port, '/length-and-trailers');
    is($response->{header}{'content-length'},    '4',    'the length stays');
    is($response->{header}{'transfer-encoding'}, undef,  '... and counts');
    is($response->{body},                        'four', 'the body is whole');
    ok(
        $server->wait_for_log(
            qr/^with $_ trailers: http\.response\.trailers: trailers need chunked framing/m),
        "$_ trailers fail"
    ) for 1, 0;
    ok(
        $server->wait_for_log(
            qr/application ended with its response incomplete: was an `await` forgotten\?$/m),
        '... and the response stays incomplete'
    );
    my $head = exchange($port, "HEAD /length-and-trailers HTTP/1.1\r\nHost: h\r\n\r\n", head => 1);
    is($head->{header}{'content-length'}, '4', 'an answer to HEAD has the length as well');
    is(scalar(() = $server->log =~ /application ended/g), 1,
        '... and its trailers are taken and thrown away');
};

subtest 'after the end' => sub {
    my $debug  = TestServer->start(app => $handlers{'/after'}, log_level => 'debug', lifespan_mode => 'off');
    my $client = TestClient->new($debug->port);
    for my $count (1, 2) {
        $client->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        is($client->response->{body}, 'all', 'the response is whole');
    }
    ok($debug->wait_for_log(qr/(?:^after the end: done done done done done\n.*){2}/ms),
        '... and what is sent after it does nothing');
    is($debug->stop, 0, 'the server ends well');
    my @lines = $debug->log =~ /^PAGI: (.*response is complete)$/mg;
    is(scalar @lines, 2, '... of which there is one line for each request, for who looks for it')
        or diag $debug->log;
    like(
        $lines[0],
        qr{\Arequest 1-1 \(127\.0\.0\.1:\d+\) GET /: http\.response\.body does nothing: the response is complete\z},
        '... which says what'
    );
};

subtest 'statuses' => sub {
    for my $status (200, 201, 206, 303, 307, 404, 409, 422, 429, 503, 599) {
        my $response = get($port, "/status?$status");
        is($response->{status}, $status, "status $status");
        is($response->{body},   'body',  '... with its body');
    }
    is(get($port, '/status-object')->{status}, 203, 'an object that gives a string counts as that');
    for my $status (204, 304) {
        my $client   = TestClient->new($port)->send("GET /status?$status HTTP/1.1\r\nHost: h\r\n\r\n");
        my $response = $client->response;
        is($response->{status}, $status, "status $status");
        ok(!defined $response->{header}{'transfer-encoding'}, '... without framing');
        is($client->send("GET /chain HTTP/1.1\r\nHost: h\r\n\r\n")->response->{body},
            'chained', '... and the connection goes on');
    }
    my $client = TestClient->new($port)->send("HEAD /chunks HTTP/1.1\r\nHost: h\r\n\r\n");
    is($client->response(head => 1)->{status}, 200, 'HEAD is answered without a body');
    is($client->send("GET /chain HTTP/1.1\r\nHost: h\r\n\r\n")->response->{body},
        'chained', '... and the connection goes on');
};

subtest 'files' => sub {
    ok(get($port, '/file')->{body} eq $content, 'a whole file');
    is(get($port, '/file?offset=7&length=14')->{body},               "100001\n100002\n", 'a range of it');
    is(get($port, '/file?offset=' . (length($content) - 7))->{body}, "199999\n",         'its end');
    is(get($port, '/file?offset=999999999')->{body},                 '', 'nothing beyond its end');
    is(get($port, '/file?length=0')->{body},                         '', 'nothing when nothing is asked for');
    ok(get($port, '/handle')->{body} eq substr($content, 14), 'a handle from where it stands');
    is(get($port, '/handle?offset=7&length=7')->{body}, "100001\n", 'a handle from an offset');
    is(get($port, '/recover')->{body},
        'instead', 'after a file that cannot be opened, the application can go on');
    my $client =
        TestClient->new($port, receive_buffer => 65_536)->send("GET /unreadable HTTP/1.1\r\nHost: h\r\n\r\n");
    $server->wait_for_log(qr/unreadable: truncated/);
    unlike($client->rest, qr/\r\n0\r\n/, 'a body that cannot be read to its end is cut short');
    ok($server->wait_for_log(qr/unreadable: on_disconnect server_error/),
        '... which the application is told');
    ok($server->wait_for_log(qr/unreadable: failed/), '... by its $send, too');
    like($server->log, qr/The file of a response .*: \d+ bytes are missing/, '... and the log');
    unlike($server->log, qr/unreadable: on_complete/, '... and it is not complete');
};

subtest 'Futures' => sub {
    is(get($port, '/chain')->{body},  'chained',     'then-chaining works');
    is(get($port, '/ignore')->{body}, 'not awaited', 'ignoring works');
    my $slow =
        TestClient->new($port, receive_buffer => 65_536)->send("GET /cancel HTTP/1.1\r\nHost: h\r\n\r\n");
    ok($server->wait_for_log(qr/pending: [1-9]/),          '$send is pending while the client takes nothing');
    ok($slow->response->{body} eq ('x' x 9_000_000) . 'y', '... cancelling that harms nothing');
    is(length get($port, '/nested')->{body}, 5_000_003, 'blocking in a nested loop works');
};

subtest 'backpressure' => sub {
    my $client =
        TestClient->new($port, receive_buffer => 65_536)->send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    select undef, undef, undef, 0.3;
    is(get($port, '/chain')->{body},
        'chained', 'while a slow client holds one application up, others are served');
    is(length $client->response->{body}, 5_000_003, '... and the slow one gets everything');
};

is($server->stop, 0, 'the server ends well');
unlike(
    $server->log =~ s/application ended with its response incomplete.*//r,
    qr/application (?:died|ended)|lost|callback/,
    'nothing else died'
) or diag $server->log;

async sub large_flush {
    my ($scope, $send)     = @_;
    my ($path, $transport) = @{$scope}{qw(path pagi.transport)};
    my $sent    = body($send, 'x' x 9_000_000, 1);
    my $flushed = $send->({ type => 'http.fullflush' });
    print STDERR "$path: a flush that waits, ready=", ($flushed->is_ready ? 1 : 0), ' some=',
        ($transport->buffered_amount ? 1 : 0), "\n";
    await $flushed;
    print STDERR "$path: flushed, queued=", $transport->buffered_amount, "\n";
    return await body($send, 'end');
}

my $flush = TestServer->start(
    extensions => { fullflush => {} },
    app        => async sub {
        my ($scope, $receive, $send) = @_;
        die "no\n" if $scope->{type} ne 'http';
        await start($send);
        return await large_flush($scope, $send) if $scope->{path} ne '/';
        await body($send, 'x', 1);
        await $send->({ type => 'http.fullflush' });
        await body($send, 'y');
    },
);
is(get($flush->port, '/')->{body}, 'xy', 'fullflush works where it is advertised');

subtest 'interim responses' => sub {
    my $server = TestServer->start(
        extensions => { informational => {} },
        app        => async sub {
            my ($scope, $receive, $send) = @_;
            die "no\n" if $scope->{type} ne 'http';
            my %hint = (type => 'http.response.informational', headers => [ [ Link => '</a.css>' ] ]);
            my @said;
            for my $wrong ({ status => 101 }, { status => 200 }, { headers => [ [ "a\n", 'b' ] ] }) {
                eval { await $send->({ %hint, %$wrong }); 1 } or push @said, $@ =~ s/ at .*//sr;
            }
            await $send->(\%hint);
            await $send->({ %hint, status => 102 });
            await start($send);
            eval { await $send->(\%hint); 1 } or push @said, $@ =~ s/ at .*//sr;
            await body($send, join "\n", $scope->{extensions}{informational} ? 'advertised' : (), @said);
        },
    );
    my $type = 'http.response.informational';
    my @said = (
        'advertised',
        "$type: status must be an integer from 102 to 199, not '101'",
        "$type: status must be an integer from 102 to 199, not '200'",
        qq{$type: headers[0] ("a\\n"): header name is not a token (RFC 9110 section 5.6.2)},
        "$type: the response has already started",
    );
    my $client = TestClient->new($server->port)->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    for my $status (103, 102) {
        like $client->response->{head}, qr{\AHTTP/1\.1 $status [\w ]+\r\nlink: </a\.css>\r\n\r\n\z},
            "interim $status";
    }
    is_deeply [ split /\n/, $client->response->{body} ], \@said, 'then the response';
    my $old = TestClient->new($server->port)->send("GET / HTTP/1.0\r\n\r\n")->response;
    is $old->{status}, 200, 'none for HTTP/1.0';
};

subtest 'functions have a glob, as profilers expect' => sub {
    require B;
    my $server = TestServer->start(
        app => async sub {
            my ($scope, $receive, $send) = @_;
            die "no lifespan\n" if $scope->{type} ne 'http';
            await start($send);
            await body($send, join ' ', map { ref B::svref_2object($_)->GV } $receive, $send);
        },
    );
    my $client = TestClient->new($server->port)->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    is $client->response->{body}, 'B::GV B::GV', '$receive and $send';
};

subtest 'fullflush waits for the kernel' => sub {
    my $client =
        TestClient->new($flush->port, receive_buffer => 65_536)
        ->send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    ok($flush->wait_for_log(qr/^\/large: a flush that waits, ready=0 some=1$/m),
        'with megabytes queued it is pending');
    is(length $client->response->{body}, 9_000_003, 'the client takes it all');
    ok($flush->wait_for_log(qr/^\/large: flushed, queued=0$/m), '... and then nothing is queued');
    $client = TestClient->new($flush->port, receive_buffer => 65_536)
        ->send("GET /gone HTTP/1.1\r\nHost: h\r\n\r\n");
    $flush->wait_for_log(qr/^\/gone: a flush that waits/m);
    $client->reset;
    ok($flush->wait_for_log(qr/^\/gone: flushed, queued=0$/m), 'the Future resolves when the client is gone');
};

done_testing;
