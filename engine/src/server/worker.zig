//! One thread's loop: joins an io, many connections and a host. The only place where the rooms meet.
//!
//! A host is whoever answers requests: `NativeHost(Handler)` for Zig handlers, the C door for everybody else. It provides
//!
//!     pub const demand: enum { pull, push }   // is a request body read when the host asks (read()), or as it comes?
//!     fn request(host, worker, *Exchange, *const http1.Head) void      a head; what of the body came along follows at once
//!     fn body(host, worker, *Exchange, []const u8) void                 the next piece
//!     fn trailers(host, worker, *Exchange, *const http1.Head) void      the fields behind a chunked body, before bodyEnd
//!     fn bodyEnd(host, worker, *Exchange) void
//!     fn drained(host, worker, *Exchange) void                          output fell below the low-water mark
//!     fn finished(host, worker, *Exchange) void                         the rest of an ended response was sent; the ticket dies with the call
//!     fn aborted(host, worker, *Exchange, Reason) void                  it will not be sent; the ticket dies with the call
//!     fn message(host, worker, *Exchange, kind, []const u8) void        a whole WebSocket message
//!     fn closed(host, worker, *Exchange, websocket.Close, ?Reason) void  the WebSocket ended; a reason if it was not the peer's close; the ticket dies
//!     fn halfClosed(host, worker, *Exchange) void
//!     fn stopped(host, worker) void                                     after drain() or cut(): nothing is left
//!     fn notice(host, worker, Level, text) void
//!     fn waiting(host) bool                                             events lie ready that the host has to look at before it waits
//!
//! A host may answer inside these calls or at any later time, by exchange or by ticket. Nothing here calls a host outside `poll`, `cut` and `drain`.
const std = @import("std");
const assert = std.debug.assert;
const protocol = @import("protocol");
const http1 = protocol.http1;
const handshake = protocol.websocket.handshake;
const Field = protocol.http.Field;
const io_room = @import("io");
const Config = @import("config.zig").Config;
const Connection = @import("connection.zig").Connection;
const exchange_file = @import("exchange.zig");
const Exchange = exchange_file.Exchange;
const FileRange = @import("outbox.zig").FileRange;
const Outbox = @import("outbox.zig").Outbox;
const Pool = @import("pool.zig").Pool;
const Stall = @import("stall.zig").Stall;
const slab = @import("slab.zig");
const Ticket = slab.Ticket;
const timer = @import("timer.zig");
const types = @import("types.zig");
const websocket_file = @import("websocket.zig");
const WebSocket = websocket_file.WebSocket;
const Reason = types.Reason;
const Level = types.Level;
const Stats = types.Stats;

