# The programs of the manuals, word for word: the applications of PAGI::Server::Tutorial in development and in
# production, each of which does what the manual says while the server has nothing to complain of; those of
# README.md and PAGI::Server; and PAGI::Tutorial from its beginning to its end.
use strict;
use warnings;

use lib 't/lib';
use Cwd        qw(getcwd);
use File::Spec ();
use Future;
use IO::Async::Loop;
use JSON::PP   qw(decode_json);
use OnlyInFull qw(crossed);
use Peregrine;
use Test::More;
use TestClient qw(get post);
use TestServer;
use TestStream;
use TestTools   qw(content wait_for);
use TestWorkers qw(children descriptors);
use TestWebSocket;
use Tutorial;
use Walkthrough;

my $home     = getcwd();
my $tutorial = Tutorial->new('lib/PAGI/Server/Tutorial.pod');
is(join(' ', $tutorial->names), 'hello.pl json.pl chat.pl ticker.pl download.pl', 'five applications');

my $content = join '', map { "line $_\n" } 1 .. 1000;
open my $out, '>', $tutorial->path('data.txt') or die $!;
print {$out} $content;
close $out or die $!;
symlink '/etc/passwd', $tutorial->path('out') or die $!;

my %uses = (
    'hello.pl' => sub {
        my ($port) = @_;
        my $response = get($port, '/caf%c3%a9/%e2%82%ac');
        is($response->{status}, 200,                                      'GET');
        is($response->{body},   "Hello from /caf\xc3\xa9/\xe2\x82\xac\n", '... says the path in UTF-8');
        my $head =
            TestClient->new($port)->send("HEAD / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")->rest;
        like(
            $head,
            qr/\AHTTP\/1\.1 200 .*^content-length: 13\r\n.*\r\n\r\n\z/ms,
            'HEAD has the same length and no body'
        );
        my $stream = TestStream->open($port, '/');
        is($stream->head->{status}, 500, 'a stream is refused');
    },
    'json.pl' => sub {
        my ($port) = @_;
        my $response = post($port, '/', '{"name":"Ada","born":1815}');
        is($response->{body},                      '{"hello":"Ada","keys":["born","name"]}', 'POST');
        is($response->{status},                    200,                                      '... 200');
        is(post($port, '/', 'nonsense')->{status}, 400,    'a body that is no JSON');
        is(post($port, '/', '[1]')->{status},      400,    'JSON that is no object');
        is(get($port, '/')->{status},              405,    'GET');
        is(get($port, '/')->{header}{allow},       'POST', '... and what is allowed');
        my $half = TestClient->new($port)->send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n{");
        $half->close;
        is(post($port, '/', '{}')->{status}, 200, 'after a client that left');
    },
    'chat.pl' => sub {
        my ($port) = @_;
        like(get($port, '/')->{body}, qr/new WebSocket/, 'the page');
        my ($anna, $bert) = map { TestWebSocket->open($port, "/?name=$_") } qw(anna bert);
        # A member's first message comes back when it is a member.
        $anna->text('first');
        is($anna->next, 'text anna: first', 'one says something');
        $bert->text('hello');
        my $heard = $bert->next;
        $heard = $bert->next if $heard eq 'text anna: first';
        is($heard, 'text bert: hello', 'another one, too');
        $anna->text("\xc3\xa4");
        is($bert->next, "text anna: \xc3\xa4", 'the other hears it');
        $bert->reset;
        is($anna->next, 'text bert: hello',    'so did the first');
        is($anna->next, "text anna: \xc3\xa4", '... and itself');
        $anna->text('alone');
        is($anna->next, 'text anna: alone', 'after the other has gone, too');
    },
    'ticker.pl' => sub {
        my ($port) = @_;
        like(get($port, '/')->{body}, qr/new EventSource/, 'the page');
        my $stream = TestStream->open($port, '/ticks');
        is_deeply($stream->message, { event => 'tick', id => $_, data => "tick $_" }, "tick $_") for 1 .. 2;
        $stream->close;
        my $post = TestStream->open($port, '/ticks', body => 'x');
        is($post->message->{id}, 1, 'another stream begins anew');
    },
    'download.pl' => sub {
        my ($port) = @_;
        my $size   = length $content;
        my $whole  = get($port, '/data.txt');
        is($whole->{status}, 200, 'a file');
        ok($whole->{body} eq $content, '... as it is');
        my @ranges = (
            [ 'bytes=0-99'     => 0,         99 ],
            [ 'bytes=100-'     => 100,       $size - 1 ],
            [ 'bytes=-5'       => $size - 5, $size - 1 ],
            [ 'bytes=-999999'  => 0,         $size - 1 ],
            [ 'bytes=5-999999' => 5,         $size - 1 ],
        );
        for my $case (@ranges) {
            my ($range, $first, $last) = @$case;
            my $part = get($port, '/data.txt', "Range: $range");
            is($part->{status},                  206,                        $range);
            is($part->{header}{'content-range'}, "bytes $first-$last/$size", '... which part it is');
            ok($part->{body} eq substr($content, $first, $last - $first + 1), '... and what is in it');
        }
        for my $range ("bytes=$size-", 'bytes=9-5', 'bytes=-0', 'bytes=-') {
            my $part = get($port, '/data.txt', "Range: $range");
            is($part->{status},                  416,             $range);
            is($part->{header}{'content-range'}, "bytes */$size", '... and how much there is');
        }
        is(get($port, '/data.txt', 'Range: lines=1-2')->{status}, 200, 'another unit is ignored');
        is(get($port, $_)->{status}, 404, $_)
            for '/', '/none', '/../etc/passwd', '/%2e%2e/etc/passwd', '/out', '/a%00b';
    },
);

for my $case (crossed([ $tutorial->names ], [qw(development production)])) {
    my ($name, $mode) = @$case;
    subtest "$name in $mode" => sub {
        local $ENV{FOLDER} = $tutorial->folder;
        my @more   = $name eq 'chat.pl' ? ('--channels', '--workers', 2) : ();
        my $server = TestServer->command('-E', $mode, @more, $tutorial->path($name));
        $uses{$name}->($server->port);
        is($server->stop, 0, 'the server ends well');
        my @said =
            grep { !/listening on|does not support lifespan, and gets|the server |" (?:\d{3}|-) /a }
            split /\n/,
            $server->log;
        @said = grep { !/Future::AsyncAwait 0\.63 breaks/ } @said;
        @said = grep { !/Unsupported scope type: sse/ } @said if $name eq 'hello.pl';
        is_deeply(\@said, [], '... and has nothing to complain of');
    };
}

subtest 'an event stream of ticker.pl that lasts' => sub {
    my $app = do { local @ARGV = (); do $tutorial->path('ticker.pl') };
    my ($waiting, $left);
    no warnings 'redefine';
    local *IO::Async::Loop::delay_future = sub { return $waiting = Future->new };
    my $stream = $app->({ type => 'sse' }, sub { return $left = Future->new }, sub { return Future->done });
    my @values;
    for (1 .. 2) {
        $waiting->done for 1 .. 1000;
        push @values, Peregrine::sv_count();
    }
    cmp_ok($values[1] - $values[0], '<', 100, 'holds nothing of a thousand ticks that are over');
    $left->done({ type => 'sse.disconnect' });
    ok($stream->is_done,       'ends when its client leaves');
    ok($waiting->is_cancelled, '... and so does its timer');
};

subtest 'README.md' => sub {
    my $readme = Tutorial->new('README.md');
    is(join(' ', $readme->names), 'app.pl server.pl', 'an application and a program');
    my $server = TestServer->command($readme->path('app.pl'));
    is(get($server->port, '/')->{body}, "Hello\n", 'the application is served');
    is($server->stop,                   0,         '... and the server ends well');

    # The program has a port of its own, and looks for the application where it is started.
    open my $in, '<', $readme->path('server.pl') or die $!;
    my $text = do { local $/; <$in> };
    is($text =~ s/\b5000\b/0/, 1, 'the program names its port');
    chdir $readme->folder or die $!;
    $server = TestServer->spawn($^X, (map { '-I' . File::Spec->rel2abs($_, $home) } @INC), '-e', $text);
    my $port = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/});
    chdir $home            or die $!;
    ok($port, 'it starts') or return;
    is(get($port, '/')->{body}, "Hello\n", '... and serves the application');
    is($server->stop,           0,         '... and ends well');
};

