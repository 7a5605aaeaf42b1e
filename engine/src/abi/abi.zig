//! The C API: the functions of include/peregrine.h. A user of the package `peregrine` like any other;
//! converts, never decides.
const std = @import("std");
const peregrine = @import("peregrine");
const ApplicationEnd = @import("application_end.zig").ApplicationEnd;
const Channel = @import("channel.zig").Channel;
pub const Host = @import("host.zig").Host;
const errors = @import("errors.zig");
const Interpreter = @import("interpreter.zig").Interpreter;
pub const interpreters = @import("interpreters.zig");
const listeners = @import("listeners.zig");
pub const loop = @import("loop.zig");
pub const mailbox = @import("mailbox.zig");
const options = @import("options.zig");
const platform = @import("platform");
pub const file_lookup = @import("file_lookup.zig");
pub const folders = @import("folders.zig");
pub const opener = @import("opener.zig");
const relay = @import("relay.zig");
pub const routes = @import("routes.zig");
const sized = @import("sized.zig");
const tls = @import("tls.zig");
const Wish = @import("shared.zig").Wish;
pub const spoken = @import("spoken.zig");
pub const types = @import("types.zig");
const fork = peregrine.io.fork;
const Code = types.Code;
const Event = types.Event;

const gpa = platform.gpa;
pub const EngineWorker = peregrine.Worker(platform.Io, Host);

/// What C holds as `peregrine_worker`. Never moves: sessions point to the limits inside.
pub const Handle = struct {
    worker: EngineWorker,
    host: Host,
    /// The way to the worker if that runs on a thread of its own; null: it is called.
    channel: ?*Channel = null,
    /// The application's end of a channel: of that one, or of an interpreter's.
    end: ?*ApplicationEnd = null,
    /// The engine may be in another process; then `worker` and `host` are not there.
    interpreter: ?*Interpreter = null,
    bad_field: usize = 0,
    /// C is handling events and will poll again before it waits: no need to make the descriptor readable for
    /// what it does meanwhile.
    busy: bool = false,
    /// What C's own loop watches, if that waits here: then nobody needs the descriptor.
    host_loop: ?c_int = null,
    /// Too late for a thread: C has polled already.
    polled: bool = false,
    /// What other threads have posted; null: nobody has asked for a mailbox.
    inbox: ?*peregrine.Inbox = null,
    /// What its listeners speak TLS with; references of our own.
    certificates: std.ArrayList(*tls.Certificates) = .empty,
    /// What the last peregrine_tls_info_of points to.
    client_chain: std.ArrayList(types.Text) = .empty,
    /// `fork.count` of the process that the worker belongs to.
    forks: u32,

    /// In a process that was forked from the worker's its descriptors are closed: nothing of it may be
    /// touched any more.
    pub fn isForeign(handle: *const Handle) bool {
        return handle.forks != fork.count();
    }

    /// Whether the engine is somewhere else: in another process, or behind an interpreter's channel.
    pub fn isElsewhere(handle: *const Handle) bool {
        return handle.isForeign() or handle.interpreter != null;
    }

    /// The limits in force.
    fn configOf(handle: *const Handle) *const peregrine.Config {
        return if (handle.interpreter) |interpreter| &interpreter.config else &handle.worker.config;
    }

    fn exchangeOf(handle: *Handle, ticket: types.Ticket) ?*peregrine.Exchange {
        if (handle.isForeign()) return null;
        return handle.worker.exchanges.get(@fromBackingInt(ticket));
    }

    /// Does what a command says; the code for its outcome.
    pub inline fn apply(handle: *Handle, ticket: types.Ticket, command: peregrine.Command) c_int {
        return handle.answer(ticket, command, 0);
    }

    /// The same, and flushes if the flags ask for it.
    inline fn answer(handle: *Handle, ticket: types.Ticket, command: peregrine.Command, flags: u32) c_int {
        if (handle.isForeign()) return Code.gone;
        if (handle.end) |end| {
            @branchHint(.unlikely);
            // A copy of its own: otherwise every command would have to be put together in memory.
            const copy = command;
            return end.answer(ticket, &copy, flags);
        }
        // Deadlines begin with what C does. While it handles events the round has just been; otherwise that
        // may be long ago.
        if (!handle.busy) handle.worker.now = handle.worker.io.now();
        const name: peregrine.Ticket = @fromBackingInt(ticket);
        const exchange = handle.worker.commanded(name, command) orelse return Code.gone;
        const outcome = handle.worker.applyTo(exchange, command) catch |err| {
            handle.bad_field = exchange.lane.session.badField();
            return errors.code(err);
        };
        if (flags & types.RespondFlag.flush != 0 and outcome != .done) {
            if (handle.worker.find(name)) |same| handle.worker.sendNow(same);
            if (handle.worker.find(name)) |same| handle.worker.sendStream(same);
        }
        // C answers a whole batch before it polls again.
        if (handle.worker.hasGrown()) handle.worker.attendMemory();
        // Output that waits for the next poll must not wait for the next event.
        handle.arm();
        return outcomeCode(outcome);
    }

    /// The same for a command whose output leaves now, also on a stream: the caller may be busy for long
    /// before the next poll.
    fn applyNow(handle: *Handle, ticket: types.Ticket, command: peregrine.Command) c_int {
        const code = handle.apply(ticket, command);
        if (code < 0 or handle.end != null) return code;
        const exchange = handle.worker.find(@fromBackingInt(ticket)) orelse return code;
        handle.worker.sendStream(exchange);
        handle.arm();
        return code;
    }

    /// Calls a function that touches the worker, where that may be touched, and waits for it.
    pub fn call(
        handle: *Handle,
        comptime function: anytype,
        arguments: std.meta.ArgsTuple(@TypeOf(function)),
    ) @typeInfo(@TypeOf(function)).@"fn".return_type.? {
        const channel = handle.channel orelse return @call(.auto, function, arguments);
        return channel.call(function, arguments);
    }

    /// Makes the descriptor readable when the worker next has something to do.
    pub fn arm(handle: *Handle) void {
        if (handle.busy or handle.host_loop != null) return;
        // Without descriptors for a timer the host is woken at once: busy, but nothing is late.
        handle.worker.armAlarm() catch handle.worker.io.wake();
    }
};

