# The tools of bench/ work from end to end: a row becomes a table, a peer that is missing is named, and the
# article's check that measures no time meets its goal.
use v5.36;
use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;

$ENV{PEREGRINE_CHECKS}      = 1;    # other tests run beside this one with the build that has assertions
$ENV{PEREGRINE_BENCH_DEBUG} = 1;    # the optimised programs take minutes to compile

my $BRIEF  = '--rounds 1 --seconds 1';
my $SPREAD = qr/[\d.,]+(?: \([\d.,]+ to [\d.,]+\))?/;    # of two turns, or of one if the other was too busy

# A subtest that runs with script/test --all only.
sub at_night ($title, $test) {
    return subtest $title => sub {
        plan skip_all => 'left to script/test --all' if !only_in_full(1);
        return $test->();
    };
}

sub output_of ($command) {
    my $output = `$command 2>&1`;
    return ($? >> 8, $output);
}

subtest 'a row is measured' => sub {
    my ($status, $output) = output_of("script/bench $BRIEF websocket/zig");
    is $status, 0, 'exit status' or diag $output;
    like $output, qr/^\| Peregrine, Zig handler (?:\| [\d.,]+ ){3}\| 0 \| [\d.]+ \| $SPREAD \| \d+ \|$/m,
        'numbers, and no error';
};

at_night 'a row of HTTP/2 is measured' => sub {
    my ($status, $output) = output_of("script/bench $BRIEF http2-body/zig");
    is $status, 0, 'exit status' or diag $output;
    like $output, qr/^\| Peregrine, Zig handler, .+ \| [\d.,]+ \| [\d.,]+ \| 0 \| [\d.]+ \| $SPREAD \|$/m,
        'numbers, and no error';
};

at_night 'idle connections of HTTP/2 are measured' => sub {
    my ($status, $output) = output_of("script/bench $BRIEF idle-http2/zig");
    is $status, 0, 'exit status' or diag $output;
    like $output, qr/^\| Peregrine, Zig handler \| 5,000 \| [\d,]+ \| [\d,]+ \| [\d.]+ \|$/m, 'bytes of each';
    like $output, qr{^\| idle-http2/zig, engine_each \| ≤ 1700 bytes \| [\d,]+ \| .* \| [01] of 1 \| }m,
        'beside the goal';
};

at_night 'a server that speaks TLS is measured, with the yardstick that does not' => sub {
    my ($status, $output) = output_of("script/bench $BRIEF tls/yardstick tls/zig");
    is $status, 0, 'exit status' or diag $output;
    like $output, qr/^\| Peregrine, Zig handler (?:\| [\d.,]+ ){3}\| 0 \| [\d.]+ \| $SPREAD \| $SPREAD \|$/m,
        'numbers, and no error';
};

at_night 'the memory of an interpreter that has done nothing yet' => sub {
    my ($status, $output) = output_of("script/bench $BRIEF begun/psgi-process");
    is $status, 0, 'exit status' or diag $output;
    like $output, qr/^\| Peregrine, PSGI .+, engine in a process \| [1-9][\d,]* \| [\d.]+ \|$/m, 'KiB';
};

subtest 'most rounds decide' => sub {
    local $ENV{PYTHONPATH} = 'bench';
    my $verdicts = q{import report; print(*(report.verdict(met, 8) for met in (8, 6, 5, 3, 2, 0)))};
    my ($status, $output) = output_of("python3 -c '$verdicts'");
    is $output, "met met undecided undecided **missed** **missed**\n", 'verdicts';
};

subtest 'a peer that is not installed is a word in the table' => sub {
    my ($status, $output) = output_of("PATH=/usr/bin:/bin script/bench $BRIEF idle/nginx");
    is $status, 1, 'exit status, as nothing was measured';
    like $output, qr/^\| nginx, `return 200` \| nginx is not installed \|/m, 'the word';
};

subtest 'a row that does not exist' => sub {
    my ($status, $output) = output_of('script/bench no-such-row');
    is $status, 2, 'exit status';
    like $output, qr/there is no row 'no-such-row'/, 'is named';
};

at_night 'a check of the article' => sub {
    my ($status, $output) = output_of('script/bench-article overload');
    is $status, 0, 'exit status' or diag $output;
    like $output, qr/^all met$/m, 'verdict';
};

at_night 'a check of the engine on a thread' => sub {
    my ($status, $output) = output_of('script/bench-thread --short growth');
    is $status, 0, 'exit status' or diag $output;
    like $output, qr/^all met$/m, 'verdict';
};

subtest 'a measurement that is killed' => sub {
    my $started = 'from process import Process; import sys, time; '
        . 'print(Process(("sleep", "60"), {0}, "/", 0, "/dev/null").child.pid, flush=True); time.sleep(60)';
    local $ENV{PYTHONPATH} = 'bench';
    my $pid    = open my $out, '-|', 'python3', '-c', $started or die "python3: $!";
    my $server = readline($out) + 0;
    kill KILL => $pid;
    my $end = time + 20;
    1 while kill(0 => $server) && time < $end && !select undef, undef, undef, 0.1;
    ok !kill(0 => $server), 'leaves no server behind';
    close $out;
};

at_night 'long bodies' => sub {
    my ($status, $output) = output_of('script/bench-bodies --short answer');
    is(() = $output =~ /^  (?:met|MISSED) +[\d,]+ bytes, (?:thread|process): [\d.]+ × inline/mg,
        4, 'figures beside goals')
        or diag $output;
    is $status, $output =~ /^all met$/m ? 0 : 1, 'the exit status tells';
};

at_night 'a worker pool' => sub {
    my ($status, $output) = output_of('script/bench-pool --short');
    is(() = $output =~ /^  (?:met|MISSED) +(?:an empty call|p99 of an echo)/mg, 4, 'figures beside goals')
        or diag $output;
    like $output, qr/^  met +requests without an answer: 0/m, 'no request is without an answer';
    is $status, $output =~ /^all met$/m ? 0 : 1, 'the exit status tells';
};

at_night 'topics' => sub {
    my ($status, $output) = output_of('script/bench-channels --short flight beside held');
    is(() = $output =~ /^  (?:met|MISSED) +(?:memory of a message|p99 beside)/mg, 3, 'figures beside goals')
        or diag $output;
    like $output, qr/^  met +messages that a subscriber got, $_: 50/m, "each subscriber got all, $_"
        for 'at least', 'at most';
    is $status, $output =~ /^all met$/m ? 0 : 1, 'the exit status tells';
};

at_night 'topics over two machines' => sub {
    plan skip_all => 'network namespaces need root' if $>;
    plan skip_all => 'redis-server is not there' if !grep { -x "$_/redis-server" } split /:/, $ENV{PATH};
    my (undef, $output) = output_of('script/bench-channels --short machines');
    like $output, qr/^ +round 1, Peregrine, engine $_: saturated [\d,]+ a second, at 70 % p50/m,
        "a figure of the engine $_"
        or diag $output
        for 'in a process', 'inline';
};

done_testing;
