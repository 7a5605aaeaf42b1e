//! The part of a worker that carries WebSockets: handshake, messages, keep-alive, the end.
const std = @import("std");
const handshake = @import("protocol").websocket.handshake;
const Refusal = @import("protocol").Refusal;
const Field = @import("protocol").http.Field;
const exchange_file = @import("../exchange.zig");
const Exchange = exchange_file.Exchange;
const Cause = @import("../tally.zig").Cause;
const Budget = @import("../budget.zig").Budget;
const Incoming = @import("../incoming.zig").Incoming;
const Line = @import("../inflation.zig").Line;
const Loan = @import("../loan.zig").Loan;
const websocket_file = @import("../websocket.zig");
const Connection = @import("../connection.zig").Connection;
const WebSocket = websocket_file.WebSocket;

/// The methods of a worker that serve WebSockets.
pub fn Live(comptime W: type) type {
    return struct {
        /// A request that offers to upgrade: remembers a well-formed WebSocket handshake for the host to
        /// accept. An upgrade to something else is served as a plain request.
        pub fn noteHandshake(w: *W, exchange: *Exchange) ?handshake.Refusal {
            const head = &w.head;
            const verdict = handshake.check(.{
                .method = head.method_text.of(head.text),
                .way = if (exchange.connection.carrier != null)
                    .connect
                else if (head.version == .http_1_1) .upgrade else .none,
                .carries_frames = switch (head.body) {
                    .none => exchange.connection.carrier == null,
                    .counted => |length| length == 0 and exchange.connection.carrier == null,
                    .chunked => exchange.connection.carrier != null,
                },
                .text = head.text,
                .fields = head.fields,
            });
            switch (verdict) {
                .not_websocket => return null,
                .refused => |refusal| return refusal,
                .accepted => |accepted| {
                    if (w.endsWebSockets() and !w.replaced) return stopping;
                    const slot = w.websockets.add() catch return .init(503, "Out of memory.", &.{});
                    slot.item.* = .init(accepted.key, head.text, head.fields, &w.config);
                    exchange.websocket = slot.item;
                    // What follows on a stream are frames already.
                    exchange.input = .complete;
                    head.body = .none;
                    return null;
                },
            }
        }

        const stopping: handshake.Refusal = .init(503, "The server is stopping.", &.{});

        /// The host is never told of it. A connection with one exchange at a time ends: what follows may be
        /// frames.
        pub fn refuseHandshake(
            w: *W,
            connection: *Connection,
            exchange: *Exchange,
            refusal: handshake.Refusal,
        ) void {
            w.stats.refused += 1;
            if (w.counters) |counters| counters.noteRefusal(refusal.status);
            exchange.unannounced = true;
            if (connection.carrier == null) connection.session.closeAfterResponse();
            w.tellOf(connection, .request, refusal.status, refusal.reason);
            _ = w.start(exchange, .{
                .status = refusal.status,
                .fields = refusal.fields,
                .body = refusal.reason,
                .end = true,
            }) catch w.abort(exchange);
        }

        /// Why a handshake is not completed.
        pub const AcceptError = Exchange.SwitchError || error{NotWebSocket};

        /// Completes the handshake. `fields` are sent besides those that the protocol needs.
        pub fn acceptWebSocket(
            w: *W,
            exchange: *Exchange,
            subprotocol: ?[]const u8,
            fields: []const Field,
        ) AcceptError!void {
            const websocket = exchange.websocket orelse return error.NotWebSocket;
            if (websocket.state != .handshake) return error.OutOfOrder;
            try exchange.switchProtocols(&w.pool, websocket, subprotocol, fields, w.date.text());
            w.noteAnswer(exchange);
            websocket.state = .open;
            if (exchange.connection.carrier) |carrier| w.cork(carrier);
            if (w.counters) |counters| counters.note("websockets");
            exchange.idle_ms = w.config.websocket_idle_ms;
            exchange.idle_reason = .idle_timeout;
            exchange.active_at = w.now;
            w.cork(exchange.connection);
            // Without memory for the close frame the WebSocket stays open until the worker cuts it.
            if (w.endsWebSockets() and w.replaced) closeForStop(w, exchange) catch {};
        }

        /// The worker stops: closes an open WebSocket. One that the host has not accepted is refused where
        /// the server stops; where another worker takes over, its client is to come again at once, which only
        /// a close code tells: so that WebSocket is closed when the host has accepted it.
        pub fn goAway(w: *W, exchange: *Exchange) void {
            const websocket = exchange.openWebSocket() orelse
                return if (w.replaced) {} else turnDown(w, exchange);
            if (!websocket.isOpen()) return;
            closeForStop(w, exchange) catch w.fail(exchange.connection, .server_shutdown);
        }

        fn closeForStop(w: *W, exchange: *Exchange) CloseError!void {
            try closeWebSocket(w, exchange, if (w.replaced)
                websocket_file.code_service_restart
            else
                websocket_file.code_going_away, "");
            exchange.websocket.?.state.closing.why = .server_shutdown;
        }

        fn turnDown(w: *W, exchange: *Exchange) void {
            // The host is about to refuse it in its own words.
            if (exchange.connection.session.responseStarted(exchange.stream)) return;
            const connection = exchange.connection;
            const refusal: Refusal = .{ .status = stopping.status, .detail = stopping.reason };
            const stream = exchange.stream;
            exchange.noteRefusal(refusal, w.refusedBytes(refusal));
            w.endExchange(exchange, .server_shutdown);
            w.refuse(connection, stream, refusal);
        }

        pub const SendError = websocket_file.SendError;

        /// Sends one message.
        pub fn sendMessage(
            w: *W,
            exchange: *Exchange,
            kind: websocket_file.Kind,
            bytes: []const u8,
        ) SendError!W.Outcome {
            return sendLent(w, exchange, kind, bytes, null);
        }

        /// The same; with a loan, and unless it is compressed, without a copy: as `writeLent`.
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
            if (w.counters) |counters| counters.noteMessage(.out);
            return w.queued(exchange);
        }

        /// Why the closing handshake does not begin.
        pub const CloseError = websocket_file.CloseError || error{NotWebSocket};

        /// Starts the closing handshake; `closed` follows when the peer has answered, or its
        /// deadline has passed.
        pub fn closeWebSocket(w: *W, exchange: *Exchange, code: u16, reason: []const u8) CloseError!void {
            const websocket = exchange.openWebSocket() orelse return error.NotWebSocket;
            try websocket.close(code, reason, w.now + w.config.close_ms, exchange.out(), &w.pool);
            // What still comes is not for the host, but for the peer's close frame.
            if (websocket.incoming.held != .nothing) {
                websocket.incoming.drop(&w.pool, w.compression.gpa, &w.inflations);
            }
            websocket.incoming.setFlow(.all);
            const connection = exchange.connection;
            w.cork(connection);
            if (w.pumping != connection) w.arm(connection);
        }

        /// Sets when pings are sent and what a missing pong means.
        pub fn setKeepalive(
            w: *W,
            exchange: *Exchange,
            interval_ms: u32,
            timeout_ms: u32,
        ) error{NotWebSocket}!void {
            const websocket = exchange.openWebSocket() orelse return error.NotWebSocket;
            websocket.setKeepalive(interval_ms, timeout_ms, w.now);
            if (w.pumping != exchange.connection) w.arm(exchange.connection);
        }

        /// Which messages the host takes from now on.
        pub fn setFlow(w: *W, exchange: *Exchange, flow: Incoming.Flow) error{NotWebSocket}!void {
            const websocket = exchange.openWebSocket() orelse return error.NotWebSocket;
            if (websocket.state != .open) return;
            websocket.setFlow(flow);
            w.cork(exchange.connection);
        }

        /// The host of an open WebSocket asks for its next message.
        pub fn ask(w: *W, exchange: *Exchange, websocket: *WebSocket) void {
            websocket.incoming.ask();
            exchange.given_bytes = 0;
            if (websocket.isReady()) w.cork(exchange.connection);
        }

        /// Ends the exchange when no byte moved in either direction for so long; 0: never.
        pub fn setIdleLimit(w: *W, exchange: *Exchange, idle_ms: u32) void {
            exchange.idle_ms = idle_ms;
            exchange.idle_reason = .idle_timeout;
            exchange.active_at = w.now;
            if (w.pumping != exchange.connection) w.arm(exchange.connection);
        }

        /// Hands one event of the WebSocket to the host; false when there is nothing more to parse for now.
        pub fn feedWebSocket(
            w: *W,
            connection: *Connection,
            websocket: *WebSocket,
            unread: []u8,
            used: *usize,
        ) bool {
            if (websocket.incoming.held != .nothing) {
                return goOn(w, connection, websocket) catch giveUp(w, connection);
            }
            if (unread.len == 0 and websocket.ending == null) {
                w.cutShort(connection);
                return false;
            }
            connection.lane.phase.exchange.active_at = w.now;
            const step = websocket.feed(unread, &connection.outbox, &w.pool) catch
                return giveUp(w, connection);
            const goes_on = act(w, connection, websocket, step.event) catch return giveUp(w, connection);
            used.* += if (goes_on) step.consumed else 0;
            return goes_on and step.event != .need_more;
        }

        /// What becomes of an event; false: it comes again in the next round.
        fn act(
            w: *W,
            connection: *Connection,
            websocket: *WebSocket,
            event: WebSocket.Event,
        ) error{OutOfMemory}!bool {
            switch (event) {
                .need_more => w.cutShort(connection),
                .handled => {},
                .message => |message| try offer(w, connection, websocket, message),
                .compressed => |message| return inflate(w, connection, websocket, message),
                .ending => {
                    const exchange = connection.lane.phase.exchange;
                    if (hostOwesMessages(w, exchange)) {
                        // It gets to answer them, and we look again when it has read on.
                        w.park(connection);
                        return false;
                    }
                    if (!websocket.postponed and w.isHostAtWork(exchange)) {
                        // Messages that came before it may not have been seen yet: the host gets to answer
                        // them, in this one round. What is left unread brings us back here.
                        websocket.postponed = true;
                        w.yield(connection);
                        return false;
                    }
                    endWebSocket(w, connection, websocket);
                },
            }
            return true;
        }

        fn hostOwesMessages(w: *W, exchange: *const Exchange) bool {
            return if (@hasDecl(W.HostType, "owesMessages")) w.host.owesMessages(exchange) else false;
        }

        fn giveUp(w: *W, connection: *Connection) bool {
            w.fail(connection, .server_error);
            return false;
        }

        /// Delivers a message, or holds it back.
        fn offer(
            w: *W,
            connection: *Connection,
            websocket: *WebSocket,
            message: WebSocket.Message,
        ) error{OutOfMemory}!void {
            const is_behind = w.isHostBehind(connection.lane.phase.exchange);
            const takes = websocket.incoming.takes(message.bytes.len) and
                w.budget.takesMessage(message.bytes.len);
            if (takes and !is_behind) return deliver(w, connection, websocket, message, false);
            try websocket.incoming.hold(.{ .message = message.kind }, message.bytes, &w.pool);
            if (is_behind) w.park(connection);
            websocket.excusePong();
        }

        /// Inflates and delivers a message if that takes no time; otherwise it is held.
        fn inflate(
            w: *W,
            connection: *Connection,
            websocket: *WebSocket,
            message: WebSocket.Message,
        ) error{OutOfMemory}!bool {
            const incoming = &websocket.incoming;
            if (w.isHostBehind(connection.lane.phase.exchange)) {
                try incoming.hold(.{ .compressed = message.kind }, message.bytes, &w.pool);
                w.park(connection);
                websocket.excusePong();
                return true;
            }
            if (websocket.inflatesAtOnce(message)) {
                w.budget.charge(message.bytes.len * Budget.compressed_factor);
                if (try websocket.inflateAtOnce(message, &w.pool, &w.compression)) |event| switch (event) {
                    .message => |inflated| {
                        deliver(w, connection, websocket, inflated, true);
                        return true;
                    },
                    else => return act(w, connection, websocket, event),
                };
            }
            if (incoming.inflates()) {
                const ticket = connection.ticket;
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

        /// Goes on with a message that was held; false: not in this round.
        fn goOn(w: *W, connection: *Connection, websocket: *WebSocket) error{OutOfMemory}!bool {
            const incoming = &websocket.incoming;
            const held = incoming.held;
            const bytes = incoming.pieces.unread();
            if (w.isHostBehind(connection.lane.phase.exchange)) {
                w.park(connection);
                return false;
            }
            switch (held) {
                .nothing, .inflating => unreachable, // nothing is there to go on with
                .message => |kind| {
                    if (!w.budget.takesMessage(bytes.len)) {
                        w.yield(connection);
                        return false;
                    }
                    incoming.held = .nothing;
                    deliver(w, connection, websocket, .{ .kind = kind, .bytes = bytes }, false);
                    return true;
                },
                .compressed => |kind| {
                    incoming.held = .nothing;
                    return inflate(w, connection, websocket, .{ .kind = kind, .bytes = bytes });
                },
            }
        }

        fn deliver(
            w: *W,
            connection: *Connection,
            websocket: *WebSocket,
            message: WebSocket.Message,
            inflated: bool,
        ) void {
            const exchange = connection.lane.phase.exchange;
            w.budget.chargeMessage(message.bytes.len);
            if (w.counters) |counters| counters.noteMessage(.in);
            websocket.incoming.noteDelivery(message.bytes.len, inflated);
            // Who takes every message is done with it.
            if (websocket.incoming.flow != .all) exchange.given_bytes += message.bytes.len;
            w.host.message(w, exchange, message.kind, message.bytes);
            // Unless the host has ended it.
            if (connection.websocket() == websocket) websocket.incoming.forget(&w.pool);
        }

        /// Once a round: goes on inflating large messages. One that is complete is delivered in the next
        /// round, before another is begun.
        pub fn advance(w: *W) void {
            var cost: usize = 0;
            while (cost < Line.round_cost) {
                const inflation = w.inflations.first() orelse return;
                const connection = w.connectionOf(inflation.ticket).?;
                const exchange = connection.lane.phase.exchange;
                const websocket = exchange.openWebSocket().?;
                if (!inflation.begun and w.isHostBehind(exchange)) {
                    // Those behind it may have another host.
                    websocket.incoming.leaveLine(&w.pool, w.compression.gpa, &w.inflations);
                    w.park(connection);
                    continue;
                }
                exchange.active_at = w.now;
                cost += websocket.inflateSlice(&w.pool, &w.compression, &w.inflations) catch {
                    w.fail(connection, .server_error);
                    continue;
                };
                if (websocket.incoming.held != .inflating) return w.cork(connection);
            }
        }

        /// The peer has said its last word: it gets its answer, the host is told, what is queued is sent,
        /// the connection ends.
        fn endWebSocket(w: *W, connection: *Connection, websocket: *WebSocket) void {
            const exchange = connection.lane.phase.exchange;
            if (websocket.ending) |ending| if (ending == .failed) noteFailure(w, connection, ending.failed);
            websocket.end(exchange.out(), &w.pool) catch return w.fail(connection, .server_error);
            w.endExchange(exchange, .client_closed);
        }

        fn noteFailure(w: *W, connection: *Connection, failure: WebSocket.Failure) void {
            const is_frame = std.mem.eql(u8, failure.reason, "frame too big");
            const cause: Cause = if (failure.code != websocket_file.code_too_big)
                .request
            else if (is_frame) .frame_bytes_max else .message_bytes_max;
            w.tellRefusal(connection, cause, failure.code, failure.reason);
        }

        /// A deadline of a WebSocket has come.
        pub fn websocketDue(w: *W, connection: *Connection, exchange: *Exchange) void {
            const websocket = exchange.openWebSocket().?;
            switch (websocket.due(w.now)) {
                .nothing => w.arm(connection),
                .pong_missed => w.fail(connection, .keepalive_timeout),
                .close_unanswered => w.fail(
                    connection,
                    if (!w.endsWebSockets()) .client_timeout else .server_shutdown,
                ),
                .ping => {
                    websocket.ping(exchange.out(), &w.pool, w.now) catch
                        return w.fail(connection, .server_error);
                    if (connection.output != .open or w.flush(connection)) w.settle(connection);
                },
            }
        }
    };
}
