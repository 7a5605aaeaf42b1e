# Clients of the hub that say anything: it ends none but their own connections, and serves the others. Clients
# of a mount that is confined to its own topics change nothing of others.
# Not repeated for each PEREGRINE_ENGINE: it has no engine.
use strict;
use warnings;

use lib 't/lib';
use Peregrine;
use Peregrine::Publisher;
use Socket qw(AF_UNIX MSG_DONTWAIT MSG_NOSIGNAL PF_UNSPEC SOCK_SEQPACKET SOCK_STREAM);
use Test::More;
use TestTools qw(wait_for);

plan skip_all => 'Linux only' if $^O ne 'linux';

my ($join, $end);
socketpair $join, $end, AF_UNIX, SOCK_SEQPACKET, PF_UNSPEC or die "socketpair: $!";
my $hub   = Peregrine::HubHandle->new(fileno $end, -1, '', '', 100, 100_000, 60_000);
my $place = qr/\A[0-9a-f]{12}\.\d+\.[0-9a-f]{12}\z/;
my $head  = 'L< C C S< L< Q< L<';

# Kinds of frames in engine/src/hub/wire.zig: the first, and one more than the last.
use constant { HELLO => 0, KINDS => 33 };
# The kinds that nodes send.
my @KINDS = (1 .. 15, 27, 29, 30);

sub publisher { return Peregrine::Publisher->_new(join => $join) }

sub serves {
    my ($what) = @_;
    my $beats = $hub->beats;
    like publisher()->publish('main.x', 'entry'), $place, "$what: others publish";
    ok wait_for(sub { $hub->beats > $beats }), '... and the hub goes on';
    return;
}

# A connection whose node has told a secret.
sub connected {
    my ($word) = @_;
    socketpair my $here, my $there, AF_UNIX, SOCK_STREAM, PF_UNSPEC or die "socketpair: $!";
    wait_for(sub { Peregrine::send_descriptors(fileno $join, $word, fileno $there) });
    say_to($here, frame(HELLO, number => Peregrine::Publisher::WIRE(), extra => any_bytes(16)));
    return $here;
}

sub frame {
    my ($kind, %with) = @_;
    my ($name, $extra, $payload) = map { $_ // '' } @with{qw(name extra payload)};
    my $rest = $name . $extra . $payload;
    return pack($head,
        20 + length $rest,
        $kind, $with{code} // 0,
        length $name,
        $with{number} // 0,
        $with{node}   // 0,
        length $extra)
        . $rest;
}

sub say_to { return send $_[0], $_[1], MSG_NOSIGNAL | MSG_DONTWAIT }

sub any_bytes {
    return join '', map { chr int rand 256 } 1 .. $_[0];
}

sub one_of { return $_[ int rand @_ ] }

my @channels = map { sprintf 'conn.%016x.%x', int rand 2**31, $_ } 1 .. 3;
my @names    = (qw(main.x main.y own.x own.y own. a), @channels, '', "\0", 'x' x 100);

sub any_frame {
    my $extra = one_of('', @names, "@channels", any_bytes(16), any_bytes(24), any_bytes(1 + int rand 100));
    my $bytes = frame(
        rand() < 0.05 ? int rand KINDS : one_of(@KINDS),
        code    => int rand 12,
        name    => one_of(@names),
        extra   => $extra,
        payload => one_of('', 'entry', any_bytes(int rand 200), pack('Q< C a*', 5, 1, "@channels ")),
        number  => int rand 5,
        node    => one_of(0, 1, int rand 50),
    );
    substr $bytes, int rand 24, 1, any_bytes(1) if rand() < 0.05;
    return $bytes;
}

my $seed = $ENV{PEREGRINE_SEED} // time;
srand $seed;
diag "PEREGRINE_SEED=$seed" if $ENV{PEREGRINE_SEED};

# Each client has an end: it closes its connection, whether or not it has read.
sub attack {
    my ($word) = @_;
    my @clients;
    for (1 .. 2000) {
        push @clients, connected($word) if @clients < 8;
        my $client = one_of(@clients);
        for (1 .. 1 + int rand 20) { last if !say_to($client, any_frame()) }
        recv $client, my $heard, 65_536, MSG_DONTWAIT if rand() < 0.7;
        my $is_over = defined $heard && !length $heard || rand() < 0.1;
        @clients = grep { $_ != $client } @clients if $is_over;
    }
    return;
}

subtest 'messages at the join socket that ask for no connection' => sub {
    socketpair my $one, my $other, AF_UNIX, SOCK_STREAM, PF_UNSPEC or die "socketpair: $!";
    for my $bytes ('', 'j', 'j' x 1000) {
        ok defined send($join, $bytes, 0), length($bytes) . ' bytes without descriptor';
        serves('after that');
    }
    ok Peregrine::send_descriptors(fileno $join, 'j', fileno $one, fileno $other), 'two descriptors';
    serves('after these');
    ok Peregrine::send_descriptors(fileno $join, "j$_", fileno $one), 'a prefix that is no name'
        for 'a b', 'x' x 101, "\0";
    serves('after these');
};

subtest "any frames of clients that are not confined (seed $seed)" => sub {
    attack('j');
    serves('after them');
};

subtest "any frames of clients that are confined (seed $seed)" => sub {
    my $before = publisher()->publish('main.x', 'entry');
    my $reader = publisher();
    attack('jown.');
    is $reader->position('main.x'), $before, 'they have changed nothing of a topic that is not theirs';
    serves('after them');
};

done_testing;
