# Files that the engine answers with by itself (`static`), in every placement, before applications of PAGI
# and of PSGI.
use strict;
use warnings;

use lib 't/lib';
use File::Path qw(make_path);
use File::Temp ();
use IO::Socket::UNIX;
use OnlyInFull qw(only_in_full);
use PAGI::Server;
use POSIX qw(mkfifo);
use Test::More;
use TestClient qw(exchange get post);
use TestServer;
use TestTools qw(patience refused write_old_file);

my $dir  = File::Temp->newdir;
my $site = "$dir/site";
make_path("$site/sub", "$site/.git", "$site/.well-known", "$site/empty", "$site/a b");

sub spew {
    my ($name, $text) = @_;
    return write_old_file("$dir/$name", $text);
}

my $large = join '', map { pack 'N', $_ } 1 .. 50_000;
spew('site/index.html',         '<p>root');
spew('site/sub/index.html',     '<p>sub');
spew('site/a b/index.html',     '<p>spaced');
spew('site/style.css',          'p{}' x 100);
spew('site/style.css.gz',       'gzipped');
spew('site/style.css.br',       'brotli');
spew('site/old.js',             'new');
spew('site/old.js.gz',          'old');
spew('site/large.bin',          $large);
spew('site/digits',             '0123456789' x 1000);
spew('site/.git/config',        'secret');
spew('site/.well-known/answer', 'for all');
spew('secret',                  'secret');
utime 1000, 1000, "$site/old.js.gz";
symlink '../secret',  "$site/out"        or die $!;
symlink "$dir",       "$site/folder-out" or die $!;
symlink 'index.html', "$site/in"         or die $!;
mkfifo("$site/pipe", 0600)                                             or die $!;
my $unix = IO::Socket::UNIX->new(Local => "$site/socket", Listen => 1) or die $!;

sub pagi {
    my ($scope, $receive, $send) = @_;
    return Future->fail('no') if $scope->{type} ne 'http';
    my $text = "app $scope->{method} $scope->{path}";
    return $send->({ type => 'http.response.start', status => 200 })
        ->then(sub { $send->({ type => 'http.response.body', body => $text }) });
}

sub psgi {
    my ($env) = @_;
    return [ 200, [ 'Content-Type' => 'text/plain' ], ["app $env->{REQUEST_METHOD} $env->{PATH_INFO}"] ];
}

sub raw {
    my ($port, $method, $target, @lines) = @_;
    return exchange(
        $port,
        join("\r\n", "$method $target HTTP/1.1", 'Host: h', @lines, '', ''),
        head => $method eq 'HEAD'
    );
}

