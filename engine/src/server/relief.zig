//! Decides when free memory is given back to the system: some time after a burst of queued output. A heap
//! keeps freed memory in case it is needed again, and keeps holes in it. The kernel clears pages that are
//! taken again, so memory is given back only when much is free, and only now and then. Does not know: heaps,
//! and the purpose of the memory.
const std = @import("std");
const assert = std.debug.assert;

/// A record of the bytes in use.
pub const Relief = struct {
    /// The most bytes in use since memory was given back.
    peak_bytes: usize = 0,
    /// Bytes in use at the last look; `before_bytes` is the value of the look before.
    last_bytes: usize = 0,
    before_bytes: usize = 0,
    /// The time at which memory is given back, in milliseconds; 0: it need not be given back.
    due_at: u64 = 0,
    /// The time at which memory was last given back, in milliseconds.
    done_at: u64 = 0,

    const worth_bytes = @import("config.zig").worker_limits.relief_worth_bytes;
    const delay_ms = @import("config.zig").worker_limits.relief_delay_ms;
    const interval_ms = @import("config.zig").worker_limits.relief_interval_ms;

    /// Notes that `bytes` are in use. True: the caller gives free memory back, and calls `end` or `postpone`.
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

    /// Notes that memory was given back. Strings that came back to their owners since the look before were
    /// not freed yet; their memory is given back another time.
    pub fn end(relief: *Relief, now: u64) void {
        assert(relief.due_at != 0 and now >= relief.due_at);
        relief.peak_bytes = @max(relief.last_bytes, relief.before_bytes);
        relief.due_at = 0;
        relief.done_at = now;
    }

    /// Gives memory back later, because the host asks for that.
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
    // Another burst ends within a second of the first one.
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
