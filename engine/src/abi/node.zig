//! A node of the hub for C: adds a connection and a clock to `hub.Node`.
const std = @import("std");
const peregrine = @import("peregrine");
const hub = @import("hub");
const platform = @import("platform");
const history = @import("history.zig");
const sized = @import("sized.zig");
const types = @import("types.zig");
const Code = types.Code;
const Result = types.NodeResult;
const Way = types.NodeRequest;
const gpa = platform.gpa;
const io = peregrine.io;
const polling = io.polling;
const wire = hub.wire;

pub const name_bytes = wire.Channel.name_bytes;

/// The `peregrine_node` of C, for one thread.
pub const Node = struct {
    inner: hub.Node,
    /// The connection's socket, which is C's; -1: there is none.
    fd: i32 = -1,
    /// `fork.count` of the process that has made the node; a child of that process may not use it.
    forks: u32,

    fn isForeign(node: *const Node) bool {
        return node.forks != io.fork.count();
    }

    fn now() u64 {
        return io.micros() / 1000;
    }

    /// Sends waiting bytes until the socket takes no more.
    fn send(node: *Node) void {
        while (node.fd >= 0) {
            const bytes = node.inner.toSend();
            if (bytes.len == 0) return;
            switch (polling.send(node.fd, bytes)) {
                .done => |count| node.inner.noteSent(count),
                .blocked => return,
                .ended => node.lose(),
            }
        }
    }

    /// The most bytes that one call receives, so that the caller's loop has its turn.
    const received_max = 1 << 20;

    fn receive(node: *Node) void {
        var buffer: [64 << 10]u8 = undefined;
        var total: usize = 0;
        while (node.fd >= 0 and total < received_max) {
            switch (polling.receive(node.fd, &buffer)) {
                .done => |count| {
                    node.inner.receive(buffer[0..count], now());
                    total += count;
                    if (!node.inner.isConnected()) node.lose();
                },
                .blocked => return,
                .ended => node.lose(),
            }
        }
    }

    /// The connection is lost. C closes the socket when the next poll tells of that.
    fn lose(node: *Node) void {
        node.inner.lose();
        node.fd = -1;
    }

    fn ask(
        node: *Node,
        way: c_int,
        mailbox: u64,
        name: []const u8,
        extra: []const u8,
        bytes: []const u8,
    ) i64 {
        const inner = &node.inner;
        const at = now();
        const asked = switch (way) {
            Way.subscribe => inner.subscribe(mailbox, name, at),
            Way.publish => inner.publish(name, bytes, extra, at),
            Way.send => inner.send(name, bytes, at),
            Way.add => inner.change(.add, name, extra, at),
            Way.discard => inner.change(.discard, name, extra, at),
            Way.flush => inner.flush(at),
            Way.append => inner.append(name, bytes, at),
            Way.look => inner.look(name, at),
            Way.who => inner.who(if (extra.len == 0) .subscribed else .reads, name, at),
            else => return -Result.name,
        };
        return node.numberOf(asked);
    }

    fn numberOf(node: *Node, asked: hub.Node.Asked) i64 {
        const number = asked catch |err| return switch (err) {
            error.Gone => -Result.gone,
            error.Unavailable => -Result.unavailable,
            error.TooMany => -Result.too_many,
            error.OutOfMemory => -Result.too_many,
        };
        node.send();
        return number;
    }
};

/// Writes the text of a position; returns its length in bytes.
fn write(place: hub.position.Position, out: *types.NodePosition) u32 {
    return @intCast(place.print(out[0..hub.position.Position.text_bytes_max]).len);
}

/// Draws 128 random bits, which no other node has in any process.
pub fn drawSecret(place: *const anyopaque) wire.Secret {
    const halves = [2]u64{ io.randomSeed() orelse @intFromPtr(place), io.randomSeed() orelse io.micros() };
    return @bitCast(halves);
}

pub export fn peregrine_node_new(made: *?*Node) callconv(.c) c_int {
    const node = gpa.create(Node) catch return Code.memory;
    io.fork.watch();
    node.* = .{ .inner = .init(gpa, drawSecret(node)), .forks = io.fork.count() };
    made.* = node;
    return Code.ok;
}

