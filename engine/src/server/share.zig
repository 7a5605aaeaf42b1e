//! The bytes that each connection may send in one round of its worker's loop. Without a limit, a kernel with
//! megabytes of room for each connection would be filled for one after the other, and the last connection
//! would wait for all. Does not know: the bytes, and when a connection goes on.
const std = @import("std");

/// The bytes that all connections together have sent in the present round.
pub const Share = struct {
    round: u32 = 0,
    bytes: usize = 0,

    pub const free_bytes = @import("config.zig").worker_limits.round_free_bytes;
    pub const turn_bytes = @import("config.zig").worker_limits.round_turn_bytes;

    /// The bytes that one connection has sent in round `round`.
    pub const Turn = struct { round: u32 = 0, bytes: u32 = 0 };

    pub fn begin(share: *Share) void {
        share.* = .{ .round = share.round +% 1 };
    }

    /// Bytes that a connection may send before other connections have their turn.
    pub fn left(share: *const Share, turn: *const Turn) usize {
        if (share.bytes < free_bytes) return std.math.maxInt(usize);
        return turn_bytes -| if (turn.round == share.round) turn.bytes else 0;
    }

    /// Counts bytes that a connection has sent.
    pub fn note(share: *Share, turn: *Turn, bytes: usize) void {
        share.bytes += bytes;
        const before = if (turn.round == share.round) turn.bytes else 0;
        turn.* = .{ .round = share.round, .bytes = before +| std.math.lossyCast(u32, bytes) };
    }
};

test "the share of a connection is bounded when many send, and not when few send" {
    const testing = std.testing;
    var share: Share = .{};
    var turns: [2]Share.Turn = @splat(.{});
    share.begin();
    try testing.expect(share.left(&turns[0]) > Share.free_bytes);
    share.note(&turns[0], Share.free_bytes);
    try testing.expectEqual(0, share.left(&turns[0]));
    try testing.expectEqual(Share.turn_bytes, share.left(&turns[1]));
    share.note(&turns[1], 1000);
    share.note(&turns[1], 1000);
    try testing.expectEqual(Share.turn_bytes - 2000, share.left(&turns[1]));
    share.begin();
    try testing.expect(share.left(&turns[0]) > Share.free_bytes);
    share.note(&turns[0], Share.free_bytes);
    try testing.expectEqual(Share.turn_bytes, share.left(&turns[1]));
}
