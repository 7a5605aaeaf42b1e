//! Accepts connections while the worker's host is busy: a thread that answers the health path when the worker has no time to.
//! Does not know: the worker's host, and what a connection wants that does not ask for the health path.
//!
//! A worker that hands its events to a slow host (Perl, in one long computation) accepts nobody meanwhile, so a load
//! balancer that asks whether the process lives would not be answered. The standby acceptor looks at the listeners ten
//! times a second. When a connection has waited there for `patience_ms` and the worker has not come round, it accepts in
//! its place: on listeners of its own that share the sockets, with a worker of its own, which knows handshakes, deadlines
//! and limits already. A connection that asks for the health path is answered. Every other one is handed over as soon as
//! its first bytes show that: socket, TLS session and what was read, and the worker goes on with it from there. While the
//! worker comes round in time, nothing else happens here.
const std = @import("std");
const assert = std.debug.assert;
const io = @import("io");
const Head = @import("protocol").Head;
const Refusal = @import("protocol").Refusal;
const tls = @import("tls");
const Admission = @import("admission.zig").Admission;
const Config = @import("config.zig").Config;
const Connection = @import("connection.zig").Connection;
const Demand = @import("demand.zig").Demand;
const Exchange = @import("exchange.zig").Exchange;
const Health = @import("health.zig").Health;
const Level = @import("types.zig").Level;
const Reason = @import("types.zig").Reason;
const Seat = @import("admission.zig").Seat;
const Ticket = @import("slab.zig").Ticket;
const Waker = @import("inbox.zig").Inbox.Waker;
const Worker = @import("worker.zig").Worker;
const websocket = @import("websocket.zig");
const Atomic = std.atomic.Value;

/// How often the standby acceptor looks up.
const tick_ms = 100;
/// How long a connection waits for the worker before the standby acceptor accepts it.
const patience_ms = 100;

