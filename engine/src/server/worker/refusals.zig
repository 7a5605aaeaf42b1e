//! The part of a worker that logs requests and messages which it refuses: at most a line a second for each
//! limit, with the limit's name.
const std = @import("std");
const Refusal = @import("protocol").Refusal;
const Lane = @import("../lane.zig").Lane;
const tally = @import("../tally.zig");
const Cause = tally.Cause;
const trace = @import("../trace.zig");

pub fn Refusals(comptime W: type) type {
    return struct {
        /// Logs a refused request. Short memory, too many connections and a server that stops are logged
        /// elsewhere.
        pub fn tellRefused(w: *W, lane: *const Lane, refusal: Refusal, in_body: bool) void {
            trace.refused(lane, refusal.status, refusal.detail);
            const cause: Cause = switch (refusal.status) {
                408 => if (in_body) .body_ms else .head_ms,
                413 => .body_bytes_max,
                414 => .request_line_bytes_max,
                431 => causeOfSize(lane, refusal, in_body),
                429, 503, 507 => return,
                else => .request,
            };
            tellOf(w, lane, cause, refusal.status, refusal.detail);
        }

        fn causeOfSize(lane: *const Lane, refusal: Refusal, in_body: bool) Cause {
            if (in_body) return .trailer_bytes_max;
            if (lane.isStream()) return .h2_list_bytes_max;
            const is_count = std.mem.eql(u8, refusal.detail, "too many fields");
            return if (is_count) .header_count_max else .head_bytes_max;
        }

        /// Like `tellRefused`, with the cause. `status`: that of the response, or the close code of a
        /// WebSocket.
        pub fn tellOf(
            w: *W,
            lane: *const Lane,
            cause: Cause,
            status: u16,
            detail: []const u8,
        ) void {
            tellBy(w, &w.troubles.refused, lane, cause, status, detail);
        }

        /// Like `tellOf`, with counts of the caller's own (`refused`), at most a line a second for each
        /// cause.
        pub fn tellBy(
            w: *W,
            refused: *tally.Refused,
            lane: *const Lane,
            cause: Cause,
            status: u16,
            detail: []const u8,
        ) void {
            const others = refused.getPtr(cause).add(w.clock.now) orelse return;
            var buffer: [384]u8 = undefined;
            const limit, const see = if (cause == .request) .{ "", "" } else .{ @tagName(cause), ", see " };
            w.say(.info, &buffer, "Refused with {d} (connection {d}, {s}): {s}{s}{s}{f}", .{
                status, lane.transport.number, lane.transport.peerName(), detail, see, limit, others,
            });
        }
    };
}
