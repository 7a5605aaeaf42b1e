//! The part of a worker that frees memory before the process runs out of it, by ending requests and responses
//! that peers have not finished or do not read.
//!
//! A connection counts with all of its streams, by the memory that the process holds for it: buffers, output
//! that is not read, and output in the kernel. The largest connection goes first; among about equally large
//! ones, a connection whose address has more of them, then the newest. Ended are incomplete requests (503;
//! 413 while the body comes), WebSockets with messages that their applications have not taken (close code
//! 1013), bytes behind a request that is being answered, and responses that are not read. Of a connection
//! with streams, the stream that has waited longest for its peer goes first; the connection itself goes only
//! if it has no such stream and its peer is no trusted proxy. Complete requests are served as ever.
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

pub fn Shedding(comptime W: type) type {
    return struct {
        const streams_part = @import("streams.zig").Streams(W);

        const passes_max = @import("../config.zig").worker_limits.memory_passes_max;

        const short: Refusal = .{ .status = 503, .detail = "The server is short of memory." };
        const short_for_body: Refusal = .{ .status = 413, .detail = "The server is short of memory." };
        const try_again_later = 1013;

        /// Measures memory if that is due, and frees some if it is short. The caller must be a loop over
        /// events, without an exchange in use, because exchanges may end.
        pub inline fn attend(w: *W) void {
            if (!w.memory.isDue(w.heldBytes(), w.clock.now)) return;
            // The call is not inlined: its frame takes kilobytes of stack, which other events must not touch.
            @call(.never_inline, look, .{w});
        }

        fn look(w: *W) void {
            const finding = w.memory.look(w.statistics().memory_bytes, w.heldBytes(), w.clock.now) orelse {
                w.memory.full = false;
                return;
            };
            relieve(w, finding);
        }

        /// Sums over the requests that were ended.
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
                    // Each of several candidates of about the same size loses something before one of them
                    // loses more.
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

        /// Sends the output that streams have queued in this round, because only then it shows which peers do
        /// not read.
        fn sendStreams(w: *W) void {
            var at: usize = 0;
            const count = w.waiting.corked.items.len;
            while (at < count) : (at += 1) {
                const lane = w.listed(w.waiting.corked.items[at]) orelse continue;
                if (lane.wire() == .multiplexed and lane.out().state == .open) _ = w.send(lane);
            }
        }

        // ---- Ends for want of memory

        /// Frees some of the memory that is held for a peer. Returns the number of bytes; 0: there was
        /// nothing to free.
        fn giveUp(w: *W, ticket: Ticket, shares: *const Shares, shed: *Shed) u64 {
            const transport = w.transportOf(ticket) orelse return 0;
            const multiplex = transport.multiplex() orelse return end(w, &transport.lane, shares, shed);
            if (holdings.longestWaiting(multiplex, shares)) |stream| return end(w, stream, shares, shed);
            return if (transport.trusted) 0 else end(w, &transport.lane, shares, shed);
        }

        /// Ends the present request of a lane.
        fn end(w: *W, lane: *Lane, shares: *const Shares, shed: *Shed) u64 {
            const bytes = holdings.takeableBytes(lane, shares);
            if (bytes == 0) return 0;
            shed.bytes += bytes;
            // A stream counts once, also if its peer does not read the refusal either.
            if (!lane.isStream() or lane.phase != .closing) shed.count += 1;
            if (lane.current()) |exchange| shed.given += exchange.given_bytes;
            if (lane.wire() == .multiplexed) {
                streams_part.calm(w, lane.transport);
            } else if (holdings.waitsForPeer(lane)) {
                cut(w, lane);
            } else if (lane.wire() != .serving) {
                w.close(lane); // the peer's address or the session's keys are not known yet
            } else switch (lane.phase) {
                .idle, .head => refuse(w, lane, lane.input.unread()),
                .exchange => |exchange| endExchange(w, lane, exchange),
                .draining, .closing => unreachable, // nothing can be taken in these phases
            }
            return bytes;
        }

        /// Resets the stream or the connection of a peer that does not read.
        fn cut(w: *W, lane: *Lane) void {
            switch (lane.session()) {
                .single => {},
                .stream => |*view| view.session.reset(view.stream, .enhance_your_calm),
            }
            w.sever(lane, .server_error);
        }

        /// Cuts connections and streams that wait for their peers and have held bytes for which `isMeant`
        /// returns true. Returns their number. The caller must have no exchange in use.
        pub fn cutHolders(w: *W, isMeant: *const fn (held: *const Held) bool) u32 {
            var count: u32 = 0;
            var lanes = w.lanes();
            while (lanes.next()) |lane| {
                if (lane.isClosed() or !holdings.waitsForPeer(lane)) continue;
                if (!lane.out().queue.holdsAny(isMeant)) continue;
                // The connection of a trusted proxy carries streams of many clients.
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

        /// Refuses a new request, of which no host was told, because memory is short and none can be freed.
        /// `raw` begins with the request's head.
        pub fn turnAway(w: *W, lane: *Lane, raw: []const u8) void {
            _ = rejected(w);
            refuse(w, lane, raw);
        }

        /// Counts a refused connection or request, and returns the refusal.
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

        /// Sends a refusal. Retry-After says that trying again is worth it (RFC 9110 sections 15.5.14 and
        /// 15.6.4).
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
