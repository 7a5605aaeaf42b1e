//! Every limit of the engine: its name, unit, default, range and the reason for the default. The only place
//! where a default lives: the C API, the Perl options and the manual's table are generated from or checked
//! against this file.
const std = @import("std");

/// The limits of a worker that options set. Times are milliseconds, sizes are bytes.
pub const Config = struct {
    /// Connections open at once; 0: the descriptor limit (RLIMIT_NOFILE) less `descriptors_reserved`.
    connections_max: u32 = 0,
    /// Descriptors kept free for files, logs and databases when `connections_max` is automatic.
    descriptors_reserved: u32 = 50,
    /// Connections that one client address may have open (IPv6: its first 64 bits); 0: no limit, because a
    /// proxy or the NAT of a university stands for many.
    address_connections_max: u32 = 0,
    /// New connections per second of one client address, on average; a second's worth may come at once. 0: no
    /// limit, for the same reason.
    address_rate_max: u32 = 0,
    /// The length of a request line. 8 KiB is what browsers, proxies and RFC 9112 section 3 (8,000 octets)
    /// agree on.
    request_line_bytes_max: u32 = 8192,
    /// The length of a request head. Large cookies fit; a head is held in memory while it is incomplete.
    head_bytes_max: u32 = 8192,
    /// Fields in one head. Common servers allow 100.
    header_count_max: u16 = 100,
    /// The length of the trailer section of a chunked request.
    trailer_bytes_max: u32 = 4096,
    /// The length of a chunk-size line with its extensions, which clients do not use and attackers stretch
    /// (CVE-2023-39326). All extensions of a body may have 64 times as many bytes (16 KiB), and one for each
    /// byte of content.
    chunk_line_bytes_max: u32 = 256,
    /// The length of a request body; 0: no limit.
    body_bytes_max: u64 = 10_000_000,
    /// Memory that a body which is gathered for its host may take; a longer body goes to a temporary file.
    /// Enough for forms and JSON; uploads of pictures go to the disk.
    body_memory_bytes_max: u32 = 1024 * 1024,
    /// Bytes in all files of request bodies of a worker (507); 0: no limit but the disk's. Default: a hundred
    /// of the largest bodies.
    body_file_bytes_max: u64 = 1_000_000_000,
    /// Bytes in memory and in files that incomplete gathered bodies of one client address (IPv6: its first 64
    /// bits) may have; further bodies are refused (429). The only body of an address may be longer. 0: no
    /// limit. Default: a quarter of all files, so that one client cannot fill the folder, and 25 of the
    /// largest bodies.
    address_upload_bytes_max: u64 = 250_000_000,
    /// Unread body that is discarded after the response, so that the connection can go on; with more unread
    /// body the connection closes.
    drain_bytes_max: u32 = 256 * 1024,
    /// Pipelined requests answered in one pass before other connections get their turn.
    pipeline_pass_max: u16 = 64,
    /// Bytes received from one connection before other connections get their turn; of a long body four times
    /// as many.
    receive_bytes: u32 = 64 * 1024,
    /// Bytes that the host gets in one round: heads, bodies and inflated messages, and 512 bytes for each
    /// event. The limit bounds a batch of events, and the time that connections wait for each other, to a few
    /// milliseconds. A message above 64 KiB counts as 64 KiB, and a round has only one.
    round_bytes: u32 = 1024 * 1024,
    /// Queued output at which the host is told to wait.
    write_high_bytes: u32 = 64 * 1024,
    /// Queued output below which a waiting host may go on.
    write_low_bytes: u32 = 16 * 1024,
    /// Response files up to this size are read in the worker's loop, from memory or disk, because a disk
    /// reads so few bytes at once. Of longer files, the loop sends only parts that are in memory; threads
    /// read the rest. 0: files of any size are treated as longer ones.
    file_loop_bytes_max: u32 = 65_536,
    /// The time for the header of the PROXY protocol, from accepting on, however its bytes come: a proxy
    /// sends the header at once, and a lost packet is sent again within 3 s.
    proxy_ms: u32 = 5_000,
    /// The time for a TLS handshake, from its first byte on, however its bytes come: the peer sends only two
    /// flights.
    handshake_ms: u32 = 10_000,
    /// Steps of TLS handshakes in one round, after the work for established connections. A step takes up to a
    /// millisecond.
    handshakes_pass_max: u16 = 4,
    /// The time for a request head, from its first byte on, however its bytes come: single bytes do not
    /// extend it.
    head_ms: u32 = 10_000,
    /// The time that a connection may be open without a request: before the first one and between two.
    idle_ms: u32 = 60_000,
    /// The time without progress of a request body for which the host waits. It is extended by
    /// `body_rate_min`.
    body_ms: u32 = 30_000,
    /// Each this many bytes of a body extend `body_ms` by one second of the time that has passed; fewer do
    /// not.
    body_rate_min: u32 = 500,
    /// The time without progress of output that the peer does not take. It is extended by `write_rate_min`.
    write_ms: u32 = 30_000,
    /// Each this many bytes that the peer takes extend `write_ms` by one second of the time that has passed.
    write_rate_min: u32 = 500,
    /// The time that the peer may take to read the last response and to close, before the socket is closed.
    linger_ms: u32 = 2_000,
    /// The time that a retiring worker waits for one last request on each open connection, which it still
    /// answers.
    retire_idle_ms: u32 = 5_000,
    /// The time that an application behind a thread may be at one event before its worker stops accepting, so
    /// that other workers at the same sockets accept. 0: there are no other workers; a program that starts
    /// several workers sets it.
    accept_yield_ms: u32 = 0,
    /// The pause of accepting after descriptors or memory have run out.
    accept_pause_ms: u32 = 100,
    /// Physical memory of the process beyond which unfinished requests are refused, newest and largest first
    /// (503; 413 while the body comes). -1: three quarters of the limit of the control group (a container's
    /// limit); the rest is for bytes that come between two measurements. A limit of address space (RLIMIT_AS)
    /// is treated in the same way. 0: memory and address space are not measured.
    memory_bytes_max: i64 = -1,
    /// Access log lines that wait for a slow disk or pipe; more are dropped. Ten thousand lines: a stall of a
    /// third of a second at full load.
    access_log_bytes: u32 = 1024 * 1024,
    /// `Retry-After` of the 503 or 429 that a connection over a limit gets, in seconds.
    retry_after_s: u32 = 5,
    /// Requests that wait for an interpreter while all are busy; further requests are refused (503). About as
    /// many as there may be connections: users notice the time that they wait (`queue_ms`), not the number.
    queue_max: u32 = 20_000,
    /// The time that a request may wait for an interpreter, after which it is refused (503). A browser's user
    /// has given up by then.
    queue_ms: u32 = 30_000,
    /// The length of the payload of a WebSocket frame.
    frame_bytes_max: u32 = 65_536,
    /// The length of a WebSocket message, after inflation.
    message_bytes_max: u32 = 16 * 1024 * 1024,
    /// The time that the peer has to answer a WebSocket close frame.
    close_ms: u32 = 5_000,
    /// Requests on one connection; the response to the last one closes the connection. 0: no limit, since an
    /// open connection costs little, and a new one costs a handshake.
    connection_requests_max: u32 = 0,
    /// The time without a byte in either direction after which a request ends; 0: no limit, because an
    /// application may take long.
    request_idle_ms: u32 = 0,
    /// The time without a byte in either direction after which a WebSocket ends; 0: no limit, because pings
    /// are the better way to find dead peers.
    websocket_idle_ms: u32 = 0,
    /// Messages that wait for a host which takes them one by one; a further message ends the WebSocket.
    /// Enough for a burst, too few for a host that does not listen at all. The host keeps the queue and the
    /// count.
    queue_messages_max: u32 = 1_000,
    /// Bytes of waiting messages at which the peer is not read any more, until the host has taken some. A
    /// healthy application has far fewer waiting, and 1,000 small messages reach `queue_messages_max` first.
    queue_bytes_max: u32 = 1024 * 1024,
    /// Held responses of the engine. Each takes a connection's memory, and no time of an interpreter.
    held_max: u32 = 10_000,
    /// The time without a byte after which an event stream ends; 0: no limit, because comments at an interval
    /// are the better way to find dead peers. The host sets it for its event streams (setIdleLimit).
    stream_idle_ms: u32 = 0,
    /// WebSocket messages are compressed (permessage-deflate, RFC 7692) for clients that offer it, as
    /// browsers do. On, because with the defaults below it costs an idle WebSocket no memory, and short
    /// messages no time.
    deflate: bool = true,
    /// The kernel makes TLS records (Linux) where it can: files then go from the page cache to the network
    /// without a copy in this process. On, because connections that the kernel refuses are sealed by OpenSSL
    /// in this process.
    ktls: bool = true,
    /// The length from which messages are compressed. A message that fits one packet uncompressed arrives no
    /// sooner when it is smaller, and without context takeover short messages hardly shrink. With context
    /// takeover, 100 is a good value.
    deflate_bytes_min: u32 = 1024,
    /// Context takeover: earlier messages help to compress later ones, at up to 160 KiB for each WebSocket
    /// until it ends (server/compression.zig has a table). Off: 10,000 WebSockets would hold 1.6 GB. Off also
    /// keeps the size of a message from telling an attacker a secret of an earlier one (CRIME).
    deflate_server_takeover: bool = false,
    /// Like `deflate_server_takeover`, for messages of clients: up to 32 KiB for each WebSocket that got a
    /// compressed message. Off: the handshake tells the client so.
    deflate_client_takeover: bool = false,
    /// log2 of the window for sent messages. It matters with context takeover only: 12 takes 24 KiB instead
    /// of 160, and compresses short messages as well.
    deflate_server_window_bits: u8 = 15,
    /// log2 of the window for messages of clients. Below 15, messages are not compressed for clients whose
    /// offer does not allow a smaller window.
    deflate_client_window_bits: u8 = 15,

    /// Where HTTP/2 is spoken. Not in the clear by default: a proxy that does not know HTTP/2 passes on
    /// requests that it has not seen.
    http2: Multiplexing = .over_tls,
    /// Streams of an HTTP/2 connection that may be open at a time. RFC 9113 section 6.5.2 recommends no fewer
    /// than 100, and browsers open no more.
    h2_streams_max: u16 = 100,
    /// Unread content of a stream's request, on its way and waiting for the application. Default: the initial
    /// window of RFC 9113 section 6.9.2.
    h2_window_bytes: u32 = 65_535,
    /// Like `h2_window_bytes`, for all streams of a connection together: enough for an upload at 80 Mbit/s
    /// and 100 ms.
    h2_connection_window_bytes: u32 = 1 << 20,
    /// The payload of a frame of a request's body. Default: the least value that RFC 9113 allows; larger
    /// frames save little work with large uploads.
    h2_frame_bytes_max: u32 = 16_384,
    /// The header fields of a request on a stream, in bytes as RFC 9113 section 6.5.2 counts them: 32 more
    /// for each field.
    h2_list_bytes_max: u32 = 65_536,
    /// WebSockets on streams (CONNECT with a protocol, RFC 8441).
    h2_connect: bool = true,
    /// Streams that may end before their responses in a burst, because the peer reset them or broke the
    /// rules. A further one ends the connection (CVE-2023-44487).
    h2_resets_max: u32 = 1000,
    /// Streams that may end so per second, after the burst of `h2_resets_max`.
    h2_resets_rate: u32 = 33,

    /// Connections on which clients may speak HTTP/2 (RFC 9113 section 3).
    pub const Multiplexing = enum(i8) {
        /// Clients that offer HTTP/2 over TLS (ALPN) may use it.
        over_tls = -1,
        /// No connection carries more than one request at a time.
        off = 0,
        /// Clients may use it over TLS, and in the clear if they begin with its preface (prior knowledge).
        everywhere = 1,
    };

    /// The range and unit of an option, and one line about it for the manual.
    pub const Rule = struct { min: i64 = 0, max: i64, unit: Unit, summary: []const u8 };
    pub const Unit = enum { count, bytes, milliseconds, seconds, bytes_per_second, bits, boolean };

    const day_ms = 24 * 60 * 60 * 1000;
    const gib = 1 << 30;

    /// Ranges, by field name; `option()` joins them with the defaults above.
    pub const rules = .{
        .connections_max = Rule{
            .max = 10_000_000,
            .unit = .count,
            .summary = "Connections open at once; 0: what the descriptor limit leaves",
        },
        .descriptors_reserved = Rule{
            .max = 1_000_000,
            .unit = .count,
            .summary = "Descriptors kept free when connections_max is automatic",
        },
        .address_connections_max = Rule{
            .max = 10_000_000,
            .unit = .count,
            .summary = "Connections open at once per client address (429); 0: no limit",
        },
        .address_rate_max = Rule{
            .max = 1_000_000,
            .unit = .count,
            .summary = "New connections per second per client address (429); 0: no limit",
        },
        .request_line_bytes_max = Rule{
            .min = 64,
            .max = 1 << 20,
            .unit = .bytes,
            .summary = "Longest request line (414)",
        },
        .head_bytes_max = Rule{
            .min = 64,
            .max = 1 << 20,
            .unit = .bytes,
            .summary = "Largest request head (431)",
        },
        .header_count_max = Rule{
            .min = 1,
            .max = 10_000,
            .unit = .count,
            .summary = "Most header fields in a request (431)",
        },
        .trailer_bytes_max = Rule{
            .max = 1 << 20,
            .unit = .bytes,
            .summary = "Largest trailer section of a chunked request (431)",
        },
        .chunk_line_bytes_max = Rule{
            .min = 20,
            .max = 1 << 16,
            .unit = .bytes,
            .summary = "Longest chunk-size line with its extensions (400)",
        },
        .body_bytes_max = Rule{
            .max = 1 << 50,
            .unit = .bytes,
            .summary = "Largest request body (413); 0: no limit",
        },
        .body_memory_bytes_max = Rule{
            .min = 1,
            .max = gib,
            .unit = .bytes,
            .summary = "Request body that is gathered in memory; a longer one is in a file",
        },
        .body_file_bytes_max = Rule{
            .max = 1 << 50,
            .unit = .bytes,
            .summary = "Gathered request bodies in a worker's temporary files (507); 0: no limit",
        },
        .address_upload_bytes_max = Rule{
            .max = 1 << 50,
            .unit = .bytes,
            .summary = "Unfinished gathered request bodies of one client address (429); 0: no limit",
        },
        .drain_bytes_max = Rule{
            .max = gib,
            .unit = .bytes,
            .summary = "Unread request body that is discarded to keep the connection",
        },
        .pipeline_pass_max = Rule{
            .min = 1,
            .max = 10_000,
            .unit = .count,
            .summary = "Pipelined requests answered before other connections get their turn",
        },
        .receive_bytes = Rule{
            .min = 4096,
            .max = 1 << 20,
            .unit = .bytes,
            .summary = "Bytes received from one connection before others get their turn",
        },
        .round_bytes = Rule{
            .min = 4096,
            .max = gib,
            .unit = .bytes,
            .summary = "Bytes of events that the application gets in one round, decoded",
        },
        .write_high_bytes = Rule{
            .min = 1,
            .max = gib,
            .unit = .bytes,
            .summary = "Queued output at which a sender has to wait",
        },
        .write_low_bytes = Rule{
            .min = 1,
            .max = gib,
            .unit = .bytes,
            .summary = "Queued output below which a waiting sender goes on",
        },
        .file_loop_bytes_max = Rule{
            .max = gib,
            .unit = .bytes,
            .summary = "Response file that is read in the loop, in memory or not",
        },
        .proxy_ms = Rule{
            .min = 1,
            .max = day_ms,
            .unit = .milliseconds,
            .summary = "From accepting a proxy's connection to the end of its PROXY header",
        },
        .handshake_ms = Rule{
            .min = 1,
            .max = day_ms,
            .unit = .milliseconds,
            .summary = "From accepting a TLS connection to the end of its handshake",
        },
        .handshakes_pass_max = Rule{
            .min = 1,
            .max = 10_000,
            .unit = .count,
            .summary = "Steps of TLS handshakes before established connections get their turn",
        },
        .head_ms = Rule{
            .min = 1,
            .max = day_ms,
            .unit = .milliseconds,
            .summary = "From the first byte of a request head to its end (408)",
        },
        .idle_ms = Rule{
            .max = day_ms,
            .unit = .milliseconds,
            .summary = "A connection without a request; 0: no limit",
        },
        .body_ms = Rule{
            .max = day_ms,
            .unit = .milliseconds,
            .summary = "How long a request body may stall (408); 0: no limit",
        },
        .body_rate_min = Rule{
            .min = 1,
            .max = gib,
            .unit = .bytes_per_second,
            .summary = "Request body bytes that extend body_ms by a second",
        },
        .write_ms = Rule{
            .max = day_ms,
            .unit = .milliseconds,
            .summary = "How long a peer may not take its response; 0: no limit",
        },
        .write_rate_min = Rule{
            .min = 1,
            .max = gib,
            .unit = .bytes_per_second,
            .summary = "Response bytes that extend write_ms by a second",
        },
        .linger_ms = Rule{
            .max = day_ms,
            .unit = .milliseconds,
            .summary = "Time for the peer to read a last answer before the socket goes",
        },
        .retire_idle_ms = Rule{
            .max = day_ms,
            .unit = .milliseconds,
            .summary = "How long a worker that is replaced waits for a connection's last request",
        },
        .accept_yield_ms = Rule{
            .max = 60_000,
            .unit = .milliseconds,
            .summary = "How long an application behind a thread may be at one event " ++
                "before its worker leaves accepting to others; 0: there are none",
        },
        .accept_pause_ms = Rule{
            .min = 1,
            .max = day_ms,
            .unit = .milliseconds,
            .summary = "Pause of accepting after descriptors ran out",
        },
        .memory_bytes_max = Rule{
            .min = -1,
            .max = 1 << 50,
            .unit = .bytes,
            .summary = "Memory at which unfinished requests are refused (503, " ++
                "413); -1: 3/4 of the system's limit; 0: no limit",
        },
        .access_log_bytes = Rule{
            .min = 4096,
            .max = gib,
            .unit = .bytes,
            .summary = "Access log lines that wait for a slow file; more are dropped",
        },
        .retry_after_s = Rule{
            .max = 86_400,
            .unit = .seconds,
            .summary = "Retry-After of the 503 or 429 over a limit of connections",
        },
        .queue_max = Rule{
            .max = 1_000_000,
            .unit = .count,
            .summary = "Requests that wait for an interpreter (503)",
        },
        .queue_ms = Rule{
            .min = 1,
            .max = day_ms,
            .unit = .milliseconds,
            .summary = "How long a request may wait for an interpreter (503)",
        },
        .frame_bytes_max = Rule{
            .min = 1,
            .max = gib,
            .unit = .bytes,
            .summary = "Largest WebSocket frame (close code 1009)",
        },
        .message_bytes_max = Rule{
            .min = 1,
            .max = gib,
            .unit = .bytes,
            .summary = "Largest WebSocket message, inflated (close code 1009)",
        },
        .close_ms = Rule{
            .min = 1,
            .max = day_ms,
            .unit = .milliseconds,
            .summary = "Time for the peer to answer a WebSocket close",
        },
        .connection_requests_max = Rule{
            .max = 1_000_000_000,
            .unit = .count,
            .summary = "Requests of one connection; 0: no limit",
        },
        .request_idle_ms = Rule{
            .max = day_ms,
            .unit = .milliseconds,
            .summary = "A request on which nothing moves; 0: no limit",
        },
        .websocket_idle_ms = Rule{
            .max = day_ms,
            .unit = .milliseconds,
            .summary = "A WebSocket on which nothing moves; 0: no limit",
        },
        .held_max = Rule{
            .max = 10_000_000,
            .unit = .count,
            .summary = "Responses that are held open for topics; more are refused (503)",
        },
        .queue_messages_max = Rule{
            .min = 1,
            .max = 10_000_000,
            .unit = .count,
            .summary = "WebSocket messages that wait for the application (close code 1008)",
        },
        .queue_bytes_max = Rule{
            .min = 1,
            .max = gib,
            .unit = .bytes,
            .summary = "Bytes of waiting WebSocket messages at which the peer has to wait",
        },
        .stream_idle_ms = Rule{
            .max = day_ms,
            .unit = .milliseconds,
            .summary = "An event stream on which nothing moves; 0: no limit",
        },
        .ktls = Rule{
            .max = 1,
            .unit = .boolean,
            .summary = "Let the kernel seal what goes out over TLS, where it can",
        },
        .deflate = Rule{
            .max = 1,
            .unit = .boolean,
            .summary = "Compress WebSocket messages for clients that offer it (permessage-deflate)",
        },
        .deflate_bytes_min = Rule{
            .max = gib,
            .unit = .bytes,
            .summary = "Smallest WebSocket message that is compressed",
        },
        .deflate_server_takeover = Rule{
            .max = 1,
            .unit = .boolean,
            .summary = "Keep what was sent as history for compressing (memory per WebSocket)",
        },
        .deflate_client_takeover = Rule{
            .max = 1,
            .unit = .boolean,
            .summary = "Let clients keep what they sent as history (memory per WebSocket)",
        },
        .deflate_server_window_bits = Rule{
            .min = 8,
            .max = 15,
            .unit = .bits,
            .summary = "log2 of the window for WebSocket messages that are sent",
        },
        .deflate_client_window_bits = Rule{
            .min = 9,
            .max = 15,
            .unit = .bits,
            .summary = "log2 of the window for WebSocket messages of clients",
        },
        .http2 = Rule{
            .min = -1,
            .max = 1,
            .unit = .count,
            .summary = "HTTP/2: -1 over TLS (ALPN), 1 in the clear as well (prior knowledge), 0 not at all",
        },
        .h2_streams_max = Rule{
            .min = 1,
            .max = 10_000,
            .unit = .count,
            .summary = "Streams of an HTTP/2 connection that are open at a time",
        },
        .h2_window_bytes = Rule{
            .min = 1,
            .max = gib,
            .unit = .bytes,
            .summary = "Request content of an HTTP/2 stream that the application has not taken",
        },
        .h2_connection_window_bytes = Rule{
            .min = 65_535,
            .max = gib,
            .unit = .bytes,
            .summary = "Request content of all streams of an HTTP/2 connection that is not taken",
        },
        .h2_frame_bytes_max = Rule{
            .min = 16_384,
            .max = (1 << 24) - 1,
            .unit = .bytes,
            .summary = "Largest frame of content of an HTTP/2 client",
        },
        .h2_list_bytes_max = Rule{
            .min = 1024,
            .max = 1 << 20,
            .unit = .bytes,
            .summary = "Header fields of an HTTP/2 request, 32 bytes more for each (431)",
        },
        .h2_connect = Rule{
            .max = 1,
            .unit = .boolean,
            .summary = "Accept WebSockets on HTTP/2 streams (RFC 8441)",
        },
        .h2_resets_max = Rule{
            .min = 1,
            .max = 1_000_000,
            .unit = .count,
            .summary = "HTTP/2 streams that may be reset in a burst",
        },
        .h2_resets_rate = Rule{
            .min = 1,
            .max = 1_000_000,
            .unit = .count,
            .summary = "HTTP/2 streams that may be reset per second",
        },
    };

    /// An option's description, for manuals and other languages.
    pub const Option = struct {
        name: []const u8,
        rule: Rule,
        default: i64,
    };

    /// All options in the order of this file.
    pub const options: [names.len]Option = blk: {
        const defaults: Config = .{};
        var list: [names.len]Option = undefined;
        for (names, 0..) |name, i| {
            list[i] = .{
                .name = name,
                .rule = @field(rules, name),
                .default = number(@field(defaults, name)),
            };
        }
        break :blk list;
    };

    const names = @typeInfo(@TypeOf(rules)).@"struct".field_names;

    /// Reasons why an option is not set.
    pub const SetError = error{ UnknownOption, OutOfRange };

    pub fn set(config: *Config, name: []const u8, value: i64) SetError!void {
        inline for (names) |field| {
            if (std.mem.eql(u8, field, name)) {
                const rule: Rule = @field(rules, field);
                if (value < rule.min or value > rule.max) return error.OutOfRange;
                const place = &@field(config, field);
                place.* = switch (@typeInfo(@TypeOf(place.*))) {
                    .bool => value != 0,
                    .@"enum" => @fromBackingInt(@intCast(value)), // the option's range has no gaps
                    else => @intCast(value),
                };
                return;
            }
        }
        return error.UnknownOption;
    }

    pub fn get(config: *const Config, name: []const u8) SetError!i64 {
        inline for (names) |field| {
            if (std.mem.eql(u8, field, name)) return number(@field(config, field));
        }
        return error.UnknownOption;
    }

    /// The first option that lies outside its range, with its value in place of the default; null: none does.
    pub fn outOfRange(config: *const Config) ?Option {
        inline for (names) |field| {
            const rule: Rule = @field(rules, field);
            const value = number(@field(config, field));
            if (value < rule.min or value > rule.max) {
                return .{ .name = field, .rule = rule, .default = value };
            }
        }
        return null;
    }

    /// An option's value as a signed number. A value beyond that type becomes the largest one, which no range
    /// allows.
    fn number(value: anytype) i64 {
        return switch (@typeInfo(@TypeOf(value))) {
            .bool => @intFromBool(value),
            .@"enum" => @backingInt(value),
            else => std.math.lossyCast(i64, value),
        };
    }
};

