# The width of a line: 110 columns. A line may be longer where no break helps: because of a literal or a
# word that fills a line even alone, in a row of a table, and in files that are kept as they were.
package Lint::Lines;
use v5.36;

my $WIDTH = 110;
# As published, and pages that tools write: figures of script/bench, the words of judges.
my $AS_IS = qr{\Aengine/test/frozen/|\Adocs/BENCHMARKS\.md\z|\Alib/PAGI/Server/Compliance\.pod\z};

# Texts within a program: strings, lines of strings, patterns.
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
            my $room     = $WIDTH - length($indent) - 1;    # and a comma, or what else closes
            my @pieces   = (split(' ', $line), $literal ? $line =~ /($literal)/g : ());
            return if grep { length > $room } @pieces;
            push @findings, $source->at($number, "$columns columns, the limit is $WIDTH");
        }
    );
    return @findings;
}

1;
