//! The part of a worker that answers the health path, and deals with the porter who does so while the host is busy (porter.zig).
const Stream = @import("protocol").Stream;
const early = @import("protocol").early;
const io_room = @import("io");
const Porter = @import("../porter.zig").Porter;
const Health = @import("../health.zig").Health;

/// The methods of a worker that has a health path, or is the porter's.
pub fn HealthPart(comptime W: type) type {
    return struct {
        const Peer = W.Peer;
        /// The porter's own worker.
        const is_porters = W.HostType == Porter.Host;
        /// Only real sockets can be shared with another thread.
        const may_have_porter = !is_porters and @hasDecl(W.IoType, "listenerDescriptor");

        /// Requests with GET or HEAD for this path are answered with 200 and no host hears of them; empty: none is. Not logged, because they
        /// come all the time and say nothing. A connection over the limit of connections may ask as well.
        pub fn setHealthPath(w: *W, path: []const u8) Health.SetError!void {
            try w.health.set(path);
            if (w.porter) |porter| porter.close();
            w.porter = null;
            w.porter_wanted = w.health.isSet();
        }

        /// A request has come that no host is to hear of; true: it is answered.
        pub fn intercept(w: *W, peer: *Peer, stream: Stream) bool {
            if (w.health.matches(&w.head)) {
                answer(w, peer, stream);
                return true;
            }
            if (!peer.connection.surplus) return false;
            w.queueRejection(peer, w.head.text) catch w.close(peer);
            return true;
        }

        fn answer(w: *W, peer: *Peer, stream: Stream) void {
            if (w.stopping != .no) return w.refuse(peer, stream, .{ .status = 503, .detail = "The server is stopping." });
            var space: [early.response_bytes_max]u8 = undefined;
            const len = early.aliveResponse(w.date.text(), w.head.method != .HEAD, &space);
            w.sayLast(peer, space[0..len]);
        }

        // ---- The worker that has a porter

        /// Once a round: the porter learns that the worker is alive, and gives it what came meanwhile.
        pub fn attend(w: *W) void {
            if (!may_have_porter) return;
            if (w.porter_wanted) hire(w);
            const porter = w.porter orelse return;
            // Over the limit they get their 503.
            const room = w.connections_max -| w.peers.count +| w.config.descriptors_reserved / 2;
            var mail = porter.attend(room);
            while (mail.next()) |parcel| {
                switch (parcel.content) {
                    .guest => |*guest| welcome(w, guest),
                    .notice => |*notice| w.host.notice(w, null, notice.level, notice.text),
                    .refused => |*refused| w.noteRefusedByPorter(refused),
                }
                porter.free(parcel);
            }
            if (w.access) |*log| log.host_dropped += porter.takeUntold();
        }

        /// The first round has come: all listeners are there, and this is the process that serves.
        fn hire(w: *W) void {
            w.porter_wanted = false;
            w.porter = open(w) catch |err| {
                var buffer: [128]u8 = undefined;
                return w.say(.warn, &buffer, "While the application is busy the health path is not answered: {t}", .{err});
            };
        }

        /// Null: somebody else accepts.
        fn open(w: *W) !?*Porter {
            const doors = try w.gpa.alloc(Porter.Door, w.listeners.items.len);
            defer w.gpa.free(doors);
            var own: usize = 0;
            for (w.listeners.items, doors) |*listener, *door| {
                // Connections that proxies bring begin with a header, which is the worker's to read.
                const descriptor = if (listener.proxies != null) null else if (listener.id) |id| w.io.listenerDescriptor(id) else null;
                door.* = .{ .descriptor = descriptor, .address = listener.address, .tls = listener.tls };
                if (descriptor != null) own += 1;
            }
            if (own == 0) return null;
            return try Porter.open(w.gpa, w.config, &w.health, w.admission, doors, .{ .context = w, .wake = wake });
        }

        fn wake(context: *anyopaque) void {
            const w: *W = @ptrCast(@alignCast(context));
            w.io.wake();
        }

        /// The server stops: whom the porter has let in is served, nobody follows.
        pub fn dismiss(w: *W) void {
            w.porter_wanted = false;
            const porter = w.porter orelse return;
            porter.stop();
            attend(w);
            porter.close();
            w.porter = null;
        }

        /// Goes on with a connection that the porter has accepted.
        fn welcome(w: *W, guest: *Porter.Guest) void {
            const over = w.peers.count >= w.connections_max;
            const peer = w.openPeer(guest.connection.listener, guest.socket) catch {
                if (guest.connection.tunnel) |tunnel| tunnel.discard();
                w.admission.leave(guest.seat);
                return w.io.close(guest.socket);
            };
            const own = peer.connection;
            peer.connection = guest.connection;
            peer.connection.ticket = own.ticket;
            peer.connection.number = own.number;
            peer.connection.session = own.session;
            peer.connection.phase = own.phase;
            peer.seat = guest.seat;
            if (over) return w.reject(peer, guest.bytes);
            w.stats.accepted += 1;
            w.pump(peer, guest.bytes);
        }

        // ---- The porter's own worker

        /// Looks at bytes before they are parsed; true: not now.
        pub fn divert(w: *W, peer: *Peer, bytes: []const u8) bool {
            if (!is_porters) return false;
            const connection = &peer.connection;
            if (!connection.isIdle() and connection.headSince() == null) return false;
            connection.input.append(&w.pool, bytes) catch {
                w.close(peer);
                return true;
            };
            switch (w.health.guess(connection.input.unread())) {
                .yes => w.pump(peer, null),
                .no => w.host.leaving = connection.ticket,
                .undecided => {},
            }
            return true;
        }

        /// After all that came at once was looked at: hands the connection over if it wants something else than the health path.
        pub fn depart(w: *W) void {
            if (!is_porters) return;
            const ticket = w.host.leaving;
            if (ticket == .none) return;
            w.host.leaving = .none;
            const peer = w.peers.get(ticket) orelse return;
            if (!peer.connection.isIdle()) return;
            // What TLS says of itself after a handshake fits a socket that has sent nothing else; if not, there is no hurry to be kind.
            if (!peer.connection.isFlushed() or peer.connection.output != .open) return w.close(peer);
            handOver(w, peer) catch return w.close(peer);
            peer.connection.tunnel = null;
            peer.socket = .none;
            peer.seat = .{};
            w.release(peer);
        }

        fn handOver(w: *W, peer: *Peer) error{OutOfMemory}!void {
            const bytes = try w.gpa.dupe(u8, peer.connection.input.unread());
            errdefer w.gpa.free(bytes);
            var connection = peer.connection;
            connection.input = .{};
            connection.outbox = .{};
            connection.corked = false;
            connection.yielded = false;
            connection.paused = false;
            w.io.release(peer.socket);
            // The other end may close the socket at once, and the number be another connection's.
            const guest: Porter.Guest = .{ .connection = connection, .socket = peer.socket, .seat = peer.seat, .bytes = bytes };
            w.host.porter.post(guest) catch |err| {
                io_room.file.close(@backingInt(peer.socket));
                peer.socket = .none;
                return err;
            };
        }
    };
}
