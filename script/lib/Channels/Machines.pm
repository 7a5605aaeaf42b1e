# Programs on the machines of Channels::Net: servers, processes of HAProxy in front of them, Redis with a
# replica, and a relay between the first server and Redis, which loses an answer when it is told to.
package Channels::Machines;
use v5.36;
use Channels::Net;
use IO::Select ();
use IO::Socket::INET;
use POSIX       ();
use TestTools   qw(content wait_for);
use TestWorkers qw(children);
use Time::HiRes qw(sleep);

my $PORT       = 8000;
my $REDIS      = 6379;
my $RELAY      = 6380;
my $REDIS_HOST = 100;    # the last part of the Redis master's address, which moves from r1 to r2
my $PROXY_HOST = 2;
my %HOST       = (r1 => 101, r2 => 102, map { ("s$_" => 10 + $_) } 1 .. 80);

# `root`: the folder of the sources; `dir`: for logs; `workers`: of each server; `history`: bytes of a topic's
# history; `servers`, `proxies`: numbers.
sub new ($class, %args) {
    my $self = bless { %args, net => Channels::Net->new }, $class;
    $self->{names} = [ map { "s$_" } 1 .. $args{servers} ];
    my $net = $self->{net};
    $net->add('proxy', $PROXY_HOST, 'front');
    $net->add($_,      $HOST{$_},   qw(front back)) for @{ $self->{names} };
    $net->add($_,      $HOST{$_},   'back')         for qw(r1 r2);
    $net->give('r1', 'back', $REDIS_HOST);
    $self->start_redis($_) for qw(r1 r2);
    $self->_relay;
    $self->start_server($_) for @{ $self->{names} };
    $self->_proxy($_)       for 0 .. $self->{proxies} - 1;
    return $self;
}

sub net     ($self)          { return $self->{net} }
sub address ($self, $server) { return $self->{net}->address('front', $HOST{$server}) . ":$PORT" }

# The address of HAProxy, and the port of each of its processes.
sub proxies ($self) {
    return ($self->{net}->address('front', $PROXY_HOST), map { $PORT + $_ } 0 .. $self->{proxies} - 1);
}
sub log_of ($self, $program) { return "$self->{dir}/$program.log" }

sub _start ($self, $machine, $name, @command) {
    defined(my $pid = fork) or die "fork: $!\n";
    return $self->{pid}{$name} = $pid if $pid;
    open STDIN,  '<',  '/dev/null'          or die $!;
    open STDOUT, '>>', $self->log_of($name) or die $!;
    open STDERR, '>&', \*STDOUT             or die $!;
    exec $self->{net}->prefix($machine), @command;
    die "$command[0]: $!\n";
}

# Kills a program without a chance to tidy up.
sub _kill ($self, $name) {
    my $pid = delete $self->{pid}{$name} or return;
    kill KILL => $pid;
    waitpid $pid, 0;
    return;
}

# ---- Redis

