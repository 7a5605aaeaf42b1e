//! Request line and field lines (RFC 9112 sections 2.2, 3 and 5), parsed in place. Does not know: the effects
//! of fields (framing.zig), and the source of bytes.
//!
//! Parsing goes strictly from left to right, so that the result does not depend on the pieces in which bytes
//! come: an illegal line is refused at its first illegal byte (a field line: at its end), and a broken limit
//! at the byte that breaks it. An incomplete head is not scanned again: the parser keeps its position. Spans
//! are not kept, because the caller's scratch serves many connections; so a head that came in pieces is
//! parsed once more, as a whole, when it is complete.
const std = @import("std");
const assert = std.debug.assert;
const header = @import("../http/header.zig");
const syntax = @import("../http/syntax.zig");
const target = @import("../http/target.zig");
const framing = @import("framing.zig");
const Method = @import("../http/method.zig").Method;
const Lines = @import("scan.zig").Lines;
const Refusal = @import("../event.zig").Refusal;
const FieldSpan = header.FieldSpan;
const Limits = framing.Limits;
const Span = target.Span;

/// A parsed request head (or trailer section). The caller's scratch: `feed` fills it, and it is valid as long
/// as the fed bytes.
pub const Head = struct {
    /// Room for fields; its length and Limits.header_count_max limit their count.
    storage: []FieldSpan,
    /// All bytes of the head, from the request line through the blank line. The spans refer to it.
    text: []const u8 = "",
    /// In the order of arrival. With an absolute-form target the Host field has the value of its authority;
    /// if the peer has sent no Host, one is added at the end (RFC 9112 section 3.2.2). A repeated
    /// Content-Length is here once.
    fields: []const FieldSpan = &.{},
    method: Method = .GET,
    method_text: Span = .{},
    /// The request target as received; the fields below have its pieces.
    target: Span = .{},
    target_form: target.Form = .origin,
    /// Percent-encoded without errors; never empty.
    path: Span = .{},
    /// The query, without the "?".
    query: Span = .{},
    /// The target has a "?".
    has_query: bool = false,
    /// The target is an https URI, which must come over TLS or from a trusted gateway (RFC 9110 section 7.4).
    https: bool = false,
    /// The host of the request: the authority of an absolute-form target, else the value of the Host field;
    /// empty without either.
    authority: Span = .{},
    version: framing.Version = .http_1_1,
    body: framing.BodyKind = .none,
    /// The request allows the connection to persist (RFC 9112 section 9.3).
    keep_alive: bool = true,
    expect_continue: bool = false,
    /// The request has both `Connection: upgrade` and an Upgrade field (HTTP/1.1 only).
    upgrade: bool = false,

    /// Resets all fields except the storage.
    pub fn reset(head: *Head) void {
        head.* = .{ .storage = head.storage };
    }

    /// The name of the last field if the engine added it, so that it is not in `text`; else empty.
    pub fn added(head: *const Head) []const u8 {
        if (head.fields.len == 0) return "";
        const last = head.fields[head.fields.len - 1];
        return if (last.name_len == 0) last.id.text() else "";
    }

    /// The part of the storage that the limits allow.
    pub fn capacity(head: *const Head, limits: *const Limits) []FieldSpan {
        return head.storage[0..@min(head.storage.len, limits.header_count_max)];
    }
};

/// The result of parsing the bytes so far.
pub const Outcome = union(enum) {
    /// More bytes are needed.
    incomplete,
    /// The section ends before this index.
    complete: usize,
    refused: Refusal,
};

