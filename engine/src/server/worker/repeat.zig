//! The part of a worker that sends the same bytes again and again on a quiet response.
const Exchange = @import("../exchange.zig").Exchange;
const Repeat = @import("../repeat.zig").Repeat;
const Lane = @import("../lane.zig").Lane;

pub fn Repeating(comptime W: type) type {
    return struct {
        /// Sends a copy of `bytes` as a piece of the body every `interval_ms` milliseconds, until the
        /// response ends; 0: ends that. Replaces earlier bytes. Nothing is sent while output is blocked.
        pub fn setRepeat(
            w: *W,
            exchange: *Exchange,
            bytes: []const u8,
            interval_ms: u32,
        ) error{ OutOfMemory, OutOfOrder }!void {
            if (!exchange.lane.session().responseStarted()) return error.OutOfOrder;
            const now = w.clock.now;
            const repeat = if (interval_ms > 0) try Repeat.create(w.gpa, bytes, interval_ms, now) else null;
            if (exchange.repeat) |old| old.destroy(w.gpa);
            exchange.repeat = repeat;
            if (w.pumping != exchange.lane) w.arm(exchange.lane);
        }

        /// Sends the repeated bytes once more.
        pub fn repeatDue(w: *W, lane: *Lane, exchange: *Exchange) void {
            const repeat = exchange.repeat.?;
            repeat.turn(w.clock.now);
            if (lane.out().state == .open) {
                exchange.copy(&w.pool, repeat.bytes(), .{}) catch
                    return w.fail(lane, .server_error);
                if (!w.send(lane)) return;
            }
            w.settle(lane);
        }
    };
}
