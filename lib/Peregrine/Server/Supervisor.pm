package Peregrine::Server::Supervisor;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use PAGI::Server::AccessLog;
use PAGI::Server::Options;
use PAGI::Server::TLS;
use Peregrine::Deadline;
use Peregrine::Later qw(later);
use Peregrine::Listener;
use Peregrine::Master;
use Peregrine::Process;
use Peregrine::Server::Control;
use Peregrine::Server::Instance;
use Peregrine::Server::Monitor;
use Peregrine::Server::MountPool;
use Peregrine::Server::Stop;
use Peregrine::Server::Takeover;
use Peregrine::Server::Tracing;
use Peregrine::Spread;
use Peregrine::Child;
use POSIX        ();
use Scalar::Util qw(weaken);
use Socket       qw(AF_UNIX PF_UNSPEC SOCK_SEQPACKET);

use constant WORKERS_MAX => PAGI::Server::Options::find('workers')->{max};

# Seconds between two looks, during a stop, for applications none of whose workers can start.
use constant LOOK_S => 1;

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

sub new {
    my ($class, %args) = @_;
    my $self = bless {%args}, $class;
    $self->{deadline} = Peregrine::Deadline->new;
    require Peregrine::Server::Clones if $self->{placement}->has_clones;
    weaken($self->{server});
    $self->configure($args{configuration});
    return $self;
}

# Takes the loop, and a Peregrine::Process.
sub use_loop {
    my ($self, $loop, $process) = @_;
    $self->{loop} = $loop;
    weaken($self->{loop});
    weaken(my $weak    = $self);
    weaken(my $stopped = $process);
    $self->{takeover} = Peregrine::Server::Takeover->new(
        %{$self}{qw(loop log pid_file)},
        limit   => $self->{configuration}->start_timeout,
        set_by  => $self->{configuration}->deadline_names->{start},
        process => $process,
        # The monitor has none before the start.
        listeners => sub { return ($weak->{listeners}, $weak->{monitor}->listeners) },
        leave     => sub { $stopped->stop_once('leave') },
    );
    return;
}

# Takes over options, before the start only.
sub configure {
    my ($self, $configuration) = @_;
    @{$self}{qw(configuration options)} = ($configuration, $configuration->options);
    return;
}

sub placement  { return $_[0]{placement} }
sub stopping   { return $_[0]{stopping} }
sub is_running { return $_[0]{running} ? 1 : 0 }
sub pid        { return $_[0]{pid} }
sub is_foreign { return defined $_[0]{pid} && $_[0]{pid} != $$ }

# The reason why options cannot change now: the change would not reach the interpreters.
sub problem_with {
    my ($self, $given) = @_;
    return if !$self->{master} || !%$given;
    return
        'workers run with the options that they were started with; stop the server before its options change: '
        . join ', ', sort keys %$given;
}

