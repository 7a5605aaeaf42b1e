package TestRedis;

# A redis-server of the test's own, which writes each command to the disk before it answers; and relays in
# front of it that can be stopped, as links between machines can fail.

use strict;
use warnings;

use File::Temp ();
use IO::Select ();
use IO::Socket::INET;
use POSIX     ();
use TestTools qw(can_read free_port patience wait_for);

my $PROGRAM = '/usr/bin/redis-server';

# Starts a Redis; returns nothing if the program is not installed.
sub new {
    my ($class, @more) = @_;
    return if !-x $PROGRAM;
    my $self = bless {
        folder => File::Temp->newdir,
        port   => free_port(),
        more   => \@more,
        relays => [],
        owner  => $$,
    }, $class;
    return $self->start;
}

sub port { return $_[0]{port} }

sub start {
    my ($self) = @_;
    my $folder = "$self->{folder}";
    $self->{pid} = _spawn(sub {
        open STDOUT, '>', '/dev/null' or die "/dev/null: $!";
        exec 'setpriv', '--pdeathsig', 'KILL', $PROGRAM, '--bind', '127.0.0.1', '--port', $self->{port},
            qw(--appendonly yes --appendfsync always --logfile log --dir), $folder, '--save', '',
            @{ $self->{more} };
    });
    # Expected: a server that does not listen yet, or reads its data.
    wait_for(sub {
        (eval { $self->ask('PING') } // '') =~ /\A(?:\+PONG|-NOAUTH)/;
    })
        or die "redis-server does not answer\n";
    return $self;
}

sub _spawn {
    my ($code) = @_;
    defined(my $pid = fork) or die "fork: $!";
    return $pid if $pid;
    $code->();
    POSIX::_exit(1);
    return;
}

# Kills the server, which cannot write its data any more.
sub kill {
    my ($self) = @_;
    my $pid = delete $self->{pid} or return;
    CORE::kill KILL => $pid;
    waitpid $pid, 0;
    return;
}

# Sends a command; returns the beginning of the answer.
sub ask {
    my ($self, @words) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$self->{port}", Timeout => patience(5))
        or die "redis-server: $@\n";
    print {$socket} join '', '*' . @words . "\r\n", map { '$' . length($_) . "\r\n$_\r\n" } @words;
    $socket->flush;
    return if !can_read($socket, patience(5));
    sysread $socket, my $answer, 65_536;
    return $answer;
}

# Starts a process that relays connections to a port; returns its port and process. A stopped process is a
# silent link.
sub relay {
    my ($self, $port) = @_;
    my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1:0', Listen => 20) or die "a relay: $@\n";
    my $pid      = _spawn(sub { _relay($listener, $port // $self->{port}) });
    push @{ $self->{relays} }, $pid;
    return ($listener->sockport, $pid);
}

sub _relay {
    my ($listener, $port) = @_;
    my $select = IO::Select->new($listener);
    my %other;
    while (1) {
        for my $ready ($select->can_read) {
            if ($ready == $listener) {
                my $near = $listener->accept                                    or next;
                my $far  = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port") or next;
                @other{ $near, $far } = ($far, $near);
                $select->add($near, $far);
                next;
            }
            my $peer = $other{$ready} or next;
            my $got  = sysread $ready, my $bytes, 65_536;
            next if $got && syswrite $peer, $bytes;
            $select->remove($ready, $peer);
            delete @other{ $ready, $peer };
            close $_ for $ready, $peer;
        }
    }
    return;
}

sub DESTROY {
    my ($self) = @_;
    return if $self->{owner} != $$;
    local ($?, $!);
    for my $pid (@{ $self->{relays} }) {
        CORE::kill KILL => $pid;
        waitpid $pid, 0;
    }
    $self->kill;
    return;
}

1;
