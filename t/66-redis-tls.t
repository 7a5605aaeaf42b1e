# Channels and topics over a Redis within TLS: rediss:// with the authorities of a file or of the system, a
# certificate of ours, a link that is cut, stalls, or is broken into; and servers that are not to be trusted,
# or speak no TLS.
# Not repeated for each PEREGRINE_ENGINE: the hub is the same.
use strict;
use warnings;

use lib 't/lib';
use Certificates;
use IO::Socket::INET;
use Net::SSLeay;
use POSIX ();
use Test::More;
use TestClient qw(get);
use TestRedis;
use TestServer;
use TestTools   qw(free_port patience wait_for);
use TestWorkers qw(write_file);

plan skip_all => 'Linux only' if $^O ne 'linux';

my $here  = 'subjectAltName=DNS:localhost,IP:127.0.0.1';
my $files = Certificates->new;
$files->authority('ca')->authority('other')->issue('redis', extensions => [$here])
    ->issue('named', extensions => ['subjectAltName=DNS:redis.example'])->issue('ours')
    ->issue('old',   extensions => [$here]);
$files->date('old', time - 200_000, time - 100_000);

my $app = write_file('tls.pl', <<'PERL');
use Future::AsyncAwait;
async sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} eq 'lifespan';
    my (undef, $count, $size) = split m{/}, $scope->{path};
    my $topics = $scope->{'pagi.topics'};
    my $body = eval {
        my @places;
        for my $i (1 .. $count || 0) { push @places, await $topics->publish(news => 'x' x $size) }
        $places[-1] // 'plain';
    } // "failed: $@";
    await $send->({ type => 'http.response.start', status => 200,
        headers => [ [ 'content-length', length $body ] ] });
    await $send->({ type => 'http.response.body', body => $body });
};
PERL
my $place = qr/\A[0-9a-f]{12}\.\d+\.[0-9a-f]{12}\z/;

# A Redis with TLS on a port of its own.
sub redis {
    my ($name, @more) = @_;
    my $port  = free_port();
    my $redis = TestRedis->new(
        '--tls-port'         => $port,
        '--tls-cert-file'    => $files->path("$name.pem"),
        '--tls-key-file'     => $files->path("$name.key"),
        '--tls-ca-cert-file' => $files->path('ca.pem'),
        '--tls-auth-clients' => 'no',
        @more
    ) or return;
    return ($redis, $port);
}

my ($redis, $port) = redis('redis') or plan skip_all => 'redis-server is not installed';
my $ca = $files->path('ca.pem');

sub server { return TestServer->command('--channels', $_[0], $app) }
sub said   { my ($server, $path) = @_; return get($server->port, $path)->{body} }

# Calls work.
sub is_served {
    my ($server, $what) = @_;
    ok wait_for(sub { said($server, '/1/10') =~ $place }), $what;
    return is $server->stop, 0, 'the server stops';
}

# The log says why there is no Redis, and requests are served.
sub is_refused {
    my ($url, $why, $what) = @_;
    my $server = server($url);
    ok $server->wait_for_log(qr/hub: Redis is away: $why/), $what;
    is said($server, '/'), 'plain', 'requests are served';
    return is $server->stop, 0, 'the server stops';
}

subtest 'trusted' => sub {
    is_served(server("rediss://localhost:$port?ca=$ca&prefix=tls:"), 'a name, and the file of an authority');
    is_served(server("rediss://127.0.0.1:$port?ca=$ca"),             'an address');
    local $ENV{SSL_CERT_FILE} = $ca;
    is_served(server("rediss://localhost:$port"), 'SSL_CERT_FILE');
};

subtest 'much of it, and a server with workers' => sub {
    my $server = TestServer->command('--workers', 2, '--channels', "rediss://localhost:$port?ca=$ca", $app);
    like said($server, "/40/$_"), $place, "40 entries of $_ bytes" for 1, 16_384, 100_000, 1_048_576;
    is $server->stop, 0, 'the server stops';
};

subtest 'not to be trusted' => sub {
    my $other = $files->path('other.pem');
    my $why   = 'its certificate is of no authority';
    is_refused("rediss://localhost:$port?ca=$other", $why, 'another authority');
    local $ENV{SSL_CERT_FILE} = $other;
    is_refused("rediss://localhost:$port", $why, 'likewise of the system');
    my ($named, $named_port) = redis('named');
    is_refused("rediss://localhost:$named_port?ca=$ca", 'its certificate is for another name', 'a name');
    is_refused("rediss://127.0.0.1:$named_port?ca=$ca", 'its certificate is for another name', 'an address');
    my ($old, $old_port) = redis('old');
    is_refused("rediss://localhost:$old_port?ca=$ca", 'its certificate has expired', 'an old certificate');
};

subtest 'no TLS' => sub {
    my $plain = $redis->port;
    is_refused("rediss://127.0.0.1:$plain?ca=$ca", '(?:it does not answer|TLS fails)', 'a Redis without TLS');
    is_refused(
        "redis://127.0.0.1:$port",
        '(?:it does not answer|the connection was refused|its answers are not)',
        'plain to a port with TLS'
    );
};

