package Peregrine::Server::Control;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use IO::Handle ();
use Peregrine;
use Peregrine::Acceptor;
use Peregrine::File;
use Peregrine::Later qw(weakly);
use Peregrine::Link;
use Scalar::Util qw(weaken);
use Socket       qw(AF_UNIX SOCK_STREAM SOL_SOCKET SO_PEERCRED SOMAXCONN pack_sockaddr_un);

# Commands that may be handled at the same time.
use constant LINKS_MAX => 16;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# Sockets of this process. Children have them closed already, and must not close their numbers again.
my @SOCKETS;

# Addresses at which a process's socket may be: abstract names, which end with the process and leave no file.
# All containers in one network share such names, and each may have a process 1, so a name has the namespace
# of the process and its number there. A process that cannot read its namespace has a name without one.
sub _addresses {
    my ($pid) = @_;
    my ($namespace, $number) = ((stat '/proc/self/ns/pid')[1] // '', $pid);
    # /proc of another namespace has other processes by these numbers.
    my $knows = (readlink('/proc/self') // '') eq $$;
    my $there = $knows ? (stat "/proc/$pid/ns/pid")[1] : undef;
    if (defined $there) {
        my ($inner) = (Peregrine::File::text("/proc/$pid/status") // '') =~ /^NSpid:.*\t([0-9]+)$/m;
        ($namespace, $number) = ($there, $inner // $pid);
    }
    return map { pack_sockaddr_un("\0peregrine/$_/$number") } $namespace, '';
}

# ---- In the master ------------------------------------------------------------------------------

# `supervisor`: a Peregrine::Server::Supervisor.
sub new {
    my ($class, %args) = @_;
    my $self = bless { %args{qw(loop log supervisor)}, links => {}, pid => $$ }, $class;
    weaken($self->{$_}) for qw(loop supervisor);
    return $self if $^O ne 'linux';
    socket my $socket, AF_UNIX, SOCK_STREAM, 0 or return $self->_without("$!");
    bind $socket, (_addresses($$))[0] or return $self->_without("$!");
    listen $socket, SOMAXCONN or return $self->_without("$!");
    Peregrine::hide_from_forks(fileno $socket, 1);
    push @SOCKETS, $socket;
    $self->{socket}   = $socket;
    $self->{acceptor} = Peregrine::Acceptor->new(
        loop          => $args{loop},
        socket        => $socket,
        on_connection => weakly($self, '_accept'),
    );
    return $self;
}

sub _without {
    my ($self, $why) = @_;
    $self->{log}->warn("commands such as 'reload' will not find this server: $why");
    return $self;
}

# Accepts a command of root, or of the user that could also send signals to this process.
sub _accept {
    my ($self, $connection) = @_;
    my (undef, $uid) = unpack 'iii', getsockopt($connection, SOL_SOCKET, SO_PEERCRED) // return;
    my $link    = Peregrine::Link->of($connection);
    my $refusal = $self->_refusal($uid);
    if (defined $refusal) {
        $link->say(failed => $refusal);
        return $link->close;
    }
    $self->{links}{$link} = $link;
    weaken(my $weak = $self);
    $link->watch(
        $self->{loop},
        sub { $weak->_hear($link, @_) if $weak },
        sub { $weak->_gone($link) if $weak }
    );
    return;
}

sub _refusal {
    my ($self, $uid) = @_;
    return "${\LINKS_MAX} commands are at work at this server, no more may be"
        if keys %{ $self->{links} } >= LINKS_MAX;
    return if $uid == 0 || $uid == $>;
    return 'only root and the user of the server (' . (getpwuid($>) // $>) . ') may give it commands';
}

sub _gone {
    my ($self, $link) = @_;
    delete $self->{links}{$link};
    return $link->close;
}

my %COMMANDS = (reload => \&_reload, status => \&_status);

sub _hear {
    my ($self, $link, $word, $text) = @_;
    my $command = $COMMANDS{$word} or return $link->say(failed => "there is no command '$word'");
    $link->say('heard');
    my $done = eval { $self->$command($link, $text) } // Future->fail($@);
    my $say  = sub { $link->say(@_) };
    $done->on_done(sub { $say->(done => @_) })->on_fail(sub { $say->(failed => $_[0] =~ s/\s+\z//r) })
        ->else_done->retain;
    return;
}

# Replaces workers. `name`: a mount with workers of its own; undef: all workers, as by HUP.
sub _reload {
    my ($self, $link, $name) = @_;
    my $supervisor = $self->{supervisor};
    die "the server does not serve yet, or no more\n" if !$supervisor->is_running;
    if (!defined $name) {
        return $supervisor->restart->then(sub { $self->_replaced('all workers', $_[0] // 1) });
    }
    $name =~ s{(/[^/].*?)/+\z}{$1}s;
    my @pools = $supervisor->pools_named($name);
    my $names = join ', ', map { $_->name } @pools ? @pools : $supervisor->pools;
    die "mounts of several hosts have that path: $names\n" if @pools > 1;
    die "no mount '$name' has workers of its own; "
        . (length $names ? "these have: $names" : 'without a name all workers are replaced') . "\n"
        if !@pools;
    my ($pool) = @pools;
    $pool->log->info("'reload': the workers are replaced");
    $supervisor->enter_directory;
    return $pool->restart->then(sub { $self->_replaced($pool->name, $_[0], $pool) });
}

sub _replaced {
    my ($self, $what, $is_new, $pool) = @_;
    return Future->done($pool ? "$what: generation ${\$pool->master->generation}" : "$what: replaced")
        if $is_new;
    return Future->fail("$what: the server stops") if !defined $is_new || !$self->{supervisor}->is_running;
    my @problems = map { $_->name . ': ' . (_serving($_->master) ? '' : 'no worker serves: ') . $_->problem }
        grep { defined $_->problem } $pool // $self->{supervisor}->pools;
    my $others = $pool ? undef : $self->{supervisor}->master->given_up;
    push @problems, $others                    if defined $others;
    push @problems, "$what: the log tells why" if !@problems;
    my $go_on = _serving($pool ? $pool->master : $self->{supervisor}->master);
    return Future->fail(($go_on ? 'the old workers go on: ' : '') . join '; ', @problems);
}

sub _serving {
    my ($master) = @_;
    return scalar grep { $_->{state} eq 'serving' } $master ? $master->children : ();
}

# Sends a line about the workers of each mount, and one about all others.
sub _status {
    my ($self, $link) = @_;
    my $supervisor = $self->{supervisor};
    for my $facts (facts($supervisor)) {
        $link->say(
            line => sprintf '%-24s generation %d, workers %d of %d%s',
            @{$facts}{qw(mount generation serving wanted)},
            defined $facts->{problem} ? ": $facts->{problem}" : ''
        );
    }
    return Future->done;
}

# Facts about all workers that belong to no mount alone (`mount`: *), then about those of each mount.
sub facts {
    my ($supervisor) = @_;
    my @masters = ([ '*', $supervisor->master, undef ]);
    push @masters, map { [ $_->name, $_->master, $_ ] } $supervisor->pools;
    return map {
        my ($name, $master, $pool) = @$_;
        {
            mount      => $name,
            generation => $master ? $master->generation : 0,
            wanted     => $pool   ? $pool->workers      : $master ? $master->wanted   : 0,
            replaced   => $pool   ? $pool->replaced     : $master ? $master->replaced : 0,
            serving    => _serving($master),
            problem    => $pool ? $pool->problem : $master ? $master->given_up : undef,
        }
    } @masters;
}

sub close {
    my ($self) = @_;
    my $socket = delete $self->{socket} or return;
    return if $self->{pid} != $$;
    $self->{acceptor}->stop;
    Peregrine::hide_from_forks(fileno $socket, 0);
    @SOCKETS = grep { $_ != $socket } @SOCKETS;
    CORE::close($socket);
    $self->_gone($_) for values %{ $self->{links} };
    return;
}

# ---- In a command -------------------------------------------------------------------------------

# A link to the server whose master is this process.
sub connect {
    my ($class, $pid) = @_;
    my $is_taken = 0;
    for my $address (_addresses($pid)) {
        socket my $socket, AF_UNIX, SOCK_STREAM, 0 or die "socket: $!\n";
        CORE::connect($socket, $address) or next;
        # Any process can take an abstract name: the listener must be the server.
        my ($listener) = unpack 'iii', getsockopt($socket, SOL_SOCKET, SO_PEERCRED) // '';
        return Peregrine::Link->of($socket) if ($listener // 0) == $pid;
        $is_taken = 1;
    }
    die "process $pid is no server with workers: "
        . ($is_taken ? 'another process has taken its name' : $!) . "\n";
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::Control - commands for a server that runs

=head1 DESCRIPTION

The master of a server with workers listens at an abstract Unix socket whose name has its process id, and
the namespace to which that belongs: containers that share a network do not meet. It does what
L<PAGI::Server::ControlCommand> asks for: root, and the user of the master, who could send signals as well,
are heard; the command makes sure that the process which answers is the one that was meant.

=head1 METHODS

=head2 new

    my $control = Peregrine::Server::Control->new(loop => $loop, log => $log, supervisor => $supervisor);

=head2 close

=head2 connect

    my $link = Peregrine::Server::Control->connect($pid);
    $link->say(reload => '/shop');    # answered with `done` or `failed`, and a text; before them `heard` and
                                      # `line`s

Dies with a sentence if that process is no server with workers.

=head1 FUNCTIONS

=head2 facts

    my @facts = Peregrine::Server::Control::facts($supervisor);

Of the workers of each mount that has some, and of all others (C<mount> is C<*>): C<generation>, C<wanted>,
C<serving>, C<replaced>, and the C<problem> of their last start or restart.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
