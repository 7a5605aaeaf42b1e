//! Items at stable addresses with tickets: the ticket of an item that was removed finds nothing. A slab grows
//! by whole chunks, so that a worker allocates nothing after its busiest time.
const std = @import("std");
const assert = std.debug.assert;

/// The 64-bit name of an item: slot, engine, kind and generation. 0 is no name. All other free slots are used
/// before a slot is used again, and a name comes back after 2^36 uses of its slot: at 100,000 requests a
/// second with the smallest slab (64 slots), after a year.
pub const Ticket = enum(u64) {
    none = 0,
    _,

    const slot_bits = 20;
    const engine_bits = 6;
    const kind_bits = 1;
    /// Items have odd generations, free slots even ones.
    const one_generation = 1 << (slot_bits + engine_bits + kind_bits);

    /// The kind of a slab whose tickets appear in places with tickets of another slab. All other slabs are
    /// `plain`.
    pub const Kind = enum(u1) {
        transport,
        stream,

        pub const plain: Kind = .transport;
    };

    fn of(engine: u6, which: Kind, number: u20) Ticket {
        const above = @as(u64, @backingInt(which)) << engine_bits | engine;
        return @fromBackingInt(above << slot_bits | number);
    }

    /// The kind of the ticket's slab.
    pub fn kind(ticket: Ticket) Kind {
        return @fromBackingInt(@as(u1, @truncate(@backingInt(ticket) >> (slot_bits + engine_bits))));
    }

    /// The number of the ticket's slot, for tables beside the slab.
    pub fn slot(ticket: Ticket) u32 {
        return @as(u20, @truncate(@backingInt(ticket)));
    }

    /// The ticket's lower half.
    pub fn short(ticket: Ticket) Short {
        return @fromBackingInt(@as(u32, @truncate(@backingInt(ticket))));
    }

    /// The lower half of a ticket: slot, engine, kind and some bits of the generation. It takes less memory
    /// in lists with room for each connection. After 15 other uses of its slot it finds an item that is not
    /// its own, so the item must tell whether it is in the list.
    pub const Short = enum(u32) {
        _,

        /// The kind of the ticket's slab.
        pub fn kind(name: Short) Kind {
            return name.widened().kind();
        }

        fn widened(name: Short) Ticket {
            return @fromBackingInt(@backingInt(name));
        }
    };

    fn isOfItem(ticket: Ticket) bool {
        return @backingInt(ticket) & one_generation != 0;
    }

    fn next(ticket: Ticket) Ticket {
        return @fromBackingInt(@backingInt(ticket) +% one_generation);
    }
};

/// The most items of one slab.
pub const items_max = 1 << Ticket.slot_bits;

/// A growing set of `T` at stable addresses. `add` returns uninitialised memory, which the caller fills.
pub fn Slab(comptime T: type) type {
    return struct {
        const Self = @This();
        const chunk_items = 64;

        const Slot = struct {
            /// The ticket of the slot's item; a free slot has the ticket after its last item's.
            ticket: Ticket,
            /// The item; a free slot has a pointer to the next free slot. A union of both would have a tag in
            /// builds with safety checks, for which each idle connection would pay.
            place: [place_bytes]u8 align(place_align),

            const place_bytes = @max(@sizeOf(T), @sizeOf(?*Slot));
            const place_align = @max(@alignOf(T), @alignOf(?*Slot));

            fn item(slot: *Slot) *T {
                return @ptrCast(&slot.place);
            }

            fn nextFree(slot: *Slot) *?*Slot {
                assert(!slot.ticket.isOfItem());
                return @ptrCast(&slot.place);
            }

            fn of(thing: *T) *Slot {
                const place: *align(place_align) [place_bytes]u8 = @ptrCast(@alignCast(thing));
                return @alignCast(@fieldParentPtr("place", place));
            }
        };

        gpa: std.mem.Allocator,
        chunks: std.ArrayList(*[chunk_items]Slot) = .empty,
        /// Free slots, in the order in which they became free.
        first_free: ?*Slot = null,
        last_free: ?*Slot = null,
        count: u32 = 0,
        /// The number of the engine, which is part of each ticket.
        engine: u6 = 0,
        kind: Ticket.Kind,

        pub fn init(gpa: std.mem.Allocator, kind: Ticket.Kind) Self {
            return .{ .gpa = gpa, .kind = kind };
        }

        pub fn deinit(self: *Self) void {
            for (self.chunks.items) |chunk| self.gpa.destroy(chunk);
            self.chunks.deinit(self.gpa);
            self.* = undefined;
        }

        /// Takes a slot for a new item. The item is valid until `remove`.
        pub inline fn add(self: *Self) error{OutOfMemory}!struct { ticket: Ticket, item: *T } {
            if (self.first_free == null) try self.grow();
            const slot = self.first_free.?;
            self.first_free = slot.nextFree().*;
            slot.ticket = slot.ticket.next();
            self.count += 1;
            return .{ .ticket = slot.ticket, .item = slot.item() };
        }

        /// The item of a ticket; null: the item was removed, or the ticket is none of this slab.
        pub fn get(self: *Self, ticket: Ticket) ?*T {
            const slot = self.slotOf(ticket) orelse return null;
            return slot.item();
        }

        /// The item of a ticket's lower half; null: the item was removed, or the ticket is none of this slab.
        pub fn getShort(self: *Self, name: Ticket.Short) ?*T {
            const number = name.widened().slot();
            if (number / chunk_items >= self.chunks.items.len) return null;
            const slot = self.slotAt(number);
            return if (slot.ticket.short() == name and slot.ticket.isOfItem()) slot.item() else null;
        }

        /// The ticket of an item.
        pub inline fn ticketOf(item: *const T) Ticket {
            const slot: *const Slot = .of(@constCast(item));
            assert(slot.ticket.isOfItem());
            return slot.ticket;
        }

        /// Removes an item, whose ticket finds nothing from now on.
        pub fn remove(self: *Self, item: *T) void {
            const slot: *Slot = .of(item);
            assert(slot.ticket.isOfItem());
            slot.ticket = slot.ticket.next();
            slot.nextFree().* = null;
            if (self.first_free == null) self.first_free = slot else self.last_free.?.nextFree().* = slot;
            self.last_free = slot;
            assert(self.count > 0);
            self.count -= 1;
        }

        /// An iterator over all items. Items may be removed on the way, the present one too.
        pub fn iterator(self: *Self) Iterator {
            return .{ .slab = self };
        }

        /// An iterator over all items. Other items may be added and removed meanwhile.
        pub const Iterator = struct {
            slab: *Self,
            at: u32 = 0,

            /// The next item, or null at the end.
            pub fn next(it: *Iterator) ?*T {
                while (it.at < it.slab.chunks.items.len * chunk_items) {
                    const slot = it.slab.slotAt(it.at);
                    it.at += 1;
                    if (slot.ticket.isOfItem()) return slot.item();
                }
                return null;
            }
        };

        /// The memory of all slots in bytes, used or free.
        pub fn memoryBytes(self: *const Self) usize {
            return self.chunks.items.len * @sizeOf([chunk_items]Slot);
        }

        fn slotOf(self: *Self, ticket: Ticket) ?*Slot {
            const number = ticket.slot();
            if (number / chunk_items >= self.chunks.items.len) return null;
            const slot = self.slotAt(number);
            return if (slot.ticket == ticket and ticket.isOfItem()) slot else null;
        }

        fn slotAt(self: *Self, number: u32) *Slot {
            return &self.chunks.items[number / chunk_items][number % chunk_items];
        }

        noinline fn grow(self: *Self) error{OutOfMemory}!void {
            @branchHint(.cold);
            assert(self.first_free == null);
            if (self.chunks.items.len * chunk_items == items_max) return error.OutOfMemory;
            try self.chunks.ensureUnusedCapacity(self.gpa, 1);
            const chunk = try self.gpa.create([chunk_items]Slot);
            const first = self.chunks.items.len * chunk_items;
            for (chunk, first..) |*slot, number| {
                slot.ticket = .of(self.engine, self.kind, @intCast(number));
                const is_last = number + 1 == first + chunk_items;
                slot.nextFree().* = if (is_last) null else &chunk[number + 1 - first];
            }
            self.chunks.appendAssumeCapacity(chunk);
            self.first_free = &chunk[0];
            self.last_free = &chunk[chunk_items - 1];
        }
    };
}

