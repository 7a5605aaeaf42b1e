# Reasons why tests have failed, kept until the end of a run, so that the end of a log names all of them.
package Failures;
use v5.36;

my $LINES_MAX = 40;    # of one failure's text
my @failures;

# Keeps a title and the last lines of a text.
sub add ($title, $text) {
    my @lines = split /\n/, $text;
    my $cut   = @lines - $LINES_MAX;
    splice @lines, 0, $cut, "($cut lines before these)" if $cut > 0;
    push @failures, join "\n", "$title:", map { "    $_" } @lines;
    return;
}

# Adds the failures of another process, as `all` returned them there.
sub add_all (@others) {
    push @failures, @others;
    return;
}

sub all () { return @failures }

1;
