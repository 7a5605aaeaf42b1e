//! Threads beside a host's own.
//! Does not know: what they do.
const builtin = @import("builtin");
const std = @import("std");

/// Address space, not memory; libc puts the variables of each thread there as well.
const stack_bytes = 1024 * 1024;

/// Starts a thread that gets no signal: a host language's handlers must not run in it.
pub fn spawn(comptime function: anytype, arguments: anytype) error{CannotStartThread}!std.Thread {
    return spawnSized(stack_bytes, function, arguments);
}

/// Like `spawn`, with a stack of `bytes` bytes.
pub fn spawnSized(
    bytes: usize,
    comptime function: anytype,
    arguments: anytype,
) error{CannotStartThread}!std.Thread {
    const posix = std.posix;
    const all = posix.sigfillset();
    var before: posix.sigset_t = undefined;
    posix.sigprocmask(posix.SIG.SETMASK, &all, &before);
    defer posix.sigprocmask(posix.SIG.SETMASK, &before, null);
    return std.Thread.spawn(.{ .stack_size = bytes }, function, arguments) catch
        error.CannotStartThread;
}

/// The numbers by which the system knows this process and this thread. Asked of the system each time: a
/// forked child has others than its parent.
pub fn ids() struct { process: u32, thread: u32 } {
    if (builtin.os.tag == .linux) {
        const linux = std.os.linux;
        return .{ .process = @intCast(linux.getpid()), .thread = @intCast(linux.gettid()) };
    }
    return .{ .process = @intCast(std.c.getpid()), .thread = @truncate(std.Thread.getCurrentId()) };
}
