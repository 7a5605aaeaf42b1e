//! The part of a worker that reads: bytes become events of the protocol, the host gets these, and bytes
//! that break the rules are refused.
const std = @import("std");
const assert = std.debug.assert;
const Refusal = @import("protocol").Refusal;
const early = @import("protocol").early;
const Budget = @import("../budget.zig").Budget;
const Lane = @import("../lane.zig").Lane;
const Exchange = @import("../exchange.zig").Exchange;
const Field = @import("protocol").http.Field;
const io_layer = @import("io");
const trace = @import("../trace.zig");
const Transport = @import("../transport.zig").Transport;

/// The methods of a worker that read.
pub fn Input(comptime W: type) type {
    return struct {
        const access_part = @import("access.zig").Access(W);
        const gathering_part = @import("gathering.zig").Gathering(W);
        const handshakes_part = @import("handshakes.zig").Shaking(W);
        const health_part = @import("health.zig").HealthPart(W);
        const memory_part = @import("memory.zig").Shedding(W);
        const output_part = @import("output.zig").Output(W);
        const proxied_part = @import("proxied.zig").Proxied(W);
        const relay_part = @import("relay.zig").Relaying(W);
        const secure_part = @import("secure.zig").Secure(W);
        const streams_part = @import("streams.zig").Streams(W);
        const upload_part = @import("upload.zig").Upload(W);
        const websocket_part = @import("websocket.zig").Live(W);

        /// Bytes of a transport came.
        pub fn receive(w: *W, transport: *Transport, bytes: []u8) void {
            if (transport.tunnel) |tunnel| return secure_part.receive(w, transport, tunnel, bytes);
            switch (transport.phase) {
                .closing, .lingering => {}, // thrown away: an unread byte would turn our close into a reset
                .serving => pumpLane(w, &transport.lane, bytes),
                .multiplexed => streams_part.pump(w, transport, bytes),
                .relaying => w.relay(transport, bytes),
                .proxy_header => proxied_part.receiveHeader(w, transport, bytes),
                .handshake, .closed => unreachable,
            }
        }

        /// Parses unread bytes of a lane, or frames of a transport, and hands events to the host until more
        /// bytes, the host or fairness are needed. `received`: bytes that are not yet part of the input.
        pub fn pump(w: *W, lane: *Lane, received: ?[]u8) void {
            if (lane.isStream()) return streams_part.pumpStream(w, .of(lane), received);
            if (lane.transport.phase == .multiplexed) return streams_part.pump(w, lane.transport, received);
            pumpLane(w, lane, received);
        }

        fn pumpLane(w: *W, lane: *Lane, received: ?[]u8) void {
            assert(w.pumping == null);
            if (lane.transport.discards and received != null) return;
            if (received != null and lane.yielded) {
                return lane.input.append(&w.pool, received.?) catch w.fail(lane, .server_error);
            }
            var unread = received orelse lane.input.unread();
            const held = received == null or !lane.input.isEmpty();
            if (received != null and held) {
                lane.input.append(&w.pool, received.?) catch return w.fail(lane, .server_error);
                unread = lane.input.unread();
            }
            w.pumping = lane;
            const used = parse(w, lane, unread);
            if (lane.sending != .open) noteHalfClose(w, lane, used == unread.len);
            w.pumping = null;
            if (lane.isClosed()) return w.release(lane);
            if (held) {
                lane.input.consume(&w.pool, used);
            } else if (used < unread.len) {
                lane.input.append(&w.pool, unread[used..]) catch
                    return w.fail(lane, .server_error);
            }
            if (lane.current()) |exchange| {
                const demand = W.demandOf(exchange);
                if (demand.pace == .pull and demand.body == .streamed) exchange.pieceDelivered(w.clock.now);
                if (w.isHostAtWork(exchange)) {
                    // The host sees the event at once; its answer goes out together with queued output.
                    if (!lane.out().queue.isEmpty() and !w.withhold(lane)) w.waiting.cork(lane);
                    return w.arm(lane);
                }
            } else if (W.has_pushing and lane.isIdle() and !lane.out().queue.isEmpty()) {
                return w.waiting.cork(lane); // a whole answer goes out together with a few more
            }
            if (w.send(lane)) w.settle(lane);
        }

        /// Reads requests of a connection with one exchange at a time; the number of bytes that were
        /// consumed.
        fn parse(w: *W, lane: *Lane, unread: []u8) usize {
            const single = lane.session().single;
            var used: usize = 0;
            var rounds: u32 = 0;
            const turn = w.budget.turn(w.config.round_bytes);
            lane.needs_more = false;
            while (lane.wantsInput()) {
                if (lane.phase == .idle) {
                    if (used == unread.len) break;
                    rounds += 1;
                    if (rounds > w.config.pipeline_pass_max) {
                        w.waiting.yield(lane);
                        break;
                    }
                }
                // An end without further bytes is told at once: nothing would bring us back to it.
                if (isOver(w, turn) and (used < unread.len or lane.holdsMessage())) {
                    w.waiting.yield(lane);
                    break;
                }
                // A message that was held goes before further bytes.
                if (lane.holdsMessage()) {
                    if (!websocket_part.goOnWithMessage(w, lane)) break;
                    continue;
                }
                const step = single.feed(unread[used..], &w.head);
                assert(step.consumed <= unread.len - used);
                used += step.consumed;
                switch (step.event) {
                    .need_more => {
                        lane.needs_more = true;
                        if (lane.phase == .idle) lane.phase = .{ .head = .{ .since = w.clock.now } };
                        cutShort(w, lane);
                        break;
                    },
                    .request => begin(w, lane),
                    .body => |piece| {
                        const content = unread[used - piece.len .. used];
                        assert(content.ptr == piece.ptr);
                        const left = piece.len - giveContent(w, lane, content, turn);
                        used -= left;
                        if (left > 0) break;
                        if (used == unread.len and isDry(lane)) {
                            lane.needs_more = true;
                            break;
                        }
                    },
                    .trailers => trailersCame(w, lane),
                    .end => bodyComplete(w, lane),
                    .refused => |refusal| {
                        refuseRequest(w, lane, refusal, unread[used..]);
                        break;
                    },
                }
            }
            // Of a lane that is closing the rest is not parsed any more; frames of streams are.
            const is_over = lane.phase == .closing and lane.transport.phase != .multiplexed;
            return if (is_over) unread.len else used;
        }

        /// Whether a lane has had its turn in this round.
        fn isOver(w: *W, turn: i64) bool {
            return w.budget.isOver(turn) or W.has_pushing and w.hasGrown();
        }

        /// Offers content of a request to its exchange; the number of bytes that were taken. A body is taken
        /// whole.
        pub fn giveContent(w: *W, lane: *Lane, content: []u8, turn: i64) usize {
            if (lane.websocket() != null) return giveMessages(w, lane, content, turn);
            if (content.len == 0 or !lane.wantsInput()) return 0;
            if (lane.isStream() and isOver(w, turn)) {
                w.waiting.yield(lane);
                return 0;
            }
            switch (lane.phase) {
                .exchange => |exchange| {
                    exchange.input.wanted.progress(content.len, w.config.body_rate_min, w.clock.now);
                    exchange.active_at = w.clock.now;
                    exchange.delivered = true;
                    exchange.given_bytes += content.len;
                    trace.content(exchange, .body, content.len);
                    w.budget.charge(Budget.piece_bytes + content.len);
                    if (W.intakeOf(exchange)) |intake| {
                        gathering_part.gatherPiece(w, lane, exchange, intake, content);
                    } else w.host.body(w, exchange, content);
                },
                .draining => |*draining| if (content.len > draining.bytes_left) {
                    beginClosing(w, lane);
                } else {
                    draining.bytes_left -= content.len;
                },
                .idle, .head, .closing => unreachable,
            }
            return content.len;
        }

        /// Like `giveContent`, for a WebSocket, which stops where its host has to have its turn first.
        fn giveMessages(w: *W, lane: *Lane, content: []u8, turn: i64) usize {
            var taken: usize = 0;
            while (lane.wantsInput()) {
                if (isOver(w, turn) and (taken < content.len or lane.holdsMessage())) {
                    w.waiting.yield(lane);
                    break;
                }
                const websocket = lane.websocket() orelse break;
                if (!websocket_part.feedWebSocket(w, lane, websocket, content[taken..], &taken)) break;
                if (taken == content.len and isDry(lane)) break;
            }
            return taken;
        }

        /// Whether only more bytes let a WebSocket go on: it holds no message, and its peer has not ended.
        fn isDry(lane: *const Lane) bool {
            return lane.sending == .open and lane.websocket() != null and !lane.holdsMessage();
        }

        /// A request has come, whose head is in `w.head`.
        pub fn begin(w: *W, lane: *Lane) void {
            assert(lane.current() == null and !lane.isClosed());
            if (health_part.intercept(w, lane)) return;
            if (w.head.https and !mayBringHttps(w, lane)) {
                w.stats.refused += 1;
                return refuseUnread(
                    w,
                    lane,
                    .{ .status = 421, .detail = "an https target needs TLS" },
                    w.head.text,
                );
            }
            if (w.memory.full) return memory_part.turnAway(w, lane, w.head.text);
            const slot = w.exchanges.add() catch {
                const refusal: Refusal = .{ .status = 503, .detail = "Out of memory." };
                return refuseUnread(w, lane, refusal, w.head.text);
            };
            const exchange = slot.item;
            exchange.* = .{
                .ticket = slot.ticket,
                .lane = lane,
                .active_at = w.clock.now,
                .begun_us = w.clock.round_us,
                .idle_ms = w.config.request_idle_ms,
            };
            if (!lane.session().inputComplete()) {
                exchange.input = .{ .wanted = .begin(w.clock.now) };
            }
            lane.phase = .{ .exchange = exchange };
            if (lane.request_count == 0 and !lane.isStream()) {
                if (w.counting.counters) |counters| counters.noteConnectionBy(lane.session().family());
            }
            lane.request_count +%= 1;
            w.stats.requests += 1;
            w.clients.note(lane, &w.head);
            access_part.noteBegin(w, exchange);
            trace.request(exchange, &w.head);
            if (w.head.upgrade) {
                if (websocket_part.noteHandshake(w, exchange)) |refusal| {
                    return websocket_part.refuseHandshake(w, lane, exchange, refusal);
                }
            }
            w.route(exchange);
            if (exchange.websocket == null and (w.stopping != .no or isLastRequest(w, lane)))
                lane.session().closeAfterResponse();
            w.budget.charge(Budget.event_bytes + w.head.text.len);
            upload_part.expect(w, exchange);
            const whole = W.demandOf(exchange).body == .whole;
            if (whole and exchange.input != .complete) return gathering_part.gather(w, lane, exchange);
            w.host.request(w, exchange, &w.head);
        }

        /// Whether the connection may bring no further request.
        fn isLastRequest(w: *const W, lane: *const Lane) bool {
            const most = w.config.connection_requests_max;
            return most != 0 and lane.request_count >= most;
        }

        /// An https target comes over TLS, or from a gateway that is trusted to have got it so (RFC
        /// 9110 section 7.4).
        fn mayBringHttps(w: *const W, lane: *Lane) bool {
            return lane.transport.tunnel != null or lane.transport.trusted or
                w.listeners.items[lane.transport.listener].proxies != null;
        }

        /// A trailer section has come, which is in `w.head`.
        pub fn trailersCame(w: *W, lane: *Lane) void {
            const exchange = lane.current() orelse return;
            trace.content(exchange, .trailers, w.head.text.len);
            if (W.intakeOf(exchange)) |intake| {
                return gathering_part.gatherTrailers(w, lane, exchange, intake);
            }
            w.host.trailers(w, exchange, &w.head);
        }

        /// The request has been read to its last byte.
        pub fn bodyComplete(w: *W, lane: *Lane) void {
            switch (lane.phase) {
                .exchange => |exchange| {
                    exchange.input = .complete;
                    trace.content(exchange, .end, 0);
                    if (W.intakeOf(exchange)) |intake| {
                        return gathering_part.gathered(w, lane, exchange, intake);
                    }
                    w.host.bodyEnd(w, exchange);
                },
                .draining => output_part.goOn(w, lane),
                .idle, .head, .closing => unreachable,
            }
        }

        /// The peer broke the rules: within an exchange that ends it, then the peer is told if it can be.
        pub fn refuseRequest(w: *W, lane: *Lane, refusal: Refusal, unread: []const u8) void {
            if (streams_part.asksForStreams(w, lane, unread)) {
                return w.beginStreams(lane.transport) catch w.close(lane);
            }
            // The last response is complete, and its end waits for the peer's window: the peer can be told of
            // no refusal any more.
            if (lane.phase == .closing) return;
            w.stats.refused += 1;
            switch (lane.phase) {
                .exchange => |exchange| {
                    const started = lane.session().responseStarted();
                    w.tellRefused(lane, refusal, true);
                    if (!started) exchange.noteRefusal(refusal, refusedBytes(w, refusal));
                    w.endExchange(exchange, if (refusal.status == 413) .body_too_large else .protocol_error);
                    return if (started) w.close(lane) else w.refuse(lane, refusal);
                },
                .draining => return beginClosing(w, lane),
                .idle, .head => return refuseUnread(w, lane, refusal, unread),
                .closing => unreachable,
            }
        }

        /// Refuses what no host was told of; `unread` begins with its head.
        pub fn refuseUnread(w: *W, lane: *Lane, refusal: Refusal, unread: []const u8) void {
            w.tellRefused(lane, refusal, false);
            w.noteRefusal(lane, refusal, refusedBytes(w, refusal), unread);
            sayRefusal(w, lane, refusal, .{ .with_content = !early.asksForHead(unread) });
        }

        /// Answers a request that was read and that no host answers, and closes the connection in order.
        pub fn refuse(w: *W, lane: *Lane, refusal: Refusal) void {
            sayRefusal(w, lane, refusal, .{ .with_content = !lane.session().asksForHead() });
        }

        /// The answer itself, dated, and the end of the connection.
        pub fn sayRefusal(
            w: *W,
            lane: *Lane,
            refusal: Refusal,
            extras: early.RefusalExtras,
        ) void {
            if (lane.isStream()) return sayRefusalOnStream(w, lane, refusal, extras);
            var dated = extras;
            dated.date = w.clock.date();
            dated.page = pageOf(w, refusal);
            var space: [early.response_bytes_max]u8 = undefined;
            const head = space[0..early.refusalResponse(refusal, dated, &space)];
            const page = if (dated.with_content) dated.page else null;
            if (page == null) return w.sayLast(lane, head);
            lane.out().queue.append(&w.pool, head) catch return w.close(lane);
            w.sayLast(lane, page.?.body);
        }

        /// The host's words for a refusal, if it has any.
        fn pageOf(w: *W, refusal: Refusal) ?early.Page {
            return if (@hasDecl(W.HostType, "refusalPage")) w.host.refusalPage(refusal.status) else null;
        }

        /// Bytes of the answer's content, which HEAD does not get.
        pub fn refusedBytes(w: *W, refusal: Refusal) u64 {
            return if (pageOf(w, refusal)) |page| page.body.len else early.refusalBodyBytes(refusal);
        }

        fn sayRefusalOnStream(
            w: *W,
            lane: *Lane,
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
            const said = streams_part.sayOnStream(
                w,
                lane,
                refusal.status,
                fields[0 .. 1 + @as(usize, @intFromBool(extras.retry_after_s != null))],
                if (page) |own|
                    own.body
                else
                    std.fmt.bufPrint(&body, "{s}\n", .{refusal.detail}) catch unreachable,
            );
            if (said) beginClosing(w, lane);
        }

        /// Answers the health path on a stream.
        pub fn sayAlive(w: *W, lane: *Lane) void {
            const fields = [_]Field{
                .init("content-type", "text/plain"),
                .init("cache-control", "no-store"),
            };
            if (streams_part.sayOnStream(w, lane, 200, &fields, "ok\n")) beginClosing(w, lane);
        }

        /// Queues a whole response of the engine's own, and closes the connection in order.
        pub fn sayLast(w: *W, lane: *Lane, response: []const u8) void {
            lane.out().queue.append(&w.pool, response) catch return w.close(lane);
            beginClosing(w, lane);
        }

        fn beginClosing(w: *W, lane: *Lane) void {
            lane.beginClosing();
            // The input of this lane is in use; the output goes out when the parser has ended.
            if (w.pumping == lane) return;
            lane.input.deinit(&w.pool);
            if (w.send(lane)) w.settle(lane);
        }

        /// More bytes are needed than there are. If the peer's end was read, it has left a request
        /// unfinished, or nothing to throw away.
        pub fn cutShort(w: *W, lane: *Lane) void {
            if (lane.sending == .ended) breakOff(w, lane);
        }

        /// The peer will not send the rest of its request. Answers to requests before it still go out.
        fn breakOff(w: *W, lane: *Lane) void {
            if (lane.current()) |exchange| {
                // The rest of the request is not needed: the response is on its way.
                if (exchange.isEnded()) return;
                if (lane.session().responseStarted()) {
                    return w.fail(lane, .client_closed);
                }
                w.endExchange(exchange, .client_closed);
            }
            beginClosing(w, lane);
        }

        /// The peer's end is known, and the bytes before it were parsed as far as they are welcome. The host
        /// is told; a request that came together with the end comes first.
        fn noteHalfClose(w: *W, lane: *Lane, is_last: bool) void {
            const exchange = lane.current() orelse return;
            // A WebSocket needs both directions: it ends with the bytes that its peer sent before.
            if (exchange.websocket != null) return;
            if (lane.sending == .ended and is_last) lane.session().closeAfterResponse();
            if (exchange.half_closed) return;
            exchange.half_closed = true;
            // The peer may have closed only its sending side, and gets its answer then. Probes tell if it is
            // gone altogether.
            w.io.probe(lane.transport.socket);
            if (exchange.isHeard()) w.host.halfClosed(w, exchange);
        }

        /// Whether the peer of an exchange has closed its connection, or its sending side, as far as the
        /// kernel knows now: no event may have told of it yet.
        pub fn hasPeerLeft(w: *W, exchange: *const Exchange) bool {
            const transport = exchange.lane.transport;
            if (transport.lane.sending != .open) return true;
            return w.io.hasPeerShut(transport.socket);
        }

        /// The peer has ended its sending side behind bytes that nobody reads for now: the body of a
        /// request, further requests.
        pub fn peerEnding(w: *W, transport: *Transport) void {
            const lane = &transport.lane;
            if (lane.sending != .open) return;
            lane.sending = .ending;
            noteHalfClose(w, lane, false);
        }

        /// The peer ended its sending side, or the connection died.
        pub fn peerEnded(w: *W, transport: *Transport, how: io_layer.Ended) void {
            const lane = &transport.lane;
            if (how == .reset) {
                return w.fail(lane, if (lane.sending == .open) .read_error else .client_closed);
            }
            // Over TLS the end of the session comes first.
            if (lane.sending == .ended) return;
            if (transport.phase == .serving) return laneEnded(w, lane);
            // The end comes behind a flight that waits for its turn.
            if (handshakes_part.postponesEnd(transport)) return;
            lane.sending = .ended;
            lane.needs_more = false;
            switch (transport.phase) {
                .multiplexed => w.fail(lane, .client_closed),
                .proxy_header, .handshake, .lingering => w.close(lane),
                .closing => w.settle(lane),
                .relaying => relay_part.ended(w, transport),
                .serving, .closed => unreachable,
            }
        }

        /// No bytes follow on a lane.
        pub fn laneEnded(w: *W, lane: *Lane) void {
            if (lane.sending == .ended) return;
            lane.sending = .ended;
            lane.needs_more = false;
            inputEnded(w, lane);
        }

        fn inputEnded(w: *W, lane: *Lane) void {
            switch (lane.phase) {
                .draining => breakOff(w, lane),
                .idle, .closing => w.settle(lane),
                // The rest of a head may be there, waiting for its turn.
                .head => if (!lane.yielded) breakOff(w, lane),
                .exchange => |exchange| {
                    // The WebSocket's last message was read, and the answer comes with the next round.
                    if (exchange.openWebSocket()) |websocket| if (websocket.ending != null) return;
                    const all_read = lane.input.isEmpty() and !lane.holdsMessage();
                    const awaits_accept = exchange.websocket != null and exchange.openWebSocket() == null;
                    const lacks_input = all_read and !exchange.inputComplete() and !exchange.isEnded();
                    // No more input comes. A WebSocket, accepted or not, needs both directions; a request
                    // whose rest is missing cannot be answered.
                    if (awaits_accept or lacks_input) return breakOff(w, lane);
                    // The unread bytes may complete the request: the next look at them tells.
                    if (!all_read and lane.wantsInput()) w.waiting.cork(lane);
                    noteHalfClose(w, lane, all_read);
                },
            }
        }
    };
}
