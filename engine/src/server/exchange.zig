//! One request and its response. Turns commands (start, body, end) into bytes in the connection's outbox;
//! framing is the session's business. Does not know: sockets, when output is sent, and who answers.
const std = @import("std");
const assert = std.debug.assert;
const protocol = @import("protocol");
const early = protocol.early;
const session_file = protocol.session;
const handshake = protocol.websocket.handshake;
const Field = protocol.http.Field;
const AccessEntry = @import("access_log.zig").Entry;
const Agreement = protocol.websocket.deflate.Agreement;
const Config = @import("config.zig").Config;
const Connection = @import("connection.zig").Connection;
const Demand = @import("demand.zig").Demand;
const FileRange = @import("outbox.zig").FileRange;
const Intake = @import("intake.zig").Intake;
const Outbox = @import("outbox.zig").Outbox;
const Held = @import("loan.zig").Held;
const Loan = @import("loan.zig").Loan;
const Multiplexed = protocol.Multiplexed;
const Pool = @import("pool.zig").Pool;
const Repeat = @import("repeat.zig").Repeat;
const Reason = @import("types.zig").Reason;
const Stall = @import("stall.zig").Stall;
const Stream = protocol.Stream;
const Ticket = @import("slab.zig").Ticket;
const Timer = @import("timer.zig").Timer;
const WebSocket = @import("websocket.zig").WebSocket;

/// A response's beginning, and optionally all of it.
pub const Start = struct {
    status: u16,
    fields: []const Field = &.{},
    /// Further fields, in wire form already.
    lines: ?*const protocol.http.Lines = null,
    body: []const u8 = "",
    /// The response is complete with `body`.
    end: bool = false,
    /// The connection closes after this response.
    close: bool = false,
    /// Says `Connection: keep-alive` where HTTP/1.1 takes it for granted.
    says_keep_alive: bool = false,
    /// The head waits for the first piece of the body, or until output leaves: a body of one piece gets a
    /// Content-Length.
    hold: bool = false,
};

/// Why a response does not begin. Nothing was queued.
pub const StartError = session_file.StartError || error{ OutOfMemory, HeadTooLarge };
/// Why a response does not end like that. Nothing was queued.
pub const EndError = session_file.EndError || error{ OutOfMemory, HeadTooLarge };
/// Why a piece of a body is not taken.
pub const BodyError = session_file.BodyError || error{OutOfMemory};

/// The longest head of a response, and the longest trailer section, in bytes, what the engine adds included.
/// Browsers take 256 KiB, most clients and proxies less: nobody would read a longer one, and it lies in
/// memory in one piece.
pub const head_bytes_max = 256 * 1024;

fn bounded(head_bytes: usize) error{HeadTooLarge}!usize {
    return if (head_bytes > head_bytes_max) error.HeadTooLarge else head_bytes;
}

