//! The system calls about files that this room needs (man 2 openat2, statx, pread). A missing file is an ordinary answer here, so
//! failures are few and coarse.
//! Refuses to know: HTTP.
const std = @import("std");
const linux = std.os.linux;

pub const Fd = linux.fd_t;

/// Why a file or folder cannot be opened.
pub const OpenError = error{
    /// There is none, or it is none of ours: outside the root, forbidden, a loop of links, a name that is too long.
    NotFound,
    /// This process or machine has no descriptors or memory left for now.
    Exhausted,
};

/// Which file in which state: two equal ones have the same contents.
pub const Identity = struct {
    device: u64,
    inode: u64,
    /// Bytes.
    size: u64,
    /// Nanoseconds since 1970; negative before.
    modified_ns: i128,
    /// The last change of anything, as the kernel counts it; nobody can set it back.
    changed_ns: i128,

    /// Seconds since 1970 of the last change of the contents; null if HTTP has no date for it.
    pub fn modifiedSeconds(identity: *const Identity) ?u64 {
        const seconds = @divFloor(identity.modified_ns, std.time.ns_per_s);
        if (seconds < 0 or seconds > @import("protocol").http.date.epoch_seconds_max) return null;
        return @intCast(seconds);
    }
};

/// What a name stands for.
pub const Status = struct {
    kind: enum { regular, folder, other },
    identity: Identity,
};

/// An open file and what was known of it when it was opened.
pub const File = struct {
    fd: Fd,
    status: Status,

    /// Gives the descriptor back.
    pub fn close(file: File) void {
        _ = linux.close(file.fd);
    }
};

/// Opens a folder by its path, as a root for `openBelow`.
pub fn openRoot(path: [*:0]const u8) OpenError!Fd {
    const rc = linux.openat(linux.AT.FDCWD, path, .{ .ACCMODE = .RDONLY, .DIRECTORY = true, .CLOEXEC = true, .PATH = true }, 0);
    return @intCast(try checked(rc));
}

/// Opens a name below a root for reading. The kernel sees to it that no link leads out of the root.
pub fn openBelow(root: Fd, name: [*:0]const u8) OpenError!File {
    const how: OpenHow = .{
        // Without O_NONBLOCK a named pipe would wait for its writer.
        .flags = @as(u32, @bitCast(linux.O{ .ACCMODE = .RDONLY, .CLOEXEC = true, .NONBLOCK = true, .NOCTTY = true })),
        .resolve = resolve_beneath | resolve_no_magic_links,
    };
    while (true) {
        const rc = linux.syscall4(.openat2, @bitCast(@as(isize, root)), @intFromPtr(name), @intFromPtr(&how), @sizeOf(OpenHow));
        // EAGAIN: something was renamed while the kernel looked, so it cannot vouch for the result.
        switch (linux.errno(rc)) {
            .INTR, .AGAIN => continue,
            else => return describe(@intCast(try checked(rc))),
        }
    }
}

/// Opens a file by its path, wherever links lead.
pub fn open(path: [*:0]const u8) OpenError!File {
    const rc = linux.openat(linux.AT.FDCWD, path, .{ .ACCMODE = .RDONLY, .CLOEXEC = true, .NONBLOCK = true, .NOCTTY = true }, 0);
    return describe(@intCast(try checked(rc)));
}

/// struct open_how of man 2 openat2.
const OpenHow = extern struct { flags: u64, mode: u64 = 0, resolve: u64 };
const resolve_no_magic_links = 0x02;
const resolve_beneath = 0x08;

fn checked(rc: usize) OpenError!usize {
    return switch (linux.errno(rc)) {
        .SUCCESS => rc,
        .MFILE, .NFILE, .NOMEM => error.Exhausted,
        else => error.NotFound,
    };
}

fn describe(fd: Fd) OpenError!File {
    errdefer _ = linux.close(fd);
    return .{ .fd = fd, .status = try lookAt(fd) };
}

