//! An output of which the kernel takes no more for now: how much of its patience the peer has used up. A
//! kernel that holds megabytes says that there is room again when a good part of them is gone, so what a slow
//! peer takes meanwhile is only to be seen by looking. Does not know: system calls, and the consequence of a
//! deadline that has passed.
const std = @import("std");
const assert = std.debug.assert;
const Stall = @import("stall.zig").Stall;
const Timer = @import("timer.zig").Timer;

/// A peer that is waited for.
pub const Blockage = struct {
    stall: Stall,
    /// Bytes that the kernel held at the last look, and those that it took since.
    held: u64,
    looked_at: u64,

    /// Looks within the time of a peer that takes nothing: bytes that its kernel takes at once must not count
    /// as late.
    const looks = 32;

    /// The kernel holds `held` bytes, and takes no more.
    pub fn begin(held: u64, now: u64) Blockage {
        return .{ .stall = .begin(now), .held = held, .looked_at = now };
    }

    /// The kernel took further bytes.
    pub fn took(blockage: *Blockage, bytes: u64) void {
        blockage.held += bytes;
    }

    /// The kernel holds `held` bytes now: the peer has taken the rest, which moves its deadline. Returns the
    /// number of bytes that the peer has taken. `rate` as in `Stall.progress`.
    pub fn look(blockage: *Blockage, held: u64, rate: u32, now: u64) u64 {
        assert(now >= blockage.looked_at);
        const taken = blockage.held -| held;
        blockage.held = held;
        blockage.looked_at = now;
        blockage.stall.progress(taken, rate, now);
        return taken;
    }

    /// The time of the next look. `limit_ms` as in `Stall.deadline`.
    pub fn lookAt(blockage: *const Blockage, limit_ms: u32) u64 {
        if (limit_ms == 0) return Timer.never;
        return @min(blockage.stall.deadline(limit_ms), blockage.looked_at + @max(limit_ms / looks, 1));
    }
};

test "bytes that the peer takes pay when the worker looks, and bytes that the kernel takes do not" {
    var blockage: Blockage = .begin(1000, 50);
    try std.testing.expectEqual(75, blockage.lookAt(800));
    try std.testing.expectEqual(20, blockage.look(980, 1000, 150));
    try std.testing.expectEqual(870, blockage.stall.deadline(800));
    try std.testing.expectEqual(175, blockage.lookAt(800));
    blockage.took(500);
    try std.testing.expectEqual(0, blockage.look(1480, 1000, 250));
    try std.testing.expectEqual(870, blockage.stall.deadline(800));
    try std.testing.expectEqual(1480, blockage.look(0, 1000, 350));
    try std.testing.expectEqual(1150, blockage.stall.deadline(800));
    try std.testing.expectEqual(Timer.never, blockage.lookAt(0));
    blockage = .begin(100, 0);
    blockage.took(500);
    try std.testing.expectEqual(200, blockage.look(400, 1000, 300));
    // A kernel that holds more than it was given (TLS records, for instance) shows nothing
    // that the peer took.
    try std.testing.expectEqual(0, blockage.look(401, 1000, 300));
    try std.testing.expectEqual(1, blockage.look(400, 1000, 300));
    // However short the patience is, the next look comes after the present time.
    try std.testing.expectEqual(101, Blockage.begin(0, 100).lookAt(31));
    // The patience ends before the time of the next look.
    try std.testing.expectEqual(
        850,
        Blockage.lookAt(&.{ .stall = .begin(50), .held = 0, .looked_at = 840 }, 800),
    );
}
