package PAGI::Server::Prefork;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use PAGI::Server::AccessLog;
use PAGI::Server::Log;
use PAGI::Server::Options;
use PAGI::Server::Stop;
use PAGI::Server::TLS;
use Peregrine::Fork;
use Peregrine::Handover;
use Peregrine::Inherited;
use Peregrine::Listeners;
use Peregrine::Master;
use Peregrine::Spread;
use Peregrine::WorkerProcess;
use POSIX        ();
use Scalar::Util qw(weaken);

# Seconds that a start has for loading code, where heartbeat_timeout does not say it.
use constant LOAD_S => 60;

# Limits for all workers together, of which each gets a part.
use constant SHARED => qw(max_connections_per_address max_connection_rate_per_address);

use constant {
    WORKERS_MAX  => PAGI::Server::Options::find('workers')->{max},
    MEMORY_LEAST => PAGI::Server::Options::find('memory_max')->{least},
};

# ---- In the master ------------------------------------------------------------------------------

sub has_workers { return $_[0]{options}{workers} && !$_[0]{worker_num} ? 1 : 0 }

sub load_app_in_workers {
    my ($self, $load) = @_;
    $self->{load_app} = $load;
    return $self;
}

# In place of an engine's worker: what has to exist before rights are given up.
sub _open_for_workers {
    my ($self, $owner) = @_;
    PAGI::Server::AccessLog->prepare($self->{options}{access_log}, $owner);
    $self->{listeners}->open_for_all($self->_engine_count);
    $self->{pid} = $$;
    return $self;
}

sub _listen_with_workers {
    my ($self) = @_;
    if (!eval { $self->_check_loop_type; $self->open_listeners; 1 }) {
        my $error = $@;
        $self->{listeners}->close;
        return Future->fail($error);
    }
    $self->_process->attach_signals if !$self->{ignores_signals};
    $_->{tls} = $self->{configuration}->tls_for($_) for $self->{listeners}->all;
    $self->_start_status_process;
    my $engine = $self->has_engine_process ? $self->_start_engine : Future->done;
    $self->{master} = $self->_make_master;
    my $starting = $self->{starting} =
        $engine->then(sub { $self->{master}->start })->then(sub { Future->done($self) });
    $starting->on_fail(sub {
        delete $self->{starting};
        $self->_end_master if !$self->{stopping};
    });
    return $starting;
}

