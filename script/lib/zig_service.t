# examples/zig/notes, a service in Zig that uses the package as users do: it builds, its own tests pass, and
# curl tries its features: JSON, TLS with a redirect, an upload that goes to disk, an event stream that
# continues after the last event, a report from a thread, and an end that waits for requests in flight.
use v5.36;
use lib 't/lib';
use Certificates;
use File::Temp qw(tempdir);
use JSON::PP   qw(decode_json);
use OnlyInFull qw(only_in_full);
use Test::More;
use TestServer;
use TestTools qw(content free_port wait_for);

plan skip_all => 'left to script/test --all' if !only_in_full(1);

my $ZIG     = $ENV{PEREGRINE_ZIG} // "$ENV{PWD}/.peregrine/zig/zig";
my $SECONDS = 600;                # for the compiler; with an empty cache it takes minutes
my $UPLOAD  = 64 * 1024 * 1024;

alarm 0;                          # a compiler takes minutes; script/lib/Tap.pm ends a test that hangs
my $folder = tempdir('peregrine-notes-XXXXXX', TMPDIR => 1, CLEANUP => 1);
mkdir "$folder/files" or die "mkdir: $!";
my $build = "$ZIG build test install --prefix $folder";
my $built = qx(cd examples/zig/notes && timeout $SECONDS $build 2>&1);
is $?, 0, 'it builds, and its tests pass' or do { diag $built; done_testing; exit };

subtest 'what cannot be' => sub {
    my $start = sub (@arguments) { qx($folder/bin/notes @arguments 2>&1) };
    like $start->('--nonsense'), qr/\Aerror: usage: notes .*\n\z/, 'one line about the arguments';
    like $start->('--ip', 'nowhere'), qr/\Aerror\(peregrine\): ip: "nowhere" is no numeric .*\n\z/,
        'one line about the address';
    like $start->("--cert $folder/none.pem --key $folder/none.key"),
        qr/\Aerror\(peregrine\): .*none\.pem.*\n\z/, 'one line about the certificate';
    is $? >> 8, 1, 'status 1';
};

