package Peregrine::NewLogs;

use strict;
use warnings;

our $VERSION = '0.003000';

use Scalar::Util qw(weaken);

# Objects with a method each.
my @told;

sub tell {
    my ($class, $object, $method) = @_;
    push @told, my $entry = [ $object, $method ];
    weaken($entry->[0]);
    return;
}

sub came {
    my ($class) = @_;
    @told = grep { defined $_->[0] } @told;
    for my $entry (@told) {
        my ($object, $method) = @$entry;
        $object->$method;
    }
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::NewLogs - tells parts of a process that it has opened its logs anew

=head1 SYNOPSIS

    Peregrine::NewLogs->tell($pool, 'renew');
    Peregrine::NewLogs->came;

=head1 DESCRIPTION

A process opens its logs anew after USR1. Processes that it has forked go on with the standard error of their
start, so the part that has forked them has to replace them. This class has nothing to do with the logs
themselves.

=head1 METHODS

=head2 tell

The method of the object is called each time, as long as the object is there. It must not die.

=head2 came

The logs are new.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
