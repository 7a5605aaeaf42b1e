# Trusted proxies: whose request it is, said by proxies in header fields, and believed only from
# those who are trusted.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use File::Temp ();
use Future::AsyncAwait;
use IO::Socket::UNIX ();
use PAGI::Server;
use Socket qw(SOCK_STREAM);
use Test::More;
use TestClient;
use TestServer;
use TestTools qw(refused);

my $directory = File::Temp->newdir;

my $app = async sub {
    my ($scope, $receive, $send) = @_;
    die "no\n" if $scope->{type} !~ /\A(?:http|websocket)\z/;
    my $body = join ' ', $scope->{scheme}, $scope->{client} ? @{ $scope->{client} } : 'nobody';
    $body .= ' tls' if $scope->{extensions}{tls};
    $body .= " $_->[0]=$_->[1]" for grep { $_->[0] =~ /forwarded/ } @{ $scope->{headers} };
    if ($scope->{type} eq 'websocket') {
        await $receive->();
        await $send->({ type => 'websocket.accept', headers => [ [ 'x-scope', $body ] ] });
        return await $send->({ type => 'websocket.close' });
    }
    await $send->(
        { type => 'http.response.start', status => 200, headers => [ [ 'content-length', length $body ] ] });
    await $send->({ type => 'http.response.body', body => $body });
};

# The values that the application sees when a request has these header fields.
sub seen {
    my ($client, @lines) = @_;
    $client->send(join "\r\n", 'GET / HTTP/1.1', 'Host: h', @lines, '', '');
    return $client->response->{body} =~ s/ [\w-]+=.*//sr;
}

subtest 'options' => sub {
    my $allowed =
        q{option 'trusted_proxies' must be a list of networks like '10.0.0.0/8' or '::1', or 'unix'};
    like(
        refused(app => $app, trusted_proxies => '*'),
        qr/$allowed: '\*' is no IPv4 or IPv6 address/,
        'a star'
    );
    like(
        refused(app => $app, trusted_proxies => ['10.0.0.1/8']),
        qr/$allowed: '10\.0\.0\.1\/8' has bits beyond its prefix/,
        'host bits'
    );
    is(refused(app => $app, trusted_proxies => [ '10.0.0.0/8', 'unix' ], forwarded_header => 'forwarded'),
        '', 'a list');
    like(
        refused(app => $app, forwarded_header => 'x-real-ip'),
        qr/option 'forwarded_header' must be one of x-forwarded forwarded, not 'x-real-ip'/,
        'another field'
    );
    my ($status, undef, $error) = TestServer->finish('--trusted-proxies', '1.2.3', '-e', 'sub {}');
    is($status, 2, 'a flag');
    like($error, qr/option --trusted-proxies must be .*: '1\.2\.3' is no IPv4/, '... is explained');
};

my $own = qr/\Ahttp 127\.0\.0\.1 [1-9]\d*\z/;

subtest 'no proxy is trusted by default' => sub {
    my $server = TestServer->start(app => $app);
    my $client = TestClient->new($server->port);
    like(
        seen(
            $client,
            'X-Forwarded-For: 192.0.2.1',
            'X-Forwarded-Proto: https',
            'Forwarded: for=192.0.2.1;proto=https'
        ),
        $own,
        'fields are only fields'
    );
    $server->stop;
    $server = TestServer->start(app => $app, trusted_proxies => [ '10.0.0.0/8', '::1', 'unix' ]);
    $client = TestClient->new($server->port);
    like(seen($client, 'X-Forwarded-For: 192.0.2.1', 'X-Forwarded-Proto: https'),
        $own, '... of one who is not in the list');
    $server->stop;
};

# [ name, fields, what is seen ]
sub expect_all {
    my ($client, @cases) = @_;
    for my $case (@cases) {
        my ($name, $lines, $expected) = @$case;
        like(seen($client, @$lines), ref $expected ? $expected : qr/\A\Q$expected\E\z/, $name);
    }
    return;
}