/// Where the functions of peregrine.h are.
pub const files = .{
    @This(), file_lookup, folders, interpreters, listeners, loop, mailbox, opener, relay, routes, tls,
};

comptime {
    for (files) |file| _ = file;
    _ = @import("stack_probe.zig");
}

fn outcomeCode(outcome: EngineWorker.Outcome) c_int {
    return switch (outcome) {
        .accepted => Code.ok,
        .done => Code.done,
        .blocked => Code.blocked,
    };
}

pub export fn peregrine_version() callconv(.c) [*:0]const u8 {
    return peregrine.version;
}

pub export fn peregrine_percent_decode(text: [*]u8, len: usize) callconv(.c) usize {
    return peregrine.percentDecode(text[0..len], text[0..len]).len;
}

pub export fn peregrine_option_at(index: usize) callconv(.c) ?*const types.Option {
    return if (index < options.table.len) &options.table[index] else null;
}

pub export fn peregrine_config_new() callconv(.c) ?*peregrine.Config {
    const config = gpa.create(peregrine.Config) catch return null;
    config.* = .{};
    return config;
}

pub export fn peregrine_config_free(config: ?*peregrine.Config) callconv(.c) void {
    if (config) |c| gpa.destroy(c);
}

pub export fn peregrine_config_set(
    config: *peregrine.Config,
    name: [*:0]const u8,
    value: i64,
) callconv(.c) c_int {
    config.set(std.mem.span(name), value) catch |err| return errors.code(err);
    return Code.ok;
}

pub export fn peregrine_config_get(
    config: *const peregrine.Config,
    name: [*:0]const u8,
    value: *i64,
) callconv(.c) c_int {
    value.* = config.get(std.mem.span(name)) catch |err| return errors.code(err);
    return Code.ok;
}

pub export fn peregrine_worker_new(config: *const peregrine.Config) callconv(.c) ?*Handle {
    return newHandle(config) catch |err| {
        errors.setErrnoOf(err);
        return null;
    };
}

/// The handle of an engine that is here.
fn newHandle(config: *const peregrine.Config) !*Handle {
    const handle = try gpa.create(Handle);
    errdefer gpa.destroy(handle);
    fork.watch();
    Host.prepareHeap();
    handle.* = .{ .worker = undefined, .host = try .init(gpa), .forks = fork.count() };
    errdefer handle.host.abandon();
    handle.worker = try .init(gpa, config.*, &handle.host, .{});
    return handle;
}

