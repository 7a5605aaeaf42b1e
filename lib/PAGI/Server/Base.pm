package PAGI::Server::Base;

use strict;
use warnings;

our $VERSION = '0.003000';

use parent qw(
    IO::Async::Notifier
    PAGI::Server::Clones PAGI::Server::EngineProcess PAGI::Server::Monitoring PAGI::Server::Prefork
    PAGI::Server::Reload PAGI::Server::Reports PAGI::Server::Stop
);

use Carp       qw(croak);
use File::Spec ();
use Future;
use List::Util qw(max);
use PAGI::Server::AccessLog;
use PAGI::Server::Banner;
use PAGI::Server::Clones;
use PAGI::Server::EngineProcess;
use PAGI::Server::Folders;
use PAGI::Server::Log;
use PAGI::Server::Options;
use PAGI::Server::TLS;
use Peregrine;
use Peregrine::Listeners;
use Peregrine::Nearest;
use Peregrine::Place;
use Peregrine::Process;
use Peregrine::Server::Configuration;

# Milliseconds after which a worker whose application is at one event leaves accepting to the other workers.
use constant YIELD_MS => 5;

# Seconds in which an application that works at a request lets the loop hear of a signal.
use constant HEAR_S => 2;

# For files, logs and databases.
use constant DESCRIPTORS_RESERVED => 50;

# See Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# ---- What a kind of server says of its applications ---------------------------------------------

# The word at the beginning of messages.
sub _name_in_log { return 'PAGI' }

# Whose defaults its options have, see PAGI::Server::Options/defaults_of.
sub _defaults_of { return '' }

# Gives the engine's worker the application, in whose name requests are served from now on.
sub _attach {
    my ($self) = @_;
    die ref($self) . ' has no applications';
}

# Begins the application's life: a Future. A server that is stopped meanwhile calls _stop_startup, which
# fails that with the category `stopped`.
sub _start_application { return Future->done }
sub _stop_startup      { return }

# Its end: a Future. Nobody waits for it any more after _abandon_application.
sub _end_application     { return Future->done }
sub _abandon_application { return }

# Whether clients are shown what goes wrong in the application.
sub _shows_errors { return 0 }

# ---- Construction -------------------------------------------------------------------------------

# Whether environment variables count: not for servers that this one makes for itself.
our $FOR_ITSELF = 0;

