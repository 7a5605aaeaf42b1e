# TLS over real sockets: what a request and its scope look like, who gets in, and what is
# refused at the start.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use JSON::PP   ();
use OnlyInFull qw(only_in_full);
use Test::More;

use Certificates;
use PAGI::Server;
use TestClient;
use TestServer;
use TestTools qw(not_repeated patience wait_for);

plan skip_all => 'built without TLS' if !PAGI::Server->has_tls;

my $files = Certificates->new;
$files->authority('ca')->authority('other');
$files->issue(
    'localhost',
    subject    => '/CN=localhost',
    extensions => ['subjectAltName=DNS:localhost,IP:127.0.0.1']
);
$files->issue('alpha.example', extensions => ['subjectAltName=DNS:alpha.example,DNS:*.alpha.example']);
$files->issue('beta.example');
$files->issue(
    'client',
    subject    => '/C=DE/O=Falcon, Inc./CN=Zoë',
    extensions => ['extendedKeyUsage=clientAuth']
);
$files->issue('stranger', by => 'other', extensions => ['extendedKeyUsage=clientAuth']);
$files->encrypt('localhost', 'encrypted', 'secret');
my $ca = $files->path('ca.pem');

my $json = JSON::PP->new->canonical->latin1;

# /scope: the scope's values; /size/N: N bytes; /file: the test's own source; everything else: an echo.
async sub app {
    my ($scope, $receive, $send) = @_;
    die "unsupported\n" if $scope->{type} ne 'http';
    my %body = (body => '');
    while (1) {
        my $event = await $receive->();
        $body{body} .= $event->{body};
        last if !$event->{more};
    }
    if ($scope->{path} eq '/scope') {
        my %seen = (%{$scope}{qw(scheme http_version client)}, extensions => $scope->{extensions});
        %body = (body => $json->encode(\%seen));
        $scope->{extensions}{tls}{tls_version} = 'changed' if $scope->{extensions}{tls};
    }
    elsif ($scope->{path} =~ m{\A/size/(\d+)}) { %body = (body => 'x' x $1) }
    elsif ($scope->{path} eq '/file')          { %body = (file => $0) }
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body',  %body });
    return;
}

sub start {
    my ($ssl, %options) = @_;
    return TestServer->start(
        app   => \&app,
        quiet => 0,
        ssl   => { $files->pair('localhost'), %$ssl },
        %options
    );
}

sub client {
    my ($server, %tls) = @_;
    return TestClient->new($server->port, tls => \%tls);
}

sub ask {
    my ($client, $target, @lines) = @_;
    return $client->send(join "\r\n", "GET $target HTTP/1.1", 'Host: localhost', @lines, '', '')->response;
}

sub scope_of {
    my ($client) = @_;
    return $json->decode(ask($client, '/scope')->{body});
}

sub failure {
    my ($code) = @_;
    return eval { $code->(); 1 } ? '' : $@;
}

