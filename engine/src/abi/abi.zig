//! The C API: the functions of include/peregrine.h. They convert C's arguments for the package `peregrine`,
//! like any other user of it, and decide nothing.
const std = @import("std");
const peregrine = @import("peregrine");
const Engine = @import("engine.zig").Engine;
const handle_file = @import("handle.zig");
pub const Host = @import("host.zig").Host;
const errors = @import("errors.zig");
pub const interpreters = @import("interpreters.zig");
const listeners = @import("listeners.zig");
pub const loop = @import("loop.zig");
pub const mailbox = @import("mailbox.zig");
const options = @import("options.zig");
const platform = @import("platform");
const RingPair = @import("ring_pair.zig").RingPair;
pub const file_lookup = @import("file_lookup.zig");
pub const hub = @import("hub.zig");
pub const node = @import("node.zig");
pub const opener = @import("opener.zig");
const relay = @import("relay.zig");
pub const serving = @import("serving.zig");
const sized = @import("sized.zig");
const tls = @import("tls.zig");
const tracing = @import("tracing.zig");
const Wish = @import("shared.zig").Wish;
pub const spoken = @import("spoken.zig");
pub const types = @import("types.zig");
const fork = peregrine.io.fork;
const Code = types.Code;
const Event = types.Event;

const gpa = platform.gpa;
pub const EngineWorker = @import("engine_worker.zig").EngineWorker;
pub const Handle = handle_file.Handle;

/// The files with the functions of peregrine.h.
pub const files = .{
    @This(), file_lookup, hub,     interpreters, listeners, loop, mailbox, node, opener, relay,
    serving, tls,         tracing,
};

