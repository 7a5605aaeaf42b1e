package Peregrine::Server::Instance;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use PAGI::Server::Options;
use PAGI::Server::Reports;
use PAGI::Server::TLS;
use Peregrine;
use Peregrine::Later qw(later);
use Peregrine::Listener;
use Peregrine::Process;
use Peregrine::Server::Engine;
use Peregrine::Server::Placement;
use Peregrine::Server::Stop;
use Scalar::Util qw(weaken);

# Milliseconds after which an engine whose application is at one event leaves accepting to other workers.
use constant YIELD_MS => 5;

# Seconds after which interpreters leave an engine that has gone: at a stop the engine ends first.
use constant LOST_S => 1;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# For each role of a process, whether it has an engine, and whether it has the application.
my %ROLES = (
    alone       => [ 1, 1 ],
    prefork     => [ 1, 1 ],
    engine      => [ 1, 0 ],
    interpreter => [ 0, 1 ],
    clone       => [ 0, 1 ],
);

sub new {
    my ($class, %args) = @_;
    my $self = bless { reopens => [], %args }, $class;
    @{$self}{qw(has_engine has_application)} = @{ $ROLES{ $self->{role} } };
    $self->{placement} ||= Peregrine::Server::Placement->new($self->options, $self->{application});
    $self->{reports} = PAGI::Server::Reports->new($self);
    $self->{stop}    = Peregrine::Server::Stop->new($self);
    weaken($self->{$_}) for qw(loop server);
    return $self;
}

sub loop          { return $_[0]{loop} }
sub log           { return $_[0]{log} }
sub configuration { return $_[0]{configuration} }
sub options       { return $_[0]{configuration}->options }
sub listeners     { return $_[0]{listeners} }
sub application   { return $_[0]{application} }
sub reports       { return $_[0]{reports} }
sub engine        { return $_[0]{engine} }
sub number        { return $_[0]{number} }
sub link          { return $_[0]{link} }
sub is_clone      { return $_[0]{role} eq 'clone' }
sub is_running    { return $_[0]{running} ? 1 : 0 }
sub starting      { return $_[0]{starting} }
sub stopping      { return $_[0]{stop}->stopping }
sub deadline      { return $_[0]{stop}->deadline }

sub is_starting {
    my ($self) = @_;
    return $self->{starting} && !$self->{starting}->is_ready;
}

# The process of the instance. In a forked child it is a copy, and none of it may be used.
sub pid        { return $_[0]{pid} }
sub is_foreign { return defined $_[0]{pid} && $_[0]{pid} != $$ }

sub use_loop {
    my ($self, $loop) = @_;
    $self->{loop} = $loop;
    weaken($self->{loop});
    return;
}

sub time_to_stop {
    my ($self) = @_;
    return $self->deadline->left($self->options->{shutdown_timeout});
}

sub connection_count {
    my ($self) = @_;
    return $self->{engine} ? $self->{engine}->worker->stats->{connections} : 0;
}

sub limit_in_force {
    my ($self, $name) = @_;
    return $self->{engine}
        ? $self->{engine}->worker->stats->{$name}
        : $self->{placement}->limit_in_force($name);
}

# ---- Start --------------------------------------------------------------------------------------

# The node of the hub for the application here; nothing without channels.
sub channels {
    my ($self) = @_;
    my $hub = $self->{hub} or return;
    return $self->{node} ||= $hub->node($self->{loop});
}

# The pool that the application here calls for blocking work; nothing without one.
sub worker_pool {
    my ($self) = @_;
    return $self->{calls} ||= $self->_make_calls;
}

sub _make_calls {
    my ($self) = @_;
    my $calls = $self->{pool} ? $self->{pool}->for_interpreter($self->{loop}) : undef;
    return $calls if !$self->{placement}->sync_interpreters;
    require PAGI::Server::SyncHandlers;
    return PAGI::Server::SyncHandlers->new(
        here        => $self->is_sync,
        calls       => $calls,
        worker_pool => $self->options->{worker_pool},
        workers     => $self->{placement}->sync_interpreters,
        queue       => $self->options->{pool_queue} || 1,
    );
}

