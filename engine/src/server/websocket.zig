//! An exchange after a WebSocket handshake: it assembles messages, answers pings, watches the peer and
//! closes. Output goes to the lane's outbox. Does not know: sockets, framing and DEFLATE
//! (protocol/websocket), and the meaning of messages.
const std = @import("std");
const assert = std.debug.assert;
const ws = @import("protocol").websocket;
const FieldSpan = @import("protocol").http.FieldSpan;
const Deflater = ws.deflate.Deflater;
const Compression = @import("compression.zig").Compression;
const Context = @import("compression.zig").Context;
const Config = @import("config.zig").Config;
const Loan = @import("loan.zig").Loan;
const Outbox = @import("outbox.zig").Outbox;
const Incoming = @import("incoming.zig").Incoming;
const Line = @import("inflation.zig").Line;
const Pool = @import("pool.zig").Pool;
const Reason = @import("types.zig").Reason;
const Timer = @import("timer.zig").Timer;

/// The type of a message: text or binary.
pub const Kind = ws.Kind;

/// The close code of a WebSocket that ended, and the peer's reason.
pub const Close = struct { code: u16, reason: []const u8 };

/// The close code for a peer that left without a close frame (RFC 6455 section 7.4.1).
pub const code_abnormal = 1006;
/// The close code for a server that stops (RFC 6455 section 7.4.1).
pub const code_going_away = 1001;
/// The close code for a restart (registry of RFC 6455 section 11.7): the client may connect again at once.
pub const code_service_restart = 1012;

/// The close code for a frame or message over the limit (RFC 6455 section 7.4.1).
pub const code_too_big = 1009;
/// The close code for a fault of the server (RFC 6455 section 7.4.1).
pub const code_internal_error = 1011;

/// Reasons why a message is not sent. Nothing was queued.
pub const SendError = error{ OutOfMemory, NotUtf8, NotOpen };
/// Reasons why a close frame is not sent.
pub const CloseError = ws.Session.CloseError || error{OutOfMemory};

