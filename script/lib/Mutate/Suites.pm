# Chooses the tests that are nearest to a file of the engine, and compiles a test program with the modules of
# engine/build.zig, which is read for them: each program alone, without build.zig's overhead and without
# optimisation.
package Mutate::Suites;
use v5.36;
use Cwd            qw(realpath);
use File::Basename qw(dirname);

my $ENGINE = 'engine';
my $TREE   = realpath(dirname(__FILE__) . '/../../..');
my $BUILD  = _slurp("$TREE/$ENGINE/build.zig");

# Modules: the path of a module and the names of its imports. `prepare` makes the modules of options.
my %MODULES  = _modules();
my @PROGRAMS = _programs();
# abi_test.zig needs what build.zig makes of the header.
my @OF_THE_ABI = grep { $_ ne 'abi' } map { s/_test\.zig\z//r } _imports('test/abi.zig');

# Test programs: the root file of each, and the names of its imports.
my %SUITES = (
    protocol     => $MODULES{protocol},
    server       => $MODULES{server},
    'many-cases' =>
        [ 'test/many_cases.zig', qw(protocol hub peregrine peregrine.web spoken certificates wanted) ],
    'tls-server'  => [ 'test/tls/server_test.zig', qw(peregrine tls wanted) ],
    abi           => $MODULES{abi},
    'abi-threads' => [ 'test/threads.zig', qw(abi peregrine) ],
    (map { $_ => [ "test/${_}_test.zig", qw(abi peregrine) ] } @OF_THE_ABI),
    (map { $_ => [ "test/${_}_test.zig", qw(protocol peregrine peregrine.web wanted) ] } @PROGRAMS),
    map { $_->[0] => [ $_->[1], qw(protocol wanted) ] } _wires(),
);

sub _modules () {
    my ($layers) = $BUILD =~ /^    fn create\((.*?)^    \}/ms or die "engine/build.zig: no layers\n";
    my %modules = (tls => [ 'src/tls/tls.zig', 'tls_options' ]);
    $modules{$1} = [$2] while $layers =~ /const (\w+) = layer\(b, "([^"]+)"/g;
    push @{ $modules{$1} }, $2 while $layers =~ /(\w+)\.add(?:Import|Options)\("(\w+)"/g;
    $modules{wanted}          = ['test/wanted.zig'];
    $modules{platform}        = [ 'src/abi/platform.zig',      'peregrine' ];
    $modules{abi}             = [ 'src/abi/abi.zig',           qw(platform peregrine hub) ];
    $modules{spoken}          = [ 'src/abi/spoken.zig',        qw(platform peregrine hub) ];
    $modules{certificates}    = [ 'test/tls/certificates.zig', 'tls' ];
    $modules{'peregrine.web'} = delete $modules{web};
    my %needed = map { $_ => 1 } map { @$_[ 1 .. $#$_ ] } values %modules;
    $modules{$_} //= ["$_.zig"] for grep { /_options\z/ } keys %needed;
    return %modules;
}

# The files of the test program `package`, except for the file that needs build.zig's options.
sub _programs () {
    return grep { $_ ne 'target' } map { s/_test\.zig\z//r } _imports('test/package.zig');
}

sub _wires () {
    return map { [ 'wire-' . dirname($_), "test/wire/$_" ] } _imports('test/wire/wire.zig');
}

sub _imports ($file) {
    my @imports = _slurp("$TREE/$ENGINE/$file") =~ /^    _ = \@import\("([^"]+)"\);$/mg
        or die "$ENGINE/$file imports no tests\n";
    return @imports;
}

# Suites by a file's path below engine/src: the first pattern that matches counts. The suites run in this
# order.
my @NEAREST = (
    [ qr{\Aprotocol/http1/}                                   => qw(protocol:http1. wire-http1) ],
    [ qr{\Aprotocol/http2/}                                   => qw(protocol:http2. wire-http2) ],
    [ qr{\Aprotocol/websocket/}                               => qw(protocol:websocket. wire-websocket) ],
    [ qr{\Aprotocol/proxy/}                                   => qw(protocol:proxy. wire-proxy) ],
    [ qr{\Aprotocol/}                                         => qw(protocol wire-http1) ],
    [ qr{\Aserver/(?:admission|(?:worker/)?health)\b}         => qw(server guards) ],
    [ qr{\Aserver/(?:worker/)?(?:access_log|access|repeat)\b} => qw(server access_log repeat) ],
    [ qr{\Aserver/(?:worker/)?(?:websocket|native_ws|ws)\b}   => qw(server websocket websocket_sim) ],
    [ qr{\Aserver/compression\b}                              => qw(server compression websocket_sim) ],
    [ qr{\Aserver/(?:worker/)?(?:secure|handshakes|tunnel)\b} => qw(server tls-server) ],
    [
        qr{\Aserver/(?:worker|connection|exchange|outbox|input)\b} =>
            qw(server defects guards native many-cases)
    ],
    [ qr{\Aserver/} => qw(server defects guards native) ],
    [ qr{\Aabi/}    => qw(abi abi-threads) ],
);
my @SERVER = (@PROGRAMS, qw(many-cases tls-server));

# The suites for a file, nearest first: the tests in the file itself, the tests of its module, and the
# programs that test it. `thorough`: all suites that run the file.
sub nearest ($class, $path, $has_tests, $thorough = 0) {
    my ($below) = $path =~ m{\A$ENGINE/src/(.*)\.zig\z} or return;
    my ($row)   = grep { $below =~ $_->[0] } @NEAREST   or return;
    my (undef, @suites) = @$row;
    push @suites, 'many-cases' if $thorough;
    push @suites, @SERVER      if $thorough && $below =~ m{\Aserver/};
    push @suites, @OF_THE_ABI  if $thorough && $below =~ m{\Aabi/};
    my $inside = $below =~ s{\A\w+/}{}r =~ s{/}{.}gr;
    unshift @suites, $suites[0] =~ s/:.*//r . ":$inside.test." if $has_tests;
    my %seen;
    return grep { !$seen{$_}++ } @suites;
}

sub names ($class) { return sort keys %SUITES }

# Names of the files of the test program `package`.
sub programs ($class) { return @PROGRAMS }

# Folders of the source tree that the bench copies; `prepare` adds files to the copy.
sub folders ($class) {
    return map { "$ENGINE/$_" } qw(src test);
}

sub prepare ($class, $folder) {
    my %options = (
        tls_options0    => 'pub const enabled: bool = false;',
        tls_options1    => 'pub const enabled: bool = true;',
        package_options => 'pub const version: [:0]const u8 = "0.0.0";',
    );
    for my $name (keys %options) {
        open my $out, '>', "$folder/$ENGINE/$name.zig" or die "$folder: $!\n";
        print {$out} "$options{$name}\n";
        close $out or die "$folder: $!\n";
    }
    return;
}

# The folder in which the compiler and the tests run.
sub home ($class, $folder) { return "$folder/$ENGINE" }

# The arguments of the compiler that make a suite's program. "suite:filter" has only the tests whose names
# contain the filter.
sub arguments ($class, $name) {
    my ($suite, $filter) = split /:/, $name;
    my ($root, @imports) = @{ $SUITES{$suite} };
    my $tls     = $suite =~ /\A(?:tls|many-cases)/ ? 1 : 0;
    my @linked  = $tls ? qw(-lssl -lcrypto -lc) : $suite =~ /\Aabi/ ? '-lc' : ();
    my @options = (@linked, $filter ? ('--test-filter', $filter) : ());
    my (@order, %seen);
    my $visit = sub ($visit, $name) {
        return if $seen{$name}++;
        my ($file, @needs) = @{ $MODULES{$name} };
        $visit->($visit, $_) for @needs;
        push @order, [ $name, $file =~ s/tls_options/tls_options$tls/r, @needs ];
    };
    $visit->($visit, $_) for @imports;
    return (@options, (map { ('--dep', $_) } @imports), "-Mroot=$root", map { _module(@$_) } @order);
}

sub _module ($name, $file, @needs) {
    return ((map { ('--dep', $_) } @needs), "-M$name=$file");
}

sub _slurp ($path) {
    open my $in, '<', $path or die "$path: $!\n";
    local $/;
    return scalar <$in>;
}

1;
