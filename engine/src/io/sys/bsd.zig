//! Job: the calls of sys.zig that differ on FreeBSD and macOS. Does not know: their use in sys.zig.
const std = @import("std");
const builtin = @import("builtin");
const c = std.c;
const sys = @import("../sys.zig");
const Fd = sys.Fd;

const is_mac = builtin.os.tag.isDarwin();

/// Several sockets may listen at one address. FreeBSD spreads connections among them only with its own
/// option; macOS never does (see `io.spreads_connections`).
pub const reuse_port = if (is_mac) c.SO.REUSEPORT else c.SO.REUSEPORT_LB;
/// An IPv6 socket does not serve IPv4 (netinet6/in6.h).
pub const v6_only = 27;
/// man 3 arc4random.
pub fn randomSeed() ?u64 {
    var seed: u64 = undefined;
    c.arc4random_buf(@ptrCast(&seed), @sizeOf(u64));
    return seed;
}

/// The option that tells if a socket listens.
pub const accept_conn = 0x0002;
/// The flag by which a send raises no SIGPIPE. macOS has a socket option instead.
pub const no_signal = if (is_mac) 0 else c.MSG.NOSIGNAL;
/// The flag by which sends and receives do not block, even if another process has made the socket blocking.
pub const no_wait = c.MSG.DONTWAIT;
/// The system has no flag for "further bytes follow at once".
pub const more = 0;
/// The option for the seconds of silence before the first keep-alive probe.
pub const keep_idle = if (is_mac) c.TCP.KEEPALIVE else c.TCP.KEEPIDLE;
/// FreeBSD has no such option.
pub const unsent_low_water: ?u32 = if (is_mac) 0x201 else null;
pub const coarse_clock: c.clockid_t = .REALTIME;

/// man 2 socket.
pub fn socket(family: u32) sys.Moved {
    if (!is_mac) return sys.made(c.socket(family, c.SOCK.STREAM | c.SOCK.NONBLOCK | c.SOCK.CLOEXEC, 0));
    return adopted(sys.made(c.socket(family, c.SOCK.STREAM, 0)));
}

/// man 2 accept, accept4.
pub fn accept(listener: Fd, peer: *sys.sockaddr.storage, length: *sys.socklen_t) sys.Moved {
    const accepted = if (is_mac)
        adopted(sys.moved(c.accept(listener, @ptrCast(peer), length)))
    else
        sys.moved(c.accept4(listener, @ptrCast(peer), length, c.SOCK.NONBLOCK | c.SOCK.CLOEXEC));
    // A peer that is already gone may have left no address.
    if (accepted == .done and length.* == 0) {
        sys.close(@intCast(accepted.done));
        return .{ .failed = .CONNABORTED };
    }
    return accepted;
}

/// Makes a new socket of macOS as FreeBSD makes it: non-blocking, closed on exec, without SIGPIPE.
fn adopted(new: sys.Moved) sys.Moved {
    if (new != .done) return new;
    const fd: Fd = @intCast(new.done);
    const on: c_int = 1;
    // An accepted socket whose peer is gone takes no options (EINVAL), and no send to it follows.
    _ = c.setsockopt(fd, c.SOL.SOCKET, c.SO.NOSIGPIPE, &on, @sizeOf(c_int));
    sys.setNonblockCloexec(fd) catch {
        const code = c.errno(-1);
        sys.close(fd);
        return .{ .failed = code };
    };
    return new;
}

/// Returns true for errors of accept that concern one connection only.
pub fn isTransientAccept(code: sys.E) bool {
    return switch (code) {
        .CONNABORTED, .PERM => true,
        else => false,
    };
}

/// man 2 sendfile. Bytes that were sent before an interruption or a full socket count as sent.
pub fn sendFile(fd: Fd, file: Fd, offset: u64, length: usize) sys.Moved {
    var sent: c.off_t = if (is_mac) @intCast(length) else 0;
    const rc = if (is_mac)
        c.sendfile(file, fd, @intCast(offset), &sent, null, 0)
    else
        c.sendfile(file, fd, @intCast(offset), length, null, &sent, 0);
    const code = c.errno(rc);
    switch (code) {
        .SUCCESS => {},
        .AGAIN => if (sent == 0) return .blocked,
        .INTR => if (sent == 0) return .{ .failed = .INTR },
        else => return .{ .failed = code },
    }
    return .{ .done = @intCast(sent) };
}

