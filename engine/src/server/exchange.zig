//! bytes in its lane's output; the session frames them. Does not know: sockets, when output is sent, and
//! hosts.
const std = @import("std");
const assert = std.debug.assert;
const protocol = @import("protocol");
const session_file = protocol.session;
const handshake = protocol.websocket.handshake;
const Field = protocol.http.Field;
const Accept = @import("command.zig").Command.Accept;
const AccessEntry = @import("access_log.zig").Entry;
const Agreement = protocol.websocket.deflate.Agreement;
const Config = @import("config.zig").Config;
const Lane = @import("lane.zig").Lane;
const Demand = @import("demand.zig").Demand;
const FileRange = @import("outbox.zig").FileRange;
const Held = @import("loan.zig").Held;
const HostWord = @import("host_word.zig").HostWord;
const Intake = @import("intake.zig").Intake;
const Loan = @import("loan.zig").Loan;
const Outbox = @import("outbox.zig").Outbox;
const Pool = @import("pool.zig").Pool;
const Repeat = @import("repeat.zig").Repeat;
const Reason = @import("types.zig").Reason;
const Stall = @import("stall.zig").Stall;
const Ticket = @import("slab.zig").Ticket;
const Timer = @import("timer.zig").Timer;
const WebSocket = @import("websocket.zig").WebSocket;

/// The beginning of a response, and optionally all of it.
pub const Start = struct {
    status: u16,
    fields: []const Field = &.{},
    /// Further fields, which are in wire form already.
    lines: ?*const protocol.http.Lines = null,
    body: []const u8 = "",
    /// The response is complete with `body`.
    end: bool = false,
    /// The connection closes after this response.
    close: bool = false,
    /// Sends `Connection: keep-alive`, which HTTP/1.1 implies.
    says_keep_alive: bool = false,
    /// The head waits for the first piece of the body, or until other output is sent: a body of one piece
    /// gets a Content-Length.
    hold: bool = false,
};

/// Reasons why a response does not begin. Nothing was queued.
pub const StartError = session_file.StartError || error{ OutOfMemory, HeadTooLarge };
/// Reasons why a response does not end with these trailers. Nothing was queued.
pub const EndError = session_file.EndError || error{ OutOfMemory, HeadTooLarge };
/// Reasons why a piece of a body is not queued.
pub const BodyError = session_file.BodyError || error{OutOfMemory};

pub const head_bytes_max = @import("config.zig").worker_limits.response_head_bytes_max;

pub fn bounded(head_bytes: usize) error{HeadTooLarge}!usize {
    return if (head_bytes > head_bytes_max) error.HeadTooLarge else head_bytes;
}

