//! Paths with places for values: "/users/:id" and "/files/*rest". Everything about them is worked out when
//! the program is compiled. Does not know: methods, and what is done with a request.
const std = @import("std");

/// A piece of a pattern between two slashes.
pub const Segment = union(enum) {
    /// Text that the path must have here, byte for byte.
    literal: []const u8,
    /// A segment of any text, which must not be empty: ":name".
    param: []const u8,
    /// The rest of the path, which may be empty: "*name", at the end.
    rest: []const u8,
};

/// The most segments of a pattern. Only a pattern with a rest matches a longer path.
pub const segments_max = 32;
/// The most values of one pattern.
pub const values_max = 8;

/// A name of a pattern and its value in a path, decoded.
pub const Value = struct { name: []const u8, text: []const u8 };

/// The segments of a pattern. A mistake in it stops the compiler.
pub fn parse(comptime pattern: []const u8) []const Segment {
    comptime {
        @setEvalBranchQuota(100_000);
        const where = "route \"" ++ pattern ++ "\": ";
        if (pattern.len == 0 or pattern[0] != '/') @compileError(where ++ "it has to begin with a slash");
        var list: []const Segment = &.{};
        var values: usize = 0;
        var pieces = std.mem.splitScalar(u8, pattern[1..], '/');
        while (pieces.next()) |piece| {
            const has_name = piece.len > 0 and (piece[0] == ':' or piece[0] == '*');
            if (has_name and piece.len == 1) @compileError(where ++ "'" ++ piece ++ "' needs a name");
            if (has_name) values += 1;
            const segment: Segment = if (!has_name)
                .{ .literal = piece }
            else if (piece[0] == ':') .{ .param = piece[1..] } else .{ .rest = piece[1..] };
            if (segment == .rest and pieces.peek() != null) {
                @compileError(where ++ "'" ++ piece ++ "' has to be its end");
            }
            list = list ++ [_]Segment{segment};
        }
        if (list.len > segments_max) @compileError(where ++ "it has too many segments");
        if (values > values_max) @compileError(where ++ "it has too many values");
        return list;
    }
}

/// A pattern as it was written.
pub fn written(comptime segments: []const Segment) []const u8 {
    comptime {
        var all: []const u8 = "";
        for (segments) |segment| all = all ++ "/" ++ switch (segment) {
            .literal => |literal| literal,
            .param => |name| ":" ++ name,
            .rest => |name| "*" ++ name,
        };
        return all;
    }
}

/// A path, split and decoded.
pub const Path = struct {
    /// A path's segments, decoded, so that an encoded slash splits nothing.
    segments: [segments_max][]const u8,
    count: usize,
    /// The start of each segment in the path as received.
    starts: [segments_max]usize,
    text: []const u8,
    arena: std.mem.Allocator,

    /// Splits a path into `segments_max` segments at most. Null: the text is no path ("*").
    pub fn split(arena: std.mem.Allocator, text: []const u8) error{OutOfMemory}!?Path {
        if (text.len == 0 or text[0] != '/') return null;
        var path: Path = .{
            .segments = undefined,
            .count = 0,
            .starts = undefined,
            .text = text,
            .arena = arena,
        };
        var at: usize = 1;
        while (true) {
            // More segments than a path may have: only a pattern that takes the rest can match, and it looks
            // at `text`.
            if (path.count == segments_max) return path;
            const end = std.mem.findScalarPos(u8, text, at, '/') orelse text.len;
            path.starts[path.count] = at;
            path.segments[path.count] = try decode(arena, text[at..end]);
            path.count += 1;
            if (end == text.len) return path;
            at = end + 1;
        }
    }

    /// The values of a pattern that matches, in `values`; null: it does not match.
    pub fn match(
        path: *const Path,
        pattern: []const Segment,
        values: *[values_max]Value,
    ) error{OutOfMemory}!?[]const Value {
        var count: usize = 0;
        for (pattern, 0..) |segment, number| {
            if (number >= path.count) return null;
            const found = path.segments[number];
            switch (segment) {
                .literal => |text| if (!std.mem.eql(u8, text, found)) return null,
                .param => |name| {
                    if (found.len == 0) return null;
                    values[count] = .{ .name = name, .text = found };
                    count += 1;
                },
                .rest => |name| {
                    const text = try decode(path.arena, path.text[path.starts[number]..]);
                    values[count] = .{ .name = name, .text = text };
                    return values[0 .. count + 1];
                },
            }
        }
        if (path.count != pattern.len or path.isCut()) return null;
        return values[0..count];
    }

    /// Whether the path has more segments than were split.
    fn isCut(path: *const Path) bool {
        if (path.count < segments_max) return false;
        return std.mem.findScalarPos(u8, path.text, path.starts[segments_max - 1], '/') != null;
    }
};

