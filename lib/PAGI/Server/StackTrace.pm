package PAGI::Server::StackTrace;

use strict;
use warnings;

our $VERSION = '0.003000';

use Scalar::Util qw(refaddr weaken);

# Limits of the memory for traces: the last exceptions, places of each, and characters of an identity.
use constant {
    KEPT_MAX   => 16,
    FRAMES_MAX => 50,
    TEXT_MAX   => 4096,
};

my $users = 0;
my @kept;    # [ identity, weak reference or undef, frames ]; the exception that was thrown last comes last

sub watch {
    my ($class) = @_;
    $SIG{__DIE__} = \&_record if !$users++ && !_handler();
    return bless {}, $class;
}

sub DESTROY {
    return if --$users;
    @kept = ();
    delete $SIG{__DIE__} if ${^GLOBAL_PHASE} ne 'DESTRUCT' && _handler() && $SIG{__DIE__} eq \&_record;
    return;
}

# Whether the program has a handler of its own, which stays.
sub _handler {
    my $handler = $SIG{__DIE__};
    return defined $handler && length $handler && $handler ne 'DEFAULT';
}

# Notes where an exception was thrown. Called by `die`, also in `eval`. Changes nothing that the program could
# see, and keeps neither the exception nor arguments alive.
sub _record {
    my ($exception) = @_;
    return if !defined $^S;    # code is being compiled: the message names the place
    local ($@, $!, $?);
    my $identity = _identity($exception);
    my $is_text  = $identity =~ /\Atext /;
    my $trace    = _frames();
    if (my $before = _take($identity)) {
        # An exception that is thrown again where it was caught or awaited keeps its first place.
        my $again =
              !$is_text
            || $before->[2][0] ne $trace->[0]
            || grep { defined && m{ at \S*/Future/} } @{$trace}[ 0, 1 ];
        $trace = $before->[2] if $again;
    }
    push @kept, [ $identity, $is_text ? undef : $exception, $trace ];
    weaken($kept[-1][1]) if !$is_text;
    shift @kept          if @kept > KEPT_MAX;
    return;
}

# A text that identifies an exception. A failed Future throws its failure in an object, which the Future of an
# async sub takes apart again.
sub _identity {
    my ($exception) = @_;
    $exception = $exception->[0] if ref $exception eq 'Future::Exception';
    return ref $exception ? 'reference ' . refaddr $exception : 'text ' . substr $exception // '', 0,
        TEXT_MAX;
}

# Returns the trace of an exception and forgets it. A trace whose exception was freed does not count, because
# another reference may have its address. Calls no method of the exception, not even to test its truth.
sub _take {
    my ($identity) = @_;
    for my $index (reverse 0 .. $#kept) {
        return splice @kept, $index, 1
            if $kept[$index][0] eq $identity && ($identity =~ /\Atext / || defined $kept[$index][1]);
    }
    return;
}

# The frames of the stack, from the `die` outwards.
sub _frames {
    my (@frames, $function);
    for (my $level = 1; @frames < FRAMES_MAX && (my @frame = (caller $level)[ 1 .. 3 ]); $level++) {
        my ($file, $line, $called) = @frame;
        push @frames, ($level == 1 ? 'thrown' : "$called called") . " at $file line $line"
            if $level == 1 || $called ne '(eval)';
    }
    return \@frames;
}

sub of {
    my ($self, $exception) = @_;
    my $found = _take(_identity($exception));
    return $found ? @{ $found->[2] } : ();
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::StackTrace - where exceptions were thrown

=head1 SYNOPSIS

    my $traces = PAGI::Server::StackTrace->watch;
    eval { $app->() };
    print "$_\n" for $traces->of($@);

=head1 DESCRIPTION

For development. A C<$SIG{__DIE__}> handler notes, as text, who called whom when something dies: 50 frames of
the last 16 exceptions. It keeps neither exceptions nor the arguments of functions alive, and changes no
variable that a program could see. A program that has a handler of its own keeps that, and nothing is noted.

=head1 METHODS

=head2 watch

    my $traces = PAGI::Server::StackTrace->watch;

Notes what dies until the object goes.

=head2 of

    my @lines = $traces->of($exception);

The frames of an exception, innermost first, once; an empty list if nothing is known of it. An exception
that was caught and thrown again has the places of the first time.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
