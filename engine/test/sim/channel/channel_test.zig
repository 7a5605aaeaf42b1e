//! The C API over a channel whose two threads are played by a schedule: thousands of histories
//! (history.zig), each from one number.
//!
//! A failure prints its seed. PEREGRINE_SEED replays one; PEREGRINE_SEEDS says how many are run,
//! PEREGRINE_SEED_FIRST from which on.
const std = @import("std");
const history = @import("history.zig");
const testing = std.testing;

const seeds_default = 2_000;

fn number(name: []const u8) !?u64 {
    const text = testing.environ.getPosix(name) orelse return null;
    return try std.fmt.parseInt(u64, text, 10);
}

test "every history ends as it should, and as it does without a thread" {
    const only = try number("PEREGRINE_SEED");
    const first = only orelse try number("PEREGRINE_SEED_FIRST") orelse 0;
    const count = if (only != null) 1 else try number("PEREGRINE_SEEDS") orelse seeds_default;
    for (first..first + count) |seed| both(seed) catch |err| {
        std.debug.print(
            "\nseed {d}: {t}; PEREGRINE_SEED={d} zig build sim-channel replays it\n",
            .{ seed, err, seed },
        );
        return err;
    };
}

fn both(seed: u64) !void {
    var behind = try history.run(seed, .channel);
    defer behind.deinit();
    var inside = try history.run(seed, .own_thread);
    defer inside.deinit();
    if (!behind.calm) return;
    for (behind.records, inside.records) |*one, *other| try one.expectSame(other);
}
