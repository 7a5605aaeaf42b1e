package PAGI::Server::PoolHandlers;

use strict;
use warnings;

our $VERSION = '0.003000';

use Peregrine::Nearest;
use Scalar::Util qw(reftype);

# Numbers by the names in PAGI's design document, and the options of this server.
my %NUMBERS = (
    workers             => 'pool_workers',
    queue_limit         => 'pool_queue',
    job_timeout         => 'pool_timeout',
    max_jobs_per_worker => 'pool_max_calls',
    idle_timeout        => 'pool_idle_timeout',
);

# The mistake in a value of the option, or nothing.
sub problem {
    my ($value) = @_;
    return if !defined $value || !ref $value && length $value;
    return _problem_with($value, sort keys %NUMBERS);
}

# The mistake in the hash, or nothing. `more`: keys that are allowed beside `cleanup`, `handlers` and `init`.
sub _problem_with {
    my ($pool, @more) = @_;
    return "must be a hash reference, or the path of a file that returns one" if !_is($pool, 'HASH');
    my @known   = (qw(cleanup handlers init), @more);
    my %known   = map { $_ => 1 } @known;
    my ($wrong) = grep { !$known{$_} } sort keys %$pool;
    return "has no '$wrong'" . Peregrine::Nearest::hint($wrong, @known) if defined $wrong;
    return "needs 'handlers', a hash reference with a code reference for each name"
        if !_is($pool->{handlers}, 'HASH') || !%{ $pool->{handlers} };
    my ($name) = grep { !_is($pool->{handlers}{$_}, 'CODE') } sort keys %{ $pool->{handlers} };
    return "needs a code reference for the handler '$name'" if defined $name;
    my ($code) = grep { defined $pool->{$_} && !_is($pool->{$_}, 'CODE') } qw(cleanup init);
    return defined $code ? "needs a code reference for '$code'" : undef;
}

sub _is {
    my ($value, $type) = @_;
    return ref $value && reftype($value) eq $type;
}

# The options that the hash sets beside its code.
sub options_of {
    my ($pool) = @_;
    return if !_is($pool, 'HASH');
    return map { $NUMBERS{$_} => $pool->{$_} } grep { defined $pool->{$_} } keys %NUMBERS;
}

# The hash that a file returns. It has code only: numbers must be known before the file is loaded.
sub of_file {
    my ($file) = @_;
    local ($@, $!);
    my $pool = do $file;
    my $why  = $@ || (defined $pool ? '' : $!);
    die "worker_pool: $file: $why" . ($why =~ /\n\z/ ? '' : "\n") if length $why;
    my ($number) = _is($pool, 'HASH') ? grep { exists $pool->{$_} } sort keys %NUMBERS : ();
    die "worker_pool: $file: '$number' is the option $NUMBERS{$number}\n" if defined $number;
    my $problem = _problem_with($pool);
    die "worker_pool: $file $problem\n" if defined $problem;
    return $pool;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::PoolHandlers - the handlers of a worker pool, as the option worker_pool gives them

=head1 FUNCTIONS

=head2 problem

    my $text = PAGI::Server::PoolHandlers::problem($value);

What is wrong with a value of the option, or undef.

=head2 options_of

    my %options = PAGI::Server::PoolHandlers::options_of($hash);

The options whose values are in the hash beside its code.

=head2 of_file

    my $hash = PAGI::Server::PoolHandlers::of_file('/srv/pool.pl');

Dies if the file does not return a hash of handlers.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
