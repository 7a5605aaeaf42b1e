# The server answers for an application that ends without a response: in development with a page of the
# exception and its stack trace, otherwise with three words.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Test::More;
use TestClient;
use TestServer;
use TestWebSocket;

my $code = <<'PERL';
use strict; use warnings;
use Future; use Future::AsyncAwait; use IO::Async::Loop;

package Teller { use overload '""' => sub { my $event = shift->{event}; $event->(); "told" }, fallback => 1 }

sub secret_function { my ($text) = @_; die $text }

async sub later {
    my ($text) = @_;
    await IO::Async::Loop->new->delay_future(after => 0.01);
    secret_function($text);
}

async sub secret_event { my ($send) = @_; await $send->({ type => 'http.response.start', status => 'x' }) }

my %handlers = (
    '/dies'    => async sub { secret_function($_[0]{query_string} =~ s/%(..)/chr hex $1/ger) },
    '/later'   => async sub { await later("after a while\n") },
    '/twice'   => async sub { eval { await later("at first\n"); 1 } or die $@ },
    '/huge'    => async sub { die '<' x 1_000_000 },
    '/bytes'   => async sub { die "\xc3\xa9 \x00\x1b[2J\xff\n" },
    '/wide'    => async sub { die "\x{263a} \x{202e}\n" },
    '/hash'    => async sub { die { code => 418, of => [] } },
    '/object'  => async sub { die bless { code => 418 }, 'My::Error' },
    '/event'   => async sub { await secret_event($_[2]) },
    '/fails'   => sub { return Future->fail('failed in no sub') },
    '/nothing' => async sub { return },
    '/no-future' => sub { return 42 },
    '/half'    => async sub {
        await $_[2]->({ type => 'http.response.start', status => 200 });
        await $_[2]->({ type => 'http.response.body', body => 'half', more => 1 });
        secret_function("half\n");
    },
    # Exceptions that answer when they are asked what they are.
    '/starts'  => async sub {
        my $send = $_[2];
        my @headers = ([ 'content-length', 5 ]);
        my $start = sub { $send->({ type => 'http.response.start', status => 202, headers => \@headers }) };
        die bless { event => $start }, 'Teller';
    },
    '/answers' => async sub {
        my $send = $_[2];
        my $answer = sub {
            $send->({ type => 'http.response.start', status => 203, headers => [ [ 'content-length', 5 ] ] });
            $send->({ type => 'http.response.body',  body   => 'whole' });
        };
        die bless { event => $answer }, 'Teller';
    },
);
sub { return $handlers{ $_[0]{path} }->(@_) };
PERL
my $file = File::Temp->new(SUFFIX => '.pl');
print {$file} $code;
close $file;

my $server = TestServer->command(qw(-E development --lifespan off), "$file");

sub request {
    my ($target, %options) = @_;
    my $method = $options{method} || 'GET';
    my $accept = defined $options{accept} ? "Accept: $options{accept}\r\n" : '';
    my $client = TestClient->new(($options{server} || $server)->port);
    my $answer =
        $client->send("$method $target HTTP/1.1\r\nHost: h\r\n$accept\r\n")
        ->response(head => $method eq 'HEAD');
    return { %{ $answer || {} }, rest => $client->rest };
}

sub page { return request($_[0], accept => 'text/html,application/xhtml+xml;q=0.9,*/*;q=0.8') }

