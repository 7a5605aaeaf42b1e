//! A WebSocket's messages on their way to its host: they are assembled, held while the host does not take
//! them, and inflated when it does. A peer is not read while one of its messages is held, and a compressed
//! message is held in compressed form, so a peer takes no more memory than it has sent bytes. Does not know:
//! frames, hosts, and the order in which messages are inflated (inflation.zig).
const std = @import("std");
const assert = std.debug.assert;
const Budget = @import("budget.zig").Budget;
const Compression = @import("compression.zig").Compression;
const Context = @import("compression.zig").Context;
const Inflation = @import("inflation.zig").Inflation;
const Input = @import("input.zig").Input;
const Kind = @import("protocol").websocket.Kind;
const Line = @import("inflation.zig").Line;
const Pool = @import("pool.zig").Pool;
const Ticket = @import("slab.zig").Ticket;

/// The messages that a peer sends over one WebSocket, until the host takes them.
pub const Incoming = struct {
    flow: Flow = .all,
    demand: Demand = .{},
    /// Bytes of the incomplete message, of the held message, or, until `forget`, of a complete message that
    /// was inflated or came in several pieces.
    pieces: Input = .{},
    held: Held = .nothing,
    /// The host is behind, so the peer is not read until the worker allows it (`Turns.unpark`).
    parked: bool = false,

    /// The messages that the host takes. The numbers are part of the C API.
    pub const Flow = enum(u32) {
        /// The host takes every message as it comes.
        all = 0,
        /// The host takes no message for now.
        none = 1,
        /// The host takes messages that it asks for, and small ones before it asks.
        on_demand = 2,
    };

    const Demand = struct {
        /// The host has asked for the next message, of any size.
        asked: bool = false,
        /// Bytes to which compressed messages may still inflate before the host asks: their peer sends as
        /// little as a thousandth of them.
        ahead: u32 = ahead_bytes_max,
    };

    const ahead_bytes_max = @import("config.zig").worker_limits.messages_ahead_bytes_max;
    const ahead_message_bytes = @import("config.zig").worker_limits.messages_ahead_each_bytes;

    /// A complete message that was not delivered yet. Its bytes are in `pieces`.
    pub const Held = union(enum) {
        nothing,
        message: Kind,
        /// A compressed message, which is inflated when the host takes it.
        compressed: Kind,
        /// A message that is being inflated, or waits for its turn.
        inflating: *Inflation,
    };

    /// Frees all memory. `gpa` is that of `Compression`, `line` is the worker's.
    pub fn deinit(incoming: *Incoming, pool: *Pool, gpa: std.mem.Allocator, line: *Line) void {
        incoming.drop(pool, gpa, line);
        incoming.* = undefined;
    }

    /// Drops a held or incomplete message.
    pub fn drop(incoming: *Incoming, pool: *Pool, gpa: std.mem.Allocator, line: *Line) void {
        incoming.endInflation(pool, gpa, line);
        incoming.pieces.deinit(pool);
    }

    /// Whether the peer may not be read: a held message cannot be delivered yet, or the host takes none.
    pub fn isStalled(incoming: *const Incoming) bool {
        if (incoming.parked) return true;
        return switch (incoming.held) {
            .nothing => incoming.flow == .none,
            .message => !incoming.takes(incoming.pieces.unread().len),
            .compressed => !incoming.inflates(),
            .inflating => true,
        };
    }

    /// Whether a held message can be delivered, or its inflation begun.
    pub fn isReady(incoming: *const Incoming) bool {
        return incoming.held != .nothing and !incoming.isStalled();
    }

    /// Whether the host takes a message of this length.
    pub fn takes(incoming: *const Incoming, bytes: usize) bool {
        return switch (incoming.flow) {
            .all => true,
            .none => false,
            .on_demand => incoming.demand.asked or bytes <= Budget.large_bytes,
        };
    }

    /// The size to which a compressed message may inflate to be delivered at once, in bytes.
    pub fn roomAtOnce(incoming: *const Incoming) u32 {
        return switch (incoming.flow) {
            .all => Budget.large_bytes,
            .none => 0,
            .on_demand => if (incoming.demand.asked) Budget.large_bytes else incoming.demand.ahead,
        };
    }

    /// Whether a compressed message of any size may be inflated now.
    pub fn inflates(incoming: *const Incoming) bool {
        return switch (incoming.flow) {
            .all => true,
            .none => false,
            .on_demand => incoming.demand.asked,
        };
    }

    /// Sets the messages that the host takes, and withdraws its request for a message.
    pub fn setFlow(incoming: *Incoming, flow: Flow) void {
        incoming.flow = flow;
        incoming.parked = false;
        incoming.demand = .{};
    }

    /// Notes that the host asks for the next message.
    pub fn ask(incoming: *Incoming) void {
        incoming.demand = .{ .asked = true };
    }

    /// Notes the delivery of a message that the host has asked for, or that comes before it asks. `bytes`:
    /// its size for the host. `inflated`: its peer has sent fewer bytes.
    pub fn noteDelivery(incoming: *Incoming, bytes: usize, inflated: bool) void {
        const demand = &incoming.demand;
        if (!demand.asked and inflated) {
            demand.ahead -= @intCast(@min(bytes + ahead_message_bytes, demand.ahead));
        }
        demand.asked = false;
    }

    /// Keeps a message that cannot be delivered yet.
    pub fn hold(incoming: *Incoming, held: Held, bytes: []const u8, pool: *Pool) error{OutOfMemory}!void {
        try incoming.keep(bytes, pool);
        incoming.held = held;
    }

    /// Puts a compressed message into the queue of those that are inflated slice by slice. `ticket`: the
    /// lane.
    pub fn lineUp(
        incoming: *Incoming,
        kind: Kind,
        bytes: []const u8,
        ticket: Ticket,
        pool: *Pool,
        gpa: std.mem.Allocator,
        line: *Line,
    ) error{OutOfMemory}!void {
        const inflation: *Inflation = try .create(gpa, ticket, kind);
        errdefer inflation.destroy(gpa, pool);
        try incoming.hold(.{ .inflating = inflation }, bytes, pool);
        line.add(inflation);
    }

    fn keep(incoming: *Incoming, bytes: []const u8, pool: *Pool) error{OutOfMemory}!void {
        assert(incoming.held == .nothing);
        if (incoming.isKept(bytes)) return;
        assert(incoming.pieces.isEmpty());
        try incoming.pieces.append(pool, bytes);
    }

    fn isKept(incoming: *const Incoming, bytes: []const u8) bool {
        return !incoming.pieces.isEmpty() and incoming.pieces.unread().ptr == bytes.ptr;
    }

    /// Reasons why a held message is refused.
    pub const SliceError = Compression.InflateError || error{NotUtf8};

    /// Inflates the next slice of the held message, which is the first of the line, and returns the cost. A
    /// complete message is then held as an ordinary one. After an error the message is still held.
    pub fn inflateSlice(
        incoming: *Incoming,
        compression: *Compression,
        context: *Context,
        pool: *Pool,
        line: *Line,
        limit: u64,
    ) SliceError!usize {
        const inflation = incoming.held.inflating;
        const slice = try compression.inflateSlice(context, inflation, pool, incoming.pieces.unread(), limit);
        if (inflation.kind == .text) {
            if (inflation.validator.feed(slice.bytes) != null) return error.NotUtf8;
            if (slice.done and !inflation.validator.complete()) return error.NotUtf8;
        }
        if (slice.done) {
            const kind = inflation.kind;
            incoming.pieces.deinit(pool);
            incoming.pieces = inflation.out;
            inflation.out = .{};
            incoming.endInflation(pool, compression.gpa, line);
            incoming.held = .{ .message = kind };
        }
        return slice.cost;
    }

    /// Takes a message whose inflation has not begun out of the line. It stays held in compressed form.
    pub fn leaveLine(incoming: *Incoming, pool: *Pool, gpa: std.mem.Allocator, line: *Line) void {
        const inflation = incoming.held.inflating;
        assert(!inflation.begun);
        const kind = inflation.kind;
        incoming.endInflation(pool, gpa, line);
        incoming.held = .{ .compressed = kind };
    }

    fn endInflation(incoming: *Incoming, pool: *Pool, gpa: std.mem.Allocator, line: *Line) void {
        switch (incoming.held) {
            .nothing, .message, .compressed => {},
            .inflating => |inflation| {
                line.remove(inflation);
                inflation.destroy(gpa, pool);
            },
        }
        incoming.held = .nothing;
    }

    /// Gives the buffer of a large message to the host, which gives it back to the pool. Null: the host
    /// copies the bytes.
    pub fn surrender(incoming: *Incoming, bytes: []const u8) ?Pool.Buffer {
        if (bytes.len <= Budget.large_bytes or !incoming.isKept(bytes)) return null;
        const buffer = incoming.pieces.buffer;
        incoming.pieces = .{};
        return buffer;
    }

    /// Frees the bytes of a message that was delivered.
    pub fn forget(incoming: *Incoming, pool: *Pool) void {
        assert(incoming.held == .nothing);
        incoming.pieces.deinit(pool);
    }
};

