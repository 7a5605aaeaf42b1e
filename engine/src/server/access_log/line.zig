//! A line of the access log: texts that are kept when the request begins, and values that are added at its
//! end. Bytes of a client that could break a line, end a quoted value or reach a terminal as control bytes
//! are escaped. Does not know: formats as text, files, the present time.
const std = @import("std");
const assert = std.debug.assert;
const protocol = @import("protocol");
const Head = protocol.Head;
const Limits = protocol.Limits;
const Session = protocol.Single;
const Pool = @import("../pool.zig").Pool;
const tls = @import("tls.zig");
const Tunnel = @import("../tunnel.zig").Tunnel;
const format_file = @import("format.zig");
const Early = format_file.Early;
const Format = format_file.Format;
const peerName = @import("../types.zig").peerName;

/// The request of a line. Its members are only read.
pub const Subject = struct {
    /// The numeric address of the client; empty for a Unix socket.
    peer: []const u8,
    local_port: u16,
    /// The connection's number, and the request's number in the connection.
    connection: u32,
    request: u32,
    /// The request's head; null: it could not be read.
    head: ?*const Head,
    /// The first bytes of a request without a head.
    raw: []const u8 = "",
    /// The TLS layer of the request's connection; null: plain text.
    tunnel: ?*Tunnel = null,
};

/// The kept runs of a format for one request, each as its length and its bytes. `buffer` comes from a
/// worker's pool.
pub const Kept = struct {
    buffer: Pool.Buffer,
    len: u32,

    /// Reads the kept runs of a line, one after another.
    pub const Reader = struct {
        rest: []const u8,

        /// The next run. It may be called once for each run of the format.
        pub fn next(reader: *Reader) []const u8 {
            assert(reader.rest.len >= 4);
            const len = std.mem.readInt(u32, reader.rest[0..4], .native);
            const run = reader.rest[4..][0..len];
            reader.rest = reader.rest[4 + len ..];
            return run;
        }
    };

    /// A reader at the first run.
    pub fn runs(kept: *const Kept) Reader {
        return .{ .rest = kept.buffer[0..kept.len] };
    }
};

/// Makes a format's runs for a request.
pub fn keep(
    format: *const Format,
    pool: *Pool,
    subject: *const Subject,
    process: u32,
) error{OutOfMemory}!Kept {
    var text: Text = .{ .pool = pool, .buffer = try pool.take(Pool.size_min), .json = format.json };
    errdefer pool.give(text.buffer);
    for (format.runs) |run| {
        const start = text.len;
        try text.put(&@as([4]u8, @splat(0)));
        for (run) |early| try text.add(early, subject, process);
        std.mem.writeInt(u32, text.buffer[start..][0..4], @intCast(text.len - start - 4), .native);
    }
    return .{ .buffer = text.buffer, .len = @intCast(text.len) };
}

const worker_limits = @import("../config.zig").worker_limits;
const raw_bytes_max = worker_limits.log_raw_bytes_max;
const value_bytes_max = worker_limits.log_value_bytes_max;

