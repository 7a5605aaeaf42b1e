//! A dynamic table of HPACK (RFC 7541 sections 2.3.2 and 4), in its own memory or in its owner's, as much as
//! its entries need. Does not know: the source of fields, and the static table.
//!
//! Text is in a ring of units of eight bytes, each entry after a header of one unit. An entry counts 32 bytes
//! more than its text, which include header and padding, so a ring of the table's size is never too small.
const std = @import("std");
const assert = std.debug.assert;
const Meta = @import("name.zig").Meta;

/// The number of bytes that an entry counts besides its text (RFC 7541 section 4.1).
pub const entry_overhead = 32;

/// The owner of the ring: the table, with a ring of full size, or a caller, which provides a larger ring when
/// this one is too small (`lacks`, `rehouse`).
pub const Ring = enum { own, lent };

/// A dynamic table that counts at most `bytes_max`, a power of two.
pub fn Table(comptime bytes_max: u32, comptime ring: Ring) type {
    return struct {
        const T = @This();

        units: if (ring == .own) [unit_count]u64 else []u64 = if (ring == .own) undefined else &.{},
        /// The position of each entry in `units`, also a ring. In lent memory it lies before the units.
        places: if (ring == .own) [entries_max]u16 else *[entries_max]u16 = undefined,
        /// The number of entries that were added so far, which is the number of the next one.
        added: u32 = 0,
        count: u16 = 0,
        /// The position of the next entry, if the ring has room for it.
        next: u16 = 0,
        /// The number of units of the ring that entries occupy.
        used: u16 = 0,
        /// The table's size, and its maximum, in bytes as defined in RFC 7541.
        size: u32 = 0,
        size_max: u32 = bytes_max,

        pub const unit_count = bytes_max / 8;
        pub const entries_max = bytes_max / entry_overhead;
        /// The number of units of lent memory that do not belong to the ring.
        pub const overhead_units = @divExact(@sizeOf([entries_max]u16), 8);

        comptime {
            assert(std.math.isPowerOfTwo(bytes_max) and unit_count <= std.math.maxInt(u16));
        }

        /// An entry; `copy` returns its text.
        pub const Entry = packed struct(u64) {
            name_len: u16,
            value_len: u16,
            meta: Meta,
            /// A number that the table's owner stores with the entry.
            mark: u16 = 0,

            fn units(entry: Entry) u16 {
                return unitsOf(@as(usize, entry.name_len) + entry.value_len);
            }

            fn size(entry: Entry) u32 {
                return @as(u32, entry.name_len) + entry.value_len + entry_overhead;
            }
        };

        /// Returns the memory of an entry with `len` bytes of text, in units.
        fn unitsOf(len: usize) u16 {
            return @intCast(1 + (len + 7) / 8);
        }

        /// Returns a position in the ring, in bytes, for one that may lie after its end.
        inline fn wrapped(table: *const T, at_byte: usize) usize {
            if (ring == .own) return at_byte % bytes_max;
            const ring_bytes = table.units.len * 8;
            return if (at_byte < ring_bytes) at_byte else at_byte - ring_bytes;
        }

        /// Returns the entry with this index; 0 is the newest. Null: there is none.
        pub inline fn at(table: *const T, index: u32) ?Entry {
            if (index >= table.count) return null;
            return @bitCast(table.units[table.placeOf(index)]);
        }

        inline fn placeOf(table: *const T, index: u32) u16 {
            return table.places[(table.added -% 1 -% index) % entries_max];
        }

        /// Copies the first `len` bytes of an entry's text: the name, or name and value. `out` must have
        /// room.
        pub inline fn copy(table: *const T, index: u32, len: usize, out: []u8) void {
            const bytes = std.mem.sliceAsBytes(table.units[0..]);
            const start = (@as(usize, table.placeOf(index)) + 1) * 8;
            if (start + len > bytes.len) return table.copyAround(start, len, out);
            @memcpy(out[0..len], bytes[start..][0..len]);
        }

        /// Copies a text that continues at the start of the ring.
        fn copyAround(table: *const T, from: usize, len: usize, out: []u8) void {
            const bytes = std.mem.sliceAsBytes(table.units[0..]);
            const start = table.wrapped(from);
            const first = @min(len, bytes.len - start);
            @memcpy(out[0..first], bytes[start..][0..first]);
            @memcpy(out[first..len], bytes[0 .. len - first]);
        }

        /// Whether the entry with this index has this name and value.
        pub fn equals(table: *const T, index: u32, name: []const u8, value: []const u8) bool {
            const start = (@as(usize, table.placeOf(index)) + 1) * 8;
            return table.holds(start, name) and table.holds(start + name.len, value);
        }

        /// Whether the entry with this index has this name.
        pub fn hasName(table: *const T, index: u32, name: []const u8) bool {
            return table.holds((@as(usize, table.placeOf(index)) + 1) * 8, name);
        }

        fn holds(table: *const T, from: usize, text: []const u8) bool {
            const bytes = std.mem.sliceAsBytes(table.units[0..]);
            const start = table.wrapped(from);
            const first = @min(text.len, bytes.len - start);
            return std.mem.eql(u8, bytes[start..][0..first], text[0..first]) and
                std.mem.eql(u8, bytes[0 .. text.len - first], text[first..]);
        }

        /// Evicts old entries to make room for a field with `len` bytes of text. False: the field is larger
        /// than the table, which is empty then (RFC 7541 section 4.4).
        pub fn admit(table: *T, len: usize) bool {
            const size = len + entry_overhead;
            if (size > table.size_max) {
                table.shrink(0);
                return false;
            }
            table.shrink(table.size_max - @as(u32, @intCast(size)));
            return true;
        }

        /// Whether the ring must be larger for a field with `len` bytes of text, which was admitted.
        pub inline fn lacks(table: *const T, len: usize) bool {
            return ring == .lent and table.used + unitsOf(len) > table.units.len;
        }

        /// The memory that these entries need, in units; 0 if there are none.
        pub fn memoryUnits(table: *const T) usize {
            return if (table.used == 0) 0 else overhead_units + @as(usize, table.used);
        }

        /// Moves the entries to other memory, which must have room for all of them.
        pub fn rehouse(table: *T, memory: []u64) void {
            if (memory.len == 0) {
                assert(table.used == 0);
                table.units = &.{};
                table.next = 0;
                return;
            }
            const units = memory[overhead_units..];
            assert(units.len >= table.used and units.len <= unit_count);
            const places: *[entries_max]u16 = @ptrCast(memory[0..overhead_units]);
            if (table.count > 0) places.* = table.places.*;
            table.places = places;
            const from: usize = if (table.count == 0) 0 else table.placeOf(table.count - 1);
            const first = @min(table.used, table.units.len - from);
            @memcpy(units[0..first], table.units[from..][0..first]);
            @memcpy(units[first..table.used], table.units[0 .. table.used - first]);
            for (0..table.count) |index| {
                const place = &table.places[(table.added -% 1 -% @as(u32, @intCast(index))) % entries_max];
                place.* = @intCast(if (place.* >= from) place.* - from else place.* + table.units.len - from);
            }
            table.next = if (table.used == units.len) 0 else table.used;
            table.units = units;
        }

        /// Adds a field that was admitted and for which the ring has room. The text must not lie in the
        /// table.
        pub fn add(table: *T, name: []const u8, value: []const u8, meta: Meta, mark: u16) void {
            assert(!table.lacks(name.len + value.len));
            const entry: Entry = .{
                .name_len = @intCast(name.len),
                .value_len = @intCast(value.len),
                .meta = meta,
                .mark = mark,
            };
            table.units[table.next] = @bitCast(entry);
            table.places[table.added % entries_max] = table.next;
            const start = (@as(usize, table.next) + 1) * 8;
            table.put(start, name);
            table.put(start + name.len, value);
            table.next = @intCast(table.wrapped((@as(usize, table.next) + entry.units()) * 8) / 8);
            table.used += entry.units();
            table.added +%= 1;
            table.count += 1;
            table.size += entry.size();
        }

        fn put(table: *T, from: usize, text: []const u8) void {
            const bytes = std.mem.sliceAsBytes(table.units[0..]);
            const start = table.wrapped(from);
            const first = @min(text.len, bytes.len - start);
            @memcpy(bytes[start..][0..first], text[0..first]);
            if (first < text.len) @memcpy(bytes[0 .. text.len - first], text[first..]);
        }

        /// Evicts the oldest entries until the size is at most `size`.
        fn shrink(table: *T, size: u32) void {
            while (table.size > size) {
                const entry = table.at(table.count - 1).?;
                table.count -= 1;
                table.used -= entry.units();
                table.size -= entry.size();
            }
        }

        /// Evicts all entries.
        pub fn empty(table: *T) void {
            table.shrink(0);
        }

        /// Changes the maximum size, which is at most `bytes_max`.
        pub fn resize(table: *T, size_max: u32) void {
            assert(size_max <= bytes_max);
            table.size_max = size_max;
            table.shrink(size_max);
        }

        /// Asserts the invariants of the table.
        pub fn invariants(table: *const T) void {
            assert(table.size <= table.size_max and table.size_max <= bytes_max);
            assert(table.count <= entries_max and (table.size == 0) == (table.count == 0));
            assert(table.used <= table.units.len and (table.used == 0) == (table.count == 0));
        }
    };
}