/// A thread that accepts when a worker does not.
pub const Standby = struct {
    gpa: std.mem.Allocator,
    inner: Inner,
    host: Host,
    thread: std.Thread,
    /// The process that the thread belongs to: a fork has none.
    pid: std.posix.pid_t,
    /// Wakes the worker.
    waker: Waker,

    // The thread's own.
    seen: u64 = 0,
    /// Since when a connection has been waiting to be accepted; 0: none is.
    waiting_since: u64 = 0,

    // Between the two.
    /// Counts how often the worker came round.
    rounds: Atomic(u64) = .init(0),
    /// How many connections the worker has room for.
    room: Atomic(u32) = .init(0),
    /// Connections that the worker has yet to take,
    posted: Atomic(u32) = .init(0),
    /// and refusals.
    refused: Atomic(u32) = .init(0),
    /// Refusals that nobody can be told of.
    untold: Atomic(u32) = .init(0),
    /// Newest first.
    mail: Atomic(?*Message) = .init(null),
    accepts: Atomic(bool) = .init(false),
    stopping: Atomic(bool) = .init(false),

    const Inner = Worker(io.Native, Host);

    /// Where the worker listens.
    pub const Place = struct {
        /// Null: somebody else accepts there.
        descriptor: ?i32,
        address: io.Address,
        tls: ?*tls.Context,
    };

    /// Something for the worker.
    pub const Message = struct {
        next: ?*Message = null,
        content: union(enum) { handed: Handed, notice: Notice, refused: Refused },

        /// A line for the host's log.
        pub const Notice = struct { level: Level, text: []u8 };
    };

    /// A connection that does not ask for the health path.
    pub const Handed = struct {
        /// Idle, and without memory of any pool.
        connection: Connection,
        socket: io.Socket,
        seat: Seat,
        /// What was read, in plaintext.
        bytes: []u8,
    };

    /// A connection that the standby acceptor has refused in words: the access log is the worker's.
    pub const Refused = struct {
        /// Without memory of any pool, and gone by the time that the worker hears of it.
        connection: Connection,
        refusal: Refusal,
        /// What had come of its request, or the beginning of that.
        raw: []u8,
        /// When.
        wall_seconds: u64,
    };

    /// Refusals that wait for the worker: what a flood makes of them must not fill the memory. About one MiB.
    const refused_max = 1000;
    /// Enough for the request line and a few fields.
    const raw_bytes_max = 512;

    /// Starts the thread. `gpa` has to be safe for threads.
    pub fn open(gpa: std.mem.Allocator, config: Config, health: *const Health, admission: *Admission, places: []const Place, waker: Waker) !*Standby {
        const standby = try gpa.create(Standby);
        errdefer gpa.destroy(standby);
        standby.* = .{
            .gpa = gpa,
            .inner = undefined,
            .host = .{ .standby = standby },
            .thread = undefined,
            .pid = io.processId(),
            .waker = waker,
        };
        var own = config;
        // The worker's room is what counts, see `look`.
        own.connections_max = std.math.maxInt(u32) / 2;
        // It holds next to nothing, and its worker looks after the process.
        own.memory_bytes_max = 0;
        // Its connections may go on under a worker whose io has no kernel TLS.
        own.ktls = false;
        standby.inner = try .init(gpa, own, &standby.host, .{});
        errdefer standby.inner.deinit();
        standby.inner.health = health.*;
        standby.inner.useAdmission(admission);
        for (places) |place| try standby.addPlace(&place);
        standby.pause();
        standby.thread = try io.thread.spawn(run, .{standby});
        return standby;
    }

    /// Listeners get the numbers that they have in the worker.
    fn addPlace(standby: *Standby, place: *const Place) !void {
        const number = if (place.descriptor) |descriptor| shared: {
            const copy = try io.file.duplicate(descriptor);
            errdefer io.file.close(copy);
            break :shared try standby.inner.adoptListener(copy);
        } else try standby.inner.noteListener(place.address);
        if (place.tls) |context| try standby.inner.secureListener(number, context);
    }

    // ---- The worker's side

    /// The worker has come round, and has room for so many connections. What has come for it, the oldest first.
    pub fn attend(standby: *Standby, room: u32) Mail {
        standby.room.store(room, .monotonic);
        standby.rounds.store(standby.rounds.raw +% 1, .release);
        if (standby.accepts.load(.monotonic)) standby.inner.io.wake();
        return standby.take();
    }

    /// Ends the thread and closes what it still has. What was put there for the worker can still be taken.
    pub fn stop(standby: *Standby) void {
        if (standby.stopping.swap(true, .release)) return;
        // A fork has the memory, not the thread.
        if (standby.pid != io.processId()) return;
        standby.inner.io.wake();
        standby.thread.join();
        standby.inner.deinit();
    }

    /// Stops, and frees everything.
    pub fn close(standby: *Standby) void {
        standby.stop();
        if (standby.pid != io.processId()) return;
        var mail = standby.take();
        while (mail.next()) |message| switch (message.content) {
            .handed => |*handed| {
                if (handed.connection.tunnel) |tunnel| tunnel.discard();
                io.file.close(@backingInt(handed.socket));
                standby.free(message);
            },
            .notice, .refused => standby.free(message),
        };
        standby.gpa.destroy(standby);
    }

    /// Frees a message; what it names is the caller's.
    pub fn free(standby: *Standby, message: *Message) void {
        switch (message.content) {
            .handed => |*handed| standby.gpa.free(handed.bytes),
            .notice => |*notice| standby.gpa.free(notice.text),
            .refused => |*refused| standby.gpa.free(refused.raw),
        }
        standby.gpa.destroy(message);
    }

    /// Parcels in the order in which they were posted.
    pub const Mail = struct {
        first: ?*Message,

        /// The next one, which is the caller's to free.
        pub fn next(mail: *Mail) ?*Message {
            const message = mail.first orelse return null;
            mail.first = message.next;
            return message;
        }
    };

    /// How many refusals the mail had no room for since the last call.
    pub fn takeUntold(standby: *Standby) u32 {
        return if (standby.untold.load(.monotonic) == 0) 0 else standby.untold.swap(0, .monotonic);
    }

    fn take(standby: *Standby) Mail {
        if (standby.mail.load(.monotonic) == null) return .{ .first = null };
        var newest = standby.mail.swap(null, .acquire);
        standby.posted.store(0, .monotonic);
        standby.refused.store(0, .monotonic);
        var oldest: ?*Message = null;
        while (newest) |message| {
            newest = message.next;
            message.next = oldest;
            oldest = message;
        }
        return .{ .first = oldest };
    }

    // ---- The thread

    fn run(standby: *Standby) void {
        while (!standby.stopping.load(.acquire)) {
            // Under epoll waiting never fails.
            standby.inner.poll(tick_ms) catch return;
            standby.look();
        }
    }

    fn look(standby: *Standby) void {
        const now = standby.inner.now;
        const rounds = standby.rounds.load(.acquire);
        if (rounds != standby.seen) {
            standby.seen = rounds;
            standby.waiting_since = 0;
            return standby.pause();
        }
        if (!standby.accepts.raw) {
            if (!standby.hasWaiting()) {
                standby.waiting_since = 0;
                return;
            }
            if (standby.waiting_since == 0) standby.waiting_since = now;
            if (now - standby.waiting_since < patience_ms) return;
        }
        const held = standby.inner.peers.count + standby.posted.load(.monotonic);
        if (held < standby.room.load(.monotonic)) standby.acceptAgain() else standby.pause();
    }

    fn hasWaiting(standby: *const Standby) bool {
        for (standby.inner.listeners.items) |listener| {
            if (listener.id) |id| if (standby.inner.io.hasWaiting(id)) return true;
        }
        return false;
    }

    fn acceptAgain(standby: *Standby) void {
        standby.accepts.store(true, .monotonic);
        for (standby.inner.listeners.items) |listener| {
            // Out of memory: the next look tries again.
            if (listener.id) |id| standby.inner.io.resumeAccept(id) catch {};
        }
    }

    fn pause(standby: *Standby) void {
        standby.accepts.store(false, .monotonic);
        for (standby.inner.listeners.items) |listener| if (listener.id) |id| standby.inner.io.pauseAccept(id);
    }

    /// Hands a connection over. On an error nothing has changed.
    pub fn post(standby: *Standby, handed: Handed) error{OutOfMemory}!void {
        try standby.put(.{ .content = .{ .handed = handed } });
        _ = standby.posted.fetchAdd(1, .monotonic);
    }

    fn tellRefused(standby: *Standby, connection: *const Connection, refusal: Refusal, raw: []const u8) error{OutOfMemory}!void {
        if (standby.refused.load(.monotonic) >= refused_max) return error.OutOfMemory;
        const copy = try standby.gpa.dupe(u8, raw[0..@min(raw.len, raw_bytes_max)]);
        errdefer standby.gpa.free(copy);
        var gone = connection.*;
        gone.input = .{};
        gone.outbox = .{};
        gone.tunnel = null;
        gone.phase = .farewell;
        try standby.put(.{ .content = .{ .refused = .{
            .connection = gone,
            .refusal = refusal,
            .raw = copy,
            .wall_seconds = standby.inner.wall_seconds,
        } } });
        _ = standby.refused.fetchAdd(1, .monotonic);
    }

    fn put(standby: *Standby, content: Message) error{OutOfMemory}!void {
        const message = try standby.gpa.create(Message);
        message.* = content;
        var newest = standby.mail.load(.monotonic);
        while (true) {
            message.next = newest;
            newest = standby.mail.cmpxchgWeak(newest, message, .release, .monotonic) orelse break;
        }
        standby.waker.wake(standby.waker.context);
    }

    /// The host of the standby acceptor's own worker. Only requests for the health path come so far, and those the worker answers itself.
    pub const Host = struct {
        pub const demand: Demand = .push;

        standby: *Standby,
        /// The connection whose bytes have just shown that it wants something else.
        leaving: Ticket = .none,

        /// Nobody fetches anything here.
        pub fn waiting(_: *const Host) bool {
            return false;
        }

        /// Bytes that looked like the health path and are something else after all.
        pub fn request(_: *Host, worker: *Inner, exchange: *Exchange, _: *const Head) void {
            worker.abort(exchange);
        }

        /// The worker tells its own host.
        pub fn notice(host: *Host, _: *Inner, _: ?*Exchange, level: Level, text: []const u8) void {
            const standby = host.standby;
            const copy = standby.gpa.dupe(u8, text) catch return; // a log line, not an answer
            standby.put(.{ .content = .{ .notice = .{ .level = level, .text = copy } } }) catch standby.gpa.free(copy);
        }

        /// The worker's log gets a line.
        pub fn refused(host: *Host, _: *Inner, connection: *const Connection, refusal: Refusal, raw: []const u8) void {
            const standby = host.standby;
            standby.tellRefused(connection, refusal, raw) catch {
                _ = standby.untold.fetchAdd(1, .monotonic);
            };
        }

        /// As there are no requests, nothing of the following happens.
        pub fn body(_: *Host, _: *Inner, _: *Exchange, _: []const u8) void {}
        pub fn trailers(_: *Host, _: *Inner, _: *Exchange, _: *const Head) void {}
        pub fn bodyEnd(_: *Host, _: *Inner, _: *Exchange) void {}
        pub fn drained(_: *Host, _: *Inner, _: *Exchange) void {}
        pub fn finished(_: *Host, _: *Inner, _: *Exchange) void {}
        pub fn aborted(_: *Host, _: *Inner, _: *Exchange, _: Reason) void {}
        pub fn message(_: *Host, _: *Inner, _: *Exchange, _: websocket.Kind, _: []const u8) void {}
        pub fn closed(_: *Host, _: *Inner, _: *Exchange, _: websocket.Close, _: ?Reason) void {}
        pub fn halfClosed(_: *Host, _: *Inner, _: *Exchange) void {}
        /// The standby acceptor is stopped, not drained.
        pub fn stopped(_: *Host, _: *Inner) void {}
    };
};
