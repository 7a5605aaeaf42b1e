# Topics that the engine delivers (--engine process): connections that only read go on when their interpreter
# is killed, without gap and without repeat; others end, so that their clients come back.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use List::Util qw(min);
use OnlyInFull qw(only_in_full);
use POSIX      ();
use Test::More;
use TestClient qw(get);
use TestHTTP2;
use TestServer;
use TestStream;
use TestTools   qw(content free_port wait_for);
use TestWorkers qw(children directory is_gone stop_master write_file);
use TestWebSocket;

plan skip_all => 'Linux only' if $^O ne 'linux';

my $app = write_file('delivery.pl', <<'PERL');
use strict;
use warnings;
use Future::AsyncAwait;
use IO::Async::Loop;

# In the query: `says`, the application sends something by itself after a while; `cut`, a client that is too
# far behind is cut.
async sub reads {
    my ($scope, $receive, $send, $say) = @_;
    my ($topic) = $scope->{path} =~ m{(\w+)\z};
    my ($since) = map { $_->[1] } grep { $_->[0] eq 'last-event-id' } @{ $scope->{headers} };
    my @more = $scope->{query_string} =~ /cut/ ? (behind => 'cut') : ();
    my $from = await $send->({ type => 'topic.subscribe', topic => $topic, since => $since, @more });
    await $say->("begins $$ $from");
    if ($scope->{query_string} =~ /leaves/) {
        await $send->({ type => 'topic.unsubscribe', topic => $topic });
    }
    if ($scope->{query_string} =~ /many/) {
        my $refused = 0;
        for my $number (1 .. 40) {
            # Expected: a connection may read 32 topics.
            eval { await $send->({ type => 'topic.subscribe', topic => "many$number" }); 1 } or $refused++;
        }
        await $say->("$refused refused");
    }
    if ($scope->{query_string} =~ /says/) {
        await IO::Async::Loop->new->delay_future(after => 0.05);
        await $say->('by itself');
    }
    while (1) {
        my $event = await $receive->();
        last if $event->{type} =~ /disconnect/;
        await $say->("heard $event->{text}") if defined $event->{text};
    }
}