comptime {
    for (@typeInfo(Config).@"struct".field_names) |name| {
        if (!@hasField(@TypeOf(Config.rules), name)) {
            @compileError("Config." ++ name ++ " has no rule: add its range and unit");
        }
    }
}

/// Records by which a reader of a trace may lag behind (trace.zig), a power of two. Busy servers make about
/// 200,000 a second, and a reader looks every 10 ms. They take 4 MiB, which is touched only while there is a
/// reader.
pub const trace_records_max: usize = 32 * 1024;

/// Limits of a worker that no option sets: for memory and time that peers and applications can ask for, and
/// for the work of one round. A name ends with the unit. A range that is not named goes from 1 to what memory
/// has.
pub const worker_limits = struct {
    /// The length of a response's head or trailer section, with the engine's own fields. Browsers read 256
    /// KiB, most clients and proxies less. The head lies in one piece of memory.
    pub const response_head_bytes_max = 256 * 1024;
    /// The length of a response whose head, framing and body are put together in one piece of memory. A
    /// longer body is copied to blocks of its own.
    pub const whole_response_bytes_max = 16 * 1024;
    /// Framed output that waits for the kernel. Further content waits unframed, where other streams can
    /// overtake it. The kernel takes this much in some milliseconds.
    pub const framed_bytes_max = 64 * 1024;
    /// Queued output of a connection at which its input is not read. Far above the high-water mark of hosts:
    /// only responses of the engine itself get there.
    pub const flood_bytes = 1024 * 1024;
    /// Bytes of a handshake that wait for their turn: more than a client without a certificate sends at once.
    pub const flight_bytes = 16 * 1024;
    /// Unsent bytes of a connection with streams that the kernel holds: more urgent content cannot overtake
    /// them. Enough for 100 us at 10 Gbit/s, the time until this process writes to the socket again.
    pub const stream_unsent_bytes_max = 128 * 1024;
    /// The time after which a connection without open streams gives back its memory for streams: requests of
    /// one page come closer together, and the next page costs an allocation or two.
    pub const stream_rest_ms: u64 = 1000;
    /// Bytes that a TLS connection may send before others get their turn, if its peer takes all of them at
    /// once.
    pub const tls_turn_bytes_max = 1024 * 1024;
    /// TLS connections whose sessions keep their buffers (34 KB each) while they are idle, so that a request
    /// takes no allocation. Sessions of further connections give them back after each record.
    pub const tls_buffers_kept_max = 64;
    /// The length of output that is sealed into memory which connections share, and is sent from there.
    pub const tls_alone_bytes_max = 4 * 1024;
    /// Bytes of a body that are collected for a file while the thread writes the bytes before them.
    pub const gathering_turn_bytes = 256 * 1024;
    /// A body counts for its client's address in steps of this number of bytes. The first step is free: a
    /// body that short is complete soon, and many forms fit it.
    pub const gathering_step_bytes = 64 * 1024;
    /// Bytes of a long body that are received at once, in sizes of the buffer that connections share: a
    /// quarter of what the host gets in a round. So a system call and an event are paid for by many bytes.
    pub const upload_buffers_max = 4;
    /// Memory that is taken when a body's length is announced; more memory is taken as the body comes.
    pub const trusted_length_bytes_max = 64 * 1024;
    /// Short messages of a WebSocket that its host gets before it asks: a hundred messages, for thousands of
    /// WebSockets. Each counts `messages_ahead_each_bytes` in addition, the memory of an empty message.
    pub const messages_ahead_bytes_max = 16 * 1024;
    pub const messages_ahead_each_bytes = 128;
    /// The length above which a host gets only one message in a round.
    pub const large_message_bytes = 64 * 1024;
    /// Messages with more compressed bytes than this are inflated slice by slice.
    pub const inflated_at_once_bytes_max = 16 * 1024;
    /// Buffers that a worker keeps for further use: those of a few thousand busy connections.
    pub const pool_kept_bytes_max = 8 * 1024 * 1024;
    /// Bytes that all connections send in a round. After them each connection sends only `round_turn_bytes`
    /// in a turn. A few connections are faster without turns.
    pub const round_free_bytes = 8 * 1024 * 1024;
    pub const round_turn_bytes = 128 * 1024;
    /// Bytes of a file that a thread reads at a time, and bytes that the kernel is told to read ahead at that
    /// moment.
    pub const storage_piece_bytes = 128 * 1024;
    pub const storage_ahead_bytes = 1024 * 1024;
    /// Connections of one listener that a worker still accepts after it was told to stop listening: more than
    /// kernels queue (net.core.somaxconn is 4096).
    pub const accept_queue_max = 8192;
    /// Addresses without a connection that are remembered: 2.5 MiB.
    pub const admission_records_max = 65_536;
    /// Refused clients of one address that get time to read the reason. Connections of further ones are
    /// reset, because refusing must cost less than serving.
    pub const admission_answered_max = 8;

    /// Passes over all connections in one round that look for memory which can be taken; the rest is left for
    /// the next round.
    pub const memory_passes_max = 16;
    /// The largest connections that one pass remembers; others are left for the next pass.
    pub const holdings_candidates_max = 64;
    /// The time between two measurements of the process's size, if few bytes are received.
    pub const memory_interval_ms = 100;
    /// The least time between two questions for the memory that a process shares with others, which are asked
    /// only while the process holds more than its limit with it.
    pub const memory_shared_interval_ms = 1_000;
    /// The bytes of a process for each millisecond between two of these questions. The kernel visits 20 MB in
    /// a millisecond, so questions take 0.5 % of the time at most.
    pub const memory_shared_bytes_per_ms = 100_000;
    /// Sent output after which memory is given back to the system: for less output the walk through the heap
    /// costs too much.
    pub const relief_worth_bytes = 16 * 1024 * 1024;
    /// The time between the output's end and that walk, in which applications free the strings that output
    /// came from.
    pub const relief_delay_ms = 100;
    /// The time between two such walks: under load that comes in waves, memory that is given back is needed
    /// again.
    pub const relief_interval_ms = 1000;
    /// The time between two counts of connections, for gauges.
    pub const gauges_interval_ms = 1000;

    /// Bytes of a path that messages of the log show; of a longer path they show the end.
    pub const log_path_bytes_shown = 200;
    /// The time between two reports of an access log in trouble.
    pub const log_news_interval_ms = 1000;
    /// Bytes of an unreadable request line that the log shows.
    pub const log_raw_bytes_max = 256;
    /// Bytes of a value that a client has chosen, a target or a header field, in a line of the access log:
    /// more than browsers send, and no more than a line has room for in a pipe.
    pub const log_value_bytes_max = 4096;
    /// Bytes of the reason for a refused certificate that the log shows; OpenSSL has no longer reasons.
    pub const log_tls_value_bytes_max = 128;

    comptime {
        std.debug.assert(whole_response_bytes_max <= framed_bytes_max);
        std.debug.assert(framed_bytes_max <= stream_unsent_bytes_max);
        std.debug.assert(messages_ahead_each_bytes <= messages_ahead_bytes_max);
        std.debug.assert(round_turn_bytes <= round_free_bytes);
        std.debug.assert(response_head_bytes_max < flood_bytes);
    }
};

