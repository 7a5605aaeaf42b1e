//! Who opens the door while the house is busy: a thread that answers the health path when the worker has no time to accept.
//! Refuses to know: the worker's host, and what a connection wants that does not ask for the health path.
//!
//! A worker that hands its events to a slow host (Perl, in one long computation) accepts nobody meanwhile, so a load balancer that asks whether
//! the process lives would not be answered. The porter looks at the listeners ten times a second. When a connection has waited there for
//! `patience_ms` and the worker has not come round, it accepts in its place: on listeners of its own that share the sockets, with a worker of
//! its own, which knows handshakes, deadlines and limits already. A connection that asks for the health path is answered. Every other one is
//! handed over as soon as its first bytes show that: socket, TLS session and what was read, and the worker goes on with it where the
//! porter stopped. In a worker that comes round in time the porter does nothing but look.
const std = @import("std");
const assert = std.debug.assert;
const io = @import("io");
const Head = @import("protocol").Head;
const Refusal = @import("protocol").Refusal;
const tls = @import("tls");
const Admission = @import("admission.zig").Admission;
const Config = @import("config.zig").Config;
const Connection = @import("connection.zig").Connection;
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

/// How often the porter looks up.
const tick_ms = 100;
/// How long a connection waits for the worker before the porter accepts it.
const patience_ms = 100;

