//! Objects that two processes share: memory without a name, and sockets that carry descriptors. Linux only;
//! elsewhere all functions fail with `Unsupported`. Does not know: the content of the memory, and the purpose
//! of descriptors.
const std = @import("std");
const builtin = @import("builtin");
const sys = @import("sys.zig");
const watch = @import("sys/epoll.zig");
const is_linux = builtin.os.tag == .linux;
const linux = std.os.linux;
const assert = std.debug.assert;

/// Whether this system can share memory and descriptors.
pub const is_supported = is_linux;

/// Reasons why memory or sockets cannot be shared.
pub const Error = sys.ResourceError || error{
    Unsupported,
    /// Memory counts as a file, and no file of this process may be so long (RLIMIT_FSIZE).
    FileTooLarge,
};

/// Memory that other processes map, too. It begins as zeros. No process can make it shorter, so that writers
/// find all of it.
pub const Memory = struct {
    bytes: []align(std.heap.page_size_min) u8,

    const seals = linux.F.SEAL_SHRINK | linux.F.SEAL_GROW | linux.F.SEAL_SEAL;

    /// Creates memory. The caller closes the descriptor, by which others map the memory.
    pub fn create(len: usize) Error!struct { Memory, sys.Fd } {
        if (!is_linux) return error.Unsupported;
        const fd = try descriptor(try sealed("peregrine", len));
        errdefer sys.close(fd);
        return .{ try map(fd, len), fd };
    }

    /// Creates memory of a whole server, which children of this process have, too, with its descriptor, which
    /// is closed only on exec. `name` is shown in /proc.
    pub fn createForChildren(name: [*:0]const u8, len: usize) Error!struct { Memory, sys.Fd } {
        if (!is_linux) return error.Unsupported;
        const fd: sys.Fd = @intCast(try sealed(name, len));
        errdefer sys.close(fd);
        return .{ try mapHere(fd, len), fd };
    }

    /// Creates memory with a descriptor by which others can map it for reading only. The caller closes the
    /// descriptor.
    pub fn createReadable(len: usize) Error!struct { Memory, sys.Fd } {
        if (!is_linux) return error.Unsupported;
        const memory, const fd = try create(len);
        defer sys.close(fd);
        errdefer memory.close();
        var buffer: [32]u8 = undefined;
        const path = std.mem.printSentinel(&buffer, "/proc/self/fd/{d}", .{fd}, 0) catch unreachable;
        return .{ memory, try descriptor(linux.open(path, .{ .CLOEXEC = true }, 0)) };
    }

    /// Gives whole pages of shared memory back. They read as zeros afterwards.
    pub fn giveBack(pages: []align(std.heap.page_size_min) u8) void {
        if (is_linux) _ = linux.madvise(pages.ptr, pages.len, linux.MADV.REMOVE);
    }

    fn sealed(name: [*:0]const u8, len: usize) Error!usize {
        const rc = linux.memfd_create(name, linux.MFD.CLOEXEC | linux.MFD.ALLOW_SEALING);
        try done(rc);
        const fd: sys.Fd = @intCast(rc);
        errdefer sys.close(fd);
        try done(linux.fchmod(fd, 0o600));
        const truncated = linux.ftruncate(fd, @intCast(len));
        if (linux.errno(truncated) == .FBIG) return error.FileTooLarge;
        try done(truncated);
        try done(linux.fcntl(fd, linux.F.ADD_SEALS, seals));
        return rc;
    }

    /// Maps memory that another process has created with this length. The caller still owns the descriptor.
    pub fn open(fd: sys.Fd, len: usize) (Error || error{Malformed})!Memory {
        if (!is_linux) return error.Unsupported;
        try examine(fd, len);
        return map(fd, len);
    }

    /// Like `open`, for memory that children of this process get, too.
    pub fn openForChildren(fd: sys.Fd, len: usize) (Error || error{Malformed})!Memory {
        if (!is_linux) return error.Unsupported;
        try examine(fd, len);
        return mapHere(fd, len);
    }

    fn examine(fd: sys.Fd, len: usize) error{Malformed}!void {
        const found = sys.look(fd) orelse return error.Malformed;
        if (found.kind != .regular or found.size != len) return error.Malformed;
        const rc = linux.fcntl(fd, linux.F.GET_SEALS, 0);
        if (linux.errno(rc) != .SUCCESS or rc & seals != seals) return error.Malformed;
    }

    /// Maps the memory. Forked children do not have the mapping.
    fn map(fd: sys.Fd, len: usize) Error!Memory {
        const memory = try mapHere(fd, len);
        forkWithout(memory.bytes);
        return memory;
    }

    fn mapHere(fd: sys.Fd, len: usize) Error!Memory {
        return .{ .bytes = try mapped(fd, len, .{ .READ = true, .WRITE = true }) };
    }

    pub fn close(memory: Memory) void {
        std.posix.munmap(memory.bytes);
    }
};

