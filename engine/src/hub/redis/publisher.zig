//! The connection on which entries are published, each once, and histories are read. A publication whose
//! answer was lost is sent again on the next connection, where script.lua recognises its number. Messages
//! without a history (messages.zig) use this connection, too. Does not know: sockets, and who publishes.
const std = @import("std");
const assert = std.debug.assert;
const Config = @import("../config.zig").Config;
const position = @import("../position.zig");
const Position = position.Position;
const Placed = @import("../log.zig").Placed;
const Tree = @import("../tree.zig").Tree;
const keys = @import("keys.zig");
const link_file = @import("link.zig");
const Link = link_file.Link;
const Moment = link_file.Moment;
const Why = link_file.Why;
const Failure = @import("failure.zig").Failure;
const messages_file = @import("messages.zig");
const Messages = messages_file.Messages;
const Allocator = std.mem.Allocator;

const room_script = @embedFile("room.lua");
/// The script that publishes, and its digest for EVALSHA.
pub const script = room_script ++ @embedFile("script.lua");
const script_name = name: {
    @setEvalBranchQuota(4_000_000);
    var digest: [std.crypto.hash.Sha1.digest_length]u8 = undefined;
    std.crypto.hash.Sha1.hash(script, &digest, .{});
    break :name std.fmt.bytesToHex(digest, .lower);
};
/// The script that begins a read of a topic whose share has a prefix.
const read_script = room_script ++ @embedFile("read.lua");

/// The name of a hub, and the prefix of its keys in Redis.
pub const Identity = struct {
    /// A random number that is drawn whenever a hub starts, because its publications are numbered from 1.
    hub: u48,
    prefix: []const u8,
};

/// The end of a publication.
pub const Outcome = union(enum) {
    /// The entry has this position in the topic.
    published: Position,
    /// Redis has refused the entry.
    refused: Failure,
    /// The entry did not reach Redis in time.
    unavailable,
    /// The entry may have reached Redis, whose answer did not come in time.
    unknown,
};

/// An event. Its values are valid until the next call.
pub const Event = union(enum) {
    need_more,
    /// The owner must open a socket, then call `link.connected` or `lost`.
    connect,
    /// The connection has logged in.
    ready,
    /// The owner must close the socket. A read has ended with the connection.
    lost: Why,
    done: struct { token: u64, outcome: Outcome },
    /// A message without a history has ended.
    said: struct { token: u64, outcome: messages_file.Outcome },
    /// The topic's newest position, the first event of a read.
    head: Position,
    entry: Placed,
    /// A read is complete. `full`: there may be further entries behind its last one.
    read: struct { full: bool },
    /// Redis has refused the read.
    read_refused: Failure,
};

/// The result of `receive`.
pub const Step = struct { consumed: usize, event: Event };

const Publication = struct {
    sequence: u64,
    /// The epoch for the topic if it has none yet.
    epoch: position.Epoch,
    /// The time of the publication in milliseconds since 1970, from which the entry's age is computed.
    time_ms: u64,
    /// The owner's name for the publication.
    token: u64,
    deadline_ms: u64,
    /// Redis may have got the publication.
    tried: bool = false,
    /// The prefix of the share for which the topic counts; empty: the topic has no limit. Borrowed.
    prefix: []const u8,
    /// The topic's name, followed by the content.
    memory: []u8,
    topic_len: u32,

    fn topic(publication: *const Publication) []const u8 {
        return publication.memory[0..publication.topic_len];
    }

    fn bytes(publication: *const Publication) []const u8 {
        return publication.memory[publication.topic_len..];
    }
};

/// A command that waits for its answer.
const Asked = union(enum) {
    ping,
    /// The publication with this number.
    publication: u64,
    /// The oldest unanswered message.
    message,
    /// The command that sets a topic's epoch if it has none.
    epoch,
    /// The command that makes Redis remember a topic for longer.
    expiry,
    head,
    entries,
};

/// A read of history, with a copy of its topic's name.
const Read = struct {
    topic: []u8,
    /// The prefix of the share for which the topic counts; empty: none.
    prefix: []const u8,
    from: u64,
    /// The epoch for a topic that has none.
    epoch: position.Epoch,
    state: union(enum) {
        /// The commands are sent at this time.
        waiting: u64,
        asked,
        /// The topic's epoch is known, and `count` entries have come.
        entries: struct {
            epoch: position.Epoch,
            count: u32 = 0,
            /// The number of entries among them that no hub has written.
            foreign: u32 = 0,
        },
        /// Redis has refused a command of the read. Answers to the other commands are ignored.
        refused: Failure,
    },
};

