# script/restarts in short: every way to replace workers, one after another, under one load.
use strict;
use warnings;

use lib 't/lib';
use Peregrine;
use Test::More;
use TestTools;

plan skip_all => 'built without TLS' if !Peregrine::has_tls();

my $text = `$^X script/restarts 1 2>&1`;
is($?, 0, 'no request failed but those of the worker that was killed') or diag $text;
like($text, qr/rolling restarts: 1, recycled workers: [1-9]\d*, handovers: 1, TTIN, TTOU, a worker killed/,
    'all was done');
my ($asked) = $text =~ /^(\d+) requests in/m;
cmp_ok($asked // 0, '>', 500, '... under load');

done_testing;
