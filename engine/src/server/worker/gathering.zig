//! The part of a worker that gathers whole bodies for hosts that demand them (`Demand.Body.whole`). Until a
//! body is complete its host has not heard of the request, and does not hear of one that is refused or lost.
//!
//! A body of up to `Config.body_memory_bytes_max` bytes lies in memory. A longer one goes to a temporary
//! file, which a thread writes (io/spool.zig); its peer is not read while the disk is slower. All files of a
//! worker share `Config.body_file_bytes_max`, and a part of the file system stays free. An incomplete body
//! counts for its client's address (`Config.address_upload_bytes_max`).
const std = @import("std");
const assert = std.debug.assert;
const Refusal = @import("protocol").Refusal;
const io_layer = @import("io");
const AddressText = @import("../address_text.zig").AddressText;
const Exchange = @import("../exchange.zig").Exchange;
const Client = @import("../client.zig").Client;
const Lane = @import("../lane.zig").Lane;
const Intake = @import("../intake.zig").Intake;
const memory = @import("../memory.zig");

pub fn Gathering(comptime W: type) type {
    return struct {
        const Job = io_layer.SpoolJob;

        const turn_bytes = @import("../config.zig").worker_limits.gathering_turn_bytes;

        const step_bytes = @import("../config.zig").worker_limits.gathering_step_bytes;

        const out_of_memory: Refusal = .{ .status = 503, .detail = "Out of memory." };
        const no_room: Refusal = .{ .status = 507, .detail = "The server has no room for the request body." };
        const too_many: Refusal = .{
            .status = 429,
            .detail = "Your address has too many unfinished request bodies.",
        };

        /// Creates temporary files in this folder from now on. May not be called after the first file was
        /// created.
        pub fn setBodyFolder(w: *W, path: []const u8) error{OutOfMemory}!void {
            return w.bodies.setFolder(w.gpa, path);
        }

        /// Begins to gather the body of a request.
        pub fn gather(w: *W, lane: *Lane, exchange: *Exchange) void {
            assert(exchange.intake == null and exchange.input != .complete);
            exchange.silence();
            exchange.intake = Intake.create(&w.pool, exchange.ticket, &w.head) catch
                return giveUp(w, lane, exchange, out_of_memory);
            // This queues a 100 Continue if the client waits for it.
            w.read(exchange) catch giveUp(w, lane, exchange, out_of_memory);
        }

        /// Gathers the next piece of a body.
        pub fn gatherPiece(
            w: *W,
            lane: *Lane,
            exchange: *Exchange,
            intake: *Intake,
            piece: []const u8,
        ) void {
            assert(exchange.intake == intake and lane.current() == exchange);
            intake.append(&w.pool, piece) catch return giveUp(w, lane, exchange, out_of_memory);
            if (!charge(w, exchange, intake)) return giveUp(w, lane, exchange, too_many);
            spill(w, lane, exchange, intake);
        }

        /// Counts the body's bytes for its client's address. False: the address has too many; the log has a
        /// line about it.
        fn charge(w: *W, exchange: *const Exchange, intake: *Intake) bool {
            const most = w.config.address_upload_bytes_max;
            const came = intake.bytesCame();
            if (most == 0 or came <= @max(intake.upload.bytes, step_bytes)) return true;
            var text: AddressText = undefined;
            const client = addressOf(w, exchange, intake, &text) orelse return true;
            const bytes = came + step_bytes - came % step_bytes - intake.upload.bytes;
            if (w.admission.charge(&intake.upload, &client, bytes, most, w.clock.now)) return true;
            var name: [io_layer.Address.text_bytes_max]u8 = undefined;
            var buffer: [io_layer.Address.text_bytes_max + 64]u8 = undefined;
            const detail = std.fmt.bufPrint(&buffer, "{s} has too many unfinished request bodies", .{
                client.hostText(&name),
            }) catch unreachable;
            w.tellOf(exchange.lane, .address_upload_bytes_max, too_many.status, detail);
            return false;
        }

        /// The address of a request's client. Null: it has none, or a trusted proxy names no client: the
        /// proxy's own address stands for many clients.
        fn addressOf(
            w: *W,
            exchange: *const Exchange,
            intake: *const Intake,
            text: *AddressText,
        ) ?io_layer.Address {
            const lane = exchange.lane;
            const client: Client = .of(lane, &w.clients.trust, &intake.head, text);
            if (lane.transport.trusted and std.mem.eql(u8, client.address, lane.transport.peer_text.slice()))
                return null;
            return io_layer.Address.parse(client.address, client.port) catch null;
        }

        /// Gathers the trailer section.
        pub fn gatherTrailers(w: *W, lane: *Lane, exchange: *Exchange, intake: *Intake) void {
            intake.keepTrailers(&w.pool, &w.head) catch giveUp(w, lane, exchange, out_of_memory);
        }

        /// Gives the request with its complete body to the host.
        pub fn gathered(w: *W, lane: *Lane, exchange: *Exchange, intake: *Intake) void {
            assert(exchange.intake == intake and exchange.input == .complete);
            if (intake.isWriting()) return; // `attend` goes on when the write is done
            if (intake.isLong() and intake.pendingBytes() > 0) {
                return handOver(w, lane, exchange, intake);
            }
            assert(!exchange.isHeard());
            const ticket = exchange.ticket;
            const half_closed = exchange.half_closed;
            exchange.unsilence();
            exchange.given_bytes = 0;
            w.admission.discharge(&intake.upload);
            w.clients.note(exchange.lane, &intake.head);
            w.host.request(w, exchange, &intake.head);
            const left = w.find(ticket) orelse return;
            if (half_closed and left.isHeard()) w.host.halfClosed(w, left);
        }

        /// Gives a long body to the writer. The peer is not read while the writer is busy.
        fn spill(w: *W, lane: *Lane, exchange: *Exchange, intake: *Intake) void {
            exchange.given_bytes = intake.heldBytes();
            const most = if (intake.isLong())
                @min(w.config.body_memory_bytes_max, turn_bytes)
            else
                w.config.body_memory_bytes_max;
            if (intake.pendingBytes() <= most) return;
            if (intake.isWriting()) return exchange.pauseInput(w.clock.now);
            handOver(w, lane, exchange, intake);
        }

        fn handOver(w: *W, lane: *Lane, exchange: *Exchange, intake: *Intake) void {
            const bytes = intake.pendingBytes();
            if (!w.bodies.hasRoom(bytes, w.config.body_file_bytes_max)) {
                return lackRoom(w, lane, exchange, intake);
            }
            intake.beginWriting();
            w.bodies.writer(.{ .context = w, .wake = wake }, has_thread).submit(&intake.job) catch {
                intake.endWriting(&w.pool);
                return giveUp(w, lane, exchange, out_of_memory);
            };
            intake.file_bytes += bytes;
            w.bodies.held_bytes += bytes;
        }

        const has_thread = !@hasDecl(W.IoType, "is_simulated");

        fn wake(context: *anyopaque) void {
            const w: *W = @ptrCast(@alignCast(context));
            w.io.wake();
        }

        /// Goes on with bodies of which a part was written. Called once a round.
        pub fn attend(w: *W) void {
            const spool = if (w.bodies.spool) |*spool| spool else return;
            var jobs = spool.collect();
            while (jobs.pop()) |job| {
                const intake: *Intake = @fieldParentPtr("job", job);
                intake.endWriting(&w.pool);
                if (job.is_memory) {
                    memory.noteFiles(job.written - intake.resident_bytes);
                    intake.resident_bytes = job.written;
                }
                const exchange = w.exchanges.get(intake.ticket) orelse {
                    drop(w, intake); // the exchange has ended meanwhile
                    continue;
                };
                goOn(w, exchange.lane, exchange, intake);
            }
        }

        fn goOn(w: *W, lane: *Lane, exchange: *Exchange, intake: *Intake) void {
            assert(!intake.isWriting());
            if (intake.job.errno != 0) return lackRoom(w, lane, exchange, intake);
            if (exchange.input == .complete) return gathered(w, lane, exchange, intake);
            exchange.given_bytes = intake.heldBytes();
            _ = exchange.want(w.io.now());
            // The end of a body may follow its last piece without a further byte.
            if (!lane.yielded) w.pump(lane, null);
        }

        /// Frees an intake that its host has used, or whose exchange has ended.
        pub fn drop(w: *W, intake: *Intake) void {
            w.admission.discharge(&intake.upload);
            if (intake.isWriting()) return; // `attend` drops the intake when the write is done
            memory.forgetFiles(intake.resident_bytes);
            assert(w.bodies.held_bytes >= intake.file_bytes);
            w.bodies.held_bytes -= intake.file_bytes;
            intake.destroy(&w.pool);
        }

        /// Ends the writer. All exchanges must have ended.
        pub fn closeSpool(w: *W) void {
            if (w.bodies.spool) |*spool| spool.close();
            attend(w);
            if (w.bodies.folder) |folder| w.gpa.free(folder);
        }

        /// Refuses a body because files have reached their limit, their folder is nearly full, or writing
        /// fails.
        fn lackRoom(w: *W, lane: *Lane, exchange: *Exchange, intake: *const Intake) void {
            assert(exchange.intake == intake);
            if (w.troubles.files.add(w.clock.now)) |others| {
                var why_buffer: [128]u8 = undefined;
                var buffer: [512]u8 = undefined;
                const job = &intake.job;
                const why = if (job.reserve > 0)
                    std.fmt.bufPrint(
                        &why_buffer,
                        "its file system is nearly full, {d} MB have to stay free",
                        .{job.reserve / 1_000_000},
                    ) catch unreachable
                else if (job.errno != 0)
                    io_layer.failureText(job.errno)
                else
                    "such files hold all that they may, see body_file_bytes_max";
                const text = "A request body is not kept in a temporary file in {s}: {s}{f}";
                w.sayOf(exchange, .err, &buffer, text, .{ w.bodies.folderPath(), why, others });
            }
            giveUp(w, lane, exchange, no_room);
        }

        fn giveUp(w: *W, lane: *Lane, exchange: *Exchange, refusal: Refusal) void {
            assert(lane.current() == exchange and !exchange.isHeard());
            exchange.noteRefusal(refusal, w.refusedBytes(refusal));
            w.endExchange(exchange, .server_error);
            w.sayRefusal(lane, refusal, .{
                .retry_after_s = if (refusal.status == too_many.status) w.config.retry_after_s else null,
                .with_content = !lane.session().asksForHead(),
            });
        }
    };
}
