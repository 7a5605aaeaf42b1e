# Plack's own tests of handlers, whole, in each placement of the engine.
use strict;
use warnings;

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Plack::Test::Suite;
use Test::More;
use TestTools;

for my $engine (only_in_full('inline', 'thread'), 'process') {
    my @workers = $engine eq 'process' ? (workers => 2) : ();
    subtest $engine =>
        sub { Plack::Test::Suite->run_server_tests('Peregrine', undef, undef, engine => $engine, @workers) };
}
subtest 'EVHTP' => sub { Plack::Test::Suite->run_server_tests('EVHTP') };

done_testing;
