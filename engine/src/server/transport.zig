//! A connection to a peer: its socket, TLS, addresses, output and deadlines. It has one lane, which serves
//! requests one after the other; or it carries many streams, which have lanes of their own; or it relays
//! another transport's bytes. The functions here have no side effects outside of the transport: `deadline` is
//! the present deadline, `Lane.overdue` says what follows it, and the worker acts.
const std = @import("std");
const assert = std.debug.assert;
const io_layer = @import("io");
const protocol = @import("protocol");
const Limits = protocol.Limits;
const admission = @import("admission.zig");
const Config = @import("config.zig").Config;
const Exchange = @import("exchange.zig").Exchange;
const Lane = @import("lane.zig").Lane;
const LocalAddress = @import("local_address.zig").LocalAddress;
const Multiplex = @import("multiplex.zig").Multiplex;
const Output = @import("output.zig").Output;
const PeerText = @import("peer_text.zig").PeerText;
const Relaying = @import("relay.zig").Relaying;
const Repeat = @import("repeat.zig").Repeat;
const Share = @import("share.zig").Share;
const Timer = @import("timer.zig").Timer;
const Tunnel = @import("tunnel.zig").Tunnel;
const types = @import("types.zig");
const WebSocket = @import("websocket.zig").WebSocket;

/// A connection to a peer, with its socket.
pub const Transport = struct {
    /// The transport's own lane. Its input is that of the connection, also when the transport carries
    /// streams.
    lane: Lane,
    /// The session of HTTP/1, while the transport carries no streams.
    single: protocol.Single,
    /// The socket; `none` once the transport is closed.
    socket: io_layer.Socket,
    phase: Phase,
    /// Bytes for the kernel, or plaintext that the tunnel has not sealed yet.
    out: Output = .{},
    /// The TLS layer; null: the connection is not encrypted.
    tunnel: ?*Tunnel = null,
    /// The bytes that were sent in the present round.
    turn: Share.Turn = .{},
    entry: admission.Entry = .{},
    /// The connection came in over the limit, or while memory was short: only a request for the health path
    /// is answered.
    surplus: Surplus = .no,
    /// `stopping`: the worker stops, and a first request may be on its way. `replaced`: another worker takes
    /// this worker's place, and one more request is answered.
    retiring: enum { no, stopping, replaced } = .no,
    /// The io does not read the socket.
    paused: bool = false,
    /// The worker had no memory for bytes behind a request. They are not read, and the connection closes
    /// after the response.
    discards: bool = false,
    /// The peer is the application of a relay, not a client.
    local: bool = false,
    /// The peer is a trusted proxy, so the server believes its header fields about clients.
    trusted: bool = false,
    /// The connection's number in logs. Each worker counts its own.
    number: u32,
    listener: u16,
    peer_port: u16 = 0,
    /// The address as text; empty for Unix sockets.
    peer_text: PeerText = .{},
    /// The local address of the connection; null for Unix sockets.
    local_address: ?*LocalAddress = null,

    comptime {
        // Each idle connection has a transport; see "Memory" in ARCHITECTURE.md.
        assert(@sizeOf(Transport) <= 312);
    }

    pub const Surplus = enum { no, connections, memory };

    /// The phase of the connection, which says what its bytes mean.
    pub const Phase = union(enum) {
        /// The header of the PROXY protocol is expected, and nothing else is parsed. `rest`: bytes of the
        /// header that are still to come, once its addresses are known.
        proxy_header: struct { since: u64, rest: ?u16 = null },
        /// The TLS handshake goes on. No request is parsed, and there is no output. The lane's input is
        /// ciphertext that waits for its turn. `has_ended`: the peer has ended its sending side.
        handshake: struct { since: u64, has_ended: bool = false },
        /// Requests are served one after the other; the lane has their state.
        serving,
        /// Received bytes are sent on another transport as they are.
        relaying: Relaying,
        /// The connection carries many streams.
        multiplexed: *Multiplex,
        /// The last response is queued. The server ends its sending side when it was sent.
        closing,
        /// All output was sent. The socket stays open for a while, so that the peer can read the output.
        lingering: struct { since: u64 },
        /// The socket is closed, and the slot will be given back.
        closed,
    };

    /// Prepares a slot for a socket that serves requests. The transport must not move afterwards.
    pub fn init(
        transport: *Transport,
        socket: io_layer.Socket,
        limits: *const Limits,
        number: u32,
        listener: u32,
        now: u64,
    ) void {
        transport.* = .{
            .lane = .{
                .transport = transport,
                .phase = .{ .idle = .{ .since = now } },
            },
            .single = .init(limits),
            .socket = socket,
            .phase = .serving,
            .number = number,
            .listener = @intCast(listener),
        };
    }

    /// The streams of HTTP/2; null for a transport that carries none.
    pub fn multiplex(transport: *const Transport) ?*Multiplex {
        return if (transport.phase == .multiplexed) transport.phase.multiplexed else null;
    }

    /// Begins to wait for a request.
    pub fn awaitRequest(transport: *Transport, now: u64) void {
        transport.phase = .serving;
        transport.lane.phase = .{ .idle = .{ .since = now } };
    }

    /// Ends serving requests on the transport's own lane. The lane's exchange must have ended.
    pub fn leaveServing(transport: *Transport, phase: Phase) void {
        switch (phase) {
            .relaying, .multiplexed, .closed => {},
            .proxy_header, .handshake, .serving, .closing, .lingering => unreachable,
        }
        transport.lane.phase = .closing;
        transport.phase = phase;
    }

    /// Notes that the worker stops: a peer without a request has `Config.linger_ms` from now on to send one.
    pub fn retire(transport: *Transport, now: u64) void {
        transport.retiring = .stopping;
        transport.restartWait(now);
    }

    /// Notes that another worker takes this worker's place: the next request is the last one, and must come
    /// within `Config.retire_idle_ms`.
    pub fn replace(transport: *Transport, now: u64) void {
        transport.retiring = .replaced;
        if (transport.lane.isIdle()) transport.restartWait(now);
        const exchange = transport.lane.current() orelse return;
        // A client whose response has begun learns it from the next response. A WebSocket that is about to
        // begin may go on.
        const session = transport.lane.session();
        if (exchange.websocket == null and !session.responseStarted()) session.closeAfterResponse();
    }

    fn restartWait(transport: *Transport, now: u64) void {
        switch (transport.phase) {
            .proxy_header => |*header| header.since = now,
            .handshake => |*handshake| handshake.since = now,
            .serving => transport.lane.restartWait(now),
            .relaying, .multiplexed, .closing, .lingering, .closed => {},
        }
    }

    // ---- Output

    /// Queued bytes that the kernel has not taken, sealed or not. File ranges do not count.
    pub fn queuedBytes(transport: *const Transport) usize {
        const tunnel = transport.tunnel orelse return transport.out.queue.bytes;
        return transport.out.queue.bytes + tunnel.wire.bytes;
    }

    /// Whether the kernel has taken all output.
    pub fn isFlushed(transport: *const Transport) bool {
        if (!transport.out.queue.isEmpty()) return false;
        const tunnel = transport.tunnel orelse return true;
        return tunnel.wire.isEmpty();
    }

    /// Whether closing the socket now would cut a response short.
    pub fn owesOutput(transport: *const Transport) bool {
        return transport.single.responseOpen() or !transport.isFlushed();
    }

    // ---- Input

    /// Whether frames of streams may be read now.
    pub fn wantsFrames(transport: *const Transport) bool {
        return transport.phase == .multiplexed and transport.queuedBytes() < flood_bytes;
    }

    pub const flood_bytes = @import("config.zig").worker_limits.flood_bytes;

    const flight_bytes = @import("config.zig").worker_limits.flight_bytes;

    /// Whether the socket is to be read. While an exchange waits for its application, the socket is read once
    /// to notice the peer's end, and no more, because the bytes would fill memory.
    pub fn wantsReceive(transport: *const Transport) bool {
        // TLS answers some messages by itself, so its output is bounded, too.
        if (transport.tunnel) |tunnel| if (tunnel.wire.bytes >= flood_bytes) return false;
        const lane = &transport.lane;
        return switch (transport.phase) {
            .proxy_header, .closing, .lingering => true,
            // Ciphertext that the session has not read yet may not exceed one flight.
            .handshake => lane.input.unread().len < flight_bytes,
            .serving => !lane.yielded and switch (lane.phase) {
                .head, .draining => true,
                // Requests that were received are parsed first, because the peer's end behind them must not
                // be seen before them.
                .idle => !lane.corked or lane.input.isEmpty(),
                .exchange => |exchange| lane.wantsInput() or
                    (lane.input.isEmpty() and exchange.inputComplete()),
                .closing => unreachable, // the transport closes with its lane
            },
            .relaying => |relaying| !relaying.isFull() and lane.sending != .ended,
            .multiplexed => !lane.yielded and transport.wantsFrames(),
            .closed => false,
        };
    }

    // ---- Deadlines

    /// The time until which the peer must act, in milliseconds; `Timer.never`: nothing is expected of it.
    pub fn deadline(transport: *const Transport, config: *const Config) u64 {
        // An application may take any time for bytes of its client.
        if (transport.local) return Timer.never;
        const reading = switch (transport.phase) {
            .proxy_header => |header| header.since + transport.opening(config, config.proxy_ms),
            .handshake => |handshake| handshake.since + transport.opening(config, config.handshake_ms),
            .serving => transport.lane.expectedAt(config),
            .multiplexed => |streams| streams.deadline(transport, config),
            .lingering => |lingering| lingering.since + config.linger_ms,
            .relaying => |relaying| Timer.after(relaying.activeAt(), config.websocket_idle_ms),
            .closing, .closed => Timer.never,
        };
        return switch (transport.out.state) {
            .open => reading,
            .blocked => |blockage| @min(reading, blockage.stall.deadline(config.write_ms)),
        };
    }

    /// The time at which the worker looks at the transport again: at its deadline, or earlier to see how much
    /// a slow peer has taken.
    pub fn attentionAt(transport: *const Transport, config: *const Config) u64 {
        const at = transport.deadline(config);
        if (transport.local) return at;
        return switch (transport.out.state) {
            .open => at,
            .blocked => |*blockage| @min(at, blockage.lookAt(config.write_ms)),
        };
    }

    /// The action that follows the deadline of a transport that serves no requests on its own lane.
    pub fn overdue(transport: *const Transport) Lane.Overdue {
        return switch (transport.phase) {
            .multiplexed => .multiplexed,
            .proxy_header, .handshake, .relaying, .closing, .lingering, .closed => .close,
            .serving => unreachable, // the lane decides
        };
    }

    /// Milliseconds of `limit_ms` that a peer without a request has.
    fn opening(transport: *const Transport, config: *const Config, limit_ms: u32) u32 {
        return if (transport.retiring == .stopping) @min(config.linger_ms, limit_ms) else limit_ms;
    }

    // ---- Logs

    /// The peer's address in logs.
    pub fn peerName(transport: *const Transport) []const u8 {
        return types.peerName(transport.peer_text.slice());
    }

    /// The peer's address and port in logs. Peers on Unix sockets have no port.
    pub fn peerPlace(transport: *const Transport) PeerPlace {
        return .{ .transport = transport };
    }

    const PeerPlace = struct {
        transport: *const Transport,

        /// Used by `{f}`.
        pub fn format(place: PeerPlace, writer: *std.Io.Writer) std.Io.Writer.Error!void {
            try writer.writeAll(place.transport.peerName());
            if (place.transport.peer_text.len > 0) {
                try writer.print(" port {d}", .{place.transport.peer_port});
            }
        }
    };

    /// Asserts relations that hold between two rounds.
    pub fn invariants(transport: *const Transport) void {
        const lane = &transport.lane;
        if (transport.multiplex()) |streams| streams.invariants(transport);
        switch (transport.phase) {
            .proxy_header, .handshake => assert(lane.phase == .idle),
            .serving => assert(lane.phase != .closing),
            .relaying, .multiplexed, .closing, .lingering => assert(lane.phase == .closing),
            .closed => {
                assert(lane.phase == .closing);
                assert(lane.input.buffer == null);
                assert(transport.out.queue.isEmpty());
            },
        }
    }

    comptime {
        // An idle keep-alive connection has no buffer, and takes no other memory (test/sim/sim_test.zig).
        assert(@sizeOf(Transport) <= 1024 - 16);
    }
};