pub export fn peregrine_worker_free(handle: ?*Handle) callconv(.c) void {
    const d = handle orelse return;
    if (d.isForeign()) return;
    mailbox.close(d);
    if (d.interpreter) |interpreter| {
        interpreter.destroy();
        return gpa.destroy(d);
    }
    if (d.channel) |channel| channel.destroy();
    d.channel = null;
    d.end = null;
    d.host.link = null;
    if (d.host.pool) |pool| pool.destroy();
    d.host.pool = null;
    d.host.deinit(&d.worker.pool);
    d.worker.deinit();
    for (d.certificates.items) |certificates| certificates.release();
    d.certificates.deinit(gpa);
    d.client_chain.deinit(gpa);
    gpa.destroy(d);
}

pub export fn peregrine_worker_set(handle: *Handle, name: [*:0]const u8, value: i64) callconv(.c) c_int {
    if (handle.isElsewhere()) return Code.gone;
    return handle.call(setLimit, .{ handle, std.mem.span(name), value });
}

fn setLimit(handle: *Handle, name: []const u8, value: i64) c_int {
    handle.worker.set(name, value) catch |err| return errors.code(err);
    return Code.ok;
}

pub export fn peregrine_worker_get(
    handle: *const Handle,
    name: [*:0]const u8,
    value: *i64,
) callconv(.c) c_int {
    value.* = handle.configOf().get(std.mem.span(name)) catch |err| return errors.code(err);
    return Code.ok;
}

pub export fn peregrine_health_path(handle: *Handle, path: [*:0]const u8) callconv(.c) c_int {
    if (handle.isElsewhere()) return Code.gone;
    return handle.call(setHealthPath, .{ handle, std.mem.span(path) });
}

fn setHealthPath(handle: *Handle, path: []const u8) c_int {
    handle.worker.setHealthPath(path) catch return Code.address;
    return Code.ok;
}

pub export fn peregrine_access_log_open(handle: *Handle, wanted: ?*const sized.Header) callconv(.c) c_int {
    if (handle.isElsewhere()) return Code.gone;
    return handle.call(openAccessLog, .{ handle, wanted });
}

fn openAccessLog(handle: *Handle, wanted: ?*const sized.Header) c_int {
    var fault: peregrine.AccessLogFault = .{};
    var errno: u16 = 0;
    const given = wanted orelse {
        handle.worker.setAccessLog(null, &fault, &errno) catch unreachable; // nothing is opened
        noteWishes(handle);
        return Code.ok;
    };
    const asked = sized.read(types.AccessLog, given);
    const target: peregrine.io.LogTarget =
        if (asked.path) |path| .{ .path = std.mem.span(path) } else .{ .fd = asked.fd };
    handle.worker.setAccessLog(.{
        .target = if (asked.path == null and asked.fd < 0) .host else .{ .file = target },
        .format = std.mem.span(asked.format orelse "clf"),
        .bytes_max = handle.worker.config.access_log_bytes,
    }, &fault, &errno) catch |err| return switch (err) {
        error.OutOfMemory => Code.memory,
        error.BadFormat => Code.format,
        error.CannotStartThread => blk: {
            errors.setErrno(.AGAIN);
            break :blk Code.system;
        },
        error.CannotOpen => blk: {
            errors.setErrno(@fromBackingInt(errno));
            break :blk Code.system;
        },
    };
    noteWishes(handle);
    return Code.ok;
}

fn noteWishes(handle: *Handle) void {
    if (handle.host.pool) |pool| pool.noteWishes();
}

fn useCounters(handle: *Handle, counters: ?*peregrine.Counters) void {
    handle.worker.useCounters(counters);
    noteWishes(handle);
}

pub export fn peregrine_access_log_reopen(handle: *Handle) callconv(.c) void {
    if (handle.isElsewhere()) return;
    handle.call(EngineWorker.reopenAccessLog, .{&handle.worker});
}

pub export fn peregrine_access_log_fault(
    format: [*:0]const u8,
    at: *usize,
    len: *usize,
) callconv(.c) ?[*:0]const u8 {
    var fault: peregrine.AccessLogFault = .{};
    var compiled = peregrine.AccessLogFormat.compile(gpa, std.mem.span(format), &fault) catch |err| {
        if (err == error.OutOfMemory) fault.reason = "cannot be read: out of memory";
        at.* = fault.at;
        len.* = fault.atom.len;
        return fault.reason;
    };
    compiled.deinit();
    return null;
}

