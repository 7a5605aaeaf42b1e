//! Names of protocols that TLS negotiates (ALPN, RFC 7301).
const std = @import("std");
const tls = @import("tls");
const Config = @import("config.zig").Config;

const all = [_]tls.Protocol{
    .{ .name = "h2", .needs_strong_cipher = true },
    .{ .name = "http/1.1" },
    .{ .name = "http/1.0" },
};

/// The protocols that the server offers, in order of preference. Static memory.
pub fn offered(config: *const Config) []const tls.Protocol {
    return all[@intFromBool(config.http2 == .off)..];
}

/// Whether the negotiated protocol carries many requests at a time.
pub fn isMultiplexed(name: ?[]const u8) bool {
    return std.mem.eql(u8, name orelse return false, all[0].name);
}

/// Whether the negotiated protocol is an authority's check of a host name (`acme-tls/1`, RFC 8737). The
/// handshake has answered this check already, and no request follows.
pub fn isValidation(name: ?[]const u8) bool {
    return std.mem.eql(u8, name orelse return false, "acme-tls/1");
}

test "the offered protocols depend on an option, and the chosen one is known afterwards" {
    var config: Config = .{};
    const names = [_][]const u8{ "http/1.1", "h2", "h2" };
    for ([_]Config.Multiplexing{ .off, .over_tls, .everywhere }, names) |where, first| {
        config.http2 = where;
        try std.testing.expectEqualStrings(first, offered(&config)[0].name);
    }
    for (all, [_]bool{ true, false, false }) |protocol, expected| {
        try std.testing.expectEqual(expected, isMultiplexed(protocol.name));
    }
    try std.testing.expect(!isMultiplexed(null));
    try std.testing.expect(isValidation("acme-tls/1"));
    try std.testing.expect(!isValidation("http/1.1") and !isValidation(null));
}
