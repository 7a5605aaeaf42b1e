//! The opening handshake, server side: which requests become WebSockets, and what clients offer (RFC 6455
//! sections 4.2 and 9.1). Does not know: the writing of the response (the HTTP session), the choice of a
//! subprotocol (the application), and the meaning of an extension's parameters (deflate.zig).
const std = @import("std");
const assert = std.debug.assert;
const header = @import("../http/header.zig");
const syntax = @import("../http/syntax.zig");
const Field = header.Field;
const FieldSpan = header.FieldSpan;

/// A request as plain values. The slices are borrowed during the call.
pub const Request = struct {
    /// Method as received; methods are case-sensitive.
    method: []const u8,
    /// The way in which the request asks for a WebSocket: by fields of HTTP/1.1, or as a stream (RFC 8441),
    /// which its session has checked. An older request has none.
    way: enum { upgrade, connect, none },
    /// Frames can follow the head: a request of HTTP/1.1 has no content, or a stream is open and announces no
    /// length.
    carries_frames: bool,
    /// The text of the spans in `fields`.
    text: []const u8,
    fields: []const FieldSpan,
};

/// The result of checking a request.
pub const Result = union(enum) {
    /// The request does not ask for a WebSocket, so it is served as HTTP.
    not_websocket,
    accepted: struct {
        /// The Sec-WebSocket-Key, for `acceptKey`. Borrowed from `Request.text`. Null: a request by a stream,
        /// which has none.
        key: ?*const [key_bytes]u8,
    },
    refused: Refusal,
};

/// A response with the reason why there is no WebSocket.
pub const Refusal = struct {
    status: u16,
    /// Static, for a short text/plain content.
    reason: []const u8,
    /// Static: the fields that this status needs, and the length of the reason.
    fields: []const Field,

    /// Makes a refusal with fields that its status needs.
    pub fn init(comptime status: u16, comptime reason: []const u8, comptime fields: []const Field) Refusal {
        const length = std.fmt.comptimePrint("{d}", .{reason.len});
        const all = comptime fields ++ [_]Field{.init("content-length", length)};
        return .{ .status = status, .reason = reason, .fields = all };
    }
};

/// The length of 16 bytes in base64.
pub const key_bytes = 24;
/// The length of a SHA-1 digest in base64.
pub const accept_bytes = 28;
/// The only version of the protocol, RFC 6455 section 4.1.
pub const version = "13";

/// Checks a request. After `accepted`, all its Sec-WebSocket-Protocol and Sec-WebSocket-Extensions fields are
/// well-formed, so `Subprotocols` and `Extensions` do not fail.
pub fn check(request: Request) Result {
    switch (request.way) {
        .none => return .not_websocket,
        .connect => return checkOffer(request, null),
        .upgrade => {},
    }
    if (!hasToken(request, .upgrade, "websocket")) return .not_websocket;
    if (!std.mem.eql(u8, request.method, "GET")) {
        return refuse(405, "A WebSocket handshake uses GET.", &method_fields);
    }
    if (!hasToken(request, .connection, "upgrade")) {
        return refuse(400, "Connection does not name upgrade.", &.{});
    }
    if (!request.carries_frames) return refuse(400, "A WebSocket handshake has no content.", &.{});
    if (!names(request, .sec_websocket_version)) return refuse(400, no_version, &.{});
    if (!versionFits(request)) {
        return refuse(426, "Only WebSocket version 13 is spoken here.", &version_fields);
    }
    const key = single(request, .sec_websocket_key) orelse
        return refuse(400, "There must be one Sec-WebSocket-Key.", &.{});
    if (!keyValid(key)) return refuse(400, "Sec-WebSocket-Key is not the base64 of 16 bytes.", &.{});
    return checkOffer(request, key[0..key_bytes]);
}

const no_version = "There is no Sec-WebSocket-Version.";

fn names(request: Request, id: header.Id) bool {
    for (request.fields) |span| if (span.id == id) return true;
    return false;
}

fn versionFits(request: Request) bool {
    const asked = single(request, .sec_websocket_version) orelse return false;
    return std.mem.eql(u8, asked, version);
}

