# Startup and shutdown: what is made once, before the first request, is in every request's state.
#
#     pagi-server examples/pagi/lifespan/app.pl
#     curl http://127.0.0.1:5000/
use strict;
use warnings;

use Future::AsyncAwait;

async sub lifespan {
    my ($scope, $receive, $send) = @_;
    while (1) {
        my $event = await $receive->();
        if ($event->{type} eq 'lifespan.startup') {
            $scope->{state}{started} = time;
            $scope->{state}{counter} = { requests => 0 };    # a reference: all requests share it
            print STDERR "application: started\n";
            await $send->({ type => 'lifespan.startup.complete' });
        }
        elsif ($event->{type} eq 'lifespan.shutdown') {
            print STDERR "application: stopped after $scope->{state}{counter}{requests} requests\n";
            await $send->({ type => 'lifespan.shutdown.complete' });
            return;
        }
    }
}

async sub http {
    my ($scope, $receive, $send) = @_;
    my $state  = $scope->{state};
    my $number = ++$state->{counter}{requests};
    my $body   = "request $number since $state->{started}\n";
    await $send->({
        type    => 'http.response.start',
        status  => 200,
        headers => [ [ 'content-type', 'text/plain' ], [ 'content-length', length $body ] ],
    });
    await $send->({ type => 'http.response.body', body => $body });
    return;
}

async sub app {
    my ($scope, $receive, $send) = @_;
    return await lifespan(@_) if $scope->{type} eq 'lifespan';
    return await http(@_)     if $scope->{type} eq 'http';
    die "Unsupported scope type: $scope->{type}\n";
}

\&app;
