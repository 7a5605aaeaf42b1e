//! The io contract (see io.zig) on a simulated network in this process, for tests: slow, fragmented, unfair,
//! and the same again with the same seed. `Link`s play the kernel, and tests hold the other ends (`Peer`).
//! Does not know: the kernel (except for files of `sendFile`), real time, and the meaning of bytes.
//!
//! All random numbers come from one generator with the seed `Options.seed`, in the order of the owner's
//! calls, so equal calls give equal histories. Time moves only with `advance`, and `wait` never sleeps.

const std = @import("std");
const io = @import("io.zig");
const polling = @import("polling.zig");
const sys = @import("sys.zig");
const Link = @import("sim/link.zig").Link;
const Pipe = @import("sim/link.zig").Pipe;
/// Makes the simulated kernel's TLS records.
pub const Sealer = @import("sim/sealer.zig").Sealer;
const assert = std.debug.assert;

/// The other end of a connection, for tests.
pub const Peer = @import("sim/peer.zig").Peer;

const Address = io.Address;
const Event = io.Event;
const SendResult = io.SendResult;
const Slice = io.Slice;
const Socket = io.Socket;
const Token = io.Token;

/// A simulated network with a seed.
pub const Sim = struct {
    gpa: std.mem.Allocator,
    options: Options,
    random: std.Random.DefaultPrng,
    now_ms: u64,
    alarm_ms: ?u64 = null,
    buffer: []u8,
    listeners: std.ArrayList(Listener) = .empty,
    /// All connections that ever existed, by `Peer.index`, so that a `Peer` stays valid.
    links: std.ArrayList(Link) = .empty,
    /// Slots by `Socket`. The lowest free one is used first, as by a kernel, so that numbers are used again
    /// early.
    slots: std.ArrayList(Slot) = .empty,
    /// The items that `next` goes through in this round.
    agenda: std.ArrayList(Item) = .empty,
    agenda_next: usize = 0,
    /// Descriptors have run out, so accepting fails. See `exhaust`.
    exhausted: bool = false,
    wake_requested: std.atomic.Value(bool) = .init(false),
    woken_due: bool = false,
    /// The functions that play a wait; null: no time passes in a wait.
    waiter: ?*const Waiter = null,
    /// Descriptors of the system that are watched beside the network, in some tests; null: none can be
    /// watched.
    foreign: ?std.ArrayList(sys.Fd) = null,

    /// For simulations that play threads: `wait` is called before each wait of the io and ends it by
    /// returning, `wake` with each `wake`.
    pub const Waiter = struct {
        wait: *const fn (*Sim, timeout_ms: i32) void,
        wake: *const fn (*Sim) void,
    };

    /// Limits, with the names of `io.Options`, and the properties of the network. `…_permille` is a chance
    /// out of 1000.
    pub const Options = struct {
        receive_buffer_bytes: u32 = 64 * 1024,
        events_per_wait: u16 = 256,
        accepts_per_wait: u16 = 64,
        send_file_bytes_max: u32 = 1024 * 1024,

        /// The seed of a history.
        seed: u64 = 0,
        /// Bytes that may be on their way in each direction; further bytes find no room.
        window_bytes: u32 = 64 * 1024,
        /// The part of the window that must be free before a blocked sender is told, out of 1000. Linux waits
        /// for a third.
        room_permille: u16 = 0,
        /// A receive gets only a random part of the bytes.
        short_read_permille: u16 = 300,
        /// An event is not reported in this round.
        late_permille: u16 = 200,
        /// A send is blocked although there is room.
        block_permille: u16 = 100,
        /// A send takes only a random part of the bytes that fit.
        partial_send_permille: u16 = 200,
        /// A piece of a long file is not in memory.
        slow_file_permille: u16 = 0,
        /// An open connection is reset, for each connection and round.
        reset_permille: u16 = 0,
        /// The kernel seals output of TLS connections whose cipher is AES-128-GCM.
        seals: bool = false,
        /// Accepting fails, for each attempt, as if descriptors had run out.
        accept_failure_permille: u16 = 0,
        /// The first value of the monotonic clock, in milliseconds.
        start_ms: u64 = 1_000_000,
        /// The wall clock at that time, in seconds since 1970.
        start_wall_seconds: u64 = 1_700_000_000,
    };

    /// Simulations have no other threads, so all work is done in calls of the owner.
    pub const is_simulated = true;

    /// A network without connections. It may be copied only before the first `Peer` exists.
    pub fn init(gpa: std.mem.Allocator, options: Options) error{OutOfMemory}!Sim {
        assert(options.receive_buffer_bytes > 0);
        assert(options.events_per_wait > 0);
        assert(options.accepts_per_wait > 0);
        assert(options.send_file_bytes_max > 0);
        assert(options.window_bytes > 0);
        // A chance of 1000 would keep everything from happening.
        assert(options.late_permille < 1000 and options.block_permille < 1000 and
            options.accept_failure_permille < 1000);
        return .{
            .gpa = gpa,
            .options = options,
            .random = .init(options.seed),
            .now_ms = options.start_ms,
            .buffer = try gpa.alloc(u8, options.receive_buffer_bytes),
        };
    }

    /// Frees the network with all connections.
    pub fn deinit(self: *Sim) void {
        for (self.links.items) |*link| link.deinit(self.gpa);
        for (self.listeners.items) |*listener| listener.backlog.deinit(self.gpa);
        self.links.deinit(self.gpa);
        self.slots.deinit(self.gpa);
        self.listeners.deinit(self.gpa);
        self.agenda.deinit(self.gpa);
        if (self.foreign) |*list| list.deinit(self.gpa);
        self.gpa.free(self.buffer);
        self.* = undefined;
    }

    // ---- Functions for tests

    /// Connects to a listener, which may be paused.
    pub fn connect(self: *Sim, listener: u32) error{ OutOfMemory, Refused }!Peer {
        if (self.listeners.items[listener].state == .closed) return error.Refused;
        const index: u32 = @intCast(self.links.items.len);
        const near = &self.listeners.items[listener];
        try near.backlog.ensureUnusedCapacity(self.gpa, 1);
        try self.links.ensureUnusedCapacity(self.gpa, 1);
        // `next` cannot fail, so room for the socket must exist before.
        try self.slots.ensureTotalCapacity(self.gpa, index + 1);
        self.links.appendAssumeCapacity(.{ .address = peerAddress(&near.address, index) });
        near.backlog.appendAssumeCapacity(index);
        return .{ .sim = self, .index = index };
    }

    fn peerAddress(listener: *const Address, index: u32) Address {
        const low: [4]u8 = @bitCast(std.mem.nativeToBig(u32, index));
        switch (listener.*) {
            .v4 => return .{ .v4 = .{ .bytes = .{ 10, low[1], low[2], low[3] }, .port = 40_000 } },
            .v6 => {
                var bytes: [16]u8 = @splat(0);
                bytes[0] = 0xfd;
                bytes[12..].* = low;
                return .{ .v6 = .{ .bytes = bytes, .port = 40_000 } };
            },
            .unix => return .{ .unix = .{ .buffer = @splat(0), .length = 0 } },
        }
    }

    /// Moves the simulated clocks forward.
    pub fn advance(self: *Sim, ms: u64) void {
        self.now_ms += ms;
    }

    /// Lets blocked sends go on, as a round does.
    pub fn elapse(self: *Sim) void {
        for (self.slots.items) |*slot| if (slot.stall == .rounds) {
            slot.stall.rounds -|= 1;
        };
    }

    /// Sets whether descriptors have run out.
    pub fn exhaust(self: *Sim, exhausted: bool) void {
        self.exhausted = exhausted;
    }

    /// Whether the `fd()` of a real io would be readable, because `wait(0)` has an event, now or after a
    /// delay.
    pub fn readable(self: *const Sim) bool {
        if (self.wake_requested.load(.acquire)) return true;
        if (self.alarm_ms) |at| if (at <= self.now_ms) return true;
        for (self.slots.items) |*slot| if (self.isDue(slot)) return true;
        for (self.listeners.items) |*listener| {
            if (listener.state == .watched and listener.backlog.items.len > 0) return true;
        }
        return self.woken_due or self.hasForeign();
    }

    // ---- Listeners

    /// Reasons why the io cannot listen at an address.
    pub const ListenError = error{OutOfMemory} || io.ListenError;

    /// Listens; port 0 becomes a free port. Fails only if the address is used already and not shared.
    pub fn listen(self: *Sim, address: Address, options: io.ListenOptions) ListenError!u32 {
        const id: u32 = @intCast(self.listeners.items.len);
        var place = address;
        switch (place) {
            .v4 => |*v4| if (v4.port == 0) {
                v4.port = @intCast(49_152 + id);
            },
            .v6 => |*v6| if (v6.port == 0) {
                v6.port = @intCast(49_152 + id);
            },
            .unix => {},
        }
        for (self.listeners.items) |*other| {
            if (other.state != .closed and other.address.eql(&place) and !options.reuse_port) {
                return error.AddressInUse;
            }
        }
        try self.listeners.append(self.gpa, .{ .address = place, .state = .watched });
        return id;
    }

    /// The simulation has no descriptors, so this fails.
    pub fn adoptListener(_: *Sim, _: sys.Fd) ListenError!u32 {
        return error.AddressUnavailable;
    }

    pub fn listenerAddress(self: *const Sim, id: u32) Address {
        return self.listeners.items[id].address;
    }

    /// Stops accepting at a listener.
    pub fn pauseAccept(self: *Sim, id: u32) void {
        const listener = &self.listeners.items[id];
        if (listener.state == .watched) listener.state = .paused;
    }

    /// Accepts at a listener again.
    pub fn resumeAccept(self: *Sim, id: u32) error{}!void {
        const listener = &self.listeners.items[id];
        if (listener.state == .paused) listener.state = .watched;
    }

    /// Closes all listeners; connections that were not accepted are reset.
    pub fn closeListeners(self: *Sim) void {
        for (self.listeners.items) |*listener| {
            listener.state = .closed;
            for (listener.backlog.items) |index| self.links.items[index].ours = .reset;
            listener.backlog.clearRetainingCapacity();
        }
    }

    // ---- Sockets

    /// Begins to deliver the events of an accepted socket.
    pub fn add(self: *Sim, socket: Socket, token: Token) error{}!void {
        const slot = self.slotOf(socket);
        assert(slot.phase == .accepted);
        slot.phase = .open;
        slot.token = token;
    }

    /// Closes a socket, added or not. With unread bytes the peer sees a reset, and may lose unread bytes, as
    /// with a real kernel.
    pub fn close(self: *Sim, socket: Socket) void {
        const slot = self.slotOf(socket);
        const link = &self.links.items[slot.link];
        if (link.to_us.unread().len > 0) {
            link.ours = .reset;
            if (self.chance(500)) link.to_peer.clear();
        } else if (link.ours == .open) link.ours = .shut;
        link.closed = true;
        link.to_us.deinit(self.gpa);
        slot.* = .{ .phase = .vacant };
    }

    /// Closes a socket with a reset, so that the peer may lose unread bytes.
    pub fn reset(self: *Sim, socket: Socket) void {
        const link = &self.links.items[self.slotOf(socket).link];
        link.ours = .reset;
        if (self.chance(500)) link.to_peer.clear();
        self.close(socket);
    }

    /// Does nothing, because a simulated peer never vanishes silently.
    pub fn probe(_: *Sim, _: Socket) void {}

    /// The end of a simulated peer is seen only by its event.
    pub fn hasPeerShut(_: *Sim, _: Socket) bool {
        return false;
    }

    /// Does nothing, because a simulated network has no unsent bytes.
    pub fn limitUnsent(_: *Sim, _: Socket, _: u31) void {}

    /// Bytes that were sent and that the peer has not read.
    pub fn held(self: *Sim, socket: Socket) u64 {
        return self.links.items[self.addedSlot(socket).link].to_peer.unread().len;
    }

    /// Always null, because listeners of a simulated network have no wildcard addresses.
    pub fn localAddress(_: *Sim, _: Socket) ?Address {
        return null;
    }

    /// Stops reading a socket until `resumeReading`.
    pub fn pause(self: *Sim, socket: Socket) void {
        self.addedSlot(socket).paused = true;
    }

    /// Reads from a socket again.
    pub fn resumeReading(self: *Sim, socket: Socket) void {
        self.addedSlot(socket).paused = false;
    }

    /// Announces the next bytes of a socket by `arrived`, once, so that the owner may receive them itself.
    pub fn askFirst(self: *Sim, socket: Socket) void {
        self.addedSlot(socket).asks_first = true;
    }

    /// Receives bytes into `space`, or some of those that fit. Must be called after `arrived`, before the
    /// next call of `next`. The rest comes in the next round.
    pub fn receiveTo(self: *Sim, socket: Socket, space: []u8) ?[]u8 {
        const slot = self.addedSlot(socket);
        assert(slot.phase == .open and !slot.paused);
        return self.receive(&self.links.items[slot.link], space);
    }

    /// Leaves the bytes of a socket for the next round, which announces them again.
    pub fn postpone(self: *Sim, socket: Socket) void {
        self.askFirst(socket);
    }

    fn receive(self: *Sim, link: *Link, space: []u8) []u8 {
        const there = link.to_us.unread();
        var count = @min(there.len, space.len);
        if (self.chance(self.options.short_read_permille)) count = self.between(1, count);
        @memcpy(space[0..count], there[0..count]);
        link.to_us.consume(count);
        return space[0..count];
    }

    /// Sends as many bytes as the window has room for, or fewer at random.
    pub fn send(self: *Sim, socket: Socket, slices: []const Slice, more: bool) SendResult {
        _ = more; // `more` changes packets, not bytes
        assert(slices.len <= io.slices_max);
        const slot = self.addedSlot(socket);
        if (self.refusal(slot)) |errno| return .{ .failed = errno };
        var total: usize = 0;
        for (slices) |piece| total += piece.len;
        if (total == 0) return .{ .sent = 0 };
        const take = self.admit(slot, total);
        if (take == 0) return .blocked;
        if (self.links.items[slot.link].gone) {
            self.breakLink(&self.links.items[slot.link]);
            return .{ .sent = take };
        }
        if (slot.sealer != null) return self.sendSealed(slot, slices, take);
        const room = self.links.items[slot.link].to_peer.reserve(self.gpa, take) catch
            return .{ .failed = slot.fail(.NOMEM) };
        var filled: usize = 0;
        for (slices) |piece| {
            const part = @min(take - filled, piece.len);
            @memcpy(room[filled..][0..part], piece.base[0..part]);
            filled += part;
        }
        assert(filled == take);
        self.links.items[slot.link].to_peer.commit(take);
        return .{ .sent = take };
    }

    /// Sends the first `take` bytes of the slices in TLS records, which may be longer than the window's room
    /// for `take`.
    fn sendSealed(self: *Sim, slot: *Slot, slices: []const Slice, take: usize) SendResult {
        const wire = &self.links.items[slot.link].to_peer.list;
        var left = take;
        for (slices) |piece| {
            var rest = piece.base[0..@min(left, piece.len)];
            left -= rest.len;
            while (rest.len > 0) {
                const part = rest[0..@min(rest.len, Sealer.plaintext_bytes_max)];
                slot.sealer.?.seal(self.gpa, wire, Sealer.application_data, part) catch
                    return .{ .failed = slot.fail(.NOMEM) };
                rest = rest[part.len..];
            }
        }
        assert(left == 0);
        return .{ .sent = take };
    }

    /// Whether the simulated kernel makes TLS records.
    pub fn offersSeals(self: *const Sim) bool {
        return self.options.seals;
    }

    /// Lets the kernel make TLS records of all bytes that are sent from now on. False: nothing has changed.
    pub fn sealInKernel(self: *Sim, socket: Socket, keys: []const u8) bool {
        const slot = self.addedSlot(socket);
        if (!self.options.seals or slot.phase != .open or self.chance(100)) return false;
        slot.sealer = Sealer.take(keys) orelse return false;
        return true;
    }

    /// Sends a record of this kind after `sealInKernel`, as a whole or, with `blocked`, not at all.
    pub fn sendRecord(self: *Sim, socket: Socket, kind: u8, bytes: []const u8) SendResult {
        const slot = self.addedSlot(socket);
        if (self.refusal(slot)) |errno| return .{ .failed = errno };
        if (self.admit(slot, bytes.len) < bytes.len) {
            if (bytes.len <= self.options.window_bytes or self.held(socket) > 0) return .blocked;
        }
        slot.stall = .none;
        const link = &self.links.items[slot.link];
        if (link.gone) {
            self.breakLink(link);
            return .{ .sent = bytes.len };
        }
        slot.sealer.?.seal(self.gpa, &link.to_peer.list, kind, bytes) catch
            return .{ .failed = slot.fail(.NOMEM) };
        return .{ .sent = bytes.len };
    }

    /// Sends a part of a real file.
    pub fn sendFile(self: *Sim, socket: Socket, file: sys.Fd, offset: u64, len: u64) SendResult {
        const slot = self.addedSlot(socket);
        if (self.refusal(slot)) |errno| return .{ .failed = errno };
        if (len == 0) return .{ .sent = 0 };
        const take = self.admit(slot, @intCast(@min(len, self.options.send_file_bytes_max)));
        if (take == 0) return .blocked;
        if (self.links.items[slot.link].gone) {
            self.breakLink(&self.links.items[slot.link]);
            return .{ .sent = take };
        }
        var plain: Pipe = .{};
        defer plain.deinit(self.gpa);
        const to_peer = if (slot.sealer == null) &self.links.items[slot.link].to_peer else &plain;
        const room = to_peer.reserve(self.gpa, take) catch return .{ .failed = slot.fail(.NOMEM) };
        var filled: usize = 0;
        while (filled < take) switch (sys.readFileAt(file, room[filled..], offset + filled)) {
            .done => |count| {
                if (count == 0 and filled == 0) {
                    slot.stall = .none;
                    return .end_of_file;
                }
                if (count == 0) break;
                filled += count;
            },
            .blocked => unreachable, // files do not block
            .failed => |code| {
                if (filled > 0) break;
                slot.stall = .none;
                return .{ .file_failed = sys.number(code) };
            },
        };
        to_peer.commit(filled);
        if (filled < len and slot.stall == .none) slot.stall = .{ .rounds = 0 };
        return if (slot.sealer == null)
            .{ .sent = filled }
        else
            self.sendSealed(slot, &.{io.slice(plain.unread())}, filled);
    }

    /// Ends the sending side.
    pub fn shutdownSend(self: *Sim, socket: Socket) void {
        const slot = self.addedSlot(socket);
        assert(slot.sealer == null); // see Epoll.sealInKernel
        const link = &self.links.items[slot.link];
        if (link.ours == .open) link.ours = .shut;
        slot.stall = .none;
    }

    /// Whether the next piece of a file counts as not in memory.
    pub fn isFileSlow(self: *Sim) bool {
        return self.options.slow_file_permille > 0 and self.chance(self.options.slow_file_permille);
    }

    // ---- Wakes and clocks

    /// Lets `next` return `woken`. May be called by any thread.
    pub fn wake(self: *Sim) void {
        if (self.waiter) |waiter| waiter.wake(self);
        self.wake_requested.store(true, .release);
    }

    /// Fails, because the simulation has no descriptors to watch.
    pub fn watchBell(_: *Sim, _: i32) error{Unsupported}!void {
        return error.Unsupported;
    }

    pub fn watchForeign(self: *Sim, foreign: sys.Fd) error{ OutOfMemory, Unsupported }!void {
        const list = if (self.foreign) |*list| list else return error.Unsupported;
        try list.append(self.gpa, foreign);
    }

    pub fn unwatchForeign(self: *Sim, foreign: sys.Fd) void {
        const list = if (self.foreign) |*list| list else return;
        _ = list.swapRemove(std.mem.findScalar(sys.Fd, list.items, foreign).?);
    }

    pub fn watchLoop(_: *Sim, _: i32, _: ?u64) error{Unsupported}!void {
        return error.Unsupported;
    }

    pub fn unwatchLoop(_: *Sim, _: i32) void {}

    /// Whether a watched descriptor is readable.
    pub fn takeForeign(self: *Sim) bool {
        return self.hasForeign();
    }

    pub fn hasForeign(self: *const Sim) bool {
        const list = self.foreign orelse return false;
        return for (list.items) |foreign| {
            var polls = [_]polling.Poll{.read(foreign)};
            polling.wait(&polls, 0);
            if (polls[0].isReadable()) break true;
        } else false;
    }

    /// The simulation has no descriptor; tests call `readable` instead.
    pub fn fd(_: *Sim) i32 {
        return -1;
    }

    /// Makes `readable` true when the clock reaches `at_ms`.
    pub fn alarm(self: *Sim, at_ms: ?u64) error{}!void {
        self.alarm_ms = at_ms;
    }

    /// Milliseconds of the simulated clock.
    pub fn now(self: *const Sim) u64 {
        return self.now_ms;
    }

    /// Microseconds of the simulated clock.
    pub fn micros(self: *const Sim) u64 {
        return self.now_ms * std.time.us_per_ms;
    }

    /// Seconds since 1970 by the simulated clock.
    pub fn wallSeconds(self: *const Sim) u64 {
        return self.options.start_wall_seconds + (self.now_ms - self.options.start_ms) / std.time.ms_per_s;
    }

    // ---- Rounds

    /// Begins a round. It never sleeps, whatever `timeout_ms` is, because only the caller or the `waiter`
    /// could end the wait.
    pub fn wait(self: *Sim, timeout_ms: i32) io.WaitError!usize {
        if (self.waiter) |waiter| waiter.wait(self, timeout_ms);
        if (self.alarm_ms) |at| if (at <= self.now_ms) {
            self.alarm_ms = null;
        };
        if (self.wake_requested.swap(false, .acq_rel)) self.woken_due = true;
        self.plan() catch return error.SystemResources;
        return self.agenda.items.len + @intFromBool(self.woken_due);
    }

    /// Breaks connections at random, and chooses the items that `next` goes through and their order. Items
    /// beyond the limit come in a later round: the agenda has only indices, and the state is in the links.
    fn plan(self: *Sim) error{OutOfMemory}!void {
        self.agenda.clearRetainingCapacity();
        self.agenda_next = 0;
        for (self.slots.items, 0..) |*slot, index| {
            if (slot.phase == .vacant or slot.phase == .accepted) continue;
            if (self.chance(self.options.reset_permille)) self.breakLink(&self.links.items[slot.link]);
            if (slot.stall == .rounds) slot.stall.rounds -|= 1;
            if (!self.isDue(slot) or self.chance(self.options.late_permille)) continue;
            try self.agenda.append(self.gpa, .{ .slot = @intCast(index) });
        }
        for (self.listeners.items, 0..) |*listener, id| {
            if (listener.state != .watched) continue;
            const count = @min(listener.backlog.items.len, self.options.accepts_per_wait);
            try self.agenda.appendNTimes(self.gpa, .{ .listener = @intCast(id) }, count);
        }
        self.random.random().shuffle(Item, self.agenda.items);
        self.agenda.shrinkRetainingCapacity(@min(self.agenda.items.len, self.options.events_per_wait));
    }

    /// The next event of this round; null: the round is over.
    pub fn next(self: *Sim) ?Event {
        if (self.woken_due) {
            self.woken_due = false;
            return .woken;
        }
        while (self.agenda_next < self.agenda.items.len) {
            const item = self.agenda.items[self.agenda_next];
            self.agenda_next += 1;
            const event = switch (item) {
                .listener => |id| self.accept(id),
                .slot => |index| self.visit(index),
            };
            if (event) |happened| return happened;
        }
        return null;
    }

    fn accept(self: *Sim, id: u32) ?Event {
        const listener = &self.listeners.items[id];
        if (listener.state != .watched or listener.backlog.items.len == 0) return null;
        if (self.exhausted or self.chance(self.options.accept_failure_permille)) {
            listener.state = .paused;
            return .{ .accept_failed = .{ .listener = id, .exhausted = true, .errno = sys.number(.MFILE) } };
        }
        const link = listener.backlog.orderedRemove(0);
        const index = for (self.slots.items, 0..) |*slot, index| {
            if (slot.phase == .vacant) break index;
        } else self.slots.items.len;
        if (index == self.slots.items.len) self.slots.appendAssumeCapacity(.{ .phase = .vacant });
        const slot = &self.slots.items[index];
        slot.* = .{ .phase = .accepted, .link = link };
        return .{ .accepted = .{
            .listener = id,
            .socket = @fromBackingInt(@intCast(index)),
            .peer = self.links.items[link].address,
        } };
    }

    /// Whether `visit` would find an event.
    fn isDue(self: *const Sim, slot: *const Slot) bool {
        switch (slot.phase) {
            .vacant, .accepted, .dead => return false,
            .dying => return true,
            .open, .eof => {},
        }
        const link = &self.links.items[slot.link];
        if (link.peers == .reset or self.hasRoomAgain(slot)) return true;
        if (slot.phase != .open) return false;
        if (slot.paused) return link.peers == .shut and !slot.ending_told;
        return link.peers == .shut or link.to_us.unread().len > 0;
    }

    fn hasRoomAgain(self: *const Sim, slot: *const Slot) bool {
        const room: u64 = self.options.window_bytes -| self.links.items[slot.link].to_peer.unread().len;
        const much = room > 0 and
            room * 1000 >= @as(u64, self.options.window_bytes) * self.options.room_permille;
        return much and slot.stall == .rounds and slot.stall.rounds == 0;
    }

    fn visit(self: *Sim, index: u32) ?Event {
        const slot = &self.slots.items[index];
        if (!self.isDue(slot)) return null;
        if (slot.phase == .dying) return slot.end(.reset, slot.phase.dying);
        if (self.hasRoomAgain(slot)) {
            slot.stall = .none;
            return .{ .sent = .{ .token = slot.token } };
        }
        const link = &self.links.items[slot.link];
        if (slot.phase == .open and !slot.paused and link.to_us.unread().len > 0) {
            if (slot.asks_first) {
                slot.asks_first = false;
                return .{ .arrived = .{ .token = slot.token } };
            }
            return .{ .received = .{ .token = slot.token, .bytes = self.receive(link, self.buffer) } };
        }
        if (slot.phase == .open and slot.paused and link.peers == .shut) {
            slot.ending_told = true;
            return .{ .ending = .{ .token = slot.token } };
        }
        return switch (link.peers) {
            .open => unreachable, // an open socket has no ending that is due
            .shut => slot.end(.eof, 0),
            .reset => slot.end(.reset, sys.number(.CONNRESET)),
        };
    }

    /// The number of bytes, of `total`, that a send takes now. If it takes fewer, a `sent` event follows.
    fn admit(self: *Sim, slot: *Slot, total: usize) usize {
        assert(total > 0);
        const room = self.options.window_bytes -| self.links.items[slot.link].to_peer.unread().len;
        var take = @min(room, total);
        if (take > 0 and self.chance(self.options.partial_send_permille)) take = self.between(1, take);
        if (self.chance(self.options.block_permille)) take = 0;
        slot.stall = if (take < total) .{ .rounds = @intCast(self.between(0, 3)) } else .none;
        return take;
    }

    /// The errno because of which a send fails; null: it may go on.
    fn refusal(self: *Sim, slot: *Slot) ?u16 {
        const link = &self.links.items[slot.link];
        switch (slot.phase) {
            .vacant, .accepted => unreachable,
            .dying => |errno| return errno,
            .dead => return sys.number(.PIPE),
            .open, .eof => {},
        }
        if (link.peers == .reset) return slot.fail(.CONNRESET);
        assert(link.ours == .open); // sending after shutdownSend is the caller's fault
        return null;
    }

    /// Resets a connection. Bytes on their way may be lost.
    pub fn breakLink(self: *Sim, link: *Link) void {
        link.peers = .reset;
        if (link.ours == .open) link.ours = .reset;
        if (self.chance(500)) link.to_us.clear();
    }

    fn slotOf(self: *Sim, socket: Socket) *Slot {
        assert(socket != .none);
        const slot = &self.slots.items[@intCast(@backingInt(socket))];
        assert(slot.phase != .vacant);
        return slot;
    }

    fn addedSlot(self: *Sim, socket: Socket) *Slot {
        const slot = self.slotOf(socket);
        assert(slot.phase != .accepted);
        return slot;
    }

    fn chance(self: *Sim, permille: u16) bool {
        return self.random.random().uintLessThan(u16, 1000) < permille;
    }

    fn between(self: *Sim, low: usize, high: usize) usize {
        // The random number has a fixed width, so that a seed gives the same history on every machine.
        return @intCast(self.random.random().intRangeAtMost(u64, low, high));
    }
};

