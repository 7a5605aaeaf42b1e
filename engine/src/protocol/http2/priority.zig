//! Priorities of responses (RFC 9218 sections 4 and 5): the value of a Priority field, and of a
//! PRIORITY_UPDATE. Does not know: streams, and the order of sending.
const std = @import("std");

/// The importance of a response for its client.
pub const Priority = packed struct(u4) {
    /// 0..7; 0 is sent first.
    urgency: u3 = 3,
    /// The client can use a part of the response, so such responses may take turns.
    incremental: bool = false,

    /// Reads the value of a field. The last `u` and the last `i` count. Each is ignored if it is out of range
    /// or has another type, and a text that is no dictionary (RFC 8941 section 3.2) is ignored as a whole.
    pub fn parse(text: []const u8) Priority {
        var priority: Priority = .{};
        var reader: Reader = .{ .rest = text };
        reader.skip(" ");
        while (reader.rest.len > 0) {
            const key = reader.key() orelse return .{};
            var value: Reader.Item = .{ .boolean = true };
            if (reader.take('=')) value = reader.item() orelse return .{};
            if (!reader.parameters()) return .{};
            if (std.mem.eql(u8, key, "u")) {
                if (value == .integer and value.integer < 8) priority.urgency = @intCast(value.integer);
            } else if (std.mem.eql(u8, key, "i")) {
                if (value == .boolean) priority.incremental = value.boolean;
            }
            reader.skip(" \t");
            if (reader.rest.len == 0) break;
            if (!reader.take(',')) return .{};
            reader.skip(" \t");
            if (reader.rest.len == 0) return .{};
        }
        return priority;
    }
};

/// Reads the syntax of dictionaries in RFC 8941.
const Reader = struct {
    rest: []const u8,

    const Item = union(enum) { integer: u64, boolean: bool, other };

    fn skip(reader: *Reader, comptime bytes: []const u8) void {
        reader.rest = std.mem.trimStart(u8, reader.rest, bytes);
    }

    fn take(reader: *Reader, byte: u8) bool {
        if (reader.rest.len == 0 or reader.rest[0] != byte) return false;
        reader.rest = reader.rest[1..];
        return true;
    }

    fn cut(reader: *Reader, len: usize) []const u8 {
        defer reader.rest = reader.rest[len..];
        return reader.rest[0..len];
    }

    fn key(reader: *Reader) ?[]const u8 {
        var len: usize = 0;
        while (len < reader.rest.len) : (len += 1) {
            const fits = switch (reader.rest[len]) {
                'a'...'z', '*' => true,
                '0'...'9', '_', '-', '.' => len > 0,
                else => false,
            };
            if (!fits) break;
        }
        return if (len == 0) null else reader.cut(len);
    }

    /// Reads an item; the content of inner lists is not parsed.
    fn item(reader: *Reader) ?Item {
        if (reader.rest.len == 0) return null;
        switch (reader.rest[0]) {
            '0'...'9', '-' => {
                var len: usize = 1;
                while (len < reader.rest.len) : (len += 1) switch (reader.rest[len]) {
                    '0'...'9', '.' => {},
                    else => break,
                };
                return .{ .integer = std.fmt.parseUnsigned(u64, reader.cut(len), 10) catch return .other };
            },
            '?' => {
                if (reader.rest.len < 2 or (reader.rest[1] != '0' and reader.rest[1] != '1')) return null;
                return .{ .boolean = reader.cut(2)[1] == '1' };
            },
            '"' => return reader.quoted(),
            '(' => return reader.until(')'),
            ':' => {
                _ = reader.cut(1);
                return reader.until(':');
            },
            else => {
                const len = std.mem.indexOfAny(u8, reader.rest, ",; \t=\"()") orelse reader.rest.len;
                if (len == 0) return null;
                _ = reader.cut(len);
                return .other;
            },
        }
    }

    fn quoted(reader: *Reader) ?Item {
        var len: usize = 1;
        while (len < reader.rest.len) : (len += 1) switch (reader.rest[len]) {
            '\\' => len += 1,
            '"' => {
                _ = reader.cut(len + 1);
                return .other;
            },
            else => {},
        };
        return null;
    }

    fn until(reader: *Reader, byte: u8) ?Item {
        const end = std.mem.indexOfScalar(u8, reader.rest, byte) orelse return null;
        _ = reader.cut(end + 1);
        return .other;
    }

    /// Skips parameters; false: they are malformed.
    fn parameters(reader: *Reader) bool {
        while (reader.take(';')) {
            reader.skip(" ");
            _ = reader.key() orelse return false;
            if (reader.take('=')) _ = reader.item() orelse return false;
        }
        return true;
    }
};

test "values of RFC 9218, and what is none" {
    for ([_]struct { []const u8, u3, bool }{
        .{ "", 3, false },
        .{ "u=5, i", 5, true },
        .{ "i", 3, true },
        .{ "i=?1", 3, true },
        .{ "i=?0", 3, false },
        .{ "u=0", 0, false },
        .{ "u=7,i=?1", 7, true },
        .{ "u=8", 3, false },
        .{ "u=-1, i", 3, true },
        .{ "u=1.5, i", 3, true },
        .{ "u=1, u=2", 2, false },
        .{ "i, u=1;a;b=2, x=\"a, b\", y=(1 2), z=:YWI=:, t=tok", 1, true },
        .{ "u, i", 3, true },
        .{ "i=1", 3, false },
        .{ "u=1,", 3, false },
        .{ "u=1 i", 3, false },
        .{ "U=1", 3, false },
        .{ "u=", 3, false },
        .{ "x=\"a", 3, false },
        .{ " u=2 ", 2, false },
    }) |case| {
        errdefer std.debug.print("{s}\n", .{case[0]});
        const expected: Priority = .{ .urgency = case[1], .incremental = case[2] };
        try std.testing.expectEqual(expected, Priority.parse(case[0]));
    }
}
