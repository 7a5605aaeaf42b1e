package OnlyInFull;

# How a test says which of its parts are for `script/test --all` alone. A run of script/test without --all has
# PEREGRINE_BRIEF, which no other module or test in Perl reads; a file that runs alone, as with prove, runs in
# full. The default run keeps each assertion at least once, where it is most likely to fail.
#
#   for my $engine ('process', only_in_full(qw(inline thread))) { ... }    # rows
#   for my $case (crossed(\@engines, \@protocols)) { ... }                # in turns, not each with each
#   my $rounds = only_in_full(20) || 5;                                   # an amount
#   subtest 'each size once more' => sub { ... } if only_in_full(1);      # a subtest
#   plan skip_all => 'left to script/test --all' if !only_in_full(1);     # a file

use strict;
use warnings;

use Exporter qw(import);

our @EXPORT_OK = qw(crossed only_in_full);

# Rows that other rows or another file guard already: the rows in a full run, none in a default run. The first
# of them where one value is wanted.
sub only_in_full {
    my (@rows) = @_;
    @rows = () if $ENV{PEREGRINE_BRIEF};
    return wantarray ? @rows : $rows[0];
}

# Each value of the first list with each value of the second one, as [ first, second ]. A default run takes
# the values in turns: each of them is in at least one row.
sub crossed {
    my ($first, $second) = @_;
    return if !@$first || !@$second;
    if (only_in_full(1)) {
        return map {
            my $value = $_;
            map { [ $value, $_ ] } @$second
        } @$first;
    }
    my $last = (@$first > @$second ? @$first : @$second) - 1;
    return map { [ $first->[ $_ % @$first ], $second->[ $_ % @$second ] ] } 0 .. $last;
}

1;
