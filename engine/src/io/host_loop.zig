//! The loop of a host that waits with us: while we wait for a descriptor of ours, we wait for one of the
//! loop's, too. For engines that are elsewhere; an engine in the host's own thread watches the loop itself
//! (`watchLoop`). Does not know: what the loop watches.
const std = @import("std");
const builtin = @import("builtin");
const is_linux = builtin.os.tag == .linux;
const assert = std.debug.assert;
const sys = @import("sys.zig");
const watch = @import("sys/epoll.zig");

/// Whether this system has a wait that lets signals in.
pub const is_supported = is_linux;

/// The loop, and what the last look at it has seen.
pub const HostLoop = struct {
    fd: sys.Fd,
    /// Signals that are blocked while we wait, bit n - 1 for signal n; null: as they are.
    blocked: ?u64,
    /// Whether the loop has something to do, by the looks since `take`.
    is_due: bool = false,

    /// Waits until `own` or the loop's descriptor is readable, at most `timeout_ms` (-1: without bound). A
    /// signal ends the wait early, as the loop's descriptor does.
    pub fn wait(loop: *HostLoop, own: sys.Fd, timeout_ms: i32) void {
        assert(loop.fd >= 0);
        const blocked = if (loop.blocked) |*set| set else null;
        if (watch.waitForTwo(own, loop.fd, timeout_ms, blocked)) loop.is_due = true;
    }

    /// Looks without waiting, and lets signals in.
    pub fn look(loop: *HostLoop) void {
        loop.wait(-1, 0);
    }

    /// Whether the loop has something to do, told once for each look.
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
