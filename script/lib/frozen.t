# Programs go on working with newer libraries: engine/test/frozen/VERSION/ has the header of a version and a
# program for it. Each program is linked with the present library, and with a future one: the present source,
# with fields added to each struct that may grow, which script/test --all compiles.
use v5.36;
use File::Copy qw(copy);
use File::Path qw(make_path);
use File::Temp qw(tempdir);
use IO::Socket::SSL;
use Test::More;
use lib 't/lib';
use Certificates;
use OnlyInFull  qw(only_in_full);
use TestTools   qw(free_port);
use Time::HiRes qw(sleep time);

my $ZIG     = $ENV{PEREGRINE_ZIG} // '.peregrine/zig/zig';
my $SECONDS = 30;                                            # for steps that should take milliseconds
alarm 0;    # a compiler takes minutes; script/lib/Tap.pm ends a test that hangs
my $folder = tempdir('peregrine-frozen-XXXXXX', TMPDIR => 1, CLEANUP => 1);

my %libraries = (
    'the library of today' => '.peregrine/engine/lib/libperegrine.a',
    only_in_full(1) ? ('a grown library' => grown_library()) : ()
);
my $certificates = Certificates->new->authority('server');
for my $version (map { m{(\d+)/\z} } glob 'engine/test/frozen/*/') {
    for my $name (sort keys %libraries) {
        subtest "version $version with $name" => sub { try_program($version, $libraries{$name}) };
    }
}
done_testing;

# The library of the engine with 24 more bytes, all of them 0xee, at the end of each struct that C shares with
# it and that may grow.
sub grown_library () {
    for my $file (split /\0/, qx(git ls-files -z --cached --others --exclude-standard engine)) {
        next unless -e $file;
        my ($parent) = "$folder/$file" =~ m{(.*)/};
        make_path($parent);
        copy($file, "$folder/$file") or die "$file: $!";
    }
    my $types = slurp('engine/src/abi/types.zig');
    my $grown = $types =~ s/^(pub const (\w+) = extern struct \{\n.*?)^(?=\})/$1 . growth($2)/gmser;
    cmp_ok(() = $grown =~ /grown: /g, '>=', 9, 'structs have grown');
    open my $out, '>', "$folder/engine/src/abi/types.zig" or die $!;
    print {$out} $grown;
    close $out or die $!;
    # Optimisation would take a minute, and changes no struct's layout.
    is
        system(
        "cd $folder/engine && timeout 600 '$ZIG' build abi -Doptimize=debug -Dstrip --prefix $folder/out"), 0,
        'and make a library';
    return "$folder/out/lib/libperegrine.a";
}

# Arrays of texts belong to the caller, so a text cannot grow.
sub growth ($struct) {
    return $struct eq 'Text' ? '' : "    grown: [24]u8 = \@splat(0xee),\n";
}

sub try_program ($version, $library) {
    my $source  = "engine/test/frozen/$version";
    my $program = "$folder/program-$version";
    my @flags   = qw(-std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Werror -z noexecstack);
    is
        system('cc', @flags, '-o', $program, "-I$source", "$source/program.c", $library,
        qw(-lssl -lcrypto -lpthread -lm)),
        0, 'links'
        or return;
    my $port = free_port();
    my %pair = $certificates->pair('server');
    my $pid  = open(my $output, '-|', 'timeout', '-k', 5, 120, $program, $port, @pair{qw(cert_file key_file)})
        // die "fork: $!";
    my $peer = connect_to($port);
    ok $peer, 'listens' or return close $output;
    # All requests at once, so that the program steps from event to event.
    print {$peer} "GET /one HTTP/1.1\r\nHost: here\r\n\r\n"
        . "GET /two HTTP/1.1\r\nHost: here\r\nX-More: 1\r\n\r\n"
        . "POST /echo HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n"
        . "\r\n6\r\nabcdef\r\n0\r\nX-Trailer: 1\r\n\r\n";
    my $answers = read_all($peer);
    like $answers, qr{/one 1 0304 127\.0\.0\.1\n.*/two 2 0304 127\.0\.0\.1\n.*abcdef}s, 'answers in full';
    kill TERM => $pid;
    my $said = do { local $/; <$output> };
    close $output;
    is $?, 0, 'ends with status 0';
    is $said, "GET /one 200\nGET /two 200\nPOST /echo 200\nrequests 3, events in batches\n",
        'log lines and statistics';
}

sub connect_to ($port) {
    for (my $end = time + $SECONDS; time < $end; sleep 0.02) {
        my $peer = IO::Socket::SSL->new(
            PeerAddr        => "127.0.0.1:$port",
            SSL_verify_mode => 0,
            SSL_ca          => [],
            Timeout         => $SECONDS
        );
        return $peer if $peer;
    }
    return;
}

sub read_all ($peer) {
    local $SIG{ALRM} = sub { die "no answer in $SECONDS s\n" };
    alarm $SECONDS;
    my $all = '';
    eval { 1 while sysread $peer, $all, 4096, length $all };
    alarm 0;
    diag $@ if $@;
    return $all;
}

sub slurp ($file) {
    open my $in, '<', $file or die "$file: $!";
    local $/;
    return scalar <$in>;
}
