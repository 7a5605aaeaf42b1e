//! The frames that a hub and its nodes exchange over a Unix stream socket. All kinds have one layout, so that
//! one function writes frames and one reads them. Does not know: sockets, and the effect of a frame.
//!
//!     4 bytes of the rest | 1 kind | 1 code | 2 bytes of the name | 4 number | 8 node | 4 bytes of extra
//!     name | extra | payload
//!
//! Integers are little-endian.
const std = @import("std");
const assert = std.debug.assert;
const limits = @import("limits.zig");
const Position = @import("position.zig").Position;

/// A number that changes when a hub and a node of different builds could misunderstand each other.
pub const version = 5;

/// The kinds of frames. The comment of a kind names the members that it uses.
pub const Kind = enum(u8) {
    // Frames of a node to its hub.
    /// Greets the hub. number: `version`; extra: the node's secret.
    hello,
    /// Subscribes to a topic of channels. name: topic; number: the request's, which `done` answers; 0: no
    /// answer.
    subscribe,
    /// Ends a subscription. name: topic.
    unsubscribe,
    /// Publishes a message. name: topic; extra: names of channels that do not get it, between spaces;
    /// payload; number.
    publish,
    /// Sends a message to one channel. name: channel or topic; payload; number.
    send,
    /// Subscribes a channel of any node to a topic; `discard` ends that. name: channel; extra: topic; number.
    add,
    discard,
    /// Ends all subscriptions and drops all messages, at all nodes; number.
    flush,
    /// Asks for an answer when all earlier frames of the node were handled; number.
    sync,
    /// Answers `mail`, `join` or `leave`. code; node and number: those of that frame.
    answer,
    /// Adds an entry to a topic with history. name: topic; payload; number.
    append,
    /// Begins to copy a topic's history. name: topic; extra: the position of the node's newest entry, or
    /// empty; node: a number that all frames about this following have.
    follow,
    /// Ends the following of a topic. name: topic.
    unfollow,
    /// Asks for the position of a topic's newest entry. name: topic; number.
    look,
    /// Reports the node's counts since its last report. payload: Tally in tally.zig.
    tally,
    /// Asks for the hub's counts; number.
    count,

    // Frames of a hub to a node.
    /// Answers `hello`. number: `version`.
    welcome,
    /// Answers a request. number; code; extra: a position, or the hub's counts.
    done,
    /// Brings a published message. name: topic; extra: names of channels that do not get it; payload.
    publication,
    /// Brings a message for one channel. name: the channel, or a topic of which one channel gets it; payload;
    /// node and number: for `answer`; between hubs extra: the prefix of the sending node's share.
    mail,
    /// Subscribes a channel of the node to a topic; `leave` ends that. name: channel; extra: topic; node and
    /// number: for `answer`; between hubs payload: like the extra of `mail`.
    join,
    leave,
    flushed,
    /// Begins a history that does not follow the node's entries. name: topic; extra: the position of the
    /// entry before the first one; node: that of `follow`.
    begins,
    /// Brings the next entry. name: topic; extra: its position; number: its age in milliseconds; node;
    /// payload.
    entry,
    /// Says that the node has all entries. name: topic; node.
    live,
    /// Says that there may be entries which the hub does not have, until the next `live`. name: topic; node.
    stale,

    // Frames about subscribers.
    /// Asks for the subscribers of a topic. name: topic; extra: not empty for a topic with history; number;
    /// between hubs node and number: those of the asking node.
    who,
    /// Asks a node for its subscribers. name and extra: those of `who`; node: the number of the question.
    roll,
    /// Answers `roll` or, between hubs, `who`. node: the number of the question, or the asking node; number:
    /// between hubs, that of the asking node's request; payload: Present in rolls.zig.
    present,
    /// Lets an engine's node name channels of another node, for which it reads topics. extra: that node's
    /// secret.
    speak,
    /// Refuses to let a topic be followed. name: topic; node: that of `follow`; code.
    refused,
};

