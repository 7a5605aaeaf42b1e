package PAGI::Server;

use strict;
use warnings;

our $VERSION = '0.1.0';

use parent 'IO::Async::Notifier';

use Carp qw(croak);
use Future;
use IO::Async::Loop;
use Peregrine;
use POSIX        ();
use Scalar::Util qw(weaken);

use PAGI::Server::AccessLog;
use PAGI::Server::Connection;
use PAGI::Server::EventCheck;
use PAGI::Server::Future;
use PAGI::Server::Lifespan;
use PAGI::Server::Listener;
use PAGI::Server::Log;
use PAGI::Server::Options;
use PAGI::Server::Transport;

# Options that a running server takes over at once; the others count for the next start.
my %LIVE = map { $_ => 1 } qw(
    timeout sse_idle_timeout max_connections max_header_size max_header_count max_body_size write_high_watermark
    write_low_watermark log_level quiet shutdown_timeout on_error
    max_receive_queue max_receive_queue_size max_ws_frame_size max_ws_message_size ws_idle_timeout
);

# ---- Construction -------------------------------------------------------------------------------

sub _init {
    my ($self, $params) = @_;
    $self->SUPER::_init($params);
    $self->{options} = { PAGI::Server::Options::defaults() };
    croak 'app is required' if !defined $params->{app};
    return;
}

sub configure {
    my ($self, %params) = @_;
    my %given;
    for my $name (grep { PAGI::Server::Options::is_known($_) } keys %params) {
        my $value = delete $params{$name};
        eval { PAGI::Server::Options::check($name, $value); 1 } or croak _without_newline($@);
        $given{$name} = $value;
    }
    my %options = (%{ $self->{options} }, %given);
    eval { PAGI::Server::Options::check_together(\%options); 1 } or croak _without_newline($@);
    $self->SUPER::configure(%params);
    $self->{options} = \%options;
    $self->{log}     = PAGI::Server::Log->new(level => $options{log_level}, quiet => $options{quiet});
    $self->_configure_worker(\%given) if $self->{worker};
    return;
}

sub _without_newline {
    my ($text) = @_;
    $text =~ s/\s+\z//;
    return $text;
}

sub _configure_worker {
    my ($self, $given) = @_;
    my @later = grep { !$LIVE{$_} } sort keys %$given;
    $self->{log}->warn("PAGI: the running server keeps its @later until it is started again") if @later;
    my $limits = PAGI::Server::Options::engine_limits($given);
    $self->{worker}->set($_ => $limits->{$_}) for keys %$limits;
    return;
}

# ---- Start --------------------------------------------------------------------------------------

sub listen {
    my ($self) = @_;
    my $loop = $self->loop or croak 'Add the server to an IO::Async::Loop before calling listen';
    return $self->{starting} if $self->{starting};
    my $options = $self->{options};
    $self->{lifespan} = PAGI::Server::Lifespan->new(
        app  => $options->{app},
        loop => $loop,
        log  => $self->{log},
        mode => $options->{lifespan_mode},
    );
    my $starting = $self->{lifespan}->startup($options->{lifespan_startup_timeout})->then(sub {
        return Future->done($self) if eval { $self->_start; 1 };
        my $error = $@;
        return $self->_give_up->then(sub { _failure($error) });
    });
    $self->{starting} = $starting;
    $starting->on_fail(sub { delete $self->{starting} }) if !$starting->is_ready;
    delete $self->{starting}                             if $starting->is_failed;
    return $starting;
}

sub _failure {
    my ($error) = @_;
    return Future->fail($error) if ref $error ne 'HASH';
    return Future->fail($error->{message}, 'listen', @{$error}{qw(errno host port)});
}

# A start that failed after the application's startup: it gets its shutdown.
sub _give_up {
    my ($self) = @_;
    $self->_close_worker($self->loop);
    return $self->{lifespan}->shutdown($self->{options}{shutdown_timeout});
}

sub _start {
    my ($self)    = @_;
    my $options   = $self->{options};
    my @listeners = PAGI::Server::Listener->open_all(
        host    => $options->{host},
        port    => $options->{port},
        backlog => $options->{listener_backlog},
    );
    my $worker = Peregrine::Worker->new(PAGI::Server::Options::engine_limits($options));
    $self->{worker} = $worker;
    $worker->attach($self->_attachment);
    PAGI::Server::AccessLog->start($worker, target => $options->{access_log}, format => $options->{access_log_format});
    $self->_hand_over($_) for @listeners;
    $self->{listeners} = [ map { { type => 'tcp', host => $_->{host}, port => $_->{port} } } @listeners ];
    $self->_watch;
    $self->_attach_signals;
    $self->{running} = 1;
    $self->_banner;
    return;
}

