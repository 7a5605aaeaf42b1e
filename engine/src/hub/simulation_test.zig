//! A broker and nodes over simulated connections that are late, lose bytes at their ends, and deliver them in
//! any pieces. Properties: a node gets only messages of topics to which it has subscribed; a message comes at
//! most once, and messages of one publisher in order; all nodes get the messages of a topic in one order;
//! each request has one reply; without losses, each subscriber gets each message.
const std = @import("std");
const limits = @import("limits.zig");
const Present = @import("rolls.zig").Present;
const wire = @import("wire.zig");
const Broker = @import("broker.zig").Broker;
const Node = @import("node.zig").Node;
const Seeds = @import("seeds.zig").Seeds;
const testing = std.testing;

const World = struct {
    const node_count = 3;
    const topics = [_][]const u8{ "a", "b" };

    broker: Broker,
    nodes: [node_count]Node,
    /// The broker's index of each node's connection; null: the node is not connected.
    connections: [node_count]?Broker.Index = @splat(null),
    mailboxes: [node_count][2]u64 = undefined,
    member: [node_count][2][topics.len]bool = @splat(@splat(@splat(false))),
    /// The number of the last message that a mailbox got from each publisher, by topic.
    last: [node_count][2][topics.len][node_count]u32 = @splat(@splat(@splat(@splat(0)))),
    /// The publishers and numbers of all messages that a mailbox got from each topic.
    logs: [node_count][2][topics.len]std.ArrayList([2]u32) = @splat(@splat(@splat(.empty))),
    published: [node_count]u32 = @splat(0),
    open_requests: std.AutoHashMapUnmanaged([2]u32, void) = .empty,
    received: usize = 0,
    now: u64 = 1,
    losses: bool,

    fn init(losses: bool) World {
        const gpa = testing.allocator;
        var world: World = .{ .broker = .init(gpa, 1), .nodes = undefined, .losses = losses };
        for (&world.nodes, 0..) |*node, i| node.* = .init(gpa, 100 + i);
        return world;
    }

    fn deinit(world: *World) void {
        for (&world.nodes) |*node| node.deinit();
        for (&world.logs) |*node| for (node) |*mailbox| for (mailbox) |*log| log.deinit(testing.allocator);
        world.open_requests.deinit(testing.allocator);
        world.broker.deinit();
    }

    fn openMailboxes(world: *World) !void {
        for (&world.nodes, &world.mailboxes) |*node, *mailboxes| {
            for (mailboxes) |*mailbox| mailbox.* = try node.open(0);
        }
    }

    fn connect(world: *World, i: usize) !void {
        if (world.connections[i] != null) return;
        try world.nodes[i].connected();
        world.connections[i] = try world.broker.connect("");
    }

    fn cut(world: *World, i: usize) void {
        const index = world.connections[i] orelse return;
        world.connections[i] = null;
        world.broker.disconnect(index);
        world.nodes[i].lose();
    }

    /// Moves some bytes in one direction, and lets both ends handle them.
    fn move(world: *World, random: std.Random, i: usize) !void {
        const index = world.connections[i] orelse return;
        const node = &world.nodes[i];
        if (random.boolean()) {
            const bytes = node.toSend();
            const count = random.intRangeAtMost(usize, 0, bytes.len);
            if (count > 0) {
                var copy: [1 << 16]u8 = undefined;
                const piece = copy[0..@min(count, copy.len)];
                @memcpy(piece, bytes[0..piece.len]);
                node.noteSent(piece.len);
                world.broker.receive(index, piece);
            }
        } else {
            const bytes = world.broker.output(index);
            const count = random.intRangeAtMost(usize, 0, @min(bytes.len, 1 << 16));
            if (count > 0) {
                var copy: [1 << 16]u8 = undefined;
                @memcpy(copy[0..count], bytes[0..count]);
                world.broker.noteSent(index, count);
                node.receive(copy[0..count], world.now);
            }
        }
        for (0..node_count) |other| {
            const connection = world.connections[other] orelse continue;
            if (world.broker.isCut(connection)) world.cut(other);
        }
        if (!node.isConnected()) world.cut(i);
    }

    fn note(world: *World, i: usize, asked: Node.Asked) !void {
        const number = asked catch |err| switch (err) {
            error.Unavailable => return testing.expect(world.losses),
            else => return err,
        };
        try testing.expect(!world.open_requests.contains(.{ @intCast(i), number }));
        try world.open_requests.put(testing.allocator, .{ @intCast(i), number }, {});
    }

    fn act(world: *World, random: std.Random) !void {
        const i = random.uintLessThan(usize, node_count);
        const node = &world.nodes[i];
        const mailbox = random.uintLessThan(usize, 2);
        const topic = random.uintLessThan(usize, topics.len);
        switch (random.uintLessThan(u32, if (world.losses) 8 else 7)) {
            0, 1 => {
                world.published[i] += 1;
                const bytes = std.mem.toBytes([3]u32{ @intCast(topic), @intCast(i), world.published[i] });
                try world.note(i, node.publish(topics[topic], &bytes, "", world.now));
            },
            2 => {
                try world.note(i, node.subscribe(world.mailboxes[i][mailbox], topics[topic], world.now));
                world.member[i][mailbox][topic] = true;
            },
            3 => if (world.losses) {
                node.unsubscribe(world.mailboxes[i][mailbox], topics[topic]);
                world.member[i][mailbox][topic] = false;
                // Messages that came before the end of the subscription can still be read.
                while (node.take(world.mailboxes[i][mailbox], world.now)) |message| node.release(message);
            },
            4, 5 => try world.read(i, mailbox),
            6 => try world.connect(i),
            7 => if (random.uintLessThan(u32, 8) == 0) world.cut(i),
            else => unreachable,
        }
    }

    fn read(world: *World, i: usize, mailbox: usize) !void {
        const node = &world.nodes[i];
        while (node.take(world.mailboxes[i][mailbox], world.now)) |message| {
            defer node.release(message);
            const topic, const publisher, const number = std.mem.bytesToValue([3]u32, message.bytes);
            world.received += 1;
            try testing.expect(world.member[i][mailbox][topic]);
            const last = &world.last[i][mailbox][topic][publisher];
            try testing.expect(number > last.*);
            last.* = number;
            try world.logs[i][mailbox][topic].append(testing.allocator, .{ publisher, number });
        }
    }

    /// Checks that the messages which two mailboxes got of a topic came in one order.
    fn checkOrder(world: *World) !void {
        for (0..topics.len) |topic| {
            for (0..2 * node_count) |one| for (0..one) |other| {
                const first = world.logs[one / 2][one % 2][topic].items;
                const second = world.logs[other / 2][other % 2][topic].items;
                var last: usize = 0;
                for (first) |what| for (second, 1..) |entry, place| {
                    if (entry[0] != what[0] or entry[1] != what[1]) continue;
                    try testing.expect(place > last);
                    last = place;
                };
            };
        }
    }

    fn replies(world: *World) !void {
        for (&world.nodes, 0..) |*node, i| while (node.next()) |event| switch (event) {
            .reply => |reply| {
                const key: [2]u32 = .{ @intCast(i), reply.number };
                try testing.expect(world.open_requests.remove(key));
                if (!world.losses) try testing.expectEqual(wire.Code.ok, reply.code);
            },
            .mail, .readable => {},
        };
    }

    fn settle(world: *World, random: std.Random) !void {
        for (0..node_count) |i| try world.connect(i);
        for (0..3000) |_| for (0..node_count) |i| {
            try world.move(random, i);
            if (world.connections[i] == null) try world.connect(i);
        };
        try world.replies();
        for (0..node_count) |i| for (0..2) |mailbox| try world.read(i, mailbox);
    }
};