subtest 'a request over TLS' => sub {
    my $server = start({});
    ok($server->wait_for_log(qr{listening on https://127\.0\.0\.1:\d+/ .*http2: over TLS, tls: on}),
        'the banner');
    for my $version (qw(TLSv1_2 TLSv1_3)) {
        my $client = client(
            $server,
            SSL_version         => $version,
            SSL_verify_mode     => 1,
            SSL_ca_file         => $ca,
            SSL_hostname        => 'localhost',
            SSL_alpn_protocols  => ['http/1.1'],
            SSL_verifycn_name   => 'localhost',
            SSL_verifycn_scheme => 'http',
        );
        is($client->socket->alpn_selected, 'http/1.1', "$version: ALPN agrees on HTTP/1.1");
        my @fields = qw(
            cipher_suite client_cert_chain client_cert_error client_cert_name server_cert tls_version
        );
        for my $round (1, 2) {
            my $scope = scope_of($client);
            my $tls   = $scope->{extensions}{tls};
            is($scope->{scheme}, 'https', "$version: scheme");
            is(
                $tls->{tls_version},
                $version eq 'TLSv1_2' ? 0x0303 : 0x0304,
                "$version: tls_version, round $round"
            );
            is($tls->{server_cert}, $files->read('localhost.pem'), "$version: server_cert");
            like($tls->{cipher_suite}, qr/\A[1-9]\d*\z/, "$version: cipher_suite is a number");
            is_deeply($tls->{client_cert_chain}, [],       "$version: no client certificate");
            is_deeply([ sort keys %$tls ],       \@fields, "$version: every field is there");
            is($tls->{client_cert_name},  undef, "$version: no name");
            is($tls->{client_cert_error}, undef, "$version: no error");
        }
        is(length ask($client, '/size/1000000')->{body}, 1_000_000,          "$version: a large body");
        is(ask($client, '/file')->{body}, do { local (@ARGV, $/) = $0; <> }, "$version: a file");
    }
    is($server->stop, 0, 'stops');
};

subtest 'requests in both directions' => sub {
    my $server = start({});
    my $client = client($server);
    my $body   = substr join('', 'b' .. 'z', 'a') x 11_539, 0, 300_000;
    my $got    = $client->send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n$body")->response;
    ok($got->{body} eq $body, 'a large request body comes back');
    $client->send("GET /size/10 HTTP/1.1\r\nHost: h\r\n\r\n" x 20);
    is(scalar(grep { $client->response->{body} eq 'x' x 10 } 1 .. 20), 20, 'pipelined requests');
    is(length ask($client, '/size/20', 'Connection: close')->{body},   20, 'the last one');
    is($client->rest, '', 'and the connection ends with a close_notify');

    my $half = client($server);
    $half->send("GET /size/30 HTTP/1.1\r\nHost: h\r\n\r\n")->half_close;
    is(length $half->response->{body}, 30, 'a client that has said close_notify gets its answer');
    is($half->rest,                    '', '... and the end');
};

for my $engine (not_repeated(only_in_full('inline'), 'thread', 'process')) {
    subtest "a record that cannot be opened, behind a request: $engine" => sub {
        my $server = start({}, engine => $engine, $engine eq 'process' ? (workers => 1) : ());
        for my $version (qw(TLSv1_2 TLSv1_3)) {
            for my $target (qw(/scope /file)) {
                my $client = client($server, SSL_version => $version);
                $client->send_broken("GET $target HTTP/1.1\r\nHost: h\r\n\r\n");
                ok(defined $client->rest, "$version: the connection ends behind $target");
            }
        }
        is(ask(client($server), '/size/3')->{body}, 'xxx', 'the server goes on');
        is($server->stop,                           0,     '... and stops');
    };
}

subtest 'HTTP without TLS' => sub {
    my $server = start({}, tls_handshake_timeout => 0.5);
    my $got    = TestClient::get($server->port, '/');
    is($got->{status}, 400, 'HTTP without TLS is refused');
    like($got->{body}, qr/https/, '... in words');
    my $silent = TestClient->new($server->port);
    is($silent->rest, '', 'a client that says nothing is cut');
    # On a busy machine a handshake may take longer than these have.
    my $served = sub {
        (eval { ask(client($server), '/size/1') } || {})->{body};
    };
    ok(wait_for(sub { ($served->() // '') eq 'x' }), 'the others are served');
};

subtest 'several certificates' => sub {
    my $server = start({
        certificates => [ map { { $files->pair($_) } } qw(alpha.example beta.example) ]
    });
    my %expected = (
        'localhost'       => 'localhost',
        'alpha.example'   => 'alpha.example',
        'x.alpha.example' => 'alpha.example',
        'beta.example'    => 'beta.example',
        'BETA.example'    => 'beta.example',
        'unknown.example' => 'localhost',
    );
    for my $name (sort keys %expected) {
        my $client = client($server, SSL_hostname => $name);
        is(
            scope_of($client)->{extensions}{tls}{server_cert},
            $files->read("$expected{$name}.pem"),
            "$name gets the certificate of $expected{$name}"
        );
        is($client->socket->peer_certificate('cn'), $expected{$name}, '... and so says the scope');
    }
};

subtest 'client certificates that are required' => sub {
    my $server = start({ ca_file => $ca, verify_client => 1 });
    my %mine   = (SSL_cert_file => $files->path('client.pem'), SSL_key_file => $files->path('client.key'));
    for my $version (qw(TLSv1_2 TLSv1_3)) {
        my $tls = scope_of(client($server, SSL_version => $version, %mine))->{extensions}{tls};
        is_deeply($tls->{client_cert_chain}, [ $files->read('client.pem') ], "$version: the chain");
        is($tls->{client_cert_name},  'CN=Zo\C3\AB,O=Falcon\, Inc.,C=DE', "$version: the name by RFC 4514");
        is($tls->{client_cert_error}, undef,                              "$version: no error");
    }
    for my $name ('', 'stranger') {
        my %theirs =
            $name
            ? map { ("SSL_${_}_file" => $files->path("$name." . ($_ eq 'key' ? 'key' : 'pem'))) }
            qw(cert key)
            : ();
        # TLS 1.3 tells a client only after its handshake is done.
        my $answer = eval { ask(client($server, %theirs), '/') };
        is($answer, undef, $name ? 'a stranger is not let in' : 'nobody gets in without one');
    }
    ok($server->wait_for_log(qr/TLS handshake failed: .*certificate/), 'the log says why');
};

subtest 'client certificates that are asked for' => sub {
    my $server = start({ ca_file => $ca, verify_client => 'request' });
    my $none   = scope_of(client($server))->{extensions}{tls};
    is_deeply([ @{$none}{qw(client_cert_chain client_cert_name client_cert_error)} ],
        [ [], undef, undef ], 'none');
    my $stranger =
        client($server, map { ("SSL_$_->[0]_file" => $files->path("stranger.$_->[1]")) } [qw(cert pem)],
        [qw(key key)]);
    my $tls = scope_of($stranger)->{extensions}{tls};
    is($tls->{client_cert_name}, 'CN=stranger', 'a stranger is let in');
    like($tls->{client_cert_error}, qr/unable to/, '... with the error told');
};

subtest 'policy' => sub {
    my $server = start({ min_version => 'TLSv1_3' });
    like(
        failure(sub { client($server, SSL_version => 'TLSv1_2') }),
        qr/protocol version/,
        'TLS 1.2 is refused if so configured'
    );
    ok(client($server, SSL_version => 'TLSv1_3'), '... TLS 1.3 is not');
    my $other = start({
        cipher_list  => 'ECDHE-ECDSA-AES256-GCM-SHA384',
        key_file     => $files->path('encrypted.key'),
        key_password => 'secret'
    });
    my $tls = scope_of(client($other, SSL_version => 'TLSv1_2'))->{extensions}{tls};
    is($tls->{cipher_suite}, 0xc02c, 'the cipher list counts, and an encrypted key is opened');
};

# The output of openssl's client for a connection with one request.
sub s_client {
    my ($server, @arguments) = @_;
    my $output = $files->path('s_client.out');
    pipe my $input, my $request or die "pipe: $!";
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        alarm patience(60);
        close $request;
        open STDIN,  '<&', $input   or die "stdin: $!";
        open STDOUT, '>',  $output  or die "$output: $!";
        open STDERR, '>&', \*STDOUT or die "stderr: $!";
        exec qw(openssl s_client -ign_eof -connect), '127.0.0.1:' . $server->port, @arguments;
        die "openssl: $!";
    }
    close $input;
    syswrite $request, "GET /size/1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    waitpid $pid, 0;
    return $files->read('s_client.out');
}

subtest 'sessions are resumed' => sub {
    my $keys   = join '', map { chr } 1 .. 80;
    my $server = start({ ticket_keys      => $keys });
    my $other  = start({ ticket_keys_file => $files->write('tickets', $keys)->path('tickets') });
    my $lonely = start({});
    my $kept   = $files->path('session');
    for my $version (qw(-tls1_2 -tls1_3)) {
        like(
            s_client($server, $version, '-sess_out', $kept),
            qr/^New, TLSv1/m,
            "$version: the first handshake is whole"
        );
        like(
            s_client($server, $version, '-sess_in', $kept),
            qr/^Reused, TLSv1/m,
            '... the second is shortened by a ticket'
        );
        like(
            s_client($other, $version, '-sess_in', $kept),
            qr/^Reused, TLSv1/m,
            '... in a process that shares the keys, too'
        );
        like(s_client($lonely, $version, '-sess_in', $kept), qr/^New, TLSv1/m, '... in another it is not');
    }
    $files->replace('localhost.pem', 'localhost.pem');
    $server->signal('HUP');
    ok($server->wait_for_log(qr/certificate files are loaded again/), 'the certificates are loaded again');
    like(s_client($server, '-tls1_3', '-sess_in', $kept), qr/^Reused, TLSv1/m,
        '... and tickets outlive that');
};

subtest 'without TLS' => sub {
    my $server = TestServer->start(
        app         => \&app,
        quiet       => 0,
        disable_tls => 1,
        ssl         => { cert_file => '/nowhere', key_file => '/nowhere' }
    );
    ok($server->wait_for_log(qr/TLS is disabled/), 'disable_tls warns');
    my $scope = $json->decode(TestClient::get($server->port, '/scope')->{body});
    is($scope->{scheme}, 'http', '... and serves plain HTTP');
    my $place = TestServer->start(
        app         => \&app,
        quiet       => 0,
        disable_tls => 1,
        listen      => '127.0.0.1:0,cert=/nowhere,key=/nowhere'
    );
    ok($place->wait_for_log(qr/TLS is disabled/), '... also of one place with certificates of its own');
    ok(!exists $scope->{extensions}{tls},         '... without the tls extension');
    my $liar = TestServer->start(app => \&app, quiet => 1, extensions => { tls => {}, fullflush => {} });
    is_deeply(
        $json->decode(TestClient::get($liar->port, '/scope')->{body})->{extensions},
        { fullflush => {} },
        'nor can it be advertised'
    );
};

subtest 'files that cannot be used are errors of the constructor' => sub {
    $files->write('text.pem',   "no certificate\n");
    $files->write('locked.pem', $files->read('localhost.pem'));
    my $missing = $files->path('missing.pem');
    my @cases   = (
        [ { cert_file  => $missing },                 qr/SSL certificate file not found: \Q$missing\E/ ],
        [ { key_file   => $missing },                 qr/SSL key file not found: \Q$missing\E/ ],
        [ { ca_file    => $missing },                 qr/SSL CA file not found: \Q$missing\E/ ],
        [ { chain_file => $missing },                 qr/SSL chain file not found: \Q$missing\E/ ],
        [ { cert_file  => 'missing.pem' },            qr/SSL certificate file not found: missing\.pem/ ],
        [ { cert_file  => $files->path('') },         qr{SSL certificate file is a directory: /} ],
        [ { key_file   => $files->path('') },         qr{SSL key file is a directory: /} ],
        [ { cert_file  => $files->path('text.pem') }, qr/holds no PEM certificate: \S+text\.pem/ ],
        [ { key_file   => $files->path('text.pem') }, qr/holds no PEM private key: \S+text\.pem/ ],
        [
            { key_file => $files->path('client.key') },
            qr/does not match the certificate: key \S+client\.key/
        ],
        [ { key_file => $files->path('encrypted.key') }, qr/encrypted and no key_password/ ],
        [
            { key_file => $files->path('encrypted.key'), key_password => sub { die "vault\n" } },
            qr/option 'ssl': key_password died: vault/
        ],
        [
            { key_file => $files->path('encrypted.key'), key_password => 'wrong' },
            qr/key_password does not open/
        ],
        [ { min_version   => 'SSLv3' }, qr/min_version must be one of TLSv1_2 TLSv1_3, not 'SSLv3'/ ],
        [ { verify_client => 'maybe' }, qr/verify_client must be one of .*, not 'maybe'/ ],
        [ { verify_client => 1 },       qr/verify_client needs ca_file/ ],
        [ { cipher_list   => 'NO-SUCH-CIPHER' }, qr/cipher_list: unknown cipher NO-SUCH-CIPHER/ ],
        [ { cipher_suites => 'TLS_NONE' },       qr/cipher_suites: unknown cipher TLS_NONE/ ],
        [ { groups => 'X25519:P-257' }, qr/groups 'X25519:P-257' has a group that this OpenSSL does not/ ],
        [
            { cert_files => 'x' },
            qr/has no key 'cert_files' \(did you mean 'cert_file'\?\); there are ca_file/
        ],
        [ { cert_file       => undef },                    qr/needs a cert_file/ ],
        [ { certificates    => 'x' },                      qr/certificates must be an array reference/ ],
        [ { certificates    => [ { cert_file => 'x' } ] }, qr/certificate 2 needs a key_file/ ],
        [ { session_timeout => 0 },                        qr/session_timeout must be an integer from 1/ ],
        [ { session_timeout => '1x' },                     qr/session_timeout must be .* not '1x'/ ],
        [ { session_timeout => '200h' },                   qr/session_timeout must be .* not '200h'/ ],
        [ { ticket_keys     => 'short' },                  qr/ticket_keys must be 80 random bytes, not 5/ ],
        [
            { ticket_keys => 'x' x 80, ticket_keys_file => 'x' },
            qr/ticket_keys and ticket_keys_file contradict/
        ],
        [ { ticket_keys_file => $missing }, qr/ticket_keys_file \Q$missing\E cannot be opened: No such/ ],
        [ { ticket_keys_file => $files->path('') }, qr/ticket_keys_file \S+ cannot be read: Is a directory/ ],
        [
            { ticket_keys_file => $files->path('text.pem') },
            qr/text\.pem must hold 80 random bytes, not \d+/
        ],
        [ { ticket_keys_file => $files->path('ca.pem') }, qr/ca\.pem must hold 80 random bytes, not more/ ],
    );
    if ($> != 0) {
        chmod 0, $files->path('locked.pem');
        push @cases,
            [
            { cert_file => $files->path('locked.pem') },
            qr/not readable: \S+locked\.pem \(permission denied\)/
            ];
    }
    for my $case (@cases) {
        my ($ssl, $pattern) = @$case;
        my %all = ($files->pair('localhost'), %$ssl);
        like(failure(sub { PAGI::Server->new(app => \&app, quiet => 1, ssl => \%all) }), $pattern,
            "$pattern");
    }
    like(
        failure(sub { PAGI::Server->new(app => \&app, ssl => 1) }),
        qr/option 'ssl' must be a hash reference or undef/,
        'no hash'
    );
    ok(PAGI::Server->new(app => \&app, ssl => undef), 'undef is no TLS');
};

# The group that openssl s_client agreed on with a server when it offered these.
sub group_with {
    my ($offers, %ssl) = @_;
    my $server  = TestServer->start(app => \&app, ssl => { %ssl, $files->pair('localhost') });
    my $port    = $server->port;
    my $told    = `openssl s_client -groups $offers -connect 127.0.0.1:$port </dev/null 2>&1`;
    my ($group) = $told =~ /^(?:Negotiated TLS1[.]3 group: |(?:Server|Peer) Temp Key: (?:ECDH, )?)([^\s,]+)/m;
    return $group // $told;
}

subtest 'groups of the key exchange' => sub {
    like(group_with('X25519:P-256'),                   qr/\Ax25519\z/i,   'X25519 by default');
    like(group_with('P-256:P-384', groups => 'P-384'), qr/\Asecp384r1\z/, 'or those that were given');
    my $offers = `openssl list -kem-algorithms 2>&1` =~ /X25519MLKEM768/ ? 'X25519MLKEM768:X25519' : 'X25519';
    my $first  = $offers                             =~ /MLKEM/          ? 'X25519MLKEM768'        : 'X25519';
    like(group_with($offers), qr/\A$first\z/i, "$first first, with this OpenSSL");
};

done_testing;
