//! Tests of nodes that send arbitrary frames to a broker: they reach nothing beyond their share, answer for
//! no other node, and take no more room than their limits.
const std = @import("std");
const limits = @import("limits.zig");
const Present = @import("rolls.zig").Present;
const wire = @import("wire.zig");
const Broker = @import("broker.zig").Broker;
const exchange = @import("topics_test.zig").exchange;
const Config = @import("config.zig").Config;
const Node = @import("node.zig").Node;
const Part = @import("loads.zig").Part;
const Redis = @import("redis/redis.zig").Redis;
const Shares = @import("shares.zig").Shares;
const Frame = wire.Frame;
const testing = std.testing;
const gpa = testing.allocator;

/// A broker and nodes that send any frame. The secret of a node is its index.
const Scene = struct {
    const node_count = 4;
    const prefixes = [node_count][]const u8{ "", "a.", "a.", "b." };

    broker: Broker,
    connections: [node_count]Broker.Index = undefined,
    readers: [node_count]wire.Reader = @splat(.{}),

    fn init(scene: *Scene, config: *const Config) !void {
        scene.* = .{ .broker = .init(gpa, 1) };
        scene.broker.limit(config);
        for (&scene.connections, prefixes) |*connection, prefix| {
            connection.* = try scene.broker.connect(prefix);
        }
        for (0..node_count) |i| {
            try scene.greet(i, i);
            try testing.expectEqual(.welcome, (try scene.next(i)).?.kind);
        }
    }

    fn deinit(scene: *Scene) void {
        for (&scene.readers) |*reader| reader.deinit(gpa);
        scene.broker.deinit();
    }

    fn greet(scene: *Scene, i: usize, secret: wire.Secret) !void {
        try scene.say(i, &.{ .kind = .hello, .number = wire.version, .extra = &wire.writeSecret(secret) });
    }

    fn say(scene: *Scene, i: usize, frame: *const Frame) !void {
        var bytes: std.ArrayList(u8) = .empty;
        defer bytes.deinit(gpa);
        try frame.append(gpa, &bytes);
        scene.broker.receive(scene.connections[i], bytes.items);
    }

    /// The next frame for a node, valid until the next call for this node.
    fn next(scene: *Scene, i: usize) !?Frame {
        const reader = &scene.readers[i];
        if (try reader.next()) |frame| return frame;
        const index = scene.connections[i];
        if (scene.broker.isCut(index)) return null;
        const bytes = scene.broker.output(index);
        try reader.add(gpa, bytes);
        scene.broker.noteSent(index, bytes.len);
        return reader.next();
    }

    /// The code of the answer to `frame`, which is sent with number 1.
    fn code(scene: *Scene, i: usize, frame: Frame) !wire.Code {
        var numbered = frame;
        numbered.number = 1;
        try scene.say(i, &numbered);
        while (try scene.next(i)) |heard| {
            if (heard.kind == .done and heard.number == 1) return heard.code;
        }
        return error.TestUnexpectedResult;
    }

    fn expectNothing(scene: *Scene, i: usize) !void {
        try testing.expectEqual(null, try scene.next(i));
    }
};

/// The name of the channel of a node of the scene.
fn channelOf(i: usize, buffer: *[wire.Channel.name_bytes]u8) []const u8 {
    const channel: wire.Channel = .{ .node = wire.nodeOf(i), .mailbox = 1 };
    return channel.write(buffer);
}

test "a confined node names topics of its share alone, and nothing of all nodes" {
    var scene: Scene = undefined;
    try scene.init(&.{});
    defer scene.deinit();
    for ([_]wire.Kind{ .subscribe, .publish, .append, .look, .who }) |kind| {
        for ([_][]const u8{ "b.x", "a", "other" }) |name| {
            const asked: Frame = .{ .kind = kind, .name = name, .payload = "x" };
            try testing.expectEqual(.forbidden, try scene.code(1, asked));
        }
        // A topic without subscribers is answered at once.
        const own, const other = if (kind == .who) .{ "a.y", "b.y" } else .{ "a.x", "b.x" };
        try testing.expectEqual(.ok, try scene.code(1, .{ .kind = kind, .name = own, .payload = "x" }));
        try testing.expectEqual(.ok, try scene.code(0, .{ .kind = kind, .name = other, .payload = "x" }));
    }
    try testing.expectEqual(.forbidden, try scene.code(1, .{ .kind = .send, .name = "b.x", .payload = "x" }));
    try testing.expectEqual(.forbidden, try scene.code(1, .{ .kind = .flush }));
    try testing.expectEqual(.forbidden, try scene.code(1, .{ .kind = .count }));
    try testing.expectEqual(.ok, try scene.code(0, .{ .kind = .count }));
    try scene.say(1, &.{ .kind = .follow, .name = "b.x", .node = 7 });
    const refused = (try scene.next(1)).?;
    try testing.expect(refused.kind == .refused and refused.code == .forbidden and refused.node == 7);
    try testing.expectEqual(0, scene.broker.topics.by_name.get("b.x").?.followers.count());
    // Refused frames have had no effect.
    try testing.expectEqual(2, scene.broker.subscriptions);
    try testing.expect(scene.broker.topics.by_name.get("other") == null);
}

