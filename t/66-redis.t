# Channels and topics over two servers with one Redis (redis-server), which is killed, emptied, cut off, full,
# and replaced by a program that answers nonsense: readers of topics get each entry once and in order, or a
# reset; and no ordinary request is the worse for any of it.
# Not repeated for each PEREGRINE_ENGINE: the hub is the same.
use strict;
use warnings;

use lib 't/lib';
use IO::Socket::INET;
use POSIX    ();
use JSON::PP ();
use Test::More;
use TestClient qw(get);
use TestRedis;
use TestServer;
use TestTools   qw(content free_port patience wait_for);
use TestWorkers qw(are_gone children directory is_gone pid_in stop_master write_file);
use TestWebSocket;
use Time::HiRes qw(sleep time);

plan skip_all => 'Linux only' if $^O ne 'linux';

my $redis = TestRedis->new or plan skip_all => 'redis-server is not installed';
my $app   = write_file('redis.pl', <<'APP');
use strict;
use warnings;
use Future::AsyncAwait;

async sub answer {
    my ($send, $body) = @_;
    my @headers = [ 'content-length', length $body ];
    await $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    await $send->({ type => 'http.response.body', body => $body });
}

# A reader of a topic, which says its position, entries and resets.
async sub reader {
    my ($scope, $receive, $send, $topic) = @_;
    await $send->({ type => 'websocket.accept' });
    my $since = $scope->{query_string} || undef;
    my $from  = eval { await $send->({ type => 'topic.subscribe', topic => $topic, since => $since }) };
    await $send->({ type => 'websocket.send', text => $from ? "from $from" : "failed $@" });
    while (1) {
        my $event = await $receive->();
        return if $event->{type} eq 'websocket.disconnect';
        await $send->({ type => 'websocket.send', text => 'reset' }) if $event->{type} eq 'topic.reset';
    }
}

# A channel, which says its name and its messages.
async sub channel {
    my ($scope, $receive, $send, $topic) = @_;
    await $send->({ type => 'websocket.accept' });
    await $scope->{'pagi.channels'}->subscribe($topic);
    await $send->({ type => 'websocket.send', text => $scope->{'pagi.channel'} });
    while (1) {
        my $event = await $receive->();
        return if $event->{type} eq 'websocket.disconnect';
        await $send->({ type => 'websocket.send', text => $event->{text} }) if $event->{type} eq 'x.y';
    }
}

async sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} eq 'lifespan';
    my (undef, $what, $name, $text) = split m{/}, $scope->{path}, 4;
    return await($what eq 'reader' ? reader(@_, $name) : channel(@_, $name)) if $scope->{type} eq 'websocket';
    return await answer($send, 'plain') if $what eq 'plain';
    my ($channels, $topics) = @{$scope}{qw(pagi.channels pagi.topics)};
    my $message = { type => 'x.y', text => $text };
    my $result = eval {
          $what eq 'append'   ? await $topics->publish($name, $text)
        : $what eq 'position' ? await $topics->position($name)
        : $what eq 'present'  ? (await $channels->presence($name))->{count}
        : $what eq 'readers'  ? (await $topics->presence($name))->{count}
        : $what eq 'publish'  ? await $channels->publish($name, $message)
        : $what eq 'send'     ? await $channels->send($name, $message)
        :                       'what?';
    } // "failed: $@";
    await answer($send, $result);
};
APP

sub server {
    my ($url, @more) = @_;
    return TestServer->command('--workers', 2, '--channels', $url, @more, $app);
}

sub said { my ($server, $path) = @_; return get($server->port, $path)->{body} }

