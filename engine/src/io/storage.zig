//! Slow operations on files (on a disk or a network), done by a few threads, so that a serving thread never
//! waits for storage. The owner hands tasks over (`submit`), is woken, and gets each of them back
//! (`collect`).
//!
//! Storage may never respond, and a call that waits for it cannot be ended. So the owner does not wait for
//! the threads when it closes: memory that they share with it lives until the last of them has ended. Does
//! not know: the purpose of a file and of its bytes.
const std = @import("std");
const builtin = @import("builtin");
const assert = std.debug.assert;
const Atomic = std.atomic.Value;
const log_calls = @import("sys/log.zig");
const sys = @import("sys.zig");
const thread = @import("thread.zig");

/// The allocator of memory that may outlive its owner's allocator.
const gpa = if (builtin.link_libc) std.heap.c_allocator else std.heap.smp_allocator;

/// An operation that may take long. Its maker must not touch it between `submit` and `collect`.
pub const Task = struct {
    next: ?*Task = null,
    /// The operation; called once, by a thread.
    work: *const fn (*Task) void,
    /// Frees the task; called by any thread in place of `collect` after the owner has closed.
    drop: *const fn (*Task) void,
    /// Called by an owner that serves other makers' tasks (`Worker.store`) when the task is done; null: the
    /// task is dropped.
    done: ?*const fn (*Task, owner: *anyopaque) void = null,
};

/// Tasks, in order.
pub const Tasks = struct {
    first: ?*Task = null,
    last: ?*Task = null,

    fn push(tasks: *Tasks, task: *Task) void {
        task.next = null;
        if (tasks.last) |last| last.next = task else tasks.first = task;
        tasks.last = task;
    }

    /// Removes and returns the next task, which the caller then owns; null: none is left.
    pub fn pop(tasks: *Tasks) ?*Task {
        const task = tasks.first orelse return null;
        tasks.first = task.next;
        if (tasks.first == null) tasks.last = null;
        task.next = null;
        return task;
    }
};

/// Threads that read, open and close files on slow storage, and the tasks for them.
pub const Storage = struct {
    waker: Waker,
    /// False: a task is done in `submit`, for simulations.
    has_threads: bool,
    /// The process that started the threads: a forked child has no such threads.
    pid: std.posix.pid_t,
    /// The number of threads that may still use this memory: the owner's, and each helper.
    references: Atomic(u32) = .init(1),
    /// Locks the fields below, for a few instructions at a time.
    busy: Atomic(bool) = .init(false),
    todo: Tasks = .{},
    waiting: u32 = 0,
    done: Tasks = .{},
    threads: u32 = 0,
    /// Threads that sleep or are about to sleep.
    idle: u32 = 0,
    closing: bool = false,
    /// Incremented to make a thread look for tasks.
    wakeups: Atomic(u32) = .init(0),

    /// The maximum number of threads; further tasks wait. A disk is faster with a few operations at a time
    /// than with one, and storage that does not respond blocks no more threads than these.
    pub const threads_max = 8;

    /// The function that tells the owner that a task is done. Threads call it, never after `close`.
    pub const Waker = struct {
        context: *anyopaque,
        wake: *const fn (*anyopaque) void,
    };

    pub fn create(waker: Waker, has_threads: bool) error{OutOfMemory}!*Storage {
        const storage = try gpa.create(Storage);
        storage.* = .{ .waker = waker, .has_threads = has_threads, .pid = sys.processId() };
        return storage;
    }

    /// Hands a task over. On an error the caller still owns it: no thread runs, and none can be started.
    pub fn submit(storage: *Storage, task: *Task) error{CannotStartThread}!void {
        if (!storage.has_threads) {
            task.work(task);
            return storage.finish(task);
        }
        storage.lock();
        storage.todo.push(task);
        storage.waiting += 1;
        const wants_thread = storage.waiting > storage.idle and storage.threads < threads_max;
        storage.unlock();
        if (wants_thread) storage.startThread() catch if (storage.threads == 0) {
            storage.todo = .{};
            storage.waiting = 0;
            return error.CannotStartThread;
        };
        storage.rouse();
    }

    fn startThread(storage: *Storage) error{CannotStartThread}!void {
        _ = storage.references.fetchAdd(1, .monotonic);
        errdefer _ = storage.references.fetchSub(1, .monotonic);
        const handle = try thread.spawn(run, .{storage});
        handle.detach();
        // Only the owner uses this field.
        storage.threads += 1;
    }

    /// Returns the tasks that are done, in the order in which they ended.
    pub fn collect(storage: *Storage) Tasks {
        storage.lock();
        defer storage.unlock();
        defer storage.done = .{};
        return storage.done;
    }

    /// Ends the owner's part: tasks that were not collected are dropped, now or when they are done.
    pub fn close(storage: *Storage) void {
        if (sys.processId() != storage.pid) return;
        storage.lock();
        storage.closing = true;
        var lists = [_]Tasks{ storage.todo, storage.done };
        storage.todo = .{};
        storage.done = .{};
        storage.unlock();
        for (&lists) |*list| while (list.pop()) |task| task.drop(task);
        storage.rouse();
        storage.release();
    }

    fn release(storage: *Storage) void {
        if (storage.references.fetchSub(1, .acq_rel) == 1) gpa.destroy(storage);
    }

    fn rouse(storage: *Storage) void {
        _ = storage.wakeups.fetchAdd(1, .release);
        log_calls.wakeAll(&storage.wakeups);
    }

    fn run(storage: *Storage) void {
        defer storage.release();
        while (true) {
            const heard = storage.wakeups.load(.acquire);
            const task = switch (storage.next()) {
                .task => |task| task,
                .nothing => {
                    log_calls.sleepOn(&storage.wakeups, heard, null);
                    storage.lock();
                    storage.idle -= 1;
                    storage.unlock();
                    continue;
                },
                .end => return,
            };
            task.work(task);
            storage.finish(task);
        }
    }

    fn next(storage: *Storage) union(enum) { task: *Task, nothing, end } {
        storage.lock();
        defer storage.unlock();
        if (storage.closing) return .end;
        const task = storage.todo.pop() orelse {
            storage.idle += 1;
            return .nothing;
        };
        storage.waiting -= 1;
        return .{ .task = task };
    }

    fn finish(storage: *Storage, task: *Task) void {
        storage.lock();
        if (storage.closing) {
            storage.unlock();
            return task.drop(task);
        }
        defer storage.unlock();
        const was_empty = storage.done.first == null;
        storage.done.push(task);
        // The lock is held, so the owner cannot close meanwhile.
        if (was_empty) storage.waker.wake(storage.waker.context);
    }

    fn lock(storage: *Storage) void {
        while (storage.busy.swap(true, .acquire)) std.Thread.yield() catch {};
    }

    fn unlock(storage: *Storage) void {
        storage.busy.store(false, .release);
    }
};

