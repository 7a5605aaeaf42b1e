//! Decodes header blocks (RFC 7541 sections 3.2 and 6). Needs no memory except its table and the caller's
//! room. Does not know: frames, and which fields a message may have.
//!
//! The owner provides the table's memory. If the fields of a block need more, the table moves to the bench,
//! which is large enough and may be shared by many decoders; after the block, the owner provides more memory
//! (`lodges`, `rehouse`).
const std = @import("std");
const assert = std.debug.assert;
const huffman = @import("huffman.zig");
const integer = @import("integer.zig");
const static_table = @import("static_table.zig");
const table_file = @import("table.zig");
const Meta = @import("name.zig").Meta;

/// The size of our table, in bytes: the default for every peer (RFC 9113 section 6.5.2).
pub const table_bytes_max = 4096;
const Table = table_file.Table(table_bytes_max, .lent);

/// Memory for a table that has outgrown its own memory, until the block has been read.
pub const Bench = [Table.overhead_units + Table.unit_count]u64;

/// The block cannot be decoded, and so no later block either: COMPRESSION_ERROR.
pub const Error = error{Compression};

/// A decoded field. Name and value lie in the caller's room, the value directly after the name.
pub const Field = struct {
    name: []const u8 = "",
    value: []const u8 = "",
    meta: Meta = .{},
    /// The room was too small, so there is no text.
    too_long: bool = false,
};

/// Decodes the blocks of one peer.
pub const Decoder = struct {
    table: Table = .{},
    /// The table is on the bench.
    lodges: bool = false,
    /// The total number of bytes that were copied out of a table: the cost of blocks beyond their own bytes.
    copied: u64 = 0,

    /// Begins a whole block. While `lodges`, `bench` must be the same as for the previous block.
    pub fn begin(decoder: *Decoder, bytes: []const u8, bench: *Bench) Block {
        assert(!decoder.lodges or decoder.table.units.ptr == bench[Table.overhead_units..].ptr);
        return .{ .decoder = decoder, .bytes = bytes, .bench = bench };
    }

    /// The memory that the table needs, in u64s.
    pub fn units(decoder: *const Decoder) usize {
        return decoder.table.memoryUnits();
    }

    /// Moves the table to memory of at least `units()`; the former memory is free then.
    pub fn rehouse(decoder: *Decoder, memory: []u64) void {
        decoder.table.rehouse(memory);
        decoder.lodges = false;
    }

    fn keep(decoder: *Decoder, field: Field, bench: *Bench) void {
        const len = field.name.len + field.value.len;
        if (!decoder.table.admit(len)) return;
        if (decoder.table.lacks(len)) {
            decoder.table.rehouse(bench);
            decoder.lodges = true;
        }
        decoder.table.add(field.name, field.value, field.meta, 0);
    }
};

