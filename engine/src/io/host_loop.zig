//! Waits for a descriptor of the engine and for a host's loop at the same time, where the engine is
//! elsewhere. An engine in the host's thread watches the loop itself (`watchLoop`). Does not know: what the
//! loop watches.
const std = @import("std");
const builtin = @import("builtin");
const is_linux = builtin.os.tag == .linux;
const assert = std.debug.assert;
const sys = @import("sys.zig");
const watch = @import("sys/epoll.zig");

/// Whether the system has a wait with a signal mask.
pub const is_supported = is_linux;

/// The loop of a host, with the result of the last wait.
pub const HostLoop = struct {
    fd: sys.Fd,
    /// Signals that are blocked during a wait, bit n - 1 for signal n; null: the thread's own mask is used.
    blocked: ?u64,
    /// Whether the loop was readable in a wait since the last `take`.
    is_due: bool = false,

    /// Waits until `own` or the loop's descriptor is readable, at most `timeout_ms` (-1: for ever). A signal
    /// ends the wait early, and counts as the loop's.
    pub fn wait(loop: *HostLoop, own: sys.Fd, timeout_ms: i32) void {
        assert(loop.fd >= 0);
        const blocked = if (loop.blocked) |*set| set else null;
        if (watch.waitForTwo(own, loop.fd, timeout_ms, blocked)) loop.is_due = true;
    }

    /// Checks the loop without waiting, and lets signals in.
    pub fn look(loop: *HostLoop) void {
        loop.wait(-1, 0);
    }

    /// Whether the loop has something to do. The mark is cleared.
    pub fn take(loop: *HostLoop) bool {
        defer loop.is_due = false;
        return loop.is_due;
    }
};

test "a loop is due by its descriptor" {
    if (!is_supported) return error.SkipZigTest;
    const own = try watch.eventFd();
    defer sys.close(own);
    const other = try watch.eventFd();
    defer sys.close(other);
    var loop: HostLoop = .{ .fd = other, .blocked = 0 };
    loop.look();
    try std.testing.expect(!loop.take());
    watch.eventRaise(own);
    loop.wait(own, -1);
    try std.testing.expect(!loop.take());
    watch.eventRaise(other);
    loop.look();
    _ = watch.eventTake(own);
    for (0..2) |_| {
        try std.testing.expect(loop.take());
        try std.testing.expect(!loop.take());
        loop.wait(own, -1);
    }
}
