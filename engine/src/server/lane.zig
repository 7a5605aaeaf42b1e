//! One conversation with a peer: requests and responses one after the other on a connection, or the one
//! request of a stream. A lane has its view of the session, input that was not taken, its place for output,
//! and its exchange. The session frames its responses. Does not know: sockets, TLS, and when output is sent.
//!
//! A transport has one lane, embedded (transport.zig). A transport that carries streams has one more lane for
//! each stream (stream.zig), and its embedded lane has no requests.
const std = @import("std");
const assert = std.debug.assert;
const protocol = @import("protocol");
const session_file = protocol.session;
const Field = protocol.http.Field;
const Multiplexed = protocol.Multiplexed;
const Session = protocol.Session;
const Config = @import("config.zig").Config;
const exchange_file = @import("exchange.zig");
const Exchange = exchange_file.Exchange;
const Input = @import("input.zig").Input;
const Multiplex = @import("multiplex.zig").Multiplex;
const Outbox = @import("outbox.zig").Outbox;
const Output = @import("output.zig").Output;
const Pool = @import("pool.zig").Pool;
const Start = exchange_file.Start;
const StartError = exchange_file.StartError;
const Stream = @import("stream.zig").Stream;
const Slab = @import("slab.zig").Slab;
const Ticket = @import("slab.zig").Ticket;
const Timer = @import("timer.zig").Timer;
const Transport = @import("transport.zig").Transport;
const Tunnel = @import("tunnel.zig").Tunnel;
const WebSocket = @import("websocket.zig").WebSocket;

