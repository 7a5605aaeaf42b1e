//! Starts threads besides a host's own. Does not know: what they do.
const builtin = @import("builtin");
const std = @import("std");

/// Address space, not memory; includes libc's thread-local variables.
const stack_bytes = 1024 * 1024;

/// Starts a thread that receives no signals: a host language's signal handlers must not run in it.
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

/// Returns the system's ids of this process and this thread. Asked for each time: a forked child has others
/// than its parent.
pub fn ids() struct { process: u32, thread: u32 } {
    if (builtin.os.tag == .linux) {
        const linux = std.os.linux;
        return .{ .process = @intCast(linux.getpid()), .thread = @intCast(linux.gettid()) };
    }
    return .{ .process = @intCast(std.c.getpid()), .thread = @truncate(std.Thread.getCurrentId()) };
}
