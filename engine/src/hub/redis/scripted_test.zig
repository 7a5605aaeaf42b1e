//! Tests of connections to a Redis whose every answer the test writes: lost and wrong answers, refusals,
//! silence.
const std = @import("std");
const hub = @import("../hub.zig");
const redis = hub.redis;
const position = hub.position;
const testing = std.testing;

const config: hub.Config = .{
    .message_bytes_max = 100,
    .redis_connect_ms = 50,
    .redis_answer_ms = 100,
    .redis_ping_ms = 200,
    .redis_retry_ms = 16,
    .redis_retry_ms_max = 64,
    .publish_ms = 5_000,
    .publications_max = 4,
    .publications_bytes_max = 1024,
    .history_page = 2,
    .history_pause_ms = 20,
};
const greeting = "%1\r\n+proto\r\n:3\r\n";

fn at(now_ms: u64) redis.link.Moment {
    return .{ .now_ms = now_ms, .wall_ms = 1_000_000 + now_ms, .random = 0 };
}

/// A publisher, and the server's end of its connection.
const Scene = struct {
    publisher: redis.Publisher,
    now_ms: u64 = 0,
    commands: [16384]u8 = undefined,

    fn init(account: redis.link.Account) !Scene {
        const identity: redis.publisher.Identity = .{ .hub = 1, .prefix = "p:" };
        return .{ .publisher = try .init(testing.allocator, &config, identity, account) };
    }

    fn deinit(scene: *Scene) void {
        scene.publisher.deinit();
    }

    /// The next event after these received bytes.
    fn say(scene: *Scene, bytes: []const u8) redis.publisher.Event {
        const step = scene.publisher.receive(bytes, at(scene.now_ms));
        // In these tests the bytes make exactly one event.
        std.debug.assert(step.consumed == bytes.len or step.event == .lost);
        return step.event;
    }

    fn pass(scene: *Scene, ms: u64) redis.publisher.Event {
        scene.now_ms += ms;
        return scene.publisher.tick(at(scene.now_ms));
    }

    fn connect(scene: *Scene) !void {
        try testing.expectEqual(.connect, std.meta.activeTag(scene.pass(100)));
        try scene.publisher.link.connected(at(scene.now_ms));
        try testing.expectEqual(.ready, std.meta.activeTag(scene.say(greeting)));
        _ = scene.take();
    }

    /// Commands for the server, valid until the next call.
    fn take(scene: *Scene) []const u8 {
        const pending = scene.publisher.link.pending();
        const bytes = scene.commands[0..pending.len];
        @memcpy(bytes, pending);
        scene.publisher.link.written(bytes.len);
        return bytes;
    }

    fn expectCommand(scene: *Scene, name: []const u8, count: usize) !void {
        const bytes = scene.take();
        errdefer std.debug.print("{s}\n", .{bytes});
        var prefix: [40]u8 = undefined;
        const text = try std.fmt.bufPrint(&prefix, "\r\n${d}\r\n{s}\r\n", .{ name.len, name });
        try testing.expectEqual(count, std.mem.count(u8, bytes, text));
    }

    fn publish(scene: *Scene, token: u64) !void {
        try scene.publisher.publish("room", "", "hello", token, at(scene.now_ms));
    }

    fn expectDone(event: redis.publisher.Event, token: u64, outcome: redis.publisher.Outcome) !void {
        try testing.expectEqual(token, event.done.token);
        try testing.expectEqual(outcome, event.done.outcome);
    }

    fn expectLost(event: redis.publisher.Event, why: redis.link.Why) !void {
        try testing.expectEqual(why, event.lost);
    }
};

fn place(offset: u64) position.Position {
    return .{ .epoch = 0xabc, .mark = .{ .offset = offset, .check = 0xdef } };
}

test "the greeting logs in, names the connection and chooses the database" {
    var scene: Scene = try .init(.{ .user = "ann", .password = "pw", .database = 3, .name = "me" });
    defer scene.deinit();
    try testing.expectEqual(.connect, std.meta.activeTag(scene.pass(0)));
    try scene.publisher.link.connected(at(0));
    try testing.expectEqualStrings(
        "*7\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$3\r\nann\r\n$2\r\npw\r\n$7\r\nSETNAME\r\n$2\r\nme\r\n" ++
            "*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n",
        scene.take(),
    );
    try testing.expectEqual(.need_more, std.meta.activeTag(scene.say(greeting)));
    try testing.expectEqual(.ready, std.meta.activeTag(scene.say("+OK\r\n")));
}

