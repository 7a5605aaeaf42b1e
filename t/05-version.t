# script/version in a tree of its own: a version becomes another one and is released, and the heading of one
# that is out stays.
use strict;
use warnings;
use experimental 'signatures';

use Cwd        qw(getcwd);
use File::Temp qw(tempdir);
use lib 'script/lib', 't/lib';
use Test::More;
use TestTools;
use Version;

my $root = getcwd();
chdir tempdir(CLEANUP => 1) or die $!;
for my $folder (qw(lib engine)) { mkdir $folder or die "$folder: $!" }
spew('lib/Peregrine.pm', "package Peregrine;\nour \$VERSION = '0.003000';\n1;\n");
spew($_,                 qq(.{\n    .name = .peregrine,\n    .version = "0.3.0",\n}\n))
    for 'build.zig.zon', 'engine/build.zig.zon';
spew('Changes', "Revision history\n\n0.003000  Unreleased\n    - A line.\n");

Version::change('0.004000');
is_deeply Version::carried(),
    {
    'lib/Peregrine.pm' => '0.004000',
    Changes            => '0.004000',
    map { $_ => '0.4.0' } 'build.zig.zon', 'engine/build.zig.zon'
    },
    'each place has the new version';
is slurp('Changes'), "Revision history\n\n0.004000  Unreleased\n    - A line.\n", '... the heading, too';

Version::release('2026-11-27');
is slurp('Changes'), "Revision history\n\n0.004000  2026-11-27\n    - A line.\n", 'it comes out';
for my $day ('2026-11-28', 'soon') {
    ok !eval { Version::release($day); 1 }, "... and not once more, on $day";
    like $@, qr/released|no day/, '... for a reason';
}

Version::change('0.004001');
is slurp('Changes'), "Revision history\n\n0.004001  Unreleased\n\n0.004000  2026-11-27\n    - A line.\n",
    'the next one has a heading of its own';
is Version::current(), '0.004001', '... and is the version';
chdir $root or die $!;
done_testing;

sub spew ($file, $text) {
    open my $out, '>', $file or die "$file: $!\n";
    print {$out} $text;
    close $out or die "$file: $!\n";
    return;
}

sub slurp ($file) {
    open my $in, '<', $file or die "$file: $!\n";
    local $/;
    return readline $in;
}
