//! The shares of a hub: topics whose names begin with a prefix, and the nodes that are confined to these
//! topics. So a confined node cannot take the room of others. The first share has no prefix: its nodes may
//! name any topic, and it has the topics of no other share. At a node with connections of several mounts,
//! shares divide the room of copies (readers.zig). Does not know: connections, and what is kept of a topic.
const std = @import("std");
const assert = std.debug.assert;
const limits = @import("limits.zig");
const wire = @import("wire.zig");
const Allocator = std.mem.Allocator;

pub const Share = struct {
    /// The prefix; empty for the first share and for the share of other hubs. Owned memory.
    prefix: []const u8,
    /// The number of connections of nodes that are confined to the share.
    nodes: u32 = 0,
    /// The number of these nodes' subscriptions to topics of channels.
    subscriptions: u32 = 0,
    /// Topics with history, in the order of their latest use, with their number and the cost of their
    /// entries.
    by_use: std.DoublyLinkedList = .{},
    topics: u32 = 0,
    bytes: u64 = 0,
    /// At a node: copies in lists by the highest bit of their cost, in the order of their latest change.
    /// `bytes` is the sum of the costs.
    by_cost: [64]std.DoublyLinkedList = @splat(.{}),
    /// Topics whose history must be read from Redis, in the order in which they wait.
    unread: std.DoublyLinkedList = .{},
    /// Bytes that wait for the nodes of the share.
    waiting: u64 = 0,

    /// Whether a node of this share may name the topic.
    pub fn has(share: *const Share, topic: []const u8) bool {
        return std.mem.startsWith(u8, topic, share.prefix);
    }
};

pub const Shares = struct {
    pub const Index = u8;
    /// The share without a prefix.
    pub const rest: Index = 0;

    gpa: Allocator,
    others: std.ArrayList(*Share) = .empty,
    first: Share = .{ .prefix = "" },
    /// The share of nodes at other hubs whose prefix no node here has. It has no topics and no nodes here.
    /// Null: there was no such node.
    elsewhere: ?Index = null,

    pub fn init(gpa: Allocator) Shares {
        return .{ .gpa = gpa };
    }

    pub fn deinit(shares: *Shares) void {
        for (shares.others.items) |share| {
            shares.gpa.free(share.prefix);
            shares.gpa.destroy(share);
        }
        shares.others.deinit(shares.gpa);
        shares.* = undefined;
    }

    pub fn at(shares: *Shares, index: Index) *Share {
        return if (index == rest) &shares.first else shares.others.items[index - 1];
    }

    pub fn count(shares: *const Shares) Index {
        return @intCast(1 + shares.others.items.len);
    }

    pub const Error = error{ OutOfMemory, TooMany, Malformed };

    /// The share of a prefix; null: there is none.
    fn find(shares: *const Shares, prefix: []const u8) ?Index {
        if (prefix.len == 0) return rest;
        for (shares.others.items, 1..) |share, index| {
            if (std.mem.eql(u8, share.prefix, prefix)) return @intCast(index);
        }
        return null;
    }

    /// The share of a prefix, which is created if there is none. Shares are never removed, because a server
    /// has few.
    pub fn of(shares: *Shares, prefix: []const u8) Error!Index {
        if (shares.find(prefix)) |index| return index;
        if (!wire.isName(prefix)) return error.Malformed;
        const here = shares.count() - @intFromBool(shares.elsewhere != null);
        if (here == limits.shares_max) return error.TooMany;
        return shares.add(prefix);
    }

    /// The share of a prefix for a node at another hub. All foreign prefixes have one share, so that they
    /// make the parts of mounts here smaller only by one part.
    pub fn ofElsewhere(shares: *Shares, prefix: []const u8) error{OutOfMemory}!Index {
        if (shares.find(prefix)) |index| return index;
        if (shares.elsewhere == null) shares.elsewhere = try shares.add("");
        return shares.elsewhere.?;
    }

    fn add(shares: *Shares, prefix: []const u8) error{OutOfMemory}!Index {
        assert(shares.count() <= limits.shares_max);
        try shares.others.ensureUnusedCapacity(shares.gpa, 1);
        const share = try shares.gpa.create(Share);
        errdefer shares.gpa.destroy(share);
        share.* = .{ .prefix = try shares.gpa.dupe(u8, prefix) };
        shares.others.appendAssumeCapacity(share);
        return shares.count() - 1;
    }

    /// The share whose prefix is the longest that a topic's name begins with.
    pub fn ownerOf(shares: *Shares, topic: []const u8) Index {
        var owner: Index = rest;
        for (shares.others.items, 1..) |share, index| {
            if (share.has(topic) and share.prefix.len > shares.at(owner).prefix.len) owner = @intCast(index);
        }
        return owner;
    }

    /// The room of a share, of `all` that the hub has. Each share with a prefix has an equal part, but at
    /// most `most`; the first share has the rest. A new share makes the parts of others smaller, but nodes
    /// keep what they have.
    pub fn roomOf(shares: *const Shares, index: Index, all: u64, most: u64) u64 {
        assert(index < shares.count());
        const part = @min(most, all / shares.count());
        return if (index == rest) all - part * (shares.count() - 1) else part;
    }

    /// The share with the largest value of `what`.
    pub fn withMost(shares: *Shares, comptime what: enum { topics, bytes, waiting }) *Share {
        var most = &shares.first;
        for (shares.others.items) |share| {
            if (@field(share, @tagName(what)) > @field(most, @tagName(what))) most = share;
        }
        return most;
    }
};