/// An exchange after a WebSocket handshake: its messages, pings and end.
pub const WebSocket = struct {
    session: ws.Session,
    /// The value of Sec-WebSocket-Accept for the response to the handshake.
    accept: [ws.handshake.accept_bytes]u8,
    state: State = .handshake,
    /// Permessage-deflate: the offer that can be met, until the host accepts the WebSocket, and then the
    /// agreement. Null: messages are not compressed.
    compression: ?Context,
    /// Messages of fewer bytes are not compressed.
    deflate_bytes_min: u32,
    incoming: Incoming = .{},
    keepalive: Keepalive = .{},
    /// The peer's end was read; `end` follows.
    ending: ?Ending = null,
    /// The WebSocket is listed for `end` in the next round.
    postponed: bool = false,

    comptime {
        // An idle WebSocket takes this memory beside its connection and its exchange.
        assert(@sizeOf(WebSocket) <= 448);
    }

    /// The stage of a WebSocket.
    pub const State = union(enum) {
        /// The host has not accepted the WebSocket yet.
        handshake,
        open,
        /// The server has sent a close frame, and the peer must answer it until `until`. `why`: the engine
        /// closed, not its host.
        closing: struct { until: u64, why: ?Reason = null },
    };

    /// A fault of the peer, with the close code for it.
    pub const Failure = ws.Failure;
    pub const Ending = union(enum) { closed: Close, failed: Failure };

    const Keepalive = struct {
        interval_ms: u32 = 0,
        timeout_ms: u32 = 0,
        ping_at: u64 = Timer.never,
        pong_until: u64 = Timer.never,
    };

    /// Creates a WebSocket for a valid handshake, whose head has `text` and `fields`.
    pub fn init(
        key: ?*const [ws.handshake.key_bytes]u8,
        text: []const u8,
        fields: []const FieldSpan,
        config: *const Config,
    ) WebSocket {
        var websocket: WebSocket = .{
            .session = .init(.{
                .limits = .{
                    .frame_bytes_max = config.frame_bytes_max,
                    .message_bytes_max = config.message_bytes_max,
                },
            }),
            .accept = undefined,
            .compression = .negotiate(text, fields, config),
            .deflate_bytes_min = config.deflate_bytes_min,
        };
        if (key) |one| ws.handshake.acceptKey(one, &websocket.accept);
        return websocket;
    }

    /// Opens the WebSocket, whose host has accepted it. The response to the handshake is queued already.
    pub fn open(websocket: *WebSocket, is_compressed: bool) void {
        assert(websocket.state == .handshake);
        if (!is_compressed) websocket.compression = null;
        websocket.session.deflate = websocket.compression != null;
        websocket.state = .open;
    }

    /// Frees all memory. `gpa` is that of `Compression`, `line` is the worker's.
    pub fn deinit(websocket: *WebSocket, pool: *Pool, gpa: std.mem.Allocator, line: *Line) void {
        websocket.incoming.deinit(pool, gpa, line);
        if (websocket.compression) |*context| context.deinit(gpa);
    }

    /// Whether messages may be sent.
    pub fn isOpen(websocket: *const WebSocket) bool {
        return websocket.state == .open;
    }

    /// log2 of the window with which the peer inflates messages; null: its messages are not compressed.
    pub fn sentWindowBits(websocket: *const WebSocket) ?u4 {
        const context = &(websocket.compression orelse return null);
        return context.agreement.server_window_bits;
    }

    /// The time at which the server must act although the peer does nothing, in milliseconds.
    pub fn deadline(websocket: *const WebSocket) u64 {
        return switch (websocket.state) {
            .handshake => Timer.never,
            .open => @min(websocket.keepalive.ping_at, websocket.keepalive.pong_until),
            .closing => |closing| closing.until,
        };
    }

    /// The action that follows a deadline.
    pub const Due = enum { nothing, ping, pong_missed, close_unanswered };

    /// The action that is due at `now`.
    pub fn due(websocket: *const WebSocket, now: u64) Due {
        if (now < websocket.deadline()) return .nothing;
        return switch (websocket.state) {
            .handshake => unreachable,
            .closing => .close_unanswered,
            .open => if (now >= websocket.keepalive.pong_until) .pong_missed else .ping,
        };
    }

    /// Sends a ping every `interval_ms` (0: never) and expects a pong within `timeout_ms` (0: for ever).
    /// Earlier settings are replaced.
    pub fn setKeepalive(websocket: *WebSocket, interval_ms: u32, timeout_ms: u32, now: u64) void {
        websocket.keepalive = .{
            .interval_ms = interval_ms,
            .timeout_ms = timeout_ms,
            .ping_at = if (interval_ms == 0) Timer.never else now + interval_ms,
        };
    }

    /// Sets the messages that the host takes.
    pub fn setFlow(websocket: *WebSocket, flow: Incoming.Flow) void {
        websocket.incoming.setFlow(flow);
        websocket.excusePong();
    }

    /// Expects no pong for pings that were sent, while the peer is not read.
    pub fn excusePong(websocket: *WebSocket) void {
        if (websocket.incoming.isStalled()) websocket.keepalive.pong_until = Timer.never;
    }

    /// Whether the host can be told of a message or an end that has come.
    pub fn isReady(websocket: *const WebSocket) bool {
        return websocket.incoming.isReady() or (websocket.ending != null and !websocket.incoming.isStalled());
    }

    /// The reason for which the engine itself closed the WebSocket; null: its host or the peer closed it.
    pub fn closedBy(websocket: *const WebSocket) ?Reason {
        return switch (websocket.state) {
            .handshake, .open => null,
            .closing => |closing| closing.why,
        };
    }

    /// Queues a ping, which must be due.
    pub fn ping(websocket: *WebSocket, outbox: *Outbox, pool: *Pool, now: u64) error{OutOfMemory}!void {
        assert(websocket.state == .open and websocket.keepalive.interval_ms > 0);
        const keepalive = &websocket.keepalive;
        var frame: [ws.frame.control_bytes_max]u8 = undefined;
        try outbox.append(pool, frame[0..websocket.session.encodePing("", null, &frame)]);
        keepalive.ping_at = now + keepalive.interval_ms;
        // While a held message keeps the peer from being read, its pongs are not read either.
        const expected = keepalive.timeout_ms > 0 and !websocket.incoming.isStalled();
        if (expected and keepalive.pong_until == Timer.never) {
            keepalive.pong_until = now + keepalive.timeout_ms;
        }
    }

    /// The result of input, for the worker.
    pub const Event = union(enum) {
        need_more,
        /// A control frame was answered, or a piece of a message was kept.
        handled,
        /// A complete message. Its bytes are valid until `Incoming.forget`, which follows unless the message
        /// is held.
        message: Message,
        /// A complete compressed message, with bytes as for `message`.
        compressed: Message,
        /// The peer has ended the WebSocket (`ending`). Its bytes are not read any more, and `end` follows.
        ending,
    };

    /// A message with its bytes, compressed or inflated.
    pub const Message = struct { kind: Kind, bytes: []const u8 };

    /// The result of one call of `feed`.
    pub const Step = struct { consumed: usize, event: Event };

    /// Parses received bytes, which are unmasked in place. Queues frames that the protocol demands, such as
    /// pongs.
    pub fn feed(websocket: *WebSocket, bytes: []u8, outbox: *Outbox, pool: *Pool) error{OutOfMemory}!Step {
        assert(websocket.incoming.held == .nothing);
        if (websocket.ending != null) return .{ .consumed = 0, .event = .ending };
        const step = websocket.session.feed(bytes);
        const event: Event = switch (step.event) {
            .need_more => .need_more,
            .data => |data| try websocket.takeData(data, pool),
            .ping => |payload| try websocket.answerPing(payload, outbox, pool),
            .pong => websocket.notePong(),
            // The reason stays in the session, which reads nothing after it.
            .close => |close_frame| websocket.noteEnding(.{ .closed = .{
                .code = close_frame.code,
                .reason = close_frame.reason,
            } }),
            .failed => |failure| websocket.noteEnding(.{ .failed = failure }),
        };
        return .{ .consumed = step.consumed, .event = event };
    }

    /// Messages are inflated when they are complete, so that until then a peer holds no more memory than it
    /// has sent bytes.
    fn takeData(websocket: *WebSocket, data: ws.Data, pool: *Pool) error{OutOfMemory}!Event {
        if (websocket.state != .open) return .handled; // the host wants no message after a close frame
        const pieces = &websocket.incoming.pieces;
        const whole = data.first and data.last;
        if (!whole) try pieces.append(pool, data.bytes);
        if (!data.last) return .handled;
        const message: Message = .{ .kind = data.kind, .bytes = if (whole) data.bytes else pieces.unread() };
        return if (data.compressed) .{ .compressed = message } else .{ .message = message };
    }

    /// Whether a compressed message may be short enough to be inflated and delivered at once.
    pub fn inflatesAtOnce(websocket: *const WebSocket, message: Message) bool {
        return websocket.incoming.roomAtOnce() > 0 and message.bytes.len <= Compression.at_once_bytes_max;
    }

    /// Inflates a compressed message, and returns a message or an ending. Null: the message is too long for
    /// that.
    pub fn inflateAtOnce(
        websocket: *WebSocket,
        message: Message,
        pool: *Pool,
        compression: *Compression,
    ) error{OutOfMemory}!?Event {
        const room = websocket.incoming.roomAtOnce();
        const limit = websocket.session.limits.message_bytes_max;
        const context = &websocket.compression.?;
        const inflated = compression.inflateAtOnce(
            context,
            pool,
            message.bytes,
            limit,
            room,
        ) catch |err| switch (err) {
            error.OutOfMemory => return error.OutOfMemory,
            error.TooBig, error.Corrupt => |fault| return websocket.refuse(fault),
        } orelse return null;
        websocket.incoming.pieces.deinit(pool);
        websocket.incoming.pieces = inflated;
        const bytes = inflated.unread();
        if (message.kind == .text and !ws.utf8.valid(bytes)) return websocket.refuse(error.NotUtf8);
        return .{ .message = .{ .kind = message.kind, .bytes = bytes } };
    }

    /// Inflates a slice of the held message and returns the cost of that.
    pub fn inflateSlice(
        websocket: *WebSocket,
        pool: *Pool,
        compression: *Compression,
        line: *Line,
    ) error{OutOfMemory}!usize {
        const limit = websocket.session.limits.message_bytes_max;
        const incoming = &websocket.incoming;
        return incoming.inflateSlice(
            compression,
            &websocket.compression.?,
            pool,
            line,
            limit,
        ) catch |err| switch (err) {
            error.OutOfMemory => return error.OutOfMemory,
            error.TooBig, error.Corrupt, error.NotUtf8 => |fault| {
                incoming.drop(pool, compression.gpa, line);
                _ = websocket.refuse(fault);
                return 0;
            },
        };
    }

    /// Ends the WebSocket because of a message that cannot be read.
    fn refuse(websocket: *WebSocket, fault: error{ TooBig, Corrupt, NotUtf8 }) Event {
        return websocket.noteEnding(.{ .failed = switch (fault) {
            error.TooBig => websocket.session.refuse(code_too_big, "message too big"),
            error.Corrupt => websocket.session.refuse(1007, "message does not inflate"),
            error.NotUtf8 => websocket.session.refuse(1007, "text is not UTF-8"),
        } });
    }

    fn noteEnding(websocket: *WebSocket, ending: Ending) Event {
        websocket.ending = ending;
        return .ending;
    }

    /// The close code and the reason of the end for the host. If the peer's close frame was read, it counts
    /// for more than `reason`.
    pub fn endSeen(websocket: *const WebSocket, reason: Reason) struct { close: Close, reason: ?Reason } {
        const ending = websocket.ending orelse
            return .{ .close = .{ .code = code_abnormal, .reason = "" }, .reason = reason };
        return switch (ending) {
            .closed => |close_frame| .{ .close = close_frame, .reason = websocket.closedBy() },
            .failed => |failure| .{
                .close = .{ .code = failure.code, .reason = "" },
                .reason = .protocol_error,
            },
        };
    }

    /// Queues the server's close frame after the peer's last frame, unless it was sent before. A browser
    /// tells its page the reason in this frame, so the peer's own comes back with its code.
    pub fn end(websocket: *WebSocket, outbox: *Outbox, pool: *Pool) error{OutOfMemory}!void {
        if (websocket.session.closeSent()) return;
        switch (websocket.ending.?) {
            .closed => |frame| try websocket.queueClose(frame.code, frame.reason, outbox, pool),
            .failed => |failure| try websocket.queueClose(failure.code, failure.reason, outbox, pool),
        }
    }

    /// Forgets sent messages, because frames of another compressor are sent now, and later messages must not
    /// refer to earlier ones.
    pub fn forgetSent(websocket: *WebSocket) void {
        if (websocket.compression) |*context| context.forgetSent();
    }

    fn answerPing(
        websocket: *WebSocket,
        payload: []const u8,
        outbox: *Outbox,
        pool: *Pool,
    ) error{OutOfMemory}!Event {
        if (websocket.session.closeSent()) return .handled;
        var frame: [ws.frame.control_bytes_max]u8 = undefined;
        try outbox.append(pool, frame[0..websocket.session.encodePong(payload, null, &frame)]);
        return .handled;
    }

    fn notePong(websocket: *WebSocket) Event {
        websocket.keepalive.pong_until = Timer.never;
        return .handled;
    }

    /// Queues a close frame with a code and reason that must be valid.
    fn queueClose(
        websocket: *WebSocket,
        code: u16,
        reason: []const u8,
        outbox: *Outbox,
        pool: *Pool,
    ) error{OutOfMemory}!void {
        var frame: [ws.frame.control_bytes_max]u8 = undefined;
        const len = websocket.session.encodeClose(code, reason, null, &frame) catch unreachable;
        try outbox.append(pool, frame[0..len]);
    }

    /// Queues one message. With a loan, `bytes` may not change until the loan comes back. On an error nothing
    /// has changed, and the loan is not taken.
    pub fn send(
        websocket: *WebSocket,
        kind: Kind,
        bytes: []const u8,
        loan: ?*Loan,
        outbox: *Outbox,
        pool: *Pool,
        compression: *Compression,
    ) SendError!void {
        if (websocket.state != .open) return error.NotOpen;
        if (kind == .text and !ws.utf8.valid(bytes)) return error.NotUtf8;
        if (websocket.compression) |*context| {
            if (bytes.len >= websocket.deflate_bytes_min) {
                // The call is not inlined: deflating takes 24 KiB of stack, which other messages must not
                // touch.
                const deflater = try compression.deflater(context);
                const arguments = .{ websocket, deflater, kind, bytes, outbox, pool };
                if (try @call(.never_inline, sendDeflated, arguments)) {
                    if (loan) |copied| pool.loans.decline(copied);
                    return;
                }
            }
        }
        var header: [ws.frame.header_bytes_max]u8 = undefined;
        const before = websocket.session.sending;
        errdefer websocket.session.sending = before;
        const len = websocket.session.encodeHeader(.{ .kind = kind, .len = bytes.len }, null, &header);
        if (bytes.len <= small_bytes) {
            // A short message is copied behind its header in one piece of memory.
            const space = try outbox.reserve(pool, header.len + small_bytes);
            @memcpy(space[0..len], header[0..len]);
            @memcpy(space[len..][0..bytes.len], bytes);
            outbox.commit(len + bytes.len);
            if (loan) |copied| pool.loans.decline(copied);
            return;
        }
        if (loan) |taken| {
            var chain: Outbox = .{};
            try chain.lend(pool, bytes, taken);
            errdefer chain.cancelLoan(pool);
            try outbox.append(pool, header[0..len]);
            return outbox.take(&chain);
        }
        try outbox.append2(pool, header[0..len], bytes);
    }

    const small_bytes = 512;

    /// Queues a compressed message in frames of at most `deflated_frame_bytes` bytes before compression: a
    /// large message needs no second buffer of its size, and a frame's length fits 16 bits. False: the
    /// message does not shrink, and nothing has changed.
    fn sendDeflated(
        websocket: *WebSocket,
        deflater: *Deflater,
        kind: Kind,
        bytes: []const u8,
        outbox: *Outbox,
        pool: *Pool,
    ) error{OutOfMemory}!bool {
        var frames: Outbox = .{};
        errdefer {
            frames.deinit(pool);
            deflater.forget();
            websocket.session.sending = null;
        }
        // A message of one frame is written directly to the outbox.
        const target = if (bytes.len <= deflated_frame_bytes) outbox else &frames;
        var rest = bytes;
        while (true) {
            const piece = rest[0..@min(rest.len, deflated_frame_bytes)];
            const first = rest.len == bytes.len;
            rest = rest[piece.len..];
            const space = try target.reserve(pool, frame_header_bytes + Deflater.outputBytesMax(piece.len));
            const len = deflater.deflate(piece, rest.len == 0, space[frame_header_bytes..]);
            if (first and len >= piece.len) {
                target.cancel(pool);
                deflater.forget();
                return false;
            }
            target.commit(websocket.putHeader(space, .{
                .kind = kind,
                .len = len,
                .compressed = true,
                .fin = rest.len == 0,
            }));
            if (rest.len == 0) break;
        }
        outbox.take(&frames);
        return true;
    }

    const deflated_frame_bytes = 32 * 1024;
    /// The header of a frame whose length fits 16 bits.
    const frame_header_bytes = 4;
    comptime {
        assert(Deflater.outputBytesMax(deflated_frame_bytes) <= 0xFFFF);
    }

    /// Writes a header before the payload at `space[frame_header_bytes..]`, and returns the length of both.
    fn putHeader(websocket: *WebSocket, space: []u8, piece: ws.Session.Piece) usize {
        var header: [ws.frame.header_bytes_max]u8 = undefined;
        const len = websocket.session.encodeHeader(piece, null, &header);
        const payload_len: usize = @intCast(piece.len);
        assert(len <= frame_header_bytes);
        if (len < frame_header_bytes) {
            std.mem.copyForwards(
                u8,
                space[len..][0..payload_len],
                space[frame_header_bytes..][0..payload_len],
            );
        }
        @memcpy(space[0..len], header[0..len]);
        return len + payload_len;
    }

    /// Queues a close frame, which the peer must answer until `until`. On an error nothing has changed.
    pub fn close(
        websocket: *WebSocket,
        code: u16,
        reason: []const u8,
        until: u64,
        outbox: *Outbox,
        pool: *Pool,
    ) CloseError!void {
        var frame: [ws.frame.control_bytes_max]u8 = undefined;
        const before = websocket.session;
        errdefer websocket.session = before;
        const len = try websocket.session.encodeClose(code, reason, null, &frame);
        try outbox.append(pool, frame[0..len]);
        websocket.state = .{ .closing = .{ .until = until } };
    }
};