subtest 'a page for browsers' => sub {
    my $answer = page('/dies?a=%3Cscript%3Ealert(1)%3C/script%3E&b=%22%27');
    my $body   = $answer->{body};
    my %header = %{ $answer->{header} };
    is $answer->{status},        500,                        'the status';
    is $header{'content-type'},  'text/html; charset=utf-8', 'its type';
    is $header{'cache-control'}, 'no-store',                 '... it is kept nowhere';
    is $header{connection},      'close',                    '... and the connection closes';
    like $header{'content-security-policy'},
        qr/\Adefault-src 'none'; style-src 'sha256-[\w+\/]{43}='; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\z/,
        '... nothing may be run or fetched';
    is $header{'content-length'}, length $body, '... its length is said';
    like $body, qr/<h1>The application died before its response had started<\/h1>/, 'what happened';
    like $body,
        qr/<pre>a=&lt;script&gt;alert\(1\)&lt;\/script&gt;&amp;b=&quot;&#39; at \Q$file\E line 6\.<\/pre>/,
        'the exception, escaped';
    like $body, qr/GET \/dies\?a=%3Cscript/, 'the request';
    like $body,
        qr/<li><code>thrown at \Q$file\E line 6<\/code><\/li>\n<li><code>Peregrine::App::\w+::secret_function called at \Q$file\E line 17</,
        'who called whom';
    unlike $body, qr/<script|<img|<link|https?:|\bsrc=|\bhref=/, 'no script, nothing from elsewhere';
    is $answer->{rest}, '', 'nothing follows';

    like page('/later')->{body},
        qr/after a while.*secret_function called at \Q$file\E line 11<.*Peregrine::App::\w+::later called/s,
        'an async sub, after an await';
    like page('/twice')->{body}, qr/at first.*secret_function called at \Q$file\E line 11</s,
        'one that was thrown again';
    like page('/event')->{body},
        qr/status must be .*Future::\w+::result called at \Q$file\E line 14<.*Peregrine::App::\w+::secret_event called at \Q$file\E line 25</s,
        'an event that fails, awaited by two async subs';
    is length(page('/huge')->{body}) < 70_000, 1, 'a huge exception is cut';
    like page('/bytes')->{body}, qr/<pre>\xc3\x83\xc2\xa9 \\x\{00\}\\x\{1b\}\[2J\xc3\xbf/,
        'bytes that are no text';
    like page('/wide')->{body}, qr/<pre>\xe2\x98\xba \\x\{202e\}<\/pre>/,
        'characters; what turns text around is shown by its number';
    like page('/hash')->{body},
        qr/<pre>an exception that is a reference to a hash with code =&gt; &#39;418&#39;</, 'a hash';
    like page('/object')->{body},
        qr/<pre>an exception of class My::Error with code =&gt; &#39;418&#39;</,
        '... an object that has no text';
    like page('/fails')->{body},   qr/failed in no sub<\/pre>/, 'a Future that failed';
    unlike page('/fails')->{body}, qr/Stack trace/,             '... of which there is no trace';
    like page('/nothing')->{body}, qr/ended without a response<.*Was an `await` forgotten\?/s,
        'no response and no exception';
    like page('/no-future')->{body}, qr/did not return a Future/, 'no Future';
};

subtest 'for others' => sub {
    for my $accept (undef, '*/*', 'text/*', 'application/json', 'text/html;q=0', 'text/htmlx', '') {
        my $answer = request('/dies?x', accept => $accept);
        is $answer->{header}{'content-type'}, 'text/plain; charset=utf-8',
            'plain text: ' . ($accept // 'no Accept');
        like $answer->{body},
            qr/\AThe application died before its response had started\n\nx at \Q$file\E line 6/,
            '... with the exception';
        like $answer->{body}, qr/^    Peregrine::App::\w+::secret_function called at \Q$file\E line 17$/m,
            '... and the trace';
    }
    is request('/dies?x', accept => $_)->{header}{'content-type'}, 'text/html; charset=utf-8', "HTML: $_"
        for 'text/html', 'TEXT/HTML;level=1', 'application/json, text/html ; q=0.1';
    my $head = request('/dies?x', method => 'HEAD', accept => 'text/html');
    is $head->{status},                 500,                        'HEAD';
    is $head->{header}{'content-type'}, 'text/html; charset=utf-8', '... has the fields';
    is $head->{rest},                   '',                         '... and no content';
    my $stream = request('/dies?x', accept => 'text/event-stream');
    is $stream->{status}, 500, 'an event stream that was not started';
    like $stream->{body}, qr/^    Peregrine::App::\w+::secret_function called/m,
        '... has its trace in plain text';
    my $handshake = TestWebSocket->start($server->port, '/dies?x')->answer;
    is $handshake->{status}, 500, 'a WebSocket that was not accepted';
    like $handshake->{body},
        qr/died before its WebSocket was accepted\n\nx at .*^    Peregrine::App::\w+::secret_function called/ms,
        '... likewise';
};

subtest 'a response that has begun' => sub {
    my $half = TestClient->new($server->port)->send("GET /half HTTP/1.1\r\nHost: h\r\n\r\n")->rest;
    unlike $half, qr/secret_function/, 'a response that has begun has no page in it';
    my $starts = TestClient->new($server->port)->send("GET /starts HTTP/1.1\r\nHost: h\r\n\r\n")->rest;
    unlike $starts, qr/\r\n\r\n./s, 'an exception that begins a response when it is asked: that is cut';
    my $whole = TestClient->new($server->port)->send("GET /answers HTTP/1.1\r\nHost: h\r\n\r\n")->response;
    is "$whole->{status} $whole->{body}", '203 whole', '... one that gives a whole answer';
    is request('/dies?x')->{status},      500,         'and the server goes on';
};

subtest 'elsewhere' => sub {
    for my $mode (qw(production none staging)) {
        my $other = TestServer->command('-E', $mode, qw(--lifespan off), "$file");
        for my $target ('/dies?x', '/later', '/nothing') {
            my $client =
                TestClient->new($other->port)
                ->send("GET $target HTTP/1.1\r\nHost: h\r\nAccept: text/html\r\n\r\n");
            is $client->rest =~ s/^Date: [^\r]+/Date: now/mr,
                "HTTP/1.1 500 Internal Server Error\r\ncontent-type: text/plain; charset=utf-8\r\nDate: now\r\n"
                . "Content-Length: 22\r\nConnection: close\r\n\r\nInternal Server Error\n",
                "$mode: $target, to the byte";
        }
        is $other->stop, 0, '... and the server ends well';
    }
};

is $server->stop, 0, 'the server ends well';

done_testing;
