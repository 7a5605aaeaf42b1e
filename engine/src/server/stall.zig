//! A deadline by rate: waiting for a peer may last a fixed time, and every byte that it moves earns it a little more. A peer that
//! trickles earns next to nothing, a slow honest one is never cut.
const std = @import("std");
const Timer = @import("timer.zig").Timer;

/// A deadline by rate: every byte that the peer moves earns it a little more time.
pub const Stall = struct {
    since: u64,
    bytes: u64 = 0,

    /// The waiting starts.
    pub fn begin(now: u64) Stall {
        return .{ .since = now };
    }

    /// The peer moved so many bytes.
    pub fn progress(stall: *Stall, bytes: u64) void {
        stall.bytes += bytes;
    }

    /// When patience ends: `limit_ms` (0: never) after the start plus a second for each `rate` bytes.
    pub fn deadline(stall: Stall, limit_ms: u32, rate: u32) u64 {
        if (limit_ms == 0) return Timer.never;
        return stall.since + limit_ms + stall.bytes * 1000 / rate;
    }
};

test "bytes earn time in proportion, no bytes earn none" {
    var stall: Stall = .begin(1000);
    try std.testing.expectEqual(1500, stall.deadline(500, 100));
    stall.progress(50);
    try std.testing.expectEqual(2000, stall.deadline(500, 100));
    try std.testing.expectEqual(Timer.never, stall.deadline(0, 100));
}
