# The PSGI peers' application.
use v5.36;

my $body = "Hello, World!\n";
sub ($env) { [ 200, [ 'Content-Type' => 'text/plain', 'Content-Length' => length $body ], [$body] ] }
