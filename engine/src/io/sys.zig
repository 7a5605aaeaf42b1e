//! Job: the system calls of layer `io`, each as a small typed function: Linux's own, or those of a BSD's libc
//! (FreeBSD, macOS). A call that sets something up returns a Zig error set, because the caller may want to
//! name the cause. A call that moves bytes returns a value (`Moved`), because a full buffer or a dead peer is
//! normal there and the errno is needed.
//!
//! Does not know: events, readiness, addresses in text form. No call is repeated, except after EINTR. Follows
//! the man pages, section 2. Where the systems differ, sys/linux.zig and sys/bsd.zig have the same names. No
//! send raises SIGPIPE, but `sendFile` may.

const std = @import("std");
const builtin = @import("builtin");
const is_linux = builtin.os.tag == .linux;
/// Linux is called without libc, a BSD through its libc.
const system = if (is_linux) std.os.linux else std.c;
const here = if (is_linux) @import("sys/linux.zig") else @import("sys/bsd.zig");
const assert = std.debug.assert;
const fork = @import("fork.zig");

pub const E = system.E;
/// Returns the errno in the result of a raw system call.
pub const errno = if (is_linux) std.os.linux.errno else std.c.errno;
/// A kernel file descriptor.
pub const Fd = system.fd_t;
/// A piece of memory to send: `base` and `len`, in the kernel's layout.
pub const Slice = std.posix.iovec_const;
pub const AF = system.AF;
pub const sockaddr = system.sockaddr;
pub const socklen_t = system.socklen_t;

/// The maximum number of slices of one `send`. Far below IOV_MAX, because the caller builds them on its stack
/// for every send, and a connection has only a few blocks queued.
pub const slices_max = 16;

/// The outcome of a system call that moves bytes, or accepts a connection.
pub const Moved = union(enum) {
    /// The number of bytes that were moved; for `accept`, the new descriptor.
    done: usize,
    /// No byte moves now: EAGAIN.
    blocked,
    /// The errno. The caller decides what it means for the socket.
    failed: E,
};

/// Turns the result of a system call that moves bytes into an outcome.
pub fn moved(rc: anytype) Moved {
    return switch (errno(rc)) {
        .SUCCESS => .{ .done = @intCast(rc) },
        .AGAIN => .blocked,
        else => |code| .{ .failed = code },
    };
}

/// Like `moved`, for a call that makes a descriptor; such a call never returns EAGAIN.
pub fn made(rc: anytype) Moved {
    const code = errno(rc);
    return if (code == .SUCCESS) .{ .done = @intCast(rc) } else .{ .failed = code };
}

/// Any errno that callers need not tell apart.
pub const UnexpectedError = error{Unexpected};

/// Errors of calls that make descriptors.
pub const ResourceError = error{
    /// The process has reached its limit of descriptors (EMFILE).
    ProcessDescriptorsExhausted,
    /// The machine has too many descriptors (ENFILE).
    SystemDescriptorsExhausted,
    /// The kernel has no memory or buffer space (ENOMEM, ENOBUFS), or too many epoll watches (ENOSPC).
    SystemResources,
} || UnexpectedError;

/// Returns the error for the errno of a call that sets something up.
pub fn resourceError(code: E) ResourceError {
    return switch (code) {
        .MFILE => error.ProcessDescriptorsExhausted,
        .NFILE => error.SystemDescriptorsExhausted,
        .NOMEM, .NOBUFS, .NOSPC => error.SystemResources,
        else => error.Unexpected,
    };
}

pub fn processId() std.posix.pid_t {
    return system.getpid();
}

/// Returns a random number that cannot be guessed; null: the kernel has none.
pub const randomSeed = here.randomSeed;

/// The number of an errno.
pub fn number(code: E) u16 {
    return @intCast(@backingInt(code));
}

/// Returns true if `accept` failed because of that one connection or of a packet that waited for it (man 2
/// accept): the next `accept` may succeed.
pub const isTransientAccept = here.isTransientAccept;

