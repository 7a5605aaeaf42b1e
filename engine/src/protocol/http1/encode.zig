//! Writing of response heads, trailers and chunk prefixes into memory that the caller owns (RFC 9112
//! sections 4, 5 and 7.1). Does not know: whether a message may be sent now (session.zig), and how its
//! content ends (framing.zig).
//! Nothing an application hands over can break out of its line: names are tokens, values have no
//! controls but HTAB.
const std = @import("std");
const assert = std.debug.assert;
const field_check = @import("../http/field_check.zig");
const framing = @import("framing.zig");
const status = @import("../http/status.zig");
const syntax = @import("../http/syntax.zig");
const date = @import("../http/date.zig");
const header = @import("../http/header.zig");
const event = @import("../event.zig");
const Field = header.Field;

pub const FieldError = field_check.FieldError;

/// Bytes that a field takes beside its name and its value.
const field_overhead = ": ".len + "\r\n".len;

/// Upper bound of a head without the application's fields: status line, Date, Connection, framing
/// field, blank line.
pub const head_overhead_bytes_max = status.line_bytes_max + date_prefix.len + date.bytes_len + "\r\n".len +
    connection_close_upgrade.len + length_bytes_max + "\r\n".len;

/// Upper bound of what ends a held head: Connection, framing field, blank line.
pub const head_end_bytes_max = connection_close_upgrade.len + length_bytes_max + "\r\n".len;

/// Upper bound of what these fields take, in bytes.
pub fn fieldsSize(fields: []const Field) usize {
    var size: usize = 0;
    for (fields) |field| size += field.name_len + field.value_len + field_overhead;
    return size;
}

/// Lines that the engine adds of its own.
pub const connection_close = "Connection: close\r\n";
pub const connection_keep_alive = "Connection: keep-alive\r\n";
pub const connection_upgrade = "Connection: Upgrade\r\n";
pub const connection_close_upgrade = "Connection: close, Upgrade\r\n";
pub const chunked_coding = "Transfer-Encoding: chunked\r\n";
pub const length_zero = length_prefix ++ "0\r\n";
const length_prefix = "Content-Length: ";
const length_bytes_max = length_prefix.len + syntax.decimal_bytes_max + "\r\n".len;
const date_prefix = "Date: ";

comptime {
    // head_overhead_bytes_max counts the longest line of each kind.
    for (.{ connection_close, connection_keep_alive, connection_upgrade }) |line| {
        assert(line.len <= connection_close_upgrade.len);
    }
    assert(length_zero.len <= length_bytes_max and chunked_coding.len <= length_bytes_max);
}

/// A buffer that fills from the left. The caller has made it large enough.
pub const Writer = struct {
    buffer: []u8,
    len: usize = 0,

    /// Appends `text`. Asserts that it fits. Inline, so that a literal is copied by a few moves
    /// instead of a call.
    pub inline fn put(writer: *Writer, text: []const u8) void {
        @memcpy(writer.buffer[writer.len..][0..text.len], text);
        writer.len += text.len;
    }

    /// Appends a status line.
    pub inline fn putStatus(writer: *Writer, code: u16) void {
        // Nearly every response: a literal.
        if (code == 200) writer.put(comptime status.line(200)) else writer.put(status.line(code));
    }

    /// Appends a Date field.
    pub inline fn putDate(writer: *Writer, text: *const [date.bytes_len]u8) void {
        const line = writer.buffer[writer.len..][0 .. date_prefix.len + date.bytes_len + "\r\n".len];
        line[0..date_prefix.len].* = date_prefix.*;
        line[date_prefix.len..][0..date.bytes_len].* = text.*;
        line[line.len - 2 ..][0..2].* = "\r\n".*;
        writer.len += line.len;
    }

    /// Appends a Content-Length field.
    pub fn putLength(writer: *Writer, length: u64) void {
        const digits = syntax.decimalSize(length);
        const line = writer.buffer[writer.len..][0 .. length_prefix.len + digits + "\r\n".len];
        line[0..length_prefix.len].* = length_prefix.*;
        var rest = length;
        var at = length_prefix.len + digits;
        while (at > length_prefix.len) : (rest /= 10) {
            at -= 1;
            line[at] = '0' + @as(u8, @truncate(rest % 10));
        }
        line[line.len - 2 ..][0..2].* = "\r\n".*;
        writer.len += line.len;
    }

    /// Appends the line before a chunk of `len` bytes.
    pub fn putChunkPrefix(writer: *Writer, len: u64) void {
        const digits = (@bitSizeOf(u64) - @clz(len | 1) + 3) / 4;
        const line = writer.buffer[writer.len..][0 .. digits + "\r\n".len];
        var rest = len;
        var at: usize = digits;
        while (at > 0) : (rest >>= 4) {
            at -= 1;
            line[at] = "0123456789abcdef"[@intCast(rest & 15)];
        }
        line[digits..][0..2].* = "\r\n".*;
        writer.len += line.len;
    }

    inline fn putField(writer: *Writer, name: []const u8, value: []const u8) void {
        // One bounds check for the whole line.
        const line = writer.buffer[writer.len..][0 .. name.len + value.len + field_overhead];
        @memcpy(line[0..name.len], name);
        line[name.len..][0..2].* = ": ".*;
        @memcpy(line[name.len + 2 ..][0..value.len], value);
        line[line.len - 2 ..][0..2].* = "\r\n".*;
        writer.len += line.len;
    }
};

