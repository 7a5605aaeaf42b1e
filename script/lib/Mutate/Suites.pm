# Which tests are nearest to a file of the engine, and how a test program is compiled: as engine/build.zig does, but without its overhead,
# each program alone and without optimisation. When the two differ, the run of the unchanged tree says so.
package Mutate::Suites;
use v5.36;

my $ENGINE = 'engine';

# The modules that each module imports, and where they lie.
my %MODULES = (
    protocol    => ['src/protocol/protocol.zig'],
    io          => ['src/io/io.zig'],
    tls_options => ['tls_options.zig'],
    tls         => [ 'src/tls/tls.zig',       qw(tls_options) ],
    server      => [ 'src/server/server.zig', qw(protocol io tls) ],
    static      => [ 'src/static/static.zig', qw(server protocol) ],
    peregrine   => [ 'src/peregrine.zig',     qw(server static protocol io tls) ],
);

# Test programs: root file and what it imports.
my @PROGRAMS =
    qw(native hooks static websocket websocket_sim compression defects acceptors access_log repeat backends listeners guards);
my %SUITES = (
    protocol         => $MODULES{protocol},
    server           => $MODULES{server},
    'wire-http1'     => [ 'test/wire/http1/http1_test.zig', qw(protocol) ],
    'wire-websocket' => [ 'test/wire/websocket/wire.zig',   qw(protocol) ],
    'wire-proxy'     => [ 'test/wire/proxy/proxy_test.zig', qw(protocol) ],
    'many-cases'     => [ 'test/many_cases.zig',            qw(protocol peregrine) ],
    'tls-server'     => [ 'test/tls/server_test.zig',       qw(peregrine tls) ],
    map { $_ => [ "test/${_}_test.zig", qw(protocol peregrine) ] } @PROGRAMS,
);

# By the path below engine/src, the first that matches. What is named first runs first.
my @NEAREST = (
    [ qr{\Aprotocol/http1/}                                      => qw(protocol wire-http1) ],
    [ qr{\Aprotocol/websocket/}                                  => qw(protocol wire-websocket) ],
    [ qr{\Aprotocol/proxy/}                                      => qw(protocol wire-proxy) ],
    [ qr{\Aprotocol/}                                            => qw(protocol wire-http1) ],
    [ qr{\Aserver/(?:admission|porter|(?:worker/)?health)\b}     => qw(server guards) ],
    [ qr{\Aserver/(?:worker/)?(?:access_log|access|repeat)\b}    => qw(server access_log repeat) ],
    [ qr{\Aserver/(?:worker/)?(?:websocket|native_ws|ws)\b}      => qw(server websocket websocket_sim) ],
    [ qr{\Aserver/compression\b}                                 => qw(server compression websocket_sim) ],
    [ qr{\Aserver/(?:worker/)?(?:secure|handshakes|tunnel)\b}    => qw(server tls-server) ],
    [ qr{\Aserver/(?:worker|connection|exchange|outbox|input)\b} => qw(server defects guards native many-cases) ],
    [ qr{\Aserver/}                                              => qw(server defects guards native) ],
);
my @SERVER = (@PROGRAMS, qw(many-cases tls-server));

# The suites for a file, nearest first: the tests that it holds itself, those of its module, and the programs that are about it. `thorough`:
# everything that runs the file.
sub nearest ($class, $path, $has_tests, $thorough = 0) {
    my ($below) = $path =~ m{\A$ENGINE/src/(.*)\.zig\z} or return;
    my ($row)   = grep { $below =~ $_->[0] } @NEAREST   or return;
    my (undef, @suites) = @$row;
    push @suites, 'many-cases' if $thorough;
    push @suites, @SERVER if $thorough && $below =~ m{\Aserver/};
    my $inside = $below =~ s{\A\w+/}{}r =~ s{/}{.}gr;
    unshift @suites, "$suites[0]:$inside.test." if $has_tests;
    my %seen;
    return grep { !$seen{$_}++ } @suites;
}

sub names ($class) { return sort keys %SUITES }

# Those that engine/build.zig lists by name.
sub programs ($class) { return @PROGRAMS }

# A bench needs a copy of these folders of the tree, and what `prepare` makes in it.
sub folders ($class) {
    return map { "$ENGINE/$_" } qw(src test);
}

sub prepare ($class, $folder) {
    for my $tls (0, 1) {
        open my $out, '>', "$folder/$ENGINE/tls_options$tls.zig" or die "$folder: $!\n";
        print {$out} 'pub const enabled: bool = ', $tls ? 'true' : 'false', ";\n";
        close $out or die "$folder: $!\n";
    }
    return;
}

# Where its commands run.
sub home ($class, $folder) { return "$folder/$ENGINE" }

# The arguments of the compiler that make a suite's program. "suite:filter" has only the tests whose names contain the filter.
sub arguments ($class, $name) {
    my ($suite, $filter) = split /:/, $name;
    my ($root, @imports) = @{ $SUITES{$suite} };
    my $tls     = $suite =~ /\Atls/ ? 1 : 0;
    my @options = ($tls ? qw(-lssl -lcrypto -lc) : (), $filter ? ('--test-filter', $filter) : ());
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

1;
