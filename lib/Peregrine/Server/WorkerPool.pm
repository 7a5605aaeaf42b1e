package Peregrine::Server::WorkerPool;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use PAGI::Server::PoolHandlers;
use PAGI::Server::WorkerPool;
use Peregrine;
use Peregrine::Deadline;
use Peregrine::Master;
use Peregrine::PoolProcess;
use Peregrine::Process;
use Peregrine::Spread;
use Scalar::Util qw(weaken);
use Socket       qw(AF_UNIX PF_UNSPEC SOCK_SEQPACKET SOL_SOCKET SO_RCVTIMEO SO_SNDBUF);

# Seconds after which an idle process looks at its master's messages, if no signal has told it to.
use constant LOOK_S => 1;

# Bytes of calls on their way, as asked of the kernel, which allows fewer.
use constant SEND_BYTES => 1 << 24;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# `log`, `configuration`, `reopens`: functions that open logs anew.
sub new {
    my ($class, %args) = @_;
    my $self = bless {%args}, $class;
    $self->{options}  = $args{configuration}->options;
    $self->{deadline} = Peregrine::Deadline->new;
    $self->{places}   = Peregrine::Spread->new;
    $self->{notice}   = Peregrine::Words->new(1);
    $self->{counts}   = Peregrine::Words->new(scalar(my @counts = Peregrine::PoolProcess::COUNTS));
    $self->_open;
    return $self;
}

# Makes the pool's sockets. Interpreters send calls to `calls`; idle processes wait at `takes`, and one of
# them gets each call.
sub _open {
    my ($self) = @_;
    socketpair $self->{calls}, $self->{takes}, AF_UNIX, SOCK_SEQPACKET, PF_UNSPEC
        or die "the worker pool's sockets: $!\n";
    setsockopt $self->{calls}, SOL_SOCKET, SO_SNDBUF, SEND_BYTES;
    setsockopt $self->{takes}, SOL_SOCKET, SO_RCVTIMEO, pack 'l!l!', LOOK_S, 0;
    my ($calls, $call) = (fileno $self->{calls}, "\0" x Peregrine::PoolProcess::CALL_BYTES);
    my $sent = Peregrine::send_descriptors($calls, $call);
    $self->{message_size} = Peregrine::unreceived_bytes($calls);
    Peregrine::receive_descriptors(fileno $self->{takes}, length $call) if $sent;
    die "worker_pool: this system does not tell how many calls wait\n"  if !$self->{message_size};
    return;
}

# The object that an application's interpreter calls.
sub for_interpreter {
    my ($self, $loop) = @_;
    return PAGI::Server::WorkerPool->new(
        loop    => $loop,
        socket  => $self->{calls},
        words   => $self->{places}->words,
        queue   => $self->{options}{pool_queue},
        timeout => $self->{options}{pool_timeout},
        at_most => $self->{options}{pool_workers},
        %{$self}{qw(log message_size counts)},
    );
}

# Figures for the status.
sub facts {
    my ($self) = @_;
    my @names = Peregrine::PoolProcess::COUNTS;
    my %counts;
    @counts{@names} = $self->{counts}->get(0, scalar @names);
    my $seconds = delete($counts{busy}) / 1_000_000;
    return { %{ $self->for_interpreter->stats }, calls => \%counts, seconds => $seconds };
}

# ---- Processes ----------------------------------------------------------------------------------

# Starts the processes. `leave`: closes descriptors that they must not have. `has_template`: they are forked
# from a process that has loaded their code.
sub start {
    my ($self, $loop, %args) = @_;
    weaken(my $weak = $self);
    my ($leave, $template) = @args{qw(leave has_template)};
    $self->{master} = Peregrine::Server::WorkerPool::Master->new(
        loop              => $loop,
        log               => $self->{log}->of('pool'),
        role              => 'pool',
        count             => $self->{options}{pool_workers},
        spread            => $self->{places},
        notice            => $self->{notice},
        untaken           => sub { return $weak->for_interpreter->untaken },
        start_timeout     => $self->{configuration}->start_timeout,
        named             => $self->{configuration}->deadline_names,
        heartbeat_timeout => 0,
        limits            => { rss => $self->{options}{pool_max_rss} },
        stop_timeout      => sub { return $weak->{deadline}->for_interpreter($weak->{options}, @_) },
        run               => sub {
            my ($record) = @_;
            if (!$template) {
                $leave->();
                Peregrine::forget_end_blocks();    # the application's
                $weak->_load;
            }
            return $weak->_run($record);
        },
        $template ? $weak->_template($leave) : (),
    );
    return $self->{master}->start;
}

