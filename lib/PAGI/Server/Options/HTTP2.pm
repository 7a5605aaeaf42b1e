package PAGI::Server::Options::HTTP2;

use strict;
use warnings;

our $VERSION = '0.003000';

# The options of HTTP/2; the columns are those of PAGI::Server::Options::Table, which has the rest.
my $SECTION = [
    'HTTP/2' => (
        {
            name   => 'http2',
            type   => 'boolean',
            engine => 'http2',
            shown  => '1 over TLS, 0 in the clear',
            about  => 'HTTP/2, see L<PAGI::Server/HTTP/2>. By default over TLS, with clients that offer'
                . ' it (ALPN). 1: also without TLS, with clients that begin with its preface (prior'
                . ' knowledge). 0: not at all.',
        },
        {
            name   => 'h2_max_concurrent_streams',
            type   => 'integer',
            engine => 'h2_streams_max',
            about  => 'Requests of one connection that may be open at a time. Further requests are'
                . ' refused, and the client may send them again (REFUSED_STREAM).',
        },
        {
            name   => 'h2_initial_window_size',
            type   => 'bytes',
            engine => 'h2_window_bytes',
            about  => 'Bytes of one request body that may be on their way, or wait for the application.'
                . ' The client sends more when the application has taken some.',
        },
        {
            name   => 'h2_connection_window_size',
            type   => 'bytes',
            engine => 'h2_connection_window_bytes',
            about  => 'Bytes of all request bodies of a connection that may be on their way, or wait for'
                . ' the application.',
        },
        {
            name   => 'h2_max_frame_size',
            type   => 'bytes',
            engine => 'h2_frame_bytes_max',
            about  => 'Bytes of one frame of a request body.',
        },
        {
            name   => 'h2_max_header_list_size',
            type   => 'bytes',
            engine => 'h2_list_bytes_max',
            about  => 'Bytes of the header fields of a request, each counted with 32 more (431). The'
                . ' limits C<max_header_size> and C<max_header_count> hold as well.',
        },
        {
            name   => 'h2_enable_connect_protocol',
            type   => 'boolean',
            engine => 'h2_connect',
            about  => 'WebSockets over HTTP/2 (RFC 8441), as browsers open them.',
        },
        {
            name    => 'h2_enable_push',
            type    => 'boolean',
            default => 0,
            missing => 'a server may not say that it takes pushes (RFC 9113 section 6.5.2)',
            about   => 'For compatibility. Only 0 is allowed: pushes need a client that asks for them, and'
                . ' no present client does.',
        },
        {
            name    => 'h2_rst_rate_limit',
            type    => 'rate',
            engines => { burst => 'h2_resets_max', rate => 'h2_resets_rate' },
            arg     => 'BURST/RATE',
            about   => 'How many requests of one connection may be cancelled by the client, or end by its'
                . ' mistakes, before they are answered: C<burst> at once, and C<rate> in each second'
                . ' after that. One more ends the connection (ENHANCE_YOUR_CALM). A hash reference'
                . ' with C<burst> and C<rate>; a missing key has its default.',
            about_command =>
                'How many requests of one connection may be cancelled by the client, or end by its'
                . ' mistakes, before they are answered: C<BURST> at once, and C<RATE> in each second'
                . ' after that. One more ends the connection (ENHANCE_YOUR_CALM).',
        },
    )
];

sub section { return $SECTION }

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Options::HTTP2 - the options of HTTP/2, as data

=head1 SYNOPSIS

    my ($title, @options) = @{ PAGI::Server::Options::HTTP2::section() };

=head1 DESCRIPTION

One section of L<PAGI::Server::Options::Table>.

=head1 FUNCTIONS

=head2 section

    my $section = PAGI::Server::Options::HTTP2::section();

An array reference with the section's title and its options.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
