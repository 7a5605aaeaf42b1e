//! A dynamic table of HPACK (RFC 7541 sections 2.3.2 and 4) in memory of fixed size.
//! Does not know: where fields come from, and the static table before it.
//!
//! Text lies in a ring in units of eight bytes, each entry behind a header of one unit. An entry counts 32
//! bytes more than its text, so header and padding fit into what is counted, and a ring of the table's size
//! is never too small.
const std = @import("std");
const assert = std.debug.assert;
const Meta = @import("name.zig").Meta;

/// What an entry counts besides its text, in bytes (RFC 7541 section 4.1).
pub const entry_overhead = 32;

/// A dynamic table that never counts more than `bytes_max`, a power of two.
pub fn Table(comptime bytes_max: u32) type {
    return struct {
        const T = @This();

        units: [unit_count]u64 = undefined,
        /// Where each entry lies, in units: a ring as well.
        places: [entries_max]u16 = undefined,
        /// Entries that were ever added: the number of the next one.
        added: u32 = 0,
        count: u16 = 0,
        /// Where the next entry goes.
        next: u16 = 0,
        /// What is there, and what may be, in bytes as RFC 7541 counts them.
        size: u32 = 0,
        size_max: u32 = bytes_max,

        const unit_count = bytes_max / 8;
        pub const entries_max = bytes_max / entry_overhead;

        comptime {
            assert(std.math.isPowerOfTwo(bytes_max) and unit_count <= std.math.maxInt(u16));
        }

        /// An entry; `copy` has its text.
        pub const Entry = packed struct(u64) {
            name_len: u16,
            value_len: u16,
            meta: Meta,
            /// The owner's.
            mark: u16 = 0,

            fn units(entry: Entry) u32 {
                return 1 + (@as(u32, entry.name_len) + entry.value_len + 7) / 8;
            }

            fn size(entry: Entry) u32 {
                return @as(u32, entry.name_len) + entry.value_len + entry_overhead;
            }
        };

        /// The entry with this index: 0 is the newest. Null: there is none.
        pub inline fn at(table: *const T, index: u32) ?Entry {
            if (index >= table.count) return null;
            return @bitCast(table.units[table.placeOf(index)]);
        }

        inline fn placeOf(table: *const T, index: u32) u16 {
            return table.places[(table.added -% 1 -% index) % entries_max];
        }

        /// Copies the name, or name and value, of the entry with this index. `out` has room for it.
        pub inline fn copy(table: *const T, index: u32, len: usize, out: []u8) void {
            const bytes = std.mem.sliceAsBytes(&table.units);
            const start = ((@as(usize, table.placeOf(index)) + 1) * 8) % bytes_max;
            const first = @min(len, bytes_max - start);
            @memcpy(out[0..first], bytes[start..][0..first]);
            if (first < len) @memcpy(out[first..len], bytes[0 .. len - first]);
        }

        /// Whether the text of the entry with this index is that.
        pub fn equals(table: *const T, index: u32, name: []const u8, value: []const u8) bool {
            const start = (@as(usize, table.placeOf(index)) + 1) * 8;
            return table.holds(start, name) and table.holds(start + name.len, value);
        }

        /// Whether the name of the entry with this index is that.
        pub fn hasName(table: *const T, index: u32, name: []const u8) bool {
            return table.holds((@as(usize, table.placeOf(index)) + 1) * 8, name);
        }

        fn holds(table: *const T, from: usize, text: []const u8) bool {
            const bytes = std.mem.sliceAsBytes(&table.units);
            const start = from % bytes_max;
            const first = @min(text.len, bytes_max - start);
            return std.mem.eql(u8, bytes[start..][0..first], text[0..first]) and
                std.mem.eql(u8, bytes[0 .. text.len - first], text[first..]);
        }

        /// Adds a field, for which older ones go. One that is larger than the table leaves it empty (RFC 7541
        /// section 4.4); false then. The text is not in the table already.
        pub fn add(table: *T, name: []const u8, value: []const u8, meta: Meta, mark: u16) bool {
            const size = name.len + value.len + entry_overhead;
            if (size > table.size_max) {
                table.shrink(0);
                return false;
            }
            table.shrink(table.size_max - @as(u32, @intCast(size)));
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
            table.next = @intCast((table.next + entry.units()) % unit_count);
            table.added +%= 1;
            table.count += 1;
            table.size += entry.size();
            return true;
        }

        fn put(table: *T, from: usize, text: []const u8) void {
            const bytes = std.mem.sliceAsBytes(&table.units);
            const start = from % bytes_max;
            const first = @min(text.len, bytes_max - start);
            @memcpy(bytes[start..][0..first], text[0..first]);
            if (first < text.len) @memcpy(bytes[0 .. text.len - first], text[first..]);
        }

        /// Lets the oldest entries go until no more than `size` is left.
        fn shrink(table: *T, size: u32) void {
            while (table.size > size) {
                const entry = table.at(table.count - 1).?;
                table.count -= 1;
                table.size -= entry.size();
            }
        }

        /// Lets all entries go.
        pub fn empty(table: *T) void {
            table.shrink(0);
        }

        /// Changes how much there may be; at most `bytes_max`.
        pub fn resize(table: *T, size_max: u32) void {
            assert(size_max <= bytes_max);
            table.size_max = size_max;
            table.shrink(size_max);
        }

        /// Asserts what always holds between calls.
        pub fn invariants(table: *const T) void {
            assert(table.size <= table.size_max and table.size_max <= bytes_max);
            assert(table.count <= entries_max and (table.size == 0) == (table.count == 0));
        }
    };
}

const testing = std.testing;

test "entries come and go, against a list" {
    const Pair = struct { name: []const u8, value: []const u8 };
    var arena: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena.deinit();
    const gpa = arena.allocator();
    var list: std.ArrayList(Pair) = .empty; // the newest last
    var table: Table(256) = .{};
    var prng: std.Random.DefaultPrng = .init(1);
    const random = prng.random();
    for (0..5_000) |round| {
        if (random.uintLessThan(u8, 16) == 0) table.resize(random.uintAtMost(u32, 256));
        const name = try gpa.alloc(u8, random.uintAtMost(usize, if (round % 50 == 0) 200 else 20));
        const value = try gpa.alloc(u8, random.uintAtMost(usize, if (round % 50 == 1) 100 else 60));
        random.bytes(name);
        random.bytes(value);
        const fits = name.len + value.len + entry_overhead <= table.size_max;
        try testing.expectEqual(fits, table.add(name, value, .{}, @truncate(round)));
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
}
