package PAGI::Server::Answer;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future::AsyncAwait;

async sub whole {
    my ($scope, $send, $status, $headers, $body) = @_;
    my $event = $scope->{type} eq 'sse' ? 'sse.http.response' : 'http.response';
    await $send->({ type => "$event.start", status => $status, headers => $headers });
    await $send->({ type => "$event.body", body => ($scope->{method} // '') eq 'HEAD' ? '' : $body });
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Answer - the events of a response that is there as a whole

=head1 SYNOPSIS

    my @headers = ([ 'content-type', 'text/plain' ]);
    await PAGI::Server::Answer::whole($scope, $send, 404, \@headers, "Not Found\n");

=head1 FUNCTIONS

=head2 whole

    my $future = PAGI::Server::Answer::whole($scope, $send, $status, \@headers, $body);

Sends a start and a body, in a scope of the type C<http> or C<sse>. An answer to HEAD has no body.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
