# The application of script/bench-psgi: it blocks, and has bodies of some size in both directions.
use strict;
use warnings;

my @type  = ('Content-Type' => 'text/plain');
my $large = 'x' x 1_000_000;
my %paths = (
    '/work'   => sub { select undef, undef, undef, 0.02; "worked $$" },
    '/large'  => sub { $large },
    '/upload' => sub { local $/; my $in = $_[0]{'psgi.input'}; length(readline $in) . " $$" },
);

sub {
    my ($env) = @_;
    my $path  = $paths{ $env->{PATH_INFO} };
    my $body  = $path ? $path->($env) : "Hello, World! $$";
    return [ 200, [ @type, 'Content-Length' => length $body ], [$body] ];
};