test "channels of other shares cannot be reached, from a confined node" {
    var scene: Scene = undefined;
    try scene.init(&.{});
    defer scene.deinit();
    var buffer: [wire.Channel.name_bytes]u8 = undefined;
    for ([_]usize{ 0, 3 }) |other| {
        const name = channelOf(other, &buffer);
        for ([_]Frame{
            .{ .kind = .send, .name = name, .payload = "x" },
            .{ .kind = .add, .name = name, .extra = "a.x" },
            .{ .kind = .discard, .name = name, .extra = "a.x" },
        }) |asked| try testing.expectEqual(.forbidden, try scene.code(1, asked));
        try scene.expectNothing(other);
    }
    const own = channelOf(2, &buffer);
    try scene.say(1, &.{ .kind = .send, .name = own, .payload = "x", .number = 1 });
    try testing.expectEqual(.mail, (try scene.next(2)).?.kind);
    try testing.expectEqual(.forbidden, try scene.code(1, .{ .kind = .add, .name = own, .extra = "b.x" }));
    // A node without a prefix reaches all channels, but a confined node does not subscribe to a foreign topic
    // for it.
    try scene.say(0, &.{ .kind = .add, .name = own, .extra = "b.x", .number = 1 });
    try testing.expectEqual(.join, (try scene.next(2)).?.kind);
    try testing.expectEqual(.forbidden, try scene.code(2, .{ .kind = .subscribe, .name = "b.x" }));
}

test "a node that tells a channel of another node a topic without a name is cut, and the other is not" {
    var scene: Scene = undefined;
    try scene.init(&.{});
    defer scene.deinit();
    var buffer: [wire.Channel.name_bytes]u8 = undefined;
    const name = channelOf(3, &buffer);
    try scene.say(0, &.{ .kind = .add, .name = name, .extra = "b x", .number = 1 });
    try testing.expect(scene.broker.isCut(scene.connections[0]));
    try scene.expectNothing(3);
}

test "a node answers for itself alone, and once" {
    var scene: Scene = undefined;
    try scene.init(&.{});
    defer scene.deinit();
    var buffer: [wire.Channel.name_bytes]u8 = undefined;
    try scene.say(1, &.{ .kind = .send, .name = channelOf(2, &buffer), .payload = "x", .number = 9 });
    const mail = (try scene.next(2)).?;
    const answer: Frame = .{ .kind = .answer, .node = mail.node, .number = 9, .code = .full };
    try scene.say(3, &answer);
    try scene.say(0, &answer);
    try scene.expectNothing(1);
    try scene.say(2, &.{ .kind = .answer, .node = mail.node, .number = 9, .code = .ok });
    const done = (try scene.next(1)).?;
    try testing.expect(done.kind == .done and done.number == 9 and done.code == .ok);
    try scene.say(2, &answer);
    try scene.expectNothing(1);
}

test "presence: a node answers what it was asked, once, and names channels whose secret it knows" {
    var scene: Scene = undefined;
    try scene.init(&.{});
    defer scene.deinit();
    for ([_]usize{ 1, 2 }) |i| {
        try testing.expectEqual(.ok, try scene.code(i, .{ .kind = .subscribe, .name = "a.x" }));
    }
    try scene.say(0, &.{ .kind = .who, .name = "a.x", .number = 1 });
    const question = (try scene.next(1)).?.node;
    try testing.expectEqual(question, (try scene.next(2)).?.node);
    var names: [4][wire.Channel.name_bytes]u8 = undefined;
    var said: [4 * (wire.Channel.name_bytes + 1)]u8 = undefined;
    var writer: std.Io.Writer = .fixed(&said);
    for (&names, 0..) |*name, i| writer.print("{s} ", .{channelOf(i, name)}) catch unreachable;
    var out: [Present.bytes_max]u8 = undefined;
    const lie: Present = .{ .count = 1, .names = writer.buffered() };
    const answer: Frame = .{ .kind = .present, .node = question, .payload = lie.write(&out) };
    try scene.say(1, &.{ .kind = .speak, .extra = &wire.writeSecret(3) });
    for ([_]usize{ 3, 1, 1 }) |i| try scene.say(i, &answer);
    try scene.expectNothing(0);
    try scene.say(2, &answer);
    const present: Present = try .read((try scene.next(0)).?.payload);
    try testing.expectEqual(2, present.count);
    var expected: [3 * (wire.Channel.name_bytes + 1)]u8 = undefined;
    const told = try std.fmt.bufPrint(&expected, "{s} {s} {s} ", .{
        channelOf(1, &names[1]), channelOf(3, &names[3]), channelOf(2, &names[2]),
    });
    try testing.expectEqualStrings(told, present.names);
}