test "each refusal of the greeting is told by its kind" {
    for ([_]struct { []const u8, redis.Failure }{
        .{ "-WRONGPASS invalid\r\n", .unauthenticated },
        .{ "-NOAUTH HELLO must be called\r\n", .unauthenticated },
        .{ "-ERR unknown command 'HELLO'\r\n", .unknown_command },
        .{ "-NOPROTO unsupported protocol version\r\n", .unknown_command },
        .{ "-LOADING Redis is loading\r\n", .loading },
        .{ "-ERR max number of clients reached\r\n", .too_many_clients },
        .{ "-DENIED Redis is running in protected mode\r\n", .other },
    }) |case| {
        var scene: Scene = try .init(.{});
        defer scene.deinit();
        _ = scene.pass(0);
        try scene.publisher.link.connected(at(0));
        try Scene.expectLost(scene.say(case[0]), .{ .refused = case[1] });
    }
}

test "publications: EVALSHA, then EVAL where the script is unknown, then many at a time" {
    var scene: Scene = try .init(.{});
    defer scene.deinit();
    try scene.publish(1);
    try scene.publish(2);
    try scene.publish(3);
    try scene.connect();
    // `connect` has sent the first publication only.
    try testing.expectEqual(1, scene.publisher.sent);
    try testing.expectEqual(.need_more, std.meta.activeTag(scene.say("-NOSCRIPT No matching script.\r\n")));
    try scene.expectCommand("EVAL", 1);
    try Scene.expectDone(
        scene.say("*2\r\n$5\r\nadded\r\n$27\r\n000000000abc.1.000000000def\r\n"),
        1,
        .{ .published = place(1) },
    );
    try scene.expectCommand("EVALSHA", 2);
    try Scene.expectDone(
        scene.say("*2\r\n$5\r\nadded\r\n$27\r\n000000000abc.2.000000000def\r\n"),
        2,
        .{ .published = place(2) },
    );
    // Another server does not know the script, so everything is sent again on another connection.
    try Scene.expectLost(scene.say("-NOSCRIPT No matching script.\r\n"), .{ .refused = .no_script });
    try scene.connect();
    try Scene.expectDone(
        scene.say("*2\r\n$8\r\nrepeated\r\n$27\r\n000000000abc.3.000000000def\r\n"),
        3,
        .{ .published = place(3) },
    );
}

test "an answer that is lost: the publication is sent again under its number" {
    var scene: Scene = try .init(.{});
    defer scene.deinit();
    try scene.connect();
    try scene.publish(7);
    var first: [2048]u8 = undefined;
    const sent = scene.take();
    @memcpy(first[0..sent.len], sent);
    scene.publisher.lost(at(scene.now_ms));
    try testing.expectEqual(.connect, std.meta.activeTag(scene.pass(100)));
    try scene.publisher.link.connected(at(scene.now_ms));
    _ = scene.take();
    try testing.expectEqual(.ready, std.meta.activeTag(scene.say(greeting)));
    try testing.expectEqualStrings(first[0..sent.len], scene.take());
}

test "a publication that does not reach Redis is unavailable, one that may have is unknown" {
    var scene: Scene = try .init(.{});
    defer scene.deinit();
    try scene.publish(1);
    try Scene.expectDone(scene.pass(5_000), 1, .unavailable);
    try scene.connect();
    try scene.publish(2);
    _ = scene.take();
    scene.publisher.lost(at(scene.now_ms));
    try Scene.expectDone(scene.pass(5_000), 2, .unknown);
    // A late answer is ignored, and the answer behind it is not taken for it.
    try scene.connect();
    try scene.publish(3);
    _ = scene.take();
    scene.publisher.waiting.atPtr(0).deadline_ms = scene.now_ms;
    try Scene.expectDone(scene.pass(0), 3, .unknown);
    try scene.publish(4);
    try testing.expectEqual(
        .need_more,
        std.meta.activeTag(scene.say("*2\r\n$5\r\nadded\r\n$27\r\n000000000abc.3.000000000def\r\n")),
    );
    try Scene.expectDone(
        scene.say("*2\r\n$5\r\nadded\r\n$27\r\n000000000abc.4.000000000def\r\n"),
        4,
        .{ .published = place(4) },
    );
    try scene.publish(5);
    try Scene.expectDone(scene.say("*1\r\n$4\r\nlate\r\n"), 5, .unknown);
}

