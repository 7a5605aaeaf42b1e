//! Fuzz target `utf8`: the validator against the standard library's, whole and in pieces.
const std = @import("std");
const Cuts = @import("cuts.zig").Cuts;
const utf8 = @import("protocol").websocket.utf8;
const testing = std.testing;

pub fn run(input: []const u8) !void {
    const valid = std.unicode.utf8ValidateSlice(input);
    try testing.expectEqual(valid, utf8.valid(input));
    const whole = read(input, .whole);
    if (valid) try testing.expectEqual(null, whole);
    if (whole) |bad| {
        // The bytes before the offending one can still become a text; together with it they cannot.
        try testing.expect(canGoOn(input[0..bad]));
        try testing.expect(!canGoOn(input[0 .. bad + 1]));
    } else try testing.expect(canGoOn(input));
    try testing.expectEqual(whole, read(input, .bytes));
    try testing.expectEqual(whole, read(input, .seeded(std.hash.Wyhash.hash(0, input))));
}

fn read(input: []const u8, way: Cuts) ?usize {
    var cuts = way;
    var validator: utf8.Validator = .{};
    var at: usize = 0;
    while (at < input.len) {
        const piece = input[at..][0..cuts.next(input.len - at)];
        if (validator.feed(piece)) |bad| return at + bad;
        at += piece.len;
    }
    return null;
}

/// Whether some bytes behind `text` make it valid: none, or continuation bytes. Tried, not reasoned.
fn canGoOn(text: []const u8) bool {
    if (std.unicode.utf8ValidateSlice(text)) return true;
    // All that matters is the sequence begun last; what comes before it must be complete.
    for (1..@as(usize, @min(3, text.len)) + 1) |tail| {
        const cut = text.len - tail;
        if (!std.unicode.utf8ValidateSlice(text[0..cut])) continue;
        var sequence: [4]u8 = undefined;
        @memcpy(sequence[0..tail], text[cut..]);
        for ([_]u8{ 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf }) |second| {
            if (tail == 1) sequence[1] = second;
            @memset(sequence[@max(tail, 2)..], 0x80);
            for (tail + 1..sequence.len + 1) |len| {
                if (std.unicode.utf8ValidateSlice(sequence[0..len])) return true;
            }
        }
    }
    return false;
}
