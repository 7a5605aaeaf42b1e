# Runs the Autobahn testsuite's fuzzing client against a server, as many clients at once as there are
# cores, and prints its findings. Called by script/conformance, which has installed the testsuite:
#     autobahn.pl WSTEST [--cases LIST] [--url URL] [--minutes N] [--anew] [--mojolicious]
# All cases are run in portions whose results are kept: a run that was interrupted, or whose time was up, goes
# on where it ended, as long as the server has not changed.
use v5.36;
use Cwd            qw(realpath);
use Digest::SHA    ();
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
my $SILENCE   = 600;    # seconds without output, after which the testsuite is taken to wait for ever

# The cases in portions of some minutes at most, the longest first.
my @PORTIONS = map { ["$_.*"] } (map { "12.$_" } 1 .. 5), (map { "13.$_" } 1 .. 7), 9, 1 .. 7, 10;

# Some cases have frames of 16 MiB. Every message is compressed, with both histories kept.
my @LIMITS =
    qw(frame_bytes_max=16777216 deflate_bytes_min=0 deflate_server_takeover=1 deflate_client_takeover=1);

# Mojolicious' echo, with equal limits.
my $MOJO_ECHO    = 'script/lib/autobahn_mojo.pl';
my @MOJO_OPTIONS = map { ("--$_" => 16 * 2**20) } qw(max-ws-frame-size max-ws-message-size);
push @MOJO_OPTIONS, '--ws-deflate-min-size' => 0;

my %START  = (hello => \&start_hello,  mojo => \&start_mojo);
my %DIGEST = (hello => \&digest_hello, mojo => \&digest_mojo);

chdir $ROOT or die "$ROOT: $!\n";
$| = 1;
my $REPORT = "$BED/report";
my %pids;    # processes that run now
exit main(@ARGV);

END { kill TERM => keys %pids if %pids }

sub main ($wstest, @arguments) {
    my %option = (minutes => 60);
    GetOptionsFromArray(\@arguments, \%option, 'cases=s', 'url=s', 'minutes=f', 'anew', 'mojolicious')
        && !@arguments
        or return 2;
    $SIG{$_} = sub { exit 2 }
        for qw(INT TERM);
    $REPORT .= '-mojolicious' if $option{mojolicious};
    remove_tree($REPORT)      if $option{anew} || $option{cases} || $option{url};
    make_path($REPORT);
    my $kind     = $option{mojolicious} ? 'mojo' : 'hello';
    my $url      = $option{url} // $START{$kind}->() // return 2;
    my $judged   = $option{url} // $DIGEST{$kind}->();
    my @portions = map  { portion($_) } $option{cases} ? ([ split /,/, $option{cases} ]) : @PORTIONS;
    my @kept     = grep { is_kept($_,  $judged) } @portions;
    my @others   = grep { !is_kept($_, $judged) } @portions;
    say 'kept from an earlier run: ', join ' ', map { $_->{cases} } @kept if @kept;
    my $started = time;
    my $trouble = run_portions($wstest, $url, $judged, time + 60 * $option{minutes}, @others);
    my $results = gather(grep { is_kept($_, $judged) } @portions);
    my $status  = report($results, time - $started, $trouble, $option{cases} ? undef : $CASES_ALL);
    # Results of some cases are no verdict.
    return $trouble ? 2 : $status;
}