const testing = std.testing;

fn openForTest() WebSocket {
    var websocket: WebSocket = .init("dGhlIHNhbXBsZSBub25jZQ==", "", &.{}, &.{});
    websocket.state = .open;
    return websocket;
}

test "pings at an interval, and a pong that is missed" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    var outbox: Outbox = .{};
    defer outbox.deinit(&pool);
    var websocket = openForTest();
    try testing.expectEqual(Timer.never, websocket.deadline());
    websocket.setKeepalive(100, 30, 1000);
    try testing.expectEqual(1100, websocket.deadline());
    try testing.expectEqual(.nothing, websocket.due(1099));
    try testing.expectEqual(.ping, websocket.due(1100));

    try websocket.ping(&outbox, &pool, 1105);
    try testing.expectEqual(1135, websocket.deadline());
    try testing.expectEqual(.nothing, websocket.due(1134));
    try testing.expectEqual(.pong_missed, websocket.due(1135));
    // A second ping does not move the deadline of the pong.
    try websocket.ping(&outbox, &pool, 1120);
    try testing.expectEqual(1135, websocket.deadline());
    try testing.expectEqual(2 * "\x89\x00".len, outbox.bytes);

    var pong = "\x8a\x80\x00\x00\x00\x00".*;
    try testing.expectEqual(.handled, (try websocket.feed(&pong, &outbox, &pool)).event);
    try testing.expectEqual(1220, websocket.deadline());
    try testing.expectEqual(.ping, websocket.due(1220));

    websocket.setKeepalive(0, 30, 1300);
    try testing.expectEqual(Timer.never, websocket.deadline());
}

