//! The hub's state machine: its nodes, the topics that each node wants, and the bytes for each node. All
//! publications to a topic pass here in one order, which is the order at every node. topics.zig has topics
//! with history.
//!
//! A node may be confined to topics whose names begin with its share's prefix (shares.zig): it may name no
//! other topics, and only channels of nodes that are confined to the same share.
//!
//! With Redis (redis/redis.zig) hubs of several machines act as one: publications go to Redis, and come back
//! from there to all hubs in Redis's order. Does not know: sockets, processes, and the content of messages.
const std = @import("std");
const assert = std.debug.assert;
const Config = @import("config.zig").Config;
const Errands = @import("errands.zig").Errands;
const limits = @import("limits.zig");
const outgoing = @import("outgoing.zig");
const Position = @import("position.zig").Position;
const wire = @import("wire.zig");
const tally_file = @import("tally.zig");
const Tally = tally_file.Tally;
const Share = @import("shares.zig").Share;
const Shares = @import("shares.zig").Shares;
const Topics = @import("topics.zig").Topics;
const redis_file = @import("redis/redis.zig");
const Redis = redis_file.Redis;
const Asker = redis_file.Asker;
const Answerer = redis_file.Answerer;
const Most = @import("loads.zig").Most;
const Part = @import("loads.zig").Part;
const Waiting = @import("waiting.zig").Waiting;
const rolls_file = @import("rolls.zig");
const Rolls = rolls_file.Rolls;
const Present = rolls_file.Present;
const Channel = wire.Channel;
const Fed = @import("redis/keys.zig").Fed;
const Frame = wire.Frame;

const Node = struct {
    state: union(enum) {
        /// The place is free.
        free,
        /// The node is connected, and has sent no frame yet.
        silent,
        /// The node has sent its hello; the value is its id.
        met: u64,
        /// The node is to be disconnected, because it breaks the rules or reads too slowly.
        cut,
    } = .free,
    /// The share whose topics the node may name.
    share: Shares.Index = Shares.rest,
    /// Ids of further nodes whose channels the node may name in answers, the newest last.
    voices: std.ArrayList(u64) = .empty,
    reader: wire.Reader = .{},
    output: std.ArrayList(u8) = .empty,
    /// Bytes at the front of `output` that were sent.
    sent: usize = 0,
    /// Topics of channels to which the node has subscribed, with names from the keys of `Broker.groups`.
    topics: std.StringHashMapUnmanaged(void) = .empty,
    /// The present numbers that the node reported last.
    now: tally_file.Now = .{},

    fn waiting(node: *const Node) usize {
        return node.output.items.len - node.sent;
    }
};

/// The nodes that have subscribed to a topic of channels.
const Group = struct {
    nodes: std.ArrayList(Broker.Index) = .empty,
    /// Counts up to choose the node for the next message that only one channel of the topic gets.
    turn: usize = 0,
};

/// Counts of events since the hub's start, and present numbers. Peregrine::Publisher has names for them, in
/// this order, and then for those of tally.zig.
pub const Counts = struct {
    nodes: u64 = 0,
    /// Topics of channels with subscribers.
    subscribed: u64 = 0,
    /// Topics with history, and the bytes of their entries.
    topics: u64 = 0,
    history_bytes: u64 = 0,
    /// Messages that were published to topics of channels, and messages that were sent to single channels.
    published: u64 = 0,
    sent: u64 = 0,
    /// Bytes of both kinds of messages.
    message_bytes: u64 = 0,
    /// Entries of topics with history, and their bytes.
    entries: u64 = 0,
    entry_bytes: u64 = 0,
    /// Nodes that were cut, because they read too slowly or broke the rules.
    cut: u64 = 0,
    /// Redis: 0: not configured, 1: not reachable, 2: connected.
    redis: u64 = 0,
    /// Connections to Redis that ended.
    redis_lost: u64 = 0,
    /// Messages that could not be published in Redis.
    redis_failed: u64 = 0,
};

