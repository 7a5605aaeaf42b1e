//! Readers of topics with history at a node, each of them one connection's, and copies of the histories that
//! they read. All readers of a topic share its copy; a reader has a place in it.
//! Does not know: the hub's connection, and requests (node.zig).
const std = @import("std");
const assert = std.debug.assert;
const limits = @import("limits.zig");
const log_file = @import("log.zig");
const Log = log_file.Log;
const frames = @import("frames.zig");
const Lingering = @import("lingering.zig").Lingering;
const position = @import("position.zig");
const Position = position.Position;
const Channel = @import("wire.zig").Channel;
const shares_file = @import("shares.zig");
const Share = shares_file.Share;
const Shares = shares_file.Shares;
const Now = @import("tally.zig").Now;

/// How a reader gets entries.
pub const As = enum {
    text,
    binary,
    /// As messages of a WebSocket with their frames, some at once.
    text_frames,
    binary_frames,
    /// As WebSocket frames, compressed where that is worth it.
    text_deflated,
    binary_deflated,
    /// As messages of an event stream, with positions.
    events,
    /// The bytes of entries alone, of several at once.
    bytes,

    fn variant(as: As, window_bits: u4) frames.Variant {
        return switch (as) {
            .text => .{ .content = .text },
            .binary => .{ .content = .binary },
            .text_frames => .{ .websocket = .text },
            .binary_frames => .{ .websocket = .binary },
            .text_deflated => .{ .deflated = .{ .kind = .text, .window_bits = window_bits } },
            .binary_deflated => .{ .deflated = .{ .kind = .binary, .window_bits = window_bits } },
            .events => .event,
            .bytes => .{ .content = .binary },
        };
    }

    fn isDeflated(as: As) bool {
        return as == .text_deflated or as == .binary_deflated;
    }
};

/// A reader's wishes.
pub const Wish = struct {
    as: As,
    /// log2 of the window with which the reader inflates, 8..15.
    window_bits: u4 = 15,
    since: position.Since = .now,
    behind: Behind = .skip,
    /// The channel by which presence names the reader; null: that of its mailbox.
    channel: ?Channel = null,

    /// The treatment of a reader that is further behind than the history goes back.
    pub const Behind = @FieldType(log_file.Want, "behind");
};

/// The step that a connection takes next.
pub const Read = union(enum) {
    /// The connection has every entry; an event tells of the next one.
    nothing,
    /// An entry, or the events of several; until `sent` has been told that all of it went.
    bytes: Bytes,
    /// The reader may have seen entries that other readers have not, or has missed some. Its next entry is
    /// the one behind this position.
    reset: Reset,
    /// The reader was too far behind, and wanted to be cut then. It is gone.
    cut,

    pub const Reset = struct { as: As, topic: []const u8, position: Position };

    pub const Bytes = struct {
        as: As,
        bytes: []const u8,
        /// The number of entries in `bytes`.
        count: usize,
        /// The owner of `bytes`: who retains it may send them later.
        frames: *frames.Frames,
    };
};

const Topic = struct {
    name: []const u8,
    /// The number of this following of the topic: what the hub tells of an earlier one is ignored.
    number: u64,
    /// Null: the hub has told nothing of the topic yet.
    log: ?Log = null,
    /// The log has all entries that the hub has.
    live: bool = false,
    /// The hub has no room for one more topic. It is asked again.
    is_refused: bool = false,
    readers: std.ArrayList(*Reader) = .empty,
    /// The share that pays for the copy.
    share: Shares.Index,
    /// Memory of the copy and of its frames, and the place among those of the share that have about as much.
    cost: u64 = 0,
    place: std.DoublyLinkedList.Node = .{},
    /// The offset up to which all of them have had every entry, when they were counted; null: since then one
    /// has come.
    even: ?u64 = null,
};

