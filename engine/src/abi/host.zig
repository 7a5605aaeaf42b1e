//! The C API's host: turns each call by the worker into an event of a batch.
//! Does not know: who reads the batch, and what an answer looks like.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const Batch = @import("batch.zig").Batch;
const Asides = @import("asides.zig").Asides;
const heap = @import("heap.zig");
const Link = @import("link.zig").Link;
const Routes = @import("routes.zig").Routes;
const slots = @import("slots.zig");
const tls_facts = @import("tls_facts.zig");
const types = @import("types.zig");
const Exchange = peregrine.Exchange;

/// The receiver of events about an exchange.
pub const Hearer = union(enum) {
    /// No interpreter hears of the exchange.
    nobody,
    /// The exchange waits for an interpreter, and its events with it.
    waiting: *Batch,
    /// The host of the interpreter that hears of the exchange.
    host: *Host,
};

/// The interpreters that a host's requests are for (pool.zig).
pub const Interpreters = struct {
    calls: *const Calls,

    /// The functions of a pool, described in pool.zig.
    pub const Calls = struct {
        turn: *const fn (several: *Interpreters) bool,
        /// Null: the host makes the events of requests.
        request: ?*const fn (several: *Interpreters, exchange: *Exchange, head: *const peregrine.Head) void,
        release: *const fn (several: *Interpreters, exchange: *Exchange) void,
        drained: *const fn (exchange: *const Exchange) void,
        /// A message has come that an interpreter hears.
        asked: *const fn (exchange: *const Exchange) void,
        /// A message, or the client's end of its side, has come that no interpreter hears.
        unheard: *const fn (exchange: *Exchange) void,
        hearerOf: *const fn (several: *Interpreters, exchange: *const Exchange) Hearer,
        isWaiting: *const fn (several: *Interpreters) bool,
        patience: *const fn (several: *Interpreters, wanted_ms: i32) i32,
        waited: *const fn (several: *Interpreters) void,
        countStates: *const fn (several: *Interpreters) [3]u32,
        /// The name of the group that an exchange is for.
        groupOf: *const fn (several: *const Interpreters, exchange: *const Exchange) []const u8,
    };
};