subtest 'PAGI::Server' => sub {
    my $manual = Tutorial->new('lib/PAGI/Server.pm');
    my $server = TestServer->command($manual->path('app.pl'));
    is(get($server->port, '/')->{body}, 'Hello, World!', 'its application is served');
    is($server->stop,                   0,               '... and the server ends well');
};

# The process of a server that has the other end of a WebSocket.
sub process_of {
    my ($server, $socket) = @_;
    my $remote = sprintf '%04X', $socket->{client}->socket->sockport;
    my ($inode) =
        map { (split)[9] } grep { /\A\s*\d+: \S+ \S+:$remote 01 / } split /\n/, content('/proc/net/tcp');
    for my $pid (children($server)) {
        my %files = descriptors($pid);
        return $pid if grep { $_ eq "socket:[$inode]" } values %files;
    }
    return;
}

# Members of both processes hear each other: the system spreads connections.
sub meet {
    my ($walk, $heard) = @_;
    my (%processes, @sockets);
    my $are_both = sub {
        push @sockets, TestWebSocket->open($walk->port(5000), '/?name=X');
        $heard->($sockets[-1]);
        my $pid = process_of($walk->pid, $sockets[-1]);
        $processes{$pid} = 1 if defined $pid;
        return keys %processes == 2;
    };
    ok(wait_for($are_both), '... members are at both processes');
    $sockets[0]->text('to all');
    for my $socket (@sockets) {
        my $message;
        do { $message = $heard->($socket) } until defined $message->{text};
        is($message->{text}, 'to all', '... and hear each other');
    }
    return;
}

