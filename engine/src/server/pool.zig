//! Buffers whose sizes are powers of two, which are kept for reuse, so that a worker rarely uses the heap.
//! Buffers beyond `keep_bytes_max` go back to the heap, so that one burst does not hold memory for ever.
const std = @import("std");
const builtin = @import("builtin");
const assert = std.debug.assert;
const Loans = @import("loan.zig").Loans;

/// Free lists of buffers, by size.
pub const Pool = struct {
    gpa: std.mem.Allocator,
    /// The allocator of buffers with at least `long_min` bytes, which are not kept; null: `gpa`.
    long: ?std.mem.Allocator = null,
    free: [class_count]?*Link = @splat(null),
    kept_bytes: usize = 0,
    taken_bytes: usize = 0,
    allocations: u64 = 0,
    /// Bytes that lie in no buffer, because their owner lends them.
    loans: Loans = .{},

    /// The sizes of the smallest and the largest buffer that is kept; larger ones go back to the heap.
    pub const size_min = 512;
    pub const size_max = size_min << (class_count - 1);
    /// The size from which buffers come from `long`.
    pub const long_min = 32 * 1024;
    const class_count = 12; // 512 B .. 1 MiB: a body that is gathered in memory
    const keep_bytes_max = @import("config.zig").worker_limits.pool_kept_bytes_max;

    const Link = struct { next: ?*Link };
    pub const alignment: std.mem.Alignment = .@"16";
    pub const Buffer = []align(16) u8;

    pub fn init(gpa: std.mem.Allocator) Pool {
        return .{ .gpa = gpa };
    }

    pub fn deinit(pool: *Pool) void {
        assert(pool.taken_bytes == 0 and !pool.loans.any());
        for (&pool.free, 0..) |*head, class| {
            while (head.*) |link| {
                head.* = link.next;
                pool.discard(bufferOf(link, @intCast(class)));
            }
        }
        pool.* = undefined;
    }

    /// A buffer of at least `bytes`. `give` must get it back with its whole length.
    pub fn take(pool: *Pool, bytes: usize) error{OutOfMemory}!Buffer {
        if (bytes > size_max) return pool.allocate(bytes);
        const class = classOf(bytes);
        const link = pool.free[class] orelse return pool.allocate(sizeOf(class));
        pool.free[class] = link.next;
        const buffer = bufferOf(link, class);
        pool.kept_bytes -= buffer.len;
        pool.taken_bytes += buffer.len;
        return buffer;
    }

    noinline fn allocate(pool: *Pool, bytes: usize) error{OutOfMemory}!Buffer {
        @branchHint(.cold);
        // `alignedAlloc` and `free` fill memory in optimised builds with checks, which would cost as much as
        // copying a large body.
        const memory = pool.sourceOf(bytes).rawAlloc(bytes, alignment, @returnAddress()) orelse
            return error.OutOfMemory;
        const buffer: Buffer = @alignCast(memory[0..bytes]);
        if (fills) @memset(buffer, undefined);
        pool.allocations += 1;
        pool.taken_bytes += buffer.len;
        return buffer;
    }

    fn sourceOf(pool: *const Pool, len: usize) std.mem.Allocator {
        return if (len >= long_min) pool.long orelse pool.gpa else pool.gpa;
    }

    /// A buffer of at least `bytes` in place of a smaller one, with a copy of its first `kept` bytes. On an
    /// error the smaller buffer is unchanged.
    pub fn grow(pool: *Pool, buffer: Buffer, kept: usize, bytes: usize) error{OutOfMemory}!Buffer {
        assert(bytes > buffer.len);
        // The kernel can move pages without a copy, and then no bytes are in memory twice.
        const len = if (bytes > size_max) bytes else sizeOf(classOf(bytes));
        if (buffer.len > size_max or pool.isLong(buffer)) {
            if (pool.sourceOf(buffer.len).rawRemap(buffer, alignment, len, @returnAddress())) |memory| {
                const larger: Buffer = @alignCast(memory[0..len]);
                if (fills) @memset(larger[buffer.len..], undefined);
                pool.taken_bytes += larger.len - buffer.len;
                return larger;
            }
        }
        const larger = try pool.take(bytes);
        @memcpy(larger[0..kept], buffer[0..kept]);
        pool.give(buffer);
        return larger;
    }

    /// Takes a buffer back, with the length that `take` or `grow` returned.
    pub fn give(pool: *Pool, buffer: Buffer) void {
        assert(pool.taken_bytes >= buffer.len);
        pool.taken_bytes -= buffer.len;
        const goes = buffer.len > size_max or pool.isLong(buffer);
        if (goes or pool.kept_bytes + buffer.len > keep_bytes_max) return pool.discard(buffer);
        const class = classOf(buffer.len);
        assert(sizeOf(class) == buffer.len);
        const link: *Link = @ptrCast(buffer.ptr);
        link.next = pool.free[class];
        pool.free[class] = link;
        pool.kept_bytes += buffer.len;
    }

    /// Ends the pool's count of a buffer, whose holder frees it with the allocator.
    pub fn forget(pool: *Pool, buffer: Buffer) void {
        assert(pool.taken_bytes >= buffer.len);
        pool.taken_bytes -= buffer.len;
    }

    noinline fn discard(pool: *Pool, buffer: Buffer) void {
        @branchHint(.cold);
        if (fills) @memset(buffer, undefined);
        pool.sourceOf(buffer.len).rawFree(buffer, alignment, @returnAddress());
    }

    fn isLong(pool: *const Pool, buffer: Buffer) bool {
        return buffer.len >= long_min and pool.long != null;
    }

    /// Debug builds fill buffers, so that reads of bytes show which were never written or belong to a free
    /// buffer.
    const fills = builtin.optimize == .debug;

    /// The memory of all buffers, taken and kept, in bytes.
    pub fn memoryBytes(pool: *const Pool) usize {
        return pool.kept_bytes + pool.taken_bytes;
    }

    fn classOf(bytes: usize) u4 {
        if (bytes <= size_min) return 0;
        // The exponent of the next power of two: the number of bits of `bytes - 1`.
        return @intCast(@bitSizeOf(usize) - @clz(bytes - 1) - comptime std.math.log2_int(usize, size_min));
    }

    fn sizeOf(class: u4) usize {
        return @as(usize, size_min) << class;
    }

    fn bufferOf(link: *Link, class: u4) Buffer {
        const bytes: [*]align(16) u8 = @ptrCast(@alignCast(link));
        return bytes[0..sizeOf(class)];
    }
};

