# `perl Makefile.PL && make dist` works in a fresh clone without warnings, and the contents of the tarball
# build and pass the first tests. With Zig's cache of this tree, equal files are not compiled again.
use v5.36;
use lib 't/lib';
use Config;
use Cwd        qw(getcwd);
use File::Copy qw(copy);
use File::Path qw(make_path);
use File::Temp qw(tempdir);
use JSON::PP   qw(decode_json);
use OnlyInFull qw(only_in_full);
use Test::More;

my $SECONDS = 600;        # for each command; with an empty cache a build takes minutes
my $root    = getcwd();
my $folder  = tempdir('peregrine-dist-XXXXXX', TMPDIR => 1, CLEANUP => 1);

$ENV{PEREGRINE_ZIG}       //= "$root/.peregrine/zig/zig";
$ENV{ZIG_LOCAL_CACHE_DIR} //= "$root/engine/.zig-cache";

# A clone of this tree: copies of the files that git has or would add.
for my $file (split /\0/, qx(git ls-files -z --cached --others --exclude-standard)) {
    next unless -e $file;
    my ($parent) = "$folder/clone/$file" =~ m{(.*)/};
    make_path($parent);
    copy($file, "$folder/clone/$file") or die "$file: $!";
    chmod 0755, "$folder/clone/$file" if -x $file;
}

chdir "$folder/clone" or die $!;
my ($status, $said) = run($^X, 'Makefile.PL');
is $status, 0, 'perl Makefile.PL' or BAIL_OUT($said);
is $said,
    join('',
    map { "$_\n" } 'Generating a Unix-style Makefile',
    'Writing Makefile for Peregrine',
    'Writing MYMETA.yml and MYMETA.json'),
    '... says nothing alarming';

subtest 'what it is not tested with is refused' => sub {
    make_path("$folder/openssl-$_->[0]/openssl")
        for my @openssl = (
        [ '4.0' => "#define OPENSSL_VERSION_MAJOR 4\n#define OPENSSL_VERSION_MINOR 0\n" ],
        [ '1.1' => "#define OPENSSL_VERSION_NUMBER 0x1010118fL\n" ],
        );
    rename 'Makefile', 'Makefile.kept' or die "Makefile: $!";
    for my $version (@openssl) {
        open my $out, '>', "$folder/openssl-$version->[0]/openssl/opensslv.h" or die $!;
        print {$out} $version->[1];
        close $out or die $!;
        local $ENV{C_INCLUDE_PATH} = "$folder/openssl-$version->[0]";
        my ($ended, $words) = run($^X, 'Makefile.PL');
        like $words, qr/with OpenSSL 3\.0 to 3\.6, and this is OpenSSL \Q$version->[0]\E\./, $version->[0];
        is $ended, 0, '... which is no failure';
    }
    my ($ended, $words) = run($^X, '-e', 'BEGIN { *{"]"} = \5.044 } do "./Makefile.PL" or die $@');
    like $words, qr/with Perl 5\.32 to 5\.42, and this is/, 'a newer Perl';
    ok !-e 'Makefile', 'there is no Makefile';
    rename 'Makefile.kept', 'Makefile' or die "Makefile: $!";
};
($status, $said) = run('make', 'dist');
is $status, 0, 'make dist, without make manifest' or diag $said;

my ($tarball) = glob 'Peregrine-*.tar.gz';
ok $tarball, 'there is a tarball' or BAIL_OUT('no tarball');
chdir $folder or die $!;
($status, $said) = run('tar', 'xvf', "clone/$tarball");
is $status, 0, 'it unpacks';
my @inside = grep { !m{/\z} } split /\n/, $said;
my ($name) = $tarball =~ /(.*)\.tar\.gz/;
is_deeply [ grep { !m{\A\Q$name\E/} } @inside ], [], '... into one folder';
my %inside = map { s{\A\Q$name\E/}{}r => 1 } @inside;
my @needed = qw(
    Changes LICENSE MANIFEST META.json README.md Makefile.PL cpanfile bin/pagi-server bin/peregrine
    lib/PAGI/Server.pm xs/Peregrine.xs engine/build.zig engine/build.zig.zon engine/src/peregrine.zig
    engine/include/peregrine.h script/zig.lock t/00-load.t
);
ok $inside{$_}, "it has $_" for @needed;
is_deeply [
    grep { m{\A(?:bench|engine/test|engine/bench|\.)|\.(?:o|so|a)\z|\Ablib|zig-cache} }
    sort keys %inside
    ],
    [],
    '... and nothing that only a clone needs';
cmp_ok -s "clone/$tarball", '<', 2_500_000, '... and is small';

