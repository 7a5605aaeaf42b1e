package Peregrine::Deadline;

use strict;
use warnings;

our $VERSION = '0.003000';

use List::Util  qw(max);
use Time::HiRes qw(CLOCK_MONOTONIC);

sub new {
    my ($class) = @_;
    return bless {}, $class;
}

# Seconds of a clock that does not move when the time of day is set, or while the machine sleeps.
sub now { return Time::HiRes::clock_gettime(CLOCK_MONOTONIC) }

# Sets the deadline, unless an earlier one is set.
sub within {
    my ($self, $seconds) = @_;
    my $until = now() + $seconds;
    $self->{until} = $until if !$self->{until} || $until < $self->{until};
    return;
}

sub begin {
    my ($self, $seconds) = @_;
    $self->within($seconds) if !$self->{until};
    return;
}

sub left {
    my ($self, $seconds) = @_;
    return $self->{until} ? max(0, $self->{until} - now()) : $seconds;
}

# Seconds in which an interpreter that is told to leave has to end. One that is replaced may end its
# WebSockets and event streams first, unless the new one has newer code.
sub for_interpreter {
    my ($self, $options, $way, $why) = @_;
    my $recycles = $way eq 'retire' && $why ne 'restart';
    return $self->left($options->{shutdown_timeout}) + ($recycles ? $options->{recycle_timeout} : 0);
}

sub clear {
    my ($self) = @_;
    delete $self->{until};
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Deadline - when a stop has to be over

=head1 SYNOPSIS

    my $deadline = Peregrine::Deadline->new;
    $deadline->begin($options->{shutdown_timeout});
    my $seconds = $deadline->left($options->{shutdown_timeout});

=head1 DESCRIPTION

A stop has one deadline from its beginning, whatever its parts are: requests in flight, interpreters, the
application's end. The master tells its children how much of it is left.

=head1 METHODS

=head2 new, clear

    $deadline->clear;

=head2 within

    $deadline->within($seconds);

The stop is over in that time, or earlier if that was said before.

=head2 begin

    $deadline->begin($seconds);

The same unless a deadline was set before.

=head2 left

    my $left = $deadline->left($seconds);

Seconds that are left; C<$seconds> if the stop has not begun.

=head2 for_interpreter

    my $seconds = $deadline->for_interpreter(\%options, retire => 'max_requests');

Seconds that an interpreter has which is told to leave in that way.

=head1 FUNCTIONS

=head2 now

    my $seconds = Peregrine::Deadline::now();

Seconds of the monotonic clock.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
