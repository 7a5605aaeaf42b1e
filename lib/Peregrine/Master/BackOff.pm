package Peregrine::Master::BackOff;

use strict;
use warnings;

our $VERSION = '0.003000';

use List::Util       qw(min);
use Peregrine::Later qw(later);

# After the first failure a child starts at once; after each further one the wait is twice as long.
use constant { FIRST_S => 0.5, MOST_S => 30 };

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

sub new {
    my ($class, %args) = @_;
    return bless { %args{qw(loop on_time)}, failures => {}, timers => {} }, $class;
}

sub note_failure { my ($self, $number) = @_; return ++$self->{failures}{$number} }

sub note_success {
    my ($self, $number) = @_;
    delete $self->{failures}{$number};
    return;
}

# Whether the start of a child with this number, or of any child, waits for its time.
sub waits {
    my ($self, $number) = @_;
    return (defined $number ? $self->{timers}{$number} : %{ $self->{timers} }) ? 1 : 0;
}

# Has `on_time` called after these seconds, unless a start of this number waits already.
sub wait_for {
    my ($self, $number, $seconds) = @_;
    my $end = sub { my ($self) = @_; delete $self->{timers}{$number}; $self->{on_time}->(); return };
    $self->{timers}{$number} //= later($self->{loop}, $seconds, $self, $end);
    return;
}

# Delays the next start of a child with this number, the longer the more have failed in a row. Returns the
# number of failures and the seconds; nothing if it is not to wait, or waits already.
sub delay {
    my ($self, $number) = @_;
    my $failures = $self->{failures}{$number} // 0;
    return if $failures < 2 || $self->waits($number);
    my $seconds = min(MOST_S, FIRST_S * 2**min(8, $failures - 2));
    $self->wait_for($number, $seconds);
    return ($failures, $seconds);
}

sub forget {
    my ($self) = @_;
    $self->{loop}->unwatch_time($_) for values %{ $self->{timers} };
    @{$self}{qw(failures timers)} = ({}, {});
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Master::BackOff - failures of children in a row, and the starts that wait because of them

=head1 SYNOPSIS

    my $back_off = Peregrine::Master::BackOff->new(loop => $loop, on_time => sub { start_missing() });
    $back_off->note_failure($number);
    my ($failures, $seconds) = $back_off->delay($number);
    return if $back_off->waits($number);

=head1 DESCRIPTION

Keeps for each number of a L<master's|Peregrine::Master> children how many have failed in a row, and the timer
of the next start. C<on_time> is called when a start has waited. C<forget> drops failures and timers: the next
children start without a wait.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
