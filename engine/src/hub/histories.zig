//! The histories of all topics as bytes, which a hub leaves to the next one, so that positions stay valid.
//! Does not know: where the bytes are kept.
//!
//!     8 bytes of magic | 8 of the whole length | topics
//!     topic: 2 bytes of the name | name | 8 epoch | 8 when it was used
//!            8 offset and 8 check of the entry before the first | 4 number of entries | entries
//!     entry: 8 check | 8 time | 4 bytes of the entry | its bytes
//!
//! Integers are little-endian. Times are those of the machine's clock that both hubs have.
const std = @import("std");
const limits = @import("limits.zig");
const Mark = @import("position.zig").Mark;
const Seeds = @import("seeds.zig").Seeds;
const Topic = @import("topics.zig").Topic;
const Topics = @import("topics.zig").Topics;
const Allocator = std.mem.Allocator;

/// The first bytes, which change with the layout.
const magic = "pgtopic1".*;

/// The most bytes that are read. Entries of an older build may have cost less.
pub const bytes_max = 2 * limits.histories_bytes_max + limits.history_topics_max * topic_bytes_max;
const topic_bytes_max = 2 + limits.name_bytes_max + 4 * 8 + 4;

/// The largest offset that is read. The hub counts on from there, and never reaches the end of u64.
const offset_max = std.math.maxInt(u64) / 2;

/// Appends all topics, beginning with those that were not used for longest.
pub fn write(topics: *const Topics, gpa: Allocator, list: *std.ArrayList(u8)) Allocator.Error!void {
    const begin = list.items.len;
    try list.appendSlice(gpa, &magic);
    try put(u64, gpa, list, 0);
    var all = topics.inOrder();
    while (all.next()) |topic| try writeTopic(topic, gpa, list);
    std.mem.writeInt(u64, list.items[begin + magic.len ..][0..8], list.items.len - begin, .little);
}

fn put(comptime Int: type, gpa: Allocator, list: *std.ArrayList(u8), value: Int) Allocator.Error!void {
    var bytes: [@divExact(@bitSizeOf(Int), 8)]u8 = undefined;
    std.mem.writeInt(Int, &bytes, value, .little);
    try list.appendSlice(gpa, &bytes);
}

fn writeTopic(topic: *const Topic, gpa: Allocator, list: *std.ArrayList(u8)) Allocator.Error!void {
    const log = &topic.log;
    try put(u16, gpa, list, @intCast(topic.name.len));
    try list.appendSlice(gpa, topic.name);
    for ([_]u64{ log.epoch, topic.used_ms, log.base.offset, log.base.check }) |value| {
        try put(u64, gpa, list, value);
    }
    try put(u32, gpa, list, @intCast(log.tip.offset - log.base.offset));
    var offset = log.base.offset;
    while (offset < log.tip.offset) {
        offset += 1;
        const segment = log.segmentOf(offset);
        const entry = segment.entry(offset);
        try put(u64, gpa, list, entry.check);
        try put(u64, gpa, list, entry.time_ms);
        const bytes = segment.bytes(offset);
        try put(u32, gpa, list, @intCast(bytes.len));
        try list.appendSlice(gpa, bytes);
    }
}

pub const Error = error{ OutOfMemory, Malformed };

/// Reads the output of `write`. There must be no topics yet, and after an error there are none.
pub fn read(topics: *Topics, bytes: []const u8) Error!void {
    errdefer topics.forgetAll();
    var rest: Bytes = .{ .bytes = bytes };
    if (!std.mem.eql(u8, try rest.take(magic.len), &magic)) return error.Malformed;
    if (try rest.int(u64) != bytes.len) return error.Malformed;
    while (rest.at < bytes.len) try readTopic(topics, &rest);
}

fn readTopic(topics: *Topics, rest: *Bytes) Error!void {
    const name = try rest.take(try rest.int(u16));
    const epoch = try rest.int48();
    const used_ms = try rest.int(u64);
    const base: Mark = .{ .offset = try rest.int(u64), .check = try rest.int48() };
    if (base.offset > offset_max) return error.Malformed;
    const topic = topics.restore(name, epoch, base, used_ms) catch |err| return switch (err) {
        error.OutOfMemory => error.OutOfMemory,
        error.TooMany, error.Malformed => error.Malformed,
    };
    // No overflow is possible: the offset is at most `offset_max`, and the number of entries has 32 bits.
    var offset = base.offset;
    for (0..try rest.int(u32)) |_| {
        offset += 1;
        const mark: Mark = .{ .offset = offset, .check = try rest.int48() };
        const time_ms = try rest.int(u64);
        const bytes = try rest.take(try rest.int(u32));
        topics.refill(topic, mark, time_ms, bytes) catch |err| return switch (err) {
            error.OutOfMemory => error.OutOfMemory,
            error.TooLong => error.Malformed,
        };
    }
}

