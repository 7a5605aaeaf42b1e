//! One peer, or one of its streams: a session, its unread input, its queued output, its phase and its timer.
//! Holds no socket and calls nobody; the worker does both. A connection with a socket is part of a
//! `Transport`. Where a connection carries many streams, each of them is a connection as well, part of a
//! `Stream`: its `carrier` has the socket, its outbox is content that waits to be framed, its input content
//! that has not been taken. Deadlines are values here: `deadline` is the present one, `overdue` says what
//! follows when it has passed.
const std = @import("std");
const assert = std.debug.assert;
const Limits = @import("protocol").Limits;
const Session = @import("protocol").Session;
const Blockage = @import("blockage.zig").Blockage;
const Config = @import("config.zig").Config;
const Exchange = @import("exchange.zig").Exchange;
const Input = @import("input.zig").Input;
const Lane = @import("lane.zig").Lane;
const Multiplex = @import("multiplex.zig").Multiplex;
const Outbox = @import("outbox.zig").Outbox;
const Repeat = @import("repeat.zig").Repeat;
const Ticket = @import("slab.zig").Ticket;
const Tunnel = @import("tunnel.zig").Tunnel;
const Timer = @import("timer.zig").Timer;
const Share = @import("share.zig").Share;
const types = @import("types.zig");
const WebSocket = @import("websocket.zig").WebSocket;