pub export fn peregrine_listen(
    handle: *Handle,
    address: [*:0]const u8,
    port: u16,
    backlog: c_int,
    flags: u32,
) callconv(.c) c_int {
    if (handle.isElsewhere()) return Code.gone;
    const text = std.mem.span(address);
    const parsed = if (text.len > 0 and text[0] == '/')
        peregrine.io.Address.unixPath(text)
    else
        peregrine.io.Address.parse(text, port);
    const where = parsed catch return Code.address;
    return handle.call(listenAt, .{ handle, where, peregrine.io.ListenOptions{
        .backlog = std.math.cast(u31, backlog) orelse return Code.range,
        .reuse_port = flags & types.ListenFlag.reuse_port != 0,
        .v6_only = flags & types.ListenFlag.v6_only != 0,
    } });
}

fn listenAt(handle: *Handle, where: peregrine.io.Address, how: peregrine.io.ListenOptions) c_int {
    const listener = handle.worker.listen(where, how) catch |err| {
        errors.setErrnoOf(err);
        return Code.system;
    };
    return @intCast(listener);
}

pub export fn peregrine_listen_fd(handle: *Handle, fd: c_int) callconv(.c) c_int {
    if (handle.isElsewhere()) return Code.gone;
    return handle.call(adoptListener, .{ handle, fd });
}

fn adoptListener(handle: *Handle, fd: c_int) c_int {
    const listener = handle.worker.adoptListener(fd) catch |err| {
        errors.setErrnoOf(err);
        return Code.system;
    };
    return @intCast(listener);
}

pub export fn peregrine_listener_address(
    handle: *Handle,
    listener: c_int,
    text: [*]u8,
    capacity: usize,
    port: *u16,
) callconv(.c) c_int {
    if (handle.isElsewhere()) return Code.gone;
    const number = std.math.cast(u32, listener) orelse return Code.range;
    const address = handle.call(addressOf, .{ handle, number }) orelse return Code.range;
    port.* = address.port() orelse 0;
    var buffer: [peregrine.io.Address.text_bytes_max]u8 = undefined;
    const host = address.hostText(&buffer);
    if (host.len >= capacity) return Code.range;
    @memcpy(text[0..host.len], host);
    text[host.len] = 0;
    return @intCast(host.len);
}

fn addressOf(handle: *Handle, listener: u32) ?peregrine.io.Address {
    if (listener >= handle.worker.listeners.items.len) return null;
    return handle.worker.listenerAddress(listener);
}

pub export fn peregrine_forks() callconv(.c) u32 {
    return fork.count();
}

pub export fn peregrine_hide_from_forks(fd: c_int, hidden: c_int) callconv(.c) void {
    if (fd < 0) return;
    if (hidden == 0) return fork.forget(fd);
    fork.watch();
    fork.shield(fd);
}

pub export fn peregrine_fd(handle: *Handle) callconv(.c) c_int {
    if (handle.isForeign()) return Code.gone;
    if (handle.interpreter) |interpreter| return interpreter.wakeup.all;
    if (handle.channel) |channel| return channel.wakeup.fd();
    return handle.worker.io.fd();
}

pub export fn peregrine_wake(handle: *Handle) callconv(.c) void {
    if (handle.isForeign()) return;
    if (handle.interpreter) |interpreter| return interpreter.raise();
    if (handle.channel) |channel| channel.wakeup.raise() else handle.worker.io.wake();
}

pub export fn peregrine_drain(handle: *Handle) callconv(.c) void {
    if (handle.isForeign()) return;
    if (handle.interpreter) |interpreter| return interpreter.wish(Wish.leave | Wish.end_websockets);
    handle.call(drain, .{&handle.worker});
}

pub export fn peregrine_retire(handle: *Handle) callconv(.c) void {
    if (handle.isForeign()) return;
    if (handle.interpreter) |interpreter| return interpreter.wish(Wish.leave);
    handle.call(retire, .{&handle.worker});
}

fn retire(worker: *EngineWorker) void {
    worker.retire();
    worker.io.wake();
}

