package Peregrine::Listener;

use strict;
use warnings;

our $VERSION = '0.003000';

use Errno  qw(EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT ECONNREFUSED);
use Socket qw(
    AF_INET AF_INET6 AF_UNIX AI_PASSIVE IPPROTO_IPV6 IPV6_V6ONLY NI_NUMERICHOST NI_NUMERICSERV SOCK_CLOEXEC
    SOCK_NONBLOCK SOCK_STREAM SOL_SOCKET SO_REUSEADDR SO_REUSEPORT getaddrinfo getnameinfo pack_sockaddr_un
    sockaddr_family unpack_sockaddr_un
);

use File::Spec ();
use Future::Exception;
use Peregrine;
use Peregrine::File;
use Peregrine::Inherited;
use Scalar::Util qw(refaddr weaken);

# Ports that are tried, if a port that is free for one family is taken for the other one.
use constant PORT_ATTEMPTS => 8;

my %OPEN = (tcp => \&_open_tcp, unix => \&_open_unix, inherited => \&_open_inherited);
my %PLAN = (tcp => \&_plan_tcp, unix => \&_plan_unix, inherited => \&_open_inherited);

sub open_all {
    my ($class, $places, %args) = @_;
    my @opened;
    $args{addresses} = { map { $_->{kind} eq 'tcp' ? ($_ => [ _resolve(_about($_)) ]) : () } @$places };
    $args{ports_v4}  = { map { _ports_v4($_, $args{addresses}{$_}) } @$places };
    for my $place (@$places) {
        my @new = eval { $OPEN{ $place->{kind} }->($place, \%args) };
        if (!@new) {
            my $error = $@;
            $_->remove_file for @opened;
            die $error;
        }
        push @opened, map { bless { %$_, place => $place }, $class } @new;
    }
    _remember(@opened);
    return @opened;
}

# Listeners of this process, weak.
my @OPEN;

sub _remember {
    my (@opened) = @_;
    @OPEN = grep { defined } @OPEN, @opened;
    weaken($_) for @OPEN;
    return;
}

# Closes sockets of other servers of the program, in a process that was forked for a server with these
# listeners. Clients of a server that has stopped would wait at its sockets as long as the process lives.
sub leave_others {
    my ($class, @own) = @_;
    $_->leave_sockets for _others(@own);
    return;
}

sub _others {
    my (@own) = @_;
    my %own   = map { refaddr($_) => 1 } @own;
    return grep { defined && !$own{ refaddr $_ } } @OPEN;
}

sub has_others {
    my ($class, @own) = @_;
    return scalar _others(@own);
}

# The process that has begun to serve. A program may open sockets, fork one that serves them, and exit.
my $serves = 0;

sub begin_to_serve {
    $serves = $$;
    return;
}

# Where the application calls `exit`, or the program ends by an exception, no server stops in order.
END {
    local ($?, $!);
    $_->remove_file for grep { defined } @OPEN;
}

