//! Received bytes that were not parsed yet: part of a head, a body that the host has not asked for, a
//! pipelined request. Input without bytes holds no memory.
const std = @import("std");
const assert = std.debug.assert;
const Pool = @import("pool.zig").Pool;

/// Received bytes that were not parsed yet, in at most one buffer of the pool.
pub const Input = struct {
    buffer: ?Pool.Buffer = null,
    start: u32 = 0,
    end: u32 = 0,

    /// The most bytes that one input can hold.
    pub const bytes_max = std.math.maxInt(u32);

    /// Whether there is nothing to parse.
    pub fn isEmpty(input: *const Input) bool {
        return input.start == input.end;
    }

    /// The unread bytes; valid until the next call that changes the input.
    pub fn unread(input: *const Input) []u8 {
        const buffer = input.buffer orelse return &.{};
        return buffer[input.start..input.end];
    }

    /// Bytes that fit without more memory.
    pub fn room(input: *const Input) usize {
        const buffer = input.buffer orelse return 0;
        return buffer.len - (input.end - input.start);
    }

    /// Adds received bytes behind the unread ones.
    pub fn append(input: *Input, pool: *Pool, bytes: []const u8) error{OutOfMemory}!void {
        const space = try input.reserve(pool, bytes.len);
        @memcpy(space[0..bytes.len], bytes);
        input.commit(bytes.len);
    }

    /// Returns at least `len` bytes behind the unread ones, to write to. `commit` then adds those that were
    /// written.
    pub fn reserve(input: *Input, pool: *Pool, len: usize) error{OutOfMemory}![]u8 {
        return input.reserveWithin(pool, len, std.math.maxInt(usize));
    }

    /// Like `reserve`, for input of at most `most` unread bytes: no memory beyond that is taken in advance.
    pub fn reserveWithin(input: *Input, pool: *Pool, len: usize, most: usize) error{OutOfMemory}![]u8 {
        const kept = input.end - input.start;
        const buffer = input.buffer orelse {
            assert(kept == 0);
            input.buffer = try pool.take(len);
            return input.buffer.?;
        };
        if (buffer.len - input.end >= len) return buffer[input.end..];
        if (input.start > 0) std.mem.copyForwards(u8, buffer[0..kept], buffer[input.start..input.end]);
        input.start = 0;
        input.end = kept;
        if (buffer.len - kept < len) {
            input.buffer = try pool.grow(buffer, kept, @max(kept + len, @min(buffer.len * 2, most)));
        }
        return input.buffer.?[kept..];
    }

    /// Whether `bytes` lie directly behind the unread bytes, within the buffer. Bytes behind the buffer's end
    /// belong to others.
    pub fn isBehind(input: *const Input, bytes: []const u8) bool {
        const buffer = input.buffer orelse return false;
        return bytes.len > 0 and bytes.ptr == buffer.ptr + input.end and bytes.len <= buffer.len - input.end;
    }

    /// Adds the first `len` bytes of the last `reserve` to the unread ones.
    pub fn commit(input: *Input, len: usize) void {
        input.end += @intCast(len);
        assert(input.end <= input.buffer.?.len);
    }

    /// Drops `len` bytes from the front. Without bytes left, the memory goes back to the pool.
    pub fn consume(input: *Input, pool: *Pool, len: usize) void {
        assert(len <= input.end - input.start);
        input.start += @intCast(len);
        if (input.isEmpty()) input.deinit(pool);
    }

    pub fn deinit(input: *Input, pool: *Pool) void {
        if (input.buffer) |buffer| pool.give(buffer);
        input.* = .{};
    }
};

test "bytes in the memory behind a buffer are none of its own" {
    var memory: [1024]u8 align(16) = undefined;
    var input: Input = .{ .buffer = memory[0..512], .end = 500 };
    try std.testing.expect(input.isBehind(memory[500..512]));
    try std.testing.expect(!input.isBehind(memory[500..513]));
    input.commit(12);
    try std.testing.expect(!input.isBehind(memory[512..600]));
}

test "bytes come out in order through growth and partial consumption" {
    var pool: Pool = .init(std.testing.allocator);
    defer pool.deinit();
    var input: Input = .{};
    var written: u8 = 0;
    var read: u8 = 0;
    for (0..400) |i| {
        var bytes: [97]u8 = undefined;
        for (bytes[0 .. i % 97]) |*byte| {
            byte.* = written;
            written +%= 1;
        }
        try input.append(&pool, bytes[0 .. i % 97]);
        const len = if (i % 7 == 6) input.unread().len else input.unread().len / 3;
        for (input.unread()[0..len]) |byte| {
            try std.testing.expectEqual(read, byte);
            read +%= 1;
        }
        input.consume(&pool, len);
        if (input.isEmpty()) try std.testing.expectEqual(0, pool.taken_bytes);
    }
    input.deinit(&pool);
    try std.testing.expectEqual(0, pool.taken_bytes);
}
