//! Makes requests and trailers of header blocks: the fields that are allowed, and the facts that they tell
//! about the message (RFC 9113 sections 8.1 to 8.3, RFC 8441 section 4). Does not know: frames, streams, and
//! the use of messages.
//!
//! A block is always read to its end, also after an error in it, because later blocks depend on it.
const std = @import("std");
const assert = std.debug.assert;
const decoder_file = @import("hpack/decoder.zig");
const framing = @import("../http1/framing.zig");
const header = @import("../http/header.zig");
const syntax = @import("../http/syntax.zig");
const target = @import("../http/target.zig");
const Head = @import("../http1/head.zig").Head;
const Limits = framing.Limits;
const Method = @import("../http/method.zig").Method;
const Priority = @import("priority.zig").Priority;
const Refusal = @import("../event.zig").Refusal;
const Span = target.Span;
const Block = decoder_file.Block;
const Field = decoder_file.Field;

/// Facts of a request that are not in its head.
pub const Facts = struct {
    content_length: ?u64 = null,
    /// The priority in the request; null: none.
    priority: ?Priority = null,
    /// The protocol of an extended CONNECT (RFC 8441); null: none.
    protocol: ?Span = null,
};

/// The result of the rules for a message.
pub const Outcome = union(enum) {
    accepted: Facts,
    /// The message is malformed, so no server may act on it (RFC 9113 section 8.1.1). The reason, as static
    /// plain text.
    malformed: []const u8,
    /// The message is well-formed, but is refused with a status.
    refused: Refusal,
};

/// Limits for a block of fields.
pub const Bounds = struct {
    limits: *const Limits,
    /// The size of all fields as defined in RFC 9113 section 6.5.2, in bytes; more: 431.
    list_bytes_max: u32,
    /// CONNECT with a protocol is supported.
    extended_connect: bool,
};

/// The number of bytes that a field counts besides its text.
const field_overhead = 32;

/// The number of bytes of room for a block with fields of the size `list_bytes_max`.
pub fn roomBytes(list_bytes_max: u32) usize {
    // All text, the parts of cookies once more when they are joined, and a field that is decoded before its
    // size is counted.
    return 2 * @as(usize, list_bytes_max) + host.len + decoder_file.table_bytes_max;
}

const host = "host";

/// Reads the fields of a request. `ends`: no content follows. `head` is filled if the request is accepted,
/// and as far as possible if it is refused; spans refer to `head.text`, which is in `room`.
pub fn request(
    block: *Block,
    bounds: Bounds,
    ends: bool,
    room: []u8,
    head: *Head,
) decoder_file.Error!Outcome {
    head.reset();
    var reader: Reader = .{
        .head = head,
        .room = room,
        .bounds = bounds,
        .storage = head.capacity(bounds.limits),
    };
    try reader.run(block);
    if (reader.fault) |detail| return .{ .malformed = detail };
    reader.joinCookies();
    const outcome = reader.judge(ends);
    head.text = room[0..reader.at];
    head.fields = reader.storage[0..reader.count];
    return outcome;
}

/// Reads a trailer section and drops fields that are forbidden there.
pub fn trailers(block: *Block, bounds: Bounds, room: []u8, head: *Head) decoder_file.Error!Outcome {
    head.reset();
    var reader: Reader = .{
        .head = head,
        .room = room,
        .bounds = bounds,
        .storage = head.capacity(bounds.limits),
        .in_trailers = true,
    };
    try reader.run(block);
    if (reader.fault) |detail| return .{ .malformed = detail };
    if (reader.too_large) return .{ .refused = too_large };
    head.text = room[0..reader.at];
    head.fields = reader.storage[0..reader.count];
    return .{ .accepted = .{} };
}

/// Reads a block only because it changes the table.
pub fn skip(block: *Block, room: []u8) decoder_file.Error!void {
    block.discards = true;
    while (try block.next(room)) |_| {}
}

const too_large: Refusal = .{ .status = 431, .detail = "header section too large" };