test "a node's id is not taken by a node that does not know its secret" {
    var scene: Scene = undefined;
    try scene.init(&.{});
    defer scene.deinit();
    const other = try scene.broker.connect("b.");
    var bytes: std.ArrayList(u8) = .empty;
    defer bytes.deinit(gpa);
    const hello: Frame = .{
        .kind = .hello,
        .number = wire.version,
        .node = wire.nodeOf(1),
        .extra = &wire.writeSecret(wire.nodeOf(1)),
    };
    try hello.append(gpa, &bytes);
    scene.broker.receive(other, bytes.items);
    try testing.expect(!scene.broker.isCut(scene.connections[1]) and !scene.broker.isCut(other));
    try testing.expectEqual(scene.connections[1], scene.broker.by_id.get(wire.nodeOf(1)).?);
}

test "one interpreter, or one mount, does not take the room of the others" {
    var scene: Scene = undefined;
    try scene.init(&.{
        .subscriptions_max = 12,
        .interpreter_subscriptions_max = 3,
        .mount_subscriptions_max = 4,
        .mount_topics_max = 3,
        .mount_connections_max = 2,
        .interpreter_errands_max = 2,
        .interpreter_questions_max = 2,
    });
    defer scene.deinit();
    try testing.expectError(error.TooManyNodes, scene.broker.connect("a."));
    _ = try scene.broker.connect("b.");
    var name: [8]u8 = undefined;
    for ([_]usize{ 3, 1 }, [_]usize{ 1, 2 }) |most, i| {
        for (0..most + 1) |n| {
            const topic = try std.fmt.bufPrint(&name, "a.{d}", .{n});
            const expected: wire.Code = if (n < most) .ok else .too_many;
            try testing.expectEqual(expected, try scene.code(i, .{ .kind = .subscribe, .name = topic }));
        }
    }
    // A node without a prefix has its own limit.
    for (0..4) |n| {
        const topic = try std.fmt.bufPrint(&name, "c.{d}", .{n});
        const expected: wire.Code = if (n < 3) .ok else .too_many;
        try testing.expectEqual(expected, try scene.code(0, .{ .kind = .subscribe, .name = topic }));
    }
    // Followed topics are kept, so a further one finds no room in the share and is refused.
    for (0..4) |n| {
        const topic = try std.fmt.bufPrint(&name, "a.{d}", .{n});
        try scene.say(0, &.{ .kind = .follow, .name = topic, .node = n + 1 });
    }
    var refused: usize = 0;
    while (try scene.next(0)) |frame| if (frame.kind == .refused) {
        try testing.expect(frame.code == .too_many and frame.node == 4);
        refused += 1;
    };
    try testing.expectEqual(1, refused);
    try testing.expect(!scene.broker.isCut(scene.connections[0]));
    try testing.expectEqual(.ok, try scene.code(0, .{ .kind = .look, .name = "other" }));

    var buffer: [wire.Channel.name_bytes]u8 = undefined;
    for (0..3) |n| try scene.say(1, &.{
        .kind = .send,
        .name = channelOf(2, &buffer),
        .payload = "x",
        .number = @intCast(n + 2),
    });
    const full = (try scene.next(1)).?;
    try testing.expect(full.number == 4 and full.code == .too_many);
    for (0..3) |n| try scene.say(1, &.{ .kind = .who, .name = "a.0", .number = @intCast(n + 10) });
    while (try scene.next(1)) |frame| if (frame.kind == .done) {
        try testing.expect(frame.number == 12 and frame.code == .too_many);
        break;
    } else continue else return error.TestUnexpectedResult;
    try testing.expectEqual(2, scene.broker.rolls.all.items.len);
}

