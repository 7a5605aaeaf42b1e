//! The place of an entry in a topic, as readers keep it and show it again when they come back.
//! Does not know: which entries there are (log.zig).
const std = @import("std");
const assert = std.debug.assert;

/// Names the history that a topic's offsets belong to: drawn anew when a history begins.
pub const Epoch = u48;

/// A digest of an entry and of all entries before it. A server that has lost acknowledged entries gives their
/// offsets to others; epoch and offset are the same then, and this is not.
pub const Check = u48;

/// The place of an entry in a history: the number of entries up to it, and its check.
pub const Mark = struct {
    offset: u64,
    check: Check,

    /// Before the first entry.
    pub const origin: Mark = .{ .offset = 0, .check = 0 };

    /// The mark of the entry behind this one, which a hub has published under this number.
    pub fn next(mark: Mark, hub: u48, sequence: u64) Mark {
        return .{ .offset = mark.offset + 1, .check = follow(mark.check, hub, sequence) };
    }
};

/// The check of the entry behind another one. The script in Redis (script.lua) does the same.
pub fn follow(check: Check, hub: u48, sequence: u64) Check {
    var buffer: [12 + 1 + 12 + 1 + 20]u8 = undefined;
    const text = std.fmt.bufPrint(
        &buffer,
        "{x:0>12}.{x:0>12}.{d}",
        .{ check, hub, sequence },
    ) catch unreachable; // the buffer is as long as its parts
    var digest: [std.crypto.hash.Sha1.digest_length]u8 = undefined;
    std.crypto.hash.Sha1.hash(text, &digest, .{});
    return std.mem.readInt(u48, digest[0..6], .big);
}

/// An entry that a reader has seen last.
pub const Position = struct {
    epoch: Epoch,
    mark: Mark,

    /// Longest text.
    pub const text_bytes_max = 12 + 1 + 20 + 1 + 12;

    /// The position as `epoch.offset.check`. Borrowed from `out`.
    pub fn print(position: Position, out: *[text_bytes_max]u8) []const u8 {
        const mark = position.mark;
        return std.fmt.bufPrint(out, "{x:0>12}.{d}.{x:0>12}", .{
            position.epoch, mark.offset, mark.check,
        }) catch unreachable; // text_bytes_max is the sum of all parts
    }

    /// Reads what `print` has written, and nothing else.
    pub fn parse(text: []const u8) error{Malformed}!Position {
        if (text.len > text_bytes_max or text.len < 12 + 1 + 1 + 1 + 12) return error.Malformed;
        const offset_end = text.len - 13;
        if (text[12] != '.' or text[offset_end] != '.') return error.Malformed;
        const offset = text[13..offset_end];
        for (offset) |byte| if (!std.ascii.isDigit(byte)) return error.Malformed;
        if (offset[0] == '0' and offset.len > 1) return error.Malformed;
        const mark: Mark = .{
            .offset = std.fmt.parseInt(u64, offset, 10) catch return error.Malformed,
            .check = try parseHex(text[offset_end + 1 ..]),
        };
        if (mark.offset == 0 and mark.check != Mark.origin.check) return error.Malformed;
        return .{ .epoch = try parseHex(text[0..12]), .mark = mark };
    }
};

/// Reads 12 hexadecimal digits.
pub fn parseHex(text: []const u8) error{Malformed}!u48 {
    if (text.len != 12) return error.Malformed;
    var value: u48 = 0;
    for (text) |byte| value = value << 4 | switch (byte) {
        '0'...'9' => byte - '0',
        'a'...'f' => byte - 'a' + 10,
        else => return error.Malformed,
    };
    return value;
}

/// The entry with which a reader begins.
pub const Since = union(enum) {
    /// With the entry that is published next.
    now,
    /// Behind the entry that it has seen last.
    after: Position,

    /// Reads `now` or a position.
    pub fn parse(text: []const u8) error{Malformed}!Since {
        if (std.mem.eql(u8, text, "now")) return .now;
        return .{ .after = try .parse(text) };
    }

    /// Reads what a reader has kept, which may be any text. In place of a position that is none stands one
    /// that no history has; "" is `now`.
    pub fn ofReader(text: []const u8) Since {
        if (text.len == 0) return .now;
        return parse(text) catch .{ .after = .{
            .epoch = 0,
            .mark = .{ .offset = std.math.maxInt(u64), .check = 0 },
        } };
    }
};

const testing = std.testing;

test "positions come back from their text, and from no other" {
    const positions = [_]Position{
        .{ .epoch = 0, .mark = .origin },
        .{ .epoch = 0x00ab_cdef_0123, .mark = .{ .offset = 42, .check = 7 } },
        .{ .epoch = std.math.maxInt(u48), .mark = .{
            .offset = std.math.maxInt(u64),
            .check = std.math.maxInt(u48),
        } },
    };
    for (positions) |position| {
        var out: [Position.text_bytes_max]u8 = undefined;
        const text = position.print(&out);
        try testing.expectEqual(position, try Position.parse(text));
        try testing.expectEqual(position, (try Since.parse(text)).after);
        for (0..text.len) |len| if (Position.parse(text[0..len])) |other| {
            // Digits of the offset may be taken for those of a shorter one only if the check fits.
            try testing.expect(!std.meta.eql(other, position));
        } else |_| {};
    }
    try testing.expectEqual(.now, try Since.parse("now"));
    for ([_][]const u8{
        "",
        "Now",
        "000000000000.01.000000000000",
        "00000000000.1.000000000000",
        "00000000000A.1.000000000000",
        "000000000000.-1.000000000000",
        "000000000000..000000000000",
        "000000000000.0.000000000001",
        "000000000000.1.000000000000 ",
        "000000000000.18446744073709551616.000000000000",
        "000000000000 1.000000000000",
    }) |text| try testing.expectError(error.Malformed, Since.parse(text));
}

test "checks depend on all that came before" {
    const first: Mark = Mark.origin.next(1, 1);
    try testing.expectEqual(1, first.offset);
    const other: Mark = Mark.origin.next(2, 1);
    try testing.expect(first.check != other.check);
    // The same publication behind another entry is another one.
    try testing.expect(first.next(3, 9).check != other.next(3, 9).check);
    // SHA-1 of "000000000000.000000000001.1", as redis.sha1hex has it.
    try testing.expectEqual(follow(0, 1, 1), first.check);
}
