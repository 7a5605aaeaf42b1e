//! Exchanges, as the application's side of a ring pair knows them: how far each response is, what was
//! promised, how much is on its way. So each call is answered at once and without a look into the engine. All
//! error codes come from here; the engine checks again. Does not know: rings, threads and how a command
//! travels.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const types = @import("types.zig");
const errors = @import("errors.zig");
const Command = peregrine.Command;
const Slots = @import("slots.zig").Slots;
const rules = peregrine.rules;

/// An exchange, from its request until C has read its last event.
pub const Entry = struct {
    ticket: types.Ticket,
    /// An entry of the same slot whose exchange has ended, but C may still read of it.
    older: ?*Entry = null,
    /// C's own pointer.
    user: ?*anyopaque = null,
    order: rules.Order = .unstarted,
    websocket: enum { none, handshake, open, closing },
    asks_for_head: bool,
    /// How content of unknown length ends: with the connection, or by a delimiter.
    streamed: rules.Streamed,
    /// Bytes of content that were handed to the ring pair.
    spoken: u64 = 0,
    /// The application has given no command for the exchange yet.
    fresh: bool = true,
    /// C has heard of the exchange's end, or will with the events that it reads now.
    over: bool = false,
    /// Bytes on their way to the kernel, as known in the round `round`.
    outstanding: u64 = 0,
    round: u64 = 0,
    /// The facts of its TLS connection (tls_facts.zig), valid in the round in which the request came.
    tls: []const u8 = "",
    came: u64,

    pub fn invariants(entry: *const Entry) void {
        switch (entry.websocket) {
            .none, .handshake => assert(entry.order != .tunnel),
            .open, .closing => assert(entry.order == .tunnel),
        }
        // The older entry is of an earlier exchange.
        if (entry.older) |older| assert(older.over and older.ticket != entry.ticket);
    }
};

/// The answer to a command.
pub const Verdict = struct {
    outcome: peregrine.Outcome,
    /// Bytes of content, or 1 if something else is sent.
    content: u64 = 0,
    /// The application waits for an event: that there is room again, that everything was sent.
    awaits: bool = false,
    /// The command may wait for the next command, and leave together with it.
    held: bool = false,
};