/// Returns true: these systems are not asked for a file's file system.
pub fn isLocal(_: Fd) bool {
    return true;
}

/// Returns null: these systems are not asked for the room of a file system.
pub fn roomOf(_: Fd) ?sys.Room {
    return null;
}

/// Returns `present`: BSD systems do not tell if a range is in memory, so files are always read directly.
pub fn isInMemory(_: Fd, _: u64) sys.Presence {
    return .present;
}

/// Has no effect on a BSD.
pub fn readAhead(_: Fd, _: u64, _: u64) void {}

/// man 2 poll reports errors and hang-ups unasked, but not the end of a peer's sending side.
pub const poll_peer_shut = 0;

/// FIONWRITE of FreeBSD (sys/filio.h), SO_NWRITE of macOS (sys/socket.h).
pub fn heldBytes(fd: Fd) u64 {
    var bytes: c_int = 0;
    var length: c.socklen_t = @sizeOf(c_int);
    const rc = if (is_mac)
        c.getsockopt(fd, c.SOL.SOCKET, c.SO.NWRITE, &bytes, &length)
    else
        c.ioctl(fd, @bitCast(@as(u32, 0x4004_6677)), &bytes);
    return if (rc == 0) @intCast(@max(bytes, 0)) else 0;
}

/// The kernel's facts about a file (man 2 fstat).
pub const Info = c.Stat;

/// The number of the device that a file lies on.
pub fn deviceOf(info: *const Info) u64 {
    return if (is_mac) @as(u32, @bitCast(info.dev)) else info.dev;
}

/// Reads the facts of an open file.
pub fn look(fd: Fd, info: *Info) c_int {
    return c.fstat(fd, info);
}

/// Reads the facts of a file by its path; a link is not followed.
pub fn lookFor(path: [*:0]const u8, info: *Info) c_int {
    return c.fstatat(c.AT.FDCWD, path, info, c.AT.SYMLINK_NOFOLLOW);
}

/// Waits like a futex, by `_umtx_op` of FreeBSD or `__ulock_wait2` of macOS.
pub fn sleepOn(word: *const std.atomic.Value(u32), expected: u32, timeout_ms: ?u32) void {
    if (is_mac) {
        const bound: u64 = if (timeout_ms) |ms| @max(1, @as(u64, ms) * std.time.ns_per_ms) else 0;
        _ = c.__ulock_wait2(.{ .op = .COMPARE_AND_WAIT, .NO_ERRNO = true }, &word.raw, expected, bound, 0);
        return;
    }
    const ms = timeout_ms orelse 0;
    const bound: c.timespec = .{
        .sec = ms / std.time.ms_per_s,
        .nsec = @as(isize, ms % std.time.ms_per_s) * std.time.ns_per_ms,
    };
    const operation = @backingInt(c.UMTX_OP.WAIT_UINT_PRIVATE);
    // A plain timespec's size in place of a clock makes the timeout relative.
    const size: usize, const at: usize = if (timeout_ms == null)
        .{ 0, 0 }
    else
        .{ @sizeOf(c.timespec), @intFromPtr(&bound) };
    _ = c._umtx_op(@intFromPtr(&word.raw), operation, expected, size, at);
}

/// Wakes all threads that sleep on a word.
pub fn wakeAll(word: *const std.atomic.Value(u32)) void {
    if (is_mac) {
        _ = c.__ulock_wake(.{ .op = .COMPARE_AND_WAIT, .NO_ERRNO = true, .WAKE_ALL = true }, &word.raw, 0);
        return;
    }
    _ = c._umtx_op(@intFromPtr(&word.raw), @backingInt(c.UMTX_OP.WAKE_PRIVATE), std.math.maxInt(c_int), 0, 0);
}
