package Plack::Handler::Peregrine;

use strict;
use warnings;

our $VERSION = '0.003000';

use Carp     qw(croak);
use overload ();
use Plack::Handler::Peregrine::Options;
use Plack::Handler::Peregrine::Server;
use Peregrine::Daemon;
use Peregrine::Fork;
use Peregrine::Server::Configuration;
use Scalar::Util qw(blessed);

sub new {
    my ($class, @options) = @_;
    return bless { Plack::Handler::Peregrine::Options::gathered(@options) }, $class;
}

# Options that hold unless they are given.
sub defaults { return () }

sub run {
    my ($self, $app) = @_;
    # An object that is called as a function, as other servers call it.
    $app = \&$app if blessed $app && overload::Method($app, '&{}');
    my $server = $self->_server($app);
    Peregrine::Fork::fill_standard_descriptors();
    my $in_background = $self->{daemonize} ? Peregrine::Daemon->daemonize : undef;
    $server->own_loop;
    $server->start or return;
    $self->{server_ready}->(_place($server)) if $self->{server_ready};
    $in_background->()                       if $in_background;
    my $exception = $server->run_loop;
    die $exception if defined $exception;
    return;
}

# Makes the server. With plackup's -L Delayed the serving process loads the application.
sub _server {
    my ($self, $app) = @_;
    my %given         = ($self->defaults, %$self);
    my ($load)        = delete @given{qw(psgi_app_builder server_ready daemonize)};
    my $configuration = eval {
        my %options = Plack::Handler::Peregrine::Options::of_server(%given);
        Peregrine::Server::Configuration->from_environment('plackup', %options)->load;
    } or _refuse($@);
    my @app = (app => $app);
    if ($load) {
        my $loaded;
        @app =
            $configuration->options->{workers}
            ? (load_app => sub { return $loaded //= _filled($load->()) })
            : (app => $load->());
    }
    my $server = Plack::Handler::Peregrine::Server->new(configuration => $configuration, @app);
    eval { $server->check_clones; 1 } or _refuse($@);
    return $server;
}

# Returns an application whose code may have closed standard handles.
sub _filled {
    my ($app) = @_;
    Peregrine::Fork::fill_standard_descriptors();
    return $app;
}

sub _refuse {
    my ($problem) = @_;
    $problem = PAGI::Server::Options::problem_in($problem) // $problem;
    croak 'Plack::Handler::Peregrine: ' . $problem =~ s/\s+\z//r;
}

# The facts about a place for plackup's `server_ready`.
sub _place {
    my ($server) = @_;
    my ($first)  = @{ $server->listeners };
    return {
        host            => $first->{host} // $first->{path},
        port            => $first->{port} // 0,
        proto           => $first->{tls} ? 'https' : 'http',
        server_software => 'Peregrine',
    };
}

1;

__END__

=encoding UTF-8

=head1 NAME

Plack::Handler::Peregrine - serves PSGI applications with Peregrine

=head1 SYNOPSIS

    plackup -s Peregrine app.psgi
    plackup -s Peregrine -E production --port 8080 --engine thread app.psgi

=head1 DESCRIPTION

Every PSGI application runs on it unchanged. An event-driven engine accepts connections, reads whole
requests, and sends responses: a slow client, a trickling upload or an idle connection takes no process and
delays no other client, so that no proxy is needed in front. The application gets one request at a time in
each process: C<--workers 8> has eight, of which one takes the next connection. While it computes,
C<--engine thread> goes on to accept, read and send.

=head2 Applications that wait

An application may also wait without blocking (C<psgi.nonblocking> is true): a delayed response can come from
anything that runs in the process's L<IO::Async::Loop>, in L<AnyEvent>, or in L<EV>, if the application has
loaded that, while other requests are served. Nothing is to be installed or said for it, but to take no other
loop (L<PAGI::Server/Other event loops>). Interpreters behind one engine (both sections below) still have one
request at a time: so the number of interpreters is the number of requests that may wait in them.

An application that blocks all the same, by C<recv> of an AnyEvent condition variable or by C<EV::run>, is one
for C<--engine process>. With C<--engine inline> others are served while it waits, within its wait; but when
one of them waits like that as well AnyEvent dies ("recursive blocking wait attempted"), and so does
C<Mojo::IOLoop> ("already running"), as under any server with one loop.

Clones of an interpreter (L<Plack::Handler::EVHTP>) have IO::Async and AnyEvent, but no EV, and no signal
comes to them, nor the end of a child.

L<Mojolicious> takes EV where that is installed; then what is written by and by (C<write>, C<write_chunk>)
comes from timers and promises. C<render_later> does not work under any PSGI server: Mojolicious does not wait
for it there, and the answer is 404. Nor do its timers without EV (C<Mojo::Reactor::Poll>), but while a
function of Mojolicious itself waits.

The field C<Transfer-Encoding: chunked> of a response is the server's. Content that an application has put
into chunks itself, as Mojolicious does, is taken out of them; content that does not begin with the first line
of a chunk goes out as it is.

=head2 The engine in a process of its own

C<--engine process --workers 8> (Linux) is for applications that block, as most do: one process accepts, reads
and sends, and gives each request to the interpreter that has the least to do, as soon as its body is
complete. Requests that find all interpreters busy wait in one queue, C<queue_max> of them for
C<queue_timeout> at most; more are refused (503). An interpreter is free for the next request when it has
handed over its response, however slow the client: what the engine does not keep in memory waits in a
temporary file, up to C<response_buffer>. An interpreter that dies costs the request that it had (502), and
C<HUP>, C<max_requests> and the limits of interpreters replace interpreters without closing a connection.

=head2 Interpreters in threads

C<--engine thread --workers 8> (Linux, and a Perl with threads) has one process, in which the engine has a
thread and the interpreters are clones of the one that has loaded the application: see
L<Plack::Handler::EVHTP>, of which it is the default. Without C<--workers> there is one interpreter, beside
the engine's thread.

=head2 What applications see

The environment of L<PSGI> 1.1, and of L<PSGI::Extensions>:

=over

=item psgi.input

The whole body of the request, buffered: up to C<body_buffer_size> (1 MiB) in memory, more in a temporary file
without a name. It can seek (C<psgix.input.buffered>). A chunked body has a C<CONTENT_LENGTH> as well.

=item psgi.streaming, psgi.nonblocking

Both are true. A writer has C<write>, C<close> and C<poll_cb>, see L<Plack::Handler::Peregrine::Writer>.
Bodies may be lists, handles and objects with C<getline>; the rest of a real file is sent by the kernel.

=item psgix.cleanup, psgix.cleanup.handlers

The functions are called when the response has been sent, each one whatever happens in others.

=item psgix.informational

C<< $env->{'psgix.informational'}->(103, [ Link => '</style.css>; rel=preload' ]) >> sends an interim
response.

=item psgix.harakiri

With C<workers>: an interpreter whose application sets C<psgix.harakiri.commit> is replaced when the response
is sent. The new one is ready before the old one leaves.

=item psgix.peregrine.disconnected

C<< $env->{'psgix.peregrine.disconnected'}->() >> is true when nobody waits for the response any more: the
client has closed its connection, or its sending side at least. To be asked in the middle of long work; it
costs a system call.

=item psgix.peregrine.queue_us

Microseconds for which the request has waited, complete, until the application was called.

=item peregrine.grip

With the option C<grip>: how names of topics begin for which the engine holds responses open, see
L<Plack::Handler::Peregrine::Grip>.

=item psgix.io

With the request of a WebSocket handshake (HTTP/1.1): a stream socket for applications that answer it
themselves, with L<Protocol::WebSocket> for instance. With the first byte that is written to it, it is the
connection to the client, also over TLS; until then the application may respond as usual. An application that
has written to it must not respond any more: it returns a delayed response that never calls its responder, or
nothing. Closing the socket closes the connection when all is sent.

The engine relays between it and the client's own socket, in its own process or thread if there is one: then
the application may block in reading and writing. With C<--engine inline> it must not, but wait in its event
loop. C<write_timeout> and C<ws_idle_timeout> hold, and such a connection counts for two in
C<max_connections>. An interpreter that is replaced takes it along.

An application of PAGI beside that of PSGI is the better way to WebSockets, see L<peregrine>.

=item Header fields

Fields that came several times are joined. Fields whose names have an underscore are left out, since they
would be taken for others with a dash (unless C<underscores_in_headers> says otherwise); so is C<Proxy>
(CVE-2016-5387).

=back

If the application returns no valid response (the status is no number, a header has a newline, the body has
a wide character), the client gets 500, and the log names the mistake. An application that dies is answered
with 500 if nothing was sent before, otherwise the connection is cut.

=head1 OPTIONS

Options of L<PAGI::Server/CONSTRUCTOR>, but for those about its applications: C<--header-timeout 5>,
C<--max-connections 10_000>, C<--engine thread>, C<--health-path /healthz>, C<--trusted-proxies 10.0.0.0/8>.
Other defaults: C<host> is C<0.0.0.0>, there is no access log (plackup makes one of its own), and
C<heartbeat_timeout> is 0: applications of PSGI may block as long as they like. A request body may have 10 MB,
as everywhere: C<--max-body-size 1G> for larger uploads.

Words of other handlers mean what they mean there, so that a change of server is a change of one word:

=over

=item --max-workers (Starlet, Gazelle, EVHTP), --pre-fork (Feersum)

The number of interpreters, which are processes, or threads with C<--engine thread>: C<workers>.

=item --max-reqs-per-child (Starlet, Gazelle, EVHTP), --max-requests-per-worker (Feersum)

Requests after which an interpreter is replaced: C<max_requests>. Interpreters differ by up to a tenth in any
case, so that C<--min-reqs-per-child> (Starlet, Gazelle) does nothing.

=item --keepalive-timeout (Starman, Starlet)

How long a connection may wait for its next request: C<timeout> of PAGI::Server.

=item --timeout (Starlet, Gazelle)

How long input and output may take: a client to send its request's head, to send more of its body, and to take
more of a response (C<header_timeout>, C<body_timeout>, C<write_timeout>). It is no limit for the application.

=item --read-timeout (Starman, Feersum)

How long a client may take to send its request's head: C<header_timeout>.

=item --max-keepalive-reqs (Starlet, EVHTP), --max-connection-reqs (Feersum)

Requests of one connection, C<max_keepalive_requests>; the last one is answered with C<Connection: close>.

=item --disable-keepalive (Starman), --no-keepalive (Feersum)

Each connection serves a single request. C<--keepalive> (Feersum) is so in any case.

=item --backlog (Starman)

Connections that the kernel keeps waiting: C<listener_backlog>.

=item --ssl, --enable-ssl, --ssl-cert, --ssl-key (Starman), --ssl-cert-file, --ssl-key-file
(HTTP::Server::PSGI)

TLS, with C<--ssl-chain FILE> for intermediate certificates and C<--ssl-ca FILE> for those of clients. With
C<--listen HOST:PORT:ssl> (Starman) listeners without C<:ssl> stay in plain text.

=item --spawn-interval (Starlet, Gazelle), --preload-app (Starman, Feersum), --disable-proctitle (Starman),
--max-accept-per-loop, --epoll-exclusive, --accept-priority, --read-priority, --write-priority (Feersum)

Do nothing: interpreters are replaced one after another, plackup loads the application before they are forked
(but for L<-L Delayed|/Loaders>), and the rest is the engine's business.

=back

An option that nobody knows is an error. C<--static>, C<--trusted-proxies> and others may be given several
times. What is said of an option by its own name counts before a word that sets several, such as C<--timeout>.
plackup takes the word behind an option for its value: switches are written C<--http2=1>, C<--compress=1>,
C<--reuseport=0>, unless they are the last word. It takes C<--port 0> for port 5000: a free port is
C<--listen 127.0.0.1:0>.

C<-D> of plackup goes on in the background when the server listens. Under L<Server::Starter>, and with sockets
of systemd, the server takes those that it has inherited if plackup is told no place by C<--host>, C<--port>,
C<--socket> or C<--listen>.

=head2 Loaders

plackup loads the application before the server starts. With C<-L Delayed> the process that serves loads it,
before its first request: each interpreter, so that C<HUP> brings new code, or, without C<workers>, that of
plackup. With C<-L Shotgun> each request forks a process, which loads the application.

=head1 SIGNALS

See L<pagi-server/SIGNALS>.

=head1 RELOADING

C<plackup -r> and C<-R> start the application anew when its files change. They are plackup's own: for a
moment nobody listens then, and an error is shown in the terminal alone. With C<start_server --port 5000 --
plackup -r ...> (L<Server::Starter>) connections wait.

=head1 SEE ALSO

L<Plack::Handler::EVHTP>, L<Plack::Handler::Peregrine::Server> for programs with a loop of their own.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
