//! The C API's host: turns what the worker tells into events of a batch.
//! Does not know: who reads the batch, and what an answer looks like.
const builtin = @import("builtin");
const std = @import("std");
const peregrine = @import("peregrine");
const Batch = @import("batch.zig").Batch;
const EngineEnd = @import("engine_end.zig").EngineEnd;
const Routes = @import("routes.zig").Routes;
const slots = @import("slots.zig");
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
    /// Exchanges whose end C has yet to be told of, at most, and the worker's own end. Both batches have room for the events.
    ends: usize = 1,

    pub fn init(gpa: std.mem.Allocator) error{OutOfMemory}!Host {
        var host: Host = .{ .batches = .{ .init(gpa), .init(gpa) }, .routes = .init(gpa) };
        errdefer host.abandon();
        for (&host.batches) |*batch| try batch.reserve(host.ends);
        return host;
    }

    /// Frees a host that no worker has filled.
    pub fn abandon(host: *Host) void {
        for (&host.batches) |*batch| batch.events.deinit(batch.gpa);
        host.routes.deinit();
    }

    /// `pool`: of the worker, which must be there still.
    pub fn deinit(host: *Host, pool: *peregrine.Pool) void {
        for (&host.batches) |*batch| batch.deinit(pool);
        host.routes.deinit();
    }

    inline fn filling(host: *Host) *Batch {
        return &host.batches[host.side];
    }

    inline fn reading(host: *Host) *Batch {
        return &host.batches[~host.side];
    }

    /// Hands over what was gathered; it stays readable until `release`.
    pub fn take(host: *Host) []const types.Event {
        if (!host.waiting()) return &.{};
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
        host.reading().giveBack(pool);
    }

    /// True while C has events to fetch. Those behind a channel without room can wait as long as the ones before them.
    pub fn waiting(host: *const Host) bool {
        if (host.batches[host.side].events.items.len == 0) return false;
        return if (host.link) |link| !link.isBehind() else true;
    }

    /// Asked before each wait of the worker: for how many milliseconds it may wait (-1: without bound), if it would for so many.
    pub fn patience(host: *Host, wanted_ms: i32) i32 {
        const link = host.link orelse return wanted_ms;
        return link.patience(wanted_ms);
    }

    /// Told after each wait.
    pub fn waited(host: *Host) void {
        if (host.link) |link| link.waited();
    }

    /// Whether C is behind a channel in which there is no room.
    pub fn isBehind(host: *const Host, _: *const Exchange) bool {
        const link = host.link orelse return false;
        return link.isBehind();
    }

    /// Whether C, behind a channel, has yet to read a message of a WebSocket.
    pub fn owesMessages(host: *const Host, exchange: *const Exchange) bool {
        const link = host.link orelse return false;
        return link.owesMessages(@backingInt(exchange.ticket));
    }

    /// When C began to work on a request; 0: it has not, or does not tell.
    pub fn takenAt(host: *const Host, exchange: *const Exchange) u64 {
        const link = host.link orelse return exchange.taken_us;
        return link.slots.begunAt(@backingInt(exchange.ticket));
    }

    /// Told when output has moved.
    pub fn progress(host: *Host, exchange: *const Exchange) void {
        if (host.link) |link| link.slots.progress(@backingInt(exchange.ticket), outputOf(exchange));
    }

    /// What waits on the connection of an exchange.
    pub fn outputOf(exchange: *const Exchange) slots.Output {
        const connection = exchange.connection;
        return .{ .bytes = connection.queuedBytes(), .stuck = connection.output != .open };
    }

    /// Told when a request begins.
    pub inline fn route(host: *const Host, exchange: *Exchange, head: *const peregrine.Head) void {
        host.routes.choose(exchange, head);
    }

    /// Becomes PEREGRINE_REQUEST.
    pub fn request(host: *Host, worker: anytype, exchange: *Exchange, head: *const peregrine.Head) void {
        host.keepRoom(worker) catch return turnAway(worker, exchange);
        if (host.link) |link| link.slots.begin(@backingInt(exchange.ticket), outputOf(exchange));
        const local = worker.localText(exchange.connection);
        host.addRequest(worker, exchange, head, local) catch turnAway(worker, exchange);
    }

    /// C is told of the end of every exchange that it was told of, even if memory runs out.
    fn keepRoom(host: *Host, worker: anytype) error{OutOfMemory}!void {
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

    fn addRequest(
        host: *Host,
        worker: anytype,
        exchange: *Exchange,
        head: *const peregrine.Head,
        local: []const u8,
    ) error{OutOfMemory}!void {
        const kept = try host.filling().keepHead(head, exchange, &worker.client, local);
        kept.route = exchange.host;
        kept.complete_us = worker.round_us;
        const body_bytes = try host.filling().keepBody(worker, exchange, kept);
        const event = try host.add(.request, exchange);
        event.request = kept;
        event.bytes = body_bytes.ptr;
        event.len = body_bytes.len;
        exchange.given_bytes += body_bytes.len;
        if (exchange.inputComplete()) event.flags |= types.EventFlag.last;
        if (exchange.websocket != null) {
            event.flags |= types.EventFlag.handshake;
        } else if (head.method != .HEAD and peregrine.accept.wantsEventStream(head.fields, head.text)) event.flags |= types.EventFlag.event_stream;
    }

    /// Becomes PEREGRINE_BODY, together with the pieces before it.
    pub fn body(host: *Host, worker: anytype, exchange: *Exchange, bytes: []const u8) void {
        const event = host.bodyEvent(exchange) catch return host.giveUp(worker, exchange);
        host.filling().extend(event, bytes) catch host.giveUp(worker, exchange);
    }

    /// Trailers get an event of their own: a request event keeps its own head.
    pub fn trailers(host: *Host, worker: anytype, exchange: *Exchange, head: *const peregrine.Head) void {
        host.addTrailers(exchange, head, worker.localText(exchange.connection)) catch host.giveUp(worker, exchange);
    }

    fn addTrailers(host: *Host, exchange: *Exchange, head: *const peregrine.Head, local: []const u8) error{OutOfMemory}!void {
        // Who asks was told with the request.
        const kept = try host.filling().keepHead(head, exchange, &.nobody, local);
        const event = try host.add(.body, exchange);
        event.request = kept;
        event.flags |= types.EventFlag.trailers;
    }

    /// Marks the last PEREGRINE_BODY.
    pub fn bodyEnd(host: *Host, worker: anytype, exchange: *Exchange) void {
        const event = host.bodyEvent(exchange) catch return host.giveUp(worker, exchange);
        event.flags |= types.EventFlag.last;
    }

    fn bodyEvent(host: *Host, exchange: *Exchange) error{OutOfMemory}!*types.Event {
        if (host.filling().openBody(@backingInt(exchange.ticket))) |event| return event;
        return host.add(.body, exchange);
    }

    /// Becomes PEREGRINE_DRAINED.
    pub fn drained(host: *Host, worker: anytype, exchange: *Exchange) void {
        _ = host.add(.drained, exchange) catch host.giveUp(worker, exchange);
    }

    /// Becomes PEREGRINE_FLUSHED.
    pub fn flushed(host: *Host, worker: anytype, exchange: *Exchange) void {
        _ = host.add(.flushed, exchange) catch host.giveUp(worker, exchange);
    }

    /// Becomes PEREGRINE_FINISHED.
    pub fn finished(host: *Host, _: anytype, exchange: *Exchange) void {
        host.tellEnd(eventOf(.finished, exchange));
    }

    /// Becomes PEREGRINE_ABORTED.
    pub fn aborted(host: *Host, _: anytype, exchange: *Exchange, reason: peregrine.Reason) void {
        var event = eventOf(.aborted, exchange);
        event.code = @backingInt(reason);
        host.tellEnd(event);
    }

    /// Becomes PEREGRINE_MESSAGE.
    pub fn message(host: *Host, worker: anytype, exchange: *Exchange, kind: peregrine.WebSocketKind, bytes: []const u8) void {
        host.addMessage(exchange, kind, bytes) catch host.giveUp(worker, exchange);
    }

    fn addMessage(host: *Host, exchange: *Exchange, kind: peregrine.WebSocketKind, bytes: []const u8) error{OutOfMemory}!void {
        const event = try host.add(.message, exchange);
        if (host.link) |link| link.slots.noteMessage(event.ticket);
        errdefer host.filling().cancel();
        if (kind == .text) event.flags = types.EventFlag.text;
        event.bytes = try host.filling().keepMessage(&exchange.websocket.?.incoming, bytes);
        event.len = bytes.len;
    }

    /// Becomes PEREGRINE_CLOSED.
    pub fn closed(host: *Host, _: anytype, exchange: *Exchange, close: peregrine.WebSocketClose, reason: ?peregrine.Reason) void {
        var event = eventOf(.closed, exchange);
        event.code = close.code;
        event.reason = if (reason) |r| @backingInt(r) else 0;
        if (host.filling().arena.allocator().dupe(u8, close.reason)) |copy| {
            event.bytes = copy.ptr;
            event.len = copy.len;
        } else |_| {} // the peer's words are lost, not the event
        host.tellEnd(event);
    }

    /// Becomes PEREGRINE_HALF_CLOSED.
    pub fn halfClosed(host: *Host, worker: anytype, exchange: *Exchange) void {
        _ = host.add(.half_closed, exchange) catch host.giveUp(worker, exchange);
    }

    /// The C library's heap, which is that of the whole process, gives back what is free.
    pub fn relieve(_: *Host) void {
        if (builtin.target.isGnuLibC()) _ = malloc_trim(0);
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
            std.fmt.allocPrint(arena, "{f}{f}: {s}", .{ exchange.connection.requestName(), host.reading().lineOf(ticket), text })
        else
            arena.dupe(u8, text)) catch return; // a log line, not an answer
        host.addText(.{ .kind = .notice, .code = @backingInt(level), .ticket = ticket, .bytes = line.ptr, .len = line.len });
    }

    /// Lines of the access log.
    pub fn lines(host: *Host, _: anytype, text: []const u8) void {
        const copy = host.filling().arena.allocator().dupe(u8, text) catch return; // log lines, not answers
        host.addText(.{ .kind = .lines, .bytes = copy.ptr, .len = copy.len });
    }

    /// Without memory it is lost.
    fn addText(host: *Host, event: types.Event) void {
        _ = host.filling().add(event, host.ends) catch {};
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
        if (isClientGone(event)) link.slots.end(event.ticket) else link.slots.refuse(event.ticket);
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
