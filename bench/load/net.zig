//! System calls of the load generator: sockets to a server on loopback, epoll, clocks, the descriptor limit.
//! Does not know: what is sent. A failure that no measurement survives is an error with the
//! call's name printed.
const std = @import("std");
const linux = std.os.linux;

pub const Fd = linux.fd_t;

/// Connections from one address: the kernel's range of ephemeral ports has 28,000, and finding a free one
/// gets slow when few are left.
const connections_per_address = 8000;
const loopback: u32 = 0x7f00_0001;

/// Starts connecting to the port at 127.0.0.1. The address to connect from follows from the
/// connection's number.
pub fn connect(port: u16, number: usize) !Fd {
    const fd = try descriptor(
        "socket",
        linux.socket(linux.AF.INET, linux.SOCK.STREAM | linux.SOCK.NONBLOCK | linux.SOCK.CLOEXEC, 0),
    );
    errdefer close(fd);
    try option(fd, linux.IPPROTO.TCP, linux.TCP.NODELAY);
    // Without this option a bind takes a port that no other connection from this address can use, whatever
    // its destination.
    try option(fd, linux.IPPROTO.IP, linux.IP.BIND_ADDRESS_NO_PORT);
    const from = address(loopback + @as(u32, @intCast(number / connections_per_address)), 0);
    _ = try check("bind", linux.bind(fd, @ptrCast(&from), @sizeOf(linux.sockaddr.in)));
    const to = address(loopback, port);
    const rc = linux.connect(fd, &to, @sizeOf(linux.sockaddr.in));
    if (linux.errno(rc) != .INPROGRESS) _ = try check("connect", rc);
    return fd;
}

fn address(host: u32, port: u16) linux.sockaddr.in {
    return .{ .port = std.mem.nativeToBig(u16, port), .addr = std.mem.nativeToBig(u32, host) };
}

/// Whether a connect has succeeded, once the socket is writable.
pub fn connected(fd: Fd) bool {
    var problem: c_int = 0;
    var size: linux.socklen_t = @sizeOf(c_int);
    const rc = linux.getsockopt(fd, linux.SOL.SOCKET, linux.SO.ERROR, std.mem.asBytes(&problem), &size);
    return linux.errno(rc) == .SUCCESS and problem == 0;
}

/// How many bytes the socket took; 0 when it is full, null when it is broken.
pub fn write(fd: Fd, bytes: []const u8) ?usize {
    const rc = linux.sendto(fd, bytes.ptr, bytes.len, linux.MSG.NOSIGNAL, null, 0);
    return switch (linux.errno(rc)) {
        .SUCCESS => rc,
        .AGAIN, .INTR => 0,
        else => null,
    };
}

pub const Received = union(enum) { bytes: []const u8, nothing, ended };

/// Reads once.
pub fn read(fd: Fd, buffer: []u8) Received {
    const rc = linux.read(fd, buffer.ptr, buffer.len);
    return switch (linux.errno(rc)) {
        .SUCCESS => if (rc == 0) .ended else .{ .bytes = buffer[0..rc] },
        .AGAIN, .INTR => .nothing,
        else => .ended,
    };
}

pub fn close(fd: Fd) void {
    _ = linux.close(fd);
}

/// Nothing more will be written; the other direction stays.
pub fn endWriting(fd: Fd) void {
    _ = linux.shutdown(fd, linux.SHUT.WR);
}

/// The peer sees a reset.
pub fn closeWithReset(fd: Fd) void {
    const at_once: linux.linger = .{ .onoff = 1, .linger = 0 };
    _ = linux.setsockopt(
        fd,
        linux.SOL.SOCKET,
        linux.SO.LINGER,
        std.mem.asBytes(&at_once),
        @sizeOf(linux.linger),
    );
    close(fd);
}

