//! Spreads connections evenly over workers that accept at the same sockets: a worker with more connections
//! than another worker leaves the sockets for a moment after each connection that it accepts.
//! Does not know: sockets, and how accepting is paused.
//!
//! Workers' processes share the table's memory. Its first word is the number of places. Each place belongs to
//! a worker, which writes its number of connections there (`Place`). A place is 0 until its worker begins,
//! and after the worker has stopped (or died: the master writes the 0).
//!
//! A worker that was woken for a connection always accepts it: a kernel wakes only one of the waiting workers
//! (EPOLLEXCLUSIVE), so a connection that this worker left would wake no other. A worker that has left the
//! sockets comes back after `away_ms` in any case, because the other workers may be busy.
const std = @import("std");
const assert = std.debug.assert;

/// The word of one worker in the table.
const Place = packed struct(u64) {
    present: bool = false,
    away: bool = false,
    connections: u62 = 0,
};

/// A worker's place in the table.
pub const Spread = struct {
    table: []const u64,
    own: *u64,
    /// The worker leaves accepting to others, so its number of connections is not compared.
    yields: bool = false,
    /// The latest time at which the worker accepts again; null: the worker accepts.
    away_until: ?u64 = null,
    /// Connections that the worker has accepted since its last return, although it has more connections than
    /// others.
    taken: u32 = 0,
    /// Returns in a row at which connections were waiting.
    waits: u8 = 0,

    /// Milliseconds for which a worker leaves the sockets, the longest wait of a connection while the other
    /// workers are busy.
    const away_ms = 2;
    const lead_max = 4;
    /// Returns in a row with waiting connections, after which the worker accepts more of them. Ten times
    /// `away_ms` is about the time after which another process gets a processor.
    const waits_max = 10;
    const allowed_bits_max = 6;

    /// The worker's place in `table`, by a number from 1 on. The table must be aligned and outlive the place.
    pub fn init(table: []u64, number: usize) Spread {
        assert(number > 0 and number < table.len);
        return .{ .table = table, .own = &table[number] };
    }

    /// Writes the worker's number of connections into its place.
    pub fn publish(spread: *Spread, connections: u32) void {
        const place: Place = .{
            .present = !spread.yields,
            .away = spread.away_until != null,
            .connections = connections,
        };
        @atomicStore(u64, spread.own, @bitCast(place), .seq_cst);
    }

    /// Sets whether the worker leaves accepting to others.
    pub fn setYields(spread: *Spread, yields: bool) void {
        spread.yields = yields;
        spread.publish(@intCast(spread.ownPlace().connections));
    }

    /// Clears the worker's place, because it accepts no more.
    pub fn leave(spread: *Spread) void {
        @atomicStore(u64, spread.own, 0, .seq_cst);
    }

    /// Counts an accepted connection. False: the worker must leave the sockets.
    pub fn mayGoOn(spread: *Spread, now: u64) bool {
        assert(spread.away_until == null);
        if (!spread.hasMost()) {
            spread.waits = 0;
            return true;
        }
        spread.taken += 1;
        if (spread.taken < spread.allowed()) return true;
        spread.away_until = now + away_ms;
        spread.publish(@intCast(spread.ownPlace().connections));
        return false;
    }

    /// Whether a worker that has left the sockets may accept again.
    pub fn mayReturn(spread: *const Spread, now: u64) bool {
        return now >= spread.away_until.? or !spread.hasMost();
    }

    /// Notes that the worker accepts again. `awaited`: connections are waiting. After more than `waits_max`
    /// such returns in a row the workers with fewer connections are busy, so this worker accepts twice as
    /// many connections each time.
    pub fn returned(spread: *Spread, awaited: bool) void {
        spread.away_until = null;
        spread.publish(@intCast(spread.ownPlace().connections));
        spread.taken = 0;
        spread.waits = if (awaited and spread.hasMost()) spread.waits +| 1 else 0;
    }

    /// The number of connections that a worker with more than others accepts before it leaves.
    fn allowed(spread: *const Spread) u32 {
        return @as(u32, 1) << @intCast(@min(spread.waits -| waits_max, allowed_bits_max));
    }

    /// Whether another worker has fewer connections, and should accept the next one. A worker that has left
    /// the sockets counts only if it has far fewer: otherwise all workers would be away most of the time in a
    /// rush of connections.
    fn hasMost(spread: *const Spread) bool {
        const own = spread.ownPlace().connections;
        const count = @min(@atomicLoad(u64, &spread.table[0], .monotonic), spread.table.len - 1);
        for (spread.table[1..][0..@intCast(count)]) |*word| {
            const other: Place = @bitCast(@atomicLoad(u64, word, .seq_cst));
            if (!other.present) continue;
            const ahead = if (other.away) lead_max + other.connections / 16 else 0;
            if (own > other.connections + ahead) return true;
        }
        return false;
    }

    fn ownPlace(spread: *const Spread) Place {
        return @bitCast(@atomicLoad(u64, spread.own, .monotonic));
    }
};

const testing = std.testing;

test "a worker with more connections than another one leaves after each connection" {
    var table: [4]u64 = .{ 3, 0, 0, 0 };
    var first: Spread = .init(&table, 1);
    var second: Spread = .init(&table, 2);
    first.publish(0);
    try testing.expect(first.mayGoOn(0)); // there is no other worker
    second.publish(0);
    first.publish(1);
    try testing.expect(!first.mayGoOn(100));
    try testing.expect(!first.mayReturn(101));
    second.publish(1);
    try testing.expect(second.mayGoOn(101));
    try testing.expect(first.mayReturn(101));
    first.returned(true);
    try testing.expectEqual(0, first.waits);

    // While the first worker is away the second one accepts, but not many connections.
    first.publish(2);
    try testing.expect(!first.mayGoOn(200));
    second.publish(2 + Spread.lead_max);
    try testing.expect(second.mayGoOn(200));
    second.publish(3 + Spread.lead_max);
    try testing.expect(!second.mayGoOn(200));
    try testing.expect(first.mayReturn(200));
    first.returned(true);

    // A worker that leaves accepting to others is not compared.
    first.publish(50);
    try testing.expect(!first.mayGoOn(300));
    first.returned(false);
    second.setYields(true);
    second.publish(4);
    try testing.expect(first.mayGoOn(300));
    second.setYields(false);
    try testing.expect(!first.mayGoOn(400));
    first.returned(false);

    // The place of a worker that has left is not compared.
    second.leave();
    first.publish(50);
    try testing.expect(first.mayGoOn(200));
}

test "connections do not wait for workers that have fewer and are busy" {
    var table: [3]u64 = .{ 2, 0, @bitCast(Place{ .present = true }) };
    var spread: Spread = .init(&table, 1);
    var accepted: u32 = 0;
    var now: u64 = 0;
    for (0..Spread.waits_max + 9) |_| {
        accepted += 1;
        spread.publish(accepted);
        while (spread.mayGoOn(now)) {
            accepted += 1;
            spread.publish(accepted);
        }
        now += Spread.away_ms;
        try testing.expect(spread.mayReturn(now));
        spread.returned(true);
    }
    try testing.expectEqual(Spread.waits_max + 1 + 2 + 4 + 8 + 16 + 32 + 64 + 64 + 64, accepted);
    spread.returned(false);
    try testing.expectEqual(1, spread.allowed());
}