test "too much that waits, and too long" {
    var scene: Scene = try .init(.{});
    defer scene.deinit();
    for (0..4) |token| try scene.publish(token);
    try testing.expectError(error.Full, scene.publish(5));
    const long: [101]u8 = @splat('x');
    try testing.expectError(error.TooLong, scene.publisher.publish("room", "", &long, 0, at(0)));
    const name: [513]u8 = @splat('n');
    try testing.expectError(error.TooLong, scene.publisher.publish(&name, "", "", 0, at(0)));
}

test "refusals of a publication: retried on another connection, or told at once" {
    for ([_]struct { []const u8, redis.Failure }{
        .{ "-OOM command not allowed\r\n", .out_of_memory },
        .{ "-MISCONF Redis is configured to save\r\n", .misconfigured },
        .{ "-NOREPLICAS Not enough good replicas to write.\r\n", .no_replicas },
        .{ "-NOPERM no permissions\r\n", .no_permission },
        .{ "-WRONGTYPE Operation against a key\r\n", .wrong_type },
        .{ "-MOVED 1 127.0.0.1:1\r\n", .cluster },
        .{ "-ERR whatever\r\n", .other },
        .{ "-LOADING Redis is loading\r\n", .loading },
        .{ "-READONLY You can't write\r\n", .read_only },
        .{ "-MASTERDOWN Link with MASTER is down\r\n", .master_down },
        .{ "-BUSY Redis is busy\r\n", .busy },
    }) |case| {
        var scene: Scene = try .init(.{});
        defer scene.deinit();
        try scene.connect();
        try scene.publish(1);
        errdefer std.debug.print("{s}\n", .{case[0]});
        const event = scene.say(case[0]);
        if (case[1].remedy() == .reconnect) {
            try Scene.expectLost(event, .{ .refused = case[1] });
            try testing.expectEqual(1, scene.publisher.waiting.len);
        } else try Scene.expectDone(event, 1, .{ .refused = case[1] });
    }
}

test "answers that are nonsense end the connection, never the program; the publication waits" {
    for ([_][]const u8{
        "HTTP/1.1 400 Bad Request\r\n",                                "+OK\r\n",
        ":1\r\n",                                                      "$-1\r\n",
        "*0\r\n",                                                      "*1\r\n$5\r\nadded\r\n",
        "*2\r\n$5\r\nadded\r\n$3\r\nabc\r\n",                          "*2\r\n$5\r\nadded\r\n:1\r\n",
        "*2\r\n:1\r\n$5\r\nadded\r\n",                                 "*3\r\n$5\r\nadded\r\n:1\r\n:1\r\n",
        "*2\r\n$5\r\nother\r\n$27\r\n000000000abc.1.000000000def\r\n",
    }) |answer| {
        var scene: Scene = try .init(.{});
        defer scene.deinit();
        try scene.connect();
        try scene.publish(1);
        errdefer std.debug.print("{s}\n", .{answer});
        try Scene.expectLost(scene.say(answer), .nonsense);
        try testing.expectEqual(1, scene.publisher.waiting.len);
        try scene.connect();
    }
    // An answer without a command.
    var scene: Scene = try .init(.{});
    defer scene.deinit();
    try scene.connect();
    try Scene.expectLost(scene.say("+OK\r\n"), .nonsense);
    try scene.connect();
    try Scene.expectLost(scene.say("*2000000000\r\n"), .too_long);
    try scene.connect();
    try Scene.expectLost(scene.say("$20000\r\nx"), .too_long);
}

