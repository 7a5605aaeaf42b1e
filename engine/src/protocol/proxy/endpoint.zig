//! Addresses in the notation of proxies. Does not know: the fields and headers that contain them (header.zig,
//! forwarded.zig).
const std = @import("std");

pub const Address = union(enum) { v4: [4]u8, v6: [16]u8 };

/// An end of a connection that a proxy has accepted.
pub const Endpoint = struct {
    address: Address,
    /// The port; 0: unknown.
    port: u16 = 0,
};

/// Reads an address like "192.0.2.1".
pub fn parseV4(text: []const u8) error{Malformed}!Address {
    const v4 = std.Io.net.Ip4Address.parse(text, 0) catch return error.Malformed;
    return .{ .v4 = v4.bytes };
}

/// Reads an address like "2001:db8::1". Refuses one with a zone, which has a meaning on one machine only.
pub fn parseV6(text: []const u8) error{Malformed}!Address {
    return switch (std.Io.net.Ip6Address.Unresolved.parse(text)) {
        .success => |v6| if (v6.interface_name == null) .{ .v6 = v6.bytes } else error.Malformed,
        else => error.Malformed,
    };
}

/// Reads a port like "443".
pub fn parsePort(text: []const u8) error{Malformed}!u16 {
    if (text.len == 0 or text.len > 1 and text[0] == '0') return error.Malformed;
    var port: u32 = 0;
    for (text) |byte| {
        if (!std.ascii.isDigit(byte)) return error.Malformed;
        port = port * 10 + (byte - '0');
        if (port > std.math.maxInt(u16)) return error.Malformed;
    }
    return @intCast(port);
}