sub tls_in_use {
    my ($self) = @_;
    return map { $_->{tls} // () } $self->{listeners}->all;
}

sub limit_in_force {
    my ($self, $name) = @_;
    return $self->{placement}->limit_in_force($name);
}

sub connection_count {
    my ($self) = @_;
    my $count = 0;
    $count += $_->{connections} || 0
        for $self->{master} && !$self->is_foreign ? $self->{master}->children : ();
    return $count;
}

# ---- Start --------------------------------------------------------------------------------------

# Opens everything that has to exist before rights are given up.
sub open {
    my ($self, %owner) = @_;
    $self->{configuration}->open_sockets(@{$self}{qw(listeners log)}, \%owner);
    $self->{monitor}->bind(\%owner);
    $self->{hub}->listen(%owner) if $self->{hub};
    PAGI::Server::AccessLog->prepare($self->{options}{access_log}, $owner{uid});
    $self->{listeners}->open_for_all($self->{placement}->engines);
    # Limits in force are asked for before processes fork.
    $self->{placement}->share;
    $self->{pid} = $$;
    return;
}

sub bind {
    my ($self) = @_;
    Peregrine::Server::Clones::check_options($self->{options}) if $self->{placement}->has_clones;
    return $self->open;
}

sub begin {
    my ($self) = @_;
    $_->{tls} = $self->{configuration}->tls_for($_) for $self->{listeners}->all;
    my @groups = $self->{application}->groups;
    $self->{figures} =
        $self->{monitor}->count_mounts(map { Peregrine::Server::MountPool::name_of($_) } @groups);
    $self->{hub}->confine(@{$_}{qw(group topics)}) for grep { $self->{hub} && defined $_->{topics} } @groups;
    $self->_start_status;
    $self->_start_hub if $self->{hub};
    $self->{mount_pools} = $self->_mount_pools;
    $self->{control}     = Peregrine::Server::Control->new(%{$self}{qw(loop log)}, supervisor => $self);
    my $engine = $self->{placement}->has_engine_process ? $self->_start_engine : Future->done;
    $self->{master} = $self->_make_master;
    weaken(my $weak = $self);
    my $starting = $engine->then(sub { $self->_start_pool })->then(sub {
        $_->start for @{ $self->{mount_pools} };
        $self->{figures}->note($self->{loop}, $self) if $self->{figures};
        return $self->{master}->start;
    });
    return $starting->else(sub {
        my @failure = @_;
        my $ending  = Future->call(sub { $weak ? $weak->_end_failed_start : Future->done });
        # The end of the processes may fail as well, but the log needs the start's failure.
        return $ending->followed_by(sub { Future->fail(@failure) });
    });
}

# Ends the processes of a failed start before its caller hears of the failure: the caller may end then, and
# they would keep sockets and memory until they notice.
sub _end_failed_start {
    my ($self) = @_;
    return Future->done if $self->{stopping};
    return $self->_end_processes('stop')->on_ready(sub {
        return if $self->{stopping};
        $self->close;
        $self->{deadline}->clear;
    });
}

sub _mount_pools {
    my ($self) = @_;
    weaken(my $weak = $self);
    my @pools = map {
        Peregrine::Server::MountPool->new(
            loop  => $self->{loop},
            log   => $self->{log}->of($_->{path} . '/' . (defined $_->{host} ? " at $_->{host}" : '')),
            mount => $_,
            make  => sub { my ($pool) = @_; return $weak->_make_master($pool) },
        );
    } $self->{application}->groups;
    return \@pools;
}

# Drops the sockets by which interpreters join the engine: with them a process could get any mount's requests.
sub _leave_joins {
    my ($self) = @_;
    delete @{$self}{qw(join_socket engine_socket)};
    $_->leave_sockets for @{ $self->{mount_pools} || [] };
    return;
}

# Closes descriptors that the hub alone needs. Nodes and publishers keep their way to it.
sub _leave_hub {
    my ($self, @group) = @_;
    $self->{hub}->leave(@group) if $self->{hub};
    return;
}

# Leaves, in interpreters of a pool (or of none) and their template, what belongs to others. The trace has
# requests of all mounts, and is not for the user of one.
sub _leave_others {
    my ($self, $pool) = @_;
    $self->_leave_joins;
    $self->_leave_hub($pool   ? $pool->group                  : ());
    $self->_leave_words($pool ? ($pool->group, $pool->master) : (0, $self->{master}));
    (delete $self->{hub})->shut if $self->{hub} && $pool && !$pool->has_channels;
    Peregrine::Server::Tracing->leave if $pool && $pool->identity;
    return;
}

# Unmaps memory in which other processes count, and from which masters read that an interpreter is busy.
sub _leave_words {
    my ($self, $group, $own) = @_;
    return if !$self->{placement}->has_engine_process;
    $self->{monitor}->leave_counting($group);
    $_->leave_words
        for grep { defined && (!$own || $_ != $own) } $self->{master}, map { $_->master } $self->pools;
    return;
}

# The masters of interpreters, without that of the engine.
sub _each {
    my ($self) = @_;
    return grep { defined } $self->{master}, @{ $self->{mount_pools} || [] };
}

sub _start_status {
    my ($self) = @_;
    weaken(my $weak = $self);
    my $leave = sub {
        $weak->{listeners}->close;
        $_->leave_others for $weak->{monitor}->listeners;
        Peregrine::Listener->leave_others(map { $_->all } $weak->{monitor}->listeners);
        $weak->_leave_joins;
        $weak->_leave_hub;
    };
    $self->{monitor}->start_process($self->{loop}, $leave);
    return;
}

sub _start_hub {
    my ($self) = @_;
    my $leave = $self->_leave_sockets;
    weaken(my $weak = $self);
    $self->{hub}->start_process($self->{loop}, sub { $leave->(); $weak->_leave_joins });
    return;
}

sub _start_pool {
    my ($self) = @_;
    my $pool = $self->{pool} or return Future->done;
    my ($leave, $options) = ($self->_leave_sockets, $self->{options});
    weaken(my $weak = $self);
    return $pool->start(
        $self->{loop},
        leave        => sub { $leave->(); $weak->_leave_engine; $weak->_leave_hub; $weak->_leave_words },
        has_template => $options->{preload_app} && !$self->{reload} && !ref $options->{worker_pool},
    );
}

# Leaves the engine's sockets and keys, in a process that has nothing to do with the engine.
sub _leave_engine {
    my ($self) = @_;
    $self->_leave_joins;
    return $self->_forget_keys;
}

# A function that closes all sockets, for a process that serves no requests.
sub _leave_sockets {
    my ($self) = @_;
    weaken(my $weak = $self);
    return sub {
        Peregrine::Listener->leave_others;
        $weak->{listeners}->leave_sockets;
        $weak->{monitor}->leave_place;
        PAGI::Server::Options::forget_environment();
    };
}

# Arguments of both masters, that of the engine and that of the interpreters.
sub _master_arguments {
    my ($self) = @_;
    weaken(my $weak = $self);
    return (
        loop          => $self->{loop},
        log           => $self->{log},
        counters      => $self->{monitor}->counters,
        start_timeout => $self->{configuration}->start_timeout,
        named         => $self->{configuration}->deadline_names,
        stop_timeout  => sub {
            my ($way, @why) = @_;
            return $weak->{reload}->timeout if $way eq 'renew';
            return $weak->{deadline}->for_interpreter($weak->{options}, $way, @why);
        },
    );
}

# Starts the engine's process. Interpreters join by a pair of sockets, which stay open here, so that a new
# engine has the same ones.
sub _start_engine {
    my ($self) = @_;
    socketpair $self->{engine_socket}, $self->{join_socket}, AF_UNIX, SOCK_SEQPACKET, PF_UNSPEC
        or die "socketpair: $!\n";
    weaken(my $weak = $self);
    $self->{engine_master} = Peregrine::Master->new(
        $self->_master_arguments,
        log               => $self->{log}->of('engine'),
        role              => 'engine',
        count             => 1,
        heartbeat_timeout => $self->{configuration}->engine_heartbeat,
        limits            => {},
        on_serving        => sub { },
        run               => sub { my ($record) = @_; return $weak->_serve_as_engine($record) },
    );
    return $self->{engine_master}->start;
}

# Makes a master of interpreters. `pool`: the Peregrine::Server::MountPool to which they belong, if any.
sub _make_master {
    my ($self, $pool) = @_;
    my $placement = $self->{placement};
    my $joins     = $placement->has_engine_process;
    my $configuration =
        $pool ? $self->{configuration}->shared_by(%{ $pool->options }) : $self->{configuration};
    my $options  = $configuration->options;
    my @template = $self->_template($pool);
    weaken(my $weak = $self);
    weaken($pool);
    # Engines that accept at the same sockets get as many connections each.
    $self->{spread} = $joins || $self->{listeners}->are_spread ? undef : Peregrine::Spread->new;
    return Peregrine::Master->new(
        $self->_master_arguments,
        $pool ? (log => $pool->log, identity => $pool->identity) : (),
        named             => $configuration->deadline_names,
        start_timeout     => $configuration->start_timeout,
        count             => $pool  ? $pool->workers                                  : $placement->processes,
        places            => $joins ? $placement->places($pool ? $pool->workers : ()) : 0,
        spread            => $self->{spread},
        heartbeat_timeout => sub { my ($number) = @_; return $weak->_interpreter_heartbeat($number, $pool) },
        busy_timeout      => $options->{request_kill_timeout},
        canary_time       => $options->{canary},
        tally             => $self->{figures} ? $self->{figures}->tally($pool ? $pool->group : 0) : undef,
        is_helper         => sub { return !$pool && $weak->{placement}->is_sync(@_) },
        first_takes_over  => !$joins
            && $self->{listeners}->are_spread,
        limits => {
            rss => $options->{max_worker_rss},
            age => $options->{max_worker_age}
                && sub { $_[0]{age_max} //= $configuration->by_chance('max_worker_age') },
        },
        before_fork => sub {
            my ($number) = @_;
            $weak->{listeners}->open_for($number) if !$joins;
            $weak->_prepare($pool)                if !@template;
        },
        on_serving => sub { $weak->_serving if !$pool },
        run        => sub { my ($record) = @_; return $weak->_serve_as_interpreter($record, $pool) },
        @template,
        $self->{reload} ? $self->{reload}->watch($self->{loop}, sub { $weak->_renew(@_) }) : (),
    );
}

# Seconds between signs of life. A process that only clones interpreters never blocks; one for handlers that
# block may.
sub _interpreter_heartbeat {
    my ($self, $number, $pool) = @_;
    return $pool->options->{heartbeat_timeout} // $self->{options}{heartbeat_timeout} if $pool;
    return 0                                        if $self->{placement}->is_sync($number);
    return $self->{configuration}->engine_heartbeat if $self->{placement}->has_clones;
    return $self->{options}{heartbeat_timeout};
}

# Arguments for a template: a process that loads the application, serves no requests, and forks interpreters.
sub _template {
    my ($self, $pool) = @_;
    my $preloads = ($pool ? $pool->options->{preload_app} : undef) // $self->{options}{preload_app};
    return if !$preloads || !$self->{load_app} || $self->{reload};
    my $joins = $self->{placement}->has_engine_process;
    weaken(my $weak = $self);
    weaken($pool);
    return (
        load => sub {
            $weak->_leave_all($pool, $joins);
            $weak->{listeners}->leave_sockets;
            # Interpreters that are forked from here have nothing left to leave: each sub that runs in an
            # interpreter makes it copy pages.
            $weak->{is_template} = 1;
            $weak->{load_app}->(0, $pool ? $pool->group : 0);
            $weak->_prepare($pool);
        },
        sends   => sub { my ($record) = @_; return $weak->_sent_to_interpreter($record, $pool) },
        on_word => sub {
            my ($word, @message) = @_;
            return $weak->_take_logs(@message[ 1 .. $#message ]) if $word eq 'reopen';
            return $weak->_change_interpreters(@message, $pool)  if $word eq 'workers';
            return $weak->{configuration}->tls->take($weak->{log}, @message)
                if $word eq 'certificates' && !$joins;
            return $word eq 'load' && !$joins && $weak->_load_certificates;
        },
    );
}

# Notes in a template that there are more interpreters, or fewer: later forks have another part of limits.
sub _change_interpreters {
    my ($self, $count, $pool) = @_;
    $self->{placement}->set_interpreters($count);
    return $self->_prepare($pool);
}

# The sockets for an interpreter, and the listener of each.
sub _sent_to_interpreter {
    my ($self, $record, $pool) = @_;
    return ({}, fileno $pool->join_socket)   if $pool;
    return ({}, fileno $self->{join_socket}) if $self->{join_socket};
    my @sockets = $self->{listeners}->sockets_for(@{$record}{qw(number wanted)});
    return ({ sockets => join ',', map { $_->[0] } @sockets }, map { fileno $_->[1] } @sockets);
}

# Called when interpreters serve. A server that was told to stop meanwhile has given up its sockets.
sub _serving {
    my ($self) = @_;
    return if $self->{stopping};
    $self->{running} = 1;
    $self->{engine_master}->tell('accept') if $self->{engine_master};
    $self->{server}->serves($self->{monitor}->listeners);
    return;
}

# ---- While it runs ------------------------------------------------------------------------------

sub _load_certificates {
    my ($self) = @_;
    my @tls = $self->tls_in_use or return;
    PAGI::Server::TLS->reload_all($self->{log}, @tls);
    $self->{engine_master}->tell('load') if $self->{engine_master};
    return;
}

# Loads certificates again, and nothing else, in each process that has them.
sub load_again {
    my ($self) = @_;
    $self->_load_certificates;
    $self->{master}->tell('load') if $self->{master} && !$self->{engine_master};
    return;
}

# Passes a message about certificates to the processes of the engine, and to their template.
sub tell_certificates {
    my ($self, @message) = @_;
    my $master = $self->{engine_master} || $self->{master} or return;
    return $master->tell(certificates => @message);
}

# Handles HUP: loads certificates again, and replaces the interpreters one after another.
sub restart {
    my ($self) = @_;
    $self->enter_directory;
    $self->_load_certificates;
    return $self->_renew('SIGHUP') if $self->{reload};
    $self->{log}->info('SIGHUP: ' . $self->_what_restarts);
    return $self->_restart_all if !$self->{pool};
    # Interpreters with new code have to find handlers with new code.
    return $self->{pool}->restart->then(sub {
        my ($is_new) = @_;
        return Future->done(0)     if $self->{stopping};
        return $self->_restart_all if $is_new;
        $self->{log}->error('the workers go on as they are, too');
        return Future->done(0);
    })->retain;
}

# Makes new interpreters begin in the directory to which its path leads now.
sub enter_directory {
    my ($self) = @_;
    my $path = $self->{directory} // return;
    chdir $path
        or $self->{log}->error("cannot go to '$path' again, the workers begin where the server is: $!");
    return;
}

# Restarts all interpreters. Those of one mount do not wait for those of another.
sub _restart_all {
    my ($self) = @_;
    my @restarts = map { $_->restart } $self->_each;
    return $restarts[0] if @restarts == 1;
    return Future->wait_all(@restarts)->then(sub {
        my @all = map { $_->get } @_;
        return Future->done((grep { !$_ } @all) ? 0 : 1);
    })->retain;
}

sub _renew {
    my ($self, $why) = @_;
    $self->{log}->info("$why: the application is loaded again");
    $self->{pool}->renew if $self->{pool};
    $self->{master}->renew;
    return Future->done;
}

sub _what_restarts {
    my ($self) = @_;
    return
        'the workers are replaced by others with the same code: for new code start the program again, or use '
        . $self->{application}->way_to_new_code
        if !$self->{load_app};
    return
        'a new template loads the application anew; the workers are replaced by others, which come from it'
        if $self->{options}{preload_app};
    return 'the workers are replaced by others, which load the application anew';
}

# The pools of mounts with that name (Peregrine::Server::MountPool/name), or with that path at any host.
sub pools_named {
    my ($self, $name) = @_;
    my @pools = @{ $self->{mount_pools} || [] };
    my @exact = grep { $_->name eq $name } @pools;
    return @exact ? @exact : grep { $name =~ m{\A/} && $_->name =~ m{\A[^/]*\Q$name\E\z} } @pools;
}

sub pools  { return @{ $_[0]{mount_pools} || [] } }
sub master { return $_[0]{master} }

# Handles TTIN and TTOU.
sub change_interpreters {
    my ($self, $by)          = @_;
    my ($master, $placement) = @{$self}{qw(master placement)};
    my $clones = $placement->has_clones;
    my $sync   = $placement->sync_interpreters;
    my $count  = $by + ($clones ? $placement->interpreters : $master->wanted - $sync);
    return $self->{log}->warn('SIGTTOU: there is one worker only, which stays') if $count < 1;
    my $most = $placement->most_interpreters // WORKERS_MAX;
    return $self->{log}->warn("SIGTTIN: there are $most workers, no more") if $count > $most;
    $self->{log}->info(($by > 0 ? 'SIGTTIN' : 'SIGTTOU') . ": workers: $count");
    $placement->set_interpreters($count);
    ($self->{engine_master} || $master)->tell(workers => $count);
    $master->set_count($count + $sync) if !$clones;
    return;
}

# Handles USR2: starts a new program on the same sockets.
sub hand_over {
    my ($self) = @_;
    return $self->{log}->warn('SIGUSR2: the server does not serve yet, or no more')
        if !$self->{master}->is_running;
    my %own = $self->{listeners}->for_handover;
    $self->{takeover}->start(
        %own,
        keep => { $self->{server}->kept_for_handover },
        # Interpreters of this program may be started after the new one: they need the way to the hub, too.
        also  => { $self->{hub} ? $self->{hub}->for_handover : (), %{ $self->{server}->for_handover } },
        aside => [ map { my %status = $_->for_handover; @{ $status{sockets} } } $self->{monitor}->listeners ],
        say   => {
            ticket_keys =>
                PAGI::Server::TLS->to_hand_over($self->{configuration}->tls, $self->{listeners}->places),
            $self->{options}{acme} ? (acme_folder => $self->{options}{acme_folder}) : (),
        },
    );
    $self->{server}->end_handover;
    return;
}

# Opens logs anew. Children get the open file, as their user may be unable to open it.
sub reopen_logs {
    my ($self) = @_;
    $_->() for @{ $self->{reopens} };
    my @opened = @{ $self->{reopens} } ? (undef, fileno STDERR) : ();
    $_->tell('reopen', @opened)
        for grep { defined } $self->_each, @{$self}{qw(engine_master pool hub monitor)};
    return;
}

# Takes over new log files in a template.
sub _take_logs {
    my ($self, @descriptor) = @_;
    return Peregrine::Process->take_logs($self->{reopens}, @descriptor);
}

# ---- Stop ---------------------------------------------------------------------------------------

# Ends the server. Sockets are closed and removed, so that no client finds them any more; connections that
# have come are served by children, which have copies of the sockets.
sub shutdown {
    my ($self) = @_;
    $self->{takeover}->cancel;
    return $self->end(!$self->{stopping} && Peregrine::Server::Stop::others_accept() ? 'retire' : 'stop');
}

# Ends the children. `way`: `stop`, or `retire` if another program accepts at the same sockets. Connections
# end with the engine; the interpreters end after it.
sub end {
    my ($self, $way) = @_;
    if ($self->{stopping}) {
        if   ($self->{ends_interpreters}) { $self->_end_interpreters($way) }
        else                              { $self->{engine_master}->$way }
        return $self->{stopping};
    }
    my $loop = $self->{loop};
    $self->{running} = 0;
    my $stopping = $self->{stopping} = $loop->new_future;
    $self->{listeners}->close;
    $self->_end_processes($way)->on_ready(sub { $self->_all_stopped })->retain;
    return $stopping;
}

# Ends all processes, the engine first. `way`: as for `end`.
sub _end_processes {
    my ($self, $way) = @_;
    return $self->{ending} if $self->{ending};
    my $monitor = $self->{monitor};
    $self->{deadline}->begin($self->{options}{shutdown_timeout});
    $self->_refuse_unserved if $self->{engine_master};
    # At a take-over the new program shows the status from now on; otherwise it is shown to the end.
    my $status = $way eq 'retire'       ? $monitor->stop_process       : undef;
    my $engine = $self->{engine_master} ? $self->{engine_master}->$way : Future->done;
    return $self->{ending} =
        $engine->then(sub { $self->_end_interpreters($way) })
        ->then(sub { $status || $monitor->stop_process })
        ->then(sub { $self->{hub}  ? $self->{hub}->stop_process : Future->done })
        ->then(sub { $self->{pool} ? $self->_stop_pool          : Future->done });
}

# Lets the engine refuse requests that would wait for the whole time of the stop, because no worker of theirs
# can start. Looks again and again, as a start may fail meanwhile. `before`: groups that had no worker at the
# last look. A group that has one now was in a short pause between two starts.
sub _refuse_unserved {
    my ($self, @before) = @_;
    return if $self->{ends_interpreters};
    my $main   = $self->{master};
    my @groups = ($main && $main->waits ? 0 : (), map { $_->group } grep { $_->waits } $self->pools);
    my %before = map { $_ => 1 } @before;
    $self->{engine_master}->tell(unserved => $_) for grep { $before{$_} } @groups;
    later($self->{loop}, LOOK_S, $self, _refuse_unserved => @groups);
    return;
}

sub _end_interpreters {
    my ($self, $way) = @_;
    $self->{ends_interpreters} = 1;
    my @ends = ($self->{master}->$way, map { $_->end($way) } @{ $self->{mount_pools} || [] });
    return @ends > 1 ? Future->wait_all(@ends) : $ends[0];
}

sub _stop_pool {
    my ($self) = @_;
    return $self->{pool}->stop($self->{loop}, $self->{deadline}->left($self->{options}{shutdown_timeout}));
}

# The end waits for the loop's next turn, because signals cannot be detached in their callbacks
# (Peregrine::Process/detach_signals).
sub _all_stopped {
    my ($self) = @_;
    $self->{log}->info('the server has stopped');
    $self->{loop}->later(sub {
        $self->close;
        $self->{deadline}->clear;
        my $stopping = delete $self->{stopping};
        $self->{server}->ended if $self->{server};
        $stopping->done;
    });
    return;
}

sub hurry {
    my ($self) = @_;
    $_->hurry for grep { defined } $self->{engine_master}, $self->_each, $self->{pool};
    return;
}

# Peregrine::Process calls these when exceptions come out of the loop. The supervisor has no requests that
# could fail, and need not give up a stop, because its children have deadlines of their own.
sub give_up_stop { return }
sub fail_stalled { return 0 }

sub close {
    my ($self, $at_once) = @_;
    return if $self->is_foreign;
    $self->{log}->flush;
    $self->{listeners}->close;
    $self->{monitor}->close_place;
    $self->{control}->close               if $self->{control};
    $self->{figures}->stop($self->{loop}) if $self->{figures};
    $self->{reload}->stop                 if $self->{reload};
    $self->{takeover}->unlimit            if $self->{takeover};
    $self->{pool}->abandon                if $self->{pool};
    delete @{$self}{qw(master engine_master mount_pools join_socket engine_socket ending)};
    $self->{server}->closes($at_once) if $self->{server};
    return;
}

sub abandon {
    my ($self) = @_;
    return if $self->is_foreign;
    $self->close;
    $self->{running} = 0;
    my $stopping = delete $self->{stopping};
    $stopping->done if $stopping;
    return;
}

sub DESTROY {
    my ($self) = @_;
    $self->close if ${^GLOBAL_PHASE} ne 'DESTRUCT';
    return;
}

# ---- In a child --------------------------------------------------------------------------------

sub configuration_of_child {
    my ($self) = @_;
    return $self->{configuration}->with_all($self->_options_of_child($self->{placement}->share));
}

# The options of a child, which has a loop of the same class as the master.
sub _options_of_child {
    my ($self, @own) = @_;
    my $type = $self->{options}{loop_type} // ref($self->{loop}) =~ s/\AIO::Async::Loop:://r;
    return { %{ $self->{options} }, loop_type => $type, @own };
}

# Makes configuration and log of interpreters before they are forked. Names of options are spread over the
# program's memory, and a copy counts a reference to each: an interpreter that made it would write to many
# pages. Only engines get parts of limits.
sub _prepare {
    my ($self, $pool) = @_;
    my $configuration = $self->{configuration}->with_all($self->_options_of_child(
        $self->{placement}->has_engine_process ? ()                  : $self->{placement}->share,
        $pool                                  ? %{ $pool->options } : (),
    ));
    $self->{prepared} = [ $configuration, $configuration->make_log($self->{application}->name) ];
    return;
}

# Drops what no child needs: variables of the server's options, sockets of the status and of other servers.
sub _leave_status {
    my ($self) = @_;
    Peregrine::Listener->leave_others($self->{listeners}->all);
    PAGI::Server::Options::forget_environment();
    $self->{monitor}->leave_place;
    return;
}

# Leaves, in an interpreter that joins an engine, sockets and keys, before the application is loaded.
sub _leave_all {
    my ($self, $pool, $joins) = @_;
    $self->_leave_others($pool);
    $self->_leave_status;
    return if !$joins;
    $self->{listeners}->leave_sockets;
    $self->_forget_keys;
    return;
}

# The configuration and the log of a child.
sub _means {
    my ($self, $role, $clones) = @_;
    return @{ $self->{prepared} } if $role ne 'engine' || $clones;
    my $configuration = $self->configuration_of_child;
    return ($configuration, $configuration->make_log($self->{application}->name));
}

# Makes the instance of a child, with the master's options, certificates and sockets, and its connection to
# the master.
sub _instance {
    my ($self, $record, %args) = @_;
    my $name = delete $args{name} // "worker $record->{number}";
    my $pool = delete $args{mount_pool};
    my ($configuration, $log) = $self->_means(@args{qw(role clones)});
    my $loop     = $configuration->make_loop($args{role} eq 'engine' && !$args{clones});
    my $instance = Peregrine::Server::Instance->new(
        %{$self}{qw(placement listeners application reopens hub pool)},
        configuration => $configuration,
        loop          => $loop,
        log           => $log,
        link          => $record->{link},
        monitor       => Peregrine::Server::Monitor->new(
            counters => $self->{monitor}->counters,
            column   => $record->{column}
        ),
        %args,
    );
    my $is_engine = $args{role} eq 'engine';
    my $child     = Peregrine::Child->new(
        link              => $record->{link},
        loop              => $loop,
        server            => $instance,
        log               => $log->of($name),
        heartbeat_timeout => $is_engine
        ? $configuration->engine_heartbeat
        : $self->_interpreter_heartbeat($record->{number}, $pool),
    );
    return ($instance, $child, $loop);
}

# Runs the engine's process; returns its exit status.
sub _serve_as_engine {
    my ($self, $record) = @_;
    $self->_leave_hub;
    $self->_leave_status;
    # An old program may have had sockets for several processes.
    $self->{listeners}->keep_for(1, 1);
    my ($instance, $child, $loop) = $self->_instance(
        $record,
        role          => 'engine',
        name          => 'the engine',
        number        => 1,
        engine_socket => $self->{engine_socket},
        mount_pools   => $self->{mount_pools},
        figures       => $self->{figures},
        accepts_later => !$self->{running},
    );
    return $child->serve;
}

# Runs an interpreter's process; returns its exit status.
sub _serve_as_interpreter {
    my ($self, $record, $pool) = @_;
    my ($number, $counters) = ($record->{number}, $self->{monitor}->counters);
    my $clones = $self->{placement}->has_clones ? Peregrine::Server::Clones->new : undef;
    my $joins  = $self->{placement}->has_engine_process;
    my %role =
          $joins  ? (role => 'interpreter', join_socket => $self->_join_socket($record, $pool))
        : $clones ? (role => 'engine', clones => $clones, engine_socket => $clones->engine_socket)
        :           (role => 'prefork');
    my $master = $pool ? $pool->master : $self->{master};
    $self->_leave_all($pool, $joins) if !$self->{is_template};
    $self->_take_sockets($record)    if !$joins;
    my ($busy,     $spread, $tally) = @{$record}{qw(busy spread tally)};
    my ($instance, $child,  $loop)  = $self->_instance(
        $record, %role,
        number        => $number,
        mount_pool    => $pool,
        accepts_later => defined $clones,
        defined $busy   ? (busy   => [ $master->busy_words, $busy ]) : (),
        defined $spread ? (spread => [ $self->{spread}->words, $spread ]) : (),
        defined $tally  ? (tally  => [ $master->tally, $tally ]) : (),
    );
    $instance->on_replace(sub { my ($why) = @_; $child->ask_for_replacement($why) });
    $self->_load($instance, $loop, $record, $pool) if $self->{load_app};
    $instance->start                                                       or return 0;
    $clones->start($instance, $self->{placement}->interpreters, $counters) or return 0 if $clones;
    $instance->accept_connections;
    $child->ready;
    return defined $child->run ? 1 : 0;
}

sub _load {
    my ($self, $instance, $loop, $record, $pool) = @_;
    my ($reload, $application) = @{$self}{qw(reload application)};
    my @which = ($record->{number}, $pool ? $pool->group : 0);
    my $load  = sub { return $self->_load_in_interpreter(@which) };
    return $application->load($load->())                                    if !$reload;
    return $application->load($reload->load($loop, $record->{link}, $load)) if !defined $record->{failure};
    $instance->configure($instance->configuration->shared_by(lifespan_mode => 'off', warm_up => undef));
    return $application->load($reload->stand_in($record->{failure}));
}

# Loads the application. TERM ends the process meanwhile: a loop would keep the signal until the load is over.
sub _load_in_interpreter {
    my ($self, @which)   = @_;
    my ($term, $blocked) = (POSIX::SigSet->new(POSIX::SIGTERM()), POSIX::SigSet->new);
    my $load = sub { return $self->{load_app}->(@which) };
    local $SIG{TERM} = 'DEFAULT';
    POSIX::sigprocmask(POSIX::SIG_UNBLOCK(), $term, $blocked);
    my $app = eval {
        Peregrine::Process->load_once(
            $self->{log},
            'the application',
            sub { $self->{placement}->has_clones ? Peregrine::Server::Clones::load($load) : $load->() }
        );
    };
    my $error = $@;
    POSIX::sigprocmask(POSIX::SIG_SETMASK(), $blocked);
    die $error if !$app;
    return $app;
}

# Takes the sockets that the process has inherited, or was sent.
sub _take_sockets {
    my ($self, $record) = @_;
    my $listeners = $self->{listeners};
    return $listeners->adopt([ split /,/, $record->{sockets} ], $record->{descriptors})
        if $record->{descriptors};
    return $listeners->keep_for(@{$record}{qw(number wanted)});
}

# The socket by which the interpreter joins the engine: inherited, or sent.
sub _join_socket {
    my ($self, $record, $pool) = @_;
    my $descriptors = $record->{descriptors}
        or return $pool ? $pool->join_socket : $self->{join_socket};
    CORE::open my $socket, '+<&=', $descriptors->[0] or die "the engine's join socket: $!\n";
    return $socket;
}

# Drops private keys and those of tickets, which only the engine needs. OpenSSL wipes memory that it frees.
sub _forget_keys {
    my ($self) = @_;
    $self->{configuration}->forget_keys;
    delete $_->{tls} for $self->{listeners}->all;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::Supervisor - a server's master: what it keeps, and how its children begin

=head1 DESCRIPTION

The part of a L<Peregrine::Server> with the option C<workers>. Its process is the master
(L<Peregrine::Master>), which runs no application. Its children have been forked from it, and each runs a
L<Peregrine::Server::Instance> with the same options on the same sockets.

With C<engine =E<gt> 'process'> the master starts a process for the engine, which has the sockets, and
interpreters, which have the application: they join the engine and get requests from it. Connections belong to
the engine, so an interpreter that dies, or is replaced, closes none. Both kinds of process have a master of
their own. A stop ends the engine first, which lets requests in flight finish; then the interpreters have
nothing left to do.

=head1 METHODS

=head2 new

    my $supervisor = Peregrine::Server::Supervisor->new(
        server => $server, configuration => $configuration, placement => $placement,
        listeners => $listeners, log => $log, application => $application, monitor => $monitor,
        reopens => \@codes, load_app => $code, reload => $reload, pid_file => $file, directory => $path,
    );

The last four are optional.

=head2 configure, use_loop, open, bind, begin

    $supervisor->use_loop($loop, $process);
    $supervisor->bind;
    my $starting = $supervisor->begin;

=head2 tell_certificates

    $supervisor->tell_certificates('example.org', $descriptor);

To all processes that have the engine.

=head2 restart, change_interpreters, hand_over, reopen_logs

    my $future = $supervisor->restart;
    $supervisor->change_interpreters(+1);

What HUP, TTIN and TTOU, USR2, and USR1 do. If a new interpreter cannot start the others stay. The Future is
done when no more are to be replaced.

=head2 enter_directory

What a restart begins with: see L<Peregrine::Server/enter_again>.

=head2 pools, pools_named, master

    my ($pool) = $supervisor->pools_named('/shop');

=head2 shutdown, end, hurry, give_up_stop, close, abandon

    my $stopping = $supervisor->shutdown;
    my $stopping = $supervisor->end('retire');

=head2 placement, stopping, is_running, is_foreign, tls_in_use, limit_in_force, connection_count, fail_stalled

=head2 configuration_of_child

The options of a child: its part of limits that are meant for all.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
