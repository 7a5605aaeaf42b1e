package Peregrine::Master::Canary;

use strict;
use warnings;

our $VERSION = '0.003000';

use Peregrine::Canary;
use Peregrine::Deadline;
use Peregrine::Tally;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

sub new {
    my ($class, %args) = @_;
    my $self = bless {
        %args{qw(child old tally)},
        until   => Peregrine::Deadline::now() + $args{seconds},
        before  => {},                                            # by id: figures when the canary began
        last    => {},                                            # by id: figures of children that have ended
        crashes => 0,                                             # of the old code
        stalled => undef,    # since when requests are at work here and none ends: { since, ended, others }
    }, $class;
    $self->{before}{ $_->{id} } = $self->_now($_) for @{ $args{others} };
    return $self;
}

sub child { return $_[0]{child} }
sub old   { return $_[0]{old} }

sub is {
    my ($self, $child) = @_;
    return $self->{child} == $child ? 1 : 0;
}

sub _is_old {
    my ($self, $child) = @_;
    return $child->{generation} < $self->{child}{generation} ? 1 : 0;
}

# ---- Changes of children -------------------------------------------------------------------------

# Notes that a child of the old code takes the place of another one.
sub note_replaced {
    my ($self, $old, $new) = @_;
    $self->{old} = $new if $self->{old} == $old;
    return;
}

# To be called before the child's place in the tally serves another one.
sub note_end {
    my ($self, $child) = @_;
    $self->{last}{ $child->{id} } = $self->_now($child) if $self->is($child) || $self->_is_old($child);
    return;
}

sub note_crash {
    my ($self, $child) = @_;
    $self->{crashes}++ if $self->_is_old($child);
    return;
}

# ---- Figures ------------------------------------------------------------------------------------

sub _now {
    my ($self, $child) = @_;
    return defined $child->{tally} ? $self->{tally}->figures($child->{tally}) : Peregrine::Tally::nothing();
}

# The figures of the canary, and of all old code since the canary serves. `children`: those that run.
sub figures {
    my ($self, @children) = @_;
    my ($last, $before, $own) = (@{$self}{qw(last before)}, $self->{child}{id});
    my @others = grep { $self->_is_old($_) } @children;
    my %there  = map  { $_->{id} => $self->_now($_) } $self->{child}, @others;
    my %all    = (%there, %$last);
    my $new    = Peregrine::Tally::add(Peregrine::Tally::nothing(), delete $all{$own}, 1);
    my $ever   = Peregrine::Tally::nothing();
    Peregrine::Tally::add($ever, $_, 1) for values %all;
    my $old = Peregrine::Tally::add(Peregrine::Tally::nothing(), $ever, 1);
    Peregrine::Tally::add($old, $before->{$_}, -1) for grep { $before->{$_} } keys %all;
    return ({ %$new, interpreters => 1, crashes => 0 },
        { %$old, interpreters => scalar @others, crashes => $self->{crashes}, ever => $ever->{lengths} });
}

sub _ended {
    my ($figures) = @_;
    return $figures->{ended} + $figures->{unanswered};
}

# Notes for how long requests are at work here of which none has ended, and how many have ended elsewhere.
sub _look_for_stall {
    my ($self, $now, $new, $old) = @_;
    my $ended = _ended($new);
    my $stall = $self->{stalled};
    $stall = undef if $new->{asked} <= $ended || $stall && $stall->{ended} != $ended;
    $stall ||= { since => $now, ended => $ended, others => _ended($old) } if $new->{asked} > $ended;
    $self->{stalled}        = $stall or return;
    $new->{stalled}         = $now - $stall->{since};
    $old->{ended_meanwhile} = _ended($old) - $stall->{others};
    return;
}

# ---- The verdict --------------------------------------------------------------------------------

# The verdict: worse (with the reason), leaves, trusted, or nothing yet; and the figures.
sub verdict {
    my ($self, $now, @children) = @_;
    my @figures = $self->figures(@children);
    $self->_look_for_stall($now, @figures);
    my $why = Peregrine::Canary::worse(@figures);
    return worse   => $why, @figures if defined $why;
    return leaves  => undef, @figures if $self->{child}{state} ne 'serving';
    return trusted => undef, @figures if $now >= $self->{until};
    return;
}

# After the canary has ended by itself: whether that speaks against the new code, and the figures.
sub verdict_on_crash {
    my ($self, @children) = @_;
    my ($new,  $old)      = $self->figures(@children);
    $new->{crashes} = 1;
    return (defined Peregrine::Canary::worse($new, $old) ? 1 : 0, $new, $old);
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Master::Canary - one child with new code beside those with the old code

=head1 DESCRIPTION

Part of L<Peregrine::Master>: the time in which one child is tried, and what the master has counted of it and
of the others. L<Peregrine::Canary> has the rule. Starts and ends no child.

=head1 METHODS

=head2 new

    my $canary = Peregrine::Master::Canary->new(
        child => $new, old => $replaced, others => \@children, tally => $tally, seconds => 60,
    );

=head2 child, old, is

The child with the new code, the one that it is to replace; whether a child is the canary.

=head2 note_replaced, note_end, note_crash

A child with the old code has taken the place of another one; a child has ended; a child has crashed.

=head2 figures

    my ($new, $old) = $canary->figures(@children);

Of both kinds of code, as L<Peregrine::Canary> takes them.

=head2 verdict

    my ($verdict, $why, $new, $old) = $canary->verdict($now, @children);

C<worse>, C<leaves>, C<trusted>, or nothing as long as the time is not over.

=head2 verdict_on_crash

    my ($is_worse, $new, $old) = $canary->verdict_on_crash(@children);

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