/// Returns true if a `sendFile` failed because of the file and not of the socket.
pub fn isFileFault(code: E) bool {
    return switch (code) {
        .IO, .INVAL, .OVERFLOW, .BADF, .SPIPE, .ISDIR, .NOMEM => true,
        // BSD systems return this for a descriptor that is no regular file.
        .OPNOTSUPP => !is_linux,
        else => false,
    };
}

/// Returns true if descriptors or kernel memory ran out, so that a repetition at once is pointless.
pub fn isExhaustion(code: E) bool {
    return switch (code) {
        .MFILE, .NFILE, .NOBUFS, .NOMEM => true,
        else => false,
    };
}

// ---- Descriptors

/// Reasons why a socket cannot be made.
pub const SocketError = error{
    /// The kernel lacks this address family, for example IPv6 (EAFNOSUPPORT).
    FamilyUnsupported,
    /// Forbidden by policy (EACCES, EPERM).
    AccessDenied,
} || ResourceError;

/// Makes a stream socket of an address family (`AF`): non-blocking, closed on exec.
pub fn socket(family: u32) SocketError!Fd {
    return switch (here.socket(family)) {
        .done => |fd| @intCast(fd),
        .blocked => unreachable,
        .failed => |code| switch (code) {
            .AFNOSUPPORT => error.FamilyUnsupported,
            .ACCES, .PERM => error.AccessDenied,
            else => resourceError(code),
        },
    };
}

/// Closes a descriptor. Never repeated: even after EINTR the descriptor is closed.
pub fn close(fd: Fd) void {
    assert(fd >= 0);
    fork.forget(fd);
    // EBADF means that other code has closed an engine's descriptor: from then on every descriptor is
    // suspect.
    assert(errno(system.close(fd)) != .BADF);
}

/// Makes another descriptor of the same open file, closed on exec and in forks.
pub fn duplicate(fd: Fd) Moved {
    const rc = if (is_linux)
        system.fcntl(fd, system.F.DUPFD_CLOEXEC, 0)
    else
        system.fcntl(fd, system.F.DUPFD_CLOEXEC, @as(c_int, 0));
    return owned(made(rc));
}

/// Records a new descriptor as the engine's, so that forked children close it.
pub fn owned(new: Moved) Moved {
    if (new == .done) fork.own(@intCast(new.done));
    return new;
}

/// Closes the descriptors from `first` up to, not including, `end` in a forked child: copies of the parent's.
pub fn closeRun(first: usize, end: usize) void {
    if (is_linux and
        errno(system.close_range(@intCast(first), @intCast(end - 1), @bitCast(@as(u32, 0)))) == .SUCCESS)
    {
        return;
    }
    // Linux before 5.9 has no close_range.
    for (first..end) |fd| _ = system.close(@intCast(fd));
}

/// Makes `fd` a descriptor of the open file of `other`, closed on exec; null: closes `fd`.
pub fn replace(fd: Fd, other: ?Fd) void {
    const with = other orelse {
        _ = system.close(fd);
        return;
    };
    const rc = if (is_linux)
        system.dup3(with, fd, @as(u32, @bitCast(system.O{ .CLOEXEC = true })))
    else
        system.dup2(with, fd);
    if (errno(rc) != .SUCCESS) return;
    if (!is_linux) _ = control(fd, system.F.SETFD, system.FD_CLOEXEC);
}

/// Returns true if a read or an accept would not block now.
pub fn isReadable(fd: Fd) bool {
    var wanted: [1]system.pollfd = .{.{ .fd = fd, .events = system.POLL.IN, .revents = 0 }};
    const rc = system.poll(&wanted, 1, 0);
    return errno(rc) == .SUCCESS and rc > 0;
}

/// Returns true if the kernel knows that the peer has ended its sending side or that the connection is dead.
pub fn hasPeerShut(fd: Fd) bool {
    var wanted: [1]system.pollfd = .{.{ .fd = fd, .events = here.poll_peer_shut, .revents = 0 }};
    const rc = system.poll(&wanted, 1, 0);
    return errno(rc) == .SUCCESS and rc > 0;
}

