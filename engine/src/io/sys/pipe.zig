//! Job: a pipe by which a thread is woken, on systems without eventfd. Does not know: which threads.
const std = @import("std");
const assert = std.debug.assert;
const sys = @import("../sys.zig");
const system = if (@import("builtin").os.tag == .linux) std.os.linux else std.c;

/// Both ends of a pipe, non-blocking, closed on exec and in forks.
pub const Ends = struct {
    read: sys.Fd,
    write: sys.Fd,

    /// Makes a pipe.
    pub fn open() sys.ResourceError!Ends {
        var both: [2]sys.Fd = undefined;
        const code = sys.errno(system.pipe(&both));
        if (code != .SUCCESS) return sys.resourceError(code);
        for (both) |fd| _ = sys.owned(.{ .done = @intCast(fd) });
        const ends: Ends = .{ .read = both[0], .write = both[1] };
        errdefer ends.close();
        for (both) |fd| try sys.setNonblockCloexec(fd);
        return ends;
    }

    pub fn close(ends: Ends) void {
        sys.close(ends.read);
        sys.close(ends.write);
    }

    /// Writes a byte, unless the pipe is full and so readable already. May be called by any thread.
    pub fn put(ends: Ends) void {
        while (true) {
            switch (sys.errno(system.write(ends.write, "x", 1))) {
                .SUCCESS => return,
                .INTR => continue,
                else => |code| {
                    assert(code == .AGAIN);
                    return;
                },
            }
        }
    }

    /// Reads all bytes. False: there was none.
    pub fn drain(ends: Ends) bool {
        var buffer: [64]u8 = undefined;
        var any = false;
        while (true) {
            const rc = system.read(ends.read, &buffer, buffer.len);
            switch (sys.errno(rc)) {
                .SUCCESS => any = true,
                .INTR => continue,
                else => return any,
            }
            if (@as(usize, @intCast(rc)) < buffer.len) return true;
        }
    }
};
