//! Compressed messages that take longer to inflate than one connection's turn: each waits for its own, and
//! then is inflated slice by slice, one message at a time for the whole worker. So no more than one large
//! message is in memory that its peer has sent a thousandth of. Does not know: how a slice is inflated
//! (compression.zig), whom the message is for.
const std = @import("std");
const assert = std.debug.assert;
const utf8 = @import("protocol").websocket.utf8;
const Input = @import("input.zig").Input;
const Kind = @import("protocol").websocket.Kind;
const Pool = @import("pool.zig").Pool;
const Ticket = @import("slab.zig").Ticket;

/// A message that is inflated slice by slice. Its compressed bytes stay with its WebSocket meanwhile.
pub const Inflation = struct {
    node: std.DoublyLinkedList.Node = .{},
    /// The exchange of the WebSocket whose message this is.
    ticket: Ticket,
    kind: Kind,
    waits: bool = false,
    /// The message's first slice has had its turn.
    begun: bool = false,
    /// Compressed bytes that are behind.
    consumed: usize = 0,
    /// The bytes that were inflated so far.
    out: Input = .{},
    validator: utf8.Validator = .{},

    /// An inflation that waits in no line yet.
    pub fn create(gpa: std.mem.Allocator, ticket: Ticket, kind: Kind) error{OutOfMemory}!*Inflation {
        const inflation = try gpa.create(Inflation);
        inflation.* = .{ .ticket = ticket, .kind = kind };
        return inflation;
    }

    /// The inflation waits in no line.
    pub fn destroy(inflation: *Inflation, gpa: std.mem.Allocator, pool: *Pool) void {
        assert(!inflation.waits);
        inflation.out.deinit(pool);
        gpa.destroy(inflation);
    }
};

/// Messages that may be inflated, the oldest first. The first one is under way.
pub const Line = struct {
    list: std.DoublyLinkedList = .{},

    /// The cost that a round may have: bytes that come out, and `Budget.compressed_factor` times those that
    /// go in. A millisecond or two.
    pub const round_cost = 1024 * 1024;

    /// Lines up; a message that waits already keeps its place.
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

    /// The message whose turn it is; it stays in the line.
    pub fn first(line: *const Line) ?*Inflation {
        const node = line.list.first orelse return null;
        return @fieldParentPtr("node", node);
    }
};
