# Connections, and new connections per second, of one client address.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use Test::More;
use Time::HiRes qw(sleep);

use Certificates;
use PAGI::Server;
use TestClient;
use TestServer;
use TestTools qw(freeze has_ipv6 wait_for);

async sub app {
    my ($scope, $receive, $send) = @_;
    die "unsupported\n" if $scope->{type} ne 'http';
    await $send->({ type => 'http.response.start', status => 200, headers => [ [ 'content-length', 2 ] ] });
    await $send->({ type => 'http.response.body', body => 'hi' });
    return;
}

sub start { return TestServer->start(app => \&app, access_log => undef, @_) }

# A client with an address of its own: all of 127.0.0.0/8 is this machine.
sub from {
    my ($address, $server, %options) = @_;
    return TestClient->new($server->port, local => $address, timeout => 5, %options);
}

sub ask { return $_[0]->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")->response }

sub is_welcome {
    my ($client, $name) = @_;
    my $response = ask($client);
    return is($response && $response->{status}, 200, $name);
}

sub is_refused {
    my ($client, $after, $name) = @_;
    my $response = $client->response;
    is($response->{status},                429,    "$name: 429");
    is($response->{header}{'retry-after'}, $after, '... and when to come again');
    is($client->rest,                      '',     '... then the end');
    return $response;
}

subtest 'open connections' => sub {
    my $server = start(max_connections_per_address => 3, quiet => 0);
    my @open   = map { from('127.0.0.1', $server) } 1 .. 3;
    is_welcome($_, 'within the limit') for @open;
    my $refused = is_refused(from('127.0.0.1', $server), 5, 'one more');
    like($refused->{body}, qr/too many open connections/, '... and why');
    is_welcome(from('127.0.0.2', $server), 'another address');
    is_refused(from('127.0.0.1', $server), 5, 'still one more') for 1 .. 20;
    ok(
        $server->wait_for_log(
            qr/Connection \d+ rejected: 127\.0\.0\.1 has too many open connections \(limit 3\)$/m),
        'a line in the log'
    );
    my $lines = () = $server->log =~ /rejected:/g;
    cmp_ok($lines, '<', 10, '... but not one for each');
    undef $open[0];
    # The server refuses until it has seen that the connection is gone.
    my $still  = 0;
    my $let_in = wait_for(sub {
        ask(from('127.0.0.1', $server))->{status} == 200 || do { $still++; 0 }
    });
    ok($let_in, 'another one when one has closed');
    is(scalar(grep { ask($_)->{status} == 200 } @open[ 1, 2 ]),
        2, 'connections that were there are served on');
    is($server->stop, 0, 'the server ends well');
    my $log  = $server->log;
    my $told = 0;
    $told += length $1 ? $1 : 1
        while $log =~
        /(?|^PAGI: ()Connection \d+ rejected:|; (\d+) more since|^PAGI: (\d+) more connections)/mg;
    is($told, 21 + $still, '... and what is left over is told at the end');
};

subtest 'a flood of refused connections does not hold the place of others' => sub {
    my $server = start(max_connections_per_address => 1, max_connections => 40);
    my $first  = from('127.0.0.1', $server);
    is_welcome($first, 'the one that may');
    # The clients over the limit do not even read what they are told.
    my @flood = map { from('127.0.0.1', $server) } 1 .. 100;
    is_welcome(from('127.0.0.2', $server), 'another address');
    is_welcome($first,                     'and the first goes on');
};

subtest 'new connections per second' => sub {
    my $server = start(max_connection_rate_per_address => 4);
    # The connections wait for the server, which then accepts all of them at the same time.
    freeze($server->pid);
    my @come = map { from('127.0.0.1', $server) } 1 .. 5;
    $server->signal('CONT');
    my $fifth = pop @come;
    is_welcome($_, 'at once') for @come;
    my $refused = is_refused($fifth, 1, 'the fifth');
    like($refused->{body}, qr/too fast/, '... and why');
    is_welcome(from('127.0.0.2', $server), 'another address');
    sleep 0.6;
    is_welcome(from('127.0.0.1', $server), 'a while later');
};

subtest 'over TLS' => sub {
    plan skip_all => 'built without TLS' if !PAGI::Server->has_tls;
    my $files  = Certificates->new->authority('ca')->issue('server', subject => '/CN=localhost');
    my $server = start(max_connections_per_address => 1, ssl => { $files->pair('server') });
    my $first  = from('127.0.0.1', $server, tls => {});
    is_welcome($first, 'the one that may');
    my $second = from('127.0.0.1', $server);
    is($second->rest, '', 'the next is closed before the handshake');
    is_welcome(from('127.0.0.2', $server, tls => {}), 'another address');
};

subtest 'IPv6 by /64' => sub {
    plan skip_all => 'this machine has no IPv6' if !has_ipv6();
    my $server = start(host => '::1', max_connections_per_address => 1);
    my $first  = TestClient->new($server->port, host => '::1');
    is_welcome($first, 'the one that may');
    is_refused(TestClient->new($server->port, host => '::1'), 5, 'one more');
};

subtest 'changed while it runs, and refused if wrong' => sub {
    for my $name (qw(max_connections_per_address max_connection_rate_per_address)) {
        ok(!eval { PAGI::Server->new(app => \&app, $name => -1); 1 }, "$name => -1");
        like($@, qr/option '$name' must be an integer from 0 to \d+, not '-1'/, '... says what is allowed');
    }
    my $server = PAGI::Server->new(app => \&app, port => 0, quiet => 1, access_log => undef);
    ok(
        eval { $server->configure(max_connections_per_address => 5, max_connection_rate_per_address => 7); 1 }
        ,
        'configure'
    );
};

done_testing;
