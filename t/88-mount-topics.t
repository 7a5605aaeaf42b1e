# A mount that is confined to its own topics: whatever its workers say, they name no other topic and reach no
# channel of other mounts, are told so by name, and lose nothing of their own.
# Not repeated for each PEREGRINE_ENGINE: mounts have workers of their own with `process` only.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;
use TestClient qw(get);
use TestRedis;
use TestServer;
use TestStream;
use TestTools   qw(content wait_for);
use TestWorkers qw(children directory is_gone pid_in stop_master write_file);

plan skip_all => 'Linux only' if $^O ne 'linux';

# The path ends with an action, a name, and perhaps another one.
write_file('topics.pl', <<'PERL');
use Future::AsyncAwait;

my %actions = (
    publish  => sub { $_[0]{'pagi.topics'}->publish($_[1], 'x') },
    position => sub { $_[0]{'pagi.topics'}->position($_[1]) },
    readers  => sub { $_[0]{'pagi.topics'}->presence($_[1]) },
    members  => sub { $_[0]{'pagi.channels'}->presence($_[1]) },
    message  => sub { $_[0]{'pagi.channels'}->publish($_[1], { type => 'test.mail' }) },
    join     => sub { $_[0]{'pagi.channels'}->subscribe($_[1]) },
    send     => sub { $_[0]{'pagi.channels'}->send($_[1], { type => 'test.mail' }) },
    add      => sub { $_[0]{'pagi.channels'}->group_add($_[1], $_[2]) },
    discard  => sub { $_[0]{'pagi.channels'}->group_discard($_[1], $_[2]) },
    flush    => sub { $_[0]{'pagi.channels'}->flush },
    pid      => sub { Future->done($$) },
);

async sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} eq 'lifespan';
    my ($action, @names) = $scope->{path} =~ m{/([a-z]+)/([^/]+)(?:/([^/]+))?\z};
    if ($scope->{type} eq 'sse') {
        await $send->({ type => 'sse.start' });
        my $said = eval { await $send->({ type => 'topic.subscribe', topic => $names[0] }); 1 }
            ? 'reads' : "failed: $@";
        await $send->({ type => 'sse.send', event => 'begins', data => "$scope->{'pagi.channel'} $said" });
        while ((my $type = (await $receive->())->{type}) ne 'sse.disconnect') {
            await $send->({ type => 'sse.send', event => 'mail', data => $type }) if $type =~ /\Atest/;
        }
        return;
    }
    my $said = eval { await $actions{$action}->($scope, @names) };
    $said = defined $said ? ref $said ? "$said->{count} @{ $said->{channels} }" : $said : "failed: $@";
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body', body => $said });
};
PERL

# `any` publishes by each socket that leads somewhere, as code does that breaks out of its mount. `hold` has a
# response held for a topic that the settings of its mount refuse.
write_file('topics.psgi', <<'PERL');
use Peregrine::Publisher;
use Plack::Handler::Peregrine::Grip;
use Socket qw(SOL_SOCKET SO_TYPE SOCK_SEQPACKET);

sub try_all {
    my ($topic) = @_;
    my @said;
    for my $number (map { m{/(\d+)\z} } glob "/proc/$$/fd/*") {
        open my $socket, '+<&', $number or next;
        my $type = getsockopt $socket, SOL_SOCKET, SO_TYPE;
        next if !defined $type || unpack('i', $type) != SOCK_SEQPACKET;
        my $publisher = Peregrine::Publisher->_new(join => $socket, patience => 1);
        push @said, eval { $publisher->publish($topic, 'broken out') } // $@ =~ s/\n//r;
    }
    return "@said";
}

