//! Numbers of HPACK: a small number is in the last bits of a byte, a larger one continues in groups of seven
//! bits (RFC 7541 section 5.1). Does not know: the meaning of numbers.
const std = @import("std");

/// The largest number that is read: no accepted length, index or size is larger.
pub const max = std.math.maxInt(u28);

/// The maximum length of a number, in bytes.
pub const bytes_max = 6;

/// Reads a number that begins in the last `bits` bits of the byte at `at.*`, and moves `at.*` behind it.
/// Null: it is incomplete, larger than `max`, or longer than `bytes_max`.
pub inline fn read(bytes: []const u8, at: *usize, comptime bits: u4) ?u32 {
    const mask = (1 << bits) - 1;
    if (at.* >= bytes.len) return null;
    const first = bytes[at.*] & mask;
    at.* += 1;
    return if (first < mask) first else readRest(bytes, at, mask);
}

fn readRest(bytes: []const u8, at: *usize, first: u32) ?u32 {
    var value: u64 = first;
    var shift: u6 = 0;
    while (shift <= 28) : (shift += 7) {
        if (at.* >= bytes.len) return null;
        const byte = bytes[at.*];
        at.* += 1;
        value += @as(u64, byte & 0x7f) << shift;
        if (byte & 0x80 == 0) return if (value <= max) @intCast(value) else null;
    }
    return null;
}

/// Writes a number after the first bits of a byte, which are `pattern`; returns the number of bytes.
pub inline fn write(out: []u8, pattern: u8, comptime bits: u4, value: usize) usize {
    const mask = (1 << bits) - 1;
    if (value < mask) {
        out[0] = pattern | @as(u8, @intCast(value));
        return 1;
    }
    out[0] = pattern | mask;
    var rest = value - mask;
    var len: usize = 1;
    while (rest >= 0x80) : (rest >>= 7) {
        out[len] = 0x80 | @as(u8, @truncate(rest & 0x7f));
        len += 1;
    }
    out[len] = @intCast(rest);
    return len + 1;
}

const testing = std.testing;

test "examples of RFC 7541 appendix C.1" {
    var out: [bytes_max]u8 = undefined;
    try testing.expectEqualStrings("\x0a", out[0..write(&out, 0, 5, 10)]);
    try testing.expectEqualStrings("\x1f\x9a\x0a", out[0..write(&out, 0, 5, 1337)]);
    try testing.expectEqualStrings("\x2a", out[0..write(&out, 0, 8, 42)]);
    var at: usize = 0;
    try testing.expectEqual(10, read("\xea", &at, 5));
    at = 0;
    try testing.expectEqual(1337, read("\x1f\x9a\x0a", &at, 5));
    try testing.expectEqual(3, at);
    at = 0;
    try testing.expectEqual(42, read("\x2a", &at, 8));
}

test "integers are read as they were written" {
    var out: [bytes_max]u8 = undefined;
    for ([_]u32{ 0, 1, 14, 15, 16, 30, 31, 32, 126, 127, 128, 254, 255, 256, 16_383, 1 << 20, max }) |value| {
        inline for (.{ 4, 5, 6, 7 }) |bits| {
            const len = write(&out, 0x80, bits, value);
            var at: usize = 0;
            try testing.expectEqual(value, read(out[0..len], &at, bits));
            try testing.expectEqual(len, at);
            at = 0;
            try testing.expectEqual(null, read(out[0 .. len - 1], &at, bits));
        }
    }
}

test "numbers that are too large or too long" {
    for ([_][]const u8{
        "\x7f\x81\xff\xff\x7f", // max + 1
        "\x7f\xff\xff\xff\xff\x0f",
        "\x7f\x80\x80\x80\x80\x80\x00",
        "\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    }) |bytes| {
        var at: usize = 0;
        try testing.expectEqual(null, read(bytes, &at, 7));
    }
    var at: usize = 0;
    try testing.expectEqual(127, read("\x7f\x80\x80\x80\x80\x00", &at, 7));
}
