# Runs the stages of script/test and counts their tests. Stages that compile, and stages that repeat Perl
# tests, run beside the Perl tests, which mostly wait; three processes share the stages that compile. With
# --all, tests are repeated in other builds and places; with --changed, only the tests run that a change can
# break. The numbers come from the runners: TAP::Parser for Perl, Zig's build summary for the engine.
use v5.36;
use Cwd            qw(realpath);
use File::Basename qw(dirname);
use File::Temp     ();
use lib dirname(__FILE__);
use Changed;
use Failures;
use List::Util qw(sum);
use POSIX      ();
use Sanitized;
use Storable qw(retrieve store);
use Tap;
use Time::HiRes qw(time);

my $ROOT     = realpath(dirname(__FILE__) . '/../..');
my $ZIG_MAX  = 3600;                                    # seconds for the engine's tests, compilation included
my $ZIG_TEST = '600s';                                  # for one of the engine's tests
my $STRIPPED = '-Dstrip';                               # test programs compile and run faster without symbols
my $SEEDS_A_DAY = 1_000;                                # of each simulation, at most

# Files at a time in the stages beside `perl`, which compute a third of the time.
my $AGAIN_AT_ONCE = 3;

# The Perl tests of the stage `thread` without --all: the main ways of events and commands that cross between
# an application and an engine on a thread of its own.
my @ACROSS = qw(10 20 22 26 60-websocket-messages 70 74 85-psgi.t);

my @FIRST   = ([ build => \&build ]);
my @WAITING = ([ lint   => \&lint ],   [ perl  => \&perl_tests ]);
my @AGAIN   = ([ thread => \&thread ], [ pairs => \&pairs ]);
# The engine's tests are compiled while the stage `build` compiles the engine.
my @UNBUILT = ([ engine => \&engine ]);
# Other stages that compile, the longest first.
my @COMPILED =
    ([ zig => \&zig_package ], [ bench => \&bench ], [ install => \&install ], [ c => \&c_example ],);

# Stages that run with --all or by name: tests in another build, and code that is compiled for other systems.
my @AGAIN_COMPILED = ([ races => \&races ], [ sanitized => \&sanitized ], [ elsewhere => \&elsewhere ]);
my @STAGES         = (@FIRST, @UNBUILT, @WAITING, @AGAIN, @COMPILED, @AGAIN_COMPILED);
my $brief;      # without --all, and without a stage or test by name
my %in_full;    # tests that run in full though the others do not
my $stage;      # the name of the present stage
my %total = (passed => 0, failed => 0, skipped => 0);

chdir $ROOT or die "$ROOT: $!\n";
$| = 1;
exit main(@ARGV);