test "an idle connection is closed, half a head is refused, neither before its time" {
    const config: Config = .{ .idle_ms = 1000, .head_ms = 300 };
    var limits: Limits = undefined;
    var transport: Transport = undefined;
    inLane(&transport, &limits, .{ .idle = .{ .since = 50 } });
    try std.testing.expectEqual(1050, transport.deadline(&config));
    try std.testing.expectEqual(.not_yet, transport.lane.overdue(1049, &config));
    try std.testing.expectEqual(.close, transport.lane.overdue(1050, &config));
    transport.lane.phase = .{ .head = .{ .since = 100 } };
    try std.testing.expectEqual(.refuse, transport.lane.overdue(400, &config));
}

test "a blocked output has its own deadline, moved by what the peer takes" {
    const config: Config = .{ .write_ms = 1000, .write_rate_min = 100, .idle_ms = 0 };
    var limits: Limits = undefined;
    var transport: Transport = undefined;
    inPhase(&transport, &limits, .closing);
    transport.out.state = .{ .blocked = .begin(0, 0) };
    try std.testing.expectEqual(.write_stalled, transport.lane.overdue(1000, &config));
    transport.out.state.blocked.stall.progress(50, config.write_rate_min, 800);
    try std.testing.expectEqual(.not_yet, transport.lane.overdue(1499, &config));
    try std.testing.expectEqual(.write_stalled, transport.lane.overdue(1500, &config));
}

