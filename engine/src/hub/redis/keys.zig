//! Names of keys and channels in Redis, and the forms of entries there. Does not know: connections.
const std = @import("std");
const assert = std.debug.assert;
const position = @import("../position.zig");
const Placed = @import("../log.zig").Placed;
const Tree = @import("../tree.zig").Tree;

/// The kinds of keys, and the channel, of a topic.
pub const Kind = enum { stream, head, done, channel };

/// The kinds of messages that hubs get over channels.
pub const Feed = enum {
    /// Entries of a topic with history, which script.lua publishes.
    entries,
    /// Messages for all channels that have subscribed to a topic of channels.
    group,
    /// Frames for one node at any hub.
    node,

    fn ending(feed: Feed) []const u8 {
        return switch (feed) {
            .entries => "channel",
            .group => "group",
            .node => "node",
        };
    }
};

/// Writes the name of a feed's channel to `out`, which must have `room` bytes.
pub fn writeFeed(out: []u8, prefix: []const u8, feed: Feed, name: []const u8) []const u8 {
    return std.fmt.bufPrint(out, "{s}{{{s}}}{s}", .{ prefix, name, feed.ending() }) catch
        unreachable; // `room` has counted the bytes
}

/// A feed, by the name of its Redis channel.
pub const Fed = struct { feed: Feed, name: []const u8 };

/// The feed of a channel; null: the channel is not one of this program.
pub fn feedOf(prefix: []const u8, channel: []const u8) ?Fed {
    if (!std.mem.startsWith(u8, channel, prefix)) return null;
    const rest = channel[prefix.len..];
    const end = std.mem.findScalarLast(u8, rest, '}') orelse return null;
    if (end == 0 or rest[0] != '{') return null;
    for (std.enums.values(Feed)) |feed| {
        if (std.mem.eql(u8, rest[end + 1 ..], feed.ending())) return .{ .feed = feed, .name = rest[1..end] };
    }
    return null;
}

/// Writes the name of a topic's key. The topic is in braces, so that a cluster keeps the topic's keys in one
/// slot.
pub fn write(out: []u8, prefix: []const u8, kind: Kind, topic: []const u8, hub: u48) []const u8 {
    var writer: std.Io.Writer = .fixed(out);
    print(&writer, prefix, kind, topic, hub) catch unreachable; // `room` has counted the bytes
    return writer.buffered();
}

/// Writes the name of the key with a share's topics (room.lua). `out` must have `room` bytes for one of these
/// topics.
pub fn writeRoom(out: []u8, prefix: []const u8, share: []const u8) []const u8 {
    return std.fmt.bufPrint(out, "{s}{{{s}}}room", .{ prefix, share }) catch
        unreachable; // names of topics are longer
}

/// The bytes that the longest name of a topic's keys and channels takes.
pub fn room(prefix: []const u8, topic: []const u8) usize {
    return prefix.len + topic.len + "{}channel:".len + 12;
}

fn print(
    writer: *std.Io.Writer,
    prefix: []const u8,
    kind: Kind,
    topic: []const u8,
    hub: u48,
) std.Io.Writer.Error!void {
    try writer.print("{s}{{{s}}}{t}", .{ prefix, topic, kind });
    if (kind == .done) try writer.print(":{x:0>12}", .{hub});
}

/// Reads an entry from a message of script.lua: epoch, offset, check, hub, sequence and bytes.
pub fn parseMessage(text: []const u8) error{Malformed}!Placed {
    var rest = text;
    const epoch = try position.parseHex(try word(&rest));
    const offset = try number(try word(&rest));
    const check = try position.parseHex(try word(&rest));
    const hub = try position.parseHex(try word(&rest));
    const sequence = try number(try word(&rest));
    if (offset == 0) return error.Malformed;
    return .{
        .epoch = epoch,
        .mark = .{ .offset = offset, .check = check },
        .hub = hub,
        .sequence = sequence,
        .bytes = rest,
    };
}

