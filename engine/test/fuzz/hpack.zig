//! Fuzz target `hpack`: header blocks of one connection, against a decoder that is written the plain way: bit
//! by bit, with a list for a table (RFC 7541). What was decoded is encoded and decoded again. The input is a
//! row of blocks, each behind its length in one byte.
const std = @import("std");
const hpack = @import("protocol").http2.hpack;
const testing = std.testing;

const table_bytes = hpack.table_bytes_max;

pub fn run(input: []const u8) !void {
    var memory: [1 << 20]u8 = undefined;
    var fixed: std.heap.FixedBufferAllocator = .init(&memory);
    var plain: Plain = .{ .gpa = fixed.allocator() };
    var owned: Owned = .{};
    var again: Again = .{};
    var rest = input;
    while (rest.len > 0) {
        const len: usize = @min(rest[0], rest.len - 1);
        const block = rest[1..][0..len];
        rest = rest[1 + len ..];
        const expected = plain.decode(block) catch |err| switch (err) {
            error.OutOfMemory => return,
            error.Compression => return testing.expectError(error.Compression, owned.drain(block)),
        };
        try compare(&owned, block, expected, &again);
    }
}

/// A decoder, and who gives its table as much memory as it takes.
const Owned = struct {
    decoder: hpack.Decoder = .{},
    bench: hpack.Bench = undefined,
    memory: [2]hpack.Bench = undefined,
    given: usize = 0,

    fn drain(owned: *Owned, bytes: []const u8) !void {
        var room: [table_bytes]u8 = undefined;
        var block = owned.decoder.begin(bytes, &owned.bench);
        while (try block.next(&room)) |_| {}
    }

    fn settle(owned: *Owned) void {
        if (owned.decoder.lodges) {
            owned.given += 1;
            owned.decoder.rehouse(owned.memory[owned.given % 2][0..owned.decoder.units()]);
        }
        @memset(&owned.bench, 0xaaaaaaaaaaaaaaaa);
        owned.decoder.table.invariants();
    }
};

fn compare(owned: *Owned, bytes: []const u8, expected: []const Field, again: *Again) !void {
    var room: [table_bytes]u8 = undefined;
    var block = owned.decoder.begin(bytes, &owned.bench);
    again.begin();
    for (expected) |field| {
        const found = (try block.next(&room)) orelse return error.TooFewFields;
        if (field.name.len + field.value.len > room.len) {
            try testing.expect(found.too_long);
            continue;
        }
        try testing.expect(!found.too_long);
        try testing.expectEqualStrings(field.name, found.name);
        try testing.expectEqualStrings(field.value, found.value);
        try again.put(field.name, field.value);
    }
    try testing.expectEqual(null, try block.next(&room));
    owned.settle();
    try again.end();
}

const Field = struct { name: []const u8, value: []const u8 };

/// Our encoder, and a decoder behind it.
const Again = struct {
    encoder: hpack.Encoder = .{},
    memory: hpack.EncoderMemory = undefined,
    decoder: hpack.Decoder = .{},
    bench: hpack.Bench = undefined,
    block: [16 * 1024]u8 = undefined,
    len: usize = 0,
    hash: std.hash.Wyhash = .init(0),

    fn begin(again: *Again) void {
        if (again.encoder.memory == null) again.encoder.lend(&again.memory);
        const added = again.memory.table.added;
        // As a peer may change it at any time.
        const sizes = [_]u32{ 4096, 0, 64, 200, 4096, 1024 };
        if (added % 3 == 2) again.encoder.setTableSize(sizes[added % sizes.len]);
        // As the owner may take it at any time.
        if (added % 5 == 4) _ = again.encoder.takeBack();
        again.len = again.encoder.begin(&again.block);
        again.hash = .init(0);
    }

    fn put(again: *Again, name: []const u8, value: []const u8) !void {
        const size = name.len + value.len + hpack.field_overhead;
        if (name.len == 0) return; // names that we send are tokens
        if (again.len + size > again.block.len) return;
        const room = again.block[again.len..][0..size];
        again.len += again.encoder.put(.fromName(name), name, value, room);
        for (name) |byte| again.hash.update(&.{std.ascii.toLower(byte)});
        again.hash.update("\x00");
        again.hash.update(value);
        again.hash.update("\x00");
    }

    fn end(again: *Again) !void {
        var hash: std.hash.Wyhash = .init(0);
        var room: [table_bytes]u8 = undefined;
        var block = again.decoder.begin(again.block[0..again.len], &again.bench);
        while (try block.next(&room)) |field| {
            for (field.name) |byte| hash.update(&.{byte});
            hash.update("\x00");
            hash.update(field.value);
            hash.update("\x00");
        }
        try testing.expectEqual(again.hash.final(), hash.final());
        again.encoder.invariants();
    }
};

