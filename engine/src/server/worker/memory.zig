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
const assert = @import("std").debug.assert;
const Refusal = @import("protocol").Refusal;
const early = @import("protocol").early;
const Held = @import("../loan.zig").Held;
const Lane = @import("../lane.zig").Lane;
const Exchange = @import("../exchange.zig").Exchange;
const holdings = @import("../holdings.zig");
const Ranking = holdings.Ranking;
const Memory = @import("../memory.zig").Memory;
const Shares = @import("../shares.zig").Shares;
const Ticket = @import("../slab.zig").Ticket;

/// The methods of a worker that shed load for want of memory.
pub fn Shedding(comptime W: type) type {
    return struct {
        const streams_part = @import("streams.zig").Streams(W);

        const passes_max = @import("../config.zig").worker_limits.memory_passes_max;

        const short: Refusal = .{ .status = 503, .detail = "The server is short of memory." };
        const short_for_body: Refusal = .{ .status = 413, .detail = "The server is short of memory." };
        const try_again_later = 1013;

        /// Looks whether there is enough memory, if that is due. Nothing of the worker's or a host's may be
        /// on the stack but a loop over events: exchanges may end.
        pub inline fn attend(w: *W) void {
            if (!w.memory.isDue(w.heldBytes(), w.clock.now)) return;
            // Not inlined: its frame takes kilobytes of stack, which each event would have to touch.
            @call(.never_inline, look, .{w});
        }

        fn look(w: *W) void {
            const finding = w.memory.look(w.statistics().memory_bytes, w.heldBytes(), w.clock.now) orelse {
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
            assert(finding.used > finding.max);
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
                held = ranking.fill(&shares, w.lanes(), w.pool.loans.any());
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
            const count = w.waiting.corked.items.len;
            while (at < count) : (at += 1) {
                const lane = w.laneOf(w.waiting.corked.items[at]) orelse continue;
                if (lane.wire() == .multiplexed and lane.out().state == .open) _ = w.send(lane);
            }
        }

        // ---- What is given up

        /// Gives up a part of the memory that is held for a peer; the number of bytes. 0: there is nothing to
        /// give up.
        fn giveUp(w: *W, ticket: Ticket, shares: *const Shares, shed: *Shed) u64 {
            const transport = w.transportOf(ticket) orelse return 0;
            const multiplex = transport.multiplex() orelse return end(w, &transport.lane, shares, shed);
            if (holdings.longestWaiting(multiplex, shares)) |stream| return end(w, stream, shares, shed);
            return if (transport.trusted) 0 else end(w, &transport.lane, shares, shed);
        }

        /// Ends the present request of a connection, or of a stream.
        fn end(w: *W, lane: *Lane, shares: *const Shares, shed: *Shed) u64 {
            const bytes = holdings.takeableBytes(lane, shares);
            if (bytes == 0) return 0;
            shed.bytes += bytes;
            // A stream that was refused, and does not even read that, counts once.
            if (!lane.isStream() or lane.phase != .closing) shed.count += 1;
            if (lane.current()) |exchange| shed.given += exchange.given_bytes;
            if (lane.wire() == .multiplexed) {
                streams_part.calm(w, lane.transport);
            } else if (holdings.waitsForPeer(lane)) {
                cut(w, lane);
            } else if (lane.wire() != .serving) {
                w.close(lane); // neither the peer's address nor its keys are known yet
            } else switch (lane.phase) {
                .idle, .head => refuse(w, lane, lane.input.unread()),
                .exchange => |exchange| endExchange(w, lane, exchange),
                .draining, .closing => unreachable, // nothing can be taken in these phases
            }
            return bytes;
        }

        /// A peer does not read: its stream is reset, or its connection.
        fn cut(w: *W, lane: *Lane) void {
            switch (lane.session()) {
                .single => {},
                .stream => |*view| view.session.reset(view.stream, .enhance_your_calm),
            }
            w.sever(lane, .server_error);
        }

        /// Cuts connections and streams that wait for their peers with held bytes of which `isMeant` is true;
        /// their number. Nothing of the worker's or a host's may be on the stack.
        pub fn cutHolders(w: *W, isMeant: *const fn (held: *const Held) bool) u32 {
            var count: u32 = 0;
            var lanes = w.lanes();
            while (lanes.next()) |lane| {
                if (lane.isClosed() or !holdings.waitsForPeer(lane)) continue;
                if (!lane.out().queue.holdsAny(isMeant)) continue;
                // The connection of a trusted proxy has the streams of many clients.
                const is_whole = lane.wire() == .multiplexed;
                if (is_whole and lane.transport.trusted) continue;
                count += 1;
                if (is_whole) streams_part.calm(w, lane.transport) else cut(w, lane);
            }
            return count;
        }

        fn endExchange(w: *W, lane: *Lane, exchange: *Exchange) void {
            assert(lane.current() == exchange);
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
                lane.session().closeAfterResponse();
                return w.arm(lane);
            }
            if (lane.session().responseStarted()) return w.fail(lane, .server_error);
            const refusal = if (exchange.input == .complete) short else short_for_body;
            const with_content = !lane.session().asksForHead();
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
                const others = w.troubles.shed.addMany(count, w.clock.now) orelse return;
                w.say(
                    .warn,
                    &buffer,
                    "Memory: {d} MB are in use, memory_max is {d} MB: requests that were refused or cut: {d}",
                    .{
                        used, max, others.count + 1,
                    },
                );
            } else {
                _ = w.troubles.memory.add(w.clock.now) orelse return;
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
