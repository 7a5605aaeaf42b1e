//! Fuzz target `chunked`: a chunked body with its trailers behind a fixed head, against a second decoder that
//! has all of the bytes at once.
const std = @import("std");
const protocol = @import("protocol");
const cuts_file = @import("cuts.zig");
const Cuts = cuts_file.Cuts;
const http1 = protocol.http1;
const FieldSpan = protocol.http.FieldSpan;
const testing = std.testing;

const limits: http1.Limits = .{
    .request_line_bytes_max = 100,
    .head_bytes_max = 300,
    .header_count_max = 6,
    .body_bytes_max = 5000,
    .trailer_bytes_max = 120,
    .chunk_line_bytes_max = 24,
};
const head_text = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

/// The outcome of reading a body.
const Result = struct {
    status: enum { unfinished, refused, complete } = .unfinished,
    content: [limits.body_bytes_max]u8 = undefined,
    content_len: usize = 0,
    /// Bytes that belong to it, when it is complete.
    len: usize = 0,
    trailers: usize = 0,

    fn append(result: *Result, bytes: []const u8) !void {
        try testing.expect(bytes.len <= result.content.len - result.content_len);
        @memcpy(result.content[result.content_len..][0..bytes.len], bytes);
        result.content_len += bytes.len;
    }

    fn fail(result: *Result, problem: Problem) void {
        result.status = if (problem == error.Refused) .refused else .unfinished;
    }
};

pub fn run(input: []const u8) !void {
    var expected: Result = .{};
    try decode(input, &expected);
    for ([_]Cuts{ .whole, .seeded(std.hash.Wyhash.hash(0, input)), .bytes }) |cuts| {
        if (cuts == .bytes and input.len > cuts_file.bytewise_max) continue;
        var result: Result = .{};
        try read(input, cuts, &result);
        try testing.expectEqual(expected.status, result.status);
        try testing.expectEqualSlices(
            u8,
            expected.content[0..expected.content_len],
            result.content[0..result.content_len],
        );
        if (expected.status != .complete) continue;
        try testing.expectEqual(expected.len, result.len);
        try testing.expectEqual(expected.trailers, result.trailers);
    }
}

fn read(input: []const u8, way: Cuts, result: *Result) !void {
    var cuts = way;
    var session: http1.Session = .init(&limits);
    var storage: [limits.header_count_max]FieldSpan = undefined;
    var head: http1.Head = .{ .storage = &storage };
    const opened = session.feed(head_text, &head);
    std.debug.assert(opened.event == .request and opened.consumed == head_text.len);
    var arrived: usize = 0;
    while (true) {
        arrived += cuts.next(input.len - arrived);
        while (true) {
            // The scratch serves other connections meanwhile.
            if (cuts != .whole) {
                @memset(&storage, .{
                    .name_at = 9999,
                    .value_at = 9999,
                    .value_len = 9,
                    .name_len = 9,
                    .id = .host,
                });
            }
            const step = session.feed(input[result.len..arrived], &head);
            result.len += step.consumed;
            switch (step.event) {
                .need_more => break,
                .body => |bytes| {
                    try testing.expect(bytes.len > 0);
                    try result.append(bytes);
                },
                .trailers => {
                    result.trailers = head.fields.len;
                    for (head.fields) |field| try testing.expect(!forbidden(field.name(head.text)));
                },
                .end => {
                    result.status = .complete;
                    return;
                },
                .refused => {
                    result.status = .refused;
                    return;
                },
                .request => unreachable,
            }
        }
        if (arrived == input.len) return;
    }
}

/// The decoder of RFC 9112 section 7.1 with our limits. What it has no bytes for is unfinished, unless those
/// that are there break a rule.
fn decode(input: []const u8, result: *Result) !void {
    var rest: Reader = .{ .bytes = input };
    while (true) {
        const size = chunkSize(&rest) catch |problem| return result.fail(problem);
        if (size == 0) break;
        if (size > limits.body_bytes_max - result.content_len) return result.fail(error.Refused);
        const data = rest.take(@intCast(size));
        try result.append(data);
        if (data.len < size) return;
        for ("\r\n") |wanted| if (rest.byte() catch return != wanted) return result.fail(error.Refused);
    }
    trailerSection(&rest, result) catch |problem| return result.fail(problem);
    result.status = .complete;
    result.len = rest.at;
}

