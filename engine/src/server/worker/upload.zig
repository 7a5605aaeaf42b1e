//! The part of a worker that receives long bodies directly to their place in memory, in larger pieces than
//! the buffer that all connections share. Only bodies with a known length come here, so that no bytes behind
//! the body are received with it.
const io_layer = @import("io");
const Exchange = @import("../exchange.zig").Exchange;
const Transport = @import("../transport.zig").Transport;

pub fn Upload(comptime W: type) type {
    return struct {
        const is_possible = io_layer.hasReceiveTo(W.IoType);

        const buffers_max = @import("../config.zig").worker_limits.upload_buffers_max;
        /// The part of the shared buffer below which the rest of a body is received in the shared buffer.
        const part_min = 4;

        /// Asks the io to report readiness before it receives bytes, if the body of a request is long.
        pub inline fn expect(w: *W, exchange: *Exchange) void {
            if (!is_possible or exchange.input == .complete) return;
            if (leftOf(exchange) < w.config.receive_bytes) return;
            w.io.askFirst(exchange.lane.transport.socket);
        }

        /// Bytes of a body that must still come; 0 if the length is unknown or the connection has TLS.
        fn leftOf(exchange: *const Exchange) u64 {
            if (exchange.lane.tls() != null) return 0;
            return exchange.lane.session().contentLeft() orelse 0;
        }

        /// Receives bytes of a body, because the socket is readable. If it receives none, the io receives
        /// them as usual.
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

        /// The exchange to whose body the next bytes belong.
        fn exchangeOf(transport: *Transport) ?*Exchange {
            if (transport.lane.yielded or transport.discards or !transport.lane.input.isEmpty()) return null;
            const exchange = transport.lane.current() orelse return null;
            return if (exchange.input == .wanted) exchange else null;
        }

        fn spaceFor(w: *W, exchange: *Exchange, most: usize) ?[]u8 {
            if (W.intakeOf(exchange)) |intake| {
                // A body that goes to a file is given to the writer in parts of about this size.
                const part = if (intake.isLong()) @min(most, w.config.receive_bytes) else most;
                return intake.room(&w.pool, part) catch null;
            }
            if (!@hasDecl(W.HostType, "bodySpace")) return null;
            return w.host.bodySpace(w, exchange, most);
        }
    };
}