/// One peer: session, unread input, queued output, and where it stands.
pub const Connection = struct {
    ticket: Ticket,
    session: Session,
    input: Input = .{},
    outbox: Outbox = .{},
    /// Null: bytes go as they are.
    tunnel: ?*Tunnel = null,
    phase: Phase,
    timer: Timer = .{},
    /// The next piece of the file at the front of its queue is being read by another thread.
    reading: bool = false,
    /// How far its own requests are; of a connection that has none of its own any more, `closing`.
    lane: Lane,
    /// For a stream: the connection that carries it. Null: it has a socket of its own.
    carrier: ?*Connection = null,
    /// The kernel took less than it was given; it will say when there is room.
    output: union(enum) { open, blocked: Blockage } = .open,
    sending: PeerSide = .open,
    /// What it has sent in a round.
    turn: Share.Turn = .{},
    /// In the worker's list of connections with output or input to look at before it waits again.
    corked: bool = false,
    /// In the worker's list of connections that go on in the next round: nothing of it is read or parsed
    /// before.
    yielded: bool = false,
    /// What is unread of its input was parsed: only further bytes bring it on, or its end.
    needs_more: bool = false,
    /// It came in over the limit of connections, or while memory was short: the health path is all that it
    /// may ask for.
    surplus: Surplus = .no,
    /// `stopping`: the worker stops, and the first request may be on its way. `replaced`: another worker
    /// takes this one's place, and one more request is answered.
    retiring: enum { no, stopping, replaced } = .no,
    paused: bool = false,
    /// There was no memory for what came behind its request: it is not read, and the connection closes
    /// after the response.
    discards: bool = false,
    /// Its number, for logs: counts up per worker.
    number: u32,
    /// Requests that have come, those that were refused included.
    request_count: u32 = 0,
    listener: u32,
    /// It is no client, but the application's end of a relay.
    local: bool = false,
    /// The peer is a trusted proxy: what its requests say about their clients is believed.
    trusted: bool = false,
    peer_port: u16 = 0,
    local_port: u16 = 0,
    /// Both are empty for Unix sockets.
    peer_text: Text = .empty,
    local_text: Text = .empty,

    pub const Surplus = enum { no, connections, memory };

    /// A numeric address (at most "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255"); empty for Unix sockets.
    pub const Text = struct {
        len: u8,
        bytes: [46:0]u8,

        pub const empty: Text = .{ .len = 0, .bytes = @splat(0) };

        /// Keeps a copy, cut at the longest address.
        pub fn set(text: *Text, value: []const u8) void {
            text.len = @intCast(@min(value.len, text.bytes.len));
            @memcpy(text.bytes[0..text.len], value[0..text.len]);
            text.bytes[text.len] = 0;
        }

        /// The text, with a NUL behind it for C.
        pub fn slice(text: *const Text) [:0]const u8 {
            return text.bytes[0..text.len :0];
        }
    };

    /// How far the socket is. A stream has none: it is `serving` until it is `closed`.
    pub const Phase = union(enum) {
        /// The proxy that brings the connection has yet to say whose it is. Nothing is parsed but that;
        /// `rest`: bytes of the header that are still to come, when its addresses are known.
        proxy_header: struct { since: u64, rest: ?u16 = null },
        /// TLS is being negotiated. Nothing is parsed, and the outbox is empty; the input is ciphertext that
        /// waits for its turn.
        handshake: struct { since: u64 },
        /// Requests come and are answered one after the other: `lane` says how far they are.
        serving,
        /// Received bytes are sent on another connection as they are.
        relaying: Relaying,
        /// Many streams are open at a time, each of which is a connection in phase `serving`.
        multiplexed: *Multiplex,
        /// The last answer is queued; when it is out, our sending side ends.
        closing,
        /// Everything is sent; the peer gets time to read it before the socket goes.
        lingering: struct { since: u64 },
        /// The socket is closed, the slot is about to be given back.
        closed,
    };

    /// One of the two connections of a relay.
    pub const Relaying = struct {
        /// The connection that gets what this one receives.
        other: Ticket,
        /// When a byte moved last, in either direction.
        active_at: u64,
        /// This connection is not read: the other one has to send what is queued first.
        full: bool = false,
        /// The other one's peer has ended its sending side: ours ends when all is sent.
        ending: enum { no, due, done } = .no,
    };

    /// The peer's sending side.
    pub const PeerSide = enum {
        open,
        /// It is ended, and what came before the end is not read to there yet.
        ending,
        /// The end was read: nothing comes behind what is in `input`.
        ended,
    };

    /// The peer's address as logs name it.
    pub fn peerName(connection: *const Connection) []const u8 {
        return types.peerName(connection.peer_text.slice());
    }

    /// The peer's address and port as logs name them: peers on Unix sockets have no port.
    pub fn peerPlace(connection: *const Connection) PeerPlace {
        return .{ .connection = connection };
    }

    const PeerPlace = struct {
        connection: *const Connection,

        /// Used by `{f}`.
        pub fn format(place: PeerPlace, writer: *std.Io.Writer) std.Io.Writer.Error!void {
            try writer.writeAll(place.connection.peerName());
            if (place.connection.peer_text.len > 0) {
                try writer.print(" port {d}", .{place.connection.peer_port});
            }
        }
    };

    /// Its last request as logs name it, "request 17-3 (192.0.2.1)": by the numbers that %L of
    /// the access log has.
    pub fn requestName(connection: *const Connection) RequestName {
        return .{ .connection = connection };
    }

    const RequestName = struct {
        connection: *const Connection,

        /// Used by `{f}`.
        pub fn format(name: RequestName, writer: *std.Io.Writer) std.Io.Writer.Error!void {
            const connection = name.connection;
            try writer.print(
                "request {d}-{d} ({s})",
                .{ connection.number, connection.request_count, connection.peerName() },
            );
        }
    };

    /// The next request may come from now on.
    pub fn awaitRequest(connection: *Connection, now: u64) void {
        connection.phase = .serving;
        connection.lane.phase = .{ .idle = .{ .since = now } };
    }

    /// No request is answered any more: what is queued is sent, then the connection or the stream ends.
    pub fn beginClosing(connection: *Connection) void {
        assert(connection.phase != .closed);
        connection.lane.phase = .closing;
        if (connection.carrier == null) connection.phase = .closing;
    }

    /// The connection serves requests of its own no longer. Its exchange, if there was one, is forgotten.
    pub fn leaveServing(connection: *Connection, phase: Phase) void {
        switch (phase) {
            .relaying, .multiplexed => assert(connection.carrier == null),
            .closed => {},
            .proxy_header, .handshake, .serving, .closing, .lingering => unreachable,
        }
        connection.lane.phase = .closing;
        connection.phase = phase;
    }

    /// The worker stops: whoever has yet to say what it wants has `Config.linger_ms` from now on.
    pub fn retire(connection: *Connection, now: u64) void {
        connection.retiring = .stopping;
        connection.restartWait(now);
    }

    /// Another worker takes the place of this one: the next request is the last one, and has
    /// `Config.retire_idle_ms` to come.
    pub fn replace(connection: *Connection, now: u64) void {
        connection.retiring = .replaced;
        if (connection.isIdle()) connection.restartWait(now);
        const exchange = connection.current() orelse return;
        // One whose response has begun is told by the next one. A WebSocket that is about to begin may go on.
        if (exchange.websocket == null and !connection.session.responseStarted(exchange.stream)) {
            connection.session.closeAfterResponse();
        }
    }

    fn restartWait(connection: *Connection, now: u64) void {
        switch (connection.phase) {
            .proxy_header => |*header| header.since = now,
            .handshake => |*handshake| handshake.since = now,
            .serving => connection.lane.restartWait(now),
            .relaying, .multiplexed, .closing, .lingering, .closed => {},
        }
    }

    /// Whether requests may come, and none is there.
    pub fn isIdle(connection: *const Connection) bool {
        return connection.phase == .serving and connection.lane.phase == .idle;
    }

    /// The exchange that is going on.
    pub inline fn current(connection: *const Connection) ?*Exchange {
        return connection.lane.current();
    }

    /// The open WebSocket of this connection, if it is one.
    pub fn websocket(connection: *const Connection) ?*WebSocket {
        const exchange = connection.current() orelse return null;
        return exchange.openWebSocket();
    }

    /// Bytes that wait for the kernel, sealed or not. Those of file ranges are not counted.
    pub fn queuedBytes(connection: *const Connection) usize {
        const tunnel = connection.tunnel orelse return connection.outbox.bytes;
        return connection.outbox.bytes + tunnel.wire.bytes;
    }

    /// Has the kernel taken everything?
    pub fn isFlushed(connection: *const Connection) bool {
        if (!connection.outbox.isEmpty()) return false;
        const tunnel = connection.tunnel orelse return true;
        return tunnel.wire.isEmpty();
    }

    /// The connection with the socket: itself, or its carrier.
    pub fn transport(connection: *Connection) *Connection {
        return connection.carrier orelse connection;
    }

    /// What the log says of its end.
    pub fn endWords(connection: *const Connection) []const u8 {
        return if (connection.carrier == null) "closing connection" else "resetting stream";
    }

    /// The TLS layer that it is under, be it its carrier's.
    pub fn tls(connection: *const Connection) ?*Tunnel {
        return (connection.carrier orelse connection).tunnel;
    }

    /// What a connection that carries streams has beside what all have.
    pub fn multiplex(connection: *const Connection) ?*Multiplex {
        return if (connection.phase == .multiplexed) connection.phase.multiplexed else null;
    }

    /// Would closing it now leave the peer with a part of something?
    pub fn owesOutput(connection: *const Connection) bool {
        return connection.session.responseOpen() or !connection.isFlushed();
    }

    /// May bytes of this connection be parsed now?
    pub fn wantsInput(connection: *const Connection) bool {
        return switch (connection.phase) {
            .serving => switch (connection.lane.phase) {
                .idle, .head, .draining => true,
                // A peer that asks for pongs and does not read them waits, or it could fill our memory.
                .exchange => |exchange| exchange.wantsInput() and connection.queuedBytes() < flood_bytes,
                .closing => false,
            },
            .multiplexed => connection.queuedBytes() < flood_bytes,
            .proxy_header, .handshake, .relaying, .closing, .lingering, .closed => false,
        };
    }

    /// Is there something to parse, or to tell the host, without new bytes?
    pub fn mayGoOn(connection: *const Connection) bool {
        if (connection.yielded or !connection.wantsInput()) return false;
        if (!connection.needs_more and (!connection.input.isEmpty() or connection.session.holdsEnd())) {
            return true;
        }
        return connection.holdsMessage();
    }

    /// Is there something to tell the host of a WebSocket that was parsed already?
    pub fn holdsMessage(connection: *const Connection) bool {
        const open = connection.websocket() orelse return false;
        return open.incoming.held != .nothing or open.ending != null;
    }

    /// Far above the high-water mark that hosts keep to: only answers that the engine owes by itself get
    /// there.
    const flood_bytes = 1024 * 1024;

    /// Longer than the messages that a client sends in one go during a handshake, its certificate aside.
    const flight_bytes = 16 * 1024;

    /// Should the socket be read? While an exchange waits for its application one receive is taken, so that
    /// the end of the peer is seen; no more, or the peer could fill our memory.
    pub fn wantsReceive(connection: *const Connection) bool {
        // TLS answers some messages by itself.
        if (connection.tunnel) |tunnel| if (tunnel.wire.bytes >= flood_bytes) return false;
        return switch (connection.phase) {
            .proxy_header, .closing, .lingering => true,
            // What its session has not looked at yet may be more than a flight.
            .handshake => connection.input.unread().len < flight_bytes,
            .serving => !connection.yielded and switch (connection.lane.phase) {
                .head, .draining => true,
                // Requests that are there already come first: the end of the peer behind them must
                // not be seen before.
                .idle => !connection.corked or connection.input.isEmpty(),
                .exchange => |exchange| connection.wantsInput() or
                    (connection.input.isEmpty() and exchange.inputComplete()),
                .closing => unreachable, // a stream has no socket to read
            },
            .relaying => |relaying| !relaying.full and connection.sending != .ended,
            .multiplexed => !connection.yielded and connection.wantsInput(),
            .closed => false,
        };
    }

    /// The deadline of what the peer owes; `Timer.never` while nothing is expected of it.
    pub fn deadline(connection: *const Connection, config: *const Config) u64 {
        const reading = switch (connection.phase) {
            .proxy_header => |header| header.since + connection.opening(config, config.proxy_ms),
            .handshake => |handshake| handshake.since + connection.opening(config, config.handshake_ms),
            .serving => switch (connection.lane.phase) {
                .idle => |idle| if (connection.surplus != .no or connection.retiring == .stopping)
                    idle.since + config.linger_ms
                else if (connection.retiring == .replaced)
                    idle.since + config.retire_idle_ms
                else
                    after(idle.since, config.idle_ms),
                .head => |head| head.since + if (connection.surplus != .no)
                    @min(config.linger_ms, config.head_ms)
                else
                    config.head_ms,
                .exchange => |exchange| exchange.deadline(config),
                .draining => |draining| after(draining.since, config.body_ms),
                .closing => Timer.never,
            },
            .multiplexed => |multiplex_of| multiplex_of.deadline(connection, config),
            .lingering => |lingering| lingering.since + config.linger_ms,
            .relaying => |relaying| after(relaying.active_at, config.websocket_idle_ms),
            .closing, .closed => Timer.never,
        };
        // An application takes its time: what its client sends waits.
        if (connection.local) return Timer.never;
        return switch (connection.output) {
            .open => reading,
            .blocked => |blockage| @min(reading, blockage.stall.deadline(config.write_ms)),
        };
    }

    /// When to look at it again, at the latest: at its deadline, or earlier at what a slow peer has taken.
    pub fn attentionAt(connection: *const Connection, config: *const Config) u64 {
        const at = connection.deadline(config);
        // What a stream has waiting is not with the kernel.
        if (connection.local or connection.carrier != null) return at;
        return switch (connection.output) {
            .open => at,
            .blocked => |*blockage| @min(at, blockage.lookAt(config.write_ms)),
        };
    }

    /// What is to be done about a deadline.
    pub const Overdue = enum {
        not_yet,
        /// Nothing is owed to anybody: close.
        close,
        /// It came in over the limit of connections and has not said what for: say 503, then close.
        turn_away,
        /// Half a request head: say 408, then close.
        refuse,
        /// The request's body does not come.
        body_stalled,
        /// The peer does not take its response.
        write_stalled,
        /// Something is due on a WebSocket: see WebSocket.due.
        websocket,
        /// Bytes that an exchange repeats are due.
        repeat,
        /// The exchange was quiet for longer than its idle limit.
        exchange_idle,
        /// Something is due on a connection of many streams: see Multiplex.due.
        multiplexed,
    };

    /// What it means that `now` is past `deadline`.
    pub fn overdue(connection: *const Connection, now: u64, config: *const Config) Overdue {
        if (now < connection.deadline(config)) return .not_yet;
        switch (connection.output) {
            .open => {},
            .blocked => |blockage| if (now >= blockage.stall.deadline(config.write_ms)) return .write_stalled,
        }
        return switch (connection.phase) {
            .serving => switch (connection.lane.phase) {
                .idle => if (connection.surplus != .no) .turn_away else .close,
                .head => if (connection.surplus != .no) .turn_away else .refuse,
                .exchange => |exchange| overdueIn(exchange, now, config),
                .draining, .closing => .close,
            },
            .multiplexed => .multiplexed,
            .proxy_header, .handshake, .relaying, .closing, .lingering, .closed => .close,
        };
    }

    fn overdueIn(exchange: *const Exchange, now: u64, config: *const Config) Overdue {
        if (exchange.bodyOverdue(now, config)) return .body_stalled;
        if (exchange.openWebSocket()) |open| if (now >= open.deadline()) return .websocket;
        return if (now >= exchange.repeatAt()) .repeat else .exchange_idle;
    }

    /// What must hold between two rounds.
    pub fn invariants(connection: *const Connection) void {
        connection.session.invariants();
        connection.outbox.invariants();
        if (connection.current()) |exchange| {
            assert(exchange.connection == connection);
            exchange.invariants();
        }
        // The kernel has said that it will take more, or a turn is over.
        if (connection.output == .blocked) assert(!connection.isFlushed());
        if (connection.multiplex()) |multiplex_of| multiplex_of.invariants(connection);
        if (connection.carrier) |carrier| {
            assert(connection.tunnel == null and carrier.multiplex() != null);
            assert(connection.phase == .serving or connection.phase == .closed);
        }
        switch (connection.phase) {
            .proxy_header, .handshake => assert(connection.lane.phase == .idle),
            .serving => assert(connection.carrier != null or connection.lane.phase != .closing),
            .relaying, .multiplexed, .closing, .lingering => assert(connection.lane.phase == .closing),
            .closed => {
                assert(connection.lane.phase == .closing);
                assert(connection.input.buffer == null);
                assert(connection.outbox.isEmpty());
            },
        }
    }

    /// How long what precedes the first request may take.
    fn opening(connection: *const Connection, config: *const Config, limit_ms: u32) u32 {
        return if (connection.retiring == .stopping) @min(config.linger_ms, limit_ms) else limit_ms;
    }

    pub fn after(since: u64, limit_ms: u32) u64 {
        return if (limit_ms == 0) Timer.never else since + limit_ms;
    }
};