pub export fn peregrine_pause_accepting(handle: *Handle, paused: c_int) callconv(.c) void {
    if (handle.isElsewhere()) return;
    handle.call(EngineWorker.pauseAccepting, .{ &handle.worker, paused != 0 });
}

pub export fn peregrine_end_websockets(handle: *Handle) callconv(.c) void {
    if (handle.isForeign()) return;
    if (handle.interpreter) |interpreter| return interpreter.wish(Wish.end_websockets);
    handle.call(endWebSockets, .{&handle.worker});
}

fn endWebSockets(worker: *EngineWorker) void {
    worker.endWebSockets();
    worker.io.wake();
}

fn drain(worker: *EngineWorker) void {
    worker.drain();
    // The next round finds out whether anything is left.
    worker.io.wake();
}

pub export fn peregrine_cut(handle: *Handle) callconv(.c) void {
    if (handle.isForeign()) return;
    if (handle.interpreter) |interpreter| return interpreter.cut();
    handle.call(cut, .{&handle.worker});
}

fn cut(worker: *EngineWorker) void {
    worker.cut();
    worker.io.wake();
}

pub export fn peregrine_worker_stats(handle: *Handle, out: *sized.Header) callconv(.c) void {
    if (handle.interpreter) |interpreter| {
        const known: u32 = if (handle.isForeign()) 0 else @intCast(interpreter.end.ledger.count);
        return sized.write(types.Stats, out, .{ .size = out.size, .exchanges = known, .ledger = known });
    }
    const now = if (handle.isForeign()) statisticsOf(handle) else handle.call(statisticsOf, .{handle});
    const stats, const interpreters_now, const waiting_now = now;
    sized.write(types.Stats, out, .{
        .size = out.size,
        .connections = stats.connections,
        .exchanges = stats.exchanges,
        .connections_max = stats.connections_max,
        .accepted = stats.accepted,
        .rejected = stats.rejected,
        .requests = stats.requests,
        .refused = stats.refused,
        .memory_bytes = stats.memory_bytes,
        .allocations = stats.allocations,
        .shed = stats.shed,
        .memory_max = stats.memory_max,
        .ledger = if (handle.channel) |channel| channel.application.ledger.count else 0,
        .interpreters = interpreters_now,
        .waiting = waiting_now,
    });
}

/// Those of the worker, how many interpreters there are, and how many requests wait for one.
fn statisticsOf(handle: *Handle) struct { peregrine.Stats, u32, u32 } {
    const pool = handle.host.pool orelse return .{ handle.worker.statistics(), 0, 0 };
    return .{ handle.worker.statistics(), pool.count, pool.waiting };
}

pub export fn peregrine_counter_at(index: usize) callconv(.c) ?*const types.Counter {
    return if (index < options.counters.len) &options.counters[index] else null;
}

pub export fn peregrine_use_counters(handle: *Handle, words: ?[*]u64, count: usize) callconv(.c) c_int {
    if (handle.isElsewhere()) return Code.gone;
    const counters: ?*peregrine.Counters = if (words) |memory| @ptrCast(memory) else null;
    if (counters != null and count < peregrine.Counters.words) return Code.range;
    handle.call(useCounters, .{ handle, counters });
    // The first look around is over; the next one has its deadline.
    peregrine_wake(handle);
    return Code.ok;
}

pub export fn peregrine_share_sockets(
    handle: *Handle,
    table: [*]u64,
    count: usize,
    number: usize,
) callconv(.c) c_int {
    if (handle.isElsewhere()) return Code.gone;
    if (number == 0 or number >= count) return Code.range;
    handle.call(EngineWorker.shareSockets, .{ &handle.worker, table[0..count], number });
    return Code.ok;
}

pub export fn peregrine_take(handle: *Handle, ticket: types.Ticket) callconv(.c) c_int {
    if (handle.isForeign()) return Code.gone;
    if (handle.interpreter) |interpreter| {
        const ledger = &interpreter.end.ledger;
        if (!ledger.begin(ticket)) return Code.gone;
        const is_asked = interpreter.shared.words.counts.load(.monotonic) != 0;
        if (is_asked) ledger.slots.begun(ticket, peregrine.io.micros());
        return Code.ok;
    }
    const counts = handle.worker.counting.wants_taken;
    if (handle.channel) |channel| {
        if (!channel.application.ledger.begin(ticket)) return Code.gone;
        if (counts) channel.slots.begun(ticket, handle.worker.io.micros());
    } else if (counts) {
        if (handle.exchangeOf(ticket)) |exchange| exchange.taken_us = handle.worker.io.micros();
    }
    return Code.ok;
}

