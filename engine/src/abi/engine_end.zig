//! The engine's end of a ring pair, on a thread of its own: takes commands out of one ring and puts events
//! into the other, between the rounds of the worker that it runs. It never waits for the application: events
//! that find no room stay in the host's batch.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const Batch = @import("batch.zig").Batch;
const encoded_event = @import("encoded_event.zig");
const annex = @import("annex.zig");
const Borrowed = @import("borrowed.zig").Borrowed;
const Delivery = @import("delivery.zig").Delivery;
const Depot = @import("depot.zig").Depot;
const DescriptorError = @import("introduction.zig").DescriptorError;
const EngineWorker = @import("engine_worker.zig").EngineWorker;
const Host = @import("host.zig").Host;
const Lent = @import("lent.zig").Lent;
const Link = @import("link.zig").Link;
const platform = @import("platform");
const Returned = @import("returned.zig").Returned;
const ring = @import("ring.zig");
const spoken = @import("spoken.zig");
const Slots = @import("slots.zig").Slots;
const types = @import("types.zig");
const unanswered = @import("unanswered.zig");
const Atomic = platform.Atomic;
const trace = peregrine.trace;
const io = peregrine.io;

/// A call by the application that runs between two rounds, while the application waits.
pub const Task = struct {
    run: *const fn (*Task) void,
    done: platform.Latch = .{},
};

/// The seat of an interpreter (seat.zig), as its engine's end knows it.
pub const Peer = struct {
    calls: *const Calls,

    /// The functions of a seat, described in seat.zig.
    pub const Calls = struct {
        raise: *const fn (peer: *Peer) void,
        hears: *const fn (peer: *Peer, exchange: *peregrine.Exchange) bool,
        unreadMax: *const fn (peer: *Peer) usize,
        noteSaid: *const fn (
            peer: *Peer,
            exchange: *peregrine.Exchange,
            command: *const peregrine.Command,
        ) void,
        handOver: *const fn (peer: *Peer, exchange: *peregrine.Exchange) bool,
        wish: *const fn (
            peer: *Peer,
            exchange: *peregrine.Exchange,
            topic: *const peregrine.Command.Topic,
        ) error{Malformed}!void,
        hold: *const fn (peer: *Peer, exchange: *peregrine.Exchange, wish: []const u8) error{Malformed}!void,
        takeDescriptor: *const fn (peer: *Peer) DescriptorError!i32,
    };

    /// The descriptor of a command; -1: the engine has no room for it, so that the command fails alone.
    fn descriptor(peer: *Peer) error{Malformed}!i32 {
        return peer.calls.takeDescriptor(peer) catch |err| switch (err) {
            error.Malformed => error.Malformed,
            error.DescriptorsExhausted => -1,
        };
    }
};

/// The application at the other end of the ring pair.
pub const Other = union(enum) {
    /// On another thread of this process, which waits for events with this wakeup.
    thread: *platform.Wakeup,
    /// An interpreter, one of several, perhaps in another process.
    peer: *Peer,
};

