//! Compressed messages that take longer to inflate than one connection's turn. They wait in a line, and are
//! inflated slice by slice, one message at a time for the whole worker, so that at most one large message is
//! in memory of which the peer has sent perhaps a thousandth. Does not know: how a slice is inflated
//! (compression.zig), and hosts.
const std = @import("std");
const assert = std.debug.assert;
const utf8 = @import("protocol").websocket.utf8;
const Input = @import("input.zig").Input;
const Kind = @import("protocol").websocket.Kind;
const Pool = @import("pool.zig").Pool;
const Ticket = @import("slab.zig").Ticket;

/// A message that is inflated slice by slice. Its WebSocket keeps the compressed bytes.
pub const Inflation = struct {
    node: std.DoublyLinkedList.Node = .{},
    /// The ticket of the lane of the message's WebSocket.
    ticket: Ticket,
    kind: Kind,
    waits: bool = false,
    /// A slice of the message was inflated.
    begun: bool = false,
    /// Compressed bytes that were inflated already.
    consumed: usize = 0,
    /// The bytes that were inflated so far.
    out: Input = .{},
    validator: utf8.Validator = .{},

    /// Creates an inflation that is in no line yet.
    pub fn create(gpa: std.mem.Allocator, ticket: Ticket, kind: Kind) error{OutOfMemory}!*Inflation {
        const inflation = try gpa.create(Inflation);
        inflation.* = .{ .ticket = ticket, .kind = kind };
        return inflation;
    }

    /// Frees an inflation that is in no line.
    pub fn destroy(inflation: *Inflation, gpa: std.mem.Allocator, pool: *Pool) void {
        assert(!inflation.waits);
        inflation.out.deinit(pool);
        gpa.destroy(inflation);
    }
};

/// Messages that wait to be inflated, the oldest first. The first one is being inflated.
pub const Line = struct {
    list: std.DoublyLinkedList = .{},

    /// The cost that one round may have, a millisecond or two: bytes that come out, and
    /// `Budget.compressed_factor` times the bytes that go in.
    pub const round_cost = 1024 * 1024;

    /// Adds an inflation at the end; one that waits already keeps its place.
    pub fn add(line: *Line, inflation: *Inflation) void {
        if (inflation.waits) return;
        inflation.waits = true;
        line.list.append(&inflation.node);
    }

    /// Takes an inflation out of the line, if it waits there.
    pub fn remove(line: *Line, inflation: *Inflation) void {
        if (!inflation.waits) return;
        inflation.waits = false;
        line.list.remove(&inflation.node);
    }

    /// The inflation whose turn it is, which stays in the line; null: no message waits.
    pub fn first(line: *const Line) ?*Inflation {
        const node = line.list.first orelse return null;
        return @fieldParentPtr("node", node);
    }
};
