//! Linux epoll as a poller (see readiness.zig). Does not know: sockets and their events.
//!
//! man 7 epoll, questions 9 and following, has the rules of edges. The eventfd and the timerfd are
//! edge-triggered, too, so they need not be read: each write and each expiry is a new edge.

const std = @import("std");
const io = @import("io.zig");
const readiness = @import("readiness.zig");
const socket_calls = @import("socket.zig");
const sys = @import("sys.zig");
const watch = @import("sys/epoll.zig");
const Label = readiness.Label;

/// The io of Linux.
pub const Epoll = readiness.Readiness(Poller);

const Poller = struct {
    epoll: sys.Fd,
    waker: sys.Fd,
    /// The timerfd; null: no alarm was set yet.
    timer: ?sys.Fd = null,
    reports: []watch.EpollEvent,
    /// The signals that are blocked while it waits; null: the thread's own mask is used.
    blocked: ?u64 = null,

    pub fn init(gpa: std.mem.Allocator, reports_max: u16) Epoll.InitError!Poller {
        const reports = try gpa.alloc(watch.EpollEvent, reports_max);
        errdefer gpa.free(reports);
        const epoll = try watch.epollCreate();
        errdefer sys.close(epoll);
        const waker = try watch.eventFd();
        errdefer sys.close(waker);
        const label: Label = .{ .kind = .waker, .index = 0, .generation = 0 };
        try watch.epollAdd(epoll, waker, watch.Ready.in | watch.Ready.edge, @bitCast(label));
        return .{ .epoll = epoll, .waker = waker, .reports = reports };
    }

    /// Closes the poller's descriptors. A forked process closes its copies in the same way.
    pub fn deinit(poller: *Poller, gpa: std.mem.Allocator, _: bool) void {
        if (poller.timer) |timer| sys.close(timer);
        sys.close(poller.waker);
        sys.close(poller.epoll);
        gpa.free(poller.reports);
    }

    /// The descriptor that a host loop watches.
    pub fn fd(poller: *const Poller) sys.Fd {
        return poller.epoll;
    }

    /// Watches a listener exclusively: if it is shared, a connection wakes only one of the waiting pollers.
    pub fn watchListener(poller: *Poller, listener: sys.Fd, label: Label) sys.ResourceError!void {
        return watch.epollAdd(
            poller.epoll,
            listener,
            watch.Ready.in | watch.Ready.exclusive,
            @bitCast(label),
        );
    }

    /// Ends the watch of a listener. An exclusive watch can only be removed, not changed.
    pub fn unwatchListener(poller: *Poller, listener: sys.Fd) void {
        watch.epollDelete(poller.epoll, listener) catch unreachable;
    }

    /// Reports bytes and the end of a descriptor, once for each edge, as waker number 1.
    pub fn watchForeign(poller: *Poller, foreign: sys.Fd) sys.ResourceError!void {
        try watch.epollAdd(poller.epoll, foreign, watched, @bitCast(foreign_label));
    }

    /// Ends a wait for each ring of a bell, as waker number 2.
    pub fn watchBell(poller: *Poller, bell: sys.Fd) sys.ResourceError!void {
        const label: Label = .{ .kind = .waker, .index = 2, .generation = 0 };
        try watch.epollAdd(poller.epoll, bell, watch.Ready.in | watch.Ready.edge, @bitCast(label));
    }

    /// Reports the descriptor, as waker number 1, for as long as it is readable.
    pub fn watchLoop(poller: *Poller, loop: sys.Fd, blocked: ?u64) sys.ResourceError!void {
        try watch.epollAdd(poller.epoll, loop, watch.Ready.in, @bitCast(foreign_label));
        poller.blocked = blocked;
    }

    pub fn unwatchLoop(poller: *Poller, loop: sys.Fd) void {
        poller.blocked = null;
        poller.unwatchForeign(loop);
    }

    const foreign_label: Label = .{ .kind = .waker, .index = 1, .generation = 0 };

    pub fn unwatchForeign(poller: *Poller, foreign: sys.Fd) void {
        watch.epollDelete(poller.epoll, foreign) catch {};
    }

    /// The events for which every socket is watched from the start.
    const watched = watch.Ready.in | watch.Ready.peer_shut | watch.Ready.edge;

    /// Reports bytes and the end of a socket, once for each edge.
    pub fn watchSocket(poller: *Poller, socket: sys.Fd, label: Label) sys.ResourceError!void {
        return watch.epollAdd(poller.epoll, socket, watched, @bitCast(label));
    }

    /// Reports room for sending, too.
    pub fn watchRoom(poller: *Poller, socket: sys.Fd, label: Label) sys.ResourceError!void {
        return watch.epollModify(poller.epoll, socket, watched | watch.Ready.out, @bitCast(label));
    }

    /// Waits at most `timeout_ms` (-1: for ever). A signal ends the wait early without a report, or, with a
    /// host's loop, with a report of the loop.
    pub fn wait(poller: *Poller, timeout_ms: i32) []const watch.EpollEvent {
        const blocked = &(poller.blocked orelse
            return watch.epollWait(poller.epoll, poller.reports, timeout_ms));
        return watch.epollWaitBlocking(poller.epoll, poller.reports, timeout_ms, blocked) orelse {
            poller.reports[0] = .{
                .events = watch.Ready.in,
                .data = .{ .u64 = @bitCast(foreign_label) },
            };
            return poller.reports[0..1];
        };
    }

    /// The content of a report.
    pub inline fn notice(report: *const watch.EpollEvent) readiness.Notice {
        const ending = watch.Ready.peer_shut | watch.Ready.hung_up | watch.Ready.failed;
        const events = report.events;
        return .{
            .label = @bitCast(report.data.u64),
            .readable = events & (watch.Ready.in | ending) != 0,
            .ending = events & ending != 0,
            .failed = events & watch.Ready.failed != 0,
            .room = events & (watch.Ready.out | watch.Ready.failed) != 0,
        };
    }

    /// Causes a report of the waker. May be called by any thread.
    pub fn wake(poller: *const Poller) void {
        watch.eventRaise(poller.waker);
    }

    /// Causes a report of the timer when the monotonic clock reaches `at_ms`.
    pub fn arm(poller: *Poller, at_ms: u64) sys.ResourceError!void {
        if (poller.timer == null) {
            const timer = try watch.timerFd();
            errdefer sys.close(timer);
            const label: Label = .{ .kind = .timer, .index = 0, .generation = 0 };
            try watch.epollAdd(poller.epoll, timer, watch.Ready.in | watch.Ready.edge, @bitCast(label));
            poller.timer = timer;
        }
        watch.timerArm(poller.timer.?, at_ms);
    }
};

