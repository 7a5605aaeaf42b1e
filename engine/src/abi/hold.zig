//! A response that the engine holds open for topics, as bytes without pointers, for the command `hold`. The
//! decoder believes nothing: an interpreter in another process may write any bytes.
const std = @import("std");
const assert = std.debug.assert;
const hub = @import("hub");
const peregrine = @import("peregrine");
const api_limits = peregrine.api_limits;
const encoded = peregrine.encoded;
const wire = hub.wire;

/// The wish of an application about its response.
pub const Hold = struct {
    kind: Kind,
    /// For `.response`: the time after which the response is sent without an entry.
    timeout_ms: u32 = 0,
    /// For `.stream`: the time without an entry after which the keep-alive bytes are sent; 0: never.
    keepalive_ms: u32 = 0,
    keepalive: []const u8 = "",
    topics: Topics,
    /// The response, a command `start` in its encoded form.
    start: []const u8,

    pub const Kind = enum(u8) {
        /// The response begins, and entries are its further content.
        stream,
        /// The first entry becomes the response's content, or the response is sent as it is.
        response,
    };

    /// The form in which a stream gets entries.
    pub const As = enum(u8) { events, bytes };

    pub const Topic = struct {
        name: []const u8,
        as: As,
        /// The position from which the client reads on, as the client says: any text.
        since: []const u8 = "",
    };

    const Head = extern struct {
        kind: u8,
        topic_count: u8,
        reserved: u16 = 0,
        timeout_ms: u32,
        keepalive_ms: u32,
        keepalive_len: u32,
        topics_len: u32,
    };

    const TopicHead = extern struct { as: u8, name_len: u8, since_len: u8, reserved: u8 = 0 };

    pub const topics_max = hub.limits.mailbox_readers_max;
    pub const since_bytes_max = hub.position.Position.text_bytes_max;
    pub const keepalive_bytes_max = api_limits.held_keepalive_bytes_max;
    pub const start_bytes_max = api_limits.held_start_bytes_max + peregrine.head_bytes_max;

    comptime {
        assert(topics_max <= std.math.maxInt(u8) and since_bytes_max <= std.math.maxInt(u8));
        assert(hub.limits.name_bytes_max <= std.math.maxInt(u8));
    }

    /// Topics in their encoded form, which was checked.
    pub const Topics = struct {
        count: u8,
        bytes: []const u8,

        pub fn iterator(topics: *const Topics) Iterator {
            return .{ .rest = topics.bytes };
        }

        pub const Iterator = struct {
            rest: []const u8,

            pub fn next(it: *Iterator) ?Topic {
                if (it.rest.len == 0) return null;
                return it.read() catch unreachable; // the topics were checked
            }

            fn read(it: *Iterator) error{Malformed}!Topic {
                const head = try it.take(@sizeOf(TopicHead));
                const about = std.mem.bytesToValue(TopicHead, head[0..@sizeOf(TopicHead)]);
                const as = std.enums.fromInt(As, about.as) orelse return error.Malformed;
                const name = try it.take(about.name_len);
                const since = try it.take(about.since_len);
                if (about.reserved != 0 or !wire.isName(name)) return error.Malformed;
                if (since.len > since_bytes_max) return error.Malformed;
                return .{ .name = name, .as = as, .since = since };
            }

            fn take(it: *Iterator, len: usize) error{Malformed}![]const u8 {
                if (len > it.rest.len) return error.Malformed;
                defer it.rest = it.rest[len..];
                return it.rest[0..len];
            }
        };

        /// Checks that `bytes` are `count` topics, of which no two have the same name.
        fn check(count: u8, bytes: []const u8) error{Malformed}!Topics {
            if (count == 0 or count > topics_max) return error.Malformed;
            var names: [topics_max][]const u8 = undefined;
            var it: Iterator = .{ .rest = bytes };
            for (0..count) |at| {
                names[at] = (try it.read()).name;
                for (names[0..at]) |other| if (std.mem.eql(u8, names[at], other)) return error.Malformed;
            }
            return if (it.rest.len == 0) .{ .count = count, .bytes = bytes } else error.Malformed;
        }
    };

    /// A wish before it is encoded.
    pub const Wish = struct {
        kind: Kind,
        timeout_ms: u32 = 0,
        keepalive_ms: u32 = 0,
        keepalive: []const u8 = "",
        topics: []const Topic,
        start: *const peregrine.Command,
    };

    /// The bytes of a wish, which are the caller's.
    pub fn encode(gpa: std.mem.Allocator, wish: *const Wish) error{OutOfMemory}![]u8 {
        assert(wish.start.* == .start and wish.topics.len <= topics_max);
        var topics_len: usize = 0;
        for (wish.topics) |topic| topics_len += @sizeOf(TopicHead) + topic.name.len + topic.since.len;
        const head: Head = .{
            .kind = @backingInt(wish.kind),
            .topic_count = @intCast(wish.topics.len),
            .timeout_ms = wish.timeout_ms,
            .keepalive_ms = wish.keepalive_ms,
            .keepalive_len = @intCast(wish.keepalive.len),
            .topics_len = @intCast(topics_len),
        };
        const start_len = encoded.size(wish.start);
        const bytes = try gpa.alloc(u8, @sizeOf(Head) + topics_len + wish.keepalive.len + start_len);
        var rest = bytes;
        put(&rest, std.mem.asBytes(&head));
        for (wish.topics) |topic| {
            const about: TopicHead = .{
                .as = @backingInt(topic.as),
                .name_len = @intCast(topic.name.len),
                .since_len = @intCast(topic.since.len),
            };
            put(&rest, std.mem.asBytes(&about));
            put(&rest, topic.name);
            put(&rest, topic.since);
        }
        put(&rest, wish.keepalive);
        encoded.encode(wish.start, rest);
        return bytes;
    }

    fn put(rest: *[]u8, bytes: []const u8) void {
        @memcpy(rest.*[0..bytes.len], bytes);
        rest.* = rest.*[bytes.len..];
    }

    /// The wish in `bytes`, into which its texts point. Of `start` only the length is checked.
    pub fn decode(bytes: []const u8) error{Malformed}!Hold {
        if (bytes.len < @sizeOf(Head)) return error.Malformed;
        const head = std.mem.bytesToValue(Head, bytes[0..@sizeOf(Head)]);
        const rest = bytes[@sizeOf(Head)..];
        const start_at = @as(u64, head.topics_len) + head.keepalive_len;
        if (head.reserved != 0 or head.keepalive_len > keepalive_bytes_max) return error.Malformed;
        if ((head.keepalive_ms == 0) != (head.keepalive_len == 0)) return error.Malformed;
        if (start_at > rest.len or rest.len - start_at > start_bytes_max) return error.Malformed;
        return .{
            .kind = std.enums.fromInt(Kind, head.kind) orelse return error.Malformed,
            .timeout_ms = head.timeout_ms,
            .keepalive_ms = head.keepalive_ms,
            .topics = try .check(head.topic_count, rest[0..head.topics_len]),
            .keepalive = rest[head.topics_len..@intCast(start_at)],
            .start = rest[@intCast(start_at)..],
        };
    }

    /// The response. Its slices point into the wish, and into `fields`, which is filled.
    pub fn response(
        hold: *const Hold,
        gpa: std.mem.Allocator,
        fields: *std.ArrayList(peregrine.Field),
    ) error{ Malformed, OutOfMemory }!peregrine.Start {
        while (true) {
            const command = encoded.decode(hold.start, fields.allocatedSlice()) catch |err| switch (err) {
                error.Malformed => return error.Malformed,
                error.TooManyFields => {
                    if (fields.capacity > hold.start.len) return error.Malformed;
                    try fields.ensureTotalCapacity(gpa, @max(32, fields.capacity * 2));
                    continue;
                },
            };
            return if (command == .start) command.start else error.Malformed;
        }
    }
};

