//! The application's end of a ring pair: gives out events, answers each call from the ledger and puts
//! commands into the ring.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const annex = @import("annex.zig");
const DescriptorError = @import("introduction.zig").DescriptorError;
const encoded_event = @import("encoded_event.zig");
const errors = @import("errors.zig");
const Entry = @import("ledger.zig").Entry;
const Ledger = @import("ledger.zig").Ledger;
const platform = @import("platform");
const Returned = @import("returned.zig").Returned;
const ring = @import("ring.zig");
const spoken = @import("spoken.zig");
const types = @import("types.zig");
const Code = types.Code;
const Batch = @import("batch.zig").Batch;
const Command = peregrine.Command;
const Event = types.Event;
pub const HostLoop = peregrine.io.host_loop.HostLoop;
const io = peregrine.io;
const trace = peregrine.trace;

/// The way to the engine, which is on another thread (ring_pair.zig) or perhaps in another process
/// (interpreter.zig).
pub const Engine = struct {
    calls: *const Calls,
    /// Whether descriptors go to the engine over a socket, because their numbers mean nothing in its process.
    is_remote: bool,
    /// The engine's count of requests that were given up for want of memory; null: it is not visible here.
    shed: ?*const platform.Atomic(u32),
    /// The loans that the engine gives back; null: the engine cannot read this process's memory, so nothing
    /// is lent to it.
    returned: ?*Returned = null,
    /// For the engine: when C began to handle events of its own loop, in milliseconds of the monotonic clock;
    /// 0: C does not handle any now.
    loop_since: *platform.Atomic(u64),
    /// The engine's process; 0: this one.
    process: u32 = 0,

    /// The functions through which both kinds of application's end reach their engine.
    pub const Calls = struct {
        /// Whether the engine reads no commands of this application any more.
        isDeaf: *const fn (engine: *Engine) bool,
        wake: *const fn (engine: *Engine) void,
        /// Lowers the wakeup: the application is awake, and reads events without it. `asleep`: until now the
        /// application was asleep, so the engine may have raised the wakeup.
        clear: *const fn (engine: *Engine, asleep: bool) void,
        /// Waits until the engine raises the wakeup, `loop` (C's) has events, or the time is over.
        wait: *const fn (engine: *Engine, timeout_ms: c_int, loop: ?*HostLoop) void,
        /// Waits until `commands` has room. False: the engine reads no commands any more.
        waitForRoom: *const fn (engine: *Engine, commands: *ring.Writer) bool,
        /// Receives the file that an event names, which has come ahead of it. For a remote engine.
        receiveFile: *const fn (engine: *Engine) DescriptorError!i32,
        /// Sends a copy of a descriptor ahead of its command. False: the engine has gone. For a remote
        /// engine.
        sendFile: *const fn (engine: *Engine, fd: i32) bool,

        /// The table for a type that has these functions as methods, and an `Engine` as its field `way`. A
        /// type whose engine is not remote has no functions for descriptors: both sides use the same numbers.
        pub fn of(comptime Owner: type) Calls {
            const Through = struct {
                fn owner(engine: *Engine) *Owner {
                    return @alignCast(@fieldParentPtr("way", engine));
                }

                fn isDeaf(engine: *Engine) bool {
                    return owner(engine).isDeaf();
                }

                fn wake(engine: *Engine) void {
                    owner(engine).wakeEngine();
                }

                fn clear(engine: *Engine, asleep: bool) void {
                    owner(engine).clear(asleep);
                }

                fn wait(engine: *Engine, timeout_ms: c_int, loop: ?*HostLoop) void {
                    owner(engine).wait(timeout_ms, loop);
                }

                fn waitForRoom(engine: *Engine, commands: *ring.Writer) bool {
                    return owner(engine).waitForRoom(commands);
                }

                fn receiveFile(engine: *Engine) DescriptorError!i32 {
                    assert(engine.is_remote);
                    if (!@hasDecl(Owner, "receiveFile")) unreachable;
                    return owner(engine).receiveFile();
                }

                fn sendFile(engine: *Engine, fd: i32) bool {
                    assert(engine.is_remote);
                    if (!@hasDecl(Owner, "sendFile")) unreachable;
                    return owner(engine).sendFile(fd);
                }
            };
            return .{
                .isDeaf = Through.isDeaf,
                .wake = Through.wake,
                .clear = Through.clear,
                .wait = Through.wait,
                .waitForRoom = Through.waitForRoom,
                .receiveFile = Through.receiveFile,
                .sendFile = Through.sendFile,
            };
        }
    };
};

