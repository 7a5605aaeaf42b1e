//! Job: the io contract (see io.zig) on Linux io_uring: operations go to the kernel, and their completions
//! come back, in one system call per round. Does not know: the meaning of bytes, deadlines, limits of
//! connections, and the layout of the rings (uring/ring.zig's job).
//!
//! - Listeners and sockets are armed once and then report repeatedly (multishot). Bytes come in buffers that
//!   all sockets share. Bytes that come while a socket is paused, or faster than its owner reads, wait in
//!   `pieces`, and soon the kernel is told to stop receiving.
//! - A short send is copied and counts as sent; the kernel takes it with the next `wait` or `alarm`, even if
//!   the peer does not read. Until then the next send is `blocked`. Longer sends reach the kernel at once, as
//!   under epoll.
//! - The ring closes descriptors, too, after all operations queued before: a number is not used again within
//!   a round.
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

/// The size of a receive buffer, in bytes: most requests fit. No power of two, for the reason in
/// `blocks.zig`.
const buffer_bytes_max = 8 * 1024 + 192;
const buffers_count = 128;

/// The io of Linux kernels from 6.1 on, unless a policy forbids io_uring. The thread that waits first owns
/// it; other threads may call only `wake`.
pub const Uring = struct {
    gpa: std.mem.Allocator,
    options: Options,
    ring: ring_file.Ring,
    buffers: pieces_file.Buffers,
    outgoing: Outgoing,
    waker: sys.Fd,
    waker_armed: bool = false,
    /// The time of the kernel's timer for the host; the kernel reads this memory. It may be earlier than the
    /// last alarm (see `alarm`).
    timer: linux.kernel_timespec = undefined,
    timer_at_ms: ?u64 = null,

    completions: []ring_file.Completion,
    /// Completions of received bytes that were not handled yet: those from `noted` up to `kept`.
    kept: usize = 0,
    noted: usize = 0,
    /// Entries by descriptor. The list never shrinks.
    entries: std.ArrayList(Entry) = .empty,
    listeners: std.ArrayList(Listener) = .empty,
    /// Sockets for which the kernel had no free buffer.
    starved: std.ArrayList(u32) = .empty,

    /// Sockets that may have an event.
    ready: Queue = .{},
    /// The number of the current round, so that each socket delivers bytes once a round.
    round: u32 = 0,
    /// The number of sockets in `ready` that belong to this round.
    round_left: u32 = 0,
    /// The socket whose events `next` returns at present. It is not in `ready`.
    current: ?u32 = null,
    /// The piece whose bytes the last event lent to the caller.
    lent: ?*pieces_file.Piece = null,
    /// The listener at which `next` delivers connections in this round.
    accept_cursor: u32 = 0,
    in_round: bool = false,
    /// The listeners are closed, so this round may be the last one and operations must not wait for the next.
    leaving: bool = false,
    woken_due: bool = false,
    /// An operation must follow when the kernel has taken the batch of sends, which the kernel does not
    /// report.
    follows: bool = false,
    /// A host's loop watches `fd()`.
    host_watches: bool = false,
    /// A no-op was queued to keep `fd()` readable, and its completion was not handled yet.
    knocked: bool = false,
    /// Set by `wake`, from any thread.
    wake_requested: std.atomic.Value(bool) = .init(false),

    pub const Options = io.Options;

    /// The maximum number of undelivered pieces of one socket; then the kernel is told to stop receiving.
    pub const pieces_max = 16;

    /// Reasons why an io cannot be created.
    pub const InitError = error{OutOfMemory} || ring_file.Ring.InitError;

    /// Creates the rings and the buffers. Must be called after fork.
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

    /// Tries `init` and frees the result, to find out if this kernel can run the io.
    pub fn rehearse(gpa: std.mem.Allocator) InitError!void {
        var uring: Uring = try .init(gpa, .{});
        uring.deinit();
    }

    /// Closes listeners, added sockets that are still open, and its own descriptors. No thread may call
    /// `wake` any more.
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

    /// Returns the descriptor that a host's loop may watch for reading. The io still owns it.
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

    /// Reasons why the io cannot listen at an address.
    pub const ListenError = error{OutOfMemory} || io.ListenError;

    /// Listens at an address and begins to accept. Returns the listener's id for events.
    pub fn listen(self: *Uring, address: Address, options: io.ListenOptions) ListenError!u32 {
        const listener = try socket_calls.listenSocket(&address, options);
        errdefer sys.close(listener);
        return self.addListener(listener);
    }

    /// Takes over a listening socket. After success the io closes it in the end. Several ios may share a
    /// socket.
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

    /// Returns a listener's address, with the port that the kernel chose for port 0.
    pub fn listenerAddress(self: *const Uring, id: u32) Address {
        return self.listeners.items[id].address;
    }

    /// Stops accepting at a listener. Connections that the kernel has accepted already wait in the listener.
    pub fn pauseAccept(self: *Uring, id: u32) void {
        self.listeners.items[id].pause(&self.ring, id);
    }

    /// Accepts at a paused listener again; other listeners stay as they are.
    pub fn resumeAccept(self: *Uring, id: u32) error{}!void {
        self.listeners.items[id].unpause();
    }

    /// Closes all listeners; their ids are not used again. Connections that `next` has not delivered are
    /// reset, delivered ones go on.
    pub fn closeListeners(self: *Uring) void {
        for (self.listeners.items, 0..) |*listener, id| listener.close(&self.ring, @intCast(id));
        self.leaving = true;
        // The kernel releases a listener only when this thread enters again (see uring/ring.zig).
        if (self.ring.enabled) self.ring.wait(0);
    }

    // ---- Sockets

    /// Reasons why a socket cannot be added.
    pub const AddError = error{OutOfMemory};

    /// Begins to deliver the events of an accepted socket, with this token. After an error the caller still
    /// owns the socket.
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

    /// Makes the kernel receive for a socket, unless it does already.
    pub fn armReceive(self: *Uring, index: u32) void {
        const entry = &self.entries.items[index];
        assert(entry.phase == .open and entry.end == .none);
        if (entry.flags.receives) return;
        entry.flags.receives = true;
        entry.flags.stopping = false;
        self.ring.receive(@intCast(index), pieces_file.Buffers.group, entry.label(index, .receive));
    }

    /// Tells the kernel to stop receiving for a socket. Pieces that it has received still come.
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

    /// Cancels a socket's operations in the kernel except its sends, because each would keep the socket open,
    /// and frees its entry.
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

    /// Stops delivering a socket's bytes until `resumeReading`. The kernel is told to stop only if bytes
    /// come.
    pub fn pause(self: *Uring, socket: Socket) void {
        const entry = self.entryOf(socket);
        entry.flags.paused = true;
        if (entry.pieces.count > 0) self.holdBack(indexOf(socket));
    }

    /// Stops the kernel's receive for a paused socket that has bytes, and copies these, because they must not
    /// occupy buffers of other sockets.
    pub fn holdBack(self: *Uring, index: u32) void {
        const entry = &self.entries.items[index];
        self.stopReceiving(index);
        self.buffers.keep(&entry.pieces) catch {
            _ = self.die(index, sys.number(.NOMEM));
        };
    }

    /// Delivers a socket's bytes again, first those that came during the pause.
    pub fn resumeReading(self: *Uring, socket: Socket) void {
        const entry = self.entryOf(socket);
        if (!entry.flags.paused) return;
        entry.flags.paused = false;
        if (entry.pieces.count > 0 or entry.end != .none or !entry.flags.receives) {
            self.enqueue(indexOf(socket));
        }
    }

    /// Makes the kernel probe a silent peer.
    pub fn probe(_: *Uring, socket: Socket) void {
        sys.probePeer(@backingInt(socket));
    }

    /// Whether the peer has ended its sending side, or the connection is dead, also if no event has told it
    /// yet.
    pub fn hasPeerShut(_: *Uring, socket: Socket) bool {
        return sys.hasPeerShut(@backingInt(socket));
    }

    /// Makes the kernel refuse output while it has `bytes` unsent bytes, so that output waits in the caller's
    /// queue. Has no effect where the kernel has no such limit.
    pub fn limitUnsent(_: *Uring, socket: Socket, bytes: u31) void {
        sys.limitUnsent(@backingInt(socket), bytes);
    }

    /// Returns the number of bytes that the kernel holds because the peer has not taken them yet.
    pub fn held(_: *Uring, socket: Socket) u64 {
        return sys.heldBytes(@backingInt(socket));
    }

    /// Returns the socket's local address; null: the kernel does not tell it.
    pub fn localAddress(_: *Uring, socket: Socket) ?Address {
        return socket_calls.localAddress(@backingInt(socket)) catch null;
    }

    /// Marks a connection as dead, so that `next` reports it. Returns the errno.
    pub fn die(self: *Uring, index: u32, errno: u16) u16 {
        self.entries.items[index].phase = .{ .dying = errno };
        self.enqueue(index);
        return errno;
    }

    // ---- Waking

    /// Ends a `wait`, after which `next` returns `woken`. May be called by any thread. Makes one system call,
    /// or none if a wake is on its way.
    pub fn wake(self: *Uring) void {
        if (!self.wake_requested.swap(true, .acq_rel)) watch.eventRaise(self.waker);
    }

    /// The last call before control goes back to a host's loop. Submits queued operations, and makes `fd()`
    /// readable when the monotonic clock reaches `at_ms` (null: never), or at once if events were not
    /// delivered. A later time than before costs nothing: the timer fires at the earlier time, and the next
    /// alarm sets the later one.
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

    /// Outside a round, when a host may be about to sleep on `fd()`: submits queued operations, and keeps
    /// `fd()` readable if work is left.
    fn keepReadable(self: *Uring) void {
        if (!self.host_watches) return;
        if (!self.knocked and (self.follows or self.hasLeftovers())) {
            self.knocked = true;
            self.ring.knock(.{ .index = 0, .kind = .knock });
        }
        self.ring.submit();
    }

    /// Submits queued operations at once, unless a `wait` will follow and submit them.
    pub fn expedite(self: *Uring) void {
        if (self.leaving and self.ring.enabled) {
            self.ring.submit();
        } else if (!self.in_round) {
            self.keepReadable();
        }
    }

    /// Whether `next` may have an event without asking the kernel.
    fn hasLeftovers(self: *const Uring) bool {
        if (self.woken_due or self.current != null or self.ready.count > 0 or self.noted < self.kept) {
            return true;
        }
        for (self.listeners.items) |*listener| if (listener.hasNews()) return true;
        return false;
    }

    // ---- Rounds

    /// Begins a round: submits queued operations and waits at most `timeout_ms` (-1: for ever; not at all if
    /// work is left). Returns the approximate number of sockets and completions that `next` will handle. 0 is
    /// possible before the time is over.
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

    /// Handles the kernel's completions except those of received bytes, which `next` can mostly deliver
    /// directly.
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

    /// Returns the next event of this round; null: the round is over.
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
                // Sockets that the completions have queued belong to this round.
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

    /// Returns the next event of a socket; null: there is none.
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

    /// Makes the kernel report the end of a connection that is not being read.
    fn watchTrouble(self: *Uring, index: u32) void {
        const entry = &self.entries.items[index];
        if (entry.flags.watches_trouble or (entry.flags.receives and !entry.flags.stopping)) return;
        entry.flags.watches_trouble = true;
        self.ring.poll(@intCast(index), .trouble, entry.label(index, .trouble));
    }

    /// Returns the buffer of the last event to the kernel.
    fn giveBack(self: *Uring) void {
        const piece = self.lent orelse return;
        self.lent = null;
        self.buffers.give(piece);
    }

    /// Adds a socket to the queue, once.
    pub fn enqueue(self: *Uring, index: u32) void {
        if (self.current != index) self.ready.push(self.entries.items, index);
        if (!self.in_round) self.keepReadable();
    }

    /// Leaves the other events of a socket for the next round.
    pub fn endTurn(self: *Uring, index: u32) void {
        if (self.current == index) self.current = null;
        self.enqueue(index);
    }

    /// Returns the entry of an added socket.
    pub fn entryOf(self: *Uring, socket: Socket) *Entry {
        const entry = &self.entries.items[indexOf(socket)];
        assert(entry.phase != .vacant);
        return entry;
    }

    /// Returns the index of a socket's entry.
    pub fn indexOf(socket: Socket) u32 {
        assert(socket != .none);
        return @intCast(@backingInt(socket));
    }
};

test {
    _ = @import("uring/uring_test.zig");
}
