//! Byte classes, vector search for them, and small grammars that all fields share (RFC 9110 section 5.6).
//! Does not know: the fields or lines of the bytes.
const std = @import("std");
const assert = std.debug.assert;

/// Sets of bytes that end a search.
pub const Class = enum {
    /// Controls except HTAB, which no field value may contain; so they also end a field line.
    control,
    /// Controls and space, which no request target may contain; so they also end it.
    blank,
    /// `blank`, and the bytes with a meaning within a path: `?`, `#`, `%`.
    path_mark,
    /// `blank`, and the byte that a query must not contain: `#`.
    query_mark,
    /// The byte that ends a field name.
    colon,
    /// Bytes that are rare in a token: all except letters, digits, `-` and `_`.
    token_rare,
    /// Bytes that are rare in a host name or an IPv4 address: all except letters, digits, `-` and `.`.
    host_rare,

    pub fn has(comptime class: Class, byte: u8) bool {
        return switch (class) {
            .control => (byte < 0x20 and byte != '\t') or byte == 0x7f,
            .blank => byte <= 0x20 or byte == 0x7f,
            .path_mark => Class.blank.has(byte) or byte == '?' or byte == '#' or byte == '%',
            .query_mark => Class.blank.has(byte) or byte == '#',
            .colon => byte == ':',
            .token_rare => !std.ascii.isAlphanumeric(byte) and byte != '-' and byte != '_',
            .host_rare => !std.ascii.isAlphanumeric(byte) and byte != '-' and byte != '.',
        };
    }

    /// Returns a mask of a block's bytes that belong to the class.
    pub inline fn hits(
        comptime class: Class,
        comptime width: usize,
        block: @Vector(width, u8),
    ) @Vector(width, bool) {
        const Block = @Vector(width, u8);
        const is = struct {
            inline fn equal(v: Block, byte: u8) @Vector(width, bool) {
                return v == @as(Block, @splat(byte));
            }
            inline fn alphanumeric(v: Block) @Vector(width, bool) {
                const folded = v | @as(Block, @splat(0x20));
                const letter = folded -% @as(Block, @splat('a')) < @as(Block, @splat(26));
                return letter | (v -% @as(Block, @splat('0')) < @as(Block, @splat(10)));
            }
        };
        return switch (class) {
            .control => ((block < @as(Block, @splat(0x20))) & (block != @as(Block, @splat('\t')))) |
                is.equal(block, 0x7f),
            .blank => (block <= @as(Block, @splat(0x20))) | is.equal(block, 0x7f),
            .path_mark => Class.blank.hits(width, block) | is.equal(block, '?') | is.equal(block, '#') |
                is.equal(block, '%'),
            .query_mark => Class.blank.hits(width, block) | is.equal(block, '#'),
            .colon => is.equal(block, ':'),
            .token_rare => !(is.alphanumeric(block) | is.equal(block, '-') | is.equal(block, '_')),
            .host_rare => !(is.alphanumeric(block) | is.equal(block, '-') | is.equal(block, '.')),
        };
    }
};

/// The number of bytes per vector: the machine's, but at most 32, because the lines of a head are short.
pub const block_bytes = @min(32, std.simd.suggestVectorLength(u8) orelse 16);

/// Returns the index of the first byte of `class` in `bytes` at or after `from`; bytes.len: there is none.
pub fn find(comptime class: Class, bytes: []const u8, from: usize) usize {
    assert(from <= bytes.len);
    return findBlocks(class, block_bytes, bytes, from);
}

/// The scalar twin of `find`: the same result, one byte at a time.
pub fn findScalar(comptime class: Class, bytes: []const u8, from: usize) usize {
    for (bytes[from..], from..) |byte, at| {
        if (class.has(byte)) return at;
    }
    return bytes.len;
}

fn findBlocks(comptime class: Class, comptime width: usize, bytes: []const u8, from: usize) usize {
    const Mask = @Int(.unsigned, width);
    if (bytes.len < width) {
        if (width > short_bytes) return findBlocks(class, width / 2, bytes, from);
        const mask: Mask = @bitCast(class.hits(width, padded(bytes)));
        const seen = mask >> @truncate(from);
        return if (seen != 0 and from < bytes.len) @min(from + @ctz(seen), bytes.len) else bytes.len;
    }
    var at = from;
    while (bytes.len - at >= width) : (at += width) {
        const mask: Mask = @bitCast(class.hits(width, bytes[at..][0..width].*));
        if (mask != 0) return at + @ctz(mask);
    }
    if (at == bytes.len) return at;
    // The rest is shorter than a block: search the last block of the bytes, and shift out the part that was
    // searched before.
    const base = bytes.len - width;
    const mask: Mask = @as(Mask, @bitCast(class.hits(width, bytes[base..][0..width].*))) >>
        @intCast(at - base);
    return if (mask != 0) at + @ctz(mask) else bytes.len;
}

