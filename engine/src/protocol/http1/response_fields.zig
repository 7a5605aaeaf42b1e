//! The rules for the fields of an application's response: which ones are sent, in heads and in trailers (RFC
//! 9110 sections 6.5.1, 7.6.1, 8.6 and 15.5.22), and the facts that the head takes from them. No field of an
//! application can break out of its line: names are tokens, and values have no controls except HTAB. Does not
//! know: the lines that the engine adds (encode.zig, session.zig).
const std = @import("std");
const assert = std.debug.assert;
const encode = @import("encode.zig");
const field_check = @import("../http/field_check.zig");
const framing = @import("framing.zig");
const header = @import("../http/header.zig");
const syntax = @import("../http/syntax.zig");
const Field = header.Field;
const Writer = encode.Writer;

pub const FieldError = field_check.FieldError;

/// The maximum number of bytes that these fields take.
pub fn fieldsSize(fields: []const Field) usize {
    var size: usize = 0;
    for (fields) |field| size += field.name_len + field.value_len + encode.field_overhead;
    return size;
}

/// A choice of the application's fields: those that a response of one kind sends. The others are left out.
pub const Policy = enum {
    /// All except hop-by-hop fields.
    head,
    /// All except hop-by-hop fields and Content-Length.
    head_without_length,
    /// Like head, but with Upgrade, in which 426 must name a protocol (RFC 9110 section 15.5.22).
    upgrade_required,
    /// Like head_without_length, but with Upgrade: for 101.
    switching,
    /// All except those that are forbidden in trailers.
    trailers,
};

/// Facts from the pass over an application's fields.
pub const Found = struct {
    content_length: ?u64 = null,
    date: bool = false,
    /// An Upgrade field is sent, which Connection must name (RFC 9110 section 7.8).
    upgrade: bool = false,
    /// A field was dropped because only the engine may send it.
    dropped: bool = false,
    /// After an error: the index of the refused field.
    bad_field: usize = 0,
};

/// Checks and writes an application's fields. After an error the content of the writer is undefined, and
/// `found.bad_field` is the index of the refused field.
pub fn putFields(writer: *Writer, fields: []const Field, policy: Policy, found: *Found) FieldError!void {
    for (fields, 0..) |field, index| {
        errdefer found.bad_field = index;
        if (try goesOut(field.name(), field.value(), policy, found)) {
            writer.putField(field.name(), field.value());
        }
    }
}

/// Checks a field, and returns true if it is to be written. After an error the caller sets `found.bad_field`.
pub inline fn goesOut(name: []const u8, value: []const u8, policy: Policy, found: *Found) FieldError!bool {
    const id = try field_check.idOf(name, value);
    return id == .other or try passes(id, value, policy, found);
}

fn passes(id: header.Id, value: []const u8, policy: Policy, found: *Found) FieldError!bool {
    switch (id) {
        .date => found.date = true,
        .content_length => switch (policy) {
            .head, .head_without_length, .upgrade_required => {
                const length = syntax.parseDecimal(value) catch return error.InvalidContentLength;
                if (found.content_length) |earlier| {
                    if (earlier != length) return error.InvalidContentLength;
                    return false;
                }
                found.content_length = length;
                return policy != .head_without_length;
            },
            .switching => return false,
            .trailers => {},
        },
        .upgrade => if (policy == .switching or policy == .upgrade_required) {
            found.upgrade = true;
            return true;
        },
        else => {},
    }
    const drop = if (policy == .trailers) framing.isForbiddenTrailer(id) else framing.isHopByHop(id);
    found.dropped = found.dropped or drop;
    return !drop;
}

/// An application's fields in wire form: checked and written once, and copied as a whole when a response
/// starts. Hop-by-hop fields are dropped. The memory is the caller's.
pub const Lines = struct {
    text: []u8 = &.{},
    /// Facts from these fields. Content-Length is here and not in `text`, because the response decides if it
    /// is sent.
    found: Found = .{},

    /// The number of bytes that `add` needs.
    pub fn sizeOf(name: []const u8, value: []const u8) usize {
        return name.len + value.len + encode.field_overhead;
    }

    /// Adds a field. `room` lies directly after `text` (unless that is empty) and has at least sizeOf(name,
    /// value) bytes. After an error nothing has changed.
    pub fn add(lines: *Lines, name: []const u8, value: []const u8, room: []u8) FieldError!void {
        assert(lines.text.len == 0 or lines.text.ptr + lines.text.len == room.ptr);
        if (!try goesOut(name, value, .head_without_length, &lines.found)) return;
        var writer: Writer = .{ .buffer = room };
        writer.putField(name, value);
        const start = room.ptr - lines.text.len;
        lines.text = start[0 .. lines.text.len + writer.len];
    }

    pub fn iterator(lines: *const Lines) Iterator {
        return .{ .rest = lines.text };
    }

    /// Returns the fields in their order.
    pub const Iterator = struct {
        rest: []const u8,

        /// Returns the next field; null: there is no more.
        pub fn next(it: *Iterator) ?Field {
            if (it.rest.len == 0) return null;
            const colon = syntax.find(.colon, it.rest, 0);
            const end = syntax.find(.control, it.rest, colon);
            const field: Field = .init(it.rest[0..colon], it.rest[colon + ": ".len .. end]);
            it.rest = it.rest[end + "\r\n".len ..];
            return field;
        }
    };
};

