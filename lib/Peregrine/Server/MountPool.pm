package Peregrine::Server::MountPool;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use List::Util qw(min);
use PAGI::Server::Options;
use Peregrine::Later qw(later);
use Scalar::Util     qw(weaken);
use Socket           qw(AF_UNIX PF_UNSPEC SOCK_SEQPACKET);

# Seconds between two attempts to start interpreters that cannot start; doubled each time.
use constant { TRY_S => 1, TRY_MAX_S => 30 };

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# `mount`: its path, host, workers, group, identity and options. The sockets outlive the engine's process.
sub new {
    my ($class, %args) = @_;
    my $self = bless { %args{qw(loop log mount make)}, tries => 0, replaced => 0 }, $class;
    weaken($self->{loop});
    socketpair $self->{engine_socket}, $self->{join_socket}, AF_UNIX, SOCK_SEQPACKET, PF_UNSPEC
        or die "socketpair: $!\n";
    return $self;
}

sub group    { return $_[0]{mount}{group} }
sub workers  { return $_[0]{mount}{workers} }
sub identity { return $_[0]{mount}{identity} }

# Options that these workers have instead of the server's.
sub options {
    my ($self) = @_;
    my $given = $self->{mount}{options} || {};
    return { map { $_ => $given->{$_} } grep { PAGI::Server::Options::is_known($_) } keys %$given };
}

# Whether these workers may reach the hub, if the server has one.
sub has_channels { return $_[0]->options->{channels} // 1 }

sub limits {
    my ($self, $options) = @_;
    my ($all,  $own)     = ({ %$options, %{ $self->options } }, $self->options);
    my %engines = %{ PAGI::Server::Options::engine_limits($own) };
    $engines{no_topics} = 1                      if !$self->has_channels;
    $engines{topics}    = $self->{mount}{topics} if defined $self->{mount}{topics};
    return { exchanges => $all->{max_concurrency}, %engines };
}

sub log           { return $_[0]{log} }
sub master        { return $_[0]{master} }
sub join_socket   { return $_[0]{join_socket} }
sub engine_socket { return $_[0]{engine_socket} }

# Closes the sockets in a child. An interpreter of this mount has the handle by which it joins.
sub leave_sockets {
    my ($self) = @_;
    delete @{$self}{qw(engine_socket join_socket)};
    return;
}

# Starts the interpreters. The Future never fails, as other mounts serve without this one. True: some serve.
sub start {
    my ($self) = @_;
    my $timer = delete $self->{timer};
    $self->{loop}->unwatch_time($timer) if $timer;
    weaken(my $weak = $self);
    $self->{replaced} += $self->{master}->replaced if $self->{master};
    my $master   = $self->{master} = $self->{make}->($self);
    my $starting = $master->start->on_ready(sub {
        my ($started) = @_;
        return if !$weak || $weak->{stopping};
        my ($reason) = $started->failure;
        return $weak->_try_later($reason) if defined $reason;
        $weak->{tries} = 0;
        delete $weak->{problem};
        return $weak->{log}->info('the workers serve');
    });
    return $starting->then(sub { Future->done(1) })->else(sub { Future->done(0) })->retain;
}

sub _try_later {
    my ($self, $reason) = @_;
    my $wait = min(TRY_MAX_S, TRY_S * 2**min(8, $self->{tries}++));
    $self->{problem} = $reason =~ s/\s+\z//r;
    $self->{log}
        ->error("no worker serves, requests for this mount wait and are refused (503); the next try is in"
            . " $wait s: $self->{problem}");
    $self->{timer} = later($self->{loop}, $wait, $self, sub { delete $_[0]{timer}; $_[0]->start });
    return;
}

sub _has_workers { return $_[0]{master} && !$_[0]{timer} ? 1 : 0 }

# Whether there is no worker, and the next one starts later, because others have failed.
sub waits { return $_[0]->_has_workers ? $_[0]{master}->waits : 1 }

sub restart {
    my ($self) = @_;
    return $self->{master}->restart if $self->_has_workers;
    return $self->start;
}

# The reason why the last start, or the last restart, was given up.
sub problem {
    my ($self) = @_;
    return $self->{problem} // ($self->{master} ? $self->{master}->given_up : undef);
}

sub replaced {
    my ($self) = @_;
    return $self->{replaced} + ($self->{master} ? $self->{master}->replaced : 0);
}

# The name of the mount: its path, below a host if it has one.
sub name { return name_of($_[0]{mount}) }

sub name_of {
    my ($mount) = @_;
    my ($host, $path) = @{$mount}{qw(host path)};
    return ($host // '') . (length $path ? $path : '/');
}

# Ends the interpreters; `way`: `stop` or `retire`.
sub end {
    my ($self, $way) = @_;
    my $has_workers = $self->_has_workers;
    my $timer       = delete $self->{timer};
    $self->{loop}->unwatch_time($timer) if $timer && $self->{loop};
    $self->{stopping} = 1;
    return $has_workers ? $self->{master}->$way : Future->done;
}

sub hurry {
    my ($self) = @_;
    $self->{master}->hurry if $self->_has_workers;
    return;
}

sub tell {
    my ($self, @message) = @_;
    $self->{master}->tell(@message) if $self->_has_workers;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::MountPool - the interpreters of one mount

=head1 DESCRIPTION

A mount with C<workers=N> has interpreters of its own: a group of the engine's (L<Peregrine/add_group>), which
joins by a pair of sockets of its own, and a L<Peregrine::Master> of its own. So its requests wait in a queue
of their own, and interpreters that crash, are stuck or cannot start cost no other mount a request. What
cannot start is tried again, after a second at first and half a minute at most.

=head1 METHODS

=head2 new

    my $pool = Peregrine::Server::MountPool->new(
        loop => $loop, log => $log, mount => \%mount, make => sub { my ($pool) = @_; return $master },
    );

C<make> makes a L<Peregrine::Master> that was not started.

=head2 limits

    $worker->add_group($socket, $pool->limits(\%options));

Those of the mount, and of these options of the server where it has none.

=head2 group, workers, identity, options, log, master, join_socket, engine_socket, leave_sockets

=head2 start

    $pool->start;

=head2 restart, end, hurry, tell

    my $future = $pool->restart;
    my $future = $pool->end('retire');

As those of the master; C<restart> starts the interpreters at once if they could not start.

=head2 waits

Whether there is no worker, and the next one starts later, because others have failed.

=head2 name, problem, replaced

    say $pool->name, ' has not started: ', $pool->problem if defined $pool->problem;

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
