# The handlers of bench/pool/app.pl.
use strict;
use warnings;

use Time::HiRes qw(sleep);

+{ handlers => { nothing => sub { return }, wait => sub { sleep $_[1]; return } } };
