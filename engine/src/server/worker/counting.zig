//! The part of a worker that counts its connections and requests (../counting.zig).
const assert = @import("std").debug.assert;
const counters_file = @import("../counters.zig");
const Counters = counters_file.Counters;
const Exchange = @import("../exchange.zig").Exchange;
const Multiplex = @import("../multiplex.zig").Multiplex;
const Transport = @import("../transport.zig").Transport;

pub fn CountersPart(comptime W: type) type {
    return struct {
        /// Counts into `counters` from now on, which no other code writes; null: ends counting.
        pub fn useCounters(w: *W, counters: ?*Counters) void {
            w.counting.use(counters);
            noteWishes(w);
            if (counters != null) lookAround(w);
        }

        /// Notes whether counters or an access log need the times at which applications take requests.
        pub fn noteWishes(w: *W) void {
            const is_logged = if (w.access) |*log| log.shared.format.queued else false;
            w.counting.wants_taken = w.counting.counters != null or is_logged;
        }

        /// Microseconds between a complete request and the time at which its application took it; null: it
        /// did not.
        pub fn queueTime(w: *W, exchange: *const Exchange) ?u64 {
            const taken = takenAt(w, exchange);
            if (taken < exchange.begun_us) return null;
            return taken -| @max(exchange.given_us, exchange.begun_us);
        }

        /// Counts for the gauges if that is due. Called once a round.
        pub fn lookWhenDue(w: *W) void {
            if (w.counting.isDue(w.clock.now)) lookAround(w);
        }

        /// Counts the connections and requests of each kind, and writes the gauges.
        pub fn lookAround(w: *W) void {
            const counters = w.counting.counters orelse return;
            w.counting.due_at = 0;
            var now: Counters.Now = .{};
            var it = w.lanes();
            while (it.next()) |lane| {
                if (lane.transport.local) continue;
                if (!lane.isStream()) {
                    now.add(stateOf(lane.transport));
                    if (lane.transport.multiplex()) |multiplex| {
                        now.streams += multiplex.count;
                        noteResets(counters, multiplex);
                    }
                }
                const exchange = lane.current() orelse continue;
                if (exchange.openWebSocket() == null) now.addRequest(progressOf(w, exchange));
            }
            const stats = w.statistics();
            counters.publish(&now, stats.connections_max, stats.memory_bytes);
            if (@hasDecl(@TypeOf(w.host.*), "countInterpreters")) {
                counters.publishInterpreters(&w.host.countInterpreters());
            }
            // A host begins with a request, or is slow with it, without telling the worker, so the next count
            // is due.
            if (now.hasUnanswered()) w.counting.stir(w.clock.now);
        }

        /// Counts the end of a connection with streams.
        pub fn countEnding(w: *W, multiplex: *Multiplex) void {
            const counters = w.counting.counters orelse return;
            noteResets(counters, multiplex);
            if (multiplex.session.tally().ending) |code| counters.noteEnding(code);
        }

        /// Counts resets of a session since the last call.
        fn noteResets(counters: *Counters, multiplex: *Multiplex) void {
            const tally = multiplex.session.tally();
            counters.noteResets(.in, tally.resets_received -% multiplex.told.resets_received);
            counters.noteResets(.out, tally.resets_sent -% multiplex.told.resets_sent);
            multiplex.told = tally;
        }

        fn stateOf(transport: *const Transport) counters_file.ConnectionState {
            return switch (transport.phase) {
                .proxy_header, .handshake => .handshake,
                .serving => switch (transport.lane.phase) {
                    .idle => .idle,
                    .head => .reading,
                    .exchange => |exchange| if (exchange.openWebSocket() != null) .websocket else .serving,
                    .draining, .closing => .closing,
                },
                .relaying => .websocket,
                .multiplexed => |multiplex| if (multiplex.count == 0) .idle else .serving,
                .closing, .lingering, .closed => .closing,
            };
        }

        fn progressOf(w: *W, exchange: *const Exchange) counters_file.RequestState {
            assert(exchange.openWebSocket() == null);
            if (exchange.status != 0) return .answering;
            return if (takenAt(w, exchange) < exchange.begun_us) .waiting else .working;
        }

        fn takenAt(w: *W, exchange: *const Exchange) u64 {
            return if (@hasDecl(W.HostType, "takenAt")) w.host.takenAt(exchange) else exchange.begun_us;
        }

        /// Notes the time at which the first output of an exchange is given to the kernel.
        pub inline fn noteOutput(w: *W, exchange: *Exchange) void {
            if (w.counting.counters == null or exchange.sent_us != 0 or exchange.status == 0) return;
            exchange.sent_us = w.io.micros();
        }

        pub fn countEnd(w: *W, counters: *Counters, exchange: *const Exchange) void {
            assert(w.counting.counters == counters);
            counters.noteStatus(exchange.status);
            counters.noteRequestBy(exchange.lane.session().family());
            if (exchange.response == .refused) return counters.noteRefusal(exchange.status);
            // The time of a request without a response says nothing, and that of a WebSocket depends on its
            // peers.
            if (exchange.status < 200 or !exchange.isHeard()) return;
            counters.noteTimes(&.{
                .begun_us = exchange.begun_us,
                .taken_us = takenAt(w, exchange),
                .answered_us = exchange.sent_us,
                .ended_us = w.io.micros(),
            });
        }
    };
}