pub export fn peregrine_give_up(handle: *Handle, ticket: types.Ticket) callconv(.c) c_int {
    if (handle.isForeign()) return Code.gone;
    if (handle.interpreter) |interpreter| {
        interpreter.giveUp(ticket);
        return Code.ok;
    }
    const channel = handle.channel orelse return Code.out_of_order;
    if (channel.thread == null) return Code.out_of_order;
    channel.giveUp(ticket);
    return Code.ok;
}

pub export fn peregrine_has_left(handle: *Handle, ticket: types.Ticket) callconv(.c) c_int {
    if (handle.isForeign()) return 1;
    if (handle.interpreter) |interpreter| return @intFromBool(interpreter.shared.slots.hasLeft(ticket));
    return handle.call(hasLeft, .{ handle, ticket });
}

fn hasLeft(handle: *Handle, ticket: types.Ticket) c_int {
    const exchange = handle.worker.find(@fromBackingInt(ticket)) orelse return 1;
    return @intFromBool(handle.worker.hasPeerLeft(exchange));
}

pub export fn peregrine_use_thread(handle: *Handle) callconv(.c) c_int {
    if (handle.isElsewhere()) return Code.gone;
    if (handle.channel != null) return Code.ok;
    if (handle.polled) return Code.out_of_order;
    handle.channel = Channel.create(gpa, handle) catch |err| {
        errors.setErrnoOf(err);
        return Code.system;
    };
    handle.host.link = &handle.channel.?.engine;
    handle.end = &handle.channel.?.application;
    return Code.ok;
}

/// The same behind a channel.
fn pollChannel(channel: *Channel, timeout_ms: c_int, events: *[*]const Event) c_int {
    channel.start() catch {
        errors.setErrno(.AGAIN);
        return Code.system;
    };
    const batch = channel.application.poll(timeout_ms) catch |err| {
        errors.setErrnoOf(err);
        return Code.system;
    };
    events.* = batch.ptr;
    return @intCast(batch.len);
}

pub export fn peregrine_poll(handle: *Handle, timeout_ms: c_int, events: *[*]const Event) callconv(.c) c_int {
    if (handle.isForeign()) return Code.gone;
    mailbox.deliver(handle);
    if (handle.interpreter) |interpreter| {
        const batch = interpreter.poll(timeout_ms) catch |err| {
            errors.setErrnoOf(err);
            return Code.system;
        };
        events.* = batch.ptr;
        return @intCast(batch.len);
    }
    handle.polled = true;
    if (handle.channel) |channel| return pollChannel(channel, timeout_ms, events);
    handle.host.release(&handle.worker.pool);
    handle.worker.poll(timeout_ms) catch |err| {
        errors.setErrnoOf(err);
        return Code.system;
    };
    const batch = handle.host.take();
    handle.busy = batch.len > 0;
    handle.arm();
    events.* = batch.ptr;
    return @intCast(batch.len);
}

pub export fn peregrine_next_shed(handle: *Handle, event: *Event) callconv(.c) c_int {
    if (handle.isForeign()) return 0;
    const next = if (handle.end) |end| end.nextShed() else handle.host.nextShed();
    event.* = next orelse return 0;
    return 1;
}

pub export fn peregrine_keep_bytes(
    handle: *Handle,
    event: *const Event,
    capacity: *usize,
) callconv(.c) ?[*]u8 {
    if (handle.isElsewhere() or handle.channel != null) return null;
    // What C frees has to be of its heap.
    if (gpa.vtable != std.heap.c_allocator.vtable) return null;
    const memory = handle.host.surrender(&handle.worker.pool, event) orelse return null;
    capacity.* = memory.len;
    return memory.ptr;
}

pub export fn peregrine_set_user(
    handle: *Handle,
    ticket: types.Ticket,
    user: ?*anyopaque,
) callconv(.c) c_int {
    if (handle.end) |end| {
        if (handle.isForeign()) return Code.gone;
        const entry = end.ledger.get(ticket) orelse return Code.gone;
        entry.user = user;
        return Code.ok;
    }
    const exchange = handle.exchangeOf(ticket) orelse return Code.gone;
    exchange.user = user;
    return Code.ok;
}

