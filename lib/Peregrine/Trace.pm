package Peregrine::Trace;

use strict;
use warnings;

our $VERSION = '0.003000';

use Errno       qw(EACCES ENOENT EPERM);
use POSIX       ();
use Time::HiRes qw(CLOCK_MONOTONIC CLOCK_REALTIME);

use Peregrine;

# The kernel's name of the memory in which a server keeps its trace.
use constant NAME => '/memfd:peregrine-trace (deleted)';

# Seconds for which a reader asks for records, so that they end with a reader that was killed; until it asks
# again; and for which they go on after a reader has ended, so that other readers have time to ask again.
use constant { LASTS_S => 3, AGAIN_S => 0.5, LEAVES_S => 1 };

# Seconds of a pause when all records were read; and seconds that the writer of a record has to complete it.
use constant { PAUSE_S => 0.01, COMPLETES_S => 0.1 };

# Records that are read together at most; and seconds between two looks whether the server still runs.
use constant { TOGETHER => 512, LOOK_S => 0.2 };

# The bits of a ticket with its slot and its kind, see slab.zig.
use constant LANE => 0x7FFFFFF;

my ($LAYOUT, $PLACES, $KINDS) = Peregrine::trace_layout();

# The layout of a record, as in trace.zig; the last word is the stamp.
my $RECORD = 'Q4 L4 C4 a' . $LAYOUT->{text_max} . ' Q';

# Printed names of places that consist of several words.
my %PLACE = (engine_ring => 'ring/engine', application_ring => 'ring/app');

# Arrows of printed records: towards the application, and towards the client.
my @TOWARDS = ('->', '<-');

# ---- Finding the memory -------------------------------------------------------------------------

# A reader of the trace of a server's process. Dies with a text.
sub of_process {
    my ($class, $pid) = @_;
    my $folder = "/proc/$pid/fd";
    die "there is no process $pid\n" if !-d "/proc/$pid";
    opendir my $list, $folder
        or die $!{EACCES}
        ? "process $pid is not this user's: only the user who has started a server, and root, may trace it\n"
        : "$folder: $!\n";
    for my $number (sort { $a <=> $b } grep { /\A\d+\z/ } readdir $list) {
        my $name = readlink "$folder/$number" // next;
        return $class->of_file("$folder/$number") if $name eq NAME;
    }
    die "process $pid is none of a server that can be traced\n";
}

# A reader of the trace whose memory has this file name.
sub of_file {
    my ($class, $name) = @_;
    sysopen my $memory, $name, POSIX::O_RDWR() or die "the trace cannot be opened: $!\n";
    my $self = bless { memory => $memory, lost => 0 }, $class;
    die "the server is of another version of Peregrine: use the peregrine command of that\n"
        if -s $memory != $LAYOUT->{bytes} || $self->_word(0) != $LAYOUT->{layout};
    return $self;
}

sub _word {
    my ($self, $place) = @_;
    return unpack 'Q', $self->_bytes($place, 8);
}

sub _bytes {
    my ($self, $place, $len) = @_;
    sysseek $self->{memory}, $place, 0 or die "the trace cannot be read: $!\n";
    my $bytes;
    my $got = sysread $self->{memory}, $bytes, $len;
    die "the trace cannot be read: $!\n" if !defined $got || $got != $len;
    return $bytes;
}

sub _set {
    my ($self, $name, $value) = @_;
    sysseek $self->{memory}, $LAYOUT->{$name}, 0 or die "the trace cannot be changed: $!\n";
    my $done = syswrite $self->{memory}, pack('Q', $value), 8;
    die "the trace cannot be changed: $!\n" if !defined $done || $done != 8;
    return;
}

# Whether records are wanted; and the number of records that were made.
sub is_on { return $_[0]->_word($LAYOUT->{until}) ? 1 : 0 }
sub made  { return $_[0]->_word($LAYOUT->{next}) }

# ---- The server's part --------------------------------------------------------------------------

sub serves {
    my ($self, $pid) = @_;
    return $self->_set(server => $pid);
}

# Asks for records for the next LASTS_S seconds.
sub want {
    my ($self) = @_;
    return $self->_want_for(LASTS_S);
}

sub _want_for {
    my ($self, $seconds) = @_;
    my $until = _nanoseconds() + int($seconds * 1e9);
    $self->_set(until => $until);
    return $self->{until} = $until;
}

