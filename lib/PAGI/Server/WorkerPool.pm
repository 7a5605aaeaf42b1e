package PAGI::Server::WorkerPool;

use strict;
use warnings;

our $VERSION = '0.003000';

use Errno qw(EAGAIN EINTR);
use Future;
use List::Util qw(max min);
use PAGI::Sync;
use Peregrine;
use Peregrine::Deadline;
use Peregrine::Later qw(later weakly);
use Peregrine::PoolProcess;
use POSIX        ();
use Scalar::Util qw(looks_like_number reftype weaken);
use Socket       qw(AF_UNIX PF_UNSPEC SOCK_STREAM);

# Bytes that are read at a time, and bytes of an answer at most.
use constant { READ_MAX => 65_536, ANSWER_MAX => 65 << 20 };

# Every number is less than this one; NaN is not.
use constant INFINITE => 9**9**9;

# Lines without a call that stay open for further calls, at most.
use constant SPARE_MAX => 64;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# `socket`: processes take calls from it; `message_size`: bytes of the kernel's memory for a message there;
# `words`: states of processes; `queue`, `timeout`: the options; `at_most`: processes that the pool has while
# none is idle or replaced.
sub new {
    my ($class, %args) = @_;
    my $self = bless {
        %args{qw(loop log socket message_size words counts queue timeout at_most)},
        number => fileno $args{socket},
        lines  => {},                     # with a call, by the number of their descriptor
        spares => [],
        pid    => $$,
    }, $class;
    weaken($self->{loop}) if $self->{loop};
    return $self;
}

sub call {
    my ($self, $name, %options) = @_;
    return $self->_submit($name, 0, \%options);
}

sub call_forget {
    my ($self, $name, %options) = @_;
    my $what = _is_text($name) ? "the call of '$name', which nobody waits for," : 'a call_forget';
    my $log  = $self->{log};
    $self->_submit($name, 1, \%options)->on_fail(sub {
        my ($why, undef, $kind) = @_;
        # The process has logged failures of its own.
        $log->error("$what failed: $why") if $kind !~ /\A(?:HandlerDied|UnknownHandler|NotSerializable)\z/;
    })->retain;
    return;
}

sub stats {
    my ($self) = @_;
    my ($count, $idle) = $self->_processes;
    return {
        workers     => $count,
        busy        => $count - $idle,
        idle        => $idle,
        queue_depth => $self->_waiting($idle),
        queue_limit => $self->{queue},
    };
}

# The number of processes, and the number of those that wait for a call.
sub _processes {
    my ($self) = @_;
    my $words  = $self->{words};
    my $most   = $words->get(0) or return (0, 0);
    my @states = grep { $_ } $words->get(1, $most);
    return (scalar @states, scalar grep { $_ == Peregrine::PoolProcess::IDLE } @states);
}

# Calls of all interpreters that no process has taken, without those for which a process is idle.
sub _waiting {
    my ($self, $idle) = @_;
    return max(0, $self->untaken - $idle);
}

# An estimate of the calls that no process has taken: the kernel tells only the memory of all calls in the
# socket, which is divided by the memory of the one call that was measured at the start.
sub untaken {
    my ($self) = @_;
    return int(Peregrine::unreceived_bytes($self->{number}) / $self->{message_size});
}

# ---- A call -------------------------------------------------------------------------------------

sub _failed {
    my ($kind, $text, @details) = @_;
    return Future->fail("$kind: $text", 'worker_pool', $kind, @details);
}

sub _is_text { return defined $_[0] && !ref $_[0] && length $_[0] }

sub _problem_with_call {
    my ($self, $name, $args, $timeout, $options) = @_;
    my ($more) = sort keys %$options;
    return "a call has no option '$more'" if defined $more;
    return 'sync handlers need processes of their own: use --engine process and --sync-workers'
        if PAGI::Sync::is_sync($name);
    return 'a handler has a name'              if !_is_text($name);
    return 'args has to be an array reference' if !(ref $args && reftype($args) eq 'ARRAY');
    return 'timeout has to be a number of seconds'
        if !looks_like_number($timeout) || !($timeout >= 0 && $timeout < INFINITE);
    return "process $$ was forked from another one, which has the pool" if $self->{pid} != $$;
    return;
}

