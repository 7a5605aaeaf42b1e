//! The part of a worker that gives lanes their turns: a round has a budget (../budget.zig), and lanes for
//! which it had no room come first in the next round (../waiting.zig).
const std = @import("std");
const assert = std.debug.assert;
const api_limits = @import("../config.zig").api_limits;
const Lane = @import("../lane.zig").Lane;

pub fn Turns(comptime W: type) type {
    return struct {
        /// Makes room for one more lane in the lists of waiting lanes.
        pub fn reserve(w: *W) error{OutOfMemory}!void {
            return w.waiting.reserve(w.gpa, w.transports.count + w.open_streams.count);
        }

        /// Lets WebSockets go on whose hosts were behind.
        pub fn unpark(w: *W) void {
            for (w.waiting.parked.items) |name| {
                const lane = w.listed(name) orelse continue;
                if (!lane.parked) continue;
                lane.parked = false;
                const websocket = lane.websocket() orelse continue;
                websocket.incoming.parked = false;
                w.waiting.cork(lane);
            }
            w.waiting.parked.clearRetainingCapacity();
        }

        /// Goes on with lanes for which earlier rounds had no room, in order, as far as the round has room.
        /// `uncork` follows.
        pub fn serveBacklog(w: *W) void {
            if (w.waiting.backlog.items.len == 0) return;
            w.waiting.beginBacklog();
            var served: usize = 0;
            while (!w.budget.isSpent()) {
                const name = w.waiting.at(served) orelse break;
                served += 1;
                const lane = w.listed(name) orelse continue;
                if (!lane.yielded) continue;
                lane.yielded = false;
                // A lane that is not read any more may have output, which `uncork` sends next.
                if (lane.wantsInput()) w.pump(lane, null) else w.waiting.cork(lane);
            }
            w.waiting.endBacklog(served);
        }

        /// Gives every corked lane a turn: its input goes on, unless that waits for the next round, and its
        /// output is sent.
        pub fn uncork(w: *W) void {
            if (w.waiting.corked.items.len == 0) return;
            w.waiting.beginCorked();
            var place: usize = 0;
            while (w.waiting.at(place)) |name| : (place += 1) {
                const lane = w.listed(name) orelse continue;
                if (!lane.corked) continue;
                lane.corked = false;
                if (lane.mayGoOn()) {
                    w.pump(lane, null);
                } else if (!withhold(w, lane) and w.send(lane)) w.settle(lane);
            }
            w.waiting.end();
        }

        /// Keeps a response back in front of a request whose application runs elsewhere, until the next
        /// response comes: the responses of a pipeline would be sent one by one. False: it need not wait.
        pub fn withhold(w: *W, lane: *Lane) bool {
            if (!w.answersElsewhere() or !lane.mayWithhold()) return false;
            return w.waiting.withhold(w.gpa, lane, w.clock.now);
        }

        /// Sends responses that have waited for `withhold_ms`, unless further ones have come meanwhile.
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
            // Sending a response begins no request.
            assert(w.waiting.withheld.items.len == list.len);
            w.waiting.keepWithheld(kept, now);
        }

        pub const withhold_ms = api_limits.withhold_ms;
    };
}
