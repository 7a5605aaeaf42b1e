# The rules for Zig: formatting, imports between layers (the arrows of ARCHITECTURE.md), words that a layer
# must not contain, functions of 80 lines at most. Lines after the first test are tests, for which only the
# rules of formatting, imports and functions hold.
package Lint::Zig;
use v5.36;
use File::Spec::Functions qw(canonpath);

my $FUNCTION_LINES_MAX = 80;    # the rule says "about 70"

# Modules that each layer may import by name, besides @EVERYBODY. A layer imports its own files by path.
my $SRC = 'engine/src';
my %MAY = (
    protocol => [],
    io       => [],
    tls      => [qw(openssl_c)],
    hub      => [qw(protocol)],
    server   => [qw(protocol io tls)],
    native   => [qw(protocol io tls server)],
    abi      => [qw(peregrine platform hub)],
    web      => [qw(peregrine)],
    ''       => [qw(server native protocol io tls)],    # the public face, $SRC/peregrine.zig
);
my @EVERYBODY = qw(std builtin);                        # and options of build.zig: NAME_options

# Words that the code of a layer must not contain; comments may.
my %MUST_NOT = (
    protocol => [
        qr/\bstd\.(?:os|posix|heap|log|Thread|fs|net|process|debug\.print|time(?!\.epoch)|Io(?!\.(?:Reader|Writer|net\.Ip[46]Address)))\b/,
        'allocators, clocks, descriptors, logs'
    ],
    hub => [
        qr/\bstd\.(?:os|posix|heap|log|Thread|fs|net|process|debug\.print|time|Io(?!\.(?:Reader|Writer)))\b/,
        'clocks, descriptors, logs; memory and randomness are given to it'
    ],
    io => [ qr/http/i, 'HTTP' ],
    # Names of options may contain the word.
    map {
        $_ => [
            qr/(?<!config\.)\bhttp[123]\b(?!: (?:bool|Multiplexing)\b| = Rule\b)/,
            'version of a protocol (protocol/session.zig)'
        ]
    } qw(server native abi),
);

# An exchange, and all files that answer exchanges, know its lane but no kind of session and no transport of
# many streams: they must not contain these words.
my $ABOVE_LANES = qr{\A\Q$SRC\E/(?:native|abi|web|server/(?:worker/)?(?:exchange|websocket)\.zig)\b};
my $BELOW_LANES = qr/\b(?:carrier|Multiplex(?:ed)?|isStream|session\.(?:single|stream)|lane\.transport)\b/;

# A layer whose structs carry state must have an assertion or a call of `invariants` for every fourth
# function. The layer as a whole counts, if all of its files are looked at; a single file may have fewer.
my $ASSERTIONS_PER_FUNCTION = 0.25;
my %ASSERTS                 = map { $_ => 1 } qw(server abi);

sub findings (@sources) {
    return () unless @sources;
    return (_format(@sources), _assertions(@sources),
        map { (_imports($_), _ignorance($_), _functions($_)) } @sources);
}