/// Reads a piece of a file.
pub const Read = struct {
    task: Task = .{ .work = work, .drop = drop },
    /// A number by which the task's maker knows the reader.
    owner: u64,
    /// The task's own descriptor, closed after the read.
    fd: sys.Fd,
    offset: u64,
    len: u32,
    /// Bytes from `offset` on that the kernel is told to read ahead.
    ahead: u64,
    buffer: []u8 = &.{},
    /// The number of bytes that were read, which may be less than `len`; 0 at the end of the file.
    filled: usize = 0,
    /// The errno if the read failed; 0: bytes were read, or the file has ended.
    errno: u16 = 0,

    /// Creates a task that reads `len` bytes at `offset` of `fd`, which the caller keeps. `ahead`: see
    /// `Read.ahead`.
    pub fn create(
        owner: u64,
        fd: sys.Fd,
        offset: u64,
        len: u32,
        ahead: u64,
    ) error{ OutOfMemory, NoDescriptor }!*Read {
        const read = try gpa.create(Read);
        errdefer gpa.destroy(read);
        const own = switch (sys.duplicate(fd)) {
            .done => |copy| copy,
            .blocked, .failed => return error.NoDescriptor,
        };
        read.* = .{ .owner = owner, .fd = @intCast(own), .offset = offset, .len = len, .ahead = ahead };
        return read;
    }

    /// Returns the bytes that were read, valid until `destroy`.
    pub fn bytes(read: *const Read) []const u8 {
        return read.buffer[0..read.filled];
    }

    /// Frees the task, which no thread may be working on.
    pub fn destroy(read: *Read) void {
        if (read.fd >= 0) sys.close(read.fd);
        gpa.free(read.buffer);
        gpa.destroy(read);
    }

    /// Reads the piece; the `work` of the task.
    pub fn work(task: *Task) void {
        const read: *Read = @fieldParentPtr("task", task);
        // Allocated only now, because many reads may wait for a thread.
        if (gpa.alloc(u8, read.len)) |buffer| {
            read.buffer = buffer;
            if (read.ahead > read.len) sys.readAhead(read.fd, read.offset, read.ahead);
            switch (sys.readFileAt(read.fd, buffer, read.offset)) {
                .done => |count| read.filled = count,
                .blocked => unreachable,
                .failed => |code| read.errno = sys.number(code),
            }
        } else |_| read.errno = sys.number(.NOMEM);
        // A close of a slow file may take long as well, so it is done by this thread.
        sys.close(read.fd);
        read.fd = -1;
    }

    fn drop(task: *Task) void {
        const read: *Read = @fieldParentPtr("task", task);
        read.destroy();
    }
};

