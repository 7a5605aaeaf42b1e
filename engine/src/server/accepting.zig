//! Whether a worker accepts connections, and why it does not: its host has paused it, other workers at the
//! same sockets are to accept, or the process has no descriptors left. Does not know: sockets, listeners, and
//! what becomes of a connection (worker/accept.zig).
const std = @import("std");
const assert = std.debug.assert;
const Spread = @import("spread.zig").Spread;

/// The reasons of one worker. They are independent: a worker accepts when none is left.
pub const Accepting = struct {
    /// The time at which accepting goes on, in milliseconds, after descriptors ran out; null: they did not
    /// run out.
    short_until: ?u64 = null,
    /// Accepting is left to other workers, because this worker's application is at one event for long.
    yields: bool = false,
    /// The host has paused accepting: connections wait in the kernel's queues.
    paused: bool = false,
    /// The worker's place in the table of workers at the same sockets; null: the worker shares no sockets.
    spread: ?Spread = null,

    /// Whether the host or a busy application keeps this worker from accepting, whatever its number of
    /// connections.
    pub fn isReluctant(accepting: *const Accepting) bool {
        return accepting.yields or accepting.paused;
    }

    /// Whether the worker accepts.
    pub fn isOpen(accepting: *const Accepting) bool {
        if (accepting.isReluctant() or accepting.short_until != null) return false;
        return if (accepting.spread) |*spread| spread.away_until == null else true;
    }

    /// Leaves accepting to other workers, or ends that. False: nothing has changed.
    pub fn setYields(accepting: *Accepting, yields: bool) bool {
        if (accepting.yields == yields) return false;
        accepting.yields = yields;
        accepting.tellOthers();
        return true;
    }

    /// The host pauses accepting, or ends the pause. False: nothing has changed.
    pub fn setPaused(accepting: *Accepting, paused: bool) bool {
        if (accepting.paused == paused) return false;
        accepting.paused = paused;
        accepting.tellOthers();
        return true;
    }

    fn tellOthers(accepting: *Accepting) void {
        if (accepting.spread) |*spread| spread.setYields(accepting.isReluctant());
        accepting.invariants();
    }

    /// Pauses accepting until `until`, because descriptors or memory ran out. False: it was paused for that
    /// already.
    pub fn runShort(accepting: *Accepting, until: u64) bool {
        const first = accepting.short_until == null;
        accepting.short_until = until;
        accepting.invariants();
        return first;
    }

    /// Ends the pause that `runShort` began if its time is over. False: it goes on, or there is none.
    pub fn endsShortage(accepting: *Accepting, now: u64) bool {
        if (now < accepting.short_until orelse return false) return false;
        accepting.short_until = null;
        return true;
    }

    // ---- Workers at the same sockets

    /// From now on, connections are spread evenly over the workers that have a place in `table`. This
    /// worker's place is `number`.
    pub fn share(accepting: *Accepting, table: []u64, number: usize, connections: u32) void {
        assert(accepting.spread == null);
        accepting.spread = .init(table, number);
        accepting.spread.?.yields = accepting.isReluctant();
        accepting.spread.?.publish(connections);
        accepting.invariants();
    }

    /// Takes the worker out of the table, because it accepts no more at shared sockets.
    pub fn leave(accepting: *Accepting) void {
        if (accepting.spread) |*spread| spread.leave();
        accepting.spread = null;
    }

    /// Writes the worker's number of connections to the table.
    pub fn publish(accepting: *Accepting, connections: u32) void {
        if (accepting.spread) |*spread| spread.publish(connections);
    }

    /// A connection was accepted, or turned away. False: another worker is to take the next connection, so
    /// this worker leaves the sockets.
    pub fn mayGoOn(accepting: *Accepting, connections: u32, now: u64) bool {
        const spread = if (accepting.spread) |*spread| spread else return true;
        spread.publish(connections);
        return spread.away_until != null or spread.mayGoOn(now);
    }

    /// Whether a worker that has left the sockets to other workers may accept again.
    pub fn mayReturn(accepting: *const Accepting, now: u64) bool {
        const spread = if (accepting.spread) |*spread| spread else return false;
        return spread.away_until != null and spread.mayReturn(now);
    }

    /// The worker accepts again. `awaited`: connections wait in the kernel's queues.
    pub fn returned(accepting: *Accepting, awaited: bool) void {
        accepting.spread.?.returned(awaited);
        accepting.invariants();
    }

    /// The time at which a reason to pause may end, in milliseconds; null: none ends with time.
    pub fn lookAt(accepting: *const Accepting) ?u64 {
        const short = accepting.short_until;
        const away = if (accepting.spread) |*spread| spread.away_until else null;
        return @min(short orelse return away, away orelse return short);
    }

    pub fn invariants(accepting: *const Accepting) void {
        // Workers compare their numbers of connections only with those of workers that accept.
        if (accepting.spread) |*spread| assert(spread.yields == accepting.isReluctant());
        if (accepting.isOpen()) assert(accepting.lookAt() == null);
    }
};

