package Peregrine::Tally;

use strict;
use warnings;

our $VERSION = '0.003000';

use Peregrine;

# Interpreters that may run at the same time, old and new ones.
use constant MOST => 2048;
# Words of an interpreter: requests, answers, failed answers, requests that have ended without an answer,
# answers that are over, answers by the time until they began, and by the time until they were over.
use constant { TIMES => 16, WIDTH => 5 + 2 * 16 };
my @COUNTS = qw(asked answered failed unanswered ended);

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# Words behind the places of interpreters: how often figures began and ended to move, and the figures of
# interpreters that have gone.
use constant GONE => 1;
# Times that a reader reads at most, while figures move.
use constant LOOKS_MAX => 100;

# `most`: interpreters that may run at the same time.
sub new {
    my ($class, %args) = @_;
    my $most  = $args{most} // MOST;
    my $words = Peregrine::Words->new($most * WIDTH + GONE + WIDTH);
    return bless { words => $words, most => $most, free => [ 0 .. $most - 1 ] }, $class;
}

sub claim {
    my ($self) = @_;
    return shift @{ $self->{free} };
}

sub release {
    my ($self,  $place) = @_;
    my ($words, $epoch) = ($self->{words}, $self->{most} * WIDTH);
    my @gone = $words->get($place * WIDTH, WIDTH);
    $words->add($epoch, 1);
    for my $at (0 .. WIDTH - 1) {
        $words->add($epoch + GONE + $at, $gone[$at]);
        $words->set($place * WIDTH + $at, 0);
    }
    $words->add($epoch, 1);
    push @{ $self->{free} }, $place;
    return;
}

# Unmaps the memory in a process that neither counts nor reads.
sub leave {
    my ($self) = @_;
    return $self->{words}->leave;
}

sub count {
    my ($self, $worker, $place) = @_;
    $worker->tally_in($self->{words}, $place * WIDTH);
    return;
}

sub figures {
    my ($self, $place) = @_;
    return _figures($self->{words}->get($place * WIDTH, WIDTH));
}

sub _figures {
    my (@words) = @_;
    my %figures;
    @figures{@COUNTS} = splice @words, 0, scalar @COUNTS;
    return { %figures, times => [ splice @words, 0, TIMES ], lengths => \@words };
}

# The sums over all interpreters, also over those that have gone. Reads again if the master moved figures.
sub sum {
    my ($self) = @_;
    my ($words, $epoch) = ($self->{words}, $self->{most} * WIDTH);
    my @sum;
    for (1 .. LOOKS_MAX) {
        my ($before) = $words->get($epoch);
        my @all      = $words->get(0, $epoch);
        @sum = $words->get($epoch + GONE, WIDTH);
        for my $at (grep { $all[$_] } 0 .. $#all) {
            $sum[ $at % WIDTH ] += $all[$at];
        }
        last if $before % 2 == 0 && $before == ($words->get($epoch))[0];
    }
    return _figures(@sum);
}

sub nothing {
    return { (map { $_ => 0 } @COUNTS), map { $_ => [ (0) x TIMES ] } qw(times lengths) };
}

# Adds figures to a sum. `sign`: 1 or -1.
sub add {
    my ($sum, $figures, $sign) = @_;
    $sum->{$_} += $sign * $figures->{$_} for @COUNTS;
    for my $at (0 .. TIMES - 1) {
        $sum->{$_}[$at] += $sign * $figures->{$_}[$at] for qw(times lengths);
    }
    return $sum;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Tally - what each interpreter has answered, in memory that the master reads

=head1 SYNOPSIS

    my $tally = Peregrine::Tally->new;    # in the master, before it forks
    my $place = $tally->claim;
    $tally->count($worker, $place);       # in the interpreter
    say $tally->figures($place)->{answered};
    $tally->release($place);              # when the interpreter has ended

=head1 DESCRIPTION

The engine's counters (L<Peregrine::Counters>) do not tell one interpreter from another where several have one
engine. Here each has words of its own, which its bridge writes (L<Peregrine/tally_in>).

=head1 METHODS

=head2 new, claim, count, release

    my $tally = Peregrine::Tally->new(most => 64);    # interpreters at the same time

See above. C<claim> returns undef when there is no place.

=head2 leave

    $tally->leave;    # in a process that has no part in it, and is not to write there

=head2 figures

    my $figures = $tally->figures($place);

Those of L<Peregrine::Canary>, without C<crashes> and C<interpreters>.

=head2 sum

    say $tally->sum->{answered};

Those of all places, and of all interpreters that have had one.

=head1 FUNCTIONS

=head2 nothing, add

    my $sum = Peregrine::Tally::nothing();
    Peregrine::Tally::add($sum, $figures, 1);

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