pub export fn peregrine_user(handle: *Handle, ticket: types.Ticket) callconv(.c) ?*anyopaque {
    if (handle.end) |end| {
        if (handle.isForeign()) return null;
        return if (end.ledger.get(ticket)) |entry| entry.user else null;
    }
    const exchange = handle.exchangeOf(ticket) orelse return null;
    return exchange.user;
}

pub export fn peregrine_respond(
    handle: *Handle,
    ticket: types.Ticket,
    given: *const sized.Header,
) callconv(.c) c_int {
    const response = sized.read(types.Response, given);
    return handle.answer(ticket, .{ .start = .{
        .status = response.status,
        .fields = fieldsOf(response.fields, response.field_count),
        .body = bytesOf(response.body, response.body_len),
        .end = response.flags & types.RespondFlag.end != 0,
        .close = response.flags & types.RespondFlag.close != 0,
        .says_keep_alive = response.flags & types.RespondFlag.keep_alive != 0,
        .hold = response.flags & types.RespondFlag.hold != 0,
    } }, response.flags);
}

pub export fn peregrine_write(
    handle: *Handle,
    ticket: types.Ticket,
    bytes: ?[*]const u8,
    len: usize,
    flags: u32,
) callconv(.c) c_int {
    return handle.answer(ticket, bodyOf(bytes, len, flags, null), flags);
}

pub export fn peregrine_lend(
    handle: *Handle,
    ticket: types.Ticket,
    bytes: ?[*]const u8,
    len: usize,
    flags: u32,
    loan: ?*types.Loan,
) callconv(.c) c_int {
    return handle.answer(ticket, bodyOf(bytes, len, flags, loan), flags);
}

pub export fn peregrine_returned(handle: *Handle) callconv(.c) ?*types.Loan {
    if (handle.isForeign()) return null;
    if (handle.end) |end| return end.takeReturned();
    return handle.worker.pool.loans.take();
}

pub export fn peregrine_write_file(
    handle: *Handle,
    ticket: types.Ticket,
    fd: c_int,
    offset: u64,
    length: i64,
) callconv(.c) c_int {
    return handle.apply(ticket, .{ .file = .{
        .fd = fd,
        .offset = offset,
        .length = if (length < 0) null else @intCast(length),
    } });
}

pub export fn peregrine_write_slow_file(
    handle: *Handle,
    ticket: types.Ticket,
    fd: c_int,
    offset: u64,
    length: u64,
) callconv(.c) c_int {
    return handle.apply(ticket, .{ .file = .{
        .fd = fd,
        .offset = offset,
        .length = length,
        .is_slow = true,
    } });
}

pub export fn peregrine_finish(
    handle: *Handle,
    ticket: types.Ticket,
    trailers: ?[*]const peregrine.Field,
    count: usize,
) callconv(.c) c_int {
    return handle.apply(ticket, .{ .end = .{ .trailers = fieldsOf(trailers, count) } });
}

pub export fn peregrine_repeat(
    handle: *Handle,
    ticket: types.Ticket,
    interval_ms: u32,
    bytes: ?[*]const u8,
    len: usize,
) callconv(.c) c_int {
    return handle.apply(ticket, .{ .repeat = .{ .interval_ms = interval_ms, .bytes = bytesOf(bytes, len) } });
}

pub export fn peregrine_inform(
    handle: *Handle,
    ticket: types.Ticket,
    status: u16,
    fields: ?[*]const peregrine.Field,
    count: usize,
) callconv(.c) c_int {
    return handle.applyNow(ticket, .{ .inform = .{ .status = status, .fields = fieldsOf(fields, count) } });
}

pub export fn peregrine_read(handle: *Handle, ticket: types.Ticket) callconv(.c) c_int {
    return handle.apply(ticket, .read);
}

pub export fn peregrine_flush(handle: *Handle, ticket: types.Ticket) callconv(.c) c_int {
    return handle.applyNow(ticket, .flush);
}

pub export fn peregrine_abort(handle: *Handle, ticket: types.Ticket) callconv(.c) c_int {
    return handle.apply(ticket, .abort);
}