/// An epoll; a watched descriptor is named by a number of the caller's.
pub const Poll = struct {
    fd: Fd,

    pub const Interest = enum { read, read_and_write };

    pub fn init() !Poll {
        return .{ .fd = try descriptor("epoll_create1", linux.epoll_create1(linux.EPOLL.CLOEXEC)) };
    }

    pub fn add(poll: Poll, fd: Fd, name: u64, interest: Interest) !void {
        try poll.control(linux.EPOLL.CTL_ADD, fd, name, interest);
    }

    pub fn change(poll: Poll, fd: Fd, name: u64, interest: Interest) !void {
        try poll.control(linux.EPOLL.CTL_MOD, fd, name, interest);
    }

    fn control(poll: Poll, operation: u32, fd: Fd, name: u64, interest: Interest) !void {
        const events: u32 = switch (interest) {
            .read => linux.EPOLL.IN,
            .read_and_write => linux.EPOLL.IN | linux.EPOLL.OUT,
        };
        var event: linux.epoll_event = .{ .events = events, .data = .{ .u64 = name } };
        _ = try check("epoll_ctl", linux.epoll_ctl(poll.fd, operation, fd, &event));
    }

    /// Waits until something is ready or the time has come. Less than a millisecond is too little to sleep:
    /// it looks and returns.
    pub fn wait(poll: Poll, events: []linux.epoll_event, until_ns: ?u64) ![]linux.epoll_event {
        const timeout: i32 = if (until_ns) |until| @intCast((until -| now()) / std.time.ns_per_ms) else -1;
        const rc = linux.epoll_wait(poll.fd, events.ptr, @intCast(events.len), timeout);
        if (linux.errno(rc) == .INTR) return events[0..0];
        return events[0..try check("epoll_wait", rc)];
    }
};

/// Monotonic time.
pub fn now() u64 {
    return clock(.MONOTONIC);
}

/// Sleeps until the time has come.
pub fn sleepUntil(time: u64) void {
    const at: linux.timespec = .{
        .sec = @intCast(time / std.time.ns_per_s),
        .nsec = @intCast(time % std.time.ns_per_s),
    };
    while (linux.errno(linux.clock_nanosleep(.MONOTONIC, .{ .ABSTIME = true }, &at, null)) == .INTR) {}
}

/// The calling thread runs on that core from now on, before all others there.
pub fn runFirstOn(core: u16) !void {
    var set: linux.cpu_set_t = @splat(0);
    const bits = @bitSizeOf(usize);
    if (core / bits >= set.len) return error.SystemCall;
    set[core / bits] = @as(usize, 1) << @intCast(core % bits);
    try linux.sched_setaffinity(0, &set);
    _ = try check("sched_setscheduler", linux.sched_setscheduler(0, .{ .mode = .FIFO }, &.{ .priority = 1 }));
}

/// CPU time of this process.
pub fn cpuTime() u64 {
    return clock(.PROCESS_CPUTIME_ID);
}

fn clock(id: linux.clockid_t) u64 {
    var time: linux.timespec = undefined;
    std.debug.assert(linux.errno(linux.clock_gettime(id, &time)) == .SUCCESS);
    return @as(u64, @intCast(time.sec)) * std.time.ns_per_s + @as(u64, @intCast(time.nsec));
}

/// Makes sure that this many descriptors can be open, where the process is allowed to.
pub fn allowDescriptors(count: usize) !void {
    const limit = try std.posix.getrlimit(.NOFILE);
    if (limit.cur >= count) return;
    try std.posix.setrlimit(.NOFILE, .{ .cur = count, .max = @max(limit.max, count) });
}

fn option(fd: Fd, level: i32, name: u32) !void {
    const on: c_int = 1;
    _ = try check("setsockopt", linux.setsockopt(fd, level, name, std.mem.asBytes(&on), @sizeOf(c_int)));
}

fn descriptor(call: []const u8, rc: usize) !Fd {
    return @intCast(try check(call, rc));
}

fn check(call: []const u8, rc: usize) error{SystemCall}!usize {
    const code = linux.errno(rc);
    if (code == .SUCCESS) return rc;
    std.debug.print("load: {s}: {t}\n", .{ call, code });
    return error.SystemCall;
}
