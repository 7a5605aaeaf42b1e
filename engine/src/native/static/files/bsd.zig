//! The calls of files.zig that FreeBSD and macOS have in their own way (man 2 open, fstat).
//! Does not know: what files.zig makes of them.
const std = @import("std");
const builtin = @import("builtin");
const c = std.c;
const files = @import("../files.zig");

/// Flags to open a folder that serves only as the root of paths.
pub const root_flags: c.O = .{ .ACCMODE = .RDONLY, .DIRECTORY = true, .CLOEXEC = true };
/// The wall clock.
pub const coarse_clock: c.clockid_t = .REALTIME;

/// Opens a name below a root. FreeBSD follows links as long as they stay below it (O_RESOLVE_BENEATH). macOS
/// opens only a path without any link (O_NOFOLLOW_ANY) and without "..".
pub fn openBelow(root: files.Fd, name: [*:0]const u8, flags: c.O) c_int {
    if (builtin.os.tag == .freebsd) {
        var beneath = flags;
        beneath.RESOLVE_BENEATH = true;
        return c.openat(root, name, beneath);
    }
    if (leads(std.mem.span(name))) {
        c._errno().* = @backingInt(c.E.NOENT);
        return -1;
    }
    const nofollow_any: u32 = 0x20000000;
    return c.openat(root, name, @as(c.O, @bitCast(@as(u32, @bitCast(flags)) | nofollow_any)));
}

/// Whether a path may lead out of where it starts, even without links.
fn leads(path: []const u8) bool {
    if (path.len > 0 and path[0] == '/') return true;
    var parts = std.mem.splitScalar(u8, path, '/');
    while (parts.next()) |part| if (std.mem.eql(u8, part, "..")) return true;
    return false;
}

/// The kernel's facts about a file.
pub const Info = c.Stat;

/// Looks at a name below a folder, or (null) at an open file.
pub fn look(fd: files.Fd, name: ?[*:0]const u8, info: *Info) c_int {
    return if (name) |below| c.fstatat(fd, below, info, 0) else c.fstat(fd, info);
}

/// The identity of the file.
pub fn identity(info: *const Info) files.Identity {
    return .{
        .device = if (builtin.os.tag == .freebsd) info.dev else @as(u32, @bitCast(info.dev)),
        .inode = info.ino,
        .size = @intCast(info.size),
        .modified_ns = files.nanoseconds(info.mtime()),
        .changed_ns = files.nanoseconds(info.ctime()),
    };
}
