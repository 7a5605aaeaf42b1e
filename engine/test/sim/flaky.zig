//! An allocator that has no memory now and then, for histories in which a machine runs out of it.
const std = @import("std");
const Allocator = std.mem.Allocator;

pub const Flaky = struct {
    child: Allocator,
    random: std.Random,
    /// Allocations out of 1000 that fail.
    permille: u16 = 0,

    pub fn allocator(flaky: *Flaky) Allocator {
        return .{
            .ptr = flaky,
            .vtable = &.{ .alloc = alloc, .resize = resize, .remap = remap, .free = free },
        };
    }

    fn fails(flaky: *Flaky) bool {
        return flaky.permille > 0 and flaky.random.uintLessThan(u16, 1000) < flaky.permille;
    }

    fn of(context: *anyopaque) *Flaky {
        return @ptrCast(@alignCast(context));
    }

    fn alloc(context: *anyopaque, len: usize, alignment: std.mem.Alignment, address: usize) ?[*]u8 {
        const flaky = of(context);
        return if (flaky.fails()) null else flaky.child.rawAlloc(len, alignment, address);
    }

    fn resize(
        context: *anyopaque,
        memory: []u8,
        alignment: std.mem.Alignment,
        len: usize,
        address: usize,
    ) bool {
        const flaky = of(context);
        return (len <= memory.len or !flaky.fails()) and
            flaky.child.rawResize(memory, alignment, len, address);
    }

    fn remap(
        context: *anyopaque,
        memory: []u8,
        alignment: std.mem.Alignment,
        len: usize,
        address: usize,
    ) ?[*]u8 {
        const flaky = of(context);
        return if (len > memory.len and flaky.fails())
            null
        else
            flaky.child.rawRemap(memory, alignment, len, address);
    }

    fn free(context: *anyopaque, memory: []u8, alignment: std.mem.Alignment, address: usize) void {
        of(context).child.rawFree(memory, alignment, address);
    }
};
