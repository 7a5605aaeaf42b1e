package Peregrine::Listeners;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future::Exception;
use Peregrine::Inherited;
use Peregrine::Listener;
use Peregrine::Place;
use POSIX ();

sub new {
    my ($class) = @_;
    return bless { places => [] }, $class;
}

# ---- Places --------------------------------------------------------------------------------------

sub choose {
    my ($self, $places, %args) = @_;
    @{$self}{qw(places defaults unnamed)} = ([@$places], @args{qw(defaults unnamed)});
    return $self;
}

sub places { return @{ $_[0]{places} } }

# The places, and the sockets that the process has inherited. A place may ask for one; all are used if no
# option says where to listen.
sub _wanted {
    my ($self) = @_;
    my $inherited = $self->{inherited} //= eval { Peregrine::Inherited->from_environment };
    die Future::Exception->new("Cannot use inherited sockets: $@", 'listen', 0) if !$inherited && $@;
    return ($self->{places}, $inherited)
        if !$inherited || !$self->{unnamed} || !$inherited->is_for_all;
    $self->{takes_all} = 1;
    my @places = map { Peregrine::Place->new("fd:$_") } $inherited->main_descriptors;
    return ([ map { $_->with_defaults($self->{defaults} || {}) } @places ], $inherited);
}

sub plan {
    my ($self) = @_;
    my ($places, $inherited) = $self->_wanted;
    return Peregrine::Listener->plan_all($places, inherited => $inherited);
}

# ---- Opening, handing over, closing --------------------------------------------------------------

sub open {
    my ($self,   %args)      = @_;
    my ($places, $inherited) = $self->_wanted;
    @args{qw(inherited taken)} = ($inherited, $self->{taken} = []);
    my @opened = eval { Peregrine::Listener->open_all($places, %args) };
    if (!@opened) {
        $self->_give_back;
        die ref $@ ? Future::Exception->new($@->{message}, 'listen', @{$@}{qw(errno host port)}) : $@;
    }
    $self->{opened} = \@opened;
    return $inherited ? $inherited->close_rest : ();
}

sub is_open { return $_[0]{opened} ? 1                  : 0 }
sub all     { return $_[0]{opened} ? @{ $_[0]{opened} } : () }

sub are_spread {
    return scalar grep { $_->is_spread } $_[0]->all;
}

sub open_for {
    my ($self, $process) = @_;
    $_->open_for($process) for $self->all;
    return;
}

sub keep_for {
    my ($self, @which) = @_;
    $self->_keep($self->sockets_for(@which));
    return $self->leave_others;
}

sub leave_others {
    my ($self) = @_;
    return Peregrine::Inherited->leave_others(map { $_->{socket} } $self->all);
}

sub _keep {
    my ($self, @sockets) = @_;
    my @all = $self->all;
    $self->{opened} = [ map { $all[ $_->[0] ]->with_socket($_->[1]) } @sockets ];
    return;
}

# Pairs of a listener's number and a socket: the sockets of the process; for the first process also those of
# processes beyond `count`.
sub sockets_for {
    my ($self, $process, $count) = @_;
    my @all = $self->all;
    return map {
        my $at = $_;
        map { [ $at, $_ ] } $all[$at]->sockets_for($process, $count)
    } 0 .. $#all;
}

sub leave_sockets {
    my ($self) = @_;
    $_->leave_sockets for $self->all;
    Peregrine::Inherited->leave_others;
    return;
}

sub adopt {
    my ($self, $which, $descriptors) = @_;
    my @sockets;
    for my $at (0 .. $#$which) {
        CORE::open my $socket, '+<&=', $descriptors->[$at] or die "descriptor $descriptors->[$at]: $!\n";
        push @sockets, [ $which->[$at], $socket ];
    }
    return $self->_keep(@sockets);
}

sub hand_over {
    my ($self, $worker) = @_;
    $_->{number} = _hand_over($_, $worker) for $self->all;
    Peregrine::Inherited->hide_from_forks;
    return;
}

# Gives the engine a copy of the socket, because engine and Perl each close their own. Returns the listener's
# number.
sub _hand_over {
    my ($listener, $worker) = @_;
    my $socket     = delete $listener->{socket};
    my $descriptor = POSIX::dup(fileno $socket);
    my $code       = defined $descriptor ? $worker->listen_fd($descriptor) : -1;
    return $code if $code >= 0;
    my $reason = "$!";
    POSIX::close($descriptor) if defined $descriptor;
    die Future::Exception->new('Cannot listen on ' . $listener->url('tcp') . ": $reason\n", 'listen', $! + 0);
}

# Opens sockets for all processes, also the sockets that an old program had for more processes than there are
# now.
sub open_for_all {
    my ($self, $processes) = @_;
    for my $listener ($self->all) {
        $listener->open_for($_) for 1 .. $processes;
        for (my $more = $processes + 1; $listener->open_for($more, 1); $more++) { }
    }
    return;
}

# The sockets and their descriptions for a Peregrine::Handover.
sub for_handover {
    my ($self) = @_;
    return (all => $self->{takes_all}, sockets => [ map { $_->sockets } $self->all ]);
}

