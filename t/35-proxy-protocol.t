# The PROXY protocol: whose connection it is, said by a proxy before everything else.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use File::Temp ();
use Future::AsyncAwait;
use IO::Socket::IP   ();
use IO::Socket::UNIX ();
use PAGI::Server;
use Socket qw(SOCK_STREAM);
use Test::More;
use TestClient;
use TestServer;
use TestTools qw(refused);

my $directory = File::Temp->newdir;
my $log       = "$directory/access.log";

my $app = async sub {
    my ($scope, $receive, $send) = @_;
    die "no\n" if $scope->{type} ne 'http';
    my $client = $scope->{client} ? join ' ', @{ $scope->{client} } : 'nobody';
    my $body   = join ' ', $scope->{scheme}, $client, '>', map { $_ // 'undef' } @{ $scope->{server} };
    await $send->(
        { type => 'http.response.start', status => 200, headers => [ [ 'content-length', length $body ] ] });
    await $send->({ type => 'http.response.body', body => $body });
};

use constant {
    SIGNATURE => "\r\n\r\n\0\r\nQUIT\n",
    REQUEST   => "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
};

sub binary {
    my ($command, $family, $block) = @_;
    return SIGNATURE . pack('CCn/a*', $command, $family, $block);
}
my $v4 = pack 'C4 C4 n n', 192, 0, 2, 1, 198, 51, 100, 2, 1234, 443;

subtest 'options' => sub {
    my $allowed = q{option 'proxy_protocol' must be a list of networks like '10.0.0.0/8' or '::1', or 'unix'};
    like(
        refused(app => $app, proxy_protocol => 'here'),
        qr/$allowed: 'here' is no IPv4 or IPv6 address/,
        'a name'
    );
    like(
        refused(app => $app, proxy_protocol => ['10.0.0.1/8']),
        qr/$allowed: '10\.0\.0\.1\/8' has bits beyond its prefix/,
        'host bits'
    );
    like(
        refused(app => $app, proxy_protocol => [ '::1', '::/130' ]),
        qr/'::\/130' has no valid prefix length/,
        'a long prefix'
    );
    like(refused(app => $app, proxy_protocol => {}), qr/$allowed, not 'HASH/, 'a hash');
    like(
        refused(app => $app, proxy_timeout => 0),
        qr/option 'proxy_timeout' must be a number of seconds from 0\.001/,
        'no time'
    );
    like(
        refused(app => $app, listen => ['h:1,proxy=x']),
        qr/cannot have 'h:1,proxy=x': proxy_protocol must be .*'x' is no/,
        'of a place'
    );
    is(refused(app => $app, proxy_protocol => '10.0.0.0/8,unix'), '', 'a string');
    my ($status, undef, $error) = TestServer->finish('--proxy-protocol', '1.2.3', '-e', 'sub {}');
    is($status, 2, 'a flag');
    like($error, qr/option --proxy-protocol must be .*: '1\.2\.3' is no IPv4/, '... is explained');
};

# The server's answer to bytes that are sent in one piece or byte by byte.
sub answer {
    my ($port, $bytes, $bytewise) = @_;
    my $client = TestClient->new($port);
    for my $piece ($bytewise ? split //, $bytes : $bytes) {
        $client->send($piece);
        select undef, undef, undef, 0.001 if $bytewise;
    }
    my $answer = $client->rest;
    $answer =~ s/\A.*?\r\n\r\n//s;
    return $answer;
}

my $server = TestServer->start(
    app               => $app,
    proxy_protocol    => [ '127.0.0.0/8', 'unix' ],
    proxy_timeout     => 30,
    access_log        => $log,
    access_log_format => '%h %s',
);
my $port = $server->port;

subtest 'headers' => sub {
    my $own  = qr/\Ahttp 127\.0\.0\.1 \d+ > 127\.0\.0\.1 $port\z/;
    my @good = (
        [
            "PROXY TCP4 192.0.2.1 198.51.100.2 1234 443\r\n",
            qr/\Ahttp 192\.0\.2\.1 1234 > 198\.51\.100\.2 443\z/
        ],
        [ "PROXY TCP6 2001:db8::1 ::1 1 2\r\n",      qr/\Ahttp 2001:db8::1 1 > ::1 2\z/ ],
        [ "PROXY UNKNOWN it is\r\n",                 $own ],
        [ binary(0x21, 0x11, $v4),                   qr/\Ahttp 192\.0\.2\.1 1234 > 198\.51\.100\.2 443\z/ ],
        [ binary(0x21, 0x11, $v4 . "\x04\0\x03abc"), qr/\Ahttp 192\.0\.2\.1 1234 > 198\.51\.100\.2 443\z/ ],
        [
            binary(0x21, 0x11, $v4 . 'x' x 60_000),
            qr/\Ahttp 192\.0\.2\.1 1234 > 198\.51\.100\.2 443\z/,
            'whole'
        ],
        [ binary(0x21, 0x21, pack 'x15 C x15 C n n', 1, 2, 3, 4), qr/\Ahttp ::1 3 > ::2 4\z/ ],
        [ binary(0x20, 0x11, $v4),        $own ],
        [ binary(0x21, 0x00, ''),         $own ],
        [ binary(0x21, 0x31, "\0" x 216), $own ],
    );
    for my $case (@good) {
        my ($header, $says, $whole) = @$case;
        my $name = $header =~ /\APROXY (.*)\r/ ? $1 : 'version 2: ' . unpack 'H8', substr $header, 12;
        like(answer($port, $header . REQUEST), $says, $name);
        like(answer($port, $header . REQUEST, 1), $says, '... byte by byte') if !$whole;
    }
    my @bad = (
        [ REQUEST,                                    'there is no header' ],
        [ "PROXY TCP4 192.0.2.1 x 1 2\r\n" . REQUEST, 'has no valid addresses' ],
        [ 'PROXY UNKNOWN ' . 'x' x 200,               'does not end' ],
        [ binary(0x31, 0x11, $v4) . REQUEST,          'unknown version' ],
        [ binary(0x21, 0x11, 'short') . REQUEST,      'too short' ],
    );
    for my $case (@bad) {
        my ($bytes, $why) = @$case;
        is(answer($port, $bytes), '', "$why: closed");
    }
    my ($first) = $bad[0][1];
    ok($server->wait_for_log(qr/PROXY protocol: \Q$first\E \(connection \d+ of 127\.0\.0\.1 port \d+\)$/m),
        'a line says so');
    my @lines = $server->log =~ /PROXY protocol:/g;
    cmp_ok(scalar @lines, '<', scalar @bad, '... not for each one in the same second');

};

subtest 'a header that does not come' => sub {
    my $brief = TestServer->start(app => $app, proxy_protocol => '127.0.0.1', proxy_timeout => 0.5);
    my $mute  = TestClient->new($brief->port);
    $mute->send('PROXY TCP4');
    is($mute->rest, '', 'a header that does not come has its time');
    like(answer($brief->port, "PROXY UNKNOWN\r\n" . REQUEST), qr/\Ahttp 127/, 'and others go on');
};

subtest 'keep-alive' => sub {
    my $client = TestClient->new($port);
    $client->send("PROXY TCP4 192.0.2.7 198.51.100.2 1 2\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n");
    like($client->response->{body}, qr/\Ahttp 192\.0\.2\.7 1 >/, 'the first request');
    $client->send(REQUEST);
    like($client->response->{body}, qr/\Ahttp 192\.0\.2\.7 1 >/, '... and the second are the same client\'s');
};

subtest 'access log' => sub {
    $server->stop;
    open my $in, '<', $log or die $!;
    my %clients = map { $_ => 1 } <$in>;
    ok($clients{"192.0.2.1 200\n"},     'the address from a header');
    ok($clients{"2001:db8::1 200\n"},   '... of each family');
    ok($clients{"127.0.0.1 200\n"},     "... or the connection's");
    ok(!grep({ / 400/ } keys %clients), 'no line for what was closed');
};

subtest 'TLS behind the header' => sub {
    my $certificates = Certificates->new->authority('server');
    my $secure       = TestServer->start(
        app            => $app,
        ssl            => { $certificates->pair('server') },
        proxy_protocol => '127.0.0.1'
    );
    my $address = 'https://127.0.0.1:' . $secure->port . '/';
    my $out     = qx{curl --silent --show-error --insecure --max-time 10 --haproxy-protocol $address 2>&1};
    like($out, qr/\Ahttps 127\.0\.0\.1 \d+ > 127\.0\.0\.1 \d+\z/, 'curl --haproxy-protocol');
    $out = qx{curl --silent --insecure --max-time 10 $address 2>&1};
    is($out, '', 'TLS without a header is closed');
};

subtest 'trusted peers' => sub {
    my $path  = "$directory/one.sock";
    my $mixed = TestServer->command(
        '--listen', '127.0.0.1:0,proxy=10.0.0.0/8,proxy=::/0', '--listen', '127.0.0.1:0,direct', '--listen',
        $path,
        '--proxy-protocol', 'unix', '-MFuture::AsyncAwait', '-e',
        'async sub { my ($scope, $r, $send) = @_; die if $scope->{type} ne "http";
           await $send->({ type => "http.response.start", status => 200 });
           await $send->({ type => "http.response.body", body => join " ", @{ $scope->{client} } }) }'
    );
    ok($mixed->wait_for_log(qr/unix:\Q$path\E behind PROXY protocol/), 'the banner says who has it');
    my ($first, $second) = $mixed->log =~ m{listening on http://127\.0\.0\.1:(\d+)/}g;
    # ::/0 has the IPv4 addresses in it.
    like(
        answer($first, "PROXY TCP4 192.0.2.1 198.51.100.2 1234 443\r\n" . REQUEST),
        qr/192\.0\.2\.1 1234/,
        'a wide network'
    );
    like(answer($second, REQUEST), qr/127\.0\.0\.1/, 'a place without');
    my $unix = IO::Socket::UNIX->new(Type => SOCK_STREAM, Peer => $path) or die $!;
    print {$unix} "PROXY TCP4 192.0.2.9 198.51.100.2 1234 443\r\n", REQUEST;
    like(do { local $/; <$unix> }, qr/192\.0\.2\.9 1234/, 'a Unix socket');
    my $bare = IO::Socket::UNIX->new(Type => SOCK_STREAM, Peer => $path) or die $!;
    print {$bare} REQUEST;
    ok($mixed->wait_for_log(qr/PROXY protocol: there is no header \(connection \d+ of unix\)$/m),
        'its peers have no port');
    $mixed->stop;

    my $strict = TestServer->start(app => $app, proxy_protocol => ['10.0.0.0/8']);
    is(answer($strict->port, "PROXY TCP4 192.0.2.1 198.51.100.2 1234 443\r\n" . REQUEST),
        '', 'another peer is closed');
    ok(
        $strict->wait_for_log(
            qr/PROXY protocol: the peer is none of the trusted proxies \(connection 1 of 127/),
        '... with a line in the log'
    );
};

done_testing;