/// A random number that a node draws when it starts, and tells only to hubs and to its engine.
pub const Secret = u128;
pub const secret_bytes = @sizeOf(Secret);

/// The id of a node, a digest of its secret. Names of channels contain the id, so others know it, but only
/// the node can prove it.
pub fn nodeOf(secret: Secret) u64 {
    var digest: [std.crypto.hash.sha2.Sha256.digest_length]u8 = undefined;
    std.crypto.hash.sha2.Sha256.hash(&writeSecret(secret), &digest, .{});
    return std.mem.readInt(u64, digest[0..8], .little);
}

pub fn writeSecret(secret: Secret) [secret_bytes]u8 {
    var bytes: [secret_bytes]u8 = undefined;
    std.mem.writeInt(Secret, &bytes, secret, .little);
    return bytes;
}

pub fn readSecret(bytes: []const u8) error{Malformed}!Secret {
    if (bytes.len != secret_bytes) return error.Malformed;
    return std.mem.readInt(Secret, bytes[0..secret_bytes], .little);
}

/// The length of a position in a topic's history, as `extra`.
pub const place_bytes = 24;

pub fn writePlace(place: Position, out: *[place_bytes]u8) void {
    std.mem.writeInt(u64, out[0..8], place.epoch, .little);
    std.mem.writeInt(u64, out[8..16], place.mark.offset, .little);
    std.mem.writeInt(u64, out[16..24], place.mark.check, .little);
}

pub fn readPlace(bytes: []const u8) error{Malformed}!Position {
    if (bytes.len != place_bytes) return error.Malformed;
    return .{
        .epoch = std.math.cast(u48, std.mem.readInt(u64, bytes[0..8], .little)) orelse
            return error.Malformed,
        .mark = .{
            .offset = std.mem.readInt(u64, bytes[8..16], .little),
            .check = std.math.cast(u48, std.mem.readInt(u64, bytes[16..24], .little)) orelse
                return error.Malformed,
        },
    };
}

/// The result of a request.
pub const Code = enum(u8) {
    ok,
    /// The channel has ended, or never existed.
    gone,
    /// The channel's mailbox is full.
    full,
    /// A limit of limits.zig or config.zig is reached.
    too_many,
    /// The hub cannot be reached, and did not get the request.
    unavailable,
    /// The hub may have got the request, and its result is not known.
    unknown,
    /// A flush has ended the requested subscription.
    flushed,
    /// The name is no channel's name.
    no_channel,
    /// The connection has ended, or does not read the topic any more.
    ended,
    /// The node is confined to topics with another prefix, or the channel's node is not confined to the same
    /// prefix.
    forbidden,
};

pub const Frame = struct {
    kind: Kind,
    code: Code = .ok,
    number: u32 = 0,
    node: u64 = 0,
    name: []const u8 = "",
    extra: []const u8 = "",
    payload: []const u8 = "",

    /// The length of the frame in bytes.
    pub fn size(frame: *const Frame) usize {
        return head_bytes + frame.name.len + frame.extra.len + frame.payload.len;
    }

    pub fn append(frame: *const Frame, gpa: std.mem.Allocator, list: *std.ArrayList(u8)) !void {
        assert(frame.name.len <= limits.name_bytes_max and frame.extra.len <= limits.exclude_bytes_max);
        assert(frame.payload.len <= limits.message_bytes_max);
        try list.ensureUnusedCapacity(gpa, frame.size());
        const head = list.addManyAsArrayAssumeCapacity(head_bytes);
        std.mem.writeInt(u32, head[0..4], @intCast(frame.size() - 4), .little);
        head[4] = @backingInt(frame.kind);
        head[5] = @backingInt(frame.code);
        std.mem.writeInt(u16, head[6..8], @intCast(frame.name.len), .little);
        std.mem.writeInt(u32, head[8..12], frame.number, .little);
        std.mem.writeInt(u64, head[12..20], frame.node, .little);
        std.mem.writeInt(u32, head[20..24], @intCast(frame.extra.len), .little);
        list.appendSliceAssumeCapacity(frame.name);
        list.appendSliceAssumeCapacity(frame.extra);
        list.appendSliceAssumeCapacity(frame.payload);
    }
};