sub _attachment {
    my ($self)   = @_;
    my $options  = $self->{options};
    my $lifespan = $self->{lifespan};
    return {
        app        => $options->{app},
        server     => $self,
        loop       => $self->loop,
        state      => $lifespan->is_supported     ? $lifespan->state                    : undef,
        extensions => %{ $options->{extensions} } ? $options->{extensions}              : undef,
        check      => $self->_validates_events    ? \&PAGI::Server::EventCheck::problem : undef,
    };
}

sub _validates_events {
    my ($self) = @_;
    my $wanted = $self->{options}{validate_events};
    return defined $wanted ? $wanted : ($ENV{PAGI_ENV} || '') eq 'development';
}

# The engine closes the descriptor that it gets, Perl the one that it has.
sub _hand_over {
    my ($self, $listener) = @_;
    my $descriptor = POSIX::dup(fileno $listener->{socket});
    my $code       = defined $descriptor ? $self->{worker}->listen_fd($descriptor) : -1;
    return if $code >= 0;
    my $reason = "$!";
    POSIX::close($descriptor) if defined $descriptor;
    die { message => "Cannot listen on $listener->{host}: $reason\n", errno => $! + 0, %{$listener}{qw(host port)} };
}

sub _watch {
    my ($self) = @_;
    my $worker = $self->{worker};
    open my $handle, '<&', $worker->fd or die "Cannot watch the engine: $!\n";
    $self->{handle} = $handle;
    $self->loop->watch_io(handle => $handle, on_read_ready => $worker->dispatcher);
    return;
}

sub _attach_signals {
    my ($self) = @_;
    weaken(my $weak = $self);
    my $loop = $self->loop;
    my $stop = sub { $weak && $weak->_stop_by_signal };
    my %on   = (TERM => $stop, INT => $stop);
    for my $name (qw(HUP USR2)) {
        $on{$name} = sub { $weak && $weak->{log}->warn("PAGI: SIG$name only works in multi-worker mode") };
    }
    $on{USR1} = sub { $weak && $weak->{worker} && $weak->{worker}->reopen_access_log };
    $self->{signals} = { map { $_ => $loop->attach_signal($_ => $on{$_}) } keys %on };
    return;
}

sub _stop_by_signal {
    my ($self) = @_;
    return if $self->{stopping_by_signal}++;
    my $loop = $self->loop;
    $self->shutdown->on_ready(sub { $loop->stop });
    return;
}

sub _banner {
    my ($self) = @_;
    my $loop = ref $self->loop;
    $loop =~ s/\AIO::Async::Loop:://;
    my $limit = $self->effective_max_connections;
    for my $listener (@{ $self->{listeners} }) {
        my $host = $listener->{host} =~ /:/ ? "[$listener->{host}]" : $listener->{host};
        $self->{log}->info("PAGI Server listening on http://$host:$listener->{port}/ (loop: $loop, max_conn: $limit)");
    }
    return;
}

# ---- Stop ---------------------------------------------------------------------------------------

sub shutdown {
    my ($self) = @_;
    return $self->{stopping} if $self->{stopping};
    return Future->done      if !$self->{running};
    $self->{running} = 0;
    my $stopping =
        $self->_drain->then(sub { $self->{lifespan}->shutdown($self->{options}{shutdown_timeout}) },)->on_ready(sub {
        $self->_close_worker($self->loop);
        delete @{$self}{qw(starting stopping listeners lifespan stopping_by_signal)};
        });
    $self->{stopping} = $stopping if !$stopping->is_ready;
    return $stopping;
}

# Lets the requests in flight finish, and cuts what is left when the time is up.
sub _drain {
    my ($self)  = @_;
    my $loop    = $self->loop;
    my $stopped = $self->{stopped} = $loop->new_future;
    my $timer;
    $timer = $loop->watch_time(after => $self->{options}{shutdown_timeout}, code => sub { $self->_cut });
    $self->{worker}->drain;
    return $stopped->on_ready(sub { $loop->unwatch_time($timer) });
}

sub _cut {
    my ($self) = @_;
    my $count = $self->connection_count;
    $self->{log}->warn("PAGI: Shutdown timeout: force-closing $count active connections");
    $self->{worker}->cut;
    return;
}

