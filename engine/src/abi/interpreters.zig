//! The C API of several interpreters behind one engine: the functions of peregrine.h about them.
const std = @import("std");
const peregrine = @import("peregrine");
const ApplicationEnd = @import("application_end.zig").ApplicationEnd;
const Depot = @import("depot.zig").Depot;
const hub = @import("hub");
const errors = @import("errors.zig");
const history = @import("history.zig");
const Hold = @import("hold.zig").Hold;
const Interpreter = @import("interpreter.zig").Interpreter;
const Node = @import("node.zig").Node;
const platform = @import("platform");
const Pool = @import("pool.zig").Pool;
const sized = @import("sized.zig");
const Takers = @import("offer.zig").Takers;
const TopicWish = @import("topic_wish.zig").TopicWish;
const types = @import("types.zig");
const Code = types.Code;
const Handle = @import("handle.zig").Handle;
const fork = peregrine.io.fork;
const gpa = platform.gpa;

pub export fn peregrine_use_interpreters(handle: *Handle, given: *const sized.Header) callconv(.c) c_int {
    const engine = handle.ownEngine() orelse return Code.gone;
    if (engine.pool != null) return Code.out_of_order;
    const wanted = sized.read(types.Interpreters, given);
    if (wanted.topics) |prefix| if (!hub.wire.isName(std.mem.span(prefix))) return Code.range;
    const join_socket = peregrine.io.file.duplicate(wanted.join_socket) catch |err| return errors.code(err);
    const threaded = handle.useThread();
    const pool = if (threaded != Code.ok) null else Pool.create(gpa, &engine.worker, .{
        .join_socket = join_socket,
        .limits = .of(&wanted),
        .account = .of(&wanted),
        .handed_max = wanted.handed,
    }) catch |err| blk: {
        errors.setErrnoOf(err);
        break :blk null;
    };
    const several = pool orelse {
        peregrine.io.file.close(join_socket);
        return if (threaded != Code.ok) threaded else Code.system;
    };
    std.debug.assert(engine.host.link != null and engine.host.interpreters == null);
    engine.pool = several;
    // Without a depot bodies are copied.
    if (Depot.initShared(gpa)) |depot| several.depot = engine.openDepot(depot) else |_| {}
    engine.host.interpreters = &several.interpreters;
    return Code.ok;
}

pub export fn peregrine_add_group(handle: *Handle, given: *const sized.Header) callconv(.c) c_int {
    const engine = handle.ownEngine() orelse return Code.gone;
    const pool = engine.pool orelse return Code.out_of_order;
    if (engine.polled) return Code.out_of_order;
    const wanted = sized.read(types.Interpreters, given);
    if (wanted.topics) |prefix| if (!hub.wire.isName(std.mem.span(prefix))) return Code.range;
    const join_socket = peregrine.io.file.duplicate(wanted.join_socket) catch |err| return errors.code(err);
    // Applications of a group of their own may be other users': no interpreter reads bodies of others.
    pool.depot = null;
    engine.closeDepot();
    return pool.addGroup(join_socket, .of(&wanted), .of(&wanted)) catch |err| {
        peregrine.io.file.close(join_socket);
        if (err == error.TooManyGroups) return Code.range;
        errors.setErrnoOf(err);
        return Code.system;
    };
}

pub export fn peregrine_refuse_waiting(handle: *Handle) callconv(.c) c_int {
    const engine = handle.ownEngine() orelse return 0;
    const pool = engine.pool orelse return 0;
    return @intCast(handle.call(Pool.refuseWaiting, .{pool}));
}

pub export fn peregrine_refuse_group(handle: *Handle, group: c_int) callconv(.c) c_int {
    const engine = handle.ownEngine() orelse return 0;
    const pool = engine.pool orelse return 0;
    const number = std.math.cast(u8, group) orelse return 0;
    return @intCast(handle.call(Pool.refuseGroup, .{ pool, number }));
}

pub export fn peregrine_join(join_socket: c_int, timeout_ms: c_int) callconv(.c) ?*Handle {
    return join(join_socket, .first, timeout_ms);
}

pub export fn peregrine_join_for_handed(join_socket: c_int, timeout_ms: c_int) callconv(.c) ?*Handle {
    return join(join_socket, .handed, timeout_ms);
}

