//! Topics with history over simulated connections that are late and are lost, with a hub that dies, slow
//! nodes, and readers that come back with their last position. Properties: each reader gets each entry behind
//! its position once, in the hub's order, or gets a reset; without a death of the hub, and with a history
//! that is long enough, there is no reset.
const std = @import("std");
const Broker = @import("broker.zig").Broker;
const histories = @import("histories.zig");
const limits = @import("limits.zig");
const Node = @import("node.zig").Node;
const position = @import("position.zig");
const Position = position.Position;
const Seeds = @import("seeds.zig").Seeds;
const Subscriptions = @import("redis/subscriptions.zig").Subscriptions;
const tally = @import("tally.zig");
const Topics = @import("topics.zig").Topics;
const Wish = @import("readers.zig").Wish;
const testing = std.testing;
const gpa = testing.allocator;

const names = [_][]const u8{ "a", "b" };

const Reader = struct {
    mailbox: u64,
    /// The number of the unanswered request.
    asked: ?u32 = null,
    at: ?Position = null,
    resets: usize = 0,
};

const World = struct {
    const node_count = 3;

    broker: Broker,
    nodes: [node_count]Node = undefined,
    connections: [node_count]?Broker.Index = @splat(null),
    readers: [node_count][names.len]Reader = undefined,
    /// The messages of a topic in the hub's order, by the topic's epoch.
    truth: std.AutoArrayHashMapUnmanaged(u48, std.ArrayList(u32)) = .empty,
    published: u32 = 0,
    deaths: u64 = 0,
    handovers: u64 = 0,
    short: bool,
    now: u64 = 1,

    fn init(world: *World, short: bool) !void {
        world.* = .{ .broker = .init(gpa, 7), .short = short };
        for (&world.nodes, &world.readers, 0..) |*node, *readers, i| {
            node.* = .init(gpa, 100 + i);
            if (short) node.readers.bounds.entries_max = 16;
            for (readers) |*reader| reader.* = .{ .mailbox = try node.open(0) };
        }
        world.bound();
    }

    fn bound(world: *World) void {
        if (world.short) world.broker.topics.bounds.entries_max = 16;
    }

    fn deinit(world: *World) void {
        for (&world.nodes) |*node| node.deinit();
        world.broker.deinit();
        for (world.truth.values()) |*list| list.deinit(gpa);
        world.truth.deinit(gpa);
    }

    /// Notes the entries that the hub has placed.
    fn note(world: *World) !void {
        var topics = world.broker.topics.by_name.valueIterator();
        while (topics.next()) |topic| {
            const log = &topic.*.log;
            const found = try world.truth.getOrPut(gpa, log.epoch);
            if (!found.found_existing) found.value_ptr.* = .empty;
            var entries = log.entriesAfter(found.value_ptr.items.len);
            while (entries.next()) |entry| {
                try testing.expectEqual(found.value_ptr.items.len + 1, entry.mark.offset);
                try found.value_ptr.append(gpa, std.mem.bytesToValue(u32, entry.bytes));
            }
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

    fn die(world: *World) void {
        for (0..node_count) |i| world.cut(i);
        world.broker.deinit();
        world.deaths += 1;
        world.broker = .init(gpa, 1000 + world.deaths);
        world.bound();
    }

    /// Replaces the hub by another one, which gets its histories.
    fn handOver(world: *World) !void {
        for (0..node_count) |i| world.cut(i);
        var left: std.ArrayList(u8) = .empty;
        defer left.deinit(gpa);
        try histories.write(&world.broker.topics, gpa, &left);
        world.broker.deinit();
        world.handovers += 1;
        world.broker = .init(gpa, 2_000_000 + world.handovers);
        world.bound();
        try histories.read(&world.broker.topics, left.items);
    }

    fn move(world: *World, random: std.Random, i: usize) !void {
        const index = world.connections[i] orelse return;
        const node = &world.nodes[i];
        var copy: [400]u8 = undefined;
        if (random.boolean()) {
            const piece = copy[0..@min(copy.len, random.intRangeAtMost(usize, 0, node.toSend().len))];
            @memcpy(piece, node.toSend()[0..piece.len]);
            node.noteSent(piece.len);
            world.broker.receive(index, piece);
            try world.note();
        } else {
            const bytes = world.broker.output(index);
            const piece = copy[0..@min(copy.len, random.intRangeAtMost(usize, 0, bytes.len))];
            @memcpy(piece, bytes[0..piece.len]);
            world.broker.noteSent(index, piece.len);
            node.receive(piece, world.now);
        }
        try testing.expect(!world.broker.isCut(index) and node.isConnected());
    }

    fn act(world: *World, random: std.Random, faults: Faults) !void {
        const i = random.uintLessThan(usize, node_count);
        const topic = random.uintLessThan(usize, names.len);
        const reader = &world.readers[i][topic];
        const node = &world.nodes[i];
        switch (random.uintLessThan(u32, switch (faults) {
            .none => 8,
            .handovers => 10,
            .all => 11,
        })) {
            0, 1, 2 => {
                world.published += 1;
                _ = node.append(names[topic], std.mem.asBytes(&world.published), world.now) catch |err|
                    try testing.expect(err == error.Unavailable);
            },
            3 => if (reader.asked == null) {
                // The reader begins or comes back.
                reader.asked = try node.follow(reader.mailbox, names[topic], .{
                    .as = .binary,
                    .since = if (reader.at) |at| .{ .after = at } else .now,
                }, world.now);
            },
            4 => if (random.uintLessThan(u32, 4) == 0) {
                node.unfollow(reader.mailbox, names[topic]);
            },
            5, 6 => try world.read(i, topic),
            7 => try world.connect(i),
            8 => if (random.uintLessThan(u32, 4) == 0) world.cut(i),
            9 => if (random.uintLessThan(u32, 10) == 0) try world.handOver(),
            10 => if (random.uintLessThan(u32, 20) == 0) world.die(),
            else => unreachable,
        }
        try world.hear(i);
    }

    fn hear(world: *World, i: usize) !void {
        while (world.nodes[i].next()) |event| switch (event) {
            .reply => |reply| for (&world.readers[i]) |*reader| {
                if (reader.asked != reply.number) continue;
                reader.asked = null;
                if (reply.code == .ended) continue;
                try testing.expectEqual(.ok, reply.code);
                const place = reply.place.?;
                if (reader.at) |at| if (!std.meta.eql(at, place)) {
                    reader.resets += 1;
                };
                // `read` reports the reset, too. Nothing may be read before.
                reader.at = place;
            },
            .mail, .readable => {},
        };
    }

    fn read(world: *World, i: usize, topic: usize) !void {
        const reader = &world.readers[i][topic];
        const node = &world.nodes[i];
        try world.hear(i);
        if (reader.asked != null) return;
        while (true) switch (try node.read(reader.mailbox)) {
            .nothing => return,
            .cut => return error.WasCut,
            .reset => |told| {
                try testing.expectEqualStrings(names[topic], told.topic);
                if (!std.meta.eql(reader.at.?, told.position)) reader.resets += 1;
                reader.at = told.position;
            },
            .bytes => |found| {
                const at = &reader.at.?;
                const list = world.truth.get(at.epoch).?.items;
                try testing.expectEqual(list[at.mark.offset], std.mem.bytesToValue(u32, found.bytes));
                const check = checkBehind(node, topic, at.mark.offset);
                at.mark = .{ .offset = at.mark.offset + 1, .check = check };
                node.noteRead(reader.mailbox, found.bytes.len);
            },
        };
    }

    /// The check of the entry that is read, which an event stream's id would contain.
    fn checkBehind(node: *Node, topic: usize, offset: u64) position.Check {
        return node.readers.topics.get(names[topic]).?.log.?.markAt(offset + 1).check;
    }

    fn settle(world: *World, random: std.Random) !void {
        for (0..4000) |_| for (0..node_count) |i| {
            try world.connect(i);
            try world.move(random, i);
        };
        for (0..node_count) |i| for (0..names.len) |topic| try world.read(i, topic);
    }
};

/// Faults: connections are lost; hubs are replaced; hubs die.
const Faults = enum { none, handovers, all };

fn live(seed: u64, faults: Faults, short: bool) !usize {
    errdefer std.debug.print("seed {d}\n", .{seed});
    var prng: std.Random.DefaultPrng = .init(seed);
    const random = prng.random();
    var world: World = undefined;
    try world.init(short);
    defer world.deinit();
    for (0..600) |_| {
        world.now += random.uintLessThan(u64, 3);
        try world.act(random, faults);
        for (0..4) |_| try world.move(random, random.uintLessThan(usize, World.node_count));
    }
    try world.settle(random);
    var resets: usize = 0;
    for (&world.nodes, &world.readers) |*node, *readers| for (readers, names) |*reader, name| {
        resets += reader.resets;
        if (node.readers.any(reader.mailbox) == null) continue;
        const log = &world.broker.topics.by_name.get(name).?.log;
        try testing.expectEqualDeep(log.now(), reader.at.?);
    };
    if (!short and world.deaths == 0) try testing.expectEqual(0, resets);
    return resets;
}

test "readers of nodes that stay connected miss nothing" {
    const seeds: Seeds = try .init(0, 25);
    for (seeds.first..seeds.end) |seed| _ = try live(seed, .none, false);
}

test "readers of nodes that lose the hub, and of a hub that dies, miss nothing or get a reset" {
    const seeds: Seeds = try .init(1000, 50);
    var resets: usize = 0;
    for (seeds.first..seeds.end) |seed| resets += try live(seed, .all, false);
    if (seeds.are_many) try testing.expect(resets > 0);
}

test "readers miss nothing, and get no reset, when a hub takes over from another one" {
    const seeds: Seeds = try .init(3000, 50);
    for (seeds.first..seeds.end) |seed| _ = try live(seed, .handovers, false);
}

test "readers that are behind a short history get a reset" {
    const seeds: Seeds = try .init(2000, 25);
    var resets: usize = 0;
    for (seeds.first..seeds.end) |seed| resets += try live(seed, .none, true);
    if (seeds.are_many) try testing.expect(resets > 0);
}

/// Moves all bytes between a node and its hub.
pub fn exchange(broker: *Broker, index: Broker.Index, node: *Node) void {
    while (true) {
        const said = node.toSend();
        broker.receive(index, said);
        node.noteSent(said.len);
        const heard = broker.output(index);
        if (said.len + heard.len == 0) return;
        node.receive(heard, 0);
        broker.noteSent(index, heard.len);
    }
}

test "the hub counts entries and bytes, readers, the lag of the slowest, resets and readers that were cut" {
    var broker: Broker = .init(gpa, 1);
    defer broker.deinit();
    broker.topics.bounds.entries_max = 16;
    var node: Node = .init(gpa, 1);
    defer node.deinit();
    node.readers.bounds.entries_max = 16;
    try node.connected();
    const connection = try broker.connect("");
    exchange(&broker, connection, &node);
    const quick = try node.open(0);
    const slow = try node.open(0);
    const impatient = try node.open(0);
    _ = try node.follow(quick, "a", .{ .as = .binary }, 0);
    _ = try node.follow(slow, "a", .{ .as = .binary }, 0);
    _ = try node.follow(impatient, "a", .{ .as = .binary, .behind = .cut }, 0);
    exchange(&broker, connection, &node);
    for (0..3) |_| _ = try node.append("a", "four", 0);
    exchange(&broker, connection, &node);
    for (0..3) |_| node.noteRead(quick, (try node.read(quick)).bytes.bytes.len);
    node.tally.now.orphans = 1;
    try testing.expect(!node.tick(0));
    exchange(&broker, connection, &node);
    try testing.expectEqualDeep(tally.Now{ .readers = 3, .orphans = 1, .lag = 3 }, broker.nodes.items[0].now);
    try testing.expectEqual(3, broker.events.delivered);
    try testing.expectEqual(12, broker.events.delivered_bytes);
    try testing.expectEqual(3, broker.counts.entries);
    try testing.expectEqual(12, broker.counts.entry_bytes);

    for (0..20) |_| {
        _ = try node.append("a", "four", 0);
        exchange(&broker, connection, &node);
    }
    try testing.expect(try node.read(slow) == .reset and try node.read(impatient) == .cut);
    node.close(quick);
    try testing.expect(!node.tick(1000));
    exchange(&broker, connection, &node);
    try testing.expectEqualDeep(tally.Now{ .readers = 1, .orphans = 1 }, broker.nodes.items[0].now);
    try testing.expectEqual(1, broker.events.resets);
    try testing.expectEqual(1, broker.events.readers_cut);
    try testing.expectEqual(3, broker.events.delivered);

    // A node whose counts have not changed reports nothing.
    try testing.expect(!node.tick(2000));
    try testing.expectEqual(0, node.toSend().len);
    node.tally.now.orphans = 0;
    try testing.expect(!node.tick(3000));
    exchange(&broker, connection, &node);
    node.close(slow);
    try testing.expect(node.hasDeadlines() and !node.tick(4000));
    exchange(&broker, connection, &node);
    try testing.expectEqualDeep(tally.Now{}, broker.nodes.items[0].now);
    try testing.expect(!node.hasDeadlines());
}

test "a node that does not read costs no memory for entries, is not cut, and its readers get a reset" {
    var broker: Broker = .init(gpa, 1);
    defer broker.deinit();
    broker.topics.bounds.entries_max = 16;
    var nodes = [_]Node{ .init(gpa, 1), .init(gpa, 2) };
    defer for (&nodes) |*node| node.deinit();
    var connections: [2]Broker.Index = undefined;
    for (&nodes, &connections) |*node, *connection| {
        try node.connected();
        connection.* = try broker.connect("");
        exchange(&broker, connection.*, node);
    }
    const reader = try nodes[1].open(0);
    _ = try nodes[1].follow(reader, "a", .{ .as = .binary }, 0);
    exchange(&broker, connections[1], &nodes[1]);
    const long: [50_000]u8 = @splat('x');
    for (0..40) |_| {
        _ = try nodes[0].append("a", &long, 0);
        exchange(&broker, connections[0], &nodes[0]);
        try testing.expect(broker.output(connections[1]).len < limits.follow_bytes_max + 2 * long.len);
    }
    exchange(&broker, connections[1], &nodes[1]);
    try testing.expect(!broker.isCut(connections[1]) and nodes[1].isConnected());
    const now = broker.topics.by_name.get("a").?.log.now();
    const told = try nodes[1].read(reader);
    try testing.expectEqualDeep(now, told.reset.position);
    try testing.expectEqual(.nothing, try nodes[1].read(reader));
    _ = try nodes[0].append("a", "new", 0);
    for (&nodes, connections) |*node, connection| exchange(&broker, connection, node);
    try testing.expectEqualStrings("new", (try nodes[1].read(reader)).bytes.bytes);
    nodes[1].noteRead(reader, 3);
}

test "topics that always have something new leave the others of a node their turn" {
    var topics: Topics = .init(gpa, 1);
    defer topics.deinit();
    const followed = [_][]const u8{ "a", "quiet", "b" };
    for (followed) |name| try topics.follow(0, name, 1, null);
    while (topics.next(0)) |_| {}
    for (followed) |name| _ = try topics.append(name, "x");
    for (0..followed.len) |_| {
        const frame = topics.next(0).?;
        if (std.mem.eql(u8, frame.name, "quiet")) return;
        _ = try topics.append(frame.name, "x");
    }
    return error.TestUnexpectedResult;
}

test "histories are read from Redis in turns: of the shares, and in a share of its topics" {
    var subscriptions: Subscriptions = .init(gpa);
    defer subscriptions.deinit();
    var topics: Topics = .init(gpa, 1);
    defer topics.deinit();
    topics.subscriptions = &subscriptions;
    _ = try topics.shareOf("own.");
    var buffer: [16]u8 = undefined;
    for (0..8) |n| {
        const name = try std.fmt.bufPrint(&buffer, "own.{d}", .{n});
        _ = try topics.look(name);
        topics.subscribed(name);
    }
    for ([_][]const u8{ "a", "quiet", "b" }) |name| {
        _ = try topics.look(name);
        topics.subscribed(name);
    }
    // All topics have another page after each read. The shares have two turns each.
    var own: usize = 0;
    for (0..4) |_| {
        const next = topics.nextRead().?;
        const is_own = std.mem.startsWith(u8, next.name, "own.");
        own += @intFromBool(is_own);
        try testing.expectEqualStrings(if (is_own) "own." else "", next.prefix);
        if (std.mem.eql(u8, next.name, "quiet")) break;
        topics.read(.{ .head = .{ .epoch = 1, .mark = .origin } });
        topics.read(.{ .end = .{ .full = true } });
    } else return error.TestUnexpectedResult;
    try testing.expectEqual(2, own);
    topics.read(.broken);
    // A topic that moves to another share is read in that share's turn, and a dropped topic is not read.
    _ = try topics.shareOf("b");
    topics.share_topics_max = 8;
    _ = try topics.look("own.new");
    while (topics.nextRead()) |next| {
        try testing.expect(!std.mem.eql(u8, next.name, "own.0"));
        if (std.mem.eql(u8, next.name, "b")) try testing.expectEqualStrings("b", next.prefix);
        topics.read(.{ .head = .{ .epoch = 1, .mark = .origin } });
        topics.read(.{ .end = .{ .full = false } });
    }
}

test "a reader that has no memory for its frames is told of the next entry" {
    var failing: std.testing.FailingAllocator = .init(gpa, .{});
    var broker: Broker = .init(gpa, 1);
    defer broker.deinit();
    var node: Node = .init(failing.allocator(), 1);
    defer node.deinit();
    try node.connected();
    const connection = try broker.connect("");
    exchange(&broker, connection, &node);
    const reader = try node.open(0);
    _ = try node.follow(reader, "a", .{ .as = .binary }, 0);
    exchange(&broker, connection, &node);
    try testing.expectEqual(.nothing, try node.read(reader));
    for ([_][]const u8{ "one", "two" }) |bytes| {
        while (node.next()) |_| {}
        _ = try node.append("a", bytes, 0);
        exchange(&broker, connection, &node);
        while (node.next()) |event| {
            if (event == .readable) break;
        } else return error.TestUnexpectedResult;
        failing.fail_index = failing.alloc_index;
        try testing.expectError(error.OutOfMemory, node.read(reader));
        failing.fail_index = std.math.maxInt(usize);
    }
    try testing.expectEqualStrings("one", (try node.read(reader)).bytes.bytes);
}

test "the copies of all topics at a node have their bound: those that cost most are forgotten" {
    var broker: Broker = .init(gpa, 1);
    defer broker.deinit();
    var node: Node = .init(gpa, 1);
    defer node.deinit();
    node.readers.cost_max = 1 << 20;
    try node.connected();
    const connection = try broker.connect("");
    exchange(&broker, connection, &node);
    const quiet = try node.open(0);
    _ = try node.follow(quiet, "quiet", .{ .as = .binary }, 0);
    var buffer: [8]u8 = undefined;
    var slow: [40]u64 = undefined;
    for (&slow, 0..) |*reader, n| {
        reader.* = try node.open(0);
        _ = try node.follow(reader.*, try std.fmt.bufPrint(&buffer, "t{d}", .{n}), .{ .as = .binary }, 0);
    }
    exchange(&broker, connection, &node);
    const long: [50_000]u8 = @splat('x');
    _ = try node.append("quiet", "entry", 0);
    for (0..4) |_| for (0..slow.len) |n| {
        _ = try node.append(try std.fmt.bufPrint(&buffer, "t{d}", .{n}), &long, 0);
        exchange(&broker, connection, &node);
        var bytes: u64 = 0;
        var topics = node.readers.topics.valueIterator();
        while (topics.next()) |topic| bytes += topic.*.log.?.bytes;
        try testing.expect(bytes <= 1 << 20);
    };
    try testing.expectEqualStrings("entry", (try node.read(quiet)).bytes.bytes);
    for (slow, 0..) |reader, n| {
        try testing.expectEqual(.reset, std.meta.activeTag(try node.read(reader)));
        _ = try node.append(try std.fmt.bufPrint(&buffer, "t{d}", .{n}), &long, 0);
        exchange(&broker, connection, &node);
        try testing.expectEqual(long.len, (try node.read(reader)).bytes.bytes.len);
        // Frames count, too.
        try testing.expect(node.readers.cost <= 1 << 20);
        node.noteRead(reader, long.len);
    }
    node.readers.invariants();
}

test "a share with many copies at a node costs another one none, however long the entries of that are" {
    var broker: Broker = .init(gpa, 1);
    defer broker.deinit();
    var node: Node = .init(gpa, 1);
    defer node.deinit();
    node.readers.cost_max = 1 << 20;
    _ = try node.readers.shares.of("shop.");
    try node.connected();
    const connection = try broker.connect("");
    exchange(&broker, connection, &node);
    const reader = try node.open(0);
    _ = try node.follow(reader, "site.news", .{ .as = .binary }, 0);
    exchange(&broker, connection, &node);
    const long: [40_000]u8 = @splat('x');
    for (0..3) |_| _ = try node.append("site.news", &long, 0);
    var buffer: [8]u8 = undefined;
    var behind: [60]u64 = undefined;
    for (&behind, 0..) |*shopper, n| {
        shopper.* = try node.open(0);
        const name = try std.fmt.bufPrint(&buffer, "shop.{d}", .{n});
        const wish: Wish = .{ .as = .binary, .behind = if (n == 0) .cut else .skip };
        _ = try node.follow(shopper.*, name, wish, 0);
        exchange(&broker, connection, &node);
        _ = try node.append(name, long[0..20_000], 0);
        exchange(&broker, connection, &node);
    }
    try testing.expect(node.readers.cost <= 1 << 20);
    for (0..3) |_| {
        const bytes = (try node.read(reader)).bytes.bytes;
        try testing.expectEqual(long.len, bytes.len);
        node.noteRead(reader, bytes.len);
    }
    // Copies that have not changed for longest are dropped first.
    try testing.expectEqual(.cut, try node.read(behind[0]));
    try testing.expectEqual(.reset, std.meta.activeTag(try node.read(behind[1])));
    try testing.expectEqual(20_000, (try node.read(behind[59])).bytes.bytes.len);
    node.readers.invariants();
}