const testing = std.testing;

test "messages ahead of being asked for are small, and few" {
    var incoming: Incoming = .{};
    try testing.expect(incoming.takes(1 << 30) and incoming.roomAtOnce() == Budget.large_bytes);
    incoming.setFlow(.on_demand);
    try testing.expect(!incoming.takes(Budget.large_bytes + 1) and incoming.takes(Budget.large_bytes));
    const ahead = incoming.roomAtOnce();
    var count: usize = 0;
    while (incoming.roomAtOnce() > 0) : (count += 1) incoming.noteDelivery(0, true);
    try testing.expectEqual(ahead / 128, count);
    // An uncompressed message has cost its peer as many bytes as the host.
    incoming.noteDelivery(Budget.large_bytes, false);
    try testing.expect(!incoming.takes(Budget.large_bytes + 1));
    incoming.ask();
    try testing.expect(incoming.takes(1 << 30) and incoming.roomAtOnce() == Budget.large_bytes);
    incoming.noteDelivery(1 << 30, true);
    try testing.expect(!incoming.takes(Budget.large_bytes + 1) and incoming.roomAtOnce() == ahead);
    incoming.setFlow(.none);
    incoming.ask();
    try testing.expect(!incoming.takes(0) and incoming.roomAtOnce() == 0 and incoming.isStalled());
}

test "a held message is ready when it is wanted, and kept once" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    var line: Line = .{};
    var incoming: Incoming = .{ .flow = .on_demand };
    defer incoming.deinit(&pool, testing.allocator, &line);
    try incoming.hold(.{ .compressed = .text }, "compressed", &pool);
    try testing.expect(incoming.isStalled() and !incoming.isReady());
    incoming.ask();
    try testing.expect(incoming.isReady());
    incoming.held = .nothing;
    const bytes = incoming.pieces.unread();
    try incoming.lineUp(.text, bytes, .none, &pool, testing.allocator, &line);
    try testing.expectEqual(bytes.ptr, incoming.pieces.unread().ptr);
    try testing.expect(incoming.isStalled() and !incoming.isReady());
    try testing.expectEqual(incoming.held.inflating, line.first().?);
    incoming.drop(&pool, testing.allocator, &line);
    try testing.expectEqual(null, line.first());
    try testing.expectEqual(0, pool.taken_bytes);
}