/// Opens a file by its path and collects facts about it.
pub const Open = struct {
    task: Task = .{ .work = work, .drop = drop },
    /// A number for the task's maker.
    user: u64,
    path: [:0]u8,
    /// The opened file, closed with the task; -1: the open failed, or the descriptor was taken out.
    fd: sys.Fd = -1,
    /// The errno if the open failed; 0: it did not.
    errno: u16 = 0,
    /// The file is a regular one and its size is the length of its content, unlike in /proc.
    is_plain: bool = false,
    bytes: u64 = 0,
    /// The file, or its folder, lies on a file system that waits neither for a network nor for another
    /// process.
    is_local: bool = false,

    /// Creates a task that opens `path`, which is copied.
    pub fn create(path: []const u8, user: u64) error{OutOfMemory}!*Open {
        const opening = try gpa.create(Open);
        errdefer gpa.destroy(opening);
        opening.* = .{ .user = user, .path = try gpa.dupeSentinel(u8, path, 0) };
        return opening;
    }

    /// Frees the task, which no thread may be working on.
    pub fn destroy(opening: *Open) void {
        if (opening.fd >= 0) sys.close(opening.fd);
        gpa.free(opening.path);
        gpa.destroy(opening);
    }

    fn work(task: *Task) void {
        const opening: *Open = @fieldParentPtr("task", task);
        switch (sys.openFile(opening.path)) {
            .done => |fd| {
                opening.fd = @intCast(fd);
                opening.look();
            },
            .blocked => opening.errno = sys.number(.AGAIN),
            .failed => |code| {
                opening.errno = sys.number(code);
                opening.lookAtFolder();
            },
        }
    }

    fn look(opening: *Open) void {
        const fd = opening.fd;
        opening.is_local = sys.isLocal(fd);
        const found = sys.look(fd) orelse return;
        if (found.kind != .regular) return;
        opening.bytes = found.size;
        var byte: [1]u8 = undefined;
        opening.is_plain = found.size > 0 or switch (sys.readFileAt(fd, &byte, 0)) {
            .done => |count| count == 0,
            .blocked, .failed => true,
        };
    }

    fn lookAtFolder(opening: *Open) void {
        const end = std.mem.findScalarLast(u8, opening.path, '/') orelse return;
        opening.path[end] = 0;
        defer opening.path[end] = '/';
        const folder = switch (sys.openFolder(if (end == 0) "/" else opening.path)) {
            .done => |fd| fd,
            .blocked, .failed => return,
        };
        opening.is_local = sys.isLocal(@intCast(folder));
        sys.close(@intCast(folder));
    }

    /// Frees the task and closes the file that it opened. The `drop` of the task, and of tasks built on it.
    pub fn drop(task: *Task) void {
        const opening: *Open = @fieldParentPtr("task", task);
        opening.destroy();
    }
};

/// Closes the descriptor of a slow file: some file systems wait for their storage even then.
pub const Close = struct {
    task: Task = .{ .work = work, .drop = drop },
    fd: sys.Fd,

    pub fn create(fd: sys.Fd) error{OutOfMemory}!*Close {
        const closing = try gpa.create(Close);
        closing.* = .{ .fd = fd };
        return closing;
    }

    /// Frees the task, and closes the descriptor if no thread has.
    pub fn destroy(closing: *Close) void {
        if (closing.fd >= 0) sys.close(closing.fd);
        gpa.destroy(closing);
    }

    fn work(task: *Task) void {
        const closing: *Close = @fieldParentPtr("task", task);
        sys.close(closing.fd);
        closing.fd = -1;
    }

    fn drop(task: *Task) void {
        const closing: *Close = @fieldParentPtr("task", task);
        closing.destroy();
    }
};

const testing = std.testing;

/// An owner that waits for tasks, and a task that ends when the test says so.
const Owner = struct {
    wakes: Atomic(u32) = .init(0),

    fn wake(context: *anyopaque) void {
        const owner: *Owner = @ptrCast(@alignCast(context));
        _ = owner.wakes.fetchAdd(1, .release);
        log_calls.wakeAll(&owner.wakes);
    }

    fn waker(owner: *Owner) Storage.Waker {
        return .{ .context = owner, .wake = wake };
    }

    fn collect(owner: *Owner, storage: *Storage) Tasks {
        while (true) {
            const heard = owner.wakes.load(.acquire);
            const tasks = storage.collect();
            if (tasks.first != null) return tasks;
            log_calls.sleepOn(&owner.wakes, heard, 60_000);
        }
    }
};

