# Accidents of certificates that a server orders, in small: script/acme does it at length.
use strict;
use warnings;
use experimental 'signatures';

use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;

use TestTools qw(program_path);

BEGIN {
    plan skip_all => 'pebble is not installed' if !program_path('pebble');
    plan skip_all => 'CryptX is not installed' if !eval { require CryptX; 1 };
}

use AcmeTrials;
use PAGI::Server;

plan skip_all => 'built without TLS' if !PAGI::Server->has_tls;

my $trials = AcmeTrials->new;
subtest 'the clock is set'             => sub { $trials->clock };
subtest 'the authority is away'        => sub { $trials->away };
subtest 'a rate limit'                 => sub { $trials->rate_limit };
subtest 'a renewal is asked for'       => sub { $trials->asked };
subtest 'the disk is full'             => sub { $trials->disk_full };
subtest 'the folder cannot be written' => sub { $trials->unwritable };
subtest 'the authority advises'        => sub { $trials->advice };
subtest 'a port is closed'             => sub { $trials->fallback };
subtest 'steps are killed'             => sub { $trials->kills(only_in_full(13) || 29) };
subtest 'renewals'                     => sub { $trials->renewals(3) };

done_testing;
