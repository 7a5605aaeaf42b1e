//! Hubs of two machines with one Redis, which is killed, emptied and cut off: channels and topics reach all
//! nodes; readers of topics get each entry once and in order, or a reset.
const std = @import("std");
const hub = @import("hub");
const server_file = @import("server.zig");
const site_file = @import("site.zig");
const Server = server_file.Server;
const Client = server_file.Client;
const Site = site_file.Site;
const Reader = site_file.Reader;
const runUntil = site_file.runUntil;
const testing = std.testing;

const Scene = struct {
    server: Server,
    sites: [2]*Site,

    fn init(scene: *Scene) !void {
        try scene.server.init();
        errdefer scene.server.deinit();
        try scene.server.start();
        for (&scene.sites, 1..) |*site, name| site.* = try .create(name, scene.server.path());
        try runUntil(&scene.sites, scene, allReady);
    }

    fn deinit(scene: *Scene) void {
        for (scene.sites) |site| site.destroy();
        scene.server.deinit();
    }

    fn allReady(scene: *Scene) bool {
        for (scene.sites) |site| {
            if (!site.redis.isReady() or site.redis.subscriptions.pending > 0) return false;
        }
        return true;
    }

    fn order(scene: *Scene, arguments: []const []const u8) !void {
        const client: Client = try .open(scene.server.path());
        defer client.close();
        try client.order(arguments);
    }

    /// The result of a request.
    fn result(scene: *Scene, site: *Site, number: u32) !hub.wire.Code {
        const Answer = struct {
            site: *Site,
            number: u32,

            fn isThere(answer: @This()) bool {
                return answer.site.replies.contains(answer.number);
            }
        };
        try runUntil(&scene.sites, Answer{ .site = site, .number = number }, Answer.isThere);
        return site.replies.get(number).?;
    }

    fn expect(scene: *Scene, code: hub.wire.Code, site: *Site, number: u32) !void {
        try testing.expectEqual(code, try scene.result(site, number));
    }
};

fn mail(node: *hub.Node, mailbox: u64) usize {
    var count: usize = 0;
    while (node.take(mailbox, server_file.now())) |message| : (count += 1) node.release(message);
    return count;
}

fn nameOf(node: *const hub.Node, mailbox: u64, buffer: *[hub.wire.Channel.name_bytes]u8) []const u8 {
    const channel: hub.wire.Channel = .{ .node = node.id, .mailbox = mailbox };
    return channel.write(buffer);
}

test "channels: publications reach nodes of both machines once, and leave out channels" {
    var scene: Scene = undefined;
    try scene.init();
    defer scene.deinit();
    const first, const other = scene.sites;
    var boxes: [3]u64 = undefined;
    const nodes = [_]*hub.Node{ &first.nodes[0], &first.nodes[1], &other.nodes[0] };
    for (nodes, &boxes) |node, *box| box.* = try node.open(0);
    const now = server_file.now();
    try scene.expect(.ok, first, try nodes[0].subscribe(boxes[0], "t", now));
    try scene.expect(.ok, first, try nodes[1].subscribe(boxes[1], "t", now));
    try scene.expect(.ok, other, try nodes[2].subscribe(boxes[2], "t", now));
    try scene.expect(.ok, other, try other.nodes[1].publish("t", "hello", "", server_file.now()));
    try site_file.runFor(&scene.sites, 100);
    for (nodes, boxes) |node, box| try testing.expectEqual(1, mail(node, box));
    var name: [hub.wire.Channel.name_bytes]u8 = undefined;
    const excluded = nameOf(nodes[2], boxes[2], &name);
    try scene.expect(.ok, first, try nodes[0].publish("t", "hello", excluded, server_file.now()));
    try site_file.runFor(&scene.sites, 100);
    for (nodes, boxes, [_]usize{ 1, 1, 0 }) |node, box, count| {
        try testing.expectEqual(count, mail(node, box));
    }
    for ([_]*hub.Node{ nodes[0], nodes[2] }, scene.sites) |node, site| {
        const asked = try node.who(.subscribed, "t", server_file.now());
        try scene.expect(.ok, site, asked);
        try testing.expectEqual(3, site.counts.get(asked).?);
    }
    // A topic that its last channel leaves is not heard any more.
    nodes[2].unsubscribe(boxes[2], "t");
    try site_file.runFor(&scene.sites, 50);
    try testing.expect(!other.redis.subscriptions.isThere(.{ .feed = .group, .name = "t" }));
    try scene.expect(.ok, first, try nodes[0].flush(server_file.now()));
    try site_file.runFor(&scene.sites, 50);
    try scene.expect(.ok, other, try other.nodes[1].publish("t", "hello", "", server_file.now()));
    try site_file.runFor(&scene.sites, 50);
    for (nodes, boxes) |node, box| try testing.expectEqual(0, mail(node, box));
}