pub export fn peregrine_node_free(node: ?*Node) callconv(.c) void {
    const own = node orelse return;
    own.inner.deinit();
    gpa.destroy(own);
}

pub export fn peregrine_node_connected(node: *Node, fd: c_int) callconv(.c) c_int {
    if (node.isForeign()) return Code.gone;
    if (node.fd >= 0) return Code.out_of_order;
    node.inner.connected() catch return Code.memory;
    node.fd = fd;
    node.send();
    return Code.ok;
}

pub export fn peregrine_node_poll(node: *Node) callconv(.c) u32 {
    const flag = types.NodeFlag;
    if (node.isForeign()) return 0;
    node.receive();
    if (node.inner.tick(Node.now()) and node.fd >= 0) node.lose();
    node.send();
    var flags: u32 = 0;
    if (node.fd >= 0) flags |= flag.connected;
    if (node.fd >= 0 and node.inner.toSend().len > 0) flags |= flag.writes;
    if (node.inner.hasDeadlines()) flags |= flag.deadlines;
    return flags;
}

pub export fn peregrine_node_next(node: *Node, given: *sized.Header) callconv(.c) c_int {
    if (node.isForeign()) return 0;
    const event = node.inner.next() orelse return 0;
    var told: types.NodeEvent = .{ .size = given.size };
    switch (event) {
        .reply => |reply| {
            told.number = reply.number;
            told.result = resultOf(reply.code);
            if (reply.place) |place| told.position_len = write(place, &told.position);
            if (reply.present) |present| {
                told.present = present.ptr;
                told.present_len = present.len;
            }
        },
        .mail, .readable => |about| {
            told.mailbox = about.mailbox;
            told.user = about.user;
            told.readable = @intFromBool(event == .readable);
        },
    }
    sized.write(types.NodeEvent, given, told);
    return 1;
}

/// The result that C gets for a code of the hub.
pub fn resultOf(code: wire.Code) u32 {
    return switch (code) {
        .ok => Result.ok,
        .gone, .ended => Result.gone,
        .full => Result.full,
        .too_many => Result.too_many,
        .unavailable, .flushed => Result.unavailable,
        .unknown => Result.unknown,
        .no_channel => Result.name,
        .forbidden => Result.forbidden,
    };
}

pub export fn peregrine_node_open(node: *Node, user: u64) callconv(.c) u64 {
    if (node.isForeign()) return 0;
    return node.inner.open(user) catch 0;
}

pub export fn peregrine_node_close(node: *Node, mailbox: u64) callconv(.c) void {
    if (node.isForeign()) return;
    node.inner.close(mailbox);
    node.send();
}

pub export fn peregrine_node_name(node: *const Node, mailbox: u64, buffer: [*]u8) callconv(.c) usize {
    const channel: wire.Channel = .{ .node = node.inner.id, .mailbox = mailbox };
    return channel.write(buffer[0..wire.Channel.name_bytes]).len;
}

pub export fn peregrine_node_take(node: *Node, mailbox: u64, given: *sized.Header) callconv(.c) c_int {
    if (node.isForeign()) return 0;
    const message = node.inner.take(mailbox, Node.now()) orelse return 0;
    sized.write(types.NodeMessage, given, .{
        .size = given.size,
        .bytes = message.bytes.ptr,
        .len = message.bytes.len,
        .handle = message,
    });
    return 1;
}

pub export fn peregrine_node_release(node: *Node, message: *anyopaque) callconv(.c) void {
    node.inner.release(@ptrCast(@alignCast(message)));
}

pub export fn peregrine_node_is_behind(node: *const Node) callconv(.c) c_int {
    return @intFromBool(!node.isForeign() and node.fd >= 0 and node.inner.toSend().len > 0);
}

pub export fn peregrine_node_unsubscribe(
    node: *Node,
    mailbox: u64,
    name: [*]const u8,
    len: usize,
) callconv(.c) void {
    if (node.isForeign()) return;
    node.inner.unsubscribe(mailbox, name[0..len]);
    node.send();
}