sub _close_worker {
    my ($self, $loop) = @_;
    my $signals = delete $self->{signals} || {};
    my $handle  = delete $self->{handle};
    my $worker  = delete $self->{worker} or return;
    if ($loop) {
        $loop->detach_signal($_ => $signals->{$_}) for keys %$signals;
        $loop->unwatch_io(handle => $handle, on_read_ready => 1) if $handle;
    }
    $worker->close;
    return;
}

# A server that is taken out of its loop stops at once.
sub _remove_from_loop {
    my ($self, $loop) = @_;
    $self->_close_worker($loop);
    $self->{running} = 0;
    delete @{$self}{qw(starting stopping listeners lifespan)};
    return;
}

sub DESTROY {
    my ($self) = @_;
    return if ${^GLOBAL_PHASE} eq 'DESTRUCT';
    $self->_close_worker($self->loop);
    return;
}

# ---- What the engine's worker tells -------------------------------------------------------------

sub _stopped {
    my ($self) = @_;
    my $stopped = delete $self->{stopped} or return;
    $stopped->done;
    return;
}

sub _notice {
    my ($self, $rank, $text) = @_;
    $self->{log}->ranked($rank, "PAGI: $text");
    return;
}

sub _poll_failed {
    my ($self, $reason) = @_;
    $self->{log}->error("PAGI: the engine cannot wait for events: $reason");
    return;
}

sub _app_died {
    my ($self, $exception, $stage) = @_;
    return $self->_report($exception, "PAGI: the application died $stage: $exception");
}

sub _app_fell_short {
    my ($self, undef, $stage) = @_;
    my $text = "PAGI: the application ended $stage";
    return $self->_report($text, $text);
}

sub _callback_died {
    my ($self, $exception) = @_;
    return $self->_report($exception, "PAGI: a callback died: $exception");
}

sub _idle_timeout {
    my ($self, $kind)   = @_;
    my ($name, $option) = $kind eq 'sse' ? ('SSE', 'sse_idle_timeout') : ('WebSocket', 'ws_idle_timeout');
    $self->{log}->warn("PAGI: $name idle timeout ($self->{options}{$option}s) - closing connection");
    return;
}

sub _report {
    my ($self, $exception, $text) = @_;
    $self->{log}->error($text);
    my $on_error = $self->{options}{on_error} or return;
    eval { $on_error->($exception); 1 }       or $self->{log}->error("PAGI: on_error died: $@");
    return;
}

# Lines of an access log whose handle has no descriptor.
sub _access_lines {
    my ($self, $lines) = @_;
    PAGI::Server::AccessLog::take($self->{options}{access_log}, $lines);
    return;
}

# ---- Questions ----------------------------------------------------------------------------------

sub port {
    my ($self) = @_;
    my $listeners = $self->{listeners};
    return $listeners && @$listeners ? $listeners->[0]{port} : $self->{options}{port};
}

sub listeners {
    my ($self) = @_;
    return [
        map {
            { %$_ }
        } @{ $self->{listeners} || [] }
    ];
}

sub is_running {
    my ($self) = @_;
    return $self->{running} ? 1 : 0;
}

sub connection_count {
    my ($self) = @_;
    return $self->{worker} ? $self->{worker}->stats->{connections} : 0;
}

sub effective_max_connections {
    my ($self) = @_;
    return $self->{worker}->stats->{connections_max} if $self->{worker};
    my $worker = Peregrine::Worker->new(PAGI::Server::Options::engine_limits($self->{options}));
    return $worker->stats->{connections_max};
}

# ---- A loop of its own --------------------------------------------------------------------------

sub run {
    my ($self) = @_;
    my $loop = $self->loop || $self->_own_loop;
    $self->listen->get;
    $loop->run;
    return;
}

sub _own_loop {
    my ($self) = @_;
    my $type   = $self->{options}{loop_type};
    my $class  = defined $type ? "IO::Async::Loop::$type" : 'IO::Async::Loop';
    eval "require $class; 1" or croak _without_newline("PAGI::Server: option 'loop_type': cannot load $class: $@");
    my $loop = $class->new;
    $loop->add($self);
    return $loop;
}

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server - a fast server for PAGI applications

=head1 SYNOPSIS

    use IO::Async::Loop;
    use PAGI::Server;

    my $loop = IO::Async::Loop->new;

    my $server = PAGI::Server->new(
        app  => \&my_pagi_app,
        host => '127.0.0.1',
        port => 5000,
    );

    $loop->add($server);
    $server->listen->get;    # Start accepting connections

    $loop->run;