/// Makes a message of a block's fields.
const Reader = struct {
    head: *Head,
    room: []u8,
    bounds: Bounds,
    storage: []header.FieldSpan,
    in_trailers: bool = false,
    /// The position in `room` from which on it is free.
    at: usize = 0,
    size: usize = 0,
    count: usize = 0,
    fault: ?[]const u8 = null,
    too_large: bool = false,
    /// The values of pseudo-header fields; null: the request has none.
    method: ?Span = null,
    scheme: ?Span = null,
    authority: ?Span = null,
    path: ?Span = null,
    protocol: ?Span = null,
    /// The index of the Host field; null: none so far.
    host_at: ?usize = null,
    cookie_at: ?usize = null,
    /// The block has Cookie fields that must be joined at the end.
    cookies_apart: bool = false,
    expect_continue: bool = false,
    facts: Facts = .{},

    fn run(reader: *Reader, block: *Block) decoder_file.Error!void {
        while (try block.next(reader.room[reader.at..])) |field| {
            reader.size += field.name.len + field.value.len + field_overhead;
            if (field.too_long or reader.size > reader.bounds.list_bytes_max) reader.too_large = true;
            if (!block.discards and !reader.too_large) {
                const is_plain = field.meta.pseudo == .none;
                reader.fault = if (is_plain) reader.take(field) else reader.takePseudo(field);
            }
            block.discards = reader.fault != null or reader.too_large;
        }
    }

    /// Stores a pseudo-header field. Returns the rule that it breaks; null: none.
    fn takePseudo(reader: *Reader, field: Field) ?[]const u8 {
        if (reader.in_trailers) return "pseudo-header field in trailers";
        if (!field.meta.good_value) return "malformed field value";
        if (reader.count > 0) return "pseudo-header field behind others";
        const place = switch (field.meta.pseudo) {
            .none => unreachable,
            .method => &reader.method,
            .scheme => &reader.scheme,
            .authority => &reader.authority,
            .path => &reader.path,
            .protocol => &reader.protocol,
            .status, .unknown => return "unknown pseudo-header field",
        };
        if (place.* != null) return "repeated pseudo-header field";
        place.* = reader.keep(field);
        return null;
    }

    /// Keeps the text of a field in `room`; returns the span of its value.
    fn keep(reader: *Reader, field: Field) Span {
        const value_at = reader.at + field.name.len;
        reader.at = value_at + field.value.len;
        return .{ .at = @intCast(value_at), .len = @intCast(field.value.len) };
    }

    fn take(reader: *Reader, field: Field) ?[]const u8 {
        if (!field.meta.good_name) return "malformed field name";
        if (!field.meta.good_value) return "malformed field value";
        const id = field.meta.id();
        switch (id) {
            .connection, .keep_alive, .proxy_connection, .transfer_encoding, .upgrade => {
                return "connection-specific field";
            },
            .te => if (!std.ascii.eqlIgnoreCase(field.value, "trailers")) return "TE is not trailers",
            else => {},
        }
        if (reader.in_trailers) {
            if (framing.isForbiddenTrailer(id)) return null;
        } else switch (id) {
            .host => {
                if (reader.host_at != null) return "repeated Host field";
                reader.host_at = reader.count;
            },
            .content_length => {
                const length = syntax.parseDecimal(field.value) catch return "malformed Content-Length";
                if (reader.facts.content_length) |earlier| {
                    return if (earlier == length) null else "contradictory Content-Length";
                }
                reader.facts.content_length = length;
            },
            .cookie => if (reader.addCookie(field)) return null,
            .expect => reader.expect_continue = syntax.List.has(field.value, "100-continue"),
            .priority => reader.facts.priority = .parse(field.value),
            else => {},
        }
        reader.add(field, id);
        return null;
    }

    fn add(reader: *Reader, field: Field, id: header.Id) void {
        if (reader.count == reader.storage.len or field.name.len > std.math.maxInt(u16)) {
            reader.too_large = true;
            return;
        }
        const value = reader.keep(field);
        reader.storage[reader.count] = .{
            .name_at = @intCast(value.at - field.name.len),
            .name_len = @intCast(field.name.len),
            .value_at = value.at,
            .value_len = value.len,
            .id = id,
        };
        reader.count += 1;
    }

    /// Joins a Cookie field that directly follows another one. Cookies may come in parts, which all readers
    /// but HTTP/2 expect as one field (RFC 9113 section 8.2.3). False: it is the first one, or follows
    /// another field.
    fn addCookie(reader: *Reader, field: Field) bool {
        const first = reader.cookie_at orelse {
            reader.cookie_at = reader.count;
            return false;
        };
        const span = &reader.storage[first];
        if (reader.cookies_apart or first + 1 != reader.count) {
            reader.cookies_apart = true;
            return false;
        }
        assert(span.value_at + span.value_len == reader.at);
        const room = reader.room[reader.at..];
        // The value moves back over the field's name, which is longer than the joint that replaces it.
        @memmove(room[cookie_joint.len..][0..field.value.len], field.value);
        room[0..cookie_joint.len].* = cookie_joint.*;
        const grown = cookie_joint.len + field.value.len;
        span.value_len += @intCast(grown);
        reader.at += grown;
        return true;
    }

    const cookie_joint = "; ";

    /// Joins Cookie fields that were not adjacent, at the position of the first.
    fn joinCookies(reader: *Reader) void {
        if (!reader.cookies_apart or reader.too_large) return;
        const start = reader.at;
        var kept: usize = 0;
        for (reader.storage[0..reader.count], 0..) |field, index| {
            if (field.id == .cookie) {
                if (index != reader.cookie_at.?) reader.append(cookie_joint);
                reader.append(field.value(reader.room));
                if (index != reader.cookie_at.?) continue;
            }
            if (reader.host_at) |at| if (at == index) {
                reader.host_at = kept;
            };
            reader.storage[kept] = field;
            kept += 1;
        }
        const joined = &reader.storage[reader.cookie_at.?];
        joined.value_at = @intCast(start);
        joined.value_len = @intCast(reader.at - start);
        reader.count = kept;
    }

    fn append(reader: *Reader, text: []const u8) void {
        @memcpy(reader.room[reader.at..][0..text.len], text);
        reader.at += text.len;
    }

    fn of(reader: *const Reader, span: Span) []const u8 {
        return span.of(reader.room);
    }

    fn judge(reader: *Reader, ends: bool) Outcome {
        const head = reader.head;
        const limits = reader.bounds.limits;
        head.version = .http_2;
        if (reader.method) |method| {
            if (!syntax.isToken(reader.of(method))) return .{ .malformed = "malformed :method" };
            head.method_text = method;
            head.method = .parse(reader.of(method));
        }
        if (reader.too_large) return .{ .refused = too_large };
        if (reader.method == null) return .{ .malformed = "no :method" };
        if (reader.judgeTarget()) |outcome| return outcome;
        if (reader.judgeAuthority()) |outcome| return outcome;
        if (head.method != .CONNECT) {
            if (head.method.refusal(reader.of(head.method_text))) |refusal| return .{ .refused = refusal };
        }
        if (head.target.len > limits.request_line_bytes_max) {
            return .{ .refused = .{ .status = 414, .detail = "request target too long" } };
        }
        if (reader.judgePath()) |refusal| return .{ .refused = refusal };
        if (reader.judgeLength(ends)) |outcome| return outcome;
        head.expect_continue = reader.expect_continue and !ends;
        head.upgrade = reader.protocol != null;
        reader.facts.protocol = reader.protocol;
        return .{ .accepted = reader.facts };
    }

    /// Checks that the pseudo-header fields of the target are present that the method needs (RFC 9113
    /// sections 8.3.1 and 8.5, RFC 8441 section 4).
    fn judgeTarget(reader: *Reader) ?Outcome {
        const head = reader.head;
        if (head.method == .CONNECT and reader.protocol == null) {
            if (reader.scheme != null or reader.path != null) {
                return .{ .malformed = "CONNECT with :scheme or :path" };
            }
            if (reader.authority == null) return .{ .malformed = "CONNECT without :authority" };
            return .{ .refused = head.method.refusal("CONNECT").? };
        }
        if (reader.protocol) |protocol| {
            if (head.method != .CONNECT) return .{ .malformed = ":protocol without CONNECT" };
            if (!reader.bounds.extended_connect) return .{ .malformed = "unknown pseudo-header field" };
            if (!syntax.isToken(reader.of(protocol))) return .{ .malformed = "malformed :protocol" };
            if (!std.ascii.eqlIgnoreCase(reader.of(protocol), "websocket")) {
                return .{ .refused = .{ .status = 501, .detail = "unknown :protocol" } };
            }
        }
        const scheme = reader.of(reader.scheme orelse return .{ .malformed = "no :scheme" });
        head.target = reader.path orelse return .{ .malformed = "no :path" };
        const path = reader.of(head.target);
        const fits = path.len > 0 and (path[0] == '/' or
            (head.method == .OPTIONS and std.mem.eql(u8, path, "*")));
        if (!fits) return .{ .malformed = "malformed :path" };
        head.https = std.ascii.eqlIgnoreCase(scheme, "https");
        if (!head.https and !std.ascii.eqlIgnoreCase(scheme, "http")) {
            if (!target.isScheme(scheme)) return .{ .malformed = "malformed :scheme" };
            return .{ .refused = .{ .status = 421, .detail = "neither http nor https in :scheme" } };
        }
        return null;
    }

    /// Determines the host of the request, and adds a Host field if there is none, because applications read
    /// it there in all versions.
    fn judgeAuthority(reader: *Reader) ?Outcome {
        const head = reader.head;
        if (reader.host_at) |index| {
            const field = reader.storage[index];
            const value: Span = .{ .at = field.value_at, .len = field.value_len };
            const said = reader.authority orelse value;
            if (!std.ascii.eqlIgnoreCase(reader.of(said), reader.of(value))) {
                return .{ .malformed = "Host is not :authority" };
            }
            head.authority = said;
        } else head.authority = reader.authority orelse
            return .{ .refused = .{ .status = 400, .detail = "neither :authority nor Host" } };
        const text = reader.of(head.authority);
        if (!target.isAuthority(text)) return .{ .malformed = "malformed :authority" };
        if (reader.authority != null and (text.len == 0 or text[0] == ':')) {
            return .{ .malformed = "empty :authority" };
        }
        if (reader.host_at != null) return null;
        if (reader.count == reader.storage.len) return .{ .refused = too_large };
        reader.storage[reader.count] = .{
            .name_at = @intCast(reader.at),
            .name_len = host.len,
            .value_at = head.authority.at,
            .value_len = head.authority.len,
            .id = .host,
        };
        reader.count += 1;
        reader.append(host);
        return null;
    }

    fn judgePath(reader: *Reader) ?Refusal {
        const head = reader.head;
        const as: Method = if (head.method == .CONNECT) .GET else head.method;
        switch (target.parse(as, reader.of(head.target))) {
            .refused => |refusal| return refusal,
            .parts => |parts| {
                head.target_form = parts.form;
                head.path = parts.path.shifted(head.target.at);
                head.query = parts.query.shifted(head.target.at);
                head.has_query = parts.has_query;
                return null;
            },
        }
    }

    /// Determines the end of the content: the content ends with the stream, and must have the length of
    /// Content-Length.
    fn judgeLength(reader: *Reader, ends: bool) ?Outcome {
        const length = reader.facts.content_length orelse {
            reader.head.body = if (ends) .none else .chunked;
            return null;
        };
        if (ends and length != 0) return .{ .malformed = "less content than Content-Length" };
        const most = reader.bounds.limits.body_bytes_max;
        if (most != 0 and length > most) {
            return .{ .refused = .{ .status = 413, .detail = "content too large" } };
        }
        reader.head.body = if (ends) .none else if (length == 0) .chunked else .{ .counted = length };
        return null;
    }
};

