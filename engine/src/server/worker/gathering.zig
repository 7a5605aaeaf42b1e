//! The part of a worker that gathers whole bodies for hosts that want them (`Demand.Body.whole`). Until a
//! body is complete its host has not heard of the request: what is refused meanwhile, or goes, is nobody's
//! business.
//!
//! A body lies in memory up to `Config.body_memory_bytes_max`. A longer one goes to a temporary file, which a
//! thread writes (io/spool.zig); the peer waits while the disk is slower than it. All files of a worker share
//! `Config.body_file_bytes_max`.
const std = @import("std");
const Refusal = @import("protocol").Refusal;
const io_layer = @import("io");
const Exchange = @import("../exchange.zig").Exchange;
const Intake = @import("../intake.zig").Intake;

/// The methods of a worker that gathers bodies.
pub fn Gathering(comptime W: type) type {
    return struct {
        const Peer = W.Peer;
        const Job = io_layer.SpoolJob;

        /// What is collected for a file while the writer has the part before it, in bytes.
        const turn_bytes = 256 * 1024;

        const out_of_memory: Refusal = .{ .status = 503, .detail = "Out of memory." };
        const no_room: Refusal = .{ .status = 507, .detail = "The server has no room for the request body." };

        /// Temporary files are created in this folder from now on. Not once one has been.
        pub fn setBodyFolder(w: *W, path: []const u8) error{OutOfMemory}!void {
            std.debug.assert(w.spool == null);
            const own = try w.gpa.dupeSentinel(u8, path, 0);
            if (w.body_folder) |before| w.gpa.free(before);
            w.body_folder = own;
        }

        /// A request has begun whose body is on its way.
        pub fn gather(w: *W, peer: *Peer, exchange: *Exchange) void {
            exchange.unannounced = true;
            exchange.intake = Intake.create(&w.pool, exchange.ticket, &w.head) catch
                return giveUp(w, peer, exchange, out_of_memory);
            // Says 100 Continue if the client waits for it.
            w.read(exchange) catch giveUp(w, peer, exchange, out_of_memory);
        }

        /// The next piece of a body.
        pub fn gatherPiece(w: *W, peer: *Peer, exchange: *Exchange, intake: *Intake, piece: []const u8) void {
            intake.append(&w.pool, piece) catch return giveUp(w, peer, exchange, out_of_memory);
            spill(w, peer, exchange, intake);
        }

        /// The fields behind it.
        pub fn gatherTrailers(w: *W, peer: *Peer, exchange: *Exchange, intake: *Intake) void {
            intake.keepTrailers(&w.pool, &w.head) catch giveUp(w, peer, exchange, out_of_memory);
        }

        /// Nothing more comes.
        pub fn gathered(w: *W, peer: *Peer, exchange: *Exchange, intake: *Intake) void {
            if (intake.isWriting()) return; // it goes on when that is done
            if (intake.isLong() and intake.pendingBytes() > 0) return handOver(w, peer, exchange, intake);
            present(w, exchange, intake);
        }

        /// The host hears of the request.
        fn present(w: *W, exchange: *Exchange, intake: *Intake) void {
            const ticket = exchange.ticket;
            const half_closed = exchange.half_closed;
            exchange.unannounced = false;
            exchange.given_bytes = 0;
            w.client = .of(exchange.connection, &w.trust, &intake.head, &w.client_text);
            w.host.request(w, exchange, &intake.head);
            const left = w.find(ticket) orelse return;
            if (half_closed and !left.unannounced) w.host.halfClosed(w, left);
        }

        /// Hands what there is to the writer if it is long; the peer waits if the writer is not ready.
        fn spill(w: *W, peer: *Peer, exchange: *Exchange, intake: *Intake) void {
            exchange.given_bytes = intake.heldBytes();
            const most = if (intake.isLong())
                @min(w.config.body_memory_bytes_max, turn_bytes)
            else
                w.config.body_memory_bytes_max;
            if (intake.pendingBytes() <= most) return;
            if (intake.isWriting()) return exchange.pauseInput(w.now);
            handOver(w, peer, exchange, intake);
        }

        fn handOver(w: *W, peer: *Peer, exchange: *Exchange, intake: *Intake) void {
            const bytes = intake.pendingBytes();
            const most = w.config.body_file_bytes_max;
            if (most != 0 and w.spooled_bytes + bytes > most) return lackRoom(w, peer, exchange, null);
            intake.beginWriting();
            spoolOf(w).submit(&intake.job) catch {
                intake.endWriting(&w.pool);
                return giveUp(w, peer, exchange, out_of_memory);
            };
            intake.file_bytes += bytes;
            w.spooled_bytes += bytes;
        }

        fn spoolOf(w: *W) *io_layer.Spool {
            if (w.spool == null) w.spool = .{
                .folder = w.body_folder orelse default_folder,
                .waker = .{ .context = w, .wake = wake },
                .has_thread = !@hasDecl(W.IoType, "is_simulated"),
            };
            return &w.spool.?;
        }

        const default_folder = "/tmp";

        fn wake(context: *anyopaque) void {
            const w: *W = @ptrCast(@alignCast(context));
            w.io.wake();
        }

        /// Once a round: goes on with what was written.
        pub fn attend(w: *W) void {
            const spool = if (w.spool) |*spool| spool else return;
            var jobs = spool.collect();
            while (jobs.pop()) |job| {
                const intake: *Intake = @fieldParentPtr("job", job);
                intake.endWriting(&w.pool);
                const exchange = w.exchanges.get(intake.ticket) orelse {
                    drop(w, intake); // it has ended meanwhile
                    continue;
                };
                goOn(w, W.peerOfExchange(exchange), exchange, intake);
            }
        }

        fn goOn(w: *W, peer: *Peer, exchange: *Exchange, intake: *Intake) void {
            if (intake.job.errno != 0) return lackRoom(w, peer, exchange, intake.job.errno);
            if (exchange.input == .complete) return gathered(w, peer, exchange, intake);
            exchange.given_bytes = intake.heldBytes();
            _ = exchange.want(w.io.now());
            // The end of a body comes behind its last piece, without a further byte.
            if (!peer.connection.yielded) w.pump(peer, null);
        }

        /// An intake is of no use any more: one that its host has taken, or whose exchange has ended.
        pub fn drop(w: *W, intake: *Intake) void {
            if (intake.isWriting()) return; // `attend` finds it
            w.spooled_bytes -= intake.file_bytes;
            intake.destroy(&w.pool);
        }

        /// When the worker ends, and all exchanges have.
        pub fn closeSpool(w: *W) void {
            if (w.spool) |*spool| spool.close();
            attend(w);
            if (w.body_folder) |folder| w.gpa.free(folder);
        }

        /// Files have taken all that they may, or there is something wrong with them (`errno`).
        fn lackRoom(w: *W, peer: *Peer, exchange: *Exchange, errno: ?u16) void {
            if (w.troubles.files.add(w.now)) |others| {
                var buffer: [256]u8 = undefined;
                const why = if (errno) |number|
                    io_layer.failureText(number)
                else
                    "they hold body_file_bytes_max";
                const text = "A request body is not kept in a temporary file: {s}{f}";
                w.sayOf(exchange, .err, &buffer, text, .{ why, others });
            }
            giveUp(w, peer, exchange, no_room);
        }

        fn giveUp(w: *W, peer: *Peer, exchange: *Exchange, refusal: Refusal) void {
            const stream = exchange.stream;
            exchange.noteRefusal(refusal, w.refusedBytes(refusal));
            w.endExchange(exchange, .server_error);
            w.refuse(peer, stream, refusal);
        }
    };
}
