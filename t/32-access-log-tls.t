# The access log tells the version and cipher of a connection's TLS, and the client's certificate.
use strict;
use warnings;

use lib 't/lib';
use File::Temp ();
use Future::AsyncAwait;
use JSON::PP ();
use Test::More;

use Certificates;
use PAGI::Server;
use TestClient qw(get);
use TestServer;
use TestTools qw(content);

plan skip_all => 'built without TLS' if !PAGI::Server->has_tls;

my $directory = File::Temp->newdir;
my $files     = Certificates->new->authority('ca')->authority('other');
$files->issue('server', subject => '/CN=localhost', extensions => ['subjectAltName=DNS:localhost']);
$files->issue('client', subject => '/O=Falcon, "Inc."/CN=Zoe', extensions => ['extendedKeyUsage=clientAuth']);
$files->issue('stranger', by    => 'other',                    extensions => ['extendedKeyUsage=clientAuth']);

my $app = async sub {
    my ($scope, $receive, $send) = @_;
    die "unsupported\n" if $scope->{type} ne 'http';
    await $send->({ type => 'http.response.start', status => 204 });
    await $send->({ type => 'http.response.body' });
};

# The lines of a server that answered what the code asks of it.
sub lines_of {
    my ($format, $ssl, $ask, %options) = @_;
    my $path = "$directory/access.log";
    %options = (app => $app, access_log => $path, access_log_format => $format, %options);
    $options{ssl} = { $files->pair('server'), %$ssl } if $ssl;
    my $server = TestServer->start(%options);
    $ask->($server->port);
    is($server->stop, 0, 'the server ends well') or diag $server->log;
    my @lines = split /\n/, content($path);
    unlink $path or diag "$path: $!";
    return @lines;
}

sub ask {
    my ($port, %tls) = @_;
    my $client = TestClient->new($port, tls => \%tls);
    my $status = $client->send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")->response->{status};
    is($status, 204, 'answered');
    $client->rest;
    return;
}

subtest 'version, cipher, name, resumption' => sub {
    my @lines = lines_of(
        '%{SSL_PROTOCOL}x %{SSL_CIPHER}x %{SSL_TLS_SNI}x %{SSL_SESSION_RESUMED}x',
        {},
        sub {
            my ($port) = @_;
            ask($port, SSL_version => 'TLSv1_3', SSL_hostname => 'localhost');
            my @command =
                (qw(openssl s_client -tls1_2 -noservername -cipher ECDHE-ECDSA-AES256-GCM-SHA384 -ign_eof));
            my $kept = $files->path('session');
            for my $file ([ '-sess_out', $kept ], [ '-sess_in', $kept ]) {
                open my $request, '|-', "@command @$file -connect 127.0.0.1:$port >$directory/out 2>&1"
                    or die "openssl: $!";
                syswrite $request, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
                close $request or diag content("$directory/out");
            }
        }
    );
    like($lines[0], qr/\ATLSv1\.3 TLS_AES_\w+ localhost Initial\z/, 'TLS 1.3');
    is($lines[1], 'TLSv1.2 ECDHE-ECDSA-AES256-GCM-SHA384 - Initial', 'TLS 1.2, without a name');
    is($lines[2], 'TLSv1.2 ECDHE-ECDSA-AES256-GCM-SHA384 - Resumed', '... again, by a ticket');
};

subtest 'client certificates' => sub {
    my @lines = lines_of(
        '%{SSL_CLIENT_VERIFY}x "%{SSL_CLIENT_S_DN}x"',
        { ca_file => $files->path('ca.pem'), verify_client => 'request' },
        sub {
            my ($port) = @_;
            ask($port);
            ask($port,
                map { ("SSL_${_}_file" => $files->path('client.' . ($_ eq 'cert' ? 'pem' : 'key'))) }
                    qw(cert key));
            ask($port,
                map { ("SSL_${_}_file" => $files->path('stranger.' . ($_ eq 'cert' ? 'pem' : 'key'))) }
                    qw(cert key));
        }
    );
    is($lines[0], 'NONE "-"',                                             'none');
    is($lines[1], q{SUCCESS "CN=Zoe,O=Falcon\x5c, \x5c\x22Inc.\x5c\x22"}, 'one that verifies, harmless');
    like($lines[2], qr/\AFAILED:unable to \w[\w ]+ "-"\z/, 'the name in another one proves nothing');
};

subtest 'without TLS' => sub {
    my $atoms = join ' ',
        map { "%{SSL_$_}x" } qw(PROTOCOL CIPHER TLS_SNI SESSION_RESUMED CLIENT_VERIFY CLIENT_S_DN);
    my @lines = lines_of($atoms, undef, sub { get($_[0], '/') });
    is($lines[0], '- - - - - -', 'a plain connection');
    @lines = lines_of("$atoms %s", {}, sub { get($_[0], '/') });
    is($lines[0], '- - - - - - 400', 'a plain request at a TLS port');
};

subtest 'json' => sub {
    my ($line) = lines_of('json', {}, sub { ask($_[0], SSL_version => 'TLSv1_3') });
    my $object = JSON::PP::decode_json($line);
    is($object->{tls_protocol}, 'TLSv1.3', 'the version');
    like($object->{tls_cipher}, qr/\ATLS_/, '... the cipher');
    is($object->{tls_client}, '', '... no client certificate');
    cmp_ok($object->{ttfb_us}, '<=', $object->{duration_us}, '... and the answer began before it ended');
};

done_testing;
