package Plack::Handler::EVHTP;

use strict;
use warnings;

our $VERSION = '0.003000';

use parent qw(Plack::Handler::Peregrine);

use PAGI::Server::Log;
use PAGI::Server::Options;
use Peregrine::Threads;

# Default options. The number of workers is given as `max_workers`, so that an option `--workers` wins.
sub defaults {
    my ($self)    = @_;
    my %own       = PAGI::Server::Options::defaults_of('evhtp');
    my %variables = PAGI::Server::Options::from_environment();
    my %defaults  = (engine => $own{engine}, %variables);
    $defaults{max_workers} = $own{workers} if !defined $self->{workers};
    my $workers  = $self->{workers} // $self->{max_workers} // $defaults{max_workers};
    my $chosen   = $self->{engine}  // $variables{engine};
    my $obstacle = $workers && !defined $chosen && $^O eq 'linux' ? _obstacle() : undef;

    if (defined $obstacle) {
        PAGI::Server::Log->new(name => 'Peregrine')->warn("$obstacle: the workers are processes");
        $defaults{engine} = 'process';
    }
    return %defaults;
}

sub _obstacle {
    return 'this Perl has no threads' if !Peregrine::Threads::are_possible();
    my $module = Peregrine::Threads::obstacle() // return;
    return "the application has loaded $module, which cannot be in several threads";
}

1;

__END__

=encoding UTF-8

=head1 NAME

Plack::Handler::EVHTP - serves PSGI applications with Peregrine, in interpreters that are threads

=head1 SYNOPSIS

    plackup -s EVHTP
    plackup -s EVHTP -E production --host 0.0.0.0 --port 5001 -a that-app.psgi

=head1 DESCRIPTION

L<Plack::Handler::Peregrine> with other defaults: C<--engine thread> and eight interpreters, which are threads
of one process. The application is loaded once, by an interpreter that serves nothing itself; the eight are
its clones. An engine on a thread of its own has all connections. It gives each request to the interpreter
that has the least to do, as soon as the request's body is complete. No request waits for another one while an
interpreter is idle, and a slow client holds up no other client.

C<psgi.multithread> is true, C<psgi.multiprocess> is not.

=head2 CLONE

Each clone has its own copy of all data. An application makes data that cannot be copied, such as a connection
to a database, in each clone, either at the first request or in C<CLONE>, which is called in each clone before
it serves:

    use DBI;

    my $dbh;

    sub CLONE {
        $dbh = DBI->connect('dbi:SQLite:dbname=app.db', '', '', { RaiseError => 1 });
    }

The C<CLONE> of installed modules (DBI has one) is called first, then that of the application. If such a
method dies, the clone cannot start: the log says why, and another attempt follows. An application that has
made an L<IO::Async::Loop> when it was loaded is refused; in a request it finds that of its interpreter.

An application that has loaded L<EV> or L<Coro>, of which a process can have but one, is served by processes
(C<--engine process>), and the log says so; with an C<--engine thread> of yours it is refused. One of
L<Mojolicious> is such where EV is installed, unless C<MOJO_REACTOR=Mojo::Reactor::Poll> is in its
environment. In a clone it dies to load them.

Small applications of Catalyst, Dancer2, Mojolicious and Plack's middleware, of DBI and DBD::SQLite, are
tested so. Modules that are written in C may not survive cloning, if their C<CLONE> does not care for it: then
C<--engine process> is the right choice.

=head2 What a clone costs

Time and memory of a clone depend on what the application has loaded. C<script/clones app.psgi>, in the
repository, measures it: CPU time, and memory of a clone that waits. With Perl 5.36, on a virtual machine with
two cores that was busy with other things:

    Application                 milliseconds      MiB
    hello                               19.4      5.6
    hello, DBI, DBD::SQLite             23.9      6.6
    Plack's middleware                  33.9      9.2
    Mojolicious                         60.2     15.8
    Dancer2                             64.6     16.3
    Catalyst                            83.0     19.6

While an interpreter is cloned the others serve. A process of C<--engine process> takes little of either, as
it shares with the others what it does not change.

=head2 What threads cannot do

Interpreters in threads are not kept apart as processes are. For these C<--engine process> is there:

=over

=item *

A crash in a library, C<POSIX::_exit> or C<kill KILL =E<gt> $$> ends the process, with all connections. The
master starts another one.

=item *

A thread cannot be killed. An interpreter that is at one request for longer than C<request_kill_timeout> is
left alone: its client gets 504, or is cut off if a response has begun, the log has the request and the stack
of Perl functions, and another interpreter takes its place. A clone that was told to leave and does not is
treated in the same way. Such a thread keeps its memory, locks and connections to databases until it comes
back; then it ends. When a clone is asked for its stack, a sleep or poll returns early (C<EINTR>), a read,
write or lock does not. While four of them have not come back a new process takes over, and the old one ends
with all of its threads. In C<--engine process> the process of such an interpreter is killed at once.

=item *

Clones share the state of the process: the current directory, C<umask>, the locale, the dispositions of
signals. C<%SIG> and C<%ENV> of a clone are its own. Signals come to no clone: all are blocked there. So:

    in a clone                    what it does
    $SIG{ALRM} = ..., alarm,      as in a process of its own: each clone has its own alarm
      Time::HiRes::alarm, ualarm
    alarm without a handler       interrupts a system call; it ends no process
    Time::HiRes::setitimer        nothing: the process ignores its timers
    $SIG{TERM}, $SIG{CHLD}, ...   kept for what it forks; in the clone they are never called, and the process
      POSIX::sigaction            does what it did, with IGNORE and DEFAULT, too
    watch_process, run_process    of IO::Async: never told that the child has ended, for SIGCHLD is not
                                  heard; waitpid, system and backticks work
    kill TERM => $$, ...          goes to the server, which stops, or does what it does at that signal
    POSIX::raise                  nothing
    POSIX::sigprocmask            to be avoided: a clone that unblocks signals gets those of the server
    $SIG{__DIE__}, $SIG{__WARN__} its own
    die                           500
    exit                          500, ends this interpreter; another one takes its place
    fork                          as in a process: the child has no signal blocked, and %SIG, %ENV and alarm
                                  of its own; its exit ends it with that status, without the END blocks
                                  that were there when the interpreter was cloned
    system, exec after fork,      no signal is blocked; what %SIG ignores is ignored, %ENV is the environment
      backticks, open '-|'
    exec, POSIX::_exit            ends the process and all requests in it

=back

C<die> is answered with 500, as everywhere. So is C<exit>, which ends the interpreter that calls it, and no
other one; another interpreter takes its place.

=head1 OPTIONS

Those of L<Plack::Handler::Peregrine/OPTIONS>, with these defaults:

=over

=item --host (0.0.0.0), --port (5000)

=item --max-workers (8)

Interpreters. 0: the application runs in the process of plackup, with the engine on a thread beside it.

=item --max-reqs-per-child (0)

Requests after which an interpreter is replaced by a new clone, less one to ten percent; 0: never. The new one
serves before the old one leaves.

=item --engine (thread)

C<process>: interpreters are processes, which is for applications that cannot be cloned, and for production
where threads are not to be trusted. C<inline>: each interpreter is a process with an engine of its own.

=back

If Perl has no threads (C<perl -V:useithreads>), the interpreters are processes (C<--engine process>), and the
log says so. Other limits of interpreters, C<max_worker_age> and C<max_worker_rss>, are those of the process;
so is C<HUP>, which replaces it by another one. C<TTIN> and C<TTOU> change the number of interpreters.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
