//! Decoders of request content: by length, and in chunks with trailers (RFC 9112 sections 6 and 7). Does not
//! know: which decoder a request needs (framing.zig), and the reader of the content.
const std = @import("std");
const assert = std.debug.assert;
const event = @import("../event.zig");
const framing = @import("framing.zig");
const head_file = @import("head.zig");
const syntax = @import("../http/syntax.zig");
const FieldSpan = @import("../http/header.zig").FieldSpan;
const Fields = head_file.Fields;
const Head = head_file.Head;
const Limits = framing.Limits;
const Refusal = event.Refusal;
const Step = event.Step;

/// Content of a known length.
pub const Counted = struct {
    /// The number of bytes that were not read yet.
    remaining: u64,

    /// Reads more bytes. `.end` is a step of its own after the last byte.
    pub fn feed(counted: *Counted, bytes: []const u8) Step {
        if (counted.remaining == 0) return .{ .consumed = 0, .event = .end };
        if (bytes.len == 0) return .{ .consumed = 0, .event = .need_more };
        const len: usize = @intCast(@min(bytes.len, counted.remaining));
        counted.remaining -= len;
        return .{ .consumed = len, .event = .{ .body = bytes[0..len] } };
    }
};

/// Content in chunks.
pub const Chunked = struct {
    place: Place = .{ .line = .{} },
    /// The number of bytes of content announced so far.
    total: u64 = 0,
    /// The number of bytes of extensions so far, minus the bytes of content.
    extension_debt: u64 = 0,

    const Place = union(enum) {
        line: Line,
        /// The number of unread bytes of the chunk, never 0.
        data: u64,
        data_cr,
        data_lf,
        trailers: Fields,
        finished,
    };

    /// Reads more bytes, up to the end of a piece of content or of the trailer section. `.trailers` fills the
    /// text and the fields of `head`, and comes only if a trailer may be delivered. `.end` always comes.
    pub fn feed(chunked: *Chunked, bytes: []const u8, limits: *const Limits, head: *Head) Step {
        var at: usize = 0;
        while (true) switch (chunked.place) {
            .line => |*line| switch (line.feed(bytes[at..], limits, &chunked.extension_debt)) {
                .incomplete => return .{ .consumed = bytes.len, .event = .need_more },
                .refused => |refusal| return .{ .consumed = at, .event = .{ .refused = refusal } },
                .complete => |len| {
                    at += len;
                    if (chunked.open(line.size, limits)) |refusal| {
                        return .{ .consumed = at, .event = .{ .refused = refusal } };
                    }
                },
            },
            .data => |*remaining| {
                if (at == bytes.len) return .{ .consumed = at, .event = .need_more };
                const data = bytes[at..][0..@intCast(@min(bytes.len - at, remaining.*))];
                remaining.* -= data.len;
                if (remaining.* == 0) chunked.place = .data_cr;
                return .{ .consumed = at + data.len, .event = .{ .body = data } };
            },
            .data_cr, .data_lf => {
                if (at == bytes.len) return .{ .consumed = at, .event = .need_more };
                const first = chunked.place == .data_cr;
                if (bytes[at] != @as(u8, if (first) '\r' else '\n')) {
                    return refuse(at, 400, "chunk data without CRLF at its end");
                }
                at += 1;
                chunked.place = if (first) .data_lf else .{ .line = .{} };
            },
            .trailers => {
                const step = chunked.trailerSection(bytes[at..], limits, head);
                return .{ .consumed = at + step.consumed, .event = step.event };
            },
            .finished => return .{ .consumed = at, .event = .end },
        };
    }

    /// Begins the part after a complete size line: content, or the trailers.
    fn open(chunked: *Chunked, size: u64, limits: *const Limits) ?Refusal {
        const debt_max = @as(u64, limits.chunk_line_bytes_max) * Limits.extensions_ratio;
        chunked.extension_debt = chunked.extension_debt -| size;
        if (chunked.extension_debt > debt_max) {
            return .{ .status = 400, .detail = "too many chunk extensions" };
        }
        if (size == 0) {
            chunked.place = .{ .trailers = .init(0) };
            return null;
        }
        const max = if (limits.body_bytes_max == 0) std.math.maxInt(u64) else limits.body_bytes_max;
        assert(chunked.total <= max);
        if (size > max - chunked.total) return too_large;
        chunked.total += size;
        chunked.place = .{ .data = size };
        return null;
    }

    fn trailerSection(chunked: *Chunked, bytes: []const u8, limits: *const Limits, head: *Head) Step {
        const fields = &chunked.place.trailers;
        const fresh = fields.scanned == 0;
        const storage = head.capacity(limits);
        const end = switch (fields.parse(bytes, limits.trailer_bytes_max, storage)) {
            .incomplete => return .{ .consumed = 0, .event = .need_more },
            .refused => |refusal| return .{ .consumed = 0, .event = .{ .refused = refusal } },
            .complete => |end| end,
        };
        if (!fresh) {
            // The spans of lines that earlier calls have read are lost, because other connections use the
            // scratch between calls.
            fields.* = .init(0);
            const again = fields.parse(bytes, limits.trailer_bytes_max, storage);
            assert(again.complete == end);
        }
        const kept = withoutForbidden(storage[0..fields.count]);
        chunked.place = .finished;
        if (kept.len == 0) return .{ .consumed = end, .event = .end };
        head.reset();
        head.text = bytes[0..end];
        head.fields = kept;
        return .{ .consumed = end, .event = .trailers };
    }
};

