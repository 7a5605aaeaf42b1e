# Chooses the tests that a change can break, for script/test --changed. Changed are files that are new or
# differ from a commit. The tests nearest to a changed file come first, as many as end within the time.
package Changed;
use v5.36;
use File::Basename qw(basename);
use List::Util     qw(max);
use Tap;

my $SECONDS = 100;    # for the Perl tests together

# For each folder of sources, the beginnings of its tests' names.
my @AREAS = (
    [ qr{^xs/pagi/(?:sse|event_stream)},             '70 71 51 10 20 22 47' ],
    [ qr{^xs/pagi/websocket},                        '60 47 72 10' ],
    [ qr{^xs/pagi/},                                 '10 20 21 22 23 24 25 28 47 50-endings 72 74' ],
    [ qr{^xs/psgi/|^lib/Plack/},                     '85 86-plackup 87 88-mounts' ],
    [ qr{^xs/bridge/(?:alarm|own_signals|stops)},    '85-psgi-alarm 85-psgi-signals 39-signals 39-stuck' ],
    [ qr{^xs/bridge/(?:stuck|faults|busy)},          '39-stuck 85-psgi-clones' ],
    [ qr{^xs/bridge/(?:fork|children|descriptors)},  '37 39 43-process 85-psgi-in-a-clone' ],
    [ qr{^xs/bridge/(?:await|future|turn|call)},     '26 25-lasting 46-middleware 75-turns 87-psgi-slow' ],
    [ qr{^xs/bridge/tls|^lib/.*TLS|^engine/src/tls}, '80 81 82 32-access-log-tls' ],
    [ qr{^xs/},       '10 22 26 37 38 39-preload 50-endings 85-psgi.t 85-psgi-clones' ],
    [ qr{^lib/Mojo/}, '97' ],
    [ qr{^lib/IO/},   '27 87-psgi-event-loops' ],
    [ qr{^lib/PAGI/(?:Middleware|Server/(?:Error|Stack))},   '46' ],
    [ qr{^lib/PAGI/App/WrapPSGI},                            '89' ],
    [ qr{^lib/PAGI/App/|^lib/.*File|^engine/src/native/dir}, '92-static 93-file 96' ],
    [
        qr{^lib/PAGI/Server/(?:Options|CommandLine|ConfigFile|EnvFile|Check|Completion)},
        '40 41 42 43-every 44 86-plackup'
    ],
    [
        qr{^lib/PAGI/Server/(?:Prefork|Stop|Reports|EngineProcess|Clones|PidFile|Lifespan)|^lib/Peregrine/},
        '31 34-server 38-master 39 43-process 43-service'
    ],
    [ qr{^lib/PAGI/Server/(?:Status|Monitoring)},          '34-health 39-status 39-counters 91-status' ],
    [ qr{^lib/PAGI/Server/(?:.*Log|RequestName|Banner)},   '32 33' ],
    [ qr{^lib/PAGI/Server/(?:Mounts|App)},                 '88 45 46-modes' ],
    [ qr{^lib/PAGI/Server/(?:Compression)},                '94-compress 60-websocket-deflate' ],
    [ qr{^lib/.*\.pod$|^script/(?:manual|lib/Manual)},     '41 12 13 15 16 11' ],
    [ qr{^lib/},                                           '10 22 30 31-lifespan 39-workers 85-psgi.t' ],
    [ qr{^bin/},                                           '40 48-runner 86-plackup' ],
    [ qr{^engine/src/.*(?:http2|hpack|streams|multiplex)}, '92-http2 95 93-http2 10 22' ],
    [ qr{^engine/src/.*(?:websocket|deflate|inflat)},      '60' ],
    [ qr{^engine/src/(?:abi)},                      '10 22 36 37 38 39-workers 74 85-psgi.t 85-psgi-clones' ],
    [ qr{^engine/src/.*(?:memory|budget|blockage)}, '36-memory 51 74 77 95' ],
    [ qr{^engine/},                   '10 20 21 22 24 30 35 51 60-websocket-messages 70 77 92-http2.t' ],
    [ qr{^(?:examples?|docs)/|\.md$}, '11 12 14 15 16 41 76' ],
);

# Names of files that are new or differ from a commit.
sub files ($base) {
    my %seen;
    return grep { !$seen{$_}++ && -e } map { chomp; $_ } lines('git', 'diff', '--name-only', $base),
        lines('git', 'ls-files', '--others', '--exclude-standard');
}

# Returns two lists: the tests, the nearest first, that end within the time; and the other tests that a change
# can break.
sub tests (@changed) {
    my %near;
    for my $test (Tap::files('t', 'script/lib')) {
        my $score = max(0, map { nearness($test, $_) } @changed) or next;
        $near{$test} = $score;
    }
    my %seconds = Tap::recorded();
    my $left    = $SECONDS * Tap::at_once();
    my (@now, @later);
    for my $test (sort { $near{$b} <=> $near{$a} || $a cmp $b } keys %near) {
        # A test without a recorded time is taken to last 10 seconds, so that it can be chosen.
        $left -= $seconds{$test} // 10;
        push @{ $left >= 0 || !@now ? \@now : \@later }, $test;
    }
    return (\@now, \@later);
}

# Tests that run in full, not as in a run without --all: a test that has changed itself, and one that has
# nothing to do otherwise.
sub in_full ($changed, @tests) {
    my %changed = map { $_ => 1 } @$changed;
    return grep { $changed{$_} || text($_) =~ /^plan skip_all => 'left to script\/test --all'/m } @tests;
}

# All beginnings of test names in the table.
sub names () {
    return map { split ' ', $_->[1] } @AREAS;
}

# The nearness of a test to a file: 4 for the file itself, 3 for a test that names it, 2 for a test of its
# area, 0 for others.
sub nearness ($test, $file) {
    return 4 if $test eq $file;
    state %known;
    my $of = $known{$file} //= { hyphened => hyphened($file), area => [ area($file) ] };
    return 3 if mentions($test, $file) || index($test, $of->{hyphened}) > 0;
    return (grep { index($test, "t/$_") == 0 } @{ $of->{area} }) ? 2 : 0;
}

# The beginnings of the names of the tests for a file's folder.
sub area ($file) {
    for my $area (@AREAS) {
        my ($pattern, $names) = @$area;
        return split ' ', $names if $file =~ $pattern;
    }
    return;
}

# Tells whether a test names a module, an example or a document.
sub mentions ($test, $file) {
    my $name = $file =~ m{^(?:t/)?lib/(.+)\.pm\z} ? $1 =~ s{/}{::}gr : basename($file);
    return 0 if $name eq 'PAGI::Server' || length $name < 5;    # all tests name it
    return text($test) =~ /(?<![\w:])\Q$name\E(?![\w:])/;
}

# ErrorPage.pm and error_page.c give "error-page", as a test is named.
sub hyphened ($file) {
    my ($name) = basename($file) =~ /\A(\w+)/;
    return lc($name =~ s/(?<=[a-z])(?=[A-Z])|_/-/gr);
}

sub text ($test) {
    state %texts;
    return $texts{$test} //= do {
        open my $in, '<:raw', $test or die "$test: $!\n";
        local $/;
        <$in>;
    };
}

sub lines (@command) {
    open my $out, '-|', @command or die "$command[0]: $!\n";
    my @lines = <$out>;
    close $out or die "script/test: '@command' failed\n";
    return @lines;
}

1;