chdir $name or die $!;
($status, $said) = run($^X, 'Makefile.PL');
is $status, 0, 'perl Makefile.PL there' or diag $said;
unlike $said, qr/missing|warn|invalid/i, '... misses nothing';
# Without --all the bridge is compiled without optimisation: script/build has compiled the same files with it.
($status, $said) = run('make', only_in_full(1) ? () : 'OPTIMIZE=-O0');
is $status, 0, 'make' or diag $said;
($status, $said) = run('make', 'test', 'TEST_FILES=t/00-load.t t/10-hello.t t/41-manual.t');
is $status, 0, 'make test' or diag $said;
like $said, qr/^Result: PASS/m, '... ran tests';

my $meta = decode_json(slurp('META.json'));
is $meta->{provides}{'PAGI::Server'}{file}, 'lib/PAGI/Server.pm', 'META.json names the modules';
is $meta->{provides}{$_}{version}, $meta->{version}, "... $_ with its version" for qw(PAGI::Server Peregrine);
ok $meta->{resources}{license}[0], '... and the licence';

# Without library and Zig, Makefile.PL has no error, but writes no Makefile.
my %asked = %ENV;
delete @ENV{qw(PEREGRINE_ZIG PEREGRINE_ZIG_FLAGS)};
$ENV{PATH} = '/usr/bin:/bin';
SKIP: {
    skip 'a Zig is installed', 3
        if !system 'command -v zig || python3 -m ziglang version >/dev/null 2>&1';
    ($status, $said) = run($^X, 'Makefile.PL');
    is $status, 0, 'perl Makefile.PL without Zig and without library' or diag $said;
    like $said, qr/engine is built by Zig .*not found/, '... says what is missing';
    ok !-e 'Makefile', '... and writes no Makefile';
}
{
    local $ENV{PEREGRINE_ZIG} = '/nowhere/zig';
    ($status, $said) = run($^X, 'Makefile.PL');
    isnt $status, 0, '... which is an error where a Zig was named';
}

# Makefile.PL does not look for Zig if the tarball has the engine's library for this machine.
SKIP: {
    my ($machine) = $Config{archname} =~ /\A(x86_64|aarch64)-linux/;
    skip q(no library is made for this machine), 6 if !$machine || !$Config{gnulibc_version};
    my $place = "$machine-linux-gnu/libperegrine.a";
    make_path("prebuilt/$machine-linux-gnu");
    copy('.peregrine/engine/lib/libperegrine.a', "prebuilt/$place") or die "$place: $!";
    is system("cd prebuilt && sha256sum $place >SHA256SUMS"), 0, 'sums';
    ($status, $said) = run($^X, 'Makefile.PL');
    is $status, 0, "perl Makefile.PL with the engine's library" or diag $said;
    like $said, qr{library is in the tarball: prebuilt/\Q$place\E}, '... takes that';
    is qx(grep -c 'build abi' Makefile), "0\n", '... and builds none';
    open my $out, '>>', "prebuilt/$place" or die "$place: $!";
    print {$out} "\n";
    close $out or die $!;
    ($status, $said) = run($^X, 'Makefile.PL');
    isnt $status, 0, 'a library that is not the one of the sums is refused';
    like $said, qr{prebuilt/\Q$place\E is not the file}, '... by name';
    unlink "prebuilt/$place" or die $!;
}
%ENV = %asked;

# PAGI::Middleware that another distribution has installed stays.
make_path("$folder/other/PAGI");
copy("$folder/$name/lib/PAGI/Middleware.pm", "$folder/other/PAGI/Middleware.pm") or die $!;
for my $whose ('ours', 'another') {
    local $ENV{PERL5LIB} = "$folder/other";
    ($status, $said) = run($^X, 'Makefile.PL');
    is $status, 0, "perl Makefile.PL where $whose PAGI::Middleware is installed" or diag $said;
    my $named = $said =~ m{PAGI::Middleware stays as it is installed: \Q$folder\E/other} ? 1 : 0;
    is $named, $whose eq 'ours' ? 0 : 1, '... says whether it stays';
    my $has = qx(grep -c 'blib/lib/PAGI/Middleware' Makefile) > 0 ? 1 : 0;
    is $has, $whose eq 'ours' ? 1 : 0, '... and installs none over it';
    open my $out, '>', "$folder/other/PAGI/Middleware.pm" or die $!;
    print {$out} "package PAGI::Middleware;\n1;\n";
    close $out or die $!;
}
chdir $root or die $!;
done_testing;

# Status and output of a command.
sub run (@command) {
    open my $out, '-|', 'sh', '-c', 'exec "$@" 2>&1 </dev/null', 'sh', 'timeout', '-k', 5, $SECONDS, @command
        or die "@command: $!";
    local $/;
    my $output = <$out> // '';
    close $out;
    return ($?, $output);
}

sub slurp ($file) {
    open my $in, '<', $file or die "$file: $!";
    local $/;
    return readline $in;
}