const Problem = error{ Unfinished, Refused };

const Reader = struct {
    bytes: []const u8,
    at: usize = 0,

    fn byte(reader: *Reader) error{Unfinished}!u8 {
        if (reader.at == reader.bytes.len) return error.Unfinished;
        reader.at += 1;
        return reader.bytes[reader.at - 1];
    }

    fn take(reader: *Reader, count: usize) []const u8 {
        const taken = reader.bytes[reader.at..][0..@min(count, reader.bytes.len - reader.at)];
        reader.at += taken.len;
        return taken;
    }
};

fn chunkSize(rest: *Reader) Problem!u64 {
    const from = rest.at;
    var size: u128 = 0;
    var digits: usize = 0;
    var byte = try rest.byte();
    while (std.fmt.charToDigit(byte, 16)) |digit| {
        // Digits are looked at while the line is within its limit.
        if (rest.at - from > limits.chunk_line_bytes_max) return error.Refused;
        size = size * 16 + digit;
        if (size > std.math.maxInt(u64)) return error.Refused;
        digits += 1;
        byte = try rest.byte();
    } else |_| {}
    if (digits == 0) return error.Refused;
    const blank = byte == ' ' or byte == '\t';
    while (byte == ' ' or byte == '\t') {
        if (rest.at - from > limits.chunk_line_bytes_max) return error.Refused;
        byte = try rest.byte();
    }
    if (byte == ';') {
        while (byte != '\r') {
            if (byte < ' ' and byte != '\t' or byte == 0x7f) return error.Refused;
            if (rest.at - from > limits.chunk_line_bytes_max) return error.Refused;
            byte = try rest.byte();
        }
    } else if (blank or byte != '\r') return error.Refused;
    if (rest.at - from > limits.chunk_line_bytes_max) return error.Refused;
    if (try rest.byte() != '\n') return error.Refused;
    if (rest.at - from > limits.chunk_line_bytes_max) return error.Refused;
    return @intCast(size);
}

fn trailerSection(rest: *Reader, result: *Result) Problem!void {
    const from = rest.at;
    var lines: usize = 0;
    while (true) {
        var line: [limits.trailer_bytes_max]u8 = undefined;
        const len = try trailerLine(rest, from, &line, lines);
        if (len == 0) return;
        lines += 1;
        const colon = std.mem.findScalar(u8, line[0..len], ':') orelse return error.Refused;
        if (colon == 0) return error.Refused;
        for (line[0..colon]) |byte| {
            if (!std.ascii.isAlphanumeric(byte) and std.mem.findScalar(u8, "!#$%&'*+-.^_`|~", byte) == null) {
                return error.Refused;
            }
        }
        if (!forbidden(line[0..colon])) result.trailers += 1;
    }
}

/// Reads a line, without its end. A line ends with CR LF and has no other control byte but HTAB. The section
/// may be as long as the limit, and not longer.
fn trailerLine(rest: *Reader, from: usize, line: *[limits.trailer_bytes_max]u8, lines: usize) Problem!usize {
    var len: usize = 0;
    while (true) {
        const byte = try rest.byte();
        if (rest.at - from == limits.trailer_bytes_max) return error.Refused;
        if (byte == '\r') break;
        if (len == 0 and lines == limits.header_count_max) return error.Refused;
        if ((byte < ' ' and byte != '\t') or byte == 0x7f) return error.Refused;
        line[len] = byte;
        len += 1;
    }
    if (try rest.byte() != '\n') return error.Refused;
    if (len > 0 and rest.at - from == limits.trailer_bytes_max) return error.Refused;
    return len;
}

/// Names that no trailer may have; a part of the engine's list, written down a second time.
fn forbidden(name: []const u8) bool {
    for ([_][]const u8{
        "content-length",    "host",                "trailer",          "expect",
        "range",             "content-type",        "cache-control",    "pragma",
        "authorization",     "cookie",              "origin",           "if-none-match",
        "if-match",          "if-range",            "te",               "upgrade",
        "transfer-encoding", "connection",          "keep-alive",       "proxy-connection",
        "forwarded",         "x-forwarded-for",     "x-forwarded-host", "x-forwarded-proto",
        "if-modified-since", "if-unmodified-since",
    }) |one| if (std.ascii.eqlIgnoreCase(one, name)) return true;
    return false;
}