pub export fn peregrine_buffered(handle: *Handle, ticket: types.Ticket) callconv(.c) usize {
    if (handle.end) |end| {
        if (handle.isForeign()) return 0;
        const ledger = &end.ledger;
        return if (ledger.get(ticket)) |entry| ledger.buffered(entry) else 0;
    }
    const exchange = handle.exchangeOf(ticket) orelse return 0;
    return handle.worker.buffered(exchange);
}

pub export fn peregrine_accept_websocket(
    handle: *Handle,
    ticket: types.Ticket,
    subprotocol: ?[*]const u8,
    subprotocol_len: usize,
    fields: ?[*]const peregrine.Field,
    count: usize,
) callconv(.c) c_int {
    return handle.apply(ticket, .{ .accept = .{
        .subprotocol = if (subprotocol) |name| name[0..subprotocol_len] else null,
        .fields = fieldsOf(fields, count),
    } });
}

pub export fn peregrine_send_message(
    handle: *Handle,
    ticket: types.Ticket,
    bytes: ?[*]const u8,
    len: usize,
    flags: u32,
) callconv(.c) c_int {
    return handle.answer(ticket, messageOf(bytes, len, flags, null), flags);
}

pub export fn peregrine_lend_message(
    handle: *Handle,
    ticket: types.Ticket,
    bytes: ?[*]const u8,
    len: usize,
    flags: u32,
    loan: ?*types.Loan,
) callconv(.c) c_int {
    return handle.answer(ticket, messageOf(bytes, len, flags, loan), flags);
}

pub export fn peregrine_close_websocket(
    handle: *Handle,
    ticket: types.Ticket,
    code: u16,
    reason: ?[*]const u8,
    reason_len: usize,
) callconv(.c) c_int {
    return handle.apply(ticket, .{ .close = .{ .code = code, .reason = bytesOf(reason, reason_len) } });
}

pub export fn peregrine_keepalive(
    handle: *Handle,
    ticket: types.Ticket,
    interval_ms: u32,
    timeout_ms: u32,
) callconv(.c) c_int {
    return handle.apply(ticket, .{ .keepalive = .{ .interval_ms = interval_ms, .timeout_ms = timeout_ms } });
}

pub export fn peregrine_pause(handle: *Handle, ticket: types.Ticket, flow: c_int) callconv(.c) c_int {
    return handle.apply(
        ticket,
        .{ .flow = std.enums.fromInt(peregrine.Incoming.Flow, flow) orelse return Code.range },
    );
}

pub export fn peregrine_idle_limit(handle: *Handle, ticket: types.Ticket, idle_ms: u32) callconv(.c) c_int {
    return handle.apply(ticket, .{ .idle_limit = idle_ms });
}

pub export fn peregrine_keep_head(handle: *Handle, ticket: types.Ticket, keep: c_int) callconv(.c) c_int {
    return handle.apply(ticket, .{ .keep_head = keep != 0 });
}

inline fn bodyOf(bytes: ?[*]const u8, len: usize, flags: u32, loan: ?*types.Loan) peregrine.Command {
    return .{ .body = .{
        .bytes = bytesOf(bytes, len),
        .loan = loan,
        .last = flags & types.RespondFlag.end != 0,
        .close = flags & types.RespondFlag.close != 0,
    } };
}

inline fn messageOf(bytes: ?[*]const u8, len: usize, flags: u32, loan: ?*types.Loan) peregrine.Command {
    return .{ .message = .{
        .kind = if (flags & types.EventFlag.text != 0) .text else .binary,
        .bytes = bytesOf(bytes, len),
        .loan = loan,
    } };
}

fn bytesOf(bytes: ?[*]const u8, len: usize) []const u8 {
    return if (bytes) |b| b[0..len] else "";
}

fn fieldsOf(fields: ?[*]const peregrine.Field, count: usize) []const peregrine.Field {
    return if (fields) |f| f[0..count] else &.{};
}

pub export fn peregrine_bad_field(handle: *const Handle) callconv(.c) usize {
    return if (handle.end) |end| end.ledger.bad_field else handle.bad_field;
}

pub export fn peregrine_error_text(code: c_int) callconv(.c) [*:0]const u8 {
    return errors.text(code);
}

pub export fn peregrine_reason_text(reason: u32) callconv(.c) [*:0]const u8 {
    return errors.reasonText(reason);
}