/// The position in a request head. `parse` must be called with all bytes of the head so far, each time more
/// have come.
pub const Parser = struct {
    place: Place = .start,

    const Place = union(enum) {
        method: struct { scanned: u32, blank_lines: u8 = 0 },
        target: struct { at: u32, scanned: u32 },
        version: struct { at: u32 },
        fields: Fields,

        const start: Place = .{ .method = .{ .scanned = 0 } };
    };

    /// Whether no byte was parsed yet.
    pub fn isFresh(parser: *const Parser) bool {
        return parser.place == .method and parser.place.method.scanned == 0;
    }

    /// Counts an empty line that is skipped before the request line. False: the line is one too many. The
    /// parser must be fresh.
    pub fn skipBlankLine(parser: *Parser) bool {
        assert(parser.isFresh());
        if (parser.place.method.blank_lines == blank_lines_max) return false;
        parser.place.method.blank_lines += 1;
        return true;
    }

    /// The maximum number of empty lines before a request line (RFC 9112 section 2.2): old clients send one
    /// after a POST.
    const blank_lines_max = 4;

    /// Continues parsing. After `complete`, `head` is filled, including framing, and the parser cannot be
    /// used again.
    pub fn parse(parser: *Parser, bytes: []const u8, limits: *const Limits, head: *Head) Outcome {
        const fresh = parser.isFresh();
        head.reset();
        var outcome = parser.advance(bytes, limits, head);
        if (outcome == .complete and !fresh) {
            parser.* = .{};
            head.reset();
            const again = parser.advance(bytes, limits, head);
            assert(again.complete == outcome.complete);
        }
        if (outcome == .complete) {
            head.text = bytes[0..outcome.complete];
            head.fields = head.storage[0..parser.place.fields.count];
            if (judge(head, limits)) |refusal| outcome = .{ .refused = refusal };
        }
        return outcome;
    }

    fn advance(parser: *Parser, bytes: []const u8, limits: *const Limits, head: *Head) Outcome {
        if (parser.place != .fields) {
            const plain = if (parser.isFresh())
                plainRequestLine(bytes, limits.request_line_bytes_max, head)
            else
                null;
            const end = plain orelse switch (parser.requestLine(bytes, limits, head)) {
                .complete => |end| end,
                else => |outcome| return outcome,
            };
            parser.place = .{ .fields = .init(@intCast(end)) };
        }
        return parser.place.fields.parse(bytes, limits.head_bytes_max, head.capacity(limits));
    }

    fn requestLine(parser: *Parser, bytes: []const u8, limits: *const Limits, head: *Head) Outcome {
        // The window has one byte more than the limit: without the end of the request line in it, the line is
        // too long.
        const line_max: usize = limits.request_line_bytes_max;
        const window = bytes[0..@min(bytes.len, line_max + 1)];
        const short: Outcome = if (window.len > line_max) too_long_line else .incomplete;
        while (true) switch (parser.place) {
            .method => |*method| {
                var at: usize = method.scanned;
                while (at < window.len and syntax.isTokenByte(window[at])) at += 1;
                method.scanned = @intCast(at);
                if (at == window.len) return if (short == .refused) too_long_method else short;
                if (at == 0 or window[at] != ' ') return bad("malformed request line");
                const next: u32 = @intCast(at + 1);
                parser.place = .{ .target = .{ .at = next, .scanned = next } };
            },
            .target => |*part| {
                const end = syntax.find(.blank, window, part.scanned);
                part.scanned = @intCast(end);
                if (end == window.len) return short;
                if (window[end] != ' ') return bad("malformed request line");
                if (noteTarget(head, window, part.at, part.scanned)) |refusal| return .{ .refused = refusal };
                // The version's length is fixed, so it is known already if the line is too long.
                if (end + 1 + version_form.len - "\r\n".len > line_max) return too_long_line;
                const next: u32 = @intCast(end + 1);
                parser.place = .{ .version = .{ .at = next } };
            },
            .version => |part| return versionEnd(bytes, part.at, head),
            .fields => unreachable,
        };
    }
};

/// Fills `head` with the known facts of a request that was refused or is incomplete, for a log. `bytes` begin
/// with its request line. False: not even that line can be parsed, and `head` is undefined.
pub fn glimpse(bytes: []const u8, limits: *const Limits, head: *Head) bool {
    var parser: Parser = .{};
    const outcome = parser.parse(bytes, limits, head);
    if (outcome == .complete) return true;
    if (parser.place != .fields) return false;
    head.text = bytes;
    head.fields = head.storage[0..parser.place.fields.count];
    return true;
}

/// Whether bytes that begin with (a part of) a request line have the method HEAD. Then no response has
/// content, not even a refusal of the head (RFC 9110 section 9.3.2).
pub fn asksForHead(bytes: []const u8) bool {
    return std.mem.startsWith(u8, bytes, "HEAD ");
}

/// Parses nearly all request lines in few steps: a complete line with a common method, a path without
/// percent-encoding, optionally a query, and HTTP/1.1. Returns the index after its end; null: any other line.
/// For such a line `requestLine` has the same result, in more steps.
fn plainRequestLine(bytes: []const u8, line_max: usize, head: *Head) ?usize {
    const method: Method, const at: usize = inline for (.{ Method.GET, Method.POST, Method.HEAD }) |method| {
        const start = @tagName(method) ++ " ";
        if (std.mem.startsWith(u8, bytes, start ++ "/")) break .{ method, start.len };
    } else return null;
    const window = bytes[0..@min(bytes.len, line_max)];
    if (at > window.len) return null;
    const path_end = syntax.find(.path_mark, window, at);
    var end = path_end;
    if (end < window.len and window[end] == '?') {
        end = syntax.find(.query_mark, window, end);
        head.query = .{ .at = @intCast(path_end + 1), .len = @intCast(end - path_end - 1) };
        head.has_query = true;
    }
    const version = " HTTP/1.1\r\n";
    // The limit does not include the CRLF.
    if (end + version.len - "\r\n".len > window.len or !std.mem.startsWith(u8, bytes[end..], version)) {
        head.query = .{};
        head.has_query = false;
        return null;
    }
    head.method = method;
    head.method_text = .{ .at = 0, .len = @intCast(at - 1) };
    head.target = .{ .at = @intCast(at), .len = @intCast(end - at) };
    head.path = .{ .at = @intCast(at), .len = @intCast(path_end - at) };
    head.target_form = .origin;
    head.version = .http_1_1;
    return end + version.len;
}

