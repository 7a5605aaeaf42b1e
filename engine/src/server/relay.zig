//! One side of a relay between a client and an application, which send each other whatever they like: how far
//! it is. Does not know: sockets, and how bytes move (worker/relay.zig).
const std = @import("std");
const assert = std.debug.assert;
const Ticket = @import("slab.zig").Ticket;

/// A transport of a relay; the relay has two.
pub const Relaying = struct {
    /// The transport that sends what this one receives.
    other: Ticket,
    flow: Flow,

    /// The state of a relay in one word, because each idle connection pays for the largest phase.
    const Flow = packed struct(u64) {
        /// When a byte moved last, in either direction.
        active_at: u61,
        /// The transport is not read, because the other one has to send its queue first.
        full: bool = false,
        /// The other one's peer has ended its sending side: ours ends when all is sent.
        ending: enum(u2) { no, due, done } = .no,
    };

    /// A relay begins.
    pub fn begin(other: Ticket, now: u64) Relaying {
        assert(other != .none);
        return .{ .other = other, .flow = .{ .active_at = @intCast(now) } };
    }

    /// A byte moved.
    pub fn noteActivity(relaying: *Relaying, now: u64) void {
        assert(now >= relaying.flow.active_at);
        relaying.flow.active_at = @intCast(now);
    }

    /// When a byte moved last, in either direction.
    pub fn activeAt(relaying: *const Relaying) u64 {
        return relaying.flow.active_at;
    }

    /// The other transport has, or no longer has, more to send than it should.
    pub fn setFull(relaying: *Relaying, full: bool) void {
        relaying.flow.full = full;
    }

    /// Whether this transport is not read.
    pub fn isFull(relaying: *const Relaying) bool {
        return relaying.flow.full;
    }

    /// The other one's peer has ended its sending side. False: that is known.
    pub fn beginEnding(relaying: *Relaying) bool {
        if (relaying.flow.ending != .no) return false;
        relaying.flow.ending = .due;
        return true;
    }

    /// Whether this transport's sending side is to end now, once.
    pub fn endsNow(relaying: *Relaying, is_flushed: bool) bool {
        if (relaying.flow.ending != .due or !is_flushed) return false;
        relaying.flow.ending = .done;
        return true;
    }
};

test "a sending side ends once, when all is sent" {
    var relaying: Relaying = .begin(@fromBackingInt(3), 10);
    relaying.noteActivity(12);
    relaying.setFull(true);
    try std.testing.expect(!relaying.endsNow(true));
    try std.testing.expect(relaying.beginEnding());
    try std.testing.expect(!relaying.beginEnding());
    try std.testing.expect(!relaying.endsNow(false));
    try std.testing.expect(relaying.endsNow(true));
    try std.testing.expect(!relaying.endsNow(true));
    try std.testing.expect(relaying.isFull());
    try std.testing.expectEqual(12, relaying.activeAt());
}
