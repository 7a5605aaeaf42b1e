# Certificates that the server orders by itself (`acme`), from pebble: the first one, renewal while clients
# come, authorities that refuse or are away, several servers with one folder.
use strict;
use warnings;
use experimental 'signatures';

use lib 't/lib';
use File::Temp      ();
use IO::Socket::SSL ();
use OnlyInFull      qw(crossed only_in_full);
use PAGI::Server;
use Test::More;
use Time::HiRes qw(sleep time);

use TestClient;
use TestServer;
use TestTools qw(content free_port patience program_path wait_for);

plan skip_all => 'built without TLS'       if !PAGI::Server->has_tls;
plan skip_all => 'pebble is not installed' if !program_path('pebble');
plan skip_all => 'CryptX is not installed' if !eval { require CryptX; 1 };
require Pebble;

my $dir  = File::Temp->newdir;
my $pagi = write_file("$dir/app.pl", <<'PERL');
use strict;
use warnings;
use experimental 'signatures';
use Future::AsyncAwait;
async sub ($scope, $receive, $send) {
    die "unsupported\n" if $scope->{type} ne 'http';
    await $send->({ type => 'http.response.start', status => 200 });
    await $send->({ type => 'http.response.body', body => "app $scope->{scheme}" });
};
PERL
my $psgi = write_file("$dir/app.psgi", q{sub { [ 200, [], ["app $_[0]{'psgi.url_scheme'}"] ] }});

sub write_file ($path, $text) {
    open my $out, '>', $path or die "$path: $!";
    print {$out} $text;
    close $out or die "$path: $!";
    return $path;
}

my %place = map { $_ => free_port() } qw(plain tls);

# The options of a server with certificates of this authority.
sub options ($pebble, $folder, %ports) {
    %ports = (%place, %ports);
    return (
        '--listen', "127.0.0.1:$ports{plain},plain",
        '--listen', "127.0.0.1:$ports{tls}",
        '--acme-agree',
        '--acme-directory' => $pebble->directory,
        '--acme-ca'        => $pebble->roots,
        '--acme-folder'    => $folder,
    );
}