/// Which of an application's fields go out.
pub const Policy = enum {
    /// All but hop-by-hop fields.
    head,
    /// All but hop-by-hop fields and Content-Length.
    head_without_length,
    /// As head, but Upgrade goes out: 426 has to say what to upgrade to (RFC 9110 section 15.5.22).
    upgrade_required,
    /// As head_without_length, but Upgrade goes out: 101.
    switching,
    /// All but those that are forbidden in trailers.
    trailers,
};

/// What the pass over an application's fields found.
pub const Found = struct {
    content_length: ?u64 = null,
    date: bool = false,
    /// An Upgrade field went out, which Connection has to name (RFC 9110 section 7.8).
    upgrade: bool = false,
    /// A field was dropped that is the engine's business.
    dropped: bool = false,
    /// The field that an error is about.
    bad_field: usize = 0,
};

/// Checks and writes an application's fields. After an error the writer's content is undefined, and
/// `found.bad_field` is the index of the field.
pub fn putFields(writer: *Writer, fields: []const Field, policy: Policy, found: *Found) FieldError!void {
    for (fields, 0..) |field, index| {
        errdefer found.bad_field = index;
        if (try goesOut(field.name(), field.value(), policy, found)) {
            writer.putField(field.name(), field.value());
        }
    }
}

