//! The Huffman code of HPACK (RFC 7541 section 5.2 and appendix B), in both directions. Does not know: the
//! purpose of strings.
//!
//! The code is canonical: shorter codes come first, and among codes of equal length smaller bytes. So the
//! code follows from the lengths, and the compiler makes the tables from them.
const std = @import("std");
const assert = std.debug.assert;

/// Reasons why a string cannot be decoded.
pub const Error = error{
    /// A code without a byte, or padding that is longer than a byte's rest or not all ones.
    Malformed,
    /// The string has more bytes than there is room for.
    TooLong,
};

/// The length of each byte's code in bits, and of the end of a string (EOS, 256), which never occurs as a
/// whole.
const lengths = [257]u8{
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6,  10, 10, 12, 13, 6,  8,  11, 10, 10, 8,  11, 8,  6,  6,  6,
    5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  7,  8,  15, 6,  12, 10, 13, 6,  7,  7,  7,  7,  7,  7,
    7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8,  13, 19, 13, 14, 6,
    15, 5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,  6,  7,  6,  5,  5,  6,  7,  7,
    7,  7,  7,  15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
};

const eos = 256;
const length_max = 30;

/// Codes up to this length are found by one look-up in a table. All bytes that are frequent in fields have
/// such codes, except one.
const short_max = 8;

const Tables = struct {
    codes: [257]u32,
    /// All symbols, in the order of their codes.
    sorted: [257]u16,
    /// For each length: the end of its codes, shifted to the left of 32 bits.
    ends: [length_max + 1]u64,
    /// For each length: the index that code zero would have in `sorted`.
    bases: [length_max + 1]i64,
};

const tables: Tables = made: {
    @setEvalBranchQuota(100_000);
    var made: Tables = undefined;
    var code: u64 = 0;
    var place: usize = 0;
    for (0..length_max + 1) |length| {
        code <<= 1;
        made.bases[length] = @as(i64, place) - @as(i64, code);
        for (lengths, 0..) |its, symbol| {
            if (its != length or length == 0) continue;
            made.codes[symbol] = code;
            made.sorted[place] = symbol;
            code += 1;
            place += 1;
        }
        made.ends[length] = code << (32 - length);
    }
    assert(place == 257 and code == 1 << length_max);
    break :made made;
};

/// The byte whose code begins a window of bits. `len` 0: the code is longer than the window.
const Short = struct { symbol: u8 = 0, len: u8 = 0 };

const shorts: [1 << short_max]Short = made: {
    @setEvalBranchQuota(100_000);
    var made: [1 << short_max]Short = @splat(.{});
    for (lengths[0..256], 0..) |len, symbol| {
        if (len > short_max) continue;
        const first = tables.codes[symbol] << (short_max - len);
        for (made[first..][0 .. 1 << (short_max - len)]) |*short| short.* = .{ .symbol = symbol, .len = len };
    }
    break :made made;
};

/// Bits that were read and not decoded, the next one on the left, followed by zeros.
const Window = struct {
    bits: u64 = 0,
    count: u32 = 0,

    /// Returns the next byte; null: its code is longer than the remaining bits.
    inline fn next(window: *Window) Error!?u8 {
        const short = shorts[@intCast(window.bits >> (64 - short_max))];
        if (short.len != 0) {
            if (short.len > window.count) return null;
            window.skip(short.len);
            return short.symbol;
        }
        return window.nextLong();
    }

    noinline fn nextLong(window: *Window) Error!?u8 {
        const left = window.bits >> 32;
        var length: u6 = short_max + 1;
        while (left >= tables.ends[length]) length += 1;
        if (length > window.count) return null;
        const code: i64 = @intCast(left >> (32 - length));
        const symbol = tables.sorted[@intCast(tables.bases[length] + code)];
        if (symbol == eos) return error.Malformed;
        window.skip(length);
        return @intCast(symbol);
    }

    inline fn skip(window: *Window, count: u32) void {
        window.bits <<= @intCast(count);
        window.count -= count;
    }

    /// Whether the bits after the last byte are padding: fewer than eight, all ones.
    fn isPadding(window: *const Window) bool {
        if (window.count >= 8) return false;
        const ones = (@as(u64, 1) << @intCast(window.count)) - 1;
        return window.count == 0 or window.bits >> @intCast(64 - window.count) == ones;
    }
};

/// Decodes a whole string into `out`, and returns the filled part.
pub fn decode(in: []const u8, out: []u8) Error![]u8 {
    var window: Window = .{};
    var at: usize = 0;
    var len: usize = 0;
    // Eight bytes fill the window to at least 56 bits, which contain seven short codes.
    while (in.len - at >= 8 and out.len - len >= 7) {
        window.bits |= std.mem.readInt(u64, in[at..][0..8], .big) >> @intCast(window.count);
        at += (63 - window.count) >> 3;
        window.count |= 56;
        // Bits after the counted ones are read again with the next eight bytes.
        window.bits &= ~(@as(u64, std.math.maxInt(u64)) >> @intCast(window.count));
        var shorts_in_a_row: u32 = 0;
        while (shorts_in_a_row < 7) : (shorts_in_a_row += 1) {
            const short = shorts[@intCast(window.bits >> (64 - short_max))];
            if (short.len == 0) break;
            out[len] = short.symbol;
            len += 1;
            window.skip(short.len);
        }
        if (shorts_in_a_row < 7) {
            if (try window.next()) |byte| {
                out[len] = byte;
                len += 1;
            }
        }
    }
    while (true) {
        while (window.count <= 56 and at < in.len) : (at += 1) {
            window.bits |= @as(u64, in[at]) << @intCast(56 - window.count);
            window.count += 8;
        }
        const byte = try window.next() orelse break;
        if (len == out.len) return error.TooLong;
        out[len] = byte;
        len += 1;
    }
    return if (at == in.len and window.isPadding()) out[0..len] else error.Malformed;
}

