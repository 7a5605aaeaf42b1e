# Worker processes on a small scale: the checks of script/bench-workers and script/soak for a short time.
use v5.36;
use lib 't/lib';
use Test::More;
use TestTools;

$ENV{PEREGRINE_BENCH_DEBUG} = 1;    # a build without optimisation, see script/lib/bench.t

my $soak_s = $ENV{PEREGRINE_BRIEF} ? 4 : 10;
for my $command ('script/bench-workers --short spread recycles', "script/soak $soak_s") {
    my $output = `$command 2>&1`;
    is $? >> 8, 0, "$command: exit status" or diag $output;
    unlike $output, qr/MISSED/, '... and nothing is missed';
}

done_testing;
