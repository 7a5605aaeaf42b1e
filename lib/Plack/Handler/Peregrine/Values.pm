package Plack::Handler::Peregrine::Values;

use strict;
use warnings;

our $VERSION = '0.003000';

use IO::Socket::UNIX;
use PerlIO::scalar ();    # perl would load it for the first handle of a string, which is after the fork
use Scalar::Util   qw(blessed reftype);

# Bytes of a piece of a body from a handle.
use constant PIECE_BYTES => 65_536;

sub plain {
    my ($response) = @_;
    die "the application returned no response: " . _named($response) . _hint($response) . "\n"
        if !_is_list($response);
    my ($status, $headers, @rest) = @$response;
    die "a response is [ status, headers, body ], not a list of ${\scalar @$response}\n"
        if @$response < 2 || @$response > 3;
    die "the headers are no list: " . _named($headers) . "\n" if !_is_list($headers);
    my @plain = (_string($status), [ map { _string($_) } @$headers ]);
    return \@plain if !@rest;
    my $body = $rest[0];
    return [ @plain, [ map { _string($_) } @$body ] ] if ref $body eq 'ARRAY';
    return [ @plain, $body ];
}

sub _is_list {
    my ($value) = @_;
    return ref $value && (reftype($value) // '') eq 'ARRAY';
}

# The end of a message about a Future in place of a response: async subs return one in any case.
sub _hint {
    my ($response) = @_;
    return blessed $response && $response->isa('Future')
        ? ', as those of PAGI do, which pagi-server and peregrine run'
        : '';
}

sub _named {
    my ($value) = @_;
    return 'undef'                           if !defined $value;
    return 'an object of ' . blessed($value) if blessed($value);
    return ref $value ? 'a reference to ' . ref $value : "'" . substr($value, 0, 40) . "'";
}

sub _string {
    my ($value) = @_;
    return defined $value ? "$value" : undef;
}

sub line {
    my ($body) = @_;
    local $/ = \PIECE_BYTES;
    my $line = $body->getline;
    return ref $line ? "$line" : $line;    # converts an object here, where its code may die
}

sub close {
    my ($body) = @_;
    $body->close if blessed($body) ? $body->can('close') : (reftype($body) // '') eq 'GLOB';
    return;
}

sub input {
    my ($bytes) = @_;
    $bytes = '' if !defined $bytes;
    open my $handle, '<', \$bytes or die "cannot open a string: $!\n";
    return $handle;
}

sub file {
    my ($descriptor) = @_;
    open my $handle, '<&=', $descriptor or die "cannot open a descriptor: $!\n";
    binmode $handle;
    return $handle;
}

sub socket {
    my ($descriptor) = @_;
    my $handle = IO::Socket::UNIX->new_from_fd($descriptor, '+<') or die "cannot open a socket: $!\n";
    $handle->autoflush(1);
    return $handle;
}

sub clean_up {
    my ($handlers, $env) = @_;
    my @failed;
    for my $handler (@$handlers) {
        eval { $handler->($env); 1 } or push @failed, $@;
    }
    die join '', @failed if @failed;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Plack::Handler::Peregrine::Values - what PSGI applications get and give, where Perl is the better language

=head1 DESCRIPTION

Functions that L<Peregrine>'s bridge calls. Each may die; the bridge reports that with the request.

=head1 FUNCTIONS

=head2 plain

A response whose status and headers are strings, as is each piece of a body that is a list: of one that is
tied, or has objects in it. Dies of what is no response.

=head2 line

The next piece of a body that is a handle or an object with C<getline>, 64 KiB at most of a
handle; undef at its end.

=head2 close

Closes such a body, if it can be closed.

=head2 input

A handle on a string, for C<psgi.input>.

=head2 file

A handle for C<psgi.input> on a descriptor, which belongs to the handle from then on.

=head2 socket

A handle for C<psgix.io> on a descriptor, which belongs to the handle from then on.

=head2 clean_up

Calls the C<psgix.cleanup.handlers>, each one whatever happens in others.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
