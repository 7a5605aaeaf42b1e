//! The position of an entry in a topic, which readers keep and show when they come back. Does not know:
//! entries (log.zig).
const std = @import("std");
const assert = std.debug.assert;

/// The name of a history, which is drawn at random when the history begins. Offsets count within a history.
pub const Epoch = u48;

/// A digest of an entry and of all entries before it. A server that has lost acknowledged entries gives their
/// offsets to others, with the same epoch but other checks.
pub const Check = u48;

/// The place of an entry in a history: its offset (the number of entries up to it), and its check.
pub const Mark = struct {
    offset: u64,
    check: Check,

    /// The mark before the first entry.
    pub const origin: Mark = .{ .offset = 0, .check = 0 };

    /// The mark of the next entry, which `hub` has published with the number `sequence`.
    pub fn next(mark: Mark, hub: u48, sequence: u64) Mark {
        return .{ .offset = mark.offset + 1, .check = follow(mark.check, hub, sequence) };
    }
};

/// The check of the entry that follows one with `check`. script.lua computes the same in Redis.
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

/// The position of the entry that a reader has seen last.
pub const Position = struct {
    epoch: Epoch,
    mark: Mark,

    /// The length of the longest text.
    pub const text_bytes_max = 12 + 1 + 20 + 1 + 12;

    /// The position as text, `epoch.offset.check`, in `out`.
    pub fn print(position: Position, out: *[text_bytes_max]u8) []const u8 {
        const mark = position.mark;
        return std.fmt.bufPrint(out, "{x:0>12}.{d}.{x:0>12}", .{
            position.epoch, mark.offset, mark.check,
        }) catch unreachable; // text_bytes_max is the sum of all parts
    }

    /// Reads the output of `print`, and refuses any other text.
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

/// Reads 12 lowercase hexadecimal digits.
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

/// The place where a reader begins.
pub const Since = union(enum) {
    /// The reader begins with the next entry that is published.
    now,
    /// The reader begins behind the entry that it has seen last.
    after: Position,

    /// Reads "now" or a position.
    pub fn parse(text: []const u8) error{Malformed}!Since {
        if (std.mem.eql(u8, text, "now")) return .now;
        return .{ .after = try .parse(text) };
    }

    /// Reads the text that a reader has kept, which may be any text; "" means `now`. Text that is no position
    /// becomes a position that no history has.
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
            // A shorter offset may be read only with another check.
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
    // The same publication gets another check behind another entry.
    try testing.expect(first.next(3, 9).check != other.next(3, 9).check);
    // SHA-1 of "000000000000.000000000001.1", as redis.sha1hex computes it.
    try testing.expectEqual(follow(0, 1, 1), first.check);
}
