//! When memory is worth giving back to the system: some time after a burst of queued output is over. A heap
//! keeps what was freed, in the hope that it is wanted again, and holes in it for ever. Giving pages back
//! costs their clearing when they are wanted again, so it is done when much is free, and now and then only.
//! Does not know: heaps, and the purpose of the memory.
const std = @import("std");
const assert = std.debug.assert;

/// Watches how much memory is in use.
pub const Relief = struct {
    /// The most that was in use since memory was given back.
    peak_bytes: usize = 0,
    /// Bytes in use at the last look, and at the look before.
    last_bytes: usize = 0,
    before_bytes: usize = 0,
    /// When memory is given back; 0: there is no need.
    due_at: u64 = 0,
    /// When memory was last given back.
    done_at: u64 = 0,

    const worth_bytes = @import("config.zig").worker_limits.relief_worth_bytes;
    const delay_ms = @import("config.zig").worker_limits.relief_delay_ms;
    const interval_ms = @import("config.zig").worker_limits.relief_interval_ms;

    /// `bytes` are in use now. True: it is time to give free memory back, and to call `end` or `postpone`.
    pub fn look(relief: *Relief, bytes: usize, now: u64) bool {
        assert(relief.last_bytes <= relief.peak_bytes);
        relief.before_bytes = relief.last_bytes;
        relief.last_bytes = bytes;
        relief.peak_bytes = @max(relief.peak_bytes, bytes);
        if (relief.due_at == 0) {
            if (relief.peak_bytes - bytes < worth_bytes) return false;
            relief.due_at = @max(now + delay_ms, relief.done_at + interval_ms);
        }
        return now >= relief.due_at;
    }

    /// Memory was given back. Owners have not yet freed strings that came back to them since the look before:
    /// their memory is given back another time.
    pub fn end(relief: *Relief, now: u64) void {
        assert(relief.due_at != 0 and now >= relief.due_at);
        relief.peak_bytes = @max(relief.last_bytes, relief.before_bytes);
        relief.due_at = 0;
        relief.done_at = now;
    }

    /// The host asks for a later relief.
    pub fn postpone(relief: *Relief, now: u64) void {
        assert(relief.due_at != 0);
        relief.due_at = now + delay_ms;
    }
};

test "memory is given back once, after a burst" {
    const mib = 1024 * 1024;
    var relief: Relief = .{};
    try std.testing.expect(!relief.look(0, 10_000));
    try std.testing.expect(!relief.look(15 * mib, 10_001));
    try std.testing.expect(!relief.look(0, 10_002));
    try std.testing.expectEqual(0, relief.due_at);
    try std.testing.expect(!relief.look(500 * mib, 10_003));
    try std.testing.expect(!relief.look(400 * mib, 10_004));
    try std.testing.expect(!relief.look(5 * mib, 10_103));
    try std.testing.expect(relief.look(5 * mib, 10_104));
    relief.end(10_104);
    try std.testing.expect(!relief.look(0, 10_105));
    // The next burst ends within the same second.
    try std.testing.expect(!relief.look(100 * mib, 10_200));
    try std.testing.expect(!relief.look(0, 10_201));
    try std.testing.expect(!relief.look(0, 11_103));
    try std.testing.expect(relief.look(0, 11_104));
    relief.end(11_104);
    try std.testing.expectEqual(0, relief.due_at);
}

test "memory that comes back in the round of a relief is given back later" {
    const mib = 1024 * 1024;
    var relief: Relief = .{};
    try std.testing.expect(!relief.look(240 * mib, 10_000));
    try std.testing.expect(!relief.look(220 * mib, 10_001));
    try std.testing.expect(relief.look(0, 10_101));
    relief.end(10_101);
    try std.testing.expect(!relief.look(0, 10_102));
    try std.testing.expect(!relief.look(0, 11_100));
    try std.testing.expect(relief.look(0, 11_101));
    relief.end(11_101);
    try std.testing.expect(!relief.look(0, 12_200));
    try std.testing.expectEqual(0, relief.due_at);
}

test "a host that is not ready is asked again" {
    const mib = 1024 * 1024;
    var relief: Relief = .{};
    try std.testing.expect(!relief.look(100 * mib, 10_000));
    try std.testing.expect(!relief.look(0, 10_001));
    try std.testing.expect(relief.look(0, 10_101));
    relief.postpone(10_101);
    try std.testing.expect(!relief.look(0, 10_200));
    try std.testing.expect(relief.look(0, 10_201));
    relief.end(10_201);
    try std.testing.expectEqual(0, relief.due_at);
}