/// The smallest block, in bytes; shorter texts are padded.
const short_bytes = 16;

/// Makes a block of fewer than 16 bytes and zeros, from two overlapping words instead of byte by byte.
inline fn padded(bytes: []const u8) @Vector(short_bytes, u8) {
    const len = bytes.len;
    assert(len < short_bytes);
    const word: u128 = if (len >= 8)
        head(u64, bytes) | @as(u128, tail(u64, bytes)) << @intCast(8 * (len - 8))
    else if (len >= 4)
        head(u32, bytes) | @as(u64, tail(u32, bytes)) << @intCast(8 * (len - 4))
    else if (len > 0)
        bytes[0] | @as(u32, bytes[len / 2]) << @intCast(8 * (len / 2)) |
            @as(u32, bytes[len - 1]) << @intCast(8 * (len - 1))
    else
        0;
    return @bitCast(std.mem.nativeToLittle(u128, word));
}

inline fn head(comptime Word: type, bytes: []const u8) Word {
    return std.mem.readInt(Word, bytes[0..@sizeOf(Word)], .little);
}

inline fn tail(comptime Word: type, bytes: []const u8) Word {
    return std.mem.readInt(Word, bytes[bytes.len - @sizeOf(Word) ..][0..@sizeOf(Word)], .little);
}

const token_bytes: [256]bool = table: {
    var table: [256]bool = @splat(false);
    for ('0'..'9' + 1) |byte| table[byte] = true;
    for ('a'..'z' + 1) |byte| table[byte] = true;
    for ('A'..'Z' + 1) |byte| table[byte] = true;
    for ("!#$%&'*+-.^_`|~") |byte| table[byte] = true;
    break :table table;
};

/// Whether `byte` may be part of a token (RFC 9110 section 5.6.2).
pub inline fn isTokenByte(byte: u8) bool {
    return token_bytes[byte];
}

/// Whether `text` is a token: not empty, and only token bytes.
pub fn isToken(text: []const u8) bool {
    if (text.len == 0) return false;
    if (find(.token_rare, text, 0) == text.len) return true;
    for (text) |byte| if (!token_bytes[byte]) return false;
    return true;
}

/// Whether `text` may be sent as a field value: no controls except HTAB.
pub fn isFieldValue(text: []const u8) bool {
    return find(.control, text, 0) == text.len;
}

/// Returns `text` without surrounding spaces and tabs.
pub fn trim(text: []const u8) []const u8 {
    var start: usize = 0;
    var end = text.len;
    while (start < end and isSpace(text[start])) start += 1;
    while (end > start and isSpace(text[end - 1])) end -= 1;
    return text[start..end];
}

/// Optional whitespace (OWS): space or tab.
pub inline fn isSpace(byte: u8) bool {
    return byte == ' ' or byte == '\t';
}

/// Reasons why a text is not a 64-bit number.
pub const DecimalError = error{ NotANumber, Overflow };

/// Reads a number of decimal digits only: no sign, no space. A text with other bytes is NotANumber even if
/// its first digits overflow 64 bits.
pub fn parseDecimal(text: []const u8) DecimalError!u64 {
    if (text.len == 0) return error.NotANumber;
    var value: u64 = 0;
    if (text.len <= digits_max) {
        for (text) |byte| {
            const digit = byte -% '0';
            if (digit > 9) return error.NotANumber;
            value = value *% 10 +% digit;
        }
        return value;
    }
    var overflow = false;
    for (text) |byte| {
        const digit = byte -% '0';
        if (digit > 9) return error.NotANumber;
        const tenfold, const too_far = @mulWithOverflow(value, 10);
        value, const too_far_yet = @addWithOverflow(tenfold, digit);
        overflow = overflow or too_far | too_far_yet != 0;
    }
    return if (overflow) error.Overflow else value;
}

/// The number of digits of the largest u64.
pub const decimal_bytes_max = 20;

/// Writes the digits of a number to the end of `buffer` and returns them.
pub fn decimal(number: u64, buffer: *[decimal_bytes_max]u8) []const u8 {
    var at: usize = buffer.len;
    var rest = number;
    while (true) {
        at -= 1;
        buffer[at] = '0' + @as(u8, @intCast(rest % 10));
        rest /= 10;
        if (rest == 0) return buffer[at..];
    }
}

