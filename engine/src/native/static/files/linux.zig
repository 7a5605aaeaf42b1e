//! Job: those calls of files.zig that Linux has in its own way (man 2 openat2, statx).
//! Does not know: what files.zig makes of them.
const std = @import("std");
const linux = std.os.linux;
const files = @import("../files.zig");

/// How a folder is opened that is only to be a root.
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

/// The file systems that wait for nothing but a disk of this machine (man 2 statfs), by their magic numbers.
const local_kinds = [_]u32{
    0xEF53, // ext2, ext3, ext4
    0x58465342, // xfs
    0x9123683E, // btrfs
    0x01021994, // tmpfs
    0x858458F6, // ramfs, the kernel's first root
    0x794C7630, // overlayfs
    0xF2F52010, // f2fs
    0x2FC12FC1, // zfs
    0xCA451A4E, // bcachefs
    0x73717368, // squashfs
    0xE0F5E1E2, // erofs
    0x00004D44, // vfat
    0x2011BAB0, // exfat
    0x00009660, // iso9660
    0x3153464A, // jfs
    0x52654973, // reiserfs
};

/// Whether the file system of an open folder waits for nothing but this machine. What is not known does not:
/// NFS, SMB, FUSE, 9p, Ceph may wait for ever.
pub fn isLocal(folder: files.Fd) bool {
    var info: [16]usize = @splat(0);
    comptime std.debug.assert(@sizeOf(@TypeOf(info)) >= 120); // struct statfs
    const rc = linux.syscall2(.fstatfs, @bitCast(@as(isize, folder)), @intFromPtr(&info));
    if (linux.errno(rc) != .SUCCESS) return false;
    const kind: u32 = @truncate(info[0]);
    return std.mem.findScalar(u32, &local_kinds, kind) != null;
}

/// What the kernel tells of a file.
pub const Info = linux.Statx;

/// Looks at a name below a folder, or (null) at an open file.
pub fn look(fd: files.Fd, name: ?[*:0]const u8, info: *Info) usize {
    const wanted: linux.STATX = .{ .TYPE = true, .INO = true, .SIZE = true, .MTIME = true, .CTIME = true };
    return linux.statx(fd, name orelse "", if (name == null) linux.AT.EMPTY_PATH else 0, wanted, info);
}

/// Which file it was.
pub fn identity(info: *const Info) files.Identity {
    return .{
        .device = @as(u64, info.dev_major) << 32 | info.dev_minor,
        .inode = info.ino,
        .size = info.size,
        .modified_ns = files.nanoseconds(info.mtime),
        .changed_ns = files.nanoseconds(info.ctime),
    };
}
