//! Opens and closes files for C, which must not wait for slow storage: threads open them, and a descriptor
//! becomes readable when a file was opened or was not.
//! Does not know: workers and exchanges, and what becomes of a file.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const errors = @import("errors.zig");
const platform = @import("platform");
const sized = @import("sized.zig");
const types = @import("types.zig");
const io = peregrine.io;
const Code = types.Code;
const gpa = platform.gpa;

/// The `peregrine_opener` of C, for one thread.
pub const Opener = struct {
    wakeup: io.Wakeup,
    storage: *io.Storage,
    /// Opened files that were collected and not fetched yet.
    done: io.StorageTasks = .{},
    /// `fork.count` of the process that the threads belong to.
    forks: u32,

    fn create() !*Opener {
        const opener = try gpa.create(Opener);
        errdefer gpa.destroy(opener);
        opener.* = .{ .wakeup = try .init(), .storage = undefined, .forks = io.fork.count() };
        errdefer opener.wakeup.deinit();
        opener.storage = try .create(.{ .context = opener, .wake = wake }, true);
        return opener;
    }

    fn destroy(opener: *Opener) void {
        opener.storage.close();
        while (opener.done.pop()) |task| task.drop(task);
        // A forked process has no copy of the wakeup's descriptor.
        if (opener.forks == io.fork.count()) opener.wakeup.deinit();
        gpa.destroy(opener);
    }

    /// Called by the thread that has opened a file.
    fn wake(context: *anyopaque) void {
        const opener: *Opener = @ptrCast(@alignCast(context));
        opener.wakeup.raise();
    }

    /// The next file that a thread has opened, or failed to open; null: there is none yet.
    fn next(opener: *Opener) ?*io.StorageOpen {
        assert(opener.forks == io.fork.count());
        while (true) {
            const task = opener.done.pop() orelse {
                opener.wakeup.clear();
                opener.done = opener.storage.collect();
                if (opener.done.first == null) return null;
                continue;
            };
            if (task.drop == io.StorageOpen.drop) return @fieldParentPtr("task", task);
            task.drop(task);
        }
    }

    /// Lets a thread close the descriptor.
    fn close(opener: *Opener, fd: i32) void {
        assert(opener.forks == io.fork.count());
        const closing = io.StorageClose.create(fd) catch return io.file.close(fd);
        opener.storage.submit(&closing.task) catch closing.destroy();
    }
};

pub export fn peregrine_opener_new(opener: *?*Opener) callconv(.c) c_int {
    opener.* = Opener.create() catch |err| switch (err) {
        error.OutOfMemory => return Code.memory,
        else => {
            errors.setErrno(.MFILE);
            return Code.system;
        },
    };
    return Code.ok;
}

pub export fn peregrine_opener_free(opener: ?*Opener) callconv(.c) void {
    if (opener) |own| own.destroy();
}

pub export fn peregrine_opener_fd(opener: *const Opener) callconv(.c) c_int {
    return opener.wakeup.fd();
}

pub export fn peregrine_open_aside(
    opener: *Opener,
    path: [*:0]const u8,
    user: u64,
) callconv(.c) c_int {
    if (opener.forks != io.fork.count()) return Code.gone;
    const opening = io.StorageOpen.create(std.mem.span(path), user) catch return Code.memory;
    opener.storage.submit(&opening.task) catch {
        opening.destroy();
        return Code.memory;
    };
    return Code.ok;
}

pub export fn peregrine_close_aside(opener: *Opener, fd: c_int) callconv(.c) void {
    if (opener.forks != io.fork.count()) return io.file.close(fd);
    opener.close(fd);
}

pub export fn peregrine_opened(opener: *Opener, given: *sized.Header) callconv(.c) c_int {
    if (opener.forks != io.fork.count()) return 0;
    const opening = opener.next() orelse return 0;
    defer opening.destroy();
    const flag = types.OpenedFlag;
    sized.write(types.OpenedFile, given, .{
        .size = given.size,
        .flags = (if (opening.is_plain) @as(u32, flag.plain_file) else 0) |
            (if (opening.is_local) @as(u32, flag.local_file) else 0),
        .user = opening.user,
        .bytes = opening.bytes,
        .fd = opening.fd,
        .system_error = opening.errno,
    });
    opening.fd = -1;
    return 1;
}

test "a file that a thread has opened comes back with its number" {
    const testing = std.testing;
    var made: ?*Opener = null;
    try testing.expectEqual(Code.ok, peregrine_opener_new(&made));
    const opener = made.?;
    defer peregrine_opener_free(opener);
    try testing.expectEqual(Code.ok, peregrine_open_aside(opener, "/nonexistent", 5));
    try testing.expectEqual(Code.ok, peregrine_open_aside(opener, "/", 6));
    var seen: u64 = 0;
    while (seen != 11) {
        opener.wakeup.wait(60_000);
        var opened: types.OpenedFile = .{ .size = @sizeOf(types.OpenedFile) };
        while (peregrine_opened(opener, @ptrCast(&opened)) == 1) {
            seen += opened.user;
            try testing.expectEqual(opened.user == 5, opened.fd == -1);
            try testing.expectEqual(0, opened.flags & types.OpenedFlag.plain_file);
            if (opened.fd >= 0) peregrine_close_aside(opener, opened.fd);
        }
    }
}
