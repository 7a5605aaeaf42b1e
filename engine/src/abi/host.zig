//! The C API's host: turns what the worker tells into events of a batch.
//! Does not know: who reads the batch, and what an answer looks like.
const builtin = @import("builtin");
const std = @import("std");
const peregrine = @import("peregrine");
const Batch = @import("batch.zig").Batch;
const EngineEnd = @import("engine_end.zig").EngineEnd;
const Folders = @import("folders.zig").Folders;
const Pool = @import("pool.zig").Pool;
const Routes = @import("routes.zig").Routes;
const slots = @import("slots.zig");
const tls = @import("tls.zig");
const tls_facts = @import("tls_facts.zig");
const types = @import("types.zig");
const Exchange = peregrine.Exchange;

/// The host of a worker that C polls. Its calls are described in server/worker.zig.
pub const Host = struct {
    /// Of requests that no route of C's matches; then all that there are.
    pub const demand: peregrine.Demand = .pull;
    pub const demands = [_]peregrine.Demand{ demand, .{ .pace = .pull, .body = .whole } };

    /// One is filled while C reads the other.
    batches: [2]Batch,
    /// The one that is filled.
    side: u1 = 0,
    /// The end of the channel behind which C is; null: C polls the worker itself.
    link: ?*EngineEnd = null,
    /// How C wants its requests.
    routes: Routes,
    /// What is answered with files, and C not told of.
    folders: Folders,
    /// The interpreters that requests are for; null: C answers them itself.
    pool: ?*Pool = null,
    /// Where the next piece of a long body is received to.
    space: ?peregrine.Pool.Buffer = null,
    /// Ends of exchanges that were given up for want of memory while C reads a batch.
    shed: std.ArrayList(types.Event) = .empty,
    /// Exchanges whose end C has yet to be told of, at most, and the worker's own end. Both batches have
    /// room for the events.
    ends: usize = 1,

    pub fn init(gpa: std.mem.Allocator) error{OutOfMemory}!Host {
        var host: Host = .{
            .batches = .{ .init(gpa), .init(gpa) },
            .routes = .init(gpa),
            .folders = .init(gpa),
        };
        errdefer host.abandon();
        for (&host.batches) |*batch| try batch.reserve(host.ends);
        return host;
    }

    /// Frees a host that no worker has filled.
    pub fn abandon(host: *Host) void {
        for (&host.batches) |*batch| batch.events.deinit(batch.gpa);
        host.routes.deinit();
        host.folders.deinit();
    }

    /// `pool`: of the worker, which must be there still.
    pub fn deinit(host: *Host, pool: *peregrine.Pool) void {
        host.dropSpace(pool);
        host.shed.deinit(host.batches[0].gpa);
        for (&host.batches) |*batch| batch.deinit(pool);
        host.routes.deinit();
        host.folders.deinit();
    }

    inline fn filling(host: *Host) *Batch {
        return &host.batches[host.side];
    }

    inline fn reading(host: *Host) *Batch {
        return &host.batches[~host.side];
    }

    /// Hands over what was gathered; it stays readable until `release`.
    pub fn take(host: *Host) []const types.Event {
        host.shed.clearRetainingCapacity();
        if (!host.hasGathered()) return &.{};
        host.side = ~host.side;
        host.filling().clear();
        return host.reading().events.items;
    }

    /// What `take` handed over last. It may lie elsewhere after each request that comes.
    pub fn taken(host: *Host) []const types.Event {
        return host.reading().events.items;
    }

    /// What was handed over has been read: large messages go now, the rest when there is something new.
    pub fn release(host: *Host, pool: *peregrine.Pool) void {
        host.dropSpace(pool);
        host.reading().giveBack(pool);
    }

    fn dropSpace(host: *Host, pool: *peregrine.Pool) void {
        if (host.space) |buffer| pool.give(buffer);
        host.space = null;
    }

    /// The memory that the bytes of an event lie in is the caller's from now on; null: it stays the batch's.
    pub fn surrender(host: *Host, pool: *peregrine.Pool, event: *const types.Event) ?[]u8 {
        const buffer = host.reading().surrender(event) orelse return null;
        pool.forget(buffer);
        return buffer;
    }

    /// True while C has events to fetch. Those behind a channel without room can wait as long as
    /// the ones before them.
    pub fn waiting(host: *const Host) bool {
        if (host.pool) |pool| if (pool.isWaiting()) return true;
        return host.hasGathered();
    }

    /// The same of its own events only.
    pub fn hasGathered(host: *const Host) bool {
        if (host.batches[host.side].events.items.len == 0) return false;
        return if (host.link) |link| !link.isBehind() else true;
    }

    /// Whether who answers an exchange has events to fetch, or is about to get some.
    pub fn waitingOf(host: *Host, exchange: *const Exchange) bool {
        const pool = host.pool orelse return host.waiting();
        const own = pool.hostOf(exchange) orelse return exchange.user != null;
        return own.hasGathered();
    }

    /// Asked before each wait of the worker: for how many milliseconds it may wait (-1: without bound), if it
    /// would for so many.
    pub fn patience(host: *Host, wanted_ms: i32) i32 {
        const link = host.link orelse return wanted_ms;
        const ms = link.patience(wanted_ms);
        return if (host.pool) |pool| pool.patience(ms) else ms;
    }

    /// Told after each wait.
    pub fn waited(host: *Host) void {
        if (host.link) |link| link.waited();
        if (host.pool) |pool| pool.waited();
    }

    /// Whose exchange it is: with a pool that of an interpreter; null: nobody's.
    inline fn of(host: *Host, exchange: *const Exchange) ?*Host {
        const pool = host.pool orelse return host;
        return pool.hostOf(exchange);
    }

    /// Where what precedes an exchange's first interpreter is gathered; null: it has one, or needs none.
    inline fn early(host: *Host, exchange: *const Exchange) ?*Batch {
        const pool = host.pool orelse return null;
        return pool.batchOf(exchange);
    }

    /// Whether C is behind a channel in which there is no room.
    pub fn isBehind(host: *Host, exchange: *const Exchange) bool {
        const own = host.of(exchange) orelse return false;
        const link = own.link orelse return false;
        return link.isBehind();
    }

    /// Whether C, behind a channel, has yet to read a message of a WebSocket.
    pub fn owesMessages(host: *Host, exchange: *const Exchange) bool {
        const own = host.of(exchange) orelse return false;
        const link = own.link orelse return false;
        return link.owesMessages(@backingInt(exchange.ticket));
    }

    /// When C began to work on a request; 0: it has not, or does not tell.
    pub fn takenAt(host: *Host, exchange: *const Exchange) u64 {
        const own = host.of(exchange) orelse return 0;
        const link = own.link orelse return exchange.taken_us;
        return link.slots.begunAt(@backingInt(exchange.ticket));
    }

    /// Interpreters that are idle, busy and stuck.
    pub fn countInterpreters(host: *const Host) [3]u32 {
        return if (host.pool) |pool| pool.countStates() else @splat(0);
    }

    /// Told when output has moved.
    pub fn progress(host: *Host, exchange: *const Exchange) void {
        const own = host.of(exchange) orelse return;
        if (own.link) |link| link.slots.progress(@backingInt(exchange.ticket), outputOf(exchange));
    }

    /// What waits on the connection of an exchange.
    pub fn outputOf(exchange: *const Exchange) slots.Output {
        const lane = exchange.lane;
        return .{ .bytes = lane.queuedBytes(), .stuck = lane.out.state != .open };
    }

    /// Told when a request begins.
    pub inline fn route(host: *const Host, exchange: *Exchange, head: *const peregrine.Head) void {
        host.routes.choose(exchange, head);
    }

    /// Becomes PEREGRINE_REQUEST.
    pub fn request(host: *Host, worker: anytype, exchange: *Exchange, head: *const peregrine.Head) void {
        if (host.folders.answer(host, worker, exchange, head)) return;
        host.announce(worker, exchange, head);
    }

    /// The same where no folder has an answer.
    pub fn announce(host: *Host, worker: anytype, exchange: *Exchange, head: *const peregrine.Head) void {
        if (host.pool) |pool| return pool.request(exchange, head);
        host.keepRoom(worker) catch return turnAway(worker, exchange);
        if (host.link) |link| link.slots.begin(@backingInt(exchange.ticket), outputOf(exchange));
        const local = worker.localText(exchange.lane);
        host.addWithFacts(worker, exchange, head, local) catch turnAway(worker, exchange);
    }

    fn addWithFacts(
        host: *Host,
        worker: anytype,
        exchange: *Exchange,
        head: *const peregrine.Head,
        local: []const u8,
    ) error{OutOfMemory}!void {
        const event = try addRequest(host.filling(), worker, exchange, head, local, host.ends);
        if (host.link == null) return;
        errdefer host.filling().cancel();
        try addFacts(host.filling(), exchange, event);
    }

    /// Lets what is known of the exchange's TLS connection go with its request, to who cannot ask for it.
    pub fn addFacts(batch: *Batch, exchange: *Exchange, event: *const types.Event) error{OutOfMemory}!void {
        const tunnel = exchange.lane.tls() orelse return;
        var chain: std.ArrayList(types.Text) = .empty;
        const arena = batch.arena.allocator();
        const info = try tls.infoOf(tunnel, arena, &chain);
        Batch.keepFacts(@constCast(event.request.?), try tls_facts.encode(arena, &info));
    }

    /// C is told of the end of every exchange that it was told of, even if memory runs out.
    pub fn keepRoom(host: *Host, worker: anytype) error{OutOfMemory}!void {
        const ends = worker.exchanges.count + 1;
        try host.filling().reserve(ends);
        // It is filled when it is empty.
        try host.reading().reserve(ends -| host.reading().events.items.len);
        host.ends = ends;
    }

    /// There is no memory for a request that C was not told of.
    fn turnAway(worker: anytype, exchange: *Exchange) void {
        exchange.unannounced = true;
        _ = worker.start(exchange, .{
            .status = 503,
            .fields = &.{.init("Retry-After", "1")},
            .body = "Out of memory.\n",
            .end = true,
            .close = true,
        }) catch worker.abort(exchange);
    }

    /// There is no memory for an event of an exchange: it is over, and C is told.
    fn giveUp(host: *Host, worker: anytype, exchange: *Exchange) void {
        host.aborted(worker, exchange, .server_error);
        worker.abort(exchange);
    }

    /// Adds the event of a request, and leaves room for so many others; the pointer dies with the next one.
    /// `head` may be gone afterwards.
    pub fn addRequest(
        batch: *Batch,
        worker: anytype,
        exchange: *Exchange,
        head: *const peregrine.Head,
        local: []const u8,
        reserved: usize,
    ) error{OutOfMemory}!*types.Event {
        const kept = try batch.keepHead(head, exchange, &worker.client, local);
        kept.route = exchange.route;
        kept.complete_us = worker.round_us;
        exchange.given_us = worker.round_us;
        const wants_events = exchange.websocket == null and head.method != .HEAD and
            peregrine.accept.wantsEventStream(head.fields, head.text);
        // The head may lie in what this gives back.
        const body_bytes = try batch.keepBody(worker, exchange, kept);
        const event = try batch.add(eventOf(.request, exchange), reserved);
        event.request = kept;
        event.bytes = body_bytes.ptr;
        event.len = body_bytes.len;
        exchange.given_bytes += body_bytes.len;
        if (exchange.inputComplete()) event.flags |= types.EventFlag.last;
        if (exchange.websocket != null) event.flags |= types.EventFlag.handshake;
        if (wants_events) event.flags |= types.EventFlag.event_stream;
        return event;
    }

    /// Becomes PEREGRINE_BODY, together with the pieces before it.
    pub fn body(host: *Host, worker: anytype, exchange: *Exchange, bytes: []const u8) void {
        host.addBody(exchange, bytes) catch host.giveUp(worker, exchange);
    }

    fn addBody(host: *Host, exchange: *Exchange, bytes: []const u8) error{OutOfMemory}!void {
        const place = host.placeOf(exchange) orelse return;
        const event = try bodyEvent(place, exchange);
        if (host.space) |buffer| if (buffer.ptr == bytes.ptr) {
            place.batch.adopt(event, buffer, bytes);
            host.space = null;
            return;
        };
        try place.batch.extend(event, bytes);
    }

    /// A buffer of its own for the next piece of a long body: C, or whoever is behind it, may keep that.
    /// Behind a channel it would be copied all the same.
    pub fn bodySpace(host: *Host, worker: anytype, exchange: *Exchange, most: usize) ?[]u8 {
        if (host.link != null or host.pool != null) return null;
        const batch = host.filling();
        if (batch.openBody(@backingInt(exchange.ticket))) |event| if (event.len > 0) return null;
        batch.expectBuffer() catch return null;
        host.dropSpace(&worker.pool);
        const wanted = @min(most + Batch.string_room, space_bytes_max);
        const buffer = worker.pool.take(wanted) catch return null;
        host.space = buffer;
        return buffer[0..@min(most, buffer.len - Batch.string_room)];
    }

    const space_bytes_max = 256 * 1024;

    /// Trailers get an event of their own: a request event keeps its own head.
    pub fn trailers(host: *Host, worker: anytype, exchange: *Exchange, head: *const peregrine.Head) void {
        host.addTrailers(exchange, head, worker.localText(exchange.lane)) catch
            host.giveUp(worker, exchange);
    }

    fn addTrailers(
        host: *Host,
        exchange: *Exchange,
        head: *const peregrine.Head,
        local: []const u8,
    ) error{OutOfMemory}!void {
        const place = host.placeOf(exchange) orelse return;
        // Who asks was told with the request.
        const kept = try place.batch.keepHead(head, exchange, &.nobody, local);
        const event = try place.batch.add(eventOf(.body, exchange), place.reserved);
        event.request = kept;
        event.flags |= types.EventFlag.trailers;
    }

    /// Marks the last PEREGRINE_BODY.
    pub fn bodyEnd(host: *Host, worker: anytype, exchange: *Exchange) void {
        host.addBodyEnd(exchange) catch host.giveUp(worker, exchange);
    }

    fn addBodyEnd(host: *Host, exchange: *Exchange) error{OutOfMemory}!void {
        const place = host.placeOf(exchange) orelse return;
        const event = try bodyEvent(place, exchange);
        event.flags |= types.EventFlag.last;
    }

    /// Where events about a request's body are gathered, and how many others have to find room there.
    const Place = struct { batch: *Batch, reserved: usize };

    /// Null: nobody is told.
    fn placeOf(host: *Host, exchange: *const Exchange) ?Place {
        if (exchange.unannounced) return null;
        if (host.early(exchange)) |batch| return .{ .batch = batch, .reserved = 0 };
        const own = host.of(exchange) orelse return null;
        return .{ .batch = own.filling(), .reserved = own.ends };
    }

    fn bodyEvent(place: Place, exchange: *Exchange) error{OutOfMemory}!*types.Event {
        if (place.batch.openBody(@backingInt(exchange.ticket))) |event| return event;
        return place.batch.add(eventOf(.body, exchange), place.reserved);
    }

    /// Becomes PEREGRINE_DRAINED.
    pub fn drained(host: *Host, worker: anytype, exchange: *Exchange) void {
        _ = host.tell(.drained, exchange) catch host.giveUp(worker, exchange);
    }

    /// Becomes PEREGRINE_FLUSHED.
    pub fn flushed(host: *Host, worker: anytype, exchange: *Exchange) void {
        _ = host.tell(.flushed, exchange) catch host.giveUp(worker, exchange);
    }

    /// Becomes PEREGRINE_FINISHED.
    pub fn finished(host: *Host, _: anytype, exchange: *Exchange) void {
        const own = host.of(exchange) orelse return;
        own.tellEnd(eventOf(.finished, exchange));
    }

    /// Becomes PEREGRINE_ABORTED.
    pub fn aborted(host: *Host, worker: anytype, exchange: *Exchange, reason: peregrine.Reason) void {
        var event = eventOf(.aborted, exchange);
        event.code = @backingInt(reason);
        const own = host.of(exchange);
        if (own) |mine| mine.tellEnd(event);
        if (own) |mine| if (worker.memory.sheds) mine.tellShed(event);
        if (host.pool) |pool| pool.ended(exchange);
    }

    /// Becomes PEREGRINE_MESSAGE.
    pub fn message(
        host: *Host,
        worker: anytype,
        exchange: *Exchange,
        kind: peregrine.WebSocketKind,
        bytes: []const u8,
    ) void {
        const own = host.of(exchange) orelse return;
        own.addMessage(exchange, kind, bytes) catch host.giveUp(worker, exchange);
    }

    fn addMessage(
        host: *Host,
        exchange: *Exchange,
        kind: peregrine.WebSocketKind,
        bytes: []const u8,
    ) error{OutOfMemory}!void {
        const event = try host.add(.message, exchange);
        if (host.link) |link| link.slots.noteMessage(event.ticket);
        errdefer host.filling().cancel();
        if (kind == .text) event.flags = types.EventFlag.text;
        event.bytes = try host.filling().keepMessage(&exchange.websocket.?.incoming, bytes);
        event.len = bytes.len;
    }

    /// Becomes PEREGRINE_CLOSED.
    pub fn closed(
        host: *Host,
        worker: anytype,
        exchange: *Exchange,
        close: peregrine.WebSocketClose,
        reason: ?peregrine.Reason,
    ) void {
        var event = eventOf(.closed, exchange);
        event.code = close.code;
        event.reason = if (reason) |r| @backingInt(r) else 0;
        const own = host.of(exchange) orelse return;
        if (own.filling().arena.allocator().dupe(u8, close.reason)) |copy| {
            event.bytes = copy.ptr;
            event.len = copy.len;
        } else |_| {} // the peer's words are lost, not the event
        own.tellEnd(event);
        if (worker.memory.sheds) own.tellShed(event);
    }

    /// Becomes PEREGRINE_HALF_CLOSED.
    pub fn halfClosed(host: *Host, worker: anytype, exchange: *Exchange) void {
        if (host.of(exchange)) |own| if (own.link) |link| link.slots.leave(@backingInt(exchange.ticket));
        _ = host.tell(.half_closed, exchange) catch host.giveUp(worker, exchange);
    }

    /// glibc maps a large block for itself, whose pages are cleared each time, until one as large was freed:
    /// then blocks of that size come from the heap, and twice as much stays there when it is free
    /// (mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD). Bodies, and the strings that they become, are
    /// such blocks; what a burst leaves behind, `relieve` gives back.
    pub fn prepareHeap() void {
        if (!builtin.target.isGnuLibC()) return;
        const block = std.c.malloc(large_block_bytes);
        std.mem.doNotOptimizeAway(block);
        std.c.free(block);
    }

    const large_block_bytes = 4 * 1024 * 1024;

    /// The C library's heap, which is that of the whole process, gives back what is free. An application
    /// behind a channel first has to hear of what has ended: what it frees then is most of it.
    pub fn relieve(host: *Host) bool {
        if (host.link) |link| if (!link.isHeard()) return false;
        if (builtin.target.isGnuLibC()) _ = malloc_trim(0);
        return true;
    }

    extern "c" fn malloc_trim(pad: usize) c_int;

    /// Becomes PEREGRINE_STOPPED.
    pub fn stopped(host: *Host, _: anytype) void {
        host.tellEnd(.{ .kind = .stopped });
    }

    /// Becomes PEREGRINE_NOTICE.
    pub fn notice(host: *Host, _: anytype, about: ?*Exchange, level: peregrine.Level, text: []const u8) void {
        // C may have let go of what it keeps for the exchange by the time that it reads this.
        const ticket = if (about) |exchange| @backingInt(exchange.ticket) else 0;
        const arena = host.filling().arena.allocator();
        const line = (if (about) |exchange|
            std.fmt.allocPrint(
                arena,
                "{f}{f}: {s}",
                .{ exchange.lane.requestName(), host.reading().lineOf(ticket), text },
            )
        else
            arena.dupe(u8, text)) catch return; // a log line, not an answer
        host.addText(.{
            .kind = .notice,
            .code = @backingInt(level),
            .ticket = ticket,
            .bytes = line.ptr,
            .len = line.len,
        });
    }

    /// Lines of the access log.
    pub fn lines(host: *Host, _: anytype, text: []const u8) void {
        const copy = host.filling().keep(text) catch return; // log lines, not answers
        host.addText(.{ .kind = .lines, .bytes = copy.ptr, .len = copy.len });
    }

    /// Without memory it is lost.
    fn addText(host: *Host, event: types.Event) void {
        _ = host.filling().add(event, host.ends) catch {};
    }

    fn tell(host: *Host, kind: types.Kind, exchange: *const Exchange) error{OutOfMemory}!void {
        const own = host.of(exchange) orelse return;
        _ = try own.add(kind, exchange);
    }

    fn add(host: *Host, kind: types.Kind, exchange: *const Exchange) error{OutOfMemory}!*types.Event {
        return host.filling().add(eventOf(kind, exchange), host.ends);
    }

    /// The last event of an exchange, for which there is room.
    pub fn tellEnd(host: *Host, event: types.Event) void {
        host.filling().addReserved(event);
        host.ends -= 1;
        const link = host.link orelse return;
        if (event.ticket == 0) return;
        if (link.other == .seat) link.other.seat.noteEnd(event.ticket);
        if (isClientGone(event)) link.slots.end(event.ticket) else link.slots.refuse(event.ticket);
    }

    /// The last event of an exchange that was given up for want of memory: C may hear of it before it has
    /// read all that came before (`nextShed`), and give up what it holds for it.
    fn tellShed(host: *Host, event: types.Event) void {
        if (host.link) |link| return link.noteShed(event.ticket);
        // Without memory C hears of it with the others.
        if (event.user != null) host.shed.append(host.batches[0].gpa, event) catch {};
    }

    /// An end that C has not heard of in this way; it is among the events of the next poll, too.
    pub fn nextShed(host: *Host) ?types.Event {
        const event = host.shed.pop() orelse return null;
        // C may free its exchange when it has heard of this end: the next poll must not name it.
        for (host.filling().events.items) |*later| {
            if (later.ticket == event.ticket) later.user = null;
        }
        return event;
    }

    /// Whether an exchange ended because nobody waits for its answer any more.
    fn isClientGone(event: types.Event) bool {
        if (event.kind != .aborted) return false;
        return switch (@as(peregrine.Reason, @fromBackingInt(event.code))) {
            .client_closed, .read_error, .write_error => true,
            else => false,
        };
    }

    fn eventOf(kind: types.Kind, exchange: *const Exchange) types.Event {
        return .{ .kind = kind, .ticket = @backingInt(exchange.ticket), .user = exchange.user };
    }
};