const head_bytes = 24;
const frame_bytes_max = head_bytes + limits.name_bytes_max + limits.exclude_bytes_max +
    limits.message_bytes_max;

/// Reads a frame that `bytes` hold exactly.
pub fn parse(bytes: []const u8) error{Malformed}!Frame {
    if (bytes.len < head_bytes or bytes.len > frame_bytes_max) return error.Malformed;
    if (std.mem.readInt(u32, bytes[0..4], .little) != bytes.len - 4) return error.Malformed;
    return Reader.read(bytes);
}

/// A reader of frames from bytes that arrive in pieces.
pub const Reader = struct {
    bytes: std.ArrayList(u8) = .empty,
    /// The first byte that is in no frame yet.
    at: usize = 0,

    pub fn deinit(reader: *Reader, gpa: std.mem.Allocator) void {
        reader.bytes.deinit(gpa);
        reader.* = .{};
    }

    /// Adds bytes. Slices of earlier frames become invalid.
    pub fn add(reader: *Reader, gpa: std.mem.Allocator, bytes: []const u8) !void {
        const rest = reader.bytes.items.len - reader.at;
        std.mem.copyForwards(u8, reader.bytes.items[0..rest], reader.bytes.items[reader.at..]);
        reader.bytes.items.len = rest;
        reader.at = 0;
        if (rest == 0 and reader.bytes.capacity > kept_bytes) reader.bytes.clearAndFree(gpa);
        try reader.bytes.appendSlice(gpa, bytes);
    }

    /// Memory that is kept; memory of a longer frame is freed after the frame was read.
    const kept_bytes = 128 << 10;

    /// The next whole frame, valid until `add`; null: there is none yet.
    pub fn next(reader: *Reader) error{Malformed}!?Frame {
        const bytes = reader.bytes.items[reader.at..];
        if (bytes.len < 4) return null;
        const len = @as(usize, std.mem.readInt(u32, bytes[0..4], .little)) + 4;
        if (len < head_bytes or len > frame_bytes_max) return error.Malformed;
        if (bytes.len < len) return null;
        reader.at += len;
        return try read(bytes[0..len]);
    }

    fn read(bytes: []const u8) error{Malformed}!Frame {
        const name_len = std.mem.readInt(u16, bytes[6..8], .little);
        const extra_len = std.mem.readInt(u32, bytes[20..24], .little);
        if (name_len > limits.name_bytes_max or extra_len > limits.exclude_bytes_max) return error.Malformed;
        const payload_at = head_bytes + @as(usize, name_len) + extra_len;
        if (payload_at > bytes.len or bytes.len - payload_at > limits.message_bytes_max) {
            return error.Malformed;
        }
        return .{
            .kind = std.enums.fromInt(Kind, bytes[4]) orelse return error.Malformed,
            .code = std.enums.fromInt(Code, bytes[5]) orelse return error.Malformed,
            .number = std.mem.readInt(u32, bytes[8..12], .little),
            .node = std.mem.readInt(u64, bytes[12..20], .little),
            .name = bytes[head_bytes..][0..name_len],
            .extra = bytes[head_bytes + @as(usize, name_len) ..][0..extra_len],
            .payload = bytes[payload_at..],
        };
    }
};

/// Whether a channel or topic may have this name: letters, digits, and `.`, `-`, `_`, `:`.
pub fn isName(name: []const u8) bool {
    if (name.len == 0 or name.len > limits.name_bytes_max) return false;
    for (name) |c| switch (c) {
        'a'...'z', 'A'...'Z', '0'...'9', '.', '-', '_', ':' => {},
        else => return false,
    };
    return true;
}