/// A thread that accepts when a worker does not.
pub const Porter = struct {
    gpa: std.mem.Allocator,
    inner: Inner,
    host: Host,
    thread: std.Thread,
    /// The process that the thread belongs to: a fork has none.
    pid: std.posix.pid_t,
    /// Rings at the worker.
    waker: Waker,

    // The thread's own.
    seen: u64 = 0,
    /// Since when somebody has been waiting at the door; 0: nobody is.
    knocked_at: u64 = 0,

    // Between the two.
    /// Counts how often the worker came round.
    rounds: Atomic(u64) = .init(0),
    /// How many connections the worker has room for.
    room: Atomic(u32) = .init(0),
    /// Connections in the mail,
    posted: Atomic(u32) = .init(0),
    /// and refusals.
    refused: Atomic(u32) = .init(0),
    /// Refusals that found no room there.
    untold: Atomic(u32) = .init(0),
    /// Newest first.
    mail: Atomic(?*Parcel) = .init(null),
    accepts: Atomic(bool) = .init(false),
    stopping: Atomic(bool) = .init(false),

    const Inner = Worker(io.Native, Host);

    /// Where the worker listens.
    pub const Door = struct {
        /// Null: somebody else accepts there.
        descriptor: ?i32,
        address: io.Address,
        tls: ?*tls.Context,
    };

    /// Something for the worker.
    pub const Parcel = struct {
        next: ?*Parcel = null,
        content: union(enum) { guest: Guest, notice: Notice, refused: Refused },

        /// A line for the host's log.
        pub const Notice = struct { level: Level, text: []u8 };
    };

    /// A connection that does not ask for the health path.
    pub const Guest = struct {
        /// Idle, and without memory of any pool.
        connection: Connection,
        socket: io.Socket,
        seat: Seat,
        /// What was read, in plaintext.
        bytes: []u8,
    };

    /// A connection that the porter has refused in words: the access log is the worker's.
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
    pub fn open(gpa: std.mem.Allocator, config: Config, health: *const Health, admission: *Admission, doors: []const Door, waker: Waker) !*Porter {
        const porter = try gpa.create(Porter);
        errdefer gpa.destroy(porter);
        porter.* = .{
            .gpa = gpa,
            .inner = undefined,
            .host = .{ .porter = porter },
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
        porter.inner = try .init(gpa, own, &porter.host, .{});
        errdefer porter.inner.deinit();
        porter.inner.health = health.*;
        porter.inner.useAdmission(admission);
        for (doors) |door| try porter.addDoor(&door);
        porter.shut();
        porter.thread = try io.thread.spawn(run, .{porter});
        return porter;
    }

    /// Listeners get the numbers that they have in the worker.
    fn addDoor(porter: *Porter, door: *const Door) !void {
        const number = if (door.descriptor) |descriptor| shared: {
            const copy = try io.file.duplicate(descriptor);
            errdefer io.file.close(copy);
            break :shared try porter.inner.adoptListener(copy);
        } else try porter.inner.noteListener(door.address);
        if (door.tls) |context| try porter.inner.secureListener(number, context);
    }

    // ---- The worker's side

    /// The worker has come round, and has room for so many connections. What has come for it, the oldest first.
    pub fn attend(porter: *Porter, room: u32) Mail {
        porter.room.store(room, .monotonic);
        porter.rounds.store(porter.rounds.raw +% 1, .release);
        if (porter.accepts.load(.monotonic)) porter.inner.io.wake();
        return porter.take();
    }

    /// Ends the thread and closes what it still has. What is in the mail can still be taken.
    pub fn stop(porter: *Porter) void {
        if (porter.stopping.swap(true, .release)) return;
        // A fork has the memory, not the thread.
        if (porter.pid != io.processId()) return;
        porter.inner.io.wake();
        porter.thread.join();
        porter.inner.deinit();
    }

    /// Stops, and frees everything.
    pub fn close(porter: *Porter) void {
        porter.stop();
        if (porter.pid != io.processId()) return;
        var mail = porter.take();
        while (mail.next()) |parcel| switch (parcel.content) {
            .guest => |*guest| {
                if (guest.connection.tunnel) |tunnel| tunnel.discard();
                io.file.close(@backingInt(guest.socket));
                porter.free(parcel);
            },
            .notice, .refused => porter.free(parcel),
        };
        porter.gpa.destroy(porter);
    }

    /// Frees a parcel; what it names is the caller's.
    pub fn free(porter: *Porter, parcel: *Parcel) void {
        switch (parcel.content) {
            .guest => |*guest| porter.gpa.free(guest.bytes),
            .notice => |*notice| porter.gpa.free(notice.text),
            .refused => |*refused| porter.gpa.free(refused.raw),
        }
        porter.gpa.destroy(parcel);
    }

    /// Parcels in the order in which they were posted.
    pub const Mail = struct {
        first: ?*Parcel,

        /// The next one, which is the caller's to free.
        pub fn next(mail: *Mail) ?*Parcel {
            const parcel = mail.first orelse return null;
            mail.first = parcel.next;
            return parcel;
        }
    };

    /// How many refusals the mail had no room for since the last call.
    pub fn takeUntold(porter: *Porter) u32 {
        return if (porter.untold.load(.monotonic) == 0) 0 else porter.untold.swap(0, .monotonic);
    }

    fn take(porter: *Porter) Mail {
        if (porter.mail.load(.monotonic) == null) return .{ .first = null };
        var newest = porter.mail.swap(null, .acquire);
        porter.posted.store(0, .monotonic);
        porter.refused.store(0, .monotonic);
        var oldest: ?*Parcel = null;
        while (newest) |parcel| {
            newest = parcel.next;
            parcel.next = oldest;
            oldest = parcel;
        }
        return .{ .first = oldest };
    }

    // ---- The thread

    fn run(porter: *Porter) void {
        while (!porter.stopping.load(.acquire)) {
            // Under epoll waiting never fails.
            porter.inner.poll(tick_ms) catch return;
            porter.look();
        }
    }

    fn look(porter: *Porter) void {
        const now = porter.inner.now;
        const rounds = porter.rounds.load(.acquire);
        if (rounds != porter.seen) {
            porter.seen = rounds;
            porter.knocked_at = 0;
            return porter.shut();
        }
        if (!porter.accepts.raw) {
            if (!porter.isKnockedAt()) {
                porter.knocked_at = 0;
                return;
            }
            if (porter.knocked_at == 0) porter.knocked_at = now;
            if (now - porter.knocked_at < patience_ms) return;
        }
        const held = porter.inner.peers.count + porter.posted.load(.monotonic);
        if (held < porter.room.load(.monotonic)) porter.unlock() else porter.shut();
    }

    fn isKnockedAt(porter: *const Porter) bool {
        for (porter.inner.listeners.items) |listener| {
            if (listener.id) |id| if (porter.inner.io.isKnockedAt(id)) return true;
        }
        return false;
    }

    fn unlock(porter: *Porter) void {
        porter.accepts.store(true, .monotonic);
        for (porter.inner.listeners.items) |listener| {
            // Out of memory: the next look tries again.
            if (listener.id) |id| porter.inner.io.resumeAccept(id) catch {};
        }
    }

    fn shut(porter: *Porter) void {
        porter.accepts.store(false, .monotonic);
        for (porter.inner.listeners.items) |listener| if (listener.id) |id| porter.inner.io.pauseAccept(id);
    }

    /// Hands a connection over. On an error nothing has changed.
    pub fn post(porter: *Porter, guest: Guest) error{OutOfMemory}!void {
        try porter.put(.{ .content = .{ .guest = guest } });
        _ = porter.posted.fetchAdd(1, .monotonic);
    }

    fn tellRefused(porter: *Porter, connection: *const Connection, refusal: Refusal, raw: []const u8) error{OutOfMemory}!void {
        if (porter.refused.load(.monotonic) >= refused_max) return error.OutOfMemory;
        const copy = try porter.gpa.dupe(u8, raw[0..@min(raw.len, raw_bytes_max)]);
        errdefer porter.gpa.free(copy);
        var gone = connection.*;
        gone.input = .{};
        gone.outbox = .{};
        gone.tunnel = null;
        gone.phase = .farewell;
        try porter.put(.{ .content = .{ .refused = .{
            .connection = gone,
            .refusal = refusal,
            .raw = copy,
            .wall_seconds = porter.inner.wall_seconds,
        } } });
        _ = porter.refused.fetchAdd(1, .monotonic);
    }

    fn put(porter: *Porter, content: Parcel) error{OutOfMemory}!void {
        const parcel = try porter.gpa.create(Parcel);
        parcel.* = content;
        var newest = porter.mail.load(.monotonic);
        while (true) {
            parcel.next = newest;
            newest = porter.mail.cmpxchgWeak(newest, parcel, .release, .monotonic) orelse break;
        }
        porter.waker.wake(porter.waker.context);
    }

    /// The host of the porter's own worker. Only requests for the health path come so far, and those the worker answers itself.
    pub const Host = struct {
        pub const demand = .push;

        porter: *Porter,
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
            const porter = host.porter;
            const copy = porter.gpa.dupe(u8, text) catch return; // a log line, not an answer
            porter.put(.{ .content = .{ .notice = .{ .level = level, .text = copy } } }) catch porter.gpa.free(copy);
        }

        /// The worker's log gets a line.
        pub fn refused(host: *Host, _: *Inner, connection: *const Connection, refusal: Refusal, raw: []const u8) void {
            const porter = host.porter;
            porter.tellRefused(connection, refusal, raw) catch {
                _ = porter.untold.fetchAdd(1, .monotonic);
            };
        }

        /// As there are no requests, nothing of the following happens.
        pub fn body(_: *Host, _: *Inner, _: *Exchange, _: []const u8) void {}
        /// Nor this.
        pub fn trailers(_: *Host, _: *Inner, _: *Exchange, _: *const Head) void {}
        /// Nor this.
        pub fn bodyEnd(_: *Host, _: *Inner, _: *Exchange) void {}
        /// Nor this.
        pub fn drained(_: *Host, _: *Inner, _: *Exchange) void {}
        /// Nor this.
        pub fn finished(_: *Host, _: *Inner, _: *Exchange) void {}
        /// Nor this.
        pub fn aborted(_: *Host, _: *Inner, _: *Exchange, _: Reason) void {}
        /// Nor this.
        pub fn message(_: *Host, _: *Inner, _: *Exchange, _: websocket.Kind, _: []const u8) void {}
        /// Nor this.
        pub fn closed(_: *Host, _: *Inner, _: *Exchange, _: websocket.Close, _: ?Reason) void {}
        /// Nor this.
        pub fn halfClosed(_: *Host, _: *Inner, _: *Exchange) void {}
        /// The porter is stopped, not drained.
        pub fn stopped(_: *Host, _: *Inner) void {}
    };
};
