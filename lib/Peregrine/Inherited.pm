package Peregrine::Inherited;

use strict;
use warnings;

our $VERSION = '0.003000';

use Fcntl qw(F_SETFD FD_CLOEXEC);
use Peregrine;
use Peregrine::Handover;
use Socket qw(AF_INET AF_INET6 AF_UNIX SOL_SOCKET SO_ACCEPTCONN pack_sockaddr_in pack_sockaddr_in6
    sockaddr_family unpack_sockaddr_in unpack_sockaddr_in6 unpack_sockaddr_un);

use constant FIRST_DESCRIPTOR => 3;    # sd_listen_fds(3)

# Inherited handles by descriptor. They stay open while the process lives, for a server that starts again.
my %HANDLES;
my $HANDED_OVER;
# The program that has passed sockets to this process or to its predecessor: systemd, starter, or none.
my $SOURCE = '';

sub from_environment {
    my ($class)  = @_;
    my $handover = Peregrine::Handover->from_environment;
    my @brought  = $handover ? $handover->descriptors : ();
    if (@brought) {
        $SOURCE = $handover->source;
        # Several servers of this process find their sockets in one object.
        return $HANDED_OVER //= bless {
            handles  => { map { $_ => $class->handle($_) } @brought },
            taken    => {},
            handover => $handover
        }, $class;
    }
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
    $SOURCE = defined $ports ? 'starter' : 'systemd';
    return bless { handles => { map { $_ => $class->handle($_) } @descriptors }, taken => {} }, $class;
}

# Whether from_environment would find sockets for all places of this program; takes none away.
sub are_expected {
    my ($class) = @_;
    my $handover = Peregrine::Handover->from_environment;
    return $handover->is_for_all if $handover;
    return 1                     if defined $ENV{SERVER_STARTER_PORT};
    return ($ENV{LISTEN_PID} // '') eq $$ && $ENV{LISTEN_FDS} ? 1 : 0;
}

sub source { return $SOURCE }

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

sub main_descriptors {
    my ($self) = @_;
    return $self->{handover} ? $self->{handover}->main_descriptors : $self->descriptors;
}

sub descriptors {
    my ($self) = @_;
    return sort { $a <=> $b } keys %{ $self->{handles} };
}

sub take {
    my ($self, $address) = @_;
    for my $descriptor ($self->descriptors) {
        my $handle = $self->{handles}{$descriptor};
        next if $self->{taken}{$descriptor} || !$self->_is_at($descriptor, $address);
        $self->{taken}{$descriptor} = 1;
        return $handle;
    }
    return;
}

# Gives back descriptors, which other listeners may take then.
sub give_back {
    my ($self, @descriptors) = @_;
    delete @{ $self->{taken} }{@descriptors};
    return;
}

# Whether a socket is bound to an address. A socket of the old program's may have been asked for with port 0.
sub _is_at {
    my ($self, $descriptor, $address) = @_;
    my $bound = getsockname $self->{handles}{$descriptor};
    return 1 if _without_padding($bound) eq _without_padding($address);
    my $asked = $self->{handover} ? $self->{handover}->asked_port($descriptor) : undef;
    return 0 if !defined $asked;
    return 1 if $asked eq unpack 'H*', $address;
    return $asked eq '0' && with_port($bound, 0) eq $address ? 1 : 0;
}

# The kernel tells the address of a Unix socket up to the end of its path, Perl fills it with zeros.
sub _without_padding {
    my ($address) = @_;
    return sockaddr_family($address) == AF_UNIX ? (unpack_sockaddr_un($address))[0] : $address;
}

sub with_port {
    my ($address, $port) = @_;
    my $family = sockaddr_family($address);
    return pack_sockaddr_in($port, (unpack_sockaddr_in($address))[1]) if $family == AF_INET;
    return $address                                                   if $family != AF_INET6;
    my (undef, $ip, $scope, $flow) = unpack_sockaddr_in6($address);
    return pack_sockaddr_in6($port, $ip, $scope, $flow);
}

# Whether an older process of this server has had the sockets: then files of Unix sockets are this one's.
sub is_handover { return $_[0]{handover} ? 1 : 0 }

# Whether the inherited sockets are listened at if no option names a place.
sub is_for_all { return !$_[0]{handover} || $_[0]{handover}->is_for_all ? 1 : 0 }

sub keep {
    my ($self, $descriptor) = @_;
    $self->{taken}{$descriptor} = 1;
    return;
}

# Closes the sockets in children that the application forks: they would keep the ports when this process is
# gone.
sub hide_from_forks {
    Peregrine::hide_from_forks($_, 1) for keys %HANDLES;
    return;
}

# Closes all other sockets in a process that serves only these: the kernel gives connections to each socket
# that is open in any process.
sub leave_others {
    my ($class, @sockets) = @_;
    my %kept = map { fileno($_) => 1 } @sockets;
    close $_ for delete @HANDLES{ grep { !$kept{$_} } keys %HANDLES };
    return;
}

sub _rest {
    my ($self) = @_;
    return grep { !$self->{taken}{$_} } $self->descriptors;
}

# Names of Unix sockets that no listener has taken, as they were asked for.
sub names_of_rest {
    my ($self) = @_;
    return map { $self->{handover}->asked_port($_) }
        grep { sockaddr_family(getsockname $self->{handles}{$_}) == AF_UNIX } $self->_rest;
}

# Closes the old program's sockets that the new program does not use, once it serves.
sub close_rest {
    my ($self, $serving) = @_;
    return if $self->{handover} && !$serving;
    my @rest = $self->_rest;
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

The sockets that the environment names, those of a L<Peregrine::Handover> first, or nothing. The variables
are removed, so that no process that is started from here takes the sockets for its own. Dies with a text
when one is no listening socket.

=head2 are_expected

    say 'somebody has passed sockets' if Peregrine::Inherited->are_expected;

Whether the environment names sockets for this process that are meant for all that it serves. It may be asked
before L</from_environment>.

=head2 source

    say 'systemd' if Peregrine::Inherited->source eq 'systemd';

The program that has passed them, once they were asked for: C<systemd>, C<starter> (L<Server::Starter>), or
an empty text. After a handover: to the first program.

=head2 handle

    my $handle = Peregrine::Inherited->handle(3);

The handle for a descriptor; dies with a text unless it is a listening socket. It stays open while
the process lives.

=head2 descriptors, main_descriptors

    my @numbers = $inherited->descriptors;

All, and those that are meant for what the program serves.

=head2 take

    my $handle = $inherited->take($address);

The handle of the socket that is bound to this address (as C<getsockname> gives it), or nothing.

=head2 give_back

    $inherited->give_back(fileno $handle);

They may be taken again: their listeners have closed.

=head2 with_port

    my $address = Peregrine::Inherited::with_port($address, 8080);

The address with another port; one without ports as it is.

=head2 is_handover, is_for_all

    listen_at_all() if $inherited->is_for_all;

Whether they come from a L<Peregrine::Handover>, and whether they are to be listened at when no place is
named.

=head2 keep

    $inherited->keep(3);

This one is taken as well, by its number.

=head2 leave_others

    Peregrine::Inherited->leave_others($handle);

Closes all of them but these, in a process that serves no others.

=head2 names_of_rest

    my @names = $inherited->names_of_rest;

After a L<Peregrine::Handover>: the old program's Unix sockets that nobody has taken, as
L<Peregrine::Listener/sockets> has their addresses.

=head2 close_rest

    my @numbers = $inherited->close_rest;

Closes the sockets that nobody has taken; their numbers.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
