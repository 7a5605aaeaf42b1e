package Peregrine::Server::MountFigures;

use strict;
use warnings;

our $VERSION = '0.003000';

use Peregrine;
use Peregrine::Later qw(later);
use Peregrine::Server::Control;
use Peregrine::Tally;
use Scalar::Util qw(weaken);

# Interpreters of one mount that may run at the same time, old and new ones.
use constant PLACES => 256;

# Seconds between two notes of the master's facts.
use constant NOTE_S => 0.5;

# The master's facts about the workers of a mount.
my @NOTED = qw(generation wanted serving replaced);

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# `names`: mounts with workers of their own, in the order of their groups. Made before the process that shows
# the figures is forked, because it shares this memory.
sub new {
    my ($class, @names) = @_;
    return bless {
        rows    => [ '*', @names ],
        tallies => [ map { Peregrine::Tally->new(most => PLACES) } 0 .. @names ],
        words   => Peregrine::Words->new(@NOTED * (1 + @names)),
        refused => Peregrine::Words->new(1 + @names),
    }, $class;
}

# Unmaps, in a process of interpreters, the figures of all groups but `group` (undef: of all).
sub leave_others {
    my ($self, $group) = @_;
    my $tallies = $self->{tallies};
    my @others  = grep { !defined $group || $_ != $group } 0 .. $#$tallies;
    $_->leave for @{$self}{qw(words refused)}, @{$tallies}[@others];
    return;
}

# Settings of Peregrine/add_group: the word in which the engine counts refused requests of a group.
sub for_engine {
    my ($self, $group) = @_;
    return (words => $self->{refused}, refused => $group);
}

# The tally at which the interpreters of a group count; group 0: all mounts without workers of their own.
sub tally {
    my ($self, $group) = @_;
    return $self->{tallies}[$group];
}

# Notes the facts of a supervisor from now on, every NOTE_S.
sub note {
    my ($self, $loop, $supervisor) = @_;
    my @facts = Peregrine::Server::Control::facts($supervisor);
    for my $row (0 .. $#facts) {
        $self->{words}->set($row * @NOTED + $_, $facts[$row]{ $NOTED[$_] }) for 0 .. $#NOTED;
    }
    weaken($supervisor);
    $self->{timer} = later($loop, NOTE_S, $self, sub { $_[0]->note($loop, $supervisor) if $supervisor });
    return;
}

sub stop {
    my ($self, $loop) = @_;
    my $timer = delete $self->{timer};
    $loop->unwatch_time($timer) if $timer && $loop;
    return;
}

# The figures, in any process that was forked after `new`.
sub facts {
    my ($self) = @_;
    my @facts;
    for my $row (0 .. $#{ $self->{rows} }) {
        my %facts = (mount => $self->{rows}[$row], %{ $self->{tallies}[$row]->sum });
        @facts{@NOTED} = $self->{words}->get($row * @NOTED, scalar @NOTED);
        ($facts{refused}) = $self->{refused}->get($row);
        push @facts, \%facts;
    }
    return @facts;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::MountFigures - what the workers of each mount do, in memory that processes share

=head1 DESCRIPTION

With the option C<status>, and mounts that have workers of their own: interpreters count in a
L<Peregrine::Tally> of their mount, the engine counts the requests that it refuses for them, the master notes
how many workers there are, and the process of the status reads. The engine's other counters are those of all
requests together.

=head1 METHODS

=head2 new

    my $figures = Peregrine::Server::MountFigures->new('/shop', '/api');

=head2 tally

    my $tally = $figures->tally($group);

=head2 leave_others

    $figures->leave_others($group);    # in a process of its interpreters

=head2 for_engine

    $worker->add_group($socket, { %limits, $figures->for_engine($group) });

=head2 note, stop

    $figures->note($loop, $supervisor);

=head2 facts

    my @facts = $figures->facts;

A hash reference for the mounts without workers of their own (C<mount> is C<*>), and one for each other:
C<generation>, C<wanted>, C<serving>, C<replaced>, C<refused> (requests that the engine has refused because
all workers were busy, or none served), and what L<Peregrine::Tally> counts: C<asked>, C<answered>, C<failed>,
C<unanswered>, C<ended>, C<times> and C<lengths>.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
