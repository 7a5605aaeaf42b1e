package Peregrine::Later;

use strict;
use warnings;

our $VERSION = '0.003000';

use Exporter     qw(import);
use Scalar::Util qw(weaken);

our @EXPORT_OK = qw(later weakly);

sub weakly {
    my ($object, $method, @first) = @_;
    weaken($object);
    return sub { return $object ? $object->$method(@first, @_) : () };
}

sub later {
    my ($loop, $seconds, @call) = @_;
    return $loop->watch_time(after => $seconds, code => weakly(@call));
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Later - calls methods of objects that may have gone by then

=head1 SYNOPSIS

    use Peregrine::Later qw(later weakly);

    $link->watch($loop, weakly($self, _hear => $child), weakly($self, _link_ended => $child));
    later($loop, 5, $self, '_look');

=head1 FUNCTIONS

=head2 weakly

    my $function = weakly($object, $method, @arguments);

A function that calls the method with C<@arguments> and its own arguments, and does nothing if the object has
gone: it does not keep the object. The method is a name or a code reference.

=head2 later

    my $timer = later($loop, $seconds, $object, $method, @arguments);

The same function is called once, after this number of seconds. Returns what C<unwatch_time> of
L<IO::Async::Loop> wants.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