/// Memory that another process writes and this one can only read (`Memory.createReadable`).
pub const Readable = struct {
    bytes: []align(std.heap.page_size_min) const u8,

    /// Maps memory that another process has created with this length. The caller still owns the descriptor.
    /// Forked children do not have the mapping.
    pub fn open(fd: sys.Fd, len: usize) (Error || error{Malformed})!Readable {
        if (!is_linux) return error.Unsupported;
        try Memory.examine(fd, len);
        const bytes = try mapped(fd, len, .{ .READ = true });
        forkWithout(bytes);
        return .{ .bytes = bytes };
    }

    pub fn close(readable: Readable) void {
        std.posix.munmap(readable.bytes);
    }
};

fn mapped(fd: sys.Fd, len: usize, access: linux.PROT) Error![]align(std.heap.page_size_min) u8 {
    const rc = linux.mmap(null, len, access, .{ .TYPE = .SHARED }, fd, 0);
    try done(rc);
    const bytes: [*]align(std.heap.page_size_min) u8 = @ptrFromInt(rc);
    return bytes[0..len];
}

fn forkWithout(bytes: []align(std.heap.page_size_min) const u8) void {
    _ = linux.madvise(@constCast(bytes.ptr), bytes.len, linux.MADV.DONTFORK);
}

/// Creates a file in memory with these bytes, for other processes. The caller owns the descriptor.
pub fn fileOf(bytes: []const u8) Error!sys.Fd {
    if (!is_linux) return error.Unsupported;
    const fd = try descriptor(linux.memfd_create("peregrine", linux.MFD.CLOEXEC));
    errdefer sys.close(fd);
    try replaceContent(fd, bytes);
    return fd;
}

/// Creates an empty file in memory, which children of this process have, too. Its descriptor is closed only
/// on exec.
pub fn fileForChildren() Error!sys.Fd {
    if (!is_linux) return error.Unsupported;
    const rc = linux.memfd_create("peregrine", linux.MFD.CLOEXEC);
    try done(rc);
    return @intCast(rc);
}

/// Replaces the content of a file in memory. After an error the file has only a part of it.
pub fn replaceContent(fd: sys.Fd, bytes: []const u8) Error!void {
    if (!is_linux) return error.Unsupported;
    try done(linux.ftruncate(fd, 0));
    var written: usize = 0;
    while (written < bytes.len) {
        const rest = bytes[written..];
        const rc = linux.pwrite(fd, rest.ptr, rest.len, @intCast(written));
        if (linux.errno(rc) == .INTR) continue;
        try done(rc);
        written += rc;
    }
}

/// Two connected sockets that keep messages apart. They are non-blocking, and closed on exec and in forks.
pub fn pair() Error![2]sys.Fd {
    if (!is_linux) return error.Unsupported;
    var both: [2]sys.Fd = undefined;
    const kind = linux.SOCK.SEQPACKET | linux.SOCK.CLOEXEC | linux.SOCK.NONBLOCK;
    try done(linux.socketpair(linux.AF.UNIX, kind, 0, &both));
    for (both) |fd| _ = sys.owned(.{ .done = @intCast(fd) });
    return both;
}

/// The most descriptors in one message.
pub const descriptors_max = 4;

const Control = extern struct {
    head: linux.cmsghdr,
    fds: [descriptors_max]sys.Fd,

    fn lengthOf(count: usize) usize {
        return @sizeOf(linux.cmsghdr) + count * @sizeOf(sys.Fd);
    }
};