/// Limits of the C API and its ring pairs that no option sets. A name ends with the unit; the range is what
/// the layout or the protocol behind a limit allows.
pub const api_limits = struct {
    /// Interpreters of one engine, from 1 to 64: more processes than a machine can use, and one bit of a word
    /// for each.
    pub const interpreters_max: u32 = 64;
    /// Groups of interpreters of one engine, from 1: each round looks at the queue of each group.
    pub const groups_max: u32 = 16;
    /// Bytes of a group's name that logs show: host names and paths in use are shorter.
    pub const group_name_bytes_max = 128;
    /// Requests that one interpreter may be offered ahead, from 1. With 1, a short request costs twice as
    /// much as with 64, for two switches between processes; a slow interpreter is offered fewer
    /// (`Seat.ahead`).
    pub const offers_ahead_max: u32 = 64;
    /// Unused offers that are kept with their memory, for later requests: as many as wait in a usual burst.
    pub const spare_offers_max: u32 = 256;
    /// Exchanges that get entries of topics in one round, at most a segment each, and bytes that the engine
    /// reads from the hub in one round. Other work has its turn between rounds.
    pub const subscribers_per_round_max: u32 = 1024;
    pub const hub_bytes_per_round_max: usize = 256 * 1024;
    /// Content of one held response, in bytes: the beginning of an event stream, or the response of a long
    /// poll without entries. Downloads are not held.
    pub const held_start_bytes_max: usize = 64 * 1024;
    /// Content of all held responses together, in bytes: as many as wait while the hub is away for a moment.
    pub const held_bytes_max: usize = 64 * 1024 * 1024;
    /// Bytes that keep a held stream alive, from 1: a comment or another empty message.
    pub const held_keepalive_bytes_max: usize = 1024;
    /// The time without progress of an interpreter after which its offer goes to another interpreter: some
    /// switches between processes, and less than a client notices.
    pub const offer_still_ms: u64 = 2;
    /// The time after which a request is offered again that could not be given to an idle interpreter: memory
    /// and descriptors are mostly free again after a few requests.
    pub const offer_retry_ms: i32 = 50;
    /// The time that a response waits for the response to the next request of its pipeline, so that one write
    /// sends both: an interpreter gives many short responses in this time, and no client notices it. While
    /// responses of the pipeline come, they wait on, for at most `withhold_most_ms`: with 64 connections the
    /// sixteen responses of a pipeline come within so many milliseconds, and a write to a socket costs as
    /// much as a response.
    pub const withhold_ms: u64 = 2;
    pub const withhold_most_ms: u64 = 16;
    /// The time at one event after which an interpreter counts as stuck, as in PAGI::Server::Status.
    pub const stuck_ms: u64 = 10_000;
    /// Messages that the engine reads from the join socket in one round: an interpreter can send messages
    /// without end.
    pub const joins_per_round_max: u32 = 16;
    /// Interpreters that were shut out and may still run. With a further one the oldest one is killed early.
    pub const outcasts_max: u32 = 64;
    /// The time that a shut-out interpreter has to end by itself before it is killed: it may be broken and
    /// not hostile.
    pub const outcast_grace_ms: u64 = 5000;

    /// The annex beside each ring of a pair, in bytes: memory for content that is too long for the ring, four
    /// of the longest bodies that are gathered in memory.
    pub const annex_bytes: usize = 4 * 1024 * 1024;
    /// The unit in bytes in which content lies in an annex.
    pub const annex_unit_bytes: usize = 32 * 1024;
    /// Pieces of content in an application's annex at the same time: as many as requests that may be offered
    /// ahead.
    pub const annex_pieces_max: usize = 64;
    /// Bytes of an application's strings that the engine has sent, after which an application that sleeps is
    /// woken, so that it lets go of the strings.
    pub const returned_bytes_max: usize = 1024 * 1024;
    /// The depot, in bytes: memory in which applications on other threads and in other processes read long
    /// bodies, 16 of the longest bodies that are gathered in memory.
    pub const depot_bytes: usize = 16 * 1024 * 1024;
    /// The unit in bytes in which bodies lie in the depot; shorter bodies go through the ring, where they
    /// cost little.
    pub const depot_unit_bytes: usize = 32 * 1024;
    /// The part of the depot's memory that stays when no body needs it: enough for one body at a time.
    pub const depot_kept_bytes: usize = 2 * 1024 * 1024;
    /// The time without a body after which the rest of the depot's memory goes back to the system.
    pub const depot_idle_ms: u64 = 1000;
    /// Commands of an application that the engine carries out in one round before sockets get their turn.
    pub const commands_per_round_max: usize = 1024;
    /// Commands that an application writes before it wakes an engine that will soon look by itself.
    pub const unseen_commands_max: u32 = 32;
    /// The time of one of the engine's short waits while an application works: commands that come in it cost
    /// no system call and are carried out together.
    pub const pause_ms: u64 = 1;
    /// Short waits in a row without a command, after which the engine sleeps: an application that computes
    /// for long wakes the engine with its next command.
    pub const pauses_max: u8 = 3;
    /// The time between two looks for waiting connections while the application of a worker that does not
    /// accept is at one event.
    pub const attention_ms: u64 = 100;
    /// Looks in a row that find waiting connections, after which the engine accepts again, because all other
    /// workers are as busy and the health path must be answered.
    pub const attention_waits_max: u8 = 10;
    /// The time of one wait of an interpreter for room in a ring, after which it checks that the engine still
    /// runs.
    pub const room_wait_ms: i32 = 10;

    /// Events that one poll hands to C.
    pub const events_per_poll_max: usize = 256;
    /// Unread events of an interpreter, beside those of its exchanges. Flushes and wishes about topics are
    /// answered, so an interpreter that writes commands and reads nothing can cause any number of events, of
    /// 64 bytes each; an engine has up to `interpreters_max` interpreters.
    pub const unread_events_max: usize = 65_536;
    /// Further unread events for each exchange that an interpreter had at a time: input, end, answer to a
    /// write, and one more. All of its clients may leave at once.
    pub const unread_events_per_exchange: usize = 4;
    /// Memory that a batch of events keeps for the next events; a batch of large bodies gives the rest back.
    pub const batch_kept_bytes: usize = 1024 * 1024;
    /// Memory that is kept for encoding the next long command.
    pub const scratch_kept_bytes: usize = 1024 * 1024;
    /// The largest buffer to which a piece of a long body is received.
    pub const body_buffer_bytes_max: usize = 256 * 1024;
    /// The facts of a TLS connection that go with a request. When they are longer, the chain of the client's
    /// certificate is left out, because a request must fit any ring.
    pub const tls_facts_bytes_max: usize = 32 * 1024;
    /// Folders of files (`static`), each of which takes a descriptor.
    pub const folders_max: usize = 255;
    /// Bytes in the mailbox through which other threads reach a worker.
    pub const mailbox_bytes_max = 64 << 20;
    /// Fields of a response that comes through a mailbox.
    pub const answer_fields_max = 256;
    /// Messages that a channel's mailbox may keep at most. When half of its list was taken, the rest is moved
    /// to the front.
    pub const channel_capacity_max = 100_000;
    /// Addresses of one name to which connections are tried.
    pub const addresses_max = 8;
    /// Bytes of a certificate with its intermediates and its key: authorities issue no longer ones.
    pub const given_certificate_bytes_max = 1 << 20;
    /// The time between two attempts to become the hub while another process is the hub.
    pub const hub_stand_by_ms = 50;

    comptime {
        std.debug.assert(interpreters_max >= 1 and interpreters_max <= 64);
        std.debug.assert(groups_max >= 1 and groups_max <= 255);
        std.debug.assert(offers_ahead_max >= 1);
    }
};