test "a worker accepts when no reason is left that keeps it from it" {
    var accepting: Accepting = .{};
    try std.testing.expect(accepting.isOpen());
    try std.testing.expect(accepting.setPaused(true));
    try std.testing.expect(!accepting.setPaused(true));
    try std.testing.expect(accepting.setYields(true));
    try std.testing.expect(!accepting.setYields(true));
    try std.testing.expect(accepting.setPaused(false));
    // Without a table of workers there is no other worker to wait for.
    try std.testing.expect(accepting.mayGoOn(100, 0) and !accepting.mayReturn(0));
    try std.testing.expect(accepting.isReluctant());
    try std.testing.expect(accepting.runShort(30));
    try std.testing.expect(!accepting.runShort(40));
    try std.testing.expect(accepting.setYields(false));
    try std.testing.expect(!accepting.isReluctant() and !accepting.isOpen());
    try std.testing.expectEqual(40, accepting.lookAt());
    try std.testing.expect(!accepting.endsShortage(39));
    try std.testing.expect(accepting.endsShortage(40));
    try std.testing.expect(!accepting.endsShortage(40));
    try std.testing.expect(accepting.isOpen());
}

test "a worker that is reluctant says so to the others at its sockets" {
    var table = [_]u64{ 2, 0, 0 };
    var own: Accepting = .{};
    var other: Accepting = .{};
    try std.testing.expect(own.setPaused(true));
    own.share(&table, 1, 0);
    other.share(&table, 2, 5);
    // A paused worker's number of connections counts for nothing, so the other worker goes on.
    try std.testing.expect(other.mayGoOn(6, 10));
    try std.testing.expect(own.setPaused(false));
    try std.testing.expect(!other.mayGoOn(7, 10));
    try std.testing.expect(!other.isOpen() and other.lookAt().? > 10);
    try std.testing.expect(other.mayReturn(other.lookAt().?));
    // A worker looks again at the earlier of two times.
    const away_until = other.lookAt().?;
    _ = other.runShort(away_until - 1);
    try std.testing.expectEqual(away_until - 1, other.lookAt());
    try std.testing.expect(other.endsShortage(away_until - 1));
    try std.testing.expect(other.mayGoOn(8, away_until - 1)); // the other worker has left already
    other.returned(false);
    try std.testing.expect(other.isOpen() and !other.mayReturn(away_until));
    const shown = table[1];
    try std.testing.expect(own.setYields(true));
    try std.testing.expect(table[1] != shown);
    own.publish(3);
    try std.testing.expect(own.setYields(false));
    try std.testing.expect(table[1] != shown);
    own.leave();
    try std.testing.expectEqual(0, table[1]);
    own.publish(5);
    try std.testing.expectEqual(0, table[1]);
}