fn checkOffer(request: Request, key: ?*const [key_bytes]u8) Result {
    if (key == null and !request.carries_frames) {
        return refuse(400, "The stream of a WebSocket has no end and no length.", &.{});
    }
    if (key == null and !names(request, .sec_websocket_version)) return refuse(400, no_version, &.{});
    // A stream has no protocol to upgrade from, so a wrong version has the status 400.
    if (key == null and !versionFits(request)) {
        return refuse(400, "Only WebSocket version 13 is spoken here.", version_fields[0..1]);
    }
    for (request.fields) |span| switch (span.id) {
        .sec_websocket_protocol => if (!tokensValid(span.value(request.text))) {
            return refuse(400, "Sec-WebSocket-Protocol is not a list of tokens.", &.{});
        },
        // A value outside the grammar fails the connection; it must not be ignored (RFC 6455 section 9.1).
        .sec_websocket_extensions => if (!extensionsValid(span.value(request.text))) {
            return refuse(400, "Sec-WebSocket-Extensions is malformed.", &.{});
        },
        else => {},
    };
    return .{ .accepted = .{ .key = key } };
}

const method_fields = [_]Field{.init("allow", "GET")};
/// RFC 6455 section 4.4 demands the first, RFC 9110 section 15.5.22 the second.
const version_fields = [_]Field{ .init("sec-websocket-version", version), .init("upgrade", "websocket") };

fn refuse(comptime status: u16, comptime reason: []const u8, comptime fields: []const Field) Result {
    return .{ .refused = .init(status, reason, fields) };
}

