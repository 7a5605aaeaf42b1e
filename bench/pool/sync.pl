# A hello of a handler that blocks, for script/bench-pool.
use strict;
use warnings;

use Future::AsyncAwait;
use PAGI::Sync qw(sync);

my $hello = sync(sub {
    my ($scope, $receive, $send) = @_;
    my @headers = ([ 'content-type', 'text/plain' ], [ 'content-length', 13 ]);
    $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    $send->({ type => 'http.response.body', body => 'Hello, World!' });
    return;
});

async sub {
    my ($scope, $receive, $send) = @_;
    die "Unsupported scope: $scope->{type}\n" if $scope->{type} ne 'http';
    await $hello->(@_);
};
