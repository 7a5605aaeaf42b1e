//! Records which units of a piece of memory are taken. Does not know: the memory, and its content.
const std = @import("std");
const assert = std.debug.assert;

/// Memory of `count` units of `unit_bytes` bytes each.
pub fn Units(comptime count: usize, comptime unit_bytes: usize) type {
    return struct {
        taken: std.bit_set.ArrayBitSet(usize, count) = .empty,

        const Self = @This();

        /// The number of units that `bytes` bytes need.
        pub fn of(bytes: usize) usize {
            return (bytes + unit_bytes - 1) / unit_bytes;
        }

        /// The first of `wanted` adjacent free units, at the lowest place, so that few pages are used while
        /// little is stored. Null: there are not so many.
        pub fn findRoom(units: *const Self, wanted: usize) ?usize {
            var first: usize = 0;
            while (first + wanted <= count) {
                const used = for (0..wanted) |at| {
                    if (units.taken.isSet(first + at)) break at;
                } else return first;
                first += used + 1;
            }
            return null;
        }

        /// Whether `wanted` units from `first` on are free.
        pub fn isFree(units: *const Self, first: usize, wanted: usize) bool {
            if (first + wanted > count) return false;
            return for (first..first + wanted) |at| {
                if (units.taken.isSet(at)) break false;
            } else true;
        }

        pub fn take(units: *Self, first: usize, wanted: usize) void {
            assert(units.isFree(first, wanted));
            units.taken.setRangeValue(.{ .start = first, .end = first + wanted }, true);
        }

        pub fn give(units: *Self, first: usize, wanted: usize) void {
            for (first..first + wanted) |at| assert(units.taken.isSet(at));
            units.taken.setRangeValue(.{ .start = first, .end = first + wanted }, false);
        }
    };
}

test "the lowest place that is long enough" {
    const testing = std.testing;
    var units: Units(10, 8) = .{};
    try testing.expectEqual(0, units.findRoom(10).?);
    try testing.expectEqual(null, units.findRoom(11));
    units.take(0, 2);
    units.take(4, 2);
    try testing.expectEqual(2, units.findRoom(2).?);
    try testing.expectEqual(6, units.findRoom(3).?);
    try testing.expectEqual(null, units.findRoom(5));
    try testing.expect(units.isFree(6, 4) and !units.isFree(6, 5) and !units.isFree(3, 2));
    units.give(4, 2);
    try testing.expectEqual(2, units.findRoom(8).?);
    try testing.expectEqual(0, Units(10, 8).of(0));
    try testing.expectEqual(1, Units(10, 8).of(8));
    try testing.expectEqual(2, Units(10, 8).of(9));
}