test "an idle connection is closed, half a head is refused, neither before its time" {
    const config: Config = .{ .idle_ms = 1000, .head_ms = 300 };
    var limits: Limits = undefined;
    var connection = inLane(&limits, .{ .idle = .{ .since = 50 } });
    try std.testing.expectEqual(1050, connection.deadline(&config));
    try std.testing.expectEqual(.not_yet, connection.overdue(1049, &config));
    try std.testing.expectEqual(.close, connection.overdue(1050, &config));
    connection.lane.phase = .{ .head = .{ .since = 100 } };
    try std.testing.expectEqual(.refuse, connection.overdue(400, &config));
}

test "a blocked output has its own deadline, moved by what the peer takes" {
    const config: Config = .{ .write_ms = 1000, .write_rate_min = 100, .idle_ms = 0 };
    var limits: Limits = undefined;
    var connection: Connection = .{
        .ticket = .none,
        .session = .init(&limits),
        .phase = .closing,
        .lane = .{ .phase = .closing },
        .number = 1,
        .listener = 0,
        .output = .{ .blocked = .begin(0, 0) },
    };
    try std.testing.expectEqual(.write_stalled, connection.overdue(1000, &config));
    connection.output.blocked.stall.progress(50, config.write_rate_min, 800);
    try std.testing.expectEqual(.not_yet, connection.overdue(1499, &config));
    try std.testing.expectEqual(.write_stalled, connection.overdue(1500, &config));
}

