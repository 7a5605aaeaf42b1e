//! Reads HTTP/1.1 responses as a stream of pieces, as much of RFC 9112 as servers under measurement
//! use: status, Content-Length, chunks. Does not know: sockets, and every field that does not say
//! where the body ends.
const std = @import("std");

/// Reads the responses of a connection, one after the other.
pub const Reader = struct {
    status: u16 = 0,
    body_bytes: u64 = 0,
    state: State = .status,
    length: ?u64 = null,
    chunked: bool = false,
    remaining: u64 = 0,
    /// A body that only the connection's end ends is one, too: of a connection for one response.
    ends_with_connection: bool = false,
    /// A line that has not ended yet. Longer lines are cut: those that matter are short.
    line: [96]u8 = undefined,
    line_length: u8 = 0,

    const State = enum { status, field, counted, chunk_size, chunk, chunk_end, trailer, complete };

    pub const Step = struct {
        consumed: usize,
        /// A piece of the body, borrowed from what was fed.
        body: []const u8 = "",
        /// The response has ended. The next `feed` begins another one; after a 101 the bytes are
        /// not HTTP any more.
        complete: bool = false,
    };

    /// Takes the next line or piece of a body. Bytes that are not consumed are to be fed again.
    pub fn feed(r: *Reader, bytes: []const u8) error{Malformed}!Step {
        std.debug.assert(bytes.len > 0);
        if (r.state == .complete) r.* = .{};
        switch (r.state) {
            .counted, .chunk => {
                const piece = bytes[0..@min(bytes.len, r.remaining)];
                r.remaining -= piece.len;
                r.body_bytes += piece.len;
                if (r.remaining == 0) r.state = if (r.state == .chunk) .chunk_end else .complete;
                return .{ .consumed = piece.len, .body = piece, .complete = r.state == .complete };
            },
            else => {},
        }
        const end = std.mem.findScalar(u8, bytes, '\n');
        const part = bytes[0 .. end orelse bytes.len];
        const kept = @min(part.len, r.line.len - r.line_length);
        @memcpy(r.line[r.line_length..][0..kept], part[0..kept]);
        r.line_length += @intCast(kept);
        if (end == null) return .{ .consumed = bytes.len };
        const line = std.mem.trimEnd(u8, r.line[0..r.line_length], "\r");
        r.line_length = 0;
        try r.takeLine(line);
        return .{ .consumed = part.len + 1, .complete = r.state == .complete };
    }

    /// The head has ended, the response has not.
    pub fn inBody(r: *const Reader) bool {
        return r.state != .status and r.state != .field and r.state != .complete;
    }

    fn takeLine(r: *Reader, line: []const u8) error{Malformed}!void {
        switch (r.state) {
            .status => {
                if (line.len < 12 or !std.mem.startsWith(u8, line, "HTTP/1.")) return error.Malformed;
                r.status = std.fmt.parseInt(u16, line[9..12], 10) catch return error.Malformed;
                r.state = .field;
            },
            .field => if (line.len == 0) try r.endHead() else try r.takeField(line),
            .chunk_size => {
                const digits = line[0 .. std.mem.findScalar(u8, line, ';') orelse line.len];
                r.remaining = std.fmt.parseInt(u64, std.mem.trim(u8, digits, " "), 16) catch
                    return error.Malformed;
                r.state = if (r.remaining == 0) .trailer else .chunk;
            },
            .chunk_end => {
                if (line.len != 0) return error.Malformed;
                r.state = .chunk_size;
            },
            .trailer => if (line.len == 0) {
                r.state = .complete;
            },
            .counted, .chunk, .complete => unreachable,
        }
    }

    fn takeField(r: *Reader, line: []const u8) error{Malformed}!void {
        const colon = std.mem.findScalar(u8, line, ':') orelse return error.Malformed;
        const value = std.mem.trim(u8, line[colon + 1 ..], " \t");
        if (std.ascii.eqlIgnoreCase(line[0..colon], "content-length")) {
            r.length = std.fmt.parseInt(u64, value, 10) catch return error.Malformed;
        } else if (std.ascii.eqlIgnoreCase(line[0..colon], "transfer-encoding")) {
            r.chunked = std.ascii.eqlIgnoreCase(value, "chunked");
        }
    }

    /// A body that only the connection's end ends is none of a keep-alive connection.
    fn endHead(r: *Reader) error{Malformed}!void {
        if (r.status == 101 or r.status == 204) {
            r.state = .complete;
        } else if (r.status < 200) {
            r.state = .status;
        } else if (r.chunked) {
            r.state = .chunk_size;
        } else {
            r.remaining = r.length orelse
                if (r.ends_with_connection) std.math.maxInt(u64) else return error.Malformed;
            r.state = if (r.remaining == 0) .complete else .counted;
        }
    }
};

const Total = struct { responses: usize = 0, body: [64]u8 = undefined, body_length: usize = 0 };

fn feedAll(reader: *Reader, pieces: []const []const u8) !Total {
    var total: Total = .{};
    for (pieces) |piece| {
        var rest = piece;
        while (rest.len > 0) {
            const step = try reader.feed(rest);
            @memcpy(total.body[total.body_length..][0..step.body.len], step.body);
            total.body_length += step.body.len;
            total.responses += @intFromBool(step.complete);
            rest = rest[step.consumed..];
        }
    }
    return total;
}

test "responses are found wherever reads end" {
    const stream = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello" ++
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n1\r\nd\r\n0\r\nT: 1\r\n\r\n" ++
        "HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    for (0..stream.len + 1) |split| {
        var reader: Reader = .{};
        const total = try feedAll(&reader, &.{ stream[0..split], stream[split..] });
        try std.testing.expectEqual(4, total.responses);
        try std.testing.expectEqualStrings("helloabcd", total.body[0..total.body_length]);
        try std.testing.expectEqual(204, reader.status);
    }
}

test "a body lasts as long as its connection, where that is allowed" {
    var reader: Reader = .{ .ends_with_connection = true };
    const total = try feedAll(&reader, &.{ "HTTP/1.1 200 OK\r\n\r\nhe", "llo" });
    try std.testing.expectEqualStrings("hello", total.body[0..total.body_length]);
    try std.testing.expect(reader.inBody());
}

test "bytes that are no response are malformed" {
    for ([_][]const u8{
        "SSH-2.0\r\n",             "HTTP/1.1 2x0 \r\n",
        "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n",
    }) |text| {
        var reader: Reader = .{};
        try std.testing.expectError(error.Malformed, feedAll(&reader, &.{text}));
    }
}