fn live(seed: u64, losses: bool) !void {
    errdefer std.debug.print("seed {d}\n", .{seed});
    var prng: std.Random.DefaultPrng = .init(seed);
    const random = prng.random();
    var world: World = .init(losses);
    defer world.deinit();
    try world.openMailboxes();
    for (0..400) |_| {
        world.now += random.uintLessThan(u64, 3);
        try world.act(random);
        for (0..4) |_| try world.move(random, random.uintLessThan(usize, World.node_count));
        try world.replies();
    }
    try world.settle(random);
    try testing.expectEqual(0, world.open_requests.count());
    // Subscriptions that were made before the losses are still valid.
    const before = world.received;
    var expected: usize = 0;
    for (0..World.topics.len) |topic| {
        world.published[0] += 1;
        const bytes = std.mem.toBytes([3]u32{ @intCast(topic), 0, world.published[0] });
        try world.note(0, world.nodes[0].publish(World.topics[topic], &bytes, "", world.now));
        for (&world.member) |*mailboxes| for (mailboxes) |*memberships| {
            expected += @intFromBool(memberships[topic]);
        };
    }
    try world.settle(random);
    try testing.expectEqual(expected, world.received - before);
    try world.checkOrder();
}

test "nodes that stay connected" {
    const seeds: Seeds = try .init(0, 25);
    for (seeds.first..seeds.end) |seed| try live(seed, false);
}