test "the history of a share is not lost by entries of one that has more" {
    var scene: Scene = undefined;
    try scene.init(&.{});
    defer scene.deinit();
    const quiet: Frame = .{ .kind = .append, .name = "b.quiet", .payload = "entry" };
    try testing.expectEqual(.ok, try scene.code(3, quiet));
    const long = try gpa.alloc(u8, limits.message_bytes_max);
    defer gpa.free(long);
    @memset(long, 'x');
    var name: [8]u8 = undefined;
    for (0..limits.histories_bytes_max / limits.message_bytes_max + 2) |n| {
        const topic = try std.fmt.bufPrint(&name, "a.{d}", .{n});
        try testing.expectEqual(.ok, try scene.code(1, .{ .kind = .append, .name = topic, .payload = long }));
    }
    try testing.expect(scene.broker.topics.bytes <= limits.histories_bytes_max);
    try testing.expectEqual(5, scene.broker.topics.by_name.get("b.quiet").?.log.bytes);
    try testing.expect(scene.broker.topics.by_name.get("a.0") == null);
}

test "a topic of a share is not lost by those of one that has more" {
    var broker: Broker = .init(gpa, 1);
    defer broker.deinit();
    broker.limit(&.{ .mount_topics_max = limits.history_topics_max });
    _ = try broker.connect("a.");
    var buffer: [16]u8 = undefined;
    _ = try broker.topics.append("quiet", "x");
    // Shares have equal parts. When there are three, the part of "a." is too large.
    const all = limits.history_topics_max;
    for (1..all / 2 + 2) |n| {
        const name = try std.fmt.bufPrint(&buffer, "a.{d}", .{n});
        _ = try broker.topics.append(name, "x");
    }
    try testing.expectEqual(all / 2, broker.topics.shares.at(1).topics);
    _ = try broker.connect("b.");
    _ = try broker.topics.append("b.quiet", "x");
    for ([_][]const u8{ "b.", "" }, [_]usize{ all / 3, all / 6 + 2 }) |prefix, end| {
        for (1..end) |n| {
            const name = try std.fmt.bufPrint(&buffer, "{s}{d}", .{ prefix, n });
            _ = try broker.topics.append(name, "x");
        }
    }
    try testing.expectEqual(all, broker.topics.by_name.count());
    for ([_][]const u8{ "b.quiet", "quiet" }) |name| try testing.expect(broker.topics.by_name.contains(name));
    try testing.expect(!broker.topics.by_name.contains("a.2"));
}

test "topics that were there before their share are its own from then on" {
    var broker: Broker = .init(gpa, 1);
    defer broker.deinit();
    _ = try broker.topics.append("a.x", "entry");
    _ = try broker.topics.append("c", "entry");
    _ = try broker.connect("a.");
    try testing.expectEqual(1, broker.topics.shares.at(1).topics);
    try testing.expectEqual(1, broker.topics.shares.first.topics);
    try testing.expect(broker.topics.shares.at(1).bytes > 0);
}

test "a reader of a topic that is refused hears why; one that has begun goes on when there is room" {
    var broker: Broker = .init(gpa, 1);
    defer broker.deinit();
    broker.limit(&.{ .mount_topics_max = 1 });
    var node: Node = .init(gpa, 1);
    defer node.deinit();
    var connection = try broker.connect("a.");
    try node.connected();
    exchange(&broker, connection, &node);
    const box = try node.open(0);
    const first = try node.follow(box, "a.1", .{ .as = .binary }, 0);
    const second = try node.follow(box, "a.2", .{ .as = .binary }, 0);
    const other = try node.follow(box, "b.1", .{ .as = .binary }, 0);
    exchange(&broker, connection, &node);
    while (node.next()) |event| switch (event) {
        .reply => |reply| {
            const expected: wire.Code = if (reply.number == first)
                .ok
            else if (reply.number == second) .too_many else .forbidden;
            try testing.expectEqual(expected, reply.code);
            try testing.expect(reply.number <= other);
        },
        .mail, .readable => {},
    };
    try testing.expectEqual(1, node.readers.topics.count());

    // The next hub has no room, because the share is full.
    broker.disconnect(connection);
    node.lose();
    const taken = try broker.connect("");
    var rival: Node = .init(gpa, 2);
    defer rival.deinit();
    try rival.connected();
    exchange(&broker, taken, &rival);
    const its = try rival.open(0);
    _ = try rival.follow(its, "a.2", .{ .as = .binary }, 0);
    exchange(&broker, taken, &rival);
    connection = try broker.connect("a.");
    try node.connected();
    exchange(&broker, connection, &node);
    try testing.expect(node.isMet() and !node.readers.topics.get("a.1").?.live);
    rival.close(its);
    exchange(&broker, taken, &rival);
    try testing.expect(!node.tick(10_000));
    exchange(&broker, connection, &node);
    try testing.expect(node.readers.topics.get("a.1").?.live);
}