/// Waits until a read would not block, at most `timeout_ms` (-1: for ever). A signal ends the wait early.
pub fn waitReadable(fd: Fd, timeout_ms: i32) void {
    var wanted: [1]system.pollfd = .{.{ .fd = fd, .events = system.POLL.IN, .revents = 0 }};
    _ = system.poll(&wanted, 1, timeout_ms);
}

/// Makes a descriptor that the engine did not open non-blocking and closed on exec.
pub fn setNonblockCloexec(fd: Fd) UnexpectedError!void {
    const status = control(fd, system.F.GETFL, 0) orelse return error.Unexpected;
    const nonblock: u32 = @bitCast(system.O{ .NONBLOCK = true });
    _ = control(fd, system.F.SETFL, status | nonblock) orelse return error.Unexpected;
    try setCloexec(fd);
}

/// Makes a descriptor be closed on exec.
pub fn setCloexec(fd: Fd) UnexpectedError!void {
    _ = control(fd, system.F.SETFD, system.FD_CLOEXEC) orelse return error.Unexpected;
}

/// Calls fcntl (man 2 fcntl) with a numeric argument. Null: it failed.
fn control(fd: Fd, command: i32, argument: u32) ?u32 {
    const rc = if (is_linux)
        system.fcntl(fd, command, argument)
    else
        system.fcntl(fd, command, @as(c_int, @bitCast(argument)));
    return if (errno(rc) == .SUCCESS) @intCast(rc) else null;
}

/// Facts about a file, from `stat`.
pub const Look = struct {
    kind: enum { regular, socket, other },
    /// Permission bits.
    mode: u12,
    size: u64,
    inode: u64,
    device: u64,
};

/// Returns facts about an open file; null: the descriptor is not open.
pub fn look(fd: Fd) ?Look {
    var info: here.Info = undefined;
    return if (errno(here.look(fd, &info)) == .SUCCESS) described(&info) else null;
}

/// Returns facts about the file at a path, without following a link; null: there is none.
pub fn lookFor(path: [*:0]const u8) ?Look {
    var info: here.Info = undefined;
    return if (errno(here.lookFor(path, &info)) == .SUCCESS) described(&info) else null;
}

fn described(info: *const here.Info) Look {
    const S = system.S;
    return .{
        .kind = if (S.ISREG(info.mode)) .regular else if (S.ISSOCK(info.mode)) .socket else .other,
        .mode = @truncate(info.mode),
        .size = @intCast(info.size),
        .inode = info.ino,
        .device = here.deviceOf(info),
    };
}

/// Reasons why a file's owner or mode cannot be changed.
pub const GrantError = error{ AccessDenied, PathUnusable };

/// Changes the owner and group of a file; null: unchanged. A link is not followed.
pub fn setOwner(path: [*:0]const u8, uid: ?u32, gid: ?u32) GrantError!void {
    const unchanged = std.math.maxInt(u32);
    return granted(system.fchownat(
        system.AT.FDCWD,
        path,
        uid orelse unchanged,
        gid orelse unchanged,
        system.AT.SYMLINK_NOFOLLOW,
    ));
}

pub fn setMode(path: [*:0]const u8, mode: u12) GrantError!void {
    return granted(system.chmod(path, mode));
}

fn granted(rc: anytype) GrantError!void {
    return switch (errno(rc)) {
        .SUCCESS => {},
        .PERM, .ACCES => error.AccessDenied,
        else => error.PathUnusable,
    };
}

/// Opens a folder, closed on exec.
pub fn openFolder(path: [*:0]const u8) Moved {
    const mode: c_uint = 0;
    return made(system.open(path, .{ .ACCMODE = .RDONLY, .DIRECTORY = true, .CLOEXEC = true }, mode));
}

/// Locks an open file or folder until the open file is closed (man 2 flock). `.blocked`: another open file
/// holds the lock.
pub fn lock(fd: Fd) Moved {
    const exclusive = 2;
    const at_once = 4;
    return moved(system.flock(fd, exclusive | at_once));
}

