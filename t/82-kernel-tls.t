# TLS whose records the kernel makes: whole files, slow readers, goodbyes, resumption, and what the kernel
# cannot do. Elsewhere: script/vm --modules
# tls,gcm,ctr,ghash_generic,chacha20poly1305,chacha_generic,poly1305_generic prove -b t/82-kernel-tls.t
use strict;
use warnings;

use lib 't/lib';
use Digest::SHA qw(sha256_hex);
use Future::AsyncAwait;
use File::Temp ();
use Test::More;

use Certificates;
use PAGI::Server;
use TestClient;
use TestServer;

plan skip_all => 'built without TLS'          if !PAGI::Server->has_tls;
plan skip_all => 'this kernel offers no kTLS' if !Peregrine::has_kernel_tls();

my $files = Certificates->new;
$files->authority('ca');
$files->issue(
    'localhost',
    subject    => '/CN=localhost',
    extensions => ['subjectAltName=DNS:localhost,IP:127.0.0.1']
);

my $large = File::Temp->new;
print {$large} pack 'N*', map { ($_ * 2_654_435_761) & 0xffff_ffff } 1 .. 1_000_000;
close $large or die "$!";
my $digest = Digest::SHA->new(256)->addfile("$large")->hexdigest;

# /file: four megabytes; /size/N: N bytes.
async sub app {
    my ($scope, $receive, $send) = @_;
    die "unsupported\n" if $scope->{type} ne 'http';
    await $receive->();
    my %body =
        $scope->{path} eq '/file' ? (file => "$large") : (body => 'x' x ($scope->{path} =~ /(\d+)/)[0]);
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body',  %body });
    return;
}

sub start { return TestServer->start(app => \&app, quiet => 0, ssl => { $files->pair('localhost') }, @_) }

# How many connections the kernel has sealed so far.
sub sealed {
    open my $in, '<', '/proc/net/tls_stat' or die "/proc/net/tls_stat: $!\n";
    my %count = map { split } <$in>;
    return $count{TlsTxSw};
}

sub client {
    my ($server, %tls) = @_;
    return TestClient->new($server->port, tls => \%tls);
}

sub ask {
    my ($client, $target, @lines) = @_;
    return $client->send(join "\r\n", "GET $target HTTP/1.1", 'Host: localhost', @lines, '', '')
        ->response->{body};
}

my $server = start();
ok($server->wait_for_log(qr{ktls: on}), 'the banner says so');

for my $version (qw(TLSv1_2 TLSv1_3)) {
    for my $cipher (qw(AES128-GCM-SHA256 AES256-GCM-SHA384 CHACHA20-POLY1305)) {
        my $suite = 'TLS_' . ($cipher =~ s/AES(\d)/AES_$1/r =~ tr/-/_/r);
        $suite .= '_SHA256' if $suite =~ /POLY/;
        my $before = sealed();
        my $client = client(
            $server,
            SSL_version => $version,
            $version eq 'TLSv1_2'
            ? (SSL_cipher_list => "ECDHE-RSA-$cipher:ECDHE-ECDSA-$cipher")
            : (SSL_ciphersuites => $suite),
        );
        is(length ask($client, '/size/5'),      5,           "$version $cipher: a small answer");
        is(sealed(),                            $before + 1, "$version $cipher: sealed by the kernel");
        is(sha256_hex(ask($client, '/file')),   $digest,     "$version $cipher: a large file");
        is(length ask($client, '/size/900000'), 900_000,     "$version $cipher: a large body");
        $client->send("GET /size/10 HTTP/1.1\r\nHost: h\r\n\r\n" x 20);
        is(scalar(grep { $client->response->{body} eq 'x' x 10 } 1 .. 20),
            20, "$version $cipher: pipelined requests");
        is(sha256_hex(ask($client, '/file', 'Connection: close')),
            $digest, "$version $cipher: a file before the end");
        is($client->rest, '', "$version $cipher: and a close_notify");
    }
}

subtest 'a slow reader gets everything' => sub {
    my $client = client($server);
    $client->send("GET /file HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    select undef, undef, undef, 1;
    is(sha256_hex($client->response->{body}), $digest, 'the file');
    is($client->rest,                         '',      'and a close_notify');
};

subtest 'openssl as the client' => sub {
    my $ticket = File::Temp->new;
    my $ca     = $files->path('ca.pem');
    my $talk   = sub {
        my ($input, @options) = @_;
        my $command = join ' ', 'timeout 20 openssl s_client -connect 127.0.0.1:' . $server->port,
            "-CAfile $ca -verify_return_error", @options;
        return scalar `printf '$input' | $command -ign_eof 2>&1`;
    };
    my $request = 'GET /size/7 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n';
    for my $version (qw(-tls1_2 -tls1_3)) {
        my $before = sealed();
        like($talk->($request, $version, "-sess_out $ticket"), qr/xxxxxxx/, "$version: an answer");
        my $again = $talk->($request, $version, "-sess_in $ticket");
        like($again, qr/^Reused, /m, "$version: resumed");
        like($again, qr/xxxxxxx/,    "$version: an answer again");
        is(sealed(), $before + 2, "$version: both sealed by the kernel");
    }
};

subtest 'clients that go, or break the rules' => sub {
    my $http2   = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" . pack 'Cn C2 N', 0, 0, 4, 0, 0;
    my @targets = qw(/size/5 /size/900000 /file);
    for my $version (qw(TLSv1_2 TLSv1_3)) {
        for my $target (@targets) {
            my $request = "GET $target HTTP/1.1\r\nHost: h\r\n\r\n";
            my $client  = client($server, SSL_version => $version);
            $client->send($request)->some(1);
            $client->reset;
            $client = client($server, SSL_version => $version);
            $client->send($request)->reset;
            $client = client($server, SSL_version => $version);
            $client->send_broken($request);
            ok(defined $client->rest, "$version: the connection ends behind $target and a broken record");
            $client = client($server, SSL_version => $version);
            $client->send($request)->half_close;
            like($client->rest, qr/\AHTTP\/1.1 200 /, "$version: $target is answered behind a close_notify");
        }
        my $idle = client($server, SSL_version => $version, SSL_alpn_protocols => ['h2']);
        $idle->send($http2)->some(1);
        $idle->reset;
    }
    is(length ask(client($server), '/size/5'), 5, 'the server goes on');
};

subtest 'clients that are gone at the end' => sub {
    my @clients = map { client($server, SSL_alpn_protocols => [$_]) } qw(h2 http/1.1 h2 http/1.1);
    $_->send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" . pack 'Cn C2 N', 0, 0, 4, 0, 0)->some(1)
        for @clients[ 0, 2 ];
    ask($clients[$_], '/size/5') for 1, 3;
    $server->signal('TERM');
    # GOAWAY and a PING, or a close_notify, are on their way.
    $_->some(1)                                            for @clients[ 0, 2 ];
    $_->send(pack 'Cn C2 N a8', 0, 8, 6, 1, 0, 'draining') for @clients[ 0, 2 ];
    $_->reset                                              for @clients;
    is($server->wait(30), 0, 'the server stops');
};

$server = start(ktls => 0);
ok($server->wait_for_log(qr{ktls: off}), 'not if it is not wanted');
my $before = sealed();
is(sha256_hex(ask(client($server), '/file')), $digest, 'a large file');
is(sealed(),                                  $before, 'not by the kernel');
is($server->stop,                             0,       'stops');

done_testing;
