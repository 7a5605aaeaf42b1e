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
const Connection = @import("../connection.zig").Connection;
const Transport = @import("../transport.zig").Transport;

/// The methods of a worker that relay.
pub fn Relaying(comptime W: type) type {
    return struct {
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
            const local = w.openConnection(connection.listener, socket) catch return error.OutOfMemory;
            w.relays += 1;
            w.numbers -%= 1; // logs know it as its client
            local.number = connection.number;
            local.local = true;
            local.leaveServing(.{ .relaying = .{
                .other = connection.ticket,
                .active_at = w.now,
            } });
            exchange.relay = local.ticket;
            w.arm(local);
        }

        /// The application answers by its end of the stream alone: if that is closed there is no answer.
        pub fn only(w: *W, exchange: *Exchange) void {
            exchange.relay_only = true;
            if (exchange.relay == .none) lackAnswer(w, exchange);
        }

        /// Whether the application has sent something already, of which no event has told: then the exchange
        /// is over.
        pub fn hasSpoken(w: *W, exchange: *Exchange) bool {
            const connection = w.connectionOf(exchange.relay) orelse return false;
            var line: [status_line.len + 3]u8 = undefined;
            const len = io_layer.streams.peek(Transport.of(connection).socket, &line);
            return len > 0 and begin(w, connection, line[0..len]);
        }

        /// Bytes have come: they go on to the other connection. `connection` may be gone afterwards.
        pub fn relay(w: *W, connection: *Connection, bytes: []const u8) void {
            const other = w.connectionOf(connection.phase.relaying.other) orelse return w.close(connection);
            if (other.phase != .relaying and !begin(w, connection, bytes)) return w.close(connection);
            for ([_]*Connection{ connection, other }) |one| one.phase.relaying.active_at = w.now;
            other.outbox.append(&w.pool, bytes) catch return w.fail(connection, .server_error);
            connection.phase.relaying.full = other.queuedBytes() >= w.config.write_high_bytes;
            if (other.output == .open) w.cork(other);
            w.arm(connection);
        }

        /// The first bytes of the application: its exchange is over, and both connections relay. False: the
        /// exchange is answered otherwise, or gone.
        fn begin(w: *W, local: *Connection, first: []const u8) bool {
            const connection = w.connectionOf(local.phase.relaying.other) orelse return false;
            const exchange = connection.current() orelse return false;
            if (exchange.relay != local.ticket or exchange.ended) return false;
            if (connection.session.responseStarted(exchange.stream)) return false;
            local.outbox.append(&w.pool, connection.input.unread()) catch return false;
            connection.input.deinit(&w.pool);
            exchange.relay = .none;
            exchange.status = statusOf(first);
            exchange.ended = true;
            w.noteAnswer(exchange);
            connection.session.closeAfterResponse();
            if (!exchange.unannounced) w.host.finished(w, exchange);
            w.forget(exchange);
            connection.leaveServing(.{ .relaying = .{
                .other = local.ticket,
                .active_at = w.now,
            } });
            if (connection.sending == .ended) endOther(w, connection);
            w.arm(connection);
            w.cork(local);
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
        pub fn ended(w: *W, connection: *Connection) void {
            const relaying = &connection.phase.relaying;
            const other = w.connectionOf(relaying.other) orelse return w.close(connection);
            if (!connection.local) return endOther(w, connection);
            // The application has, and reads no more.
            if (other.phase == .relaying) closeClient(w, other);
            w.close(connection);
        }

        /// The client sends no more: the application reads that when it has read the rest.
        fn endOther(w: *W, client: *Connection) void {
            const other = w.connectionOf(client.phase.relaying.other) orelse return;
            if (other.phase.relaying.ending != .no) return;
            other.phase.relaying.ending = .due;
            w.cork(other);
        }

        /// The server stops: the application gets to end its connection in order.
        pub fn goAway(w: *W, connection: *Connection) void {
            if (!connection.local) endOther(w, connection);
        }

        /// What is queued for the client is sent, then the connection closes.
        fn closeClient(w: *W, client: *Connection) void {
            client.beginClosing();
            w.cork(client);
        }

        /// Output has moved.
        pub fn settle(w: *W, connection: *Connection) void {
            const relaying = &connection.phase.relaying;
            if (relaying.ending == .due and connection.isFlushed()) {
                relaying.ending = .done;
                w.io.shutdownSend(Transport.of(connection).socket);
            }
            if (connection.queuedBytes() >= w.config.write_low_bytes) return;
            const other = w.connectionOf(relaying.other) orelse return;
            if (other.phase != .relaying or !other.phase.relaying.full) return;
            other.phase.relaying.full = false;
            w.arm(other);
        }

        /// A connection of a relay carries nothing more: the other one comes to its end, too.
        pub fn leave(w: *W, connection: *Connection, name: Ticket) void {
            const other = w.connectionOf(name) orelse return;
            if (other.phase == .relaying) {
                if (other.local) w.close(other) else closeClient(w, other);
            } else if (other.current()) |exchange| if (exchange.relay == connection.ticket) {
                exchange.relay = .none;
                if (exchange.relay_only) lackAnswer(w, exchange);
            };
        }

        /// The exchange ends otherwise.
        pub fn drop(w: *W, exchange: *Exchange) void {
            const connection = w.connectionOf(exchange.relay);
            exchange.relay = .none;
            if (connection) |one| w.close(one);
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
