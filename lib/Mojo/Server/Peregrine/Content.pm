package Mojo::Server::Peregrine::Content;

# Content of a response whose chunks are framed by the engine.

use strict;
use warnings;

use Mojo::Base 'Mojo::Content::Single';

our $VERSION = '0.003000';

sub _build_chunk {
    my ($self, $chunk) = @_;
    return $chunk;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Mojo::Server::Peregrine::Content - content of a response without framing

=head1 DESCRIPTION

A L<Mojo::Content::Single> whose C<write_chunk> adds no framing. For L<Mojo::Server::Peregrine>.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