/// Sends a message with copies of descriptors. `blocked`: there is no room at present.
pub fn send(socket: sys.Fd, bytes: []const u8, fds: []const sys.Fd) enum { sent, blocked, ended } {
    assert(bytes.len > 0 and fds.len <= descriptors_max);
    if (!is_linux) return .ended;
    var control: Control = undefined;
    control.head = .{
        .len = Control.lengthOf(fds.len),
        .level = linux.SOL.SOCKET,
        .type = linux.SCM.RIGHTS,
    };
    @memcpy(control.fds[0..fds.len], fds);
    const piece: std.posix.iovec_const = .{ .base = bytes.ptr, .len = bytes.len };
    const message: linux.msghdr_const = .{
        .name = null,
        .namelen = 0,
        .iov = @ptrCast(&piece),
        .iovlen = 1,
        .control = if (fds.len > 0) &control else null,
        .controllen = if (fds.len > 0) control.head.len else 0,
        .flags = 0,
    };
    const flags = linux.MSG.NOSIGNAL | linux.MSG.DONTWAIT;
    while (true) switch (linux.errno(linux.sendmsg(socket, &message, flags))) {
        .SUCCESS => return .sent,
        .INTR => {},
        // ETOOMANYREFS: the descriptors on their way have reached the process's limit.
        .AGAIN, .NOBUFS, .NOMEM, .TOOMANYREFS => return .blocked,
        else => return .ended,
    };
}

/// The result of `receive`.
pub const Received = union(enum) {
    message: struct { len: usize, fd_count: usize },
    nothing,
    /// This process has no room for the message's descriptors. They are lost, and the message with them.
    lacking,
    /// The other end is closed, or breaks the rules.
    ended,
};

/// Receives the next message. The caller owns its descriptors, which are closed on exec and in forks. `ended`
/// is the answer to a message that is longer than `bytes`, or has more descriptors than `fds` has room for.
pub fn receive(socket: sys.Fd, bytes: []u8, fds: []sys.Fd) Received {
    if (!is_linux) return .ended;
    var control: Control = undefined;
    var piece: std.posix.iovec = .{ .base = bytes.ptr, .len = bytes.len };
    var message: linux.msghdr = .{
        .name = null,
        .namelen = 0,
        .iov = @ptrCast(&piece),
        .iovlen = 1,
        .control = &control,
        .controllen = @sizeOf(Control),
        .flags = 0,
    };
    const len = while (true) {
        const rc = linux.recvmsg(socket, &message, linux.MSG.CMSG_CLOEXEC | linux.MSG.DONTWAIT);
        switch (linux.errno(rc)) {
            .SUCCESS => break rc,
            .INTR => {},
            .AGAIN => return .nothing,
            else => return .ended,
        }
    };
    const count = countOf(&message, &control);
    for (control.fds[0..count]) |fd| _ = sys.owned(.{ .done = @intCast(fd) });
    const cut = message.flags & (linux.MSG.TRUNC | linux.MSG.CTRUNC) != 0;
    if (len == 0 or cut or count > fds.len) {
        for (control.fds[0..count]) |fd| sys.close(fd);
        // The kernel passes only descriptors for which `control` and this process's table have room.
        const lacks = message.flags & linux.MSG.CTRUNC != 0 and count < descriptors_max;
        return if (lacks) .lacking else .ended;
    }
    @memcpy(fds[0..count], control.fds[0..count]);
    return .{ .message = .{ .len = len, .fd_count = count } };
}

fn countOf(message: *const linux.msghdr, control: *const Control) usize {
    if (message.controllen < @sizeOf(linux.cmsghdr)) return 0;
    if (control.head.level != linux.SOL.SOCKET or control.head.type != linux.SCM.RIGHTS) return 0;
    return @min(descriptors_max, (control.head.len - @sizeOf(linux.cmsghdr)) / @sizeOf(sys.Fd));
}