fn join(join_socket: c_int, takers: Takers, timeout_ms: c_int) ?*Handle {
    return joined(join_socket, takers, timeout_ms) catch |err| {
        errors.setErrnoOf(err);
        return null;
    };
}

fn joined(join_socket: c_int, takers: Takers, timeout_ms: c_int) !*Handle {
    fork.watch();
    const interpreter: *Interpreter = try .join(gpa, join_socket, takers, timeout_ms);
    errdefer interpreter.destroy();
    return .create(.{ .joined = interpreter });
}

pub export fn peregrine_hand_over(handle: *Handle, ticket: types.Ticket) callconv(.c) c_int {
    return switch (handle.place()) {
        .joined => |interpreter| interpreter.handOver(ticket),
        .here, .thread => Code.out_of_order,
        .gone => Code.gone,
    };
}

pub export fn peregrine_give_back(handle: *Handle, ticket: types.Ticket) callconv(.c) c_int {
    return switch (handle.place()) {
        .joined => |interpreter| interpreter.giveBack(ticket),
        .here, .thread => Code.out_of_order,
        .gone => Code.gone,
    };
}

pub export fn peregrine_pass_on(handle: *Handle, route: c_int) callconv(.c) void {
    const number = std.math.cast(u8, route) orelse return;
    switch (handle.place()) {
        .joined => |interpreter| interpreter.passOn(number),
        .here, .thread, .gone => {},
    }
}

pub export fn peregrine_deliver_topics(
    handle: *Handle,
    join_socket: c_int,
    given: *const sized.Header,
) callconv(.c) c_int {
    const engine = handle.ownEngine() orelse return Code.gone;
    const pair = switch (handle.place()) {
        .thread => |pair| pair,
        .here => return Code.out_of_order,
        .joined, .gone => return Code.gone,
    };
    if (engine.polled or engine.lone != null) return Code.out_of_order;
    if (engine.pool) |pool| if (pool.delivery != null) return Code.out_of_order;
    const socket = peregrine.io.file.duplicate(join_socket) catch |err| return errors.code(err);
    const config = history.limited(&sized.read(types.History, given));
    const delivered = if (engine.pool) |pool|
        pool.deliverTopics(socket, &config)
    else
        pair.deliverTopics(socket, &config);
    delivered catch {
        peregrine.io.file.close(socket);
        return Code.memory;
    };
    return Code.ok;
}

pub export fn peregrine_follow(
    handle: *Handle,
    ticket: types.Ticket,
    number: u32,
    node: *const Node,
    given: *const sized.Header,
) callconv(.c) c_int {
    const ask = sized.read(types.NodeFollowAsk, given);
    const name = ask.name[0..ask.name_len];
    if (!hub.wire.isName(name)) return Code.range;
    const as = std.math.cast(u8, ask.as) orelse return Code.range;
    return wish(handle, ticket, number, .{ .follow = .{
        .name = name,
        .as = std.enums.fromInt(TopicWish.As, as) orelse return Code.range,
        .cuts = ask.cuts != 0,
        .since = if (ask.since_len > TopicWish.since_bytes_max) "none" else ask.since[0..ask.since_len],
        .secret = node.inner.secret,
        .mailbox = ask.mailbox,
    } });
}

pub export fn peregrine_unfollow(
    handle: *Handle,
    ticket: types.Ticket,
    name: [*]const u8,
    len: usize,
) callconv(.c) c_int {
    if (!hub.wire.isName(name[0..len])) return Code.range;
    return wish(handle, ticket, 0, .{ .unfollow = name[0..len] });
}

pub export fn peregrine_topic_heard(handle: *Handle, ticket: types.Ticket) callconv(.c) c_int {
    return wish(handle, ticket, 0, .heard);
}

fn wish(handle: *Handle, ticket: types.Ticket, number: u32, wanted: TopicWish) c_int {
    const end = deliveredEnd(handle) catch |err| return errors.code(err);
    var buffer: [TopicWish.bytes_max]u8 = undefined;
    const bytes = wanted.encode(&buffer);
    return end.answer(ticket, &.{ .topic = .{ .number = number, .wish = bytes } }, 0);
}

