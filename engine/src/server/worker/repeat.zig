//! The part of a worker that sends the same bytes again and again on a response that has nothing to say.
const Exchange = @import("../exchange.zig").Exchange;
const Repeat = @import("../repeat.zig").Repeat;
const Connection = @import("../connection.zig").Connection;

/// The methods of a worker that repeat bytes.
pub fn Repeating(comptime W: type) type {
    return struct {
        /// Sends a copy of `bytes` as a piece of the body every `interval_ms` until the response ends; 0: no
        /// longer. Replaces what was set before. Left out while the peer has not taken what is queued.
        pub fn setRepeat(
            w: *W,
            exchange: *Exchange,
            bytes: []const u8,
            interval_ms: u32,
        ) error{ OutOfMemory, OutOfOrder }!void {
            if (!exchange.connection.session.responseStarted(exchange.stream)) return error.OutOfOrder;
            const repeat = if (interval_ms > 0) try Repeat.create(w.gpa, bytes, interval_ms, w.now) else null;
            if (exchange.repeat) |old| old.destroy(w.gpa);
            exchange.repeat = repeat;
            if (w.pumping != exchange.connection) w.arm(exchange.connection);
        }

        /// Sends them once more.
        pub fn repeatDue(w: *W, connection: *Connection, exchange: *Exchange) void {
            const repeat = exchange.repeat.?;
            repeat.turn(w.now);
            if (connection.output == .open) {
                exchange.body(&w.pool, repeat.bytes(), .{}) catch return w.fail(connection, .server_error);
                if (!w.flush(connection)) return;
            }
            w.settle(connection);
        }
    };
}