/// One request and its response. Lies in a slab of its worker; its ticket is its name for everybody else.
pub const Exchange = struct {
    ticket: Ticket,
    connection: *Connection,
    /// Its number in the connection's session.
    stream: Stream = 0,
    /// Which of the worker's hosts answers it, and what that wants: where there are several (hosts.zig).
    host: u8 = 0,
    demand: Demand = .pull,
    /// The host's own pointer.
    user: ?*anyopaque = null,
    /// Which of several interpreters has it, from 1 on: where there are several (abi/pool.zig); and whether
    /// that works on it, or will when it is done with others.
    seat: u8 = 0,
    at_work: bool = false,
    input: Body = .complete,
    /// The output reached the high-water mark and has not come back below the low one.
    above_high: bool = false,
    /// Whether the host is told when nothing is queued any more; `due`: nothing was.
    flushing: enum { no, waits, due } = .no,
    /// The response is complete, part of it is still queued.
    ended: bool = false,
    /// Of the response; 0: it has not started.
    status: u16 = 0,
    /// Content that was queued.
    body_bytes: u64 = 0,
    /// What its host was given of the request's body, or of a WebSocket's messages since it asked last: what
    /// it may hold of them.
    given_bytes: u64 = 0,
    /// A file range is the last piece of the body: only sending it shows whether it can be read.
    ends_with_file: bool = false,
    /// See `keepsHead`.
    keeps_head: bool = false,
    /// The host was told that the peer has ended its sending side.
    half_closed: bool = false,
    /// The engine answers in place of the host.
    refused: bool = false,
    /// The host was not told of it, and is not told of its end.
    unannounced: bool = false,
    /// Its request while the body is gathered, until the host takes it.
    intake: ?*Intake = null,
    /// What the access log keeps of the request.
    log: ?AccessEntry = null,
    /// The host has been given something since it last asked: with a host that pulls, the peer waits until it
    /// asks again.
    delivered: bool = true,
    /// The request is a WebSocket handshake, or became a WebSocket.
    websocket: ?*WebSocket = null,
    /// No byte in either direction for so long ends the exchange; 0: no limit.
    idle_ms: u32 = 0,
    /// What that is called: a request stalls, a stream or WebSocket is idle.
    idle_reason: Reason = .client_timeout,
    active_at: u64,
    /// When its head was read: its round, in microseconds.
    begun_us: u64 = 0,
    /// When its host was given it, with a body that is wanted whole; 0: not yet, or the host does not tell.
    given_us: u64 = 0,
    /// When a host that tells it began to work on it; 0: not yet.
    taken_us: u64 = 0,
    /// When output of its response was handed to the kernel first, while somebody counts; 0: not yet.
    sent_us: u64 = 0,
    /// What is sent again and again.
    repeat: ?*Repeat = null,
    /// The connection that stands for its application's end of a stream; none: it was given none, or has
    /// closed it. See worker/relay.zig.
    relay: Ticket = .none,
    /// The application answers by that alone.
    relay_only: bool = false,

    /// The request's body.
    pub const Body = union(enum) {
        /// Bytes are on their way and somebody waits for them.
        wanted: Stall,
        /// Bytes are on their way and nobody asked for them: the peer waits.
        unwanted: Stall.Paused,
        complete,
    };

    /// The engine is about to refuse the rest of the request, and answers itself.
    /// `bytes`: what the answer's content has.
    pub fn noteRefusal(exchange: *Exchange, refusal: protocol.Refusal, bytes: u64) void {
        exchange.status = refusal.status;
        exchange.body_bytes = if (exchange.connection.session.asksForHead(exchange.stream))
            0
        else
            bytes;
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
        if (exchange.delivered) exchange.pauseInput(now);
    }

    /// What is still on its way of the body waits until somebody asks.
    pub fn pauseInput(exchange: *Exchange, now: u64) void {
        switch (exchange.input) {
            .wanted => |stall| exchange.input = .{ .unwanted = stall.pause(now) },
            .unwanted, .complete => {},
        }
    }

    /// The request with its whole body, for a host that wants that (`Demand.Body.whole`): the host's from now
    /// on, who gives it back with `Worker.dropIntake`. Null: it has no body.
    pub fn takeIntake(exchange: *Exchange) ?*Intake {
        const intake = exchange.intake orelse return null;
        exchange.intake = null;
        return intake;
    }

    /// Where its content goes. A connection with one exchange at a time has one queue for all of its output,
    /// in which heads and content are framed as they are spoken; the content of a stream is framed when it
    /// leaves.
    pub inline fn out(exchange: *Exchange) *Outbox {
        return &exchange.connection.outbox;
    }

    /// Where its heads go: each depends on those before it on its connection.
    inline fn headOut(exchange: *Exchange) *Outbox {
        return &exchange.connection.transport().outbox;
    }

    /// Bytes that wait in its name, for the kernel or to be framed, and may still be those of exchanges
    /// before it.
    pub fn queuedBytes(exchange: *const Exchange) usize {
        return exchange.connection.queuedBytes();
    }

    /// Whether the kernel has taken everything.
    pub fn isFlushed(exchange: *const Exchange) bool {
        const connection = exchange.connection;
        return connection.isFlushed() and (connection.carrier == null or connection.carrier.?.isFlushed());
    }

    /// Whether the response is complete and what is left of it cannot fail: it is with the kernel, or leaves
    /// with this round.
    pub fn isSettled(exchange: *const Exchange) bool {
        const connection = exchange.connection;
        if (!exchange.ended) return false;
        // What is framed leaves with the next bytes; the rest may wait for windows.
        if (connection.carrier != null) return connection.outbox.isEmpty();
        if (connection.output != .open) return false;
        return !exchange.ends_with_file or connection.outbox.isEmpty();
    }

    /// Asserts what always holds between two rounds.
    pub fn invariants(exchange: *const Exchange) void {
        const session = &exchange.connection.session;
        assert(exchange.status == 0 or session.responseStarted(exchange.stream));
        if (exchange.ended) assert(exchange.status != 0 and !session.headIsOpen(exchange.stream));
        if (exchange.ends_with_file) assert(exchange.ended);
        if (exchange.intake) |intake| {
            assert(intake.ticket == exchange.ticket);
            assert(if (exchange.unannounced) exchange.status == 0 else exchange.input == .complete);
        }
        if (exchange.openWebSocket() != null) {
            const status: u16 = if (exchange.connection.carrier == null) 101 else 200;
            assert(exchange.input == .complete and exchange.status == status);
        }
        if (exchange.input == .complete) {
            assert(exchange.websocket != null or session.inputComplete(exchange.stream));
        }
    }

    /// The next deadline of its peer or its host.
    pub fn deadline(exchange: *const Exchange, config: *const Config) u64 {
        const quiet = if (exchange.idle_ms == 0) Timer.never else exchange.active_at + exchange.idle_ms;
        const idle = if (exchange.openWebSocket()) |websocket| @min(
            quiet,
            websocket.deadline(),
        ) else @min(quiet, exchange.repeatAt());
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
        if (exchange.connection.carrier) |carrier| {
            var head = response;
            // With success a client would take its WebSocket for accepted.
            if (exchange.websocket != null and response.status < 300) head.status = 501;
            const has_content = try startStream(exchange.connection, carrier, pool, head, date);
            exchange.status = head.status;
            exchange.body_bytes = if (has_content) response.body.len else 0;
            exchange.ended = response.end;
            // `close` is about a connection that has one exchange at a time: here it is that of others, too.
            return;
        }
        const session = &exchange.connection.session;
        const outbox = exchange.out();
        const inside = response.body.len <= whole_max;
        const content = if (inside) response.body else "";
        const lines_bytes = if (response.lines) |lines| lines.text.len else 0;
        const space = try outbox.reserve(
            pool,
            try bounded(session_file.startSize(response.fields) + lines_bytes) + content.len,
        );
        errdefer outbox.cancel(pool);
        const plan = try session.planStart(exchange.stream, .{
            .status = response.status,
            .fields = response.fields,
            .says_keep_alive = response.says_keep_alive,
            .lines = response.lines,
            .date = date,
            .content = content,
            .rest = response.body.len - content.len,
            .end = response.end,
            .close = response.close,
            .hold = response.hold,
        }, space);
        var rest: Outbox = .{};
        errdefer rest.deinit(pool);
        if (!inside and plan.payload) {
            try rest.append(pool, response.body);
            try rest.append(pool, plan.suffix);
        }
        outbox.commit(plan.len);
        outbox.take(&rest);
        session.apply(exchange.stream, plan);
        exchange.status = response.status;
        exchange.body_bytes = if (plan.payload) response.body.len else 0;
        exchange.ended = response.end;
    }

    /// Queues the start of a response on a stream: content that may leave at once goes with its head, other
    /// content waits for its turn. Whether there is any that is sent: not to HEAD, nor with 204 and 304. On
    /// an error nothing has changed.
    pub fn startStream(
        stream: *Connection,
        carrier: *Connection,
        pool: *Pool,
        response: Start,
        date: *const [29]u8,
    ) StartError!bool {
        const session = &carrier.multiplex().?.session;
        const id = stream.session.number();
        const outbox = &carrier.outbox;
        const lines_bytes = if (response.lines) |lines| lines.text.len else 0;
        const whole = response.body.len <= whole_max and carrier.output == .open and
            outbox.bytes < framed_bytes_max and session.leavesAtOnce(id, response.body.len);
        const content = if (whole) response.body else "";
        var rest: Outbox = .{};
        errdefer rest.deinit(pool);
        if (!whole) try rest.append(pool, response.body);
        const head_bytes = Multiplexed.startSize(response.fields) + Multiplexed.startSizeOf(lines_bytes);
        const space = try outbox.reserve(pool, try bounded(head_bytes) + content.len);
        errdefer outbox.cancel(pool);
        const started = try session.start(id, .{
            .status = response.status,
            .fields = response.fields,
            .lines = response.lines,
            .date = date,
            .content = content,
            .rest = response.body.len - content.len,
            .end = response.end,
        }, space);
        outbox.commit(started.len);
        if (started.queued) {
            assert(!whole);
            stream.outbox.take(&rest);
        } else rest.deinit(pool);
        return started.payload;
    }

    /// So much framed output may wait for the kernel before content has to wait unframed, where it can be
    /// overtaken, in bytes.
    pub const framed_bytes_max = 64 * 1024;

    /// Says that a client which waits may send its content, if it does. On an error nothing has changed.
    pub fn sayContinue(exchange: *Exchange, pool: *Pool) error{OutOfMemory}!void {
        const outbox = exchange.headOut();
        if (exchange.connection.carrier) |carrier| {
            const space = try outbox.reserve(pool, Multiplexed.continue_bytes_max);
            const len = carrier.multiplex().?.session.takeContinue(exchange.stream, space);
            return if (len > 0) outbox.commit(len) else outbox.cancel(pool);
        }
        const interim = exchange.connection.session.takeContinue(exchange.stream) orelse return;
        try outbox.append(pool, interim);
    }

    /// Whether the head waits on to know how long the body is, when other output leaves.
    pub fn keepsHead(exchange: *const Exchange) bool {
        return exchange.keeps_head and exchange.connection.session.headIsOpen(exchange.stream);
    }

    /// Ends a head that waits to know how long the body is. On an error nothing has changed.
    pub fn closeHead(exchange: *Exchange, pool: *Pool) error{OutOfMemory}!void {
        const session = &exchange.connection.session;
        const outbox = exchange.out();
        if (!session.headIsOpen(exchange.stream)) return;
        const plan = session.planHeadEnd(
            exchange.stream,
            try outbox.reserve(pool, session_file.body_prefix_bytes_max),
        );
        outbox.commit(plan.len);
        session.apply(exchange.stream, plan);
    }

    /// How a piece of a body goes on.
    pub const Place = struct {
        /// The response is complete with it.
        last: bool = false,
        /// The connection closes after this response.
        close: bool = false,

        fn piece(place: Place, len: u64) session_file.Piece {
            return .{ .len = len, .last = place.last, .close = place.close };
        }
    };

    /// Queues body bytes. On an error nothing has changed.
    pub fn body(exchange: *Exchange, pool: *Pool, bytes: []const u8, place: Place) BodyError!void {
        const session = &exchange.connection.session;
        const outbox = exchange.out();
        if (bytes.len > whole_max) {
            var chain: Outbox = .{};
            errdefer chain.deinit(pool);
            if (session.sendsContent(exchange.stream)) try chain.append(pool, bytes);
            return exchange.take(pool, &chain, bytes.len, place);
        }
        const around = session_file.body_prefix_bytes_max + session_file.body_suffix_bytes_max;
        const space = try outbox.reserve(pool, bytes.len + around);
        errdefer outbox.cancel(pool);
        const plan = try session.planBody(exchange.stream, place.piece(bytes.len), space);
        var len = plan.len;
        for ([_][]const u8{ if (plan.payload) bytes else "", plan.suffix }) |part| {
            @memcpy(space[len..][0..part.len], part);
            len += part.len;
        }
        if (len > 0) outbox.commit(len) else outbox.cancel(pool);
        exchange.noteBody(plan, bytes.len, place);
    }

    /// Queues body bytes that stay where they are until their loan comes back. On an error nothing has
    /// changed, and it is not taken.
    pub fn lent(
        exchange: *Exchange,
        pool: *Pool,
        bytes: []const u8,
        loan: *Loan,
        place: Place,
    ) BodyError!void {
        var chain: Outbox = .{};
        try chain.lend(pool, bytes, loan);
        errdefer chain.cancelLoan(pool);
        try exchange.blocks(pool, &chain, place);
    }

    /// The same with bytes that somebody holds (`Held`); on an error they are the caller's to release.
    pub fn held(exchange: *Exchange, pool: *Pool, what: Held, place: Place) BodyError!void {
        var chain: Outbox = .{};
        try chain.hold(pool, what);
        errdefer chain.cancelLoan(pool);
        try exchange.blocks(pool, &chain, place);
    }

    /// Queues body bytes that lie in blocks of the pool already: they are taken over, not copied, and `chain`
    /// is empty afterwards. On an error nothing has changed.
    pub fn blocks(exchange: *Exchange, pool: *Pool, chain: *Outbox, place: Place) BodyError!void {
        return exchange.take(pool, chain, chain.bytes, place);
    }

    /// The same for `len` bytes of body, which do not lie there if no content is sent.
    fn take(exchange: *Exchange, pool: *Pool, chain: *Outbox, len: usize, place: Place) BodyError!void {
        const session = &exchange.connection.session;
        const outbox = exchange.out();
        var prefix: [session_file.body_prefix_bytes_max]u8 = undefined;
        const plan = try session.planBody(exchange.stream, place.piece(len), &prefix);
        var tail: Outbox = .{};
        errdefer tail.deinit(pool);
        try tail.append(pool, plan.suffix);
        try outbox.append(pool, prefix[0..plan.len]);
        if (plan.payload) outbox.take(chain) else chain.deinit(pool);
        outbox.take(&tail);
        exchange.noteBody(plan, len, place);
    }

    /// Queues a file range as the last piece of the body. Owns the descriptor from then on; on an error
    /// nothing has changed.
    pub fn file(exchange: *Exchange, pool: *Pool, range: FileRange) BodyError!enum { queued, not_needed } {
        const session = &exchange.connection.session;
        const outbox = exchange.out();
        const place: Place = .{ .last = true };
        var prefix: [session_file.body_prefix_bytes_max]u8 = undefined;
        const plan = try session.planBody(exchange.stream, place.piece(range.len), &prefix);
        var tail: Outbox = .{};
        errdefer tail.deinit(pool);
        try tail.append(pool, plan.suffix);
        var content: Outbox = .{};
        if (plan.payload) try content.appendFile(pool, range);
        errdefer if (plan.payload) {
            _ = content.popFile(pool); // its owner's
        };
        try outbox.append(pool, prefix[0..plan.len]);
        outbox.take(&content);
        outbox.take(&tail);
        exchange.noteBody(plan, range.len, place);
        exchange.ends_with_file = plan.payload;
        return if (plan.payload) .queued else .not_needed;
    }

    /// Queues bytes and file ranges, `len` bytes in all, as the last piece of the body. `chain` keeps them if
    /// no content is sent, and is empty otherwise; on an error nothing has changed.
    pub fn parts(exchange: *Exchange, pool: *Pool, chain: *Outbox, len: u64) BodyError!void {
        const outbox = exchange.out();
        const place: Place = .{ .last = true };
        var prefix: [session_file.body_prefix_bytes_max]u8 = undefined;
        const session = &exchange.connection.session;
        const plan = try session.planBody(exchange.stream, place.piece(len), &prefix);
        var tail: Outbox = .{};
        errdefer tail.deinit(pool);
        try tail.append(pool, plan.suffix);
        try outbox.append(pool, prefix[0..plan.len]);
        if (plan.payload) outbox.take(chain);
        outbox.take(&tail);
        exchange.noteBody(plan, len, place);
        exchange.ends_with_file = plan.payload;
    }

    /// A piece of the body is queued as planned.
    inline fn noteBody(exchange: *Exchange, plan: session_file.Plan, len: u64, place: Place) void {
        exchange.connection.session.apply(exchange.stream, plan);
        if (plan.payload) exchange.body_bytes += len;
        exchange.ended = place.last;
    }

    /// Queues the end of the response with its trailers, of which there may be none. On an error nothing has
    /// changed.
    pub fn end(exchange: *Exchange, pool: *Pool, trailers: []const Field) EndError!void {
        const session = &exchange.connection.session;
        const outbox = exchange.out();
        if (session.responseStarted(exchange.stream) and !session.takesTrailers(exchange.stream)) {
            return error.TrailersNotAllowed;
        }
        const space = try outbox.reserve(pool, try bounded(session_file.endSize(trailers)));
        errdefer outbox.cancel(pool);
        const plan = try session.planEnd(exchange.stream, trailers, space);
        if (plan.len > 0) outbox.commit(plan.len) else outbox.cancel(pool);
        session.apply(exchange.stream, plan);
        exchange.ended = true;
    }

    /// What a head with these fields takes at most, in bytes.
    fn startSize(exchange: *const Exchange, fields: []const Field) usize {
        return if (exchange.connection.carrier == null)
            session_file.startSize(fields)
        else
            Multiplexed.startSize(fields);
    }

    /// Why a 101 is not queued.
    pub const SwitchError = StartError || error{ReservedField};

    /// Queues the 101 that completes a WebSocket handshake, or what does on a stream. On an error nothing has
    /// changed.
    pub fn switchProtocols(
        exchange: *Exchange,
        pool: *Pool,
        websocket: *const WebSocket,
        subprotocol: ?[]const u8,
        extra: []const Field,
        date: *const [29]u8,
    ) SwitchError!void {
        const outbox = exchange.headOut();
        const on_stream = exchange.connection.carrier != null;
        for (extra, 0..) |field, index| if (handshake.ownsField(field.name())) {
            exchange.connection.session.noteBadField(index);
            return error.ReservedField;
        };
        const own_max = 4;
        const scratch = try pool.take((extra.len + own_max) * @sizeOf(Field));
        defer pool.give(scratch);
        const fields: []Field = @ptrCast(scratch[0 .. (extra.len + own_max) * @sizeOf(Field)]);
        var count: usize = 0;
        if (!on_stream) {
            fields[0] = .init("Upgrade", "websocket");
            fields[1] = .init("Sec-WebSocket-Accept", &websocket.accept);
            count = 2;
        }
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
        const space = try outbox.reserve(pool, try bounded(exchange.startSize(all)));
        errdefer outbox.cancel(pool);
        const session = &exchange.connection.session;
        errdefer session.noteBadField(session.badField() -| count); // the caller counts its own fields
        outbox.commit(try session.switchProtocols(exchange.stream, all, date, space));
        exchange.status = if (on_stream) 200 else 101;
    }

    /// Queues an interim response. On an error nothing has changed.
    pub fn inform(exchange: *Exchange, pool: *Pool, status: u16, fields: []const Field) StartError!void {
        const outbox = exchange.headOut();
        const space = try outbox.reserve(pool, try bounded(exchange.startSize(fields)));
        errdefer outbox.cancel(pool);
        outbox.commit(try exchange.connection.session.informational(exchange.stream, status, fields, space));
    }
};
