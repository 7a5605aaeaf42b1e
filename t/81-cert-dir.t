# A directory of certificates: who gets which, and what comes, changes and goes while the server runs; OCSP
# responses beside certificates; certbot's deploy hook.
use strict;
use warnings;

use lib 't/lib';
use Test::More;
use Time::HiRes qw(sleep time);

use Certificates;
use PAGI::Server;
use TestClient;
use TestServer;
use TestSteps qw(answers made);
use TestTools qw(patience wait_for);

plan skip_all => 'built without TLS' if !PAGI::Server->has_tls;

my $files = Certificates->new->authority('ca');
my $dir   = $files->path('certs');
mkdir $dir or die "$dir: $!";
$files->issue($_, extensions => ["subjectAltName=DNS:$_,DNS:shared.example"])
    for qw(a.example c.example later.example renewed.example);
$files->issue('b.example', subject => '/CN=wild', extensions => ['subjectAltName=DNS:*.b.example']);
$files->issue('ours', subject => '/CN=ours');

# Puts a pair into the directory, each file in one step; the pair may be called otherwise there.
sub put {
    my ($name, $as) = @_;
    $files->replace('certs/' . ($as // $name) . ".$_", "$name.$_") for qw(key pem);
    return;
}

my $app = answers(made(sub { body => $_[0]{scheme} }));

sub start {
    my (%ssl) = @_;
    return TestServer->start(app => $app, quiet => 0, ssl => { cert_dir => $dir, %ssl });
}

# The common name that a client sees which asks for a host, or for none.
sub shown {
    my ($server, $host) = @_;
    my $tls = { defined $host ? (SSL_hostname => $host) : (SSL_hostname => '') };
    return TestClient->new($server->port, tls => $tls)->socket->peer_certificate('cn');
}

sub comes {
    my ($server, $host, $name) = @_;
    return wait_for(
        sub {
            shown($server, $host) eq $name || do { sleep 0.2; 0 }
        },
        20
    );
}

put($_) for qw(a.example c.example);
mkdir "$dir/B.Example" or die $!;
$files->replace('certs/B.Example/fullchain.pem', 'b.example.pem');
$files->replace('certs/B.Example/privkey.pem',   'b.example.key');
$files->write('certs/README', "nothing\n")->write('certs/.hidden.pem', "nothing\n");

subtest 'certificates by the name that a client asks for' => sub {
    my $server = start();
    is(shown($server, 'c.example'),         'c.example', 'a name of a certificate');
    is(shown($server, 'C.EXAMPLE'),         'c.example', '... in capitals');
    is(shown($server, 'x.b.example'),       'wild',      'a wildcard');
    is(shown($server, 'b.example'),         'wild',      'the name of the files alone');
    is(shown($server, 'shared.example'),    'a.example', 'the first one of two with the same name');
    is(shown($server, 'elsewhere.example'), 'a.example', 'nobody is called so: the first one');
    put('later.example', 'shared.example');
    ok(comes($server, 'shared.example', 'later.example'), 'the name of the files decides between them');
    ok($server->wait_for_log(qr/certificate files have changed and are loaded/), '... and the log tells');
    put('ours', 'default');
    $server->signal('HUP');
    ok(comes($server, undef, 'ours'), 'no name is asked for: default.pem');
    unlink "$dir/$_" or die "$_: $!" for qw(shared.example.pem shared.example.key default.pem default.key);
    $server->signal('HUP');
    ok(comes($server, 'shared.example', 'a.example'), 'a removed certificate is gone');
    is(shown($server, undef), 'a.example', '... all at once');
    is($server->stop,         0,           'stops');
    $server = start($files->pair('ours'));
    is(shown($server, undef),       'ours',      'with a certificate besides, that is the default');
    is(shown($server, 'c.example'), 'c.example', '... and the others are there');
};

subtest 'files that cannot be used' => sub {
    my $server = start();
    put('renewed.example', 'c.example');
    $files->write('certs/a.example.pem', substr $files->read('later.example.pem'), 0, 300);
    $files->replace('certs/odd.example.pem', 'ours.pem');
    ok(comes($server, 'c.example', 'renewed.example'), 'the others are taken');
    is(shown($server, 'a.example'), 'a.example', '... and of the damaged one the old one stays');
    my @said = (
        qr{damaged: \S+/certs/a\.example\.pem .*; the old one stays},
        qr{SSL key file holds no PEM private key: \S+/certs/odd\.example\.pem .*; it is left out},
    );
    ok($server->wait_for_log($_), "the log says: $_") for @said;
    $server->signal('HUP');
    ok($server->wait_for_log(qr/loaded again/), 'HUP');
    is(shown($server, 'a.example'), 'a.example', '... changes nothing of that');
    put('later.example', 'a.example');
    $server->signal('HUP');
    ok(comes($server, 'a.example', 'later.example'), 'a good one is taken again');
    is($server->stop, 0, 'stops');
    my ($status, undef, $error) =
        TestServer->finish_of('pagi-server', '--ssl-cert-dir', $dir, '-e', 'sub { die }');
    is($status, 2, 'at the start it is an error');
    like($error, qr{SSL key file holds no PEM private key: \S+/odd\.example\.pem}, '... that names the file');
    unlink "$dir/odd.example.pem" or die $!;
    ($status, undef, $error) =
        TestServer->finish_of('pagi-server', '--ssl-cert-dir', "$dir/none", '-e', 'sub { die }');
    like($error, qr{--ssl-cert-dir cannot be read: \S+/none \(NOENT\)},
        'so is a directory that is not there');
    mkdir "$dir/empty" or die $!;
    ($status, undef, $error) =
        TestServer->finish_of('pagi-server', '--ssl-cert-dir', "$dir/empty", '-e', 'sub { die }');
    like($error, qr{--ssl-cert-dir has no certificate that can be used: \S+/empty}, '... or has none');
    put($_) for qw(a.example c.example);
};

# A response of the authority about a certificate that it has issued: good (V) or revoked (R).
sub respond {
    my ($name, $as, $state) = @_;
    my ($serial) = `openssl x509 -noout -serial -in @{[ $files->path("$name.pem") ]}` =~ /=(\w+)/;
    $files->write(
        'index.txt',
        join("\t",
            $state,  '351231000000Z', $state eq 'R' ? '250101000000Z' : '',
            $serial, 'unknown',       "/CN=$name")
            . "\n"
    );
    my %file = map { $_ => $files->path($_) } qw(index.txt ca.pem ca.key new.ocsp);
    $files->_openssl(
        qw(ocsp -ndays 1 -index), $file{'index.txt'},
        '-CA',                    $file{'ca.pem'},
        '-rsigner',               $file{'ca.pem'},
        '-rkey',                  $file{'ca.key'},
        '-issuer',                $file{'ca.pem'},
        '-cert',                  $files->path("$name.pem"),
        '-respout',               $file{'new.ocsp'},
        '-noverify'
    );
    return $files->replace("certs/$as.ocsp", 'new.ocsp');
}

sub stapled {
    my ($server, $host) = @_;
    my $client = "openssl s_client -status -servername $host -connect 127.0.0.1:" . $server->port;
    my $said   = `timeout 30 $client </dev/null 2>&1`;
    return
          $said =~ /OCSP Response Status: successful.*Cert Status: (\w+)/s ? $1
        : $said =~ /OCSP responses?: no responses? sent/                   ? 'none'
        :                                                                    $said;
}

subtest 'OCSP' => sub {
    respond('a.example', 'a.example', 'V');
    my $server = start();
    is(stapled($server, 'a.example'),   'good', 'a response beside the certificate is shown');
    is(stapled($server, 'c.example'),   'none', '... and none where there is none');
    is(stapled($server, 'x.b.example'), 'none', '... in the other kind of place');
    respond('renewed.example', 'a.example', 'V');
    respond('c.example',       'c.example', 'V');
    ok(wait_for(sub { stapled($server, 'c.example') eq 'good' }, 20), 'one that comes later is shown, too');
    is(stapled($server, 'a.example'), 'none', 'one of another certificate is not');
    ok(
        $server->wait_for_log(
            qr{OCSP response is not shown: \S+/a\.example\.ocsp is about another certificate}),
        '... and the log says why'
    );
    respond('a.example', 'a.example', 'R');
    $server->signal('HUP');
    ok($server->wait_for_log(qr{a\.example\.ocsp does not say that the certificate is good}),
        'nor is one that has been revoked');
    $files->write('certs/a.example.ocsp', 'rubbish');
    $server->signal('HUP');
    ok($server->wait_for_log(qr{a\.example\.ocsp is no response in DER}), 'nor rubbish');
    is(stapled($server, 'a.example'), 'none', 'clients get none then');
    is($server->stop,                 0,      'stops');
    $server = start();
    ok($server->wait_for_log(qr{a\.example\.ocsp is no response in DER}), 'a start tells and goes on');
    unlink glob "$dir/*.ocsp";
};

subtest 'certbot' => sub {
    my $server = start();
    my $old    = TestClient->new($server->port, tls => { SSL_hostname => 'a.example' });
    my $live   = $files->path('live');
    mkdir $_ or die "$_: $!" for $live, "$live/a.example";
    $files->replace('live/a.example/fullchain.pem', 'renewed.example.pem');
    $files->replace('live/a.example/privkey.pem',   'renewed.example.key');
    local %ENV = (
        %ENV,
        RENEWED_LINEAGE => "$live/a.example",
        RENEWED_DOMAINS => 'a.example',
        CERT_DIR        => $dir,
        CERT_GROUP      => 0 + $(
    );
    is(system('examples/certbot/deploy-hook'),                  0,      'the deploy hook');
    is(sprintf('%04o', (stat "$dir/a.example.key")[2] & 07777), '0640', '... keeps the key from others');
    ok(
        comes($server, 'a.example', 'renewed.example'),
        'the renewed certificate is shown, nobody has been told'
    );
    my $answer = $old->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")->response;
    is($answer->{body},                      'https',     'connections that were open go on');
    is($old->socket->peer_certificate('cn'), 'a.example', '... with the certificate that they had');
};

done_testing;