sub _template {
    my ($self, $leave) = @_;
    weaken(my $weak = $self);
    return (
        load    => sub { $leave->(); $weak->_load },
        on_word =>
            sub { my ($word, undef, @descriptor) = @_; $weak->_take_logs(@descriptor) if $word eq 'reopen' },
    );
}

sub _load {
    my ($self) = @_;
    my $given = $self->{options}{worker_pool};
    $self->{code} = ref $given ? $given : Peregrine::Process->load_once(
        $self->{log},
        'the file of the worker pool',
        sub { return PAGI::Server::PoolHandlers::of_file($given) }
    );
    return;
}

# Runs a process of the pool; returns its exit status.
sub _run {
    my ($self, $record) = @_;
    return Peregrine::PoolProcess->new(
        %{$record}{qw(link number)},
        %{ $self->{code} }{qw(handlers init cleanup)},
        log    => $self->{log},
        socket => fileno $self->{takes},
        words  => $self->{places}->words,
        %{$self}{qw(notice counts)},
        place        => $record->{spread},
        take_logs    => sub { return $self->_take_logs(@_) },
        calls_max    => $self->{configuration}->by_chance('pool_max_calls'),
        idle_timeout => $self->{options}{pool_idle_timeout},
    )->run;
}

# Interrupts the start: its Future fails with the category `stopped`, unless it is done.
sub stop_start {
    my ($self) = @_;
    my $master = $self->{master};
    $master->stop->retain if $master && !$master->is_running;
    return;
}

# Replaces all processes. The Future is true if all have new code.
sub restart {
    my ($self) = @_;
    return $self->{master} ? $self->{master}->restart : Future->done(1);
}

sub tell {
    my ($self, @message) = @_;
    $self->{master}->tell(@message) if $self->{master};
    return;
}

# Takes over new log files, in a process of the pool or in their template.
sub _take_logs {
    my ($self, @descriptor) = @_;
    return Peregrine::Process->take_logs($self->{reopens}, @descriptor);
}

sub renew {
    my ($self) = @_;
    $self->{master}->renew if $self->{master};
    return;
}

sub hurry {
    my ($self) = @_;
    $self->{master}->hurry if $self->{master};
    return;
}

# Stops the processes. The master's Future is done within a callback of the master, which must outlive it.
sub stop {
    my ($self, $loop, $seconds) = @_;
    my $master = $self->{master} or return Future->done;
    $self->{deadline}->within($seconds);
    return $master->stop->then(sub {
        $loop->later(sub { $self->abandon });
    });
}

# Drops the master, whose processes end when they see that it has gone.
sub abandon {
    my ($self) = @_;
    $self->{deadline}->clear;
    delete $self->{master};
    return;
}

# ---- The master ---------------------------------------------------------------------------------

package Peregrine::Server::WorkerPool::Master;

use parent -norequire, qw(Peregrine::Master);

use List::Util       qw(max min);
use Peregrine::Later qw(weakly);

# `notice`: a word in shared memory; `untaken`: counts calls that no process has taken; `count`: the most
# processes, and their number at the start. With pool_idle_timeout there are fewer while they are idle: at
# least one, and as a rule one more than are at calls, so that calls which come one after another do not wait
# for the start of a process.
sub new {
    my ($class, %args) = @_;
    my $self = $class->SUPER::new(%args);
    @{$self}{qw(at_most notice untaken)} = @args{qw(count notice untaken)};
    $self->{hear} = { busy => weakly($self, '_grow'), idle => weakly($self, '_shrink') };
    return $self;
}

sub _kind       { return 'pool process' }
sub _rss_option { return 'pool_max_rss' }

# The word in shared memory with the state of the process.
sub _word {
    my ($self, $child) = @_;
    return $self->{shared}{spread}->words->get($child->{spread});
}

sub _is_idle {
    my ($self, $child) = @_;
    return $self->_word($child) == Peregrine::PoolProcess::IDLE ? 1 : 0;
}

sub _serving {
    my ($self) = @_;
    return grep { $_->{state} eq 'serving' } $self->children;
}

# Adds at least one process for calls that wait, if no process is idle. One that is about to end takes no
# further call, though its word may still say that it is idle.
sub _grow {
    my ($self) = @_;
    return if !$self->is_running || $self->{wanted} >= $self->{at_most};
    my @serving = $self->_serving;
    my %numbers = map { $_->{number} => 1 } @serving;
    return if keys %numbers < $self->{wanted} || grep { $self->_is_idle($_) } @serving;
    return $self->set_count(min($self->{at_most}, $self->{wanted} + max(1, $self->{untaken}->())));
}

