//! The query of a request: names and values, as they came or decoded (WHATWG URL standard,
//! application/x-www-form-urlencoded). Does not know: where the text comes from, and who keeps decoded text.
const std = @import("std");
const percentDecode = @import("protocol").http.target.percentDecode;

/// Walks the pairs of a query or of an urlencoded form. Nothing is decoded, nothing is copied.
pub const Pairs = struct {
    rest: []const u8,

    /// `value` is null for a bare name ("?debug").
    pub const Pair = struct { name: []const u8, value: ?[]const u8 };

    /// `text`: the part of a target behind the "?".
    pub fn init(text: []const u8) Pairs {
        return .{ .rest = text };
    }

    /// The next pair, or null at the end. Empty pieces ("a=1&&b=2") are passed over.
    pub fn next(pairs: *Pairs) ?Pair {
        while (pairs.rest.len > 0) {
            const end = std.mem.findScalar(u8, pairs.rest, '&') orelse pairs.rest.len;
            const piece = pairs.rest[0..end];
            pairs.rest = pairs.rest[@min(end + 1, pairs.rest.len)..];
            if (piece.len == 0) continue;
            const split = std.mem.findScalar(u8, piece, '=') orelse return .{ .name = piece, .value = null };
            return .{ .name = piece[0..split], .value = piece[split + 1 ..] };
        }
        return null;
    }
};

/// Whether `decode` may change `text`.
pub fn isEncoded(text: []const u8) bool {
    return std.mem.findAny(u8, text, "%+") != null;
}

/// Replaces "+" by a space and "%xx" by its byte; a broken "%" stays. `out` holds at least `text.len` bytes;
/// the result is its filled part.
pub fn decode(text: []const u8, out: []u8) []u8 {
    @memcpy(out[0..text.len], text);
    std.mem.replaceScalar(u8, out[0..text.len], '+', ' ');
    return percentDecode(out[0..text.len], out);
}

/// Whether an encoded text stands for `plain`. Compares without a copy.
pub fn equals(encoded: []const u8, plain: []const u8) bool {
    if (!isEncoded(encoded)) return std.mem.eql(u8, encoded, plain);
    var at: usize = 0;
    var matched: usize = 0;
    while (at < encoded.len) : (matched += 1) {
        // Character by character: "%xx" takes three bytes, everything else one.
        const width: usize = if (encoded[at] == '%') @min(3, encoded.len - at) else 1;
        var space: [3]u8 = undefined;
        const decoded = decode(encoded[at..][0..width], &space);
        if (matched == plain.len or decoded[0] != plain[matched]) return false;
        at += if (decoded.len == 1) width else 1;
    }
    return matched == plain.len;
}

const testing = std.testing;

test "pairs, bare names, empty pieces" {
    var pairs: Pairs = .init("a=1&flag&&b=x=y&=z&c=");
    const expected = [_]Pairs.Pair{
        .{ .name = "a", .value = "1" },
        .{ .name = "flag", .value = null },
        .{ .name = "b", .value = "x=y" },
        .{ .name = "", .value = "z" },
        .{ .name = "c", .value = "" },
    };
    for (expected) |want| {
        const got = pairs.next().?;
        try testing.expectEqualStrings(want.name, got.name);
        try testing.expectEqual(want.value == null, got.value == null);
        if (want.value) |value| try testing.expectEqualStrings(value, got.value.?);
    }
    try testing.expectEqual(null, pairs.next());
    var none: Pairs = .init("");
    try testing.expectEqual(null, none.next());
}

test "decode, and equals without a copy, agree" {
    const cases = [_][2][]const u8{
        .{ "plain", "plain" }, .{ "a+b", "a b" }, .{ "%41%2b+", "A+ " }, .{ "100%", "100%" },
        .{ "%zz%4", "%zz%4" }, .{ "", "" },
    };
    for (cases) |case| {
        var buffer: [32]u8 = undefined;
        try testing.expectEqualStrings(case[1], decode(case[0], &buffer));
        try testing.expect(equals(case[0], case[1]));
        try testing.expect(!equals(case[0], "other"));
        try testing.expect(!equals("x%41", case[1]));
    }
    try testing.expect(!equals("%41", "AB"));
    try testing.expect(!equals("%41B", "A"));
}