subtest 'X-Forwarded-For' => sub {
    my $log    = "$directory/access.log";
    my $server = TestServer->start(
        app               => $app,
        trusted_proxies   => [ '127.0.0.0/8', '10.0.0.0/8', 'fd00::/8' ],
        access_log        => $log,
        access_log_format => '%h %s',
    );
    my $client = TestClient->new($server->port);
    my $for    = 'X-Forwarded-For: ';
    my $proto  = 'X-Forwarded-Proto: ';
    expect_all(
        $client,
        [ 'nothing is said',     [],                                      $own ],
        [ 'one address',         [ $for . '192.0.2.1' ],                  'http 192.0.2.1 0' ],
        [ '... with a port',     [ $for . '192.0.2.1:4711' ],             'http 192.0.2.1 4711' ],
        [ 'IPv6',                [ $for . '2001:DB8:0::1' ],              'http 2001:db8::1 0' ],
        [ '... with a port',     [ $for . '[2001:db8::1]:80' ],           'http 2001:db8::1 80' ],
        [ 'IPv4 in IPv6',        [ $for . '::ffff:192.0.2.1' ],           'http 192.0.2.1 0' ],
        [ '... that is trusted', [ $for . '192.0.2.1, ::ffff:10.2.3.4' ], 'http 192.0.2.1 0' ],
        [ 'the rightmost',       [ $for . '198.51.100.1, 192.0.2.1' ],    'http 192.0.2.1 0' ],
        [
            '... that is not trusted',
            [ $for . '198.51.100.1, 192.0.2.1,10.1.1.1,fd00::1' ],
            'http 192.0.2.1 0'
        ],
        [ 'of several fields',        [ $for . '192.0.2.1', $for . '10.0.0.1' ],      'http 192.0.2.1 0' ],
        [ '... the last ones first',  [ $for . '192.0.2.1', $for . '192.0.2.2' ],     'http 192.0.2.2 0' ],
        [ 'all are trusted',          [ $for . '10.0.0.1, 10.0.0.2' ],                'http 10.0.0.1 0' ],
        [ 'what is malformed',        [ $for . '192.0.2.1, what' ],                   $own ],
        [ '... hides what is before', [ $for . '192.0.2.1, what, 10.0.0.2' ],         'http 10.0.0.2 0' ],
        [ '... not what is behind',   [ $for . '"what, 192.0.2.1' ],                  'http 192.0.2.1 0' ],
        [ 'unknown',                  [ $for . '192.0.2.1, unknown' ],                $own ],
        [ 'empty',                    [$for],                                         $own ],
        [ 'empty elements',           [ $for . ',192.0.2.1,, ' ],                     'http 192.0.2.1 0' ],
        [ 'scheme',                   [ $for . '192.0.2.1', $proto . 'https' ],       'https 192.0.2.1 0' ],
        [ '... by the last proxy',    [ $for . '192.0.2.1', $proto . 'https, http' ], 'http 192.0.2.1 0' ],
        [ '... or nonsense',          [ $for . '192.0.2.1', $proto . 'gopher' ],      'http 192.0.2.1 0' ],
        [ 'Forwarded does not count', ['Forwarded: for=192.0.2.1;proto=https'],       $own ],
    );
    like(seen($client), $own, 'the next request is not the same client\'s');
    is(seen($client, $for . '192.0.2.77', 'Accept: text/event-stream;q=0'), 'http 192.0.2.77 0', 'and so on');
    $client->send("GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n");
    like(
        $client->response->{body},
        qr/ x-forwarded-for=192\.0\.2\.1\z/,
        'the application has the fields, too'
    );
    $client->send(
        "POST / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.8\r\nTransfer-Encoding: chunked\r\n\r\n");
    $client->send("1\r\na\r\n0\r\nX-Forwarded-For: 192.0.2.9\r\n\r\n");
    like($client->response->{body}, qr/\Ahttp 192\.0\.2\.8 0 /, 'a trailer says nothing');
    $client->send("GET / HTTP/1.1\r\nX-Forwarded-For: 192.0.2.55\r\n\r\n");
    is($client->response->{status}, 400, 'a refused request');

    my $websocket = TestClient->new($server->port);
    $websocket->send(
        join "\r\n",
        'GET / HTTP/1.1',
        'Host: h',
        'Connection: Upgrade',
        'Upgrade: websocket',
        'Sec-WebSocket-Key: ' . 'A' x 22 . '==',
        'Sec-WebSocket-Version: 13',
        $for . '192.0.2.66',
        $proto . 'https',
        '',
        ''
    );
    like($websocket->rest, qr/^x-scope: wss 192\.0\.2\.66 0 /mi, 'a WebSocket');
    $server->stop;

    open my $in, '<', $log or die $!;
    my %lines;
    $lines{$_}++ for <$in>;
    ok($lines{"192.0.2.77 200\n"}, 'the access log has the client');
    ok($lines{"192.0.2.66 101\n"}, '... of a WebSocket');
    ok($lines{"127.0.0.1 200\n"},  '... or the proxy, if it says nothing');
    ok($lines{"192.0.2.55 400\n"}, '... also of a request that is refused');
};

