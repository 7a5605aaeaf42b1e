# The head of a response waits for the first piece of its body, so that a body of one piece has a
# Content-Length; it never waits for longer than the application's turn.
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
print {$file} 'from a file';
$file->close;
my $path = $file->filename;

my $start = { type => 'http.response.start', status => 200, headers => [] };

sub piece {
    my ($body, $more) = @_;
    return { type => 'http.response.body', body => $body, more => $more ? 1 : 0 };
}

my %handlers = (
    '/one'     => async sub { await $_[2]->($start); await $_[2]->(piece('one piece')) },
    '/empty'   => async sub { await $_[2]->($start); await $_[2]->(piece('')) },
    '/large'   => async sub { await $_[2]->($start); await $_[2]->(piece('x' x 300_000)) },
    '/nothing' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->($start);
        await $send->(piece('', 1));
        await $send->(piece('after nothing'));
    },
    '/pieces' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->($start);
        await $send->(piece('two ', 1));
        await $send->(piece('pieces'));
    },
    '/file' => async
        sub { await $_[2]->($start); await $_[2]->({ type => 'http.response.body', file => $path }) },
    '/flush' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->($start);
        await $send->({ type => 'http.fullflush' });
        await $send->(piece('flushed'));
    },
    '/status' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ %$start, status => $scope->{query_string} });
        await $send->(piece('no content'));
    },
    '/trailers' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->({ %$start, trailers => 1 });
        await $send->(piece('with trailers'));
        await $send->({ type => 'http.response.trailers', headers => [ [ 'x-sum', '1' ] ] });
    },
    # Answers when another request says so.
    '/wait' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->($start);
        await go('');
        await $send->(piece('at last'));
    },
    '/missing' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->($start);
        eval { await $send->({ type => 'http.response.body', file => "$path/none" }); 1 } and return;
        await go('missing');
        await $send->(piece('failed'));
    },
    '/go' => async sub { go($_[0]{query_string})->done; await $_[2]->($start); await $_[2]->(piece('gone')) },
    '/dies' => async sub { await $_[2]->($start); die "before its body\n" },
    '/late' => async sub {
        my ($scope, $receive, $send) = @_;
        await $send->($start);
        my $failure = $send->($start)->failure // 'none';
        await $send->(piece($failure));
    },
);

{
    my %go;

    sub go {
        my ($name) = @_;
        return $go{$name} //= IO::Async::Loop->new->new_future;
    }
}

my $server = TestServer->start(
    extensions => { fullflush => {} },
    app        => sub { $_[0]{type} eq 'http' ? $handlers{ $_[0]{path} }->(@_) : die "no\n" }
);
my $port = $server->port;

sub read_to {
    my ($client, $end) = @_;
    my $text = '';
    while ($text !~ $end) {
        my $more = $client->some(10);
        last if !length($more // '');
        $text .= $more;
    }
    return $text;
}

sub framing_is {
    my ($target, $body, $length, $coding, $name) = @_;
    my $answer = get($port, $target);
    is($answer->{body}, $body, $name);
    is_deeply(
        [ @{ $answer->{header} }{qw(content-length transfer-encoding)} ],
        [ $length, $coding ],
        defined $length ? '... has a Content-Length' : '... is framed as it must be'
    );
    return;
}

framing_is('/one',        'one piece',     9,       undef,     'a body of one piece');
framing_is('/empty',      '',              0,       undef,     'an empty body');
framing_is('/large',      'x' x 300_000,   300_000, undef,     'a large body');
framing_is('/nothing',    'after nothing', 13,      undef,     'a body of one piece after one without bytes');
framing_is('/file',       'from a file',   11,      undef,     'a file');
framing_is('/pieces',     'two pieces',    undef,   'chunked', 'a body of two pieces');
framing_is('/flush',      'flushed',       undef,   'chunked', 'a head that was flushed');
framing_is('/trailers',   'with trailers', undef,   'chunked', 'a body with trailers');
framing_is('/status?204', '',              undef,   undef,     'no content');
like(get($port, '/late')->{body}, qr/already started/, 'the response has started, although nothing was sent');

my $old = TestClient->new($port)->send("GET /one HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" x 2);
is($old->response->{body}, 'one piece', 'HTTP/1.0 has the length, too') for 1, 2;

my $head = exchange($port, "HEAD /one HTTP/1.1\r\nHost: h\r\n\r\n", head => 1);
is($head->{header}{'transfer-encoding'}, undef, 'an answer to HEAD has no framing');

subtest 'a head never waits for what the application waits for' => sub {
    my $client = TestClient->new($port)->send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    like(
        read_to($client, qr/\r\n\r\n/),
        qr/^transfer-encoding: chunked\r$/mi,
        'the head comes before the body'
    );
    is(get($port, '/go')->{body}, 'gone', 'another request');
    like(read_to($client, qr/0\r\n\r\n\z/), qr/at last/, 'the body follows');
};

subtest 'nor for a file that could not be opened' => sub {
    my $client = TestClient->new($port)->send("GET /missing HTTP/1.1\r\nHost: h\r\n\r\n");
    like(
        read_to($client, qr/\r\n\r\n/),
        qr/^transfer-encoding: chunked\r$/mi,
        'the head comes before the body'
    );
    is(get($port, '/go?missing')->{body}, 'gone', 'another request');
    like(read_to($client, qr/0\r\n\r\n\z/), qr/failed/, 'the body follows');
};

subtest 'an application that dies between head and body' => sub {
    my $client = TestClient->new($port)->send("GET /dies HTTP/1.1\r\nHost: h\r\n\r\n");
    my $cut    = read_to($client, qr/\r\n\r\n/);
    like($cut, qr/\r\n\r\n\z/, 'the head is whole');
    is($client->some(10), '', '... and the body is cut');
    ok($server->wait_for_log(qr/before its body/), 'the log says why');
};

is($server->stop, 0, 'the server ends well');
done_testing;
