//! kqueue (FreeBSD, macOS) as a poller (see readiness.zig). Does not know: sockets and their events.
//!
//! A `Kernel` makes the system calls: the system's own, or on Linux a stand-in (kqueue/shim.zig) with which
//! the contract tests run this code on real sockets. From man 2 kqueue: EV_CLEAR is epoll's edge; room has a
//! filter of its own (EVFILT_WRITE); an end is EV_EOF, with the socket's error in `fflags`; a closed
//! descriptor loses its filters; a forked child does not inherit a kqueue.

const std = @import("std");
const readiness = @import("readiness.zig");
const sys = @import("sys.zig");
const Label = readiness.Label;

/// The io of FreeBSD and macOS.
pub const Kqueue = KqueueOver(@import("kqueue/system.zig").System);

/// Like `Kqueue`, over a kernel of the caller's.
pub fn KqueueOver(comptime Kernel: type) type {
    return readiness.Readiness(Poller(Kernel));
}

fn Poller(comptime Kernel: type) type {
    return struct {
        const Self = @This();
        const Event = Kernel.Event;
        const EV = Kernel.EV;
        const EVFILT = Kernel.EVFILT;

        kernel: Kernel,
        reports: []Event,

        pub fn init(gpa: std.mem.Allocator, reports_max: u16) (error{OutOfMemory} || sys.ResourceError)!Self {
            const reports = try gpa.alloc(Event, reports_max);
            errdefer gpa.free(reports);
            var self: Self = .{ .kernel = try .open(), .reports = reports };
            errdefer self.kernel.close(false);
            try self.kernel.change(&about(0, EVFILT.USER, EV.ADD | EV.CLEAR, waker));
            return self;
        }

        pub fn deinit(self: *Self, gpa: std.mem.Allocator, forked: bool) void {
            self.kernel.close(forked);
            gpa.free(self.reports);
        }

        /// The descriptor that a host loop watches.
        pub fn fd(self: *const Self) sys.Fd {
            return self.kernel.fd();
        }

        /// Watches a listener. The kernel reports a connection to each poller that watches its listener,
        /// because kqueue has no exclusive watch. Late pollers find the connection taken.
        pub fn watchListener(self: *Self, listener: sys.Fd, label: Label) sys.ResourceError!void {
            return self.kernel.change(&about(@intCast(listener), EVFILT.READ, EV.ADD, label));
        }

        /// Ends the watch of a listener.
        pub fn unwatchListener(self: *Self, listener: sys.Fd) void {
            self.kernel.change(&about(@intCast(listener), EVFILT.READ, EV.DELETE, waker)) catch unreachable;
        }

        /// Reports bytes and the end of a socket, once for each edge.
        pub fn watchSocket(self: *Self, socket: sys.Fd, label: Label) sys.ResourceError!void {
            return self.kernel.change(&about(@intCast(socket), EVFILT.READ, EV.ADD | EV.CLEAR, label));
        }

        /// Reports room for sending, too.
        pub fn watchRoom(self: *Self, socket: sys.Fd, label: Label) sys.ResourceError!void {
            return self.kernel.change(&about(@intCast(socket), EVFILT.WRITE, EV.ADD | EV.CLEAR, label));
        }

        /// Waits at most `timeout_ms` (-1: for ever). A signal ends the wait early without a report.
        pub fn wait(self: *Self, timeout_ms: i32) []const Event {
            return self.kernel.wait(self.reports, timeout_ms);
        }

        /// The content of a report.
        pub inline fn notice(report: *const Event) readiness.Notice {
            const label: Label = @bitCast(@as(u64, report.udata));
            if (report.filter == EVFILT.WRITE) return .{ .label = label, .room = true };
            const ending = report.flags & EV.EOF != 0;
            const failed = ending and report.fflags != 0;
            return .{ .label = label, .readable = true, .ending = ending, .failed = failed, .room = failed };
        }

        /// Causes a report of the waker. May be called by any thread.
        pub fn wake(self: *Self) void {
            var event = about(0, EVFILT.USER, 0, waker);
            event.fflags = Kernel.NOTE.TRIGGER;
            // The call fails only in a forked child, where no event would be delivered.
            self.kernel.change(&event) catch {};
        }

        /// Causes a report of the timer at `at_ms`, in place of an earlier timer. The kernel gets the time
        /// from now on, because its absolute times are those of the wall clock.
        pub fn arm(self: *Self, at_ms: u64) sys.ResourceError!void {
            var event = about(0, EVFILT.TIMER, EV.ADD | EV.ONESHOT, .{
                .kind = .timer,
                .index = 0,
                .generation = 0,
            });
            event.data = @intCast(@max(1, at_ms -| sys.monotonicMs()));
            return self.kernel.change(&event);
        }

        const waker: Label = .{ .kind = .waker, .index = 0, .generation = 0 };

        fn about(ident: usize, filter: comptime_int, flags: u16, label: Label) Event {
            return .{
                .ident = ident,
                .filter = filter,
                .flags = flags,
                .fflags = 0,
                .data = 0,
                .udata = @as(u64, @bitCast(label)),
            };
        }
    };
}

const testing = std.testing;

test "reports become events" {
    const Shim = @import("kqueue/shim.zig").Shim;
    const Tested = Poller(Shim);
    const label: Label = .{ .kind = .socket, .index = 7, .generation = 3 };
    var report = Tested.about(7, Shim.EVFILT.READ, 0, label);
    try testing.expectEqual(readiness.Notice{ .label = label, .readable = true }, Tested.notice(&report));
    report.flags |= Shim.EV.EOF;
    try testing.expectEqual(
        readiness.Notice{ .label = label, .readable = true, .ending = true },
        Tested.notice(&report),
    );
    report.fflags = sys.number(.CONNRESET);
    const failed: readiness.Notice = .{
        .label = label,
        .readable = true,
        .ending = true,
        .failed = true,
        .room = true,
    };
    try testing.expectEqual(failed, Tested.notice(&report));
    report.filter = Shim.EVFILT.WRITE;
    try testing.expectEqual(readiness.Notice{ .label = label, .room = true }, Tested.notice(&report));
}
