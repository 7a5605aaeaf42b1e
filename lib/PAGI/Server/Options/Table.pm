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
                name       => 'engine',
                type       => 'choice',
                of         => [qw(inline thread process)],
                default    => 'inline',
                default_of => { evhtp => 'thread' },
                variable   => 'PEREGRINE_ENGINE',
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
                about   =>
                    "How long the application's startup may take. A worker process, which loads its application"
                    . ' before, has C<heartbeat_timeout> more, or a minute where that is 0; one that has not'
                    . ' started by then is killed. 0: no limit.',
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
                about => 'Check the type of each field of each event that the application sends, see'
                    . ' L<PAGI::Server::EventCheck>. An event that the server cannot act on fails without'
                    . ' this option, too; the check finds mistakes that would go unnoticed. It costs a few'
                    . ' microseconds an event.',
            },
            {
                name  => 'static',
                type  => 'folders',
                many  => 1,
                arg   => 'PATH=FOLDER[,host=NAME][,max_age=SECONDS]',
                shown => 'none',
                about => 'Folders whose files the engine serves by itself, see L<PAGI::Server::Folders>: an'
                    . ' array reference of C</static=public> and the like. The application gets the'
                    . ' requests for which there is no file.',
                about_command =>
                    'Serve the files of that folder below the path, C</static=public> for instance,'
                    . ' without the application, see L<PAGI::Server::Folders>. The application gets the'
                    . ' requests for which there is no file.',
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
                about   => 'Bytes from which on a response of known length is compressed. A shorter one would'
                    . ' hardly get shorter.',
            },
            {
                name    => 'compress_authenticated',
                type    => 'boolean',
                default => 0,
                about   => 'Compress also the responses to requests with C<Cookie> or C<Authorization>, and'
                    . ' responses with C<Set-Cookie>. The length of such a response may tell an attacker'
                    . ' about secrets in it (BREACH).',
            },
            {
                name     => 'on_error',
                flag     => '',
                type     => 'code',
                optional => 1,
                live     => 1,
                shown    => 'none',
                about    => 'A function that is called when the application or a callback dies: with the'
                    . ' exception, the scope of the request (undef outside of a request), and the hash'
                    . ' reference of L<PAGI::Server::RequestName/of> that describes the request.',
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
                about  => 'The kernel encrypts output, if Linux has its module C<tls>. Clients that ask for'
                    . ' new keys are cut off.',
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
                about  => 'Connections open at once. 0: as many as the limit on open files (C<ulimit -n>)'
                    . ' allows, less 50, and less 12 for each interpreter that is a clone, 3 for each that'
                    . ' joins an engine in another process. Further connections are answered with 503 and'
                    . ' C<Retry-After>.',
            },
            {
                name   => 'max_connections_per_address',
                type   => 'integer',
                engine => 'address_connections_max',
                live   => 1,
                about  => 'Connections that one client address may have open; of an IPv6 address the first 64'
                    . ' bits count. Further connections are answered with 429 and C<Retry-After>, over TLS'
                    . ' closed before the handshake. 0: no limit. A proxy in front of the server is one'
                    . ' address.',
            },
            {
                name   => 'max_connection_rate_per_address',
                type   => 'integer',
                engine => 'address_rate_max',
                live   => 1,
                about  => 'New connections per second of one client address, on average; as many as in a'
                    . ' second may come at once. Further connections are answered as for'
                    . ' C<max_connections_per_address>. 0: no limit.',
            },
            {
                name   => 'memory_max',
                type   => 'bytes',
                engine => 'memory_bytes_max',
                live   => 1,
                least  => 16 * 1024 * 1024,     # less than the process holds when it has just started
                shown  => '3/4 of what the system allows',
                about  => 'Bytes of physical memory that the process may hold, see L<PAGI::Server/MEMORY>.'
                    . ' When it holds more, unfinished requests are refused, the largest and newest first,'
                    . ' with 503, or 413 for a body that is on its way. The system\'s limit is that of the'
                    . ' control group (of a container), if there is one. Where address space has a limit'
                    . ' (C<ulimit -v>), three quarters of that are a limit as well. 0: no limit; other'
                    . ' values are at least 16M.',
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
                about  => 'Requests that one connection may send; it is closed after the answer to the last'
                    . ' one. 0: no limit.',
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
                about  => 'With C<--engine process>: requests that may wait while all workers are busy.'
                    . ' Further requests are answered with 503 and C<Retry-After>.',
            },
            {
                name    => 'max_concurrency',
                type    => 'integer',
                default => 0,
                min     => 0,
                max     => 1_000_000,
                about   => 'With C<--engine process>, and with workers that are threads: requests that one'
                    . ' worker works on at the same time; further requests wait in the queue. A request'
                    . ' counts while its application works on it, but not while the application waits for'
                    . ' the client: in C<$receive>, for output to leave, or with a WebSocket or an event'
                    . ' stream that it has accepted. 0: no limit, because a busy worker gets no requests'
                    . ' as long as another one is idle.',
            },
            {
                name    => 'underscores_in_headers',
                type    => 'boolean',
                default => 0,
                about   => 'Applications of PSGI get header fields whose names contain an underscore. In the'
                    . ' environment such a field has the name of the field with a dash in its place, so'
                    . ' switch this on only if the application trusts no field that a proxy removes or'
                    . ' sets.',
            },
            {
                name   => 'body_buffer_size',
                type   => 'bytes',
                engine => 'body_memory_bytes_max',
                live   => 1,
                about  => 'Bytes of a request body that are kept in memory, for applications that get bodies'
                    . ' whole (applications of PSGI). A longer body goes to a temporary file.',
            },
            {
                name   => 'max_body_spool',
                type   => 'bytes',
                engine => 'body_file_bytes_max',
                live   => 1,
                about  => 'Bytes that the temporary files of all request bodies may hold, in each process'
                    . ' (507). A twentieth of their file system, at most 256 MiB, stays free in any case.'
                    . ' Files on a file system in memory count for C<memory_max>. 0: no limit but the'
                    . ' disk.',
            },
            {
                name   => 'max_upload_bytes_per_address',
                type   => 'bytes',
                engine => 'address_upload_bytes_max',
                live   => 1,
                about  => 'Bytes that incomplete request bodies of one client address may take in memory and'
                    . ' in temporary files, in each process, for applications that get bodies whole; of an'
                    . ' IPv6 address the first 64 bits count. A further body is answered with 429 and'
                    . ' C<Retry-After>, unless it is the only body of its address or not longer than 64'
                    . ' KiB. The PROXY protocol or a trusted proxy names the client. Clients on Unix'
                    . ' sockets, and requests for which a trusted proxy names no client, are exempt. 0: no'
                    . ' limit.',
            },
            {
                name    => 'response_buffer',
                type    => 'bytes',
                default => 64 << 20,
                min     => 0,
                max     => 1 << 50,
                about   => 'For applications of PSGI with C<--engine thread> or C<process>: bytes of one'
                    . ' response that may wait in a temporary file, after a mebibyte in memory, so that a'
                    . ' slow client does not keep the application. These files count for'
                    . ' C<max_body_spool>. 0: no such files.',
            },
            {
                name  => 'body_folder',
                arg   => 'FOLDER',
                type  => 'string',
                about => 'The folder of temporary files. The files have no names, so nothing is left behind.'
                    . ' Default: the folder in C<TMPDIR>, or F</tmp>.',
            },
            {
                name   => 'max_receive_queue',
                type   => 'integer',
                engine => 'queue_messages_max',
                live   => 1,
                about  => 'Messages of one WebSocket that may wait for the application. A further message'
                    . ' closes the WebSocket with 1008 and C<Message queue overflow>; the application gets'
                    . ' the messages that wait, then a C<websocket.disconnect> with C<queue_overflow>.',
            },
            {
                name   => 'max_receive_queue_size',
                type   => 'bytes',
                engine => 'queue_bytes_max',
                live   => 1,
                about  => 'Bytes of messages of one WebSocket that may wait for the application. When they'
                    . ' are reached, the server stops reading from the peer until the application has'
                    . ' taken half of them. Messages above 64 KiB never wait here: the server reads and'
                    . ' inflates such a message when the application asks for it.',
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
                about  => 'Compress WebSocket messages for clients that offer it (permessage-deflate, RFC'
                    . ' 7692). Every message is compressed by itself, without context takeover, so that an'
                    . ' idle WebSocket holds no memory for compression, and the size of a message tells'
                    . ' nothing about another. Turn this off where messages mix secrets with text that an'
                    . ' attacker may choose.',
            },
            {
                name   => 'ws_deflate_min_size',
                type   => 'bytes',
                engine => 'deflate_bytes_min',
                live   => 1,
                about  => 'Bytes from which on a message is compressed. A message that does not get shorter'
                    . ' goes out uncompressed.',
            },
            {
                name   => 'write_high_watermark',
                type   => 'bytes',
                engine => 'write_high_bytes',
                live   => 1,
                about  => 'Bytes of output that wait for the peer: from this many on, C<$send> returns a'
                    . ' pending Future.',
            },
            {
                name   => 'write_low_watermark',
                type   => 'bytes',
                engine => 'write_low_bytes',
                live   => 1,
                about  => 'Bytes of output that wait for the peer: when fewer are left, pending Futures of'
                    . ' C<$send> resolve.',
            },
            {
                name    => 'disable_sendfile',
                type    => 'boolean',
                default => 0,
                about   => 'Files are read and sent piece by piece, without C<sendfile(2)>: for file systems'
                    . ' where that does not work.',
            },
            {
                name   => 'sync_file_threshold',
                type   => 'bytes',
                engine => 'file_loop_bytes_max',
                live   => 1,
                about  => 'Files of this size or less are read at once. For a longer file of a response,'
                    . ' other threads read the parts that are not in memory, so that other requests are'
                    . ' served meanwhile (Linux). 0: other threads read all files, for files on a network.',
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
                about  => 'How long a connection may wait for a request. A running request is never ended by'
                    . ' this. 0: no limit.',
            },
            {
                name   => 'queue_timeout',
                type   => 'seconds',
                engine => 'queue_ms',
                scale  => 1000,
                live   => 1,
                about  => 'How long a request may wait for an idle worker, with C<--engine process>. After'
                    . ' that it is answered with 503 and C<Retry-After>.',
            },
            {
                name   => 'header_timeout',
                type   => 'seconds',
                engine => 'head_ms',
                scale  => 1000,
                live   => 1,
                about  => 'How long a request head may take, from its first byte to its end (408). Bytes that'
                    . ' trickle in do not extend this time.',
            },
            {
                name   => 'tls_handshake_timeout',
                type   => 'seconds',
                engine => 'handshake_ms',
                scale  => 1000,
                live   => 1,
                about  => 'How long the handshake of a TLS connection may take, from the moment when it is'
                    . ' accepted. Bytes that trickle in do not extend this time.',
            },
            {
                name   => 'body_timeout',
                type   => 'seconds',
                engine => 'body_ms',
                scale  => 1000,
                live   => 1,
                about  => 'How long a request body may stall while the application waits for it (408). 0: no'
                    . ' limit.',
            },
            {
                name   => 'min_body_rate',
                type   => 'bytes',
                engine => 'body_rate_min',
                live   => 1,
                about  => 'Each C<min_body_rate> bytes of a request body extend the deadline of'
                    . ' C<body_timeout> by one second, so a client cannot hold a request open by sending a'
                    . ' byte now and then.',
            },
            {
                name   => 'write_timeout',
                type   => 'seconds',
                engine => 'write_ms',
                scale  => 1000,
                live   => 1,
                about  => 'How long a peer may leave its response unread. 0: no limit.',
            },
            {
                name   => 'min_write_rate',
                type   => 'bytes',
                engine => 'write_rate_min',
                live   => 1,
                about  => 'Each C<min_write_rate> bytes that the peer takes extend the deadline of'
                    . ' C<write_timeout> by one second.',
            },
            {
                name   => 'request_timeout',
                type   => 'seconds',
                engine => 'request_idle_ms',
                scale  => 1000,
                live   => 1,
                about  => 'How long a request may go without a byte in or out. The time in which an'
                    . ' application works in silence counts as well. 0: no limit.',
            },
            {
                name   => 'ws_idle_timeout',
                type   => 'seconds',
                engine => 'websocket_idle_ms',
                scale  => 1000,
                live   => 1,
                about  => 'How long a WebSocket may go without a byte in either direction.'
                    . ' C<websocket.keepalive> is the better way to find peers that are gone. 0: no limit.',
            },
            {
                name   => 'sse_idle_timeout',
                type   => 'seconds',
                engine => 'stream_idle_ms',
                scale  => 1000,
                live   => 1,
                about  => 'How long an event stream may go without sending a byte; comments of'
                    . ' C<sse.keepalive> are bytes, too. 0: no limit.',
            },
            {
                name    => 'shutdown_timeout',
                type    => 'seconds',
                default => 30,
                min     => 0,
                max     => 86_400,
                live    => 1,
                about   => 'How long a stop may take. The last 5 seconds, or the last quarter where that is'
                    . ' less, are kept for the application\'s lifespan shutdown; requests in flight have'
                    . ' the time before. A worker process that has not ended by then is killed, as is a'
                    . ' single process whose application has not returned since the signal (after 2'
                    . ' seconds at the earliest).',
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
                about => 'An address at which the server tells its status, to Prometheus and to people:'
                    . ' C<127.0.0.1:9100>, or the path of a Unix socket, see'
                    . ' L<PAGI::Server/OBSERVABILITY>. Everybody who can connect to it sees the status;'
                    . ' the start warns if other machines can.',
            },
            {
                name  => 'status_hosts',
                type  => 'hosts',
                arg   => 'NAMES',
                shown => 'none',
                about => 'Host names for which the status is told, separated by commas. Requests for an IP'
                    . ' address or C<localhost> are always answered. Requests for other names get 421,'
                    . ' because a page of another site could have sent a browser there by a name of its'
                    . ' own (DNS rebinding).',
            },
            {
                name       => 'access_log',
                type       => 'log',
                default    => \*STDERR,
                default_of => { plackup => undef },
                shown      => '\*STDERR',
                arg        => 'FILE',
                live       => 1,
                about => 'Where the L<access log|PAGI::Server/ACCESS LOG> goes: a path, C<-> for standard'
                    . ' output, a file handle, an object with C<print>, or undef for none. A terminal is'
                    . ' slow: the start warns if the log goes there. L<pagi-server> has another default in'
                    . ' production.',
                shown_command =>
                    'standard error, or the file of C<--error-log>; in production and with C<--daemonize>'
                    . ' none',
                about_command =>
                    'Where the L<access log|PAGI::Server/ACCESS LOG> goes: a path, or C<-> for standard'
                    . ' output. A terminal is slow: the start warns if the log goes there.',
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
                about  => 'Bytes of lines that may wait for a slow disk or pipe. Further lines are dropped'
                    . ' and counted.',
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
                name       => 'workers',
                short      => 'w',
                type       => 'workers',
                default    => 0,
                default_of => { evhtp => 8 },
                min        => 0,
                max        => 1024,
                arg        => 'NUMBER|auto',
                about      =>
                    'Worker processes, see L<PAGI::Server/WORKERS>; C<auto>: as many as there are processors'
                    . ' for this process. 0: the process serves by itself.',
            },
            {
                name    => 'preload_app',
                type    => 'boolean',
                default => 0,
                about   => 'The application is loaded once, by a process that forks the workers, see'
                    . ' L<PAGI::Server/Preloading>. Linux only. It has no effect with C<--reload>, nor in'
                    . ' a program that makes the server itself: that has loaded the application before.',
            },
            {
                name    => 'max_requests',
                type    => 'integer',
                default => 0,
                min     => 0,
                max     => 1_000_000_000,
                about   => 'Requests after which a worker process is replaced, see L<PAGI::Server/WORKERS>.'
                    . ' For each worker the number is one to ten percent lower, chosen by chance, so that'
                    . ' not all workers are replaced at once. 0: never. Like the other options of this'
                    . ' section, it has no effect without workers.',
            },
            {
                name    => 'max_worker_age',
                type    => 'seconds',
                default => 0,
                min     => 0,
                max     => 31_536_000,
                about   => 'Seconds after which a worker process is replaced, less one to ten percent by'
                    . ' chance. 0: never.',
            },
            {
                name    => 'max_worker_rss',
                type    => 'bytes',
                default => 0,
                min     => 0,
                max     => 1 << 50,
                least   => 1 << 20,
                about   => 'Bytes of physical memory from which on a worker process is replaced. Memory that'
                    . ' it shares with other processes (C<preload_app>) does not count if the kernel'
                    . ' reports it (Linux 4.14). A worker that holds more from its start serves for a'
                    . ' minute, and the log says so. Linux only. 0: never.',
            },
            {
                name    => 'recycle_timeout',
                type    => 'seconds',
                default => 60,
                min     => 0,
                max     => 86_400,
                about   => 'How long a worker process that is replaced by C<max_requests>, C<max_worker_age>'
                    . ' or C<max_worker_rss> waits for the ends of its WebSockets and event streams before'
                    . ' it closes them (1012).',
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
                about => 'How long one request may keep its worker process, in Perl or blocked in a library,'
                    . ' before that worker is killed and another one takes its place; the log has the'
                    . ' request and the stack of Perl functions. The time in which the application awaits'
                    . ' something does not count. The check runs twice a second. 0: for ever. See'
                    . ' L<PAGI::Server/Workers that are stuck>, and for interpreters that are threads'
                    . ' L<Plack::Handler::EVHTP/What threads cannot do>.',
            },
            {
                name       => 'heartbeat_timeout',
                type       => 'seconds',
                default    => 50,
                default_of => { psgi => 0, plackup => 0 },
                min        => 0,
                max        => 86_400,
                about => 'How long a worker process may go without coming back to its event loop before it'
                    . ' is killed and another one takes its place. 0: for ever, but 50 seconds for'
                    . ' processes that no application can block: the engine\'s process with C<process>, and'
                    . ' a process whose workers are threads. Where there is an application of PSGI, which'
                    . ' may block as long as it likes, the default is 0.',
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
