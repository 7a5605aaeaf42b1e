# The application of script/channels: clients read a topic as an event stream or by a WebSocket, after a
# position or from the present, and publishers add entries to it.
use strict;
use warnings;
use Future::AsyncAwait;

async sub answer {
    my ($send, $body) = @_;
    my @headers = [ 'content-length', length $body ];
    await $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    return await $send->({ type => 'http.response.body', body => $body });
}

async sub stream {
    my ($scope, $receive, $send, $topic) = @_;
    my $since = length $scope->{query_string} ? $scope->{query_string} : undef;
    await $send->({ type => 'sse.start' });
    my $from = eval { await $send->({ type => 'topic.subscribe', topic => $topic, since => $since }) };
    # If the subscription fails, the stream ends, and its client comes back.
    return if !$from;
    await $send->({ type => 'sse.send', event => 'from', data => $from });
    while ((await $receive->())->{type} ne 'sse.disconnect') { }
    return;
}

async sub messages {
    my ($scope, $receive, $send, $topic) = @_;
    my $since = length $scope->{query_string} ? $scope->{query_string} : undef;
    await $send->({ type => 'websocket.accept' });
    my $from = eval { await $send->({ type => 'topic.subscribe', topic => $topic, since => $since }) };
    return await $send->({ type => 'websocket.close', code => 1013 }) if !$from;
    await $send->({ type => 'websocket.send', text => "from $from" });
    while (1) {
        my $event = await $receive->();
        return if $event->{type} eq 'websocket.disconnect';
        next   if $event->{type} ne 'topic.reset';
        await $send->({ type => 'websocket.send', text => "reset $event->{position}" });
    }
}

async sub {
    my ($scope, $receive, $send) = @_;
    die "no lifespan\n" if $scope->{type} eq 'lifespan';
    my (undef, $what, $topic) = split m{/}, $scope->{path};
    return await stream($scope, $receive, $send, $topic)   if $scope->{type} eq 'sse';
    return await messages($scope, $receive, $send, $topic) if $scope->{type} eq 'websocket';
    return await answer($send, "well\n")                   if $what eq 'health';
    my $event    = await $receive->();
    my $position = eval { await $scope->{'pagi.topics'}->publish($topic, $event->{body}) };
    return await answer($send, $position // "failed $@");
};
