//! Job: the Linux system calls that room `io` needs, each as a small typed function.
//! Setting something up answers with a Zig error set, because a caller may want to name the cause. Moving bytes answers with a
//! value (`Moved`), because a full buffer or a dead peer is a normal day there and the errno must survive.
//! Refuses to know: events, readiness, addresses in text form. Nothing here retries, except after EINTR.
//! Follows the Linux man pages, section 2. SIGPIPE: every send carries MSG_NOSIGNAL; `sendfile` cannot, see there.

const std = @import("std");
const builtin = @import("builtin");
const linux = std.os.linux;
const E = linux.E;
const assert = std.debug.assert;

/// A kernel file descriptor.
pub const Fd = linux.fd_t;
/// A piece of memory to send: `base` and `len`, laid out as the kernel wants it.
pub const Slice = std.posix.iovec_const;
/// A piece of memory to receive into.
pub const sockaddr = linux.sockaddr;
/// The length of a socket address.
pub const socklen_t = linux.socklen_t;

/// The most slices that one `send` takes. Far below IOV_MAX on purpose: the caller lays them out on its stack for every send, and what a
/// connection has queued is few blocks.
pub const slices_max = 16;

/// What became of an attempt to move bytes, or to accept.
pub const Moved = union(enum) {
    /// So many bytes were moved; for `accept`, the new descriptor.
    done: usize,
    /// Not now: EAGAIN.
    blocked,
    /// The errno. What it means for the socket is for the caller to decide.
    failed: E,
};

/// Any errno that a caller is not expected to tell apart.
pub const UnexpectedError = error{Unexpected};

/// Causes that setting up a descriptor may run into.
pub const ResourceError = error{
    /// This process has too many descriptors (EMFILE).
    ProcessDescriptorsExhausted,
    /// The machine has too many descriptors (ENFILE).
    SystemDescriptorsExhausted,
    /// The kernel has no memory or buffer space (ENOMEM, ENOBUFS), or too many epoll watches (ENOSPC).
    SystemResources,
} || UnexpectedError;

/// Sorts the errno of a call that sets something up.
pub fn resourceError(code: E) ResourceError {
    return switch (code) {
        .MFILE => error.ProcessDescriptorsExhausted,
        .NFILE => error.SystemDescriptorsExhausted,
        .NOMEM, .NOBUFS, .NOSPC => error.SystemResources,
        else => error.Unexpected,
    };
}

/// The process that this is.
pub fn processId() std.posix.pid_t {
    return linux.getpid();
}

/// The number behind an errno.
pub fn number(code: E) u16 {
    return @intCast(@backingInt(code));
}

/// True if `accept` failed because of that one connection, or of a packet that was waiting for it (man 2 accept): the next one may
/// well succeed.
pub fn isTransientAccept(code: E) bool {
    return switch (code) {
        .CONNABORTED, .PROTO, .PERM => true,
        .NETDOWN, .NOPROTOOPT, .HOSTDOWN, .NONET, .HOSTUNREACH, .OPNOTSUPP, .NETUNREACH => true,
        else => false,
    };
}

/// True if a `sendFile` failed because of the file and not because of the socket.
pub fn isFileFault(code: E) bool {
    return switch (code) {
        .IO, .INVAL, .OVERFLOW, .BADF, .SPIPE, .ISDIR, .NOMEM => true,
        else => false,
    };
}

/// True if the errno says that descriptors or kernel memory ran out: trying again at once is pointless.
pub fn isExhaustion(code: E) bool {
    return switch (code) {
        .MFILE, .NFILE, .NOBUFS, .NOMEM => true,
        else => false,
    };
}

// --- descriptors ---------------------------------------------------------------------------------------------------------

/// Why there is no socket.
pub const SocketError = error{
    /// The kernel lacks this address family, for example IPv6 (EAFNOSUPPORT).
    FamilyUnsupported,
    /// Forbidden by policy (EACCES, EPERM).
    AccessDenied,
} || ResourceError;

/// A new stream socket of an address family (`linux.AF`): non-blocking, closed on exec.
pub fn socket(family: u32) SocketError!Fd {
    const rc = linux.socket(family, linux.SOCK.STREAM | linux.SOCK.NONBLOCK | linux.SOCK.CLOEXEC, 0);
    return switch (linux.errno(rc)) {
        .SUCCESS => @intCast(rc),
        .AFNOSUPPORT => error.FamilyUnsupported,
        .ACCES, .PERM => error.AccessDenied,
        else => |code| resourceError(code),
    };
}

