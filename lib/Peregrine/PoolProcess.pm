package Peregrine::PoolProcess;

use strict;
use warnings;

our $VERSION = '0.003000';

use Errno      qw(EAGAIN EINTR ETOOMANYREFS);
use List::Util qw(min);
use Peregrine;
use Peregrine::Daemon;
use Peregrine::Deadline;
use Peregrine::Fork;
use Peregrine::Nearest;
use Peregrine::Process;
use POSIX        ();
use Scalar::Util qw(blessed);
use Time::HiRes  ();

# The word in shared memory with the state of a process: it waits for a call, is at a call without a time
# limit, or the time in milliseconds at which its call has to be over.
use constant { IDLE => 1, FOREVER => 1 << 62 };

# Counters in memory that all processes share, in its order: calls by their outcome, and the microseconds that
# processes were at calls.
use constant COUNTS => qw(done died timeout lost refused busy);
use constant { DONE => 0, DIED => 1, TIMEOUT => 2, LOST => 3, REFUSED => 4, BUSY => 5 };

# A call in the pool's socket: the time in milliseconds at which it has to be over, 0: never; and its values,
# unless they are longer than SHORT_BYTES and come over the line. All calls have the same number of bytes, as
# the kernel tells how many bytes wait. A shorter message would take as much of its memory.
use constant CALL_BYTES  => 192;
use constant SHORT_BYTES => CALL_BYTES - 10;
use constant CALL        => 'Q n/a* @' . CALL_BYTES;

# Bytes that are read at a time, and that are sent together with a descriptor.
use constant { READ_MAX => 65_536, SEND_MAX => 16_384 };

# Seconds between two looks at the master's messages, while calls leave no pause.
use constant LOOK_S => 0.5;

sub new {
    my ($class, %args) = @_;
    return bless {
        %args{
            qw(link log number socket words place notice counts calls_max idle_timeout take_logs handlers init
                cleanup)
        },
        made => 0,
        pid  => $$,
    }, $class;
}

# Runs the process; returns its exit status. TERM ends the process until the state is made.
sub run {
    my ($self) = @_;
    Peregrine::Fork::disregard('PIPE', grep { $_ ne 'TERM' } Peregrine::Fork::MASTERS_SIGNALS);
    Peregrine::settle_children(1);
    Peregrine::tell_when_stuck("pool process $self->{number}");
    my ($init, $cleanup) = @{$self}{qw(init cleanup)};
    $self->{state} = {};
    $self->_runs_through(sub { $self->{state} = $init->() if $init }) or die $@;
    Peregrine::Fork::disregard('TERM');
    Peregrine::end_with_parent(0);
    Peregrine::Daemon->leave_front;
    my ($link, $log, $number) = @{$self}{qw(link log number)};
    $link->on_no_room(sub { $log->error("pool process $number: $_[0]"); return 1 });
    $link->say(ready => Peregrine::resident_bytes($$));
    my $is_told = eval { $self->_drain if $self->_serve eq 'stop'; 1 };
    $self->_note_failure('ends', $@) if !$is_told;
    $self->{words}->set($self->{place}, 0);
    $link->say('leaves');
    my $is_clean = $self->_runs_through(sub { $cleanup->($self->{state}) if $cleanup });
    $self->_note_failure('could not clean up', $@) if !$is_clean;
    return $is_told && $is_clean ? 0 : 1;
}

# A failure of the process itself, of code that a signal has run, or of the cleanup.
sub _note_failure {
    my ($self, $what, $why) = @_;
    $self->_end_copy(': ' . _reason($why)) if $$ != $self->{pid};
    $self->{log}->error("pool process $self->{number} $what: " . _reason($why));
    return;
}

# Makes calls until the process is told to leave, and returns how it is to leave. Messages of the master are
# read before the next call. The master adds to `notice` and then reads the word; the process writes the word
# and then reads `notice`. So a process that misses the notice is seen idle, and the master waits until it has
# heard.
sub _serve {
    my ($self) = @_;
    my ($looked, $pauses, $noticed) = (0, 1, 0);
    $self->{ended} = Peregrine::Deadline::now();
    while (1) {
        $self->{words}->set($self->{place}, IDLE);
        my $notice = $self->{notice}->get(0);
        if ($pauses || $notice != $noticed || $self->{ended} - $looked > LOOK_S) {
            my $way = $self->_told;
            return $way if $way;
            ($looked, $noticed) = ($self->{ended}, $notice);
        }
        $pauses = !$self->_take(1);
        $self->_tell_of_idleness if $pauses && $self->{idle_timeout};
    }
    return;
}

