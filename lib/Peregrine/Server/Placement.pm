package Peregrine::Server::Placement;

use strict;
use warnings;

our $VERSION = '0.003000';

use PAGI::Server::Options;
use List::Util qw(sum0);
use Peregrine;
use POSIX ();

# Descriptors that connections leave free for files, logs and databases.
use constant DESCRIPTORS_RESERVED => 50;

# Descriptors of the engine's process for each further interpreter: a clone has ten of its own while idle.
my %DESCRIPTORS = (clones => 12, process => 4);

# Interpreters that one engine can have; defined in engine/src/server/config.zig.
use constant INTERPRETERS_MAX => 64;

# Limits that are meant for all engines together.
use constant SHARED => qw(max_connections_per_address max_connection_rate_per_address);

use constant ENGINE_APART =>
    q{needs an engine apart from the application: option 'engine' is process, with workers, or thread};

use constant MEMORY_LEAST => PAGI::Server::Options::find('memory_max')->{least};

sub new {
    my ($class, $options, $application) = @_;
    my ($engine, $workers) = @{$options}{qw(engine workers)};
    # Loaded only where threads are wanted, because the class loads Peregrine::Master, too.
    require Peregrine::Threads if $engine eq 'thread';
    my $clones = $engine eq 'thread' && Peregrine::Threads::are_possible() && $application->can_be_cloned;
    my $kind =
         !$workers             ? 'alone'
        : $engine eq 'process' ? 'process'
        : $clones              ? 'clones'
        :                        'prefork';
    my @groups = $application->groups;
    my $self   = bless {
        kind         => $kind,
        options      => $options,
        interpreters => $workers,
        sync         => $kind eq 'process' ? $options->{sync_workers} // 0 : 0,
        of_mounts    => sum0(map { $_->{workers} } @groups),
        groups       => 1 + @groups,
    }, $class;
    # A replaced interpreter keeps its place until its last request has ended.
    $self->{spare} = POSIX::floor((INTERPRETERS_MAX - $self->interpreters_in_all) / $self->{groups});
    return $self;
}

sub has_workers        { return $_[0]{kind} ne 'alone'   ? 1 : 0 }
sub has_engine_process { return $_[0]{kind} eq 'process' ? 1 : 0 }
sub has_clones         { return $_[0]{kind} eq 'clones'  ? 1 : 0 }
sub interpreters       { return $_[0]{interpreters} }
sub sync_interpreters  { return $_[0]{sync} }

# Processes for handlers that block have the lowest numbers: they are the first to be replaced, so that a new
# interpreter finds handlers that are as new, and none of them ends when fewer workers are wanted.
sub is_sync {
    my ($self, $number) = @_;
    return $number <= $self->{sync} ? 1 : 0;
}

# All interpreters, including those for handlers that block and those of one mount alone.
sub interpreters_in_all { return $_[0]{interpreters} + $_[0]{sync} + $_[0]{of_mounts} }

# Places in the engine for interpreters of one group, old and new ones: a mount with workers, or all others.
sub places {
    my ($self, $workers_of_mount) = @_;
    return $workers_of_mount + $self->{spare} if defined $workers_of_mount;
    return INTERPRETERS_MAX - $self->{of_mounts} - ($self->{groups} - 1) * $self->{spare};
}

# Workers that are possible at most; undef if each worker has an engine.
sub most_interpreters {
    my ($self) = @_;
    return $self->has_engine_process || $self->has_clones ? $self->places - $self->{sync} - 1 : undef;
}

# Dies if the engine has no room for all interpreters.
sub check {
    my ($self) = @_;
    return if $self->{spare} >= 1 || !$self->has_engine_process && !$self->has_clones;
    my @counts = ("workers: $self->{interpreters}");
    push @counts, "workers of mounts: $self->{of_mounts}" if $self->{of_mounts};
    push @counts, "sync_workers: $self->{sync}"           if $self->{sync};
    push @counts, "and for replacements: $self->{groups}";
    die PAGI::Server::Options::exception('too many interpreters for one engine, which can have '
            . INTERPRETERS_MAX . ' ('
            . join(', ', @counts)
            . ')');
}

