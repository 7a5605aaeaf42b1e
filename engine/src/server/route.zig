//! Routes of requests: the first route that matches a request's path, host name and upgrade gives a number
//! for it. A route is a value; matching allocates nothing. The health path is no route: the engine answers it
//! before there is an exchange, also for connections over the limit (worker/health.zig). Does not know:
//! hosts, connections, and the meaning of a path.
const std = @import("std");
const Head = @import("protocol").Head;

/// A condition on requests, and a number for requests that meet all parts of it.
pub const Route = struct {
    /// A path and all paths below it: "/app" matches /app, /app/ and /app/x, but not /apple; "/app/" does not
    /// match /app. It is compared with the path that applications see: percent-encodings decoded, dot
    /// segments unchanged. Empty: every path matches.
    path: []const u8 = "",
    /// The host name or address of the request, without its port and without regard to case. Empty: every
    /// name matches.
    host: []const u8 = "",
    upgrade: Upgrade = .any,
    /// The number for requests that match; its meaning is the caller's.
    to: u8,

    /// The upgrade that a request must ask for.
    pub const Upgrade = enum {
        any,
        /// The request is a WebSocket handshake that the engine has found valid.
        websocket,
        /// The request asks for a response and not for a WebSocket.
        none,
    };

    /// Whether a request meets all conditions. `is_handshake`: it asks for a WebSocket.
    pub fn matches(route: *const Route, head: *const Head, is_handshake: bool) bool {
        switch (route.upgrade) {
            .any => {},
            .websocket => if (!is_handshake) return false,
            .none => if (is_handshake) return false,
        }
        return (route.path.len == 0 or isBelow(route.path, head.path.of(head.text))) and
            (route.host.len == 0 or std.ascii.eqlIgnoreCase(route.host, name(head.authority.of(head.text))));
    }
};

/// The number of the first route that matches; 0: none matches.
pub fn find(routes: []const Route, head: *const Head, is_handshake: bool) u8 {
    for (routes) |*route| if (route.matches(head, is_handshake)) return route.to;
    return 0;
}

/// Whether `path`, which is percent-encoded, is `prefix` or lies below it.
fn isBelow(prefix: []const u8, path: []const u8) bool {
    var rest = path;
    for (prefix) |byte| {
        if (rest.len == 0 or byte != take(&rest)) return false;
    }
    return rest.len == 0 or prefix[prefix.len - 1] == '/' or take(&rest) == '/';
}

/// The next byte of a path, decoded. The path's encodings must be well-formed.
fn take(rest: *[]const u8) u8 {
    const text = rest.*;
    const encoded = text[0] == '%';
    rest.* = text[if (encoded) 3 else 1..];
    return if (encoded) std.fmt.parseInt(u8, text[1..3], 16) catch unreachable else text[0];
}

/// The host name of a well-formed authority, without its port and the dot at the end of an absolute name,
/// with the brackets of an IPv6 address.
fn name(authority: []const u8) []const u8 {
    const literal = std.mem.findScalar(u8, authority, ']');
    const end = if (literal) |at| at + 1 else std.mem.findScalar(u8, authority, ':') orelse authority.len;
    const host = authority[0..end];
    return if (std.mem.endsWith(u8, host, ".")) host[0 .. host.len - 1] else host;
}

const testing = std.testing;

test "a path stands for itself and what is below it, however that is encoded" {
    const Case = struct { []const u8, []const u8, bool };
    for ([_]Case{
        .{ "/app", "/app", true },
        .{ "/app", "/app/", true },
        .{ "/app", "/app/x", true },
        .{ "/app", "/%61p%70/x", true },
        .{ "/app", "/app%2Fx", true },
        .{ "/app", "/apple", false },
        .{ "/app", "/app%6Ce", false },
        .{ "/app", "/ap", false },
        .{ "/app", "/a%70", false },
        .{ "/app", "/App", false },
        .{ "/app", "/x/app", false },
        .{ "/app/", "/app", false },
        .{ "/app/", "/app/", true },
        .{ "/app/", "/app%2f", true },
        .{ "/app/", "/app/x", true },
        .{ "/", "/", true },
        .{ "/", "/x", true },
        .{ "/", "*", false },
        .{ "/\xc3\xa4 b", "/%C3%a4%20b", true },
    }) |case| {
        errdefer std.debug.print("{s} {s}\n", .{ case[0], case[1] });
        try testing.expectEqual(case[2], isBelow(case[0], case[1]));
    }
}

test "a name is compared without its port, its last dot and the case of its letters" {
    const Case = struct { []const u8, []const u8 };
    for ([_]Case{
        .{ "example.org", "example.org" },
        .{ "example.org:80", "example.org" },
        .{ "example.org.:80", "example.org" },
        .{ "[::1]", "[::1]" },
        .{ "[::1]:8080", "[::1]" },
        .{ "192.0.2.1:", "192.0.2.1" },
        .{ "", "" },
        .{ ":80", "" },
    }) |case| try testing.expectEqualStrings(case[1], name(case[0]));
}

/// Makes the head of a request with this path and this authority, for tests.
fn headOf(comptime path: []const u8, comptime authority: []const u8) Head {
    return .{
        .storage = &.{},
        .text = path ++ authority,
        .path = .{ .at = 0, .len = path.len },
        .authority = .{ .at = path.len, .len = authority.len },
    };
}

test "the first route that matches decides, and without one the first host does" {
    const routes = [_]Route{
        .{ .path = "/app", .upgrade = .websocket, .to = 1 },
        .{ .path = "/app", .host = "EXAMPLE.org", .to = 2 },
        .{ .host = "example.org", .upgrade = .none, .to = 3 },
        .{ .path = "/app", .to = 4 },
    };
    const Case = struct { Head, bool, u8 };
    for ([_]Case{
        .{ headOf("/app/x", "example.org:80"), true, 1 },
        .{ headOf("/app/x", "example.org:80"), false, 2 },
        .{ headOf("/", "Example.Org"), false, 3 },
        .{ headOf("/", "example.org"), true, 0 },
        .{ headOf("/app", "example.com"), false, 4 },
        .{ headOf("/app", ""), false, 4 },
        .{ headOf("/", "example.com"), false, 0 },
    }) |case| try testing.expectEqual(case[2], find(&routes, &case[0], case[1]));
    try testing.expectEqual(0, find(&.{}, &headOf("/app", ""), false));
}