const Item = union(enum) {
    /// Accept a connection of this listener.
    listener: u32,
    /// Visit this slot. If it has a new owner by then, the state of that one counts.
    slot: u32,
};

const Listener = struct {
    address: Address,
    state: enum { watched, paused, closed },
    /// Connections that wait to be accepted, oldest first.
    backlog: std.ArrayList(u32) = .empty,
};

/// The server's side of a connection, as a kernel has it for a descriptor.
const Slot = struct {
    phase: Phase,
    token: Token = 0,
    link: u32 = 0,
    paused: bool = false,
    ending_told: bool = false,
    asks_first: bool = false,
    stall: Stall = .none,
    sealer: ?Sealer = null,

    const Phase = union(enum) { vacant, accepted, open, eof, dying: u16, dead };

    /// A send was cut short. The `sent` event comes after this number of rounds, when there is room.
    const Stall = union(enum) { none, rounds: u8 };

    fn fail(self: *Slot, code: sys.E) u16 {
        self.phase = .{ .dying = sys.number(code) };
        return self.phase.dying;
    }

    fn end(self: *Slot, how: io.Ended, errno: u16) Event {
        self.phase = switch (how) {
            .eof => .eof,
            .reset => .dead,
        };
        return .{ .ended = .{ .token = self.token, .how = how, .errno = errno } };
    }
};

test {
    _ = @import("sim/sim_test.zig");
}
