//! The Range field (RFC 9110 section 14): one range of bytes. A request for several is answered with the
//! whole, which is allowed and keeps a client from asking for the same bytes a thousand times.
//! Does not know: files, and whether the range may be honoured at all (conditional.zig).
const std = @import("std");
const protocol = @import("protocol");
const syntax = protocol.http.syntax;

/// What a Range field means for a representation of a certain size.
pub const Range = union(enum) {
    /// No range, or none that has to be understood: the answer is the whole.
    whole,
    part: Part,
    /// Nothing of it exists: 416.
    unsatisfiable,

    /// A part of a representation.
    pub const Part = struct { offset: u64, len: u64 };

    /// Reads a field's value. `size` in bytes.
    pub fn parse(value: []const u8, size: u64) Range {
        const unit = "bytes=";
        if (value.len < unit.len or !std.ascii.eqlIgnoreCase(value[0..unit.len], unit)) return .whole;
        const spec = syntax.trim(value[unit.len..]);
        const dash = std.mem.findScalar(u8, spec, '-') orelse return .whole;
        const first_text = spec[0..dash];
        const last_text = spec[dash + 1 ..];
        if (first_text.len == 0) return suffix(last_text, size);
        const first = number(first_text) orelse return .whole;
        const last = if (last_text.len == 0) std.math.maxInt(u64) else number(last_text) orelse return .whole;
        if (last < first) return .whole;
        if (first >= size) return .unsatisfiable;
        return .{ .part = .{ .offset = first, .len = @min(last, size - 1) - first + 1 } };
    }

    /// "-500": the last 500 bytes.
    fn suffix(text: []const u8, size: u64) Range {
        const wanted = number(text) orelse return .whole;
        if (wanted == 0 or size == 0) return .unsatisfiable;
        const len = @min(wanted, size);
        return .{ .part = .{ .offset = size - len, .len = len } };
    }

    /// Null: no number. One beyond 64 bits is as good as the largest.
    fn number(text: []const u8) ?u64 {
        return syntax.parseDecimal(text) catch |err| switch (err) {
            error.NotANumber => null,
            error.Overflow => std.math.maxInt(u64),
        };
    }
};

test "one range" {
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
        .{ "bytes=0-1,3-4", 10, .whole },
        .{ "lines=0-1", 10, .whole },
        .{ "", 10, .whole },
    };
    for (cases) |case| {
        errdefer std.debug.print("{s}\n", .{case[0]});
        try std.testing.expectEqual(case[2], Range.parse(case[0], case[1]));
    }
}