/// Locks an open file for this process, also against processes that inherited the same descriptor. False: it
/// is locked.
pub fn lockForProcess(fd: Fd) bool {
    var whole = std.mem.zeroes(system.Flock);
    whole.type = system.F.WRLCK;
    return errno(system.fcntl(fd, system.F.SETLK, @intFromPtr(&whole))) == .SUCCESS;
}

/// Sleeps; a signal may end that early.
pub fn sleep(ms: u31) void {
    var none: [0]system.pollfd = .{};
    _ = system.poll(&none, 0, ms);
}

/// Removes the name of a file. Returns true if the call removed it.
pub fn unlink(path: [*:0]const u8) bool {
    return errno(system.unlink(path)) == .SUCCESS;
}

// ---- Listening and connecting

/// Reasons why a socket cannot have an address.
pub const BindError = error{
    /// Another socket listens at the address already (EADDRINUSE).
    AddressInUse,
    /// No interface of this machine has that address (EADDRNOTAVAIL).
    AddressUnavailable,
    /// A privileged port, or a directory that the process may not write to (EACCES, EPERM).
    AccessDenied,
    /// The directory of a Unix socket does not exist or cannot be written (ENOENT, ENOTDIR, EROFS).
    PathUnusable,
} || ResourceError;

/// Gives a socket its own address.
pub fn bind(fd: Fd, address: *const sockaddr, length: socklen_t) BindError!void {
    return switch (errno(system.bind(fd, address, length))) {
        .SUCCESS => {},
        .ADDRINUSE => error.AddressInUse,
        .ADDRNOTAVAIL => error.AddressUnavailable,
        .ACCES, .PERM => error.AccessDenied,
        .NOENT, .NOTDIR, .ROFS => error.PathUnusable,
        else => |code| resourceError(code),
    };
}

/// Starts to queue up to `backlog` connections; the kernel caps that at net.core.somaxconn.
pub fn listen(fd: Fd, backlog: u31) BindError!void {
    return switch (errno(system.listen(fd, backlog))) {
        .SUCCESS => {},
        .ADDRINUSE => error.AddressInUse,
        else => |code| resourceError(code),
    };
}

/// Reasons why a socket is not connected, or not yet.
pub const ConnectError = error{
    /// No socket listens at the address (ECONNREFUSED), or the path does not exist (ENOENT).
    Refused,
    /// The connection is being made; the socket becomes writable when that ends (EINPROGRESS, EAGAIN).
    Pending,
} || ResourceError;

/// Begins a connection.
pub fn connect(fd: Fd, address: *const sockaddr, length: socklen_t) ConnectError!void {
    return switch (errno(system.connect(fd, address, length))) {
        .SUCCESS => {},
        .CONNREFUSED, .NOENT => error.Refused,
        .INPROGRESS, .AGAIN => error.Pending,
        else => |code| resourceError(code),
    };
}

/// Accepts one connection from a listening socket, non-blocking, closed on exec and in forks; writes the
/// peer's address to `peer`.
pub fn accept(listener: Fd, peer: *sockaddr.storage, length: *socklen_t) Moved {
    while (true) {
        length.* = @sizeOf(sockaddr.storage);
        switch (here.accept(listener, peer, length)) {
            .failed => |code| if (code != .INTR) return .{ .failed = code },
            else => |outcome| return owned(outcome),
        }
    }
}

/// Writes the local address of a socket.
pub fn getsockname(fd: Fd, address: *sockaddr.storage, length: *socklen_t) ResourceError!void {
    length.* = @sizeOf(sockaddr.storage);
    const code = errno(system.getsockname(fd, @ptrCast(address), length));
    if (code != .SUCCESS) return resourceError(code);
}

/// Writes the peer's address of a connected socket.
pub fn getpeername(fd: Fd, address: *sockaddr.storage, length: *socklen_t) ResourceError!void {
    length.* = @sizeOf(sockaddr.storage);
    const code = errno(system.getpeername(fd, @ptrCast(address), length));
    if (code != .SUCCESS) return resourceError(code);
}