const testing = std.testing;
const Encoder = @import("hpack/encoder.zig").Encoder;
const stateless = @import("hpack/encoder.zig").stateless;

const few: Limits = .{
    .request_line_bytes_max = 40,
    .head_bytes_max = 1024,
    .header_count_max = 8,
    .body_bytes_max = 100,
    .trailer_bytes_max = 100,
    .chunk_line_bytes_max = 20,
};
const narrow_bounds: Bounds = .{ .limits = &few, .list_bytes_max = 600, .extended_connect = true };

/// Returns the outcome for fields, as text. `lines`: one `name: value` per line.
fn outcomeOf(lines: []const u8, ends: bool, in_trailers: bool, with: Bounds, out: []u8) ![]const u8 {
    var block_bytes: [4096]u8 = undefined;
    var len: usize = 0;
    var rest = std.mem.splitScalar(u8, lines, '\n');
    while (rest.next()) |line| {
        if (line.len == 0) continue;
        const colon = std.mem.indexOfScalarPos(u8, line, 1, ':').?;
        // The encoder would make names lower case.
        block_bytes[len] = 0;
        block_bytes[len + 1] = @intCast(colon);
        @memcpy(block_bytes[len + 2 ..][0..colon], line[0..colon]);
        len += 2 + colon;
        const value = line[colon + 2 ..];
        block_bytes[len] = @intCast(value.len);
        @memcpy(block_bytes[len + 1 ..][0..value.len], value);
        len += 1 + value.len;
    }
    var storage: [16]header.FieldSpan = undefined;
    var room: [roomBytes(narrow_bounds.list_bytes_max)]u8 = undefined;
    var head: Head = .{ .storage = &storage };
    var decoder: decoder_file.Decoder = .{};
    var bench: decoder_file.Bench = undefined;
    var block = decoder.begin(block_bytes[0..len], &bench);
    const outcome = try if (in_trailers)
        trailers(&block, with, &room, &head)
    else
        request(&block, with, ends, &room, &head);
    try testing.expectEqual(len, block.at);
    var writer: std.Io.Writer = .fixed(out);
    switch (outcome) {
        .malformed => |detail| try writer.print("malformed: {s}", .{detail}),
        .refused => |refusal| try writer.print("{d} {s}", .{ refusal.status, refusal.detail }),
        .accepted => |facts| {
            if (!in_trailers) {
                try writer.print("{s} {s} for {s} {t}", .{
                    head.method_text.of(head.text), head.path.of(head.text), head.authority.of(head.text),
                    head.body,
                });
                if (head.has_query) try writer.print(" ?{s}", .{head.query.of(head.text)});
                if (head.expect_continue) try writer.print(" continue", .{});
                if (head.https) try writer.print(" https", .{});
                if (facts.priority) |one| try writer.print(" u{d}", .{one.urgency});
                if (facts.protocol) |span| try writer.print(" by {s}", .{span.of(head.text)});
            }
            for (head.fields) |field| {
                try testing.expectEqual(header.Id.fromName(field.name(head.text)), field.id);
                try writer.print(" {s}={s}", .{ field.name(head.text), field.value(head.text) });
            }
        },
    }
    return writer.buffered();
}