/// Stores method and target of a request line whose target is `at`..`end`, or returns a refusal.
fn noteTarget(head: *Head, window: []const u8, at: u32, end: u32) ?Refusal {
    assert(at >= 2 and at <= end);
    head.method_text = .{ .at = 0, .len = at - 1 };
    head.method = .parse(head.method_text.of(window));
    head.target = .{ .at = at, .len = end - at };
    if (head.method == .CONNECT) return null; // CONNECT is refused because of the method, with any target
    switch (target.parse(head.method, head.target.of(window))) {
        .refused => |refusal| return refusal,
        .parts => |parts| {
            head.target_form = parts.form;
            head.path = parts.path.shifted(at);
            head.query = parts.query.shifted(at);
            head.has_query = parts.has_query;
            head.https = parts.https;
            head.authority = parts.authority.shifted(at);
            return null;
        },
    }
}

/// The end of a request line; `d` stands for a digit.
const version_form = "HTTP/d.d\r\n";

fn versionEnd(bytes: []const u8, at: usize, head: *Head) Outcome {
    if (std.mem.startsWith(u8, bytes[at..], "HTTP/1.1\r\n")) {
        // The version of nearly all clients is found by two comparisons.
        head.version = .http_1_1;
        return .{ .complete = at + version_form.len };
    }
    const text = bytes[at..@min(bytes.len, at + version_form.len)];
    for (text, version_form[0..text.len]) |byte, form| {
        const fits = if (form == 'd') std.ascii.isDigit(byte) else byte == form;
        if (!fits) return bad("malformed HTTP version or line end");
    }
    if (text.len < version_form.len) return .incomplete;
    if (text[5] != '1') return .{ .refused = .{ .status = 505, .detail = "unsupported HTTP version" } };
    // A higher minor version is treated as the highest known one (RFC 9110 section 2.5).
    head.version = if (text[7] == '0') .http_1_0 else .http_1_1;
    return .{ .complete = at + version_form.len };
}

/// Completes a head with the facts from its fields, or returns a refusal.
fn judge(head: *Head, limits: *const Limits) ?Refusal {
    if (head.method.refusal(head.method_text.of(head.text))) |refusal| return refusal;
    switch (framing.request(head.version, head.text, head.fields, limits.body_bytes_max)) {
        .refused => |refusal| return refusal,
        .accepted => |request| {
            head.body = request.body;
            head.keep_alive = request.keep_alive;
            head.expect_continue = request.expect_continue;
            head.upgrade = request.upgrade;
            if (head.target_form == .absolute) {
                if (overrideHost(head, request.host, head.capacity(limits))) |refusal| return refusal;
            } else if (request.host) |host| head.authority = .{ .at = host.value_at, .len = host.value_len };
            if (request.length_repeated) keepOneLength(head);
            return null;
        },
    }
}

/// Leaves one Content-Length with one number, so that no later reader sees "5, 5" (RFC 9110 section 8.6).
noinline fn keepOneLength(head: *Head) void {
    var kept: usize = 0;
    var seen = false;
    for (head.fields) |field| {
        var one = field;
        if (field.id == .content_length) {
            if (seen) continue;
            seen = true;
            const value = field.value(head.text);
            one.value_len = @intCast(syntax.trim(std.mem.sliceTo(value, ',')).len);
        }
        head.storage[kept] = one;
        kept += 1;
    }
    head.fields = head.storage[0..kept];
}

/// Makes the authority of an absolute-form target the value of the Host field, and adds that field if
/// HTTP/1.0 has none, so that all readers see the same host. `host`: the field; null: none.
noinline fn overrideHost(head: *Head, host: ?*const FieldSpan, capacity: []FieldSpan) ?Refusal {
    const at = if (host) |field| field - head.fields.ptr else head.fields.len;
    if (at == head.fields.len) {
        if (at == capacity.len) return tooLarge("too many fields").refused;
        capacity[at] = .{
            .name_at = 0,
            .name_len = 0,
            .value_at = undefined,
            .value_len = undefined,
            .id = .host,
        };
        head.fields = capacity[0 .. at + 1];
    }
    capacity[at].value_at = head.authority.at;
    capacity[at].value_len = head.authority.len;
    return null;
}