# Listeners without sockets, with the port that was asked for; one that cannot be opened has a `problem`.
sub plan_all {
    my ($class, $places, %args) = @_;
    my @planned;
    for my $place (@$places) {
        my @new = eval { $PLAN{ $place->{kind} }->($place, \%args) };
        push @planned, map { bless { %$_, place => $place }, $class } @new ? @new : { problem => $@ };
    }
    my %in_v4 = map { ($_->{host} // ':') =~ /:/ ? () : ($_->{port} => 1) } @planned;
    $_->{v6_only} = $in_v4{ $_->{port} } for grep { ($_->{host} // '') eq '::' } @planned;
    return @planned;
}

# Whether two listeners would be bound to one address, so that a start would find the second place taken.
sub meets {
    my ($self, $other) = @_;
    return 0 if grep { $_->{problem} || $_->{socket} } $self, $other;
    return _folder_and_name($self->{path}) eq _folder_and_name($other->{path})
        if defined $self->{path} && defined $other->{path};
    return 0 if !$self->{port} || $self->{port} != ($other->{port} // 0);
    my ($here, $there) = map { $_->{host} // '' } $self, $other;
    # A socket at :: takes connections of IPv4, too.
    return 1 if grep { ($_->{host} // '') eq '::' && !$_->{v6_only} } $self, $other;
    return 0 if $here =~ /:/ != $there =~ /:/;
    return $here eq $there || grep { $_ eq '0.0.0.0' || $_ eq '::' } $here, $there;
}

# A file may have several paths.
sub _folder_and_name {
    my ($path) = @_;
    my ($folder, $name)  = File::Spec->rel2abs($path) =~ m{\A(.*/)(.*)\z}s;
    my ($device, $inode) = stat $folder;
    return join ' ', $device // '', $inode // $folder, $name;
}

sub _plan_tcp {
    my ($place) = @_;
    return map { _described_address($_->{addr}) } _resolve(_about($place));
}

sub _plan_unix {
    my ($place) = @_;
    my $path    = $place->{path};
    my $reason  = -S $path ? undef : -e _ ? 'the file is not a socket' : Peregrine::File::reason($path);
    die _failure({ path => $path }, $reason) if defined $reason;
    return { type => 'unix', path => $path };
}

# Makes an exception for a place, { host, port } or { path }, at which no socket can be opened.
sub _failure {
    my ($about, $reason, $errno) = @_;
    my $where = defined $about->{path} ? "unix:$about->{path}" : "$about->{host} port $about->{port}";
    return { message => "Cannot listen on $where: $reason\n", errno => $errno || 0, %$about };
}

# ---- TCP ------------------------------------------------------------------------------------------

sub _open_tcp {
    my ($place, $args) = @_;
    my $addresses = $args->{addresses}{$place};
    my $attempts  = $place->{port} == 0 && @$addresses > 1 ? PORT_ATTEMPTS : 1;
    my $error;
    for (1 .. $attempts) {
        my @listeners = eval { _open_on($addresses, _about($place), $args) };
        return @listeners if @listeners;
        $error = $@;
        last if !ref $error || $error->{errno} != EADDRINUSE;
    }
    die $error;
}

sub _about {
    my ($place) = @_;
    return { map { $_ => $place->{$_} } qw(host port) };
}

# The port of a place that has IPv4 addresses: at this port `::` of another place can only stand for IPv6.
sub _ports_v4 {
    my ($place, $addresses) = @_;
    return if !$place->{port};
    return map { $_->{family} == AF_INET ? ($place->{port} => 1) : () } @{ $addresses || [] };
}

# All addresses of a host, each once, in the resolver's order.
sub _resolve {
    my ($about) = @_;
    my $name = $about->{host} =~ /\A\[(.*)\]\z/s ? $1 : $about->{host};
    my ($error, @found) =
        getaddrinfo($name, $about->{port}, { socktype => SOCK_STREAM, flags => AI_PASSIVE });
    die _failure($about, "$error") if $error;
    my %seen;
    return grep { !$seen{ $_->{addr} }++ } @found;
}

sub _inherited {
    my ($args, $address) = @_;
    my $socket = $args->{inherited} && $args->{inherited}->take($address) or return;
    push @{ $args->{taken} }, fileno $socket;
    return $socket;
}

sub _open_one {
    my ($address, $port, $v6_only, $args) = @_;
    my $there = Peregrine::Inherited::with_port($address->{addr}, $port);
    socket(my $socket, $address->{family}, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) or return;
    setsockopt($socket, SOL_SOCKET, SO_REUSEADDR, 1)                                      or return;
    if ($args->{reuseport}) {
        setsockopt($socket, SOL_SOCKET, SO_REUSEPORT, 1) or return;
    }
    if ($v6_only && $address->{family} == AF_INET6) {
        setsockopt($socket, IPPROTO_IPV6, IPV6_V6ONLY, 1) or return;
    }
    bind($socket, $there)             or return;
    listen($socket, $args->{backlog}) or return;
    return $socket;
}

# Opens a socket for each address, all at the same port. A family or address that this machine does not have
# is skipped as long as another one works.
sub _open_on {
    my ($addresses, $about,  $args)      = @_;
    my ($chosen,    $reason, @listeners) = ($about->{port});
    for my $address (@$addresses) {
        my $inherited = _inherited($args, Peregrine::Inherited::with_port($address->{addr}, $chosen));
        my $v6_only   = @$addresses > 1 || $args->{ports_v4}{$chosen};
        my $socket    = $inherited      || _open_one($address, $chosen, $v6_only, $args);
        if (!$socket) {
            my $failure = _failure($about, "$!", $! + 0);
            die $failure if $! != EADDRNOTAVAIL && $! != EAFNOSUPPORT;
            $reason ||= $failure;
            next;
        }
        my $listener = _described($socket);
        $chosen ||= $listener->{port};
        $listener->{asked} = $about->{port};
        $listener->{again} = [ $address, $chosen, $v6_only, $args ]
            if $inherited ? $args->{inherited}->is_handover && _is_shared($socket) : $args->{reuseport};
        push @listeners, $listener;
    }
    die $reason || _failure($about, 'the host has no address') if !@listeners;
    return @listeners;
}

# Whether further sockets may be opened at a socket's address.
sub _is_shared {
    my ($socket) = @_;
    my $value    = getsockopt $socket, SOL_SOCKET, SO_REUSEPORT;
    return $value && unpack 'i', $value;
}

# Whether processes may have sockets of their own; also if an old program had some.
sub is_spread { return $_[0]{again} ? 1 : 0 }

# Opens another socket at the same address, for another process.
sub open_for {
    my ($self, $process, $inherited_only) = @_;
    my $again = $self->{again};
    return if $process == 1 || !$again || $self->{others}{$process};
    my ($address, $port, $v6_only, $args) = @$again;
    my $inherited = _inherited($args, Peregrine::Inherited::with_port($address->{addr}, $port));
    return if !$inherited && ($inherited_only || !$args->{reuseport});
    return
        $self->{others}{$process} =
           $inherited
        || _open_one(@$again)
        || die Future::Exception->new('Cannot listen once more on ' . $self->url('tcp') . ": $!\n",
        'listen', $! + 0, @{$self}{qw(host port)});
    return;
}

# The sockets of a process, by its number. The first process also serves the sockets of processes beyond the
# count.
sub sockets_for {
    my ($self, $process, $count) = @_;
    my $others = $self->{others} || {};
    my @beyond = $process == 1 ? grep { $_ > $count } sort { $a <=> $b } keys %$others : ();
    return ($others->{$process} || $self->{socket}, @{$others}{@beyond});
}

# Closes this process's copies of the sockets. The listener keeps their addresses.
sub leave_sockets {
    my ($self) = @_;
    close $_ for grep { defined } delete $self->{socket}, values %{ delete $self->{others} || {} };
    delete $self->{again};
    return;
}

# A copy of the listener, with one of its sockets.
sub with_socket {
    my ($self, $socket) = @_;
    my %rest = %$self;
    delete $rest{others};
    return bless { %rest, socket => $socket }, ref $self;
}

# The address of a listening socket.
sub _described {
    my ($socket) = @_;
    return { socket => $socket, %{ _described_address(getsockname $socket) } };
}

sub _described_address {
    my ($address) = @_;
    if (sockaddr_family($address) == AF_UNIX) {
        my $path = unpack_sockaddr_un($address);
        return { type => 'unix', path => $path =~ s/\A\0/@/r };
    }
    my ($error, $ip, $port) = getnameinfo($address, NI_NUMERICHOST | NI_NUMERICSERV);
    return { type => 'tcp', host => $ip, port => $port + 0 };
}

# ---- Unix sockets ---------------------------------------------------------------------------------

sub _open_unix {
    my ($place, $args) = @_;
    my $path      = $place->{path};
    my $inherited = _inherited($args, pack_sockaddr_un($path));
    if ($inherited) {
        # The file of an old program's socket stays the old program's until the new one serves, and that of a
        # service manager's socket is never ours.
        my $is_ours = $args->{inherited}->is_handover && !length(Peregrine::Inherited->source);
        my %facts   = $is_ours ? _file_facts($path) : ();
        $facts{later} = delete $facts{file} if %facts;
        return { %{ _described($inherited) }, path => $path, asked => _unix_name($path), %facts };
    }
    my $descriptor = Peregrine::open_unix($path, $args->{backlog},
        map { $place->{$_} // $args->{owner}{$_} // -1 } qw(mode uid gid));
    if ($descriptor < 0) {
        my $errno = $! + 0;
        my $reason =
            $errno == EADDRINUSE ? 'another process listens there, or the file is not a socket' : "$!";
        die _failure({ path => $path }, $reason, $errno);
    }
    open my $socket, '+<&=', $descriptor or die _failure({ path => $path }, "$!", $! + 0);
    return {
        socket => $socket,
        type   => 'unix',
        path   => $path,
        asked  => _unix_name($path),
        _file_facts($path)
    };
}

# The address of a path in hexadecimal digits, as a socket may be bound by another name than its file has now.
sub _unix_name {
    my ($path) = @_;
    return unpack 'H*', pack_sockaddr_un($path);
}

# Device and inode of a socket file, by which the process knows the file that it has to remove.
sub _file_facts {
    my ($path) = @_;
    my ($device, $inode, $mode) = stat $path or return;
    return (socket_mode => $mode & oct '7777', file => "$device:$inode", pid => $$);
}

sub sockets {
    my ($self) = @_;
    return map { [ $_, $self->{asked} ] } grep { defined } $self->{socket}, values %{ $self->{others} || {} };
}

sub own_file {
    my ($self) = @_;
    $self->{file} = delete $self->{later} if defined $self->{later};
    return;
}

# Removes the socket's file in the process that made it, unless another file has taken its place. Where this
# process has not begun to serve, a process that it has forked may do so, whose clients need the file.
sub remove_file {
    my ($self) = @_;
    my $file = delete $self->{file};
    return if !defined $file || $self->{pid} != $$;
    my ($device, $inode) = lstat $self->{path} or return;
    return if "$device:$inode" ne $file;
    if ($serves != $$) {
        $self->leave_sockets;
        return if _has_listener($self->{path});
    }
    unlink $self->{path};
    return;
}

# Whether a process listens at a path; also if its queue is full.
sub _has_listener {
    my ($path) = @_;
    socket(my $socket, AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) or return 1;
    return connect($socket, pack_sockaddr_un($path)) || $! != ECONNREFUSED ? 1 : 0;
}

# ---- Inherited sockets ----------------------------------------------------------------------------

sub _open_inherited {
    my ($place, $args) = @_;
    my $descriptor = $place->{descriptor};
    my $handle     = eval { Peregrine::Inherited->handle($descriptor) };
    $args->{inherited}->keep($descriptor) if $handle && $args->{inherited};
    return _described($handle)            if $handle;
    my $reason = $@;
    $reason =~ s/\s+\z//;
    die { message => "Cannot listen on $place->{name}: $reason\n", errno => 0, host => $place->{name} };
}

# ---- Descriptions -------------------------------------------------------------------------------

sub facts {
    my ($self) = @_;
    return { map { $_ => $self->{$_} } qw(type),
        $self->{type} eq 'unix' ? qw(path socket_mode) : qw(host port) };
}

sub url {
    my ($self, $scheme) = @_;
    return "unix:$self->{path}" if $self->{type} eq 'unix';
    my $host = $self->{host} =~ /:/ ? "[$self->{host}]" : $self->{host};
    return "$scheme://$host:$self->{port}/";
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Listener - listening sockets for the places that were asked for

=head1 SYNOPSIS

    my @places    = Peregrine::Place->new('localhost:0');
    my @listeners = Peregrine::Listener->open_all(\@places, backlog => 2048);
    print $_->url('http'), "\n" for @listeners;

=head1 DESCRIPTION

A host is an IPv4 address, an IPv6 address (C<::1>, or C<[::1]>) or a name. A name is listened to on every
address that it has: C<localhost> on C<127.0.0.1> and C<::1> where both exist. With port 0 all of them share
one free port. C<::> takes IPv4 connections too, where the system allows that, unless another place has an
IPv4 address at the same port.

A Unix socket takes the place of a socket file at which nobody listens; any other file stays.

=head1 METHODS

=head2 open_all

    my @listeners =
        Peregrine::Listener->open_all(\@places, backlog => 128, reuseport => 0, inherited => $inherited);

Returns one object per socket, with C<socket>, C<type>, C<place>, and C<host> (numeric) and C<port>, or
C<path>. A socket among C<inherited> (a L<Peregrine::Inherited>) that is bound where a place asks for is
used as it is. Dies with a hash reference that has C<message>, C<errno> (0: no fault of the system), and
C<host> and C<port>, or C<path>.

=head2 plan_all

    my @planned = Peregrine::Listener->plan_all(\@places, inherited => $inherited);

The addresses at which L</open_all> would listen, as far as that can be known without binding anything:
objects without a C<socket>, with the port that was asked for. For a place at which it could not listen
there is an object with C<place> and C<problem>, which is like the exception of L</open_all>.

=head2 meets

    say 'the second place would be taken' if $planned[0]->meets($planned[1]);

Whether two that L</plan_all> has made would be bound to one address: the same one, or one that stands for the
other one as well (C<0.0.0.0>, C<::>). Sockets that the process has inherited meet nothing.

=head2 open_for, is_spread

    $listener->open_for(2);

See L<Peregrine::Listeners/open_for> and L<Peregrine::Listeners/are_spread>.

=head2 sockets_for, leave_sockets, with_socket

    my @sockets = $listener->sockets_for(2, 4);
    $listener->leave_sockets;
    my $same = $listener->with_socket($handle);

See L<Peregrine::Listeners/keep_for> and L<Peregrine::Listeners/sockets_for, leave_sockets, adopt>.

=head2 leave_others, has_others

    Peregrine::Listener->leave_others(@listeners);

In a forked process: closes its copies of the sockets of all other listeners. C<has_others>: whether the
program has any, those of other servers.

=head2 begin_to_serve

    Peregrine::Listener->begin_to_serve;

From then on L</remove_file> in this process does not ask whether another process listens.

=head2 sockets

    my @pairs = $listener->sockets;    # [ $socket, $asked ]

Those of all processes, each with the port that was asked for, or the Unix address in hexadecimal digits.

=head2 own_file

    $listener->own_file;

The file of a socket that a L<Peregrine::Handover> has brought is this process's to remove from now on.

=head2 remove_file

    $listener->remove_file;

Removes the file of a Unix socket that C<open_all> has made, if it is still the same one. So does the end of
the program. Before L</begin_to_serve> the socket is closed first, and the file stays if another process
listens there.

=head2 facts

    my $facts = $listener->facts;    # { type => 'tcp', host => '127.0.0.1', port => 5000 }

=head2 url

    my $url = $listener->url('https');    # https://127.0.0.1:5000/, or unix:/run/app.sock

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