test "every default lies in its own range" {
    for (Config.options) |option| {
        try std.testing.expect(option.default >= option.rule.min);
        try std.testing.expect(option.default <= option.rule.max);
    }
}

test "set refuses unknown names and values out of range, and changes nothing then" {
    var config: Config = .{};
    try config.set("head_bytes_max", 16_384);
    try std.testing.expectEqual(16_384, config.head_bytes_max);
    try std.testing.expectError(error.OutOfRange, config.set("head_bytes_max", 1));
    try std.testing.expectError(error.UnknownOption, config.set("no_such_option", 1));
    try std.testing.expectEqual(16_384, try config.get("head_bytes_max"));
    try config.set("deflate", 0);
    try std.testing.expect(!config.deflate);
    try std.testing.expectError(error.OutOfRange, config.set("deflate", 2));
    try std.testing.expectEqual(0, try config.get("deflate"));
    try std.testing.expectEqual(-1, try config.get("http2"));
    try config.set("http2", 1);
    try std.testing.expectEqual(.everywhere, config.http2);
    try std.testing.expectError(error.OutOfRange, config.set("http2", 2));
}

test "a value out of its range is found, in whatever field it was put" {
    try std.testing.expectEqual(null, (Config{}).outOfRange());
    inline for (Config.names) |name| {
        const rule: Config.Rule = @field(Config.rules, name);
        inline for (.{ rule.min - 1, rule.max + 1 }) |value| {
            var config: Config = .{};
            const place = &@field(config, name);
            if (@typeInfo(@TypeOf(place.*)) == .int) if (std.math.cast(@TypeOf(place.*), value)) |fits| {
                place.* = fits;
                const fault = config.outOfRange().?;
                try std.testing.expectEqualStrings(name, fault.name);
                try std.testing.expectEqual(value, fault.default);
            };
        }
    }
    const huge: Config = .{ .body_bytes_max = std.math.maxInt(u64) };
    try std.testing.expectEqualStrings("body_bytes_max", huge.outOfRange().?.name);
}