test "nodes that lose their hub, and come again" {
    const seeds: Seeds = try .init(1000, 50);
    for (seeds.first..seeds.end) |seed| try live(seed, true);
}

const Pair = struct {
    broker: Broker,
    nodes: [2]Node,
    connections: [2]Broker.Index,

    fn init() !Pair {
        var pair: Pair = .{
            .broker = .init(testing.allocator, 1),
            .nodes = .{ .init(testing.allocator, 1), .init(testing.allocator, 2) },
            .connections = undefined,
        };
        for (&pair.nodes, &pair.connections) |*node, *connection| {
            try node.connected();
            connection.* = try pair.broker.connect("");
        }
        pair.settle(0);
        return pair;
    }

    fn deinit(pair: *Pair) void {
        for (&pair.nodes) |*node| node.deinit();
        pair.broker.deinit();
    }

    fn settle(pair: *Pair, now: u64) void {
        for (0..6) |_| for (&pair.nodes, pair.connections) |*node, connection| {
            const said = node.toSend();
            pair.broker.receive(connection, said);
            node.noteSent(said.len);
            const heard = pair.broker.output(connection);
            node.receive(heard, now);
            pair.broker.noteSent(connection, heard.len);
        };
    }

    fn code(pair: *Pair, i: usize, asked: Node.Asked) !wire.Code {
        const number = try asked;
        pair.settle(0);
        while (pair.nodes[i].next()) |event| switch (event) {
            .reply => |reply| if (reply.number == number) return reply.code,
            .mail, .readable => {},
        };
        return error.NoReply;
    }

    fn name(pair: *Pair, i: usize, mailbox: u64, buffer: *[wire.Channel.name_bytes]u8) []const u8 {
        const channel: wire.Channel = .{ .node = pair.nodes[i].id, .mailbox = mailbox };
        return channel.write(buffer);
    }

    fn expectMail(pair: *Pair, i: usize, mailbox: u64, text: ?[]const u8) !void {
        const message = pair.nodes[i].take(mailbox, 0) orelse return testing.expectEqual(text, null);
        defer pair.nodes[i].release(message);
        try testing.expectEqualStrings(text orelse return error.UnexpectedMail, message.bytes);
    }
};

