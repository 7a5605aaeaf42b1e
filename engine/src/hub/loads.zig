//! Counts of things that nodes have under way, such as questions: the number and the bytes for each node, and
//! for all nodes of each share. Does not know: the kind of things.
const std = @import("std");
const assert = std.debug.assert;
const limits = @import("limits.zig");
const Shares = @import("shares.zig").Shares;
const Allocator = std.mem.Allocator;

/// The node of a thing, and the node's share.
pub const Owner = struct { node: u64, share: Shares.Index = Shares.rest };

/// The number and bytes of things that are under way, or their limits.
pub const Load = struct {
    count: u32 = 0,
    bytes: u64 = 0,

    /// Whether one more thing has room. The first one has room with any length.
    fn hasRoom(load: Load, bytes: u64, most: Load) bool {
        if (load.count == 0) return most.count > 0;
        return load.count < most.count and load.bytes + bytes <= most.bytes;
    }

    fn with(load: Load, bytes: u64) Load {
        return .{ .count = load.count + 1, .bytes = load.bytes + bytes };
    }

    fn without(load: Load, bytes: u64) Load {
        const less: Load = .{ .count = load.count - 1, .bytes = load.bytes - bytes };
        assert(less.count > 0 or less.bytes == 0);
        return less;
    }
};

/// The limits of one node, and of all nodes of its share together.
pub const Most = struct {
    node: Load,
    share: Load,

    /// Limits for things whose bytes are not counted.
    pub fn ofCounts(node: u32, share: u64) Most {
        return .{ .node = .{ .count = node }, .share = .{ .count = @intCast(share) } };
    }
};

/// A share, and the limits of all its nodes together.
pub const Part = struct { share: Shares.Index, most: Load };

pub const Loads = struct {
    nodes: std.AutoHashMapUnmanaged(u64, Load) = .empty,
    shares: [1 + limits.shares_max]Load = @splat(.{}),

    pub fn deinit(loads: *Loads, gpa: Allocator) void {
        loads.nodes.deinit(gpa);
        loads.* = undefined;
    }

    pub fn add(
        loads: *Loads,
        gpa: Allocator,
        owner: Owner,
        bytes: u64,
        most: Most,
    ) error{ OutOfMemory, TooMany }!void {
        const share = &loads.shares[owner.share];
        if (!share.hasRoom(bytes, most.share)) return error.TooMany;
        const load = loads.nodes.get(owner.node) orelse Load{};
        if (!load.hasRoom(bytes, most.node)) return error.TooMany;
        try loads.nodes.put(gpa, owner.node, load.with(bytes));
        share.* = share.with(bytes);
        assert(share.count > 0);
    }

    /// Ends the count of a thing.
    pub fn remove(loads: *Loads, owner: Owner, bytes: u64) void {
        const share = &loads.shares[owner.share];
        share.* = share.without(bytes);
        const load = loads.nodes.getPtr(owner.node).?;
        load.* = load.without(bytes);
        if (load.count == 0) assert(loads.nodes.remove(owner.node));
    }
};

const testing = std.testing;

test "a node has its limit, all nodes of a share have theirs, and room comes back" {
    var loads: Loads = .{};
    defer loads.deinit(testing.allocator);
    const most: Most = .{ .node = .{ .count = 2, .bytes = 10 }, .share = .{ .count = 3, .bytes = 20 } };
    const one: Owner = .{ .node = 1, .share = 1 };
    const two: Owner = .{ .node = 2, .share = 1 };
    try loads.add(testing.allocator, one, 12, most);
    try testing.expectError(error.TooMany, loads.add(testing.allocator, one, 1, most));
    try testing.expectError(error.TooMany, loads.add(testing.allocator, two, 9, most));
    try loads.add(testing.allocator, two, 4, most);
    try loads.add(testing.allocator, two, 4, most);
    try testing.expectError(error.TooMany, loads.add(testing.allocator, two, 0, most));
    try testing.expectError(error.TooMany, loads.add(testing.allocator, .{ .node = 3, .share = 1 }, 0, most));
    const others: Most = .{ .node = most.node, .share = .{ .count = 10, .bytes = 90 } };
    for (10..20) |node| try loads.add(testing.allocator, .{ .node = node }, 9, others);
    try testing.expectError(error.TooMany, loads.add(testing.allocator, .{ .node = 20 }, 0, others));
    loads.remove(one, 12);
    try loads.add(testing.allocator, .{ .node = 3, .share = 1 }, 9, most);
    loads.remove(.{ .node = 3, .share = 1 }, 9);
    loads.remove(two, 4);
    loads.remove(two, 4);
    for (10..20) |node| loads.remove(.{ .node = node }, 9);
    try testing.expectEqual(0, loads.nodes.count());
    for (loads.shares) |share| try testing.expectEqual(Load{}, share);
}
