//! Loans on their way back from the engine's thread to the thread of their owner. Does not know: the loans'
//! bytes, and when the owner looks.
const std = @import("std");
const peregrine = @import("peregrine");
const Atomic = @import("platform").Atomic;
const Loan = peregrine.Loan;

/// A list that the engine adds to and the owner takes as a whole.
pub const Returned = struct {
    first: Atomic(?*Loan) = .init(null),
    /// Bytes of the loans in the list. Only the engine writes them, before it adds the loans.
    bytes: Atomic(usize) = .init(0),

    /// Adds all loans that have come back to the engine, whose bytes these are.
    pub fn add(returned: *Returned, list: *Loan, bytes: usize) void {
        var last = list;
        while (last.next) |next| last = next;
        var before = returned.first.load(.monotonic);
        while (true) {
            last.next = before;
            const others = if (before == null) 0 else returned.bytes.load(.monotonic);
            returned.bytes.store(others + bytes, .monotonic);
            before = returned.first.cmpxchgWeak(before, list, .release, .monotonic) orelse return;
            // The owner has taken the others meanwhile.
        }
    }

    /// All loans that were added since the last call, linked by `next`.
    pub fn take(returned: *Returned) ?*Loan {
        if (returned.first.load(.monotonic) == null) return null;
        return returned.first.swap(null, .acquire);
    }

    /// Whether there are so many bytes of loans in the list that a sleeping owner is to be woken.
    pub fn isLarge(returned: *const Returned) bool {
        return returned.first.load(.acquire) != null and returned.bytes.load(.monotonic) >= large_bytes;
    }

    const large_bytes = peregrine.api_limits.returned_bytes_max;
};

test "all loans that were added are taken, once" {
    const testing = std.testing;
    var returned: Returned = .{};
    var loans: [3]Loan = @splat(.{});
    try testing.expectEqual(null, returned.take());
    loans[0].next = &loans[1];
    returned.add(&loans[0], Returned.large_bytes - 10);
    try testing.expect(!returned.isLarge());
    returned.add(&loans[2], 10);
    try testing.expect(returned.isLarge());
    var next = returned.take();
    for ([_]usize{ 2, 0, 1 }) |index| {
        try testing.expectEqual(&loans[index], next.?);
        next = next.?.next;
    }
    try testing.expectEqual(null, next);
    try testing.expectEqual(null, returned.take());
    // The engine counts anew.
    try testing.expect(!returned.isLarge());
    loans[0].next = null;
    returned.add(&loans[0], 10);
    try testing.expect(!returned.isLarge());
}
