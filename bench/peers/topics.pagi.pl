# The PAGI application of the rows of one publisher: all connections to /ws and /events read the topic "news",
# bodies that are posted to /publish are published there. What dispatches is a plain sub, as in echo.pagi.pl.
use strict;
use warnings;

use Future::AsyncAwait;

async sub reads {
    my ($receive, $send, $start) = @_;
    await $send->({ type => $start });
    await $send->({ type => 'topic.subscribe', topic => 'news' });
    while (1) {
        my $event = await $receive->();
        return if $event->{type} =~ /disconnect/;
    }
}

async sub answer {
    my ($scope, $receive, $send) = @_;
    my ($body, $more) = ('', $scope->{method} eq 'POST');
    while ($more) {
        my $event = await $receive->();
        $body .= $event->{body} // '';
        $more = $event->{more};
    }
    await $scope->{'pagi.topics'}->publish('news', $body) if length $body;
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
    return reads($receive, $send, 'websocket.accept') if $scope->{type} eq 'websocket';
    return reads($receive, $send, 'sse.start')        if $scope->{type} eq 'sse';
    return answer($scope, $receive, $send) if $scope->{type} eq 'http';
    die "Unsupported scope type: $scope->{type}\n";
}

\&app;