test "channels: send, add and discard reach a channel of the other machine, and tell when there is none" {
    var scene: Scene = undefined;
    try scene.init();
    defer scene.deinit();
    const first, const other = scene.sites;
    const node = &first.nodes[0];
    const box = try other.nodes[1].open(0);
    var buffer: [hub.wire.Channel.name_bytes]u8 = undefined;
    const name = nameOf(&other.nodes[1], box, &buffer);
    try scene.expect(.ok, first, try node.send(name, "hello", server_file.now()));
    try testing.expectEqual(1, mail(&other.nodes[1], box));
    other.nodes[1].bounds.capacity = 1;
    try scene.expect(.ok, first, try node.send(name, "hello", server_file.now()));
    try scene.expect(.full, first, try node.send(name, "hello", server_file.now()));
    try testing.expectEqual(1, mail(&other.nodes[1], box));
    try scene.expect(.ok, first, try node.change(.add, name, "t", server_file.now()));
    try scene.expect(.ok, first, try node.publish("t", "hello", "", server_file.now()));
    try site_file.runFor(&scene.sites, 50);
    try testing.expectEqual(1, mail(&other.nodes[1], box));
    try scene.expect(.ok, first, try node.change(.discard, name, "t", server_file.now()));
    try site_file.runFor(&scene.sites, 50);
    try scene.expect(.ok, first, try node.publish("t", "hello", "", server_file.now()));
    try site_file.runFor(&scene.sites, 50);
    try testing.expectEqual(0, mail(&other.nodes[1], box));
    other.nodes[1].close(box);
    try scene.expect(.gone, first, try node.send(name, "hello", server_file.now()));
    const nowhere = "conn.00000000000000ff.1";
    try scene.expect(.gone, first, try node.send(nowhere, "hello", server_file.now()));
}

/// Readers of the topic `a` on both machines, and what was acknowledged.
const Reading = struct {
    scene: Scene,
    readers: [3]*Reader,
    acknowledged: std.ArrayList(u64) = .empty,
    number: u64 = 0,

    fn init(reading: *Reading) !void {
        reading.acknowledged = .empty;
        reading.number = 0;
        try reading.scene.init();
        errdefer reading.scene.deinit();
        const sites = reading.scene.sites;
        reading.readers[0] = try sites[0].addReader(0, "a", null);
        reading.readers[1] = try sites[0].addReader(1, "a", null);
        reading.readers[2] = try sites[1].addReader(0, "a", null);
        try runUntil(&reading.scene.sites, reading, allBegun);
    }

    fn deinit(reading: *Reading) void {
        reading.acknowledged.deinit(testing.allocator);
        reading.scene.deinit();
    }

    /// Redis cuts connections that leave 64 KiB unread from here on. Returns a reader of `quiet` at the other
    /// machine.
    fn lowerLimit(reading: *Reading) !*Reader {
        const sites = &reading.scene.sites;
        try reading.scene.order(&.{ "CONFIG", "SET", "client-output-buffer-limit", "pubsub 65536 0 0" });
        const quiet = try sites[1].addReader(1, "quiet", null);
        try runUntil(sites, quiet, isAsked);
        return quiet;
    }

    fn allBegun(reading: *Reading) bool {
        for (reading.readers) |reader| if (reader.asked != null) return false;
        return true;
    }

    /// Publishes on a machine, and lets all work until that has an end.
    fn publish(reading: *Reading, site: *Site) !hub.wire.Code {
        reading.number += 1;
        const code = try reading.scene.result(site, try site.append("a", reading.number));
        if (code == .ok) try reading.acknowledged.append(testing.allocator, reading.number);
        return code;
    }

    fn publishes(reading: *Reading, site: *Site, count: usize) !void {
        for (0..count) |_| try testing.expectEqual(.ok, try reading.publish(site));
    }

    fn allHaveLast(reading: *Reading) bool {
        const last = reading.acknowledged.getLast();
        for (reading.readers) |reader| {
            const seen = reader.seen.getLastOrNull() orelse return false;
            if (seen != .number or seen.number != last) return false;
        }
        return true;
    }

    /// Whether each reader is behind the newest entry, by an entry or a reset.
    fn allAtEnd(reading: *Reading) bool {
        for (reading.scene.sites) |site| if (site.redis.requests.count() > 0) return false;
        const newest = reading.scene.sites[0].broker.topics.tipOf("a") orelse return false;
        for (reading.readers) |reader| if (!std.meta.eql(reader.at.?, newest)) return false;
        return true;
    }

    /// Each reader gets each number that was acknowledged once and in order; others at most once.
    fn expectAll(reading: *Reading, resets: usize) !void {
        try runUntil(&reading.scene.sites, reading, allHaveLast);
        for (reading.readers) |reader| {
            try testing.expectEqual(resets, reader.resets());
            var last: u64 = 0;
            var at: usize = 0;
            for (reader.seen.items) |seen| switch (seen) {
                .reset => {},
                .number => |number| {
                    try testing.expect(number > last);
                    last = number;
                    if (resets > 0) continue;
                    if (reading.acknowledged.items[at] == number) at += 1;
                },
            };
            if (resets == 0) try testing.expectEqual(reading.acknowledged.items.len, at);
        }
    }
};

