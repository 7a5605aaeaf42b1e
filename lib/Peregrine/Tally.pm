package Peregrine::Tally;

use strict;
use warnings;

our $VERSION = '0.003000';

use Peregrine;

# Interpreters that may run at the same time, old and new ones.
use constant MOST => 2048;
# Words of an interpreter: requests, answers, failed answers, requests that have ended without an answer, and
# answers by their time.
use constant { TIMES => 16, WIDTH => 4 + 16 };
my @COUNTS = qw(asked answered failed unanswered);

# See Peregrine::Threads.
sub CLONE_SKIP { return 1 }

sub new {
    my ($class) = @_;
    return bless { words => Peregrine::Words->new(MOST * WIDTH), free => [ 0 .. MOST - 1 ] }, $class;
}

sub claim {
    my ($self) = @_;
    return shift @{ $self->{free} };
}

sub release {
    my ($self, $place) = @_;
    $self->{words}->set($place * WIDTH + $_, 0) for 0 .. WIDTH - 1;
    push @{ $self->{free} }, $place;
    return;
}

sub count {
    my ($self, $worker, $place) = @_;
    $worker->tally_in($self->{words}, $place * WIDTH);
    return;
}

sub figures {
    my ($self, $place) = @_;
    my @words = $self->{words}->get($place * WIDTH, WIDTH);
    my %figures;
    @figures{@COUNTS} = splice @words, 0, scalar @COUNTS;
    return { %figures, times => \@words };
}

sub nothing {
    return { (map { $_ => 0 } @COUNTS), times => [ (0) x TIMES ] };
}

# `sign`: 1 or -1.
sub add {
    my ($sum, $figures, $sign) = @_;
    $sum->{$_} += $sign * $figures->{$_} for @COUNTS;
    $sum->{times}[$_] += $sign * $figures->{times}[$_] for 0 .. TIMES - 1;
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

See above. C<claim> returns undef when there is no place.

=head2 figures

    my $figures = $tally->figures($place);

Those of L<Peregrine::Canary>, without C<crashes> and C<interpreters>.

=head1 FUNCTIONS

=head2 nothing, add

    my $sum = Peregrine::Tally::nothing();
    Peregrine::Tally::add($sum, $figures, 1);

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
