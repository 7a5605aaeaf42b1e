package Mojo::Server::Peregrine::Transaction;

# A transaction whose connection gets a name, and a stream in the event loop, when the application asks for
# the connection.

use strict;
use warnings;

use Mojo::Base 'Mojo::Transaction::HTTP';

our $VERSION = '0.003000';

my $NAMED = 0;

sub connection {
    my ($self, @name) = @_;
    return $self->SUPER::connection(@name) if @name;
    return $self->{connection} // $self->_name_connection;
}

sub _name_connection {
    my ($self) = @_;
    my $name = 'peregrine-' . ++$NAMED;
    $self->{peregrine}->name_stream($name) if $self->{peregrine};
    $self->SUPER::connection($name);
    return $name;
}

# Sends an interim response of status 103; may be called several times before the response. The engine sends
# clients of HTTP/1.0 none.
sub early_hints {
    my ($self, $headers) = @_;
    $self->{peregrine}->inform(103, $headers) if $self->{peregrine};
    return $self;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Mojo::Server::Peregrine::Transaction - a transaction of a request that the engine has read

=head1 SYNOPSIS

    $c->tx->early_hints({ Link => '</style.css>; rel=preload; as=style' });

=head1 DESCRIPTION

A L<Mojo::Transaction::HTTP> for L<Mojo::Server::Peregrine>.

=head1 METHODS

Those of L<Mojo::Transaction::HTTP>, and

=head2 connection

    my $stream = Mojo::IOLoop->stream($c->tx->connection);

The name of a L<Mojo::Server::Peregrine::Stream>, which L<Mojo::IOLoop> knows until the exchange ends.

=head2 early_hints

    $c->tx->early_hints({
        Link => ['</style.css>; rel=preload; as=style', '</app.js>; rel=preload; as=script'],
    });

Sends an interim response with the status 103 (RFC 8297), whose fields tell a browser what it will need,
before the response itself is made. Browsers heed it over HTTP/2. Without the option
C<extension=informational> of the server, and before event streams, nothing is sent.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
