package Peregrine::Acme::Process;

use strict;
use warnings;

our $VERSION = '0.003000';

use JSON::PP   ();
use List::Util qw(max min);
use Peregrine::Acme::Store;
use Peregrine::Daemon;
use Peregrine::Deadline;
use Peregrine::Fork;
use Peregrine::Link;
use POSIX ();

# Seconds between two looks at the folder, and to the next start of the child after it has ended unasked.
use constant { LOOK_S => 1, AGAIN_S => 60 };
# Limits of one message to a server: certificates, and bytes of their names.
use constant { BATCH => 100, NAMES_MAX => 12_000 };
# Bytes of a line of the child at most.
use constant LINE_MAX => 64 * 1024;

my $JSON = JSON::PP->new->canonical->utf8;

# Keys of an order that a program which takes over cannot change: it may have fewer rights, and this process
# would read files for it.
my @FIXED = qw(folder ca_file eab);

# The program: standard input is a link to the server, the argument the folder.
sub main {
    my ($folder) = @ARGV;
    $SIG{PIPE} = 'IGNORE';
    # Signals for the whole process group are meant for the server, and this process ends with the server.
    $SIG{$_} = sub { }
        for Peregrine::Fork::MASTERS_SIGNALS;
    $0 = 'peregrine (certificates)';
    my $link = Peregrine::Link->from_descriptor(POSIX::dup(0) // die "standard input: $!\n");
    open STDIN, '<', '/dev/null' or die "/dev/null: $!\n";
    _become_owner($folder);
    my $store = Peregrine::Acme::Store->new($folder);
    my $self  = bless { store => $store, shown => {}, servers => [] }, __PACKAGE__;
    $self->_join($link);
    1 while $self->_turn;
    kill TERM => $self->{child} if $self->{child};
    return;
}

# Started by the superuser, the process goes on as the user that has the folder.
sub _become_owner {
    my ($folder) = @_;
    return if $> != 0;
    my ($uid, $gid) = (stat $folder)[ 4, 5 ] or die "$folder: $!\n";
    Peregrine::Daemon->become({ uid => $uid, gid => $gid }) if $uid != 0;
    return;
}

# Waits for messages and handles them. False: no server is left.
sub _turn {
    my ($self) = @_;
    my ($bits, $facts) = ('', $self->{facts});
    vec($bits, $_, 1) = 1
        for map({ $_->{link}->descriptor } @{ $self->{servers} }), $facts ? fileno $facts : ();
    select $bits, undef, undef, LOOK_S;
    $self->_hear($_) for @{ $self->{servers} };
    my @left = grep { $_->{link}->has_ended } @{ $self->{servers} };
    $_->{link}->close for @left;
    @{ $self->{servers} } = grep { $_->{link}->handle } @{ $self->{servers} };
    return 0 if !@{ $self->{servers} };
    $self->_hear_child;
    $self->_start_child
        if $self->{orders} && !$self->{child} && Peregrine::Deadline::now() >= ($self->{again} // 0);
    $self->_show($_) for @{ $self->{servers} };
    return 1;
}

# ---- Servers ------------------------------------------------------------------------------------

# Takes up a further server program, and tells it all that is known.
sub _join {
    my ($self, $link) = @_;
    my $server = { link => $link, has => {}, text => '' };
    # Without a descriptor for the new log the process goes on with the old one.
    $link->on_no_room(sub { return $_[1] eq 'logs' });
    push @{ $self->{servers} }, $server;
    $link->say(fact => $_) for map { $self->{shown}{$_} } sort keys %{ $self->{shown} };
    return $self->_show($server);
}

sub _hear {
    my ($self, $server) = @_;
    for my $line ($server->{link}->read_lines) {
        my ($word, $text, @descriptors) = @$line;
        if ($word eq 'join') {
            $self->_join(Peregrine::Link->from_descriptor($_)) for @descriptors;
        }
        elsif ($word eq 'logs') { $self->_take_log($_) for @descriptors }
        elsif ($word eq 'part') { $server->{text} .= $text }
        elsif ($word eq 'orders') {
            my $orders = eval { $JSON->decode($server->{text}) };    # Expected: a part that did not come
            $server->{text} = '';
            $self->_use($orders) if ref $orders eq 'HASH';
        }
    }
    return;
}

# The descriptor of a new log, in place of the standard error. The child gets it with its next start, which
# comes soon: an order that it was at begins again.
sub _take_log {
    my ($self, $descriptor) = @_;
    POSIX::dup2($descriptor, 2);
    Peregrine::Link::close_received($descriptor);
    $self->_dismiss_child;
    return;
}

sub _dismiss_child {
    my ($self) = @_;
    kill TERM => $self->{child} if $self->{child};
    $self->{dismissed} = $self->{child};
    return;
}

sub _say {
    my ($self, $text) = @_;
    $_->{link}->say(fact => $text) for @{ $self->{servers} };
    return;
}

# Sends a server the certificates that it does not have yet, as descriptors; then `known`: it has them all.
sub _show {
    my ($self, $server) = @_;
    my ($store, $link, $has) = ($self->{store}, @{$server}{qw(link has)});
    my %new   = map { $_->[1] ne ($has->{ $_->[0] } // '') ? @$_ : () } $store->certificates_there;
    my @names = sort keys %new;
    while (@names) {
        my @batch = splice @names, 0, BATCH;
        unshift @names, pop @batch while @batch > 1 && length "@batch" > NAMES_MAX;
        my @files = grep { $_->[1] } map { [ $_ => $store->open_certificate($_) ] } @batch;
        next if !@files;
        $link->say(
            certificates => join(',', map { $_->[0] } @files),
            map { fileno $_->[1] } @files
        ) or return;    # the server is busy: later
        $has->{ $_->[0] } = $new{ $_->[0] } for @files;
    }
    $server->{known} ||= $link->say('known');
    return;
}

# ---- The child that orders certificates ----------------------------------------------------------

sub _use {
    my ($self, $orders) = @_;
    my $before = $self->{orders};
    if ($before) {
        $self->_say($JSON->encode({
            level => 'error',
            text  => "acme_folder cannot change while certificates are in use: $before->{folder} stays"
        }))
            if ($orders->{folder} // '') ne $before->{folder};
        delete @{$orders}{@FIXED};
        $orders->{$_} = $before->{$_} for grep { exists $before->{$_} } @FIXED;
        return if $JSON->encode($orders) eq $JSON->encode($before);
        $self->_dismiss_child;
    }
    delete $self->{again};
    $self->{orders} = $orders;
    return;
}

# Starts the child. If that fails, this process goes on: no other one could take its place, because it has
# given up the rights of its start.
sub _start_child {
    my ($self) = @_;
    return if eval { $self->_make_child; 1 };
    return $self->_without_child('cannot be started: ' . $@ =~ s/\s+\z//r . ', which is tried again');
}

sub _without_child {
    my ($self, $why) = @_;
    $self->{again} = Peregrine::Deadline::now() + AGAIN_S;
    return $self->_say($JSON->encode({
        level => 'error',
        text  => "the process that orders certificates $why in ${\AGAIN_S} seconds",
    }));
}

# Starts the child, a program of its own, which talks to the authority.
sub _make_child {
    my ($self) = @_;
    my @pipes  = map { pipe(my $reads, my $writes) or die "pipe: $!\n"; [ $reads, $writes ] } 1, 2;
    my ($orders, $facts) = @pipes;
    my $child = Peregrine::Fork::child() // die "fork: $!\n";
    if (!$child) {
        $SIG{$_} = 'IGNORE' for grep { $_ ne 'TERM' } Peregrine::Fork::MASTERS_SIGNALS;
        my @descriptors = (fileno $orders->[0], fileno $facts->[1]);
        Peregrine::Fork::become('certificates, orders', 'Peregrine::Acme::Keeper', \@descriptors);
    }
    close $_ for $orders->[0], $facts->[1];
    $orders->[1]->autoflush(1);
    print { $orders->[1] } $JSON->encode($self->{orders}), "\n";
    $facts->[0]->blocking(0);
    @{$self}{qw(child input facts text)} = ($child, $orders->[1], $facts->[0], '');
    return;
}

sub _hear_child {
    my ($self) = @_;
    return if !$self->{child};
    my $count;
    while ($count = sysread $self->{facts}, $self->{text}, 4096, length $self->{text}) {
        while ($self->{text} =~ s/\A([^\n]*)\n//) { $self->_tell($1) }
        $self->{text} = '' if length $self->{text} > LINE_MAX;
    }
    return if !defined $count;
    my $child = delete $self->{child};
    delete @{$self}{qw(input facts text)};
    waitpid $child, 0;
    return if $child == (delete $self->{dismissed} // 0);
    # A service manager sends TERM to all processes, the orders' too: the server is about to end.
    if (($? & 127) == POSIX::SIGTERM()) {
        $self->{again} = Peregrine::Deadline::now() + AGAIN_S;
        return;
    }
    return $self->_without_child(Peregrine::Fork::how_it_ended($?) . '; it is started again');
}

# Passes a fact of the child on. Servers get a new certificate before the fact that counts it.
sub _tell {
    my ($self, $line) = @_;
    my $fact = eval { $JSON->decode($line) } || {};    # Expected: a line that perl has printed
    $self->{shown}{ $fact->{certificate} } = $line if defined $fact->{certificate};
    if (defined $fact->{came}) { $self->_show($_) for @{ $self->{servers} } }
    return $self->_say($line);
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Acme::Process - the process that may read and write the keys of certificates

=head1 DESCRIPTION

A program that L<Peregrine::Server::Certificates> starts before the server gives up rights. It keeps them, or
takes those of the user that has the folder; a child (L<Peregrine::Acme::Keeper>) orders certificates and is
started again when it ends unasked. Each file in the folder's F<certificates> goes to the server as a
descriptor when it comes and when it changes, so neither the server nor its applications need the right to
open it. Messages of the L<Peregrine::Link>, to the process:

=over

=item part TEXT, orders

The arguments of L<Peregrine::Acme::Keeper> as JSON, in parts. A program that takes the server's place sends
them again: C<folder>, C<ca_file> and C<eab> stay those of the first.

=item logs

A descriptor: the log that takes the place of the standard error, here and in the child.

=item join

A descriptor: the link of a program that is to take the server's place. The process ends with its last link.

=back

and to the server:

=over

=item certificates NAME,NAME

The descriptor of a file for each name: chain and key.

=item known

All certificates that the folder had at the beginning have been sent.

=item fact JSON

A fact of the L<Peregrine::Acme::Keeper>.

=back

=head1 FUNCTIONS

=head2 main

The program. Standard input is the link, the argument is the folder.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