const testing = std.testing;

const test_start: peregrine.Command = .{ .start = .{
    .status = 200,
    .fields = &.{.init("Content-Type", "text/event-stream")},
    .body = ": hello\n\n",
} };

fn encodeTest() ![]u8 {
    return Hold.encode(testing.allocator, &.{
        .kind = .stream,
        .keepalive_ms = 20_000,
        .keepalive = ":\n\n",
        .topics = &.{
            .{ .name = "app.1", .as = .events, .since = "now" },
            .{ .name = "app.2", .as = .bytes },
        },
        .start = &test_start,
    });
}

test "a wish comes back as it was, and a part of a wish is refused" {
    const bytes = try encodeTest();
    defer testing.allocator.free(bytes);
    const hold = try Hold.decode(bytes);
    try testing.expectEqual(.stream, hold.kind);
    try testing.expectEqualStrings(":\n\n", hold.keepalive);
    try testing.expectEqual(20_000, hold.keepalive_ms);
    var topics = hold.topics.iterator();
    const first: Hold.Topic = .{ .name = "app.1", .as = .events, .since = "now" };
    const second: Hold.Topic = .{ .name = "app.2", .as = .bytes };
    try testing.expectEqualDeep(first, topics.next().?);
    try testing.expectEqualDeep(second, topics.next().?);
    try testing.expectEqual(null, topics.next());
    var fields: std.ArrayList(peregrine.Field) = .empty;
    defer fields.deinit(testing.allocator);
    const start = try hold.response(testing.allocator, &fields);
    try testing.expectEqual(200, start.status);
    try testing.expectEqualStrings(": hello\n\n", start.body);
    try testing.expectEqualStrings("text/event-stream", start.fields[0].value());
    for (0..bytes.len) |cut| {
        const part = Hold.decode(bytes[0..cut]) catch continue;
        try testing.expectError(error.Malformed, part.response(testing.allocator, &fields));
    }
}

