//! The request target and the authority (RFC 9112 section 3.2, RFC 3986 section 3). Does not know: routing,
//! and the meaning of a decoded path.
const std = @import("std");
const assert = std.debug.assert;
const syntax = @import("syntax.zig");
const Method = @import("method.zig").Method;
const Refusal = @import("../event.zig").Refusal;

/// The position of a piece in a text.
pub const Span = extern struct {
    at: u32 = 0,
    len: u32 = 0,

    /// Returns the piece; `text` is the text of the span.
    pub fn of(span: Span, text: []const u8) []const u8 {
        return text[span.at..][0..span.len];
    }

    /// Returns the span for a text with `bytes` more bytes in front. An empty span stays unchanged.
    pub fn shifted(span: Span, bytes: u32) Span {
        return if (span.len == 0) span else .{ .at = span.at + bytes, .len = span.len };
    }

    fn between(start: usize, end: usize) Span {
        return .{ .at = @intCast(start), .len = @intCast(end - start) };
    }
};

/// The forms of a request target. The fourth, authority-form, is only for CONNECT, which is refused
/// (Method.refusal).
pub const Form = enum(u8) {
    /// `/path?query`
    origin,
    /// `http://authority/path?query`, as sent to proxies.
    absolute,
    /// `*`, only for OPTIONS.
    asterisk,
};

/// The pieces of a target, as spans of its text.
pub const Parts = struct {
    form: Form,
    /// Percent-encoded without errors; never empty. An absolute-form without a path means "/" (RFC 9110
    /// section 4.2.3); then the span covers a "/" of its "://".
    path: Span = .{},
    /// The query, without the "?".
    query: Span = .{},
    /// The target has a "?".
    has_query: bool = false,
    /// An absolute-form's scheme is https, not http.
    https: bool = false,
    /// The authority of an absolute-form, with a host that is not empty.
    authority: Span = .{},
};

pub const Outcome = union(enum) { parts: Parts, refused: Refusal };

/// Splits a target into its pieces. Refused with 400 are controls, space, a fragment, a broken
/// percent-encoding in the path, a form that is not allowed for the method, a malformed authority or one with
/// user information; with 421 other schemes than http and https. Bytes from 0x80 up are accepted, because
/// many clients send them raw. `text` is at most 4 GiB long, and not the target of CONNECT.
pub fn parse(method: Method, text: []const u8) Outcome {
    assert(method != .CONNECT);
    if (text.len == 0) return refuse("empty request target");
    if (text[0] == '/') return parsePath(.{ .form = .origin }, text, 0);
    if (text[0] == '*') {
        if (text.len != 1 or method != .OPTIONS) return refuse("request target '*' is for OPTIONS only");
        return .{ .parts = .{ .form = .asterisk, .path = .between(0, 1) } };
    }
    return parseAbsoluteForm(text);
}

fn parseAbsoluteForm(text: []const u8) Outcome {
    const malformed = "malformed request target";
    const scheme_end = std.mem.indexOf(u8, text, "://") orelse return refuse(malformed);
    if (!isScheme(text[0..scheme_end])) return refuse(malformed);
    const start = scheme_end + "://".len;
    const end = std.mem.indexOfAnyPos(u8, text, start, "/?#") orelse text.len;
    const authority = text[start..end];
    // An http URI without a host is invalid (RFC 9110 section 4.2.1).
    if (authority.len == 0 or authority[0] == ':' or !isAuthority(authority)) {
        return refuse("malformed authority in request target");
    }
    const https = std.ascii.eqlIgnoreCase(text[0..scheme_end], "https");
    if (!https and !std.ascii.eqlIgnoreCase(text[0..scheme_end], "http")) {
        return .{ .refused = .{ .status = 421, .detail = "neither http nor https in request target" } };
    }
    var outcome = parsePath(
        .{ .form = .absolute, .https = https, .authority = .between(start, end) },
        text,
        end,
    );
    if (outcome == .parts and outcome.parts.path.len == 0) {
        outcome.parts.path = .between(start - "/".len, start);
    }
    return outcome;
}

