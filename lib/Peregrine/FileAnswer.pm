package Peregrine::FileAnswer;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future::AsyncAwait;
use Peregrine;

# Bytes of a piece of a file that is read here, because the answer has several ranges.
use constant PIECE_BYTES => 65_536;

# The request headers that decide about an answer.
my %DECIDES = map { $_ => 1 }
    qw(accept-encoding if-match if-modified-since if-none-match if-range if-unmodified-since range);

sub find {
    my ($class, %question) = @_;
    my @headers = grep { $DECIDES{ lc $_->[0] } } @{ $question{headers} || [] };
    my $found   = Peregrine::look_up_file({ %question, headers => \@headers }) or return;
    if (defined(my $fd = delete $found->{fd})) {
        open $found->{handle}, '<&=', $fd or die "cannot use the descriptor of a file: $!\n";
        binmode $found->{handle};
    }
    return bless $found, $class;
}

# A path, percent-encoded as in a request.
sub encoded {
    my ($path) = @_;
    return $path =~ s{([^A-Za-z0-9\-._~/])}{sprintf '%%%02X', ord $1}ger;
}

# The headers of a request, from the environment of PSGI.
sub headers_of {
    my ($env) = @_;
    my %named = map { $_ => 'HTTP_' . uc tr/-/_/r } keys %DECIDES;
    return [ map { defined $env->{ $named{$_} } ? [ $_, $env->{ $named{$_} } ] : () } sort keys %named ];
}

sub status  { return $_[0]{status} }
sub headers { return @{ $_[0]{headers} } }

# Offset and length, if the answer is one range of the file; nothing if it has bytes as well, or more ranges.
sub _range {
    my ($self) = @_;
    my @parts = @{ $self->{parts} };
    return @parts == 1 && ref $parts[0] ? @{ $parts[0] } : ();
}

async sub send {
    my ($self, $send, %other) = @_;
    my @headers = map { [ lc $_->[0], $_->[1] ] } $self->headers;
    my $prefix  = $other{prefix} // 'http.response';
    await $send->({
        type    => "$prefix.start",
        status  => $other{status} // $self->{status},
        headers => $other{headers} || \@headers
    });
    my $type = "$prefix.body";
    if (my ($offset, $length) = $self->_range) {
        return await $send->({ type => $type, fh => $self->{handle}, offset => $offset, length => $length });
    }
    my $pieces = $self->_pieces;
    while (defined(my $piece = $pieces->())) { await $send->({ type => $type, body => $piece, more => 1 }) }
    return await $send->({ type => $type, body => '' });
}

sub psgi {
    my ($self, %other) = @_;
    my $status  = $other{status}  // $self->{status};
    my $headers = $other{headers} // [ map { @$_ } $self->headers ];
    if (my ($offset) = $self->_range) {
        seek $self->{handle}, $offset, 0 or die "cannot seek in a file: $!\n";
        return [ $status, $headers, $self->{handle} ];
    }
    my @parts = @{ $self->{parts} };
    return [ $status, $headers, \@parts ] if !grep { ref } @parts;
    $self->{next} = $self->_pieces;
    return [ $status, $headers, $self ];
}

# The methods of a body for servers of PSGI.
sub getline { return $_[0]{next}->() }
sub close   { delete @{ $_[0] }{qw(handle next)}; return }    ## no critic

# A function that gives the next piece of the body, and nothing at its end.
sub _pieces {
    my ($self) = @_;
    my @parts  = @{ $self->{parts} };
    my $handle = $self->{handle};
    return sub {
        my $part = shift @parts;
        return $part if !ref $part;
        my ($offset, $left) = @$part;
        my $wanted = $left < PIECE_BYTES ? $left : PIECE_BYTES;
        sysseek $handle, $offset, 0 or die "cannot seek in a file: $!\n";
        my $count = sysread($handle, my $piece, $wanted) // die "cannot read a file: $!\n";
        die "a file ended before all of its bytes were sent\n" if !$count;
        unshift @parts, [ $offset + $count, $left - $count ] if $left > $count;
        return $piece;
    };
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::FileAnswer - what the engine would answer to a request for a file

=head1 SYNOPSIS

    my $answer = Peregrine::FileAnswer->find(
        folder  => '/srv/files',
        method  => 'GET',
        path    => '/report.pdf',
        headers => $scope->{headers},
    );
    await $answer->send($send) if $answer;    # PAGI
    return $answer->psgi;                     # PSGI

=head1 DESCRIPTION

Conditions, ranges, types and precompressed files as L<PAGI::Server::Folders> has them, by the same code, for
applications that answer themselves: L<PAGI::App::File> and the option C<x_sendfile> of L<PAGI::Server>.

=head1 METHODS

=head2 find

Nothing if there is no such file. C<folder> is absolute; C<path> begins with a slash and is percent-encoded;
C<headers> is a list of pairs. Optional are C<query>, C<index> (the file that answers for a folder),
C<default_type> (of files whose extension says nothing), C<content_type> (whatever the extension says),
C<dotfiles> (names that begin with a dot are there), C<plain> (no precompressed files). Dies if the folder
cannot be opened.

=head2 send

    await $answer->send($send, status => 404, headers => \@pairs);

As events of PAGI. Another status and other headers may be given, and C<prefix>, the beginning of the types of
the events, which is C<http.response> otherwise.

=head2 psgi

As a response of PSGI, likewise; C<headers> is a flat list there.

=head2 status, headers

The status, and the headers as a list of pairs.

=head2 getline, close

For servers that send the response of C<psgi>.

=head1 FUNCTIONS

=head2 encoded

    Peregrine::FileAnswer::encoded('/a b');    # /a%20b

A path of bytes as it stands in a request.

=head2 headers_of

    Peregrine::FileAnswer::headers_of($env);

The parts of a PSGI environment that decide about an answer.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
