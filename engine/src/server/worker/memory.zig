//! The part of a worker that gives memory back before the process runs out of it: ends what its peers have
//! not finished or do not read.
//!
//! A peer's connection counts with all of its streams, by the memory that the process holds for it: buffers,
//! output that is not read, and output in the kernel. The largest connection goes first; of connections that
//! are about as large, first one whose address has more of them, then the newest. Given up are requests that
//! are not complete (503, or 413 for a body that is on its way), WebSockets that hold messages which their
//! applications have not taken (close code 1013), bytes behind a request that is being answered, and
//! responses that are not read. Of a connection with many streams the one that has waited longest for its
//! peer goes first, and the connection itself only if it has no such stream and its peer is no trusted proxy.
//! Requests that are complete are served as ever.
const std = @import("std");
const Refusal = @import("protocol").Refusal;
const early = @import("protocol").early;
const Lane = @import("../lane.zig").Lane;
const Exchange = @import("../exchange.zig").Exchange;
const Memory = @import("../memory.zig").Memory;
const Multiplex = @import("../multiplex.zig").Multiplex;
const Outbox = @import("../outbox.zig").Outbox;
const Shares = @import("../shares.zig").Shares;
const Ticket = @import("../slab.zig").Ticket;
const Stream = @import("../stream.zig").Stream;

/// A peer's connection that something can be taken from.
const Candidate = struct {
    ticket: Ticket,
    /// Counts up with each connection.
    number: u32,
    bytes: u64,
    address: []const u8 = "",
    /// The number of candidates from the same address.
    of_address: u8 = 0,

    /// Connections of the same number of bits are about as large.
    fn size(candidate: *const Candidate) u6 {
        return std.math.log2_int(u64, candidate.bytes);
    }

    fn goesBefore(one: Candidate, other: Candidate) bool {
        if (one.size() != other.size()) return one.size() > other.size();
        if (one.of_address != other.of_address) return one.of_address > other.of_address;
        return one.number > other.number;
    }
};

/// The first of all candidates, in order. Takes no memory: there is none to take.
const Ranking = struct {
    items: [64]Candidate = undefined,
    len: usize = 0,

    fn add(ranking: *Ranking, new: Candidate) void {
        if (ranking.len == ranking.items.len) {
            if (!new.goesBefore(ranking.items[ranking.len - 1])) return;
            ranking.len -= 1;
        }
        ranking.insert(new);
    }

    fn insert(ranking: *Ranking, new: Candidate) void {
        var at = ranking.len;
        while (at > 0 and new.goesBefore(ranking.items[at - 1])) : (at -= 1) {
            ranking.items[at] = ranking.items[at - 1];
        }
        ranking.items[at] = new;
        ranking.len += 1;
    }

    /// Breaks ties by addresses, when all candidates are there: the more candidates an address has, the
    /// earlier they go. Unix sockets have no address.
    fn breakTies(ranking: *Ranking) void {
        const all = ranking.items[0..ranking.len];
        for (all) |*one| {
            if (one.address.len == 0) continue;
            for (all) |*other| one.of_address += @intFromBool(std.mem.eql(u8, one.address, other.address));
        }
        ranking.len = 0;
        for (0..all.len) |at| {
            // A copy, because `insert` writes to this place.
            const one = all[at];
            ranking.insert(one);
        }
    }
};

