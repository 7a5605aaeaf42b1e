//! The health path: a request target that the engine answers by itself, for whoever asks whether the process is alive.
//! Does not know: connections, sockets. Who answers while the host is busy is in standby.zig.
const std = @import("std");
const assert = std.debug.assert;
const Head = @import("protocol").Head;

/// A path that is answered with 200; none at first.
pub const Health = struct {
    len: u8 = 0,
    bytes: [path_bytes_max]u8 = undefined,

    /// The longest path, in bytes.
    pub const path_bytes_max = 255;

    /// Why a path is not set.
    pub const SetError = error{
        /// It does not begin with "/", is too long, or holds something else than the visible ASCII characters of a path.
        BadPath,
    };

    /// Answers at this path from now on, which is compared as it stands in the request; empty: nowhere.
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

    /// Whether a request asks for it. Other methods than GET and HEAD are the application's.
    pub fn matches(health: *const Health, head: *const Head) bool {
        if (health.len == 0 or health.len != head.path.len) return false;
        if (head.method != .GET and head.method != .HEAD) return false;
        return std.mem.eql(u8, health.text(), head.path.of(head.text));
    }

    /// Whether the first bytes of a connection are going to ask for it.
    pub const Guess = enum { yes, no, undecided };

    /// The same of bytes that may be less than a head. A target in another form than the usual one counts as no.
    pub fn guess(health: *const Health, bytes: []const u8) Guess {
        assert(health.isSet());
        var some_undecided = false;
        inline for (.{ "GET ", "HEAD " }) |method| switch (health.guessAs(method, bytes)) {
            .yes => return .yes,
            .undecided => some_undecided = true,
            .no => {},
        };
        return if (some_undecided) .undecided else .no;
    }

    fn guessAs(health: *const Health, comptime method: []const u8, bytes: []const u8) Guess {
        const of_method = @min(method.len, bytes.len);
        if (!std.mem.eql(u8, method[0..of_method], bytes[0..of_method])) return .no;
        const rest = bytes[of_method..];
        const of_path = @min(health.len, rest.len);
        if (!std.mem.eql(u8, health.text()[0..of_path], rest[0..of_path])) return .no;
        if (rest.len <= health.len) return .undecided;
        return if (rest[health.len] == ' ' or rest[health.len] == '?') .yes else .no;
    }
};

test "a path is what a request target may begin with" {
    var health: Health = .{};
    try std.testing.expect(!health.isSet());
    try health.set("/health");
    for ([_][]const u8{ "health", "/a b", "/a?b", "/a#b", "/\x00", "/\x7f", "/\xc3\xa4", &@as([256]u8, @splat('/')) }) |bad| {
        try std.testing.expectError(error.BadPath, health.set(bad));
    }
    try std.testing.expect(health.isSet());
    try health.set("");
    try std.testing.expect(!health.isSet());
}

test "guesses agree however the bytes are cut" {
    var health: Health = .{};
    try health.set("/up");
    const cases = .{
        .{ "GET /up HTTP/1.1\r\n", .yes },        .{ "HEAD /up HTTP/1.1\r\n", .yes }, .{ "GET /up?x=1 HTTP/1.1\r\n", .yes },
        .{ "GET /upper HTTP/1.1\r\n", .no },      .{ "GET / HTTP/1.1\r\n", .no },     .{ "POST /up HTTP/1.1\r\n", .no },
        .{ "GET /app/up HTTP/1.1\r\n", .no },     .{ "\x16\x03\x01", .no },           .{ "HEADER /up", .no },
        .{ "GET http://h/up HTTP/1.1\r\n", .no },
    };
    inline for (cases) |case| {
        const text: []const u8 = case[0];
        var decided: Health.Guess = .undecided;
        for (0..text.len + 1) |len| {
            const now = health.guess(text[0..len]);
            if (decided == .undecided) decided = now else try std.testing.expectEqual(decided, now);
        }
        try std.testing.expectEqual(@as(Health.Guess, case[1]), decided);
    }
}