sub _submit {
    my ($self, $name, $forgets, $options) = @_;
    my $args    = delete $options->{args}    // [];
    my $timeout = delete $options->{timeout} // $self->{timeout};
    my $problem = $self->_problem_with_call($name, $args, $timeout, $options);
    return _failed(InvalidCall => $problem) if defined $problem;
    my ($bytes, undef, $why) = Peregrine::encode_values([ $name, $forgets, @$args ]);
    return _failed(NotSerializable => "the arguments of '$name': $why") if !defined $bytes;
    return $self->_full                                                 if $self->_is_full;
    my $line = pop @{ $self->{spares} } // $self->_open or return _failed(Unavailable => "no call now: $!");
    @{$line}{qw(name until answer)} = ($name, $timeout && Peregrine::Deadline::now() + $timeout, '');
    return $self->_start($line, $bytes);
}

sub _is_full {
    my ($self) = @_;
    my ($own, $queue) = (scalar keys %{ $self->{lines} }, $self->{queue});
    return 0 if $own < $queue && $self->untaken < $queue;    # the queue has room, even if no process is idle
    my ($count, $idle) = $self->_processes;
    my $coming = max(0, $self->{at_most} - $count);    # processes that start, or will start for waiting calls
    return 1 if $own >= $count + $coming + $queue;
    # The calls are counted after the idle processes: a call that such a process takes meanwhile would count
    # as one that waits, and the process as one that is not idle.
    return $self->untaken + 1 - $idle - $coming > $queue;
}

sub _full {
    my ($self) = @_;
    my $stats = $self->stats;
    $self->{counts}->add(Peregrine::PoolProcess::REFUSED, 1);
    return _failed(
        Backpressure => "worker pool queue full ($stats->{queue_depth}/$stats->{queue_limit})",
        $stats
    );
}

# Opens a line: a pair of sockets for one call at a time. The far end goes to the process with the call, and
# comes back with the answer. A line whose far end is closed tells that its process has ended.
sub _open {
    my ($self) = @_;
    socketpair my $near, my $far, AF_UNIX, SOCK_STREAM, PF_UNSPEC or return;
    $near->blocking(0);
    Peregrine::hide_from_forks(fileno $_, 1) for $near, $far;
    my $line = { near => $near, number => fileno $near, far => $far };
    $self->{loop}->watch_io(handle => $near, on_read_ready => weakly($self, _read => $line));
    return $line;
}

# Closes an end of a line: a handle, or the number of a descriptor that was received.
sub _close_end {
    my ($end) = @_;
    Peregrine::hide_from_forks(ref $end ? fileno $end : $end, 0);
    return ref $end ? close $end : POSIX::close($end);
}

sub _close {
    my ($self, $line) = @_;
    my $near = delete $line->{near} or return;
    if (my $loop = $self->{loop}) {
        $loop->unwatch_io(handle => $near, on_read_ready  => 1);
        $loop->unwatch_io(handle => $near, on_write_ready => 1) if $line->{writes};
    }
    _close_end($_) for grep { defined } $near, delete $line->{far};
    return;
}