/// The position in a section of field lines: the rest of a head, or a trailer section.
pub const Fields = struct {
    /// The start of the current line.
    line_at: u32,
    /// The current line has no control byte before this index.
    scanned: u32,
    /// The number of complete lines before the current one.
    count: u16,

    /// Makes the position at the start of a field section at `at`.
    pub fn init(at: u32) Fields {
        return .{ .line_at = at, .scanned = at, .count = 0 };
    }

    /// Continues parsing up to the blank line. `bytes` must start with the same byte in all calls;
    /// `bytes_max` counts from there. Each line that this call parses is stored in `storage` at its number;
    /// the length of `storage` limits the lines.
    pub fn parse(fields: *Fields, bytes: []const u8, bytes_max: usize, storage: []FieldSpan) Outcome {
        const window = bytes[0..@min(bytes.len, bytes_max)];
        return switch (fields.advance(window, storage)) {
            .blank_line => .{ .complete = fields.scanned + 2 },
            .out_of_bytes => if (bytes.len >= bytes_max)
                tooLarge("header section too large")
            else
                .incomplete,
            .too_many => tooLarge("too many fields"),
            .long_name => tooLarge("field name too long"),
            .folded => bad("folded field line"),
            .no_colon => bad("field line without colon"),
            .bad_name => bad("malformed field name"),
            .illegal_byte => illegalByte(window[fields.scanned]),
        };
    }

    /// The reason why `advance` stopped.
    const Stop = enum {
        blank_line,
        out_of_bytes,
        too_many,
        long_name,
        folded,
        no_colon,
        bad_name,
        illegal_byte,
    };

    /// The loop over lines. It contains only the work of each line, so that its variables stay in registers.
    fn advance(fields: *Fields, window: []const u8, storage: []FieldSpan) Stop {
        assert(fields.line_at <= fields.scanned and window.len <= std.math.maxInt(u32));
        var at: usize = fields.line_at;
        var end: usize = fields.scanned;
        var count: usize = fields.count;
        defer fields.* = .{ .line_at = @truncate(at), .scanned = @truncate(end), .count = @truncate(count) };
        var lines: Lines = .init(window, @min(end, window.len));
        while (at < window.len) {
            if (count == storage.len and window[at] != '\r') return .too_many;
            const resumed = end != at;
            const line = lines.next(end);
            end = line.end;
            if (end + 1 >= window.len) {
                return if (end < window.len and window[end] != '\r') .illegal_byte else .out_of_bytes;
            }
            if (!std.mem.eql(u8, window[end..][0..2], "\r\n")) return .illegal_byte;
            if (end == at) return .blank_line;
            if (syntax.isSpace(window[at])) return .folded;
            // In a line that an earlier call began, the colon lies before the bytes that this call scans.
            const colon = if (resumed) syntax.find(.colon, window[0..end], at) else line.colon;
            if (colon >= end) return .no_colon;
            const name = window[at..colon];
            if (name.len > std.math.maxInt(u16)) return .long_name;
            const id: header.Id = .fromName(name);
            if (id == .other and !syntax.isToken(name)) return .bad_name;
            // A CR follows the value, so this loop ends.
            var start = colon + 1;
            while (syntax.isSpace(window[start])) start += 1;
            var stop = end;
            while (stop > start and syntax.isSpace(window[stop - 1])) stop -= 1;
            storage[count] = .{
                .name_at = @truncate(at),
                .name_len = @truncate(name.len),
                .value_at = @truncate(start),
                .value_len = @truncate(stop - start),
                .id = id,
            };
            count += 1;
            at = end + 2;
            end = at;
        }
        return .out_of_bytes;
    }
};

const too_long_method: Outcome = .{ .refused = .{ .status = 501, .detail = "method too long" } };
const too_long_line: Outcome = .{ .refused = .{ .status = 414, .detail = "request line too long" } };

fn bad(detail: []const u8) Outcome {
    return .{ .refused = .{ .status = 400, .detail = detail } };
}

fn tooLarge(detail: []const u8) Outcome {
    return .{ .refused = .{ .status = 431, .detail = detail } };
}

fn illegalByte(byte: u8) Outcome {
    return bad(switch (byte) {
        '\n' => "bare LF in field line",
        '\r' => "bare CR in field line",
        else => "control byte in field line",
    });
}

const test_limits: Limits = .{
    .request_line_bytes_max = 64,
    .head_bytes_max = 256,
    .header_count_max = 4,
    .body_bytes_max = 1000,
    .trailer_bytes_max = 64,
    .chunk_line_bytes_max = 32,
};

test "a head and its pieces" {
    const text = "POST /p%41?q=1 HTTP/1.1\r\nHost: a.example\r\nX-One:\t two  \r\nempty:\r\n" ++
        "Content-Length: 3\r\n\r\nabc";
    var storage: [8]FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    var parser: Parser = .{};
    try std.testing.expectEqual(text.len - 3, parser.parse(text, &test_limits, &head).complete);
    try std.testing.expectEqual(Method.POST, head.method);
    try std.testing.expectEqualStrings("POST", head.method_text.of(head.text));
    try std.testing.expectEqualStrings("/p%41?q=1", head.target.of(head.text));
    try std.testing.expectEqualStrings("/p%41", head.path.of(head.text));
    try std.testing.expectEqualStrings("q=1", head.query.of(head.text));
    try std.testing.expectEqual(framing.BodyKind{ .counted = 3 }, head.body);
    try std.testing.expectEqual(4, head.fields.len);
    const expected = [_][2][]const u8{
        .{ "Host", "a.example" }, .{ "X-One", "two" }, .{ "empty", "" }, .{ "Content-Length", "3" },
    };
    for (expected, head.fields) |pair, field| {
        try std.testing.expectEqualStrings(pair[0], field.name(head.text));
        try std.testing.expectEqualStrings(pair[1], field.value(head.text));
        try std.testing.expectEqual(header.Id.fromName(pair[0]), field.id);
    }
}