fn repeated(comptime text: []const u8, comptime times: usize) []const u8 {
    comptime var all: []const u8 = "";
    inline for (0..times) |_| all = all ++ text;
    return all;
}

const get = ":method: GET\n:scheme: http\n:path: /\n:authority: a\n";

test "requests" {
    const long = comptime repeated("x", 41);
    for ([_]struct { []const u8, bool, []const u8 }{
        .{ get, true, "GET / for a none host=a" },
        .{ get, false, "GET / for a chunked host=a" },
        .{ get ++ "x: 1\ny: \n", true, "GET / for a none x=1 y= host=a" },
        .{ ":path: /p?q\n:method: GET\n:authority: \n:scheme: HTTPS\n", true, "malformed: empty :authority" },
        .{
            ":path: /p?q\n:method: GET\n:authority: b:1\n:scheme: HTTPS\n",
            true,
            "GET /p for b:1 none ?q https host=b:1",
        },
        .{ ":path: /\n:method: GET\n:scheme: http\nhost: c\nx: 1\n", true, "GET / for c none host=c x=1" },
        .{ get ++ "host: A\n", true, "GET / for a none host=A" },
        .{ get ++ "host: b\n", true, "malformed: Host is not :authority" },
        .{ get ++ "host: a\nhost: a\n", true, "malformed: repeated Host field" },
        .{ ":path: /\n:method: GET\n:scheme: http\n", true, "400 neither :authority nor Host" },
        .{
            ":path: /\n:method: GET\n:scheme: http\n:authority: u@a\n",
            true,
            "malformed: malformed :authority",
        },
        .{ ":path: /\n:method: GET\n:authority: a\n", true, "malformed: no :scheme" },
        .{ ":path: /\n:scheme: http\n:authority: a\n", true, "malformed: no :method" },
        .{ ":method: GET\n:scheme: http\n:authority: a\n", true, "malformed: no :path" },
        .{ ":method: GET\n:scheme: http\n:path: \n:authority: a\n", true, "malformed: malformed :path" },
        .{ ":method: GET\n:scheme: http\n:path: *\n:authority: a\n", true, "malformed: malformed :path" },
        .{
            ":method: OPTIONS\n:scheme: http\n:path: *\n:authority: a\n",
            true,
            "OPTIONS * for a none host=a",
        },
        .{
            ":method: GET\n:scheme: http\n:path: http://a/\n:authority: a\n",
            true,
            "malformed: malformed :path",
        },
        .{
            ":method: GET\n:scheme: http\n:path: /%\n:authority: a\n",
            true,
            "400 malformed percent-encoding in request target",
        },
        .{
            ":method: GET\n:scheme: http\n:path: /" ++ long ++ "\n:authority: a\n",
            true,
            "414 request target too long",
        },
        .{
            ":method: GET\n:scheme: ftp\n:path: /\n:authority: a\n",
            true,
            "421 neither http nor https in :scheme",
        },
        .{ ":method: GET\n:scheme: h t\n:path: /\n:authority: a\n", true, "malformed: malformed :scheme" },
        .{ ":method: get\n:scheme: http\n:path: /\n:authority: a\n", true, "501 method in lower case" },
        .{ ":method: G T\n:scheme: http\n:path: /\n:authority: a\n", true, "malformed: malformed :method" },
        .{ get ++ ":path: /\n", true, "malformed: repeated pseudo-header field" },
        .{ get ++ "x: 1\n:protocol: x\n", true, "malformed: pseudo-header field behind others" },
        .{ ":status: 200\n" ++ get, true, "malformed: unknown pseudo-header field" },
        .{ ":x: 200\n" ++ get, true, "malformed: unknown pseudo-header field" },
        .{ get ++ "X: 1\n", true, "malformed: malformed field name" },
        .{ get ++ "x: 1\r\n", true, "malformed: malformed field value" },
        .{ get ++ "x:  1\n", true, "malformed: malformed field value" },
        .{ get ++ "connection: x\n", true, "malformed: connection-specific field" },
        .{ get ++ "transfer-encoding: chunked\n", true, "malformed: connection-specific field" },
        .{ get ++ "te: gzip\n", true, "malformed: TE is not trailers" },
        .{ get ++ "te: trailers\n", true, "GET / for a none te=trailers host=a" },
        .{
            get ++ "expect: 100-continue\n",
            false,
            "GET / for a chunked continue expect=100-continue host=a",
        },
        .{ get ++ "expect: 100-continue\n", true, "GET / for a none expect=100-continue host=a" },
        .{ get ++ "priority: u=1, i\n", true, "GET / for a none u1 priority=u=1, i host=a" },
    }) |case| {
        var out: [1024]u8 = undefined;
        errdefer std.debug.print("{s}", .{case[0]});
        try testing.expectEqualStrings(case[2], try outcomeOf(case[0], case[1], false, narrow_bounds, &out));
    }
}