/// Checks a field; whether it is written.
inline fn goesOut(name: []const u8, value: []const u8, policy: Policy, found: *Found) FieldError!bool {
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

/// An application's fields in wire form: checked and written once, one after the other, and copied in one
/// piece when a response starts. Hop-by-hop fields are dropped. The memory is the caller's.
pub const Lines = struct {
    text: []u8 = &.{},
    /// What the head depends on. A Content-Length is here and nowhere else: whether it goes out is
    /// decided by the response.
    found: Found = .{},

    /// Bytes that `add` needs.
    pub fn sizeOf(name: []const u8, value: []const u8) usize {
        return name.len + value.len + field_overhead;
    }

    /// Adds a field. `room` lies directly behind `text`, unless that is empty, and holds at least
    /// sizeOf(name, value) bytes. After an error nothing has changed.
    pub fn add(lines: *Lines, name: []const u8, value: []const u8, room: []u8) FieldError!void {
        assert(lines.text.len == 0 or lines.text.ptr + lines.text.len == room.ptr);
        if (!try goesOut(name, value, .head_without_length, &lines.found)) return;
        var writer: Writer = .{ .buffer = room };
        writer.putField(name, value);
        const start = room.ptr - lines.text.len;
        lines.text = start[0 .. lines.text.len + writer.len];
    }

    /// The fields one by one.
    pub fn iterator(lines: *const Lines) Iterator {
        return .{ .rest = lines.text };
    }

    /// Over the fields, in their order.
    pub const Iterator = struct {
        rest: []const u8,

        /// The next field, or null at the end.
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

/// Longest chunk prefix, in bytes: 16 hexadecimal digits and CRLF.
pub const chunk_prefix_bytes_max = 18;

/// Upper bound of `refusalResponse`, in bytes.
pub const refusal_bytes_max = status.line_bytes_max + 256 + event.Refusal.detail_bytes_max;

/// What a refusal says besides why.
pub const RefusalExtras = struct {
    /// Left out if null.
    date: ?*const [date.bytes_len]u8 = null,
    /// Seconds.
    retry_after_s: ?u32 = null,
    /// The method is not HEAD.
    with_content: bool = true,
};

/// Writes a complete response to what cannot be answered otherwise: plain text, then the connection closes.
/// `out` holds at least refusal_bytes_max bytes. The result is the number of bytes written.
pub fn refusalResponse(refusal: event.Refusal, extras: RefusalExtras, out: []u8) usize {
    assert(refusal.status >= 400 and refusal.status <= status.code_max);
    assert(refusal.detail.len <= event.Refusal.detail_bytes_max);
    assert(out.len >= refusal_bytes_max);
    var writer: Writer = .{ .buffer = out };
    writer.putStatus(refusal.status);
    if (extras.date) |text| writer.putDate(text);
    writer.put("Content-Type: text/plain\r\n" ++ connection_close);
    if (extras.retry_after_s) |seconds| {
        var digits: [syntax.decimal_bytes_max]u8 = undefined;
        writer.putField("Retry-After", syntax.decimal(seconds, &digits));
    }
    writer.putLength(refusalBodyBytes(refusal));
    writer.put("\r\n");
    if (!extras.with_content) return writer.len;
    writer.put(refusal.detail);
    writer.put("\n");
    return writer.len;
}

/// Writes the complete response of the health path; then the connection closes.
/// `with_content`: the method is not HEAD. `out` holds at least refusal_bytes_max bytes. The result is the
/// number of bytes written.
pub fn aliveResponse(date_text: *const [date.bytes_len]u8, with_content: bool, out: []u8) usize {
    assert(out.len >= refusal_bytes_max);
    const text = "ok\n";
    var writer: Writer = .{ .buffer = out };
    writer.putStatus(200);
    writer.putDate(date_text);
    writer.put("Content-Type: text/plain\r\nCache-Control: no-store\r\n" ++ connection_close);
    writer.putLength(text.len);
    writer.put("\r\n");
    if (with_content) writer.put(text);
    return writer.len;
}

/// Bytes of content in a refusal's response, if it has any.
pub fn refusalBodyBytes(refusal: event.Refusal) usize {
    return refusal.detail.len + "\n".len;
}

test "chunk prefixes" {
    for ([_]struct { u64, []const u8 }{
        .{ 0, "0\r\n" },
        .{ 10, "a\r\n" },
        .{ 15, "f\r\n" },
        .{ 16, "10\r\n" },
        .{ 4096, "1000\r\n" },
        .{ std.math.maxInt(u64), "ffffffffffffffff\r\n" },
    }) |case| {
        const len, const expected = case;
        // Exactly as much room as is promised.
        var out: [chunk_prefix_bytes_max]u8 = undefined;
        var writer: Writer = .{ .buffer = &out };
        writer.putChunkPrefix(len);
        try std.testing.expectEqualStrings(expected, out[0..writer.len]);
    }
}

test "refusal" {
    var out: [refusal_bytes_max]u8 = undefined;
    const refusal: event.Refusal = .{ .status = 400, .detail = "why" };
    const noted = "Sun, 06 Nov 1994 08:49:37 GMT";
    const len = refusalResponse(refusal, .{ .date = noted }, &out);
    const head = "HTTP/1.1 400 Bad Request\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n" ++
        "Content-Type: text/plain\r\nConnection: close\r\nContent-Length: 4\r\n\r\n";
    try std.testing.expectEqualStrings(head ++ "why\n", out[0..len]);
    try std.testing.expectEqualStrings(
        head,
        out[0..refusalResponse(refusal, .{ .date = noted, .with_content = false }, &out)],
    );
    const long: [event.Refusal.detail_bytes_max]u8 = @splat('x');
    const most = refusalResponse(
        .{ .status = 511, .detail = &long },
        .{ .date = noted, .retry_after_s = std.math.maxInt(u32) },
        &out,
    );
    try std.testing.expect(std.mem.indexOf(u8, out[0..most], "\r\nRetry-After: 4294967295\r\n") != null);
}

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
