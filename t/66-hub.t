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
use Socket qw(AF_UNIX PF_UNSPEC SOCK_SEQPACKET);
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

# A real hub has mounts whose workers do not start, and keeps their room free; here its place is the test's.
subtest 'confined mounts' => sub {
    require Peregrine::Server::Hub;
    socketpair my $join, my $end, AF_UNIX, SOCK_SEQPACKET, PF_UNSPEC or die "socketpair: $!";
    my $hub = bless { hub_join => $join }, 'Peregrine::Server::Hub';
    $hub->confine(1, 'one.');
    $hub->confine(2, 'two.');
    $hub->_announce_confined;
    my %told;
    for (1 .. 2) {
        my ($word, $descriptor) = Peregrine::receive_descriptors(fileno $end, 100) or last;
        open my $socket, '+<&=', $descriptor or die "a descriptor: $!";
        $told{$word} = sysread $socket, my $byte, 1;
    }
    is_deeply \%told, { 'jone.' => 0, 'jtwo.' => 0 }, 'the hub hears of each, by a connection that has ended';
};

done_testing;
