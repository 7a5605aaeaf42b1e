package Peregrine::Nearest;

use strict;
use warnings;

our $VERSION = '0.003000';

use List::Util qw(min);

# Characters of a word at most: longer words are no typing errors, and comparing costs the product of the
# lengths.
use constant LENGTH_MAX => 64;

# Candidates that are shown at most: if there are more, none is likely to be meant.
use constant SHOWN_MAX => 3;

# Characters of a part of a name at least: shorter parts say nothing.
use constant PART_MIN => 4;

# Characters from which on two may be wrong.
use constant LONG_MIN => 5;

sub hint {
    my ($word, @known) = @_;
    my @near = map { "'$_'" } names($word, @known) or return '';
    my $last = pop @near;
    return ' (did you mean ' . (@near ? join(', ', @near) . ' or ' : '') . "$last?)";
}

sub names {
    my ($word, @known) = @_;
    return if !defined $word || length $word > LENGTH_MAX;
    my $wanted = _plain($word);
    return if length $wanted < 2;
    my %seen;
    my @candidates = map { [ $_ => _plain($_) ] } grep { !$seen{$_}++ } @known;
    for my $search (\&_mistyped, \&_extended, \&_contained) {
        my @found = map { $_->[0] } $search->($wanted, @candidates) or next;
        return @found <= SHOWN_MAX ? @found : ();
    }
    return;
}

# A word without case and leading dashes, and with dashes for underscores, which make no difference.
sub _plain {
    my ($word) = @_;
    $word =~ s/\A-+//;
    return lc $word =~ tr/_/-/r;
}

# The words with the fewest differences, if they are few for the word's length. A short word with another
# first letter does not count.
sub _mistyped {
    my ($wanted, @candidates) = @_;
    my $limit = length $wanted < LONG_MIN ? 1 : 2;
    @candidates = grep { substr($_->[1], 0, 1) eq substr $wanted, 0, 1 } @candidates
        if length $wanted < PART_MIN;
    my %at;
    for my $candidate (grep { abs(length($_->[1]) - length $wanted) <= $limit } @candidates) {
        push @{ $at{ _distance($wanted, $candidate->[1]) } }, $candidate;
    }
    my ($least) = sort { $a <=> $b } keys %at;
    return defined $least && $least <= $limit ? @{ $at{$least} } : ();
}

# The words that begin with the word, or have it as a whole part: "daemon", "cert".
sub _extended {
    my ($wanted, @candidates) = @_;
    return if length $wanted < PART_MIN;
    return grep { $_->[1] =~ /\A\Q$wanted\E|[-.]\Q$wanted\E(?![^-.])/ } @candidates;
}

# The longest candidates that are whole parts of the word: "keepalive-timeout".
sub _contained {
    my ($wanted, @candidates) = @_;
    my @found = sort { length $b->[1] <=> length $a->[1] }
        grep { length $_->[1] >= PART_MIN && $wanted =~ /(?<![^-.])\Q$_->[1]\E(?![^-.])/ } @candidates;
    return grep { length $_->[1] == length $found[0][1] } @found;
}

# Counts the insertions, deletions, replacements and exchanges of neighbours that make one word of the other.
sub _distance {
    my ($from, $to) = @_;
    my @from = split //, $from;
    my @to   = split //, $to;
    my @rows = ([ 0 .. @to ]);
    for my $i (1 .. @from) {
        my @row = ($i);
        for my $j (1 .. @to) {
            my $differs = $from[ $i - 1 ] ne $to[ $j - 1 ];
            my $least   = min $rows[-1][$j] + 1, $row[ $j - 1 ] + 1, $rows[-1][ $j - 1 ] + $differs;
            $least = min $least, $rows[-2][ $j - 2 ] + 1
                if $i > 1 && $j > 1 && $from[ $i - 1 ] eq $to[ $j - 2 ] && $from[ $i - 2 ] eq $to[ $j - 1 ];
            push @row, $least;
        }
        push @rows, \@row;
    }
    return $rows[-1][-1];
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Nearest - the name that was meant

=head1 SYNOPSIS

    die "there is no option '$name'" . Peregrine::Nearest::hint($name, @names) . "\n" if !$known{$name};
    # there is no option 'prot' (did you mean 'port'?)

=head1 DESCRIPTION

For errors about names that nobody knows: options, settings, keys, event types. Case, leading dashes, and C<->
in place of C<_> are no differences.

=head1 FUNCTIONS

=head2 hint

    # " (did you mean '--daemonize'?)"
    my $hint = Peregrine::Nearest::hint('daemon', '--daemonize', '--pid');

The names that L</names> finds as the end of a sentence, with a space before it; an empty
string if there is none.

=head2 names

    my @near = Peregrine::Nearest::names('max_header', @names);    # max_header_size, max_header_count

The given names that differ least from the word, by one character, or two from five characters on (two
neighbours that are exchanged count as one). If there is none, the names that continue the word or have it
as a part; if there is none either, the longest name that is a part of it. None if that leaves more than
three, or if the word has more than 64 characters.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