test "send: to a channel elsewhere, to one that has ended, to a full one, and to a topic's channels in turn" {
    var pair: Pair = try .init();
    defer pair.deinit();
    const there = try pair.nodes[1].open(7);
    var buffer: [wire.Channel.name_bytes]u8 = undefined;
    const name = pair.name(1, there, &buffer);
    try pair.expectMail(1, there, null);
    try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].send(name, "one", 0)));
    const event = pair.nodes[1].next().?;
    try testing.expectEqual(7, event.mail.user);
    try testing.expectEqual(null, pair.nodes[1].next());
    try pair.expectMail(1, there, "one");
    for (0..limits.mailbox_messages_max) |_| {
        try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].send(name, "x", 0)));
    }
    try testing.expectEqual(.full, try pair.code(0, pair.nodes[0].send(name, "x", 0)));
    pair.nodes[1].close(there);
    try testing.expectError(error.Gone, pair.nodes[1].subscribe(there, "t", 0));
    try testing.expectEqual(.gone, try pair.code(0, pair.nodes[0].send(name, "x", 0)));
    try testing.expectEqual(.gone, try pair.code(0, pair.nodes[0].send("conn.00000000000000ff.1", "x", 0)));
    try testing.expectEqual(.gone, try pair.code(0, pair.nodes[0].send("pool", "x", 0)));
    const workers = [_]u64{ try pair.nodes[1].open(0), try pair.nodes[1].open(0) };
    for (workers) |worker| {
        try testing.expectEqual(.ok, try pair.code(1, pair.nodes[1].subscribe(worker, "pool", 0)));
    }
    for (0..2) |_| try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].send("pool", "task", 0)));
    for (workers) |worker| {
        try pair.expectMail(1, worker, "task");
        try pair.expectMail(1, worker, null);
    }
}

test "publish leaves out channels, full mailboxes and what has expired" {
    var pair: Pair = try .init();
    defer pair.deinit();
    const here = try pair.nodes[0].open(0);
    const there = try pair.nodes[1].open(0);
    try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].subscribe(here, "t", 0)));
    try testing.expectEqual(.ok, try pair.code(1, pair.nodes[1].subscribe(there, "t", 0)));
    var buffer: [wire.Channel.name_bytes]u8 = undefined;
    const excluded = pair.name(0, here, &buffer);
    try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].publish("t", "hello", excluded, 0)));
    try pair.expectMail(0, here, null);
    try pair.expectMail(1, there, "hello");
    for (0..limits.mailbox_messages_max + 1) |_| {
        try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].publish("t", "x", "", 0)));
    }
    for (0..limits.mailbox_messages_max) |_| try pair.expectMail(1, there, "x");
    try pair.expectMail(1, there, null);
    try testing.expect(pair.nodes[0].has(here, limits.message_life_ms - 1));
    try testing.expect(pair.nodes[0].bytes > 0);
    _ = pair.nodes[0].tick(limits.message_life_ms);
    try testing.expectEqual(0, pair.nodes[0].bytes);
}

test "channels elsewhere are added to topics and discarded, and flush ends all of it" {
    var pair: Pair = try .init();
    defer pair.deinit();
    const there = try pair.nodes[1].open(0);
    var buffer: [wire.Channel.name_bytes]u8 = undefined;
    const name = pair.name(1, there, &buffer);
    try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].change(.add, name, "t", 0)));
    try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].publish("t", "1", "", 0)));
    try pair.expectMail(1, there, "1");
    try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].change(.discard, name, "t", 0)));
    try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].publish("t", "2", "", 0)));
    try pair.expectMail(1, there, null);
    try testing.expectEqual(.no_channel, try pair.code(0, pair.nodes[0].change(.add, "t", "t", 0)));
    try testing.expectEqual(.ok, try pair.code(1, pair.nodes[1].subscribe(there, "t", 0)));
    try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].publish("t", "3", "", 0)));
    try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].flush(0)));
    try pair.expectMail(1, there, null);
    try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].publish("t", "4", "", 0)));
    try pair.expectMail(1, there, null);
    try testing.expectEqual(0, pair.broker.groups.count());
}