# The serial number of the certificate that a server shows for a name, and its answer; undef if the
# handshake fails.
sub asked ($pebble, $name = 'example.org', $port = $place{tls}) {
    my $socket = IO::Socket::SSL->new(
        PeerAddr            => '127.0.0.1',
        PeerPort            => $port,
        SSL_hostname        => $name,
        SSL_verifycn_name   => $name,
        SSL_verifycn_scheme => 'http',
        SSL_verify_mode     => IO::Socket::SSL::SSL_VERIFY_PEER(),
        SSL_ca_file         => $pebble->roots,
        Timeout             => 20,
    ) or return;
    print {$socket} "GET / HTTP/1.1\r\nHost: $name\r\nConnection: close\r\n\r\n";
    local $/ = undef;
    my ($body) = (<$socket> // '') =~ /\r\n\r\n(.*)\z/s;
    return (
        Net::SSLeay::P_ASN1_INTEGER_get_hex(Net::SSLeay::X509_get_serialNumber($socket->peer_certificate)),
        $body);
}

my $authority  = Pebble->new(http_port => $place{plain}, nonce_reject => 20);
my %PLACEMENTS = (
    'PAGI inline'    => [ 'pagi-server', $pagi ],
    'PAGI thread'    => [ 'pagi-server', '--engine',  'thread',  $pagi ],
    'PAGI prefork'   => [ 'pagi-server', '--workers', 2,         '--preload-app', $pagi ],
    'PAGI process'   => [ 'pagi-server', '--engine',  'process', '--workers',     2, $pagi ],
    'PSGI in clones' => [ 'peregrine',   '--engine',  'thread',  '--workers',     2, $psgi ],
    'mounts'         => [ 'peregrine',   '--mount',   "/=$psgi", '--mount',       "/api=$pagi" ],
);
for my $name ('PAGI process', 'PSGI in clones',
    'mounts', only_in_full('PAGI inline', 'PAGI thread', 'PAGI prefork'))
{
    subtest $name => sub {
        my ($program, @rest) = @{ $PLACEMENTS{$name} };
        my $folder = "$dir/" . $name =~ tr/ /-/r;
        my $server = TestServer->command_of($program, options($authority, $folder),
            '--acme', 'example.org,www.example.org', '--acme', 'example.com', '--redirect-http', @rest);
        ok $server->wait_for_log(qr/certificate for example\.org www\.example\.org has come/),
            'a certificate comes';
        ok $server->wait_for_log(qr/certificate for example\.com has come/), '... and the other one';
        my %body = map {
            my $host = $_;
            $host => (wait_for(sub { [ asked($authority, $host) ]->[1] }) // 'none')
        } qw(example.org www.example.org example.com);
        is_deeply \%body, { map { $_ => 'app https' } keys %body },
            'each name is served, and its certificate is right';
        is((stat "$folder/certificates/example.org.pem")[2] & 0777, 0600, 'the key is for the owner alone');
        is_deeply [ glob "$folder/challenges/*" ], [], 'no challenge is left behind';
        is $server->stop, 0, 'the server ends well';
        my $again = TestServer->command_of($program, options($authority, $folder),
            '--acme', 'example.org,www.example.org', '--acme', 'example.com', @rest);
        is [ asked($authority) ]->[1], 'app https', 'the next start has the certificate';
        is $again->stop,               0,           '... and ends well';
        unlike $again->log, qr/is ordered/, '... and orders none';
    };
}

subtest 'renewal' => sub {
    my $short  = Pebble->new(http_port => $place{plain}, validity => 15);
    my $server = TestServer->command(options($short, "$dir/renewal"),
        '--acme', 'example.org', '--workers', 2, '--engine', 'process', $pagi);
    ok $server->wait_for_log(qr/has come/), 'the first certificate';
    wait_for(sub { [ asked($short) ]->[1] });
    my (%serials, $failed, $asked);
    my $renewals = only_in_full(2) || 1;
    my $end      = time + patience(60);
    while (time < $end && keys %serials <= $renewals) {
        my ($serial, $body) = asked($short);
        $asked++;
        if (($body // '') eq 'app https') { $serials{$serial} = 1 }
        else                              { $failed++ }
        sleep 0.05;
    }
    is scalar(keys %serials), 1 + $renewals, 'renewals that are due';
    is $failed // 0,          0,             "... and no failed handshake among $asked";
    is $server->stop,         0,             'the server ends well';
};

subtest 'two servers with one folder' => sub {
    my $slow    = Pebble->new(http_port => $place{plain});
    my %other   = (plain => free_port(), tls => free_port());
    my @servers = (
        TestServer->command(options($slow, "$dir/shared"), '--acme', 'example.org', $pagi),
        TestServer->command(options($slow, "$dir/shared", %other), '--acme', 'example.org', $pagi),
    );
    for my $port ($place{tls}, $other{tls}) {
        is wait_for(sub { [ asked($slow, 'example.org', $port) ]->[1] }), 'app https', "port $port is served";
    }
    is scalar(grep { $_->log =~ /is ordered/ } @servers), 1, 'one of them has ordered';
    is $_->stop,                                          0, 'a server ends well' for @servers;
};

subtest 'no authority' => sub {
    my $folder  = "$dir/away";
    my @options = (
        options($authority, $folder),
        '--acme-directory', 'https://127.0.0.1:' . free_port() . '/dir',
        '--acme', 'example.org', $pagi
    );
    my $server = TestServer->command(@options);
    ok $server->wait_for_log(
        qr/no certificate for example\.org: 127\S+ cannot be asked: .*; the next attempt is in \d+ seconds/),
        'the log says what is wrong, and when it is tried again';
    my $client = TestClient->new($place{plain});
    $client->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    is $client->response->{body}, 'app http', 'HTTP is served meanwhile';
    my $state = '';
    my $is_counted =
        sub { $state = content("$folder/states/example.org.json"); return $state =~ /"failures":1/ };
    ok wait_for($is_counted), 'the failure is counted' or diag $state;
    is $server->stop, 0, 'the server ends well';
    $server = TestServer->command(@options);
    sleep 1;
    is content("$folder/states/example.org.json"), $state, 'a restart does not forget to wait';
    is $server->stop,                              0,      'the server ends well';
};

subtest 'an authority that refuses' => sub {
    my $server = TestServer->command(options($authority, "$dir/refused", plain => free_port()),
        '--acme', 'example.org', $pagi);
    ok $server->wait_for_log(
        qr/no certificate for example\.org: the authorization for example\.org is invalid: \S.*; the next/),
        'the authority\'s reason is told';
    is $server->stop, 0, 'the server ends well';
};

SKIP: {
    skip 'not root', 1 if $> != 0;
    subtest 'another user' => sub {
        chmod 0755, "$dir", $authority->roots =~ s{/[^/]+\z}{}r;
        my $server = TestServer->command(options($authority, "$dir/user"),
            '--acme', 'example.org', '--user', 'nobody', $pagi);
        is wait_for(sub { [ asked($authority) ]->[1] }), 'app https', 'gets certificates';
        is + (getpwuid +(stat "$dir/user/certificates/example.org.pem")[4])[0], 'root',
            '... which it cannot read';
        is $server->stop, 0, 'the server ends well';
    };
}

subtest 'mistakes' => sub {
    my @both = ('--listen', '127.0.0.1:0,plain', '--listen', '127.0.0.1:0', '--acme-folder', "$dir/mistakes");
    my %says = (
        'have to be agreed to'           => [ @both, '--acme',       'example.org' ],
        'wildcards need a challenge'     => [ @both, '--acme-agree', '--acme', '*.example.org' ],
        'must be names of hosts such as' => [ @both, '--acme-agree', '--acme', 'localhost' ],
        q{not 'example.org' twice}       => [ @both, '--acme-agree', '--acme', 'example.org,EXAMPLE.org' ],
        'must be a URL of https' => [ @both, '--acme', 'a.org', '--acme-directory', 'http://localhost/' ],
        'in its own folder, not in --ssl-cert-dir' =>
            [ @both, '--acme-agree', '--acme', 'example.org', '--ssl-cert-dir', "$dir" ],
        'must hold a key identifier' =>
            [ @both, '--acme-agree', '--acme', 'example.org', '--acme-eab', $pagi ],
    );
    for my $case (crossed([ sort keys %says ], [ [], ['--check'] ])) {
        my ($text, $check) = @$case;
        my ($status, undef, $error) =
            TestServer->finish_of('pagi-server', @$check, @{ $says{$text} }, $pagi);
        isnt $status, 0, "is refused: @$check $text";
        like $error, qr/\Q$text\E/, '... in words';
    }
    ok !-e "$dir/mistakes", 'nothing is made';
};

done_testing;