/// Makes a transport in this phase, for tests. Its session keeps the pointer to `limits`.
fn inPhase(transport: *Transport, limits: *Limits, phase: Transport.Phase) void {
    const serves = phase == .serving or phase == .handshake or phase == .proxy_header;
    inLane(transport, limits, if (serves) .{ .idle = .{ .since = 0 } } else .closing);
    transport.phase = phase;
}

/// Makes a transport that serves requests, with its lane in this phase.
fn inLane(transport: *Transport, limits: *Limits, phase: Lane.Phase) void {
    transport.init(.none, limits, 1, 0, 0);
    transport.lane.phase = phase;
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
    const Case = struct { Transport.Phase, u64, Lane.Overdue };
    const cases = [_]Case{
        .{ .{ .proxy_header = .{ .since = 100 } }, 111, .close },
        .{ .{ .handshake = .{ .since = 100 } }, 113, .close },
        .{ .{ .lingering = .{ .since = 100 } }, 129, .close },
    };
    const LaneCase = struct { Lane.Phase, u64, Lane.Overdue };
    const lane_cases = [_]LaneCase{
        .{ .{ .idle = .{ .since = 100 } }, 117, .close },
        .{ .{ .head = .{ .since = 100 } }, 119, .refuse },
        .{ .{ .draining = .{ .since = 100, .bytes_left = 0 } }, 123, .close },
    };
    var limits: Limits = undefined;
    var transport: Transport = undefined;
    for (cases) |case| {
        inPhase(&transport, &limits, case[0]);
        try expectDue(&transport, case[1], case[2]);
    }
    for (lane_cases) |case| {
        inLane(&transport, &limits, case[0]);
        try expectDue(&transport, case[1], case[2]);
    }
    const endless: Config = .{ .idle_ms = 0, .body_ms = 0 };
    for ([_]Transport.Phase{ .closing, .closed }) |phase| {
        inPhase(&transport, &limits, phase);
        try std.testing.expectEqual(Timer.never, transport.deadline(&endless));
    }
    for ([_]Lane.Phase{
        .{ .idle = .{ .since = 100 } },
        .{ .draining = .{ .since = 100, .bytes_left = 0 } },
    }) |phase| {
        inLane(&transport, &limits, phase);
        try std.testing.expectEqual(Timer.never, transport.deadline(&endless));
    }
}

