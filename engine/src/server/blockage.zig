//! The state of an output whose kernel buffer is full, with the deadline of its peer. A kernel that holds
//! megabytes reports room only when a good part of them is gone, so the progress of a slow peer is seen only
//! by asking how much the kernel still holds. Does not know: system calls, and what happens after the
//! deadline.
const std = @import("std");
const assert = std.debug.assert;
const Stall = @import("stall.zig").Stall;
const Timer = @import("timer.zig").Timer;

/// The progress of a peer that takes output slowly.
pub const Blockage = struct {
    stall: Stall,
    // Two numbers share a word, because each idle connection has a place for a blockage.
    /// Bytes that the kernel held at the last look, and bytes that it took since then; at most 4 GiB.
    held: u32,
    /// The time from `stall.since` to the last look, in milliseconds.
    looked_after: u32,

    /// Looks within the time that a peer may take nothing. With few looks, bytes that the peer took early
    /// would count as late.
    const looks = 32;

    /// Begins the wait for a peer whose kernel buffer holds `held` bytes and takes no more.
    pub fn begin(held: u64, now: u64) Blockage {
        return .{ .stall = .begin(now), .held = std.math.lossyCast(u32, held), .looked_after = 0 };
    }

    /// Adds bytes that the kernel took.
    pub fn took(blockage: *Blockage, bytes: u64) void {
        blockage.held +|= std.math.lossyCast(u32, bytes);
    }

    /// Notes that the kernel holds `held` bytes now. The peer has taken the difference, which moves its
    /// deadline. Returns the number of bytes that the peer took. `rate`: see `Stall.progress`.
    pub fn look(blockage: *Blockage, held: u64, rate: u32, now: u64) u64 {
        assert(now >= blockage.lookedAt());
        const taken = blockage.held -| held;
        blockage.held = std.math.lossyCast(u32, held);
        blockage.stall.progress(taken, rate, now);
        blockage.looked_after = std.math.lossyCast(u32, now - blockage.stall.since);
        return taken;
    }

    fn lookedAt(blockage: *const Blockage) u64 {
        return blockage.stall.since + blockage.looked_after;
    }

    /// The time of the next look, in milliseconds. `limit_ms`: see `Stall.deadline`.
    pub fn lookAt(blockage: *const Blockage, limit_ms: u32) u64 {
        if (limit_ms == 0) return Timer.never;
        return @min(blockage.stall.deadline(limit_ms), blockage.lookedAt() + @max(limit_ms / looks, 1));
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
    // TLS records make the kernel hold more bytes than it was given, which shows no progress of the peer.
    try std.testing.expectEqual(0, blockage.look(401, 1000, 300));
    try std.testing.expectEqual(1, blockage.look(400, 1000, 300));
    // More bytes than a number has room for count as the most.
    blockage = .begin(1 << 33, 0);
    blockage.took(1 << 33);
    try std.testing.expectEqual(std.math.maxInt(u32) - 5, blockage.look(5, 1000, 10));
    // However short the limit is, the next look comes after the present time.
    try std.testing.expectEqual(101, Blockage.begin(0, 100).lookAt(31));
    // The deadline comes before the next look.
    try std.testing.expectEqual(
        850,
        Blockage.lookAt(&.{ .stall = .begin(50), .held = 0, .looked_after = 790 }, 800),
    );
}