/// A growing text in a buffer of the pool.
const Text = struct {
    pool: *Pool,
    buffer: Pool.Buffer,
    len: usize = 0,
    json: bool,

    fn add(text: *Text, early: Early, subject: *const Subject, process: u32) error{OutOfMemory}!void {
        switch (early) {
            .text => |bytes| try text.put(bytes),
            .peer => try text.put(peerName(subject.peer)),
            .local_port => try text.number("{d}", .{subject.local_port}),
            .id => try text.number("{d}-{d}", .{ subject.connection, subject.request }),
            .process => try text.number("{d}", .{process}),
            .tls => |what| {
                var buffer: [tls.value_bytes_max]u8 = undefined;
                try text.value(if (subject.tunnel) |tunnel| try tls.value(what, tunnel, &buffer) else "");
            },
            else => if (subject.head) |head|
                try text.ofHead(early, head)
            else
                try text.withoutHead(early, subject.raw),
        }
    }

    fn withoutHead(text: *Text, early: Early, raw: []const u8) error{OutOfMemory}!void {
        if (early == .query) return; // without a query there is no "?"
        if (early != .request_line) return text.value("");
        const line = std.mem.sliceTo(raw[0..@min(raw.len, raw_bytes_max)], '\n');
        try text.value(std.mem.trimEnd(u8, line, "\r"));
    }

    fn ofHead(text: *Text, early: Early, head: *const Head) error{OutOfMemory}!void {
        switch (early) {
            .request_line => {
                // Method and version need no escapes.
                try text.put(head.method_text.of(head.text));
                try text.put(" ");
                try text.escaped(head.target.of(head.text));
                try text.put(" ");
                try text.put(versionText(head));
            },
            .method => try text.put(head.method_text.of(head.text)),
            .path => try text.value(head.path.of(head.text)),
            .query => if (queryOf(head)) |query| {
                try text.put("?");
                try text.escaped(query);
            },
            .protocol => try text.put(versionText(head)),
            .header => |header| try text.value(findHeader(head, header) orelse ""),
            .text, .peer, .local_port, .id, .process, .tls => unreachable,
        }
    }

    /// Adds a value that a client chose; an empty value is shown as "-".
    fn value(text: *Text, bytes: []const u8) error{OutOfMemory}!void {
        if (bytes.len == 0 and !text.json) return text.put("-");
        try text.escaped(bytes);
    }

    /// Adds the bytes with escapes, `value_bytes_max` at most. A client of HTTP/2 repeats a long value for a
    /// byte, and each byte of the value may take six in the line.
    fn escaped(text: *Text, bytes: []const u8) error{OutOfMemory}!void {
        const end = text.len + value_bytes_max;
        var rest = bytes;
        while (true) {
            const harmless = harmlessLen(rest);
            if (harmless > end - text.len) {
                try text.put(rest[0 .. end - text.len]);
                return text.put("...");
            }
            try text.put(rest[0..harmless]);
            if (harmless == rest.len) return;
            if (escape_bytes_max > end - text.len) return text.put("...");
            try text.escape(rest[harmless]);
            rest = rest[harmless + 1 ..];
        }
    }

    /// Bytes of the longest escape, `\u00ff`.
    const escape_bytes_max = 6;

    fn escape(text: *Text, byte: u8) error{OutOfMemory}!void {
        if (!text.json) return text.number("\\x{x:0>2}", .{byte});
        // A byte that is not ASCII may be a part of a character. It is written as the code point of its
        // number, so that the line is valid JSON.
        if (byte == '"' or byte == '\\') {
            try text.put(&.{ '\\', byte });
        } else {
            try text.number("\\u{x:0>4}", .{byte});
        }
    }

    fn number(text: *Text, comptime format: []const u8, arguments: anytype) error{OutOfMemory}!void {
        var buffer: [24]u8 = undefined;
        // the longest value has two u32 and a dash
        try text.put(std.fmt.bufPrint(&buffer, format, arguments) catch unreachable);
    }

    /// Inline, because most pieces are constants of a byte or two.
    inline fn put(text: *Text, bytes: []const u8) error{OutOfMemory}!void {
        if (bytes.len > text.buffer.len - text.len) try text.grow(bytes.len);
        @memcpy(text.buffer[text.len..][0..bytes.len], bytes);
        text.len += bytes.len;
    }

    fn grow(text: *Text, len: usize) error{OutOfMemory}!void {
        @branchHint(.cold);
        assert(len > text.buffer.len - text.len);
        const larger = try text.pool.take(@max(text.len + len, 2 * text.buffer.len));
        @memcpy(larger[0..text.len], text.buffer[0..text.len]);
        text.pool.give(text.buffer);
        text.buffer = larger;
    }
};

fn versionText(head: *const Head) []const u8 {
    return switch (head.version) {
        .http_1_0 => "HTTP/1.0",
        .http_1_1 => "HTTP/1.1",
        .http_2 => "HTTP/2.0",
    };
}

fn queryOf(head: *const Head) ?[]const u8 {
    return if (head.has_query) head.query.of(head.text) else null;
}

fn findHeader(head: *const Head, wanted: Early.Header) ?[]const u8 {
    for (head.fields) |field| {
        if (field.id != wanted.id) continue;
        if (wanted.id == .other and !std.ascii.eqlIgnoreCase(field.name(head.text), wanted.name)) continue;
        return field.value(head.text);
    }
    return null;
}

/// Bytes before the first one that must be escaped: a control byte, a byte that is not ASCII, a quote or a
/// backslash.
fn harmlessLen(bytes: []const u8) usize {
    const width = 16;
    const Block = @Vector(width, u8);
    var at: usize = 0;
    while (at + width <= bytes.len) : (at += width) {
        const block: Block = bytes[at..][0..width].*;
        const control = block < @as(Block, @splat(' '));
        const beyond = block > @as(Block, @splat('~'));
        const quote = block == @as(Block, @splat('"'));
        const backslash = block == @as(Block, @splat('\\'));
        if (@reduce(.Or, control | beyond | quote | backslash)) break;
    }
    while (at < bytes.len and isHarmless(bytes[at])) at += 1;
    return at;
}

fn isHarmless(byte: u8) bool {
    return byte >= ' ' and byte <= '~' and byte != '"' and byte != '\\';
}

const testing = std.testing;

fn expectKept(expected: []const u8, format_text: []const u8, subject: *const Subject) !void {
    var fault: format_file.Fault = .{};
    var format: Format = try .compile(testing.allocator, format_text, &fault);
    defer format.deinit();
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    const kept = try keep(&format, &pool, subject, 42);
    defer pool.give(kept.buffer);
    var runs = kept.runs();
    try testing.expectEqualStrings(expected, runs.next());
}