const Held = struct {
    task: Task = .{ .work = work, .drop = drop },
    begun: @import("wakeup.zig").Latch = .{},
    released: @import("wakeup.zig").Latch = .{},
    dropped: @import("wakeup.zig").Latch = .{},

    fn work(task: *Task) void {
        const held: *Held = @fieldParentPtr("task", task);
        held.begun.set();
        held.released.wait();
    }

    fn drop(task: *Task) void {
        const held: *Held = @fieldParentPtr("task", task);
        held.dropped.set();
    }
};

test "tasks come back while others are stuck, and the owner never waits" {
    var owner: Owner = .{};
    const storage: *Storage = try .create(owner.waker(), true);
    var stuck: [2]Held = @splat(.{});
    var waiting: [20]Held = @splat(.{});
    for (&stuck) |*held| try storage.submit(&held.task);
    for (&stuck) |*held| held.begun.wait();
    for (&waiting) |*held| {
        held.released.set();
        try storage.submit(&held.task);
    }
    var back: usize = 0;
    while (back < waiting.len) {
        var tasks = owner.collect(storage);
        while (tasks.pop()) |task| : (back += 1) {
            const held: *Held = @fieldParentPtr("task", task);
            try testing.expect(held != &stuck[0] and held != &stuck[1]);
        }
    }
    try testing.expect(storage.threads <= Storage.threads_max);
    const wakes = owner.wakes.load(.acquire);
    storage.close();
    // The tasks end after their owner has closed, and the owner is not woken.
    for (&stuck) |*held| held.released.set();
    for (&stuck) |*held| held.dropped.wait();
    try testing.expectEqual(wakes, owner.wakes.load(.acquire));
}

test "tasks that were not begun, or not collected, are dropped when the owner goes" {
    var owner: Owner = .{};
    const storage: *Storage = try .create(owner.waker(), true);
    var held: [Storage.threads_max + 3]Held = @splat(.{});
    for (&held) |*one| try storage.submit(&one.task);
    for (held[0..Storage.threads_max]) |*one| one.begun.wait();
    held[0].released.set();
    while (owner.wakes.load(.acquire) == 0) log_calls.sleepOn(&owner.wakes, 0, 60_000);
    storage.close();
    held[0].dropped.wait();
    for (held[1..]) |*one| one.released.set();
    for (&held) |*one| one.dropped.wait();
}

test "a piece of a file is read through a descriptor of its own" {
    var owner: Owner = .{};
    for ([_]bool{ true, false }) |has_threads| {
        const storage: *Storage = try .create(owner.waker(), has_threads);
        defer storage.close();
        const temporary = @import("sys/temporary.zig");
        const fd: sys.Fd = @intCast(temporary.create("/tmp").done);
        _ = temporary.writeAt(fd, "twelve bytes", 0);
        const read: *Read = try .create(17, fd, 7, 100, 1000);
        const closing: *Close = try .create(fd);
        try storage.submit(&closing.task);
        try storage.submit(&read.task);
        var back: usize = 0;
        while (back < 2) {
            var tasks = owner.collect(storage);
            while (tasks.pop()) |task| : (back += 1) {
                if (task == &closing.task) {
                    try testing.expectEqual(-1, closing.fd);
                    closing.destroy();
                } else {
                    try testing.expectEqualStrings("bytes", read.bytes());
                    try testing.expectEqual(0, read.errno);
                    read.destroy();
                }
            }
        }
    }
}

test "a file is opened and looked at, or there is a reason" {
    var owner: Owner = .{};
    const storage: *Storage = try .create(owner.waker(), true);
    defer storage.close();
    var tmp = testing.tmpDir(.{});
    defer tmp.cleanup();
    try tmp.dir.writeFile(testing.io, .{ .sub_path = "file", .data = "12345" });
    var buffer: [std.fs.max_path_bytes]u8 = undefined;
    const folder = buffer[0..try tmp.dir.realPath(testing.io, &buffer)];
    const names = [_][]const u8{ "file", "none", "" };
    for (names, 0..) |name, user| {
        const path = try std.fs.path.join(testing.allocator, &.{ folder, name });
        defer testing.allocator.free(path);
        const opening: *Open = try .create(path, user);
        try storage.submit(&opening.task);
    }
    const beneath: *Open = try .create("/proc/self/status", 3);
    try storage.submit(&beneath.task);
    var back: usize = 0;
    while (back < 4) {
        var tasks = owner.collect(storage);
        while (tasks.pop()) |task| : (back += 1) {
            const opening: *Open = @fieldParentPtr("task", task);
            defer opening.destroy();
            try testing.expectEqual(opening.user == 1, opening.fd < 0);
            try testing.expectEqual(opening.user == 1, opening.errno != 0);
            try testing.expectEqual(opening.user == 0, opening.is_plain);
            if (opening.user == 0) try testing.expectEqual(5, opening.bytes);
            if (opening.user == 3) try testing.expect(!opening.is_local);
        }
    }
}
