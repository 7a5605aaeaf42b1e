//! Spreads connections evenly over workers that accept at the same sockets: a worker with more connections
//! than another worker leaves the sockets for a moment after each connection that it accepts.
//! Does not know: sockets, and how accepting is paused.
//!
//! The table is memory that the workers' processes share. Its first word is the number of places; each place
//! belongs to a worker, which writes its number of connections there (`Place`). A place is 0 while its worker
//! has not begun, and once the worker stops or has died (then the master writes the 0).
//!
//! A worker that was woken for a connection always accepts it: a kernel wakes one of the workers that wait
//! (EPOLLEXCLUSIVE), so a connection that the woken worker left would wake no other. And a worker comes back
//! after `away_ms` in any case: the other workers may be busy.
const std = @import("std");
const assert = std.debug.assert;

/// A word of the table behind the first one.
const Place = packed struct(u64) {
    present: bool = false,
    away: bool = false,
    connections: u62 = 0,
};

/// A worker's place among the others.
pub const Spread = struct {
    table: []const u64,
    own: *u64,
    /// The worker leaves accepting to others, whatever their numbers: its own is no measure meanwhile.
    yields: bool = false,
    /// The latest time at which the worker accepts again; null: the worker accepts.
    away_until: ?u64 = null,
    /// Connections that the worker has accepted since its last return, although it has more than others.
    taken: u32 = 0,
    /// The number of returns in a row at which connections still waited.
    waits: u8 = 0,

    /// The longest wait of a connection for which the other workers have no time.
    const away_ms = 2;
    const lead_max = 4;
    /// After this number of returns in a row with connections that wait, the worker accepts more of them. Ten
    /// times `away_ms` is about the time in which another process gets a processor.
    const waits_max = 10;
    const allowed_bits_max = 6;

    /// The place with this number, from 1 on. `table` must be aligned and outlive it.
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

    /// The worker begins or ends to leave accepting to others.
    pub fn setYields(spread: *Spread, yields: bool) void {
        spread.yields = yields;
        spread.publish(@intCast(spread.ownPlace().connections));
    }

    /// The worker accepts no more.
    pub fn leave(spread: *Spread) void {
        @atomicStore(u64, spread.own, 0, .seq_cst);
    }

    /// The worker has accepted a connection. False: it is to leave the sockets.
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

    /// Whether a worker that is away may accept again.
    pub fn mayReturn(spread: *const Spread, now: u64) bool {
        return now >= spread.away_until.? or !spread.hasMost();
    }

    /// The worker accepts again. `awaited`: connections wait to be accepted. After more than `waits_max` such
    /// returns in a row the workers with fewer connections have no time, and this worker accepts twice as
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

    /// Whether another worker has fewer connections, and is to accept the next one. A worker that is away at
    /// the moment counts only if it has a good deal fewer: otherwise all workers would be away most of the
    /// time in a rush of connections.
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
    try testing.expect(first.mayGoOn(0)); // alone
    second.publish(0);
    first.publish(1);
    try testing.expect(!first.mayGoOn(100));
    try testing.expect(!first.mayReturn(101));
    second.publish(1);
    try testing.expect(second.mayGoOn(101));
    try testing.expect(first.mayReturn(101));
    first.returned(true);
    try testing.expectEqual(0, first.waits);

    // While the first worker is away the second goes on, but not for long.
    first.publish(2);
    try testing.expect(!first.mayGoOn(200));
    second.publish(2 + Spread.lead_max);
    try testing.expect(second.mayGoOn(200));
    second.publish(3 + Spread.lead_max);
    try testing.expect(!second.mayGoOn(200));
    try testing.expect(first.mayReturn(200));
    first.returned(true);

    // A worker that leaves accepting to others is no measure.
    first.publish(50);
    try testing.expect(!first.mayGoOn(300));
    first.returned(false);
    second.setYields(true);
    second.publish(4);
    try testing.expect(first.mayGoOn(300));
    second.setYields(false);
    try testing.expect(!first.mayGoOn(400));
    first.returned(false);

    // The place of a worker that has left is no measure.
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
