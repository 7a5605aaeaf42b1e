package PAGI::Server;

use strict;
use warnings;

our $VERSION = '0.003000';

use parent qw(Peregrine::Server);

use PAGI::Server::Application;

sub application_class { return 'PAGI::Server::Application' }

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

Serves asynchronous Perl applications over HTTP/1.0, HTTP/1.1 and L<HTTP/2|/HTTP/2>, as L<PAGI::Spec> defines
them. The wire is handled by Peregrine's engine, which is written in Zig; the server is an
L<IO::Async::Notifier>, so it shares a process and a loop with whatever else an application does.

From the command line, use L<pagi-server>.

=head1 AN APPLICATION

    # app.pl
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

C<pagi-server app.pl> serves it. L<PAGI::Server::Tutorial> has more: JSON, a chat, an event stream, files
with ranges. L<PAGI::Server::Protocol> has every key of C<$scope>, every event and every field.

=head2 What this server adds to the specification

=over

=item Channels

With the option C<channels> scopes have the keys C<pagi.channels> and C<pagi.channel>, for messages between
the connections of all interpreters: L<PAGI::Server::Channels>; and C<pagi.topics>, for sequences of messages
with history, which the server sends to WebSockets and event streams: L<PAGI::Server::Topics>.

=item Trailers of a request

The last C<http.request> event has a key C<trailers>, a list of C<[name, value]> pairs, if the request
had any.

=item Methods

They are case-sensitive, and all that reach an application are upper case: a request whose method has a
lower-case letter is answered with 501 (Not Implemented), and so is CONNECT.

=item Hosts

