//! The part of a worker that lets connections in: slots, addresses, and the 503 for those that find no room.
const io_room = @import("io");
const http1 = @import("protocol").http1;
const Ticket = @import("../slab.zig").Ticket;
const Tunnel = @import("../tunnel.zig").Tunnel;

/// The methods of a worker that take connections in.
pub fn Accept(comptime W: type) type {
    return struct {
        const Peer = W.Peer;

        /// Takes over a connected socket (non-blocking, closed on exec) that came in at the listener with this number.
        pub fn adopt(w: *W, listener: u32, socket: io_room.Socket, from: io_room.Address) void {
            if (w.stopping != .no) return w.io.close(socket);
            const context = w.listeners.items[listener].tls;
            if (context) |tls| w.refreshCertificates(tls);
            const over = w.peers.count >= w.connections_max;
            // Some of those over the limit get time to read their 503; the rest, in a storm, get it and are cut.
            if (over and w.peers.count >= w.connections_max +| w.config.descriptors_reserved / 2) return rejectBluntly(w, listener, socket);
            const peer = open(w, listener, socket, from) catch return rejectBluntly(w, listener, socket);
            if (context) |tls| {
                peer.connection.tunnel = Tunnel.create(w.gpa, tls, over) catch return w.close(peer);
                peer.connection.phase = .{ .handshake = .{ .since = w.now } };
            } else if (over) return reject(w, peer);
            if (!over) w.stats.accepted += 1;
            w.arm(peer);
        }

        fn open(w: *W, listener: u32, socket: io_room.Socket, from: io_room.Address) !*Peer {
            const room = w.peers.count + 1;
            try w.corked.ensureTotalCapacity(w.gpa, room);
            try w.corked_spare.ensureTotalCapacity(w.gpa, room);
            const slot = try w.peers.add();
            errdefer w.peers.remove(slot.ticket);
            try w.io.add(socket, @backingInt(slot.ticket));
            w.numbers +%= 1;
            slot.item.* = .{
                .socket = socket,
                .connection = .{
                    .ticket = slot.ticket,
                    .session = .init(&w.limits),
                    .phase = .{ .idle = .{ .since = w.now } },
                    .number = w.numbers,
                    .listener = listener,
                },
            };
            noteAddresses(w, slot.item, &from);
            return slot.item;
        }

        fn noteAddresses(w: *W, peer: *Peer, from: *const io_room.Address) void {
            const connection = &peer.connection;
            var buffer: [io_room.Address.text_bytes_max]u8 = undefined;
            if (from.port()) |port| {
                connection.peer_port = port;
                connection.peer_text.set(from.hostText(&buffer));
            }
            const bound = &w.listeners.items[connection.listener].address;
            const local = if (bound.isWildcard()) w.io.localAddress(peer.socket) orelse bound.* else bound.*;
            if (local.port()) |port| {
                connection.local_port = port;
                connection.local_text.set(local.hostText(&buffer));
            }
        }

        /// The worker's number of a listener of the io.
        pub fn listenerNumber(w: *const W, id: u32) u32 {
            for (w.listeners.items, 0..) |listener, number| {
                if (listener.id == id) return @intCast(number);
            }
            unreachable; // the io only names listeners that it was given
        }

        fn reject(w: *W, peer: *Peer) void {
            queueRejection(w, peer) catch return w.close(peer);
            if (w.flush(peer)) w.settle(peer);
        }

        /// The connection gets a 503 and ends; the caller flushes.
        pub fn queueRejection(w: *W, peer: *Peer) error{OutOfMemory}!void {
            noteRejected(w);
            var space: [http1.refusal_bytes_max]u8 = undefined;
            try peer.connection.outbox.append(&w.pool, rejection(w, &space));
            peer.connection.phase = .farewell;
        }

        fn rejectBluntly(w: *W, listener: u32, socket: io_room.Socket) void {
            noteRejected(w);
            // There is no word before a handshake.
            if (w.listeners.items[listener].tls != null) return w.io.close(socket);
            var space: [http1.refusal_bytes_max]u8 = undefined;
            // No connection has this token, so whatever the io reports of the socket finds nobody.
            const nobody = @backingInt(Ticket.none);
            if (w.io.add(socket, nobody)) {
                _ = w.io.send(socket, &.{io_room.slice(rejection(w, &space))}, false);
            } else |_| {} // no memory for a descriptor's entry: it is closed without a word
            w.io.close(socket);
        }

        fn rejection(w: *W, space: *[http1.refusal_bytes_max]u8) []const u8 {
            const refusal: http1.Refusal = .{ .status = 503, .detail = "The server is at capacity." };
            return space[0..http1.refusalResponse(refusal, w.date.text(), w.config.retry_after_s, space)];
        }

        fn noteRejected(w: *W) void {
            w.stats.rejected += 1;
            if (w.now -| w.rejected_at < 1000 and w.rejected_at != 0) return;
            w.rejected_at = w.now;
            var buffer: [96]u8 = undefined;
            w.say(.warn, &buffer, "Connection rejected: at capacity ({d}/{d})", .{ w.peers.count, w.connections_max });
        }

        /// The io has paused accepting: it goes on after a pause.
        pub fn acceptFailed(w: *W, exhausted: bool, errno: u16) void {
            const first = w.accept_at == 0;
            w.accept_at = w.now + w.config.accept_pause_ms;
            if (!first) return;
            var buffer: [128]u8 = undefined;
            if (exhausted) {
                w.say(.warn, &buffer, "Accepting pauses: out of descriptors or memory (errno {d})", .{errno});
            } else {
                w.say(.warn, &buffer, "Accepting pauses: errno {d}", .{errno});
            }
        }
    };
}