/// One conversation of a transport.
pub const Lane = struct {
    /// The transport that carries the lane's bytes.
    transport: *Transport,
    /// Received bytes that were not taken: content of a stream, or bytes of the connection.
    input: Input = .{},
    phase: Phase,
    timer: Timer = .{},
    sending: PeerSide = .open,
    /// The lane is in the worker's list of lanes whose output or input is looked at before the worker waits.
    corked: bool = false,
    /// The lane is in the worker's list of lanes that go on in the next round. Until then its input is not
    /// read.
    yielded: bool = false,
    /// The lane is in the worker's list of lanes whose responses wait for the response to the next request.
    withheld: bool = false,
    /// The lane is in the worker's list of WebSockets whose host is behind.
    parked: bool = false,
    /// All input was parsed; only further bytes or the end of the peer can bring more.
    needs_more: bool = false,
    /// The number of requests that have come, with refused ones.
    request_count: u32 = 0,
    /// The number of the lane's stream in the session of its transport; 0: the lane is the transport's own.
    stream: protocol.Stream = 0,

    /// The progress of the lane's requests.
    pub const Phase = union(enum) {
        /// The lane waits for a request. `since`: when the last one ended, or when the peer connected.
        idle: struct { since: u64 },
        /// A part of a request head has come.
        head: struct { since: u64 },
        exchange: *Exchange,
        /// The response was sent, and the rest of the request's body is read and dropped.
        draining: struct { since: u64, bytes_left: u64 },
        /// No request follows, and the last response is queued or sent.
        closing,
    };

    /// The state of the peer's sending side.
    pub const PeerSide = enum {
        open,
        /// The peer has ended its side; bytes before the end were not read yet.
        ending,
        /// The end was read: no byte follows the bytes in `input`.
        ended,
    };

    // ---- State

    /// The ticket of the lane's stream or transport, whose slab keeps it. The lane must be in a slab.
    pub inline fn ticket(lane: *const Lane) Ticket {
        if (lane.isStream()) return Slab(Stream).ticketOf(Stream.of(lane));
        return Slab(Transport).ticketOf(lane.transport);
    }

    /// Whether the lane belongs to a stream, one of many on its transport.
    pub inline fn isStream(lane: *const Lane) bool {
        return lane.stream != 0;
    }

    /// The place for the lane's output: the stream's, or the transport's.
    pub inline fn out(lane: anytype) switch (@TypeOf(lane)) {
        *Lane => *Output,
        *const Lane => *const Output,
        else => unreachable,
    } {
        return if (lane.isStream()) &Stream.of(lane).out else &lane.transport.out;
    }

    /// The session of the connection, or the stream's part of it. It is found again each time, because a
    /// pointer would take memory of each idle connection.
    pub inline fn session(lane: *const Lane) Session {
        if (lane.stream == 0) return .of(&lane.transport.single);
        return .ofStream(&lane.transport.phase.multiplexed.session, lane.stream);
    }

    /// The exchange in progress; null: there is none.
    pub inline fn current(lane: *const Lane) ?*Exchange {
        return switch (lane.phase) {
            .exchange => |exchange| exchange,
            .idle, .head, .draining, .closing => null,
        };
    }

    /// The open WebSocket of this lane; null: there is none.
    pub fn websocket(lane: *const Lane) ?*WebSocket {
        const exchange = lane.current() orelse return null;
        return exchange.openWebSocket();
    }

    /// Whether the lane has ended, so that its slot is about to be given back.
    pub fn isClosed(lane: *const Lane) bool {
        return if (lane.isStream()) Stream.of(lane).closed else lane.transport.phase == .closed;
    }

    /// Whether the lane waits for a request.
    pub fn isIdle(lane: *const Lane) bool {
        return lane.phase == .idle and lane.wire() == .serving;
    }

    /// The phase of the connection, for the lane: a stream's lane is always `serving`.
    pub inline fn wire(lane: *const Lane) std.meta.Tag(Transport.Phase) {
        return if (lane.isStream()) .serving else lane.transport.phase;
    }

    /// The time at which a request head that is incomplete began; null: there is none.
    pub fn headSince(lane: *const Lane) ?u64 {
        return switch (lane.phase) {
            .head => |head| head.since,
            .idle, .exchange, .draining, .closing => null,
        };
    }

    /// Restarts the time of waiting for a request, if the lane waits for one.
    pub fn restartWait(lane: *Lane, now: u64) void {
        switch (lane.phase) {
            .idle => |*idle| idle.since = now,
            .head, .exchange, .draining, .closing => {},
        }
    }

    /// Begins the end of the lane: no further request is answered; when queued output is sent, the connection
    /// or stream ends.
    pub fn beginClosing(lane: *Lane) void {
        assert(!lane.isClosed());
        lane.phase = .closing;
        if (!lane.isStream()) lane.transport.phase = .closing;
    }

    /// The TLS layer of the connection; null: it has none.
    pub fn tls(lane: *const Lane) ?*Tunnel {
        return lane.transport.tunnel;
    }

    /// The numeric address of the peer, empty on a Unix socket; with a NUL behind it for C.
    pub fn peerAddress(lane: *const Lane) [:0]const u8 {
        return lane.transport.peer_text.slice();
    }

    /// The number of the connection in logs.
    pub fn number(lane: *const Lane) u32 {
        return lane.transport.number;
    }

    /// The local port of the connection; 0: a Unix socket.
    pub fn localPort(lane: *const Lane) u16 {
        return if (lane.transport.local_address) |address| address.port else 0;
    }

    // ---- Input

    /// Whether bytes of this lane may be parsed now.
    pub fn wantsInput(lane: *const Lane) bool {
        if (lane.wire() != .serving) return lane.transport.wantsFrames();
        return switch (lane.phase) {
            .idle, .head, .draining => true,
            // A peer that asks for pongs and does not read them is not read, because its pongs would fill
            // memory.
            .exchange => |exchange| exchange.wantsInput() and lane.queuedBytes() < Transport.flood_bytes,
            .closing => false,
        };
    }

    /// Whether the lane has something to parse or to tell its host without new bytes.
    pub fn mayGoOn(lane: *const Lane) bool {
        if (lane.yielded) return false;
        const has_input = !lane.needs_more and (!lane.input.isEmpty() or lane.holdsEnd());
        return (has_input or lane.holdsMessage()) and lane.wantsInput();
    }

    /// Whether responses are queued in front of a complete request that its host has not begun to answer.
    pub fn mayWithhold(lane: *const Lane) bool {
        const exchange = lane.current() orelse return false;
        if (exchange.status != 0 or exchange.response != .open or !exchange.inputComplete()) return false;
        if (lane.isStream() or lane.out().state != .open) return false;
        return !lane.out().queue.isEmpty() and lane.out().queue.bytes < Output.together_bytes;
    }

    fn holdsEnd(lane: *const Lane) bool {
        return lane.isStream() and Stream.of(lane).holdsEnd();
    }

    /// Whether a WebSocket has a message or an end that its host was not told yet.
    pub fn holdsMessage(lane: *const Lane) bool {
        const open = lane.websocket() orelse return false;
        return open.incoming.held != .nothing or open.ending != null;
    }

    // ---- Output

    /// Queued bytes of the lane: those of a stream before framing, or those of a connection that the kernel
    /// has not taken, sealed or not. File ranges do not count.
    pub fn queuedBytes(lane: *const Lane) usize {
        return if (lane.isStream()) lane.out().queue.bytes else lane.transport.queuedBytes();
    }

    /// Whether no output is left: a stream's was framed, a connection's was taken by the kernel.
    pub fn isFlushed(lane: *const Lane) bool {
        return if (lane.isStream()) lane.out().queue.isEmpty() else lane.transport.isFlushed();
    }

    /// Whether the kernel has taken all output of the lane, framed output of a stream included.
    pub fn isDelivered(lane: *const Lane) bool {
        return lane.isFlushed() and (!lane.isStream() or lane.transport.isFlushed());
    }

    /// Whether the rest of a complete response cannot fail any more: the kernel has it, or gets it in this
    /// round. `with_file`: the response ends with a file, which is read only while it is sent.
    pub fn leavesSurely(lane: *const Lane, with_file: bool) bool {
        // Framed bytes are sent with the next ones; unframed bytes may wait for windows.
        if (lane.isStream()) return lane.out().queue.isEmpty();
        if (lane.out().state != .open) return false;
        return !with_file or lane.out().queue.isEmpty();
    }

    /// The queue for heads. It is the transport's, because the encoding of each head depends on the heads
    /// before it, also on those of other lanes.
    pub inline fn headQueue(lane: *Lane) *Outbox {
        return &lane.transport.out.queue;
    }

    pub const whole_max = @import("config.zig").worker_limits.whole_response_bytes_max;

    pub const framed_bytes_max = @import("config.zig").worker_limits.framed_bytes_max;

    /// Queues the start of a response. Returns whether the response has content (not to HEAD, nor with 204
    /// and 304). Short content is queued with the head, other content waits for its turn. On an error nothing
    /// has changed.
    pub fn start(lane: *Lane, pool: *Pool, response: Start, date: *const [29]u8) StartError!bool {
        const framed = lane.headQueue();
        const whole = response.body.len <= whole_max and lane.leavesWithHead(response.body.len);
        const content = if (whole) response.body else "";
        var rest: Outbox = .{};
        errdefer rest.deinit(pool);
        var suffix: []u8 = &.{};
        if (!whole) {
            try rest.append(pool, response.body);
            if (!lane.isStream()) suffix = try rest.reserve(pool, session_file.body_suffix_bytes_max);
        }
        const lines_bytes = if (response.lines) |lines| lines.text.len else 0;
        const head_bytes = lane.session().startSize(response.fields, lines_bytes);
        const space = try framed.reserve(pool, try exchange_file.bounded(head_bytes) + content.len);
        errdefer framed.cancel(pool);
        const started = try lane.session().start(.{
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
        framed.commit(started.len);
        if (started.queued) {
            assert(!whole);
            @memcpy(suffix[0..started.suffix.len], started.suffix);
            if (suffix.len > 0) rest.commit(started.suffix.len);
            lane.out().queue.take(&rest);
        } else rest.deinit(pool);
        return started.payload;
    }

    /// Whether `len` bytes of content may be queued with the head of their response. Otherwise content of a
    /// stream waits where other streams can overtake it.
    inline fn leavesWithHead(lane: *const Lane, len: usize) bool {
        const view = switch (lane.session()) {
            .single => return true,
            .stream => |view| view,
        };
        const framed = &lane.transport.out;
        return framed.state == .open and framed.queue.bytes < framed_bytes_max and
            view.session.leavesAtOnce(view.stream, len);
    }

    /// Queues a 100 if the client waits for it before it sends content. On an error nothing has changed.
    pub fn sayContinue(lane: *Lane, pool: *Pool) error{OutOfMemory}!void {
        const outbox = lane.headQueue();
        switch (lane.session()) {
            .single => |single| if (single.takeContinue()) |interim| try outbox.append(pool, interim),
            .stream => |*view| {
                const space = try outbox.reserve(pool, Multiplexed.continue_bytes_max);
                const len = view.session.takeContinue(view.stream, space);
                if (len > 0) outbox.commit(len) else outbox.cancel(pool);
            },
        }
    }

    /// Ends a head that was waiting for the length of the body. On an error nothing has changed.
    pub fn closeHead(lane: *Lane, pool: *Pool) error{OutOfMemory}!void {
        const single = switch (lane.session()) {
            .single => |single| single,
            .stream => return, // heads of streams are complete
        };
        if (!single.headIsOpen()) return;
        const outbox = &lane.out().queue;
        const plan = single.planHeadEnd(try outbox.reserve(pool, session_file.body_prefix_bytes_max));
        outbox.commit(plan.len);
        single.apply(plan);
    }

    // ---- Deadlines

    /// The time until which the peer must act, in milliseconds; `Timer.never`: nothing is expected of it.
    pub fn deadline(lane: *const Lane, config: *const Config) u64 {
        if (!lane.isStream()) return lane.transport.deadline(config);
        return switch (lane.out().state) {
            .open => lane.expectedAt(config),
            .blocked => |blockage| @min(lane.expectedAt(config), blockage.stall.deadline(config.write_ms)),
        };
    }

    /// The time until which the peer's next bytes must come, in milliseconds.
    pub fn expectedAt(lane: *const Lane, config: *const Config) u64 {
        const transport = lane.transport;
        return switch (lane.phase) {
            .idle => |idle| if (transport.surplus != .no or transport.retiring == .stopping)
                idle.since + config.linger_ms
            else if (transport.retiring == .replaced)
                idle.since + config.retire_idle_ms
            else
                Timer.after(idle.since, config.idle_ms),
            .head => |head| head.since + if (transport.surplus != .no)
                @min(config.linger_ms, config.head_ms)
            else
                config.head_ms,
            .exchange => |exchange| exchange.deadline(config),
            .draining => |draining| Timer.after(draining.since, config.body_ms),
            .closing => Timer.never,
        };
    }

    /// The action that follows when a deadline has passed.
    pub const Overdue = enum {
        not_yet,
        /// No request waits for a response: close the connection.
        close,
        /// The connection is over the limit and has sent no request: send 503, then close.
        turn_away,
        /// The request head is incomplete: send 408, then close.
        refuse,
        /// The request's body does not come.
        body_stalled,
        /// The peer does not take its response.
        write_stalled,
        /// A ping, a pong or the end of a WebSocket is due: see WebSocket.due.
        websocket,
        /// Bytes that an exchange repeats are due.
        repeat,
        /// The exchange had no byte in either direction for its idle limit.
        exchange_idle,
        /// A deadline of a transport with streams has passed: see Multiplex.due.
        multiplexed,
    };

    /// The action that follows at `now`.
    pub fn overdue(lane: *const Lane, now: u64, config: *const Config) Overdue {
        if (now < lane.deadline(config)) return .not_yet;
        switch (lane.out().state) {
            .open => {},
            .blocked => |blockage| if (now >= blockage.stall.deadline(config.write_ms)) return .write_stalled,
        }
        return if (lane.wire() == .serving) lane.overdueServing(now, config) else lane.transport.overdue();
    }

    fn overdueServing(lane: *const Lane, now: u64, config: *const Config) Overdue {
        const is_surplus = lane.transport.surplus != .no;
        return switch (lane.phase) {
            .idle => if (is_surplus) .turn_away else .close,
            .head => if (is_surplus) .turn_away else .refuse,
            .exchange => |exchange| overdueIn(exchange, now, config),
            .draining, .closing => .close,
        };
    }

    fn overdueIn(exchange: *const Exchange, now: u64, config: *const Config) Overdue {
        if (exchange.bodyOverdue(now, config)) return .body_stalled;
        if (exchange.openWebSocket()) |open| if (now >= open.deadline()) return .websocket;
        return if (now >= exchange.repeatAt()) .repeat else .exchange_idle;
    }

    // ---- Logs

    /// The words for the end of the lane in the log.
    pub fn endWords(lane: *const Lane) []const u8 {
        return if (lane.isStream()) "resetting stream" else "closing connection";
    }

    /// The name of the last request in logs, "request 17-3 (192.0.2.1)", with the numbers of %L in the access
    /// log.
    pub fn requestName(lane: *const Lane) RequestName {
        return .{ .lane = lane };
    }

    const RequestName = struct {
        lane: *const Lane,

        /// Used by `{f}`.
        pub fn format(name: RequestName, writer: *std.Io.Writer) std.Io.Writer.Error!void {
            const lane = name.lane;
            try writer.print(
                "request {d}-{d} ({s})",
                .{ lane.number(), lane.request_count, lane.transport.peerName() },
            );
        }
    };

    /// Asserts relations that hold between two rounds.
    pub fn invariants(lane: *const Lane) void {
        lane.session().invariants();
        lane.out().queue.invariants();
        if (lane.current()) |exchange| {
            assert(exchange.lane == lane);
            exchange.invariants();
        }
        // Output counts as blocked only while some is left.
        if (lane.out().state == .blocked) assert(!lane.isFlushed());
        if (lane.isStream()) {
            Stream.of(lane).invariants();
        } else {
            assert(lane == &lane.transport.lane);
            lane.transport.invariants();
        }
    }
};

const testing = std.testing;

/// Answers a request in two pieces of content, and returns the bytes that the transport has to send.
fn answer(transport: *Transport, lane: *Lane, pool: *Pool) ![]const u8 {
    var exchange: Exchange = .{ .ticket = .none, .lane = lane, .active_at = 0 };
    lane.phase = .{ .exchange = &exchange };
    try testing.expect(!lane.session().responseStarted());
    try exchange.start(pool, .{ .status = 200, .body = "h" }, &@as([29]u8, @splat('d')));
    try exchange.copy(pool, "i", .{ .last = true });
    try testing.expectEqual(2, exchange.body_bytes);
    try testing.expectError(error.OutOfOrder, exchange.copy(pool, "more", .{}));
    lane.invariants();
    try testing.expectEqual(lane.session().conclude() == .close, lane.isStream());
    lane.phase = if (lane.isStream()) .closing else .{ .idle = .{ .since = 0 } };
    return transport.out.queue.only().?;
}

test "a lane answers requests over plain memory: its own, and that of a stream" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    var fields: [8]protocol.http.FieldSpan = undefined;
    var head: protocol.Head = .{ .storage = &fields };
    const limits = @import("types.zig").limitsOf(&.{});
    var transport: Transport = undefined;
    transport.init(.none, &limits, 1, 0, 0);
    defer transport.out.queue.deinit(&pool);
    for (0..2) |_| {
        const step = transport.single.feed("GET / HTTP/1.1\r\nHost: a\r\n\r\n", &head);
        try testing.expectEqual(.request, std.meta.activeTag(step.event));
        const sent = try answer(&transport, &transport.lane, &pool);
        try testing.expectStringStartsWith(sent, "HTTP/1.1 200 ");
        try testing.expectStringEndsWith(sent, "\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n");
        transport.out.queue.consume(&pool, sent.len);
    }

    const allowed: Multiplexed.Config = .{};
    const room = try testing.allocator.alignedAlloc(u8, .of(u64), Multiplexed.roomBytes(&allowed));
    defer testing.allocator.free(room);
    var desks: Multiplex.Desks = .init(testing.allocator);
    defer desks.deinit();
    const multiplex: *Multiplex = try .create(testing.allocator, &limits, &allowed, room, 0);
    defer multiplex.destroy(testing.allocator, &desks);
    transport.leaveServing(.{ .multiplexed = multiplex });
    const session = &multiplex.session;
    const bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" ++ "\x00\x00\x00\x04\x00\x00\x00\x00\x00" ++
        "\x00\x00\x06\x01\x05\x00\x00\x00\x01" ++ "\x82\x87\x84\x41\x01a";
    var used: usize = 0;
    var scratch: [Multiplexed.emission_bytes_max]u8 = undefined;
    while (true) {
        const step = session.feed(bytes[used..], &head);
        used += step.consumed;
        switch (step.event) {
            .request => break,
            .places => try multiplex.grow(testing.allocator, &desks),
            else => |event| {
                try testing.expectEqual(.control, std.meta.activeTag(event));
                _ = session.emit(&scratch, 1).?;
            },
        }
    }
    var stream: Stream = undefined;
    stream.init(&transport, 1, 0);
    multiplex.add(&stream);
    session.own(1, 1);
    // The head is queued with the first piece of content; the next piece waits to be framed.
    const sent = try answer(&transport, &stream.lane, &pool);
    try testing.expectEqual(1, sent[3]); // HEADERS
    try testing.expectStringEndsWith(sent, "h");
    try testing.expectEqualStrings("i", stream.out.queue.only().?);
    transport.out.queue.consume(&pool, sent.len);
    stream.out.queue.deinit(&pool);
    multiplex.remove(&stream, 0);
}
