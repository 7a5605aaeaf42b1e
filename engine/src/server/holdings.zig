//! The memory that is held for peers, and the order in which it is taken back when memory is short
//! (worker/memory.zig). Does not know: how memory is taken back.
const std = @import("std");
const assert = std.debug.assert;
const Lane = @import("lane.zig").Lane;
const Lanes = @import("lanes.zig").Lanes;
const Multiplex = @import("multiplex.zig").Multiplex;
const Shares = @import("shares.zig").Shares;
const Ticket = @import("slab.zig").Ticket;

/// Estimates, in bytes, of the memory that a TLS session and an application's request hold beside buffers. It
/// cannot be counted.
const tunnel_bytes = 32 * 1024;
const exchange_bytes = 16 * 1024;

/// A connection whose memory can be taken back.
const Candidate = struct {
    ticket: Ticket,
    /// The connection's number, which grows with each new connection.
    number: u32,
    bytes: u64,
    address: []const u8 = "",
    /// The number of candidates from the same address.
    of_address: u8 = 0,

    /// The order of magnitude of `bytes`: connections with the same one count as equally large.
    fn size(candidate: *const Candidate) u6 {
        return std.math.log2_int(u64, candidate.bytes);
    }

    fn goesBefore(one: Candidate, other: Candidate) bool {
        if (one.size() != other.size()) return one.size() > other.size();
        if (one.of_address != other.of_address) return one.of_address > other.of_address;
        return one.number > other.number;
    }
};

const candidates_max = @import("config.zig").worker_limits.holdings_candidates_max;

/// The candidates that come first, in order. The array is part of the struct, because memory is short when it
/// is used.
pub const Ranking = struct {
    items: [candidates_max]Candidate = undefined,
    len: usize = 0,

    fn add(ranking: *Ranking, new: Candidate) void {
        assert(new.bytes > 0);
        if (ranking.len == ranking.items.len) {
            if (!new.goesBefore(ranking.items[ranking.len - 1])) return;
            ranking.len -= 1;
        }
        ranking.insert(new);
    }

    fn insert(ranking: *Ranking, new: Candidate) void {
        assert(ranking.len < ranking.items.len);
        var at = ranking.len;
        while (at > 0 and new.goesBefore(ranking.items[at - 1])) : (at -= 1) {
            ranking.items[at] = ranking.items[at - 1];
        }
        ranking.items[at] = new;
        ranking.len += 1;
    }

    /// Breaks ties by addresses, once all candidates are known: candidates whose address has more of them go
    /// first. Unix sockets have no address.
    fn breakTies(ranking: *Ranking) void {
        const all = ranking.items[0..ranking.len];
        for (all) |*one| {
            if (one.address.len == 0) continue;
            for (all) |*other| one.of_address += @intFromBool(std.mem.eql(u8, one.address, other.address));
        }
        ranking.len = 0;
        for (0..all.len) |at| {
            // `insert` writes to this place, so it needs a copy.
            const one = all[at];
            ranking.insert(one);
        }
    }

    /// Ranks connections by the memory that can be taken from them; returns the bytes that all connections
    /// hold. `lends`: strings of applications wait to be sent, perhaps to several peers.
    pub fn fill(ranking: *Ranking, shares: *Shares, lanes: Lanes, lends: bool) u64 {
        assert(ranking.len == 0);
        var it = lanes;
        if (lends) while (it.next()) |lane| shares.note(&lane.out().queue);
        var held: u64 = 0;
        it = lanes;
        while (it.next()) |lane| {
            held += ownBytes(lane, shares);
            if (lane.current() != null) held += exchange_bytes;
            if (lane.isStream()) continue;
            const transport = lane.transport;
            if (transport.tunnel != null) held += tunnel_bytes;
            var bytes = takeableBytes(lane, shares);
            if (transport.multiplex()) |multiplex| {
                held += multiplex.memoryBytes();
                if (transport.trusted) bytes = 0;
                var stream = multiplex.first;
                while (stream) |one| : (stream = one.next) {
                    bytes += takeableBytes(&one.lane, shares);
                }
            }
            if (bytes > 0) ranking.add(.{
                .ticket = lane.ticket(),
                .number = transport.number,
                .bytes = bytes + kernelBytes(lane),
                .address = transport.peer_text.slice(),
            });
        }
        ranking.breakTies();
        return held;
    }
};

/// Bytes that the lane of a connection or stream holds.
fn ownBytes(lane: *const Lane, shares: *const Shares) u64 {
    return unfinishedBytes(lane) + unsentBytes(lane, shares);
}

/// The part of a lane's bytes that the server holds only because of its peer.
pub fn takeableBytes(lane: *const Lane, shares: *const Shares) u64 {
    const unread = if (waitsForPeer(lane)) unsentBytes(lane, shares) else 0;
    return unfinishedBytes(lane) + unread;
}