/// One descriptor for all events that wake a process which works with another one: the waker that the other
/// process raises, a counter of this process, the socket between both, which shows the other's end, and
/// perhaps a host's loop. Each sign of the waker and of the counter is an edge, so nothing reads them.
pub const Wakeup = struct {
    all: sys.Fd,
    waker: sys.Fd,
    event: sys.Fd,
    /// The descriptor of a loop that is watched, too; -1: none.
    loop: sys.Fd = -1,
    /// A sign of the waker has to be taken from its instance before a further one shows (`showsEachSign`).
    takes_signs: bool,
    /// `wait` has taken the present signs, and `clear` was not called since.
    is_taken: bool = false,
    /// The other end of the socket is closed.
    has_ended: bool = false,

    /// The event of a report.
    const Source = enum(u64) { waker, event, socket, loop };
    const sources = 4;

    /// `waker` is the other process's, from `Waker.create`. The caller still owns both descriptors.
    pub fn init(waker: sys.Fd, socket: sys.Fd) Error!Wakeup {
        if (!is_linux) return error.Unsupported;
        const all = try watch.epollCreate();
        errdefer sys.close(all);
        const event = try watch.eventFd();
        errdefer sys.close(event);
        const edge = watch.Ready.in | watch.Ready.edge;
        try watch.epollAdd(all, waker, edge, @backingInt(Source.waker));
        try watch.epollAdd(all, event, edge, @backingInt(Source.event));
        const ready = watch.Ready.in | watch.Ready.peer_shut;
        try watch.epollAdd(all, socket, ready, @backingInt(Source.socket));
        return .{ .all = all, .waker = waker, .event = event, .takes_signs = !showsEachSign() };
    }

    /// Whether an epoll instance that watches another one hears of each edge there. Linux tells it of all
    /// edges; other kernels with its calls, such as gVisor's, only of the first one that nobody takes.
    fn showsEachSign() bool {
        const own, const watcher = Waker.create() catch return false;
        defer own.close();
        defer sys.close(watcher);
        const all = watch.epollCreate() catch return false;
        defer sys.close(all);
        watch.epollAdd(all, watcher, watch.Ready.in | watch.Ready.edge, 0) catch return false;
        for (0..2) |_| {
            own.raise();
            var report: [1]watch.EpollEvent = undefined;
            if (watch.epollWait(all, &report, 0).len == 0) return false;
        }
        return true;
    }

    pub fn deinit(wakeup: *Wakeup) void {
        sys.close(wakeup.event);
        sys.close(wakeup.all);
    }

    /// Watches a loop's descriptor, too, in place of an earlier one; -1: watches none. Must be called before
    /// the earlier descriptor is closed.
    pub fn watchLoop(wakeup: *Wakeup, loop: sys.Fd) Error!void {
        if (!is_linux) return error.Unsupported;
        if (wakeup.loop >= 0) watch.epollDelete(wakeup.all, wakeup.loop) catch {};
        wakeup.loop = -1;
        if (loop < 0) return;
        try watch.epollAdd(wakeup.all, loop, watch.Ready.in, @backingInt(Source.loop));
        wakeup.loop = loop;
    }

    /// Ends the watches of the waker and of `socket`, because the other process is gone.
    pub fn forget(wakeup: *Wakeup, socket: sys.Fd) void {
        if (!is_linux) return;
        for ([_]sys.Fd{ wakeup.waker, socket }) |one| watch.epollDelete(wakeup.all, one) catch {};
        wakeup.has_ended = false;
    }

    /// Makes the wakeup readable. May be called by any thread of this process.
    pub fn raise(wakeup: *const Wakeup) void {
        if (is_linux) watch.eventRaise(wakeup.event);
    }

    /// Clears the signs that the last `wait` has taken or, if there was none since the last `clear`, the
    /// present signs.
    pub fn clear(wakeup: *Wakeup) void {
        if (!wakeup.is_taken) _ = wakeup.take(0, null);
        wakeup.is_taken = false;
    }

    /// The descriptor that a loop watches for reading.
    pub fn fd(wakeup: *const Wakeup) sys.Fd {
        return wakeup.all;
    }

    /// Waits until the wakeup is readable, at most `timeout_ms` (-1: for ever). During the wait these signals
    /// are blocked (null: the thread's own mask is used). True: the loop is readable, or a signal has come.
    pub fn wait(wakeup: *Wakeup, timeout_ms: i32, blocked: ?*const u64) bool {
        wakeup.is_taken = true;
        return wakeup.take(timeout_ms, blocked);
    }

    /// Waits for the other process only, because the loop has its turn later. True: a signal has come.
    pub fn waitWithoutLoop(wakeup: *Wakeup, timeout_ms: i32) bool {
        wakeup.listenToLoop(0);
        defer wakeup.listenToLoop(watch.Ready.in);
        return wakeup.take(timeout_ms, null);
    }

    fn listenToLoop(wakeup: *const Wakeup, events: u32) void {
        if (!is_linux or wakeup.loop < 0) return;
        watch.epollModify(wakeup.all, wakeup.loop, events, @backingInt(Source.loop)) catch {};
    }

    fn take(wakeup: *Wakeup, timeout_ms: i32, blocked: ?*const u64) bool {
        if (!is_linux) return false;
        var reports: [sources]watch.EpollEvent = undefined;
        const seen = watch.epollWaitBlocking(wakeup.all, &reports, timeout_ms, blocked) orelse return true;
        const ending = watch.Ready.peer_shut | watch.Ready.hung_up | watch.Ready.failed;
        var is_due = false;
        for (seen) |*report| switch (@as(Source, @fromBackingInt(report.data.u64))) {
            .waker => if (wakeup.takes_signs) {
                var sign: [1]watch.EpollEvent = undefined;
                _ = watch.epollWait(wakeup.waker, &sign, 0);
            },
            .event => {},
            .socket => wakeup.has_ended = wakeup.has_ended or report.events & ending != 0,
            .loop => is_due = true,
        };
        return is_due;
    }
};

