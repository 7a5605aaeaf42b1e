//! Deadlines that are looked at in turns: all of them once in an interval, a bounded number in one round.
//! Does not know: the owners of the deadlines.
const std = @import("std");
const assert = std.debug.assert;

pub const Deadlines = struct {
    /// First the deadlines that this round of looks has yet to come to, behind them the others.
    list: std.DoublyLinkedList = .{},
    /// When the present round of looks began, or the last one; milliseconds.
    looked_at: u64 = 0,

    pub const Deadline = struct {
        node: std.DoublyLinkedList.Node = .{},
        at: u64,
        /// The value of `Deadlines.looked_at` when the deadline was looked at.
        looked_at: u64 = 0,
    };

    /// Milliseconds between the beginnings of two rounds of looks.
    const look_ms = 250;

    pub fn add(deadlines: *Deadlines, deadline: *Deadline) void {
        deadline.looked_at = deadlines.looked_at;
        deadlines.list.append(&deadline.node);
    }

    pub fn remove(deadlines: *Deadlines, deadline: *Deadline) void {
        deadlines.list.remove(&deadline.node);
    }

    /// The next deadline to be looked at; null: this round has looked at all. Any deadlines may be removed
    /// until the next call.
    pub fn next(deadlines: *Deadlines, now: u64) ?*Deadline {
        if (now -| deadlines.looked_at >= look_ms) deadlines.looked_at = now;
        const deadline = deadlines.first() orelse return null;
        if (deadline.looked_at == deadlines.looked_at) return null;
        deadline.looked_at = deadlines.looked_at;
        deadlines.list.remove(&deadline.node);
        deadlines.list.append(&deadline.node);
        return deadline;
    }

    /// When the next look is due; null: there are no deadlines.
    pub fn lookAt(deadlines: *const Deadlines) ?u64 {
        const deadline = deadlines.first() orelse return null;
        const was_seen = deadline.looked_at == deadlines.looked_at;
        return deadlines.looked_at + if (was_seen) @as(u64, look_ms) else 0;
    }

    fn first(deadlines: *const Deadlines) ?*Deadline {
        const node = deadlines.list.first orelse return null;
        const deadline: *Deadline = @fieldParentPtr("node", node);
        assert(deadline.looked_at <= deadlines.looked_at);
        return deadline;
    }
};

test "each deadline is looked at once in an interval, however many others are removed meanwhile" {
    const testing = std.testing;
    var deadlines: Deadlines = .{};
    try testing.expectEqual(null, deadlines.next(1000));
    try testing.expectEqual(null, deadlines.lookAt());
    var each: [100]Deadlines.Deadline = undefined;
    for (&each, 0..) |*deadline, number| {
        deadline.* = .{ .at = if (number % 4 == 0) 1200 else 5000 };
        deadlines.add(deadline);
    }
    try testing.expectEqual(null, deadlines.next(1249));
    try testing.expectEqual(1250, deadlines.lookAt());
    var looks: u32 = 0;
    var due: u32 = 0;
    while (deadlines.next(1250)) |deadline| : (looks += 1) {
        try testing.expectEqual(&each[looks], deadline);
        if (deadline.at > 1250) continue;
        due += 1;
        deadlines.remove(deadline);
        // Removes a deadline that this round has looked at already, too.
        if (looks > 0) deadlines.remove(&each[looks - 1]);
    }
    try testing.expectEqual(100, looks);
    try testing.expectEqual(25, due);
    try testing.expectEqual(1500, deadlines.lookAt());
    // Deadlines that a round has not come to are due at once; a new one waits for the next round.
    const seen = deadlines.next(1500).?;
    deadlines.add(&each[0]);
    try testing.expectEqual(1500, deadlines.lookAt());
    looks = 1;
    while (deadlines.next(1600)) |deadline| : (looks += 1) try testing.expect(deadline != seen);
    try testing.expectEqual(100 - 25 - 24, looks);
}
