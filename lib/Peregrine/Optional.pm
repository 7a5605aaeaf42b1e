package Peregrine::Optional;

use strict;
use warnings;

our $VERSION = '0.003000';

sub load {
    my ($module) = @_;
    (my $file = "$module.pm") =~ s{::}{/}g;
    return 1 if eval { require $file; 1 };
    return 0 if $@ =~ /\ACan't locate \Q$file\E in \@INC/;
    die $@;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Optional - loads modules that need not be installed

=head1 SYNOPSIS

    Peregrine::Optional::load('Future::XS') or print "Future::XS is not installed\n";

=head1 FUNCTIONS

=head2 load

Whether the module could be loaded; false if it is not installed. Dies of any other error that it has.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
