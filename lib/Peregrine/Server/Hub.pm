package Peregrine::Server::Hub;

use strict;
use warnings;

our $VERSION = '0.003000';

use Fcntl qw(F_SETFD FD_CLOEXEC);
use Future;
use Peregrine;
use Peregrine::Acceptor;
use Peregrine::Handover;
use Peregrine::Node;
use Peregrine::Process;
use Peregrine::Publisher;
use POSIX ();
use Peregrine::Server::Beside;
use Peregrine::Later qw(weakly);
use Scalar::Util     qw(weaken);
use Socket           qw(AF_UNIX PF_UNSPEC SOCK_SEQPACKET unpack_sockaddr_un);

# The descriptors that a hot upgrade hands over, so that both programs have one hub.
my @KEPT = qw(hub_join hub_end hub_file);

# Connections of other programs that wait to be accepted.
use constant BACKLOG => 128;

# Connections of one confined mount that are passed on at a time.
use constant PASSED_MAX => 64;

# Seconds between two looks at the hub's thread.
use constant LOOK_S => 2;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP                       { return 1 }
sub Peregrine::HubHandle::CLONE_SKIP { return 1 }

# Keys of the arguments: `log`, `configuration`, `heartbeat`, `named` (see Peregrine::Server::Beside).
sub new {
    my ($class, %args) = @_;
    my $self = bless {%args}, $class;
    $self->_inherit or $self->_open;
    Peregrine::Publisher::_serve($self->{hub_join});
    return $self;
}

# ---- Sockets ------------------------------------------------------------------------------------

# Interpreters send one end of a connection each through `hub_join`; the hub receives them from `hub_end`. The
# process that has the lock of `hub_file` is the hub; the hub of a program that takes over waits for it, and
# finds the topics in that file that the old hub has left.
sub _open {
    my ($self) = @_;
    socketpair $self->{hub_join}, $self->{hub_end}, AF_UNIX, SOCK_SEQPACKET, PF_UNSPEC
        or die "the hub's sockets: $!\n";
    my $descriptor = Peregrine::HubHandle::file();
    die "the hub's memory: $!\n" if $descriptor < 0;
    $self->{hub_file} = _handle($descriptor);
    return;
}

sub _inherit {
    my ($self) = @_;
    my $before = Peregrine::Handover->from_environment or return 0;
    my @given  = map { $before->take($_) } @KEPT;
    return 0 if grep { !defined } @given;
    $self->{ $KEPT[$_] } = _handle($given[$_]) for 0 .. $#KEPT;
    my $listener = $before->take('hub_listener');
    $self->{inherited} = _handle($listener) if defined $listener;
    return 1;
}

sub _handle {
    my ($descriptor) = @_;
    open my $handle, '+<&=', $descriptor or die "the hub's sockets: $!\n";
    fcntl $handle, F_SETFD, FD_CLOEXEC or die "the hub's sockets: $!\n";
    return $handle;
}

# Handles by name for a new program. From then on the socket's file is that program's: if it does not come,
# the file stays, and the next program that listens there replaces it.
sub for_handover {
    my ($self) = @_;
    delete $self->{file};
    return map { $_ => $self->{$_} } grep { $self->{$_} } @KEPT, 'hub_listener';
}