/// A connection in this phase, for what depends on nothing else. `limits` are for its session, which
/// keeps the pointer.
fn inPhase(limits: *Limits, phase: Connection.Phase) Connection {
    var connection = inLane(limits, if (phase == .serving or phase == .handshake or phase == .proxy_header)
        .{ .idle = .{ .since = 0 } }
    else
        .closing);
    connection.phase = phase;
    return connection;
}

/// A connection that serves requests, whose lane is in this phase.
fn inLane(limits: *Limits, phase: Lane.Phase) Connection {
    return .{
        .ticket = .none,
        .session = .init(limits),
        .phase = .serving,
        .lane = .{ .phase = phase },
        .number = 1,
        .listener = 0,
    };
}

const distinct: Config = .{
    .proxy_ms = 11,
    .handshake_ms = 13,
    .idle_ms = 17,
    .head_ms = 19,
    .body_ms = 23,
    .linger_ms = 29,
    .write_ms = 3200,
};

test "every phase has its own limit, from where it began, and its own consequence" {
    const Case = struct { Connection.Phase, u64, Connection.Overdue };
    const cases = [_]Case{
        .{ .{ .proxy_header = .{ .since = 100 } }, 111, .close },
        .{ .{ .handshake = .{ .since = 100 } }, 113, .close },
        .{ .{ .lingering = .{ .since = 100 } }, 129, .close },
    };
    const LaneCase = struct { Lane.Phase, u64, Connection.Overdue };
    const lane_cases = [_]LaneCase{
        .{ .{ .idle = .{ .since = 100 } }, 117, .close },
        .{ .{ .head = .{ .since = 100 } }, 119, .refuse },
        .{ .{ .draining = .{ .since = 100, .bytes_left = 0 } }, 123, .close },
    };
    var limits: Limits = undefined;
    for (cases) |case| try expectDue(&inPhase(&limits, case[0]), case[1], case[2]);
    for (lane_cases) |case| try expectDue(&inLane(&limits, case[0]), case[1], case[2]);
    const endless: Config = .{ .idle_ms = 0, .body_ms = 0 };
    for ([_]Connection{
        inPhase(&limits, .closing),
        inPhase(&limits, .closed),
        inLane(&limits, .{ .idle = .{ .since = 100 } }),
        inLane(&limits, .{ .draining = .{ .since = 100, .bytes_left = 0 } }),
    }) |connection| try std.testing.expectEqual(Timer.never, connection.deadline(&endless));
}