sub _make_master {
    my ($self) = @_;
    my $options = $self->{options};
    weaken(my $weak = $self);
    # Workers that accept at the same sockets get as many connections each.
    my $shares = !$options->{reuseport} && !$self->{join_socket};
    $self->{spread} = $shares ? Peregrine::Spread->new : undef;
    return Peregrine::Master->new(
        loop              => $self->loop,
        log               => $self->{log},
        name              => $self->_name_in_log,
        workers           => $self->_process_count,
        counters          => $self->{counters},
        spread            => $self->{spread},
        heartbeat_timeout => $self->_worker_heartbeat,
        busy_timeout      => $options->{request_kill_timeout},
        start_timeout     => _start_timeout($options),
        first_takes_over  => $options->{reuseport}
            && !$self->{join_socket},
        stop_timeout => sub { $weak->_stop_timeout(@_) },
        limits       => {
            rss => $options->{max_worker_rss},
            age => $options->{max_worker_age}
                && sub { $_[0]{age_max} //= _by_chance($weak->{options}{max_worker_age}) },
        },
        before_fork => sub {
            my ($number) = @_;
            $weak->{listeners}->open_for($number) if !$weak->{join_socket};
        },
        on_serving => sub { $weak->_serving },
        run        => sub { my ($record) = @_; return $weak->_serve_in_worker($record) },
        $self->_template,
        $self->_reloading,
    );
}

# A process whose workers are clones does not block.
sub _worker_heartbeat {
    my ($self) = @_;
    return $self->has_clones ? $self->_engine_heartbeat : $self->{options}{heartbeat_timeout};
}

# The template: a process that has loaded the application, from which workers are forked. It serves nothing.
sub _template {
    my ($self) = @_;
    return if !$self->{options}{preload_app} || !$self->{load_app} || $self->{reload};
    weaken(my $weak = $self);
    return (
        load => sub {
            $weak->{listeners}->leave_sockets;
            $weak->_leave_status;
            $weak->_forget_keys if $weak->{join_socket};
            $weak->{load_app}->(0);
        },
        sends   => sub { my ($record) = @_; return $weak->_sent_to_worker($record) },
        on_word => sub { my ($word)   = @_; $word eq 'reopen' && $weak->_reopen_others },
    );
}

# The sockets, and which listener each one is.
sub _sent_to_worker {
    my ($self, $record) = @_;
    return ({}, fileno $self->{join_socket}) if $self->{join_socket};
    my @sockets = $self->{listeners}->sockets_for(@{$record}{qw(number wanted)});
    return ({ sockets => join ',', map { $_->[0] } @sockets }, map { fileno $_->[1] } @sockets);
}

# A limit for a worker: a little less than the given one, by chance, so that workers are not replaced at once.
sub _by_chance {
    my ($most) = @_;
    return int $most - $most * (0.01 + rand 0.09) if $most > 100;
    return $most;
}

sub _stop_timeout {
    my ($self, $way, $why) = @_;
    return $self->_reload_timeout if $way eq 'renew';
    my $recycles = $way eq 'retire' && $why ne 'restart';
    return $self->_time_to_stop + ($recycles ? $self->{options}{recycle_timeout} : 0);
}

# Loading code blocks a worker, which cannot say meanwhile that it lives. A start that never ends would keep
# all other workers from being replaced.
sub _start_timeout {
    my ($options) = @_;
    my ($startup, $heartbeat) = @{$options}{qw(lifespan_startup_timeout heartbeat_timeout)};
    return $startup ? $startup + ($heartbeat || LOAD_S) : 0;
}

sub _serving {
    my ($self) = @_;
    $self->{running} = 1;
    $self->{engine_master}->tell('accept') if $self->{engine_master};
    $self->_tell_service;
    $self->_take_over;
    $self->_tell_start;
    return;
}

sub restart_workers {
    my ($self) = @_;
    my @tls = $self->_tls_in_use;
    PAGI::Server::TLS->reload_all($self->{log}, @tls) if @tls;
    $self->{engine_master}->tell('load')              if @tls && $self->{engine_master};
    return $self->_reload('SIGHUP')                   if $self->{reload};
    $self->_tell(info => 'SIGHUP: ' . $self->_what_restarts);
    return $self->{master}->restart;
}

# The way to start the server so that workers load new code, for a message.
sub _way_to_new_code { return 'pagi-server with the file of an application' }

sub _what_restarts {
    my ($self) = @_;
    return
        'the workers are replaced by others with the same code: for new code start the program again, or use '
        . $self->_way_to_new_code
        if !$self->{load_app};
    return
        'a new template loads the application anew; the workers are replaced by others, which come from it'
        if $self->{options}{preload_app};
    return 'the workers are replaced by others, which load the application anew';
}

sub change_workers {
    my ($self, $by) = @_;
    my $master = $self->{master};
    my $clones = $self->has_clones;
    my $count  = $by + ($clones ? $self->{options}{workers} : $master->wanted);
    return $self->_tell(warn => 'SIGTTOU: there is one worker only, which stays') if $count < 1;
    return $self->_tell(warn => "SIGTTIN: there are ${\WORKERS_MAX} workers, no more")
        if $count > WORKERS_MAX;
    $self->_tell(info => ($by > 0 ? 'SIGTTIN' : 'SIGTTOU') . ": workers: $count");
    if ($clones) { $self->change_clones($count); $master->tell(clones => $count) }
    else         { $master->set_workers($count) }
    return;
}

sub _tell {
    my ($self, $level, $text) = @_;
    $self->{log}->$level($self->_name_in_log . ": $text");
    return;
}

# ---- A new program on the same sockets ----------------------------------------------------------

sub keep_pid_file {
    my ($self, $file) = @_;
    $self->{pid_file} = $file;
    return $self;
}

sub hand_over {
    my ($self) = @_;
    my $before = $self->{handover};
    return $self->_tell(warn => 'SIGUSR2: process ' . $before->pid . ' is about to take over already')
        if $before;
    return $self->_tell(warn => 'SIGUSR2: the server does not serve yet, or no more')
        if !$self->{master}->is_running;
    my $instead = $self->_instead_of_handover;
    return $self->_tell(warn => "SIGUSR2: nothing to do: $instead") if defined $instead;
    my $handover = eval { $self->_start_handover };
    return $self->_tell(error => 'SIGUSR2: a new program cannot be started: ' . $@ =~ s/\s+\z//r)
        if !$handover;
    $self->{handover} = $handover;
    weaken(my $weak = $self);
    my $pid = $handover->pid;
    $self->_tell(info => "SIGUSR2: process $pid is to take over when it serves");
    $handover->link->watch($self->loop, sub { $weak && $_[0] eq 'serving' && $weak->_handed_over }, sub { });
    $self->loop->watch_process($pid => sub { $weak && $weak->_handover_ended($_[1]) });
    $self->_limit_handover($handover);
    return;
}

# The reason why USR2 cannot start a new program: the program that watches this process would take its end for
# the end of the server.
sub _instead_of_handover {
    my ($self) = @_;
    my $source = Peregrine::Inherited->source;
    return 'Server::Starter starts new servers itself: send HUP to start_server' if $source eq 'starter';
    return if $source ne 'systemd' || $self->_process->has_service;
    return 'systemd would not know the new process: set Type=notify in the unit of this service';
}

# A new program that hangs while it starts is given up, so that there can be another attempt.
sub _limit_handover {
    my ($self, $handover) = @_;
    my $seconds = _start_timeout($self->{options}) or return;
    weaken(my $weak = $self);
    $self->{handover_timer} = $self->loop->watch_time(
        after => $seconds,
        code  => sub {
            $weak->_tell(
                error => 'SIGUSR2: process ' . $handover->pid . " does not serve after $seconds s: SIGKILL");
            kill KILL => $handover->pid;
        }
    );
    return;
}

sub _unlimit_handover {
    my ($self) = @_;
    my $timer = delete $self->{handover_timer} or return;
    $self->loop->unwatch_time($timer);
    return;
}

sub _start_handover {
    my ($self) = @_;
    my %own    = $self->{listeners}->for_handover;
    my @status = $self->{status} ? $self->{status}{listeners}->for_handover : ();
    my $file   = $self->{pid_file};
    return Peregrine::Handover->start(
        all     => $own{all},
        source  => Peregrine::Inherited->source,
        sockets => $own{sockets},
        aside   => { sockets => [], @status }->{sockets},
        keep    => { $file && $file->handle ? (pid_file => $file->handle) : () },
        say     => {
            ticket_keys =>
                PAGI::Server::TLS->to_hand_over($self->{configuration}->tls, $self->{listeners}->places)
        },
        fork => sub { Peregrine::Fork::child() },
    );
}

# The new program serves.
sub _take_over {
    my ($self) = @_;
    my $handover = Peregrine::Handover->from_environment or return;
    $self->{pid_file}->take_over if $self->{pid_file};
    $_->own_files for $self->{listeners}, map { $_->{listeners} } grep { defined } $self->{status};
    $handover->serving;
    my $inherited = Peregrine::Inherited->from_environment;
    $inherited->close_rest(1) if $inherited;
    return;
}

# In the old program: it leaves, and what has come to it is served.
sub _handed_over {
    my ($self) = @_;
    return if $self->{handed_over}++;
    $self->_unlimit_handover;
    $self->_tell(info => 'process ' . $self->{handover}->pid . ' serves: this one leaves');
    $_->leave_files for $self->{listeners}, map { $_->{listeners} } grep { defined } $self->{status};
    $self->{pid_file}->let_go if $self->{pid_file};
    $self->_process->hand_over($self->{handover}->pid);
    $self->_process->stop_once('_leave');
    return;
}

sub _handover_ended {
    my ($self, $status) = @_;
    $self->_unlimit_handover;
    return if $self->{handed_over};
    my $handover = delete $self->{handover};
    $handover->link->close;
    $self->_tell(error => 'SIGUSR2: process '
            . $handover->pid . ' '
            . Peregrine::Fork::how_it_ended($status)
            . ' and has not taken over: this one goes on');
    return;
}

sub _leave {
    my ($self) = @_;
    return $self->_end_workers('retire');
}

# ---- Stop ---------------------------------------------------------------------------------------

# Closes and removes sockets, so that no client finds them any more. Connections that have come are served by
# the workers, which have copies of the sockets.
sub _stop_workers {
    my ($self) = @_;
    kill TERM => $self->{handover}->pid if $self->{handover} && !$self->{handed_over};
    return $self->_end_workers(!$self->{stopping} && PAGI::Server::Stop::others_accept() ? 'retire' : 'stop');
}

sub _end_workers {
    my ($self, $way) = @_;
    if ($self->{stopping}) {
        $_->$way for grep { defined } @{$self}{qw(engine_master master)};
        return $self->{stopping};
    }
    $self->{running} = 0;
    $self->_begin_stop;
    my $stopping = $self->{stopping} = $self->loop->new_future;
    $self->{listeners}->close;
    # A program that takes over shows the status from now on; otherwise it is shown to the end.
    my $status = $way eq 'retire' ? $self->_stop_status_process : undef;
    my $engine = $self->_end_engine($way) || Future->done;
    my $stopped =
        $engine->then(sub { $self->{master}->$way })->then(sub { $status || $self->_stop_status_process });
    $stopped->on_ready(sub { $self->_all_stopped })->retain;
    return $stopping;
}

sub _all_stopped {
    my ($self) = @_;
    $self->_tell(info => 'the server has stopped');
    # Not in a signal's callback, see Peregrine::Process/detach_signals.
    $self->loop->later(sub {
        $self->_end_master;
        delete $self->{stop_until};
        delete($self->{stopping})->done;
    });
    return;
}

sub _end_master {
    my ($self) = @_;
    $self->{log}->flush;
    $self->{listeners}->close;
    $self->_close_status;
    $self->_stop_reloading;
    $self->_unlimit_handover;
    delete @{$self}{qw(master engine_master join_socket engine_socket starting)};
    $self->{process}->detach_signals if $self->{process};
    return;
}

sub _workers_connections {
    my ($self) = @_;
    my $count = 0;
    $count += $_->{connections} || 0 for $self->{master}->workers;
    return $count;
}

# ---- In a worker --------------------------------------------------------------------------------

# Its exit status.
sub _serve_in_worker {
    my ($self, $record) = @_;
    $self->_forget_keys if $self->{join_socket};
    my $server = $self->_for_worker($record->{number});
    $server->{link} = $record->{link};
    if ($self->{join_socket}) { $server->_take_join_socket($self->{join_socket}, $record) }
    else                      { $server->_take_sockets($record) }
    $self->_leave_status;
    $server->use_counters($self->{counters}, $record->{column});
    my $loop   = $server->own_loop;
    my $worker = Peregrine::WorkerProcess->new(
        link              => $record->{link},
        loop              => $loop,
        server            => $server,
        log               => $server->{log},
        name              => $self->_name_in_log . ": worker $record->{number}",
        heartbeat_timeout => $server->_worker_heartbeat,
    );
    $server->{busy}       = [ $self->{master}->busy_words, $record->{busy} ]   if defined $record->{busy};
    $server->{spread}     = [ $self->{spread}->words,      $record->{spread} ] if defined $record->{spread};
    $server->{on_replace} = sub { my ($why) = @_; $worker->ask_for_replacement($why) };
    if    ($self->{reload})   { $self->_load_again($server, $record) }
    elsif ($self->{load_app}) { $server->{options}{app} = $self->_load_in_worker($record->{number}) }
    my $has_clones = $server->has_clones;
    $server->_prepare_clones if $has_clones;
    $server->start or return 0;
    $server->_start_clones || return 0 if $has_clones;
    $worker->ready;
    return defined $worker->run ? 1 : 0;
}

# Loops keep TERM for their next turn, which comes after the load: until then it just ends the worker.
sub _load_in_worker {
    my ($self, $number)  = @_;
    my ($term, $blocked) = (POSIX::SigSet->new(POSIX::SIGTERM()), POSIX::SigSet->new);
    local $SIG{TERM} = 'DEFAULT';
    POSIX::sigprocmask(POSIX::SIG_UNBLOCK(), $term, $blocked);
    my $app   = eval { $self->has_clones ? $self->_load_for_clones($number) : $self->{load_app}->($number) };
    my $error = $@;
    POSIX::sigprocmask(POSIX::SIG_SETMASK(), $blocked);
    die $error if !$app;
    return $app;
}

# The listening sockets that a worker has inherited or was sent.
sub _take_sockets {
    my ($self, $record) = @_;
    my $listeners = $self->{listeners};
    return $listeners->adopt([ split /,/, $record->{sockets} ], $record->{descriptors})
        if $record->{descriptors};
    return $record->{number} == 1 ? $listeners->take_over_beyond($record->{wanted}) : ();
}

# The way to the engine: inherited, or sent.
sub _take_join_socket {
    my ($self, $join_socket, $record) = @_;
    if ($record->{descriptors}) {
        open $join_socket, '+<&=', $record->{descriptors}[0] or die "the engine's join socket: $!\n";
    }
    $self->{join_socket} = $join_socket;
    return;
}

# A server with all that this one was given and has loaded: options, certificates, sockets.
sub _for_worker {
    my ($self, $number) = @_;
    my $options = $self->{options};
    PAGI::Server::Options::forget_environment();
    my $server = ref($self)->new_for_itself(
        load_app      => $self->{load_app},
        configuration => $self->{configuration}->shared_by($self->_share),
    );
    $server->{worker_num} = $number;
    @{$server}{qw(listeners reopens)} = @{$self}{qw(listeners reopens)};
    $server->ignore_signals;
    $server->{options}{loop_type} //= ref($self->loop) =~ s/\AIO::Async::Loop:://r;
    return $server;
}

# Which of several engines a client comes to is chance, so each one lets a part of what is allowed in, rounded
# up.
sub _share {
    my ($self)  = @_;
    my $options = $self->{options};
    my $memory  = $self->effective_memory_max;
    my $count   = $self->_engine_count;
    my %share   = map { $_ => POSIX::ceil($options->{$_} / $count) } grep { $options->{$_} } SHARED;
    $share{memory_max} = $memory if $memory;
    return %share;
}

# A worker's part of a limit on the memory of all.
sub _memory_share {
    my ($self, $all) = @_;
    return $all if !$all || !$self->has_workers;
    my $share = int $all / $self->_engine_count;
    return $share < MEMORY_LEAST ? MEMORY_LEAST : $share;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Prefork - a PAGI::Server with worker processes

=head1 DESCRIPTION

A base class of L<PAGI::Server::Base>: what it does when its option C<workers> is set. The process of the
server is the master then (L<Peregrine::Master>), which runs no application. Each worker is a process that has
been forked from it and runs a L<PAGI::Server> of its own on the same sockets, with the same options.

=head1 METHODS

=head2 has_workers

    say 'this is a master' if $server->has_workers;

=head2 hand_over

    $server->hand_over;

What USR2 does, see L<PAGI::Server/WORKERS>. Under Server::Starter, and under systemd if that is not told of
the new process, it says what to do instead.

=head2 keep_pid_file

    $server->keep_pid_file($pid_file);

A L<PAGI::Server::PidFile> that a new program takes over as well.

=head2 restart_workers

    $server->restart_workers;

What HUP does: loads certificates again, and replaces the workers one after another. If a new one cannot
start the others stay. Returns a Future that is done when no more are to be replaced.

=head2 change_workers

    $server->change_workers(+1);

What TTIN does; with -1 what TTOU does.

=head2 load_app_in_workers

    $server->load_app_in_workers(sub { my ($number) = @_; return load() });

The application is what the function returns, which each worker calls for itself: so workers that are started
later have newer code. What it dies of is why the worker cannot start. With C<preload_app> it is called in the
template first, where the number is 0, and then in each worker, where it should return what it has.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
