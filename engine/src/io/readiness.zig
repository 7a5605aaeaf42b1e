//! The io contract (see io.zig) on a kernel that reports readiness: which socket has which event, in rounds.
//! Does not know: the meaning of bytes, deadlines, limits of connections, and the system calls of a kernel (a
//! poller's job).
//!
//! A poller (epoll.zig, kqueue.zig) watches each socket edge-triggered and only once, so that a round costs
//! one wait, and one receive for each readable socket. A report of the kernel sets flags in the socket's
//! entry and queues the entry; `next` goes through the queue. Room to send is watched after the first send
//! that blocks: watched from the start, it would be reported once for each new connection, and once for each
//! response on Unix sockets.
//!
//! A poller has
//! - `init(gpa, reports_max)`, `deinit(gpa, forked)`, and `fd()`, its descriptor for host loops;
//! - `watchListener`, level-triggered, and `unwatchListener`; `watchSocket`, edge-triggered, and `watchRoom`
//!   in addition. Each reports a condition that is true already. Closing a socket ends its watches;
//! - `wait(timeout_ms)`, the kernel's reports, and `notice(&report)`, the content of a report;
//! - `wake()` for any thread, which causes a report of the waker, and `arm(at_ms)`, which causes a report of
//!   the timer at that time, in place of an earlier `arm`.

const std = @import("std");
const io = @import("io.zig");
const socket_calls = @import("socket.zig");
const sys = @import("sys.zig");
const kernel_tls = @import("kernel_tls.zig");
const transfer = @import("transfer.zig");
const Entry = @import("readiness/entry.zig").Entry;
/// The label in a report, which names an entry.
pub const Label = @import("readiness/entry.zig").Label;
const Queue = @import("queue.zig").Queue(Entry);
const assert = std.debug.assert;

const Address = io.Address;
const Event = io.Event;
const SendResult = io.SendResult;
const Slice = io.Slice;
const Socket = io.Socket;
const Token = io.Token;

