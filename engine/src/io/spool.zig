//! Writes bytes into temporary files in a thread of its own, so that the owner never waits for a disk.
//!
//! The owner hands jobs over (`submit`) and gets each of them back (`collect`); one thread does them in
//! order. It starts with the first job. Does not know: what is written.
const std = @import("std");
const assert = std.debug.assert;
const Atomic = std.atomic.Value;
const log_calls = @import("sys/log.zig");
const sys = @import("sys.zig");
const temporary = @import("sys/temporary.zig");
const thread = @import("thread.zig");

/// Bytes to append to a temporary file. The owner must not touch it between `submit` and `collect`.
pub const Job = struct {
    next: ?*Job = null,
    /// The file's descriptor; -1: the job creates the file.
    fd: sys.Fd = -1,
    /// The number of bytes that were written to the file.
    written: u64 = 0,
    bytes: []const u8 = "",
    /// The errno if not all bytes were written; 0: all were.
    errno: u16 = 0,
    /// If the errno is ENOSPC because of the reserve: the bytes that must stay free on the file system; else
    /// 0.
    reserve: u64 = 0,
    /// The file lies on a file system that keeps files in memory. Set by the first job.
    is_memory: bool = false,

    fn do(job: *Job, folder: [:0]const u8, room: *Room) void {
        job.errno = 0;
        if (job.fd < 0) switch (temporary.create(folder)) {
            .done => |fd| job.fd = @intCast(fd),
            .blocked => unreachable,
            .failed => |code| {
                job.errno = sys.number(code);
                return;
            },
        };
        if (!room.take(job)) return job.fail(.NOSPC);
        var rest = job.bytes;
        while (rest.len > 0) switch (temporary.writeAt(job.fd, rest, job.written)) {
            .done => |count| {
                // A regular file takes at least one byte, or fails.
                if (count == 0) return job.fail(.NOSPC);
                rest = rest[count..];
                job.written += count;
            },
            .blocked => unreachable,
            .failed => |code| return job.fail(code),
        };
    }

    fn fail(job: *Job, code: sys.E) void {
        job.errno = sys.number(code);
    }
};

/// The number of bytes that may be written before the file system's free space is asked for again: other
/// programs write there, too.
const Room = struct {
    left: u64 = 0,
    is_memory: bool = false,

    /// The share of a file system (one 20th, up to a maximum) that stays free for databases and logs.
    const part_of_reserve = 20;
    const reserve_bytes_max = 256 * 1024 * 1024;
    /// The share of the free space that is written between two queries (one 8th), and its maximum.
    const part_of_step = 8;
    const step_bytes_max = 16 * 1024 * 1024;

    /// Reserves room for a job's bytes. False: the reserve would not stay free.
    fn take(room: *Room, job: *Job) bool {
        defer job.is_memory = room.is_memory;
        // New files are rare enough for a query each.
        if (job.written == 0 or room.left < job.bytes.len) {
            const found = sys.roomOf(job.fd) orelse return true;
            room.is_memory = found.is_memory;
            const reserve = @min(found.total / part_of_reserve, reserve_bytes_max);
            const free = found.free -| reserve;
            if (free < job.bytes.len) {
                job.reserve = reserve;
                return false;
            }
            room.left = @max(@min(free / part_of_step, step_bytes_max), job.bytes.len);
        }
        room.left -= job.bytes.len;
        return true;
    }
};

/// Finished jobs, in their order.
pub const Jobs = struct {
    first: ?*Job = null,

    /// Removes and returns the next job, which the caller owns again; null: none is left.
    pub fn pop(jobs: *Jobs) ?*Job {
        const job = jobs.first orelse return null;
        jobs.first = job.next;
        job.next = null;
        return job;
    }
};

