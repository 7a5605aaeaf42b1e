# The application of script/bench-pool: WebSockets that echo, and requests of which each fifth takes 50 ms, in
# the pool or here.
use strict;
use warnings;

use Future::AsyncAwait;
use Time::HiRes qw(sleep);

my ($asked, $called) = (0, 0);

async sub answer {
    my ($send, $body) = @_;
    await $send->({ type => 'http.response.start', status => 200, headers => [] });
    await $send->({ type => 'http.response.body', body => $body });
    return;
}

async sub echo {
    my ($receive, $send) = @_;
    await $send->({ type => 'websocket.accept' });
    while (1) {
        my $event = await $receive->();
        return if $event->{type} eq 'websocket.disconnect';
        await $send->({ type => 'websocket.send', text => $event->{text} }) if defined $event->{text};
    }
}

my %handlers = (
    '/quick'    => async sub { return },
    '/called'   => async sub { await $_[0]->call('wait', args => [0.05]) if ++$called % 5 == 0 },
    '/blocking' => async sub { sleep 0.05                                if ++$asked % 5 == 0 },
);

# Empty calls, some of them at the same time.
async sub calls {
    my ($pool, $count, $together) = @_;
    for (my $made = 0; $made < $count; $made += $together) {
        my @calls = map { $pool->call('nothing') } 1 .. $together;
        for my $call (@calls) { await $call }
    }
    return;
}

async sub {
    my ($scope, $receive, $send) = @_;
    return await echo($receive, $send)        if $scope->{type} eq 'websocket';
    die "Unsupported scope: $scope->{type}\n" if $scope->{type} ne 'http';
    my $pool = $scope->{pagi}{extensions}{worker_pool};
    if ($scope->{path} =~ m{\A/calls/([0-9]+)/([0-9]+)\z}) { await calls($pool, $1, $2) }
    else                                                   { await $handlers{ $scope->{path} }->($pool) }
    await answer($send, "Hello\n");
};