# Tells the master that this process is idle, again and again: only the process with the highest number may
# go, and this one may soon have it.
sub _tell_of_idleness {
    my ($self) = @_;
    return if Peregrine::Deadline::now() - $self->{ended} < $self->{idle_timeout};
    return $self->{link}->say('idle');
}

# Tells the master if all processes are at calls: the next call would wait, so it starts another one.
sub _tell_if_none_is_idle {
    my ($self) = @_;
    my $words  = $self->{words};
    my $most   = $words->get(0);
    return if grep { $_ == IDLE } $words->get(1, $most);
    return $self->{link}->say('busy');
}

# The message of a call, for the interpreter that makes it.
sub message {
    my ($until, $bytes) = @_;
    return pack CALL, $until, length $bytes > SHORT_BYTES ? '' : $bytes;
}

# The master's word: `stop`, `retire`, or nothing.
sub _told {
    my ($self) = @_;
    my $link = $self->{link};
    for my $line ($link->read_lines) {
        my ($word, undef, @descriptor) = @$line;
        return $word                      if $word eq 'stop' || $word eq 'retire';
        $self->{take_logs}->(@descriptor) if $word eq 'reopen';
    }
    return $link->has_ended ? 'stop' : undef;
}

# Drops calls that wait when the server stops: no caller waits for an answer.
sub _drain {
    my ($self) = @_;
    1 while $self->_take(0);
    return;
}

# Makes a call that has come. False: none has come.
sub _take {
    my ($self,  $waits) = @_;
    my ($words, $place) = @{$self}{qw(words place)};
    my ($bytes, $end)   = Peregrine::receive_descriptors($self->{socket}, CALL_BYTES, $waits);
    return $self->_look_at_socket($bytes) if !defined $end;
    my ($until, $values) = unpack 'Q n/a*', $bytes;
    my $began = Peregrine::Deadline::now();
    $words->set($place, $until || FOREVER);
    $self->_tell_if_none_is_idle if $self->{idle_timeout};

    my $is_in_time = !$until || $began * 1000 < $until;
    $self->_make($end, $values) if $is_in_time;
    Peregrine::hide_from_forks($end, 0);
    POSIX::close($end);
    $self->{ended} = Peregrine::Deadline::now();
    $self->{counts}->add(BUSY, 1_000_000 * ($self->{ended} - $began)) if $is_in_time;
    $self->{link}->say(recycle => 'pool_max_calls') if ++$self->{made} == $self->{calls_max};
    return 1;
}

