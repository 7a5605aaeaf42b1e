//! Job: the io contract (see io.zig) on a kernel that reports readiness: which socket has what to say, in
//! rounds. Does not know: what the bytes mean, deadlines, how many connections are too many; and how a kernel
//! is asked, which is a poller's job.
//!
//! A poller (epoll.zig, kqueue.zig) watches sockets edge-triggered and each only once: the hot path is one
//! wait per round and one receive per readable socket. A report of the kernel only sets flags in the socket's
//! entry and queues it; `next` then works the queue off. Room to send is asked for when a send blocks for the
//! first time, and stays: asking from the start would wake us once per new connection for nothing, and once
//! per response on unix sockets.
//!
//! A poller has:
//! - `init(gpa, reports_max)`, `deinit(gpa, forked)`, `fd()`: its descriptor, for host loops;
//! - `watchListener`, level-triggered, and `unwatchListener`; `watchSocket` and `watchRoom`, edge-triggered,
//!   the second in addition. Each looks at once, so that nothing that is already true gets lost.
//!   closing a socket ends both;
//! - `wait(timeout_ms)`: the kernel's reports; `notice(&report)`: what one of them says;
//! - `wake()`, from any thread: a report of the waker; `arm(at_ms)`: one of the timer, at that time, instead
//!   of an earlier `arm`.

const std = @import("std");
const io = @import("io.zig");
const socket_calls = @import("socket.zig");
const sys = @import("sys.zig");
const kernel_tls = @import("kernel_tls.zig");
const transfer = @import("transfer.zig");
const Entry = @import("readiness/entry.zig").Entry;
/// The label that names a report's entry.
pub const Label = @import("readiness/entry.zig").Label;
const Queue = @import("queue.zig").Queue(Entry);
const assert = std.debug.assert;

const Address = io.Address;
const Event = io.Event;
const SendResult = io.SendResult;
const Slice = io.Slice;
const Socket = io.Socket;
const Token = io.Token;