/// Moves the fields that may be delivered to the front, and returns them.
fn withoutForbidden(fields: []FieldSpan) []FieldSpan {
    var kept: usize = 0;
    for (fields) |field| {
        if (framing.isForbiddenTrailer(field.id)) continue;
        fields[kept] = field;
        kept += 1;
    }
    return fields[0..kept];
}

/// A chunk's first line: the size in hexadecimal, optionally with extensions, which are limited, checked for
/// control bytes and ignored.
const Line = struct {
    size: u64 = 0,
    len: u32 = 0,
    part: enum(u8) { first_digit, digits, space, extension, lf } = .first_digit,

    const Outcome = union(enum) { incomplete, complete: usize, refused: Refusal };

    fn feed(line: *Line, bytes: []const u8, limits: *const Limits, extension_bytes: *u64) Outcome {
        for (bytes, 1..) |byte, consumed| {
            if (line.len == limits.chunk_line_bytes_max) return bad("chunk line too long");
            line.len += 1;
            switch (line.part) {
                .first_digit, .digits => if (std.fmt.charToDigit(byte, 16)) |digit| {
                    // More digits would overflow 64 bits.
                    if (line.size >> 60 != 0) return .{ .refused = too_large };
                    line.size = line.size << 4 | digit;
                    line.part = .digits;
                } else |_| {
                    if (line.part == .first_digit) return bad("malformed chunk size");
                    line.part = switch (byte) {
                        '\r' => .lf,
                        ';' => .extension,
                        ' ', '\t' => .space,
                        else => return bad("malformed chunk size"),
                    };
                },
                .space => switch (byte) {
                    ' ', '\t' => {},
                    ';' => line.part = .extension,
                    else => return bad("malformed chunk size"),
                },
                .extension => if (byte == '\r') {
                    line.part = .lf;
                } else if (syntax.isFieldValue(&.{byte})) {
                    extension_bytes.* += 1;
                } else return bad("control byte in chunk extension"),
                .lf => return if (byte == '\n') .{ .complete = consumed } else bad("bare CR in chunk line"),
            }
        }
        return .incomplete;
    }

    fn bad(comptime detail: []const u8) Outcome {
        return .{ .refused = .{ .status = 400, .detail = detail } };
    }
};

const too_large: Refusal = .{ .status = 413, .detail = "content too large" };

fn refuse(consumed: usize, status: u16, comptime detail: []const u8) Step {
    return .{ .consumed = consumed, .event = .{ .refused = .{ .status = status, .detail = detail } } };
}

const test_limits: Limits = .{
    .request_line_bytes_max = 64,
    .head_bytes_max = 256,
    .header_count_max = 3,
    .body_bytes_max = 20,
    .trailer_bytes_max = 40,
    .chunk_line_bytes_max = 24,
};

/// Feeds `text` in pieces of `piece` bytes, like a connection, and collects the content in `out`.
fn decode(
    text: []const u8,
    piece: usize,
    out: *[64]u8,
    trailers: *usize,
) union(enum) { content: []const u8, refused: u16, unfinished } {
    var storage: [8]FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    var chunked: Chunked = .{};
    var len: usize = 0;
    var start: usize = 0;
    var arrived: usize = 0;
    while (arrived < text.len) {
        arrived = @min(arrived + piece, text.len);
        while (true) {
            // Other connections use the scratch between two calls.
            @memset(&storage, .{ .name_at = 0, .name_len = 0, .value_at = 0, .value_len = 0, .id = .other });
            const step = chunked.feed(text[start..arrived], &test_limits, &head);
            start += step.consumed;
            switch (step.event) {
                .need_more => break,
                .body => |data| {
                    @memcpy(out[len..][0..data.len], data);
                    len += data.len;
                },
                .trailers => trailers.* = head.fields.len,
                .end => return if (start == text.len) .{ .content = out[0..len] } else .unfinished,
                .refused => |refusal| return .{ .refused = refusal.status },
                .request => unreachable,
            }
        }
    }
    return .unfinished;
}