/// An io over a poller. One thread owns it; other threads may call only `wake`.
pub fn Readiness(comptime Poller: type) type {
    return struct {
        const Self = @This();

        gpa: std.mem.Allocator,
        options: Options,
        poller: Poller,
        /// The time for which the timer is armed. It may be earlier than the last alarm (see `alarm`).
        timer_at_ms: ?u64 = null,

        buffer: []u8,
        /// Entries by descriptor, 24 bytes each. The list never shrinks.
        entries: std.ArrayList(Entry) = .empty,
        listeners: std.ArrayList(Listener) = .empty,

        /// Sockets that may have an event.
        ready: Queue = .{},
        /// The number of sockets in `ready` that belong to this round.
        round_left: u32 = 0,
        /// The socket whose events `next` returns at present. It is not in `ready`.
        current: ?u32 = null,
        /// The listener at which `next` accepts in this round.
        accept_cursor: u32 = 0,
        /// The caller is between `wait` and the end of its events. Then no host sleeps on `fd()`, and the
        /// waker need not keep it readable.
        in_round: bool = false,
        woken_due: bool = false,
        /// A descriptor that is watched for the host is ready, and the host was not told yet.
        foreign_due: bool = false,
        /// A host's loop watches `fd()`.
        host_watches: bool = false,
        /// The waker was raised to keep `fd()` readable, and the kernel has not reported that yet.
        is_raised: bool = false,
        /// The process that created the io. A forked child must not change the kernel's part, which it
        /// shares, when it frees its copy.
        pid: std.posix.pid_t,
        /// Set by `wake` in any thread, and cleared by the waker's report.
        wake_requested: std.atomic.Value(bool) = .init(false),

        pub const Options = io.Options;

        /// Reasons why an io cannot be created.
        pub const InitError = error{OutOfMemory} || sys.ResourceError;

        /// Creates the poller and the buffers. Must be called after fork, because parent and child would
        /// share the kernel's part.
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

        /// Closes listeners, added sockets and its own descriptors. No thread may call `wake` any more.
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

        /// The descriptor that a host's loop may watch for reading. The io still owns it. io.zig says when it
        /// is readable.
        pub fn fd(self: *Self) i32 {
            self.host_watches = true;
            if (!self.in_round) self.keepReadable();
            return self.poller.fd();
        }

        /// Milliseconds of the monotonic clock. A call takes about 20 ns, so it is made once a round.
        pub fn now(_: *const Self) u64 {
            return sys.monotonicMs();
        }

        /// The clock of `now`, in microseconds.
        pub fn micros(_: *const Self) u64 {
            return sys.monotonicUs();
        }

        /// Seconds since 1970 (UTC), late by up to one tick of the kernel (1 to 10 ms).
        pub fn wallSeconds(_: *const Self) u64 {
            return sys.wallSeconds();
        }

        // ---- Listeners

        /// Reasons why the io cannot listen at an address.
        pub const ListenError = error{OutOfMemory} || io.ListenError;

        /// Listens at an address and begins to accept. Returns the listener's id for events.
        pub fn listen(self: *Self, address: Address, options: io.ListenOptions) ListenError!u32 {
            const listener = try socket_calls.listenSocket(&address, options);
            errdefer sys.close(listener);
            return self.addListener(listener);
        }

        /// Takes over a listening socket of a parent process or of systemd. The io closes it in the end; a
        /// caller that needs it for longer duplicates it before. Several ios, in threads or processes, may
        /// share a socket: a new connection wakes one of them.
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

        /// Watches a listener level-triggered, so that connections beyond this round's budget are reported
        /// again.
        fn watchListener(self: *Self, listener: sys.Fd, id: u32) sys.ResourceError!void {
            return self.poller.watchListener(listener, .{ .kind = .listener, .index = id, .generation = 0 });
        }

        /// A listener's address, with the port that the kernel chose for port 0.
        pub fn listenerAddress(self: *const Self, id: u32) Address {
            return self.listeners.items[id].address;
        }

        /// Accepts a waiting connection at a listener, which may be paused. Null: no connection waits.
        pub fn acceptWaiting(self: *Self, id: u32) ?Event {
            const listener = &self.listeners.items[id];
            if (listener.state == .closed) return null;
            listener.accepts_left = std.math.maxInt(u16);
            defer listener.accepts_left = 0;
            return self.accept(id);
        }

        /// Whether the peer has sent bytes or its end that were not received yet.
        pub fn isReadable(_: *const Self, socket: Socket) bool {
            return sys.isReadable(@backingInt(socket));
        }

        /// Whether a connection waits in the kernel's queue of a listener.
        pub fn isAwaited(self: *const Self, id: u32) bool {
            const listener = &self.listeners.items[id];
            return listener.state != .closed and sys.isReadable(listener.fd);
        }

        /// Stops accepting at a listener. The kernel queues connections up to the backlog. A paused or closed
        /// listener stays as it is.
        pub fn pauseAccept(self: *Self, id: u32) void {
            const listener = &self.listeners.items[id];
            if (listener.state != .watched) return;
            if (self.pid == sys.processId()) self.poller.unwatchListener(listener.fd);
            listener.state = .paused;
            listener.accepts_left = 0;
        }

        /// Accepts at a paused listener again; other listeners stay as they are. After an error the listener
        /// is still paused, and the caller tries again later.
        pub fn resumeAccept(self: *Self, id: u32) sys.ResourceError!void {
            const listener = &self.listeners.items[id];
            if (listener.state != .paused) return;
            try self.watchListener(listener.fd, id);
            listener.state = .watched;
        }

        /// Closes all listeners; their ids are not used again. Connections in the kernel's queues are reset,
        /// accepted ones go on.
        pub fn closeListeners(self: *Self) void {
            for (self.listeners.items, 0..) |*listener, id| {
                if (listener.state == .closed) continue;
                // Another process may share the socket, and closing the descriptor alone would leave the
                // watch on it.
                self.pauseAccept(@intCast(id));
                sys.close(listener.fd);
                listener.state = .closed;
            }
        }

        // ---- Sockets

        /// Reasons why a socket cannot be watched.
        pub const AddError = error{OutOfMemory} || sys.ResourceError;

        /// Begins to deliver the events of an accepted socket, with this token. After an error the caller
        /// still owns the socket.
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
                // The entry may still be in the queue for an earlier socket. A visit too many has no effect.
                .next = entry.next,
                .flags = .{ .queued = entry.flags.queued },
            };
        }

        fn growEntries(self: *Self, count: u32) error{OutOfMemory}!void {
            const vacant: Entry = .{ .token = 0, .generation = 0, .phase = .vacant, .next = 0, .flags = .{} };
            try self.entries.ensureTotalCapacity(self.gpa, count);
            self.entries.appendNTimesAssumeCapacity(vacant, count - self.entries.items.len);
        }

        /// Closes a socket, added or not. No event of it is delivered from now on.
        pub fn close(self: *Self, socket: Socket) void {
            const index = indexOf(socket);
            if (index < self.entries.items.len) self.vacate(index);
            sys.close(@intCast(index));
        }

        fn vacate(self: *Self, index: u32) void {
            const entry = &self.entries.items[index];
            if (entry.phase == .vacant) return;
            entry.phase = .vacant;
            // Reports of this round were taken already, and epoll's watch survives a close if a child process
            // has inherited the descriptor. The generation tells reports about earlier owners of the entry.
            entry.generation +%= 1;
            entry.flags = .{ .queued = entry.flags.queued };
        }

        /// Stops reading a socket until `resumeReading`. The kernel's buffer fills, which slows the peer
        /// down. Needs no system call.
        pub fn pause(self: *Self, socket: Socket) void {
            self.entryOf(socket).flags.paused = true;
        }

        /// Reads a paused socket again. Bytes that have come are delivered without a new report. Needs no
        /// system call in the caller's own loop.
        pub fn resumeReading(self: *Self, socket: Socket) void {
            const entry = self.entryOf(socket);
            if (!entry.flags.paused) return;
            entry.flags.paused = false;
            if (entry.flags.readable) self.enqueue(indexOf(socket));
        }

        /// Announces the next bytes of a socket by `arrived`, once, so that the caller may receive them
        /// itself.
        pub fn askFirst(self: *Self, socket: Socket) void {
            self.entryOf(socket).flags.asks_first = true;
        }

        /// Receives bytes into `space`. Must be called after `arrived`, before the next call of `next`. Null:
        /// there are no bytes, or an end, of which an event will tell.
        pub fn receiveTo(self: *Self, socket: Socket, space: []u8) ?[]u8 {
            const index = indexOf(socket);
            const entry = &self.entries.items[index];
            assert(self.current == index and entry.phase == .open and !entry.flags.paused);
            switch (sys.receive(@intCast(index), space)) {
                .done => |count| {
                    if (count == 0) return null; // the next visit sees the end again
                    self.noteReceived(index, count, space.len);
                    return space[0..count];
                },
                .blocked => entry.flags.readable = false,
                .failed => |code| entry.phase = .{ .dying = sys.number(code) },
            }
            return null;
        }

        /// Leaves the bytes of a socket for the next round, which announces them again.
        pub fn postpone(self: *Self, socket: Socket) void {
            self.askFirst(socket);
            self.endTurn(indexOf(socket));
        }

        /// Sends slices in order, as far as the kernel takes them. `more`: further bytes follow soon, so the
        /// kernel should not send a short packet yet.
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

        /// Sends up to `len` bytes of a file from `offset` on, and at most `send_file_bytes_max`. May raise
        /// SIGPIPE.
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

        /// Lets the kernel make TLS records of all bytes that are sent from now on, of files too. False: it
        /// does not, and nothing has changed. `shutdownSend` must not be used afterwards, because the end
        /// would overtake records that wait for room.
        pub fn sealInKernel(self: *Self, socket: Socket, keys: []const u8) bool {
            if (self.entryOf(socket).phase.deathErrno() != null) return false;
            return kernel_tls.seal(@backingInt(socket), keys);
        }

        /// Sends a record of this kind (RFC 8446 section 5.1) after `sealInKernel`, as a whole or, with
        /// `blocked`, not at all.
        pub fn sendRecord(self: *Self, socket: Socket, kind: u8, bytes: []const u8) SendResult {
            if (self.entryOf(socket).phase.deathErrno()) |errno| return .{ .failed = errno };
            return switch (kernel_tls.sendRecord(@backingInt(socket), kind, bytes)) {
                // The rest of a record could not be sent as a part of it, so the connection fails.
                .done => |count| if (count == bytes.len)
                    .{ .sent = count }
                else
                    .{ .failed = self.fail(socket, sys.number(.MSGSIZE)) },
                .blocked => if (self.awaitRoom(socket)) |errno| .{ .failed = errno } else .blocked,
                .failed => |code| .{ .failed = self.fail(socket, sys.number(code)) },
            };
        }

        /// Closes a socket with a reset, so that the peer cannot take a part of the bytes for all.
        pub fn reset(self: *Self, socket: Socket) void {
            sys.resetOnClose(@backingInt(socket));
            self.close(socket);
        }

        /// Makes the kernel probe a silent peer. If the peer's kernel has no such connection, it answers with
        /// a reset (`ended`).
        pub fn probe(_: *Self, socket: Socket) void {
            sys.probePeer(@backingInt(socket));
        }

        /// Whether the peer has ended its sending side, or the connection is dead, also if no event has told
        /// it yet.
        pub fn hasPeerShut(_: *Self, socket: Socket) bool {
            return sys.hasPeerShut(@backingInt(socket));
        }

        /// Makes the kernel refuse output while it has `bytes` unsent bytes, so that output waits in the
        /// caller's queue, where its order can change. Has no effect where the kernel has no such limit.
        pub fn limitUnsent(_: *Self, socket: Socket, bytes: u31) void {
            sys.limitUnsent(@backingInt(socket), bytes);
        }

        /// Bytes that the kernel holds because the peer has not taken them yet.
        pub fn held(_: *Self, socket: Socket) u64 {
            return sys.heldBytes(@backingInt(socket));
        }

        /// The socket's local address; null: the kernel does not tell it.
        pub fn localAddress(_: *Self, socket: Socket) ?Address {
            return socket_calls.localAddress(@backingInt(socket)) catch null;
        }

        /// Ends the sending side: the peer reads the sent bytes, and then the end. Reading goes on. Nothing
        /// may be sent afterwards.
        pub fn shutdownSend(self: *Self, socket: Socket) void {
            const entry = self.entryOf(socket);
            entry.flags.send_shut = true;
            entry.flags.blocked = false;
            entry.flags.sent_due = false;
            sys.shutdownSend(@intCast(indexOf(socket)));
        }

        /// Notes that a send was cut short, and watches for room. Null: done. Otherwise the errno of a
        /// failure, after which the connection is given up, because it would wait for ever.
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

        /// Marks a connection as dead after a failed send, so that `next` reports it. Returns the errno.
        fn fail(self: *Self, socket: Socket, errno: u16) u16 {
            const entry = self.entryOf(socket);
            entry.phase = .{ .dying = errno };
            self.enqueue(indexOf(socket));
            return errno;
        }

        // ---- Wakes

        /// Lets each ring of a bell (sharing.zig) end a `wait`. Rings are not read.
        pub fn watchBell(self: *Self, bell: sys.Fd) (sys.ResourceError || error{Unsupported})!void {
            if (!@hasDecl(Poller, "watchBell")) return error.Unsupported;
            return self.poller.watchBell(bell);
        }

        /// Lets events of a descriptor of other code, bytes or its end, end a `wait`.
        pub fn watchForeign(self: *Self, foreign: sys.Fd) (sys.ResourceError || error{Unsupported})!void {
            if (!@hasDecl(Poller, "watchForeign")) return error.Unsupported;
            return self.poller.watchForeign(foreign);
        }

        /// Whether such a descriptor has had an event since the last call.
        pub fn takeForeign(self: *Self) bool {
            defer self.foreign_due = false;
            return self.foreign_due;
        }

        /// Lets the readable descriptor of a host's loop end each `wait`, and signals, too. During a wait
        /// these signals are blocked: bit n - 1 for signal n; null: the thread's own mask is used.
        pub fn watchLoop(
            self: *Self,
            loop: sys.Fd,
            blocked: ?u64,
        ) (sys.ResourceError || error{Unsupported})!void {
            if (!@hasDecl(Poller, "watchLoop")) return error.Unsupported;
            return self.poller.watchLoop(loop, blocked);
        }

        /// Ends the watch of a loop. Must be called before the loop's descriptor is closed.
        pub fn unwatchLoop(self: *Self, loop: sys.Fd) void {
            if (@hasDecl(Poller, "watchLoop")) self.poller.unwatchLoop(loop);
        }

        /// The answer that `takeForeign` will give.
        pub fn hasForeign(self: *const Self) bool {
            return self.foreign_due;
        }

        /// Ends the watch of a descriptor of other code. Must be called before the descriptor is closed.
        pub fn unwatchForeign(self: *Self, foreign: sys.Fd) void {
            if (@hasDecl(Poller, "watchForeign")) self.poller.unwatchForeign(foreign);
        }

        /// Ends a `wait`, after which `next` returns `woken`. May be called by any thread. Makes one system
        /// call, or none if a wake is on its way.
        pub fn wake(self: *Self) void {
            if (!self.wake_requested.swap(true, .acq_rel)) self.poller.wake();
        }

        /// The last call before control goes back to a host's loop. Makes `fd()` readable when the monotonic
        /// clock reaches `at_ms` (null: never), or at once if events were not delivered. The caller's own
        /// loop uses the timeout of `wait` instead. A later time than before costs no system call: the timer
        /// fires at the earlier time, and the next alarm sets the later one.
        pub fn alarm(self: *Self, at_ms: ?u64) sys.ResourceError!void {
            self.in_round = false;
            self.keepReadable();
            const at = at_ms orelse return;
            if (self.timer_at_ms) |armed| if (armed <= at) return;
            try self.poller.arm(at);
            self.timer_at_ms = at;
        }

        /// Keeps `fd()` readable by the waker while events were not delivered, because the kernel's reports
        /// are gone.
        fn keepReadable(self: *Self) void {
            if (!self.host_watches or self.is_raised or !self.hasLeftovers()) return;
            self.is_raised = true;
            self.poller.wake();
        }

        /// Whether `next` may have an event without asking the kernel. Listeners do not count, because the
        /// kernel reports them again.
        fn hasLeftovers(self: *const Self) bool {
            return self.woken_due or self.current != null or self.ready.count > 0;
        }

        // ---- Rounds

        /// Begins a round: waits at most `timeout_ms` (-1: for ever; not at all while events were not
        /// delivered). Returns the approximate number of sockets with events. 0 is possible before the time
        /// is over.
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

        /// The next event of this round; null: the round is over.
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

        /// The next event of a socket; null: there is none.
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

        /// Notes that `count` bytes were received into room for `most`.
        inline fn noteReceived(self: *Self, index: u32, count: usize, most: usize) void {
            const entry = &self.entries.items[index];
            if (count == most) {
                self.endTurn(index);
            } else if (!entry.flags.ending) {
                // The socket is drained, and the next byte is a new edge. But an end that was reported
                // already would not be reported again, so the socket is read on.
                entry.flags.readable = false;
                // The socket has no further event. The next report about it queues it again.
                self.current = null;
            }
        }

        /// Accepts one connection, if the listener may accept more in this round; null: none.
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

        /// Adds a socket to the queue, once. Outside a round, `fd()` must become readable for a host.
        fn enqueue(self: *Self, index: u32) void {
            if (self.current != index) self.ready.push(self.entries.items, index);
            if (!self.in_round) self.keepReadable();
        }

        /// Leaves the other events of a socket for the next round.
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

/// The content of a report. The flags are those of a socket.
pub const Notice = struct {
    label: Label,
    /// A receive may find bytes, the end or an error.
    readable: bool = false,
    /// The peer has ended its sending side, or the connection is dead. No further report says so.
    ending: bool = false,
    /// The socket has an error.
    failed: bool = false,
    /// A send may go on, or fail.
    room: bool = false,
};

const Listener = struct {
    fd: sys.Fd,
    state: enum { watched, paused, closed },
    /// Connections that the listener may still accept in this round; 0: no report, or all were accepted.
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