test "lengths" {
    for ([_]struct { []const u8, bool, []const u8 }{
        .{ "content-length: 5\n", false, "GET / for a counted content-length=5 host=a" },
        .{ "content-length: 0\n", false, "GET / for a chunked content-length=0 host=a" },
        .{ "content-length: 0\n", true, "GET / for a none content-length=0 host=a" },
        .{ "content-length: 5\n", true, "malformed: less content than Content-Length" },
        .{ "content-length: 5\ncontent-length: 5\n", false, "GET / for a counted content-length=5 host=a" },
        .{ "content-length: 5\ncontent-length: 6\n", false, "malformed: contradictory Content-Length" },
        .{ "content-length: 5, 5\n", false, "malformed: malformed Content-Length" },
        .{ "content-length: +5\n", false, "malformed: malformed Content-Length" },
        .{ "content-length: 101\n", false, "413 content too large" },
    }) |case| {
        var out: [1024]u8 = undefined;
        var text: [256]u8 = undefined;
        const lines = try std.fmt.bufPrint(&text, "{s}{s}", .{ get, case[0] });
        try testing.expectEqualStrings(case[2], try outcomeOf(lines, case[1], false, narrow_bounds, &out));
    }
}

test "cookies are one" {
    for ([_]struct { []const u8, []const u8 }{
        .{ "cookie: a=1\n", "cookie=a=1 host=a" },
        .{ "cookie: a=1\ncookie: b=2\ncookie: c\nx: 1\n", "cookie=a=1; b=2; c x=1 host=a" },
        .{ "y: 0\ncookie: a=1\nx: 1\ncookie: b=2\nz: 3\n", "y=0 cookie=a=1; b=2 x=1 z=3 host=a" },
        .{ "cookie: a\ncookie: b\nx: 1\ncookie: c\ncookie: d\n", "cookie=a; b; c; d x=1 host=a" },
        .{ "cookie: a\nx: 1\ncookie: c\nhost: a\ncookie: d\n", "cookie=a; c; d x=1 host=a" },
        .{ "cookie: \ncookie: \n", "cookie=;  host=a" },
    }) |case| {
        var out: [1024]u8 = undefined;
        var text: [256]u8 = undefined;
        var expected: [256]u8 = undefined;
        const lines = try std.fmt.bufPrint(&text, "{s}{s}", .{ get, case[0] });
        try testing.expectEqualStrings(
            try std.fmt.bufPrint(&expected, "GET / for a none {s}", .{case[1]}),
            try outcomeOf(lines, true, false, narrow_bounds, &out),
        );
    }
}

