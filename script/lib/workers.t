# Worker processes on a small scale: the checks of script/bench-workers and script/soak for a short time.
use v5.36;
use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;
use TestTools;

$ENV{PEREGRINE_BENCH_DEBUG} = 1;    # a build without optimisation, see script/lib/bench.t

plan skip_all => 'left to script/test --all' if !only_in_full(1);
for my $command ('script/bench-workers --short spread recycles', 'script/soak 10') {
    my $output = `$command 2>&1`;
    is $? >> 8, 0, "$command: exit status" or diag $output;
    unlike $output, qr/MISSED/, '... and nothing is missed';
}

done_testing;
