# The Zig package stays usable: fetched from the files that git knows, it builds a consumer's project, which runs; what engine/README.md
# prints compiles there as it stands, and its test passes; and in the engine the examples and the manual build.
use v5.36;
use Cwd        qw(getcwd);
use File::Copy qw(copy);
use File::Path qw(make_path);
use File::Temp qw(tempdir);
use Test::More;

my $ZIG     = $ENV{PEREGRINE_ZIG} // getcwd . '/.peregrine/zig/zig';
my $SECONDS = 600;                                                    # for any one command; a cold cache takes its time
my $home    = getcwd;
my $folder  = tempdir('peregrine-package-XXXXXX', TMPDIR => 1, CLEANUP => 1);

# What build.zig.zon promises to ship, as it stands here.
make_path("$folder/package", "$folder/consumer");
for my $file (split /\0/,
    qx(git ls-files -z --cached --others --exclude-standard build.zig build.zig.zon LICENSE engine))
{
    next unless -e $file;
    my ($parent) = "$folder/package/$file" =~ m{(.*)/};
    make_path($parent);
    copy($file, "$folder/package/$file") or die "$file: $!";
}
copy("engine/test/consumer/$_", "$folder/consumer/$_") or die "$_: $!" for qw(build.zig main.zig);
spew("$folder/consumer/build.zig.zon", slurp('engine/test/consumer/build.zig.zon') =~ s/\.dependencies = \K.*/.{},/r);

my ($program, @blocks) = slurp('engine/README.md') =~ /^```zig\n(.*?)^```/msg;
like $program, qr/^pub fn main/m, 'the README begins with a program';
spew("$folder/consumer/readme.zig", $program . readme_tests(@blocks));

chdir "$folder/consumer" or die $!;
ok run($ZIG, 'fetch', '--save=peregrine', "$folder/package"), 'zig fetch';
ok run($ZIG, 'build'),                                        'a project that uses the package builds and runs';
ok run($ZIG, 'build', 'check', '-Dprogram=readme.zig'),       'so does the program of the README';
ok run($ZIG, 'build', 'test', '-Dprogram=readme.zig'),        'its test passes, and its other pieces compile';
chdir $home or die $!;
my ($hash) = slurp("$folder/consumer/build.zig.zon") =~ /\.hash = "([^"]+)"/;
unlink "$ENV{ZIG_GLOBAL_CACHE_DIR}/p/$hash.tar.gz" if $hash && $ENV{ZIG_GLOBAL_CACHE_DIR};

chdir 'engine' or die $!;
ok run($ZIG, 'build', 'examples', 'docs', '--prefix', "$folder/out"), 'the examples and the manual build';
is scalar(grep { -x "$folder/out/bin/$_" } qw(hello basic counter dirserver fileserver websocket)), 6, 'six examples';
ok -e "$folder/out/docs/index.html", 'the manual is there';
done_testing;

# The pieces of the README, each where it belongs in a program: hooks in a handler, settings in a configuration.
sub readme_tests (@blocks) {
    my ($test)    = grep { /^test "/ } @blocks;
    my ($places)  = grep { /^\.listeners = / } @blocks;
    my ($sockets) = grep { /handleUpgrade/ } @blocks;
    is scalar(grep { !defined } $test, $places, $sockets), 0,
        'the README has its test, its listeners and its WebSockets';
    $sockets =~ s/\bHandler\b/Sockets/g;
    return <<~"ZIG";
        $test
        test "the other pieces" {
            const config: per.ServerConfig = .{ $places };
            try std.testing.expectEqual(4, config.listeners.len);
            std.testing.refAllDecls(per.Server(Sockets));
        }
        const Sockets = struct {
            allocator: std.mem.Allocator,
            dir: *per.util.DirServer,
            pub fn init(_: std.mem.Allocator) !*Sockets {
                return error.NotForReal;
            }
            pub fn deinit(_: *Sockets) void {}
            $sockets
        };
        ZIG
}

sub run (@command) {
    open my $out, '-|', 'timeout', $SECONDS, 'sh', '-c', 'exec "$@" 2>&1', 'sh', @command or die "$command[0]: $!";
    my $output = do { local $/; <$out> };
    return 1 if close $out;
    diag "@command:\n$output";
    return 0;
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