test "topics: entries of both machines reach readers of both; a position is known on the other machine" {
    var reading: Reading = undefined;
    try reading.init();
    defer reading.deinit();
    const first, const other = reading.scene.sites;
    for (0..20) |_| {
        try reading.publishes(first, 1);
        try reading.publishes(other, 1);
    }
    try reading.expectAll(0);
    const who = try other.nodes[1].who(.reads, "a", server_file.now());
    try reading.scene.expect(.ok, other, who);
    try testing.expectEqual(3, other.counts.get(who).?);
    const asked = try other.nodes[1].look("a", server_file.now());
    try reading.scene.expect(.ok, other, asked);
    try testing.expectEqual(reading.readers[0].at.?, other.places.get(asked).?);
    // A reader that comes back elsewhere, where no node has read the topic.
    const at = reading.readers[0].at.?;
    try reading.publishes(first, 3);
    try reading.expectAll(0);
    const back = try other.addReader(1, "a", at);
    try site_file.runFor(&reading.scene.sites, 100);
    try testing.expectEqual(3, back.seen.items.len);
    try testing.expectEqual(0, back.resets());
    // A reader that begins after a publication was acknowledged does not get that.
    try reading.publishes(other, 1);
    const late = try other.addReader(1, "a", null);
    try site_file.runFor(&reading.scene.sites, 100);
    try testing.expectEqual(0, late.seen.items.len);
}

test "topics: Redis is killed and started again: readers miss nothing, and get no reset" {
    var reading: Reading = undefined;
    try reading.init();
    defer reading.deinit();
    const scene = &reading.scene;
    for (0..3) |_| {
        try reading.publishes(scene.sites[0], 10);
        scene.server.kill();
        _ = try scene.sites[1].append("a", 0);
        try site_file.runFor(&scene.sites, 100);
        try scene.server.start();
        try runUntil(&scene.sites, scene, Scene.allReady);
        try reading.publishes(scene.sites[1], 10);
        // The publication that was made meanwhile is none of the counted ones.
        for (reading.readers) |reader| {
            var kept: usize = 0;
            for (reader.seen.items) |seen| {
                if (seen == .number and seen.number == 0) continue;
                reader.seen.items[kept] = seen;
                kept += 1;
            }
            reader.seen.items.len = kept;
        }
    }
    try reading.expectAll(0);
}

test "topics: the hub of a machine is replaced: readers miss nothing, and get no reset" {
    var reading: Reading = undefined;
    try reading.init();
    defer reading.deinit();
    const scene = &reading.scene;
    try reading.publishes(scene.sites[0], 10);
    try scene.sites[0].replaceHub();
    try reading.publishes(scene.sites[1], 10);
    try runUntil(&scene.sites, scene, Scene.allReady);
    try reading.publishes(scene.sites[0], 10);
    try reading.expectAll(0);
}