const testing = std.testing;

test "accepted sockets inherit TCP_NODELAY and do not block" {
    var epoll: Epoll = try .init(testing.allocator, .{});
    defer epoll.deinit();
    const id = try epoll.listen(try .parse("127.0.0.1", 0), .{});
    const address = epoll.listenerAddress(id);
    const client = try sys.socket(address.family());
    defer sys.close(client);
    var storage: sys.sockaddr.storage = undefined;
    const length = address.toSystem(&storage);
    sys.connect(client, @ptrCast(&storage), length) catch |err| try testing.expectEqual(error.Pending, err);
    _ = try epoll.wait(5000);
    const socket = epoll.next().?.accepted.socket;
    defer epoll.close(socket);
    const accepted: sys.Fd = @backingInt(socket);
    try testing.expect(try sys.getOption(accepted, .no_delay) != 0);
    var buffer: [1]u8 = undefined;
    try testing.expectEqual(sys.Moved.blocked, sys.receive(accepted, &buffer));
}

test "an adopted listener is taken over" {
    const address: io.Address = try .parse("127.0.0.1", 0);
    const listener = try socket_calls.listenSocket(&address, .{});
    var epoll: Epoll = try .init(testing.allocator, .{});
    defer epoll.deinit();
    const id = try epoll.adoptListener(listener);
    try testing.expect(epoll.listenerAddress(id).port().? != 0);
    epoll.pauseAccept(id);
    epoll.pauseAccept(id);
    try epoll.resumeAccept(id);
    try epoll.resumeAccept(id);
    epoll.closeListeners();
    try epoll.resumeAccept(id);
}

test "each ring of a bell ends one wait, though no ring is read" {
    var poller: Poller = try .init(testing.allocator, 4);
    defer poller.deinit(testing.allocator, true);
    const bell = try watch.eventFd();
    defer sys.close(bell);
    try poller.watchBell(bell);
    for (0..3) |_| {
        watch.eventRaise(bell);
        try testing.expectEqual(1, poller.wait(5000).len);
        try testing.expectEqual(0, poller.wait(0).len);
    }
}