/// The length of the code of a byte, in bits.
pub fn bitsOf(byte: u8) u8 {
    return lengths[byte];
}

/// Returns the length of the encoded `text`, in bytes.
pub fn encodedSize(text: []const u8) usize {
    var bits: usize = 0;
    for (text) |byte| bits += lengths[byte];
    return (bits + 7) / 8;
}

/// Encodes `text`; returns the number of bytes. `out` has at least encodedSize(text) bytes.
pub fn encode(text: []const u8, out: []u8) usize {
    var bits: u64 = 0;
    var count: u32 = 0;
    var len: usize = 0;
    for (text) |byte| {
        bits = bits << @intCast(lengths[byte]) | tables.codes[byte];
        count += lengths[byte];
        while (count >= 8) {
            count -= 8;
            out[len] = @truncate(bits >> @intCast(count));
            len += 1;
        }
    }
    if (count > 0) {
        const pad: u3 = @intCast(8 - count);
        out[len] = @as(u8, @truncate(bits << pad)) | ((@as(u8, 1) << pad) - 1);
        len += 1;
    }
    return len;
}

const testing = std.testing;

/// Decodes bit by bit, for tests of `decode`.
fn decodePlain(in: []const u8, out: []u8) Error![]u8 {
    var code: u32 = 0;
    var length: u32 = 0;
    var ones: u32 = 0;
    var len: usize = 0;
    for (in) |byte| {
        var mask: u8 = 0x80;
        bits: while (mask != 0) : (mask >>= 1) {
            const bit = @intFromBool(byte & mask != 0);
            code = code << 1 | bit;
            length += 1;
            ones = if (bit == 1) ones + 1 else 0;
            for (lengths, tables.codes, 0..) |its, its_code, symbol| {
                if (its != length or its_code != code) continue;
                if (symbol == eos) return error.Malformed;
                if (len == out.len) return error.TooLong;
                out[len] = @intCast(symbol);
                len += 1;
                code = 0;
                length = 0;
                continue :bits;
            }
            if (length > length_max) return error.Malformed;
        }
    }
    return if (length < 8 and ones >= length) out[0..len] else error.Malformed;
}

test "strings of RFC 7541 appendix C" {
    for ([_]struct { []const u8, []const u8 }{
        .{ "www.example.com", "\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff" },
        .{ "no-cache", "\xa8\xeb\x10\x64\x9c\xbf" },
        .{ "custom-value", "\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf" },
        .{ "302", "\x64\x02" },
        .{ "", "" },
    }) |case| {
        const text, const code = case;
        var out: [64]u8 = undefined;
        try testing.expectEqual(code.len, encodedSize(text));
        try testing.expectEqualStrings(code, out[0..encode(text, out[0..code.len])]);
        try testing.expectEqualStrings(text, try decode(code, &out));
        try testing.expectEqualStrings(text, try decode(code, out[0..text.len]));
        if (text.len > 0) try testing.expectError(error.TooLong, decode(code, out[0 .. text.len - 1]));
    }
}

test "paddings and codes that are none" {
    var out: [64]u8 = undefined;
    for ([_][]const u8{
        "\x00", // '0' and three zeros
        "\x64\x02\xff", // a whole byte of padding
        "\xff", // only padding
        "\xff\xff\xff\xff", // the end of a string
        "\xff\xff\xff\xfc", // the end of a string, and no more bits
        "\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xfe",
        "\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff\xff",
    }) |bad| {
        try testing.expectError(error.Malformed, decode(bad, &out));
        try testing.expectError(error.Malformed, decodePlain(bad, &out));
    }
}

test "each byte, alone and among others" {
    var text: [3 * 256]u8 = undefined;
    for (0..256) |byte| text[3 * byte ..][0..3].* = .{ 'a', @intCast(byte), 'Z' };
    var code: [4 * text.len]u8 = undefined;
    var out: [text.len]u8 = undefined;
    for (0..256) |byte| {
        const one = text[3 * byte + 1 ..][0..1];
        const encoded = code[0..encode(one, &code)];
        try testing.expectEqualStrings(one, try decode(encoded, &out));
    }
    const encoded = code[0..encode(&text, &code)];
    try testing.expectEqual(encoded.len, encodedSize(&text));
    try testing.expectEqualStrings(&text, try decode(encoded, &out));
}

test "any bytes decode as they do bit by bit" {
    var prng: std.Random.DefaultPrng = .init(7541);
    const random = prng.random();
    for (0..20_000) |_| {
        var in: [40]u8 = undefined;
        const bytes = in[0..random.uintAtMost(usize, in.len)];
        random.bytes(bytes);
        // Long codes are rare in random bits.
        for (bytes) |*byte| if (random.uintLessThan(u8, 4) == 0) {
            byte.* = 0xff;
        };
        var first: [64]u8 = undefined;
        var second: [64]u8 = undefined;
        const room = random.uintAtMost(usize, 64);
        const expected = decodePlain(bytes, second[0..room]);
        if (expected) |text| {
            try testing.expectEqualStrings(text, try decode(bytes, first[0..room]));
        } else |err| try testing.expectError(err, decode(bytes, first[0..room]));
    }
}
