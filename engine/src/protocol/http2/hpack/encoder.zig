//! Encodes header blocks (RFC 7541 section 6). Fields that responses repeat are sent once and then referred
//! to by index. Does not know: frames, and which fields are sent.
//!
//! A block that was begun must be sent, and blocks must be sent in the order of `begin`, because the peer's
//! table follows ours. Fields that may be held back or sent in another order are written without the table
//! (`stateless`).
//!
//! The owner lends the table's memory, and may take it back between two blocks and lend it again. Then our
//! table is empty, and entries in the peer's table are older than all new ones of ours.
const std = @import("std");
const assert = std.debug.assert;
const date = @import("../../http/date.zig");
const header = @import("../../http/header.zig");
const huffman = @import("huffman.zig");
const integer = @import("integer.zig");
const static_table = @import("static_table.zig");
const table_file = @import("table.zig");

/// The part of the peer's table that is used, in bytes: about a dozen fields.
pub const table_bytes_max = 1024;
const Table = table_file.Table(table_bytes_max, .own);

/// Longer values are not put into the peer's table.
const kept_value_bytes_max = 160;

/// The maximum number of bytes of a field besides its name and its value.
pub const field_overhead = 1 + 2 * integer.bytes_max;

/// The maximum number of bytes before the fields of a block: table sizes, and a status.
pub const block_overhead = resizes_bytes_max + status_bytes_max;

/// The maximum number of bytes of the table sizes.
pub const resizes_bytes_max = 2 * 3;

const status_bytes_max = 5;

/// The fields that this encoder has put into the peer's table.
pub const Memory = struct {
    table: Table = .{},
    /// The hash of each entry, at the entry's number modulo the number of entries, so that a field is found
    /// in a few steps.
    hashes: [Table.entries_max]u16 = @splat(0),

    fn find(memory: *const Memory, hash: u16, name: []const u8, value: []const u8) ?u32 {
        const Hashes = @Vector(Table.entries_max, u16);
        const hashes: Hashes = memory.hashes;
        var mask: @Int(.unsigned, Table.entries_max) = @bitCast(hashes == @as(Hashes, @splat(hash)));
        while (mask != 0) : (mask &= mask - 1) {
            const number = (memory.table.added -% 1 -% @as(u32, @ctz(mask))) % Table.entries_max;
            const entry = memory.table.at(number) orelse continue;
            if (entry.name_len != name.len or entry.value_len != value.len) continue;
            if (memory.table.equals(number, name, value)) return number;
        }
        return null;
    }

    fn findName(memory: *const Memory, name: []const u8) ?u32 {
        for (0..memory.table.count) |number| {
            const entry = memory.table.at(@intCast(number)).?;
            if (entry.name_len == name.len and memory.table.hasName(@intCast(number), name)) {
                return @intCast(number);
            }
        }
        return null;
    }

    fn add(memory: *Memory, hash: u16, name: []const u8, value: []const u8) void {
        if (!memory.table.admit(name.len + value.len)) return;
        memory.table.add(name, value, .{}, 0);
        memory.hashes[(memory.table.added -% 1) % Table.entries_max] = hash;
    }
};