=head1 DESCRIPTION

Serves asynchronous Perl applications over HTTP/1.1 and HTTP/1.0, as L<PAGI::Spec> defines them. The wire
is handled by Peregrine's engine, which is written in Zig; the server is an L<IO::Async::Notifier>, so
it shares a process and a loop with whatever else an application does.

From the command line, use L<pagi-server>.

=head1 AN APPLICATION

    use Future::AsyncAwait;

    my $app = async sub {
        my ($scope, $receive, $send) = @_;
        die "Unsupported scope type: $scope->{type}" if $scope->{type} ne 'http';

        my $body = "Hello, World!";
        await $send->({
            type    => 'http.response.start',
            status  => 200,
            headers => [ [ 'content-type', 'text/plain' ], [ 'content-length', length $body ] ],
        });
        await $send->({ type => 'http.response.body', body => $body });
    };

=head2 What this server adds to the specification

=over

=item Trailers of a request

The last C<http.request> event has a key C<trailers>, a list of C<[name, value]> pairs, if the request
had any.

=item Several $receive at once

They are served in the order of the calls. One that was cancelled gets nothing: what arrives goes to the
next.

=item Position of a file handle

A C<http.response.body> event with C<fh> and without C<offset> sends from where the handle stands.

=item The end of an event stream

A client of a stream that stops sending has left: the stream ends with C<client_closed>. (Before the
application has answered it counts as a client that may still read, and can be declined.) A stream that the
application has closed ends with the reason that it gave with C<sse.close>, or C<x-closed>. After a declined
request nothing follows, so a C<$receive> that waits is cancelled. Comments of C<sse.keepalive> are sent by
the engine, without any Perl, and left out while the client has not taken what was sent before.

=item http.fullflush

Works in C<sse> scopes as well, where the extension is advertised.

=item The end of a request

After the response is complete, and when the peer has gone, C<$receive> gives C<http.disconnect>. A peer
that only stops sending has not gone; it gets its answer.

=back

=head1 CONSTRUCTOR

=head2 new

    my $server = PAGI::Server->new(%options);

An unknown option, or a value that is not allowed, dies with a message that names it. Options:

=over

=item app => \&code

The application. Required.

=item host => '127.0.0.1'

An IPv4 address, an IPv6 address or a host name. C<0.0.0.0> and C<::> mean all interfaces. A name is
listened to on all of its addresses: C<localhost> on C<127.0.0.1> and C<::1>.

=item port => 5000

0 takes a free port; L</port> tells which.

=item listener_backlog => 2048

Connections that the kernel keeps waiting while the process is busy.

=item max_connections => 0

Connections open at once. 0 means as many as the limit on open files allows, less 50. One more is answered
with 503 and C<Retry-After>.

=item max_header_size, max_header_count, max_body_size

Bytes of a request head, number of its header fields (431 above either), and bytes of a request body (413
above; 0: no limit).

=item timeout => 60

Seconds that a connection may wait without a request. It never ends a request that is running. 0 means no
limit.

=item write_high_watermark, write_low_watermark

Bytes of output waiting for the peer: from the high mark on C<$send> returns a pending Future, which
resolves when the queue has fallen below the low one.

=item max_receive_queue => 1000, max_receive_queue_size => 1048576

Messages of one WebSocket that wait for the application. One more closes it with 1008 and C<Message queue
overflow>; the application gets those that it has, then a C<websocket.disconnect> with C<queue_overflow>. From
so many bytes of them on, the peer is not read: it waits, until the application has taken half.

=item max_ws_frame_size => 65536, max_ws_message_size => 16777216

Bytes of one frame, and of one message over all its frames. A larger one closes the WebSocket with 1009.

=item ws_idle_timeout => 0

Seconds that a WebSocket may pass without a byte in either direction. C<websocket.keepalive> is the better way
to find peers that are gone. 0 means no limit.

=item sse_idle_timeout => 0

Seconds that an event stream may pass without a byte sent, comments of C<sse.keepalive> included. 0 means no
limit.

=item shutdown_timeout => 30

Seconds that requests in flight, and then the application's lifespan shutdown, may take.

=item lifespan_mode => 'auto'

C<auto>: the application may decline the lifespan protocol. C<on>: if it declines, the start fails.
C<off>: it is not asked.

=item lifespan_startup_timeout => 30

Seconds that the application's startup may take. 0 means no limit.

=item extensions => {}

Advertised to the application in C<< $scope->{extensions} >>. C<< { fullflush => {} } >> makes
C<http.fullflush> events work.

