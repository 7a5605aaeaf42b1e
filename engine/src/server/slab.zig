//! Stable slots with generations: an item never moves, and a ticket of an item that was removed finds nothing.
//! Grows by whole chunks, so that a busy worker stops allocating once it has seen its peak.
const std = @import("std");
const assert = std.debug.assert;

/// 64-bit name of an item: slot in the low half, generation in the high half. 0 names nothing.
pub const Ticket = enum(u64) {
    none = 0,
    _,

    fn of(number: u32, turn: u32) Ticket {
        return @fromBackingInt(@intCast(@as(u64, turn) << 32 | number));
    }

    /// The slot's number, for tables beside the slab.
    pub fn slot(ticket: Ticket) u32 {
        return @truncate(@backingInt(ticket));
    }

    fn generation(ticket: Ticket) u32 {
        return @intCast(@backingInt(ticket) >> 32);
    }
};

/// A growing set of `T` at stable addresses. `add` hands out uninitialised memory; the caller fills it.
pub fn Slab(comptime T: type) type {
    return struct {
        const Self = @This();
        const chunk_items = 64;

        const Slot = struct {
            /// Odd while in use; grows by one at every add and remove, so an old ticket never fits again (until 2^31 reuses of one slot).
            generation: u32,
            number: u32,
            next_free: ?*Slot,
            item: T,
        };

        gpa: std.mem.Allocator,
        chunks: std.ArrayList(*[chunk_items]Slot) = .empty,
        free: ?*Slot = null,
        count: u32 = 0,

        pub fn init(gpa: std.mem.Allocator) Self {
            return .{ .gpa = gpa };
        }

        pub fn deinit(self: *Self) void {
            for (self.chunks.items) |chunk| self.gpa.destroy(chunk);
            self.chunks.deinit(self.gpa);
            self.* = undefined;
        }

        /// A fresh slot. Valid until `remove`.
        pub inline fn add(self: *Self) error{OutOfMemory}!struct { ticket: Ticket, item: *T } {
            if (self.free == null) try self.grow();
            const slot = self.free.?;
            self.free = slot.next_free;
            slot.generation +%= 1;
            assert(slot.generation & 1 == 1);
            self.count += 1;
            return .{ .ticket = .of(slot.number, slot.generation), .item = &slot.item };
        }

        /// The item, or null when the ticket is stale or never was.
        pub fn get(self: *Self, ticket: Ticket) ?*T {
            const slot = self.slotOf(ticket) orelse return null;
            return &slot.item;
        }

        /// Gives an item's slot back; its ticket is stale from now on.
        pub fn remove(self: *Self, item: *T) void {
            const slot: *Slot = @alignCast(@fieldParentPtr("item", item));
            assert(slot.generation & 1 == 1);
            slot.generation +%= 1;
            slot.next_free = self.free;
            self.free = slot;
            self.count -= 1;
        }

        /// Walks the items in use. Removing the current item on the way is allowed.
        pub fn iterator(self: *Self) Iterator {
            return .{ .slab = self };
        }

        /// Goes over all items. Adding and removing others meanwhile is fine.
        pub const Iterator = struct {
            slab: *Self,
            at: u32 = 0,

            /// The next item, or null at the end.
            pub fn next(it: *Iterator) ?*T {
                while (it.at < it.slab.chunks.items.len * chunk_items) {
                    const slot = it.slab.slotAt(it.at);
                    it.at += 1;
                    if (slot.generation & 1 == 1) return &slot.item;
                }
                return null;
            }
        };

        /// Bytes held, in use or not.
        pub fn memoryBytes(self: *const Self) usize {
            return self.chunks.items.len * @sizeOf([chunk_items]Slot);
        }

        fn slotOf(self: *Self, ticket: Ticket) ?*Slot {
            const number = ticket.slot();
            if (number / chunk_items >= self.chunks.items.len) return null;
            const slot = self.slotAt(number);
            return if (slot.generation == ticket.generation() and slot.generation & 1 == 1) slot else null;
        }

        fn slotAt(self: *Self, number: u32) *Slot {
            return &self.chunks.items[number / chunk_items][number % chunk_items];
        }

        noinline fn grow(self: *Self) error{OutOfMemory}!void {
            @branchHint(.cold);
            try self.chunks.ensureUnusedCapacity(self.gpa, 1);
            const chunk = try self.gpa.create([chunk_items]Slot);
            const first: u32 = @intCast(self.chunks.items.len * chunk_items);
            for (chunk, 0..) |*slot, i| {
                slot.generation = 0;
                slot.number = first + @as(u32, @intCast(i));
                slot.next_free = if (i + 1 < chunk_items) &chunk[i + 1] else null;
            }
            self.chunks.appendAssumeCapacity(chunk);
            self.free = &chunk[0];
        }
    };
}

test "a removed item's ticket stays stale when its slot is used again" {
    var slab: Slab(u64) = .init(std.testing.allocator);
    defer slab.deinit();
    const first = try slab.add();
    first.item.* = 1;
    slab.remove(first.item);
    const second = try slab.add();
    second.item.* = 2;
    try std.testing.expectEqual(first.ticket.slot(), second.ticket.slot());
    try std.testing.expectEqual(null, slab.get(first.ticket));
    try std.testing.expectEqual(2, slab.get(second.ticket).?.*);
    try std.testing.expectEqual(null, slab.get(.none));
}

test "items keep their addresses while the slab grows, and the iterator sees each once" {
    var slab: Slab(usize) = .init(std.testing.allocator);
    defer slab.deinit();
    var tickets: [1000]Ticket = undefined;
    var addresses: [1000]*usize = undefined;
    for (&tickets, &addresses, 0..) |*ticket, *address, i| {
        const slot = try slab.add();
        slot.item.* = i;
        ticket.* = slot.ticket;
        address.* = slot.item;
    }
    for (tickets, addresses) |ticket, address| try std.testing.expectEqual(address, slab.get(ticket).?);
    var seen: usize = 0;
    var sum: usize = 0;
    var it = slab.iterator();
    while (it.next()) |item| {
        seen += 1;
        sum += item.*;
    }
    try std.testing.expectEqual(1000, seen);
    try std.testing.expectEqual(1000 * 999 / 2, sum);
}