const Bytes = struct {
    bytes: []const u8,
    at: usize = 0,

    fn take(rest: *Bytes, len: usize) error{Malformed}![]const u8 {
        if (len > rest.bytes.len - rest.at) return error.Malformed;
        rest.at += len;
        return rest.bytes[rest.at - len ..][0..len];
    }

    fn int(rest: *Bytes, comptime Int: type) error{Malformed}!Int {
        const len = @divExact(@bitSizeOf(Int), 8);
        return std.mem.readInt(Int, (try rest.take(len))[0..len], .little);
    }

    fn int48(rest: *Bytes) error{Malformed}!u48 {
        return std.math.cast(u48, try rest.int(u64)) orelse error.Malformed;
    }
};

const testing = std.testing;

/// Three topics: one has lost its first entries, and one has no entry.
fn example() !Topics {
    var topics: Topics = .init(testing.allocator, 3);
    topics.bounds.entries_max = 4;
    for (0..6) |index| {
        topics.tick(100 + index);
        _ = try topics.append("long", &[_]u8{ 'a', @intCast('0' + index) });
    }
    _ = try topics.append("short", "only");
    _ = try topics.look("empty");
    return topics;
}

fn written(topics: *const Topics) !std.ArrayList(u8) {
    var list: std.ArrayList(u8) = .empty;
    errdefer list.deinit(testing.allocator);
    try write(topics, testing.allocator, &list);
    return list;
}

test "all topics are there again, with their positions and entries" {
    const gpa = testing.allocator;
    var before = try example();
    defer before.deinit();
    var list = try written(&before);
    defer list.deinit(gpa);
    var after: Topics = .init(gpa, 4);
    defer after.deinit();
    after.bounds = before.bounds;
    after.tick(110);
    try read(&after, list.items);
    after.invariants();
    try testing.expectEqual(before.bytes, after.bytes);
    var all = before.inOrder();
    while (all.next()) |topic| {
        const log = &after.by_name.get(topic.name).?.log;
        try testing.expectEqual(topic.log.now(), log.now());
        try testing.expectEqual(topic.log.base, log.base);
        var old = topic.log.entriesAfter(0);
        var new = log.entriesAfter(0);
        while (old.next()) |entry| try testing.expectEqualDeep(entry, new.next().?);
        try testing.expectEqual(null, new.next());
    }
    const next = try after.append("long", "next");
    try testing.expectEqual(7, next.mark.offset);
    try testing.expectEqual(before.by_name.get("long").?.log.epoch, next.epoch);
}

test "a hub with smaller bounds keeps the newest entries, and lets go of those that are too old" {
    const gpa = testing.allocator;
    var before = try example();
    defer before.deinit();
    var list = try written(&before);
    defer list.deinit(gpa);
    var after: Topics = .init(gpa, 4);
    defer after.deinit();
    after.bounds.entries_max = 2;
    try read(&after, list.items);
    const log = &after.by_name.get("long").?.log;
    try testing.expectEqual(4, log.base.offset);
    try testing.expectEqual(before.by_name.get("long").?.log.now(), log.now());
    after.tick(105 + after.bounds.age_ms_max + 1);
    try testing.expectEqual(0, after.by_name.count());
    try testing.expectEqual(0, after.bytes);
}

test "bytes that are cut, or say what cannot be, leave no topic" {
    const gpa = testing.allocator;
    var before = try example();
    defer before.deinit();
    var list = try written(&before);
    defer list.deinit(gpa);
    var after: Topics = .init(gpa, 4);
    defer after.deinit();
    for (0..list.items.len) |len| {
        // The length in the header is corrected, so that the reader of topics finds what is missing.
        for ([_]bool{ false, true }) |fits| {
            const cut = try gpa.dupe(u8, list.items[0..len]);
            defer gpa.free(cut);
            if (fits and len >= 16) std.mem.writeInt(u64, cut[8..16], len, .little);
            read(&after, cut) catch |err| {
                try testing.expectEqual(error.Malformed, err);
                try testing.expectEqual(0, after.by_name.count());
                continue;
            };
            // The bytes were cut between two topics.
            try testing.expect(fits);
            after.forgetAll();
        }
    }
    const twice = try std.mem.concat(gpa, u8, &.{ list.items, list.items[16..] });
    defer gpa.free(twice);
    std.mem.writeInt(u64, twice[8..16], twice.len, .little);
    try testing.expectError(error.Malformed, read(&after, twice));
    try testing.expectEqual(0, after.bytes);
}

