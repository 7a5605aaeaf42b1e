# The part of app.pl that PSGI has: /bytes/FIRST/SIZE, and the body of a POST.
use strict;
use warnings;

my $ALPHABET = join '', 'a' .. 'z', 'A' .. 'Z', 0 .. 9;
my $LETTERS  = $ALPHABET x 20_000;

sub {
    my ($env) = @_;
    my (undef, undef, $first, $size) = split m{/}, $env->{PATH_INFO};
    my $body = defined $size ? substr $LETTERS, $first, $size : '';
    if ($env->{REQUEST_METHOD} eq 'POST') {
        $body = '';
        1 while $env->{'psgi.input'}->read($body, 65_536, length $body);
    }
    return [ 200, [ 'Content-Length' => length $body, 'X-Process' => $$ ], [$body] ];
};