/// Computes Sec-WebSocket-Accept (RFC 6455 section 4.2.2) for a key that `check` accepted.
pub fn acceptKey(key: *const [key_bytes]u8, out: *[accept_bytes]u8) void {
    var sha1: std.crypto.hash.Sha1 = .init(.{});
    sha1.update(key);
    sha1.update("258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    const encoded = std.base64.standard.Encoder.encode(out, &sha1.finalResult());
    assert(encoded.len == accept_bytes);
}

/// Whether a field of the response belongs to the handshake, so that an application must not add it.
pub fn ownsField(name: []const u8) bool {
    return std.ascii.startsWithIgnoreCase(name, "sec-websocket-") or header.Id.fromName(name) == .upgrade;
}

/// The subprotocols that a client offers, in its order of preference, from all fields of that name.
pub const Subprotocols = struct {
    text: []const u8,
    fields: []const FieldSpan,
    list: syntax.List = .init(""),

    pub fn init(text: []const u8, fields: []const FieldSpan) Subprotocols {
        return .{ .text = text, .fields = fields };
    }

    /// Returns the next name, trimmed and borrowed from the text; null: the end. Empty elements are skipped.
    pub fn next(it: *Subprotocols) ?[]const u8 {
        while (true) {
            if (it.list.next()) |name| return name;
            const span = for (it.fields, 1..) |span, behind| {
                if (span.id != .sec_websocket_protocol) continue;
                it.fields = it.fields[behind..];
                break span;
            } else return null;
            it.list = .init(span.value(it.text));
        }
    }

    /// Whether the client offers `name` (case-sensitive): a server may choose only offered ones. Does not
    /// move the iterator.
    pub fn contains(it: Subprotocols, name: []const u8) bool {
        var copy = it;
        while (copy.next()) |offered| if (std.mem.eql(u8, offered, name)) return true;
        return false;
    }
};

/// The offers in a Sec-WebSocket-Extensions value, in order.
pub const Extensions = struct {
    scanner: Scanner,

    pub fn init(value: []const u8) Extensions {
        return .{ .scanner = .{ .text = value } };
    }

    /// Returns the next offer, borrowed from the value; null: the end. After an error the rest is unreadable.
    pub fn next(it: *Extensions) error{Malformed}!?Extension {
        const s = &it.scanner;
        while (s.take(',')) {}
        if (s.atEnd()) return null;
        const name = s.token() orelse return error.Malformed;
        const params_at = s.at;
        while (s.take(';')) _ = try s.param();
        const params_end = s.at;
        if (!s.atEnd() and !s.take(',')) return error.Malformed;
        return .{ .name = name, .params = .{ .scanner = .{ .text = s.text[params_at..params_end] } } };
    }
};

/// An offer: a name and its parameters, which are well-formed.
pub const Extension = struct {
    name: []const u8,
    params: Params,
};

/// Iterates over the parameters of an offer.
pub const Params = struct {
    scanner: Scanner,

    /// Returns the next parameter; null: the end.
    pub fn next(it: *Params) ?Param {
        if (!it.scanner.take(';')) {
            assert(it.scanner.atEnd());
            return null;
        }
        return it.scanner.param() catch unreachable; // `Extensions.next` has read the same bytes
    }
};

/// A parameter: `name` or `name=value`.
pub const Param = struct {
    name: []const u8,
    value: ?Value = null,
};

/// A parameter's value: a token, or a quoted string that contains a token (RFC 6455 section 9.1 demands
/// that).
pub const Value = struct {
    /// The value without quotes, but with backslashes.
    raw: []const u8,

    /// Iterates over the value's characters without backslashes.
    pub const Characters = struct {
        rest: []const u8,

        /// Returns the next character; null: the end.
        pub fn next(it: *Characters) ?u8 {
            if (it.rest.len == 0) return null;
            // A backslash is no token character, so it always quotes the next character.
            const skip: usize = if (it.rest[0] == '\\') 1 else 0;
            defer it.rest = it.rest[skip + 1 ..];
            return it.rest[skip];
        }
    };

    /// Returns an iterator over the value's characters.
    pub fn characters(value: Value) Characters {
        return .{ .rest = value.raw };
    }
};

/// Reads the grammar of RFC 6455 section 9.1. White space is allowed between all pieces (the implied LWS of
/// RFC 2616).
const Scanner = struct {
    text: []const u8,
    at: usize = 0,

    fn skipSpace(s: *Scanner) void {
        while (s.at < s.text.len and syntax.isSpace(s.text[s.at])) s.at += 1;
    }

    fn atEnd(s: *Scanner) bool {
        s.skipSpace();
        return s.at == s.text.len;
    }

    fn take(s: *Scanner, char: u8) bool {
        if (s.atEnd() or s.text[s.at] != char) return false;
        s.at += 1;
        return true;
    }

    fn token(s: *Scanner) ?[]const u8 {
        s.skipSpace();
        const from = s.at;
        while (s.at < s.text.len and syntax.isTokenByte(s.text[s.at])) s.at += 1;
        return if (s.at == from) null else s.text[from..s.at];
    }

    fn param(s: *Scanner) error{Malformed}!Param {
        const name = s.token() orelse return error.Malformed;
        if (!s.take('=')) return .{ .name = name };
        const raw = if (s.take('"')) try s.quoted() else s.token() orelse return error.Malformed;
        return .{ .name = name, .value = .{ .raw = raw } };
    }

    fn quoted(s: *Scanner) error{Malformed}![]const u8 {
        const from = s.at;
        while (s.at < s.text.len and s.text[s.at] != '"') : (s.at += 1) {
            if (s.text[s.at] == '\\') s.at += 1;
            if (s.at == s.text.len or !syntax.isTokenByte(s.text[s.at])) return error.Malformed;
        }
        if (s.at == s.text.len or s.at == from) return error.Malformed;
        defer s.at += 1;
        return s.text[from..s.at];
    }
};

fn hasToken(request: Request, id: header.Id, comptime token: []const u8) bool {
    for (request.fields) |span| {
        if (span.id != id) continue;
        if (syntax.List.has(span.value(request.text), token)) return true;
    }
    return false;
}

/// Returns the trimmed value of a field that must occur exactly once; null: it does not.
fn single(request: Request, id: header.Id) ?[]const u8 {
    var found: ?[]const u8 = null;
    for (request.fields) |span| {
        if (span.id != id) continue;
        if (found != null) return null;
        found = syntax.trim(span.value(request.text));
    }
    return found;
}

fn keyValid(key: []const u8) bool {
    const size = std.base64.standard.Decoder.calcSizeForSlice(key) catch return false;
    if (size != 16) return false; // a key of 16 bytes has `key_bytes` characters, two of them padding
    var nonce: [16]u8 = undefined;
    std.base64.standard.Decoder.decode(&nonce, key) catch return false;
    return true;
}

fn tokensValid(value: []const u8) bool {
    var list: syntax.List = .init(value);
    while (list.next()) |name| if (!syntax.isToken(name)) return false;
    return true;
}

fn extensionsValid(value: []const u8) bool {
    var it: Extensions = .init(value);
    while (it.next() catch return false) |_| {}
    return true;
}

const testing = std.testing;

/// Stores fields as in a parsed head.
const Sample = struct {
    text: [1024]u8 = undefined,
    used: u32 = 0,
    spans: [8]FieldSpan = undefined,
    count: usize = 0,

    fn add(sample: *Sample, id: header.Id, value: []const u8) void {
        @memcpy(sample.text[sample.used..][0..value.len], value);
        sample.spans[sample.count] = .{
            .name_at = 0,
            .name_len = 0,
            .value_at = sample.used,
            .value_len = @intCast(value.len),
            .id = id,
        };
        sample.used += @intCast(value.len);
        sample.count += 1;
    }

    fn check(sample: *const Sample, method: []const u8, http_1_1: bool) Result {
        return handshakeCheck(.{
            .method = method,
            .way = if (http_1_1) .upgrade else .none,
            .carries_frames = true,
            .text = &sample.text,
            .fields = sample.spans[0..sample.count],
        });
    }
};
const handshakeCheck = check;

const Pair = struct { header.Id, []const u8 };
const good = [_]Pair{
    .{ .host, "example.org" },
    .{ .upgrade, "WebSocket" },
    .{ .connection, "keep-alive, Upgrade" },
    .{ .sec_websocket_key, "dGhlIHNhbXBsZSBub25jZQ==" },
    .{ .sec_websocket_version, "13" },
};

/// Checks `good` with one field replaced (null: omitted).
fn altered(id: header.Id, value: ?[]const u8) Result {
    var sample: Sample = .{};
    for (good) |pair| {
        if (pair[0] != id) sample.add(pair[0], pair[1]);
    }
    if (value) |text| sample.add(id, text);
    return sample.check("GET", true);
}

test "a proper handshake is accepted and its key answered as in RFC 6455 section 1.3" {
    const result = altered(.other, "x");
    var out: [accept_bytes]u8 = undefined;
    acceptKey(result.accepted.key.?, &out);
    try testing.expectEqualStrings("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", &out);
}

test "requests that are not for a WebSocket" {
    try testing.expectEqual(.not_websocket, altered(.upgrade, null));
    try testing.expectEqual(.not_websocket, altered(.upgrade, "h2c"));
    try testing.expectEqual(.not_websocket, altered(.upgrade, "websockets"));
    var sample: Sample = .{};
    for (good) |pair| sample.add(pair[0], pair[1]);
    try testing.expectEqual(.not_websocket, sample.check("GET", false));
    try testing.expectEqual(@as(u16, 405), sample.check("POST", true).refused.status);
    try testing.expectEqual(@as(u16, 405), sample.check("get", true).refused.status);
}

test "refusals" {
    const Case = struct { header.Id, ?[]const u8, u16 };
    const cases = [_]Case{
        .{ .connection, null, 400 },
        .{ .connection, "keep-alive", 400 },
        .{ .connection, "upgrades", 400 },
        .{ .sec_websocket_version, null, 400 },
        .{ .sec_websocket_version, "8", 426 },
        .{ .sec_websocket_version, "13, 8", 426 },
        .{ .sec_websocket_version, "013", 426 },
        .{ .sec_websocket_key, null, 400 },
        .{ .sec_websocket_key, "", 400 },
        .{ .sec_websocket_key, "dGhlIHNhbXBsZSBub25jZQ=", 400 },
        .{ .sec_websocket_key, "dGhlIHNhbXBsZSBub25jZQ", 400 },
        .{ .sec_websocket_key, "dGhlIHNhbXBsZSBub25jZQ==x", 400 },
        .{ .sec_websocket_key, "dGhlIHNhbXBsZSBub25jZQAA", 400 }, // 18 bytes
        .{ .sec_websocket_key, "dGhlIHNhbXBsZSBub25jZ!==", 400 },
        .{ .sec_websocket_key, "========================", 400 },
        .{ .sec_websocket_protocol, "chat, su per", 400 },
        .{ .sec_websocket_extensions, "permessage-deflate;", 400 },
    };
    for (cases) |case| try testing.expectEqual(case[2], altered(case[0], case[1]).refused.status);
    const fields = altered(.sec_websocket_version, "8").refused.fields;
    try testing.expectEqualStrings("sec-websocket-version", fields[0].name());
    try testing.expectEqualStrings("13", fields[0].value());
    try testing.expectEqualStrings("upgrade", fields[1].name());
}

test "another field does not count, whatever it says" {
    var sample: Sample = .{};
    for (good) |pair| sample.add(pair[0], if (pair[0] == .upgrade) "h2c" else pair[1]);
    sample.add(.other, "websocket");
    try testing.expectEqual(.not_websocket, sample.check("GET", true));
}

test "a key or a version given twice is refused" {
    var sample: Sample = .{};
    for (good) |pair| sample.add(pair[0], pair[1]);
    sample.add(.sec_websocket_key, "dGhlIHNhbXBsZSBub25jZQ==");
    try testing.expectEqual(@as(u16, 400), sample.check("GET", true).refused.status);
    sample.spans[sample.count - 1].id = .sec_websocket_version;
    try testing.expectEqual(@as(u16, 426), sample.check("GET", true).refused.status);
}

test "surrounding space and several fields of a name are fine" {
    try testing.expect(altered(.sec_websocket_version, " 13\t") == .accepted);
    try testing.expect(altered(.upgrade, "h2c ,, websocket") == .accepted);
    try testing.expect(altered(.connection, "UPGRADE") == .accepted);
    try testing.expect(altered(.sec_websocket_protocol, "chat ,, superchat") == .accepted);
    try testing.expect(altered(.sec_websocket_extensions, "x-a; b=\"c\", , permessage-deflate") == .accepted);
}

test "which fields of an answer are the handshake's own" {
    for ([_][]const u8{ "Sec-WebSocket-Accept", "sec-websocket-x", "UPGRADE" }) |name| {
        try testing.expect(ownsField(name));
    }
    for ([_][]const u8{ "sec-websocket", "x-upgrade", "server", "" }) |name| {
        try testing.expect(!ownsField(name));
    }
}

test "subprotocols come in the client's order over several fields" {
    var sample: Sample = .{};
    sample.add(.sec_websocket_protocol, " chat ,, superchat");
    sample.add(.host, "no");
    sample.add(.sec_websocket_protocol, "");
    sample.add(.sec_websocket_protocol, "v2.example");
    var it: Subprotocols = .init(&sample.text, sample.spans[0..sample.count]);
    try testing.expect(it.contains("v2.example"));
    try testing.expect(!it.contains("Chat"));
    for ([_][]const u8{ "chat", "superchat", "v2.example" }) |name| {
        try testing.expectEqualStrings(name, it.next().?);
    }
    try testing.expectEqual(null, it.next());
    try testing.expectEqual(null, it.next());
}

test "extension offers" {
    var it: Extensions = .init(" ,, a;b ; c = 1;d=\"x\\y\" ,permessage-deflate; client_max_window_bits");
    var first = (try it.next()).?;
    try testing.expectEqualStrings("a", first.name);
    try testing.expectEqual(null, first.params.next().?.value);
    const c = first.params.next().?;
    try testing.expectEqualStrings("c", c.name);
    try testing.expectEqualStrings("1", c.value.?.raw);
    var characters = first.params.next().?.value.?.characters();
    try testing.expectEqual('x', characters.next());
    try testing.expectEqual('y', characters.next());
    try testing.expectEqual(null, characters.next());
    try testing.expectEqual(null, first.params.next());
    var second = (try it.next()).?;
    try testing.expectEqualStrings("permessage-deflate", second.name);
    try testing.expectEqualStrings("client_max_window_bits", second.params.next().?.name);
    try testing.expectEqual(null, try it.next());
}

test "a quoted value may hold every character of a token" {
    var it: Extensions = .init("a;b=\"1!2\", c");
    var offer = (try it.next()).?;
    try testing.expectEqualStrings("1!2", offer.params.next().?.value.?.raw);
    try testing.expectEqualStrings("c", (try it.next()).?.name);
    try testing.expectEqual(null, try it.next());
}

test "malformed extension offers" {
    const cases = [_][]const u8{
        "a b",         "a;",           "a;;b",       ";a",           "a; =1",         "a;b=",
        "a;b=\"\"",    "a;b=\"1",      "a;b=\"1\\",  "a;b=\"1 2\"",  "a;b=\"1\"2",    "a;b=1 2",
        "a;b=(",       "\"a\"",        "a, b; c=\"", "a;b=\"\x7f\"", "a;b=\"1\\\\\"", "a=1",
        "permessage@", "a;b=\"1\", @",
    };
    for (cases) |case| {
        var it: Extensions = .init(case);
        while (it.next()) |extension| {
            try testing.expect(extension != null); // the iterator ended without an error
        } else |problem| try testing.expectEqual(error.Malformed, problem);
    }
}

test "random values never trip the scanner" {
    var random = std.Random.DefaultPrng.init(0x5eed);
    const alphabet = "ab=;,\" \t\\1@";
    var value: [24]u8 = undefined;
    for (0..20_000) |_| {
        for (&value) |*char| char.* = alphabet[random.random().uintLessThan(usize, alphabet.len)];
        var it: Extensions = .init(value[0..random.random().uintAtMost(usize, value.len)]);
        while (it.next() catch continue) |extension| {
            var params = extension.params;
            while (params.next()) |param| if (param.value) |v| {
                var characters = v.characters();
                while (characters.next()) |char| try testing.expect(syntax.isTokenByte(char));
            };
        }
    }
}
