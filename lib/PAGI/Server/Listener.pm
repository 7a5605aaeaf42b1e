package PAGI::Server::Listener;

use strict;
use warnings;

use Errno  qw(EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT);
use Socket qw(
    AF_INET6 AI_PASSIVE IPPROTO_IPV6 IPV6_V6ONLY NI_NUMERICHOST NI_NUMERICSERV SOCK_CLOEXEC
    SOCK_NONBLOCK SOCK_STREAM SOL_SOCKET SO_REUSEADDR SO_REUSEPORT getaddrinfo getnameinfo pack_sockaddr_in
    pack_sockaddr_in6 unpack_sockaddr_in unpack_sockaddr_in6
);

# How often a port that is free on one family but taken on the other is given up for another one.
use constant PORT_ATTEMPTS => 8;

sub open_all {
    my ($class, %args) = @_;
    my @addresses = _resolve(@args{qw(host port)});
    my $attempts  = $args{port} == 0 && @addresses > 1 ? PORT_ATTEMPTS : 1;
    my $error;
    for (1 .. $attempts) {
        my @listeners = eval { _open_on(\@addresses, \%args) };
        return @listeners if @listeners;
        $error = $@;
        last if !ref $error || $error->{errno} != EADDRINUSE;
    }
    die $error;
}

sub _failure {
    my ($args, $reason, $errno) = @_;
    my $message = "Cannot listen on $args->{host} port $args->{port}: $reason\n";
    return { message => $message, errno => $errno || 0, host => $args->{host}, port => $args->{port} };
}

# All addresses of a host, each once, in the resolver's order.
sub _resolve {
    my ($host, $port) = @_;
    my $name = $host =~ /\A\[(.*)\]\z/s ? $1 : $host;
    my ($error, @found) = getaddrinfo($name, $port, { socktype => SOCK_STREAM, flags => AI_PASSIVE });
    die _failure({ host => $host, port => $port }, "$error") if $error;
    my %seen;
    return grep { !$seen{ $_->{addr} }++ } @found;
}

sub _with_port {
    my ($address, $port) = @_;
    if ($address->{family} == AF_INET6) {
        my (undef, $ip, $scope, $flow) = unpack_sockaddr_in6($address->{addr});
        return pack_sockaddr_in6($port, $ip, $scope, $flow);
    }
    my (undef, $ip) = unpack_sockaddr_in($address->{addr});
    return pack_sockaddr_in($port, $ip);
}

sub _open_one {
    my ($address, $port, $v6_only, $args) = @_;
    socket(my $socket, $address->{family}, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) or return;
    setsockopt($socket, SOL_SOCKET, SO_REUSEADDR, 1)                                      or return;
    if ($args->{reuseport}) {
        setsockopt($socket, SOL_SOCKET, SO_REUSEPORT, 1) or return;
    }
    if ($v6_only && $address->{family} == AF_INET6) {
        setsockopt($socket, IPPROTO_IPV6, IPV6_V6ONLY, 1) or return;
    }
    bind($socket, _with_port($address, $port)) or return;
    listen($socket, $args->{backlog})          or return;
    return $socket;
}

# One socket per address, all on the same port. A family or address that this machine does not have is
# passed over as long as another one works.
sub _open_on {
    my ($addresses, $args) = @_;
    my ($host,      $port) = @{$args}{qw(host port)};
    my ($chosen, $reason, @listeners) = ($port);
    for my $address (@$addresses) {
        my $socket = _open_one($address, $chosen, @$addresses > 1, $args);
        if (!$socket) {
            my $failure = _failure({ host => $host, port => $port }, "$!", $! + 0);
            die $failure if $! != EADDRNOTAVAIL && $! != EAFNOSUPPORT;
            $reason ||= $failure;
            next;
        }
        my ($error, $ip, $bound) = getnameinfo(getsockname($socket), NI_NUMERICHOST | NI_NUMERICSERV);
        $chosen ||= $bound;
        push @listeners, { socket => $socket, host => $ip, port => $bound + 0 };
    }
    die $reason || _failure({ host => $host, port => $port }, 'the host has no address') if !@listeners;
    return @listeners;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Listener - listening sockets for a host and a port

=head1 SYNOPSIS

    my @listeners = PAGI::Server::Listener->open_all(host => 'localhost', port => 0, backlog => 2048);
    print "$_->{host} $_->{port}\n" for @listeners;

=head1 DESCRIPTION

A host is an IPv4 address, an IPv6 address (C<::1>, or C<[::1]>) or a name. A name is listened to on
every address that it has: C<localhost> on C<127.0.0.1> and C<::1> where both exist. With port 0 all of
them share one free port. C<::> alone takes IPv4 connections too, where the system allows that.

=head1 METHODS

=head2 open_all

    my @listeners = PAGI::Server::Listener->open_all(host => '::1', port => 5000, backlog => 128);

Returns one hash reference per socket, with C<socket>, C<host> (numeric) and C<port>. Dies with a hash
reference that has C<message>, C<errno> (0: the name was not found), C<host> and C<port>.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