# Whether the application here gets only requests that other interpreters hand over.
sub is_sync {
    my ($self) = @_;
    return $self->{role} eq 'interpreter' && $self->{placement}->is_sync($self->{number});
}

# Settings for the worker about handlers that block. `is_sync`: the application is such a handler.
sub sync_handlers {
    my ($self, $is_sync) = @_;
    return if !$self->{placement}->sync_interpreters;
    return (sync => 'here', worker_state => $self->worker_pool->state) if $self->is_sync;
    return (sync => 'over', passes_on => $is_sync);
}

# Binds the addresses and opens the access log, for which a process may need rights that it gives up then.
sub open {
    my ($self, %owner) = @_;
    return if $self->{engine};
    $self->{pid} = $$;
    if ($self->{has_engine}) {
        $self->{configuration}->open_sockets(@{$self}{qw(listeners log)}, \%owner);
        $self->{monitor}->bind(\%owner) if $self->{monitor} && $self->{role} eq 'alone';
        return $self->_make_engine($owner{uid});
    }
    # The engine's process has the sockets.
    $self->{listeners}->leave_sockets;
    $self->{engine} = Peregrine::Server::Engine->join(
        $self->{configuration},
        socket  => $self->{join_socket},
        link    => $self->{link},
        is_sync => $self->is_sync,
    );
    return;
}

sub _make_engine {
    my ($self, $owner) = @_;
    $self->{engine} = Peregrine::Server::Engine->make(
        $self->{configuration},
        limits => $self->_engine_limits($self->options),
        owner  => $owner
    );
    $self->{pid} = $$;
    return;
}

# Limits of the engine among these options, and those that depend on the number of engines.
sub _engine_limits {
    my ($self, $options) = @_;
    my $placement = $self->{placement};
    my $limits    = $placement->engine_limits($options);
    $limits->{accept_yield_ms} = $placement->engines > 1 ? YIELD_MS : 0 if $self->{role} eq 'prefork';
    return $limits;
}

# Binds the sockets before the application is loaded: nothing that it does has to be undone when an address is
# taken, and processes that it forks get nothing of the engine.
sub bind {
    my ($self) = @_;
    $self->open;
    $self->_make_engine                         if $self->is_foreign;
    return                                      if !$self->{has_engine};
    $self->{engine}->worker->pause_accepting(1) if $self->{accepts_later};
    $self->{listeners}->hand_over($self->{engine}->worker);
    return;
}

sub listen {
    my ($self) = @_;
    return $self->begin if eval { $self->bind; 1 };
    my $error = $@;
    $self->close;
    return Future->fail($error);
}

# Starts the application, and then serves requests. The sockets are open.
sub begin {
    my ($self) = @_;
    $self->{hub}->start_thread($self->{loop}) if $self->{hub} && $self->{role} eq 'alone';
    my $starting = $self->_start_pool->then(sub {
        return $self->{has_application} ? $self->{application}->start($self) : Future->done;
    })->then(sub { $self->_warm_up })->then(sub {
        return Future->done($self) if eval { $self->_serve; 1 };
        my $error = $@;
        $self->close;
        return $self->end_application->then(sub { Future->fail($error) });
    });
    $self->{starting} = $starting;
    $starting->on_fail(sub { $self->finish });
    return $starting;
}

# Starts the pool, which beside other interpreters is the master's. Its processes are forked before the
# application starts, so that they have nothing that it opens.
sub _start_pool {
    my ($self) = @_;
    Peregrine::Process->load_once($self->{log}, 'code of the worker pool', sub { $self->worker_pool->begin })
        if $self->is_sync;
    my $pool = $self->{role} eq 'alone' ? $self->{pool} : undef;
    return Future->done if !$pool;
    return $pool->start(
        $self->{loop},
        leave => sub {
            Peregrine::Listener->leave_others;
            $self->{listeners}->leave_sockets;
            $self->{monitor}->leave_place if $self->{monitor};
            $self->{hub}->leave           if $self->{hub};
            PAGI::Server::Options::forget_environment();
        }
    );
}

