# Runs Perl tests, several files at a time, and counts single tests.
package Tap;
use v5.36;
use Failures;
use File::Find ();
use File::Spec ();
use File::Temp ();
use List::Util qw(max);
use TAP::Harness;

my $FILE_MAX = 7200;                       # seconds for one file; TestTools ends a test that does not go on
my $TIMES    = '.peregrine/test-times';    # for each file, the seconds and the CPU seconds of its last run
my $CORES    = () = glob '/sys/devices/system/cpu/cpu[0-9]*';

# Tests wait for their servers two thirds of the time, and compilers run beside them.
my $AT_ONCE = 4 * max($CORES, 1);

# Runs a command, and writes the CPU time of the command and its children. The harness would count all
# processes that end meanwhile, also those of other files.
my $RUN = 'exec 2>"$0"; worked=$1; shift; "$@"; status=$?; times >"$worked"; exit $status';

# a shell's status for a program that was ended by a signal is the signal's number plus 128
my $SIGNAL_MAX = 64;

# Files that took the most CPU time are listed at the end: at most this many, with at least these seconds.
my ($BUSIEST, $BUSY) = (10, 5);

sub at_once () { return $AT_ONCE }

# Sets the number of files at the same time, for a process that runs tests beside others.
sub take_places ($count) { $AT_ONCE = $count }

# All tests in the named folders and files, sorted.
sub files (@places) {
    my @tests;
    my $take = sub { push @tests, $File::Find::name if /\.t\z/ };
    File::Find::find({ no_chdir => 1, wanted => $take }, @places);
    return sort @tests;
}

# The tests with the slowest first: the last one to end should begin early. A test without a recorded time
# counts a second for each kilobyte.
sub slowest_first (@tests) {
    my %seconds = recorded();
    $seconds{$_} //= (-s $_ // 0) / 1024 for @tests;
    return sort { $seconds{$b} <=> $seconds{$a} || $a cmp $b } @tests;
}

sub recorded () {
    my %lines = lines();
    return map { $_ => $lines{$_} =~ s/ .*//r } keys %lines;
}

sub lines () {
    open my $in, '<', $TIMES or return ();
    return map { /\A(\S+) ([\d.]+(?: [\d.]+)?)\Z/ ? ($1 => $2) : () } <$in>;
}

sub record ($took, $worked) {
    -d '.peregrine' or return;
    my %lines = (lines(), map { $_ => sprintf '%.1f %.1f', $took->{$_}, $worked->{$_} } keys %$took);
    my $new   = "$TIMES.$$";    # another process may be recording, too
    open my $out, '>', $new or die "$new: $!\n";
    print {$out} "$_ $lines{$_}\n" for sort keys %lines;
    close $out or die "$new: $!\n";
    rename $new, $TIMES or die "$TIMES: $!\n";
    return;
}

# Runs tests; returns the numbers of passed, failed and skipped ones. Skipped tests, and tests that are
# expected to fail, have not passed. Shows the standard error of each file when all have ended, and keeps
# failures. Options: `under` (a command in front of perl), `before` (folders for @INC, before blib), `seconds`
# (for one file).
sub run ($options, @tests) {
    return () unless @tests;
    # Absolute paths, because servers may change their directory.
    my @folders = map { File::Spec->rel2abs($_) } @{ $options->{before} // [] }, 'blib/lib', 'blib/arch';
    my $seconds = $options->{seconds} // $FILE_MAX;
    my @command = ('timeout', '-k', 5, $seconds, @{ $options->{under} // [] }, $^X, map { "-I$_" } @folders);
    my (%said, %worked);    # for each file, the files of its standard error and of its CPU time
    my $harness = TAP::Harness->new({
        jobs  => $AT_ONCE,
        timer => 1,
        # Without `merge` the harness selects for standard error, too. At its end, which is always readable
        # here, the harness would wait for each test's next line in turn, and begin no test meanwhile.
        merge => 1,
        exec  => sub ($, $file) {
            ($said{$file}, $worked{$file}) = (File::Temp->new, File::Temp->new);
            return [ 'sh', '-c', $RUN, map({ $_->filename } $said{$file}, $worked{$file}), @command, $file ];
        },
    });
    my %not_ok;    # by file, the lines of its failed tests
    $harness->callback(
        made_parser => sub ($parser, $job) {
            my $failed = $not_ok{ $job->[0] } = [];
            $parser->callback(test => sub ($test) { push @$failed, $test->as_string unless $test->is_ok });
        }
    );
    my %count  = (passed => 0, failed => 0, skipped => 0);
    my $result = $harness->runtests(slowest_first(@tests));
    my %took;
    for my $file ($result->descriptions) {
        my ($parser) = $result->parsers($file);
        my $said = contents($said{$file});
        print "$file wrote to standard error:\n$said" if length $said;
        Failures::add($file, join "\n", exit_of($parser), $parser->parse_errors, @{ $not_ok{$file} }, $said)
            if $parser->has_problems;
        $took{$file} = $parser->end_time - $parser->start_time;
        my %unproven = map { $_ => 1 } $parser->skipped, $parser->todo;
        $count{skipped} += keys %unproven;
        $count{skipped} += 1 if defined $parser->skip_all;
        $count{passed}  += grep { !$unproven{$_} } $parser->passed;
        # A file that died, timed out or broke its plan has failed, even if each single test passed.
        $count{failed} += $parser->failed || ($parser->has_problems ? 1 : 0);
    }
    my %computed = map { $_ => seconds_in(contents($worked{$_})) } keys %worked;
    record(\%took, \%computed);
    tell_busiest(%computed);
    return %count;
}

# CPU seconds of the shell's children, from the second line of its `times`: "0m1.5s 0m0.3s".
sub seconds_in ($times) {
    my (undef, $line) = split /\n/, $times;
    my @children = ($line // '') =~ /(\d+)m([\d.]+)s/g or return 0;
    return 60 * $children[0] + $children[1] + 60 * $children[2] + $children[3];
}

sub tell_busiest (%seconds) {
    my @busy = grep { $seconds{$_} >= $BUSY } sort { $seconds{$b} <=> $seconds{$a} } keys %seconds;
    splice @busy, $BUSIEST if @busy > $BUSIEST;
    printf "%6.1f s of processors: %s\n", $seconds{$_}, $_ for @busy;
    return;
}

sub contents ($file) {
    open my $in, '<', $file->filename or die $file->filename . ": $!\n";
    local $/;
    return <$in> // '';
}

# The signal or the status that ended the process of a file; an empty list for status 0.
sub exit_of ($parser) {
    my $status = $parser->wait or return ();
    my $code   = $status >> 8;
    return 'ended by signal ' .        ($code - 128) if $code > 128 && $code <= 128 + $SIGNAL_MAX;
    return "ended with status $code" . ($code == 124 ? ' (its time was over)' : '');
}

sub in_words (%count) {
    return 'done' unless grep { $_ } values %count;
    my $words = sprintf '%d passed, %d failed', $count{passed} // 0, $count{failed} // 0;
    $words .= ", $count{skipped} skipped" if $count{skipped};
    return $words;
}

1;
