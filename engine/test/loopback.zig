//! A TCP connection to a server under test on 127.0.0.1. Nothing here waits for ever: a server that says
//! nothing fails the test.
const std = @import("std");
const linux = std.os.linux;

/// How long a read or a write waits for the server, in seconds: far longer than any takes.
const patience_seconds = 60;

/// Connects; the caller closes the descriptor. `send` and `receive` wait for `patience_seconds` at most.
pub fn connect(port: u16) !i32 {
    const fd: i32 = @intCast(linux.socket(linux.AF.INET, linux.SOCK.STREAM | linux.SOCK.CLOEXEC, 0));
    errdefer _ = linux.close(fd);
    const address: linux.sockaddr.in = .{
        .port = std.mem.nativeToBig(u16, port),
        .addr = @bitCast([4]u8{ 127, 0, 0, 1 }),
    };
    if (linux.errno(linux.connect(fd, @ptrCast(&address), @sizeOf(linux.sockaddr.in))) != .SUCCESS) {
        return error.NotConnected;
    }
    const patience: linux.timeval = .{ .sec = patience_seconds, .usec = 0 };
    for ([_]u32{ linux.SO.RCVTIMEO, linux.SO.SNDTIMEO }) |option| {
        const rc = linux.setsockopt(
            fd,
            linux.SOL.SOCKET,
            option,
            @ptrCast(&patience),
            @sizeOf(linux.timeval),
        );
        if (linux.errno(rc) != .SUCCESS) return error.NotConnected;
    }
    return fd;
}

/// Sends all bytes.
pub fn send(fd: i32, bytes: []const u8) error{NotSent}!void {
    var sent: usize = 0;
    while (sent < bytes.len) {
        const rc = linux.sendto(fd, bytes.ptr + sent, bytes.len - sent, linux.MSG.NOSIGNAL, null, 0);
        switch (linux.errno(rc)) {
            .SUCCESS => sent += rc,
            // With a time limit no call is restarted, and a ring of this thread interrupts it.
            .INTR => {},
            else => return error.NotSent,
        }
    }
}

/// The bytes that have come, at least one; none at the end of the connection.
pub fn receive(fd: i32, space: []u8) error{NotReceived}![]u8 {
    while (true) {
        const rc = linux.read(fd, space.ptr, space.len);
        switch (linux.errno(rc)) {
            .SUCCESS => return space[0..rc],
            .INTR => {},
            else => return error.NotReceived,
        }
    }
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
    if (linux.errno(tell(fd, @ptrCast(&address), &length)) != .SUCCESS or address.family != linux.AF.INET) {
        return null;
    }
    return std.mem.bigToNative(u16, address.port);
}
