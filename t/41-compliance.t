# PAGI::Server::Compliance says what the records of script/conformance say, and each of them is of a judge
# that has passed.
use strict;
use warnings;
use Test::More;
BEGIN { plan skip_all => 'script/lib is written for Perl 5.36' if $] < 5.036 }
use v5.36;
use lib 'script/lib', 't/lib';
use TestTools qw(content);

plan skip_all => 'needs a clone' if !-e 'script/lib/Compliance.pm' || !-d 'docs/conformance';
require Compliance;
require JSON::PP;
no warnings qw(once);

my $text = content($Compliance::PAGE);
ok($text eq Compliance::page(), 'the page is up to date') or diag 'run script/conformance report';
ok(content($Compliance::README) eq Compliance::readme(), "... and README.md's table of systems");

for my $file (glob "$Compliance::FOLDER/*.json") {
    my $said = JSON::PP->new->decode(content($file));
    ok($said->{passed}, "$said->{judge} has passed");
    like($text, qr/^    \Q$_\E$/m, '... and the page shows it: ' . $_) for @{ $said->{result} };
}
done_testing;
