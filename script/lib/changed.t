# script/lib/Changed.pm: the tests that a change can break, and their order.
use v5.36;
use lib 'script/lib';
use Changed;
use Tap;
use Test::More;

my @tests = Tap::files('t');
is_deeply [
    grep {
        my $name = $_;
        !grep { m{^t/\Q$name} } @tests
    } Changed::names()
    ],
    [],
    'each name of the table is the beginning of a test';

my ($now) = Changed::tests('t/10-hello.t', 'lib/PAGI/Server/ErrorPage.pm');
is $now->[0], 't/10-hello.t', 'a test that differs comes first';
my ($page) = grep { $now->[$_] eq 't/46-error-page.t' } 0 .. $#$now;
my ($mode) = grep { $now->[$_] eq 't/46-builder.t' } 0 .. $#$now;
cmp_ok $page, '<', $mode, 'a test that names a module comes before those of its area';

my @every = map { Changed::tests($_) } map { glob } 'lib/Peregrine/*.pm', 'xs/*/*.c', 'engine/src/*/*.zig';
is scalar(grep { !@$_ } @every[ grep { $_ % 2 == 0 } 0 .. $#every ]), 0, 'each source file has tests';

done_testing;