fn expectDue(transport: *const Transport, at: u64, overdue: Lane.Overdue) !void {
    try std.testing.expectEqual(at, transport.deadline(&distinct));
    try std.testing.expectEqual(at, transport.attentionAt(&distinct));
    try std.testing.expectEqual(.not_yet, transport.lane.overdue(at - 1, &distinct));
    try std.testing.expectEqual(overdue, transport.lane.overdue(at, &distinct));
}

test "the socket of an exchange is read for what is wanted, and once for the end of the peer" {
    var limits: Limits = undefined;
    var transport: Transport = undefined;
    inPhase(&transport, &limits, .closed);
    try std.testing.expect(!transport.wantsReceive());
    var exchange: Exchange = .{ .ticket = .none, .lane = &transport.lane, .active_at = 0 };
    transport.phase = .serving;
    transport.lane.phase = .{ .exchange = &exchange };
    try std.testing.expect(transport.wantsReceive());
    exchange.input = .{ .unwanted = .{} };
    try std.testing.expect(!transport.wantsReceive());
    exchange.input = .{ .wanted = .begin(0) };
    try std.testing.expect(transport.wantsReceive());
    transport.lane.yielded = true;
    try std.testing.expect(!transport.wantsReceive());
}

test "a body that nobody asks for keeps the time that its peer has used up" {
    var limits: Limits = undefined;
    var transport: Transport = undefined;
    inPhase(&transport, &limits, .closed);
    var exchange: Exchange = .{ .ticket = .none, .lane = &transport.lane, .active_at = 0 };
    transport.phase = .serving;
    transport.lane.phase = .{ .exchange = &exchange };
    try std.testing.expect(!exchange.want(100));
    exchange.input = .{ .wanted = .begin(100) };
    exchange.pieceDelivered(110);
    try std.testing.expectEqual(Timer.never, transport.deadline(&distinct));
    try std.testing.expect(exchange.want(1000));
    try std.testing.expectEqual(1000 - 10 + 23, transport.deadline(&distinct));
    // The host has asked for a piece and was given none yet.
    exchange.pieceDelivered(1005);
    try std.testing.expectEqual(1013, transport.deadline(&distinct));
    try std.testing.expect(exchange.want(1010));
    try std.testing.expectEqual(1013, transport.deadline(&distinct));
}

