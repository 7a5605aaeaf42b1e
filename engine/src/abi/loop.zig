//! C's own event loop, when that waits in peregrine_poll() instead of on peregrine_fd(): one wait for
//! everything.
//! Does not know: what C's loop watches.
const errors = @import("errors.zig");
const Handle = @import("abi.zig").Handle;
const Code = @import("types.zig").Code;

pub export fn peregrine_host_loop(handle: *Handle, fd: c_int, blocked: ?*const u64) callconv(.c) c_int {
    if (handle.isForeign()) return Code.gone;
    if (handle.interpreter != null or handle.channel != null) return fail(error.Unsupported);
    const io = &handle.worker.io;
    if (handle.host_loop) |old| io.unwatchLoop(old);
    handle.host_loop = null;
    if (fd < 0) {
        // Now somebody else waits, on peregrine_fd().
        handle.arm();
        return Code.ok;
    }
    io.watchLoop(fd, if (blocked) |set| set.* else null) catch |err| return fail(err);
    handle.host_loop = fd;
    return Code.ok;
}

pub export fn peregrine_host_loop_due(handle: *Handle) callconv(.c) c_int {
    if (handle.isForeign() or handle.host_loop == null) return 0;
    return @intFromBool(handle.worker.io.takeForeign());
}

pub export fn peregrine_send_all(handle: *Handle) callconv(.c) void {
    if (handle.isElsewhere() or handle.channel != null) return;
    handle.worker.sendCorked();
}

pub export fn peregrine_goes_on(handle: *Handle) callconv(.c) c_int {
    if (handle.isElsewhere() or handle.channel != null) return 0;
    return @intFromBool(handle.worker.goesOn());
}

fn fail(err: anyerror) c_int {
    errors.setErrnoOf(err);
    return Code.system;
}
