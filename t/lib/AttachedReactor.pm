package AttachedReactor;

# A Mojo::Reactor::Peregrine whose first instance is attached to an IO::Async::Loop::Peregrine that waits in
# an engine, for tests that choose their reactor by MOJO_REACTOR.

use strict;
use warnings;

use Mojo::Base 'Mojo::Reactor::Peregrine';

use LoopWithEngine;

our $VERSION = '0.003000';

sub new {
    my ($class) = @_;
    my $self = $class->SUPER::new;
    $self->attach(LoopWithEngine->new) if $self->isa($class);
    return $self;
}

1;
