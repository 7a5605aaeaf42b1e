//! The part of a worker that receives long bodies: straight to the memory where they are gathered, or where
//! the host wants them, and more of them at once than fits the buffer that all connections share. Only of a
//! body whose length is known, so that nothing behind it comes along.
const io_layer = @import("io");
const Exchange = @import("../exchange.zig").Exchange;
const Transport = @import("../transport.zig").Transport;

/// The methods of a worker that receive long bodies.
pub fn Upload(comptime W: type) type {
    return struct {
        const is_possible = io_layer.hasReceiveTo(W.IoType);

        const buffers_max = @import("../config.zig").worker_limits.upload_buffers_max;
        /// A body whose rest is less than this part of the shared buffer is received in the shared buffer.
        const part_min = 4;

        /// A request has begun. If its body is long, the worker is asked before bytes of it are received.
        pub inline fn expect(w: *W, exchange: *Exchange) void {
            if (!is_possible or exchange.input == .complete) return;
            if (leftOf(exchange) < w.config.receive_bytes) return;
            w.io.askFirst(exchange.lane.transport.socket);
        }

        /// Bytes of a body that are certain to come, in the clear.
        fn leftOf(exchange: *const Exchange) u64 {
            if (exchange.lane.tls() != null) return 0;
            return exchange.lane.session().contentLeft() orelse 0;
        }

        /// The socket of a transport is readable. Bytes that are not received here come as all others do.
        pub fn arrived(w: *W, transport: *Transport) void {
            if (!is_possible) unreachable;
            const exchange = exchangeOf(transport) orelse return;
            if (w.budget.isSpent()) return w.io.postpone(transport.socket);
            const left = leftOf(exchange);
            const least = w.config.receive_bytes / part_min;
            if (left < @max(least, 1)) return;
            const most = buffers_max * @as(u64, w.config.receive_bytes);
            const space = spaceFor(w, exchange, @intCast(@min(left, most))) orelse return;
            const bytes = w.io.receiveTo(transport.socket, space) orelse return;
            if (left - bytes.len >= least) w.io.askFirst(transport.socket);
            w.noteReceived(transport, bytes);
        }

        /// The exchange whose body the next bytes belong to.
        fn exchangeOf(transport: *Transport) ?*Exchange {
            if (transport.lane.yielded or transport.discards or !transport.lane.input.isEmpty()) return null;
            const exchange = transport.lane.current() orelse return null;
            return if (exchange.input == .wanted) exchange else null;
        }

        fn spaceFor(w: *W, exchange: *Exchange, most: usize) ?[]u8 {
            if (W.intakeOf(exchange)) |intake| {
                // A body that goes to a file is handed on in parts of about this size.
                const part = if (intake.isLong()) @min(most, w.config.receive_bytes) else most;
                return intake.room(&w.pool, part) catch null;
            }
            if (!@hasDecl(W.HostType, "bodySpace")) return null;
            return w.host.bodySpace(w, exchange, most);
        }
    };
}
