# Event streams: which requests get the scope, what is on the wire, and every mistake fails its
# $send with a message.
use strict;
use warnings;
use utf8;

use lib 't/lib';
use Encode     qw(decode);
use File::Temp ();
use Future::AsyncAwait;
use IO::Async::Loop;
use Test::More;
use TestClient qw(get exchange);
use TestGate;
use TestServer;
use TestStream;

binmode Test::More->builder->$_, ':encoding(UTF-8)' for qw(output failure_output);

sub start   { return $_[0]->({ type => 'sse.start',   @_[ 1 .. $#_ ] }) }
sub message { return $_[0]->({ type => 'sse.send',    @_[ 1 .. $#_ ] }) }
sub comment { return $_[0]->({ type => 'sse.comment', comment => $_[1] }) }

# Events, the fields that a client reads of them, and the bytes if they matter.
my @messages = (
    [ { data => 'plain' },              { data => 'plain' }, "data: plain\n\n" ],
    [ { data => '' },                   { data => '' },      "data: \n\n" ],
    [ { data => ' space' },             { data => ' space' } ],
    [ { data => "a\nb" },               { data => "a\nb" },    "data: a\ndata: b\n\n" ],
    [ { data => "a\r\nb\rc" },          { data => "a\nb\nc" }, "data: a\ndata: b\ndata: c\n\n" ],
    [ { data => "\n\na\n" },            { data => "\n\na\n" }, "data: \ndata: \ndata: a\ndata: \n\n" ],
    [ { data => "\r" },                 { data => "\n" },      "data: \ndata: \n\n" ],
    [ { data => "x\n\nevent: forged" }, { data => "x\n\nevent: forged" } ],
    [ { data => 'é' },                  { data => 'é' }, "data: \xc3\xa9\n\n" ],
    [ { data => '€ 𝄞' },                { data => '€ 𝄞' } ],
    [ { data => 5 },                    { data => '5' } ],
    [
        { data => 'all', event => 'tick', id => '1-é', retry => 0 },
        { data => 'all', event => 'tick', id => '1-é', retry => '0' },
        "event: tick\nid: 1-\xc3\xa9\nretry: 0\ndata: all\n\n"
    ],
    [
        { data => 'x', id => '', event => undef, retry => '2500' }, { data => 'x', id => '', retry => '2500' }
    ],
    [ { data => 'x', other => 'field' }, { data => 'x' } ],
);

my @comments = (
    [ 'ping'                => ":ping\n\n" ],
    [ ':ping'               => ":ping\n\n" ],
    [ ''                    => ":\n\n" ],
    [ "a\nb\r\n:c\rdata: d" => ":a\n:b\n:c\n:data: d\n\n" ],
    [ 'é'                   => ":\xc3\xa9\n\n" ],
);

my $latin = "caf\xe9";
my $gate  = TestGate->new;
utf8::downgrade($latin);

# Events that must fail: before the stream starts, on it, or after it was closed.
my %mistakes = (
    'send before the start' => [
        early => { type => 'sse.send', data => 'x' },
        qr/sse\.send: the stream has not been started with sse\.start/
    ],
    'comment before the start' => [
        early => { type => 'sse.comment', comment => 'x' },
        qr/sse\.comment: the stream has not been started/
    ],
    'a wrong keepalive before the start' => [
        early => { type => 'sse.keepalive', interval => 'x' },
        qr/sse\.keepalive: interval must be a number/
    ],
    'close before the start' =>
        [ early => { type => 'sse.close' }, qr/sse\.close: the stream has not been started/ ],
    'http.response.start' => [
        early => { type => 'http.response.start', status => 200 },
        qr/unknown event type 'http\.response\.start' in a scope of type sse/
    ],
    'no fullflush' =>
        [ early => { type => 'http.fullflush' }, qr/does not advertise the extension fullflush/ ],
    'status a word' => [
        early => { type => 'sse.start', status => 'fine' },
        qr/sse\.start: status must be an integer.*'fine'/
    ],
    'status 99' => [
        early => { type => 'sse.start', status => 99 },
        qr/sse\.start: status must be an integer from 200 to 599, not '99'/
    ],
    'headers a hash' =>
        [ early => { type => 'sse.start', headers => {} }, qr/sse\.start: headers must be an array/ ],
    'CR LF in a header' => [
        early => { type => 'sse.start', headers => [ [ 'x-a', "a\r\nb" ] ] },
        qr/sse\.start: headers\[0\] \(.*x-a/
    ],
    'a length' => [
        early => { type => 'sse.start', headers => [ [ 'Content-Length', 5 ] ] },
        qr/headers must not have content-length/
    ],
    'body of a response first' => [
        early => { type => 'sse.http.response.body' },
        qr/sse\.http\.response\.body: the response has not been started with sse\.http\.response\.start/
    ],
    'response without a status' =>
        [ early => { type => 'sse.http.response.start' }, qr/sse\.http\.response\.start: status is missing/ ],
    'a second start' =>
        [ late => { type => 'sse.start' }, qr/sse\.start: the stream has already been started/ ],
    'a response to a stream' => [
        late => { type => 'sse.http.response.start', status => 404 },
        qr/sse\.http\.response\.start: the stream has been started with sse\.start/
    ],
    'a body to a stream' => [
        late => { type => 'sse.http.response.body' },
        qr/sse\.http\.response\.body: the stream has been started/
    ],
    'no data'     => [ late => { type => 'sse.send' },                qr/sse\.send: data is missing/ ],
    'data undef'  => [ late => { type => 'sse.send', data => undef }, qr/sse\.send: data is missing/ ],
    'data a list' =>
        [ late => { type => 'sse.send', data => ['x'] }, qr/sse\.send: data is a reference, not a string/ ],
    'data a surrogate' => [
        late => { type => 'sse.send', data => "\x{d800}" },
        qr/sse\.send: data has a surrogate or another code point that UTF-8 cannot carry/
    ],
    'data beyond Unicode' => [
        late => { type => 'sse.send', data => "\x{110000}" },
        qr/sse\.send: data has a surrogate or another code point that UTF-8 cannot carry/
    ],
    'event with LF' => [
        late => { type => 'sse.send', data => 'x', event => "a\ndata: b" },
        qr/sse\.send: event must not have a line end/
    ],
    'event with CR' => [
        late => { type => 'sse.send', data => 'x', event => "a\rb" },
        qr/sse\.send: event must not have a line end/
    ],
    'id with LF' => [
        late => { type => 'sse.send', data => 'x', id => "1\n" },
        qr/sse\.send: id must not have a line end/
    ],
    'id with CR' => [
        late => { type => 'sse.send', data => 'x', id => "\r1" },
        qr/sse\.send: id must not have a line end/
    ],
    'id with NUL' => [
        late => { type => 'sse.send', data => 'x', id => "1\0" },
        qr/sse\.send: id must not have a line end or a NUL/
    ],
    'id a reference' =>
        [ late => { type => 'sse.send', data => 'x', id => {} }, qr/sse\.send: id is a reference/ ],
    'retry negative' => [
        late => { type => 'sse.send', data => 'x', retry => -1 },
        qr/sse\.send: retry must be an integer from 0 .*'-1'/
    ],
    'retry a float' => [
        late => { type => 'sse.send', data => 'x', retry => 1.5 },
        qr/sse\.send: retry must be an integer/
    ],
    'retry a word' => [
        late => { type => 'sse.send', data => 'x', retry => 'soon' },
        qr/sse\.send: retry must be an integer/
    ],
    'no comment'          => [ late => { type => 'sse.comment' }, qr/sse\.comment: comment is missing/ ],
    'comment a reference' =>
        [ late => { type => 'sse.comment', comment => \'x' }, qr/sse\.comment: comment is a reference/ ],
    'no interval'       => [ late => { type => 'sse.keepalive' }, qr/sse\.keepalive: interval is missing/ ],
    'interval negative' => [
        late => { type => 'sse.keepalive', interval => -1 },
        qr/sse\.keepalive: interval must be a number from 0 .*'-1'/
    ],
    'interval not a number' => [
        late => { type => 'sse.keepalive', interval => 'nan' },
        qr/sse\.keepalive: interval must be a number/
    ],
    'interval a word' => [
        late => { type => 'sse.keepalive', interval => 'x' },
        qr/sse\.keepalive: interval must be a number/
    ],
    'interval too long' => [
        late => { type => 'sse.keepalive', interval => 1e9 },
        qr/sse\.keepalive: interval must be a number/
    ],
    'reason a reference' =>
        [ late => { type => 'sse.close', reason => [] }, qr/sse\.close: reason is a reference/ ],
    'send after the close' =>
        [ closed => { type => 'sse.send', data => 'x' }, qr/sse\.send: the stream is closed/ ],
    'comment after the close' =>
        [ closed => { type => 'sse.comment', comment => 'x' }, qr/sse\.comment: the stream is closed/ ],
    'keepalive after the close' =>
        [ closed => { type => 'sse.keepalive', interval => 1 }, qr/sse\.keepalive: the stream is closed/ ],
    'start after the close' =>
        [ closed => { type => 'sse.start' }, qr/sse\.start: the stream has already been started/ ],
    'stream after a response' => [
        declined => { type => 'sse.start' },
        qr/sse\.start: the request was answered with sse\.http\.response\.start/
    ],
    'send after a response' =>
        [ declined => { type => 'sse.send', data => 'x' }, qr/sse\.send: there is no stream/ ],
    'comment after a response' =>
        [ declined => { type => 'sse.comment', comment => 'x' }, qr/sse\.comment: there is no stream/ ],
    'keepalive after a response' =>
        [ declined => { type => 'sse.keepalive', interval => 1 }, qr/sse\.keepalive: there is no stream/ ],
    'close after a response' => [ declined => { type => 'sse.close' }, qr/sse\.close: there is no stream/ ],
);

async sub decline {
    my ($send, $status, $body, @headers) = @_;
    await $send->({ type => 'sse.http.response.start', status => $status, headers => \@headers });
    await $send->({ type => 'sse.http.response.body', body => $body });
}

my %handlers = (
    '/scope' => async sub {
        my ($scope, $receive, $send) = @_;
        await start($send);
        await message(
            $send,
            data => join ' ',
            map { "$_=" . ($scope->{$_} // '') } qw(type method scheme http_version path query_string)
        );
        await message($send, data => join ' ', sort keys %$scope);
        my $event = await $receive->();
        await message(
            $send,
            data  => "$event->{type} more=$event->{more}",
            event => 'body',
            id    => $event->{body}
        );
    },
    '/messages' => async sub {
        my ($scope, $receive, $send) = @_;
        await start($send);
        for my $case (@messages) { await message($send, %{ $case->[0] }) }
        await message($send, data => $latin);
    },
    '/comments' => async sub {
        my ($scope, $receive, $send) = @_;
        await start($send);
        for my $case (@comments) { await comment($send, $case->[0]) }
    },
    '/headers' => async sub {
        my ($scope, $receive, $send) = @_;
        await start(
            $send,
            status  => 203,
            headers => [
                [ 'Content-Type',  'text/event-stream; charset=utf-8' ],
                [ 'cache-control', 'private' ],
                [ 'x-own',         1 ],
                [ 'connection',    'close' ],
                [ 'date',          'today' ],
                map { [ "x-$_" => $_ ] } 1 .. 40
            ]
        );
        await message($send, data => 'x');
    },
    '/echo' => async sub {
        my ($scope, $receive, $send) = @_;
        await start($send);
        while (1) {
            my $event = await $receive->();
            await message($send, data => length $event->{body}, event => $event->{type})
                if length $event->{body};
            last if !$event->{more};
        }
    },
    '/keepalive' => async sub {
        my ($scope, $receive, $send) = @_;
        my $loop = IO::Async::Loop->new;
        await start($send);
        await $send->({ type => 'sse.keepalive', interval => 0.1, comment => 'first' });
        await $send->({ type => 'sse.keepalive', interval => 0.1, comment => "alive\nstill" });
        await $loop->delay_future(after => 0.6);
        await message($send, data => 'between');
        await $send->({ type => 'sse.keepalive', interval => 0.1 });
        await $loop->delay_future(after => 0.6);
        await $send->({ type => 'sse.keepalive', interval => 0 });
        await $loop->delay_future(after => 0.5);
        await message($send, data => 'end');
    },
    '/keepalive-first' => async sub {
        my ($scope, $receive, $send) = @_;
        my @settings = split /,/, $scope->{query_string};
        for my $setting (@settings) {
            await $send->({ type => 'sse.keepalive', interval => $setting, comment => "every $setting" });
        }
        return await decline($send, 404, 'nothing here') if $settings[0] == 60;
        await start($send);
        await message($send, data => 'first');
        1 while (await $receive->())->{type} ne 'sse.disconnect';
    },
    '/close' => async sub {
        my ($scope, $receive, $send) = @_;
        await start($send);
        await message($send, data => 'last');
        await $send->({ type => 'sse.close', reason => 'job complete' });
        my $second = $send->({ type => 'sse.close', reason => 'again' });
        print STDERR 'second close: ', $second->state, "\n";
        my $event = await $receive->();
        print STDERR "after the close: $event->{type} $event->{reason}\n";
        await $gate->passed('closed');
        print STDERR "cleaned up\n";
    },
    '/mistake' => async sub {
        my ($scope, $receive, $send) = @_;
        my ($when, $event) = @{ $mistakes{ $scope->{query_string} =~ s/%20/ /gr } };
        await decline($send, 200, '')          if $when eq 'declined';
        await start($send)                     if $when eq 'late' || $when eq 'closed';
        await $send->({ type => 'sse.close' }) if $when eq 'closed';
        my $failure = $send->($event)->failure // 'no failure';
        print STDERR "mistake $scope->{query_string}: $failure\n";
        await start($send)                     if $when eq 'early';
        await message($send, data => $failure) if $when eq 'early' || $when eq 'late';
    },
    '/decline' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({
            type    => 'sse.http.response.start',
            status  => $scope->{query_string},
            headers => [ [ 'x-why', 'because' ] ]
        });
        await $send->({ type => 'sse.http.response.body', body => 'not ', more => 1 });
        await $send->({ type => 'sse.http.response.body', body => 'here' });
        my $last = $receive->();
        print STDERR 'receive after the response: ', $last->state, "\n";
    },
    '/decline-and-receive' => async sub {
        my ($scope, $receive, $send) = @_;
        await decline($send, 404, 'no');
        await IO::Async::Loop->new->delay_future(after => 0.05) if $scope->{query_string} eq 'late';
        print STDERR "declined, receives $scope->{query_string}\n";
        await $receive->();
        await $receive->();
        print STDERR "received after the response\n";
    },
    '/decline-with-file' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ type => 'sse.http.response.start', status => 404 });
        my $failure = $send->({ type => 'sse.http.response.body', file => '/no/such/file' })->failure
            // 'none';
        print STDERR "declined with no file: $failure";
        return await $send->({ type => 'sse.http.response.body', file => $0, length => 10 })
            if $scope->{query_string};
        open my $fh, '<', $0 or die "$0: $!";
        await $send->({ type => 'sse.http.response.body', fh => $fh, offset => 2, length => 8 });
    },
    '/type' => async sub {
        my ($scope, $receive, $send) = @_;
        my $prefix = $scope->{type} eq 'sse' ? 'sse.http' : 'http';
        await $send->({ type => "$prefix.response.start", status => 200 });
        await $send->({ type => "$prefix.response.body",  body   => $scope->{type} });
    },
    '/flush' => async sub {
        my ($scope, $receive, $send) = @_;
        await start($send);
        await message($send, data => 'flushed');
        await $send->({ type => 'http.fullflush' });
        select undef, undef, undef, 0.02 while !-e $scope->{query_string};    # blocks the whole process
        await message($send, data => 'after');
    },
);

my $server =
    TestServer->start(app => sub { $_[0]{type} ne 'lifespan' ? $handlers{ $_[0]{path} }->(@_) : die "no\n" });
my $port = $server->port;

subtest 'which requests are asked for a stream' => sub {
    my $type = sub {
        exchange($port, join "\r\n", "$_[0] /type HTTP/1.1", 'Host: h', @_[ 1 .. $#_ ], '', '')->{body};
    };
    is($type->('GET', 'Accept: text/event-stream'),            'sse', 'one that accepts text/event-stream');
    is($type->('GET', 'accept: TEXT/Event-Stream;q=0.5, */*'), 'sse', '... in any case, with a weight');
    is($type->('GET', 'Accept: */*', 'Accept: text/event-stream'),    'sse', '... in a second field');
    is($type->($_, 'Accept: text/event-stream', 'Content-Length: 0'), 'sse', "... with method $_")
        for qw(POST PUT PATCH DELETE OPTIONS QUERY);
    is($type->('GET'), 'http', 'not one without Accept');
    is($type->('GET', 'Accept: */*'),                   'http', '... or with */*');
    is($type->('GET', 'Accept: text/*'),                'http', '... or with text/*');
    is($type->('GET', 'Accept: text/event-stream;q=0'), 'http', '... or with weight zero');
    my $head =
        exchange($port, "HEAD /type HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n", head => 1);
    is($head->{status},             200,   'HEAD has no stream: the application of scope http answers');
    is($head->{header}{connection}, undef, '... and the connection goes on');
};

subtest 'the scope' => sub {
    my $stream = TestStream->open($port, '/scope?a=b');
    is($stream->head->{status}, 200, 'the status is 200 unless it is said');
    is(
        $stream->message->{data},
        'type=sse method=GET scheme=http http_version=1.1 path=/scope query_string=a=b',
        'its values'
    );
    is(
        $stream->message->{data},
        'client extensions headers http_version method pagi pagi.transport path query_string raw_path root_path scheme server type',
        'its keys'
    );
    is_deeply(
        $stream->message,
        { data => 'sse.request more=0', event => 'body', id => '' },
        'without a body there is one empty sse.request'
    );
    is($stream->ending, 'terminated', 'when the application returns, the stream ends');
    $stream = TestStream->open($port, '/scope', body => 'ask');
    like($stream->message->{data}, qr/method=POST/, 'a POST');
    $stream->message;
    is_deeply(
        $stream->message,
        { data => 'sse.request more=0', event => 'body', id => 'ask' },
        '... has its body in sse.request'
    );
    $stream = TestStream->open($port, '/echo', body => 'x' x 300_000, timeout => 5);
    my $sum = 0;
    while (my $message = $stream->message) { $sum += $message->{data} }
    is($sum, 300_000, 'a large body comes in pieces while the stream is on');
};

subtest 'the head' => sub {
    my $stream = TestStream->open($port, '/messages');
    my %header = %{ $stream->head->{header} };
    like(delete $header{date}, qr/GMT\z/, 'Date is there');
    is_deeply(
        \%header,
        {
            'content-type'      => 'text/event-stream',
            'cache-control'     => 'no-cache',
            connection          => 'keep-alive',
            'transfer-encoding' => 'chunked'
        },
        'the server supplies what is missing'
    );
    $stream = TestStream->open($port, '/headers');
    is($stream->head->{status}, 203, 'a status');
    %header = %{ $stream->head->{header} };
    is(
        $header{'content-type'},
        'text/event-stream; charset=utf-8',
        'and fields of the application are kept, alone'
    );
    is($header{'cache-control'}, 'private',    '... every one');
    is($header{date},            'today',      '... of them');
    is($header{connection},      'keep-alive', '... but not how the connection is managed');
    is($header{'x-40'},          '40',         '... however many they are');
    $stream = TestStream->open($port, '/messages', version => '1.0');
    is($stream->head->{header}{'transfer-encoding'}, undef, 'HTTP/1.0: no chunks');
    is($stream->head->{header}{connection}, 'close',
        '... the end of the connection is the end of the stream');
    is($stream->message->{data}, 'plain', '... and the messages are there');
};

subtest 'messages' => sub {
    my $stream = TestStream->open($port, '/messages');
    for my $case (@messages) {
        my ($sent, $expected, $bytes) = @$case;
        my $block = $stream->block;
        is($block, $bytes, 'the bytes') if defined $bytes;
        $stream->{text} = $block . $stream->{text};
        my %message = map { decode('UTF-8', $_) } %{ $stream->message };
        is_deeply(
            \%message, $expected,
            'a client reads ' . join ', ',
            map { "$_ '" . ($expected->{$_} =~ s/\n/\\n/gr) . q{'} } sort keys %$expected
        );
    }
    is($stream->message->{data}, "caf\xc3\xa9", 'characters below 256 are encoded, however Perl keeps them');
    is($stream->message,         undef,         'nothing more comes');
    is($stream->ending,          'terminated',  'the stream ends');
    $stream = TestStream->open($port, '/comments');
    is($stream->block, $_->[1], 'comment ' . ($_->[0] =~ s/[\r\n]/_/gr)) for @comments;
};

subtest 'keepalive' => sub {
    my $stream = TestStream->open($port, '/keepalive');
    my @seen;
    while (my $message = $stream->message) {
        push @seen, $message->{data} // join '|', @{ $message->{comments} };
    }
    my $seen = join ' ', @seen;
    like(
        $seen,
        qr/\A(?:alive\|still ){2,}between (?: ){2,}end\z/,
        'comments at an interval, the last setting counts, 0 stops them'
    ) or diag $seen;
};

# As PAGI::Endpoint::SSE does.
subtest 'keepalive before the start' => sub {
    my $stream = TestStream->open($port, '/keepalive-first?0.02,0.05');
    is($stream->block, $_, 'a stream with comments') for "data: first\n\n", (":every 0.05\n\n") x 3;
    $stream->close;
    $stream = TestStream->open($port, '/keepalive-first?0.02,0', timeout => 0.3);
    is($stream->block, "data: first\n\n", 'a stream whose comments were stopped before they began');
    is($stream->block, undef,             '... has none');
    $stream->close;
    my $response = TestStream->open($port, '/keepalive-first?60')->response;
    is(
        "$response->{status} $response->{body}",
        '404 nothing here',
        'a response in place of the stream is as always'
    );
};

subtest 'close' => sub {
    my $stream = TestStream->open($port, '/close');
    is($stream->message->{data}, 'last',       'events that were sent before are there');
    is($stream->ending,          'terminated', 'the stream ends at once');
    unlike($server->log, qr/^cleaned up$/m, '... while the application goes on');
    $gate->open('closed');
    ok($server->wait_for_log(qr/^cleaned up$/m), '... to its own end');
    like($server->log, qr/^second close: done$/m, 'a second close is ignored');
    like(
        $server->log,
        qr/^after the close: sse\.disconnect job complete$/m,
        '$receive tells that the stream is over, and why'
    );
};

subtest 'mistakes' => sub {
    for my $name (sort keys %mistakes) {
        my ($when, undef, $expected) = @{ $mistakes{$name} };
        my $query  = $name =~ s/ /%20/gr;
        my $stream = TestStream->open($port, "/mistake?$query");
        ok($server->wait_for_log(qr/^mistake \Q$query\E: (.*)\n/m), "$name fails");
        my ($text) = $server->log =~ /^mistake \Q$query\E: (.*)$/m;
        like($text,                    $expected,                        '... with a message');
        like($text,                    qr/ at \S+70-sse\.t line \d+\.$/, '... and the place');
        like($stream->message->{data}, $expected,                        '... and the stream goes on')
            if $when eq 'early' || $when eq 'late';
        is($stream->ending, $when eq 'declined' ? 'cut' : 'terminated', '... to its end')
            if $when ne 'declined';
    }
};

subtest 'a response instead' => sub {
    for my $status (404, 401, 204, 302, 200) {
        my $client = TestClient->new($port)
            ->send("GET /decline?$status HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n");
        my $response = $client->response;
        is($response->{status},             $status,                          "status $status");
        is($response->{header}{'x-why'},    'because',                        '... with its fields');
        is($response->{header}{connection}, 'close',                          '... closes');
        is($response->{body},               $status == 204 ? '' : 'not here', '... with its body');
        is($client->rest,                   '', '... and the connection with it');
    }
    ok(
        $server->wait_for_log(qr/^receive after the response: cancelled$/m),
        'no sse.disconnect follows: what waits for it is cancelled'
    );
    unlike($server->log, qr/^receive after the response: done/m, '... always');
    for my $query ('', 'path') {
        my $client = TestClient->new($port)
            ->send("GET /decline-with-file?$query HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n");
        is($client->response->{body}, $query ? '# Event st' : 'Event st', 'the body may be a file');
    }
    ok(
        $server->wait_for_log(
            qr{^declined with no file: sse\.http\.response\.body: file '/no/such/file' cannot be opened}m),
        '... that can be opened'
    );
    for my $when (qw(early late)) {
        my $client = TestClient->new($port)
            ->send("GET /decline-and-receive?$when HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n");
        is($client->response->{body},
            'no', "an application that waits for the next event, $when, has answered");
        ok($server->wait_for_log(qr/^declined, receives $when$/m), '... and waits');
    }
};

is($server->stop, 0, 'the server ends well');
unlike($server->log, qr/application (?:died|ended)|callback/, 'nothing died') or diag $server->log;

subtest 'fullflush' => sub {
    my $signals  = File::Temp->newdir;
    my $flag     = "$signals/go";
    my $flushing = TestServer->start(
        extensions => { fullflush => {} },
        app        => sub { $handlers{'/flush'}->(@_) if $_[0]{type} ne 'lifespan' }
    );
    my $stream = TestStream->open($flushing->port, "/flush?$flag");
    is($stream->message->{data}, 'flushed', 'a message arrives while the application blocks the process');
    open my $touch, '>', $flag or die "$flag: $!";
    is($stream->message->{data}, 'after', '... which goes on when the client has it');
    is($flushing->stop,          0,       'the server ends well');
};

done_testing;