test "topics: a machine is cut off from Redis: its readers catch up, and whoever comes there waits" {
    var reading: Reading = undefined;
    try reading.init();
    defer reading.deinit();
    const first, const other = reading.scene.sites;
    try reading.publishes(first, 10);
    try reading.expectAll(0);
    other.is_cut = true;
    try reading.publishes(first, 10);
    const at = reading.readers[0].at.?;
    try testing.expectEqual(20, at.mark.offset);
    // The publication was written to the connection, which does not say that the other end is gone.
    try reading.scene.expect(.unknown, other, try other.append("a", 1000));
    // The cut is noticed by then.
    try testing.expect(!other.redis.isReady());
    const moved = try other.addReader(0, "a", at);
    try site_file.runFor(&reading.scene.sites, 50);
    try testing.expect(moved.asked != null);
    other.is_cut = false;
    try reading.publishes(first, 5);
    try reading.expectAll(0);
    try testing.expectEqual(0, moved.resets());
    try testing.expectEqual(5, moved.seen.items.len);
}

test "topics: Redis is emptied: each reader gets a reset, and what follows" {
    var reading: Reading = undefined;
    try reading.init();
    defer reading.deinit();
    try reading.publishes(reading.scene.sites[0], 10);
    try reading.expectAll(0);
    try reading.scene.order(&.{"FLUSHALL"});
    try reading.publishes(reading.scene.sites[1], 3);
    const AllReset = struct {
        fn hold(of: *Reading) bool {
            for (of.readers) |reader| if (reader.resets() == 0) return false;
            return true;
        }
    };
    try runUntil(&reading.scene.sites, &reading, AllReset.hold);
    try reading.publishes(reading.scene.sites[0], 3);
    try reading.expectAll(1);
}

test "a Redis whose memory is full refuses; publications go on when it has room" {
    var reading: Reading = undefined;
    try reading.init();
    defer reading.deinit();
    try reading.scene.order(&.{ "CONFIG", "SET", "maxmemory", "1" });
    const site = reading.scene.sites[0];
    try testing.expectEqual(.too_many, try reading.publish(site));
    // A topic that Redis does not know yet, neither.
    try reading.scene.expect(.too_many, site, try site.append("new", 1));
    try reading.scene.order(&.{ "CONFIG", "SET", "maxmemory", "0" });
    try reading.publishes(reading.scene.sites[0], 1);
    try reading.expectAll(0);
}