/// Gives a descriptor back. Never repeated: on Linux the descriptor is gone even after EINTR.
pub fn close(fd: Fd) void {
    assert(fd >= 0);
    // EBADF means that somebody else closed what is ours: from then on every descriptor is suspect.
    assert(linux.errno(linux.close(fd)) != .BADF);
}

/// Whether reading or accepting would find something now.
pub fn isReadable(fd: Fd) bool {
    var wanted: [1]linux.pollfd = .{.{ .fd = fd, .events = linux.POLL.IN, .revents = 0 }};
    const rc = linux.poll(&wanted, 1, 0);
    return linux.errno(rc) == .SUCCESS and rc > 0;
}

/// Makes a descriptor that came from elsewhere behave like ours: non-blocking, closed on exec.
pub fn setNonblockCloexec(fd: Fd) UnexpectedError!void {
    const status = linux.fcntl(fd, linux.F.GETFL, 0);
    if (linux.errno(status) != .SUCCESS) return error.Unexpected;
    const nonblock: usize = linux.SOCK.NONBLOCK; // the same bit as O_NONBLOCK on Linux
    if (linux.errno(linux.fcntl(fd, linux.F.SETFL, status | nonblock)) != .SUCCESS) return error.Unexpected;
    const fd_cloexec = 1;
    if (linux.errno(linux.fcntl(fd, linux.F.SETFD, fd_cloexec)) != .SUCCESS) return error.Unexpected;
}

// --- listening and connecting ----------------------------------------------------------------------------------------------

/// Why a socket cannot have that address.
pub const BindError = error{
    /// Somebody listens there already (EADDRINUSE).
    AddressInUse,
    /// No interface of this machine has that address (EADDRNOTAVAIL).
    AddressUnavailable,
    /// A privileged port, or a directory that we may not write to (EACCES, EPERM).
    AccessDenied,
    /// The directory of a unix socket does not exist (ENOENT, ENOTDIR, EROFS).
    PathUnusable,
} || ResourceError;

/// Gives a socket its own address.
pub fn bind(fd: Fd, address: *const sockaddr, length: socklen_t) BindError!void {
    return switch (linux.errno(linux.bind(fd, address, length))) {
        .SUCCESS => {},
        .ADDRINUSE => error.AddressInUse,
        .ADDRNOTAVAIL => error.AddressUnavailable,
        .ACCES, .PERM => error.AccessDenied,
        .NOENT, .NOTDIR, .ROFS => error.PathUnusable,
        else => |code| resourceError(code),
    };
}

/// Starts to queue connections, `backlog` of them; the kernel caps that at net.core.somaxconn.
pub fn listen(fd: Fd, backlog: u31) BindError!void {
    return switch (linux.errno(linux.listen(fd, backlog))) {
        .SUCCESS => {},
        .ADDRINUSE => error.AddressInUse,
        else => |code| resourceError(code),
    };
}

/// Why there is no connection, at least not yet.
pub const ConnectError = error{
    /// Nobody listens there (ECONNREFUSED), or the path does not exist (ENOENT).
    Refused,
    /// Under way; the socket becomes writable when it is decided (EINPROGRESS, EAGAIN).
    Pending,
} || ResourceError;

/// Begins a connection.
pub fn connect(fd: Fd, address: *const sockaddr, length: socklen_t) ConnectError!void {
    return switch (linux.errno(linux.connect(fd, address, length))) {
        .SUCCESS => {},
        .CONNREFUSED, .NOENT => error.Refused,
        .INPROGRESS, .AGAIN => error.Pending,
        else => |code| resourceError(code),
    };
}

/// Takes one connection from a listening socket, non-blocking and closed on exec; fills in who it is.
pub fn accept(listener: Fd, peer: *sockaddr.storage, length: *socklen_t) Moved {
    while (true) {
        length.* = @sizeOf(sockaddr.storage);
        const rc = linux.accept4(listener, @ptrCast(peer), length, linux.SOCK.NONBLOCK | linux.SOCK.CLOEXEC);
        return switch (linux.errno(rc)) {
            .SUCCESS => .{ .done = rc },
            .AGAIN => .blocked,
            .INTR => continue,
            else => |code| .{ .failed = code },
        };
    }
}

/// The address that a socket has on our side.
pub fn getsockname(fd: Fd, address: *sockaddr.storage, length: *socklen_t) ResourceError!void {
    length.* = @sizeOf(sockaddr.storage);
    const code = linux.errno(linux.getsockname(fd, @ptrCast(address), length));
    if (code != .SUCCESS) return resourceError(code);
}

