package PAGI::Server::Connection;

use strict;
use warnings;

our $VERSION = '0.003000';

use Peregrine;    # defines the methods, in C

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Connection - the pagi.connection object of a request

=head1 SYNOPSIS

    my $connection = $scope->{'pagi.connection'};
    $connection->on_disconnect(sub { my ($reason) = @_; cancel_work() });
    $connection->on_complete(sub { commit() });

=head1 DESCRIPTION

Tells how a request ends, without taking events from C<$receive>. A request ends once: either its response
was delivered, or it ended abnormally and has a reason. The object is valid as long as anybody keeps it.

Callbacks that die are logged and keep nobody else's callback from running.

=head1 METHODS

=head2 is_connected

    return if !$connection->is_connected;

False from the end of the request on, whichever end it was.

=head2 disconnect_reason

    my $reason = $connection->disconnect_reason;

Why the request ended abnormally, such as C<client_closed>; C<undef> otherwise.

=head2 on_disconnect

    $connection->on_disconnect(sub { my ($reason) = @_; ... });

Calls back when the request ends abnormally; at once if it has already.

=head2 on_complete

    $connection->on_complete(sub { ... });

Calls back when the response is complete and handed to the kernel; at once if it has been.

=head2 response_started

    return error_page() if !$connection->response_started;

Whether this request's response has begun.

=head2 response_complete

    log_truncated() if !$connection->response_complete;

Whether the application, or the server in its place, has sent the whole response.

=head2 disconnect_future

    await Future->wait_any($work, $connection->disconnect_future);

A Future that resolves with the reason when the request ends abnormally. After a race that it lost, and in
which it was cancelled, the next call gives another one: ask for it anew for each race.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