sub _nanoseconds {
    return int(1e9 * Time::HiRes::clock_gettime(CLOCK_MONOTONIC));
}

# ---- Reading ------------------------------------------------------------------------------------

# The number of records that were overwritten before they were read.
sub lost { return $_[0]{lost} }

# Begins to read. `next`: the number of the first record.
sub begin {
    my ($self, $next) = @_;
    $self->{next}  = $next // $self->made;
    $self->{began} = Time::HiRes::clock_gettime(CLOCK_REALTIME) - _nanoseconds() / 1e9;
    $self->want;
    $self->{wanted_at} = Time::HiRes::time;
    return $self;
}

sub stop {
    my ($self) = @_;
    $self->{stopped} = 1;
    return;
}

# Calls `$tell` with lines until `stop` is called, the server has ended, or `$tell` returns false.
sub follow {
    my ($self, $tell) = @_;
    my $looked_at = 0;
    while (!$self->{stopped}) {
        my $now = Time::HiRes::time;
        if (abs($now - $self->{wanted_at}) >= AGAIN_S) {
            $self->want;
            $self->{wanted_at} = $now;
        }
        my @lines = $self->lines;
        last if @lines && !$tell->(@lines);
        next if @lines;
        if (abs($now - $looked_at) >= LOOK_S) {
            $looked_at = $now;
            last if !$self->_is_served;
        }
        Time::HiRes::sleep(PAUSE_S);
    }
    $self->_leave;
    return;
}

