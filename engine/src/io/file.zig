//! Functions for open files: size, bytes, and copies of descriptors. `sendFile` sends files.
const std = @import("std");
const sys = @import("sys.zig");

/// Errors of looking at a descriptor, or of duplicating it.
pub const Error = error{ DescriptorsExhausted, NotAFile };

/// The length of the file `fd` in bytes. NotAFile: it has no length (a pipe, a socket, a closed descriptor).
pub fn size(fd: sys.Fd) Error!u64 {
    const found = sys.look(fd) orelse return error.NotAFile;
    return if (found.kind == .regular) found.size else error.NotAFile;
}

/// Another descriptor of the same open file, which is closed on exec.
pub fn duplicate(fd: sys.Fd) Error!sys.Fd {
    return switch (sys.duplicate(fd)) {
        .done => |copy| @intCast(copy),
        .blocked => unreachable,
        .failed => |code| if (code == .MFILE) error.DescriptorsExhausted else error.NotAFile,
    };
}

/// Reads bytes of a file from `offset` on, for callers that cannot use `sendFile`. Returns their number; 0:
/// the offset is at the end of the file or behind it.
pub fn read(fd: sys.Fd, buffer: []u8, offset: u64) error{Unreadable}!usize {
    return switch (sys.readFileAt(fd, buffer, offset)) {
        .done => |count| count,
        .blocked, .failed => error.Unreadable,
    };
}

/// Whether the byte at `offset` of a file can be read without waiting for storage.
pub const isInMemory = sys.isInMemory;

/// Whether an open file or folder is on a file system that waits only for this machine.
pub const isLocal = sys.isLocal;

/// Memory to which a file is mapped.
pub const Mapping = []align(std.heap.page_size_min) const u8;

/// Maps the first `len` bytes of a file for reading. The kernel reads them when they are used. The file must
/// not become shorter meanwhile.
pub fn map(fd: sys.Fd, len: usize) error{OutOfMemory}!Mapping {
    return std.posix.mmap(null, len, .{ .READ = true }, .{ .TYPE = .SHARED }, fd, 0) catch
        error.OutOfMemory;
}

pub fn unmap(memory: Mapping) void {
    std.posix.munmap(memory);
}

/// Locks a file for this process until it ends or closes any descriptor of the file (F_SETLK in man 2 fcntl).
/// False: another process has the lock, or the system has no such locks.
pub fn lockForProcess(fd: sys.Fd) bool {
    return sys.lockForProcess(fd);
}

pub fn close(fd: sys.Fd) void {
    sys.close(fd);
}

const linux = std.os.linux;

test "size and duplicate of a regular file; neither of a pipe" {
    const rc = linux.memfd_create("peregrine-test", 0);
    const fd: sys.Fd = @intCast(rc);
    defer close(fd);
    _ = linux.write(fd, "twelve bytes", 12);
    try std.testing.expectEqual(12, try size(fd));
    var bytes: [8]u8 = undefined;
    try std.testing.expectEqual(5, try read(fd, &bytes, 7));
    try std.testing.expectEqualStrings("bytes", bytes[0..5]);
    try std.testing.expectEqual(0, try read(fd, &bytes, 12));
    try std.testing.expectError(error.Unreadable, read(-1, &bytes, 0));
    const memory = try map(fd, 6);
    try std.testing.expectEqualStrings("twelve", memory);
    unmap(memory);
    const copy = try duplicate(fd);
    try std.testing.expectEqual(12, try size(copy));
    close(copy);
    try std.testing.expectError(error.NotAFile, size(-1));
}
