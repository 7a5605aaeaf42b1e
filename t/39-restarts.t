# script/restarts in short: every way to replace workers, one after another, under one load.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Peregrine;
use Test::More;
use TestTools;

# t/39-worker-signals.t and t/39-handover.t have each of them alone.
plan skip_all => 'left to script/test --all' if !only_in_full(1);
plan skip_all => 'built without TLS'         if !Peregrine::has_tls();

my $text = `$^X script/restarts 1 2>&1`;
is($?, 0, 'no request failed but those of the worker that was killed') or diag $text;
like($text, qr/rolling restarts: 1, recycled workers: [1-9]\d*, handovers: 1, TTIN, TTOU, a worker killed/,
    'all was done');
my ($asked) = $text =~ /^(\d+) requests in/m;
cmp_ok($asked // 0, '>', 500, '... under load');

done_testing;