# Leaves the files of sockets: the process that has the sockets now makes new files, or removes these. Files
# of unused sockets, named as they were asked for, are removed here.
sub leave_files {
    my ($self, $unused) = @_;
    $unused && $unused->{ $_->{asked} // '' } ? $_->remove_file : delete $_->{file} for $self->all;
    return;
}

sub own_files {
    my ($self) = @_;
    $_->own_file for $self->all;
    return;
}

sub remove_files {
    my ($self) = @_;
    $_->remove_file for $self->all;
    return;
}

sub close {
    my ($self) = @_;
    $self->remove_files;
    delete $self->{opened};
    return $self->_give_back;
}

# Gives inherited sockets back for another start.
sub _give_back {
    my ($self) = @_;
    my $taken = delete $self->{taken} or return;
    $self->{inherited}->give_back(@$taken) if $self->{inherited};
    return;
}

# ---- Questions ----------------------------------------------------------------------------------

sub first_with {
    my ($self, $key) = @_;
    my ($first) = grep { defined $_->{$key} } $self->is_open ? $self->all : $self->places;
    return $first ? $first->{$key} : undef;
}

sub facts {
    my ($self) = @_;
    return map { $_->facts } $self->all if $self->is_open;
    my ($places) = $self->_wanted;
    return map { $_->facts } @$places;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Listeners - the listening sockets of a server

=head1 SYNOPSIS

    my $listeners = Peregrine::Listeners->new;
    $listeners->choose([ Peregrine::Place->all({ host => 'localhost', port => 5000 }) ]);
    $listeners->open(backlog => 2048);
    ...    # fork processes, each of which has the sockets
    $listeners->hand_over($worker);

=head1 DESCRIPTION

The places at which a server is to listen, and the sockets that are bound there: opened, or taken over from
the program that has started the process (L<Peregrine::Inherited>). A process may open them and fork
others, each of which hands its own copies over to an engine's worker. Sockets that a process hands over or
closes are gone for that process, not for the others.

Knows nothing of applications, nor of HTTP. Errors are L<Future::Exception>s of the category
C<listen>, whose details are the error's number (0: no fault of the system), the host and the port.

=head1 METHODS

=head2 new

    my $listeners = Peregrine::Listeners->new;

=head2 choose

    $listeners->choose(\@places, unnamed => 1, defaults => { proxy_protocol => '10.0.0.0/8' });

The places to listen at: L<Peregrine::Place>s. C<unnamed>: nobody has asked for them, so that all inherited
sockets, if there are any, take their place, with what the C<defaults> say
(L<Peregrine::Place/with_defaults>). Sockets that are open stay as they are.

=head2 places

    my @places = $listeners->places;

The value that was chosen.

=head2 plan

    my @planned = $listeners->plan;

The listeners that L</open> would open, see L<Peregrine::Listener/plan_all>. Nothing is bound.

=head2 open

    my @unused = $listeners->open(backlog => 2048, reuseport => 0, owner => { uid => $uid, gid => $gid });

Binds the places. C<owner>: whose the files of Unix sockets are that do not say it themselves. Returns the
descriptors of inherited sockets that no place asks for; they are closed. Dies when one place cannot be had;
then none is open.

=head2 is_open

    $listeners->open(backlog => 128) if !$listeners->is_open;

True from L</open> to L</close>.

=head2 all

    print $_->url('http'), "\n" for $listeners->all;

The L<Peregrine::Listener>s that are open, none before L</open>.

=head2 open_for

    $listeners->open_for(2);

With C<reuseport> each process that serves has sockets of its own at the same addresses, over which the
kernel spreads connections. Opens those of the process with this number, from 1 on, unless they are open;
those of the first one come by L</open>. The process that has opened them keeps them: closing a socket drops
the connections that wait there. Dies like L</open>.

=head2 open_for_all

    $listeners->open_for_all(4);

Like L</open_for>, for a number of processes, and for further sockets that a L<Peregrine::Handover>
has brought.

=head2 are_spread

    say 'each process has sockets of its own' if $listeners->are_spread;

True with C<reuseport>, and after a program that had it.

=head2 keep_for

    $listeners->keep_for(2, 4);

In the process with this number, when there are to be so many: closes its copies of all sockets that other
processes serve. The first process also serves the sockets that were opened for processes beyond the last one.

=head2 leave_others

    $listeners->leave_others;

Closes all inherited sockets but these, in a process that serves no others.

=head2 sockets_for, leave_sockets, adopt

    my @sockets = $listeners->sockets_for(2, 4);
    $listeners->leave_sockets;
    $listeners->adopt([0, 1], [ $descriptor, $other ]);

For a process that does not inherit the sockets, but is sent them: in the one that has them, what the process
with this number serves when there are to be so many, as C<[$which, $handle]> each; in one that it descends
from, closing its copies; and in the process itself, taking those over that have come, with the C<$which> of
each.

=head2 hand_over

    $listeners->hand_over($worker);

Gives the sockets to a L<Peregrine/WORKER>, which accepts from now on, and closes this process's copies. Each
listener has its C<number> there. Children of this process will not inherit the sockets.

=head2 for_handover, leave_files, own_files

    my $handover = Peregrine::Handover->start($listeners->for_handover, ...);
    $listeners->leave_files(\%unused);
    $listeners->own_files;    # in the other process

The sockets for another process; and what is to be done when that has taken them over: the files of Unix
sockets are its own then. Files of sockets that it does not use, by their addresses in hexadecimal digits, are
removed.

=head2 remove_files

    $listeners->remove_files;

Removes the files of Unix sockets, in the process that has made them, as soon as nobody is to find them any
more.

=head2 close

    $listeners->close;

Removes the files, and closes the sockets that were not handed over. They may be opened again.

=head2 first_with

    my $port = $listeners->first_with('port');

The C<port>, C<path> or other value of the first listener that has it; of the first place, before L</open>.

=head2 facts

    my @facts = $listeners->facts;

Hash references about the listeners, see L<PAGI::Server/listeners>.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
