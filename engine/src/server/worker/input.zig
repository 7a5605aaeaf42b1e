//! The part of a worker that reads: bytes become events of the protocol, which go to the host, and bytes that
//! break the rules are refused.
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

        /// Handles received bytes of a transport.
        pub fn receive(w: *W, transport: *Transport, bytes: []u8) void {
            if (transport.tunnel) |tunnel| return secure_part.receive(w, transport, tunnel, bytes);
            switch (transport.phase) {
                .closing, .lingering => {}, // dropped; an unread byte would make the close a reset
                .serving => pumpLane(w, &transport.lane, bytes),
                .multiplexed => streams_part.pump(w, transport, bytes),
                .relaying => w.relay(transport, bytes),
                .proxy_header => proxied_part.receiveHeader(w, transport, bytes),
                .handshake, .closed => unreachable,
            }
        }

        /// Parses unread bytes of a lane, or frames of a transport, and gives events to the host, until more
        /// bytes are needed, the host does not want more, or the lane's turn is over. `received`: bytes that
        /// are not in the input yet.
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
                    // The host handles the event at once, so its response is sent together with queued
                    // output.
                    if (!lane.out().queue.isEmpty() and !w.withhold(lane)) w.waiting.cork(lane);
                    return w.arm(lane);
                }
            } else if (W.has_pushing and lane.isIdle() and !lane.out().queue.isEmpty()) {
                return w.waiting.cork(lane); // a complete response is sent together with a few more
            }
            if (w.send(lane)) w.settle(lane);
        }

        /// Parses requests of a connection without streams. Returns the number of consumed bytes.
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
                // An end without further bytes is handled at once, because no later event would lead here.
                if (isOver(w, turn) and (used < unread.len or lane.holdsMessage())) {
                    w.waiting.yield(lane);
                    break;
                }
                // A held message comes before further bytes.
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
            // The rest of the input is dropped if the lane is closing; frames of streams are still parsed.
            const is_over = lane.phase == .closing and lane.transport.phase != .multiplexed;
            return if (is_over) unread.len else used;
        }

        /// Whether the lane's turn in this round is over.
        fn isOver(w: *W, turn: i64) bool {
            return w.budget.isOver(turn) or W.has_pushing and w.hasGrown();
        }

        /// Gives content of a request to its exchange. Returns the number of bytes that were taken: all bytes
        /// of a body, or none.
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

        /// Like `giveContent`, for a WebSocket, which takes bytes until its host must have its turn.
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

        /// Whether a WebSocket needs more bytes to go on: it holds no message, and its peer has not ended its
        /// side.
        fn isDry(lane: *const Lane) bool {
            return lane.sending == .open and lane.websocket() != null and !lane.holdsMessage();
        }

        /// Begins a request, whose head is in `w.head`.
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

        /// Whether this request is the connection's last one, by `connection_requests_max`.
        fn isLastRequest(w: *const W, lane: *const Lane) bool {
            const most = w.config.connection_requests_max;
            return most != 0 and lane.request_count >= most;
        }

        /// Whether an https target may come on this lane: over TLS, or from a proxy that is trusted to have
        /// received it over TLS (RFC 9110 section 7.4).
        fn mayBringHttps(w: *const W, lane: *Lane) bool {
            return lane.transport.tunnel != null or lane.transport.trusted or
                w.listeners.items[lane.transport.listener].proxies != null;
        }

        /// Handles a trailer section, which is in `w.head`.
        pub fn trailersCame(w: *W, lane: *Lane) void {
            const exchange = lane.current() orelse return;
            trace.content(exchange, .trailers, w.head.text.len);
            if (W.intakeOf(exchange)) |intake| {
                return gathering_part.gatherTrailers(w, lane, exchange, intake);
            }
            w.host.trailers(w, exchange, &w.head);
        }

        /// Handles the end of a request.
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

        /// Handles a request that breaks the rules. An exchange ends by that, and the peer gets the refusal
        /// if its response has not begun.
        pub fn refuseRequest(w: *W, lane: *Lane, refusal: Refusal, unread: []const u8) void {
            if (streams_part.asksForStreams(w, lane, unread)) {
                return w.beginStreams(lane.transport) catch w.close(lane);
            }
            // The last response is complete, and the rest of it waits for the peer's window. No refusal can
            // be sent any more.
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

        /// Refuses a request of which no host was told. `unread` begins with its head.
        pub fn refuseUnread(w: *W, lane: *Lane, refusal: Refusal, unread: []const u8) void {
            w.tellRefused(lane, refusal, false);
            w.noteRefusal(lane, refusal, refusedBytes(w, refusal), unread);
            sayRefusal(w, lane, refusal, .{ .with_content = !early.asksForHead(unread) });
        }

        /// Sends a refusal in place of a host's response, and closes the connection.
        pub fn refuse(w: *W, lane: *Lane, refusal: Refusal) void {
            sayRefusal(w, lane, refusal, .{ .with_content = !lane.session().asksForHead() });
        }

        /// Sends the response of a refusal with a date, and ends the lane.
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

        /// The host's content for a refusal; null: the engine's own is sent.
        fn pageOf(w: *W, refusal: Refusal) ?early.Page {
            return if (@hasDecl(W.HostType, "refusalPage")) w.host.refusalPage(refusal.status) else null;
        }

        /// The length of a refusal's content, which a response to HEAD does not have.
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

        /// Queues a complete response of the engine, and closes the connection.
        pub fn sayLast(w: *W, lane: *Lane, response: []const u8) void {
            lane.out().queue.append(&w.pool, response) catch return w.close(lane);
            beginClosing(w, lane);
        }

        fn beginClosing(w: *W, lane: *Lane) void {
            lane.beginClosing();
            // The lane's input is in use. `pump` sends the output after the parser.
            if (w.pumping == lane) return;
            lane.input.deinit(&w.pool);
            if (w.send(lane)) w.settle(lane);
        }

        /// Handles a lane that needs more bytes: if the peer has ended its side, a request stays incomplete.
        pub fn cutShort(w: *W, lane: *Lane) void {
            if (lane.sending == .ended) breakOff(w, lane);
        }

        /// Ends a lane whose peer will not send the rest of its request. Responses to earlier requests are
        /// still sent.
        fn breakOff(w: *W, lane: *Lane) void {
            if (lane.current()) |exchange| {
                // The rest of the request is not needed, because the response is complete.
                if (exchange.isEnded()) return;
                if (lane.session().responseStarted()) {
                    return w.fail(lane, .client_closed);
                }
                w.endExchange(exchange, .client_closed);
            }
            beginClosing(w, lane);
        }

        /// Tells the host that the peer has ended its sending side, after the bytes before the end were
        /// parsed as far as they are wanted. A request that came with the end is told first.
        fn noteHalfClose(w: *W, lane: *Lane, is_last: bool) void {
            const exchange = lane.current() orelse return;
            // A WebSocket needs both directions, and ends after the bytes that its peer has sent.
            if (exchange.websocket != null) return;
            if (lane.sending == .ended and is_last) lane.session().closeAfterResponse();
            if (exchange.half_closed) return;
            exchange.half_closed = true;
            // The peer may have closed only its sending side, and wait for the response. Probes find out
            // whether it is gone.
            w.io.probe(lane.transport.socket);
            if (exchange.isHeard()) w.host.halfClosed(w, exchange);
        }

        /// Whether the peer of an exchange has closed its connection or its sending side. The kernel is
        /// asked, because events may not have come yet.
        pub fn hasPeerLeft(w: *W, exchange: *const Exchange) bool {
            const transport = exchange.lane.transport;
            if (transport.lane.sending != .open) return true;
            return w.io.hasPeerShut(transport.socket);
        }

        /// Notes that the peer has ended its sending side behind bytes that are not read at present, such as
        /// a body or further requests.
        pub fn peerEnding(w: *W, transport: *Transport) void {
            const lane = &transport.lane;
            if (lane.sending != .open) return;
            lane.sending = .ending;
            noteHalfClose(w, lane, false);
        }

        /// Handles the end of the peer's sending side, or the loss of the connection.
        pub fn peerEnded(w: *W, transport: *Transport, how: io_layer.Ended) void {
            const lane = &transport.lane;
            if (how == .reset) {
                return w.fail(lane, if (lane.sending == .open) .read_error else .client_closed);
            }
            // Over TLS the end of the session comes before that of the connection.
            if (lane.sending == .ended) return;
            if (transport.phase == .serving) return laneEnded(w, lane);
            // Bytes of a handshake that wait for their turn come before the end.
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

        /// Handles the end of a lane's input.
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
                // The rest of a head may be among unread bytes, which wait for their turn.
                .head => if (!lane.yielded) breakOff(w, lane),
                .exchange => |exchange| {
                    // The WebSocket's last message was read, and the next round ends it.
                    if (exchange.openWebSocket()) |websocket| if (websocket.ending != null) return;
                    const all_read = lane.input.isEmpty() and !lane.holdsMessage();
                    const awaits_accept = exchange.websocket != null and exchange.openWebSocket() == null;
                    const lacks_input = all_read and !exchange.inputComplete() and !exchange.isEnded();
                    // No more input comes. A WebSocket, accepted or not, needs both directions, and an
                    // incomplete request cannot be answered.
                    if (awaits_accept or lacks_input) return breakOff(w, lane);
                    // The unread bytes may complete the request, so they are parsed in the lane's next turn.
                    if (!all_read and lane.wantsInput()) w.waiting.cork(lane);
                    noteHalfClose(w, lane, all_read);
                },
            }
        }
    };
}