test "memory that runs out leaves no topic" {
    var before = try example();
    defer before.deinit();
    var list: std.ArrayList(u8) = .empty;
    defer list.deinit(testing.allocator);
    try write(&before, testing.allocator, &list);
    var index: usize = 0;
    while (true) : (index += 1) {
        var failing = std.testing.FailingAllocator.init(testing.allocator, .{ .fail_index = index });
        var after: Topics = .init(failing.allocator(), 4);
        defer after.deinit();
        read(&after, list.items) catch |err| {
            try testing.expectEqual(error.OutOfMemory, err);
            try testing.expectEqual(0, after.by_name.count());
            continue;
        };
        return testing.expect(index > 3);
    }
}

/// The place of the first topic's offset in the bytes.
const first_offset_at = magic.len + 8 + 2 + "long".len + 2 * 8;

test "no offset makes the hub overflow" {
    const gpa = testing.allocator;
    var before = try example();
    defer before.deinit();
    var list = try written(&before);
    defer list.deinit(gpa);
    const max = std.math.maxInt(u64);
    // The topic has four entries.
    for ([_]u64{ max, max - 1, max - 3, max - 4, max - 5, offset_max + 1 }) |offset| {
        var after: Topics = .init(gpa, 4);
        defer after.deinit();
        std.mem.writeInt(u64, list.items[first_offset_at..][0..8], offset, .little);
        try testing.expectError(error.Malformed, read(&after, list.items));
        try testing.expectEqual(0, after.by_name.count());
    }
    var after: Topics = .init(gpa, 4);
    defer after.deinit();
    std.mem.writeInt(u64, list.items[first_offset_at..][0..8], offset_max, .little);
    try read(&after, list.items);
    const next = try after.append("long", "next");
    try testing.expectEqual(offset_max + 5, next.mark.offset);
}

test "the hub goes on with whatever random bytes say" {
    const gpa = testing.allocator;
    var before = try example();
    defer before.deinit();
    var list = try written(&before);
    defer list.deinit(gpa);
    const seeds: Seeds = try .init(1, 3000);
    var read_well: usize = 0;
    for (seeds.first..seeds.end) |seed| {
        errdefer std.debug.print("PEREGRINE_SEED={}\n", .{seed});
        var prng: std.Random.DefaultPrng = .init(seed);
        const random = prng.random();
        const bytes = try gpa.dupe(u8, list.items);
        defer gpa.free(bytes);
        for (0..random.intRangeAtMost(usize, 1, 4)) |_| damage(random, bytes);
        var after: Topics = .init(gpa, 4);
        defer after.deinit();
        after.tick(110);
        if (read(&after, bytes)) |_| {
            read_well += 1;
        } else |err| {
            try testing.expectEqual(error.Malformed, err);
            try testing.expectEqual(0, after.by_name.count());
        }
        after.invariants();
        // The hub goes on after that.
        after.tick(111);
        for ([_][]const u8{ "long", "short", "new" }) |name| _ = try after.append(name, "next");
        var again: std.ArrayList(u8) = .empty;
        defer again.deinit(gpa);
        try write(&after, gpa, &again);
        after.tick(std.math.maxInt(u64));
    }
    if (seeds.are_many) try testing.expect(read_well > 0 and read_well < 3000);
}

/// Changes bytes behind the magic: some random bytes, a number to its largest value, or one byte by one.
fn damage(random: std.Random, bytes: []u8) void {
    const place = bytes[random.intRangeLessThan(usize, magic.len + 8, bytes.len - 8)..];
    switch (random.uintLessThan(u8, 3)) {
        0 => random.bytes(place[0..random.intRangeAtMost(usize, 1, 8)]),
        1 => @memset(place[0..8], 0xff),
        2 => place[0] +%= 1,
        else => unreachable,
    }
}