/// The application's end. Only the application's thread touches it.
pub const ApplicationEnd = struct {
    gpa: std.mem.Allocator,
    engine: *Engine,
    commands: ring.Writer,
    events: ring.Reader,
    commands_annex: annex.Writer,
    /// Memory beside the ring in which content of events may lie: the annex and the depot.
    beside: encoded_event.Beside,
    joiner: ring.Joiner,
    ledger: Ledger,
    /// The events of the last poll, which C reads now. They point into the ring, beside it, into `requests`
    /// and into `joined`.
    batch: std.ArrayList(Event) = .empty,
    requests: std.ArrayList(types.Request) = .empty,
    joined: std.ArrayList([]align(ring.alignment) u8) = .empty,
    /// Commands that are longer than a record are encoded here.
    scratch: std.ArrayList(u8) = .empty,
    /// The last command was the head of a response that waits for the next command (PEREGRINE_HOLD). The
    /// engine does not see it yet.
    held: bool = false,
    /// Commands since the engine was last woken.
    unseen: u32 = 0,
    /// Loans that have come back at once, because the ring has a copy of their bytes, or takes none.
    returned: ?*types.Loan = null,
    /// The application waits or is about to: the engine raises the wakeup for the next event.
    asleep: bool = true,
    /// The loop of the C program, which `poll` watches while it waits; null: it watches none.
    loop: ?HostLoop = null,
    /// Looks through the ledger for requests that were given up for want of memory: the engine's count of
    /// these when the last complete look began (`shed`) and when the present look began (`shed_begun`), and
    /// the entry that the present look has come to (`shed_at`).
    shed: u32 = 0,
    shed_begun: u32 = 0,
    shed_at: usize = 0,
    /// Requests that were refused for want of a descriptor, and the line about them in the batch.
    turned_away: peregrine.Tally = .{},
    line: [128]u8 = undefined,

    const batch_max = peregrine.api_limits.events_per_poll_max;

    /// Makes all memory that `poll` needs.
    pub fn init(
        gpa: std.mem.Allocator,
        engine: *Engine,
        commands: ring.Writer,
        events: ring.Reader,
        annexes: annex.Both,
        depot: []align(annex.alignment) const u8,
        ledger: Ledger,
    ) error{OutOfMemory}!ApplicationEnd {
        var end: ApplicationEnd = .{
            .gpa = gpa,
            .engine = engine,
            .commands = commands,
            .events = events,
            .commands_annex = .init(annexes.commands),
            .beside = .{ .annex = .of(annexes.events), .depot = .{ .memory = depot } },
            .joiner = .{ .gpa = gpa, .bytes_max = std.math.maxInt(usize) },
            .ledger = ledger,
        };
        errdefer end.deinit();
        try end.batch.ensureTotalCapacity(gpa, batch_max);
        try end.requests.ensureTotalCapacity(gpa, batch_max);
        try end.joined.ensureTotalCapacity(gpa, batch_max);
        return end;
    }

    pub fn deinit(end: *ApplicationEnd) void {
        end.dropRest();
        end.forgetBatch();
        inline for (.{ &end.batch, &end.requests, &end.joined, &end.scratch }) |list| list.deinit(end.gpa);
        end.joiner.deinit();
        end.ledger.deinit();
    }

    // ---- Events

    /// Returns the next events. If there are none and `inbox` has no mail, waits for up to `timeout_ms` (-1:
    /// without bound). `inbox` is asked because `read` may have cleared the wakeup that announced mail. Does
    /// not wait while large strings could be freed (`Returned`).
    pub fn poll(
        end: *ApplicationEnd,
        timeout_ms: c_int,
        inbox: ?*const peregrine.Inbox,
    ) error{ Malformed, OutOfMemory }![]const Event {
        const loop = if (end.loop) |*loop| loop else null;
        try end.read();
        const has_mail = if (inbox) |box| box.hasMail() else false;
        const has_loans = if (end.engine.returned) |returned| returned.isLarge() else false;
        if (end.batch.items.len > 0 or timeout_ms == 0 or has_mail or has_loans) {
            if (loop) |host_loop| host_loop.look();
            return end.batch.items;
        }
        end.engine.calls.wait(end.engine, timeout_ms, loop);
        try end.read();
        return end.batch.items;
    }

    /// Gathers the next events. If there are none the engine will raise the wakeup.
    fn read(end: *ApplicationEnd) error{ Malformed, OutOfMemory }!void {
        end.flush();
        end.forgetBatch();
        end.ledger.sweep();
        if (end.events.release()) end.wakeEngine();
        end.engine.calls.clear(end.engine, end.asleep);
        if (end.asleep) end.events.wakes();
        end.asleep = false;
        while (true) {
            try end.gather();
            if (end.batch.items.len > 0) return;
            // The records so far were parts of a message that is longer than the ring.
            if (end.events.release()) end.wakeEngine();
            if (try end.events.sleeps()) break;
        }
        end.asleep = true;
        if (end.commands.hasUnreadInPause() catch unreachable) end.wakeEngine();
    }

    /// Tells the engine that C begins (`works`) or has ceased to handle events of its own loop.
    pub fn noteLoop(end: *ApplicationEnd, works: bool) void {
        // Output that would be flushed by the next poll must not wait until C's handlers are done.
        if (works) end.flush();
        const since = if (works) @max(io.micros() / std.time.us_per_ms, 1) else 0;
        _ = end.engine.loop_since.swap(since, .acq_rel);
    }

    /// Asserts what always holds between two calls. Looks at every entry of the ledger: for
    /// simulations and tests.
    pub fn invariants(end: *const ApplicationEnd) void {
        end.commands.invariants();
        end.events.invariants();
        end.ledger.invariants();
        assert(end.requests.items.len <= batch_max and end.joined.items.len <= batch_max);
        // A held head was put into the ring before.
        assert(!end.held or end.commands.at != 0);
        assert(!end.asleep or end.batch.items.len == 0);
    }

    /// Drops the events that are left, and closes their files.
    fn dropRest(end: *ApplicationEnd) void {
        while (true) {
            end.forgetBatch();
            end.gather() catch return;
            _ = end.events.release();
            if (end.batch.items.len == 0) return;
        }
    }

    fn forgetBatch(end: *ApplicationEnd) void {
        assert(end.requests.items.len <= batch_max and end.batch.items.len <= end.batch.capacity);
        for (end.requests.items) |*request| Batch.closeBody(request);
        for (end.joined.items) |bytes| end.gpa.free(bytes);
        inline for (.{ &end.batch, &end.requests, &end.joined }) |list| list.clearRetainingCapacity();
    }

    fn gather(end: *ApplicationEnd) error{ Malformed, OutOfMemory }!void {
        while (end.batch.items.len < batch_max) {
            const record = try end.events.next() orelse return;
            assert(end.requests.items.len < batch_max and end.joined.items.len < batch_max);
            if (record.part == .more and end.joiner.isEmpty()) {
                try end.joiner.expect(try encoded_event.sizeOf(record.bytes));
            }
            const message = try end.joiner.add(record) orelse continue;
            if (record.part != .whole) end.joined.appendAssumeCapacity(try end.joiner.take());
            const bytes = if (record.part == .whole) message else end.joined.getLast();
            const request = end.requests.addOneAssumeCapacity();
            const decoded = try encoded_event.decode(bytes, end.beside, request);
            const event = decoded.event;
            var lacks_file = false;
            if (event.request == null) {
                _ = end.requests.pop();
            } else if (request.body_fd >= 0 and end.engine.is_remote) {
                // The number in the event is that of a descriptor of the engine's process.
                request.body_fd = -1;
                request.body_fd = end.engine.calls.receiveFile(end.engine) catch |err| switch (err) {
                    error.Malformed => return error.Malformed,
                    error.DescriptorsExhausted => -1,
                };
                lacks_file = request.body_fd < 0;
            }
            errdefer end.passOver(event.request != null, record.part != .whole);
            const introduced = try end.introduce(event, decoded.tls);
            if (if (lacks_file) end.turnAway(introduced) else introduced) |known| {
                trace.passing(.application_ring, &known, end.engine.process);
                end.batch.appendAssumeCapacity(known);
            }
            if (introduced == null or lacks_file) {
                end.passOver(event.request != null, record.part != .whole);
            }
        }
    }

    /// Answers a request with 503, as this process has no descriptor for the file of its body. C gets a
    /// notice in place of the request, at most one a second.
    fn turnAway(end: *ApplicationEnd, introduced: ?Event) ?Event {
        const event = introduced orelse return null;
        assert(event.kind == .request);
        const command: Command = .{ .start = .{
            .status = 503,
            .fields = &.{.init("Content-Type", "text/plain")},
            .body = "The application has no descriptors left.\n",
            .end = true,
        } };
        _ = end.answer(event.ticket, &command, 0);
        end.ledger.forget(event.ticket);
        const others = end.turned_away.add(io.micros() / 1000) orelse return null;
        const format = "A request is refused (503): no descriptor is left for the file of its body{f}";
        const text = std.fmt.bufPrint(&end.line, format, .{others}) catch unreachable; // there is room
        const level = @backingInt(peregrine.Level.err);
        return .{ .kind = .notice, .code = level, .bytes = text.ptr, .len = text.len };
    }

    /// Frees the places of the last event's request and bytes, because the event is not for C. A peer can
    /// make any number of such events.
    fn passOver(end: *ApplicationEnd, has_request: bool, was_joined: bool) void {
        if (has_request) {
            var request = end.requests.pop().?;
            Batch.closeBody(&request);
        }
        if (was_joined) end.gpa.free(end.joined.pop().?);
    }

    /// The event as C gets it; null if it is about an exchange that is over for C.
    fn introduce(end: *ApplicationEnd, event: Event, tls: []const u8) error{OutOfMemory}!?Event {
        switch (event.kind) {
            .stopped, .notice, .lines, .ending => return event,
            .request => {
                // The client has left, or another interpreter has the request.
                if (!end.ledger.slots.isOffered(event.ticket)) return null;
                // The request was taken back and is offered again before the first offer was looked at.
                if (end.ledger.get(event.ticket)) |entry| if (!entry.over) return null;
                try end.ledger.open(&event, tls);
                return event;
            },
            .body, .drained, .half_closed, .message, .flushed, .topic => {},
            .finished, .aborted, .closed => {},
        }
        const entry = end.ledger.get(event.ticket) orelse return null;
        if (entry.over) return null;
        if (event.kind == .finished or event.kind == .aborted or event.kind == .closed) end.ledger.end(entry);
        var known = event;
        known.user = entry.user;
        return known;
    }

    /// The last event of an exchange that the engine gave up for want of memory, ahead of its earlier events.
    /// An interpreter in another process has few events to read before that one, and needs no such call.
    pub fn nextShed(end: *ApplicationEnd) ?Event {
        const shed = end.engine.shed orelse return null;
        const entries = end.ledger.entries.items;
        while (true) {
            // The count is read when a look begins, so the next look finds requests given up behind this one.
            if (end.shed_at == 0) end.shed_begun = shed.load(.acquire);
            if (end.shed_begun == end.shed) return null;
            while (end.shed_at < entries.len) {
                const entry = entries[end.shed_at];
                end.shed_at += 1;
                const found = entry orelse continue;
                if (found.over or !end.ledger.slots.wasShed(found.ticket)) continue;
                end.ledger.end(found);
                return lastOf(found, .server_error);
            }
            end.shed_at = 0;
            end.shed = end.shed_begun;
        }
    }

    /// The last event of an exchange, made here because the engine's own was not read.
    fn lastOf(entry: *const Entry, reason: peregrine.Reason) Event {
        var event: Event = switch (entry.websocket) {
            .none, .handshake => .{ .kind = .aborted, .code = @backingInt(reason) },
            .open, .closing => .{ .kind = .closed, .code = close_abnormal, .reason = @backingInt(reason) },
        };
        event.ticket = entry.ticket;
        event.user = entry.user;
        return event;
    }

    /// The engine has gone: returns the last event of every exchange that C knows, and `stopped`.
    pub fn endAll(end: *ApplicationEnd) error{OutOfMemory}![]const Event {
        end.forgetBatch();
        assert(end.batch.items.len == 0);
        end.ledger.sweep();
        try end.batch.ensureTotalCapacity(end.gpa, end.ledger.count + 1);
        for (end.ledger.entries.items) |first| {
            var next = first;
            while (next) |entry| : (next = entry.older) if (!entry.over) {
                end.ledger.end(entry);
                end.batch.appendAssumeCapacity(lastOf(entry, .server_shutdown));
            };
        }
        end.batch.appendAssumeCapacity(.{ .kind = .stopped });
        return end.batch.items;
    }

    /// RFC 6455 section 7.4.1: the connection was lost.
    const close_abnormal = 1006;

    // ---- Commands

    /// Sends a command to the engine if the ledger allows it; returns the code of its outcome. `flags`: those
    /// of peregrine_write().
    pub fn answer(end: *ApplicationEnd, ticket: types.Ticket, command: *const Command, flags: u32) c_int {
        if (end.engine.calls.isDeaf(end.engine)) return Code.gone;
        var said: spoken.Spoken = .{ .ticket = ticket, .command = command.* };
        const loan = takeLoan(&said.command);
        const copies = command.* == .file and !command.file.is_slow;
        if (copies) said.command.file = ownFile(command.file) catch |err| return errors.code(err);
        const verdict = end.ledger.take(ticket, &said.command) catch |err| {
            if (copies) io.file.close(said.command.file.fd);
            return errors.code(err);
        };
        said.flushes = flags & types.RespondFlag.flush != 0;
        // The engine holds no head that says how long the body is, but one wake-up is enough for both.
        const waits = command.* == .start and command.start.hold and !command.start.end;
        end.held = (verdict.held or waits) and !said.flushes;
        if (said.command == .start) said.command.start.hold = verdict.held and !said.flushes;
        said.awaits = verdict.awaits;
        said.content = verdict.content;
        if (command.* == .file and end.engine.is_remote) {
            // The descriptor goes over the socket, and is there before the command.
            const fd = said.command.file.fd;
            defer io.file.close(fd);
            if (!end.engine.calls.sendFile(end.engine, fd)) return Code.gone;
            said.command.file.fd = -1;
        }
        if (command.* == .relay and command.relay == .offer and end.engine.is_remote) {
            if (!end.engine.calls.sendFile(end.engine, command.relay.offer)) return Code.gone;
            io.file.close(command.relay.offer);
            said.command.relay.offer = -1;
        }
        const is_lent = if (loan) |mark| end.putLent(&said, mark) else false;
        if (!is_lent) end.put(&said) catch {
            if (command.* == .file and !end.engine.is_remote) io.file.close(said.command.file.fd);
            return Code.memory;
        };
        if (loan) |mark| if (!is_lent) end.giveBack(mark);
        if (!end.held) end.publish();
        return switch (verdict.outcome) {
            .accepted => Code.ok,
            .done => Code.done,
            .blocked => Code.blocked,
        };
    }

    fn takeLoan(command: *Command) ?*types.Loan {
        const place = switch (command.*) {
            .body => |*body| &body.loan,
            .message => |*message| &message.loan,
            else => return null,
        };
        defer place.* = null;
        return place.*;
    }

    fn giveBack(end: *ApplicationEnd, loan: *types.Loan) void {
        assert(loan != end.returned);
        loan.next = end.returned;
        end.returned = loan;
    }

    /// The loans that have come back since the last call, linked by `next`.
    pub fn takeReturned(end: *ApplicationEnd) ?*types.Loan {
        defer end.returned = null;
        const sent = if (end.engine.returned) |returned| returned.take() else null;
        var last = end.returned orelse return sent;
        while (last.next) |next| last = next;
        last.next = sent;
        return end.returned;
    }

    /// The range of a file, with a copy of its descriptor for the engine and cut to the file's present
    /// length: C may close its own descriptor at once.
    fn ownFile(file: Command.File) io.file.Error!Command.File {
        const size = try io.file.size(file.fd);
        const offset = @min(file.offset, size);
        return .{
            .fd = try io.file.duplicate(file.fd),
            .offset = offset,
            .length = @min(file.length orelse size, size - offset),
        };
    }

    fn put(end: *ApplicationEnd, said: *const spoken.Spoken) error{OutOfMemory}!void {
        trace.said(.application_ring, said.ticket, &said.command, end.engine.process);
        const len = spoken.size(said);
        const content_len = spoken.contentOf(said).len;
        const fits = len <= ring.record_bytes_max;
        if (content_len >= apart_min or (!fits and content_len > 0)) {
            const apart_len = spoken.sizeApart(said);
            // the engine is trusted to keep its side of the ring well formed
            const released = end.commands.released() catch unreachable;
            if (apart_len <= ring.record_bytes_max and end.commands_annex.hasRoom(content_len, released)) {
                return end.putApart(said, apart_len);
            }
        }
        if (fits) {
            spoken.encode(said, end.room(len) orelse return);
            return end.commands.commit(.whole);
        }
        try end.scratch.resize(end.gpa, len);
        defer if (end.scratch.capacity > scratch_kept_bytes) end.scratch.clearAndFree(end.gpa);
        spoken.encode(said, end.scratch.items);
        var rest: []const u8 = end.scratch.items;
        while (rest.len > 0) {
            const piece = rest[0..@min(rest.len, ring.record_bytes_max)];
            const space = end.room(piece.len) orelse return;
            @memcpy(space, piece);
            rest = rest[piece.len..];
            end.commands.commit(if (rest.len == 0) .last else .more);
        }
    }

    /// Puts a command into the ring whose content stays where it is. False: the content cannot be lent.
    fn putLent(end: *ApplicationEnd, said: *const spoken.Spoken, loan: *types.Loan) bool {
        if (end.engine.returned == null or said.command != .body) return false;
        const space = end.room(spoken.sizeLent(said)) orelse return false;
        trace.said(.application_ring, said.ticket, &said.command, end.engine.process);
        loan.next = null;
        spoken.encodeLent(said, loan, space);
        end.commands.commit(.whole);
        return true;
    }

    fn putApart(end: *ApplicationEnd, said: *const spoken.Spoken, len: usize) void {
        const space = end.room(len) orelse return;
        const offset = end.commands_annex.put(spoken.contentOf(said));
        spoken.encodeApart(said, offset, space);
        end.commands.commit(.whole);
        end.commands_annex.follow(end.commands.at);
    }

    /// Shorter content goes through the ring: in the annex it would take a whole unit.
    const apart_min = peregrine.api_limits.annex_unit_bytes / 2;

    const scratch_kept_bytes = peregrine.api_limits.scratch_kept_bytes;

    /// Room for a record, waited for if there is none: there will be some soon, because the engine never
    /// waits for the application. Null: the engine reads no commands any more.
    fn room(end: *ApplicationEnd, len: usize) ?[]align(ring.alignment) u8 {
        while (true) {
            // the engine is trusted to keep its side of the ring well formed
            const space = end.commands.reserve(len) catch unreachable;
            if (space) |free| return free;
            end.publish();
            if (!end.engine.calls.waitForRoom(end.engine, &end.commands)) return null;
        }
    }

    /// Lets the engine go on with a held head, and see all commands.
    pub fn flush(end: *ApplicationEnd) void {
        if (!end.held) return;
        assert(end.commands.at != 0);
        end.held = false;
        if (end.room(spoken.release.len)) |_| end.commands.commit(.whole);
        end.publish();
    }

    fn publish(end: *ApplicationEnd) void {
        end.unseen += 1;
        if (end.commands.publish() or
            (end.unseen >= unseen_max and (end.commands.hasUnreadInPause() catch unreachable)))
        {
            end.wakeEngine();
        }
    }

    const unseen_max = peregrine.api_limits.unseen_commands_max;

    fn wakeEngine(end: *ApplicationEnd) void {
        end.unseen = 0;
        end.engine.calls.wake(end.engine);
    }
};
