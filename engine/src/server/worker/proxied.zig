//! The part of a worker that learns from proxies whose connections they bring: the header of the PROXY
//! protocol, before TLS and everything else. Connections at other listeners never come here. (What proxies
//! say in header fields: client.zig.)
const proxy = @import("protocol").proxy;
const io_layer = @import("io");
const addressOf = @import("../client.zig").addressOf;
const Trust = @import("../client.zig").Trust;
const Networks = @import("../networks.zig").Networks;
const Connection = @import("../connection.zig").Connection;

/// The methods of a worker that serve connections with a header before them.
pub fn Proxied(comptime W: type) type {
    return struct {
        /// Connections that come in at this listener from now on have to begin with a header, and to come
        /// from one of `proxies`: whoever else connects is cut, because who may connect may say anything.
        /// Null: no header. The worker takes the list over.
        pub fn proxyListener(w: *W, listener: u32, proxies: ?Networks) void {
            const slot = &w.listeners.items[listener].proxies;
            if (slot.*) |*before| before.deinit();
            slot.* = proxies;
        }

        /// Believes these proxies, when they connect from now on, what they say about clients in header
        /// fields; null: none. The worker takes the list over.
        pub fn trustProxies(w: *W, trust: ?Trust) void {
            if (w.trust) |*before| before.networks.deinit();
            w.trust = trust;
        }

        /// A connection has come in from such a place.
        pub fn expectHeader(
            w: *W,
            connection: *Connection,
            proxies: *const Networks,
            from: *const io_layer.Address,
        ) void {
            if (!proxies.contains(from)) {
                return cut(w, connection, "the peer is none of the trusted proxies");
            }
            connection.phase = .{ .proxy_header = .{ .since = w.now } };
            w.arm(connection);
        }

        /// Bytes came of a connection whose header is not complete.
        pub fn receiveHeader(w: *W, connection: *Connection, bytes: []u8) void {
            const phase = &connection.phase.proxy_header;
            var unread = bytes;
            if (phase.rest == null) {
                const held = connection.input.unread();
                var space: [proxy.bytes_max]u8 = undefined;
                const added = @min(bytes.len, space.len - held.len);
                @memcpy(space[0..held.len], held);
                @memcpy(space[held.len..][0..added], bytes[0..added]);
                switch (proxy.parse(space[0 .. held.len + added])) {
                    // Had there been more bytes than room, it would not need more.
                    .need_more => return connection.input.append(&w.pool, bytes) catch w.close(connection),
                    .malformed => |why| return cut(w, connection, why),
                    .header => |header| {
                        unread = bytes[header.len - held.len ..];
                        connection.input.deinit(&w.pool);
                        phase.rest = header.rest;
                        if (header.ends) |ends| {
                            const client = addressOf(ends.source);
                            w.noteClient(connection, &client);
                            w.noteServer(connection, &addressOf(ends.destination));
                            if (!w.admit(connection, &client)) return;
                        }
                    },
                }
            }
            const skipped = @min(unread.len, phase.rest.?);
            phase.rest.? -= @intCast(skipped);
            if (phase.rest.? > 0) return;
            const ticket = connection.ticket;
            connection.awaitRequest(w.now);
            w.begin(connection);
            if (skipped == unread.len) return;
            // It may have been one too many.
            if (w.connectionOf(ticket)) |still| w.receive(still, unread[skipped..]);
        }

        /// Nothing can be answered before a header. One line a second, with the number of those that it
        /// stands for.
        fn cut(w: *W, connection: *Connection, reason: []const u8) void {
            if (w.counters) |counters| counters.noteRejection(.proxy_header);
            if (w.troubles.header.add(w.now)) |others| {
                var buffer: [256]u8 = undefined;
                w.say(.warn, &buffer, "PROXY protocol: {s} (connection {d} of {f}){f}", .{
                    reason, connection.number, connection.peerPlace(), others,
                });
            }
            w.close(connection);
        }
    };
}