/// Bytes of a connection in the kernel at the last look, which the kernel frees when the connection ends.
fn kernelBytes(lane: *const Lane) u64 {
    return switch (lane.out().state) {
        .open => 0,
        .blocked => |blockage| blockage.held,
    };
}

/// Unsent output in bytes. Lent bytes are divided among all connections that send them.
fn unsentBytes(lane: *const Lane, shares: *const Shares) u64 {
    if (lane.isClosed()) return 0;
    const unsent: i64 = @intCast(lane.queuedBytes());
    return @intCast(unsent + shares.surcharge(&lane.out().queue));
}

/// Whether output waits because the peer does not take it.
pub fn waitsForPeer(lane: *const Lane) bool {
    switch (lane.session()) {
        .single => return lane.out().state == .blocked,
        .stream => |*view| {
            if (lane.out().queue.bytes == 0) return false;
            if (lane.transport.out.state == .blocked) return true;
            return view.session.lacks(view.stream) != .nothing;
        },
    }
}

/// The time since which a stream has waited for its peer.
fn waitsSince(lane: *const Lane) u64 {
    if (lane.out().state == .blocked) return lane.out().state.blocked.stall.since;
    const exchange = lane.current() orelse return 0;
    return exchange.active_at;
}

/// Bytes of requests and messages that the peer has not finished, or that no host has taken.
fn unfinishedBytes(lane: *const Lane) u64 {
    const input = if (lane.input.buffer) |buffer| buffer.len else 0;
    switch (lane.wire()) {
        .proxy_header, .handshake, .multiplexed => return input,
        .serving => {},
        .relaying, .closing, .lingering, .closed => return 0,
    }
    const exchange = switch (lane.phase) {
        .idle, .head => return input,
        .exchange => |exchange| exchange,
        .draining, .closing => return 0,
    };
    if (exchange.openWebSocket()) |websocket| {
        if (!websocket.isOpen()) return 0;
        const pieces = if (websocket.incoming.pieces.buffer) |buffer| buffer.len else 0;
        return input + pieces + exchange.given_bytes;
    }
    if (exchange.input == .complete) return input;
    // The file system of a temporary file may keep the file in memory.
    const resident = if (exchange.intake) |intake| intake.resident_bytes else 0;
    return input + exchange.given_bytes + resident;
}

/// The lane of the stream that has waited longest for its peer, among streams with memory that can be taken;
/// null: there is none.
pub fn longestWaiting(multiplex: *const Multiplex, shares: *const Shares) ?*Lane {
    var first: ?*Lane = null;
    var next = multiplex.first;
    while (next) |stream| : (next = stream.next) {
        const lane = &stream.lane;
        if (takeableBytes(lane, shares) == 0) continue;
        if (first) |longest| if (waitsSince(lane) >= waitsSince(longest)) continue;
        first = lane;
    }
    return first;
}

test "the largest go first, and the newest of those that are about as large" {
    const testing = std.testing;
    var ranking: Ranking = .{};
    var number: u32 = 0;
    for ([_]u64{ 500, 70_000, 512, 1, 100_000, 1023, 1024 }) |bytes| {
        number += 1;
        ranking.add(.{ .ticket = .none, .number = number, .bytes = bytes });
    }
    const order = [_]u32{ 5, 2, 7, 6, 3, 1, 4 };
    for (
        order,
        ranking.items[0..ranking.len],
    ) |expected, item| try testing.expectEqual(expected, item.number);
    for (0..1000) |_| {
        number += 1;
        ranking.add(.{ .ticket = .none, .number = number, .bytes = 2048 + number });
    }
    try testing.expectEqual(64, ranking.len);
    for (ranking.items[2..], 0..) |item, at| try testing.expectEqual(number - at, item.number);
}

test "of connections that are about as large, those whose address has more of them go first" {
    const testing = std.testing;
    var ranking: Ranking = .{};
    const addresses = [_][]const u8{
        "192.0.2.1", "192.0.2.2", "192.0.2.1", "", "", "", "192.0.2.3", "192.0.2.4",
    };
    for (addresses, 1..) |address, number| {
        // The last candidate is larger than the others.
        const bytes: u64 = if (number == addresses.len) 70_000 else 600;
        ranking.add(.{ .ticket = .none, .number = @intCast(number), .bytes = bytes, .address = address });
    }
    ranking.breakTies();
    try testing.expectEqual(addresses.len, ranking.len);
    // Connections over Unix sockets have no address in common.
    for ([_]u32{ 8, 3, 1, 7, 2, 6, 5, 4 }, ranking.items[0..ranking.len]) |number, candidate| {
        try testing.expectEqual(number, candidate.number);
    }
}