test "an incomplete head is not scanned again" {
    const text = "GET / HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    var storage: [8]FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    var parser: Parser = .{};
    for (1..text.len + 1) |len| {
        try std.testing.expectEqual(Outcome.incomplete, parser.parse(text[0..len], &test_limits, &head));
    }
    try std.testing.expectEqual(16, parser.place.fields.line_at);
    try std.testing.expectEqual(text.len, parser.place.fields.scanned);
}

test "garbage is refused at its first illegal byte" {
    const cases = [_][]const u8{
        "\x16",                    "G\x00",   "GET /\x03",
        "GET /a\n",                "GET / X", "GET / HTTP/1.1\n",
        "GET / HTTP/1.1\r\nA\x00", " ",       "GET\r",
    };
    for (cases) |text| {
        var storage: [8]FieldSpan = undefined;
        var head: Head = .{ .storage = &storage };
        var parser: Parser = .{};
        try std.testing.expectEqual(
            Outcome.incomplete,
            parser.parse(text[0 .. text.len - 1], &test_limits, &head),
        );
        try std.testing.expectEqual(400, parser.parse(text, &test_limits, &head).refused.status);
    }
}

/// Makes a random head from pieces that are difficult for parsers.
fn randomHead(random: std.Random, buffer: []u8) []const u8 {
    const pieces = [_][]const u8{
        "GET ",                 "POST ",
        "HEAD ",                "G",
        "/",                    "/a/b%20c",
        "?q=1&r",               "%",
        "#",                    "*",
        "http://h:1/p",         " HTTP/1.1\r\n",
        " HTTP/1.0",            "\r\n",
        "\r\n",                 "\r\n\r\n",
        "\r",                   "\n",
        "\t",                   " ",
        "Host: a",              "host:b:80 ",
        "X-Y_z: a:b: ",         "a\x80",
        ": ",                   ":",
        "\x00",                 "\x7f",
        "\xff",                 "v",
        "Content-Length: ",     "0",
        "é",
        "Accept:*/*",           "cookie",
        "Connection:close",     "[::1]:",
        "xxxxxxxxxxxxxxxxxxxx", "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
    };
    var len: usize = 0;
    if (random.uintLessThan(u8, 4) != 0) {
        const start = "GET / HTTP/1.1\r\nHost: a\r\n";
        @memcpy(buffer[0..start.len], start);
        len = start.len;
    }
    for (0..random.uintLessThan(usize, 30)) |_| {
        const piece = pieces[random.uintLessThan(usize, pieces.len)];
        if (buffer.len - len < piece.len) break;
        @memcpy(buffer[len..][0..piece.len], piece);
        len += piece.len;
    }
    return buffer[0..len];
}

test "the short way of a request line says what the long way says" {
    var prng: std.Random.DefaultPrng = .init(21);
    const random = prng.random();
    var buffer: [400]u8 = undefined;
    var taken: usize = 0;
    for (0..random_heads) |_| {
        const text = randomHead(random, &buffer);
        var limits = test_limits;
        limits.request_line_bytes_max = random.intRangeAtMost(u32, 1, 64);
        var short: Head = .{ .storage = &.{} };
        const end = plainRequestLine(text, limits.request_line_bytes_max, &short) orelse {
            // The short way must leave no value that the long way would not overwrite.
            try std.testing.expectEqual(Head{ .storage = &.{} }, short);
            continue;
        };
        taken += 1;
        var long: Head = .{ .storage = &.{} };
        var parser: Parser = .{};
        try std.testing.expectEqual(Outcome{ .complete = end }, parser.requestLine(text, &limits, &long));
        try std.testing.expectEqual(long, short);
    }
    try std.testing.expect(taken > random_heads / 4);
}

