//! The part of a worker that gives every lane its turn: a round has a budget (../budget.zig), and lanes that
//! find no room in it come first in the next round (../waiting.zig).
const std = @import("std");
const assert = std.debug.assert;
const api_limits = @import("../config.zig").api_limits;
const Lane = @import("../lane.zig").Lane;

/// The methods of a worker that share out a round.
pub fn Turns(comptime W: type) type {
    return struct {
        /// Makes room for one more lane in the lists of those that wait.
        pub fn reserve(w: *W) error{OutOfMemory}!void {
            return w.waiting.reserve(w.gpa, w.transports.count + w.open_streams.count);
        }

        /// Lets parked WebSockets go on.
        pub fn unpark(w: *W) void {
            for (w.waiting.parked.items) |ticket| {
                const lane = w.laneOf(ticket) orelse continue;
                assert(lane.parked);
                lane.parked = false;
                const websocket = lane.websocket() orelse continue;
                websocket.incoming.parked = false;
                w.waiting.cork(lane);
            }
            w.waiting.parked.clearRetainingCapacity();
        }

        /// Goes on with lanes that earlier rounds had no room for, in their order, as far as there is room.
        /// `uncork` follows.
        pub fn serveBacklog(w: *W) void {
            if (w.waiting.backlog.items.len == 0) return;
            w.waiting.beginBacklog();
            var served: usize = 0;
            while (!w.budget.isSpent()) {
                const ticket = w.waiting.at(served) orelse break;
                served += 1;
                const lane = w.laneOf(ticket) orelse continue;
                assert(lane.yielded);
                lane.yielded = false;
                // A lane that is to read no further has at most something to send, which `uncork` does next.
                if (lane.wantsInput()) w.pump(lane, null) else w.waiting.cork(lane);
            }
            w.waiting.endBacklog(served);
        }

        /// Looks at every corked lane once: goes on with its input, unless that waits for its turn, then
        /// sends its output.
        pub fn uncork(w: *W) void {
            if (w.waiting.corked.items.len == 0) return;
            w.waiting.beginCorked();
            var place: usize = 0;
            while (w.waiting.at(place)) |ticket| : (place += 1) {
                const lane = w.laneOf(ticket) orelse continue;
                assert(lane.corked);
                lane.corked = false;
                if (lane.mayGoOn()) {
                    w.pump(lane, null);
                } else if (!withhold(w, lane) and w.send(lane)) w.settle(lane);
            }
            w.waiting.end();
        }

        /// An answer in front of a request that an application elsewhere has to answer waits for that answer:
        /// the answers of a pipeline would leave one by one. True: it waits.
        pub fn withhold(w: *W, lane: *Lane) bool {
            if (!w.answersElsewhere() or !lane.mayWithhold()) return false;
            return w.waiting.withhold(w.gpa, lane, w.clock.now);
        }

        /// Sends the answers that have waited for `withhold_ms`, unless further ones have come meanwhile.
        pub fn release(w: *W) void {
            const now = w.clock.now;
            const since = w.waiting.withheld_at orelse return;
            if (now -| since < withhold_ms) return;
            const list = w.waiting.withheld.items;
            var kept: usize = 0;
            for (list) |*withheld| {
                const lane = w.laneOf(withheld.lane) orelse continue;
                assert(lane.withheld);
                if (lane.mayWithhold() and withheld.goesOn(lane.out().queue.bytes, now)) {
                    list[kept] = withheld.*;
                    kept += 1;
                    continue;
                }
                lane.withheld = false;
                if (lane.mayWithhold() and w.send(lane)) w.settle(lane);
            }
            // To send an answer begins no request.
            assert(w.waiting.withheld.items.len == list.len);
            w.waiting.keepWithheld(kept, now);
        }

        pub const withhold_ms = api_limits.withhold_ms;
    };
}