/// The address that a connected socket has on the other side.
pub fn getpeername(fd: Fd, address: *sockaddr.storage, length: *socklen_t) ResourceError!void {
    length.* = @sizeOf(sockaddr.storage);
    const code = linux.errno(linux.getpeername(fd, @ptrCast(address), length));
    if (code != .SUCCESS) return resourceError(code);
}

// --- options ---------------------------------------------------------------------------------------------------------------

/// Socket options that carry one integer.
pub const Option = enum {
    reuse_address,
    reuse_port,
    v6_only,
    no_delay,
    /// Whether it listens; to be read only.
    accept_conn,
    send_buffer_bytes,
    receive_buffer_bytes,

    fn level(option: Option) i32 {
        return switch (option) {
            .reuse_address, .reuse_port, .accept_conn, .send_buffer_bytes, .receive_buffer_bytes => linux.SOL.SOCKET,
            .v6_only => linux.SOL.IPV6,
            .no_delay => linux.IPPROTO.TCP,
        };
    }

    fn name(option: Option) u32 {
        return switch (option) {
            .reuse_address => linux.SO.REUSEADDR,
            .reuse_port => linux.SO.REUSEPORT,
            .v6_only => linux.IPV6.V6ONLY,
            .no_delay => linux.TCP.NODELAY,
            .accept_conn => linux.SO.ACCEPTCONN,
            .send_buffer_bytes => linux.SO.SNDBUF,
            .receive_buffer_bytes => linux.SO.RCVBUF,
        };
    }
};

/// Why an option cannot be read or set.
pub const OptionError = error{
    /// This kind of socket has no such option (ENOPROTOOPT, EOPNOTSUPP).
    OptionUnsupported,
} || ResourceError;

/// Sets an option.
pub fn setOption(fd: Fd, option: Option, value: c_int) OptionError!void {
    const bytes = std.mem.asBytes(&value);
    return switch (linux.errno(linux.setsockopt(fd, option.level(), option.name(), bytes, bytes.len))) {
        .SUCCESS => {},
        .NOPROTOOPT, .OPNOTSUPP => error.OptionUnsupported,
        else => |code| resourceError(code),
    };
}

/// Reads an option.
pub fn getOption(fd: Fd, option: Option) OptionError!c_int {
    return getInteger(fd, option.level(), option.name());
}

/// Takes the error that waits on a socket, which clears it (SO_ERROR). `.SUCCESS` means that there is none.
pub fn takeError(fd: Fd) E {
    const value = getInteger(fd, linux.SOL.SOCKET, linux.SO.ERROR) catch return .BADF;
    return @fromBackingInt(@intCast(value));
}

fn getInteger(fd: Fd, level: i32, name: u32) OptionError!c_int {
    var value: c_int = 0;
    var length: socklen_t = @sizeOf(c_int);
    return switch (linux.errno(linux.getsockopt(fd, level, name, std.mem.asBytes(&value), &length))) {
        .SUCCESS => value,
        .NOPROTOOPT, .OPNOTSUPP => error.OptionUnsupported,
        else => |code| resourceError(code),
    };
}

// --- moving bytes ------------------------------------------------------------------------------------------------------------

/// Receives what is there, at most `buffer`. `done = 0` is the end of the stream.
pub fn receive(fd: Fd, buffer: []u8) Moved {
    assert(buffer.len > 0); // a receive of nothing would look like the end of the stream
    while (true) {
        const rc = linux.recvfrom(fd, buffer.ptr, buffer.len, 0, null, null);
        return switch (linux.errno(rc)) {
            .SUCCESS => .{ .done = rc },
            .AGAIN => .blocked,
            .INTR => continue,
            else => |code| .{ .failed = code },
        };
    }
}

/// Sends slices, in order, as far as the kernel takes them. `more` promises that further bytes follow at once (MSG_MORE), so
/// that TCP waits for a full segment. Never raises SIGPIPE.
pub fn send(fd: Fd, slices: []const Slice, more: bool) Moved {
    assert(slices.len > 0 and slices.len <= slices_max);
    const flags: u32 = linux.MSG.NOSIGNAL | @as(u32, if (more) linux.MSG.MORE else 0);
    const message: linux.msghdr_const = .{
        .name = null,
        .namelen = 0,
        .iov = slices.ptr,
        .iovlen = slices.len,
        .control = null,
        .controllen = 0,
        .flags = 0,
    };
    while (true) {
        // For one slice, the kernel has no message header to fetch: 1 to 2 % of a small answer.
        const rc = if (slices.len == 1)
            linux.sendto(fd, slices[0].base, slices[0].len, flags, null, 0)
        else
            linux.sendmsg(fd, &message, flags);
        return switch (linux.errno(rc)) {
            .SUCCESS => .{ .done = rc },
            .AGAIN => .blocked,
            .INTR => continue,
            else => |code| .{ .failed = code },
        };
    }
}