const test_limits: Limits = .{
    .request_line_bytes_max = 4096,
    .head_bytes_max = 8192,
    .header_count_max = 8,
    .body_bytes_max = 0,
    .trailer_bytes_max = 64,
    .chunk_line_bytes_max = 32,
};

fn subjectOf(head: *Head, text: []const u8) !Subject {
    var session: Session = .init(&test_limits);
    const step = session.feed(text, head);
    try testing.expectEqual(.request, std.meta.activeTag(step.event));
    return .{ .peer = "192.0.2.1", .local_port = 80, .connection = 17, .request = 3, .head = head };
}

test "the known facts of a request" {
    var storage: [8]protocol.http.FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    const subject = try subjectOf(
        &head,
        "GET /a%20b?q=\xc3\xa4\\ HTTP/1.1\r\nHost: h\r\nreferer: a\"b\tc\r\nX-Own: own\r\nX-Own: 2\r\n\r\n",
    );
    try expectKept("192.0.2.1 17-3 42 80\n", "%h %L %P %p", &subject);
    try expectKept("\"GET /a%20b?q=\\xc3\\xa4\\x5c HTTP/1.1\"\n", "\"%r\"", &subject);
    try expectKept("GET /a%20b ?q=\\xc3\\xa4\\x5c HTTP/1.1\n", "%m %U %q %H", &subject);
    try expectKept("a\\x22b\\x09c own - 100%\n", "%{Referer}i %{x-own}i %{X-None}i 100%%", &subject);
    try expectKept(
        "{\"a\\\"b\\u0009c\",\"?q=\\u00c3\\u00a4\\\\\",\"\"}\n",
        "{\"%{Referer}i\",\"%q\",\"%{X-None}i\"}",
        &subject,
    );
}

test "without a head there are its first bytes, and dashes" {
    const subject: Subject = .{
        .peer = "",
        .local_port = 0,
        .connection = 1,
        .request = 0,
        .head = null,
        .raw = "\x16\x03\x01 GET\r\nX: y\r\n",
    };
    try expectKept("unix \"\\x16\\x03\\x01 GET\" - -\n", "%h \"%r\" %m %{Host}i", &subject);
    const long: [1000]u8 = @splat('x');
    const endless: Subject = .{
        .peer = "::1",
        .local_port = 0,
        .connection = 1,
        .request = 0,
        .head = null,
        .raw = &long,
    };
    try expectKept(long[0..raw_bytes_max] ++ "::1\n", "%r%h", &endless);
}

test "a long line grows out of its first buffer" {
    var storage: [8]protocol.http.FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    const target: [1000]u8 = @splat('\x80');
    const subject = try subjectOf(&head, "GET /" ++ target ++ " HTTP/1.1\r\nHost: h\r\n\r\n");
    const escaped: [4000]u8 = @bitCast(@as([1000][4]u8, @splat("\\x80".*)));
    try expectKept("/" ++ escaped ++ "\n", "%U", &subject);
}

test "a long value is cut, and no escape is cut in two" {
    var storage: [8]protocol.http.FieldSpan = undefined;
    const plain: [value_bytes_max]u8 = @splat('a');
    const high: [value_bytes_max]u8 = @splat('\xff');
    const limits: Limits = .{
        .request_line_bytes_max = 2 * value_bytes_max,
        .head_bytes_max = 8 * value_bytes_max,
        .header_count_max = 8,
        .body_bytes_max = 0,
        .trailer_bytes_max = 64,
        .chunk_line_bytes_max = 32,
    };
    var head: Head = .{ .storage = &storage };
    var session: Session = .init(&limits);
    const text = "GET /" ++ plain ++ "?x HTTP/1.1\r\nHost: h\r\nX-Most: " ++ plain ++
        "\r\nX-High: " ++ high ++ "\r\nX-Mixed: a" ++ high ++ "\r\n\r\n";
    try testing.expectEqual(.request, std.meta.activeTag(session.feed(text, &head).event));
    const subject: Subject = .{ .peer = "", .local_port = 0, .connection = 1, .request = 1, .head = &head };
    try expectKept("GET /" ++ plain[1..] ++ "... HTTP/1.1\n", "%r", &subject);
    try expectKept(plain ++ "\n", "%{X-Most}i", &subject);
    const escaped: [value_bytes_max / 4 - 1][4]u8 = @splat("\\xff".*);
    try expectKept(@as([value_bytes_max - 4]u8, @bitCast(escaped)) ++ "...\n", "%{X-High}i", &subject);
    const unicode: [value_bytes_max / 6][6]u8 = @splat("\\u00ff".*);
    const json = @as([value_bytes_max / 6 * 6]u8, @bitCast(unicode));
    try expectKept("{\"" ++ json ++ "...\"}\n", "{\"%{X-High}i\"}", &subject);
    try expectKept("{\"a" ++ json ++ "...\"}\n", "{\"%{X-Mixed}i\"}", &subject);
}