fn word(rest: *[]const u8) error{Malformed}![]const u8 {
    const end = std.mem.findScalar(u8, rest.*, ' ') orelse return error.Malformed;
    defer rest.* = rest.*[end + 1 ..];
    return rest.*[0..end];
}

fn number(text: []const u8) error{Malformed}!u64 {
    for (text) |byte| if (!std.ascii.isDigit(byte)) return error.Malformed;
    return std.fmt.parseInt(u64, text, 10) catch error.Malformed;
}

/// Reads an entry of the stream: its id, and the fields that script.lua has written.
pub fn parseEntry(view: Tree.View, epoch: position.Epoch) error{Malformed}!Placed {
    if (view.count() != 2) return error.Malformed;
    const id = (view.item(0).?.bytes()) orelse return error.Malformed;
    if (!std.mem.endsWith(u8, id, "-0")) return error.Malformed;
    const fields = view.item(1).?;
    if (fields.count() != 10) return error.Malformed;
    var values: [5][]const u8 = undefined;
    var items = fields.items();
    for (&values, "chstd") |*value, name| {
        if (!items.next().?.is(&.{name})) return error.Malformed;
        value.* = items.next().?.bytes() orelse return error.Malformed;
    }
    const offset = try number(id[0 .. id.len - 2]);
    if (offset == 0) return error.Malformed;
    return .{
        .epoch = epoch,
        .mark = .{ .offset = offset, .check = try position.parseHex(values[0]) },
        .hub = try position.parseHex(values[1]),
        .sequence = try number(values[2]),
        .bytes = values[4],
    };
}

const testing = std.testing;

test "names of keys, and topics of channels" {
    var out: [64]u8 = undefined;
    try testing.expectEqualStrings("app:{room.42}stream", write(&out, "app:", .stream, "room.42", 1));
    const done = write(&out, "app:", .done, "room.42", 10);
    try testing.expectEqualStrings("app:{room.42}done:00000000000a", done);
    try testing.expect(write(&out, "p", .done, "t", 10).len <= room("p", "t"));
    for ([_][]const u8{ "", "x", "a}b{c", "}channel" }) |topic| {
        const channel = write(&out, "app:", .channel, topic, 1);
        try testing.expect(channel.len <= room("app:", topic));
        try testing.expectEqualStrings(topic, feedOf("app:", channel).?.name);
        for (std.enums.values(Feed)) |feed| {
            const name = writeFeed(&out, "app:", feed, topic);
            try testing.expect(name.len <= room("app:", topic));
            try testing.expectEqualDeep(Fed{ .feed = feed, .name = topic }, feedOf("app:", name).?);
        }
    }
    try testing.expectEqualStrings("p:{t}channel", writeFeed(&out, "p:", .entries, "t"));
    for ([_][]const u8{ "", "app:", "app:{}chan", "other:{x}channel", "app:x}channel" }) |channel| {
        try testing.expectEqual(null, feedOf("app:", channel));
    }
}

test "messages of the script, and others" {
    const entry = try parseMessage("0000000000ab 7 00000000000c 00000000000d 12 a b");
    try testing.expectEqual(0xab, entry.epoch);
    try testing.expectEqual(position.Mark{ .offset = 7, .check = 12 }, entry.mark);
    try testing.expectEqual(13, entry.hub);
    try testing.expectEqual(12, entry.sequence);
    try testing.expectEqualStrings("a b", entry.bytes);
    const empty = try parseMessage("0000000000ab 7 00000000000c 00000000000d 12 ");
    try testing.expectEqualStrings("", empty.bytes);
    for ([_][]const u8{
        "",
        "hello",
        "0000000000ab 7 00000000000c 00000000000d 12",
        "0000000000ab 0 00000000000c 00000000000d 12 a",
        "0000000000ab -7 00000000000c 00000000000d 12 a",
        "ab 7 00000000000c 00000000000d 12 a",
        "0000000000ab 99999999999999999999 00000000000c 00000000000d 12 a",
    }) |text| try testing.expectError(error.Malformed, parseMessage(text));
}