=item validate_events => 1

Each event that the application sends is checked in every detail, see L<PAGI::Server::EventCheck>. What the
server cannot act on always fails; this finds what it could live with, but another server might not. By
default on when C<PAGI_ENV> is C<development>, otherwise off: it costs a few microseconds an event.

=item on_error => \&code

Called with the exception when an application or a callback dies.

=item log_level => 'info'

C<error>, C<warn>, C<info> or C<debug>. Messages go through C<warn>.

=item quiet => 0

Only errors are logged.

=item access_log => \*STDERR

Where the L</ACCESS LOG> goes: a path, C<-> for standard output, a file handle, an object with C<print>, or undef for
none.

=item access_log_format => 'clf'

See L</ACCESS LOG>.

=item access_log_buffer => 1048576

Bytes of lines that wait for a slow disk or pipe. What is beyond it is dropped, and the drops are reported.

=item loop_type => 'Epoll'

For L</run> only: the class below C<IO::Async::Loop>.

=back

The defaults of the limits are the engine's; C<perl -MPeregrine -E 'say "$_->{name} $_->{default}" for
Peregrine::options()'> shows them.

=head1 ACCESS LOG

Every answered request has a line, those included that were refused before the application heard of them; it is
written when the response, the event stream or the WebSocket has ended. The engine writes it by a thread of its
own: lines are in the file within a second, and a disk that is slow or full costs lines, never time. On USR1 a log with
a path is opened anew, for rotation.

C<access_log_format> is one of

    clf, common   %h %l %u %t "%r" %s %b
    combined      %h %l %u %t "%r" %s %b "%{Referer}i" "%{User-Agent}i"
    tiny          %m %U%q %s %{ms}Tms
    json          an object with time, id, pid, client, method, path, query, protocol, status, bytes,
                  duration_us, referer and user_agent

or made of these atoms:

    %h  address of the client; "unix" over a Unix socket
    %l  %u  always "-"
    %t  time of the request in local time, [21/Nov/2026:07:09:37 +0100]; %{iso}t as in RFC 3339
    %r  request line          %m  method      %U  path, as received
    %q  query with its "?"    %H  protocol    %p  port that was connected to
    %s  status; "-" when the client left before there was one
    %b  bytes of response body, "-" for none; %B the same with 0
    %d  seconds until the end of the response with microseconds
    %D  microseconds, also %{us}T; %{ms}T milliseconds; %T whole seconds, also %{s}T
    %X  "X": the response was cut short; "+": the connection stays open; "-": it ends
    %L  number of the connection and of the request in it, "17-3"; the server's own log names connections so
    %P  process id            %{Name}i  a request header    %%  a percent sign

Control bytes, quotes, backslashes and everything beyond ASCII are escaped (C<\x1b>). A format that starts with C<{> is
JSON: there values are escaped as its strings need it, and what is missing is an empty string.

=head1 METHODS

=head2 configure

    $server->configure(timeout => 10, quiet => 1);

Changes options. Limits, times and logging apply to a running server at once; the others when it is started
again, and it says so.

=head2 listen

    $server->listen->get;

Runs the application's lifespan startup, then listens. Returns a Future that resolves with the server when
it accepts connections, and fails if it cannot. When the server is listening already, the same Future comes
back. The server must have been added to a loop.

While it runs, TERM and INT shut the server down and then stop the loop, and USR1 opens the access log anew.

=head2 shutdown

    $server->shutdown->get;

Stops accepting, closes idle connections, lets requests in flight finish for up to C<shutdown_timeout>, then
runs the application's lifespan shutdown. Returns a Future that never fails.

=head2 port

    my $port = $server->port;

The port that the server listens on; useful with C<< port => 0 >>.

=head2 listeners

    print "$_->{host}:$_->{port}\n" for @{ $server->listeners };

All addresses that the server listens on, as hash references with C<type> (C<tcp>), C<host> and C<port>.

=head2 is_running

    say 'accepting' if $server->is_running;

=head2 connection_count

    say $server->connection_count, ' connections are open';

=head2 effective_max_connections

    say 'at most ', $server->effective_max_connections;

The limit in force, the automatic one included.

=head2 run

    PAGI::Server->new(app => $app)->run;

Makes a loop unless the server is in one, listens, and runs the loop until a signal stops the server. Dies
when it cannot listen.

=head1 SEE ALSO

L<pagi-server>, L<PAGI::Server::Connection>, L<PAGI::Server::Transport>, L<PAGI::Spec>

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
