//! The requests that the loads send. Does not know: what comes back.
const std = @import("std");
const websocket = @import("websocket.zig");

const host = "Host: 127.0.0.1\r\n";

/// A plain GET; `fields` are whole lines.
pub fn get(arena: std.mem.Allocator, path: []const u8, fields: []const u8) ![]const u8 {
    return std.fmt.allocPrint(arena, "GET {s} HTTP/1.1\r\n" ++ host ++ "{s}\r\n", .{ path, fields });
}

/// The head of a POST, whose body follows.
pub fn post(arena: std.mem.Allocator, path: []const u8, bytes: usize) ![]const u8 {
    const head = "POST {s} HTTP/1.1\r\n" ++ host ++ "Content-Type: text/plain\r\nContent-Length: {d}\r\n\r\n";
    return std.fmt.allocPrint(arena, head, .{ path, bytes });
}

/// The opening handshake of a WebSocket (RFC 6455 section 4.1); `fields` are whole lines.
pub fn upgrade(arena: std.mem.Allocator, path: []const u8, fields: []const u8) ![]const u8 {
    const all = try std.fmt.allocPrint(
        arena,
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " ++
            websocket.key ++ "\r\n{s}",
        .{fields},
    );
    return get(arena, path, all);
}
