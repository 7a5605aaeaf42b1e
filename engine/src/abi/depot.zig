//! Memory of an engine for long bodies: a body is received into it, and the application reads the body where
//! it lies, so that nothing copies it on its way to an interpreter. An interpreter of another process maps
//! the memory for reading only. Does not know: whose the bodies are, and when they are read (lent.zig).
const std = @import("std");
const assert = std.debug.assert;
const builtin = @import("builtin");
const api_limits = @import("peregrine").api_limits;
const io = @import("peregrine").io;

/// Bytes of a depot. Only bytes that were ever used take memory.
pub const bytes = api_limits.depot_bytes;
/// Bodies begin at multiples of this number of bytes.
const unit_bytes = api_limits.depot_unit_bytes;
/// The most bodies at the same time.
pub const pieces_max = bytes / unit_bytes;
const Units = @import("units.zig").Units(pieces_max, unit_bytes);

pub const alignment = std.heap.page_size_min;

comptime {
    assert(bytes % unit_bytes == 0 and unit_bytes % alignment == 0);
}

/// Used by the engine's thread only. Never moves while it has given out an allocator.
pub const Depot = struct {
    /// The allocator that `allocator` falls back to when the depot has no room for a body.
    heap: std.mem.Allocator,
    home: Home,
    units: Units = .{},
    /// Units from the first one on that may take memory, whether they are taken or not.
    touched: usize = 0,
    /// When `rest` found the depot empty and larger than what is kept, in milliseconds; null: it is in use.
    idle_since: ?u64 = null,

    const Home = union(enum) {
        /// The application is a thread of this process.
        own: []align(alignment) u8,
        /// Other processes map the memory by the descriptor, which does not let them write.
        shared: struct { memory: io.sharing.Memory, readable: i32 },
    };

    /// Units whose memory is kept while the depot is empty, so that bodies that come one by one find it.
    const kept_units = api_limits.depot_kept_bytes / unit_bytes;

    /// Makes a depot for an application in this process.
    pub fn initOwn(heap: std.mem.Allocator) error{OutOfMemory}!Depot {
        // A page takes physical memory when it is written first, so nothing fills the depot here.
        const memory = pages.rawAlloc(bytes, .fromByteUnits(alignment), @returnAddress()) orelse
            return error.OutOfMemory;
        return .{ .heap = heap, .home = .{ .own = @alignCast(memory[0..bytes]) } };
    }

    /// Makes a depot for applications in other processes.
    pub fn initShared(heap: std.mem.Allocator) io.sharing.Error!Depot {
        const memory, const readable = try io.sharing.Memory.createReadable(bytes);
        return .{ .heap = heap, .home = .{ .shared = .{ .memory = memory, .readable = readable } } };
    }

    /// Frees an empty depot's memory.
    pub fn deinit(depot: *Depot) void {
        assert(depot.units.taken.count() == 0);
        switch (depot.home) {
            .own => |memory| pages.rawFree(memory, .fromByteUnits(alignment), @returnAddress()),
            .shared => |shared| {
                shared.memory.close();
                io.file.close(shared.readable);
            },
        }
        depot.* = undefined;
    }

    const pages = std.heap.page_allocator;

    fn whole(depot: *const Depot) []align(alignment) u8 {
        return switch (depot.home) {
            .own => |memory| memory,
            .shared => |shared| shared.memory.bytes,
        };
    }

    /// The depot as an interpreter in this process sees it.
    pub fn view(depot: *const Depot) []align(alignment) const u8 {
        return depot.whole();
    }

    /// The descriptor by which other processes map the memory, closed with the depot; null: there is none.
    pub fn descriptor(depot: *const Depot) ?i32 {
        return switch (depot.home) {
            .own => null,
            .shared => |shared| shared.readable,
        };
    }

    /// The offset of bytes in the depot; null: they lie elsewhere.
    pub fn offsetOf(depot: *const Depot, piece: []const u8) ?u64 {
        const begin = @intFromPtr(depot.whole().ptr);
        const at = @intFromPtr(piece.ptr);
        if (at < begin or at >= begin + bytes) return null;
        assert(piece.len <= begin + bytes - at);
        return at - begin;
    }

    /// Allocates from the depot, and from the heap what finds no room there.
    pub fn allocator(depot: *Depot) std.mem.Allocator {
        return .{ .ptr = depot, .vtable = &.{
            .alloc = alloc,
            .resize = resize,
            .remap = remap,
            .free = free,
        } };
    }

    fn of(context: *anyopaque) *Depot {
        return @ptrCast(@alignCast(context));
    }

    fn alloc(context: *anyopaque, len: usize, wanted: std.mem.Alignment, ret_addr: usize) ?[*]u8 {
        const depot = of(context);
        const count = Units.of(len);
        const first = depot.units.findRoom(count) orelse return depot.heap.rawAlloc(len, wanted, ret_addr);
        assert(len > 0 and wanted.toByteUnits() <= alignment);
        depot.take(first, count);
        return depot.whole().ptr + first * unit_bytes;
    }

    fn take(depot: *Depot, first: usize, count: usize) void {
        depot.units.take(first, count);
        depot.touched = @max(depot.touched, first + count);
        depot.invariants();
    }

    /// Makes room for more of a body where it lies; false: there is none.
    fn resize(
        context: *anyopaque,
        memory: []u8,
        wanted: std.mem.Alignment,
        len: usize,
        ret_addr: usize,
    ) bool {
        const depot = of(context);
        const offset = depot.offsetOf(memory) orelse
            return depot.heap.rawResize(memory, wanted, len, ret_addr);
        const first: usize = @intCast(offset / unit_bytes);
        const before, const after = .{ Units.of(memory.len), Units.of(len) };
        assert(after >= before);
        if (!depot.units.isFree(first + before, after - before)) return false;
        depot.take(first + before, after - before);
        return true;
    }

    fn remap(
        context: *anyopaque,
        memory: []u8,
        wanted: std.mem.Alignment,
        len: usize,
        ret_addr: usize,
    ) ?[*]u8 {
        const depot = of(context);
        if (depot.offsetOf(memory) == null) return depot.heap.rawRemap(memory, wanted, len, ret_addr);
        return if (resize(context, memory, wanted, len, ret_addr)) memory.ptr else null;
    }

    fn free(context: *anyopaque, memory: []u8, wanted: std.mem.Alignment, ret_addr: usize) void {
        const depot = of(context);
        const offset = depot.offsetOf(memory) orelse return depot.heap.rawFree(memory, wanted, ret_addr);
        depot.units.give(@intCast(offset / unit_bytes), Units.of(memory.len));
        depot.invariants();
    }

    /// Gives memory back that no body has needed for `depot_idle_ms`. To be called from time to time. `now`
    /// in milliseconds. Returns after how many milliseconds to call again; null: not before a body comes.
    pub fn rest(depot: *Depot, now: u64) ?u64 {
        if (depot.touched <= kept_units or depot.units.taken.findFirstSet() != null) {
            depot.idle_since = null;
            return null;
        }
        const since = depot.idle_since orelse now;
        depot.idle_since = since;
        if (now -| since < api_limits.depot_idle_ms) return since + api_limits.depot_idle_ms - now;
        const idle = depot.whole()[kept_units * unit_bytes .. depot.touched * unit_bytes];
        switch (depot.home) {
            .own => io.memory.giveBack(@alignCast(idle)),
            .shared => io.sharing.Memory.giveBack(@alignCast(idle)),
        }
        depot.touched = kept_units;
        depot.idle_since = null;
        return null;
    }

    pub fn invariants(depot: *const Depot) void {
        assert(depot.touched <= pieces_max);
        if (builtin.is_test) if (depot.units.taken.findLastSet()) |last| assert(last < depot.touched);
    }
};

