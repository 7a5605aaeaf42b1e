# The WebSocket echo of the PAGI rows; over plain HTTP it says hello. What dispatches is a plain sub that
# hands the Future on: each async sub that waits is a suspended copy of itself, some 6 KiB of memory for as
# long as the connection is open.
use strict;
use warnings;

use Future::AsyncAwait;

async sub echo {
    my ($receive, $send) = @_;
    await $receive->();    # websocket.connect
    await $send->({ type => 'websocket.accept' });
    while (1) {
        my $event = await $receive->();
        return if $event->{type} ne 'websocket.receive';
        await $send->({ type => 'websocket.send', text => $event->{text} });
    }
}

async sub hello {
    my ($send) = @_;
    await $send->({
        type    => 'http.response.start',
        status  => 200,
        headers => [ [ 'content-type', 'text/plain' ] ],
    });
    await $send->({ type => 'http.response.body', body => "Hello, World!\n" });
    return;
}

sub app {
    my ($scope, $receive, $send) = @_;
    return echo($receive, $send) if $scope->{type} eq 'websocket';
    return hello($send)          if $scope->{type} eq 'http';
    die "Unsupported scope type: $scope->{type}\n";
}

\&app;
