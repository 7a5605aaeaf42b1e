//! The part of a worker that sends files without waiting for their storage. A longer one is sent from only
//! what is known to be in memory. The next piece is read by a thread (../storage.zig) where it is not, or
//! where the file system cannot tell; meanwhile this connection waits, and no other. Its bytes then go before
//! what is left of the file.
//!
//! Storage that does not answer has the time of a peer that does not (`Config.write_ms`).
//!
//! Hosts have tasks of their own done by the same threads (`store`).
const assert = @import("std").debug.assert;
const io_layer = @import("io");
const FileRange = @import("../outbox.zig").FileRange;
const Ticket = @import("../slab.zig").Ticket;
const Lane = @import("../lane.zig").Lane;
const Storage = @import("../storage.zig").Storage;

/// The methods of a worker that ask storage.
pub fn Storing(comptime W: type) type {
    return struct {
        const output_part = @import("output.zig").Output(W);

        /// The number of bytes of the file at the front of a queue that can be read without waiting; 0:
        /// sending goes on when a thread has read them.
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

        /// Has the next piece read. False: that cannot be had.
        fn begin(w: *W, lane: *Lane, range: *FileRange) bool {
            assert(range.asks and !range.reading);
            if (!w.storage.read(means(w), lane.ticket, range)) return false;
            lane.out().state = .{ .blocked = .begin(heldByKernel(w, lane), w.io.now()) };
            lane.out().queue.noteSlow(range.fd);
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

        /// Once a round: goes on with pieces that were read.
        pub fn attend(w: *W) void {
            var done = w.storage.collect();
            while (done.next(w)) |piece| {
                defer piece.destroy();
                const ticket: Ticket = @fromBackingInt(@intCast(piece.owner));
                const lane = w.laneOf(ticket) orelse continue; // the lane has gone meanwhile
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
            // The peer has its time from now on.
            lane.out().state = .{ .blocked = .begin(heldByKernel(w, lane), w.io.now()) };
            range.advance(bytes.len);
            if (range.len == 0) if (outbox.popFile(&w.pool)) |whole| w.storage.closeFile(whole);
            outbox.prepend(&w.pool, bytes) catch return w.fail(lane, .server_error);
            if (w.send(lane)) w.settle(lane);
        }

        /// The number of bytes of a stream's queue that can be framed. 0: framing goes on when a thread has
        /// read some.
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