fn expectDue(connection: *const Connection, at: u64, overdue: Connection.Overdue) !void {
    try std.testing.expectEqual(at, connection.deadline(&distinct));
    try std.testing.expectEqual(at, connection.attentionAt(&distinct));
    try std.testing.expectEqual(.not_yet, connection.overdue(at - 1, &distinct));
    try std.testing.expectEqual(overdue, connection.overdue(at, &distinct));
}

test "the socket of an exchange is read for what is wanted, and once for the end of the peer" {
    var limits: Limits = undefined;
    var connection = inPhase(&limits, .closed);
    try std.testing.expect(!connection.wantsReceive());
    var exchange: Exchange = .{ .ticket = .none, .connection = &connection, .active_at = 0 };
    connection.phase = .serving;
    connection.lane.phase = .{ .exchange = &exchange };
    try std.testing.expect(connection.wantsReceive());
    exchange.input = .{ .unwanted = .{} };
    try std.testing.expect(!connection.wantsReceive());
    exchange.input = .{ .wanted = .begin(0) };
    try std.testing.expect(connection.wantsReceive());
    connection.yielded = true;
    try std.testing.expect(!connection.wantsReceive());
}

test "a body that nobody asks for keeps the time that its peer has used up" {
    var limits: Limits = undefined;
    var connection = inPhase(&limits, .closed);
    var exchange: Exchange = .{ .ticket = .none, .connection = &connection, .active_at = 0 };
    connection.phase = .serving;
    connection.lane.phase = .{ .exchange = &exchange };
    try std.testing.expect(!exchange.want(100));
    exchange.input = .{ .wanted = .begin(100) };
    exchange.pieceDelivered(110);
    try std.testing.expectEqual(Timer.never, connection.deadline(&distinct));
    try std.testing.expect(exchange.want(1000));
    try std.testing.expectEqual(1000 - 10 + 23, connection.deadline(&distinct));
    // The host has asked and was given nothing yet.
    exchange.pieceDelivered(1005);
    try std.testing.expectEqual(1013, connection.deadline(&distinct));
    try std.testing.expect(exchange.want(1010));
    try std.testing.expectEqual(1013, connection.deadline(&distinct));
}

