package Peregrine::Process;

use strict;
use warnings;

our $VERSION = '0.003000';

use IO::Async::Loop;
use IO::Handle ();
use Peregrine;
use Peregrine::Fork;
use Peregrine::Later qw(weakly);
use Peregrine::Link;
use Peregrine::NewLogs;
use Peregrine::Notify;
use Peregrine::Optional;
use POSIX        ();
use Scalar::Util qw(blessed refaddr weaken);

# IO::Async::Loop ignores SIGPIPE when it is loaded. Programs that an application starts would inherit that,
# and `yes | head -1` would never end; a handler is not inherited.
$SIG{PIPE} = sub { }
    if ($SIG{PIPE} // '') eq 'IGNORE';

# A log or a body that would get longer than the system lets files be (ulimit -f) is a failed write, as on a
# full disk. The signal would end the process without a word.
$SIG{XFSZ} //= sub { };

# Words behind the status that systemd shows.
use constant GIVEN_UP => '; the last reload was given up: the log tells why';

# Objects are not copied into clones of the interpreter, see Peregrine::Threads. A copy of a loop would close
# descriptors of the original, and undo its signal handlers.
sub CLONE_SKIP                  { return 1 }
sub IO::Async::Loop::CLONE_SKIP { return 1 }

sub new {
    my ($class, %args) = @_;
    my $self = bless { %args{qw(loop log server stop_within is_child)}, on => $args{on} || {}, pid => $$ },
        $class;
    weaken($self->{$_}) for qw(loop server);
    return $self;
}

# ---- The loop -----------------------------------------------------------------------------------

sub prefer_own_loop {
    # The server's own loop is a subclass of the loop for epoll, which only Linux has.
    return if grep { !Peregrine::Optional::load("IO::Async::Loop::$_") } qw(Epoll Peregrine);
    $IO::Async::Loop::LOOP //= 'Peregrine';
    return;
}

sub make_loop {
    my ($class, $type) = @_;
    if (defined $type) {
        my $module = "IO::Async::Loop::$type";
        _load_loop($module);
        return $module->new;
    }
    _check_loops_of_environment();
    prefer_own_loop();
    return IO::Async::Loop->new;
}

sub _load_loop {
    my ($module) = @_;
    my $is_there = eval { Peregrine::Optional::load($module) };
    return                        if $is_there;
    die "cannot load $module: $@" if !defined $is_there;
    my $instead =
        $module eq 'IO::Async::Loop::EV'
        ? "name no loop: applications that use EV run in Peregrine's own, too"
        : 'name one that is: Peregrine, Poll, Select';
    die "cannot load $module: it is not installed. Install it from CPAN, or $instead\n";
}

# IO::Async takes the first one of the list that it can load, and another loop if there is none.
sub _check_loops_of_environment {
    my @problems;
    for my $name (split /,/, $ENV{IO_ASYNC_LOOP} // '') {
        return if eval { _load_loop($name =~ /::/ ? $name : "IO::Async::Loop::$name"); 1 };
        push @problems, $@;
    }
    die "the environment variable IO_ASYNC_LOOP: $problems[0]" if @problems;
    return;
}

# The number of callbacks of the loop that may die while a server that one of them ended shuts down.
use constant EXCEPTIONS_MAX => 10;

# The process that starts, or whose loop runs, in case the application ends it meanwhile.
my $running;

use constant ENDS => 'the server ends, and cuts its connections';

# Runs code in which a server starts; returns what the code returns, one value. The variable is restored by
# hand, because `exit` undoes `local` before END looks at it.
sub starting {
    my ($class, $log, $code) = @_;
    my $before = $running;
    $running = { log => $log, pid => $$, then => 'the server does not start' };
    my $result;
    my $is_done = eval { $result = $code->(); 1 };
    $running = $before;
    die $@ if !$is_done;
    return $result;
}

sub run {
    my ($self) = @_;
    my ($loop, $log, $server) = @{$self}{qw(loop log server)};
    my $exception;
    my $then = $self->{is_child} ? 'this process ends' : ENDS;
    $running = { log => $log, pid => $$, then => $then };
    do {
        my $ok = eval { $loop->run; 1 };
        $exception = $@;
        $self->end_child($log, $ok ? '' : _text($exception)) if $self->_is_copy;
        undef $running                                       if $ok;
        return                                               if $ok;
    } while ($server->fail_stalled($exception));
    $log->error("an exception in the event loop, the server shuts down: " . _text($exception));
    $self->{ends_loop} = 1;
    my $stopped = $server->shutdown;
    $stopped->on_ready(sub { $loop->stop });

    for (my $count = 1; !$stopped->is_ready && $count <= EXCEPTIONS_MAX;) {
        next if eval { $loop->run; 1 };
        $count++;
        $log->error("an exception in the event loop while the server shuts down: " . _text($@));
    }
    $server->give_up_stop;
    undef $running;
    return $exception;
}

END {
    if ($running && $running->{pid} == $$) {
        local $?;
        $running->{log}->error("the application has called exit${\exit_place()}: $running->{then}");
    }
}

sub exit_place {
    my $place = Peregrine::exit_place();
    return defined $place ? " at $place" : '';
}

sub _text {
    my ($exception) = @_;
    # Expected: an exception that dies when it is asked for its text.
    return eval { "$exception" } // 'an exception of class ' . ref $exception;
}

# ---- Signals ------------------------------------------------------------------------------------

my @STOP = qw(TERM INT QUIT);

# The handler of these signals that a loop restores when it lets go of them. One that has come meanwhile, as
# timeout(1) sends two, asks for the stop that is over, if that ends the loop. Otherwise, as in a program that
# goes on without its server, the signal does what it does without a handler.
our $LETS_GO = 0;
my $AFTER = sub {
    my ($name) = @_;
    return if $LETS_GO;
    $SIG{$name} = 'DEFAULT';
    kill $name => $$;
};

sub attach_signals {
    my ($self) = @_;
    delete $self->{ends_loop};
    $self->{pid}         = $$;
    $self->{service}     = Peregrine::Notify->from_environment;
    $SIG{$_}             = $AFTER for grep { ($SIG{$_} // 'DEFAULT') eq 'DEFAULT' } @STOP;
    $self->{signals}{$_} = $self->{loop}->attach_signal($_ => weakly($self, _on_signal => $_))
        for @STOP, keys %{ $self->{on} };
    return if !defined $self->{stop_within};
    Peregrine::count_stops($self->{stop_within}, map { POSIX->can("SIG$_")->() } @STOP);
    $self->{counts_stops} = 1;
    Peregrine::settle_children(1);
    return;
}

# Detaches from signals at the end of the loop's turn, or at once if the loop does not run: its loops over
# signals, and over functions attached to each, iterate in place. Detaching in a signal's callback would hide
# the next one's from them, or end IO::Async::Loop::Epoll with "Use of freed value in iteration".
sub detach_signals {
    my ($self, $at_once) = @_;
    my $loop    = $self->{loop} or return;
    my $signals = delete $self->{signals} || {};
    my $ends    = $self->{ends_loop};
    my $counted = delete $self->{counts_stops};
    my $detach  = sub {
        local $LETS_GO = $ends;
        Peregrine::leave_stops() if $counted;
        $loop->detach_signal($_ => $signals->{$_}) for keys %$signals;
        $SIG{$_} = 'DEFAULT' for grep { ref $SIG{$_} && $SIG{$_} == $AFTER } @STOP;
    };
    return $detach->() if $at_once || !$loop->can('is_running') || !$loop->is_running;
    $loop->later($detach);
    return;
}

# Lets in signals that IO::Async::Loop::Epoll blocks except while it waits.
sub let_signals_in {
    my ($class, $loop) = @_;
    return if !$loop->isa('IO::Async::Loop::Epoll');
    require IO::Async::Loop::Peregrine;
    return $loop->IO::Async::Loop::Peregrine::let_signals_in;
}

# True in a process that was forked from the server's process.
sub _is_copy {
    my ($self) = @_;
    return $self->{pid} != $$;
}

# Handles a signal. A forked child that runs the loop ends by it as if it had no server; its parent's server
# is left alone.
sub _on_signal {
    my ($self, $name) = @_;
    my $handler = $self->{on}{$name};
    return $self->_is_copy ? () : $self->_handle($name, $handler) if $handler;
    return $self->_stop($name)                                    if !$self->_is_copy;
    $SIG{$name} = 'DEFAULT';
    my $number = POSIX->can("SIG$name")->();
    POSIX::sigprocmask(POSIX::SIG_UNBLOCK(), POSIX::SigSet->new($number));
    kill $name => $$;
    return;
}

# Calls the handler of a signal. systemd reloads a service by HUP, and is told when that begins and ends.
sub _handle {
    my ($self, $name, $handler) = @_;
    my $service = $name eq 'HUP' ? $self->{service} : undef;
    $service->reloading if $service;
    my $done;
    my $died = !eval { $done = $handler->($self->{server}, $name); 1 };
    # An exception in the loop would end the server, for a signal that is to change or to replace it.
    $self->{log}->error("SIG$name: " . _text($@)) if $died;
    return                                        if !$service;
    my $ready = sub {
        # A stop in the midst of a reload gives up nothing that goes on.
        my $is_given_up = !$self->{stopping} && ($died || _is_given_up($done));
        $service->ready($self->{status} . ($is_given_up ? GIVEN_UP : ''));
    };
    return $done->on_ready($ready)->retain if blessed $done && $done->isa('Future') && !$done->is_ready;
    $ready->();
    return;
}

# Whether a handler's Future says that all is as it was.
sub _is_given_up {
    my ($done) = @_;
    return 0 if !blessed $done || !$done->isa('Future') || $done->is_cancelled;
    return $done->is_failed || !($done->result // 1) ? 1 : 0;
}

# Whether a service manager wants to be told.
sub has_service { return $_[0]{service} ? 1 : 0 }

sub serving {
    my ($self, $status) = @_;
    $self->{status} = $status;
    my $service = $self->{service} or return;
    $service->ready($status);
    $service->watch($self->{loop});
    return;
}

# Tells the service manager that another process will report from now on.
sub hand_over {
    my ($self, $pid) = @_;
    my $service = delete $self->{service} or return;
    $service->say(MAINPID => $pid);
    return;
}

# Objects by address, weak, whose servers were told to stop and have not stopped yet.
my %STOPPING;

# Stops all servers of a loop, which goes on until the last one has stopped. The first signal to a child whose
# master has told it to stop counts as no second one: service managers may send TERM to all processes, and the
# master does so to children that start.
sub _stop {
    my ($self, $name) = @_;
    Peregrine::heard_stops();
    my $is_second = $self->{signalled}++;
    return $self->{server}->hurry("SIG$name again")  if $self->{stopping} && $is_second;
    $self->{log}->info("SIG$name: the server stops") if !$self->{stopping};
    return $self->stop_once;
}

sub stop_once {
    my ($self, $method, @arguments) = @_;
    my ($loop, $server) = @{$self}{qw(loop server)};
    $method //= 'shutdown';
    $self->{ends_loop} = 1;
    $self->{service}->stopping if $self->{service} && !$self->{stopping};
    my $stopped = $server->$method(@arguments);
    return if $self->{stopping};
    $self->{stopping} = 1;
    weaken($STOPPING{ refaddr $self } = $self);
    $stopped->on_ready(sub {
        delete @{$self}{qw(stopping signalled)};
        delete $STOPPING{ refaddr $self };
        $loop->stop if !_is_stopping($loop);
    });
    return;
}

# Whether a server of the loop was told to stop and has not stopped yet.
sub _is_stopping {
    my ($loop) = @_;
    return scalar grep { $_ && $_->{loop} && $_->{loop} == $loop } values %STOPPING;
}

# ---- Processes that the application forks -------------------------------------------------------

# Opens logs anew by the functions `reopens`. The process has got the descriptor of the new log.
sub take_logs {
    my ($class, $reopens, @descriptor) = @_;
    $_->(@descriptor) for @$reopens;
    Peregrine::Link::close_received(@descriptor);
    Peregrine::NewLogs->came if @$reopens;
    return;
}

# Ends a child that has returned by mistake to the code in which its parent runs the server. END blocks and
# destructors are left to the parent.
sub end_child {
    my ($class, $log, $exception) = @_;
    $log->error($exception) if length $exception;
    $_->flush for \*STDOUT, \*STDERR;
    POSIX::_exit(length $exception ? 1 : 0);
}

# Runs code, once: a process that the code forks, and that returns from it, is ended. `$what` names the code.
sub load_once {
    my ($class, $log, $what, $load) = @_;
    my $process = $$;
    my $result;
    my $is_loaded = Peregrine::Fork::runs_through(sub { $result = $load->() });
    my $error     = $@;
    $class->end_child($log,
        "process $$, which $what has forked while it was loaded, returned from that"
            . ($is_loaded ? '' : ': ' . (ref $error eq 'SCALAR' ? $$error : $error)))
        if $process != $$;
    die $error if !$is_loaded;
    return $result;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Process - signals and the run loop of a process that serves

=head1 SYNOPSIS

    my $loop    = Peregrine::Process->make_loop;
    my $process = Peregrine::Process->new(
        loop   => $loop,
        log    => $log,
        server => $server,
        on     => { HUP => sub { $_[0]->load_again } },
    );
    $process->attach_signals;
    my $exception = $process->run;

=head1 DESCRIPTION

The process around a server: it has an L<IO::Async::Loop>, takes the signals that are meant for the
server, and runs the loop until the server has stopped. Knows nothing of applications, nor of HTTP.

A server is an object with the methods

=over

=item shutdown

Stops; returns a Future, the same one each time until the stop is over.

=item hurry

A further signal during a stop makes it faster: C<< $server->hurry('SIGTERM again') >>.

=item fail_stalled

An exception came out of the loop: ends the requests that cannot go on because of it. Returns how many there
were; if there was one, it was theirs, and the loop goes on.

=item give_up_stop

Ends a stop that has not come to its end.

=back

=head1 METHODS

=head2 new

    my $process = Peregrine::Process->new(
        loop => $loop, log => $log, server => $server, on => \%handlers,
    );

C<log> is a L<PAGI::Server::Log>. C<on> has functions for signals other than TERM,
INT and QUIT, by name; they are called with the server and the name of the signal, and their exceptions are
logged. C<stop_within>, in seconds,
is given where no other process would end this one if an application did not return: the third signal does, or
the end of that time after the first one (L<Peregrine/count_stops>). Both the loop and the server are referred
to weakly.

=head2 make_loop

    my $loop = Peregrine::Process->make_loop('Epoll');    # IO::Async::Loop::Epoll

A loop of that type; without one that of L</prefer_own_loop>. Dies with a text when it cannot be loaded.

=head2 prefer_own_loop

    Peregrine::Process->prefer_own_loop;

Lets IO::Async choose L<IO::Async::Loop::Peregrine>, whose timers are cheap, where nobody asks for another
one. To be called before an application is loaded, which may make the loop: there is but one.

=head2 attach_signals

    $process->attach_signals;

From now on TERM, INT and QUIT shut the server down and then stop the loop, when no other server in it is on
its way to stop by a signal; a second one makes it L</hurry>. The others do what C<on> says; a Future that the
handler of HUP returns says when the reload is over. A L<service manager|Peregrine::Notify> that wants to know
is told of reloads and of the stop.

=head2 serving

    $process->serving('serving on http://127.0.0.1:5000/');

The server serves: a L<service manager|Peregrine::Notify> is told, with this status, and from now on
that the loop runs.

=head2 has_service

    say 'systemd listens' if $process->has_service;

=head2 hand_over

    $process->hand_over($pid);

The service's main process is another one: the service manager is told that, and no more.

=head2 stop_once

    $process->stop_once;
    $process->stop_once(retire => 'restart');

Shuts the server down, by another method if there is one, and then stops the loop as a signal does. A server
that stops already is asked again, for another way of stopping perhaps, but not to L</hurry>.

=head2 detach_signals

    $process->detach_signals($at_once);

Signals do what they did before; at the end of the loop's turn if it runs, unless C<$at_once>, which must not
be said in a signal's callback.

=head2 let_signals_in

    Peregrine::Process->let_signals_in($loop);

Lets the loop see the signals that are pending. L<IO::Async::Loop::Epoll> does so itself only when it is idle.

=head2 run

    my $exception = $process->run;

Runs the loop until it is stopped. An exception in a callback of the loop ends the server in order, unless it
belongs to a request: it is logged, the server shuts down, and the exception is returned.

=head2 starting

    my $serves = Peregrine::Process->starting($log, sub { return start_a_server() });

Calls code that starts a server. Where the application calls C<exit> meanwhile, the log says so. L</run> does
the same.

=head2 end_child

    Peregrine::Process->end_child($log, $exception);

For a process that the application has forked and that would run the server's code: logs the exception, if
there is one, and ends the process at once, without END blocks.

=head2 load_once

    my $app = Peregrine::Process->load_once($log, 'the application', sub { ...; return $app });

Returns what the code returns, or dies of what the code dies of. A process that the code has forked, and that
comes back from it, is logged and ends.

=head2 take_logs

    Peregrine::Process->take_logs([ sub { my ($descriptor) = @_; ... } ], $descriptor);

Calls functions that open logs anew, with the descriptor of the new file if this process has received one,
which is closed then.

=head2 exit_place

    my $text = Peregrine::Process::exit_place();    # ' at app.pl line 7'

Where C<exit> was called, as the end of a message; empty where no Perl code has called it.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