/// The encoder of the fields for one peer.
pub const Encoder = struct {
    /// Null: the owner has lent none, so no field is put into the peer's table.
    memory: ?*Memory = null,
    /// The last size of the peer's table that the peer was told, in bytes.
    told: u32 = default_table_bytes,
    /// The smallest size that the peer has allowed since the last block, which the next block must tell;
    /// null: no change.
    least: ?u32 = null,
    /// The table size that the peer allows, in bytes.
    allowed: u32 = default_table_bytes,

    /// The size of the table until the peer changes it, in bytes (RFC 9113 section 6.5.2).
    const default_table_bytes = 4096;

    /// Lends memory for the table, which is empty then. Must be called between two blocks. The memory must
    /// outlive the encoder or be taken back.
    pub fn lend(encoder: *Encoder, memory: *Memory) void {
        assert(encoder.memory == null);
        memory.* = .{};
        memory.table.resize(@min(encoder.told, table_bytes_max));
        encoder.memory = memory;
    }

    /// Takes the memory back and returns it; null: none was lent. Must be called between two blocks.
    pub fn takeBack(encoder: *Encoder) ?*Memory {
        defer encoder.memory = null;
        return encoder.memory;
    }

    /// Sets the peer's SETTINGS_HEADER_TABLE_SIZE.
    pub fn setTableSize(encoder: *Encoder, bytes: u32) void {
        encoder.allowed = bytes;
        if (bytes < encoder.least orelse encoder.told) encoder.least = bytes;
    }

    /// Begins a block: writes changes of the table's size. Returns the number of bytes, at most
    /// resizes_bytes_max.
    pub fn begin(encoder: *Encoder, out: []u8) usize {
        const least = encoder.least orelse return 0;
        encoder.least = null;
        const final = @min(encoder.allowed, table_bytes_max);
        var len: usize = 0;
        if (least < final) len += integer.write(out, 0x20, 5, least);
        len += integer.write(out[len..], 0x20, 5, final);
        if (encoder.memory) |memory| {
            memory.table.resize(@min(least, table_bytes_max));
            memory.table.resize(final);
        }
        encoder.told = final;
        return len;
    }

    /// Writes a status, the first field of a response; returns the number of bytes.
    pub fn putStatus(code: u16, out: []u8) usize {
        if (static_table.ofStatus(code)) |index| {
            out[0] = 0x80 | index;
            return 1;
        }
        assert(code >= 100 and code <= 999);
        out[0..2].* = .{ static_table.status, 3 };
        out[2..5].* = .{
            '0' + @as(u8, @intCast(code / 100)),
            '0' + @as(u8, @intCast(code / 10 % 10)),
            '0' + @as(u8, @intCast(code % 10)),
        };
        return status_bytes_max;
    }

    /// Writes a field; returns the number of bytes, at most name.len + value.len + field_overhead. `id`: of
    /// the name, which is not empty and is sent in lower case.
    pub fn put(encoder: *Encoder, id: header.Id, name: []const u8, value: []const u8, out: []u8) usize {
        assert(name.len > 0);
        const index = static_table.ofName(id, name);
        var lower: [name_bytes_max]u8 = undefined;
        const memory = encoder.memory orelse return putLiteral(0x00, 4, index, name, value, out);
        if (!mayRepeat(index, value) or name.len > lower.len) {
            return putLiteral(0x00, 4, index, name, value, out);
        }
        const text = std.ascii.lowerString(&lower, name);
        const hash: u16 = @truncate(std.hash.Wyhash.hash(text.len, value) ^ text[0] ^ text[text.len - 1]);
        if (memory.find(hash, text, value)) |number| {
            return integer.write(out, 0x80, 7, static_table.last + 1 + number);
        }
        if (index == 0) if (memory.findName(text)) |number| {
            // The field has a new value each time, and would evict fields that repeat.
            return putLiteral(0x00, 4, static_table.last + 1 + number, name, value, out);
        };
        const len = putLiteral(0x40, 6, index, name, value, out);
        memory.add(hash, text, value);
        return len;
    }

    /// Longer names are not put into the table.
    const name_bytes_max = 64;

    /// Asserts the invariants of the encoder.
    pub fn invariants(encoder: *const Encoder) void {
        if (encoder.memory) |memory| memory.table.invariants();
        if (encoder.least) |least| assert(least <= encoder.told);
    }
};

/// Writes a field that uses no table except the static one; returns the number of bytes. Such fields are
/// valid in any block.
pub fn stateless(id: header.Id, name: []const u8, value: []const u8, out: []u8) usize {
    return putLiteral(0x00, 4, static_table.ofName(id, name), name, value, out);
}

/// Whether a later response is likely to have the same field. `index`: of the name; names without an index
/// are the application's own.
fn mayRepeat(index: u8, value: []const u8) bool {
    return value.len <= kept_value_bytes_max and !seldom_repeats[index];
}

