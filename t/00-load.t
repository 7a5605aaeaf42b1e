# Every module loads, has a manual for each public method, and the engine tells its limits.
use strict;
use warnings;

use lib 'script/lib', 't/lib';
use File::Find ();
use Test::More;
use TestTools;
use Version;

my @modules;
File::Find::find(
    {
        no_chdir => 1,
        wanted   => sub { push @modules, $1 =~ s{/}{::}gr if m{\Alib/(.+)\.pm\z} },
    },
    'lib'
);
# Modules for Mojolicious need Mojo::Base, and no other module does.
@modules = grep { !/\AMojo(?:licious)?::/ } @modules
    if !eval { require Mojo::Base; 1 };    # Expected: not installed
# --acme wants CryptX, which cpanfile recommends.
@modules = grep { !/\APeregrine::Acme::/ } @modules if !eval { require CryptX; 1 };
require_ok($_) for sort @modules;

# Zig's has dots, which is what the engine was built with.
my $version = $Peregrine::VERSION;
my $carried = Version::carried();
is($carried->{$_}, Version::expected($_, $version), "$_ has the version of lib/Peregrine.pm")
    for sort keys %$carried;
is($_->VERSION,                 $version,                  "$_ says so") for @modules;
is(Peregrine::engine_version(), Version::dotted($version), 'so does the engine');
ok(eval { PAGI::Server->VERSION('0.002005'); 1 },
    'it is newer than what programs for the reference server ask for')
    or diag $@;

is(Peregrine::abi_version(), 2, 'the contract with the engine has the version that we know');
cmp_ok(Peregrine::sv_count(), '>', 1000, 'live values are counted');

# A copy of memcmp that goes byte by byte, as Zig's own, would cost a request more than parsing it.
if ($^O eq 'linux') {
    my ($object) = grep { -e } map { "$_/auto/Peregrine/Peregrine.so" } @INC;
    my %names = map { s/@.*//r => 1 } map { (split)[-1] } `nm -D --undefined-only '$object'`;
    ok($names{$_}, "$_ is the C library's") for qw(memcmp memcpy memmove memset strlen);
}

my @options = Peregrine::options();
cmp_ok(@options, '>', 10, 'the engine lists its limits');
for my $option (@options) {
    my $name = $option->{name};
    like($name, qr/\A[a-z_0-9]+\z/, "$name is a name");
    cmp_ok($option->{min}, '<=', $option->{default}, "$name: the default is not below the range");
    cmp_ok($option->{max}, '>=', $option->{default}, "$name: the default is not above the range");
}

ok(!eval { Peregrine::Worker->new({ no_such_limit => 1 }); 1 }, 'a worker refuses an unknown limit');
like($@, qr/no_such_limit/, '... naming it');
ok(!eval { Peregrine::Worker->new({ header_count_max => -1 }); 1 }, 'a worker refuses a value out of range');
like($@, qr/header_count_max => -1/, '... naming both');

my $worker = Peregrine::Worker->new({});
ok(!eval { $worker->dispatch; 1 }, 'a worker without an application has nothing to hand requests to');
like($@, qr/attach/, '... and says so');
ok(!eval { $worker->attach({ app => 'no code' }); 1 }, 'a worker wants code as its application');
my %settings = (app => sub { }, server => bless {}, 'Nobody');
ok(eval { $worker->attach({%settings});  1 }, '... and gets it');
ok(!eval { $worker->attach({%settings}); 1 }, '... once');
like($@, qr/has an application already/, '... and says so');
$worker->close;
ok(!eval { $worker->fd; 1 }, 'a closed worker says so');
like($@, qr/closed/, '... in words');
ok(eval { $worker->close; 1 }, 'closing twice is harmless');
ok(!eval { Peregrine::Worker::fd(bless {}, 'Peregrine::Worker'); 1 },
    'another object is not taken for a worker');

done_testing;
