//! The part of a worker that learns from a proxy whose connection it brings: the header of the PROXY
//! protocol, which comes before TLS and requests. Connections at listeners without proxies never come here.
//! (client.zig has the header fields in which proxies name clients.)
const proxy = @import("protocol").proxy;
const io_layer = @import("io");
const addressOf = @import("../client.zig").addressOf;
const Networks = @import("../networks.zig").Networks;
const Transport = @import("../transport.zig").Transport;

pub fn Proxied(comptime W: type) type {
    return struct {
        const accept_part = @import("accept.zig").Accept(W);
        const input_part = @import("input.zig").Input(W);

        /// Sets the proxies of a listener. Its connections must come from one of them and begin with a
        /// header; other peers are cut, because they could claim any address. Null: connections have no
        /// header. The worker owns the list from now on.
        pub fn proxyListener(w: *W, listener: u32, proxies: ?Networks) void {
            const slot = &w.listeners.items[listener].proxies;
            if (slot.*) |*before| before.deinit();
            slot.* = proxies;
        }

        /// Begins to wait for the header of a connection.
        pub fn expectHeader(
            w: *W,
            transport: *Transport,
            proxies: *const Networks,
            from: *const io_layer.Address,
        ) void {
            if (!proxies.contains(from)) {
                return cut(w, transport, "the peer is none of the trusted proxies");
            }
            transport.phase = .{ .proxy_header = .{ .since = w.clock.now } };
            w.arm(&transport.lane);
        }

        /// Reads bytes of a header.
        pub fn receiveHeader(w: *W, transport: *Transport, bytes: []u8) void {
            const phase = &transport.phase.proxy_header;
            var unread = bytes;
            if (phase.rest == null) {
                const held = transport.lane.input.unread();
                var space: [proxy.bytes_max]u8 = undefined;
                const added = @min(bytes.len, space.len - held.len);
                @memcpy(space[0..held.len], held);
                @memcpy(space[held.len..][0..added], bytes[0..added]);
                switch (proxy.parse(space[0 .. held.len + added])) {
                    // The parser asks for no more bytes than there is room for.
                    .need_more => return transport.lane.input.append(&w.pool, bytes) catch
                        w.close(&transport.lane),
                    .malformed => |why| return cut(w, transport, why),
                    .header => |header| {
                        unread = bytes[header.len - held.len ..];
                        transport.lane.input.deinit(&w.pool);
                        phase.rest = header.rest;
                        const server = if (header.ends) |ends| addressOf(ends.destination) else null;
                        accept_part.noteServer(w, transport, if (server) |*named| named else null) catch
                            return w.close(&transport.lane);
                        if (header.ends) |ends| {
                            const client = addressOf(ends.source);
                            accept_part.noteClient(w, transport, &client) catch
                                return w.close(&transport.lane);
                            if (!accept_part.admit(w, transport, &client)) return;
                        }
                    },
                }
            }
            const skipped = @min(unread.len, phase.rest.?);
            phase.rest.? -= @intCast(skipped);
            if (phase.rest.? > 0) return;
            const ticket = transport.lane.ticket();
            transport.awaitRequest(w.clock.now);
            accept_part.begin(w, transport);
            if (skipped == unread.len) return;
            // The connection may be over the limit and gone.
            if (w.transportOf(ticket)) |still| input_part.receive(w, still, unread[skipped..]);
        }

        /// Cuts a connection without a response, which needs a header before it. The log has at most a line a
        /// second, with the number of further connections.
        fn cut(w: *W, transport: *Transport, reason: []const u8) void {
            if (w.counting.counters) |counters| counters.noteRejection(.proxy_header);
            if (w.troubles.header.add(w.clock.now)) |others| {
                var buffer: [256]u8 = undefined;
                w.say(.warn, &buffer, "PROXY protocol: {s} (connection {d} of {f}){f}", .{
                    reason, transport.number, transport.peerPlace(), others,
                });
            }
            w.close(&transport.lane);
        }
    };
}
