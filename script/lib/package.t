# The Zig package, fetched from the files in git, builds the project of a user, which runs; the README's
# pieces of engine/README.md compile there unchanged, and the README's test passes; so do the programs of the
# first Peregrine's README. A project may choose target, optimisation, TLS and checks. In the engine the
# examples and the manual build, and the container's counter without an option. Without --all, script/test
# runs only the README's pieces in the project, and the handler of the wrong shape: the other parts compile an
# engine again and find less.
use v5.36;
use lib 't/lib';
use Cwd        qw(getcwd);
use File::Copy qw(copy);
use File::Path qw(make_path);
use File::Temp qw(tempdir);
use OnlyInFull qw(only_in_full);
use Test::More;

my $ZIG     = $ENV{PEREGRINE_ZIG} // getcwd . '/.peregrine/zig/zig';
my $SECONDS = 600;                        # for each command; with an empty cache a build takes minutes
my $home    = getcwd;
my $brief   = !only_in_full(1);
my @quick   = $brief ? '-Dstrip' : ();    # takes the compiler less time
my $folder  = tempdir('peregrine-package-XXXXXX', TMPDIR => 1, CLEANUP => 1);

# The files of the package (build.zig.zon), as they are in this tree.
make_path("$folder/package", "$folder/consumer");
for my $file (split /\0/,
    qx(git ls-files -z --cached --others --exclude-standard build.zig build.zig.zon LICENSE engine))
{
    next unless -e $file;
    my ($parent) = "$folder/package/$file" =~ m{(.*)/};
    make_path($parent);
    copy($file, "$folder/package/$file") or die "$file: $!";
}
copy("engine/test/consumer/$_", "$folder/consumer/$_") or die "$_: $!" for qw(build.zig main.zig first.zig);
spew("$folder/consumer/build.zig.zon",
    slurp('engine/test/consumer/build.zig.zon') =~ s/\.dependencies = \K.*/.{},/r);

my ($program, @blocks) = slurp('engine/README.md') =~ /^```zig\n(.*?)^```/msg;
like $program, qr/^pub fn main/m, 'the README begins with a program';
spew("$folder/consumer/readme.zig", $program . readme_tests(@blocks));

subtest 'somebody begins with an empty folder, and does what the README says' => sub {
    plan skip_all => 'left to script/test --all' if $brief;
    my ($piece) = grep { /b\.dependency/ } @blocks;
    mkdir "$folder/app" or die $!;
    chdir "$folder/app" or die $!;
    ok run($ZIG, 'init'),                                                     'zig init';
    ok run('tar', 'czf', "$folder/package.tar.gz", '-C', $folder, 'package'), 'an archive of the package';
    ok run($ZIG, 'fetch', '--save', "$folder/package.tar.gz"),                'zig fetch --save';
    my $build = slurp('build.zig') =~ s/^\h*b\.installArtifact\(exe\);\n\K/$piece/mr;
    isnt $build, slurp('build.zig'), 'there is a place in build.zig';
    spew('build.zig',    $build);
    spew('src/main.zig', $program);
    ok run($ZIG, 'build'),   'zig build';
    ok -x 'zig-out/bin/app', 'a program';
    forget_package();
};

chdir "$folder/consumer" or die $!;
ok run($ZIG, 'fetch', '--save=peregrine', "$folder/package"), 'zig fetch';
ok run($ZIG, 'build'), 'a project that uses the package builds and runs' if !$brief;
ok run($ZIG, 'build', 'test', '-Dprogram=readme.zig', @quick),
    'its test passes, and its other pieces compile';