/// A writing thread and its jobs. Must not move after the first job.
pub const Spool = struct {
    /// The folder of the files. The owner keeps this text alive.
    folder: [:0]const u8,
    waker: Waker,
    /// The free space; only the writing thread uses it.
    room: Room = .{},
    /// False: a job is done in `submit`, for simulations.
    has_thread: bool,
    thread: ?std.Thread = null,
    /// The process that started the thread: a forked child has no such thread.
    pid: std.posix.pid_t = 0,
    /// Jobs for the writer, the newest first.
    todo: Atomic(?*Job) = .init(null),
    done: Atomic(?*Job) = .init(null),
    /// Incremented to make the thread look for jobs.
    wakeups: Atomic(u32) = .init(0),
    closing: Atomic(bool) = .init(false),

    /// The function that tells the owner that a job is done. The thread calls it.
    pub const Waker = struct {
        context: *anyopaque,
        wake: *const fn (*anyopaque) void,
    };

    /// Hands a job over; on an error the caller still owns it.
    pub fn submit(spool: *Spool, job: *Job) error{CannotStartThread}!void {
        assert(job.next == null and job.bytes.len > 0);
        if (!spool.has_thread) return spool.do(job);
        if (spool.thread == null) {
            spool.pid = sys.processId();
            spool.thread = try thread.spawn(run, .{spool});
        }
        _ = push(&spool.todo, job);
        spool.rouse();
    }

    /// Returns the jobs that are done, oldest first.
    pub fn collect(spool: *Spool) Jobs {
        return take(&spool.done);
    }

    /// Ends the thread after its current job. Then `collect` returns all other jobs as well, not done
    /// (ECANCELED).
    pub fn close(spool: *Spool) void {
        const handle = spool.thread orelse return;
        if (sys.processId() != spool.pid) return;
        spool.closing.store(true, .release);
        spool.rouse();
        handle.join();
        spool.thread = null;
    }

    fn rouse(spool: *Spool) void {
        _ = spool.wakeups.fetchAdd(1, .release);
        log_calls.wakeAll(&spool.wakeups);
    }

    fn run(spool: *Spool) void {
        while (true) {
            const heard = spool.wakeups.load(.acquire);
            var jobs = take(&spool.todo);
            if (jobs.first == null and !spool.closing.load(.acquire)) {
                log_calls.sleepOn(&spool.wakeups, heard, null);
                continue;
            }
            while (jobs.pop()) |job| spool.do(job);
            if (spool.closing.load(.acquire) and spool.todo.load(.monotonic) == null) return;
        }
    }

    fn do(spool: *Spool, job: *Job) void {
        if (spool.closing.load(.acquire)) job.fail(.CANCELED) else job.do(spool.folder, &spool.room);
        if (push(&spool.done, job)) spool.waker.wake(spool.waker.context);
    }

    /// Pushes a job; returns true if the stack was empty before.
    fn push(stack: *Atomic(?*Job), job: *Job) bool {
        var head = stack.load(.monotonic);
        while (true) {
            job.next = head;
            head = stack.cmpxchgWeak(head, job, .release, .monotonic) orelse return head == null;
        }
    }

    fn take(stack: *Atomic(?*Job)) Jobs {
        var job = if (stack.load(.monotonic) != null) stack.swap(null, .acquire) else null;
        var jobs: Jobs = .{};
        while (job) |one| {
            job = one.next;
            one.next = jobs.first;
            jobs.first = one;
        }
        return jobs;
    }
};

const testing = std.testing;

/// An owner that waits for jobs.
const Owner = struct {
    wakes: Atomic(u32) = .init(0),

    fn wake(context: *anyopaque) void {
        const owner: *Owner = @ptrCast(@alignCast(context));
        _ = owner.wakes.fetchAdd(1, .release);
        log_calls.wakeAll(&owner.wakes);
    }

    fn spool(owner: *Owner, folder: [:0]const u8, has_thread: bool) Spool {
        return .{ .folder = folder, .waker = .{ .context = owner, .wake = wake }, .has_thread = has_thread };
    }
};

test "jobs come back in their order, and their bytes are in their files" {
    for ([_]bool{ true, false }) |has_thread| {
        var owner: Owner = .{};
        var spool = owner.spool("/tmp", has_thread);
        defer spool.close();
        var jobs: [20]Job = @splat(.{});
        defer for (&jobs) |*job| sys.close(job.fd);
        for (0..3) |turn| {
            for (&jobs, 0..) |*job, n| {
                job.bytes = ([_][]const u8{ "one", "two", "three" })[(n + turn) % 3];
                try spool.submit(job);
            }
            var back: usize = 0;
            while (back < jobs.len) {
                const heard = owner.wakes.load(.acquire);
                var done = spool.collect();
                if (done.first == null) log_calls.sleepOn(&owner.wakes, heard, 60_000);
                while (done.pop()) |job| : (back += 1) {
                    try testing.expectEqual(&jobs[back], job);
                    try testing.expectEqual(0, job.errno);
                }
            }
        }
        for (&jobs, 0..) |*job, n| {
            const all = ([_][]const u8{ "onetwothree", "twothreeone", "threeonetwo" })[n % 3];
            var buffer: [20]u8 = undefined;
            try testing.expectEqualStrings(all, buffer[0..sys.readFileAt(job.fd, &buffer, 0).done]);
            try testing.expectEqual(all.len, job.written);
        }
    }
}

test "jobs that are left when a spool closes come back, done or not" {
    var owner: Owner = .{};
    var spool = owner.spool("/tmp", true);
    var jobs: [50]Job = @splat(.{ .bytes = "bytes" });
    for (&jobs) |*job| try spool.submit(job);
    spool.close();
    var done = spool.collect();
    for (&jobs) |*job| {
        try testing.expectEqual(job, done.pop().?);
        try testing.expect(job.errno == 0 or job.errno == sys.number(.CANCELED));
        if (job.fd >= 0) sys.close(job.fd);
    }
    try testing.expectEqual(null, done.pop());
}

test "a folder that is not there is told by its errno, and a spool without a job has no thread" {
    var owner: Owner = .{};
    var unused = owner.spool("/tmp", true);
    unused.close();
    try testing.expectEqual(null, unused.thread);
    var spool = owner.spool("/nonexistent", false);
    var job: Job = .{ .bytes = "x" };
    try spool.submit(&job);
    var done = spool.collect();
    try testing.expectEqual(&job, done.pop().?);
    try testing.expectEqual(sys.number(.NOENT), job.errno);
    try testing.expectEqual(-1, job.fd);
}
