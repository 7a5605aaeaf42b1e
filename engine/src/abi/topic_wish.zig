//! A wish about a topic as bytes without pointers, for the command `topic`. The decoder believes nothing: an
//! interpreter in another process may write any bytes.
const std = @import("std");
const assert = std.debug.assert;
const hub = @import("hub");
const wire = hub.wire;

/// The wish of an application, about an exchange.
pub const TopicWish = union(enum) {
    /// The exchange reads a topic from now on; if it did so already, it begins anew.
    follow: Follow,
    /// The exchange reads the topic of this name no more.
    unfollow: []const u8,
    /// The application confirms the last message about a topic: entries may follow.
    heard,

    pub const Follow = struct {
        name: []const u8,
        as: As,
        cuts: bool = false,
        /// The position from which the client reads on, as the client says: any text.
        since: []const u8 = "",
        /// The channel of the application's request: the node that has it, by its secret, so that no
        /// interpreter reads in the name of another one; and the mailbox there.
        secret: wire.Secret,
        mailbox: u64,
    };

    /// The form in which the exchange gets entries.
    pub const As = enum(u8) { text, binary, events };

    const Tag = std.meta.Tag(TopicWish);

    const Head = extern struct {
        kind: u8,
        as: u8 = 0,
        cuts: u8 = 0,
        name_len: u8 = 0,
        since_len: u32 = 0,
        mailbox: u64 = 0,
        secret: [wire.secret_bytes]u8 = @splat(0),
    };

    /// Longer texts are no positions.
    pub const since_bytes_max = hub.position.Position.text_bytes_max;
    pub const bytes_max = @sizeOf(Head) + hub.limits.name_bytes_max + since_bytes_max;

    comptime {
        assert(hub.limits.name_bytes_max <= std.math.maxInt(u8));
    }

    /// Encodes a wish, whose name is valid, and whose position is not too long.
    pub fn encode(wish: TopicWish, buffer: *[bytes_max]u8) []const u8 {
        const kind: u8 = @backingInt(@as(Tag, wish));
        const head: Head, const name: []const u8, const since: []const u8 = switch (wish) {
            .follow => |follow| .{ .{
                .kind = kind,
                .as = @backingInt(follow.as),
                .cuts = @intFromBool(follow.cuts),
                .name_len = @intCast(follow.name.len),
                .since_len = @intCast(follow.since.len),
                .mailbox = follow.mailbox,
                .secret = wire.writeSecret(follow.secret),
            }, follow.name, follow.since },
            .unfollow => |name| .{ .{ .kind = kind, .name_len = @intCast(name.len) }, name, "" },
            .heard => .{ .{ .kind = kind }, "", "" },
        };
        var writer: std.Io.Writer = .fixed(buffer);
        for ([_][]const u8{ std.mem.asBytes(&head), name, since }) |part| {
            writer.writeAll(part) catch unreachable; // the buffer has room for the longest wish
        }
        return writer.buffered();
    }

    /// The wish in `bytes`, into which its texts point.
    pub fn decode(bytes: []const u8) error{Malformed}!TopicWish {
        if (bytes.len < @sizeOf(Head)) return error.Malformed;
        const head = std.mem.bytesToValue(Head, bytes[0..@sizeOf(Head)]);
        const rest = bytes[@sizeOf(Head)..];
        if (head.since_len > since_bytes_max or rest.len != head.name_len + head.since_len) {
            return error.Malformed;
        }
        const name = rest[0..head.name_len];
        const kind = std.enums.fromInt(Tag, head.kind) orelse return error.Malformed;
        if (kind == .heard) return .heard;
        if (!wire.isName(name)) return error.Malformed;
        if (kind == .unfollow) return .{ .unfollow = name };
        if (head.cuts > 1) return error.Malformed;
        return .{
            .follow = .{
                .name = name,
                .as = std.enums.fromInt(As, head.as) orelse return error.Malformed,
                .cuts = head.cuts != 0,
                .since = rest[head.name_len..],
                .secret = wire.readSecret(&head.secret) catch unreachable, // the secret has its length
                .mailbox = head.mailbox,
            },
        };
    }
};

const testing = std.testing;

test "a wish comes back as it was, and a part of it is none" {
    var buffer: [TopicWish.bytes_max]u8 = undefined;
    for ([_]TopicWish{
        .{ .follow = .{
            .name = "room.1",
            .as = .events,
            .cuts = true,
            .since = "7f15e87a9941.3.2e73586fdbd8",
            .secret = 7,
            .mailbox = 1 << 40,
        } },
        .{ .follow = .{ .name = "a", .as = .text, .secret = 1 << 127, .mailbox = 2 } },
        .{ .unfollow = "room.1" },
        .heard,
    }) |wish| {
        const bytes = wish.encode(&buffer);
        try testing.expectEqualDeep(wish, try TopicWish.decode(bytes));
        for (0..bytes.len) |cut| {
            try testing.expectError(error.Malformed, TopicWish.decode(bytes[0..cut]));
        }
    }
}

test "no name, no way to send entries, and no position of any length" {
    var buffer: [TopicWish.bytes_max]u8 = undefined;
    const wish: TopicWish = .{ .follow = .{
        .name = "ab",
        .as = .text,
        .secret = 1,
        .mailbox = 2,
    } };
    const len = wish.encode(&buffer).len;
    for ([_][2]usize{
        .{ @offsetOf(TopicWish.Head, "kind"), 3 },
        .{ @offsetOf(TopicWish.Head, "as"), 3 },
        .{ @offsetOf(TopicWish.Head, "cuts"), 2 },
        .{ @offsetOf(TopicWish.Head, "since_len") + 3, 1 },
        .{ @sizeOf(TopicWish.Head), ' ' },
    }) |change| {
        var bytes = buffer;
        bytes[change[0]] = @intCast(change[1]);
        try testing.expectError(error.Malformed, TopicWish.decode(bytes[0..len]));
    }
}
