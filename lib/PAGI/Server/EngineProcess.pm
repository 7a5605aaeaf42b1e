package PAGI::Server::EngineProcess;

use strict;
use warnings;

our $VERSION = '0.003000';

use PAGI::Server::Options;
use Peregrine;
use Peregrine::Master;
use Peregrine::WorkerProcess;
use POSIX        ();
use Scalar::Util qw(weaken);
use Socket       qw(AF_UNIX PF_UNSPEC SOCK_SEQPACKET);

# Seconds that a worker waits for an engine that is not there yet, or no longer.
use constant JOIN_S => 30;

# A stop ends the engine first, and after this many seconds the workers.
use constant LOST_S => 1;

# An engine shows within this number of seconds that it lives, where heartbeat_timeout is 0 because the
# application may block.
use constant ENGINE_BEAT_S => PAGI::Server::Options::find('heartbeat_timeout')->{default};

# Tells the engine about the applications, which are in other processes.
sub _prepare_engine { return }

# Which applications the workers will have, where the master loads none: path, host and kind of each.
sub plan_mounts {
    my ($self, @mounts) = @_;
    $self->{planned_mounts} = \@mounts;
    return $self;
}

# ---- In the master ------------------------------------------------------------------------------

# Whether the engine is in a process of its own, and the workers join it.
sub has_engine_process { return $_[0]{options}{engine} eq 'process' ? 1 : 0 }

# The pair of sockets by which workers join: both stay open here, so that a new engine has the old one's.
sub _start_engine {
    my ($self) = @_;
    socketpair $self->{engine_socket}, $self->{join_socket}, AF_UNIX, SOCK_SEQPACKET, PF_UNSPEC
        or die "socketpair: $!\n";
    my $options = $self->{options};
    weaken(my $weak = $self);
    $self->{engine_master} = Peregrine::Master->new(
        loop              => $self->loop,
        log               => $self->{log},
        name              => $self->_name_in_log . ': engine',
        role              => 'engine',
        workers           => 1,
        counters          => $self->{counters},
        heartbeat_timeout => $self->_engine_heartbeat,
        start_timeout     => PAGI::Server::Prefork::_start_timeout($options),
        stop_timeout      => sub { $weak->_stop_timeout(@_) },
        limits            => {},
        on_serving        => sub { },
        run               => sub { my ($record) = @_; return $weak->_serve_as_engine($record) },
    );
    return $self->{engine_master}->start;
}

# The engine's process never blocks. Each beat tells the number of connections, which it asks its thread for.
sub _engine_heartbeat {
    my ($self) = @_;
    return $self->{options}{heartbeat_timeout} || ENGINE_BEAT_S;
}

# Connections end with the engine: those who work for them come after it. Its future, or undef without one.
sub _end_engine {
    my ($self, $way) = @_;
    return $self->{engine_master} ? $self->{engine_master}->$way : undef;
}

# ---- In the engine's process --------------------------------------------------------------------

# Its exit status.
sub _serve_as_engine {
    my ($self, $record) = @_;
    my $server = $self->_for_worker(1);
    $server->{is_engine}     = 1;
    $server->{accepts_later} = !$self->{running};
    @{$server}{qw(engine_socket planned_mounts)} = @{$self}{qw(engine_socket planned_mounts)};
    $self->_leave_status;
    $server->use_counters($self->{counters}, $record->{column});
    return Peregrine::WorkerProcess->new(
        link              => $record->{link},
        loop              => $server->own_loop,
        server            => $server,
        log               => $server->{log},
        name              => $self->_name_in_log . ': the engine',
        heartbeat_timeout => $self->_engine_heartbeat,
    )->serve;
}

# A worker serves. Until then connections wait in the kernel: another program at the same sockets may serve
# them before, and workers that never come to the end of their start would lose them.
sub accept_connections {
    my ($self) = @_;
    $self->{worker}->pause_accepting(0) if delete $self->{accepts_later} && $self->{worker};
    return;
}

# In place of an application.
sub _use_interpreters {
    my ($self, $worker) = @_;
    $worker->serve_for($self);
    $self->_prepare_engine($worker);
    $worker->use_interpreters(fileno $self->{engine_socket}, $self->{options}{max_concurrency}) >= 0
        or die "PAGI: the engine cannot serve interpreters: $!\n";
    return;
}

# ---- In a worker's process ----------------------------------------------------------------------

# Private keys and those of tickets are for the engine alone. What OpenSSL frees it wipes.
sub _forget_keys {
    my ($self) = @_;
    $self->{configuration}->forget_keys;
    delete $_->{tls} for $self->{listeners}->all;
    return;
}

# The engine has all that is about connections. Nothing else is said to a worker that starts but that it is
# to stop.
sub _join_engine {
    my ($self) = @_;
    for (1 .. JOIN_S) {
        my $worker = eval { Peregrine::Worker->join(fileno $self->{join_socket}, 1000) };
        return $worker if $worker;
        die $@         if $@ !~ /\btimed out\b/ || $self->{link}->has_news;
    }
    die "no engine has come within ${\JOIN_S} seconds\n";
}

# The engine has gone, and a new one is about to come: another worker joins that. Unless all stop.
sub _lost_engine {
    my ($self) = @_;
    weaken(my $weak = $self);
    $self->loop->watch_time(
        after => LOST_S,
        code  => sub {
            return if !$weak || !$weak->{running};
            $weak->{log}
                ->warn($weak->_name_in_log . ': the engine has gone: another worker is to join the next one');
            $weak->{on_replace}->('engine') if $weak->{on_replace};
        }
    );
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::EngineProcess - a server whose engine is in a process of its own

=head1 DESCRIPTION

The part of L<PAGI::Server::Base> that is about C<engine =E<gt> 'process'>. The master starts a process for
the engine, which has the sockets, and workers, which have the application: they join the engine and get
requests from it, whichever of them has the least to do. Connections belong to the engine. So a worker that
dies, or is replaced, closes none.

Both kinds of process have a L<Peregrine::Master> of their own. Whoever stops the server stops the engine
first, which lets requests in flight finish; then the workers have nothing left to do.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
