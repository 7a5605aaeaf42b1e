package Peregrine::Counters;

use strict;
use warnings;

our $VERSION = '0.003000';

use Peregrine;
use Time::HiRes ();

# Descriptions of the engine's counts, in the order of its words.
my @WORDS;
BEGIN { @WORDS = Peregrine::counters() }

# The words of the process, behind the engine's words of a column.
use constant { PID => 0, SINCE => 1, BEAT => 2, OWN => 3 };
use constant WIDTH => @WORDS + OWN;

# Words before the columns: how often the master has begun and ended to move a column, the highest column that
# was in use, and the master's own counts.
use constant { EPOCH => 0, HIGHEST => 1, RESTARTS => 2 };
my @RESTARTS;

BEGIN {
    @RESTARTS = qw(
        exit signal heartbeat failed_start request max_requests max_worker_age max_worker_rss restart other
    );
}
use constant HEAD => RESTARTS + @RESTARTS;

# Columns for new processes while old ones leave.
use constant SPARE => 16;
# Times that a reader reads at most, while the master moves a column.
use constant LOOKS_MAX => 100;

sub words { return @WORDS }

# ---- The master's side --------------------------------------------------------------------------

sub new {
    my ($class, %args) = @_;
    my $columns = 2 * ($args{processes} || 1) + SPARE;
    # The first column is that of processes which have gone.
    my $memory = Peregrine::Words->new(HEAD + (1 + $columns) * WIDTH);
    return bless { memory => $memory, columns => $columns, free => [] }, $class;
}

# A free column, if possible one that was in use before, because readers read up to the highest one.
sub claim {
    my ($self)    = @_;
    my ($highest) = $self->{memory}->get(HIGHEST);
    return shift @{ $self->{free} } if @{ $self->{free} };
    return                          if $highest == $self->{columns};
    $self->{memory}->set(HIGHEST, ++$highest);
    return $highest;
}

# Adds the counters of a process that has gone to the first column. Its gauges are dropped.
sub release {
    my ($self, $column) = @_;
    my $memory = $self->{memory};
    my ($gone, $from) = map { _offset($_) } 0, $column;
    my @values = $self->_column($column);
    $memory->add(EPOCH, 1);
    for my $at (0 .. $#WORDS) {
        $memory->add($gone + $at, $values[$at]) if $values[$at] && $WORDS[$at]{kind} ne 'gauge';
        $memory->set($from + $at, 0);
    }
    $memory->set($from + @WORDS + $_, 0) for 0 .. OWN - 1;
    $memory->add(EPOCH, 1);
    push @{ $self->{free} }, $column;
    return;
}

