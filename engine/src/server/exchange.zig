//! One request and its response. Turns commands (start, body, end) into bytes in the connection's outbox; framing is the session's business.
//! Refuses to know: sockets, when output is sent, and who answers.
const std = @import("std");
const assert = std.debug.assert;
const protocol = @import("protocol");
const http1 = protocol.http1;
const handshake = protocol.websocket.handshake;
const Field = protocol.http.Field;
const AccessEntry = @import("access_log.zig").Entry;
const Agreement = protocol.websocket.deflate.Agreement;
const Config = @import("config.zig").Config;
const Connection = @import("connection.zig").Connection;
const FileRange = @import("outbox.zig").FileRange;
const Outbox = @import("outbox.zig").Outbox;
const Loan = @import("loan.zig").Loan;
const Pool = @import("pool.zig").Pool;
const Repeat = @import("repeat.zig").Repeat;
const Reason = @import("types.zig").Reason;
const Stall = @import("stall.zig").Stall;
const Ticket = @import("slab.zig").Ticket;
const Timer = @import("timer.zig").Timer;
const WebSocket = @import("websocket.zig").WebSocket;

/// A response's beginning, and optionally all of it.
pub const Start = struct {
    status: u16,
    fields: []const Field = &.{},
    /// Further fields, in wire form already.
    lines: ?*const http1.Lines = null,
    body: []const u8 = "",
    /// The response is complete with `body`.
    end: bool = false,
    /// The connection closes after this response.
    close: bool = false,
    /// Says `Connection: keep-alive` where HTTP/1.1 takes it for granted.
    says_keep_alive: bool = false,
    /// The head waits for the first piece of the body, or until output leaves: a body of one piece gets a Content-Length.
    hold: bool = false,
};

/// What framing adds to a piece of body, and to its end, at the most.
const chunk_bytes = http1.body_prefix_bytes_max + "\r\n".len;
const tail_bytes = http1.endSize(&.{});

/// Why a response does not begin. Nothing was queued.
pub const StartError = http1.StartError || http1.BodyError || http1.EndError || error{OutOfMemory};
/// Why a piece of a body is not taken.
pub const BodyError = http1.BodyError || http1.EndError || error{OutOfMemory};