/// Fields whose values are specific to a resource or a client.
const seldom_repeats: [static_table.last + 1]bool = made: {
    @setEvalBranchQuota(10_000);
    var made: [static_table.last + 1]bool = @splat(false);
    for ([_][]const u8{
        "content-length",      "content-location", "content-range", "content-disposition", "etag",
        "last-modified",       "expires",          "location",      "age",                 "set-cookie",
        "authorization",       "cookie",           "range",         "proxy-authorization", "www-authenticate",
        "if-unmodified-since",
    }) |name| {
        for (1..static_table.last + 1) |index| {
            if (std.mem.eql(u8, static_table.at(index).name, name)) made[index] = true;
        }
    }
    break :made made;
};

/// Writes a literal field with a pattern. `index`: of its name; 0: none.
fn putLiteral(
    pattern: u8,
    comptime bits: u4,
    index: u32,
    name: []const u8,
    value: []const u8,
    out: []u8,
) usize {
    var len = integer.write(out, pattern, bits, index);
    if (index == 0) len += putName(name, out[len..]);
    return len + putValue(value, out[len..]);
}

/// Writes a name without Huffman coding: names are short, and most are in a table.
fn putName(name: []const u8, out: []u8) usize {
    const len = integer.write(out, 0x00, 7, name.len);
    for (out[len..][0..name.len], name) |*to, from| to.* = std.ascii.toLower(from);
    return len + name.len;
}

/// Writes a value, compressed if that is shorter; short values are not tried.
fn putValue(value: []const u8, out: []u8) usize {
    if (value.len > plain_bytes_max) {
        const size = huffman.encodedSize(value);
        if (size < value.len) {
            const len = integer.write(out, 0x80, 7, size);
            return len + huffman.encode(value, out[len..]);
        }
    }
    const len = integer.write(out, 0x00, 7, value.len);
    @memcpy(out[len..][0..value.len], value);
    return len + value.len;
}

const plain_bytes_max = 8;

const testing = std.testing;
const decoder_file = @import("decoder.zig");

/// The encoder and the decoder of one connection's responses.
const Pair = struct {
    encoder: Encoder = .{},
    decoder: decoder_file.Decoder = .{},
    bench: decoder_file.Bench = undefined,
    block: [4096]u8 = undefined,
    len: usize = 0,

    memory: Memory = undefined,

    fn start(pair: *Pair) void {
        if (pair.encoder.memory == null) pair.encoder.lend(&pair.memory);
        pair.len = pair.encoder.begin(&pair.block);
    }

    fn put(pair: *Pair, name: []const u8, value: []const u8) usize {
        const room = pair.block[pair.len..][0 .. name.len + value.len + field_overhead];
        const len = pair.encoder.put(.fromName(name), name, value, room);
        pair.encoder.invariants();
        pair.len += len;
        return len;
    }

    fn expect(pair: *Pair, text: []const u8) !void {
        var out: [4096]u8 = undefined;
        var writer: std.Io.Writer = .fixed(&out);
        var room: [decoder_file.table_bytes_max]u8 = undefined;
        var block = pair.decoder.begin(pair.block[0..pair.len], &pair.bench);
        while (try block.next(&room)) |field| try writer.print("{s}={s};", .{ field.name, field.value });
        try testing.expectEqualStrings(text, writer.buffered());
    }
};

test "a field that repeats takes a byte" {
    var pair: Pair = .{};
    const now = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (0..3) |round| {
        pair.start();
        for ([_][2][]const u8{
            .{ "Content-Type", "text/html" }, .{ "date", now },     .{ "X-Frame-Options", "DENY" },
            .{ "Set-Cookie", "a=b" },         .{ "ETag", "\"1\"" },
        }, 0..) |field, index| {
            const len = pair.put(field[0], field[1]);
            try testing.expectEqual(round > 0 and index < 3, len == 1);
        }
        try pair.expect("content-type=text/html;date=" ++ now ++
            ";x-frame-options=DENY;set-cookie=a=b;etag=\"1\";");
    }
}

