//! The memory of one request: freed all at once when the request is over, made of buffers from the worker's pool, so that after
//! warm-up it never touches the heap. Holds nothing between requests.
//! Refuses to know: who allocates, and what.
const std = @import("std");
const assert = std.debug.assert;
const Alignment = std.mem.Alignment;
const Pool = @import("pool.zig").Pool;

/// An allocator over pool buffers. One thread; never moves while its allocator is in use.
pub const Arena = struct {
    pool: *Pool,
    /// The block that is being filled; older ones hang behind it.
    block: ?*Block = null,
    /// First free byte of `block`.
    at: usize = 0,

    const Block = struct {
        older: ?*Block,
        buffer: Pool.Buffer,
    };

    /// The first block of a request, in bytes: the headers and the body of an ordinary answer fit.
    const block_min = 1024;
    /// Blocks double up to this, in bytes; a larger allocation gets a block of its own size.
    const block_max = 64 * 1024;

    pub fn init(pool: *Pool) Arena {
        return .{ .pool = pool };
    }

    /// Gives every block back. What was allocated is gone.
    pub fn reset(arena: *Arena) void {
        while (arena.block) |block| {
            arena.block = block.older;
            arena.pool.give(block.buffer);
        }
        arena.at = 0;
    }

    /// The face that std's containers want. Good until `reset`.
    pub fn allocator(arena: *Arena) std.mem.Allocator {
        return .{ .ptr = arena, .vtable = &.{ .alloc = alloc, .resize = resize, .remap = remap, .free = free } };
    }

    /// A copy of `bytes` that lives until `reset`.
    pub fn keep(arena: *Arena, bytes: []const u8) error{OutOfMemory}![]u8 {
        const space = try arena.bytesOf(bytes.len, .@"1");
        @memcpy(space[0..bytes.len], bytes);
        return space[0..bytes.len];
    }

    fn bytesOf(arena: *Arena, len: usize, alignment: Alignment) error{OutOfMemory}![*]u8 {
        if (arena.block) |block| {
            const start = alignedStart(block, arena.at, alignment);
            if (start <= block.buffer.len and len <= block.buffer.len - start) {
                arena.at = start + len;
                return block.buffer.ptr + start;
            }
        }
        try arena.grow(len, alignment);
        const block = arena.block.?;
        const start = alignedStart(block, arena.at, alignment);
        arena.at = start + len;
        assert(arena.at <= block.buffer.len);
        return block.buffer.ptr + start;
    }

    fn alignedStart(block: *const Block, at: usize, alignment: Alignment) usize {
        const base = @intFromPtr(block.buffer.ptr);
        return alignment.forward(base + at) - base;
    }

    fn grow(arena: *Arena, len: usize, alignment: Alignment) error{OutOfMemory}!void {
        const doubled = if (arena.block) |block| @min(block.buffer.len * 2, block_max) else block_min;
        const needed = std.math.add(usize, len, @sizeOf(Block) + alignment.toByteUnits()) catch return error.OutOfMemory;
        const buffer = try arena.pool.take(@max(doubled, needed));
        const block: *Block = @ptrCast(buffer.ptr);
        block.* = .{ .older = arena.block, .buffer = buffer };
        arena.block = block;
        arena.at = @sizeOf(Block);
    }

    fn isLast(arena: *const Arena, memory: []u8) bool {
        const block = arena.block orelse return false;
        return @intFromPtr(memory.ptr) + memory.len == @intFromPtr(block.buffer.ptr) + arena.at;
    }

    fn alloc(context: *anyopaque, len: usize, alignment: Alignment, _: usize) ?[*]u8 {
        const arena: *Arena = @ptrCast(@alignCast(context));
        return arena.bytesOf(len, alignment) catch null;
    }

    /// Only the newest allocation can grow; any can shrink.
    fn resize(context: *anyopaque, memory: []u8, _: Alignment, new_len: usize, _: usize) bool {
        const arena: *Arena = @ptrCast(@alignCast(context));
        if (!arena.isLast(memory)) return new_len <= memory.len;
        const start = arena.at - memory.len;
        if (new_len > arena.block.?.buffer.len - start) return false;
        arena.at = start + new_len;
        return true;
    }

    fn remap(context: *anyopaque, memory: []u8, alignment: Alignment, new_len: usize, return_address: usize) ?[*]u8 {
        return if (resize(context, memory, alignment, new_len, return_address)) memory.ptr else null;
    }

    fn free(context: *anyopaque, memory: []u8, _: Alignment, _: usize) void {
        const arena: *Arena = @ptrCast(@alignCast(context));
        if (arena.isLast(memory)) arena.at -= memory.len;
    }
};

const testing = std.testing;

test "an arena serves every size and alignment, and gives all of it back" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    var arena: Arena = .init(&pool);
    const gpa = arena.allocator();
    for (0..3) |_| {
        var random: std.Random.DefaultPrng = .init(7);
        var sum: usize = 0;
        for (0..200) |i| {
            const bytes = try gpa.alloc(u8, random.random().uintLessThan(usize, 3000));
            @memset(bytes, @truncate(i));
            const words = try gpa.alignedAlloc(u64, .@"64", i);
            try testing.expect(@intFromPtr(words.ptr) % 64 == 0);
            @memset(words, i);
            for (bytes) |byte| try testing.expectEqual(@as(u8, @truncate(i)), byte);
            sum += bytes.len;
        }
        try testing.expect(sum > 100_000);
        arena.reset();
        try testing.expectEqual(0, pool.taken_bytes);
    }
}

test "the second request of a kind allocates nothing" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    var arena: Arena = .init(&pool);
    var warm: u64 = 0;
    for (0..5) |turn| {
        var list: std.ArrayList(u8) = .empty;
        for (0..20_000) |i| try list.append(arena.allocator(), @truncate(i));
        _ = try arena.keep("some text");
        arena.reset();
        if (turn == 0) warm = pool.allocations;
    }
    try testing.expectEqual(warm, pool.allocations);
}

test "a list that is the newest allocation grows in place" {
    var pool: Pool = .init(testing.allocator);
    defer pool.deinit();
    var arena: Arena = .init(&pool);
    defer arena.reset();
    const bytes = try arena.allocator().alloc(u8, 10);
    try testing.expect(arena.allocator().resize(bytes, 500));
    const longer = bytes.ptr[0..500];
    const other = try arena.allocator().alloc(u8, 1);
    try testing.expect(!arena.allocator().resize(longer, 600));
    try testing.expect(@intFromPtr(other.ptr) >= @intFromPtr(longer.ptr) + 500);
    try testing.expectError(error.OutOfMemory, arena.allocator().alloc(u8, std.math.maxInt(usize) - 100));
}
