//! Job: the io contract (see io.zig) on Linux epoll.
//! Refuses to know: what the bytes mean, deadlines, how many connections are too many.
//!
//! Sockets are watched edge-triggered and registered once: the hot path is one `epoll_wait` per round and one `recvfrom` per
//! readable socket. A report of the kernel only sets flags in the socket's entry and queues it; `next` then works the
//! queue off. EPOLLOUT is asked for when a send blocks for the first time, and stays: asking from the start would wake us once per new
//! connection for nothing, and once per response on unix sockets. See man 7 epoll, questions 9 and onwards, for the rules of edges.
//! The eventfd and the timerfd are edge-triggered too, so that they need no reading: each write, each expiry is a new edge.

const std = @import("std");
const io = @import("io.zig");
const socket_room = @import("socket.zig");
const sys = @import("sys.zig");
const transfer = @import("transfer.zig");
const Queue = @import("queue.zig").Queue(Entry);
const assert = std.debug.assert;

const Address = io.Address;
const Event = io.Event;
const SendResult = io.SendResult;
const Slice = io.Slice;
const Socket = io.Socket;
const Token = io.Token;

/// The io of Linux. One thread owns it; only `wake` may be called from others.
pub const Epoll = struct {
    gpa: std.mem.Allocator,
    options: Options,
    epoll: sys.Fd,
    waker: sys.Fd,
    /// Created when a host loop asks for its first alarm.
    timer: ?sys.Fd = null,
    /// The time that the timer is armed for. It may be earlier than the last alarm: see `alarm`.
    timer_at_ms: ?u64 = null,

    reports: []sys.EpollEvent,
    buffer: []u8,
    /// Indexed by descriptor. Grows, never shrinks; 24 bytes each.
    entries: std.ArrayList(Entry) = .empty,
    listeners: std.ArrayList(Listener) = .empty,

    /// Sockets that may have something to deliver.
    ready: Queue = .{},
    /// How many of `ready` belong to this round.
    round_left: u32 = 0,
    /// The socket that `next` is at. It is not in `ready`.
    current: ?u32 = null,
    /// The listener that `next` is at, in this round.
    accept_cursor: u32 = 0,
    /// Between `wait` and the end of its events: then nobody sleeps on `fd()` yet, so that the doorbell can wait.
    in_round: bool = false,
    woken_due: bool = false,
    /// A host loop watches `fd()`.
    host_watches: bool = false,
    /// The waker was raised to keep `fd()` readable, and the kernel has not reported that yet.
    doorbell_rung: bool = false,
    /// A fork shares the kernel's side of this, which is not the fork's to change when it frees its copy.
    pid: std.os.linux.pid_t,
    /// Set by `wake`, from any thread; taken when the waker's report arrives.
    wake_requested: std.atomic.Value(bool) = .init(false),

    pub const Options = io.Options;

    /// Why there is no epoll instance.
    pub const InitError = error{OutOfMemory} || sys.ResourceError;

    /// Creates the epoll instance and the buffers. Do this after fork: parent and child would share the kernel's side otherwise.
    pub fn init(gpa: std.mem.Allocator, options: Options) InitError!Epoll {
        assert(options.receive_buffer_bytes > 0);
        assert(options.events_per_wait > 0);
        assert(options.accepts_per_wait > 0);
        assert(options.send_file_bytes_max > 0);
        const reports = try gpa.alloc(sys.EpollEvent, options.events_per_wait);
        errdefer gpa.free(reports);
        const buffer = try gpa.alloc(u8, options.receive_buffer_bytes);
        errdefer gpa.free(buffer);
        const epoll = try sys.epollCreate();
        errdefer sys.close(epoll);
        const waker = try sys.eventFd();
        errdefer sys.close(waker);
        const label: Label = .{ .kind = .waker, .index = 0, .generation = 0 };
        try sys.epollAdd(epoll, waker, sys.Ready.in | sys.Ready.edge, @bitCast(label));
        return .{ .gpa = gpa, .options = options, .epoll = epoll, .waker = waker, .reports = reports, .buffer = buffer, .pid = std.os.linux.getpid() };
    }

    /// Closes everything: listeners, added sockets that are still open, and its own descriptors. No thread may call `wake` any more.
    pub fn deinit(self: *Epoll) void {
        self.closeListeners();
        for (self.entries.items, 0..) |*entry, index| {
            if (entry.phase != .vacant) sys.close(@intCast(index));
        }
        if (self.timer) |timer| sys.close(timer);
        sys.close(self.waker);
        sys.close(self.epoll);
        self.listeners.deinit(self.gpa);
        self.entries.deinit(self.gpa);
        self.gpa.free(self.buffer);
        self.gpa.free(self.reports);
        self.* = undefined;
    }

    /// A descriptor that a host loop may watch for reading. It stays the io's own. See io.zig for when it is readable.
    pub fn fd(self: *Epoll) i32 {
        self.host_watches = true;
        if (!self.in_round) self.keepReadable();
        return self.epoll;
    }

    /// Milliseconds of the monotonic clock. Precise, about 20 ns: sample it once per round.
    pub fn now(_: *const Epoll) u64 {
        return sys.monotonicMs();
    }

    /// The same clock in microseconds.
    pub fn micros(_: *const Epoll) u64 {
        return sys.monotonicUs();
    }

    /// Seconds since 1970 (UTC), up to one kernel tick (1 to 10 ms) late.
    pub fn wallSeconds(_: *const Epoll) u64 {
        return sys.wallSeconds();
    }

    // --- listeners -------------------------------------------------------------------------------------------------------

    /// Why an address cannot be listened at.
    pub const ListenError = error{OutOfMemory} || io.ListenError;

    /// Listens at an address and begins to accept. Returns the listener's id, which events name it by.
    pub fn listen(self: *Epoll, address: Address, options: io.ListenOptions) ListenError!u32 {
        const listener = try socket_room.listenSocket(&address, options);
        errdefer sys.close(listener);
        return self.addListener(listener);
    }

    /// Takes over a socket that listens already (from a parent process, from systemd). From success on the io closes it; who needs
    /// it longer hands over a dup. Several ios, in threads or processes, may share one: a new connection wakes one of them.
    pub fn adoptListener(self: *Epoll, listener: sys.Fd) ListenError!u32 {
        try sys.setNonblockCloexec(listener);
        socket_room.inheritNoDelay(listener);
        return self.addListener(listener);
    }

    fn addListener(self: *Epoll, listener: sys.Fd) ListenError!u32 {
        const address = try socket_room.localAddress(listener);
        try self.listeners.ensureUnusedCapacity(self.gpa, 1);
        const id: u32 = @intCast(self.listeners.items.len);
        try self.watchListener(listener, id);
        self.listeners.appendAssumeCapacity(.{ .fd = listener, .state = .watched, .address = address });
        return id;
    }

    /// Level-triggered: what this round's budget leaves over is reported again. Exclusive: a listener may be shared.
    fn watchListener(self: *Epoll, listener: sys.Fd, id: u32) sys.ResourceError!void {
        const label: Label = .{ .kind = .listener, .index = id, .generation = 0 };
        try sys.epollAdd(self.epoll, listener, sys.Ready.in | sys.Ready.exclusive, @bitCast(label));
    }

    /// Where a listener listens; after listening at port 0, with the real port.
    pub fn listenerAddress(self: *const Epoll, id: u32) Address {
        return self.listeners.items[id].address;
    }

    /// A listener's descriptor. It stays the io's own; a duplicate may be given to another io.
    pub fn listenerDescriptor(self: *const Epoll, id: u32) sys.Fd {
        return self.listeners.items[id].fd;
    }

    /// Whether a connection waits at this listener, accepted by nobody. False once it is closed.
    pub fn isKnockedAt(self: *const Epoll, id: u32) bool {
        const listener = &self.listeners.items[id];
        return listener.state != .closed and sys.isReadable(listener.fd);
    }

    /// Accepts no more for now; the kernel goes on queueing up to the backlog. Does nothing if it is paused already or closed.
    pub fn pauseAccept(self: *Epoll, id: u32) void {
        const listener = &self.listeners.items[id];
        if (listener.state != .watched) return;
        // An exclusive watch cannot be modified, only removed.
        if (self.pid == std.os.linux.getpid()) sys.epollDelete(self.epoll, listener.fd) catch unreachable;
        listener.state = .paused;
        listener.accepts_left = 0;
    }

    /// Accepts again. Does nothing unless it is paused. After an error it is still paused: try again later.
    pub fn resumeAccept(self: *Epoll, id: u32) sys.ResourceError!void {
        const listener = &self.listeners.items[id];
        if (listener.state != .paused) return;
        try self.watchListener(listener.fd, id);
        listener.state = .watched;
    }

    /// Closes all listeners for good; their ids stay taken. What the kernel had queued is reset. Connections live on.
    pub fn closeListeners(self: *Epoll) void {
        for (self.listeners.items, 0..) |*listener, id| {
            if (listener.state == .closed) continue;
            // Somebody may share the socket; then closing our descriptor alone would leave our watch on it.
            self.pauseAccept(@intCast(id));
            sys.close(listener.fd);
            listener.state = .closed;
        }
    }

    // --- sockets ---------------------------------------------------------------------------------------------------------

    /// Why a socket cannot be watched.
    pub const AddError = error{OutOfMemory} || sys.ResourceError;

    /// Begins to deliver the events of an accepted socket, with this token. After an error the socket is still the caller's to close.
    pub fn add(self: *Epoll, socket: Socket, token: Token) AddError!void {
        const index = indexOf(socket);
        if (index >= self.entries.items.len) try self.growEntries(index + 1);
        const entry = &self.entries.items[index];
        assert(entry.phase == .vacant);
        try sys.epollAdd(self.epoll, @intCast(index), watched, @bitCast(entry.label(index)));
        entry.* = .{
            .token = token,
            .generation = entry.generation,
            .phase = .open,
            // A predecessor's place in the queue cannot be taken back; visiting it too often does no harm.
            .next = entry.next,
            .flags = .{ .queued = entry.flags.queued },
        };
    }

    fn growEntries(self: *Epoll, count: u32) error{OutOfMemory}!void {
        const vacant: Entry = .{ .token = 0, .generation = 0, .phase = .vacant, .next = 0, .flags = .{} };
        try self.entries.ensureTotalCapacity(self.gpa, count);
        self.entries.appendNTimesAssumeCapacity(vacant, count - self.entries.items.len);
    }

    /// Closes a socket, added or not. None of its events is delivered from now on.
    pub fn close(self: *Epoll, socket: Socket) void {
        const index = indexOf(socket);
        if (index < self.entries.items.len) self.vacate(index);
        sys.close(@intCast(index));
    }

    /// Gives an added socket back to the caller, open and with what it has to say unsaid: another io may add it.
    pub fn release(self: *Epoll, socket: Socket) void {
        const index = indexOf(socket);
        assert(self.entries.items[index].phase != .vacant);
        sys.epollDelete(self.epoll, @intCast(index)) catch unreachable; // it is watched
        self.vacate(index);
    }

    fn vacate(self: *Epoll, index: u32) void {
        const entry = &self.entries.items[index];
        if (entry.phase == .vacant) return;
        entry.phase = .vacant;
        // If a child process of ours inherited the descriptor, the watch survives a close: its reports are recognised by their age.
        entry.generation +%= 1;
        entry.flags = .{ .queued = entry.flags.queued };
    }

    /// Reads nothing more from a socket until `resumeReading`; the kernel's buffer fills and slows the peer down. No system call.
    pub fn pause(self: *Epoll, socket: Socket) void {
        self.entryOf(socket).flags.paused = true;
    }

    /// Reads again. What came meanwhile is delivered, without a new report of the kernel. No system call in the caller's own loop.
    pub fn resumeReading(self: *Epoll, socket: Socket) void {
        const entry = self.entryOf(socket);
        if (!entry.flags.paused) return;
        entry.flags.paused = false;
        if (entry.flags.readable) self.enqueue(indexOf(socket));
    }

    /// Sends slices in order, as far as they go at once. `more`: further bytes follow at once, do not send a small packet yet.
    pub fn send(self: *Epoll, socket: Socket, slices: []const Slice, more: bool) SendResult {
        const entry = self.entryOf(socket);
        if (entry.deathErrno()) |errno| return .{ .failed = errno };
        assert(!entry.flags.send_shut);
        var total: usize = 0;
        for (slices) |piece| total += piece.len;
        if (total == 0) return .{ .sent = 0 };
        switch (sys.send(@intCast(indexOf(socket)), slices, more)) {
            .done => |count| {
                assert(count <= total);
                if (count < total) if (self.awaitRoom(socket)) |errno| return .{ .failed = errno };
                return .{ .sent = count };
            },
            .blocked => return if (self.awaitRoom(socket)) |errno| .{ .failed = errno } else .blocked,
            .failed => |code| return .{ .failed = self.fail(socket, sys.number(code)) },
        }
    }

    /// Sends `len` bytes of a file from `offset` on, as far as they go at once, and at most `send_file_bytes_max` of them. May raise SIGPIPE.
    pub fn sendFile(self: *Epoll, socket: Socket, file: sys.Fd, offset: u64, len: u64) SendResult {
        const entry = self.entryOf(socket);
        if (entry.deathErrno()) |errno| return .{ .failed = errno };
        assert(!entry.flags.send_shut);
        const total: usize = @intCast(@min(len, self.options.send_file_bytes_max));
        if (total == 0) return .{ .sent = 0 };
        const result = transfer.sendFile(@intCast(indexOf(socket)), file, offset, total);
        if (result.full) if (self.awaitRoom(socket)) |errno| return .{ .failed = errno };
        switch (result.outcome) {
            .sent => |count| if (!result.full and count < len) {
                entry.flags.sent_due = true;
                self.endTurn(indexOf(socket));
            },
            .failed => |errno| _ = self.fail(socket, errno),
            .blocked, .end_of_file, .file_failed => {},
        }
        return result.outcome;
    }

    /// Closes with a reset, so that the peer cannot take what it has for the whole. Like `close` otherwise.
    pub fn reset(self: *Epoll, socket: Socket) void {
        sys.resetOnClose(@backingInt(socket));
        self.close(socket);
    }

    /// Makes the kernel ask a silent peer whether it is still there; an `ended` reset tells if it is not. Detects a peer that closed
    /// both directions without a word about the second: it answers a probe with a reset once its own kernel forgot the socket.
    pub fn probe(_: *Epoll, socket: Socket) void {
        sys.probePeer(@backingInt(socket));
    }

    /// The address that the peer connected to; null if the kernel does not tell.
    pub fn localAddress(_: *Epoll, socket: Socket) ?Address {
        return socket_room.localAddress(@backingInt(socket)) catch null;
    }

    /// Ends our sending side: the peer reads what was sent and then the end. Reading goes on. Nothing may be sent afterwards.
    pub fn shutdownSend(self: *Epoll, socket: Socket) void {
        const entry = self.entryOf(socket);
        entry.flags.send_shut = true;
        entry.flags.blocked = false;
        entry.flags.sent_due = false;
        sys.shutdownSend(@intCast(indexOf(socket)));
    }

    /// Notes that a send was cut short and makes sure that the kernel tells us when there is room. Null, or the errno if that is
    /// impossible: then the connection is given up, because it would wait for ever.
    fn awaitRoom(self: *Epoll, socket: Socket) ?u16 {
        const index = indexOf(socket);
        const entry = &self.entries.items[index];
        entry.flags.blocked = true;
        if (entry.flags.watches_room) return null;
        sys.epollModify(self.epoll, @intCast(index), watched | sys.Ready.out, @bitCast(entry.label(index))) catch
            return self.fail(socket, sys.number(.NOMEM));
        entry.flags.watches_room = true;
        return null;
    }

    /// A connection died under a send: `next` will say so. Returns the errno.
    fn fail(self: *Epoll, socket: Socket, errno: u16) u16 {
        const entry = self.entryOf(socket);
        entry.phase = .{ .dying = errno };
        self.enqueue(indexOf(socket));
        return errno;
    }

    // --- waking ----------------------------------------------------------------------------------------------------------

    /// Ends a `wait` and lets `next` deliver `woken`. From any thread; one system call, none if a wake is on its way already.
    pub fn wake(self: *Epoll) void {
        if (!self.wake_requested.swap(true, .acq_rel)) sys.eventRaise(self.waker);
    }

    /// For host loops, as the last call before control goes back: makes `fd()` readable when the monotonic clock reaches `at_ms` (null:
    /// no need), or at once if events were left undelivered. The caller's own loop uses `wait`'s timeout instead.
    /// A time that moved back costs nothing: the timer fires at the earlier time, and the next alarm sets the new one.
    pub fn alarm(self: *Epoll, at_ms: ?u64) sys.ResourceError!void {
        self.in_round = false;
        self.keepReadable();
        const at = at_ms orelse return;
        if (self.timer_at_ms) |armed| if (armed <= at) return;
        if (self.timer == null) {
            const timer = try sys.timerFd();
            errdefer sys.close(timer);
            const label: Label = .{ .kind = .timer, .index = 0, .generation = 0 };
            try sys.epollAdd(self.epoll, timer, sys.Ready.in | sys.Ready.edge, @bitCast(label));
            self.timer = timer;
        }
        sys.timerArm(self.timer.?, at);
        self.timer_at_ms = at;
    }

    /// The kernel forgets a report once it is taken. If a host sleeps on `fd()` while we still have something, ring at our own door.
    fn keepReadable(self: *Epoll) void {
        if (!self.host_watches or self.doorbell_rung or !self.hasLeftovers()) return;
        self.doorbell_rung = true;
        sys.eventRaise(self.waker);
    }

    /// True if `next` would have something to look at without asking the kernel. Listeners are not our memory but the kernel's.
    fn hasLeftovers(self: *const Epoll) bool {
        return self.woken_due or self.current != null or self.ready.count > 0;
    }

    // --- rounds ----------------------------------------------------------------------------------------------------------

    /// Begins a round: waits at most `timeout_ms` (-1: for ever; not at all if something is left over) and returns about how many
    /// things `next` will look at. 0 is possible before the time is over.
    pub fn wait(self: *Epoll, timeout_ms: i32) io.WaitError!usize {
        if (self.current) |index| {
            self.current = null;
            self.enqueue(index);
        }
        const timeout = if (self.hasLeftovers()) 0 else timeout_ms;
        var listeners_ready: usize = 0;
        for (sys.epollWait(self.epoll, self.reports, timeout)) |report| {
            const label: Label = @bitCast(report.data.u64);
            switch (label.kind) {
                .socket => self.noteSocket(label, report.events),
                .listener => {
                    self.listeners.items[label.index].accepts_left = self.options.accepts_per_wait;
                    listeners_ready += 1;
                },
                .waker => {
                    self.doorbell_rung = false;
                    if (self.wake_requested.swap(false, .acq_rel)) self.woken_due = true;
                },
                .timer => self.timer_at_ms = null,
            }
        }
        self.in_round = true;
        self.round_left = self.ready.count;
        self.accept_cursor = 0;
        return self.round_left + listeners_ready + @intFromBool(self.woken_due);
    }

    fn noteSocket(self: *Epoll, label: Label, events: u32) void {
        const entry = &self.entries.items[label.index];
        if (entry.phase == .vacant or entry.generation != label.generation) return;
        const flags = &entry.flags;
        const ending = sys.Ready.peer_shut | sys.Ready.hung_up | sys.Ready.failed;
        if (events & (sys.Ready.in | ending) != 0) flags.readable = true;
        if (events & ending != 0) flags.ending = true;
        if (events & sys.Ready.failed != 0) flags.failed = true;
        if (events & (sys.Ready.out | sys.Ready.failed) != 0 and flags.blocked) {
            flags.blocked = false;
            flags.sent_due = true;
        }
        self.enqueue(label.index);
    }

    /// The next event of this round, or null at its end.
    pub fn next(self: *Epoll) ?Event {
        if (self.woken_due) {
            self.woken_due = false;
            return .woken;
        }
        while (true) {
            if (self.current) |index| {
                if (self.visit(index)) |event| return event;
                self.current = null;
            }
            if (self.round_left == 0) break;
            self.round_left -= 1;
            self.current = self.ready.pop(self.entries.items);
        }
        while (self.accept_cursor < self.listeners.items.len) : (self.accept_cursor += 1) {
            if (self.accept(self.accept_cursor)) |event| return event;
        }
        self.in_round = false;
        self.keepReadable();
        return null;
    }

    /// One thing that this socket has to say, or null.
    inline fn visit(self: *Epoll, index: u32) ?Event {
        const entry = &self.entries.items[index];
        switch (entry.phase) {
            .vacant, .dead => return null,
            .dying => |errno| return entry.end(.reset, errno),
            .open, .eof => {},
        }
        if (entry.flags.sent_due) {
            entry.flags.sent_due = false;
            return .{ .sent = .{ .token = entry.token } };
        }
        const reads = entry.phase == .open and !entry.flags.paused;
        if (reads) return if (entry.flags.readable) self.receive(index) else null;
        if (entry.flags.failed) {
            entry.flags.failed = false;
            const code = sys.takeError(@intCast(index));
            if (code != .SUCCESS) return entry.end(.reset, sys.number(code));
        }
        return null;
    }

    inline fn receive(self: *Epoll, index: u32) ?Event {
        const entry = &self.entries.items[index];
        assert(entry.phase == .open and entry.flags.readable and !entry.flags.paused);
        switch (sys.receive(@intCast(index), self.buffer)) {
            .done => |count| {
                if (count == 0) return entry.end(.eof, 0);
                if (count == self.buffer.len) {
                    self.endTurn(index);
                } else if (!entry.flags.ending) {
                    // Less than we had room for: drained, the next byte is a new edge (man 7 epoll). Only an end that was reported
                    // already would not be reported again, so then read on.
                    entry.flags.readable = false;
                    // It has nothing more to say, unless something happens to it from now on: that queues it again.
                    self.current = null;
                }
                return .{ .received = .{ .token = entry.token, .bytes = self.buffer[0..count] } };
            },
            .blocked => {
                entry.flags.readable = false;
                return null;
            },
            .failed => |code| return entry.end(.reset, sys.number(code)),
        }
    }

    /// Takes one connection, if this listener has any left in this round.
    fn accept(self: *Epoll, id: u32) ?Event {
        const listener = &self.listeners.items[id];
        while (listener.accepts_left > 0) {
            listener.accepts_left -= 1;
            var storage: sys.sockaddr.storage = undefined;
            var length: sys.socklen_t = undefined;
            switch (sys.accept(listener.fd, &storage, &length)) {
                .done => |accepted| return .{ .accepted = .{
                    .listener = id,
                    .socket = @fromBackingInt(@intCast(accepted)),
                    .peer = Address.fromSystem(&storage, length).?,
                } },
                .blocked => listener.accepts_left = 0,
                .failed => |code| {
                    if (sys.isTransientAccept(code)) continue;
                    self.pauseAccept(id);
                    return .{ .accept_failed = .{
                        .listener = id,
                        .exhausted = sys.isExhaustion(code),
                        .errno = sys.number(code),
                    } };
                },
            }
        }
        return null;
    }

    /// Puts a socket into the queue, once. Outside a round a host may be about to sleep.
    fn enqueue(self: *Epoll, index: u32) void {
        if (self.current != index) self.ready.push(self.entries.items, index);
        if (!self.in_round) self.keepReadable();
    }

    /// Lets a socket wait for the next round with the rest of what it has to say.
    fn endTurn(self: *Epoll, index: u32) void {
        if (self.current == index) self.current = null;
        self.enqueue(index);
    }

    fn entryOf(self: *Epoll, socket: Socket) *Entry {
        const entry = &self.entries.items[indexOf(socket)];
        assert(entry.phase != .vacant);
        return entry;
    }

    fn indexOf(socket: Socket) u32 {
        assert(socket != .none);
        return @intCast(@backingInt(socket));
    }

    /// What every socket is watched for from the start.
    const watched = sys.Ready.in | sys.Ready.peer_shut | sys.Ready.edge;
};

