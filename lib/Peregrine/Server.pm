package Peregrine::Server;

use strict;
use warnings;

our $VERSION = '0.003000';

use parent qw(IO::Async::Notifier);

use Carp qw(croak);
use Future;
use List::Util qw(max);
use PAGI::Server::Banner;
use PAGI::Server::Options;
use PAGI::Server::TLS;
use Peregrine;
use Peregrine::Listeners;
use Peregrine::Nearest;
use Peregrine::Handover;
use Peregrine::Process;
use Peregrine::Server::Configuration;
use Peregrine::Server::Instance;
use Peregrine::Server::Monitor;
use Peregrine::Server::Placement;
use Peregrine::Server::Takeover;
use Peregrine::Server::Tracing;
use Scalar::Util qw(weaken);

# Seconds in which the loop has to hear of a signal while an application is at a request.
use constant HEAR_S => 2;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# ---- Options ------------------------------------------------------------------------------------

# `configuration`: a checked Peregrine::Server::Configuration. `load_app`: see load_app_in_workers. `mounts`:
# facts about several applications before they are loaded.
sub _init {
    my ($self, $params) = @_;
    $self->SUPER::_init($params);
    @{$self}{qw(listeners reopens)} = (Peregrine::Listeners->new, []);
    my ($configuration, $mounts) = delete @{$params}{qw(configuration mounts)};
    $self->{load_app} = delete $params->{load_app};
    my %options = map { $_ => delete $params->{$_} } _ours($params);
    $configuration = eval {
              $configuration
            ? $configuration->with(%options)
            : Peregrine::Server::Configuration->from_environment('', %options)->load;
    } || $self->_refuse($@);
    my $app = $configuration->options->{app};
    croak 'app is required' if !defined $app && !$self->{load_app};
    $self->{application} = $self->application_class->new(app => $app, mounts => $mounts);
    $self->{log}         = $configuration->make_log($self->{application}->name);
    $self->_configure_by($configuration);
    return;
}

sub _ours {
    my ($params) = @_;
    return grep { PAGI::Server::Options::is_known($_) } keys %$params;
}

sub _refuse {
    my ($self, $problem) = @_;
    croak 'PAGI::Server: ' . $problem =~ s/\s+\z//r;
}

sub configure {
    my ($self, %params) = @_;
    my %given = map { $_ => delete $params{$_} } _ours(\%params);
    my $new   = eval { $self->{configuration}->with(%given) } || $self->_refuse($@);
    my $part  = $self->{part};
    $self->_croak_if_foreign;
    my $problem = $part ? $part->problem_with($new->given) : undef;
    $self->_refuse($problem) if defined $problem;
    $self->SUPER::configure(%params);
    eval { $new->load($part) } || $self->_refuse($@);
    $new->set_log($self->{log});
    $self->_configure_by($new);
    my @later = $part ? $part->configure($new) : ();
    $self->{log}->warn("the running server keeps its @later until it is started again") if @later;
    return;
}

sub _configure_by {
    my ($self,    $configuration) = @_;
    my ($options, $listeners)     = ($configuration->options, $self->{listeners});
    $self->{configuration} = $configuration;
    return if $listeners->places && !$configuration->changes_places;
    $self->{log}->warn('TLS is disabled by disable_tls: connections will not be encrypted')
        if $options->{disable_tls} && ($options->{ssl} || grep { $_->{ssl} } $configuration->places);
    $listeners->choose(
        [ $configuration->places ],
        unnamed  => !$configuration->names_place,
        defaults => $options
    );
    return;
}

# Refuses keys that IO::Async::Notifier does not know.
sub configure_unknown {
    my ($self, %params) = @_;
    my @unknown = map { $_ . Peregrine::Nearest::hint($_, PAGI::Server::Options::names()) } sort keys %params;
    croak 'Unrecognised configuration keys for ' . ref($self) . " - @unknown";
}

sub configuration { return $_[0]{configuration} }
sub options       { return $_[0]{configuration}->options }

sub certificates {
    my ($self) = @_;
    return grep { defined } $self->{configuration}->tls, map { $_->{tls} } $self->{listeners}->places;
}

sub use_listeners {
    my ($self, $listeners) = @_;
    $self->_refuse('use_listeners: the server has sockets already') if $self->{part};
    $self->{configuration}->load_own($listeners->places);
    $self->{listeners} = $listeners;
    return $self;
}