/// Reads path and query from `start` to the end of the text.
fn parsePath(found: Parts, text: []const u8, start: usize) Outcome {
    var parts = found;
    var at = start;
    while (true) {
        at = syntax.find(.path_mark, text, at);
        if (at == text.len or text[at] != '%') break;
        if (!isEncoded(text[at..])) return refuse("malformed percent-encoding in request target");
        at += 3;
    }
    parts.path = .between(start, at);
    if (at < text.len and text[at] == '?') {
        const query_start = at + 1;
        at = syntax.find(.query_mark, text, query_start);
        parts.query = .between(query_start, at);
        parts.has_query = true;
    }
    if (at == text.len) return .{ .parts = parts };
    return refuse(if (text[at] == '#') "fragment in request target" else "illegal byte in request target");
}

/// Whether `text` is a host with an optional port (RFC 9110 section 7.2): a registered name, an IPv4 address
/// or an IP literal in brackets, without user information. The host may be empty, as in an empty Host field;
/// the port is at most 65535.
pub fn isAuthority(text: []const u8) bool {
    if (text.len != 0 and text[0] == '[') {
        const close = std.mem.findScalar(u8, text, ']') orelse return false;
        return isLiteral(text[1..close]) and isPortSuffix(text[close + 1 ..]);
    }
    var at = syntax.find(.host_rare, text, 0);
    if (at == text.len or text[at] == ':') return isPortSuffix(text[at..]); // nearly every host
    while (true) {
        while (at < text.len and name_bytes[text[at]]) at += 1;
        if (at == text.len or text[at] != '%') return isPortSuffix(text[at..]);
        if (!isEncoded(text[at..])) return false;
        at += 3;
    }
}

/// Whether a text may stand in brackets: an IPv6 address (RFC 3986 section 3.2.2), optionally with a zone in
/// the form of RFC 6874, or an address of a later version (`v1.x`).
fn isLiteral(text: []const u8) bool {
    if (text.len != 0 and text[0] | 0x20 == 'v') {
        const dot = std.mem.findScalar(u8, text, '.') orelse return false;
        if (dot == 1 or dot + 1 == text.len) return false;
        for (text[1..dot]) |byte| if (!std.ascii.isHex(byte)) return false;
        for (text[dot + 1 ..]) |byte| if (byte != ':' and !name_bytes[byte]) return false;
        return true;
    }
    const address_end = std.mem.findScalar(u8, text, '%') orelse text.len;
    if (std.Io.net.Ip6Address.Unresolved.parse(text[0..address_end]) != .success) return false;
    const zone = text[address_end..];
    if (zone.len == 0) return true;
    if (zone.len == "%25".len or !std.mem.startsWith(u8, zone, "%25")) return false;
    for (zone["%25".len..]) |byte| if (!name_bytes[byte]) return false;
    return true;
}

/// Whether a text is empty, or ":" and a port, which may be empty (RFC 3986 section 3.2.3).
fn isPortSuffix(text: []const u8) bool {
    if (text.len <= 1) return text.len == 0 or text[0] == ':';
    if (text[0] != ':') return false;
    const port = syntax.parseDecimal(text[1..]) catch return false;
    return port <= std.math.maxInt(u16);
}

/// Whether `text` is a scheme (RFC 3986 section 3.1).
pub fn isScheme(text: []const u8) bool {
    if (text.len == 0 or !std.ascii.isAlphabetic(text[0])) return false;
    for (text) |byte| {
        if (!std.ascii.isAlphanumeric(byte) and byte != '+' and byte != '-' and byte != '.') return false;
    }
    return true;
}

fn isEncoded(text: []const u8) bool {
    return text.len >= 3 and std.ascii.isHex(text[1]) and std.ascii.isHex(text[2]);
}