sub _start {
    my ($self, $line, $bytes) = @_;
    my $future = $self->{loop}->new_future;
    my $until  = int 1000 * $line->{until};
    my $far    = delete $line->{far};
    if (length $bytes > Peregrine::PoolProcess::SHORT_BYTES) {
        $line->{output} = pack 'N a*', length $bytes, $bytes;
        $self->_write($line);
    }
    my $message = Peregrine::PoolProcess::message($until, $bytes);
    my $sent    = Peregrine::send_descriptors($self->{number}, $message, ref $far ? fileno $far : $far);
    my $why     = $!;
    _close_end($far);

    if (!$sent) {    # the kernel limits messages and descriptors on their way
        $self->_close($line);
        return $why == EAGAIN ? $self->_full : _failed(Unavailable => "no call now: $why");
    }
    $line->{future} = $future;
    $self->{lines}{ $line->{number} } = $line;
    $future->on_cancel(weakly($self, _give_up => $line));
    $self->_limit($line->{until}) if $until;
    return $future;
}

sub _write {
    my ($self, $line) = @_;
    my $left = length $line->{output};
    while ($left) {
        my $sent = Peregrine::send_descriptors($line->{number}, $line->{output});
        next if !defined $sent && $! == EINTR;
        last if !defined $sent;
        $left -= $sent;
        substr $line->{output}, 0, $sent, '' if $left;
    }
    my $waits = $left ? 1 : 0;
    return if $waits == ($line->{writes} // 0);
    $line->{writes} = $waits;
    return $self->{loop}->unwatch_io(handle => $line->{near}, on_write_ready => 1) if !$waits;
    $self->{loop}->watch_io(handle => $line->{near}, on_write_ready => weakly($self, _write => $line));
    return;
}

# Reads an answer. It ends with the far end, or with the end of the line: this process may have no room for a
# descriptor, or the other process cannot send it.
sub _read {
    my ($self, $line) = @_;
    while ($line->{near}) {
        my ($bytes, $far) = Peregrine::receive_descriptors($line->{number}, READ_MAX);
        return                     if !defined $bytes && ($! == EAGAIN || $! == EINTR);
        return $self->_lost($line) if !length($bytes // '');
        $line->{answer} .= $bytes;
        return $self->_answered($line, $far) if defined $far;
        return $self->_lost($line)           if length $line->{answer} > ANSWER_MAX;
    }
    return;
}

sub _answered {
    my ($self, $line, $far) = @_;
    $line->{far} = $far;
    my $answer = Peregrine::decode_values(delete $line->{answer});
    my $future = delete $line->{future};
    delete $self->{lines}{ $line->{number} };
    my $is_spare = defined $far && @{ $self->{spares} } < SPARE_MAX && !$line->{writes};
    if ($is_spare) { push @{ $self->{spares} }, $line }
    else           { $self->_close($line) }
    return if !$future || $future->is_ready;
    my ($kind, $value) = $answer ? @$answer : ('WorkerDied', 'its answer was not understood');
    return $future->done($value) if $kind eq 'done';
    return $future->fail($value, 'worker_pool', $kind) if $kind eq 'HandlerDied';
    return $future->fail("$kind: $value", 'worker_pool', $kind);
}

# Forgets a call whose answer has no receiver any more.
sub _give_up {
    my ($self, $line) = @_;
    delete $line->{future};
    return if !$line->{near} || $self->{pid} != $$;
    delete $self->{lines}{ $line->{number} };
    $self->_close($line);
    return;
}

sub _fail {
    my ($self, $line, $kind, $text) = @_;
    my $future = delete $line->{future};
    $self->_give_up($line);
    $future->fail("$kind: $text", 'worker_pool', $kind) if $future && !$future->is_ready;
    return;
}

# Handles the end of a line. If the time of its call is up, the master may have killed the process first.
sub _lost {
    my ($self, $line) = @_;
    if (!$line->{future}) {
        @{ $self->{spares} } = grep { $_ != $line } @{ $self->{spares} };
        return $self->_close($line);
    }
    return $self->_answered($line) if Peregrine::decode_values($line->{answer});
    return $self->_late($line)
        if $line->{until} && int 1000 * $line->{until} <= 1000 * Peregrine::Deadline::now();
    $self->{counts}->add(Peregrine::PoolProcess::LOST, 1);
    return $self->_fail($line, WorkerDied => "the process that worked at '$line->{name}' has ended");
}

# ---- Deadlines ----------------------------------------------------------------------------------

# Sets the timer for the next deadline. One timer serves all calls.
sub _limit {
    my ($self, $until) = @_;
    return                                      if $self->{timer} && $self->{next} <= $until;
    $self->{loop}->unwatch_time($self->{timer}) if $self->{timer};
    $self->{next}  = $until;
    $self->{timer} = later($self->{loop}, max(0, $until - Peregrine::Deadline::now()), $self, '_look');
    return;
}

sub _late {
    my ($self, $line) = @_;
    $self->{counts}->add(Peregrine::PoolProcess::TIMEOUT, 1);
    return $self->_fail($line, Timeout => "the call of '$line->{name}' was not over in time");
}

sub _look {
    my ($self) = @_;
    delete $self->{timer};
    my $now   = Peregrine::Deadline::now();
    my @lines = grep { $_->{until} } values %{ $self->{lines} };
    $self->_late($_) for grep { $_->{until} <= $now } @lines;
    my $next = min(map { $_->{until} } grep { $_->{future} } @lines);
    $self->_limit($next) if defined $next;
    return;
}

sub end {
    my ($self) = @_;
    return if $self->{pid} != $$;
    my $timer = delete $self->{timer};
    $self->{loop}->unwatch_time($timer) if $timer && $self->{loop};
    $self->_fail($_, Unavailable => 'the interpreter has ended') for values %{ $self->{lines} };
    $self->_close($_) for splice @{ $self->{spares} };
    return;
}

sub DESTROY {
    my ($self) = @_;
    $self->end if ${^GLOBAL_PHASE} ne 'DESTRUCT';
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::WorkerPool - blocking calls for applications of PAGI

=head1 SYNOPSIS

    # pool.pl, for pagi-server --worker-pool pool.pl app.pl
    use DBI;

    +{
        init     => sub { return { db => DBI->connect($dsn, $user, $password, { RaiseError => 1 }) } },
        handlers => {
            'user.get' => sub {
                my ($state, $id) = @_;
                return $state->{db}->selectrow_hashref('SELECT * FROM users WHERE id = ?', undef, $id);
            },
        },
        cleanup => sub { my ($state) = @_; $state->{db}->disconnect },
    };

    # app.pl
    async sub app {
        my ($scope, $receive, $send) = @_;
        my $pool = $scope->{pagi}{extensions}{worker_pool};
        my $user = await $pool->call('user.get', args => [42]);
        ...
    }

=head1 DESCRIPTION

An application of PAGI must not block: while it waits for a database with L<DBI>, or for another server with
L<LWP::UserAgent>, all other clients of its interpreter wait, too. A worker pool is a number of processes that
may block. The application calls a function there by its name, and awaits the result. This is PAGI's own
design (F<docs/design/worker-pool.mkdn> of PAGI). Whole handlers that block are marked with C<sync> and run in
processes of another kind: see L<PAGI::Sync>.

The processes belong to the server: all interpreters call the same ones, whatever C<engine> and C<workers>
are. They are started before the application, and end after it.

=head1 WHICH WAY

    way                     good for                              costs
    PSGI with               requests that block, each with one    a process for each request at a time; no
    --engine process        response; code that is there: DBI,    WebSockets, and streams keep a process
                            DBIx::Class, LWP
    PAGI, a worker pool     WebSockets, event streams and many    a process for each call at a time; 50 to
                            requests, which call what blocks      100 microseconds of processor time for a
                            now and then                          call; values are copied, handles cannot
                                                                  be sent
    PAGI, handlers marked   whole requests that block, beside     a process for each request at a time;
    with sync (PAGI::Sync)  WebSockets of the same application    routers and middleware run twice
    PAGI, an asynchronous   many calls at a time, long waits,     other code than that for DBI; not every
    client (await it)       listening to a database               database has one

They may be mixed: L<peregrine|Plack::Handler::Peregrine> serves applications of PSGI beside those of PAGI
(C<--mount>). What computes for long, without waiting, belongs into a pool, too, or beside more C<workers>.

As a start, a pool has two to four processes for each processor if its calls wait, and one if they compute;
C<pool_queue> is ten to fifty times the number of processes. If C<stats> or the metrics show that calls wait
while processors are idle, more processes help.

=head1 HANDLERS

The option C<worker_pool> is the path of a file, or in a program a hash reference:

=over

=item handlers

Functions by name. Each gets the state of its process and the arguments of the call, and returns one value, in
scalar context.

=item init

Is called once in each process when it starts, and returns the state: connections to databases, for instance,
which must not be made before. A process whose C<init> dies does not start. Without C<init> the state is an
empty hash.

=item cleanup

Is called with the state when a process ends, unless it was killed.

=back

In a program the hash may also have C<workers>, C<queue_limit>, C<job_timeout>, C<max_jobs_per_worker> and
C<idle_timeout>: the options C<pool_workers>, C<pool_queue>, C<pool_timeout>, C<pool_max_calls> and
C<pool_idle_timeout> by the names of PAGI's design document.

HUP loads the file again. New processes replace the old ones first, new interpreters come after that: so an
application finds each handler that it has been changed to call. Interpreters from before may call new
handlers for a moment: a handler that is to go should stay until its callers have gone. If a new process does
not start, neither the pool nor the interpreters are replaced. The pool has no trial: when C<canary> takes
interpreters back, their old code calls the new handlers, until a HUP with the old file.

=head1 METHODS

=head2 call

    my $future = $pool->call('user.get', args => [42], timeout => 5);

A Future of the handler's result. C<timeout> is in seconds, from now on, with the time in which all processes
are busy; 0: for ever. After that the Future fails, and a process that is at the call is killed. A Future that
is cancelled takes the call back, unless a process is at it already.

Arguments and results are made of hashes, arrays, strings, numbers and undef, at most 64 MiB. Strings of
characters stay characters, bytes stay bytes. Code, handles and objects are refused, because what they stand
for exists in one process only; objects of JSON modules for true and false become true and false. Only the
handler's name is sent, never code.

=head2 call_forget

    $pool->call_forget('mail.send', args => [$address]);

Like C<call>, without a result. Failures are logged. A process makes the call even if the interpreter that has
made it ends, and when the server stops those that wait are made within C<shutdown_timeout>.

=head2 stats

    my $stats = $pool->stats;
    # { workers => 4, busy => 2, idle => 2, queue_depth => 0, queue_limit => 100 }

The processes and how many of them are at a call; calls of all interpreters that wait, and how many may wait.

=head1 FAILURES

A Future fails with an exception of the category C<worker_pool>. The text begins with the name of the kind of
failure, except for C<HandlerDied>, and the first of its details is that name:

    my $user = eval { await $pool->call('user.get', args => [$id]) };
    if (my $failure = $@) {
        my ($kind) = $failure->details;
        return await busy($send) if $kind eq 'Backpressure';
        die $failure;
    }

=over

=item HandlerDied

The handler died. The message is what it died of: its text, or a reference if that is plain data.

=item Backpressure

All processes are busy, and as many calls wait as C<pool_queue> allows; the second detail is what C<stats>
returns. The call was not made. An answer with status 503 is the usual end. When several interpreters call at
the same moment, a few calls more may come to wait.

=item Timeout

The time of the call is up.

=item WorkerDied

The process that was at the call has ended: by a crash, by C<exit>, or because it was killed. What it had done
by then is not known.

=item UnknownHandler, NotSerializable, InvalidCall

A mistake in the application: there is no such handler; a value cannot be sent; the call's arguments are none.

=item Unavailable

The interpreter ends, has no descriptor left, or may send no further one.

=back

=head1 SEE ALSO

L<PAGI::Server/worker_pool>

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
