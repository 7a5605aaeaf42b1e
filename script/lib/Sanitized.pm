# The bridge (xs/) compiled with AddressSanitizer and UndefinedBehaviorSanitizer, linked to the engine as it
# is released, with Zig's safety checks. The engine's memory comes from malloc, which AddressSanitizer
# replaces: so memory that the bridge reads after the engine has freed it is found, and memory that is freed
# twice. Zig's code cannot be instrumented: script/test-sanitized --valgrind checks it.
package Sanitized;
use v5.36;
use Config;
use Cwd qw(realpath);
use Failures;
use File::Path qw(make_path remove_tree);
use Tap;

my $HERE    = '.peregrine/sanitized';
my $REPORTS = "$HERE/reports";
my $ENGINE  = '.peregrine/engine/lib/libperegrine.a';
my @FLAGS   = (
    qw(-O1 -g -fPIC -fno-omit-frame-pointer -DPX_CHECKS),
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined"
);

# The factor by which tests wait longer, because instrumented code is slower.
my $PATIENCE    = 4;
my $SECONDS_MAX = 1200;    # seconds for one test file

# Compiles objects that are older than their sources. script/build must have run before. Returns the folder
# that goes into @INC before blib/lib.
sub build () {
    my @sources = sort glob 'xs/Peregrine.c xs/*/*.c';
    my $newest =
        (sort { $b <=> $a } map { -M } glob('xs/*/*.h engine/include/*.h script/lib/Sanitized.pm'))[-1];
    make_path("$HERE/objects", "$HERE/arch/auto/Peregrine");
    my @objects;
    my $library = "$HERE/arch/auto/Peregrine/Peregrine.so";
    for my $source (@sources) {
        my $object = "$HERE/objects/" . $source =~ s{\Axs/(.*)\.c\z}{$1}r =~ tr{/}{-}r . '.o';
        push @objects, $object;
        next if -e $object && -M $object < -M $source && -M $object < $newest;
        my ($version) = version();
        run(
            $Config{cc},                  '-c',
            @FLAGS,                       split(' ', $Config{ccflags}),
            '-Ixs',                       '-Iengine/include',
            "-I$Config{archlibexp}/CORE", qq(-DVERSION="$version"),
            qq(-DXS_VERSION="$version"),  '-o',
            $object,                      $source
        );
    }
    return realpath("$HERE/arch") if -e $library && !grep { -M $_ < -M $library } @objects, $ENGINE;
    run($Config{cc}, '-shared', @FLAGS, '-o', $library, @objects, $ENGINE, libraries());
    return realpath("$HERE/arch");
}

# The version and the libraries of the module as script/build builds it, from the Makefile.
sub version ()   { return from_makefile('XS_VERSION') }
sub libraries () { return split ' ', from_makefile('LDLOADLIBS') }

sub from_makefile ($name) {
    open my $in, '<', 'Makefile' or die "Makefile: $! (run script/build)\n";
    while (<$in>) { return $1 if /^\Q$name\E = (.*)$/ }
    die "Makefile: no $name\n";
}

sub run (@command) {
    system(@command) == 0 or die "failed: @command\n";
    return;
}

# The environment of a perl that loads the sanitized library. Reports are written to files, because often
# nothing reads a server's output.
sub environment () {
    my $runtime = realpath(`$Config{cc} -print-file-name=libasan.so` =~ s/\n\z//r)
        // die "AddressSanitizer's runtime is not installed (Debian: gcc)\n";
    make_path($REPORTS);
    my $reports = realpath($REPORTS);
    return (
        LD_PRELOAD   => $runtime,
        PATH         => without_runtime('curl') . ":$ENV{PATH}",
        ASAN_OPTIONS =>
            "detect_leaks=0:detect_stack_use_after_return=1:use_sigaltstack=0:log_path=$reports/asan",
        UBSAN_OPTIONS      => "print_stacktrace=1:log_path=$reports/ubsan",
        PEREGRINE_PATIENCE => $PATIENCE,
    );
}

# Makes a program that starts the real one without AddressSanitizer's runtime, with which curl hangs.
sub without_runtime ($program) {
    my ($real) = grep { -x } map { "$_/$program" } split /:/, $ENV{PATH};
    make_path("$HERE/bin");
    open my $out, '>', "$HERE/bin/$program" or die "$HERE/bin/$program: $!\n";
    print {$out} "#!/bin/sh\nunset LD_PRELOAD\nexec ", $real // "/usr/bin/$program", qq( "\$@"\n);
    close $out;
    chmod oct 755, "$HERE/bin/$program";
    return realpath("$HERE/bin");
}

# Runs tests with the sanitized library and counts them. A report is a failure, even if no test failed.
sub run_tests (@tests) {
    my $folder      = build();
    my %environment = environment();
    local @ENV{ keys %environment } = values %environment;
    forget();
    my %count    = Tap::run({ before => [$folder], seconds => $SECONDS_MAX }, @tests);
    my @findings = findings();
    say for @findings;
    Failures::add('a sanitizer', $_) for @findings;
    $count{failed} += @findings;
    return %count;
}

sub forget () { remove_tree($REPORTS, { keep_root => 1 }); return }

# The texts of all reports.
sub findings () {
    return map {
        open my $in, '<', $_ or die "$_: $!\n";
        local $/;
        scalar <$in>
    } sort glob "$REPORTS/*";
}

# The Perl tests that are nearest to the bridge.
sub nearest () {
    return
        sort map { glob "t/$_*.t" }
        qw(00 10 20 21 22 23 24 25 26 28 46-builder 47 48 60-websocket-events 60-websocket-messages 70 72);
}

1;
