//! A TCP connection to a server under test on 127.0.0.1.
const std = @import("std");
const linux = std.os.linux;

/// Connects; the caller closes the descriptor, which blocks.
pub fn connect(port: u16) !i32 {
    const fd: i32 = @intCast(linux.socket(linux.AF.INET, linux.SOCK.STREAM | linux.SOCK.CLOEXEC, 0));
    errdefer _ = linux.close(fd);
    const address: linux.sockaddr.in = .{ .port = std.mem.nativeToBig(u16, port), .addr = @bitCast([4]u8{ 127, 0, 0, 1 }) };
    if (linux.errno(linux.connect(fd, @ptrCast(&address), @sizeOf(linux.sockaddr.in))) != .SUCCESS) return error.NotConnected;
    return fd;
}

/// The port on this side of a connection.
pub fn localPort(fd: i32) !u16 {
    return portOf(linux.getsockname, fd) orelse error.NoPort;
}

/// The port at the other end of what may be a connection.
pub fn peerPort(fd: i32) ?u16 {
    return portOf(linux.getpeername, fd);
}

fn portOf(comptime tell: anytype, fd: i32) ?u16 {
    var address: linux.sockaddr.in = undefined;
    var length: linux.socklen_t = @sizeOf(linux.sockaddr.in);
    if (linux.errno(tell(fd, @ptrCast(&address), &length)) != .SUCCESS or address.family != linux.AF.INET) return null;
    return std.mem.bigToNative(u16, address.port);
}
