//! One conversation with a peer: requests and their responses, one after the other on a connection of its
//! own, or the single one of a stream. A lane has its view of the session, received bytes that were not
//! taken, its place for output, and its exchange. Frames responses in the session's words. Does not know:
//! sockets, TLS, and when output is sent.
//!
//! A transport has one lane, embedded (transport.zig); a transport whose connection carries many streams has
//! one more for each of them (stream.zig), and its own rests.
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
const Ticket = @import("slab.zig").Ticket;
const Timer = @import("timer.zig").Timer;
const Transport = @import("transport.zig").Transport;
const Tunnel = @import("tunnel.zig").Tunnel;
const WebSocket = @import("websocket.zig").WebSocket;

/// One conversation: its view of the session, input that was not taken, its output, and its phase.
pub const Lane = struct {
    ticket: Ticket,
    /// The transport that carries the lane's bytes.
    transport: *Transport,
    /// Bytes that were received and not taken: content of a stream, or bytes of the wire.
    input: Input = .{},
    phase: Phase,
    timer: Timer = .{},
    sending: PeerSide = .open,
    /// In the worker's list of lanes with output or input to look at before it waits again.
    corked: bool = false,
    /// In the worker's list of lanes that go on in the next round: nothing of the lane is read or parsed
    /// before.
    yielded: bool = false,
    /// In the worker's list of lanes whose answers wait for the next one.
    withheld: bool = false,
    /// In the worker's list of WebSockets that wait for their host.
    parked: bool = false,
    /// All of the input was parsed, and nothing follows from it: only further bytes, or the peer's end, do.
    needs_more: bool = false,
    /// Requests that have come, refused ones included.
    request_count: u32 = 0,
    /// The number of the lane's stream in the session of its transport; 0: the lane is the transport's own.
    stream: protocol.Stream = 0,

    /// Whether the lane is between two requests, or within one.
    pub const Phase = union(enum) {
        /// No request. `since`: when the last one ended, or when the peer connected.
        idle: struct { since: u64 },
        /// Part of a request head has come.
        head: struct { since: u64 },
        exchange: *Exchange,
        /// The response is out, the rest of the request's body is read and thrown away.
        draining: struct { since: u64, bytes_left: u64 },
        /// No request follows: the last response is queued, or sent.
        closing,
    };

    /// The peer's sending side.
    pub const PeerSide = enum {
        open,
        /// The peer has ended its side, and bytes before the end are not read yet.
        ending,
        /// The end was read: no byte follows those in `input`.
        ended,
    };

    // ---- State

    /// Whether the lane is that of a stream, one of many on its transport.
    pub inline fn isStream(lane: *const Lane) bool {
        return lane.stream != 0;
    }

    /// The transport's own output, or that of the stream.
    pub inline fn out(lane: anytype) switch (@TypeOf(lane)) {
        *Lane => *Output,
        *const Lane => *const Output,
        else => unreachable,
    } {
        return if (lane.isStream()) &Stream.of(lane).out else &lane.transport.out;
    }

    /// The session of the connection, or the lane's stream of it. Not kept: each idle connection would pay
    /// for what its transport knows.
    pub inline fn session(lane: *const Lane) Session {
        if (lane.stream == 0) return .of(&lane.transport.single);
        return .ofStream(&lane.transport.phase.multiplexed.session, lane.stream);
    }

    /// The exchange that is going on.
    pub inline fn current(lane: *const Lane) ?*Exchange {
        return switch (lane.phase) {
            .exchange => |exchange| exchange,
            .idle, .head, .draining, .closing => null,
        };
    }

    /// The open WebSocket of this lane, if it is one.
    pub fn websocket(lane: *const Lane) ?*WebSocket {
        const exchange = lane.current() orelse return null;
        return exchange.openWebSocket();
    }

    /// The slot is about to be given back.
    pub fn isClosed(lane: *const Lane) bool {
        return if (lane.isStream()) Stream.of(lane).closed else lane.transport.phase == .closed;
    }

    /// Whether a request may come, and none is there.
    pub fn isIdle(lane: *const Lane) bool {
        return lane.phase == .idle and lane.wire() == .serving;
    }

    /// The phase of the wire, as far as it concerns the lane: a stream's lane always serves.
    pub inline fn wire(lane: *const Lane) std.meta.Tag(Transport.Phase) {
        return if (lane.isStream()) .serving else lane.transport.phase;
    }

    /// Since when a request head is incomplete; null: none is.
    pub fn headSince(lane: *const Lane) ?u64 {
        return switch (lane.phase) {
            .head => |head| head.since,
            .idle, .exchange, .draining, .closing => null,
        };
    }

    /// A lane without a request has waited for one since `now` only.
    pub fn restartWait(lane: *Lane, now: u64) void {
        switch (lane.phase) {
            .idle => |*idle| idle.since = now,
            .head, .exchange, .draining, .closing => {},
        }
    }

    /// No request is answered any more: queued output is sent, then the connection or the stream ends.
    pub fn beginClosing(lane: *Lane) void {
        assert(!lane.isClosed());
        lane.phase = .closing;
        if (!lane.isStream()) lane.transport.phase = .closing;
    }

    /// The peer's certificates, and whether it speaks TLS at all: null if not.
    pub fn tls(lane: *const Lane) ?*Tunnel {
        return lane.transport.tunnel;
    }

    /// The numeric address of the peer, empty on a Unix socket; with a NUL behind it for C.
    pub fn peerAddress(lane: *const Lane) [:0]const u8 {
        return lane.transport.peer_text.slice();
    }

    /// The number of the connection, as logs have it.
    pub fn number(lane: *const Lane) u32 {
        return lane.transport.number;
    }

    /// The port that the peer has connected to; 0: a Unix socket.
    pub fn localPort(lane: *const Lane) u16 {
        return if (lane.transport.local_address) |address| address.port else 0;
    }

    // ---- Input

    /// May bytes of this lane be parsed now?
    pub fn wantsInput(lane: *const Lane) bool {
        if (lane.wire() != .serving) return lane.transport.wantsFrames();
        return switch (lane.phase) {
            .idle, .head, .draining => true,
            // A peer that asks for pongs and does not read them waits, or it could fill our memory.
            .exchange => |exchange| exchange.wantsInput() and lane.queuedBytes() < Transport.flood_bytes,
            .closing => false,
        };
    }

    /// Whether the lane can parse something, or tell the host something, without new bytes.
    pub fn mayGoOn(lane: *const Lane) bool {
        if (lane.yielded) return false;
        const has_input = !lane.needs_more and (!lane.input.isEmpty() or lane.holdsEnd());
        return (has_input or lane.holdsMessage()) and lane.wantsInput();
    }

    /// Whether answers are queued in front of a whole request that its host has not begun to answer.
    pub fn mayWithhold(lane: *const Lane) bool {
        const exchange = lane.current() orelse return false;
        if (exchange.status != 0 or exchange.response != .open or !exchange.inputComplete()) return false;
        if (lane.isStream() or lane.out().state != .open) return false;
        return !lane.out().queue.isEmpty() and lane.out().queue.bytes < Output.together_bytes;
    }

    fn holdsEnd(lane: *const Lane) bool {
        return lane.isStream() and Stream.of(lane).holdsEnd();
    }

    /// Whether a WebSocket has parsed something that its host was not told yet.
    pub fn holdsMessage(lane: *const Lane) bool {
        const open = lane.websocket() orelse return false;
        return open.incoming.held != .nothing or open.ending != null;
    }

    // ---- Output

    /// Bytes that wait in the lane's name: unframed ones of a stream, else those that wait for the kernel,
    /// sealed or not. Those of file ranges are not counted.
    pub fn queuedBytes(lane: *const Lane) usize {
        return if (lane.isStream()) lane.out().queue.bytes else lane.transport.queuedBytes();
    }

    /// Has everything left the lane's output: to the wire, or to the kernel?
    pub fn isFlushed(lane: *const Lane) bool {
        return if (lane.isStream()) lane.out().queue.isEmpty() else lane.transport.isFlushed();
    }

    /// Has the kernel taken everything, be it framed or not?
    pub fn isDelivered(lane: *const Lane) bool {
        return lane.isFlushed() and (!lane.isStream() or lane.transport.isFlushed());
    }

    /// Whether the rest of a complete response cannot fail: it is with the kernel, or leaves with this round.
    /// `with_file`: only sending its file shows whether that can be read.
    pub fn leavesSurely(lane: *const Lane, with_file: bool) bool {
        // Framed bytes leave with the next ones; the rest may wait for windows.
        if (lane.isStream()) return lane.out().queue.isEmpty();
        if (lane.out().state != .open) return false;
        return !with_file or lane.out().queue.isEmpty();
    }

    /// The queue for heads: each depends on those before it on its connection, whichever lane's they are.
    pub inline fn headQueue(lane: *Lane) *Outbox {
        return &lane.transport.out.queue;
    }

    pub const whole_max = @import("config.zig").worker_limits.whole_response_bytes_max;

    pub const framed_bytes_max = @import("config.zig").worker_limits.framed_bytes_max;

    /// Queues the start of a response. Whether it has content that is sent: not to HEAD, nor with 204 and
    /// 304. Content that may leave at once goes with its head, other content waits for its turn. On an error
    /// nothing has changed.
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

    /// Whether this many bytes of content may leave with the head of their response. Content of streams
    /// waits where others may overtake it.
    inline fn leavesWithHead(lane: *const Lane, len: usize) bool {
        const view = switch (lane.session()) {
            .single => return true,
            .stream => |view| view,
        };
        const framed = &lane.transport.out;
        return framed.state == .open and framed.queue.bytes < framed_bytes_max and
            view.session.leavesAtOnce(view.stream, len);
    }

    /// Says that a client which waits may send its content, if it does. On an error nothing has changed.
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

    /// Ends a head that waits to know how long the body is. On an error nothing has changed.
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

    /// The deadline of the peer's next step; `Timer.never` while nothing is expected of it.
    pub fn deadline(lane: *const Lane, config: *const Config) u64 {
        if (!lane.isStream()) return lane.transport.deadline(config);
        return switch (lane.out().state) {
            .open => lane.expectedAt(config),
            .blocked => |blockage| @min(lane.expectedAt(config), blockage.stall.deadline(config.write_ms)),
        };
    }

    /// The deadline of the peer's next bytes.
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

    /// The consequence of a deadline that has passed.
    pub const Overdue = enum {
        not_yet,
        /// No request is without its answer: close.
        close,
        /// The connection came in over the limit and has not said what for: say 503, then close.
        turn_away,
        /// Half a request head: say 408, then close.
        refuse,
        /// The request's body does not come.
        body_stalled,
        /// The peer does not take its response.
        write_stalled,
        /// A ping, a pong or the end of a WebSocket is due: see WebSocket.due.
        websocket,
        /// Bytes that an exchange repeats are due.
        repeat,
        /// The exchange was quiet for longer than its idle limit.
        exchange_idle,
        /// A deadline of a connection of many streams has come: see Multiplex.due.
        multiplexed,
    };

    /// The consequence of `deadline`, if that has passed.
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

    /// The words of the log for the end of the lane.
    pub fn endWords(lane: *const Lane) []const u8 {
        return if (lane.isStream()) "resetting stream" else "closing connection";
    }

    /// The last request as logs name it, "request 17-3 (192.0.2.1)": by the numbers that %L of the access log
    /// has.
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

    /// Asserts what always holds between two rounds.
    pub fn invariants(lane: *const Lane) void {
        lane.session().invariants();
        lane.out().queue.invariants();
        if (lane.current()) |exchange| {
            assert(exchange.lane == lane);
            exchange.invariants();
        }
        // The kernel has said that it will take more, or a turn is over.
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

/// Answers a request that was read, in two pieces of content; the bytes that the transport has to
/// send.
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
    transport.init(.none, .none, &limits, 1, 0, 0);
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
    stream.init(.none, &transport, 1, 0);
    multiplex.add(&stream);
    session.own(1, 1);
    // The head leaves with the first content, more of that waits to be framed.
    const sent = try answer(&transport, &stream.lane, &pool);
    try testing.expectEqual(1, sent[3]); // HEADERS
    try testing.expectStringEndsWith(sent, "h");
    try testing.expectEqualStrings("i", stream.out.queue.only().?);
    transport.out.queue.consume(&pool, sent.len);
    stream.out.queue.deinit(&pool);
    multiplex.remove(&stream, 0);
}
