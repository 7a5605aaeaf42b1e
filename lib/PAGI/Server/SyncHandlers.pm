package PAGI::Server::SyncHandlers;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use PAGI::Server::PoolHandlers;
use PAGI::Sync;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# `here`: handlers run in this process. `calls`: the PAGI::Server::WorkerPool for calls by name, if any.
# `worker_pool`: the option. `workers`: processes for handlers; `queue`: requests that may wait for them.
sub new {
    my ($class, %args) = @_;
    return bless { %args{qw(here calls worker_pool workers queue)} }, $class;
}

sub takes_sync { return 1 }

# ---- In a process for handlers ------------------------------------------------------------------

# Makes the state that handlers get.
sub begin {
    my ($self) = @_;
    return if !$self->{here};
    my $given = $self->{worker_pool};
    my $code  = ref $given ? $given : defined $given ? PAGI::Server::PoolHandlers::of_file($given) : {};
    $self->{cleanup} = $code->{cleanup};
    $self->{state}   = $code->{init} ? $code->{init}->() : {};
    return;
}

sub state { return $_[0]{state} }

sub end {
    my ($self) = @_;
    $self->{calls}->end if $self->{calls};
    my $cleanup = delete $self->{cleanup}         or return;
    eval { $cleanup->(delete $self->{state}); 1 } or warn "worker_pool: cleanup died: $@";
    return;
}

# ---- Methods for applications ---------------------------------------------------------------------

sub call {
    my ($self, $handler, %options) = @_;
    return $self->handle($handler, ref $options{args} eq 'ARRAY' ? @{ $options{args} } : ())
        if PAGI::Sync::is_sync($handler);
    my $calls = $self->{calls}
        or return _failed(UnknownHandler => 'there is no worker pool: use --worker-pool');
    return $calls->call($handler, %options);
}

sub call_forget {
    my ($self, $handler, %options) = @_;
    my $calls = $self->{calls};
    return $calls->call_forget($handler, %options) if $calls && !PAGI::Sync::is_sync($handler);
    $self->call($handler, %options)->on_fail(sub { warn "a call_forget failed: $_[0]\n" })->retain;
    return;
}

sub stats {
    my ($self) = @_;
    return $self->{calls}->stats if $self->{calls};
    # The engine queues requests that are handed over, and refuses them itself.
    my ($workers, $queue) = @{$self}{qw(workers queue)};
    return { workers => $workers, busy => 0, idle => $workers, queue_depth => 0, queue_limit => $queue };
}

sub _failed {
    my ($kind, $text) = @_;
    return Future->fail("$kind: $text", 'worker_pool', $kind);
}

# Answers a request of this interpreter's warm-up: processes for handlers have a warm-up of their own.
sub _pass {
    my ($send) = @_;
    $send->({ type => 'http.response.start', status => 204, headers => [] });
    return $send->({ type => 'http.response.body', body => '' });
}

# Runs the code of a handler with these arguments, or hands its request over.
sub handle {
    my ($self, $code, $scope, $receive, $send) = @_;
    my $transport = ref $scope eq 'HASH' ? $scope->{'pagi.transport'} : undef;
    return _failed(InvalidCall => 'a sync handler gets the scope of a request, $receive and $send')
        if !$transport || @_ != 5;
    return PAGI::Sync::run($code, $scope, $receive, $send) if $self->{here};
    my $is_over = $transport->_hand_over // return _pass($send);
    return Future->done if $is_over;
    return _failed(InvalidCall => 'a sync handler gets a request of which nothing was read or answered');
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::SyncHandlers - handlers that block, and the processes that run them

=head1 DESCRIPTION

The worker pool of scopes where the server has processes for sync handlers (L<PAGI::Sync>). Such a process
is an interpreter like the others, but gets only requests that others hand over. Calls by name go on to the
L<PAGI::Server::WorkerPool>, if there is one.

=head1 METHODS

=head2 new

    my $handlers = PAGI::Server::SyncHandlers->new(
        here => 0, calls => $pool, worker_pool => $option,
    );

=head2 begin, end

In a process for handlers: make and clean up the state.

=head2 call, call_forget, stats

As in L<PAGI::Server::WorkerPool/METHODS>. C<call> of a handler that is marked, with the scope, C<$receive>
and C<$send>, hands the request over. Its Future is done then; nothing more of the request happens here.

=head2 handle

    my $future = $handlers->handle($code, $scope, $receive, $send);

Runs the code of a handler in a process for handlers, hands the request over elsewhere.

=head2 state

What handlers share in this process.

=head2 takes_sync

True.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