/// Sends a range of a file without copying it through this process. `done = 0` means that the file ends at `offset`. The file's
/// own position stays. Unlike `send` this raises SIGPIPE when the peer is gone: the process has to ignore that signal.
pub fn sendFile(fd: Fd, file: Fd, offset: u64, length: usize) Moved {
    assert(length > 0);
    var position: linux.off_t = @intCast(offset);
    while (true) {
        const rc = linux.sendfile(fd, file, &position, length);
        return switch (linux.errno(rc)) {
            .SUCCESS => .{ .done = rc },
            .AGAIN => .blocked,
            .INTR => continue,
            else => |code| .{ .failed = code },
        };
    }
}

/// Reads a file at an offset. `done = 0` is its end.
pub fn readFileAt(file: Fd, buffer: []u8, offset: u64) Moved {
    while (true) {
        const rc = linux.pread(file, buffer.ptr, buffer.len, @intCast(offset));
        return switch (linux.errno(rc)) {
            .SUCCESS => .{ .done = rc },
            .INTR => continue,
            else => |code| .{ .failed = code },
        };
    }
}

/// Makes the coming close a reset.
pub fn resetOnClose(fd: Fd) void {
    const linger = extern struct { onoff: c_int, seconds: c_int };
    const value: linger = .{ .onoff = 1, .seconds = 0 };
    // Best effort: without it the peer sees an orderly close.
    _ = linux.setsockopt(fd, linux.SOL.SOCKET, linux.SO.LINGER, @ptrCast(&value), @sizeOf(linger));
}

/// Keep-alive probes after 15 s of silence, each 5 s, three times. Does nothing for sockets that are not TCP.
pub fn probePeer(fd: Fd) void {
    const settings = [_]struct { i32, u32, c_int }{
        .{ linux.SOL.SOCKET, linux.SO.KEEPALIVE, 1 },
        .{ linux.IPPROTO.TCP, linux.TCP.KEEPIDLE, 15 },
        .{ linux.IPPROTO.TCP, linux.TCP.KEEPINTVL, 5 },
        .{ linux.IPPROTO.TCP, linux.TCP.KEEPCNT, 3 },
    };
    for (settings) |setting| {
        const level, const name, const value = setting;
        _ = linux.setsockopt(fd, level, name, @ptrCast(&value), @sizeOf(c_int));
    }
}

/// Ends our sending side: the peer reads what was sent and then the end of the stream. A socket that is already dead is fine.
pub fn shutdownSend(fd: Fd) void {
    const shut_wr = 1;
    assert(linux.errno(linux.shutdown(fd, shut_wr)) != .BADF);
}

// --- waiting -----------------------------------------------------------------------------------------------------------------

/// One report of the kernel: `events` is a set of `Ready` bits, `data` is what `epollAdd` gave.
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

/// A new epoll instance, closed on exec.
pub fn epollCreate() ResourceError!Fd {
    const rc = linux.epoll_create1(linux.EPOLL.CLOEXEC);
    const code = linux.errno(rc);
    return if (code == .SUCCESS) @intCast(rc) else resourceError(code);
}

/// Watches a descriptor for `Ready` bits; `data` comes back with each report.
pub fn epollAdd(epoll: Fd, fd: Fd, events: u32, data: u64) ResourceError!void {
    return epollControl(epoll, linux.EPOLL.CTL_ADD, fd, events, data);
}

/// Changes what is watched. The kernel looks again at once, so that nothing that is already true gets lost.
pub fn epollModify(epoll: Fd, fd: Fd, events: u32, data: u64) ResourceError!void {
    return epollControl(epoll, linux.EPOLL.CTL_MOD, fd, events, data);
}

/// Stops watching.
pub fn epollDelete(epoll: Fd, fd: Fd) ResourceError!void {
    return epollControl(epoll, linux.EPOLL.CTL_DEL, fd, 0, 0);
}