subtest 'Forwarded' => sub {
    my $server = TestServer->command(
        '--port', 0, '--trusted-proxies', '127.0.0.0/8', '--trusted-proxies', '10.0.0.0/8',
        '--forwarded-header',
        'forwarded',
        '-MFuture::AsyncAwait', '-e',
        'async sub { my ($scope, $r, $send) = @_; die if $scope->{type} ne "http";
           my $body = join " ", $scope->{scheme}, @{ $scope->{client} };
           my @headers = ([ "content-length", length $body ]);
           await $send->({ type => "http.response.start", status => 200, headers => \@headers });
           await $send->({ type => "http.response.body", body => $body }) }'
    );
    my $client = TestClient->new($server->port);
    my $is     = 'Forwarded: ';
    expect_all(
        $client,
        [ 'nothing is said', [],                                                $own ],
        [ 'one address',     [ $is . 'for=192.0.2.1' ],                         'http 192.0.2.1 0' ],
        [ 'everything', [ $is . 'For="[2001:db8::1]:4711";Proto=HTTPS;by=_x' ], 'https 2001:db8::1 4711' ],
        [ 'a port with a name', [ $is . 'for="192.0.2.1:_p"' ],                 'http 192.0.2.1 0' ],
        [
            'of the client\'s element',
            [ $is . 'for=192.0.2.1;proto=https, for=10.0.0.1;proto=http' ],
            'https 192.0.2.1 0'
        ],
        [
            'in several fields',
            [ $is . 'for=192.0.2.1;proto=https', $is . 'for=10.0.0.1' ],
            'https 192.0.2.1 0'
        ],
        [ 'not that of a client', [ $is . 'for=192.0.2.2;proto=https, for=192.0.2.1' ], 'http 192.0.2.1 0' ],
        [
            'an obfuscated client',
            [ $is . 'for=192.0.2.2, for=_hidden;proto=https' ],
            qr/\Ahttps 127\.0\.0\.1 \d+\z/
        ],
        [ 'a malformed element',     [ $is . 'for=192.0.2.2, for=1.2.3;proto=https' ],  $own ],
        [ 'a quotation without end', [ $is . 'for="192.0.2.2, for=192.0.2.1' ],         'http 192.0.2.1 0' ],
        [ 'a comma in a quotation',  [ $is . 'for=192.0.2.1;host="a, for=192.0.2.2"' ], 'http 192.0.2.1 0' ],
        [ 'X-Forwarded does not count', [ 'X-Forwarded-For: 192.0.2.1', 'X-Forwarded-Proto: https' ], $own ],
    );
    $server->stop;
};

subtest 'Unix sockets' => sub {
    my $path   = "$directory/app.sock";
    my $server = TestServer->start(app => $app, socket => $path, trusted_proxies => 'unix');
    my $ask    = sub {
        my ($fields) = @_;
        my $unix = IO::Socket::UNIX->new(Type => SOCK_STREAM, Peer => $path) or die $!;
        print {$unix} "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n$fields\r\n";
        return do { local $/; <$unix> };
    };
    like($ask->(''), qr/\r\n\r\nhttp nobody\z/, 'nothing is said: there is no client');
    like(
        $ask->("X-Forwarded-For: 192.0.2.2, 192.0.2.1\r\nX-Forwarded-Proto: https\r\n"),
        qr/\r\n\r\nhttps 192\.0\.2\.1 0 /,
        'the proxy says whose request it is'
    );
    like(
        $ask->("X-Forwarded-For: 127.0.0.1\r\n"),
        qr/\r\n\r\nhttp 127\.0\.0\.1 0 /,
        'and no other network is trusted'
    );
    $server->stop;
};

subtest 'TLS' => sub {
    my $certificates = Certificates->new->authority('server');
    my $server       = TestServer->start(
        app             => $app,
        ssl             => { $certificates->pair('server') },
        trusted_proxies => '127.0.0.1'
    );
    my $address = 'https://127.0.0.1:' . $server->port . '/';
    my $curl    = 'curl --silent --show-error --insecure --max-time 10';
    like(qx{$curl $address 2>&1}, qr/\Ahttps 127\.0\.0\.1 \d+ tls\z/, 'the connection\'s own');
    like(
        qx{$curl -H 'X-Forwarded-For: 192.0.2.1' -H 'X-Forwarded-Proto: http' $address 2>&1},
        qr/\Ahttp 192\.0\.2\.1 0 tls /,
        'a client that did not speak TLS, over a connection that does'
    );
    $server->stop;
};

subtest 'behind a PROXY header' => sub {
    my $server =
        TestServer->start(app => $app, proxy_protocol => '127.0.0.1', trusted_proxies => '10.0.0.0/8');
    for my $case ([ '10.0.0.1', 'http 192.0.2.1 0' ], [ '198.51.100.1', 'http 198.51.100.1 1234' ]) {
        my ($source, $expected) = @$case;
        my $client = TestClient->new($server->port);
        $client->send("PROXY TCP4 $source 127.0.0.1 1234 443\r\n");
        is(seen($client, 'X-Forwarded-For: 192.0.2.1'), $expected, "from $source");
    }
    $server->stop;
};

done_testing;
