//! The part of a worker that negotiates TLS when established connections have had their turn
//! (../handshakes.zig says who is next).
const Tunnel = @import("../tunnel.zig").Tunnel;
const Connection = @import("../connection.zig").Connection;

/// The methods of a worker that shake hands.
pub fn Shaking(comptime W: type) type {
    return struct {
        /// Bytes of a handshake have come: they wait for their turn.
        pub fn receive(w: *W, connection: *Connection, tunnel: *Tunnel, ciphertext: []const u8) void {
            connection.input.append(&w.pool, ciphertext) catch return w.close(connection);
            w.handshakes.add(&tunnel.place, connection.ticket);
            w.arm(connection);
        }

        /// Once a round, after everything else that came: as many steps as one round may take.
        pub fn advance(w: *W) void {
            if (w.handshakes.isEmpty()) return;
            var round = w.handshakes.begin(w.io.micros(), &w.config);
            while (round.next(&w.handshakes, w.io.micros())) |ticket| step(w, w.connectionOf(ticket).?);
            w.handshakes.end(w.io.micros());
        }

        fn step(w: *W, connection: *Connection) void {
            // Requests may lie behind the handshake, and what is not parsed of them is input as well.
            var flight = connection.input;
            connection.input = .{};
            defer flight.deinit(&w.pool);
            w.unseal(connection, connection.tunnel.?, flight.unread());
        }
    };
}
