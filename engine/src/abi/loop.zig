//! C's own event loop, when that waits in peregrine_poll() instead of on peregrine_fd(): one wait for
//! everything.
//! Does not know: what C's loop watches.
const assert = @import("std").debug.assert;
const ApplicationEnd = @import("application_end.zig").ApplicationEnd;
const errors = @import("errors.zig");
const Handle = @import("handle.zig").Handle;
const Code = @import("types.zig").Code;
const host_loop = @import("peregrine").io.host_loop;

pub export fn peregrine_host_loop(handle: *Handle, fd: c_int, blocked: ?*const u64) callconv(.c) c_int {
    const here = switch (handle.place()) {
        .here => |here| here,
        .thread => |pair| return waitWith(&pair.application, fd, blocked),
        .joined => |interpreter| {
            interpreter.watchLoop(fd) catch |err| return fail(err);
            return waitWith(&interpreter.end, fd, blocked);
        },
        .gone => return Code.gone,
    };
    const io = &here.engine.worker.io;
    if (here.host_loop) |old| {
        assert(old >= 0);
        io.unwatchLoop(old);
    }
    here.host_loop = null;
    if (fd < 0) {
        // C waits on peregrine_fd() from now on.
        here.arm();
        return Code.ok;
    }
    io.watchLoop(fd, if (blocked) |set| set.* else null) catch |err| return fail(err);
    here.host_loop = fd;
    return Code.ok;
}

fn waitWith(end: *ApplicationEnd, fd: c_int, blocked: ?*const u64) c_int {
    if (!host_loop.is_supported) return fail(error.Unsupported);
    end.loop = if (fd < 0) null else .{ .fd = fd, .blocked = if (blocked) |set| set.* else null };
    end.noteLoop(false);
    return Code.ok;
}

pub export fn peregrine_host_loop_due(handle: *Handle) callconv(.c) c_int {
    switch (handle.place()) {
        .here => |here| {
            if (here.host_loop == null) return 0;
            return @intFromBool(here.engine.worker.io.takeForeign());
        },
        .thread, .joined => {
            const loop = &(handle.end().?.loop orelse return 0);
            assert(loop.fd >= 0);
            return @intFromBool(loop.take());
        },
        .gone => return 0,
    }
}

pub export fn peregrine_loop_works(handle: *Handle, works: c_int) callconv(.c) void {
    switch (handle.place()) {
        .thread => |pair| pair.application.noteLoop(works != 0),
        .joined => |interpreter| interpreter.noteLoop(works != 0),
        .here, .gone => {},
    }
}

pub export fn peregrine_send_all(handle: *Handle) callconv(.c) void {
    switch (handle.place()) {
        .here => |here| here.engine.worker.sendCorked(),
        .thread => |pair| pair.application.flush(),
        .joined => |interpreter| interpreter.end.flush(),
        .gone => {},
    }
}

pub export fn peregrine_goes_on(handle: *Handle) callconv(.c) c_int {
    return switch (handle.place()) {
        .here => |here| @intFromBool(here.engine.worker.goesOn()),
        .thread, .joined, .gone => 0,
    };
}

fn fail(err: anyerror) c_int {
    errors.setErrnoOf(err);
    return Code.system;
}
