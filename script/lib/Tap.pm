# Runs Perl tests, two files at a time, and counts single tests.
package Tap;
use v5.36;
use File::Find ();
use File::Spec ();
use TAP::Harness;

my $FILE_MAX = 300;    # seconds for one file

# All tests in the named folders and files, sorted.
sub files (@places) {
    my @tests;
    my $take = sub { push @tests, $File::Find::name if /\.t\z/ };
    File::Find::find({ no_chdir => 1, wanted => $take }, @places);
    return sort @tests;
}

# How many have passed, failed and been skipped. A skipped test, or one that may fail, has not passed.
# Options: under (a command in front of perl), before (folders for @INC, before blib), seconds (for one file).
sub run ($options, @tests) {
    return () unless @tests;
    # A server that changes its directory finds them, too.
    my @folders = map { File::Spec->rel2abs($_) } @{ $options->{before} // [] }, 'blib/lib', 'blib/arch';
    my $seconds = $options->{seconds} // $FILE_MAX;
    my $harness = TAP::Harness->new({
        jobs  => 3,
        timer => 1,
        exec  => [ 'timeout', '-k', 5, $seconds, @{ $options->{under} // [] }, $^X, map { "-I$_" } @folders ],
    });
    my %count = (passed => 0, failed => 0, skipped => 0);
    for my $parser ($harness->runtests(@tests)->parsers) {
        my %unproven = map { $_ => 1 } $parser->skipped, $parser->todo;
        $count{skipped} += keys %unproven;
        $count{skipped} += 1 if defined $parser->skip_all;
        $count{passed}  += grep { !$unproven{$_} } $parser->passed;
        # A file that died, timed out or broke its plan failed even when each single test passed.
        $count{failed} += $parser->failed || ($parser->has_problems ? 1 : 0);
    }
    return %count;
}

sub in_words (%count) {
    return 'done' unless grep { $_ } values %count;
    my $words = sprintf '%d passed, %d failed', $count{passed} // 0, $count{failed} // 0;
    $words .= ", $count{skipped} skipped" if $count{skipped};
    return $words;
}

1;
