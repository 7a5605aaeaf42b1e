//! The part of a worker that gives an application the connection of a WebSocket handshake for a protocol of
//! its own (../relay.zig), as PSGI's `psgix.io`. The application has one end of a stream (io/streams.zig);
//! the worker has the other end as a transport of its own (`Transport.local`).
//!
//! Until the application sends a byte, the exchange can be answered as any other, which ends the offer. With
//! the first byte the exchange is over, and each of the two transports sends the bytes that the other one
//! receives. A peer is not read while its earlier bytes wait. The end of the client becomes the end of the
//! application's input; the end of the application closes the connection.
const std = @import("std");
const assert = std.debug.assert;
const io_layer = @import("io");
const Exchange = @import("../exchange.zig").Exchange;
const Ticket = @import("../slab.zig").Ticket;
const Transport = @import("../transport.zig").Transport;

pub fn Relaying(comptime W: type) type {
    return struct {
        const accept_part = @import("accept.zig").Accept(W);

        /// Reasons why there is no relay.
        pub const RelayError = error{
            /// The response has begun, the exchange has a relay already, or its connection carries streams.
            OutOfOrder,
            NotWebSocket,
            OutOfMemory,
        };

        /// Offers the connection of an exchange to the application that has the other end of the socket pair.
        /// The worker owns `fd` from now on, but not after an error. The relay counts as a connection.
        pub fn offer(w: *W, exchange: *Exchange, fd: i32) RelayError!void {
            const lane = exchange.lane;
            if (exchange.websocket == null) return error.NotWebSocket;
            const is_free = !lane.isStream() and lane.current() == exchange and
                exchange.relay == .none and !exchange.relay_only and
                !lane.session().responseStarted();
            if (!is_free) return error.OutOfOrder;
            if (w.connectionCount() >= w.connections_max) return error.OutOfMemory;
            const socket = io_layer.streams.adopt(fd) catch return error.OutOfMemory;
            const local = accept_part.open(w, lane.transport.listener, socket) catch return error.OutOfMemory;
            w.relays += 1;
            w.numbers -%= 1; // both ends of a relay have the client's number in logs
            local.number = lane.transport.number;
            local.local = true;
            local.leaveServing(.{ .relaying = .begin(lane.ticket(), w.clock.now) });
            exchange.relay = local.lane.ticket();
            w.arm(&local.lane);
        }

        /// Leaves the response to the application's end of the stream. If that is closed, there is no
        /// response.
        pub fn only(w: *W, exchange: *Exchange) void {
            assert(!exchange.isEnded());
            exchange.relay_only = true;
            if (exchange.relay == .none) lackAnswer(w, exchange);
        }

        /// Whether the application has sent bytes, perhaps before an event has told of them. The exchange is
        /// over then.
        pub fn hasSpoken(w: *W, exchange: *Exchange) bool {
            const local = w.transportOf(exchange.relay) orelse return false;
            var line: [status_line.len + 3]u8 = undefined;
            const len = io_layer.streams.peek(local.socket, &line);
            return len > 0 and begin(w, local, line[0..len]);
        }

        /// Sends received bytes on the other transport. `transport` may be gone afterwards.
        pub fn relay(w: *W, transport: *Transport, bytes: []const u8) void {
            assert(bytes.len > 0);
            const lane = &transport.lane;
            const other = w.transportOf(transport.phase.relaying.other) orelse return w.close(lane);
            if (other.phase != .relaying and !begin(w, transport, bytes)) return w.close(lane);
            for ([_]*Transport{ transport, other }) |one| one.phase.relaying.noteActivity(w.clock.now);
            other.out.queue.append(&w.pool, bytes) catch return w.fail(lane, .server_error);
            transport.phase.relaying.setFull(other.queuedBytes() >= w.config.write_high_bytes);
            if (other.out.state == .open) w.waiting.cork(&other.lane);
            w.arm(lane);
        }

        /// Ends the exchange at the first bytes of its application, and lets both transports relay. False:
        /// the exchange has a response already, or is gone.
        fn begin(w: *W, local: *Transport, first: []const u8) bool {
            assert(local.local and first.len > 0);
            const client = w.transportOf(local.phase.relaying.other) orelse return false;
            const lane = &client.lane;
            const exchange = lane.current() orelse return false;
            if (exchange.relay != local.lane.ticket() or exchange.isEnded()) return false;
            if (lane.session().responseStarted()) return false;
            local.out.queue.append(&w.pool, lane.input.unread()) catch return false;
            lane.input.deinit(&w.pool);
            exchange.relay = .none;
            exchange.status = statusOf(first);
            exchange.response = .complete;
            w.noteAnswer(exchange);
            lane.session().closeAfterResponse();
            if (exchange.isHeard()) w.host.finished(w, exchange);
            w.forget(exchange);
            client.leaveServing(.{ .relaying = .begin(local.lane.ticket(), w.clock.now) });
            if (lane.sending == .ended) endOther(w, client);
            w.arm(lane);
            w.waiting.cork(&local.lane);
            return true;
        }

        /// The status for the access log: that of the application's own response head, or 101.
        fn statusOf(first: []const u8) u16 {
            if (first.len < status_line.len + 3 or !std.mem.startsWith(u8, first, status_line)) return 101;
            const status = std.fmt.parseInt(u16, first[status_line.len..][0..3], 10) catch return 101;
            return if (status >= 100) status else 101;
        }

        const status_line = "HTTP/1.1 ";

        /// Handles the end of a peer's sending side.
        pub fn ended(w: *W, transport: *Transport) void {
            const other = w.transportOf(transport.phase.relaying.other) orelse
                return w.close(&transport.lane);
            if (!transport.local) return endOther(w, transport);
            // The application has ended its side, and reads no more.
            if (other.phase == .relaying) closeClient(w, other);
            w.close(&transport.lane);
        }

        /// Ends the application's input, after the bytes that are still queued, because the client has ended
        /// its side.
        fn endOther(w: *W, client: *Transport) void {
            assert(!client.local);
            const other = w.transportOf(client.phase.relaying.other) orelse return;
            if (other.phase.relaying.beginEnding()) w.waiting.cork(&other.lane);
        }

        /// Ends the application's input because the server stops, so that the application can end its
        /// protocol.
        pub fn goAway(w: *W, transport: *Transport) void {
            if (!transport.local) endOther(w, transport);
        }

        /// Sends queued output to the client, then closes its connection.
        fn closeClient(w: *W, client: *Transport) void {
            assert(!client.local);
            client.lane.beginClosing();
            w.waiting.cork(&client.lane);
        }

        /// Goes on after output of a relay was sent.
        pub fn settle(w: *W, transport: *Transport) void {
            const relaying = &transport.phase.relaying;
            if (relaying.endsNow(transport.isFlushed())) w.io.shutdownSend(transport.socket);
            if (transport.queuedBytes() >= w.config.write_low_bytes) return;
            const other = w.transportOf(relaying.other) orelse return;
            if (other.phase != .relaying or !other.phase.relaying.isFull()) return;
            other.phase.relaying.setFull(false);
            w.arm(&other.lane);
        }

        /// Ends the other transport of a relay, because this one has ended.
        pub fn leave(w: *W, transport: *const Transport, name: Ticket) void {
            const other = w.transportOf(name) orelse return;
            if (other.phase == .relaying) {
                if (other.local) w.close(&other.lane) else closeClient(w, other);
            } else if (other.lane.current()) |exchange| if (exchange.relay == transport.lane.ticket()) {
                exchange.relay = .none;
                if (exchange.relay_only) lackAnswer(w, exchange);
            };
        }

        /// Closes the application's end, because the exchange ends in another way.
        pub fn drop(w: *W, exchange: *Exchange) void {
            assert(exchange.relay != .none);
            const local = w.transportOf(exchange.relay);
            exchange.relay = .none;
            if (local) |one| w.close(&one.lane);
        }

        /// Answers with 500, because the application has neither responded nor sent bytes, and will not.
        fn lackAnswer(w: *W, exchange: *Exchange) void {
            assert(exchange.relay == .none and exchange.relay_only);
            var buffer: [96]u8 = undefined;
            w.sayOf(exchange, .err, &buffer, "The application gave no response, nor spoke on psgix.io", .{});
            if (exchange.isHeard()) w.host.aborted(w, exchange, .server_error);
            exchange.silence();
            _ = w.start(exchange, .{
                .status = 500,
                .fields = &.{.init("Content-Type", "text/plain")},
                .body = "Internal Server Error",
                .end = true,
            }) catch w.abort(exchange);
        }
    };
}