sub main (@wanted) {
    if (@wanted == 1 && $wanted[0] =~ /\A--changed(?:=(.+))?\z/) {
        @wanted = changed($1 // 'HEAD');
        return 0 unless @wanted;
        $brief = 1;
    }
    $brief ||= !@wanted;
    @wanted = grep { $_ ne '--all' } @wanted;
    $ENV{PEREGRINE_BRIEF} = $brief ? 1 : '';
    my @files = grep { !is_stage($_) } @wanted;
    -e $_
        or die "script/test: '$_' is neither a test nor one of: @{[map { $_->[0] } @STAGES]}\n"
        for @files;
    my %run = map { $_ => 1 } grep { is_stage($_) } @wanted;
    $run{build} = $run{perl} = 1 if @files;

    if (%run) {
        run_stages([@files], grep { $run{ $_->[0] } } @STAGES);
    }
    else {
        my $rest = queue($brief ? () : @AGAIN_COMPILED, @COMPILED);
        pipe my $hears, my $is_built or die "pipe: $!\n";
        my $compiled = beside(sub {
            close $is_built;
            run_stages([], @UNBUILT);
            run_rest($rest) if sysread $hears, my $word, 1;
        });
        my $again;
        if (run_stages([], @FIRST)) {
            syswrite $is_built, '.';
            $again = beside(sub {
                Tap::take_places($AGAIN_AT_ONCE);
                run_stages([], @AGAIN);
                run_rest($rest);
            });
            run_stages([], @WAITING);
            run_rest($rest);
        }
        close $is_built;
        $_->() for grep { $_ } $again, $compiled;
    }
    say for Failures::all() ? ('== failures', Failures::all()) : ();
    say Tap::in_words(%total);
    return $total{failed} ? 1 : 0;
}

# Runs stages; false if the build has failed, without which no other stage can run.
sub run_stages ($files, @stages) {
    for (@stages) {
        my ($name, $code) = @$_;
        $stage = $name;
        say "== $name";
        my ($start, $worked) = (time, processor_seconds());
        my %count = $code->(@$files);
        $total{$_} += $count{$_} // 0 for keys %total;
        printf "== %s: %s (%.1f s, %.1f s of processors)\n", $name, Tap::in_words(%count), time - $start,
            processor_seconds() - $worked;
        return if $name eq 'build' && $count{failed};
    }
    return 1;
}

# Returns a function that gives the next stage that no process has begun, in all processes. The pipe has a
# byte for each stage, which only one reader gets.
sub queue (@stages) {
    pipe my $out, my $in or die "pipe: $!\n";
    syswrite $in, join '', map { chr } 0 .. $#stages;
    close $in;
    return sub { my $number; return sysread($out, $number, 1) ? $stages[ ord $number ] : () };
}

# Runs stages of the queue, in a process that has ended its own stages.
sub run_rest ($next) {
    while (my $rest = $next->()) { run_stages([], $rest) }
    return;
}

# Runs stages in a child process. Returns a function that waits for them, shows their output and adds their
# counts and failures.
sub beside ($run) {
    my ($output, $outcome) = (File::Temp->new, File::Temp->new);
    my $child = fork // die "fork: $!\n";
    if (!$child) {
        open STDOUT, '>&', $output  or die "output: $!\n";
        open STDERR, '>&', \*STDOUT or die "output: $!\n";
        $run->();
        STDOUT->flush;
        store({ total => \%total, failures => [ Failures::all() ] }, $outcome->filename);
        POSIX::_exit(0);
    }
    return sub {
        waitpid $child, 0;
        seek $output, 0, 0;
        print <$output>;
        if (!-s $outcome->filename) {
            $total{failed}++;
            Failures::add('the stages beside', "their process ended early, with status $?");
            return;
        }
        my $beside = retrieve($outcome->filename);
        $total{$_} += $beside->{total}{$_} for keys %total;
        Failures::add_all(@{ $beside->{failures} });
    };
}

# The stages and tests for the files that differ from a commit.
sub changed ($base) {
    my @changed = Changed::files($base);
    say "nothing differs from $base" unless @changed;
    my ($now, $later) = Changed::tests(@changed);
    %in_full = map { $_ => 1 } Changed::in_full(\@changed, @$now);
    say "not run for want of time: @$later" if @$later;
    return unless @changed;
    return ('build', 'lint', (grep { m{^engine/} } @changed) ? 'engine' : (), @$now);
}

# CPU seconds of this process and its ended children.
sub processor_seconds () { return sum(times) }

sub is_stage ($word) {
    scalar grep { $_->[0] eq $word } @STAGES;
}

# A stage that runs tests fails if no test ran.
sub counted (%count) {
    return %count if $count{passed} || $count{failed};
    say 'no test ran';
    Failures::add($stage, 'no test ran');
    return (%count, failed => 1);
}

sub build (@) { return system('script/build') ? (failed => 1) : () }

sub lint (@) {
    my ($status, $output) = capture('script/lint');
    print $output;
    return () unless $status;
    Failures::add('script/lint', $output);
    return (failed => 1);
}

# Zig's summary reads "Build Summary: 2/5 steps succeeded (2 failed); 9/12 tests passed (2
# skipped, 1 failed)".
sub zig_tests ($folder, @arguments) {
    my ($status, $output) = zig_build($folder, @arguments);
    my ($summary) = $output =~ /^(Build Summary: .*)/m;
    my ($passed, $total) = ($summary // '') =~ m{(\d+)/(\d+) tests passed};
    my ($skipped) = ($summary // '') =~ /tests passed.*?(\d+) skipped/;
    my $failed    = ($total // 0) - ($passed // 0) - ($skipped // 0);
    if ($status && !$failed) {
        $failed = 1;    # the tests did not compile, or their runner broke
    }
    if ($failed) {
        print $output;
        $output .= failed_again($folder, $output, @arguments) if grep { $_ eq $STRIPPED } @arguments;
        Failures::add("$stage (zig build @arguments)",
            join "\n", grep { /error:|fail|:\d+:\d+:/i } split /\n/, $output);
    }
    say $summary if defined $summary;
    say 'not counted, as Zig answered from its cache (set has_side_effects on the test runs in build.zig)'
        if $output =~ /run test .*\bcached\b/;
    return (passed => $passed // 0, failed => $failed, skipped => $skipped // 0);
}

# Status and output of a build.
sub zig_build ($folder, @arguments) {
    return capture('timeout', '-k', 5, $ZIG_MAX, 'sh', '-c',
        'cd "$0" && exec "$PEREGRINE_ZIG" build "$@" 2>&1',
        $folder, @arguments, '--test-timeout', $ZIG_TEST, qw(--summary all --color off));
}

# Runs tests that have failed without debug information once more with it, for the lines of their failures.
sub failed_again ($folder, $output, @arguments) {
    my %failed = map { $_ => 1 } $output =~ /^error: '(.+)' \w/mg or return '';
    say 'the tests that failed run once more, with debug information';
    my (undef, $again) = zig_build(
        $folder,
        (grep { $_ ne $STRIPPED } @arguments),
        map { "-Dtest-filter=$_" } sort keys %failed
    );
    print $again;
    return $again;
}

# Simulations take other seeds each day, so that a run need not take all of them; with --all a run takes more.
sub engine (@) {
    local $ENV{PEREGRINE_SEED_FIRST} = $ENV{PEREGRINE_SEED_FIRST} // int(time / 86_400) * $SEEDS_A_DAY;
    return counted(zig_tests('engine', 'test', 'test-tls', $brief ? $STRIPPED : ()));
}

# Compiles the package and the C API for macOS and FreeBSD, and runs nothing.
sub elsewhere (@) { return zig_tests('engine', 'elsewhere') }

sub pairs (@) { return counted(Tap::run({}, 'script/lib/pairs.t')) }

# Runs files of tests that start a compiler; with an empty cache they take longer than other tests.
sub compiling (@files) {
    return Tap::run({ seconds => $ZIG_MAX }, map { "script/lib/$_.t" } @files);
}

sub c_example (@) { return counted(compiling(qw(c_example shared frozen development openssl))) }

sub install (@) { return counted(compiling(qw(install dist))) }

# Tests of the tools in script/ that measure, or that test for longer: they are tried briefly.
sub bench (@) {
    my %zig  = counted(zig_tests('bench', 'test', '-Doptimize=debug', $STRIPPED));
    my %perl = counted(compiling(qw(bench abuse workers mutate lint changed tap)));
    return map { $_ => ($zig{$_} // 0) + ($perl{$_} // 0) } qw(passed failed skipped);
}

sub zig_package (@) { return counted(compiling(qw(package zig_service))) }

sub perl_tests (@files) {
    my @tests = Tap::files(@files ? @files : 't');
    my %count = Tap::run({}, grep { !$in_full{$_} } @tests);
    local $ENV{PEREGRINE_BRIEF} = '';
    my %more = Tap::run({}, grep { $in_full{$_} } @tests);
    return counted(map { $_ => ($count{$_} // 0) + ($more{$_} // 0) } qw(passed failed skipped));
}

# Perl tests again, with the engine on a thread of its own. Tests that start no server are left out, and tests
# that choose their engines themselves.
sub thread (@) {
    local $ENV{PEREGRINE_ENGINE} = 'thread';
    my $across  = join '|', map { quotemeta } @ACROSS;
    my @serving = grep {
        my ($number) = m{/(\d+)-};
        $number >= 10 && $number !~ /\A4[0-4]\z/ && !is_not_repeated($_) && (!$brief || m{/(?:$across)\b})
    } Tap::files('t');
    return counted(Tap::run({}, @serving));
}

# Tests of data that threads share, under ThreadSanitizer.
sub races (@) { return counted(zig_tests('engine', 'test-threads')) }

sub is_not_repeated ($file) {
    open my $in, '<', $file or die "$file: $!\n";
    return scalar grep { /^# Not repeated for each PEREGRINE_ENGINE\b/ } <$in>;
}

# Runs the Perl tests nearest to the bridge again, under AddressSanitizer; script/test-sanitized runs all.
sub sanitized (@) { return counted(Sanitized::run_tests(Sanitized::nearest())) }

sub capture (@command) {
    open my $out, '-|', @command or die "$command[0]: $!\n";
    local $/;
    my $output = <$out> // '';
    close $out;
    return ($?, $output);
}
