# The width of a line: 110 columns. A line may be longer where no break helps: because a literal or a word
# alone is longer than a line, in a row of a table, and in files that are not edited by hand.
package Lint::Lines;
use v5.36;

my $WIDTH = 110;
# Files that are not edited: published interfaces, and pages that tools write (benchmarks, judges' results).
my $AS_IS = qr{\Aengine/test/frozen/|\Adocs/BENCHMARKS\.md\z|\Alib/PAGI/Server/Compliance\.pod\z};

# Patterns for literals in each language: strings, lines of strings, regular expressions.
my %LITERAL = (
    zig  => qr{\\\\.*|"(?:[^"\\]|\\.)*"},
    c    => qr{"(?:[^"\\]|\\.)*"},
    perl =>
        qr{"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\b(?:q[qr]?|m)\{.*\}\w*|(?:\bqr|\bm|=~\s*)/(?:[^/\\]|\\.)+/\w*},
    shell  => qr{"(?:[^"\\]|\\.)*"|'[^']*'},
    python => qr{"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'},
    lua    => qr{"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'},
);

sub findings ($source) {
    return () if $source->path =~ $AS_IS;
    my $literal = $LITERAL{ $source->kind };
    my $tables  = $source->kind eq 'markdown';
    my @findings;
    $source->each_line(
        sub ($line, $number) {
            utf8::decode($line);
            my $columns = length $line;
            return if $columns <= $WIDTH || $tables && $line =~ /\A\|/;
            my ($indent) = $line =~ /\A(\s*)/;
            # less one column, for a comma or bracket behind the literal
            my $room   = $WIDTH - length($indent) - 1;
            my @pieces = (split(' ', $line), $literal ? $line =~ /($literal)/g : ());
            return if grep { length > $room } @pieces;
            push @findings, $source->at($number, "$columns columns, the limit is $WIDTH");
        }
    );
    return @findings;
}

1;
