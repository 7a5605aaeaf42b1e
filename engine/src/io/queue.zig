//! A queue of sockets that may have an event, in the order in which that became known. Does not know: the
//! events. The queue is linked through the entries, so that it never allocates and has each socket at most
//! once.
const std = @import("std");
const assert = std.debug.assert;

/// A queue of entries with `next: u32` and `flags.queued: bool`.
pub fn Queue(comptime Entry: type) type {
    return struct {
        const Self = @This();

        head: u32 = 0,
        tail: u32 = 0,
        count: u32 = 0,

        /// Adds an entry at the end, unless it is in the queue.
        pub fn push(self: *Self, entries: []Entry, index: u32) void {
            const entry = &entries[index];
            if (entry.flags.queued) return;
            entry.flags.queued = true;
            if (self.count == 0) self.head = index else entries[self.tail].next = index;
            self.tail = index;
            self.count += 1;
        }

        /// Takes the first entry. The queue must not be empty.
        pub fn pop(self: *Self, entries: []Entry) u32 {
            assert(self.count > 0);
            const index = self.head;
            assert(entries[index].flags.queued);
            entries[index].flags.queued = false;
            self.head = entries[index].next;
            self.count -= 1;
            return index;
        }
    };
}

const testing = std.testing;

test "the queue keeps the order and holds each socket once" {
    const Entry = struct { next: u32 = 0, flags: struct { queued: bool = false } = .{} };
    var entries: [4]Entry = @splat(.{});
    var queue: Queue(Entry) = .{};
    for (0..3) |_| {
        for ([_]u32{ 2, 0, 2, 3, 0 }) |index| queue.push(&entries, index);
        try testing.expectEqual(@as(u32, 3), queue.count);
        try testing.expectEqual(@as(u32, 2), queue.pop(&entries));
        queue.push(&entries, 2);
        for ([_]u32{ 0, 3, 2 }) |index| try testing.expectEqual(index, queue.pop(&entries));
        try testing.expectEqual(@as(u32, 0), queue.count);
    }
}