test "silence: while it connects, greets, and afterwards; the pauses grow, and have their longest" {
    var scene: Scene = try .init(.{});
    defer scene.deinit();
    try testing.expectEqual(.connect, std.meta.activeTag(scene.pass(0)));
    try testing.expectEqual(.need_more, std.meta.activeTag(scene.pass(49)));
    try Scene.expectLost(scene.pass(1), .silent);
    // Pauses are half of 16, 32 and 64 ms, and do not grow further; the random part is 0.
    for ([_]u64{ 8, 16, 32, 32, 32 }) |pause| {
        try testing.expectEqual(.need_more, std.meta.activeTag(scene.pass(pause - 1)));
        try testing.expectEqual(.connect, std.meta.activeTag(scene.pass(1)));
        try scene.publisher.link.connected(at(scene.now_ms));
        try testing.expectEqual(.need_more, std.meta.activeTag(scene.pass(99)));
        try Scene.expectLost(scene.pass(1), .silent);
    }
    try scene.connect();
    try testing.expectEqual(.need_more, std.meta.activeTag(scene.pass(199)));
    try scene.expectCommand("PING", 0);
    try testing.expectEqual(.need_more, std.meta.activeTag(scene.pass(1)));
    try scene.expectCommand("PING", 1);
    try testing.expectEqual(.need_more, std.meta.activeTag(scene.say("+PONG\r\n")));
    _ = scene.pass(200);
    try testing.expectEqual(.need_more, std.meta.activeTag(scene.pass(99)));
    try Scene.expectLost(scene.pass(1), .silent);
    // The connection was good, so the pauses begin with the shortest one.
    try testing.expectEqual(.connect, std.meta.activeTag(scene.pass(8)));
}

test "a server that refuses the first command: the pauses grow, until a connection has lasted" {
    var scene: Scene = try .init(.{});
    defer scene.deinit();
    try scene.publish(1);
    var pauses: [3]u64 = undefined;
    for (&pauses) |*pause| {
        scene.now_ms = scene.publisher.link.deadline();
        try scene.connect();
        try Scene.expectLost(scene.say("-READONLY it is a replica\r\n"), .{ .refused = .read_only });
        pause.* = scene.publisher.link.deadline() - scene.now_ms;
    }
    for (pauses[0..2], pauses[1..]) |earlier, later| try testing.expectEqual(2 * earlier, later);
    scene.now_ms = scene.publisher.link.deadline();
    try scene.connect();
    scene.now_ms += 16 * pauses[0] * 2;
    try Scene.expectLost(scene.say("-READONLY it is a replica\r\n"), .{ .refused = .read_only });
    try testing.expectEqual(pauses[0], scene.publisher.link.deadline() - scene.now_ms);
}

