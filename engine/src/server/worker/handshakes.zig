//! The part of a worker that negotiates TLS when established connections have had their turn
//! (../handshakes.zig says which is next).
const Tunnel = @import("../tunnel.zig").Tunnel;
const Transport = @import("../transport.zig").Transport;

/// The methods of a worker that shake hands.
pub fn Shaking(comptime W: type) type {
    return struct {
        const input_part = @import("input.zig").Input(W);
        const secure_part = @import("secure.zig").Secure(W);

        /// Bytes of a handshake have come: they wait for their turn.
        pub fn receive(w: *W, transport: *Transport, tunnel: *Tunnel, ciphertext: []const u8) void {
            transport.lane.input.append(&w.pool, ciphertext) catch return w.close(&transport.lane);
            w.handshakes.add(&tunnel.place, transport.lane.ticket);
            w.arm(&transport.lane);
        }

        /// Once a round, after everything else that came: as many steps as one round may take.
        pub fn advance(w: *W) void {
            if (w.handshakes.isEmpty()) return;
            var round = w.handshakes.begin(w.io.micros(), &w.config);
            while (round.next(&w.handshakes, w.io.micros())) |ticket| step(w, w.transportOf(ticket).?);
            w.handshakes.end(w.io.micros());
        }

        /// The peer has ended its sending side. True: behind a flight that waits for its turn, after which
        /// the end is told.
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
            const ticket = transport.lane.ticket;
            const has_ended = transport.phase.handshake.has_ended;
            // Requests may lie behind the handshake, and unparsed bytes of them are input as well.
            var flight = transport.lane.input;
            transport.lane.input = .{};
            defer flight.deinit(&w.pool);
            secure_part.unseal(w, transport, transport.tunnel.?, flight.unread());
            if (!has_ended) return;
            if (w.transportOf(ticket)) |left| input_part.peerEnded(w, left, .eof);
        }
    };
}
