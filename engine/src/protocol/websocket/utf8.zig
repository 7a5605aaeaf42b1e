//! Incremental UTF-8 validation (RFC 3629), as RFC 6455 section 8.1 demands for text messages and close
//! reasons. Does not know: frames, messages and senders. Nothing is decoded: there are no code points here.
const std = @import("std");
const assert = std.debug.assert;

const lanes = std.simd.suggestVectorLength(u8) orelse 16;
const Lanes = @Vector(lanes, u8);

/// The state of a check between the pieces of a text. Three bytes, so a copy costs nothing.
/// cost.
pub const Validator = struct {
    /// The number of missing continuation bytes of the current sequence.
    owed: u2 = 0,
    /// The range of the next continuation byte. It is narrower than 80..BF only after some lead bytes, which
    /// refuses overlong forms (E0, F0), surrogates (ED) and code points above 10FFFF (F4) at the earliest
    /// possible byte.
    low: u8 = 0x80,
    high: u8 = 0xBF,

    /// Checks the next piece of a text. Null: the text so far is a prefix of valid UTF-8. Otherwise returns
    /// the index in `bytes` of the first byte at which the text cannot become valid; then the validator must
    /// not be used for this text any more.
    pub fn feed(v: *Validator, bytes: []const u8) ?usize {
        var at: usize = 0;
        while (at < bytes.len) {
            if (v.owed == 0) {
                at += asciiPrefix(bytes[at..]);
                if (at == bytes.len) break;
            }
            if (!v.step(bytes[at])) return at;
            at += 1;
        }
        return null;
    }

    /// Whether the text so far ends between two code points, so that it is complete.
    pub fn complete(v: Validator) bool {
        return v.owed == 0;
    }

    fn step(v: *Validator, byte: u8) bool {
        if (v.owed == 0) return v.begin(byte);
        if (byte < v.low or byte > v.high) return false;
        v.owed -= 1;
        v.low = 0x80;
        v.high = 0xBF;
        return true;
    }

    fn begin(v: *Validator, lead: u8) bool {
        assert(v.low == 0x80 and v.high == 0xBF);
        switch (lead) {
            0x00...0x7F => {},
            0xC2...0xDF => v.owed = 1,
            0xE0...0xEF => {
                v.owed = 2;
                if (lead == 0xE0) v.low = 0xA0;
                if (lead == 0xED) v.high = 0x9F;
            },
            0xF0...0xF4 => {
                v.owed = 3;
                if (lead == 0xF0) v.low = 0x90;
                if (lead == 0xF4) v.high = 0x8F;
            },
            else => return false,
        }
        return true;
    }
};

/// Whether `bytes` is a complete, valid text.
pub fn valid(bytes: []const u8) bool {
    var v: Validator = .{};
    return v.feed(bytes) == null and v.complete();
}

/// Returns the number of ASCII bytes at the beginning.
fn asciiPrefix(bytes: []const u8) usize {
    var at: usize = 0;
    // A text with few ASCII characters causes a call per character, which should not load a vector.
    if (bytes.len == 0 or bytes[0] >= 0x80) return 0;
    while (bytes.len - at >= lanes) : (at += lanes) {
        const block: Lanes = bytes[at..][0..lanes].*;
        const high: @Int(.unsigned, lanes) = @bitCast(block >= @as(Lanes, @splat(0x80)));
        if (high != 0) return at + @ctz(high);
    }
    return at + asciiPrefixScalar(bytes[at..]);
}

fn asciiPrefixScalar(bytes: []const u8) usize {
    for (bytes, 0..) |byte, at| if (byte >= 0x80) return at;
    return bytes.len;
}

const testing = std.testing;
const ascii: [200]u8 = @splat('a');

fn firstBad(bytes: []const u8) ?usize {
    var v: Validator = .{};
    return v.feed(bytes);
}

