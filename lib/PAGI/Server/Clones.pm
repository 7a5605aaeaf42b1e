package PAGI::Server::Clones;

use strict;
use warnings;

our $VERSION = '0.003000';

use Future;
use PAGI::Server::Options;
use Peregrine;
use Peregrine::Process;
use Peregrine::Threads;
use Peregrine::WorkerProcess;
use Scalar::Util qw(weaken);
use Socket       qw(AF_UNIX PF_UNSPEC SOCK_SEQPACKET);

# Event loops that have nothing of their own outside of an interpreter.
my %LOOPS = map { $_ => 1 } qw(Epoll Peregrine Poll Select);

# Stuck interpreters that are left alone before the process is replaced.
use constant LOST_MAX => 4;

# Whether the server's applications can be served by clones of the interpreter that has loaded them.
sub _can_be_cloned { return 0 }

# ---- In the master ------------------------------------------------------------------------------

# Whether the workers are interpreters in one process, not processes.
sub has_clones {
    my ($self) = @_;
    my $options = $self->{options};
    return 0 if $options->{engine} ne 'thread' || !$options->{workers} || $self->{clone};
    return Peregrine::Threads::are_possible() && $self->_can_be_cloned ? 1 : 0;
}

# Processes that have an engine.
sub _engine_count {
    my ($self) = @_;
    return $self->has_engine_process || $self->has_clones ? 1 : $self->{options}{workers};
}

# Processes that the master of workers keeps.
sub _process_count {
    my ($self) = @_;
    return $self->has_clones ? 1 : $self->{options}{workers};
}

sub check_clones {
    my ($self) = @_;
    return if !$self->has_clones;
    $self->_check_loop_type;
    _refuse_what_cannot_be_cloned();
    return;
}

sub _check_loop_type {
    my ($self) = @_;
    return if !$self->has_clones;
    my $type = $self->{options}{loop_type} // $ENV{IO_ASYNC_LOOP} // return;
    return if $LOOPS{$type};
    die PAGI::Server::Options::exception("option 'loop_type': $type cannot be in several threads; one of "
            . join(', ', sort keys %LOOPS)
            . ", or another 'engine'");
}

# An application is loaded before there is a loop, and must make none itself: it would have no copy.
sub _load_for_clones {
    my ($self, $number) = @_;
    Peregrine::Threads::prepare();
    local $IO::Async::Loop::ONE_TRUE_LOOP;
    my $app = $self->{load_app}->($number);
    _refuse_what_cannot_be_cloned();
    return $app;
}

sub _refuse_what_cannot_be_cloned {
    my $module = Peregrine::Threads::obstacle();
    die
        "the application has loaded $module, which cannot be cloned into threads: use another engine (--engine"
        . " process)\n"
        if defined $module;
    die "the application has made an IO::Async::Loop when it was loaded, which cannot be cloned into threads:"
        . " make it at the first request, or use another engine (--engine process)\n"
        if defined $IO::Async::Loop::ONE_TRUE_LOOP;
    return;
}

# ---- In the process that has the engine and the clones ------------------------------------------

# Its own interpreter serves nothing. The clones join the engine through a pair of sockets.
sub _prepare_clones {
    my ($self) = @_;
    socketpair $self->{engine_socket}, $self->{clone_socket}, AF_UNIX, SOCK_SEQPACKET, PF_UNSPEC
        or die "socketpair: $!\n";
    $self->{is_engine} = 1;
    # Until one of them serves: another process at the same sockets may serve the connections before.
    $self->{accepts_later} = 1;
    return;
}

