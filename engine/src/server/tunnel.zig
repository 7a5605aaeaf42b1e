//! The TLS layer of one connection: its session, and ciphertext on its way to the kernel. Exchanges write
//! plaintext into the transport's outbox; it is sealed into `wire` when it is due (worker/secure.zig). Does
//! not know: sockets, deadlines.
const std = @import("std");
const assert = std.debug.assert;
const tls = @import("tls");
const Handshakes = @import("handshakes.zig").Handshakes;
const Outbox = @import("outbox.zig").Outbox;
const Pool = @import("pool.zig").Pool;

/// The TLS layer of one connection.
pub const Tunnel = struct {
    gpa: std.mem.Allocator,
    session: tls.Session,
    /// Ciphertext that the kernel has not taken.
    wire: Outbox = .{},
    /// The connection's place among the handshakes that wait.
    place: Handshakes.Place = .{},
    /// No close_notify is sent any more: it was sent, or the peer must notice that its data is incomplete.
    silent: bool = false,
    /// The session keeps its buffers while it is idle (`tls_buffers_kept_max`).
    keeps_buffers: bool = false,
    /// The client's certificate, after the first call of `clientCertificate`.
    peer: ?tls.Peer = null,

    /// Creates the tunnel of a new connection, which may agree on one of `protocols` (see tls.Session.init).
    pub fn create(
        gpa: std.mem.Allocator,
        context: *tls.Context,
        protocols: []const tls.Protocol,
    ) error{OutOfMemory}!*Tunnel {
        const tunnel = try gpa.create(Tunnel);
        errdefer gpa.destroy(tunnel);
        tunnel.* = .{ .gpa = gpa, .session = try .init(context, protocols) };
        return tunnel;
    }

    /// Frees the tunnel without a message to the peer.
    pub fn destroy(tunnel: *Tunnel, pool: *Pool) void {
        tunnel.wire.deinit(pool);
        assert(!tunnel.place.waits);
        if (tunnel.peer) |*peer| peer.deinit();
        tunnel.session.deinit();
        tunnel.gpa.destroy(tunnel);
    }

    /// The client's certificate, which is known after the handshake. Valid as long as the connection.
    pub fn clientCertificate(tunnel: *Tunnel) error{OutOfMemory}!*const tls.Peer {
        if (tunnel.peer == null) tunnel.peer = try tunnel.session.peer(tunnel.gpa);
        return &tunnel.peer.?;
    }
};
