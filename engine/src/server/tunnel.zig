//! The TLS layer of one connection: its session, and ciphertext on its way to the kernel. Exchanges write
//! plaintext into the connection's outbox as ever; output that is due is sealed into `wire`
//! (worker/secure.zig). Does not know: sockets, deadlines.
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
    /// Ciphertext that is not with the kernel yet.
    wire: Outbox = .{},
    /// The place of the handshake in the worker's line.
    place: Handshakes.Place = .{},
    /// No close_notify is owed any more: it is said, or the peer must see that it did not get everything.
    silent: bool = false,
    /// The session is one of those that keep their buffers.
    keeps_buffers: bool = false,
    /// The client's certificate, once it was asked for.
    peer: ?tls.Peer = null,

    /// A tunnel for a new connection, which may speak one of `protocols` (see tls.Session.init).
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

    /// Frees everything without telling the peer.
    pub fn destroy(tunnel: *Tunnel, pool: *Pool) void {
        tunnel.wire.deinit(pool);
        assert(!tunnel.place.waits);
        if (tunnel.peer) |*peer| peer.deinit();
        tunnel.session.deinit();
        tunnel.gpa.destroy(tunnel);
    }

    /// The client's certificate; only when there is an agreement. Valid as long as the connection.
    pub fn clientCertificate(tunnel: *Tunnel) error{OutOfMemory}!*const tls.Peer {
        if (tunnel.peer == null) tunnel.peer = try tunnel.session.peer(tunnel.gpa);
        return &tunnel.peer.?;
    }
};
