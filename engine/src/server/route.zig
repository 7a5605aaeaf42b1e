//! The choice of a number for a request, by its path, name and upgrade: that of the first route that matches.
//! A route is a value; to match one allocates nothing. The health path is no route: it is answered before
//! there is an exchange, also for connections over the limit (worker/health.zig). Does not know: hosts,
//! connections, what a path means to an application.
const std = @import("std");
const Head = @import("protocol").Head;

/// Requests of one kind, and the host that answers them. A request has to meet all conditions of the route.
pub const Route = struct {
    /// A path and all paths below it: "/app" stands for /app, /app/ and /app/x, not for /apple; "/app/" does
    /// not stand for /app. Compared with the path as applications see it, percent-encodings decoded and dot
    /// segments as they are. Empty: every path.
    path: []const u8 = "",
    /// The name or address that the request is for, without its port; letters in either case. Empty: every
    /// one.
    host: []const u8 = "",
    upgrade: Upgrade = .any,
    /// A number, whose meaning the maker of the route knows.
    to: u8,

    /// The upgrade that the request asks for.
    pub const Upgrade = enum {
        any,
        /// A WebSocket, by a handshake that the engine has found right.
        websocket,
        /// A response.
        none,
    };

    /// Whether a request is of this kind. `is_handshake`: it asks for a WebSocket.
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

/// The host of a request: that of the first route that matches, or else the first one.
pub fn find(routes: []const Route, head: *const Head, is_handshake: bool) u8 {
    for (routes) |*route| if (route.matches(head, is_handshake)) return route.to;
    return 0;
}

/// Whether `path`, percent-encoded, is `prefix` or lies below it.
fn isBelow(prefix: []const u8, path: []const u8) bool {
    var rest = path;
    for (prefix) |byte| {
        if (rest.len == 0 or byte != take(&rest)) return false;
    }
    return rest.len == 0 or prefix[prefix.len - 1] == '/' or take(&rest) == '/';
}

/// The next byte of a path whose encodings are well-formed, decoded.
fn take(rest: *[]const u8) u8 {
    const text = rest.*;
    const encoded = text[0] == '%';
    rest.* = text[if (encoded) 3 else 1..];
    return if (encoded) std.fmt.parseInt(u8, text[1..3], 16) catch unreachable else text[0];
}

/// The host of a well-formed authority, without its port and the dot at the end of an absolute name. Brackets
/// are part of it.
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

/// A head with this path and this authority.
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
