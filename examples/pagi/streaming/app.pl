# A response that is made while it is sent: one line every tenth of a second.
#
#     pagi-server examples/pagi/streaming/app.pl
#     curl -N http://127.0.0.1:5000/
use strict;
use warnings;

use Future::AsyncAwait;
use IO::Async::Loop;

my $lines = 5;

async sub app {
    my ($scope, $receive, $send) = @_;
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';

    my $loop       = IO::Async::Loop->new;          # the loop that the server runs in
    my $connection = $scope->{'pagi.connection'};
    await $send->({
        type    => 'http.response.start',
        status  => 200,
        headers => [ [ 'content-type', 'text/plain' ] ],
    });
    for my $number (1 .. $lines) {
        return if !$connection->is_connected;    # the client has left
        await $send->({ type => 'http.response.body', body => "line $number\n", more => 1 });
        await $loop->delay_future(after => 0.1);
    }
    await $send->({ type => 'http.response.body', body => "done\n" });
    return;
}

\&app;
