package Plack::Handler::Peregrine::Writer;

use strict;
use warnings;

our $VERSION = '0.003000';

# Defines the methods, in C: xs/psgi/delayed.c.
use Peregrine;

1;

__END__

=encoding UTF-8

=head1 NAME

Plack::Handler::Peregrine::Writer - sends the content of a streaming response

=head1 SYNOPSIS

    sub {
        my ($env) = @_;
        return sub {
            my ($respond) = @_;
            my $writer = $respond->([ 200, [ 'Content-Type' => 'text/plain' ] ]);
            $writer->write("one line\n");
            $writer->close;
        };
    }

=head1 METHODS

=head2 write

    $writer->write($bytes);

Sends bytes. It never waits: what the client does not take at once is kept in memory, or in a temporary file
(C<response_buffer>). After the client has
gone it does nothing. Dies of wide characters, and of more than Content-Length promised; then the
connection is cut.

=head2 close

    $writer->close;

Ends the response. A writer that nobody holds any more is closed, too.

=head2 poll_cb

    $writer->poll_cb(sub { my ($writer) = @_; $writer->write(next_piece()) });

The function is called now, and again whenever the client has taken what it wrote, until the writer is closed
or the client has gone. With C<--engine thread> or C<process> it is called ahead of that, for as much as
C<response_buffer> says.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
