# Runs the Autobahn testsuite's fuzzing client against a server, as many clients at once as there are
# cores, and says what it found. Called by script/conformance, which has installed what is needed:
#     autobahn.pl WSTEST [--cases LIST] [--url URL] [--minutes N]
# Does not know: where Python comes from, and what the cases are about.
use v5.36;
use Cwd            qw(realpath);
use File::Basename qw(dirname);
use File::Path     qw(make_path remove_tree);
use Getopt::Long   qw(GetOptionsFromArray);
use IO::Socket::INET;
use JSON::PP;
use POSIX       ();
use Time::HiRes qw(sleep time);

my $ROOT      = realpath(dirname(__FILE__) . '/../..');
my $BED       = "$ROOT/.peregrine/autobahn";
my $CASES_ALL = 517;
my $SILENCE   = 600;    # seconds without a word from the judge: it waits for something that never comes

# The cases in portions of some minutes each, the longest first.
my @PORTIONS =
    ((map { ["12.$_.*"] } 1 .. 5), (map { ["13.$_.*"] } 1 .. 7), [ map { "$_.*" } 1 .. 7, 9, 10 ],);

# Frames of 16 MiB are among the cases. Compression does its utmost: every message, with both histories.
my @LIMITS =
    qw(frame_bytes_max=16777216 deflate_bytes_min=0 deflate_server_takeover=1 deflate_client_takeover=1);

chdir $ROOT or die "$ROOT: $!\n";
$| = 1;
my %pids;               # of the processes that run now
exit main(@ARGV);

END { kill TERM => keys %pids if %pids }

sub main ($wstest, @arguments) {
    my %option = (minutes => 60);
    GetOptionsFromArray(\@arguments, \%option, 'cases=s', 'url=s', 'minutes=f') && !@arguments or return 2;
    $SIG{$_} = sub { exit 2 }
        for qw(INT TERM);
    remove_tree("$BED/report");
    make_path("$BED/report");
    my $url      = $option{url} // start_server() // return 2;
    my @portions = $option{cases} ? ([ split /,/, $option{cases} ]) : @PORTIONS;
    my $started  = time;
    my $trouble  = run_portions($wstest, $url, time + 60 * $option{minutes}, @portions);
    my $results  = gather(scalar @portions);
    return report($results, time - $started, $trouble, $option{cases} ? undef : $CASES_ALL);
}

# Compiles and starts examples/c/hello.c on a free port; its URL.
sub start_server () {
    my $program = "$BED/hello";
    my @command = (qw(cc -std=c11 -D_GNU_SOURCE -O2 -o), $program, qw(-Iengine/include examples/c/hello.c));
    system(@command, qw(.peregrine/engine/lib/libperegrine.a -lssl -lcrypto -lpthread -lm)) == 0 or return;
    my $port = free_port();
    start("$BED/report/server.log", $program, $port, @LIMITS);
    for (my $end = time + 10; time < $end; sleep 0.05) {
        return "ws://127.0.0.1:$port" if IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port);
    }
    say STDERR 'conformance: examples/c/hello.c did not start';
    return;
}

sub free_port () {
    my $probe = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1) or die "listen: $!\n";
    return $probe->sockport;
}

sub start ($log, @command) {
    my $pid = fork // die "fork: $!\n";
    if (!$pid) {
        open STDOUT, '>',  $log     or POSIX::_exit(126);
        open STDERR, '>&', \*STDOUT or POSIX::_exit(126);
        $ENV{PYTHONUNBUFFERED} = 1;    # what the judge says is looked at while it runs
        exec @command or POSIX::_exit(127);
    }
    $pids{$pid} = 1;
    return $pid;
}