test "a request that the hub never answers ends: unavailable if it has not gone, unknown if it has" {
    const gpa = testing.allocator;
    var node: Node = .init(gpa, 1);
    defer node.deinit();
    const early = try node.publish("t", "1", "", 0);
    try testing.expect(node.tick(limits.request_ms));
    try testing.expectEqual(wire.Code.unavailable, node.next().?.reply.code);
    try testing.expectEqual(0, node.toSend().len);
    try testing.expectError(error.Unavailable, node.publish("t", "1", "", 0));
    try testing.expect(early != 0);

    var broker: Broker = .init(gpa, 1);
    defer broker.deinit();
    const connection = try broker.connect("");
    try node.connected();
    const hello = node.toSend();
    broker.receive(connection, hello);
    node.noteSent(hello.len);
    node.receive(broker.output(connection), 0);
    const late = try node.publish("t", "1", "", 0);
    node.noteSent(node.toSend().len);
    const later = try node.publish("t", "2", "", 0);
    node.lose();
    var codes: [2]wire.Code = undefined;
    while (node.next()) |event| codes[if (event.reply.number == late) 0 else 1] = event.reply.code;
    try testing.expect(later != late);
    try testing.expectEqual([2]wire.Code{ .unknown, .unavailable }, codes);
}

test "a node that reads too slowly is cut, and no other" {
    var pair: Pair = try .init();
    defer pair.deinit();
    const there = try pair.nodes[1].open(0);
    try testing.expectEqual(.ok, try pair.code(1, pair.nodes[1].subscribe(there, "t", 0)));
    const long = try testing.allocator.alloc(u8, limits.message_bytes_max);
    defer testing.allocator.free(long);
    @memset(long, 'x');
    for (0..limits.hub_queue_bytes_max / limits.message_bytes_max) |_| {
        try testing.expect(!pair.broker.isCut(pair.connections[1]));
        _ = try pair.nodes[0].publish("t", long, "", 0);
        const said = pair.nodes[0].toSend();
        pair.broker.receive(pair.connections[0], said);
        pair.nodes[0].noteSent(said.len);
    }
    try testing.expect(pair.broker.isCut(pair.connections[1]));
    try testing.expect(!pair.broker.isCut(pair.connections[0]));
    try testing.expectEqual(0, pair.broker.groups.count());
}

test "bytes that no node would send: the broker cuts who sent them, and serves the others" {
    var prng: std.Random.DefaultPrng = .init(5);
    const random = prng.random();
    for (0..300) |_| {
        var pair: Pair = try .init();
        defer pair.deinit();
        const here = try pair.nodes[0].open(0);
        try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].subscribe(here, "t", 0)));
        _ = try pair.nodes[1].publish("t", "hello", "", 0);
        _ = try pair.nodes[1].flush(0);
        var bytes: [256]u8 = undefined;
        const said = pair.nodes[1].toSend();
        @memcpy(bytes[0..said.len], said);
        for (0..1 + random.uintLessThan(usize, 4)) |_| {
            bytes[random.uintLessThan(usize, said.len)] = random.int(u8);
        }
        pair.broker.receive(pair.connections[1], bytes[0..said.len]);
        // The node gets bytes that a hub would not send, too.
        pair.nodes[1].receive(bytes[0..said.len], 0);
        pair.nodes[1].invariants();
        const heard = pair.broker.output(pair.connections[0]);
        pair.nodes[0].receive(heard, 0);
        pair.broker.noteSent(pair.connections[0], heard.len);
        try testing.expect(pair.nodes[0].isMet());
        try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].publish("t", "x", "", 0)));
    }
}