/// One request and its response. Lies in a slab of its worker; its ticket is its name for everybody else.
pub const Exchange = struct {
    ticket: Ticket,
    connection: *Connection,
    /// The host's own pointer.
    user: ?*anyopaque = null,
    input: Body = .complete,
    /// The output reached the high-water mark and has not come back below the low one.
    above_high: bool = false,
    /// The host is told when nothing is queued any more.
    flushing: bool = false,
    /// The response is complete, part of it is still queued.
    ended: bool = false,
    /// Of the response; 0: it has not started.
    status: u16 = 0,
    /// Content that was queued.
    body_bytes: u64 = 0,
    /// What its host was given of the request's body, or of a WebSocket's messages since it asked last: what it may hold of them.
    given_bytes: u64 = 0,
    /// A file range is the last piece of the body: only sending it shows whether it can be read.
    ends_with_file: bool = false,
    /// The host was told that the peer has ended its sending side.
    half_closed: bool = false,
    /// The engine answers in place of the host.
    refused: bool = false,
    /// The host has not heard of it, and is not told of its end.
    unheard: bool = false,
    /// What the access log keeps of the request.
    log: ?AccessEntry = null,
    /// The host has been given something since it last asked: with a host that pulls, the peer waits until it asks again.
    delivered: bool = true,
    /// The request is a WebSocket handshake, or became a WebSocket.
    websocket: ?*WebSocket = null,
    /// No byte in either direction for so long ends the exchange; 0: no limit.
    idle_ms: u32 = 0,
    /// What that is called: a request stalls, a stream or WebSocket is idle.
    idle_reason: Reason = .client_timeout,
    active_at: u64,
    /// What is sent again and again.
    repeat: ?*Repeat = null,

    /// The request's body.
    pub const Body = union(enum) {
        /// Bytes are on their way and somebody waits for them.
        wanted: Stall,
        /// Bytes are on their way and nobody asked for them: the peer waits.
        unwanted: Stall.Paused,
        complete,
    };

    /// The engine is about to refuse the rest of the request, and answers itself.
    pub fn noteRefusal(exchange: *Exchange, refusal: http1.Refusal) void {
        exchange.status = refusal.status;
        exchange.body_bytes = if (exchange.connection.session.asksForHead()) 0 else http1.refusalBodyBytes(refusal);
        exchange.ended = true;
        exchange.refused = true;
    }

    /// Whether bytes of the peer are welcome.
    pub fn wantsInput(exchange: *const Exchange) bool {
        if (exchange.openWebSocket()) |websocket| return !websocket.incoming.isStalled();
        return exchange.input == .wanted;
    }

    /// Whether the peer has nothing more to say in this exchange.
    pub fn inputComplete(exchange: *const Exchange) bool {
        return exchange.input == .complete and exchange.openWebSocket() == null;
    }

    /// The WebSocket once it was accepted, until the exchange ends.
    pub fn openWebSocket(exchange: *const Exchange) ?*WebSocket {
        const websocket = exchange.websocket orelse return null;
        return if (websocket.state == .handshake) null else websocket;
    }

    /// Asks for the next piece of the body; false when it is complete.
    pub fn want(exchange: *Exchange, now: u64) bool {
        switch (exchange.input) {
            .complete => return false,
            .wanted => {},
            .unwanted => |paused| exchange.input = .{ .wanted = paused.proceed(now) },
        }
        exchange.delivered = false;
        return true;
    }

    /// For hosts that pull: what was asked for has been given.
    pub fn pieceDelivered(exchange: *Exchange, now: u64) void {
        switch (exchange.input) {
            .wanted => |stall| if (exchange.delivered) {
                exchange.input = .{ .unwanted = stall.pause(now) };
            },
            .unwanted, .complete => {},
        }
    }

    /// Whether the response is complete and what is left of it cannot fail: it is with the kernel, or leaves with this round.
    pub fn isSettled(exchange: *const Exchange) bool {
        const connection = exchange.connection;
        if (!exchange.ended or connection.output != .open) return false;
        return !exchange.ends_with_file or connection.outbox.isEmpty();
    }

    /// When its peer, or its host, has had its time.
    pub fn deadline(exchange: *const Exchange, config: *const Config) u64 {
        const quiet = if (exchange.idle_ms == 0) Timer.never else exchange.active_at + exchange.idle_ms;
        const idle = if (exchange.openWebSocket()) |websocket| @min(quiet, websocket.deadline()) else @min(quiet, exchange.repeatAt());
        return switch (exchange.input) {
            .wanted => |stall| @min(idle, stall.deadline(config.body_ms)),
            .unwanted, .complete => idle,
        };
    }

    /// When the bytes that repeat are due.
    pub fn repeatAt(exchange: *const Exchange) u64 {
        const repeat = exchange.repeat orelse return Timer.never;
        return if (exchange.ended) Timer.never else repeat.due_at;
    }

    /// Whether the request's body has stalled for too long.
    pub fn bodyOverdue(exchange: *const Exchange, now: u64, config: *const Config) bool {
        return switch (exchange.input) {
            .wanted => |stall| now >= stall.deadline(config.body_ms),
            .unwanted, .complete => false,
        };
    }

    /// The largest response that is put together in one piece of memory: head, framing and body in one go.
    const whole_max = 16 * 1024;

    /// Queues the start of the response. On an error nothing has changed.
    pub fn start(exchange: *Exchange, pool: *Pool, response: Start, date: *const [29]u8) StartError!void {
        const connection = exchange.connection;
        const session = &connection.session;
        const before = session.*;
        errdefer {
            const bad_field = session.bad_field;
            session.* = before;
            session.bad_field = bad_field;
            connection.outbox.cancel(pool);
        }
        const inline_body = if (response.body.len <= whole_max) response.body else "";
        const lines_bytes = if (response.lines) |lines| lines.text.len else 0;
        const size = http1.startSize(response.fields) + lines_bytes + chunk_bytes + inline_body.len + tail_bytes;
        const space = try connection.outbox.reserve(pool, size);
        if (response.close) session.closeAfterResponse();
        var len = try session.start(.{
            .status = response.status,
            .fields = response.fields,
            .says_keep_alive = response.says_keep_alive,
            .lines = response.lines,
            .date = date,
            .length = if (response.end) .{ .known = response.body.len } else if (response.hold) .later else .unknown,
        }, space);
        const content_bytes = if (session.sendsContent()) inline_body.len else 0;
        const later = response.body[inline_body.len..];
        if (later.len > 0) {
            try fits(session.*, later.len, response.end);
        } else if (response.end) {
            len += try session.finish(inline_body, space[len..]);
        } else if (inline_body.len > 0) {
            len += try framed(session, inline_body, space[len..]);
        }
        connection.outbox.commit(len);
        exchange.status = response.status;
        exchange.body_bytes = content_bytes;
        if (later.len > 0) try exchange.body(pool, later, response.end) else exchange.ended = response.end;
    }

    /// Ends a head that waits to know how long the body is: null if that is still unknown. On an error nothing has changed.
    pub fn closeHead(exchange: *Exchange, pool: *Pool, length: ?u64) error{OutOfMemory}!void {
        const connection = exchange.connection;
        if (!connection.session.headIsOpen()) return;
        const space = try connection.outbox.reserve(pool, http1.startSize(&.{}));
        connection.outbox.commit(connection.session.closeHead(length, space));
    }

    /// Queues body bytes; with `last` the response is complete. On an error nothing has changed.
    pub fn body(exchange: *Exchange, pool: *Pool, bytes: []const u8, last: bool) BodyError!void {
        const connection = exchange.connection;
        const session = &connection.session;
        if (session.headIsOpen()) {
            if (bytes.len == 0 and !last) return;
            try exchange.closeHead(pool, if (last) bytes.len else null);
        }
        const before = session.*;
        errdefer session.* = before;
        if (bytes.len <= whole_max) {
            const space = try connection.outbox.reserve(pool, bytes.len + chunk_bytes + http1.endSize(&.{}));
            errdefer connection.outbox.cancel(pool);
            var len: usize = 0;
            const content_bytes = if (session.sendsContent()) bytes.len else 0;
            if (last) len = try session.finish(bytes, space) else if (bytes.len > 0) len = try framed(session, bytes, space);
            if (len > 0) connection.outbox.commit(len) else connection.outbox.cancel(pool);
            exchange.body_bytes += content_bytes;
            exchange.ended = last;
            return;
        }
        // The blocks are reserved by the copy itself, framing goes around them.
        var chain: Outbox = .{};
        errdefer chain.deinit(pool);
        if (session.sendsContent()) try chain.append(pool, bytes);
        try exchange.take(pool, &chain, bytes.len, last);
    }

    /// Queues body bytes that stay where they are until their loan comes back. On an error nothing has changed,
    /// and it is not taken.
    pub fn lent(exchange: *Exchange, pool: *Pool, bytes: []const u8, loan: *Loan, last: bool) BodyError!void {
        var chain: Outbox = .{};
        try chain.lend(pool, bytes, loan);
        errdefer chain.cancelLoan(pool);
        try exchange.blocks(pool, &chain, last);
    }

    /// Queues body bytes that lie in blocks of the pool already: they are taken over, not copied, and `chain` is empty afterwards.
    /// On an error nothing has changed.
    pub fn blocks(exchange: *Exchange, pool: *Pool, chain: *Outbox, last: bool) BodyError!void {
        return exchange.take(pool, chain, chain.bytes, last);
    }

    /// The same for `len` bytes of body, which do not lie there if no content is sent.
    fn take(exchange: *Exchange, pool: *Pool, chain: *Outbox, len: usize, last: bool) BodyError!void {
        const outbox = &exchange.connection.outbox;
        const session = &exchange.connection.session;
        try exchange.closeHead(pool, if (last) len else null);
        const before = session.*;
        errdefer session.* = before;
        var prefix: [http1.body_prefix_bytes_max]u8 = undefined;
        const plan = try session.body(len, &prefix);
        var tail: Outbox = .{};
        errdefer tail.deinit(pool);
        if (plan.payload) try tail.append(pool, plan.suffix);
        if (last) {
            const space = try tail.reserve(pool, tail_bytes);
            const end_len = try session.end(&.{}, space);
            if (end_len > 0) tail.commit(end_len) else tail.cancel(pool);
        }
        if (plan.payload) {
            try outbox.append(pool, plan.prefix);
            exchange.body_bytes += chain.bytes;
            outbox.take(chain);
        } else chain.deinit(pool);
        outbox.take(&tail);
        exchange.ended = last;
    }

    /// Queues a file range as the last piece of the body. Owns the descriptor from then on; on an error nothing has changed.
    pub fn file(exchange: *Exchange, pool: *Pool, range: FileRange) BodyError!enum { queued, not_needed } {
        const connection = exchange.connection;
        try exchange.closeHead(pool, range.len);
        const before = connection.session;
        errdefer connection.session = before;
        var prefix: [http1.body_prefix_bytes_max]u8 = undefined;
        const plan = if (range.len > 0) try connection.session.body(range.len, &prefix) else http1.BodyPlan{ .payload = false };
        var tail: [tail_bytes]u8 = undefined;
        const tail_len = try connection.session.end(&.{}, &tail);
        if (plan.payload) {
            try connection.outbox.append(pool, plan.prefix);
            try connection.outbox.appendFile(pool, range);
            try connection.outbox.append(pool, plan.suffix);
            exchange.body_bytes += range.len;
        }
        try connection.outbox.append(pool, tail[0..tail_len]);
        exchange.ends_with_file = plan.payload;
        exchange.ended = true;
        return if (plan.payload) .queued else .not_needed;
    }

    /// Queues the end of the response with its trailers, of which there may be none. On an error nothing has changed.
    pub fn end(exchange: *Exchange, pool: *Pool, trailers: []const Field) BodyError!void {
        const connection = exchange.connection;
        if (connection.session.responseStarted() and !connection.session.takesTrailers()) return error.TrailersNotAllowed;
        try exchange.closeHead(pool, if (trailers.len == 0) 0 else null);
        const space = try connection.outbox.reserve(pool, http1.endSize(trailers));
        errdefer connection.outbox.cancel(pool);
        const len = try connection.session.end(trailers, space);
        if (len > 0) connection.outbox.commit(len) else connection.outbox.cancel(pool);
        exchange.ended = true;
    }

    /// Why a 101 is not queued.
    pub const SwitchError = StartError || error{ReservedField};

    /// Queues the 101 that completes a WebSocket handshake. On an error nothing has changed.
    pub fn switchProtocols(
        exchange: *Exchange,
        pool: *Pool,
        websocket: *const WebSocket,
        subprotocol: ?[]const u8,
        extra: []const Field,
    ) SwitchError!void {
        const outbox = &exchange.connection.outbox;
        for (extra, 0..) |field, index| if (handshake.ownsField(field.name())) {
            exchange.connection.session.bad_field = @intCast(@min(index, std.math.maxInt(u16)));
            return error.ReservedField;
        };
        const own_max = 4;
        const scratch = try pool.take((extra.len + own_max) * @sizeOf(Field));
        defer pool.give(scratch);
        const fields: []Field = @ptrCast(scratch[0 .. (extra.len + own_max) * @sizeOf(Field)]);
        fields[0] = .init("Upgrade", "websocket");
        fields[1] = .init("Sec-WebSocket-Accept", &websocket.accept);
        var count: usize = 2;
        if (subprotocol) |name| {
            fields[count] = .init("Sec-WebSocket-Protocol", name);
            count += 1;
        }
        var agreement_text: [Agreement.text_bytes_max]u8 = undefined;
        if (websocket.compression) |context| {
            fields[count] = .init("Sec-WebSocket-Extensions", context.agreement.text(&agreement_text));
            count += 1;
        }
        @memcpy(fields[count..][0..extra.len], extra);
        const all = fields[0 .. count + extra.len];
        const space = try outbox.reserve(pool, http1.startSize(all));
        errdefer outbox.cancel(pool);
        const session = &exchange.connection.session;
        errdefer session.bad_field -|= @intCast(count); // the caller counts its own fields
        outbox.commit(try session.switchProtocols(all, space));
        exchange.status = 101;
    }

    /// Queues an interim response.
    pub fn inform(exchange: *Exchange, pool: *Pool, status: u16, fields: []const Field) StartError!void {
        const outbox = &exchange.connection.outbox;
        const space = try outbox.reserve(pool, http1.startSize(fields));
        errdefer outbox.cancel(pool);
        outbox.commit(try exchange.connection.session.informational(status, fields, space));
    }

    /// Would a body of `len` bytes keep the promise that the head makes? Asked of a copy.
    fn fits(trial: http1.Session, len: usize, last: bool) BodyError!void {
        var session = trial;
        var prefix: [http1.body_prefix_bytes_max]u8 = undefined;
        _ = try session.body(len, &prefix);
        var tail: [tail_bytes]u8 = undefined;
        if (last) _ = try session.end(&.{}, &tail);
    }

    /// Writes `bytes` with their framing; the number of bytes written.
    fn framed(session: *http1.Session, bytes: []const u8, out: []u8) http1.BodyError!usize {
        var prefix: [http1.body_prefix_bytes_max]u8 = undefined;
        const plan = try session.body(bytes.len, &prefix);
        if (!plan.payload) return 0;
        @memcpy(out[0..plan.prefix.len], plan.prefix);
        @memcpy(out[plan.prefix.len..][0..bytes.len], bytes);
        @memcpy(out[plan.prefix.len + bytes.len ..][0..plan.suffix.len], plan.suffix);
        return plan.prefix.len + bytes.len + plan.suffix.len;
    }
};
