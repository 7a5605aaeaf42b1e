//! The part of a worker that sends files without waiting for their storage. A longer one is sent from only
//! what is known to be in memory. The next piece is read by a thread (io/storage.zig) where it is not, or
//! where the file system cannot tell; meanwhile this connection waits, and no other. Its bytes then go before
//! what is left of the file.
//!
//! Storage that does not answer has the time of a peer that does not (`Config.write_ms`).
//!
//! Hosts have tasks of their own done by the same threads (`store`).
const std = @import("std");
const assert = std.debug.assert;
const io_layer = @import("io");
const FileRange = @import("../outbox.zig").FileRange;
const Ticket = @import("../slab.zig").Ticket;
const Lane = @import("../lane.zig").Lane;

/// The methods of a worker that ask storage.
pub fn Storing(comptime W: type) type {
    return struct {
        /// Bytes that a thread reads at a time.
        const piece_bytes = 128 * 1024;
        /// Bytes that the kernel is told to read ahead with each piece.
        const ahead_bytes = 1024 * 1024;
        /// The part of a file that is looked at in one go, all of which would be sent at once, and the
        /// distance between two looks: no more than the kernel reads ahead.
        const look_bytes = 1024 * 1024;
        const step_bytes = 128 * 1024;

        /// The number of bytes of the file at the front of a queue that can be read without waiting; 0:
        /// sending goes on when a thread has read them.
        pub fn readable(w: *W, lane: *Lane, range: *FileRange) u64 {
            if (!range.asks) return range.len;
            if (range.reading) return 0;
            if (range.ready == 0) range.ready = look(w, range);
            // without a thread the kernel reads the file, which may block
            if (range.ready == 0 and !begin(w, lane, range)) range.ready = piece_bytes;
            return @min(range.ready, range.len);
        }

        /// The number of bytes at the front of a file that are in memory.
        fn look(w: *W, range: *FileRange) u32 {
            if (range.is_dumb) return 0;
            if (@hasDecl(W.IoType, "isFileSlow") and w.io.isFileSlow()) return 0;
            const most: u32 = @intCast(@min(range.len, look_bytes));
            if (!isPresent(range, 0)) return 0;
            var seen: u32 = 0;
            while (seen < most) {
                const step = @min(step_bytes, most - seen);
                if (!isPresent(range, seen + step - 1)) break;
                seen += step;
            }
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

        /// Has the next piece read. False: that cannot be had.
        fn begin(w: *W, lane: *Lane, range: *FileRange) bool {
            const storage = storageOf(w) orelse return false;
            const read = io_layer.StorageRead.create(
                @intCast(@backingInt(lane.ticket)),
                range.fd,
                range.offset,
                @intCast(@min(range.len, piece_bytes)),
                if (range.is_dumb) 0 else @min(range.len, ahead_bytes),
            ) catch return false;
            range.reading = true;
            lane.out.state = .{ .blocked = .begin(heldByKernel(w, lane), w.io.now()) };
            lane.out.queue.noteSlow(range.fd);
            storage.submit(&read.task) catch {
                range.reading = false;
                read.destroy();
                return false;
            };
            return true;
        }

        fn heldByKernel(w: *W, lane: *const Lane) usize {
            if (lane.isStream()) return 0;
            const socket = lane.transport.socket;
            return if (socket == .none) 0 else w.io.held(socket);
        }

        /// Hands a task to the worker's threads. When it is done, its `done` is called with the worker,
        /// between two rounds, unless the worker has ended: then its `drop` is. On an error it was not handed
        /// over.
        pub fn store(w: *W, task: *io_layer.StorageTask) error{CannotStartThread}!void {
            const storage = storageOf(w) orelse return error.CannotStartThread;
            return storage.submit(task);
        }

        fn storageOf(w: *W) ?*io_layer.Storage {
            if (w.storage == null) w.storage = io_layer.Storage.create(
                .{ .context = w, .wake = wake },
                !@hasDecl(W.IoType, "is_simulated"),
            ) catch null;
            return w.storage;
        }

        fn wake(context: *anyopaque) void {
            const w: *W = @ptrCast(@alignCast(context));
            w.io.wake();
        }

        /// Once a round: goes on with pieces that were read.
        pub fn attend(w: *W, storage: *io_layer.Storage) void {
            var tasks = storage.collect();
            while (tasks.pop()) |task| {
                if (task.done) |done| {
                    done(task, w);
                    continue;
                }
                if (task.work != io_layer.StorageRead.work) {
                    task.drop(task);
                    continue;
                }
                const read: *io_layer.StorageRead = @fieldParentPtr("task", task);
                defer read.destroy();
                const ticket: Ticket = @fromBackingInt(@intCast(read.owner));
                const lane = w.laneOf(ticket) orelse continue; // the lane has gone meanwhile
                arrived(w, lane, read);
            }
        }

        fn arrived(w: *W, lane: *Lane, read: *const io_layer.StorageRead) void {
            const outbox = &lane.out.queue;
            const range = outbox.first.?.fileRange();
            assert(range.reading);
            range.reading = false;
            if (read.errno != 0) return w.fileFailed(lane, range, "could not be read");
            const bytes = read.bytes();
            if (bytes.len == 0) {
                return w.fileFailed(lane, range, "ended before all of its bytes were sent");
            }
            // The peer has its time from now on.
            lane.out.state = .{ .blocked = .begin(heldByKernel(w, lane), w.io.now()) };
            range.advance(bytes.len);
            if (range.len == 0) if (outbox.popFile(&w.pool)) |whole| closeFile(w, whole);
            outbox.prepend(&w.pool, bytes) catch return w.fail(lane, .server_error);
            if (w.send(lane)) w.settle(lane);
        }

        /// Storage has not answered for as long as a peer has to take something.
        pub fn storageStalled(w: *W, lane: *Lane) void {
            w.fileFailed(lane, lane.out.queue.first.?.fileRange(), "was not read within write_ms");
        }

        /// Gives back the descriptor of a file; where that may take long, a thread does.
        pub fn closeFile(w: *W, range: FileRange) void {
            if (range.was_slow) if (w.storage) |storage| {
                const closing = io_layer.StorageClose.create(range.fd) catch
                    return io_layer.file.close(range.fd);
                return storage.submit(&closing.task) catch closing.destroy();
            };
            io_layer.file.close(range.fd);
        }

        /// When the worker ends, and all exchanges have.
        pub fn closeStorage(w: *W) void {
            if (w.storage) |storage| storage.close();
            w.storage = null;
        }

        // ---- Streams

        /// The number of bytes of a stream's queue that can be framed. 0: framing goes on when a thread has
        /// read some.
        pub fn readableOfStream(w: *W, lane: *Lane) u64 {
            var bytes: u64 = 0;
            var node = lane.out.queue.first;
            while (node) |one| : (node = one.next) {
                if (one.unsent()) |unsent| {
                    bytes += unsent.len;
                    continue;
                }
                const range = one.fileRange();
                if (range.asks and bytes > 0) return bytes + @min(range.ready, range.len);
                const ready = readable(w, lane, range);
                bytes += ready;
                if (ready < range.len) return bytes;
            }
            return bytes;
        }
    };
}
