//! The part of a worker that answers the health path.
const early = @import("protocol").early;
const Health = @import("../health.zig").Health;
const Lane = @import("../lane.zig").Lane;

/// The methods of a worker that has a health path.
pub fn HealthPart(comptime W: type) type {
    return struct {
        const input_part = @import("input.zig").Input(W);

        /// Requests with GET or HEAD for this path are answered with 200 and no host is told of them; empty:
        /// none is. Not logged, because they come all the time and say nothing. A connection over the limit
        /// of connections may ask as well.
        pub fn setHealthPath(w: *W, path: []const u8) Health.SetError!void {
            try w.health.set(path);
        }

        /// A request has come that no host is told of; true: it is answered.
        pub fn intercept(w: *W, lane: *Lane) bool {
            if (w.health.matches(&w.head)) {
                answer(w, lane);
                return true;
            }
            if (lane.transport.surplus == .no) return false;
            w.queueRejection(lane, w.head.text) catch w.close(lane);
            return true;
        }

        fn answer(w: *W, lane: *Lane) void {
            if (w.stopping == .draining) return w.refuse(
                lane,
                .{ .status = 503, .detail = "The server is stopping." },
            );
            if (lane.isStream()) return input_part.sayAlive(w, lane);
            var space: [early.response_bytes_max]u8 = undefined;
            const len = early.aliveResponse(w.clock.date(), w.head.method != .HEAD, &space);
            w.sayLast(lane, space[0..len]);
        }
    };
}
