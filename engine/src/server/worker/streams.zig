//! The part of a worker that serves transports with streams (../multiplex.zig). It gives each stream its
//! content, and frames the stream's queued output when there is room on the connection and in the windows.
//!
//! No host is called while frames are made: a stream's host is told of progress in the stream's turn
//! (turns.zig), so that no transport ends while one of its streams is at work.
const std = @import("std");
const assert = std.debug.assert;
const io_layer = @import("io");
const Multiplexed = @import("protocol").Multiplexed;
const Refusal = @import("protocol").Refusal;
const StreamId = @import("protocol").Stream;
const early = @import("protocol").early;
const Field = @import("protocol").http.Field;
const Budget = @import("../budget.zig").Budget;
const Lane = @import("../lane.zig").Lane;
const Exchange = @import("../exchange.zig").Exchange;
const KeptHead = @import("../kept_head.zig").KeptHead;
const Multiplex = @import("../multiplex.zig").Multiplex;
const Outbox = @import("../outbox.zig").Outbox;
const Reason = @import("../types.zig").Reason;
const types = @import("../types.zig");
const Transport = @import("../transport.zig").Transport;
const Stream = @import("../stream.zig").Stream;

pub fn Streams(comptime W: type) type {
    return struct {
        const counting_part = @import("counting.zig").CountersPart(W);
        const input_part = @import("input.zig").Input(W);
        const output_part = @import("output.zig").Output(W);
        const storage_part = @import("storage.zig").Storing(W);

        /// Memory that all transports with streams share. It is allocated for the first of them.
        pub const Shared = struct {
            config: Multiplexed.Config,
            /// The fields of the last header block.
            room: Multiplexed.Room,
            desks: Multiplex.Desks,
            /// Memory that transports hold for their streams, in bytes.
            held_bytes: usize = 0,

            fn create(
                gpa: std.mem.Allocator,
                pages: std.mem.Allocator,
                config: Multiplexed.Config,
            ) error{OutOfMemory}!*Shared {
                const shared = try gpa.create(Shared);
                errdefer gpa.destroy(shared);
                const room = try gpa.alignedAlloc(u8, .of(u64), Multiplexed.roomBytes(&config));
                shared.* = .{ .config = config, .room = room, .desks = .init(pages) };
                return shared;
            }

            pub fn destroy(shared: *Shared, gpa: std.mem.Allocator) void {
                shared.desks.deinit();
                gpa.free(shared.room);
                gpa.destroy(shared);
            }
        };

        // ---- Beginnings

        /// Lets a connection carry streams from now on. Bytes of frames that have come are in the lane's
        /// input.
        pub fn beginStreams(w: *W, transport: *Transport) error{OutOfMemory}!void {
            assert(transport.phase == .serving and transport.lane.current() == null);
            if (w.counting.counters) |counters| counters.noteConnectionBy(Multiplexed.family);
            if (w.shared == null) w.shared = try .create(w.gpa, w.pages, types.multiplexedOf(&w.config));
            const shared = w.shared.?;
            const now = w.clock.now;
            const multiplex = try Multiplex.create(w.gpa, &w.limits, &shared.config, shared.room, now);
            shared.held_bytes += multiplex.memoryBytes();
            transport.leaveServing(.{ .multiplexed = multiplex });
            transport.lane.needs_more = false;
            w.io.limitUnsent(transport.socket, unsent_bytes_max);
            if (w.stopping != .no or transport.retiring != .no) announceEnd(w, transport, multiplex);
            w.waiting.cork(&transport.lane);
        }

        const unsent_bytes_max = @import("../config.zig").worker_limits.stream_unsent_bytes_max;

        /// Whether the first bytes of a connection are HTTP/2's preface, and the connection may carry
        /// streams.
        pub fn asksForStreams(w: *const W, lane: *const Lane, unread: []const u8) bool {
            return w.config.http2 == .everywhere and lane.request_count == 0 and
                !lane.isStream() and lane.transport.tunnel == null and
                unread.len > 0 and Multiplexed.begins(unread);
        }

        fn open(w: *W, transport: *Transport, multiplex: *Multiplex, id: StreamId) ?*Stream {
            const stream = take(w, transport, id) catch {
                multiplex.session.reset(id, .refused_stream);
                return null;
            };
            multiplex.session.own(id, @backingInt(stream.lane.ticket()));
            multiplex.add(stream);
            return stream;
        }

        fn take(w: *W, transport: *Transport, id: StreamId) error{OutOfMemory}!*Stream {
            try w.reserveTurns();
            const slot = try w.open_streams.add();
            slot.item.init(transport, id, w.clock.now);
            transport.lane.request_count +%= 1;
            return slot.item;
        }

        // ---- Input

        /// Like `Input.pump`, for a transport that carries streams.
        pub fn pump(w: *W, transport: *Transport, received: ?[]u8) void {
            const multiplex = transport.phase.multiplexed;
            const lane = &transport.lane;
            assert(w.pumping == null);
            if (received != null and (lane.yielded or !lane.input.isEmpty())) {
                lane.input.append(&w.pool, received.?) catch return w.fail(lane, .server_error);
                if (lane.yielded) return;
            }
            const held = received == null or !lane.input.isEmpty();
            const unread = if (held) lane.input.unread() else received.?;
            w.pumping = lane;
            const used = read(w, transport, multiplex, unread);
            w.pumping = null;
            switch (transport.phase) {
                .closed => return w.release(lane),
                .multiplexed => {},
                else => {
                    lane.input.deinit(&w.pool);
                    if (w.send(lane)) w.settle(lane);
                    return;
                },
            }
            if (held) {
                lane.input.consume(&w.pool, used);
            } else if (used < unread.len) {
                lane.input.append(&w.pool, unread[used..]) catch
                    return w.fail(lane, .server_error);
            }
            multiplex.noteReading(used, unread.len - used, w.clock.now);
            multiplex.noteLingering(w.clock.now);
            settleTouched(w, multiplex);
            w.waiting.cork(lane);
            w.arm(lane);
        }

        /// Handles frames until more bytes are needed or the transport's turn is over. Returns the number of
        /// consumed bytes.
        fn read(w: *W, transport: *Transport, multiplex: *Multiplex, unread: []u8) usize {
            const session = &multiplex.session;
            const lane = &transport.lane;
            const turn = w.budget.turn(w.config.round_bytes);
            var used: usize = 0;
            lane.needs_more = false;
            session.wait(w.clock.now);
            while (transport.wantsFrames()) {
                const is_over = w.budget.isOver(turn) or W.has_pushing and w.hasGrown();
                if (is_over and used < unread.len) {
                    w.waiting.yield(lane);
                    break;
                }
                const step = session.feed(unread[used..], &w.head);
                used += step.consumed;
                if (session.outgrows()) growTable(w, multiplex) catch {
                    w.fail(lane, .server_error);
                    return unread.len;
                };
                switch (step.event) {
                    .need_more => {
                        lane.needs_more = true;
                        break;
                    },
                    .control => if (!sayControl(w, transport, multiplex)) return unread.len,
                    .places => grow(w, multiplex) catch {}, // without memory for places the stream is refused
                    .request => beginRequest(w, transport, multiplex, step.stream),
                    .body => |piece| if (streamOf(w, session.ownerOf(step.stream))) |stream|
                        pumpStream(w, stream, @constCast(piece))
                    else
                        session.release(step.stream, @intCast(piece.len)),
                    .trailers => noteEnd(w, multiplex, step.stream, true),
                    .end => noteEnd(w, multiplex, step.stream, false),
                    .refused => |refusal| refuse(w, transport, multiplex, step.stream, refusal),
                    .reset => |reset| wasReset(w, reset.owner, reset.by == .peer),
                    .failed => |failure| {
                        w.stats.refused += 1;
                        fail(w, transport, multiplex, failure.detail);
                        return unread.len;
                    },
                }
            }
            return used;
        }

        fn grow(w: *W, multiplex: *Multiplex) error{OutOfMemory}!void {
            const before = multiplex.memoryBytes();
            try multiplex.grow(w.gpa, &w.shared.?.desks);
            w.shared.?.held_bytes += multiplex.memoryBytes() - before;
        }

        fn rest(w: *W, multiplex: *Multiplex) void {
            const before = multiplex.memoryBytes();
            multiplex.rest(w.gpa, &w.shared.?.desks);
            w.shared.?.held_bytes -= before - multiplex.memoryBytes();
        }

        fn growTable(w: *W, multiplex: *Multiplex) error{OutOfMemory}!void {
            const before = multiplex.memoryBytes();
            try multiplex.growTable(w.gpa);
            w.shared.?.held_bytes += multiplex.memoryBytes() - before;
        }

        fn beginRequest(w: *W, transport: *Transport, multiplex: *Multiplex, id: StreamId) void {
            const stream = open(w, transport, multiplex, id) orelse return;
            stream.touched = true;
            input_part.begin(w, &stream.lane);
            // The stream is the last one, or one over the limit. Whatever the peer answers, the second GOAWAY
            // is sent later.
            const is_last = transport.surplus != .no or !multiplex.session.persists();
            if (is_last) announceEnd(w, transport, multiplex);
        }

        fn streamOf(w: *W, owner: u64) ?*Stream {
            return if (owner == 0) null else w.open_streams.get(@fromBackingInt(owner));
        }

        /// Notes the end of a stream's request. The host is told of a trailer section in `w.head` after the
        /// content.
        fn noteEnd(w: *W, multiplex: *Multiplex, id: StreamId, with_trailers: bool) void {
            const stream = streamOf(w, multiplex.session.ownerOf(id)) orelse return;
            const lane = &stream.lane;
            // A WebSocket needs both directions.
            if (lane.current()) |exchange| if (exchange.websocket != null) {
                return input_part.laneEnded(w, lane);
            };
            if (with_trailers) {
                assert(stream.end == .open);
                stream.end = .{ .trailers = KeptHead.create(&w.pool, &w.head) catch
                    return w.fail(lane, .server_error) };
                return;
            }
            // The end comes behind a trailer section, too.
            if (stream.end == .open) stream.end = .here;
            lane.needs_more = false;
            if (lane.mayGoOn()) pumpStream(w, stream, null);
        }

        /// Gives a stream content that has come, or content that it holds. See `Input.pump`.
        pub fn pumpStream(w: *W, stream: *Stream, received: ?[]u8) void {
            const lane = &stream.lane;
            const view = lane.session().stream;
            if (received) |bytes| {
                if (lane.phase == .closing) return view.release(bytes.len);
                if (lane.yielded or !lane.input.isEmpty() or !lane.wantsInput()) {
                    lane.needs_more = false;
                    return lane.input.append(&w.pool, bytes) catch w.fail(lane, .server_error);
                }
            }
            const transport_pumps = w.pumping;
            const unread = received orelse lane.input.unread();
            w.pumping = lane;
            const used = takeContent(w, stream, unread);
            w.pumping = transport_pumps;
            view.release(used);
            if (stream.closed) return w.release(lane);
            if (received == null) {
                lane.input.consume(&w.pool, used);
            } else if (used < unread.len) {
                lane.input.append(&w.pool, unread[used..]) catch
                    return w.fail(lane, .server_error);
            }
            if (transport_pumps != null and lane.phase != .closing) {
                // More of the stream's content may come in the same round.
                stream.touched = true;
                return;
            }
            pauseIfPulled(w, lane);
            if (w.send(lane)) w.settle(lane);
        }

        /// Gives content to the stream's exchange, and tells of the end when all content was taken. Returns
        /// the number of bytes that were taken.
        fn takeContent(w: *W, stream: *Stream, content: []u8) usize {
            const lane = &stream.lane;
            lane.needs_more = false;
            const taken = input_part.giveContent(w, lane, content, w.budget.turn(w.config.round_bytes));
            if (taken == content.len and !lane.yielded) tellEnd(w, stream);
            // A closing lane takes no content, so the rest is dropped.
            return if (lane.phase == .closing) content.len else taken;
        }

        fn tellEnd(w: *W, stream: *Stream) void {
            assert(!stream.closed);
            const lane = &stream.lane;
            while (lane.wantsInput() and lane.websocket() == null) switch (stream.end) {
                .open, .told => {
                    lane.needs_more = true;
                    return w.cutShort(lane);
                },
                .trailers => |kept| {
                    stream.end = .here;
                    defer kept.destroy(&w.pool);
                    const storage = w.head.storage;
                    w.head = kept.head;
                    w.head.storage = storage;
                    input_part.trailersCame(w, lane);
                },
                .here => {
                    stream.end = .told;
                    input_part.bodyComplete(w, lane);
                },
            };
        }

        /// Ends a transport's turn: hosts that pull get no more content until they ask.
        fn settleTouched(w: *W, multiplex: *Multiplex) void {
            var next = multiplex.first;
            while (next) |stream| {
                next = stream.next;
                if (!stream.touched) continue;
                stream.touched = false;
                pauseIfPulled(w, &stream.lane);
                pour(&stream.lane);
                w.waiting.cork(&stream.lane);
            }
        }

        fn pauseIfPulled(w: *W, lane: *Lane) void {
            const exchange = lane.current() orelse return;
            const demand = W.demandOf(exchange);
            if (demand.pace == .pull and demand.body == .streamed) exchange.pieceDelivered(w.clock.now);
        }

        fn refuse(
            w: *W,
            transport: *Transport,
            multiplex: *Multiplex,
            id: StreamId,
            refusal: Refusal,
        ) void {
            const known = streamOf(w, multiplex.session.ownerOf(id));
            if (known) |stream| return input_part.refuseRequest(w, &stream.lane, refusal, "");
            const stream = open(w, transport, multiplex, id) orelse return;
            input_part.refuseRequest(w, &stream.lane, refusal, w.head.text);
        }

        /// Ends a stream that was reset.
        fn wasReset(w: *W, owner: u64, by_peer: bool) void {
            const stream = streamOf(w, owner) orelse return;
            if (stream.lane.current()) |exchange| {
                w.endExchange(exchange, if (by_peer) .client_closed else .protocol_error);
            }
            w.close(&stream.lane);
        }

        // ---- Output

        /// Tells the session of output that a stream may have. The transport sends it at the end of the
        /// round.
        pub fn pourStream(w: *W, lane: *Lane) void {
            assert(lane.isStream());
            const transport = lane.transport;
            const multiplex = transport.multiplex() orelse return;
            pour(lane);
            revealFile(w, .of(lane));
            if (transport.out.state == .open and multiplex.session.wantsToEmit()) {
                w.waiting.cork(&transport.lane);
            }
        }

        /// Sends queued output of an exchange's stream at once, as far as its turn has come and windows
        /// allow. The caller must have no exchange in use: the transport may turn out to be gone, with all of
        /// its streams.
        pub fn sendStream(w: *W, exchange: *Exchange) void {
            assert(w.pumping == null);
            if (!exchange.lane.isStream()) return;
            const wire = &exchange.lane.transport.lane;
            if (wire.out().state != .open or !w.send(exchange.lane)) return;
            if (w.send(wire)) w.settle(wire);
        }

        /// Tells the stream's session how many bytes wait to be framed, because a WebSocket writes to the
        /// queue without the session.
        fn pour(lane: *Lane) void {
            const is_last = lane.phase == .closing;
            const view = lane.session().stream;
            view.session.pourAll(view.stream, lane.out().queue.bytes, is_last);
        }

        /// Keeps content of a response from being framed until it is revealed, because its file may lie on
        /// slow storage.
        pub fn withhold(_: *W, exchange: *Exchange, len: u64) void {
            switch (exchange.lane.session()) {
                .single => {},
                .stream => |*view| view.session.withhold(view.stream, len),
            }
        }

        fn revealFile(w: *W, stream: *Stream) void {
            assert(!stream.closed);
            const view = stream.lane.session().stream;
            if (view.session.withheld(view.stream) == 0 or stream.out.queue.isReading()) return;
            view.session.reveal(view.stream, storage_part.readableOfStream(w, &stream.lane));
        }

        /// Acts on output that was queued on a stream, like `queued`.
        pub fn queuedOnStream(w: *W, exchange: *Exchange) W.Outcome {
            assert(exchange.lane.isStream());
            const lane = exchange.lane;
            w.waiting.cork(&lane.transport.lane);
            if (exchange.isSettled()) {
                output_part.complete(w, lane, exchange);
                if (w.pumping != lane) w.settle(lane);
                return .done;
            }
            pour(lane);
            w.waiting.cork(lane);
            if (!exchange.endsWithFile() and exchange.queuedBytes() < w.config.write_high_bytes) {
                return .accepted;
            }
            exchange.above_high = true;
            return .blocked;
        }

        /// Frames content that may be sent, and gives it to the kernel until the kernel takes no more. False:
        /// the connection is lost, and `transport` with it.
        pub fn sendFrames(w: *W, transport: *Transport, multiplex: *Multiplex) bool {
            while (true) {
                const more = frame(w, transport, multiplex) catch {
                    w.fail(&transport.lane, .server_error);
                    return false;
                };
                if (!output_part.sendFramed(w, transport)) return false;
                if (transport.out.state != .open) return true;
                noteFlushed(w, transport, multiplex);
                if (!more) return true;
            }
        }

        /// Notes hosts whose flush is complete, because the kernel has all framed output. They are told in
        /// the turns of their streams.
        fn noteFlushed(w: *W, transport: *Transport, multiplex: *Multiplex) void {
            assert(transport.multiplex() == multiplex);
            if (!multiplex.flushing or !transport.isFlushed()) return;
            multiplex.flushing = false;
            var next = multiplex.first;
            while (next) |stream| : (next = stream.next) {
                const exchange = flushingOf(stream) orelse continue;
                if (stream.lane.isFlushed()) {
                    exchange.flushing = .due;
                    w.waiting.cork(&stream.lane);
                } else multiplex.flushing = true;
            }
        }

        fn flushingOf(stream: *const Stream) ?*Exchange {
            const exchange = stream.lane.current() orelse return null;
            return if (exchange.flushing == .waits) exchange else null;
        }

        /// Whether framing waits until the kernel has taken framed output, because a host waits for that:
        /// content of other streams would delay it for as long as there is any.
        fn isFlushing(transport: *const Transport, multiplex: *const Multiplex) bool {
            if (!multiplex.flushing or transport.isFlushed()) return false;
            var next = multiplex.first;
            while (next) |stream| : (next = stream.next) {
                if (flushingOf(stream) != null and stream.lane.isFlushed()) return true;
            }
            return false;
        }

        /// Frames content until too much waits for the kernel. Returns whether there is more.
        fn frame(w: *W, transport: *Transport, multiplex: *Multiplex) error{OutOfMemory}!bool {
            assert(transport.multiplex() == multiplex);
            const session = &multiplex.session;
            const wire = &transport.out.queue;
            var head: [Multiplexed.emission_bytes_max]u8 = undefined;
            while (wire.bytes < Lane.framed_bytes_max or session.isContinuing()) {
                if (!session.isContinuing() and isFlushing(transport, multiplex)) break;
                const emission = session.emit(&head, content_bytes_max) orelse return false;
                if (emission.content == 0) {
                    try wire.append(&w.pool, head[0..emission.head]);
                    if (streamOf(w, emission.owner)) |stream| w.waiting.cork(&stream.lane);
                    continue;
                }
                const stream = streamOf(w, emission.owner).?;
                try frameContent(w, wire, multiplex, stream, head[0..emission.head], emission);
            }
            return session.wantsToEmit();
        }

        /// The most bytes of content in one frame, if the peer takes such frames.
        const content_bytes_max = Lane.framed_bytes_max;

        fn frameContent(
            w: *W,
            wire: *Outbox,
            multiplex: *Multiplex,
            stream: *Stream,
            head: []const u8,
            emission: Multiplexed.Emission,
        ) error{OutOfMemory}!void {
            const len = emission.content;
            multiplex.framed_bytes += len;
            const content = &stream.out.queue;
            if (content.isInMemory(len)) {
                try wire.move(&w.pool, head, content, len);
            } else {
                var copy: Outbox = .{};
                defer copy.deinit(&w.pool);
                copyContent(w, content, (try copy.reserve(&w.pool, len))[0..len], wire) catch {
                    copy.cancel(&w.pool);
                    multiplex.session.takeBack(emission);
                    stream.file_failed = true;
                    return w.waiting.cork(&stream.lane);
                };
                copy.commit(len);
                try wire.move(&w.pool, head, &copy, len);
            }
            switch (stream.out.state) {
                .open => {},
                .blocked => |*blockage| if (content.isEmpty()) {
                    stream.out.state = .open;
                } else blockage.stall.progress(len, w.config.write_rate_min, w.clock.now),
            }
            if (stream.lane.current()) |exchange| {
                exchange.active_at = w.clock.now;
                w.noteOutput(exchange);
            }
            w.waiting.cork(&stream.lane);
        }

        /// Copies the first bytes of a stream's queue, some of which are in files.
        fn copyContent(w: *W, content: *Outbox, out: []u8, framed: *Outbox) error{FileFailed}!void {
            var filled: usize = 0;
            while (true) switch (content.fill(&w.pool, out[filled..], framed)) {
                .done => return,
                .file => |bytes| {
                    filled += bytes;
                    const range = content.first.?.fileRange();
                    const wanted: usize = @intCast(@min(range.len, out.len - filled));
                    const len = io_layer.file.read(range.fd, out[filled..][0..wanted], range.offset) catch
                        return error.FileFailed;
                    // The file was longer when the response began, and the response has promised that length.
                    if (len == 0) return error.FileFailed;
                    range.advance(len);
                    filled += len;
                    if (range.len == 0) if (content.popFile(&w.pool)) |whole| w.storage.closeFile(whole);
                },
            };
        }

        /// Queues a frame that the session owes its peer, before further bytes are read. False: the
        /// connection is lost.
        fn sayControl(w: *W, transport: *Transport, multiplex: *Multiplex) bool {
            var head: [Multiplexed.emission_bytes_max]u8 = undefined;
            const emission = multiplex.session.emit(&head, content_bytes_max).?;
            assert(emission.content == 0);
            transport.out.queue.append(&w.pool, head[0..emission.head]) catch {
                w.fail(&transport.lane, .server_error);
                return false;
            };
            return true;
        }

        /// Tells hosts of output that has moved, and ends a connection that is done. False: it was, and needs
        /// no timer.
        pub fn settleMultiplexed(w: *W, transport: *Transport, multiplex: *Multiplex) bool {
            assert(transport.multiplex() == multiplex);
            noteFlushed(w, transport, multiplex);
            multiplex.noteLingering(w.clock.now);
            if (multiplex.count == 0 and multiplex.session.isDone()) {
                leave(w, transport, multiplex);
                w.settle(&transport.lane);
                return false;
            }
            if (transport.lane.mayGoOn()) w.waiting.cork(&transport.lane);
            return true;
        }

        /// Sets a stream's timer. The peer's time begins with the end of the round in which output waits.
        pub fn armStream(w: *W, stream: *Stream) void {
            assert(!stream.closed);
            if (stream.out.queue.isEmpty()) {
                stream.out.state = .open;
            } else if (stream.out.state == .open) {
                stream.out.state = .{ .blocked = .begin(0, w.clock.now) };
                stream.framed_before = stream.lane.transport.phase.multiplexed.framed_bytes;
            }
            w.wheel.set(&stream.lane.timer, stream.lane.deadline(&w.config));
        }

        /// Whether a stream has waited for others and not for its peer. If it lacks only the connection's
        /// window, enough content of the connection must have moved meanwhile: for each of its streams as
        /// much as `write_rate_min` demands.
        pub fn hasWaitedForOthers(w: *const W, stream: *const Stream) bool {
            const multiplex = stream.lane.transport.phase.multiplexed;
            switch (multiplex.session.lacks(stream.id())) {
                .nothing => return true,
                .window => return false,
                .common_window => {
                    const moved = multiplex.framed_bytes - stream.framed_before;
                    const due = @as(u64, w.config.write_ms) * w.config.write_rate_min / 1000;
                    return moved >= due * multiplex.count;
                },
            }
        }

        /// Sends a complete response of the engine on a stream. False: there was no memory, and the stream is
        /// gone.
        pub fn sayOnStream(w: *W, lane: *Lane, status: u16, fields: []const Field, body: []const u8) bool {
            _ = lane.start(&w.pool, .{
                .status = status,
                .fields = fields,
                .body = body,
                .end = true,
            }, w.clock.date()) catch {
                w.close(lane);
                return false;
            };
            w.waiting.cork(&lane.transport.lane);
            return true;
        }

        // ---- Ends

        /// Ends a stream. Its slot is given back when it is no longer in use (`Worker.close`).
        pub fn close(lane: *Lane) void {
            assert(lane.isStream() and lane.current() == null);
            lane.phase = .closing;
            Stream.of(lane).closed = true;
        }

        /// Gives a stream's slot back.
        pub fn release(w: *W, stream: *Stream) void {
            const lane = &stream.lane;
            const transport = lane.transport;
            const multiplex = transport.phase.multiplexed;
            lane.input.deinit(&w.pool);
            stream.out.queue.follow(&w.pool, &transport.out.queue);
            w.dropOutput(&stream.out.queue);
            assert(stream.out.queue.isEmpty());
            if (stream.end == .trailers) stream.end.trailers.destroy(&w.pool);
            multiplex.session.reset(stream.id(), .internal_error);
            multiplex.remove(stream, w.clock.now);
            w.open_streams.remove(stream);
            w.waiting.cork(&transport.lane);
        }

        /// Resets a stream before its response is complete, with a code for the reason.
        pub fn resetStream(lane: *Lane, reason: Reason) void {
            const view = lane.session().stream;
            view.session.reset(view.stream, switch (reason) {
                .client_closed, .client_timeout, .idle_timeout, .keepalive_timeout, .write_timeout => .cancel,
                .body_too_large, .queue_overflow => .cancel,
                .server_shutdown => .refused_stream,
                .write_error, .read_error, .server_error => .internal_error,
                .protocol_error => .protocol_error,
            });
        }

        /// Cuts a stream whose application ends it within the response. Queued output is sent as far as the
        /// peer takes it in time, then the stream is reset.
        pub fn cutStream(w: *W, exchange: *Exchange) void {
            const lane = exchange.lane;
            const view = lane.session().stream;
            pour(lane);
            view.session.cut(view.stream, .internal_error);
            w.forget(exchange);
            lane.beginClosing();
            w.waiting.corkBoth(lane);
            if (w.pumping == lane) return; // the lane's input is in use
            view.release(lane.input.unread().len);
            lane.input.deinit(&w.pool);
        }

        /// Ends all streams of a connection, which carries no streams from then on.
        pub fn dissolve(w: *W, transport: *Transport, reason: Reason) void {
            const multiplex = transport.phase.multiplexed;
            while (multiplex.first) |stream| {
                assert(w.pumping != &stream.lane);
                if (stream.lane.current()) |exchange| w.endExchange(exchange, reason);
                // The host may have ended the stream.
                if (multiplex.first == stream) w.close(&stream.lane);
            }
            forget(w, transport);
        }

        /// Like `dissolve`, but no host is told, because the worker ends.
        pub fn drop(w: *W, transport: *Transport) void {
            const multiplex = transport.phase.multiplexed;
            while (multiplex.first) |stream| w.release(&stream.lane);
            forget(w, transport);
        }

        fn forget(w: *W, transport: *Transport) void {
            const multiplex = transport.phase.multiplexed;
            counting_part.countEnding(w, multiplex);
            w.shared.?.held_bytes -= multiplex.memoryBytes();
            transport.lane.beginClosing();
            multiplex.destroy(w.gpa, &w.shared.?.desks);
        }

        /// Ends a connection whose peer has broken the rules, with a GOAWAY that says why. The caller
        /// flushes.
        fn fail(w: *W, transport: *Transport, multiplex: *Multiplex, detail: []const u8) void {
            if (w.troubles.frames.add(w.clock.now)) |others| {
                var buffer: [192]u8 = undefined;
                const is_long = std.mem.eql(u8, detail, "frame too long");
                const see = if (is_long) ", see h2_frame_bytes_max" else "";
                w.say(.info, &buffer, "Connection {d} ({s}) ends, its peer broke the protocol: {s}{s}{f}", .{
                    transport.number, transport.peerName(), detail, see, others,
                });
            }
            const ticket = transport.lane.ticket();
            _ = frame(w, transport, multiplex) catch {};
            dissolve(w, transport, .protocol_error);
            assert(w.transportOf(ticket) != null);
        }

        /// Ends a connection for which the process holds too much. A peer that does not read gets no GOAWAY.
        pub fn calm(w: *W, transport: *Transport) void {
            const multiplex = transport.phase.multiplexed;
            multiplex.session.abandon(.enhance_your_calm, "the server is short of memory");
            _ = frame(w, transport, multiplex) catch {};
            dissolve(w, transport, .server_error);
            if (transport.out.state == .blocked) return w.sever(&transport.lane, .server_error);
            if (w.send(&transport.lane)) w.settle(&transport.lane);
        }

        /// Ends a connection without open streams.
        fn leave(w: *W, transport: *Transport, multiplex: *Multiplex) void {
            assert(multiplex.count == 0);
            _ = frame(w, transport, multiplex) catch {};
            forget(w, transport);
            transport.lane.input.deinit(&w.pool);
        }

        /// Asks the peer to open no further streams. Streams that it opens before it knows are served.
        pub fn announceEnd(w: *W, transport: *Transport, multiplex: *Multiplex) void {
            multiplex.session.announceEnd();
            if (multiplex.announced_at == 0) multiplex.announced_at = w.clock.now;
            w.waiting.cork(&transport.lane);
        }

        /// Acts on a deadline of a transport with streams.
        pub fn multiplexDue(w: *W, transport: *Transport) void {
            const multiplex = transport.phase.multiplexed;
            const lane = &transport.lane;
            switch (multiplex.due(transport, &w.config)) {
                .lingering => {
                    multiplex.session.endLingering();
                    multiplex.lingering_since = 0;
                    multiplex.noteLingering(w.clock.now);
                    w.waiting.cork(lane);
                    return w.arm(lane);
                },
                .last_streams => {
                    multiplex.announced_at = 0;
                    // The second GOAWAY, if the peer has not answered the PING behind the first one.
                    if (!multiplex.session.persists()) multiplex.session.drain();
                    w.waiting.cork(lane);
                    return w.arm(lane);
                },
                .rest => {
                    rest(w, multiplex);
                    return w.arm(lane);
                },
                .end => {
                    for (0..2) |_| multiplex.session.drain();
                    leave(w, transport, multiplex);
                },
                .debt => {
                    multiplex.session.abandon(.protocol_error, "too slow");
                    fail(w, transport, multiplex, "a frame, or an answer to settings, took too long");
                },
            }
            if (w.send(lane)) w.settle(lane);
        }
    };
}
