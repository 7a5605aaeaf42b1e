//! The part of a worker that answers: the functions by which hosts respond, and the way of queued bytes to
//! the kernel. A peer that turns out to be gone while its host sends ends its exchange there and then
//! (`aborted`, `closed`), and with it the connection. So code that calls the host, or sends, holds neither
//! across the call, unless `pumping` keeps the connection: it looks them up again by ticket.
const assert = @import("std").debug.assert;
const io_layer = @import("io");
const Field = @import("protocol").http.Field;
const Lane = @import("../lane.zig").Lane;
const Content = @import("../content.zig").Content;
const exchange_file = @import("../exchange.zig");
const Exchange = exchange_file.Exchange;
const FileRange = @import("../outbox.zig").FileRange;
const Outbox = @import("../outbox.zig").Outbox;
const Place = @import("../output.zig").Output;
const Reason = @import("../types.zig").Reason;
const Ticket = @import("../slab.zig").Ticket;
const trace = @import("../trace.zig");
const Transport = @import("../transport.zig").Transport;
const Stream = @import("../stream.zig").Stream;

/// The methods of a worker that answer and send.
pub fn Output(comptime W: type) type {
    return struct {
        const access_part = @import("access.zig").Access(W);
        const relay_part = @import("relay.zig").Relaying(W);
        const secure_part = @import("secure.zig").Secure(W);
        const streams_part = @import("streams.zig").Streams(W);
        const websocket_part = @import("websocket.zig").Live(W);

        /// The exchange of a ticket, or null when it has ended.
        pub fn find(w: *W, ticket: Ticket) ?*Exchange {
            const exchange = w.exchanges.get(ticket) orelse return null;
            return if (exchange.isEnded()) null else exchange;
        }

        /// Why a response does not begin.
        pub const ResponseError = exchange_file.StartError || exchange_file.EndError;

        /// Why a file is not sent.
        pub const FileError = exchange_file.BodyError || io_layer.file.Error;

        pub const Outcome = @import("../command.zig").Outcome;

        /// Starts the response. Everything about framing is decided here, from the fields.
        pub fn start(
            w: *W,
            exchange: *Exchange,
            response: exchange_file.Start,
        ) exchange_file.StartError!Outcome {
            try exchange.start(&w.pool, response, w.clock.date());
            w.noteAnswer(exchange);
            if (exchange.lane.session().droppedField()) noteDropped(w, exchange);
            return w.queued(exchange);
        }

        fn noteDropped(w: *W, exchange: *Exchange) void {
            const others = w.troubles.fields.add(w.clock.now) orelse return;
            var buffer: [256]u8 = undefined;
            const text = "The response has fields that are the server's to send (Connection, " ++
                "Transfer-Encoding and the like): they are left out{f}";
            w.sayOf(exchange, .warn, &buffer, text, .{others});
        }

        /// Sends the next piece of the body.
        pub fn write(
            w: *W,
            exchange: *Exchange,
            content: Content,
            place: Exchange.Place,
        ) exchange_file.BodyError!Outcome {
            switch (content) {
                .bytes => |bytes| try exchange.copy(&w.pool, bytes, place),
                .lent => |lent| try exchange.lend(&w.pool, lent.bytes, lent.loan, place),
                .held => |held| try exchange.hold(&w.pool, held, place),
                .blocks => |chain| try exchange.take(&w.pool, chain, chain.bytes, place),
                .file => |range| try writeFile(w, exchange, range),
                .parts => |parts| {
                    const asks = parts.len > w.config.file_loop_bytes_max or parts.chain.isAsking();
                    parts.chain.setAsking(asks);
                    const taken = try exchange.takeParts(&w.pool, parts.chain, parts.len);
                    if (taken and asks) streams_part.withhold(w, exchange, parts.len);
                    if (!taken) w.dropOutput(parts.chain);
                },
            }
            return w.queued(exchange);
        }

        fn writeFile(w: *W, exchange: *Exchange, range: FileRange) exchange_file.BodyError!void {
            assert(range.fd >= 0 and !range.reading);
            var asking = range;
            asking.asks = range.asks or range.len > w.config.file_loop_bytes_max;
            const taken = try exchange.takeFile(&w.pool, asking);
            if (!taken) return io_layer.file.close(range.fd);
            if (asking.asks) streams_part.withhold(w, exchange, range.len);
        }

        /// The range of an open file from `offset` on, `length` bytes or all that there are.
        pub fn rangeOf(fd: i32, offset: u64, length: ?u64) io_layer.file.Error!FileRange {
            const available = try io_layer.file.size(fd) -| offset;
            return .{ .fd = fd, .offset = offset, .len = @min(length orelse available, available) };
        }

        /// Sends a range of a file whose descriptor stays the caller's.
        pub fn writeCopy(w: *W, exchange: *Exchange, fd: i32, offset: u64, length: ?u64) FileError!Outcome {
            var range = try rangeOf(fd, offset, length);
            range.fd = try io_layer.file.duplicate(fd);
            errdefer io_layer.file.close(range.fd);
            return write(w, exchange, .{ .file = range }, .{ .last = true });
        }

        /// Ends the response with a trailer section.
        pub fn end(w: *W, exchange: *Exchange, trailers: []const Field) exchange_file.EndError!Outcome {
            try exchange.end(&w.pool, trailers);
            return w.queued(exchange);
        }

        /// Sends an interim response.
        pub fn inform(
            w: *W,
            exchange: *Exchange,
            status: u16,
            fields: []const Field,
        ) exchange_file.StartError!void {
            try exchange.inform(&w.pool, status, fields);
            w.sendNow(exchange);
        }

        /// A host's output leaves now, not at the end of the round; a stream's is handed to its transport
        /// (`sendStream`).
        pub fn sendNow(w: *W, exchange: *Exchange) void {
            const lane = exchange.lane;
            if (lane.isStream()) return w.waiting.corkBoth(lane);
            if (w.pumping == lane) return w.waiting.cork(lane);
            if (lane.out().state == .open and !w.send(lane)) return;
            w.settle(lane);
        }

        /// All output of an exchange is to be with the kernel: true if it is, or the exchange is over.
        /// Otherwise the host's `flushed` follows, or the end of the exchange.
        pub fn flush(w: *W, exchange: *Exchange) bool {
            const ticket = exchange.ticket;
            w.sendNow(exchange);
            const left = w.exchanges.get(ticket) orelse return true;
            if (left.lane.isDelivered()) return true;
            left.flushing = .waits;
            if (left.lane.transport.multiplex()) |multiplex| multiplex.flushing = true;
            return false;
        }

        /// Asks for the next piece of the request body, or the next message of a WebSocket
        /// (`Incoming.Flow.demand`). Says `100 Continue` when the peer waits for it.
        pub fn read(w: *W, exchange: *Exchange) error{OutOfMemory}!void {
            if (exchange.openWebSocket()) |websocket| return websocket_part.ask(w, exchange, websocket);
            const lane = exchange.lane;
            // Not `w.clock.now`: the handler that asks may have taken its time since the round began.
            if (!exchange.want(w.io.now())) return;
            try lane.sayContinue(&w.pool);
            w.waiting.corkBoth(lane);
        }

        /// Bytes queued and not yet with the kernel.
        pub fn buffered(_: *const W, exchange: *const Exchange) usize {
            return exchange.queuedBytes();
        }

        /// Ends the exchange by cutting the connection, or the stream, so that the peer sees a truncated
        /// response.
        pub fn abort(w: *W, exchange: *Exchange) void {
            assert(exchange.lane.current() == exchange);
            const lane = exchange.lane;
            if (lane.isStream()) return streams_part.cutStream(w, exchange);
            // The peer sees a response that is cut short, not half a head; without memory it sees that.
            lane.closeHead(&w.pool) catch {};
            w.forget(exchange);
            lane.beginClosing();
            if (lane.transport.tunnel) |tunnel| tunnel.silent = true;
            if (lane.out().state == .open and !w.send(lane)) return;
            sever(w, lane, .server_error);
        }

        /// Gives a connection or a stream up. A connection ends with a reset: the kernel throws its output
        /// away, or a peer that does not read would keep megabytes of it for as long as it likes.
        pub fn sever(w: *W, lane: *Lane, reason: Reason) void {
            if (!lane.isStream()) {
                const transport = lane.transport;
                if (transport.tunnel) |tunnel| tunnel.silent = true;
                if (transport.socket != .none) w.io.reset(transport.socket);
                transport.socket = .none;
            }
            w.fail(lane, reason);
        }

        /// A peer does not take its response.
        pub fn stalled(w: *W, lane: *Lane) void {
            if (lane.out().queue.isReading()) {
                const range = lane.out().queue.first.?.fileRange();
                return fileFailed(w, lane, range, "was not read within write_ms");
            }
            if (lane.isStream() and streams_part.hasWaitedForOthers(w, .of(lane))) {
                lane.out().state = .open; // the lane's output begins anew
                return w.arm(lane);
            }
            sever(w, lane, .write_timeout);
        }

        /// Closes a socket: with a reset if its peer might take a part of a response for the whole, as it
        /// would where the end of the connection is the end of the response.
        pub fn closeSocket(w: *W, transport: *Transport) void {
            if (transport.socket == .none) return;
            if (transport.owesOutput()) w.io.reset(transport.socket) else w.io.close(transport.socket);
            transport.socket = .none;
        }

        /// Acts on output that was queued: much of it goes out now, the rest at the end of the round. One
        /// send right after each answer would cost a Perl host 4 to 5 us a request: host and kernel evict
        /// each other's cache lines, and every send wakes a client.
        pub fn queued(w: *W, exchange: *Exchange) Outcome {
            const lane = exchange.lane;
            exchange.active_at = w.clock.now;
            if (lane.isStream()) return streams_part.queuedOnStream(w, exchange);
            const much = lane.out().queue.bytes >= Place.together_bytes;
            if (lane.out().state == .open and much) {
                if (!w.send(lane)) return .accepted; // the peer is gone, which the host was told
            }
            if (exchange.isSettled()) {
                complete(w, lane, exchange);
                if (w.pumping != lane) {
                    if (lane.input.isEmpty() and lane.isFlushed()) {
                        w.settle(lane);
                    } else {
                        w.waiting.cork(lane);
                    }
                }
                return .done;
            }
            // A message in answer to a message leaves when the pump ends, at the latest.
            const is_pumped = w.pumping == lane and exchange.websocket != null;
            if (lane.out().state == .open and !is_pumped) w.waiting.cork(lane);
            if (!exchange.endsWithFile() and exchange.queuedBytes() < w.config.write_high_bytes) {
                return .accepted;
            }
            // Nothing leaves before the host has said more.
            if (exchange.keepsHead()) return .accepted;
            exchange.above_high = true;
            return .blocked;
        }

        /// The response is complete: the connection goes on to the next request, or closes.
        pub fn complete(w: *W, lane: *Lane, exchange: *Exchange) void {
            assert(exchange.isEnded());
            w.forget(exchange);
            goOn(w, lane);
        }

        /// A response has ended: goes on to the next request, or to the end.
        pub fn goOn(w: *W, lane: *Lane) void {
            switch (lane.session().conclude()) {
                .keep_alive => lane.transport.awaitRequest(w.clock.now),
                .drain => lane.phase = .{ .draining = .{
                    .since = w.clock.now,
                    .bytes_left = w.config.drain_bytes_max,
                } },
                .close => lane.beginClosing(),
            }
        }

        /// Gives the slots of an exchange back; its ticket is stale from now on.
        pub fn forget(w: *W, exchange: *Exchange) void {
            access_part.noteEnd(w, exchange);
            trace.over(exchange);
            if (exchange.websocket) |websocket| {
                websocket.deinit(&w.pool, w.compression.gpa, &w.inflations);
                w.websockets.remove(websocket);
            }
            if (exchange.repeat) |repeat| repeat.destroy(w.gpa);
            if (exchange.relay != .none) relay_part.drop(w, exchange);
            if (W.intakeOf(exchange)) |intake| w.dropIntake(intake);
            if (@hasDecl(W.HostType, "forgotten")) w.host.forgotten(exchange);
            w.exchanges.remove(exchange);
        }

        /// The kernel has room again.
        pub fn writable(w: *W, transport: *Transport) void {
            if (transport.out.state == .open) return;
            if (w.send(&transport.lane)) w.settle(&transport.lane);
        }

        /// Whether an open head stays when output leaves.
        pub fn keepHead(w: *W, exchange: *Exchange, keeps: bool) void {
            exchange.keeps_head = keeps;
            if (!keeps) w.waiting.cork(exchange.lane);
        }

        /// Sends queued output of a lane: to the kernel, until that has had enough, or to the session that
        /// frames it. False: the connection is lost, and its lane with it.
        pub fn send(w: *W, lane: *Lane) bool {
            if (lane.current()) |exchange| {
                if (lane.out().state == .open and exchange.keepsHead()) return true;
                lane.closeHead(&w.pool) catch {
                    w.fail(lane, .server_error);
                    return false;
                };
                w.noteOutput(exchange);
            }
            if (lane.isStream()) {
                streams_part.pourStream(w, lane);
                return true;
            }
            const transport = lane.transport;
            if (transport.multiplex()) |multiplex| return streams_part.sendFrames(w, transport, multiplex);
            return sendFramed(w, transport);
        }

        /// Hands framed output to the kernel, over TLS if the transport speaks it.
        pub fn sendFramed(w: *W, transport: *Transport) bool {
            if (transport.tunnel) |tunnel| return secure_part.send(w, transport, tunnel);
            // Nearly every response is one block: no need to gather slices.
            const bytes = transport.out.queue.only() orelse return sendBlocks(w, transport);
            if (bytes.len > w.share.left(&transport.turn)) return sendBlocks(w, transport);
            switch (sendSlices(w, transport, &.{io_layer.slice(bytes)}, bytes.len)) {
                .sent => {
                    transport.out.state = .open;
                    return true;
                },
                .waits => return true,
                .lost => return false,
            }
        }

        /// Hands framed output to the kernel as it is: any number of blocks, and files.
        pub fn sendBlocks(w: *W, transport: *Transport) bool {
            const outbox = &transport.out.queue;
            var slices: [io_layer.slices_max][]const u8 = undefined;
            var borrowed: [io_layer.slices_max]io_layer.Slice = undefined;
            while (true) switch (outbox.front(&slices)) {
                .nothing => break,
                .bytes => |count| {
                    const left = w.share.left(&transport.turn);
                    if (left == 0) {
                        // The rest goes out in the next round, when the others had their turn.
                        block(w, transport);
                        w.waiting.cork(&transport.lane);
                        return true;
                    }
                    var total: usize = 0;
                    var taken: usize = 0;
                    while (taken < count and total < left) : (taken += 1) {
                        const bytes = slices[taken][0..@min(slices[taken].len, left - total)];
                        borrowed[taken] = io_layer.slice(bytes);
                        total += bytes.len;
                    }
                    switch (sendSlices(w, transport, borrowed[0..taken], total)) {
                        .sent => {},
                        .waits => return true,
                        .lost => return false,
                    }
                },
                .file => |range| switch (sendFile(w, transport, range)) {
                    .sent => {},
                    .waits => return true,
                    .lost => return false,
                },
            };
            transport.out.state = .open;
            return true;
        }

        const Progress = enum { sent, waits, lost };

        /// Sends the bytes at the front, `total` of them.
        fn sendSlices(w: *W, transport: *Transport, slices: []const io_layer.Slice, total: usize) Progress {
            assert(total > 0 and transport.socket != .none);
            switch (w.io.send(transport.socket, slices, false)) {
                .sent => |len| {
                    took(w, transport, len);
                    w.share.note(&transport.turn, len);
                    transport.out.queue.consume(&w.pool, len);
                    if (len == total) return .sent;
                    block(w, transport);
                    return .waits;
                },
                .blocked => {
                    block(w, transport);
                    return .waits;
                },
                .failed => {
                    _ = sendFailed(w, transport);
                    return .lost;
                },
                .end_of_file, .file_failed => unreachable,
            }
        }

        /// Sends from the file at the front.
        fn sendFile(w: *W, transport: *Transport, range: *FileRange) Progress {
            assert(range.len > 0);
            if (transport.tunnel) |tunnel| assert(tunnel.session.isSealedByKernel());
            const lane = &transport.lane;
            const readable = w.readable(lane, range);
            if (readable == 0) return .waits;
            switch (w.io.sendFile(transport.socket, range.fd, range.offset, readable)) {
                .sent => |len| {
                    took(w, transport, len);
                    range.advance(len);
                    if (range.len == 0) {
                        if (transport.out.queue.popFile(&w.pool)) |whole| w.storage.closeFile(whole);
                        return .sent;
                    }
                    block(w, transport);
                    // The kernel has room, and will not report it: the lane waits for the end of the round.
                    if (len == readable) w.waiting.cork(lane);
                    return .waits;
                },
                .blocked => {
                    block(w, transport);
                    return .waits;
                },
                .failed => _ = sendFailed(w, transport),
                .end_of_file => fileFailed(w, lane, range, "ended before all of its bytes were sent"),
                .file_failed => fileFailed(w, lane, range, "could not be read"),
            }
            return .lost;
        }

        /// The rest of a response is not to be had: the peer sees it cut short.
        pub fn fileFailed(
            w: *W,
            lane: *Lane,
            range: *const FileRange,
            comptime what: []const u8,
        ) void {
            var buffer: [192]u8 = undefined;
            const text = "The file of a response " ++ what ++ ": {d} bytes are missing - {s}";
            const words = lane.endWords();
            if (lane.current()) |exchange| {
                w.sayOf(exchange, .err, &buffer, text, .{ range.len, words });
                exchange.body_bytes -|= range.len;
            } else w.say(
                .err,
                &buffer,
                "connection {d} ({s}): " ++ text,
                .{ lane.transport.number, lane.transport.peerName(), range.len, words },
            );
            w.fail(lane, .server_error);
        }

        /// The kernel took `len` bytes of a transport's output.
        pub inline fn took(w: *W, transport: *Transport, len: usize) void {
            trace.wire(&transport.lane, .sent, len);
            if (w.counting.counters) |counters| counters.noteBytes(.out, len);
            switch (transport.out.state) {
                .open => {},
                .blocked => |*blockage| blockage.took(len),
            }
            noteProgress(w, transport);
        }

        /// The kernel took less than it was given. The peer has its time from now on: a handler may have
        /// taken its own since the round began.
        pub fn block(w: *W, transport: *Transport) void {
            assert(transport.socket != .none);
            if (transport.out.state == .open) {
                const held = w.io.held(transport.socket);
                transport.out.state = .{ .blocked = .begin(held, w.io.now()) };
            }
        }

        /// Notes how much a slow peer took out of the kernel's hands.
        pub fn lookAtBlockage(w: *W, lane: *Lane) void {
            if (lane.isStream()) return;
            const transport = lane.transport;
            switch (transport.out.state) {
                .open => {},
                .blocked => |*blockage| if (blockage.look(
                    w.io.held(transport.socket),
                    w.config.write_rate_min,
                    w.clock.now,
                ) > 0) noteProgress(w, transport),
            }
        }

        fn noteProgress(w: *W, transport: *Transport) void {
            if (transport.lane.current()) |exchange| exchange.active_at = w.clock.now;
        }

        /// The connection died under a send; false, for `send`.
        pub fn sendFailed(w: *W, transport: *Transport) bool {
            const lane = &transport.lane;
            w.fail(lane, if (lane.sending == .open) .write_error else .client_closed);
            return false;
        }

        /// After output moved or a phase changed: tells the host, takes the next step, sets
        /// timer and reading.
        pub fn settle(w: *W, lane: *Lane) void {
            if (!(if (lane.isStream()) settleStream(w, lane) else settleTransport(w, lane.transport))) return;
            w.arm(lane);
        }

        /// False: the stream is gone, or its timer is set already.
        fn settleStream(w: *W, lane: *Lane) bool {
            const stream: *Stream = .of(lane);
            if (stream.closed) return false;
            if (stream.file_failed and lane.current() != null) {
                const range = stream.out.queue.first.?.fileRange();
                fileFailed(w, lane, range, "is shorter than it was, or could not be read");
                return false;
            }
            return settleLane(w, lane);
        }

        /// False: the transport is gone, or its timer is set already.
        fn settleTransport(w: *W, transport: *Transport) bool {
            switch (transport.phase) {
                .closed => return false,
                .serving => return settleLane(w, &transport.lane),
                .multiplexed => |multiplex| return streams_part.settleMultiplexed(w, transport, multiplex),
                .closing => if (transport.isFlushed()) switch (sayEnd(w, transport)) {
                    .sent => {
                        linger(w, transport);
                        return false;
                    },
                    .lost => {
                        w.close(&transport.lane);
                        return false;
                    },
                    .waits => {},
                },
                .relaying => relay_part.settle(w, transport),
                .proxy_header, .handshake, .lingering => {},
            }
            return true;
        }

        /// Like `settle`, for a connection or a stream that serves requests. False: it is gone, or its timer
        /// is set already.
        fn settleLane(w: *W, lane: *Lane) bool {
            switch (lane.phase) {
                .exchange => |exchange| {
                    if (@hasDecl(W.HostType, "progress")) w.host.progress(exchange);
                    if (exchange.isEnded()) {
                        if (exchange.isSettled()) {
                            if (exchange.isHeard()) w.host.finished(w, exchange);
                            complete(w, lane, exchange);
                            if (lane.mayGoOn()) w.waiting.cork(lane);
                            w.settle(lane);
                            return false;
                        }
                    } else if (!tellProgress(w, exchange)) return false;
                    if (lane.mayGoOn()) w.waiting.cork(lane);
                },
                .idle => if (((w.stopping != .no and lane.transport.retiring == .no) or
                    lane.sending == .ended) and lane.input.isEmpty() and lane.isFlushed())
                {
                    if (sayEnd(w, lane.transport) != .waits) {
                        w.close(lane);
                        return false;
                    }
                    lane.beginClosing();
                },
                .head => if (lane.sending == .ended) {
                    lane.beginClosing();
                    w.settle(lane);
                    return false;
                },
                .draining => {},
                // Only of a stream, whose end may have to be framed yet.
                .closing => if (lane.isFlushed() and !lane.session().responseOpen()) {
                    w.close(lane);
                    return false;
                },
            }
            return true;
        }

        /// Tells the host that the queue is short again, or empty. The exchange may be over afterwards.
        /// False: the connection is, since the host sent more and the peer was gone.
        fn tellProgress(w: *W, exchange: *Exchange) bool {
            assert(!exchange.isEnded());
            const lane = exchange.lane;
            const name = lane.ticket;
            if (exchange.flushing == .due or exchange.flushing == .waits and lane.isDelivered()) {
                exchange.flushing = .no;
                if (@hasDecl(W.HostType, "flushed")) {
                    const ticket = exchange.ticket;
                    w.host.flushed(w, exchange);
                    if (find(w, ticket) == null) return isOpen(w, name);
                }
            }
            if (exchange.above_high and exchange.queuedBytes() < w.config.write_low_bytes) {
                exchange.above_high = false;
                w.host.drained(w, exchange);
                return isOpen(w, name);
            }
            return true;
        }

        fn isOpen(w: *W, name: Ticket) bool {
            const lane = w.laneOf(name) orelse return false;
            return !lane.isClosed();
        }

        /// The last word of a connection that speaks TLS.
        pub fn sayEnd(w: *W, transport: *Transport) secure_part.Progress {
            const tunnel = transport.tunnel orelse return .sent;
            return secure_part.sendCloseNotify(w, transport, tunnel);
        }

        /// All output is sent: ends our sending side, and gives the peer time to read before the socket goes.
        fn linger(w: *W, transport: *Transport) void {
            assert(transport.phase == .closing and transport.isFlushed());
            const lane = &transport.lane;
            lane.input.deinit(&w.pool);
            if (lane.sending == .ended) return w.close(lane);
            // A kernel that makes TLS records would let the end overtake a record that waits for room;
            // close_notify has said it already.
            const by_kernel = if (transport.tunnel) |tunnel| tunnel.session.isSealedByKernel() else false;
            if (!by_kernel) w.io.shutdownSend(transport.socket);
            transport.phase = .{ .lingering = .{ .since = w.io.now() } };
            w.arm(lane);
        }
    };
}
