# Reasons why tests have failed, kept until the end of a run: a log of which only the end is at hand still
# names them.
package Failures;
use v5.36;

my $LINES_MAX = 40;    # of one failure
my @failures;

# Keeps the title and the last lines of the text.
sub add ($title, $text) {
    my @lines = split /\n/, $text;
    my $cut   = @lines - $LINES_MAX;
    splice @lines, 0, $cut, "($cut lines before these)" if $cut > 0;
    push @failures, join "\n", "$title:", map { "    $_" } @lines;
    return;
}

# Of another process, as `all` gave them there.
sub add_all (@others) {
    push @failures, @others;
    return;
}

sub all () { return @failures }

1;