/// The scalar twin of Fields.parse: the same result, one byte at a time, from the start of the section.
fn fieldsTwin(at: u32, bytes: []const u8, bytes_max: usize, storage: []FieldSpan, count: *usize) Outcome {
    const window = bytes[0..@min(bytes.len, bytes_max)];
    const short: Outcome = if (bytes.len >= bytes_max) tooLarge("header section too large") else .incomplete;
    var start: usize = at;
    while (start < window.len) {
        if (window[start] != '\r' and count.* == storage.len) return tooLarge("too many fields");
        const end = syntax.findScalar(.control, window, start);
        if (end == window.len) return short;
        if (window[end] != '\r') return illegalByte(window[end]);
        if (end + 1 == window.len) return short;
        if (window[end + 1] != '\n') return illegalByte('\r');
        if (end == start) return .{ .complete = end + 2 };
        const line = window[start..end];
        if (line[0] == ' ' or line[0] == '\t') return bad("folded field line");
        const colon = syntax.findScalar(.colon, line, 0);
        if (colon == line.len) return bad("field line without colon");
        for (line[0..colon]) |byte| if (!syntax.isTokenByte(byte)) return bad("malformed field name");
        if (colon == 0) return bad("malformed field name");
        const value = std.mem.trim(u8, line[colon + 1 ..], " \t");
        storage[count.*] = .{
            .name_at = @intCast(start),
            .name_len = @intCast(colon),
            .value_at = @intCast(@intFromPtr(value.ptr) - @intFromPtr(bytes.ptr)),
            .value_len = @intCast(value.len),
            .id = .fromName(line[0..colon]),
        };
        count.* += 1;
        start = end + 2;
    }
    return short;
}

test "fields and their scalar twin agree on random heads, whole and in two pieces" {
    var prng: std.Random.DefaultPrng = .init(22);
    const random = prng.random();
    var buffer: [400]u8 = undefined;
    for (0..random_heads) |_| {
        const text = randomHead(random, &buffer);
        const at = random.uintAtMost(u32, @min(text.len, 20));
        const max = at + random.uintAtMost(usize, 300);
        var spans: [3][6]FieldSpan = undefined;
        const room = random.uintAtMost(usize, 6);
        var count: usize = 0;
        const expected = fieldsTwin(at, text, max, spans[0][0..room], &count);
        var fields: Fields = .init(at);
        try std.testing.expectEqualDeep(expected, fields.parse(text, max, spans[1][0..room]));
        try std.testing.expectEqual(count, fields.count);
        for (spans[0][0..count], spans[1][0..count]) |twin, span| try std.testing.expectEqual(twin, span);

        var pieces: Fields = .init(at);
        const cut = random.intRangeAtMost(usize, at, text.len);
        const first = pieces.parse(text[0..cut], max, spans[2][0..room]);
        const second = if (first == .incomplete) pieces.parse(text, max, spans[2][0..room]) else first;
        try std.testing.expectEqualDeep(expected, second);
    }
}

/// The number of random heads per test.
const random_heads = 20_000;

/// Returns the outcome of parsing a whole head, and expects the same outcome, at the same byte, when it comes
/// in pieces of several sizes. `head` must have room.
fn parseAnyhow(text: []const u8, limits: *const Limits, head: *Head) !Outcome {
    var parser: Parser = .{};
    const whole = parser.parse(text, limits, head);
    var storage: [8]FieldSpan = undefined;
    for ([_]usize{ 1, 2, 3, 7, 50 }) |piece| {
        var pieces: Head = .{ .storage = storage[0..head.storage.len] };
        parser = .{};
        var len: usize = 0;
        const outcome = while (len < text.len) {
            len = @min(len + piece, text.len);
            const outcome = parser.parse(text[0..len], limits, &pieces);
            if (outcome != .incomplete) break outcome;
        } else Outcome.incomplete;
        try std.testing.expectEqualDeep(whole, outcome);
        if (whole != .complete) continue;
        try std.testing.expectEqualSlices(FieldSpan, head.fields, pieces.fields);
        pieces.storage = head.storage;
        pieces.fields = head.fields;
        try std.testing.expectEqualDeep(head.*, pieces);
    }
    return whole;
}

fn expectRefused(status: u16, detail: []const u8, text: []const u8) !void {
    var storage: [8]FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    const refusal = (try parseAnyhow(text, &test_limits, &head)).refused;
    try std.testing.expectEqualStrings(detail, refusal.detail);
    try std.testing.expectEqual(status, refusal.status);
}

fn expectComplete(text: []const u8) !void {
    var storage: [8]FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    try std.testing.expectEqual(Outcome{ .complete = text.len }, try parseAnyhow(text, &test_limits, &head));
}

test "limits hold to the byte: the request line" {
    const room: [64]u8 = @splat('a');
    const fields = "\r\nHost: a\r\n\r\n";
    inline for (.{ "GET", "PUT" }) |method| {
        const longest = method ++ " /" ++ room[0..50] ++ " HTTP/1.1";
        try std.testing.expectEqual(64, longest.len);
        try expectComplete(longest ++ fields);
        try expectRefused(
            414,
            "request line too long",
            method ++ " /" ++ room[0..51] ++ " HTTP/1.1" ++ fields,
        );
        // The refusal does not wait for the version or the end of the line.
        try expectRefused(414, "request line too long", method ++ " /" ++ room[0..51] ++ " ");
        try expectRefused(414, "request line too long", method ++ " /" ++ room[0..60]);
    }
    try expectRefused(501, "method too long", &room ++ "a");
    try expectRefused(501, "method too long", &room ++ "a / HTTP/1.1\r\n");
    var head: Head = .{ .storage = &.{} };
    try std.testing.expectEqual(.incomplete, try parseAnyhow(&room, &test_limits, &head));
    try std.testing.expectEqual(.incomplete, try parseAnyhow("GET /" ++ room[0..59], &test_limits, &head));
}

