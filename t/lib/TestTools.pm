package TestTools;

# Functions that several tests need beside a server and a client, and a deadline: a test file that loads this
# module and comes no further does not hang, but fails and says where it stood. script/lint asks every file in
# t/ to load it, or a module that does.

use strict;
use warnings;

use Carp           ();
use Errno          qw(EINTR);
use Exporter       qw(import);
use IO::Socket::IP ();
use List::Util     qw(max min);
use POSIX          qw(WNOHANG);
use Time::HiRes    qw(sleep time);

our @EXPORT_OK = qw(
    can_read content ended for_this_perl free_port freeze has_ipv6 has_module is_emulated
    not_repeated patience program_path refused wait_for write_old_file
);

# The path of an installed program; undef if PATH has none.
sub program_path {
    my ($name) = @_;
    my ($path) = grep { -x } map { "$_/$name" } split /:/, $ENV{PATH};
    return $path;
}

# Whether a module is installed; it is not loaded here, where it would be the test's, too.
sub has_module {
    my ($module) = @_;
    my $file = $module =~ s{::}{/}gr . '.pm';
    return scalar grep { !ref && -e "$_/$file" } @INC;
}

# Rows of a test that name the placement of their engine; none if the file runs again with PEREGRINE_ENGINE,
# which is meant for the other rows.
sub not_repeated {
    my (@rows) = @_;
    return $ENV{PEREGRINE_ENGINE} ? () : @rows;
}

# The factor for all times that tests wait, for machines where programs are slow, as under script/vm.
my $SLOWNESS = $ENV{PEREGRINE_PATIENCE} || 1;

# Seconds that a test waits for an event which should come at once; only a failing test waits so long. More on
# a busy machine, where a program that usually starts in half a second has needed thirty.
sub patience {
    my ($seconds) = @_;
    return $seconds * $SLOWNESS * (1 + load() / 8);
}

# Whether the processor is emulated: /proc shows the emulator's arguments and threads in place of a program's.
sub is_emulated {
    local $0 = 'a name (shown)';
    return (content("/proc/$$/cmdline") // $0) !~ /shown/;
}

# Processes that want to run, averaged over the last minute; 0 on systems other than Linux.
sub load {
    open my $in, '<', '/proc/loadavg' or return 0;
    return (split / /, readline $in)[0];
}

my $SECONDS = patience(150);
my $OWNER   = $$;
my $results = '';              # at the last look
my $late;

$ENV{PEREGRINE_TEST} = $$;        # finds all processes that the test has started
$SIG{ALRM}           = \&_late;
alarm $SECONDS;

# Ends a test that has had no result since the last look. How long the whole file takes depends on what else
# the machine does. Forked children have no alarm unless they set one.
sub _late {
    POSIX::_exit(1) if $$ != $OWNER;
    my $now = _results();
    if ($now ne $results) {
        $results = $now;
        alarm($SECONDS = patience(150));
        return;
    }
    $late = 1;
    print STDERR Carp::longmess(sprintf "# no test has ended for %.0f s, and this is where:\n#", $SECONDS);
    exit 1;
}

# How many results the test has, and each subtest that has begun.
sub _results {
    return $INC{'Test2/API.pm'} ? join ' ', map { $_->count } Test2::API::test2_stack()->all : '';
}

# Ends the processes that a late test has started. TestServer has ended its own servers before.
END {
    if ($late && $$ == $OWNER) {
        local $?;
        kill KILL => grep { $_ != $OWNER && _is_ours($_) } map { m{(\d+)} } glob '/proc/[0-9]*';
    }
}

# Whether a process was started by this test: a child, or a program that a child has run.
sub _is_ours {
    my ($pid) = @_;
    return 1 if content("/proc/$pid/stat") =~ /\A\d+ \(.*\) \S $OWNER /s;
    return content("/proc/$pid/environ")   =~ /(?:\A|\0)PEREGRINE_TEST=$OWNER(?:\0|\z)/;
}

# A file's content; an empty string if the file does not exist.
sub content {
    my ($path) = @_;
    open my $in, '<', $path or return '';
    local $/;
    my $text = <$in>;
    return defined $text ? $text : '';
}

# A program of the manual, changed for a Perl before 5.36 as README.md describes it.
sub for_this_perl {
    my ($code) = @_;
    return $code if $] >= 5.036;
    return $code =~ s/^ *\Kuse v5\.36;/use v5.32; use warnings; use experimental 'signatures';/mr;
}

# Writes a file with a time an hour ago: the entity tag of a file that changed within the last second is weak.
sub write_old_file {
    my ($path, $text) = @_;
    open my $out, '>:raw', $path or die "$path: $!";
    print {$out} $text;
    close $out or die "$path: $!";
    my $time = time - 3600;
    utime $time, $time, $path or die "$path: $!";
    return;
}

# A free port at 127.0.0.1 for a server that has to be told one. It is below the ports that the kernel chooses
# itself, so that no other test takes it meanwhile.
sub free_port {
    for (1 .. 100) {
        # Tests that were forked with the same random seed try different ports.
        my $port  = 10_000 + (31 * $$ + int rand 20_000) % 20_000;
        my $probe = IO::Socket::IP->new(LocalHost => '127.0.0.1', LocalPort => $port, Listen => 1);
        return $port if $probe;
    }
    die "no port is free\n";
}

# Whether this machine has an IPv6 address to listen at.
sub has_ipv6 {
    my $socket = IO::Socket::IP->new(LocalHost => '::1', Listen => 1, LocalPort => 0);
    return defined $socket;
}

# The message with which PAGI::Server refuses options; an empty string if it takes them.
sub refused {
    my (%options) = @_;
    require PAGI::Server;
    return eval { PAGI::Server->new(%options); 1 } ? '' : $@;
}

# Whether a handle can be read within these seconds. The alarm above does not end the wait.
sub can_read {
    my ($handle, $seconds) = @_;
    my $end = time + $seconds;
    vec(my $bits = '', fileno $handle, 1) = 1;
    while (1) {
        my $count = select my $ready = $bits, undef, undef, max(0, $end - time);
        return $count > 0 if $count >= 0 || $! != EINTR;
    }
    return;
}

# Waits for the end of a child; returns its wait status, or undef if it had to be killed.
sub ended {
    my ($pid, $seconds) = @_;
    my $end = time + ($seconds || patience(30));
    while (waitpid($pid, WNOHANG) != $pid) {
        if (time > $end) {
            kill KILL => $pid;
            waitpid $pid, 0;
            return;
        }
        sleep 0.01;
    }
    return $?;
}

# Stops processes, and waits until all threads stand still: the thread that gets the signal tells the others,
# which run until then. CONT lets them go on.
sub freeze {
    my (@pids) = @_;
    kill STOP => @pids;
    return wait_for(sub {
        !grep { content($_) =~ /\A\d+ \(.*\) [^T] /s } map { glob "/proc/$_/task/*/stat" } @pids;
    });
}

# Seconds until a test looks again for something that it has awaited since a time: a tenth of the time that it
# has waited already. A look may cost as much as a request, and fifty a second would take a processor from the
# servers that the test waits for.
sub pause_since {
    my ($began) = @_;
    return min(0.25, max(0.02, (time - $began) / 10));
}

# Calls a code reference until it returns a true value, for 30 seconds by default, and returns the last value.
sub wait_for {
    my ($what, $seconds) = @_;
    my $began = time;
    my $end   = $began + patience($seconds || 30);
    while (1) {
        my $answer = $what->();
        return $answer if $answer || time >= $end;
        sleep pause_since($began);
    }
    return;
}

1;
