package Peregrine::Server::WarmUp;

use strict;
use warnings;

our $VERSION = '0.003000';

use File::Temp ();
use Future;
use IO::Socket::UNIX;
use Peregrine;
use Peregrine::Fork;
use Peregrine::Later qw(later weakly);
use Peregrine::Link;
use Peregrine::Server::Engine;
use POSIX        ();
use Scalar::Util qw(weaken);
use Socket       qw(SOCK_STREAM);

# Seconds between two looks whether applications have ended after their answers, and seconds for all looks.
use constant { LOOK_S => 0.01, ENDS_S => 5 };
# Seconds that an interpreter has to hear of its deadline; after that it counts as blocked by the application.
use constant HEAR_S => 3;
# Bytes that are read at a time.
use constant PIECE => 64 << 10;
# The end of a chunked answer.
use constant END_OF_CHUNKS => "0\r\n\r\n";

# Objects are not copied into clones of the interpreter, see Peregrine::Threads.
sub CLONE_SKIP { return 1 }

# `instance`: a Peregrine::Server::Instance whose application has started.
sub new {
    my ($class, $instance) = @_;
    my $self = bless { instance => $instance }, $class;
    weaken($self->{instance});
    return $self;
}

# Warms the application up. An engine of this process answers, so the application gets what a client's request
# would give it. The client is another process: an application of PSGI may block this one until its answer is
# read.
sub run {
    my ($self)   = @_;
    my $instance = $self->{instance};
    my $done     = $self->{done} = $instance->loop->new_future;
    $self->{folder} = File::Temp->newdir('peregrine-XXXXXXXX', TMPDIR => 1);
    my $path   = "$self->{folder}/engine";
    my $socket = IO::Socket::UNIX->new(Type => SOCK_STREAM, Local => $path, Listen => 1)
        or return Future->fail("warm-up: $path: $!\n", 'warm_up');
    my $engine = $self->{engine} = Peregrine::Server::Engine->private($instance->configuration);
    $engine->worker->listen_fd(POSIX::dup(fileno $socket)) >= 0
        or return Future->fail("warm-up: the engine cannot listen at $path: $!\n", 'warm_up');
    $instance->application->attach($engine->worker, $instance);
    $self->_start_client($path, $socket);
    $engine->watch($instance->loop);
    return $done->on_ready(sub { $self->_close });
}

sub stop {
    my ($self) = @_;
    my $done = $self->{done};
    $done->fail("The server was told to stop during its warm-up\n", 'stopped') if !$done->is_ready;
    return;
}

sub _close {
    my ($self) = @_;
    my ($loop, $reader, $client, $engine) =
        ($self->{instance}->loop, delete @{$self}{qw(reader client engine)});
    $loop->unwatch_io(handle => $reader, on_read_ready => 1) if $reader;
    if ($client) {
        kill KILL => $client;
        waitpid $client, 0;
    }
    $engine->close if $engine;
    delete $self->{folder};
    return;
}

# ---- In the interpreter -------------------------------------------------------------------------

sub _start_client {
    my ($self, $path, $socket) = @_;
    pipe my $reader, my $writer or die "warm-up: pipe: $!\n";
    my $link = $self->{instance}->link;
    # A copy for the client, in which the link itself is closed.
    my $copy        = $link ? POSIX::dup($link->descriptor) : undef;
    my $interpreter = $$;
    my $client      = Peregrine::Fork::child() // die "warm-up: fork: $!\n";
    if (!$client) {
        close $_ for $reader, $socket;
        $self->{link}        = Peregrine::Link->from_descriptor($copy) if defined $copy;
        $self->{interpreter} = $interpreter;
        my $problem = eval { $self->_ask_for_all($path, $writer) } // $@;
        $self->_remove_folder;
        _tell($writer, $problem);
        POSIX::_exit(0);
    }
    POSIX::close($copy) if defined $copy;
    @{$self}{qw(reader client)} = ($reader, $client);
    $self->{instance}->loop->watch_io(handle => $reader, on_read_ready => weakly($self, '_heard'));
    return;
}

# Handles the client's report, which it writes at once.
sub _heard {
    my ($self) = @_;
    my $done   = $self->{done};
    my $said   = '';
    1 while sysread $self->{reader}, $said, PIECE, length $said;
    $self->{instance}->loop->unwatch_io(handle => delete $self->{reader}, on_read_ready => 1);
    return                                          if $done->is_ready;
    return $self->_wait_for_ends(ENDS_S / LOOK_S)   if $said eq "ok\n";
    return $done->fail("warm-up: $said", 'warm_up') if length $said;
    return $done->fail("warm-up: its client has ended\n", 'warm_up');
}

# Waits for applications that work on after their answers, which the end of the engine would cancel.
sub _wait_for_ends {
    my ($self, $looks) = @_;
    my $done = $self->{done};
    return if $done->is_ready;
    my ($busy, $leaving) = $self->{engine}->worker->applications;
    return $done->done if $looks <= 0 || !$busy && !$leaving;
    later($self->{instance}->loop, LOOK_S, $self, _wait_for_ends => $looks - 1);
    return;
}