test "limits count what is decoded" {
    var out: [1024]u8 = undefined;
    const five = comptime repeated("x: 1\n", 5);
    const too_many = "431 header section too large";
    try testing.expectEqualStrings(
        "GET / for a none" ++ comptime repeated(" x=1", 7) ++ " host=a",
        try outcomeOf(get ++ five ++ comptime repeated("x: 1\n", 2), true, false, narrow_bounds, &out),
    );
    inline for (.{ 3, 4 }) |more| {
        const lines = get ++ five ++ comptime repeated("x: 1\n", more);
        try testing.expectEqualStrings(too_many, try outcomeOf(lines, true, false, narrow_bounds, &out));
    }
    const size = 4 * 32 + ":method:scheme:path:authorityGEThttp/a".len;
    inline for (.{ .{ size + 36 + 4, true }, .{ size + 36 + 3, false } }) |case| {
        var narrow = narrow_bounds;
        narrow.list_bytes_max = case[0];
        const text = try outcomeOf(get ++ "abcd: abcd\n", true, false, narrow, &out);
        try testing.expectEqual(case[1], std.mem.startsWith(u8, text, "GET"));
    }
    // A message that is malformed before the limit is reported as such; fields after the limit are not
    // checked.
    var narrow = narrow_bounds;
    narrow.list_bytes_max = size + 40;
    try testing.expectEqualStrings(
        "malformed: malformed field name",
        try outcomeOf(get ++ "X: \nabc: \n", true, false, narrow, &out),
    );
    try testing.expectEqualStrings(too_many, try outcomeOf(get ++ "abc: \nX: \n", true, false, narrow, &out));
}

