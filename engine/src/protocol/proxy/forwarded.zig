//! Header fields in which proxies describe requests that they forward: `Forwarded` (RFC 7239), and
//! X-Forwarded-For with X-Forwarded-Proto, which have no standard. Each proxy adds a hop at the right end:
//! the peer from which it received the request. Does not know: which proxies are trusted, and the source of
//! the fields.
const std = @import("std");
const syntax = @import("../http/syntax.zig");
const endpoint = @import("endpoint.zig");
const Endpoint = endpoint.Endpoint;

/// The facts from one proxy.
pub const Hop = struct {
    from: From,
    /// The request came by https or wss (true), or by http or ws (false); null: unknown.
    secure: ?bool = null,

    /// The peer from which the proxy received the request.
    pub const From = union(enum) {
        address: Endpoint,
        /// The proxy tells no address: "unknown", "_name", or nothing.
        hidden,
        malformed,
    };
};

/// Reads hops from left to right and always has the client from a server's point of view after the hops so
/// far: the rightmost address that does not belong to a trusted proxy. A hop without an address discards
/// those to its left.
pub const Trail = struct {
    /// The client's address; null: unknown, except the last proxy.
    client: ?Endpoint = null,
    secure: ?bool = null,

    /// Adds the next hop. `trusted`: its address belongs to a trusted proxy, which has added the hops to its
    /// left.
    pub fn add(trail: *Trail, hop: Hop, trusted: bool) void {
        switch (hop.from) {
            .malformed => trail.* = .{},
            .hidden => trail.* = .{ .secure = hop.secure },
            .address => |address| if (trusted) {
                trail.client = trail.client orelse address;
                trail.secure = trail.secure orelse hop.secure;
            } else {
                trail.* = .{ .client = address, .secure = hop.secure };
            },
        }
    }
};

/// The hops of an X-Forwarded-For field.
pub const ForHops = struct {
    words: std.mem.TokenIterator(u8, .scalar),

    pub fn init(value: []const u8) ForHops {
        return .{ .words = std.mem.tokenizeScalar(u8, value, ',') };
    }

    /// Returns the next hop; null: the end. Quotes have no meaning here: otherwise one from a client could
    /// hide hops that proxies have added.
    pub fn next(hops: *ForHops) ?Hop {
        while (hops.words.next()) |word| {
            const node = syntax.trim(word);
            if (node.len > 0) return .{ .from = parseNode(node) };
        }
        return null;
    }
};

/// Returns the last proxy's scheme in X-Forwarded-Proto, as for `Hop.secure`: each proxy adds a word at the
/// right end.
pub fn lastProto(value: []const u8) ?bool {
    const comma = std.mem.findScalarLast(u8, value, ',');
    return isSecure(syntax.trim(if (comma) |at| value[at + 1 ..] else value));
}

/// The hops of a Forwarded field.
pub const Hops = struct {
    rest: []const u8,

    pub fn init(value: []const u8) Hops {
        return .{ .rest = value };
    }

    /// Returns the next hop; null: the end. A malformed element ends at its first comma, also within quotes,
    /// so that an unclosed quoted string from a client cannot hide hops that proxies have added.
    pub fn next(hops: *Hops) ?Hop {
        const text = std.mem.trimStart(u8, hops.rest, ", \t");
        if (text.len == 0) return null;
        var element: Element = .{ .text = text };
        if (element.parse()) |hop| {
            hops.rest = text[element.at..];
            return hop;
        } else |_| {
            hops.rest = text[std.mem.findScalar(u8, text, ',') orelse text.len ..];
            return .{ .from = .malformed };
        }
    }
};

