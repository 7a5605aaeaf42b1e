//! Fuzz target `redis`: a server that answers anything, at any cuts. The connection ends, or what it has said
//! goes into a topic's log, which stays whole.
const std = @import("std");
const hub = @import("hub");
const cuts_file = @import("cuts.zig");
const Cuts = cuts_file.Cuts;
const redis = hub.redis;
const testing = std.testing;
const gpa = std.heap.smp_allocator;

const wire_max = 4096;
const config: hub.Config = .{
    .message_bytes_max = 64,
    .history_page = 3,
    .history_entries_max = 16,
    .history_pause_ms = 0,
};
const moment: redis.link.Moment = .{ .now_ms = 1_000, .wall_ms = 1_000, .random = 7 };
const greeting = "%1\r\n+proto\r\n:3\r\n";

/// The events of an input.
const Digest = struct {
    hash: std.hash.Wyhash = .init(0),
    is_lost: bool = false,

    fn note(digest: *Digest, name: []const u8, value: anytype) void {
        digest.hash.update(name);
        digest.hash.update(std.mem.asBytes(&value));
    }

    fn place(digest: *Digest, name: []const u8, placed: hub.log.Placed) void {
        digest.note(name, placed.mark.offset);
        digest.note("check", placed.mark.check);
        digest.hash.update(placed.bytes);
    }
};

pub fn run(input: []const u8) !void {
    if (input.len == 0 or input.len > wire_max) return;
    const wire = input[1..];
    var expected: ?u64 = null;
    for ([_]Cuts{ .whole, .seeded(std.hash.Wyhash.hash(0, input)), .bytes }) |cuts| {
        if (cuts == .bytes and wire.len > cuts_file.bytewise_max) continue;
        const digest = if (input[0] & 1 == 0) try publish(wire, cuts) else try hear(wire, cuts);
        if (expected) |first| try testing.expectEqual(first, digest) else expected = digest;
    }
}

/// Publications and a read wait for answers.
fn publish(wire: []const u8, way: Cuts) !u64 {
    var cuts = way;
    var publisher: redis.Publisher = try .init(gpa, &config, .{ .hub = 1, .prefix = "p:" }, .{});
    defer publisher.deinit();
    var log: hub.Log = .init(gpa, .of(&config), 0, .origin);
    defer log.deinit();
    var follower: redis.Follower = .init(&log);
    for (0..3) |token| try publisher.publish("t", "", "x", token, moment);
    try testing.expectEqual(.connect, std.meta.activeTag(publisher.tick(moment)));
    try publisher.link.connected(moment);
    try testing.expectEqual(.ready, std.meta.activeTag(publisher.receive(greeting, moment).event));
    follower.subscribed();
    try publisher.read("t", "", follower.begin().?, moment);
    var digest: Digest = .{};
    var at: usize = 0;
    var arrived: usize = 0;
    while (!digest.is_lost) {
        arrived += cuts.next(wire.len - arrived);
        while (true) {
            const step = publisher.receive(wire[at..arrived], moment);
            at += step.consumed;
            switch (step.event) {
                .need_more => break,
                .connect, .ready => return error.TestUnexpectedResult,
                .lost => |why| {
                    digest.note("lost", std.meta.activeTag(why));
                    digest.is_lost = true;
                    break;
                },
                .done => |done| digest.note("done", done.token),
                .said => |said| digest.note("said", said.token),
                .head => |place| {
                    digest.note("head", place.mark.offset);
                    follower.head(place);
                },
                .entry => |placed| {
                    digest.place("entry", placed);
                    follower.entry(placed, 0);
                },
                .read => |read| {
                    digest.note("read", read.full);
                    follower.end(read.full);
                    if (follower.begin()) |from| try publisher.read("t", "", from, moment);
                },
                .read_refused => |failure| digest.note("refused", failure),
            }
            try expectWhole(&log);
        }
        if (arrived == wire.len) break;
    }
    publisher.invariants();
    return digest.hash.final();
}

/// A topic is heard.
fn hear(wire: []const u8, way: Cuts) !u64 {
    var cuts = way;
    var hearer: redis.Hearer = try .init(gpa, &config, "p:", .{});
    defer hearer.deinit();
    var log: hub.Log = .init(gpa, .of(&config), 1, .origin);
    defer log.deinit();
    var follower: redis.Follower = .{ .log = &log, .state = .live };
    try testing.expectEqual(.connect, std.meta.activeTag(hearer.tick(moment)));
    try hearer.link.connected(moment);
    try testing.expectEqual(.ready, std.meta.activeTag(hearer.receive(greeting, moment).event));
    var digest: Digest = .{};
    var at: usize = 0;
    var arrived: usize = 0;
    while (!digest.is_lost) {
        arrived += cuts.next(wire.len - arrived);
        while (true) {
            const step = hearer.receive(wire[at..arrived], moment);
            at += step.consumed;
            switch (step.event) {
                .need_more => break,
                .connect, .ready => return error.TestUnexpectedResult,
                .lost => |why| {
                    digest.note("lost", std.meta.activeTag(why));
                    digest.is_lost = true;
                    break;
                },
                .subscribed => |fed| digest.hash.update(fed.name),
                .message => |message| {
                    digest.hash.update(message.fed.name);
                    digest.hash.update(message.bytes);
                },
                .foreign => |topic| digest.hash.update(topic),
                .entry => |entry| {
                    digest.place(entry.topic, entry.placed);
                    follower.hear(entry.placed, 0);
                },
            }
            try expectWhole(&log);
        }
        if (arrived == wire.len) break;
    }
    return digest.hash.final();
}

/// Offsets without gaps, up to the newest.
fn expectWhole(log: *const hub.Log) !void {
    log.invariants();
    var offset = log.base.offset;
    var entries = log.entriesAfter(0);
    while (entries.next()) |entry| : (offset += 1) try testing.expectEqual(offset + 1, entry.mark.offset);
    try testing.expectEqual(log.tip.offset, offset);
}