test "a connection over the limit gets the time of a last answer, and then the answer" {
    var limits: Limits = undefined;
    var transport: Transport = undefined;
    inLane(&transport, &limits, .{ .idle = .{ .since = 100 } });
    transport.surplus = .connections;
    try std.testing.expectEqual(129, transport.deadline(&distinct));
    try std.testing.expectEqual(.turn_away, transport.lane.overdue(129, &distinct));
    transport.lane.phase = .{ .head = .{ .since = 100 } };
    try std.testing.expectEqual(119, transport.deadline(&distinct));
    try std.testing.expectEqual(.turn_away, transport.lane.overdue(119, &distinct));
    try std.testing.expectEqual(105, transport.deadline(&.{ .linger_ms = 5, .head_ms = 19 }));
    transport.surplus = .no;
    try std.testing.expectEqual(119, transport.deadline(&.{ .linger_ms = 5, .head_ms = 19 }));
}

test "a blocked output is looked at before its deadline, and whichever deadline comes first counts" {
    var limits: Limits = undefined;
    var transport: Transport = undefined;
    inPhase(&transport, &limits, .closing);
    transport.out.state = .{ .blocked = .begin(0, 100) };
    try std.testing.expectEqual(3300, transport.deadline(&distinct));
    try std.testing.expectEqual(200, transport.attentionAt(&distinct));
    transport.phase = .{ .lingering = .{ .since = 100 } };
    try std.testing.expectEqual(129, transport.deadline(&distinct));
    try std.testing.expectEqual(129, transport.attentionAt(&distinct));
    try std.testing.expectEqual(.close, transport.lane.overdue(129, &distinct));
    try std.testing.expectEqual(.write_stalled, transport.lane.overdue(3300, &distinct));
}