/// An element of RFC 7239 section 4: pairs of a name and a value, separated by semicolons.
const Element = struct {
    text: []const u8,
    at: usize = 0,
    from: ?Hop.From = null,
    proto: ?[]const u8 = null,

    /// Reads an element up to the next comma, or to the end of the text.
    fn parse(element: *Element) error{Malformed}!Hop {
        while (true) {
            element.skipBlanks();
            if (element.peek() != ';' and !element.ended()) try element.parsePair();
            element.skipBlanks();
            if (element.ended()) break;
            if (element.peek() != ';') return error.Malformed;
            element.at += 1;
        }
        const secure = if (element.proto) |proto| isSecure(proto) else null;
        const from = element.from orelse return .{ .from = .hidden, .secure = secure };
        return if (from == .malformed) error.Malformed else .{ .from = from, .secure = secure };
    }

    fn parsePair(element: *Element) error{Malformed}!void {
        const name = element.take("=;, \t\"");
        if (!syntax.isToken(name) or element.peek() != '=') return error.Malformed;
        element.at += 1;
        const value = if (element.peek() == '"') try element.takeQuoted() else element.take(";, \t\"");
        if (value.len == 0) return error.Malformed;
        // Each parameter may occur only once.
        if (std.ascii.eqlIgnoreCase(name, "for")) {
            if (element.from != null) return error.Malformed;
            element.from = parseNode(value);
        } else if (std.ascii.eqlIgnoreCase(name, "proto")) {
            if (element.proto != null) return error.Malformed;
            element.proto = value;
        }
    }

    /// Returns the text between quotes without unescaping: no address or scheme needs a backslash.
    fn takeQuoted(element: *Element) error{Malformed}![]const u8 {
        const start = element.at + 1;
        var at = start;
        while (at < element.text.len) : (at += 1) switch (element.text[at]) {
            '"' => {
                element.at = at + 1;
                return element.text[start..at];
            },
            '\\' => at += 1,
            else => {},
        };
        return error.Malformed;
    }

    fn take(element: *Element, until: []const u8) []const u8 {
        const start = element.at;
        element.at = std.mem.findAnyPos(u8, element.text, start, until) orelse element.text.len;
        return element.text[start..element.at];
    }

    fn skipBlanks(element: *Element) void {
        while (element.peek() == ' ' or element.peek() == '\t') element.at += 1;
    }

    fn ended(element: *const Element) bool {
        return element.at == element.text.len or element.text[element.at] == ',';
    }

    fn peek(element: *const Element) ?u8 {
        return if (element.at < element.text.len) element.text[element.at] else null;
    }
};

/// Reads a node of RFC 7239 section 6, or IPv6 without brackets, which occurs as well.
fn parseNode(text: []const u8) Hop.From {
    if (text[0] == '_' or std.ascii.eqlIgnoreCase(text, "unknown")) return .hidden;
    return .{ .address = parseEndpoint(text) catch return .malformed };
}

fn parseEndpoint(text: []const u8) error{Malformed}!Endpoint {
    if (text[0] == '[') {
        const end = std.mem.findScalar(u8, text, ']') orelse return error.Malformed;
        return .{
            .address = try endpoint.parseV6(text[1..end]),
            .port = try parseNodePort(text[end + 1 ..]),
        };
    }
    const colon = std.mem.findScalar(u8, text, ':') orelse text.len;
    if ((std.mem.findScalarLast(u8, text, ':') orelse colon) != colon) {
        return .{ .address = try endpoint.parseV6(text) };
    }
    return .{ .address = try endpoint.parseV4(text[0..colon]), .port = try parseNodePort(text[colon..]) };
}

/// Reads nothing, a port like ":443", or a name like ":_name", which is ignored.
fn parseNodePort(text: []const u8) error{Malformed}!u16 {
    if (text.len == 0) return 0;
    if (text[0] != ':') return error.Malformed;
    if (text.len > 1 and text[1] == '_') return 0;
    return endpoint.parsePort(text[1..]);
}

/// Whether a scheme uses TLS; null: unknown scheme.
fn isSecure(scheme: []const u8) ?bool {
    inline for (.{ .{ "https", true }, .{ "http", false }, .{ "wss", true }, .{ "ws", false } }) |known| {
        if (std.ascii.eqlIgnoreCase(scheme, known[0])) return known[1];
    }
    return null;
}

const testing = std.testing;

/// Writes hops as "address:port" or the name of another case, followed by "+" if secure and "-" if not, and
/// compares.
fn expectHops(expected: []const u8, hops: anytype) !void {
    var buffer: [512]u8 = undefined;
    var writer: std.Io.Writer = .fixed(&buffer);
    var it = hops;
    while (it.next()) |hop| {
        if (writer.end > 0) try writer.writeByte(' ');
        switch (hop.from) {
            .address => |from| {
                switch (from.address) {
                    .v4 => |bytes| try writer.print(
                        "{d}.{d}.{d}.{d}",
                        .{ bytes[0], bytes[1], bytes[2], bytes[3] },
                    ),
                    .v6 => |bytes| try writer.print("{x}", .{std.mem.readInt(u128, &bytes, .big)}),
                }
                try writer.print(":{d}", .{from.port});
            },
            else => |what| try writer.writeAll(@tagName(what)),
        }
        if (hop.secure) |secure| try writer.writeByte(if (secure) '+' else '-');
    }
    try testing.expectEqualStrings(expected, writer.buffered());
}

test "X-Forwarded-For" {
    for ([_][2][]const u8{
        .{ "192.0.2.1", "192.0.2.1:0" },
        .{ "192.0.2.1, ::1,[::2] ,[::3]:81,192.0.2.1:80", "192.0.2.1:0 1:0 2:0 3:81 192.0.2.1:80" },
        .{ " , ,", "" },
        .{ "unknown,_x, UNKNOWN", "hidden hidden hidden" },
        .{ "192.0.2.1 192.0.2.2", "malformed" },
        .{ "\"x, 192.0.2.1", "malformed 192.0.2.1:0" },
    }) |case| try expectHops(case[1], ForHops.init(case[0]));
}