sub start_redis ($self, $machine) {
    my $folder = "$self->{dir}/$machine";
    mkdir $folder;
    $self->_start(
        $machine, $machine, qw(redis-server --bind 0.0.0.0 --protected-mode no --appendonly yes
            --appendfsync always --repl-timeout 5 --repl-ping-replica-period 1 --dir), $folder,
        '--save', '', '--port', $REDIS,
        $machine eq ($self->{replica} // 'r2')
        ? ('--replicaof', $self->{net}->address("back", $REDIS_HOST), $REDIS)
        : ()
    );
    $self->_answers($machine);
    return;
}

sub _answers ($self, $machine) {
    # Expected: Redis does not listen yet, or still reads its data.
    wait_for(sub {
        (eval { $self->ask($machine, 'PING') } // '') =~ /\A\+PONG/;
    })
        or die "redis-server of $machine does not answer\n";
    return;
}

sub kill_redis ($self, $machine) { return $self->_kill($machine) }

# Sends a command to Redis; returns the beginning of the answer, or undef after 5 seconds.
sub ask ($self, $machine, @words) {
    my $address = $self->{net}->address('back', $HOST{$machine});
    my $socket  = IO::Socket::INET->new(PeerAddr => "$address:$REDIS", Timeout => 5)
        or die "redis-server: $@\n";
    syswrite $socket, join '', '*' . @words . "\r\n", map { '$' . length($_) . "\r\n$_\r\n" } @words;
    return if !IO::Select->new($socket)->can_read(5);
    sysread $socket, my $answer, 65_536;
    return $answer;
}

# Tells whether the replica has all entries of the master.
sub is_replicated ($self) {
    my $info = $self->ask('r2', qw(INFO replication));
    return $info =~ /master_link_status:up/ && $info =~ /master_sync_in_progress:0/;
}

# Makes the replica the master, which takes over the old master's address.
sub promote ($self) {
    $self->ask('r2', qw(REPLICAOF NO ONE));
    $self->{net}->move('r1', 'r2', 'back', $REDIS_HOST, @{ $self->{names} });
    return;
}

# ---- The relay

sub _relay ($self) {
    my $to = $self->{net}->address('back', $REDIS_HOST) . ":$REDIS";
    $self->_start('s1', 'relay', $^X, "-I$self->{root}/script/lib", '-MChannels::Relay', '-e',
        'Channels::Relay->run(@ARGV)', "127.0.0.1:$RELAY", $to);
    return;
}

# Makes the relay lose the answer to the next publication, which Redis has carried out.
sub lose_answer ($self) {
    kill USR1 => $self->{pid}{relay};
    return;
}

sub lost_answers ($self) {
    my @lost = (content($self->log_of('relay')) // '') =~ /^lost/mg;
    return scalar @lost;
}

# ---- Servers

sub start_server ($self, $server) {
    my $redis = $server eq 's1' ? "127.0.0.1:$RELAY" : $self->{net}->address('back', $REDIS_HOST) . ":$REDIS";
    unlink "$self->{dir}/$server.pid";
    $self->_start(
        $server, $server,
        $^X, (map { "-I$self->{root}/blib/$_" } qw(lib arch)),
        "$self->{root}/bin/pagi-server", '--host',
        '0.0.0.0',                       '--port',
        $PORT,                           '--workers',
        $self->{workers},                '--engine',
        'process',                       '--channels',
        "redis://$redis?prefix=lab:",    '--pid',
        "$self->{dir}/$server.pid",      '--quiet',
        '--topics-history-size',         $self->{history},
        '--shutdown-timeout',            5,
        "$self->{root}/script/lib/Channels/app.pl"
    );
    $self->_serves($server);
    return;
}

sub _serves ($self, $server) {
    wait_for(
        sub {
            return IO::Socket::INET->new(PeerAddr => $self->address($server), Timeout => 1);
        },
        30
    ) or die "$server does not serve; see " . $self->log_of($server) . "\n";
    return;
}

sub master ($self, $server) {
    # A new program that takes over (USR2) writes the pid file anew.
    my $pid = wait_for(sub { return (content("$self->{dir}/$server.pid") // '') =~ /(\d+)/ ? $1 : 0 });
    return $pid || die "$server has no pid file\n";
}

sub _family ($pid) {
    return ($pid, map { _family($_) } children($pid));
}

# Kills all processes of a server at once, as when the machine loses its power.
sub kill_server ($self, $server) {
    my @all = _family($self->master($server));
    kill STOP => @all;
    kill KILL => @all;
    delete $self->{pid}{$server};
    wait_for(sub {
        !grep { -e "/proc/$_" && content("/proc/$_/stat") !~ /\) Z / } @all;
    });
    return;
}

sub kill_hub ($self, $server) {
    my ($hub) = grep { (content("/proc/$_/cmdline") // '') =~ /\(hub\)/ } children($self->master($server));
    kill KILL => $hub // die "$server has no hub\n";
    return;
}

sub signal ($self, $server, $signal) {
    kill $signal => $self->master($server);
    return;
}

# ---- The proxy

sub _proxy ($self, $place) {
    my $config = "$self->{dir}/haproxy-$place.cfg";
    my $port   = $PORT + $place;
    open my $out, '>', $config or die "$config: $!\n";
    my @servers = map { "    server $_ " . $self->address($_) . " check inter 500 fall 2 rise 1\n" }
        @{ $self->{names} };
    print {$out} <<"END", @servers;
global
defaults
    mode http
    timeout connect 2s
    timeout client 1h
    timeout server 1h
    timeout tunnel 1h
    option redispatch
    retries 3
frontend clients
    bind *:$port
    default_backend servers
backend servers
    balance leastconn
    option httpchk GET /health
END
    close $out or die "$config: $!\n";
    $self->_start('proxy', "proxy-$place", 'haproxy', '-db', '-f', $config);
    return;
}

sub stop ($self) {
    for my $server (@{ $self->{names} }) {
        # Expected: the server was killed.
        eval { kill TERM => $self->master($server) };
    }
    my @names = sort keys %{ $self->{pid} };
    wait_for(sub {
        !grep { -e "$self->{dir}/$_.pid" } @{ $self->{names} };
    });
    $self->_kill($_) for @names;
    return;
}

1;
