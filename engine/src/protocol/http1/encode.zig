//! The text of response heads and of chunk prefixes, in the caller's memory (RFC 9112 sections 4 and 7.1):
//! the lines that the engine adds to a response, and its own complete responses. Does not know: which of an
//! application's fields are sent (response_fields.zig), if a message may be sent now (session.zig), and the
//! end of its content (framing.zig).
const std = @import("std");
const assert = std.debug.assert;
const status = @import("../http/status.zig");
const syntax = @import("../http/syntax.zig");
const date = @import("../http/date.zig");
const event = @import("../event.zig");

/// The number of bytes of a field besides its name and its value.
pub const field_overhead = ": ".len + "\r\n".len;

/// The maximum length of a head without the application's fields, in bytes: status line, Date, Connection,
/// framing field, blank line.
pub const head_overhead_bytes_max = status.line_bytes_max + date_prefix.len + date.bytes_len + "\r\n".len +
    connection_close_upgrade.len + length_bytes_max + "\r\n".len;

/// The maximum length of the end of a held head, in bytes: Connection, framing field, blank line.
pub const head_end_bytes_max = connection_close_upgrade.len + length_bytes_max + "\r\n".len;

/// Lines that the engine adds.
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
    // head_overhead_bytes_max includes the longest line of each kind.
    for (.{ connection_close, connection_keep_alive, connection_upgrade }) |line| {
        assert(line.len <= connection_close_upgrade.len);
    }
    assert(length_zero.len <= length_bytes_max and chunked_coding.len <= length_bytes_max);
}

/// A buffer that is filled from the left. The caller has made it large enough.
pub const Writer = struct {
    buffer: []u8,
    len: usize = 0,

    /// Appends `text`. Asserts that there is room. Inline, so that a literal is copied by a few moves instead
    /// of a call.
    pub inline fn put(writer: *Writer, text: []const u8) void {
        @memcpy(writer.buffer[writer.len..][0..text.len], text);
        writer.len += text.len;
    }

    pub inline fn putStatus(writer: *Writer, code: u16) void {
        // Nearly all responses have the status 200, which is a literal here.
        if (code == 200) writer.put(comptime status.line(200)) else writer.put(status.line(code));
    }

    pub inline fn putDate(writer: *Writer, text: *const [date.bytes_len]u8) void {
        const line = writer.buffer[writer.len..][0 .. date_prefix.len + date.bytes_len + "\r\n".len];
        line[0..date_prefix.len].* = date_prefix.*;
        line[date_prefix.len..][0..date.bytes_len].* = text.*;
        line[line.len - 2 ..][0..2].* = "\r\n".*;
        writer.len += line.len;
    }

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

    /// Appends a line with a field that was checked before.
    pub inline fn putField(writer: *Writer, name: []const u8, value: []const u8) void {
        // One bounds check for the whole line.
        const line = writer.buffer[writer.len..][0 .. name.len + value.len + field_overhead];
        @memcpy(line[0..name.len], name);
        line[name.len..][0..2].* = ": ".*;
        @memcpy(line[name.len + 2 ..][0..value.len], value);
        line[line.len - 2 ..][0..2].* = "\r\n".*;
        writer.len += line.len;
    }
};

/// The maximum length of a chunk prefix, in bytes: 16 hexadecimal digits and CRLF.
pub const chunk_prefix_bytes_max = 18;

/// Writes the line before a chunk of `len` bytes to `out` and returns it.
pub fn chunkPrefix(len: u64, out: *[chunk_prefix_bytes_max]u8) []const u8 {
    var writer: Writer = .{ .buffer = out };
    writer.putChunkPrefix(len);
    return out[0..writer.len];
}

/// The maximum length of `refusalResponse`, in bytes.
pub const refusal_bytes_max = status.line_bytes_max + 256 + event.Refusal.detail_bytes_max;

/// Parts of a refusal's response besides its reason.
pub const RefusalExtras = struct {
    /// The Date field; null: none.
    date: ?*const [date.bytes_len]u8 = null,
    /// The Retry-After field, in seconds; null: none.
    retry_after_s: ?u32 = null,
    /// The method is not HEAD.
    with_content: bool = true,
    /// Content in place of the refusal's text; null: none.
    page: ?Page = null,
};

/// An application's content for a refusal of the engine. Both texts are borrowed until the response is
/// queued.
pub const Page = struct {
    /// At most `content_type_bytes_max` bytes.
    content_type: []const u8,
    body: []const u8,

    pub const content_type_bytes_max = 100;
};

/// Writes a complete response to a request that is refused: plain text, and then the connection closes. `out`
/// has at least refusal_bytes_max bytes. Returns the number of bytes written. These do not include a page's
/// content, which the caller must send after them, unless content is omitted.
pub fn refusalResponse(refusal: event.Refusal, extras: RefusalExtras, out: []u8) usize {
    assert(refusal.status >= 400 and refusal.status <= status.code_max);
    assert(refusal.detail.len <= event.Refusal.detail_bytes_max);
    assert(out.len >= refusal_bytes_max);
    var writer: Writer = .{ .buffer = out };
    writer.putStatus(refusal.status);
    if (extras.date) |text| writer.putDate(text);
    if (extras.page) |page| {
        assert(page.content_type.len <= Page.content_type_bytes_max);
        writer.putField("Content-Type", page.content_type);
    } else writer.put("Content-Type: text/plain\r\n");
    writer.put(connection_close);
    if (extras.retry_after_s) |seconds| {
        var digits: [syntax.decimal_bytes_max]u8 = undefined;
        writer.putField("Retry-After", syntax.decimal(seconds, &digits));
    }
    writer.putLength(if (extras.page) |page| page.body.len else refusalBodyBytes(refusal));
    writer.put("\r\n");
    if (!extras.with_content or extras.page != null) return writer.len;
    writer.put(refusal.detail);
    writer.put("\n");
    return writer.len;
}

/// Writes the complete response of the health path, after which the connection closes. `with_content`: the
/// method is not HEAD. `out` has at least refusal_bytes_max bytes. Returns the number of bytes written.
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

/// The number of bytes of content in a refusal's response, unless content is omitted.
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
        // The buffer has exactly the promised room.
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
    const longest: [Page.content_type_bytes_max]u8 = @splat('t');
    const paged = refusalResponse(
        .{ .status = 511, .detail = &long },
        .{
            .date = noted,
            .retry_after_s = std.math.maxInt(u32),
            .page = .{ .content_type = &longest, .body = "<p>no" },
        },
        &out,
    );
    try std.testing.expect(std.mem.endsWith(u8, out[0..paged], "\r\nContent-Length: 5\r\n\r\n"));
}
