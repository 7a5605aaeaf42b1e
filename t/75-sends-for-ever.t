# Applications that send or receive for ever and wait for nothing else, when their client has gone: others are
# still served.
use strict;
use warnings;

use lib 't/lib';
use Future::AsyncAwait;
use Test::More;
use TestClient qw(get);
use TestServer;
use TestStream;
use TestTools qw(patience);
use TestWebSocket;

# Applications that send for ever, and never look at their connection.
my %endless = (
    http => async sub {
        my (undef, undef, $send) = @_;
        await $send->({ type => 'http.response.start', status => 200 });
        while (1) { await $send->({ type => 'http.response.body', body => 'more', more => 1 }) }
    },
    sse => async sub {
        my (undef, undef, $send) = @_;
        await $send->({ type => 'sse.start' });
        while (1) { await $send->({ type => 'sse.send', data => 'more' }) }
    },
    websocket => async sub {
        my (undef, $receive, $send) = @_;
        await $receive->();
        await $send->({ type => 'websocket.accept' });
        while (1) { await $send->({ type => 'websocket.send', text => 'more' }) }
    },
);

# Applications that call $receive for ever and do not look at its events, with the event that they start with.
my %deaf = (
    http      => 'http.response.start',
    sse       => 'sse.start',
    websocket => 'websocket.accept',
);
my $receives = async sub {
    my ($scope, $receive, $send) = @_;
    my $start = $deaf{ $scope->{type} };
    await $receive->();
    await $send->({ type => $start, $start eq 'http.response.start' ? (status => 200) : () });
    while (1) { await $receive->() }
};

my $server = TestServer->start(
    quiet            => 1,
    shutdown_timeout => patience(1),
    app              => async sub {
        my ($scope, $receive, $send) = @_;
        my $type = $scope->{type};
        die "no\n"                                        if $type eq 'lifespan';
        return await $receives->($scope, $receive, $send) if $scope->{path} eq '/deaf';
        return await $endless{$type}->($scope, $receive, $send)
            if $type ne 'http' || $scope->{path} eq '/endless';
        await $send->({ type => 'http.response.start', status => 200 });
        await $send->({ type => 'http.response.body',  body   => 'served' });
    },
);
my $port = $server->port;

my %client = (
    http      => sub { TestClient->new($port)->send("GET $_[0] HTTP/1.1\r\nHost: h\r\n\r\n") },
    sse       => sub { TestStream->open($port, $_[0]) },
    websocket => sub { TestWebSocket->open($port, $_[0]) },
);

for my $type (sort keys %endless) {
    for my $path ('/endless', '/deaf') {
        my $client = $client{$type}->($path);
        undef $client;
        for my $number (1 .. 3) {
            my $response = get($port, '/');
            is($response && $response->{body},
                'served', "$type $path: request $number after the client has gone");
        }
    }
}

is($server->stop, 0, 'the server stops');

done_testing;
