# Worker processes in small: what script/bench-workers and script/soak do in earnest and at length.
use v5.36;
use lib 't/lib';
use Test::More;
use TestTools;

$ENV{PEREGRINE_BENCH_DEBUG} = 1;    # as in script/lib/bench.t

for my $command ('script/bench-workers --short spread recycles', 'script/soak 10') {
    my $output = `$command 2>&1`;
    is $? >> 8, 0, "$command: exit status" or diag $output;
    unlike $output, qr/MISSED/, '... and nothing is missed';
}

done_testing;
