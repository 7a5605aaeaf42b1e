//! The part of a worker that gives every lane its turn: a round has a budget (../budget.zig), and lanes that
//! find no room in it come first in the next round.
const std = @import("std");
const Ticket = @import("../slab.zig").Ticket;
const Lane = @import("../lane.zig").Lane;

/// The methods of a worker that share out a round.
pub fn Turns(comptime W: type) type {
    return struct {
        /// Makes room for one more lane in the lists below. Lanes that are gone may still be in them.
        pub fn reserve(w: *W) error{OutOfMemory}!void {
            const listed = @max(w.corked.items.len, w.backlog.items.len, w.parked.items.len);
            const room = listed + w.transports.count + w.open_streams.count + 1;
            inline for (.{ &w.corked, &w.backlog, &w.spare, &w.parked }) |list| {
                try list.ensureTotalCapacity(w.gpa, room);
            }
        }

        /// Has a lane looked at once more before the next wait.
        pub fn cork(w: *W, lane: *Lane) void {
            if (lane.corked) return;
            lane.corked = true;
            w.corked.appendAssumeCapacity(lane.ticket);
        }

        /// Has a lane looked at, and its transport, which heads are queued on.
        pub fn corkBoth(w: *W, lane: *Lane) void {
            cork(w, &lane.transport.lane);
            cork(w, lane);
        }

        /// A lane has had its turn, or the round has no room for it: it goes on in the next one.
        pub fn yield(w: *W, lane: *Lane) void {
            if (lane.yielded) return;
            lane.yielded = true;
            w.backlog.appendAssumeCapacity(lane.ticket);
        }

        /// The host has more to read than it should: a WebSocket waits until that has changed.
        pub fn park(w: *W, lane: *Lane) void {
            const incoming = &lane.websocket().?.incoming;
            if (incoming.parked) return;
            incoming.parked = true;
            w.parked.appendAssumeCapacity(lane.ticket);
        }

        /// Lets parked WebSockets go on.
        pub fn unpark(w: *W) void {
            for (w.parked.items) |ticket| {
                const lane = w.laneOf(ticket) orelse continue;
                const websocket = lane.websocket() orelse continue;
                websocket.incoming.parked = false;
                cork(w, lane);
            }
            w.parked.clearRetainingCapacity();
        }

        /// Goes on with lanes that earlier rounds had no room for, in their order, as far as there is room.
        pub fn serveBacklog(w: *W) void {
            if (w.backlog.items.len == 0) return;
            std.mem.swap(std.ArrayList(Ticket), &w.backlog, &w.spare);
            var served: usize = 0;
            // The list may move: streams are opened meanwhile.
            while (served < w.spare.items.len and !w.budget.isSpent()) {
                served += 1;
                const lane = w.laneOf(w.spare.items[served - 1]) orelse continue;
                lane.yielded = false;
                if (lane.wantsInput()) {
                    w.pump(lane, null);
                } else if (w.send(lane)) w.settle(lane);
            }
            // Lanes that had their turn and yielded again come behind lanes that had none.
            const rest = w.spare.items[served..];
            w.backlog.appendSliceAssumeCapacity(rest);
            std.mem.rotate(Ticket, w.backlog.items, w.backlog.items.len - rest.len);
            w.spare.clearRetainingCapacity();
        }

        /// Looks at every corked lane once: goes on with its input, unless that waits for its turn, then
        /// sends its output.
        pub fn uncork(w: *W) void {
            if (w.corked.items.len == 0) return;
            std.mem.swap(std.ArrayList(Ticket), &w.corked, &w.spare);
            // The list may move: streams are opened meanwhile.
            var at: usize = 0;
            while (at < w.spare.items.len) : (at += 1) {
                const lane = w.laneOf(w.spare.items[at]) orelse continue;
                lane.corked = false;
                if (lane.mayGoOn()) {
                    w.pump(lane, null);
                } else if (w.send(lane)) w.settle(lane);
            }
            w.spare.clearRetainingCapacity();
        }
    };
}