# Dies if responses cannot be held. `prefixes`: prefixes of the topics for which they are to be held.
sub check_grip {
    my ($self, @prefixes) = @_;
    my $asked = $self->{options}{grip};
    return if !defined $asked && !@prefixes;
    my $is_engine = $self->has_engine_process || $self->{options}{engine} eq 'thread';
    my $problem =
          !@prefixes                  ? 'is for applications of PSGI'
        : !$self->{options}{channels} ? q{needs option 'channels'}
        : !$is_engine                 ? ENGINE_APART
        :                               return;
    die PAGI::Server::Options::exception("option 'grip' $problem");
}

sub set_interpreters {
    my ($self, $count) = @_;
    $self->{interpreters} = $count;
    return;
}

# Processes that have an engine.
sub engines {
    my ($self) = @_;
    return $self->{kind} eq 'prefork' ? $self->{interpreters} : 1;
}

# Processes that the master of interpreters keeps.
sub processes {
    my ($self) = @_;
    return $self->has_clones ? 1 : $self->{interpreters} + $self->{sync};
}

sub descriptors_reserved {
    my ($self) = @_;
    return DESCRIPTORS_RESERVED + ($DESCRIPTORS{ $self->{kind} } || 0) * $self->interpreters_in_all;
}

# `options`: those of the engine, with its part of limits that are shared.
sub engine_limits {
    my ($self, $options) = @_;
    return {
        %{ PAGI::Server::Options::engine_limits($options) },
        descriptors_reserved => $self->descriptors_reserved,
    };
}

# The value that the engine chooses for a limit. A worker is made to ask for it, as the server may have none
# yet.
sub limit_in_force {
    my ($self, $name) = @_;
    return Peregrine::Worker->new($self->engine_limits($self->{options}))->stats->{$name};
}

sub memory_share {
    my ($self, $all) = @_;
    return $all if !$all || !$self->has_workers;
    my $share = int $all / $self->engines;
    return $share < MEMORY_LEAST ? MEMORY_LEAST : $share;
}

# A client comes to one of several engines by chance, so each engine allows its part of the limit, rounded up.
# The memory_max in force is asked for once, before processes fork: no descriptor may be left at a signal.
sub share {
    my ($self)  = @_;
    my $options = $self->{options};
    my $all     = $self->{memory_max} //= $self->limit_in_force('memory_max');
    my $memory  = $self->memory_share($all);
    my %share   = map { $_ => POSIX::ceil($options->{$_} / $self->engines) } grep { $options->{$_} } SHARED;
    $share{memory_max} = $memory if $memory;
    return %share;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::Placement - where engines and interpreters of a server run

=head1 DESCRIPTION

Decided once, by the options C<engine> and C<workers> and by the application:

    alone     one process with an engine and the application
    prefork   processes with an engine and the application each
    process   a process with an engine, processes with the application
    clones    a process with an engine, and clones of the interpreter that has loaded the application

An I<interpreter> is a process or thread that runs the application.

=head1 METHODS

=head2 new

    my $placement = Peregrine::Server::Placement->new(\%options, $application);

=head2 has_workers, has_engine_process, has_clones

=head2 interpreters, sync_interpreters, engines, processes

How many interpreters there are, how many more for handlers that block (L<PAGI::Sync>), how many engines, and
how many processes the master keeps for interpreters.

=head2 is_sync

    my $for_handlers = $placement->is_sync($number);

=head2 places, most_interpreters, check

    $placement->check;
    my $count = $placement->places($workers_of_mount);

An engine has a number of places for interpreters, and each group (a mount with interpreters of its own, and
all the others) needs one more than it has interpreters, for the one that replaces another. C<check> dies if
there are too few; further ones are shared. C<places>: those of one group. C<most_interpreters>: the number of
workers that the places allow; undef where each worker has an engine.

=head2 check_grip

    $placement->check_grip($application->grips($options->{grip}));

Dies if the engine cannot hold responses, and somebody wants it.

=head2 set_interpreters

    $placement->set_interpreters($count);

=head2 engine_limits, descriptors_reserved

    my $limits = $placement->engine_limits(\%options);

The limits of an engine with these options, and the descriptors that its connections leave free.

=head2 limit_in_force

    my $bytes = $placement->limit_in_force('memory_max');

=head2 memory_share, share

    my $bytes = $placement->memory_share($all);
    my %share = $placement->share;

One engine's part of the limits that are meant for all.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