pub const Broker = struct {
    /// The number of a node's place, from `connect` to `disconnect`.
    pub const Index = u32;

    gpa: std.mem.Allocator,
    nodes: std.ArrayList(Node) = .empty,
    by_id: std.AutoHashMapUnmanaged(u64, Index) = .empty,
    groups: std.StringHashMapUnmanaged(Group) = .empty,
    /// Bytes that wait for all nodes together.
    waiting: usize = 0,
    config: Config = .{},
    topics: Topics,
    /// The number of subscriptions of all nodes.
    subscriptions: u32 = 0,
    errands: Errands = .{},
    /// The connection to Redis; null: the hub works alone.
    redis: ?*Redis = null,
    /// Requests that are answered when Redis has sent something.
    waits: Waiting = .{},
    /// Questions about subscribers that are not answered yet.
    rolls: Rolls,
    now_ms: u64 = 0,
    counts: Counts = .{},
    /// Sums of the events that all nodes have reported since the hub's start.
    events: tally_file.Events = .{},

    /// `seed` must be random.
    pub fn init(gpa: std.mem.Allocator, seed: u64) Broker {
        return .{ .gpa = gpa, .topics = .init(gpa, seed), .rolls = .init(gpa) };
    }

    /// Sets limits. May be called only before the first node.
    pub fn limit(broker: *Broker, config: *const Config) void {
        assert(config.isValid() and broker.nodes.items.len == 0);
        broker.config = config.*;
        broker.topics.bounds = .of(config);
        broker.topics.share_topics_max = config.mount_topics_max;
    }

    /// Connects the hub to others through Redis. May be called only before the first node. The caller owns
    /// `redis`.
    pub fn share(broker: *Broker, redis: *Redis) error{OutOfMemory}!void {
        assert(broker.nodes.items.len == 0 and broker.topics.by_name.count() == 0);
        try redis.subscriptions.want(everybody);
        broker.redis = redis;
        broker.topics.subscriptions = &redis.subscriptions;
    }

    /// The feed of frames that all hubs get.
    const everybody: Fed = .{ .feed = .node, .name = "all" };

    pub fn deinit(broker: *Broker) void {
        for (broker.nodes.items) |*node| {
            node.reader.deinit(broker.gpa);
            node.output.deinit(broker.gpa);
            node.voices.deinit(broker.gpa);
            node.topics.deinit(broker.gpa);
        }
        broker.errands.deinit(broker.gpa);
        broker.nodes.deinit(broker.gpa);
        broker.by_id.deinit(broker.gpa);
        var groups = broker.groups.iterator();
        while (groups.next()) |entry| {
            broker.gpa.free(entry.key_ptr.*);
            entry.value_ptr.nodes.deinit(broker.gpa);
        }
        broker.groups.deinit(broker.gpa);
        broker.waits.deinit(broker.gpa);
        broker.rolls.deinit();
        broker.topics.deinit();
        broker.* = undefined;
    }

    /// Takes a connection of a node that has not sent its hello. It may name topics that begin with `prefix`,
    /// which its connection decides and not the node; empty: all topics.
    pub fn connect(
        broker: *Broker,
        prefix: []const u8,
    ) (Shares.Error || error{TooManyNodes})!Index {
        defer broker.invariants();
        const own = try broker.topics.shareOf(prefix);
        const room = broker.topics.shares.roomOf(own, limits.nodes_max, broker.config.mount_connections_max);
        if (broker.topics.shares.at(own).nodes >= room) return error.TooManyNodes;
        const index = for (broker.nodes.items, 0..) |*node, index| {
            if (node.state == .free) break index;
        } else blk: {
            if (broker.nodes.items.len == limits.nodes_max) return error.TooManyNodes;
            try broker.nodes.append(broker.gpa, .{});
            break :blk broker.nodes.items.len - 1;
        };
        broker.nodes.items[index] = .{ .state = .silent, .share = own };
        broker.topics.shares.at(own).nodes += 1;
        return @intCast(index);
    }

    fn shareOf(broker: *Broker, index: Index) *Share {
        return broker.topics.shares.at(broker.nodes.items[index].share);
    }

    /// The share of a node; the share without a prefix for a node that is not connected here.
    fn shareOfNode(broker: *const Broker, id: u64) Shares.Index {
        return broker.nodes.items[broker.by_id.get(id) orelse return Shares.rest].share;
    }

    /// Ends a node's connection, and its subscriptions.
    pub fn disconnect(broker: *Broker, index: Index) void {
        defer broker.invariants();
        if (!broker.isCut(index)) broker.counts.cut -%= 1;
        broker.cut(index);
        broker.shareOf(index).nodes -= 1;
        const node = &broker.nodes.items[index];
        node.reader.deinit(broker.gpa);
        node.output.deinit(broker.gpa);
        node.voices.deinit(broker.gpa);
        node.* = .{};
    }

    /// Whether the owner must close the connection and call `disconnect`.
    pub fn isCut(broker: *const Broker, index: Index) bool {
        return broker.nodes.items[index].state == .cut;
    }

    /// Sets the time in milliseconds, and ends what is overdue.
    pub fn tick(broker: *Broker, now_ms: u64) void {
        broker.now_ms = now_ms;
        broker.waits.tick(broker.gpa, now_ms);
        broker.errands.tick(now_ms);
        broker.answerSyncs();
        broker.answerRolls();
        broker.topics.tick(now_ms);
    }

    /// The bytes that wait for a node.
    pub fn output(broker: *Broker, index: Index) []const u8 {
        while (broker.nodes.items[index].waiting() < limits.follow_bytes_max and !broker.isCut(index)) {
            const frame = broker.topics.next(index) orelse break;
            broker.say(index, &frame);
        }
        const node = &broker.nodes.items[index];
        return node.output.items[node.sent..];
    }

    /// Notes that the socket has taken the first `count` bytes that wait for a node.
    pub fn noteSent(broker: *Broker, index: Index, count: usize) void {
        defer broker.invariants();
        const node = &broker.nodes.items[index];
        assert(count <= node.waiting());
        broker.waiting -= count;
        broker.shareOf(index).waiting -= count;
        outgoing.noteSent(broker.gpa, &node.output, &node.sent, count);
    }

    /// Bytes of a node that may be read before all others have their turn. Nodes of a share with a prefix
    /// divide one amount among them, so that many of them keep no others waiting.
    pub fn turnBytes(broker: *Broker, index: Index) usize {
        const own = broker.shareOf(index);
        assert(own.nodes > 0);
        if (own.prefix.len == 0) return limits.turn_bytes_max;
        return std.math.clamp(limits.mount_turn_bytes_max / own.nodes, 4 << 10, limits.turn_bytes_max);
    }

    /// Handles bytes that a node has sent.
    pub fn receive(broker: *Broker, index: Index, bytes: []const u8) void {
        defer broker.invariants();
        if (broker.isCut(index)) return;
        broker.nodes.items[index].reader.add(broker.gpa, bytes) catch return broker.cut(index);
        while (!broker.isCut(index)) {
            const reader = &broker.nodes.items[index].reader;
            const frame = (reader.next() catch return broker.cut(index)) orelse return;
            broker.handle(index, &frame) catch broker.cut(index);
        }
    }

    // ---- Frames of nodes

    fn handle(broker: *Broker, index: Index, frame: *const Frame) !void {
        const id = switch (broker.nodes.items[index].state) {
            .silent => return broker.meet(index, frame),
            .met => |id| id,
            .free, .cut => unreachable,
        };
        if (try broker.isForbidden(index, frame)) return broker.forbid(index, frame);
        switch (frame.kind) {
            .subscribe => try broker.subscribed(index, id, frame),
            .unsubscribe => broker.unsubscribe(index, frame.name),
            .publish => try broker.publish(index, id, frame),
            .send => try broker.send(index, id, frame),
            .add => try broker.ask(index, id, frame, .join),
            .discard => try broker.ask(index, id, frame, .leave),
            .flush => broker.flushEverywhere(.{ .node = id, .number = frame.number }),
            .sync => try broker.sync(index, id, frame.number),
            .append => if (broker.redis) |redis|
                try broker.appendThere(redis, index, id, frame)
            else
                broker.place(index, frame.number, broker.append(frame)),
            .look => if (broker.redis != null)
                try broker.lookThere(index, id, frame)
            else
                broker.place(index, frame.number, broker.look(frame)),
            .follow => try broker.follow(index, frame),
            .tally => {
                const tally: Tally = try .read(frame.payload);
                broker.events.add(&tally.events);
                broker.nodes.items[index].now = tally.now;
            },
            .count => broker.tellCounts(index, frame.number),
            .unfollow => broker.topics.unfollow(index, frame.name),
            .who => try broker.askWho(index, id, frame),
            .present => try broker.answerRoll(index, id, frame),
            .answer => if (broker.errands.take(askerOf(frame), id)) |share_of_asker| {
                if (broker.by_id.get(frame.node)) |asker| {
                    try broker.answer(asker, frame.number, frame.code);
                } else if (broker.redis != null) {
                    broker.answerThere(share_of_asker, frame, frame.code);
                }
            },
            .speak => try broker.speak(index, try wire.readSecret(frame.extra)),
            else => return error.Malformed,
        }
    }

    /// Whether the node's share forbids the frame.
    fn isForbidden(broker: *Broker, index: Index, frame: *const Frame) !bool {
        const own = broker.shareOf(index);
        if (own.prefix.len == 0) return false;
        return switch (frame.kind) {
            .subscribe, .publish, .append, .look, .follow, .who => !own.has(frame.name),
            .send => Channel.parse(frame.name) == null and !own.has(frame.name),
            .add, .discard => !own.has(frame.extra),
            // Frames about all nodes; a confined node may not send them.
            .flush, .count => true,
            // Frames about the node itself, answers, and frames that no node sends.
            else => false,
        };
    }

    fn forbid(broker: *Broker, index: Index, frame: *const Frame) !void {
        if (frame.kind != .follow) return broker.answer(index, frame.number, .forbidden);
        if (!wire.isName(frame.name)) return error.Malformed;
        broker.refuseFollow(index, frame, .forbidden);
    }

    /// Whether a node of the share with `prefix` may send to the channels of the node `target`.
    fn mayReach(broker: *Broker, prefix: []const u8, target: Index) bool {
        return prefix.len == 0 or std.mem.eql(u8, prefix, broker.shareOf(target).prefix);
    }

    /// Lets a node name the channels of another node, whose secret it knows, because it reads for them.
    fn speak(broker: *Broker, index: Index, secret: wire.Secret) !void {
        const voices = &broker.nodes.items[index].voices;
        const id = wire.nodeOf(secret);
        if (std.mem.findScalar(u64, voices.items, id) != null) return;
        if (voices.items.len == limits.voices_max) _ = voices.orderedRemove(0);
        try voices.append(broker.gpa, id);
    }

    /// A hello. A node may connect again before the end of its old connection is noticed.
    fn meet(broker: *Broker, index: Index, frame: *const Frame) !void {
        if (frame.kind != .hello or frame.number != wire.version) return error.Malformed;
        const id = wire.nodeOf(try wire.readSecret(frame.extra));
        if (broker.by_id.get(id)) |other| broker.cut(other);
        try broker.by_id.ensureUnusedCapacity(broker.gpa, 1);
        if (broker.redis) |redis| {
            var digits: [node_digits]u8 = undefined;
            try redis.subscriptions.want(feedOfNode(id, &digits));
        }
        broker.by_id.putAssumeCapacityNoClobber(id, index);
        broker.nodes.items[index].state = .{ .met = id };
        broker.say(index, &.{ .kind = .welcome, .number = wire.version });
    }

    fn answer(broker: *Broker, index: Index, number: u32, code: wire.Code) !void {
        if (number != 0) broker.say(index, &.{ .kind = .done, .number = number, .code = code });
    }

    fn tellCounts(broker: *Broker, index: Index, number: u32) void {
        broker.counts.nodes = broker.by_id.count();
        broker.counts.subscribed = broker.groups.count();
        broker.counts.topics = broker.topics.by_name.count();
        broker.counts.history_bytes = broker.topics.bytes;
        if (broker.redis) |redis| {
            broker.counts.redis = if (redis.isReady()) 2 else 1;
            broker.counts.redis_lost = redis.counts.lost;
            broker.counts.redis_failed = redis.counts.failed;
        }
        var sum: Tally = .{ .events = broker.events };
        for (broker.nodes.items) |*node| sum.now.add(&node.now);
        const names = @typeInfo(Counts).@"struct".field_names;
        var extra: [8 * names.len + Tally.bytes]u8 = undefined;
        inline for (names, 0..) |name, at| {
            std.mem.writeInt(u64, extra[at * 8 ..][0..8], @field(broker.counts, name), .little);
        }
        sum.write(extra[8 * names.len ..]);
        broker.say(index, &.{ .kind = .done, .number = number, .extra = &extra });
    }

    // ---- Topics with history

    const Placed = error{ OutOfMemory, TooMany, TooLong, Malformed }!Position;

    fn append(broker: *Broker, frame: *const Frame) Placed {
        // An entry without bytes would have no frame in some variants.
        if (!wire.isName(frame.name) or frame.payload.len == 0) return error.Malformed;
        const place_of = try broker.topics.append(frame.name, frame.payload);
        broker.noteEntry(frame.payload.len);
        return place_of;
    }

    fn noteEntry(broker: *Broker, len: usize) void {
        broker.counts.entries += 1;
        broker.counts.entry_bytes += len;
    }

    fn look(broker: *Broker, frame: *const Frame) Placed {
        if (!wire.isName(frame.name)) return error.Malformed;
        return broker.topics.look(frame.name);
    }

    /// Answers a request for a position.
    fn place(broker: *Broker, index: Index, number: u32, made: Placed) void {
        var extra: [wire.place_bytes]u8 = undefined;
        const position = made catch |err| return switch (err) {
            error.Malformed => broker.cut(index),
            error.OutOfMemory, error.TooMany, error.TooLong => broker.say(index, &.{
                .kind = .done,
                .number = number,
                .code = .too_many,
            }),
        };
        wire.writePlace(position, &extra);
        broker.say(index, &.{ .kind = .done, .number = number, .extra = &extra });
    }

    fn follow(broker: *Broker, index: Index, frame: *const Frame) !void {
        if (!wire.isName(frame.name)) return error.Malformed;
        const has = if (frame.extra.len == 0) null else try wire.readPlace(frame.extra);
        broker.topics.follow(index, frame.name, frame.node, has) catch |err| switch (err) {
            error.OutOfMemory => return error.OutOfMemory,
            error.TooMany => broker.refuseFollow(index, frame, .too_many),
        };
    }

    fn refuseFollow(broker: *Broker, index: Index, frame: *const Frame, code: wire.Code) void {
        broker.say(index, &.{ .kind = .refused, .name = frame.name, .node = frame.node, .code = code });
    }

    // ---- Channels

    fn subscribe(broker: *Broker, index: Index, name: []const u8) !wire.Code {
        if (!wire.isName(name)) return error.Malformed;
        const topics = &broker.nodes.items[index].topics;
        if (topics.contains(name)) return .ok;
        if (!broker.hasRoomFor(index)) return .too_many;
        try topics.ensureUnusedCapacity(broker.gpa, 1);
        if (broker.groups.getEntry(name)) |entry| {
            try entry.value_ptr.nodes.append(broker.gpa, index);
            topics.putAssumeCapacityNoClobber(entry.key_ptr.*, {});
        } else {
            const own = try broker.gpa.dupe(u8, name);
            errdefer broker.gpa.free(own);
            var group: Group = .{};
            errdefer group.nodes.deinit(broker.gpa);
            try group.nodes.append(broker.gpa, index);
            try broker.groups.ensureUnusedCapacity(broker.gpa, 1);
            if (broker.redis) |redis| try redis.subscriptions.want(.{ .feed = .group, .name = name });
            broker.groups.putAssumeCapacityNoClobber(own, group);
            topics.putAssumeCapacityNoClobber(own, {});
        }
        broker.shareOf(index).subscriptions += 1;
        broker.subscriptions += 1;
        return .ok;
    }

    /// Whether the node may have one more subscription.
    fn hasRoomFor(broker: *Broker, index: Index) bool {
        const config = &broker.config;
        const node = &broker.nodes.items[index];
        if (node.topics.count() >= config.interpreter_subscriptions_max) return false;
        const shares = &broker.topics.shares;
        const room = shares.roomOf(node.share, config.subscriptions_max, config.mount_subscriptions_max);
        return shares.at(node.share).subscriptions < room and broker.subscriptions < config.subscriptions_max;
    }

    fn unsubscribe(broker: *Broker, index: Index, name: []const u8) void {
        if (broker.nodes.items[index].topics.remove(name)) broker.leave(index, name);
    }

    /// Removes the node from a topic's group, after the topic was removed from the node.
    fn leave(broker: *Broker, index: Index, name: []const u8) void {
        const group = broker.groups.getPtr(name).?;
        const at = std.mem.findScalar(Index, group.nodes.items, index).?;
        _ = group.nodes.orderedRemove(at);
        broker.shareOf(index).subscriptions -= 1;
        broker.subscriptions -= 1;
        if (group.nodes.items.len > 0) return;
        broker.leaveFeed(name);
        var entry = broker.groups.fetchRemove(name).?;
        entry.value.nodes.deinit(broker.gpa);
        broker.gpa.free(entry.key);
    }

    fn publish(broker: *Broker, index: Index, id: u64, frame: *const Frame) !void {
        broker.counts.published += 1;
        broker.counts.message_bytes += frame.payload.len;
        if (!wire.isName(frame.name)) return error.Malformed;
        const publication: Frame = .{
            .kind = .publication,
            .name = frame.name,
            .extra = frame.extra,
            .payload = frame.payload,
        };
        if (broker.redis == null) {
            broker.distribute(&publication);
            if (!broker.isCut(index)) try broker.answer(index, frame.number, .ok);
            return;
        }
        const fed: Fed = .{ .feed = .group, .name = frame.name };
        const asker: Asker = .{ .node = id, .number = frame.number };
        broker.tell(fed, &publication, asker, .hub) catch |err| try broker.refuse(index, frame.number, err);
    }

    /// Sends a publication to all nodes of this hub that have subscribed to its topic.
    fn distribute(broker: *Broker, publication: *const Frame) void {
        const group = broker.groups.getPtr(publication.name) orelse return;
        // Nodes that are cut meanwhile leave the group.
        var targets: [limits.nodes_max]Index = undefined;
        const count = group.nodes.items.len;
        @memcpy(targets[0..count], group.nodes.items);
        for (targets[0..count]) |target| {
            if (!broker.isCut(target)) broker.say(target, publication);
        }
    }

    fn send(broker: *Broker, index: Index, id: u64, frame: *const Frame) !void {
        broker.counts.sent += 1;
        broker.counts.message_bytes += frame.payload.len;
        const mail: Frame = .{
            .kind = .mail,
            .name = frame.name,
            .extra = broker.shareOf(index).prefix,
            .payload = frame.payload,
            .node = id,
            .number = frame.number,
        };
        if (Channel.parse(frame.name)) |channel| return broker.deliver(index, channel.node, &mail);
        const target = broker.nodeInTurn(frame.name) orelse
            return broker.answer(index, frame.number, .gone);
        return broker.sendOn(index, target, &mail);
    }

    /// Sends a frame to another node, which answers the node that has asked.
    fn deliver(broker: *Broker, index: Index, target: u64, frame: *const Frame) !void {
        if (broker.by_id.get(target)) |here| {
            if (!broker.mayReach(broker.shareOf(index).prefix, here)) {
                return broker.answer(index, frame.number, .forbidden);
            }
            return broker.sendOn(index, here, frame);
        }
        if (broker.redis == null) return broker.answer(index, frame.number, .gone);
        broker.route(target, frame, askerOf(frame), .node) catch |err|
            try broker.refuse(index, frame.number, err);
    }

    /// Sends a frame of one node to another node of this hub.
    fn sendOn(broker: *Broker, index: Index, target: Index, frame: *const Frame) !void {
        const own = broker.nodes.items[index].share;
        broker.entrust(target, own, frame) catch |err| switch (err) {
            error.OutOfMemory => return error.OutOfMemory,
            error.TooMany => try broker.answer(index, frame.number, .too_many),
        };
    }

    /// Sends a frame to a node of this hub that must answer it. The node that asked is of share `own`.
    fn entrust(
        broker: *Broker,
        target: Index,
        own: Shares.Index,
        frame: *const Frame,
    ) error{ OutOfMemory, TooMany }!void {
        const by = broker.nodes.items[target].state.met;
        const config = &broker.config;
        const room = broker.topics.shares.roomOf(own, limits.errands_max, config.mount_errands_max);
        const most: Most = .ofCounts(config.interpreter_errands_max, room);
        try broker.errands.add(broker.gpa, askerOf(frame), own, by, most, broker.now_ms);
        broker.say(target, frame);
    }

    fn nodeInTurn(broker: *Broker, name: []const u8) ?Index {
        const group = broker.groups.getPtr(name) orelse return null;
        group.turn +%= 1;
        return group.nodes.items[group.turn % group.nodes.items.len];
    }

    /// Sends a request about a channel to the channel's node.
    fn ask(broker: *Broker, index: Index, id: u64, frame: *const Frame, kind: wire.Kind) !void {
        const channel = Channel.parse(frame.name) orelse
            return broker.answer(index, frame.number, .no_channel);
        // The channel's node would leave its hub because of an invalid topic name.
        if (!wire.isName(frame.extra)) return error.Malformed;
        return broker.deliver(index, channel.node, &.{
            .kind = kind,
            .name = frame.name,
            .extra = frame.extra,
            .payload = broker.shareOf(index).prefix,
            .node = id,
            .number = frame.number,
        });
    }

    fn flush(broker: *Broker) void {
        var groups = broker.groups.iterator();
        while (groups.next()) |entry| {
            broker.leaveFeed(entry.key_ptr.*);
            broker.gpa.free(entry.key_ptr.*);
            entry.value_ptr.nodes.deinit(broker.gpa);
        }
        broker.groups.clearRetainingCapacity();
        for (broker.nodes.items) |*node| node.topics.clearAndFree(broker.gpa);
        for (0..broker.topics.shares.count()) |at| broker.topics.shares.at(@intCast(at)).subscriptions = 0;
        broker.subscriptions = 0;
        for (0..broker.nodes.items.len) |at| {
            if (broker.nodes.items[at].state == .met) broker.say(@intCast(at), &.{ .kind = .flushed });
        }
    }

    /// Flushes all hubs. A node that reads too slowly for `flushed` is cut, and gets no answer.
    fn flushEverywhere(broker: *Broker, asker: Asker) void {
        broker.flush();
        const redis = broker.redis orelse return broker.reply(asker, .ok);
        // This hub gets the message, too.
        const flushed: Frame = .{ .kind = .flushed, .node = redis.hub };
        broker.tell(everybody, &flushed, asker, .hub) catch |err| broker.reply(asker, codeOf(err));
    }

    // ---- Redis

    const nobody: Asker = .{ .node = 0, .number = 0 };
    const node_digits = 16;

    fn feedOfNode(id: u64, digits: *[node_digits]u8) Fed {
        return .{ .feed = .node, .name = std.fmt.bufPrint(digits, "{x:0>16}", .{id}) catch unreachable };
    }

    fn leaveFeed(broker: *Broker, group: []const u8) void {
        if (broker.redis) |redis| redis.subscriptions.unwant(.{ .feed = .group, .name = group });
    }

    const Told = error{ OutOfMemory, Full, TooMany };

    /// Sends a frame to all subscribers of a feed.
    fn tell(broker: *Broker, fed: Fed, frame: *const Frame, asker: Asker, by: Answerer) Told!void {
        return broker.tellFor(broker.shareOfNode(asker.node), fed, frame, asker, by);
    }

    /// Like `tell`, for a frame whose answer counts for the share `own`.
    fn tellFor(
        broker: *Broker,
        own: Shares.Index,
        fed: Fed,
        frame: *const Frame,
        asker: Asker,
        by: Answerer,
    ) Told!void {
        var bytes: std.ArrayList(u8) = .empty;
        defer bytes.deinit(broker.gpa);
        try frame.append(broker.gpa, &bytes);
        return broker.redis.?.say(fed, bytes.items, asker, broker.partOf(own), by);
    }

    /// Sends a frame to a node of another hub, which answers, unless Redis finds no subscriber.
    fn route(broker: *Broker, id: u64, frame: *const Frame, asker: Asker, by: Answerer) Told!void {
        var digits: [node_digits]u8 = undefined;
        return broker.tell(feedOfNode(id, &digits), frame, asker, by);
    }

    /// Answers a request that was not sent.
    fn refuse(broker: *Broker, index: Index, number: u32, why: Told) !void {
        try broker.answer(index, number, codeOf(why));
    }

    fn codeOf(why: Told) wire.Code {
        return if (why == error.TooMany) .too_many else .unavailable;
    }

    fn subscribed(broker: *Broker, index: Index, id: u64, frame: *const Frame) !void {
        const code = try broker.subscribe(index, frame.name);
        const fed: Fed = .{ .feed = .group, .name = frame.name };
        const redis = broker.redis orelse return broker.answer(index, frame.number, code);
        if (code != .ok or redis.subscriptions.isThere(fed)) return broker.answer(index, frame.number, code);
        try broker.wait(index, id, frame.number, .group, frame.name);
    }

    /// Answers when all subscriptions that the node has asked for are there.
    fn sync(broker: *Broker, index: Index, id: u64, number: u32) !void {
        const redis = broker.redis orelse return broker.answer(index, number, .ok);
        if (redis.subscriptions.pending == 0) return broker.answer(index, number, .ok);
        try broker.wait(index, id, number, .{ .all_groups = try redis.subscriptions.wait() }, "");
    }

    fn wait(broker: *Broker, index: Index, id: u64, number: u32, what: Waiting.What, name: []const u8) !void {
        if (number == 0) return;
        const until = broker.now_ms + limits.request_ms;
        const asker: Asker = .{ .node = id, .number = number };
        const own = broker.nodes.items[index].share;
        const most = broker.mostWaits(own);
        broker.waits.add(broker.gpa, asker, own, most, what, name, until) catch |err| switch (err) {
            error.OutOfMemory => return error.OutOfMemory,
            error.TooMany => try broker.answer(index, number, .too_many),
        };
    }

    fn mostWaits(broker: *const Broker, own: Shares.Index) Most {
        const all = limits.waiting_requests_max;
        const room = broker.topics.shares.roomOf(own, all, broker.config.mount_waits_max);
        return .ofCounts(broker.config.interpreter_waits_max, room);
    }

    /// The limits of a share for publications on their way to Redis.
    fn partOf(broker: *const Broker, own: Shares.Index) Part {
        const config = &broker.config;
        const shares = &broker.topics.shares;
        return .{ .share = own, .most = .{
            .count = @intCast(shares.roomOf(own, config.publications_max, config.mount_publications_max)),
            .bytes = shares.roomOf(
                own,
                config.publications_bytes_max,
                config.mount_publications_bytes_max,
            ),
        } };
    }

    fn appendThere(broker: *Broker, redis: *Redis, index: Index, id: u64, frame: *const Frame) !void {
        if (!wire.isName(frame.name) or frame.payload.len == 0) return error.Malformed;
        const asker: Asker = .{ .node = id, .number = frame.number };
        const own = broker.nodes.items[index].share;
        const prefix = broker.topics.prefixOf(frame.name);
        redis.append(frame.name, prefix, frame.payload, asker, broker.partOf(own)) catch |err| switch (err) {
            error.TooLong => try broker.answer(index, frame.number, .too_many),
            error.OutOfMemory, error.Full, error.TooMany => |told| {
                try broker.refuse(index, frame.number, told);
            },
        };
    }

    fn lookThere(broker: *Broker, index: Index, id: u64, frame: *const Frame) !void {
        if (!wire.isName(frame.name)) return error.Malformed;
        _ = broker.topics.look(frame.name) catch |err| switch (err) {
            error.OutOfMemory, error.TooMany => return broker.answer(index, frame.number, .too_many),
        };
        if (broker.topics.tipOf(frame.name)) |tip| return broker.place(index, frame.number, tip);
        try broker.wait(index, id, frame.number, .tip, frame.name);
    }

    fn reply(broker: *Broker, asker: Asker, code: wire.Code) void {
        const index = broker.by_id.get(asker.node) orelse return;
        if (asker.number != 0) broker.say(index, &.{ .kind = .done, .number = asker.number, .code = code });
    }

    fn replyPlace(broker: *Broker, asker: Asker, at: Position) void {
        const index = broker.by_id.get(asker.node) orelse return;
        broker.place(index, asker.number, at);
    }

    /// Handles an event of Redis. True: the owner of Redis's sockets must act.
    pub fn take(broker: *Broker, event: redis_file.Event) bool {
        defer broker.invariants();
        switch (event) {
            .nothing => {},
            .connect, .close => return true,
            .published => |end| broker.takePublished(end.asker, end.topic, end.len, end.outcome),
            .said => |said| switch (said.outcome) {
                .heard => |count| switch (said.by) {
                    .hub => broker.reply(said.asker, .ok),
                    .node => if (count == 0) broker.reply(said.asker, .gone),
                    .hubs => {
                        broker.rolls.expect(said.asker, count);
                        broker.answerRolls();
                    },
                },
                .refused, .unavailable, .unknown => {
                    if (said.by == .hubs) broker.rolls.drop(said.asker);
                    broker.reply(said.asker, if (said.outcome == .unknown) .unknown else .unavailable);
                },
            },
            .subscribed => |fed| broker.heardOf(fed),
            .message => |message| broker.hear(message.fed, message.bytes),
            .moved => |topic| broker.answerPlaces(topic),
        }
        return false;
    }

    fn takePublished(
        broker: *Broker,
        asker: Asker,
        topic: []const u8,
        len: usize,
        outcome: redis_file.Outcome,
    ) void {
        const at = switch (outcome) {
            .published => |at| at,
            .refused => |failure| return broker.reply(asker, switch (failure.remedy()) {
                .try_again => .too_many,
                .reconnect, .give_up => .unavailable,
            }),
            .unavailable => return broker.reply(asker, .unavailable),
            .unknown => return broker.reply(asker, .unknown),
        };
        broker.noteEntry(len);
        if (!broker.by_id.contains(asker.node)) return;
        // The answer waits until the entry has come back from Redis, so that a reader that begins then does
        // not get it as a new one.
        const tip = broker.topics.tipOf(topic) orelse return broker.replyPlace(asker, at);
        if (tip.epoch != at.epoch or tip.mark.offset >= at.mark.offset) return broker.replyPlace(asker, at);
        const until = broker.now_ms + limits.request_ms;
        const own = broker.shareOfNode(asker.node);
        broker.waits.add(broker.gpa, asker, own, broker.mostWaits(own), .{ .entry = at }, topic, until) catch
            broker.replyPlace(asker, at);
    }

    /// Answers requests that wait for the subscription of a feed.
    fn heardOf(broker: *Broker, fed: Fed) void {
        var at: usize = 0;
        while (broker.waits.next(&at)) |request| switch (request.what) {
            .group => if (fed.feed == .group and std.mem.eql(u8, fed.name, request.name)) {
                broker.reply(broker.waits.take(broker.gpa, &at), .ok);
            },
            .all_groups, .tip, .entry => {},
        };
        broker.answerSyncs();
    }

    /// Answers requests that wait for all subscriptions. The last subscription may end without an answer of
    /// Redis, because it is no longer wanted.
    fn answerSyncs(broker: *Broker) void {
        const redis = broker.redis orelse return;
        var at: usize = 0;
        while (broker.waits.next(&at)) |request| switch (request.what) {
            .all_groups => |round| if (redis.subscriptions.isOver(round)) {
                broker.reply(broker.waits.take(broker.gpa, &at), .ok);
            },
            .group, .tip, .entry => {},
        };
    }

    /// Answers requests whose position is known now, for one topic or for all topics (null).
    fn answerPlaces(broker: *Broker, topic: ?[]const u8) void {
        var at: usize = 0;
        while (broker.waits.next(&at)) |request| {
            if (topic) |name| if (!std.mem.eql(u8, name, request.name)) continue;
            const tip = broker.topics.tipOf(request.name);
            switch (request.what) {
                .group, .all_groups => {},
                .tip => if (tip) |place_of| broker.replyPlace(broker.waits.take(broker.gpa, &at), place_of),
                .entry => |place_of| {
                    const is_missing = if (tip) |newest|
                        newest.epoch == place_of.epoch and newest.mark.offset < place_of.mark.offset
                    else
                        false;
                    if (!is_missing) broker.replyPlace(broker.waits.take(broker.gpa, &at), place_of);
                },
            }
        }
    }

    /// Handles a frame of this hub or another one. Bytes that are no frame are ignored, because other
    /// programs may publish to these channels.
    fn hear(broker: *Broker, fed: Fed, bytes: []const u8) void {
        const frame = wire.parse(bytes) catch return;
        switch (fed.feed) {
            .entries => unreachable, // entries have an event of their own
            .group => {
                if (!std.mem.eql(u8, frame.name, fed.name)) return;
                if (frame.kind == .publication) broker.distribute(&frame);
                if (frame.kind == .who) broker.hearQuestion(&frame);
            },
            .node => switch (frame.kind) {
                .flushed => if (frame.node != broker.redis.?.hub) broker.flush(),
                .who => broker.hearQuestion(&frame),
                .present => {
                    const present = Present.read(frame.payload) catch return;
                    broker.rolls.answerOf(askerOf(&frame), &present);
                    broker.answerRolls();
                },
                .mail, .join, .leave, .answer => {
                    const id = std.fmt.parseInt(u64, fed.name, 16) catch return;
                    const index = broker.by_id.get(id) orelse return;
                    // The node would leave its hub because of an invalid topic name.
                    const names_topic = frame.kind == .join or frame.kind == .leave;
                    if (names_topic and !wire.isName(frame.extra)) return;
                    if (frame.kind != .answer) return broker.hearErrand(index, &frame);
                    broker.answer(index, frame.number, frame.code) catch {};
                },
                else => {},
            },
        }
    }

    /// Handles a frame from a node at another hub to a node here. The other hub has checked that its node may
    /// name the topic. If that node is confined, both must be of one share.
    fn hearErrand(broker: *Broker, index: Index, frame: *const Frame) void {
        const prefix = if (frame.kind == .mail) frame.extra else frame.payload;
        const own = if (prefix.len == 0) Shares.rest else broker.nodes.items[index].share;
        const code: wire.Code = if (!broker.mayReach(prefix, index))
            .forbidden
        else if (broker.entrust(index, own, frame)) |_| return else |_| .too_many;
        broker.answerThere(broker.shareThere(prefix), frame, code);
    }

    /// Answers a node at another hub. The answer counts for that node's share, if this hub knows the share.
    /// If the share has too many answers on their way, no answer is sent.
    fn answerThere(broker: *Broker, own: Shares.Index, asked: *const Frame, code: wire.Code) void {
        var digits: [node_digits]u8 = undefined;
        const asker: Asker = .{ .node = asked.node, .number = 0 };
        broker.tellFor(own, feedOfNode(asked.node, &digits), &.{
            .kind = .answer,
            .code = code,
            .node = asked.node,
            .number = asked.number,
        }, asker, .node) catch {};
    }

    /// The share of a node at another hub, also if no node here is of that share.
    fn shareThere(broker: *Broker, prefix: []const u8) Shares.Index {
        return broker.topics.shares.ofElsewhere(prefix) catch Shares.rest;
    }

    // ---- Questions about subscribers

    fn askerOf(frame: *const Frame) Asker {
        return .{ .node = frame.node, .number = frame.number };
    }

    fn askWho(broker: *Broker, index: Index, id: u64, frame: *const Frame) !void {
        if (!wire.isName(frame.name)) return error.Malformed;
        const asker: Asker = .{ .node = id, .number = frame.number };
        broker.beginRoll(asker, frame) catch |err| try broker.answer(index, frame.number, switch (err) {
            error.TooMany => .too_many,
            error.OutOfMemory, error.Full => .unavailable,
        });
        broker.answerRolls();
    }

    fn beginRoll(broker: *Broker, asker: Asker, frame: *const Frame) Told!void {
        const by = broker.asking(.{ .node = asker }, broker.shareOfNode(asker.node));
        if (broker.redis == null) return broker.callRoll(by, frame);
        try broker.rolls.askHubs(by, broker.now_ms + 2 * limits.roll_ms);
        errdefer broker.rolls.drop(asker);
        const who: Frame = .{
            .kind = .who,
            .name = frame.name,
            .extra = frame.extra,
            .payload = broker.topics.shares.at(by.share).prefix,
            .node = asker.node,
            .number = asker.number,
        };
        const fed: Fed = if (frame.extra.len == 0) .{ .feed = .group, .name = frame.name } else everybody;
        return broker.tell(fed, &who, asker, .hubs);
    }

    fn asking(broker: *const Broker, target: rolls_file.For, own: Shares.Index) Rolls.By {
        const config = &broker.config;
        // With Redis nodes and hubs ask, each up to half of the limit.
        const all: u32 = if (broker.redis == null) limits.rolls_max else limits.rolls_max / 2;
        const room = broker.topics.shares.roomOf(own, all, config.mount_questions_max);
        return .{
            .target = target,
            .share = own,
            .most = .ofCounts(config.interpreter_questions_max, room),
        };
    }

    /// Handles a question of a node at any hub, with the prefix of its share. Without room for the question,
    /// the asking hub gets no answer from this one.
    fn hearQuestion(broker: *Broker, frame: *const Frame) void {
        const own = broker.shareThere(frame.payload);
        broker.callRoll(broker.asking(.{ .hub = askerOf(frame) }, own), frame) catch {};
    }

    /// Asks the nodes of this hub.
    fn callRoll(
        broker: *Broker,
        by: Rolls.By,
        frame: *const Frame,
    ) error{ OutOfMemory, TooMany }!void {
        var targets: [limits.nodes_max]Index = undefined;
        var count: usize = 0;
        if (frame.extra.len == 0) {
            if (broker.groups.getPtr(frame.name)) |group| {
                count = group.nodes.items.len;
                @memcpy(targets[0..count], group.nodes.items);
            }
        } else if (broker.topics.by_name.get(frame.name)) |topic| {
            count = topic.followers.count();
            @memcpy(targets[0..count], topic.followers.keys());
        }
        var ids: [limits.nodes_max]u64 = undefined;
        for (targets[0..count], ids[0..count]) |node, *id| id.* = broker.nodes.items[node].state.met;
        const number = try broker.rolls.ask(by, ids[0..count], broker.now_ms + limits.roll_ms);
        for (targets[0..count]) |node| {
            if (broker.isCut(node)) continue;
            broker.say(node, &.{ .kind = .roll, .name = frame.name, .extra = frame.extra, .node = number });
        }
        broker.answerRolls();
    }

    /// Handles a node's answer. It may name its own channels, and those of nodes for which it speaks; other
    /// names are left out.
    fn answerRoll(broker: *Broker, index: Index, id: u64, frame: *const Frame) !void {
        var present: Present = try .read(frame.payload);
        var names: [Present.bytes_max]u8 = undefined;
        var writer: std.Io.Writer = .fixed(&names);
        const voices = broker.nodes.items[index].voices.items;
        var each = std.mem.tokenizeScalar(u8, present.names, ' ');
        while (each.next()) |name| {
            const channel = Channel.parse(name) orelse continue;
            if (channel.node != id and std.mem.findScalar(u64, voices, channel.node) == null) continue;
            writer.print("{s} ", .{name}) catch unreachable; // the names are a part of names that fit
        }
        present.names = writer.buffered();
        broker.rolls.answer(frame.node, id, &present);
        broker.answerRolls();
    }

    fn answerRolls(broker: *Broker) void {
        var out: [Present.bytes_max]u8 = undefined;
        while (broker.rolls.next(broker.now_ms, &out)) |over| switch (over.target) {
            .node => |asker| {
                const index = broker.by_id.get(asker.node) orelse continue;
                broker.say(index, &.{ .kind = .done, .number = asker.number, .payload = over.bytes });
            },
            .hub => |asker| {
                const present: Frame = .{
                    .kind = .present,
                    .node = asker.node,
                    .number = asker.number,
                    .payload = over.bytes,
                };
                if (broker.by_id.contains(asker.node)) {
                    const own = Present.read(over.bytes) catch unreachable; // this hub has written the bytes
                    broker.rolls.answerOf(asker, &own);
                } else broker.route(asker.node, &present, nobody, .hub) catch {};
            },
        };
    }

    // ---- Frames for nodes

    /// Queues a frame for a node. A node that reads too slowly is cut.
    fn say(broker: *Broker, index: Index, frame: *const Frame) void {
        const node = &broker.nodes.items[index];
        assert(node.state == .met);
        if (node.waiting() + frame.size() > limits.hub_queue_bytes_max) return broker.cut(index);
        const before = node.output.items.len;
        frame.append(broker.gpa, &node.output) catch return broker.cut(index);
        const added = node.output.items.len - before;
        broker.waiting += added;
        broker.shareOf(index).waiting += added;
        if (broker.waiting > limits.hub_bytes_max) broker.cut(broker.slowest());
    }

    /// The node with the most waiting bytes, in the share with the most. So no node is cut because of nodes
    /// of another share.
    fn slowest(broker: *Broker) Index {
        const share_of_most = broker.topics.shares.withMost(.waiting);
        var most: u64 = 0;
        var found: ?Index = null;
        for (broker.nodes.items, 0..) |*node, index| {
            if (node.waiting() <= most or broker.shareOf(@intCast(index)) != share_of_most) continue;
            most = node.waiting();
            found = @intCast(index);
        }
        return found.?;
    }

    /// Cuts a node: its frames are no longer read, and it gets none.
    fn cut(broker: *Broker, index: Index) void {
        const node = &broker.nodes.items[index];
        switch (node.state) {
            .free => unreachable,
            .cut => return,
            .silent => {},
            .met => |id| {
                assert(broker.by_id.remove(id));
                if (broker.redis) |redis| {
                    var digits: [node_digits]u8 = undefined;
                    redis.subscriptions.unwant(feedOfNode(id, &digits));
                }
            },
        }
        node.state = .cut;
        broker.counts.cut +%= 1;
        broker.waiting -= node.waiting();
        broker.shareOf(index).waiting -= node.waiting();
        node.output.clearAndFree(broker.gpa);
        node.sent = 0;
        var names = node.topics.keyIterator();
        while (names.next()) |name| broker.leave(index, name.*);
        node.topics.clearAndFree(broker.gpa);
        broker.topics.leaveAll(index);
    }

    pub fn invariants(broker: *Broker) void {
        if (!std.debug.runtime_safety or broker.groups.count() > checked_groups_max) return;
        var waiting: usize = 0;
        var topics: usize = 0;
        var met: usize = 0;
        for (broker.nodes.items, 0..) |*node, index| {
            waiting += node.waiting();
            topics += node.topics.count();
            switch (node.state) {
                .met => |id| {
                    met += 1;
                    assert(broker.by_id.get(id).? == index);
                },
                .free, .silent => {
                    assert(node.topics.count() == 0 and node.waiting() == 0 and node.voices.items.len == 0);
                },
                .cut => assert(node.topics.count() == 0 and node.waiting() == 0),
            }
        }
        assert(waiting == broker.waiting and waiting <= limits.hub_bytes_max);
        for (0..broker.topics.shares.count()) |at| waiting -= broker.topics.shares.at(@intCast(at)).waiting;
        assert(waiting == 0);
        assert(met == broker.by_id.count());
        assert(topics == broker.subscriptions);
        var groups = broker.groups.iterator();
        while (groups.next()) |entry| {
            const nodes = entry.value_ptr.nodes.items;
            assert(nodes.len > 0);
            for (nodes) |index| assert(broker.nodes.items[index].state == .met);
            topics -= nodes.len;
        }
        assert(topics == 0);
    }

    /// The number of topics up to which all are checked after each frame; more would take most of the hub's
    /// time.
    const checked_groups_max = 32;
};
