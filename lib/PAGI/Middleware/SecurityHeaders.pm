package PAGI::Middleware::SecurityHeaders;

use strict;
use warnings;

our $VERSION = '0.003000';

use parent 'PAGI::Middleware';

use Carp qw(croak);

my @FIELDS = qw(
    x_frame_options x_content_type_options x_xss_protection referrer_policy
    strict_transport_security content_security_policy permissions_policy
);

my %DEFAULT = (
    x_frame_options        => 'SAMEORIGIN',
    x_content_type_options => 'nosniff',
    x_xss_protection       => '1; mode=block',
    referrer_policy        => 'strict-origin-when-cross-origin',
);

my %IS_START =
    map { $_ => 1 } qw(http.response.start sse.start sse.http.response.start websocket.http.response.start);

sub _init {
    my ($self, $config) = @_;
    my %unknown = %$config;
    delete @unknown{@FIELDS};
    croak 'SecurityHeaders does not know ' . join(', ', sort keys %unknown) . "; it knows @FIELDS"
        if %unknown;
    my %value = (%DEFAULT, %$config);
    $self->{secure} = [ map { [ tr/_/-/r => $value{$_} ] } grep { defined $value{$_} } @FIELDS ];
    $self->{plain}  = [ grep { $_->[0] ne 'strict-transport-security' } @{ $self->{secure} } ];
    return;
}

sub wrap {
    my ($self, $app) = @_;
    return sub {
        my ($scope, $receive, $send) = @_;
        return $app->($scope, $receive, $send) if $scope->{type} eq 'lifespan';
        my $fields = ($scope->{scheme} // '') =~ /\A(?:https|wss)\z/ ? $self->{secure} : $self->{plain};
        my $adding = sub {
            my ($event) = @_;
            return $send->($event) if ref $event ne 'HASH' || !$IS_START{ $event->{type} // '' };
            return $send->(_with($event, $fields));
        };
        return $app->($scope, $receive, $adding);
    };
}

# Adds the fields that a start does not have itself. The server refuses headers that are no list of pairs.
sub _with {
    my ($event, $fields) = @_;
    my $headers = $event->{headers} // [];
    return $event if ref $headers ne 'ARRAY' || grep { ref ne 'ARRAY' } @$headers;
    my %has = map { lc($_->[0] // '') => 1 } @$headers;
    return { %$event, headers => [ @$headers, map { [@$_] } grep { !$has{ $_->[0] } } @$fields ] };
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Middleware::SecurityHeaders - header fields that make browsers more careful

=head1 SYNOPSIS

    use PAGI::Middleware::Builder;

    my $app = builder {
        enable 'SecurityHeaders',
            x_frame_options           => 'DENY',
            strict_transport_security => 'max-age=31536000';
        $my_app;
    };

=head1 DESCRIPTION

Adds fields to the start of every response: of HTTP requests, of event streams, and of handshakes of
WebSockets that are refused with a response. A field that the application has set itself stays as it is, and
is not there twice.

=head1 SETTINGS

    setting                    default
    x_frame_options            SAMEORIGIN
    x_content_type_options     nosniff
    x_xss_protection           1; mode=block
    referrer_policy            strict-origin-when-cross-origin
    strict_transport_security  none
    content_security_policy    none
    permissions_policy         none

Each is the value of the field of that name, with dashes: C<X-Frame-Options>. C<undef> leaves a field out.

C<strict_transport_security> is sent with requests over TLS only (C<https>, C<wss>), as RFC 6797 demands;
from a trusted proxy the scheme is what the proxy says. C<x_xss_protection> means something to old browsers
only, and is among the defaults because it is among those of PAGI-Tools: C<content_security_policy> is what
protects.

=head1 SEE ALSO

L<PAGI::Middleware::Builder>. It takes what C<PAGI::Middleware::SecurityHeaders> of the distribution
PAGI-Tools documents; where that is installed, this module is not.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
