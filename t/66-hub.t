# The hub of channels and topics: limits that the operator chooses, its counts in the status, and a hub whose
# thread hangs.
# Not repeated for each PEREGRINE_ENGINE: its servers name their engines.
use strict;
use warnings;

use lib 't/lib';
use Config;
use JSON::PP ();
use POSIX    qw(WNOHANG);
use Peregrine::Publisher;
use Socket qw(AF_UNIX PF_UNSPEC SOCK_SEQPACKET SOCK_STREAM);
use Test::More;
use TestChannels qw(application asked);
use TestClient   qw(get);
use TestServer;
use TestTools   qw(content free_port wait_for);
use TestWorkers qw(children directory is_gone);

plan skip_all => 'Linux only' if $^O ne 'linux';

my $app    = application();
my $socket = directory() . '/socket';
my $status = free_port();
my $nodes  = 0;
my $server = TestServer->command(
    qw(--workers 2 --channels --channels-capacity 2 --channels-expiry 1 --channels-message-size 2K),
    '--channels-socket', $socket, '--status', "127.0.0.1:$status", $app);
my $message = { type => 'x.y' };
my $call    = sub { return asked($server, '/calls', [@_]) };

subtest 'limits' => sub {
    is_deeply $call->(map { [ send => 'me', $message ] } 1 .. 3), [ 1, 1, 'ChannelFull' ],
        'channels_capacity: two messages wait, a third does not';
    is_deeply $call->([ publish => 't', { %$message, text => 'x' x 3000 } ]), ['MessageTooLarge'],
        'channels_message_size: 3000 bytes are too long';
    is_deeply $call->([ publish => 't', { %$message, text => 'x' x 1000 } ]), [1], '1000 are not';
    is_deeply $call->(
        [ send  => 'me', $message ],
        [ send  => 'me', $message ],
        [ sleep => 1.2 ],
        [ send  => 'me', $message ],
    )->[-1], 1, 'channels_expiry: the first ones are gone after a second';
};

subtest 'the status' => sub {
    my $publisher = Peregrine::Publisher->new(socket => $socket);
    $publisher->publish(counted => $_) for 1 .. 3;
    my $facts;
    ok wait_for(sub {
        $facts = JSON::PP::decode_json(get($status, '/status.json')->{body})->{channels};
        return $facts && $facts->{dropped_full} && $facts->{dropped_expired};
        }),
        'interpreters tell the hub of messages that they have dropped';
    is $facts->{entries},      3, 'entries';
    is $facts->{topics},       1, 'topics with history';
    is $facts->{dropped_full}, 1, 'messages that found their mailbox full';
    cmp_ok $facts->{dropped_expired}, '>=', 1, 'messages that waited for too long';
    cmp_ok $facts->{sent},            '>=', 6, 'messages to single channels';
    is $facts->{entry_bytes}, 3, 'bytes of entries';
    cmp_ok $facts->{message_bytes}, '>', $facts->{mailed_bytes}, 'bytes of messages: some came to no mailbox';
    cmp_ok $facts->{mailed},        '>=', 5,                     'messages that came to mailboxes';
    my $metrics = get($status, '/metrics')->{body};
    like $metrics, qr/^peregrine_topics_entries_total 3$/m,                    'as metrics';
    like $metrics, qr/^peregrine_channels_dropped_total\{reason="full"\} 1$/m, 'by reason';
};

# ---- Nodes --------------------------------------------------------------------------------------

# The frames and the answer of engine/src/hub/wire.zig, and the limits of engine/src/hub: questions without an
# answer of one node, of a mount that is confined, and of all nodes.
use constant { HELLO => 0, SUBSCRIBE => 1, SYNC => 8, WHO => 27, TOO_MANY => 3 };
use constant { INTERPRETER_QUESTIONS => 100, MOUNT_QUESTIONS => 125, QUESTIONS => 1000 };
use constant LAST => 1000;
use constant HEAD => 'L< C C S< L< Q< L<';