/// Looks at a name below a root without opening it. Follows links wherever they lead: good for comparing with what `openBelow` has
/// opened, not for deciding what may be served.
pub fn look(root: Fd, name: [*:0]const u8) OpenError!Status {
    return statusOf(root, name, 0);
}

/// Looks at an open file again.
pub fn lookAt(fd: Fd) OpenError!Status {
    return statusOf(fd, "", linux.AT.EMPTY_PATH);
}

fn statusOf(fd: Fd, name: [*:0]const u8, flags: u32) OpenError!Status {
    var info: linux.Statx = undefined;
    const wanted: linux.STATX = .{ .TYPE = true, .INO = true, .SIZE = true, .MTIME = true, .CTIME = true };
    _ = try checked(linux.statx(fd, name, flags, wanted, &info));
    return .{
        .kind = if (linux.S.ISREG(info.mode)) .regular else if (linux.S.ISDIR(info.mode)) .folder else .other,
        .identity = .{
            .device = @as(u64, info.dev_major) << 32 | info.dev_minor,
            .inode = info.ino,
            .size = info.size,
            .modified_ns = nanoseconds(info.mtime),
            .changed_ns = nanoseconds(info.ctime),
        },
    };
}

fn nanoseconds(time: linux.statx_timestamp) i128 {
    return @as(i128, time.sec) * std.time.ns_per_s + time.nsec;
}

/// Reads from `offset` until `buffer` is full or the file ends; the part that was filled. Null: it cannot be read.
pub fn readAll(fd: Fd, buffer: []u8, offset: u64) ?[]u8 {
    var filled: usize = 0;
    while (filled < buffer.len) {
        const rc = linux.pread(fd, buffer.ptr + filled, buffer.len - filled, @intCast(offset + filled));
        switch (linux.errno(rc)) {
            .SUCCESS => {},
            .INTR => continue,
            else => return null,
        }
        if (rc == 0) break;
        filled += rc;
    }
    return buffer[0..filled];
}

/// Seconds since 1970.
pub fn now() u64 {
    var time: linux.timespec = undefined;
    _ = linux.clock_gettime(.REALTIME_COARSE, &time);
    return @intCast(@max(time.sec, 0));
}

const testing = std.testing;

test "nothing is opened outside the root, whatever links say" {
    var tmp = testing.tmpDir(.{});
    defer tmp.cleanup();
    const dir = tmp.dir;
    const io = testing.io;
    try dir.createDir(io, "root", .default_dir);
    try dir.writeFile(io, .{ .sub_path = "secret", .data = "secret" });
    try dir.writeFile(io, .{ .sub_path = "root/file", .data = "12345" });
    try dir.symLink(io, "file", "root/inside", .{});
    try dir.symLink(io, "../secret", "root/outside", .{});
    try dir.symLink(io, "/etc/passwd", "root/absolute", .{});
    var path_buffer: [200]u8 = undefined;
    const path = try std.fmt.bufPrintSentinel(&path_buffer, ".zig-cache/tmp/{s}/root", .{tmp.sub_path}, 0);
    const root = try openRoot(path);
    defer _ = linux.close(root);
    const file = try openBelow(root, "file");
    defer file.close();
    try testing.expectEqual(5, file.status.identity.size);
    try testing.expectEqual(.regular, file.status.kind);
    try testing.expectEqual(file.status, try look(root, "inside"));
    try testing.expectError(error.NotFound, look(root, "missing"));
    var buffer: [10]u8 = undefined;
    try testing.expectEqualStrings("345", readAll(file.fd, &buffer, 2).?);
    const linked = try openBelow(root, "inside");
    linked.close();
    const folder = try openBelow(root, ".");
    defer folder.close();
    try testing.expectEqual(.folder, folder.status.kind);
    try testing.expectEqual(null, readAll(folder.fd, &buffer, 0));
    for ([_][*:0]const u8{ "outside", "absolute", "../secret", "missing", "file/x" }) |name| {
        try testing.expectError(error.NotFound, openBelow(root, name));
    }
}
