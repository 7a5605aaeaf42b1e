//! An allocator that gives out a bounded number of bytes, so that parsing the input of a request cannot take
//! more. Does not know: where the memory comes from.
const std = @import("std");
const Alignment = std.mem.Alignment;

/// An allocator that gives out a limited number of bytes. Bytes that come back do not count, since an arena
/// keeps them.
pub const Bounded = struct {
    parent: std.mem.Allocator,
    /// Bytes that may still be allocated.
    left: usize,
    /// An allocation was refused.
    exhausted: bool = false,

    /// The bound as a `std.mem.Allocator`. The struct must not move while that is used.
    pub fn allocator(bounded: *Bounded) std.mem.Allocator {
        return .{
            .ptr = bounded,
            .vtable = &.{ .alloc = alloc, .resize = resize, .remap = remap, .free = free },
        };
    }

    fn spend(bounded: *Bounded, len: usize) bool {
        if (len > bounded.left) {
            bounded.exhausted = true;
            return false;
        }
        bounded.left -= len;
        return true;
    }

    fn alloc(context: *anyopaque, len: usize, alignment: Alignment, address: usize) ?[*]u8 {
        const bounded: *Bounded = @ptrCast(@alignCast(context));
        if (!bounded.spend(len)) return null;
        return bounded.parent.rawAlloc(len, alignment, address);
    }

    fn resize(context: *anyopaque, memory: []u8, alignment: Alignment, len: usize, address: usize) bool {
        const bounded: *Bounded = @ptrCast(@alignCast(context));
        if (!bounded.parent.rawResize(memory, alignment, @min(len, memory.len + bounded.left), address)) {
            return false;
        }
        if (len <= memory.len) return true;
        return bounded.spend(len - memory.len);
    }

    fn remap(context: *anyopaque, memory: []u8, alignment: Alignment, len: usize, address: usize) ?[*]u8 {
        return if (resize(context, memory, alignment, len, address)) memory.ptr else null;
    }

    fn free(context: *anyopaque, memory: []u8, alignment: Alignment, address: usize) void {
        const bounded: *Bounded = @ptrCast(@alignCast(context));
        bounded.parent.rawFree(memory, alignment, address);
    }
};

test "no more than its bound, whether asked at once or bit by bit" {
    var arena: std.heap.ArenaAllocator = .init(std.testing.allocator);
    defer arena.deinit();
    var bounded: Bounded = .{ .parent = arena.allocator(), .left = 1000 };
    const gpa = bounded.allocator();
    _ = try gpa.alloc(u8, 400);
    try std.testing.expectError(error.OutOfMemory, gpa.alloc(u8, 601));
    try std.testing.expect(bounded.exhausted);
    var list: std.ArrayList(u8) = .empty;
    const full = for (0..10_000) |_| {
        list.append(gpa, 1) catch break true;
    } else false;
    try std.testing.expect(full and list.items.len <= 600 and list.items.len > 100);
}