/// What the kernel gives back with a report: whom it concerns.
const Label = packed struct(u64) {
    index: u32,
    generation: u30,
    kind: enum(u2) { socket, listener, waker, timer },
};

const Listener = struct {
    fd: sys.Fd,
    state: enum { watched, paused, closed },
    /// How many connections it may still take in this round. 0: nothing reported, or drained.
    accepts_left: u16 = 0,
    address: Address,
};

/// What is known about one descriptor.
const Entry = struct {
    token: Token,
    /// The next in the queue, if `flags.queued` and not the last.
    next: u32,
    /// Counts closes, so that reports of an earlier owner of this number are recognised.
    generation: u30,
    phase: Phase,
    flags: Flags,

    const Phase = union(enum) {
        /// Not added.
        vacant,
        open,
        /// The peer's end was delivered.
        eof,
        /// A send failed with this errno; not yet delivered.
        dying: u16,
        /// The reset was delivered.
        dead,
    };

    const Flags = packed struct(u16) {
        /// In the queue.
        queued: bool = false,
        /// The caller wants no bytes for now.
        paused: bool = false,
        /// A receive may find something: bytes, the end or an error.
        readable: bool = false,
        /// The kernel reported an end or an error, which it will not report again.
        ending: bool = false,
        /// The kernel reported an error.
        failed: bool = false,
        /// A send was cut short and the kernel has not reported room since.
        blocked: bool = false,
        /// A `sent` event is to be delivered.
        sent_due: bool = false,
        /// EPOLLOUT is watched.
        watches_room: bool = false,
        /// Our sending side is ended.
        send_shut: bool = false,
        _: u7 = 0,
    };

    fn label(self: *const Entry, index: u32) Label {
        return .{ .kind = .socket, .index = index, .generation = self.generation };
    }

    /// Why nothing can be sent, or null if it can.
    fn deathErrno(self: *const Entry) ?u16 {
        return switch (self.phase) {
            .vacant => unreachable,
            .open, .eof => null,
            .dying => |errno| errno,
            .dead => sys.number(.PIPE),
        };
    }

    /// Turns to the phase after this end, and makes the event that says so.
    fn end(self: *Entry, how: io.Ended, errno: u16) Event {
        self.phase = switch (how) {
            .eof => .eof,
            .reset => .dead,
        };
        self.flags.readable = false;
        return .{ .ended = .{ .token = self.token, .how = how, .errno = errno } };
    }

    comptime {
        assert(@sizeOf(Entry) == 24); // 10 000 connections: 240 kB
    }
};

