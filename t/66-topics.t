# Topics with history: what one interpreter publishes, clients of all interpreters read, in one order, as
# messages of WebSockets and of event streams over HTTP/1 and HTTP/2; and who comes back with a position gets
# what was published meanwhile, or a reset.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Peregrine;
use Socket qw(AF_UNIX PF_UNSPEC SOCK_SEQPACKET);
use Test::More;
use TestChannels qw(on_both);
use TestClient   qw(get post);
use TestHTTP2;
use TestServer;
use TestStream;
use TestTools   qw(content wait_for);
use TestWorkers qw(children directory is_gone pid_in stop_master write_file);
use TestWebSocket;
use Time::HiRes qw(sleep);

plan skip_all => 'Linux only' if $^O ne 'linux';

my $app = write_file('topics.pl', <<'PERL');
use strict;
use warnings;
use Future::AsyncAwait;

my %TOPIC = (news => 1, room => 1);

sub topic { return $_[0]{path} =~ m{/(\w+)\z} && $TOPIC{$1} ? $1 : die "not allowed\n" }

sub last_id {
    my ($scope) = @_;
    my ($given) = map { $_->[1] } grep { $_->[0] eq 'last-event-id' } @{ $scope->{headers} };
    return $given;
}

async sub stream {
    my ($scope, $receive, $send) = @_;
    my %more = $scope->{query_string} eq 'encoded' ? (headers => [ [ 'content-encoding', 'x' ] ]) : ();
    await $send->({ type => 'sse.start', %more });
    my $since = last_id($scope);
    my $from  = eval {
        await $send->({ type => 'topic.subscribe', topic => topic($scope), since => $since });
    };
    await $send->({ type => 'sse.send', event => 'begins', data => $from ? "$$ $from" : "failed: $@" });
    while (1) {
        my $event = await $receive->();
        last if $event->{type} eq 'sse.disconnect';
    }
}