const testing = std.testing;

test "the parts of all shares are no more than there is, and that of the first is no smaller than others" {
    var shares: Shares = .init(testing.allocator);
    defer shares.deinit();
    try testing.expectEqual(100, shares.roomOf(Shares.rest, 100, 25));
    const forum = try shares.of("forum.");
    try testing.expectEqual(25, shares.roomOf(forum, 100, 25));
    try testing.expectEqual(75, shares.roomOf(Shares.rest, 100, 25));
    var buffer: [8]u8 = undefined;
    for (shares.count()..limits.shares_max) |n| {
        _ = try shares.of(try std.fmt.bufPrint(&buffer, "p{d}.", .{n}));
        var sum: u64 = 0;
        for (0..shares.count()) |index| sum += shares.roomOf(@intCast(index), 100, 25);
        try testing.expectEqual(100, sum);
        try testing.expect(shares.roomOf(Shares.rest, 100, 25) >= shares.roomOf(forum, 100, 25));
    }
    try testing.expectEqual(3, shares.roomOf(forum, 100, 25));
}

test "a topic belongs to the share with its longest prefix, and a prefix is a name" {
    var shares: Shares = .init(testing.allocator);
    defer shares.deinit();
    const forum = try shares.of("forum.");
    const inner = try shares.of("forum.inner.");
    try testing.expectEqual(forum, try shares.of("forum."));
    try testing.expectEqual(Shares.rest, try shares.of(""));
    try testing.expectEqual(forum, shares.ownerOf("forum.x"));
    try testing.expectEqual(inner, shares.ownerOf("forum.inner.x"));
    try testing.expectEqual(Shares.rest, shares.ownerOf("forum"));
    try testing.expect(shares.at(forum).has("forum.inner.x") and !shares.at(inner).has("forum.x"));
    try testing.expect(shares.at(Shares.rest).has("anything"));
    try testing.expectError(error.Malformed, shares.of("a b"));
    shares.at(inner).bytes = 1;
    shares.at(forum).topics = 1;
    try testing.expectEqual(shares.at(inner), shares.withMost(.bytes));
    try testing.expectEqual(shares.at(forum), shares.withMost(.topics));
    var buffer: [8]u8 = undefined;
    for (shares.count()..limits.shares_max) |n| {
        _ = try shares.of(try std.fmt.bufPrint(&buffer, "p{d}.", .{n}));
    }
    try testing.expectError(error.TooMany, shares.of("one.more."));
}

test "the prefixes of other hubs have one share, which takes the place of none here" {
    var shares: Shares = .init(testing.allocator);
    defer shares.deinit();
    const forum = try shares.of("forum.");
    const elsewhere = try shares.ofElsewhere("p1.");
    try testing.expect(elsewhere != forum and elsewhere != Shares.rest);
    var buffer: [8]u8 = undefined;
    for (2..limits.shares_max) |n| {
        const prefix = try std.fmt.bufPrint(&buffer, "p{d}.", .{n});
        try testing.expectEqual(elsewhere, try shares.ofElsewhere(prefix));
        try testing.expectEqual(n + 1, shares.count());
        const own = try shares.of(prefix);
        try testing.expectEqual(own, try shares.ofElsewhere(prefix));
    }
    try testing.expectError(error.TooMany, shares.of("one.more."));
    try testing.expectEqual(elsewhere, try shares.ofElsewhere("one.more."));
    try testing.expectEqual(forum, try shares.ofElsewhere("forum."));
    try testing.expectEqual(Shares.rest, try shares.ofElsewhere(""));
    try testing.expectEqual(Shares.rest, shares.ownerOf("one.more.x"));
}
