//! The part of a worker that answers the health path.
const early = @import("protocol").early;
const Health = @import("../health.zig").Health;
const Lane = @import("../lane.zig").Lane;

/// The methods of a worker that has a health path.
pub fn HealthPart(comptime W: type) type {
    return struct {
        const input_part = @import("input.zig").Input(W);

        /// Sets the path at which requests with GET or HEAD get a 200 from the engine; empty: no path. No
        /// host hears of these requests, and they are not logged, because probes are many and say nothing. A
        /// connection over the limit of connections gets the response, too.
        pub fn setHealthPath(w: *W, path: []const u8) Health.SetError!void {
            try w.health.set(path);
        }

        /// Answers a request that no host hears of: for the health path, or over the limit. False: it is
        /// another request.
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