pub const Reader = struct {
    topic: *Topic,
    mailbox: u64,
    wish: Wish,
    state: union(enum) {
        /// The topic is not live yet. When it is, the request with this number is answered.
        waits: u32,
        /// Is to be told of a reset.
        reset: log_file.Cursor,
        reads: log_file.Cursor,
    },

    fn want(reader: *const Reader) log_file.Want {
        return .{ .variant = reader.wish.as.variant(reader.wish.window_bits), .behind = reader.wish.behind };
    }

    /// Entries that have yet to be sent. A reader of a history that has begun anew gets none of that.
    fn lag(reader: *const Reader, log: *const Log) u64 {
        return switch (reader.state) {
            .waits => 0,
            .reset, .reads => |cursor| if (cursor.generation == log.generation)
                log.tip.offset -| cursor.offset
            else
                0,
        };
    }

    fn resetAt(reader: *const Reader, at: Position) Read.Reset {
        return .{ .as = reader.wish.as, .topic = reader.topic.name, .position = at };
    }
};

/// The readers of one connection.
const Mailbox = struct {
    readers: std.ArrayList(*Reader) = .empty,
    /// The mailbox has found nothing, and is to be told of the next entry.
    wanted: bool = false,
    /// The reader that has its turn, and keeps it while its bytes are not sent.
    turn: usize = 0,
    /// The number of entries in these bytes.
    entries: usize = 0,
};

/// A reader that was waiting has its place.
pub const Settled = struct { number: u32, mailbox: u64, position: Position };

