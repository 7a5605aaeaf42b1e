//! The system calls about files that static files need; where the systems differ, files/linux.zig
//! and files/bsd.zig have the same names. A missing file is an ordinary answer here, so failures
//! are few and coarse.
//! Does not know: HTTP.
const std = @import("std");
const is_linux = @import("builtin").os.tag == .linux;
const system = if (is_linux) std.os.linux else std.c;
const here = if (is_linux) @import("files/linux.zig") else @import("files/bsd.zig");
const errno = if (is_linux) std.os.linux.errno else std.c.errno;

pub const Fd = system.fd_t;

/// Why a file or folder cannot be opened.
pub const OpenError = error{
    /// The file does not exist, or may not be served: outside the root, forbidden, a loop of links, a name
    /// that is too long.
    NotFound,
    /// The process or the machine has no descriptors or memory left for now.
    Exhausted,
    /// Another process holds a lease on the file that is still being broken, or names kept changing while the
    /// kernel looked: the file may be there in a second.
    Busy,
};

/// The identity of a file in one state: equal identities have the same contents.
pub const Identity = struct {
    device: u64,
    inode: u64,
    /// The size in bytes.
    size: u64,
    /// Nanoseconds since 1970; negative before.
    modified_ns: i128,
    /// The last change of contents or attributes, in nanoseconds since 1970; no program can set it back.
    changed_ns: i128,

    /// Seconds since 1970 of the last change of the contents; null if HTTP has no date for it.
    pub fn modifiedSeconds(identity: *const Identity) ?u64 {
        const seconds = @divFloor(identity.modified_ns, std.time.ns_per_s);
        if (seconds < 0 or seconds > @import("protocol").http.date.epoch_seconds_max) return null;
        return @intCast(seconds);
    }
};

/// The kind and the state of a file or folder.
pub const Status = struct {
    kind: enum { regular, folder, other },
    identity: Identity,
};

/// An open file and what was known of it when it was opened.
pub const File = struct {
    fd: Fd,
    status: Status,

    /// Closes the file.
    pub fn close(file: File) void {
        closeFd(file.fd);
    }
};

/// Closes a descriptor.
pub fn closeFd(fd: Fd) void {
    _ = system.close(fd);
}

/// Without O_NONBLOCK a named pipe would wait for its writer.
const reading: system.O = .{ .ACCMODE = .RDONLY, .CLOEXEC = true, .NONBLOCK = true, .NOCTTY = true };
const no_mode: c_uint = 0;

/// Opens a folder by its path, as a root for `openBelow`.
pub fn openRoot(path: [*:0]const u8) OpenError!Fd {
    return @intCast(try checked(system.openat(system.AT.FDCWD, path, here.root_flags, no_mode)));
}

/// Whether the file system of an open folder waits for nothing but this machine, and not for a network or
/// another process.
pub const isLocal = @import("io").file.isLocal;

/// The most attempts to open a file. An attempt fails because of a rename, which is over at once, or a lease,
/// which may stay for most of a minute (/proc/sys/fs/lease-break-time) and is not waited for.
const tries_max = 4;

/// Opens a name below a root for reading. The kernel sees to it that no link leads out of the root.
pub fn openBelow(root: Fd, name: [*:0]const u8) OpenError!File {
    return tryToOpen(here.openBelow, .{ root, name, reading });
}

/// Opens a file by its path, wherever links lead.
pub fn open(path: [*:0]const u8) OpenError!File {
    return tryToOpen(system.openat, .{ system.AT.FDCWD, path, reading, no_mode });
}

inline fn tryToOpen(call: anytype, arguments: anytype) OpenError!File {
    for (0..tries_max) |_| {
        const rc = @call(.auto, call, arguments);
        switch (errno(rc)) {
            .INTR, .AGAIN => {},
            else => return describe(@intCast(try checked(rc))),
        }
    }
    return error.Busy;
}

fn checked(rc: anytype) OpenError!@TypeOf(rc) {
    return switch (errno(rc)) {
        .SUCCESS => rc,
        .MFILE, .NFILE, .NOMEM => error.Exhausted,
        .INTR, .AGAIN => error.Busy,
        else => error.NotFound,
    };
}

fn describe(fd: Fd) OpenError!File {
    errdefer closeFd(fd);
    return .{ .fd = fd, .status = try lookAt(fd) };
}

/// Looks at a name below a root without opening it. Follows links wherever they lead: good for comparing with
/// what `openBelow` has opened, not for deciding what may be served.
pub fn look(root: Fd, name: [*:0]const u8) OpenError!Status {
    return statusOf(root, name);
}

/// Looks at an open file again.
pub fn lookAt(fd: Fd) OpenError!Status {
    return statusOf(fd, null);
}

fn statusOf(fd: Fd, name: ?[*:0]const u8) OpenError!Status {
    var info: here.Info = undefined;
    _ = try checked(here.look(fd, name, &info));
    return .{
        .kind = if (system.S.ISREG(info.mode))
            .regular
        else if (system.S.ISDIR(info.mode))
            .folder
        else
            .other,
        .identity = here.identity(&info),
    };
}

/// A time of the kernel in nanoseconds.
pub fn nanoseconds(time: anytype) i128 {
    return @as(i128, time.sec) * std.time.ns_per_s + time.nsec;
}

/// Reads from `offset` until `buffer` is full or the file ends; the part that was filled. Null: the file
/// cannot be read.
pub fn readAll(fd: Fd, buffer: []u8, offset: u64) ?[]u8 {
    var filled: usize = 0;
    while (filled < buffer.len) {
        const rc = system.pread(fd, buffer.ptr + filled, buffer.len - filled, @intCast(offset + filled));
        switch (errno(rc)) {
            .SUCCESS => {},
            .INTR => continue,
            else => return null,
        }
        if (rc == 0) break;
        filled += @intCast(rc);
    }
    return buffer[0..filled];
}

/// Seconds since 1970.
pub fn now() u64 {
    var time: system.timespec = undefined;
    _ = system.clock_gettime(here.coarse_clock, &time);
    return @intCast(@max(time.sec, 0));
}

/// Whether a change at this time (nanoseconds since 1970) is so long ago that the next change has another
/// time: the kernel's clock moves in ticks, and two changes within one tick look the same.
pub fn isSettled(changed_ns: i128) bool {
    return changed_ns < (@as(i128, now()) - 1) * std.time.ns_per_s;
}

const testing = std.testing;

test "no file is opened outside the root, whatever links say" {
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
    defer closeFd(root);
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