# Lets an idle process end. Only the one with the highest number goes, so that the numbers have no gap, and
# another one stays idle.
sub _shrink {
    my ($self, $child) = @_;
    return if !$self->is_running || $child->{state} ne 'serving' || $child->{number} != $self->{wanted};
    return if !$self->_is_idle($child) || 2 > grep { $self->_is_idle($_) } $self->_serving;
    $child->{was_idle} = 1;
    return $self->set_count($self->{wanted} - 1);
}

# Looks for calls that wait, too: a process that gets a call may see another one idle that is about to end,
# and not say `busy`.
sub _look {
    my ($self) = @_;
    $self->_grow;
    my @leaving = grep { $_->{state} eq 'leaving' && !$_->{leaves} } $self->children;
    $self->_note_leaving($_) for @leaving;
    $self->_look_at_restart if @leaving;
    return $self->SUPER::_look;
}

# Notes a leaving process that is at a call as having left: it reads its messages before the next call. An
# idle process may get one more call before it reads that it is to leave, and says itself when it has.
sub _note_leaving {
    my ($self, $child) = @_;
    $child->{leaves} = 1 if !$self->_is_idle($child);
    return;
}

# Kills a process whose call has had its time. The caller has got its failure already, and the process has not
# failed by itself.
sub _check_busy {
    my ($self, $child, $now) = @_;
    my $until = $self->_word($child);
    return if $until <= Peregrine::PoolProcess::IDLE || $now * 1000 < $until;
    $self->_kill($child, 'was at a call whose time is up (pool_timeout, or the timeout of the call)',
        'request');
    return;
}

# Kills a process; but one that was idle and was told to leave may have got a call meanwhile, which has the
# time of any call.
sub _kill {
    my ($self, $child, $why, $counts_as) = @_;
    my $is_at_a_call = $self->_word($child) > Peregrine::PoolProcess::IDLE;
    return if $child->{was_idle} && $is_at_a_call && !$counts_as && $self->is_running;
    return $self->SUPER::_kill($child, $why, $counts_as);
}

sub _is_crash {
    my ($self, $child) = @_;
    return ($child->{counts_as} // '') ne 'request' && $self->SUPER::_is_crash($child);
}

# Tells a process to leave. At a call it does not read its messages. One that was idle and is not needed has
# time, because the signal could come when it has just got a call. Waiting calls are left to its successor,
# unless all processes stop.
sub _tell_to_leave {
    my ($self, $child, $seconds, $set_by, @message) = @_;
    @message = qw(retire restart) if $message[0] eq 'stop' && $self->{phase} ne 'stopping';
    $self->SUPER::_tell_to_leave($child, $seconds, $set_by, @message);
    $self->{notice}->add(0, 1);
    $self->_note_leaving($child);
    my $has_time = ($message[1] // '') eq 'fewer';
    kill TERM => $child->{pid} if $child->{pid} && !$has_time && $self->_is_idle($child);
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::WorkerPool - the part of a server that has the processes of its worker pool

=head1 DESCRIPTION

Has a pair of sockets through which calls come to idle processes (L<Peregrine::PoolProcess>), shared memory
in which the processes say what they do, and a L<Peregrine::Master> that keeps them. Interpreters get a
L<PAGI::Server::WorkerPool> for their applications.

=head1 METHODS

=head2 new

    my $pool = Peregrine::Server::WorkerPool->new(
        log => $log, configuration => $configuration, reopens => [ sub { ... } ],
    );

C<reopens> are functions that open logs anew: they get the descriptor of the new one in each process.

=head2 start, stop_start, stop, hurry, abandon

    my $starting = $pool->start($loop, leave => sub { ... }, has_template => 1);
    my $stopping = $pool->stop($loop, $seconds);

C<leave> is called in each process, and closes what it must not have.

=head2 restart, renew

    my $restarting = $pool->restart;

Replaces the processes by others, which load the handlers' file again: one by one, or all at once. The Future
of C<restart> is done with 1, or with 0 if new processes do not start and old ones go on.

=head2 tell

    $pool->tell(reopen => undef, fileno STDERR);

Says something to all processes: C<reopen> comes with their log from now on.

=head2 facts

    my $facts = $pool->facts;

See L<PAGI::Server::Status/facts>.

=head2 for_interpreter

    my $calls = $pool->for_interpreter($loop);

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