test "another command, a topic twice and a topic without a name are refused" {
    const bytes = try encodeTest();
    defer testing.allocator.free(bytes);
    const first = @sizeOf(Hold.Head);
    const second = first + @sizeOf(Hold.TopicHead) + "app.1now".len;
    for ([_][2]usize{
        .{ @offsetOf(Hold.Head, "kind"), 2 },
        .{ @offsetOf(Hold.Head, "topic_count"), 0 },
        .{ @offsetOf(Hold.Head, "topic_count"), 1 },
        .{ @offsetOf(Hold.Head, "topic_count"), 3 },
        .{ @offsetOf(Hold.Head, "reserved"), 1 },
        .{ @offsetOf(Hold.Head, "keepalive_len"), 0 },
        .{ @offsetOf(Hold.Head, "keepalive_len") + 3, 1 },
        .{ @offsetOf(Hold.Head, "topics_len") + 3, 1 },
        .{ first + @offsetOf(Hold.TopicHead, "as"), 2 },
        .{ first + @offsetOf(Hold.TopicHead, "reserved"), 1 },
        .{ first + @offsetOf(Hold.TopicHead, "name_len"), 0 },
        .{ first + @offsetOf(Hold.TopicHead, "since_len"), 255 },
        .{ second + @sizeOf(Hold.TopicHead) + "app.".len, '1' },
    }) |change| {
        const changed = try testing.allocator.dupe(u8, bytes);
        defer testing.allocator.free(changed);
        changed[change[0]] = @intCast(change[1]);
        try testing.expectError(error.Malformed, Hold.decode(changed));
    }
    var fields: std.ArrayList(peregrine.Field) = .empty;
    defer fields.deinit(testing.allocator);
    var hold = try Hold.decode(bytes);
    var other: [encoded.size_min]u8 = undefined;
    encoded.encode(&.flush, &other);
    hold.start = &other;
    try testing.expectError(error.Malformed, hold.response(testing.allocator, &fields));
}