const testing = std.testing;

test "a report about an earlier owner of a descriptor is ignored" {
    var epoll: Epoll = try .init(testing.allocator, .{});
    defer epoll.deinit();
    const first = try sys.socket(std.os.linux.AF.UNIX);
    const socket: Socket = @fromBackingInt(first);
    try epoll.add(socket, 1);
    const old = epoll.entryOf(socket).label(@intCast(first));
    epoll.close(socket);
    epoll.noteSocket(old, sys.Ready.in);
    try testing.expectEqual(@as(u32, 0), epoll.ready.count);

    try testing.expectEqual(first, try sys.socket(std.os.linux.AF.UNIX));
    try epoll.add(socket, 2);
    epoll.noteSocket(old, sys.Ready.in);
    try testing.expectEqual(@as(u32, 0), epoll.ready.count);
    epoll.noteSocket(epoll.entryOf(socket).label(@intCast(first)), sys.Ready.in);
    try testing.expectEqual(@as(u32, 1), epoll.ready.count);
}

test "accepted sockets inherit TCP_NODELAY and do not block" {
    var epoll: Epoll = try .init(testing.allocator, .{});
    defer epoll.deinit();
    const id = try epoll.listen(try .parse("127.0.0.1", 0), .{});
    const address = epoll.listenerAddress(id);
    const client = try sys.socket(address.family());
    defer sys.close(client);
    var storage: sys.sockaddr.storage = undefined;
    const length = address.toSystem(&storage);
    sys.connect(client, @ptrCast(&storage), length) catch |err| try testing.expectEqual(error.Pending, err);
    _ = try epoll.wait(5000);
    const socket = epoll.next().?.accepted.socket;
    defer epoll.close(socket);
    const accepted: sys.Fd = @backingInt(socket);
    try testing.expect(try sys.getOption(accepted, .no_delay) != 0);
    var buffer: [1]u8 = undefined;
    try testing.expectEqual(sys.Moved.blocked, sys.receive(accepted, &buffer));
}

