//! The part of a worker that gives every connection its turn: a round has room for so much (../budget.zig),
//! what is left over comes first in the next one.
const std = @import("std");
const Ticket = @import("../slab.zig").Ticket;
const Connection = @import("../connection.zig").Connection;

/// The methods of a worker that share out a round.
pub fn Turns(comptime W: type) type {
    return struct {
        /// Makes room for one more connection in the lists below. Those that are gone since
        /// may still be in them.
        pub fn reserve(w: *W) error{OutOfMemory}!void {
            const listed = @max(w.corked.items.len, w.backlog.items.len, w.parked.items.len);
            const room = listed + w.transports.count + w.open_streams.count + 1;
            inline for (.{ &w.corked, &w.backlog, &w.spare, &w.parked }) |list| {
                try list.ensureTotalCapacity(w.gpa, room);
            }
        }

        /// Looks at a connection once more before the next wait.
        pub fn cork(w: *W, connection: *Connection) void {
            if (connection.corked) return;
            connection.corked = true;
            w.corked.appendAssumeCapacity(connection.ticket);
        }

        /// A connection has had its turn, or the round has no room for it: it goes on in the next one.
        pub fn yield(w: *W, connection: *Connection) void {
            if (connection.yielded) return;
            connection.yielded = true;
            w.backlog.appendAssumeCapacity(connection.ticket);
        }

        /// The host has more to read than it should: a WebSocket waits until that has changed.
        pub fn park(w: *W, connection: *Connection) void {
            const incoming = &connection.websocket().?.incoming;
            if (incoming.parked) return;
            incoming.parked = true;
            w.parked.appendAssumeCapacity(connection.ticket);
        }

        /// Lets them go on.
        pub fn unpark(w: *W) void {
            for (w.parked.items) |ticket| {
                const connection = w.connectionOf(ticket) orelse continue;
                const websocket = connection.websocket() orelse continue;
                websocket.incoming.parked = false;
                cork(w, connection);
            }
            w.parked.clearRetainingCapacity();
        }

        /// Goes on with what earlier rounds have left over, in its order, as far as there is room.
        pub fn serveBacklog(w: *W) void {
            if (w.backlog.items.len == 0) return;
            std.mem.swap(std.ArrayList(Ticket), &w.backlog, &w.spare);
            var served: usize = 0;
            // The list may move: streams are opened meanwhile.
            while (served < w.spare.items.len and !w.budget.isSpent()) {
                served += 1;
                const connection = w.connectionOf(w.spare.items[served - 1]) orelse continue;
                connection.yielded = false;
                if (connection.wantsInput()) {
                    w.pump(connection, null);
                } else if (w.flush(connection)) w.settle(connection);
            }
            // Those that had their turn, and yielded again, come behind those that had none.
            const rest = w.spare.items[served..];
            w.backlog.appendSliceAssumeCapacity(rest);
            std.mem.rotate(Ticket, w.backlog.items, w.backlog.items.len - rest.len);
            w.spare.clearRetainingCapacity();
        }

        /// Looks at every corked connection once: goes on with its input, unless that waits for its turn,
        /// then sends its output.
        pub fn uncork(w: *W) void {
            if (w.corked.items.len == 0) return;
            std.mem.swap(std.ArrayList(Ticket), &w.corked, &w.spare);
            // The list may move: streams are opened meanwhile.
            var at: usize = 0;
            while (at < w.spare.items.len) : (at += 1) {
                const connection = w.connectionOf(w.spare.items[at]) orelse continue;
                connection.corked = false;
                if (connection.mayGoOn()) {
                    w.pump(connection, null);
                } else if (w.flush(connection)) w.settle(connection);
            }
            w.spare.clearRetainingCapacity();
        }
    };
}