/// A connection that publishes entries and reads them.
pub const Publisher = struct {
    gpa: Allocator,
    config: *const Config,
    identity: Identity,
    link: Link,
    /// Publications that have not ended, by number.
    waiting: std.Deque(Publication) = .empty,
    waiting_bytes: u64 = 0,
    /// The number of publications, from the first on, that were sent on this connection.
    sent: usize = 0,
    next_sequence: u64 = 1,
    messages: Messages = .{},
    /// Commands without an answer, in order.
    asked: std.Deque(Asked) = .empty,
    /// Whether the server has the script. Until it has, publications are sent one by one: if a later one
    /// could run before an earlier one, their order would be lost.
    script_state: enum { unsure, given, known } = .unsure,
    reading: ?Read = null,
    /// The time at which the next read may begin, in milliseconds.
    read_ms: u64 = 0,
    /// The number of entries that were read and that no hub has written.
    foreign: u32 = 0,

    pub fn init(
        gpa: Allocator,
        config: *const Config,
        identity: Identity,
        account: link_file.Account,
    ) Allocator.Error!Publisher {
        return .{
            .gpa = gpa,
            .config = config,
            .identity = identity,
            .link = try .init(gpa, config, account),
        };
    }

    pub fn deinit(publisher: *Publisher) void {
        while (publisher.waiting.popFront()) |publication| publisher.gpa.free(publication.memory);
        publisher.waiting.deinit(publisher.gpa);
        publisher.asked.deinit(publisher.gpa);
        publisher.messages.deinit(publisher.gpa);
        publisher.endRead();
        publisher.link.deinit();
        publisher.* = undefined;
    }

    pub fn invariants(publisher: *const Publisher) void {
        assert(publisher.sent <= publisher.waiting.len);
        assert(publisher.waiting.len <= publisher.config.publications_max);
        assert(publisher.script_state == .known or publisher.sent <= 1);
        if (publisher.link.isReady()) return;
        assert(publisher.asked.len == 0 and publisher.sent == 0 and publisher.messages.sent.len == 0);
        if (publisher.reading) |current| assert(current.state == .waiting);
    }

    /// Takes a publication over. `prefix`: that of the share for which the topic counts; it must stay valid.
    /// `error.Full`: too many publications wait for Redis.
    pub fn publish(
        publisher: *Publisher,
        topic: []const u8,
        prefix: []const u8,
        bytes: []const u8,
        token: u64,
        moment: Moment,
    ) error{ OutOfMemory, Full, TooLong }!void {
        const config = publisher.config;
        if (topic.len > config.topic_bytes_max or bytes.len > config.message_bytes_max) return error.TooLong;
        const size = topic.len + bytes.len;
        if (publisher.waiting.len == config.publications_max or
            publisher.waiting_bytes + size > config.publications_bytes_max) return error.Full;
        try publisher.waiting.ensureUnusedCapacity(publisher.gpa, 1);
        const memory = try publisher.gpa.alloc(u8, size);
        @memcpy(memory[0..topic.len], topic);
        @memcpy(memory[topic.len..], bytes);
        publisher.waiting.pushBackAssumeCapacity(.{
            .sequence = publisher.next_sequence,
            .epoch = @truncate(moment.random),
            .time_ms = moment.wall_ms,
            .token = token,
            .deadline_ms = moment.now_ms + config.publish_ms,
            .prefix = prefix,
            .memory = memory,
            .topic_len = @intCast(topic.len),
        });
        publisher.waiting_bytes += size;
        publisher.next_sequence += 1;
        publisher.pump(moment);
    }

    /// Takes a message over. `error.Full`: too many messages wait for Redis.
    pub fn say(
        publisher: *Publisher,
        fed: keys.Fed,
        bytes: []const u8,
        token: u64,
        moment: Moment,
    ) error{ OutOfMemory, Full }!void {
        const gpa = publisher.gpa;
        const prefix = publisher.identity.prefix;
        const name = try gpa.alloc(u8, keys.room(prefix, fed.name));
        defer gpa.free(name);
        const channel = keys.writeFeed(name, prefix, fed.feed, fed.name);
        const size = channel.len + bytes.len;
        const message = try publisher.messages.add(gpa, publisher.config, size, token, moment.now_ms);
        message.name_len = @intCast(channel.len);
        @memcpy(message.memory[0..channel.len], channel);
        @memcpy(message.memory[channel.len..], bytes);
        publisher.pump(moment);
    }

    /// Whether a read is under way.
    pub fn isReading(publisher: *const Publisher) bool {
        return publisher.reading != null;
    }

    /// Reads the topic's newest position and a page of its history, beginning with the entry at offset
    /// `from`.
    pub fn read(
        publisher: *Publisher,
        topic: []const u8,
        prefix: []const u8,
        from: u64,
        moment: Moment,
    ) error{OutOfMemory}!void {
        assert(publisher.reading == null);
        publisher.reading = .{
            .topic = try publisher.gpa.dupe(u8, topic),
            .prefix = prefix,
            .from = from,
            .epoch = @truncate(moment.random),
            .state = .{ .waiting = @max(moment.now_ms, publisher.read_ms) },
        };
        publisher.pump(moment);
    }

    /// Acts on the present time, up to one event; `need_more`: nothing is due any more.
    pub fn tick(publisher: *Publisher, moment: Moment) Event {
        defer publisher.invariants();
        if (publisher.expired(moment)) |event| return event;
        switch (publisher.link.tick(moment)) {
            .nothing => {},
            .connect => return .connect,
            .close => |why| {
                publisher.forget();
                return .{ .lost = why };
            },
            .pinged => publisher.asked.pushBack(publisher.gpa, .ping) catch {
                return publisher.drop(.wanted, moment);
            },
        }
        publisher.pump(moment);
        return .need_more;
    }

    /// The time at which `tick` is due next, in milliseconds.
    pub fn deadline(publisher: *const Publisher) u64 {
        var earliest = publisher.link.deadline();
        if (publisher.waiting.front()) |first| earliest = @min(earliest, first.deadline_ms);
        if (publisher.messages.deadline()) |at| earliest = @min(earliest, at);
        if (publisher.link.isReady()) if (publisher.reading) |current| switch (current.state) {
            .waiting => |at| earliest = @min(earliest, at),
            else => {},
        };
        return earliest;
    }

    fn expired(publisher: *Publisher, moment: Moment) ?Event {
        if (publisher.messages.ended(publisher.gpa, moment.now_ms)) |ended| {
            return .{ .said = .{ .token = ended.token, .outcome = ended.outcome } };
        }
        const first = publisher.waiting.front() orelse return null;
        if (moment.now_ms < first.deadline_ms) return null;
        // An answer that comes later is ignored.
        return publisher.end(if (first.tried) .unknown else .unavailable);
    }

    /// Ends the first publication.
    fn end(publisher: *Publisher, outcome: Outcome) Event {
        const first = publisher.waiting.popFront().?;
        publisher.sent -|= 1;
        publisher.waiting_bytes -= first.memory.len;
        publisher.gpa.free(first.memory);
        return .{ .done = .{ .token = first.token, .outcome = outcome } };
    }

    /// Notes that the socket is gone, or that the owner closes it.
    pub fn lost(publisher: *Publisher, moment: Moment) void {
        publisher.link.lost(moment);
        publisher.forget();
    }

    /// Drops the state of the connection. Unanswered publications are sent again on the next one.
    fn forget(publisher: *Publisher) void {
        while (publisher.asked.popFront()) |_| {}
        publisher.sent = 0;
        publisher.messages.disconnected();
        publisher.script_state = .unsure;
        publisher.endRead();
        publisher.invariants();
    }

    fn endRead(publisher: *Publisher) void {
        if (publisher.reading) |current| publisher.gpa.free(current.topic);
        publisher.reading = null;
    }

    fn drop(publisher: *Publisher, why: Why, moment: Moment) Event {
        publisher.lost(moment);
        return .{ .lost = why };
    }

    /// Writes commands that wait, as far as there is room. Without memory they wait on.
    fn pump(publisher: *Publisher, moment: Moment) void {
        if (!publisher.link.isReady()) return;
        publisher.pumpRead(moment) catch return;
        publisher.pumpMessages() catch return;
        while (publisher.sent < publisher.waiting.len and publisher.link.hasRoom()) {
            const most = if (publisher.script_state == .known) publisher.config.redis_in_flight_max else 1;
            if (publisher.sent >= most) break;
            publisher.send(publisher.waiting.atPtr(publisher.sent)) catch return;
            publisher.sent += 1;
        }
        publisher.invariants();
    }

    fn send(publisher: *Publisher, publication: *Publication) error{OutOfMemory}!void {
        const config = publisher.config;
        const identity = publisher.identity;
        const topic = publication.topic();
        try publisher.asked.ensureUnusedCapacity(publisher.gpa, 1);
        const each = keys.room(identity.prefix, topic);
        const names = try publisher.gpa.alloc(u8, 5 * each);
        defer publisher.gpa.free(names);
        var name: [4][]const u8 = undefined;
        for (&name, std.enums.values(keys.Kind), 0..) |*text, kind, index| {
            text.* = keys.write(names[index * each ..][0..each], identity.prefix, kind, topic, identity.hub);
        }
        var numbers: Numbers = .{};
        const known = publisher.script_state != .given;
        var words: [20][]const u8 = undefined;
        var command: std.ArrayList([]const u8) = .initBuffer(&words);
        command.appendSliceAssumeCapacity(&.{
            if (known) "EVALSHA" else "EVAL",
            if (known) &script_name else script,
            "3",
            name[@backingInt(keys.Kind.stream)],
            name[@backingInt(keys.Kind.head)],
            name[@backingInt(keys.Kind.done)],
            numbers.hex(identity.hub),
            numbers.decimal(publication.sequence),
            // Publications before the first waiting one will not be sent again.
            numbers.decimal(publisher.waiting.front().?.sequence),
            numbers.hex(publication.epoch),
            numbers.decimal(publication.time_ms),
            publication.bytes(),
            name[@backingInt(keys.Kind.channel)],
            numbers.decimal(config.history_entries_max),
            numbers.decimal(config.history_bytes_max),
            numbers.decimal(config.history_age_ms),
            numbers.decimal(config.topic_idle_ms),
            numbers.decimal(publisher.previous(topic)),
        });
        if (publication.prefix.len > 0) command.appendSliceAssumeCapacity(&.{
            numbers.decimal(config.mount_redis_bytes_max),
            keys.writeRoom(names[4 * each ..], identity.prefix, publication.prefix),
        });
        try publisher.link.write(command.items);
        publisher.asked.pushBackAssumeCapacity(.{ .publication = publication.sequence });
        publication.tried = true;
    }

    fn pumpMessages(publisher: *Publisher) error{OutOfMemory}!void {
        const messages = &publisher.messages;
        while (messages.waiting.front()) |first| {
            if (messages.sent.len >= publisher.config.redis_in_flight_max) return;
            if (!publisher.link.hasRoom()) return;
            try publisher.asked.ensureUnusedCapacity(publisher.gpa, 1);
            try publisher.link.write(&.{ "PUBLISH", first.channel(), first.bytes() });
            publisher.asked.pushBackAssumeCapacity(.message);
            messages.wrote(publisher.gpa);
        }
    }

    /// The number of the latest publication to the topic that was sent and not answered; 0: there is none.
    fn previous(publisher: *const Publisher, topic: []const u8) u64 {
        var index = publisher.sent;
        while (index > 0) {
            index -= 1;
            const other = publisher.waiting.at(index);
            if (std.mem.eql(u8, other.topic(), topic)) return other.sequence;
        }
        return 0;
    }

    fn pumpRead(publisher: *Publisher, moment: Moment) error{OutOfMemory}!void {
        const current = if (publisher.reading) |*current| current else return;
        switch (current.state) {
            .waiting => |at| if (moment.now_ms < at or !publisher.link.hasRoom()) return,
            else => return,
        }
        const identity = publisher.identity;
        try publisher.asked.ensureUnusedCapacity(publisher.gpa, 4);
        const each = keys.room(identity.prefix, current.topic);
        const names = try publisher.gpa.alloc(u8, 3 * each);
        defer publisher.gpa.free(names);
        const head = keys.write(names[0..each], identity.prefix, .head, current.topic, 0);
        const stream = keys.write(names[each..][0..each], identity.prefix, .stream, current.topic, 0);
        var numbers: Numbers = .{};
        const link = &publisher.link;
        const epoch = numbers.hex(current.epoch);
        const idle = numbers.decimal(publisher.config.topic_idle_ms);
        if (current.prefix.len > 0) {
            const room = keys.writeRoom(names[2 * each ..], identity.prefix, current.prefix);
            const most = numbers.decimal(publisher.config.mount_redis_bytes_max);
            try link.write(&.{ "EVAL", read_script, "1", head, epoch, idle, most, room });
        } else try link.write(&.{ "HSETNX", head, "epoch", epoch });
        publisher.asked.pushBackAssumeCapacity(.epoch);
        current.state = .asked;
        // The answers to the commands so far must be followed by those of the missing ones, so an error ends
        // the connection.
        errdefer link.state = .{ .ready = .{ .heard_ms = 0, .since_ms = 0, .deadline_ms = 0 } };
        try link.write(&.{ "PEXPIRE", head, idle });
        publisher.asked.pushBackAssumeCapacity(.expiry);
        try link.write(&.{ "HMGET", head, "epoch", "offset", "check" });
        publisher.asked.pushBackAssumeCapacity(.head);
        const page = numbers.decimal(publisher.config.history_page);
        try link.write(&.{ "XRANGE", stream, numbers.decimal(current.from), "+", "COUNT", page });
        publisher.asked.pushBackAssumeCapacity(.entries);
        publisher.read_ms = moment.now_ms + publisher.config.history_pause_ms;
    }

    /// Parses received bytes, up to one event.
    pub fn receive(publisher: *Publisher, bytes: []const u8, moment: Moment) Step {
        var consumed: usize = 0;
        while (true) {
            const split = if (publisher.asked.front()) |asked| asked == .entries else false;
            const step = publisher.link.receive(bytes[consumed..], moment, split);
            consumed += step.consumed;
            const event = publisher.take(step.event, moment) orelse continue;
            publisher.pump(moment);
            publisher.invariants();
            return .{ .consumed = consumed, .event = event };
        }
    }

    fn take(publisher: *Publisher, event: Link.Event, moment: Moment) ?Event {
        switch (event) {
            .need_more => return .need_more,
            .ready => return .ready,
            .lost => |why| {
                publisher.forget();
                return .{ .lost = why };
            },
            // A publisher subscribes to no channel, so it ignores pushes.
            .pushed => return null,
            .element => |value| return publisher.takeEntry(value, moment),
            .elements_end => {
                _ = publisher.asked.popFront();
                return publisher.finishRead();
            },
            .answer => |value| {
                const asked = publisher.asked.popFront() orelse return publisher.drop(.nonsense, moment);
                return publisher.takeAnswer(asked, value, moment) catch publisher.drop(.nonsense, moment);
            },
        }
    }

    fn takeAnswer(
        publisher: *Publisher,
        asked: Asked,
        value: Tree.View,
        moment: Moment,
    ) error{Malformed}!?Event {
        const failure: ?Failure = if (value.failure()) |text| .of(text) else null;
        switch (asked) {
            .ping => {
                if (failure) |kind| return publisher.drop(.{ .refused = kind }, moment);
                return if (value.is("PONG")) null else error.Malformed;
            },
            .publication => |sequence| return publisher.takePlace(sequence, value, failure, moment),
            .message => {
                const count: ?u64 = if (value.integer()) |heard| std.math.cast(u64, heard) else null;
                if (failure == null and count == null) {
                    // The message's token is still among those of unanswered messages, and ends with the
                    // connection.
                    return error.Malformed;
                }
                const token = publisher.messages.answered();
                return .{ .said = .{
                    .token = token,
                    .outcome = if (failure) |kind| .{ .refused = kind } else .{ .heard = count.? },
                } };
            },
            .epoch, .expiry, .head => {
                if (failure) |kind| return publisher.refuseRead(kind, moment);
                if (asked == .head) return publisher.takeHead(value);
                return if (value.integer() == null) error.Malformed else null;
            },
            .entries => {
                const kind = failure orelse return error.Malformed;
                return publisher.refuseRead(kind, moment) orelse publisher.finishRead();
            },
        }
    }

    /// Handles the answer to a publication.
    fn takePlace(
        publisher: *Publisher,
        sequence: u64,
        value: Tree.View,
        failure: ?Failure,
        moment: Moment,
    ) error{Malformed}!?Event {
        const is_first = if (publisher.waiting.front()) |first| first.sequence == sequence else false;
        if (failure) |kind| {
            if (kind == .no_script and publisher.script_state == .unsure) {
                publisher.script_state = .given;
                publisher.sent = 0;
                return null;
            }
            if (kind.remedy() == .reconnect) return publisher.drop(.{ .refused = kind }, moment);
            publisher.script_state = .known;
            return if (is_first) publisher.end(.{ .refused = kind }) else null;
        }
        const place = try readPlace(value);
        if (place == .early) return publisher.drop(.wanted, moment);
        publisher.script_state = .known;
        // The owner was told when the publication was given up.
        if (!is_first) return null;
        return publisher.end(switch (place) {
            .there => |at| .{ .published = at },
            .late => .unknown,
            .early => unreachable,
        });
    }

    fn refuseRead(publisher: *Publisher, kind: Failure, moment: Moment) ?Event {
        if (kind.remedy() == .reconnect) return publisher.drop(.{ .refused = kind }, moment);
        if (publisher.reading) |*current| current.state = .{ .refused = kind };
        return null;
    }

    fn takeHead(publisher: *Publisher, value: Tree.View) error{Malformed}!?Event {
        const current = if (publisher.reading) |*current| current else return error.Malformed;
        if (current.state == .refused) return null;
        if (value.count() != 3) return error.Malformed;
        if (value.item(0).?.isNothing()) {
            // The server was emptied between two commands.
            current.state = .{ .refused = .other };
            return null;
        }
        const epoch = try position.parseHex(value.item(0).?.bytes() orelse return error.Malformed);
        current.state = .{ .entries = .{ .epoch = epoch } };
        if (value.item(1).?.isNothing()) return .{ .head = .{ .epoch = epoch, .mark = .origin } };
        const offset = value.item(1).?.bytes() orelse return error.Malformed;
        return .{ .head = .{ .epoch = epoch, .mark = .{
            .offset = std.fmt.parseInt(u64, offset, 10) catch return error.Malformed,
            .check = try position.parseHex(value.item(2).?.bytes() orelse return error.Malformed),
        } } };
    }

    fn takeEntry(publisher: *Publisher, value: Tree.View, moment: Moment) ?Event {
        const current = if (publisher.reading) |*current| current else {
            return publisher.drop(.nonsense, moment);
        };
        switch (current.state) {
            .refused => return null,
            .entries => |*entries| {
                entries.count += 1;
                // Another program may have written to the stream. The topic must work all the same.
                const placed = keys.parseEntry(value, entries.epoch) catch {
                    entries.foreign += 1;
                    publisher.foreign +%= 1;
                    return null;
                };
                return .{ .entry = placed };
            },
            .waiting, .asked => return publisher.drop(.nonsense, moment),
        }
    }

    /// Whether there may be entries behind a page. The next page begins with the last entry of this one, so a
    /// page without a second entry of ours would be read for ever.
    fn isFull(publisher: *const Publisher, count: u32, foreign: u32) bool {
        if (count < publisher.config.history_page) return false;
        return foreign == 0 or count - foreign > 1;
    }

    fn finishRead(publisher: *Publisher) Event {
        const state = publisher.reading.?.state;
        publisher.endRead();
        return switch (state) {
            .refused => |kind| .{ .read_refused = kind },
            .entries => |entries| .{ .read = .{ .full = publisher.isFull(entries.count, entries.foreign) } },
            .waiting, .asked => unreachable, // the head came first
        };
    }
};

