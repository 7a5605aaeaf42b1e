# The same hello for PSGI.
use strict;
use warnings;

sub { return [ 200, [ 'Content-Type' => 'text/plain', 'Content-Length' => 13 ], ['Hello, World!'] ] };
