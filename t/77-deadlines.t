# Deadlines begin when the client is waited for, however long the application was quiet before, or
# kept the process busy.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use IO::Async::Loop;
use Test::More;
use TestClient;
use TestServer;
use TestTools   qw(patience);
use Time::HiRes qw(sleep);

use constant {
    DEADLINE => 2,
    LONGER   => 2.5,
    SHORTER  => 1.5,
    SOON     => 0.7,           # together with that more than the deadline
    LARGE    => 16_000_000,    # more than the kernel holds for a connection
};

my $app = async sub {
    my ($scope, $receive, $send) = @_;
    die "no\n" if $scope->{type} ne 'http';
    my ($how, $what) = $scope->{path} =~ m{\A/(\w+)/(\w+)\z} or die "unknown path\n";
    my $seconds = $what eq 'small' ? SHORTER : LONGER;
    if ($how eq 'quiet') { await IO::Async::Loop->new->delay_future(after => $seconds) }
    else                 { sleep $seconds }
    my $body = 'x' x ($what eq 'large' ? LARGE : 2);
    if ($what eq 'body') {
        my $event = await $receive->();
        $body = "got $event->{body}";
    }
    await $send->(
        { type => 'http.response.start', status => 200, headers => [ [ 'content-length', length $body ] ] });
    await $send->({ type => 'http.response.body', body => $body });
};

# A server and a client of its own: whatever else happens would tell the engine the time.
sub client {
    my (%options) = @_;
    my $server = TestServer->start(app => $app, access_log => undef, %options);
    return ($server, TestClient->new($server->port));
}

for my $how (qw(quiet busy)) {
    subtest "a body that is asked for late, $how" => sub {
        my ($server, $client) = client(body_timeout => DEADLINE);
        $client->send(
            "POST /$how/body HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
        is($client->response->{status}, 100, 'it is asked for');
        sleep SOON;
        $client->send('abcd');
        is($client->response->{body}, 'got abcd', '... and comes');
    };

    subtest "a large response, late, $how" => sub {
        my ($server, $client) = client(write_timeout => DEADLINE);
        $client->send("GET /$how/large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        my $begin = $client->some(patience(30));
        sleep SOON;
        my ($body) = ($begin . $client->rest) =~ /\r\n\r\n(x*)\z/;
        is(length $body, LARGE, 'is taken whole');
    };
}

subtest 'the next request after a late response' => sub {
    my ($server, $client) = client(timeout => DEADLINE);
    for my $turn (1, 2) {
        $client->send("GET /quiet/small HTTP/1.1\r\nHost: h\r\n\r\n");
        is($client->response->{body}, 'xx', "request $turn");
        sleep SOON;
    }
};

done_testing;