test "chunks at every piece size" {
    const cases = [_]struct { []const u8, []const u8, usize }{
        .{ "0\r\n\r\n", "", 0 },
        .{ "5\r\nhello\r\n0\r\n\r\n", "hello", 0 },
        .{ "00005;a=b;c=\"d;e\"\r\nhello\r\nA \t;x\r\n, world!!!\r\n000\r\n\r\n", "hello, world!!!", 0 },
        .{ "1;a\tb\r\na\r\n0\r\n\r\n", "a", 0 },
        // Exactly at the limits: content, a chunk's line, the trailers.
        .{ "14\r\n01234567890123456789\r\n0\r\n\r\n", "01234567890123456789", 0 },
        .{ "b\r\n01234567890\r\n9\r\n123456789\r\n0\r\n\r\n", "01234567890123456789", 0 },
        .{ "1;01234567890123456789\r\na\r\n0\r\n\r\n", "a", 0 },
        .{ "0\r\nA: 012345678901234567890123456789012\r\n\r\n", "", 1 },
        .{ "0\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n", "", 3 },
        .{ "1\r\na\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n", "a", 2 },
        .{ "1\r\na\r\n0\r\nHost: b\r\nX: 1\r\nTE: x\r\n\r\n", "a", 1 },
        .{ "1\r\na\r\n0\r\nContent-Length: 9\r\n\r\n", "a", 0 },
    };
    for (cases) |case| {
        const text, const content, const trailer_count = case;
        for (1..text.len + 1) |piece| {
            var out: [64]u8 = undefined;
            var trailers: usize = 0;
            try std.testing.expectEqualStrings(content, decode(text, piece, &out, &trailers).content);
            try std.testing.expectEqual(trailer_count, trailers);
        }
    }
}

test "chunks that are refused, at every piece size" {
    const cases = [_]struct { u16, []const u8 }{
        .{ 400, "\r\n" },
        .{ 400, "g\r\n" },
        .{ 400, "-1\r\n" },
        .{ 400, "0x1\r\n" },
        .{ 400, " 1\r\n" },
        .{ 400, "1 \r\n" },
        .{ 400, "1\na" },
        .{ 400, "1\rx" },
        .{ 400, "1\r\t" },
        .{ 400, "1;a\nb" },
        .{ 400, "1;a\x00b" },
        .{ 400, "1;\x7f" },
        .{ 400, "1\r\nab" },
        .{ 400, "1\r\na\n" },
        .{ 400, "1\r\na\rx" },
        .{ 400, "1;012345678901234567890\r\n" },
        .{ 400, "1;0123456789012345678901234\r\n" },
        .{ 400, "0000000000000000000000000" },
        .{ 413, "15\r\n" },
        .{ 413, "a\r\n0123456789\r\nb\r\n" },
        .{ 413, "10000000000000000\r\n" },
        .{ 413, "ffffffffffffffff\r\n" },
        .{ 400, "0\r\nbad\r\n\r\n" },
        .{ 400, "0\r\nA : b\r\n\r\n" },
        .{ 400, "0\r\nA: b\r\n c\r\n\r\n" },
        .{ 400, "0\r\n\n" },
        .{ 431, "0\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\n\r\n" },
        .{ 431, "0\r\nA: 0123456789012345678901234567890123\r\n\r\n" },
        .{ 431, "0\r\nA: 0123456789012345678901234567890123456789\r\n\r\n" },
    };
    for (cases) |case| {
        const status, const text = case;
        for (1..text.len + 1) |piece| {
            var out: [64]u8 = undefined;
            var trailers: usize = 0;
            try std.testing.expectEqual(status, decode(text, piece, &out, &trailers).refused);
        }
    }
}

