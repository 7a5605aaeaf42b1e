package PAGI::Server::Options::Listening;

use strict;
use warnings;

our $VERSION = '0.003000';

# The options about where connections come in; the columns are those of PAGI::Server::Options::Table,
# which has the rest.
my $SECTION = [
    'Listening' => (
        {
            name    => 'host',
            short   => 'o',
            type    => 'string',
            default => '127.0.0.1',
            arg     => 'HOST',
            about   =>
                'An IPv4 address, an IPv6 address or a host name. C<0.0.0.0> and C<::> mean all interfaces.'
                . ' A name is listened to on all of its addresses.',
        },
        {
            name    => 'port',
            short   => 'p',
            type    => 'integer',
            default => 5000,
            min     => 0,
            max     => 65_535,
            about   => 'The TCP port. 0 takes a free one.',
        },
        {
            name  => 'socket',
            type  => 'string',
            arg   => 'FILE',
            shown => 'none',
            about =>
                'The path of a Unix socket, in place of C<host> and C<port>. A socket file at which nobody'
                . ' listens is replaced; the file is removed at the end.',
        },
        {
            name  => 'socket_mode',
            type  => 'mode',
            arg   => 'MODE',
            shown => 'what the umask leaves',
            about => 'Permissions of the file of each Unix socket: C<0660>. Who may write to it may connect.',
        },
        {
            name  => 'socket_owner',
            type  => 'string',
            arg   => 'USER',
            shown => q{the process's},
            about => 'Owner of the file of each Unix socket, a name or a number.',
        },
        {
            name  => 'socket_group',
            type  => 'string',
            arg   => 'GROUP',
            shown => q{the process's},
            about => 'Its group.',
        },
        {
            name  => 'listen',
            type  => 'listen',
            many  => 1,
            arg   => 'ADDRESS[,SETTING...]',
            shown => 'none',
            about => 'Several places to listen at, each with settings of its own, see'
                . ' L<PAGI::Server/LISTENERS>: an array reference, in place of C<host>, C<port> and'
                . ' C<socket>.',
            about_command => 'Listen there, in place of C<--host>, C<--port> and C<--socket>: C<HOST:PORT>,'
                . ' C<[::1]:PORT>, C<:PORT> (all IPv4 addresses), C</path>, or C<fd:NUMBER> for an inherited socket. Settings: see'
                . ' L<PAGI::Server/LISTENERS>.',
        },
        {
            name  => 'proxy_protocol',
            type  => 'networks',
            many  => 1,
            arg   => 'NETWORK',
            shown => 'none',
            about =>
                'Connections begin with a header of the PROXY protocol, version 1 or 2, and come from these'
                . ' networks, see L<PAGI::Server/PROXY protocol>: C<10.0.0.0/8>, C<::1>, C<unix> for'
                . ' peers on Unix sockets; an array reference, or a string with commas.',
            about_command =>
                'Connections begin with a header of the PROXY protocol, version 1 or 2, and come from this'
                . ' network, see L<PAGI::Server/PROXY protocol>: C<10.0.0.0/8>, C<::1>, C<unix> for'
                . ' peers on Unix sockets.',
        },
        {
            name   => 'proxy_timeout',
            type   => 'seconds',
            engine => 'proxy_ms',
            scale  => 1000,
            live   => 1,
            about  => 'From accepting a connection with C<proxy> to the end of its PROXY header.',
        },
        {
            name  => 'trusted_proxies',
            type  => 'networks',
            many  => 1,
            arg   => 'NETWORK',
            shown => 'none',
            about => 'Proxies that are believed what they say about clients in header fields, see'
                . ' L<PAGI::Server/Trusted proxies>: networks as above.',
        },
        {
            name    => 'forwarded_header',
            type    => 'choice',
            default => 'x-forwarded',
            of      => [qw(x-forwarded forwarded)],
            arg     => 'NAME',
            about   => 'The fields in which they say it: C<x-forwarded> for C<X-Forwarded-For> and'
                . ' C<X-Forwarded-Proto>, C<forwarded> for C<Forwarded> (RFC 7239).',
        },
        {
            name  => 'root_path',
            type  => 'target',
            arg   => 'PATH',
            shown => 'none',
            about => 'Where clients see the application if a proxy takes that off their paths, C</app> for'
                . ' instance: C<root_path> begins with it, and C<SCRIPT_NAME> of applications of PSGI. The'
                . ' path stays as it came. Where the proxy leaves paths as they are, C<--mount'
                . ' /app=FILE> is what is wanted.',
        },
        {
            name    => 'listener_backlog',
            alias   => 'listen_backlog',
            short   => 'b',
            type    => 'integer',
            default => 2048,
            min     => 1,
            max     => 65_535,
            about => 'Connections that the kernel keeps waiting while the process is busy. C<listen_backlog>'
                . ' is another name for it.',
        },
        {
            name    => 'reuseport',
            type    => 'boolean',
            default => 0,
            about   => 'Other servers of the same user may listen at the same address, and the kernel spreads'
                . ' connections over them (SO_REUSEPORT).',
        },
        {
            name  => 'health_path',
            type  => 'target',
            arg   => 'PATH',
            shown => 'none',
            about =>
                'GET and HEAD requests for this path, C</healthz> for instance, are answered by the engine'
                . ' with 200 and C<ok>, also when C<max_connections> is reached. For a health check that'
                . ' is answered while the application computes or blocks, use C<engine =E<gt> thread>;'
                . ' with C<inline> it waits until the application comes back to the event loop. The'
                . ' connection closes after the answer. They are not in the access log. 503 while the'
                . ' server stops, on connections that were open before; new ones are refused then.',
        },
    )
];

sub section { return $SECTION }

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Options::Listening - the options about where connections come in, as data

=head1 SYNOPSIS

    my ($title, @options) = @{ PAGI::Server::Options::Listening::section() };

=head1 DESCRIPTION

One section of L<PAGI::Server::Options::Table>.

=head1 FUNCTIONS

=head2 section

    my $section = PAGI::Server::Options::Listening::section();

An array reference with the section's title and its options.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
