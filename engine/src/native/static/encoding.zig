//! The content codings that a client accepts, best first (RFC 9110 section 12.5.3), of those that lie ready
//! as a file's siblings. Does not know: files, and how a coding works.
const std = @import("std");
const protocol = @import("protocol");
const syntax = protocol.http.syntax;

/// A coding in which a file may lie ready.
pub const Coding = enum {
    // In the order of preference among codings that the client likes as well: the smallest result first.
    br,
    zstd,
    gzip,

    /// The name in Accept-Encoding and Content-Encoding.
    pub fn name(coding: Coding) []const u8 {
        return @tagName(coding);
    }

    /// The suffix that the sibling's name has behind the file's own.
    pub fn suffix(coding: Coding) []const u8 {
        return switch (coding) {
            .br => ".br",
            .zstd => ".zst",
            .gzip => ".gz",
        };
    }
};

/// The codings that a client accepts, best first; filled in by `init`.
pub const Accepted = struct {
    list: [count]Coding = undefined,
    len: usize = 0,

    const count = @typeInfo(Coding).@"enum".field_names.len;

    /// Reads an Accept-Encoding field's value. Without the field, or where it names none of ours,
    /// the list is empty.
    pub fn init(value: []const u8) Accepted {
        // Weights in thousandths; null: the coding is not named.
        var weights: [count]?u16 = @splat(null);
        var others: u16 = 0;
        var items: syntax.List = .init(value);
        while (items.next()) |item| {
            const semicolon = std.mem.findScalar(u8, item, ';') orelse item.len;
            const token = syntax.trim(item[0..semicolon]);
            const weight = parseWeight(syntax.trim(item[@min(semicolon + 1, item.len)..]));
            if (std.mem.eql(u8, token, "*")) others = weight;
            if (codingOf(token)) |coding| weights[@backingInt(coding)] = weight;
        }
        var accepted: Accepted = .{};
        for (weights, 0..) |weight, number| {
            accepted.insert(@fromBackingInt(@intCast(number)), weight orelse others, &weights, others);
        }
        return accepted;
    }

    /// The codings, best first.
    pub fn slice(accepted: *const Accepted) []const Coding {
        return accepted.list[0..accepted.len];
    }

    /// Inserts a coding behind those of the same weight, which come first in the enum.
    fn insert(
        accepted: *Accepted,
        coding: Coding,
        weight: u16,
        weights: *const [count]?u16,
        others: u16,
    ) void {
        if (weight == 0) return;
        var at = accepted.len;
        while (at > 0 and (weights[@backingInt(accepted.list[at - 1])] orelse others) < weight) : (at -= 1) {
            accepted.list[at] = accepted.list[at - 1];
        }
        accepted.list[at] = coding;
        accepted.len += 1;
    }
};

fn codingOf(token: []const u8) ?Coding {
    if (std.ascii.eqlIgnoreCase(token, "x-gzip")) return .gzip;
    for (std.enums.values(Coding)) |coding| if (std.ascii.eqlIgnoreCase(token, coding.name())) return coding;
    return null;
}

/// "q=0.5" in thousandths; no weight means 1, one that cannot be read means 0: better no coding than one that
/// is not understood.
fn parseWeight(text: []const u8) u16 {
    if (text.len == 0) return 1000;
    if (text.len < 3 or text.len > "q=0.000".len or (text[0] | 0x20) != 'q' or text[1] != '=') return 0;
    const number = text[2..];
    if (number[0] != '0' and number[0] != '1') return 0;
    if (number.len > 1 and number[1] != '.') return 0;
    var weight: u16 = @as(u16, number[0] - '0') * 1000;
    var place: u16 = 100;
    if (number.len > 2) for (number[2..]) |digit| {
        if (!std.ascii.isDigit(digit)) return 0;
        weight += @as(u16, digit - '0') * place;
        place /= 10;
    };
    return @min(weight, 1000);
}

test "codings in the client's order, ours where it has none" {
    const cases = [_]struct { []const u8, []const Coding }{
        .{ "", &.{} },
        .{ "identity", &.{} },
        .{ "gzip, deflate, br, zstd", &.{ .br, .zstd, .gzip } },
        .{ "gzip;q=1.0, br;q=0.5", &.{ .gzip, .br } },
        .{ "GZIP , x-unknown", &.{.gzip} },
        .{ "br;q=0, gzip", &.{.gzip} },
        .{ "*", &.{ .br, .zstd, .gzip } },
        .{ "*;q=0.5, gzip;q=0.8, br;q=0", &.{ .gzip, .zstd } },
        .{ "gzip;q=0.001, zstd;q=0.01", &.{ .zstd, .gzip } },
        .{ "gzip;q=much, br ; q=1", &.{.br} },
        .{ "br;q=2, zstd;q=0.1234, gzip;q=", &.{} },
    };
    for (cases) |case| {
        errdefer std.debug.print("{s}\n", .{case[0]});
        const accepted: Accepted = .init(case[0]);
        try std.testing.expectEqualSlices(Coding, case[1], accepted.slice());
    }
}