# ---- In the client ------------------------------------------------------------------------------

sub _tell {
    my ($writer, $problem) = @_;
    syswrite $writer, length $problem ? "$problem\n" : "ok\n";
    close $writer;
    return;
}

# Removes the folder, which an interpreter that is killed cannot do.
sub _remove_folder {
    my ($self) = @_;
    unlink "$self->{folder}/engine";
    rmdir "$self->{folder}";
    return;
}

# Makes all requests; returns a problem in words, or an empty text.
sub _ask_for_all {
    my ($self, $path, $writer) = @_;
    my $instance = $self->{instance};
    my $seconds  = $instance->options->{lifespan_startup_timeout};
    my $asked;
    local $SIG{ALRM} = sub {
        my $problem = "$asked: no answer within $seconds s";
        $self->_remove_folder;
        _tell($writer, $problem);
        sleep HEAR_S;
        $self->_end_interpreter("warm-up: $problem");
        POSIX::_exit(0);
    };
    alarm POSIX::ceil($seconds);
    for my $target (split /,/, $instance->options->{warm_up}) {
        for my $host ($instance->application->hosts) {
            $asked = "GET $target" . (defined $host ? " at $host" : '');
            my $problem = _ask($path, $target, $host // 'localhost');
            return "$asked: $problem" if length $problem;
        }
    }
    alarm 0;
    return '';
}

# Ends an interpreter that the application blocks, so that it hears nothing. A thread cannot be ended. If the
# interpreter has ended meanwhile, the parent is another process, the master perhaps.
sub _end_interpreter {
    my ($self, $reason) = @_;
    my $instance    = $self->{instance};
    my $interpreter = $self->{interpreter};
    return if $instance->is_clone || getppid != $interpreter;
    if ($self->{link}) {
        $self->{link}->say(failed => $reason);
        return kill KILL => $interpreter;
    }
    # A server without a master has files to remove, and does so if the application returns meanwhile. After
    # TERM service managers would take its end for a stop.
    $instance->log->error($reason);
    my $end = time + $instance->options->{shutdown_timeout};
    sleep 1 while time < $end && getppid == $interpreter;
    return getppid == $interpreter ? kill(Peregrine::stuck_signal() => $interpreter) : 0;
}

sub _ask {
    my ($path, $target, $host) = @_;
    my $socket  = IO::Socket::UNIX->new(Type => SOCK_STREAM, Peer => $path) or return "cannot connect: $!";
    my $request = join "\r\n", "GET $target HTTP/1.1", "Host: $host", 'User-Agent: Peregrine (warm-up)',
        'Accept: */*', 'Connection: close', '', '';
    defined syswrite $socket, $request or return "cannot ask: $!";
    my ($received, $tail, $head, $length) = ('', '');
    while (sysread $socket, $received, PIECE, length $received) {
        if (!defined $head) {
            $received =~ s/\A(?:HTTP\S+ 1[0-9]{2} .*?\r\n\r\n)+//s;
            $received =~ s/\A(HTTP\S+ [2-5][0-9]{2} .*?\r\n\r\n)//s or next;
            ($head, $length) = ($1, 0);
        }
        $length += length $received;
        $tail     = substr "$tail$received", -length END_OF_CHUNKS;
        $received = '';
    }
    return defined $head ? _problem_of($head, $length, $tail) : 'no answer';
}

sub _problem_of {
    my ($head, $length, $tail) = @_;
    my ($status) = $head =~ /\A\S+ ([0-9]+)/;
    return "status $status" if $status >= 500;
    my $is_whole =
          $head =~ /^Transfer-Encoding: *chunked/mi ? $tail eq END_OF_CHUNKS
        : $head =~ /^Content-Length: *([0-9]+)/mi   ? $length == $1
        :                                             1;
    return $is_whole ? '' : 'an answer that was cut';
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine::Server::WarmUp - asks an application for some paths before clients come

=head1 DESCRIPTION

What the option C<warm_up> does in each interpreter, between the application's startup and its first client.
An engine of the process's own, at a Unix socket that only its user sees, gives the application the requests:
so scope or environment, middleware and mounts are those of clients' requests. The client is a process that
is forked for it, because an application of PSGI may block the interpreter while its answer is taken.

All answers have to be complete, and their statuses below 500, within C<lifespan_startup_timeout>. Where
several hosts have applications of their own each of these gets all requests.

=head1 METHODS

=head2 new

    my $warm_up = Peregrine::Server::WarmUp->new($instance);

For a L<Peregrine::Server::Instance> whose application has started.

=head2 run

    $warm_up->run->get;

The Future fails with the category C<warm_up>, or C<stopped>. An application that blocks the interpreter
beyond the time is ended by a signal; a server without C<workers> only when C<shutdown_timeout> is over, too.

=head2 stop

    $warm_up->stop;

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
