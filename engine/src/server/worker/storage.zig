//! The part of a worker that sends files without waiting for their storage. A longer file is sent only as far
//! as its bytes are known to be in memory. Where they are not, or the file system cannot tell, a thread reads
//! the next piece (../storage.zig), and only this connection waits for it. The read bytes are sent before the
//! rest of the file.
//!
//! Storage has the same time to answer as a peer to take output (`Config.write_ms`).
//!
//! The threads carry out tasks of hosts, too (`store`).
const assert = @import("std").debug.assert;
const io_layer = @import("io");
const FileRange = @import("../outbox.zig").FileRange;
const Ticket = @import("../slab.zig").Ticket;
const Lane = @import("../lane.zig").Lane;
const Storage = @import("../storage.zig").Storage;

pub fn Storing(comptime W: type) type {
    return struct {
        const output_part = @import("output.zig").Output(W);

        /// Bytes of the file range at the front of a queue that can be read without waiting. 0: sending goes
        /// on when a thread has read some.
        pub fn readable(w: *W, lane: *Lane, range: *FileRange) u64 {
            if (!range.asks) return range.len;
            if (range.reading) return 0;
            if (range.ready == 0 and !isSlow(w)) range.ready = Storage.look(range);
            // Without a thread the kernel reads the file, which may block.
            if (range.ready == 0 and !begin(w, lane, range)) range.ready = Storage.piece_bytes;
            return @min(range.ready, range.len);
        }

        fn isSlow(w: *W) bool {
            return @hasDecl(W.IoType, "isFileSlow") and w.io.isFileSlow();
        }

        /// Lets a thread read the next piece. False: there is no thread or no memory.
        fn begin(w: *W, lane: *Lane, range: *FileRange) bool {
            assert(range.asks and !range.reading);
            if (!w.storage.read(means(w), lane.ticket(), range)) return false;
            lane.out().state = .{ .blocked = .begin(heldByKernel(w, lane), w.io.now()) };
            lane.out().queue.noteSlow(range.fd);
            return true;
        }

        fn heldByKernel(w: *W, lane: *const Lane) usize {
            if (lane.isStream()) return 0;
            const socket = lane.transport.socket;
            return if (socket == .none) 0 else w.io.held(socket);
        }

        /// Gives a task to the worker's threads. Its `done` is called with the worker between two rounds, or
        /// its `drop` if the worker has ended. On an error the caller still owns the task.
        pub fn store(w: *W, task: *io_layer.StorageTask) error{CannotStartThread}!void {
            return w.storage.submit(means(w), task);
        }

        fn means(w: *W) Storage.Means {
            return .{
                .waker = .{ .context = w, .wake = wake },
                .has_threads = !@hasDecl(W.IoType, "is_simulated"),
            };
        }

        fn wake(context: *anyopaque) void {
            const w: *W = @ptrCast(@alignCast(context));
            w.io.wake();
        }

        /// Goes on with pieces that were read. Called once a round.
        pub fn attend(w: *W) void {
            var done = w.storage.collect();
            while (done.next(w)) |piece| {
                defer piece.destroy();
                const ticket: Ticket = @fromBackingInt(@intCast(piece.owner));
                const lane = w.laneOf(ticket) orelse continue; // the lane has ended meanwhile
                if (!lane.out().queue.isReading()) continue; // the lane's output was dropped
                arrived(w, lane, piece);
            }
        }

        fn arrived(w: *W, lane: *Lane, piece: *const Storage.Piece) void {
            const outbox = &lane.out().queue;
            const range = outbox.first.?.fileRange();
            range.reading = false;
            if (piece.errno != 0) return output_part.fileFailed(w, lane, range, "could not be read");
            const bytes = piece.bytes();
            if (bytes.len == 0) {
                return output_part.fileFailed(w, lane, range, "ended before all of its bytes were sent");
            }
            // The time of the peer begins now.
            lane.out().state = .{ .blocked = .begin(heldByKernel(w, lane), w.io.now()) };
            range.advance(bytes.len);
            if (range.len == 0) if (outbox.popFile(&w.pool)) |whole| w.storage.closeFile(whole);
            outbox.prepend(&w.pool, bytes) catch return w.fail(lane, .server_error);
            if (w.send(lane)) w.settle(lane);
        }

        /// Bytes of a stream's queue that can be framed. 0: framing goes on when a thread has read some.
        pub fn readableOfStream(w: *W, lane: *Lane) u64 {
            var bytes: u64 = 0;
            var node = lane.out().queue.first;
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
