# The PSGI application of the rows about a mebibyte: /mib.txt, from a string that is there.
use strict;
use warnings;

my $mib = 'x' x 2**20;

sub { return [ 200, [ 'Content-Type' => 'text/plain', 'Content-Length' => length $mib ], [$mib] ] };
