# The results of script/conformance: a record for each outside judge and each specification's tests in
# docs/conformance, and the manual page that is made of the records, lib/PAGI/Server/Compliance.pod.
# script/conformance installs and runs the judges.
package Compliance;
use v5.36;
use JSON::PP   ();
use POSIX      ();
use Text::Wrap ();

our $FOLDER = 'docs/conformance';
our $PAGE   = 'lib/PAGI/Server/Compliance.pod';
our $README = 'README.md';

my $FIGURES        = qr/^(?:(?:crash|reloads|cost|sync|beside):|  \S.*| {10}\S.*|all met|\d+ missed)/;
my $AUTOBAHN_LINES = qr/^(?: *\d+\.\* .*|[\d.]+: .*|\d+ cases.*? against the rules)/;

# The judges in the order of the page. `what`: a description in POD; `lines`: the lines of the judge's output
# that are the result; `by`: a sub that returns the judge's name and version.
my @JUDGES = (
    pagi => {
        title => 'PAGI',
        what  => 'The rules of L<PAGI::Spec>, event by event, by our own tests: those of scopes, request'
            . ' bodies, responses, lifespan, WebSockets, event streams, TLS, and of'
            . ' L<PAGI::Server::Protocol> against the code. There is no suite by others.',
        lines => qr/^(?:All tests successful\.|Result: .*|Files=\d+, Tests=\d+|t\/\S+ +\(Wstat.*)/,
        by    => sub { 'tests in t/, Test::More' },
    },
    psgi => {
        title => 'PSGI',
        what  => "Plack's own suite for handlers, L<Plack::Test::Suite>, with the engine in the loop and on a"
            . ' thread, and as C<EVHTP>.',
        lines => qr/^(?:All tests successful\.|Result: .*|Files=\d+, Tests=\d+|t\/\S+ +\(Wstat.*)/,
        by    => sub { 'Plack::Test::Suite of Plack ' . _said(qw(perl -MPlack -e), 'print Plack->VERSION') },
    },
    http1 => {
        title => 'HTTP/1.1 (RFC 9110, RFC 9112)',
        what  =>
            'Messages as they may be and as they may not be, each whole and byte by byte, to a server with'
            . ' its defaults in each placement of the engine: which status comes, with which fields and'
            . ' content, and whether the connection goes on. The questions are ours.',
        lines => qr/^(?:[a-z][\w, ]*: \d+ of \d+|http1: \d+ wrong answers|WRONG .*)/,
        by    => sub { 'script/lib/http1.pl' },
    },
    smuggling => {
        title => 'Request smuggling',
        what  => 'Messages whose end two readers could see in two places, each with a request behind it that'
            . ' only one of them would see, whole and byte by byte, in each placement of the engine: the'
            . ' message is refused and its connection closed, or the request is content; nobody answers it.',
        lines => qr/^(?:[a-z][\w, ]*: \d+ of \d+|smuggling: \d+ wrong answers|WRONG .*)/,
        by    => sub { 'script/lib/http1.pl' },
    },
    websocket => {
        title => 'WebSockets (RFC 6455, RFC 7692)',
        what  => 'The fuzzing client of the Autobahn testsuite, all of its cases: framing, pings,'
            . ' fragmentation, UTF-8, closing, limits, compression. First per class of cases, then what is'
            . ' against the rules.',
        lines => $AUTOBAHN_LINES,
        by    => \&_autobahn,
    },
    'websocket-mojolicious' => {
        title => 'WebSockets of Mojolicious',
        what  => 'The same cases, against an echo of Mojolicious on L<Mojo::Server::Peregrine>.',
        lines => $AUTOBAHN_LINES,
        by    => \&_autobahn,
    },
    http2 => {
        title => 'HTTP/2 (RFC 9113, RFC 7541)',
        what  =>
            'h2spec, all of it and strict, over TLS and in the clear. There the same port speaks HTTP/1, which'
            . ' answers who does not begin with the preface of HTTP/2: one question that is not asked for HTTP/2.',
        lines => qr/^\d+ tests, .*/,
        by    => sub { 'h2spec ' . _first('script/conformance', qr/h2spec\@(v[0-9.]+)/) },
    },
    tls => {
        title => 'TLS',
        what  => 'testssl.sh against the defaults of C<ssl>, with an elliptic and with an RSA certificate:'
            . ' protocols, ciphers, forward secrecy, and the vulnerabilities that it knows. Findings that are not'
            . ' the server\'s (the authority of a certificate that was made for the test, fields that an'
            . ' application sends) do not count.',
        lines => qr/^(?:(?:ecdsa|rsa): .*|  [A-Z]+ \S+: .*)/,
        by    =>
            sub { 'testssl.sh ' . (_said(qw(testssl --version)) =~ /testssl(?:\.sh)?\s+(\d\S+)/ ? $1 : '') },
    },
    acme => {
        title => 'ACME (RFC 8555, RFC 8737, RFC 9773)',
        what  =>
            'Certificates that the server orders, from pebble: orders by HTTP and by TLS that are killed at'
            . ' each step, the clock, an authority that is away, refuses, or advises when to renew, a full disk,'
            . ' a port that is closed, and 200 renewals while clients come.',
        lines => qr/^(?:not )?ok \d+ - .*|^ +(?:not )?ok \d+ - .*(?:steps|killed at|renewals|handshake).*/,
        by    => sub {
            my ($version) = _said(qw(go version -m .peregrine/pebble/pebble)) =~ /\bmod\s+\S+\s+v(\S+)/;
            return 'pebble ' . ($version // '');
        },
    },
    channels => {
        title => 'Topics over several machines',
        what  => 'Servers behind HAProxy, Redis and its replica, each in a network namespace of its own, with'
            . ' a hundred thousand subscribers, slow ones among them, by event streams and WebSockets: Redis is'
            . ' killed, its answers are lost, a link is cut for ten seconds, a hub and servers are killed,'
            . ' others replaced by HUP and USR2 while subscribers come back, and a replica without the latest'
            . ' entries becomes the master. The log of each subscriber has each entry once and in order, or a'
            . ' reset.',
        lines => qr/^(?:(?:not )?ok \d+ - .*|# \w+: \d+ resets.*|# \d+ deliveries.*)/,
        by    => sub {
            my ($redis) = _said(qw(redis-server --version)) =~ /v=(\S+)/;
            my ($proxy) = _said(qw(haproxy -v))             =~ /version (\d[\d.]*)/;
            return join ', ', 'script/channels',
                map { $_->[1] ? "$_->[0] $_->[1]" : () } [ redis => $redis ], [ HAProxy => $proxy ];
        },
    },
    mounts => {
        title => 'Mounts with workers of their own',
        what  => 'Clients ask mounts for ten minutes while the workers of another mount end at each of its'
            . ' requests, and while C<peregrine reload> replaces the workers of one mount a hundred times. Each'
            . ' figure is followed by its goal.',
        lines => $FIGURES,
        by    => sub { 'script/bench-pool crash reloads' },
    },
    pool => {
        title => 'Blocking work beside asynchronous work',
        what  =>
            'What an empty call of a worker pool and a C<sync> hello cost, and how long echoes of a thousand'
            . ' WebSockets take while one request of five blocks for 50 ms in a pool. Each figure is followed by'
            . ' its goal.',
        lines => $FIGURES,
        by    => sub { 'script/bench-pool cost sync beside' },
    },
    slow => {
        title => 'Slow clients',
        what  => 'A thousand heads, bodies and readers of slowhttptest that never come to an end, and ranges'
            . ' without number: the bad clients are gone when their deadline is, and a good one beside them'
            . ' is answered all the time. Each figure is followed by its goal.',
        lines => qr/^(?:(?:slow-|range).*|  \S.*|all met|.*missed.*)/,
        by    => sub { 'slowhttptest ' . (_said(qw(dpkg-query -W -f ${Version} slowhttptest)) || 'unknown') },
    },
    fuzz => {
        title => 'Fuzzing',
        what  => 'Every input that ever reached a new place, and ten seconds of new ones for each parser of'
            . ' the engine, guided by coverage, with all checks: nothing may crash, hang, read beyond its'
            . ' input, or depend on where the input was cut.',
        lines => qr/^\w+: (?:no finding; .*|a finding.*|the fuzzer was killed.*)/,
        by    => sub {
            'libFuzzer of LLVM ' . (_said(qw(sh -c), 'ls -d /usr/lib/llvm-*') =~ /(\d+)\s*\z/ ? $1 : '');
        },
    },
    leaks => {
        title => 'Leaks',
        what  => 'A hundred thousand requests of every kind, WebSockets, streams of HTTP/2 and clients that'
            . ' vanish, in the loop and on a thread of its own: neither live values of Perl nor memory nor'
            . ' descriptors are more afterwards.',
        lines => qr/^(?:All tests successful\.|Result: .*|Files=\d+, Tests=\d+|t\/\S+ +\(Wstat.*)/,
        by    => sub { 'tests in t/, Test::More' },
    },
    metrics => {
        title => 'Metrics',
        what  => 'What C<--status> shows, checked by promtool of Prometheus.',
        lines => qr/^(?:not )?ok \d+ - promtool agrees.*/,
        by    => sub { 'promtool ' . (_said('promtool', '--version') =~ /version ([^\s(]+)/ ? $1 : '') },
    },
    'first-hello' => {
        title => 'The first hello',
        what  => 'The seconds from a clean Debian 13 to the first answer of hello, by the lines that'
            . ' F<README.md> says to type, downloads included, beside C<apt install starman> in the same'
            . ' run: from the package of F<script/deb>, from the tarball of F<script/dist>, and from a clone,'
            . ' which compiles the engine.',
        command => 'script/first-hello',
        lines   => qr/^(?:System: .*|\w+: [\d.]+ s.*)/,
        by      => sub { 'script/first-hello, in chroots of Debian 13' },
    },
);
my %JUDGES = @JUDGES;

# Rows of script/matrix: all of t/ in other systems and with other Perls, and the engine's tests for other
# targets.
my $PERL_TESTS = 'All Perl tests of the distribution, built and run in a system of its own. The files that'
    . ' failed there were run once more, by themselves.';
my $ENGINE_TESTS = "The engine's tests without TLS";
for (
    [ debian12   => 'Debian 12' ],
    [ debian13   => 'Debian 13' ],
    [ unstable   => 'Debian unstable' ],
    [ nothreads  => 'Perl 5.32 without threads' ],
    [ longdouble => 'Perl 5.40 with long doubles' ],
    [ musl => 'musl', "$ENGINE_TESTS, linked with musl in place of glibc; the package of Zig has no Perl." ],
    [
        aarch64 => 'aarch64',
        "$ENGINE_TESTS, and a part of the Perl tests in a Debian of that processor, with the library of the"
            . ' tarball. All of it is emulated by qemu-user, which has no io_uring.'
    ],
    )
{
    my ($row, $title, $what) = @$_;
    push @JUDGES, my ($judge, $about) = (
        "matrix-$row" => {
            title   => $title,
            what    => $what // $PERL_TESTS,
            command => "script/matrix $row",
            lines   =>
                qr/^(?:System: .*|Engine: .*|Run again, .*|All tests successful\.|Result: .*|Files=\d+, Tests=\d+|t\/\S+ +\(Wstat.*)/,
            by => sub {
                join ' and ', $what ? "the engine's tests, zig build" : (),
                    $row eq 'musl' ? () : 'tests in t/, Test::More, in a chroot';
            },
        },
    );
    $JUDGES{$judge} = $about;
}

# Parts of script/test-packages, which become judges of the page.
for (
    [
        cpan => 'The tarball',
        'The tarball of F<script/dist> in clean Debians 12 and 13 without Zig and without network: built and'
            . ' tested by an ordinary user, installed, and asked for pages.'
    ],
    [
        musl => 'The library for musl',
        'A C program with the library for musl that the tarball of F<script/dist> has, asked for a page.'
    ],
    [
        deb => 'The packages of Debian',
        'The packages of F<script/deb> in clean Debians 12 and 13, which take their folder as a repository:'
            . ' installed, asked for pages, and removed.'
    ],
    [
        arm64 => 'The packages of Debian for arm64',
        'The same in a Debian 13 for arm64, which is emulated by qemu-user.'
    ],
    [
        container => 'The container',
        'The image of F<examples/container>, built by buildah, and run with a system that cannot be written.'
    ],
    [ zig  => 'The package of Zig', 'The package, fetched from an archive, in a program of its own.' ],
    [ same => 'Equal bytes',        'The tarball, made in two folders with caches of their own.' ],
    )
{
    my ($part, $title, $what) = @$_;
    push @JUDGES,
        my ($judge, $about) = (
        "packages-$part" => {
            title   => $title,
            what    => $what,
            command => "script/test-packages $part",
            lines   => qr/^(?:ok - .*|   \d+ (?:s|MB))$/,
            by      => sub { 'script/test-packages' },
        },
        );
    $JUDGES{$judge} = $about;
}

# The short hash of this tree's commit, with a remark if files have changed since.
sub revision () {
    chomp(my $revision = qx(git rev-parse --short=10 HEAD));
    my $changed = qx(git status --porcelain --untracked-files=no -- . ':!docs' ':!$PAGE') ne '';
    return $revision . ($changed ? ', with changes' : '');
}

# Keeps a judge's results and exit status. `revision` is given for a long run: the tree at its beginning,
# because the tree may have changed since.
sub record ($judge, $status, $log, $revision = revision()) {
    my $about = $JUDGES{$judge} or die "there is no judge '$judge'\n";
    open my $in, '<', $log or die "$log: $!\n";
    my @lines;
    while (my $line = <$in>) {
        $line =~ s/\e\[[0-9;]*[A-Za-z]//g;
        push @lines, $& =~ s/\s+\z//r if $line =~ $about->{lines};
    }
    die "conformance: $judge has no result that could be recorded\n" if !@lines;
    my %record = (
        judge    => $judge,
        by       => scalar $about->{by}->() // 'unknown',
        passed   => $status == 0 ? JSON::PP::true : JSON::PP::false,
        result   => \@lines,
        date     => POSIX::strftime('%Y-%m-%d', gmtime),
        revision => $revision,
        system   => _system(),
    );
    mkdir $FOLDER;
    _spew("$FOLDER/$judge.json", JSON::PP->new->canonical->pretty->encode(\%record));
    return;
}

# The text of the manual page, made of the records.
sub page () {
    my $text = <<'POD';
=encoding UTF-8

=head1 NAME

PAGI::Server::Compliance - what was tested against which specification, how, and with which result

=head1 DESCRIPTION

Each part was written by the command that it names, in a clone, and tells what came of the last time that it
ran: C<script/conformance report> makes this page of the files in F<docs/conformance>, and
F<t/41-compliance.t> fails when they differ. So a figure here is of the revision beside it, and whoever doubts
it runs the command.

What no specification decides is in F<SECURITY.md>: limits, deadlines, what is refused of malformed requests.

POD
    for my $judge (grep { !ref } @JUDGES) {
        my $about  = $JUDGES{$judge};
        my $record = _recorded($judge);
        $text .=
              "=head1 $about->{title}\n\n"
            . _filled($about->{what}) . "    "
            . ($about->{command} // "script/conformance $judge") . "\n\n";
        if (!$record) {
            $text .= "It has not been run for this release.\n\n";
            next;
        }
        my $verdict = $record->{passed} ? 'passed' : 'B<did not pass>';
        $text .= _filled("It $verdict on $record->{date}, at revision $record->{revision}, judged by"
                . " $record->{by}, on $record->{system}:");
        $text .= join('', map { "    $_\n" } @{ $record->{result} }) . "\n";
    }
    return $text . <<'POD';
=head1 SEE ALSO

L<PAGI::Server>, L<PAGI::Server::Protocol>

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
POD
}

sub write_page () {
    _spew($PAGE,   page());
    _spew($README, readme());
    return;
}

# The text of README.md, with a new table of the systems that script/matrix has run in.
sub readme () {
    open my $in, '<', $README or die "$README: $!\n";
    local $/;
    my $text  = <$in>;
    my $head  = "| System | Tests | Last run | Result |\n|---|---|---|---|\n";
    my $table = join '', $head, map { _row($_) } grep { /\Amatrix-/ } grep { !ref } @JUDGES;
    $text =~ s/^\Q$head\E(?:\|.*\n)*/$table/m or die "$README has no table of systems\n";
    return $text;
}

# A line of README.md's table of systems; an empty list if this row of script/matrix was never run.
sub _row ($judge) {
    my $record   = _recorded($judge) // return;
    my @lines    = @{ $record->{result} };
    my ($system) = map { /^System: (.*Perl.*)/ ? $1 : () } @lines;
    my @runs     = map { /^Files=(\d+), Tests=(\d+)/ ? [ $1, $2 ] : () } @lines;
    my $engine   = grep { /^Engine:/ } @lines;
    my $tests = join ', and ', @runs ? "$runs[0][1] in $runs[0][0] files" : (), $engine ? "the engine's" : ();
    my $result = $record->{passed} ? 'passed' : 'did not pass';
    $result .=
        @runs > 1 ? "; $runs[1][0] file" . ($runs[1][0] == 1 ? '' : 's') . ' when run again alone' : '';
    return '| ' . join(' | ', $system // $JUDGES{$judge}{title}, $tests, $record->{date}, $result) . " |\n";
}

sub _recorded ($judge) {
    open my $in, '<', "$FOLDER/$judge.json" or return;
    local $/;
    return JSON::PP->new->decode(<$in>);
}

sub _system () {
    my $name = _first('/etc/os-release', qr/^PRETTY_NAME="(.*)"/);
    my ($kernel, $machine) = (POSIX::uname())[ 2, 4 ];
    return "$name, Linux $kernel, $machine";
}

sub _filled ($text) {
    local $Text::Wrap::columns  = 111;
    local $Text::Wrap::unexpand = 0;
    return Text::Wrap::wrap('', '', $text) . "\n\n";
}

sub _autobahn () {
    return _first('script/autobahn.requirements', qr/^(autobahntestsuite==\S+)/) =~ s/==/ /r;
}

sub _first ($file, $pattern) {
    open my $in, '<', $file or return 'unknown';
    while (<$in>) { return $1 if $_ =~ $pattern }
    return 'unknown';
}

sub _said (@command) {
    open my $out, '-|', 'sh', '-c', 'exec "$@" 2>&1 </dev/null', 'sh', @command or return '';
    local $/;
    return <$out> // '';
}

sub _spew ($file, $text) {
    open my $out, '>', $file or die "$file: $!\n";
    print {$out} $text;
    close $out or die "$file: $!\n";
    return;
}

1;