/// Creates a bell, which another process rings and this one watches (`watchBell` of the io). Only the other
/// process writes to it, and no process reads it, so a process that fills the counter or makes writes block
/// delays only itself.
pub fn bell() Error!sys.Fd {
    if (!is_linux) return error.Unsupported;
    return watch.eventFd();
}

/// Rings a bell. May be called by any thread and by signal handlers.
pub fn ring(fd: sys.Fd) void {
    if (is_linux) watch.eventRaise(fd);
}

/// An event counter by which this process wakes another one, which must not be able to hold this one up. All
/// processes that have a counter share its mode, and any of them could fill it and make writes wait. So the
/// counter stays here, and the other process gets an epoll instance that watches it: the instance tells of
/// each raise, and the counter cannot be reached through it.
pub const Waker = struct {
    counter: sys.Fd,

    /// A waker, and the descriptor for the other process's `Wakeup`, which the caller sends there and closes.
    pub fn create() Error!struct { Waker, sys.Fd } {
        if (!is_linux) return error.Unsupported;
        const counter = try watch.eventFd();
        errdefer sys.close(counter);
        const watcher = try watch.epollCreate();
        errdefer sys.close(watcher);
        try watch.epollAdd(watcher, counter, watch.Ready.in | watch.Ready.edge, 0);
        return .{ .{ .counter = counter }, watcher };
    }

    pub fn close(waker: Waker) void {
        sys.close(waker.counter);
    }

    /// Wakes the other process. May be called by any thread and by signal handlers.
    pub fn raise(waker: Waker) void {
        if (is_linux) watch.eventRaise(waker.counter);
    }
};

/// Two connected stream sockets. They are non-blocking, and closed on exec and in forks. The mode of a socket
/// is shared with a process that gets it, which could change it, so all calls here say that they must not
/// block.
pub fn streams() Error![2]sys.Fd {
    if (!is_linux) return error.Unsupported;
    var both: [2]sys.Fd = undefined;
    const kind = linux.SOCK.STREAM | linux.SOCK.CLOEXEC | linux.SOCK.NONBLOCK;
    try done(linux.socketpair(linux.AF.UNIX, kind, 0, &both));
    for (both) |fd| _ = sys.owned(.{ .done = @intCast(fd) });
    return both;
}

