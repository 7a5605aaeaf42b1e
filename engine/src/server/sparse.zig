//! Log lines about what peers and applications can cause by the thousand: one now and then, with the number of those that it stands for.
//! Refuses to know: what they say.
const std = @import("std");

/// One kind of line.
pub const Sparse = struct {
    /// What has happened since the last line.
    count: u32 = 0,
    told_at: ?u64 = null,

    /// It has happened again: how often since the last line if it is time for one, at most one in `pause_ms`.
    pub fn again(sparse: *Sparse, now_ms: u64, pause_ms: u64) ?u32 {
        sparse.count +|= 1;
        if (sparse.told_at) |told_at| if (now_ms -| told_at < pause_ms) return null;
        defer sparse.count = 0;
        sparse.told_at = now_ms;
        return sparse.count;
    }
};

test "the first one at once, then one per pause with all that it stands for" {
    var sparse: Sparse = .{};
    try std.testing.expectEqual(1, sparse.again(0, 1000));
    for (0..9) |_| try std.testing.expectEqual(null, sparse.again(999, 1000));
    try std.testing.expectEqual(10, sparse.again(1000, 1000));
    try std.testing.expectEqual(1, sparse.again(2000, 1000));
}
