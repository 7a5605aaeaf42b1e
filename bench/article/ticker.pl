# Tells every subscriber of its event stream the time, ten times a second. One that is slow to read misses
# what it cannot take.
use strict;
use warnings;

use Future::AsyncAwait;
use IO::Async::Loop;
use IO::Async::Timer::Periodic;

my %subscribers;
my $timer;

sub tick {
    my $now = time;
    for my $subscriber (values %subscribers) {
        next if $subscriber->{sending} && !$subscriber->{sending}->is_ready;
        $subscriber->{sending} = $subscriber->{send}->({ type => 'sse.send', event => 'tick', data => $now });
    }
    return;
}

sub start {
    $timer = IO::Async::Timer::Periodic->new(interval => 0.1, on_tick => \&tick);
    IO::Async::Loop->new->add($timer->start);    # the loop that the server runs in
    return;
}

async sub subscription {
    my ($receive, $send) = @_;
    start() if !$timer;
    await $send->({ type => 'sse.start' });
    $subscribers{$send} = { send => $send };
    while (1) {
        my $event = await $receive->();
        last if $event->{type} eq 'sse.disconnect';
    }
    delete $subscribers{$send};
    return;
}

async sub app {
    my ($scope, $receive, $send) = @_;
    return await subscription($receive, $send)     if $scope->{type} eq 'sse';
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';
    await $send->({ type => 'http.response.start', status => 204 });
    await $send->({ type => 'http.response.body',  body   => '' });
    return;
}

\&app;
