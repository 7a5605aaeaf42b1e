# The container serves this file: put your application here, of PSGI or of PAGI.
use strict;
use warnings;

sub { [ 200, [ 'Content-Type' => 'text/plain' ], ["Hello from a container\n"] ] };
