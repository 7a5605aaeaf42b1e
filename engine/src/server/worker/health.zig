//! The part of a worker that answers the health path, and deals with the standby acceptor that does so while the host is busy (standby.zig).
const Stream = @import("protocol").Stream;
const early = @import("protocol").early;
const io_layer = @import("io");
const Standby = @import("../standby.zig").Standby;
const Health = @import("../health.zig").Health;

/// The methods of a worker that has a health path, or is the standby acceptor's.
pub fn HealthPart(comptime W: type) type {
    return struct {
        const Peer = W.Peer;
        /// The standby acceptor's own worker.
        const is_standbys = W.HostType == Standby.Host;
        /// Only real sockets can be shared with another thread.
        const may_have_standby = !is_standbys and @hasDecl(W.IoType, "listenerDescriptor");

        /// Requests with GET or HEAD for this path are answered with 200 and no host hears of them; empty: none is. Not logged, because they
        /// come all the time and say nothing. A connection over the limit of connections may ask as well.
        pub fn setHealthPath(w: *W, path: []const u8) Health.SetError!void {
            try w.health.set(path);
            if (w.standby) |standby| standby.close();
            w.standby = null;
            w.standby_wanted = w.health.isSet();
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

        // ---- The worker that has a standby

        /// Once a round: the standby acceptor learns that the worker is alive, and gives it what came meanwhile.
        pub fn attend(w: *W) void {
            if (!may_have_standby) return;
            if (w.standby_wanted) startStandby(w);
            const standby = w.standby orelse return;
            // Over the limit they get their 503.
            const room = w.connections_max -| w.peers.count +| w.config.descriptors_reserved / 2;
            var mail = standby.attend(room);
            while (mail.next()) |message| {
                switch (message.content) {
                    .handed => |*handed| adoptHanded(w, handed),
                    .notice => |*notice| w.host.notice(w, null, notice.level, notice.text),
                    .refused => |*refused| w.noteRefusedByStandby(refused),
                }
                standby.free(message);
            }
            if (w.access) |*log| log.host_dropped += standby.takeUntold();
        }

        /// The first round has come: all listeners are there, and this is the process that serves.
        fn startStandby(w: *W) void {
            w.standby_wanted = false;
            w.standby = open(w) catch |err| {
                var buffer: [128]u8 = undefined;
                return w.say(.warn, &buffer, "While the application is busy the health path is not answered: {t}", .{err});
            };
        }

        /// Null: somebody else accepts.
        fn open(w: *W) !?*Standby {
            const places = try w.gpa.alloc(Standby.Place, w.listeners.items.len);
            defer w.gpa.free(places);
            var own: usize = 0;
            for (w.listeners.items, places) |*listener, *place| {
                // Connections that proxies bring begin with a header, which is the worker's to read.
                const descriptor = if (listener.proxies != null) null else if (listener.id) |id| w.io.listenerDescriptor(id) else null;
                place.* = .{ .descriptor = descriptor, .address = listener.address, .tls = listener.tls };
                if (descriptor != null) own += 1;
            }
            if (own == 0) return null;
            return try Standby.open(w.gpa, w.config, &w.health, w.admission, places, .{ .context = w, .wake = wake });
        }

        fn wake(context: *anyopaque) void {
            const w: *W = @ptrCast(@alignCast(context));
            w.io.wake();
        }

        /// The server stops: whom the standby acceptor has accepted is served, nobody follows.
        pub fn stopStandby(w: *W) void {
            w.standby_wanted = false;
            const standby = w.standby orelse return;
            standby.stop();
            attend(w);
            standby.close();
            w.standby = null;
        }

        /// Goes on with a connection that the standby acceptor has accepted.
        fn adoptHanded(w: *W, handed: *Standby.Handed) void {
            const over = w.peers.count >= w.connections_max;
            const peer = w.openPeer(handed.connection.listener, handed.socket) catch {
                if (handed.connection.tunnel) |tunnel| tunnel.discard();
                w.admission.leave(handed.seat);
                return w.io.close(handed.socket);
            };
            const own = peer.connection;
            peer.connection = handed.connection;
            peer.connection.ticket = own.ticket;
            peer.connection.number = own.number;
            peer.connection.session = own.session;
            peer.connection.phase = own.phase;
            peer.seat = handed.seat;
            if (over) return w.reject(peer, handed.bytes);
            w.noteAccepted();
            w.pump(peer, handed.bytes);
        }

        // ---- The standby acceptor's own worker

        /// Looks at bytes before they are parsed; true: not now.
        pub fn divert(w: *W, peer: *Peer, bytes: []const u8) bool {
            if (!is_standbys) return false;
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
            if (!is_standbys) return;
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
            const handed: Standby.Handed = .{ .connection = connection, .socket = peer.socket, .seat = peer.seat, .bytes = bytes };
            w.host.standby.post(handed) catch |err| {
                io_layer.file.close(@backingInt(peer.socket));
                peer.socket = .none;
                return err;
            };
        }
    };
}