test "who came in over the limit of connections gets the time of a last answer, and then the answer" {
    var limits: Limits = undefined;
    var connection = inLane(&limits, .{ .idle = .{ .since = 100 } });
    connection.surplus = .connections;
    try std.testing.expectEqual(129, connection.deadline(&distinct));
    try std.testing.expectEqual(.turn_away, connection.overdue(129, &distinct));
    connection.lane.phase = .{ .head = .{ .since = 100 } };
    try std.testing.expectEqual(119, connection.deadline(&distinct));
    try std.testing.expectEqual(.turn_away, connection.overdue(119, &distinct));
    try std.testing.expectEqual(105, connection.deadline(&.{ .linger_ms = 5, .head_ms = 19 }));
    connection.surplus = .no;
    try std.testing.expectEqual(119, connection.deadline(&.{ .linger_ms = 5, .head_ms = 19 }));
}

test "a blocked output is looked at before its deadline, and whichever deadline comes first counts" {
    var limits: Limits = undefined;
    var connection = inPhase(&limits, .closing);
    connection.output = .{ .blocked = .begin(0, 100) };
    try std.testing.expectEqual(3300, connection.deadline(&distinct));
    try std.testing.expectEqual(200, connection.attentionAt(&distinct));
    connection.phase = .{ .lingering = .{ .since = 100 } };
    try std.testing.expectEqual(129, connection.deadline(&distinct));
    try std.testing.expectEqual(129, connection.attentionAt(&distinct));
    try std.testing.expectEqual(.close, connection.overdue(129, &distinct));
    try std.testing.expectEqual(.write_stalled, connection.overdue(3300, &distinct));
}