pub const Readers = struct {
    gpa: std.mem.Allocator,
    bounds: log_file.Limits,
    /// Borrowed: compresses for readers that want that.
    framer: frames.Framer = .{ .deflater = null, .deflate_bytes_min = 0 },
    /// The newest `Topic.number`.
    last_number: u64 = 0,
    topics: std.StringHashMapUnmanaged(*Topic) = .empty,
    mailboxes: std.AutoHashMapUnmanaged(u64, Mailbox) = .empty,
    /// The cost of all copies.
    cost: u64 = 0,
    cost_max: u64 = limits.copies_bytes_max,
    /// Of the mounts that read here. They are all known before there are topics.
    shares: Shares,
    /// Frames that connections have and the copies have lost.
    lingering: Lingering = .{},

    pub fn init(gpa: std.mem.Allocator, bounds: log_file.Limits) Readers {
        return .{ .gpa = gpa, .bounds = bounds, .shares = .init(gpa) };
    }

    pub fn deinit(readers: *Readers) void {
        var mailboxes = readers.mailboxes.valueIterator();
        while (mailboxes.next()) |mailbox| {
            for (mailbox.readers.items) |reader| _ = readers.drop(reader);
            mailbox.readers.deinit(readers.gpa);
        }
        readers.mailboxes.deinit(readers.gpa);
        assert(readers.topics.count() == 0);
        readers.topics.deinit(readers.gpa);
        readers.shares.deinit();
        readers.lingering.deinit();
        readers.* = undefined;
    }

    pub fn invariants(readers: *const Readers) void {
        if (!std.debug.runtime_safety or readers.mailboxes.count() > checked_mailboxes_max) return;
        var count: usize = 0;
        var mailboxes = readers.mailboxes.iterator();
        while (mailboxes.next()) |found| {
            const list = found.value_ptr.readers.items;
            count += list.len;
            assert(list.len > 0 and list.len <= limits.mailbox_readers_max);
            for (list) |reader| assert(reader.mailbox == found.key_ptr.*);
        }
        var cost: u64 = 0;
        var topics = readers.topics.valueIterator();
        while (topics.next()) |topic| {
            cost += topic.*.cost;
            assert(topic.*.readers.items.len > 0);
            assert(!topic.*.live or topic.*.log != null);
            count -= topic.*.readers.items.len;
            for (topic.*.readers.items) |reader| assert(reader.state != .waits or !topic.*.live);
        }
        assert(count == 0 and cost == readers.cost);
        cost = readers.shares.first.bytes;
        for (readers.shares.others.items) |share| cost += share.bytes;
        assert(cost == readers.cost);
    }

    /// With more mailboxes a look at all of them after each entry would be what the node does.
    const checked_mailboxes_max = 32;

    fn find(readers: *const Readers, mailbox_id: u64, name: []const u8) ?*Reader {
        const mailbox = readers.mailboxes.getPtr(mailbox_id) orelse return null;
        for (mailbox.readers.items) |reader| {
            if (std.mem.eql(u8, reader.topic.name, name)) return reader;
        }
        return null;
    }

    pub const Added = union(enum) {
        /// The topic was new here: the hub is to be asked for it, with this number.
        follow: u64,
        /// The hub has been asked.
        waits,
        settled: Settled,
    };

    /// A reader for a connection. `number`: of the request, which is answered when the reader has its place.
    pub fn add(
        readers: *Readers,
        mailbox_id: u64,
        name: []const u8,
        wish: Wish,
        number: u32,
    ) error{ OutOfMemory, TooMany }!Added {
        defer readers.invariants();
        assert(readers.find(mailbox_id, name) == null);
        assert(!wish.as.isDeflated() or readers.framer.deflater != null);
        const gpa = readers.gpa;
        const is_new = !readers.topics.contains(name);
        const reader = try gpa.create(Reader);
        errdefer gpa.destroy(reader);
        const topic = try readers.topicOf(name);
        errdefer if (is_new) readers.freeTopic(topic);
        try topic.readers.ensureUnusedCapacity(gpa, 1);
        const found = try readers.mailboxes.getOrPut(gpa, mailbox_id);
        if (!found.found_existing) found.value_ptr.* = .{};
        errdefer if (!found.found_existing) {
            _ = readers.mailboxes.remove(mailbox_id);
        };
        const mailbox = found.value_ptr;
        if (mailbox.readers.items.len == limits.mailbox_readers_max) return error.TooMany;
        try mailbox.readers.append(gpa, reader);
        reader.* = .{ .topic = topic, .mailbox = mailbox_id, .wish = wish, .state = .{ .waits = number } };
        topic.readers.appendAssumeCapacity(reader);
        topic.even = null;
        if (is_new) return .{ .follow = topic.number };
        return if (topic.live) .{ .settled = settle(reader) } else .waits;
    }

    fn topicOf(readers: *Readers, name: []const u8) !*Topic {
        if (readers.topics.get(name)) |topic| return topic;
        if (readers.topics.count() == limits.node_topics_max) return error.TooMany;
        try readers.topics.ensureUnusedCapacity(readers.gpa, 1);
        const own = try readers.gpa.dupe(u8, name);
        errdefer readers.gpa.free(own);
        const topic = try readers.gpa.create(Topic);
        readers.last_number += 1;
        topic.* = .{
            .name = own,
            .number = readers.last_number,
            .share = readers.shares.ownerOf(own),
        };
        readers.topics.putAssumeCapacityNoClobber(own, topic);
        return topic;
    }

    fn freeTopic(readers: *Readers, topic: *Topic) void {
        assert(topic.readers.items.len == 0 and readers.topics.remove(topic.name));
        if (topic.log) |*log| {
            log.clear();
            readers.recount(topic);
            log.deinit();
        }
        topic.readers.deinit(readers.gpa);
        readers.gpa.free(topic.name);
        readers.gpa.destroy(topic);
    }

    /// To be called when the log may have changed.
    fn recount(readers: *Readers, topic: *Topic) void {
        const log = &topic.log.?;
        const entries = log.tip.offset - log.base.offset;
        const cost = log.bytes + log.framed_bytes + limits.entry_bytes * entries;
        if (cost == topic.cost) return;
        const share = readers.shares.at(topic.share);
        if (topic.cost > 0) share.by_cost[std.math.log2_int(u64, topic.cost)].remove(&topic.place);
        readers.cost = readers.cost - topic.cost + cost;
        share.bytes = share.bytes - topic.cost + cost;
        topic.cost = cost;
        if (cost > 0) share.by_cost[std.math.log2_int(u64, cost)].append(&topic.place);
    }

    /// Forgets the copies that cost most in the share that has most: no share costs one that has less its
    /// copies. Readers that have yet to get entries of them get a reset, or are cut if they want that.
    fn keepWithin(readers: *Readers) void {
        while (readers.cost > readers.cost_max) {
            const topic = costliest(readers.shares.withMost(.bytes));
            topic.log.?.clear();
            readers.recount(topic);
        }
    }

    /// Of a share that has copies.
    fn costliest(share: *const Share) *Topic {
        var class = share.by_cost.len;
        while (class > 0) {
            class -= 1;
            if (share.by_cost[class].first) |place| return @fieldParentPtr("place", place);
        }
        unreachable;
    }

    /// The place of a reader whose topic is live.
    fn settle(reader: *Reader) Settled {
        const number = reader.state.waits;
        const log = &reader.topic.log.?;
        switch (log.begin(reader.wish.since)) {
            .current, .behind => |cursor| reader.state = .{ .reads = cursor },
            .reset => |told| reader.state = .{ .reset = told.cursor },
        }
        const at: Position = switch (reader.state) {
            .waits => unreachable,
            .reset => log.now(),
            .reads => |cursor| .{ .epoch = log.epoch, .mark = log.markAt(cursor.offset) },
        };
        return .{ .number = number, .mailbox = reader.mailbox, .position = at };
    }

    /// The work that `remove` leaves to its caller.
    pub const Removed = struct {
        /// The request that was not answered yet; 0: none.
        number: u32 = 0,
        /// The hub is to be told that nobody reads the topic any more.
        unfollow: bool = false,
    };

    /// The reader is gone; null: there is none.
    pub fn remove(readers: *Readers, mailbox_id: u64, name: []const u8) ?Removed {
        defer readers.invariants();
        const reader = readers.find(mailbox_id, name) orelse return null;
        return readers.removeReader(reader);
    }

    fn removeReader(readers: *Readers, reader: *Reader) Removed {
        const mailbox = readers.mailboxes.getPtr(reader.mailbox).?;
        const at = std.mem.findScalar(*Reader, mailbox.readers.items, reader).?;
        _ = mailbox.readers.orderedRemove(at);
        mailbox.turn = 0;
        if (mailbox.readers.items.len == 0) {
            mailbox.readers.deinit(readers.gpa);
            assert(readers.mailboxes.remove(reader.mailbox));
        }
        const number = switch (reader.state) {
            .waits => |number| number,
            .reset, .reads => 0,
        };
        return .{ .number = number, .unfollow = readers.drop(reader) };
    }

    /// True: it was the last one of its topic.
    fn drop(readers: *Readers, reader: *Reader) bool {
        const topic = reader.topic;
        switch (reader.state) {
            .waits => {},
            .reset, .reads => |*cursor| topic.log.?.release(cursor),
        }
        const at = std.mem.findScalar(*Reader, topic.readers.items, reader).?;
        _ = topic.readers.swapRemove(at);
        readers.gpa.destroy(reader);
        if (topic.readers.items.len > 0) return false;
        readers.freeTopic(topic);
        return true;
    }

    /// The name of a topic that a connection reads; null: it reads none.
    pub fn any(readers: *const Readers, mailbox_id: u64) ?[]const u8 {
        const mailbox = readers.mailboxes.getPtr(mailbox_id) orelse return null;
        return mailbox.readers.items[0].topic.name;
    }

    /// The topic that a connection waits to read, with the request of this number.
    pub fn waitingFor(readers: *const Readers, mailbox_id: u64, number: u32) ?[]const u8 {
        const mailbox = readers.mailboxes.getPtr(mailbox_id) orelse return null;
        for (mailbox.readers.items) |reader| switch (reader.state) {
            .waits => |own| if (own == number) return reader.topic.name,
            .reset, .reads => {},
        };
        return null;
    }

    // ---- What the hub tells

    /// The connection to the hub is gone: readers go on with the entries that are here.
    pub fn lose(readers: *Readers) void {
        var topics = readers.topics.valueIterator();
        while (topics.next()) |topic| topic.*.live = false;
    }

    pub const Follow = struct { name: []const u8, number: u64, has: ?Position };

    pub const Follows = struct {
        inner: std.StringHashMapUnmanaged(*Topic).ValueIterator,
        which: enum { all, refused },

        pub fn next(list: *Follows) ?Follow {
            while (list.inner.next()) |found| {
                const topic = found.*;
                if (list.which == .refused and !topic.is_refused) continue;
                topic.is_refused = false;
                return .{
                    .name = topic.name,
                    .number = topic.number,
                    .has = if (topic.log) |*log| log.now() else null,
                };
            }
            return null;
        }
    };

    /// The topics that the next hub is to be asked for, or the same one once more.
    pub fn follows(readers: *Readers, which: @FieldType(Follows, "which")) Follows {
        return .{ .inner = readers.topics.valueIterator(), .which = which };
    }

    fn followed(readers: *const Readers, name: []const u8, number: u64) ?*Topic {
        const topic = readers.topics.get(name) orelse return null;
        return if (topic.number == number) topic else null;
    }

    pub fn begins(readers: *Readers, name: []const u8, number: u64, before: Position) void {
        defer readers.invariants();
        const topic = readers.followed(name, number) orelse return;
        topic.live = false;
        topic.is_refused = false;
        if (topic.log) |*log| {
            log.restart(before.epoch, before.mark);
            return readers.recount(topic);
        }
        topic.log = .init(readers.gpa, readers.bounds, before.epoch, before.mark);
    }

    pub fn entry(
        readers: *Readers,
        name: []const u8,
        number: u64,
        at: Position,
        time_ms: u64,
        bytes: []const u8,
    ) error{ OutOfMemory, TooLong, Malformed }!?*Topic {
        defer readers.invariants();
        const topic = readers.followed(name, number) orelse return null;
        const log = &(topic.log orelse return error.Malformed);
        if (!try log.follow(at, time_ms, bytes)) return error.Malformed;
        readers.recount(topic);
        readers.keepWithin();
        return topic;
    }

    /// The topic is complete. Readers that have waited for it are settled by `nextSettled`.
    pub fn goesLive(readers: *Readers, name: []const u8, number: u64) error{Malformed}!?*Topic {
        const topic = readers.followed(name, number) orelse return null;
        if (topic.log == null) return error.Malformed;
        topic.live = true;
        topic.is_refused = false;
        return topic;
    }

    /// The hub may not have all entries of the topic: readers that begin wait.
    pub fn stale(readers: *Readers, name: []const u8, number: u64) void {
        defer readers.invariants();
        const topic = readers.followed(name, number) orelse return;
        topic.live = false;
    }

    /// The hub does not let the topic be followed. Readers that have begun go on when it does; `nextRefused`
    /// tells of those that wait.
    pub fn refused(readers: *Readers, name: []const u8, number: u64) ?*Topic {
        const topic = readers.followed(name, number) orelse return null;
        topic.is_refused = true;
        return topic;
    }

    /// The mailbox of a reader of a refused topic that waits.
    pub fn nextRefused(topic: *const Topic) ?u64 {
        assert(topic.is_refused);
        for (topic.readers.items) |reader| if (reader.state == .waits) return reader.mailbox;
        return null;
    }

    /// The next reader of a live topic that has waited.
    pub fn nextSettled(topic: *Topic) ?Settled {
        assert(topic.live);
        for (topic.readers.items) |reader| if (reader.state == .waits) return settle(reader);
        return null;
    }

    /// Connections that wait for an entry of the topic.
    pub const Waiting = struct {
        readers: *Readers,
        topic: *Topic,
        at: usize = 0,

        pub fn next(waiting: *Waiting) ?u64 {
            while (waiting.at < waiting.topic.readers.items.len) {
                const reader = waiting.topic.readers.items[waiting.at];
                waiting.at += 1;
                const mailbox = waiting.readers.mailboxes.getPtr(reader.mailbox).?;
                if (!mailbox.wanted or reader.state == .waits) continue;
                mailbox.wanted = false;
                return reader.mailbox;
            }
            return null;
        }
    };

    // ---- Reading

    /// The step that a connection takes next. The reader keeps its turn until its bytes are sent.
    pub fn read(readers: *Readers, mailbox_id: u64) error{OutOfMemory}!Read {
        defer readers.invariants();
        const mailbox = readers.mailboxes.getPtr(mailbox_id) orelse return .nothing;
        // A reader that has no memory for its frames is told of the next entry.
        errdefer mailbox.wanted = true;
        for (0..mailbox.readers.items.len) |_| {
            const reader = mailbox.readers.items[mailbox.turn];
            const found = try readers.readOne(reader);
            mailbox.entries = if (found == .bytes) found.bytes.count else 0;
            if (found != .nothing) return found;
            mailbox.turn = (mailbox.turn + 1) % mailbox.readers.items.len;
        }
        mailbox.wanted = true;
        return .nothing;
    }

    fn readOne(readers: *Readers, reader: *Reader) error{OutOfMemory}!Read {
        const log = &(reader.topic.log orelse return .nothing);
        switch (reader.state) {
            .waits => return .nothing,
            .reset => |cursor| {
                reader.state = .{ .reads = cursor };
                const is_kept = cursor.generation == log.generation and cursor.offset >= log.base.offset;
                const at: Position = if (is_kept)
                    .{ .epoch = log.epoch, .mark = log.markAt(cursor.offset) }
                else
                    log.now();
                return .{ .reset = reader.resetAt(at) };
            },
            .reads => |*cursor| switch (try readers.nextOf(reader.topic, cursor, reader.want())) {
                .nothing => return .nothing,
                .bytes => |bytes| {
                    const hold = &cursor.hold.?;
                    const one_by_one = reader.wish.as == .text or reader.wish.as == .binary;
                    const part = if (one_by_one) bytes[0..Log.frameEnd(cursor)] else bytes;
                    const end: u32 = @intCast(hold.at + part.len);
                    return .{ .bytes = .{
                        .as = reader.wish.as,
                        .bytes = part,
                        .count = hold.frames.entriesBefore(end) - hold.frames.entriesBefore(hold.at),
                        .frames = hold.frames,
                    } };
                },
                .skipped => return .{ .reset = reader.resetAt(log.now()) },
                .reset => |at| return .{ .reset = reader.resetAt(at) },
                .cut => return .cut,
            },
        }
    }

    /// Frames that were made for it may cost others their copies, but never those that it is to send.
    fn nextOf(
        readers: *Readers,
        topic: *Topic,
        cursor: *log_file.Cursor,
        want: log_file.Want,
    ) error{OutOfMemory}!log_file.Next {
        var framer = readers.framer;
        framer.lingering = &readers.lingering;
        const next = try topic.log.?.next(cursor, want, framer);
        readers.recount(topic);
        readers.keepWithin();
        return next;
    }

    /// The position of the only entry that `read` gave.
    pub fn positionOf(readers: *const Readers, mailbox_id: u64) Position {
        const mailbox = readers.mailboxes.getPtr(mailbox_id).?; // the mailbox of a reader exists
        const reader = mailbox.readers.items[mailbox.turn];
        assert(reader.wish.as == .text or reader.wish.as == .binary);
        const hold = reader.state.reads.hold.?;
        const offset = hold.segment.before.offset + hold.frames.entriesBefore(hold.at) + 1;
        return .{ .epoch = reader.topic.log.?.epoch, .mark = hold.segment.mark(offset) };
    }

    /// The bytes that `read` gave were sent, all of them. The number of entries in them.
    pub fn sent(readers: *Readers, mailbox_id: u64, count: usize) usize {
        defer readers.invariants();
        const mailbox = readers.mailboxes.getPtr(mailbox_id) orelse return 0;
        const reader = mailbox.readers.items[mailbox.turn];
        const log = &reader.topic.log.?;
        log.sent(&reader.state.reads, count);
        // A reader that waits holds no segment: the history may go.
        log.release(&reader.state.reads);
        mailbox.turn = (mailbox.turn + 1) % mailbox.readers.items.len;
        defer mailbox.entries = 0;
        return mailbox.entries;
    }

    /// The number of readers, and how far the slowest is behind.
    pub fn countNow(readers: *Readers, now: *Now) void {
        now.readers = 0;
        now.lag = 0;
        var topics = readers.topics.valueIterator();
        while (topics.next()) |topic| {
            now.readers += topic.*.readers.items.len;
            const log = &(topic.*.log orelse continue);
            // With many readers of a topic that is silent, there is nothing to look at.
            if (topic.*.even == log.tip.offset) continue;
            var most: u64 = 0;
            for (topic.*.readers.items) |reader| most = @max(most, reader.lag(log));
            topic.*.even = if (most == 0) log.tip.offset else null;
            now.lag = @max(now.lag, most);
        }
    }

    /// Entries that are too old are forgotten.
    pub fn tick(readers: *Readers, now_ms: u64) void {
        var topics = readers.topics.valueIterator();
        while (topics.next()) |topic| if (topic.*.log) |*log| {
            log.trim(now_ms);
            readers.recount(topic.*);
        };
    }

    /// Whether time may change anything.
    pub fn hasDeadlines(readers: *const Readers) bool {
        return readers.topics.count() > 0;
    }
};