/// A block that is being read. It must be read to its end or to an error, because the table depends on it.
pub const Block = struct {
    decoder: *Decoder,
    bytes: []const u8,
    bench: *Bench,
    at: usize = 0,
    resizes: u8 = 0,
    began: bool = false,
    /// The fields are not needed, so fields of a table are not copied.
    discards: bool = false,

    /// The maximum number of table sizes in a row: the smallest, and the last (RFC 7541 section 4.2).
    const resizes_max = 2;

    /// Returns the next field; null: the end. `room` is overwritten. It must have at least `table_bytes_max`
    /// bytes, so that fields too long for the table are recognised; a field that does not fit is read, but
    /// has no text.
    pub fn next(block: *Block, room: []u8) Error!?Field {
        assert(room.len >= table_bytes_max);
        while (block.at < block.bytes.len) {
            const first = block.bytes[block.at];
            if (first & 0x80 != 0) {
                block.began = true;
                return try block.indexed(room);
            }
            if (first & 0xe0 != 0x20) {
                block.began = true;
                return try block.literal(first, room);
            }
            try block.resize();
        }
        return null;
    }

    fn resize(block: *Block) Error!void {
        const size = integer.read(block.bytes, &block.at, 5) orelse return error.Compression;
        block.resizes += 1;
        if (block.began or block.resizes > resizes_max or size > table_bytes_max) return error.Compression;
        block.decoder.table.resize(size);
    }

    inline fn indexed(block: *Block, room: []u8) Error!Field {
        const index = integer.read(block.bytes, &block.at, 7) orelse return error.Compression;
        if (index -% 1 < static_table.last) {
            if (block.discards) return .{};
            const entry = static_table.at(index);
            const len = entry.name.len;
            block.decoder.copied += len + entry.value.len;
            @memcpy(room[0..len], entry.name);
            @memcpy(room[len..][0..entry.value.len], entry.value);
            return .{ .name = room[0..len], .value = room[len..][0..entry.value.len], .meta = entry.meta };
        }
        const number = index -% static_table.last -% 1;
        const entry = block.decoder.table.at(number) orelse return error.Compression;
        if (block.discards) return .{};
        const len = @as(usize, entry.name_len) + entry.value_len;
        block.decoder.copied += len;
        block.decoder.table.copy(number, len, room);
        return .{ .name = room[0..entry.name_len], .value = room[entry.name_len..len], .meta = entry.meta };
    }

    /// Decodes a literal field: indexed, not indexed, or never indexed.
    fn literal(block: *Block, first: u8, room: []u8) Error!Field {
        const keeps = first & 0x40 != 0;
        const index = (if (keeps)
            integer.read(block.bytes, &block.at, 6)
        else
            integer.read(block.bytes, &block.at, 4)) orelse return error.Compression;
        var field: Field = .{};
        if (index == 0) {
            field.name = try block.string(room, &field.too_long);
            if (!field.too_long) field.meta = .named(field.name);
        } else if (index <= static_table.last) {
            const entry = static_table.at(index);
            @memcpy(room[0..entry.name.len], entry.name);
            field.name = room[0..entry.name.len];
            field.meta = entry.meta;
        } else {
            const number = index - static_table.last - 1;
            const entry = block.decoder.table.at(number) orelse return error.Compression;
            block.decoder.copied += entry.name_len;
            block.decoder.table.copy(number, entry.name_len, room);
            field.name = room[0..entry.name_len];
            field.meta = entry.meta;
        }
        field.value = try block.string(room[field.name.len..], &field.too_long);
        if (field.too_long) {
            // The entry is larger than the table.
            if (keeps) block.decoder.table.empty();
            return .{ .too_long = true };
        }
        field.meta = field.meta.with(field.value);
        if (keeps) block.decoder.keep(field, block.bench);
        return field;
    }

    /// Decodes a string; empty, with `too_long`, if there is no room for it.
    inline fn string(block: *Block, room: []u8, too_long: *bool) Error![]const u8 {
        if (block.at >= block.bytes.len) return error.Compression;
        const is_huffman = block.bytes[block.at] & 0x80 != 0;
        const len = integer.read(block.bytes, &block.at, 7) orelse return error.Compression;
        if (len > block.bytes.len - block.at) return error.Compression;
        const text = block.bytes[block.at..][0..len];
        block.at += len;
        if (is_huffman) return huffman.decode(text, room) catch |err| switch (err) {
            error.Malformed => error.Compression,
            error.TooLong => {
                too_long.* = true;
                return "";
            },
        };
        if (text.len > room.len) {
            too_long.* = true;
            return "";
        }
        @memcpy(room[0..len], text);
        return room[0..len];
    }
};

const testing = std.testing;

/// Decodes a block and returns its fields as lines.
fn lines(memory: *Memory, decoder: *Decoder, block_bytes: []const u8, out: []u8) ![]const u8 {
    var room: [table_bytes_max]u8 = undefined;
    var bench: Bench = undefined;
    var writer: std.Io.Writer = .fixed(out);
    var block = decoder.begin(block_bytes, &bench);
    while (try block.next(&room)) |field| {
        try testing.expectEqual(Meta.of(field.name, field.value), field.meta);
        try writer.print("{s}: {s}\n", .{ field.name, field.value });
    }
    decoder.table.invariants();
    if (decoder.lodges) decoder.rehouse(memory.more(decoder.units()));
    @memset(&bench, 0xaaaaaaaaaaaaaaaa);
    decoder.table.invariants();
    return writer.buffered();
}

/// The memory from a decoder's owner: no more than the decoder asks for.
const Memory = struct {
    parts: [2]Bench = undefined,
    given: usize = 0,

    fn more(memory: *Memory, units: usize) []u64 {
        memory.given += 1;
        return memory.parts[memory.given % 2][0..units];
    }
};

test "blocks that cannot be understood" {
    for ([_][]const u8{
        "\x80", // index 0
        "\xbe", // the first entry of an empty table
        "\xff\x80\x80\x80\x80\x80\x01",
        "\x40", // no name
        "\x40\x01", // a name that is cut
        "\x40\x01a", // no value
        "\x40\x01a\x02b", // a value that is cut
        "\x7f\x00\x01b", // index 62
        "\x40\x81\xff\x01b", // padding that begins no code
        "\x82\x20", // a table size after a field
        "\x20\x3f\x00\x3f\x01", // three table sizes
        "\x3f\xe2\x1f", // 4097
        "\x3f",
    }) |bytes| {
        var decoder: Decoder = .{};
        var memory: Memory = .{};
        var out: [64]u8 = undefined;
        try testing.expectError(error.Compression, lines(&memory, &decoder, bytes, &out));
    }
}

