//! The topics of a hub with their histories, and the nodes that copy them. The hub keeps an offset for each
//! node that follows a topic, and sends the next entry when the node has read earlier bytes, so that entries
//! never queue for a node.
//!
//! A hub without Redis gives entries their positions. A hub with Redis takes entries with their positions
//! from there, and nodes are served while its log of the topic is complete. Does not know: connections, and
//! readers at nodes.
const std = @import("std");
const assert = std.debug.assert;
const Config = @import("config.zig").Config;
const limits = @import("limits.zig");
const log_file = @import("log.zig");
const Log = log_file.Log;
const position = @import("position.zig");
const shares_file = @import("shares.zig");
const Share = shares_file.Share;
const Shares = shares_file.Shares;
const RedisFollower = @import("redis/follower.zig").Follower;
const Subscriptions = @import("redis/subscriptions.zig").Subscriptions;
const Placed = log_file.Placed;
const Position = position.Position;
const wire = @import("wire.zig");
const Frame = wire.Frame;

/// The topics that a node follows.
const Reads = struct {
    /// Topics that may have entries for the node.
    due: std.AutoArrayHashMapUnmanaged(*Topic, void) = .empty,
    /// The index in `due` of the topic whose turn it is.
    turn: usize = 0,
    /// The number of topics that the node follows. `due` has room for all of them.
    count: usize = 0,
};

const Follower = struct {
    /// The number that the node has sent with `follow`.
    number: u64,
    generation: u32,
    /// The offset of the newest entry that the node was sent.
    offset: u64,
    state: union(enum) {
        /// The node follows from now on. It has the entries up to this position, by its own account; null:
        /// none.
        joins: ?Position,
        /// The node has no entry of this history.
        begins,
        catching_up,
        live,
    },
};

pub const Topic = struct {
    name: []const u8,
    log: Log,
    /// The state of the topic in Redis; null: the hub has no Redis.
    source: ?RedisFollower,
    followers: std.AutoArrayHashMapUnmanaged(u32, Follower) = .empty,
    /// The topic's place in `Topics.by_use`.
    place: std.DoublyLinkedList.Node = .{},
    /// The share for which the topic counts, and the topic's place in the share's list.
    share: Shares.Index,
    place_in_share: std.DoublyLinkedList.Node = .{},
    /// The topic's place in `Share.unread`, while its history waits to be read.
    place_in_unread: std.DoublyLinkedList.Node = .{},
    used_ms: u64,

    /// Whether the log has all published entries.
    pub fn isComplete(topic: *const Topic) bool {
        return if (topic.source) |*source| source.state == .live else true;
    }

    fn isUnread(topic: *const Topic) bool {
        return if (topic.source) |*source| source.state == .wanting else false;
    }

    fn cost(topic: *const Topic) u64 {
        return topic.log.bytes + limits.entry_bytes * (topic.log.tip.offset - topic.log.base.offset);
    }
};