# Nothing when every portion came to its end before the deadline, else what went wrong.
sub run_portions ($wstest, $url, $deadline, @portions) {
    my $jobs = (`nproc` || 1) + 0;
    my (%running, $number);
    while (@portions || %running) {
        if (@portions && %running < $jobs) {
            my $cases = shift @portions;
            my $log   = sprintf '%s/report/%d/output.log', $BED, ++$number;
            $running{ start_portion($wstest, $url, $number, $cases) } = { cases => "@$cases", log => $log };
            next;
        }
        my $pid = waitpid -1, POSIX::WNOHANG;
        if ($pid > 0) {
            delete $pids{$pid};
            my $portion = delete $running{$pid} // return "the server ended; see $BED/report/server.log";
            return "the judge broke off; see $portion->{log}" if $?;
            say "done: $portion->{cases}";
            next;
        }
        return 'the time was up' if time > $deadline;
        for my $portion (values %running) {
            my $trouble = stuck($portion->{log});
            return "$portion->{cases}: $trouble" if $trouble;
        }
        sleep 0.2;
    }
    return;
}

# Why a judge would go on for ever; nothing while it works.
sub stuck ($log) {
    open my $in, '<', $log or return;
    my $first = join '', grep { defined } map { scalar <$in> } 1 .. 20;
    return 'no case is called so'      if $first =~ /will run 0 test cases/;
    return "nothing happens; see $log" if time - (stat $log)[9] > $SILENCE;
    return;
}

sub start_portion ($wstest, $url, $number, $cases) {
    my $folder = "$BED/report/$number";
    make_path($folder);
    my %spec = (
        servers               => [ { agent => 'peregrine', url => $url } ],
        outdir                => $folder,
        cases                 => $cases,
        'exclude-cases'       => [],
        'exclude-agent-cases' => {},
    );
    open my $out, '>', "$folder/spec.json" or die "$folder/spec.json: $!\n";
    print $out encode_json(\%spec);
    close $out or die "$folder/spec.json: $!\n";
    return start("$folder/output.log", 'nice', $wstest, '-m', 'fuzzingclient', '-s', "$folder/spec.json");
}

# Every case that was run: its name to the two verdicts and the report's place.
sub gather ($portions) {
    my %results;
    for my $folder (map { "$BED/report/$_" } 1 .. $portions) {
        open my $in, '<', "$folder/index.json" or next;
        local $/;
        my $cases = decode_json(<$in>)->{peregrine} // {};
        $results{$_} = [ @{ $cases->{$_} }{qw(behavior behaviorClose)}, "$folder/$cases->{$_}{reportfile}" ]
            for keys %$cases;
    }
    return \%results;
}

sub report ($results, $seconds, $trouble, $expected) {
    my (%classes, @bad);
    for my $case (sort { by_number($a, $b) } keys %$results) {
        my ($behavior, $close, $file) = @{ $results->{$case} };
        my ($class) = $case =~ /^(\d+)/;
        $classes{$class}{$behavior}++;
        next if $behavior =~ /^(?:OK|INFORMATIONAL)$/ && $close =~ /^(?:OK|INFORMATIONAL)$/;
        push @bad, "$case: $behavior, closing $close: " . $file =~ s{\A\Q$ROOT\E/}{}r;
    }
    for my $class (sort { $a <=> $b } keys %classes) {
        my $count = $classes{$class};
        say sprintf('%3d.*  ', $class), join ', ', map { "$count->{$_} $_" } sort keys %$count;
    }
    say for @bad;
    my $ran     = keys %$results;
    my $missing = $trouble || !$ran || $expected && $ran != $expected;
    printf "%d cases%s, %d against the rules (%.0f s)\n",
        $ran, $missing ? ' of ' . ($expected // 'some') : '', scalar @bad, $seconds;
    say 'conformance: ', $trouble // "the run broke off; see $BED/report" if $missing;
    return @bad || $missing ? 1 : 0;
}

sub by_number ($left, $right) {
    my @left  = split /\./, $left;
    my @right = split /\./, $right;
    for my $at (0 .. 2) {
        my $order = ($left[$at] // 0) <=> ($right[$at] // 0);
        return $order if $order;
    }
    return 0;
}
