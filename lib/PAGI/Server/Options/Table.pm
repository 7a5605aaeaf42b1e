package PAGI::Server::Options::Table;

use strict;
use warnings;

our $VERSION = '0.003000';

use PAGI::Server::Options::HTTP2;
use PAGI::Server::Options::Listening;

# The keys of PAGI::Server->new, in the order of the manual. The constructor, the flags of pagi-server,
# the names in its configuration files, the shell completion and the manual's lists are all made from
# this table and from PAGI::Server::Options::Command, which has the same columns. The sections Listening and
# HTTP/2 have files of their own.
#
#   name    key of PAGI::Server->new; underscores are dashes in the flag and either in a file
#   flag    the flag's name if it is another one; '' if there is none
#   short   a one-letter flag
#   alias   another name, which works in all places
#   variable   an environment variable that has the value where nothing else has
#   type    see PAGI::Server::Options::Type
#   default, min, max   unless `engine` names the engine's limit that has them; `scale`: how many of the
#           engine's units one unit of the option has. `engines`: one for each key of a hash
#   of      the choices
#   optional  undef is allowed as well
#   offer   values that a shell's completion suggests, where others are allowed as well
#   many    may be given several times on the command line and in a file
#   live    a running server takes a change over at once
#   missing why it cannot be switched on, when what it needs does not exist yet
#   shown   the default in the manual if it is no plain value; `shown_command` for the command if that has
#     another one
#   arg     the value's name in the manual
#   about   the manual's text, in POD; `about_command` for the command if that needs another one
my @SECTIONS = (
    [
        'Application' => (
            {
                name          => 'app',
                type          => 'code',
                flag          => 'app',
                short         => 'a',
                arg           => 'FILE|MODULE',
                shown         => 'required',
                about         => 'The application, a code reference.',
                about_command =>
                    'The application: a file that ends with a code reference, or a module with C<new> and'
                    . ' C<to_app>. It can be named without the flag as well. C<key=value> words behind'
                    . ' it are given to C<new>; behind a file they are an error.',
            },
            {
                name  => 'loop_type',
                flag  => 'loop',
                short => 'l',
                type  => 'class',
                arg   => 'TYPE',
                offer => [qw(Peregrine Epoll Poll Select)],
                shown => 'Peregrine where there is epoll',
                about =>
                    'For L<run|PAGI::Server/run>: the event loop, C<Epoll> for C<IO::Async::Loop::Epoll>.'
                    . ' The environment variable C<IO_ASYNC_LOOP> names another default.',
                about_command =>
                    'The event loop, C<Epoll> for C<IO::Async::Loop::Epoll>. The environment variable'
                    . ' C<IO_ASYNC_LOOP> names another default.',
            },
            {
                name     => 'engine',
                type     => 'choice',
                of       => [qw(inline thread process)],
                default  => 'inline',
                variable => 'PEREGRINE_ENGINE',
                about => 'Where the engine runs. C<inline>: in the loop, which costs least. C<thread>: on a'
                    . ' thread of its own, so that connections are accepted, TLS handshakes done,'
                    . ' requests read and refused, pings and health checks answered, timeouts kept and'
                    . ' output sent while the application computes or blocks. C<process>: in a process of'
                    . ' its own, which gives each request to the worker that has the least to do (Linux,'
                    . ' C<workers>); workers that die or are replaced close no connection. With C<thread>,'
                    . ' workers of PSGI applications are interpreters in threads of one process, see'
                    . ' L<Plack::Handler::EVHTP>. The environment variable C<PEREGRINE_ENGINE> names another'
                    . ' default.',
            },
            {
                name    => 'lifespan_mode',
                flag    => 'lifespan',
                type    => 'choice',
                of      => [qw(auto on off)],
                default => 'auto',
                about   =>
                    'C<auto>: the application may decline the lifespan protocol. C<on>: if it declines, the'
                    . ' start fails. C<off>: it is not asked.',
            },
            {
                name    => 'lifespan_startup_timeout',
                type    => 'seconds',
                default => 30,
                min     => 0,
                max     => 86_400,
                about   => "How long the application's startup may take. 0: no limit.",
            },
            {
                name    => 'extensions',
                flag    => '',
                type    => 'hash',
                default => {},
                shown   => '{}',
                about   =>
                    'Advertised to the application in C<< $scope->{extensions} >>. C<< { fullflush => {} }'
                    . ' >> makes C<http.fullflush> events work, C<< { informational => {} } >> events of the'
                    . ' type C<http.response.informational>, which send interim responses as 103 (Early'
                    . ' Hints); see L<PAGI::Server::Protocol/EXTENSIONS>.',
            },
            {
                name  => 'validate_events',
                type  => 'boolean',
                shown => '1 if PAGI_ENV is development',
                about => 'The type of each field of each event that the application sends is checked, see'
                    . ' L<PAGI::Server::EventCheck>. What the server cannot act on always fails; this finds what would go'
                    . ' unnoticed. It costs a few microseconds an event.',
            },
            {
                name  => 'static',
                type  => 'folders',
                many  => 1,
                arg   => 'PATH=FOLDER[,host=NAME][,max_age=SECONDS]',
                shown => 'none',
                about =>
                    'Folders whose files the engine answers with by itself, see L<PAGI::Server::Folders>:'
                    . ' an array reference of C</static=public> and the like. What is not there is the'
                    . " application's.",
                about_command => 'Serve the files of that folder below the path, C</static=public> for'
                    . ' instance, without the application, see L<PAGI::Server::Folders>. What is not there'
                    . " is the application's.",
            },
            {
                name  => 'x_sendfile',
                type  => 'string',
                arg   => 'DIRECTORY',
                shown => 'none',
                about =>
                    'The header C<X-Sendfile> of a response names a file below this directory that is sent'
                    . ' in place of its content, see L<PAGI::Server::SendFile>.',
            },
            {
                name    => 'compress',
                type    => 'boolean',
                default => 0,
                about   =>
                    'Responses are compressed for clients that accept it, with gzip, and with br and zstd'
                    . ' where the system has them, see L<PAGI::Server::Compression>.',
            },
            {
                name    => 'compress_min_size',
                type    => 'bytes',
                default => 1024,
                min     => 0,
                max     => 1 << 30,
                about   =>
                    'Bytes from which on a response is compressed, if its length is known; below, it would'
                    . ' hardly get shorter.',
            },
            {
                name    => 'compress_authenticated',
                type    => 'boolean',
                default => 0,
                about   => 'Also of requests with C<Cookie> or C<Authorization>, and responses with'
                    . ' C<Set-Cookie>: their length may then tell of what is secret in them (BREACH).',
            },
            {
                name     => 'on_error',
                flag     => '',
                type     => 'code',
                optional => 1,
                live     => 1,
                shown    => 'none',
                about    =>
                    'Called with an exception, the scope of the request (undef if it was not in one) and what'
                    . ' L<PAGI::Server::RequestName/of> tells of it when the application or a callback dies.',
            },
        )
    ],
    PAGI::Server::Options::Listening::section(),
    [
        'Encryption' => (
            {
                name  => 'ssl',
                flag  => '',
                type  => 'tls',
                shown => 'none',
                about =>
                    'Speak TLS on all addresses: a hash reference, see L<TLS|PAGI::Server/TLS>. The files'
                    . ' are loaded by the constructor, which dies with a message that names the file or'
                    . ' value when something is wrong with it.',
            },
            {
                name    => 'disable_tls',
                type    => 'boolean',
                default => 0,
                about   =>
                    'C<ssl> is ignored, its files are not looked at, and connections are not encrypted. A'
                    . ' warning says so.',
            },
            {
                name   => 'ktls',
                type   => 'boolean',
                engine => 'ktls',
                about  =>
                    'Linux encrypts what is sent, if its module C<tls> is there. Clients that ask for new'
                    . ' keys are cut off.',
            },
        )
    ],
    PAGI::Server::Options::HTTP2::section(),
    [
        'Limits' => (
            {
                name   => 'max_connections',
                type   => 'integer',
                engine => 'connections_max',
                live   => 1,
                about  =>
                    'Connections open at once. 0: as many as the limit on open files (C<ulimit -n>) allows,'
                    . ' less 50, and less 12 for each interpreter that is a clone, 3 for each that joins an'
                    . ' engine in another process. One more is answered with 503 and C<Retry-After>.',
            },
            {
                name   => 'max_connections_per_address',
                type   => 'integer',
                engine => 'address_connections_max',
                live   => 1,
                about  =>
                    'Connections that one client address may have open; of an IPv6 address its first 64 bits'
                    . ' count. One more is answered with 429 and C<Retry-After>, over TLS closed before'
                    . ' the handshake. 0: no limit. A proxy in front of the server is one address.',
            },
            {
                name   => 'max_connection_rate_per_address',
                type   => 'integer',
                engine => 'address_rate_max',
                live   => 1,
                about  =>
                    'New connections per second of one client address, on average; a second\'s worth may'
                    . ' come at once. What is beyond it is answered in the same way. 0: no limit.',
            },
            {
                name   => 'memory_max',
                type   => 'bytes',
                engine => 'memory_bytes_max',
                live   => 1,
                least  => 16 * 1024 * 1024,     # less than the process holds when it has just started
                shown  => '3/4 of what the system allows',
                about  =>
                    'Bytes of physical memory that the process may hold, see L<PAGI::Server/MEMORY>: beyond'
                    . ' it unfinished requests are refused, the largest and newest first, with 503, or'
                    . ' 413 for a body that is on its way. What the system allows is the limit of the'
                    . ' control group, a container\'s; none if there is none. Where address space has a'
                    . ' limit (C<ulimit -v>), three quarters of that hold as well. 0: neither is looked'
                    . ' at; otherwise at least 16M.',
            },
            {
                name   => 'max_request_line_size',
                type   => 'bytes',
                engine => 'request_line_bytes_max',
                live   => 1,
                about  => 'Bytes of a request line (414 above it).',
            },
            {
                name   => 'max_header_size',
                type   => 'bytes',
                engine => 'head_bytes_max',
                live   => 1,
                about  => 'Bytes of a request head (431).',
            },
            {
                name   => 'max_header_count',
                type   => 'integer',
                engine => 'header_count_max',
                live   => 1,
                about  => 'Fields in a request head (431). A running server can lower it, not raise it.',
            },
            {
                name   => 'max_trailer_size',
                type   => 'bytes',
                engine => 'trailer_bytes_max',
                live   => 1,
                about  => 'Bytes of the trailers of a chunked request (431).',
            },
            {
                name   => 'max_keepalive_requests',
                type   => 'integer',
                engine => 'connection_requests_max',
                live   => 1,
                about  => 'Requests of one connection: the answer to the last one closes it. 0: no limit.',
            },
            {
                name   => 'max_body_size',
                type   => 'bytes',
                engine => 'body_bytes_max',
                live   => 1,
                about  => 'Bytes of a request body (413). 0: no limit.',
            },
            {
                name   => 'queue_max',
                type   => 'integer',
                engine => 'queue_max',
                live   => 1,
                about  =>
                    'With C<--engine process>: requests that wait because all workers are busy. One more is'
                    . ' answered with 503 and C<Retry-After>.',
            },
            {
                name    => 'max_concurrency',
                type    => 'integer',
                default => 0,
                min     => 0,
                max     => 1_000_000,
                about   =>
                    'With C<--engine process>, and with workers that are threads: requests that wait for one'
                    . ' worker at the same time; more of them wait in the queue. A request counts only while its'
                    . ' application works on it, not while that waits for its client: in C<$receive>, for output'
                    . ' to leave, or with a WebSocket or an event stream that it has accepted. 0: no limit,'
                    . ' because a worker that is busy gets no requests as long as another one is idle.',
            },
            {
                name    => 'underscores_in_headers',
                type    => 'boolean',
                default => 0,
                about   =>
                    'Applications of PSGI get header fields whose names have an underscore, which look to them as'
                    . ' if they had a dash: only where nobody relies on a proxy to remove or set the latter.',
            },
            {
                name   => 'body_buffer_size',
                type   => 'bytes',
                engine => 'body_memory_bytes_max',
                live   => 1,
                about  =>
                    'What of a request body is kept in memory, for applications that get bodies whole (those of'
                    . ' PSGI): a longer one is in a temporary file.',
            },
            {
                name   => 'max_body_spool',
                type   => 'bytes',
                engine => 'body_file_bytes_max',
                live   => 1,
                about  =>
                    'What the temporary files of all request bodies may hold, in each process (507). The'
                    . ' smaller of a twentieth and 256 MiB of their file system stays free in any case. Files'
                    . ' on a file system in memory count for C<memory_max>. 0: no limit but the disk.',
            },
            {
                name   => 'max_upload_bytes_per_address',
                type   => 'bytes',
                engine => 'address_upload_bytes_max',
                live   => 1,
                about  => 'Bytes that incomplete request bodies of a client address may take in memory and in'
                    . ' those files, in each process, for applications that get bodies whole; of an IPv6'
                    . ' address the first 64 bits count. A further body is answered with 429 and'
                    . ' C<Retry-After>, unless it is the only body of its address or not longer than 64 KiB.'
                    . ' C<proxy> or a trusted proxy names the client; requests of a trusted proxy that names'
                    . ' no client, and of clients on Unix sockets, are exempt. 0: no limit.',
            },
            {
                name    => 'response_buffer',
                type    => 'bytes',
                default => 64 << 20,
                min     => 0,
                max     => 1 << 50,
                about   =>
                    'Applications of PSGI with C<--engine thread> or C<process>: what of one response waits'
                    . ' for its client in a temporary file, behind a mebibyte in memory, so that the'
                    . ' application is done with it, however slow the client. These files count for'
                    . ' C<max_body_spool>. 0: there are none.',
            },
            {
                name  => 'body_folder',
                type  => 'string',
                about =>
                    'Where those files are. They have no name, so that nothing is left behind. Default: what'
                    . ' C<TMPDIR> says, or F</tmp>.',
            },
            {
                name   => 'max_receive_queue',
                type   => 'integer',
                engine => 'queue_messages_max',
                live   => 1,
                about  =>
                    'Messages of one WebSocket that wait for the application. One more closes it with 1008'
                    . ' and C<Message queue overflow>; the application gets those that it has, then a'
                    . ' C<websocket.disconnect> with C<queue_overflow>.',
            },
            {
                name   => 'max_receive_queue_size',
                type   => 'bytes',
                engine => 'queue_bytes_max',
                live   => 1,
                about  => 'Bytes of such messages. From there on the peer is not read: it waits, until the'
                    . ' application has taken half. Messages above 64 KiB never wait here: they are'
                    . ' fetched, and inflated, when the application asks for one.',
            },
            {
                name   => 'max_ws_frame_size',
                type   => 'bytes',
                engine => 'frame_bytes_max',
                live   => 1,
                about  => 'Bytes of one WebSocket frame. A larger one closes the WebSocket with 1009.',
            },
            {
                name   => 'max_ws_message_size',
                type   => 'bytes',
                engine => 'message_bytes_max',
                live   => 1,
                about  => 'Bytes of one WebSocket message over all its frames and after inflation (1009).',
            },
            {
                name   => 'ws_per_message_deflate',
                type   => 'boolean',
                engine => 'deflate',
                live   => 1,
                about  =>
                    'WebSocket messages are compressed with clients that offer it (permessage-deflate, RFC'
                    . ' 7692). Every message is compressed by itself, without context takeover: so an'
                    . ' idle WebSocket holds no memory for it, and the size of a message tells nothing'
                    . ' about another. Turn it off where messages mix secrets with text that an attacker'
                    . ' may choose.',
            },
            {
                name   => 'ws_deflate_min_size',
                type   => 'bytes',
                engine => 'deflate_bytes_min',
                live   => 1,
                about  =>
                    'Bytes from which on a message is compressed; one that does not shrink goes out as it'
                    . ' is.',
            },
            {
                name   => 'write_high_watermark',
                type   => 'bytes',
                engine => 'write_high_bytes',
                live   => 1,
                about  =>
                    'Bytes of output waiting for the peer from which on C<$send> returns a pending Future...',
            },
            {
                name   => 'write_low_watermark',
                type   => 'bytes',
                engine => 'write_low_bytes',
                live   => 1,
                about  => '... which resolves when the queue has fallen below this.',
            },
            {
                name    => 'disable_sendfile',
                type    => 'boolean',
                default => 0,
                about   =>
                    'Files are read and sent piece by piece, as what is no file: for file systems from which'
                    . ' C<sendfile(2)> does not work.',
            },
            {
                name   => 'sync_file_threshold',
                type   => 'bytes',
                engine => 'file_loop_bytes_max',
                live   => 1,
                about  =>
                    'Files of responses that are longer are sent without waiting for their storage: what is not'
                    . ' in memory is read by other threads, while everybody else is served (Linux). Up to so many'
                    . ' bytes are read at once, wherever they are. 0: no file is, for files on a network.',
            },
        )
    ],
    [
        'Times, in seconds' => (
            {
                name   => 'timeout',
                type   => 'seconds',
                engine => 'idle_ms',
                scale  => 1000,
                live   => 1,
                about  => 'How long a connection may wait without a request. It never ends a request that is'
                    . ' running. 0: no limit.',
            },
            {
                name   => 'queue_timeout',
                type   => 'seconds',
                engine => 'queue_ms',
                scale  => 1000,
                live   => 1,
                about  =>
                    'How long a request may wait for a worker that is idle, with C<--engine process>; then it'
                    . ' is answered with 503 and C<Retry-After>.',
            },
            {
                name   => 'header_timeout',
                type   => 'seconds',
                engine => 'head_ms',
                scale  => 1000,
                live   => 1,
                about  =>
                    'From the first byte of a request head to its end (408). A trickle does not extend it.',
            },
            {
                name   => 'tls_handshake_timeout',
                type   => 'seconds',
                engine => 'handshake_ms',
                scale  => 1000,
                live   => 1,
                about  =>
                    'From accepting a TLS connection to the end of its handshake. A trickle does not extend'
                    . ' it.',
            },
            {
                name   => 'body_timeout',
                type   => 'seconds',
                engine => 'body_ms',
                scale  => 1000,
                live   => 1,
                about  =>
                    'How long a request body that the application waits for may stall (408). 0: no limit.',
            },
            {
                name   => 'min_body_rate',
                type   => 'bytes',
                engine => 'body_rate_min',
                live   => 1,
                about  =>
                    'So many bytes of body pay for a second of C<body_timeout>: a trickle does not keep it'
                    . ' from passing.',
            },
            {
                name   => 'write_timeout',
                type   => 'seconds',
                engine => 'write_ms',
                scale  => 1000,
                live   => 1,
                about  => 'How long a peer may not take its response. 0: no limit.',
            },
            {
                name   => 'min_write_rate',
                type   => 'bytes',
                engine => 'write_rate_min',
                live   => 1,
                about  => 'So many bytes that it takes pay for a second of C<write_timeout>.',
            },
            {
                name   => 'request_timeout',
                type   => 'seconds',
                engine => 'request_idle_ms',
                scale  => 1000,
                live   => 1,
                about  => 'How long a request may go without a byte in or out, an application that works in'
                    . ' silence included. 0: no limit.',
            },
            {
                name   => 'ws_idle_timeout',
                type   => 'seconds',
                engine => 'websocket_idle_ms',
                scale  => 1000,
                live   => 1,
                about  => 'How long a WebSocket may pass without a byte in either direction.'
                    . ' C<websocket.keepalive> is the better way to find peers that are gone. 0: no'
                    . ' limit.',
            },
            {
                name   => 'sse_idle_timeout',
                type   => 'seconds',
                engine => 'stream_idle_ms',
                scale  => 1000,
                live   => 1,
                about  =>
                    'How long an event stream may pass without a byte sent, comments of C<sse.keepalive>'
                    . ' included. 0: no limit.',
            },
            {
                name    => 'shutdown_timeout',
                type    => 'seconds',
                default => 30,
                min     => 0,
                max     => 86_400,
                live    => 1,
                about   =>
                    "How long a stop may take. Of that, 5 seconds, or a quarter where that is less, are kept for"
                    . " the application's lifespan shutdown; requests in flight have the rest. A worker process"
                    . ' that has not ended by then is killed, as is a single process whose application has'
                    . ' not returned since the signal (after 2 seconds at the earliest).',
            },
        )
    ],
    [
        'Logs' => (
            {
                name  => 'status',
                type  => 'listen',
                arg   => 'ADDRESS',
                shown => 'none',
                about => 'What the server is at, for Prometheus and for people, at an address of its own:'
                    . ' C<127.0.0.1:9100>, or the path of a Unix socket, see'
                    . ' L<PAGI::Server/OBSERVABILITY>. Whoever can connect sees it; a start warns when'
                    . ' that is more than this machine.',
            },
            {
                name  => 'status_hosts',
                type  => 'hosts',
                arg   => 'NAMES',
                shown => 'none',
                about => 'Names by which people ask for the status, separated by commas. Under an address or'
                    . ' C<localhost> it always answers, under any other name with 421: a page of another'
                    . ' site could have led a browser there by a name of its own (DNS rebinding).',
            },
            {
                name    => 'access_log',
                type    => 'log',
                default => \*STDERR,
                shown   => '\*STDERR',
                arg     => 'FILE',
                live    => 1,
                about   =>
                    'Where the L<access log|PAGI::Server/ACCESS LOG> goes: a path, C<-> for standard output,'
                    . ' a file handle, an object with C<print>, or undef for none. A terminal is slow: a'
                    . ' start that finds the log there warns. L<pagi-server> has another default in'
                    . ' production.',
                shown_command =>
                    'standard error, or the file of C<--error-log>; in production and with C<--daemonize>'
                    . ' none',
                about_command =>
                    'Where the L<access log|PAGI::Server/ACCESS LOG> goes: a path, or C<-> for standard'
                    . ' output. A terminal is slow: a start that finds the log there warns.',
            },
            {
                name    => 'access_log_format',
                type    => 'format',
                default => 'clf',
                arg     => 'FORMAT',
                live    => 1,
                about   =>
                    'C<clf>, C<combined>, C<common>, C<tiny>, C<json>, or L<atoms|PAGI::Server/ACCESS LOG>.',
            },
            {
                name   => 'access_log_buffer',
                type   => 'bytes',
                engine => 'access_log_bytes',
                live   => 1,
                about  => 'Bytes of lines that wait for a slow disk or pipe. What is beyond it is dropped and'
                    . ' counted.',
            },
            {
                name    => 'log_level',
                type    => 'choice',
                of      => [qw(error warn info debug)],
                default => 'info',
                live    => 1,
                about   => 'The least important level that the server logs. Messages go through C<warn>.',
            },
            {
                name    => 'log_format',
                type    => 'choice',
                of      => [qw(text json)],
                default => 'text',
                live    => 1,
                about   => 'C<json>: each message is a line with an object, see L<PAGI::Server/MESSAGES>.',
            },
            {
                name    => 'quiet',
                short   => 'q',
                type    => 'boolean',
                default => 0,
                live    => 1,
                about   => 'Log errors only.',
            },
        )
    ],
    [
        'Processes' => (
            {
                name    => 'workers',
                short   => 'w',
                type    => 'workers',
                default => 0,
                min     => 0,
                max     => 1024,
                arg     => 'NUMBER|auto',
                about   =>
                    'Worker processes, see L<PAGI::Server/WORKERS>; C<auto>: as many as there are processors'
                    . ' for this process. 0: the process serves by itself.',
            },
            {
                name    => 'preload_app',
                type    => 'boolean',
                default => 0,
                about   => 'The application is loaded once, by a process that forks the workers, see'
                    . ' L<PAGI::Server/Preloading>. Linux only. In a program that makes the server itself it has no'
                    . ' effect, for the application is there before; nor has it with C<--reload>.',
            },
            {
                name    => 'max_requests',
                type    => 'integer',
                default => 0,
                min     => 0,
                max     => 1_000_000_000,
                about   =>
                    'Requests after which a worker process is replaced, see L<PAGI::Server/WORKERS>; one to'
                    . ' ten percent fewer for each, by chance, so that not all are replaced at once. 0:'
                    . ' never. Without workers it has no effect, like the others here.',
            },
            {
                name    => 'max_worker_age',
                type    => 'seconds',
                default => 0,
                min     => 0,
                max     => 31_536_000,
                about   =>
                    'Seconds after which a worker process is replaced, less one to ten percent. 0: never.',
            },
            {
                name    => 'max_worker_rss',
                type    => 'bytes',
                default => 0,
                min     => 0,
                max     => 1 << 50,
                least   => 1 << 20,
                about   =>
                    'Bytes of physical memory from which on a worker process is replaced. What it shares with'
                    . ' others (C<preload_app>) does not count where the kernel tells (4.14). A worker that has'
                    . ' more from its start serves for a minute, and the log says so. Linux only. 0: never.',
            },
            {
                name    => 'recycle_timeout',
                type    => 'seconds',
                default => 60,
                min     => 0,
                max     => 86_400,
                about   => 'How long a worker process that is replaced for one of these reasons waits for its'
                    . ' WebSockets and event streams before it closes them (1012).',
            },
            {
                name   => 'retire_idle',
                type   => 'seconds',
                engine => 'retire_idle_ms',
                scale  => 1000,
                live   => 1,
                about  => 'How long a worker process that is replaced keeps a connection open for one last'
                    . ' request, which is answered with C<Connection: close>.',
            },
            {
                name    => 'request_kill_timeout',
                type    => 'seconds',
                default => 0,
                min     => 0,
                max     => 86_400,
                about   =>
                    'How long one request may keep its worker process, in Perl or blocked in a library, before that'
                    . ' worker is killed and another one takes its place; the log has the request and the stack of'
                    . ' Perl functions. What an application awaits meanwhile does not count. It is looked at twice a'
                    . ' second. 0: for ever. See L<PAGI::Server/Workers that are stuck>, and for interpreters that'
                    . ' are threads L<Plack::Handler::EVHTP/What threads cannot do>.',
            },
            {
                name    => 'heartbeat_timeout',
                type    => 'seconds',
                default => 50,
                psgi    => 0,
                min     => 0,
                max     => 86_400,
                about   =>
                    'How long a worker process may go without coming back to its event loop before it is'
                    . ' killed and another one takes its place. 0: for ever, but 50 seconds for a process that no'
                    . ' application can block: that of the engine with C<process>, and one whose workers are'
                    . ' threads. Where there is an application of PSGI, which may block as long as it likes, the'
                    . ' default is 0.',
            },
        )
    ],
);

sub sections { return @SECTIONS }

1;

__END__

=encoding UTF-8

=head1 NAME

PAGI::Server::Options::Table - the options of PAGI::Server and pagi-server as data

=head1 SYNOPSIS

    for my $section (PAGI::Server::Options::Table::sections()) {
        my ($title, @options) = @$section;
        print "$title: @{[ map { $_->{name} } @options ]}\n";
    }

=head1 DESCRIPTION

What the keys of an option mean is written at the head of the table. L<PAGI::Server::Options> reads it.

=head1 FUNCTIONS

=head2 sections

    my @sections = PAGI::Server::Options::Table::sections();

Array references with a title and the options that belong under it.

=head1 LICENSE

This library is free software; you can redistribute it and/or modify it under the same terms as Perl
itself.

=cut