pub inline fn decimalSize(number: u64) usize {
    var size: usize = 1;
    var power: u64 = 10;
    while (number >= power and size < decimal_bytes_max) : (size += 1) power *|= 10;
    return size;
}

/// A number of at most this many digits cannot overflow 64 bits.
const digits_max = 19;

/// Whether `text` equals `lower`, ignoring case. `lower` is a literal without capitals, of two bytes or more.
/// For the hot path: compares words, of which the last overlaps the one before. Only letters are folded:
/// folding `-` would make it equal to CR, so that a text equal to a known token might not be a token.
pub inline fn equalsFolded(text: []const u8, comptime lower: []const u8) bool {
    if (text.len != lower.len) return false;
    const Word = if (lower.len >= 8) u64 else if (lower.len >= 4) u32 else u16;
    const size = @sizeOf(Word);
    comptime var at: usize = 0;
    inline while (true) {
        const expected, const fold = comptime words: {
            var bits: [size]u8 = undefined;
            for (&bits, lower[at..][0..size]) |*bit, byte| bit.* = if (byte >= 'a' and byte <= 'z')
                0x20
            else
                0;
            break :words .{
                std.mem.readInt(Word, lower[at..][0..size], .little), std.mem.readInt(Word, &bits, .little),
            };
        };
        if (std.mem.readInt(Word, text[at..][0..size], .little) | fold != expected) return false;
        if (at + size == lower.len) return true;
        at = @min(at + size, lower.len - size);
    }
}

/// The members of a comma-separated list (RFC 9110 section 5.6.1), without surrounding whitespace. Empty
/// members are skipped, and commas in quoted strings do not separate. The members are slices of the value.
pub const List = struct {
    rest: []const u8,

    pub fn init(value: []const u8) List {
        return .{ .rest = value };
    }

    /// Returns the next member, never empty; null: the list is over.
    pub fn next(list: *List) ?[]const u8 {
        while (list.rest.len != 0) {
            const end = memberEnd(list.rest);
            const member = trim(list.rest[0..end]);
            list.rest = list.rest[@min(end + 1, list.rest.len)..];
            if (member.len != 0) return member;
        }
        return null;
    }

    /// Whether a list has a member that equals `lower_token`, ignoring case.
    pub fn has(value: []const u8, comptime lower_token: []const u8) bool {
        var list: List = .init(value);
        while (list.next()) |member| {
            if (equalsFolded(member, lower_token)) return true;
        }
        return false;
    }

    fn memberEnd(text: []const u8) usize {
        var quoted = false;
        var at: usize = 0;
        while (at < text.len) : (at += 1) {
            switch (text[at]) {
                '"' => quoted = !quoted,
                // The byte after a backslash stands for itself (a quoted pair).
                '\\' => at += @intFromBool(quoted),
                ',' => if (!quoted) return at,
                else => {},
            }
        }
        return text.len;
    }
};

test "find and its scalar twin agree at every length, start and position" {
    inline for (comptime std.enums.values(Class)) |class| {
        var buffer: [3 * block_bytes + 1]u8 = undefined;
        for (0..buffer.len + 1) |len| {
            const bytes = buffer[0..len];
            @memset(bytes, 'a');
            for (0..len + 1) |from| try std.testing.expectEqual(len, find(class, bytes, from));
            for (0..len) |at| {
                bytes[at] = if (class == .colon) ':' else 0x7f;
                if (class == .path_mark) bytes[at] = '%';
                for (0..len + 1) |from| {
                    const expected = if (from <= at) at else len;
                    try std.testing.expectEqual(expected, find(class, bytes, from));
                    try std.testing.expectEqual(expected, findScalar(class, bytes, from));
                }
                bytes[at] = 'a';
            }
        }
    }
}

test "find and its scalar twin agree on every byte value" {
    inline for (comptime std.enums.values(Class)) |class| {
        inline for (.{ 1, 3, 4, 7, 8, 15, 16, 17, 33, 64 }) |len| {
            var bytes: [len]u8 = @splat('a');
            for (0..len) |at| {
                for (0..256) |value| {
                    bytes[at] = @intCast(value);
                    try std.testing.expectEqual(findScalar(class, &bytes, 0), find(class, &bytes, 0));
                }
                bytes[at] = 'a';
            }
        }
    }
}