const testing = std.testing;

test "entries come and go, against a list" {
    try compareWithList(.own);
}

test "a table in a ring that grows with its entries, and shrinks again" {
    try compareWithList(.lent);
}

fn compareWithList(comptime ring: Ring) !void {
    const Pair = struct { name: []const u8, value: []const u8 };
    var arena: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena.deinit();
    const gpa = arena.allocator();
    var list: std.ArrayList(Pair) = .empty; // in the order of insertion, the newest last
    var table: Table(256, ring) = .{};
    var moves: usize = 0;
    var prng: std.Random.DefaultPrng = .init(1);
    const random = prng.random();
    for (0..5_000) |round| {
        if (random.uintLessThan(u8, 16) == 0) table.resize(random.uintAtMost(u32, 256));
        const name = try gpa.alloc(u8, random.uintAtMost(usize, if (round % 50 == 0) 200 else 20));
        const value = try gpa.alloc(u8, random.uintAtMost(usize, if (round % 50 == 1) 100 else 60));
        random.bytes(name);
        random.bytes(value);
        const fits = name.len + value.len + entry_overhead <= table.size_max;
        try testing.expectEqual(fits, table.admit(name.len + value.len));
        if (fits and table.lacks(name.len + value.len)) {
            const T = Table(256, ring);
            const units = table.used + T.unitsOf(name.len + value.len);
            table.rehouse(try gpa.alloc(u64, T.overhead_units + units));
            moves += 1;
        }
        if (fits) table.add(name, value, .{}, @truncate(round));
        if (ring == .lent and random.uintLessThan(u8, 10) == 0) {
            table.rehouse(try gpa.alloc(u64, table.memoryUnits()));
        }
        table.invariants();
        try list.append(gpa, .{ .name = name, .value = value });
        if (!fits) list.clearRetainingCapacity();
        var total: usize = 0;
        for (list.items) |pair| total += pair.name.len + pair.value.len + entry_overhead;
        while (total > table.size_max) {
            const oldest = list.orderedRemove(0);
            total -= oldest.name.len + oldest.value.len + entry_overhead;
        }
        try testing.expectEqual(total, table.size);
        try testing.expectEqual(list.items.len, table.count);
        for (0..list.items.len) |index| {
            const pair = list.items[list.items.len - 1 - index];
            const entry = table.at(@intCast(index)).?;
            try testing.expectEqual(pair.name.len, entry.name_len);
            var out: [300]u8 = undefined;
            const len = pair.name.len + pair.value.len;
            table.copy(@intCast(index), len, &out);
            try testing.expectEqualStrings(pair.name, out[0..pair.name.len]);
            try testing.expectEqualStrings(pair.value, out[pair.name.len..len]);
            try testing.expect(table.equals(@intCast(index), pair.name, pair.value));
            try testing.expect(table.hasName(@intCast(index), pair.name));
        }
        try testing.expectEqual(null, table.at(table.count));
    }
    try testing.expectEqual(ring == .lent, moves > 100);
}