# Opens the socket for programs outside the server, for this user alone: whoever connects may publish.
sub listen {
    my ($self, %owner) = @_;
    my $path      = $self->{configuration}->options->{channels_socket};
    my $inherited = delete $self->{inherited};
    return if !defined $path || $self->{hub_listener};
    if ($inherited && unpack_sockaddr_un(getsockname $inherited) eq $path) {
        $self->{hub_listener} = $inherited;
    }
    else {
        my $descriptor =
            Peregrine::open_unix($path, BACKLOG, oct '600', map { $_ // -1 } @owner{qw(uid gid)});
        die "option 'channels_socket': $path: $!\n" if $descriptor < 0;
        $self->{hub_listener} = _handle($descriptor);
    }
    $self->{file} = { path => $path, pid => $$, inode => (lstat $path)[1] };
    return;
}

# Passes a connection of a program outside the server on to the hub, as connections of nodes are.
sub _accept {
    my ($self, $connection) = @_;
    Peregrine::send_descriptors(fileno $self->{hub_join}, 'j', fileno $connection);
    return;
}

sub _watch {
    my ($self, $loop) = @_;
    my $listener = $self->{hub_listener} or return;
    $self->{acceptor} = Peregrine::Acceptor->new(
        loop          => $loop,
        socket        => $listener,
        on_connection => weakly($self, '_accept'),
    );
    return;
}

# Closes the socket for programs. Its file is removed by its maker, if it is still that file.
sub _close {
    my ($self) = @_;
    my $acceptor = delete $self->{acceptor};
    $acceptor->stop if $acceptor;
    my $file = $self->{file};
    return if !$file || $file->{pid} != $$;
    delete $self->{file};
    unlink $file->{path} if ((lstat $file->{path})[1] // -1) == $file->{inode};
    return;
}

# Leaves sockets and files in a process that is not the hub: by them it could take nodes from the hub, or
# change histories. `group`: of the mount that the process is for. Workers of a confined mount keep only their
# own way to the hub.
sub leave {
    my ($self, $group) = @_;
    delete @{$self}{qw(hub_end hub_file hub_listener)};
    my $confined = delete $self->{confined};
    my $own      = defined $group ? $confined->{$group} : undef;
    $self->_use($own->{join}) if $own;
    return;
}

sub _use {
    my ($self, $join) = @_;
    $self->{hub_join} = $join;
    Peregrine::Publisher::_serve($join);
    return;
}

# ---- Mounts that are confined to their own topics -----------------------------------------------

# Processes that ask through `hub_join` may name any topic. Workers of a confined mount ask through a socket
# of their own, and the hub's process passes their connections on with the mount's prefix: so the socket
# decides about the right, and no message or user of a worker can change it.
sub confine {
    my ($self, $group, $prefix) = @_;
    socketpair my $join, my $end, AF_UNIX, SOCK_SEQPACKET, PF_UNSPEC or die "the hub's sockets: $!\n";
    $self->{confined}{$group} = { prefix => $prefix, join => $join, end => $end };
    return;
}

sub _watch_confined {
    my ($self, $loop) = @_;
    for my $confined (values %{ $self->{confined} || {} }) {
        $confined->{end}->blocking(0);
        weaken(my $weak = $self);
        $loop->watch_io(
            handle        => $confined->{end},
            on_read_ready => sub { $weak->_pass_on($confined) if $weak },
        );
    }
    return;
}

# Passes connections of a confined mount on. One for which there is no room is closed: its worker sees that,
# and asks again.
sub _pass_on {
    my ($self, $confined) = @_;
    for (1 .. PASSED_MAX) {
        my ($word, @descriptors) = Peregrine::receive_descriptors(fileno $confined->{end}, 1) or return;
        Peregrine::send_descriptors(fileno $self->{hub_join}, "j$confined->{prefix}", $descriptors[0])
            if @descriptors == 1;
        for my $descriptor (@descriptors) {
            Peregrine::hide_from_forks($descriptor, 0);
            POSIX::close($descriptor);
        }
    }
    return;
}

# Leaves all ways to the hub, in a process that must have none.
sub shut {
    my ($self) = @_;
    $self->leave;
    delete $self->{hub_join};
    Peregrine::Publisher::_serve(undef);
    return;
}

# A new node in the loop of an interpreter.
sub node {
    my ($self, $loop) = @_;
    my ($capacity, $expiry_s, $bytes) =
        @{ $self->{configuration}->options }{qw(channels_capacity channels_expiry channels_message_size)};
    return Peregrine::Node->new(
        loop    => $loop,
        join    => $self->{hub_join},
        limits  => [ $capacity, int(1000 * $expiry_s), $bytes ],
        history => [ $self->_history ],
    );
}

# Has an engine that is not on the application's thread deliver topics itself.
sub deliver {
    my ($self, $worker) = @_;
    my $code = $worker->deliver_topics(fileno $self->{hub_join}, $self->_history);
    die "the engine cannot deliver topics\n" if $code < 0;
    return;
}

# ---- The hub ------------------------------------------------------------------------------------

# The URL of Redis in the option; empty: none.
sub _redis {
    my ($self) = @_;
    my $channels = $self->{configuration}->options->{channels};
    return $channels =~ /:/ ? $channels : '';
}

# Limits of a topic's history: entries, bytes and milliseconds.
sub _history {
    my ($self) = @_;
    my ($entries, $bytes, $age_s) = @{ $self->{configuration}->options }
        {qw(topics_history_entries topics_history_size topics_history_age)};
    return ($entries, $bytes, int(1000 * $age_s));
}

# Starts the hub's thread. `lock`: a descriptor, or -1 if no other process can be the hub. The hub is told of
# confined mounts at its start, because it shares its room among them and the rest, and nodes may already wait
# in the socket.
sub _thread {
    my ($self, $lock) = @_;
    my $prefixes = join ' ', sort map { $_->{prefix} } values %{ $self->{confined} || {} };
    return Peregrine::HubHandle->new(fileno $self->{hub_end},
        $lock, $self->_redis, $prefixes, $self->_history) // die "the hub's thread cannot be started: $!\n";
}

sub start_thread {
    my ($self, $loop) = @_;
    $self->listen;
    $self->{thread} = $self->_thread(-1);
    $self->_watch($loop);
    weaken($self->{looks_in} = $loop);
    $self->_look if length $self->_redis;
    return;
}

sub stop_thread {
    my ($self) = @_;
    $self->_close;
    delete $self->{thread};
    my $look = delete $self->{look};
    $self->{looks_in}->unwatch_time($look) if $look && $self->{looks_in};
    return;
}

sub _look {
    my ($self) = @_;
    $self->_tell_trouble($self->{thread});
    $self->{look} = Peregrine::Later::later($self->{looks_in}, LOOK_S, $self, '_look');
    return;
}

# Says once that Redis is away, and once that it is back.
sub _tell_trouble {
    my ($self, $thread) = @_;
    $self->_tell_lack($thread);
    my $trouble = $thread->trouble // '';
    my $before  = $self->{trouble} // '';
    return if $trouble eq $before || $trouble eq 'it was not reached yet';
    $self->{trouble} = $trouble;
    my $log = $self->{log}->of('hub');
    if   (length $trouble) { $log->error("Redis is away: $trouble") }
    else                   { $log->info('Redis is there again') }
    return;
}

# Says how many nodes could not join since the last look; and once that another program writes to streams.
sub _tell_lack {
    my ($self, $thread) = @_;
    my $log    = $self->{log}->of('hub');
    my $lacked = $thread->lacked;
    my $more   = $lacked - ($self->{lacked} // 0);
    $log->error("no descriptor is left for processes that join: $more have to try again") if $more;
    $self->{lacked} = $lacked;
    return if $self->{is_foreign} || !$thread->foreign;
    $self->{is_foreign} = 1;
    $log->warn('entries of streams in Redis are passed over: another program has written them');
    return;
}

# Starts the process of the hub. `leave`: closes the descriptors that it must not have.
sub start_process {
    my ($self, $loop, $leave) = @_;
    weaken(my $weak = $self);
    $self->{beside} = Peregrine::Server::Beside->start(
        %{$self}{qw(log heartbeat named)},
        loop   => $loop,
        role   => 'hub',
        failed => 'there is no hub',
        serve  => sub {
            $leave->();
            my $own_loop = $weak->{configuration}->make_loop;
            return ($own_loop, Peregrine::Server::Hub::Serving->new($weak, $own_loop));
        },
    );
    return;
}

sub tell {
    my ($self, @message) = @_;
    $self->{beside}->tell(@message) if $self->{beside};
    return;
}

sub stop_process {
    my ($self) = @_;
    $self->_close;
    my $beside = delete $self->{beside} or return Future->done;
    return $beside->stop;
}

# A server in the process of the hub, as far as Peregrine::Child and Peregrine::Process need one.
package Peregrine::Server::Hub::Serving;

# LOOK_S: see above; SILENT_MAX: looks without a beat of the thread (one a second) until it counts as hung.
use constant { LOOK_S => Peregrine::Server::Hub::LOOK_S, SILENT_MAX => 5 };

sub new {
    my ($class, $hub, $loop) = @_;
    return bless { hub => $hub, loop => $loop }, $class;
}

sub start {
    my ($self) = @_;
    $self->{thread} = $self->{hub}->_thread(fileno $self->{hub}{hub_file});
    $self->{hub}->_watch($self->{loop});
    $self->{hub}->_watch_confined($self->{loop});
    $self->_look;
    return 1;
}

# Ends the process if its thread hangs, so that its master starts another one. Looks are counted, not seconds:
# if the process itself was stopped, its thread had no time either.
sub _look {
    my ($self) = @_;
    my $beats = $self->{thread} ? $self->{thread}->beats : return;
    $self->{hub}->_tell_trouble($self->{thread});
    $self->{silent} = defined $self->{beats} && $beats == $self->{beats} ? $self->{silent} + 1 : 0;
    $self->{beats}  = $beats;
    if ($self->{silent} >= SILENT_MAX) {
        $self->{hub}{log}->of('hub')->error('its thread hangs: the process ends, and another one begins');
        POSIX::_exit(1);
    }
    $self->{look} = Peregrine::Later::later($self->{loop}, LOOK_S, $self, '_look');
    return;
}

sub shutdown {
    my ($self) = @_;
    $self->{hub}->_close;
    delete $self->{thread};
    return Future->done;
}

sub reopen_logs {
    my ($self, @descriptor) = @_;
    return Peregrine::Process->take_logs($self->{hub}{reopens}, @descriptor);
}

sub retire           { my ($self) = @_; return $self->shutdown }
sub hurry            { return }
sub give_up_stop     { return }
sub stop_within      { return }
sub fail_stalled     { return 0 }
sub load_again       { return }
sub connection_count { return 0 }

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::Hub - what brings messages from one interpreter to the others

=head1 DESCRIPTION

The option C<channels>. A server without workers runs the hub on a thread; beside workers it is a process of
its own (L<Peregrine::Server::Beside>). Interpreters reach it by a socket that they have
inherited (L<Peregrine::Node>).

=head1 METHODS

=head2 new

    my $hub = Peregrine::Server::Hub->new(log => $log, configuration => $configuration, heartbeat => 50);

Makes the sockets, or takes those of the program that this one takes over from.

=head2 for_handover

    my %handles = $hub->for_handover;

By name, what a program that takes over needs.

=head2 node

    my $node = $hub->node($loop);

The node of an interpreter.

=head2 deliver

    $hub->deliver($worker);

The worker's engine, which is not on this thread, or has interpreters that join it, delivers topics by itself.

=head2 confine

    $hub->confine($group, 'shop.');

The workers of this mount, by the number of its group, may name topics that begin so, and no others.

=head2 leave

    $hub->leave;
    $hub->leave($group);

In a process that is not the hub: closes what the hub alone needs. The workers of a confined mount tell its
number.

=head2 shut

    $hub->shut;

In a process that must not reach the hub, either: closes that way, too.

=head2 listen

    $hub->listen(uid => $uid, gid => $gid);

Opens C<channels_socket>, if the option is there.

=head2 start_thread, stop_thread

    $hub->start_thread($loop);
    $hub->stop_thread;

=head2 start_process, tell, stop_process

    $hub->start_process($loop, sub { ... });
    $hub->tell('reopen', undef, fileno STDERR);
    my $future = $hub->stop_process;

The function is called in the new process, and closes what that must not have.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
