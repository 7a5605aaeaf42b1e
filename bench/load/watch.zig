//! Notices when a core stands still because its machine took it away, as a host does with a virtual one:
//! what waited meanwhile says nothing about the server. A thread on that core, first in its line,
//! wants to wake every so often; waking late is the proof. Does not know: what else runs there.
const std = @import("std");
const net = @import("net.zig");

/// A core that is taken away for longer has been stopped: some forty requests come meanwhile.
pub const stopped_ns = 250 * std.time.ns_per_us;
/// Often enough, at 2 to 3 % of the core.
const period_ns = 100 * std.time.ns_per_us;

/// How often the core has been stopped so far. Does not move once started; the thread ends with the process.
pub const Watch = struct {
    stops: std.atomic.Value(u64) = .init(0),

    /// Begins to watch; the right to run before all others (CAP_SYS_NICE) is needed, else waking late
    /// would prove nothing.
    pub fn start(watch: *Watch, core: u16) !void {
        var begun: Start = .{};
        const thread = try std.Thread.spawn(.{}, run, .{ watch, core, &begun });
        thread.detach();
        while (begun.outcome.load(.acquire) == .unknown) net.sleepUntil(net.now() + std.time.ns_per_ms);
        if (begun.outcome.load(.acquire) == .refused) return error.CannotWatch;
    }

    const Start = struct {
        outcome: std.atomic.Value(Outcome) = .init(.unknown),

        const Outcome = enum(u8) { unknown, watching, refused };
    };

    fn run(watch: *Watch, core: u16, begun: *Start) void {
        net.runFirstOn(core) catch return begun.outcome.store(.refused, .release);
        begun.outcome.store(.watching, .release);
        var wanted = net.now();
        while (true) {
            wanted += period_ns;
            net.sleepUntil(wanted);
            const now = net.now();
            if (isStop(wanted, now)) _ = watch.stops.fetchAdd(1, .release);
            wanted = @max(wanted, now);
        }
    }

    fn isStop(wanted: u64, now: u64) bool {
        return now > wanted + stopped_ns;
    }
};

test "waking late is a stop" {
    try std.testing.expect(!Watch.isStop(1000, 1000 + stopped_ns));
    try std.testing.expect(Watch.isStop(1000, 1001 + stopped_ns));
}