sub ignore_signals {
    my ($self) = @_;
    $self->{ignores_signals} = 1;
    return $self;
}

sub on_reopen_logs {
    my ($self, $code) = @_;
    push @{ $self->{reopens} }, $code;
    return $self;
}

sub load_app_in_workers {
    my ($self, $load) = @_;
    $self->{load_app} = $load;
    return $self;
}

sub reload_on_change {
    my ($self, %args) = @_;
    require Peregrine::Server::Reload;
    $self->{reload} = Peregrine::Server::Reload->new(%args, log => $self->{log});
    return $self;
}

sub enter_again {
    my ($self, $directory) = @_;
    $self->{directory} = $directory;
    return $self;
}

sub keep_pid_file {
    my ($self, $file) = @_;
    $self->{pid_file} = $file;
    return $self;
}

# ---- The part that serves requests ---------------------------------------------------------------

sub _placement {
    my ($self) = @_;
    return Peregrine::Server::Placement->new($self->options, $self->{application});
}

sub has_workers { return $_[0]->_placement->has_workers }

# Dies if the application cannot be cloned; called before the loop is made.
sub check_clones {
    my ($self) = @_;
    return if !$self->_placement->has_clones;
    require Peregrine::Server::Clones;
    Peregrine::Server::Clones::check_options($self->options);
    Peregrine::Server::Clones::check_application();
    return;
}

# Dies if the engine has no room for all interpreters, or cannot hold responses that options ask for.
sub checked_placement {
    my ($self) = @_;
    my $placement = $self->_placement;
    $placement->check;
    $placement->check_grip($self->{application}->grips($self->options->{grip}));
    return $placement;
}

sub _part {
    my ($self) = @_;
    return $self->{part} ||= do {
        my $placement = $self->checked_placement;
        weaken(my $weak = $self);
        my $orders = $self->options->{acme};
        $self->{certificate_table} = $orders && _certificate_table($orders);
        my $pool    = $self->_worker_pool;
        my $monitor = Peregrine::Server::Monitor->new(
            pool         => $pool,
            reopens      => $self->{reopens},
            certificates => $self->{certificate_table},
            log          => $self->{log},
            options      => $self->options,
            heartbeat    => $self->{configuration}->engine_heartbeat,
            named        => $self->{configuration}->deadline_names->{silence},
            joins        => $placement->has_engine_process || $placement->has_clones,
            is_ready     => sub { !$weak || !$weak->{part} || !$weak->{part}->stopping },
        );
        my $app = $self->options->{app};
        $self->{application}->load($app) if defined $app;
        # A quarter of all code, which a server without workers does without.
        require Peregrine::Server::Supervisor if $placement->has_workers;
        my %args = (
            %{$self}{qw(log configuration listeners application reopens)},
            server    => $self,
            placement => $placement,
            monitor   => $monitor,
            hub       => $self->_hub,
            pool      => $pool,
        );
        $placement->has_workers
            ? Peregrine::Server::Supervisor->new(%args, %{$self}{qw(load_app reload pid_file directory)})
            : Peregrine::Server::Instance->new(%args, role => 'alone');
    };
}

# The process of the hub; undef without channels.
sub _hub {
    my ($self) = @_;
    return undef if !$self->options->{channels};    ## no critic
    require Peregrine::Server::Hub;
    return Peregrine::Server::Hub->new(
        %{$self}{qw(log configuration reopens)},
        heartbeat => $self->{configuration}->engine_heartbeat,
        named     => $self->{configuration}->deadline_names->{silence},
    );
}

# The server's worker pool; undef without the option `worker_pool`.
sub _worker_pool {
    my ($self) = @_;
    return undef if !defined $self->options->{worker_pool};    ## no critic
    require Peregrine::Server::WorkerPool;
    return Peregrine::Server::WorkerPool->new(%{$self}{qw(log configuration reopens)});
}

sub _croak_if_foreign {
    my ($self) = @_;
    my $part = $self->{part};
    $self->_refuse("the server belongs to process ${\$part->pid}, from which this one ($$) was forked")
        if $part && $part->is_foreign;
    return;
}

# ---- Start --------------------------------------------------------------------------------------

sub open_listeners {
    my ($self, %owner) = @_;
    $self->_part->open(%owner);
    $self->_begin_certificates(%owner);
    return $self;
}

