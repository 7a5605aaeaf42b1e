//! Job: the system's own kqueue (man 2 kqueue). Does not know: what is watched.
const std = @import("std");
const c = std.c;
const sys = @import("../sys.zig");
const assert = std.debug.assert;

/// A kqueue of the kernel.
pub const System = struct {
    queue: sys.Fd,

    pub const Event = c.Kevent;
    pub const EV = c.EV;
    pub const EVFILT = c.EVFILT;
    pub const NOTE = c.NOTE;

    /// Opens a kqueue, closed on exec.
    pub fn open() sys.ResourceError!System {
        const rc = c.kqueue();
        if (rc < 0) return sys.resourceError(c.errno(rc));
        // A forked child inherits no kqueue, but an exec without fork would keep it.
        _ = c.fcntl(rc, c.F.SETFD, @as(c_int, c.FD_CLOEXEC));
        return .{ .queue = rc };
    }

    /// Closes the queue. A forked child has no copy of the queue, and its number may belong to another
    /// descriptor.
    pub fn close(system: *const System, forked: bool) void {
        if (!forked) sys.close(system.queue);
    }

    /// The descriptor that a host loop watches.
    pub fn fd(system: *const System) sys.Fd {
        return system.queue;
    }

    /// Adds, changes or removes one filter. May be called by any thread.
    pub fn change(system: *const System, event: *const Event) sys.ResourceError!void {
        while (true) {
            // With no room for events, the kernel returns an error of the change as the call's own.
            const rc = c.kevent(system.queue, @ptrCast(event), 1, @ptrCast(@constCast(event)), 0, null);
            switch (c.errno(rc)) {
                .SUCCESS => return,
                .INTR => continue,
                else => |code| return sys.resourceError(code),
            }
        }
    }

    /// Waits at most `timeout_ms` (-1: for ever) and fills `events`. A signal ends the wait early without
    /// events.
    pub fn wait(system: *const System, events: []Event, timeout_ms: i32) []const Event {
        const timeout: c.timespec = .{
            .sec = @divFloor(timeout_ms, std.time.ms_per_s),
            .nsec = @as(isize, @mod(timeout_ms, std.time.ms_per_s)) * std.time.ns_per_ms,
        };
        const rc = c.kevent(
            system.queue,
            events.ptr,
            0,
            events.ptr,
            @intCast(events.len),
            if (timeout_ms < 0) null else &timeout,
        );
        return switch (c.errno(rc)) {
            .SUCCESS => events[0..@intCast(rc)],
            .INTR => events[0..0],
            else => unreachable, // such an error is a bug of the caller
        };
    }

    comptime {
        assert(@sizeOf(usize) == @sizeOf(u64)); // `udata` carries a whole label
    }
};
