//! The part of a worker that negotiates TLS when established connections have had their turn
//! (../handshakes.zig says who is next).
const Tunnel = @import("../tunnel.zig").Tunnel;

/// The methods of a worker that shake hands.
pub fn Shaking(comptime W: type) type {
    return struct {
        const Peer = W.Peer;

        /// Bytes of a handshake have come: they wait for their turn.
        pub fn receive(w: *W, peer: *Peer, tunnel: *Tunnel, ciphertext: []const u8) void {
            peer.connection.input.append(&w.pool, ciphertext) catch return w.close(peer);
            w.handshakes.add(&tunnel.place, peer.connection.ticket);
            w.arm(peer);
        }

        /// Once a round, after everything else that came: as many steps as one round may take.
        pub fn advance(w: *W) void {
            if (w.handshakes.isEmpty()) return;
            var round = w.handshakes.begin(w.io.micros(), &w.config);
            while (round.next(&w.handshakes, w.io.micros())) |ticket| step(w, w.peers.get(ticket).?);
            w.handshakes.end(w.io.micros());
        }

        fn step(w: *W, peer: *Peer) void {
            const connection = &peer.connection;
            // Requests may lie behind the handshake, and what is not parsed of them is input as well.
            var flight = connection.input;
            connection.input = .{};
            defer flight.deinit(&w.pool);
            w.unseal(peer, connection.tunnel.?, flight.unread());
        }
    };
}
