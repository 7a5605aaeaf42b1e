//! Readers of topics with history at a node, and copies of the histories that they read. A reader belongs to
//! one connection. All readers of a topic share a copy, in which each has a place. Does not know: the
//! connection to the hub, and requests (node.zig).
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

/// The form in which a reader gets entries.
pub const As = enum {
    text,
    binary,
    /// WebSocket messages with their frames, several at once.
    text_frames,
    binary_frames,
    /// WebSocket messages with their frames, compressed where that is shorter.
    text_deflated,
    binary_deflated,
    /// Events of an event stream, with positions.
    events,
    /// The bytes of entries without frames, of several at once.
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

/// The wishes of a reader.
pub const Wish = struct {
    as: As,
    /// log2 of the window with which the reader inflates, 8..15.
    window_bits: u4 = 15,
    since: position.Since = .now,
    behind: Behind = .skip,
    /// The channel that answers about subscribers name for the reader; null: the channel of its mailbox.
    channel: ?Channel = null,

    /// The treatment of a reader that is behind the oldest kept entry.
    pub const Behind = @FieldType(log_file.Want, "behind");
};

/// The next step of a connection.
pub const Read = union(enum) {
    /// The connection has every entry. A `readable` event tells of the next one.
    nothing,
    /// An entry, or the frames of several, valid until `sent` was told that all bytes were sent.
    bytes: Bytes,
    /// The history began anew, or the reader has missed entries. It goes on behind this position.
    reset: Reset,
    /// The reader was too far behind, and was removed, as it wished.
    cut,

    pub const Reset = struct { as: As, topic: []const u8, position: Position };

    pub const Bytes = struct {
        as: As,
        bytes: []const u8,
        /// The number of entries in `bytes`.
        count: usize,
        /// The owner of `bytes`. A caller that retains it may send the bytes later.
        frames: *frames.Frames,
    };
};

const Topic = struct {
    name: []const u8,
    /// The number under which the hub was asked for the topic. Frames of the hub with another number are
    /// ignored.
    number: u64,
    /// The copy of the history; null: the hub has sent nothing of it yet.
    log: ?Log = null,
    /// The copy has all entries that the hub has.
    live: bool = false,
    /// The hub has no room for another topic, and is asked again.
    is_refused: bool = false,
    readers: std.ArrayList(*Reader) = .empty,
    /// The share for which the copy's memory counts.
    share: Shares.Index,
    /// Bytes of the copy and its frames, and the topic's place in the share's list of topics with about the
    /// same cost.
    cost: u64 = 0,
    place: std.DoublyLinkedList.Node = .{},
    /// The offset up to which all readers had every entry when they were counted last; null: not all had.
    even: ?u64 = null,
};

pub const Reader = struct {
    topic: *Topic,
    mailbox: u64,
    wish: Wish,
    state: union(enum) {
        /// The topic is not live yet. The request with this number is answered when it is.
        waits: u32,
        /// The reader must be told of a reset.
        reset: log_file.Cursor,
        reads: log_file.Cursor,
    },

    fn want(reader: *const Reader) log_file.Want {
        return .{ .variant = reader.wish.as.variant(reader.wish.window_bits), .behind = reader.wish.behind };
    }

    /// The number of entries that the reader was not sent yet; 0 for a reader whose history began anew.
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
    /// The last `read` found nothing, so the owner is told of the next entry.
    wanted: bool = false,
    /// The index of the reader that has its turn, which lasts until its bytes are sent.
    turn: usize = 0,
    /// The number of entries in the bytes that are being sent.
    entries: usize = 0,
};

/// The answer to a reader that was waiting: the position where it begins.
pub const Settled = struct { number: u32, mailbox: u64, position: Position };

pub const Readers = struct {
    gpa: std.mem.Allocator,
    bounds: log_file.Limits,
    /// Makes frames. Its deflater belongs to the caller.
    framer: frames.Framer = .{ .deflater = null, .deflate_bytes_min = 0 },
    /// The largest `Topic.number` so far.
    last_number: u64 = 0,
    topics: std.StringHashMapUnmanaged(*Topic) = .empty,
    mailboxes: std.AutoHashMapUnmanaged(u64, Mailbox) = .empty,
    /// The sum of the costs of all copies.
    cost: u64 = 0,
    cost_max: u64 = limits.copies_bytes_max,
    /// Shares of the mounts whose connections read here. They are known before there are topics.
    shares: Shares,
    /// Frames that only connections hold.
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

    /// The number of mailboxes up to which all are checked after each entry; more would take most of the
    /// node's time.
    const checked_mailboxes_max = 32;

    fn find(readers: *const Readers, mailbox_id: u64, name: []const u8) ?*Reader {
        const mailbox = readers.mailboxes.getPtr(mailbox_id) orelse return null;
        for (mailbox.readers.items) |reader| {
            if (std.mem.eql(u8, reader.topic.name, name)) return reader;
        }
        return null;
    }

    pub const Added = union(enum) {
        /// The topic is new here. The hub must be asked for it under this number.
        follow: u64,
        /// The hub was asked for the topic already.
        waits,
        settled: Settled,
    };

    /// Adds a reader for a connection. The request `number` is answered when the reader has its place.
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

    /// Updates a topic's cost. Must be called after each change of its log.
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

    /// Drops the costliest copies of the share that takes most, until all copies fit their limit. So no share
    /// loses copies to one that takes more. Readers that have not had all entries get a reset, or are cut if
    /// they wish that.
    fn keepWithin(readers: *Readers) void {
        while (readers.cost > readers.cost_max) {
            const topic = costliest(readers.shares.withMost(.bytes));
            topic.log.?.clear();
            readers.recount(topic);
        }
    }

    /// The costliest topic of a share, which must have copies.
    fn costliest(share: *const Share) *Topic {
        var class = share.by_cost.len;
        while (class > 0) {
            class -= 1;
            if (share.by_cost[class].first) |place| return @fieldParentPtr("place", place);
        }
        unreachable;
    }

    /// Gives a reader its place in a live topic.
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

    /// Steps that `remove` leaves to its caller.
    pub const Removed = struct {
        /// The number of the reader's unanswered request; 0: there is none.
        number: u32 = 0,
        /// The hub must be told that the topic has no readers here any more.
        unfollow: bool = false,
    };

    /// Removes a reader; null: there is no such reader.
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

    /// Frees a reader. True: the topic had no other reader, and is freed, too.
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

    /// The name of the topic for which a connection's request `number` waits; null: there is none.
    pub fn waitingFor(readers: *const Readers, mailbox_id: u64, number: u32) ?[]const u8 {
        const mailbox = readers.mailboxes.getPtr(mailbox_id) orelse return null;
        for (mailbox.readers.items) |reader| switch (reader.state) {
            .waits => |own| if (own == number) return reader.topic.name,
            .reset, .reads => {},
        };
        return null;
    }

    // ---- Frames of the hub

    /// Notes that the hub is lost. Readers go on with the entries that are here.
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

    /// An iterator over topics for which the hub must be asked: all for a new hub, or those that it refused.
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

    /// Notes that the copy has all entries. `nextSettled` then settles readers that have waited.
    pub fn goesLive(readers: *Readers, name: []const u8, number: u64) error{Malformed}!?*Topic {
        const topic = readers.followed(name, number) orelse return null;
        if (topic.log == null) return error.Malformed;
        topic.live = true;
        topic.is_refused = false;
        return topic;
    }

    /// Notes that the hub may lack entries of the topic, so that new readers wait.
    pub fn stale(readers: *Readers, name: []const u8, number: u64) void {
        defer readers.invariants();
        const topic = readers.followed(name, number) orelse return;
        topic.live = false;
    }

    /// Notes that the hub refuses the topic. Readers that have begun go on when the hub allows it;
    /// `nextRefused` has those that wait.
    pub fn refused(readers: *Readers, name: []const u8, number: u64) ?*Topic {
        const topic = readers.followed(name, number) orelse return null;
        topic.is_refused = true;
        return topic;
    }

    /// The mailbox of a waiting reader of a refused topic; null: there is no further one.
    pub fn nextRefused(topic: *const Topic) ?u64 {
        assert(topic.is_refused);
        for (topic.readers.items) |reader| if (reader.state == .waits) return reader.mailbox;
        return null;
    }

    /// Settles the next waiting reader of a live topic; null: there is no further one.
    pub fn nextSettled(topic: *Topic) ?Settled {
        assert(topic.live);
        for (topic.readers.items) |reader| if (reader.state == .waits) return settle(reader);
        return null;
    }

    /// An iterator over connections that wait for an entry of the topic.
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

    /// The next step of a connection. The turn of its reader lasts until the bytes are sent.
    pub fn read(readers: *Readers, mailbox_id: u64) error{OutOfMemory}!Read {
        defer readers.invariants();
        const mailbox = readers.mailboxes.getPtr(mailbox_id) orelse return .nothing;
        // A reader without memory for its frames is told of the next entry.
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

    /// The next step of a reader in its log. New frames may cost other topics their copies, but never the
    /// frames that are to be sent.
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

    /// The position of the single entry that `read` returned.
    pub fn positionOf(readers: *const Readers, mailbox_id: u64) Position {
        const mailbox = readers.mailboxes.getPtr(mailbox_id).?; // the mailbox of a reader exists
        const reader = mailbox.readers.items[mailbox.turn];
        assert(reader.wish.as == .text or reader.wish.as == .binary);
        const hold = reader.state.reads.hold.?;
        const offset = hold.segment.before.offset + hold.frames.entriesBefore(hold.at) + 1;
        return .{ .epoch = reader.topic.log.?.epoch, .mark = hold.segment.mark(offset) };
    }

    /// Notes that all bytes that `read` returned were sent. Returns the number of their entries.
    pub fn sent(readers: *Readers, mailbox_id: u64, count: usize) usize {
        defer readers.invariants();
        const mailbox = readers.mailboxes.getPtr(mailbox_id) orelse return 0;
        const reader = mailbox.readers.items[mailbox.turn];
        const log = &reader.topic.log.?;
        log.sent(&reader.state.reads, count);
        // A reader that waits holds no segment, so that the history can be dropped.
        log.release(&reader.state.reads);
        mailbox.turn = (mailbox.turn + 1) % mailbox.readers.items.len;
        defer mailbox.entries = 0;
        return mailbox.entries;
    }

    /// Counts the readers, and the lag of the slowest in entries.
    pub fn countNow(readers: *Readers, now: *Now) void {
        now.readers = 0;
        now.lag = 0;
        var topics = readers.topics.valueIterator();
        while (topics.next()) |topic| {
            now.readers += topic.*.readers.items.len;
            const log = &(topic.*.log orelse continue);
            // Readers of a topic without new entries need not be looked at.
            if (topic.*.even == log.tip.offset) continue;
            var most: u64 = 0;
            for (topic.*.readers.items) |reader| most = @max(most, reader.lag(log));
            topic.*.even = if (most == 0) log.tip.offset else null;
            now.lag = @max(now.lag, most);
        }
    }

    /// Drops entries that are too old.
    pub fn tick(readers: *Readers, now_ms: u64) void {
        var topics = readers.topics.valueIterator();
        while (topics.next()) |topic| if (topic.*.log) |*log| {
            log.trim(now_ms);
            readers.recount(topic.*);
        };
    }

    /// Whether `tick` may have something to do.
    pub fn hasDeadlines(readers: *const Readers) bool {
        return readers.topics.count() > 0;
    }
};