test "sizes of the table" {
    var decoder: Decoder = .{};
    var memory: Memory = .{};
    var out: [128]u8 = undefined;
    try testing.expectEqualStrings("a: b\n", try lines(&memory, &decoder, "\x40\x01a\x01b", &out));
    try testing.expectEqualStrings("a: b\n", try lines(&memory, &decoder, "\xbe", &out));
    // The size changes to 0 and back to 64: one entry of 34 bytes fits, and the second replaces it.
    const to_64 = "\x20\x3f\x21\x40\x01c\x01d";
    try testing.expectEqualStrings("c: d\n", try lines(&memory, &decoder, to_64, &out));
    try testing.expectEqualStrings("e: f\n", try lines(&memory, &decoder, "\x40\x01e\x01f", &out));
    try testing.expectEqualStrings("e: f\n", try lines(&memory, &decoder, "\xbe", &out));
    try testing.expectError(error.Compression, lines(&memory, &decoder, "\xbf", &out));
}

test "a field longer than the room is read, and a field longer than the table empties it" {
    var decoder: Decoder = .{};
    var memory: Memory = .{};
    var out: [128]u8 = undefined;
    _ = try lines(&memory, &decoder, "\x40\x01a\x01b", &out);
    for ([_]u8{ 0x00, 0x10, 0x40 }) |first| {
        var block_bytes: [table_bytes_max + 16]u8 = undefined;
        block_bytes[0] = first;
        block_bytes[1..3].* = "\x01n".*;
        var len = 3 + integer.write(block_bytes[3..], 0, 7, table_bytes_max);
        @memset(block_bytes[len..][0..table_bytes_max], 'v');
        len += table_bytes_max;
        block_bytes[len] = 0x82;
        var room: [table_bytes_max]u8 = undefined;
        var bench: Bench = undefined;
        var block = decoder.begin(block_bytes[0 .. len + 1], &bench);
        try testing.expect((try block.next(&room)).?.too_long);
        try testing.expectEqualStrings(":method", (try block.next(&room)).?.name);
        try testing.expectEqual(null, try block.next(&room));
        try testing.expectEqual(@as(u16, if (first == 0x40) 0 else 1), decoder.table.count);
    }
}

test "a bomb: what nobody wants is not copied" {
    var decoder: Decoder = .{};
    var block_bytes: [4096]u8 = undefined;
    var room: [table_bytes_max]u8 = undefined;
    var len = 3 + integer.write(block_bytes[3..], 0, 7, 4000);
    block_bytes[0..3].* = "\x40\x01n".*;
    @memset(block_bytes[len..][0..4000], 'v');
    len += 4000;
    var bench: Bench = undefined;
    var first = decoder.begin(block_bytes[0..len], &bench);
    while (try first.next(&room)) |_| {}
    @memset(&block_bytes, 0xbe);
    var block = decoder.begin(&block_bytes, &bench);
    var count: usize = 0;
    while (try block.next(&room)) |field| : (count += 1) {
        try testing.expectEqual(@as(usize, if (count < 3) 4000 else 0), field.value.len);
        if (count == 2) block.discards = true;
    }
    try testing.expectEqual(4096, count);
    try testing.expectEqual(3 * 4001, decoder.copied);
}

test "a table takes what its fields take, and lies on the bench only until its owner gives more" {
    var decoder: Decoder = .{};
    var memory: Memory = .{};
    var out: [128]u8 = undefined;
    try testing.expectEqual(0, decoder.units());
    // A field that is not indexed needs no memory.
    _ = try lines(&memory, &decoder, "\x82\x00\x01a\x01b", &out);
    try testing.expectEqual(0, memory.given);
    for (1..100) |round| {
        _ = try lines(&memory, &decoder, "\x40\x01a\x01b", &out);
        try testing.expectEqual(Table.overhead_units + 2 * round, decoder.units());
        try testing.expectEqual(round, memory.given);
    }
    try testing.expectEqualStrings("a: b\n", try lines(&memory, &decoder, "\xbe", &out));
    try testing.expectEqual(99, memory.given);
    // 120 fields fit; after that each new one replaces another.
    for (0..1000) |_| _ = try lines(&memory, &decoder, "\x40\x01a\x01b", &out);
    try testing.expectEqual(120, decoder.table.count);
    try testing.expectEqual(120, memory.given);
}