# A portion: a list of cases, and the folder for its results.
sub portion ($cases) {
    my $name = join '+', map { s/\.?\*\z//r } @$cases;
    return { list => $cases, cases => "@$cases", folder => "$REPORT/" . substr $name, 0, 100 };
}

# Digests of the tested server: results of another server are not reused.
sub digest_hello () {
    return digest("@LIMITS", '.peregrine/engine/lib/libperegrine.a', 'examples/c/hello.c');
}

sub digest_mojo () {
    my $built = 'blib/arch/auto/*/*.so blib/lib/Mojo/*/Peregrine.pm blib/lib/Mojo/Server/Peregrine/*.pm';
    return digest("@MOJO_OPTIONS", $MOJO_ECHO, glob $built);
}

sub digest ($options, @files) {
    my $sum = Digest::SHA->new(256);
    $sum->addfile($_) for 'script/autobahn.requirements', @files;
    return $sum->add($options)->hexdigest;
}

# Whether a portion has results for this server.
sub is_kept ($portion, $judged) {
    open my $in, '<', "$portion->{folder}/judged" or return 0;
    return <$in> eq $judged;
}

# Starts a server on a free port; returns its URL. So does start_mojo.
sub start_hello () {
    my $program = "$BED/hello";
    my @command = (qw(cc -std=c11 -D_GNU_SOURCE -O2 -o), $program, qw(-Iengine/include examples/c/hello.c));
    system(@command, qw(.peregrine/engine/lib/libperegrine.a -lssl -lcrypto -lpthread -lm)) == 0 or return;
    my $port = free_port();
    return start_server($port, $program, $port, @LIMITS);
}

sub start_mojo () {
    my $port = free_port();
    return start_server($port, $^X, '-Mblib', 'bin/peregrine', qw(-E production --no-access-log --listen),
        "127.0.0.1:$port", @MOJO_OPTIONS, $MOJO_ECHO);
}

sub start_server ($port, @command) {
    start("$REPORT/server.log", @command);
    for (my $end = time + 20; time < $end; sleep 0.05) {
        return "ws://127.0.0.1:$port" if IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port);
    }
    say STDERR "conformance: @command did not start; see $REPORT/server.log";
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
        $ENV{PYTHONUNBUFFERED} = 1;    # the testsuite's output is read while it runs
        exec @command or POSIX::_exit(127);
    }
    $pids{$pid} = 1;
    return $pid;
}

# Runs portions; returns nothing if all ended before the deadline, otherwise the reason.
sub run_portions ($wstest, $url, $judged, $deadline, @portions) {
    my $jobs = (`nproc` || 1) + 0;
    my %running;
    while (@portions || %running) {
        if (@portions && %running < $jobs) {
            my $portion = shift @portions;
            $running{ start_portion($wstest, $url, $portion) } = $portion;
            next;
        }
        my $pid = waitpid -1, POSIX::WNOHANG;
        if ($pid > 0) {
            delete $pids{$pid};
            my $portion = delete $running{$pid} // return "the server ended; see $REPORT/server.log";
            return "the judge broke off; see $portion->{folder}/output.log" if $?;
            spew("$portion->{folder}/judged", $judged);
            say "done: $portion->{cases}";
            next;
        }
        return 'the time was up; the same command goes on from here' if time > $deadline;
        for my $portion (values %running) {
            my $trouble = stuck("$portion->{folder}/output.log");
            return "$portion->{cases}: $trouble" if $trouble;
        }
        sleep 0.2;
    }
    return;
}

# The reason why a client of the testsuite would go on for ever; nothing while it works.
sub stuck ($log) {
    open my $in, '<', $log or return;
    my $first = join '', grep { defined } map { scalar <$in> } 1 .. 20;
    return 'no case is called so'      if $first =~ /will run 0 test cases/;
    return "nothing happens; see $log" if time - (stat $log)[9] > $SILENCE;
    return;
}

sub start_portion ($wstest, $url, $portion) {
    my $folder = $portion->{folder};
    remove_tree($folder);
    make_path($folder);
    my %spec = (
        servers               => [ { agent => 'peregrine', url => $url } ],
        outdir                => $folder,
        cases                 => $portion->{list},
        'exclude-cases'       => [],
        'exclude-agent-cases' => {},
    );
    spew("$folder/spec.json", encode_json(\%spec));
    return start("$folder/output.log", 'nice', $wstest, '-m', 'fuzzingclient', '-s', "$folder/spec.json");
}

sub spew ($file, $text) {
    open my $out, '>', $file or die "$file: $!\n";
    print $out $text;
    close $out or die "$file: $!\n";
    return;
}

# The results of all cases that were run, by name: the two verdicts and the path of the report.
sub gather (@portions) {
    my %results;
    for my $folder (map { $_->{folder} } @portions) {
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
    say 'conformance: ', $trouble // "the run broke off; see $REPORT" if $missing;
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
