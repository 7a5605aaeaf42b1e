//! Structs that C shares with the library, and that grow at their ends from version to version. Each begins
//! with the size that its owner compiled it with: bytes behind that size are not touched, and fields that the
//! library does not know are passed over.
const std = @import("std");

/// The beginning of every such struct. Functions take a pointer to this, because no more may be there.
pub const Header = extern struct { size: u32 };

/// A copy of the struct that begins with `given`. Fields that do not lie within its size have their defaults.
pub fn read(comptime T: type, given: *const Header) T {
    if (given.size >= @sizeOf(T)) return @as(*const T, @ptrCast(@alignCast(given))).*;
    var result: T = .{ .size = given.size };
    const from: [*]const u8 = @ptrCast(given);
    inline for (@typeInfo(T).@"struct".field_names) |name| {
        const at = @offsetOf(T, name);
        const field = std.mem.asBytes(&@field(result, name));
        if (at + field.len <= given.size) @memcpy(field, from[at..][0..field.len]);
    }
    return result;
}

/// The struct behind `given` in an array whose owner compiled its elements with `given.size`.
pub fn next(given: *const Header) *const Header {
    const from: [*]const u8 = @ptrCast(given);
    return @ptrCast(@alignCast(from + given.size));
}

/// Fills the struct that begins with `out` from `value`, as far as it goes; its size stays.
pub fn write(comptime T: type, out: *Header, value: T) void {
    const size = out.size;
    const len = @min(size, @sizeOf(T));
    const to: [*]u8 = @ptrCast(out);
    @memcpy(to[0..len], std.mem.asBytes(&value)[0..len]);
    if (len >= @sizeOf(Header)) out.size = size;
}

const Sample = extern struct { size: u32, small: u16 = 7, large: u64 = 8, last: u32 = 9 };

test "fields outside of the caller's size have their defaults, and nothing there is read" {
    const linux = std.os.linux;
    const page = std.heap.page_size_min;
    const pages = try std.testing.allocator.alignedAlloc(u8, .fromByteUnits(page), 2 * page);
    defer std.testing.allocator.free(pages);
    try std.testing.expectEqual(.SUCCESS, linux.errno(linux.mprotect(pages.ptr + page, page, .{})));
    defer _ = linux.mprotect(pages.ptr + page, page, .{ .READ = true, .WRITE = true });
    const full: Sample = .{ .size = 0, .small = 1, .large = 2, .last = 3 };
    for ([_]struct { usize, Sample }{
        .{ 4, .{ .size = 4 } },
        .{ 8, .{ .size = 8, .small = 1 } },
        .{ 12, .{ .size = 12, .small = 1 } },
        .{ 16, .{ .size = 16, .small = 1, .large = 2 } },
        .{ 24, .{ .size = 24, .small = 1, .large = 2, .last = 3 } },
    }) |case| {
        const size, const wanted = case;
        const given = pages[page - size ..][0..size];
        @memcpy(given, std.mem.asBytes(&full)[0..size]);
        const header: *Header = @ptrCast(@alignCast(given.ptr));
        header.size = @intCast(size);
        try std.testing.expectEqual(wanted, read(Sample, header));
        write(Sample, header, .{ .size = 99, .small = 4, .large = 5, .last = 6 });
        try std.testing.expectEqual(size, header.size);
        if (size > 4) try std.testing.expectEqual(4, std.mem.readInt(u16, given[4..6], .native));
    }
}

test "a caller with a longer struct is read as far as we know it" {
    const Longer = extern struct { known: Sample, more: u64 };
    const longer: Longer = .{ .known = .{ .size = @sizeOf(Longer), .small = 1 }, .more = 5 };
    const given = read(Sample, @ptrCast(&longer));
    try std.testing.expectEqual(1, given.small);
    try std.testing.expectEqual(8, given.large);
}
