//! The C door: the functions of include/peregrine.h. A user of the package `peregrine` like any other; converts, never decides.
const std = @import("std");
const peregrine = @import("peregrine");
const Channel = @import("channel.zig").Channel;
pub const Host = @import("host.zig").Host;
const errors = @import("errors.zig");
const listeners = @import("listeners.zig");
const options = @import("options.zig");
const platform = @import("platform");
const sized = @import("sized.zig");
const tls = @import("tls.zig");
pub const types = @import("types.zig");
const fork = peregrine.io.fork;
const Code = types.Code;
const Event = types.Event;

const gpa = platform.gpa;
pub const EngineWorker = peregrine.Worker(platform.Io, Host);

/// What C holds as `peregrine_worker`. Never moves: sessions point to the limits inside.
pub const Door = struct {
    worker: EngineWorker,
    host: Host,
    /// The way to the worker if that runs on a thread of its own; null: it is called.
    channel: ?*Channel = null,
    bad_field: usize = 0,
    /// C is handling events and will poll again before it waits: no need to make the descriptor readable for what it does meanwhile.
    busy: bool = false,
    /// Too late for a thread: C has polled already.
    polled: bool = false,
    /// What its listeners speak TLS with; references of our own.
    certificates: std.ArrayList(*tls.Certificates) = .empty,
    /// What the last peregrine_tls_info_of points to.
    client_chain: std.ArrayList(types.Text) = .empty,
    tls_texts: std.heap.ArenaAllocator = .init(gpa),
    /// `fork.count` of the process that the worker belongs to.
    forks: u32,

    /// In a process that was forked from the worker's its descriptors are closed: nothing of it may be touched any more.
    pub fn isForeign(door: *const Door) bool {
        return door.forks != fork.count();
    }

    fn exchangeOf(door: *Door, ticket: types.Ticket) ?*peregrine.Exchange {
        if (door.isForeign()) return null;
        return door.worker.exchanges.get(@fromBackingInt(ticket));
    }

    /// Does what a command says; the code for its outcome.
    inline fn apply(door: *Door, ticket: types.Ticket, command: peregrine.Command) c_int {
        return door.answer(ticket, command, 0);
    }

    /// The same, and flushes if the flags ask for it.
    inline fn answer(door: *Door, ticket: types.Ticket, command: peregrine.Command, flags: u32) c_int {
        if (door.isForeign()) return Code.gone;
        if (door.channel) |channel| {
            @branchHint(.unlikely);
            // A copy of its own: otherwise every command would have to be put together in memory.
            const copy = command;
            return channel.application.answer(ticket, &copy, flags);
        }
        // Deadlines begin with what C does. While it handles events the round has just been; otherwise that may be long ago.
        if (!door.busy) door.worker.now = door.worker.io.now();
        const name: peregrine.Ticket = @fromBackingInt(ticket);
        const exchange = door.worker.commanded(name, command) orelse return Code.gone;
        const outcome = door.worker.applyTo(exchange, command) catch |err| {
            door.bad_field = exchange.connection.session.badField();
            return errors.code(err);
        };
        if (flags & types.RespondFlag.flush != 0 and outcome != .done) {
            if (door.worker.find(name)) |same| door.worker.flushNow(same);
        }
        // Output that waits for the next poll must not wait for the next event.
        door.arm();
        return outcomeCode(outcome);
    }

    /// Calls a function that touches the worker, where that may be touched, and waits for it.
    pub fn call(door: *Door, comptime function: anytype, arguments: std.meta.ArgsTuple(@TypeOf(function))) @typeInfo(@TypeOf(function)).@"fn".return_type.? {
        const channel = door.channel orelse return @call(.auto, function, arguments);
        return channel.call(function, arguments);
    }

    /// Makes the descriptor readable when the worker next has something to do.
    fn arm(door: *Door) void {
        if (door.busy) return;
        // Without descriptors for a timer the host is woken at once: busy, but nothing is late.
        door.worker.armAlarm() catch door.worker.io.wake();
    }
};

/// Where the functions of peregrine.h are.
pub const files = .{ @This(), listeners, tls };

