//! Stream sockets for code that waits with poll: few of them, and no connections of clients. Does not know:
//! the bytes.
const std = @import("std");
const socket_file = @import("socket.zig");
const sys = @import("sys.zig");
const Address = socket_file.Address;
const system = std.posix.system;

/// A descriptor with the events that are wanted.
pub const Poll = struct {
    inner: system.pollfd,

    /// Waits for bytes of `fd`; a negative `fd` is never ready.
    pub fn read(fd: sys.Fd) Poll {
        return .{ .inner = .{ .fd = fd, .events = system.POLL.IN, .revents = 0 } };
    }

    pub fn readOrWrite(fd: sys.Fd) Poll {
        return .{ .inner = .{ .fd = fd, .events = system.POLL.IN | system.POLL.OUT, .revents = 0 } };
    }

    /// Whether the descriptor has bytes, an end, or room to write.
    pub fn isReady(poll: *const Poll) bool {
        return poll.inner.revents != 0;
    }

    /// Whether the descriptor has bytes or an end.
    pub fn isReadable(poll: *const Poll) bool {
        return poll.inner.revents & ~@as(i16, system.POLL.OUT) != 0;
    }
};

/// Begins a connection. When the socket is ready, `isConnected` tells the result. The socket is non-blocking,
/// and closed on exec and in forks.
pub fn connect(address: *const Address) error{Failed}!sys.Fd {
    const fd = sys.socket(address.family()) catch return error.Failed;
    _ = sys.owned(.{ .done = @intCast(fd) });
    errdefer sys.close(fd);
    // Commands must not wait for the answers to earlier ones (Nagle's algorithm).
    if (address.* != .unix) sys.setOption(fd, .no_delay, 1) catch return error.Failed;
    var storage: sys.sockaddr.storage = undefined;
    const length = address.toSystem(&storage);
    sys.connect(fd, @ptrCast(&storage), length) catch |err| switch (err) {
        error.Pending => {},
        else => return error.Failed,
    };
    return fd;
}

/// Whether a connection that had begun is established; false: it was refused.
pub fn isConnected(fd: sys.Fd) bool {
    return sys.takeError(fd) == .SUCCESS;
}

/// Waits until a descriptor is ready, at most `timeout_ms` (-1: for ever). A signal ends the wait early.
pub fn wait(polls: []Poll, timeout_ms: i32) void {
    for (polls) |*poll| poll.inner.revents = 0;
    const rc = system.poll(@ptrCast(polls.ptr), @intCast(polls.len), timeout_ms);
    if (sys.errno(rc) != .SUCCESS) for (polls) |*poll| {
        poll.inner.revents = 0;
    };
}

/// Whether a socket's other end is open.
pub fn isOpen(fd: sys.Fd) bool {
    var polls = [_]Poll{.read(fd)};
    wait(&polls, 0);
    return polls[0].inner.revents & (system.POLL.HUP | system.POLL.ERR | system.POLL.NVAL) == 0;
}

/// The result of reading or writing a socket without waiting.
pub const Outcome = union(enum) {
    /// The number of bytes that were moved.
    done: usize,
    blocked,
    /// The other end is closed.
    ended,
};

/// Receives bytes that have come.
pub fn receive(fd: sys.Fd, buffer: []u8) Outcome {
    return switch (sys.receive(fd, buffer)) {
        .done => |count| if (count == 0) .ended else .{ .done = count },
        .blocked => .blocked,
        .failed => .ended,
    };
}

/// Sends as many bytes as the kernel takes.
pub fn send(fd: sys.Fd, bytes: []const u8) Outcome {
    return switch (sys.send(fd, &.{.{ .base = bytes.ptr, .len = bytes.len }}, false)) {
        .done => |count| .{ .done = count },
        .blocked => .blocked,
        .failed => .ended,
    };
}

const testing = std.testing;

test "a socket is readable when bytes have come, and at its end" {
    const ours, const theirs = try @import("streams.zig").pair();
    defer sys.close(ours);
    var polls = [_]Poll{ .read(-1), .read(ours), .readOrWrite(ours) };
    wait(&polls, 0);
    try testing.expect(!polls[0].isReadable() and !polls[1].isReadable() and !polls[2].isReadable());
    var buffer: [8]u8 = undefined;
    try testing.expectEqual(Outcome.blocked, receive(ours, &buffer));
    try testing.expectEqual(Outcome{ .done = 2 }, send(theirs, "hi"));
    wait(&polls, -1);
    try testing.expect(polls[1].isReadable());
    try testing.expectEqual(Outcome{ .done = 2 }, receive(ours, &buffer));
    sys.close(theirs);
    wait(&polls, -1);
    try testing.expect(polls[1].isReadable());
    try testing.expectEqual(Outcome.ended, receive(ours, &buffer));
    try testing.expectEqual(Outcome.ended, send(ours, "x"));
}

test "a connection that begins, and those that are refused" {
    const listener = try socket_file.listenSocket(&(try Address.parse("127.0.0.1", 0)), .{});
    defer sys.close(listener);
    const address = (try socket_file.listeningAddress(listener));
    const fd = try connect(&address);
    defer sys.close(fd);
    var polls = [_]Poll{.readOrWrite(fd)};
    wait(&polls, 5_000);
    try testing.expect(polls[0].isReady() and isConnected(fd));
    const nowhere = try Address.unixPath("/nowhere/at/all");
    try testing.expectError(error.Failed, connect(&nowhere));
}
