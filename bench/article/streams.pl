# Streams a response over two seconds: ten pieces of a kilobyte, a fifth of a second after each.
use strict;
use warnings;

use Future::AsyncAwait;
use IO::Async::Loop;

my $piece = 'x' x 1024;

async sub app {
    my ($scope, $receive, $send) = @_;
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';

    my $loop = IO::Async::Loop->new;    # the loop that the server runs in
    await $send->({
        type    => 'http.response.start',
        status  => 200,
        headers => [ [ 'content-type', 'text/plain' ] ],
    });
    for my $number (1 .. 10) {
        await $send->({ type => 'http.response.body', body => $piece, more => 1 });
        await $loop->delay_future(after => 0.2);
    }
    await $send->({ type => 'http.response.body', body => '' });
    return;
}

\&app;
