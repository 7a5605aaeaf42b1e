package PAGI::Server::Monitoring;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use PAGI::Server::Banner;
use Peregrine::Counters;
use Peregrine::Inherited;
use Peregrine::Listeners;
use Peregrine::Master;
use Peregrine::Server::Configuration;
use Peregrine::WorkerProcess;
use Scalar::Util qw(weaken);

# Seconds between two signs of life of a loop.
use constant BEAT_S => 1;
# Watchers are few and quick: what more of them may cost is limited.
use constant {
    CONNECTIONS_MAX => 64,
    TIMEOUT_S       => 10,
    SHUTDOWN_S      => 1,
};

# ---- Counting -----------------------------------------------------------------------------------

sub use_counters {
    my ($self, $counters, $column) = @_;
    @{$self}{qw(counters column)} = ($counters, $column);
    return $self;
}

# When the server serves.
sub _start_counting {
    my ($self) = @_;
    my $counters = $self->{counters} or return;
    if (!$self->{worker_num} && !defined $self->{column}) {
        $self->{column}     = $counters->claim;
        $self->{gives_back} = 1;
    }
    return if !defined $self->{column};
    $counters->begin($self->{column})->count($self->{worker}, $self->{column});
    $self->_beat_later;
    return;
}

sub _beat_later {
    my ($self) = @_;
    weaken(my $weak = $self);
    $self->{beat} = $self->loop->watch_time(
        after => BEAT_S,
        code  => sub {
            return if !$weak || !$weak->{worker} || $weak->_is_foreign;
            $weak->{counters}->beat($weak->{column});
            $weak->_beat_later;
        }
    );
    return;
}

# The engine's worker is gone. What it has counted stays.
sub _stop_counting {
    my ($self, $loop) = @_;
    my $timer = delete $self->{beat};
    $loop->unwatch_time($timer) if $timer && $loop;
    return                      if !delete $self->{gives_back};
    $self->{counters}->zero(delete $self->{column});
    return;
}

# ---- Showing ------------------------------------------------------------------------------------

# Binds where the status is served.
sub _bind_status {
    my ($self, $owner) = @_;
    my $place = $self->{options}{status};
    return if !defined $place || $self->{worker_num};
    $self->{counters} ||= Peregrine::Counters->new(workers => $self->{options}{workers});
    my $status = $self->{status} ||= $self->_new_status($place);
    $status->_bind_places($owner) if !$status->{listeners}->is_open;
    return;
}

sub _new_status {
    my ($self, $place) = @_;
    require PAGI::Server;
    require PAGI::Server::Status;
    weaken(my $weak = $self);
    my $status = PAGI::Server::Status->new(
        counters => $self->{counters},
        is_ready => sub { !$weak || !$weak->{stopping} },
        joins    => $self->has_engine_process || $self->has_clones,
        hosts    => [ split /\s*,\s*/, ($self->{options}{status_hosts} // '') =~ s/\A\s+|\s+\z//gr ],
    );
    my $server = PAGI::Server->new_for_itself(
        app              => $status->to_app,
        listen           => [$place],
        lifespan_mode    => 'off',
        access_log       => undef,
        validate_events  => 0,
        max_connections  => CONNECTIONS_MAX,
        timeout          => TIMEOUT_S,
        shutdown_timeout => SHUTDOWN_S,
        log_format       => $self->{options}{log_format},
        reuseport        => _has_predecessor() ? 1 : 0,
    );
    return $server->ignore_signals;
}

# Server::Starter starts a server beside the old one, which has the status's address still.
sub _has_predecessor { return (Peregrine::Inherited->source // '') eq 'starter' }

sub planned_status {
    my ($self)        = @_;
    my $place         = $self->{options}{status} // return;
    my $configuration = Peregrine::Server::Configuration->new(listen => [$place])->load;
    return $configuration->planned(Peregrine::Listeners->new->choose([ $configuration->places ]));
}

# In the process that serves requests, in the same loop.
sub _serve_status {
    my ($self) = @_;
    my $status = $self->{status} or return;
    $self->_tell_status;
    $self->add_child($status);
    $status->listen->get;
    return;
}

sub _tell_status {
    my ($self)    = @_;
    my @listeners = $self->{status}{listeners}->all;
    my @public    = grep { PAGI::Server::Banner->is_public($_) } @listeners;
    $self->{log}->info('PAGI: status at ' . PAGI::Server::Banner->place($_)) for @listeners;
    $self->{log}->warn('PAGI: whoever can connect to '
            . join(', ', map { $_->url('http') } @public)
            . ' sees the status of the server, which is not meant for everybody')
        if @public;
    return;
}

sub _close_status {
    my ($self) = @_;
    my $status = delete $self->{status} or return;
    $status->_close_worker($status->loop, 1);
    $self->remove_child($status) if grep { $_ == $status } $self->children;
    return;
}

# The service manager, if this process is the server's.
sub _tell_service {
    my ($self) = @_;
    return if $self->{ignores_signals};
    my @places = map { PAGI::Server::Banner->place($_) } $self->{listeners}->all;
    $self->_process->serving('serving on ' . join ', ', @places);
    return;
}

# ---- A process of its own, beside workers -------------------------------------------------------

# The status has a process of its own, which answers while all workers are busy, and which is started again as
# workers are.
sub _start_status_process {
    my ($self) = @_;
    $self->{status} or return;
    $self->_tell_status;
    weaken(my $weak = $self);
    my $master = $self->{status_master} = Peregrine::Master->new(
        loop              => $self->loop,
        log               => $self->{log},
        name              => 'PAGI: status',
        role              => 'status',
        workers           => 1,
        heartbeat_timeout => $self->_engine_heartbeat,
        start_timeout     => $self->_engine_heartbeat,
        stop_timeout      => sub { SHUTDOWN_S + 1 },
        run               => sub { my ($record) = @_; return $weak->_run_status_process($record) },
    );
    $master->start->on_fail(sub { $weak && $weak->{log}->error("PAGI: status is not served: $_[0]") })
        ->retain;
    return;
}

# Its exit status.
sub _run_status_process {
    my ($self, $record) = @_;
    my $status = $self->{status};
    # Clients would wait for answers at sockets that this process keeps open.
    $self->{listeners}->close;
    return Peregrine::WorkerProcess->new(
        link              => $record->{link},
        loop              => $status->own_loop,
        server            => $status,
        log               => $self->{log},
        name              => 'PAGI: status',
        heartbeat_timeout => $self->_engine_heartbeat,
    )->serve;
}

# In a worker: what it holds open nobody could close.
sub _leave_status {
    my ($self) = @_;
    $self->{status}{listeners}->close if $self->{status};
    return;
}

sub _stop_status_process {
    my ($self) = @_;
    my $master = $self->{status_master} or return Future->done;
    return $master->stop->on_ready(sub {
        $self->loop->later(sub { delete $self->{status_master} });
        $self->{status}{listeners}->close;
    });
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Monitoring - what a PAGI::Server counts, and where it shows it

=head1 DESCRIPTION

A base class of L<PAGI::Server::Base>: the option C<status>, what a service manager is told, and counting in a
L<Peregrine::Counters> that was given. A server without workers shows its status from its own event
loop; beside workers a process of its own does, which answers while all of them are busy, and is started
again like one of them.

=head1 METHODS

=head2 planned_status

    my @planned = $server->planned_status;

Where the status would be shown, see L<PAGI::Server/planned_listeners>; nothing without the option.

=head2 use_counters

    $server->use_counters($counters, $column);

Before the server listens: what its engine counts goes into that column, which somebody else clears when
the server is gone.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
