# Says which worker answers, on WebSockets by a message; /compute takes two milliseconds of a processor, or
# as many as `ms` in its query says.
use strict;
use warnings;

use Future::AsyncAwait;
use Time::HiRes qw(CLOCK_PROCESS_CPUTIME_ID clock_gettime);

use constant COMPUTE_MS => 2;

my $number = 0;

async sub lifespan {
    my ($scope, $receive, $send) = @_;
    $number = $scope->{pagi}{worker_num};
    for my $step (qw(startup shutdown)) {
        await $receive->();
        await $send->({ type => "lifespan.$step.complete" });
    }
    return;
}

async sub websocket {
    my ($receive, $send) = @_;
    await $receive->();
    await $send->({ type => 'websocket.accept' });
    await $send->({ type => 'websocket.send', text => "$number" });
    await $receive->();
    return;
}

async sub app {
    my ($scope, $receive, $send) = @_;
    return await lifespan($scope, $receive, $send) if $scope->{type} eq 'lifespan';
    return await websocket($receive, $send)        if $scope->{type} eq 'websocket';
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';
    if ($scope->{path} eq '/compute') {
        my ($ms) = $scope->{query_string} =~ /\Ams=(\d+)\z/;
        my $end = clock_gettime(CLOCK_PROCESS_CPUTIME_ID) + ($ms // COMPUTE_MS) / 1000;
        1 while clock_gettime(CLOCK_PROCESS_CPUTIME_ID) < $end;
    }
    my @headers = ([ 'content-length', length $number ]);
    await $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    await $send->({ type => 'http.response.body', body => $number });
    return;
}

\&app;
