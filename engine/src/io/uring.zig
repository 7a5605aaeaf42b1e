//! Job: the io contract (see io.zig) on Linux io_uring: what the program asks for and what the kernel has
//! done meanwhile change hands in one system call a round.
//! Does not know: what the bytes mean, deadlines, how many connections are too many. The rings themselves
//! are uring/ring.zig's.
//!
//! - Listeners and sockets are armed once and then report by themselves (multishot). Bytes come in buffers
//!   that all sockets share; what comes while a socket is paused, or faster than its owner reads, waits in
//!   `pieces`, and soon the kernel is told to stop.
//! - A short send is copied and counts as sent; the kernel takes it with the next `wait` or `alarm`, however
//!   long the peer takes. Until then the next send is `blocked`. Larger ones go out at once, as under epoll.
//! - Descriptors are closed by the ring too, behind everything that was asked for before: a number is not
//!   used again within a round.
const std = @import("std");
const linux = std.os.linux;
const io = @import("io.zig");
const socket_calls = @import("socket.zig");
const sys = @import("sys.zig");
const watch = @import("sys/epoll.zig");
const completion_file = @import("uring/completion.zig");
const pieces_file = @import("uring/pieces.zig");
const ring_file = @import("uring/ring.zig");
const sending = @import("uring/sending.zig");
const Entry = @import("uring/entry.zig").Entry;
const Queue = @import("queue.zig").Queue(Entry);
const assert = std.debug.assert;

const Address = io.Address;
const Event = io.Event;
const Listener = @import("uring/listener.zig").Listener;
const Outgoing = @import("uring/outgoing.zig").Outgoing;
const Socket = io.Socket;
const Token = io.Token;

/// The size of a receive buffer: most requests fit. No power of two, for the reason that `blocks.zig` gives.
const buffer_bytes_max = 8 * 1024 + 192;
const buffers_count = 128;