/// The state of the engine's thread. The application touches only `stopping`, `task`, `given_up`,
/// `made_room`, `shed`, `returned` and `broken`, and wakes the worker's io.
pub const EngineEnd = struct {
    gpa: std.mem.Allocator,
    worker: *EngineWorker,
    host: *Host,
    other: Other,
    link: Link,
    commands: ring.Reader,
    events: ring.Writer,
    commands_annex: annex.View,
    /// Pieces of that annex that are on their way to clients.
    borrowed: *Borrowed,
    events_annex: annex.Writer,
    /// Memory with long bodies that the application can read; null: the engine has none.
    depot: ?*Depot = null,
    /// The buffers in the depot that the application may be reading.
    lent: Lent = .{},
    /// The delivery of topics to an application of this process; null: the engine delivers none, or the
    /// application is an interpreter with a seat.
    delivery: ?*Delivery = null,
    joiner: ring.Joiner,
    /// The memory that a command is copied to before it is looked at.
    private: []align(ring.alignment) u8,
    /// The head of a response that waits for the next command, so that a body of one piece has a
    /// Content-Length.
    held: struct { bytes: []align(ring.alignment) u8, len: usize = 0 },
    fields: std.ArrayList(peregrine.Field) = .empty,
    /// An event of several records that is partly in the ring: its head, and the bytes of head and body that
    /// are in the ring.
    large: ?struct { head: []u8, sent: usize } = null,
    /// How far the application had read the ring when WebSockets were last allowed to go on.
    released: u64 = 0,
    /// The state of `isHeard`; `until`: the position in the ring that the application has yet to reach.
    hearing: union(enum) { unasked, asked, until: u64 } = .unasked,
    /// Observations that tell how long the application is at one event, see `heed`.
    attention: Attention = .{},
    /// The number of pauses of the thread since the last command.
    pauses: u8 = 0,
    /// The number of events in the ring that the application cannot see yet.
    unshown: u32 = 0,
    /// Whether the application was woken for one event, and neither got another one nor said anything since.
    is_at_one: bool = false,
    stopping: Atomic(bool) = .init(false),
    task: Atomic(?*Task) = .init(null),
    /// The ticket of a request that the application will never answer; 0: none.
    given_up: Atomic(types.Ticket) = .init(0),
    /// When the application began to handle events of its own loop, see `application_end.Engine`.
    loop_since: *const Atomic(u64),
    /// Set when the ring of commands has room again.
    made_room: platform.Latch = .{},
    /// Whether the application has broken the rules: its commands are not read any more.
    broken: Atomic(bool) = .init(false),
    /// Loans of an application on another thread that were sent or dropped.
    returned: Returned = .{},

    const Attention = struct {
        /// The position up to which the application had read events when it was last seen to go on, and
        /// `loop_since` at that time.
        released: u64 = 0,
        loop_since: u64 = 0,
        /// When the application began to work on its present event; null: it works on no event.
        since: ?u64 = null,
        /// When the queues of the listeners were last looked at, and how many looks in a row found
        /// connections.
        looked_at: u64 = 0,
        waits: u8 = 0,

        const look_ms = peregrine.api_limits.attention_ms;
        const waits_max = peregrine.api_limits.attention_waits_max;
    };

    const round_commands = peregrine.api_limits.commands_per_round_max;
    /// The longest command: only the memory of the application limits it.
    const command_bytes_max = std.math.maxInt(u32);

    pub fn init(
        gpa: std.mem.Allocator,
        worker: *EngineWorker,
        host: *Host,
        other: Other,
        slots: *const Slots,
        commands: ring.Reader,
        events: ring.Writer,
        annexes: annex.Both,
        borrowed: *Borrowed,
        loop_since: *const Atomic(u64),
    ) error{OutOfMemory}!EngineEnd {
        const private = try gpa.alignedAlloc(u8, .fromByteUnits(ring.alignment), ring.record_bytes_max);
        errdefer gpa.free(private);
        return .{
            .gpa = gpa,
            .worker = worker,
            .host = host,
            .other = other,
            .link = .{ .slots = slots, .calls = &link_calls },
            .commands = commands,
            .events = events,
            .commands_annex = .of(annexes.commands),
            .borrowed = borrowed,
            .events_annex = .init(annexes.events),
            .loop_since = loop_since,
            .joiner = .{ .gpa = gpa, .bytes_max = command_bytes_max },
            .private = private,
            .held = .{ .bytes = try gpa.alignedAlloc(
                u8,
                .fromByteUnits(ring.alignment),
                ring.record_bytes_max,
            ) },
        };
    }

    /// To be called when the thread has ended, and the application reads nothing any more. Commands that were
    /// not done are dropped.
    pub fn deinit(end: *EngineEnd) void {
        end.lent.deinit(&end.worker.pool);
        // Commands of another process name descriptors of that process, which are not ours to close.
        if (end.other == .thread) end.dropRest();
        if (end.large) |large| end.gpa.free(large.head);
        end.joiner.deinit();
        end.fields.deinit(end.gpa);
        end.gpa.free(end.held.bytes);
        end.gpa.free(end.private);
    }

    /// The engine's thread: works in rounds until `stopping`.
    pub fn run(end: *EngineEnd) void {
        while (!end.stopping.load(.acquire)) {
            var more = end.drain();
            // Only unread commands delay a task: interpreters and readers of topics may always have more to
            // do.
            if (!more) end.runTask();
            if (end.host.interpreters) |several| more = several.calls.turn(several) or more;
            end.giveUp();
            // Waiting never fails on systems where the engine can have a thread.
            end.worker.poll(if (more) 0 else -1) catch unreachable;
            // The application finds its loans when it reads the events of their exchanges.
            end.returnLoans();
            end.deliver();
        }
        end.runTask();
    }

    /// Gives the application the loans that have come back to the worker. An application that sleeps over
    /// many bytes of loans is woken to free them; an application that is about to sleep finds them
    /// (`ApplicationEnd.poll`).
    fn returnLoans(end: *EngineEnd) void {
        const loans = &end.worker.pool.loans;
        if (loans.returned == null or end.other != .thread) return;
        const bytes = loans.returned_bytes;
        end.returned.add(loans.take().?, bytes);
        if (end.returned.isLarge()) end.publish();
    }

    fn raise(end: *EngineEnd) void {
        switch (end.other) {
            .thread => |wakeup| wakeup.raise(),
            .peer => |peer| peer.calls.raise(peer),
        }
    }

    /// Answers a request with 504. Its application's thread does not run any more, so no command is on its
    /// way.
    fn giveUp(end: *EngineEnd) void {
        if (end.given_up.load(.monotonic) == 0) return;
        const ticket = end.given_up.swap(0, .acquire);
        const exchange = end.worker.find(@fromBackingInt(ticket)) orelse return;
        // The application has left the response to the engine before it came to a stop.
        if (end.delivery) |delivery| if (delivery.holds(exchange)) return;
        unanswered.fail(end.worker, exchange, 504, "The application takes too long.\n");
    }

    fn runTask(end: *EngineEnd) void {
        const task = end.task.swap(null, .acquire) orelse return;
        assert(end.other == .thread);
        task.run(task);
        task.done.set();
    }

    // ---- The worker's questions before and after it waits, see `Host.patience`

    const link_calls: Link.Calls = .{
        .patience = patienceOf,
        .waited = waitedOf,
        .owesMessages = owesMessages,
        .isHeard = isHeard,
    };

    fn of(link: *Link) *EngineEnd {
        return @alignCast(@fieldParentPtr("link", link));
    }

    fn patienceOf(link: *Link, longest_ms: i32) i32 {
        return of(link).patience(longest_ms);
    }

    fn waitedOf(link: *Link) void {
        of(link).waited();
    }

    /// How long the worker may wait: not at all if there is work that no wake-up would announce, and only for
    /// a moment while the application is at work. Commands of that moment are done together, and cost the
    /// application no system call. One event has one answer as a rule, so there is nothing to gather: a
    /// pause would cost the kernel a timer.
    pub fn patience(end: *EngineEnd, longest_ms: i32) i32 {
        if (!end.mayWait()) return 0;
        if (end.broken.load(.monotonic)) return longest_ms;
        const wanted_ms = end.restDepot(end.heed(longest_ms));
        if (wanted_ms == 0) return 0;
        const pauses = end.pauses < pauses_max and end.events.isReaderAwake();
        if (!pauses) return if (end.commands.sleeps() catch true) wanted_ms else 0;
        end.pauses += 1;
        assert(end.pauses <= pauses_max);
        if (!(end.commands.pauses() catch true)) return 0;
        return shorter(wanted_ms, pause_ms);
    }

    /// Lets the depot of an application in this process give memory back (pool.zig does it for others).
    fn restDepot(end: *EngineEnd, wanted_ms: i32) i32 {
        if (end.other != .thread) return wanted_ms;
        const depot = end.depot orelse return wanted_ms;
        const wait_ms = depot.rest(end.worker.io.now()) orelse return wanted_ms;
        return shorter(wanted_ms, wait_ms);
    }

    /// Leaves accepting to other workers at the same sockets while the application is at one event for longer
    /// than `accept_yield_ms`, because new requests would wait for it. If connections wait in the queues all
    /// the same, the other workers are as busy: then this one accepts, so that requests for the health path
    /// are answered. Returns how long the worker may wait.
    fn heed(end: *EngineEnd, wanted_ms: i32) i32 {
        const most = end.worker.config.accept_yield_ms;
        if (end.other != .thread) return wanted_ms;
        const attention = &end.attention;
        if (most == 0) {
            // The other workers may have ended since this one has left accepting to them.
            if (attention.since != null) end.worker.takeUpAccepting();
            attention.since = null;
            return wanted_ms;
        }
        const released = end.events.released() catch return wanted_ms;
        const loop_since = end.loop_since.load(.monotonic);
        const works = loop_since != 0 or released != end.events.at and end.events.isReaderAtWork();
        if (!works or released != attention.released or loop_since != attention.loop_since) {
            attention.* = .{ .released = released, .loop_since = loop_since };
            end.worker.takeUpAccepting();
            if (!works) return wanted_ms;
        }
        const now = end.worker.io.now();
        const since = attention.since orelse if (loop_since != 0) @min(loop_since, now) else now;
        attention.since = since;
        if (now -| since < most) return shorter(wanted_ms, most - (now -| since));
        end.worker.yieldAccepting();
        end.attend(now);
        if (end.events.awaitRelease(released) catch false) return 0;
        return shorter(wanted_ms, Attention.look_ms);
    }

    fn attend(end: *EngineEnd, now: u64) void {
        const attention = &end.attention;
        if (now -| attention.looked_at < Attention.look_ms) return;
        attention.looked_at = now;
        attention.waits = if (end.worker.isAwaited()) attention.waits + 1 else 0;
        if (attention.waits < Attention.waits_max) return;
        attention.waits = 0;
        end.worker.acceptWaiting();
    }

    fn shorter(wanted_ms: i32, other_ms: u64) i32 {
        assert(wanted_ms >= -1);
        const other: i32 = @intCast(other_ms);
        return if (wanted_ms < 0) other else @min(wanted_ms, other);
    }

    const pause_ms = peregrine.api_limits.pause_ms;
    const pauses_max = peregrine.api_limits.pauses_max;

    fn mayWait(end: *EngineEnd) bool {
        // Requests that were answered since the last wait have their lines in the log before the next wait.
        end.worker.settleAccessLog();
        end.returnLoans();
        if (end.host.hasGathered()) return false;
        if (end.hasUndelivered()) {
            if (end.events.awaitRoom() catch false) return false;
        } else if (end.worker.waiting.parked.items.len > 0) {
            if (end.events.awaitRelease(end.released) catch false) return false;
        }
        return true;
    }

    /// The worker is awake: the application need not wake it. A connection that has ended the wait is left to
    /// other workers if the application is in its own loop for too long, which a waiting worker cannot
    /// notice.
    pub fn waited(end: *EngineEnd) void {
        end.commands.wakes();
        if (end.other == .thread and end.loop_since.load(.monotonic) != 0) _ = end.heed(-1);
    }

    // ---- Events

    /// Whether the ring has no room for the gathered events.
    pub fn isBehind(end: *const EngineEnd) bool {
        return end.hasUndelivered();
    }

    /// Whether gathered events are not in the ring.
    pub fn hasUndelivered(end: *const EngineEnd) bool {
        return end.link.delivered < end.host.taken().len;
    }

    /// Puts gathered events into the ring, as far as there is room.
    pub fn deliver(end: *EngineEnd) void {
        assert(end.link.delivered <= end.host.taken().len);
        if (end.broken.load(.monotonic) and end.other == .peer) return;
        var any = false;
        while (true) {
            if (!end.hasUndelivered()) {
                end.lend(end.host.reading());
                end.host.release(&end.worker.pool);
                if (!end.host.hasGathered()) break;
                _ = end.host.take();
                end.link.delivered = 0;
            }
            if (!(end.put(&end.host.taken()[end.link.delivered]) catch return end.breakOff())) break;
            any = true;
            end.link.delivered += 1;
        }
        if (any) end.publish();
        end.takeBack() catch return end.breakOff();
        end.letGoOn() catch end.breakOff();
    }

    /// Keeps the buffers of a batch that lie in the depot, because the application reads the content of its
    /// events there.
    pub fn lend(end: *EngineEnd, batch: *Batch) void {
        const depot = end.depot orelse return;
        var at: usize = batch.buffers.items.len;
        while (at > 0) {
            at -= 1;
            if (depot.offsetOf(batch.buffers.items[at]) == null) continue;
            end.lent.add(batch.buffers.swapRemove(at), end.events.at);
        }
    }

    /// Takes the buffers back that the application has read.
    fn takeBack(end: *EngineEnd) ring.Error!void {
        if (end.lent.count > 0) end.lent.collect(&end.worker.pool, try end.events.released());
    }

    /// Shows the application the events in the ring.
    pub fn publish(end: *EngineEnd) void {
        const wakes = end.events.publish();
        end.is_at_one = wakes and end.unshown == 1;
        end.unshown = 0;
        if (end.is_at_one) end.pauses = pauses_max;
        if (wakes) end.raise();
    }

    /// Lets WebSockets look again whether they may go on when the application has read on. They wait while
    /// the application is behind, or has to answer their last messages.
    fn letGoOn(end: *EngineEnd) ring.Error!void {
        if (end.worker.waiting.parked.items.len == 0 or end.isBehind()) return;
        const released = try end.events.released();
        if (released == end.released) return;
        assert(released > end.released);
        end.released = released;
        end.worker.unpark();
    }

    /// Whether the application is done with all events that there were when this was first asked. The caller
    /// asks again in later rounds until the answer is yes.
    fn isHeard(link: *Link) bool {
        const end = of(link);
        const released = end.events.released() catch return true;
        switch (end.hearing) {
            .unasked => end.hearing = .asked,
            // The events that were gathered in the round of the first question are in the ring, too.
            .asked => if (!end.hasUndelivered()) {
                end.hearing = .{ .until = end.events.at };
            },
            .until => |position| if (released >= position) {
                end.hearing = .unasked;
                return true;
            },
        }
        return false;
    }

    /// Whether the application has yet to read a message of an exchange.
    fn owesMessages(link: *Link, ticket: types.Ticket) bool {
        const end = of(link);
        const released = end.events.released() catch return false;
        return !end.link.slots.hasReadMessages(ticket, released);
    }

    /// Puts an event into the ring. False: there is no room for all of it.
    pub fn put(end: *EngineEnd, event: *const types.Event) ring.Error!bool {
        const tls = Batch.factsOf(event);
        const len = encoded_event.size(event, tls);
        const way: Way = if (end.large != null) .records else end.wayOf(event, len);
        switch (way) {
            .record => {},
            .depot, .annex => return end.putApart(event, tls, way),
            .records => return end.putLarge(event, tls, len),
        }
        const space = try end.events.reserve(len) orelse return false;
        encoded_event.encode(event, tls, .here, space);
        end.events.commit(.whole);
        end.notePlace(event);
        return true;
    }

    /// The way of an event's bytes to the application.
    pub const Way = enum {
        /// In the record of the event.
        record,
        /// In the depot, where the application reads them.
        depot,
        /// In the annex, copied once.
        annex,
        /// In several records, as there is no room elsewhere.
        records,
    };

    /// The way of the bytes of an event, which takes `len` bytes in a ring.
    pub fn wayOf(end: *EngineEnd, event: *const types.Event, len: usize) Way {
        const fits = len <= ring.record_bytes_max;
        if (fits and event.len < apart_min) return .record;
        if (encoded_event.sizeApart(event, Batch.factsOf(event)) <= ring.record_bytes_max) {
            if (end.placeInDepot(event) != null) return .depot;
            if (!fits and end.hasRoomInAnnex(event.len)) return .annex;
        }
        return if (fits) .record else .records;
    }

    /// Shorter content is copied into the record: it would take a whole unit of the depot.
    const apart_min = peregrine.api_limits.depot_unit_bytes / 2;

    fn hasRoomInAnnex(end: *EngineEnd, len: usize) bool {
        return end.events_annex.hasRoom(len, end.events.released() catch return false);
    }

    fn putApart(end: *EngineEnd, event: *const types.Event, tls: []const u8, way: Way) ring.Error!bool {
        const space = try end.events.reserve(encoded_event.sizeApart(event, tls)) orelse return false;
        const place: encoded_event.Place = if (way == .depot)
            .{ .depot = end.placeInDepot(event).? }
        else
            .{ .annex = end.events_annex.put(event.bytes[0..event.len]) };
        encoded_event.encode(event, tls, place, space);
        end.events.commit(.whole);
        if (way == .annex) end.events_annex.follow(end.events.at);
        end.notePlace(event);
        return true;
    }

    fn placeInDepot(end: *const EngineEnd, event: *const types.Event) ?u64 {
        const depot = end.depot orelse return null;
        return depot.offsetOf(event.bytes[0..event.len]);
    }

    fn putLarge(
        end: *EngineEnd,
        event: *const types.Event,
        tls: []const u8,
        len: usize,
    ) ring.Error!bool {
        if (end.large == null) {
            // Without memory for the head the next round tries again.
            const head = end.gpa.alloc(u8, len - event.len) catch return false;
            encoded_event.encode(event, tls, .follows, head);
            end.large = .{ .head = head, .sent = 0 };
        }
        const large = &end.large.?;
        assert(large.sent < len and len == large.head.len + event.len);
        while (large.sent < len) {
            const rest = if (large.sent < large.head.len)
                large.head[large.sent..]
            else
                event.bytes[large.sent - large.head.len .. event.len];
            const piece = rest[0..@min(rest.len, ring.record_bytes_max)];
            const space = try end.events.reserve(piece.len) orelse {
                if (end.events.publish()) end.raise();
                return false;
            };
            @memcpy(space, piece);
            large.sent += piece.len;
            end.events.commit(if (large.sent == len) .last else .more);
        }
        assert(large.sent == len);
        end.gpa.free(large.head);
        end.large = null;
        end.notePlace(event);
        return true;
    }

    /// Called for an event that is in the ring, and that the application cannot see yet.
    fn notePlace(end: *EngineEnd, event: *const types.Event) void {
        trace.passing(.engine_ring, event, 0);
        end.unshown += 1;
        // The application owns the file of a request's body from now on. Behind a socket it has a copy.
        if (end.other == .thread) if (event.request) |request| {
            @constCast(request).body_fd = -1;
        };
        if (event.kind == .message) end.link.slots.placeMessage(event.ticket, end.events.at);
    }

    // ---- Commands

    /// Obeys commands in the ring, `round_commands` at most. True: there are more.
    pub fn drain(end: *EngineEnd) bool {
        if (end.broken.load(.monotonic)) return false;
        var left: usize = round_commands;
        var more = false;
        const begin = end.commands.at;
        while (true) {
            const found = end.commands.next() catch |err| return end.refuse(err);
            const record = found orelse break;
            if (left == round_commands) end.worker.clock.goOn(end.worker.io.now());
            const message = end.joiner.add(record) catch |err| return end.refuse(err);
            end.hear(message orelse continue, record.part == .whole) catch |err| return end.refuse(err);
            if (end.worker.hasGrown()) end.worker.attendMemory();
            end.joiner.clear();
            left -= 1;
            if (left == 0) {
                more = true;
                break;
            }
        }
        if (end.commands.at != begin) {
            if (!end.is_at_one) end.pauses = 0;
            end.is_at_one = false;
        }
        if (end.commands.release()) switch (end.other) {
            .thread => end.made_room.set(),
            .peer => |peer| peer.calls.raise(peer),
        };
        return more;
    }

    /// Obeys all commands that are in the ring now, however many come meanwhile.
    pub fn drainAll(end: *EngineEnd) void {
        const position = end.commands.written();
        while (end.drain() and end.commands.at < position) {}
    }

    fn refuse(end: *EngineEnd, err: error{ Malformed, OutOfMemory }) bool {
        // About an interpreter that breaks the rules the pool writes a line.
        if (end.other == .thread) {
            var buffer: [160]u8 = undefined;
            const text = "The engine cuts its connections: a command of its application cannot be read ({t})";
            end.worker.say(.err, &buffer, text, .{err});
        }
        end.breakOff();
        return false;
    }

    /// Reads nothing more from the ring of an application that breaks the rules.
    pub fn breakOff(end: *EngineEnd) void {
        end.broken.store(true, .release);
        switch (end.other) {
            .thread => {
                end.made_room.set();
                end.worker.cut();
            },
            // The pool ends the interpreter's exchanges between two rounds.
            .peer => {},
        }
    }

    /// Does the command of a message. `shared`: the application could still change the message.
    fn hear(
        end: *EngineEnd,
        message: []align(ring.alignment) const u8,
        shared: bool,
    ) error{ Malformed, OutOfMemory }!void {
        if (end.held.len > 0) {
            const head = end.held.bytes[0..end.held.len];
            end.held.len = 0;
            if (spoken.isContent(message)) return end.obeyBoth(head, end.own(message, shared));
            var said = try spoken.decode(end.gpa, head, end.beside(), &end.fields);
            try end.take(&said);
        }
        if (message.len == spoken.release.len) return;
        // A thread's content is not copied: only its head is read twice, and the thread does not change it.
        const is_ours = end.other == .thread and spoken.isContent(message);
        var bytes = message;
        if (shared and !is_ours) {
            bytes = end.copied(message);
            if (spoken.isHeld(bytes)) {
                std.mem.swap([]align(ring.alignment) u8, &end.private, &end.held.bytes);
                end.held.len = bytes.len;
                assert(end.held.len > 0 and end.held.len <= end.held.bytes.len);
                return;
            }
        }
        var said = try spoken.decode(end.gpa, bytes, end.beside(), &end.fields);
        return end.take(&said);
    }

    /// The message itself, or a copy of it where another process could change it while it is read.
    fn own(
        end: *EngineEnd,
        message: []align(ring.alignment) const u8,
        shared: bool,
    ) []align(ring.alignment) const u8 {
        return if (!shared or end.other == .thread) message else end.copied(message);
    }

    fn beside(end: *const EngineEnd) spoken.Beside {
        return .{ .annex = end.commands_annex, .lends = end.other == .thread };
    }

    fn copied(end: *EngineEnd, message: []const u8) []align(ring.alignment) const u8 {
        @memcpy(end.private[0..message.len], message);
        return end.private[0..message.len];
    }

    /// Does a command, if it is allowed. A command of another process may be about any exchange, and bring
    /// any descriptor.
    fn take(end: *EngineEnd, said: *spoken.Spoken) error{Malformed}!void {
        const peer = switch (end.other) {
            .thread => return end.takeOwn(said),
            .peer => |peer| peer,
        };
        switch (said.command) {
            .file => |*file| {
                const length = file.length orelse return error.Malformed;
                // No file is longer, so sums of offsets and lengths below that cannot overflow.
                if (file.offset +| length > std.math.maxInt(i64)) return error.Malformed;
                file.fd = try peer.descriptor();
            },
            .relay => |*relay| if (relay.* == .offer) {
                relay.offer = try peer.descriptor();
            },
            else => {},
        }
        const ticket: peregrine.Ticket = @fromBackingInt(said.ticket);
        const exchange = end.worker.exchanges.get(ticket) orelse return dropDescriptor(&said.command);
        if (said.command == .hand_over) {
            trace.said(.engine_ring, said.ticket, &said.command, 0);
            return if (peer.calls.handOver(peer, exchange)) {} else error.Malformed;
        }
        if (!peer.calls.hears(peer, exchange) or end.host.gatheredCount() > peer.calls.unreadMax(peer)) {
            dropDescriptor(&said.command);
            return error.Malformed;
        }
        if (said.command == .topic) {
            trace.said(.engine_ring, said.ticket, &said.command, 0);
            return peer.calls.wish(peer, exchange, &said.command.topic);
        }
        if (said.command == .hold) {
            trace.said(.engine_ring, said.ticket, &said.command, 0);
            return peer.calls.hold(peer, exchange, said.command.hold);
        }
        end.apply(said);
        if (end.worker.exchanges.get(ticket)) |same| peer.calls.noteSaid(peer, same, &said.command);
    }

    /// Does a command of the application on another thread.
    fn takeOwn(end: *EngineEnd, said: *const spoken.Spoken) error{Malformed}!void {
        const delivery = end.delivery orelse return end.apply(said);
        const ticket: peregrine.Ticket = @fromBackingInt(said.ticket);
        if (said.command == .topic) {
            trace.said(.engine_ring, said.ticket, &said.command, 0);
            const exchange = end.worker.exchanges.get(ticket) orelse return;
            const topic = &said.command.topic;
            return delivery.obey(end.host, &delivery.lone_speaker, exchange, topic.number, topic.wish);
        }
        if (said.command == .hold) {
            trace.said(.engine_ring, said.ticket, &said.command, 0);
            const exchange = end.worker.exchanges.get(ticket) orelse return;
            // The engine has answered the request meanwhile.
            if (!exchange.isHeard() or exchange.status != 0) return;
            try delivery.hold(end.host, &delivery.lone_account, exchange, said.command.hold);
            return end.link.slots.end(said.ticket);
        }
        end.apply(said);
        if (end.worker.exchanges.get(ticket)) |same| _ = delivery.letEnd(same);
    }

    /// Does the held head of a response and the piece of a body that follows: as one command if they are a
    /// whole response.
    fn obeyBoth(
        end: *EngineEnd,
        head: []align(ring.alignment) const u8,
        content: []align(ring.alignment) const u8,
    ) error{ Malformed, OutOfMemory }!void {
        var said = try spoken.decode(end.gpa, head, end.beside(), &end.fields);
        var none: std.ArrayList(peregrine.Field) = .empty;
        defer none.deinit(end.gpa);
        var piece = try spoken.decode(end.gpa, content, end.beside(), &none);
        if (piece.command != .body) return error.Malformed;
        const body = &piece.command.body;
        // Lent content and content in the annex are sent from there, and not copied behind the head.
        const is_apart = body.loan != null or end.commands_annex.unitOf(body.bytes) != null;
        if (piece.ticket != said.ticket or !body.last or is_apart) {
            try end.take(&said);
            return end.take(&piece);
        }
        const start = &said.command.start;
        start.body = body.bytes;
        start.end = true;
        start.hold = false;
        start.close = start.close or body.close;
        said.content +%= piece.content; // a process that is not trusted may send any number: the sum may wrap
        said.flushes = piece.flushes;
        said.awaits = piece.awaits;
        return end.take(&said);
    }

    fn apply(end: *EngineEnd, said: *const spoken.Spoken) void {
        trace.said(.engine_ring, said.ticket, &said.command, 0);
        const worker = end.worker;
        const ticket: peregrine.Ticket = @fromBackingInt(said.ticket);
        const exchange = worker.commanded(ticket, said.command) orelse return end.drop(&said.command);
        const outcome = (if (end.borrow(&said.command)) |held|
            end.applyHeld(exchange, &said.command, held)
        else switch (said.command) {
            .file => end.writeFile(exchange, &said.command),
            .relay => relay: {
                // If there can be no relay, the application reads the end of its socket, and may answer.
                _ = worker.applyTo(exchange, said.command) catch dropDescriptor(&said.command);
                break :relay peregrine.Outcome.accepted;
            },
            else => worker.applyTo(exchange, said.command),
        }) catch |err| {
            end.drop(&said.command);
            return end.fail(ticket, err);
        };
        if (said.flushes and outcome != .done) {
            if (worker.find(ticket)) |same| worker.sendNow(same);
        }
        const left = worker.exchanges.get(ticket);
        if (left) |same| {
            end.link.slots.consume(said.ticket, said.content, Host.outputOf(same));
        } else {
            end.link.slots.end(said.ticket);
        }
        if (said.awaits) end.answerWait(said, outcome, left);
    }

    /// Borrows a command's content that lies in the annex, until it was sent; null: there is none.
    fn borrow(end: *EngineEnd, command: *const peregrine.Command) ?peregrine.Held {
        return switch (command.*) {
            .start => |start| end.borrowed.borrow(start.body),
            .body => |body| end.borrowed.borrow(body.bytes),
            else => null,
        };
    }

    /// Does a command whose content was borrowed.
    fn applyHeld(
        end: *EngineEnd,
        exchange: *peregrine.Exchange,
        command: *const peregrine.Command,
        held: peregrine.Held,
    ) EngineWorker.CommandError!peregrine.Outcome {
        errdefer held.release(held.holder);
        switch (command.*) {
            .start => |start| {
                var head = start;
                head.body = "";
                head.end = false;
                head.hold = start.end;
                const ticket = exchange.ticket;
                _ = try end.worker.applyTo(exchange, .{ .start = head });
                // A long head goes out at once, and may find that the client has gone.
                const left = end.worker.find(ticket) orelse {
                    held.release(held.holder);
                    return .accepted;
                };
                return end.worker.write(left, .{ .held = held }, .{ .last = start.end });
            },
            .body => |body| {
                trace.command(exchange, command.*);
                const place: peregrine.Exchange.Place = .{
                    .last = body.last,
                    .close = body.last and body.close,
                };
                return end.worker.write(exchange, .{ .held = held }, place);
            },
            else => unreachable, // no other command has content that is borrowed
        }
    }

    /// Sends a range of a file, which the application's end has opened for the engine and measured.
    fn writeFile(
        end: *EngineEnd,
        exchange: *peregrine.Exchange,
        command: *const peregrine.Command,
    ) EngineWorker.CommandError!peregrine.Outcome {
        const file = command.file;
        if (file.fd < 0) return error.DescriptorsExhausted;
        // `size` refuses pipes and sockets, which would make the engine wait when it reads. On slow storage
        // `size` could wait itself: there the thread that reads the file finds out.
        if (end.other == .peer and !file.is_slow) _ = try io.file.size(file.fd);
        trace.command(exchange, command.*);
        return end.worker.write(exchange, .{ .file = .{
            .fd = file.fd,
            .offset = file.offset,
            .len = file.length.?,
            .asks = file.is_slow,
            .was_slow = file.is_slow,
        } }, .{ .last = true });
    }

    /// Gives back what belongs to a command that is not done.
    fn drop(end: *EngineEnd, command: *const peregrine.Command) void {
        dropDescriptor(command);
        if (command.* == .body) if (command.body.loan) |loan| end.worker.pool.loans.decline(loan);
    }

    fn dropDescriptor(command: *const peregrine.Command) void {
        const fd = switch (command.*) {
            .file => |file| file.fd,
            .relay => |relay| if (relay == .offer) relay.offer else return,
            else => return,
        };
        if (fd >= 0) io.file.close(fd);
    }

    /// Makes the event that the application waits for, if the worker makes none because no output waits.
    fn answerWait(
        end: *EngineEnd,
        said: *const spoken.Spoken,
        outcome: peregrine.Outcome,
        left: ?*peregrine.Exchange,
    ) void {
        switch (outcome) {
            .blocked => {},
            .done => end.host.tellEnd(.{ .kind = .finished, .ticket = said.ticket }),
            .accepted => {
                const exchange = left orelse return;
                if (said.command == .flush) return end.host.flushed(end.worker, exchange);
                // Output that is with the kernel already, and a head that is kept, cause no later event.
                if (exchange.keepsHead() or !exchange.awaitsRoom(end.worker.config.write_low_bytes)) {
                    return end.host.drained(end.worker, exchange);
                }
                end.worker.waiting.cork(exchange.lane);
            },
        }
    }

    /// The worker refuses a command that the ledger has let through, mostly because the exchange has moved on
    /// meanwhile.
    fn fail(end: *EngineEnd, ticket: peregrine.Ticket, err: EngineWorker.CommandError) void {
        switch (err) {
            error.Gone, error.NotOpen, error.AlreadyClosed, error.NotWebSocket => return,
            else => {},
        }
        const exchange = end.worker.find(ticket) orelse return;
        var buffer: [200]u8 = undefined;
        if (end.worker.troubles.commands.add(end.worker.clock.now)) |others| end.worker.sayOf(
            exchange,
            .err,
            &buffer,
            "the response cannot be sent: {t} - {s}{f}",
            .{ err, exchange.lane.endWords(), others },
        );
        end.worker.fail(exchange.lane, .server_error);
    }

    /// Asserts what always holds between two rounds.
    pub fn invariants(end: *EngineEnd) void {
        end.commands.invariants();
        end.events.invariants();
        assert(end.held.len <= end.held.bytes.len and end.pauses <= pauses_max);
        assert(!end.is_at_one or end.pauses == pauses_max);
        assert(end.private.len == end.held.bytes.len);
        assert(end.link.delivered <= end.host.taken().len);
        // The event that is partly in the ring is the next one to be delivered.
        if (end.large) |large| {
            const event = &end.host.taken()[end.link.delivered];
            assert(large.sent < encoded_event.size(event, Batch.factsOf(event)));
        }
        if (end.delivery) |delivery| delivery.invariants();
        var it = end.worker.exchanges.iterator();
        while (it.next()) |exchange| {
            if (!exchange.isHeard() or exchange.isEnded()) continue;
            if (end.delivery) |delivery| if (delivery.holds(exchange)) continue;
            assert(end.link.slots.look(@backingInt(exchange.ticket)) != null);
        }
    }

    fn dropRest(end: *EngineEnd) void {
        while (end.commands.next() catch null) |record| {
            const message = (end.joiner.add(record) catch return) orelse continue;
            if (message.len == spoken.release.len) continue;
            const said = spoken.decode(end.gpa, message, end.beside(), &end.fields) catch return;
            dropDescriptor(&said.command);
            end.joiner.clear();
        }
    }
};
