//! The part of a worker for WebSockets: handshake, messages, keep-alive, end.
const std = @import("std");
const assert = std.debug.assert;
const handshake = @import("protocol").websocket.handshake;
const Refusal = @import("protocol").Refusal;
const Accept = @import("../command.zig").Command.Accept;
const exchange_file = @import("../exchange.zig");
const Exchange = exchange_file.Exchange;
const Cause = @import("../tally.zig").Cause;
const Budget = @import("../budget.zig").Budget;
const Incoming = @import("../incoming.zig").Incoming;
const Line = @import("../inflation.zig").Line;
const Held = @import("../loan.zig").Held;
const Loan = @import("../loan.zig").Loan;
const websocket_file = @import("../websocket.zig");
const Lane = @import("../lane.zig").Lane;
const trace = @import("../trace.zig");
const WebSocket = websocket_file.WebSocket;

pub fn Live(comptime W: type) type {
    return struct {
        /// Keeps a valid WebSocket handshake of a request, for the host to accept. A request for another
        /// upgrade is served as a plain request. Returns a refusal for an invalid handshake.
        pub fn noteHandshake(w: *W, exchange: *Exchange) ?handshake.Refusal {
            assert(exchange.websocket == null and w.head.upgrade);
            const head = &w.head;
            const is_connect = exchange.lane.session().switchStatus() == 200;
            const verdict = handshake.check(.{
                .method = head.method_text.of(head.text),
                .way = if (is_connect)
                    .connect
                else if (head.version == .http_1_1) .upgrade else .none,
                .carries_frames = switch (head.body) {
                    .none => !is_connect,
                    .counted => |length| length == 0 and !is_connect,
                    .chunked => is_connect,
                },
                .text = head.text,
                .fields = head.fields,
            });
            switch (verdict) {
                .not_websocket => return null,
                .refused => |refusal| return refusal,
                .accepted => |accepted| {
                    if (w.endsWebSockets() and !w.replaced) return stopping;
                    w.waiting.reserveParked(w.gpa, w.websockets.count) catch return no_memory;
                    const slot = w.websockets.add() catch return no_memory;
                    slot.item.* = .init(accepted.key, head.text, head.fields, &w.config);
                    exchange.websocket = slot.item;
                    // On a stream, frames may follow the head.
                    exchange.input = .complete;
                    head.body = .none;
                    return null;
                },
            }
        }

        const no_memory: handshake.Refusal = .init(503, "Out of memory.", &.{});
        const stopping: handshake.Refusal = .init(503, "The server is stopping.", &.{});

        /// Refuses a handshake, of which the host is not told. A connection without streams ends, because the
        /// bytes that follow may be frames.
        pub fn refuseHandshake(
            w: *W,
            lane: *Lane,
            exchange: *Exchange,
            refusal: handshake.Refusal,
        ) void {
            assert(lane.current() == exchange);
            w.stats.refused += 1;
            if (w.counting.counters) |counters| counters.noteRefusal(refusal.status);
            exchange.silence();
            lane.session().endAfterRefusal();
            w.tellOf(lane, .request, refusal.status, refusal.reason);
            _ = w.start(exchange, .{
                .status = refusal.status,
                .fields = refusal.fields,
                .body = refusal.reason,
                .end = true,
            }) catch w.abort(exchange);
        }

        /// Reasons why a handshake is not completed.
        pub const AcceptError = Exchange.SwitchError || error{NotWebSocket};

        /// Completes the handshake. The WebSocket is open from then on.
        pub fn acceptWebSocket(w: *W, exchange: *Exchange, accept: Accept) AcceptError!void {
            const websocket = exchange.websocket orelse return error.NotWebSocket;
            if (websocket.state != .handshake) return error.OutOfOrder;
            const is_compressed = websocket.compression != null and switch (accept.compression) {
                .configured => w.config.deflate,
                .off => false,
                .on => true,
            };
            try exchange.switchProtocols(&w.pool, websocket, is_compressed, accept, w.clock.date());
            w.noteAnswer(exchange);
            websocket.open(is_compressed);
            if (w.counting.counters) |counters| counters.note("websockets");
            exchange.idle_ms = w.config.websocket_idle_ms;
            exchange.idle_reason = .idle_timeout;
            exchange.active_at = w.clock.now;
            w.waiting.corkBoth(exchange.lane);
            // Without memory for the close frame the WebSocket is open until the worker cuts it.
            if (w.endsWebSockets() and w.replaced) closeForStop(w, exchange) catch {};
        }

        /// Closes an open WebSocket because the worker stops. A handshake that the host has not accepted is
        /// refused if the server stops. If another worker takes over, the client must connect again at once,
        /// which only a close code says, so that WebSocket is closed after its host has accepted it.
        pub fn goAway(w: *W, exchange: *Exchange) void {
            assert(exchange.websocket != null);
            const websocket = exchange.openWebSocket() orelse
                return if (w.replaced) {} else turnDown(w, exchange);
            if (!websocket.isOpen()) return;
            closeForStop(w, exchange) catch w.fail(exchange.lane, .server_shutdown);
        }

        fn closeForStop(w: *W, exchange: *Exchange) CloseError!void {
            assert(w.stopping != .no);
            try closeWebSocket(w, exchange, if (w.replaced)
                websocket_file.code_service_restart
            else
                websocket_file.code_going_away, "");
            exchange.websocket.?.state.closing.why = .server_shutdown;
        }

        fn turnDown(w: *W, exchange: *Exchange) void {
            assert(w.stopping != .no and !exchange.websocket.?.isOpen());
            // The host has begun to refuse the WebSocket itself.
            if (exchange.lane.session().responseStarted()) return;
            const lane = exchange.lane;
            const refusal: Refusal = .{ .status = stopping.status, .detail = stopping.reason };
            exchange.noteRefusal(refusal, w.refusedBytes(refusal));
            w.endExchange(exchange, .server_shutdown);
            w.refuse(lane, refusal);
        }

        pub const SendError = websocket_file.SendError;

        /// Sends one message over the WebSocket.
        pub fn sendMessage(
            w: *W,
            exchange: *Exchange,
            kind: websocket_file.Kind,
            bytes: []const u8,
        ) SendError!W.Outcome {
            return sendLent(w, exchange, kind, bytes, null);
        }

        /// Like `sendMessage`. With a loan the bytes are not copied, unless the message is compressed
        /// (`Content.lent`).
        pub fn sendLent(
            w: *W,
            exchange: *Exchange,
            kind: websocket_file.Kind,
            bytes: []const u8,
            loan: ?*Loan,
        ) SendError!W.Outcome {
            const websocket = exchange.openWebSocket() orelse return error.NotOpen;
            try websocket.send(kind, bytes, loan, exchange.out(), &w.pool, &w.compression);
            exchange.body_bytes += bytes.len;
            if (w.counting.counters) |counters| counters.noteMessage(.out);
            return w.queued(exchange);
        }

        /// Sends `count` whole messages that are framed already. Compressed messages are only for peers that
        /// have agreed on that. They may refer only to their own bytes, within the peer's window.
        pub fn sendFramed(w: *W, exchange: *Exchange, frames: Held, count: usize) SendError!W.Outcome {
            const websocket = exchange.openWebSocket() orelse return error.NotOpen;
            if (!websocket.isOpen()) return error.NotOpen;
            try exchange.out().hold(&w.pool, frames);
            websocket.forgetSent();
            exchange.body_bytes += frames.bytes.len;
            if (w.counting.counters) |counters| for (0..count) |_| counters.noteMessage(.out);
            return w.queued(exchange);
        }

        /// Reasons why the closing handshake does not begin.
        pub const CloseError = websocket_file.CloseError || error{NotWebSocket};

        /// Begins the closing handshake. `closed` follows when the peer has answered, or its deadline has
        /// passed.
        pub fn closeWebSocket(w: *W, exchange: *Exchange, code: u16, reason: []const u8) CloseError!void {
            const websocket = exchange.openWebSocket() orelse return error.NotWebSocket;
            try websocket.close(code, reason, w.clock.now + w.config.close_ms, exchange.out(), &w.pool);
            // Further messages are dropped, because only the peer's close frame matters.
            if (websocket.incoming.held != .nothing) {
                websocket.incoming.drop(&w.pool, w.compression.gpa, &w.inflations);
            }
            websocket.incoming.setFlow(.all);
            const lane = exchange.lane;
            w.waiting.cork(lane);
            if (w.pumping != lane) w.arm(lane);
        }

        /// Sets the interval of pings, and the time after which a missing pong ends the WebSocket.
        pub fn setKeepalive(
            w: *W,
            exchange: *Exchange,
            interval_ms: u32,
            timeout_ms: u32,
        ) error{NotWebSocket}!void {
            const websocket = exchange.openWebSocket() orelse return error.NotWebSocket;
            websocket.setKeepalive(interval_ms, timeout_ms, w.clock.now);
            if (w.pumping != exchange.lane) w.arm(exchange.lane);
        }

        /// Sets the messages that the host takes from now on.
        pub fn setFlow(w: *W, exchange: *Exchange, flow: Incoming.Flow) error{NotWebSocket}!void {
            const websocket = exchange.openWebSocket() orelse return error.NotWebSocket;
            if (websocket.state != .open) return;
            websocket.setFlow(flow);
            w.waiting.cork(exchange.lane);
        }

        /// Notes that the host asks for the WebSocket's next message.
        pub fn ask(w: *W, exchange: *Exchange, websocket: *WebSocket) void {
            websocket.incoming.ask();
            exchange.given_bytes = 0;
            if (websocket.isReady()) w.waiting.cork(exchange.lane);
        }

        /// Ends the exchange after `idle_ms` milliseconds without a byte in either direction; 0: never.
        pub fn setIdleLimit(w: *W, exchange: *Exchange, idle_ms: u32) void {
            exchange.idle_ms = idle_ms;
            exchange.idle_reason = .idle_timeout;
            exchange.active_at = w.clock.now;
            if (w.pumping != exchange.lane) w.arm(exchange.lane);
        }

        /// Sets the idle limit of a request in place of `Config.request_idle_ms`.
        pub fn limitRequest(w: *W, exchange: *Exchange, idle_ms: u32) void {
            exchange.idle_ms = idle_ms;
            if (w.pumping != exchange.lane) w.arm(exchange.lane);
        }

        /// Like `setIdleLimit`, but a peer whose response has not started gets a 504.
        pub fn limitAnswer(w: *W, exchange: *Exchange, idle_ms: u32) void {
            exchange.idle_end = .answer;
            setIdleLimit(w, exchange, idle_ms);
        }

        /// Goes on with a held message, or with the end. False: the lane waits for a later round.
        pub fn goOnWithMessage(w: *W, lane: *Lane) bool {
            const websocket = lane.websocket().?;
            if (websocket.incoming.held == .nothing) {
                return act(w, lane, websocket, .ending) catch giveUp(w, lane);
            }
            return goOn(w, lane, websocket) catch giveUp(w, lane);
        }

        /// Gives the host one event of the WebSocket. False: nothing more can be parsed in this round.
        pub fn feedWebSocket(
            w: *W,
            lane: *Lane,
            websocket: *WebSocket,
            unread: []u8,
            used: *usize,
        ) bool {
            if (lane.holdsMessage()) return goOnWithMessage(w, lane);
            if (unread.len == 0) {
                w.cutShort(lane);
                return false;
            }
            lane.phase.exchange.active_at = w.clock.now;
            const step = websocket.feed(unread, &lane.out().queue, &w.pool) catch
                return giveUp(w, lane);
            const goes_on = act(w, lane, websocket, step.event) catch return giveUp(w, lane);
            used.* += if (goes_on) step.consumed else 0;
            return goes_on and step.event != .need_more;
        }

        /// Handles an event. False: it comes again in a later round.
        fn act(
            w: *W,
            lane: *Lane,
            websocket: *WebSocket,
            event: WebSocket.Event,
        ) error{OutOfMemory}!bool {
            assert(lane.websocket() == websocket);
            switch (event) {
                .need_more => w.cutShort(lane),
                .handled => {},
                .message => |message| try offer(w, lane, websocket, message),
                .compressed => |message| return inflate(w, lane, websocket, message),
                .ending => {
                    const exchange = lane.phase.exchange;
                    if (hostOwesMessages(w, exchange)) {
                        // The host may answer the messages. The end comes again when the host has read them.
                        w.waiting.park(lane);
                        return false;
                    }
                    if (!websocket.postponed and w.isHostAtWork(exchange)) {
                        // The host may not have seen earlier messages yet, and gets this round to answer
                        // them. The lane comes back here in the next round.
                        websocket.postponed = true;
                        w.waiting.yield(lane);
                        return false;
                    }
                    endWebSocket(w, lane, websocket);
                },
            }
            return true;
        }

        fn hostOwesMessages(w: *W, exchange: *const Exchange) bool {
            return if (@hasDecl(W.HostType, "owesMessages")) w.host.owesMessages(exchange) else false;
        }

        fn giveUp(w: *W, lane: *Lane) bool {
            w.fail(lane, .server_error);
            return false;
        }

        /// Delivers a message, or holds it.
        fn offer(
            w: *W,
            lane: *Lane,
            websocket: *WebSocket,
            message: WebSocket.Message,
        ) error{OutOfMemory}!void {
            assert(lane.websocket() == websocket);
            const is_behind = w.isHostBehind(lane.phase.exchange);
            const takes = websocket.incoming.takes(message.bytes.len) and
                w.budget.takesMessage(message.bytes.len);
            if (takes and !is_behind) return deliver(w, lane, websocket, message, false);
            try websocket.incoming.hold(.{ .message = message.kind }, message.bytes, &w.pool);
            if (is_behind) w.waiting.park(lane);
            websocket.excusePong();
        }

        /// Inflates and delivers a message if it is short; a longer one is held.
        fn inflate(
            w: *W,
            lane: *Lane,
            websocket: *WebSocket,
            message: WebSocket.Message,
        ) error{OutOfMemory}!bool {
            assert(websocket.compression != null);
            const incoming = &websocket.incoming;
            if (w.isHostBehind(lane.phase.exchange)) {
                try incoming.hold(.{ .compressed = message.kind }, message.bytes, &w.pool);
                w.waiting.park(lane);
                websocket.excusePong();
                return true;
            }
            if (websocket.inflatesAtOnce(message)) {
                w.budget.charge(message.bytes.len * Budget.compressed_factor);
                if (try websocket.inflateAtOnce(message, &w.pool, &w.compression)) |event| switch (event) {
                    .message => |inflated| {
                        deliver(w, lane, websocket, inflated, true);
                        return true;
                    },
                    else => return act(w, lane, websocket, event),
                };
            }
            if (incoming.inflates()) {
                const ticket = lane.ticket();
                try incoming.lineUp(
                    message.kind,
                    message.bytes,
                    ticket,
                    &w.pool,
                    w.compression.gpa,
                    &w.inflations,
                );
            } else try incoming.hold(.{ .compressed = message.kind }, message.bytes, &w.pool);
            websocket.excusePong();
            return true;
        }

        /// Goes on with a held message. False: the lane waits for a later round.
        fn goOn(w: *W, lane: *Lane, websocket: *WebSocket) error{OutOfMemory}!bool {
            assert(websocket.incoming.held != .nothing);
            const incoming = &websocket.incoming;
            const held = incoming.held;
            const bytes = incoming.pieces.unread();
            if (w.isHostBehind(lane.phase.exchange)) {
                w.waiting.park(lane);
                return false;
            }
            switch (held) {
                .nothing, .inflating => unreachable, // a message is held
                .message => |kind| {
                    if (!w.budget.takesMessage(bytes.len)) {
                        w.waiting.yield(lane);
                        return false;
                    }
                    incoming.held = .nothing;
                    deliver(w, lane, websocket, .{ .kind = kind, .bytes = bytes }, false);
                    return true;
                },
                .compressed => |kind| {
                    incoming.held = .nothing;
                    return inflate(w, lane, websocket, .{ .kind = kind, .bytes = bytes });
                },
            }
        }

        fn deliver(
            w: *W,
            lane: *Lane,
            websocket: *WebSocket,
            message: WebSocket.Message,
            inflated: bool,
        ) void {
            assert(lane.websocket() == websocket);
            const exchange = lane.phase.exchange;
            w.budget.chargeMessage(message.bytes.len);
            trace.content(exchange, .message, message.bytes.len);
            if (w.counting.counters) |counters| counters.noteMessage(.in);
            websocket.incoming.noteDelivery(message.bytes.len, inflated);
            // A host that takes every message has handled it by then.
            if (websocket.incoming.flow != .all) exchange.given_bytes += message.bytes.len;
            w.host.message(w, exchange, message.kind, message.bytes);
            // The host may have ended the WebSocket.
            if (lane.websocket() == websocket) websocket.incoming.forget(&w.pool);
        }

        /// Goes on inflating large messages. A complete one is delivered in the next round, before the next
        /// one is begun. Called once a round.
        pub fn advance(w: *W) void {
            var cost: usize = 0;
            while (cost < Line.round_cost) {
                const inflation = w.inflations.first() orelse return;
                const lane = w.laneOf(inflation.ticket).?;
                const exchange = lane.phase.exchange;
                const websocket = exchange.openWebSocket().?;
                if (!inflation.begun and w.isHostBehind(exchange)) {
                    // The host is behind with its events, so the message waits in compressed form.
                    websocket.incoming.leaveLine(&w.pool, w.compression.gpa, &w.inflations);
                    w.waiting.park(lane);
                    continue;
                }
                exchange.active_at = w.clock.now;
                cost += websocket.inflateSlice(&w.pool, &w.compression, &w.inflations) catch {
                    w.fail(lane, .server_error);
                    continue;
                };
                if (websocket.incoming.held != .inflating) return w.waiting.cork(lane);
            }
        }

        /// Ends a WebSocket after the peer's last frame: queues the close frame, tells the host, and closes
        /// the connection after its output.
        fn endWebSocket(w: *W, lane: *Lane, websocket: *WebSocket) void {
            assert(lane.websocket() == websocket);
            const exchange = lane.phase.exchange;
            if (websocket.ending) |ending| if (ending == .failed) noteFailure(w, lane, ending.failed);
            trace.content(exchange, .closed, 0);
            websocket.end(exchange.out(), &w.pool) catch return w.fail(lane, .server_error);
            w.endExchange(exchange, .client_closed);
        }

        fn noteFailure(w: *W, lane: *Lane, failure: WebSocket.Failure) void {
            const is_frame = std.mem.eql(u8, failure.reason, "frame too big");
            const cause: Cause = if (failure.code != websocket_file.code_too_big)
                .request
            else if (is_frame) .frame_bytes_max else .message_bytes_max;
            w.tellRefusal(lane, cause, failure.code, failure.reason);
        }

        /// Acts on a deadline of a WebSocket.
        pub fn websocketDue(w: *W, lane: *Lane, exchange: *Exchange) void {
            assert(lane.current() == exchange);
            const websocket = exchange.openWebSocket().?;
            switch (websocket.due(w.clock.now)) {
                .nothing => w.arm(lane),
                .pong_missed => w.fail(lane, .keepalive_timeout),
                .close_unanswered => w.fail(
                    lane,
                    if (!w.endsWebSockets()) .client_timeout else .server_shutdown,
                ),
                .ping => {
                    websocket.ping(exchange.out(), &w.pool, w.clock.now) catch
                        return w.fail(lane, .server_error);
                    if (lane.out().state != .open or w.send(lane)) w.settle(lane);
                },
            }
        }
    };
}
