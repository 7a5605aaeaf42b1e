//! An exchange after a WebSocket handshake: puts messages together, answers pings, watches the peer, closes.
//! Refuses to know: sockets, framing (protocol/websocket) and what a message means. Output goes into the connection's outbox.
const std = @import("std");
const assert = std.debug.assert;
const ws = @import("protocol").websocket;
const Config = @import("config.zig").Config;
const Outbox = @import("outbox.zig").Outbox;
const Input = @import("input.zig").Input;
const Pool = @import("pool.zig").Pool;
const Timer = @import("timer.zig").Timer;
const Reason = @import("types.zig").Reason;

pub const Kind = ws.Kind;

/// How a WebSocket ended. `reason` is the peer's text.
pub const Close = struct { code: u16, reason: []const u8 };

/// Stands for "the peer went without a close frame" (RFC 6455 section 7.4.1).
pub const code_abnormal = 1006;
pub const code_going_away = 1001;

pub const SendError = error{ OutOfMemory, NotUtf8, NotOpen };
pub const CloseError = ws.Session.CloseError || error{OutOfMemory};

pub const WebSocket = struct {
    session: ws.Session,
    /// The Sec-WebSocket-Accept that the handshake will be answered with.
    accept: [ws.handshake.accept_bytes]u8,
    state: State = .handshake,
    /// The pieces of a message that is not complete.
    pieces: Input = .{},
    keepalive: Keepalive = .{},
    /// The host asked for no more messages for now.
    paused: bool = false,

    pub const State = union(enum) {
        /// The host has not accepted it yet.
        handshake,
        open,
        /// We sent a close frame, the peer owes its own until then. `why`: the engine closed, not its host.
        closing: struct { until: u64, why: ?Reason = null },
    };

    const Keepalive = struct {
        interval_ms: u32 = 0,
        timeout_ms: u32 = 0,
        ping_at: u64 = Timer.never,
        pong_until: u64 = Timer.never,
    };

    pub fn init(key: *const [ws.handshake.key_bytes]u8, config: *const Config) WebSocket {
        var websocket: WebSocket = .{
            .session = .init(.{ .limits = .{
                .frame_bytes_max = config.frame_bytes_max,
                .message_bytes_max = config.message_bytes_max,
            } }),
            .accept = undefined,
        };
        ws.handshake.acceptKey(key, &websocket.accept);
        return websocket;
    }

    pub fn deinit(websocket: *WebSocket, pool: *Pool) void {
        websocket.pieces.deinit(pool);
    }

    pub fn isOpen(websocket: *const WebSocket) bool {
        return websocket.state == .open;
    }

    /// When something has to happen without the peer doing anything.
    pub fn deadline(websocket: *const WebSocket) u64 {
        return switch (websocket.state) {
            .handshake => Timer.never,
            .open => @min(websocket.keepalive.ping_at, websocket.keepalive.pong_until),
            .closing => |closing| closing.until,
        };
    }

    pub const Due = enum { nothing, ping, pong_missed, close_unanswered };

    /// What is due at `now`.
    pub fn due(websocket: *const WebSocket, now: u64) Due {
        if (now < websocket.deadline()) return .nothing;
        return switch (websocket.state) {
            .handshake => unreachable,
            .closing => .close_unanswered,
            .open => if (now >= websocket.keepalive.pong_until) .pong_missed else .ping,
        };
    }

    /// Pings every `interval_ms` (0: never) and expects a pong within `timeout_ms` (0: does not). Replaces earlier settings.
    pub fn setKeepalive(websocket: *WebSocket, interval_ms: u32, timeout_ms: u32, now: u64) void {
        websocket.keepalive = .{
            .interval_ms = interval_ms,
            .timeout_ms = timeout_ms,
            .ping_at = if (interval_ms == 0) Timer.never else now + interval_ms,
        };
    }

    /// Stops handing out messages, or goes on. A pong that is on its way is not expected while nobody reads.
    pub fn pause(websocket: *WebSocket, paused: bool) void {
        websocket.paused = paused;
        if (paused) websocket.keepalive.pong_until = Timer.never;
    }

    /// The reason why the engine itself began to close; null when its host or the peer did.
    pub fn closedBy(websocket: *const WebSocket) ?Reason {
        return switch (websocket.state) {
            .handshake, .open => null,
            .closing => |closing| closing.why,
        };
    }

    /// Queues the ping that is due.
    pub fn ping(websocket: *WebSocket, outbox: *Outbox, pool: *Pool, now: u64) error{OutOfMemory}!void {
        const keepalive = &websocket.keepalive;
        var frame: [ws.frame.control_bytes_max]u8 = undefined;
        try outbox.append(pool, frame[0..websocket.session.encodePing("", null, &frame)]);
        keepalive.ping_at = now + keepalive.interval_ms;
        // Nobody reads what a paused peer answers.
        const expected = keepalive.timeout_ms > 0 and !websocket.paused;
        if (expected and keepalive.pong_until == Timer.never) keepalive.pong_until = now + keepalive.timeout_ms;
    }

    /// What the worker has to do about input.
    pub const Event = union(enum) {
        need_more,
        /// A control frame was dealt with.
        handled,
        /// A complete message; valid until the next call.
        message: struct { kind: Kind, bytes: []const u8 },
        /// The closing handshake is complete; what was owed is queued.
        closed: Close,
        /// The peer broke a rule and was told so.
        failed: ws.Failure,
    };

    pub const Step = struct { consumed: usize, event: Event };

    /// Reads from the unread bytes, unmasking in place. Queues what the protocol owes the peer.
    pub fn feed(websocket: *WebSocket, bytes: []u8, outbox: *Outbox, pool: *Pool) error{OutOfMemory}!Step {
        websocket.forgetDelivered(pool);
        const step = websocket.session.feed(bytes);
        const event: Event = switch (step.event) {
            .need_more => .need_more,
            .data => |data| try websocket.takeData(data, pool),
            .ping => |payload| try websocket.answerPing(payload, outbox, pool),
            .pong => websocket.notePong(),
            .close => |from_peer| try websocket.answerClose(from_peer, outbox, pool),
            .failed => |failure| try websocket.tellFailure(failure, outbox, pool),
        };
        return .{ .consumed = step.consumed, .event = event };
    }

    fn takeData(websocket: *WebSocket, data: ws.Data, pool: *Pool) error{OutOfMemory}!Event {
        if (websocket.state != .open) return .handled; // we are closing: what still comes is not for the host
        if (data.first and data.last) return .{ .message = .{ .kind = data.kind, .bytes = data.bytes } };
        try websocket.pieces.append(pool, data.bytes);
        if (!data.last) return .handled;
        return .{ .message = .{ .kind = data.kind, .bytes = websocket.pieces.unread() } };
    }

    /// The message of the last step has been delivered: its memory goes back.
    fn forgetDelivered(websocket: *WebSocket, pool: *Pool) void {
        if (websocket.session.message == null) websocket.pieces.deinit(pool);
    }

    fn answerPing(websocket: *WebSocket, payload: []const u8, outbox: *Outbox, pool: *Pool) error{OutOfMemory}!Event {
        if (websocket.session.closeSent()) return .handled;
        var frame: [ws.frame.control_bytes_max]u8 = undefined;
        try outbox.append(pool, frame[0..websocket.session.encodePong(payload, null, &frame)]);
        return .handled;
    }

    fn notePong(websocket: *WebSocket) Event {
        websocket.keepalive.pong_until = Timer.never;
        return .handled;
    }

    fn answerClose(websocket: *WebSocket, from_peer: ws.Close, outbox: *Outbox, pool: *Pool) error{OutOfMemory}!Event {
        if (!websocket.session.closeSent()) {
            try websocket.queueClose(from_peer.code, "", outbox, pool);
        }
        return .{ .closed = .{ .code = from_peer.code, .reason = from_peer.reason } };
    }

    fn tellFailure(websocket: *WebSocket, failure: ws.Failure, outbox: *Outbox, pool: *Pool) error{OutOfMemory}!Event {
        if (!websocket.session.closeSent()) try websocket.queueClose(failure.code, failure.reason, outbox, pool);
        return .{ .failed = failure };
    }

    /// For codes and reasons that are known to be right.
    fn queueClose(websocket: *WebSocket, code: u16, reason: []const u8, outbox: *Outbox, pool: *Pool) error{OutOfMemory}!void {
        var frame: [ws.frame.control_bytes_max]u8 = undefined;
        const len = websocket.session.encodeClose(code, reason, null, &frame) catch unreachable;
        try outbox.append(pool, frame[0..len]);
    }

    /// Queues one message. On an error nothing has changed.
    pub fn send(websocket: *WebSocket, kind: Kind, bytes: []const u8, outbox: *Outbox, pool: *Pool) SendError!void {
        if (websocket.state != .open) return error.NotOpen;
        if (kind == .text and !ws.utf8.valid(bytes)) return error.NotUtf8;
        var header: [ws.frame.header_bytes_max]u8 = undefined;
        const before = websocket.session;
        errdefer websocket.session = before;
        const len = websocket.session.encodeHeader(.{ .kind = kind, .len = bytes.len }, null, &header);
        if (bytes.len <= small_bytes) {
            // One piece of memory, so that a small message is one copy.
            const space = try outbox.reserve(pool, header.len + small_bytes);
            @memcpy(space[0..len], header[0..len]);
            @memcpy(space[len..][0..bytes.len], bytes);
            outbox.commit(len + bytes.len);
            return;
        }
        try outbox.append2(pool, header[0..len], bytes);
    }

    const small_bytes = 512;

    /// Queues a close frame of ours; the peer owes an answer until `until`. On an error nothing has changed.
    pub fn close(websocket: *WebSocket, code: u16, reason: []const u8, until: u64, outbox: *Outbox, pool: *Pool) CloseError!void {
        var frame: [ws.frame.control_bytes_max]u8 = undefined;
        const before = websocket.session;
        errdefer websocket.session = before;
        const len = try websocket.session.encodeClose(code, reason, null, &frame);
        try outbox.append(pool, frame[0..len]);
        websocket.state = .{ .closing = .{ .until = until } };
    }
};
