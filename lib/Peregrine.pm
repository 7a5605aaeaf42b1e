package Peregrine;

use strict;
use warnings;

our $VERSION = '0.003000';

use POSIX ();
use XSLoader;
XSLoader::load(__PACKAGE__, $VERSION);

# Reports an event that has reached no server: the server is gone, or has died while it was told.
sub _warn_lost {
    my ($about, $error) = @_;
    warn 'PAGI: the server died while it was told of an event: ' . _text($error) if defined $error;
    warn 'PAGI: an event reached no server: ' . _text($about)                    if defined $about;
    return;
}

sub _text {
    my ($value) = @_;
    # Expected: an object that dies when it is asked for its text.
    my $text = eval { "$value" };
    return $text // 'an object of ' . ref $value;
}

# A shallow copy of a hash, which an application may have tied.
sub _copy_hash {
    my ($hash) = @_;
    return {%$hash};
}

# Bytes of physical memory that a process has; undef if the kernel does not tell.
sub resident_bytes {
    my ($pid) = @_;
    open my $in, '<', "/proc/$pid/statm" or return;
    my (undef, $pages) = split ' ', readline($in) // '';
    return defined $pages ? $pages * POSIX::sysconf(POSIX::_SC_PAGESIZE()) : undef;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Peregrine - the HTTP engine, seen from Perl

=head1 SYNOPSIS

    use Peregrine;

    for my $option (Peregrine::options()) {
        printf "%-24s %s (%s)\n", @{$option}{qw(name default unit)};
    }

=head1 DESCRIPTION

This module loads the engine, which is written in Zig and linked into it. Applications do not use it
directly: L<PAGI::Server> is the server for asynchronous applications.

Its functions are for servers that are built on the engine.

=head1 FUNCTIONS

=head2 options

    my @options = Peregrine::options();

Every limit of the engine as a hash reference with C<name>, C<unit>, C<summary>, C<default>, C<min>
and C<max>. This list is the only place where those defaults are written down.

=head2 counters

    my @words = Peregrine::counters();

Descriptions of a worker's counts (L</count_in>): for each word a hash reference with C<name>, C<label> and
C<value> (what tells it from others of its name: C<status>, C<2xx>; empty if there are none), C<summary>, and
C<kind>: C<counter> grows, C<gauge> is what was a second ago, C<bucket> is the part of a histogram that took
no longer than C<value> seconds and longer than the bucket before, C<sum> the microseconds that all in a
histogram took.

=head2 access_log_fault

    my ($atom, $at, $reason) = Peregrine::access_log_fault('%h %z');

The mistake in a format of the access log: the piece of the format, its offset, and the end of a sentence
about it. The empty list if nothing is.

=head2 take_buffered

    my $bytes = Peregrine::take_buffered($handle);

Takes out of a handle the bytes that perl has read from it and given to nobody, and returns them. Never reads
more.

=head2 forgo_privileges

    Peregrine::forgo_privileges() or die "no_new_privs: $!\n";

From now on neither this process nor what it starts can get more rights than it has. False, with C<$!>, where
the system has no such thing.

=head2 hide_memory

    Peregrine::hide_memory();

Other processes of this user cannot read this one's memory and descriptors any more, as after a change of
user. False, with C<$!>, where the system has no such thing.

=head2 adopt_orphans

    Peregrine::adopt_orphans() or die "cannot adopt processes: $!\n";

From now on processes whose parents have ended, among all that descend from this one, are its children. False,
with C<$!>, where the system has no such thing (Linux has).

=head2 resident_bytes

    my $bytes = Peregrine::resident_bytes($pid);

The physical memory of a process; undef where there is no F</proc>.

=head2 end_with_parent

    Peregrine::end_with_parent(1);

From now on this process is killed when its parent ends, on Linux; with 0 it outlives its parent again. The
same thread must call it both times. A change of the process's user undoes it.

=head2 send_descriptors

    my $sent = Peregrine::send_descriptors(fileno $socket, "three sockets\n", 7, 8, 9);

Sends bytes and at most 250 descriptors over a connected Unix socket; all descriptors go with the first byte.
Never waits. How many bytes were taken; undef with C<$!> if none were.

=head2 receive_descriptors

    my ($bytes, @descriptors) = Peregrine::receive_descriptors(fileno $socket, 65_536);

Up to so many bytes, and the descriptors that came with them, which are closed on C<exec> and in processes
that are forked. Never waits. The bytes are empty when the other end is closed; the list is empty, with C<$!>,
when there is nothing to read.

=head2 signal_descriptor

    my $fd = Peregrine::signal_descriptor(-1, 1, 15);
    Peregrine::signal_descriptor($fd, 1, 2, 15) >= 0 or die "signalfd: $!\n";

A descriptor that is readable while one of these signals is pending (L<signalfd(2)>), which have to be
blocked: a new one, or C<$fd> for other signals than before. It is closed on C<exec>. -1 with C<$!> where that
fails, and where there is no Linux.

=head2 has_tls

    die 'built without TLS' if !Peregrine::has_tls();

Whether the engine was built with OpenSSL.

=head2 has_kernel_tls

    say 'sendfile over TLS' if Peregrine::has_kernel_tls();

Whether the kernel makes TLS records, so that the server's option C<ktls> has an effect.

=head2 abi_version

    my $version = Peregrine::abi_version();

The version of the contract between the engine and its users in other languages.

=head2 engine_version

    my $version = Peregrine::engine_version();    # '0.3.0'

The version that the engine was built with: that of this module, with dots.

=head2 tls_library

    my $library = Peregrine::tls_library();    # 'OpenSSL 3.0.19 27 Jan 2026'

The TLS library that is loaded; empty in a build without TLS.

=head2 count_stops, heard_stops, leave_stops

    Peregrine::count_stops(30, POSIX::SIGTERM(), POSIX::SIGINT());
    Peregrine::heard_stops();
    Peregrine::leave_stops();

For signals that Perl handles: the third one that comes without C<heard_stops> called meanwhile ends the
process, which says where it is (L</answer_when_stuck>), and so does the end of so many seconds after the
first one. Event loops block signals but while they wait, so that an application that never
returns would hear of none; a thread takes them then, until C<leave_stops> was called as often as
C<count_stops>. Dies when there can be no thread.

=head2 exit_place

    END { print STDERR 'exit was called at ', Peregrine::exit_place() // 'no known place', "\n" }

The file and the line of the call of C<exit>, as C<app.pl line 7>, for END blocks and destructors; undef where
no Perl code has called it.

=head2 stuck_signal

    my $number = Peregrine::stuck_signal();

See L</answer_when_stuck>.

=head2 prepare_alarms

    Peregrine::prepare_alarms();

For L<Peregrine::Threads>, before it clones this interpreter: C<alarm> of Perl code that has been compiled,
and will be, is that of its own interpreter where C<begin_clone> was called.

=head2 begin_clone and end_clone

    Peregrine::begin_clone();
    Peregrine::end_clone();

This thread's interpreter was cloned: it has an alarm of its own from now on, and what it forks is settled
(L</settle_children>); and not any more, before it goes.

=head2 show_title

    Peregrine::show_title('my-server (worker 1)');

Sets the text that C<ps> shows for this process. C<$0> keeps its value, by which L<FindBin> finds the
program's folder.

=head2 settle_children

    my $before = Peregrine::settle_children(1);

Whether processes that this thread forks are the application's. In such a child no signal is blocked, and
functions that the server or its event loop has set in C<%SIG> are gone, but for C<PIPE>. A child of a clone
has the clone's C<%SIG> and C<%ENV>, which in a clone are Perl's own. Programs that C<system>, backticks and
C<open> start are treated in the same way.

=head2 sv_count

    my $before = Peregrine::sv_count();
    do_something();
    warn "leak" if Peregrine::sv_count() > $before;

How many scalars, arrays, hashes and other values the interpreter holds. Tests use it to find leaks.

=head1 WORKER

A C<Peregrine::Worker> owns listeners and connections. A worker belongs to a single thread.

=head2 new

    my $worker = Peregrine::Worker->new({ idle_ms => 60_000 });

Takes the limits that differ from the defaults, by the engine's names. Dies with the name and value of
one that does not exist or is out of range.

=head2 attach

    $worker->attach({
        app        => $app,           # code reference
        server     => $server,        # told of the rest; must outlive the worker, or close it
        loop       => $loop,          # for Futures that can be waited for
        state      => \%state,        # copied into every scope; optional
        extensions => \%extensions,   # advertised in every scope; optional
        check      => \&problem,      # called with each event that is sent; what is wrong with it, or undef
        error_page => \&page,         # called with an application's exception or undef, and what a message
                                      # about the request needs; headers and body of a 500, or undef
    });

Says what requests are given to, once for a worker, as a PAGI application. L<PAGI::Server::Future> has to be
loaded; its Futures are what C<$receive> and C<$send> return.

=head2 listen_fd

    my $listener = $worker->listen_fd($descriptor);

Takes over a listening socket and its descriptor. Returns the listener's number, or a negative code.

=head2 listen

    my $listener = $worker->listen('127.0.0.1', 5000, 2048);

Listens on a numeric address. Returns the listener's number, or a negative code; C<$!> tells more.

=head2 secure

    my $code = $worker->secure($listener, $tls);

Connections that come in at this listener from now on speak TLS, with a L</TLS> object. A negative code says
that there is no such listener.

=head2 listener_address

    my ($address, $port) = $worker->listener_address($listener);

The address at which a listener is bound.

=head2 redirect_to_https

    $worker->redirect_to_https(8443);

Sends requests that came in the clear to C<https>, unless a folder that was added before has the file. The
port is for clients whose C<Host> names one. Before the first dispatch.

=head2 body_folder

    $worker->body_folder('/var/tmp');

The folder for request bodies that are too long for memory, in files without names. Before the first
dispatch; a negative code says that it is too late.

=head2 open_access_log

    my $code = $worker->open_access_log('/var/log/app.log', -1, 'combined');    # a path
    my $code = $worker->open_access_log(undef, fileno STDERR, 'clf');    # a descriptor, which is duplicated

Writes a line for each answered request, in place of the log before. With neither path nor descriptor, the
server's C<_access_lines> gets the lines. Returns a negative code if that cannot be; C<$!> tells more, and the
log before goes on. Requests that are open have their lines in the new log, in the format that they began
under.

=head2 close_access_log

    $worker->close_access_log;

No more lines. The lines of requests that have ended are written.

=head2 reopen_access_log

    $worker->reopen_access_log;

Opens the path of the access log again: the file was moved away.

=head2 use_thread

    my $code = $worker->use_thread;

From the first dispatch on, the engine runs on a thread of its own: connections are accepted, read, written
and timed whatever Perl does. To be called before C<fd>, in the process that dispatches. Returns a negative
code if that cannot be.

=head2 pause_accepting

    $worker->pause_accepting(1);

From now on connections wait in the kernel's queues; with 0 they are accepted again, as by a new worker.

=head2 health_path

    $worker->health_path('/healthz');

GET and HEAD requests for this path are answered by the engine with 200, also when the limit of connections is
reached, and after L</use_thread> also while Perl is busy. An empty path: none are. Returns a negative code if
it is no path.

=head2 fd

    my $descriptor = $worker->fd;

Readable whenever the worker has something to do. Any event loop can watch it.

=head2 dispatcher

    $loop->watch_io(handle => $handle, on_read_ready => $worker->dispatcher);

A function without arguments that handles what the worker has to do.

=head2 wait_for_loop

    $worker->wait_for_loop(fileno $epoll) or ...;
    $worker->wait_for_loop(-1);

From now on a loop waits in C<wait> instead of on C<fd>, and watches this descriptor itself. False: this
system has no epoll. -1: no more.

=head2 in_loop

    $worker->in_loop(1);
    ...    # callbacks of the loop's own
    $worker->in_loop(0);

Tells that a loop handles what it watches itself. Meanwhile an engine on a thread or in another process leaves
new connections and requests to others, and what L</show_busy_in> shows goes on.

=head2 wait

    my $is_due = $worker->wait($milliseconds);

Handles what the worker has to do, after waiting for it so long at most (-1: for ever). True: the descriptor
is readable, or there was a signal. C<undef>: the worker is closed, or another process's.

=head2 turns

    my $is_due = $worker->turns($loop);

Calls L</wait> again and again, until an L<IO::Async::Loop::Peregrine> is stopped or has something to
do itself.

=head2 dispatch

    $worker->dispatch;

Like the function of L</dispatcher>, as a method.

=head2 set

    my $code = $worker->set(idle_ms => 5_000);

Changes a limit while the worker runs. A negative code says that the engine did not take it.

=head2 wake

    $worker->wake;

Makes C<fd> readable.

=head2 tell_after

    $worker->tell_after(10_000);

The server's C<_requests_reached> is called when so many further requests have come. 0: never.

=head2 retire

    $worker->retire;

Another process takes this one's place, at the same sockets: stops accepting, answers once more on each
connection. WebSockets and event streams go on. The server's C<_stopped> is called when the last connection is
gone.

=head2 answer_when_stuck

    $worker->answer_when_stuck('PAGI');
    kill Peregrine::stuck_signal() => $pid;    # elsewhere

From now on that signal makes the process write to its standard error which request it is at, and the stack
of Perl functions, also while it waits inside a library, and kill itself (SIGKILL). The name begins the
message.

=head2 answer_when_thread_is_stuck

    $worker->answer_when_thread_is_stuck('PAGI: interpreter 1');
    $link->say(thread => Peregrine::thread_number());

Like L</answer_when_stuck>, for a worker that has joined an engine and is one of several threads of this
process. It does not end, for it cannot be killed: the engine answers for it (504; a response that has
begun is cut) and hears nothing from it any more.

=head2 ask_stuck_thread, thread_number

    Peregrine::ask_stuck_thread($number) or warn 'it has ended';

Functions. The first one makes the worker of that thread do so, if it is at a request. The other one gives the
number of the calling thread; 0 where there is no such thing (only Linux has).

=head2 show_busy_in

    $worker->show_busy_in($words, $at);

From now on that word says since when the worker is at one event: milliseconds of the monotonic clock, 0 while
it is at none.

=head2 deliver_topics

    my $code = $worker->deliver_topics($join_socket, $entries, $bytes, $age_ms);

After C<use_thread> or C<use_interpreters>: the engine delivers topics (L<PAGI::Server::Topics>) to its
connections. The hub finds the engine's node through the socket; the other arguments bound the history of
each topic, as in the hub. Returns a negative code if that cannot be.

=head2 add_group

    my $group = $worker->add_group($join_socket, { exchanges => $max_concurrency, seats => 9 });

After C<use_interpreters>: another group of interpreters, which join at the other end of this socket and get
the requests of routes with its number as C<group>. Limits: C<exchanges> of one interpreter at the same time,
C<seats> for interpreters, C<no_topics>, C<topics> (how names of topics begin that they may read), and in
place of the engine's C<queue_max>, C<queue_ms> and C<request_idle_ms>.
C<name> is for logs. With C<words>, a C<Peregrine::Words>, the engine adds 1 to the word C<refused> of it for
each request that it refuses because these interpreters are busy; all groups have one memory.
Returns the number, from 1 on, or a negative code.

=head2 take_turns

    $worker->take_turns(1);

An interpreter that has joined an engine wants its share of few requests, too: interpreters that have equally
little to do get them in turns, until the last one that wants that takes it back or leaves.

=head2 tally_in

    $worker->tally_in($words, $at);

From now on the worker counts in the words from there on: requests that it has got, answers that have begun,
those with a status of 500 and more, requests that the application, or its silence, has ended without an
answer, answers that are over, and in sixteen words answers by the time until they began: the first of these
words has those within a millisecond, and each further one those that took up to twice as long as those of the
word before, less a millisecond; and likewise in sixteen words answers by the time until they were over, but
event streams. A request that goes to another interpreter is counted there. WebSockets are not counted.

=head2 end_streams

    $worker->end_streams;

Closes the WebSockets (1012) and ends the event streams of a worker that retires.

=head2 forget_end_blocks

    Peregrine::forget_end_blocks();

Takes away all C<END> blocks, in a forked process that does not run the code that has them. A function.

=head2 leave

    Peregrine::leave($status);

Ends a process that was forked for good: C<END> blocks run, what handles have buffered is written, objects are
not destructed. A function.

=head2 drain

    $worker->drain;

Stops accepting, closes idle connections and lets the requests in flight finish. The server's
C<_stopped> is called when the last connection is gone.

=head2 refuse_waiting

    my $count = $worker->refuse_waiting;

Answers requests that wait for an interpreter (503), and from now on each one that finds no interpreter with
time for it. Returns the number of requests that have waited.

=head2 refuse_group

    my $count = $worker->refuse_group(1);

The same for requests of one group (L</add_group>), no interpreter of which comes any more.

=head2 cut

    $worker->cut;

Closes every connection now.

=head2 fail_stalled

    my $requests = $worker->fail_stalled($exception);

Ends the applications that can never go on because of an exception that came out of the event loop: what they
await is ready, and they have not been told. Returns how many there were. To be called when nothing of an
application is on the stack.

=head2 trim

    my $requests = $worker->trim;

Frees the values that are kept for the next requests, which saves making them anew. Returns how many requests
are not over: their application runs, or their response is on its way.

=head2 stats

    my $open = $worker->stats->{connections};

Counters: C<connections>, C<exchanges>, C<connections_max>, C<accepted>, C<rejected>, C<requests>, C<refused>,
C<memory_bytes>, C<allocations>, C<shed> (requests that were refused or cut for want of memory), C<memory_max>
(bytes from which on that happens; 0: never) and C<ledger> (exchanges that the application's side of an engine
on a thread of its own keeps a record of; 0 without one).

=head2 count_in

    $worker->count_in($words, $from);

From now on the worker counts in L</WORDS>, from that one on, one for each of L</counters>. No other code
may write these words. A negative code says that there are too few.

=head2 share_sockets

    $worker->share_sockets($words, $number);

Workers of other processes accept at the same sockets: those of one table, a L</WORDS> that all of them share,
get as many connections each. The first word says how many places follow. C<$number> is this worker's place,
from 1 on. The worker writes there how many connections it has, in a form of its own that is never 0, and 0
when it stops; a process that sees it die writes that 0 in its place. Once, before the first connection. A
negative code says that there is no such place.

=head2 close

    $worker->close;

Closes everything at once and frees the engine's memory. Also happens when the object goes.

=head1 WORDS

A C<Peregrine::Words> is memory for 64-bit numbers that a process shares with those that it forks. Each is
read and written whole.

=head2 new

    my $words = Peregrine::Words->new($count);

All of them are 0.

=head2 leave

    $words->leave;

This process has none of them from then on, and cannot get them back.

=head2 get

    my @values = $words->get($from, $count);    # a single value if no count is given

=head2 set

    $words->set($at, $value);

=head2 add

    $words->add($at, $value);

=head1 TLS

A C<Peregrine::TLS> holds certificates and policy. Workers may share one, and keep it for as long as they need
it.

=head2 new

    my $tls = Peregrine::TLS->new({
        certificates    => [
            { cert_file => $path, key_file => $path, chain_file => undef, key_password => undef },
        ],
        ca_file         => $path,
        verify_client   => 0,         # 1: asked for, 2: required
        min_version     => 0x0303,
        cipher_list     => $list,
        cipher_suites   => $list,
        groups          => $list,
        session_timeout => 7200,
        ticket_keys     => $bytes,    # 80 of them
    });

Loads the files. Only the certificates are required. Dies with a message that names the file or value that is
wrong.

=head2 reload

    $tls->reload($config);
    $tls->reload;

Uses something else for the connections that come from now on; without an argument, reads the same files
again. Dies as C<new> does, and then nothing has changed.

=head2 concern

    my $sentence = $tls->concern(0, time);    # 'SSL certificate file /etc/ssl/site.pem has expired on ...'

The problem with the dates of the certificate with that number at that time: it has expired, is not good
yet, or expires soon. Empty if nothing is, undef if there is no such certificate.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