pub export fn peregrine_node_request(node: *Node, given: *const sized.Header) callconv(.c) i64 {
    const asked = sized.read(types.NodeAsk, given);
    if (node.isForeign()) return -Result.unavailable;
    const name = asked.name[0..asked.name_len];
    const extra = asked.extra[0..asked.extra_len];
    if (asked.request != Way.flush and !wire.isName(name)) return -Result.name;
    const names_topic = asked.request == Way.add or asked.request == Way.discard;
    if (names_topic and (wire.Channel.parse(name) == null or !wire.isName(extra))) return -Result.name;
    if (asked.extra_len > hub.limits.exclude_bytes_max) return -Result.too_large;
    if (asked.bytes_len > node.inner.bounds.message_bytes) return -Result.too_large;
    return node.ask(asked.request, asked.mailbox, name, extra, asked.bytes[0..asked.bytes_len]);
}

pub export fn peregrine_node_follow(node: *Node, given: *const sized.Header) callconv(.c) i64 {
    const wish = sized.read(types.NodeFollowAsk, given);
    const as = types.NodeAs;
    if (node.isForeign()) return -Result.unavailable;
    const name = wish.name[0..wish.name_len];
    if (!wire.isName(name)) return -Result.name;
    const since = wish.since[0..wish.since_len];
    return node.numberOf(node.inner.follow(wish.mailbox, name, .{
        .as = switch (wish.as) {
            as.as_text => .text,
            as.as_binary => .binary,
            as.as_events => .events,
            else => return -Result.name,
        },
        .since = .ofReader(since),
        .behind = if (wish.cuts != 0) .cut else .skip,
    }, Node.now()));
}

pub export fn peregrine_node_unfollow(
    node: *Node,
    mailbox: u64,
    name: [*]const u8,
    len: usize,
) callconv(.c) void {
    if (node.isForeign()) return;
    node.inner.unfollow(mailbox, name[0..len]);
    node.send();
}

pub export fn peregrine_node_read(node: *Node, mailbox: u64, given: *sized.Header) callconv(.c) c_int {
    const kind = types.NodeRead;
    if (node.isForeign()) return kind.nothing;
    // Without memory the mailbox goes on at the next entry.
    const found = node.inner.read(mailbox) catch return kind.nothing;
    var told: types.NodeReading = .{ .size = given.size };
    switch (found) {
        .nothing => return kind.nothing,
        .cut => {
            node.send();
            return kind.cut;
        },
        .bytes => |bytes| {
            told.as = switch (bytes.as) {
                .text => types.NodeAs.as_text,
                .binary => types.NodeAs.as_binary,
                .events => types.NodeAs.as_events,
                // C cannot ask for these forms.
                .text_frames, .binary_frames, .text_deflated, .binary_deflated, .bytes => unreachable,
            };
            told.bytes = bytes.bytes.ptr;
            told.len = bytes.bytes.len;
        },
        .reset => |reset| {
            told.topic = reset.topic.ptr;
            told.topic_len = reset.topic.len;
            told.position_len = write(reset.position, &told.position);
        },
    }
    sized.write(types.NodeReading, given, told);
    return if (found == .reset) kind.reset else kind.bytes;
}

pub export fn peregrine_node_sent(node: *Node, mailbox: u64, count: usize) callconv(.c) void {
    if (!node.isForeign()) node.inner.noteRead(mailbox, count);
}

pub export fn peregrine_node_limit(node: *Node, given: *const sized.Header) callconv(.c) void {
    const bounds = sized.read(types.NodeBounds, given);
    node.inner.bounds = .{
        .capacity = std.math.clamp(bounds.capacity, 1, capacity_max),
        .life_ms = bounds.expiry_ms,
        .message_bytes = @intCast(@min(bounds.message_bytes, hub.limits.message_bytes_max)),
    };
}

pub export fn peregrine_node_limit_history(node: *Node, given: *const sized.Header) callconv(.c) void {
    const config = history.limited(&sized.read(types.History, given));
    node.inner.readers.bounds = .of(&config);
}

const capacity_max = peregrine.api_limits.channel_capacity_max;
