//! The part of a worker that reads: bytes to protocol events, events to the host, what is against the
//! rules to a refusal.
const std = @import("std");
const assert = std.debug.assert;
const Refusal = @import("protocol").Refusal;
const Stream = @import("protocol").Stream;
const early = @import("protocol").early;
const Budget = @import("../budget.zig").Budget;
const Connection = @import("../connection.zig").Connection;
const Exchange = @import("../exchange.zig").Exchange;
const Field = @import("protocol").http.Field;
const io_layer = @import("io");
const Transport = @import("../transport.zig").Transport;

/// The methods of a worker that read.
pub fn Input(comptime W: type) type {
    return struct {
        /// Bytes came.
        pub fn receive(w: *W, connection: *Connection, bytes: []u8) void {
            if (connection.tunnel) |tunnel| return w.receiveSecure(connection, tunnel, bytes);
            switch (connection.phase) {
                .closing, .lingering => {}, // thrown away: an unread byte would turn our close into a reset
                .serving, .multiplexed => w.pump(connection, bytes),
                .relaying => w.relay(connection, bytes),
                .proxy_header => w.receiveHeader(connection, bytes),
                .handshake, .closed => unreachable,
            }
        }

        /// Parses what is unread and hands events to the host until more bytes, the host or fairness are
        /// needed. `received`: bytes that are not yet part of the connection's input.
        pub fn pump(w: *W, connection: *Connection, received: ?[]u8) void {
            if (connection.carrier != null or connection.phase == .multiplexed) {
                return w.pumpStreams(connection, received);
            }
            assert(w.pumping == null);
            if (connection.discards and received != null) return;
            if (received != null and connection.yielded) {
                return connection.input.append(&w.pool, received.?) catch w.fail(connection, .server_error);
            }
            var unread = received orelse connection.input.unread();
            const held = received == null or !connection.input.isEmpty();
            if (received != null and held) {
                connection.input.append(&w.pool, received.?) catch return w.fail(connection, .server_error);
                unread = connection.input.unread();
            }
            w.pumping = connection;
            const used = parse(w, connection, unread);
            if (connection.sending != .open) noteHalfClose(w, connection, used == unread.len);
            w.pumping = null;
            if (connection.phase == .closed) return w.release(connection);
            if (held) {
                connection.input.consume(&w.pool, used);
            } else if (used < unread.len) {
                connection.input.append(&w.pool, unread[used..]) catch
                    return w.fail(connection, .server_error);
            }
            if (connection.current()) |exchange| {
                const demand = W.demandOf(exchange);
                if (demand.pace == .pull and demand.body == .streamed) exchange.pieceDelivered(w.now);
                if (w.isHostAtWork(exchange)) {
                    // The host sees the event at once; what it answers goes out together with what is queued.
                    if (!connection.outbox.isEmpty()) w.cork(connection);
                    return w.arm(connection);
                }
            } else if (W.has_pushing and connection.isIdle() and !connection.outbox.isEmpty()) {
                return w.cork(connection); // a whole answer goes out with a few others'
            }
            if (w.flush(connection)) w.settle(connection);
        }

        /// The number of bytes that were consumed.
        pub fn parse(w: *W, connection: *Connection, unread: []u8) usize {
            var used: usize = 0;
            var rounds: u32 = 0;
            const turn = w.budget.turn(w.config.round_bytes);
            connection.needs_more = false;
            while (connection.wantsInput()) {
                if (connection.isIdle()) {
                    if (used == unread.len) break;
                    rounds += 1;
                    if (rounds > w.config.pipeline_pass_max) {
                        w.yield(connection);
                        break;
                    }
                }
                // An end without further bytes is told at once: nothing would bring us back to it.
                const is_over = w.budget.isOver(turn) or W.has_pushing and w.hasGrown();
                if (is_over and (used < unread.len or connection.holdsMessage())) {
                    w.yield(connection);
                    break;
                }
                if (connection.websocket()) |websocket| {
                    if (!w.feedWebSocket(connection, websocket, unread[used..], &used)) break;
                    continue;
                }
                const step = connection.session.feed(unread[used..], &w.head);
                assert(step.consumed <= unread.len - used);
                used += step.consumed;
                switch (step.event) {
                    .need_more => {
                        connection.needs_more = true;
                        if (connection.isIdle()) {
                            connection.lane.phase = .{ .head = .{ .since = w.now } };
                        }
                        cutShort(w, connection);
                        break;
                    },
                    .request => begin(w, connection, step.stream),
                    .body => |piece| bodyPiece(w, connection, piece),
                    .trailers => if (connection.current()) |exchange| trailersCame(w, connection, exchange),
                    .end => bodyComplete(w, connection),
                    .refused => |refusal| {
                        refuseRequest(w, connection, refusal, unread[used..]);
                        break;
                    },
                }
            }
            return switch (connection.phase) {
                .closing, .lingering, .closed => unread.len, // the rest is not parsed any more
                .serving => if (connection.lane.phase == .closing) unread.len else used,
                .multiplexed => used,
                .proxy_header, .handshake, .relaying => unreachable,
            };
        }

        /// A request has come, whose head is in `w.head`.
        pub fn begin(w: *W, connection: *Connection, stream: Stream) void {
            if (w.intercept(connection, stream)) return;
            if (w.head.https and !mayBringHttps(w, connection)) {
                w.stats.refused += 1;
                return refuseUnread(
                    w,
                    connection,
                    .{ .status = 421, .detail = "an https target needs TLS" },
                    w.head.text,
                );
            }
            if (w.memory.full) return w.turnAwayForMemory(connection, w.head.text);
            const slot = w.exchanges.add() catch {
                const refusal: Refusal = .{ .status = 503, .detail = "Out of memory." };
                return refuseUnread(w, connection, refusal, w.head.text);
            };
            const exchange = slot.item;
            exchange.* = .{
                .ticket = slot.ticket,
                .connection = connection,
                .stream = stream,
                .active_at = w.now,
                .begun_us = w.round_us,
                .idle_ms = w.config.request_idle_ms,
            };
            if (!connection.session.inputComplete(exchange.stream)) {
                exchange.input = .{ .wanted = .begin(w.now) };
            }
            connection.lane.phase = .{ .exchange = exchange };
            if (connection.request_count == 0 and connection.carrier == null) {
                if (w.counters) |counters| counters.noteConnectionBy(connection.session.family());
            }
            connection.request_count +%= 1;
            w.stats.requests += 1;
            w.client = .of(connection, &w.trust, &w.head, &w.client_text);
            w.noteBegin(exchange);
            if (w.head.upgrade) {
                if (w.noteHandshake(exchange)) |refusal| {
                    return w.refuseHandshake(connection, exchange, refusal);
                }
            }
            w.route(exchange);
            if (exchange.websocket == null and (w.stopping != .no or isLastRequest(w, connection)))
                connection.session.closeAfterResponse();
            w.budget.charge(Budget.event_bytes + w.head.text.len);
            w.expectUpload(connection, exchange);
            const whole = W.demandOf(exchange).body == .whole;
            if (whole and exchange.input != .complete) return w.gather(connection, exchange);
            w.host.request(w, exchange, &w.head);
        }

        /// Whether the connection may bring no further request.
        fn isLastRequest(w: *const W, connection: *const Connection) bool {
            const most = w.config.connection_requests_max;
            return most != 0 and connection.request_count >= most;
        }

        /// An https target comes over TLS, or from a gateway that is trusted to have got it so (RFC
        /// 9110 section 7.4).
        fn mayBringHttps(w: *const W, connection: *Connection) bool {
            return connection.transport().tunnel != null or connection.trusted or
                w.listeners.items[connection.listener].proxies != null;
        }

        fn bodyPiece(w: *W, connection: *Connection, piece: []const u8) void {
            switch (connection.lane.phase) {
                .exchange => |exchange| {
                    exchange.input.wanted.progress(piece.len, w.config.body_rate_min, w.now);
                    exchange.active_at = w.now;
                    exchange.delivered = true;
                    exchange.given_bytes += piece.len;
                    w.budget.charge(Budget.piece_bytes + piece.len);
                    if (W.intakeOf(exchange)) |intake| {
                        return w.gatherPiece(connection, exchange, intake, piece);
                    }
                    w.host.body(w, exchange, piece);
                },
                .draining => |*draining| {
                    if (piece.len > draining.bytes_left) return beginClosing(w, connection);
                    draining.bytes_left -= piece.len;
                },
                .idle, .head, .closing => unreachable,
            }
        }

        fn trailersCame(w: *W, connection: *Connection, exchange: *Exchange) void {
            if (W.intakeOf(exchange)) |intake| return w.gatherTrailers(connection, exchange, intake);
            w.host.trailers(w, exchange, &w.head);
        }

        fn bodyComplete(w: *W, connection: *Connection) void {
            switch (connection.lane.phase) {
                .exchange => |exchange| {
                    exchange.input = .complete;
                    if (W.intakeOf(exchange)) |intake| return w.gathered(connection, exchange, intake);
                    w.host.bodyEnd(w, exchange);
                },
                .draining => w.nextRequest(connection),
                .idle, .head, .closing => unreachable,
            }
        }

        /// The peer broke the rules: within an exchange that ends it, then the peer is told if it can be.
        pub fn refuseRequest(w: *W, connection: *Connection, refusal: Refusal, unread: []const u8) void {
            if (w.asksForStreams(connection, unread)) {
                return w.beginStreams(connection) catch w.close(connection);
            }
            // The request has its response, whose end waits for a window: there is nothing left to refuse.
            if (connection.lane.phase == .closing) return;
            w.stats.refused += 1;
            switch (connection.lane.phase) {
                .exchange => |exchange| {
                    const started = connection.session.responseStarted(exchange.stream);
                    w.tellRefused(connection, refusal, true);
                    if (!started) exchange.noteRefusal(refusal, refusedBytes(w, refusal));
                    const stream = exchange.stream;
                    w.endExchange(exchange, if (refusal.status == 413) .body_too_large else .protocol_error);
                    return if (started) w.close(connection) else w.refuse(connection, stream, refusal);
                },
                .draining => return beginClosing(w, connection),
                .idle, .head => return refuseUnread(w, connection, refusal, unread),
                .closing => unreachable,
            }
        }

        /// Refuses what no host was told of; `unread` begins with its head.
        pub fn refuseUnread(w: *W, connection: *Connection, refusal: Refusal, unread: []const u8) void {
            w.tellRefused(connection, refusal, false);
            w.noteRefusal(connection, refusal, refusedBytes(w, refusal), unread);
            sayRefusal(w, connection, refusal, .{ .with_content = !early.asksForHead(unread) });
        }

        /// Answers a request that was read and that no host answers, and closes the connection in order.
        pub fn refuse(w: *W, connection: *Connection, stream: Stream, refusal: Refusal) void {
            sayRefusal(w, connection, refusal, .{ .with_content = !connection.session.asksForHead(stream) });
        }

        /// The answer itself, dated, and the end of the connection.
        pub fn sayRefusal(
            w: *W,
            connection: *Connection,
            refusal: Refusal,
            extras: early.RefusalExtras,
        ) void {
            if (connection.carrier) |carrier| {
                return sayRefusalOnStream(w, connection, carrier, refusal, extras);
            }
            var dated = extras;
            dated.date = w.date.text();
            dated.page = pageOf(w, refusal);
            var space: [early.response_bytes_max]u8 = undefined;
            const head = space[0..early.refusalResponse(refusal, dated, &space)];
            const page = if (dated.with_content) dated.page else null;
            if (page == null) return w.sayLast(connection, head);
            connection.outbox.append(&w.pool, head) catch return w.close(connection);
            w.sayLast(connection, page.?.body);
        }

        /// The host's words for a refusal, if it has any.
        fn pageOf(w: *W, refusal: Refusal) ?early.Page {
            return if (@hasDecl(W.HostType, "refusalPage")) w.host.refusalPage(refusal.status) else null;
        }

        /// What the answer's content has, unless the method is HEAD.
        pub fn refusedBytes(w: *W, refusal: Refusal) u64 {
            return if (pageOf(w, refusal)) |page| page.body.len else early.refusalBodyBytes(refusal);
        }

        fn sayRefusalOnStream(
            w: *W,
            connection: *Connection,
            carrier: *Connection,
            refusal: Refusal,
            extras: early.RefusalExtras,
        ) void {
            var digits: [10]u8 = undefined;
            var body: [Refusal.detail_bytes_max + 1]u8 = undefined;
            const page = pageOf(w, refusal);
            const fields = [_]Field{
                .init("content-type", if (page) |own| own.content_type else "text/plain"),
                .init("retry-after", if (extras.retry_after_s) |seconds|
                    std.fmt.bufPrint(&digits, "{d}", .{seconds}) catch unreachable
                else
                    ""),
            };
            const said = w.sayOnStream(
                connection,
                carrier,
                refusal.status,
                fields[0 .. 1 + @as(usize, @intFromBool(extras.retry_after_s != null))],
                if (page) |own|
                    own.body
                else
                    std.fmt.bufPrint(&body, "{s}\n", .{refusal.detail}) catch unreachable,
            );
            if (said) beginClosing(w, connection);
        }

        /// Answers the health path on a stream.
        pub fn sayAlive(w: *W, connection: *Connection, carrier: *Connection) void {
            const fields = [_]Field{
                .init("content-type", "text/plain"),
                .init("cache-control", "no-store"),
            };
            if (w.sayOnStream(connection, carrier, 200, &fields, "ok\n")) beginClosing(w, connection);
        }

        /// Queues a whole response of the engine's own, and closes the connection in order.
        pub fn sayLast(w: *W, connection: *Connection, response: []const u8) void {
            connection.outbox.append(&w.pool, response) catch return w.close(connection);
            beginClosing(w, connection);
        }

        fn beginClosing(w: *W, connection: *Connection) void {
            connection.beginClosing();
            // Its input is in use, and its output goes out at the end of that.
            if (w.pumping == connection) return;
            connection.input.deinit(&w.pool);
            if (w.flush(connection)) w.settle(connection);
        }

        /// More bytes are needed than there are. If the peer's end was read, it has left a request
        /// unfinished, or nothing to throw away.
        pub fn cutShort(w: *W, connection: *Connection) void {
            if (connection.sending == .ended) breakOff(w, connection);
        }

        /// The peer will not send what is missing. Answers to requests before that still go out.
        fn breakOff(w: *W, connection: *Connection) void {
            if (connection.current()) |exchange| {
                // Nobody misses it, and the response is on its way.
                if (exchange.ended) return;
                if (connection.session.responseStarted(exchange.stream)) {
                    return w.fail(connection, .client_closed);
                }
                w.endExchange(exchange, .client_closed);
            }
            beginClosing(w, connection);
        }

        /// The peer's end is known, and what came before it was parsed as far as it is welcome. Whoever
        /// answers is told; a request that came together with the end comes first.
        fn noteHalfClose(w: *W, connection: *Connection, is_last: bool) void {
            const exchange = connection.current() orelse return;
            // A WebSocket needs both directions: it ends with what its peer sent before.
            if (exchange.websocket != null) return;
            if (connection.sending == .ended and is_last) connection.session.closeAfterResponse();
            if (exchange.half_closed) return;
            exchange.half_closed = true;
            // It may have closed only its sending side, and gets its answer then. Probes tell if it
            // is gone altogether.
            w.io.probe(Transport.of(connection).socket);
            if (!exchange.unannounced) w.host.halfClosed(w, exchange);
        }

        /// Whether the peer of an exchange has closed its connection, or its sending side, as far as the
        /// kernel knows now: no event may have told of it yet.
        pub fn hasPeerLeft(w: *W, exchange: *const Exchange) bool {
            const connection = exchange.connection.transport();
            if (connection.sending != .open) return true;
            return w.io.hasPeerShut(Transport.of(connection).socket);
        }

        /// The peer has ended its sending side behind bytes that nobody reads for now: the body of a
        /// request, further requests.
        pub fn peerEnding(w: *W, connection: *Connection) void {
            if (connection.sending != .open) return;
            connection.sending = .ending;
            noteHalfClose(w, connection, false);
        }

        /// The peer ended its sending side, or the connection died.
        pub fn peerEnded(w: *W, connection: *Connection, how: io_layer.Ended) void {
            if (how == .reset) {
                return w.fail(connection, if (connection.sending == .open) .read_error else .client_closed);
            }
            // Over TLS the end of the session comes first.
            if (connection.sending == .ended) return;
            connection.sending = .ended;
            connection.needs_more = false;
            switch (connection.phase) {
                .multiplexed => w.fail(connection, .client_closed),
                .proxy_header, .handshake, .lingering => w.close(connection),
                .closing => w.settle(connection),
                .relaying => w.relayEnded(connection),
                .serving => inputEnded(w, connection),
                .closed => unreachable,
            }
        }

        fn inputEnded(w: *W, connection: *Connection) void {
            switch (connection.lane.phase) {
                .draining => breakOff(w, connection),
                .idle, .closing => w.settle(connection),
                // The rest of a head may be there, waiting for its turn.
                .head => if (!connection.yielded) breakOff(w, connection),
                .exchange => |exchange| {
                    // Its last word was read, and its answer comes with the next round.
                    if (exchange.openWebSocket()) |websocket| if (websocket.ending != null) return;
                    const all_read = connection.input.isEmpty() and !connection.holdsMessage();
                    const awaits_accept = exchange.websocket != null and exchange.openWebSocket() == null;
                    const lacks_input = all_read and !exchange.inputComplete() and !exchange.ended;
                    // A WebSocket, asked for or open, needs both directions, and half a request is none.
                    if (awaits_accept or lacks_input) return breakOff(w, connection);
                    // What is there may be all that is missing: the next look at it tells.
                    if (!all_read and connection.wantsInput()) w.cork(connection);
                    noteHalfClose(w, connection, all_read);
                },
            }
        }
    };
}
