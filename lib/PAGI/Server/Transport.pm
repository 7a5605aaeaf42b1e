package PAGI::Server::Transport;

use strict;
use warnings;

our $VERSION = '0.003000';

use Peregrine;    # defines the methods, in C

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Transport - the pagi.transport object of a request

=head1 SYNOPSIS

    my $transport = $scope->{'pagi.transport'};
    $transport->on_high_water(sub { $source->pause });
    $transport->on_drain(sub { $source->resume });

=head1 DESCRIPTION

Tells how much output of a request waits for the peer. An application that awaits its C<$send> needs none of
this.

=head1 METHODS

=head2 buffered_amount

    my $bytes = $transport->buffered_amount;

Bytes that were sent and are not yet with the kernel.

=head2 high_water_mark

    my $bytes = $transport->high_water_mark;

=head2 low_water_mark

    my $bytes = $transport->low_water_mark;

=head2 on_high_water

    $transport->on_high_water(sub { ... });

Calls back each time that the queue reaches the high mark; at once if it is there.

=head2 on_drain

    $transport->on_drain(sub { ... });

Calls back each time that the queue has fallen below the low mark after having reached the high one.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
