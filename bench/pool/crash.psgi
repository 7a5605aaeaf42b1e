# Interpreters of a mount that end at each request, for script/bench-pool.
use strict;
use warnings;

sub { exit 3 };