sub note_restart {
    my ($self, $reason) = @_;
    my ($index) = grep { $RESTARTS[$_] eq $reason } 0 .. $#RESTARTS;
    $self->{memory}->add(RESTARTS + ($index // $#RESTARTS), 1);
    return;
}

# Unmaps the memory in a process that neither counts nor reads.
sub leave {
    my ($self) = @_;
    return $self->{memory}->leave;
}

sub _offset {
    my ($column) = @_;
    return HEAD + $column * WIDTH;
}

# ---- A process's side ---------------------------------------------------------------------------

sub begin {
    my ($self, $column) = @_;
    my $own = _offset($column) + @WORDS;
    $self->{memory}->set($own + SINCE, int Time::HiRes::time);
    $self->{memory}->set($own + PID,   $$);
    $self->beat($column);
    return $self;
}

sub count {
    my ($self, $worker, $column) = @_;
    return $worker->count_in($self->{memory}, _offset($column));
}

# A sign of life, in milliseconds: the status page draws the time since, for which seconds are too coarse.
sub beat {
    my ($self, $column) = @_;
    $self->{memory}->set(_offset($column) + @WORDS + BEAT, int 1000 * Time::HiRes::time);
    return;
}

# ---- For readers --------------------------------------------------------------------------------

# Reads all columns, again if the master has moved one meanwhile: its counts would be there twice or never.
sub read {
    my ($self) = @_;
    my $memory = $self->{memory};
    my $snapshot;
    for (1 .. LOOKS_MAX) {
        my ($before) = $memory->get(EPOCH);
        $snapshot = $self->_look;
        my ($after) = $memory->get(EPOCH);
        last if $before == $after && $before % 2 == 0;
    }
    return $snapshot;
}

sub _column {
    my ($self, $column) = @_;
    return $self->{memory}->get(_offset($column), scalar @WORDS);
}

sub _look {
    my ($self)   = @_;
    my $memory   = $self->{memory};
    my @sum      = $self->_column(0);
    my @restarts = $memory->get(RESTARTS, scalar @RESTARTS);
    my @processes;
    for my $column (1 .. ($memory->get(HIGHEST))[0]) {
        my ($pid, $since, $beat) = $memory->get(_offset($column) + @WORDS, OWN) or next;
        next if !$pid;
        my @words = $self->_column($column);
        $sum[$_] += $words[$_] for 0 .. $#words;
        push @processes, { pid => $pid, since => $since, beat => $beat / 1000, words => \@words };
    }
    return {
        sum       => \@sum,
        restarts  => { map { $RESTARTS[$_] => $restarts[$_] } 0 .. $#RESTARTS },
        processes => [ sort { $a->{since} <=> $b->{since} || $a->{pid} <=> $b->{pid} } @processes ],
    };
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Counters - what processes count, in memory that they share

=head1 SYNOPSIS

    # The master, before it forks
    my $counters = Peregrine::Counters->new(processes => 4);
    my $column   = $counters->claim;

    if (!fork) {
        $counters->begin($column);
        $server->use_counters($counters, $column);    # a PAGI::Server; or: $counters->count($worker, $column)
        ...
    }

    # When that process has ended
    $counters->note_restart('exit');
    $counters->release($column);

    # Any process that was forked after `new`
    my $total = $counters->read;

=head1 DESCRIPTION

A table with a column for each process that serves. The engine counts in the words of its column
(L<Peregrine/counters>); it is the only one that writes them, so there is no lock. The counts of a process
outlive it: the master adds them to a column of its own, so that sums never fall, and a reader never takes a
process's end for a restart of the server.

Knows nothing of applications, nor of HTTP.

=head1 METHODS

=head2 new

    my $counters = Peregrine::Counters->new(processes => 4);

Maps the memory. There is room for twice as many processes and sixteen more, so that new ones can begin while
old ones leave. Room that no process has used takes no memory, and no time of readers. Dies with a text if
there is no memory.

=head2 words

    for my $word (Peregrine::Counters->words) { ... }

Descriptions of the counts, as hash references, see L<Peregrine/counters>.

=head2 leave

    $counters->leave;

In a process that neither counts nor reads, and is not to write there.

=head2 claim

    my $column = $counters->claim;

In the master: a column for a process that is about to be forked; undef if all are in use, and nothing is
counted then.

=head2 release

    $counters->release($column);

In the master, when the process has ended: keeps what it has counted, and gives the column back.

=head2 note_restart

    $counters->note_restart('heartbeat');

In the master: counts that a process is replaced, and why: C<exit> (it ended by itself), C<signal> (it was
killed), C<heartbeat> (its loop was blocked for too long), C<failed_start>, C<request> (a request was stuck),
C<max_requests>, C<max_worker_age>, C<max_worker_rss>, C<restart> (new code), C<other>.

=head2 begin

    $counters->begin($column);

In the process whose column it is: notes its number and the time.

=head2 count

    $counters->count($worker, $column);

In that process: lets a L<Peregrine/WORKER> count in its column. Negative: the engine refused.

=head2 beat

    $counters->beat($column);

In that process: its event loop runs. To be called about once a second, since readers tell how long ago that
was.

=head2 read

    my ($sum, $processes) = @{ $counters->read }{qw(sum processes)};

A hash reference: C<sum>, the words over all processes and all that have gone; C<restarts>, a hash of counts
by reason; and C<processes>, those that have begun, oldest first, each with C<pid>, C<since> (epoch seconds),
C<beat> (the same) and C<words>.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