/// The host of a worker that C polls. Its calls are described in server/worker.zig.
pub const Host = struct {
    /// The demand of requests that match no route, then all demands that there are.
    pub const demand: peregrine.Demand = .pull;
    pub const demands = [_]peregrine.Demand{ demand, .{ .pace = .pull, .body = .whole } };

    /// The engine fills one batch while C reads the other one.
    batches: [2]Batch,
    /// The number of the batch that is filled.
    side: u1 = 0,
    /// The end of the ring pair behind which C is; null: C polls the worker itself.
    link: ?*Link = null,
    /// The routes of C, which say how it wants its requests.
    routes: Routes,
    /// Answers to requests of which C hears nothing.
    asides: Asides,
    /// The interpreters that requests are for; null: C answers them itself.
    interpreters: ?*Interpreters = null,
    /// The buffer that the next piece of a long body is received to.
    space: ?peregrine.Pool.Buffer = null,
    /// Last events of exchanges that were given up for want of memory while C reads a batch.
    shed: std.ArrayList(types.Event) = .empty,
    /// Last events that are still to come: one of each exchange, and `stopped` of the worker. Both batches
    /// have room for that many.
    ends: usize = 1,

    pub fn init(gpa: std.mem.Allocator) error{OutOfMemory}!Host {
        var host: Host = .{
            .batches = .{ .init(gpa), .init(gpa) },
            .routes = .init(gpa),
            .asides = .init(gpa),
        };
        errdefer host.abandon();
        for (&host.batches) |*batch| try batch.reserve(host.ends);
        return host;
    }

    /// Frees a host that no worker has filled.
    pub fn abandon(host: *Host) void {
        for (&host.batches) |*batch| batch.events.deinit(batch.gpa);
        host.routes.deinit();
        host.asides.deinit();
    }

    /// `pool`: the worker's, which must still exist.
    pub fn deinit(host: *Host, pool: *peregrine.Pool) void {
        host.dropSpace(pool);
        host.shed.deinit(host.batches[0].gpa);
        for (&host.batches) |*batch| batch.deinit(pool);
        host.routes.deinit();
        host.asides.deinit();
    }

    inline fn filling(host: *Host) *Batch {
        return &host.batches[host.side];
    }

    pub inline fn reading(host: *Host) *Batch {
        return &host.batches[~host.side];
    }

    /// Hands the gathered events over; they stay readable until `release`.
    pub fn take(host: *Host) []const types.Event {
        host.shed.clearRetainingCapacity();
        if (!host.hasGathered()) return &.{};
        host.side = ~host.side;
        host.filling().clear();
        assert(host.reading().events.items.len > 0);
        return host.reading().events.items;
    }

    /// The events that `take` handed over last. The list may move with each request that comes.
    pub fn taken(host: *const Host) []const types.Event {
        return host.batches[~host.side].events.items;
    }

    /// C has read the events: large messages are freed now, the other memory when there are new events.
    pub fn release(host: *Host, pool: *peregrine.Pool) void {
        host.dropSpace(pool);
        host.reading().giveBack(pool);
    }

    fn dropSpace(host: *Host, pool: *peregrine.Pool) void {
        if (host.space) |buffer| pool.give(buffer);
        host.space = null;
    }

    /// Gives the memory that the bytes of an event lie in to the caller; null: it stays the batch's.
    pub fn surrender(host: *Host, pool: *peregrine.Pool, event: *const types.Event) ?[]u8 {
        const buffer = host.reading().surrender(event) orelse return null;
        pool.forget(buffer);
        return buffer;
    }

    /// Whether C has events to fetch. Events behind a ring pair without room can wait.
    pub fn waiting(host: *const Host) bool {
        if (host.interpreters) |several| if (several.calls.isWaiting(several)) return true;
        return host.hasGathered();
    }

    /// Events that were gathered since `take` handed the others over.
    pub fn gatheredCount(host: *const Host) usize {
        return host.batches[host.side].events.items.len;
    }

    /// Like `waiting`, without the events for interpreters.
    pub fn hasGathered(host: *const Host) bool {
        return host.gatheredCount() > 0 and host.isTaking();
    }

    /// Whether C has, or finds in its ring, all events that were handed over.
    pub fn isTaking(host: *const Host) bool {
        return host.link == null or !host.isLinkFull();
    }

    /// Whether all events go to other threads or processes.
    pub fn isElsewhere(host: *const Host) bool {
        return host.link != null or host.interpreters != null;
    }

    /// Whether the application of an exchange has events to fetch, or is about to get some.
    pub fn waitingOf(host: *Host, exchange: *const Exchange) bool {
        const several = host.interpreters orelse return host.waiting();
        return switch (several.calls.hearerOf(several, exchange)) {
            .nobody => false,
            .waiting => true,
            .host => |own| own.hasGathered(),
        };
    }

    /// The milliseconds that the worker may wait, if it wants to wait for `wanted_ms` (-1: without bound).
    /// Asked before each wait.
    pub fn patience(host: *Host, wanted_ms: i32) i32 {
        const link = host.link orelse return wanted_ms;
        const ms = link.calls.patience(link, wanted_ms);
        return if (host.interpreters) |several| several.calls.patience(several, ms) else ms;
    }

    /// The worker has waited for events: tells the ring pairs.
    pub fn waited(host: *Host) void {
        if (host.link) |link| link.calls.waited(link);
        if (host.interpreters) |several| several.calls.waited(several);
    }

    /// The host that hears of an exchange: with a pool that of its interpreter; null: no interpreter hears.
    inline fn of(host: *Host, exchange: *const Exchange) ?*Host {
        return switch (host.hearerOf(exchange)) {
            .host => |own| own,
            .nobody, .waiting => null,
        };
    }

    inline fn hearerOf(host: *Host, exchange: *const Exchange) Hearer {
        const several = host.interpreters orelse return .{ .host = host };
        return several.calls.hearerOf(several, exchange);
    }

    /// Whether the ring pair to an exchange's application has no room.
    pub fn isBehind(host: *Host, exchange: *const Exchange) bool {
        const own = host.of(exchange) orelse return false;
        return own.link != null and own.isLinkFull();
    }

    /// Whether events that were handed over wait for room in the ring.
    pub inline fn isLinkFull(host: *const Host) bool {
        return host.link.?.delivered < host.taken().len;
    }

    /// Whether an application behind a ring pair has yet to read a message of a WebSocket.
    pub fn owesMessages(host: *Host, exchange: *const Exchange) bool {
        const own = host.of(exchange) orelse return false;
        const link = own.link orelse return false;
        return link.calls.owesMessages(link, @backingInt(exchange.ticket));
    }

    /// When the application began to work on a request, in microseconds; 0: it has not, or does not tell.
    pub fn takenAt(host: *Host, exchange: *const Exchange) u64 {
        const own = host.of(exchange) orelse return 0;
        const link = own.link orelse return exchange.taken_us;
        return link.slots.begunAt(@backingInt(exchange.ticket));
    }

    /// The numbers of interpreters that are idle, busy and stuck.
    pub fn countInterpreters(host: *const Host) [3]u32 {
        return if (host.interpreters) |several| several.calls.countStates(several) else @splat(0);
    }

    /// The name of the group of interpreters that an exchange is for; empty: there is none.
    pub fn groupOf(host: *const Host, exchange: *const Exchange) []const u8 {
        return if (host.interpreters) |several| several.calls.groupOf(several, exchange) else "";
    }

    /// The kernel has taken output of an exchange, or has refused to.
    pub fn progress(host: *Host, exchange: *const Exchange) void {
        const own = host.of(exchange) orelse return;
        if (own.link) |link| link.slots.progress(@backingInt(exchange.ticket), outputOf(exchange));
    }

    /// The output that waits on the connection of an exchange.
    pub fn outputOf(exchange: *const Exchange) slots.Output {
        const lane = exchange.lane;
        return .{ .bytes = lane.queuedBytes(), .stuck = lane.out().state != .open };
    }

    /// Chooses the route of a request that begins.
    pub inline fn route(host: *const Host, exchange: *Exchange, head: *const peregrine.Head) void {
        host.routes.choose(exchange, head);
    }

    /// Makes the event PEREGRINE_REQUEST.
    pub fn request(host: *Host, worker: anytype, exchange: *Exchange, head: *const peregrine.Head) void {
        if (host.asides.answer(host, worker, exchange, head)) return;
        host.announce(worker, exchange, head);
    }

    /// Makes the event of a request that no aside has an answer for.
    pub fn announce(host: *Host, worker: anytype, exchange: *Exchange, head: *const peregrine.Head) void {
        if (host.interpreters) |several| if (several.calls.request) |choose| {
            return choose(several, exchange, head);
        };
        host.keepRoom(worker) catch return turnAway(worker, exchange);
        if (host.link) |link| link.slots.begin(@backingInt(exchange.ticket), outputOf(exchange));
        addRequest(host.filling(), worker, exchange, head, host.ends, host.link != null) catch
            turnAway(worker, exchange);
    }

    /// Makes room for the events of all ends: C hears of the end of each exchange that it has heard of, even
    /// if memory runs out.
    pub fn keepRoom(host: *Host, worker: anytype) error{OutOfMemory}!void {
        const ends = worker.exchanges.count + 1;
        try host.filling().reserve(ends);
        // The batch that C reads is empty when it is filled next.
        try host.reading().reserve(ends -| host.reading().events.items.len);
        host.ends = ends;
        host.invariants();
    }

    /// Answers a request with 503, because there is no memory for its event.
    fn turnAway(worker: anytype, exchange: *Exchange) void {
        assert(exchange.status == 0);
        exchange.silence();
        _ = worker.start(exchange, .{
            .status = 503,
            .fields = &.{.init("Retry-After", "1")},
            .body = "Out of memory.\n",
            .end = true,
            .close = true,
        }) catch worker.abort(exchange);
    }

    /// Ends an exchange, because there is no memory for one of its events. C hears of the end.
    fn giveUp(host: *Host, worker: anytype, exchange: *Exchange) void {
        host.aborted(worker, exchange, .server_error);
        worker.abort(exchange);
    }

    /// Adds the event of a request, and leaves room for `reserved` other events. `head` may be gone
    /// afterwards. `tells_tls`: with the facts of its TLS connection, for which an application behind a ring
    /// pair cannot ask.
    pub fn addRequest(
        batch: *Batch,
        worker: anytype,
        exchange: *Exchange,
        head: *const peregrine.Head,
        reserved: usize,
        tells_tls: bool,
    ) error{OutOfMemory}!void {
        assert(exchange.isHeard());
        const local = worker.localText(exchange.lane);
        const kept = try batch.keepHead(head, exchange, &worker.clients.current, local);
        kept.route = exchange.route;
        kept.complete_us = worker.clock.round_us;
        if (tells_tls) try addFacts(batch, exchange, kept);
        const wants_events = exchange.websocket == null and head.method != .HEAD and
            peregrine.accept.wantsEventStream(head.fields, head.text);
        // The head may lie in the memory that this call gives back.
        const body_bytes = try batch.keepBody(worker, exchange, kept);
        const event = try batch.add(eventOf(.request, exchange), reserved);
        event.request = kept;
        event.bytes = body_bytes.ptr;
        event.len = body_bytes.len;
        exchange.noteGiven(body_bytes.len, worker.clock.round_us);
        if (exchange.inputComplete()) event.flags |= types.EventFlag.last;
        if (exchange.websocket != null) event.flags |= types.EventFlag.handshake;
        if (wants_events) event.flags |= types.EventFlag.event_stream;
    }

    fn addFacts(batch: *Batch, exchange: *Exchange, kept: *types.Request) error{OutOfMemory}!void {
        const tunnel = exchange.lane.tls() orelse return;
        var chain: std.ArrayList(types.Text) = .empty;
        const arena = batch.arena.allocator();
        const info = try tls_facts.infoOf(tunnel, arena, &chain);
        Batch.keepFacts(kept, try tls_facts.encode(arena, &info));
    }

    /// Makes the event PEREGRINE_BODY, or adds the bytes to the last one.
    pub fn body(host: *Host, worker: anytype, exchange: *Exchange, bytes: []const u8) void {
        const place = host.placeOf(exchange) orelse return;
        const event = bodyEvent(place, exchange) catch return host.giveUp(worker, exchange);
        if (host.space) |buffer| if (buffer.ptr == bytes.ptr) {
            place.batch.adopt(event, buffer, bytes);
            host.space = null;
            return;
        };
        place.batch.extend(event, bytes) catch host.giveUp(worker, exchange);
    }

    /// A buffer for the next piece of a long body alone, so that C may keep its memory. Null behind a ring
    /// pair, where the bytes are copied all the same.
    pub fn bodySpace(host: *Host, worker: anytype, exchange: *Exchange, most: usize) ?[]u8 {
        if (host.link != null) return null;
        const batch = host.filling();
        if (batch.openBody(@backingInt(exchange.ticket))) |event| if (event.len > 0) return null;
        batch.expectBuffer() catch return null;
        host.dropSpace(&worker.pool);
        const wanted = @min(most + Batch.string_room, space_bytes_max);
        const buffer = worker.pool.take(wanted) catch return null;
        host.space = buffer;
        return buffer[0..@min(most, buffer.len - Batch.string_room)];
    }

    const space_bytes_max = peregrine.api_limits.body_buffer_bytes_max;

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
        // The event of the request has told of the client.
        const kept = try place.batch.keepHead(head, exchange, &.nobody, local);
        const event = try place.batch.add(eventOf(.body, exchange), place.reserved);
        event.request = kept;
        event.flags |= types.EventFlag.trailers;
    }

    /// Marks the last event PEREGRINE_BODY of a request.
    pub fn bodyEnd(host: *Host, worker: anytype, exchange: *Exchange) void {
        const place = host.placeOf(exchange) orelse return;
        const event = bodyEvent(place, exchange) catch return host.giveUp(worker, exchange);
        event.flags |= types.EventFlag.last;
    }

    /// The batch that gets events about a request's body, and the room to be left there for other events.
    const Place = struct { batch: *Batch, reserved: usize };

    /// Null: the application is not told of the body.
    fn placeOf(host: *Host, exchange: *const Exchange) ?Place {
        if (!exchange.isHeard()) return null;
        return switch (host.hearerOf(exchange)) {
            .nobody => null,
            .waiting => |batch| .{ .batch = batch, .reserved = 0 },
            .host => |own| .{ .batch = own.filling(), .reserved = own.ends },
        };
    }

    fn bodyEvent(place: Place, exchange: *Exchange) error{OutOfMemory}!*types.Event {
        if (place.batch.openBody(@backingInt(exchange.ticket))) |event| return event;
        return place.batch.add(eventOf(.body, exchange), place.reserved);
    }

    /// Makes the event PEREGRINE_DRAINED.
    pub fn drained(host: *Host, worker: anytype, exchange: *Exchange) void {
        if (host.interpreters) |several| several.calls.drained(exchange);
        _ = host.tell(.drained, exchange) catch host.giveUp(worker, exchange);
    }

    /// Tells C that the output of an exchange was sent: PEREGRINE_FLUSHED.
    pub fn flushed(host: *Host, worker: anytype, exchange: *Exchange) void {
        _ = host.tell(.flushed, exchange) catch host.giveUp(worker, exchange);
    }

    /// Makes the event PEREGRINE_TOPIC, which tells of a topic that an exchange reads.
    pub fn tellTopic(
        host: *Host,
        exchange: *const Exchange,
        number: u32,
        code: u32,
        text: []const u8,
    ) error{OutOfMemory}!void {
        const copy = try host.filling().keep(text);
        const event = try host.add(.topic, exchange);
        event.code = code;
        event.reason = number;
        event.bytes = copy.ptr;
        event.len = copy.len;
    }

    /// Makes the event PEREGRINE_FINISHED.
    pub fn finished(host: *Host, _: anytype, exchange: *Exchange) void {
        assert(exchange.isHeard() and exchange.isEnded());
        const own = host.of(exchange) orelse return;
        own.tellEnd(eventOf(.finished, exchange));
    }

    /// Makes the event PEREGRINE_ABORTED.
    pub fn aborted(host: *Host, worker: anytype, exchange: *Exchange, reason: peregrine.Reason) void {
        var event = eventOf(.aborted, exchange);
        event.code = @backingInt(reason);
        const own = host.of(exchange);
        if (own) |mine| mine.tellEnd(event);
        if (own) |mine| if (worker.memory.sheds) mine.tellShed(event);
        // The engine may still answer the client, of which the interpreter hears nothing.
        host.forgotten(exchange);
    }

    /// The exchange is over: no interpreter has it any more.
    pub fn forgotten(host: *Host, exchange: *Exchange) void {
        if (host.interpreters) |several| several.calls.release(several, exchange);
    }

    /// Makes the event PEREGRINE_MESSAGE.
    pub fn message(
        host: *Host,
        worker: anytype,
        exchange: *Exchange,
        kind: peregrine.WebSocketKind,
        bytes: []const u8,
    ) void {
        assert(exchange.openWebSocket() != null);
        const own = host.of(exchange) orelse {
            if (host.interpreters) |several| several.calls.unheard(exchange);
            return;
        };
        if (host.interpreters) |several| several.calls.asked(exchange);
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

    /// Adds the event PEREGRINE_CLOSED.
    pub fn closed(
        host: *Host,
        worker: anytype,
        exchange: *Exchange,
        close: peregrine.WebSocketClose,
        reason: ?peregrine.Reason,
    ) void {
        assert(exchange.openWebSocket() != null);
        var event = eventOf(.closed, exchange);
        event.code = close.code;
        event.reason = if (reason) |r| @backingInt(r) else 0;
        const own = host.of(exchange) orelse return;
        if (own.filling().arena.allocator().dupe(u8, close.reason)) |copy| {
            event.bytes = copy.ptr;
            event.len = copy.len;
        } else |_| {} // the event goes without the peer's words
        own.tellEnd(event);
        if (worker.memory.sheds) own.tellShed(event);
    }

    /// Makes the event PEREGRINE_HALF_CLOSED.
    pub fn halfClosed(host: *Host, worker: anytype, exchange: *Exchange) void {
        assert(exchange.half_closed);
        const own = host.of(exchange) orelse {
            const several = host.interpreters.?; // without any, C hears of all exchanges
            return several.calls.unheard(exchange);
        };
        if (own.link) |link| link.slots.leave(@backingInt(exchange.ticket));
        _ = host.tell(.half_closed, exchange) catch host.giveUp(worker, exchange);
    }

    /// Has the C library give free memory back to the system. False: an application behind a ring pair first
    /// has to hear of the exchanges that have ended, because it frees most of the memory then.
    pub fn relieve(host: *Host) bool {
        if (host.link) |link| if (!link.calls.isHeard(link)) return false;
        heap.giveBack();
        return true;
    }

    /// Makes the event PEREGRINE_STOPPED.
    pub fn stopped(host: *Host, _: anytype) void {
        host.tellEnd(.{ .kind = .stopped });
    }

    /// Makes the event PEREGRINE_ENDING.
    pub fn ending(host: *Host) error{OutOfMemory}!void {
        _ = try host.filling().add(.{ .kind = .ending }, host.ends);
    }

    /// Makes the event PEREGRINE_NOTICE.
    pub fn notice(host: *Host, _: anytype, about: ?*Exchange, level: peregrine.Level, text: []const u8) void {
        // The event brings no `user`: C may have freed its exchange by the time that it reads this.
        const ticket = if (about) |exchange| @backingInt(exchange.ticket) else 0;
        const arena = host.filling().arena.allocator();
        const line = (if (about) |exchange|
            std.fmt.allocPrint(
                arena,
                "{f}{f}: {s}",
                .{ exchange.lane.requestName(), host.reading().lineOf(ticket), text },
            )
        else
            arena.dupe(u8, text)) catch return; // a log line may be lost
        host.addText(.{
            .kind = .notice,
            .code = @backingInt(level),
            .ticket = ticket,
            .bytes = line.ptr,
            .len = line.len,
        });
    }

    /// Makes the event PEREGRINE_LINES.
    pub fn lines(host: *Host, _: anytype, text: []const u8) void {
        const copy = host.filling().keep(text) catch return; // log lines may be lost
        host.addText(.{ .kind = .lines, .bytes = copy.ptr, .len = copy.len });
    }

    /// Adds an event with a text, which is lost if there is no memory for it.
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

    /// Adds the last event of an exchange, for which there is room.
    pub fn tellEnd(host: *Host, event: types.Event) void {
        assert(host.ends > 0);
        host.filling().addReserved(event);
        host.ends -= 1;
        const link = host.link orelse return;
        if (event.ticket == 0) return;
        if (isClientGone(event)) link.slots.end(event.ticket) else link.slots.refuse(event.ticket);
    }

    /// Notes the end of an exchange that was given up for want of memory. C may hear of that end before it
    /// has read the events that came before (`nextShed`), and free what it holds for the exchange.
    fn tellShed(host: *Host, event: types.Event) void {
        if (host.link) |link| return link.noteShed(event.ticket);
        // Without memory for the note C hears of the end with the other events.
        if (event.user != null) host.shed.append(host.batches[0].gpa, event) catch {};
    }

    /// The next end that `tellShed` has noted. It is among the events of the next poll, too.
    pub fn nextShed(host: *Host) ?types.Event {
        const event = host.shed.pop() orelse return null;
        // C may free its exchange when it has heard of this end, so events of the next poll must not name it.
        for (host.filling().events.items) |*later| {
            if (later.ticket == event.ticket) later.user = null;
        }
        return event;
    }

    /// Whether an exchange ended because its client is gone.
    fn isClientGone(event: types.Event) bool {
        if (event.kind != .aborted) return false;
        return switch (@as(peregrine.Reason, @fromBackingInt(event.code))) {
            .client_closed, .read_error, .write_error => true,
            else => false,
        };
    }

    /// Asserts what always holds: the last event of each exchange finds room.
    fn invariants(host: *Host) void {
        const batch = host.filling();
        assert(batch.events.capacity - batch.events.items.len >= host.ends);
        assert(host.reading().events.capacity >= host.ends);
        if (host.interpreters != null) assert(host.link != null);
    }

    fn eventOf(kind: types.Kind, exchange: *const Exchange) types.Event {
        return .{ .kind = kind, .ticket = @backingInt(exchange.ticket), .user = exchange.word.pointer() };
    }
};