subtest 'PAGI::Tutorial' => sub {
    my $heard = sub { decode_json($_[0]->next =~ s/\Atext //r) };
    my $talk  = sub {
        my ($walk) = @_;
        my $port = $walk->port(5000);
        like(get($port, '/')->{body}, qr/new WebSocket/, '... and has the page');
        my $ada = TestWebSocket->open($port, '/?name=Ada');
        is_deeply($heard->($ada), { here => 1 }, 'one is in the room');
        my $zoe = TestWebSocket->open($port, '/?name=Zo%C3%AB');
        is_deeply($heard->($_), { here => 2 }, '... two are') for $ada, $zoe;
        $zoe->text('hello');
        is_deeply($heard->($_), { name => "Zo\xeb", text => 'hello' }, '... both hear') for $ada, $zoe;
        $zoe->reset;
        is_deeply($heard->($ada), { here => 1 }, '... one has left');
        meet($walk, $heard);
    };
    my $chatted;
    my $chat = sub {
        my ($walk) = @_;
        my $port   = $walk->port(5000);
        my $ada    = TestWebSocket->open($port, '/?name=Ada');
        $ada->text("\xe2\x98\xba");
        is_deeply($heard->($ada), { name => 'Ada', text => "\x{263a}" }, 'what is said is heard');
        is_deeply(
            decode_json(get($port, '/')->{body}),
            [ { name => 'Ada', text => "\x{263a}" } ],
            'the database has what was said'
        );
        is(TestWebSocket->start($port, '/')->answer->{status}, 400, 'a visitor without a name is refused');
        $chatted = 1;
        unlike($walk->log, qr/died|error/i, 'the server has nothing to complain of');
    };
    my $walk = Walkthrough->new('lib/PAGI/Tutorial.pod');
    $walk->run(
        qr/talk\.pl/     => $talk,
        qr{\Acurl .*/\z} => sub { $chat->($walk) if $walk->serving =~ /chat\.pl/ },
    );
    ok($chatted, 'the chat was tried');
};

done_testing;