pub fn Worker(comptime Io: type, comptime Host: type) type {
    return struct {
        const Self = @This();
        pub const pull = Host.demand == .pull;
        pub const IoOptions = if (@hasDecl(Io, "Options")) Io.Options else io_room.Options;

        gpa: std.mem.Allocator,
        config: Config,
        limits: http1.Limits,
        host: *Host,
        io: Io,
        peers: slab.Slab(Peer),
        exchanges: slab.Slab(Exchange),
        websockets: slab.Slab(WebSocket),
        pool: Pool,
        wheel: timer.Wheel,
        now: u64,
        date: types.DateCache,
        /// Scratch for the head that is being parsed.
        head: http1.Head,
        /// Connections to look at before the next wait: queued output, or input that may go on.
        corked: std.ArrayList(Ticket),
        corked_spare: std.ArrayList(Ticket),
        /// The connection whose bytes are being parsed now: output it queues is sent at the end of that, not before.
        pumping: ?*Peer = null,
        stopping: enum { no, draining, stopped } = .no,
        /// When accepting goes on after descriptors ran out; 0: it is not paused.
        accept_at: u64 = 0,
        listeners: std.ArrayList(Listener),
        connections_max: u32,
        numbers: u32 = 0,
        rejected_at: u64 = 0,
        stats: Stats = .{},

        const Peer = struct {
            connection: Connection,
            socket: io_room.Socket,
            timer: timer.Timer = .{},
        };

        /// `id`: the io's name for it; null if somebody else accepts there.
        const Listener = struct { id: ?u32, address: io_room.Address };

        comptime {
            // All that an idle keep-alive connection holds: it has no buffer (test/worker_sim_test.zig).
            assert(@sizeOf(Peer) <= 1024 - 16);
        }

        /// `host` must outlive the worker. Create it after fork, in the thread that runs it.
        pub fn init(gpa: std.mem.Allocator, config: Config, host: *Host, io_options: IoOptions) !Self {
            var options = io_options;
            options.receive_buffer_bytes = config.receive_bytes;
            var io = try Io.init(gpa, options);
            errdefer io.deinit();
            const storage = try gpa.alloc(protocol.http.FieldSpan, config.header_count_max);
            const now = io.now();
            return .{
                .gpa = gpa,
                .config = config,
                .limits = types.limitsOf(&config),
                .host = host,
                .io = io,
                .peers = .init(gpa),
                .exchanges = .init(gpa),
                .websockets = .init(gpa),
                .pool = .init(gpa),
                .wheel = .init(now),
                .now = now,
                .date = .init(io.wallSeconds()),
                .head = .{ .storage = storage },
                .corked = .empty,
                .corked_spare = .empty,
                .listeners = .empty,
                .connections_max = types.connectionsMax(&config),
            };
        }

        /// Closes every connection without a word and frees everything.
        pub fn deinit(w: *Self) void {
            var it = w.peers.iterator();
            while (it.next()) |peer| w.release(peer);
            w.gpa.free(w.head.storage);
            w.corked.deinit(w.gpa);
            w.corked_spare.deinit(w.gpa);
            w.listeners.deinit(w.gpa);
            w.peers.deinit();
            w.exchanges.deinit();
            w.websockets.deinit();
            w.pool.deinit();
            w.io.deinit();
            w.* = undefined;
        }

        /// Changes one limit. Holds for what begins from now on; a request head or body that is being read keeps to the new one as well.
        pub fn set(w: *Self, name: []const u8, value: i64) Config.SetError!void {
            // The scratch for heads was allocated for the number of fields that the worker was created with.
            if (std.mem.eql(u8, name, "header_count_max") and value > w.head.storage.len) return error.OutOfRange;
            try w.config.set(name, value);
            w.limits = types.limitsOf(&w.config);
            w.connections_max = types.connectionsMax(&w.config);
        }

        // ---- Listeners

        /// Listens on an address; the listener's number.
        pub fn listen(w: *Self, address: io_room.Address, options: io_room.ListenOptions) !u32 {
            try w.listeners.ensureUnusedCapacity(w.gpa, 1);
            return w.addListener(try w.io.listen(address, options));
        }

        /// Takes over a listening descriptor; the listener's number.
        pub fn adoptListener(w: *Self, fd: i32) !u32 {
            try w.listeners.ensureUnusedCapacity(w.gpa, 1);
            return w.addListener(try w.io.adoptListener(fd));
        }

        fn addListener(w: *Self, id: u32) u32 {
            w.listeners.appendAssumeCapacity(.{ .id = id, .address = w.io.listenerAddress(id) });
            return @intCast(w.listeners.items.len - 1);
        }

        /// A place where somebody else accepts; its number, for `adopt`.
        pub fn noteListener(w: *Self, address: io_room.Address) error{OutOfMemory}!u32 {
            try w.listeners.append(w.gpa, .{ .id = null, .address = address });
            return @intCast(w.listeners.items.len - 1);
        }

        /// The bound address, with the real port after port 0.
        pub fn listenerAddress(w: *Self, listener: u32) io_room.Address {
            return w.listeners.items[listener].address;
        }

        // ---- The loop

        /// One round: sends what is due, reads what came, runs deadlines. Waits up to `timeout_ms` (-1: without bound) if there is nothing to do.
        pub fn poll(w: *Self, timeout_ms: i32) !void {
            w.uncork();
            _ = try w.io.wait(w.patience(timeout_ms));
            w.now = w.io.now();
            w.date.update(w.io.wallSeconds());
            while (w.io.next()) |event| w.dispatch(event);
            w.expire();
            w.checkStopped();
        }

        /// Makes `fd` readable when the next deadline comes: for hosts that wait elsewhere. Cheap when nothing has changed.
        pub fn armAlarm(w: *Self) !void {
            const urgent = w.corked.items.len > 0 or w.host.waiting();
            try w.io.alarm(if (urgent) w.now else w.nextDeadline());
        }

        fn patience(w: *Self, timeout_ms: i32) i32 {
            if (timeout_ms == 0 or w.corked.items.len > 0 or w.host.waiting()) return 0;
            const due = w.nextDeadline() orelse return timeout_ms;
            const left: i32 = @intCast(@min(due -| w.io.now(), std.math.maxInt(i32)));
            return if (timeout_ms < 0) left else @min(left, timeout_ms);
        }

        fn nextDeadline(w: *const Self) ?u64 {
            const expiry = w.wheel.nextExpiry();
            if (w.accept_at == 0) return expiry;
            return @min(w.accept_at, expiry orelse w.accept_at);
        }

        fn dispatch(w: *Self, event: io_room.Event) void {
            switch (event) {
                .accepted => |accepted| w.adopt(w.listenerNumber(accepted.listener), accepted.socket, accepted.peer),
                .accept_failed => |failure| w.acceptFailed(failure.exhausted, failure.errno),
                .received => |received| if (w.peerOf(received.token)) |peer| w.receive(peer, received.bytes),
                .ended => |ended| if (w.peerOf(ended.token)) |peer| w.peerEnded(peer, ended.how),
                .sent => |sent| if (w.peerOf(sent.token)) |peer| w.writable(peer),
                .woken => {},
            }
        }

        fn peerOf(w: *Self, token: io_room.Token) ?*Peer {
            return w.peers.get(@fromBackingInt(@intCast(token)));
        }

        /// Looks at every corked connection once: goes on with its input, then sends its output.
        fn uncork(w: *Self) void {
            if (w.corked.items.len == 0) return;
            std.mem.swap(std.ArrayList(Ticket), &w.corked, &w.corked_spare);
            for (w.corked_spare.items) |ticket| {
                const peer = w.peers.get(ticket) orelse continue;
                const connection = &peer.connection;
                connection.corked = false;
                if (connection.wantsInput() and !connection.input.isEmpty()) {
                    w.pump(peer, null);
                } else if (w.flush(peer)) w.settle(peer);
            }
            w.corked_spare.clearRetainingCapacity();
        }

        fn cork(w: *Self, peer: *Peer) void {
            if (peer.connection.corked) return;
            peer.connection.corked = true;
            w.corked.appendAssumeCapacity(peer.connection.ticket);
        }

        fn expire(w: *Self) void {
            if (w.accept_at != 0 and w.now >= w.accept_at) {
                w.accept_at = 0;
                for (w.listeners.items) |listener| if (listener.id) |id| w.io.resumeAccept(id) catch {
                    w.accept_at = w.now + w.config.accept_pause_ms;
                };
            }
            while (w.wheel.expire(w.now)) |due| {
                const peer: *Peer = @fieldParentPtr("timer", due);
                const connection = &peer.connection;
                switch (connection.overdue(w.now, &w.config)) {
                    .not_yet => w.arm(peer),
                    .close => w.close(peer),
                    .refuse => w.refuse(peer, .{ .status = 408, .detail = "The request head took too long." }),
                    .body_stalled => w.bodyStalled(peer, connection.phase.exchange),
                    .write_stalled => w.fail(peer, .write_timeout),
                    .websocket => w.websocketDue(peer, connection.phase.exchange),
                    .exchange_idle => w.fail(peer, .idle_timeout),
                }
            }
        }

        fn bodyStalled(w: *Self, peer: *Peer, exchange: *Exchange) void {
            if (peer.connection.session.responseStarted()) return w.fail(peer, .client_timeout);
            w.endExchange(exchange, .client_timeout);
            w.refuse(peer, .{ .status = 408, .detail = "The request body took too long." });
        }

        /// Sets the connection's timer to its deadline and its socket to be read or not.
        fn arm(w: *Self, peer: *Peer) void {
            w.wheel.set(&peer.timer, peer.connection.deadline(&w.config));
            const pause = !peer.connection.wantsReceive();
            if (pause == peer.connection.paused) return;
            peer.connection.paused = pause;
            if (pause) w.io.pause(peer.socket) else w.io.resumeReading(peer.socket);
        }

        // ---- Accepting

        /// Takes over a connected socket (non-blocking, closed on exec) that came in at the listener with this number.
        pub fn adopt(w: *Self, listener: u32, socket: io_room.Socket, from: io_room.Address) void {
            if (w.stopping != .no) return w.io.close(socket);
            const over = w.peers.count >= w.connections_max;
            // Some of those over the limit get time to read their 503; the rest, in a storm, get it and are cut.
            if (over and w.peers.count >= w.connections_max +| w.config.descriptors_reserved / 2) return w.rejectBluntly(socket);
            const peer = w.open(listener, socket, from) catch return w.rejectBluntly(socket);
            if (over) return w.reject(peer);
            w.stats.accepted += 1;
            w.arm(peer);
        }

        fn open(w: *Self, listener: u32, socket: io_room.Socket, from: io_room.Address) !*Peer {
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
            w.noteAddresses(slot.item, &from);
            return slot.item;
        }

        fn noteAddresses(w: *Self, peer: *Peer, from: *const io_room.Address) void {
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

        fn listenerNumber(w: *const Self, id: u32) u32 {
            for (w.listeners.items, 0..) |listener, number| {
                if (listener.id == id) return @intCast(number);
            }
            unreachable; // the io only names listeners that it was given
        }

        fn reject(w: *Self, peer: *Peer) void {
            w.noteRejected();
            var space: [http1.refusal_bytes_max]u8 = undefined;
            peer.connection.outbox.append(&w.pool, w.rejection(&space)) catch return w.close(peer);
            peer.connection.phase = .farewell;
            if (w.flush(peer)) w.settle(peer);
        }

        fn rejectBluntly(w: *Self, socket: io_room.Socket) void {
            w.noteRejected();
            var space: [http1.refusal_bytes_max]u8 = undefined;
            // No connection has this token, so whatever the io reports of the socket finds nobody.
            const nobody = @backingInt(Ticket.none);
            if (w.io.add(socket, nobody)) {
                _ = w.io.send(socket, &.{io_room.slice(w.rejection(&space))}, false);
            } else |_| {} // no memory for a descriptor's entry: it is closed without a word
            w.io.close(socket);
        }

        fn rejection(w: *Self, space: *[http1.refusal_bytes_max]u8) []const u8 {
            const refusal: http1.Refusal = .{ .status = 503, .detail = "The server is at capacity." };
            return space[0..http1.refusalResponse(refusal, w.date.text(), w.config.retry_after_s, space)];
        }

        fn noteRejected(w: *Self) void {
            w.stats.rejected += 1;
            if (w.now -| w.rejected_at < 1000 and w.rejected_at != 0) return;
            w.rejected_at = w.now;
            var buffer: [96]u8 = undefined;
            w.say(.warn, &buffer, "Connection rejected: at capacity ({d}/{d})", .{ w.peers.count, w.connections_max });
        }

        fn acceptFailed(w: *Self, exhausted: bool, errno: u16) void {
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

        fn say(w: *Self, level: Level, buffer: []u8, comptime format: []const u8, arguments: anytype) void {
            w.host.notice(w, level, std.fmt.bufPrint(buffer, format, arguments) catch buffer);
        }

        // ---- Input

        fn receive(w: *Self, peer: *Peer, bytes: []u8) void {
            switch (peer.connection.phase) {
                .farewell, .lingering => {}, // thrown away: an unread byte would turn our close into a reset
                .idle, .head, .exchange, .draining => w.pump(peer, bytes),
                .closed => unreachable,
            }
        }

        /// Parses what is unread and hands events to the host until more bytes, the host or fairness are needed.
        /// `received`: bytes that are not yet part of the connection's input.
        fn pump(w: *Self, peer: *Peer, received: ?[]u8) void {
            const connection = &peer.connection;
            assert(w.pumping == null);
            var unread = received orelse connection.input.unread();
            const held = received == null or !connection.input.isEmpty();
            if (received != null and held) {
                connection.input.append(&w.pool, received.?) catch return w.fail(peer, .server_error);
                unread = connection.input.unread();
            }
            w.pumping = peer;
            const used = w.parse(peer, unread);
            w.pumping = null;
            if (connection.phase == .closed) return w.release(peer);
            if (held) {
                connection.input.consume(&w.pool, used);
            } else if (used < unread.len) {
                connection.input.append(&w.pool, unread[used..]) catch return w.fail(peer, .server_error);
            }
            if (pull) switch (connection.phase) {
                .exchange => |exchange| exchange.pieceDelivered(),
                else => {},
            };
            if (pull and connection.phase == .exchange and w.host.waiting()) {
                // The host sees the event at once; what it answers goes out together with what is queued.
                if (!connection.outbox.isEmpty()) w.cork(peer);
                w.arm(peer);
            } else if (w.flush(peer)) w.settle(peer);
        }

        /// The number of bytes that were consumed.
        fn parse(w: *Self, peer: *Peer, unread: []u8) usize {
            const connection = &peer.connection;
            var used: usize = 0;
            var rounds: u32 = 0;
            while (connection.wantsInput()) {
                if (connection.phase == .idle) {
                    if (used == unread.len) break;
                    rounds += 1;
                    if (rounds > w.config.pipeline_pass_max) {
                        w.cork(peer);
                        break;
                    }
                }
                if (connection.websocket()) |websocket| {
                    if (!w.feedWebSocket(peer, websocket, unread[used..], &used)) break;
                    continue;
                }
                const step = connection.session.feed(unread[used..], &w.head);
                assert(step.consumed <= unread.len - used);
                used += step.consumed;
                switch (step.event) {
                    .need_more => {
                        if (connection.phase == .idle) connection.phase = .{ .head = .{ .since = w.now } };
                        break;
                    },
                    .request => w.begin(peer),
                    .body => |piece| w.bodyPiece(peer, piece),
                    .trailers => switch (connection.phase) {
                        .exchange => |exchange| w.host.trailers(w, exchange, &w.head),
                        else => {},
                    },
                    .end => w.bodyComplete(peer),
                    .refused => |refusal| w.refuseRequest(peer, refusal),
                }
            }
            return switch (connection.phase) {
                .farewell, .lingering, .closed => unread.len, // nobody will look at the rest
                .idle, .head, .exchange, .draining => used,
            };
        }

        fn begin(w: *Self, peer: *Peer) void {
            const connection = &peer.connection;
            const slot = w.exchanges.add() catch return w.refuse(peer, .{ .status = 503, .detail = "Out of memory." });
            const exchange = slot.item;
            exchange.* = .{ .ticket = slot.ticket, .connection = connection, .active_at = w.now };
            if (!connection.session.inputComplete()) exchange.input = .{ .wanted = .begin(w.now) };
            connection.phase = .{ .exchange = exchange };
            w.stats.requests += 1;
            if (w.head.upgrade) {
                if (w.noteHandshake(exchange)) |refusal| return w.refuseHandshake(peer, exchange, refusal);
            }
            if (w.stopping != .no or connection.peer_ended) connection.session.closeAfterResponse();
            w.host.request(w, exchange, &w.head);
        }

        fn bodyPiece(w: *Self, peer: *Peer, piece: []const u8) void {
            switch (peer.connection.phase) {
                .exchange => |exchange| {
                    exchange.input.wanted.progress(piece.len);
                    exchange.active_at = w.now;
                    exchange.delivered = true;
                    w.host.body(w, exchange, piece);
                },
                .draining => |*draining| {
                    if (piece.len > draining.bytes_left) return w.bidFarewell(peer);
                    draining.bytes_left -= piece.len;
                },
                else => unreachable,
            }
        }

        fn bodyComplete(w: *Self, peer: *Peer) void {
            const connection = &peer.connection;
            switch (connection.phase) {
                .exchange => |exchange| {
                    exchange.input = .complete;
                    w.host.bodyEnd(w, exchange);
                },
                .draining => w.nextRequest(connection),
                else => unreachable,
            }
        }

        /// The peer broke the rules: within an exchange that ends it, then the peer is told if it can be.
        fn refuseRequest(w: *Self, peer: *Peer, refusal: http1.Refusal) void {
            w.stats.refused += 1;
            switch (peer.connection.phase) {
                .exchange => |exchange| {
                    const started = peer.connection.session.responseStarted();
                    w.endExchange(exchange, if (refusal.status == 413) .body_too_large else .protocol_error);
                    if (started) return w.close(peer);
                },
                .draining => return w.bidFarewell(peer),
                else => {},
            }
            w.refuse(peer, refusal);
        }

        fn refuse(w: *Self, peer: *Peer, refusal: http1.Refusal) void {
            var space: [http1.refusal_bytes_max]u8 = undefined;
            const len = http1.refusalResponse(refusal, w.date.text(), null, &space);
            peer.connection.outbox.append(&w.pool, space[0..len]) catch return w.close(peer);
            w.bidFarewell(peer);
        }

        fn bidFarewell(w: *Self, peer: *Peer) void {
            peer.connection.phase = .farewell;
            if (w.pumping == peer) return; // its input is in use, its output goes out at the end of that
            peer.connection.input.deinit(&w.pool);
            if (w.flush(peer)) w.settle(peer);
        }

        fn peerEnded(w: *Self, peer: *Peer, how: io_room.Ended) void {
            const connection = &peer.connection;
            if (how == .reset) return w.fail(peer, if (connection.peer_ended) .client_closed else .read_error);
            connection.peer_ended = true;
            switch (connection.phase) {
                .head, .draining, .lingering => w.close(peer),
                .idle, .farewell => w.settle(peer),
                .exchange => |exchange| {
                    // A WebSocket needs both directions, and half a request is none.
                    if (!exchange.inputComplete()) return w.fail(peer, .client_closed);
                    // It may have closed only its sending side, and gets its answer then. Probes tell if it is gone altogether.
                    w.io.probe(peer.socket);
                    connection.session.closeAfterResponse();
                    w.host.halfClosed(w, exchange);
                },
                .closed => unreachable,
            }
        }

        // ---- Output

        /// The exchange of a ticket, or null when it has ended.
        pub fn find(w: *Self, ticket: Ticket) ?*Exchange {
            const exchange = w.exchanges.get(ticket) orelse return null;
            return if (exchange.ended) null else exchange;
        }

        pub const FileError = exchange_file.BodyError || io_room.file.Error;

        pub const Outcome = enum {
            /// Queued or sent, more may follow.
            accepted,
            /// The response is complete and out of our hands: the exchange is gone.
            done,
            /// Accepted, but the high-water mark is reached: `drained` or, after the end, `finished` follows.
            blocked,
        };

        /// Starts the response. Everything about framing is decided here, from the fields.
        pub fn start(w: *Self, exchange: *Exchange, response: exchange_file.Start) exchange_file.StartError!Outcome {
            try exchange.start(&w.pool, response, w.date.text());
            return w.queued(exchange);
        }

        /// Sends the next piece of the body, the last one with `last`.
        pub fn write(w: *Self, exchange: *Exchange, bytes: []const u8, last: bool) exchange_file.BodyError!Outcome {
            try exchange.body(&w.pool, bytes, last);
            return w.queued(exchange);
        }

        /// The same with bytes that lie in blocks of this worker's pool already: they are taken over, not copied.
        pub fn writeBlocks(w: *Self, exchange: *Exchange, chain: *Outbox, last: bool) exchange_file.BodyError!Outcome {
            try exchange.blocks(&w.pool, chain, last);
            return w.queued(exchange);
        }

        /// Sends a range of an open file (null: all that follows `offset`) as the last piece of the body. Duplicates the descriptor.
        pub fn writeFile(w: *Self, exchange: *Exchange, fd: i32, offset: u64, length: ?u64) FileError!Outcome {
            const available = try io_room.file.size(fd) -| offset;
            const copy = try io_room.file.duplicate(fd);
            errdefer io_room.file.close(copy);
            const range: FileRange = .{ .fd = copy, .offset = offset, .len = @min(length orelse available, available) };
            if (try exchange.file(&w.pool, range) == .not_needed) io_room.file.close(copy);
            return w.queued(exchange);
        }

        /// Ends the response with trailers.
        pub fn end(w: *Self, exchange: *Exchange, trailers: []const Field) exchange_file.BodyError!Outcome {
            try exchange.end(&w.pool, trailers);
            return w.queued(exchange);
        }

        /// Sends an interim response.
        pub fn inform(w: *Self, exchange: *Exchange, status: u16, fields: []const Field) exchange_file.StartError!void {
            try exchange.inform(&w.pool, status, fields);
            w.flushNow(exchange);
        }

        /// Hands what is queued to the kernel.
        pub fn flushNow(w: *Self, exchange: *Exchange) void {
            const peer = peerOfExchange(exchange);
            if (w.pumping == peer) return w.cork(peer);
            if (peer.connection.output == .open and !w.flush(peer)) return;
            w.settle(peer);
        }

        /// Asks for the next piece of the request body. Says `100 Continue` when the peer waits for it.
        pub fn read(w: *Self, exchange: *Exchange) error{OutOfMemory}!void {
            const peer = peerOfExchange(exchange);
            const connection = &peer.connection;
            if (!exchange.want(w.now)) return;
            if (connection.session.takeContinue()) |interim| try connection.outbox.append(&w.pool, interim);
            w.cork(peer);
        }

        /// Bytes queued and not yet with the kernel.
        pub fn buffered(_: *const Self, exchange: *const Exchange) usize {
            return exchange.connection.outbox.bytes;
        }

        /// Ends the exchange by cutting the connection, so that the peer sees a truncated response.
        pub fn abort(w: *Self, exchange: *Exchange) void {
            const peer = peerOfExchange(exchange);
            w.forget(exchange);
            peer.connection.phase = .farewell;
            if (peer.connection.output == .open and !w.flush(peer)) return;
            w.io.reset(peer.socket);
            peer.socket = .none;
            w.close(peer);
        }

        // ---- WebSocket

        /// A request that offers to upgrade: remembers a well-formed WebSocket handshake for the host to accept. An upgrade to something
        /// else is served as a plain request.
        fn noteHandshake(w: *Self, exchange: *Exchange) ?handshake.Refusal {
            const head = &w.head;
            const verdict = handshake.check(.{
                .method = head.method_text.of(head.text),
                .http_1_1 = head.version == .http_1_1,
                .text = head.text,
                .fields = head.fields,
            });
            switch (verdict) {
                .not_websocket => return null,
                .refused => |refusal| return refusal,
                .accepted => |accepted| {
                    const slot = w.websockets.add() catch return .{ .status = 503, .reason = "Out of memory." };
                    slot.item.* = .init(accepted.key, &w.config);
                    exchange.websocket = .{ .ticket = slot.ticket, .item = slot.item };
                    return null;
                },
            }
        }

        /// The host never hears of it.
        fn refuseHandshake(w: *Self, peer: *Peer, exchange: *Exchange, refusal: handshake.Refusal) void {
            w.stats.refused += 1;
            peer.connection.session.closeAfterResponse();
            _ = w.start(exchange, .{
                .status = refusal.status,
                .fields = refusal.fields,
                .body = refusal.reason,
                .end = true,
            }) catch w.abort(exchange);
        }

        pub const AcceptError = exchange_file.StartError || error{NotWebSocket};

        /// Completes the handshake. `fields` are sent besides those that the protocol needs.
        pub fn acceptWebSocket(w: *Self, exchange: *Exchange, subprotocol: ?[]const u8, fields: []const Field) AcceptError!void {
            const websocket = exchange.websocket orelse return error.NotWebSocket;
            if (websocket.item.state != .handshake) return error.OutOfOrder;
            try exchange.switchProtocols(&w.pool, websocket.item, subprotocol, fields);
            websocket.item.state = .open;
            exchange.active_at = w.now;
            w.cork(peerOfExchange(exchange));
        }

        pub const SendError = websocket_file.SendError;

        /// Sends one message.
        pub fn sendMessage(w: *Self, exchange: *Exchange, kind: websocket_file.Kind, bytes: []const u8) SendError!Outcome {
            const websocket = exchange.openWebSocket() orelse return error.NotOpen;
            try websocket.send(kind, bytes, &exchange.connection.outbox, &w.pool);
            return w.queued(exchange);
        }

        pub const CloseError = websocket_file.CloseError || error{NotWebSocket};

        /// Starts the closing handshake; `closed` follows when the peer has answered or has had its time.
        pub fn closeWebSocket(w: *Self, exchange: *Exchange, code: u16, reason: []const u8) CloseError!void {
            const websocket = exchange.openWebSocket() orelse return error.NotWebSocket;
            try websocket.close(code, reason, w.now + w.config.close_ms, &exchange.connection.outbox, &w.pool);
            websocket.paused = false;
            const peer = peerOfExchange(exchange);
            w.cork(peer);
            if (w.pumping != peer) w.arm(peer);
        }

        /// Sets when pings are sent and what a missing pong means.
        pub fn setKeepalive(w: *Self, exchange: *Exchange, interval_ms: u32, timeout_ms: u32) error{NotWebSocket}!void {
            const websocket = exchange.openWebSocket() orelse return error.NotWebSocket;
            websocket.setKeepalive(interval_ms, timeout_ms, w.now);
            if (w.pumping != peerOfExchange(exchange)) w.arm(peerOfExchange(exchange));
        }

        /// Stops and resumes reading messages.
        pub fn pauseWebSocket(w: *Self, exchange: *Exchange, paused: bool) error{NotWebSocket}!void {
            const websocket = exchange.openWebSocket() orelse return error.NotWebSocket;
            if (websocket.state != .open) return;
            websocket.paused = paused;
            w.cork(peerOfExchange(exchange));
        }

        /// Ends the exchange when no byte moved in either direction for so long; 0: never.
        pub fn setIdleLimit(w: *Self, exchange: *Exchange, idle_ms: u32) void {
            exchange.idle_ms = idle_ms;
            exchange.active_at = w.now;
            if (w.pumping != peerOfExchange(exchange)) w.arm(peerOfExchange(exchange));
        }

        /// Hands one event of the WebSocket to the host; false when there is nothing more to parse.
        fn feedWebSocket(w: *Self, peer: *Peer, websocket: *WebSocket, unread: []u8, used: *usize) bool {
            const connection = &peer.connection;
            const exchange = connection.phase.exchange;
            if (unread.len == 0) return false;
            exchange.active_at = w.now;
            const step = websocket.feed(unread, &connection.outbox, &w.pool) catch {
                w.fail(peer, .server_error);
                return false;
            };
            used.* += step.consumed;
            switch (step.event) {
                .need_more => return false,
                .handled => {},
                .message => |message| w.host.message(w, exchange, message.kind, message.bytes),
                .closed => |from_peer| w.endWebSocket(exchange, from_peer, null),
                .failed => |failure| w.endWebSocket(exchange, .{ .code = failure.code, .reason = "" }, .protocol_error),
            }
            return true;
        }

        /// The close frames are exchanged or will never be: the host is told, what is queued is sent, the connection ends.
        fn endWebSocket(w: *Self, exchange: *Exchange, close_frame: websocket_file.Close, reason: ?Reason) void {
            exchange.connection.phase = .farewell;
            w.host.closed(w, exchange, close_frame, reason);
            w.forget(exchange);
        }

        fn websocketDue(w: *Self, peer: *Peer, exchange: *Exchange) void {
            const websocket = exchange.openWebSocket().?;
            switch (websocket.due(w.now)) {
                .nothing => w.arm(peer),
                .pong_missed => w.fail(peer, .keepalive_timeout),
                .close_unanswered => w.fail(peer, if (w.stopping == .no) .client_timeout else .server_shutdown),
                .ping => {
                    websocket.ping(&peer.connection.outbox, &w.pool, w.now) catch return w.fail(peer, .server_error);
                    if (peer.connection.output != .open or w.flush(peer)) w.settle(peer);
                },
            }
        }

        fn peerOfExchange(exchange: *Exchange) *Peer {
            return @fieldParentPtr("connection", exchange.connection);
        }

        /// What happens after output was queued: much of it goes out now, the rest at the end of the round. One send right after each answer
        /// would cost a Perl host 4 to 5 us a request: host and kernel evict each other's cache lines, and every send wakes a client.
        fn queued(w: *Self, exchange: *Exchange) Outcome {
            const peer = peerOfExchange(exchange);
            const connection = &peer.connection;
            exchange.active_at = w.now;
            const much = connection.outbox.bytes >= flush_bytes;
            if (connection.output == .open and much) {
                if (!w.flush(peer)) return .accepted; // the peer is gone, which the host was told
            }
            if (exchange.ended and connection.output == .open) {
                w.complete(peer, exchange);
                if (w.pumping != peer) {
                    if (connection.input.isEmpty() and connection.outbox.isEmpty()) w.settle(peer) else w.cork(peer);
                }
                return .done;
            }
            if (connection.output == .open) w.cork(peer);
            if (connection.outbox.bytes < w.config.write_high_bytes) return .accepted;
            exchange.above_high = true;
            return .blocked;
        }

        /// Queued output that is worth a system call before the round ends.
        const flush_bytes = 16 * 1024;

        /// The response is out of our hands: the connection goes on to whatever comes next.
        fn complete(w: *Self, peer: *Peer, exchange: *Exchange) void {
            const connection = &peer.connection;
            w.forget(exchange);
            switch (connection.session.disposition()) {
                .keep_alive => w.nextRequest(connection),
                .drain => connection.phase = .{ .draining = .{ .since = w.now, .bytes_left = w.config.drain_bytes_max } },
                .close => connection.phase = .farewell,
            }
        }

        fn nextRequest(w: *Self, connection: *Connection) void {
            connection.session.next();
            connection.phase = .{ .idle = .{ .since = w.now } };
        }

        fn forget(w: *Self, exchange: *Exchange) void {
            if (exchange.websocket) |websocket| {
                websocket.item.deinit(&w.pool);
                w.websockets.remove(websocket.ticket);
            }
            w.exchanges.remove(exchange.ticket);
        }

        fn writable(w: *Self, peer: *Peer) void {
            if (peer.connection.output == .open) return;
            if (w.flush(peer)) w.settle(peer);
        }

        /// Hands the outbox to the kernel until it is empty or the kernel has had enough. False: the connection is lost, and `peer` with it.
        fn flush(w: *Self, peer: *Peer) bool {
            const outbox = &peer.connection.outbox;
            var slices: [io_room.slices_max][]const u8 = undefined;
            var borrowed: [io_room.slices_max]io_room.Slice = undefined;
            while (true) switch (outbox.front(&slices)) {
                .nothing => break,
                .bytes => |count| {
                    var total: usize = 0;
                    for (slices[0..count], borrowed[0..count]) |bytes, *slice| {
                        slice.* = io_room.slice(bytes);
                        total += bytes.len;
                    }
                    switch (w.io.send(peer.socket, borrowed[0..count], false)) {
                        .sent => |len| {
                            w.took(peer, len);
                            outbox.consume(&w.pool, len);
                            if (len < total) {
                                w.block(peer);
                                return true;
                            }
                        },
                        .blocked => {
                            w.block(peer);
                            return true;
                        },
                        .failed => return w.sendFailed(peer),
                        .end_of_file, .file_failed => unreachable,
                    }
                },
                .file => |range| switch (w.flushFile(peer, range)) {
                    .sent => {},
                    .waits => return true,
                    .lost => return false,
                },
            };
            peer.connection.output = .open;
            return true;
        }

        /// Sends from the file at the front.
        fn flushFile(w: *Self, peer: *Peer, range: *FileRange) enum { sent, waits, lost } {
            switch (w.io.sendFile(peer.socket, range.fd, range.offset, range.len)) {
                .sent => |len| {
                    w.took(peer, len);
                    range.offset += len;
                    range.len -= len;
                    if (range.len == 0) {
                        io_room.file.close(peer.connection.outbox.popFile(&w.pool));
                        return .sent;
                    }
                    w.block(peer);
                    return .waits;
                },
                .blocked => {
                    w.block(peer);
                    return .waits;
                },
                .failed => _ = w.sendFailed(peer),
                .end_of_file, .file_failed => w.fail(peer, .server_error),
            }
            return .lost;
        }

        fn took(w: *Self, peer: *Peer, len: usize) void {
            switch (peer.connection.output) {
                .open => {},
                .blocked => |*stall| stall.progress(len),
            }
            switch (peer.connection.phase) {
                .exchange => |exchange| exchange.active_at = w.now,
                else => {},
            }
        }

        fn block(w: *Self, peer: *Peer) void {
            if (peer.connection.output == .open) peer.connection.output = .{ .blocked = .begin(w.now) };
        }

        fn sendFailed(w: *Self, peer: *Peer) bool {
            w.fail(peer, if (peer.connection.peer_ended) .client_closed else .write_error);
            return false;
        }

        /// After output moved or a phase changed: tells the host, takes the next step, sets timer and reading.
        fn settle(w: *Self, peer: *Peer) void {
            const connection = &peer.connection;
            switch (connection.phase) {
                .closed => return,
                .exchange => |exchange| {
                    if (exchange.ended) {
                        if (connection.output == .open) {
                            w.host.finished(w, exchange);
                            w.complete(peer, exchange);
                            if (!connection.input.isEmpty() and connection.wantsInput()) w.cork(peer);
                            return w.settle(peer);
                        }
                    } else if (exchange.above_high and connection.outbox.bytes < w.config.write_low_bytes) {
                        exchange.above_high = false;
                        w.host.drained(w, exchange);
                    }
                    if (!connection.input.isEmpty() and connection.wantsInput()) w.cork(peer);
                },
                .farewell => if (connection.outbox.isEmpty()) return w.linger(peer),
                .idle => if ((w.stopping != .no or connection.peer_ended) and connection.input.isEmpty() and connection.outbox.isEmpty()) {
                    return w.close(peer);
                },
                .head => if (connection.peer_ended) return w.close(peer),
                .draining, .lingering => {},
            }
            w.arm(peer);
        }

        /// Everything is sent: ends our sending side, and gives the peer time to read before the socket goes.
        fn linger(w: *Self, peer: *Peer) void {
            const connection = &peer.connection;
            connection.input.deinit(&w.pool);
            if (connection.peer_ended) return w.close(peer);
            w.io.shutdownSend(peer.socket);
            connection.phase = .{ .lingering = .{ .since = w.now } };
            w.arm(peer);
        }

        // ---- Ends

        /// The connection is lost: its exchange, if any, is aborted.
        fn fail(w: *Self, peer: *Peer, reason: Reason) void {
            switch (peer.connection.phase) {
                .exchange => |exchange| w.endExchange(exchange, reason),
                .closed => return,
                else => {},
            }
            w.close(peer);
        }

        fn endExchange(w: *Self, exchange: *Exchange, reason: Reason) void {
            exchange.connection.phase = .farewell;
            if (exchange.openWebSocket() != null) {
                w.host.closed(w, exchange, .{ .code = websocket_file.code_abnormal, .reason = "" }, reason);
            } else w.host.aborted(w, exchange, reason);
            w.forget(exchange);
        }

        fn close(w: *Self, peer: *Peer) void {
            const connection = &peer.connection;
            switch (connection.phase) {
                .closed => return,
                .exchange => unreachable, // an exchange ends by complete, endExchange or abort first
                else => {},
            }
            connection.phase = .closed;
            if (peer.socket != .none) w.io.close(peer.socket);
            peer.socket = .none;
            // Its bytes are being parsed further up the stack: pump releases it.
            if (w.pumping != peer) w.release(peer);
        }

        fn release(w: *Self, peer: *Peer) void {
            const connection = &peer.connection;
            switch (connection.phase) {
                .exchange => |exchange| w.forget(exchange),
                else => {},
            }
            if (peer.socket != .none) w.io.close(peer.socket);
            w.wheel.remove(&peer.timer);
            connection.input.deinit(&w.pool);
            var slices: [1][]const u8 = undefined;
            while (true) switch (connection.outbox.front(&slices)) {
                .nothing => break,
                .bytes => connection.outbox.consume(&w.pool, slices[0].len),
                .file => io_room.file.close(connection.outbox.popFile(&w.pool)),
            };
            connection.outbox.deinit(&w.pool);
            w.peers.remove(connection.ticket);
        }

        /// Stops accepting, closes idle connections; the rest finish what they are at and close then. `stopped` follows.
        pub fn drain(w: *Self) void {
            if (w.stopping != .no) return;
            w.stopping = .draining;
            w.io.closeListeners();
            var it = w.peers.iterator();
            while (it.next()) |peer| switch (peer.connection.phase) {
                .idle => w.settle(peer),
                .exchange => |exchange| {
                    peer.connection.session.closeAfterResponse();
                    const websocket = exchange.openWebSocket() orelse continue;
                    if (websocket.isOpen()) w.closeWebSocket(exchange, websocket_file.code_going_away, "") catch w.fail(peer, .server_shutdown);
                },
                else => {},
            };
        }

        /// Cuts every connection. `stopped` follows.
        pub fn cut(w: *Self) void {
            w.drain();
            var it = w.peers.iterator();
            while (it.next()) |peer| w.fail(peer, .server_shutdown);
        }

        fn checkStopped(w: *Self) void {
            if (w.stopping != .draining or w.peers.count > 0) return;
            w.stopping = .stopped;
            w.host.stopped(w);
        }

        /// Counters and sizes of now.
        pub fn statistics(w: *const Self) Stats {
            var stats = w.stats;
            stats.connections = w.peers.count;
            stats.exchanges = w.exchanges.count;
            stats.connections_max = w.connections_max;
            stats.memory_bytes = w.peers.memoryBytes() + w.exchanges.memoryBytes() + w.pool.memoryBytes();
            stats.allocations = w.pool.allocations + w.peers.chunks.items.len + w.exchanges.chunks.items.len;
            return stats;
        }
    };
}
