//! The counts of things that each of many connections has got, where all are to get the same ones.
//! Does not know: the things.
const std = @import("std");

/// Time after a run for connections that have got less than others.
const grace_ns = 20 * std.time.ns_per_s;
const look_ns = 20 * std.time.ns_per_ms;

/// The counts of some connections: of all, and of the single ones with the least and the most.
pub const Shares = struct {
    total: u64 = 0,
    fewest: u64 = std.math.maxInt(u64),
    most: u64 = 0,

    /// `name`: of the count in a connection's state.
    pub fn of(peers: anytype, comptime name: []const u8) Shares {
        var shares: Shares = .{};
        for (peers) |*peer| {
            const count = @field(peer.state, name);
            shares.total += count;
            shares.fewest = @min(shares.fewest, count);
            shares.most = @max(shares.most, count);
        }
        return shares;
    }

    /// When a run is looked at again that was to end at `until`; null: it ends.
    /// `alike`: the option of that name.
    pub fn goesOn(peers: anytype, comptime name: []const u8, alike: usize, now: u64, until: u64) ?u64 {
        if (now < until) return until;
        if (alike == 0) return null;
        const shares: Shares = .of(peers, name);
        const all_have_them = shares.fewest == shares.most and shares.fewest >= alike;
        return if (all_have_them or now >= until + grace_ns) null else now + look_ns;
    }
};

test "a run goes on for connections that have got less, but not for ever" {
    const Peer = struct { state: struct { count: u64 } };
    var peers = [_]Peer{ .{ .state = .{ .count = 2 } }, .{ .state = .{ .count = 1 } } };
    try std.testing.expectEqual(Shares{ .total = 3, .fewest = 1, .most = 2 }, Shares.of(&peers, "count"));
    try std.testing.expectEqual(5, Shares.goesOn(&peers, "count", 1, 4, 5));
    try std.testing.expectEqual(5 + look_ns, Shares.goesOn(&peers, "count", 1, 5, 5));
    try std.testing.expectEqual(null, Shares.goesOn(&peers, "count", 0, 5, 5));
    try std.testing.expectEqual(null, Shares.goesOn(&peers, "count", 1, 5 + grace_ns, 5));
    peers[1].state.count = 2;
    try std.testing.expectEqual(null, Shares.goesOn(&peers, "count", 2, 5, 5));
    try std.testing.expectEqual(5 + look_ns, Shares.goesOn(&peers, "count", 3, 5, 5));
}
