//! The calls of files.zig that Linux has in its own way (man 2 openat2, statx).
//! Does not know: what files.zig makes of them.
const std = @import("std");
const linux = std.os.linux;
const files = @import("../files.zig");

/// Flags to open a folder that serves only as the root of paths: its entries are not read.
pub const root_flags: linux.O = .{ .ACCMODE = .RDONLY, .DIRECTORY = true, .CLOEXEC = true, .PATH = true };
/// The wall clock, up to one tick late.
pub const coarse_clock: linux.clockid_t = .REALTIME_COARSE;

/// struct open_how of man 2 openat2.
const OpenHow = extern struct { flags: u64, mode: u64 = 0, resolve: u64 };
const resolve_no_magic_links = 0x02;
const resolve_beneath = 0x08;

/// Opens a name below a root. EAGAIN: something was renamed while the kernel looked, so it cannot
/// vouch for the result.
pub fn openBelow(root: files.Fd, name: [*:0]const u8, flags: linux.O) usize {
    const how: OpenHow = .{
        .flags = @as(u32, @bitCast(flags)),
        .resolve = resolve_beneath | resolve_no_magic_links,
    };
    return linux.syscall4(
        .openat2,
        @bitCast(@as(isize, root)),
        @intFromPtr(name),
        @intFromPtr(&how),
        @sizeOf(OpenHow),
    );
}

/// The kernel's facts about a file.
pub const Info = linux.Statx;

/// Looks at a name below a folder, or (null) at an open file.
pub fn look(fd: files.Fd, name: ?[*:0]const u8, info: *Info) usize {
    const wanted: linux.STATX = .{ .TYPE = true, .INO = true, .SIZE = true, .MTIME = true, .CTIME = true };
    return linux.statx(fd, name orelse "", if (name == null) linux.AT.EMPTY_PATH else 0, wanted, info);
}

/// The identity of the file.
pub fn identity(info: *const Info) files.Identity {
    return .{
        .device = @as(u64, info.dev_major) << 32 | info.dev_minor,
        .inode = info.ino,
        .size = info.size,
        .modified_ns = files.nanoseconds(info.mtime),
        .changed_ns = files.nanoseconds(info.ctime),
    };
}
