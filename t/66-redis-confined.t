# A mount that is confined to its own topics, on two machines with one Redis: clients of one join socket say
# anything. They name no other topic, reach no channel of other mounts of either machine, answer for no node
# but their own, and change nothing of others.
# Not repeated for each PEREGRINE_ENGINE: it has no engine.
use strict;
use warnings;

use lib 't/lib';
use Digest::SHA qw(sha256);
use Peregrine;
use Peregrine::Publisher;
use Socket qw(AF_UNIX MSG_DONTWAIT MSG_NOSIGNAL PF_UNSPEC SOCK_SEQPACKET SOCK_STREAM);
use Test::More;
use TestRedis;
use TestTools   qw(can_read patience wait_for);
use Time::HiRes qw(time);

plan skip_all => 'Linux only' if $^O ne 'linux';
my $redis = TestRedis->new or plan skip_all => 'redis-server is not installed';

# The frames of engine/src/hub/wire.zig.
my @KINDS = split ' ', <<'KINDS';
hello subscribe unsubscribe publish send add discard flush sync answer append follow unfollow look tally count
welcome done publication mail join leave flushed begins entry live stale who roll present speak refused
KINDS
my %KIND = map { $KINDS[$_] => $_ } 0 .. $#KINDS;
my %SAID = (0 => 'ok', 1 => 'gone', 2 => 'full', 3 => 'too many', 9 => 'forbidden');
my $HEAD = 'L< C C S< L< Q< L<';

# ---- Machines and their clients ----------------------------------------------------------------

my $url = 'redis://127.0.0.1:' . $redis->port . '?prefix=confined:';

sub machine {
    my ($relay) = @_;
    socketpair my $join, my $end, AF_UNIX, SOCK_SEQPACKET, PF_UNSPEC or die "socketpair: $!";
    my $hub = Peregrine::HubHandle->new(fileno $end, -1, $url, '', 100, 100_000, 60_000);
    return { join => $join, end => $end, hub => $hub };
}

my ($here, $there) = map { machine() } 1 .. 2;

sub publisher { return Peregrine::Publisher->_new(join => $_[0]{join}) }

sub any_bytes {
    return join '', map { chr int rand 256 } 1 .. $_[0];
}