/// Topics of a share on both machines, with one Redis.
const Mount = struct {
    const room = 1 << 20;

    scene: Scene,
    bytes_before: u64,

    fn init(mount: *Mount) !void {
        try mount.scene.init();
        errdefer mount.scene.deinit();
        for (mount.scene.sites) |site| {
            site.redis.config.mount_redis_bytes_max = room;
            _ = try site.broker.topics.shareOf("own.");
        }
        // The script is there then, and both machines have published.
        for (mount.scene.sites) |site| try mount.scene.expect(.ok, site, try site.append("main", 1));
        mount.bytes_before = try mount.usedBytes();
    }

    fn usedBytes(mount: *Mount) !u64 {
        return mount.ask(&.{ "INFO", "memory" }, "used_memory:");
    }

    fn keys(mount: *Mount) !u64 {
        return mount.ask(&.{"DBSIZE"}, ":");
    }

    /// The number behind a text in the answer.
    fn ask(mount: *Mount, arguments: []const []const u8, before: []const u8) !u64 {
        const client: Client = try .open(mount.scene.server.path());
        defer client.close();
        const answer = try client.ask(arguments);
        const at = (std.mem.find(u8, answer, before) orelse return error.TestUnexpectedResult) + before.len;
        const rest = answer[at..];
        const end = std.mem.findNone(u8, rest, "0123456789") orelse rest.len;
        return std.fmt.parseInt(u64, rest[0..end], 10);
    }

    const How = enum { append, append_long, look };

    const Use = struct {
        site: *Site,
        how: How,
        n: usize,

        fn ask(one: *const Use) !u32 {
            var buffer: [32]u8 = undefined;
            const topic = try std.fmt.bufPrint(&buffer, "own.{t}.{d}", .{ one.how, one.n });
            return switch (one.how) {
                .append => one.site.append(topic, one.n),
                .append_long => one.site.appendLong(topic, one.n),
                .look => one.site.nodes[0].look(topic, server_file.now()),
            };
        }
    };

    /// Uses as many topics, some at a time, on both machines by turns.
    fn use(mount: *Mount, how: How, count: usize) !void {
        var uses: [50]Use = undefined;
        var numbers: [uses.len]u32 = undefined;
        var n: usize = 0;
        while (n < count) {
            for (&uses, &numbers) |*one, *number| {
                one.* = .{ .site = mount.scene.sites[n % 2], .how = how, .n = n };
                number.* = try one.ask();
                n += 1;
            }
            for (&uses, numbers) |*one, number| try mount.expectUsed(one, number);
        }
    }

    /// A machine that lets Redis wait may leave the end of a request open: the request is made again.
    fn expectUsed(mount: *Mount, one: *const Use, first: u32) !void {
        const end = server_file.now() + server_file.patience_ms;
        var number = first;
        while (server_file.now() < end) {
            switch (try mount.scene.result(one.site, number)) {
                .unknown, .unavailable => {},
                else => |code| return testing.expectEqual(.ok, code),
            }
            try runUntil(&mount.scene.sites, &mount.scene, Scene.allReady);
            number = try one.ask();
        }
        return error.Timeout;
    }

    /// No more of Redis is taken than the room, when Redis has freed the buffers of its clients and the table
    /// of its keys that a larger one replaces.
    fn expectWithin(mount: *Mount) !void {
        const end = server_file.now() + server_file.patience_ms;
        while (true) : (server_file.sleep(20)) {
            const used = try mount.usedBytes() -| mount.bytes_before;
            if (used <= room) return;
            errdefer std.debug.print("{d} bytes\n", .{used});
            if (server_file.now() >= end) return error.TestUnexpectedResult;
        }
    }

    fn knows(mount: *Mount, topic: []const u8) !bool {
        var buffer: [64]u8 = undefined;
        const head = try std.fmt.bufPrint(&buffer, "test:{{{s}}}head", .{topic});
        return try mount.ask(&.{ "EXISTS", head }, ":") == 1;
    }

    fn allBegun(readers: []const *Reader) bool {
        for (readers) |reader| if (reader.asked != null) return false;
        return true;
    }

    fn allHave(readers: []const *Reader) bool {
        for (readers) |reader| if (reader.seen.items.len == 0) return false;
        return true;
    }
};

test "topics of a share have their room in Redis: the oldest go, and their readers get a reset" {
    var mount: Mount = undefined;
    try mount.init();
    defer mount.scene.deinit();
    const first, const other = mount.scene.sites;
    try mount.scene.expect(.ok, first, try first.append("own.old", 1));
    const topics = [_][]const u8{ "main", "own.old", "own.append.1999" };
    var readers: [topics.len]*Reader = undefined;
    for (0..2) |n| readers[n] = try other.addReader(0, topics[n], null);
    try runUntil(&mount.scene.sites, @as([]const *Reader, readers[0..2]), Mount.allBegun);
    try mount.use(.append, 2000);
    try mount.expectWithin();
    try testing.expect(!try mount.knows("own.old") and try mount.knows("own.append.1900"));
    readers[2] = try other.addReader(0, topics[2], null);
    try runUntil(&mount.scene.sites, @as([]const *Reader, &readers), Mount.allBegun);
    for (topics) |topic| try mount.scene.expect(.ok, first, try first.append(topic, 7));
    try runUntil(&mount.scene.sites, @as([]const *Reader, &readers), Mount.allHave);
    try testing.expect(readers[0].resets() == 0 and readers[2].resets() == 0);
    try testing.expectEqual(1, readers[1].resets());
    // Further topics take their place, also topics that are only read.
    for ([_]Mount.How{ .append_long, .look }, [_]usize{ 500, 1500 }) |how, count| {
        try mount.use(how, count);
        try mount.expectWithin();
    }
    try testing.expect(!try mount.knows("own.append_long.499"));
    try testing.expect(try mount.keys() < 1500 and try mount.knows("main"));
}

test "a topic of a share whose entries have become too old costs little, and is known for longer" {
    var mount: Mount = undefined;
    try mount.init();
    defer mount.scene.deinit();
    for (mount.scene.sites) |site| site.redis.config.history_age_ms = 1000;
    // Nearly as much as there is room for.
    try mount.use(.append_long, 100);
    server_file.sleep(1500);
    try mount.use(.append, 100);
    var buffer: [32]u8 = undefined;
    for (0..100) |n| {
        try testing.expect(try mount.knows(try std.fmt.bufPrint(&buffer, "own.append_long.{d}", .{n})));
    }
}

