# The hello of sync.pl as an application of PSGI.
use strict;
use warnings;

sub { return [ 200, [ 'Content-Type' => 'text/plain', 'Content-Length' => 13 ], ['Hello, World!'] ] };
