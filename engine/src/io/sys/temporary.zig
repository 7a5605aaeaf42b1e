//! Job: system calls of temporary files: files without a name, which the system deletes when their last
//! descriptor is closed. The calls may wait for a disk. Does not know: the content of files.
const std = @import("std");
const builtin = @import("builtin");
const sys = @import("../sys.zig");
const is_linux = builtin.os.tag == .linux;
const system = if (is_linux) std.os.linux else std.c;
const errno = sys.errno;
const Fd = sys.Fd;
const Moved = sys.Moved;

/// Creates a file in a folder, to read and write. Closed on exec and in forks.
pub fn create(folder: [*:0]const u8) Moved {
    if (is_linux) {
        const nameless = sys.made(system.open(folder, .{
            .ACCMODE = .RDWR,
            .TMPFILE = true,
            .DIRECTORY = true,
            .CLOEXEC = true,
            .EXCL = true, // the file can never get a name
        }, mode));
        if (nameless == .done or !isUnknown(nameless.failed)) return sys.owned(nameless);
    }
    return sys.owned(createNamed(folder));
}

/// Only the creator may read and write the file.
const mode: c_uint = 0o600;

/// Returns true if the errno says that the file system has no files without a name.
fn isUnknown(code: sys.E) bool {
    return code == .OPNOTSUPP or code == .ISDIR or code == .INVAL;
}

/// Creates a file with a name that cannot be guessed, and removes the name at once.
fn createNamed(folder: [*:0]const u8) Moved {
    const attempts_max = 10;
    var failure: sys.E = .EXIST;
    for (0..attempts_max) |_| {
        var buffer: [path_bytes_max]u8 = undefined;
        const seed = sys.randomSeed() orelse return .{ .failed = .AGAIN };
        const path = std.fmt.bufPrintSentinel(&buffer, "{s}/peregrine-{x}", .{ folder, seed }, 0) catch
            return .{ .failed = .NAMETOOLONG };
        const made = sys.made(system.open(path, .{
            .ACCMODE = .RDWR,
            .CREAT = true,
            .EXCL = true,
            .CLOEXEC = true,
            .NOFOLLOW = true,
        }, mode));
        if (made == .done) {
            _ = sys.unlink(path);
            return made;
        }
        failure = made.failed;
        if (failure != .EXIST) break;
    }
    return .{ .failed = failure };
}

/// The longest path of a temporary file, in bytes.
const path_bytes_max = 4096;

/// Writes at an offset of a file.
pub fn writeAt(fd: Fd, bytes: []const u8, offset: u64) Moved {
    while (true) {
        const rc = system.pwrite(fd, bytes.ptr, bytes.len, @intCast(offset));
        return switch (errno(rc)) {
            .SUCCESS => .{ .done = @intCast(rc) },
            .INTR => continue,
            else => |code| .{ .failed = code },
        };
    }
}

test "a temporary file has no name, with and without the kernel's help" {
    const folder = "/tmp";
    inline for (.{ create, createNamed }) |make| {
        const fd: Fd = @intCast(make(folder).done);
        defer _ = system.close(fd);
        try std.testing.expectEqual(5, writeAt(fd, "bytes", 0).done);
        var buffer: [10]u8 = undefined;
        try std.testing.expectEqual(4, sys.readFileAt(fd, &buffer, 1).done);
        if (!is_linux) continue;
        var info: std.os.linux.Statx = undefined;
        const wanted: std.os.linux.STATX = .{ .NLINK = true, .MODE = true };
        try std.testing.expectEqual(0, std.os.linux.statx(fd, "", std.os.linux.AT.EMPTY_PATH, wanted, &info));
        try std.testing.expectEqual(0, info.nlink);
        try std.testing.expectEqual(0o600, info.mode & 0o777);
    }
    inline for (.{ create, createNamed }) |make| {
        try std.testing.expectEqual(sys.E.NOENT, make("/nonexistent/folder").failed);
    }
}
