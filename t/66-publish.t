# Publishing to topics from where no event loop is: an application of PSGI, a program of its own, the command
# peregrine publish; through a socket that is its user's alone, over the death of a hub and a hot upgrade.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Peregrine::Publisher;
use Socket qw(AF_UNIX PF_UNSPEC SOCK_SEQPACKET SOCK_STREAM pack_sockaddr_un);
use Test::More;
use TestClient qw(get);
use TestServer;
use TestStream;
use TestTools   qw(content patience wait_for);
use TestWorkers qw(children directory is_gone pid_in stop_master write_file);
use Time::HiRes qw(ITIMER_REAL setitimer);

plan skip_all => 'Linux only' if $^O ne 'linux';

my $psgi = write_file('publish.psgi', <<'PERL');
use Peregrine::Publisher;
my $publisher;
sub {
    my ($env) = @_;
    $publisher ||= eval { Peregrine::Publisher->of_server };
    my (undef, $topic, $text) = split m{/}, $env->{PATH_INFO};
    my $said = $publisher ? eval { $publisher->publish($topic, $text) } // "failed: $@" : 'no channels';
    return [ 200, [], [ $said ] ];
};
PERL

my $pagi = write_file('read.pl', <<'PERL');
use Future::AsyncAwait;
async sub {
    my ($scope, $receive, $send) = @_;
    die "event streams only\n" if $scope->{type} ne 'sse';
    await $send->({ type => 'sse.start' });
    my ($last) = map { $_->[1] } grep { $_->[0] eq 'last-event-id' } @{ $scope->{headers} };
    await $send->({ type => 'topic.subscribe', topic => 'news', since => $last });
    await $send->({ type => 'sse.comment', comment => 'begins' });
    while ((await $receive->())->{type} ne 'sse.disconnect') { }
};
PERL

my $place = qr/[0-9a-f]{12}\.\d+\.[0-9a-f]{12}/;

sub stream {
    my ($server, $since) = @_;
    my $stream =
        TestStream->open($server->port, '/read', $since ? (fields => ["Last-Event-ID: $since"]) : ());
    $stream->block if !$since;
    return $stream;
}

# The output of a command, and its exit status.
sub command {
    my ($input, @words) = @_;
    my $file = write_file('input', $input);
    my $said = qx{$^X -Mblib=. bin/peregrine publish @words < $file 2>&1};
    return ($said, $? >> 8);
}

my $number = 0;
for my $how (
    [ 'one process, thread'  => '--engine', 'thread' ],
    [ 'two workers, process' => '--engine', 'process', '--workers', 2 ],
    only_in_full(
        [ 'one process, inline'       => '--engine', 'inline' ],
        [ 'two workers, inline'       => '--engine', 'inline', '--workers', 2 ],
        [ 'two workers of a template' => '--engine', 'inline', '--workers', 2, '--preload-app' ],
    ),
    )
{
    my ($title, @arguments) = @$how;
    subtest $title => sub {
        my $path   = directory() . '/s' . ++$number;
        my $server = TestServer->command_of(
            'peregrine', @arguments, '--channels',  '--channels-socket',
            $path,       '--mount',  "/read=$pagi", '--mount',
            "/psgi=$psgi"
        );
        ok wait_for(sub { -S $path }), 'there is a socket';
        is sprintf('%o', (stat $path)[2] & oct 777), '600', 'for its user alone';
        my $stream = stream($server);
        my $first  = get($server->port, '/psgi/news/one')->{body};
        like $first, qr/\A$place\z/, 'an application of PSGI publishes';
        my $publisher = Peregrine::Publisher->new(socket => $path);
        is $publisher->position('news'), $first, 'a program asks for the position';
        my $second = $publisher->publish(news => 'two');
        my ($said, $status) = command('', '--channels-socket', $path, 'news', 'three');
        like $said, qr/\A$place\n\z/, 'a command publishes';
        is $status, 0, 'and says so';
        ($said) = command("four\n\nfive\n", '--channels-socket', $path, 'news');
        is + (() = $said =~ /^$place$/mg), 2, 'or each line that it reads';
        is_deeply [ map { $stream->message->{data} } 1 .. 5 ], [qw(one two three four five)],
            'and a client gets all of it';
        my $back = stream($server, $second);
        is + (grep { defined } map { $back->message->{data} } 1, 2)[0], 'three', 'behind a position, too';
        is $server->stop,                                               0,       'the server stops';
        ok !-e $path, 'and takes its socket along';
    };
}