test "the classes are what they say" {
    try std.testing.expectEqual(3, find(.control, "a\tb\rc", 0));
    try std.testing.expectEqual(5, find(.control, "a\xff\x80 b", 0));
    try std.testing.expectEqual(1, find(.control, "a\x00", 0));
    try std.testing.expectEqual(1, find(.control, "a\x7f", 0));
    try std.testing.expectEqual(2, find(.blank, "/a b", 0));
    try std.testing.expectEqual(2, find(.path_mark, "/a?b", 0));
    try std.testing.expectEqual(4, find(.query_mark, "?a?%#", 0));
}

test "tokens" {
    for ([_][]const u8{ "GET", "x-y_z", "!#$%&'*+-.^_`|~09azAZ" }) |text| {
        try std.testing.expect(isToken(text));
    }
    for ([_][]const u8{
        "", " ", "a b", "a:", "a\r", "a\x00", "\x80", "\"a\"", "a/b", "(a)", "a=b", "a,b", "{a}", "a\x7f",
    }) |text| {
        try std.testing.expect(!isToken(text));
    }
    var count: usize = 0;
    for (0..256) |byte| count += @intFromBool(isTokenByte(@intCast(byte)));
    try std.testing.expectEqual(10 + 26 + 26 + 15, count);
}

test "equalsFolded agrees with the standard library" {
    const literals = .{
        "te", "dnt", "host", "close", "x-y_z09", "upgrade!", "keep-alive", "sec-websocket-key",
    };
    inline for (literals) |literal| {
        var text: [literal.len]u8 = literal.*;
        for (0..text.len) |at| {
            for (0..256) |byte| {
                text[at] = @intCast(byte);
                try std.testing.expectEqual(
                    std.ascii.eqlIgnoreCase(&text, literal),
                    equalsFolded(&text, literal),
                );
            }
            text[at] = std.ascii.toUpper(literal[at]);
        }
        try std.testing.expect(!equalsFolded(text[1..], literal) and !equalsFolded("", literal));
    }
}

test "decimal, both ways" {
    var buffer: [decimal_bytes_max]u8 = undefined;
    for ([_]u64{ 0, 9, 10, 6150, std.math.maxInt(u64) }) |number| {
        try std.testing.expectEqual(number, try parseDecimal(decimal(number, &buffer)));
    }
    var power: u64 = 1;
    for (1..decimal_bytes_max) |size| {
        try std.testing.expectEqual(size, decimalSize(power));
        try std.testing.expectEqual(size, decimalSize(power *| 10 - 1));
        power *|= 10;
    }
    try std.testing.expectEqual(1, decimalSize(0));
    try std.testing.expectEqual(20, decimalSize(power));
    try std.testing.expectEqual(20, decimalSize(std.math.maxInt(u64)));
    try std.testing.expectEqual(0, try parseDecimal("0"));
    try std.testing.expectEqual(7, try parseDecimal("007"));
    try std.testing.expectEqual(std.math.maxInt(u64), try parseDecimal("18446744073709551615"));
    try std.testing.expectError(error.Overflow, parseDecimal("18446744073709551616"));
    try std.testing.expectError(error.Overflow, parseDecimal("99999999999999999999999"));
    for ([_][]const u8{
        "", "+1", "-1", " 1", "1 ", "0x1", "1.0", "99999999999999999999999x", "\xb2",
    }) |text| {
        try std.testing.expectError(error.NotANumber, parseDecimal(text));
    }
}

test "list" {
    var list: List = .init(" , close ,\tkeep-alive,, \"a,\\\"b\" ; q=1,x\\,");
    for ([_][]const u8{ "close", "keep-alive", "\"a,\\\"b\" ; q=1", "x\\" }) |member| {
        try std.testing.expectEqualStrings(member, list.next().?);
    }
    try std.testing.expectEqual(null, list.next());
    try std.testing.expect(List.has("Keep-Alive, Upgrade", "upgrade"));
    try std.testing.expect(!List.has("Keep-Alive, Upgrades", "upgrade"));
    try std.testing.expect(!List.has("", "close"));
    // An unclosed quoted string extends to the end.
    try std.testing.expect(!List.has("\"a, close", "close"));
    try std.testing.expect(!List.has("\"\\", "close"));
}

test "trim" {
    try std.testing.expectEqualStrings("a \t b", trim("\t  a \t b \t"));
    try std.testing.expectEqualStrings("", trim(" \t "));
    try std.testing.expectEqualStrings("", trim(""));
}