test "CONNECT, plain and extended" {
    const extended = ":method: CONNECT\n:protocol: websocket\n:scheme: https\n:path: /w?x\n:authority: a\n";
    var without = narrow_bounds;
    without.extended_connect = false;
    for ([_]struct { []const u8, Bounds, []const u8 }{
        .{ extended, narrow_bounds, "CONNECT /w for a chunked ?x https by websocket host=a" },
        .{ extended, without, "malformed: unknown pseudo-header field" },
        .{ ":protocol: websocket\n" ++ get, narrow_bounds, "malformed: :protocol without CONNECT" },
        .{
            ":method: CONNECT\n:protocol: websocket\n:authority: a\n",
            narrow_bounds,
            "malformed: no :scheme",
        },
        .{ ":method: CONNECT\n:authority: a:1\n", narrow_bounds, "501 CONNECT is not supported" },
        .{ ":method: CONNECT\n", narrow_bounds, "malformed: CONNECT without :authority" },
        .{
            ":method: CONNECT\n:authority: a:1\n:path: /\n",
            narrow_bounds,
            "malformed: CONNECT with :scheme or :path",
        },
    }) |case| {
        var out: [1024]u8 = undefined;
        try testing.expectEqualStrings(case[2], try outcomeOf(case[0], false, false, case[1], &out));
    }
}

test "trailers" {
    for ([_]struct { []const u8, []const u8 }{
        .{ "x: 1\ncontent-length: 5\ncookie: a\ny: 2\n", " x=1 y=2" },
        .{ ":path: /\n", "malformed: pseudo-header field in trailers" },
        .{ "x: 1\n:path: /\n", "malformed: pseudo-header field in trailers" },
        .{ "X: 1\n", "malformed: malformed field name" },
        .{ "connection: x\n", "malformed: connection-specific field" },
        .{ comptime repeated("x: 1\n", 9), "431 header section too large" },
    }) |case| {
        var out: [1024]u8 = undefined;
        try testing.expectEqualStrings(case[1], try outcomeOf(case[0], true, true, narrow_bounds, &out));
    }
}
