//! Files on storage that may be slow: which of their bytes are in memory, and the threads that read the other
//! bytes and close slow files. Does not know: lanes, and which exchange waits (worker/storage.zig).
const std = @import("std");
const assert = std.debug.assert;
const io_layer = @import("io");
const FileRange = @import("outbox.zig").FileRange;
const Ticket = @import("slab.zig").Ticket;

/// The threads of one worker that read files. They start when a file needs them.
pub const Storage = struct {
    /// The threads; null: no file has needed them yet.
    threads: ?*io_layer.Storage = null,
    /// Pieces of files that were requested and were not read yet.
    reading: u32 = 0,

    pub const piece_bytes = @import("config.zig").worker_limits.storage_piece_bytes;
    const ahead_bytes = @import("config.zig").worker_limits.storage_ahead_bytes;
    /// Bytes of a file that are examined in one go, because they could be sent at once, and the distance in
    /// bytes between two samples: no more than the kernel reads ahead.
    const look_bytes = 1024 * 1024;
    const step_bytes = 128 * 1024;

    /// The function by which threads report finished tasks, and whether there are threads: in a simulation
    /// tasks are carried out at once.
    pub const Means = struct { waker: io_layer.Storage.Waker, has_threads: bool };

    /// A piece of a file that was read.
    pub const Piece = io_layer.StorageRead;

    /// Ends the threads. All exchanges must have ended.
    pub fn deinit(storage: *Storage) void {
        if (storage.threads) |threads| threads.close();
        storage.* = .{};
    }

    /// Bytes at the front of a range that are in memory.
    pub fn look(range: *FileRange) u32 {
        assert(range.asks and !range.reading);
        if (range.is_dumb) return 0;
        const most: u32 = @intCast(@min(range.len, look_bytes));
        if (!isPresent(range, 0)) return 0;
        var seen: u32 = 0;
        while (seen < most) {
            const step = @min(step_bytes, most - seen);
            if (!isPresent(range, seen + step - 1)) break;
            seen += step;
        }
        assert(seen <= range.len);
        return seen;
    }

    fn isPresent(range: *FileRange, distance: u32) bool {
        return switch (io_layer.file.isInMemory(range.fd, range.offset + distance)) {
            .present => true,
            .absent => false,
            .unknown => {
                range.is_dumb = true;
                return false;
            },
        };
    }

    /// Lets a thread read the next piece of a file for the lane `owner`. False: there is no thread or no
    /// memory.
    pub fn read(storage: *Storage, means: Means, owner: Ticket, range: *FileRange) bool {
        assert(!range.reading and range.len > 0);
        const threads = storage.begin(means) orelse return false;
        const piece = Piece.create(
            @intCast(@backingInt(owner)),
            range.fd,
            range.offset,
            @intCast(@min(range.len, piece_bytes)),
            if (range.is_dumb) 0 else @min(range.len, ahead_bytes),
        ) catch return false;
        threads.submit(&piece.task) catch {
            piece.destroy();
            return false;
        };
        range.reading = true;
        storage.reading += 1;
        storage.invariants();
        return true;
    }

    /// Gives a host's task to the threads. On an error the caller still owns the task.
    pub fn submit(
        storage: *Storage,
        means: Means,
        task: *io_layer.StorageTask,
    ) error{CannotStartThread}!void {
        const threads = storage.begin(means) orelse return error.CannotStartThread;
        return threads.submit(task);
    }

    fn begin(storage: *Storage, means: Means) ?*io_layer.Storage {
        if (storage.threads == null) {
            storage.threads = io_layer.Storage.create(means.waker, means.has_threads) catch null;
        }
        return storage.threads;
    }

    /// The tasks that threads have finished since the last call.
    pub fn collect(storage: *Storage) Done {
        const threads = storage.threads orelse return .{ .storage = storage, .tasks = .{} };
        return .{ .storage = storage, .tasks = threads.collect() };
    }

    /// An iterator over finished tasks.
    pub const Done = struct {
        storage: *Storage,
        tasks: io_layer.StorageTasks,

        /// The next piece of a file, which the caller destroys; null: there is no further piece. Finished
        /// tasks of hosts are reported to `owner` on the way.
        pub fn next(done: *Done, owner: *anyopaque) ?*Piece {
            while (done.tasks.pop()) |task| {
                if (task.done) |tell| {
                    tell(task, owner);
                } else if (task.work == Piece.work) {
                    done.storage.reading -= 1;
                    return @fieldParentPtr("task", task);
                } else task.drop(task);
            }
            return null;
        }
    };

    /// Closes a file that is no longer needed. A thread closes files whose storage was slow.
    pub fn closeFile(storage: *Storage, range: FileRange) void {
        assert(range.fd >= 0);
        if (range.was_slow) if (storage.threads) |threads| {
            const closing = io_layer.StorageClose.create(range.fd) catch
                return io_layer.file.close(range.fd);
            return threads.submit(&closing.task) catch closing.destroy();
        };
        io_layer.file.close(range.fd);
    }

    pub fn invariants(storage: *const Storage) void {
        if (storage.threads == null) assert(storage.reading == 0);
    }
};

test "pieces come to the lanes that asked, and tasks of hosts to their owner" {
    const testing = std.testing;
    const Own = struct {
        task: io_layer.StorageTask = .{ .work = work, .drop = drop, .done = done },
        var told: ?*anyopaque = null;

        fn work(_: *io_layer.StorageTask) void {}
        fn drop(_: *io_layer.StorageTask) void {}
        fn done(_: *io_layer.StorageTask, owner: *anyopaque) void {
            told = owner;
        }
        fn wake(_: *anyopaque) void {}
    };
    var owner: u8 = 0;
    const means: Storage.Means = .{
        .waker = .{ .context = &owner, .wake = Own.wake },
        .has_threads = false,
    };
    const fd = try io_layer.sharing.fileOf("content");
    var range: FileRange = .{ .fd = fd, .offset = 2, .len = 5, .asks = true, .was_slow = true };
    var storage: Storage = .{};
    var none = storage.collect();
    try testing.expectEqual(null, none.next(&owner));
    const name: Ticket = @fromBackingInt(77);
    try testing.expect(storage.read(means, name, &range));
    try testing.expect(range.reading and storage.reading == 1);
    var own: Own = .{};
    try storage.submit(means, &own.task);
    var done = storage.collect();
    var seen: u32 = 0;
    while (done.next(&owner)) |piece| : (seen += 1) {
        defer piece.destroy();
        try testing.expectEqual(77, piece.owner);
        try testing.expectEqualStrings("ntent", piece.bytes());
    }
    try testing.expectEqual(1, seen);
    try testing.expectEqual(@as(?*anyopaque, &owner), Own.told);
    try testing.expectEqual(0, storage.reading);
    storage.closeFile(range);
    storage.deinit();
}
