package Peregrine::Acme::Problem;

use strict;
use warnings;

our $VERSION = '0.003000';

use overload '""' => sub { $_[0]{text} }, fallback => 1;

sub new {
    my ($class, %facts) = @_;
    return bless {%facts}, $class;
}

sub text        { return $_[0]{text} }
sub type        { return $_[0]{type}   // '' }
sub status      { return $_[0]{status} // 0 }
sub retry_after { return $_[0]{retry_after} }

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Acme::Problem - why there is no certificate yet

=head1 DESCRIPTION

An exception of L<Peregrine::Acme::Client>.

=head1 METHODS

=head2 new

    die Peregrine::Acme::Problem->new(text => $sentence, type => 'rateLimited', retry_after => 3600);

=head2 text, type, status, retry_after

The sentence; the type of the authority's problem document without its prefix (RFC 8555 section 6.7), or an
empty string; the status of the answer, or 0; the seconds that the authority wants to be left alone, or undef.
As a string: the sentence.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