# Has the application answer some requests before clients' requests come.
sub _warm_up {
    my ($self) = @_;
    return Future->done if !$self->{has_application} || !defined $self->options->{warm_up};
    require Peregrine::Server::WarmUp;
    my $warm_up = $self->{warm_up} = Peregrine::Server::WarmUp->new($self);
    return $warm_up->run->on_ready(sub { delete $self->{warm_up} })->else(sub {
        my @failure = @_;
        return $self->end_application->then(sub { Future->fail(@failure) });
    });
}

# Interrupts the start, which fails with the category `stopped`.
sub stop_start {
    my ($self) = @_;
    return $self->{warm_up}->stop if $self->{warm_up};
    $self->{pool}->stop_start     if $self->{pool} && $self->{role} eq 'alone';
    return $self->{application}->stop_start;
}

sub _serve {
    my ($self) = @_;
    my ($engine, $monitor) = @{$self}{qw(engine monitor)};
    my $worker = $engine->worker;
    if ($self->{has_application}) { $self->{application}->attach($worker, $self) }
    else                          { $self->_use_interpreters($worker) }
    $self->{hub}->deliver($worker)            if $self->{hub} && $self->_has_engine_elsewhere;
    $engine->prepare($self->{listeners}->all) if $self->{has_engine};
    $worker->tell_after($self->{configuration}->by_chance('max_requests'))
        if $self->{on_replace} && $self->options->{max_requests};
    $engine->watch($self->{loop});
    $monitor->start_counting($worker, $self->{loop}, $self->{number}) if $monitor && $self->{has_engine};
    $worker->share_sockets(@{ delete $self->{spread} })               if $self->{spread};
    $monitor->serve($self->{loop})                                    if $monitor && $self->{role} eq 'alone';
    $self->{running} = 1;
    return if !$self->{has_application};
    my $name = $self->{application}->name;
    if   ($self->is_clone) { $worker->answer_when_thread_is_stuck("$name: interpreter $self->{number}") }
    else                   { $worker->answer_when_stuck($name) }
    $worker->show_busy_in(@{ $self->{busy} })                if $self->{busy};
    $self->{tally}[0]->count($worker, $self->{tally}[1])     if $self->{tally};
    $self->{link}->say(thread => Peregrine::thread_number()) if $self->is_clone;
    $self->{server}->serves($monitor->listeners)             if $self->{server};
    return;
}

# Whether the engine is this process's, and not on the application's thread.
sub _has_engine_elsewhere {
    my ($self) = @_;
    return $self->{has_engine} && (!$self->{has_application} || $self->options->{engine} eq 'thread');
}

# Makes the engine give all requests to interpreters that join it.
sub _use_interpreters {
    my ($self, $worker) = @_;
    $worker->serve_for($self->{reports});
    $self->{application}->add_routes($worker);
    my ($options, $placement) = ($self->options, $self->{placement});
    my @pools    = @{ $self->{mount_pools} || [] };
    my %settings = (
        exchanges => $options->{max_concurrency},
        handed => $placement->sync_interpreters ? $options->{pool_queue} || 1 : 0,
        @pools ? (seats => $placement->places, $self->_account_of(0, '*')) : (),
    );
    $worker->use_interpreters(fileno $self->{engine_socket}, \%settings) >= 0
        or die "the engine cannot serve interpreters: $!\n";

    for my $pool (@pools) {
        my %own   = (%{ $pool->limits($options) }, $self->_account_of($pool->group, $pool->name));
        my $group = $worker->add_group(fileno $pool->engine_socket,
            { %own, seats => $placement->places($pool->workers) });
        die "the engine cannot serve a group of interpreters: $!\n" if $group != $pool->group;
    }
    return;
}

