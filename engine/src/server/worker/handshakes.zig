//! The part of a worker that carries out TLS handshakes, after established connections had their turn
//! (../handshakes.zig).
const Tunnel = @import("../tunnel.zig").Tunnel;
const Transport = @import("../transport.zig").Transport;

pub fn Shaking(comptime W: type) type {
    return struct {
        const input_part = @import("input.zig").Input(W);
        const secure_part = @import("secure.zig").Secure(W);

        /// Keeps received bytes of a handshake until its turn.
        pub fn receive(w: *W, transport: *Transport, tunnel: *Tunnel, ciphertext: []const u8) void {
            transport.lane.input.append(&w.pool, ciphertext) catch return w.close(&transport.lane);
            w.handshakes.add(&tunnel.place, transport.lane.ticket());
            w.arm(&transport.lane);
        }

        /// Makes handshake steps, as many as one round may make. Called once a round, after all other input.
        pub fn advance(w: *W) void {
            if (w.handshakes.isEmpty()) return;
            var round = w.handshakes.begin(w.io.micros(), &w.config);
            while (round.next(&w.handshakes, w.io.micros())) |ticket| step(w, w.transportOf(ticket).?);
            w.handshakes.end(w.io.micros());
        }

        /// Notes the end of the peer's sending side if bytes of its handshake wait for their turn. True: the
        /// end is handled after them.
        pub fn postponesEnd(transport: *Transport) bool {
            switch (transport.phase) {
                .handshake => |*handshake| {
                    if (!transport.tunnel.?.place.waits) return false;
                    handshake.has_ended = true;
                    return true;
                },
                else => return false,
            }
        }

        fn step(w: *W, transport: *Transport) void {
            const ticket = transport.lane.ticket();
            const has_ended = transport.phase.handshake.has_ended;
            // The session's plaintext may become the lane's input, so the ciphertext is taken out first.
            var flight = transport.lane.input;
            transport.lane.input = .{};
            defer flight.deinit(&w.pool);
            secure_part.unseal(w, transport, transport.tunnel.?, flight.unread());
            if (!has_ended) return;
            if (w.transportOf(ticket)) |left| input_part.peerEnded(w, left, .eof);
        }
    };
}
