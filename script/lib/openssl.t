# The engine's declarations of OpenSSL agree with the headers of this machine, and script/openssl finds a
# wrong number or parameter.
use v5.36;
use Cwd        qw(getcwd);
use File::Temp ();
use lib 't/lib';
use OnlyInFull qw(only_in_full);
use Test::More;

plan skip_all => 'left to script/test --all' if !only_in_full(1);

my $ZIG = $ENV{PEREGRINE_ZIG} // '.peregrine/zig/zig';
$ENV{ZIG_GLOBAL_CACHE_DIR} //= getcwd . '/.peregrine/zig-cache';
plan skip_all => 'no OpenSSL is installed' if !-e '/usr/include/openssl/ssl.h';

my ($status, $said) = output('script/openssl');
is $status, 0, 'the headers of this machine agree' or diag $said;
like $said, qr/^OpenSSL 3\.[0-9]+\.[0-9]+\n[1-9][0-9]* functions and [1-9][0-9]* numbers, 0 differences\n/m,
    '... in functions and numbers';

# A copy has all mistakes, as each program takes the compiler more than a second.
my @wrong = (
    [ 'SSL_CTRL_MODE'    => '= \K33(?=;)',           '34',     '34 here, 33 there' ],
    [ 'SSL_set_shutdown' => 'mode: \Kc_int',         'c_long', '(pointer, i64) void here, (pointer, i32)' ],
    [ 'SSL_free'         => 'SSL_free\(\K[^)]+',     '',       '() void here, (pointer)' ],
    [ 'SSL_gone'         => 'fn SSL_\Kget_shutdown', 'gone',   'OpenSSL does not have it' ],
);
my $changed = slurp('engine/src/tls/libssl.zig');
for my $wrong (@wrong) {
    my ($name, $pattern, $new) = @$wrong;
    my $line = $name =~ s/gone/get_shutdown/r;
    $changed =~ s/^pub (?:const|extern fn) \Q$line\E\b.*\n/$& =~ s{$pattern}{$new}r/me or die "no $line";
    like $changed, qr/^pub .*\b\Q$name\E\b/m, "another $name";
}
my $folder = File::Temp->newdir;
spew("$folder/libssl.zig", $changed);
($status, $said) = output($ZIG, qw(run -fstrip --dep libssl --dep headers -Mroot=engine/test/tls/headers.zig),
    "-Mlibssl=$folder/libssl.zig", '-Mheaders=.peregrine/openssl/headers.zig');
isnt $status, 0, 'mistakes are found';
like $said, qr/^\Q$_->[0]: $_->[3]\E/m, "... and named: $_->[0]" for @wrong;
like $said, qr/ 4 differences$/m,       '... and counted';
done_testing;

# Status and output of a command.
sub output (@command) {
    open my $out, '-|', 'sh', '-c', 'exec "$@" 2>&1 </dev/null', 'sh', 'timeout', '-k', 5, 300, @command
        or die "@command: $!";
    local $/;
    my $output = <$out> // '';
    close $out;
    return ($?, $output);
}

sub slurp ($path) {
    open my $in, '<', $path or die "$path: $!";
    local $/;
    return readline $in;
}

sub spew ($path, $text) {
    open my $out, '>', $path or die "$path: $!";
    print {$out} $text;
    close $out or die "$path: $!";
    return;
}
