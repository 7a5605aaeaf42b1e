package Peregrine::Server::Monitor;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use PAGI::Server::Banner;
use PAGI::Server::Options;
use Peregrine::Counters;
use Peregrine::Inherited;
use Peregrine::Listeners;
use Peregrine::Server::Configuration;
use Scalar::Util qw(weaken);

# Seconds between two signs of life of a loop.
use constant BEAT_S => 1;

# Seconds that a reader waits for the hub's counts.
use constant CHANNELS_S => 0.2;

# Seconds in which the status has to stop.
use constant SHUTDOWN_S => 1;

# The most workers that TTIN can bring.
use constant WORKERS_MAX => PAGI::Server::Options::find('workers')->{max};

# Limits for the status: its readers are few and quick, and more of them must not cost much.
my %FEW = (max_connections => 64, timeout => 10, shutdown_timeout => SHUTDOWN_S);

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

sub new {
    my ($class, %args) = @_;
    return bless {%args}, $class;
}

sub counters { return $_[0]{counters} }

# ---- Counting -----------------------------------------------------------------------------------

# Called when the engine serves. A server without `workers` has a column of its own.
sub start_counting {
    my ($self, $worker, $loop, $number) = @_;
    my $counters = $self->{counters} or return;
    if (!$number && !defined $self->{column}) {
        $self->{column}     = $counters->claim;
        $self->{gives_back} = 1;
    }
    return if !defined $self->{column};
    $counters->begin($self->{column})->count($worker, $self->{column});
    $self->{pid} = $$;
    $self->_beat_later($loop);
    return;
}

sub _beat_later {
    my ($self, $loop) = @_;
    weaken(my $weak = $self);
    weaken($loop);
    $self->{beat} = $loop->watch_time(
        after => BEAT_S,
        code  => sub {
            return if !$weak || !$loop || $weak->{pid} != $$;
            $weak->{counters}->beat($weak->{column});
            $weak->_beat_later($loop);
        }
    );
    return;
}

# Called when the engine has ended. Its counts stay.
sub stop_counting {
    my ($self, $loop) = @_;
    my $timer = delete $self->{beat};
    $loop->unwatch_time($timer)                        if $timer && $loop;
    $self->{counters}->release(delete $self->{column}) if delete $self->{gives_back};
    return;
}

# Makes figures for mounts that have workers of their own, if the status is shown.
sub count_mounts {
    my ($self, @names) = @_;
    return undef if !@names || !$self->{listeners};    ## no critic
    require Peregrine::Server::MountFigures;
    return $self->{mounts} = Peregrine::Server::MountFigures->new(@names);
}

# Unmaps figures in a process of interpreters of a group, whose engine counts elsewhere: it keeps only its
# group's figures.
sub leave_counting {
    my ($self, $group) = @_;
    $self->{counters}->leave              if $self->{counters};
    $self->{certificates}->leave          if $self->{certificates};
    $self->{mounts}->leave_others($group) if $self->{mounts};
    return;
}

# ---- The status page -----------------------------------------------------------------------------

sub _configuration {
    my ($place, %more) = @_;
    return Peregrine::Server::Configuration->new(listen => [$place], %more)->load;
}

sub _places {
    my ($configuration) = @_;
    return Peregrine::Listeners->new->choose([ $configuration->places ], defaults => $configuration->options);
}

sub planned {
    my ($class, $place) = @_;
    my $configuration = _configuration($place);
    return $configuration->planned(_places($configuration));
}