/// A descriptor of the process that made the socket at the other end. Unlike a process id, it never means
/// another process. Null: it is this process or its parent, or it is unknown.
pub fn processBehind(socket: sys.Fd) ?sys.Fd {
    if (!is_linux) return null;
    var peer: extern struct { pid: linux.pid_t, uid: linux.uid_t, gid: linux.gid_t } = undefined;
    var len: linux.socklen_t = @sizeOf(@TypeOf(peer));
    const rc = linux.getsockopt(socket, linux.SOL.SOCKET, linux.SO.PEERCRED, @ptrCast(&peer), &len);
    if (linux.errno(rc) != .SUCCESS or peer.pid <= 0) return null;
    if (peer.pid == linux.getpid() or peer.pid == linux.getppid()) return null;
    return descriptor(linux.pidfd_open(peer.pid, 0)) catch null;
}

/// Kills a process. False: the process had ended, or could not be killed.
pub fn kill(process: sys.Fd) bool {
    if (!is_linux) return false;
    var wanted: [1]linux.pollfd = .{.{ .fd = process, .events = linux.POLL.IN, .revents = 0 }};
    const ended = linux.poll(&wanted, 1, 0);
    if (linux.errno(ended) == .SUCCESS and ended > 0) return false;
    return linux.errno(linux.pidfd_send_signal(process, .KILL, null, 0)) == .SUCCESS;
}

/// Whether the other end of a socket is closed, also if messages wait to be read.
pub fn hasEnded(socket: sys.Fd) bool {
    if (!is_linux) return true;
    var wanted: [1]linux.pollfd = .{.{ .fd = socket, .events = peer_shut, .revents = 0 }};
    return linux.errno(linux.poll(&wanted, 1, 0)) == .SUCCESS and wanted[0].revents != 0;
}

/// The value of POLLRDHUP.
const peer_shut = 0x2000;

/// Waits until a message has come or the other end is closed, at most `timeout_ms` (-1: for ever).
pub const waitReadable = sys.waitReadable;

/// Waits until the socket has room for a message, at most `timeout_ms` (-1: for ever).
pub fn waitWritable(socket: sys.Fd, timeout_ms: i32) void {
    @import("sys/log.zig").waitWritable(socket, timeout_ms);
}

fn descriptor(rc: usize) sys.ResourceError!sys.Fd {
    return switch (sys.owned(sys.made(rc))) {
        .done => |fd| @intCast(fd),
        .blocked => unreachable,
        .failed => |code| sys.resourceError(code),
    };
}

fn done(rc: usize) sys.ResourceError!void {
    const code = linux.errno(rc);
    if (code != .SUCCESS) return sys.resourceError(code);
}

const testing = std.testing;

test "both sides see the same shared memory, and neither can make it shorter" {
    if (!is_linux) return error.SkipZigTest;
    const here, const fd = try Memory.create(3 * std.heap.page_size_min);
    defer here.close();
    defer sys.close(fd);
    const there: Memory = try .open(fd, here.bytes.len);
    defer there.close();
    here.bytes[5000] = 7;
    try testing.expectEqual(7, there.bytes[5000]);
    try testing.expect(linux.errno(linux.ftruncate(fd, 1)) == .PERM);
    try testing.expectError(error.Malformed, Memory.open(fd, here.bytes.len - 1));
}

/// A process with a wakeup, and the other process's ends.
const Bench = struct {
    wakeup: Wakeup,
    waker: Waker,
    watcher: sys.Fd,
    sockets: [2]sys.Fd,

    fn init() !Bench {
        const own, const watcher = try Waker.create();
        errdefer own.close();
        errdefer sys.close(watcher);
        const sockets = try pair();
        errdefer for (sockets) |fd| sys.close(fd);
        return .{
            .wakeup = try .init(watcher, sockets[1]),
            .waker = own,
            .watcher = watcher,
            .sockets = sockets,
        };
    }

    fn deinit(bench: *Bench) void {
        bench.wakeup.deinit();
        bench.waker.close();
        sys.close(bench.watcher);
        for (bench.sockets) |fd| if (fd >= 0) sys.close(fd);
    }

    fn expectReadable(bench: *const Bench, readable: bool) !void {
        try testing.expectEqual(readable, sys.isReadable(bench.wakeup.fd()));
    }
};