/// The exchanges of one application.
pub const Ledger = struct {
    gpa: std.mem.Allocator,
    /// The latest exchange of each slot of a ticket.
    entries: std.ArrayList(?*Entry) = .empty,
    count: usize = 0,
    pool: std.heap.MemoryPool(Entry),
    /// Exchanges whose end is among the events that C reads now.
    ended: std.ArrayList(types.Ticket) = .empty,
    slots: *const Slots,
    config: *const peregrine.Config,
    bad_field: usize = 0,
    /// Counts the polls. Between two polls the known output of an exchange changes only by what C sends.
    round: u64 = 1,

    pub fn init(gpa: std.mem.Allocator, slots: *const Slots, config: *const peregrine.Config) Ledger {
        return .{ .gpa = gpa, .pool = .empty, .slots = slots, .config = config };
    }

    pub fn deinit(ledger: *Ledger) void {
        ledger.entries.deinit(ledger.gpa);
        ledger.ended.deinit(ledger.gpa);
        ledger.pool.deinit(ledger.gpa);
    }

    /// Adds the exchange of a request, with room for the note of its end. `tls`: the facts of its TLS
    /// connection; the bytes stay until `sweep`.
    pub fn open(ledger: *Ledger, event: *const types.Event, tls: []const u8) error{OutOfMemory}!void {
        const place = try ledger.placeOf(event.ticket);
        try ledger.ended.ensureTotalCapacity(ledger.gpa, ledger.count + 1);
        const entry = try ledger.pool.create(ledger.gpa);
        const request = event.request.?;
        entry.* = .{
            .ticket = event.ticket,
            .older = place.*,
            .tls = tls,
            .came = ledger.round,
            .websocket = if (event.flags & types.EventFlag.handshake != 0) .handshake else .none,
            .asks_for_head = request.method_id == @backingInt(peregrine.Method.HEAD),
            .streamed = if (request.version == @backingInt(peregrine.Version.http_1_0))
                .until_close
            else
                .delimited,
        };
        place.* = entry;
        ledger.count += 1;
        assert(ledger.ended.capacity >= ledger.count);
        if (entry.older) |older| assert(older.ticket != entry.ticket);
    }

    fn placeOf(ledger: *Ledger, ticket: types.Ticket) error{OutOfMemory}!*?*Entry {
        const slot = slotOf(ticket);
        const known = ledger.entries.items.len;
        if (slot >= known) {
            @branchHint(.unlikely);
            try ledger.entries.appendNTimes(ledger.gpa, null, slot + 1 - known);
        }
        return &ledger.entries.items[slot];
    }

    fn slotOf(ticket: types.Ticket) usize {
        return @as(peregrine.Ticket, @fromBackingInt(ticket)).slot();
    }

    /// The exchange of a ticket; null: the ticket is unknown, or C has read the exchange's last event.
    pub fn get(ledger: *const Ledger, ticket: types.Ticket) ?*Entry {
        const slot = slotOf(ticket);
        if (slot >= ledger.entries.items.len) return null;
        var next = ledger.entries.items[slot];
        while (next) |entry| : (next = entry.older) if (entry.ticket == ticket) return entry;
        return null;
    }

    /// The facts of the TLS connection of a request whose event C reads now; "": it has none. Null: C has
    /// read on, or the request is none of ours.
    pub fn tlsOf(ledger: *const Ledger, ticket: types.Ticket) ?[]const u8 {
        const entry = ledger.get(ticket) orelse return null;
        return if (entry.came == ledger.round) entry.tls else null;
    }

    /// C is about to work on a request. False: the client has left before that, and C hears nothing more of
    /// the request.
    pub fn begin(ledger: *Ledger, ticket: types.Ticket) bool {
        const entry = ledger.get(ticket) orelse return false;
        if (ledger.slots.take(ticket)) return true;
        if (!entry.over) ledger.drop(entry);
        return false;
    }

    /// C reads the last event of the exchange now. The entry stays until `sweep`.
    pub fn end(ledger: *Ledger, entry: *Entry) void {
        if (entry.over) return;
        assert(ledger.ended.items.len < ledger.count);
        entry.over = true;
        ledger.ended.appendAssumeCapacity(entry.ticket);
    }

    /// C has read the last events of the exchanges in `ended`.
    pub fn sweep(ledger: *Ledger) void {
        ledger.round += 1;
        for (ledger.ended.items) |ticket| if (ledger.get(ticket)) |entry| ledger.drop(entry);
        ledger.ended.clearRetainingCapacity();
        assert(ledger.ended.capacity >= ledger.count);
    }

    /// Drops an exchange of which C was not told, and will not be.
    pub fn forget(ledger: *Ledger, ticket: types.Ticket) void {
        if (ledger.get(ticket)) |entry| ledger.drop(entry);
    }

    fn drop(ledger: *Ledger, entry: *Entry) void {
        assert(ledger.count > 0);
        var place = &ledger.entries.items[slotOf(entry.ticket)];
        while (place.* != entry) place = &place.*.?.older;
        place.* = entry.older;
        ledger.pool.destroy(entry);
        ledger.count -= 1;
    }

    /// Asserts what always holds between two calls. Looks at every entry: for simulations and tests.
    pub fn invariants(ledger: *const Ledger) void {
        var count: usize = 0;
        var over: usize = 0;
        for (ledger.entries.items, 0..) |first, slot| {
            var next = first;
            while (next) |entry| : (next = entry.older) {
                assert(slotOf(entry.ticket) == slot and entry.round <= ledger.round);
                entry.invariants();
                count += 1;
                over += @intFromBool(entry.over);
            }
        }
        assert(count == ledger.count and over == ledger.ended.items.len);
        // The list has memory for each entry that will end.
        assert(ledger.ended.capacity >= ledger.count);
    }

    /// Bytes of an exchange's output on their way to the kernel.
    pub fn buffered(ledger: *const Ledger, entry: *Entry) usize {
        if (entry.round != ledger.round) {
            const view = ledger.slots.look(entry.ticket) orelse return 0;
            entry.outstanding = entry.spoken -| view.consumed + view.queued;
            entry.round = ledger.round;
        }
        return @intCast(entry.outstanding);
    }

    /// Judges a command: an error says what is wrong with it, `Gone` that the exchange has ended. Notes what
    /// the command changes.
    pub fn take(ledger: *Ledger, ticket: types.Ticket, command: *const Command) errors.Any!Verdict {
        const entry = ledger.get(ticket) orelse return error.Gone;
        if (entry.over) return error.Gone;
        const view = ledger.slots.look(ticket) orelse return error.Gone;
        // An application that answers a request has taken it, even if it has not said so.
        if (view.state == .offered and !ledger.slots.take(ticket)) return error.Gone;
        if (entry.order == .ended and command.* != .flush) return error.Gone;
        const before = entry.spoken -| view.consumed;
        var verdict = try ledger.judge(entry, command);
        if (sends(command)) {
            // A head without content counts as a byte: a flush behind it has something to wait for.
            if (verdict.content == 0) verdict.content = 1;
            entry.spoken += verdict.content;
            assert(entry.round <= ledger.round);
            entry.outstanding = before + view.queued + verdict.content;
            entry.round = ledger.round;
        }
        entry.fresh = false;
        entry.invariants();
        switch (command.*) {
            .abort, .hand_over, .hold => {
                ledger.drop(entry);
                return verdict;
            },
            .flush => {
                verdict.awaits = before > 0 or view.queued > 0;
                if (verdict.awaits) verdict.outcome = .blocked;
                return verdict;
            },
            .start, .body, .file, .end, .message => {},
            else => return verdict,
        }
        if (entry.order == .ended) {
            if (command.* != .file and !view.stuck and entry.outstanding < ledger.settledBytesMax()) {
                verdict.outcome = .done;
                ledger.drop(entry);
            } else {
                verdict.outcome = .blocked;
                verdict.awaits = true;
            }
        } else if (entry.outstanding >= ledger.config.write_high_bytes) {
            verdict.outcome = .blocked;
            verdict.awaits = true;
        }
        return verdict;
    }

    /// A response that has ended with fewer bytes unsent, to a peer that takes them, is done. Twice the high
    /// mark, so that the last piece of a body may be one that alone makes a sender wait, like 64 KiB.
    fn settledBytesMax(ledger: *const Ledger) u64 {
        return 2 * @as(u64, ledger.config.write_high_bytes);
    }

    fn judge(ledger: *Ledger, entry: *Entry, command: *const Command) errors.Any!Verdict {
        var verdict: Verdict = .{ .outcome = .accepted };
        switch (command.*) {
            .start => |*start| {
                const order = try ledger.orderOf(entry, start);
                verdict.held = order == .held;
                verdict.content = contentOf(order, start.body.len);
                entry.order = if (start.body.len > 0 or start.end)
                    try order.body(start.body.len, start.end)
                else
                    order;
            },
            .body => |*body| {
                verdict.content = contentOf(entry.order, body.bytes.len);
                entry.order = try entry.order.body(body.bytes.len, body.last);
            },
            .file => |file| entry.order = try entry.order.body(file.length.?, true),
            .end => |said| {
                if (entry.order != .unstarted and !entry.order.takesTrailers()) {
                    return error.TrailersNotAllowed;
                }
                try bound(rules.endSize(said.trailers));
                const after = try entry.order.end(said.trailers.len > 0);
                if (entry.order != .discarded) try rules.fields.others(said.trailers, &ledger.bad_field);
                entry.order = after;
            },
            .inform => |*inform| {
                if (entry.order != .unstarted) return error.OutOfOrder;
                if (inform.status < 100 or inform.status > 199 or inform.status == 101) {
                    return error.InvalidStatus;
                }
                try bound(rules.startSize(inform.fields));
                // Clients of HTTP/1.0 get no interim responses.
                if (entry.streamed == .delimited) _ = try rules.fields.head(inform.fields, &ledger.bad_field);
            },
            .accept => |*accept| {
                if (entry.websocket == .none) return error.NotWebSocket;
                if (entry.websocket != .handshake or entry.order != .unstarted) return error.OutOfOrder;
                for (accept.fields, 0..) |field, index| if (rules.ownsField(field.name())) {
                    ledger.bad_field = index;
                    return error.ReservedField;
                };
                try bound(rules.startSize(accept.fields) + handshake_bytes);
                try rules.fields.others(accept.fields, &ledger.bad_field);
                entry.websocket = .open;
                entry.order = .tunnel;
            },
            .message => |*message| {
                if (entry.websocket != .open) return error.NotOpen;
                if (message.kind == .text and !rules.isUtf8(message.bytes)) return error.NotUtf8;
                verdict.content = message.bytes.len;
            },
            .close => |said| {
                switch (entry.websocket) {
                    .none, .handshake => return error.NotWebSocket,
                    .closing => return error.AlreadyClosed,
                    .open => try rules.checkClose(said.code, said.reason),
                }
                entry.websocket = .closing;
            },
            .keepalive, .flow => if (entry.order != .tunnel) return error.NotWebSocket,
            .repeat, .topic => if (entry.order == .unstarted) return error.OutOfOrder,
            .relay => {
                if (entry.websocket != .handshake) return error.NotWebSocket;
                if (entry.order != .unstarted) return error.OutOfOrder;
            },
            .hand_over => if (!entry.fresh) return error.OutOfOrder,
            .hold => if (entry.order != .unstarted) return error.OutOfOrder,
            .read, .flush, .abort, .idle_limit, .keep_head => {},
        }
        return verdict;
    }

    /// Whether a command has bytes for the client.
    fn sends(command: *const Command) bool {
        return switch (command.*) {
            .start, .body, .file, .end, .message, .inform, .accept, .close => true,
            .read, .flush, .abort, .keepalive, .flow, .idle_limit, .keep_head => false,
            .repeat, .relay, .hand_over, .topic, .hold => false,
        };
    }

    /// The answer to the wish that the engine holds a response open.
    pub const Holding = enum {
        holds,
        /// A client that has asked for the head alone gets it at once.
        answers,
    };

    /// Judges a response that the engine is to hold open. Notes nothing.
    pub fn judgeHeld(
        ledger: *Ledger,
        ticket: types.Ticket,
        start: *const peregrine.Start,
    ) errors.Any!Holding {
        const entry = ledger.get(ticket) orelse return error.Gone;
        if (entry.over) return error.Gone;
        if (entry.websocket != .none) return error.OutOfOrder;
        const order = try ledger.orderOf(entry, start);
        if (start.body.len > 0 or start.end) _ = try order.body(start.body.len, start.end);
        if (entry.asks_for_head) return .answers;
        // A held stream goes on with content, which the status must allow.
        if (!start.end and order == .discarded) return error.InvalidStatus;
        return .holds;
    }

    /// The state of a response after this head, or why the head is refused.
    fn orderOf(ledger: *Ledger, entry: *const Entry, start: *const peregrine.Start) errors.Any!rules.Order {
        if (entry.order != .unstarted) return error.OutOfOrder;
        if (start.status < 200 or start.status > rules.status_max) return error.InvalidStatus;
        try bound(rules.startSize(start.fields));
        const given = try rules.fields.head(start.fields, &ledger.bad_field);
        const shape: rules.Shape = .of(if (entry.asks_for_head) .HEAD else .GET, start.status);
        const length = given orelse if (start.end) start.body.len else null;
        const content = shape.content(length, entry.streamed);
        if (start.hold and start.body.len == 0 and content == .streamed) return .{ .held = entry.streamed };
        return .of(content);
    }

    /// Bytes that exceed the engine's own fields of a 101, without a subprotocol.
    const handshake_bytes = 1024;

    fn bound(head_bytes: usize) error{HeadTooLarge}!void {
        if (head_bytes > peregrine.head_bytes_max) return error.HeadTooLarge;
    }

    fn contentOf(order: rules.Order, len: usize) u64 {
        return if (order == .discarded) 0 else len;
    }
};

