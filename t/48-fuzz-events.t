# Events made of hostile values, from seeds: see t/lib/EventFuzz.pm. `script/fuzz events SECONDS`
# tries ever new ones.
use strict;
use warnings;

use lib 't/lib';
use EventFuzz;
use TestTools ();
use Test::More;

is_deeply([ EventFuzz::run(1, 40) ], [], 'seeds 1 to 40');
is_deeply([ EventFuzz::run(41, 60, validate_events => 1) ], [], 'seeds 41 to 60, in development');

done_testing;
