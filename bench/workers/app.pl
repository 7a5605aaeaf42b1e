# Says which worker answers; /compute takes two milliseconds of a processor for it.
use strict;
use warnings;

use Future::AsyncAwait;
use Time::HiRes qw(CLOCK_PROCESS_CPUTIME_ID clock_gettime);

use constant COMPUTE_S => 0.002;

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

async sub app {
    my ($scope, $receive, $send) = @_;
    return await lifespan($scope, $receive, $send) if $scope->{type} eq 'lifespan';
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';
    if ($scope->{path} eq '/compute') {
        my $end = clock_gettime(CLOCK_PROCESS_CPUTIME_ID) + COMPUTE_S;
        1 while clock_gettime(CLOCK_PROCESS_CPUTIME_ID) < $end;
    }
    my @headers = ([ 'content-length', length $number ]);
    await $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    await $send->({ type => 'http.response.body', body => $number });
    return;
}

\&app;
