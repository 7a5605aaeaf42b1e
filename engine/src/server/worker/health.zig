//! The part of a worker that answers the health path.
const Stream = @import("protocol").Stream;
const early = @import("protocol").early;
const Health = @import("../health.zig").Health;
const Connection = @import("../connection.zig").Connection;

/// The methods of a worker that has a health path.
pub fn HealthPart(comptime W: type) type {
    return struct {
        /// Requests with GET or HEAD for this path are answered with 200 and no host is told of them; empty:
        /// none is. Not logged, because they come all the time and say nothing. A connection over the limit
        /// of connections may ask as well.
        pub fn setHealthPath(w: *W, path: []const u8) Health.SetError!void {
            try w.health.set(path);
        }

        /// A request has come that no host is told of; true: it is answered.
        pub fn intercept(w: *W, connection: *Connection, stream: Stream) bool {
            if (w.health.matches(&w.head)) {
                answer(w, connection, stream);
                return true;
            }
            if (connection.surplus == .no) return false;
            w.queueRejection(connection, w.head.text) catch w.close(connection);
            return true;
        }

        fn answer(w: *W, connection: *Connection, stream: Stream) void {
            if (w.stopping == .draining) return w.refuse(
                connection,
                stream,
                .{ .status = 503, .detail = "The server is stopping." },
            );
            if (connection.carrier) |carrier| return w.sayAlive(connection, carrier);
            var space: [early.response_bytes_max]u8 = undefined;
            const len = early.aliveResponse(w.date.text(), w.head.method != .HEAD, &space);
            w.sayLast(connection, space[0..len]);
        }
    };
}
