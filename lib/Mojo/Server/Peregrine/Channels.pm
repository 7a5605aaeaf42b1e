package Mojo::Server::Peregrine::Channels;

# The channels of the server with promises in place of Futures.

use strict;
use warnings;

use Mojo::Promise;

our $VERSION = '0.003000';

sub new {
    my ($class, $channels) = @_;
    return bless { channels => $channels }, $class;
}

sub publish { my ($self, @args) = @_; return promise_of($self->{channels}->publish(@args)) }
sub send    { my ($self, @args) = @_; return promise_of($self->{channels}->send(@args)) }
sub flush   { my ($self) = @_; return promise_of($self->{channels}->flush) }

# A promise for a Future, which lives until it is ready.
sub promise_of {
    my ($future) = @_;
    my $promise = Mojo::Promise->new;
    $future->on_done(sub { $promise->resolve(@_) });
    $future->on_fail(sub { $promise->reject(@_) });
    $future->retain;
    return $promise;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Mojo::Server::Peregrine::Channels - channels with promises

=head1 DESCRIPTION

What the helper C<channels> of L<Mojolicious::Plugin::Peregrine> gives.

=head1 METHODS

=head2 new

    my $channels = Mojo::Server::Peregrine::Channels->new($pagi_channels);

=head2 publish

=head2 send

=head2 flush

As in L<PAGI::Server::Channels>, with a L<Mojo::Promise>.

=head2 promise_of

The L<Mojo::Promise> of a Future.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
