//! The Range field (RFC 9110 section 14): one range of bytes, or several.
//!
//! A request must not be answered with more than the representation has, however it is written: ranges that
//! overlap, or more than `parts_max` of them, are answered with the whole, which section 14.2 allows.
//! Does not know: files, and whether the range may be honoured at all (conditional.zig).
const std = @import("std");
const protocol = @import("protocol");
const syntax = protocol.http.syntax;

/// The most ranges that one request is given. Readers of PDF files and players ask for a few.
pub const parts_max = 16;

/// A part of a representation.
pub const Part = struct {
    offset: u64,
    len: u64,

    fn overlaps(part: Part, other: Part) bool {
        return part.offset < other.offset + other.len and other.offset < part.offset + part.len;
    }
};

/// Two or more parts that do not overlap, in the order in which they were asked for.
pub const Parts = struct {
    list: [parts_max]Part = undefined,
    len: usize = 0,

    pub fn slice(parts: *const Parts) []const Part {
        return parts.list[0..parts.len];
    }

    /// Adds a part. False: the request has too many parts, or this one overlaps with another.
    fn add(parts: *Parts, part: Part) bool {
        if (parts.len == parts_max) return false;
        for (parts.slice()) |before| if (before.overlaps(part)) return false;
        parts.list[parts.len] = part;
        parts.len += 1;
        return true;
    }
};

/// The meaning of a Range field for a representation of a certain size.
pub const Range = union(enum) {
    /// No range, or none that has to be understood: the answer is the whole.
    whole,
    part: Part,
    parts: Parts,
    /// No byte of the range exists: 416.
    unsatisfiable,

    /// Reads a field's value. `size` in bytes.
    pub fn parse(value: []const u8, size: u64) Range {
        const unit = "bytes=";
        if (value.len < unit.len or !std.ascii.eqlIgnoreCase(value[0..unit.len], unit)) return .whole;
        var parts: Parts = .{};
        var any = false;
        var specs = std.mem.splitScalar(u8, value[unit.len..], ',');
        while (specs.next()) |text| {
            const spec = syntax.trim(text);
            if (spec.len == 0) continue;
            any = true;
            switch (one(spec, size)) {
                .invalid => return .whole,
                .absent => {},
                .part => |part| if (!parts.add(part)) return .whole,
            }
        }
        if (!any) return .whole;
        return switch (parts.len) {
            0 => .unsatisfiable,
            1 => .{ .part = parts.list[0] },
            else => .{ .parts = parts },
        };
    }

    const One = union(enum) { part: Part, absent, invalid };

    fn one(spec: []const u8, size: u64) One {
        const dash = std.mem.findScalar(u8, spec, '-') orelse return .invalid;
        const first_text = spec[0..dash];
        const last_text = spec[dash + 1 ..];
        if (first_text.len == 0) return suffix(last_text, size);
        const first = number(first_text) orelse return .invalid;
        const last = if (last_text.len == 0) std.math.maxInt(u64) else number(last_text) orelse
            return .invalid;
        if (last < first) return .invalid;
        if (first >= size) return .absent;
        return .{ .part = .{ .offset = first, .len = @min(last, size - 1) - first + 1 } };
    }

    /// "-500": the last 500 bytes.
    fn suffix(text: []const u8, size: u64) One {
        const wanted = number(text) orelse return .invalid;
        if (wanted == 0 or size == 0) return .absent;
        const len = @min(wanted, size);
        return .{ .part = .{ .offset = size - len, .len = len } };
    }

    /// Null: not a number. A number beyond 64 bits is as good as the largest.
    fn number(text: []const u8) ?u64 {
        return syntax.parseDecimal(text) catch |err| switch (err) {
            error.NotANumber => null,
            error.Overflow => std.math.maxInt(u64),
        };
    }
};

test "a single range" {
    const cases = [_]struct { []const u8, u64, Range }{
        .{ "bytes=0-0", 10, .{ .part = .{ .offset = 0, .len = 1 } } },
        .{ "bytes=2-5", 10, .{ .part = .{ .offset = 2, .len = 4 } } },
        .{ "Bytes=2-", 10, .{ .part = .{ .offset = 2, .len = 8 } } },
        .{ "bytes=2-99", 10, .{ .part = .{ .offset = 2, .len = 8 } } },
        .{ "bytes=2-99999999999999999999999", 10, .{ .part = .{ .offset = 2, .len = 8 } } },
        .{ "bytes=-3", 10, .{ .part = .{ .offset = 7, .len = 3 } } },
        .{ "bytes=-99", 10, .{ .part = .{ .offset = 0, .len = 10 } } },
        .{ "bytes=10-", 10, .unsatisfiable },
        .{ "bytes=99999999999999999999999-", 10, .unsatisfiable },
        .{ "bytes=-0", 10, .unsatisfiable },
        .{ "bytes=-5", 0, .unsatisfiable },
        .{ "bytes=0-", 0, .unsatisfiable },
        .{ "bytes=5-2", 10, .whole },
        .{ "bytes=", 10, .whole },
        .{ "bytes=-", 10, .whole },
        .{ "bytes=a-b", 10, .whole },
        .{ "bytes=,", 10, .whole },
        .{ "bytes=0-1,x", 10, .whole },
        .{ "bytes=0-1, 10-", 10, .{ .part = .{ .offset = 0, .len = 2 } } },
        .{ "bytes=10-,20-", 10, .unsatisfiable },
        .{ "lines=0-1", 10, .whole },
        .{ "", 10, .whole },
    };
    for (cases) |case| {
        errdefer std.debug.print("{s}\n", .{case[0]});
        try std.testing.expectEqual(case[2], Range.parse(case[0], case[1]));
    }
}

fn expectParts(expected: []const Part, value: []const u8) !void {
    const range = Range.parse(value, 1000);
    if (range != .parts) return error.NotParts;
    try std.testing.expectEqualSlices(Part, expected, range.parts.slice());
}

test "several ranges, as they were asked for" {
    try expectParts(
        &.{ .{ .offset = 0, .len = 2 }, .{ .offset = 3, .len = 2 } },
        "bytes=0-1,3-4",
    );
    try expectParts(
        &.{ .{ .offset = 990, .len = 10 }, .{ .offset = 0, .len = 1 } },
        "bytes= -10 ,, 5000- , 0-0",
    );
}

test "no more is sent than there is" {
    for ([_][]const u8{ "bytes=0-9,9-20", "bytes=0-,0-", "bytes=5-6,0-", "bytes=-1,-1" }) |value| {
        try std.testing.expectEqual(.whole, Range.parse(value, 1000));
    }
    var text: std.ArrayList(u8) = .empty;
    defer text.deinit(std.testing.allocator);
    try text.appendSlice(std.testing.allocator, "bytes=");
    for (0..parts_max) |i| try text.print(std.testing.allocator, "{d}-{d},", .{ i * 2, i * 2 });
    try std.testing.expectEqual(parts_max, Range.parse(text.items, 1000).parts.len);
    try text.appendSlice(std.testing.allocator, "500-501");
    try std.testing.expectEqual(.whole, Range.parse(text.items, 1000));
}