# Binds the address of the status. A server that Server::Starter starts beside the old one finds it taken.
sub bind {
    my ($self, $owner) = @_;
    my $options = $self->{options};
    my $place   = $options->{status} // return;
    $self->{counters} ||= Peregrine::Counters->new(processes => WORKERS_MAX);
    my $configuration = $self->{configuration} ||= _configuration(
        $place, %FEW,
        quiet           => 1,
        lifespan_mode   => 'off',
        access_log      => undef,
        validate_events => 0,
        log_format      => $options->{log_format},
        reuseport       => (Peregrine::Inherited->source // '') eq 'starter' ? 1 : 0,
    );
    $self->{listeners} ||= _places($configuration);
    $configuration->open_sockets($self->{listeners}, $self->{log}, $owner);
    return;
}

# The sockets of the status, if there is one.
sub listeners { return $_[0]{listeners} // () }

sub _instance {
    my ($self, $loop) = @_;
    require PAGI::Server::Application;
    require PAGI::Server::Status;
    require Peregrine::Server::Instance;
    my $channels = $self->{options}{channels} && Peregrine::Publisher->of_server(patience => CHANNELS_S);
    my $status   = PAGI::Server::Status->new(
        %{$self}{qw(certificates counters is_ready joins pool mounts)},
        $channels ? (channels => $channels) : (),
        hosts => [ split /\s*,\s*/, ($self->{options}{status_hosts} // '') =~ s/\A\s+|\s+\z//gr ],
    );
    my $application = PAGI::Server::Application->new(app => $status->to_app);
    return Peregrine::Server::Instance->new(
        %{$self}{qw(configuration listeners)},
        role        => 'alone',
        reopens     => $self->{reopens},
        loop        => $loop,
        log         => $self->{configuration}->make_log($application->name),
        application => $application,
    );
}

# Serves the status in the loop of a process that serves requests.
sub serve {
    my ($self, $loop) = @_;
    return if !$self->{listeners};
    $self->_tell;
    $self->{instance} = $self->_instance($loop);
    $self->{instance}->listen->get;
    return;
}

sub _tell {
    my ($self)    = @_;
    my @listeners = $self->{listeners}->all;
    my @public    = grep { PAGI::Server::Banner->is_public($_) } @listeners;
    $self->{log}->info('status at ' . PAGI::Server::Banner->place($_)) for @listeners;
    $self->{log}->warn('whoever can connect to '
            . join(', ', map { $_->url('http') } @public)
            . ' sees the status of the server, which is not meant for everybody')
        if @public;
    return;
}

sub close_place {
    my ($self) = @_;
    my $instance = delete $self->{instance};
    $instance->close(1) if $instance;
    $self->leave_place;
    delete $self->{listeners};
    return;
}

# A process that does not show the status closes its sockets: clients would wait there for an answer.
sub leave_place {
    my ($self) = @_;
    $_->close for $self->listeners;
    return;
}

# ---- A process of its own, beside interpreters --------------------------------------------------

# Starts the process of the status, which answers while all interpreters are busy, and is started again if it
# ends. `leave`: closes the descriptors that it must not have.
sub start_process {
    my ($self, $loop, $leave) = @_;
    $self->{listeners} or return;
    $self->_tell;
    require Peregrine::Server::Beside;
    weaken(my $weak = $self);
    $self->{beside} = Peregrine::Server::Beside->start(
        %{$self}{qw(log heartbeat named)},
        loop   => $loop,
        role   => 'status',
        failed => 'status is not served',
        serve  => sub {
            $leave->();
            my $own_loop = $weak->{configuration}->make_loop;
            return ($own_loop, $weak->_instance($own_loop));
        },
    );
    return;
}

sub tell {
    my ($self, @message) = @_;
    $self->{beside}->tell(@message) if $self->{beside};
    return;
}

sub stop_process {
    my ($self) = @_;
    my $beside = delete $self->{beside} or return Future->done;
    return $beside->stop->on_ready(sub { $self->leave_place });
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::Monitor - what a server counts, and where it shows it

=head1 DESCRIPTION

The option C<status>, and counting in a L<Peregrine::Counters>. A server without C<workers> shows its status
from its own event loop; beside interpreters a process of its own does, which answers while all of them are
busy, and is started again like one of them.

=head1 METHODS

=head2 new

    my $monitor = Peregrine::Server::Monitor->new(
        log => $log, options => \%options, joins => 0, heartbeat => 50, is_ready => sub { 1 },
    );
    my $monitor = Peregrine::Server::Monitor->new(counters => $counters, column => $column);

C<heartbeat> and C<named>: see L<Peregrine::Server::Beside/start>. C<certificates>: the
L<Peregrine::Server::CertificateTable>, if the server orders any; C<pool>: its
L<Peregrine::Server::WorkerPool>, if it has one; C<reopens>: functions that open its logs anew. The second one
is for a child: what its engine counts goes into that column, which its master clears.

=head2 planned

    my @planned = Peregrine::Server::Monitor->planned('127.0.0.1:5001');

Where the status would be shown, see L<PAGI::Server/planned_listeners>.

=head2 counters, listeners

=head2 bind, close_place, leave_place

    $monitor->bind({ uid => $uid, gid => $gid });

Opens the sockets of the status; closes them, with the status; closes the copies that this process has.

=head2 serve

    $monitor->serve($loop);

=head2 start_process, tell, stop_process

    $monitor->start_process($loop, sub { ... });
    $monitor->tell('reopen', undef, fileno STDERR);
    my $future = $monitor->stop_process;

The function is called in the new process, and closes what that must not have.

=head2 start_counting, stop_counting

    $monitor->start_counting($worker, $loop, $number);
    $monitor->stop_counting($loop);

=head2 leave_counting

    $monitor->leave_counting($group);

In a process that has no engine: of all memory in which processes count it keeps the figures of the
interpreters of that group. undef: nothing.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