test "a page of history, and pages that are none" {
    var scene: Scene = try .init(.{});
    defer scene.deinit();
    try scene.connect();
    try scene.publisher.read("room", "", 5, at(scene.now_ms));
    const asked = scene.take();
    try testing.expect(std.mem.endsWith(u8, asked, "XRANGE\r\n$14\r\np:{room}stream\r\n$1\r\n5\r\n" ++
        "$1\r\n+\r\n$5\r\nCOUNT\r\n$1\r\n2\r\n"));
    try testing.expectEqual(.need_more, std.meta.activeTag(scene.say(":0\r\n:1\r\n")));
    const head = scene.say("*3\r\n$12\r\n000000000abc\r\n$1\r\n6\r\n$12\r\n000000000def\r\n");
    try testing.expectEqual(place(6), head.head);
    const entry = "*2\r\n$3\r\n5-0\r\n*10\r\n+c\r\n+00000000000a\r\n+h\r\n+00000000000b\r\n+s\r\n+12\r\n" ++
        "+t\r\n+0\r\n+d\r\n$2\r\nhi\r\n";
    try testing.expectEqual(.need_more, std.meta.activeTag(scene.say("*2\r\n")));
    for (0..2) |_| {
        const placed = scene.say(entry).entry;
        try testing.expectEqual(position.Mark{ .offset = 5, .check = 10 }, placed.mark);
        try testing.expectEqual(0xabc, placed.epoch);
        try testing.expectEqual(11, placed.hub);
        try testing.expectEqual(12, placed.sequence);
        try testing.expectEqualStrings("hi", placed.bytes);
    }
    try testing.expect(scene.say("").read.full);
    // The next read waits for its time.
    try scene.publisher.read("room", "", 5, at(scene.now_ms));
    try testing.expectEqual(0, scene.take().len);
    _ = scene.pass(20);
    try scene.expectCommand("XRANGE", 1);
    _ = scene.say(":0\r\n:1\r\n");
    _ = scene.say("*3\r\n$12\r\n000000000abc\r\n$-1\r\n$-1\r\n");
    try testing.expect(!scene.say("*0\r\n").read.full);
    // Entries of other programs are ignored, and a page with none of ours is the last one.
    for ([_][]const u8{
        "*2\r\n$3\r\n5-1\r\n*0\r\n", ":1\r\n", "*2\r\n$3\r\n5-0\r\n*0\r\n", "*2\r\n:1\r\n*0\r\n",
    }, 1..) |foreign, number| {
        for ([_]usize{ 0, 1, 2 }) |own| {
            try scene.publisher.read("room", "", 5, at(scene.now_ms));
            _ = scene.pass(20);
            _ = scene.take();
            _ = scene.say(":0\r\n:1\r\n");
            _ = scene.say("*3\r\n$12\r\n000000000abc\r\n$1\r\n6\r\n$12\r\n000000000def\r\n");
            var count: [8]u8 = undefined;
            const line = try std.fmt.bufPrint(&count, "*{d}\r\n", .{own + 1});
            try testing.expectEqual(.need_more, std.meta.activeTag(scene.say(line)));
            for (0..own) |_| try testing.expectEqualStrings("hi", scene.say(entry).entry.bytes);
            try testing.expectEqual(own > 1, scene.say(foreign).read.full);
            try testing.expectEqual(3 * (number - 1) + own + 1, scene.publisher.foreign);
        }
    }
    for ([_][]const u8{ "+OK\r\n", "*-1\r\n" }) |page| {
        try scene.publisher.read("room", "", 0, at(scene.now_ms));
        _ = scene.pass(20);
        _ = scene.take();
        _ = scene.say(":0\r\n:1\r\n");
        _ = scene.say("*3\r\n$12\r\n000000000abc\r\n$-1\r\n$-1\r\n");
        errdefer std.debug.print("{s}\n", .{page});
        try Scene.expectLost(scene.say(page), .nonsense);
        try testing.expect(!scene.publisher.isReading());
        try scene.connect();
    }
    // After a refusal within a read the connection goes on.
    try scene.publisher.read("room", "", 0, at(scene.now_ms));
    _ = scene.pass(20);
    _ = scene.say("-NOPERM no\r\n:1\r\n");
    _ = scene.say("*3\r\n$12\r\n000000000abc\r\n$-1\r\n$-1\r\n");
    try testing.expectEqual(.no_permission, scene.say("*0\r\n").read_refused);
}

test "entries that are heard, and other pushes" {
    var hearer: redis.Hearer = try .init(testing.allocator, &config, "p:", .{});
    defer hearer.deinit();
    try testing.expectEqual(.connect, std.meta.activeTag(hearer.tick(at(0))));
    try hearer.link.connected(at(0));
    try testing.expectEqual(.ready, std.meta.activeTag(hearer.receive(greeting, at(0)).event));
    try hearer.subscribe(.{ .feed = .entries, .name = "room" });
    const asked = "SUBSCRIBE\r\n$15\r\np:{room}channel\r\n";
    try testing.expect(std.mem.endsWith(u8, hearer.link.pending(), asked));
    const subscribed = hearer.receive(">3\r\n+subscribe\r\n+p:{room}channel\r\n:1\r\n", at(0));
    try testing.expectEqualStrings("room", subscribed.event.subscribed.name);
    const message = ">3\r\n+message\r\n+p:{room}channel\r\n" ++
        "+000000000abc 5 00000000000a 00000000000b 12 hi\r\n";
    const heard = hearer.receive(message, at(0)).event.entry;
    try testing.expectEqualStrings("room", heard.topic);
    try testing.expectEqualStrings("hi", heard.placed.bytes);
    // A message of another program, an unknown push, and the end of a subscription.
    const foreign = hearer.receive(">3\r\n+message\r\n+p:{room}channel\r\n+hello\r\n", at(0));
    try testing.expectEqualStrings("room", foreign.event.foreign);
    for ([_][]const u8{
        ">2\r\n+invalidate\r\n*0\r\n",
        ">3\r\n+unsubscribe\r\n+p:{room}channel\r\n:0\r\n",
    }) |push| try testing.expectEqual(.need_more, std.meta.activeTag(hearer.receive(push, at(0)).event));
    var now: u64 = 0;
    for ([_]struct { []const u8, redis.link.Why }{
        .{ ">1\r\n:1\r\n", .nonsense },
        .{ ">2\r\n+message\r\n+p:{room}channel\r\n", .nonsense },
        .{ ">3\r\n+message\r\n+elsewhere\r\n+x\r\n", .nonsense },
        .{ ">3\r\n+message\r\n:1\r\n+x\r\n", .nonsense },
        .{ ">3\r\n+message\r\n+p:{room}channel\r\n:1\r\n", .nonsense },
        .{ "+PONG\r\n", .nonsense },
        .{ "-NOPERM no\r\n", .{ .refused = .no_permission } },
        .{ ">3\r\n+message\r\n+p:{room}channel\r\n$10000\r\nx", .too_long },
    }) |case| {
        errdefer std.debug.print("{s}\n", .{case[0]});
        now += 10_000; // the connection has lasted long
        const step = hearer.receive(case[0], at(now));
        try testing.expectEqual(case[1], step.event.lost);
        now += 100;
        try testing.expectEqual(.connect, std.meta.activeTag(hearer.tick(at(now))));
        try hearer.link.connected(at(now));
        try testing.expectEqual(.ready, std.meta.activeTag(hearer.receive(greeting, at(now)).event));
    }
}

