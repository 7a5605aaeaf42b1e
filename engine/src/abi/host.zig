//! The C door's host: turns what the worker tells into events of a batch.
//! Refuses to know: who reads the batch, and what an answer looks like.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const Batch = @import("batch.zig").Batch;
const types = @import("types.zig");
const Client = peregrine.Client;
const Exchange = peregrine.Exchange;

/// The host of a worker that C polls. Its calls are described in server/worker.zig.
pub const Host = struct {
    pub const demand = .pull;

    filling: Batch,
    reading: Batch,

    pub fn init(gpa: std.mem.Allocator) Host {
        return .{ .filling = .init(gpa), .reading = .init(gpa) };
    }

    /// `pool`: of the worker, which must be there still.
    pub fn deinit(host: *Host, pool: *peregrine.Pool) void {
        host.filling.deinit(pool);
        host.reading.deinit(pool);
    }

    /// Hands over what was gathered; it stays readable until `release`.
    pub fn take(host: *Host) []const types.Event {
        std.mem.swap(Batch, &host.filling, &host.reading);
        assert(host.filling.events.items.len == 0);
        return host.reading.events.items;
    }

    /// What was handed over has been read.
    pub fn release(host: *Host, pool: *peregrine.Pool) void {
        host.reading.clear(pool);
    }

    /// True while C has events to fetch.
    pub fn waiting(host: *const Host) bool {
        return host.filling.events.items.len > 0;
    }

    /// Becomes PEREGRINE_REQUEST.
    pub fn request(host: *Host, worker: anytype, exchange: *Exchange, head: *const peregrine.Head) void {
        host.addRequest(exchange, head, &worker.client, worker.localText(exchange.connection)) catch worker.abort(exchange);
    }

    fn addRequest(host: *Host, exchange: *Exchange, head: *const peregrine.Head, client: *const Client, local: []const u8) error{OutOfMemory}!void {
        const kept = try host.filling.keepHead(head, exchange, client, local);
        const event = try host.filling.add(eventOf(.request, exchange));
        event.request = kept;
        if (exchange.inputComplete()) event.flags |= types.EventFlag.last;
        if (exchange.websocket != null) {
            event.flags |= types.EventFlag.handshake;
        } else if (head.method != .HEAD and peregrine.accept.wantsEventStream(head.fields, head.text)) event.flags |= types.EventFlag.event_stream;
    }

    /// Becomes PEREGRINE_BODY, together with the pieces before it.
    pub fn body(host: *Host, worker: anytype, exchange: *Exchange, bytes: []const u8) void {
        const event = host.bodyEvent(exchange) catch return worker.abort(exchange);
        host.filling.extend(event, bytes) catch worker.abort(exchange);
    }

    /// Trailers get an event of their own: a request event keeps its own head.
    pub fn trailers(host: *Host, worker: anytype, exchange: *Exchange, head: *const peregrine.Head) void {
        host.addTrailers(exchange, head, worker.localText(exchange.connection)) catch worker.abort(exchange);
    }

    fn addTrailers(host: *Host, exchange: *Exchange, head: *const peregrine.Head, local: []const u8) error{OutOfMemory}!void {
        // Who asks was told with the request.
        const kept = try host.filling.keepHead(head, exchange, &.nobody, local);
        const event = try host.filling.add(eventOf(.body, exchange));
        event.request = kept;
        event.flags |= types.EventFlag.trailers;
    }

    /// Marks the last PEREGRINE_BODY.
    pub fn bodyEnd(host: *Host, worker: anytype, exchange: *Exchange) void {
        const event = host.bodyEvent(exchange) catch return worker.abort(exchange);
        event.flags |= types.EventFlag.last;
    }

    fn bodyEvent(host: *Host, exchange: *Exchange) error{OutOfMemory}!*types.Event {
        if (host.filling.openBody(@backingInt(exchange.ticket))) |event| return event;
        return host.filling.add(eventOf(.body, exchange));
    }

    /// Becomes PEREGRINE_DRAINED.
    pub fn drained(host: *Host, _: anytype, exchange: *Exchange) void {
        host.tell(eventOf(.drained, exchange));
    }

    /// Becomes PEREGRINE_FLUSHED.
    pub fn flushed(host: *Host, _: anytype, exchange: *Exchange) void {
        host.tell(eventOf(.flushed, exchange));
    }

    /// Becomes PEREGRINE_FINISHED.
    pub fn finished(host: *Host, _: anytype, exchange: *Exchange) void {
        host.tell(eventOf(.finished, exchange));
    }

    /// Becomes PEREGRINE_ABORTED.
    pub fn aborted(host: *Host, _: anytype, exchange: *Exchange, reason: peregrine.Reason) void {
        var event = eventOf(.aborted, exchange);
        event.code = @backingInt(reason);
        host.tell(event);
    }

    /// Becomes PEREGRINE_MESSAGE.
    pub fn message(host: *Host, worker: anytype, exchange: *Exchange, kind: peregrine.WebSocketKind, bytes: []const u8) void {
        host.addMessage(exchange, kind, bytes) catch worker.abort(exchange);
    }

    fn addMessage(host: *Host, exchange: *Exchange, kind: peregrine.WebSocketKind, bytes: []const u8) error{OutOfMemory}!void {
        const event = try host.filling.add(eventOf(.message, exchange));
        errdefer host.filling.cancel();
        if (kind == .text) event.flags = types.EventFlag.text;
        event.bytes = try host.filling.keepMessage(&exchange.websocket.?.incoming, bytes);
        event.len = bytes.len;
    }

    /// Becomes PEREGRINE_CLOSED.
    pub fn closed(host: *Host, _: anytype, exchange: *Exchange, close: peregrine.WebSocketClose, reason: ?peregrine.Reason) void {
        var event = eventOf(.closed, exchange);
        event.code = close.code;
        event.reason = if (reason) |r| @backingInt(r) else 0;
        if (host.filling.arena.allocator().dupe(u8, close.reason)) |copy| {
            event.bytes = copy.ptr;
            event.len = copy.len;
        } else |_| {} // the peer's words are lost, not the event
        host.tell(event);
    }

    /// Becomes PEREGRINE_HALF_CLOSED.
    pub fn halfClosed(host: *Host, _: anytype, exchange: *Exchange) void {
        host.tell(eventOf(.half_closed, exchange));
    }

    /// Becomes PEREGRINE_STOPPED.
    pub fn stopped(host: *Host, _: anytype) void {
        host.tell(.{ .kind = .stopped });
    }

    /// Becomes PEREGRINE_NOTICE.
    pub fn notice(host: *Host, _: anytype, about: ?*Exchange, level: peregrine.Level, text: []const u8) void {
        // C may have let go of what it keeps for the exchange by the time that it reads this.
        const ticket = if (about) |exchange| @backingInt(exchange.ticket) else 0;
        const arena = host.filling.arena.allocator();
        const line = (if (about) |exchange|
            std.fmt.allocPrint(arena, "{f}{f}: {s}", .{ exchange.connection.requestName(), host.reading.lineOf(ticket), text })
        else
            arena.dupe(u8, text)) catch return; // a log line, not an answer
        host.tell(.{ .kind = .notice, .code = @backingInt(level), .ticket = ticket, .bytes = line.ptr, .len = line.len });
    }

    /// Lines of the access log.
    pub fn lines(host: *Host, _: anytype, text: []const u8) void {
        const copy = host.filling.arena.allocator().dupe(u8, text) catch return; // log lines, not answers
        host.tell(.{ .kind = .lines, .bytes = copy.ptr, .len = copy.len });
    }

    /// Events that must not be lost: losing one would leave C waiting for ever, so memory running out here is the end.
    fn tell(host: *Host, event: types.Event) void {
        _ = host.filling.add(event) catch @panic("out of memory for an event");
    }

    fn eventOf(kind: types.Kind, exchange: *const Exchange) types.Event {
        return .{ .kind = kind, .ticket = @backingInt(exchange.ticket), .user = exchange.user };
    }
};