sub frame {
    my ($kind, %with) = @_;
    my ($name, $extra, $payload) = map { $_ // '' } @with{qw(name extra payload)};
    my $rest = $name . $extra . $payload;
    my @head = (20 + length $rest, $KIND{$kind} // $kind, $with{code} // 0, length $name);
    return pack($HEAD, @head, $with{number} // 0, $with{node} // 0, length $extra) . $rest;
}

# A connection of a node whose topics begin with the prefix; empty: any.
sub node {
    my ($machine, $prefix) = @_;
    socketpair my $socket, my $far, AF_UNIX, SOCK_STREAM, PF_UNSPEC or die "socketpair: $!";
    wait_for(sub { Peregrine::send_descriptors(fileno $machine->{join}, "j$prefix", fileno $far) });
    my $secret = any_bytes(16);
    my $node   = { socket => $socket, secret => $secret, id => unpack('Q<', sha256($secret)), bytes => '' };
    say_as($node, 'hello', number => Peregrine::Publisher::WIRE(), extra => $secret);
    return $node;
}

sub channel_of { return sprintf 'conn.%016x.1', $_[0]{id} }

sub say_as {
    my ($node, @frame) = @_;
    return send $node->{socket}, frame(@frame), MSG_NOSIGNAL;
}

# The next frame that a node gets.
sub heard {
    my ($node) = @_;
    my $until  = time + patience(20);
    my $bytes  = \$node->{bytes};
    while (length $$bytes < 24 || length $$bytes < 4 + unpack 'L<', $$bytes) {
        return if !can_read($node->{socket}, $until - time);
        sysread $node->{socket}, $$bytes, 65_536, length $$bytes or return;
    }
    my ($length, $kind, $code, $name, $number, $id, $extra) = unpack $HEAD, $$bytes;
    my $rest = substr substr($$bytes, 0, 4 + $length, ''), 24;
    return {
        kind    => $KINDS[$kind],
        code    => $code,
        number  => $number,
        node    => $id,
        name    => substr($rest, 0,     $name),
        extra   => substr($rest, $name, $extra),
        payload => substr($rest, $name + $extra),
    };
}

# The next frame of that kind; those before it are passed over.
sub heard_as {
    my ($node, $kind) = @_;
    while (my $frame = heard($node)) { return $frame if $frame->{kind} eq $kind }
    return {};
}

# The result of a request.
my $number = 100;

sub asked {
    my ($node, @frame) = @_;
    $number++;
    say_as($node, @frame, number => $number);
    while (my $done = heard_as($node, 'done')) {
        return 'no answer'                                    if !%$done;
        return $SAID{ $done->{code} } // "code $done->{code}" if $done->{number} == $number;
    }
}

ok wait_for(sub {
    eval { publisher($_)->publish('main.begins', 'x') }
    }),
    'a machine reaches Redis'
    for $here, $there;

my %at = map { $_->[0] => node(@$_[ 1, 2 ]) } (
    [ evil    => $here,  'own.' ],
    [ main    => $here,  '' ],
    [ own     => $there, 'own.' ],
    [ sibling => $there, 'own.' ],
    [ other   => $there, 'other.' ],
    [ far     => $there, '' ],
);
my ($evil, $main, $own, $sibling, $other, $far) = @at{qw(evil main own sibling other far)};
is asked($_,     'sync'), 'ok', 'a node has joined' for map { $at{$_} } sort keys %at;
is asked($_,     'subscribe', name => 'own.room'),   'ok', '... a room of the mount' for $own, $far;
is asked($far,   'subscribe', name => 'main.room'),  'ok', '... and other rooms';
is asked($other, 'subscribe', name => 'other.room'), 'ok', '...';

# Messages that nodes of other mounts have heard until now; one of a node that may send it comes last.
sub heard_by_others {
    is asked($main, 'publish', name => $_, payload => 'marker'), 'ok', 'a marker'
        for qw(main.room other.room);
    my @heard;
    for my $node ($far, $other) {
        while (my $frame = heard($node)) {
            last if $frame->{payload} eq 'marker';
            push @heard, "$frame->{kind} $frame->{name} $frame->{payload}"
                if $frame->{kind} !~ /\A(?:done|roll)\z/;
        }
    }
    return \@heard;
}

# ---- Requests that are refused ----------------------------------------------------------------

subtest 'topics of others' => sub {
    my $before = publisher($there)->publish('main.x', 'entry');
    for my $name (qw(main.x main.room other.room own conn.x)) {
        is asked($evil, $_, name => $name, payload => 'evil'), 'forbidden', "$_ $name"
            for qw(subscribe publish append look who send);
        is asked($evil, 'who', name => $name, extra => 'h'), 'forbidden', "who reads $name";
        say_as($evil, 'follow', name => $name, node => 7);
        is heard_as($evil, 'refused')->{code}, 9, "follow $name";
    }
    is asked($evil, $_),                     'forbidden', $_ for qw(flush count);
    is publisher($here)->position('main.x'), $before,     'no entry was added';
    is_deeply heard_by_others(), [], 'no message came to others';
};

subtest 'channels of others, on the other machine' => sub {
    for my $name (map { channel_of($_) } $far, $other) {
        is asked($evil, 'send', name => $name, payload => 'evil'), 'forbidden', 'send';
        is asked($evil, $_, name => $name, extra => 'own.room'), 'forbidden', "$_, a topic of its own"
            for qw(add discard);
        is asked($evil, $_, name => $name, extra => 'main.room'), 'forbidden', "$_, another one"
            for qw(add discard);
    }
    is asked($evil, 'add', name => channel_of($own), extra => 'main.room'), 'forbidden',
        'a channel of the same mount, another topic';
    is_deeply heard_by_others(), [], 'no frame came to others';
};

# ---- Requests within the mount ------------------------------------------------------------------

subtest 'a channel of the same mount, on the other machine' => sub {
    say_as($evil, 'send', name => channel_of($own), payload => 'hello', number => 1);
    my $mail = heard_as($own, 'mail');
    is $mail->{payload}, 'hello',     'a message comes';
    is $mail->{node},    $evil->{id}, '... of that node';
    say_as($_, 'answer', node => $evil->{id}, number => 1, code => 2)
        for $sibling, $other, $far, $evil, $main;
    is asked($_, 'sync'), 'ok', 'nodes that were not asked have answered' for $sibling, $other, $far, $main;
    say_as($own, 'answer', node => $evil->{id}, number => 1, code => 0);
    is heard_as($evil, 'done')->{code}, 0, '... and only the answer of its node counts';
    say_as($evil, 'add', name => channel_of($own), extra => 'own.y', number => 2);
    is heard_as($own, 'join')->{extra}, 'own.y', 'it can be told to subscribe to a topic of the mount';
    say_as($main, 'add', name => channel_of($own), extra => 'main.y', number => 2);
    is heard_as($own, 'join')->{extra}, 'main.y', 'a node that is not confined tells it another topic';
    is asked($own, 'subscribe', name => 'main.y'), 'forbidden', '... which the hub refuses';
};

subtest 'messages and entries' => sub {
    is asked($evil, 'publish', name => 'own.room', payload => 'all'), 'ok', 'a message';
    is heard_as($_, 'publication')->{payload}, 'all', '... comes to all that have subscribed' for $own, $far;
    my $position = publisher($there)->publish('own.x', 'entry');
    is asked($evil, 'look', name => 'own.x'), 'ok', 'a position';
    say_as($evil, 'look', name => 'own.x', number => 3);
    my $told = heard_as($evil, 'done')->{extra};
    is sprintf('%012x.%d.%012x', unpack 'Q< Q< Q<', $told), $position, '... is that of the other machine';
    is $redis->ask(EXISTS => "confined:{$_->[0]}room"), ":$_->[1]\r\n", "the room of '$_->[0]' in Redis"
        for [ 'own.', 1 ], [ 'main.', 0 ], [ '', 0 ];
};

# An answer who is subscribed: 8 bytes of the number, whether it is complete, names.
sub present { return pack 'Q< C a*', @_ }

subtest 'presence' => sub {
    my ($lie) = present(1, 1, join ' ', map { channel_of($_) } $own, $far, $other, $main, $evil, $sibling);
    say_as($evil, 'who', name => 'own.room', number => 5);
    my %roll = map { $_->[0] => heard_as($_->[1], 'roll') } [ own => $own ], [ far => $far ];
    is $roll{own}{name}, 'own.room', 'nodes of the other machine are asked';
    for my $node ($sibling, $other, $evil) {
        say_as($node, 'present', node => $_, payload => present(1000, 1, '')) for 0 .. $roll{own}{node} + 5;
        is asked($node, 'sync'), 'ok', 'a node answers that was not asked';
    }
    say_as($own, 'present', node => $roll{own}{node}, payload => $lie) for 1 .. 3;
    say_as($far, 'present', node => $roll{far}{node}, payload => present(1, 1, channel_of($far)));
    my $answer;
    do { $answer = heard_as($evil, 'done') } until !%$answer || $answer->{number} == 5;
    my ($count, $is_complete, $names) = unpack 'Q< C a*', $answer->{payload};
    is "$count $is_complete", '2 1', 'each node that was asked counts once';
    is join(' ', sort split ' ', $names), join(' ', sort map { channel_of($_) } $own, $far),
        '... with channels of its own';
};

# ---- Anything ----------------------------------------------------------------------------------

my $seed = $ENV{PEREGRINE_SEED} // time;
srand $seed;
sub one_of { return $_[ int rand @_ ] }

subtest "any frames (seed $seed)" => sub {
    my @names  = (qw(main.x main.room other.room own.x own.y own.room), map { channel_of($_) } values %at);
    my $before = publisher($there)->publish('main.x', 'entry');
    my @clients;
    for (1 .. 1000) {
        push @clients, node($here, 'own.') if @clients < 8;
        my $client = one_of(@clients);
        for (1 .. 1 + int rand 10) {
            my %with = (
                name    => one_of(@names),
                extra   => one_of('', @names, any_bytes(16), any_bytes(24)),
                payload => one_of('', 'evil', present(5, 1, "@names")),
                number  => int rand 5,
                node    => one_of(0, 1, int rand 50, map { $_->{id} } values %at),
            );
            send $client->{socket}, frame(1 + int rand $#KINDS, %with), MSG_NOSIGNAL | MSG_DONTWAIT or last;
        }
        recv $client->{socket}, my $bytes, 65_536, MSG_DONTWAIT if rand() < 0.7;
        my $is_over = defined $bytes && !length $bytes || rand() < 0.05;
        @clients = grep { $_ != $client } @clients if $is_over;
    }
    is publisher($here)->position('main.x'), $before, 'no entry was added to a topic of others';
    my @others = grep { !/\Apublication own\.room / } @{ heard_by_others() };
    is_deeply \@others, [], 'no frame came to others but messages of a topic that they have subscribed to';
    for my $machine ($here, $there) {
        my $beats = $machine->{hub}->beats;
        ok wait_for(sub { $machine->{hub}->beats > $beats }), 'the hub of a machine goes on';
    }
};

done_testing;