# Stops asking for records, unless the word in the memory is another reader's, which still wants them.
sub _leave {
    my ($self) = @_;
    $self->_want_for(LEAVES_S) if $self->_word($LAYOUT->{until}) == ($self->{until} // 0);
    return;
}

sub _is_served {
    my ($self) = @_;
    my $pid    = $self->_word($LAYOUT->{server}) || return 1;    # the server starts
    return kill(0, $pid) || $!{EPERM} ? !_is_zombie($pid) : 0;
}

sub _is_zombie {
    my ($pid) = @_;
    open my $in, '<', "/proc/$pid/stat" or return 1;
    return (readline($in) // '') =~ /\) Z [^)]*\z/ ? 1 : 0;
}

# The records since the last call, as lines.
sub lines {
    my ($self) = @_;
    my @lines;
    my $end = $self->made;
    $self->_skip($end, \@lines) if $end - $self->{next} > $LAYOUT->{count};
    my $place = $self->{next} % $LAYOUT->{count};
    my $count = $end - $self->{next};
    for my $most (TOGETHER, $LAYOUT->{count} - $place) {
        $count = $most if $count > $most;
    }
    return @lines if $count <= 0;
    my $complete = $self->_complete($place, $count);
    return (@lines, $self->_wait_for_writer) if !$complete;
    delete $self->{waits_since};
    my $bytes = $self->_records($place, $complete);
    # Records in places that were overwritten meanwhile are lost.
    $end = $self->made;
    my $first = $end - $LAYOUT->{count} - $self->{next};
    $first = 0         if $first < 0;
    $first = $complete if $first > $complete;
    push @lines, $self->_loss($first) if $first;
    push @lines,
        map { $self->_line(substr $bytes, $_ * $LAYOUT->{record_bytes}, $LAYOUT->{record_bytes}) }
        $first .. $complete - 1;
    $self->{next} += $complete;
    return @lines;
}

# Skips to the middle of the records that exist, or the reader would be too late for the next record as well.
sub _skip {
    my ($self, $end, $lines) = @_;
    my $next = $end - int($LAYOUT->{count} / 2);
    push @$lines, $self->_loss($next - $self->{next});
    $self->{next} = $next;
    return;
}

sub _loss {
    my ($self, $count) = @_;
    $self->{lost} += $count;
    return "-- $count records are lost: they came faster than they were read";
}

sub _records {
    my ($self, $place, $count) = @_;
    my $each = $LAYOUT->{record_bytes};
    return $self->_bytes($LAYOUT->{records} + $place * $each, $count * $each);
}

# The number of records, from a place on, that their writers have completed: the stamp is written last, so
# records that are read after that are whole.
sub _complete {
    my ($self, $place, $count) = @_;
    my $bytes = $self->_records($place, $count);
    my $each  = $LAYOUT->{record_bytes};
    for my $at (0 .. $count - 1) {
        my $stamp = unpack 'Q', substr $bytes, ($at + 1) * $each - 8, 8;
        return $at if $stamp != $self->{next} + $at + 1;
    }
    return $count;
}

# Waits for the writer of a record. A writer that was killed never completes it.
sub _wait_for_writer {
    my ($self) = @_;
    my $now = Time::HiRes::clock_gettime(CLOCK_MONOTONIC);
    $self->{waits_since} //= $now;
    return if $now - $self->{waits_since} < COMPLETES_S;
    delete $self->{waits_since};
    $self->{next}++;
    $self->{lost}++;
    return '-- 1 record is lost: its process has not completed it';
}

# ---- Lines --------------------------------------------------------------------------------------

sub _line {
    my ($self, $bytes) = @_;
    my ($time, $ticket, $lane, $size, $process, $thread, $engine, $code, $place, $way, $kind, $len, $text) =
        unpack $RECORD, $bytes;
    my $name = $PLACES->[$place] // '?';
    $ticket = $self->_last_of($engine, $lane, $ticket, $way) if $lane;
    my @words = ($KINDS->[$kind] // '?');
    push @words, $code                   if $code;
    push @words, "$size bytes"           if $size;
    push @words, _printable($text, $len) if $len;
    return sprintf '%s %-9s %-11s %-14s %s %s%s', $self->_time($time),
        $process == $thread ? $process                      : "$process/$thread", $PLACE{$name} // $name,
        $ticket             ? "$engine:" . _number($ticket) : '-', $TOWARDS[$way] // '?', join(' ', @words),
        $lane               ? ' (lane ' . _number($lane) . ')' : '';
}

# The ticket of a record without one: output leaves when its exchange is over already, and belongs to the last
# exchange of its lane.
sub _last_of {
    my ($self, $engine, $lane, $ticket, $is_out) = @_;
    my $last = $self->{last}{$engine}{ $lane & LANE } //= [ 0, 0 ];
    @$last = ($lane, $ticket) if $ticket;
    return $ticket || !$is_out || $last->[0] != $lane ? $ticket : $last->[1];
}

# The time of day, in microseconds.
sub _time {
    my ($self, $time) = @_;
    my $at      = $self->{began} + $time / 1e9;
    my $seconds = POSIX::floor($at);
    return POSIX::strftime('%H:%M:%S', localtime $seconds) . sprintf '.%06d', ($at - $seconds) * 1e6;
}

# The printed form of a ticket: slot, and the number of times that the slot was taken; `s`: of a stream. See
# slab.zig.
sub _number {
    my ($ticket) = @_;
    return (($ticket >> 26) & 1 ? 's' : '') . ($ticket & 0xFFFFF) . '.' . (($ticket >> 27) + 1 >> 1);
}

sub _printable {
    my ($text, $len) = @_;
    my $shown = substr $text, 0, $len;
    $shown =~ s/([^\x20-\x7E])/sprintf '\\x%02X', ord $1/ge;
    return $len > $LAYOUT->{text_max} ? "$shown..." : $shown;
}

# ---- The command --------------------------------------------------------------------------------

# Whether words of a command line mean a trace, and no application of that name.
sub is_meant {
    my (@words) = @_;
    return @words && $words[0] eq 'trace' && (@words > 1 ? $words[1] =~ /\A\d+\z/ : !-e 'trace') ? 1 : 0;
}

# Runs the command; returns its exit status.
sub command {
    my ($class, $program, @words) = @_;
    my $pid  = @words == 1 ? $words[0] : die \"a trace is of one process: $program trace PID";
    my $self = $class->of_process($pid)->begin;
    return $self->print_all(\*STDOUT);
}

# Runs the process that a server starts with PEREGRINE_TRACE, which ends when the server does.
sub print_from_start {
    my ($class, $descriptor) = @_;
    # The signals of Peregrine::Fork::MASTERS_SIGNALS, whose module would load a loop. They may be sent to all
    # processes of a service; TTIN and TTOU stop a process that does not expect them.
    $SIG{$_} = 'IGNORE' for qw(TERM INT QUIT HUP USR1 USR2 TTIN TTOU);
    my $self = $class->of_file("/proc/self/fd/$descriptor");
    $0 = 'peregrine trace';
    return $self->begin(0)->print_all(\*STDERR);
}

sub print_all {
    my ($self, $out) = @_;
    local $SIG{PIPE} = 'IGNORE';
    for my $name (qw(INT TERM HUP)) {
        $SIG{$name} = sub { $self->stop }
            if ($SIG{$name} // '') ne 'IGNORE';
    }
    $self->follow(sub {
        my $text = join '', map { "$_\n" } @_;
        my $done = 0;
        while ($done < length $text) {
            my $count = syswrite $out, $text, length($text) - $done, $done;
            return 0 if !defined $count && !$!{EINTR};
            $done += $count // 0;
        }
        return 1;
    });
    return 0;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Trace - what happens to each request of a running server, layer by layer

=head1 SYNOPSIS

    peregrine trace PID
    PEREGRINE_TRACE=exchanges pagi-server app.pl

    my $trace = Peregrine::Trace->of_process($pid)->begin;
    $trace->follow(sub { print map { "$_\n" } @_ });

=head1 DESCRIPTION

Each process of a server can record the events and commands of each request, in memory that all of them share.
They do so while somebody reads, and for three seconds after the last word of a reader that was killed. A line
for each record, in the order in which things happened, whichever process they happened in:

    14:22:45.847955 633/641 session     633:0.1  -> request 97 bytes GET /some/path (lane 0.1)
    14:22:45.847967 633/641 ring/engine 633:0.1  -> request
    14:22:45.848071 645     ring/app    633:0.1  -> request
    14:22:45.848164 645     face        633:0.1  -> call pagi
    14:22:45.848239 645     face        633:0.1  <- send 200 http.response.start
    14:22:45.848250 645     ring/app    633:0.1  <- start 200
    14:22:45.851881 633/641 ring/engine 633:0.1  <- start 200
    14:22:45.851883 633/641 exchange    633:0.1  <- start 200 (lane 0.1)

These are the time, the process (and the thread, if it is not the process's first), the place, the request,
the direction (C<< -> >> is towards the application), and what it is, with a status or close code and with the
size of its content. No content is ever shown, nor a header field, nor the query of a request.

The places are C<lane> (bytes of a connection), C<session> (what the protocol made of them), C<exchange> (what
the server did), C<ring/engine> and C<ring/app> (both ends between an engine and an application in another
thread or process), and C<face> (what the application sees). A request is named by the process of its engine,
a slot and how often that was used: C<grep 633:0.1> shows one request. A lane is named likewise; C<s> stands
for a stream of HTTP/2.

Only the user who has started the server and root may read: root alone, where the server has given up root's
rights. The server never waits for a reader: records that were overwritten before they were read are counted,
and a line tells how many. Processes that begin later (HUP, workers that are replaced) are seen as well, and
so is a program that takes over (USR2), if its version has the same records.

There are traces on Linux only.

Interpreters of a mount with a user of its own (B<--mount> with C<user>) have no part in that memory: the
lines C<ring/app> and C<face> of their requests are missing.

=head1 METHODS

=head2 of_process

    my $trace = Peregrine::Trace->of_process($pid);

The trace of the server that a process belongs to. Dies with a text if there is none, or if it is not for this
user.

=head2 of_file

Likewise by the name of a file, of which one in F</proc/self/fd> is one.

=head2 begin

    $trace->begin;

Wants records from now on. With a number: reads from the record of this number on, 0 for the first one.

=head2 follow

    $trace->follow(sub { my @lines = @_; ...; return 1 });

Calls the function with lines until C<stop> is called, the server has ended, or the function returns false.

=head2 stop

Ends C<follow>, from a signal handler for instance.

=head2 lines

    my @lines = $trace->lines;

The records since the last call. For programs with a loop of their own, which have to call C<want> as well.

=head2 want

Wants records for three more seconds.

=head2 is_on, made, lost

Whether records are wanted; how many were made, ever; how many this reader has lost.

=head2 serves

    $trace->serves($$);

For the server: the process that readers end with.

=head2 is_meant, command, print_from_start, print_all

For L<peregrine> and for servers: whether words of a command line mean a trace, the command itself, and what
C<PEREGRINE_TRACE> starts.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
