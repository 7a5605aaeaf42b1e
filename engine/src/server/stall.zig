//! A deadline that depends on a rate: a peer has a fixed time, and each byte that it moves extends the
//! deadline by some of the time that has passed. A peer that sends single bytes gains next to nothing, a slow
//! honest peer is never cut, and no peer gains time in advance.
const std = @import("std");
const assert = std.debug.assert;
const Timer = @import("timer.zig").Timer;

/// A deadline that bytes of the peer extend.
pub const Stall = struct {
    /// The time at which waiting began, moved forward by bytes. It is never in the future, so a burst gains
    /// no time in advance. The alignment makes the place for a blockage shorter, which each idle connection
    /// has.
    since: u64 align(4),
    /// The rest of bytes that did not gain a whole millisecond, in thousandths of a byte.
    change: u32 = 0,

    /// Begins to wait.
    pub fn begin(now: u64) Stall {
        return .{ .since = now };
    }

    /// Moves the deadline by a second for each `rate` bytes that the peer has moved.
    pub fn progress(stall: *Stall, bytes: u64, rate: u32, now: u64) void {
        assert(rate > 0);
        const paid = bytes * 1000 + stall.change;
        stall.since += paid / rate;
        stall.change = @intCast(paid % rate);
        if (stall.since >= now) stall.* = .begin(now);
    }

    /// The deadline in milliseconds: `limit_ms` after the beginning, which progress has moved; 0: never.
    pub fn deadline(stall: Stall, limit_ms: u32) u64 {
        return if (limit_ms == 0) Timer.never else stall.since + limit_ms;
    }

    /// Stops the clock while the server does not wait for the peer.
    pub fn pause(stall: Stall, now: u64) Paused {
        return .{ .spent_ms = now -| stall.since };
    }

    /// The time that the peer has used up, while the clock stands still.
    pub const Paused = struct {
        spent_ms: u64 = 0,

        /// Lets the clock run again.
        pub fn proceed(paused: Paused, now: u64) Stall {
            return .{ .since = now -| paused.spent_ms };
        }
    };
};

test "bytes pay in proportion for what has passed, no bytes pay nothing" {
    var stall: Stall = .begin(1000);
    try std.testing.expectEqual(1500, stall.deadline(500));
    stall.progress(20, 100, 1300);
    try std.testing.expectEqual(1700, stall.deadline(500));
    for (0..100) |_| stall.progress(1, 100_000, 1300);
    try std.testing.expectEqual(1701, stall.deadline(500));
    try std.testing.expectEqual(Timer.never, stall.deadline(0));
}

test "a burst buys no patience for later" {
    var stall: Stall = .begin(1000);
    stall.progress(1 << 40, 100, 1300);
    try std.testing.expectEqual(1800, stall.deadline(500));
}

test "bytes that pay for less than a millisecond are kept, but not beyond the time that has passed" {
    var stall: Stall = .begin(1000);
    stall.progress(1, 1001, 1300);
    try std.testing.expectEqual(1500, stall.deadline(500));
    stall.progress(1, 1001, 1300);
    try std.testing.expectEqual(1501, stall.deadline(500));
    stall = .begin(1000);
    stall.progress(1, 600, 1001);
    stall.progress(1, 600, 1300);
    try std.testing.expectEqual(1502, stall.deadline(500));
}

test "time in which nobody waits is the peer's, and what it used up before is not given back" {
    const paused = Stall.begin(1000).pause(1300);
    try std.testing.expectEqual(5000 - 300 + 500, paused.proceed(5000).deadline(500));
    try std.testing.expectEqual(5000 + 500, Stall.Paused.proceed(.{}, 5000).deadline(500));
}
