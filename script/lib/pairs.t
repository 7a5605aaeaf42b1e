# The covering array of script/pairs by itself; then a slice of its rows, in which no finding may appear that
# is not known and open (Pairs::Table). The seed is the date; PAIRS_SEED gives another one.
use v5.36;
use Cwd            qw(realpath);
use File::Basename qw(dirname);
use lib realpath(dirname(__FILE__)), 't/lib';
use OnlyInFull qw(only_in_full);
use Pairs::Array;
use Pairs::Table;
use Test::More;
use TestTools ();

my @factors = Pairs::Table::factors();
my $array   = Pairs::Array->new(factors => \@factors, never => [ Pairs::Table::never() ]);

# All pairs by brute force: the product of all settings is small here.
sub pairs_of_product ($small) {
    my @rows = ({});
    for my $factor (@{ $small->{factors} }) {
        my ($name, $settings) = @$factor;
        @rows = map {
            my $row = $_;
            map { { %$row, $name => $_ } } @$settings
        } @rows;
    }
    my $tried = Pairs::Array->new(%$small);
    my %pairs = map { $_ => 1 } map { $tried->pairs_of($_) } grep { $tried->is_allowed($_) } @rows;
    return sort keys %pairs;
}

subtest 'a small array' => sub {
    my %small = (
        factors => [ [ a => [ 1 .. 3 ] ], [ b => [ 1 .. 3 ] ], [ c => [qw(x y)] ], [ d => [qw(x y)] ] ],
        never   => [ { a => [1], b => [ 1, 2 ] }, { b => [3], c => ['x'] }, { c => ['y'], d => ['y'] } ],
    );
    my $tried = Pairs::Array->new(%small);
    my @rows  = $tried->rows(7);
    is_deeply [ sort $tried->all_pairs ], [ pairs_of_product(\%small) ],
        'pairs that no row can have are left out';
    is scalar(grep { !$tried->is_allowed($_) } @rows), 0, 'each row is allowed';
    my %seen = map { $_ => 1 } map { $tried->pairs_of($_) } @rows;
    is_deeply [ sort keys %seen ], [ pairs_of_product(\%small) ], '... and together they have all pairs';
    cmp_ok scalar @rows, '<=', 12, '... in few rows';
};

subtest 'the array of servers' => sub {
    my @rows = $array->rows(7);
    my %open = map { $_ => 1 } $array->all_pairs;
    cmp_ok scalar keys %open, '>', 1000, 'there are many pairs';
    is scalar(grep { !$array->is_allowed($_) } @rows), 0, 'each row is allowed';
    delete @open{ $array->pairs_of($_) } for @rows;
    is_deeply [ keys %open ], [], 'all pairs are in a row';
    my @always = Pairs::Table::always();
    is_deeply [ ($array->rows(7, @always))[ -@always .. -1 ] ], \@always,
        '... and those that are always wanted';
    cmp_ok scalar @rows, '<', 120, '... few enough for an hour';
    is_deeply [ $array->rows(7) ], \@rows, 'a seed gives the same rows again';
    isnt join("\n", map { Pairs::Table::in_words($_) } $array->rows(8)),
        join("\n", map { Pairs::Table::in_words($_) } @rows), '... and another seed others';
    is_deeply [ grep { defined Pairs::Table::why_not($_) } @rows ], [], 'none of them is refused';
    is_deeply Pairs::Table::from_words(Pairs::Table::in_words($rows[0])), $rows[0],
        'a row can be written down';
};

# No row begins after the slice's time, so a slice ends within half a minute.
subtest 'a slice' => sub {
    alarm 0;    # the program limits each row
    my @seed    = $ENV{PAIRS_SEED} ? ('--seed', $ENV{PAIRS_SEED}) : ();
    my $seconds = only_in_full(20) || 8;
    my $said    = `$^X script/pairs --slice $seconds @seed 2>&1`;
    note $said;
    is $?, 0, 'nothing was found' or diag $said;
    like $said, qr/^seed \d+, \d+ rows$/m,           'the seed is told';
    like $said, qr/^[1-9]\d* of \d+ rows in \d+ s/m, '... and how many rows were tried';
};

done_testing;