sub {
    my ($env) = @_;
    my ($action, $topic) = $env->{PATH_INFO} =~ m{/([a-z_]+)/([^/]+)\z};
    if ($action eq 'hold') {
        no warnings 'redefine';
        *Plack::Handler::Peregrine::Grip::instruction = sub { return [ 0, 0, 0, '', $topic, '', 0 ] };
        return [ 200, [ 'Content-Type' => 'text/event-stream', 'Grip-Hold' => 'stream',
            'Grip-Channel' => $topic ], [": begins\n", "\n"] ];
    }
    return [ 200, [], [ try_all($topic) ] ] if $action eq 'any';
    my $what = $action eq 'publish_message' ? { type => 'test.mail' } : 'x';
    return [ 200, [], [ eval { Peregrine::Publisher->of_server->$action($topic, $what) } // "failed: $@" ] ];
};
PERL

my $dir   = directory();
my $place = qr/[0-9a-f]{12}\.\d+\.[0-9a-f]{12}/;

sub started {
    my ($settings, @more) = @_;
    return machine($settings, '--channels', '--channels-socket', "$dir/topics.sock", @more);
}

sub machine {
    my ($settings, @more) = @_;
    chmod 0755, $dir;
    return TestServer->command_of(
        'peregrine',
        qw(--engine process --workers 1),
        @more,
        map { ('--mount', $_) } "/=$dir/topics.pl,pagi",
        "/own=$dir/topics.pl,pagi,workers=2,topics=own.$settings",
        "/psgi=$dir/topics.psgi,psgi,workers=1,topics=own.,grip=own.$settings"
    );
}

sub said {
    my ($server, $path) = @_;
    # Expected: its process has just ended.
    my $answer = eval { get($server->port, $path) } or return '';
    return $answer->{status} == 200 ? $answer->{body} : "status $answer->{status}";
}

# A mount has its workers a moment after its server has.
sub serves {
    my ($server) = @_;
    return 2 == grep {
        my $path = $_;
        wait_for(sub { said($server, $path) =~ /\A$place/ })
    } qw(/own/publish/own.begins /psgi/publish/own.begins);
}

sub stream {
    my ($server, $path) = @_;
    my $stream = TestStream->open($server->port, $path);
    my ($channel, $said) = $stream->message->{data} =~ /\A(\S+) (.*)/s;
    return ($stream, $channel, $said);
}

# The rules that hold at all times.
sub is_confined {
    my ($server, $when) = @_;
    for my $path ((map { "/own/$_/main.x" } qw(publish position readers members message join send)),
        '/own/flush/all', map { "/psgi/$_/main.x" } qw(publish position publish_message counts))
    {
        my $refused = wait_for(sub { said($server, $path) =~ /\Afailed: Forbidden\b/ });
        ok $refused, "$when: $path is refused by name";
        diag said($server, $path) if !$refused;
    }
    like said($server, "/$_/own.x"), qr/\A$place\z/, "$when: $_ in its own topics"
        for qw(own/publish psgi/publish);
    like said($server, "/publish/$_"), qr/\A$place\z/, "$when: a mount without the setting publishes to $_"
        for qw(main.x own.x);
    return;
}

# A confined mount, asked at a server, reaches its own channel, whose stream may be on another machine, and no
# channel of another mount.
sub has_own_channels {
    my ($server, $channel, $own, $other) = @_;
    like said($server, "/own/$_"), qr/\Afailed: Forbidden/, "$_ is refused"
        for "send/$other", "add/own.y/$other", "discard/own.y/$other", "add/main.y/$channel";
    is said($server, "/own/send/$channel"),      1,            'a channel of its own can be reached';
    is $own->message->{data},                    'test.mail',  '... and has its message';
    is said($server, "/own/add/own.y/$channel"), 1,            'and be subscribed';
    is said($server, '/own/members/own.y'),      "1 $channel", '... as is told';
    like said($server, "/add/main.y/$channel"), qr/\Afailed: Forbidden/,
        'no other mount subscribes it to a topic that is not its own';
    return;
}

my @users = $> == 0 ? (',user=daemon', only_in_full('')) : ('');
for my $settings (@users) {
    subtest "workers of one mount$settings" => sub {
        my $server = started($settings);
        ok serves($server), 'the mounts serve' or return;
        is_confined($server, 'at first');

        my ($main, $other, $said) = stream($server, '/sse/main.x');
        is $said, 'reads', 'a stream of another mount';
        my ($own, $channel, $reads) = stream($server, '/own/sse/own.x');
        is $reads, 'reads', 'a stream of its own topic';
        my (undef, undef, $refused) = stream($server, '/own/sse/main.x');
        like $refused, qr/\Afailed: Forbidden/, 'topic.subscribe to another one is refused by name';

        my $first = said($server, '/publish/own.x');
        is $own->message->{id},                 $first,       'the engine delivers its topic';
        is said($server, '/own/readers/own.x'), "1 $channel", 'it is told who reads that';

        has_own_channels($server, $channel, $own, $other);
        is said($server, '/message/own.y'), 1,           'another mount sends to its topics';
        is $own->message->{data},           'test.mail', '... which arrives';

        my @sockets = split ' ', said($server, '/psgi/any/main.x');
        ok @sockets >= 2, 'a process of the mount has sockets';
        is_deeply [ grep { !/\A(?:Forbidden|Unavailable)\z/ } @sockets ], [], 'none leads to other topics';
        is scalar(grep { $_ eq 'Forbidden' } @sockets), 1, 'one leads to the hub, which refuses them';
        my @its = split ' ', said($server, '/psgi/any/own.x');
        is scalar(grep { /\A$place\z/ } @its), 1, '... and takes its own';

        my $held = TestStream->open($server->port, '/psgi/hold/own.x');
        $held->block;
        is get($server->port, '/psgi/hold/main.x')->{status}, 500, 'no response is held for another topic';
        ok $server->wait_for_log(qr{the mount /psgi may not have a response held for the topic main\.x}),
            'and the log says why';
        like said($server, '/publish/main.x'), qr/\A$place/, 'another mount publishes to its topic';
        is $main->message->{data}, 'x', '... and has that entry';
        unlike said($server, '/readers/main.x'), qr/\Q$channel\E/, 'and no reader of the confined one';
        is $server->stop, 0, 'the server stops';
    };
}

subtest 'reloads, a hub that dies, programs from outside, and a hot upgrade' => sub {
    my $server = started('', '--pid', "$dir/topics.pid", '--shutdown-timeout', 1);
    ok serves($server), 'the mounts serve' or return;
    my $pid = said($server, '/own/pid/x');
    my ($reloaded) = TestServer->finish_of(qw(peregrine reload /own), $server->pid);
    is $reloaded, 0, 'peregrine reload /own';
    ok wait_for(sub { is_gone($pid) }), '... replaces its workers';
    is_confined($server, 'after the reload');
    $pid = said($server, '/own/pid/x');
    $server->signal('HUP');
    ok wait_for(sub { is_gone($pid) }), 'HUP replaces them';
    is_confined($server, 'after HUP');
    my ($hub) = grep { (content("/proc/$_/cmdline") // '') =~ /\(hub\)/ } children($server->pid);
    kill KILL => $hub;
    ok wait_for(sub { said($server, '/own/publish/own.x') =~ /\A$place/ }), 'another hub serves the mount';
    is_confined($server, 'with another hub');
    my $published = sub {
        my ($topic) = @_;
        my $said = qx{$^X -Mblib=. bin/peregrine publish --channels-socket $dir/topics.sock $topic text 2>&1};
        return $? == 0 ? $said : "status $?: $said";
    };
    like $published->($_), qr/$place/, "peregrine publish $_" for qw(own.x main.x);
    my $old = $server->pid;
    $server->signal('USR2');
    ok wait_for(sub { my $new = pid_in('topics.pid'); return $new && $new != $old }), 'USR2: a new program';
    ok serves($server), 'which serves the mounts';
    is_confined($server, 'while both programs run, or after that');
    ok wait_for(sub { is_gone($old) }), 'the old program goes';
    ok serves($server),                 'the mounts have a hub';
    is_confined($server, 'with the hub of the new program');
    ok stop_master('topics.pid'), 'and that stops';
};

# The rights of clients of the join socket are tried by t/66-redis-confined.t.
subtest 'two machines with one Redis' => sub {
    my $redis    = TestRedis->new or plan skip_all => 'redis-server is not installed';
    my $url      = 'redis://127.0.0.1:' . $redis->port . '?prefix=mounts:';
    my @machines = map { machine('', '--shutdown-timeout', 1, '--channels', $url) } 1 .. 2;
    ok serves($_), 'the mounts serve' or return for @machines;
    is_confined($machines[$_], 'machine ' . (1 + $_)) for 0, 1;

    my ($one, $two) = @machines;
    my ($main, $other)   = stream($two, '/sse/main.x');
    my ($own,  $channel) = stream($two, '/own/sse/own.x');
    ok wait_for(sub { said($one, '/own/readers/own.x') eq "1 $channel" }),
        'a mount is told who reads its topic on the other machine';
    has_own_channels($one, $channel, $own, $other);
    my $position = said($one, '/own/publish/own.x');
    is $own->message->{id},               $position, 'an entry is delivered there';
    is said($two, '/own/position/own.x'), $position, '... with the same position';
    like said($one, '/publish/main.x'), qr/\A$place/, 'another mount publishes to its topic';
    is $main->message->{data}, 'x', '... and a stream there has that entry, and no other before';
    is $_->stop,               0,   'a server stops' for @machines;
};

subtest 'what is refused at the start' => sub {
    for my $case (
        [ 'topics=own.',                        qr/setting 'topics' is for workers that only this mount/ ],
        [ 'workers=1,topics=a/b',               qr/setting 'topics' must be the beginning of names of/ ],
        [ 'workers=1,topics=own.,channels=off', qr/setting 'topics' needs topics/ ],
        [ 'workers=1,topics=own.,grip=app.',    qr/setting 'grip' begins with 'own\.'/ ],
        [ 'workers=1,topics=own.',              qr/setting 'topics' is about --channels, which are off/ ],
        )
    {
        my ($settings, $why) = @$case;
        my $mount = "/x=$dir/topics.psgi,psgi,$settings";
        my ($status, undef, $error) =
            TestServer->finish_of('peregrine', qw(--check --engine process --workers 1 --mount), $mount);
        isnt $status, 0, "$settings is refused";
        like $error, $why, 'and why';
    }
};

done_testing;