# The engine's settings for a group: its name in logs, and its counters if the status is shown.
sub _account_of {
    my ($self, $group, $name) = @_;
    return (name => $name, $self->{figures} ? $self->{figures}->for_engine($group) : ());
}

# Wraps an application so that its responses may name a file and are compressed.
sub around {
    my ($self, $kind, $app) = @_;
    my $options = $self->options;
    if (defined $options->{x_sendfile}) {
        require PAGI::Server::SendFile;
        $app = PAGI::Server::SendFile->$kind($app, $options->{x_sendfile});
    }
    return $app if !$options->{compress};
    require PAGI::Server::Compression;
    return PAGI::Server::Compression->new(%$options, loop => $self->{loop})->$kind($app);
}

# Waits for a start. False: it was told to stop meanwhile, and has stopped.
sub awaited {
    my ($starting, $instance) = @_;
    my (undef,     $category) = $starting->await->failure;
    return $starting->get // 1 if ($category // '') ne 'stopped';
    my $stopping = $instance->stopping;
    $stopping->await if $stopping;
    return 0;
}

sub start {
    my ($self) = @_;
    return awaited($self->listen, $self);
}

# ---- While it serves ----------------------------------------------------------------------------

sub problem_with {
    my ($self, $given) = @_;
    return $self->{engine} ? $self->{engine}->problem_with($given) : undef;
}

# Returns the options that wait for the next start.
sub configure {
    my ($self, $configuration) = @_;
    $self->{configuration} = $configuration;
    return $self->{engine} ? $self->{engine}->configure($configuration) : ();
}

# Sets the function that gets the reason why another process or interpreter is to take the place of this one.
sub on_replace {
    my ($self, $code) = @_;
    $self->{on_replace} = $code;
    return;
}

sub can_be_replaced { return $_[0]{on_replace} ? 1 : 0 }

sub ask_for_replacement {
    my ($self, $why) = @_;
    $self->{on_replace}->($why) if $self->{on_replace};
    return;
}

# Accepts connections, because an interpreter serves. Until then they wait in the kernel: another program at
# the same sockets may serve them before, and interpreters that never end their start would lose them.
sub accept_connections {
    my ($self) = @_;
    $self->{engine}->worker->pause_accepting(0) if delete $self->{accepts_later} && $self->{engine};
    return;
}

# Sets whether interpreters get few requests in turns, while one of them, a canary, is to have its share.
sub take_turns {
    my ($self, $on) = @_;
    $self->{engine}->worker->take_turns($on) if $self->{engine};
    return;
}

# Refuses requests of a group without interpreters, while the server stops.
sub refuse_group {
    my ($self, $group) = @_;
    my $count = $self->{engine} ? $self->{engine}->worker->refuse_group($group) : 0;
    $self->{log}->warn("no worker serves, refusing requests that wait for one (503): $count") if $count;
    return;
}

# Notes that there are more interpreters, or fewer: this engine's part of limits is another one.
sub change_interpreters {
    my ($self, $count) = @_;
    my $placement = $self->{placement};
    $placement->set_interpreters($count);
    my %share = $placement->share;
    $self->{configuration} = $self->{configuration}->shared_by(%share);
    my $limits = $self->_engine_limits(\%share);
    for my $name (grep { $self->{engine} } sort keys %$limits) {
        next if $self->{engine}->worker->set($name => $limits->{$name}) >= 0;
        $self->{log}->error("the engine does not take $name = $limits->{$name}");
    }
    $self->{clones}->set_count($count) if $self->{clones};
    return;
}

sub load_again {
    my ($self) = @_;
    return PAGI::Server::TLS->reload_all($self->{log}, $self->tls_in_use);
}

# Does nothing: an engine without an application hears of certificates itself, and has no process to tell.
sub tell_certificates { return }

sub take_certificates {
    my ($self, @message) = @_;
    return $self->{configuration}->tls->take($self->{log}, @message);
}

