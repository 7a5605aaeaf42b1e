# The listener on port 80 beside one with TLS: answers to challenges of ACME, and the way to https.
use strict;
use warnings;

use lib 't/lib';
use File::Path qw(make_path);
use File::Temp ();
use Test::More;

use Certificates;
use PAGI::Server;
use TestClient qw(exchange);
use TestHTTP2;
use TestServer;
use TestSteps qw(answers made);

plan skip_all => 'built without TLS' if !PAGI::Server->has_tls;

my $files = Certificates->new->authority('server');
my @tls   = (map { ("--ssl-$_->[0]" => $files->path("server.$_->[1]")) } [qw(cert pem)], [qw(key key)]);
my $dir   = File::Temp->newdir;
my ($challenges, $site) = ("$dir/challenges", "$dir/site");
make_path($challenges, $site, "$site/.well-known/acme-challenge");
write_file("$challenges/token_1-x",                    'token_1-x.thumbprint');
write_file("$site/index.html",                         'a page');
write_file("$site/.well-known/acme-challenge/of-site", 'of the site');
my $pagi = write_file("$dir/app.pl", <<'PERL');
use strict;
use warnings;
use experimental 'signatures';
use Future::AsyncAwait;
async sub ($scope, $receive, $send) {
    die "unsupported\n" if $scope->{type} !~ /\A(?:http|websocket)\z/;
    return await $send->({ type => 'websocket.accept' }) if $scope->{type} eq 'websocket';
    await $send->({ type => 'http.response.start', status => 200 });
    await $send->({ type => 'http.response.body', body => "app $scope->{scheme} $scope->{path}" });
};
PERL
my $psgi =
    write_file("$dir/app.psgi", q{sub { [ 200, [], ["app $_[0]{'psgi.url_scheme'} $_[0]{PATH_INFO}"] ] }});

sub write_file {
    my ($path, $text) = @_;
    open my $out, '>', $path or die "$path: $!";
    print {$out} $text;
    close $out or die "$path: $!";
    return $path;
}

sub ask {
    my ($port, $target, @lines) = @_;
    my ($method) = $target =~ s/\A([A-Z]+) // ? $1 : 'GET';
    my $hosts = grep { /\AHost:/i } @lines;
    return exchange(
        $port,
        join("\r\n", "$method $target HTTP/1.1", $hosts ? () : 'Host: example.org', @lines, '', ''),
        head => $method eq 'HEAD'
    );
}