sub listen {
    my ($self) = @_;
    my $loop = $self->loop or croak 'Add the server to an IO::Async::Loop before calling listen';
    $self->_croak_if_foreign if $self->{starting};
    return $self->{starting} if $self->{starting};
    my $part = $self->_part;
    $self->{tracing} = Peregrine::Server::Tracing->begin($self->{log});
    $part->use_loop($loop, $self->_process);
    Peregrine::Listener->begin_to_serve;

    if (!eval { $part->bind; $self->_begin_certificates; 1 }) {
        my $error = $@;
        $part->close;
        $self->ended;
        return Future->fail($error);
    }
    $self->_process->attach_signals if !$self->{ignores_signals};
    my $starting = $self->{starting} = $part->begin->then(sub { Future->done($self) });
    return $starting->on_fail(sub { delete $self->{starting}; $self->ended if !$part->stopping });
}

# Called by the part when it serves. `beside`: further Peregrine::Listeners of the part.
sub serves {
    my ($self, @beside) = @_;
    my @listeners = $self->{listeners}->all;
    my @places    = map { PAGI::Server::Banner->place($_) } @listeners;
    $self->_process->serving('serving on ' . join ', ', @places) if !$self->{ignores_signals};
    $self->{tracing}->serves                                     if $self->{tracing};
    Peregrine::Server::Takeover->serves(%{$self}{qw(log pid_file)},
        listeners => [ $self->{listeners}, @beside ]);
    $self->{certificates}->serve($self->loop) if $self->{certificates};
    my ($options, $application) = ($self->options, $self->{application});
    PAGI::Server::TLS->$_($self->{log}, $self->{part}->tls_in_use) for qw(tell_unreadable tell_outdated);
    PAGI::Server::Banner->tell(
        $self->{log},
        title           => $application->title,
        loop            => $self->loop,
        options         => $options,
        listeners       => \@listeners,
        workers         => $options->{workers},
        connections_max => $self->effective_max_connections,
        memory_max      => $self->effective_memory_max,
        reserved        => $self->_placement->descriptors_reserved,
        shows_errors    => $application->shows_errors,
        is_async        => $application->is_async,
    );
    return;
}

sub run {
    my ($self) = @_;
    my $loop = $self->loop || $self->own_loop;
    $self->start or return;
    my $exception = $self->run_loop;
    die $exception if defined $exception;
    return;
}

sub start {
    my ($self) = @_;
    my $part = $self->_part;
    return Peregrine::Process->starting($self->{log},
        sub { return Peregrine::Server::Instance::awaited($self->listen, $part) });
}

sub run_loop {
    my ($self) = @_;
    return $self->_process->run;
}

sub own_loop {
    my ($self) = @_;
    my $loop = $self->{configuration}->make_loop($self->has_workers);
    $loop->add($self);
    return $loop;
}

# ---- Stop ---------------------------------------------------------------------------------------

# Methods to stop, which each part has.
sub shutdown {
    my ($self) = @_;
    $self->_croak_if_foreign;
    return $self->_tell_part('shutdown') // Future->done;
}

