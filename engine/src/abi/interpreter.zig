//! An application's end of a ring pair whose engine may be in another process: how the interpreter joins and
//! is woken, and what becomes of its exchanges when the engine has gone.
const std = @import("std");
const peregrine = @import("peregrine");
const application_end = @import("application_end.zig");
const ApplicationEnd = application_end.ApplicationEnd;
const heap = @import("heap.zig");
const introduction = @import("introduction.zig");
const ring = @import("ring.zig");
const Takers = @import("offer.zig").Takers;
const shared_file = @import("shared.zig");
const Shared = shared_file.Shared;
const Wish = shared_file.Wish;
const types = @import("types.zig");
const io = peregrine.io;
const sharing = io.sharing;

/// An interpreter never moves: its end points to it.
pub const Interpreter = struct {
    gpa: std.mem.Allocator,
    shared: Shared,
    depot: ?sharing.Readable,
    config: peregrine.Config,
    /// The socket to the engine: tells of the engine's end, and carries descriptors.
    socket: i32,
    /// The epoll instance that watches the waker by which the engine makes this interpreter look around.
    waker: i32,
    /// The bell by which this interpreter makes the engine look around.
    bell: i32,
    wakeup: sharing.Wakeup,
    takers: Takers,
    end: ApplicationEnd,
    /// The engine as the application's end knows it.
    way: application_end.Engine,
    /// The number of routes that this program has added; the engine's owner adds the same routes there.
    routes: u8 = 0,
    /// A thread of this process has made the wakeup readable.
    raised: std.atomic.Value(bool) = .init(false),
    /// Whether the engine is there and its events are wanted.
    state: std.atomic.Value(State) = .init(.open),

    const State = enum(u8) {
        open,
        /// All exchanges are over, and C was not told of all ends yet.
        cut,
        /// C was told of all ends, the engine's included.
        over,
    };

    /// Why an interpreter cannot join.
    pub const JoinError = sharing.Error || error{
        OutOfMemory,
        /// The engine is another version of this library.
        VersionDiffers,
        /// The engine has gone, or has no place for another interpreter.
        Refused,
        TimedOut,
    };

    /// Becomes an interpreter of the engine at the other end of `join_socket`. Waits for it, at most
    /// `timeout_ms` (-1: without bound).
    pub fn join(
        gpa: std.mem.Allocator,
        join_socket: i32,
        takers: Takers,
        timeout_ms: i32,
    ) JoinError!*Interpreter {
        const met = try introduction.meet(join_socket, takers, timeout_ms);
        heap.prepare();
        errdefer for ([_]i32{ met.waker, met.bell, met.socket }) |fd| io.file.close(fd);
        errdefer met.memory.close();
        errdefer if (met.depot) |depot| depot.close();
        const self = try gpa.create(Interpreter);
        errdefer gpa.destroy(self);
        const shared: Shared = .of(met.memory);
        self.* = .{
            .gpa = gpa,
            .shared = shared,
            .depot = met.depot,
            .config = shared.limits() catch return error.VersionDiffers,
            .socket = met.socket,
            .waker = met.waker,
            .bell = met.bell,
            .wakeup = try .init(met.waker, met.socket),
            .takers = takers,
            .end = undefined,
            .way = .{
                .calls = &calls,
                .is_remote = true,
                .shed = null,
                .loop_since = &shared.words.loop_since,
                .process = shared.words.engine,
            },
        };
        errdefer self.wakeup.deinit();
        const ledger: @FieldType(ApplicationEnd, "ledger") = .init(gpa, &self.shared.slots, &self.config);
        self.end = try .init(
            gpa,
            &self.way,
            .init(shared.commands),
            .init(shared.events),
            shared.annexes,
            if (met.depot) |depot| depot.bytes else &.{},
            ledger,
        );
        // C polls once before it first waits for the wakeup, and the engine learns then that it waits.
        self.raise();
        return self;
    }

    /// Leaves the engine, which ends the open exchanges.
    pub fn destroy(self: *Interpreter) void {
        std.debug.assert(self.socket >= 0 and self.waker >= 0);
        self.end.flush();
        self.end.deinit();
        self.wakeup.deinit();
        io.file.close(self.socket);
        io.file.close(self.waker);
        io.file.close(self.bell);
        self.shared.memory.close();
        if (self.depot) |depot| depot.close();
        self.gpa.destroy(self);
    }

    /// The next events. Waits up to `timeout_ms` (-1: without bound) if there are none.
    pub fn poll(
        self: *Interpreter,
        timeout_ms: c_int,
        inbox: ?*const peregrine.Inbox,
    ) error{ Malformed, OutOfMemory }![]const types.Event {
        if (self.state.load(.acquire) == .over) {
            self.waitForLoop(timeout_ms);
            return &.{};
        }
        const events = self.end.poll(timeout_ms, inbox) catch |err| switch (err) {
            // The ring of events has something that the engine has not put there: the ring pair is of no use.
            error.Malformed => self.breakOff(),
            error.OutOfMemory => return error.OutOfMemory,
        };
        if (events.len > 0 or self.state.load(.acquire) == .open) return events;
        const last = try self.end.endAll();
        std.debug.assert(last.len > 0 and last[last.len - 1].kind == .stopped);
        self.state.store(.over, .release);
        return last;
    }

    /// The engine sends no further events, but the program's loop waits here for all that it watches itself.
    fn waitForLoop(self: *Interpreter, timeout_ms: c_int) void {
        const loop = if (self.end.loop) |*loop| loop else return;
        self.clear(true);
        if (timeout_ms == 0) loop.look() else self.wait(timeout_ms, loop);
    }

    /// C's loop, with the descriptor `loop`, waits here from now on (`peregrine_host_loop`); -1: none does.
    pub fn watchLoop(self: *Interpreter, loop: i32) sharing.Error!void {
        return self.wakeup.watchLoop(loop);
    }

    fn breakOff(self: *Interpreter) []const types.Event {
        _ = self.state.cmpxchgStrong(.open, .cut, .acq_rel, .monotonic);
        self.wish(Wish.cut);
        return &.{};
    }

    /// Tells the engine that no further requests, or no WebSockets, are wanted: see `Wish`.
    pub fn wish(self: *Interpreter, wanted: u32) void {
        _ = self.shared.words.wishes.fetchOr(wanted, .acq_rel);
        self.wakeEngine();
        // If the engine's end was told already, C hears of it once more.
        if (self.state.cmpxchgStrong(.over, .cut, .acq_rel, .monotonic) == null) self.raise();
    }

    /// Whether interpreters are to take turns, see `Wish.turns`.
    pub fn takeTurns(self: *Interpreter, on: bool) void {
        const wishes = &self.shared.words.wishes;
        const turns: u32 = Wish.turns;
        _ = if (on) wishes.fetchOr(turns, .acq_rel) else wishes.fetchAnd(~turns, .acq_rel);
    }

    /// Has the engine answer a request that the application will never answer. Touches nothing that the
    /// application may be changing, so it may be called in a signal handler.
    pub fn giveUp(self: *Interpreter, ticket: types.Ticket) void {
        self.shared.words.given_up.store(ticket, .release);
        self.wakeEngine();
    }

    /// Hands a request over to interpreters of another kind: it is over here.
    pub fn handOver(self: *Interpreter, ticket: types.Ticket) c_int {
        if (self.shared.words.hands == 0) return types.Code.out_of_order;
        return self.end.answer(ticket, &.hand_over, 0);
    }

    /// Gives a request back that was taken while the application still works on another request.
    pub fn giveBack(self: *Interpreter, ticket: types.Ticket) c_int {
        if (self.takers != .handed) return types.Code.out_of_order;
        return self.end.answer(ticket, &.hand_over, 0);
    }

    /// Has the engine hand over all requests of a route, without an interpreter that takes them first.
    pub fn passOn(self: *Interpreter, route: u8) void {
        if (self.shared.words.hands != 0) self.shared.words.passOn(route);
    }

    /// Tells the engine how many exchanges wait for their clients.
    pub fn noteParked(self: *Interpreter, count: u32) void {
        _ = self.shared.words.parked.swap(count, .acq_rel);
        self.wakeIfShort();
    }

    /// Tells the engine that C begins (`works`) or has ceased to handle events of its own loop.
    pub fn noteLoop(self: *Interpreter, works: bool) void {
        self.end.noteLoop(works);
        if (!works) self.wakeIfShort();
    }

    /// Wakes the engine if requests may wait for this interpreter, which has time for more now.
    fn wakeIfShort(self: *Interpreter) void {
        if (self.shared.words.is_short.load(.acquire) == 0) return;
        if (self.shared.words.is_short.swap(0, .acq_rel) != 0) self.wakeEngine();
    }

    /// Ends all exchanges that are open.
    pub fn cut(self: *Interpreter) void {
        self.end.flush();
        _ = self.state.cmpxchgStrong(.open, .cut, .acq_rel, .monotonic);
        self.wish(Wish.cut);
        self.raise();
    }

    /// Makes the wakeup readable. From any thread.
    pub fn raise(self: *Interpreter) void {
        if (!self.raised.swap(true, .acq_rel)) self.wakeup.raise();
    }

    /// The number of the next route; null: there are too many.
    pub fn countRoute(self: *Interpreter) ?u8 {
        if (self.routes == std.math.maxInt(u8)) return null;
        self.routes += 1;
        std.debug.assert(self.routes > 0);
        return self.routes;
    }

    // ---- Functions for the application's end

    const calls: application_end.Engine.Calls = .of(Interpreter);

    /// Whether the engine reads no commands of this interpreter any more.
    pub fn isDeaf(self: *const Interpreter) bool {
        return self.state.load(.acquire) != .open or self.shared.words.broken.load(.acquire) != 0;
    }

    pub fn wakeEngine(self: *Interpreter) void {
        sharing.ring(self.bell);
    }

    /// Makes the wakeup unreadable. `asleep`: the engine may have made it readable.
    pub fn clear(self: *Interpreter, asleep: bool) void {
        if (!asleep and !self.raised.load(.monotonic)) return;
        self.raised.store(false, .monotonic);
        self.wakeup.clear();
        if (!self.wakeup.has_ended) return;
        self.wakeup.forget(self.socket);
        _ = self.state.cmpxchgStrong(.open, .cut, .acq_rel, .monotonic);
    }

    pub fn wait(self: *Interpreter, timeout_ms: c_int, loop: ?*application_end.HostLoop) void {
        // The end of all exchanges was noted, and C is to be told of it now.
        if (self.state.load(.acquire) == .cut) return;
        const host_loop = loop orelse {
            _ = self.wakeup.wait(timeout_ms, null);
            return;
        };
        const blocked = if (host_loop.blocked) |*set| set else null;
        if (self.wakeup.wait(timeout_ms, blocked)) host_loop.is_due = true;
    }

    /// Waits for room, which the engine makes soon, as it always takes commands. False: the engine has gone.
    pub fn waitForRoom(self: *Interpreter, commands: *ring.Writer) bool {
        // The next poll looks at any other reason for which the waker was raised meanwhile.
        defer self.raise();
        while (!(commands.awaitRoom() catch return false)) {
            if (self.isDeaf() or sharing.hasEnded(self.socket)) return false;
            self.wakeEngine();
            _ = self.wakeup.waitWithoutLoop(room_wait_ms);
            self.raised.store(false, .monotonic);
        }
        return true;
    }

    const room_wait_ms = peregrine.api_limits.room_wait_ms;

    /// The file that an event names, which has come before it.
    pub fn receiveFile(self: *Interpreter) introduction.DescriptorError!i32 {
        return introduction.receiveDescriptor(self.socket);
    }

    /// Sends a copy of a descriptor, for the command that follows. False: the engine has gone.
    pub fn sendFile(self: *Interpreter, fd: i32) bool {
        while (true) switch (sharing.send(self.socket, introduction.file_message, &.{fd})) {
            .sent => return true,
            .ended => return false,
            // The engine takes descriptors when it comes to their commands.
            .blocked => {
                if (self.isDeaf()) return false;
                self.wakeEngine();
                sharing.waitWritable(self.socket, room_wait_ms);
            },
        };
    }
};