test "limits hold to the byte: the section of fields" {
    const room: [256]u8 = @splat('a');
    const start = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
    const end = "\r\n\r\n";
    try expectComplete(start ++ room[0 .. 256 - start.len - end.len] ++ end);
    try expectRefused(431, "header section too large", start ++ room[0 .. 257 - start.len - end.len] ++ end);
    try expectComplete("GET / HTTP/1.1\r\nHost: a\r\nB: b\r\nC: c\r\nD: d\r\n\r\n");
    try expectRefused(
        431,
        "too many fields",
        "GET / HTTP/1.1\r\nHost: a\r\nB: b\r\nC: c\r\nD: d\r\nE: e\r\n\r\n",
    );

    var limits = test_limits;
    limits.head_bytes_max = 1 << 20;
    const name = try std.testing.allocator.alloc(u8, 1 << 16);
    defer std.testing.allocator.free(name);
    @memset(name, 'a');
    var storage: [4]FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    for ([_]usize{ name.len - 1, name.len }) |len| {
        const text = try std.fmt.allocPrint(
            std.testing.allocator,
            "GET / HTTP/1.1\r\nHost: a\r\n{s}:\r\n\r\n",
            .{name[0..len]},
        );
        defer std.testing.allocator.free(text);
        var parser: Parser = .{};
        const outcome = parser.parse(text, &limits, &head);
        if (len == name.len) {
            try std.testing.expectEqualStrings("field name too long", outcome.refused.detail);
            try std.testing.expectEqual(431, outcome.refused.status);
        } else try std.testing.expectEqual(text.len, outcome.complete);
    }
}

test "request lines that are refused" {
    try expectRefused(505, "unsupported HTTP version", "GET / HTTP/2.0\r\n");
    try expectRefused(505, "unsupported HTTP version", "GET / HTTP/0.9\r\n");
    try expectRefused(400, "malformed HTTP version or line end", "GET / http/1.1\r\n");
    try expectRefused(400, "malformed HTTP version or line end", "GET / HTTP/1:1\r\n");
    try expectRefused(400, "malformed HTTP version or line end", "GET /  HTTP/1.1\r\n");
    try expectRefused(400, "malformed request line", "GET\t/ HTTP/1.1\r\n");
    try expectRefused(400, "malformed request line", "GET /\tHTTP/1.1\r\n");
    try expectRefused(400, "malformed request line", "(GET / HTTP/1.1\r\n");
    try expectRefused(400, "malformed request line", "GE(T / HTTP/1.1\r\n");
    try expectRefused(400, "malformed request line", "GET /\x7f HTTP/1.1\r\n");
    try expectRefused(501, "CONNECT is not supported", "CONNECT /p HTTP/1.1\r\nHost: a\r\n\r\n");
}

test "targets: path and query, the short way and the long way" {
    var storage: [8]FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    const cases = [_]struct { []const u8, []const u8, ?[]const u8 }{
        .{ "/a/b", "/a/b", null },
        .{ "/a?q=1", "/a", "q=1" },
        .{ "/a?", "/a", "" },
        .{ "/?b?c", "/", "b?c" },
        .{ "/", "/", null },
        .{ "/%41?%42", "/%41", "%42" },
    };
    for ([_][]const u8{
        "GET", "POST", "HEAD", "PUT",
    }) |method| for (cases) |case| for ([_][]const u8{ "1.1", "1.0" }) |version| {
        const target_text, const path, const query = case;
        var buffer: [100]u8 = undefined;
        const text = try std.fmt.bufPrint(
            &buffer,
            "{s} {s} HTTP/{s}\r\nHost: a\r\n\r\n",
            .{ method, target_text, version },
        );
        try std.testing.expectEqual(text.len, (try parseAnyhow(text, &test_limits, &head)).complete);
        try std.testing.expectEqualStrings(method, @tagName(head.method));
        try std.testing.expectEqualStrings(method, head.method_text.of(text));
        try std.testing.expectEqualStrings(target_text, head.target.of(text));
        try std.testing.expectEqualStrings(path, head.path.of(text));
        try std.testing.expectEqualStrings(query orelse "", head.query.of(text));
        try std.testing.expectEqual(query != null, head.has_query);
    };
    head = .{ .storage = &.{} };
    try std.testing.expectEqual(null, plainRequestLine("GET /?a HTTP/1.0\r\n", 64, &head));
    try std.testing.expectEqual(Head{ .storage = &.{} }, head);
}