/// An io over a poller. One thread owns it; only `wake` may be called from others.
pub fn Readiness(comptime Poller: type) type {
    return struct {
        const Self = @This();

        gpa: std.mem.Allocator,
        options: Options,
        poller: Poller,
        /// The time that the timer is armed for. It may be earlier than the last alarm: see `alarm`.
        timer_at_ms: ?u64 = null,

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
        /// Between `wait` and the end of its events: then nobody sleeps on `fd()` yet, and the waker need not
        /// keep it readable.
        in_round: bool = false,
        woken_due: bool = false,
        /// A descriptor that the io watches for its host is ready, and the host has not been told.
        foreign_due: bool = false,
        /// A host loop watches `fd()`.
        host_watches: bool = false,
        /// The waker was raised to keep `fd()` readable, and the kernel has not reported that yet.
        is_raised: bool = false,
        /// A fork shares the kernel's side of this, which is not the fork's to change when it frees its copy.
        pid: std.posix.pid_t,
        /// Set by `wake`, from any thread; taken when the waker's report arrives.
        wake_requested: std.atomic.Value(bool) = .init(false),

        pub const Options = io.Options;

        /// Why there is no io.
        pub const InitError = error{OutOfMemory} || sys.ResourceError;

        /// Creates the poller and the buffers. Do this after fork: parent and child would share the
        /// kernel's side otherwise.
        pub fn init(gpa: std.mem.Allocator, options: Options) InitError!Self {
            assert(options.receive_buffer_bytes > 0);
            assert(options.events_per_wait > 0);
            assert(options.accepts_per_wait > 0);
            assert(options.send_file_bytes_max > 0);
            const buffer = try gpa.alloc(u8, options.receive_buffer_bytes);
            errdefer gpa.free(buffer);
            const poller: Poller = try .init(gpa, options.events_per_wait);
            return .{
                .gpa = gpa,
                .options = options,
                .poller = poller,
                .buffer = buffer,
                .pid = sys.processId(),
            };
        }

        /// Closes everything: listeners, added sockets that are still open, and its own descriptors. No
        /// thread may call `wake` any more.
        pub fn deinit(self: *Self) void {
            self.closeListeners();
            for (self.entries.items, 0..) |*entry, index| {
                if (entry.phase != .vacant) sys.close(@intCast(index));
            }
            self.poller.deinit(self.gpa, self.pid != sys.processId());
            self.listeners.deinit(self.gpa);
            self.entries.deinit(self.gpa);
            self.gpa.free(self.buffer);
            self.* = undefined;
        }

        /// A descriptor that a host loop may watch for reading. It stays the io's own. See io.zig for
        /// when it is readable.
        pub fn fd(self: *Self) i32 {
            self.host_watches = true;
            if (!self.in_round) self.keepReadable();
            return self.poller.fd();
        }

        /// Milliseconds of the monotonic clock. Precise, about 20 ns: sample it once per round.
        pub fn now(_: *const Self) u64 {
            return sys.monotonicMs();
        }

        /// The clock of `now`, in microseconds.
        pub fn micros(_: *const Self) u64 {
            return sys.monotonicUs();
        }

        /// Seconds since 1970 (UTC), up to one kernel tick (1 to 10 ms) late.
        pub fn wallSeconds(_: *const Self) u64 {
            return sys.wallSeconds();
        }

        // ---- Listeners

        /// Why an address cannot be listened at.
        pub const ListenError = error{OutOfMemory} || io.ListenError;

        /// Listens at an address and begins to accept. Returns the listener's id, which events name it by.
        pub fn listen(self: *Self, address: Address, options: io.ListenOptions) ListenError!u32 {
            const listener = try socket_calls.listenSocket(&address, options);
            errdefer sys.close(listener);
            return self.addListener(listener);
        }

        /// Takes over a socket that listens already (from a parent process, from systemd). From success on
        /// the io closes it; who needs it longer hands over a dup. Several ios, in threads or processes, may
        /// share one: a new connection wakes one of them.
        pub fn adoptListener(self: *Self, listener: sys.Fd) ListenError!u32 {
            try sys.setNonblockCloexec(listener);
            socket_calls.inheritNoDelay(listener);
            return self.addListener(listener);
        }

        fn addListener(self: *Self, listener: sys.Fd) ListenError!u32 {
            const address = try socket_calls.localAddress(listener);
            try self.listeners.ensureUnusedCapacity(self.gpa, 1);
            const id: u32 = @intCast(self.listeners.items.len);
            try self.watchListener(listener, id);
            self.listeners.appendAssumeCapacity(.{ .fd = listener, .state = .watched, .address = address });
            io.fork.own(listener);
            return id;
        }

        /// Level-triggered: what this round's budget leaves over is reported again.
        fn watchListener(self: *Self, listener: sys.Fd, id: u32) sys.ResourceError!void {
            return self.poller.watchListener(listener, .{ .kind = .listener, .index = id, .generation = 0 });
        }

        /// A listener's address; with the port that the kernel has chosen if 0 was asked for.
        pub fn listenerAddress(self: *const Self, id: u32) Address {
            return self.listeners.items[id].address;
        }

        /// Accepts a connection that waits at this listener, paused or not: an event of its
        /// own. Null: none does.
        pub fn acceptWaiting(self: *Self, id: u32) ?Event {
            const listener = &self.listeners.items[id];
            if (listener.state == .closed) return null;
            listener.accepts_left = std.math.maxInt(u16);
            defer listener.accepts_left = 0;
            return self.accept(id);
        }

        /// Whether the peer has sent something that was not received yet, its end included.
        pub fn isReadable(_: *const Self, socket: Socket) bool {
            return sys.isReadable(@backingInt(socket));
        }

        /// Whether a connection waits in the kernel's queue of a listener.
        pub fn isAwaited(self: *const Self, id: u32) bool {
            const listener = &self.listeners.items[id];
            return listener.state != .closed and sys.isReadable(listener.fd);
        }

        /// Accepts no more for now; the kernel goes on queueing up to the backlog. Does nothing if it is
        /// paused already or closed.
        pub fn pauseAccept(self: *Self, id: u32) void {
            const listener = &self.listeners.items[id];
            if (listener.state != .watched) return;
            if (self.pid == sys.processId()) self.poller.unwatchListener(listener.fd);
            listener.state = .paused;
            listener.accepts_left = 0;
        }

        /// Accepts again. Does nothing unless it is paused. After an error it is still paused: try again
        /// later.
        pub fn resumeAccept(self: *Self, id: u32) sys.ResourceError!void {
            const listener = &self.listeners.items[id];
            if (listener.state != .paused) return;
            try self.watchListener(listener.fd, id);
            listener.state = .watched;
        }

        /// Closes all listeners for good; their ids stay taken. What the kernel had queued is reset.
        /// Connections live on.
        pub fn closeListeners(self: *Self) void {
            for (self.listeners.items, 0..) |*listener, id| {
                if (listener.state == .closed) continue;
                // Another process may share the socket; then closing our descriptor alone would leave our
                // watch on the socket.
                self.pauseAccept(@intCast(id));
                sys.close(listener.fd);
                listener.state = .closed;
            }
        }

        // ---- Sockets

        /// Why a socket cannot be watched.
        pub const AddError = error{OutOfMemory} || sys.ResourceError;

        /// Begins to deliver the events of an accepted socket, with this token. After an error the socket is
        /// still the caller's to close.
        pub fn add(self: *Self, socket: Socket, token: Token) AddError!void {
            const index = indexOf(socket);
            if (index >= self.entries.items.len) try self.growEntries(index + 1);
            const entry = &self.entries.items[index];
            assert(entry.phase == .vacant);
            try self.poller.watchSocket(@intCast(index), entry.label(index));
            entry.* = .{
                .token = token,
                .generation = entry.generation,
                .phase = .open,
                // A predecessor's place in the queue cannot be taken back; visiting it too
                // often does no harm.
                .next = entry.next,
                .flags = .{ .queued = entry.flags.queued },
            };
        }

        fn growEntries(self: *Self, count: u32) error{OutOfMemory}!void {
            const vacant: Entry = .{ .token = 0, .generation = 0, .phase = .vacant, .next = 0, .flags = .{} };
            try self.entries.ensureTotalCapacity(self.gpa, count);
            self.entries.appendNTimesAssumeCapacity(vacant, count - self.entries.items.len);
        }

        /// Closes a socket, added or not. None of its events is delivered from now on.
        pub fn close(self: *Self, socket: Socket) void {
            const index = indexOf(socket);
            if (index < self.entries.items.len) self.vacate(index);
            sys.close(@intCast(index));
        }

        fn vacate(self: *Self, index: u32) void {
            const entry = &self.entries.items[index];
            if (entry.phase == .vacant) return;
            entry.phase = .vacant;
            // Reports of this round are taken already, and epoll's watch survives a close if a child process
            // has inherited the descriptor. Reports about an earlier owner of the slot are recognised by
            // their generation.
            entry.generation +%= 1;
            entry.flags = .{ .queued = entry.flags.queued };
        }

        /// Reads nothing more from a socket until `resumeReading`; the kernel's buffer fills and slows the
        /// peer down. No system call.
        pub fn pause(self: *Self, socket: Socket) void {
            self.entryOf(socket).flags.paused = true;
        }

        /// Reads again. What came meanwhile is delivered, without a new report of the kernel. No system call
        /// in the caller's own loop.
        pub fn resumeReading(self: *Self, socket: Socket) void {
            const entry = self.entryOf(socket);
            if (!entry.flags.paused) return;
            entry.flags.paused = false;
            if (entry.flags.readable) self.enqueue(indexOf(socket));
        }

        /// The next bytes of this socket are announced, so that they may be taken: once.
        pub fn askFirst(self: *Self, socket: Socket) void {
            self.entryOf(socket).flags.asks_first = true;
        }

        /// After `arrived`, before the next call of `next`: receives what there is, as far as it has room.
        /// Null: nothing, or an end, of which an event will tell.
        pub fn receiveTo(self: *Self, socket: Socket, space: []u8) ?[]u8 {
            const index = indexOf(socket);
            const entry = &self.entries.items[index];
            assert(self.current == index and entry.phase == .open and !entry.flags.paused);
            switch (sys.receive(@intCast(index), space)) {
                .done => |count| {
                    if (count == 0) return null; // the next visit sees the condition again
                    self.noteReceived(index, count, space.len);
                    return space[0..count];
                },
                .blocked => entry.flags.readable = false,
                .failed => |code| entry.phase = .{ .dying = sys.number(code) },
            }
            return null;
        }

        /// Like `resume`, but nothing is received before the next round, which asks again.
        pub fn postpone(self: *Self, socket: Socket) void {
            self.askFirst(socket);
            self.endTurn(indexOf(socket));
        }

        /// Sends slices in order, as far as they go at once. `more`: further bytes follow at once, do not
        /// send a small packet yet.
        pub fn send(self: *Self, socket: Socket, slices: []const Slice, more: bool) SendResult {
            const entry = self.entryOf(socket);
            if (entry.phase.deathErrno()) |errno| return .{ .failed = errno };
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

        /// Sends `len` bytes of a file from `offset` on, as far as they go at once, and at most
        /// `send_file_bytes_max` of them. May raise SIGPIPE.
        pub fn sendFile(self: *Self, socket: Socket, file: sys.Fd, offset: u64, len: u64) SendResult {
            const entry = self.entryOf(socket);
            if (entry.phase.deathErrno()) |errno| return .{ .failed = errno };
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

        /// Whether this kernel makes TLS records.
        pub fn offersSeals(_: *const Self) bool {
            return kernel_tls.isOffered();
        }

        /// The kernel makes TLS records with these keys of everything that is sent from now on, files
        /// included. False: it does not, and nothing has changed. Do not `shutdownSend` such a socket: the
        /// end would overtake records that wait for room.
        pub fn sealInKernel(self: *Self, socket: Socket, keys: []const u8) bool {
            if (self.entryOf(socket).phase.deathErrno() != null) return false;
            return kernel_tls.seal(@backingInt(socket), keys);
        }

        /// After `sealInKernel`: sends a record of this kind (RFC 8446 section 5.1), as a whole or, if
        /// `blocked`, not at all.
        pub fn sendRecord(self: *Self, socket: Socket, kind: u8, bytes: []const u8) SendResult {
            if (self.entryOf(socket).phase.deathErrno()) |errno| return .{ .failed = errno };
            return switch (kernel_tls.sendRecord(@backingInt(socket), kind, bytes)) {
                // A part of a message under a kind of its own has no second part that would be known for one.
                .done => |count| if (count == bytes.len)
                    .{ .sent = count }
                else
                    .{ .failed = self.fail(socket, sys.number(.MSGSIZE)) },
                .blocked => if (self.awaitRoom(socket)) |errno| .{ .failed = errno } else .blocked,
                .failed => |code| .{ .failed = self.fail(socket, sys.number(code)) },
            };
        }

        /// Closes with a reset, so that the peer cannot take the bytes that it has for all of them. Like
        /// `close` otherwise.
        pub fn reset(self: *Self, socket: Socket) void {
            sys.resetOnClose(@backingInt(socket));
            self.close(socket);
        }

        /// Makes the kernel ask a silent peer whether it is still there: one whose kernel forgot the socket
        /// answers with a reset (`ended`).
        pub fn probe(_: *Self, socket: Socket) void {
            sys.probePeer(@backingInt(socket));
        }

        /// Whether a peer has ended its sending side, or its connection is dead, although no event told so.
        pub fn hasPeerShut(_: *Self, socket: Socket) bool {
            return sys.hasPeerShut(@backingInt(socket));
        }

        /// Makes the kernel take no more while `bytes` bytes wait there unsent, so that output waits for its
        /// turn in our queue instead. Nothing changes where the kernel has no such limit.
        pub fn limitUnsent(_: *Self, socket: Socket, bytes: u31) void {
            sys.limitUnsent(@backingInt(socket), bytes);
        }

        /// Bytes of sends that the kernel holds, since the peer has not taken them yet.
        pub fn held(_: *Self, socket: Socket) u64 {
            return sys.heldBytes(@backingInt(socket));
        }

        /// The address that the peer connected to; null if the kernel does not tell.
        pub fn localAddress(_: *Self, socket: Socket) ?Address {
            return socket_calls.localAddress(@backingInt(socket)) catch null;
        }

        /// Ends our sending side: the peer reads what was sent and then the end. Reading goes on. Nothing may
        /// be sent afterwards.
        pub fn shutdownSend(self: *Self, socket: Socket) void {
            const entry = self.entryOf(socket);
            entry.flags.send_shut = true;
            entry.flags.blocked = false;
            entry.flags.sent_due = false;
            sys.shutdownSend(@intCast(indexOf(socket)));
        }

        /// Notes that a send was cut short and makes sure that the kernel tells us when there is
        /// room. Null, or the errno if that is impossible: then the connection is given up, because
        /// it would wait for ever.
        fn awaitRoom(self: *Self, socket: Socket) ?u16 {
            const index = indexOf(socket);
            const entry = &self.entries.items[index];
            entry.flags.blocked = true;
            if (entry.flags.watches_room) return null;
            self.poller.watchRoom(@intCast(index), entry.label(index)) catch
                return self.fail(socket, sys.number(.NOMEM));
            entry.flags.watches_room = true;
            return null;
        }

        /// A connection died under a send: `next` will say so. Returns the errno.
        fn fail(self: *Self, socket: Socket, errno: u16) u16 {
            const entry = self.entryOf(socket);
            entry.phase = .{ .dying = errno };
            self.enqueue(indexOf(socket));
            return errno;
        }

        // ---- Waking

        /// Each ring of a bell (sharing.zig) ends a `wait`, and need not be read.
        pub fn watchBell(self: *Self, bell: sys.Fd) (sys.ResourceError || error{Unsupported})!void {
            if (!@hasDecl(Poller, "watchBell")) return error.Unsupported;
            return self.poller.watchBell(bell);
        }

        /// A descriptor of others ends a `wait` whenever something new happens to it: bytes, its end.
        pub fn watchForeign(self: *Self, foreign: sys.Fd) (sys.ResourceError || error{Unsupported})!void {
            if (!@hasDecl(Poller, "watchForeign")) return error.Unsupported;
            return self.poller.watchForeign(foreign);
        }

        /// Whether a foreign descriptor has had an event since the last call.
        pub fn takeForeign(self: *Self) bool {
            defer self.foreign_due = false;
            return self.foreign_due;
        }

        /// The descriptor of a host's own loop ends every `wait` while it is readable, and so does a signal;
        /// while it waits, signals are blocked as `blocked` says: bit n - 1 for signal n.
        pub fn watchLoop(
            self: *Self,
            loop: sys.Fd,
            blocked: ?u64,
        ) (sys.ResourceError || error{Unsupported})!void {
            if (!@hasDecl(Poller, "watchLoop")) return error.Unsupported;
            return self.poller.watchLoop(loop, blocked);
        }

        /// Called before the loop's descriptor is closed.
        pub fn unwatchLoop(self: *Self, loop: sys.Fd) void {
            if (@hasDecl(Poller, "watchLoop")) self.poller.unwatchLoop(loop);
        }

        /// The answer that `takeForeign` would give, and gives still.
        pub fn hasForeign(self: *const Self) bool {
            return self.foreign_due;
        }

        /// Called before the foreign descriptor is closed.
        pub fn unwatchForeign(self: *Self, foreign: sys.Fd) void {
            if (@hasDecl(Poller, "watchForeign")) self.poller.unwatchForeign(foreign);
        }

        /// Ends a `wait` and lets `next` deliver `woken`. From any thread; one system call, none if a wake is
        /// on its way already.
        pub fn wake(self: *Self) void {
            if (!self.wake_requested.swap(true, .acq_rel)) self.poller.wake();
        }

        /// For host loops, as the last call before control goes back: makes `fd()` readable when the
        /// monotonic clock reaches `at_ms` (null: no need), or at once if events were left undelivered. The
        /// caller's own loop uses `wait`'s timeout instead. A time that moved back costs nothing: the timer
        /// fires at the earlier time, and the next alarm sets the new one.
        pub fn alarm(self: *Self, at_ms: ?u64) sys.ResourceError!void {
            self.in_round = false;
            self.keepReadable();
            const at = at_ms orelse return;
            if (self.timer_at_ms) |armed| if (armed <= at) return;
            try self.poller.arm(at);
            self.timer_at_ms = at;
        }

        /// The kernel forgets a report once it is taken. If a host sleeps on `fd()` while we still have
        /// something, wake it by our own descriptor.
        fn keepReadable(self: *Self) void {
            if (!self.host_watches or self.is_raised or !self.hasLeftovers()) return;
            self.is_raised = true;
            self.poller.wake();
        }

        /// True if `next` would have something to look at without asking the kernel. Listeners are not our
        /// memory but the kernel's.
        fn hasLeftovers(self: *const Self) bool {
            return self.woken_due or self.current != null or self.ready.count > 0;
        }

        // ---- Rounds

        /// Begins a round: waits at most `timeout_ms` (-1: for ever; not at all if something is left over)
        /// and returns about how many things `next` will look at. 0 is possible before the time is over.
        pub fn wait(self: *Self, timeout_ms: i32) io.WaitError!usize {
            if (self.current) |index| {
                self.current = null;
                self.enqueue(index);
            }
            const timeout = if (self.hasLeftovers()) 0 else timeout_ms;
            var listeners_ready: usize = 0;
            for (self.poller.wait(timeout)) |*report| {
                const notice = Poller.notice(report);
                switch (notice.label.kind) {
                    .socket => self.noteSocket(notice),
                    .listener => {
                        self.listeners.items[notice.label.index].accepts_left = self.options.accepts_per_wait;
                        listeners_ready += 1;
                    },
                    .waker => switch (notice.label.index) {
                        0 => {
                            self.is_raised = false;
                            if (self.wake_requested.swap(false, .acq_rel)) self.woken_due = true;
                        },
                        1 => self.foreign_due = true,
                        else => {},
                    },
                    .timer => self.timer_at_ms = null,
                }
            }
            self.in_round = true;
            self.round_left = self.ready.count;
            self.accept_cursor = 0;
            return self.round_left + listeners_ready + @intFromBool(self.woken_due);
        }

        fn noteSocket(self: *Self, notice: Notice) void {
            const entry = &self.entries.items[notice.label.index];
            if (entry.phase == .vacant or entry.generation != notice.label.generation) return;
            const flags = &entry.flags;
            if (notice.readable) flags.readable = true;
            if (notice.ending) flags.ending = true;
            if (notice.failed) flags.failed = true;
            if (notice.room and flags.blocked) {
                flags.blocked = false;
                flags.sent_due = true;
            }
            self.enqueue(notice.label.index);
        }

        /// The next event of this round, or null at its end.
        pub fn next(self: *Self) ?Event {
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

        /// The socket's next event, or null.
        inline fn visit(self: *Self, index: u32) ?Event {
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
            return entry.takeEnding();
        }

        inline fn receive(self: *Self, index: u32) ?Event {
            const entry = &self.entries.items[index];
            assert(entry.phase == .open and entry.flags.readable and !entry.flags.paused);
            if (entry.flags.asks_first) {
                entry.flags.asks_first = false;
                return .{ .arrived = .{ .token = entry.token } };
            }
            switch (sys.receive(@intCast(index), self.buffer)) {
                .done => |count| {
                    if (count == 0) return entry.end(.eof, 0);
                    self.noteReceived(index, count, self.buffer.len);
                    return .{ .received = .{ .token = entry.token, .bytes = self.buffer[0..count] } };
                },
                .blocked => {
                    entry.flags.readable = false;
                    return null;
                },
                .failed => |code| return entry.end(.reset, sys.number(code)),
            }
        }

        /// Notes that `count` bytes were received where there was room for `most`.
        inline fn noteReceived(self: *Self, index: u32, count: usize, most: usize) void {
            const entry = &self.entries.items[index];
            if (count == most) {
                self.endTurn(index);
            } else if (!entry.flags.ending) {
                // Less than we had room for: drained, the next byte is a new edge. Only an end that was
                // reported already would not be reported again, so then read on.
                entry.flags.readable = false;
                // The socket has no further event; the next report about it queues it again.
                self.current = null;
            }
        }

        /// Accepts one connection, if the listener may accept another one in this round.
        fn accept(self: *Self, id: u32) ?Event {
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
        fn enqueue(self: *Self, index: u32) void {
            if (self.current != index) self.ready.push(self.entries.items, index);
            if (!self.in_round) self.keepReadable();
        }

        /// Lets a socket wait for the next round with the rest of its events.
        fn endTurn(self: *Self, index: u32) void {
            if (self.current == index) self.current = null;
            self.enqueue(index);
        }

        fn entryOf(self: *Self, socket: Socket) *Entry {
            const entry = &self.entries.items[indexOf(socket)];
            assert(entry.phase != .vacant);
            return entry;
        }

        fn indexOf(socket: Socket) u32 {
            assert(socket != .none);
            return @intCast(@backingInt(socket));
        }
    };
}

/// The content of a report. The flags are about sockets.
pub const Notice = struct {
    label: Label,
    /// A receive may find something: bytes, the end or an error.
    readable: bool = false,
    /// The peer ended its side, or the connection is dead: no further report will say so.
    ending: bool = false,
    /// An error waits on the socket.
    failed: bool = false,
    /// A send may go on, or find out why it cannot.
    room: bool = false,
};

const Listener = struct {
    fd: sys.Fd,
    state: enum { watched, paused, closed },
    /// How many connections it may still take in this round. 0: nothing reported, or drained.
    accepts_left: u16 = 0,
    address: Address,
};

const testing = std.testing;

test "a report about an earlier owner of a descriptor is ignored" {
    var epoll: io.Epoll = try .init(testing.allocator, .{});
    defer epoll.deinit();
    const first = try sys.socket(std.posix.AF.UNIX);
    const socket: Socket = @fromBackingInt(first);
    try epoll.add(socket, 1);
    const old = epoll.entryOf(socket).label(@intCast(first));
    epoll.close(socket);
    epoll.noteSocket(.{ .label = old, .readable = true });
    try testing.expectEqual(@as(u32, 0), epoll.ready.count);

    try testing.expectEqual(first, try sys.socket(std.posix.AF.UNIX));
    try epoll.add(socket, 2);
    epoll.noteSocket(.{ .label = old, .readable = true });
    try testing.expectEqual(@as(u32, 0), epoll.ready.count);
    epoll.noteSocket(.{ .label = epoll.entryOf(socket).label(@intCast(first)), .readable = true });
    try testing.expectEqual(@as(u32, 1), epoll.ready.count);
}