comptime {
    for (files) |file| _ = file;
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

pub export fn peregrine_config_set(config: *peregrine.Config, name: [*:0]const u8, value: i64) callconv(.c) c_int {
    config.set(std.mem.span(name), value) catch |err| return errors.code(err);
    return Code.ok;
}

pub export fn peregrine_config_get(config: *const peregrine.Config, name: [*:0]const u8, value: *i64) callconv(.c) c_int {
    value.* = config.get(std.mem.span(name)) catch |err| return errors.code(err);
    return Code.ok;
}

pub export fn peregrine_worker_new(config: *const peregrine.Config) callconv(.c) ?*Door {
    return newDoor(config) catch |err| {
        errors.setErrnoOf(err);
        return null;
    };
}

fn newDoor(config: *const peregrine.Config) !*Door {
    const door = try gpa.create(Door);
    errdefer gpa.destroy(door);
    fork.watch();
    door.* = .{ .worker = undefined, .host = try .init(gpa), .forks = fork.count() };
    errdefer door.host.abandon();
    door.worker = try .init(gpa, config.*, &door.host, .{});
    return door;
}

pub export fn peregrine_worker_free(door: ?*Door) callconv(.c) void {
    const d = door orelse return;
    if (d.isForeign()) return;
    if (d.channel) |channel| channel.destroy();
    d.channel = null;
    d.host.deinit(&d.worker.pool);
    d.worker.deinit();
    for (d.certificates.items) |certificates| certificates.release();
    d.certificates.deinit(gpa);
    d.client_chain.deinit(gpa);
    d.tls_texts.deinit();
    gpa.destroy(d);
}

pub export fn peregrine_worker_set(door: *Door, name: [*:0]const u8, value: i64) callconv(.c) c_int {
    if (door.isForeign()) return Code.gone;
    return door.call(setLimit, .{ door, std.mem.span(name), value });
}

fn setLimit(door: *Door, name: []const u8, value: i64) c_int {
    door.worker.set(name, value) catch |err| return errors.code(err);
    return Code.ok;
}

pub export fn peregrine_worker_get(door: *const Door, name: [*:0]const u8, value: *i64) callconv(.c) c_int {
    value.* = door.worker.config.get(std.mem.span(name)) catch |err| return errors.code(err);
    return Code.ok;
}

pub export fn peregrine_health_path(door: *Door, path: [*:0]const u8) callconv(.c) c_int {
    if (door.isForeign()) return Code.gone;
    return door.call(setHealthPath, .{ door, std.mem.span(path) });
}

fn setHealthPath(door: *Door, path: []const u8) c_int {
    door.worker.setHealthPath(path) catch return Code.address;
    return Code.ok;
}

pub export fn peregrine_access_log_open(door: *Door, wanted: ?*const sized.Header) callconv(.c) c_int {
    if (door.isForeign()) return Code.gone;
    return door.call(openAccessLog, .{ door, wanted });
}

fn openAccessLog(door: *Door, wanted: ?*const sized.Header) c_int {
    var fault: peregrine.AccessLogFault = .{};
    var errno: u16 = 0;
    const given = wanted orelse {
        door.worker.setAccessLog(null, &fault, &errno) catch unreachable; // nothing is opened
        return Code.ok;
    };
    const asked = sized.read(types.AccessLog, given);
    const target: peregrine.io.LogTarget = if (asked.path) |path| .{ .path = std.mem.span(path) } else .{ .fd = asked.fd };
    door.worker.setAccessLog(.{
        .target = if (asked.path == null and asked.fd < 0) .host else .{ .file = target },
        .format = std.mem.span(asked.format orelse "clf"),
        .bytes_max = door.worker.config.access_log_bytes,
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
    return Code.ok;
}

pub export fn peregrine_access_log_reopen(door: *Door) callconv(.c) void {
    if (door.isForeign()) return;
    door.call(EngineWorker.reopenAccessLog, .{&door.worker});
}

pub export fn peregrine_access_log_fault(format: [*:0]const u8, at: *usize, len: *usize) callconv(.c) ?[*:0]const u8 {
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

pub export fn peregrine_listen(door: *Door, address: [*:0]const u8, port: u16, backlog: c_int, flags: u32) callconv(.c) c_int {
    if (door.isForeign()) return Code.gone;
    const text = std.mem.span(address);
    const parsed = if (text.len > 0 and text[0] == '/')
        peregrine.io.Address.unixPath(text)
    else
        peregrine.io.Address.parse(text, port);
    const where = parsed catch return Code.address;
    return door.call(listenAt, .{ door, where, peregrine.io.ListenOptions{
        .backlog = std.math.cast(u31, backlog) orelse return Code.range,
        .reuse_port = flags & types.ListenFlag.reuse_port != 0,
        .v6_only = flags & types.ListenFlag.v6_only != 0,
    } });
}

fn listenAt(door: *Door, where: peregrine.io.Address, how: peregrine.io.ListenOptions) c_int {
    const listener = door.worker.listen(where, how) catch |err| {
        errors.setErrnoOf(err);
        return Code.system;
    };
    return @intCast(listener);
}

pub export fn peregrine_listen_fd(door: *Door, fd: c_int) callconv(.c) c_int {
    if (door.isForeign()) return Code.gone;
    return door.call(adoptListener, .{ door, fd });
}

fn adoptListener(door: *Door, fd: c_int) c_int {
    const listener = door.worker.adoptListener(fd) catch |err| {
        errors.setErrnoOf(err);
        return Code.system;
    };
    return @intCast(listener);
}

pub export fn peregrine_listener_address(door: *Door, listener: c_int, text: [*]u8, capacity: usize, port: *u16) callconv(.c) c_int {
    if (door.isForeign()) return Code.gone;
    const number = std.math.cast(u32, listener) orelse return Code.range;
    const address = door.call(addressOf, .{ door, number }) orelse return Code.range;
    port.* = address.port() orelse 0;
    var buffer: [peregrine.io.Address.text_bytes_max]u8 = undefined;
    const host = address.hostText(&buffer);
    if (host.len >= capacity) return Code.range;
    @memcpy(text[0..host.len], host);
    text[host.len] = 0;
    return @intCast(host.len);
}

fn addressOf(door: *Door, listener: u32) ?peregrine.io.Address {
    return if (listener < door.worker.listeners.items.len) door.worker.listenerAddress(listener) else null;
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

pub export fn peregrine_fd(door: *Door) callconv(.c) c_int {
    if (door.isForeign()) return Code.gone;
    if (door.channel) |channel| return channel.bell.fd();
    return door.worker.io.fd();
}

pub export fn peregrine_wake(door: *Door) callconv(.c) void {
    if (door.isForeign()) return;
    if (door.channel) |channel| channel.bell.ring() else door.worker.io.wake();
}

pub export fn peregrine_drain(door: *Door) callconv(.c) void {
    if (door.isForeign()) return;
    door.call(drain, .{&door.worker});
}

pub export fn peregrine_retire(door: *Door) callconv(.c) void {
    if (door.isForeign()) return;
    door.call(retire, .{&door.worker});
}

fn retire(worker: *EngineWorker) void {
    worker.retire();
    worker.io.wake();
}

pub export fn peregrine_end_websockets(door: *Door) callconv(.c) void {
    if (door.isForeign()) return;
    door.call(endWebSockets, .{&door.worker});
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

pub export fn peregrine_cut(door: *Door) callconv(.c) void {
    if (door.isForeign()) return;
    door.call(cut, .{&door.worker});
}

fn cut(worker: *EngineWorker) void {
    worker.cut();
    worker.io.wake();
}

pub export fn peregrine_worker_stats(door: *Door, out: *sized.Header) callconv(.c) void {
    const stats = if (door.isForeign()) door.worker.statistics() else door.call(statisticsOf, .{door});
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
        .ledger = if (door.channel) |channel| channel.application.ledger.count else 0,
    });
}

fn statisticsOf(door: *Door) peregrine.Stats {
    return door.worker.statistics();
}

pub export fn peregrine_counter_at(index: usize) callconv(.c) ?*const types.Counter {
    return if (index < options.counters.len) &options.counters[index] else null;
}

pub export fn peregrine_use_counters(door: *Door, words: ?[*]u64, count: usize) callconv(.c) c_int {
    if (door.isForeign()) return Code.gone;
    const counters: ?*peregrine.Counters = if (words) |memory| @ptrCast(memory) else null;
    if (counters != null and count < peregrine.Counters.words) return Code.range;
    door.call(EngineWorker.useCounters, .{ &door.worker, counters });
    // The first look around is over; the next one has its deadline.
    peregrine_wake(door);
    return Code.ok;
}

pub export fn peregrine_take(door: *Door, ticket: types.Ticket) callconv(.c) void {
    if (door.isForeign() or door.worker.counters == null) return;
    if (door.channel) |channel| return channel.slots.begun(ticket, door.worker.io.micros());
    const exchange = door.exchangeOf(ticket) orelse return;
    exchange.taken_us = door.worker.io.micros();
}

pub export fn peregrine_use_thread(door: *Door) callconv(.c) c_int {
    if (door.isForeign()) return Code.gone;
    if (door.channel != null) return Code.ok;
    if (door.polled) return Code.out_of_order;
    door.channel = Channel.create(gpa, door) catch |err| {
        errors.setErrnoOf(err);
        return Code.system;
    };
    door.host.link = &door.channel.?.engine;
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

pub export fn peregrine_poll(door: *Door, timeout_ms: c_int, events: *[*]const Event) callconv(.c) c_int {
    if (door.isForeign()) return Code.gone;
    door.polled = true;
    if (door.channel) |channel| return pollChannel(channel, timeout_ms, events);
    door.host.release(&door.worker.pool);
    door.worker.poll(timeout_ms) catch |err| {
        errors.setErrnoOf(err);
        return Code.system;
    };
    const batch = door.host.take();
    door.busy = batch.len > 0;
    door.arm();
    events.* = batch.ptr;
    return @intCast(batch.len);
}

pub export fn peregrine_set_user(door: *Door, ticket: types.Ticket, user: ?*anyopaque) callconv(.c) c_int {
    if (door.channel) |channel| {
        if (door.isForeign()) return Code.gone;
        const entry = channel.application.ledger.get(ticket) orelse return Code.gone;
        entry.user = user;
        return Code.ok;
    }
    const exchange = door.exchangeOf(ticket) orelse return Code.gone;
    exchange.user = user;
    return Code.ok;
}

pub export fn peregrine_user(door: *Door, ticket: types.Ticket) callconv(.c) ?*anyopaque {
    if (door.channel) |channel| {
        if (door.isForeign()) return null;
        return if (channel.application.ledger.get(ticket)) |entry| entry.user else null;
    }
    const exchange = door.exchangeOf(ticket) orelse return null;
    return exchange.user;
}

pub export fn peregrine_respond(door: *Door, ticket: types.Ticket, given: *const sized.Header) callconv(.c) c_int {
    const response = sized.read(types.Response, given);
    return door.answer(ticket, .{ .start = .{
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
    door: *Door,
    ticket: types.Ticket,
    bytes: ?[*]const u8,
    len: usize,
    flags: u32,
) callconv(.c) c_int {
    return door.answer(ticket, bodyOf(bytes, len, flags, null), flags);
}

pub export fn peregrine_lend(
    door: *Door,
    ticket: types.Ticket,
    bytes: ?[*]const u8,
    len: usize,
    flags: u32,
    loan: ?*types.Loan,
) callconv(.c) c_int {
    return door.answer(ticket, bodyOf(bytes, len, flags, loan), flags);
}

pub export fn peregrine_returned(door: *Door) callconv(.c) ?*types.Loan {
    if (door.isForeign()) return null;
    return if (door.channel) |channel| channel.application.takeReturned() else door.worker.pool.loans.take();
}

pub export fn peregrine_write_file(
    door: *Door,
    ticket: types.Ticket,
    fd: c_int,
    offset: u64,
    length: i64,
) callconv(.c) c_int {
    return door.apply(ticket, .{ .file = .{
        .fd = fd,
        .offset = offset,
        .length = if (length < 0) null else @intCast(length),
    } });
}

pub export fn peregrine_finish(
    door: *Door,
    ticket: types.Ticket,
    trailers: ?[*]const peregrine.Field,
    count: usize,
) callconv(.c) c_int {
    return door.apply(ticket, .{ .end = .{ .trailers = fieldsOf(trailers, count) } });
}

pub export fn peregrine_repeat(
    door: *Door,
    ticket: types.Ticket,
    interval_ms: u32,
    bytes: ?[*]const u8,
    len: usize,
) callconv(.c) c_int {
    return door.apply(ticket, .{ .repeat = .{ .interval_ms = interval_ms, .bytes = bytesOf(bytes, len) } });
}

pub export fn peregrine_inform(
    door: *Door,
    ticket: types.Ticket,
    status: u16,
    fields: ?[*]const peregrine.Field,
    count: usize,
) callconv(.c) c_int {
    return door.apply(ticket, .{ .inform = .{ .status = status, .fields = fieldsOf(fields, count) } });
}

pub export fn peregrine_read(door: *Door, ticket: types.Ticket) callconv(.c) c_int {
    return door.apply(ticket, .read);
}

pub export fn peregrine_flush(door: *Door, ticket: types.Ticket) callconv(.c) c_int {
    return door.apply(ticket, .flush);
}

pub export fn peregrine_abort(door: *Door, ticket: types.Ticket) callconv(.c) c_int {
    return door.apply(ticket, .abort);
}

pub export fn peregrine_buffered(door: *Door, ticket: types.Ticket) callconv(.c) usize {
    if (door.channel) |channel| {
        if (door.isForeign()) return 0;
        const ledger = &channel.application.ledger;
        return if (ledger.get(ticket)) |entry| ledger.buffered(entry) else 0;
    }
    const exchange = door.exchangeOf(ticket) orelse return 0;
    return door.worker.buffered(exchange);
}

pub export fn peregrine_accept_websocket(
    door: *Door,
    ticket: types.Ticket,
    subprotocol: ?[*]const u8,
    subprotocol_len: usize,
    fields: ?[*]const peregrine.Field,
    count: usize,
) callconv(.c) c_int {
    return door.apply(ticket, .{ .accept = .{
        .subprotocol = if (subprotocol) |name| name[0..subprotocol_len] else null,
        .fields = fieldsOf(fields, count),
    } });
}

pub export fn peregrine_send_message(
    door: *Door,
    ticket: types.Ticket,
    bytes: ?[*]const u8,
    len: usize,
    flags: u32,
) callconv(.c) c_int {
    return door.answer(ticket, messageOf(bytes, len, flags, null), flags);
}

pub export fn peregrine_lend_message(
    door: *Door,
    ticket: types.Ticket,
    bytes: ?[*]const u8,
    len: usize,
    flags: u32,
    loan: ?*types.Loan,
) callconv(.c) c_int {
    return door.answer(ticket, messageOf(bytes, len, flags, loan), flags);
}

pub export fn peregrine_close_websocket(
    door: *Door,
    ticket: types.Ticket,
    code: u16,
    reason: ?[*]const u8,
    reason_len: usize,
) callconv(.c) c_int {
    return door.apply(ticket, .{ .close = .{ .code = code, .reason = bytesOf(reason, reason_len) } });
}

pub export fn peregrine_keepalive(
    door: *Door,
    ticket: types.Ticket,
    interval_ms: u32,
    timeout_ms: u32,
) callconv(.c) c_int {
    return door.apply(ticket, .{ .keepalive = .{ .interval_ms = interval_ms, .timeout_ms = timeout_ms } });
}

pub export fn peregrine_pause(door: *Door, ticket: types.Ticket, flow: c_int) callconv(.c) c_int {
    return door.apply(ticket, .{ .flow = std.enums.fromInt(peregrine.Incoming.Flow, flow) orelse return Code.range });
}

pub export fn peregrine_idle_limit(door: *Door, ticket: types.Ticket, idle_ms: u32) callconv(.c) c_int {
    return door.apply(ticket, .{ .idle_limit = idle_ms });
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

pub export fn peregrine_bad_field(door: *const Door) callconv(.c) usize {
    return if (door.channel) |channel| channel.application.ledger.bad_field else door.bad_field;
}

pub export fn peregrine_error_text(code: c_int) callconv(.c) [*:0]const u8 {
    return errors.text(code);
}

pub export fn peregrine_reason_text(reason: u32) callconv(.c) [*:0]const u8 {
    return errors.reasonText(reason);
}