# The TLS objects of the listeners, now or after the application's startup; several listeners may share one.
sub tls_in_use {
    my ($self) = @_;
    my $configuration = $self->{configuration};
    return
        map { ($self->is_starting ? $configuration->tls_for($_) : $_->{tls}) // () } $self->{listeners}->all;
}

# `descriptor`: the new file of a log, which the master has opened.
sub reopen_logs {
    my ($self, @descriptor) = @_;
    $self->{engine}->worker->reopen_access_log if $self->{engine};
    Peregrine::Process->take_logs($self->{reopens}, @descriptor);
    $self->{pool}->tell(reopen => undef, fileno STDERR)
        if $self->{pool} && $self->{role} eq 'alone' && @{ $self->{reopens} };
    return;
}

sub fail_stalled {
    my ($self, $exception) = @_;
    return $self->{engine} ? $self->{engine}->worker->fail_stalled($exception) : 0;
}

# ---- Stop ---------------------------------------------------------------------------------------

sub shutdown     { return $_[0]{stop}->shutdown }
sub retire       { return $_[0]{stop}->retire($_[1]) }
sub hurry        { return $_[0]{stop}->hurry($_[1]) }
sub give_up_stop { return $_[0]{stop}->give_up }
sub stop_within  { return $_[0]{stop}->deadline->within($_[1]) }

# Called when all connections are gone. In an interpreter the engine has gone, and a new one is about to come,
# which another interpreter joins; unless all stop.
sub connections_gone {
    my ($self) = @_;
    return $self->{stop}->connections_gone if $self->{has_engine} || $self->stopping;
    later($self->{loop}, LOST_S, $self, '_leave_engine');
    return;
}

sub _leave_engine {
    my ($self) = @_;
    return if !$self->{running};
    $self->{log}->warn('the engine has gone: another worker is to join the next one');
    return $self->ask_for_replacement('engine');
}

# Notes that the instance stops.
sub leave_service {
    my ($self) = @_;
    $self->{running} = 0;
    return;
}

sub end_interpreters {
    my ($self) = @_;
    return $self->{clones} ? $self->{clones}->end : Future->done;
}

sub end_application {
    my ($self) = @_;
    return Future->done if !$self->{has_application};
    return $self->{application}->end(sub { return $self->time_to_stop })->then(sub { $self->_stop_pool });
}

sub _stop_pool {
    my ($self) = @_;
    my $calls = delete $self->{calls};
    $calls->end         if $calls;
    return Future->done if !$self->{pool} || $self->{role} ne 'alone';
    return $self->{pool}->stop($self->{loop}, $self->time_to_stop);
}

sub abandon_application {
    my ($self) = @_;
    $self->{clones}->abandon if $self->{clones};
    $self->{application}->abandon;
    $self->{pool}->hurry if $self->{pool};
    return;
}

sub close {
    my ($self, $at_once) = @_;
    return if $self->is_foreign;
    $self->{log}->flush;
    $self->{listeners}->close;
    $self->{monitor}->close_place     if $self->{monitor} && $self->{role} eq 'alone';
    $self->{server}->closes($at_once) if $self->{server};
    my $engine = delete $self->{engine};
    return if !$engine;
    $engine->close;
    $self->{monitor}->stop_counting($self->{loop}) if $self->{monitor};
    return;
}

# Closes everything, so that the instance can be started again.
sub finish {
    my ($self, $at_once) = @_;
    $self->close($at_once);
    $self->{application}->abandon;
    $self->_leave_others;
    delete $self->{starting};
    $self->{server}->ended if $self->{server};
    return;
}

sub _leave_others {
    my ($self) = @_;
    my $node = delete $self->{node};
    $node->end if $node;
    my $calls = delete $self->{calls};
    $calls->end               if $calls;
    return                    if $self->{role} ne 'alone';
    $self->{hub}->stop_thread if $self->{hub};
    $self->{pool}->abandon    if $self->{pool};
    return;
}

# Ends the instance, because its loop does not run any more.
sub abandon {
    my ($self) = @_;
    return if $self->is_foreign;
    $self->{running} = 0;
    $self->finish;
    $self->{stop}->abandon;
    return;
}

# Ends a clone, perhaps after `exit` in the application: then its request waits for an answer.
sub leave_thread {
    my ($self) = @_;
    my $reason = 'the application has called exit' . Peregrine::Process::exit_place();
    $self->{link}->say('exited') if $self->{engine} && $self->{engine}->worker->left_behind("$reason\n");
    $self->abandon;
    return;
}

sub DESTROY {
    my ($self) = @_;
    $self->close if ${^GLOBAL_PHASE} ne 'DESTRUCT';
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::Instance - serves requests in one process, or in one clone

=head1 DESCRIPTION

One engine, one application, or both, by its role:

    alone        both, in the process of a server without workers
    prefork      both, in one of several such processes
    engine       an engine, which interpreters join: in a process of its own, or beside clones
    interpreter  the application, in a process that joins an engine
    clone        the application, in a thread

Its parts are a L<Peregrine::Server::Engine>, an application (L<PAGI::Server::Application>), the
L<Peregrine::Server::Stop>, and the L<PAGI::Server::Reports> of the engine. A L<Peregrine::Server> without
C<workers> has one; otherwise each process makes its own.

=head1 METHODS

=head2 new

    my $instance = Peregrine::Server::Instance->new(
        role => 'alone', loop => $loop, log => $log, configuration => $configuration,
        listeners => $listeners, application => $application,
    );

Further arguments: C<number> of the child, C<monitor> (L<Peregrine::Server::Monitor>), C<reopens> (functions
for C<reopen_logs>), C<server> (told what happens by its methods C<serves>, C<closes> and C<ended>), C<link>
to the master, C<join_socket>, C<engine_socket>, C<clones> (L<Peregrine::Server::Clones>), C<accepts_later>,
C<mount_pools> (L<Peregrine::Server::MountPool>s, in an engine) and C<figures>
(L<Peregrine::Server::MountFigures>), C<busy>, C<spread> and C<tally> (words in
shared memory).

=head2 use_loop, open, bind, begin, listen, start

    $instance->open(uid => $uid, gid => $gid);
    my $starting = $instance->listen;
    $instance->start or return;

C<listen> is C<bind>, which opens the sockets and the engine, and C<begin>, which starts the application and
serves. C<start> waits for it, and is false if the instance was told to stop meanwhile.

=head2 configure, problem_with

    my @later   = $instance->configure($configuration);
    my $problem = $instance->problem_with(\%given);

=head2 shutdown, stop_start, retire, hurry, stop_within, give_up_stop, stopping, deadline, time_to_stop

    my $stopping = $instance->retire('max_requests');

See L<Peregrine::Server::Stop>.

=head2 close, finish, abandon, leave_thread

    $instance->close($at_once);

Closes what it has open; ends it, so that it can be started again; ends it without the loop; ends a clone.

=head2 on_replace, ask_for_replacement, can_be_replaced

    $instance->on_replace(sub { my ($why) = @_; ... });

=head2 accept_connections, refuse_group, change_interpreters, load_again, reopen_logs, fail_stalled

What a L<Peregrine::Child> and a L<Peregrine::Process> tell it.

=head2 connections_gone, leave_service, end_interpreters, end_application, abandon_application

What its own parts tell it.

=head2 around

    my $wrapped = $instance->around(pagi => $app);

An application whose responses may name a file, and are compressed, as the options say.

=head2 loop, log, configuration, options, listeners, application, reports, engine, number

=head2 is_clone, is_running, is_starting, is_foreign, starting, connection_count, limit_in_force, tls_in_use

=head1 FUNCTIONS

=head2 awaited

    my $serves = Peregrine::Server::Instance::awaited($starting, $instance);

Waits for a start; false if C<$instance> was told to stop meanwhile, and has stopped.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
