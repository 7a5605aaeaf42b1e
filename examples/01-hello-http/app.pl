# The smallest application, where articles about PAGI::Server look for it.
#
#     pagi-server examples/01-hello-http/app.pl
#     curl http://127.0.0.1:5000/
use strict;
use warnings;
use experimental 'signatures';
use Future::AsyncAwait;

async sub app ($scope, $receive, $send) {
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';
    my @headers = ([ 'content-type', 'text/plain' ]);
    await $send->({ type => 'http.response.start', status => 200, headers => \@headers });
    await $send->({ type => 'http.response.body', body => "Hello from PAGI!\n" });
}

\&app;