pub const Topics = struct {
    gpa: std.mem.Allocator,
    random: std.Random.DefaultPrng,
    bounds: log_file.Limits,
    shares: Shares,
    /// The most topics of a share with a prefix, before `Shares.roomOf`.
    share_topics_max: u32,
    /// The hub's name in its entries.
    hub: u48,
    sequence: u64 = 0,
    by_name: std.StringHashMapUnmanaged(*Topic) = .empty,
    /// All topics, in the order of their latest use.
    by_use: std.DoublyLinkedList = .{},
    /// The sum of the costs of all topics.
    bytes: u64 = 0,
    nodes: std.ArrayList(Reads) = .empty,
    now_ms: u64 = 0,
    /// The subscriptions at Redis; null: the hub has no Redis.
    subscriptions: ?*Subscriptions = null,
    /// The share whose topic was read last. Shares take turns.
    turn: Shares.Index = Shares.rest,
    /// The topic whose history is being read; null: there is none, or it was dropped meanwhile.
    reading: ?*Topic = null,
    /// The `extra` of the last frame that `next` returned.
    extra: [wire.place_bytes]u8 = undefined,

    /// `seed` must be random, so that epochs of different hubs differ.
    pub fn init(gpa: std.mem.Allocator, seed: u64) Topics {
        var random: std.Random.DefaultPrng = .init(seed);
        const hub = random.random().int(u48);
        const config: Config = .{};
        return .{
            .gpa = gpa,
            .random = random,
            .bounds = .of(&config),
            .shares = .init(gpa),
            .share_topics_max = config.mount_topics_max,
            .hub = hub,
        };
    }

    pub fn deinit(topics: *Topics) void {
        while (topics.by_use.first) |place| topics.free(of(place));
        topics.by_name.deinit(topics.gpa);
        topics.shares.deinit();
        for (topics.nodes.items) |*reads| reads.due.deinit(topics.gpa);
        topics.nodes.deinit(topics.gpa);
        topics.* = undefined;
    }

    pub fn invariants(topics: *Topics) void {
        if (!std.debug.runtime_safety or topics.by_name.count() > checked_topics_max) return;
        var bytes: u64 = 0;
        var at = topics.by_use.first;
        var count: usize = 0;
        var unread: usize = 0;
        while (at) |place| : (at = place.next) {
            const topic = of(place);
            bytes += topic.cost();
            count += 1;
            unread += @intFromBool(topic.isUnread());
            assert(topics.by_name.get(topic.name).? == topic);
            for (topic.followers.keys(), topic.followers.values()) |node, follower| {
                const is_behind = follower.state != .live or follower.offset != topic.log.tip.offset;
                assert(!is_behind or !topic.isComplete() or topics.nodes.items[node].due.contains(topic));
            }
        }
        assert(bytes == topics.bytes and count == topics.by_name.count());
        for (0..topics.shares.count()) |index| {
            const share = topics.shares.at(@intCast(index));
            bytes -= share.bytes;
            count -= share.topics;
            unread -= share.unread.len();
        }
        assert(bytes == 0 and count == 0 and unread == 0);
    }

    /// The number of topics up to which all are checked after each frame; more would take most of the hub's
    /// time.
    const checked_topics_max = 32;

    fn of(place: *std.DoublyLinkedList.Node) *Topic {
        return @fieldParentPtr("place", place);
    }

    fn free(topics: *Topics, topic: *Topic) void {
        topics.discharge(topic);
        const share = topics.shares.at(topic.share);
        share.by_use.remove(&topic.place_in_share);
        share.topics -= 1;
        if (topic.isUnread()) share.unread.remove(&topic.place_in_unread);
        topics.by_use.remove(&topic.place);
        assert(topics.by_name.remove(topic.name));
        if (topics.reading == topic) topics.reading = null;
        if (topics.subscriptions) |all| all.unwant(.{ .feed = .entries, .name = topic.name });
        topic.followers.deinit(topics.gpa);
        topic.log.deinit();
        topics.gpa.free(topic.name);
        topics.gpa.destroy(topic);
    }

    fn find(topics: *Topics, name: []const u8) !*Topic {
        if (topics.by_name.get(name)) |topic| {
            topics.use(topic);
            return topic;
        }
        try topics.makeRoomFor(name);
        // A dropped topic gets another epoch when it comes back, so that its old readers get a reset.
        const epoch = topics.random.random().int(position.Epoch);
        return topics.make(name, epoch, .origin);
    }

    fn make(topics: *Topics, name: []const u8, epoch: position.Epoch, before: position.Mark) !*Topic {
        try topics.by_name.ensureUnusedCapacity(topics.gpa, 1);
        const own = try topics.gpa.dupe(u8, name);
        errdefer topics.gpa.free(own);
        const topic = try topics.gpa.create(Topic);
        errdefer topics.gpa.destroy(topic);
        if (topics.subscriptions) |all| try all.want(.{ .feed = .entries, .name = own });
        topic.* = .{
            .name = own,
            .log = .init(topics.gpa, topics.bounds, epoch, before),
            .source = if (topics.subscriptions == null) null else .init(&topic.log),
            .share = topics.shares.ownerOf(own),
            .used_ms = topics.now_ms,
        };
        const share = topics.shares.at(topic.share);
        share.topics += 1;
        share.by_use.append(&topic.place_in_share);
        topics.by_name.putAssumeCapacityNoClobber(own, topic);
        topics.by_use.append(&topic.place);
        return topic;
    }

    fn use(topics: *Topics, topic: *Topic) void {
        topic.used_ms = topics.now_ms;
        topics.by_use.remove(&topic.place);
        topics.by_use.append(&topic.place);
        const share = topics.shares.at(topic.share);
        share.by_use.remove(&topic.place_in_share);
        share.by_use.append(&topic.place_in_share);
    }

    /// Takes the topic's cost out of the sums, before a change. `charge` adds it again.
    fn discharge(topics: *Topics, topic: *const Topic) void {
        topics.bytes -= topic.cost();
        topics.shares.at(topic.share).bytes -= topic.cost();
    }

    fn charge(topics: *Topics, topic: *const Topic) void {
        topics.bytes += topic.cost();
        topics.shares.at(topic.share).bytes += topic.cost();
    }

    /// Drops entries until their cost is at most `bytes_max`: those of the topic that was not used for
    /// longest, in the share with most bytes. So no share loses its history to one that takes more.
    fn keepWithin(topics: *Topics, bytes_max: u64) void {
        while (topics.bytes > bytes_max) {
            const share = topics.shares.withMost(.bytes);
            topics.forget(ofShare(share.by_use.first.?));
        }
    }

    /// The share of a prefix. A new share gets the topics that begin with its prefix.
    pub fn shareOf(topics: *Topics, prefix: []const u8) Shares.Error!Shares.Index {
        defer topics.invariants();
        const before = topics.shares.count();
        const index = try topics.shares.of(prefix);
        if (topics.shares.count() == before) return index;
        var at = topics.by_use.first;
        while (at) |place| : (at = place.next) topics.giveToOwner(of(place));
        return index;
    }

    fn giveToOwner(topics: *Topics, topic: *Topic) void {
        const owner = topics.shares.ownerOf(topic.name);
        if (owner == topic.share) return;
        topics.discharge(topic);
        const before = topics.shares.at(topic.share);
        const after = topics.shares.at(owner);
        before.by_use.remove(&topic.place_in_share);
        before.topics -= 1;
        after.by_use.append(&topic.place_in_share);
        after.topics += 1;
        if (topic.isUnread()) {
            before.unread.remove(&topic.place_in_unread);
            after.unread.append(&topic.place_in_unread);
        }
        topic.share = owner;
        topics.charge(topic);
    }

    fn ofShare(place: *std.DoublyLinkedList.Node) *Topic {
        return @fieldParentPtr("place_in_share", place);
    }

    fn makeRoomFor(topics: *Topics, name: []const u8) error{TooMany}!void {
        const owner = topics.shares.ownerOf(name);
        const share = topics.shares.at(owner);
        const room = topics.shares.roomOf(owner, limits.history_topics_max, topics.share_topics_max);
        if (share.topics >= room and !topics.makeRoomIn(share)) return error.TooMany;
        if (topics.by_name.count() < limits.history_topics_max) return;
        if (!topics.makeRoomIn(topics.shares.withMost(.topics))) return error.TooMany;
    }

    /// Drops a topic without followers, among the first few in the order of use. False: there is none.
    fn makeRoomIn(topics: *Topics, share: *const Share) bool {
        var at = share.by_use.first;
        for (0..16) |_| {
            const place = at orelse return false;
            at = place.next;
            if (ofShare(place).followers.count() > 0) continue;
            topics.free(ofShare(place));
            return true;
        }
        return false;
    }

    /// Sets the time, and drops entries that are too old, with their topics if those have no followers.
    pub fn tick(topics: *Topics, now_ms: u64) void {
        defer topics.invariants();
        topics.now_ms = now_ms;
        while (topics.by_use.first) |place| {
            const topic = of(place);
            if (now_ms -| topic.used_ms <= topics.bounds.age_ms_max) return;
            topics.forget(topic);
        }
    }

    /// Drops a topic's entries, and the topic if it has no followers.
    fn forget(topics: *Topics, topic: *Topic) void {
        if (topic.followers.count() == 0) return topics.free(topic);
        topics.discharge(topic);
        topic.log.clear();
        topics.charge(topic);
        topics.use(topic);
        topics.markDue(topic);
    }

    /// Marks a topic as due for its followers. Room for that was made when they came.
    fn markDue(topics: *Topics, topic: *Topic) void {
        for (topic.followers.keys()) |node| topics.nodes.items[node].due.putAssumeCapacity(topic, {});
    }

    /// Adds an entry and returns its position.
    pub fn append(topics: *Topics, name: []const u8, bytes: []const u8) !Position {
        defer topics.invariants();
        const topic = try topics.find(name);
        topics.discharge(topic);
        defer topics.keepWithin(limits.histories_bytes_max);
        defer topics.charge(topic);
        topics.sequence += 1;
        _ = try topic.log.append(topics.hub, topics.sequence, topics.now_ms, bytes);
        topics.markDue(topic);
        return topic.log.now();
    }

    /// The position of a topic's newest entry.
    pub fn look(topics: *Topics, name: []const u8) !Position {
        defer topics.invariants();
        return (try topics.find(name)).log.now();
    }

    // ---- From one hub to the next (histories.zig)

    pub const InOrder = struct {
        at: ?*std.DoublyLinkedList.Node,

        pub fn next(all: *InOrder) ?*Topic {
            const place = all.at orelse return null;
            all.at = place.next;
            return of(place);
        }
    };

    /// All topics, in the order of their latest use.
    pub fn inOrder(topics: *const Topics) InOrder {
        return .{ .at = topics.by_use.first };
    }

    /// Adds a topic of the previous hub, which has dropped the entries up to `before`. Called in the order of
    /// `inOrder`.
    pub fn restore(
        topics: *Topics,
        name: []const u8,
        epoch: position.Epoch,
        before: position.Mark,
        used_ms: u64,
    ) error{ OutOfMemory, TooMany, Malformed }!*Topic {
        if (!wire.isName(name) or topics.by_name.contains(name)) return error.Malformed;
        if (topics.by_name.count() == limits.history_topics_max) return error.TooMany;
        const topic = try topics.make(name, epoch, before);
        topic.used_ms = used_ms;
        return topic;
    }

    /// Adds the next entry to a topic of the previous hub.
    pub fn refill(
        topics: *Topics,
        topic: *Topic,
        mark: position.Mark,
        time_ms: u64,
        bytes: []const u8,
    ) error{ OutOfMemory, TooLong }!void {
        assert(mark.offset == topic.log.tip.offset + 1 and topic.followers.count() == 0);
        topics.discharge(topic);
        defer topics.charge(topic);
        const is_next = try topic.log.follow(.{ .epoch = topic.log.epoch, .mark = mark }, time_ms, bytes);
        assert(is_next);
    }

    /// Drops all topics, which must have no followers.
    pub fn forgetAll(topics: *Topics) void {
        while (topics.by_use.first) |place| topics.free(of(place));
    }

    // ---- With Redis

    /// A change of a topic because of Redis.
    const Change = union(enum) {
        subscribed,
        unheard,
        broken,
        hear: Placed,
        head: Position,
        entry: Placed,
        end: struct { full: bool },
    };

    fn change(topics: *Topics, topic: *Topic, what: Change) void {
        const source = &topic.source.?;
        const was_unread = topic.isUnread();
        topics.discharge(topic);
        switch (what) {
            .subscribed => source.subscribed(),
            .unheard => source.unheard(),
            .broken => source.broken(),
            .hear => |placed| source.hear(placed, topics.now_ms),
            .head => |at| source.head(at),
            .entry => |placed| source.entry(placed, topics.now_ms),
            .end => |end| source.end(end.full),
        }
        topics.charge(topic);
        if (topic.isUnread() != was_unread) {
            const unread = &topics.shares.at(topic.share).unread;
            const place = &topic.place_in_unread;
            if (was_unread) unread.remove(place) else unread.append(place);
        }
        if (source.state != .reading and topics.reading == topic) topics.reading = null;
        topics.markDue(topic);
        topics.keepWithin(limits.histories_bytes_max);
    }

    /// Notes that Redis sends the topic's entries from now on.
    pub fn subscribed(topics: *Topics, name: []const u8) void {
        defer topics.invariants();
        const topic = topics.by_name.get(name) orelse return;
        topics.change(topic, .subscribed);
    }

    /// Notes that Redis sends no entries any more.
    pub fn unheard(topics: *Topics) void {
        defer topics.invariants();
        var at = topics.by_use.first;
        while (at) |place| {
            at = place.next;
            topics.change(of(place), .unheard);
        }
    }

    /// Handles an entry that Redis has sent.
    pub fn hear(topics: *Topics, name: []const u8, placed: Placed) void {
        defer topics.invariants();
        const topic = topics.by_name.get(name) orelse return;
        if (topic.followers.count() > 0) topics.use(topic);
        topics.change(topic, .{ .hear = placed });
    }

    pub const NextRead = struct {
        name: []const u8,
        /// The prefix of the topic's share.
        prefix: []const u8,
        /// The offset from which to read.
        from: u64,
    };

    /// Begins to read the history of the next topic that waits for it. Shares take turns, so that a share
    /// with many topics does not keep others waiting.
    pub fn nextRead(topics: *Topics) ?NextRead {
        assert(topics.reading == null);
        const count = topics.shares.count();
        for (0..count) |_| {
            topics.turn = (topics.turn + 1) % count;
            const share = topics.shares.at(topics.turn);
            const place = share.unread.popFirst() orelse continue;
            const topic: *Topic = @fieldParentPtr("place_in_unread", place);
            const from = topic.source.?.begin().?;
            topics.reading = topic;
            return .{ .name = topic.name, .prefix = share.prefix, .from = from };
        }
        return null;
    }

    /// The prefix of the share to which a topic of this name belongs.
    pub fn prefixOf(topics: *Topics, name: []const u8) []const u8 {
        return topics.shares.at(topics.shares.ownerOf(name)).prefix;
    }

    /// Handles a result of the read that `nextRead` began.
    pub fn read(topics: *Topics, found: union(enum) {
        head: Position,
        entry: Placed,
        end: struct { full: bool },
        broken,
    }) void {
        defer topics.invariants();
        const topic = topics.reading orelse return;
        switch (found) {
            .head => |at| topics.change(topic, .{ .head = at }),
            .entry => |placed| topics.change(topic, .{ .entry = placed }),
            .end => |end| topics.change(topic, .{ .end = .{ .full = end.full } }),
            .broken => topics.change(topic, .broken),
        }
    }

    /// The position of the newest entry; null: the log may be incomplete.
    pub fn tipOf(topics: *const Topics, name: []const u8) ?Position {
        const topic = topics.by_name.get(name) orelse return null;
        return if (topic.isComplete()) topic.log.now() else null;
    }

    // ---- Nodes

    /// Lets a node follow a topic. `has`: the newest entry that the node has.
    pub fn follow(topics: *Topics, node: u32, name: []const u8, number: u64, has: ?Position) !void {
        defer topics.invariants();
        const topic = try topics.find(name);
        while (topics.nodes.items.len <= node) try topics.nodes.append(topics.gpa, .{});
        const reads = &topics.nodes.items[node];
        const is_new = !topic.followers.contains(node);
        if (is_new and reads.count == limits.node_topics_max) return error.TooMany;
        try topic.followers.ensureUnusedCapacity(topics.gpa, 1);
        try reads.due.ensureTotalCapacity(topics.gpa, reads.count + 1);
        reads.count += @intFromBool(is_new);
        topic.followers.putAssumeCapacity(node, .{
            .number = number,
            .generation = 0,
            .offset = 0,
            .state = .{ .joins = has },
        });
        reads.due.putAssumeCapacity(topic, {});
    }

    pub fn unfollow(topics: *Topics, node: u32, name: []const u8) void {
        defer topics.invariants();
        const topic = topics.by_name.get(name) orelse return;
        topics.leave(node, topic);
        topics.use(topic);
    }

    fn leave(topics: *Topics, node: u32, topic: *Topic) void {
        if (!topic.followers.swapRemove(node)) return;
        const reads = &topics.nodes.items[node];
        reads.count -= 1;
        _ = reads.due.swapRemove(topic);
    }

    /// Ends all followings of a node.
    pub fn leaveAll(topics: *Topics, node: u32) void {
        defer topics.invariants();
        if (node >= topics.nodes.items.len) return;
        const reads = &topics.nodes.items[node];
        // A node that came a moment ago follows topics that were used last.
        var at = topics.by_use.last;
        while (at) |place| : (at = place.prev) {
            if (reads.count == 0) break;
            topics.leave(node, of(place));
        }
        reads.due.clearAndFree(topics.gpa);
    }

    /// The next frame for a node, valid until the next call; null: the node has all entries.
    pub fn next(topics: *Topics, node: u32) ?Frame {
        if (node >= topics.nodes.items.len) return null;
        const reads = &topics.nodes.items[node];
        while (reads.due.count() > 0) {
            if (reads.turn >= reads.due.count()) reads.turn = 0;
            const topic = reads.due.keys()[reads.turn];
            if (topics.nextOf(topic, topic.followers.getPtr(node).?)) |frame| {
                // The topics of a node take turns.
                reads.turn += 1;
                return frame;
            }
            reads.due.swapRemoveAt(reads.turn);
        }
        return null;
    }

    fn nextOf(topics: *Topics, topic: *Topic, follower: *Follower) ?Frame {
        const log = &topic.log;
        if (!topic.isComplete()) {
            if (follower.state != .live) return null;
            follower.state = .catching_up;
            return .{ .kind = .stale, .node = follower.number, .name = topic.name };
        }
        switch (follower.state) {
            .joins => |has| join(topic, follower, has),
            .begins, .catching_up, .live => {},
        }
        if (follower.generation != log.generation or follower.offset < log.base.offset) {
            follower.state = .begins;
        }
        switch (follower.state) {
            .joins => unreachable,
            .begins => {
                follower.* = .{
                    .number = follower.number,
                    .generation = log.generation,
                    .offset = log.base.offset,
                    .state = .catching_up,
                };
                wire.writePlace(.{ .epoch = log.epoch, .mark = log.base }, &topics.extra);
                return .{
                    .kind = .begins,
                    .node = follower.number,
                    .name = topic.name,
                    .extra = &topics.extra,
                };
            },
            .catching_up, .live => {},
        }
        if (follower.offset == log.tip.offset) {
            if (follower.state == .live) return null;
            follower.state = .live;
            return .{ .kind = .live, .node = follower.number, .name = topic.name };
        }
        follower.offset += 1;
        const segment = log.segmentOf(follower.offset);
        const age = topics.now_ms -| segment.entry(follower.offset).time_ms;
        wire.writePlace(.{ .epoch = log.epoch, .mark = segment.mark(follower.offset) }, &topics.extra);
        return .{
            .kind = .entry,
            .node = follower.number,
            .name = topic.name,
            .extra = &topics.extra,
            .number = std.math.lossyCast(u32, age),
            .payload = segment.bytes(follower.offset),
        };
    }

    fn join(topic: *const Topic, follower: *Follower, has: ?Position) void {
        follower.generation = topic.log.generation;
        follower.state = .begins;
        switch (topic.log.begin(.{ .after = has orelse return })) {
            .current, .behind => |cursor| {
                follower.offset = cursor.offset;
                follower.state = .catching_up;
            },
            .reset => {},
        }
    }
};
