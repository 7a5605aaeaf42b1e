# HTTP/2 with real clients: curl, nghttp, h2load, a browser and grpcio; with HAProxy, nghttpx and nginx (by
# grpc_pass) in front; for PAGI and PSGI, with the engine in the loop, on a thread and in a process of its
# own. What is installed of them is tried; script/bootstrap installs all.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use OnlyInFull qw(only_in_full);
use PAGI::Server;
use POSIX ();
use Test::More;

use Certificates;
use TestBrowser;
use TestServer;
use TestTools   qw(content ended free_port patience wait_for);
use TestWorkers qw(directory write_file);

plan skip_all => 'built without TLS' if !PAGI::Server->has_tls;

my $files = Certificates->new;
$files->authority('ca');
$files->issue('localhost', extensions => ['subjectAltName=DNS:localhost,IP:127.0.0.1']);
my $ca = $files->path('ca.pem');

# /N answers with N bytes, to POST with the length of the body. /hints sends 103, /flushed a part of its
# response; both then wait until the file of their query exists.
my $pagi = write_file('app.pagi.pl', <<'APP');
use strict;
use warnings;
use Future::AsyncAwait;
sub is_seen {
    my $file = $_[0] || '.';
    -e $file or select undef, undef, undef, 0.02 for 1 .. 1000;
    die "nobody has seen it\n" if !-e $file;
}
async sub {
    my ($scope, $receive, $send) = @_;
    die "no $scope->{type}\n" if $scope->{type} ne 'http';
    my ($size) = $scope->{path} =~ m{\A/(\d+)\z};
    my ($unread) = $scope->{path} =~ m{\A/unread/(\d+)\z};
    my $body = $size ? 'x' x $size : "HTTP/$scope->{http_version} $scope->{scheme}\n";
    if ($scope->{method} eq 'POST' && !$unread) {
        my ($length, $more) = (0, 1);
        while ($more) {
            my $event = await $receive->();
            return if $event->{type} ne 'http.request';
            $length += length $event->{body};
            $more = $event->{more};
        }
        $body = "$length\n";
    }
    if ($scope->{path} eq '/hints') {
        my @hint = (status => 103, headers => [ [ link => '</a.css>; rel=preload; as=style' ] ]);
        await $send->({ type => 'http.response.informational', @hint });
        is_seen($scope->{query_string});
    }
    my @headers = ([ 'content-type', 'text/plain' ]);
    await $send->({ type => 'http.response.start', status => $unread || 200, headers => \@headers });
    if ($scope->{path} eq '/flushed') {
        await $send->({ type => 'http.response.body', body => 'a part and ', more => 1 });
        my $flushed = $send->({ type => 'http.fullflush' });
        is_seen($scope->{query_string});
        await $flushed;
    }
    await $send->({ type => 'http.response.body', body => $body });
};
APP
my $psgi = write_file('app.psgi', <<'APP');
sub {
    my ($env) = @_;
    my ($size) = $env->{PATH_INFO} =~ m{\A/(\d+)\z};
    my $body = $size ? 'x' x $size : "$env->{SERVER_PROTOCOL} $env->{'psgi.url_scheme'}\n";
    if ($env->{REQUEST_METHOD} eq 'POST') {
        local $/;
        $body = length(readline($env->{'psgi.input'}) // '') . "\n";
    }
    if ($env->{PATH_INFO} eq '/hints') {
        $env->{'psgix.informational'}->(103, [ Link => '</a.css>; rel=preload; as=style' ]);
        my $file = $env->{QUERY_STRING} || '.';
        -e $file or select undef, undef, undef, 0.02 for 1 .. 1000;
        die "nobody has seen it\n" if !-e $file;
    }
    return [ 200, [ 'Content-Type' => 'text/plain' ], [$body] ];
};
APP
my $upload = write_file('upload', 'y' x 3_000_000);
my $short  = write_file('short',  'y' x 200_000);

sub is_there {
    my ($program) = @_;
    return scalar grep { -x "$_/$program" } split /:/, $ENV{PATH};
}

# A program that runs: what it says, in a file, and its process.
sub running {
    my (@command) = @_;
    my $out       = File::Temp->new;
    my $pid       = fork // die "fork: $!";
    if (!$pid) {
        open STDOUT, '>&', $out or POSIX::_exit(126);
        open STDERR, '>&', $out or POSIX::_exit(126);
        alarm 0;
        exec @command or POSIX::_exit(127);
    }
    return ($out, $pid);
}

# The output of a program, which is killed after some seconds.
sub said {
    my ($out, $pid) = running(@_);
    ended($pid, patience(60));
    return content($out->filename);
}

my @CURL = (qw(curl -sS --max-time 50 --cacert), $ca);

sub curl {
    my (@arguments) = @_;
    return said(@CURL, @arguments);
}

# Whether a client has what the pattern says while its application waits for that; the rest follows.
sub comes_first {
    my ($pattern, $url, @arguments) = @_;
    my $seen = directory() . '/seen';
    unlink $seen;
    my ($out, $pid) = running(@CURL, qw(--no-buffer --dump-header -), @arguments, "$url?$seen");
    my $first = wait_for(sub { content($out->filename) =~ $pattern });
    write_file('seen', '');
    ended($pid, patience(60));
    like content($out->filename), qr{^HTTP/\S+ 200 .*HTTP/\S+ https$}ms, 'the response, whole';
    return $first;
}

# Ports of a server: in the clear, and over TLS.
sub serve {
    my ($command, @arguments) = @_;
    my @listen = (
        map({ "--ssl-$_->[0]=" . $files->path("localhost.$_->[1]") } [qw(cert pem)], [qw(key key)]),
        "--listen=127.0.0.1:0,plain", "--listen=127.0.0.1:0"
    );
    my $server = TestServer->spawn(
        $^X, (map { "-I$_" } @INC),
        $command, qw(--http2 --no-access-log),
        @listen,  @arguments
    );
    my @ports =
        map { $server->wait_for_log(qr{listening on $_://127\.0\.0\.1:(\d+)/}, patience(30)) } qw(http https);
    die $server->log if grep { !$_ } @ports;
    return ($server, @ports);
}

my @pagi    = ($pagi, qw(--extension informational --extension fullflush));
my @SERVERS = (
    [ 'PAGI, thread',  'bin/pagi-server', @pagi, qw(--engine thread) ],
    [ 'PSGI, process', 'bin/peregrine',   $psgi, qw(--engine process --workers 2) ],
    only_in_full(
        [ 'PAGI, inline',  'bin/pagi-server', @pagi ],
        [ 'PAGI, process', 'bin/pagi-server', @pagi, qw(--engine process --workers 2) ],
        [ 'PAGI, workers', 'bin/pagi-server', @pagi, qw(--workers 2) ],
        [ 'PSGI, inline',  'bin/peregrine',   $psgi ],
    ),
);
my $REQUESTS = only_in_full(2000) || 500;
for my $row (@SERVERS) {
    my ($name, $command, @arguments) = @$row;
    subtest $name => sub {
        my ($server, $plain, $secure) = serve($command, @arguments);
        my %says   = (http => 'HTTP/2 http',             https => 'HTTP/2 https');
        my %origin = (http => "http://127.0.0.1:$plain", https => "https://localhost:$secure");
        my %curl   = (http => '--http2-prior-knowledge', https => '--http2');
        for my $scheme (qw(http https)) {
            my $url = $origin{$scheme};
            is curl($curl{$scheme}, "$url/") =~ s/HTTP\/2\.0/HTTP\/2/r, "$says{$scheme}\n", "curl, $scheme";
            is curl($curl{$scheme}, '--data-binary', "\@$upload", "$url/"), "3000000\n",    '... an upload';
            is length curl($curl{$scheme}, "$url/2000000"),                 2_000_000,      '... a download';
        SKIP: {
                skip 'no h2load', 1 if !is_there('h2load');
                like said(qw(h2load -c 4 -m 32 -n), $REQUESTS, "$url/1000"),
                    qr/ $REQUESTS succeeded, 0 failed/, 'h2load';
            }
        SKIP: {
                skip 'no nghttp', 1 if !is_there('nghttp');
                my $log = said('nghttp', '-nv', "--data=$upload", "$url/");
                like $log, qr/:status: 200/, 'nghttp';
            }
        }
        for my $version (qw(1.1 2)) {
            like curl('-i', "--http$version", "https://localhost:$secure/hints"),
                qr{\AHTTP/$version 103 .*?\nlink: </a\.css>; rel=preload; as=style\r\n\r\nHTTP/$version 200 }is,
                "103 (Early Hints), HTTP/$version";
            ok comes_first(qr{^HTTP/\S+ 103 .*\n\r\n}s, "https://localhost:$secure/hints", "--http$version"),
                '... before the application goes on';
            ok comes_first(qr{\r\n\r\na part and }, "https://localhost:$secure/flushed", "--http$version"),
                "fullflush, HTTP/$version"
                if $name =~ /PAGI/;
        }
        # curl 7.88 takes no answer that comes with RST_STREAM, and does not notice that it has ended a stream
        # itself. 8.14 takes it and says that it could not send the rest.
        for my $status ($name =~ /PAGI, (?:inline|thread)/ ? (200, 404) : ()) {
            my @unread = ('--data-binary', "\@$short", '-w', '%{http_code}', "$origin{http}/unread/$status");
            like curl($curl{http}, @unread), qr/\A(?:curl: \(55\) .*\n)?HTTP\/2\S* http\n$status\z/,
                "$status to a body that was not read"
                for 1 .. 3;
        }
        is curl('--http1.1', "https://localhost:$secure/"), "HTTP/1.1 https\n", 'HTTP/1.1 at the same port';
        is $server->stop,                                   0,                  'the server ends well';
    };
}

subtest 'a browser' => sub {
    plan skip_all => 'needs chromium and chromedriver' if !TestBrowser->is_there;
    my ($server, undef, $secure) = serve('bin/pagi-server', $pagi);
    my $browser = TestBrowser->start(qw(--ignore-certificate-errors));
    $browser->go("https://localhost:$secure/");
    is $browser->script('return document.body.innerText.trim()'), 'HTTP/2 https', 'a page';
    is $browser->script('return performance.getEntriesByType("navigation")[0].nextHopProtocol'), 'h2',
        '... over HTTP/2';
    $browser->script('window.done = 0; for (let i = 1; i <= 50; i++)'
            . ' fetch("/" + 1000 * i).then(r => r.text()).then(t => { window.done += t.length })');
    ok $browser->wait_for('done === 1275000'), '50 requests at a time';
};

# ---- In front ---------------------------------------------------------------------------------------

# Runs a proxy until the end of the block that has its object.
sub proxy {
    my ($port, @command) = @_;
    my $proxy = TestServer->spawn(@command);
    wait_for(sub { IO::Socket::IP->new(PeerHost => '127.0.0.1', PeerPort => $port) }) or die $proxy->log;
    return $proxy;
}

my ($server, $plain) = serve('bin/pagi-server', $pagi);
my %PROXIES = (
    haproxy => sub {
        my ($port) = @_;
        return ('haproxy', '-db', '-f', write_file('haproxy.cfg', <<"CONFIG"));
defaults
    mode http
    timeout connect 10s
    timeout client 60s
    timeout server 60s
frontend in
    bind 127.0.0.1:$port proto h2
    default_backend out
backend out
    server one 127.0.0.1:$plain proto h2
CONFIG
    },
    nghttpx => sub {
        my ($port) = @_;
        return (
            'nghttpx',                           '--conf=/dev/null',
            "--frontend=127.0.0.1,$port;no-tls", "--backend=127.0.0.1,$plain;;proto=h2",
            qw(--workers=1)
        );
    },
);
for my $name (sort keys %PROXIES) {
    subtest "$name in front" => sub {
        plan skip_all => "$name is not installed" if !is_there($name);
        my $port  = free_port();
        my $proxy = proxy($port, $PROXIES{$name}->($port));
        my $url   = "http://127.0.0.1:$port";
        is curl('--http2-prior-knowledge', "$url/"), "HTTP/2 http\n",                           'a request';
        is curl('--http2-prior-knowledge', '--data-binary', "\@$upload", "$url/"), "3000000\n", 'an upload';
        is length curl('--http2-prior-knowledge', "$url/2000000"),                 2_000_000,   'a download';
        like said(qw(h2load -c 4 -m 32 -n), $REQUESTS, "$url/1000"), qr/ $REQUESTS succeeded, 0 failed/,
            'h2load'
            if is_there('h2load');
        $proxy->signal('TERM');
        $proxy->wait;
    };
}
is $server->stop, 0, 'the server behind them ends well';

# ---- gRPC -------------------------------------------------------------------------------------------

subtest 'gRPC' => sub {
    plan skip_all => 'needs grpcio for Python'
        if said(qw(/usr/bin/python3 -c), 'import grpc; print(42)') ne "42\n";
    my ($grpc, @ports) = serve('bin/pagi-server', 'examples/pagi/grpc/app.pl');
    my $expected = join '', map { "$_\n" } 'Hello, Perl!', 300_008, '5 4 3 2 1', 'one two three',
        'LOUD AND CLEAR',                            300,
        'INVALID_ARGUMENT not a small number: many', 'UNIMPLEMENTED no such method';
    my @client = qw(/usr/bin/python3 examples/pagi/grpc/client.py);
    is said(@client, "127.0.0.1:$ports[0]"), $expected, 'all ways to call, in the clear';
    is said(@client, "localhost:$ports[1]", $ca), $expected, '... over TLS';
SKIP: {
        skip 'no nginx', 1 if !is_there('nginx');
        my ($port, $dir) = (free_port(), directory());
        my $proxy = proxy(
            $port, 'nginx', '-p', "$dir", '-e', "$dir/nginx.log",
            '-c',
            write_file('nginx.conf', <<"CONFIG")
daemon off;
master_process off;
pid $dir/nginx.pid;
events {}
http {
    access_log off;
    client_body_temp_path $dir/a;
    proxy_temp_path $dir/b;
    fastcgi_temp_path $dir/c;
    uwsgi_temp_path $dir/d;
    scgi_temp_path $dir/e;
    server {
        listen 127.0.0.1:$port http2;
        location / { grpc_pass grpc://127.0.0.1:$ports[0]; }
    }
}
CONFIG
        );
        is said(@client, "127.0.0.1:$port"), $expected, '... through nginx';
        $proxy->signal('QUIT');
        $proxy->wait;
    }
    is $grpc->stop, 0, 'the server ends well';
};

done_testing;