test "a removed item's ticket stays stale when its slot is used again" {
    var slab: Slab(u64) = .init(std.testing.allocator, .plain);
    defer slab.deinit();
    const first = try slab.add();
    first.item.* = 1;
    slab.remove(first.item);
    // The slot that was free longest is taken first, so all others are used before this one.
    var second = try slab.add();
    while (second.ticket.slot() != first.ticket.slot()) {
        try std.testing.expectEqual(first.ticket.slot() + slab.count, second.ticket.slot());
        try std.testing.expectEqual(null, slab.get(first.ticket));
        second = try slab.add();
    }
    second.item.* = 2;
    try std.testing.expectEqual(64, slab.count);
    try std.testing.expect(first.ticket != second.ticket);
    try std.testing.expectEqual(null, slab.get(first.ticket));
    try std.testing.expectEqual(2, slab.get(second.ticket).?.*);
    try std.testing.expectEqual(null, slab.get(.none));
}

test "the lower half of a ticket finds its item, and another one after 15 other uses of the slot" {
    var slab: Slab(u64) = .init(std.testing.allocator, .stream);
    defer slab.deinit();
    const first = try slab.add();
    const name = first.ticket.short();
    try std.testing.expectEqual(.stream, name.kind());
    try std.testing.expectEqual(first.item, slab.getShort(name).?);
    slab.remove(first.item);
    try std.testing.expectEqual(null, slab.getShort(name));
    var uses: usize = 0;
    while (slab.getShort(name) == null) {
        const other = try slab.add();
        if (other.ticket.slot() == first.ticket.slot()) uses += 1;
        if (slab.getShort(name) == null) slab.remove(other.item);
    }
    try std.testing.expectEqual(16, uses);
    try std.testing.expectEqual(null, slab.getShort(@fromBackingInt(@backingInt(name) + 64)));
}

test "tickets of another engine, and of free slots, find nothing" {
    var slab: Slab(u8) = .init(std.testing.allocator, .plain);
    slab.engine = 63;
    defer slab.deinit();
    const item = try slab.add();
    const bits = @backingInt(item.ticket);
    try std.testing.expectEqual(item.item, slab.get(item.ticket).?);
    try std.testing.expectEqual(null, slab.get(@fromBackingInt(bits & ~@as(u64, 63 << 20))));
    try std.testing.expectEqual(null, slab.get(item.ticket.next()));
    slab.remove(item.item);
    try std.testing.expectEqual(null, slab.get(item.ticket.next()));
}

test "a generation that wraps around stays apart from slot, engine and kind" {
    const last: Ticket = @fromBackingInt(~@as(u64, 0) << 27 | 5);
    try std.testing.expectEqual(5, @backingInt(last.next()));
    try std.testing.expect(last.isOfItem() and !last.next().isOfItem());
}

test "items keep their addresses while the slab grows, and the iterator sees each once" {
    var slab: Slab(usize) = .init(std.testing.allocator, .plain);
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