sub frame {
    my ($kind, $number, $name, $extra) = @_;
    my $rest = $name . ($extra // '');
    return pack(HEAD, 20 + length $rest, $kind, 0, length $name, $number, 0, length($extra // '')) . $rest;
}

# A connection of a node that has said these frames.
sub node {
    my ($hub, @frames) = @_;
    my $secret = pack 'Q< Q<', 0, ++$nodes;
    socketpair my $here, my $there, AF_UNIX, SOCK_STREAM, PF_UNSPEC or die "socketpair: $!";
    Peregrine::send_descriptors(fileno $hub->{hub_join}, 'j', fileno $there);
    my $bytes = join '', frame(HELLO, Peregrine::Publisher::WIRE(), '', $secret), map { frame(@$_) } @frames;
    syswrite($here, $bytes) == length $bytes or die "a node's socket: $!";
    return $here;
}

# The number of requests that a node had no room for, until its last one is answered.
sub refused {
    my ($node)  = @_;
    my $bytes   = '';
    my $refused = 0;
    while (sysread $node, $bytes, 65_536, length $bytes) {
        while (length $bytes >= 24 && length $bytes >= 4 + unpack 'L<', $bytes) {
            my ($length, $kind, $code, undef, $number) = unpack HEAD, $bytes;
            substr $bytes, 0, 4 + $length, '';
            return $refused if $number == LAST;
            $refused++      if $code == TOO_MANY;
        }
    }
    return 'the connection has ended';
}

# Linux: waits for threads of others, too.
use constant WALL => 0x4000_0000;

# Stops one thread of a process, as a debugger does.
sub hang {
    my ($process) = @_;
    my ($thread)  = grep { $_ != $process } map { m{(\d+)\z} } glob "/proc/$process/task/*";
    my ($ptrace, $seize, $interrupt) = (101, 0x4206, 0x4207);
    return if syscall($ptrace, $seize,     $thread + 0, 0, 0) != 0;
    return if syscall($ptrace, $interrupt, $thread + 0, 0, 0) != 0;
    return waitpid($thread, WALL) == $thread ? $thread : undef;
}

# Sets the limit of descriptors of another process; the limit before.
sub limit_descriptors {
    my ($process, $limit) = @_;
    my ($before) = `prlimit --pid $process --nofile --noheadings --raw --output SOFT 2>&1` =~ /\A(\d+)$/;
    return $before && !system('prlimit', '--pid', $process, "--nofile=$limit:") ? $before : undef;
}

subtest 'a hub that has no descriptors left' => sub {
    my ($hub) = grep { (content("/proc/$_/cmdline") // '') =~ /\(hub\)/ } children($server->pid);
    # Descriptors of nodes have higher numbers; and for the hub to wait for all it has there must be as many.
    my $least = 8;
    plan skip_all => 'descriptors have other numbers' if grep { !-l "/proc/$hub/fd/$_" } 0 .. $least - 1;
    my $before = limit_descriptors($hub, $least);
    plan skip_all => 'there is no prlimit' if !$before;
    my $pid = get($server->port, '/pid')->{body};
    kill KILL => $pid;
    ok $server->wait_for_log(qr/no descriptor is left for processes that join: \d+ have to try again/),
        'the log says so';
    limit_descriptors($hub, $before);
    ok wait_for(sub {
        my $facts = JSON::PP::decode_json(get($status, '/status.json')->{body})->{channels};
        return $facts && $facts->{interpreters} >= 2;
        }),
        'a worker joins when there are some';
};

subtest 'a thread that hangs' => sub {
    plan skip_all => 'ptrace has another number' if $Config{archname} !~ /\Ax86_64/;
    my ($hub) = grep { (content("/proc/$_/cmdline") // '') =~ /\(hub\)/ } children($server->pid);
    my $thread = hang($hub);
    plan skip_all => "ptrace is not allowed: $!" if !$thread;
    is asked($server, '/calls', [ [ publish => 't', $message ] ])->[0], 'Unknown', 'the hub does not answer';
    is get($server->port, '/pid')->{status},                            200,       'requests are served';
    # The kernel keeps a process until the tracer of its threads has heard of their end.
    my $heard;
    my $ends = sub {
        $heard ||= waitpid($thread, WNOHANG | WALL) == $thread;
        return $heard && is_gone($hub);
    };
    ok wait_for($ends),                                                            'the process ends';
    ok $server->wait_for_log(qr/its thread hangs/),                                'the log says why';
    ok wait_for(sub { return $call->([ publish => 't', $message ])->[0] eq '1' }), 'there is another hub';
};
is $server->stop, 0, 'the server stops';

# As after a crash: when the hub begins, nodes of no mount have joined, and the workers of mounts have not.
subtest 'confined mounts' => sub {
    require Peregrine::Server::Hub;
    my %options       = (channels => 1, map { ("topics_history_$_" => 1000) } qw(entries size age));
    my $configuration = bless { options => \%options }, 'Configuration';
    my $hub           = bless { configuration => $configuration }, 'Peregrine::Server::Hub';
    socketpair $hub->{hub_join}, $hub->{hub_end}, AF_UNIX, SOCK_SEQPACKET, PF_UNSPEC or die "socketpair: $!";
    $hub->confine($_ => "mount.$_.") for 1, 2;

    my $subscriber = node($hub, [ SUBSCRIBE, 1, 'room' ]);
    my @asking     = map {
        node($hub, (map { [ WHO, $_, 'room' ] } 1 .. INTERPRETER_QUESTIONS), [ SYNC, LAST, '' ])
    } 1 .. QUESTIONS / INTERPRETER_QUESTIONS;
    my $thread  = $hub->_thread(-1);
    my $refused = 0;
    $refused += refused($_) for @asking;
    is $refused, 2 * MOUNT_QUESTIONS, 'the hub keeps the room of each for its workers';
};

sub Configuration::options { return $_[0]{options} }

done_testing;
