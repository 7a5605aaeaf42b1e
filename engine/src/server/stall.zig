//! A deadline by rate: waiting for a peer may last a fixed time, and every byte that it moves pays for some
//! of the time that has passed. A peer that trickles pays next to nothing, a slow honest peer is never cut,
//! and no peer pays ahead.
const std = @import("std");
const assert = std.debug.assert;
const Timer = @import("timer.zig").Timer;

/// A deadline by rate: every byte that the peer moves pays for some of the time that has passed.
pub const Stall = struct {
    /// Since when the peer is waited for, less what it has paid for. Never in the future: a burst buys no
    /// patience for later.
    since: u64,
    /// Thousandths of bytes that were too few for a millisecond.
    change: u64 = 0,

    /// The waiting starts.
    pub fn begin(now: u64) Stall {
        return .{ .since = now };
    }

    /// The peer moved bytes: a second for each `rate` of them.
    pub fn progress(stall: *Stall, bytes: u64, rate: u32, now: u64) void {
        assert(rate > 0);
        const paid = bytes * 1000 + stall.change;
        stall.since += paid / rate;
        stall.change = paid % rate;
        if (stall.since >= now) stall.* = .begin(now);
    }

    /// When patience ends: `limit_ms` (0: never) after the start, which progress has moved.
    pub fn deadline(stall: Stall, limit_ms: u32) u64 {
        return if (limit_ms == 0) Timer.never else stall.since + limit_ms;
    }

    /// The peer is not waited for, for a while.
    pub fn pause(stall: Stall, now: u64) Paused {
        return .{ .spent_ms = now -| stall.since };
    }

    /// The time that the peer has used up, while it is not waited for.
    pub const Paused = struct {
        spent_ms: u64 = 0,

        /// The peer is waited for again.
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
