package PAGI::Server::Options::Listening;

use strict;
use warnings;

our $VERSION = '0.003000';

# The options about where connections come in; the columns are those of PAGI::Server::Options::Table,
# which has the rest.
my $SECTION = [
    'Listening' => (
        {
            name       => 'host',
            short      => 'o',
            type       => 'string',
            default    => '127.0.0.1',
            default_of => { plackup => '0.0.0.0' },
            arg        => 'HOST',
            about      => 'An IPv4 address, an IPv6 address or a host name. C<0.0.0.0> and C<::> mean all'
                . ' interfaces. For a host name the server listens at all of its addresses.',
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
            about => 'The path of a Unix socket, in place of C<host> and C<port>. A socket file at which'
                . ' no process listens is replaced; the file is removed at the end.',
        },
        {
            name  => 'socket_mode',
            type  => 'mode',
            arg   => 'MODE',
            shown => 'what the umask leaves',
            about => 'Permissions of the file of each Unix socket: C<0660>. Users who may write to the'
                . ' file may connect.',
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
            about => 'Group of the file of each Unix socket, a name or a number.',
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
            about  => 'How long the header of the PROXY protocol may take, from the moment when the'
                . ' connection is accepted.',
        },
        {
            name  => 'trusted_proxies',
            type  => 'networks',
            many  => 1,
            arg   => 'NETWORK',
            shown => 'none',
            about => 'Networks of proxies whose header fields about clients are believed, see'
                . ' L<PAGI::Server/Trusted proxies>, written as for C<proxy_protocol>.',
        },
        {
            name    => 'forwarded_header',
            type    => 'choice',
            default => 'x-forwarded',
            of      => [qw(x-forwarded forwarded)],
            arg     => 'NAME',
            about   => 'The header fields in which trusted proxies name clients: C<x-forwarded> for'
                . ' C<X-Forwarded-For> and C<X-Forwarded-Proto>, C<forwarded> for C<Forwarded> (RFC'
                . ' 7239).',
        },
        {
            name  => 'root_path',
            type  => 'target',
            arg   => 'PATH',
            shown => 'none',
            about => 'The path at which clients see the application, C</app> for instance, if a proxy'
                . ' removes it from the paths of requests: C<root_path> begins with it, and'
                . ' C<SCRIPT_NAME> of applications of PSGI. The path stays as it came. If the proxy'
                . ' leaves paths as they are, use C<--mount /app=FILE>.',
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
            about => 'The engine answers GET and HEAD requests for this path, C</healthz> for instance,'
                . ' with 200 and C<ok>, also when C<max_connections> is reached. For a health check'
                . ' that is answered while the application computes or blocks, use C<engine =E<gt>'
                . ' thread>; with C<inline> the check waits until the application comes back to the'
                . ' event loop. The connection closes after the answer. Health checks are not in the'
                . ' access log. While the server stops, connections that were open before get 503; new'
                . ' ones are refused.',
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