/// The bytes of unreserved and sub-delims (RFC 3986 sections 2.2 and 2.3).
const name_bytes: [256]bool = table: {
    var table: [256]bool = @splat(false);
    for ('0'..'9' + 1) |byte| table[byte] = true;
    for ('a'..'z' + 1) |byte| table[byte] = true;
    for ('A'..'Z' + 1) |byte| table[byte] = true;
    for ("-._~!$&'()*+,;=") |byte| table[byte] = true;
    break :table table;
};

fn refuse(detail: []const u8) Outcome {
    return .{ .refused = .{ .status = 400, .detail = detail } };
}

/// Decodes each `%xx` of a path; all other bytes, including "+" and broken encodings, stay unchanged. Returns
/// the filled part of `out`, which must be at least as long as `in` and may be `in` itself.
pub fn percentDecode(in: []const u8, out: []u8) []u8 {
    assert(out.len >= in.len);
    // Most paths have no percent sign.
    var from: usize = std.mem.findScalar(u8, in, '%') orelse in.len;
    var to: usize = from;
    if (in.ptr != out.ptr) @memcpy(out[0..from], in[0..from]);
    while (from < in.len) : (to += 1) {
        if (in[from] == '%' and isEncoded(in[from..])) {
            out[to] = hexValue(in[from + 1]) * 16 + hexValue(in[from + 2]);
            from += 3;
        } else {
            out[to] = in[from];
            from += 1;
        }
    }
    assert(to <= from);
    return out[0..to];
}

fn hexValue(byte: u8) u8 {
    return std.fmt.charToDigit(byte, 16) catch unreachable;
}

const Case = struct { Method, []const u8, Form, []const u8, []const u8, []const u8 };

test "targets and their pieces" {
    const cases = [_]Case{
        .{ .GET, "/", .origin, "/", "", "" },
        .{ .GET, "/a%20b/c?d=%zz&e=/?", .origin, "/a%20b/c", "d=%zz&e=/?", "" },
        .{ .GET, "//x?", .origin, "//x", "", "" },
        .{ .GET, "/\xc3\xa4|{}\"<>\\^`", .origin, "/\xc3\xa4|{}\"<>\\^`", "", "" },
        .{ .GET, "/*", .origin, "/*", "", "" },
        .{ .GET, "http://a.example", .absolute, "/", "", "a.example" },
        .{ .GET, "http://a.example:80/p?q", .absolute, "/p", "q", "a.example:80" },
        .{ .GET, "HTTPS://[::1]:8080?q", .absolute, "/", "q", "[::1]:8080" },
        .{ .GET, "http://a.example:/?", .absolute, "/", "", "a.example:" },
        .{ .OPTIONS, "*", .asterisk, "*", "", "" },
        .{ .OPTIONS, "/", .origin, "/", "", "" },
    };
    for (cases) |case| {
        const method, const text, const form, const path, const query, const authority = case;
        const parts = parse(method, text).parts;
        try std.testing.expectEqual(form, parts.form);
        try std.testing.expectEqualStrings(path, parts.path.of(text));
        try std.testing.expectEqualStrings(query, parts.query.of(text));
        try std.testing.expectEqualStrings(authority, parts.authority.of(text));
        try std.testing.expectEqual(std.mem.findScalar(u8, text, '?') != null, parts.has_query);
        try std.testing.expectEqual(std.mem.startsWith(u8, text, "HTTPS:"), parts.https);
    }
}