/// The plain decoder.
const Plain = struct {
    gpa: std.mem.Allocator,
    table: std.ArrayList(Field) = .empty, // the newest first
    size_max: usize = table_bytes,

    const Error = error{ Compression, OutOfMemory };

    fn decode(plain: *Plain, block: []const u8) Error![]const Field {
        var fields: std.ArrayList(Field) = .empty;
        var rest = block;
        var resizes: usize = 0;
        while (rest.len > 0) {
            const first = rest[0];
            if (first >= 0x80) {
                try fields.append(plain.gpa, try plain.entry(try number(&rest, 7)));
            } else if (first >= 0x20 and first < 0x40) {
                const size = try number(&rest, 5);
                resizes += 1;
                if (fields.items.len > 0 or size > table_bytes or resizes > 2) return error.Compression;
                plain.size_max = size;
                plain.evict(0);
            } else {
                const keeps = first >= 0x40;
                const index = try number(&rest, if (keeps) 6 else 4);
                const name = if (index > 0) (try plain.entry(index)).name else try plain.string(&rest);
                const field: Field = .{ .name = name, .value = try plain.string(&rest) };
                try fields.append(plain.gpa, field);
                if (keeps) try plain.keep(field);
            }
        }
        return fields.items;
    }

    fn keep(plain: *Plain, field: Field) Error!void {
        const size = field.name.len + field.value.len + 32;
        plain.evict(size);
        if (size <= plain.size_max) try plain.table.insert(plain.gpa, 0, field);
    }

    fn evict(plain: *Plain, room: usize) void {
        while (plain.table.items.len > 0) {
            var size = room;
            for (plain.table.items) |field| size += field.name.len + field.value.len + 32;
            if (size <= plain.size_max) return;
            _ = plain.table.pop();
        }
    }

    fn entry(plain: *const Plain, index: usize) Error!Field {
        if (index == 0) return error.Compression;
        if (index <= 61) {
            const static = hpack.static_table.at(@intCast(index));
            return .{ .name = static.name, .value = static.value };
        }
        const at = index - 62;
        return if (at < plain.table.items.len) plain.table.items[at] else error.Compression;
    }

    fn number(rest: *[]const u8, bits: u4) Error!usize {
        if (rest.len == 0) return error.Compression;
        const mask = (@as(usize, 1) << bits) - 1;
        var value: usize = rest.*[0] & mask;
        rest.* = rest.*[1..];
        if (value < mask) return value;
        for (0..5) |group| {
            if (rest.len == 0) return error.Compression;
            const byte = rest.*[0];
            rest.* = rest.*[1..];
            value += @as(usize, byte & 0x7f) << @intCast(7 * group);
            if (byte < 0x80) return if (value < 1 << 28) value else error.Compression;
        }
        return error.Compression;
    }

    fn string(plain: *Plain, rest: *[]const u8) Error![]const u8 {
        if (rest.len == 0) return error.Compression;
        const is_huffman = rest.*[0] >= 0x80;
        const len = try number(rest, 7);
        if (len > rest.len) return error.Compression;
        const text = rest.*[0..len];
        rest.* = rest.*[len..];
        return if (is_huffman) plain.unpack(text) else text;
    }

    /// Codes are found by what our encoder makes of each byte.
    fn unpack(plain: *Plain, text: []const u8) Error![]const u8 {
        var out: std.ArrayList(u8) = .empty;
        var code: u32 = 0;
        var len: u32 = 0;
        bits: for (0..text.len * 8) |bit| {
            code = code << 1 | ((text[bit / 8] >> @intCast(7 - bit % 8)) & 1);
            len += 1;
            if (len > 30) return error.Compression;
            for (codes, 0..) |its, byte| if (its.len == len and its.code == code) {
                try out.append(plain.gpa, @intCast(byte));
                code = 0;
                len = 0;
                continue :bits;
            };
        }
        return if (len < 8 and code + 1 == @as(u32, 1) << @intCast(len)) out.items else error.Compression;
    }
};

const Code = struct { code: u32, len: u32 };

const codes: [256]Code = made: {
    @setEvalBranchQuota(100_000);
    var made: [256]Code = undefined;
    for (&made, 0..) |*one, byte| {
        var out: [8]u8 = undefined;
        // Behind the code stand ones: those of the second code tell how many belong to the first.
        const size = hpack.huffman.encode(&.{byte}, &out);
        var bits: u32 = 0;
        for (out[0..size]) |part| bits = bits << 8 | part;
        const len = hpack.huffman.bitsOf(byte);
        one.* = .{ .code = bits >> @intCast(size * 8 - len), .len = len };
    }
    break :made made;
};