test "with Redis: publications of one interpreter under way, and their bytes, leave room for the others" {
    const redis: *Redis = try .create(gpa, "redis://127.0.0.1", 1, .{
        .interpreter_publications_max = 2,
        .interpreter_publications_bytes_max = 1024,
    });
    defer redis.destroy();
    redis.setTime(1, 1);
    const long: [600]u8 = @splat('x');
    const part: Part = .{ .share = Shares.rest, .most = .{ .count = 100, .bytes = 1 << 20 } };
    for (0..3) |n| {
        const said = redis.append("t", "", "x", .{ .node = 1, .number = @intCast(n) }, part);
        if (n < 2) try said else try testing.expectError(error.TooMany, said);
    }
    try redis.append("t", "", &long, .{ .node = 2, .number = 1 }, part);
    try testing.expectError(error.TooMany, redis.append("t", "", &long, .{ .node = 2, .number = 2 }, part));
    try redis.append("t", "", "x", .{ .node = 2, .number = 3 }, part);
    try redis.append("t", "", &long, .{ .node = 3, .number = 1 }, part);
    try testing.expectEqual(3, redis.loads.nodes.count());
}

/// Connections of one mount, and two nodes without a prefix.
const Crowd = struct {
    const count = 11;

    broker: Broker,
    mount: [count]Broker.Index = undefined,
    others: [2]Broker.Index = undefined,

    fn init(crowd: *Crowd, redis: ?*Redis, config: *const Config) !void {
        crowd.* = .{ .broker = .init(gpa, 1) };
        crowd.broker.limit(config);
        if (redis) |there| try crowd.broker.share(there);
        for (&crowd.mount, 0..) |*index, i| index.* = try crowd.join("own.", i);
        for (&crowd.others, count..) |*index, i| index.* = try crowd.join("", i);
    }

    /// Like `init`, with Redis. The caller destroys the connection to Redis after the broker.
    fn initWithRedis(crowd: *Crowd, config: *const Config) !*Redis {
        const redis: *Redis = try .create(gpa, "redis://127.0.0.1", 1, config.*);
        errdefer redis.destroy();
        redis.setTime(1, 1);
        try crowd.init(redis, config);
        return redis;
    }

    fn join(crowd: *Crowd, prefix: []const u8, secret: wire.Secret) !Broker.Index {
        const index = try crowd.broker.connect(prefix);
        const extra = wire.writeSecret(secret);
        try crowd.say(index, &.{ .kind = .hello, .extra = &extra }, wire.version, 1);
        return index;
    }

    /// Sends a frame `times` times, with numbers from `first` on.
    fn say(crowd: *Crowd, index: Broker.Index, frame: *const Frame, first: u32, times: u32) !void {
        var bytes: std.ArrayList(u8) = .empty;
        defer bytes.deinit(gpa);
        for (0..times) |n| {
            var numbered = frame.*;
            numbered.number = first + @as(u32, @intCast(n));
            try numbered.append(gpa, &bytes);
        }
        crowd.broker.receive(index, bytes.items);
    }

    /// Subscribes a node to a topic. False: the node or its share has no room.
    fn subscribes(crowd: *Crowd, index: Broker.Index, topic: []const u8) !bool {
        try crowd.say(index, &.{ .kind = .subscribe, .name = topic }, 1, 1);
        return try crowd.answers(index, .ok) == 1;
    }

    /// Receives a message from a node of another machine for a channel of the node with this secret.
    fn hear(crowd: *Crowd, secret: usize, prefix: []const u8, from: u64, number: u32) !void {
        var name: [wire.Channel.name_bytes]u8 = undefined;
        return crowd.hearFrame(secret, &.{
            .kind = .mail,
            .name = channelOf(secret, &name),
            .extra = prefix,
            .payload = "x",
            .node = from,
            .number = number,
        });
    }

    /// Receives a frame that another machine has sent to the node with this secret.
    fn hearFrame(crowd: *Crowd, secret: usize, frame: *const Frame) !void {
        var bytes: std.ArrayList(u8) = .empty;
        defer bytes.deinit(gpa);
        try frame.append(gpa, &bytes);
        var digits: [16]u8 = undefined;
        const id = try std.fmt.bufPrint(&digits, "{x:0>16}", .{wire.nodeOf(secret)});
        _ = crowd.broker.take(.{ .message = .{
            .fed = .{ .feed = .node, .name = id },
            .bytes = bytes.items,
        } });
    }

    /// The number of waiting answers for a node with this code.
    fn answers(crowd: *Crowd, index: Broker.Index, code: wire.Code) !usize {
        var reader: wire.Reader = .{};
        defer reader.deinit(gpa);
        const bytes = crowd.broker.output(index);
        try reader.add(gpa, bytes);
        crowd.broker.noteSent(index, bytes.len);
        var found: usize = 0;
        while (try reader.next()) |frame| found += @intFromBool(frame.kind == .done and frame.code == code);
        return found;
    }
};

