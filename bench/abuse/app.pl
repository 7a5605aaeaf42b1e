# Takes the whole request body and answers: with a greeting, or for /large with more than any socket's buffers
# take. On a WebSocket it answers each message with its length.
use strict;
use warnings;

use Future::AsyncAwait;

my $piece  = 'x' x 65_536;
my %PIECES = ('/large' => 128);

async sub app {
    my ($scope, $receive, $send) = @_;
    return await lengths($receive, $send)          if $scope->{type} eq 'websocket';
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';

    while (1) {
        my $event = await $receive->();
        return if $event->{type} eq 'http.disconnect';
        last   if !$event->{more};
    }
    await $send->(
        { type => 'http.response.start', status => 200, headers => [ [ 'content-type', 'text/plain' ] ] });
    for my $number (1 .. $PIECES{ $scope->{path} } // 0) {
        await $send->({ type => 'http.response.body', body => $piece, more => 1 });
    }
    await $send->({ type => 'http.response.body', body => "Hello\n" });
    return;
}

async sub lengths {
    my ($receive, $send) = @_;
    await $receive->();
    await $send->({ type => 'websocket.accept' });
    while (1) {
        my $event = await $receive->();
        return if $event->{type} eq 'websocket.disconnect';
        await $send->({ type => 'websocket.send', text => length($event->{text} // $event->{bytes}) });
    }
}

\&app;
