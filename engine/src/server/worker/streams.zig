//! The part of a worker that serves connections of many streams (../multiplex.zig). Each stream is a
//! connection of its own for hosts and for the other parts, without a socket: this part hands it what has
//! come for it, and frames what it has queued when there is room on the wire and in the windows.
//!
//! No host is called while frames are made: what concerns a stream's host is done when that stream has its
//! turn (turns.zig), so that a carrier does not go while one of its streams is at work.
const std = @import("std");
const assert = std.debug.assert;
const io_layer = @import("io");
const Multiplexed = @import("protocol").Multiplexed;
const Refusal = @import("protocol").Refusal;
const StreamId = @import("protocol").Stream;
const early = @import("protocol").early;
const Field = @import("protocol").http.Field;
const Head = @import("protocol").Head;
const Budget = @import("../budget.zig").Budget;
const Connection = @import("../connection.zig").Connection;
const Exchange = @import("../exchange.zig").Exchange;
const Multiplex = @import("../multiplex.zig").Multiplex;
const Outbox = @import("../outbox.zig").Outbox;
const Reason = @import("../types.zig").Reason;
const types = @import("../types.zig");
const Transport = @import("../transport.zig").Transport;
const Stream = @import("../stream.zig").Stream;

/// The methods of a worker that serve streams.
pub fn Streams(comptime W: type) type {
    return struct {
        /// What all such connections of a worker share; made with the first of them.
        pub const Shared = struct {
            config: Multiplexed.Config,
            /// What the last header block has said.
            room: Multiplexed.Room,
            /// Memory that connections hold for their streams, in bytes.
            held_bytes: usize = 0,

            fn create(gpa: std.mem.Allocator, config: Multiplexed.Config) error{OutOfMemory}!*Shared {
                const shared = try gpa.create(Shared);
                errdefer gpa.destroy(shared);
                const room = try gpa.alignedAlloc(u8, .of(u64), Multiplexed.roomBytes(&config));
                shared.* = .{ .config = config, .room = room };
                return shared;
            }

            pub fn destroy(shared: *Shared, gpa: std.mem.Allocator) void {
                gpa.free(shared.room);
                gpa.destroy(shared);
            }
        };

        // ---- Beginning

        /// A connection carries many streams from now on. What has come of them is its input.
        pub fn beginStreams(w: *W, connection: *Connection) error{OutOfMemory}!void {
            if (w.counters) |counters| counters.noteConnectionBy(Multiplexed.family);
            if (w.shared == null) w.shared = try .create(w.gpa, types.multiplexedOf(&w.config));
            const shared = w.shared.?;
            const multiplex = try Multiplex.create(w.gpa, &w.limits, &shared.config, shared.room, w.now);
            shared.held_bytes += multiplex.memoryBytes();
            connection.leaveServing(.{ .multiplexed = multiplex });
            connection.needs_more = false;
            w.io.limitUnsent(Transport.of(connection).socket, unsent_bytes_max);
            if (w.stopping != .no or connection.retiring != .no) announceEnd(w, connection, multiplex);
            w.cork(connection);
        }

        /// What the kernel holds of a connection, unsent: all of it goes before what matters more. Enough for
        /// 100 us, in which this process looks at the socket again, at 10 Gbit/s.
        const unsent_bytes_max = 128 * 1024;

        /// Whether what a connection begins with says that it carries many streams, and it may.
        pub fn asksForStreams(w: *const W, connection: *const Connection, unread: []const u8) bool {
            return w.config.http2 == .everywhere and connection.request_count == 0 and
                connection.carrier == null and connection.tunnel == null and
                unread.len > 0 and Multiplexed.begins(unread);
        }

        fn open(w: *W, carrier: *Connection, multiplex: *Multiplex, id: StreamId) ?*Connection {
            const stream = take(w, carrier, id) catch {
                multiplex.session.reset(id, .refused_stream);
                return null;
            };
            multiplex.session.own(id, @backingInt(stream.connection.ticket));
            multiplex.add(stream);
            return &stream.connection;
        }

        fn take(w: *W, carrier: *Connection, id: StreamId) error{OutOfMemory}!*Stream {
            try w.reserveTurns();
            const slot = try w.open_streams.add();
            slot.item.* = .{
                .connection = .{
                    .ticket = slot.ticket,
                    .session = .ofStream(&carrier.phase.multiplexed.session, id),
                    .phase = .serving,
                    .lane = .{ .phase = .{ .idle = .{ .since = w.now } } },
                    .carrier = carrier,
                    .surplus = carrier.surplus,
                    .number = carrier.number,
                    .request_count = carrier.request_count,
                    .listener = carrier.listener,
                    .trusted = carrier.trusted,
                    .peer_port = carrier.peer_port,
                    .local_port = carrier.local_port,
                    .peer_text = carrier.peer_text,
                    .local_text = carrier.local_text,
                },
            };
            carrier.request_count +%= 1;
            return slot.item;
        }

        // ---- In

        /// As `pump` of a connection with one exchange at a time.
        pub fn pump(w: *W, connection: *Connection, received: ?[]u8) void {
            if (connection.multiplex()) |multiplex| return pumpCarrier(w, connection, multiplex, received);
            pumpStream(w, connection, received);
        }

        fn pumpCarrier(w: *W, connection: *Connection, multiplex: *Multiplex, received: ?[]u8) void {
            assert(w.pumping == null);
            if (received != null and (connection.yielded or !connection.input.isEmpty())) {
                connection.input.append(&w.pool, received.?) catch return w.fail(connection, .server_error);
                if (connection.yielded) return;
            }
            const held = received == null or !connection.input.isEmpty();
            const unread = if (held) connection.input.unread() else received.?;
            w.pumping = connection;
            const used = read(w, connection, multiplex, unread);
            w.pumping = null;
            if (connection.phase == .closed) return w.release(connection);
            if (connection.phase != .multiplexed) {
                connection.input.deinit(&w.pool);
                if (w.flush(connection)) w.settle(connection);
                return;
            }
            if (held) {
                connection.input.consume(&w.pool, used);
            } else if (used < unread.len) {
                connection.input.append(&w.pool, unread[used..]) catch
                    return w.fail(connection, .server_error);
            }
            multiplex.noteReading(used, unread.len - used, w.now);
            multiplex.noteLingering(w.now);
            settleTouched(w, multiplex);
            w.cork(connection);
            w.arm(connection);
        }

        /// Acts on frames until more bytes are needed, or others have their turn; the number of bytes that
        /// are done with.
        fn read(w: *W, connection: *Connection, multiplex: *Multiplex, unread: []u8) usize {
            const session = &multiplex.session;
            const turn = w.budget.turn(w.config.round_bytes);
            var used: usize = 0;
            connection.needs_more = false;
            session.wait(w.now);
            while (connection.wantsInput()) {
                const is_over = w.budget.isOver(turn) or W.has_pushing and w.hasGrown();
                if (is_over and used < unread.len) {
                    w.yield(connection);
                    break;
                }
                const step = session.feed(unread[used..], &w.head);
                used += step.consumed;
                if (session.outgrows()) growTable(w, multiplex) catch {
                    w.fail(connection, .server_error);
                    return unread.len;
                };
                switch (step.event) {
                    .need_more => {
                        connection.needs_more = true;
                        break;
                    },
                    .control => if (!sayControl(w, connection, multiplex)) return unread.len,
                    .places => grow(w, multiplex) catch {}, // the stream is refused then
                    .request => beginRequest(w, connection, multiplex, step.stream),
                    .body => |piece| hand(w, multiplex, step.stream, piece),
                    .trailers => noteEnd(w, multiplex, step.stream, true),
                    .end => noteEnd(w, multiplex, step.stream, false),
                    .refused => |refusal| refuse(w, connection, multiplex, step.stream, refusal),
                    .reset => |reset| wasReset(w, reset.owner, reset.by == .peer),
                    .failed => |failure| {
                        w.stats.refused += 1;
                        fail(w, connection, multiplex, failure.detail);
                        return unread.len;
                    },
                }
            }
            return used;
        }

        fn grow(w: *W, multiplex: *Multiplex) error{OutOfMemory}!void {
            const before = multiplex.memoryBytes();
            try multiplex.grow(w.gpa);
            w.shared.?.held_bytes += multiplex.memoryBytes() - before;
        }

        fn growTable(w: *W, multiplex: *Multiplex) error{OutOfMemory}!void {
            const before = multiplex.memoryBytes();
            try multiplex.growTable(w.gpa);
            w.shared.?.held_bytes += multiplex.memoryBytes() - before;
        }

        fn beginRequest(w: *W, carrier: *Connection, multiplex: *Multiplex, id: StreamId) void {
            const stream = open(w, carrier, multiplex, id) orelse return;
            Stream.of(stream).touched = true;
            w.beginRequest(stream, id);
            // Its last request, or one too many: the second word has its time, whatever the peer answers.
            const is_last = carrier.surplus != .no or !multiplex.session.persists();
            if (is_last) announceEnd(w, carrier, multiplex);
        }

        fn streamOf(w: *W, owner: u64) ?*Connection {
            return if (owner == 0) null else w.connectionOf(@fromBackingInt(owner));
        }

        /// Content of a stream has come.
        fn hand(w: *W, multiplex: *Multiplex, id: StreamId, piece: []const u8) void {
            const stream = streamOf(w, multiplex.session.ownerOf(id)) orelse
                return multiplex.session.release(id, @intCast(piece.len));
            pumpStream(w, stream, @constCast(piece));
        }

        /// No more content follows. What `w.head` holds of a trailer section is told when the content is.
        fn noteEnd(w: *W, multiplex: *Multiplex, id: StreamId, with_trailers: bool) void {
            const stream = streamOf(w, multiplex.session.ownerOf(id)) orelse return;
            const connection = stream;
            // A WebSocket needs both directions.
            if (connection.current()) |exchange| if (exchange.websocket != null) {
                return w.peerEnded(stream, .eof);
            };
            if (with_trailers) {
                const kept = KeptHead.create(&w.pool, &w.head) catch return w.fail(stream, .server_error);
                Stream.of(connection).trailers = kept;
                return connection.session.noteEnd(&kept.head);
            }
            // Trailers have told it.
            if (!connection.session.holdsEnd() and Stream.of(connection).trailers == null) {
                connection.session.noteEnd(null);
            }
            connection.needs_more = false;
            if (connection.mayGoOn()) pumpStream(w, stream, null);
        }

        /// A trailer section until it is told.
        pub const KeptHead = @import("../kept_head.zig").KeptHead;

        /// Hands a stream what has come for it, and what it holds. See `Input.pump`.
        fn pumpStream(w: *W, connection: *Connection, received: ?[]u8) void {
            if (received) |bytes| {
                if (connection.lane.phase == .closing) return connection.session.release(bytes.len);
                if (connection.yielded or !connection.input.isEmpty() or !connection.wantsInput()) {
                    connection.needs_more = false;
                    return connection.input.append(&w.pool, bytes) catch w.fail(connection, .server_error);
                }
            }
            const carrier_pumps = w.pumping;
            const unread = received orelse connection.input.unread();
            w.pumping = connection;
            const used = w.parse(connection, unread);
            w.pumping = carrier_pumps;
            connection.session.release(used);
            if (connection.phase == .closed) return w.release(connection);
            if (received == null) {
                connection.input.consume(&w.pool, used);
            } else if (used < unread.len) {
                connection.input.append(&w.pool, unread[used..]) catch
                    return w.fail(connection, .server_error);
            }
            if (carrier_pumps != null and connection.lane.phase != .closing) {
                // More of it may come at once.
                Stream.of(connection).touched = true;
                return;
            }
            pauseIfPulled(w, connection);
            if (w.flush(connection)) w.settle(connection);
        }

        /// A carrier's turn is over: hosts that ask for content get no more until they do.
        fn settleTouched(w: *W, multiplex: *Multiplex) void {
            var next = multiplex.first;
            while (next) |stream| {
                next = stream.next;
                if (!stream.touched) continue;
                stream.touched = false;
                const connection = &stream.connection;
                pauseIfPulled(w, connection);
                pour(connection, multiplex);
                w.cork(connection);
            }
        }

        fn pauseIfPulled(w: *W, connection: *Connection) void {
            const exchange = connection.current() orelse return;
            const demand = W.demandOf(exchange);
            if (demand.pace == .pull and demand.body == .streamed) exchange.pieceDelivered(w.now);
        }

        fn refuse(
            w: *W,
            carrier: *Connection,
            multiplex: *Multiplex,
            id: StreamId,
            refusal: Refusal,
        ) void {
            const known = streamOf(w, multiplex.session.ownerOf(id));
            if (known) |stream| return w.refuseRequest(stream, refusal, "");
            const stream = open(w, carrier, multiplex, id) orelse return;
            w.refuseRequest(stream, refusal, w.head.text);
        }

        /// A stream is over before its response.
        fn wasReset(w: *W, owner: u64, by_peer: bool) void {
            const stream = streamOf(w, owner) orelse return;
            if (stream.current()) |exchange| {
                w.endExchange(exchange, if (by_peer) .client_closed else .protocol_error);
            }
            w.close(stream);
        }

        // ---- Out

        /// A stream has something to send, or may have: its carrier sends it at the end of the round.
        pub fn flushStream(w: *W, stream: *Connection, carrier: *Connection) void {
            const multiplex = carrier.multiplex() orelse return;
            pour(stream, multiplex);
            revealFile(w, stream, multiplex);
            if (carrier.output == .open and multiplex.session.wantsToEmit()) w.cork(carrier);
        }

        /// Hands what is queued for an exchange's stream to the kernel at once, as far as its turn has come
        /// and windows allow. Nothing of the worker's or a host's may be on the stack: the carrier may turn
        /// out to be gone, and all of its streams with it.
        pub fn sendStream(w: *W, exchange: *Exchange) void {
            assert(w.pumping == null);
            const stream = exchange.connection;
            const carrier = stream.carrier orelse return;
            if (carrier.output != .open or !w.flush(stream)) return;
            const connection = carrier;
            if (w.flush(connection)) w.settle(connection);
        }

        /// What a WebSocket has queued is its session's business: the stream's has to know how much it is.
        fn pour(stream: *Connection, multiplex: *Multiplex) void {
            const is_last = stream.lane.phase == .closing;
            multiplex.session.pourAll(stream.session.number(), stream.outbox.bytes, is_last);
        }

        /// A response is queued whose file may be on slow storage: its content is framed as it is revealed.
        pub fn withhold(_: *W, exchange: *Exchange, len: u64) void {
            const carrier = exchange.connection.carrier orelse return;
            carrier.phase.multiplexed.session.withhold(exchange.stream, len);
        }

        fn revealFile(w: *W, stream: *Connection, multiplex: *Multiplex) void {
            const id = stream.session.number();
            if (stream.reading or multiplex.session.withheld(id) == 0) return;
            multiplex.session.reveal(id, w.readableOfStream(stream));
        }

        /// What happens after output of a stream was queued: as `queued`.
        pub fn queuedOnStream(
            w: *W,
            connection: *Connection,
            carrier: *Connection,
            exchange: *Exchange,
        ) W.Outcome {
            w.cork(carrier);
            if (exchange.isSettled()) {
                w.complete(connection, exchange);
                if (w.pumping != connection) w.settle(connection);
                return .done;
            }
            pour(connection, carrier.phase.multiplexed);
            w.cork(connection);
            if (!exchange.ends_with_file and exchange.queuedBytes() < w.config.write_high_bytes) {
                return .accepted;
            }
            exchange.above_high = true;
            return .blocked;
        }

        /// Frames what may leave, and hands it to the kernel until that has had enough. False: the connection
        /// is lost, and `connection` with it.
        pub fn flushCarrier(w: *W, connection: *Connection, multiplex: *Multiplex) bool {
            while (true) {
                const more = frame(w, connection, multiplex) catch {
                    w.fail(connection, .server_error);
                    return false;
                };
                if (!w.flushFramed(connection)) return false;
                if (connection.output != .open) return true;
                noteFlushed(w, connection, multiplex);
                if (!more) return true;
            }
        }

        /// The kernel has all that was framed: hosts that have waited for that are told in the turns of their
        /// streams.
        fn noteFlushed(w: *W, connection: *Connection, multiplex: *Multiplex) void {
            if (!multiplex.flushing or !connection.isFlushed()) return;
            multiplex.flushing = false;
            var next = multiplex.first;
            while (next) |stream| : (next = stream.next) {
                const exchange = flushingOf(stream) orelse continue;
                if (stream.connection.isFlushed()) {
                    exchange.flushing = .due;
                    w.cork(&stream.connection);
                } else multiplex.flushing = true;
            }
        }

        fn flushingOf(stream: *const Stream) ?*Exchange {
            const exchange = stream.connection.current() orelse return null;
            return if (exchange.flushing == .waits) exchange else null;
        }

        /// Whether the kernel has to take what was framed before there is more: some host waits for that, and
        /// others' content would keep it waiting for as long as there is any.
        fn isFlushing(connection: *const Connection, multiplex: *const Multiplex) bool {
            if (!multiplex.flushing or connection.isFlushed()) return false;
            var next = multiplex.first;
            while (next) |stream| : (next = stream.next) {
                if (flushingOf(stream) != null and stream.connection.isFlushed()) return true;
            }
            return false;
        }

        /// Frames content as long as not too much waits for the kernel; whether there is more.
        fn frame(w: *W, connection: *Connection, multiplex: *Multiplex) error{OutOfMemory}!bool {
            const session = &multiplex.session;
            var head: [Multiplexed.emission_bytes_max]u8 = undefined;
            while (connection.outbox.bytes < Exchange.framed_bytes_max or session.isContinuing()) {
                if (!session.isContinuing() and isFlushing(connection, multiplex)) break;
                const emission = session.emit(&head, content_bytes_max) orelse return false;
                if (emission.content == 0) {
                    try connection.outbox.append(&w.pool, head[0..emission.head]);
                    if (streamOf(w, emission.owner)) |stream| w.cork(stream);
                    continue;
                }
                const stream = streamOf(w, emission.owner).?;
                try frameContent(w, connection, multiplex, stream, head[0..emission.head], emission);
            }
            return session.wantsToEmit();
        }

        /// Content of one frame, if its peer takes such long ones.
        const content_bytes_max = Exchange.framed_bytes_max;

        fn frameContent(
            w: *W,
            carrier: *Connection,
            multiplex: *Multiplex,
            stream: *Connection,
            head: []const u8,
            emission: Multiplexed.Emission,
        ) error{OutOfMemory}!void {
            const len = emission.content;
            multiplex.framed_bytes += len;
            const connection = stream;
            if (connection.outbox.isInMemory(len)) {
                try carrier.outbox.move(&w.pool, head, &connection.outbox, len);
            } else {
                var copy: Outbox = .{};
                defer copy.deinit(&w.pool);
                copyContent(w, stream, (try copy.reserve(&w.pool, len))[0..len], &carrier.outbox) catch {
                    copy.cancel(&w.pool);
                    multiplex.session.takeBack(emission);
                    Stream.of(stream).file_failed = true;
                    return w.cork(stream);
                };
                copy.commit(len);
                try carrier.outbox.move(&w.pool, head, &copy, len);
            }
            switch (connection.output) {
                .open => {},
                .blocked => |*blockage| if (connection.outbox.isEmpty()) {
                    connection.output = .open;
                } else blockage.stall.progress(len, w.config.write_rate_min, w.now),
            }
            if (connection.current()) |exchange| {
                exchange.active_at = w.now;
                w.noteOutput(exchange);
            }
            w.cork(stream);
        }

        /// Copies the first bytes of a stream's queue, which are in files, or some of them.
        fn copyContent(w: *W, stream: *Connection, out: []u8, framed: *Outbox) error{FileFailed}!void {
            const outbox = &stream.outbox;
            var filled: usize = 0;
            while (true) switch (outbox.fill(&w.pool, out[filled..], framed)) {
                .done => return,
                .file => |bytes| {
                    filled += bytes;
                    const range = outbox.first.?.fileRange();
                    const wanted: usize = @intCast(@min(range.len, out.len - filled));
                    const len = io_layer.file.read(range.fd, out[filled..][0..wanted], range.offset) catch
                        return error.FileFailed;
                    // It was longer when the response began, and its length has been promised.
                    if (len == 0) return error.FileFailed;
                    range.advance(len);
                    filled += len;
                    if (range.len == 0) if (outbox.popFile(&w.pool)) |whole| w.closeFile(whole);
                },
            };
        }

        /// What the session owes its peer goes before anything more is read. False: the connection is lost.
        fn sayControl(w: *W, connection: *Connection, multiplex: *Multiplex) bool {
            var head: [Multiplexed.emission_bytes_max]u8 = undefined;
            const emission = multiplex.session.emit(&head, content_bytes_max).?;
            assert(emission.content == 0);
            connection.outbox.append(&w.pool, head[0..emission.head]) catch {
                w.fail(connection, .server_error);
                return false;
            };
            return true;
        }

        /// After output moved: goes on with what waited for that, or ends the connection when it is over.
        /// False: it was, and nothing is to be armed.
        pub fn settleCarrier(w: *W, connection: *Connection, multiplex: *Multiplex) bool {
            noteFlushed(w, connection, multiplex);
            multiplex.noteLingering(w.now);
            if (multiplex.count == 0 and multiplex.session.isDone()) {
                leave(w, connection, multiplex);
                w.settle(connection);
                return false;
            }
            if (connection.mayGoOn()) w.cork(connection);
            return true;
        }

        /// Sets a stream's timer. Its peer has its time from the end of the round on in which output waits.
        pub fn armStream(w: *W, connection: *Connection) void {
            if (connection.outbox.isEmpty()) {
                connection.output = .open;
            } else if (connection.output == .open) {
                connection.output = .{ .blocked = .begin(0, w.now) };
                Stream.of(connection).framed_before = connection.carrier.?.phase.multiplexed.framed_bytes;
            }
            w.wheel.set(&connection.timer, connection.attentionAt(&w.config));
        }

        /// Whether a stream that nothing was framed of in time has waited for others, and not for its peer:
        /// where all that it lacks is the window of the connection, that has to have moved as much meanwhile
        /// as each of its streams would have to by itself.
        pub fn hasWaitedForOthers(
            w: *const W,
            connection: *const Connection,
            carrier: *const Connection,
        ) bool {
            const multiplex = carrier.phase.multiplexed;
            switch (multiplex.session.lacks(connection.session.number())) {
                .nothing => return true,
                .window => return false,
                .common_window => {
                    const moved = multiplex.framed_bytes - Stream.of(connection).framed_before;
                    const due = @as(u64, w.config.write_ms) * w.config.write_rate_min / 1000;
                    return moved >= due * multiplex.count;
                },
            }
        }

        /// Answers on a stream for which no host does. False: there was no memory, and the stream is gone.
        pub fn sayOnStream(
            w: *W,
            connection: *Connection,
            carrier: *Connection,
            status: u16,
            fields: []const Field,
            body: []const u8,
        ) bool {
            _ = Exchange.startStream(connection, carrier, &w.pool, .{
                .status = status,
                .fields = fields,
                .body = body,
                .end = true,
            }, w.date.text()) catch {
                w.close(connection);
                return false;
            };
            w.cork(carrier);
            return true;
        }

        // ---- Ends

        /// A stream's slot is about to be given back.
        pub fn leaveCarrier(w: *W, connection: *Connection, carrier: *Connection) void {
            const multiplex = carrier.phase.multiplexed;
            assert(connection.outbox.isEmpty());
            if (Stream.of(connection).trailers) |kept| kept.destroy(&w.pool);
            multiplex.session.reset(connection.session.number(), .internal_error);
            multiplex.remove(.of(connection), w.now);
            w.cork(carrier);
        }

        /// A stream ends before its response does, and its peer is told why.
        pub fn resetStream(connection: *Connection, carrier: *Connection, reason: Reason) void {
            const multiplex = carrier.multiplex() orelse return;
            multiplex.session.reset(connection.session.number(), switch (reason) {
                .client_closed, .client_timeout, .idle_timeout, .keepalive_timeout, .write_timeout => .cancel,
                .body_too_large, .queue_overflow => .cancel,
                .server_shutdown => .refused_stream,
                .write_error, .read_error, .server_error => .internal_error,
                .protocol_error => .protocol_error,
            });
        }

        /// An application ends a stream in the midst of its response. What it has said goes out as far as the
        /// peer takes it in time, then the peer is told.
        pub fn cutStream(w: *W, connection: *Connection, carrier: *Connection, exchange: *Exchange) void {
            const multiplex = carrier.multiplex() orelse return w.fail(connection, .server_error);
            pour(connection, multiplex);
            multiplex.session.cut(connection.session.number(), .internal_error);
            w.forget(exchange);
            connection.beginClosing();
            w.cork(carrier);
            w.cork(connection);
            if (w.pumping == connection) return; // its input is in use
            connection.session.release(connection.input.unread().len);
            connection.input.deinit(&w.pool);
        }

        /// All streams of a connection end, and it is none of many any more.
        pub fn dissolve(w: *W, connection: *Connection, reason: Reason) void {
            const multiplex = connection.phase.multiplexed;
            while (multiplex.first) |stream| {
                assert(w.pumping != &stream.connection);
                if (stream.connection.current()) |exchange| w.endExchange(exchange, reason);
                // Its host may have ended it.
                if (multiplex.first == stream) w.close(&stream.connection);
            }
            forget(w, connection);
        }

        /// The same when the worker goes: no host is told.
        pub fn drop(w: *W, connection: *Connection) void {
            const multiplex = connection.phase.multiplexed;
            while (multiplex.first) |stream| w.release(&stream.connection);
            forget(w, connection);
        }

        fn forget(w: *W, connection: *Connection) void {
            const multiplex = connection.phase.multiplexed;
            w.countEnding(multiplex);
            w.shared.?.held_bytes -= multiplex.memoryBytes();
            connection.beginClosing();
            multiplex.destroy(w.gpa);
        }

        /// A peer has broken the rules: it is told how, and the connection ends. The caller flushes.
        fn fail(w: *W, connection: *Connection, multiplex: *Multiplex, detail: []const u8) void {
            if (w.troubles.frames.add(w.now)) |others| {
                var buffer: [192]u8 = undefined;
                const is_long = std.mem.eql(u8, detail, "frame too long");
                const see = if (is_long) ", see h2_frame_bytes_max" else "";
                w.say(.info, &buffer, "Connection {d} ({s}) ends, its peer broke the protocol: {s}{s}{f}", .{
                    connection.number, connection.peerName(), detail, see, others,
                });
            }
            const ticket = connection.ticket;
            _ = frame(w, connection, multiplex) catch {};
            dissolve(w, connection, .protocol_error);
            assert(w.connectionOf(ticket) != null);
        }

        /// A peer makes the process hold too much: its connection ends. One that does not read is not told.
        pub fn calm(w: *W, connection: *Connection) void {
            const multiplex = connection.phase.multiplexed;
            multiplex.session.abandon(.enhance_your_calm, "the server is short of memory");
            _ = frame(w, connection, multiplex) catch {};
            dissolve(w, connection, .server_error);
            if (connection.output == .blocked) return w.sever(connection, .server_error);
            if (w.flush(connection)) w.settle(connection);
        }

        /// No stream is open: the connection ends in order.
        fn leave(w: *W, connection: *Connection, multiplex: *Multiplex) void {
            assert(multiplex.count == 0);
            _ = frame(w, connection, multiplex) catch {};
            forget(w, connection);
            connection.input.deinit(&w.pool);
        }

        /// The peer is asked to open no further streams; those that it has opened meanwhile are served.
        pub fn announceEnd(w: *W, connection: *Connection, multiplex: *Multiplex) void {
            multiplex.session.announceEnd();
            if (multiplex.announced_at == 0) multiplex.announced_at = w.now;
            w.cork(connection);
        }

        /// A deadline of a connection of many streams has passed.
        pub fn multiplexDue(w: *W, connection: *Connection) void {
            const multiplex = connection.phase.multiplexed;
            switch (multiplex.due(connection, &w.config)) {
                .lingering => {
                    multiplex.session.endLingering();
                    multiplex.lingering_since = 0;
                    multiplex.noteLingering(w.now);
                    w.cork(connection);
                    return w.arm(connection);
                },
                .last_streams => {
                    multiplex.announced_at = 0;
                    // The second word, if the peer has not answered the first one.
                    if (!multiplex.session.persists()) multiplex.session.drain();
                    w.cork(connection);
                    return w.arm(connection);
                },
                .end => {
                    for (0..2) |_| multiplex.session.drain();
                    leave(w, connection, multiplex);
                },
                .debt => {
                    multiplex.session.abandon(.protocol_error, "too slow");
                    fail(w, connection, multiplex, "a frame, or an answer to settings, took too long");
                },
            }
            if (w.flush(connection)) w.settle(connection);
        }
    };
}