test "without a limit, sizes that add up beyond 64 bits are still refused" {
    var limits = test_limits;
    limits.body_bytes_max = 0;
    var storage: [1]FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    var chunked: Chunked = .{ .total = std.math.maxInt(u64) - 4 };
    try std.testing.expectEqual(413, chunked.feed("5\r\n", &limits, &head).event.refused.status);
    chunked = .{};
    try std.testing.expectEqual(.need_more, chunked.feed("ffffffffffffffff\r\n", &limits, &head).event);
    chunked = .{};
    try std.testing.expectEqual(
        413,
        chunked.feed("10000000000000000\r\n", &limits, &head).event.refused.status,
    );
}

test "bytes that are refused are not consumed" {
    var storage: [1]FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    var chunked: Chunked = .{};
    const step = chunked.feed("0\r\nbad\r\n\r\n", &test_limits, &head);
    try std.testing.expectEqual(400, step.event.refused.status);
    try std.testing.expectEqual("0\r\n".len, step.consumed);
}

test "trailers that may not be delivered leave no gap, and none is no event" {
    var storage: [2]FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    var chunked: Chunked = .{};
    try std.testing.expectEqual(
        .trailers,
        chunked.feed("0\r\nHost: a\r\nX: b\r\n\r\n", &test_limits, &head).event,
    );
    try std.testing.expectEqual(1, head.fields.len);
    try std.testing.expectEqualStrings("X", head.fields[0].name(head.text));
    for ([_][]const u8{ "0\r\n\r\n", "0\r\nHost: a\r\n\r\n" }) |text| {
        chunked = .{};
        try std.testing.expectEqual(
            Step{ .consumed = text.len, .event = .end },
            chunked.feed(text, &test_limits, &head),
        );
    }
}

test "trailers leave nothing of the request's head" {
    var storage: [1]FieldSpan = undefined;
    var head: Head = .{ .storage = &storage, .method = .POST, .target = .{ .at = 5, .len = 90 } };
    var chunked: Chunked = .{};
    const step = chunked.feed("0\r\nA: b\r\n\r\n", &test_limits, &head);
    try std.testing.expectEqual(.trailers, step.event);
    try std.testing.expectEqualDeep(
        Head{ .storage = &storage, .text = "A: b\r\n\r\n", .fields = head.fields },
        head,
    );
    try std.testing.expectEqualStrings("b", head.fields[0].value(head.text));
}

/// Feeds a chunk; false: it is refused because of its extensions.
fn accepts(chunked: *Chunked, text: []const u8, limits: *const Limits, head: *Head) !bool {
    var rest = text;
    while (true) {
        const step = chunked.feed(rest, limits, head);
        rest = rest[step.consumed..];
        switch (step.event) {
            .need_more => return true,
            .body => {},
            .refused => |refusal| {
                try std.testing.expectEqualStrings("too many chunk extensions", refusal.detail);
                try std.testing.expectEqual(400, refusal.status);
                return false;
            },
            .request, .trailers, .end => unreachable,
        }
    }
}

test "extensions of all chunks have a limit, which content raises" {
    const debt_max = test_limits.chunk_line_bytes_max * 64;
    const extension = "0123456789abcdef";
    var limits = test_limits;
    limits.body_bytes_max = 0;
    var storage: [1]FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    for (1..extension.len) |size| {
        var buffer: [64]u8 = undefined;
        const text = try std.fmt.bufPrint(
            &buffer,
            "{x};{s}\r\n{s}\r\n",
            .{ size, extension, extension[0..size] },
        );
        var chunked: Chunked = .{};
        var count: usize = 0;
        while (try accepts(&chunked, text, &limits, &head)) count += 1;
        try std.testing.expectEqual(debt_max / (extension.len - size), count);
    }
    // Signed chunks may go on for ever if they have enough content.
    var chunked: Chunked = .{};
    for (0..2 * debt_max) |_| {
        try std.testing.expect(try accepts(
            &chunked,
            "10;" ++ extension ++ "\r\n" ++ extension ++ "\r\n",
            &limits,
            &head,
        ));
    }
}

test "counted" {
    var counted: Counted = .{ .remaining = 3 };
    try std.testing.expectEqual(Step{ .consumed = 0, .event = .need_more }, counted.feed(""));
    try std.testing.expectEqualStrings("ab", counted.feed("ab").event.body);
    const step = counted.feed("cGET");
    try std.testing.expectEqual(1, step.consumed);
    try std.testing.expectEqualStrings("c", step.event.body);
    try std.testing.expectEqual(Step{ .consumed = 0, .event = .end }, counted.feed("GET"));
}
