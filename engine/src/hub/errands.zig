//! Frames for which a node owes the hub an answer: messages for its channels, and changes of their
//! subscriptions. A node's answer counts once, and only for a frame that the node was sent, so that no node
//! can answer for another one.
//! Does not know: frames.
const std = @import("std");
const Asker = @import("redis/redis.zig").Asker;
const limits = @import("limits.zig");
const loads_file = @import("loads.zig");
const Loads = loads_file.Loads;
const Most = loads_file.Most;
const Shares = @import("shares.zig").Shares;
const Allocator = std.mem.Allocator;

pub const Errands = struct {
    const Errand = struct {
        /// The node that must answer.
        by: u64,
        /// The share of the node that asked.
        share: Shares.Index,
        /// The time at which the node that asked gives up, in milliseconds.
        until_ms: u64,
    };

    all: std.AutoArrayHashMapUnmanaged(Asker, Errand) = .empty,
    /// The number of errands of each asking node, and of each share.
    loads: Loads = .{},
    swept_ms: u64 = 0,

    const sweep_ms = 1000;

    pub fn deinit(errands: *Errands, gpa: Allocator) void {
        errands.all.deinit(gpa);
        errands.loads.deinit(gpa);
        errands.* = undefined;
    }

    /// Notes that `asker`, a node of `share`, waits for an answer of `by`. A request without a number has no
    /// answer.
    pub fn add(
        errands: *Errands,
        gpa: Allocator,
        asker: Asker,
        share: Shares.Index,
        by: u64,
        most: Most,
        now_ms: u64,
    ) error{ OutOfMemory, TooMany }!void {
        if (asker.number == 0) return;
        if (errands.all.count() >= limits.errands_max) return error.TooMany;
        try errands.all.ensureUnusedCapacity(gpa, 1);
        try errands.loads.add(gpa, .{ .node = asker.node, .share = share }, 0, most);
        const found = errands.all.getOrPutAssumeCapacity(asker);
        if (found.found_existing) errands.discharge(asker, found.value_ptr);
        found.value_ptr.* = .{ .by = by, .share = share, .until_ms = now_ms + limits.request_ms };
    }

    fn discharge(errands: *Errands, asker: Asker, errand: *const Errand) void {
        errands.loads.remove(.{ .node = asker.node, .share = errand.share }, 0);
    }

    fn removeAt(errands: *Errands, at: usize) void {
        errands.discharge(errands.all.keys()[at], &errands.all.values()[at]);
        errands.all.swapRemoveAt(at);
    }

    /// Ends the errand of `asker` that `by` answers. Returns the share of the asking node; null: there is no
    /// such errand.
    pub fn take(errands: *Errands, asker: Asker, by: u64) ?Shares.Index {
        const at = errands.all.getIndex(asker) orelse return null;
        const errand = errands.all.values()[at];
        if (errand.by != by) return null;
        errands.removeAt(at);
        return errand.share;
    }

    /// Ends errands whose time is over.
    pub fn tick(errands: *Errands, now_ms: u64) void {
        if (now_ms -| errands.swept_ms < sweep_ms) return;
        errands.swept_ms = now_ms;
        var at = errands.all.count();
        while (at > 0) {
            at -= 1;
            if (errands.all.values()[at].until_ms <= now_ms) errands.removeAt(at);
        }
    }
};

const testing = std.testing;

test "a node answers what it was asked, once, and in time" {
    const gpa = testing.allocator;
    var errands: Errands = .{};
    defer errands.deinit(gpa);
    const asker: Asker = .{ .node = 1, .number = 5 };
    const most: Most = .ofCounts(1, 1);
    try errands.add(gpa, asker, 0, 2, most, 0);
    try errands.add(gpa, .{ .node = 1, .number = 0 }, 0, 2, most, 0);
    try testing.expectError(error.TooMany, errands.add(gpa, .{ .node = 1, .number = 6 }, 0, 2, most, 0));
    try testing.expectEqual(null, errands.take(asker, 3));
    try testing.expectEqual(null, errands.take(.{ .node = 1, .number = 6 }, 2));
    try testing.expectEqual(null, errands.take(.{ .node = 1, .number = 0 }, 2));
    try testing.expectEqual(0, errands.take(asker, 2));
    try testing.expectEqual(null, errands.take(asker, 2));
    try errands.add(gpa, asker, 3, 2, most, 0);
    try testing.expectEqual(3, errands.take(asker, 2));
    try errands.add(gpa, asker, 0, 2, most, 0);
    errands.tick(limits.request_ms - 1);
    errands.tick(limits.request_ms + Errands.sweep_ms);
    try testing.expectEqual(null, errands.take(asker, 2));
    try testing.expectEqual(0, errands.loads.nodes.count());
}