test "a pool of two nodes: its messages go to both" {
    var pair: Pair = try .init();
    defer pair.deinit();
    var workers: [2]u64 = undefined;
    for (&pair.nodes, &workers, 0..) |*node, *worker, i| {
        worker.* = try node.open(0);
        try testing.expectEqual(.ok, try pair.code(i, node.subscribe(worker.*, "pool", 0)));
    }
    for (0..2) |_| try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].send("pool", "task", 0)));
    for (workers, 0..) |worker, i| try pair.expectMail(i, worker, "task");
}

test "a node that comes again before the end of its last connection is seen" {
    var pair: Pair = try .init();
    defer pair.deinit();
    const here = try pair.nodes[0].open(0);
    try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].subscribe(here, "t", 0)));
    const before = pair.connections[0];
    pair.nodes[0].lose();
    try pair.nodes[0].connected();
    pair.connections[0] = try pair.broker.connect("");
    pair.settle(0);
    try testing.expect(pair.broker.isCut(before) and !pair.broker.isCut(pair.connections[0]));
    pair.broker.disconnect(before);
    try testing.expectEqual(.ok, try pair.code(1, pair.nodes[1].publish("t", "hello", "", 0)));
    try pair.expectMail(0, here, "hello");
    try pair.expectMail(0, here, null);
}

test "who is subscribed: all nodes count and name their channels; a node that is silent makes it partial" {
    var pair: Pair = try .init();
    defer pair.deinit();
    const boxes = .{ try pair.nodes[0].open(0), try pair.nodes[0].open(0), try pair.nodes[1].open(0) };
    try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].subscribe(boxes[0], "t", 0)));
    try testing.expectEqual(.ok, try pair.code(0, pair.nodes[0].subscribe(boxes[1], "t", 0)));
    try testing.expectEqual(.ok, try pair.code(1, pair.nodes[1].subscribe(boxes[2], "t", 0)));
    _ = try pair.nodes[0].who(.subscribed, "t", 0);
    pair.settle(0);
    const all: Present = try .read(pair.nodes[0].next().?.reply.present.?);
    try testing.expect(all.count == 3 and all.is_complete);
    var buffer: [wire.Channel.name_bytes]u8 = undefined;
    for ([_]usize{ 0, 0, 1 }, [_]u64{ boxes[0], boxes[1], boxes[2] }) |i, box| {
        try testing.expect(std.mem.find(u8, all.names, pair.name(i, box, &buffer)) != null);
    }
    _ = try pair.nodes[1].who(.subscribed, "nobody", 0);
    pair.settle(0);
    const none: Present = try .read(pair.nodes[1].next().?.reply.present.?);
    try testing.expect(none.count == 0 and none.is_complete);
    _ = try pair.nodes[1].follow(boxes[2], "h", .{ .as = .binary }, 0);
    pair.settle(0);
    while (pair.nodes[1].next()) |_| {}
    _ = try pair.nodes[0].who(.reads, "h", 0);
    pair.settle(0);
    const readers: Present = try .read(pair.nodes[0].next().?.reply.present.?);
    try testing.expectEqual(1, readers.count);
    // The other node does not answer for a second.
    _ = try pair.nodes[0].who(.subscribed, "t", 0);
    const said = pair.nodes[0].toSend();
    pair.broker.receive(pair.connections[0], said);
    pair.nodes[0].noteSent(said.len);
    for ([_]u64{ 0, limits.roll_ms }) |now| {
        pair.broker.tick(now);
        for (0..3) |_| {
            const heard = pair.broker.output(pair.connections[0]);
            pair.nodes[0].receive(heard, now);
            pair.broker.noteSent(pair.connections[0], heard.len);
            const answer = pair.nodes[0].toSend();
            pair.broker.receive(pair.connections[0], answer);
            pair.nodes[0].noteSent(answer.len);
        }
        if (now == 0) try testing.expectEqual(null, pair.nodes[0].next());
    }
    const partial: Present = try .read(pair.nodes[0].next().?.reply.present.?);
    try testing.expect(partial.count == 2 and !partial.is_complete);
}
