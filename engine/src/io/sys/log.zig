//! Job: system calls of log files and of the threads that write them. Unlike others in `sys`, they may wait.
//! Does not know: what is written.
const std = @import("std");
const sys = @import("../sys.zig");
const is_linux = @import("builtin").os.tag == .linux;
const system = if (is_linux) std.os.linux else std.c;
const here = if (is_linux) @import("linux.zig") else @import("bsd.zig");
const errno = sys.errno;
const Fd = sys.Fd;
const Moved = sys.Moved;
const Slice = sys.Slice;

/// Opens a file to append to, and creates it if it is missing. A FIFO without a reader fails (ENXIO) instead
/// of waiting. Closed on exec and in forks.
pub fn openAppend(path: [*:0]const u8) Moved {
    const flags: system.O = .{
        .ACCMODE = .WRONLY,
        .APPEND = true,
        .CREAT = true,
        .CLOEXEC = true,
        .NOCTTY = true,
        .NONBLOCK = true,
    };
    const mode: c_uint = 0o666;
    return sys.owned(sys.made(system.open(path, flags, mode)));
}

/// Writes to a file, a pipe or a terminal; waits if the descriptor is blocking. Raises SIGPIPE unless that
/// signal is blocked.
pub fn write(fd: Fd, slices: []const Slice) Moved {
    while (true) {
        const rc = system.writev(fd, slices.ptr, @intCast(slices.len));
        switch (errno(rc)) {
            .SUCCESS => return .{ .done = @intCast(rc) },
            .INTR => continue,
            .AGAIN => return .blocked,
            else => |code| return .{ .failed = code },
        }
    }
}

/// Waits until a descriptor takes bytes, at most `timeout_ms`.
pub fn waitWritable(fd: Fd, timeout_ms: i32) void {
    var watched = [1]system.pollfd{.{ .fd = fd, .events = system.POLL.OUT, .revents = 0 }};
    _ = system.poll(&watched, 1, timeout_ms);
}

/// Sleeps until `wakeAll` of the same word, at most `timeout_ms` (null: for ever); does not sleep if the word
/// is not `expected`.
pub const sleepOn = here.sleepOn;
/// Wakes all threads that sleep on a word.
pub const wakeAll = here.wakeAll;