// ---- Options

/// Socket options that carry one integer.
pub const Option = enum {
    reuse_address,
    reuse_port,
    v6_only,
    no_delay,
    /// The socket listens; read only.
    accept_conn,
    /// Stream or datagram (SO_TYPE); read only.
    kind,
    send_buffer_bytes,
    receive_buffer_bytes,

    fn level(option: Option) i32 {
        return switch (option) {
            .reuse_address,
            .reuse_port,
            .accept_conn,
            .kind,
            .send_buffer_bytes,
            .receive_buffer_bytes,
            => system.SOL.SOCKET,
            .v6_only => system.IPPROTO.IPV6,
            .no_delay => system.IPPROTO.TCP,
        };
    }

    fn name(option: Option) u32 {
        return switch (option) {
            .reuse_address => system.SO.REUSEADDR,
            .reuse_port => here.reuse_port,
            .v6_only => here.v6_only,
            .no_delay => system.TCP.NODELAY,
            .accept_conn => here.accept_conn,
            .kind => system.SO.TYPE,
            .send_buffer_bytes => system.SO.SNDBUF,
            .receive_buffer_bytes => system.SO.RCVBUF,
        };
    }
};

/// Reasons why an option cannot be read or set.
pub const OptionError = error{
    /// Sockets of this kind lack the option (ENOPROTOOPT, EOPNOTSUPP).
    OptionUnsupported,
} || ResourceError;

pub fn setOption(fd: Fd, option: Option, value: c_int) OptionError!void {
    const bytes = std.mem.asBytes(&value);
    return switch (errno(system.setsockopt(fd, option.level(), option.name(), bytes, bytes.len))) {
        .SUCCESS => {},
        .NOPROTOOPT, .OPNOTSUPP => error.OptionUnsupported,
        else => |code| resourceError(code),
    };
}

pub fn getOption(fd: Fd, option: Option) OptionError!c_int {
    return getInteger(fd, option.level(), option.name());
}

/// Returns the pending error of a socket and clears it (SO_ERROR); `.SUCCESS`: there is none.
pub fn takeError(fd: Fd) E {
    const value = getInteger(fd, system.SOL.SOCKET, system.SO.ERROR) catch return .BADF;
    return @fromBackingInt(@intCast(value));
}

fn getInteger(fd: Fd, level: i32, name: u32) OptionError!c_int {
    var value: c_int = 0;
    var length: socklen_t = @sizeOf(c_int);
    return switch (errno(system.getsockopt(fd, level, name, std.mem.asBytes(&value), &length))) {
        .SUCCESS => value,
        .NOPROTOOPT, .OPNOTSUPP => error.OptionUnsupported,
        else => |code| resourceError(code),
    };
}

// ---- Moving bytes

/// Receives bytes, at most `buffer.len`. `done = 0` is the end of the stream.
pub fn receive(fd: Fd, buffer: []u8) Moved {
    assert(buffer.len > 0); // a receive of 0 bytes would look like the end of the stream
    while (true) {
        const rc = system.recvfrom(fd, buffer.ptr, buffer.len, here.no_wait, null, null);
        return switch (errno(rc)) {
            .SUCCESS => .{ .done = @intCast(rc) },
            .AGAIN => .blocked,
            .INTR => continue,
            else => |code| .{ .failed = code },
        };
    }
}

/// Sends slices, in order, as far as the kernel takes them. `more` promises that further bytes follow at once
/// (MSG_MORE), so that TCP waits for a full segment; ignored on a BSD. Never raises SIGPIPE.
pub fn send(fd: Fd, slices: []const Slice, more: bool) Moved {
    assert(slices.len > 0 and slices.len <= slices_max);
    const flags: u32 = here.no_signal | here.no_wait | @as(u32, if (more) here.more else 0);
    const message: system.msghdr_const = .{
        .name = null,
        .namelen = 0,
        .iov = slices.ptr,
        .iovlen = @intCast(slices.len),
        .control = null,
        .controllen = 0,
        .flags = 0,
    };
    while (true) {
        // With one slice the kernel need not copy a message header, which saves 1 to 2 % of a small response.
        const rc = if (slices.len == 1)
            system.sendto(fd, slices[0].base, slices[0].len, flags, null, 0)
        else
            system.sendmsg(fd, &message, flags);
        return switch (errno(rc)) {
            .SUCCESS => .{ .done = @intCast(rc) },
            .AGAIN => .blocked,
            .INTR => continue,
            else => |code| .{ .failed = code },
        };
    }
}