const testing = std.testing;

const test_config: peregrine.Config = .{};
const test_request: types.Request = std.mem.zeroes(types.Request);

test "the next exchange of a slot stands beside the one of whose end C reads now" {
    var slots: Slots = try .init();
    defer slots.deinit();
    var ledger: Ledger = .init(testing.allocator, &slots, &test_config);
    defer ledger.deinit();
    const tickets = [_]types.Ticket{ 7 + (1 << 27), 7 + (3 << 27), 7 + (5 << 27) };
    for (tickets, 0..) |ticket, number| {
        try testing.expectEqual(null, ledger.get(ticket));
        try ledger.open(&.{ .kind = .request, .ticket = ticket, .request = &test_request }, "");
        if (number < 2) ledger.end(ledger.get(ticket).?);
    }
    for (tickets) |ticket| try testing.expectEqual(ticket, ledger.get(ticket).?.ticket);
    try testing.expectEqual(null, ledger.get(6 + (1 << 27)));
    ledger.sweep();
    for (tickets, 0..) |ticket, number| try testing.expectEqual(number == 2, ledger.get(ticket) != null);
    try testing.expectEqual(1, ledger.count);
}

test "the facts of a TLS connection are told in the round of its request" {
    var slots: Slots = try .init();
    defer slots.deinit();
    var ledger: Ledger = .init(testing.allocator, &slots, &test_config);
    defer ledger.deinit();
    const tickets = [_]types.Ticket{ 1 + (1 << 27), 2 + (1 << 27) };
    for (tickets, [_][]const u8{ "facts", "" }) |ticket, facts| {
        try testing.expectEqual(null, ledger.tlsOf(ticket));
        try ledger.open(&.{ .kind = .request, .ticket = ticket, .request = &test_request }, facts);
    }
    try testing.expectEqualStrings("facts", ledger.tlsOf(tickets[0]).?);
    try testing.expectEqualStrings("", ledger.tlsOf(tickets[1]).?);
    ledger.sweep();
    for (tickets) |ticket| try testing.expectEqual(null, ledger.tlsOf(ticket));
}

