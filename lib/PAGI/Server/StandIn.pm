package PAGI::Server::StandIn;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future::AsyncAwait;
use PAGI::Server::Answer;
use PAGI::Server::ErrorPage;

use constant PLAIN => [
    [ [ 'content-type', 'text/plain; charset=utf-8' ], [ 'cache-control', 'no-store' ] ],
    "The application could not be started; the server's log says why.\n"
];

sub app {
    my ($class, $failure) = @_;
    my $pages = ($ENV{PAGI_ENV} || '') eq 'development' ? PAGI::Server::ErrorPage->new : undef;
    return async sub {
        my ($scope, $receive, $send) = @_;
        my $type = $scope->{type};
        return await $send->({ type => 'websocket.close' }) if $type eq 'websocket';
        die "Unsupported scope type: $type\n"               if $type !~ /\A(?:http|sse)\z/;
        my ($headers, $body) =
            @{ $pages ? $pages->page($failure, [ 'when it was started', $scope ]) : PLAIN };
        my @headers = (@$headers, [ 'content-length', length $body ]);
        return await PAGI::Server::Answer::whole($scope, $send, 500, \@headers, $body);
    };
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::StandIn - answers in place of an application that could not be started

=head1 SYNOPSIS

    my $app = PAGI::Server::StandIn->app("syntax error at app.pl line 3\n");

=head1 METHODS

=head2 app

    my $app = PAGI::Server::StandIn->app($failure);

An application that answers every request with 500: in the mode development with a page about the failure
(L<PAGI::Server::ErrorPage>), otherwise without it. WebSockets are refused.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