test "fields and targets say more than the path" {
    var storage: [8]FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    const expecting = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n";
    try std.testing.expectEqual(expecting.len, (try parseAnyhow(expecting, &test_limits, &head)).complete);
    try std.testing.expect(head.expect_continue and !head.upgrade and !head.https and head.keep_alive);
    const upgrading = "GET https://a/ HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    try std.testing.expectEqual(upgrading.len, (try parseAnyhow(upgrading, &test_limits, &head)).complete);
    try std.testing.expect(!head.expect_continue and head.upgrade and head.https);
    const closing = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    try std.testing.expectEqual(closing.len, (try parseAnyhow(closing, &test_limits, &head)).complete);
    try std.testing.expect(!head.expect_continue and !head.upgrade and !head.https and !head.keep_alive);
}

test "versions: a higher minor one counts as 1.1" {
    var storage: [8]FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    const cases = [_]struct { []const u8, framing.Version, bool }{
        .{ "GET / HTTP/1.1\r\nHost: a\r\n\r\n", .http_1_1, true },
        .{ "GET / HTTP/1.9\r\nHost: a\r\n\r\n", .http_1_1, true },
        .{ "GET / HTTP/1.0\r\nHost: a\r\n\r\n", .http_1_0, false },
    };
    for (cases) |case| {
        const outcome = try parseAnyhow(case[0], &test_limits, &head);
        try std.testing.expectEqual(case[0].len, outcome.complete);
        try std.testing.expectEqual(case[1], head.version);
        try std.testing.expectEqual(case[2], head.keep_alive);
    }
}

test "whom a request is for is said once" {
    var storage: [8]FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    const cases = [_]struct { []const u8, []const u8, []const u8, []const u8 }{
        .{ "GET /p HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n", "a", "a", "" },
        .{ "GET http://b/p HTTP/1.1\r\nX: y\r\nHost: a\r\n\r\n", "b", "b", "" },
        .{ "GET http://b/p HTTP/1.0\r\nX: y\r\n\r\n", "b", "b", "Host" },
        .{ "GET /p HTTP/1.0\r\nX: y\r\n\r\n", "", "", "" },
    };
    for (cases) |case| {
        const text, const authority, const host, const added = case;
        const outcome = try parseAnyhow(text, &test_limits, &head);
        try std.testing.expectEqual(text.len, outcome.complete);
        try std.testing.expectEqualStrings(authority, head.authority.of(text));
        try std.testing.expectEqualStrings("/p", head.path.of(text));
        try std.testing.expect(std.ascii.eqlIgnoreCase(added, head.added()));
        var found: []const u8 = "";
        var others: usize = 0;
        for (head.fields) |field| {
            if (field.id == .host) found = field.value(text) else others += 1;
        }
        try std.testing.expectEqual(@intFromBool(std.mem.find(u8, text, "X:") != null), others);
        try std.testing.expectEqualStrings(host, found);
    }
    // The added field counts like the others.
    try expectRefused(
        431,
        "too many fields",
        "GET http://b/ HTTP/1.0\r\nA: a\r\nB: b\r\nC: c\r\nD: d\r\n\r\n",
    );
    head = .{ .storage = &.{} };
    try std.testing.expectEqualStrings("", head.added());
}

test "a Content-Length that was repeated is there once, with one number" {
    var storage: [8]FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    const text = "POST / HTTP/1.1\r\nHost: a\r\n" ++
        "Content-Length: 5 , 5\r\nX: y, z\r\nContent-Length: 5\r\n\r\n";
    const outcome = try parseAnyhow(text, &test_limits, &head);
    try std.testing.expectEqual(text.len, outcome.complete);
    try std.testing.expectEqual(3, head.fields.len);
    for ([_][]const u8{ "a", "5", "y, z" }, head.fields) |value, field| {
        try std.testing.expectEqualStrings(value, field.value(text));
    }
}

test "a glimpse of a head that is not complete, or refused" {
    var storage: [8]FieldSpan = undefined;
    var head: Head = .{ .storage = &storage };
    const whole = "GET /p HTTP/1.1\r\nHost: a\r\n\r\n";
    try std.testing.expect(glimpse(whole ++ "body", &test_limits, &head));
    try std.testing.expectEqualStrings(whole, head.text);
    try std.testing.expectEqual(1, head.fields.len);
    inline for (.{ "GET /p HTTP/1.1\r\nA: b\r\nHo", "GET /p HTTP/1.1\r\nA: b\r\n c\r\n\r\n" }) |part| {
        try std.testing.expect(glimpse(part, &test_limits, &head));
        try std.testing.expectEqualStrings("/p", head.path.of(head.text));
        try std.testing.expectEqual(1, head.fields.len);
        try std.testing.expectEqualStrings("b", head.fields[0].value(head.text));
    }
    try std.testing.expect(!glimpse("GET /p HTT", &test_limits, &head));
    try std.testing.expect(!glimpse("GET /p HTTP/3.0\r\n", &test_limits, &head));
}
