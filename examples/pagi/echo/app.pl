# Sends the request body back as it arrives, piece by piece, never holding more than one piece.
#
#     pagi-server examples/pagi/echo/app.pl
#     curl --data-binary @file http://127.0.0.1:5000/
use strict;
use warnings;

use Future::AsyncAwait;

async sub app {
    my ($scope, $receive, $send) = @_;
    die "Unsupported scope type: $scope->{type}\n" if $scope->{type} ne 'http';

    my ($type) = map { $_->[1] } grep { $_->[0] eq 'content-type' } @{ $scope->{headers} };
    await $send->({
        type    => 'http.response.start',
        status  => 200,
        headers => [ [ 'content-type', defined $type ? $type : 'application/octet-stream' ] ],
    });
    my $more = 1;
    while ($more) {
        my $event = await $receive->();
        return if $event->{type} eq 'http.disconnect';
        $more = $event->{more};
        await $send->({ type => 'http.response.body', body => $event->{body}, more => $more });
    }
    return;
}

\&app;
