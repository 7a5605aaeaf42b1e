package PAGI::Server::PSGIResponse;

use strict;
use warnings;

our $VERSION = '0.003000';

use Scalar::Util qw(blessed reftype);

sub replaced {
    my ($response, $code) = @_;
    return ($code->($response))[0] if ref $response && !blessed $response && reftype $response eq 'ARRAY';
    return $response               if ref $response ne 'CODE';
    return sub {
        my ($respond) = @_;
        return $response->(sub {
            my ($given) = @_;
            my ($new, $around) = $code->($given);
            my $writer = $respond->($new);
            return $around && @$given == 2 ? $around->($writer) : $writer;
        });
    };
}

# Whether a body has a method; a handle has methods without being an object.
sub body_can {
    my ($body, $method) = @_;
    return (blessed $body || ref $body eq 'GLOB') && $body->can($method);
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::PSGIResponse - replace the responses of PSGI applications

=head1 SYNOPSIS

    my $wrapped = sub {
        my ($env) = @_;
        return PAGI::Server::PSGIResponse::replaced($app->($env), sub {
            my ($status, $headers, @body) = @{ $_[0] };
            return [ $status, \@other_headers, @body ];
        });
    };

=head1 FUNCTIONS

=head2 replaced

    return PAGI::Server::PSGIResponse::replaced($app->($env), \&code);

Calls code with a response: at once where the application returns it, and when it calls its responder where
the response is a delayed one. The code returns the response that goes out, and perhaps a function that
makes another writer from the one of a response without a body.

=head2 body_can

    $body->close if PAGI::Server::PSGIResponse::body_can($body, 'close');

Whether a body, an object or a handle, has a method.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