test "many connections of one mount do not take the room for answers from the others" {
    var crowd: Crowd = undefined;
    const config: Config = .{};
    try crowd.init(null, &config);
    defer crowd.broker.deinit();
    const silent = Crowd.count - 1;
    var names: [2][wire.Channel.name_bytes]u8 = undefined;
    const mail: Frame = .{ .kind = .send, .name = channelOf(silent, &names[0]), .payload = "x" };
    var refused: usize = 0;
    for (crowd.mount[0..silent]) |index| {
        try crowd.say(index, &mail, 1, limits.requests_max);
        refused += try crowd.answers(index, .too_many);
    }
    try testing.expectEqual(silent * limits.requests_max - config.mount_errands_max, refused);
    const other: Frame = .{ .kind = .send, .name = channelOf(Crowd.count, &names[1]), .payload = "x" };
    try crowd.say(crowd.others[1], &other, 1, limits.requests_max);
    try testing.expectEqual(0, try crowd.answers(crowd.others[1], .too_many));

    try crowd.say(crowd.mount[silent], &.{ .kind = .subscribe, .name = "own.x" }, 1, 1);
    const who: Frame = .{ .kind = .who, .name = "own.x" };
    refused = 0;
    for (crowd.mount[0..silent]) |index| {
        try crowd.say(index, &who, 1, 100);
        refused += try crowd.answers(index, .too_many);
    }
    try testing.expectEqual(silent * 100 - config.mount_questions_max, refused);
    try crowd.say(crowd.others[1], &who, 1, 100);
    try testing.expectEqual(0, try crowd.answers(crowd.others[1], .too_many));

    // Room comes back, also after connections have ended.
    for (crowd.mount[0..silent]) |index| crowd.broker.disconnect(index);
    crowd.broker.tick(2 * limits.request_ms);
    try crowd.say(crowd.mount[silent], &mail, 1, 1);
    try testing.expectEqual(0, try crowd.answers(crowd.mount[silent], .too_many));
    for (crowd.broker.errands.loads.shares[1..], 1..) |load, share| {
        try testing.expectEqual(@intFromBool(share == 1), load.count);
    }
    try testing.expectEqual(0, crowd.broker.rolls.loads.get(.node).nodes.count());
}

test "with Redis: many connections of one mount leave room for waits, publications and questions" {
    const config: Config = .{
        .mount_waits_max = 5,
        .mount_publications_max = 5,
        .mount_publications_bytes_max = 1024,
        .mount_questions_max = 5,
    };
    var crowd: Crowd = undefined;
    const redis = try crowd.initWithRedis(&config);
    defer redis.destroy();
    defer crowd.broker.deinit();
    const long: [300]u8 = @splat('x');
    for ([_]struct { Frame, usize }{
        .{ .{ .kind = .subscribe, .name = "own.x" }, 5 },
        .{ .{ .kind = .look, .name = "own.y" }, 0 },
        .{ .{ .kind = .append, .name = "own.x", .payload = &long }, 3 },
        .{ .{ .kind = .append, .name = "own.x", .payload = "x" }, 2 },
        .{ .{ .kind = .publish, .name = "own.x", .payload = "x" }, 0 },
    }) |step| {
        const frame, const room = step;
        var refused: usize = 0;
        for (crowd.mount) |index| {
            try crowd.say(index, &frame, 1, 1);
            refused += try crowd.answers(index, .too_many);
        }
        try testing.expectEqual(Crowd.count - room, refused);
        try crowd.say(crowd.others[0], &frame, 1, 1);
        try testing.expectEqual(0, try crowd.answers(crowd.others[0], .too_many));
    }
    // A question from another machine has its node's share.
    for (0..7) |n| {
        const who: Frame = .{
            .kind = .who,
            .name = "own.x",
            .payload = "own.",
            .node = 1000 + n,
            .number = 1,
        };
        var bytes: std.ArrayList(u8) = .empty;
        defer bytes.deinit(gpa);
        try who.append(gpa, &bytes);
        _ = crowd.broker.take(.{ .message = .{
            .fed = .{ .feed = .group, .name = "own.x" },
            .bytes = bytes.items,
        } });
    }
    try testing.expectEqual(5, crowd.broker.rolls.loads.get(.hub).shares[1].count);
}

