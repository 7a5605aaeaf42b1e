//! The memory of one request: freed all at once when the request is over, made of buffers from the worker's
//! pool, so that after warm-up it never touches the heap. Holds no buffer between requests.
//! Does not know: who allocates, and what.
const std = @import("std");
const assert = std.debug.assert;
const Alignment = std.mem.Alignment;
const Pool = @import("server").Pool;

/// An allocator over memory of its own and pool buffers. One thread; never moves while its
/// allocator is in use.
pub const Arena = struct {
    pool: *Pool,
    /// Memory that is being filled: `first`, or the newest block.
    memory: []u8,
    /// First free byte of `memory`.
    at: usize,
    /// The newest block; older ones hang behind it.
    block: ?*Block,
    /// The headers and the body of a small answer fit here, without a look at the pool.
    first: [first_bytes]u8,

    const first_bytes = 512;

    const Block = struct {
        older: ?*Block,
        buffer: Pool.Buffer,
    };

    /// The first block of a request that needs one, in bytes.
    const block_min = 1024;
    /// Blocks double up to this, in bytes; a larger allocation gets a block of its own size.
    const block_max = 64 * 1024;

    /// Makes the arena empty and ready. The struct may be undefined before.
    pub fn begin(arena: *Arena, pool: *Pool) void {
        arena.pool = pool;
        arena.memory = &arena.first;
        arena.at = 0;
        arena.block = null;
    }

    /// Gives every block back: all allocations end.
    pub fn reset(arena: *Arena) void {
        while (arena.block) |block| {
            arena.block = block.older;
            arena.pool.give(block.buffer);
        }
        arena.memory = &arena.first;
        arena.at = 0;
    }

    /// The arena as a `std.mem.Allocator`. Allocations live until `reset`.
    pub fn allocator(arena: *Arena) std.mem.Allocator {
        return .{
            .ptr = arena,
            .vtable = &.{ .alloc = alloc, .resize = resize, .remap = remap, .free = free },
        };
    }

    /// A copy of `bytes` that lives until `reset`.
    pub fn keep(arena: *Arena, bytes: []const u8) error{OutOfMemory}![]u8 {
        const copy = try arena.space(bytes.len);
        @memcpy(copy, bytes);
        return copy;
    }

    /// `len` bytes that live until `reset`, at any address.
    pub inline fn space(arena: *Arena, len: usize) error{OutOfMemory}![]u8 {
        if (len > arena.memory.len - arena.at) try arena.grow(len, .@"1");
        const start = arena.at;
        arena.at += len;
        return arena.memory[start..arena.at];
    }

    /// `memory` with `len` more bytes behind it: where it is if it is the newest allocation and there is
    /// room, or else elsewhere.
    pub fn extended(arena: *Arena, memory: []u8, len: usize) error{OutOfMemory}![]u8 {
        if (arena.isLast(memory) and len <= arena.memory.len - arena.at) {
            arena.at += len;
            return memory.ptr[0 .. memory.len + len];
        }
        const moved = try arena.space(memory.len + len);
        @memcpy(moved[0..memory.len], memory);
        return moved;
    }

    /// Takes back the last `len` bytes of the newest allocation.
    pub fn shrink(arena: *Arena, len: usize) void {
        arena.at -= len;
    }

    fn bytesOf(arena: *Arena, len: usize, alignment: Alignment) error{OutOfMemory}![*]u8 {
        var start = arena.alignedStart(alignment);
        if (start > arena.memory.len or len > arena.memory.len - start) {
            try arena.grow(len, alignment);
            start = arena.alignedStart(alignment);
        }
        arena.at = start + len;
        assert(arena.at <= arena.memory.len);
        return arena.memory.ptr + start;
    }

    fn alignedStart(arena: *const Arena, alignment: Alignment) usize {
        const base = @intFromPtr(arena.memory.ptr);
        return alignment.forward(base + arena.at) - base;
    }

    noinline fn grow(arena: *Arena, len: usize, alignment: Alignment) error{OutOfMemory}!void {
        const doubled = if (arena.block) |block| @min(block.buffer.len * 2, block_max) else block_min;
        const needed = std.math.add(usize, len, @sizeOf(Block) + alignment.toByteUnits()) catch
            return error.OutOfMemory;
        const buffer = try arena.pool.take(@max(doubled, needed));
        const block: *Block = @ptrCast(buffer.ptr);
        block.* = .{ .older = arena.block, .buffer = buffer };
        arena.block = block;
        arena.memory = buffer;
        arena.at = @sizeOf(Block);
    }

    fn isLast(arena: *const Arena, memory: []u8) bool {
        return @intFromPtr(memory.ptr) + memory.len == @intFromPtr(arena.memory.ptr) + arena.at;
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
        if (new_len > arena.memory.len - start) return false;
        arena.at = start + new_len;
        return true;
    }

    fn remap(
        context: *anyopaque,
        memory: []u8,
        alignment: Alignment,
        new_len: usize,
        return_address: usize,
    ) ?[*]u8 {
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
    var arena: Arena = undefined;
    arena.begin(&pool);
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
    var arena: Arena = undefined;
    arena.begin(&pool);
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
    var arena: Arena = undefined;
    arena.begin(&pool);
    defer arena.reset();
    const bytes = try arena.allocator().alloc(u8, 10);
    try testing.expect(arena.allocator().resize(bytes, 500));
    const longer = bytes.ptr[0..500];
    const other = try arena.allocator().alloc(u8, 1);
    try testing.expect(!arena.allocator().resize(longer, 600));
    try testing.expect(@intFromPtr(other.ptr) >= @intFromPtr(longer.ptr) + 500);
    try testing.expectError(error.OutOfMemory, arena.allocator().alloc(u8, std.math.maxInt(usize) - 100));
}