/// The methods of a worker that shed load for want of memory.
pub fn Shedding(comptime W: type) type {
    return struct {
        /// Estimates of the memory that a TLS session, and an application's request, hold beside the buffers:
        /// it cannot be counted.
        const tunnel_bytes = 32 * 1024;
        const exchange_bytes = 16 * 1024;

        /// The number of times that all connections are looked at in one go; more is left for the next round.
        const passes_max = 16;

        const short: Refusal = .{ .status = 503, .detail = "The server is short of memory." };
        const short_for_body: Refusal = .{ .status = 413, .detail = "The server is short of memory." };
        const try_again_later = 1013;

        /// Looks whether there is enough memory, if that is due. Nothing of the worker's or a host's may be
        /// on the stack but a loop over events: exchanges may end.
        pub fn attend(w: *W) void {
            if (!w.memory.isDue(w.heldBytes(), w.now)) return;
            const finding = w.memory.look(w.statistics().memory_bytes, w.heldBytes(), w.now) orelse {
                w.memory.full = false;
                return;
            };
            relieve(w, finding);
        }

        /// Sums over all requests that were given up.
        const Shed = struct {
            bytes: u64 = 0,
            /// The part of `bytes` that hosts hold until they are told.
            given: u64 = 0,
            count: u32 = 0,
        };

        fn relieve(w: *W, finding: Memory.Finding) void {
            sendStreams(w);
            w.memory.sheds = true;
            defer w.memory.sheds = false;
            const allowance = Memory.allowance(finding);
            var held: u64 = 0;
            var shed: Shed = .{};
            var enough = false;
            look: for (0..passes_max) |_| {
                var ranking: Ranking = .{};
                var shares: Shares = .{};
                held = rank(w, &ranking, &shares);
                const before = shed.bytes;
                for (ranking.items[0..ranking.len], 1..) |candidate, next| {
                    // Candidates of about the same size lose something each before one of them loses more.
                    const floor = if (next < ranking.len) ranking.items[next].bytes / 2 else 0;
                    var left = candidate.bytes;
                    while (true) {
                        enough = shed.bytes >= finding.goal or held <= allowance;
                        if (enough) break :look;
                        const freed = giveUp(w, candidate.ticket, &shares, &shed);
                        if (freed == 0) break;
                        held -|= freed;
                        left -|= freed;
                        if (left <= floor) break;
                    }
                }
                if (shed.bytes == before) break;
            }
            enough = shed.bytes >= finding.goal or held <= allowance;
            w.memory.full = !enough;
            w.memory.noteShed(shed.given, w.heldBytes());
            w.stats.shed += shed.count;
            if (w.counting.counters) |counters| counters.noteShed(shed.count);
            tell(w, finding, held, shed.count);
        }

        /// Hands the kernel the output that streams have queued in this round: only then peers that do not
        /// read show.
        fn sendStreams(w: *W) void {
            var at: usize = 0;
            const count = w.corked.items.len;
            while (at < count) : (at += 1) {
                const lane = w.laneOf(w.corked.items[at]) orelse continue;
                if (lane.wire() == .multiplexed and lane.out.state == .open) _ = w.send(lane);
            }
        }

        // ---- What is held

        /// Ranks connections by the memory that can be taken from them; returns the bytes that all
        /// connections hold.
        fn rank(w: *W, ranking: *Ranking, shares: *Shares) u64 {
            var it = w.lanes();
            if (w.pool.loans.bytes > 0) while (it.next()) |lane| shares.note(&lane.out.queue);
            var held: u64 = 0;
            it = w.lanes();
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
                    .ticket = lane.ticket,
                    .number = transport.number,
                    .bytes = bytes + kernelBytes(lane),
                    .address = transport.peer_text.slice(),
                });
            }
            ranking.breakTies();
            return held;
        }

        /// Bytes that a connection, or a stream, holds by itself.
        fn ownBytes(lane: *const Lane, shares: *const Shares) u64 {
            return unfinishedBytes(lane) + unsentBytes(lane, shares);
        }

        /// The part of the lane's bytes that is held for its peer's sake.
        fn takeableBytes(lane: *const Lane, shares: *const Shares) u64 {
            const unread = if (waitsForPeer(lane)) unsentBytes(lane, shares) else 0;
            return unfinishedBytes(lane) + unread;
        }

        /// Bytes that the kernel held for a connection at the last look. The end of the connection frees
        /// them, for other processes.
        fn kernelBytes(lane: *const Lane) u64 {
            return switch (lane.out.state) {
                .open => 0,
                .blocked => |blockage| blockage.held,
            };
        }

        /// Unsent output: bytes that are lent by their owner are shared by all connections that send them.
        fn unsentBytes(lane: *const Lane, shares: *const Shares) u64 {
            if (lane.isClosed()) return 0;
            const unsent: i64 = @intCast(lane.queuedBytes());
            return @intCast(unsent + shares.surcharge(&lane.out.queue));
        }

        /// Whether output stays because the peer does not take it.
        fn waitsForPeer(lane: *const Lane) bool {
            switch (lane.session) {
                .single => return lane.out.state == .blocked,
                .stream => |*view| {
                    if (lane.out.queue.bytes == 0) return false;
                    if (lane.transport.out.state == .blocked) return true;
                    return view.session.lacks(view.stream) != .nothing;
                },
            }
        }

        /// Since when a stream has waited for its peer.
        fn waitsSince(lane: *const Lane) u64 {
            if (lane.out.state == .blocked) return lane.out.state.blocked.stall.since;
            const exchange = lane.current() orelse return 0;
            return exchange.active_at;
        }

        /// Bytes of requests and messages that the peer has not finished, or no host has taken.
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
            // A temporary file may lie in memory.
            const resident = if (W.intakeOf(exchange)) |intake| intake.resident_bytes else 0;
            return input + exchange.given_bytes + resident;
        }

        // ---- What is given up

        /// Gives up a part of the memory that is held for a peer; the number of bytes. 0: there is nothing to
        /// give up.
        fn giveUp(w: *W, ticket: Ticket, shares: *const Shares, shed: *Shed) u64 {
            const transport = w.transportOf(ticket) orelse return 0;
            const multiplex = transport.multiplex() orelse return end(w, &transport.lane, shares, shed);
            if (longestWaiting(multiplex, shares)) |stream| return end(w, stream, shares, shed);
            return if (transport.trusted) 0 else end(w, &transport.lane, shares, shed);
        }

        fn longestWaiting(multiplex: *const Multiplex, shares: *const Shares) ?*Lane {
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

        /// Ends the present request of a connection, or of a stream.
        fn end(w: *W, lane: *Lane, shares: *const Shares, shed: *Shed) u64 {
            const bytes = takeableBytes(lane, shares);
            if (bytes == 0) return 0;
            shed.bytes += bytes;
            // A stream that was refused, and does not even read that, counts once.
            if (!lane.isStream() or lane.phase != .closing) shed.count += 1;
            if (lane.current()) |exchange| shed.given += exchange.given_bytes;
            if (lane.wire() == .multiplexed) {
                w.calmStreams(lane.transport);
            } else if (waitsForPeer(lane)) {
                cut(w, lane);
            } else if (lane.wire() != .serving) {
                w.close(lane); // neither the peer's address nor its keys are known yet
            } else switch (lane.phase) {
                .idle, .head => refuse(w, lane, lane.input.unread()),
                .exchange => |exchange| endExchange(w, lane, exchange),
                .draining, .closing => unreachable, // takeableBytes is 0 in these phases
            }
            return bytes;
        }

        /// A peer does not read: its stream is reset, or its connection.
        fn cut(w: *W, lane: *Lane) void {
            switch (lane.session) {
                .single => {},
                .stream => |*view| view.session.reset(view.stream, .enhance_your_calm),
            }
            w.sever(lane, .server_error);
        }

        fn endExchange(w: *W, lane: *Lane, exchange: *Exchange) void {
            if (exchange.openWebSocket() != null) {
                w.closeWebSocket(exchange, try_again_later, "") catch
                    return w.fail(lane, .server_error);
                w.endExchange(exchange, .server_error);
                lane.input.deinit(&w.pool);
                if (w.send(lane)) w.settle(lane);
                return;
            }
            if (exchange.input == .complete and exchange.websocket == null) {
                lane.input.deinit(&w.pool);
                lane.transport.discards = true;
                lane.session.closeAfterResponse();
                return w.arm(lane);
            }
            if (lane.session.responseStarted()) return w.fail(lane, .server_error);
            const refusal = if (exchange.input == .complete) short else short_for_body;
            const with_content = !lane.session.asksForHead();
            exchange.noteRefusal(refusal, w.refusedBytes(refusal));
            w.endExchange(exchange, .server_error);
            answer(w, lane, refusal, with_content);
        }

        /// Turns a new request away, of which no host was told, because there is nothing left to shed. `raw`
        /// begins with its head.
        pub fn turnAway(w: *W, lane: *Lane, raw: []const u8) void {
            _ = rejected(w);
            refuse(w, lane, raw);
        }

        /// A connection that came when there was nothing left to shed is turned away: what it is told.
        pub fn rejected(w: *W) Refusal {
            w.stats.shed += 1;
            if (w.counting.counters) |counters| counters.noteShed(1);
            w.troubles.shed.untold += 1;
            return short;
        }

        fn refuse(w: *W, lane: *Lane, raw: []const u8) void {
            w.noteRefusal(lane, short, w.refusedBytes(short), raw);
            answer(w, lane, short, !early.asksForHead(raw));
        }

        /// RFC 9110 sections 15.5.14 and 15.6.4: it is worth trying again, which Retry-After says.
        fn answer(w: *W, lane: *Lane, refusal: Refusal, with_content: bool) void {
            w.sayRefusal(
                lane,
                refusal,
                .{ .retry_after_s = w.config.retry_after_s, .with_content = with_content },
            );
        }

        fn tell(w: *W, finding: Memory.Finding, held: u64, count: u32) void {
            var buffer: [256]u8 = undefined;
            const used = megabytes(finding.used);
            const max = megabytes(finding.max);
            if (count > 0) {
                const others = w.troubles.shed.addMany(count, w.now) orelse return;
                w.say(
                    .warn,
                    &buffer,
                    "Memory: {d} MB are in use, memory_max is {d} MB: requests that were refused or cut: {d}",
                    .{
                        used, max, others.count + 1,
                    },
                );
            } else {
                _ = w.troubles.memory.add(w.now) orelse return;
                w.say(
                    .warn,
                    &buffer,
                    "Memory: {d} MB are in use, memory_max is {d} MB; connections hold {d} MB of it, " ++
                        "and nothing that can be refused",
                    .{
                        used, max, megabytes(held),
                    },
                );
            }
        }

        fn megabytes(bytes: u64) u64 {
            return bytes / 1_000_000;
        }
    };
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
        // The last is larger than the others.
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