async sub {
    my ($scope, $receive, $send) = @_;
    if ($scope->{type} eq 'sse') {
        await $send->({ type => 'sse.start' });
        return await reads(@_, sub { return $send->({ type => 'sse.send', data => $_[0] }) });
    }
    if ($scope->{type} eq 'websocket') {
        await $send->({ type => 'websocket.accept' });
        return await reads(@_, sub { return $send->({ type => 'websocket.send', text => $_[0] }) });
    }
    die "no lifespan\n" if $scope->{type} ne 'http';
    my ($what, $topic, $count, $size) = split m{/}, substr $scope->{path}, 1;
    my @places;
    if ($what eq 'publish') {
        for my $i (1 .. $count) {
            push @places, await $scope->{'pagi.topics'}->publish($topic, $i . 'x' x ($size // 0));
        }
    }
    # A mebibyte, which is 7 as an event.
    await $scope->{'pagi.topics'}->publish($topic, "\n" x (1 << 20)) if $what eq 'lines';
    my $body = $what eq 'presence'
        ? (await $scope->{'pagi.topics'}->presence($topic))->{count}
        : "@places";
    await $send->({ type => 'http.response.start', status => 200,
        headers => [ [ 'content-length', length $body ] ] });
    await $send->({ type => 'http.response.body', body => $body });
};
PERL

sub publish {
    my ($server, $topic, $count, $size) = @_;
    my $answer;
    # A request may meet an interpreter that is killed.
    wait_for(sub {
        $answer = eval { get($server->port, join '/', '/publish', $topic, $count, $size // 0) };
        return $answer && $answer->{status} == 200;
    });
    return split / /, $answer->{body};
}

sub stream {
    my ($server, $target, %options) = @_;
    my $stream = TestStream->open($server->port, $target, %options);
    my ($pid) = ($stream->message // {})->{data} =~ /\Abegins (\d+) /;
    return ($stream, $pid);
}

sub socket_of {
    my ($server, $target, %options) = @_;
    my $socket = TestWebSocket->open($server->port, $target, %options);
    my ($pid) = $socket->next =~ /\Atext begins (\d+) /;
    return ($socket, $pid);
}

sub end_interpreter {
    my ($pid) = @_;
    kill KILL => $pid;
    ok wait_for(sub { is_gone($pid) }), 'an interpreter is killed';
    return;
}

# The process with this word in its title.
sub process {
    my ($server, $word) = @_;
    return wait_for(sub {
        return (grep { (content("/proc/$_/cmdline") // '') =~ /\($word\)/ } children($server->pid))[0];
    });
}

sub data_of { my ($stream) = @_; return ($stream->message // {})->{data} }

my @process = qw(--engine process --workers 2 --channels --http2);

subtest 'an interpreter is killed' => sub {
    my $server = TestServer->command(@process, $app);
    my @both   = map { [ stream($server, '/stream/news') ] } 1 .. 4;
    my ($socket, $pid_of_socket) = socket_of($server, '/socket/news');
    my $http2 = TestHTTP2->new($server->port);
    my $id    = $http2->request('/stream/news', fields => [ accept => 'text/event-stream' ]);
    my $text  = sub { return $http2->stream($id)->{body} // '' };
    ok $http2->until(sub { $text->() =~ /begins/ }), 'a stream over HTTP/2';
    my ($pid_of_http2) = $text->() =~ /begins (\d+)/;
    my @places         = publish($server, 'news', 2);
    my %pids           = map { $_ => 1 } $pid_of_socket, $pid_of_http2, map { $_->[1] } @both;
    # An interpreter that is killed before the engine knows that the answer to the subscription was heard
    # takes its connections along. Entries come after that.
    for my $stream (map { $_->[0] } @both) {
        is $stream->message->{id}, $places[0], 'an event stream gets an entry';
    }
    is $socket->next, 'text 1', 'a WebSocket, too';
    ok $http2->until(sub { $text->() =~ /\Q$places[0]\E/ }), 'and a stream over HTTP/2';

    for my $pid (sort keys %pids) {
        end_interpreter($pid);
        push @places, publish($server, 'news', 2);
    }
    for my $stream (map { $_->[0] } @both) {
        is_deeply [ map { $stream->message->{id} } @places[ 1 .. $#places ] ], [ @places[ 1 .. $#places ] ],
            'an event stream gets each entry once, in order';
    }
    ok $http2->until(sub { $text->() =~ /\Q$places[-1]\E/ }), 'one over HTTP/2, too';
    is_deeply [ $text->() =~ /^id: (\S+)/mg ], \@places, 'each once, in order';
    is $socket->next, 'text ' . (2 - $_ % 2),           'a WebSocket likewise' for 2 .. @places;
    is get($server->port, '/presence/news')->{body}, 6, 'and they count as readers';

    $socket->text('hello');
    is $socket->next, 'close 1012', 'a WebSocket ends when its client says something: it comes back';
    $both[0][0]->close;
    my $leaves = sub { return get($server->port, '/presence/news')->{body} == 4 };
    ok wait_for($leaves), 'a client that leaves reads no more';
    my ($place) = publish($server, 'news', 1);
    is $both[1][0]->message->{id}, $place, 'others go on';
    my $hub = process($server, 'hub');
    kill KILL => $hub;
    wait_for(sub { is_gone($hub) });
    publish($server, 'news', 1);
    is $both[1][0]->message->{event}, 'reset', 'the hub is killed: a reset';
    publish($server, 'news', 1);
    wait_for(sub { (data_of($both[1][0]) // '') eq '1' });
    is $server->stop,       0,            'the server stops';
    is $both[1][0]->ending, 'terminated', 'and ends its streams in an orderly way';
};

subtest 'a connection whose application says something by itself' => sub {
    my $server = TestServer->command(@process, $app);
    my ($stream, $pid) = stream($server, '/stream/news?says');
    is data_of($stream), 'by itself', 'an event stream';
    my ($socket, $of_socket) = socket_of($server, '/socket/news?says');
    is $socket->next, 'text by itself', 'a WebSocket';
    end_interpreter($_) for $pid, $of_socket == $pid ? () : $of_socket;
    is $stream->ending, 'cut',        'the stream is cut';
    is $socket->next,   'close 1011', 'the WebSocket is closed';
    is $server->stop,   0,            'the server stops';
};

subtest 'connections whose interpreter owes something' => sub {
    my $server = TestServer->command(@process, $app);
    my ($stream, $pid_of_stream) = stream($server, '/stream/news?leaves');
    my ($socket, $pid_of_socket) = socket_of($server, '/socket/news?leaves');
    my %pids = map { $_ => 1 } $pid_of_stream, $pid_of_socket;
    wait_for(sub { return get($server->port, '/presence/news')->{body} == 0 });
    end_interpreter($_) for sort keys %pids;
    is $stream->ending, 'cut',        'an event stream that reads no topic any more ends';
    is $socket->next,   'close 1011', 'a WebSocket likewise';

    ($socket, my $pid) = socket_of($server, '/socket/news');
    publish($server, 'news', 1);
    is $socket->next, 'text 1', 'a WebSocket gets an entry';
    kill STOP => $pid;
    $socket->text('work');
    publish($server, 'news', 1);
    is $socket->next, 'text 1', 'a message does not hold up entries';
    end_interpreter($pid);
    is $socket->next, 'close 1011', 'a message that nobody has answered ends its WebSocket';

    ($socket, $pid) = socket_of($server, '/socket/news');
    kill STOP => $pid;
    my $hub = process($server, 'hub');
    kill KILL => $hub;
    wait_for(sub { is_gone($hub) });
    publish($server, 'news', 1);
    end_interpreter($pid);
    publish($server, 'news', 1);
    like $socket->next, qr/\Aclose 101[12]\z/, 'a reset that the interpreter has not heard does, too';
    is $server->stop, 0, 'the server stops';
};

subtest 'more topics than a connection may read' => sub {
    my $server = TestServer->command(@process, $app);
    my ($stream, $pid) = stream($server, '/stream/news?many');
    is $stream->message->{data}, '9 refused', 'the other ones are refused';
    publish($server, 'news', 1);
    is $stream->message->{data}, '1', 'the connection goes on';
    ok !is_gone($pid), 'and so does its interpreter';
    unlike $server->log, qr/does not keep to the rules/, 'which has done nothing wrong';
    is $server->stop, 0, 'the server stops';
};

subtest 'clients that do not read' => sub {
    my $server = TestServer->command(@process, '--write-timeout', 600, '--shutdown-timeout', 2, $app);
    my %by;
    for my $target (qw(/stream/news /stream/news?cut /stream/orphan?cut)) {
        my ($stream, $pid) = stream($server, $target);
        $by{$target} = $stream;
        $by{pid} = $pid;
    }
    my ($socket) = socket_of($server, '/socket/news?cut');
    publish($server, $_, 1) for qw(news orphan);
    is data_of($by{$_}), 1, "an entry comes to $_" for sort grep { m{/} } keys %by;
    is $socket->next, 'text 1', 'and to a WebSocket';
    end_interpreter($by{pid});
    my ($alive) = stream($server, '/stream/news?cut');
    my $pid = $by{pid};
    # 20 MB in all: more than sockets, the engine and the history (4 MiB) hold together.
    for (1 .. 7) { publish($server, $_, 80, 37_000) for qw(news orphan) }
    # The closing handshake has its time from now on: the WebSocket is read first.
    my $end;
    while (($end = $socket->next) =~ /\Atext/) { }
    is $end, 'close 1013 too far behind a topic', "behind => 'cut': a WebSocket ends";
    my ($last) = (publish($server, 'news', 1))[0];
    my ($entries, $resets) = (0, 0);
    while (my $message = $by{'/stream/news'}->message) {
        if   (($message->{event} // '') eq 'reset') { $resets++ }
        else                                        { $entries++ }
        last if $message->{id} eq $last || $resets;
    }
    is $resets, 1, "one gets a reset, after $entries entries";
    my ($next) = publish($server, 'news', 1);
    # Behind a slow publisher entries came behind the reset, and others were lost behind these.
    my ($message, $before, $gaps) = (undef, undef, 0);
    while ($message = $by{'/stream/news'}->message) {
        my ($number) = ($message->{id} // next) =~ /\.(\d+)\./;
        my $is_reset = ($message->{event} // '') eq 'reset';
        $gaps++ if !$is_reset && defined $before && $number != $before + 1;
        $before = $is_reset ? undef : $number;
        last if $message->{id} eq $next;
    }
    is $message && $message->{id}, $next, 'and goes on';
    is $gaps,                      0,     '... without a gap that no reset tells of';
    ok $by{'/stream/orphan?cut'}->is_complete, "behind => 'cut': a stream ends";
    ok $alive->is_complete,                    'likewise with an interpreter';
    is $server->stop, 0, 'the server stops';
};

subtest 'WebSockets that compress' => sub {
    my $server  = TestServer->command(@process, $app);
    my $offer   = 'Sec-WebSocket-Extensions: permessage-deflate';
    my @sockets = map { [ (socket_of($server, '/socket/news', lines => $_))[0], scalar @$_ ] } [], [$offer],
        ["$offer; server_max_window_bits=9"], [$offer];
    for my $size (10, 2000) {
        publish($server, 'news', 2, $size);
        for my $socket (@sockets) {
            my ($client, $compresses) = @$socket;
            for my $number (1, 2) {
                my (undef, $payload, undef, $rsv) = @{ $client->next_frame };
                my $is_compressed = $compresses && $size > 1024;
                is $rsv, $is_compressed ? 4 : 0, $is_compressed ? 'compressed' : 'not compressed';
                is $is_compressed ? TestWebSocket::inflated($payload) : $payload, $number . 'x' x $size,
                    "an entry of $size bytes";
            }
        }
    }
    is $server->stop, 0, 'the server stops';
};

subtest 'HUP and USR2' => sub {
    my $pid_file = directory() . '/delivery.pid';
    my $server   = TestServer->command(@process, '--pid', $pid_file, $app);
    my ($orphan, $pid) = stream($server, '/stream/news');
    my ($of_orphan) = socket_of($server, '/socket/news');
    my @places = publish($server, 'news', 1);
    is $orphan->message->{id}, $places[0], 'a stream gets an entry';
    is $of_orphan->next,       'text 1',   'and a WebSocket';
    end_interpreter($pid);
    push @places, publish($server, 'news', 1);
    my ($stream) = stream($server, '/stream/news', fields => ["Last-Event-ID: $places[0]"]);
    $server->signal('HUP');
    is $stream->ending, 'terminated', 'HUP: a stream of an interpreter that leaves ends in order';
    push @places, publish($server, 'news', 1);
    is_deeply [ map { $orphan->message->{id} } 1 .. $#places ], [ @places[ 1 .. $#places ] ],
        'one without interpreter goes on';
    my $old = $server->pid;
    $server->signal('USR2');
    is $orphan->ending, 'terminated', 'USR2: it ends in order as well';
    my $last = 'nothing';
    1 while ($last = $of_orphan->next) =~ /\Atext/;
    like $last, qr/\Aclose 10(?:01|12)/, 'and so does a WebSocket';
    ok wait_for(sub { is_gone($old) }), 'the old program goes';
    stop_master('delivery.pid');
};

# Resident memory of a process that no file backs, in MB.
sub memory_of {
    my ($pid) = @_;
    my ($kb)  = content("/proc/$pid/status") =~ /^RssAnon:\s+(\d+) kB/m;
    return $kb / 1024;
}

# Bytes that the kernel holds of what the server has sent to a client.
sub in_kernel {
    my ($port, $stream) = @_;
    my $own   = sprintf '%04X', $stream->{socket}->sockport;
    my $other = sprintf '%04X', $port;
    my $sum   = 0;
    for my $line (split /\n/, content('/proc/net/tcp')) {
        my ($from, $to, $sent, $received) = $line =~ /^\s*\d+: \w+:(\w+) \w+:(\w+) \w+ (\w+):(\w+)/ or next;
        $sum += hex $sent     if "$from $to" eq "$other $own";
        $sum += hex $received if "$from $to" eq "$own $other";
    }
    return $sum;
}

for my $placement ('process', only_in_full('thread')) {
    subtest "many clients of one topic that do not read, $placement" => sub { many($placement) };
}

sub many {
    my ($placement) = @_;
    my @placed = $placement eq 'process' ? @process : qw(--engine thread --channels);
    # A thousand in a full run, or as many as the limit of descriptors leaves room for.
    my $count   = min(only_in_full(1000) || 400, POSIX::sysconf(POSIX::_SC_OPEN_MAX()) - 200);
    my $server  = TestServer->command(@placed, '--write-timeout', 600, '--shutdown-timeout', 2, $app);
    my $engine  = $placement eq 'process' ? process($server, 'engine') : $server->pid;
    my @streams = map { (stream($server, '/stream/news'))[0] } 1 .. $count;
    is get($server->port, '/presence/news')->{body}, $count, 'all of them read it';
    my $before = memory_of($engine);
    publish($server, 'news', 60, 60_000);
    my $more = memory_of($engine) - $before;
    cmp_ok in_kernel($server->port, $streams[0]), '<', 50 * 60_000, 'the kernel does not take all of it';
    # 3.6 MB of entries, and their frames. A piece of 60 KB for each client would be 60 MB for a thousand.
    cmp_ok $more, '<', 6 + 0.024 * $count,
        sprintf 'memory grows with messages, not with messages times clients: %.1f MB',
        $more;
    my ($last) = publish($server, 'news', 1, 10);
    for my $stream (@streams[ 0, -1 ]) {
        my $message;
        1 while ($message = $stream->message) && $message->{id} ne $last;
        ok $message, 'a client that begins to read gets all of them';
        is $message->{event}, undef, 'and no reset';
    }
    is $server->stop, 0, 'the server stops';
    return;
}

# Whether a text comes over a connection.
sub gets {
    my ($stream, $text) = @_;
    my $bytes = '';
    while (index($bytes, $text) < 0) {
        $bytes = substr $bytes, -length $text if length $bytes > length $text;
        sysread $stream->socket, $bytes, 1 << 16, length $bytes or return 0;
    }
    return 1;
}

subtest 'clients that do not read keep entries in memory that the history has lost' => sub {
    my $status = free_port();
    my $server = TestServer->command(@process, '--write-timeout', 600, '--shutdown-timeout', 2, '--status',
        "127.0.0.1:$status", $app);
    my $engine   = process($server, 'engine');
    my ($reader) = stream($server, '/stream/other');
    my $before   = memory_of($engine);
    my @streams;
    for (1 .. 40) {
        push @streams, (stream($server, '/stream/long', receive_buffer => 65536))[0];
        is get($server->port, '/lines/long')->{status}, 200, 'a long entry, which the newest client is sent';
    }
    my $more = memory_of($engine) - $before;
    cmp_ok $more, '<', 180, sprintf 'not all of them are kept: %.1f MB', $more;
    is $streams[0]->ending, 'cut', 'the client that is furthest behind is cut';
    my ($last) = publish($server, 'long', 1);
    ok gets($streams[-1], $last), 'the one that came last gets its entries';
    my ($place) = publish($server, 'other', 1);
    is $reader->message->{id}, $place, 'and so does a client that reads';
    ok wait_for(sub {
        my ($count) = get($status, '/metrics')->{body} =~ /^peregrine_topics_readers_cut_total (\d+)$/m;
        return $count > 10 && $count < 40;
        }),
        'the cuts are counted';
    is $server->stop, 0, 'the server stops';
};

done_testing;
