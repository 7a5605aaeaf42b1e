//! The frames that a hub and its nodes exchange over a Unix stream socket: one layout for all kinds, so that
//! there is one function that writes and one that reads.
//! Does not know: sockets, and what a frame does.
//!
//!     4 bytes of the rest | 1 kind | 1 code | 2 bytes of the name | 4 number | 8 node | 4 bytes of extra
//!     name | extra | payload
//!
//! Integers are little-endian.
const std = @import("std");
const assert = std.debug.assert;
const limits = @import("limits.zig");
const Position = @import("position.zig").Position;

/// Changes when a hub of an older build could misunderstand a node of a newer one, or the other way round.
pub const version = 5;

/// The fields that a kind uses besides are named in its comment.
pub const Kind = enum(u8) {
    // From a node to its hub.
    /// number: version; extra: the node's secret.
    hello,
    /// name: topic; number: of the request that `done` answers, 0: none does.
    subscribe,
    /// name: topic.
    unsubscribe,
    /// name: topic; extra: names of channels without it, between spaces; payload; number.
    publish,
    /// name: channel or topic; payload; number.
    send,
    /// name: channel; extra: topic; number.
    add,
    discard,
    /// Ends all subscriptions and drops all messages, everywhere; number.
    flush,
    /// Answered when all that the node has said before was done; number.
    sync,
    /// The result of `mail`, `join` or `leave`: code; their node and number.
    answer,
    /// A new entry of a topic with history. name: topic; payload; number.
    append,
    /// From here on the node takes over a topic's history. name: topic; extra: the place of its newest entry,
    /// empty if it has none; node: a number of this following, which is in all that is told of it.
    follow,
    /// name: topic.
    unfollow,
    /// Asks for the place of a topic's newest entry. name: topic; number.
    look,
    /// The node's account since it told the last one. payload: tally.zig, Tally.
    tally,
    /// Asks for the hub's counts; number.
    count,

    // From a hub to a node.
    /// number: version.
    welcome,
    /// number, code; extra: the place that was made, or asked for; or the counts.
    done,
    /// name: topic; extra; payload.
    publication,
    /// name: channel, or a topic of which one channel gets it; payload; node and number: for `answer`;
    /// between hubs extra: the prefix of the share of the node that sends it.
    mail,
    /// name: channel; extra: topic; node and number: for `answer`; between hubs payload: as the extra of
    /// `mail`.
    join,
    leave,
    flushed,
    /// The history that follows has nothing to do with what the node has. name: topic; extra: the place of
    /// the entry before the first; node: as in `follow`.
    begins,
    /// The next entry. name: topic; extra: its place; number: milliseconds that it is old; node; payload.
    entry,
    /// The node has all entries. name: topic; node.
    live,
    /// The hub does not know whether there are further entries, until it says `live` again. name: topic;
    /// node.
    stale,

    // About who is subscribed.
    /// From a node, and between hubs: who is? name: topic; extra: not empty if it has a history; number;
    /// between hubs node and number are those of the node that asks.
    who,
    /// From a hub to a node: who is? name, extra: as before; node: of the question.
    roll,
    /// From a node to its hub: node: of the question; between hubs: node and number: of the node that asks.
    /// payload: rolls.zig, Present.
    present,
    /// From an engine's node: it reads topics for channels of another node, and may name these. extra: the
    /// secret of that node.
    speak,
    /// From a hub to a node: the topic is not followed. name: topic; node: as in `follow`; code.
    refused,
};

/// Drawn by a node when it starts, and told to hubs and to the node's engine alone.
pub const Secret = u128;
pub const secret_bytes = @sizeOf(Secret);

/// A node's id follows from its secret: channels have the id in their names, so others know it, and none of
/// them can take it.
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

/// A place in a topic's history, as `extra`.
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
    /// The channel has ended, or never was.
    gone,
    /// The channel's mailbox is full.
    full,
    /// A limit of limits.zig is reached.
    too_many,
    /// The hub cannot be reached, and has not got the request.
    unavailable,
    /// The hub has got the request, and its result is not known.
    unknown,
    /// A flush has ended the subscription that was asked for.
    flushed,
    /// The name is that of no channel.
    no_channel,
    /// The connection has ended, or reads the topic no more.
    ended,
    /// The node is confined to topics of another prefix, or the channel is of a node that is not confined to
    /// the same.
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

    /// Bytes on the wire.
    pub fn size(frame: *const Frame) usize {
        return head_bytes + frame.name.len + frame.extra.len + frame.payload.len;
    }

    /// Appends the frame to bytes that are to be sent.
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

/// Reads a frame that is all of the bytes.
pub fn parse(bytes: []const u8) error{Malformed}!Frame {
    if (bytes.len < head_bytes or bytes.len > frame_bytes_max) return error.Malformed;
    if (std.mem.readInt(u32, bytes[0..4], .little) != bytes.len - 4) return error.Malformed;
    return Reader.read(bytes);
}

/// Bytes that have come, and the frames in them.
pub const Reader = struct {
    bytes: std.ArrayList(u8) = .empty,
    /// The first byte that is in no frame yet.
    at: usize = 0,

    pub fn deinit(reader: *Reader, gpa: std.mem.Allocator) void {
        reader.bytes.deinit(gpa);
        reader.* = .{};
    }

    /// Consumes the frame that `next` has returned.
    pub fn add(reader: *Reader, gpa: std.mem.Allocator, bytes: []const u8) !void {
        const rest = reader.bytes.items.len - reader.at;
        std.mem.copyForwards(u8, reader.bytes.items[0..rest], reader.bytes.items[reader.at..]);
        reader.bytes.items.len = rest;
        reader.at = 0;
        if (rest == 0 and reader.bytes.capacity > kept_bytes) reader.bytes.clearAndFree(gpa);
        try reader.bytes.appendSlice(gpa, bytes);
    }

    /// Memory of a long frame goes back when that was read.
    const kept_bytes = 128 << 10;

    /// The next whole frame; its slices are good until `add`.
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

/// Whether channels and topics may be called this: letters, digits, and `.`, `-`, `_`, `:`.
pub fn isName(name: []const u8) bool {
    if (name.len == 0 or name.len > limits.name_bytes_max) return false;
    for (name) |c| switch (c) {
        'a'...'z', 'A'...'Z', '0'...'9', '.', '-', '_', ':' => {},
        else => return false,
    };
    return true;
}

/// The name of a connection's channel: the node that has its mailbox, and the mailbox's number there. A node
/// draws its id when it starts, so that the name of an interpreter that is gone names nothing.
pub const Channel = struct {
    node: u64,
    mailbox: u64,

    const prefix = "conn.";
    const digits = 16;
    /// The bytes of each name.
    pub const name_bytes = prefix.len + digits + 1 + digits;

    pub fn write(channel: Channel, buffer: *[name_bytes]u8) []const u8 {
        return std.fmt.bufPrint(buffer, prefix ++ "{x:0>16}.{x}", .{ channel.node, channel.mailbox }) catch
            unreachable;
    }

    /// Null: the name is no connection's.
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
        .{ 3, 1 }, // longer than all frames
        .{ 0, 19 }, // shorter than a head
        .{ 4, 250 }, // no kind
        .{ 5, 250 }, // no code
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
