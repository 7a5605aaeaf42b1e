# Machines as network namespaces on two bridges: `front` connects clients, proxy and servers, `back` connects
# servers and Redis. All of them are in a namespace that script/channels has entered, and end with it.
package Channels::Net;
use v5.36;

# The first three parts of each net's addresses; the last part is the machine's number.
my %NET = (front => '10.77.0', back => '10.78.0');

sub new ($class) {
    my $self = bless {}, $class;
    mkdir '/run/netns';
    _run(qw(mount -t tmpfs none /run/netns));
    _run(qw(ip link set lo up));
    for my $net (sort keys %NET) {
        _run(qw(ip link add), $net, qw(type bridge));
        _run(qw(ip link set), $net, 'up');
        _run(qw(ip addr add), "$NET{$net}.1/24", 'dev', $net);
    }
    return $self;
}

sub _run (@command) {
    system(@command) == 0 or die "@command: failed\n";
    return;
}

# Adds a machine; its number is the last part of its addresses.
sub add ($self, $machine, $number, @nets) {
    _run(qw(ip netns add), $machine);
    $self->inside($machine, qw(ip link set lo up));
    for my $net (@nets) {
        my $link = "$machine-$net";
        _run(qw(ip link add), $link, qw(type veth peer name), $net, 'netns', $machine);
        _run(qw(ip link set), $link, 'master', $net, 'up');
        $self->inside($machine, qw(ip addr add), "$NET{$net}.$number/24", 'dev', $net);
        $self->inside($machine, qw(ip link set), $net, 'up');
    }
    return;
}

sub address ($self, $net, $number) { return "$NET{$net}.$number" }

# Runs a command in a machine, and waits for its end.
sub inside ($self, $machine, @command) {
    _run(qw(ip netns exec), $machine, @command);
    return;
}

# The words that go before a command that is to run in a machine.
sub prefix ($self, $machine) { return (qw(ip netns exec), $machine) }

# Makes a link lose all packets, which neither end is told.
sub cut ($self, $machine, $net) {
    _run(qw(ip link set), "$machine-$net", 'down');
    return;
}

sub mend ($self, $machine, $net) {
    _run(qw(ip link set), "$machine-$net", 'up');
    return;
}

# Gives an address to a machine; such an address can move to another machine.
sub give ($self, $machine, $net, $number) {
    $self->inside($machine, qw(ip addr add), "$NET{$net}.$number/24", 'dev', $net);
    return;
}

# Moves an address from a machine to another. `others`: machines that must forget the old one.
sub move ($self, $from, $to, $net, $number, @others) {
    $self->inside($from, qw(ip addr del), "$NET{$net}.$number/24", 'dev', $net);
    $self->give($to, $net, $number);
    $self->inside($_, qw(ip neigh flush dev), $net) for @others;
    return;
}

1;
