//! One side of a relay between a client and an application, which exchange bytes of any protocol. Does not
//! know: sockets, and how bytes move (worker/relay.zig).
const std = @import("std");
const assert = std.debug.assert;
const Ticket = @import("slab.zig").Ticket;

/// The relay's state in one of its two transports.
pub const Relaying = struct {
    /// The transport that sends what this one receives.
    other: Ticket,
    flow: Flow,

    /// The state of one side in one word, because each idle connection pays for the largest phase.
    const Flow = packed struct(u64) {
        /// The time of the last byte in either direction, in milliseconds.
        active_at: u61,
        /// This transport is not read, because the other one has too much queued output.
        full: bool = false,
        /// The peer of the other transport has ended its sending side. This transport's sending side ends
        /// when its queue is empty.
        ending: enum(u2) { no, due, done } = .no,
    };

    /// Begins a relay with the transport `other`.
    pub fn begin(other: Ticket, now: u64) Relaying {
        assert(other != .none);
        return .{ .other = other, .flow = .{ .active_at = @intCast(now) } };
    }

    /// Notes that a byte moved.
    pub fn noteActivity(relaying: *Relaying, now: u64) void {
        assert(now >= relaying.flow.active_at);
        relaying.flow.active_at = @intCast(now);
    }

    /// The time of the last byte in either direction, in milliseconds.
    pub fn activeAt(relaying: *const Relaying) u64 {
        return relaying.flow.active_at;
    }

    /// Sets whether the other transport has too much queued output.
    pub fn setFull(relaying: *Relaying, full: bool) void {
        relaying.flow.full = full;
    }

    /// Whether this transport is not read.
    pub fn isFull(relaying: *const Relaying) bool {
        return relaying.flow.full;
    }

    /// Notes that the peer of the other transport has ended its sending side. False: that was known.
    pub fn beginEnding(relaying: *Relaying) bool {
        if (relaying.flow.ending != .no) return false;
        relaying.flow.ending = .due;
        return true;
    }

    /// Whether this transport must end its sending side now. True is returned only once.
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