/// Sends a range of a file without copying it through this process. `done = 0` means that the file ends at
/// `offset`. The file's position does not change. Unlike `send` this may raise SIGPIPE if the peer is gone,
/// so the process must ignore that signal.
pub fn sendFile(fd: Fd, file: Fd, offset: u64, length: usize) Moved {
    assert(length > 0);
    while (true) switch (here.sendFile(fd, file, offset, length)) {
        .failed => |code| if (code != .INTR) return .{ .failed = code },
        else => |outcome| return outcome,
    };
}

/// Whether bytes of a file are in memory. `unknown`: its file system does not say.
pub const Presence = enum { present, absent, unknown };
/// Tells if the byte at an offset of a file is in memory; `present` beyond its end. Never waits for storage.
pub const isInMemory = here.isInMemory;

/// Returns true if the file system of an open file or folder waits neither for a network nor for another
/// process.
pub const isLocal = here.isLocal;

/// The room of a file system: bytes in all, bytes that a program without special rights can still write, and
/// true if it keeps files in memory.
pub const Room = struct { total: u64, free: u64, is_memory: bool };
/// Returns the room of the file system of an open file; null: unknown. May wait for storage.
pub const roomOf = here.roomOf;

/// Opens a file to be read, closed on exec. O_NONBLOCK: the open of a named pipe does not wait for a writer.
pub fn openFile(path: [*:0]const u8) Moved {
    const mode: c_uint = 0;
    return made(system.open(path, .{ .ACCMODE = .RDONLY, .CLOEXEC = true, .NONBLOCK = true }, mode));
}
/// Tells the kernel which bytes of a file are needed soon. May wait for storage.
pub const readAhead = here.readAhead;

/// Reads a file at an offset. `done = 0` is the end of the file.
pub fn readFileAt(file: Fd, buffer: []u8, offset: u64) Moved {
    while (true) {
        const rc = system.pread(file, buffer.ptr, buffer.len, @intCast(offset));
        return switch (errno(rc)) {
            .SUCCESS => .{ .done = @intCast(rc) },
            .INTR => continue,
            else => |code| .{ .failed = code },
        };
    }
}

/// Returns the content of a small file, at most `buffer.len` bytes. Null: it cannot be read.
pub fn readWhole(path: [*:0]const u8, buffer: []u8) ?[]const u8 {
    const rc = system.open(path, .{ .ACCMODE = .RDONLY, .CLOEXEC = true }, @as(c_uint, 0));
    if (errno(rc) != .SUCCESS) return null;
    const fd: Fd = @intCast(rc);
    defer _ = system.close(fd);
    return switch (readFileAt(fd, buffer, 0)) {
        .done => |len| buffer[0..len],
        .blocked, .failed => null,
    };
}

/// The number of sent bytes that the peer has not acknowledged; 0 where the kernel does not tell.
pub const heldBytes = here.heldBytes;

/// Makes the next close of a socket reset the connection.
pub fn resetOnClose(fd: Fd) void {
    const linger = extern struct { onoff: c_int, seconds: c_int };
    const value: linger = .{ .onoff = 1, .seconds = 0 };
    // If this fails, the peer sees an orderly close.
    _ = system.setsockopt(fd, system.SOL.SOCKET, system.SO.LINGER, @ptrCast(&value), @sizeOf(linger));
}

