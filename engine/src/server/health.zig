//! The health path: a request target that the engine answers by itself, for probes that ask whether the
//! process is alive. Does not know: connections, sockets.
const std = @import("std");
const Head = @import("protocol").Head;

/// The health path, which requests get with status 200. No path is set at first.
pub const Health = struct {
    len: u8 = 0,
    bytes: [path_bytes_max]u8 = undefined,

    /// The longest path, in bytes.
    pub const path_bytes_max = 255;

    /// Reasons why a path is not set.
    pub const SetError = error{
        /// The path does not begin with "/", is too long, or holds other characters than the visible ASCII
        /// characters of a path.
        BadPath,
    };

    /// Sets the health path, which is compared byte by byte with the path of requests; empty: there is no
    /// health path.
    pub fn set(health: *Health, path: []const u8) SetError!void {
        if (path.len > path_bytes_max) return error.BadPath;
        if (path.len > 0 and path[0] != '/') return error.BadPath;
        for (path) |byte| switch (byte) {
            '?', '#' => return error.BadPath,
            else => if (byte <= ' ' or byte >= 0x7F) return error.BadPath,
        };
        @memcpy(health.bytes[0..path.len], path);
        health.len = @intCast(path.len);
    }

    /// Whether there is a health path.
    pub fn isSet(health: *const Health) bool {
        return health.len > 0;
    }

    fn text(health: *const Health) []const u8 {
        return health.bytes[0..health.len];
    }

    /// Whether a request asks for the health path by GET or HEAD. Requests with other methods go to the
    /// application.
    pub fn matches(health: *const Health, head: *const Head) bool {
        if (health.len == 0 or health.len != head.path.len) return false;
        if (head.method != .GET and head.method != .HEAD) return false;
        return std.mem.eql(u8, health.text(), head.path.of(head.text));
    }
};

test "a path is what a request target may begin with" {
    var health: Health = .{};
    try std.testing.expect(!health.isSet());
    try health.set("/health");
    for (
        [_][]const u8{ "health", "/a b", "/a?b", "/a#b", "/\x00", "/\x7f", "/\xc3\xa4", &@as(
            [256]u8,
            @splat('/'),
        ) },
    ) |bad| {
        try std.testing.expectError(error.BadPath, health.set(bad));
    }
    try std.testing.expect(health.isSet());
    try health.set("");
    try std.testing.expect(!health.isSet());
}