async sub messages {
    my ($scope, $receive, $send) = @_;
    await $send->({ type => 'websocket.accept' });
    my ($since, $as) = split /,/, $scope->{query_string};
    my @asked = (topic => topic($scope), since => $since, $as ? (as => $as) : ());
    my $from = eval { await $send->({ type => 'topic.subscribe', @asked }) } // "failed: $@";
    await $send->({ type => 'websocket.send', text => "$$ $from" });
    while (1) {
        my $event = await $receive->();
        last if $event->{type} eq 'websocket.disconnect';
        if ($event->{type} eq 'topic.reset') {
            await $send->({ type => 'websocket.send', text => "reset $event->{topic} $event->{position}" });
        }
        elsif (($event->{text} // '') eq 'stop') {
            await $send->({ type => 'topic.unsubscribe', topic => topic($scope) });
            await $send->({ type => 'websocket.send', text => 'stopped' });
        }
    }
}

async sub {
    my ($scope, $receive, $send) = @_;
    my $type = $scope->{type};
    return await stream(@_) if $type eq 'sse';
    return await messages(@_) if $type eq 'websocket';
    die "no lifespan\n" if $type ne 'http';
    my ($what, $topic, $text) = split m{/}, substr($scope->{path}, 1), 3;
    my $topics = $scope->{'pagi.topics'};
    my $body = !$topics ? 'no topics' : eval {
        my @said;
        if ($what eq 'publish') { push @said, await $topics->publish($topic, $text // '') }
        if ($what eq 'many') {
            for my $i (1 .. $text) { push @said, await $topics->publish($topic, "$i " . 'x' x 3000) }
        }
        if ($what eq 'position') { push @said, await $topics->position($topic) }
        if ($what eq 'wide') { push @said, await $topics->publish($topic, "\x{263a}") }
        $said[-1];
    } // "failed: $@";
    await $send->({ type => 'http.response.start', status => 200,
        headers => [ [ 'content-length', length $body ] ] });
    await $send->({ type => 'http.response.body', body => $body });
};
PERL

my $place = qr/[0-9a-f]{12}\.\d+\.[0-9a-f]{12}/;

sub said { my ($server, $path) = @_; return get($server->port, $path)->{body} }

sub since {
    my ($server, $path, $since) = @_;
    return TestStream->open($server->port, $path, $since ? (fields => ["Last-Event-ID: $since"]) : ());
}

sub stream {
    my ($server, $topic, $since) = @_;
    my $stream = since($server, "/stream/$topic", $since);
    my $begins = $stream->message or return;
    $begins = $stream->message if $begins->{event} eq 'reset';
    my ($pid, $from) = split / /, $begins->{data};
    return ($stream, $pid, $from);
}

sub socket_of {
    my ($server, $topic, $query) = @_;
    my $socket = TestWebSocket->open($server->port, "/socket/$topic?" . ($query // 'now'));
    my ($pid, $from) = $socket->next =~ /\Atext (\S+) (.+)\z/s;
    return ($socket, $pid, $from);
}

for my $how (
    [ 'one process, inline'  => 1, '--engine', 'inline' ],
    [ 'two workers, thread'  => 2, '--engine', 'thread',  '--workers', 2 ],
    [ 'two workers, process' => 2, '--engine', 'process', '--workers', 2 ],
    only_in_full(
        [ 'one process, thread'       => 1, '--engine', 'thread' ],
        [ 'two workers, inline'       => 2, '--engine', 'inline', '--workers', 2 ],
        [ 'two workers of a template' => 2, '--engine', 'inline', '--workers', 2, '--preload-app' ],
    ),
    )
{
    my ($title, $workers, @arguments) = @$how;
    subtest $title => sub {
        my $server = TestServer->command(@arguments, '--http2', '--channels', $app);
        my $pick   = $workers == 1
            ? sub {
            map { ($_[0]->())[0] } 1, 2;
            }
            : \&on_both;
        my @sockets  = $pick->(sub { return socket_of($server, 'news') });
        my @streams  = $pick->(sub { return stream($server, 'news') });
        my $http2    = TestHTTP2->new($server->port);
        my $of_http2 = $http2->request('/stream/news', fields => [ accept => 'text/event-stream' ]);
        my $text     = sub { return $http2->stream($of_http2)->{body} // '' };
        ok $http2->until(sub { $text->() =~ /begins/ }), 'a stream over HTTP/2';
        my @places = map { said($server, "/publish/news/entry$_") } 1 .. 3;
        like $_, qr/\A$place\z/, 'publish says the place of the entry' for @places;
        is said($server, '/position/news'), $places[-1], 'the position of the topic';

        for my $socket (@sockets) {
            is_deeply [ map { $socket->next } 1 .. 3 ], [ map { "text entry$_" } 1 .. 3 ],
                'a WebSocket gets the entries in their order';
        }
        my @expected = map { { data => "entry$_", id => $places[ $_ - 1 ] } } 1 .. 3;
        for my $stream (@streams) {
            is_deeply [ map { my $m = $stream->message; +{%$m} } 1 .. 3 ],
                \@expected, 'an event stream, with the places as ids';
        }
        $http2->until(sub { $text->() =~ /entry3/ });
        my @ids = $text->() =~ /^id: (\S+)$/mg;
        is_deeply \@ids, \@places, 'and one over HTTP/2';
        $_->close for @sockets, @streams;

        my ($back) = stream($server, 'news', $places[0]);
        is_deeply [ map { $back->message->{data} } 1, 2 ], [qw(entry2 entry3)],
            'who comes back with Last-Event-ID gets what came behind it';
        said($server, '/publish/news/entry4');
        is $back->message->{data}, 'entry4', 'and what is published then';
        $back->close;
        my ($socket, undef, $from) = socket_of($server, 'news', "$places[1],binary");
        is $from,         $places[1],      'a WebSocket that comes back is told where it begins';
        is $socket->next, 'binary entry3', 'and gets what came behind that';
        is $socket->next, 'binary entry4', 'in order';
        $socket->text('stop');
        is $socket->next, 'text stopped', 'topic.unsubscribe';
        said($server, '/publish/news/entry5');
        $socket->{client}{timeout} = 0.5;
        is $socket->next, 'nothing', 'ends it';
        is $server->stop, 0,         'the server stops';
    };
}

my $server = TestServer->command('--workers', 2, '--channels', $app);

subtest 'positions that are none' => sub {
    said($server, '/publish/room/one');
    for my $since ('0123456789ab.1.0123456789ab', 'nonsense', 'x' x 400) {
        my $stream   = since($server, '/stream/room', $since);
        my @two      = map  { $stream->message } 1, 2;
        my ($reset)  = grep { $_->{event} eq 'reset' } @two;
        my ($begins) = grep { $_->{event} eq 'begins' } @two;
        is "$reset->{data} $reset->{id}", 'room ' . said($server, '/position/room'), 'make a reset';
        like $begins->{data}, qr/\A\d+ \Q$reset->{id}\E\z/, 'and the application knows where it goes on';
        my $two = said($server, '/publish/room/two');
        is $stream->message->{id}, $two, 'with what is published next';
        $stream->close;
    }
    my ($socket, undef, $from) = socket_of($server, 'room', '0123456789ab.1.0123456789ab');
    is $socket->next, "text reset room $from", 'a WebSocket: its application is told';
};

subtest 'what is refused' => sub {
    like said($server, '/publish/a%20b/x'), qr/\Afailed: InvalidTopicName/, 'a name with a space';
    like said($server, '/publish/room/'),   qr/\Afailed: InvalidMessage/,   'an entry without bytes';
    like said($server, '/wide/room'),       qr/\Afailed: InvalidMessage/,   'an entry of characters';
    my ($socket) = TestWebSocket->open($server->port, '/socket/room?now,sse');
    like $socket->next, qr/failed: topic.subscribe: as must be text or binary/, 'as: sse, in a WebSocket';
    $socket->close;
    my $stream = TestStream->open($server->port, '/stream/room?encoded');
    like $stream->message->{data}, qr/failed: topic.subscribe: the stream has a Content-Encoding/,
        'a stream with a Content-Encoding';
};

subtest 'a client that does not read' => sub {
    my ($socket) = socket_of($server, 'room');
    # 12 MB: more than sockets, the engine and the history (4 MiB) hold together.
    said($server, '/many/room/1000') for 1 .. 4;
    my ($resets, $count, $next) = (0, 0);
    while (($next = $socket->next) ne 'nothing') {
        if   ($next =~ /\Atext reset/) { $resets++ }
        else                           { $count++ }
        last if $next =~ /\Atext reset/;
    }
    is $resets, 1, 'is told that it has missed some';
    cmp_ok $count, '<', 4000, "after the $count that it could have";
    said($server, '/publish/room/final');
    is $socket->next, 'text final', 'and goes on';
};

subtest 'a worker that dies: its clients come back, and miss nothing' => sub {
    my ($stream, $pid, $from) = stream($server, 'news');
    said($server, '/publish/news/before');
    my $seen = $stream->message;
    is $seen->{data}, 'before', 'an entry';
    kill KILL => $pid;
    wait_for(sub { !kill 0, $pid });
    wait_for(sub { (said($server, '/publish/news/while') // '') =~ /\A$place/ });
    my ($again) = stream($server, 'news', $seen->{id});
    is $again->message->{data}, 'while', 'what was published meanwhile';
};

$server->stop;

subtest 'examples/pagi/board' => sub {
    my $board   = TestServer->command('--workers', 2, '--channels', 'examples/pagi/board/app.pl');
    my ($since) = get($board->port, '/')->{body} =~ /since=($place)/ or fail 'a page with a position';
    my $notice  = post($board->port, '/', "caf\xc3\xa9")->{body};
    my $stream  = TestStream->open($board->port, "/?since=$since");
    is_deeply $stream->message, { data => "caf\xc3\xa9", id => $notice =~ s/\n//r },
        'a notice that was posted before the stream began';
    is post($board->port, '/', 'x' x 501)->{status}, 422, 'a notice that is too long';
};

subtest 'examples whose hub does not answer tell it, and log why' => sub {
    for my $name (qw(board restart)) {
        my $server = TestServer->command('--workers', 1, '--channels', "examples/pagi/$name/app.pl");
        is post($server->port, '/', 'one')->{status}, 200, "$name: a notice";
        my ($hub) = grep { (content("/proc/$_/cmdline") // '') =~ /\(hub\)/ } children($server->pid);
        kill STOP => $hub;
        # A thread of a busy machine may run on for a while.
        wait_for(sub {
            !grep { content($_) !~ /\) T / } glob "/proc/$hub/task/*/stat";
        });
        my $answer = post($server->port, '/', 'two');
        kill CONT => $hub;
        is $answer->{status}, 504, "$name: the next one may be there";
        like $answer->{body}, qr/\AIt may be there/, "$name: as the answer tells";
        ok $server->wait_for_log(qr/not published: Unknown/), "$name: the log has the failure";
    }
};

subtest 'the hub dies' => sub {
    my $own      = TestServer->command('--workers', 2, '--channels', $app);
    my ($stream) = stream($own, 'news');
    my $before   = said($own, '/publish/news/before');
    is $stream->message->{id}, $before, 'an entry';
    my $hub = wait_for(sub {
        return (grep { (content("/proc/$_/cmdline") // '') =~ /\(hub\)/ } children($own->pid))[0];
    });
    ok $hub, 'the hub is a process' or return;
    kill KILL => $hub;
    my $after;
    wait_for(sub { ($after = said($own, '/publish/news/after') // '') =~ /\A$place/ });
    is $stream->message->{event}, 'reset', 'its history is lost: a stream that goes on gets a reset';
    said($own, '/publish/news/last');
    ok wait_for(sub { my $message = $stream->message; return $message && $message->{data} eq 'last' }),
        'and goes on';
    my $back = since($own, '/stream/news', $before);
    my @two  = map { $back->message->{event} } 1, 2;
    ok + (grep { $_ eq 'reset' } @two), 'and who comes back gets one, too';
};

subtest 'USR2: the hub of the new program goes on with the topics of the old one' => sub {
    my $own = TestServer->command('--workers', 2, '--channels', '--shutdown-timeout', 1,
        '--pid', directory() . '/topics.pid', $app);
    my $old      = $own->pid;
    my @places   = map { said($own, "/publish/news/before$_") } 1 .. 3;
    my ($stream) = stream($own, 'news', $places[0]);
    is $stream->message->{id}, $_, 'a stream of the old program' for @places[ 1, 2 ];
    $own->signal('USR2');
    ok wait_for(sub { my $pid = pid_in('topics.pid'); return $pid && $pid != $old }), 'a new program serves';
    # The old program accepts connections for a moment longer, and ends them soon.
    my $between = wait_for(sub {
        my ($stream, $pid) = stream($own, 'news', $places[0]);
        return $stream && (grep { $_ == $pid } children(pid_in('topics.pid'))) ? $stream : undef;
    });
    is $between->message->{id}, $_, 'a stream of the new program, while both share the hub'
        for @places[ 1, 2 ];
    ok wait_for(sub { return is_gone($old) }), 'the old program goes, with its hub';
    my $after;
    ok wait_for(sub { ($after = said($own, '/publish/news/after') // '') =~ /\A$place/ }),
        'publish works again';
    is_deeply { %{ $between->message } }, { data => 'after', id => $after },
        'the stream goes on, without a reset';
    my ($epoch, $offset) = split /\./, $after;
    is_deeply [ (split /\./, $places[2])[0], (split /\./, $places[2])[1] + 1 ], [ $epoch, $offset ],
        'positions go on';
    my ($back) = stream($own, 'news', $places[1]);
    is_deeply [ map { $back->message->{data} } 1, 2 ], [qw(before3 after)],
        'a position of the old program is known';
    # The histories that the first hub has left are for one hub only.
    my ($hub) = grep { (content("/proc/$_/cmdline") // '') =~ /\(hub\)/ } children(pid_in('topics.pid'));
    kill KILL => $hub;
    ok wait_for(sub { (said($own, '/publish/news/last') // '') =~ /\A(?!$epoch)$place/ }),
        'a hub that dies leaves nothing: another epoch';
    stop_master('topics.pid');
};

subtest 'a hub finds nonsense in the place of histories' => sub {
    # A topic's name, epoch, time, offset and check, and the number of its entries, of which there is one.
    my $topic = pack 'S</a Q<4 L< Q<2 L</a', 'news', 1, 1, ~0, 1, 1, 1, 1, 'entry';
    for my $case ([ 'an offset at the end of numbers', 'pgtopic1' . pack('Q<', 16 + length $topic) . $topic ],
        [ 'random bytes', join '', map { chr int rand 256 } 1 .. 1000 ])
    {
        my ($name, $bytes) = @$case;
        my $descriptor = Peregrine::HubHandle::file();
        open my $file, '+<&=', $descriptor or die "$descriptor: $!";
        syswrite $file, $bytes;
        socketpair my $join, my $end, AF_UNIX, SOCK_SEQPACKET, PF_UNSPEC or die "socketpair: $!";
        my $hub = Peregrine::HubHandle->new(fileno $end, $descriptor, '', '', 10, 1000, 1000);
        ok wait_for(sub { !-s $file }), "$name: the file is empty";
        my $beats = $hub->beats;
        ok wait_for(sub { $hub->beats > $beats }), '... and the hub goes on';
    }
};

is said(TestServer->command($app), '/publish/news/x'), 'no topics', 'without the option there are no topics';

for my $limit (
    [ '--topics-history-entries', 16,   'many/room/16',   0 ],
    [ '--topics-history-size',    '4K', 'many/room/2',    0 ],
    [ '--topics-history-age',     1,    'publish/room/x', 1.5 ],
    )
{
    my ($option, $value, $more, $wait_s) = @$limit;
    subtest $option => sub {
        my $server = TestServer->command('--channels', $option, $value, $app);
        my $first  = said($server, '/publish/room/first');
        my $second = said($server, '/publish/room/second');
        my ($socket, undef, $from) = socket_of($server, 'room', $first);
        is $from,         $first,        'a position is known';
        is $socket->next, 'text second', 'and entries follow it';
        sleep $wait_s;
        my $last = said($server, "/$more");
        ($socket) = socket_of($server, 'room', $first);
        like $socket->next, qr/\Atext reset room /, 'beyond the limit it is not: a reset';
        ($socket, undef, $from) = socket_of($server, 'room', $last);
        is $from,         $last, 'the newest position is known in any case';
        is $server->stop, 0,     'the server stops';
    };
}

done_testing;