The C<host> header is that of the target where a client sends a whole URI (C<GET http://a.example/>),
whatever its Host field says. A URI of C<https> has to come over TLS or from a trusted proxy; it is answered
with 421 (Misdirected Request) otherwise, as are other schemes.

=item Applications that die

Before a response has started, the client gets a 500 whose text is the same three words whatever happened;
the log has the exception. If C<PAGI_ENV> is C<development> when the server starts, the 500 shows the
exception, the request and the stack trace: as HTML to clients that name C<text/html> in C<Accept>, as plain
text to others. Traces are noted by a C<$SIG{__DIE__}> handler, unless the program has one of its own. Once
a response has started its connection is cut.

=item When $send resolves

Usually it has resolved when it returns. It waits while more output than C<write_high_watermark> waits for
the client, until that has fallen below C<write_low_watermark>; while a thread opens the C<file> of an event,
which happens where its storage may be slow; and for its next turn once an exchange has sent 64 events in one
turn of the event loop, so that an application which sends without end to a client that reads as fast keeps
nobody else waiting. The event that ends a response does not wait for the client if many scalars share its
string, as that of a page which is made once. The server has taken the content of the event by the time
C<$send> returns, whether or not the application awaits the Future. How much waits for the client says
C<buffered_amount> of C<pagi.transport>.

=item Several $receive at once

They are served in the order of the calls. A call whose Future was cancelled gets nothing: the event
goes to the next call.

=item Names of headers

Capitals are lowered on the way out, also in trailers and in the answer to a handshake: C<Content-Type> goes
out as C<content-type>. In development the log says so, once. The headers of a response, or its trailers,
may have 256 KiB, which is as much as any browser reads: a longer list fails its C<$send>.

=item Files and file handles

A C<http.response.body> event with C<fh> and without C<offset> sends from where the handle stands. The
bytes of the descriptor are sent: layers of the handle (C<:encoding>, C<:crlf>) do not change them.

Files are sent by the kernel. Pipes, sockets, devices, files without a size such as those in F</proc>,
in-memory and tied handles are read in pieces of 64 KiB at most, as fast as the client takes them. Pipes,
sockets and character devices are waited for in the event loop, so that they may be quiet; tied handles
block the process as long as their C<READ> does. These Futures resolve when the handle is at its end,
C<length> is reached, or the client has gone. C<offset> needs a handle that can seek. Directories, handles
for writing only, and objects that are no file handles fail with a message that says so. For HEAD, nothing
is opened or read.

=item WebSockets

An application that returns closes its WebSocket with 1000, one that dies with 1011; before
C<websocket.accept> both are answered with 500. C<$send> fails after the application's own
C<websocket.close>, whether or not the peer has answered it, and does nothing after the peer or the server
has ended the WebSocket. After a handshake was refused with C<websocket.close>, C<$receive> gives
C<websocket.disconnect> with 1006; after a denial response nothing follows, so a C<$receive> that waits is
cancelled. Too large a frame or message closes with 1009. At shutdown, peers are told 1001, those that were
not accepted yet get a 503, and the application gets C<server_shutdown>. A C<subprotocol> that the client
did not offer, and C<headers> that belong to the handshake (C<Upgrade>, C<Sec-WebSocket-*>), fail. Pings of
C<websocket.keepalive> are sent by the engine, without any Perl; it may be sent before C<websocket.accept>.

=item The end of an event stream

A client that ends its side has left, see L</The end of a request>: C<$receive> gives C<sse.disconnect> with
C<client_closed>. The stream goes on to a client that still reads until the application returns or closes
it. A stream that the application has closed ends with the reason that it gave with C<sse.close>, or
C<x-closed>. After a declined request nothing follows, so a C<$receive> that waits is cancelled, and nothing
is logged when the application ends with it. Comments of C<sse.keepalive> are sent by the engine, without
any Perl, and left out while the client has not taken what was sent before. It may be sent before
C<sse.start>.

=item Files in other responses

C<sse.http.response.body> takes C<file> and C<fh> like C<http.response.body>.
C<websocket.http.response.body> takes C<body> only, and fails with the others.

=item http.fullflush

Its Future resolves when the kernel has taken everything that was sent before, or the client is gone. Works
in C<sse> scopes as well, where the extension is advertised.

=item Processes that an application forks

Programs are run as anywhere: C<system>, backticks, C<open '-|'>, C<< $loop->run_process >>,
L<IO::Async::Function>. A child that goes on in Perl has no part in the server: its copies of listening
sockets, connections and the rest are closed before C<fork> returns there, and C<$send>, C<$receive>,
C<pagi.connection> and the server's methods die with a message that says so. It ends by C<exit>, C<exec> or
C<POSIX::_exit>. No signal is blocked in a child or in a program, although the server's loop has blocked some,
and what the server does at a signal is not done there: C<TERM> ends them. Functions that the application has
set in C<%SIG> stay. A child that returns from the application by mistake dies; under L<run|PAGI::Server/run>
and L<pagi-server> it ends with a message, and without running END blocks, which belong to its parent. A child
that wants a loop makes one of its own, as C<< $loop->fork >> prepares it to; the application's, with its
timers and watches, is its parent's.

=item Other event loops

An application that uses L<AnyEvent> waits in the server's loop, whatever that is; one that has loaded L<EV>,
as those of Feersum and Twiggy do, waits in EV: L<IO::Async::Loop::Peregrine>, which C<run> and L<pagi-server>
use unless told otherwise, runs that from then on (L<IO::Async::Loop::Peregrine/EV>). No other loop does, but
L<IO::Async::Loop::EV>, a distribution of its own (C<--loop EV>): where C<Epoll>, C<Poll> or C<Select> is
asked for, timers and watchers of EV, and AnyEvent with it, stand still.

=item The end of a request

After the response is complete, and when the client has gone, C<$receive> gives C<http.disconnect>. Events
that the application sends after its response is complete have no effect; with C<log_level> C<debug> the
log has a line about each.

A client that ends its side of the connection in the middle of a request (TCP FIN, over TLS also
close_notify) has gone for the application, since nearly all that do so have closed the connection:
C<is_connected> is false, the reason is C<client_closed>, and C<on_complete> does not fire any more. Some
have only stopped sending (S<C<nc -N>>) and wait for their answer. So what the application sends after that
still goes out, under the limits of every response, and never fails; then the connection closes. A client
that has closed answers it with a reset, which ends that. An application that answers before the first
C<await> that suspends it is not told of the end, even if that came together with the request. C<$receive>
first gives the parts of the request that came before the end, then C<http.disconnect>; a request body that
was cut short has no last event without C<more>.

An application that returns or dies without having completed its response after it was told leaves its
client with a cut connection. The server does not count this as an error; an exception is logged at the
level C<debug>.

=back

=head1 CONSTRUCTOR

=head2 new

    my $server = PAGI::Server->new(%options);

An unknown option, or a value that is not allowed, dies with a message that names it, the value and what is
allowed. If L<pagi-server> has a flag with the same meaning, it is named.

Numbers may be strings with C<_> between digits. Bytes may end in C<K> (1024), C<M> or C<G>, times in C<ms>,
C<s>, C<m> or C<h>: C<< max_body_size => '1G' >>, C<< timeout => '30s' >>. Without a unit times are in
seconds.

=for comment The list is made by script/manual from PAGI::Server::Options::Table.

=head3 Application

=over

=item app => required

The application, a code reference. B<--app>

=item loop_type => Peregrine where there is epoll

For L<run|PAGI::Server/run>: the event loop, C<Epoll> for C<IO::Async::Loop::Epoll>. The environment
variable C<IO_ASYNC_LOOP> names another default. B<--loop>

=item engine => inline

Where the engine runs. C<inline>: in the loop, which costs least. C<thread>: on a thread of its own,
so that connections are accepted, TLS handshakes done, requests read and refused, pings and health
checks answered, timeouts kept and output sent while the application computes or blocks. C<process>:
in a process of its own, which gives each request to the interpreter that has the least to do
(Linux, C<workers>); interpreters that die or are replaced close no connection. With C<thread>,
interpreters of PSGI applications are threads of one process, see L<Plack::Handler::EVHTP>. The
environment variable C<PEREGRINE_ENGINE> names another default. One of C<inline>, C<thread>,
C<process>. B<--engine>

=item lifespan_mode => auto

C<auto>: the application may decline the lifespan protocol. C<on>: if it declines, the start fails.
C<off>: the server sends it no lifespan events. B<--lifespan>

=item lifespan_startup_timeout => 30

How long the application's startup may take. An interpreter of C<workers>, which loads the
application before, has C<heartbeat_timeout> more, or a minute where that is 0; an interpreter that
has not started by then is killed. Without C<workers>, code of the startup that blocks is not
interrupted. 0: no limit. From 0 to 86400. B<--lifespan-startup-timeout>

=item warm_up => none

Paths in the application, C</,/login> for instance, that an interpreter is asked for by GET before
clients' requests come to it, see L<PAGI::Server/WORKERS>. All answers together have
C<lifespan_startup_timeout>. B<--warm-up>

=item extensions => {}

Advertised to the application in C<< $scope->{extensions} >>. C<< { fullflush => {} } >> makes
C<http.fullflush> events work, C<< { informational => {} } >> events of the type
C<http.response.informational>, which send interim responses as 103 (Early Hints); see
L<PAGI::Server::Protocol/EXTENSIONS>.

=item validate_events => 1 if PAGI_ENV is development

Check the type of each field of each event that the application sends, see
L<PAGI::Server::EventCheck>. An event that the server cannot act on fails without this option, too;
the check finds mistakes that would go unnoticed. It costs a few microseconds an event.
B<--validate-events>

=item static => none

Folders whose files the engine serves by itself, see L<PAGI::Server::Folders>: an array reference of
C</static=public> and the like. The application gets the requests for which there is no file.
B<--static>

=item x_sendfile => none

The header C<X-Sendfile> of a response names a file below this directory that is sent in place of
its content, see L<PAGI::Server::SendFile>. B<--x-sendfile>

=item compress => 0

Responses are compressed for clients that accept it, with gzip, and with br and zstd where the
system has them, see L<PAGI::Server::Compression>. B<--compress>

=item compress_min_size => 1024

Bytes from which on a response of known length is compressed. Shorter responses would hardly get
shorter. From 0 to 1073741824. B<--compress-min-size>

=item compress_authenticated => 0

Compress also the responses to requests with C<Cookie> or C<Authorization>, and responses with
C<Set-Cookie>. The length of such a response may tell an attacker about secrets in it (BREACH).
B<--compress-authenticated>

=item channels => 0

Messages between the connections of all interpreters: applications find L<PAGI::Server::Channels> in
their scopes, under C<pagi.channels> and C<pagi.channel>, and for topics with history
L<PAGI::Server::Topics>, under C<pagi.topics>. C<memory://> is the same as 1. With the URL of a
Redis they reach the interpreters of all servers that use it, on any machine: see
L<PAGI::Server::Channels/Redis>. B<--channels>

=item channels_capacity => 100

Messages that wait in one channel for its application. Of further ones C<publish> drops those for
this channel silently, and C<send> fails. From 1 to 100000. B<--channels-capacity>

=item channels_expiry => 60

Time after which a message that waits in a channel is dropped. From 0.1 to 86400.
B<--channels-expiry>

=item channels_message_size => 1048576

The longest message of channels, as it is sent between interpreters. A longer one fails. From 1024
to 1048576. B<--channels-message-size>

=item topics_history_entries => 1000

Entries that are kept of each topic with history (L<PAGI::Server::Topics>), for readers that come
back or are slow. All servers with one Redis should have the same three limits. From 16 to 1000000.
B<--topics-history-entries>

=item topics_history_size => 4194304

Bytes of the entries that are kept of a topic. All topics of a server together have 64M, and each
interpreter copies the histories that its connections read. With Redis, this is the memory of a
topic there, too. From 1024 to 67108864. B<--topics-history-size>

=item topics_history_age => 300

Time after which an entry is not kept any more. From 1 to 2592000. B<--topics-history-age>

=item channels_socket => none

A Unix socket through which other programs of the same user publish (L<Peregrine::Publisher>,
C<peregrine publish>). Its mode is 0600, because it lets them publish everything. Without
C<channels> there is none. B<--channels-socket>

=item grip => none

Applications of PSGI may leave responses to the engine, which holds them open for topics whose names
begin with this: event streams and long polls that need no worker, with the header fields of GRIP,
see L<Plack::Handler::Peregrine::Grip>. Needs C<channels>, and an engine apart from the application:
C<--engine process> with C<workers>, or C<--engine thread>. With C<--mount> each mount says it for
itself. B<--grip>

=item on_error => none

A function that is called when the application or a callback dies: with the exception, the scope of
the request (undef outside of a request), and the hash reference of L<PAGI::Server::RequestName/of>
that describes the request.

=back

=head3 Listening

=over

=item host => 127.0.0.1

An IPv4 address, an IPv6 address or a host name. C<0.0.0.0> and C<::> mean all interfaces. For a
host name the server listens at all of its addresses. B<--host>

=item port => 5000

The TCP port. 0 takes a free one. From 0 to 65535. B<--port>

=item socket => none

The path of a Unix socket, in place of C<host> and C<port>. A socket file at which no process
listens is replaced; the file is removed at the end. B<--socket>

=item socket_mode => what the umask leaves

Permissions of the file of each Unix socket: C<0660>. Users who may write to the file may connect.
B<--socket-mode>

=item socket_owner => the process's

Owner of the file of each Unix socket, a name or a number. B<--socket-owner>

=item socket_group => the process's

Group of the file of each Unix socket, a name or a number. B<--socket-group>

=item listen => none

Several places to listen at, each with settings of its own, see L<PAGI::Server/LISTENERS>: an array
reference, in place of C<host>, C<port> and C<socket>. B<--listen>

=item proxy_protocol => none

Connections begin with a header of the PROXY protocol, version 1 or 2, and come from these networks,
see L<PAGI::Server/PROXY protocol>: C<10.0.0.0/8>, C<::1>, C<unix> for peers on Unix sockets; an
array reference, or a string with commas. B<--proxy-protocol>

=item proxy_timeout => 5

How long the header of the PROXY protocol may take, from the moment when the connection is accepted.
From 0.001 to 86400. B<--proxy-timeout>

=item trusted_proxies => none

Networks of proxies whose header fields about clients are believed, see L<PAGI::Server/Trusted
proxies>, written as for C<proxy_protocol>. B<--trusted-proxies>

=item forwarded_header => x-forwarded

The header fields in which trusted proxies name clients: C<x-forwarded> for C<X-Forwarded-For> and
C<X-Forwarded-Proto>, C<forwarded> for C<Forwarded> (RFC 7239). One of C<x-forwarded>, C<forwarded>.
B<--forwarded-header>

=item root_path => none

The path at which clients see the application, C</app> for instance, if a proxy removes it from the
paths of requests: C<root_path> begins with it, and C<SCRIPT_NAME> of applications of PSGI. The path
stays as it came. If the proxy leaves paths as they are, use C<--mount /app=FILE>. B<--root-path>

=item listener_backlog => 2048

Connections that the kernel keeps waiting while the process is busy. C<listen_backlog> is another
name for it. From 1 to 65535. B<--listener-backlog>

=item reuseport => 0

Other servers of the same user may listen at the same address, and the kernel spreads connections
over them (SO_REUSEPORT). B<--reuseport>

=item health_path => none

The engine answers GET and HEAD requests for this path, C</healthz> for instance, with 200 and
C<ok>, also when C<max_connections> is reached. For a health check that is answered while the
application computes or blocks, use C<engine =E<gt> thread>; with C<inline> the check waits until
the application comes back to the event loop. The connection closes after the answer. Health checks
are not in the access log. While the server stops, connections that were open before get 503; new
ones are refused. B<--health-path>

=back

=head3 Encryption

=over

=item ssl => none

Speak TLS on all addresses: a hash reference, see L<TLS|PAGI::Server/TLS>. The files are loaded by
the constructor, which dies with a message that names the file or value when something is wrong with
it.

=item disable_tls => 0

C<ssl> is ignored, its files are not looked at, and connections are not encrypted. A warning says
so. B<--disable-tls>

=item ktls => 1

The kernel encrypts output, if Linux has its module C<tls>. Clients that ask for new keys are cut
off. B<--ktls>

=item redirect_http => 0

Requests that come without TLS are answered with 308 and the same URL under C<https>, before folders
and the application; the port stays away if the client's C<Host> names none, else the port is that
of the first listener with TLS. The health path and C<acme_challenges> are answered as ever. Not
redirected are requests on Unix sockets, and requests whose client has C<https> by the word of a
proxy (C<X-Forwarded-Proto>, C<Forwarded>), so that a proxy which ends TLS is not sent in circles.
The server needs a listener with TLS and one without. B<--redirect-http>

=item acme_challenges => none

The directory in which an ACME client (lacme, dehydrated, certbot) puts its answers to C<http-01>
challenges. The engine serves its files below F</.well-known/acme-challenge>, before folders, mounts
and C<redirect_http>. The directory is opened at the start: a client may write into it, but must not
replace it. See L<PAGI::Server::Deployment/HTTPS BY AN ACME CLIENT>. B<--acme-challenges>

=item acme => none

Names of hosts for which the server orders a certificate from an ACME authority (RFC 8555), and
renews it: several names share one certificate, and the option may be given several times. A process
of its own orders it, keeps it in C<acme_folder>, and follows the authority's advice when to renew
(RFC 9773), or renews after two thirds of the certificate's time. The authority asks port 80 of each
name (C<http-01>) if the server has a listener without TLS, else, or when that has failed, port 443
(C<tls-alpn-01>). Until the first certificate is there, TLS handshakes are refused. See
L<PAGI::Server/Certificates by themselves>. B<--acme>

=item acme_agree => 0

You have read the terms of the authority, and agree to them. Without that, C<acme> orders nothing.
B<--acme-agree>

=item acme_directory => https://acme-v02.api.letsencrypt.org/directory

The authority: the URL of its directory. B<--acme-directory>

=item acme_folder => C</var/lib/peregrine/acme>, or below the home of a user

The folder for the account's key, the certificates with their keys, and the times of the next
attempts. It has to outlive the server: a new folder, as in a container without a volume, means a
new account and new certificates, of which authorities give a few a week only. Servers that share
the folder order each certificate once. With C<user> it stays root's, or that of a third user to
whom you have given it. The default is the folder that systemd names in C<STATE_DIRECTORY>,
F</var/lib/peregrine/acme> for root, else F<~/.local/state/peregrine/acme>. B<--acme-folder>

=item acme_contact => none

An address of mail that the authority may use. B<--acme-contact>

=item acme_eab => none

A file with a key identifier and a key in base64url, which the authority's operator has given for
the account (external account binding, RFC 8555 section 7.3.4). B<--acme-eab>

=item acme_ca => the system's

A file with the certificates that the authority's own HTTPS is checked by, for an authority within
an organisation. B<--acme-ca>

=back

=head3 HTTP/2

=over

=item http2 => 1 over TLS, 0 in the clear

HTTP/2, see L<PAGI::Server/HTTP/2>. By default over TLS, with clients that offer it (ALPN). 1: also
without TLS, with clients that begin with its preface (prior knowledge). 0: not at all. B<--http2>

=item h2_max_concurrent_streams => 100

Requests of one connection that may be open at a time. Further requests are refused, and the client
may send them again (REFUSED_STREAM). From 1 to 10000. B<--h2-max-concurrent-streams>

=item h2_initial_window_size => 65535

Bytes of one request body that may be on their way, or wait for the application. The client sends
more when the application has taken some. From 1 to 1073741824. B<--h2-initial-window-size>

=item h2_connection_window_size => 1048576

Bytes of all request bodies of a connection that may be on their way, or wait for the application.
From 65535 to 1073741824. B<--h2-connection-window-size>

=item h2_max_frame_size => 16384

Bytes of one frame of a request body. From 16384 to 16777215. B<--h2-max-frame-size>

=item h2_max_header_list_size => 65536

Bytes of the header fields of a request, each counted with 32 more (431). The limits
C<max_header_size> and C<max_header_count> hold as well. From 1024 to 1048576.
B<--h2-max-header-list-size>

=item h2_enable_connect_protocol => 1

WebSockets over HTTP/2 (RFC 8441), as browsers open them. B<--h2-enable-connect-protocol>

=item h2_enable_push => 0

For compatibility. Only 0 is allowed: pushes need a client that asks for them, and no present client
does. B<--h2-enable-push>

=item h2_rst_rate_limit => { burst => 1000, rate => 33 }

How many requests of one connection may be cancelled by the client, or end by its mistakes, before
they are answered: C<burst> at once, and C<rate> in each second after that. A further one ends the
connection (ENHANCE_YOUR_CALM). A hash reference with C<burst> and C<rate>; a missing key has its
default. B<--h2-rst-rate-limit>

=back

=head3 Limits

=over

=item max_connections => 0

Connections open at once. 0: as many as the limit on open files (C<ulimit -n>) allows, less 50, and
less 12 for each interpreter that is a clone, 3 for each that joins an engine in another process.
Further connections are answered with 503 and C<Retry-After>. From 0 to 10000000.
B<--max-connections>

=item max_connections_per_address => 0

Connections that one client address may have open; of an IPv6 address the first 64 bits count.
Further connections are answered with 429 and C<Retry-After>, over TLS closed before the handshake.
0: no limit. A proxy in front of the server is one address. From 0 to 10000000.
B<--max-connections-per-address>

=item max_connection_rate_per_address => 0

New connections per second of one client address, on average; as many as in a second may come at
once. Further connections are answered as for C<max_connections_per_address>. 0: no limit. From 0 to
1000000. B<--max-connection-rate-per-address>

=item memory_max => 3/4 of what the system allows

Bytes of physical memory that the process may hold; where each worker has an engine, that all
workers may hold together, see L<PAGI::Server/MEMORY>. When it holds more, unfinished requests are
refused, the largest and newest first, with 503, or 413 for a body that is on its way. The system's
limit is that of the control group (of a container), if there is one. Where address space has a
limit (C<ulimit -v>), three quarters of that are a limit as well. 0: no limit; other values are at
least 16M. From 0 to 1125899906842624. B<--memory-max>

=item max_request_line_size => 8192

Bytes of a request line (414 above it). From 64 to 1048576. B<--max-request-line-size>

=item max_header_size => 8192

Bytes of a request head (431). From 64 to 1048576. B<--max-header-size>

=item max_header_count => 100

Fields in a request head (431). A running server can lower it, not raise it. From 1 to 10000.
B<--max-header-count>

=item max_trailer_size => 4096

Bytes of the trailers of a chunked request (431). From 0 to 1048576. B<--max-trailer-size>

=item max_keepalive_requests => 0

Requests that one connection may send; it is closed after the answer to the last one. 0: no limit.
From 0 to 1000000000. B<--max-keepalive-requests>

=item max_body_size => 10000000

Bytes of a request body (413). 0: no limit, which is the default where all applications are those of
Mojolicious, which have a C<max_request_size>. From 0 to 1125899906842624. B<--max-body-size>

=item queue_max => 20000

With C<--engine process>: requests that may wait while all interpreters are busy. Further requests
are answered with 503 and C<Retry-After>. From 0 to 1000000. B<--queue-max>

=item max_held_responses => 10000

With C<grip>: responses that the engine holds open. Further ones are answered with 503. Each mount
with workers of its own has an equal share of these places, as all other mounts together have, so
that no application takes the places of others. From 0 to 10000000. B<--max-held-responses>

=item max_concurrency => 0

With C<--engine process>, and with interpreters that are threads: requests that one interpreter may
work on at the same time; further requests wait in the queue. A request counts while its application
works on it, but not while the application waits for the client: in C<$receive>, for output to
leave, or with a WebSocket or an event stream that it has accepted. 0: no limit, because a busy
interpreter gets no requests as long as another one is idle. From 0 to 1000000. B<--max-concurrency>

=item underscores_in_headers => 0

Applications of PSGI get header fields whose names contain an underscore. In the environment such a
field has the name of the field with a dash in its place, so switch this on only if the application
trusts no field that a proxy removes or sets. B<--underscores-in-headers>

=item body_buffer_size => 1048576

Bytes of a request body that are kept in memory, for applications that get bodies whole
(applications of PSGI). A longer body goes to a temporary file. From 1 to 1073741824.
B<--body-buffer-size>

=item max_body_spool => 1000000000

Bytes that the temporary files of all request bodies may hold, in each process (507). A twentieth of
their file system, at most 256 MiB, stays free in any case. Files on a file system in memory count
for C<memory_max>. 0: the disk is the only limit. From 0 to 1125899906842624. B<--max-body-spool>

=item max_upload_bytes_per_address => 250000000

Bytes that incomplete request bodies of one client address may take in memory and in temporary
files, in each process, for applications that get bodies whole; of an IPv6 address the first 64 bits
count. A further body is answered with 429 and C<Retry-After>, unless it is the only body of its
address or not longer than 64 KiB. The PROXY protocol or a trusted proxy names the client. Clients
on Unix sockets, and requests for which a trusted proxy names no client, are exempt. 0: no limit.
From 0 to 1125899906842624. B<--max-upload-bytes-per-address>

=item response_buffer => 67108864

For applications of PSGI with C<--engine thread> or C<process>: bytes of one response that may wait
in a temporary file, after a mebibyte in memory, so that a slow client does not keep the
application. These files count for C<max_body_spool>. 0: no such files. From 0 to 1125899906842624.
B<--response-buffer>

=item body_folder => TMPDIR, or /tmp

The folder of temporary files. The files have no names, so nothing is left behind. B<--body-folder>

=item max_receive_queue => 1000

Messages of one WebSocket that may wait for the application. A further message closes the WebSocket
with 1008 and C<Message queue overflow>; the application gets the messages that wait, then a
C<websocket.disconnect> with C<queue_overflow>. From 1 to 10000000. B<--max-receive-queue>

=item max_receive_queue_size => 1048576

Bytes of messages of one WebSocket that may wait for the application. When they are reached, the
server stops reading from the peer until the application has taken half of them. Messages above 64
KiB never wait here: the server reads and inflates such a message when the application asks for it.
From 1 to 1073741824. B<--max-receive-queue-size>

=item max_ws_frame_size => 65536

Bytes of one WebSocket frame. A larger frame closes the WebSocket with 1009. Where all applications
are those of Mojolicious the default is 256K. From 1 to 1073741824. B<--max-ws-frame-size>

=item max_ws_message_size => 16777216

Bytes of one WebSocket message over all its frames and after inflation (1009). From 1 to 1073741824.
B<--max-ws-message-size>

=item ws_per_message_deflate => 1

Compress WebSocket messages for clients that offer it (permessage-deflate, RFC 7692). Every message
is compressed by itself, without context takeover, so that an idle WebSocket holds no memory for
compression, and the size of a message tells nothing about another. Turn this off where messages mix
secrets with text that an attacker may choose. For a single WebSocket the field C<compress> of
C<websocket.accept> decides, in Mojolicious C<with_compression>. B<--ws-per-message-deflate>

=item ws_deflate_min_size => 1024

Bytes from which on a message is compressed. A message that does not get shorter goes out
uncompressed. From 0 to 1073741824. B<--ws-deflate-min-size>

=item write_high_watermark => 65536

Bytes of output that wait for the peer: from this many on, C<$send> returns a pending Future. From 1
to 1073741824. B<--write-high-watermark>

=item write_low_watermark => 16384

Bytes of output that wait for the peer: when fewer are left, pending Futures of C<$send> resolve.
From 1 to 1073741824. B<--write-low-watermark>

=item disable_sendfile => 0

Files are read and sent piece by piece, without C<sendfile(2)>: for file systems on which that call
does not work. B<--disable-sendfile>

=item sync_file_threshold => 65536

Files of this size or less are read at once. For a longer file of a response, other threads read the
parts that are not in memory, so that other requests are served meanwhile (Linux). 0: other threads
read all files, for files on a network. From 0 to 1073741824. B<--sync-file-threshold>

=back

=head3 Times, in seconds

=over

=item timeout => 60

How long a connection may wait for a request. A running request is never ended by this. 0: no limit.
From 0 to 86400. B<--timeout>

=item queue_timeout => 30

How long a request may wait for an idle interpreter, with C<--engine process>. After that it is
answered with 503 and C<Retry-After>. From 0.001 to 86400. B<--queue-timeout>

=item header_timeout => 10

How long a request head may take, from its first byte to its end (408). Bytes that trickle in do not
extend this time. From 0.001 to 86400. B<--header-timeout>

=item tls_handshake_timeout => 10

How long the handshake of a TLS connection may take, from the moment when it is accepted. Bytes that
trickle in do not extend this time. From 0.001 to 86400. B<--tls-handshake-timeout>

=item body_timeout => 30

How long a request body may stall while the application waits for it (408). 0: no limit. From 0 to
86400. B<--body-timeout>

=item min_body_rate => 500

Each C<min_body_rate> bytes of a request body extend the deadline of C<body_timeout> by one second,
so a client cannot hold a request open by sending a byte now and then. From 1 to 1073741824.
B<--min-body-rate>

=item write_timeout => 30

How long a peer may leave its response unread. 0: no limit. From 0 to 86400. B<--write-timeout>

=item min_write_rate => 500

Each C<min_write_rate> bytes that the peer takes extend the deadline of C<write_timeout> by one
second. From 1 to 1073741824. B<--min-write-rate>

=item request_timeout => 0

How long a request may go without a byte in or out. The time in which an application works in
silence counts as well. 0: no limit. From 0 to 86400. B<--request-timeout>

=item ws_idle_timeout => 0

How long a WebSocket may go without a byte in either direction. C<websocket.keepalive> is the better
way to find peers that are gone. 0: no limit. From 0 to 86400. B<--ws-idle-timeout>

=item sse_idle_timeout => 0

How long an event stream may go without sending a byte; comments of C<sse.keepalive> are bytes, too.
0: no limit. From 0 to 86400. B<--sse-idle-timeout>

=item shutdown_timeout => 30

How long a stop may take. The last 5 seconds, or the last quarter where that is less, are kept for
the application's lifespan shutdown; requests in flight have the time before. After it a request
that still waits for an interpreter is answered with 503, and others are cut. An interpreter that
has not ended by then is killed, as is a single process whose application has not returned since the
signal (after 2 seconds at the earliest). From 0 to 86400. B<--shutdown-timeout>

=back

=head3 Logs

=over

=item status => none

An address at which the server tells its status, to Prometheus and to people: C<127.0.0.1:9100>, or
the path of a Unix socket, see L<PAGI::Server/OBSERVABILITY>. Everybody who can connect to it sees
the status; the start warns if other machines can. B<--status>

=item status_hosts => none

Host names for which the status is told, separated by commas. Requests for an IP address or
C<localhost> are always answered. Requests for other names get 421, because a page of another site
could have sent a browser there by a name of its own (DNS rebinding). B<--status-hosts>

=item access_log => \*STDERR

Where the L<access log|PAGI::Server/ACCESS LOG> goes: a path, C<-> for standard output, a file
handle, an object with C<print>, or undef for none. A terminal is slow: the start warns if the log
goes there. L<pagi-server> has another default in production. B<--access-log>

=item access_log_format => clf

C<clf>, C<combined>, C<common>, C<tiny>, C<json>, or L<atoms|PAGI::Server/ACCESS LOG>.
B<--access-log-format>

=item access_log_buffer => 1048576

Bytes of lines that may wait for a slow disk or pipe. Further lines are dropped and counted. From
4096 to 1073741824. B<--access-log-buffer>

=item log_level => info

The least important level that the server logs. Messages go through C<warn>. One of C<error>,
C<warn>, C<info>, C<debug>. B<--log-level>

=item log_format => text

C<json>: each message is a line with an object, see L<PAGI::Server/MESSAGES>. One of C<text>,
C<json>. B<--log-format>

=item quiet => 0

Log errors only. B<--quiet>

=back

=head3 Processes

=over

=item workers => 0

The number of interpreters, which are processes or threads that run the application, see
L<PAGI::Server/WORKERS>; C<auto>: as many as there are processors for this process. 0: the process
serves by itself. Interpreters that share an engine (C<engine> process or thread) are 63 at most,
all together. From 0 to 1024. B<--workers>

=item preload_app => 0

The application is loaded once, by a process that forks the interpreters, see
L<PAGI::Server/Preloading>. Linux only. It has no effect with C<--reload>, nor in a program that
makes the server itself: that has loaded the application before. B<--preload-app>

=item canary => 0

At HUP one interpreter with the new code serves beside the old ones for this time before it replaces
one of them and the others follow. When it is clearly worse by then, it is taken back, and the old
code stays, see L<PAGI::Server/WORKERS>. 0: none. From 0 to 86400. B<--canary>

=item max_requests => 0

Requests after which an interpreter is replaced, see L<PAGI::Server/WORKERS>. For each interpreter
the number is one to ten percent lower, chosen by chance, so that not all interpreters are replaced
at once. 0: never. Like the other options of this section, it has no effect without C<workers>. From
0 to 1000000000. B<--max-requests>

=item max_worker_age => 0

Seconds after which an interpreter is replaced, less one to ten percent by chance. 0: never. From 0
to 31536000. B<--max-worker-age>

=item max_worker_rss => 0

Bytes of physical memory from which on an interpreter is replaced. Memory that it shares with other
processes (C<preload_app>) does not count if the kernel reports it (Linux 4.14). An interpreter that
holds more from its start serves for a minute, and the log says so. Linux only. 0: never. From 0 to
1125899906842624. B<--max-worker-rss>

=item recycle_timeout => 60

How long an interpreter that is replaced by C<max_requests>, C<max_worker_age> or C<max_worker_rss>
waits for the ends of its WebSockets and event streams before it closes them (1012). From 0 to
86400. B<--recycle-timeout>

=item retire_idle => 5

How long an interpreter that is replaced keeps a connection open for one last request, which is
answered with C<Connection: close>. From 0 to 86400. B<--retire-idle>

=item request_kill_timeout => 0

How long one request may keep its interpreter, in Perl or blocked in a library, before that
interpreter is killed and another one takes its place; the log has the request and the stack of Perl
functions. The time in which the application awaits a Future does not count. The check runs twice a
second. 0: for ever. See L<PAGI::Server/Interpreters that are stuck>, and for interpreters that are
threads L<Plack::Handler::EVHTP/What threads cannot do>. From 0 to 86400. B<--request-kill-timeout>

=item heartbeat_timeout => 50

How long an interpreter may go without coming back to its event loop before it is killed and another
one takes its place. 0: for ever, but 50 seconds for processes that no application can block: the
engine's process with C<process>, and a process whose interpreters are threads. Where there is an
application of PSGI, which may block as long as it likes, the default is 0. From 0 to 86400.
B<--heartbeat-timeout>

=back

=head3 Blocking work

=over

=item worker_pool => none

Processes that make blocking calls for applications of PAGI, see L<PAGI::Server::WorkerPool>: a hash
reference with C<handlers>, and perhaps C<init> and C<cleanup>, or the path of a file that returns
one. B<--worker-pool>

=item pool_workers => 4

The number of these processes. It does not depend on the number of interpreters, all of which call
them. From 1 to 256. B<--pool-workers>

=item pool_queue => 100

Calls that may wait while all processes of the pool are busy. A further call fails at once. From 0
to 500. B<--pool-queue>

=item pool_timeout => 30

How long a call may take, with its wait, unless it has a C<timeout> of its own. After that it fails,
and a process that is still at it is killed. 0: for ever. From 0 to 86400. B<--pool-timeout>

=item pool_max_calls => 1000

Calls after which a process of the pool is replaced. For each process the number is one to ten
percent lower, chosen by chance. 0: never. From 0 to 1000000000. B<--pool-max-calls>

=item pool_max_rss => 0

Bytes of physical memory from which on a process of the pool is replaced, when its call is over.
Memory that it shares with other processes does not count, as with C<max_worker_rss>. Linux only. 0:
never. From 0 to 1125899906842624. B<--pool-max-rss>

=item pool_idle_timeout => 0

Seconds without a call after which a process of the pool ends. The process with the highest number
ends first, and only while another one is idle: those before it stay as long as it is at a call.
Others start again, up to C<pool_workers>, as soon as none is idle; calls may wait for that. 0: all
stay. From 0 to 86400. B<--pool-idle-timeout>

=item sync_workers => 0

Interpreters, beside C<workers>, for handlers that are marked as blocking, see L<PAGI::Sync>: each
runs one at a time. Needs C<--engine process>. As many requests as C<pool_queue> says may wait for
them, one at least; further ones get 503. From 0 to 31. B<--sync-workers>

=back

=for comment End of the list.

=head1 LISTENERS

A server listens at one host and port, at a Unix socket (C<socket>), or at any number of places (C<listen>):

    my $server = PAGI::Server->new(
        app    => $app,
        ssl    => \%ssl,
        listen => [
            '0.0.0.0:443',
            '[::]:443',
            '127.0.0.1:8080,plain',
            { socket => '/run/app/app.sock', socket_mode => '0660', socket_group => 'www-data' },
        ],
    );

    pagi-server --listen 0.0.0.0:8080 --listen /run/app/app.sock,mode=0660,group=www-data app.pl

A place is a hash reference, or a word: an address, perhaps with settings behind it.

    HOST:PORT, [IPV6]:PORT    { host => 'HOST', port => PORT }
    :PORT                     { host => '0.0.0.0', port => PORT }, all IPv4 addresses
    /path, ./path, unix:path  { socket => 'path' }
    fd:NUMBER                 { fd => NUMBER }, a socket that listens already

    ,plain                    ssl => 0: no TLS here
    ,tls                      ssl => 1: TLS with the certificates of the option ssl
    ,cert=FILE,key=FILE       ssl => { cert_file => 'FILE', key_file => 'FILE' }: certificates of its own
    ,chain=FILE               ... with chain_file => 'FILE'
    ,certs=DIRECTORY          ssl => { cert_dir => 'DIRECTORY' }
    ,ca=FILE                  ... with ca_file => 'FILE'
    ,verify=require           ... with verify_client => 'require', or request
    ,tickets=FILE             ... with ticket_keys_file => 'FILE'
    ,proxy=NETWORK            proxy_protocol => ['NETWORK']; may be repeated
    ,direct                   proxy_protocol => []: no header, whatever the option proxy_protocol says
    ,mode=0660                socket_mode => '0660'
    ,owner=USER               socket_owner => 'USER'
    ,group=GROUP              socket_group => 'GROUP'

Without a word about TLS, places with a port speak it if the server has the option C<ssl>, and Unix sockets
do not.

C<[::]:PORT> takes IPv4 connections too, unless another place has an IPv4 address at the same port.

=head2 Unix sockets

A socket file at which nobody listens, left by a server that was killed, is replaced; while somebody listens
there, and when it is another kind of file, the start fails. Users who may write to the file may connect.
The file is removed at shutdown, unless another server's file has taken its place. In scopes C<server> is
C<[$path, undef]>, and there is no C<client>.

=head2 PROXY protocol

A proxy that passes TCP connections on (HAProxy, nginx's C<stream>, a load balancer) can say whose they are,
by a header before everything else, TLS included. C<proxy_protocol>, of the server or of a place, names the
networks from where it connects:

    pagi-server --listen 0.0.0.0:8443,proxy=10.0.0.0/8 --listen 127.0.0.1:8080 app.pl

Then every connection there has to begin with a header, version 1 or 2, and to come from one of these
networks; whatever else comes is closed, with a line in the log. C<client> and C<server> in scopes, and the
access log, have the addresses from the header; where it has none (C<UNKNOWN>, C<LOCAL> of health checks,
Unix sockets) those of the connection. Its further fields are skipped. It has to be there within
C<proxy_timeout>.

=head2 Trusted proxies

A proxy that passes requests on (nginx, Caddy, a load balancer) says in header fields whose they are.
Anybody can send such fields, so nobody is believed until C<trusted_proxies> names the networks from where
the proxies connect; C<unix> are peers on Unix sockets:

    pagi-server --trusted-proxies 10.0.0.0/8 --trusted-proxies unix app.pl

Then C<client> in scopes and C<%h> in the access log are the rightmost address in C<X-Forwarded-For> that is
not in these networks: the last one that a trusted proxy has seen itself. Addresses to the left of it are
claims of the client. If all are in these networks, it is the leftmost. An element that is no address
(malformed, C<unknown>, C<_name>) hides what stands to the left of it: C<client> is the proxy that passed it
on then. The port is 0, unless the proxy tells it (C<192.0.2.1:4711>, C<[2001:db8::1]:4711>). Several fields
of a name are one list.

C<scheme> is what C<X-Forwarded-Proto> says, C<http> or C<https> (C<ws> or C<wss> for WebSockets); of
several words the last one counts. The C<tls> extension still tells of the connection.

With C<< forwarded_header => 'forwarded' >> both are read from C<Forwarded> (RFC 7239): C<for> and C<proto>
of the element that names the client. Only the fields that are chosen count, because a proxy that does not
know the others passes them on as the client has written them. The proxy has to set or to remove both
C<X-Forwarded-For> and C<X-Forwarded-Proto>, or C<Forwarded>:

    # nginx
    proxy_set_header X-Forwarded-For   $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme;

C<headers> are left as they came, C<host> included. Together with C<proxy_protocol> it is the address of the
PROXY header that has to be trusted. Requests that are refused before their fields are read have the proxy's
address in the access log; on Unix sockets, C<unix>.

=head2 Sockets from systemd and Server::Starter

When the process was given listening sockets (C<LISTEN_FDS> or C<SERVER_STARTER_PORT>), it listens on all of
them, if no place is named. Otherwise a socket that is bound where a place asks for is used for it, and the
others are closed, with a warning. Ports below 1024 need no rights that way, and connections wait in the
socket while the server is started again:

    # /etc/systemd/system/app.socket
    [Socket]
    ListenStream=80
    ListenStream=/run/app.sock
    SocketMode=0660
    SocketGroup=www-data

    [Install]
    WantedBy=sockets.target

    # /etc/systemd/system/app.service
    [Unit]
    Requires=app.socket

    [Service]
    Type=notify
    User=app
    ExecStart=/usr/local/bin/pagi-server -E production /srv/app/app.pl
    ExecReload=/bin/kill -HUP $MAINPID
    WatchdogSec=30

F<examples/systemd> has both files in full, with what confines the service.

=head2 What systemd is told

With C<NOTIFY_SOCKET> in the environment (C<Type=notify>) the process tells L<systemd|sd_notify(3)> C<READY>
when it serves, with C<MAINPID> and, in words, where; C<RELOADING> on HUP and C<READY> when that is done,
which says in words, for C<systemctl status>, if the old interpreters go on; C<STOPPING> when it is told to
stop. With C<WATCHDOG_USEC> (C<WatchdogSec=>) it says C<WATCHDOG> twice in that time as long as its event loop
runs. With C<workers> the master sends all of these; its loop runs no application, and it watches its
interpreters by itself (C<heartbeat_timeout>). Without C<workers> systemd ends a server whose application
blocks for longer than that time. The variables are removed from the environment, so that programs which the
application runs do not speak in the server's name. A server whose signals are ignored (L</ignore_signals>)
tells nothing: its program may use L<Peregrine::Notify>.

=head1 WORKERS

    PAGI::Server->new(app => $app, workers => 4)->run;    # or: pagi-server --workers 4 app.pl

With C<workers> the process becomes a master: it binds the addresses, starts that many I<interpreters>, and
watches them. An interpreter is a process that runs the application; with C<< engine => 'thread' >> an
application of PSGI has interpreters that are threads. Messages, metrics and the lifespan's scope call an
interpreter a worker, as the option does. The master never calls the application. Each interpreter has an
event loop and a lifespan of its own (C<is_worker> is 1 there, and C<worker_num> its number from 1 on), and
all options of the master. The class of its loop is C<loop_type>, or that of the master's loop.
C<IO::Async::Loop-E<gt>new> returns that loop; a loop that the program has made before is the master's, and
not for applications.

=over

=item Starting

L</listen> resolves when the first interpreter serves, and fails when none can start; L<pagi-server> ends with
status 1 then. Under L<pagi-server> each interpreter loads the application by itself, or forks of a template
share it, see L</Preloading>. A program that makes the server itself has loaded the application before, and
interpreters share its memory.

=item Preloading

With C<preload_app> a process of its own, the template, loads the application once, and forks the
interpreters: they start in a millisecond or so instead of the time that loading takes, also when one is
replaced, and share the memory of the loaded code as long as they do not change it. Without C<preload_app>,
which is the default, each interpreter loads the application by itself: objects that the application opens
while it is loaded are not shared by mistake.

Objects that are made while the application is loaded are in all interpreters, so all of them would share a
connection to a database, an open socket, a random number or a process id. Make such objects in
C<lifespan.startup>, which runs in each interpreter after it has been forked (C<worker_num> and C<is_worker>
are in the scope). An application that makes an L<IO::Async::Loop>, or starts threads, while it is loaded is
refused with a message that says so. Modules are what preloading is for. Processes that share an open file
share its position, too: open such files anew.

HUP starts a new template, which loads the new code while the old interpreters serve; then they are replaced
one by one. If the template does not load, or its first interpreter does not start, the log says why, and the
old template and its interpreters go on. A template runs C<END> blocks, too, after its last interpreter has
gone. If a template dies another one is started, with the code that is there then; interpreters go on
meanwhile. Linux only.

=item Warm before ready

    $ pagi-server --workers 4 --warm-up /,/login app.pl

With C<warm_up> each interpreter is asked for these paths by GET, one after another, after its lifespan's
startup and before it serves: templates are compiled and connections are made before the first client waits
for them. Each answer has to be complete and its status below 500, and all of them have to come within
C<lifespan_startup_timeout>; otherwise the interpreter has not started. So a server does not start with an
application that cannot answer, HUP is given up while the old code goes on, and a new program that USR2 has
started does not take over. The requests come from C<localhost> over a Unix socket, without a client's
address, by no listener of the server; the access log has none of them. Where applications are mounted for
hosts of their own, each host is asked for all paths. An event stream, which does not end, is no path for it.

=item Interpreters that end

An interpreter that dies, or that the application ends with C<exit>, is replaced at once. If interpreters die
within 5 seconds of their start, or cannot start, twice in a row or more often, the next one is started after
half a second, a second, two, and so on up to half a minute, and the log has an error each time. When the
master dies its interpreters stop.

=item Interpreters that are stuck

An interpreter that does not come back to its event loop for C<heartbeat_timeout> is killed and replaced,
whether a request keeps it or something else. C<request_kill_timeout>, which is off by default, is about one
request: when a request keeps its interpreter for that long without giving control back, by computing,
sleeping or waiting in a library, for a database or a lock, that interpreter is killed and replaced at once,
and no other one. So is an interpreter that one callback of the event loop keeps for that long, as requests
go on there that have awaited something. A request that awaits a Future keeps no interpreter, however long it
takes (C<request_timeout> is for such requests); ten requests that keep an interpreter for a second each count
a second each. Before the interpreter is killed it writes to the standard error the request that keeps it,
with method, path and age, and where each Perl function on the stack was called:

    PAGI: process 4711 is stuck in request 12-3 GET /report, which came 30.4 s ago, at app.pl line 17
        My::Report::rows called at app.pl line 17
        ...

The connections of that process are lost, as with any interpreter that dies: its clients get no answer, and
responses that have begun are cut off. With C<< engine => 'thread' >> the engine answers that request first,
with 504 (Gateway Timeout), unless a response has begun; with C<< engine => 'process' >> it does, too, and
only the connection of a response that has begun is lost. Interpreters that are threads cannot be killed:
L<Plack::Handler::EVHTP/What threads cannot do> says what becomes of them. Without C<workers> no master could
replace the process, so neither option has an effect.

=item Replacing interpreters

With C<max_requests>, C<max_worker_age> or C<max_worker_rss> an interpreter is replaced when it has served,
lived or grown enough. HUP replaces all of them: under L<pagi-server> the new ones load the new code, and
certificates are loaded again. Interpreters are replaced one at a time, and the new one serves before the old
one stops accepting. The old one answers once more on each of its connections, with C<Connection: close>, and
closes connections on which no request comes for C<retire_idle>. WebSockets (closed with 1012) and event
streams have C<recycle_timeout>, after HUP none. If a new interpreter cannot start the old one goes on; HUP is
given up then, and the log says why.

=item A canary

    $ pagi-server --workers 8 --preload-app --canary 60s app.pl

With C<canary>, HUP starts one interpreter with the new code and stops none: for that time it gets its part of
the requests, beside all old ones. It is taken back, with an error in the log, and the old code stays, when by
then it has crashed; or when its share of answers with a status of 5xx, of requests that the application has
ended without an answer, or of slow answers is clearly larger than that of the old ones in the same time; or
when none of its requests comes to an answer while those of the others do (L<Peregrine::Canary> has the rule,
and the log what it saw). Otherwise, also where too few requests came to say anything, it replaces an old one,
and the others follow. Another HUP during that time takes it back undecided and begins again with the code
that is there then; TERM stops all. With C<preload_app>, an interpreter that reaches C<max_requests>,
C<max_worker_age> or C<max_worker_rss> during that time, or crashes, is replaced by one with the old code.
Without, that code may be gone: an interpreter that has reached a limit serves on until the time is over, and
one that is replaced for another reason loads the code that is in the files then. A service manager waits for
the reload meanwhile: give it time. With C<--reload>, and in interpreters that are threads, there is no
canary.

=item Signals

The master takes TERM, INT and QUIT as any server, HUP, TTIN (one interpreter more) and TTOU (one fewer), and
USR1 for all processes. USR2 runs the command by which the program was started anew, in the same directory,
with its listening sockets, its pid file and the keys of its tickets. When the new program serves, the old one
leaves as interpreters do that are replaced; if the new one does not start, the old one goes on, says why, and
takes another USR2. The new program has C<lifespan_startup_timeout> and C<heartbeat_timeout> together for its
start (a minute in place of the latter where that is 0), and is killed after that. So Perl, modules and
options can be changed without losing a connection. An interpreter takes TERM and USR1; other signals that a
terminal sends to all processes are left to the master.

Sockets that were passed by systemd, or by number (C<fd:3>), are handed to the new program, too. systemd has
to be told of the new process, which takes C<Type=notify> in the unit. Without that, and under
L<Server::Starter>, which starts new servers itself on HUP, USR2 does nothing but say so; the same holds for
a program with several servers.

=item Limits

C<max_connections> and limits of one connection or request hold for each process that has an engine. Of
C<max_connections_per_address> and C<max_connection_rate_per_address> each has a part, rounded up, since
chance decides which process a client comes to. C<memory_max>, given or found out, is divided. With
C<< engine => 'process' >> all limits are those of one engine, undivided: it holds requests that wait and
output that was not sent yet. The memory of interpreters comes on top; if a container limits both, set
C<memory_max> to the part that interpreters leave.

=item Sockets

All interpreters accept from the same sockets, and the first one that is awake gets the connection. With
C<reuseport> each interpreter has a socket of its own per address, which the master keeps: the kernel spreads
connections evenly then, and connections that wait at the socket of an interpreter that dies are served by the
next one with its number. With C<< engine => 'process' >> the engine accepts.

=item Leaving

An interpreter runs its C<END> blocks and writes the buffers of its handles. Objects that are still alive are
not destroyed, which would take long with a large heap: put work for the end into the lifespan's shutdown. The
program's own C<END> blocks run in interpreters as well.

=back

=head1 OBSERVABILITY

    pagi-server --status 127.0.0.1:9100 app.pl
    curl http://127.0.0.1:9100/metrics

The option C<status> names an address at which the server shows what it is at: a page for people at C</>,
which looks again every second; C</metrics> for Prometheus; C</status.json> for programs; C</healthz> and
C</readyz> for load balancers and orchestrators. L<PAGI::Server::Status> is the application behind it. It
answers to its address and to C<localhost>; other names that people use for it are named in C<status_hosts>.
The page shows for each process how busy it is, in processor time, and how many requests wait for it. With
C<workers> a process of its own answers, also while all interpreters are busy; it is replaced when it dies. A
server without C<workers> answers from its event loop, so not while the application blocks: C<workers =E<gt>
1> is for a single process whose status is always there, and C<health_path> with C<engine =E<gt> thread> is
answered by the engine itself.

Numbers are sums over all processes, those that have ended included, so that they never fall. They are those
of the engine:

=over

=item peregrine_requests_total

Requests that are over, by C<status>: C<1xx> are WebSockets, C<none> were not answered because the client
had gone. Each line of the access log is one of them.

=item peregrine_requests_refused_total, peregrine_requests_aborted_total, peregrine_requests_shed_total

Requests that the engine refused, by C<reason> (C<malformed>, C<timeout>, C<body_too_large>,
C<head_too_large>, C<misdirected>, C<upgrade>, C<unsupported>, C<overload>); requests that ended before
their answers, by the reason that the application is told; requests that were refused or cut because
memory was short.

=item peregrine_request_duration_seconds, peregrine_queue_duration_seconds,
peregrine_application_duration_seconds, peregrine_write_duration_seconds

Histograms of the requests that the application has answered: the whole time from the moment that the head
was read, and its three parts: until the application was called (under PSGI that is when the body is there,
too), until the first bytes of its answer could be sent, and until the last ones were. A growing queue time
says that there are too few interpreters, or that one request keeps others waiting. Time in which a request
waits in the kernel, because the engine does not read yet, is in none of them. WebSockets are not in them;
an event stream is, when it ends.

=item peregrine_connections, peregrine_requests_open

Open connections and requests, by C<state>: connections C<idle>, C<reading> a request, C<serving>,
C<websocket>, in a TLS C<handshake>, C<closing>; requests C<waiting> for the application, C<working>,
C<answering>. The engine counts them once a second: with C<< engine => 'inline' >> not while the
application blocks.

=item peregrine_connections_accepted_total, peregrine_connections_rejected_total, peregrine_connections_max

Connections that were let in, and those that were not, by C<reason> (C<capacity>, C<address_connections>,
C<address_rate>, C<proxy_header>, C<tls_handshake>).

=item peregrine_responses_held

Responses that the engine holds open for topics (C<grip>): no worker has them.

=item peregrine_requests_by_protocol_total, peregrine_connections_by_protocol_total, peregrine_streams_open,
peregrine_stream_resets_total, peregrine_goaways_total

Requests that are over, and connections that have begun to speak, by C<protocol> (C<HTTP/1>, C<HTTP/2>).
Streams of HTTP/2 that are open now; those that were reset before their answers were complete, by clients
(C<direction> C<in>) and by the server (C<out>); and connections of HTTP/2 that were told to end (GOAWAY),
when they have ended, by C<reason>: C<no_error> of a server that stops or replaces its interpreters, or after
C<timeout> without a request; C<enhance_your_calm> where a client has made work and brought nothing; others
where it has broken a rule. Resets and streams are looked at once a second.

=item peregrine_network_bytes_total, peregrine_websockets_total, peregrine_websocket_messages_total

Bytes C<in> and C<out>, as they go over the network; WebSockets that were opened, and their messages.

=item peregrine_processes, peregrine_processes_stuck, peregrine_loop_silence_seconds,
peregrine_process_restarts_total

Processes that serve; those whose event loop has not run for ten seconds; how long ago that was, where it is
longest; and processes that were replaced, by C<reason>.

=item peregrine_interpreters

Interpreters that have joined the engine (C<--engine process>, interpreters that are threads), by C<state>:
C<idle>, C<busy>, and C<stuck>, which have been at one thing for ten seconds.

=item peregrine_certificate_expires_seconds, peregrine_certificate_attempt_timestamp_seconds,
peregrine_certificate_failures, peregrine_certificate_renewals_total, peregrine_certificate_failures_total

Of each C<host> that C<acme> names: the seconds until its certificate expires (0 while there is none); when
one was ordered last; how many attempts in a row have failed; and how many this server has brought to a good
end and to a bad one.

=item peregrine_resident_memory_bytes, peregrine_memory_bytes, peregrine_build_info

Memory of all these processes, and what of it the engine holds for connections; the version.

=back

Counting costs a request less than one per cent of what a hello takes, and nothing without C<status>. A
start warns if C<status> is at an address that other machines can reach.

=head1 ACCESS LOG

Every answered request has a line, those included that were refused before the application was told of them,
with as much of them as can be read and the time since their first byte, and connections that were turned
away with a 503 or 429; it is written when the response, the event stream or the WebSocket has ended. The
engine writes it by a thread of its own: lines are in the file within a second, and a disk that is slow or
full costs lines, never time. On USR1 a log with a path is opened anew, for rotation. Interpreters may share a
file, a pipe or a socket: lines stay whole, in a pipe or a socket those of up to 4 KiB.

C<access_log_format> is one of

    clf, common   %h %l %u %t "%r" %s %b
    combined      %h %l %u %t "%r" %s %b "%{Referer}i" "%{User-Agent}i"
    tiny          %m %U%q %s %{ms}Tms
    json          an object with time, id, pid, client, request, method, path, query, protocol, status, bytes,
                  duration_us, ttfb_us, queue_us, mount, referer, user_agent, request_id (X-Request-ID),
                  traceparent, tls_protocol, tls_cipher and tls_client

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
    %L  number of the connection and of the request in it, "17-3"; the server's own log names requests so
    %P  process id            %{Name}i  a request header    %%  a percent sign
    %^FB  microseconds until the response began, also %{us}^FB; %{ms}^FB milliseconds; %{s}^FB whole seconds
    %Q  microseconds for which the request waited for the application when it was complete (under PSGI
        with its body), also %{us}Q; %{ms}Q milliseconds; %{s}Q whole seconds; "-" if that never got it
    %M  the mount with workers of its own whose request it is (peregrine --mount), "example.org/shop" if that
        has a host; "*": that of no such mount; "-": no mount has workers of its own

and, by the names of Apache's mod_ssl, of the connection's TLS, each C<-> without TLS:

    %{SSL_PROTOCOL}x         TLSv1.3       %{SSL_CIPHER}x           the cipher, by OpenSSL's name
    %{SSL_TLS_SNI}x          name that the client asked for
    %{SSL_SESSION_RESUMED}x  Initial, or Resumed by a ticket
    %{SSL_CLIENT_VERIFY}x    NONE: no client certificate; SUCCESS; FAILED:reason
    %{SSL_CLIENT_S_DN}x      subject of a client certificate that verified

Control bytes, quotes, backslashes and everything beyond ASCII are escaped (C<\x1b>). A format that starts
with C<{> is JSON: there values are escaped as its strings need it, and what is missing is an empty string. Of
a value that takes more than 4096 bytes so, the beginning is written, and C<...>.

=head1 MEMORY

A process that is refused memory dies: Perl prints "Out of memory!", or the kernel kills it. C<memory_max>
is where the server begins to give memory back instead. The limit holds for the whole process: for its
physical memory, and for its address space if that has a limit (C<ulimit -v>). The last quarter of the
system's limit is left for the application, and for memory that is taken between two looks. Workers with an
engine have equal parts of C<memory_max>. Memory that several processes share (C<preload_app>) counts for each
with its part, if the kernel tells (Linux 4.14). Servers that share a container need a C<memory_max> each.

At the limit the server ends what clients have not finished or do not read, until it is a sixteenth below it.
It ends the connection first that makes the process hold most, with all of its streams (HTTP/2); of
connections of about the same size, one whose address has more of them, then the newest. The size of a
request is the number of bytes that the server holds of it, and the bytes of its body that the application
has got; an application that writes a body to a file as it comes holds less, but the server cannot know that.
A string that is sent to many clients at a time is in memory once, and each of them holds a part of it.

=over

=item * A request whose head is not complete is answered with 503, one whose body is on its way with 413, both
with C<Retry-After>. If the response has started, it is cut. C<$receive> gives C<http.disconnect>, and the
reason is C<server_error>.

=item * A WebSocket with messages that the application has not asked for, or that are not complete, is closed
with 1013; the application gets a C<websocket.disconnect> with 1006 and C<server_error>, and the messages are
gone.

=item * What a client has sent behind a request that waits for its response is thrown away; the connection
closes after that response.

=item * A response that its client does not read is cut. Of a connection with many streams the one that has
waited longest for its client is reset (C<ENHANCE_YOUR_CALM>). If that is not enough the connection ends,
unless its peer is a trusted proxy: that brings others, too.

=back

When all that is not enough either, new connections and requests get 503 until memory has come back; the
L<health path|/Listening> is answered. Clients that make the process hold nothing are served as ever: an
eighth of the limit is left to connections even if the application holds all the rest, so that an
application that is simply large does not lock its users out.

A line a second at most tells how many were refused or cut, and C<stats> of the engine counts them (C<shed>).

=head1 MESSAGES

Messages of the server go through C<warn>, so that C<$SIG{__WARN__}> gets them, or to the standard error.
There a line of text begins with the local time, C<2026-11-21T07:09:37+01:00>, unless systemd's journal
takes it, which has a time of its own. Under L<pagi-server> so do warnings of the application. A message
about a request names the request: C<request 17-3 (192.0.2.1:4711) GET /x?y=1>, where C<17-3> is C<%L> of
the access log; an id that the client sent (C<X-Request-ID>) and that of its trace (C<traceparent>, W3C
Trace Context) stand behind its address, C<(192.0.2.1:4711, id 8f14e, trace
0af7651916cd43dd8448eb211c80319c)>. A C<log_format> of C<json> has them as C<request_id> and C<trace_id>,
the access log as C<%{X-Request-ID}i> and C<%{traceparent}i>, in C<json> by themselves. C<log_level> and
C<quiet> leave some out. Of messages that differ in numbers, or in the request that they are about, only ten
are written in ten seconds; of the others their number is told.

With C<log_format> C<json> each message is one line with an object, in ASCII, that has C<time> (as above),
C<level> (C<error>, C<warn>, C<info> or C<debug>), C<pid> and C<message>; one that is about a request also has
C<id>, C<client>, C<method> and C<target>, and C<request_id> and C<trace_id> if the client sent them. Under
L<pagi-server> warnings of the application are such lines, with C<level> C<warn>, and so is what ends a start.
The access log has objects of its own: C<access_log_format> C<json>.

    {"level":"warn","message":"the disk is nearly full","pid":4711,"time":"2026-11-21T07:09:37+01:00"}

=head1 TLS

    my $server = PAGI::Server->new(
        app => $app,
        ssl => { cert_file => 'example.org.pem', key_file => 'example.org.key' },
    );

TLS 1.2 and 1.3, with forward secrecy and authenticated encryption only, unless C<cipher_list> says
otherwise. ALPN agrees on C<http/1.1>, or on L<C<h2>|/HTTP/2>. Sessions are resumed by tickets, also in
processes that were forked from this one. A request without TLS is answered with a 400 that says so.
Requests have the scheme C<https> or C<wss>, and C<< $scope->{extensions}{tls} >> as L<PAGI::Spec::Tls>
describes it. To try it out, with a certificate of one's own:

    openssl req -x509 -newkey rsa:2048 -nodes -days 30 -keyout server.key -out server.pem \
        -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1
    pagi-server app.pl --ssl-cert server.pem --ssl-key server.key
    curl --cacert server.pem https://localhost:5000/

Keys of C<ssl>:

=over

=item cert_file, key_file

PEM files: the certificate, and its private key. Required, unless there is a C<cert_dir>.

=item chain_file

PEM file with the intermediate certificates, if they are not in C<cert_file>, behind the certificate.

=item key_password

Opens an encrypted key: a string, or a function that returns it.

=item certificates

Further certificates, an array reference of hash references with the four keys above. Clients that name a
host (SNI) get the certificate with that name, also by a wildcard, and the first one if there is none. Two
certificates for the same names, with an RSA and an elliptic key, serve the clients that know either.

=item cert_dir

A directory with certificates, see L</Certificates of a directory>.

=item verify_client

0 or C<none>: no client certificates. C<request>: they are asked for, and C<client_cert_error> tells what is
wrong with one. 1 or C<require>: without a good one there is no connection.

=item ca_file

PEM file with the authorities that client certificates are verified against.

=item min_version

C<TLSv1_2>, the default, or C<TLSv1_3>.

=item cipher_list, cipher_suites

Ciphers of TLS 1.2 in OpenSSL's notation, and those of TLS 1.3, in order of preference. Every name must be
one that the library knows.

=item groups

Groups of the key exchange, separated by colons, in order of preference: C<P-256:P-384>. Default:
C<X25519MLKEM768:X25519:P-256:P-384>, of which the first, that quantum computers could not break later, is
left out where OpenSSL does not know it (before 3.5). A list that is given must be known as a whole.

=item session_timeout

Seconds for which a ticket shortens handshakes. Default: 7200.

=item ticket_keys

80 random bytes that seal tickets, for processes that are not forked from the same one. By default they are
made up.

=item ticket_keys_file

A file that holds them, read by the constructor.

=back

The files are loaded again when they change: the server looks when a connection comes, once a second at
most. HUP makes it load them at once, and C<configure(ssl =E<gt> {...})> gives it others. Connections that are
open keep what they have. If the new files cannot be used, an error is logged and the old certificates stay.

A warning names certificates that have expired, are not valid yet, or expire soon (when a tenth of their
life is left, at most two weeks), with the date: at the start, whenever they are loaded again, and in
C<pagi-server --check>. They are used all the same.

=head2 Certificates of a directory

C<cert_dir> (B<--ssl-cert-dir>) has any number of certificates: F<NAME.pem> or F<NAME.crt> with its key in
F<NAME.key>, or behind the certificate in the same file; or F<NAME/fullchain.pem> and F<NAME/privkey.pem>, as
certbot keeps them in F</etc/letsencrypt/live>. Other files, and what begins with a dot, are not looked at.

A client gets the certificate whose files are called like the host that it names, or one that is for that name
or has a wildcard for it. If there is none, or it names none: that of C<cert_file>; without one, that of
F<default.pem>; without that, the first one.

The directory is watched as files are: certificates that are added, replaced or removed are so for the next
connections, all at once, when nothing has changed for a second. The start fails on a certificate that cannot
be used. While the server runs, the old certificate stays in place of such a file, and the log names the file
and the reason.

=head2 OCSP stapling

An OCSP response (DER) beside a certificate, F<example.org.ocsp> for F<example.org.pem>, is shown to clients
that ask for one; it is loaded again when it changes. A response that is about another certificate, too old,
or says that the certificate is not good, is not shown, and the log says why. So something has to fetch it
from time to time, once a day for instance:

    openssl ocsp -no_nonce -issuer chain.pem -cert example.org.pem -url "$(openssl x509 -noout -ocsp_uri \
        -in example.org.pem)" -respout example.org.ocsp.new && mv example.org.ocsp.new example.org.ocsp

=head2 Certificates by themselves

    pagi-server --listen 0.0.0.0:80,plain --listen 0.0.0.0:443 --redirect-http \
        --acme example.org,www.example.org --acme-agree app.pl

The server orders a certificate from an authority that speaks ACME (RFC 8555), Let's Encrypt unless
C<acme_directory> names another one, and renews it. CryptX and IO::Socket::SSL have to be installed (Debian:
libcryptx-perl, libio-socket-ssl-perl). C<acme> may be given several times, for a certificate each.

=over

=item *

The authority asks port 80 of each name for a file that the engine serves before everything else
(C<http-01>). If it does not get there, or if all listeners have TLS, it is to ask port 443 (C<tls-alpn-01>,
RFC 8737): the engine answers C<acme-tls/1> with a certificate for the question, and connections of others are
as ever. After a failed attempt the other way is tried, and a renewal begins with the one that was good. So
the names have to lead to this server, from outside. Challenges of the DNS (C<dns-01>), and so wildcards, are
not there; nor are profiles and revocation.

=item *

Until the first certificate has come, port 80 serves and TLS handshakes are refused. A certificate that
cannot be renewed is used to its end, and the log says why with each attempt: after one minute, then after
twice as long each time, up to a day, or when the authority says. A restart does not forget that. When a
sixth of its time is left, there is an error every day. C<peregrine certificates> lists all, C<peregrine
renew NAME> asks for a new one at once (L<PAGI::Server::CertificateCommand>), and C<status> shows them.

=item *

C<acme_folder> has the account's key, the certificates and the times. It must outlive the server:
authorities give the same certificate a few times a week only. C<--check> says what would be ordered, and
warns where the folder goes with the container. Several servers may share it: each certificate is ordered
once, and the challenge is answered by whichever server is asked.

=item *

A process of its own orders. Started as root with C<user>, the server starts it before it gives up its
rights: it stays with those, or takes those of the user that has C<acme_folder> if that is not root, and
sends new certificates to the engine as descriptors. So the server's user needs no right in the folder, and
with C<< engine => 'process' >> no application can read a key: not in the folder, not in another process. This
stays so after HUP and USR2; only in the moment in which the new program of USR2 begins can a process of the
server's user look into it, and there is no key in it by then. Inline, on a thread and in prefork, engine and
application are one process, and the application can read that process's memory. Where the server starts
without root, all have one user, and the application can read the folder.

=item *

Behind a proxy that ends TLS the proxy has to have the certificates. A load balancer that passes TCP on
works if the port at which the authority asks comes to servers that share the folder.

=back

=head2 Certbot

Certbot's own directory is root's alone. F<examples/certbot/deploy-hook> copies what was renewed to a
C<cert_dir> that the server's user may read; no connection is closed, and nobody needs to tell the server:

    certbot renew --deploy-hook /usr/local/sbin/deploy-hook

=head1 HTTP/2

    my $server = PAGI::Server->new(app => $app, ssl => { ... });    # HTTP/1 and HTTP/2

The same ports serve HTTP/1 and HTTP/2 (RFC 9113). Over TLS ALPN agrees on C<h2> with clients that offer it,
as browsers and curl do, unless the cipher is one that HTTP/2 does not allow (RFC 9113 appendix A); with
C<< http2 => 0 >> it does not. In the clear a connection that begins with HTTP/2's preface speaks it only with
C<< http2 => 1 >> (prior knowledge: C<curl --http2-prior-knowledge>, C<grpc_pass> of nginx, C<proto h2> of
HAProxy): a proxy in front that does not know HTTP/2 would pass requests along that it has not seen.
C<Upgrade: h2c> is ignored, as RFC 9113 has it.

An application sees a request as ever. C<http_version> is C<2>, C<:authority> is the field C<host>, several
C<cookie> fields are one. Each stream has its own C<receive>, C<send>, C<pagi.connection> and
C<pagi.transport>; what one of them waits for, or is reset for, is nobody else's business. A client may send
so much of a body as fits into C<h2_initial_window_size>, and more when the application has taken some;
C<$send> waits where the client's window does not let content out. Trailers go both ways. WebSockets come by
CONNECT (RFC 8441). Priorities are those of RFC 9218: the field C<priority> and PRIORITY_UPDATE frames say
what is sent first; those of RFC 7540 are ignored.

Limits and deadlines hold for each stream as they do for a connection of HTTP/1, and the options above bound
what a connection may ask for. A client that makes work and brings nothing (resets, pings, settings, empty
frames, header blocks that mean far more than they are long) is told to calm down, and its connection ends
(ENHANCE_YOUR_CALM). A server that stops, or an interpreter that is replaced, asks for no more streams
(GOAWAY) and serves those that there are. So does the last request of C<max_keepalive_requests>, and the first
one of a connection that is one more than C<max_connections>; streams are no connections. The access log's
C<%H> is C<HTTP/2.0>.

=head1 METHODS

=head2 configure

    $server->configure(timeout => 10, quiet => 1);

Changes options. Limits, times, the level and format of messages, the access log and, if it speaks TLS, the
certificates apply to a running server at once; the others when it is started again, and it says so.
Requests that are open have their lines in the new access log, in the format that they began under.
C<max_header_count> of a running server cannot be raised above what it was started with.

=head2 listen

    $server->listen->get;

Binds the addresses, runs the application's lifespan startup, then accepts connections; those that come
meanwhile wait. Returns a Future that resolves with the server when it accepts, and fails if it cannot. With
C<workers> see L</WORKERS>. When the server is listening already, the same Future comes back. The server
must have been added to a loop.

From the moment it has bound the addresses, TERM, INT and QUIT shut the server down and then stop the loop; a
second signal cuts the requests in flight, the next one does not wait for the application's shutdown either,
and a further one kills interpreters. The third one ends a process whose application has not returned since
the first, and says where that is; so does the end of C<shutdown_timeout>, if there is but one. HUP loads the
certificates again if there are any, USR1 opens the access log anew; USR2, TTIN and TTOU need C<workers>,
without which they only say so. Perl code that blocks delays them all until it is done.

=head2 shutdown

    $server->shutdown->get;

Stops accepting, closes idle connections, lets requests in flight finish, then runs the application's lifespan
shutdown: all of it within C<shutdown_timeout>. Returns a Future that never fails. Under L<Server::Starter>,
which has started another server on the same sockets, it answers each connection once more, with C<Connection:
close>, and closes idle ones after C<retire_idle>.

During the application's startup it cancels that: the application gets no further event, nothing is served,
and the Future of L</listen> fails with the category C<stopped>.

A request is in flight until the application has returned, which may be later than the end of its response.
Event streams and WebSockets are closed at once; their applications have 5 seconds of that time to clean up
and return. The stop does not wait for applications whose clients had left before. A lifespan application
has what is left of C<shutdown_timeout> to answer and to return, a quarter of it or 5 seconds at least.

=head2 port

    my $port = $server->port;

The (first) port that the server listens on; useful with C<< port => 0 >>. Undef if it has Unix sockets only.

=head2 socket_path

    my $path = $server->socket_path;

The path of the (first) Unix socket, or undef.

=head2 listeners

    print $_->{path} // "$_->{host}:$_->{port}", "\n" for @{ $server->listeners };

All places that the server listens at, as hash references with C<type> (C<tcp>), C<host> and C<port>, or
C<type> (C<unix>), C<path> and C<socket_mode> (permission bits; undef if the socket was inherited). While it
does not listen, the places that were asked for: C<host> may be a name then, C<port> 0, C<socket_mode>
undef, and an inherited socket has the type C<inherited> and a C<descriptor>.

=head2 is_running

    say 'accepting' if $server->is_running;

=head2 connection_count

    say $server->connection_count, ' connections are open';

=head2 effective_max_connections

    say 'at most ', $server->effective_max_connections;

The limit in force, the automatic one included.

=head2 effective_memory_max

    say 'memory: ', $server->effective_memory_max || 'no limit';

The bytes at which requests are refused for want of memory (L</MEMORY>), C<memory_max> or found out; 0:
there is no limit.

=head2 open_listeners

    $server->open_listeners(uid => $uid, gid => $gid);

Binds the addresses and opens the access log, without accepting anything: for programs that give up rights
before L</listen>, which does it otherwise. Dies when that fails. C<uid> and C<gid>, both optional, are who
the process is going to be: Unix sockets without C<socket_owner> and C<socket_group> and the file of the log
will belong to them.

=head2 planned_listeners

    print PAGI::Server::Banner->place($_), "\n" for grep { !$_->{problem} } $server->planned_listeners;

The places at which a start would listen, see L<Peregrine::Listener/plan_all>. Nothing is bound.

=head2 own_loop

    my $loop = $server->own_loop;

Makes a loop of the type C<loop_type> and adds the server to it.

=head2 use_listeners

    $server->use_listeners($listeners);

Makes the server serve on the sockets of a L<Peregrine::Listeners>, which another process may have opened,
in place of what its options ask for. Before L</listen>. Certificates are the server's to load, here and
now.

=head2 ignore_signals

    $server->ignore_signals;

L</listen> will attach no signal: a L<Peregrine::Process>, or whoever else sees to signals, calls
L</shutdown> and the next three.

=head2 hurry

    $server->hurry('SIGTERM again');

For a server that is told to stop: cuts the requests in flight; if there are none, does not wait for the
application's shutdown. The text goes into the log.

=head2 load_again

    $server->load_again;

Loads the certificates again, as HUP does.

=head2 reopen_logs

    $server->reopen_logs;

Opens the access log anew, as USR1 does.

=head2 on_reopen_logs

    $server->on_reopen_logs(sub { reopen_mine() });

Calls a function then, in each interpreter as well.

=head2 load_app_in_workers, has_workers

    $server->load_app_in_workers(sub { my ($number) = @_; return load_app() }) if $server->has_workers;

Before the start: the function returns the application. Each interpreter calls it for itself, so that
interpreters which are started later have newer code. If the function dies the interpreter cannot start. With
C<preload_app> it is called in the template first, where the number is 0, and then in each interpreter, where
it should return what it has.

=head2 certificates

    PAGI::Server::TLS->tell_outdated($log, $server->certificates);

The L<PAGI::Server::TLS> objects of C<ssl> and of the places that have their own.

=head2 has_tls, has_http2

    say 'TLS' if PAGI::Server->has_tls;

Whether this build can do that.

=head2 start

    $server->start or exit;

Calls L</listen> and waits. True when the server accepts connections, false when L</shutdown>, or a signal,
has ended the application's startup; dies when the server cannot listen.

=head2 run

    PAGI::Server->new(app => $app)->run;

Makes a loop unless the server is in one, listens, and runs the loop until a signal stops the server. Dies
when it cannot listen, and as L</run_loop> says.

=head2 run_loop

    my $exception = $server->run_loop;

Runs the loop of a server that listens. An exception in a callback of the loop, a timer of the application
for instance, leaves C<IO::Async::Loop>'s C<run> and would end the process. This method logs it, shuts the
server down as L</shutdown> does, lifespan included, and returns it. L</run> dies with it, and
L<pagi-server> exits with status 1. (Exceptions of an application, its Futures, or the callbacks of
C<pagi.connection> and C<pagi.transport> concern one request and never get that far.) A program that runs
the loop itself gets the exception from C<< $loop->run >>.

A single kind of exception does come from applications: an object that dies when it is asked whether it is
true (C<use overload bool>), thrown behind an C<await>. L<Future::AsyncAwait> asks it, and the exception of
that question goes to the code that resolved the awaited Future: to the loop, if that was a timer. This
method ends the request, with 500 if nothing has been sent, and the loop goes on. A program that runs the
loop itself says C<< $server->fail_stalled($@) >>, which is false if no request was waiting in vain, and
runs it again. If the application's own code resolved the Future, the exception goes there.

=head2 fail_stalled

    my $requests = $server->fail_stalled($exception);

See L</run_loop>.

=head1 SEE ALSO

L<PAGI::Tutorial>, L<PAGI::Server::Tutorial>, L<PAGI::Server::Protocol>, L<PAGI::Server::Deployment>,
L<PAGI::Server::ComingFrom>, L<PAGI::Server::Channels>, L<pagi-server>,
L<PAGI::Middleware::Builder>, L<PAGI::Middleware::SecurityHeaders>, L<PAGI::Server::Connection>,
L<PAGI::Server::Transport>, L<PAGI::Spec>, L<PAGI::Spec::Tls>

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
