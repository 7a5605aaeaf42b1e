# A copy of the source tree in which mutants are compiled and run, one after the other, with limits on time,
# CPU time and memory: whatever a mutant writes stays in the copy. Mutate::Source makes the mutants,
# Mutate::Suites chooses the tests.
package Mutate::Bench;
use v5.36;
use Cwd            qw(realpath);
use File::Basename qw(dirname);
use File::Path     qw(make_path remove_tree);
use POSIX          qw(WNOHANG);
use Time::HiRes    qw(sleep time);
use Mutate::Switch;

my $RUNNER          = realpath(dirname(__FILE__) . '/runner.zig');
my $MEMORY_KIB      = 8 << 20;
my $COMPILE_SECONDS = 300;

# `from`: the source tree; `suites`: a class like Mutate::Suites; `zig`: the compiler; `folder`: the folder of
# the copy, which is made here.
sub new ($class, %given) {
    my $self = bless { limits => {}, %given }, $class;
    for my $part ($self->{suites}->folders) {
        my $to = "$self->{folder}/$part";
        make_path($to);
        system('cp', '-a', "$self->{from}/$part/.", $to) == 0 or die "cannot copy $part\n";
    }
    $self->{suites}->prepare($self->{folder});
    return $self;
}

# Tries mutants of one file: runs the file's suites, nearest first, until a test notices the mutant. Calls
# $answer with each mutant and its verdict: 'killed SUITE: TEST', 'killed SUITE: time', 'does not compile',
# 'survived'. Dies if a suite does not pass on the unchanged tree.
sub try ($self, $path, $answer, @mutants) {
    my @suites   = @{ $mutants[0]{suites} };
    my $file     = "$self->{folder}/$path";
    my $original = _read($file);
    my $switch   = Mutate::Switch->new($original, @mutants);
    for my $suite (@suites) {
        $self->{limits}{$suite} ||= $self->_limits($suite);
        $self->_compile_together($path, $switch, $suite);
        _write($file, $original);
        for my $entry ($switch->mutants) {
            my ($number, $mutant) = @$entry;
            my $verdict = $self->_verdict($suite, "--mutant=$number");
            next if $verdict eq 'survived';
            $answer->($mutant, $verdict);
            $switch->drop($number);
        }
    }
    $answer->($_->[1], 'survived')                                               for $switch->mutants;
    $answer->($_,      $self->_try_alone($file, $original, $_->{text}, @suites)) for $switch->alone;
    return;
}

# Compiles a file's mutants together. A mutant that does not compile is taken out, and compiled alone later.
sub _compile_together ($self, $path, $switch, $suite) {
    while ($switch->mutants) {
        _write("$self->{folder}/$path", $switch->text);
        return if $self->_compile($suite);
        my $given_up = 0;
        for my $complaint (split /^(?=\S+:\d+:\d+: error: )/m, _read("$self->{folder}/output")) {
            my ($place, $line) = $complaint =~ /\A(\S+?):(\d+):\d+: error: / or next;
            my ($name) = $complaint =~ /\b(\w+_mutant[1-9]\d*)\b/;
            $given_up +=
                "engine/$place" eq $path ? $switch->give_up_line($line) : $switch->give_up_name($name // '');
        }
        $given_up or die "mutants of $path do not compile together:\n" . $self->_output;
    }
    return;
}

sub _try_alone ($self, $file, $original, $text, @suites) {
    my $verdict = 'survived';
    for my $suite (@suites) {
        _write($file, $text);
        $verdict = $self->_compile($suite) ? $self->_verdict($suite) : 'does not compile';
        _write($file, $original);
        last if $verdict ne 'survived';
    }
    return $verdict;
}

# The limits of a suite, from its times on the unchanged tree: seconds, and seconds of CPU time.
sub _limits ($self, $suite) {
    $self->_compile($suite) or die "$suite does not compile:\n" . $self->_output;
    my ($cpu, $start) = (_cpu(), time);
    my $end = $self->_run([ $self->_program ], 600, 600);
    $end eq 'passed' or die "$suite $end on the unchanged tree:\n" . $self->_output;
    return [ 60 + 10 * (time - $start), 2 + int(4 * (_cpu() - $cpu)) ];
}

sub _verdict ($self, $suite, @arguments) {
    my $end = $self->_run([ $self->_program, @arguments ], @{ $self->{limits}{$suite} });
    return 'survived'            if $end eq 'passed';
    return "killed $suite: time" if $end eq 'late';
    # The runner's line about the test that ran last, or about the first test that failed.
    my $output = $self->_output;
    my ($test) = $output =~ /^\d+\/\d+ (\S[^\n]*?)\.\.\.(?!OK|SKIP)/m;
    return "killed $suite: " . ($test // $end);
}

sub _program ($self) { return "$self->{folder}/program" }

sub _output ($self) {
    my $output = _read("$self->{folder}/output");
    return length $output > 4000 ? substr $output, -4000 : $output;
}

sub _compile ($self, $suite) {
    my $cache = "$self->{folder}/cache";
    # A mutant's part of the compiler's cache is never used again, and its program is large.
    remove_tree("$cache/o", "$cache/tmp");
    # Without debug information, which takes as long as all the rest. The reference trace of an error in
    # another file names the mutant.
    my @command =
        ($self->{zig}, qw(test -ODebug -fstrip -freference-trace=16 --test-no-exec --test-runner), $RUNNER);
    push @command, '--cache-dir', $cache, '-femit-bin=' . $self->_program;
    my $end =
        $self->_run([ @command, $self->{suites}->arguments($suite) ], $COMPILE_SECONDS, $COMPILE_SECONDS);
    die "compiling took more than $COMPILE_SECONDS s:\n" . $self->_output if $end eq 'late';
    return $end eq 'passed';
}

# Runs a command to its end and kills its process group: 'passed', 'failed' or 'late'.
sub _run ($self, $command, $seconds, $cpu_seconds) {
    my $pid = fork // die "fork: $!\n";
    if (!$pid) {
        setpgrp;
        chdir $self->{suites}->home($self->{folder}) or POSIX::_exit(126);
        open STDIN,  '<',  '/dev/null'              or POSIX::_exit(126);
        open STDOUT, '>',  "$self->{folder}/output" or POSIX::_exit(126);
        open STDERR, '>&', \*STDOUT                 or POSIX::_exit(126);
        my $limits = 'ulimit -c 0; ulimit -t ' . int($cpu_seconds) . "; ulimit -v $MEMORY_KIB";
        exec 'sh', '-c', "$limits; exec \"\$@\"", 'sh', @$command or POSIX::_exit(127);
    }
    my $end  = time + $seconds;
    my $late = 0;
    while (waitpid($pid, WNOHANG) != $pid) {
        $late = 1 if time > $end;
        kill KILL => -$pid if $late;
        sleep 0.02;
    }
    my $status = $?;
    kill KILL => -$pid;
    $late ||= ($status & 127) == POSIX::SIGKILL || ($status & 127) == 24;    # SIGXCPU
    return $late ? 'late' : $status ? 'failed' : 'passed';
}

sub _cpu () { my (undef, undef, $user, $system) = times; return $user + $system }

sub _read ($path) {
    open my $in, '<:raw', $path or die "$path: $!\n";
    local $/;
    return scalar <$in> // '';
}

sub _write ($path, $text) {
    open my $out, '>:raw', $path or die "$path: $!\n";
    print {$out} $text;
    close $out or die "$path: $!\n";
    return;
}

1;