/// The answer of script.lua.
const Place = union(enum) {
    there: Position,
    /// Redis has ignored the publication, because its hub had given it up.
    late,
    /// Redis has ignored the entry, because the entry before it is missing.
    early,
};

fn readPlace(value: Tree.View) error{Malformed}!Place {
    const word = value.item(0) orelse return error.Malformed;
    if (value.count() == 1) {
        if (word.is("late")) return .late;
        if (word.is("early")) return .early;
    }
    if (value.count() != 2 or !(word.is("added") or word.is("repeated"))) return error.Malformed;
    return .{ .there = try .parse(value.item(1).?.bytes() orelse return error.Malformed) };
}

/// Memory for the numbers of a command as text.
const Numbers = struct {
    memory: [11 * 20]u8 = undefined,
    len: usize = 0,

    fn decimal(numbers: *Numbers, value: u64) []const u8 {
        return numbers.print("{d}", value);
    }

    fn hex(numbers: *Numbers, value: u48) []const u8 {
        return numbers.print("{x:0>12}", value);
    }

    fn print(numbers: *Numbers, comptime format: []const u8, value: u64) []const u8 {
        const text = std.fmt.bufPrint(numbers.memory[numbers.len..], format, .{value}) catch unreachable;
        numbers.len += text.len;
        return text;
    }
};