test "with Redis: a topic without a name, which another machine tells a channel here, reaches no node" {
    const config: Config = .{};
    var crowd: Crowd = undefined;
    const redis = try crowd.initWithRedis(&config);
    defer redis.destroy();
    defer crowd.broker.deinit();
    var name: [wire.Channel.name_bytes]u8 = undefined;
    var frame: Frame = .{ .kind = .join, .name = channelOf(Crowd.count, &name), .node = 1000, .number = 1 };
    var before = crowd.broker.output(crowd.others[0]).len;
    for ([_]wire.Kind{ .join, .leave }) |kind| for ([_][]const u8{ "a b", "", "a" }, 0..) |topic, n| {
        frame.kind = kind;
        frame.extra = topic;
        frame.number += 1;
        try crowd.hearFrame(Crowd.count, &frame);
        const after = crowd.broker.output(crowd.others[0]).len;
        try testing.expectEqual(n == 2, after > before);
        before = after;
    };
}

test "with Redis: answers to another machine take room of the nodes that have asked" {
    const config: Config = .{ .mount_publications_max = 5 };
    var crowd: Crowd = undefined;
    const redis = try crowd.initWithRedis(&config);
    defer redis.destroy();
    defer crowd.broker.deinit();
    // Messages of confined nodes at other machines for a channel without a share are refused here.
    for (0..9) |n| try crowd.hear(Crowd.count, "own.", 1000 + n, 1);
    try testing.expectEqual(5, redis.loads.shares[1].count);
    // Answers of a confined node are sent, also where its mount has no room left.
    for (0..9) |n| try crowd.hear(0, "", 2000 + n, 1);
    for (0..9) |n| try crowd.say(crowd.mount[0], &.{ .kind = .answer, .node = 2000 + n }, 1, 1);
    try testing.expectEqual(5, redis.loads.shares[1].count);
    try testing.expectEqual(9, redis.loads.shares[Shares.rest].count);
    try testing.expectEqual(14, redis.requests.count());
    // A mount that only another machine has.
    for (0..9) |n| try crowd.hear(Crowd.count, "far.", 3000 + n, 1);
    try testing.expectEqual(5, redis.loads.shares[2].count);
    try testing.expectEqual(19, redis.requests.count());
    // All mounts of further machines together have the room of one, and leave a place for a later mount here.
    var prefix: [16]u8 = undefined;
    for (0..2 * limits.shares_max) |n| {
        try crowd.hear(Crowd.count, try std.fmt.bufPrint(&prefix, "far.{d}.", .{n}), 4000 + n, 1);
    }
    try testing.expectEqual(3, crowd.broker.topics.shares.count());
    try testing.expectEqual(19, redis.requests.count());
    _ = try crowd.broker.connect("late.");
    const publish: Frame = .{ .kind = .publish, .name = "main.x", .payload = "x" };
    try crowd.say(crowd.others[0], &publish, 1, 1);
    try testing.expectEqual(0, try crowd.answers(crowd.others[0], .unavailable));
    try testing.expectEqual(20, redis.requests.count());
}

test "however many mounts take all that they may, each has its part, and so have the nodes of none" {
    var crowd: Crowd = .{ .broker = .init(gpa, 1) };
    const broker = &crowd.broker;
    defer broker.deinit();
    broker.limit(&.{
        .subscriptions_max = 60,
        .mount_subscriptions_max = 15,
        .interpreter_errands_max = limits.errands_max,
        .interpreter_questions_max = limits.rolls_max,
    });
    const prefixes = [_][]const u8{ "", "a.", "b.", "c.", "d.", "e." };
    // For each share one node asks and one never answers.
    var asking: [prefixes.len]Broker.Index = undefined;
    var silent: [prefixes.len]Broker.Index = undefined;
    for (prefixes, &asking, &silent, 0..) |prefix, *asks, *answers, i| {
        asks.* = try crowd.join(prefix, 2 * i);
        answers.* = try crowd.join(prefix, 2 * i + 1);
    }
    var buffer: [16]u8 = undefined;
    // The nodes without a mount come last.
    var i: usize = prefixes.len;
    while (i > 0) {
        i -= 1;
        const prefix = prefixes[i];
        try testing.expect(try crowd.subscribes(silent[i], try std.fmt.bufPrint(&buffer, "{s}x", .{prefix})));
        for (1..60 / prefixes.len + 1) |n| {
            const topic = try std.fmt.bufPrint(&buffer, "{s}{d}", .{ prefix, n });
            const has_room = n < 60 / prefixes.len;
            try testing.expectEqual(has_room, try crowd.subscribes(asking[i], topic));
        }

        var name: [wire.Channel.name_bytes]u8 = undefined;
        const mail: Frame = .{ .kind = .send, .name = channelOf(2 * i + 1, &name), .payload = "x" };
        try crowd.say(asking[i], &mail, 1, limits.errands_max / prefixes.len);
        const who: Frame = .{ .kind = .who, .name = try std.fmt.bufPrint(&buffer, "{s}x", .{prefix}) };
        try crowd.say(asking[i], &who, 1, limits.rolls_max / 2 / prefixes.len);
        try testing.expectEqual(0, try crowd.answers(asking[i], .too_many));
        try crowd.say(asking[i], &mail, 200_000, limits.errands_max / prefixes.len);
        try crowd.say(asking[i], &who, 400_000, limits.rolls_max / prefixes.len);
        try testing.expect(try crowd.answers(asking[i], .too_many) > 0);

        for (0..limits.history_topics_max / prefixes.len) |n| {
            const topic = try std.fmt.bufPrint(&buffer, "{s}{d}", .{ prefix, n });
            try broker.topics.follow(asking[i], topic, 1, null);
        }
        for (2..limits.nodes_max / prefixes.len) |_| {
            _ = broker.connect(prefix) catch |err| {
                // A mount may have a limit below its part.
                try testing.expect(err == error.TooManyNodes and prefix.len > 0);
                break;
            };
        }
    }
}