pub export fn peregrine_hold(
    handle: *Handle,
    ticket: types.Ticket,
    given: *const sized.Header,
    how: *const sized.Header,
) callconv(.c) c_int {
    const end = deliveredEnd(handle) catch |err| return errors.code(err);
    const response = sized.read(types.Response, given);
    const ask = sized.read(types.HeldAsk, how);
    const kind = heldKind(ask.kind) orelse return Code.range;
    const command: peregrine.Command = .{ .start = .{
        .status = response.status,
        .fields = if (response.fields) |fields| fields[0..response.field_count] else &.{},
        .body = if (response.body) |bytes| bytes[0..response.body_len] else "",
        .end = kind == .response,
        .close = response.flags & types.RespondFlag.close != 0,
        .says_keep_alive = response.flags & types.RespondFlag.keep_alive != 0,
    } };
    const start = command.start;
    if (start.body.len > types.HeldMost.content_bytes) return Code.range;
    if (ask.keepalive_len > types.HeldMost.keepalive_bytes) return Code.range;
    if ((ask.keepalive_len == 0) != (ask.keepalive_ms == 0)) return Code.range;
    var topics: [types.HeldMost.topics]Hold.Topic = undefined;
    const list = heldTopics(&ask, &topics) orelse return Code.range;
    const holding = end.ledger.judgeHeld(ticket, &start) catch |err| return errors.code(err);
    if (holding == .answers) {
        var whole = command;
        whole.start.end = true;
        return end.answer(ticket, &whole, response.flags);
    }
    // A wish counts more bytes for each field than HTTP does.
    if (peregrine.encoded.size(&command) > Hold.start_bytes_max) return errors.code(error.HeadTooLarge);
    const bytes = Hold.encode(gpa, &.{
        .kind = kind,
        .timeout_ms = ask.timeout_ms,
        .keepalive_ms = ask.keepalive_ms,
        .keepalive = if (ask.keepalive) |text| text[0..ask.keepalive_len] else "",
        .topics = list,
        .start = &command,
    }) catch return Code.memory;
    defer gpa.free(bytes);
    const code = end.answer(ticket, &.{ .hold = bytes }, 0);
    return if (code == Code.ok) Code.done else code;
}

/// The application's end of a ring pair whose engine may deliver topics.
fn deliveredEnd(handle: *Handle) error{ OutOfOrder, Gone }!*ApplicationEnd {
    return switch (handle.place()) {
        .joined => |interpreter| &interpreter.end,
        .thread => |pair| if (pair.local.lone == null) error.OutOfOrder else &pair.application,
        .here => error.OutOfOrder,
        .gone => error.Gone,
    };
}

fn heldKind(kind: u32) ?Hold.Kind {
    return switch (kind) {
        types.HeldKind.stream => .stream,
        types.HeldKind.response => .response,
        else => null,
    };
}

/// The topics that a held response reads, in `space`; null: the list is empty, too long, has a name twice or
/// one that is no name.
fn heldTopics(ask: *const types.HeldAsk, space: *[types.HeldMost.topics]Hold.Topic) ?[]const Hold.Topic {
    if (ask.topic_count == 0 or ask.topic_count > space.len) return null;
    var next = ask.topics orelse return null;
    for (space[0..ask.topic_count], 0..) |*topic, count| {
        if (count > 0) next = sized.next(next);
        const given = sized.read(types.HeldTopic, next);
        const name = given.name[0..given.name_len];
        if (!hub.wire.isName(name)) return null;
        for (space[0..count]) |other| if (std.mem.eql(u8, name, other.name)) return null;
        topic.* = .{
            .name = name,
            .as = switch (given.as) {
                types.HeldAs.events => .events,
                types.HeldAs.bytes => .bytes,
                else => return null,
            },
            .since = if (given.since_len > Hold.since_bytes_max) "none" else given.since[0..given.since_len],
        };
    }
    return space[0..ask.topic_count];
}

pub export fn peregrine_take_turns(handle: *Handle, on: c_int) callconv(.c) void {
    switch (handle.place()) {
        .joined => |interpreter| interpreter.takeTurns(on != 0),
        .here, .thread, .gone => {},
    }
}

pub export fn peregrine_note_parked(handle: *Handle, count: u32) callconv(.c) void {
    switch (handle.place()) {
        .joined => |interpreter| interpreter.noteParked(count),
        .here, .thread, .gone => {},
    }
}