# Checks that each placement of the engine passes.
sub check_all {
    my ($port) = @_;
    my $got = get($port, '/s/digits');
    is $got->{status}, 200,                 'a file';
    is $got->{body},   '0123456789' x 1000, '... with its bytes';
    like $got->{header}{etag}, qr/\A"[0-9a-f-]+"\z/, '... a strong tag';
    my ($tag, $date) = @{ $got->{header} }{qw(etag last-modified)};
    is get($port, '/s/digits', "If-None-Match: $tag")->{status},      304, 'the same tag';
    is get($port, '/s/digits', "If-Modified-Since: $date")->{status}, 304, 'the same date';
    is get($port, '/s/digits', 'If-Match: "x"')->{status},            412, 'another tag';
    $got = get($port, '/s/digits', 'Range: bytes=5-9', "If-Range: $tag");
    is "$got->{status} $got->{body} $got->{header}{'content-range'}", '206 56789 bytes 5-9/10000', 'a range';
    is get($port, '/s/digits', 'Range: bytes=5-9', 'If-Range: "x"')->{status}, 200,    '... of another state';
    is get($port, '/s/digits', 'Range: bytes=10000-')->{status},               416,    '... beyond the end';
    is get($port, '/s/large.bin')->{body},                                     $large, 'a large file';

    for my $case ([ '/s/digits', '0123456789' x 1000 ], [ '/s/large.bin', $large ]) {
        my ($path, $content) = @$case;
        my $many = get($port, $path, 'Range: bytes=0-1, -3, 5000-5009');
        is $many->{status}, 206, "several ranges of $path";
        my ($boundary) =
            ($many->{header}{'content-type'} // '') =~ m{\Amultipart/byteranges; boundary=(\w+)\z};
        my $size  = length $content;
        my $parts = join '', map {
            my ($first, $last) = @$_;
            "\r\n--$boundary\r\nContent-Type: application/octet-stream\r\n"
                . "Content-Range: bytes $first-$last/$size\r\n\r\n"
                . substr $content, $first, $last - $first + 1;
        } [ 0, 1 ], [ $size - 3, $size - 1 ], [ 5000, 5009 ];
        is $many->{body}, substr("$parts\r\n--$boundary--\r\n", 2), '... as one body';
    }
    is raw($port, HEAD => '/s/large.bin')->{header}{'content-length'}, 200_000, 'HEAD';
    $got = get($port, '/s/style.css', 'Accept-Encoding: gzip, br;q=0.5');
    is "$got->{body} $got->{header}{'content-encoding'} $got->{header}{vary}", 'gzipped gzip Accept-Encoding',
        'the coding that the client likes best';
    is get($port, '/s/style.css', 'Accept-Encoding: *')->{body},        'brotli',    '... that we like best';
    is get($port, '/s/style.css', 'Accept-Encoding: gzip;q=0')->{body}, 'p{}' x 100, '... none';
    is get($port, '/s/old.js', 'Accept-Encoding: gzip')->{body},        'new',       '... not an older one';
    is get($port, '/s/style.css')->{header}{'content-type'}, 'text/css; charset=utf-8', 'types and charset';
    is get($port, '/s/')->{body},                            '<p>root',                 'index.html';
    $got = get($port, '/s/sub?x=1');
    is "$got->{status} $got->{header}{location}", '301 ./sub/?x=1', 'a folder without its slash';
    is get($port, '/s')->{header}{location},        './s/',      '... the root';
    is get($port, '/s/a%20b')->{header}{location},  './a%20b/',  '... stays encoded';
    is get($port, '/s/a%20b/')->{body},             '<p>spaced', '... and is there';
    is get($port, '/s/in')->{body},                 '<p>root',   'a link within';
    is get($port, '/s/.well-known/answer')->{body}, 'for all',   '.well-known';
    $got = post($port, '/s/digits', 'body');
    is "$got->{status} $got->{header}{allow}", '405 GET, HEAD',    'another method';
    is get($port, '/')->{body},                'app GET /',        'what is elsewhere is the application\'s';
    is get($port, '/st')->{body},              'app GET /st',      '... what only begins like it';
    is post($port, '/s/none', 'body')->{body}, 'app POST /s/none', '... and what is not there';
    my @nothing = (
        '/s/none',       '/s/empty/',            '/s/empty',               '/s/.git/config',
        '/s/out',        '/s/folder-out/secret', '/s/pipe',                '/s/socket',
        '/s/style.css/', '/s/..%2fsecret',       '/s/%2e%2e/secret',       '/s/sub/../../secret',
        '/s/a%00',       '/s/..%5csecret',       '/s/%c0%ae%c0%ae/secret', '/s//..//secret',
        '/s/' . 'x' x 3000,
    );
    is substr(get($port, $_)->{body} // '', 0, 8), 'app GET ', "nothing at " . substr $_, 0, 40 for @nothing;
    # Bodies of requests for static files do not become requests, and the connection goes on.
    my $client = TestClient->new($port);
    $client->send("GET /s/digits HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nabcde"
            . "GET /s/in HTTP/1.1\r\nHost: h\r\n\r\n");
    is $client->response->{status}, 200,       'a request with a body';
    is $client->response->{body},   '<p>root', '... and the next one on its connection';
    $client->send("GET /s/large.bin HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab");
    $client->send("cdeGET /app HTTP/1.1\r\nHost: h\r\n\r\n");
    is $client->response->{body}, $large,         'a large file with a body that comes slowly';
    is $client->response->{body}, 'app GET /app', '... and the application behind it';
    return;
}

my @static = ("/s=$site");
my %quiet  = (quiet => 1, access_log => undef);
subtest "$_" => sub {
    my $server = TestServer->start(%quiet, app => \&pagi, engine => $_, static => \@static);
    check_all($server->port);
    $server->stop;
    }
    for only_in_full('inline'), 'thread';

subtest 'psgi' => sub {
    my $server = TestServer->start(%quiet, app => \&psgi, psgi => 1, static => $static[0]);
    check_all($server->port);
    $server->stop;
};

spew(
    'app.psgi', "sub { my (\$env) = \@_;
    [ 200, [ 'Content-Type' => 'text/plain' ], [\"app \$env->{REQUEST_METHOD} \$env->{PATH_INFO}\"] ] };\n"
);
spew(
    'app.pl', "use Future::AsyncAwait; async sub { my (\$scope, \$receive, \$send) = \@_;
    die if \$scope->{type} ne 'http';
    await \$send->({ type => 'http.response.start', status => 200 });
    await \$send->({ type => 'http.response.body', body => \"app \$scope->{method} \$scope->{path}\" }) };\n"
);

subtest 'process' => sub {
    my $server = TestServer->command(qw(--engine process --workers 1 --no-access-log --chdir),
        $dir, '--static', '/s=site', 'app.pl');
    check_all($server->port);
    $server->stop;
};

subtest 'peregrine, with two folders and settings' => sub {
    make_path("$dir/other");
    spew('other/digits', 'other digits');
    spew('other/more',   'more');
    my $server = TestServer->spawn(
        $^X,
        (map { "-I$_" } @INC),
        qw(bin/peregrine --port 0 --no-access-log --workers 2),
        '--static', "/=$dir/other,max_age=60", '--static', "/=$site,host=example.org", "$dir/app.psgi"
    );
    my $port = $server->wait_for_log(qr{listening on http://127\.0\.0\.1:(\d+)/}) or die $server->log;
    my $got  = get($port, '/digits');
    is "$got->{body}, $got->{header}{'cache-control'}", 'other digits, public, max-age=60', 'max_age';
    my $there = exchange($port, "GET /digits HTTP/1.1\r\nHost: Example.org:80\r\n\r\n");
    is $there->{body},                    '0123456789' x 1000, 'host';
    is $there->{header}{'cache-control'}, undef,               '... without max_age';
    is exchange($port, "GET /more HTTP/1.1\r\nHost: example.org\r\n\r\n")->{body}, 'more', 'the next folder';
    is get($port, '/none')->{body}, 'app GET /none', 'the application at the same place';
    $server->stop;
};

subtest 'attacks' => sub {
    my $server = TestServer->start(%quiet, app => \&pagi, static => \@static, max_header_size => 200_000);
    my $port   = $server->port;
    my $tags   = join ', ', map { qq("$_") } 1 .. 10_000;
    is get($port, '/s/digits', "If-None-Match: $tags")->{status}, 200, '10,000 tags';
    my $ranges = join ',', map { "$_-" } 0 .. 1300;
    is get($port, '/s/digits', "Range: bytes=$ranges")->{status}, 200, 'ranges that overlap are the whole';
    $ranges = join ',', map { 2 * $_ . '-' . 2 * $_ } 0 .. 16;
    is get($port, '/s/digits', "Range: bytes=$ranges")->{status}, 200, 'more than 16 are the whole';
    $ranges = join ',', map { 2 * $_ . '-' . 2 * $_ } 0 .. 15;
    is get($port, '/s/digits', "Range: bytes=$ranges")->{status}, 206, '... 16 are not';
    # A file that shrinks while it is sent: the client can tell.
    spew('site/shrinks', 'x' x 20_000_000);
    my $client = TestClient->new($port, receive_buffer => 65_536);
    $client->send("GET /s/shrinks HTTP/1.1\r\nHost: h\r\n\r\n");
    ok length $client->some(patience(30)), 'a file is on its way';
    truncate "$site/shrinks", 10 or die $!;
    my $rest = $client->rest;
    ok length($rest // '') < 19_000_000, '... and cut when it shrinks';
    like $server->wait_for_log(qr/(ended before all of its bytes were sent)/), qr/ended/, '... with a line';
    is get($port, '/s/in')->{body}, '<p>root', '... and the server goes on';
    # Clients that go in the middle of several ranges keep no descriptor open.
    spew('site/wide', 'x' x 20_000_000);
    my $open = sub {
        scalar grep { (readlink($_) // '') =~ m{/wide\z} } glob "/proc/${\$server->pid}/fd/*";
    };
    for (1 .. 3) {
        my $gone = TestClient->new($port, receive_buffer => 4096);
        $gone->send("GET /s/wide HTTP/1.1\r\nHost: h\r\nRange: bytes=0-8000000,9000000-19999999\r\n\r\n");
        ok length $gone->some(patience(30)), 'several large ranges are on their way';
        is $open->(), 1, '... from one descriptor';
        $gone->reset;
        ok TestTools::wait_for(sub { $open->() == 0 }), '... which closes with the connection';
    }
    # The tag of a file that may change again within the same tick is a weak one.
    spew('site/fresh', 'fresh');
    utime undef, undef, "$site/fresh";
    my $tag = get($port, '/s/fresh')->{header}{etag};
    like $tag, qr{\AW/"}, 'a weak tag';
    is get($port, '/s/fresh', "If-None-Match: $tag")->{status}, 304, '... is good for that';
    is get($port, '/s/fresh', "If-Match: $tag")->{status},      412, '... not for this';
    is get($port, '/s/fresh', 'Range: bytes=0-1', "If-Range: $tag")->{status}, 200, '... nor for a range';
    $server->stop;
};

subtest 'folders that are refused' => sub {
    like refused(app => \&pagi, static => "/s=$dir/none"),
        qr/option 'static': there is no directory '.*none'/,
        'no directory';
    like refused(app => \&pagi, static => [ "/s=$dir", "/s/=$dir" ]), qr/option 'static' .*two for/, 'twice';
    like refused(app => \&pagi, static => "/s=$dir,color=red"), qr/option 'static' .*not 'color'/,
        'a setting';
    like refused(app => \&pagi, static => 'public'), qr/option 'static' must be PATH=FOLDER.* not 'public'/,
        'no path';
};

done_testing;