test "a given buffer is taken again without the heap" {
    var pool: Pool = .init(std.testing.allocator);
    defer pool.deinit();
    const first = try pool.take(600);
    try std.testing.expectEqual(1024, first.len);
    pool.give(first);
    const second = try pool.take(1024);
    try std.testing.expectEqual(first.ptr, second.ptr);
    try std.testing.expectEqual(1, pool.allocations);
    pool.give(second);
}

test "a buffer that grows keeps its bytes" {
    var pool: Pool = .init(std.testing.allocator);
    defer pool.deinit();
    var buffer = try pool.take(1);
    buffer[0] = 'x';
    while (buffer.len < 16 * Pool.size_max) buffer = try pool.grow(buffer, 1, buffer.len * 2);
    try std.testing.expectEqual('x', buffer[0]);
    try std.testing.expectEqual(buffer.len, pool.taken_bytes);
    pool.give(buffer);
}

test "every size from nothing to beyond the largest class comes back whole" {
    var pool: Pool = .init(std.testing.allocator);
    defer pool.deinit();
    for ([_]usize{ 0, 1, 511, 512, 513, 4096, 4097, Pool.size_max, Pool.size_max + 1 }) |bytes| {
        const buffer = try pool.take(bytes);
        try std.testing.expect(buffer.len >= bytes);
        @memset(buffer, 0xaa);
        pool.give(buffer);
    }
    try std.testing.expectEqual(0, pool.taken_bytes);
}