fn put(fields: []const Field, policy: Policy, found: *Found, out: []u8) FieldError![]const u8 {
    var writer: Writer = .{ .buffer = out };
    try putFields(&writer, fields, policy, found);
    assert(writer.len <= fieldsSize(fields));
    return out[0..writer.len];
}

test "which fields go out" {
    const fields = [_]Field{
        .init("X-A", "1"),             .init("Content-Length", "5"), .init("connection", "close"),
        .init("Upgrade", "websocket"), .init("Date", "always"),      .init("content-length", "5"),
        .init("Content-Type", "a/b"),  .init("TE", "x"),
    };
    const cases = [_]struct { Policy, []const u8 }{
        .{ .head, "X-A: 1\r\nContent-Length: 5\r\nDate: always\r\nContent-Type: a/b\r\n" },
        .{ .head_without_length, "X-A: 1\r\nDate: always\r\nContent-Type: a/b\r\n" },
        .{
            .upgrade_required,
            "X-A: 1\r\nContent-Length: 5\r\nUpgrade: websocket\r\nDate: always\r\nContent-Type: a/b\r\n",
        },
        .{ .switching, "X-A: 1\r\nUpgrade: websocket\r\nDate: always\r\nContent-Type: a/b\r\n" },
        .{ .trailers, "X-A: 1\r\nDate: always\r\n" },
    };
    for (cases) |case| {
        const policy, const expected = case;
        var out: [256]u8 = undefined;
        var found: Found = .{};
        try std.testing.expectEqualStrings(expected, try put(&fields, policy, &found, &out));
        try std.testing.expect(found.dropped and found.date);
        const length: ?u64 = if (policy == .switching or policy == .trailers) null else 5;
        try std.testing.expectEqual(length, found.content_length);
    }
}

test "fields that cannot be sent" {
    const cases = [_]struct { anyerror, []const u8, []const u8 }{
        .{ error.InvalidFieldName, "", "v" },
        .{ error.InvalidFieldName, "a b", "v" },
        .{ error.InvalidFieldName, "a:", "v" },
        .{ error.InvalidFieldName, "Content\rLength", "1" },
        .{ error.InvalidFieldName, "a\r\nb", "v" },
        .{ error.InvalidFieldValue, "a", "v\r\nb: c" },
        .{ error.InvalidFieldValue, "a", "v\n" },
        .{ error.InvalidFieldValue, "a", "\r" },
        .{ error.InvalidFieldValue, "a", "v\x00" },
        .{ error.InvalidFieldValue, "a", "v\x1b[0m and something behind it that is longer than a vector" },
        .{ error.InvalidFieldValue, "connection", "\n" },
        .{ error.InvalidContentLength, "content-length", "5, 5" },
        .{ error.InvalidContentLength, "content-length", "" },
        .{ error.InvalidContentLength, "content-length", "6" },
    };
    for (cases) |case| {
        const expected, const name, const value = case;
        var out: [256]u8 = undefined;
        var found: Found = .{};
        const fields = [_]Field{ .init("Content-Length", "5"), .init(name, value) };
        try std.testing.expectError(expected, put(&fields, .head, &found, &out));
        try std.testing.expectEqual(1, found.bad_field);
    }
}

test "lines say what fields say" {
    var memory: [256]u8 = undefined;
    var lines: Lines = .{};
    const fields = [_]Field{
        .init("X-A", ""),             .init("Content-Length", "5"), .init("connection", "close"),
        .init("content-length", "5"), .init("X-B", "b:c"),          .init("Date", "always"),
    };
    for (fields) |field| try lines.add(field.name(), field.value(), memory[lines.text.len..]);
    try std.testing.expectEqualStrings("X-A: \r\nX-B: b:c\r\nDate: always\r\n", lines.text);
    try std.testing.expectEqual(5, lines.found.content_length);
    try std.testing.expect(lines.found.date and lines.found.dropped);
    const before = lines.text;
    try std.testing.expectError(error.InvalidFieldName, lines.add("a b", "", memory[before.len..]));
    try std.testing.expectError(error.InvalidFieldValue, lines.add("a", "\r\nb: c", memory[before.len..]));
    try std.testing.expectError(
        error.InvalidContentLength,
        lines.add("content-length", "6", memory[before.len..]),
    );
    try std.testing.expectEqualStrings(before, lines.text);
    var it = lines.iterator();
    for ([_]usize{ 0, 4, 5 }) |index| {
        const field = it.next().?;
        try std.testing.expectEqualStrings(fields[index].name(), field.name());
        try std.testing.expectEqualStrings(fields[index].value(), field.value());
    }
    try std.testing.expectEqual(null, it.next());
}