test "targets that are refused" {
    const cases = [_]struct { Method, []const u8 }{
        .{ .GET, "" },                  .{ .GET, "a" },               .{ .GET, "*" },
        .{ .OPTIONS, "**" },            .{ .GET, "/a#b" },            .{ .GET, "/a?b#c" },
        .{ .GET, "/%" },                .{ .GET, "/%2" },             .{ .GET, "/%2g" },
        .{ .GET, "/a b" },              .{ .GET, "/a?b c" },          .{ .GET, "/\x7f" },
        .{ .GET, "/a\x00" },            .{ .GET, "http://" },         .{ .GET, "http:///p" },
        .{ .GET, "://a/" },             .{ .GET, "1http://a/" },      .{ .GET, "http://u@a/" },
        .{ .GET, "http://a:x/" },       .{ .GET, "http://a:65536/" }, .{ .GET, "http://a/#f" },
        .{ .GET, "http://a/%q" },       .{ .GET, "a.example:80" },    .{ .OPTIONS, "a.example:80" },
        .{ .GET, "http://:80/" },       .{ .GET, "http://?q" },       .{ .GET, "http://[]/" },
        .{ .GET, "http://a@b:80/" },    .{ .GET, "[::1]:80" },        .{ .GET, "http://a b/" },
        .{ .GET, "ht tp://a.example" }, .{ .GET, "?q" },
    };
    for (cases) |case| {
        const method, const text = case;
        switch (parse(method, text)) {
            .parts => {
                std.debug.print("accepted: {s}\n", .{text});
                return error.TestUnexpectedResult;
            },
            .refused => |refusal| try std.testing.expectEqual(400, refusal.status),
        }
    }
}

test "targets of other schemes" {
    for ([_][]const u8{
        "ftp://a/", "ws://a/", "wss://a/", "httpx://a/", "htt://a/", "HTTP+x-1.0://a",
    }) |text| {
        try std.testing.expectEqual(421, parse(.GET, text).refused.status);
    }
}

test "authorities" {
    for ([_][]const u8{
        "",                       "a",                  "a.b-c_d:80",            "127.0.0.1:8080",
        "[::1]",                  "[fe80::1%25eth0]:1", "a:",                    "%41:1",
        "a:65535",                "[::]:",              "[::ffff:192.0.2.1]:80", "[2001:DB8::1]",
        "[1:2:3:4:5:6:7:8]:0080", "[v1F.a:b~]:1",       "[fe80::1%25a.b-c]",     "a.example.:80",
        "*",                      "a,b",                "[0:0:0:0:0:0:0:0]:",    ":80",
    }) |text| {
        if (!isAuthority(text)) std.debug.print("refused: {s}\n", .{text});
        try std.testing.expect(isAuthority(text));
    }
    for ([_][]const u8{
        "a b",      "a/b",         "u@a",       "a:b",                 "a:1:2",                "[::1",
        "[]",       "[::1]x",      "::1",       "a%4",                 "a\x00",                "\xc3\xa4",
        "a?b",      "a:65536",     "[1]",       "[1:2]",               "[::1::]",              "[12345::]",
        "[g::]",    "[::1%eth0]",  "[::1%25]",  "[::1%]",              "[::1%25a/]",           "[127.0.0.1]",
        "[v1]",     "[v.a]",       "[vg.a]",    "[v1.]",               "[v1.a/b]",             "[:]",
        "[::1]:-1", "[::1]:65536", "[::1]:80:", "[1:2:3:4:5:6:7:8:9]", "[1:2:3:4:5:6:7::8]:x", "a]",
        "[[::1]]",  "[::1 ]",      "[ ::1]",    "[::256.0.0.1]",       "[::1.2.3]",            "[x]",
        "[..]",     "[;]",         "a[::1]",    "[::1]%25",
    }) |text| {
        if (isAuthority(text)) std.debug.print("accepted: {s}\n", .{text});
        try std.testing.expect(!isAuthority(text));
    }
}

test "percentDecode" {
    var buffer: [32]u8 = undefined;
    try std.testing.expectEqualStrings("/a b+c", percentDecode("/a%20b+c", &buffer));
    try std.testing.expectEqualStrings("/\x00\xff/", percentDecode("/%00%fF%2f", &buffer));
    try std.testing.expectEqualStrings("%2%zz%", percentDecode("%2%zz%", &buffer));
    const text = "%41%42c";
    @memcpy(buffer[0..text.len], text);
    try std.testing.expectEqualStrings("ABc", percentDecode(buffer[0..text.len], &buffer));
}