sub _assertions (@sources) {
    my (%functions, %assertions, %first);
    for my $source (grep { $ASSERTS{ _layer($_) // '' } } @sources) {
        my $layer = _layer($source);
        $first{$layer} //= $source;
        for my $line ($source->lines) {
            last if $line =~ /^test\b/;
            my $code = $line =~ s{//.*}{}r;
            $functions{$layer}++  while $code =~ /\bfn \w+\(/g;
            $assertions{$layer}++ while $code =~ /\bassert\(|\.invariants\(\)/g;
        }
    }
    my @findings;
    for my $layer (sort keys %first) {
        next if grep { !-f || !_is_among($_, @sources) } glob "$SRC/$layer/*.zig";
        my $share = ($assertions{$layer} // 0) / ($functions{$layer} || 1);
        push @findings,
            $first{$layer}->at(1, sprintf "%s has %.3f assertions for each function", $layer, $share)
            if $share < $ASSERTIONS_PER_FUNCTION;
    }
    return @findings;
}

sub _is_among ($path, @sources) {
    return scalar grep { $_->path eq $path } @sources;
}

# Runs zig fmt, which prints the names of files that it would change, and errors of files that it cannot
# parse.
sub _format (@sources) {
    my $zig     = $ENV{PEREGRINE_ZIG} // '.peregrine/zig/zig';
    my @command = ($zig, 'fmt', '--check', map { $_->path } @sources);
    open my $out, '-|', 'sh', '-c', 'exec "$@" 2>&1', 'sh', @command or die "sh: $!\n";
    chomp(my @lines = <$out>);
    return () if close $out;
    return map { -f $_ ? "$_:1: not formatted; run zig fmt" : _located($_) } @lines;
}

sub _located ($line) {
    return $line =~ /\A(\S+?):(\d+):(?:\d+:)? (.*)/ ? "$1:$2: zig fmt: $3" : ();
}

sub _layer ($source) { $source->path =~ m{\A\Q$SRC\E/(?:(\w+)/)?} ? $1 // '' : undef }

sub _imports ($source) {
    my $layer    = _layer($source);
    my %allowed  = map { $_ => 1 } @EVERYBODY, @{ $MAY{ $layer // '' } // [] };
    my ($folder) = $source->path =~ m{\A(.*/)};
    my $home     = defined $layer ? length $layer ? "$SRC/$layer/" : "$SRC/" : $folder;
    my @findings;
    push @findings, $source->at(1, "layer '$layer' is not in the table of layers")
        if defined $layer && !$MAY{$layer};
    $source->each_line(
        sub ($line, $number) {
            $line =~ s{^\s*//.*}{};
            for my $what ($line =~ /\@import\("([^"]+)"\)/g) {
                if ($what =~ /\.zig\z/) {
                    my $target = _resolve(($folder // '') . $what);
                    push @findings, $source->at($number, "import of $what leaves the layer")
                        unless !defined $home || index($target, $home) == 0;
                }
                elsif (defined $layer && !$allowed{$what} && $what !~ /_options\z/) {
                    push @findings, $source->at($number, "layer '$layer' may not import '$what'");
                }
            }
        }
    );
    return @findings;
}

sub _resolve ($path) {
    $path = canonpath($path);
    1 while $path =~ s{(?:^|/)(?!\.\./)[^/]+/\.\.(?=/)}{};
    return $path  =~ s{\A/}{}r;
}

sub _ignorance ($source) {
    my @rules;
    push @rules, $MUST_NOT{ _layer($source) // '' } // ();
    push @rules, [ $BELOW_LANES, 'transport, nor kind of session (server/lane.zig)' ]
        if $source->path =~ $ABOVE_LANES;
    return () unless @rules && $source->implementation_lines;
    my ($testing, @findings);
    $source->each_line(
        sub ($line, $number) {
            return if $testing ||= $line =~ /^test\b/;
            my $code = $line =~ s{//.*}{}r;
            push @findings, map { $source->at($number, "this layer knows no $_->[1]") }
                grep { $code =~ $_->[0] } @rules;
        }
    );
    return @findings;
}

# Measures functions. zig fmt has indented each closing brace as its function.
sub _functions ($source) {
    my ($name, $start, $indent, @findings);
    $source->each_line(
        sub ($line, $number) {
            if (defined $name && $line =~ /\A\Q$indent\E\}/) {
                my $length = $number - $start + 1;
                push @findings, $source->at($start, "fn $name has $length lines")
                    if $length > $FUNCTION_LINES_MAX;
                undef $name;
            }
            elsif (defined $name && $line =~ /\A\Q$indent\E\).*(?:;|\btype \{)\z/) {
                # the end of parameters on lines of their own, without a body, or of a container
                undef $name;
            }
            elsif (!defined $name && $line =~ /\A(\s*)(?:\w+ )*fn (\w+)\(/) {
                # A function that returns a type is a container; its functions are measured.
                return if $line =~ /\btype \{\z/ || $line =~ /[;}]\z/;
                ($indent, $name, $start) = ($1, $2, $number);
            }
        }
    );
    return @findings;
}

1;
