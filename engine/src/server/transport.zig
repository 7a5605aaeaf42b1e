//! A connection to a peer: its socket, TLS, addresses, output and deadlines of the wire. It has one lane,
//! which serves its requests one after the other; or carries many streams, which have lanes of their own; or
//! relays another transport's bytes. Has no side effects: the worker acts. Deadlines are values here:
//! `deadline` is the present one, `Lane.overdue` says what follows when it has passed.
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
const Ticket = @import("slab.zig").Ticket;
const Timer = @import("timer.zig").Timer;
const Tunnel = @import("tunnel.zig").Tunnel;
const types = @import("types.zig");
const WebSocket = @import("websocket.zig").WebSocket;

/// A connection to a peer, with its socket.
pub const Transport = struct {
    /// The transport's own lane. The lane's input is that of the wire, whatever the transport carries.
    lane: Lane,
    /// The session of the lane, while the transport carries no streams.
    single: protocol.Single,
    /// `none` once the transport is closed.
    socket: io_layer.Socket,
    phase: Phase,
    /// Bytes that wait for the kernel, or to be sealed by the tunnel.
    out: Output = .{},
    /// The TLS layer; null: bytes go as plain text.
    tunnel: ?*Tunnel = null,
    /// Bytes that were sent in a round.
    turn: Share.Turn = .{},
    entry: admission.Entry = .{},
    /// The connection came in over the limit, or while memory was short: the health path is all that it may
    /// ask for.
    surplus: Surplus = .no,
    /// `stopping`: the worker stops, and the first request may be on its way. `replaced`: another worker
    /// takes this one's place, and one more request is answered.
    retiring: enum { no, stopping, replaced } = .no,
    /// The io does not read the socket.
    paused: bool = false,
    /// The worker had no memory for bytes behind a request: they are not read, and the connection closes
    /// after the response.
    discards: bool = false,
    /// The peer is no client, but the application's end of a relay.
    local: bool = false,
    /// The peer is a trusted proxy: the server believes what its requests say about their clients.
    trusted: bool = false,
    /// A number for logs: counts up per worker.
    number: u32,
    listener: u16,
    peer_port: u16 = 0,
    /// The address as text; empty for Unix sockets.
    peer_text: PeerText = .{},
    /// The address that the peer has connected to; null for Unix sockets.
    local_address: ?*LocalAddress = null,

    comptime {
        // Each idle connection has one. ARCHITECTURE.md, "Memory", says what for.
        assert(@sizeOf(Transport) <= 352);
    }

    pub const Surplus = enum { no, connections, memory };

    /// The meaning of the wire's bytes.
    pub const Phase = union(enum) {
        /// The proxy that brings the connection has yet to say whose it is. Nothing else is parsed; `rest`:
        /// bytes of the header that are still to come, when its addresses are known.
        proxy_header: struct { since: u64, rest: ?u16 = null },
        /// TLS is being negotiated. Nothing is parsed, and the output is empty; the input is ciphertext that
        /// waits for its turn; `has_ended`: nothing comes behind it.
        handshake: struct { since: u64, has_ended: bool = false },
        /// Requests come and are answered one after the other: the lane says how far they are.
        serving,
        /// Received bytes are sent on another transport as they are.
        relaying: Relaying,
        /// Many streams are open at a time.
        multiplexed: *Multiplex,
        /// The last answer is queued; when it is out, our sending side ends.
        closing,
        /// All output is sent; the peer gets time to read it before the socket goes.
        lingering: struct { since: u64 },
        /// The socket is closed, the slot is about to be given back.
        closed,
    };

    /// Prepares a slot for a socket that serves requests; it must not move afterwards.
    pub fn init(
        transport: *Transport,
        ticket: Ticket,
        socket: io_layer.Socket,
        limits: *const Limits,
        number: u32,
        listener: u32,
        now: u64,
    ) void {
        transport.* = .{
            .lane = .{
                .ticket = ticket,
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

    /// The next request may come from now on.
    pub fn awaitRequest(transport: *Transport, now: u64) void {
        transport.phase = .serving;
        transport.lane.phase = .{ .idle = .{ .since = now } };
    }

    /// The transport serves requests of its own no longer. Its exchange, if there was one, is forgotten.
    pub fn leaveServing(transport: *Transport, phase: Phase) void {
        switch (phase) {
            .relaying, .multiplexed, .closed => {},
            .proxy_header, .handshake, .serving, .closing, .lingering => unreachable,
        }
        transport.lane.phase = .closing;
        transport.phase = phase;
    }

    /// The worker stops: a peer that has not sent a request yet has `Config.linger_ms` from now on.
    pub fn retire(transport: *Transport, now: u64) void {
        transport.retiring = .stopping;
        transport.restartWait(now);
    }

    /// Another worker takes the place of this one: the next request is the last one, and has
    /// `Config.retire_idle_ms` to come.
    pub fn replace(transport: *Transport, now: u64) void {
        transport.retiring = .replaced;
        if (transport.lane.isIdle()) transport.restartWait(now);
        const exchange = transport.lane.current() orelse return;
        // A client whose response has begun is told by the next one. A WebSocket that is about to begin may
        // go on.
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

    /// Bytes that wait for the kernel, sealed or not. Those of file ranges are not counted.
    pub fn queuedBytes(transport: *const Transport) usize {
        const tunnel = transport.tunnel orelse return transport.out.queue.bytes;
        return transport.out.queue.bytes + tunnel.wire.bytes;
    }

    /// Has the kernel taken everything?
    pub fn isFlushed(transport: *const Transport) bool {
        if (!transport.out.queue.isEmpty()) return false;
        const tunnel = transport.tunnel orelse return true;
        return tunnel.wire.isEmpty();
    }

    /// Would closing the socket now leave the peer with a part of something?
    pub fn owesOutput(transport: *const Transport) bool {
        return transport.single.responseOpen() or !transport.isFlushed();
    }

    // ---- Input

    /// May frames of streams be read now?
    pub fn wantsFrames(transport: *const Transport) bool {
        return transport.phase == .multiplexed and transport.queuedBytes() < flood_bytes;
    }

    pub const flood_bytes = @import("config.zig").worker_limits.flood_bytes;

    const flight_bytes = @import("config.zig").worker_limits.flight_bytes;

    /// Should the socket be read? While an exchange waits for its application one receive is taken, so that
    /// the end of the peer is seen; no more, or the peer could fill our memory.
    pub fn wantsReceive(transport: *const Transport) bool {
        // TLS answers some messages by itself.
        if (transport.tunnel) |tunnel| if (tunnel.wire.bytes >= flood_bytes) return false;
        const lane = &transport.lane;
        return switch (transport.phase) {
            .proxy_header, .closing, .lingering => true,
            // Ciphertext that the session has not looked at yet may be more than a flight.
            .handshake => lane.input.unread().len < flight_bytes,
            .serving => !lane.yielded and switch (lane.phase) {
                .head, .draining => true,
                // Requests that have been received come first: the end of the peer behind them must not be
                // seen before.
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

    /// The deadline of the peer's next step; `Timer.never` while nothing is expected of it.
    pub fn deadline(transport: *const Transport, config: *const Config) u64 {
        // An application takes its time: bytes of its client wait.
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

    /// When the worker has to look at the transport again: at its deadline, or earlier, at how much a slow
    /// peer has taken.
    pub fn attentionAt(transport: *const Transport, config: *const Config) u64 {
        const at = transport.deadline(config);
        if (transport.local) return at;
        return switch (transport.out.state) {
            .open => at,
            .blocked => |*blockage| @min(at, blockage.lookAt(config.write_ms)),
        };
    }

    /// The consequence of a deadline of a transport that serves no requests of its own.
    pub fn overdue(transport: *const Transport) Lane.Overdue {
        return switch (transport.phase) {
            .multiplexed => .multiplexed,
            .proxy_header, .handshake, .relaying, .closing, .lingering, .closed => .close,
            .serving => unreachable, // the lane knows
        };
    }

    /// Milliseconds that a peer has before its first request.
    fn opening(transport: *const Transport, config: *const Config, limit_ms: u32) u32 {
        return if (transport.retiring == .stopping) @min(config.linger_ms, limit_ms) else limit_ms;
    }

    // ---- Logs

    /// The peer's address as logs name it.
    pub fn peerName(transport: *const Transport) []const u8 {
        return types.peerName(transport.peer_text.slice());
    }

    /// The peer's address and port as logs name them: peers on Unix sockets have no port.
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

    /// Asserts what always holds between two rounds.
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
        // An idle keep-alive connection holds nothing else: it has no buffer (test/sim/sim_test.zig).
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

/// Makes a transport in this phase, for tests of what depends on nothing else. `limits` are for its session,
/// which keeps the pointer.
fn inPhase(transport: *Transport, limits: *Limits, phase: Transport.Phase) void {
    const serves = phase == .serving or phase == .handshake or phase == .proxy_header;
    inLane(transport, limits, if (serves) .{ .idle = .{ .since = 0 } } else .closing);
    transport.phase = phase;
}

/// Makes a transport that serves requests, whose lane is in this phase.
fn inLane(transport: *Transport, limits: *Limits, phase: Lane.Phase) void {
    transport.init(.none, .none, limits, 1, 0, 0);
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
    // The host has asked and was given nothing yet.
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
    // The host has not asked for the body: the deadline is not the peer's.
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
    try testing.expectEqual(150, transport.deadline(&distinct)); // a handshake is no WebSocket yet
    websocket.state = .open;
    try testing.expectEqual(140, transport.deadline(&distinct));
    try testing.expectEqual(.not_yet, transport.lane.overdue(139, &distinct));
    try testing.expectEqual(.websocket, transport.lane.overdue(140, &distinct));
    exchange.idle_ms = 35;
    try testing.expectEqual(135, transport.deadline(&distinct));
    try testing.expectEqual(.exchange_idle, transport.lane.overdue(139, &distinct));
}
