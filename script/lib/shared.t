# `make install` and `zig build library` install a shared library with a version for C programs. The commands
# in examples/c/hello.c make a program of the library, and Python serves with it by ctypes.
use v5.36;
use Cwd        qw(getcwd);
use File::Temp qw(tempdir);
use lib 't/lib';
use Test::More;
use TestClient;
use TestServer;
use TestTools qw(free_port wait_for);
use TestWebSocket;

plan skip_all => 'the shared library is for Linux' if $^O ne 'linux';
alarm 0;    # a compiler takes minutes; script/lib/Tap.pm ends a test that hangs

my $root   = getcwd();
my $target = tempdir(CLEANUP => 1);
my $log    = "$target/log";
is system("make -s install_c DESTDIR=$target PREFIX=/usr C_LIBDIR=/usr/lib >$log 2>&1 </dev/null"), 0,
    'make install_c'
    or BAIL_OUT(slurp($log));
my $library = "$target/usr/lib/libperegrine.so.2";
ok -e "$target/usr/$_", "$_ is installed"
    for qw(include/peregrine.h lib/libperegrine.a lib/libperegrine.so lib/pkgconfig/peregrine.pc);

subtest 'the library' => sub {
    like qx(readelf -dW $library), qr/\(SONAME\).*\[libperegrine\.so\.2\]/, 'has a soname';
    is qx(ldd -r $library 2>&1) =~ /undefined symbol.*/ ? $& : '', '', 'misses nothing';
    my @symbols = symbols($library);
    is_deeply [ grep { !/\Aperegrine_\w+\@\@PEREGRINE_2(?:\.\d+)?\z/ } @symbols ], [],
        'exports its functions alone';
    cmp_ok scalar @symbols, '>', 90, '... all of them';
};

is system("strip --strip-debug -o $target/stripped.a $target/usr/lib/libperegrine.a 2>$log"), 0,
    'strip takes the static library'
    or diag slurp($log);

# pkg-config finds the library as if it were installed at /usr.
local $ENV{PKG_CONFIG_PATH}        = "$target/usr/lib/pkgconfig";
local $ENV{PKG_CONFIG_SYSROOT_DIR} = $target;
delete local $ENV{PKG_CONFIG_LIBDIR};
my ($installed, $clone) = slurp('examples/c/hello.c') =~ /^ \*\h+(cc .*)$/mg;
serves('the line for what is installed', $installed, 'examples/c', "$target/usr/lib");
serves('the line for a clone',           $clone,     '.',          '');

# The library that `zig build library` installs works in any folder.
subtest 'zig build library' => sub {
    my $zig   = $ENV{PEREGRINE_ZIG} // "$root/.peregrine/zig/zig";
    my $place = "$target/zig";
    # With the flags of Makefile.PL, whose engine is in Zig's cache.
    my ($flags) = slurp('Makefile') =~ /^ZIG_FLAGS = (.*)$/m;
    my $command = "'$zig' build library --release=safe $flags --prefix $place";
    # The build asks pkg-config for OpenSSL: another answer would compile the engine again, for a minute.
    delete local @ENV{qw(PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR)};
    is system("cd engine && $command >$log 2>&1 </dev/null"), 0, 'builds'
        or diag slurp($log);
    like qx(readelf -dW $place/lib/libperegrine.so.2), qr/\(SONAME\).*\[libperegrine\.so\.2\]/,
        'the same soname';
    is_deeply [ symbols("$place/lib/libperegrine.so.2") ], [ symbols($library) ],
        '... and the same functions';
    local $ENV{PKG_CONFIG_PATH} = "$place/lib/pkgconfig";
    serves('the line for what is installed', $installed, 'examples/c', "$place/lib");
};

subtest 'Python' => sub {
    my $port = free_port();
    local $ENV{PEREGRINE_LIBRARY} = $library;
    my $server = TestServer->spawn('python3', 'examples/python/hello.py', $port);
    # Expected: connections are refused until the server listens.
    ok wait_for(sub {
        eval { TestClient->new($port) }
        }),
        'listens'
        or diag $server->log;
    is TestClient::exchange($port, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")->{body},
        "Hello from Python\n", 'answers from another thread';
    my $socket = TestWebSocket->open($port, '/');
    $socket->text('one')->binary("\xff\x00");
    is $socket->next, 'text one',        'sends a text back';
    is $socket->next, "binary \xff\x00", '... and bytes';
    $socket->close;
    is $server->stop, 0, 'ends with status 0 on TERM' or diag $server->log;
};
done_testing;

sub symbols ($file) {
    return sort map { (split)[-1] } grep { !/ A / } split /\n/, qx(nm -D --defined-only $file);
}

# Runs a compiler's line of the manual in a folder; the program that it makes serves.
sub serves ($title, $line, $folder, $libraries) {
    subtest $title => sub {
        my $program = "$target/hello";
        is system("cd $folder && " . ($line =~ s/-o hello\b/-o $program/r) . " >$log 2>&1"), 0, $line
            or diag slurp($log);
        my $port = free_port();
        local $ENV{LD_LIBRARY_PATH} = $libraries;
        my $server = TestServer->spawn($program, $port);
        # Expected: connections are refused until the server listens.
        ok wait_for(sub {
            eval { TestClient->new($port) }
            }),
            'listens'
            or diag $server->log;
        is TestClient::exchange($port, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")->{body},
            "Hello from C\n", 'answers';
        is $server->stop, 0, 'ends with status 0 on TERM';
        unlink $program;
    };
    return;
}

sub slurp ($path) {
    open my $in, '<', $path or die "$path: $!";
    local $/;
    return readline $in;
}
