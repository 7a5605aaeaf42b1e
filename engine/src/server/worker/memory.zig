//! The part of a worker that gives memory back before the process runs out of it: ends what its peers have
//! not finished, the largest first, and the newest first of those that are about as large.
//!
//! First go requests that are not complete, with 503, or 413 for a body that is on its way; WebSockets that
//! hold messages which their applications have not taken (close code 1013); and what came behind a request
//! that is being answered. Where that is not enough, responses that their peers do not read are cut. Whoever
//! is complete and fits the application is served as ever.
const std = @import("std");
const Refusal = @import("protocol").Refusal;
const early = @import("protocol").early;
const Connection = @import("../connection.zig").Connection;
const Exchange = @import("../exchange.zig").Exchange;
const Memory = @import("../memory.zig").Memory;
const Ticket = @import("../slab.zig").Ticket;

/// Who comes first, and which size two are told apart by: its number of bits.
const Candidate = struct {
    ticket: Ticket,
    /// Counts up with each connection.
    number: u32,
    bytes: u64,

    fn goesBefore(one: Candidate, other: Candidate) bool {
        const size = std.math.log2_int(u64, one.bytes);
        const other_size = std.math.log2_int(u64, other.bytes);
        return if (size == other_size) one.number > other.number else size > other_size;
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
        var at = ranking.len;
        while (at > 0 and new.goesBefore(ranking.items[at - 1])) : (at -= 1) {
            ranking.items[at] = ranking.items[at - 1];
        }
        ranking.items[at] = new;
        ranking.len += 1;
    }
};