/// The io of Linux kernels from 6.1 on, if nobody forbids it. One thread owns it: the one that waits first;
/// only `wake` may be called from others.
pub const Uring = struct {
    gpa: std.mem.Allocator,
    options: Options,
    ring: ring_file.Ring,
    buffers: pieces_file.Buffers,
    outgoing: Outgoing,
    waker: sys.Fd,
    waker_armed: bool = false,
    /// The time that the kernel's timer for the host is armed for; the kernel reads it. It may be earlier
    /// than the last alarm: see `alarm`.
    timer: linux.kernel_timespec = undefined,
    timer_at_ms: ?u64 = null,

    completions: []ring_file.Completion,
    /// Completions from `noted` up to `kept` are about received bytes, and not looked at yet.
    kept: usize = 0,
    noted: usize = 0,
    /// Indexed by descriptor. Grows, never shrinks.
    entries: std.ArrayList(Entry) = .empty,
    listeners: std.ArrayList(Listener) = .empty,
    /// Sockets that found no buffer.
    starved: std.ArrayList(u32) = .empty,

    /// Sockets that may have something to deliver.
    ready: Queue = .{},
    /// Counts rounds, so that each socket gets its turn once in each.
    round: u32 = 0,
    /// How many of `ready` belong to this round.
    round_left: u32 = 0,
    /// The socket that `next` is at. It is not in `ready`.
    current: ?u32 = null,
    /// The piece that the last event lent to the caller.
    lent: ?*pieces_file.Piece = null,
    /// The listener that `next` is at, in this round.
    accept_cursor: u32 = 0,
    in_round: bool = false,
    /// The listeners are closed: this may be the last round, so that nothing may wait for another.
    leaving: bool = false,
    woken_due: bool = false,
    /// An operation follows as soon as the kernel has taken the bytes that it was asked to send, which it
    /// does not report.
    follows: bool = false,
    /// A host loop watches `fd()`.
    host_watches: bool = false,
    /// An operation was queued whose completion keeps `fd()` readable, and that is not reported yet.
    knocked: bool = false,
    /// Set by `wake`, from any thread.
    wake_requested: std.atomic.Value(bool) = .init(false),

    pub const Options = io.Options;

    /// Received pieces of one socket that may wait before the kernel is told to receive no more.
    pub const pieces_max = 16;

    /// Why there are no rings.
    pub const InitError = error{OutOfMemory} || ring_file.Ring.InitError;

    /// Creates the rings and the buffers. Do this after fork.
    pub fn init(gpa: std.mem.Allocator, options: Options) InitError!Uring {
        assert(options.receive_buffer_bytes > 0 and options.events_per_wait > 0);
        assert(options.accepts_per_wait > 0 and options.send_file_bytes_max > 0);
        const completions = try gpa.alloc(ring_file.Completion, options.events_per_wait);
        errdefer gpa.free(completions);
        var outgoing: Outgoing = try .init(gpa);
        errdefer outgoing.deinit();
        const waker = try watch.eventFd();
        errdefer sys.close(waker);
        var ring: ring_file.Ring = try .init();
        errdefer ring.deinit();
        const each = @min(options.receive_buffer_bytes, buffer_bytes_max);
        const buffers: pieces_file.Buffers = try .init(gpa, ring.plumbing.fd, buffers_count, each);
        return .{
            .gpa = gpa,
            .options = options,
            .ring = ring,
            .buffers = buffers,
            .outgoing = outgoing,
            .waker = waker,
            .completions = completions,
        };
    }

    /// Finds out whether `init` would work, and leaves nothing behind.
    pub fn rehearse(gpa: std.mem.Allocator) InitError!void {
        var uring: Uring = try .init(gpa, .{});
        uring.deinit();
    }

    /// Closes everything: listeners, added sockets that are still open, and its own descriptors. No thread
    /// may call `wake` any more.
    pub fn deinit(self: *Uring) void {
        self.giveBack();
        self.ring.abandon();
        for (self.listeners.items) |*listener| listener.deinit(self.gpa);
        for (self.entries.items, 0..) |*entry, index| {
            self.buffers.drop(&entry.pieces);
            if (entry.phase != .vacant) sys.close(@intCast(index));
        }
        for (self.outgoing.current()) |sent| if (sent.fate == .orphaned) sys.close(@intCast(sent.index));
        for (self.outgoing.blocks.items) |each| {
            if (each) |block| if (block.orphaned) sys.close(@intCast(block.index));
        }
        self.ring.deinit();
        self.buffers.deinit();
        self.outgoing.deinit();
        sys.close(self.waker);
        self.listeners.deinit(self.gpa);
        self.entries.deinit(self.gpa);
        self.starved.deinit(self.gpa);
        self.gpa.free(self.completions);
        self.* = undefined;
    }

    /// A descriptor that a host loop may watch for reading. It stays the io's own.
    pub fn fd(self: *Uring) i32 {
        self.host_watches = true;
        if (!self.in_round) self.keepReadable();
        return self.ring.plumbing.fd;
    }

    /// Milliseconds of the monotonic clock.
    pub fn now(_: *const Uring) u64 {
        return sys.monotonicMs();
    }

    /// The clock of `now`, in microseconds.
    pub fn micros(_: *const Uring) u64 {
        return sys.monotonicUs();
    }

    /// Seconds since 1970 (UTC), up to one kernel tick (1 to 10 ms) late.
    pub fn wallSeconds(_: *const Uring) u64 {
        return sys.wallSeconds();
    }

    // ---- Listeners

    /// Why an address cannot be listened at.
    pub const ListenError = error{OutOfMemory} || io.ListenError;

    /// Listens at an address and begins to accept. Returns the listener's id, which events name it by.
    pub fn listen(self: *Uring, address: Address, options: io.ListenOptions) ListenError!u32 {
        const listener = try socket_calls.listenSocket(&address, options);
        errdefer sys.close(listener);
        return self.addListener(listener);
    }

    /// Takes over a socket that listens already. From success on the io closes it. Several ios may share one.
    pub fn adoptListener(self: *Uring, listener: sys.Fd) ListenError!u32 {
        try sys.setNonblockCloexec(listener);
        socket_calls.inheritNoDelay(listener);
        return self.addListener(listener);
    }

    fn addListener(self: *Uring, listener: sys.Fd) ListenError!u32 {
        const address = try socket_calls.localAddress(listener);
        try self.listeners.append(self.gpa, .{ .fd = listener, .address = address });
        io.fork.own(listener);
        return @intCast(self.listeners.items.len - 1);
    }

    /// A listener's address; with the port that the kernel has chosen if 0 was asked for.
    pub fn listenerAddress(self: *const Uring, id: u32) Address {
        return self.listeners.items[id].address;
    }

    /// Accepts no more for now. What the kernel accepted already waits here.
    pub fn pauseAccept(self: *Uring, id: u32) void {
        self.listeners.items[id].pause(&self.ring, id);
    }

    /// Accepts again. Does nothing unless it is paused.
    pub fn resumeAccept(self: *Uring, id: u32) error{}!void {
        self.listeners.items[id].unpause();
    }

    /// Closes all listeners for good; their ids stay taken. Connections that the worker has not accepted yet
    /// are reset, accepted connections live on.
    pub fn closeListeners(self: *Uring) void {
        for (self.listeners.items, 0..) |*listener, id| listener.close(&self.ring, @intCast(id));
        self.leaving = true;
        // The kernel lets go of a listener when it gets to say so.
        if (self.ring.enabled) self.ring.wait(0);
    }

    // ---- Sockets

    /// Why a socket cannot be looked after.
    pub const AddError = error{OutOfMemory};

    /// Begins to deliver the events of an accepted socket, with this token. After an error the socket is
    /// still the caller's to close.
    pub fn add(self: *Uring, socket: Socket, token: Token) AddError!void {
        const index = indexOf(socket);
        if (index >= self.entries.items.len) {
            try self.entries.appendNTimes(self.gpa, .{}, index + 1 - self.entries.items.len);
        }
        try self.starved.ensureTotalCapacity(self.gpa, self.entries.items.len);
        const entry = &self.entries.items[index];
        assert(entry.phase == .vacant and entry.pieces.count == 0);
        entry.* = .{
            .token = token,
            .generation = entry.generation,
            .phase = .open,
            .next = entry.next,
            .flags = .{ .queued = entry.flags.queued, .starved = entry.flags.starved },
        };
        self.armReceive(index);
    }

    /// Lets the kernel receive for a socket, unless it does already.
    pub fn armReceive(self: *Uring, index: u32) void {
        const entry = &self.entries.items[index];
        assert(entry.phase == .open and entry.end == .none);
        if (entry.flags.receives) return;
        entry.flags.receives = true;
        entry.flags.stopping = false;
        self.ring.receive(@intCast(index), pieces_file.Buffers.group, entry.label(index, .receive));
    }

    /// Tells the kernel to receive no more. Pieces that are on their way still come.
    pub fn stopReceiving(self: *Uring, index: u32) void {
        const entry = &self.entries.items[index];
        if (!entry.flags.receives or entry.flags.stopping) return;
        entry.flags.stopping = true;
        self.ring.cancel(entry.label(index, .receive));
    }

    pub const close = sending.close;
    pub const reset = sending.reset;
    pub const send = sending.send;
    pub const sendFile = sending.sendFile;
    pub const shutdownSend = sending.shutdownSend;

    /// Ends everything that is under way for a socket, since each operation would keep it open, except for
    /// what it is sending.
    pub fn vacate(self: *Uring, index: u32) void {
        const entry = &self.entries.items[index];
        if (entry.flags.receives) self.ring.cancel(entry.label(index, .receive));
        if (entry.flags.awaits_room) self.ring.cancel(entry.label(index, .room));
        if (entry.flags.watches_trouble) self.ring.cancel(entry.label(index, .trouble));
        if (entry.flags.attached) self.ring.detach(@intCast(index));
        self.buffers.drop(&entry.pieces);
        if (self.current == index) self.current = null;
        entry.* = .{
            .generation = entry.generation +% 1,
            .next = entry.next,
            .flags = .{ .queued = entry.flags.queued, .starved = entry.flags.starved },
        };
    }

    /// Delivers no bytes of a socket until `resumeReading`. The kernel is told when bytes come all the same.
    pub fn pause(self: *Uring, socket: Socket) void {
        const entry = self.entryOf(socket);
        entry.flags.paused = true;
        if (entry.pieces.count > 0) self.holdBack(indexOf(socket));
    }

    /// A paused socket has got bytes: they must not keep buffers from others, and no more shall come.
    pub fn holdBack(self: *Uring, index: u32) void {
        const entry = &self.entries.items[index];
        self.stopReceiving(index);
        self.buffers.keep(&entry.pieces) catch {
            _ = self.die(index, sys.number(.NOMEM));
        };
    }

    /// Delivers bytes of a socket again; those that came during the pause are the first.
    pub fn resumeReading(self: *Uring, socket: Socket) void {
        const entry = self.entryOf(socket);
        if (!entry.flags.paused) return;
        entry.flags.paused = false;
        if (entry.pieces.count > 0 or entry.end != .none or !entry.flags.receives) {
            self.enqueue(indexOf(socket));
        }
    }

    /// Makes the kernel ask a silent peer whether it is still there.
    pub fn probe(_: *Uring, socket: Socket) void {
        sys.probePeer(@backingInt(socket));
    }

    /// Whether a peer has ended its sending side, or its connection is dead, although no event told so.
    pub fn hasPeerShut(_: *Uring, socket: Socket) bool {
        return sys.hasPeerShut(@backingInt(socket));
    }

    /// Makes the kernel take no more while `bytes` bytes wait there unsent, so that output waits for its turn
    /// in our queue instead. Nothing changes where the kernel has no such limit.
    pub fn limitUnsent(_: *Uring, socket: Socket, bytes: u31) void {
        sys.limitUnsent(@backingInt(socket), bytes);
    }

    /// Bytes of sends that the kernel holds, since the peer has not taken them yet.
    pub fn held(_: *Uring, socket: Socket) u64 {
        return sys.heldBytes(@backingInt(socket));
    }

    /// The address that the peer connected to; null if the kernel does not tell.
    pub fn localAddress(_: *Uring, socket: Socket) ?Address {
        return socket_calls.localAddress(@backingInt(socket)) catch null;
    }

    /// A connection is dead: `next` will say so. Returns the errno.
    pub fn die(self: *Uring, index: u32, errno: u16) u16 {
        self.entries.items[index].phase = .{ .dying = errno };
        self.enqueue(index);
        return errno;
    }

    // ---- Waking

    /// Ends a `wait` and lets `next` deliver `woken`. From any thread; one system call, none if a wake is
    /// on its way already.
    pub fn wake(self: *Uring) void {
        if (!self.wake_requested.swap(true, .acq_rel)) watch.eventRaise(self.waker);
    }

    /// For host loops, as the last call before control goes back: what was asked for goes out, and `fd()`
    /// becomes readable when the monotonic clock reaches `at_ms` (null: no need), or at once if events
    /// were left undelivered.
    /// A time that moved back costs nothing: the timer fires at the earlier time, and the next
    /// alarm sets the new one.
    pub fn alarm(self: *Uring, at_ms: ?u64) error{}!void {
        self.in_round = false;
        if (at_ms) |at| if (self.timer_at_ms == null or self.timer_at_ms.? > at) {
            self.timer = .{
                .sec = @intCast(at / std.time.ms_per_s),
                .nsec = @intCast(at % std.time.ms_per_s * std.time.ns_per_ms),
            };
            self.timer_at_ms = at;
            self.ring.timer(&self.timer, .{ .index = 0, .kind = .timer });
        };
        self.keepReadable();
        self.ring.submit();
    }

    /// Outside a round a host may be about to sleep on `fd()`: what was asked for goes out, and what
    /// is left over shows.
    fn keepReadable(self: *Uring) void {
        if (!self.host_watches) return;
        if (!self.knocked and (self.follows or self.hasLeftovers())) {
            self.knocked = true;
            self.ring.knock(.{ .index = 0, .kind = .knock });
        }
        self.ring.submit();
    }

    /// Hands queued operations to the kernel at once, unless a `wait` will follow and take them along.
    pub fn expedite(self: *Uring) void {
        if (self.leaving and self.ring.enabled) {
            self.ring.submit();
        } else if (!self.in_round) {
            self.keepReadable();
        }
    }

    /// True if `next` would have something to look at without asking the kernel.
    fn hasLeftovers(self: *const Uring) bool {
        if (self.woken_due or self.current != null or self.ready.count > 0 or self.noted < self.kept) {
            return true;
        }
        for (self.listeners.items) |*listener| if (listener.hasNews()) return true;
        return false;
    }

    // ---- Rounds

    /// Begins a round: hands over what was asked for and waits at most `timeout_ms` (-1: for ever; not at
    /// all if something is left over). Returns about how many things `next` will look at. 0 is possible
    /// before the time is over.
    pub fn wait(self: *Uring, timeout_ms: i32) io.WaitError!usize {
        self.giveBack();
        self.in_round = true;
        for (self.completions[self.noted..self.kept]) |completion| completion_file.note(self, completion);
        if (self.current) |index| {
            self.current = null;
            self.enqueue(index);
        }
        if (!self.waker_armed) {
            self.waker_armed = true;
            self.ring.poll(self.waker, .readable, .{ .index = 0, .kind = .waker });
        }
        for (self.listeners.items, 0..) |*listener, id| {
            listener.begin(&self.ring, @intCast(id), self.options.accepts_per_wait);
        }
        if (self.starved.items.len > 0) completion_file.feedStarved(self);
        if (self.outgoing.orphans > 0) sending.hurryOrphans(self);
        self.ring.wait(if (self.follows or self.hasLeftovers()) 0 else timeout_ms);
        self.takeCompletions();
        if (self.ring.isHandedOver()) sending.noteTaken(self);
        self.round +%= 1;
        self.round_left = self.ready.count;
        self.accept_cursor = 0;
        var count: usize = self.kept + self.round_left + @intFromBool(self.woken_due);
        for (self.listeners.items) |*listener| count += @intFromBool(listener.hasNews());
        return count;
    }

    /// Takes note of the kernel's completions, but for received bytes: `next` can mostly hand them on as they
    /// are.
    fn takeCompletions(self: *Uring) void {
        self.kept = 0;
        self.noted = 0;
        while (true) {
            const completions = self.ring.take(self.completions[self.kept..]);
            const all = completions.len < self.completions.len - self.kept;
            for (completions) |completion| {
                if (completion_file.mayWait(completion)) {
                    self.completions[self.kept] = completion;
                    self.kept += 1;
                } else completion_file.note(self, completion);
            }
            if (all) return;
            if (self.kept < self.completions.len) continue;
            for (self.completions) |completion| completion_file.note(self, completion);
            self.kept = 0;
        }
    }

    /// The next event of this round, or null at its end.
    pub fn next(self: *Uring) ?Event {
        self.giveBack();
        if (self.woken_due) {
            self.woken_due = false;
            return .woken;
        }
        while (true) {
            if (self.current) |index| {
                if (self.visit(index)) |event| return event;
                self.current = null;
            }
            if (self.noted < self.kept) {
                const completion = self.completions[self.noted];
                self.noted += 1;
                const event = completion_file.deliver(self, completion);
                // Sockets that the completion has put into the queue belong to this round.
                if (self.noted == self.kept) self.round_left = self.ready.count;
                if (event) |received| return received;
                continue;
            }
            if (self.round_left == 0) break;
            self.round_left -= 1;
            self.current = self.ready.pop(self.entries.items);
        }
        while (self.accept_cursor < self.listeners.items.len) : (self.accept_cursor += 1) {
            if (self.listeners.items[self.accept_cursor].next(self.accept_cursor)) |event| return event;
        }
        self.in_round = false;
        self.keepReadable();
        return null;
    }

    /// The socket's next event, or null.
    fn visit(self: *Uring, index: u32) ?Event {
        const entry = &self.entries.items[index];
        switch (entry.phase) {
            .vacant, .dead => return null,
            .dying => |errno| return entry.finish(.reset, errno),
            .open, .eof => {},
        }
        if (entry.flags.sent_due) {
            entry.flags.sent_due = false;
            return .{ .sent = .{ .token = entry.token } };
        }
        if (entry.phase == .eof or entry.flags.paused) {
            if (entry.end == .reset) return entry.finish(.reset, entry.end.reset);
            self.watchTrouble(index);
            const ending = entry.phase == .open and (entry.end == .eof or entry.flags.peer_shut);
            if (!ending or entry.flags.ending_told) return null;
            entry.flags.ending_told = true;
            return .{ .ending = .{ .token = entry.token } };
        }
        if (entry.pieces.count > 0 and entry.round == self.round) {
            self.endTurn(index);
            return null;
        }
        if (entry.pieces.pop()) |piece| {
            self.lent = piece;
            if (entry.pieces.count > 0) self.endTurn(index);
            return .{ .received = .{ .token = entry.token, .bytes = piece.bytes } };
        }
        switch (entry.end) {
            .none => if (!entry.flags.starved) self.armReceive(index),
            .eof => {
                entry.end = .none;
                const event = entry.finish(.eof, 0);
                self.watchTrouble(index);
                return event;
            },
            .reset => |errno| return entry.finish(.reset, errno),
        }
        return null;
    }

    /// Lets the kernel tell of the end of a connection that is not being read.
    fn watchTrouble(self: *Uring, index: u32) void {
        const entry = &self.entries.items[index];
        if (entry.flags.watches_trouble or (entry.flags.receives and !entry.flags.stopping)) return;
        entry.flags.watches_trouble = true;
        self.ring.poll(@intCast(index), .trouble, entry.label(index, .trouble));
    }

    /// The bytes of the last event are the kernel's again.
    fn giveBack(self: *Uring) void {
        const piece = self.lent orelse return;
        self.lent = null;
        self.buffers.give(piece);
    }

    /// Puts a socket into the queue, once.
    pub fn enqueue(self: *Uring, index: u32) void {
        if (self.current != index) self.ready.push(self.entries.items, index);
        if (!self.in_round) self.keepReadable();
    }

    /// Lets a socket wait for the next round with the rest of its events.
    pub fn endTurn(self: *Uring, index: u32) void {
        if (self.current == index) self.current = null;
        self.enqueue(index);
    }

    /// The state of a socket that was added.
    pub fn entryOf(self: *Uring, socket: Socket) *Entry {
        const entry = &self.entries.items[indexOf(socket)];
        assert(entry.phase != .vacant);
        return entry;
    }

    /// The place of a socket's entry.
    pub fn indexOf(socket: Socket) u32 {
        assert(socket != .none);
        return @intCast(@backingInt(socket));
    }
};

test {
    _ = @import("uring/uring_test.zig");
}
