package Peregrine::Server::Hub;

use strict;
use warnings;

our $VERSION = '0.003000';

use Fcntl qw(F_SETFD FD_CLOEXEC);
use Future;
use Peregrine;
use Peregrine::Handover;
use Peregrine::Node;
use Peregrine::Server::Beside;
use Scalar::Util qw(weaken);
use Socket       qw(AF_UNIX PF_UNSPEC SOCK_SEQPACKET);

# The descriptors that a hot upgrade hands over, so that both programs have one hub.
my @KEPT = qw(hub_join hub_end);

# See Peregrine::Threads.
sub CLONE_SKIP                       { return 1 }
sub Peregrine::HubHandle::CLONE_SKIP { return 1 }

# `log`, `configuration`, `heartbeat`.
sub new {
    my ($class, %args) = @_;
    my $self = bless {%args}, $class;
    $self->_inherit or $self->_open;
    return $self;
}

# ---- Sockets ------------------------------------------------------------------------------------

# Interpreters send one end of a connection each through `hub_join`; the hub receives them from `hub_end`. The
# process that has the lock of `hub_end` is the hub; the hub of a program that takes over waits for it.
sub _open {
    my ($self) = @_;
    socketpair $self->{hub_join}, $self->{hub_end}, AF_UNIX, SOCK_SEQPACKET, PF_UNSPEC
        or die "the hub's sockets: $!\n";
    return;
}

sub _inherit {
    my ($self) = @_;
    my $before = Peregrine::Handover->from_environment or return 0;
    my @given  = map { $before->take($_) } @KEPT;
    return 0 if grep { !defined } @given;
    for my $i (0 .. $#KEPT) {
        open my $handle, '+<&=', $given[$i] or die "the hub's sockets: $!\n";
        fcntl $handle, F_SETFD, FD_CLOEXEC or die "the hub's sockets: $!\n";
        $self->{ $KEPT[$i] } = $handle;
    }
    return 1;
}

# Name => handle.
sub for_handover {
    my ($self) = @_;
    return map { $_ => $self->{$_} } @KEPT;
}

# The node of an interpreter, in its loop.
sub node {
    my ($self, $loop) = @_;
    return Peregrine::Node->new(loop => $loop, join => $self->{hub_join});
}

# ---- The hub ------------------------------------------------------------------------------------

sub start_thread {
    my ($self) = @_;
    $self->{thread} = Peregrine::HubHandle->new(fileno $self->{hub_end}, -1)
        or die "the hub's thread cannot be started: $!\n";
    return;
}

sub stop_thread {
    my ($self) = @_;
    delete $self->{thread};
    return;
}

# `leave`: closes what the process must not have.
sub start_process {
    my ($self, $loop, $leave) = @_;
    weaken(my $weak = $self);
    $self->{beside} = Peregrine::Server::Beside->start(
        %{$self}{qw(log heartbeat)},
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

sub stop_process {
    my ($self) = @_;
    my $beside = delete $self->{beside} or return Future->done;
    return $beside->stop;
}

# In the process of the hub: what Peregrine::Child and Peregrine::Process ask of a server.
package Peregrine::Server::Hub::Serving;

sub new {
    my ($class, $hub, $loop) = @_;
    return bless { hub => $hub, loop => $loop }, $class;
}

sub start {
    my ($self) = @_;
    my $socket = fileno $self->{hub}{hub_end};
    $self->{thread} = Peregrine::HubHandle->new($socket, $socket)
        or die "the hub's thread cannot be started: $!\n";
    return 1;
}

sub shutdown {
    my ($self) = @_;
    delete $self->{thread};
    return Future->done;
}

sub retire           { my ($self) = @_; return $self->shutdown }
sub hurry            { return }
sub give_up_stop     { return }
sub stop_within      { return }
sub fail_stalled     { return 0 }
sub reopen_logs      { return }
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

=head2 start_thread, stop_thread

=head2 start_process, stop_process

    $hub->start_process($loop, sub { ... });
    my $future = $hub->stop_process;

The function is called in the new process, and closes what that must not have.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
