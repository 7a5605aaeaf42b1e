//! The part of a worker for output: the functions by which hosts respond, and the way of queued bytes to the
//! kernel. If a peer turns out to be gone while its host sends, its exchange ends at once (`aborted`,
//! `closed`), and the connection with it. So code that calls the host, or sends, uses neither afterwards
//! unless it finds them again by ticket, or `pumping` keeps the connection.
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

pub fn Output(comptime W: type) type {
    return struct {
        const access_part = @import("access.zig").Access(W);
        const relay_part = @import("relay.zig").Relaying(W);
        const secure_part = @import("secure.zig").Secure(W);
        const streams_part = @import("streams.zig").Streams(W);
        const websocket_part = @import("websocket.zig").Live(W);

        /// The exchange of a ticket; null: it has ended, or its response is complete.
        pub fn find(w: *W, ticket: Ticket) ?*Exchange {
            const exchange = w.exchanges.get(ticket) orelse return null;
            return if (exchange.isEnded()) null else exchange;
        }

        /// Reasons why a response does not begin or end.
        pub const ResponseError = exchange_file.StartError || exchange_file.EndError;

        /// Reasons why a file is not sent.
        pub const FileError = exchange_file.BodyError || io_layer.file.Error;

        pub const Outcome = @import("../command.zig").Outcome;

        /// Starts the response. The session derives the framing from the fields.
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

        /// The range of an open file from `offset` on, with `length` bytes or, if that is null, all further
        /// bytes.
        pub fn rangeOf(fd: i32, offset: u64, length: ?u64) io_layer.file.Error!FileRange {
            const available = try io_layer.file.size(fd) -| offset;
            return .{ .fd = fd, .offset = offset, .len = @min(length orelse available, available) };
        }

        /// Sends a range of a file. The caller keeps its descriptor, which is duplicated.
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

        /// Sends an exchange's output now and not at the end of the round. Output of a stream goes to its
        /// transport first (`sendStream`).
        pub fn sendNow(w: *W, exchange: *Exchange) void {
            const lane = exchange.lane;
            if (lane.isStream()) return w.waiting.corkBoth(lane);
            if (w.pumping == lane) return w.waiting.cork(lane);
            if (lane.out().state == .open and !w.send(lane)) return;
            w.settle(lane);
        }

        /// Sends all output of an exchange. True: the kernel has all of it, or the exchange has ended.
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

        /// Asks for the next piece of the request body, or for the next message of a WebSocket
        /// (`Incoming.Flow.on_demand`). Sends 100 Continue if the peer waits for it.
        pub fn read(w: *W, exchange: *Exchange) error{OutOfMemory}!void {
            if (exchange.openWebSocket()) |websocket| return websocket_part.ask(w, exchange, websocket);
            const lane = exchange.lane;
            // `w.clock.now` is the round's beginning, and the handler may have run for long since.
            if (!exchange.want(w.io.now())) return;
            try lane.sayContinue(&w.pool);
            w.waiting.corkBoth(lane);
        }

        /// Queued bytes that the kernel has not taken.
        pub fn buffered(_: *const W, exchange: *const Exchange) usize {
            return exchange.queuedBytes();
        }

        /// Ends the exchange by cutting the connection or the stream, so that the peer sees a truncated
        /// response.
        pub fn abort(w: *W, exchange: *Exchange) void {
            assert(exchange.lane.current() == exchange);
            const lane = exchange.lane;
            if (lane.isStream()) return streams_part.cutStream(w, exchange);
            // The head is completed, so that the peer sees a truncated response and not a part of a head.
            // Without memory it sees the latter.
            lane.closeHead(&w.pool) catch {};
            w.forget(exchange);
            lane.beginClosing();
            if (lane.transport.tunnel) |tunnel| tunnel.silent = true;
            if (lane.out().state == .open and !w.send(lane)) return;
            sever(w, lane, .server_error);
        }

        /// Cuts a connection or a stream. A connection is reset, so that the kernel drops its output: a peer
        /// that does not read would keep megabytes in the kernel.
        pub fn sever(w: *W, lane: *Lane, reason: Reason) void {
            if (!lane.isStream()) {
                const transport = lane.transport;
                if (transport.tunnel) |tunnel| tunnel.silent = true;
                if (transport.socket != .none) w.io.reset(transport.socket);
                transport.socket = .none;
            }
            w.fail(lane, reason);
        }

        /// Cuts a lane whose peer has not taken output in time, or whose file was not read in time.
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

        /// Closes a socket. The connection is reset if output is missing, because its peer might take a part
        /// of a response for the whole one where the end of the connection ends the response.
        pub fn closeSocket(w: *W, transport: *Transport) void {
            if (transport.socket == .none) return;
            if (transport.owesOutput()) w.io.reset(transport.socket) else w.io.close(transport.socket);
            transport.socket = .none;
        }

        /// Handles output that was queued: much output is sent now, less at the end of the round. A send
        /// after each response would cost a Perl host 4 to 5 us for each request, because host and kernel
        /// evict each other's cache lines, and every send wakes a client.
        pub fn queued(w: *W, exchange: *Exchange) Outcome {
            const lane = exchange.lane;
            exchange.active_at = w.clock.now;
            if (lane.isStream()) return streams_part.queuedOnStream(w, exchange);
            const much = lane.out().queue.bytes >= Place.together_bytes;
            if (lane.out().state == .open and much) {
                if (!w.send(lane)) return .accepted; // the host was told that the peer is gone
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
            // A response to a WebSocket message is sent when the pump ends, at the latest.
            const is_pumped = w.pumping == lane and exchange.websocket != null;
            if (lane.out().state == .open and !is_pumped) w.waiting.cork(lane);
            if (!exchange.endsWithFile() and exchange.queuedBytes() < w.config.write_high_bytes) {
                return .accepted;
            }
            // A head that waits stays queued, so the host must send more before output can drain.
            if (exchange.keepsHead()) return .accepted;
            exchange.above_high = true;
            return .blocked;
        }

        /// Ends a complete response: the connection goes on to the next request, or closes.
        pub fn complete(w: *W, lane: *Lane, exchange: *Exchange) void {
            assert(exchange.isEnded());
            w.forget(exchange);
            goOn(w, lane);
        }

        /// Goes on to the next request after a response, or closes.
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

        /// Frees an exchange. Its ticket finds nothing from now on.
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

        /// Sends queued output, because the kernel has room again.
        pub fn writable(w: *W, transport: *Transport) void {
            if (transport.out.state == .open) return;
            if (w.send(&transport.lane)) w.settle(&transport.lane);
        }

        /// Sets whether a head that waits stays queued when other output is sent.
        pub fn keepHead(w: *W, exchange: *Exchange, keeps: bool) void {
            exchange.keeps_head = keeps;
            if (!keeps) w.waiting.cork(exchange.lane);
        }

        /// Sends queued output of a lane: to the kernel until it takes no more, or to the session that frames
        /// it. False: the connection is lost, and the lane with it.
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

        /// Gives framed output to the kernel, through TLS if the transport has a tunnel.
        pub fn sendFramed(w: *W, transport: *Transport) bool {
            if (transport.tunnel) |tunnel| return secure_part.send(w, transport, tunnel);
            // Nearly every response is one block, which needs no list of slices.
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

        /// Gives framed output to the kernel, unencrypted or sealed by the kernel: any number of blocks, and
        /// files.
        pub fn sendBlocks(w: *W, transport: *Transport) bool {
            const outbox = &transport.out.queue;
            var slices: [io_layer.slices_max][]const u8 = undefined;
            var borrowed: [io_layer.slices_max]io_layer.Slice = undefined;
            while (true) switch (outbox.front(&slices)) {
                .nothing => break,
                .bytes => |count| {
                    const left = w.share.left(&transport.turn);
                    if (left == 0) {
                        // The rest is sent in the next round, after other connections had their turn.
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

        /// Sends `total` bytes from the front of the queue.
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

        /// Sends bytes of the file range at the front of the queue.
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
                    // The kernel has room and will not report it, so the lane goes on at the end of the
                    // round.
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

        /// Ends a response whose file cannot be read to its end. The peer sees it cut short.
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

        /// Counts `len` bytes that the kernel took of a transport's output.
        pub inline fn took(w: *W, transport: *Transport, len: usize) void {
            trace.wire(&transport.lane, .sent, len);
            if (w.counting.counters) |counters| counters.noteBytes(.out, len);
            switch (transport.out.state) {
                .open => {},
                .blocked => |*blockage| blockage.took(len),
            }
            noteProgress(w, transport);
        }

        /// Notes that the kernel took less than it was given. The peer's time begins now and not with the
        /// round, because a handler may have run for long.
        pub fn block(w: *W, transport: *Transport) void {
            assert(transport.socket != .none);
            if (transport.out.state == .open) {
                const held = w.io.held(transport.socket);
                transport.out.state = .{ .blocked = .begin(held, w.io.now()) };
            }
        }

        /// Notes how many bytes a slow peer has taken since the last look.
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

        /// Ends a connection whose send failed. Returns false, for callers of `send`.
        pub fn sendFailed(w: *W, transport: *Transport) bool {
            const lane = &transport.lane;
            w.fail(lane, if (lane.sending == .open) .write_error else .client_closed);
            return false;
        }

        /// Called after output moved or a phase changed: tells the host, goes on to the next step, and sets
        /// the timer and reading.
        pub fn settle(w: *W, lane: *Lane) void {
            if (!(if (lane.isStream()) settleStream(w, lane) else settleTransport(w, lane.transport))) return;
            w.arm(lane);
        }

        /// Settles a stream. False: the stream is gone, or its timer is set already.
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

        /// Settles a transport. False: the transport is gone, or its timer is set already.
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

        /// Settles a lane that serves requests. False: the lane is gone, or its timer is set already.
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
                // Only a stream comes here, whose end may have to be framed first.
                .closing => if (lane.isFlushed() and !lane.session().responseOpen()) {
                    w.close(lane);
                    return false;
                },
            }
            return true;
        }

        /// Tells the host that little or nothing is queued. The exchange may have ended afterwards. False:
        /// the connection is gone, because the host sent more and the peer was gone.
        fn tellProgress(w: *W, exchange: *Exchange) bool {
            assert(!exchange.isEnded());
            const lane = exchange.lane;
            const name = lane.ticket();
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

        /// Sends close_notify on a connection with TLS.
        pub fn sayEnd(w: *W, transport: *Transport) secure_part.Progress {
            const tunnel = transport.tunnel orelse return .sent;
            return secure_part.sendCloseNotify(w, transport, tunnel);
        }

        /// Ends the sending side after all output was sent, and leaves the peer time to read it before the
        /// socket is closed.
        fn linger(w: *W, transport: *Transport) void {
            assert(transport.phase == .closing and transport.isFlushed());
            const lane = &transport.lane;
            lane.input.deinit(&w.pool);
            if (lane.sending == .ended) return w.close(lane);
            // A kernel that makes TLS records could send the end before a record that waits for room.
            // close_notify was sent already.
            const by_kernel = if (transport.tunnel) |tunnel| tunnel.session.isSealedByKernel() else false;
            if (!by_kernel) w.io.shutdownSend(transport.socket);
            transport.phase = .{ .lingering = .{ .since = w.io.now() } };
            w.arm(lane);
        }
    };
}