test "Forwarded" {
    for ([_][2][]const u8{
        .{ "for=192.0.2.1", "192.0.2.1:0" },
        .{ "For=\"192.0.2.1:4711\"; PROTO=https;by=203.0.113.43", "192.0.2.1:4711+" },
        .{ "for=192.0.2.1;proto=http, for=\"[::1]\" ;proto=wss,for=\"[::2]:_p\"", "192.0.2.1:0- 1:0+ 2:0" },
        .{ "for=192.0.2.1:80,for=[::1]:80", "192.0.2.1:80 1:80" },
        .{ "for=unknown, for=_x;proto=https, by=_y, proto=gopher", "hidden hidden+ hidden hidden" },
        .{ ",, ;;for=192.0.2.1;, ;", "192.0.2.1:0 hidden" },
        .{ "host=\"a,b;for=1\\\"\";for=192.0.2.1", "192.0.2.1:0" },
        .{ "for=192.0.2.1;for=192.0.2.2, proto=http;proto=http", "malformed malformed" },
        .{
            "for=\"192.0.2.1\"x, for=192.0.2.1\"\", for=192.0.2.1 proto=http",
            "malformed malformed malformed",
        },
    }) |case| try expectHops(case[1], Hops.init(case[0]));
}

test "malformed fields are refused" {
    for ([_][]const u8{
        "192.0.2", "192.0.2.256", "192.0.2.1:", "192.0.2.1:65536", "[::1",
        "::1]",    "[::1]80",     "localhost",  "fe80::1%eth0",    ":80",
        "[",
    }) |value| {
        try expectHops("malformed", ForHops.init(value));
    }
    for ([_][]const u8{
        "for", "for=", "=x", "for =192.0.2.1", "for= 192.0.2.1", "for=\"\"", "for=x;proto=https",
    }) |value| {
        try expectHops("malformed", Hops.init(value));
    }
}

test "a client does not swallow what its proxy adds" {
    for ([_][]const u8{
        "for=\"x", "for=\"x\\", "for=\"", "for=192.0.2.9;host=\"", "for=x;\"", "a=\"b\"c=\"",
    }) |begun| {
        for ([_][2][]const u8{
            .{ "for=192.0.2.1;proto=https", "192.0.2.1:0+" },
            .{ "for=\"[::1]:80\";by=\"[::2]\"", "1:80" },
            .{ "by=\"[::2]\";for=\"192.0.2.1\"", "192.0.2.1:0" },
        }) |added| {
            var buffer: [128]u8 = undefined;
            const value = try std.fmt.bufPrint(&buffer, "{s}, {s}", .{ begun, added[0] });
            var hops: Hops = .init(value);
            while (std.mem.trimStart(u8, hops.rest, ", ").len > added[0].len) _ = hops.next();
            try expectHops(added[1], hops);
        }
    }
}

test "the last scheme counts" {
    for ([_]struct { []const u8, ?bool }{
        .{ "https", true },          .{ "http", false },  .{ "WSS", true },        .{ "ws", false },
        .{ "http , https\t", true }, .{ "https,", null }, .{ "https, ftp", null }, .{ "", null },
    }) |case| try testing.expectEqual(case[1], lastProto(case[0]));
}

test "a trail ends at the rightmost address that is not trusted" {
    const near: Hop = .{
        .from = .{ .address = .{ .address = .{ .v4 = .{ 10, 0, 0, 1 } } } },
        .secure = false,
    };
    const far: Hop = .{
        .from = .{ .address = .{ .address = .{ .v4 = .{ 192, 0, 2, 1 } } } },
        .secure = true,
    };
    const Step = struct { Hop, bool };
    for ([_]struct { []const Step, ?Hop, ?bool }{
        .{ &.{}, null, null },
        .{ &.{.{ far, false }}, far, true },
        .{ &.{ .{ near, false }, .{ far, false } }, far, true },
        .{ &.{ .{ far, false }, .{ near, true } }, far, true },
        .{ &.{ .{ near, true }, .{ near, true } }, near, false },
        .{ &.{ .{ far, true }, .{ near, true } }, far, true },
        .{ &.{ .{ far, false }, .{ .{ .from = .hidden, .secure = true }, false } }, null, true },
        .{ &.{ .{ far, false }, .{ .{ .from = .malformed, .secure = true }, false } }, null, null },
        .{ &.{ .{ far, false }, .{ .{ .from = .malformed }, false }, .{ near, true } }, near, false },
        .{ &.{ .{ far, false }, .{ .{ .from = .hidden }, false }, .{ near, true } }, near, false },
    }) |case| {
        var trail: Trail = .{};
        for (case[0]) |step| trail.add(step[0], step[1]);
        try testing.expectEqualDeep(if (case[1]) |hop| hop.from.address else null, trail.client);
        try testing.expectEqual(case[2], trail.secure);
    }
}