/// One request and its response. An exchange lies in a slab of its worker; the rest of the program names it
/// by its ticket.
pub const Exchange = struct {
    ticket: Ticket,
    lane: *Lane,
    /// The number of the route that its request has taken, and the demand that follows from it, where a host
    /// has several demands (abi/routes.zig).
    route: u8 = 0,
    demand: Demand = .pull,
    /// The host's word for the exchange, which also says whether the host hears of the exchange.
    word: HostWord = .none,
    input: Body = .complete,
    /// Queued output has reached the high-water mark, and has not fallen below the low one since.
    above_high: bool = false,
    /// Whether the host is told when nothing is queued any more. `due`: nothing was queued when it asked.
    flushing: enum { no, waits, due } = .no,
    response: Response = .open,
    /// The status of the response; 0: it has not started.
    status: u16 = 0,
    /// Content that was queued, in bytes.
    body_bytes: u64 = 0,
    /// Bytes that the host was given and may hold: of the request's body, or of WebSocket messages since it
    /// asked last.
    given_bytes: u64 = 0,
    /// The application wants the head to wait for the first piece of the body also when other output is sent
    /// (`keepsHead`).
    keeps_head: bool = false,
    /// The host was told that the peer has ended its sending side.
    half_closed: bool = false,
    /// The request while its body is gathered, until the host takes it.
    intake: ?*Intake = null,
    /// The access log's entry of the request.
    log: ?AccessEntry = null,
    /// The host was given a piece since it asked last. With a host that pulls, the peer is not read until the
    /// host asks again.
    delivered: bool = true,
    /// The request is a WebSocket handshake, or became a WebSocket.
    websocket: ?*WebSocket = null,
    /// Milliseconds without a byte in either direction that end the exchange; 0: no limit.
    idle_ms: u32 = 0,
    /// The reason of an end by `idle_ms`: a request stalls, or an event stream or WebSocket is idle.
    idle_reason: Reason = .client_timeout,
    /// Whether an end by `idle_ms` is answered if the response has not started.
    idle_end: enum { cut, answer } = .cut,
    active_at: u64,
    /// When the request's head was read: the time of the round, in microseconds.
    begun_us: u64 = 0,
    /// When the host got the request (with its whole body, if the host demands that), in microseconds; 0: not
    /// yet, or the host does not tell.
    given_us: u64 = 0,
    /// When the application began to work on the request, in microseconds; 0: not yet, or the host does not
    /// tell.
    taken_us: u64 = 0,
    /// When the kernel got the first output of the response, in microseconds; 0: not yet, or counters are
    /// off.
    sent_us: u64 = 0,
    /// Bytes that are sent again at an interval, such as comments of an event stream.
    repeat: ?*Repeat = null,
    /// The connection to the application, over which it speaks with the client (worker/relay.zig); none:
    /// there is none, or the application has closed it.
    relay: Ticket = .none,
    /// The application answers only through `relay`.
    relay_only: bool = false,

    /// The request's body.
    pub const Body = union(enum) {
        /// Bytes of the body are on their way and the host waits for them.
        wanted: Stall,
        /// Bytes of the body are on their way and the host has not asked for them, so the peer is not read.
        unwanted: Stall.Paused,
        complete,
    };

    /// Whether the response is complete. Part of it may still be queued.
    pub const Response = enum {
        open,
        complete,
        /// The response ends with a file range: only sending it shows whether the file can be read.
        complete_with_file,
        /// The engine answers in place of the host.
        refused,
    };

    /// Whether the response ends with a file, which may turn out to be unreadable while it is sent.
    pub inline fn endsWithFile(exchange: *const Exchange) bool {
        return exchange.response == .complete_with_file;
    }

    /// Whether the response is complete.
    pub inline fn isEnded(exchange: *const Exchange) bool {
        return exchange.response != .open;
    }

    // ---- The host's share of the exchange

    /// Whether the host is told what becomes of the exchange.
    pub inline fn isHeard(exchange: *const Exchange) bool {
        return exchange.word != HostWord.unheard();
    }

    /// Keeps all news of the exchange from its host, because the engine answers it or has yet to announce it.
    /// The host's word is lost.
    pub fn silence(exchange: *Exchange) void {
        exchange.word = .unheard();
    }

    /// Lets the host hear of the exchange from now on.
    pub fn unsilence(exchange: *Exchange) void {
        assert(!exchange.isHeard());
        exchange.word = .none;
    }

    /// Sets the exchange's route, for a host with several routes.
    pub inline fn chooseRoute(exchange: *Exchange, number: u8, demand: Demand) void {
        assert(exchange.status == 0);
        exchange.route = number;
        exchange.demand = demand;
    }

    /// Notes that the host was given the request, with `bytes` of its body.
    pub fn noteGiven(exchange: *Exchange, bytes: usize, round_us: u64) void {
        exchange.given_us = round_us;
        exchange.given_bytes += bytes;
    }

    /// Notes that the application has begun to work on the request.
    pub fn noteTaken(exchange: *Exchange, now_us: u64) void {
        exchange.taken_us = now_us;
    }

    /// Whether the host must wait because at least `low_bytes` are queued. The host is told of room when the
    /// connection has its turn.
    pub fn awaitsRoom(exchange: *Exchange, low_bytes: usize) bool {
        exchange.above_high = exchange.queuedBytes() >= low_bytes;
        return exchange.above_high;
    }

    /// The state of an exchange before a thread of the engine began to look for its response.
    pub const Detention = struct { input: Body, idle_ms: u32 };

    /// Begins the time in which a thread of the engine looks for a response: the host hears nothing, no body
    /// is received, and the thread has `most_ms` milliseconds (0: `idle_ms` is the limit).
    pub fn detain(exchange: *Exchange, now: u64, most_ms: u32) Detention {
        assert(exchange.isHeard() and exchange.status == 0);
        const before: Detention = .{ .input = exchange.input, .idle_ms = exchange.idle_ms };
        exchange.silence();
        exchange.pauseInput(now);
        if (most_ms != 0 and (exchange.idle_ms == 0 or most_ms < exchange.idle_ms)) {
            exchange.idle_ms = most_ms;
        }
        return before;
    }

    /// Restores the state before `detain`, because no thread could start.
    pub fn undoDetention(exchange: *Exchange, before: Detention) void {
        exchange.unsilence();
        exchange.input = before.input;
        exchange.idle_ms = before.idle_ms;
    }

    /// Ends the thread's time. The caller decides next whether the host hears of the exchange.
    pub fn endDetention(exchange: *Exchange, idle_ms: u32, now: u64) void {
        assert(!exchange.isHeard());
        exchange.idle_ms = idle_ms;
        exchange.active_at = now;
    }

    // ---- The request

    /// Notes that the engine refuses the rest of the request and answers in place of the host. `bytes`: the
    /// length of the response's content.
    pub fn noteRefusal(exchange: *Exchange, refusal: protocol.Refusal, bytes: u64) void {
        exchange.status = refusal.status;
        exchange.body_bytes = if (exchange.lane.session().asksForHead())
            0
        else
            bytes;
        exchange.response = .refused;
    }

    /// Whether further bytes of the peer are to be read.
    pub fn wantsInput(exchange: *const Exchange) bool {
        if (exchange.openWebSocket()) |websocket| return !websocket.incoming.isStalled();
        return exchange.input == .wanted;
    }

    /// Whether no more input of the peer belongs to the exchange.
    pub fn inputComplete(exchange: *const Exchange) bool {
        return exchange.input == .complete and exchange.openWebSocket() == null;
    }

    /// The WebSocket from its acceptance until the exchange ends; null: there is none.
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

    /// Stops reading after the piece that a host which pulls has asked for.
    pub fn pieceDelivered(exchange: *Exchange, now: u64) void {
        if (exchange.delivered) exchange.pauseInput(now);
    }

    /// Stops reading the body until the host asks.
    pub fn pauseInput(exchange: *Exchange, now: u64) void {
        switch (exchange.input) {
            .wanted => |stall| exchange.input = .{ .unwanted = stall.pause(now) },
            .unwanted, .complete => {},
        }
    }

    /// Takes the request with its whole body, for a host with `Demand.Body.whole`. The host owns it from now
    /// on, and gives it back with `Worker.dropIntake`. Null: the request has no body.
    pub fn takeIntake(exchange: *Exchange) ?*Intake {
        const intake = exchange.intake orelse return null;
        exchange.intake = null;
        return intake;
    }

    /// The queue for the exchange's content. Without streams it is the queue for all output of the
    /// connection, with framing; with streams it holds the stream's content, which is framed when it is sent.
    pub inline fn out(exchange: *Exchange) *Outbox {
        return &exchange.lane.out().queue;
    }

    /// Queued bytes of the exchange's lane, for the kernel or to be framed. Bytes of earlier exchanges may be
    /// among them.
    pub fn queuedBytes(exchange: *const Exchange) usize {
        return exchange.lane.queuedBytes();
    }

    /// Whether the response is complete and the unsent rest of it cannot fail.
    pub fn isSettled(exchange: *const Exchange) bool {
        return exchange.isEnded() and exchange.lane.leavesSurely(exchange.endsWithFile());
    }

    /// Asserts relations that hold between two rounds.
    pub fn invariants(exchange: *const Exchange) void {
        const session = exchange.lane.session();
        assert(exchange.status == 0 or session.responseStarted());
        if (exchange.isEnded()) assert(exchange.status != 0 and !session.headIsOpen());
        if (exchange.intake) |intake| {
            assert(intake.ticket == exchange.ticket);
            assert(if (exchange.isHeard()) exchange.input == .complete else exchange.status == 0);
        }
        if (exchange.openWebSocket() != null) {
            assert(exchange.input == .complete);
            assert(exchange.status == exchange.lane.session().switchStatus());
        }
        if (exchange.input == .complete) {
            assert(exchange.websocket != null or session.inputComplete());
        }
    }

    /// The next deadline of the exchange, for its peer or its host.
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

    /// The time at which repeated bytes are due, in milliseconds.
    pub fn repeatAt(exchange: *const Exchange) u64 {
        const repeat = exchange.repeat orelse return Timer.never;
        return if (exchange.isEnded()) Timer.never else repeat.due_at;
    }

    /// Whether the request's body has stalled for too long.
    pub fn bodyOverdue(exchange: *const Exchange, now: u64, config: *const Config) bool {
        return switch (exchange.input) {
            .wanted => |stall| now >= stall.deadline(config.body_ms),
            .unwanted, .complete => false,
        };
    }

    /// Queues the start of the response. On an error nothing is queued.
    pub fn start(exchange: *Exchange, pool: *Pool, response: Start, date: *const [29]u8) StartError!void {
        const lane = exchange.lane;
        assert(lane.current() == exchange);
        var head = response;
        // A status of success would tell the client of a CONNECT handshake that its WebSocket was accepted.
        const would_accept = lane.session().switchStatus() == 200 and response.status < 300;
        if (exchange.websocket != null and would_accept) head.status = 501;
        const has_content = try lane.start(pool, head, date);
        exchange.status = head.status;
        exchange.body_bytes = if (has_content) response.body.len else 0;
        exchange.response = if (response.end) .complete else .open;
    }

    /// Whether the head still waits for the length of the body when other output is sent.
    pub fn keepsHead(exchange: *const Exchange) bool {
        return exchange.keeps_head and exchange.lane.session().headIsOpen();
    }

    /// The place of a piece in its body.
    pub const Place = struct {
        /// Whether the response is complete with this piece.
        last: bool = false,
        /// The connection closes after this response.
        close: bool = false,

        fn piece(place: Place, len: u64) session_file.Piece {
            return .{ .len = len, .last = place.last, .close = place.close };
        }
    };

    /// Queues a copy of a piece of the body. On an error nothing has changed; this holds for the functions
    /// below, too.
    pub fn copy(exchange: *Exchange, pool: *Pool, bytes: []const u8, place: Place) BodyError!void {
        const session = exchange.lane.session();
        const outbox = exchange.out();
        if (bytes.len > Lane.whole_max) {
            var chain: Outbox = .{};
            errdefer chain.deinit(pool);
            if (session.sendsContent()) try chain.append(pool, bytes);
            return exchange.take(pool, &chain, bytes.len, place);
        }
        const framing_max = session_file.body_prefix_bytes_max + session_file.body_suffix_bytes_max;
        const space = try outbox.reserve(pool, bytes.len + framing_max);
        errdefer outbox.cancel(pool);
        const plan = try session.planBody(place.piece(bytes.len), space);
        var len = plan.len;
        for ([_][]const u8{ if (plan.payload) bytes else "", plan.suffix }) |part| {
            @memcpy(space[len..][0..part.len], part);
            len += part.len;
        }
        if (len > 0) outbox.commit(len) else outbox.cancel(pool);
        exchange.noteBody(plan, bytes.len, place);
    }

    /// Queues a piece of the body without copying it: its owner gets the loan back when it was sent.
    pub fn lend(
        exchange: *Exchange,
        pool: *Pool,
        bytes: []const u8,
        loan: *Loan,
        place: Place,
    ) BodyError!void {
        var chain: Outbox = .{};
        try chain.lend(pool, bytes, loan);
        errdefer chain.cancelLoan(pool);
        try exchange.take(pool, &chain, bytes.len, place);
    }

    /// Like `lend`, for bytes whose holder is told when they were sent.
    pub fn hold(exchange: *Exchange, pool: *Pool, held: Held, place: Place) BodyError!void {
        var chain: Outbox = .{};
        try chain.hold(pool, held);
        errdefer chain.cancelLoan(pool);
        try exchange.take(pool, &chain, held.bytes.len, place);
    }

    /// Queues blocks with `len` bytes of body, or drops them if the response has no content. The chain is
    /// empty afterwards.
    pub fn take(exchange: *Exchange, pool: *Pool, chain: *Outbox, len: usize, place: Place) BodyError!void {
        if (!try exchange.around(pool, chain, len, place)) chain.deinit(pool);
    }

    /// Queues a file as the rest of the body. False: the response has no content, and the file was not
    /// queued.
    pub fn takeFile(exchange: *Exchange, pool: *Pool, range: FileRange) BodyError!bool {
        var chain: Outbox = .{};
        try chain.appendFile(pool, range);
        // The caller keeps its descriptor.
        errdefer _ = chain.popFile(pool);
        const taken = try exchange.takeParts(pool, &chain, range.len);
        if (!taken) _ = chain.popFile(pool);
        return taken;
    }

    /// Like `takeFile`, for bytes and files. The chain is empty afterwards, but keeps its blocks if the
    /// response has no content.
    pub fn takeParts(exchange: *Exchange, pool: *Pool, chain: *Outbox, len: u64) BodyError!bool {
        const taken = try exchange.around(pool, chain, len, .{ .last = true });
        if (taken) exchange.response = .complete_with_file;
        return taken;
    }

    /// Queues a chain with the framing around it. False: the response has no content.
    fn around(exchange: *Exchange, pool: *Pool, chain: *Outbox, len: u64, place: Place) BodyError!bool {
        const outbox = exchange.out();
        var prefix: [session_file.body_prefix_bytes_max]u8 = undefined;
        const plan = try exchange.lane.session().planBody(place.piece(len), &prefix);
        var tail: Outbox = .{};
        errdefer tail.deinit(pool);
        try tail.append(pool, plan.suffix);
        try outbox.append(pool, prefix[0..plan.len]);
        if (plan.payload) outbox.take(chain);
        outbox.take(&tail);
        exchange.noteBody(plan, len, place);
        return plan.payload;
    }

    /// Notes a piece of the body that was queued.
    inline fn noteBody(exchange: *Exchange, plan: session_file.Plan, len: u64, place: Place) void {
        exchange.lane.session().apply(plan);
        if (plan.payload) exchange.body_bytes += len;
        if (place.last) exchange.response = .complete;
    }

    /// Queues the end of the response with its trailers, if there are any. On an error nothing has changed.
    pub fn end(exchange: *Exchange, pool: *Pool, trailers: []const Field) EndError!void {
        const session = exchange.lane.session();
        const outbox = exchange.out();
        if (session.responseStarted() and !session.takesTrailers()) {
            return error.TrailersNotAllowed;
        }
        const space = try outbox.reserve(pool, try bounded(session_file.endSize(trailers)));
        errdefer outbox.cancel(pool);
        const plan = try session.planEnd(trailers, space);
        if (plan.len > 0) outbox.commit(plan.len) else outbox.cancel(pool);
        session.apply(plan);
        exchange.response = .complete;
    }

    /// Reasons why the response to a WebSocket handshake is not queued.
    pub const SwitchError = StartError || error{ReservedField};

    /// Queues the response that completes a WebSocket handshake: 101, or 200 on a stream. On an error nothing
    /// has changed.
    pub fn switchProtocols(
        exchange: *Exchange,
        pool: *Pool,
        websocket: *const WebSocket,
        is_compressed: bool,
        accept: Accept,
        date: *const [29]u8,
    ) SwitchError!void {
        const extra = accept.fields;
        const outbox = exchange.lane.headQueue();
        const status = exchange.lane.session().switchStatus();
        for (extra, 0..) |field, index| if (handshake.ownsField(field.name())) {
            exchange.lane.session().noteBadField(index);
            return error.ReservedField;
        };
        const own_max = 4;
        const scratch = try pool.take((extra.len + own_max) * @sizeOf(Field));
        defer pool.give(scratch);
        const fields: []Field = @ptrCast(scratch[0 .. (extra.len + own_max) * @sizeOf(Field)]);
        var count: usize = 0;
        if (status == 101) {
            fields[0] = .init("Upgrade", "websocket");
            fields[1] = .init("Sec-WebSocket-Accept", &websocket.accept);
            count = 2;
        }
        if (accept.subprotocol) |name| {
            fields[count] = .init("Sec-WebSocket-Protocol", name);
            count += 1;
        }
        var agreement_text: [Agreement.text_bytes_max]u8 = undefined;
        if (is_compressed) {
            const agreement = websocket.compression.?.agreement;
            fields[count] = .init("Sec-WebSocket-Extensions", agreement.text(&agreement_text));
            count += 1;
        }
        @memcpy(fields[count..][0..extra.len], extra);
        const all = fields[0 .. count + extra.len];
        const space = try outbox.reserve(pool, try bounded(exchange.lane.session().startSize(all, 0)));
        errdefer outbox.cancel(pool);
        const session = exchange.lane.session();
        errdefer session.noteBadField(session.badField() -| count); // among the caller's fields
        outbox.commit(try session.switchProtocols(all, date, space));
        exchange.status = status;
    }

    /// Queues an interim response. On an error nothing has changed.
    pub fn inform(exchange: *Exchange, pool: *Pool, status: u16, fields: []const Field) StartError!void {
        const outbox = exchange.lane.headQueue();
        const space = try outbox.reserve(pool, try bounded(exchange.lane.session().startSize(fields, 0)));
        errdefer outbox.cancel(pool);
        outbox.commit(try exchange.lane.session().informational(status, fields, space));
    }
};