fn epollControl(epoll: Fd, operation: u32, fd: Fd, events: u32, data: u64) ResourceError!void {
    var event: EpollEvent = .{ .events = events, .data = .{ .u64 = data } };
    const code = linux.errno(linux.epoll_ctl(epoll, operation, fd, &event));
    if (code != .SUCCESS) return resourceError(code);
}

/// Waits at most `timeout_ms` (-1: for ever) and fills `buffer`. A signal ends the wait early with nothing: a host language may
/// want to run its handler.
pub fn epollWait(epoll: Fd, buffer: []EpollEvent, timeout_ms: i32) []EpollEvent {
    const rc = linux.epoll_wait(epoll, buffer.ptr, @intCast(buffer.len), timeout_ms);
    return switch (linux.errno(rc)) {
        .SUCCESS => buffer[0..rc],
        .INTR => buffer[0..0],
        else => unreachable, // EBADF, EFAULT, EINVAL: our own fault
    };
}

/// A new event counter, non-blocking and closed on exec.
pub fn eventFd() ResourceError!Fd {
    const rc = linux.eventfd(0, linux.EFD.CLOEXEC | linux.EFD.NONBLOCK);
    const code = linux.errno(rc);
    return if (code == .SUCCESS) @intCast(rc) else resourceError(code);
}

/// Adds one to an event counter. Safe from any thread and from a signal handler.
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

/// A new timer on the monotonic clock, non-blocking and closed on exec.
pub fn timerFd() ResourceError!Fd {
    const rc = linux.timerfd_create(.MONOTONIC, .{ .NONBLOCK = true, .CLOEXEC = true });
    const code = linux.errno(rc);
    return if (code == .SUCCESS) @intCast(rc) else resourceError(code);
}

/// Lets a timer fire once, when `monotonicMs` reaches `at_ms`. A time that has passed fires at once.
pub fn timerArm(fd: Fd, at_ms: u64) void {
    const once: linux.itimerspec = .{
        .it_interval = .{ .sec = 0, .nsec = 0 },
        .it_value = .{
            .sec = @intCast(at_ms / std.time.ms_per_s),
            // All zero would disarm the timer instead.
            .nsec = @intCast(@max(1, at_ms % std.time.ms_per_s * std.time.ns_per_ms)),
        },
    };
    assert(linux.errno(linux.timerfd_settime(fd, .{ .ABSTIME = true }, &once, null)) == .SUCCESS);
}

// --- log files and the threads that write them -----------------------------------------------------------------------------------

/// A descriptor of one's own for the same open file, closed on exec.
pub fn duplicate(fd: Fd) Moved {
    const rc = linux.fcntl(fd, linux.F.DUPFD_CLOEXEC, 0);
    const code = linux.errno(rc);
    return if (code == .SUCCESS) .{ .done = rc } else .{ .failed = code };
}

/// Opens a file to append to; it is created if it is missing. The errno if that fails. A FIFO without a reader fails (ENXIO) instead of
/// waiting for one.
pub fn openAppend(path: [*:0]const u8) Moved {
    const flags: linux.O = .{ .ACCMODE = .WRONLY, .APPEND = true, .CREAT = true, .CLOEXEC = true, .NOCTTY = true, .NONBLOCK = true };
    const rc = linux.open(path, flags, 0o666);
    const code = linux.errno(rc);
    return if (code == .SUCCESS) .{ .done = rc } else .{ .failed = code };
}

/// Writes to a file, a pipe or a terminal; may wait for it if the descriptor is not non-blocking. Raises SIGPIPE unless that is blocked.
pub fn write(fd: Fd, slices: []const Slice) Moved {
    while (true) {
        const rc = linux.writev(fd, slices.ptr, slices.len);
        switch (linux.errno(rc)) {
            .SUCCESS => return .{ .done = rc },
            .INTR => continue,
            .AGAIN => return .blocked,
            else => |code| return .{ .failed = code },
        }
    }
}

/// Waits until a descriptor takes bytes again, at most `timeout_ms`.
pub fn waitWritable(fd: Fd, timeout_ms: i32) void {
    var watched = [1]linux.pollfd{.{ .fd = fd, .events = linux.POLL.OUT, .revents = 0 }};
    _ = linux.poll(&watched, 1, timeout_ms);
}

/// Sleeps until `wakeAll` of the same word, at most `timeout_ms` (null: no bound), and not at all if the word is no longer `expected`.
pub fn sleepOn(word: *const std.atomic.Value(u32), expected: u32, timeout_ms: ?u32) void {
    const time: linux.timespec = if (timeout_ms) |ms| .{
        .sec = ms / std.time.ms_per_s,
        .nsec = @as(isize, ms % std.time.ms_per_s) * std.time.ns_per_ms,
    } else undefined;
    _ = linux.futex_4arg(&word.raw, .{ .cmd = .WAIT, .private = true }, expected, if (timeout_ms != null) &time else null);
}

