package LoopWithEngine;

# An IO::Async::Loop::Peregrine that waits in an engine from the start, although IO::Async's tests measure
# loops, which would keep it from that.

use strict;
use warnings;

use Peregrine;
use parent 'IO::Async::Loop::Peregrine';

our $VERSION = '0.003000';

{
    no warnings 'redefine';
    *IO::Async::Loop::Peregrine::_is_measured = sub { 0 };
}

sub new {
    my ($class) = @_;
    my $self = $class->SUPER::new;
    $self->{engine} = Peregrine::Worker->new({});
    $self->watch_engine($self->{engine}) or die "the loop does not wait in the engine\n";
    return $self;
}

1;