comptime {
    for (files) |file| _ = file;
    _ = @import("stack_probe.zig");
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

/// Makes the handle of an engine that runs on the caller's thread.
fn newHandle(config: *const peregrine.Config) !*Handle {
    fork.watch();
    const engine: *Engine = try .create(config);
    errdefer engine.destroy();
    const here = try gpa.create(handle_file.Here);
    errdefer gpa.destroy(here);
    here.* = .{ .engine = engine };
    return .create(.{ .here = here });
}

pub export fn peregrine_worker_free(handle: ?*Handle) callconv(.c) void {
    const given = handle orelse return;
    if (given.place() == .gone) return;
    mailbox.close(given);
    given.destroy();
}

pub export fn peregrine_worker_set(handle: *Handle, name: [*:0]const u8, value: i64) callconv(.c) c_int {
    const engine = handle.ownEngine() orelse return Code.gone;
    return handle.call(setLimit, .{ engine, std.mem.span(name), value });
}

fn setLimit(engine: *Engine, name: []const u8, value: i64) c_int {
    engine.worker.set(name, value) catch |err| return errors.code(err);
    return Code.ok;
}

pub export fn peregrine_worker_get(
    handle: *const Handle,
    name: [*:0]const u8,
    value: *i64,
) callconv(.c) c_int {
    value.* = handle.config().get(std.mem.span(name)) catch |err| return errors.code(err);
    return Code.ok;
}

pub export fn peregrine_health_path(handle: *Handle, path: [*:0]const u8) callconv(.c) c_int {
    const engine = handle.ownEngine() orelse return Code.gone;
    return handle.call(setHealthPath, .{ engine, std.mem.span(path) });
}

fn setHealthPath(engine: *Engine, path: []const u8) c_int {
    engine.worker.setHealthPath(path) catch return Code.address;
    return Code.ok;
}

pub export fn peregrine_access_log_open(handle: *Handle, wanted: ?*const sized.Header) callconv(.c) c_int {
    const engine = handle.ownEngine() orelse return Code.gone;
    return handle.call(openAccessLog, .{ engine, wanted });
}

fn openAccessLog(engine: *Engine, wanted: ?*const sized.Header) c_int {
    var fault: peregrine.AccessLogFault = .{};
    var errno: u16 = 0;
    const given = wanted orelse {
        engine.worker.setAccessLog(null, &fault, &errno) catch unreachable; // nothing is opened
        noteWishes(engine);
        return Code.ok;
    };
    const asked = sized.read(types.AccessLog, given);
    const target: peregrine.io.LogTarget =
        if (asked.path) |path| .{ .path = std.mem.span(path) } else .{ .fd = asked.fd };
    engine.worker.setAccessLog(.{
        .target = if (asked.path == null and asked.fd < 0) .host else .{ .file = target },
        .format = std.mem.span(asked.format orelse "clf"),
        .bytes_max = engine.worker.config.access_log_bytes,
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
    noteWishes(engine);
    return Code.ok;
}

fn noteWishes(engine: *Engine) void {
    if (engine.pool) |pool| pool.noteWishes();
}

fn useCounters(engine: *Engine, counters: ?*peregrine.Counters) void {
    engine.worker.useCounters(counters);
    noteWishes(engine);
}

pub export fn peregrine_access_log_reopen(handle: *Handle) callconv(.c) void {
    const engine = handle.ownEngine() orelse return;
    handle.call(EngineWorker.reopenAccessLog, .{&engine.worker});
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
    const engine = handle.ownEngine() orelse return Code.gone;
    const text = std.mem.span(address);
    const parsed = if (text.len > 0 and text[0] == '/')
        peregrine.io.Address.unixPath(text)
    else
        peregrine.io.Address.parse(text, port);
    const where = parsed catch return Code.address;
    return handle.call(listenAt, .{ &engine.worker, where, peregrine.io.ListenOptions{
        .backlog = std.math.cast(u31, backlog) orelse return Code.range,
        .reuse_port = flags & types.ListenFlag.reuse_port != 0,
        .v6_only = flags & types.ListenFlag.v6_only != 0,
    } });
}

fn listenAt(worker: *EngineWorker, where: peregrine.io.Address, how: peregrine.io.ListenOptions) c_int {
    const listener = worker.listen(where, how) catch |err| {
        errors.setErrnoOf(err);
        return Code.system;
    };
    return @intCast(listener);
}

pub export fn peregrine_listen_fd(handle: *Handle, fd: c_int) callconv(.c) c_int {
    const engine = handle.ownEngine() orelse return Code.gone;
    return handle.call(adoptListener, .{ &engine.worker, fd });
}

fn adoptListener(worker: *EngineWorker, fd: c_int) c_int {
    const listener = worker.adoptListener(fd) catch |err| {
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
    const engine = handle.ownEngine() orelse return Code.gone;
    const number = std.math.cast(u32, listener) orelse return Code.range;
    const address = handle.call(addressOf, .{ &engine.worker, number }) orelse return Code.range;
    port.* = address.port() orelse 0;
    var buffer: [peregrine.io.Address.text_bytes_max]u8 = undefined;
    const host = address.hostText(&buffer);
    if (host.len >= capacity) return Code.range;
    @memcpy(text[0..host.len], host);
    text[host.len] = 0;
    return @intCast(host.len);
}

fn addressOf(worker: *EngineWorker, listener: u32) ?peregrine.io.Address {
    if (listener >= worker.listeners.items.len) return null;
    return worker.listenerAddress(listener);
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
    return switch (handle.place()) {
        .here => |here| here.engine.worker.io.fd(),
        .thread => |pair| pair.wakeup.fd(),
        .joined => |interpreter| interpreter.wakeup.fd(),
        .gone => Code.gone,
    };
}

pub export fn peregrine_wake(handle: *Handle) callconv(.c) void {
    handle.wake();
}

pub export fn peregrine_drain(handle: *Handle) callconv(.c) void {
    switch (handle.place()) {
        .here => |here| drain(&here.engine.worker),
        .thread => |pair| pair.call(drain, .{&pair.local.worker}),
        .joined => |interpreter| interpreter.wish(Wish.leave | Wish.end_websockets),
        .gone => {},
    }
}

pub export fn peregrine_retire(handle: *Handle) callconv(.c) void {
    switch (handle.place()) {
        .here => |here| retire(&here.engine.worker),
        .thread => |pair| pair.call(retire, .{&pair.local.worker}),
        .joined => |interpreter| interpreter.wish(Wish.leave),
        .gone => {},
    }
}

fn retire(worker: *EngineWorker) void {
    worker.retire();
    worker.io.wake();
}

pub export fn peregrine_pause_accepting(handle: *Handle, paused: c_int) callconv(.c) void {
    const engine = handle.ownEngine() orelse return;
    handle.call(EngineWorker.pauseAccepting, .{ &engine.worker, paused != 0 });
}

pub export fn peregrine_end_websockets(handle: *Handle) callconv(.c) void {
    switch (handle.place()) {
        .here => |here| endWebSockets(&here.engine.worker),
        .thread => |pair| pair.call(endWebSockets, .{&pair.local.worker}),
        .joined => |interpreter| interpreter.wish(Wish.end_websockets),
        .gone => {},
    }
}

fn endWebSockets(worker: *EngineWorker) void {
    worker.endWebSockets();
    worker.io.wake();
}

fn drain(worker: *EngineWorker) void {
    worker.drain();
    // The next round of the worker finds out whether any connection is left.
    worker.io.wake();
}

pub export fn peregrine_cut(handle: *Handle) callconv(.c) void {
    switch (handle.place()) {
        .here => |here| cut(&here.engine.worker),
        .thread => |pair| pair.call(cut, .{&pair.local.worker}),
        .joined => |interpreter| interpreter.cut(),
        .gone => {},
    }
}

fn cut(worker: *EngineWorker) void {
    worker.cut();
    worker.io.wake();
}

pub export fn peregrine_worker_stats(handle: *Handle, out: *sized.Header) callconv(.c) void {
    sized.write(types.Stats, out, statisticsOf(handle, out.size));
}

/// In a forked process the statistics are those of the moment of the fork.
fn statisticsOf(handle: *Handle, size: u32) types.Stats {
    const is_gone = handle.place() == .gone;
    switch (handle.home) {
        .here => |here| return engineStatistics(here.engine, size),
        .thread => |pair| {
            var stats = if (is_gone)
                engineStatistics(pair.local, size)
            else
                pair.call(engineStatistics, .{ pair.local, size });
            stats.ledger = pair.application.ledger.count;
            return stats;
        },
        .joined => |interpreter| {
            const known: u32 = if (is_gone) 0 else @intCast(interpreter.end.ledger.count);
            return .{ .size = size, .exchanges = known, .ledger = known };
        },
    }
}

fn engineStatistics(engine: *Engine, size: u32) types.Stats {
    const stats = engine.worker.statistics();
    const pool = engine.pool;
    return .{
        .size = size,
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
        .ledger = 0,
        .interpreters = if (pool) |several| several.count() else 0,
        .waiting = if (pool) |several| several.waiting() else 0,
    };
}

pub export fn peregrine_counter_at(index: usize) callconv(.c) ?*const types.Counter {
    return if (index < options.counters.len) &options.counters[index] else null;
}

pub export fn peregrine_use_counters(handle: *Handle, words: ?[*]u64, count: usize) callconv(.c) c_int {
    const engine = handle.ownEngine() orelse return Code.gone;
    const counters: ?*peregrine.Counters = if (words) |memory| @ptrCast(memory) else null;
    if (counters != null and count < peregrine.Counters.words) return Code.range;
    handle.call(useCounters, .{ engine, counters });
    // The first gauges are published. The wake lets the worker set the deadline of the next ones.
    peregrine_wake(handle);
    return Code.ok;
}

pub export fn peregrine_share_sockets(
    handle: *Handle,
    table: [*]u64,
    count: usize,
    number: usize,
) callconv(.c) c_int {
    const engine = handle.ownEngine() orelse return Code.gone;
    if (number == 0 or number >= count) return Code.range;
    handle.call(EngineWorker.shareSockets, .{ &engine.worker, table[0..count], number });
    return Code.ok;
}

pub export fn peregrine_take(handle: *Handle, ticket: types.Ticket) callconv(.c) c_int {
    switch (handle.place()) {
        .here => |here| {
            const worker = &here.engine.worker;
            if (!worker.counting.wants_taken) return Code.ok;
            if (here.engine.exchangeOf(ticket)) |exchange| exchange.noteTaken(worker.io.micros());
        },
        .thread => |pair| {
            const worker = &pair.local.worker;
            if (!pair.application.ledger.begin(ticket)) return Code.gone;
            if (worker.counting.wants_taken) pair.slots.begun(ticket, worker.io.micros());
        },
        .joined => |interpreter| {
            const ledger = &interpreter.end.ledger;
            if (!ledger.begin(ticket)) return Code.gone;
            const is_asked = interpreter.shared.words.counts.load(.monotonic) != 0;
            if (is_asked) ledger.slots.begun(ticket, peregrine.io.micros());
        },
        .gone => return Code.gone,
    }
    return Code.ok;
}

pub export fn peregrine_give_up(handle: *Handle, ticket: types.Ticket) callconv(.c) c_int {
    switch (handle.place()) {
        .here => return Code.out_of_order,
        .thread => |pair| {
            if (pair.thread == null) return Code.out_of_order;
            pair.giveUp(ticket);
        },
        .joined => |interpreter| interpreter.giveUp(ticket),
        .gone => return Code.gone,
    }
    return Code.ok;
}

pub export fn peregrine_has_left(handle: *Handle, ticket: types.Ticket) callconv(.c) c_int {
    return switch (handle.place()) {
        .here => |here| hasLeft(here.engine, ticket),
        .thread => |pair| pair.call(hasLeft, .{ pair.local, ticket }),
        .joined => |interpreter| @intFromBool(interpreter.shared.slots.hasLeft(ticket)),
        .gone => 1,
    };
}

fn hasLeft(engine: *Engine, ticket: types.Ticket) c_int {
    const exchange = engine.worker.find(@fromBackingInt(ticket)) orelse return 1;
    return @intFromBool(engine.worker.hasPeerLeft(exchange));
}

pub export fn peregrine_use_thread(handle: *Handle) callconv(.c) c_int {
    return handle.useThread();
}

pub export fn peregrine_poll(handle: *Handle, timeout_ms: c_int, events: *[*]const Event) callconv(.c) c_int {
    const wait_ms = if (mailbox.deliver(handle)) 0 else timeout_ms;
    const batch = switch (handle.place()) {
        .here => |here| pollHere(here, wait_ms),
        .thread => |pair| pollPair(pair, wait_ms, handle.inbox),
        .joined => |interpreter| interpreter.poll(wait_ms, handle.inbox),
        .gone => return Code.gone,
    } catch |err| {
        errors.setErrnoOf(err);
        return Code.system;
    };
    mailbox.announce(handle);
    events.* = batch.ptr;
    return @intCast(batch.len);
}

inline fn pollHere(here: *handle_file.Here, timeout_ms: c_int) ![]const Event {
    const engine = here.engine;
    engine.polled = true;
    engine.host.release(&engine.worker.pool);
    try engine.worker.poll(timeout_ms);
    const batch = engine.host.take();
    here.busy = batch.len > 0;
    here.arm();
    return batch;
}

fn pollPair(pair: *RingPair, timeout_ms: c_int, inbox: ?*const peregrine.Inbox) ![]const Event {
    pair.local.polled = true;
    try pair.start();
    return pair.application.poll(timeout_ms, inbox);
}

pub export fn peregrine_next_shed(handle: *Handle, event: *Event) callconv(.c) c_int {
    const next = switch (handle.place()) {
        .here => |here| here.engine.host.nextShed(),
        .thread => |pair| pair.application.nextShed(),
        .joined, .gone => null,
    };
    event.* = next orelse return 0;
    return 1;
}

pub export fn peregrine_keep_bytes(
    handle: *Handle,
    event: *const Event,
    capacity: *usize,
) callconv(.c) ?[*]u8 {
    const engine = switch (handle.place()) {
        .here => |here| here.engine,
        .thread, .joined, .gone => return null,
    };
    // Memory that C frees has to be of C's heap.
    if (gpa.vtable != std.heap.c_allocator.vtable) return null;
    const memory = engine.host.surrender(&engine.worker.pool, event) orelse return null;
    capacity.* = memory.len;
    return memory.ptr;
}

pub export fn peregrine_set_user(
    handle: *Handle,
    ticket: types.Ticket,
    user: ?*anyopaque,
) callconv(.c) c_int {
    if (handle.end()) |end| {
        const entry = end.ledger.get(ticket) orelse return Code.gone;
        entry.user = user;
        return Code.ok;
    }
    const exchange = handle.exchangeHere(ticket) orelse return Code.gone;
    if (!exchange.isHeard()) return Code.gone;
    exchange.word = .of(user);
    return Code.ok;
}

pub export fn peregrine_user(handle: *Handle, ticket: types.Ticket) callconv(.c) ?*anyopaque {
    if (handle.end()) |end| return if (end.ledger.get(ticket)) |entry| entry.user else null;
    const exchange = handle.exchangeHere(ticket) orelse return null;
    return exchange.word.pointer();
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
    return switch (handle.place()) {
        .here => |here| here.engine.worker.pool.loans.take(),
        .thread => |pair| pair.application.takeReturned(),
        .joined => |interpreter| interpreter.end.takeReturned(),
        .gone => null,
    };
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
    // No file is longer than 2^63 - 1 bytes, so sums of offsets and lengths below that cannot overflow.
    if (offset +| length > std.math.maxInt(i64)) return Code.range;
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
    if (handle.end()) |end| {
        const ledger = &end.ledger;
        return if (ledger.get(ticket)) |entry| ledger.buffered(entry) else 0;
    }
    const exchange = handle.exchangeHere(ticket) orelse return 0;
    return exchange.queuedBytes();
}

pub export fn peregrine_accept_websocket(
    handle: *Handle,
    ticket: types.Ticket,
    subprotocol: ?[*]const u8,
    subprotocol_len: usize,
    fields: ?[*]const peregrine.Field,
    count: usize,
) callconv(.c) c_int {
    const compression = @backingInt(peregrine.Command.Compression.configured);
    return peregrine_accept_websocket_as(
        handle,
        ticket,
        compression,
        subprotocol,
        subprotocol_len,
        fields,
        count,
    );
}

pub export fn peregrine_accept_websocket_as(
    handle: *Handle,
    ticket: types.Ticket,
    compression: c_int,
    subprotocol: ?[*]const u8,
    subprotocol_len: usize,
    fields: ?[*]const peregrine.Field,
    count: usize,
) callconv(.c) c_int {
    return handle.apply(ticket, .{ .accept = .{
        .subprotocol = if (subprotocol) |name| name[0..subprotocol_len] else null,
        .compression = std.enums.fromInt(peregrine.Command.Compression, compression) orelse
            return Code.range,
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
    return switch (handle.home) {
        .here => |here| here.bad_field,
        .thread => |pair| pair.application.ledger.bad_field,
        .joined => |interpreter| interpreter.end.ledger.bad_field,
    };
}

pub export fn peregrine_error_text(code: c_int) callconv(.c) [*:0]const u8 {
    return errors.text(code);
}

pub export fn peregrine_reason_text(reason: u32) callconv(.c) [*:0]const u8 {
    return errors.reasonText(reason);
}
