//! The invariants of a worker between two rounds, for simulations and tests. The check goes over all lanes.
const std = @import("std");
const assert = std.debug.assert;
const Ticket = @import("../slab.zig").Ticket;

pub fn Invariants(comptime W: type) type {
    return struct {
        /// Asserts relations that hold after `poll`.
        pub fn invariants(w: *W) void {
            assert(w.pumping == null);
            w.waiting.invariants();
            w.accepting.invariants();
            w.storage.invariants();
            var exchanges: u32 = 0;
            var websockets: u32 = 0;
            var it = w.lanes();
            while (it.next()) |lane| {
                lane.invariants();
                assert(!lane.isClosed());
                const name = lane.ticket().short();
                assert(!lane.corked or contains(w.waiting.corked.items, name));
                assert(!lane.yielded or contains(w.waiting.backlog.items, name));
                const exchange = lane.current() orelse continue;
                assert(w.exchanges.get(exchange.ticket) == exchange);
                exchanges += 1;
                websockets += @intFromBool(exchange.websocket != null);
            }
            // Exchanges and WebSockets end with their lane, so all that are in the slabs were found above.
            assert(exchanges == w.exchanges.count);
            assert(websockets == w.websockets.count);
        }

        fn contains(names: []const Ticket.Short, name: Ticket.Short) bool {
            return std.mem.indexOfScalar(Ticket.Short, names, name) != null;
        }
    };
}
