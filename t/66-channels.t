# Channels (PAGI's design document, docs/design/channel-layer.mkdn): its examples in a small application, with
# one process and with two, wherever the engine runs; over HTTP/1, HTTP/2, WebSockets and event streams.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use JSON::PP ();
use Peregrine;
use Test::More;
use TestChannels qw(application asked chat on_both);
use TestClient   qw(get);
use TestHTTP2;
use TestServer;
use TestStream;
use TestTools qw(wait_for);
use TestWebSocket;

plan skip_all => 'Linux only' if $^O ne 'linux';

my $app = application();

sub try_chat {
    my ($server, $pick) = @_;
    my @sockets = $pick->(sub { return chat($server, 'general') });
    my ($other) = chat($server, 'other');
    my ($there) = @{ asked($server, '/calls', [ [ presence => 'chat.other' ] ]) };
    is "$there->{count} $there->{complete} " . @{ $there->{channels} }, '1 1 1', 'one is in the other room';
    my ($two) = @{ asked($server, '/calls', [ [ presence => 'chat.general' ] ]) };
    cmp_ok $two->{count}, '>=', 2, 'those of both processes count';
    $sockets[0]->text('hello');
    is $sockets[1]->next, 'text hello', 'a message reaches the others in a room';
    $sockets[1]->text($_) for qw(1 2 3);
    is_deeply [ map { $sockets[0]->next } 1 .. 3 ], [ map { "text $_" } 1 .. 3 ],
        'messages come in their order, and not back to the one who said them';
    $other->text('elsewhere');
    $sockets[1]->text('last');
    is $sockets[0]->next, 'text last', 'a message of another room does not';
    $_->close for @sockets, $other;
    return;
}

sub try_push {
    my ($server, $pick) = @_;
    my @streams = $pick->(sub {
        my $stream = TestStream->open($server->port, '/events');
        return ($stream, $stream->message->{data});
    });
    is asked($server, '/push?ping'), 'OK', 'a request pushes';
    is_deeply [ map { $_->message->{data} } @streams ], [ 'ping', 'ping' ], 'to all event streams';
    $_->close for @streams;
    return;
}

sub try_requests {
    my ($server) = @_;
    like asked($server, '/task'), qr/\Asend_email by \d+\z/, 'a pool of workers executes a task and replies';
    my $waits = TestClient->new($server->port);
    $waits->send("GET /wait?t1 HTTP/1.1\r\nHost: h\r\n\r\n");
    my $waits2 = TestHTTP2->new($server->port);
    my $stream = $waits2->request('/wait?t1');
    $waits2->until(sub { 1 });
    my @left = ($waits, $waits2);
    my ($first, $second);
    wait_for(sub {
        asked($server, '/calls', [ [ publish => 't1', { type => 'x.y', n => 1 } ] ]);
        $first  //= do { local $waits->{timeout}          = 0.2; $waits->response };
        $second //= do { local $waits2->{client}{timeout} = 0.2; $waits2->response($stream) };
        return $first && $second;
    });
    is_deeply [ map { JSON::PP::decode_json($_->{body} || '{}') } $first, $second ],
        [ ({ type => 'x.y', n => 1 }) x 2 ], 'a request of HTTP/1 and one of HTTP/2 get a message';
    return;
}

my $one = sub {
    my ($open) = @_;
    return map { ($open->())[0] } 1, 2;
};

for my $how (
    [ 'one process, inline'       => $one,      '--engine', 'inline' ],
    [ 'one process, thread'       => $one,      '--engine', 'thread' ],
    [ 'two workers, inline'       => \&on_both, '--engine', 'inline',  '--workers', 2 ],
    [ 'two workers, thread'       => \&on_both, '--engine', 'thread',  '--workers', 2 ],
    [ 'two workers, process'      => \&on_both, '--engine', 'process', '--workers', 2 ],
    [ 'two workers of a template' => \&on_both, '--engine', 'inline',  '--workers', 2, '--preload-app' ],
    )
{
    my ($title, $pick, @arguments) = @$how;
    subtest $title => sub {
        my $server = TestServer->command(@arguments, '--http2', '--channels', $app);
        try_chat($server, $pick);
        try_push($server, $pick);
        try_requests($server);
        is $server->stop, 0, 'the server stops';
    };
}

subtest 'bin/peregrine, a mount of PAGI beside one of PSGI' => sub {
    my $psgi = TestWorkers::write_file('hello.psgi', 'sub { [ 200, [], ["hello"] ] }');
    my $server =
        TestServer->command_of('peregrine', '--workers', 2, '--channels', '--mount', "/=$app",
        '--mount', "/psgi=$psgi");
    try_chat($server, \&on_both);
    is get($server->port, '/psgi')->{body}, 'hello', 'the application of PSGI answers';
};