# Dies if the process cannot get calls: no call has come, or one whose descriptor had no room here. Such a
# process would look idle, and be given all calls.
sub _look_at_socket {
    my ($self, $bytes) = @_;
    my $why = $!;
    die "the socket of the worker pool: $why\n" if !defined $bytes && $why != EAGAIN && $why != EINTR;
    return 0                                    if !length($bytes // '');
    my $copy = POSIX::dup($self->{socket}) // die "no descriptor is left for a call: $!\n";
    POSIX::close($copy);
    return 0;
}

# ---- A call -------------------------------------------------------------------------------------

sub _make {
    my ($self, $end, $values) = @_;
    my ($name, $forgets, @args) =
        @{ (length $values ? Peregrine::decode_values($values) : $self->_read($end)) || return };
    return if !$forgets && _has_gone($end);
    my $outcome = $self->_outcome($name, @args);
    $self->{counts}->add($outcome->[0] eq 'done' ? DONE : DIED, 1);
    $self->{log}->error("the call of '$name', which nobody waits for, failed: $outcome->[1]")
        if $forgets && $outcome->[0] ne 'done';
    return _send($end, _encoded($name, $outcome));
}

# Reads the values of a call; undef: the caller has ended, or is none.
sub _read {
    my ($self,  $end)    = @_;
    my ($input, $length) = ('', 4);
    while (length $input < $length) {
        my ($bytes) = Peregrine::receive_descriptors($end, READ_MAX, 1);
        next   if !defined $bytes && $! == EINTR;
        return if !defined $bytes || !length $bytes;
        $input .= $bytes;
        $length = 4 + unpack 'N', $input if $length == 4 && length $input >= 4;
    }
    return Peregrine::decode_values(substr $input, 4);
}

# Whether a caller has closed its end, because it does not wait any more.
sub _has_gone {
    my ($end)   = @_;
    my ($bytes) = Peregrine::receive_descriptors($end, 1);
    return defined $bytes ? 1 : 0;
}

sub _outcome {
    my ($self, $name, @args) = @_;
    my $handlers = $self->{handlers};
    my $handler  = $handlers->{$name}
        or return [ UnknownHandler => "there is no handler '$name'"
            . Peregrine::Nearest::hint($name, sort keys %$handlers) ];
    my $result;
    local ($@, $_);
    my $own     = Time::HiRes::getitimer(Time::HiRes::ITIMER_REAL());    # of the pool's `init`
    my $is_done = $self->_runs_through(sub { $result = $handler->($self->{state}, @args) });
    my $died    = $@;
    # The alarm would end the process, perhaps in another call.
    $self->{log}->warn("the call of '$name' has left an alarm behind, which is taken back")
        if !$own && alarm 0;
    return $is_done ? [ done => $result ] : [ HandlerDied => _reason($died) ];
}

# Calls code of the pool. False with `$@`: it has died. A process that the code has forked may return here,
# and is ended.
sub _runs_through {
    my ($self, $code) = @_;
    my $is_done = Peregrine::Fork::runs_through($code);
    $self->_end_copy($is_done ? '' : ': ' . _reason($@)) if $$ != $self->{pid};
    return $is_done;
}

# Ends a process that the pool's code has forked, and that should have ended there. Calls and state are its
# parent's.
sub _end_copy {
    my ($self, $died) = @_;
    Peregrine::Process->end_child($self->{log},
        "process $$, which code of the worker pool has forked, returned from it$died");
    return;
}

# The error of a handler for its caller: plain data as they are, an object as its text.
sub _reason {
    my ($error) = @_;
    return $error if ref $error && !blessed $error && defined Peregrine::encode_values([$error]);
    my $text = eval { "$error" };    # Expected: an object whose text cannot be made.
    return length $text ? $text : "died\n";
}

sub _encoded {
    my ($name, $outcome) = @_;
    my ($bytes, undef, $why);
    eval { ($bytes, undef, $why) = Peregrine::encode_values($outcome); 1 } or $why = $@ =~ s/\s+\z//r;
    return $bytes if defined $bytes;
    return scalar Peregrine::encode_values([ NotSerializable => "the result of '$name': $why" ]);
}

# Sends an answer. The caller gets its own end back with the last bytes, for the next call: if this process
# ends before, the caller sees the end of the stream. The descriptor comes with the first byte of a write: so
# a long answer, of which the caller may read a part, ends with a single byte. If the kernel allows no further
# descriptor on its way, the end of the answer is the end of the line.
sub _send {
    my ($end, $bytes) = @_;
    my $at = length($bytes) > SEND_MAX ? length($bytes) - 1 : 0;
    _write($end, $bytes, 0, $at) or return;
    while (!defined Peregrine::send_descriptors($end, substr($bytes, $at), $end)) {
        return _write($end, $bytes, $at, length $bytes) if $! == ETOOMANYREFS;
        return                                          if $! != EINTR && $! != EAGAIN;
        vec(my $bits = '', $end, 1) = 1;
        select undef, $bits, undef, undef;
    }
    return;
}

# Writes the bytes `$at` to `$until`. False: the caller has gone.
sub _write {
    my ($end, undef, $at, $until) = @_;
    while ($at < $until) {
        my $length = min(READ_MAX, $until - $at);
        my $sent   = POSIX::write($end, substr($_[1], $at, $length), $length);
        return 0 if !defined $sent && $! != EINTR;
        $at += $sent // 0;
    }
    return 1;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::PoolProcess - a process of a worker pool

=head1 DESCRIPTION

Takes calls from a socket that all processes of the pool share, of which one gets each call, and makes one at
a time: so it may block. It has no event loop. What it does is in its word of shared memory: 0 while it starts
and ends, C<IDLE>, or the time when the call that it is at has to be over, after which its master kills it.

A call is a message with that time, and a descriptor: the far end of a pair of stream sockets. The name of a
handler and its arguments are in the message if they are short; otherwise the process reads them from the far
end. It sends back the answer, and with the last bytes the far end. ARCHITECTURE.md has the reasons.

=head1 METHODS

=head2 new

    my $process = Peregrine::PoolProcess->new(
        link => $link, log => $log, number => 1, socket => $descriptor, words => $words, place => 1,
        notice => $word, counts => $counts, calls_max => 1000, idle_timeout => 60,
        take_logs => sub { my ($descriptor) = @_; ... },
        handlers => { name => sub { ... } },
        init => sub { ... }, cleanup => sub { ... },
    );

=head2 run

    exit $process->run;

Calls C<init>, tells the master over the link that the process is ready, and makes calls until the master
says C<retire> or C<stop>, or has gone. With C<idle_timeout> it tells the master C<idle> once a second after
this time without a call, and C<busy> when it gets a call and no other process is idle. When the master says
C<reopen> it calls C<take_logs> with the descriptor that comes with that. At a stop it makes
the calls that wait first. Then it tells the master C<leaves>, and calls C<cleanup>. The master adds to the
word C<notice> after it has told a process to leave, which reads that before its next call.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