test "no pong is expected without a limit, or while nobody reads it" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    var outbox: Outbox = .{};
    defer outbox.deinit(&pool);
    var websocket = openForTest();
    websocket.setKeepalive(100, 0, 0);
    try websocket.ping(&outbox, &pool, 100);
    try testing.expectEqual(200, websocket.deadline());

    websocket.setKeepalive(100, 1, 0);
    websocket.setFlow(.none);
    try websocket.ping(&outbox, &pool, 100);
    try testing.expectEqual(200, websocket.deadline());
    websocket.setFlow(.all);
    try websocket.ping(&outbox, &pool, 200);
    try testing.expectEqual(201, websocket.deadline());
    websocket.excusePong();
    try testing.expectEqual(201, websocket.deadline());
    websocket.setFlow(.none);
    try testing.expectEqual(300, websocket.deadline());
}

test "an end that was seen is told when the host takes something" {
    var websocket = openForTest();
    try testing.expect(!websocket.isReady());
    websocket.ending = .{ .closed = .{ .code = 1000, .reason = "" } };
    try testing.expect(websocket.isReady());
    websocket.setFlow(.none);
    try testing.expect(!websocket.isReady());
}

test "a close frame of ours has its own deadline, whatever pings say" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    var outbox: Outbox = .{};
    defer outbox.deinit(&pool);
    var websocket = openForTest();
    websocket.setKeepalive(100, 10, 0);
    try websocket.close(1000, "", 500, &outbox, &pool);
    try testing.expect(!websocket.isOpen());
    try testing.expectEqual(500, websocket.deadline());
    try testing.expectEqual(.nothing, websocket.due(499));
    try testing.expectEqual(.close_unanswered, websocket.due(500));
    try testing.expectError(error.AlreadyClosed, websocket.close(1000, "", 900, &outbox, &pool));
    try testing.expectEqual(500, websocket.deadline());
}
