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
    /// Begins the response, with as much of its body as is at hand.
    start: exchange.Start,
    /// The next piece of the body.
    body: Body,
    /// A range of an open file as the last piece of the body.
    file: File,
    /// Ends the body with a trailer section, which may be empty.
    end: End,
    /// Sends an interim response.
    inform: Inform,
    /// Asks for the next piece of the request body, or the next message of a WebSocket (`Flow.on_demand`).
    read,
    /// Hands what is queued to the kernel now; `.blocked` if it does not take everything.
    flush,
    /// Cuts the response short, so that the peer can tell.
    abort,
    /// Completes a WebSocket handshake.
    accept: Accept,
    /// Sends a WebSocket message.
    message: Message,
    /// Begins the closing handshake of a WebSocket.
    close: Close,
    /// Sets when a WebSocket is pinged.
    keepalive: Keepalive,
    /// Says which messages of a WebSocket are taken.
    flow: Flow,
    /// Milliseconds without a byte in either direction that end the exchange; 0: no limit.
    idle_limit: u32,
    /// Whether a head that waits for the first piece of the body waits on when output leaves (`Start.hold`).
    keep_head: bool,
    /// Sends the same bytes again and again as a piece of the body.
    repeat: Repeat,
    /// Lets the application have the connection of a WebSocket handshake, to speak on it as it likes.
    relay: Relay,
    /// Leaves the exchange to another interpreter, before any other command. The worker knows no
    /// interpreters: the engine's end of the ring pair does it.
    hand_over,
    /// Reads a topic, or ends that. The worker knows no topics: the engine's end of the ring pair does it.
    topic: Topic,
    /// Gives the response and leaves it to the engine, which holds it open for topics, in a form that the
    /// worker does not look into.
    hold: []const u8,

    pub const Body = struct {
        bytes: []const u8 = "",
        /// Blocks of the worker's pool in place of `bytes`: taken over, not copied. Not encoded.
        blocks: ?*Outbox = null,
        /// `bytes` are not copied: they stay as they are until the loan comes back. Not encoded.
        loan: ?*Loan = null,
        /// The response is complete with this piece.
        last: bool = false,
        /// With `last`: the connection closes after it.
        close: bool = false,
    };

    /// The engine duplicates the descriptor.
    pub const File = struct {
        fd: i32,
        offset: u64 = 0,
        length: ?u64 = null,
        /// The file lies on slow storage: the length comes with the command (`length`), because asking for it
        /// could block. The command's taker owns the descriptor, except after an error.
        is_slow: bool = false,
    };

    pub const End = struct { trailers: []const Field = &.{} };

    pub const Inform = struct { status: u16, fields: []const Field = &.{} };

    /// The answer to a handshake: `fields` are sent besides those that the protocol needs.
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

    /// A message to the peer; its loan as in `Body`.
    pub const Message = struct { kind: WebSocketKind, bytes: []const u8 = "", loan: ?*Loan = null };

    pub const Close = struct { code: u16, reason: []const u8 = "" };

    /// Milliseconds between pings (0: none), and how long a pong may take (0: for ever).
    pub const Keepalive = struct { interval_ms: u32, timeout_ms: u32 };

    /// See worker/relay.zig.
    pub const Relay = union(enum) {
        /// An end of a socket pair, which the engine owns from then on. From the first byte that comes from
        /// it, its bytes go to the client, and the client's to it. Until then the exchange can be answered as
        /// any other.
        offer: i32,
        /// The application answers by the relayed bytes alone.
        only,
    };

    /// A wish of the application's about topics, in a form that the worker does not look into, and the number
    /// of the wish in the application.
    pub const Topic = struct { number: u32, wish: []const u8 };

    /// The bytes that are sent each `interval_ms` milliseconds; 0: they are not sent any longer.
    pub const Repeat = struct { interval_ms: u32, bytes: []const u8 = "" };
};

/// The result of a command.
pub const Outcome = enum {
    /// Done, or queued; more may follow.
    accepted,
    /// The response is complete and out of our hands: the exchange is gone.
    done,
    /// Accepted, but the high-water mark is reached, or a file has yet to be sent: `drained` or, after the
    /// end, `finished` follows.
    blocked,
};
