//! Job: a stream between the engine and an application that wants raw bytes: a pair of connected sockets.
//! Does not know: what is sent through it.
const std = @import("std");
const builtin = @import("builtin");
const io = @import("io.zig");
const sys = @import("sys.zig");
const system = std.posix.system;
const is_linux = builtin.os.tag == .linux;

/// Makes two connected sockets, closed on exec: first the engine's, which is non-blocking, then the
/// application's, which blocks and which a forked child keeps.
pub fn pair() sys.ResourceError![2]sys.Fd {
    var both: [2]sys.Fd = undefined;
    const kind = system.SOCK.STREAM;
    const rc = if (is_linux)
        system.socketpair(system.AF.UNIX, kind | system.SOCK.CLOEXEC, 0, &both)
    else
        system.socketpair(system.AF.UNIX, kind, 0, &both);
    const code = sys.errno(rc);
    if (code != .SUCCESS) return sys.resourceError(code);
    errdefer for (both) |fd| {
        _ = system.close(fd);
    };
    if (!is_linux) try sys.setCloexec(both[1]);
    _ = adopt(both[0]) catch return error.Unexpected;
    return both;
}

/// Prepares a stream socket that was made elsewhere for an io: non-blocking, closed on exec and in forks. On
/// an error the caller still owns it.
pub fn adopt(fd: sys.Fd) error{ NotAStream, Unexpected }!io.Socket {
    if (!isStream(fd)) return error.NotAStream;
    try sys.setNonblockCloexec(fd);
    _ = sys.owned(.{ .done = @intCast(fd) });
    return @fromBackingInt(fd);
}

/// Copies bytes that wait at the engine's end without receiving them, at most `buffer.len`; returns 0 if
/// there are none, or at the end of the stream.
pub fn peek(socket: io.Socket, buffer: []u8) usize {
    const flags = system.MSG.PEEK | system.MSG.DONTWAIT;
    const rc = system.recvfrom(@backingInt(socket), buffer.ptr, buffer.len, flags, null, null);
    return if (sys.errno(rc) == .SUCCESS) @intCast(rc) else 0;
}

fn isStream(fd: sys.Fd) bool {
    const kind = sys.getOption(fd, .kind) catch return false;
    return kind == system.SOCK.STREAM;
}

const testing = std.testing;

test "bytes go both ways, only the engine's end does not wait, and nothing but a stream is taken" {
    const ours, const theirs = try pair();
    defer sys.close(ours);
    defer _ = system.close(theirs);
    var buffer: [8]u8 = undefined;
    try testing.expectEqual(sys.Moved.blocked, sys.receive(ours, &buffer));
    try testing.expectEqual(0, peek(@fromBackingInt(ours), &buffer));
    try testing.expectEqual(2, system.write(theirs, "hi", 2));
    try testing.expectEqual(2, peek(@fromBackingInt(ours), &buffer));
    try testing.expectEqual(sys.Moved{ .done = 2 }, sys.receive(ours, &buffer));
    try testing.expectEqual(3, system.write(ours, "you", 3));
    try testing.expectEqual(3, system.read(theirs, &buffer, 8));
    const ends = try @import("sys/pipe.zig").Ends.open();
    defer ends.close();
    try testing.expectError(error.NotAStream, adopt(ends.read));
}
