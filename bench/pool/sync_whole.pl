# A hello of an application that blocks as a whole, for script/bench-pool.
use strict;
use warnings;

use PAGI::Sync qw(sync);

my $hello = sync(sub {
    my ($scope, $receive, $send) = @_;
    my @headers = ([ 'content-type', 'text/plain' ], [ 'content-length', 13 ]);
    $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    $send->({ type => 'http.response.body', body => 'Hello, World!' });
    return;
});
