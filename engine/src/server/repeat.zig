//! Bytes that are sent again at an interval: comments that keep a quiet event stream from being taken for
//! dead. Does not know: their meaning and their framing.
const std = @import("std");
const assert = std.debug.assert;

pub const Repeat = struct {
    interval_ms: u32,
    due_at: u64,
    /// The length of the bytes, which lie behind this struct.
    len: usize,

    /// Copies the bytes; they are due in `interval_ms` for the first time.
    pub fn create(
        gpa: std.mem.Allocator,
        content: []const u8,
        interval_ms: u32,
        now: u64,
    ) error{OutOfMemory}!*Repeat {
        assert(interval_ms > 0);
        const memory = try gpa.alignedAlloc(u8, .of(Repeat), @sizeOf(Repeat) + content.len);
        const repeat: *Repeat = @ptrCast(memory.ptr);
        repeat.* = .{ .interval_ms = interval_ms, .due_at = now + interval_ms, .len = content.len };
        @memcpy(memory[@sizeOf(Repeat)..], content);
        return repeat;
    }

    /// Frees the repeat and its copy of the bytes.
    pub fn destroy(repeat: *Repeat, gpa: std.mem.Allocator) void {
        const memory: [*]align(@alignOf(Repeat)) u8 = @ptrCast(repeat);
        gpa.free(memory[0 .. @sizeOf(Repeat) + repeat.len]);
    }

    pub fn bytes(repeat: *const Repeat) []const u8 {
        const memory: [*]const u8 = @ptrCast(repeat);
        return memory[@sizeOf(Repeat)..][0..repeat.len];
    }

    /// Restarts the interval, because the response sends bytes of its own.
    pub fn postpone(repeat: *Repeat, now: u64) void {
        repeat.due_at = now + repeat.interval_ms;
    }

    /// Sets the next time, because the bytes are sent now.
    pub fn turn(repeat: *Repeat, now: u64) void {
        assert(now >= repeat.due_at);
        repeat.due_at = now + repeat.interval_ms;
    }
};

test "a copy that comes due at its interval" {
    const repeat = try Repeat.create(std.testing.allocator, ":ping\n\n", 1000, 50);
    defer repeat.destroy(std.testing.allocator);
    try std.testing.expectEqualStrings(":ping\n\n", repeat.bytes());
    try std.testing.expectEqual(1050, repeat.due_at);
    repeat.turn(1060);
    try std.testing.expectEqual(2060, repeat.due_at);
    repeat.postpone(1500);
    try std.testing.expectEqual(2500, repeat.due_at);
}
