package Peregrine::Spread;

use strict;
use warnings;

our $VERSION = '0.003000';

use Peregrine;

# Workers that may run at the same time, old and new ones.
use constant MOST => 4096;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

sub new {
    my ($class) = @_;
    return bless { words => Peregrine::Words->new(MOST + 1), free => [ 1 .. MOST ] }, $class;
}

sub words { return $_[0]{words} }

# The lowest free number, so that workers read few places of others.
sub claim {
    my ($self) = @_;
    my $number = shift @{ $self->{free} } // return;
    my $words  = $self->{words};
    $words->set(0, $number) if $number > $words->get(0);
    return $number;
}

# Unmaps the memory in a process that neither has a place nor reads those of others.
sub leave {
    my ($self) = @_;
    return $self->{words}->leave;
}

sub release {
    my ($self, $number) = @_;
    $self->{words}->set($number, 0);
    $self->{free} = [ sort { $a <=> $b } @{ $self->{free} }, $number ];
    return;
}

1;

__END__

=encoding utf-8

=head1 NAME

Peregrine::Spread - places for workers in one table

=head1 SYNOPSIS

    my $spread = Peregrine::Spread->new;
    my $number = $spread->claim;

    # in the worker's process
    $worker->share_sockets($spread->words, $number);

    # when that has ended
    $spread->release($number);

=head1 DESCRIPTION

The master of several workers gives each of them a place in one table. A worker writes there how many
connections it has, and leaves new ones to those that have fewer (L<Peregrine/share_sockets>). In another
table, its bridge writes since when the application is at one event (L<Peregrine/show_busy_in>).

=head1 METHODS

=head2 new

Maps the table. The processes that have it are those that are forked afterwards.

=head2 words

The table, a L<Peregrine::Words|Peregrine/WORDS>.

=head2 claim

The number of a place that is free; undef if 4096 workers have one each.

=head2 release

    $spread->release($number);

The worker with that place has ended.

=head2 leave

Unmaps the table in a process that has no place there.

=cut