test "a node is not cut for the bytes that wait for another share" {
    var crowd: Crowd = .{ .broker = .init(gpa, 1) };
    const broker = &crowd.broker;
    defer broker.deinit();
    const long = try gpa.alloc(u8, limits.message_bytes_max);
    defer gpa.free(long);
    @memset(long, 'x');
    const most = limits.hub_queue_bytes_max / limits.message_bytes_max;
    const slow = try crowd.join("a.", 0);
    try testing.expect(try crowd.subscribes(slow, "a.x"));
    const publication: Frame = .{ .kind = .publish, .name = "a.x", .payload = long };
    // As many bytes as may wait for one node.
    try crowd.say(slow, &publication, 0, 1);
    for (2..most) |_| try crowd.say(slow, &publication, 0, 1);
    try testing.expect(!broker.isCut(slow));

    const sender = try crowd.join("b.", 1);
    var many: [limits.hub_bytes_max / limits.hub_queue_bytes_max + 2]Broker.Index = undefined;
    for (&many, 2..) |*index, i| {
        index.* = try crowd.join("b.", i);
        try testing.expect(try crowd.subscribes(index.*, "b.x"));
    }
    const flood: Frame = .{ .kind = .publish, .name = "b.x", .payload = long };
    for (1..most) |_| try crowd.say(sender, &flood, 0, 1);
    try testing.expect(broker.counts.cut > 0);
    try testing.expect(!broker.isCut(slow));
}

test "with Redis: a node that reads too slowly for its own flush is cut, and the hub goes on" {
    var crowd: Crowd = undefined;
    const redis = try crowd.initWithRedis(&.{ .interpreter_publications_max = 1 });
    defer redis.destroy();
    defer crowd.broker.deinit();
    const broker = &crowd.broker;
    const slow, const sender = crowd.others;
    // The flush cannot be sent to other machines, because the node has as many messages under way as it may.
    try crowd.say(slow, &.{ .kind = .publish, .name = "x", .payload = "x" }, 1, 1);
    const long = try gpa.alloc(u8, limits.message_bytes_max);
    defer gpa.free(long);
    @memset(long, 'x');
    var buffer: [wire.Channel.name_bytes]u8 = undefined;
    const name = channelOf(Crowd.count, &buffer);
    while (true) {
        const left = limits.hub_queue_bytes_max - broker.output(slow).len;
        if (left == 0) break;
        const mail: Frame = .{ .kind = .send, .name = name };
        try crowd.say(sender, &.{
            .kind = .send,
            .name = name,
            .payload = long[0..@min(long.len, left - mail.size())],
        }, 0, 1);
    }
    try testing.expect(!broker.isCut(slow));
    try crowd.say(slow, &.{ .kind = .flush }, 2, 1);
    try testing.expect(broker.isCut(slow) and !broker.isCut(sender));
}

test "many nodes of one mount are read no more in a turn than a few" {
    var broker: Broker = .init(gpa, 1);
    defer broker.deinit();
    const other = try broker.connect("");
    for (1..broker.config.mount_connections_max + 1) |count| {
        const index = try broker.connect("a.");
        const bytes = broker.turnBytes(index);
        try testing.expect(bytes > 0 and bytes <= limits.turn_bytes_max);
        try testing.expect(bytes * count <= limits.mount_turn_bytes_max);
        try testing.expectEqual(limits.turn_bytes_max, broker.turnBytes(other));
    }
}