test "the process that is woken can neither fill a waker nor make it wait" {
    if (!is_linux) return error.SkipZigTest;
    var bench: Bench = try .init();
    defer bench.deinit();
    const most: u64 = std.math.maxInt(u64) - 1;
    const rc = linux.write(bench.watcher, std.mem.asBytes(&most), @sizeOf(u64));
    try testing.expectEqual(.INVAL, linux.errno(rc));
    try testing.expectEqual(0, linux.fcntl(bench.watcher, linux.F.SETFL, 0));
    const mode: linux.O = @bitCast(@as(u32, @intCast(linux.fcntl(bench.waker.counter, linux.F.GETFL, 0))));
    try testing.expect(mode.NONBLOCK);
    for (0..1000) |_| bench.waker.raise();
    try bench.expectReadable(true);
}

test "a wakeup is readable from each sign to the next clear, however many signs there are" {
    if (!is_linux) return error.SkipZigTest;
    var bench: Bench = try .init();
    defer bench.deinit();
    try testing.expect(!bench.wakeup.takes_signs);
    try bench.expectReadable(false);
    for (0..1000) |round| {
        bench.wakeup.takes_signs = round % 2 == 0;
        for (0..2) |_| bench.waker.raise();
        try bench.expectReadable(true);
        bench.wakeup.clear();
        try bench.expectReadable(false);
        bench.wakeup.raise();
        try testing.expect(!bench.wakeup.wait(-1, null));
        try bench.expectReadable(false);
        // A wait takes the present signs, so that the following clear leaves later ones.
        bench.waker.raise();
        bench.wakeup.clear();
        try bench.expectReadable(true);
        bench.wakeup.clear();
        try bench.expectReadable(false);
    }
}

test "a wakeup tells of its loop, but not to a process that waits for room" {
    if (!is_linux) return error.SkipZigTest;
    var bench: Bench = try .init();
    defer bench.deinit();
    const loop = try watch.eventFd();
    defer sys.close(loop);
    try bench.wakeup.watchLoop(loop);
    try testing.expect(!bench.wakeup.wait(0, null));
    watch.eventRaise(loop);
    try testing.expect(bench.wakeup.wait(-1, &0));
    bench.wakeup.clear();
    try testing.expect(!bench.wakeup.waitWithoutLoop(0));
    try testing.expect(bench.wakeup.wait(-1, null));
    try bench.wakeup.watchLoop(-1);
    try testing.expect(!bench.wakeup.wait(0, null));
}

test "the end of the other process is told once" {
    if (!is_linux) return error.SkipZigTest;
    var bench: Bench = try .init();
    defer bench.deinit();
    try testing.expectEqual(.sent, send(bench.sockets[0], "x", &.{}));
    try testing.expect(!bench.wakeup.wait(-1, null) and !bench.wakeup.has_ended);
    sys.close(bench.sockets[0]);
    bench.sockets[0] = -1;
    try testing.expect(!bench.wakeup.wait(-1, null) and bench.wakeup.has_ended);
    bench.wakeup.forget(bench.sockets[1]);
    bench.wakeup.clear();
    try testing.expect(!bench.wakeup.wait(0, null) and !bench.wakeup.has_ended);
    try bench.expectReadable(false);
}

test "descriptors go from one end to the other, and an end that is closed is noticed" {
    if (!is_linux) return error.SkipZigTest;
    const one, const other = try pair();
    defer sys.close(other);
    var bytes: [8]u8 = undefined;
    var fds: [2]sys.Fd = undefined;
    try testing.expectEqual(.nothing, receive(other, &bytes, &fds));
    try testing.expectEqual(.sent, send(one, "two", &.{ one, other }));
    try testing.expectEqual(.sent, send(one, "none", &.{}));
    const first = receive(other, &bytes, &fds).message;
    try testing.expectEqualStrings("two", bytes[0..first.len]);
    try testing.expectEqual(2, first.fd_count);
    for (fds) |fd| sys.close(fd);
    try testing.expectEqual(0, receive(other, &bytes, &fds).message.fd_count);
    // The message has more descriptors than the reader has room for.
    try testing.expectEqual(.sent, send(one, "three", &.{ one, one, one }));
    try testing.expectEqual(.ended, receive(other, &bytes, &fds));
    sys.close(one);
    try testing.expectEqual(.ended, receive(other, &bytes, &fds));
    try testing.expectEqual(.ended, send(other, "x", &.{}));
}