const testing = std.testing;

test "bodies lie apart from each other at the lowest place, grow where they lie, and the heap has the rest" {
    var depot: Depot = try .initOwn(testing.allocator);
    defer depot.deinit();
    const gpa = depot.allocator();
    const one = try gpa.alloc(u8, unit_bytes);
    const two = try gpa.alloc(u8, 2 * unit_bytes - 1);
    try testing.expectEqual(0, depot.offsetOf(one).?);
    try testing.expectEqual(unit_bytes, depot.offsetOf(two).?);
    try testing.expectEqual(unit_bytes + 9, depot.offsetOf(two[9..20]).?);
    try testing.expect(!gpa.resize(one, 2 * unit_bytes));
    try testing.expect(gpa.resize(two, 5 * unit_bytes));
    gpa.free(one);
    const large = try gpa.alloc(u8, bytes - 6 * unit_bytes);
    try testing.expectEqual(6 * unit_bytes, depot.offsetOf(large).?);
    const outside = try gpa.alloc(u8, 2 * unit_bytes);
    try testing.expectEqual(null, depot.offsetOf(outside));
    const again = try gpa.alloc(u8, 1);
    try testing.expectEqual(0, depot.offsetOf(again).?);
    @memset(outside, 1);
    gpa.free(outside);
    gpa.free(again);
    gpa.free(large);
    gpa.free(two.ptr[0 .. 5 * unit_bytes]);
}