my $certificates = Certificates->new->authority('ca');
$certificates->issue('localhost', extensions => ['subjectAltName=DNS:localhost,IP:127.0.0.1']);
my $plain  = free_port();
my $port   = free_port();
my $server = TestServer->spawn(
    "$folder/bin/notes", '--folder',   "$folder/files", '--port',
    $plain,              '--tls-port', $port,           '--cert',
    $certificates->path('localhost.pem'), '--key', $certificates->path('localhost.key'),
);
ok $server->wait_for_log(qr{info: https://127\.0\.0\.1:$port/}, 60), 'it serves' or diag $server->log;
my $at = "https://localhost:$port";

subtest 'TLS, and the way there' => sub {
    like curl("$at/"), qr/<title>Notes/, 'the page';
    my $head = curl('-i', "http://localhost:$plain/notes?x=1");
    like $head, qr{\AHTTP/1\.1 308 },                                  'without TLS the client is sent away';
    like $head, qr{^Location: https://localhost:$port/notes\?x=1\r$}m, '... to the same place';
    is curl('-L', "http://localhost:$plain/notes"), '{"notes":[]}', '... and arrives there';
};

subtest 'JSON' => sub {
    my @post = ('-H', 'Content-Type: application/json', '-d');
    is_deeply decode_json(curl(@post, '{"text":"buy milk"}', "$at/notes")), { id => 1, text => 'buy milk' },
        'a note is made';
    is_deeply decode_json(curl("$at/notes/1")), { id => 1, text => 'buy milk' }, '... and read';
    is status(@post, '{"text":',   "$at/notes"), 400, 'no JSON';
    is status(@post, '{"txt":""}', "$at/notes"), 422, 'another JSON';
    is status('-d',  'text=x',     "$at/notes"), 415, 'something else';
    is status("$at/notes/2"), 404, 'no such note';
    my $refused = curl('-i', '-X', 'PUT', "$at/notes");
    like $refused, qr{\AHTTP/\S+ 405 },                       'no such method';
    like $refused, qr{^allow: OPTIONS, GET, HEAD, POST\r$}mi, '... and those that there are';
    is curl("$at/report"), '{"words":2}', 'a thread has counted';
};

subtest 'an upload that lies in no memory' => sub {
    open my $out, '>', "$folder/large" or die "large: $!";
    print {$out} chr(65 + $_ % 26) x 65_536 for 1 .. $UPLOAD / 65_536;
    close $out or die "large: $!";
    my $answer = decode_json(curl('-F', "file=\@$folder/large", "$at/files"));
    is_deeply $answer, { files => [ { name => '1.upload', bytes => $UPLOAD } ] }, 'it has arrived';
    is system('cmp', '-s', "$folder/large", "$folder/files/1.upload"), 0, 'every byte of it';
    my ($peak) = content("/proc/@{[$server->pid]}/status") =~ /^VmHWM:\s+(\d+) kB/m;
    cmp_ok $peak * 1024, '<', $UPLOAD, "the server took less memory than that ($peak KiB)";
    is curl('-r', '0-3', "$at/files/1.upload"), 'BBBB', 'and it is served';
    is status('-F', 'file=text', "$at/files"),  400,    'a form without a file is refused';
    is_deeply [ glob "$folder/files/*" ], ["$folder/files/1.upload"], '... and leaves nothing';
};

subtest 'news, statistics, and the end' => sub {
    my $news = "$folder/news";
    my $page = in_background("curl -sN --cacert @{[$certificates->path('ca.pem')]} $at/events >$news");
    ok wait_for(sub { -e $news && content($news) =~ /id: 1\nevent: note\ndata: buy milk\n\n/ }, 60),
        'a page gets what it has missed';
    curl('-H', 'Content-Type: application/json', '-d', '{"text":"two\nlines"}', "$at/notes");
    ok wait_for(sub { content($news) =~ /id: 2\nevent: note\ndata: two\ndata: lines\n\n/ }, 60),
        '... and what is new';
    my $later = curl('-N', '--max-time', 3, '-H', 'Last-Event-ID: 1', "$at/events");
    unlike $later, qr/milk/,     'one that comes back does not get what it has seen';
    like $later,   qr/^id: 2$/m, '... only what it has not';
    my $statistics = decode_json(curl("$at/statistics"));
    cmp_ok $statistics->{connections}, '>=', 2,  'the page and we';
    cmp_ok $statistics->{requests},    '>=', 10, 'all of our requests';

    my $slow = "$folder/slow";
    system("head -c 3000000 $folder/large >$folder/medium") == 0 or die "medium: $?";
    my $upload =
        in_background("curl -s --cacert @{[$certificates->path('ca.pem')]} --limit-rate 1M --http1.1"
            . " -F file=\@$folder/medium $at/files >$slow");
    ok wait_for(sub { -e "$folder/files/2.upload" }, 60), 'an upload is on its way';
    $server->signal('TERM');
    is ended_well($page), 0, 'the page is told to go';
    ok wait_for(sub { status("$at/notes") == 0 }, 60), 'nobody else is let in';
    is ended_well($upload), 0, 'the upload is waited for';
    is_deeply decode_json(content($slow)), { files => [ { name => '2.upload', bytes => 3_000_000 } ] },
        '... to its last byte';
    is $server->wait(60), 0, 'then the server ends, with status 0';
    unlike $server->log, qr/^error/m, 'without an error';
    diag $server->log if $server->{status};
};
done_testing;

sub curl (@arguments) {
    open my $out, '-|', 'curl', '-s', '--cacert', $certificates->path('ca.pem'), '--max-time', 120, @arguments
        or die "curl: $!";
    local $/;
    my $body = <$out> // '';
    close $out;
    return $body;
}

sub status (@arguments) { return 0 + curl('-o', '/dev/null', '-w', '%{http_code}', @arguments) }

sub in_background ($command) {
    defined(my $pid = fork) or die "fork: $!";
    exec 'sh', '-c', "exec $command" or die "sh: $!" if !$pid;
    return $pid;
}

# The status of the process; 'killed' if it did not end within 120 s.
sub ended_well ($pid) {
    my $status = TestTools::ended($pid, 120);
    return $status // 'killed';
}
