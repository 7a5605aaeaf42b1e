//! The client of a request: the connection's peer, or the client that a trusted proxy names. Does not know:
//! what the address is used for.
const std = @import("std");
const Head = @import("protocol").Head;
const proxy = @import("protocol").proxy;
const io = @import("io");
const AddressText = @import("address_text.zig").AddressText;
const Lane = @import("lane.zig").Lane;
const Networks = @import("networks.zig").Networks;

/// The header fields in which proxies name the client of a request. A proxy passes on fields that it does not
/// know, so only one kind is believed: the client may have sent the other.
pub const ForwardedHeader = enum {
    /// X-Forwarded-For and X-Forwarded-Proto.
    x_forwarded,
    /// Forwarded (RFC 7239).
    forwarded,
};

/// Trusted proxies, and the header fields in which they name clients.
pub const Trust = struct { networks: Networks, header: ForwardedHeader };

/// The address of a request's client.
pub const Client = struct {
    /// Numeric text, with a NUL behind it for C; empty if the peer is on a Unix socket.
    address: [:0]const u8,
    /// The client's port; 0: a Unix socket, or a proxy that does not tell the port.
    port: u16,
    /// The client uses TLS to this server, or to a proxy that says so.
    secure: bool,

    pub const nobody: Client = .{ .address = "", .port = 0, .secure = false };

    /// The client of a request that came on a lane. The address that a proxy has named is written to `text`.
    pub fn of(
        lane: *const Lane,
        trust: *const ?Trust,
        head: *const Head,
        text: *AddressText,
    ) Client {
        const transport = lane.transport;
        var client: Client = .{
            .address = transport.peer_text.slice(),
            .port = transport.peer_port,
            .secure = transport.tunnel != null,
        };
        if (transport.trusted) if (trust.*) |*believed| client.believe(&follow(believed, head), text);
        return client;
    }

    fn believe(client: *Client, trail: *const Trail, text: *AddressText) void {
        if (trail.secure) |secure| client.secure = secure;
        const named = trail.client orelse return;
        var buffer: [io.Address.text_bytes_max]u8 = undefined;
        text.set(addressOf(named).unmapped().hostText(&buffer));
        client.address = text.slice();
        client.port = named.port;
    }
};

/// A worker's present client and its trusted proxies.
pub const Clients = struct {
    /// The client of the request that begins now. Its address may point into `text`.
    current: Client = .nobody,
    /// The address that a proxy has named for `current`.
    text: AddressText = .empty,
    /// Trusted proxies; null: none.
    trust: ?Trust = null,

    /// Sets `current`, when a request begins or its host is about to hear of it.
    pub inline fn note(clients: *Clients, lane: *const Lane, head: *const Head) void {
        clients.current = .of(lane, &clients.trust, head, &clients.text);
    }

    /// Replaces the trusted proxies. The worker owns the list from now on.
    pub fn setTrust(clients: *Clients, trust: ?Trust) void {
        if (clients.trust) |*before| before.networks.deinit();
        clients.trust = trust;
    }

    /// Whether the peer at this address is a trusted proxy.
    pub fn trusts(clients: *const Clients, peer: *const io.Address) bool {
        return if (clients.trust) |*trust| trust.networks.contains(peer) else false;
    }
};

const Trail = proxy.forwarded.Trail;

/// Reads the header fields of a request; several fields of a name are one list (RFC 9110 section 5.3).
fn follow(trust: *const Trust, head: *const Head) Trail {
    var trail: Trail = .{};
    var secure: ?bool = null;
    for (head.fields) |field| {
        switch (trust.header) {
            .x_forwarded => switch (field.id) {
                .x_forwarded_for => add(&trail, trust, proxy.forwarded.ForHops.init(field.value(head.text))),
                .x_forwarded_proto => secure = proxy.forwarded.lastProto(field.value(head.text)),
                else => {},
            },
            .forwarded => if (field.id == .forwarded) add(
                &trail,
                trust,
                proxy.forwarded.Hops.init(field.value(head.text)),
            ),
        }
    }
    if (trust.header == .x_forwarded) trail.secure = secure;
    return trail;
}

fn add(trail: *Trail, trust: *const Trust, hops: anytype) void {
    var it = hops;
    while (it.next()) |hop| trail.add(hop, switch (hop.from) {
        .address => |address| trust.networks.contains(&addressOf(address)),
        .hidden, .malformed => false,
    });
}

/// The address of a proxy's endpoint.
pub fn addressOf(end: proxy.Endpoint) io.Address {
    return switch (end.address) {
        .v4 => |bytes| .{ .v4 = .{ .bytes = bytes, .port = end.port } },
        .v6 => |bytes| .{ .v6 = .{ .bytes = bytes, .port = end.port } },
    };
}