/// Whether the kernel frees shared pages: QEMU's emulation of a processor ignores MADV_REMOVE.
fn kernelFreesShared() !bool {
    if (!io.sharing.is_supported) return false;
    const linux = std.os.linux;
    const page = try std.posix.mmap(null, std.heap.pageSize(), .{ .READ = true, .WRITE = true }, .{
        .TYPE = .SHARED,
        .ANONYMOUS = true,
    }, -1, 0);
    defer std.posix.munmap(page);
    page[0] = 'x';
    _ = linux.madvise(page.ptr, page.len, linux.MADV.REMOVE);
    return page[0] == 0;
}

test "memory goes back when no body has needed it for a while, and comes again as zeros" {
    var own: Depot = try .initOwn(testing.allocator);
    try rests(&own);
    if (!try kernelFreesShared()) return;
    var shared: Depot = try .initShared(testing.allocator);
    try rests(&shared);
}

fn rests(depot: *Depot) !void {
    defer depot.deinit();
    const gpa = depot.allocator();
    try testing.expectEqual(null, depot.rest(5));
    const body = gpa.rawAlloc(bytes, .@"1", 0).?;
    @memset(body[0..bytes], 'x');
    try testing.expectEqual(null, depot.rest(10));
    gpa.rawFree(body[0..bytes], .@"1", 0);
    try testing.expectEqual(api_limits.depot_idle_ms, depot.rest(20).?);
    try testing.expectEqual(api_limits.depot_idle_ms - 5, depot.rest(25).?);
    try testing.expectEqual('x', body[bytes - 1]);
    try testing.expectEqual(null, depot.rest(20 + api_limits.depot_idle_ms));
    try testing.expectEqual('x', body[0]);
    try testing.expectEqual(0, body[bytes - 1]);
    try testing.expectEqual(null, depot.rest(1 << 40));
}

test "another process reads what is written, and cannot write" {
    if (!io.sharing.is_supported) return error.SkipZigTest;
    var depot: Depot = try .initShared(testing.allocator);
    defer depot.deinit();
    const body = try depot.allocator().alloc(u8, 100);
    defer depot.allocator().free(body);
    const other: io.sharing.Readable = try .open(depot.descriptor().?, bytes);
    defer other.close();
    @memcpy(body[0..4], "text");
    try testing.expectEqualStrings("text", other.bytes[@intCast(depot.offsetOf(body).?)..][0..4]);
    try testing.expectError(error.Unexpected, io.sharing.Memory.open(depot.descriptor().?, bytes));
    const longer = io.sharing.Readable.open(depot.descriptor().?, bytes + alignment);
    try testing.expectError(error.Malformed, longer);
}