test "a flush behind a head that is on its way has something to wait for" {
    var slots: Slots = try .init();
    defer slots.deinit();
    var ledger: Ledger = .init(testing.allocator, &slots, &test_config);
    defer ledger.deinit();
    const ticket: types.Ticket = 1 + (1 << 27);
    slots.begin(ticket, .{ .bytes = 0, .stuck = false });
    try ledger.open(&.{ .kind = .request, .ticket = ticket, .request = &test_request }, "");
    try testing.expectEqual(.accepted, (try ledger.take(ticket, &.flush)).outcome);
    const head = try ledger.take(ticket, &.{ .start = .{ .status = 200 } });
    const flush = try ledger.take(ticket, &.flush);
    try testing.expect(flush.outcome == .blocked and flush.awaits);
    slots.consume(ticket, head.content, .{ .bytes = 0, .stuck = false });
    try testing.expectEqual(.accepted, (try ledger.take(ticket, &.flush)).outcome);
}

test "output that was too much when queued is so until the next round, whatever the engine does meanwhile" {
    var slots: Slots = try .init();
    defer slots.deinit();
    var ledger: Ledger = .init(testing.allocator, &slots, &test_config);
    defer ledger.deinit();
    const ticket: types.Ticket = 1 + (1 << 27);
    slots.begin(ticket, .{ .bytes = 0, .stuck = false });
    try ledger.open(&.{ .kind = .request, .ticket = ticket, .request = &test_request }, "");
    const head = try ledger.take(ticket, &.{ .start = .{ .status = 200 } });
    const bytes = try testing.allocator.alloc(u8, test_config.write_high_bytes);
    defer testing.allocator.free(bytes);
    const body = try ledger.take(ticket, &.{ .body = .{ .bytes = bytes, .last = false } });
    try testing.expectEqual(.blocked, body.outcome);
    slots.consume(ticket, head.content + body.content, .{ .bytes = 0, .stuck = false });
    const entry = ledger.get(ticket).?;
    // The flush has nothing to wait for, and does not change what the application was told.
    try testing.expectEqual(.accepted, (try ledger.take(ticket, &.flush)).outcome);
    try testing.expect(ledger.buffered(entry) >= test_config.write_high_bytes);
    ledger.sweep();
    try testing.expectEqual(0, ledger.buffered(entry));
}
