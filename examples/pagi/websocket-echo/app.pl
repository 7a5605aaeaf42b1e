# Sends every WebSocket message back, text as text and bytes as bytes.
#
#     pagi-server examples/pagi/websocket-echo/app.pl
#
# and in a browser's console:
#
#     socket = new WebSocket('ws://127.0.0.1:5000/');
#     socket.onmessage = event => console.log(event.data);
#     socket.send('hello');
use strict;
use warnings;

use Future::AsyncAwait;

my $app = async sub {
    my ($scope, $receive, $send) = @_;
    die "Unsupported scope type: $scope->{type}" if $scope->{type} ne 'websocket';

    await $receive->();    # websocket.connect
    await $send->({ type => 'websocket.accept' });

    # A ping every 30 seconds; a client that does not answer within 20 is gone.
    await $send->({ type => 'websocket.keepalive', interval => 30, timeout => 20 });

    while (1) {
        my $event = await $receive->();
        last if $event->{type} eq 'websocket.disconnect';
        my ($kind) = grep { defined $event->{$_} } qw(text bytes);
        await $send->({ type => 'websocket.send', $kind => $event->{$kind} });
    }
    return;
};

$app;