# `configuration`: a Peregrine::Server::Configuration that its maker has checked. `load_app`: see
# load_app_in_workers.
sub _init {
    my ($self, $params) = @_;
    $self->SUPER::_init($params);
    $self->{listeners} = Peregrine::Listeners->new;
    $self->{load_app}  = delete $params->{load_app};
    my $configuration = delete $params->{configuration};
    my %options       = map { $_ => delete $params->{$_} }
        grep { !$configuration && PAGI::Server::Options::is_known($_) } keys %$params;
    $configuration ||= eval {
        my $class = 'Peregrine::Server::Configuration';
        ($FOR_ITSELF ? $class->new(%options) : $class->from_environment($self->_defaults_of, %options))->load;
    } || $self->_refuse($@);
    $self->_configure_by($configuration);
    croak 'app is required' if !defined($params->{app} // $self->{options}{app}) && !$self->{load_app};
    return;
}

sub _refuse {
    my ($self, $problem) = @_;
    croak 'PAGI::Server: ' . _without_newline($problem);
}

sub new_for_itself {
    my ($class, %params) = @_;
    local $FOR_ITSELF = 1;
    return $class->new($params{configuration} ? () : (quiet => 1), %params);
}

sub configure {
    my ($self, %params) = @_;
    my %given = map { $_ => delete $params{$_} } grep { PAGI::Server::Options::is_known($_) } keys %params;
    my $new   = eval { $self->{configuration}->with(%given) } || $self->_refuse($@);
    $self->_check_running($new) if $self->{worker} || $self->{master};
    $self->SUPER::configure(%params);
    eval { $new->load($self->{worker}) } || $self->_refuse($@);
    $self->_configure_by($new);
    $self->_configure_worker($new->given) if $self->{worker};
    return;
}

sub _configure_by {
    my ($self, $configuration) = @_;
    my ($options, $listeners)  = ($configuration->options, $self->{listeners});
    @{$self}{qw(configuration options)} = ($configuration, $options);
    $self->{log} ||= PAGI::Server::Log->new(name => $self->_name_in_log);
    $self->{log}
        ->set(level => $options->{log_level}, format => $options->{log_format}, quiet => $options->{quiet});
    return if $listeners->places && !$configuration->changes_places;
    $self->{log}->warn('PAGI: TLS is disabled by disable_tls: connections will not be encrypted')
        if $options->{disable_tls} && ($options->{ssl} || grep { $_->{ssl} } $configuration->places);
    $listeners->choose(
        [ $configuration->places ],
        unnamed  => !$configuration->names_place,
        defaults => $options
    );
    return;
}

# IO::Async::Notifier calls it with what nobody knows.
sub configure_unknown {
    my ($self, %params) = @_;
    my @unknown = map { $_ . Peregrine::Nearest::hint($_, PAGI::Server::Options::names()) } sort keys %params;
    croak 'Unrecognised configuration keys for ' . ref($self) . " - @unknown";
}

# Refuses options that a running server cannot take over. The engine's worker, for instance, has room for the
# number of header fields that it was made with.
sub _check_running {
    my ($self, $new) = @_;
    my $given = $new->given;
    $self->_croak_if_foreign;
    $self->_refuse(
        'workers run with the options that they were started with; stop the server before its options'
            . ' change: '
            . join ', ',
        sort keys %$given
    ) if $self->{master} && %$given;
    my $problem = PAGI::Server::AccessLog::problem($given->{access_log});
    $self->_refuse("option 'access_log': $problem") if defined $problem;
    my $name = 'max_header_count';
    my $made = $self->{header_count} // $self->{options}{$name};
    $self->_refuse(
        "option '$name' cannot be raised above $made while the server runs, not to $given->{$name}")
        if defined $given->{$name} && $given->{$name} > $made;
    return;
}

sub certificates {
    my ($self) = @_;
    return grep { defined } $self->{configuration}->tls, map { $_->{tls} } $self->{listeners}->places;
}

sub _without_newline {
    my ($text) = @_;
    $text =~ s/\s+\z//;
    return $text;
}

sub _configure_worker {
    my ($self, $given) = @_;
    my @later =
        grep { !PAGI::Server::Options::is_live($_) || !$self->_takes_over($_, $given) } sort keys %$given;
    $self->{log}->warn("PAGI: the running server keeps its @later until it is started again") if @later;
    $self->_start_access_log($self->{worker}) if grep { /\Aaccess_log/ } keys %$given;
    return;
}

# Tells the engine of a limit that has changed. False: it has memory for the old one only.
sub _takes_over {
    my ($self, $name, $given) = @_;
    my $limits = PAGI::Server::Options::engine_limits({ $name => $given->{$name} });
    return !grep { $self->{worker}->set($_ => $limits->{$_}) < 0 } keys %$limits;
}

# ---- Start --------------------------------------------------------------------------------------

sub listen {
    my ($self) = @_;
    my $loop = $self->loop or croak 'Add the server to an IO::Async::Loop before calling listen';
    $self->_croak_if_foreign           if $self->{starting};
    return $self->{starting}           if $self->{starting};
    return $self->_listen_with_workers if $self->has_workers;
    if (!eval { $self->_bind; 1 }) {
        my $error = $@;
        $self->_close_worker($loop);
        return Future->fail($error);
    }
    $self->_process->attach_signals if !$self->{ignores_signals};
    my $application = $self->{is_engine} ? Future->done : $self->_start_application;
    my $starting    = $application->then(sub {
        return Future->done($self) if eval { $self->_start; 1 };
        my $error = $@;
        return $self->_give_up->then(sub { Future->fail($error) });
    });
    $self->{starting} = $starting;
    $starting->on_fail(sub { delete $self->{starting}; $self->_close_worker($loop) });
    return $starting;
}

# Before the application starts: what it does need not be undone when an address is taken. And before
# anything of the application runs that might fork, which gets none of what the engine has.
sub _bind {
    my ($self) = @_;
    $self->open_listeners;
    $self->{worker} = $self->_new_worker if $self->_is_foreign;
    $self->{pid}    = $$;
    $self->{worker}->pause_accepting(1)                                      if $self->{accepts_later};
    $self->{listeners}->hand_over($self->{worker}, $self->{worker_num} || 1) if !$self->{join_socket};
    return;
}

# In a process that was forked from its own a server is a copy of which nothing may be used.
sub _is_foreign {
    my ($self) = @_;
    return defined $self->{pid} && $self->{pid} != $$;
}

sub _croak_if_foreign {
    my ($self) = @_;
    $self->_refuse("the server belongs to process $self->{pid}, from which this one ($$) was forked")
        if $self->_is_foreign;
    return;
}

# A start that failed after that of the application, which is ended.
sub _give_up {
    my ($self) = @_;
    $self->_close_worker($self->loop);
    return $self->_end_application;
}

# Binds the addresses and opens the access log, for which a process may need rights that it gives up then.
sub open_listeners {
    my ($self, %owner) = @_;
    return $self                       if $self->{worker};
    return $self->_open_as_interpreter if $self->{join_socket};
    $self->_bind_places(\%owner)       if !$self->{listeners}->is_open;
    $self->_bind_status(\%owner);
    return $self->_open_for_workers($owner{uid}) if $self->has_workers;
    $self->{header_count} = $self->{options}{max_header_count};
    $self->{worker}       = $self->_new_worker($owner{uid});
    $self->{pid}          = $$;
    return $self;
}

# The sockets are the engine's.
sub _open_as_interpreter {
    my ($self) = @_;
    $self->{listeners}->leave_sockets;
    $self->{worker} = $self->_join_engine;
    $self->{pid}    = $$;
    return $self;
}

# Descriptors that connections leave free, those of the interpreters included. A clone has ten of its own
# while idle; of an interpreter in another process the engine has three.
sub _descriptors_reserved {
    my ($self) = @_;
    my $each = $self->has_clones ? 12 : $self->has_engine_process ? 3 : 0;
    return DESCRIPTORS_RESERVED + $each * ($self->{options}{workers} || 0);
}

sub _engine_limits {
    my ($self) = @_;
    return {
        %{ PAGI::Server::Options::engine_limits($self->{options}) },
        descriptors_reserved => $self->_descriptors_reserved,
    };
}

sub _new_worker {
    my ($self, $owner) = @_;
    my $limits = $self->_engine_limits;
    $limits->{accept_yield_ms} = YIELD_MS
        if $self->{worker_num} && !$self->{is_engine} && $self->{options}{workers} > 1;
    my $worker = Peregrine::Worker->new($limits);
    $worker->body_folder($self->{options}{body_folder} // File::Spec->tmpdir);
    $worker->use_thread >= 0 || die "PAGI: cannot make a thread for the engine: $!\n"
        if $self->{options}{engine} eq 'thread';
    $self->_start_access_log($worker, $owner);
    return $worker;
}

# Lines that are on their way to a handle without a descriptor get there, also if the log goes elsewhere from
# now on.
sub _start_access_log {
    my ($self, $worker, $owner) = @_;
    my $options = $self->{options};
    my $handle  = PAGI::Server::AccessLog->start(
        $worker,
        target => $options->{access_log},
        format => $options->{access_log_format},
        owner  => $owner,
    );
    $self->{line_handle} = $handle if defined $handle;
    return;
}

sub _bind_places {
    my ($self, $owner) = @_;
    my $options = $self->{options};
    my @unused  = $self->{listeners}->open(
        backlog   => $options->{listener_backlog},
        reuseport => $options->{reuseport},
        owner     => $owner,
    );
    $self->{log}->warn("PAGI: nothing is to listen on the inherited descriptor $_: it is closed") for @unused;
    return;
}

sub planned_listeners {
    my ($self) = @_;
    return $self->{configuration}->planned($self->{listeners});
}

sub use_listeners {
    my ($self, $listeners) = @_;
    $self->_refuse('use_listeners: the server has sockets already') if $self->{worker};
    $self->{configuration}->load_own($listeners->places);
    $self->{listeners} = $listeners;
    return $self;
}

sub _start {
    my ($self) = @_;
    my $worker = $self->{worker};
    if   ($self->{is_engine}) { $self->_use_interpreters($worker) }
    else                      { $self->_attach($worker) }
    $self->_prepare_listeners($worker)                              if !$self->{join_socket};
    PAGI::Server::Folders::serve($worker, $self->{options}{static}) if !$self->{join_socket};
    $worker->tell_after(PAGI::Server::Prefork::_by_chance($self->{options}{max_requests}))
        if $self->{on_replace} && $self->{options}{max_requests};
    $self->_watch;
    $self->_start_counting                              if !$self->{join_socket};
    $worker->share_sockets(@{ delete $self->{spread} }) if $self->{spread};
    $self->_serve_status;
    $self->{running} = 1;
    return                         if $self->{is_engine};
    return $self->_answer_as_clone if $self->{clone};
    $self->_answer_when_stuck;
    return if $self->{worker_num};
    $self->_tell_service;
    $self->_tell_start;
    return;
}

# An application whose responses may name a file, and are compressed.
sub _around {
    my ($self, $kind, $app) = @_;
    my $options = $self->{options};
    if (defined $options->{x_sendfile}) {
        require PAGI::Server::SendFile;
        $app = PAGI::Server::SendFile->$kind($app, $options->{x_sendfile});
    }
    return $app if !$options->{compress};
    require PAGI::Server::Compression;
    return PAGI::Server::Compression->new(%$options, loop => $self->loop)->$kind($app);
}

# Before the first connection comes.
sub _prepare_listeners {
    my ($self, $worker) = @_;
    $self->_trust_proxies;
    for my $listener ($self->{listeners}->all) {
        my $proxies = $listener->{place}{proxies};
        $worker->proxies($listener->{number}, $proxies) if $proxies;
        my $tls = $listener->{tls} = $self->{configuration}->tls_for($listener) or next;
        $worker->secure($listener->{number}, $tls->engine);
    }
    $worker->health_path($self->{options}{health_path}) if defined $self->{options}{health_path};
    return;
}

# For the master that watches this process.
sub _answer_when_stuck {
    my ($self) = @_;
    my $worker = $self->{worker};
    $worker->answer_when_stuck($self->_name_in_log);
    $worker->show_busy_in(@{ $self->{busy} }) if $self->{busy};
    return;
}

# Logs the start of a server that serves, in a process of its own or as the master of others.
sub _tell_start {
    my ($self) = @_;
    PAGI::Server::TLS->$_($self->{log}, $self->_tls_in_use) for qw(tell_unreadable tell_outdated);
    PAGI::Server::Banner->tell(
        $self->{log},
        loop            => $self->loop,
        options         => $self->{options},
        listeners       => [ $self->{listeners}->all ],
        workers         => $self->{options}{workers},
        connections_max => $self->effective_max_connections,
        memory_max      => $self->effective_memory_max,
        reserved        => $self->_descriptors_reserved,
        shows_errors    => $self->_shows_errors,
        is_async        => $self->isa('PAGI::Server'),
    );
    return;
}

# Before the first connection comes: it is then that a peer is found trustworthy.
sub _trust_proxies {
    my ($self)   = @_;
    my $options  = $self->{options};
    my $networks = Peregrine::Place::networks($options->{trusted_proxies}) // return;
    $self->{worker}->trusted_proxies($networks, $options->{forwarded_header} eq 'forwarded' ? 1 : 0);
    return;
}

# The TLS objects of the listeners, now or after the application's startup; several listeners may share one.
sub _tls_in_use {
    my ($self) = @_;
    return
        map { ($self->_is_starting ? $self->{configuration}->tls_for($_) : $_->{tls}) // () }
        $self->{listeners}->all;
}

sub _watch {
    my ($self) = @_;
    my ($worker, $loop) = ($self->{worker}, $self->loop);
    return if $loop->can('watch_engine') && $loop->watch_engine($worker);
    open my $handle, '<&', $worker->fd or die "Cannot watch the engine: $!\n";
    $self->{handle} = $handle;
    Peregrine::hide_from_forks(fileno $handle, 1);
    $loop->watch_io(handle => $handle, on_read_ready => $worker->dispatcher);
    return;
}

# ---- Stop ---------------------------------------------------------------------------------------

sub _close_worker {
    my ($self, $loop, $at_once) = @_;
    return                    if $self->_is_foreign;
    return $self->_end_master if $self->{master};
    $self->{log}->flush       if $self->{log};
    $self->{listeners}->close;
    $self->_close_status;
    my $worker = $self->{worker} or return;
    $self->{process}->detach_signals($at_once) if $self->{process};
    $self->_unwatch($loop);
    delete $self->{worker};
    $worker->close;
    $self->_stop_counting($loop);
    return;
}

sub _unwatch {
    my ($self, $loop) = @_;
    my $worker = $self->{worker};
    $loop->unwatch_engine($worker) if $worker && $loop && $loop->can('unwatch_engine');
    my $handle = delete $self->{handle} or return;
    $loop->unwatch_io(handle => $handle, on_read_ready => 1) if $loop;
    Peregrine::hide_from_forks(fileno $handle, 0);
    return;
}

# A server that is taken out of its loop stops at once.
sub _remove_from_loop {
    my ($self, $loop) = @_;
    return if $self->_is_foreign;
    $self->_close_worker($loop);
    $self->{running} = 0;
    my ($stopping, $stopped, $timer) = delete @{$self}{qw(stopping stopped leave_timer)};
    $loop->unwatch_time($timer) if $timer;
    $self->_abandon_application;
    $stopped->cancel if $stopped;
    delete @{$self}{qw(starting steps patience)};
    $stopping->done if $stopping;
    delete $self->{process};
    return;
}

sub DESTROY {
    my ($self) = @_;
    return if ${^GLOBAL_PHASE} eq 'DESTRUCT';
    $self->_close_worker($self->loop);
    return;
}

# ---- What the engine's worker tells -------------------------------------------------------------

# A worker process has served its number of requests.
sub _requests_reached {
    my ($self) = @_;
    $self->{on_replace}->('max_requests');
    return;
}

# A forked child runs the loop for something of its own.
sub _leave_loop {
    my ($self) = @_;
    $self->_unwatch($self->loop);
    return;
}

# Lines of an access log whose handle has no descriptor.
sub _access_lines {
    my ($self, $lines) = @_;
    PAGI::Server::AccessLog::take($self->{line_handle}, $lines);
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

sub has_tls   { return Peregrine::has_tls() ? 1 : 0 }
sub has_http2 { return 1 }

sub is_running {
    my ($self) = @_;
    return $self->{running} && !$self->_is_foreign ? 1 : 0;
}

sub connection_count {
    my ($self) = @_;
    return $self->_workers_connections if $self->{master} && !$self->_is_foreign;
    return $self->{worker} ? $self->{worker}->stats->{connections} : 0;
}

sub effective_max_connections {
    my ($self) = @_;
    return $self->_limit_in_force('connections_max');
}

sub effective_memory_max {
    my ($self) = @_;
    return $self->_memory_share($self->_limit_in_force('memory_max'));
}

# The value of an automatic limit, before the start as well.
sub _limit_in_force {
    my ($self, $name) = @_;
    my $worker = $self->{worker} || Peregrine::Worker->new($self->_engine_limits);
    return $worker->stats->{$name};
}

# ---- A loop of its own --------------------------------------------------------------------------

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
    my $starting = $self->listen->await;
    my (undef, $category) = $starting->failure;
    return $starting->get if ($category // '') ne 'stopped';
    # Workers that were about to start are to be gone as well.
    my $stopping = $self->{stopping};
    $stopping->await if $stopping;
    return 0;
}

sub run_loop {
    my ($self) = @_;
    return $self->_process->run;
}

sub fail_stalled {
    my ($self, $exception) = @_;
    return $self->{worker} ? $self->{worker}->fail_stalled($exception) : 0;
}

# The loop of a server that is in none yet.
sub own_loop {
    my ($self) = @_;
    my $type   = $self->{options}{loop_type};
    my $loop   = eval { Peregrine::Process->make_loop($type) };
    die PAGI::Server::Options::exception((defined $type ? "option 'loop_type': " : '') . _without_newline($@))
        if !$loop;
    # An application that has loaded EV waits for nothing in a process that does not run it.
    $loop->stay_out_of_ev if $loop->can('stay_out_of_ev') && ($self->{is_engine} || $self->has_workers);
    $loop->add($self);
    return $loop;
}

# ---- Signals ------------------------------------------------------------------------------------

# The functions of signals, but for those that stop the server.
my %ON = (
    HUP  => sub { my ($self) = @_; return $self->{master} ? $self->restart_workers : $self->load_again },
    TTIN => sub {
        my ($self) = @_;
        return $self->{master} ? $self->change_workers(+1) : $self->_has_no_effect('TTIN');
    },
    TTOU => sub {
        my ($self) = @_;
        return $self->{master} ? $self->change_workers(-1) : $self->_has_no_effect('TTOU');
    },
    USR1 => \&reopen_logs,
    USR2 =>
        sub { my ($self) = @_; return $self->{master} ? $self->hand_over : $self->_has_no_effect('USR2') },
);

# Why a signal has no effect.
my %NOTHING = (
    HUP =>
        'nothing to do: it loads certificates again, and no listener speaks TLS; for new code, start the server again',
    USR2 =>
        'nothing to do: it would hand over to a new server, and this one has no workers; start the server again',
    TTIN => 'nothing to do: it would add a worker, and this server has none',
    TTOU => 'nothing to do: it would remove a worker, and this server has none',
);

sub _process {
    my ($self) = @_;
    return $self->{process} //= Peregrine::Process->new(
        loop   => $self->loop,
        log    => $self->{log},
        server => $self,
        name   => 'PAGI',
        on     => \%ON,
        $self->has_workers ? () : (stop_within => max($self->{options}{shutdown_timeout}, HEAR_S)),
    );
}

sub ignore_signals {
    my ($self) = @_;
    $self->{ignores_signals} = 1;
    return $self;
}

# Signals are pending because they are blocked.
sub _signals_pending {
    my ($self) = @_;
    Peregrine::Process->let_signals_in($self->loop) if $self->loop;
    return;
}

sub load_again {
    my ($self) = @_;
    my @tls = $self->_tls_in_use or return $self->_has_no_effect('HUP');
    return PAGI::Server::TLS->reload_all($self->{log}, @tls);
}

sub reopen_logs {
    my ($self) = @_;
    $self->{worker}->reopen_access_log if $self->{worker};
    $_->tell('reopen') for grep { defined } @{$self}{qw(master engine_master)};
    return $self->_reopen_others;
}

sub _reopen_others {
    my ($self) = @_;
    $_->() for @{ $self->{reopens} || [] };
    return;
}

sub on_reopen_logs {
    my ($self, $code) = @_;
    push @{ $self->{reopens} }, $code;
    return $self;
}

sub _has_no_effect {
    my ($self, $signal) = @_;
    $self->{log}->warn("PAGI: SIG$signal: $NOTHING{$signal}");
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Base - what servers have in common, whichever applications they serve

=head1 DESCRIPTION

The base class of L<PAGI::Server> and L<Plack::Handler::Peregrine::Server>: sockets, signals, the life cycle,
workers, logs and the status. The methods are described in L<PAGI::Server/METHODS>, the options in
L<PAGI::Server/CONSTRUCTOR>. What a server is to know of its applications it says in methods of its own, which
stand at the beginning of the file: how they are attached to the engine's worker, how they start and end.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