test "an exchange is due at the first of what it waits for: body, repetition, idle limit, WebSocket" {
    const testing = std.testing;
    var limits: Limits = undefined;
    var transport: Transport = undefined;
    inPhase(&transport, &limits, .closed);
    var exchange: Exchange = .{ .ticket = .none, .lane = &transport.lane, .active_at = 100 };
    transport.phase = .serving;
    transport.lane.phase = .{ .exchange = &exchange };
    try testing.expectEqual(Timer.never, transport.deadline(&distinct));

    exchange.idle_ms = 50;
    try testing.expectEqual(150, transport.deadline(&distinct));
    try testing.expectEqual(.not_yet, transport.lane.overdue(149, &distinct));
    try testing.expectEqual(.exchange_idle, transport.lane.overdue(150, &distinct));

    exchange.input = .{ .wanted = .begin(120) };
    try testing.expectEqual(143, transport.deadline(&distinct));
    try testing.expectEqual(.body_stalled, transport.lane.overdue(143, &distinct));
    exchange.input = .{ .wanted = .begin(130) };
    try testing.expectEqual(150, transport.deadline(&distinct));
    try testing.expectEqual(.exchange_idle, transport.lane.overdue(150, &distinct));
    try testing.expectEqual(.body_stalled, transport.lane.overdue(153, &distinct));
    // The host has not asked for the body, so the peer has no deadline for it.
    exchange.input = .{ .unwanted = .{} };
    try testing.expectEqual(150, transport.deadline(&distinct));
    try testing.expectEqual(.exchange_idle, transport.lane.overdue(1000, &distinct));
    exchange.input = .complete;

    const repeat = try Repeat.create(testing.allocator, ":\n\n", 30, 100);
    defer repeat.destroy(testing.allocator);
    exchange.repeat = repeat;
    try testing.expectEqual(130, transport.deadline(&distinct));
    try testing.expectEqual(.not_yet, transport.lane.overdue(129, &distinct));
    try testing.expectEqual(.repeat, transport.lane.overdue(130, &distinct));
    exchange.response = .complete;
    try testing.expectEqual(150, transport.deadline(&distinct));
    exchange.response = .open;
    exchange.repeat = null;

    var websocket: WebSocket = .init("dGhlIHNhbXBsZSBub25jZQ==", "", &.{}, &distinct);
    exchange.websocket = &websocket;
    websocket.setKeepalive(40, 0, 100);
    try testing.expectEqual(150, transport.deadline(&distinct)); // the handshake was not accepted yet
    websocket.state = .open;
    try testing.expectEqual(140, transport.deadline(&distinct));
    try testing.expectEqual(.not_yet, transport.lane.overdue(139, &distinct));
    try testing.expectEqual(.websocket, transport.lane.overdue(140, &distinct));
    exchange.idle_ms = 35;
    try testing.expectEqual(135, transport.deadline(&distinct));
    try testing.expectEqual(.exchange_idle, transport.lane.overdue(139, &distinct));
}