SKIP: {
    skip 'left to script/test --all', 1 if $brief;
    ok run($ZIG, 'build', 'check', 'test', '-Dprogram=first.zig'),
        q(the first Peregrine's programs compile and answer);
}
is_deeply [ grep { index(squeezed(slurp('first.zig')), squeezed($_)) < 0 } first_pieces() ], [],
    '... and they are what its README has, but for what the table in ours names';
spew("$folder/consumer/wrong.zig", slurp("$home/engine/test/consumer/wrong.zig"));
my ($status, $said) = output($ZIG, 'build', 'check', '-Dprogram=wrong.zig', '--color', 'off');
isnt $status, 0, 'a handler of the wrong shape does not compile';
like $said, qr/wrong\.App\.handleRequest has to be `pub fn handleRequest\(self: \*wrong\.App, request: /,
    '... the compiler says what to write';
like $said, qr/\bmain: wrong\.zig:\d+:\d+/, '... and who has asked for it';
subtest 'what a project may say to the package' => sub {
    plan skip_all => 'left to script/test --all' if $brief;
    ok run($ZIG, 'build', '-Dtls=false', '-Dtarget=x86_64-linux-musl'), 'no TLS, for another target';
SKIP: {
        skip 'no OpenSSL here', 1 if !-e '/usr/include/openssl/ssl.h';
        ok run($ZIG, 'build', '-Dtls=true'), 'TLS';
    }
    # An option that the package does not have would end the build before anything is compiled.
    my @optimize = map { "-Doptimize=$_" } qw(debug safe fast small);
    for my $said ('-Dunchecked=true', '-Dunchecked=false', '-Dtarget=aarch64-macos', @optimize) {
        ok run($ZIG, 'build', '--list-steps', $said), $said;
        ok run($ZIG, 'build', '--list-steps', $said, '-Dtls=false'), "$said without TLS";
    }
};
my ($refused, $why) = output($ZIG, 'build', '--list-steps', '-Dtarget=x86_64-windows');
isnt $refused, 0, 'for Windows the build ends at once';
like $why, qr/Peregrine does not run on Windows: /, '... with a sentence';
chdir "$folder/consumer" or die $!;
forget_package();

SKIP: {
    skip 'left to script/test --all', 6 if $brief;
    chdir "$folder/package" or die $!;
    ok run($ZIG, 'build', '-Dtarget=x86_64-linux-musl'), q(the package's own build);
    ok -x 'zig-out/bin/counter',                         'installs the counter';
    my ($copied) = slurp('engine/example/counter.Dockerfile') =~ /^COPY (\S+) /m;
    is $copied, 'zig-out/bin/counter', '... where its container looks for it';
    chdir "$home/engine" or die $!;
    ok run($ZIG, 'build', 'examples', 'docs', '--prefix', "$folder/out"), 'the examples and the manual build';
    is scalar(grep { -x "$folder/out/bin/$_" } qw(hello basic counter dirserver fileserver websocket)), 6,
        'six examples';
    ok -e "$folder/out/docs/index.html", 'the manual is there';
}
chdir $home or die $!;    # so that the temporary folder can be removed
done_testing;

# The tests of the README's pieces: each line `// README: TEXT` becomes the only piece that contains TEXT. All
# pieces must be used.
sub readme_tests (@blocks) {
    my (@missing, %used);
    my $tests = slurp("$home/engine/test/consumer/readme.zig") =~ s{^//!.*\n}{}gmr;
    $tests =~ s{^\h*// README: (.+)\n}{
        my ($wanted, @found) = ($1, grep { index($_, $1) >= 0 } @blocks);
        @found == 1 ? $used{ $found[0] } = $found[0] : push @missing, $wanted;
        $found[0] // ''
    }gme;
    is_deeply \@missing, [], 'each piece that the tests name is there, once';
    my @unused = grep { !$used{$_} && !/^const peregrine = b\.dependency/m } @blocks;
    is_deeply \@unused, [], 'and every piece is tested, but for that of build.zig';
    return $tests;
}

# Removes the package that was fetched for this project from the cache that all projects share.
sub forget_package () {
    my ($hash) = slurp('build.zig.zon') =~ /\.hash = "([^"]+)"/;
    unlink "$ENV{ZIG_GLOBAL_CACHE_DIR}/p/$hash.tar.gz" if $hash && $ENV{ZIG_GLOBAL_CACHE_DIR};
    return;
}

# The programs of the first Peregrine's README, with the changes that our README lists.
sub first_pieces () {
    my @pieces = slurp("$home/engine/test/consumer/first.md") =~ /^```zig\n(.*?)^```/msg;
    is scalar(@pieces), 3, 'the first README has three pieces';
    for (@pieces) {
        s/\Qstd.heap.GeneralPurposeAllocator(.{}){}\E/.init/;
        s/\bvar gpa = /var gpa: std.heap.DebugAllocator(.{}) = /;
        s/^\s*const (?:std|per) = .*//mg;
    }
    return @pieces;
}

# A text without blanks, and without the lines that use variables which a piece leaves unused.
sub squeezed ($text) {
    my $use = qr/_ = (?:frame|value|try resp\.setBody\(value\));|std\.debug\.assert\(query.*/;
    return $text =~ s/^\s*(?:$use)$//mgr =~ s/\s+//gr;
}

sub run (@command) {
    my ($status, $output) = output(@command);
    diag "@command:\n$output" if $status;
    return !$status;
}

sub output (@command) {
    open my $out, '-|', 'timeout', $SECONDS, 'sh', '-c', 'exec "$@" 2>&1', 'sh', @command
        or die "$command[0]: $!";
    my $output = do { local $/; <$out> };
    close $out;
    return ($?, $output);
}

sub slurp ($path) {
    open my $in, '<', $path or die "$path: $!";
    local $/;
    return <$in>;
}

sub spew ($path, $text) {
    open my $out, '>', $path or die "$path: $!";
    print {$out} $text;
    close $out or die "$path: $!";
    return;
}
