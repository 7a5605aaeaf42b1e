# The answers of the applications of script/pairs, which Pairs::Talk expects.
package Pairs::Content;
use v5.36;
use Time::HiRes qw(sleep);

use constant LARGE => 3_000_000;

my $large;

# 3 MB in which no line is like another: a piece that is lost or doubled shows.
sub large () {
    return $large if defined $large;
    my $lines = join '', map { sprintf "%08x abcdefghijklmnopqrstuvw\n", $_ } 1 .. LARGE / 33 + 1;
    return $large = substr $lines, 0, LARGE;
}

# 62,000 bytes in memory of their own, which no other response shares: as many as one response may keep
# waiting without a limit noticing.
sub fresh () {
    my $own = substr large(), 0, 62_000;
    substr $own, 0, 1, substr $own, 0, 1;
    return $own;
}

# As much as no buffer of the server holds at once, few enough to be sent again and again.
sub some () { return substr large(), 0, 200_000 }

# The path of the file that X-Sendfile names.
sub file ($name) { return ($ENV{PAIRS_DIR} // '') . "/files/$name" }

sub pieces () {
    return map { "piece $_ " . $_ x 1000 . "\n" } 1 .. 5;
}

# The ids of the three events after the last one that a client has received.
sub events ($last) {
    my $from = ($last // 0) + 1;
    return $from .. $from + 2;
}

# Process, parent process, thread, and the version of the code.
sub who () {
    my $thread = $INC{'threads.pm'} ? threads->tid : 0;
    return join(' ', $$, getppid, $thread, version()) . "\n";
}

my ($version, $ballast);

# The version, read from a file when the application is loaded. Loading waits while `hangs.VERSION` exists.
sub version () {
    return $version if defined $version;
    $ballast = 'x' x $ENV{PAIRS_BALLAST} if $ENV{PAIRS_BALLAST};
    my $dir = $ENV{PAIRS_DIR} // return $version = 0;
    open my $in, '<', "$dir/version" or die "version: $!\n";
    chomp($version = <$in> // '');
    if (-e "$dir/hangs.$version") {
        open my $mark, '>', "$dir/hung.$version" or die "hung: $!\n";
        sleep 0.05 while -e "$dir/hangs.$version";
    }
    return $version;
}

sub is_open ($name) { return -e "$ENV{PAIRS_DIR}/open.$name" }

# Blocks the interpreter until the file `open.NAME` exists, or for a minute.
sub block ($name) {
    open my $mark, '>>', "$ENV{PAIRS_DIR}/blocked.$name" or die "$name: $!\n";
    syswrite $mark, "$$\n";
    close $mark;
    my $end = time + 60;
    until (is_open($name) || time > $end) { select undef, undef, undef, 0.05 }
    return "$name\n";
}

# Tries an alarm as the time limit of blocking Perl code.
sub interrupted () {
    my $told = '';
    my $ok   = eval {
        local $SIG{ALRM} = sub { die "alarm\n" };
        alarm 1;
        my $end = time + 4;
        select undef, undef, undef, 0.05 while time < $end;
        alarm 0;
        1;
    };
    return $ok ? "not interrupted\n" : $@;
}

# Whether SIGPIPE would end a program that the application starts, as it ends other programs.
sub child () {
    my $status = qx(cat /proc/self/status);
    my ($ignored) = $status =~ /^SigIgn:\s*([0-9a-f]+)/m;
    return hex(substr $ignored, -8) & 1 << 12 ? "SIGPIPE is ignored\n" : "SIGPIPE ends it\n";
}

1;
