//! Job: kqueue (FreeBSD, macOS) as a poller (see readiness.zig).
//! Does not know: which socket has what to say.
//!
//! A `Kernel` is where the system calls go: the system's own, or on Linux a stand-in (kqueue/shim.zig) under
//! which the contract tests run all of this on real sockets. See man 2 kqueue: EV_CLEAR is what epoll calls
//! an edge; room is a filter of its own (EVFILT_WRITE); an end comes as EV_EOF with the socket's error in
//! `fflags`; a closed descriptor takes its filters along; and a fork has no kqueue.

const std = @import("std");
const readiness = @import("readiness.zig");
const sys = @import("sys.zig");
const Label = readiness.Label;

/// The io of FreeBSD and macOS.
pub const Kqueue = KqueueOver(@import("kqueue/system.zig").System);

/// Like `Kqueue`, over a kernel that the caller gives.
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

        /// The kernel tells each poller that watches the listener of a connection; kqueue has no exclusive
        /// watch. A poller that comes late finds the connection taken.
        pub fn watchListener(self: *Self, listener: sys.Fd, label: Label) sys.ResourceError!void {
            return self.kernel.change(&about(@intCast(listener), EVFILT.READ, EV.ADD, label));
        }

        /// Reports no further connections of a listener.
        pub fn unwatchListener(self: *Self, listener: sys.Fd) void {
            self.kernel.change(&about(@intCast(listener), EVFILT.READ, EV.DELETE, waker)) catch unreachable;
        }

        /// Tells of bytes and of the end, once for each edge.
        pub fn watchSocket(self: *Self, socket: sys.Fd, label: Label) sys.ResourceError!void {
            return self.kernel.change(&about(@intCast(socket), EVFILT.READ, EV.ADD | EV.CLEAR, label));
        }

        /// Tells of room to send, too.
        pub fn watchRoom(self: *Self, socket: sys.Fd, label: Label) sys.ResourceError!void {
            return self.kernel.change(&about(@intCast(socket), EVFILT.WRITE, EV.ADD | EV.CLEAR, label));
        }

        /// Waits at most `timeout_ms` (-1: for ever). A signal ends the wait early with nothing.
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

        /// Makes the waker report. From any thread.
        pub fn wake(self: *Self) void {
            var event = about(0, EVFILT.USER, 0, waker);
            event.fflags = Kernel.NOTE.TRIGGER;
            // The call fails in a forked child only, where no event would be delivered.
            self.kernel.change(&event) catch {};
        }

        /// In milliseconds from now: absolute times are the wall clock's here. An armed timer starts anew.
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
