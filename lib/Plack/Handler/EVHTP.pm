package Plack::Handler::EVHTP;

use strict;
use warnings;

our $VERSION = '0.003000';

use parent qw(Plack::Handler::Peregrine);

# `--max-workers` of others, so that what is given as `--workers` wins.
sub defaults {
    my ($self) = @_;
    return defined $self->{workers} ? () : (max_workers => 8);
}

1;

__END__

=encoding UTF-8

=head1 NAME

Plack::Handler::EVHTP - serves PSGI applications with Peregrine, in eight workers

=head1 SYNOPSIS

    plackup -s EVHTP
    plackup -s EVHTP -E production --host 0.0.0.0 --port 5001 -a that-app.psgi

=head1 DESCRIPTION

L<Plack::Handler::Peregrine> with another default: eight workers. They are processes; interpreters that are
cloned into threads of one process are not there yet, so that C<CLONE> is not called: a database handle is
best opened at the first request of a worker.

A worker that computes accepts no connections, so that new ones come to idle workers; requests on
connections that it has wait. With C<--engine thread> a worker accepts and answers malformed requests
while it computes, too.

=head1 OPTIONS

Those of L<Plack::Handler::Peregrine/OPTIONS>, with these defaults:

=over

=item --host (0.0.0.0), --port (5000)

=item --max-workers (8)

Worker processes. 0: the application runs in the process of plackup.

=item --max-reqs-per-child (0)

Requests after which a worker is replaced; 0: never.

=back

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