test "an exchange is due at the first of what it waits for: body, repetition, idle limit, WebSocket" {
    const testing = std.testing;
    var limits: Limits = undefined;
    var connection = inPhase(&limits, .closed);
    var exchange: Exchange = .{ .ticket = .none, .connection = &connection, .active_at = 100 };
    connection.phase = .serving;
    connection.lane.phase = .{ .exchange = &exchange };
    try testing.expectEqual(Timer.never, connection.deadline(&distinct));

    exchange.idle_ms = 50;
    try testing.expectEqual(150, connection.deadline(&distinct));
    try testing.expectEqual(.not_yet, connection.overdue(149, &distinct));
    try testing.expectEqual(.exchange_idle, connection.overdue(150, &distinct));

    exchange.input = .{ .wanted = .begin(120) };
    try testing.expectEqual(143, connection.deadline(&distinct));
    try testing.expectEqual(.body_stalled, connection.overdue(143, &distinct));
    exchange.input = .{ .wanted = .begin(130) };
    try testing.expectEqual(150, connection.deadline(&distinct));
    try testing.expectEqual(.exchange_idle, connection.overdue(150, &distinct));
    try testing.expectEqual(.body_stalled, connection.overdue(153, &distinct));
    // Nobody asked for the body: the peer is not the one who is waited for.
    exchange.input = .{ .unwanted = .{} };
    try testing.expectEqual(150, connection.deadline(&distinct));
    try testing.expectEqual(.exchange_idle, connection.overdue(1000, &distinct));
    exchange.input = .complete;

    const repeat = try Repeat.create(testing.allocator, ":\n\n", 30, 100);
    defer repeat.destroy(testing.allocator);
    exchange.repeat = repeat;
    try testing.expectEqual(130, connection.deadline(&distinct));
    try testing.expectEqual(.not_yet, connection.overdue(129, &distinct));
    try testing.expectEqual(.repeat, connection.overdue(130, &distinct));
    exchange.ended = true;
    try testing.expectEqual(150, connection.deadline(&distinct));
    exchange.ended = false;
    exchange.repeat = null;

    var websocket: WebSocket = .init("dGhlIHNhbXBsZSBub25jZQ==", "", &.{}, &distinct);
    exchange.websocket = &websocket;
    websocket.setKeepalive(40, 0, 100);
    try testing.expectEqual(150, connection.deadline(&distinct)); // a handshake is no WebSocket yet
    websocket.state = .open;
    try testing.expectEqual(140, connection.deadline(&distinct));
    try testing.expectEqual(.not_yet, connection.overdue(139, &distinct));
    try testing.expectEqual(.websocket, connection.overdue(140, &distinct));
    exchange.idle_ms = 35;
    try testing.expectEqual(135, connection.deadline(&distinct));
    try testing.expectEqual(.exchange_idle, connection.overdue(139, &distinct));
}
