package Peregrine::Inherited;

use strict;
use warnings;

our $VERSION = '0.003000';

use Fcntl qw(F_SETFD FD_CLOEXEC);
use Peregrine;
use Socket qw(SOL_SOCKET SO_ACCEPTCONN);

use constant FIRST_DESCRIPTOR => 3;    # sd_listen_fds(3)

# By descriptor. They stay open while the process lives, so that a server can be started again.
my %HANDLES;

sub from_environment {
    my ($class) = @_;
    my ($pid, $count) = delete @ENV{qw(LISTEN_PID LISTEN_FDS)};
    my $ports = delete $ENV{SERVER_STARTER_PORT};
    delete $ENV{LISTEN_FDNAMES};
    my @descriptors;
    if (($pid // '') eq $$ && ($count // '') =~ /\A[1-9][0-9]{0,4}\z/) {
        @descriptors = map { FIRST_DESCRIPTOR + $_ } 0 .. $count - 1;
    }
    elsif (defined $ports) {
        @descriptors = map { /=([0-9]+)\z/ ? $1 : () } split /;/, $ports;
    }
    return if !@descriptors;
    return bless { handles => { map { $_ => $class->handle($_) } @descriptors }, taken => {} }, $class;
}

sub handle {
    my ($class, $descriptor) = @_;
    return $HANDLES{$descriptor} if $HANDLES{$descriptor};
    open my $handle, '+<&=', $descriptor or die "descriptor $descriptor cannot be used: $!\n";
    $HANDLES{$descriptor} = $handle;
    my $listens = getsockopt $handle, SOL_SOCKET, SO_ACCEPTCONN;
    die "descriptor $descriptor is not a listening socket\n" if !$listens || !unpack 'i', $listens;
    fcntl $handle, F_SETFD, FD_CLOEXEC or die "descriptor $descriptor: $!\n";
    return $handle;
}

sub descriptors {
    my ($self) = @_;
    return sort { $a <=> $b } keys %{ $self->{handles} };
}

sub take {
    my ($self, $address) = @_;
    for my $descriptor ($self->descriptors) {
        my $handle = $self->{handles}{$descriptor};
        next if getsockname($handle) ne $address;
        $self->{taken}{$descriptor} = 1;
        return $handle;
    }
    return;
}

sub keep {
    my ($self, $descriptor) = @_;
    $self->{taken}{$descriptor} = 1;
    return;
}

# A child that the application forks would keep the port when this process is gone.
sub hide_from_forks {
    Peregrine::hide_from_forks($_, 1) for keys %HANDLES;
    return;
}

sub close_rest {
    my ($self) = @_;
    my @rest = grep { !$self->{taken}{$_} } $self->descriptors;
    Peregrine::hide_from_forks($_, 0) for @rest;
    delete @{ $self->{handles} }{@rest};
    delete @HANDLES{@rest};
    return @rest;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Inherited - listening sockets of whoever started the process

=head1 SYNOPSIS

    my $inherited = Peregrine::Inherited->from_environment;
    my $handle    = $inherited->take($address) if $inherited;

=head1 DESCRIPTION

Sockets passed by systemd (C<LISTEN_FDS>, L<sd_listen_fds(3)>), by L<Server::Starter>
(C<SERVER_STARTER_PORT>), or by descriptor.

=head1 METHODS

=head2 from_environment

    my $inherited = Peregrine::Inherited->from_environment;

The sockets that the environment names, or nothing. The variables are removed, so that no process that is
started from here takes the sockets for its own. Dies with a text when one is no listening socket.

=head2 handle

    my $handle = Peregrine::Inherited->handle(3);

The handle for a descriptor; dies with a text unless it is a listening socket. It stays open while
the process lives.

=head2 descriptors

    my @numbers = $inherited->descriptors;

=head2 take

    my $handle = $inherited->take($address);

The handle of the socket that is bound to this address (as C<getsockname> gives it), or nothing.

=head2 keep

    $inherited->keep(3);

This one is taken as well, by its number.

=head2 close_rest

    my @numbers = $inherited->close_rest;

Closes the sockets that nobody has taken; their numbers.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