/// The methods of a worker that shed load for want of memory.
pub fn Shedding(comptime W: type) type {
    return struct {
        const Peer = W.Peer;

        /// What a TLS session, and an application's request, are taken to hold beside the buffers: nobody can
        /// count it.
        const tunnel_bytes = 32 * 1024;
        const exchange_bytes = 16 * 1024;

        /// The number of times that all connections are looked at in one go; more is left for the next round.
        const passes_max = 16;

        const short: Refusal = .{ .status = 503, .detail = "The server is short of memory." };
        const short_for_body: Refusal = .{ .status = 413, .detail = "The server is short of memory." };
        const try_again_later = 1013;

        /// Looks whether there is enough memory, if that is due.
        pub fn attend(w: *W) void {
            if (!w.memory.isDue(w.now)) return;
            const finding = w.memory.look(w.statistics().memory_bytes, w.now) orelse {
                w.memory.full = false;
                return;
            };
            relieve(w, finding);
        }

        fn relieve(w: *W, finding: Memory.Finding) void {
            const allowance = Memory.allowance(finding);
            var held: u64 = 0;
            var shed: u64 = 0;
            var count: u32 = 0;
            var enough = false;
            var passes: usize = 0;
            var tier: Tier = .unfinished;
            look: while (passes < passes_max) : (passes += 1) {
                var ranking: Ranking = .{};
                held = rank(w, tier, &ranking);
                for (ranking.items[0..ranking.len]) |candidate| {
                    enough = shed >= finding.goal or held <= allowance;
                    if (enough) break :look;
                    const peer = w.peers.get(candidate.ticket) orelse continue;
                    end(w, peer);
                    held -|= candidate.bytes;
                    shed += candidate.bytes;
                    count += 1;
                }
                if (ranking.len == ranking.items.len) continue;
                if (tier == .unread) break;
                tier = .unread;
            }
            enough = shed >= finding.goal or held <= allowance;
            w.memory.full = !enough;
            w.memory.noteShed(shed);
            w.stats.shed += count;
            if (w.counters) |counters| counters.noteShed(count);
            tell(w, finding, held, count);
        }

        const Tier = enum { unfinished, unread };

        /// Ranks whom to end; what all connections hold.
        fn rank(w: *W, tier: Tier, ranking: *Ranking) u64 {
            var held: u64 = 0;
            var it = w.peers.iterator();
            while (it.next()) |peer| {
                const connection = &peer.connection;
                const unfinished = unfinishedBytes(connection);
                const unread = if (connection.output == .blocked) connection.queuedBytes() else 0;
                held += unfinished + connection.queuedBytes();
                if (connection.tunnel != null) held += tunnel_bytes;
                if (connection.multiplex()) |multiplex| held += multiplex.memoryBytes();
                if (connection.current() != null) held += exchange_bytes;
                const bytes = switch (tier) {
                    .unfinished => unfinished,
                    .unread => if (unread > w.config.write_high_bytes) unread else 0,
                };
                if (bytes > 0) ranking.add(
                    .{ .ticket = connection.ticket, .number = connection.number, .bytes = bytes },
                );
            }
            return held;
        }

        /// What a connection holds of what its peer has not finished, or nobody has taken.
        fn unfinishedBytes(connection: *const Connection) u64 {
            const input = if (connection.input.buffer) |buffer| buffer.len else 0;
            const exchange = switch (connection.phase) {
                .proxy_header, .handshake, .multiplexed => return input,
                .open => |serving| switch (serving) {
                    .idle, .head => return input,
                    .exchange => |exchange| exchange,
                    .draining => return 0,
                },
                .relaying, .closing, .lingering, .closed => return 0,
            };
            if (exchange.openWebSocket()) |websocket| {
                if (!websocket.isOpen()) return 0;
                const pieces = if (websocket.incoming.pieces.buffer) |buffer| buffer.len else 0;
                return input + pieces + exchange.given_bytes;
            }
            return if (exchange.input == .complete) input else input + exchange.given_bytes;
        }

        /// Ends what a connection is at.
        fn end(w: *W, peer: *Peer) void {
            const connection = &peer.connection;
            switch (connection.phase) {
                .proxy_header, .handshake => w.close(peer),
                .multiplexed => w.fail(peer, .server_error),
                .open => |serving| switch (serving) {
                    .idle, .head => refuse(w, peer, connection.input.unread()),
                    .exchange => |exchange| endExchange(w, peer, exchange),
                    .draining => unreachable, // it holds nothing
                },
                .relaying => w.fail(peer, .server_error),
                .closing, .lingering, .closed => unreachable, // likewise
            }
        }

        fn endExchange(w: *W, peer: *Peer, exchange: *Exchange) void {
            const connection = &peer.connection;
            if (connection.output == .blocked and
                connection.queuedBytes() > w.config.write_high_bytes) return w.sever(
                peer,
                .server_error,
            );
            if (exchange.openWebSocket() != null) {
                w.closeWebSocket(exchange, try_again_later, "") catch return w.fail(peer, .server_error);
                w.endExchange(exchange, .server_error);
                connection.input.deinit(&w.pool);
                if (w.flush(peer)) w.settle(peer);
                return;
            }
            if (exchange.input == .complete and exchange.websocket == null) {
                connection.input.deinit(&w.pool);
                connection.discards = true;
                connection.session.closeAfterResponse();
                return w.arm(peer);
            }
            if (connection.session.responseStarted(exchange.stream)) return w.fail(peer, .server_error);
            const refusal = if (exchange.input == .complete) short else short_for_body;
            const with_content = !connection.session.asksForHead(exchange.stream);
            exchange.noteRefusal(refusal, w.refusedBytes(refusal));
            w.endExchange(exchange, .server_error);
            answer(w, peer, refusal, with_content);
        }

        /// Turns a new request away, of which no host was told, because there is nothing left to shed. `raw`
        /// begins with its head.
        pub fn turnAway(w: *W, peer: *Peer, raw: []const u8) void {
            w.stats.shed += 1;
            if (w.counters) |counters| counters.noteShed(1);
            w.troubles.shed.untold += 1;
            refuse(w, peer, raw);
        }

        fn refuse(w: *W, peer: *Peer, raw: []const u8) void {
            w.noteRefusal(&peer.connection, short, w.refusedBytes(short), raw);
            answer(w, peer, short, !early.asksForHead(raw));
        }

        /// RFC 9110 sections 15.5.14 and 15.6.4: it is worth trying again, which Retry-After says.
        fn answer(w: *W, peer: *Peer, refusal: Refusal, with_content: bool) void {
            w.sayRefusal(
                peer,
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
