//! Job: Linux's epoll, eventfd and timerfd, each call as a small typed function in the manner of sys.zig.
//! Does not know: what is watched.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("../sys.zig");
const Fd = sys.Fd;
const ResourceError = sys.ResourceError;
const resourceError = sys.resourceError;
const assert = std.debug.assert;

/// A report of the kernel: `events` is a set of `Ready` bits, `data` the value from `epollAdd`.
pub const EpollEvent = linux.epoll_event;

/// Bits of `EpollEvent.events`.
pub const Ready = struct {
    pub const in = linux.EPOLL.IN;
    pub const out = linux.EPOLL.OUT;
    pub const peer_shut = linux.EPOLL.RDHUP;
    pub const hung_up = linux.EPOLL.HUP;
    pub const failed = linux.EPOLL.ERR;
    pub const edge = linux.EPOLL.ET;
    pub const exclusive = linux.EPOLL.EXCLUSIVE;
};

/// Makes an epoll instance, closed on exec and in forks.
pub fn epollCreate() ResourceError!Fd {
    return descriptor(linux.epoll_create1(linux.EPOLL.CLOEXEC));
}

fn descriptor(rc: usize) ResourceError!Fd {
    return switch (sys.owned(sys.made(rc))) {
        .done => |fd| @intCast(fd),
        .blocked => unreachable,
        .failed => |code| resourceError(code),
    };
}

/// Watches a descriptor for `Ready` bits; the kernel returns `data` with each report.
pub fn epollAdd(epoll: Fd, fd: Fd, events: u32, data: u64) ResourceError!void {
    return epollControl(epoll, linux.EPOLL.CTL_ADD, fd, events, data);
}

/// Changes the watched bits. The kernel checks them at once, so a condition that is already true is reported.
pub fn epollModify(epoll: Fd, fd: Fd, events: u32, data: u64) ResourceError!void {
    return epollControl(epoll, linux.EPOLL.CTL_MOD, fd, events, data);
}

/// Stops watching a descriptor.
pub fn epollDelete(epoll: Fd, fd: Fd) ResourceError!void {
    return epollControl(epoll, linux.EPOLL.CTL_DEL, fd, 0, 0);
}

fn epollControl(epoll: Fd, operation: u32, fd: Fd, events: u32, data: u64) ResourceError!void {
    var event: EpollEvent = .{ .events = events, .data = .{ .u64 = data } };
    const code = linux.errno(linux.epoll_ctl(epoll, operation, fd, &event));
    if (code != .SUCCESS) return resourceError(code);
}

/// Waits at most `timeout_ms` (-1: for ever) and fills `buffer`. A signal ends the wait early without
/// reports, so that a host language can run its handler.
pub fn epollWait(epoll: Fd, buffer: []EpollEvent, timeout_ms: i32) []EpollEvent {
    const rc = linux.epoll_wait(epoll, buffer.ptr, @intCast(buffer.len), timeout_ms);
    return switch (linux.errno(rc)) {
        .SUCCESS => buffer[0..rc],
        .INTR => buffer[0..0],
        else => unreachable, // EBADF, EFAULT, EINVAL: a bug of this program
    };
}

/// Like `epollWait`, but with `blocked` as the thread's blocked signals during the wait (bit n - 1 for signal
/// n; null: unchanged). Returns null if a signal ended the wait.
pub fn epollWaitBlocking(
    epoll: Fd,
    buffer: []EpollEvent,
    timeout_ms: i32,
    blocked: ?*const u64,
) ?[]EpollEvent {
    const rc = linux.syscall6(
        .epoll_pwait,
        @intCast(epoll),
        @intFromPtr(buffer.ptr),
        buffer.len,
        @as(u32, @bitCast(timeout_ms)),
        if (blocked) |set| @intFromPtr(set) else 0,
        @sizeOf(u64),
    );
    return switch (linux.errno(rc)) {
        .SUCCESS => buffer[0..rc],
        .INTR => null,
        else => unreachable, // EBADF, EFAULT, EINVAL: a bug of this program
    };
}

/// Waits by man 2 ppoll until one of two descriptors is readable (`first` may be -1: none), at most
/// `timeout_ms` (-1: for ever), with these signals blocked (null: unchanged). True: the second descriptor is
/// readable, or a signal came.
pub fn waitForTwo(first: Fd, second: Fd, timeout_ms: i32, blocked: ?*const u64) bool {
    var wanted: [2]linux.pollfd = .{
        .{ .fd = first, .events = linux.POLL.IN, .revents = 0 },
        .{ .fd = second, .events = linux.POLL.IN, .revents = 0 },
    };
    var timeout: linux.timespec = .{
        .sec = @divTrunc(@max(timeout_ms, 0), std.time.ms_per_s),
        .nsec = @rem(@max(timeout_ms, 0), std.time.ms_per_s) * std.time.ns_per_ms,
    };
    const rc = linux.ppoll(
        &wanted,
        wanted.len,
        if (timeout_ms < 0) null else &timeout,
        @ptrCast(blocked),
    );
    return switch (linux.errno(rc)) {
        .SUCCESS => wanted[1].revents != 0,
        .INTR => true,
        .NOMEM => false, // a later wait may succeed
        else => unreachable, // EFAULT, EINVAL: a bug of this program
    };
}

/// Makes an event counter, non-blocking, closed on exec and in forks.
pub fn eventFd() ResourceError!Fd {
    return descriptor(linux.eventfd(0, linux.EFD.CLOEXEC | linux.EFD.NONBLOCK));
}

/// Adds 1 to an event counter. May be called by any thread and by a signal handler.
pub fn eventRaise(fd: Fd) void {
    const one: u64 = 1;
    while (true) {
        switch (linux.errno(linux.write(fd, std.mem.asBytes(&one), @sizeOf(u64)))) {
            .SUCCESS => return,
            .INTR => continue,
            else => |code| {
                assert(code == .AGAIN); // the counter is full, after 2^64 - 2 raises
                return;
            },
        }
    }
}

/// Sets an event counter to zero; false: it was zero already.
pub fn eventTake(fd: Fd) bool {
    var count: u64 = undefined;
    while (true) switch (linux.errno(linux.read(fd, std.mem.asBytes(&count), @sizeOf(u64)))) {
        .SUCCESS => return true,
        .INTR => {},
        else => return false,
    };
}

/// Makes a timer on the monotonic clock, non-blocking, closed on exec and in forks.
pub fn timerFd() ResourceError!Fd {
    return descriptor(linux.timerfd_create(.MONOTONIC, .{ .NONBLOCK = true, .CLOEXEC = true }));
}

/// Makes a timer fire once, when `monotonicMs` reaches `at_ms`, or at once if that time has passed.
pub fn timerArm(fd: Fd, at_ms: u64) void {
    const once: linux.itimerspec = .{
        .it_interval = .{ .sec = 0, .nsec = 0 },
        .it_value = .{
            .sec = @intCast(at_ms / std.time.ms_per_s),
            // Zero seconds and nanoseconds would disarm the timer.
            .nsec = @intCast(@max(1, at_ms % std.time.ms_per_s * std.time.ns_per_ms)),
        },
    };
    assert(linux.errno(linux.timerfd_settime(fd, .{ .ABSTIME = true }, &once, null)) == .SUCCESS);
}
