//! The engine's end of a channel, on a thread of its own: takes commands out of one ring and puts events into
//! the other, between the rounds of the worker that it runs. It never waits for the application: events that
//! find no room stay in the host's batch.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const Batch = @import("batch.zig").Batch;
const encoded_event = @import("encoded_event.zig");
const EngineWorker = @import("abi.zig").EngineWorker;
const Host = @import("host.zig").Host;
const platform = @import("platform");
const ring = @import("ring.zig");
const spoken = @import("spoken.zig");
const Seat = @import("seat.zig").Seat;
const Slots = @import("slots.zig").Slots;
const types = @import("types.zig");
const unanswered = @import("unanswered.zig");
const Atomic = platform.Atomic;
const io = peregrine.io;

/// Something that the application wants done between two rounds, for which it waits.
pub const Task = struct {
    run: *const fn (*Task) void,
    done: platform.Latch = .{},
};

/// Where the application at the other end is.
pub const Other = union(enum) {
    /// On another thread of this process: what it waits for events with.
    thread: *platform.Wakeup,
    /// Perhaps in another process, one of several.
    seat: *Seat,
};

/// What the thread works with. The application touches `stopping`, `task`, `given_up`, `made_room` and
/// `broken` only, and wakes the worker's io.
pub const EngineEnd = struct {
    gpa: std.mem.Allocator,
    worker: *EngineWorker,
    host: *Host,
    other: Other,
    slots: *const Slots,
    commands: ring.Reader,
    events: ring.Writer,
    joiner: ring.Joiner,
    /// Where a command is copied to before it is looked at.
    private: []align(ring.alignment) u8,
    /// The head of a response that waits for the next command, so that a body of one piece has a
    /// Content-Length.
    held: struct { bytes: []align(ring.alignment) u8, len: usize = 0 },
    fields: std.ArrayList(peregrine.Field) = .empty,
    /// How many events of the batch that the host has handed over are in the ring.
    delivered: usize = 0,
    /// Of an event of more than one record: what precedes its run of bytes, and how much of
    /// both is in the ring.
    large: ?struct { head: []u8, sent: usize } = null,
    /// What the application had given back of the ring when WebSockets were last allowed to go on.
    released: u64 = 0,
    /// See `isHeard`.
    hearing: union(enum) { unasked, asked, until: u64 } = .unasked,
    /// Of an application that is at one event, see `heed`.
    attention: Attention = .{},
    /// How often the thread has waited for a moment since it last heard anything.
    pauses: u8 = 0,
    stopping: Atomic(bool) = .init(false),
    task: Atomic(?*Task) = .init(null),
    /// The ticket of a request that the application will never answer; 0: none.
    given_up: Atomic(types.Ticket) = .init(0),
    /// Kept when commands find room again.
    made_room: platform.Latch = .{},
    /// Requests that were given up for want of memory.
    shed: Atomic(u32) = .init(0),
    /// The application does not keep to the rules: it is heard no more.
    broken: Atomic(bool) = .init(false),

    const Attention = struct {
        /// What it had given back of the ring of events when it was last seen to go on.
        released: u64 = 0,
        /// Since when it has not; null: it does not work on anything.
        since: ?u64 = null,
        /// When the kernel's queues were last looked at, and how often in a row somebody waited there.
        looked_at: u64 = 0,
        waits: u8 = 0,

        const look_ms = 100;
        /// So often connections wait when all other workers are as busy.
        const waits_max = 10;
    };

    /// Commands of one round: then sockets get their turn.
    const round_commands = 1024;
    /// The longest command, which only the memory of the application limits.
    const command_bytes_max = std.math.maxInt(u32);

    pub fn init(
        gpa: std.mem.Allocator,
        worker: *EngineWorker,
        host: *Host,
        other: Other,
        slots: *const Slots,
        commands: ring.Reader,
        events: ring.Writer,
    ) error{OutOfMemory}!EngineEnd {
        const private = try gpa.alignedAlloc(u8, .fromByteUnits(ring.alignment), ring.record_bytes_max);
        errdefer gpa.free(private);
        return .{
            .gpa = gpa,
            .worker = worker,
            .host = host,
            .other = other,
            .slots = slots,
            .commands = commands,
            .events = events,
            .joiner = .{ .gpa = gpa, .bytes_max = command_bytes_max },
            .private = private,
            .held = .{ .bytes = try gpa.alignedAlloc(
                u8,
                .fromByteUnits(ring.alignment),
                ring.record_bytes_max,
            ) },
        };
    }

    /// When the thread has ended. Commands that nobody took are dropped.
    pub fn deinit(end: *EngineEnd) void {
        // A number that another process has said is no descriptor.
        if (end.other == .thread) end.dropRest();
        if (end.large) |large| end.gpa.free(large.head);
        end.joiner.deinit();
        end.fields.deinit(end.gpa);
        end.gpa.free(end.held.bytes);
        end.gpa.free(end.private);
    }

    /// The thread.
    pub fn run(end: *EngineEnd) void {
        while (!end.stopping.load(.acquire)) {
            var more = end.drain();
            if (end.host.pool) |pool| more = pool.turn() or more;
            if (!more) end.runTask();
            end.giveUp();
            // Waiting never fails where there are threads of this kind.
            end.worker.poll(if (more) 0 else -1) catch unreachable;
            end.deliver();
        }
        end.runTask();
    }

    fn raise(end: *EngineEnd) void {
        switch (end.other) {
            .thread => |wakeup| wakeup.raise(),
            .seat => |seat| seat.raise(),
        }
    }

    /// The application's thread does not run any more, so nothing of the request is on its way.
    fn giveUp(end: *EngineEnd) void {
        if (end.given_up.load(.monotonic) == 0) return;
        const ticket = end.given_up.swap(0, .acquire);
        const exchange = end.worker.find(@fromBackingInt(ticket)) orelse return;
        unanswered.fail(end.worker, exchange, 504, "The application takes too long.\n");
    }

    fn runTask(end: *EngineEnd) void {
        const task = end.task.swap(null, .acquire) orelse return;
        task.run(task);
        task.done.set();
    }

    // ---- What the worker asks before and after it waits, see `Host.patience`

    /// How long the worker may wait: not at all if there is something to do for which nobody would wake it,
    /// and only for a moment while the application is at work. What that says then is done together, without
    /// a system call on its side.
    pub fn patience(end: *EngineEnd, longest_ms: i32) i32 {
        if (!end.mayWait()) return 0;
        if (end.broken.load(.monotonic)) return longest_ms;
        const wanted_ms = end.heed(longest_ms);
        if (wanted_ms == 0) return 0;
        const pauses = end.pauses < pauses_max and end.events.isReaderAwake();
        if (!pauses) return if (end.commands.sleeps() catch true) wanted_ms else 0;
        end.pauses += 1;
        if (!(end.commands.pauses() catch true)) return 0;
        return shorter(wanted_ms, pause_ms);
    }

    /// An application that is at one event for too long comes to nothing else: where other workers accept at
    /// the same sockets, that is left to them until it goes on. Unless nobody takes what waits there: then
    /// all of them are as busy, and what the engine answers by itself must be answered. For how long the
    /// worker may wait then.
    fn heed(end: *EngineEnd, wanted_ms: i32) i32 {
        const most = end.worker.config.accept_yield_ms;
        if (most == 0 or end.other != .thread) return wanted_ms;
        const attention = &end.attention;
        const released = end.events.released() catch return wanted_ms;
        const works = released != end.events.at and end.events.isReaderAtWork();
        if (!works or released != attention.released) {
            attention.* = .{ .released = released };
            end.worker.takeUpAccepting();
            if (!works) return wanted_ms;
        }
        const now = end.worker.io.now();
        const since = attention.since orelse now;
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
        const other: i32 = @intCast(other_ms);
        return if (wanted_ms < 0) other else @min(wanted_ms, other);
    }

    const pause_ms = 1;
    /// So often in a row, while nothing is said: an application that computes for long wakes the engine when
    /// it has something to say.
    const pauses_max = 3;

    fn mayWait(end: *EngineEnd) bool {
        // What was answered since the last wait has its lines before the next one.
        end.worker.settleAccessLog();
        if (end.host.hasGathered()) return false;
        if (end.hasUndelivered()) {
            if (end.events.awaitRoom() catch false) return false;
        } else if (end.worker.parked.items.len > 0) {
            if (end.events.awaitRelease(end.released) catch false) return false;
        }
        return true;
    }

    /// Nobody needs to wake it now.
    pub fn waited(end: *EngineEnd) void {
        end.commands.wakes();
    }

    // ---- Events

    /// Whether the ring has no room for what there is.
    pub fn isBehind(end: *const EngineEnd) bool {
        return end.hasUndelivered();
    }

    /// Whether something that was gathered is not in the ring.
    pub fn hasUndelivered(end: *const EngineEnd) bool {
        return end.delivered < end.host.taken().len;
    }

    /// Puts what was gathered into the ring, as far as there is room.
    pub fn deliver(end: *EngineEnd) void {
        if (end.broken.load(.monotonic) and end.other == .seat) return;
        var any = false;
        while (true) {
            if (!end.hasUndelivered()) {
                end.host.release(&end.worker.pool);
                if (!end.host.hasGathered()) break;
                _ = end.host.take();
                end.delivered = 0;
            }
            if (!(end.put(&end.host.taken()[end.delivered]) catch return end.breakOff())) break;
            any = true;
            end.delivered += 1;
        }
        if (any) end.publish();
        end.letGoOn() catch end.breakOff();
    }

    /// Shows the application what is in the ring.
    pub fn publish(end: *EngineEnd) void {
        if (end.events.publish()) end.raise();
    }

    /// WebSockets wait while the application is behind, or has to answer their last messages: when it has
    /// read on they look again.
    fn letGoOn(end: *EngineEnd) ring.Error!void {
        if (end.worker.parked.items.len == 0 or end.isBehind()) return;
        const released = try end.events.released();
        if (released == end.released) return;
        end.released = released;
        end.worker.unpark();
    }

    /// Whether the application is done with all that there was for it when this was asked first. To be asked
    /// again, in a later round, until it says so.
    pub fn isHeard(end: *EngineEnd) bool {
        const released = end.events.released() catch return true;
        switch (end.hearing) {
            .unasked => end.hearing = .asked,
            // What the round of that question gathered has followed.
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

    /// Whether the application has yet to read a message.
    pub fn owesMessages(end: *EngineEnd, ticket: types.Ticket) bool {
        const released = end.events.released() catch return false;
        return !end.slots.hasReadMessages(ticket, released);
    }

    /// A request was given up for want of memory: the application need not read all that is before its end to
    /// know.
    pub fn noteShed(end: *EngineEnd, ticket: types.Ticket) void {
        end.slots.noteShed(ticket);
        _ = end.shed.fetchAdd(1, .release);
    }

    /// False: there is no room for all of it.
    pub fn put(end: *EngineEnd, event: *const types.Event) ring.Error!bool {
        const tls = Batch.factsOf(event);
        const len = encoded_event.size(event, tls);
        if (len > ring.record_bytes_max) return end.putLarge(event, tls, len);
        const space = try end.events.reserve(len) orelse return false;
        encoded_event.encode(event, tls, space);
        end.events.commit(.whole);
        end.notePlace(event);
        return true;
    }

    fn putLarge(
        end: *EngineEnd,
        event: *const types.Event,
        tls: []const u8,
        len: usize,
    ) ring.Error!bool {
        if (end.large == null) {
            // Without memory it is tried again in the next round.
            const head = end.gpa.alloc(u8, len - event.len) catch return false;
            encoded_event.encodeHead(event, tls, head);
            end.large = .{ .head = head, .sent = 0 };
        }
        const large = &end.large.?;
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
        end.gpa.free(large.head);
        end.large = null;
        end.notePlace(event);
        return true;
    }

    /// The event is in the ring.
    fn notePlace(end: *EngineEnd, event: *const types.Event) void {
        // Who reads it has the file of its body from now on; behind a socket a copy.
        if (end.other == .thread) if (event.request) |request| {
            @constCast(request).body_fd = -1;
        };
        if (event.kind == .message) end.slots.placeMessage(event.ticket, end.events.at);
    }

    // ---- Commands

    /// Does what the application has said. True: there is more.
    pub fn drain(end: *EngineEnd) bool {
        if (end.broken.load(.monotonic)) return false;
        var left: usize = round_commands;
        var more = false;
        end.worker.now = end.worker.io.now();
        while (true) {
            const record = end.commands.next() catch return end.refuse();
            const message = end.joiner.add(record orelse break) catch return end.refuse();
            end.hear(message orelse continue, record.?.part == .whole) catch return end.refuse();
            if (end.worker.hasGrown()) end.worker.attendMemory();
            end.joiner.clear();
            end.pauses = 0;
            left -= 1;
            if (left == 0) {
                more = true;
                break;
            }
        }
        if (end.commands.release()) switch (end.other) {
            .thread => end.made_room.set(),
            .seat => |seat| seat.raise(),
        };
        return more;
    }

    fn refuse(end: *EngineEnd) bool {
        end.breakOff();
        return false;
    }

    /// What comes out of the ring is no command: nothing is read from it any more, and nobody is served.
    pub fn breakOff(end: *EngineEnd) void {
        end.broken.store(true, .release);
        switch (end.other) {
            .thread => {
                end.made_room.set();
                end.worker.cut();
            },
            // What it had is ended between two rounds.
            .seat => {},
        }
    }

    /// One message. `shared`: the application could still change it.
    fn hear(
        end: *EngineEnd,
        message: []align(ring.alignment) const u8,
        shared: bool,
    ) error{ Malformed, OutOfMemory }!void {
        if (end.held.len > 0) {
            const head = end.held.bytes[0..end.held.len];
            end.held.len = 0;
            if (spoken.isContent(message)) return end.obeyBoth(head, end.own(message, shared));
            try end.obey(head);
        }
        if (message.len == spoken.release.len) return;
        // Of content only the head is looked at twice, which another thread does not change.
        const is_ours = end.other == .thread and spoken.isContent(message);
        if (!shared or is_ours) return end.obey(message);
        const bytes = end.private[0..message.len];
        @memcpy(bytes, message);
        if (!spoken.isHeld(bytes)) return end.obey(bytes);
        std.mem.swap([]align(ring.alignment) u8, &end.private, &end.held.bytes);
        end.held.len = bytes.len;
    }

    /// A copy that nobody else changes, if another process could.
    fn own(
        end: *EngineEnd,
        message: []align(ring.alignment) const u8,
        shared: bool,
    ) []align(ring.alignment) const u8 {
        if (!shared or end.other == .thread) return message;
        @memcpy(end.private[0..message.len], message);
        return end.private[0..message.len];
    }

    fn obey(end: *EngineEnd, bytes: []align(ring.alignment) const u8) error{ Malformed, OutOfMemory }!void {
        var said = try spoken.decode(end.gpa, bytes, &end.fields);
        return end.take(&said);
    }

    /// Does what was said, if it may be said here. What comes from another process is believed nothing.
    fn take(end: *EngineEnd, said: *spoken.Spoken) error{Malformed}!void {
        const seat = switch (end.other) {
            .thread => return end.apply(said),
            .seat => |seat| seat,
        };
        switch (said.command) {
            .file => |*file| file.fd = try seat.takeFile(file),
            .relay => |*relay| if (relay.* == .offer) {
                relay.offer = try seat.takeDescriptor();
            },
            else => {},
        }
        const ticket: peregrine.Ticket = @fromBackingInt(said.ticket);
        const exchange = end.worker.exchanges.get(ticket) orelse return dropDescriptor(&said.command);
        if (!seat.hears(exchange)) {
            dropDescriptor(&said.command);
            return error.Malformed;
        }
        const before = seat.load;
        const was_at_work = exchange.at_work;
        end.apply(said);
        const left = end.worker.exchanges.get(ticket);
        if (left) |same| {
            if (same.ended) seat.noteOver(same);
        } else if (was_at_work and seat.load == before) seat.load -= 1;
    }

    /// The head of a response that was held, and the piece of a body behind it: one command if they
    /// are a whole response.
    fn obeyBoth(
        end: *EngineEnd,
        head: []align(ring.alignment) const u8,
        content: []align(ring.alignment) const u8,
    ) error{ Malformed, OutOfMemory }!void {
        var said = try spoken.decode(end.gpa, head, &end.fields);
        var none: std.ArrayList(peregrine.Field) = .empty;
        var piece = try spoken.decode(end.gpa, content, &none);
        if (piece.command != .body) return error.Malformed;
        const body = &piece.command.body;
        if (piece.ticket != said.ticket or !body.last) {
            try end.take(&said);
            return end.take(&piece);
        }
        const start = &said.command.start;
        start.body = body.bytes;
        start.end = true;
        start.hold = false;
        start.close = start.close or body.close;
        said.content += piece.content;
        said.flushes = piece.flushes;
        said.awaits = piece.awaits;
        return end.take(&said);
    }

    fn apply(end: *EngineEnd, said: *const spoken.Spoken) void {
        const worker = end.worker;
        const ticket: peregrine.Ticket = @fromBackingInt(said.ticket);
        const exchange = worker.commanded(ticket, said.command) orelse return dropDescriptor(&said.command);
        const outcome = end.outcomeOf(exchange, &said.command) catch |err| {
            dropDescriptor(&said.command);
            return end.fail(ticket, err);
        };
        if (said.flushes and outcome != .done) {
            if (worker.find(ticket)) |same| worker.sendNow(same);
        }
        const left = worker.exchanges.get(ticket);
        if (left) |same| {
            end.slots.consume(said.ticket, said.content, Host.outputOf(same));
        } else {
            end.slots.end(said.ticket);
        }
        if (said.awaits) end.answerWait(said, outcome, left);
    }

    fn outcomeOf(
        end: *EngineEnd,
        exchange: *peregrine.Exchange,
        command: *const peregrine.Command,
    ) EngineWorker.CommandError!peregrine.Outcome {
        return switch (command.*) {
            // The application's end has opened it for us, and has seen how long it is.
            .file => |file| end.worker.write(exchange, .{ .file = .{
                .fd = file.fd,
                .offset = file.offset,
                .len = file.length.?,
                .asks = file.is_slow,
                .was_slow = file.is_slow,
            } }, .{ .last = true }),
            .relay => {
                // Without one its application reads the end of it, and answers or does not.
                _ = end.worker.applyTo(exchange, command.*) catch dropDescriptor(command);
                return .accepted;
            },
            else => end.worker.applyTo(exchange, command.*),
        };
    }

    fn dropDescriptor(command: *const peregrine.Command) void {
        switch (command.*) {
            .file => |file| io.file.close(file.fd),
            .relay => |relay| if (relay == .offer) io.file.close(relay.offer),
            else => {},
        }
    }

    /// The application waits for an event that the worker does not make, because it has nothing to wait for.
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
                // Output that is with the kernel already moves no more: nothing later would tell of it.
                exchange.above_high = exchange.queuedBytes() >= end.worker.config.write_low_bytes;
                if (!exchange.above_high) return end.host.drained(end.worker, exchange);
                end.worker.cork(exchange.lane);
            },
        }
    }

    /// The ledger has let through what the worker does not take. Mostly the exchange has moved on meanwhile.
    fn fail(end: *EngineEnd, ticket: peregrine.Ticket, err: EngineWorker.CommandError) void {
        switch (err) {
            error.Gone, error.NotOpen, error.AlreadyClosed, error.NotWebSocket => return,
            else => {},
        }
        const exchange = end.worker.find(ticket) orelse return;
        var buffer: [160]u8 = undefined;
        end.worker.sayOf(
            exchange,
            .err,
            &buffer,
            "the response cannot be sent: {t} - {s}",
            .{ err, exchange.lane.endWords() },
        );
        end.worker.fail(exchange.lane, .server_error);
    }

    /// Asserts what always holds between two rounds.
    pub fn invariants(end: *EngineEnd) void {
        end.commands.invariants();
        end.events.invariants();
        assert(end.held.len <= end.held.bytes.len and end.pauses <= pauses_max);
        assert(end.delivered <= end.host.taken().len);
        // What is half in the ring is the next event to be delivered.
        if (end.large) |large| {
            const event = &end.host.taken()[end.delivered];
            assert(large.sent < encoded_event.size(event, Batch.factsOf(event)));
        }
        var it = end.worker.exchanges.iterator();
        while (it.next()) |exchange| {
            if (exchange.unannounced or exchange.ended) continue;
            assert(end.slots.look(@backingInt(exchange.ticket)) != null);
        }
    }

    fn dropRest(end: *EngineEnd) void {
        while (end.commands.next() catch null) |record| {
            const message = (end.joiner.add(record) catch return) orelse continue;
            if (message.len == spoken.release.len) continue;
            const said = spoken.decode(end.gpa, message, &end.fields) catch return;
            dropDescriptor(&said.command);
            end.joiner.clear();
        }
    }
};
