//! Commands of an application to an exchange, as values: the C API, the mailbox and Zig handlers make them,
//! and `Worker.apply` carries them out. `encoded.zig` has their form without pointers, for threads and
//! processes.
const Field = @import("protocol").http.Field;
const exchange = @import("exchange.zig");
const Flow = @import("incoming.zig").Incoming.Flow;
const Loan = @import("loan.zig").Loan;
const Outbox = @import("outbox.zig").Outbox;
const WebSocketKind = @import("websocket.zig").Kind;

/// A command to an exchange. Slices are read during `Worker.apply` only.
pub const Command = union(enum) {
    /// Begins the response, with the part of its body that is ready.
    start: exchange.Start,
    /// The next piece of the body.
    body: Body,
    /// A range of an open file as the last piece of the body.
    file: File,
    /// Ends the body with a trailer section, which may be empty.
    end: End,
    inform: Inform,
    /// Asks for the next piece of the request body, or the next message of a WebSocket (`Flow.on_demand`).
    read,
    /// Hands queued output to the kernel now; `.blocked` if the kernel does not take all of it.
    flush,
    /// Cuts the response short, in a way that the peer can detect.
    abort,
    /// Completes a WebSocket handshake.
    accept: Accept,
    /// Sends a WebSocket message.
    message: Message,
    /// Begins the closing handshake of a WebSocket.
    close: Close,
    /// Sets the times of a WebSocket's pings.
    keepalive: Keepalive,
    /// Says how messages of a WebSocket are delivered.
    flow: Flow,
    /// Ends the exchange after this number of milliseconds without a byte in either direction; 0: no limit.
    idle_limit: u32,
    /// Whether a head that waits for the first piece of the body (`Start.hold`) stays back when other output
    /// is sent.
    keep_head: bool,
    /// Sends bytes as a piece of the body, again and again.
    repeat: Repeat,
    /// Gives the application the connection of a WebSocket handshake, for a protocol of the application's
    /// own.
    relay: Relay,
    /// Leaves the exchange to another interpreter; must be the first command to the exchange. The engine's
    /// end of the ring pair carries it out, because the worker knows no interpreters.
    hand_over,
    /// Starts or ends reading a topic. The engine's end of the ring pair carries it out, because the worker
    /// knows no topics.
    topic: Topic,
    /// Gives the response to the engine, which holds it open for topics. The worker does not read the
    /// command's bytes.
    hold: []const u8,

    pub const Body = struct {
        bytes: []const u8 = "",
        /// Blocks of the worker's pool in place of `bytes`. They are taken over, not copied. Has no encoded
        /// form.
        blocks: ?*Outbox = null,
        /// Lends `bytes`, which are not copied and must not change until the loan comes back. Has no encoded
        /// form.
        loan: ?*Loan = null,
        /// The response is complete with this piece.
        last: bool = false,
        /// With `last`: the connection closes after the response.
        close: bool = false,
    };

    /// A range of a file. The engine duplicates the descriptor.
    pub const File = struct {
        fd: i32,
        offset: u64 = 0,
        length: ?u64 = null,
        /// The file lies on slow storage. `length` is given, because asking the file system could block. The
        /// receiver of the command owns the descriptor, except after an error.
        is_slow: bool = false,
    };

    pub const End = struct { trailers: []const Field = &.{} };

    pub const Inform = struct { status: u16, fields: []const Field = &.{} };

    /// The response to a handshake. `fields` are sent in addition to the fields that the protocol needs.
    pub const Accept = struct {
        subprotocol: ?[]const u8 = null,
        compression: Compression = .configured,
        fields: []const Field = &.{},
    };

    /// Whether the messages of a WebSocket are compressed, if its client has offered permessage-deflate.
    pub const Compression = enum(u2) {
        /// As `Config.deflate` says.
        configured,
        off,
        on,
    };

    /// A message to the peer. `loan` is that of `Body`.
    pub const Message = struct { kind: WebSocketKind, bytes: []const u8 = "", loan: ?*Loan = null };

    pub const Close = struct { code: u16, reason: []const u8 = "" };

    /// Milliseconds between two pings (0: no pings), and milliseconds that a pong may take (0: no limit).
    pub const Keepalive = struct { interval_ms: u32, timeout_ms: u32 };

    /// The application's use of a relayed connection, see worker/relay.zig.
    pub const Relay = union(enum) {
        /// One end of a socket pair, which the engine owns from then on. The engine relays bytes between this
        /// socket and the client from the first byte that the socket brings. Until then the exchange can be
        /// answered as usual.
        offer: i32,
        /// The application answers through the relay only.
        only,
    };

    /// The application's wish about topics, whose bytes the worker does not read, and the application's
    /// number for the wish.
    pub const Topic = struct { number: u32, wish: []const u8 };

    /// Bytes that are sent each `interval_ms` milliseconds; 0: the repetition ends.
    pub const Repeat = struct { interval_ms: u32, bytes: []const u8 = "" };
};

pub const Outcome = enum {
    /// The command was carried out or queued; further commands may follow.
    accepted,
    /// The response is complete and was handed to the kernel: the exchange is gone.
    done,
    /// The command was accepted, but queued output has reached the high-water mark, or a file has yet to be
    /// sent. `drained` follows, or `finished` if the response was ended.
    blocked,
};
