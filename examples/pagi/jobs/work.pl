# The work of a job, as a program of its own: says how many percent are done, a line each.
use strict;
use warnings;

use Time::HiRes qw(sleep);

$| = 1;
for my $percent (map { $_ * 10 } 1 .. 10) {
    sleep 0.1;    # here something takes long
    print "$percent\n";
}