test "an adopted listener is taken over" {
    const address: Address = try .parse("127.0.0.1", 0);
    const listener = try socket_room.listenSocket(&address, .{});
    var epoll: Epoll = try .init(testing.allocator, .{});
    defer epoll.deinit();
    const id = try epoll.adoptListener(listener);
    try testing.expect(epoll.listenerAddress(id).port().? != 0);
    epoll.pauseAccept(id);
    epoll.pauseAccept(id);
    try epoll.resumeAccept(id);
    try epoll.resumeAccept(id);
    epoll.closeListeners();
    try epoll.resumeAccept(id);
}

test "a knock is heard; a released socket is another io's, with what it has to say" {
    var first: Epoll = try .init(testing.allocator, .{});
    defer first.deinit();
    var second: Epoll = try .init(testing.allocator, .{});
    defer second.deinit();
    const id = try first.listen(try .parse("127.0.0.1", 0), .{});
    try testing.expect(!first.isKnockedAt(id));
    const address = first.listenerAddress(id);
    const client = try sys.socket(address.family());
    defer sys.close(client);
    var storage: sys.sockaddr.storage = undefined;
    const length = address.toSystem(&storage);
    sys.connect(client, @ptrCast(&storage), length) catch |err| try testing.expectEqual(error.Pending, err);
    _ = try first.wait(5000);
    try testing.expect(first.isKnockedAt(id));
    const socket = first.next().?.accepted.socket;
    try testing.expect(!first.isKnockedAt(id));
    try first.add(socket, 1);
    try testing.expectEqual(sys.Moved{ .done = 2 }, sys.send(client, &.{io.slice("hi")}, false));
    first.release(socket);
    try testing.expectEqual(null, first.next());
    try second.add(socket, 2);
    defer second.close(socket);
    _ = try second.wait(5000);
    try testing.expectEqualStrings("hi", second.next().?.received.bytes);
}