sub hurry        { my ($self, @args) = @_; return $self->_tell_part(hurry        => @args) }
sub give_up_stop { my ($self, @args) = @_; return $self->_tell_part(give_up_stop => @args) }
sub fail_stalled { my ($self, @args) = @_; return $self->_tell_part(fail_stalled => @args) // 0 }

sub connection_count { my ($self) = @_; return $self->_tell_part('connection_count') // 0 }

sub _tell_part {
    my ($self, $method, @args) = @_;
    my $part = $self->{part} or return;
    return scalar $part->$method(@args);
}

# Handles by name for a new program.
sub for_handover {
    my ($self) = @_;
    my $trace = $self->{tracing} && $self->{tracing}->handle;
    return { $trace ? (trace => $trace) : () };
}

# Handles by name that only a new program gets, and no other child.
sub kept_for_handover {
    my ($self) = @_;
    return $self->{certificates} ? $self->{certificates}->for_handover : ();
}

sub end_handover {
    my ($self) = @_;
    $self->{certificates}->end_handover if $self->{certificates};
    return;
}

# Leaves, because a new program serves.
sub leave {
    my ($self) = @_;
    return $self->{part}->end('retire');
}

# Called by the part when it is about to close everything, at its end.
sub closes {
    my ($self, $at_once) = @_;
    $self->{process}->detach_signals($at_once) if $self->{process};
    return;
}

# A function of its own, because servers that order no certificates do not load these modules.
sub _certificate_table {
    my ($orders) = @_;
    require Peregrine::Server::CertificateTable;
    require Peregrine::Server::Certificates;
    return Peregrine::Server::CertificateTable->new(Peregrine::Server::Certificates::parse($orders));
}

# Begins to order certificates, while the process may still read the keys.
sub _begin_certificates {
    my ($self, %owner) = @_;
    my $options = $self->options;
    return _leave_certificates() if !$options->{acme};
    return                       if $self->{certificates};
    weaken(my $weak = $self);
    require Peregrine::Server::Certificates;
    $self->{certificates} = Peregrine::Server::Certificates->new(
        log        => $self->{log},
        options    => $options,
        table      => $self->{certificate_table},
        challenges => $self->{configuration}->challenges,
        take       => sub { $weak && $weak->_take_certificates(@_) },
    );
    $self->{certificates}->begin(%owner);
    return;
}

# Closes the link to a process of the old program that orders certificates: it ends with its last link.
sub _leave_certificates {
    my $before     = Peregrine::Handover->from_environment or return;
    my $descriptor = $before->take('certificates') // return;
    POSIX::close($descriptor);
    return;
}

# Takes over new certificates. Before the start no process of the engine exists, which would need copies.
sub _take_certificates {
    my ($self, $names, @descriptors) = @_;
    my ($log,  $tls,   $part)        = ($self->{log}, $self->{configuration}->tls, $self->{part});
    $part->tell_certificates($names, @descriptors) if $part;
    my $done = $tls->take($log, $names, @descriptors);
    return if !$done || !$self->is_running;
    $log->info('the certificate files are loaded again: ' . $names =~ s/,/, /gr);
    PAGI::Server::TLS->tell_outdated($log, $tls);
    return;
}

sub ended {
    my ($self) = @_;
    delete @{$self}{qw(part starting)};
    my $certificates = delete $self->{certificates};
    $certificates->stop if $certificates;
    return;
}

# A server that is taken out of its loop stops at once.
sub _remove_from_loop {
    my ($self, $loop) = @_;
    my $part = $self->{part};
    return         if $part && $part->is_foreign;
    $part->abandon if $part;
    $self->ended;
    delete $self->{process};
    return;
}

sub DESTROY {
    my ($self) = @_;
    $self->{part}->close if $self->{part} && ${^GLOBAL_PHASE} ne 'DESTRUCT';
    return;
}

# ---- Questions ----------------------------------------------------------------------------------

sub port {
    my ($self) = @_;
    return $self->{listeners}->first_with('port');
}

sub socket_path {
    my ($self) = @_;
    return $self->{listeners}->first_with('path');
}

sub listeners {
    my ($self) = @_;
    return [ $self->{listeners}->facts ];
}

sub planned_listeners {
    my ($self) = @_;
    return $self->{configuration}->planned($self->{listeners});
}

sub planned_status {
    my ($self) = @_;
    my $place = $self->options->{status} // return;
    return Peregrine::Server::Monitor->planned($place);
}

sub has_tls   { return Peregrine::has_tls() ? 1 : 0 }
sub has_http2 { return 1 }

sub is_running {
    my ($self) = @_;
    my $part = $self->{part} or return 0;
    return $part->is_running && !$part->is_foreign ? 1 : 0;
}

sub effective_max_connections {
    my ($self) = @_;
    return $self->_limit_in_force('connections_max');
}

sub effective_memory_max {
    my ($self) = @_;
    return $self->_placement->memory_share($self->_limit_in_force('memory_max'));
}

# The value of an automatic limit, before the start as well.
sub _limit_in_force {
    my ($self, $name) = @_;
    return ($self->{part} || $self->_placement)->limit_in_force($name);
}

# ---- Signals ------------------------------------------------------------------------------------

# Signals beside those that stop the server: what a server with workers does, and why others do nothing.
my %SIGNALS = (
    HUP => [
        sub { return $_[0]->restart },
        'nothing to do: it loads certificates again, and no listener speaks TLS; for new code, start the server'
            . ' again',
    ],
    USR2 => [
        sub { return $_[0]->hand_over },
        'nothing to do: it would hand over to a new server, and this one has no workers; start the server again',
    ],
    TTIN => [
        sub { return $_[0]->change_interpreters(+1) },
        'nothing to do: it would add a worker, and this server has none',
    ],
    TTOU => [
        sub { return $_[0]->change_interpreters(-1) },
        'nothing to do: it would remove a worker, and this server has none',
    ],
);

my %ON = (USR1 => \&reopen_logs, HUP => sub { return $_[0]->_on_signal('HUP') || $_[0]->load_again });
for my $signal (qw(USR2 TTIN TTOU)) {
    $ON{$signal} = sub { return $_[0]->_on_signal($signal) || $_[0]->_has_no_effect($signal) };
}

sub _on_signal {
    my ($self, $signal) = @_;
    my $part = $self->{part};
    return if !$part                     || !$part->isa('Peregrine::Server::Supervisor');
    return $SIGNALS{$signal}[0]->($part) || 1;
}

sub _has_no_effect {
    my ($self, $signal) = @_;
    $self->{log}->warn("SIG$signal: $SIGNALS{$signal}[1]");
    return;
}

sub _process {
    my ($self) = @_;
    return $self->{process} //= Peregrine::Process->new(
        loop   => $self->loop,
        log    => $self->{log},
        server => $self,
        on     => \%ON,
        $self->has_workers ? () : (stop_within => max($self->options->{shutdown_timeout}, HEAR_S)),
    );
}

sub load_again {
    my ($self) = @_;
    my @tls = $self->{part} ? $self->{part}->tls_in_use : ();
    return $self->_has_no_effect('HUP') if !@tls;
    return PAGI::Server::TLS->reload_all($self->{log}, @tls);
}

sub reopen_logs {
    my ($self) = @_;
    $self->_part->reopen_logs;
    # The process has the rights of the start, and may be another user's: it gets the open file.
    $self->{certificates}->reopen_logs(fileno STDERR) if $self->{certificates} && @{ $self->{reopens} };
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server - a server, whatever its application is

=head1 DESCRIPTION

An L<IO::Async::Notifier>, of which L<PAGI::Server>, L<Plack::Handler::Peregrine::Server> and
L<Plack::Handler::Peregrine::Mounted> are kinds: each names the class of its application. The methods are
described in L<PAGI::Server/METHODS>, the options in L<PAGI::Server/CONSTRUCTOR>. It is composed of

=over

=item L<Peregrine::Server::Configuration>

the options, checked

=item L<Peregrine::Listeners>

the sockets

=item L<Peregrine::Server::Placement>

how many engines and interpreters there are, and where

=item L<Peregrine::Server::Instance> or L<Peregrine::Server::Supervisor>

the part that serves, in this process or by workers

=item L<Peregrine::Server::Monitor>

what is counted, and the status

=item L<PAGI::Server::Application> or its counterparts in Plack::Handler::Peregrine

the application

=back

=head1 METHODS

Those of L<PAGI::Server/METHODS>, and these.

=head2 configuration, options

The options, as object and as hash reference.

=head2 check_clones

Before there is a loop: dies if the application is to be cloned and has made a loop, or has loaded a module
that cannot be cloned (L<Peregrine::Threads/obstacle>), or if a loop that cannot be in several threads is
asked for.

=head2 checked_placement

    my $placement = $server->checked_placement;

The L<Peregrine::Server::Placement>, for the start and for C<--check>. Dies if its engine has no room for all
interpreters, or cannot hold responses that are to be held (C<grip>).

=head2 reload_on_change

    $server->reload_on_change(folders => ['lib'], sources => ['.'], ignore => ['lib/trace']);

Before the start of a server that loads its application in workers, see L<Peregrine::Server::Reload>.

=head2 enter_again

    $server->enter_again('/srv/app/current');

The path of the current directory. A symbolic link in it may lead elsewhere one day: with each restart of its
workers the server goes there again.

=head2 keep_pid_file

    $server->keep_pid_file($pid_file);

A L<PAGI::Server::PidFile> that a new program takes over as well.

=head2 planned_status

    my @planned = $server->planned_status;

Where the status would be shown, see L<PAGI::Server/planned_listeners>; nothing without the option.

=head2 serves, closes, ended, leave

What its parts tell it.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