test "a value that changes each time does not push out what repeats" {
    var pair: Pair = .{};
    var text: [16]u8 = undefined;
    for (0..200) |round| {
        pair.start();
        const id = try std.fmt.bufPrint(&text, "{d:0>16}", .{round});
        _ = pair.put("X-Request-Id", id);
        try testing.expectEqual(round > 0, pair.put("server", "peregrine") == 1);
        var expected: [64]u8 = undefined;
        try pair.expect(try std.fmt.bufPrint(&expected, "x-request-id={s};server=peregrine;", .{id}));
    }
}

test "a table whose memory was taken back begins anew, in front of what the peer still has" {
    var pair: Pair = .{};
    const fields = [_][2][]const u8{ .{ "server", "peregrine" }, .{ "x-a", "1" }, .{ "vary", "accept" } };
    for (0..4) |round| {
        for ([_]bool{ false, true }) |repeats| {
            pair.start();
            for (fields[0 .. fields.len - round % 2]) |field| {
                try testing.expectEqual(repeats, pair.put(field[0], field[1]) == 1);
            }
            try pair.expect(if (round % 2 == 1)
                "server=peregrine;x-a=1;"
            else
                "server=peregrine;x-a=1;vary=accept;");
        }
        try testing.expectEqual(&pair.memory, pair.encoder.takeBack());
        // Without memory no field is indexed, but table sizes are told.
        pair.encoder.setTableSize(if (round == 2) 640 else 4096);
        pair.len = pair.encoder.begin(&pair.block);
        try testing.expectEqual(round == 2, pair.len > 0);
        for (0..2) |_| try testing.expect(pair.put("server", "peregrine") > 1);
        try pair.expect("server=peregrine;server=peregrine;");
    }
    try testing.expectEqual(null, (Encoder{}).memory);
}

test "the peer's table shrinks, goes and comes back" {
    var pair: Pair = .{};
    var prng: std.Random.DefaultPrng = .init(3);
    const random = prng.random();
    for (0..2_000) |_| {
        for (0..random.uintLessThan(usize, 3)) |_| {
            const sizes = [_]u32{ 0, 1, 33, 64, 100, 1000, 1023, 1024, 1025, 4096, 65_536 };
            pair.encoder.setTableSize(sizes[random.uintLessThan(usize, sizes.len)]);
        }
        if (random.uintLessThan(u8, 16) == 0) _ = pair.encoder.takeBack();
        pair.start();
        try testing.expect(pair.len <= resizes_bytes_max);
        var expected: [2048]u8 = undefined;
        var writer: std.Io.Writer = .fixed(&expected);
        for (0..random.uintLessThan(usize, 8)) |_| {
            const names = [_][]const u8{ "date", "server", "x-a", "x-b", "vary", "etag", "content-type" };
            const name = names[random.uintLessThan(usize, names.len)];
            var text: [40]u8 = @splat('a');
            text[39] += random.uintLessThan(u8, 4);
            const value = text[random.uintLessThan(usize, 40)..];
            _ = pair.put(name, value);
            try writer.print("{s}={s};", .{ name, value });
        }
        try pair.expect(writer.buffered());
        // A decoder refuses a block that exceeds the allowed size.
        try testing.expect(pair.decoder.table.size_max <= @max(pair.encoder.allowed, pair.encoder.told));
    }
}

test "status codes, and fields without a table" {
    var out: [64]u8 = undefined;
    try testing.expectEqualStrings("\x88", out[0..Encoder.putStatus(200, &out)]);
    try testing.expectEqualStrings("\x08\x03103", out[0..Encoder.putStatus(103, &out)]);
    try testing.expectEqualStrings("\x00\x01x\x01y", out[0..stateless(.other, "X", "y", &out)]);
    const len = stateless(.content_length, "Content-Length", "5", &out);
    try testing.expectEqualStrings("\x0f\x0d\x015", out[0..len]);
}
