# The hello of sync.pl as an asynchronous application.
use strict;
use warnings;

use Future::AsyncAwait;

async sub {
    my ($scope, $receive, $send) = @_;
    die "Unsupported scope: $scope->{type}\n" if $scope->{type} ne 'http';
    my @headers = ([ 'content-type', 'text/plain' ], [ 'content-length', 13 ]);
    await $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    await $send->({ type => 'http.response.body', body => 'Hello, World!' });
    return;
};