subtest 'examples/pagi/rooms' => sub {
    my $server = TestServer->command('--workers', 2, '--channels', 'examples/pagi/rooms/app.pl');
    like get($server->port, '/')->{body}, qr/<title>Rooms/, 'a page';
    my @people = on_both(sub {
        my $socket  = TestWebSocket->open($server->port, '/rooms/lobby?name=ann');
        my $welcome = JSON::PP::decode_json($socket->next =~ s/\Atext //r);
        is $welcome->{text}, 'is here', 'somebody is told of';
        return ($socket, $welcome->{to});
    });
    $people[0]->text('hello');
    my $heard;
    wait_for(sub { $heard = $people[1]->next; return $heard !~ /is here|has left/ });
    my $message = JSON::PP::decode_json($heard =~ s/\Atext //r);
    is_deeply [ @{$message}{qw(name text)} ], [qw(ann hello)], 'what is said is heard at another worker';
    isnt $message->{from}, $message->{to}, 'which is another process';
    $people[1]->close;
    wait_for(sub { $heard = $people[0]->next; return $heard !~ /is here|hello/ });
    like $heard, qr/has left/, 'a connection that ends is told of';
    is $server->stop, 0, 'the server ends well';
};

my $server = TestServer->command('--workers', 2, '--channels', $app);

subtest 'what a call says' => sub {
    my $call = sub { return asked($server, '/calls', [@_])->[-1] };
    my $ok   = { type => 'a.b' };
    is $call->([ publish => 'nobody', $ok ]),               1, 'publish, where nobody listens';
    is $call->([ send => 'conn.00000000000000ff.1', $ok ]), 0, 'send to a channel that has ended: 0';
    is $call->([ send => 'me', $ok ]),                      1, 'send to a channel that is there: 1';
    is $call->([ subscribe => 't' ], [ subscribe => 't' ]), 1, 'subscribe twice';
    is $call->([ unsubscribe => 't' ]),                     1, 'unsubscribe, without a subscription';
    is $call->([ $_ => 'a b', $ok ]), $_ eq 'send' ? 'InvalidChannelName' : 'InvalidTopicName',
        "$_: a name with a space"
        for qw(send publish subscribe unsubscribe);
    is $call->([ publish   => 'a' x 101, $ok ]), 'InvalidTopicName', 'a name that is too long';
    is $call->([ publish   => 'a' x 100, $ok ]), 1,                  'the longest name';
    is $call->([ group_add => 't', 'no-channel' ]),      'InvalidChannelName', 'group_add: not a channel';
    is $call->([ publish   => 't', 'text' ]),            'InvalidMessage',     'a message that is no hash';
    is $call->([ publish   => 't', { text => 1 } ]),     'InvalidMessage',     'a message without a type';
    is $call->([ publish   => 't', { type => undef } ]), 'InvalidMessage', 'a message whose type is undef';
    is $call->([ publish   => 't', { type => "$_.x" } ]), 'InvalidMessage', "a forged event: $_."
        for qw(http websocket sse lifespan);
    is $call->([ publish => 't', { type => 'topic.reset' } ]), 'InvalidMessage',
        'a forged event: topic.reset';
    is $call->([ publish => 't', { type => 'httpx' } ]), 1, 'a type that only begins alike';
    is $call->([ publish => 't', { type => 'topic.resets' } ]), 1,
        'a type that is longer than a reserved one';
    is $call->([ publish => 't', { type => 'a', filled => 1 << 20 } ]), 'MessageTooLarge',
        'a message of more than 1 MiB';
    is $call->([ publish => 't', { type => 'a', filled => (1 << 20) - 100 } ]), 1,
        'a message of nearly 1 MiB';
    is_deeply asked($server, '/calls', [ map { [ send => 'me', $ok ] } 1 .. 101 ]),
        [ (1) x 100, 'ChannelFull' ],
        'the message behind a hundred that wait';
    is $call->([ subscribe => 'full' ], (map { [ publish => 'full', $ok ] } 1 .. 101)), 1,
        'publish says nothing of full mailboxes';
};

is asked($server, '/child'), 'Unavailable Unavailable',
    'a process that the application forks has no channels';
is_deeply asked($server, '/calls', [ [ publish => 'nobody', { type => 'x' } ] ]), [1],
    'and the process that it was forked from still has them';

subtest 'what comes' => sub {
    my @mail = sub { return asked($server, '/calls', [@_]) }
        ->(
        [ subscribe => 't' ],
        [ publish   => 't', { type => 'not.mine' }, 'exclude', 'me' ],
        [
            publish => 't',
            { type => 'mine', list => [ 1, 'a', undef, { x => 2.5 } ], "k\x{e9}" => "\x{20ac}" }
        ],
        ['mail'],
        [ unsubscribe => 't' ],
        [ publish     => 't', { type => 'not.mine' } ],
        [ group_add   => 't', 'me' ],
        [ group_send  => 't', { type => 'grouped' } ],
        ['mail'],
        [ group_discard => 't',  'me' ],
        [ publish       => 't',  { type => 'not.mine' } ],
        [ send          => 'me', { type => 'sent' } ],
        ['mail'],
        );
    is_deeply [ @{ $mail[0] }[ 3, 8, 12 ] ],
        [
        { type => 'mine', list => [ 1, 'a', undef, { x => 2.5 } ], "k\x{e9}" => "\x{20ac}" },
        { type => 'grouped' },
        { type => 'sent' }
        ],
        'exclude, unsubscribe and group_discard keep messages away; values come as they were';
    my ($socket, undef, $channel) = chat($server, 'room');
    is_deeply asked($server, '/calls', [ [ group_add => 'elsewhere', $channel ] ]), [1],
        'a channel of another connection is added to a topic';
    asked($server, '/calls', [ [ publish => 'elsewhere', { type => 'chat.message', text => 'added' } ] ]);
    is $socket->next, 'text added', 'and gets its messages';
    asked($server, '/calls', [ [ group_discard => 'elsewhere', $channel ] ]);
    asked($server, '/calls', [ [ publish       => 'elsewhere', { type => 'chat.message', text => 'no' } ] ]);
    asked($server, '/calls', [ [ send          => $channel, { type => 'chat.message', text => 'yes' } ] ]);
    is $socket->next, 'text yes', 'until it is discarded';
    $socket->close;
    ok wait_for(sub { !asked($server, '/calls', [ [ send => $channel, { type => 'x' } ] ])->[0] }),
        'a channel ends with its connection';
    ($socket) = chat($server, 'flushed');
    is_deeply asked($server, '/calls', [ ['flush'] ]), [1], 'flush';
    asked($server, '/calls', [ [ publish => 'chat.flushed', { type => 'chat.message', text => 'no' } ] ]);
    $socket->{client}{timeout} = 0.5;
    is $socket->next, 'nothing', 'ends all subscriptions';
};

$server->stop;

subtest 'without the option' => sub {
    my $plain = TestServer->command($app);
    is_deeply asked($plain, '/keys'), [], 'a scope has no keys of channels';
    local $ENV{PAGI_CHANNELS_BACKEND} = 'memory://';
    my $named = TestServer->command($app);
    is_deeply asked($named, '/keys'), [ 'pagi.channel', 'pagi.channels' ],
        'the environment variable of the design switches them on';
};

subtest 'bytes of messages' => sub {
    my @values = (
        undef, '', 'x', "\xff\x00", "\x{263a}", 0, -1, 1.5, 1e300, ~0, 9_007_199_254_740_993, [], {},
        [ [ [] ] ],
        { "\x{263a}" => 1, "\xe9" => 2 },
    );
    my $bytes = Peregrine::encode_message({ type => 'x', values => \@values });
    is_deeply Peregrine::decode_message($bytes), { type => 'x', values => \@values }, 'values come back';
    is_deeply [ map { Peregrine::decode_message(substr $bytes, 0, $_) // () } 0 .. length($bytes) - 1 ], [],
        'no beginning of a message is one';
    srand 1;
    for (1 .. 20_000) {
        my $wrong = $bytes;
        substr($wrong, rand length $wrong, 1) = chr rand 256 for 1 .. 3;
        Peregrine::decode_message($wrong);
    }
    pass 'messages that are wrong are read to their end';
    my $deep = { type => 'x' };
    $deep->{self} = $deep;
    my (undef, $failure, $detail) = Peregrine::encode_message($deep);
    is "$failure: $detail", 'InvalidMessage: a message has at most 64 values within each other',
        'a message that refers to itself';
    (undef, $failure, $detail) = Peregrine::encode_message({ type => 'x', handle => \*STDIN });
    is "$failure: $detail",
        'InvalidMessage: a message is made of hashes, lists, strings and numbers, and not of GLOB',
        'a message with a handle';
    (undef, $failure, $detail) =
        Peregrine::encode_message({ type => 'x', object => bless({}, 'Some::Class') });
    like $detail, qr/not of Some::Class/, 'a message with an object';
    is_deeply Peregrine::decode_message(Peregrine::encode_message({ type => 'x', yes => $JSON::PP::true })),
        { type => 'x', yes => 1 }, 'true of JSON is true';
    tie my %tied, 'Tied';
    is_deeply Peregrine::decode_message(Peregrine::encode_message(\%tied)), { type => 'tied' }, 'a tied hash';
    my $bad = { type => 'x' };
    tie $bad->{bad}, 'Dies';
    is eval { Peregrine::encode_message($bad); 1 }, undef,          'a value that dies when it is read';
    is $@,                                          "on purpose\n", 'with its exception';
};

# An application may have set how Perl joins lists in strings.
subtest 'several channels are excluded' => sub {
    require PAGI::Server::Channels;
    my %asked;
    no warnings 'once';
    local *Asked::ask = sub { (undef, undef, %asked) = @_; return Future->done(1) };
    my $channels = PAGI::Server::Channels->new(bless({}, 'Asked'), 1, 'own');
    my @names    = map { "channel$_" } 1 .. 3;
    local $" = ',';
    $channels->publish('topic', { type => 'x' }, exclude => \@names)->get;
    is $asked{extra}, join(' ', @names), 'all of them';
};

done_testing;

package Tied;

sub TIEHASH  { my ($class) = @_; return bless { type => 'tied' }, $class }
sub FIRSTKEY { return 'type' }
sub NEXTKEY  { return }
sub FETCH    { return 'tied' }

package Dies;

sub TIESCALAR { my ($class) = @_; return bless [], $class }
sub FETCH     { die "on purpose\n" }
