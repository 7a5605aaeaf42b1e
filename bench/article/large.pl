# Sends as many MiB as the path says, as fast as the client takes them.
use strict;
use warnings;

use Future::AsyncAwait;

my $piece = 'x' x 65_536;

async sub app {
    my ($scope, $receive, $send) = @_;
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';

    my ($mebibytes) = $scope->{path} =~ m{\A/(\d+)\z};
    my $pieces = 16 * ($mebibytes || 0);
    await $send->({
        type    => 'http.response.start',
        status  => 200,
        headers => [ [ 'content-type', 'text/plain' ], [ 'content-length', $pieces * length $piece ] ],
    });
    for my $number (1 .. $pieces) {
        await $send->({ type => 'http.response.body', body => $piece, more => 1 });
    }
    await $send->({ type => 'http.response.body', body => '' });
    return;
}

\&app;