my $path   = directory() . '/socket';
my $config = write_file('app.conf', "channels = 1\nchannels-socket = $path\nworkers = 2\n");
my $server =
    TestServer->command_of('peregrine', '-c', $config, '--mount', "/read=$pagi", '--mount', "/psgi=$psgi");

subtest 'what is refused' => sub {
    my $publisher = Peregrine::Publisher->new(socket => $path);
    for my $case (
        [ 'a b',     'x',           'InvalidTopicName' ],
        [ "news\n",  'x',           'InvalidTopicName' ],
        [ 'a' x 101, 'x',           'InvalidTopicName' ],
        [ 'news',    '',            'InvalidMessage' ],
        [ 'news',    undef,         'InvalidMessage' ],
        [ 'news',    "\x{263a}",    'InvalidMessage' ],
        [ 'news',    'x' x 1048577, 'MessageTooLarge' ],
        )
    {
        is eval { $publisher->publish(@$case[ 0, 1 ]) }, undef,          "publish dies: $case->[2]";
        is $@,                                           "$case->[2]\n", 'with that name';
    }
    like $publisher->publish(news => 'x' x 1048576), qr/\A$place\z/, 'the longest entry';
    is eval { Peregrine::Publisher->of_server }, undef, 'this process has no server';
    my $nobody = Peregrine::Publisher->new(socket => directory() . '/nobody');
    local $SIG{__WARN__} = sub { fail("warned: $_[0]") };
    is eval { $nobody->publish(news => 'x') }, undef,           'nobody listens';
    is $@,                                     "Unavailable\n", 'Unavailable';
    my ($said, $status) = command('', '--config', $config, 'a/b', 'x');
    is_deeply [ $said, $status ], [ "publish: InvalidTopicName\n", 1 ], 'a command that fails says why';
    ($said, $status) = command('', 'news', 'x');
    like $said, qr/publish needs --channels-socket/, 'a command without a socket';
    isnt $status, 0, 'is wrong';
};

subtest 'a socket with as many connections as may wait' => sub {
    my $path    = directory() . '/full';
    my $address = pack_sockaddr_un($path);
    socket my $deaf, AF_UNIX, SOCK_STREAM, PF_UNSPEC or die "socket: $!\n";
    bind $deaf, $address or die "bind: $!\n";
    listen $deaf, 0 or die "listen: $!\n";
    my @waiting;
    while (1) {
        socket my $one, AF_UNIX, SOCK_STREAM, PF_UNSPEC or die "socket: $!\n";
        $one->blocking(0);
        connect $one, $address or last;
        push @waiting, $one;
    }
    ok $!{EAGAIN} && @waiting, 'no further one may wait';
    local $SIG{ALRM} = sub { die "the call does not end\n" };
    alarm patience(30);
    my $publisher = Peregrine::Publisher->_new(socket => $path, patience => 0.5);
    ok !eval { $publisher->publish(news => 'text'); 1 }, 'a call fails';
    is $@, "Unavailable\n", '... when its time is up';
    alarm 0;
};

subtest 'a Redis that is not there' => sub {
    socketpair my $join, my $end, AF_UNIX, SOCK_SEQPACKET, PF_UNSPEC or die "socketpair: $!";
    my $hub = Peregrine::HubHandle->new(fileno $end, -1, 'redis://127.0.0.1:1', '', 100, 100_000, 60_000);
    is eval { Peregrine::Publisher->_new(join => $join)->publish(news => 'x') }, undef, 'publish dies';
    is $@, "Unavailable\n", 'Unavailable: it has had no effect';
};