# Waits until one of them serves. False: the server was told to stop meanwhile.
sub _start_clones {
    my ($self) = @_;
    my $options = $self->{options};
    weaken(my $weak = $self);
    $self->{clones} = Peregrine::Threads->new(
        loop          => $self->loop,
        log           => $self->{log},
        name          => $self->_name_in_log,
        workers       => $options->{workers},
        start_timeout => PAGI::Server::Prefork::_start_timeout($options),
        stop_timeout  => sub { $weak->_stop_timeout(@_) },
        serve         => \&_serve_in_clone,
        facts         => {
            class       => ref $self,
            app         => $options->{app},
            options     => { %$options, app => undef },
            join_socket => fileno $self->{clone_socket},
        },
        busy_timeout => $options->{request_kill_timeout},
        restarts     => $self->{counters},
        on_lost      => sub { $_[0] >= LOST_MAX && $weak && $weak->_too_many_lost },
    );
    my ($reason, $category) = $self->{clones}->start->await->failure;
    if (!defined $reason) {
        $self->accept_connections;
        return 1;
    }
    die $reason if ($category // '') ne 'stopped';
    my $stopping = $self->{stopping};
    $stopping->await if $stopping;
    return 0;
}

sub _too_many_lost {
    my ($self) = @_;
    return if $self->{too_many_lost}++;
    $self->{log}
        ->error('PAGI: interpreters that do not come back: ' . LOST_MAX . ': a new process takes over');
    $self->{on_replace}->('lost') if $self->{on_replace};
    return;
}

sub change_clones {
    my ($self, $count) = @_;
    $self->{options}{workers} = $count;
    $self->{worker}->set(descriptors_reserved => $self->_descriptors_reserved) if $self->{worker};
    $self->{clones}->set_workers($count)                                       if $self->{clones};
    return;
}

# Their end: when nothing of them is in use any more. A Future.
sub _end_clones {
    my ($self) = @_;
    return $self->{clones} ? $self->{clones}->stop : Future->done;
}

sub _abandon_clones {
    my ($self) = @_;
    $self->{clones}->abandon if $self->{clones};
    return;
}

# ---- In a clone ---------------------------------------------------------------------------------

sub _serve_in_clone {
    my ($facts) = @_;
    my ($class, $link) = @{$facts}{qw(class link)};
    my $server = $class->new_for_itself(app => $facts->{app});
    my $pid    = $$;
    my $at_end = Peregrine::Threads::AtEnd->new(sub { $server->_leave_clone if $pid == $$ });
    $server->_become_clone($facts);
    my $worker = Peregrine::WorkerProcess->new(
        link              => $link,
        loop              => $server->_own_loop_of_clone,
        server            => $server,
        log               => $server->{log},
        name              => $server->_name_in_log . ": interpreter $facts->{number}",
        heartbeat_timeout => 0,
        is_thread         => 1,
    );
    $server->{on_replace} = sub { my ($why) = @_; $worker->ask_for_replacement($why) };
    $worker->serve;
    return;
}

sub _become_clone {
    my ($self, $facts)         = @_;
    my ($options, $descriptor) = @{$facts}{qw(options join_socket)};
    $self->{options}    = { %$options, app => $facts->{app} };
    $self->{link}       = $facts->{link};
    $self->{worker_num} = $facts->{number};
    $self->{clone}      = 1;
    $self->{busy}       = $facts->{busy};
    open $self->{join_socket}, '+<&=', $descriptor or die "the engine's join socket: $!\n";
    $self->{log}
        ->set(level => $options->{log_level}, format => $options->{log_format}, quiet => $options->{quiet});
    $self->ignore_signals;
    return;
}

# A clone's loop must not let signals in while it waits. The loop of Epoll would.
sub _own_loop_of_clone {
    my ($self) = @_;
    my $loop = $self->own_loop;
    $loop->{sigmask}->fillset if $loop->isa('IO::Async::Loop::Epoll');
    return $loop;
}

# For the interpreter that watches this one.
sub _answer_as_clone {
    my ($self) = @_;
    my $worker = $self->{worker};
    $worker->answer_when_thread_is_stuck($self->_name_in_log . ": interpreter $self->{worker_num}");
    $worker->show_busy_in(@{ $self->{busy} }) if $self->{busy};
    $self->{link}->say(thread => Peregrine::thread_number());
    return;
}

# The end, of which `exit` in the application is one: then its request waits for an answer.
sub _leave_clone {
    my ($self) = @_;
    $self->{link}->say('exited')
        if $self->{worker} && $self->{worker}->left_behind("the application has called exit\n");
    $self->_close_worker($self->loop, 1);
    $self->loop->remove($self) if $self->loop;
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Clones - a server whose application runs in interpreters that are cloned into threads

=head1 DESCRIPTION

The part of L<PAGI::Server::Base> that is about C<engine =E<gt> 'thread'> with C<workers>, for applications of
PSGI. The master keeps one process. There the engine runs on a thread of its own; the interpreter that has
loaded the application serves nothing, but is cloned for each worker (L<Peregrine::Threads>). Clones join the
engine as the processes of L<PAGI::Server::EngineProcess> do.

=head1 METHODS

=head2 has_clones

    say 'threads' if $server->has_clones;

Whether the workers are interpreters in one process. They are not if Perl has no threads, or where one of the
applications is one of PAGI.

=head2 check_clones

    $server->check_clones;

Before there is a loop: dies if the application has made one, or has loaded a module that cannot be cloned
(L<Peregrine::Threads/obstacle>), or if a loop that cannot be in several threads is asked for.

=head2 change_clones

    $server->change_clones(4);

So many there are to be.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