test "a flood makes Redis cut a machine that reads too slowly: its readers miss nothing, and get no reset" {
    var reading: Reading = undefined;
    try reading.init();
    defer reading.deinit();
    const scene = &reading.scene;
    const first, const other = scene.sites;
    const quiet = try reading.lowerLimit();
    for (1..6) |round| {
        const lost = other.redis.counts.lost;
        // The other machine does nothing meanwhile.
        for (0..150) |_| {
            reading.number += 1;
            const asked = try first.appendLong("a", reading.number);
            try runUntil(&.{first}, Answered{ .site = first, .number = asked }, Answered.holds);
            try reading.acknowledged.append(testing.allocator, reading.number);
        }
        try scene.expect(.ok, first, try first.append("quiet", round));
        try reading.expectAll(0);
        try testing.expect(other.redis.counts.lost > lost);
        try runUntil(&scene.sites, quiet, struct {
            fn has(reader: *Reader) bool {
                return reader.seen.items.len > 0;
            }
        }.has);
    }
    try runUntil(&scene.sites, quiet, struct {
        fn hasAll(reader: *Reader) bool {
            return reader.seen.items.len == 5;
        }
    }.hasAll);
    try testing.expectEqual(0, quiet.resets());
}

fn isAsked(reader: *Reader) bool {
    return reader.asked == null;
}

/// A request on one machine, while others do nothing.
const Answered = struct {
    site: *Site,
    number: u32,

    fn holds(answered: Answered) bool {
        return answered.site.replies.contains(answered.number);
    }
};

test "a flood that goes on: a machine that is cut again and again reads the quiet topics meanwhile" {
    var reading: Reading = undefined;
    try reading.init();
    defer reading.deinit();
    const scene = &reading.scene;
    const first, const other = scene.sites;
    const quiet = try reading.lowerLimit();
    const lost = other.redis.counts.lost;
    const begin = server_file.now();
    var round: u64 = 0;
    var published: std.ArrayList(u32) = .empty;
    defer published.deinit(testing.allocator);
    const times = 3;
    // Redis cuts a machine where it runs before the machine: seldom, if other programs want the processor.
    const end = begin + 4 * server_file.patience_ms;
    while (other.redis.counts.lost < lost + times or quiet.seen.items.len == 0) {
        if (server_file.now() > end) return error.Timeout;
        round += 1;
        while (first.redis.requests.count() < 100) {
            reading.number += 1;
            try first.turn();
            _ = try first.appendLong("a", reading.number);
        }
        if (round % 4 == 0) try published.append(testing.allocator, try first.append("quiet", round));
        // Redis has written more to the other machine than that reads in its turn, however late Redis runs.
        while (first.redis.requests.count() > 80) {
            if (server_file.now() > end) return error.Timeout;
            try first.turn();
        }
        try other.turn();
    }
    // Each pause between two connections is 5 ms at least.
    try testing.expect(server_file.now() - begin >= times * 5);
    try runUntil(&scene.sites, &reading, Reading.allAtEnd);
    const Seen = struct {
        reader: *Reader,
        count: usize,

        fn isAll(seen: @This()) bool {
            return seen.reader.seen.items.len >= seen.count;
        }
    };
    const all: Seen = .{ .reader = quiet, .count = @intCast(round / 4) };
    for (published.items) |number| try scene.expect(.ok, first, number);
    errdefer std.debug.print("{d} of {d} came, after {d} resets\n", .{
        quiet.seen.items.len,
        all.count,
        quiet.resets(),
    });
    try runUntil(&scene.sites, all, Seen.isAll);
    var last: u64 = 0;
    for (quiet.seen.items) |each| {
        try testing.expectEqual(last + 4, each.number);
        last += 4;
    }
    try testing.expectEqual(round / 4 * 4, last);
    for (reading.readers) |reader| {
        last = 0;
        for (reader.seen.items) |each| switch (each) {
            .reset => last = std.math.maxInt(u64),
            .number => |number| {
                try testing.expect(number == last +% 1 or last == std.math.maxInt(u64));
                last = number;
            },
        };
    }
}