test "well-formed texts" {
    const texts = [_][]const u8{
        "",                  "a",        "\x00",     "\x7f",     "\u{80}",    "\u{7ff}", "\u{800}",
        "\u{d7ff}",          "\u{e000}", "\u{fffd}", "\u{ffff}", "\u{10000}",
        "κόσμε",
        "\u{10ffff}",
        "Hello-µ@ßöäüàá-",
        "日本語 text 🜁",
        "\u{fdd0}\u{1fffe}",
        ascii ++ "é",
    };
    for (texts) |text| try testing.expect(valid(text));
}

test "the first byte that cannot be repaired is named" {
    const Case = struct { []const u8, usize };
    const cases = [_]Case{
        .{ "\x80", 0 },                  .{ "\xbf", 0 },
        .{ "a\xc0\x80", 1 },             .{ "\xc1\xbf", 0 },
        .{ "\xe0\x80\x80", 1 },          .{ "\xe0\x9f\xbf", 1 },
        .{ "\xed\xa0\x80", 1 },          .{ "\xed\xbf\xbf", 1 },
        .{ "\xf0\x80\x80\x80", 1 },      .{ "\xf0\x8f\xbf\xbf", 1 },
        .{ "\xf4\x90\x80\x80", 1 },      .{ "\xf5\x80\x80\x80", 0 },
        .{ "\xf8\x88\x80\x80\x80", 0 },  .{ "\xfe", 0 },
        .{ "\xff", 0 },                  .{ "\xce\xce", 1 },
        .{ "\xe1\x80\x41", 2 },          .{ "\xf1\x80\x80\x41", 3 },
        .{ ascii ++ "\xff", ascii.len },
        // Autobahn 6.4: "κόσμε", and then a code point above 10FFFF, which shows at its second byte.
        .{ "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80edited", 12 },
    };
    for (cases) |case| try testing.expectEqual(@as(?usize, case[1]), firstBad(case[0]));
}

test "a cut text is not an error, but it is not complete" {
    for ([_][]const u8{ "\xc2", "\xe1\x80", "\xf1\x80\x80", "ok\xf4" }) |text| {
        try testing.expectEqual(@as(?usize, null), firstBad(text));
        try testing.expect(!valid(text));
    }
}

test "three byte strings (which begin with every shorter one) agree with std" {
    var text: [3]u8 = undefined;
    for (0..1 << 24) |n| {
        // All pairs; the third byte varies only after lead bytes for which it matters, to keep the test
        // short.
        std.mem.writeInt(u24, &text, @intCast(n), .big);
        if (text[0] < 0xE0 and text[2] != 0x41) continue;
        if (text[0] >= 0xE0 and text[2] % 16 != 0 and text[2] % 16 != 15) continue;
        try testing.expectEqual(std.unicode.utf8ValidateSlice(&text), valid(&text));
    }
}

test "four byte sequences agree with std at the borders" {
    const borders = [_]u8{ 0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc2, 0xff };
    for (0xee..0x100) |lead| for (borders) |b| for (borders) |c| for (borders) |d| {
        const text = [_]u8{ @intCast(lead), b, c, d };
        try testing.expectEqual(std.unicode.utf8ValidateSlice(&text), valid(&text));
    };
}

test "split points do not matter, and vector and scalar agree" {
    var random = std.Random.DefaultPrng.init(0x7e57);
    var text: [150]u8 = undefined;
    for (0..400) |round| {
        for (&text) |*byte| byte.* = random.random().uintLessThan(u8, 0x80);
        if (round % 4 != 0) text[random.random().uintLessThan(usize, text.len)] = random.random().int(u8);
        if (round % 4 == 2) text[60..63].* = "\u{20ac}".*;
        const whole = firstBad(&text);
        for (0..text.len + 1) |cut| {
            var v: Validator = .{};
            const first = v.feed(text[0..cut]);
            const bad = first orelse if (v.feed(text[cut..])) |at| at + cut else null;
            try testing.expectEqual(whole, bad);
            try testing.expectEqual(asciiPrefixScalar(text[cut..]), asciiPrefix(text[cut..]));
        }
    }
}