fn decode(arena: std.mem.Allocator, text: []const u8) error{OutOfMemory}![]const u8 {
    if (std.mem.findScalar(u8, text, '%') == null) return text;
    return @import("peregrine").percentDecode(text, try arena.alloc(u8, text.len));
}

/// Whether pattern `a` goes before `b` for a path that both match: the leftmost difference decides, where a
/// literal goes before a value, a value before the rest.
pub fn isBefore(a: []const Segment, b: []const Segment) bool {
    for (a, 0..) |segment, number| {
        if (number == b.len) return true;
        const one = rank(segment);
        const other = rank(b[number]);
        if (one != other) return one < other;
    }
    return false;
}

/// Whether two patterns match the same paths.
pub fn isSame(a: []const Segment, b: []const Segment) bool {
    if (a.len != b.len) return false;
    for (a, b) |one, other| {
        if (rank(one) != rank(other)) return false;
        if (one == .literal and !std.mem.eql(u8, one.literal, other.literal)) return false;
    }
    return true;
}

fn rank(segment: Segment) u8 {
    return switch (segment) {
        .literal => 0,
        .param => 1,
        .rest => 2,
    };
}

const testing = std.testing;

fn expectValues(comptime pattern: []const u8, path_text: []const u8, expected: ?[]const []const u8) !void {
    var arena: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena.deinit();
    const path = (try Path.split(arena.allocator(), path_text)).?;
    var space: [values_max]Value = undefined;
    const values = try path.match(comptime parse(pattern), &space);
    try testing.expectEqual(expected == null, values == null);
    if (expected) |texts| {
        try testing.expectEqual(texts.len, values.?.len);
        for (texts, values.?) |text, value| try testing.expectEqualStrings(text, value.text);
    }
}

test "patterns match paths, and find values in them" {
    try expectValues("/", "/", &.{});
    try expectValues("/", "/a", null);
    try expectValues("/a/b", "/a/b", &.{});
    try expectValues("/a/b", "/a/b/", null);
    try expectValues("/a b", "/a%20b", &.{});
    try expectValues("/users/:id", "/users/7", &.{"7"});
    try expectValues("/users/:id", "/users/", null);
    try expectValues("/users/:id", "/users/a%2Fb", &.{"a/b"});
    try expectValues("/users/:id/:what", "/users/7/x", &.{ "7", "x" });
    try expectValues("/files/*path", "/files/a/b%20c", &.{"a/b c"});
    try expectValues("/files/*path", "/files/", &.{""});
    try expectValues("/files/*path", "/files", null);
    try expectValues("/*all", "/", &.{""});
    const endless: [200]u8 = @splat('/');
    try expectValues("/*all", &endless, &.{endless[1..]});
    try expectValues("/a", &endless, null);
    try testing.expectEqual(null, try Path.split(testing.allocator, "*"));
    try testing.expectEqual(null, try Path.split(testing.allocator, ""));
}

test "a path with as many segments as are split, and one more" {
    comptime var pattern: []const u8 = "";
    inline for (0..segments_max) |_| pattern = pattern ++ "/a";
    try expectValues(pattern, pattern, &.{});
    try expectValues(pattern, pattern ++ "/a", null);
    try expectValues(pattern, pattern ++ "/", null);
}

test "a pattern as it was written" {
    for ([_][]const u8{ "/", "/users/:id", "/files/*rest" }, comptime [_][]const u8{
        written(parse("/")), written(parse("/users/:id")), written(parse("/files/*rest")),
    }) |expected, found| try std.testing.expectEqualStrings(expected, found);
}

test "which pattern goes first" {
    const in_order = [_][]const Segment{
        comptime parse("/a/b"),   comptime parse("/a/:x/c"),
        comptime parse("/a/:x"),  comptime parse("/a/*r"),
        comptime parse("/:x/b"),  comptime parse("/:x/:y"),
        comptime parse("/*rest"),
    };
    for (in_order[0 .. in_order.len - 1], in_order[1..]) |one, other| {
        try testing.expect(isBefore(one, other) and !isBefore(other, one));
        try testing.expect(!isSame(one, other));
    }
    try testing.expect(isSame(comptime parse("/a/:x"), comptime parse("/a/:y")));
}
