//! A worker's view of a place where connections come in.
//! Does not know: how connections are accepted.
const std = @import("std");
const io = @import("io");
const tls = @import("tls");
const LocalAddress = @import("local_address.zig").LocalAddress;
const Networks = @import("networks.zig").Networks;

/// A place where connections come in.
pub const Listener = struct {
    /// The io's number for the listener; null: the worker does not accept there.
    id: ?u32,
    address: io.Address,
    /// The TLS context of the listener's connections.
    tls: ?*tls.Context = null,
    /// Proxies whose connections begin with a header of the PROXY protocol; null: none.
    proxies: ?Networks = null,
    /// The path of a Unix socket, "@name" for an abstract one; empty for other addresses.
    path: io.Address.Unix = .{ .buffer = undefined, .length = 0 },
    /// The local address of the latest connection.
    latest: ?*LocalAddress = null,

    /// Creates a listener; the path of a Unix socket is taken from `address`.
    pub fn at(id: ?u32, address: io.Address) Listener {
        var listener: Listener = .{ .id = id, .address = address };
        if (address == .unix) listener.path = address.unix;
        if (listener.path.length > 0 and listener.path.buffer[0] == 0) listener.path.buffer[0] = '@';
        return listener;
    }

    pub fn deinit(listener: *Listener, gpa: std.mem.Allocator) void {
        if (listener.proxies) |*proxies| proxies.deinit();
        LocalAddress.leave(&listener.latest, gpa);
    }
};