/// Wakes whoever sleeps on a word.
pub fn wakeAll(word: *const std.atomic.Value(u32)) void {
    _ = linux.futex_3arg(&word.raw, .{ .cmd = .WAKE, .private = true }, std.math.maxInt(i32));
}

// --- clocks ------------------------------------------------------------------------------------------------------------------

/// Milliseconds of the monotonic clock, rounded down. The precise clock, about 20 ns through the vDSO: the coarse one lags by up
/// to a tick (1 to 10 ms), so that an alarm which fires in time would look early and be armed again, in a circle, for that tick.
pub fn monotonicMs() u64 {
    const time = clock(.MONOTONIC);
    return @as(u64, @intCast(time.sec)) * std.time.ms_per_s + @as(u64, @intCast(time.nsec)) / std.time.ns_per_ms;
}

/// Microseconds of the monotonic clock.
pub fn monotonicUs() u64 {
    const time = clock(.MONOTONIC);
    return @as(u64, @intCast(time.sec)) * std.time.us_per_s + @as(u64, @intCast(time.nsec)) / std.time.ns_per_us;
}

/// Seconds since 1970 (UTC). The coarse clock: up to one tick (1 to 10 ms) late, which a date in whole seconds can bear.
pub fn wallSeconds() u64 {
    return @intCast(clock(.REALTIME_COARSE).sec);
}

fn clock(which: linux.clockid_t) linux.timespec {
    var time: linux.timespec = undefined;
    if (builtin.link_libc) {
        // In a shared object with libc nobody hands std the auxiliary vector, so it cannot find the vDSO and would do a system
        // call each time; libc can.
        assert(std.c.clock_gettime(@fromBackingInt(@intCast(@backingInt(which))), &time) == 0);
    } else {
        assert(linux.errno(linux.clock_gettime(which, &time)) == .SUCCESS);
    }
    return time;
}

test "clocks go forward" {
    const first = monotonicMs();
    const second = monotonicMs();
    try std.testing.expect(first > 0 and second >= first and second - first < 10_000);
    try std.testing.expect(wallSeconds() > 1_700_000_000);
}

test "an option that a socket lacks is told apart" {
    const fd = try socket(linux.AF.UNIX);
    defer close(fd);
    try std.testing.expectError(error.OptionUnsupported, setOption(fd, .no_delay, 1));
    try setOption(fd, .send_buffer_bytes, 64 * 1024);
    try std.testing.expect(try getOption(fd, .send_buffer_bytes) >= 64 * 1024);
    try std.testing.expectEqual(E.SUCCESS, takeError(fd));
}

test "a descriptor from elsewhere becomes non-blocking" {
    var pair: [2]Fd = undefined;
    try std.testing.expectEqual(E.SUCCESS, linux.errno(linux.socketpair(linux.AF.UNIX, linux.SOCK.STREAM, 0, &pair)));
    defer for (pair) |fd| close(fd);
    try setNonblockCloexec(pair[0]);
    var buffer: [1]u8 = undefined;
    try std.testing.expectEqual(Moved.blocked, receive(pair[0], &buffer));
}

test "a send to a closed peer is a value, not a signal" {
    var pair: [2]Fd = undefined;
    try std.testing.expectEqual(E.SUCCESS, linux.errno(linux.socketpair(linux.AF.UNIX, linux.SOCK.STREAM, 0, &pair)));
    defer close(pair[0]);
    close(pair[1]);
    const bytes = "x";
    try std.testing.expectEqual(Moved{ .failed = .PIPE }, send(pair[0], &.{.{ .base = bytes, .len = bytes.len }}, false));
}

test "a file is read at an offset, up to its end" {
    const rc = linux.memfd_create("sys", 0);
    const file: Fd = @intCast(rc);
    defer close(file);
    try std.testing.expectEqual(@as(usize, 5), linux.write(file, "abcde", 5));
    var buffer: [8]u8 = undefined;
    try std.testing.expectEqual(Moved{ .done = 2 }, readFileAt(file, &buffer, 3));
    try std.testing.expectEqualStrings("de", buffer[0..2]);
    try std.testing.expectEqual(Moved{ .done = 0 }, readFileAt(file, &buffer, 5));
}