sub location {
    return join ' ', map { $_ // 'none' } $_[0]{status}, $_[0]{header}{location};
}

# The ports of a command's listeners, without TLS and with it.
sub ports {
    my ($server) = @_;
    return map { $server->wait_for_log(qr{\b$_://\S+?:(\d+)}) } qw(http https);
}

my @COMMON = (
    '--listen' => '127.0.0.1:0,plain',
    '--listen' => '127.0.0.1:0',
    @tls,
    '--redirect-http',
    '--acme-challenges' => $challenges,
    '--static'          => "/=$site",
    '--health-path'     => '/health',
);
my %PLACEMENTS = (
    'PAGI inline'   => [ 'pagi-server', $pagi ],
    'PAGI prefork'  => [ 'pagi-server', '--workers', 2,         $pagi ],
    'PAGI thread'   => [ 'pagi-server', '--engine',  'thread',  $pagi ],
    'PAGI process'  => [ 'pagi-server', '--engine',  'process', '--workers', 2, $pagi ],
    'PSGI process'  => [ 'peregrine',   '--engine',  'process', '--workers', 2, $psgi ],
    'mounted files' => [ 'peregrine',   '--mount',   "/=$psgi", '--mount',   "/api=$pagi" ],
);

for my $name (sort keys %PLACEMENTS) {
    subtest $name => sub {
        my ($program, @rest) = @{ $PLACEMENTS{$name} };
        my $server = TestServer->command_of($program, @COMMON, @rest);
        my ($port, $https) = ports($server);
        is ask($port, '/.well-known/acme-challenge/token_1-x')->{body}, 'token_1-x.thumbprint', 'a challenge';
        is location(ask($port, '/.well-known/acme-challenge/of-site')),
            '308 https://example.org/.well-known/acme-challenge/of-site',
            '... that no client of ACME has written';
        write_file("$challenges/later", 'later.thumbprint');
        is ask($port, '/.well-known/acme-challenge/later')->{body}, 'later.thumbprint',
            '... and one that comes now';
        unlink "$challenges/later" or die $!;
        is location(ask($port, '/')), '308 https://example.org/', 'the way to https';
        is location(ask($port, '/a%20b?c=%2F')), '308 https://example.org/a%20b?c=%2F',
            '... as it was asked for';
        is location(ask($port, 'POST /form', 'Content-Length: 3', '', 'a=b')),
            '308 https://example.org/form', 'POST';
        is location(ask($port, 'HEAD /')), '308 https://example.org/', 'HEAD';
        is location(ask($port, '/', "Host: localhost:$port")), "308 https://localhost:$https/",
            'where the client names a port, the port of https is named';
        is location(ask($port, '/', 'Host: [::1]:8080')), "308 https://[::1]:$https/",
            '... behind an address, too';
        is location(ask($port, '/', 'Host: example.org:80')), '308 https://example.org/',
            'port 80 is no name';
        is ask($port, '/health')->{status}, 200, 'the health path';
        is ask($port, '/x', "X-Forwarded-Proto: $_")->{body}, 'app http /x', "no circle: $_"
            for 'https', 'http, https';
        is ask($port, '/x', 'Forwarded: for=1.2.3.4;proto=https')->{body}, 'app http /x',
            'no circle: Forwarded';
        is location(ask($port, '/x', 'X-Forwarded-Proto: http')), '308 https://example.org/x',
            'a word for http';
        is exchange($port, "GET /x HTTP/1.0\r\n\r\n")->{status}, 400, 'a request that names no host';
        my $secure = TestClient->new($https, tls => {});
        $secure->send("GET /x HTTP/1.1\r\nHost: example.org\r\n\r\n");
        is $secure->response->{body}, 'app https /x', 'https is served';
        $secure->send("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n");
        is $secure->response->{body}, 'a page', '... folders, too';
        is location(ask(
            $port, '/chat',
            'Upgrade: websocket',
            'Connection: Upgrade',
            'Sec-WebSocket-Version: 13',
            'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=='
            )),
            '308 https://example.org/chat', 'a WebSocket';
        is $server->stop, 0, 'the server ends well';
    };
}

subtest 'plackup with interpreters in threads' => sub {
    my $server = TestServer->spawn(
        $^X, (map { "-I$_" } @INC), '-S', 'plackup', '-s', 'EVHTP', '-E', 'production',
        '--listen'          => '127.0.0.1:0,plain',
        '--listen'          => '127.0.0.1:0',
        '--ssl-cert'        => $files->path('server.pem'),
        '--ssl-key'         => $files->path('server.key'),
        '--redirect-http'   => 1,
        '--acme-challenges' => $challenges,
        $psgi
    );
    $server->wait_for_log(qr/https:/);
    my ($port, $https) = ports($server);
    is location(ask($port, '/x')), '308 https://example.org/x', 'the way to https';
    is ask($port, '/.well-known/acme-challenge/token_1-x')->{body}, 'token_1-x.thumbprint', 'a challenge';
    is $server->stop,                                               0, 'the server ends well';
};

subtest 'HTTP/2 in the clear' => sub {
    my $server = TestServer->command(@COMMON, '--http2', $pagi);
    my ($port) = ports($server);
    my $client = TestHTTP2->new($port);
    my $got    = $client->get('/x?y');
    is $got->{status}, 308, 'the way to https';
    like $got->{header}{location}, qr{\Ahttps://[^/]+/x\?y\z}, '... with the target';
    is $server->stop, 0, 'the server ends well';
};

subtest 'a Unix socket is a proxy' => sub {
    my $socket = "$dir/socket";
    my $server = TestServer->command(@COMMON, '--listen' => "unix:$socket", $pagi);
    my $client = TestClient->new($socket);
    $client->send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
    is $client->response->{body}, 'app http /x', 'its requests are served';
    is $server->stop,             0,             'the server ends well';
};

subtest 'a proxy that is trusted' => sub {
    my $server = TestServer->command(@COMMON, '--trusted-proxies' => '127.0.0.1', $pagi);
    my ($port) = ports($server);
    is ask($port, '/x', 'X-Forwarded-Proto: https')->{body},  'app https /x',              'has https';
    is location(ask($port, '/x', 'X-Forwarded-Proto: http')), '308 https://example.org/x', 'has http';
    is $server->stop,                                         0, 'the server ends well';
};

subtest 'HUP and new tokens' => sub {
    my $server = TestServer->command(@COMMON, '--workers', 2, $pagi);
    my ($port) = ports($server);
    $server->signal('HUP');
    ok $server->wait_for_log(qr/certificate files are loaded again/), 'HUP';
    write_file("$challenges/after", 'after.thumbprint');
    is ask($port, '/.well-known/acme-challenge/after')->{body}, 'after.thumbprint', 'a challenge' for 1 .. 10;
    is $server->stop,                                           0,                  'the server ends well';
};

subtest 'mistakes' => sub {
    my @plain = ('--listen', '127.0.0.1:0,plain');
    my %says  = (
        'no listener has TLS; if a proxy in front ends TLS, the proxy has to redirect' =>
            [ '--redirect-http', '--port', 0 ],
        q{every listener has TLS: name one without, such as '0.0.0.0:80,plain'} =>
            [ '--redirect-http', '--port', 0, @tls ],
        q{there is no directory '/nonexistent'} => [ '--acme-challenges', '/nonexistent', '--port', 0 ],
    );
    for my $text (sort keys %says) {
        for my $way ([], ['--check']) {
            my ($status, undef, $error) =
                TestServer->finish_of('pagi-server', @$way, @{ $says{$text} }, $pagi);
            isnt $status, 0, 'is refused: ' . join ' ', @$way, @{ $says{$text} };
            like $error, qr/\Q$text\E/, '... in words';
        }
    }
};

done_testing;