subtest 'a fork' => sub {
    my $publisher = Peregrine::Publisher->new(socket => $path);
    my $before    = $publisher->publish(forked => 'parent');
    my $pid       = fork // die "fork: $!";
    if (!$pid) {
        $publisher->publish(forked => 'child') for 1 .. 50;
        require POSIX;
        POSIX::_exit(0);
    }
    $publisher->publish(forked => 'parent') for 1 .. 50;
    waitpid $pid, 0;
    is $?, 0, 'a child publishes with the same object';
    like $publisher->position('forked'), qr/\A\w+\.101\./, 'and no entry is lost or comes twice';
};

sub hub_of {
    my ($of)  = @_;
    my ($hub) = grep { (content("/proc/$_/cmdline") // '') =~ /\(hub\)/ } children($of->pid);
    return $hub;
}

subtest 'signals come while the hub is busy' => sub {
    my $publisher = Peregrine::Publisher->new(socket => $path);
    like $publisher->publish(news => 'before'), qr/\A$place\z/, 'a connection';
    my ($hub, $signals) = (hub_of($server), 0);
    local $SIG{ALRM} = sub { kill CONT => $hub if ++$signals == 3 };
    kill STOP => $hub;
    wait_for(sub {
        !grep { content($_) !~ /^State:\s+T/m } glob "/proc/$hub/task/*/status";
    }) or die 'no stop';
    setitimer(ITIMER_REAL, 0.05, 0.05);
    my $position = eval { $publisher->publish(news => 'meanwhile') };
    my $failure  = $@;
    setitimer(ITIMER_REAL, 0);
    kill CONT => $hub;
    cmp_ok $signals, '>=', 3, 'the hub was stopped until the third of them';
    like $position, qr/\A$place\z/, 'the program has its answer' or diag $failure;
};

subtest 'the hub dies' => sub {
    my $publisher = Peregrine::Publisher->new(socket => $path);
    my $before    = $publisher->publish(news => 'before');
    kill KILL => hub_of($server);
    my $after;
    ok wait_for(sub {
        return $after = eval { $publisher->publish(news => 'after') }
        }),
        'the same object publishes again';
    isnt + (split /\./, $after)[0], (split /\./, $before)[0], 'to another history';
    ok wait_for(sub { get($server->port, '/psgi/news/psgi')->{body} =~ /\A$place\z/ }), 'an application, too';
};
$server->stop;

subtest 'USR2' => sub {
    my $socket   = directory() . '/usr2';
    my $pid_file = directory() . '/usr2.pid';
    my $upgraded = TestServer->command_of('peregrine', qw(--workers 1 --channels --channels-socket),
        $socket, '--pid', $pid_file, '--mount', "/read=$pagi", '--mount', "/psgi=$psgi");
    my $publisher = Peregrine::Publisher->new(socket => $socket);
    my $before    = $publisher->publish(news => 'before');
    my $old       = $upgraded->pid;
    $upgraded->signal('USR2');
    ok wait_for(sub { my $pid = pid_in('usr2.pid'); return $pid && $pid != $old }), 'a new program serves';
    ok wait_for(sub { is_gone($old) }),                                             'the old one is gone';
    ok -S $socket,                                                                  'its socket is there';
    ok wait_for(sub {
        return eval { Peregrine::Publisher->new(socket => $socket)->publish(news => 'after') }
        }),
        'and leads to the hub of the new one';
    stop_master('usr2.pid');
    ok wait_for(sub { !-e $socket }), 'which takes it along at its end';
};

is get(TestServer->command_of('peregrine', $psgi)->port, '/news/x')->{body}, 'no channels',
    'without the option there is no hub';

done_testing;