test "an entry without bytes, which no hub publishes, is none for readers: they get a reset" {
    var log: hub.Log = .init(testing.allocator, .of(&config), 1, .origin);
    defer log.deinit();
    var follower: redis.Follower = .init(&log);
    follower.subscribed();
    try testing.expectEqual(0, follower.begin());
    follower.head(.{ .epoch = 1, .mark = .origin });
    follower.end(false);
    for (1..3) |sequence| {
        const mark = log.tip.next(7, sequence);
        const empty: hub.log.Placed = .{
            .epoch = 1,
            .mark = mark,
            .hub = 7,
            .sequence = sequence,
            .bytes = "",
        };
        follower.hear(empty, 0);
        try testing.expectEqual(.live, follower.state);
        try testing.expectEqual(sequence, log.generation);
        try testing.expect(std.meta.eql(log.tip, mark) and std.meta.eql(log.base, mark));
        follower.hear(empty, 0);
        try testing.expectEqual(sequence, log.generation);
    }
    log.restart(1, .{ .offset = std.math.maxInt(u64), .check = 7 });
    follower.hear(.{ .epoch = 1, .mark = log.tip, .hub = 7, .sequence = 1, .bytes = "" }, 0);
    try testing.expectEqual(3, log.generation);
}

test "a read goes on when the channel is lost meanwhile, and its entries stay" {
    var log: hub.Log = .init(testing.allocator, .of(&config), 1, .origin);
    defer log.deinit();
    var follower: redis.Follower = .init(&log);
    var placed: [5]hub.log.Placed = undefined;
    var mark: position.Mark = .origin;
    for (&placed, 1..) |*entry, sequence| {
        mark = mark.next(7, sequence);
        entry.* = .{ .epoch = 1, .mark = mark, .hub = 7, .sequence = sequence, .bytes = "x" };
    }
    follower.subscribed();
    try testing.expectEqual(0, follower.begin());
    follower.head(.{ .epoch = 1, .mark = placed[3].mark });
    follower.entry(placed[0], 0);
    follower.unheard();
    for (placed[1..3]) |entry| follower.entry(entry, 0);
    follower.end(true);
    try testing.expectEqual(null, follower.begin());
    follower.subscribed();
    try testing.expectEqual(3, follower.begin());
    // The channel is lost and back within one read; the last entry was published in between.
    follower.head(.{ .epoch = 1, .mark = placed[3].mark });
    follower.unheard();
    follower.subscribed();
    for (placed[2..4]) |entry| follower.entry(entry, 0);
    follower.end(false);
    try testing.expectEqual(4, follower.begin());
    follower.head(.{ .epoch = 1, .mark = placed[4].mark });
    // After a failed read without the channel, the follower waits for the channel.
    follower.unheard();
    follower.broken();
    try testing.expectEqual(null, follower.begin());
    follower.subscribed();
    try testing.expectEqual(4, follower.begin());
    follower.head(.{ .epoch = 1, .mark = placed[4].mark });
    for (placed[3..]) |entry| follower.entry(entry, 0);
    follower.end(false);
    try testing.expectEqual(.live, follower.state);
    try testing.expectEqual(5, log.tip.offset);
}
