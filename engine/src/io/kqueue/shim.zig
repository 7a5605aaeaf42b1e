//! Job: the part of kqueue that kqueue.zig uses, built from epoll, an eventfd and a timerfd: test code for
//! running the contract tests of kqueue.zig on Linux. Does not know: BSD kernels. Filters of sockets and
//! listeners are kept in epoll, so closing a descriptor removes them here, too.
const std = @import("std");
const sys = @import("../sys.zig");
const watch = @import("../sys/epoll.zig");
const assert = std.debug.assert;

/// A kqueue built on Linux.
pub const Shim = struct {
    epoll: sys.Fd,
    event: sys.Fd,
    timer: sys.Fd,
    timer_udata: u64 = 0,

    /// `struct kevent`, as FreeBSD and macOS have it.
    pub const Event = extern struct {
        ident: usize,
        filter: i16,
        flags: u16,
        fflags: u32,
        data: i64,
        udata: usize,
    };

    /// Actions on a filter; EOF is set by the kernel in events.
    pub const EV = struct {
        pub const ADD = 0x1;
        pub const DELETE = 0x2;
        pub const ONESHOT = 0x10;
        pub const CLEAR = 0x20;
        pub const EOF = 0x8000;
    };

    /// Kinds of filter.
    pub const EVFILT = struct {
        pub const READ = -1;
        pub const WRITE = -2;
        pub const TIMER = -7;
        pub const USER = -10;
    };

    /// Flags of single kinds of filter.
    pub const NOTE = struct {
        pub const TRIGGER = 0x01000000;
    };

    /// Opens an epoll, an eventfd and a timerfd in place of a kqueue.
    pub fn open() sys.ResourceError!Shim {
        const epoll = try watch.epollCreate();
        errdefer sys.close(epoll);
        const event = try watch.eventFd();
        errdefer sys.close(event);
        const timer = try watch.timerFd();
        return .{ .epoll = epoll, .event = event, .timer = timer };
    }

    pub fn close(shim: *const Shim, _: bool) void {
        for ([_]sys.Fd{ shim.timer, shim.event, shim.epoll }) |own| sys.close(own);
    }

    /// The descriptor that a host loop watches.
    pub fn fd(shim: *const Shim) sys.Fd {
        return shim.epoll;
    }

    /// Makes a change; it must be one that kqueue.zig makes.
    pub fn change(shim: *Shim, event: *const Event) sys.ResourceError!void {
        const ident: sys.Fd = @intCast(event.ident);
        switch (event.filter) {
            EVFILT.READ => switch (event.flags) {
                EV.ADD => try watch.epollAdd(shim.epoll, ident, watch.Ready.in, event.udata),
                EV.ADD | EV.CLEAR => try watch.epollAdd(shim.epoll, ident, reading, event.udata),
                EV.DELETE => try watch.epollDelete(shim.epoll, ident),
                else => unreachable,
            },
            EVFILT.WRITE => switch (event.flags) {
                EV.ADD | EV.CLEAR => {
                    try watch.epollModify(shim.epoll, ident, reading | watch.Ready.out, event.udata);
                },
                else => unreachable,
            },
            EVFILT.USER => if (event.fflags == NOTE.TRIGGER) watch.eventRaise(shim.event) else {
                assert(event.flags == EV.ADD | EV.CLEAR);
                try watch.epollAdd(shim.epoll, shim.event, watch.Ready.in | watch.Ready.edge, event.udata);
            },
            EVFILT.TIMER => {
                assert(event.flags == EV.ADD | EV.ONESHOT);
                if (shim.timer_udata == 0) {
                    try watch.epollAdd(
                        shim.epoll,
                        shim.timer,
                        watch.Ready.in | watch.Ready.edge,
                        event.udata,
                    );
                }
                shim.timer_udata = event.udata;
                watch.timerArm(shim.timer, sys.monotonicMs() + @as(u64, @intCast(event.data)));
            },
            else => unreachable,
        }
    }

    const reading = watch.Ready.in | watch.Ready.peer_shut | watch.Ready.edge;

    /// Waits for events. One report of epoll may become two events: readable and writable.
    pub fn wait(shim: *const Shim, events: []Event, timeout_ms: i32) []const Event {
        var buffer: [64]watch.EpollEvent = undefined;
        assert(events.len >= 2);
        const reports = watch.epollWait(shim.epoll, buffer[0..@min(buffer.len, events.len / 2)], timeout_ms);
        var count: usize = 0;
        for (reports) |report| {
            const ends = report.events &
                (watch.Ready.peer_shut | watch.Ready.hung_up | watch.Ready.failed) != 0;
            var event: Event = .{
                .ident = 0, // kqueue.zig does not read it
                .filter = if (report.data.u64 == shim.timer_udata) EVFILT.TIMER else EVFILT.READ,
                .flags = if (ends) EV.EOF else 0,
                // The BSDs report the error itself; asking for it here would clear it.
                .fflags = if (report.events & watch.Ready.failed != 0) sys.number(.CONNRESET) else 0,
                .data = 0,
                .udata = report.data.u64,
            };
            if (ends or report.events & watch.Ready.in != 0) {
                events[count] = event;
                count += 1;
            }
            if (report.events & watch.Ready.out != 0) {
                event.filter = EVFILT.WRITE;
                events[count] = event;
                count += 1;
            }
        }
        return events[0..count];
    }
};