/// The name of a connection's channel: the id of the node that has its mailbox, and the mailbox's name there.
/// A node draws its secret when it starts, so names of an interpreter that has ended name nothing.
pub const Channel = struct {
    node: u64,
    mailbox: u64,

    const prefix = "conn.";
    const digits = 16;
    /// The length of a name in bytes.
    pub const name_bytes = prefix.len + digits + 1 + digits;

    pub fn write(channel: Channel, buffer: *[name_bytes]u8) []const u8 {
        return std.fmt.bufPrint(buffer, prefix ++ "{x:0>16}.{x}", .{ channel.node, channel.mailbox }) catch
            unreachable;
    }

    /// Reads a name; null: it is no name of a connection's channel.
    pub fn parse(name: []const u8) ?Channel {
        if (!std.mem.startsWith(u8, name, prefix)) return null;
        const rest = name[prefix.len..];
        if (rest.len < digits + 2 or rest[digits] != '.') return null;
        return .{
            .node = number(rest[0..digits]) orelse return null,
            .mailbox = number(rest[digits + 1 ..]) orelse return null,
        };
    }

    fn number(text: []const u8) ?u64 {
        if (text.len == 0 or text.len > digits) return null;
        var value: u64 = 0;
        for (text) |c| value = value << 4 | switch (c) {
            '0'...'9' => c - '0',
            'a'...'f' => c - 'a' + 10,
            else => return null,
        };
        return value;
    }
};

const testing = std.testing;

test "a frame comes out as it went in, at every split point" {
    const gpa = testing.allocator;
    var bytes: std.ArrayList(u8) = .empty;
    defer bytes.deinit(gpa);
    const sent = [_]Frame{
        .{ .kind = .publish, .number = 7, .name = "a.b", .extra = "conn.1 conn.2", .payload = "hello" },
        .{ .kind = .answer, .code = .full, .node = 1 << 63, .number = 1 },
    };
    for (&sent) |*frame| try frame.append(gpa, &bytes);
    for (0..bytes.items.len) |split| {
        var reader: Reader = .{};
        defer reader.deinit(gpa);
        var found: usize = 0;
        for ([_][]const u8{ bytes.items[0..split], bytes.items[split..] }) |part| {
            try reader.add(gpa, part);
            while (try reader.next()) |frame| : (found += 1) try testing.expectEqualDeep(sent[found], frame);
        }
        try testing.expectEqual(sent.len, found);
    }
}

test "a frame that says what cannot be is malformed" {
    const gpa = testing.allocator;
    var good: std.ArrayList(u8) = .empty;
    defer good.deinit(gpa);
    const frame: Frame = .{ .kind = .publish, .name = "topic", .payload = "x" };
    try frame.append(gpa, &good);
    const wrong = [_]struct { usize, u8 }{
        .{ 3, 1 }, // longer than any frame
        .{ 0, 19 }, // shorter than a head
        .{ 4, 250 }, // no known kind
        .{ 5, 250 }, // no known code
        .{ 6, 101 }, // a name that is too long
        .{ 22, 1 }, // more extra than there are bytes
    };
    for (wrong) |change| {
        var reader: Reader = .{};
        defer reader.deinit(gpa);
        try reader.add(gpa, good.items);
        reader.bytes.items[change[0]] = change[1];
        try testing.expectError(error.Malformed, reader.next());
    }
}

test "names of channels" {
    var buffer: [Channel.name_bytes]u8 = undefined;
    const channel: Channel = .{ .node = 0xab, .mailbox = 0x100001 };
    const name = channel.write(&buffer);
    try testing.expectEqualStrings("conn.00000000000000ab.100001", name);
    try testing.expect(isName(name));
    try testing.expectEqual(channel, Channel.parse(name).?);
    for ([_][]const u8{
        "conn.", "conn.1.1", "chat.room", "conn.00000000000000ab.", "conn.00000000000000ab.x",
    }) |other| try testing.expectEqual(null, Channel.parse(other));
    const long: [101]u8 = @splat('a');
    try testing.expect(!isName("") and !isName("a b") and !isName(&long) and isName(long[1..]));
}
