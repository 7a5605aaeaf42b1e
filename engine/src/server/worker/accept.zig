//! The part of a worker that takes connections in: slots, addresses, the 503 for a connection over the limit,
//! and the 429 for a connection of an address with too many connections (admission.zig).
const assert = @import("std").debug.assert;
const io_layer = @import("io");
const Refusal = @import("protocol").Refusal;
const early = @import("protocol").early;
const alpn = @import("../alpn.zig");
const Lane = @import("../lane.zig").Lane;
const Ticket = @import("../slab.zig").Ticket;
const Tunnel = @import("../tunnel.zig").Tunnel;
const types = @import("../types.zig");
const Transport = @import("../transport.zig").Transport;

pub fn Accept(comptime W: type) type {
    return struct {
        const access_part = @import("access.zig").Access(W);
        const memory_part = @import("memory.zig").Shedding(W);
        const proxied_part = @import("proxied.zig").Proxied(W);
        const secure_part = @import("secure.zig").Secure(W);

        /// Takes over a connected socket (non-blocking, close-on-exec) that was accepted at the listener with
        /// this number.
        pub fn adopt(w: *W, listener: u32, socket: io_layer.Socket, from: io_layer.Address) void {
            if (w.stopping == .stopped) return w.io.close(socket);
            defer giveWay(w);
            // A few connections over the limit get time to read their 503. In a storm, further connections
            // are sent a 503 and closed at once.
            const most = w.connections_max +| w.config.descriptors_reserved / 2;
            if (w.connectionCount() >= most) return rejectBluntly(w, listener, socket, &from);
            const transport = open(w, listener, socket) catch
                return rejectBluntly(w, listener, socket, &from);
            noteClient(w, transport, &from) catch return w.close(&transport.lane);
            if (w.listeners.items[listener].proxies) |*proxies| {
                return proxied_part.expectHeader(w, transport, proxies, &from);
            }
            noteServer(w, transport, null) catch return w.close(&transport.lane);
            if (admit(w, transport, &from)) begin(w, transport);
        }

        /// Begins to serve a connection.
        pub fn begin(w: *W, transport: *Transport) void {
            assert(transport.tunnel == null and transport.lane.request_count == 0);
            const context = w.listeners.items[transport.listener].tls;
            const surplus: Transport.Surplus = if (w.connectionCount() > w.connections_max)
                .connections
            else if (w.memory.full) .memory else .no;
            transport.surplus = surplus;
            if (context) |tls| {
                secure_part.refresh(w, tls);
                const tunnel = Tunnel.create(w.gpa, tls, alpn.offered(&w.config)) catch
                    return w.close(&transport.lane);
                if (w.scratch.kernel_seals) tunnel.session.offerKeys();
                transport.tunnel = tunnel;
                transport.phase = .{ .handshake = .{ .since = w.clock.now } };
            } else if (surplus != .no and !w.health.isSet()) return reject(w, transport, "");
            if (surplus == .no) noteAccepted(w);
            switch (w.stopping) {
                .no => {},
                .retiring, .leaving => transport.replace(w.clock.now),
                .draining, .stopped => transport.retire(w.clock.now),
            }
            w.arm(&transport.lane);
        }

        /// Counts a connection that is served.
        pub fn noteAccepted(w: *W) void {
            w.stats.accepted += 1;
            if (w.counting.counters) |counters| counters.note("connections_accepted");
        }

        /// Accepts connections that wait in the kernel's queues, because closing the listeners would reset
        /// connections that peers take for established. A paused worker leaves them: no application would
        /// answer here, but perhaps in another process with the same sockets.
        pub fn acceptWaiting(w: *W) void {
            if (!@hasDecl(W.IoType, "acceptWaiting") or w.accepting.paused) return;
            for (w.listeners.items, 0..) |*listener, number| {
                const id = listener.id orelse continue;
                // The number is bounded, because more connections may come than are closed.
                for (0..queue_max) |_| switch (w.io.acceptWaiting(id) orelse break) {
                    .accepted => |accepted| w.adopt(@intCast(number), accepted.socket, accepted.peer),
                    else => break,
                };
            }
        }

        const queue_max = @import("../config.zig").worker_limits.accept_queue_max;

        /// Counts the connection of a client that is known now, from the kernel or from its proxy. False: the
        /// client's address has too many connections or opens them too fast; the client was told, and
        /// `transport` may be gone.
        pub fn admit(w: *W, transport: *Transport, client: *const io_layer.Address) bool {
            assert(transport.entry.verdict == .admitted);
            transport.entry = w.admission.enter(client, w.clock.now, &w.config);
            if (transport.entry.verdict == .admitted) return true;
            noteUnwelcome(w, transport);
            // A response needs a handshake, whose cost the limit is to save.
            const has_tls = w.listeners.items[transport.listener].tls != null;
            if (has_tls) w.close(&transport.lane) else turnAway(w, transport);
            return false;
        }

        /// Sends 429 and not 503: this client must slow down (RFC 6585 section 4), and a proxy must not take
        /// the server for broken.
        fn turnAway(w: *W, transport: *Transport) void {
            assert(transport.entry.verdict != .admitted);
            const fast = transport.entry.verdict == .too_fast;
            const refusal: Refusal = .{
                .status = 429,
                .detail = if (fast)
                    "Your address opens connections too fast."
                else
                    "Your address has too many open connections.",
            };
            var space: [early.response_bytes_max]u8 = undefined;
            // The rate allows another connection within a second.
            const wait_s = if (fast) 1 else w.config.retry_after_s;
            const len = early.refusalResponse(
                refusal,
                .{ .date = w.clock.date(), .retry_after_s = wait_s },
                &space,
            );
            transport.out.queue.append(&w.pool, space[0..len]) catch return w.close(&transport.lane);
            w.noteRefusal(&transport.lane, refusal, early.refusalBodyBytes(refusal), "");
            const answered = transport.entry.isCounted();
            transport.lane.beginClosing();
            if (!w.send(&transport.lane)) return;
            if (answered) w.settle(&transport.lane) else w.close(&transport.lane);
        }

        fn noteUnwelcome(w: *W, transport: *const Transport) void {
            assert(transport.entry.verdict != .admitted);
            w.stats.rejected += 1;
            if (w.counting.counters) |counters| {
                counters.noteRejection(if (transport.entry.verdict == .too_fast)
                    .address_rate
                else
                    .address_connections);
            }
            const others = w.troubles.unwelcome.add(w.clock.now) orelse return;
            var buffer: [192]u8 = undefined;
            const why, const limit, const unit = switch (transport.entry.verdict) {
                .too_fast => .{ "opens connections too fast", w.config.address_rate_max, " a second" },
                .too_many, .admitted => .{
                    "has too many open connections", w.config.address_connections_max, "",
                },
            };
            w.say(.warn, &buffer, "Connection {d} rejected: {s} {s} (limit {d}{s}){f}", .{
                transport.number, transport.peerName(), why, limit, unit, others,
            });
        }

        /// Adds a transport for a socket, without its addresses. On an error the caller still owns the
        /// socket.
        pub fn open(w: *W, listener: u32, socket: io_layer.Socket) !*Transport {
            assert(listener < w.listeners.items.len);
            try w.reserveTurns();
            const slot = try w.transports.add();
            errdefer w.transports.remove(slot.item);
            try w.io.add(socket, @backingInt(slot.ticket));
            w.numbers +%= 1;
            slot.item.init(socket, &w.limits, w.numbers, listener, w.clock.now);
            return slot.item;
        }

        /// Notes the client's address, and whether it is a trusted proxy.
        pub fn noteClient(
            w: *W,
            transport: *Transport,
            client: *const io_layer.Address,
        ) error{OutOfMemory}!void {
            transport.trusted = w.clients.trusts(client);
            transport.peer_port = client.port() orelse return;
            var buffer: [io_layer.Address.text_bytes_max]u8 = undefined;
            try transport.peer_text.set(w.gpa, hostText(client, &buffer));
        }

        /// Notes the local address of the connection: the one that a proxy has `named`, or the socket's.
        pub fn noteServer(
            w: *W,
            transport: *Transport,
            named: ?*const io_layer.Address,
        ) error{OutOfMemory}!void {
            assert(transport.local_address == null);
            const listener = &w.listeners.items[transport.listener];
            const bound = &listener.address;
            const server = if (named) |address|
                address.*
            else if (bound.isWildcard())
                w.io.localAddress(transport.socket) orelse bound.*
            else
                bound.*;
            const port = server.port() orelse return;
            var buffer: [io_layer.Address.text_bytes_max]u8 = undefined;
            const text = hostText(&server, &buffer);
            transport.local_address = try .share(&listener.latest, w.gpa, text, port);
        }

        /// The text of an address. An IPv4 address is written as such, also if it came over a socket of IPv6.
        fn hostText(
            address: *const io_layer.Address,
            buffer: *[io_layer.Address.text_bytes_max]u8,
        ) []const u8 {
            return address.unmapped().hostText(buffer);
        }

        /// The worker's number for a listener of the io.
        pub fn listenerNumber(w: *const W, id: u32) u32 {
            for (w.listeners.items, 0..) |listener, number| {
                if (listener.id == id) return @intCast(number);
            }
            unreachable; // the io names only listeners that it was given
        }

        /// Sends 503 to a connection over the limit, and closes it. `raw`: bytes of its request that have
        /// come.
        pub fn reject(w: *W, transport: *Transport, raw: []const u8) void {
            assert(transport.surplus != .no);
            queueRejection(w, &transport.lane, raw) catch return w.close(&transport.lane);
            if (w.send(&transport.lane)) w.settle(&transport.lane);
        }

        /// Queues a 503 and ends the lane. The caller flushes.
        pub fn queueRejection(w: *W, lane: *Lane, raw: []const u8) error{OutOfMemory}!void {
            assert(lane.transport.surplus != .no);
            const transport = lane.transport;
            const refusal = if (transport.surplus == .memory) memory_part.rejected(w) else blk: {
                noteRejected(w, transport.number, transport.peer_text.slice());
                break :blk at_capacity;
            };
            if (lane.isStream()) {
                w.noteRefusal(lane, refusal, w.refusedBytes(refusal), raw);
                return w.sayRefusal(lane, refusal, .{ .retry_after_s = w.config.retry_after_s });
            }
            var space: [early.response_bytes_max]u8 = undefined;
            try transport.out.queue.append(&w.pool, rejection(w, refusal, raw, &space));
            w.noteRefusal(lane, refusal, early.refusalBodyBytes(refusal), raw);
            lane.beginClosing();
        }

        fn rejectBluntly(w: *W, listener: u32, socket: io_layer.Socket, from: *const io_layer.Address) void {
            w.numbers +%= 1;
            var buffer: [io_layer.Address.text_bytes_max]u8 = undefined;
            const client = if (from.port() == null) "" else from.unmapped().hostText(&buffer);
            noteRejected(w, w.numbers, client);
            const place = &w.listeners.items[listener];
            // A response needs a handshake or a PROXY header before it.
            if (place.tls != null or place.proxies != null) return w.io.close(socket);
            access_part.noteTurnedAway(w, client, place.address.port() orelse 0, w.numbers, at_capacity);
            var space: [early.response_bytes_max]u8 = undefined;
            // No transport has this ticket, so the io's events of the socket are dropped.
            const nobody = @backingInt(Ticket.none);
            if (w.io.add(socket, nobody)) {
                _ = w.io.send(socket, &.{io_layer.slice(rejection(w, at_capacity, "", &space))}, false);
            } else |_| {} // without memory for the io's entry the socket is closed without a response
            w.io.close(socket);
        }

        const at_capacity: Refusal = .{ .status = 503, .detail = "The server is at capacity." };

        fn rejection(
            w: *W,
            refusal: Refusal,
            raw: []const u8,
            space: *[early.response_bytes_max]u8,
        ) []const u8 {
            return space[0..early.refusalResponse(refusal, .{
                .date = w.clock.date(),
                .retry_after_s = w.config.retry_after_s,
                .with_content = !early.asksForHead(raw),
            }, space)];
        }

        fn noteRejected(w: *W, number: u32, client: []const u8) void {
            w.stats.rejected += 1;
            if (w.counting.counters) |counters| counters.noteRejection(.capacity);
            const others = w.troubles.full.add(w.clock.now) orelse return;
            var buffer: [160]u8 = undefined;
            w.say(.warn, &buffer, "Connection {d} ({s}) rejected: at capacity ({d}/{d}){f}", .{
                number, types.peerName(client), w.connectionCount(), w.connections_max, others,
            });
        }

        /// Reports events that no report has told of, when the worker ends.
        pub fn tellRest(w: *W) void {
            inline for (.{
                .{ types.Level.warn, &w.troubles.full, "connections were rejected: at capacity" },
                .{
                    types.Level.warn,
                    &w.troubles.unwelcome,
                    "connections were rejected: their addresses had too many",
                },
                .{ types.Level.warn, &w.troubles.shed, "requests were refused for want of memory" },
                .{ types.Level.warn, &w.troubles.header, "connections were closed: PROXY protocol" },
                .{ types.Level.info, &w.troubles.frames, "connections broke the protocol" },
                .{ types.Level.info, &w.troubles.handshake, "TLS handshakes failed" },
                .{ types.Level.warn, &w.troubles.accepting, "pauses of accepting" },
            }) |rest| {
                const level, const tally, const what = rest;
                tellMore(w, level, tally.take().count, what);
            }
            var refused: u32 = 0;
            for (&w.troubles.refused.values) |*tally| refused += tally.take().count;
            tellMore(w, .info, refused, "requests or messages were refused");
        }

        fn tellMore(w: *W, level: types.Level, count: u32, comptime what: []const u8) void {
            var buffer: [128]u8 = undefined;
            if (count > 0) w.say(level, &buffer, "{d} more " ++ what, .{count});
        }

        /// Leaves accepting to other workers at the same sockets, until `takeUpAccepting`.
        pub fn yieldAccepting(w: *W) void {
            if (w.accepting.setYields(true)) pauseAll(w);
        }

        /// Accepts again, unless the host has paused accepting.
        pub fn takeUpAccepting(w: *W) void {
            if (w.accepting.setYields(false)) goOn(w);
        }

        /// Leaves connections in the kernel's queues until the host calls this with false. Listeners that are
        /// added meanwhile do not accept either.
        pub fn pauseAccepting(w: *W, paused: bool) void {
            if (!w.accepting.setPaused(paused)) return;
            if (paused) pauseAll(w) else goOn(w);
        }

        /// Spreads connections evenly over the workers that accept at the same sockets. This worker has place
        /// `number` in their table (spread.zig) until it stops.
        pub fn shareSockets(w: *W, table: []u64, number: usize) void {
            if (w.stopping == .no) w.accepting.share(table, number, w.connectionCount());
        }

        /// Leaves the sockets after an accepted connection if another worker is to take the next one.
        fn giveWay(w: *W) void {
            if (!w.accepting.mayGoOn(w.connectionCount(), w.clock.now)) pauseAll(w);
        }

        /// Accepts again if it is time for that. Called once a round.
        pub fn comeBack(w: *W) void {
            if (w.accepting.endsShortage(w.clock.now)) goOn(w);
            if (!w.accepting.mayReturn(w.clock.now)) return;
            w.accepting.returned(isAwaited(w));
            goOn(w);
        }

        fn pauseAll(w: *W) void {
            for (w.listeners.items) |listener| if (listener.id) |id| w.io.pauseAccept(id);
        }

        /// Accepts again, unless there is another reason against it. A worker that has stopped has no
        /// listeners any more: an engine on a thread may learn after that that its application goes on.
        fn goOn(w: *W) void {
            if (!w.accepting.isOpen()) return;
            for (w.listeners.items) |listener| if (listener.id) |id| w.io.resumeAccept(id) catch {
                _ = w.accepting.runShort(w.clock.now + w.config.accept_pause_ms);
            };
        }

        /// Whether connections wait in the kernel's queues.
        pub fn isAwaited(w: *const W) bool {
            if (!@hasDecl(W.IoType, "isAwaited")) return false;
            for (w.listeners.items) |listener| if (listener.id) |id| if (w.io.isAwaited(id)) return true;
            return false;
        }

        /// Pauses accepting after an error of the io.
        pub fn acceptFailed(w: *W, exhausted: bool, errno: u16) void {
            if (!w.accepting.runShort(w.clock.now + w.config.accept_pause_ms)) return;
            if (exhausted) cutLingering(w);
            const others = w.troubles.accepting.add(w.clock.now) orelse return;
            var buffer: [192]u8 = undefined;
            const hint = if (exhausted) ": the process is out of descriptors or memory" else "";
            w.say(.warn, &buffer, "Accepting pauses{s} ({s}){f}", .{
                hint, io_layer.failureText(errno), others,
            });
        }

        /// Closes connections whose last response was sent. They stay open only so that peers which still
        /// send can read it, and other connections wait for their descriptors.
        fn cutLingering(w: *W) void {
            var it = w.transports.iterator();
            while (it.next()) |transport| if (transport.phase == .lingering) w.close(&transport.lane);
        }
    };
}