# A WebSocket that reads a topic. Where a worker that leaves ends it at once (1012), the client comes again.
sub reader {
    my ($server, $topic, $since) = @_;
    my ($socket, $first);
    wait_for(sub {
        $socket = TestWebSocket->open($server->port, "/reader/$topic?" . ($since // ''));
        $first  = $socket->next;
        return $first !~ /\Aclose 1012/;
    });
    ($socket->{from}) = $first =~ /\Atext from (\S+)\z/ or die "not subscribed: $first\n";
    return $socket;
}

# The entries that a reader gets until the one with this text.
sub until_last {
    my ($socket, $last) = @_;
    my @got;
    while (@got < 2000) {
        my ($text) = $socket->next =~ /\Atext (.*)\z/s or return [ @got, 'nothing more' ];
        push @got, $text;
        return \@got if $text eq $last;
    }
    return \@got;
}

my $url = 'redis://127.0.0.1:' . $redis->port . '?prefix=t66:';
my ($port, $relay) = $redis->relay;
# The other server reaches Redis through a relay, by its name.
my @servers = (server($url), server("redis://localhost:$port?prefix=t66:"));

subtest 'channels' => sub {
    my @sockets = map { TestWebSocket->open($_->port, '/channel/room') } @servers;
    my @names   = map { $_->next =~ s/\Atext //r } @sockets;
    like said($servers[0], '/publish/room/hello'), qr/\A1/, 'one server publishes';
    is $_->next, 'text hello', 'a client gets that' for @sockets;
    is said($_, '/present/room'), 2, 'both servers tell who is there' for @servers;
    is said($servers[0], "/send/$names[1]/you"), 1,          'send reaches a channel of the other server';
    is $sockets[1]->next,                        'text you', 'which gets the message';
    is said($servers[0], '/send/conn.00000000000000ff.1/you'), 0, 'send tells of a channel that is none';
};

subtest 'topics' => sub {
    my @readers = map { reader($_, 'news') } @servers;
    is said($_, '/readers/news'), 2, 'both servers tell who reads' for @servers;
    my $position;
    for my $i (1 .. 20) { $position = said($servers[ $i % 2 ], "/append/news/$i") }
    is_deeply until_last($_, 20), [ 1 .. 20 ], 'readers of both servers get all in order' for @readers;
    is said($_, '/position/news'), $position, 'both servers tell the same position' for @servers;
    said($servers[0], "/append/news/$_") for 21 .. 23;
    is_deeply until_last(reader($servers[1], 'news', $position), 23), [ 21 .. 23 ],
        'a position of one server is known at the other one';
};

subtest 'another program writes to the stream of a topic' => sub {
    my $position = said($servers[0], '/append/mixed/1');
    said($servers[0], "/append/mixed/$_") for 2, 3;
    $redis->ask('XADD', 't66:{mixed}stream', '3-7', 'another', 'program');
    my $reader = reader($servers[1], 'mixed', $position);
    like said($servers[0], '/append/mixed/4'), qr/\A[0-9a-f]{12}\./, 'an entry is published behind that';
    is_deeply until_last($reader, 4), [ 2 .. 4 ], 'a reader gets all entries of the topic';
    ok $servers[1]->wait_for_log(qr/another program has written them/), 'the log tells of the other one';
    unlike $servers[1]->log, qr/Redis is away/, 'and of no connection that has ended';
};

# Publishes numbers; answers those that were acknowledged.
sub publish_all {
    my ($server, $first, $last) = @_;
    return grep { said($server, "/append/cut/$_") =~ /\A[0-9a-f]{12}\./ } $first .. $last;
}

# Each entry that was acknowledged came, in order, none twice; no reset.
sub is_whole {
    my ($got, $acknowledged, $what) = @_;
    my %must = map  { $_ => 1 } @$acknowledged;
    my @seen = grep { $must{$_} } @$got;
    is_deeply \@seen, $acknowledged, "$what: no gap";
    my %count;
    $count{$_}++ for @$got;
    is_deeply [ grep { $count{$_} > 1 } keys %count ], [], "$what: no repeat";
    return is scalar(grep { $_ eq 'reset' } @$got), 0, "$what: no reset";
}

subtest 'Redis is killed and started again' => sub {
    my @readers      = map { reader($_, 'cut') } @servers;
    my @acknowledged = publish_all($servers[0], 1, 10);
    $redis->kill;
    ok $servers[0]->wait_for_log(qr/hub: Redis is away: the connection was refused/), 'the log says it';
    my $began = time;
    is get($_->port, '/plain')->{body}, 'plain', 'a request is served' for @servers;
    cmp_ok time - $began, '<', patience(2), 'at once';
    like said($servers[0], '/publish/room/hello'), qr/failed: Unavailable/, 'publish fails';
    like said($servers[1], '/append/cut/lost'),    qr/failed: Un/,          'for topics, too';
    $redis->start;
    ok $servers[0]->wait_for_log(qr/hub: Redis is there again/), 'the log says that, too';
    push @acknowledged, publish_all($servers[1], 11, 20) while !@acknowledged || $acknowledged[-1] < 20;
    is_whole(until_last($_, 20), \@acknowledged, 'a reader') for @readers;
    my @sockets = map { TestWebSocket->open($_->port, '/channel/room') } @servers;
    $_->next for @sockets;
    said($servers[1], '/publish/room/again');
    is $_->next, 'text again', 'channels work again' for @sockets;
};

subtest 'a link is silent for ten seconds' => sub {
    my @readers = map { reader($_, 'cut') } @servers;
    my @sockets = map { TestWebSocket->open($_->port, '/channel/room') } @servers;
    $_->next for @sockets;
    kill STOP => $relay;
    my @acknowledged = publish_all($servers[0], 31, 40);
    is scalar @acknowledged, 10, 'the other server publishes meanwhile';
    my $began = time;
    while (time - $began < 10) {
        my $at = time;
        get($servers[1]->port, '/plain')->{body} eq 'plain' && time - $at < patience(2)
            or return fail 'a request is served at once';
        sleep 0.5;
    }
    pass 'requests are served at once';
    is said($servers[0], '/publish/room/meanwhile'), 1,                'channels: the other server publishes';
    is $sockets[0]->next,                            'text meanwhile', 'to its own clients';
    like said($servers[1], '/publish/room/cut'), qr/failed: Un/, 'behind the link publish fails';
    kill CONT => $relay;
    push @acknowledged, publish_all($servers[0], 41, 45);
    is_whole(until_last($_, 45), \@acknowledged, 'a reader') for @readers;
    ok wait_for(sub { return said($servers[1], '/publish/room/again') eq '1' }), 'publish works again';
    my %count;
    while (!$count{'text again'}) { $count{ $sockets[1]->next }++ }
    is_deeply [ grep { $_ ne 'text again' && $count{$_} > 1 } keys %count ], [], 'no message came twice';
    is $count{nothing}, undef, 'and subscriptions have stayed';
};

subtest 'a hub is killed: with Redis its topics are there' => sub {
    my @readers      = map { reader($_, 'cut') } @servers;
    my @acknowledged = publish_all($servers[0], 51, 55);
    my ($hub)        = grep { content("/proc/$_/cmdline") =~ /\(hub\)/ } children($servers[0]->pid);
    kill KILL => $hub;
    push @acknowledged, publish_all($servers[1], 56, 60);
    until ($acknowledged[-1] == 70) {
        push @acknowledged, publish_all($servers[0], $acknowledged[-1] + 1, 70);
    }
    is_whole(until_last($_, 70), \@acknowledged, 'a reader') for @readers;
};

subtest 'HUP: readers come back with their positions' => sub {
    my $reader    = reader($servers[0], 'cut');
    my $elsewhere = reader($servers[1], 'cut');
    my @old       = grep { content("/proc/$_/cmdline") !~ /\(hub\)/ } children($servers[0]->pid);
    $servers[0]->signal('HUP');
    my @acknowledged = publish_all($servers[1], 81, 90);
    # The old interpreter ends the connection when the new one is there.
    my $got   = until_last($reader, 90);
    my $again = reader($servers[0], 'cut', $reader->{from});
    is_whole(until_last($again,     90), \@acknowledged, 'one that comes back');
    is_whole(until_last($elsewhere, 90), \@acknowledged, 'one at the other server');
    ok wait_for(sub { are_gone(@old) }), 'the old interpreters go';
};

subtest 'FLUSHALL' => sub {
    my @readers = map { reader($_, 'cut') } @servers;
    publish_all($servers[0], 101, 103);
    is_deeply until_last($_, 103), [ 101 .. 103 ], 'before' for @readers;
    my @sockets = map { TestWebSocket->open($_->port, '/channel/room') } @servers;
    $_->next for @sockets;
    like $redis->ask('FLUSHALL'), qr/\A\+OK/, 'Redis is emptied';
    said($servers[0], '/publish/room/flushed');
    is $_->next, 'text flushed', 'subscriptions of channels stay' for @sockets;
    said($servers[1], '/append/cut/104');

    for (@readers) {
        my $got = until_last($_, 'reset');
        is $got->[-1], 'reset', 'a reader gets a reset';
    }
    said($servers[0], '/append/cut/105');
    is until_last($_, 105)->[-1], 105, 'and what follows' for @readers;
};

subtest 'the memory of Redis is full' => sub {
    $redis->ask(qw(CONFIG SET maxmemory 1));
    like said($servers[0], '/append/cut/110'), qr/failed: TooMany/, 'an entry fails';
    is get($_->port, '/plain')->{body}, 'plain', 'a request is served' for @servers;
    $redis->ask(qw(CONFIG SET maxmemory 0));
    like said($servers[0], '/append/cut/111'), qr/\A[0-9a-f]{12}\./, 'with room it does not';
};
is $_->stop, 0, 'the server stops' for @servers;

subtest 'USR2: topics are there when the old program has gone' => sub {
    my $pid_file  = directory() . '/redis.pid';
    my $server    = server($url, '--shutdown-timeout', 2, '--pid', $pid_file);
    my $reader    = reader($server, 'upgrade');
    my $old       = $server->pid;
    my $published = sub { my ($text) = @_; return said($server, "/append/upgrade/$text") };
    like $published->($_), qr/\A[0-9a-f]{12}\./, "$_ is published" for 1 .. 3;
    is_deeply until_last($reader, 3), [ 1 .. 3 ], 'a reader of the old program gets them';
    $server->signal('USR2');
    ok wait_for(sub { my $pid = pid_in('redis.pid'); return $pid && $pid != $old }), 'a new program serves';
    my @acknowledged = grep { $published->($_) =~ /\A[0-9a-f]{12}\./ } 4 .. 10;
    ok wait_for(sub { is_gone($old) }),                              'the old one goes';
    ok wait_for(sub { $published->('last') =~ /\A[0-9a-f]{12}\./ }), 'the hub of the new one publishes';
    my $got = until_last(reader($server, 'upgrade', $reader->{from}), 'last');
    is_whole($got, [ 1 .. 3, @acknowledged ], 'a reader that comes back');
    stop_master('redis.pid');
};

subtest 'user, password, and status' => sub {
    $redis->ask(qw(ACL SETUSER ann on >sec:ret ~t66:* &t66:* +@all));
    my $status    = free_port();
    my $authority = '127.0.0.1:' . $redis->port;
    my $server    = server("redis://ann:sec%3Aret\@$authority?prefix=t66:", '--status', "127.0.0.1:$status");
    like said($server, '/append/news/1'), qr/\A[0-9a-f]{12}\./, 'a user with a password';
    my $facts = JSON::PP::decode_json(get($status, '/status.json')->{body})->{channels};
    is $facts->{redis}, 2, 'the status tells that Redis is there';
    like get($status, '/metrics')->{body}, qr/^peregrine_channels_redis_up 1$/m, 'as do metrics';
    is $server->stop, 0, 'it stops';
    my $wrong = server("redis://ann:wrong\@$authority?prefix=t66:");
    ok $wrong->wait_for_log(qr/hub: Redis is away: it refuses user or password/), 'a wrong password: the log';
    like said($wrong, '/append/news/1'), qr/failed: Unavailable/, 'calls fail';
    is said($wrong, '/plain'), 'plain', 'requests are served';
    unlike $wrong->log, qr/wrong.*\@/, 'the log does not have the password';
};

subtest 'a user who may not subscribe' => sub {
    $redis->ask(qw(ACL SETUSER bob on >secret ~t66:* resetchannels +@all));
    my $server  = server('redis://bob:secret@127.0.0.1:' . $redis->port . '?prefix=t66:');
    my $refuses = qr/hub: Redis is away: it refuses because its user may not do that/;
    ok $server->wait_for_log($refuses), 'the log says it';
    my $count  = sub { return ($redis->ask(qw(INFO stats)) =~ /total_connections_received:(\d+)/)[0] };
    my $before = $count->();
    sleep 5;
    cmp_ok $count->() - $before, '<', 12, 'the hub does not ask again and again';
    my @said = $server->log =~ /hub: Redis/g;
    is scalar @said, 1, 'and says it once';
    $redis->ask(qw(ACL SETUSER bob &t66:*));
    ok $server->wait_for_log(qr/hub: Redis is there again/), 'until he may';
    like said($server, '/append/news/3'), qr/\A[0-9a-f]{12}\./, 'then calls are done';
    is $server->stop, 0, 'the server stops';
};

subtest 'a program that is no Redis' => sub {
    my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1:0', Listen => 20) or die "a port: $@";
    defined(my $pid = fork)                                                        or die "fork: $!";
    if (!$pid) {
        while (my $client = $listener->accept) { print {$client} "HTTP/1.1 400 Bad Request\r\n\r\n" x 100 }
        POSIX::_exit(0);
    }
    my $server = server('redis://127.0.0.1:' . $listener->sockport);
    ok $server->wait_for_log(qr/hub: Redis is away: its answers are not those of Redis/), 'the log says it';
    like said($server, '/append/news/1'), qr/failed: Unavailable/, 'calls fail';
    my $began = time;
    is said($server, '/plain'), 'plain', 'requests are served' for 1 .. 20;
    cmp_ok time - $began, '<', patience(2), 'at once';
    is $server->stop, 0, 'the server stops';
    kill KILL => $pid;
    waitpid $pid, 0;
};

subtest 'a server in one process' => sub {
    my $server = TestServer->command('--channels', $url, $app);
    like said($server, '/append/news/2'), qr/\A[0-9a-f]{12}\./, 'the hub is a thread';
    $redis->kill;
    ok $server->wait_for_log(qr/hub: Redis is away/), 'which the log is told of';
    is said($server, '/plain'), 'plain', 'requests are served';
    is $server->stop,           0,       'the server stops';
};

done_testing;