# A server that speaks first, and a link that is broken into: the end of the handshake, an error, and a record
# that is none come at once. TLS 1.2, where the server ends the handshake.
sub interrupted {
    my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1:0', Listen => 20) or die "a server: $@\n";
    defined(my $pid = fork)                                                        or die "fork: $!";
    return ($listener->sockport, $pid) if $pid;
    alarm patience(120);
    local $SIG{PIPE} = 'IGNORE';
    my $context = Net::SSLeay::CTX_new_with_method(Net::SSLeay::TLS_server_method());
    Net::SSLeay::CTX_set_max_proto_version($context, Net::SSLeay::TLS1_2_VERSION());
    Net::SSLeay::set_cert_and_key($context, $files->path('redis.pem'), $files->path('redis.key'));
    while (my $socket = $listener->accept) { interrupt($socket, Net::SSLeay::new($context)) }
    POSIX::_exit(1);
}

sub interrupt {
    my ($socket, $session) = @_;
    my ($in,     $out)     = map { Net::SSLeay::BIO_new(Net::SSLeay::BIO_s_mem()) } 1 .. 2;
    Net::SSLeay::set_bio($session, $in, $out);
    my $done;
    while (!$done) {
        $done = Net::SSLeay::accept($session) == 1;
        Net::SSLeay::write($session, "-ERR max number of clients reached\r\n") if $done;
        my $bytes = Net::SSLeay::BIO_read($out, 65_536) // '';
        $bytes .= "\x17\x03\x03\x00\x20" . 'x' x 32 if $done;
        syswrite $socket, $bytes if length $bytes;
        return if !sysread $socket, my $answer, 65_536;
        Net::SSLeay::BIO_write($in, $answer);
    }
    return;
}

subtest 'a broken record behind the first words' => sub {
    my ($interrupted, $pid) = interrupted();
    my $server = server("rediss://localhost:$interrupted?ca=$ca");
    ok $server->wait_for_log(qr/hub: Redis is away: the connection was refused, or ended/), 'no connection';
    is said($server, '/'), 'plain', 'requests are served';
    is $server->stop,      0,       'the server stops';
    kill KILL => $pid;
    waitpid $pid, 0;
};

subtest 'a certificate of ours' => sub {
    my ($strict, $strict_port) = redis('redis', '--tls-auth-clients' => 'yes');
    my $url = "rediss://localhost:$strict_port?ca=$ca";
    is_refused($url, 'TLS fails: it may speak none at this port, or want another certificate', 'none');
    my ($cert, $key) = map { $files->path("ours.$_") } qw(pem key);
    is_served(server("$url&cert=$cert&key=$key"), 'a certificate and its key');
    $files->write('both.pem', $files->read('ours.pem') . $files->read('ours.key'));
    my $both = $files->path('both.pem');
    is_served(server("$url&cert=$both"), 'both in one file');
};

subtest 'a link that stalls' => sub {
    my ($relayed, $relay) = $redis->relay($port);
    kill STOP => $relay;
    my $server = server("rediss://localhost:$relayed?ca=$ca");
    ok $server->wait_for_log(qr/hub: Redis is away: it does not answer/), 'in the handshake: there is an end';
    is said($server, '/'), 'plain', 'requests are served';
    kill CONT => $relay;
    ok wait_for(sub { said($server, '/1/10') =~ $place }), 'a link that goes on is used';
    kill STOP => $relay;
    like said($server, '/1/10'), qr/\Afailed: Un/, 'behind the handshake: calls fail';
    kill CONT => $relay;
    ok wait_for(sub { said($server, '/1/10') =~ $place }), 'and work again';
    $redis->kill;
    ok $server->wait_for_log(qr/Redis is away: the connection was refused/), 'Redis is killed';
    $redis->start;
    is_served($server, 'and is there again');
};

subtest 'certificates that change' => sub {
    my ($strict, $strict_port) = redis('redis', '--tls-auth-clients' => 'yes');
    my $url    = "rediss://localhost:$strict_port?ca=$ca&cert=" . $files->path('ours.pem');
    my $server = server($url . '&key=' . $files->path('ours.key'));
    ok wait_for(sub { said($server, '/1/10') =~ $place }), 'at first';
    $strict->kill;
    $files->replace('ours.pem', 'other.pem')->replace('ours.key', 'other.key');
    $strict->start;
    ok $server->wait_for_log(qr/TLS fails/), 'each connection reads the files: another one is refused';
    $files->issue('ours');
    is_served($server, 'and the next one is not');
};

subtest 'options' => sub {
    for my $case (
        [ "rediss://h?ca=/no/such", qr{SSL CA file not found: /no/such} ],
        [ "rediss://h?cert=$ca",    qr{\Q$ca\E} ],
        [ "redis://h?ca=$ca",       qr/ca, cert and key are for rediss:/ ],
        [ "rediss://h?key=$ca",     qr/a key needs a cert/ ],
        [ "rediss://h?verify=no",   qr/its parameters are db, prefix, ca, cert and key/ ],
        )
    {
        my ($url, $why) = @$case;
        my ($status, undef, $error) =
            TestServer->finish_of('pagi-server', '--check', '--channels', $url, $app);
        isnt $status, 0, "$url is refused";
        like $error, $why, 'and why';
    }
};

done_testing;