/// Sends keep-alive probes after 15 s of silence, every 5 s, three times. No effect on sockets other than
/// TCP.
pub fn probePeer(fd: Fd) void {
    const settings = [_]struct { i32, u32, c_int }{
        .{ system.SOL.SOCKET, system.SO.KEEPALIVE, 1 },
        .{ system.IPPROTO.TCP, here.keep_idle, 15 },
        .{ system.IPPROTO.TCP, system.TCP.KEEPINTVL, 5 },
        .{ system.IPPROTO.TCP, system.TCP.KEEPCNT, 3 },
    };
    for (settings) |setting| {
        const level, const name, const value = setting;
        _ = system.setsockopt(fd, level, name, @ptrCast(&value), @sizeOf(c_int));
    }
}

/// Makes the kernel take no more bytes while this many are unsent (TCP_NOTSENT_LOWAT). No effect where the
/// option is missing.
pub fn limitUnsent(fd: Fd, bytes: c_int) void {
    const name = here.unsent_low_water orelse return;
    _ = system.setsockopt(fd, system.IPPROTO.TCP, name, @ptrCast(&bytes), @sizeOf(c_int));
}

/// Ends our sending side: the peer reads what was sent and then the end of the stream. No effect on a dead
/// socket.
pub fn shutdownSend(fd: Fd) void {
    const shut_wr = 1;
    assert(errno(system.shutdown(fd, shut_wr)) != .BADF);
}

// ---- Clocks

/// Milliseconds of the monotonic clock, rounded down. The precise clock takes about 20 ns through the vDSO.
/// The coarse one lags by up to a tick (1 to 10 ms), so an alarm that fires in time would seem early and be
/// set again and again until the tick ends.
pub fn monotonicMs() u64 {
    const time = clock(.MONOTONIC);
    return @as(u64, @intCast(time.sec)) * std.time.ms_per_s +
        @as(u64, @intCast(time.nsec)) / std.time.ns_per_ms;
}

/// Microseconds of the monotonic clock.
pub fn monotonicUs() u64 {
    const time = clock(.MONOTONIC);
    return @as(u64, @intCast(time.sec)) * std.time.us_per_s +
        @as(u64, @intCast(time.nsec)) / std.time.ns_per_us;
}

/// Nanoseconds of the monotonic clock.
pub fn monotonicNs() u64 {
    const time = clock(.MONOTONIC);
    return @as(u64, @intCast(time.sec)) * std.time.ns_per_s + @as(u64, @intCast(time.nsec));
}

/// Seconds since 1970 (UTC) by the coarse clock: up to one tick (1 to 10 ms) late, which does not matter for
/// dates in whole seconds.
pub fn wallSeconds() u64 {
    return @intCast(clock(here.coarse_clock).sec);
}

fn clock(which: system.clockid_t) system.timespec {
    var time: system.timespec = undefined;
    if (is_linux and builtin.link_libc) {
        // In a shared object with libc, std has no auxiliary vector and cannot find the vDSO, so it would
        // make a system call each time; libc need not.
        assert(std.c.clock_gettime(@fromBackingInt(@intCast(@backingInt(which))), &time) == 0);
    } else {
        assert(errno(system.clock_gettime(which, &time)) == .SUCCESS);
    }
    return time;
}

const linux = std.os.linux;

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
    try std.testing.expectEqual(
        E.SUCCESS,
        linux.errno(linux.socketpair(linux.AF.UNIX, linux.SOCK.STREAM, 0, &pair)),
    );
    defer for (pair) |fd| close(fd);
    try setNonblockCloexec(pair[0]);
    var buffer: [1]u8 = undefined;
    try std.testing.expectEqual(Moved.blocked, receive(pair[0], &buffer));
}

test "a send to a closed peer is a value, not a signal" {
    var pair: [2]Fd = undefined;
    try std.testing.expectEqual(
        E.SUCCESS,
        linux.errno(linux.socketpair(linux.AF.UNIX, linux.SOCK.STREAM, 0, &pair)),
    );
    defer close(pair[0]);
    close(pair[1]);
    const bytes = "x";
    try std.testing.expectEqual(
        Moved{ .failed = .PIPE },
        send(pair[0], &.{.{ .base = bytes, .len = bytes.len }}, false),
    );
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
