//! The part of a worker that gives an application the connection of a WebSocket handshake, to speak on it as
//! it likes: PSGI's `psgix.io`. The application has one end of a stream (io/streams.zig), the worker the
//! other one, which is a connection of its own here (`Connection.local`).
//!
//! Until the first byte comes from the application, nothing has happened: the exchange can be answered as any
//! other, which ends the offer. With that byte the exchange is over, and each of the two connections sends
//! what the other one receives. A peer is not read while what it sent before waits. The client's end becomes
//! the end of what the application reads; the application's end closes the connection in order.
const std = @import("std");
const io_layer = @import("io");
const Exchange = @import("../exchange.zig").Exchange;
const Ticket = @import("../slab.zig").Ticket;

/// The methods of a worker that relay.
pub fn Relaying(comptime W: type) type {
    return struct {
        const Peer = W.Peer;

        /// Why there is no relay.
        pub const RelayError = error{
            /// The response has begun, the exchange has one already, or its connection is not its own.
            OutOfOrder,
            NotWebSocket,
            OutOfMemory,
        };

        /// Offers the connection of an exchange to the application at the other end of this descriptor, which
        /// is the worker's from now on; after an error it is the caller's. Counts as a connection.
        pub fn offer(w: *W, exchange: *Exchange, fd: i32) RelayError!void {
            const connection = exchange.connection;
            if (exchange.websocket == null) return error.NotWebSocket;
            const is_free = connection.carrier == null and connection.current() == exchange and
                exchange.relay == .none and !exchange.relay_only and
                !connection.session.responseStarted(exchange.stream);
            if (!is_free) return error.OutOfOrder;
            if (w.connectionCount() >= w.connections_max) return error.OutOfMemory;
            const socket = io_layer.streams.adopt(fd) catch return error.OutOfMemory;
            const peer = w.openPeer(connection.listener, socket) catch return error.OutOfMemory;
            w.relays += 1;
            w.numbers -%= 1; // logs know it as its client
            peer.connection.number = connection.number;
            peer.connection.local = true;
            peer.connection.leaveServing(.{ .relaying = .{
                .other = connection.ticket,
                .active_at = w.now,
            } });
            exchange.relay = peer.connection.ticket;
            w.arm(peer);
        }

        /// The application answers by its end of the stream alone: if that is closed there is no answer.
        pub fn only(w: *W, exchange: *Exchange) void {
            exchange.relay_only = true;
            if (exchange.relay == .none) lackAnswer(w, exchange);
        }

        /// Whether the application has sent something already, of which no event has told: then the exchange
        /// is over.
        pub fn hasSpoken(w: *W, exchange: *Exchange) bool {
            const peer = w.peers.get(exchange.relay) orelse return false;
            var line: [status_line.len + 3]u8 = undefined;
            const len = io_layer.streams.peek(peer.socket, &line);
            return len > 0 and begin(w, peer, line[0..len]);
        }

        /// Bytes have come: they go on to the other connection. `peer` may be gone afterwards.
        pub fn relay(w: *W, peer: *Peer, bytes: []const u8) void {
            const other = w.peers.get(peer.connection.phase.relaying.other) orelse return w.close(peer);
            if (other.connection.phase != .relaying and !begin(w, peer, bytes)) return w.close(peer);
            for ([_]*Peer{ peer, other }) |one| one.connection.phase.relaying.active_at = w.now;
            other.connection.outbox.append(&w.pool, bytes) catch return w.fail(peer, .server_error);
            peer.connection.phase.relaying.full = other.connection.queuedBytes() >= w.config.write_high_bytes;
            if (other.connection.output == .open) w.cork(other);
            w.arm(peer);
        }

        /// The first bytes of the application: its exchange is over, and both connections relay. False: the
        /// exchange is answered otherwise, or gone.
        fn begin(w: *W, peer: *Peer, first: []const u8) bool {
            const client = w.peers.get(peer.connection.phase.relaying.other) orelse return false;
            const connection = &client.connection;
            const exchange = connection.current() orelse return false;
            if (exchange.relay != peer.connection.ticket or exchange.ended) return false;
            if (connection.session.responseStarted(exchange.stream)) return false;
            peer.connection.outbox.append(&w.pool, connection.input.unread()) catch return false;
            connection.input.deinit(&w.pool);
            exchange.relay = .none;
            exchange.status = statusOf(first);
            exchange.ended = true;
            w.noteAnswer(exchange);
            connection.session.closeAfterResponse();
            if (!exchange.unannounced) w.host.finished(w, exchange);
            w.forget(exchange);
            connection.leaveServing(.{ .relaying = .{
                .other = peer.connection.ticket,
                .active_at = w.now,
            } });
            if (connection.sending == .ended) endOther(w, client);
            w.arm(client);
            w.cork(peer);
            return true;
        }

        /// For the access log: what the application's own head says, 101 if that is none.
        fn statusOf(first: []const u8) u16 {
            if (first.len < status_line.len + 3 or !std.mem.startsWith(u8, first, status_line)) return 101;
            const status = std.fmt.parseInt(u16, first[status_line.len..][0..3], 10) catch return 101;
            return if (status >= 100) status else 101;
        }

        const status_line = "HTTP/1.1 ";

        /// A peer has ended its sending side.
        pub fn ended(w: *W, peer: *Peer) void {
            const relaying = &peer.connection.phase.relaying;
            const other = w.peers.get(relaying.other) orelse return w.close(peer);
            if (!peer.connection.local) return endOther(w, peer);
            // The application has, and reads no more.
            if (other.connection.phase == .relaying) closeClient(w, other);
            w.close(peer);
        }

        /// The client sends no more: the application reads that when it has read the rest.
        fn endOther(w: *W, client: *Peer) void {
            const other = w.peers.get(client.connection.phase.relaying.other) orelse return;
            if (other.connection.phase.relaying.ending != .no) return;
            other.connection.phase.relaying.ending = .due;
            w.cork(other);
        }

        /// The server stops: the application gets to end its connection in order.
        pub fn goAway(w: *W, peer: *Peer) void {
            if (!peer.connection.local) endOther(w, peer);
        }

        /// What is queued for the client is sent, then the connection closes.
        fn closeClient(w: *W, client: *Peer) void {
            client.connection.beginClosing();
            w.cork(client);
        }

        /// Output has moved.
        pub fn settle(w: *W, peer: *Peer) void {
            const connection = &peer.connection;
            const relaying = &connection.phase.relaying;
            if (relaying.ending == .due and connection.isFlushed()) {
                relaying.ending = .done;
                w.io.shutdownSend(peer.socket);
            }
            if (connection.queuedBytes() >= w.config.write_low_bytes) return;
            const other = w.peers.get(relaying.other) orelse return;
            if (other.connection.phase != .relaying or !other.connection.phase.relaying.full) return;
            other.connection.phase.relaying.full = false;
            w.arm(other);
        }

        /// A connection of a relay carries nothing more: the other one comes to its end, too.
        pub fn leave(w: *W, peer: *Peer, name: Ticket) void {
            const other = w.peers.get(name) orelse return;
            if (other.connection.phase == .relaying) {
                if (other.connection.local) w.close(other) else closeClient(w, other);
            } else if (other.connection.current()) |exchange| if (exchange.relay == peer.connection.ticket) {
                exchange.relay = .none;
                if (exchange.relay_only) lackAnswer(w, exchange);
            };
        }

        /// The exchange ends otherwise.
        pub fn drop(w: *W, exchange: *Exchange) void {
            const peer = w.peers.get(exchange.relay);
            exchange.relay = .none;
            if (peer) |one| w.close(one);
        }

        /// The application has neither answered nor spoken, and will not.
        fn lackAnswer(w: *W, exchange: *Exchange) void {
            var buffer: [96]u8 = undefined;
            w.sayOf(exchange, .err, &buffer, "The application gave no response, nor spoke on psgix.io", .{});
            if (!exchange.unannounced) w.host.aborted(w, exchange, .server_error);
            exchange.unannounced = true;
            _ = w.start(exchange, .{
                .status = 500,
                .fields = &.{.init("Content-Type", "text/plain")},
                .body = "Internal Server Error",
                .end = true,
            }) catch w.abort(exchange);
        }
    };
}
