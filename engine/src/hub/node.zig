//! A node of the hub: the mailboxes of its channels, the topics of channels, readers of topics with history
//! (readers.zig), and unanswered requests to the hub. Does not know: sockets, clocks, and the content of
//! messages.
//!
//! A message waits here until its channel takes it. When the hub is lost, requests under way end: as
//! `unavailable` if the hub cannot have got them, else as `unknown`. The next hub is told of all
//! subscriptions.
const std = @import("std");
const assert = std.debug.assert;
const limits = @import("limits.zig");
const outgoing = @import("outgoing.zig");
const wire = @import("wire.zig");
const readers_file = @import("readers.zig");
const Position = @import("position.zig").Position;
const Readers = readers_file.Readers;
const Present = @import("rolls.zig").Present;
const tally_file = @import("tally.zig");
const Tally = tally_file.Tally;
const Channel = wire.Channel;
const Code = wire.Code;
const Frame = wire.Frame;

/// An event for the node's owner.
pub const Event = union(enum) {
    /// A request has ended. `place`: the position in a topic with history. `present`: the answer to a
    /// question about subscribers, valid until the next call.
    reply: struct { number: u32, code: Code, place: ?Position = null, present: ?[]const u8 = null },
    /// A message has come for a mailbox in which the last `take` found none. `user` is that of `open`.
    mail: About,
    /// There is something to read for a connection whose last `read` found nothing.
    readable: About,

    pub const About = struct { mailbox: u64, user: u64 };
};

/// Limits that the operator sets.
pub const Bounds = struct {
    /// Messages that may wait in one mailbox.
    capacity: u32 = limits.mailbox_messages_max,
    /// Milliseconds after which a waiting message is dropped.
    life_ms: u64 = limits.message_life_ms,
    /// The length of a message in bytes.
    message_bytes: u32 = limits.message_bytes_max,
};

/// A message, which is in memory once for all mailboxes in which it waits.
const Message = struct {
    bytes: []u8,
    references: u32,
};

const Waiting = struct { message: *Message, until_ms: u64 };

const Mailbox = struct {
    /// The mailbox's name while it is open; 0: the place is free.
    id: u64 = 0,
    user: u64 = 0,
    /// The last `take` found no message, so the owner is told of the next one.
    wanted: bool = false,
    messages: std.ArrayList(Waiting) = .empty,
    /// Messages at the front of `messages` that were taken.
    taken: usize = 0,
    topics: std.ArrayList(*Topic) = .empty,

    fn waiting(mailbox: *Mailbox) []Waiting {
        return mailbox.messages.items[mailbox.taken..];
    }
};

const Topic = struct {
    name: []const u8,
    mailboxes: std.AutoArrayHashMapUnmanaged(u64, void) = .empty,
    /// Counts up to choose the mailbox for the next message that only one channel of the topic gets.
    turn: usize = 0,
};

const Request = struct {
    /// The time of the request; it ends `limits.request_ms` later.
    asked_ms: u64,
    /// The value of `sent_total` from which on the hub may know of the request.
    sent_at: u64 = never,
    /// The mailbox and the topic of a request to subscribe.
    subscribes: ?struct { mailbox: u64, topic: *Topic } = null,
    /// The node that asked for this request, and the number of its own request, for the answer.
    origin: ?struct { node: u64, number: u32 } = null,
    /// The mailbox of a connection that waits to read a topic with history.
    reads: ?u64 = null,

    const never = std.math.maxInt(u64);
};

pub const Node = struct {
    gpa: std.mem.Allocator,
    secret: wire.Secret,
    /// The node's id, a digest of the secret.
    id: u64,
    /// Secrets of nodes for whose channels connections read here, the newest last.
    voices: std.ArrayList(wire.Secret) = .empty,
    state: State = .apart,
    reader: wire.Reader = .{},
    output: std.ArrayList(u8) = .empty,
    /// Bytes at the front of `output` that were sent.
    sent: usize = 0,
    /// All bytes that the node has ever sent.
    sent_total: u64 = 0,
    mailboxes: std.ArrayList(Mailbox) = .empty,
    /// Indices of free places in `mailboxes`.
    free: std.ArrayList(u32) = .empty,
    generation: u64 = 0,
    topics: std.StringHashMapUnmanaged(*Topic) = .empty,
    requests: std.AutoArrayHashMapUnmanaged(u32, Request) = .empty,
    last_number: u32 = 0,
    events: std.ArrayList(Event) = .empty,
    events_taken: usize = 0,
    /// The `present` of the last event, which is freed at the next call.
    told: ?[]const u8 = null,
    /// Bytes of all waiting messages.
    bytes: usize = 0,
    swept_ms: u64 = 0,
    readers: Readers,
    bounds: Bounds = .{},
    tally: Tally = .{},
    /// The value of `tally.now` that the hub was told last.
    told_now: tally_file.Now = .{},
    trimmed_ms: u64 = 0,

    const State = enum {
        /// The node was not connected yet. Requests wait for the first hub.
        apart,
        /// The hello to the first hub was not answered yet.
        greeting,
        met,
        /// The connection to the hub is lost. Requests fail at once.
        lost,
        /// The hello to the next hub was not answered yet.
        greeting_again,
    };

    /// `secret` must be random, so that no other node ever has it.
    pub fn init(gpa: std.mem.Allocator, secret: wire.Secret) Node {
        return .{
            .gpa = gpa,
            .secret = secret,
            .id = wire.nodeOf(secret),
            .readers = .init(gpa, .of(&.{})),
        };
    }

    pub fn deinit(node: *Node) void {
        const gpa = node.gpa;
        for (node.mailboxes.items) |*mailbox| {
            for (mailbox.waiting()) |waiting| node.release(waiting.message);
            mailbox.messages.deinit(gpa);
            mailbox.topics.deinit(gpa);
        }
        var topics = node.topics.valueIterator();
        while (topics.next()) |topic| node.freeTopic(topic.*);
        node.readers.deinit();
        node.voices.deinit(gpa);
        node.mailboxes.deinit(gpa);
        node.free.deinit(gpa);
        node.topics.deinit(gpa);
        node.requests.deinit(gpa);
        node.forgetTold();
        for (node.events.items[node.events_taken..]) |event| switch (event) {
            .reply => |reply| if (reply.present) |bytes| gpa.free(bytes),
            .mail, .readable => {},
        };
        node.events.deinit(gpa);
        node.reader.deinit(gpa);
        node.output.deinit(gpa);
        node.* = undefined;
    }

    // ---- Mailboxes

    const slot_bits = 20;
    pub const mailboxes_max = 1 << slot_bits;

    /// Opens a mailbox, with a name that no other mailbox has.
    pub fn open(node: *Node, user: u64) error{ OutOfMemory, TooMany }!u64 {
        defer node.invariants();
        const slot = node.free.pop() orelse try node.newPlace();
        node.generation += 1;
        const id = node.generation << slot_bits | slot;
        node.mailboxes.items[slot] = .{ .id = id, .user = user };
        return id;
    }

    fn newPlace(node: *Node) !u32 {
        const slot = node.mailboxes.items.len;
        if (slot == mailboxes_max) return error.TooMany;
        // `free` gets its memory here, so that `close` cannot fail.
        try node.free.ensureTotalCapacity(node.gpa, slot + 1);
        try node.mailboxes.append(node.gpa, .{});
        return @intCast(slot);
    }

    /// Closes a mailbox, with its subscriptions and messages.
    pub fn close(node: *Node, id: u64) void {
        defer node.invariants();
        const mailbox = node.find(id) orelse return;
        node.empty(mailbox);
        while (mailbox.topics.getLastOrNull()) |topic| node.leave(mailbox, topic);
        while (node.readers.any(id)) |name| node.endReading(id, name, .gone);
        mailbox.messages.deinit(node.gpa);
        mailbox.topics.deinit(node.gpa);
        mailbox.* = .{};
        node.free.appendAssumeCapacity(slotOf(id));
    }

    fn slotOf(id: u64) u32 {
        return @intCast(id & (mailboxes_max - 1));
    }

    fn find(node: *Node, id: u64) ?*Mailbox {
        const slot = slotOf(id);
        if (id == 0 or slot >= node.mailboxes.items.len) return null;
        const mailbox = &node.mailboxes.items[slot];
        return if (mailbox.id == id) mailbox else null;
    }

    /// Takes the oldest message that has not expired; the caller gives it back with `release`. Null: there is
    /// none, and the next one causes a `mail` event.
    pub fn take(node: *Node, id: u64, now_ms: u64) ?*Message {
        defer node.invariants();
        const mailbox = node.find(id) orelse return null;
        node.expire(mailbox, now_ms);
        const waiting = mailbox.waiting();
        if (waiting.len == 0) {
            mailbox.wanted = true;
            return null;
        }
        const message = waiting[0].message;
        message.references += 1;
        node.drop(mailbox);
        return message;
    }

    /// Whether `take` would find a message.
    pub fn has(node: *Node, id: u64, now_ms: u64) bool {
        const mailbox = node.find(id) orelse return false;
        node.expire(mailbox, now_ms);
        return mailbox.waiting().len > 0;
    }

    pub fn release(node: *Node, message: *Message) void {
        message.references -= 1;
        if (message.references > 0) return;
        node.bytes -= message.bytes.len;
        node.gpa.free(message.bytes);
        node.gpa.destroy(message);
    }

    fn expire(node: *Node, mailbox: *Mailbox, now_ms: u64) void {
        while (mailbox.waiting().len > 0 and mailbox.waiting()[0].until_ms <= now_ms) {
            node.drop(mailbox);
            node.tally.events.dropped_expired += 1;
        }
    }

    /// Drops the oldest message.
    fn drop(node: *Node, mailbox: *Mailbox) void {
        const waiting = mailbox.waiting();
        node.release(waiting[0].message);
        mailbox.taken += 1;
        if (waiting.len > 1 and mailbox.taken < limits.mailbox_messages_max) return;
        const rest = waiting[1..];
        std.mem.copyForwards(Waiting, mailbox.messages.items[0..rest.len], rest);
        mailbox.messages.items.len = rest.len;
        mailbox.taken = 0;
        if (rest.len == 0) mailbox.messages.clearAndFree(node.gpa);
    }

    fn empty(node: *Node, mailbox: *Mailbox) void {
        while (mailbox.waiting().len > 0) node.drop(mailbox);
    }

    /// Puts a message into a mailbox. False: the mailbox is full.
    fn deliver(node: *Node, mailbox: *Mailbox, message: *Message, now_ms: u64) bool {
        node.expire(mailbox, now_ms);
        if (mailbox.waiting().len >= node.bounds.capacity or node.bytes > limits.mailboxes_bytes_max) {
            node.tally.events.dropped_full += 1;
            return false;
        }
        mailbox.messages.append(node.gpa, .{
            .message = message,
            .until_ms = now_ms + node.bounds.life_ms,
        }) catch return false;
        message.references += 1;
        node.tally.events.mailed += 1;
        node.tally.events.mailed_bytes += message.bytes.len;
        if (mailbox.wanted) {
            node.events.append(node.gpa, .{ .mail = .{ .mailbox = mailbox.id, .user = mailbox.user } }) catch
                return true;
            mailbox.wanted = false;
        }
        return true;
    }

    /// A message with one reference, the caller's.
    fn newMessage(node: *Node, bytes: []const u8) !*Message {
        const message = try node.gpa.create(Message);
        errdefer node.gpa.destroy(message);
        message.* = .{ .bytes = try node.gpa.dupe(u8, bytes), .references = 1 };
        node.bytes += bytes.len;
        return message;
    }

    // ---- Topics

    fn freeTopic(node: *Node, topic: *Topic) void {
        topic.mailboxes.deinit(node.gpa);
        node.gpa.free(topic.name);
        node.gpa.destroy(topic);
    }

    fn topicOf(node: *Node, name: []const u8) !*Topic {
        if (node.topics.get(name)) |topic| return topic;
        if (node.topics.count() == limits.node_topics_max) return error.TooMany;
        try node.topics.ensureUnusedCapacity(node.gpa, 1);
        const own = try node.gpa.dupe(u8, name);
        errdefer node.gpa.free(own);
        const topic = try node.gpa.create(Topic);
        topic.* = .{ .name = own };
        node.topics.putAssumeCapacityNoClobber(own, topic);
        return topic;
    }

    fn join(node: *Node, mailbox: *Mailbox, topic: *Topic) !void {
        if (topic.mailboxes.contains(mailbox.id)) return;
        if (mailbox.topics.items.len == limits.channel_topics_max) return error.TooMany;
        try mailbox.topics.ensureUnusedCapacity(node.gpa, 1);
        try topic.mailboxes.put(node.gpa, mailbox.id, {});
        mailbox.topics.appendAssumeCapacity(topic);
    }

    /// Removes a mailbox from a topic's subscribers. Without subscribers the topic ends here.
    fn leave(node: *Node, mailbox: *Mailbox, topic: *Topic) void {
        const at = std.mem.findScalar(*Topic, mailbox.topics.items, topic) orelse return;
        _ = mailbox.topics.swapRemove(at);
        assert(topic.mailboxes.swapRemove(mailbox.id));
        for (node.requests.values()) |*waiting| if (waiting.subscribes) |*what| {
            if (what.topic == topic and what.mailbox == mailbox.id) waiting.subscribes = null;
        };
        node.endUnused(topic);
    }

    fn endUnused(node: *Node, topic: *Topic) void {
        if (topic.mailboxes.count() > 0) return;
        // Without memory for the frame the connection is given up. The next hub is not told of the topic.
        node.say(&.{ .kind = .unsubscribe, .name = topic.name }) catch node.lose();
        assert(node.topics.remove(topic.name));
        node.freeTopic(topic);
    }

    // ---- Requests

    /// The number of a request, which its reply has, too.
    pub const Asked = error{ OutOfMemory, TooMany, Unavailable, Gone }!u32;

    pub fn subscribe(node: *Node, id: u64, topic_name: []const u8, now_ms: u64) Asked {
        defer node.invariants();
        return node.subscribeFor(null, id, topic_name, now_ms);
    }

    fn subscribeFor(
        node: *Node,
        origin: @FieldType(Request, "origin"),
        id: u64,
        name: []const u8,
        now_ms: u64,
    ) Asked {
        const mailbox = node.find(id) orelse return error.Gone;
        const topic = try node.topicOf(name);
        node.join(mailbox, topic) catch |err| {
            node.endUnused(topic);
            return err;
        };
        errdefer node.leave(mailbox, topic);
        const what: Request = .{
            .asked_ms = now_ms,
            .subscribes = .{ .mailbox = id, .topic = topic },
            .origin = origin,
        };
        // The next hub is told of all topics when the node has met it.
        if (node.state == .lost or node.state == .greeting_again) return node.enter(what);
        return node.ask(.{ .kind = .subscribe, .name = name }, what);
    }

    /// Ends a mailbox's subscription at once, without waiting for the hub.
    pub fn unsubscribe(node: *Node, id: u64, name: []const u8) void {
        defer node.invariants();
        const mailbox = node.find(id) orelse return;
        node.leave(mailbox, node.topics.get(name) orelse return);
    }

    pub fn publish(
        node: *Node,
        name: []const u8,
        bytes: []const u8,
        exclude: []const u8,
        now_ms: u64,
    ) Asked {
        return node.request(.{ .kind = .publish, .name = name, .extra = exclude, .payload = bytes }, now_ms);
    }

    pub fn send(node: *Node, name: []const u8, bytes: []const u8, now_ms: u64) Asked {
        return node.request(.{ .kind = .send, .name = name, .payload = bytes }, now_ms);
    }

    /// Subscribes or unsubscribes a channel of any node.
    pub fn change(
        node: *Node,
        kind: enum { add, discard },
        name: []const u8,
        topic: []const u8,
        now_ms: u64,
    ) Asked {
        return node.request(.{
            .kind = switch (kind) {
                .add => .add,
                .discard => .discard,
            },
            .name = name,
            .extra = topic,
        }, now_ms);
    }

    pub fn flush(node: *Node, now_ms: u64) Asked {
        return node.request(.{ .kind = .flush }, now_ms);
    }

    // ---- Topics with history

    /// Adds an entry to a topic with history. The reply has its position.
    pub fn append(node: *Node, name: []const u8, bytes: []const u8, now_ms: u64) Asked {
        return node.request(.{ .kind = .append, .name = name, .payload = bytes }, now_ms);
    }

    /// Asks for the position of a topic's newest entry.
    pub fn look(node: *Node, name: []const u8, now_ms: u64) Asked {
        return node.request(.{ .kind = .look, .name = name }, now_ms);
    }

    /// Asks which channels have subscribed to a topic of channels, or which connections read a topic with
    /// history.
    pub fn who(node: *Node, kind: enum { subscribed, reads }, name: []const u8, now_ms: u64) Asked {
        return node.request(.{ .kind = .who, .name = name, .extra = switch (kind) {
            .subscribed => "",
            .reads => "history",
        } }, now_ms);
    }

    /// Answers a question of the hub about subscribers here.
    fn callRoll(node: *Node, frame: *const Frame) !void {
        var names: [Present.bytes_max]u8 = undefined;
        var writer: std.Io.Writer = .fixed(&names);
        var present: Present = .{};
        if (frame.extra.len == 0) {
            if (node.topics.get(frame.name)) |topic| {
                for (topic.mailboxes.keys()) |id| {
                    nameTo(&writer, .{ .node = node.id, .mailbox = id }, &present);
                }
            }
        } else if (node.readers.topics.get(frame.name)) |topic| {
            for (topic.readers.items) |reader| {
                const own: Channel = .{ .node = node.id, .mailbox = reader.mailbox };
                nameTo(&writer, reader.wish.channel orelse own, &present);
            }
        }
        present.names = writer.buffered();
        var out: [Present.bytes_max]u8 = undefined;
        try node.say(&.{ .kind = .present, .node = frame.node, .payload = present.write(&out) });
    }

    fn nameTo(writer: *std.Io.Writer, channel_of: Channel, present: *Present) void {
        present.count += 1;
        if (present.count > limits.present_names_max) return;
        var buffer: [Channel.name_bytes]u8 = undefined;
        // `Present.bytes_max` has room for these names.
        writer.print("{s} ", .{channel_of.write(&buffer)}) catch unreachable;
    }

    /// Lets a connection read a topic, from the reply on, which has the position where it begins.
    pub fn follow(node: *Node, id: u64, name: []const u8, wish: readers_file.Wish, now_ms: u64) Asked {
        defer node.invariants();
        if (node.find(id) == null) return error.Gone;
        node.endReading(id, name, .ended);
        const number = try node.enter(.{ .asked_ms = now_ms, .reads = id });
        errdefer _ = node.requests.swapRemove(number);
        switch (try node.readers.add(id, name, wish, number)) {
            .follow => |of| node.say(&.{ .kind = .follow, .node = of, .name = name }) catch |err| {
                _ = node.readers.remove(id, name);
                return err;
            },
            .waits => {},
            .settled => |what| node.settled(what),
        }
        return number;
    }

    /// Notes that connections read here for channels of the node with this secret.
    pub fn speakFor(node: *Node, secret: wire.Secret) error{OutOfMemory}!void {
        if (std.mem.findScalar(wire.Secret, node.voices.items, secret) != null) return;
        try node.voices.ensureUnusedCapacity(node.gpa, 1);
        try node.say(&.{ .kind = .speak, .extra = &wire.writeSecret(secret) });
        if (node.voices.items.len == limits.voices_max) _ = node.voices.orderedRemove(0);
        node.voices.appendAssumeCapacity(secret);
    }

    /// Ends the reading of a topic at once, without waiting for the hub.
    pub fn unfollow(node: *Node, id: u64, name: []const u8) void {
        defer node.invariants();
        node.endReading(id, name, .ended);
    }

    fn endReading(node: *Node, id: u64, name: []const u8, code: Code) void {
        var buffer: [limits.name_bytes_max]u8 = undefined;
        // The name may lie in the reader, which is freed.
        const own = std.fmt.bufPrint(&buffer, "{s}", .{name}) catch return;
        const removed = node.readers.remove(id, own) orelse return;
        if (removed.unfollow) node.say(&.{ .kind = .unfollow, .name = own }) catch node.lose();
        if (removed.number != 0) node.finish(removed.number, code, null);
    }

    fn settled(node: *Node, what: readers_file.Settled) void {
        node.finish(what.number, .ok, what.position);
        const user = node.find(what.mailbox).?.user;
        // Without memory for this event, the reader is told of the next entry.
        node.events.append(node.gpa, .{ .readable = .{ .mailbox = what.mailbox, .user = user } }) catch {};
    }

    /// The next step of a connection. After `nothing` a `readable` event follows when there is something to
    /// read.
    pub fn read(node: *Node, id: u64) error{OutOfMemory}!readers_file.Read {
        const found = try node.readers.read(id);
        switch (found) {
            .nothing, .bytes => {},
            .reset => node.tally.events.resets += 1,
            .cut => {
                node.tally.events.readers_cut += 1;
                while (node.readers.any(id)) |name| node.endReading(id, name, .ended);
            },
        }
        return found;
    }

    pub fn noteRead(node: *Node, id: u64, count: usize) void {
        node.tally.events.delivered += node.readers.sent(id, count);
        node.tally.events.delivered_bytes += count;
    }

    /// Tells connections that wait for entries of the topic.
    fn wakeReaders(node: *Node, topic: anytype) !void {
        var waiting: Readers.Waiting = .{ .readers = &node.readers, .topic = topic };
        try node.events.ensureUnusedCapacity(node.gpa, topic.readers.items.len);
        while (waiting.next()) |id| {
            const user = node.find(id).?.user;
            node.events.appendAssumeCapacity(.{ .readable = .{ .mailbox = id, .user = user } });
        }
    }

    fn topicIsLive(node: *Node, frame: *const Frame) !void {
        const topic = try node.readers.goesLive(frame.name, frame.node) orelse return;
        while (Readers.nextSettled(topic)) |what| node.settled(what);
        try node.wakeReaders(topic);
    }

    fn topicIsRefused(node: *Node, frame: *const Frame) void {
        const topic = node.readers.refused(frame.name, frame.node) orelse return;
        while (Readers.nextRefused(topic)) |mailbox| {
            const is_last = topic.readers.items.len == 1;
            node.endReading(mailbox, frame.name, frame.code);
            if (is_last) return;
        }
    }

    fn entry(node: *Node, frame: *const Frame, now_ms: u64) !void {
        const at = try wire.readPlace(frame.extra);
        const time_ms = now_ms -| frame.number;
        const taken = try node.readers.entry(frame.name, frame.node, at, time_ms, frame.payload);
        const topic = taken orelse return;
        try node.wakeReaders(topic);
    }

    // ---- Requests of all kinds

    fn request(node: *Node, frame: Frame, now_ms: u64) Asked {
        defer node.invariants();
        if (node.state == .lost or node.state == .greeting_again) return error.Unavailable;
        return node.ask(frame, .{ .asked_ms = now_ms });
    }

    fn ask(node: *Node, frame: Frame, what: Request) Asked {
        if (node.waitingBytes() + frame.size() > limits.node_output_bytes_max) return error.Unavailable;
        const number = try node.enter(what);
        errdefer _ = node.requests.swapRemove(number);
        var numbered = frame;
        numbered.number = number;
        try node.say(&numbered);
        node.requests.getPtr(number).?.sent_at = node.sent_total + node.waitingBytes();
        return number;
    }

    fn enter(node: *Node, what: Request) Asked {
        if (node.requests.count() == limits.requests_max) return error.TooMany;
        while (true) {
            node.last_number +%= 1;
            if (node.last_number == 0 or node.requests.contains(node.last_number)) continue;
            try node.requests.put(node.gpa, node.last_number, what);
            return node.last_number;
        }
    }

    /// Queues a frame; with the hub lost, it is dropped.
    fn say(node: *Node, frame: *const Frame) error{OutOfMemory}!void {
        if (node.state == .lost or node.state == .greeting_again) return;
        try frame.append(node.gpa, &node.output);
    }

    fn waitingBytes(node: *const Node) usize {
        return node.output.items.len - node.sent;
    }

    /// Ends a request. Its subscription is removed unless the code is `ok`.
    fn finish(node: *Node, number: u32, code: Code, place: ?Position) void {
        const found = node.requests.fetchSwapRemove(number) orelse return;
        const what = found.value;
        if (code != .ok) if (what.subscribes) |subscribed| {
            if (node.find(subscribed.mailbox)) |mailbox| node.leave(mailbox, subscribed.topic);
        };
        if (what.origin) |origin| {
            node.answer(origin.node, origin.number, code) catch {};
        } else node.events.append(node.gpa, .{
            .reply = .{ .number = number, .code = code, .place = place },
        }) catch {};
    }

    /// Ends a question about subscribers.
    fn finishRoll(node: *Node, number: u32, bytes: []const u8) void {
        if (!node.requests.swapRemove(number)) return;
        const own = node.gpa.dupe(u8, bytes) catch null;
        node.events.append(node.gpa, .{ .reply = .{
            .number = number,
            .code = if (own == null) .unknown else .ok,
            .present = own,
        } }) catch if (own) |copy| node.gpa.free(copy);
    }

    fn forgetTold(node: *Node) void {
        if (node.told) |bytes| node.gpa.free(bytes);
        node.told = null;
    }

    // ---- The connection to the hub

    /// Greets a hub to which the node is connected now.
    pub fn connected(node: *Node) error{OutOfMemory}!void {
        defer node.invariants();
        switch (node.state) {
            .apart, .lost => {},
            .greeting, .met, .greeting_again => unreachable,
        }
        var hello: std.ArrayList(u8) = .empty;
        defer hello.deinit(node.gpa);
        const secret = wire.writeSecret(node.secret);
        const frame: Frame = .{ .kind = .hello, .number = wire.version, .extra = &secret };
        try frame.append(node.gpa, &hello);
        assert(node.sent == 0);
        try node.output.insertSlice(node.gpa, 0, hello.items);
        for (node.requests.values()) |*waiting| {
            if (waiting.sent_at != Request.never) waiting.sent_at += hello.items.len;
        }
        node.state = if (node.state == .apart) .greeting else .greeting_again;
    }

    /// Ends the connection to the hub, if there is one.
    pub fn lose(node: *Node) void {
        defer node.invariants();
        if (node.state == .lost) return;
        node.state = .lost;
        node.told_now = .{};
        node.readers.lose();
        node.reader.deinit(node.gpa);
        node.output.clearAndFree(node.gpa);
        node.sent = 0;
        var at: usize = node.requests.count();
        while (at > 0) {
            at -= 1;
            if (at >= node.requests.count()) continue;
            const found = node.requests.values()[at];
            const number = node.requests.keys()[at];
            if (found.origin != null) {
                node.finish(number, .unknown, null);
            } else if (found.subscribes == null and found.reads == null) {
                const code: Code = if (found.sent_at <= node.sent_total) .unknown else .unavailable;
                node.finish(number, code, null);
            } else node.requests.values()[at].sent_at = Request.never;
        }
    }

    pub fn isConnected(node: *const Node) bool {
        return switch (node.state) {
            .apart, .lost => false,
            .greeting, .met, .greeting_again => true,
        };
    }

    /// Whether the hub has answered the hello.
    pub fn isMet(node: *const Node) bool {
        return node.state == .met;
    }

    /// Bytes that wait to be sent to the hub.
    pub fn toSend(node: *const Node) []const u8 {
        return node.output.items[node.sent..];
    }

    pub fn noteSent(node: *Node, count: usize) void {
        defer node.invariants();
        assert(count <= node.waitingBytes());
        node.sent_total += count;
        outgoing.noteSent(node.gpa, &node.output, &node.sent, count);
    }

    /// Handles bytes of the hub. A hub that breaks the rules is lost.
    pub fn receive(node: *Node, bytes: []const u8, now_ms: u64) void {
        defer node.invariants();
        node.reader.add(node.gpa, bytes) catch return node.lose();
        while (node.isConnected()) {
            const frame = (node.reader.next() catch return node.lose()) orelse return;
            node.handle(&frame, now_ms) catch return node.lose();
        }
    }

    fn handle(node: *Node, frame: *const Frame, now_ms: u64) !void {
        if (!node.isMet()) return node.meet(frame);
        switch (frame.kind) {
            .done => if (frame.payload.len > 0) {
                node.finishRoll(frame.number, frame.payload);
            } else {
                const place = if (frame.extra.len == 0) null else try wire.readPlace(frame.extra);
                node.finish(frame.number, frame.code, place);
            },
            .publication => try node.publication(frame, now_ms),
            .mail => try node.answer(frame.node, frame.number, try node.mail(frame, now_ms)),
            .join => try node.foreignJoin(frame, now_ms),
            .leave => {
                if (node.channel(frame.name)) |id| node.unsubscribe(id, frame.extra);
                try node.answer(frame.node, frame.number, .ok);
            },
            .flushed => node.flushAll(),
            .begins => node.readers.begins(frame.name, frame.node, try wire.readPlace(frame.extra)),
            .entry => try node.entry(frame, now_ms),
            .live => try node.topicIsLive(frame),
            .roll => try node.callRoll(frame),
            .stale => node.readers.stale(frame.name, frame.node),
            .refused => node.topicIsRefused(frame),
            else => return error.Malformed,
        }
    }

    fn meet(node: *Node, frame: *const Frame) !void {
        if (frame.kind != .welcome or frame.number != wire.version) return error.Malformed;
        const again = node.state == .greeting_again;
        node.state = .met;
        if (!again) return;
        var topics = node.topics.valueIterator();
        while (topics.next()) |topic| try node.say(&.{ .kind = .subscribe, .name = topic.*.name });
        for (node.voices.items) |secret| {
            try node.say(&.{ .kind = .speak, .extra = &wire.writeSecret(secret) });
        }
        try node.sayFollows(.all);
        for (node.requests.keys(), node.requests.values()) |number, *what| {
            if (what.reads != null) continue;
            try node.say(&.{ .kind = .sync, .number = number });
            what.sent_at = node.sent_total + node.waitingBytes();
        }
    }

    fn sayFollows(node: *Node, which: @FieldType(Readers.Follows, "which")) !void {
        var extra: [wire.place_bytes]u8 = undefined;
        var follows = node.readers.follows(which);
        while (follows.next()) |wanted| {
            if (wanted.has) |place| wire.writePlace(place, &extra);
            try node.say(&.{
                .kind = .follow,
                .node = wanted.number,
                .name = wanted.name,
                .extra = if (wanted.has == null) "" else &extra,
            });
        }
    }

    fn answer(node: *Node, asker: u64, number: u32, code: Code) !void {
        try node.say(&.{ .kind = .answer, .code = code, .node = asker, .number = number });
    }

    /// The mailbox of one of this node's channels, by its name.
    fn channel(node: *Node, name: []const u8) ?u64 {
        const found = Channel.parse(name) orelse return null;
        if (found.node != node.id or node.find(found.mailbox) == null) return null;
        return found.mailbox;
    }

    /// Gives a publication to all mailboxes that have subscribed. The hub may send publications of topics
    /// that were just left.
    fn publication(node: *Node, frame: *const Frame, now_ms: u64) !void {
        const topic = node.topics.get(frame.name) orelse return;
        const message = try node.newMessage(frame.payload);
        defer node.release(message);
        for (topic.mailboxes.keys()) |id| {
            if (frame.extra.len > 0 and node.isExcluded(frame.extra, id)) continue;
            _ = node.deliver(node.find(id).?, message, now_ms);
        }
    }

    fn isExcluded(node: *const Node, names: []const u8, id: u64) bool {
        var each = std.mem.tokenizeScalar(u8, names, ' ');
        while (each.next()) |name| {
            const found = Channel.parse(name) orelse continue;
            if (found.node == node.id and found.mailbox == id) return true;
        }
        return false;
    }

    /// Gives a message to one channel: the named one, or one of a topic's subscribers.
    fn mail(node: *Node, frame: *const Frame, now_ms: u64) !Code {
        if (Channel.parse(frame.name) != null) {
            const id = node.channel(frame.name) orelse return .gone;
            const message = try node.newMessage(frame.payload);
            defer node.release(message);
            return if (node.deliver(node.find(id).?, message, now_ms)) .ok else .full;
        }
        const topic = node.topics.get(frame.name) orelse return .gone;
        const message = try node.newMessage(frame.payload);
        defer node.release(message);
        const mailboxes = topic.mailboxes.keys();
        for (mailboxes) |_| {
            topic.turn +%= 1;
            const id = mailboxes[topic.turn % mailboxes.len];
            if (node.deliver(node.find(id).?, message, now_ms)) return .ok;
        }
        return .full;
    }

    fn foreignJoin(node: *Node, frame: *const Frame, now_ms: u64) !void {
        const id = node.channel(frame.name) orelse return node.answer(frame.node, frame.number, .gone);
        if (!wire.isName(frame.extra)) return error.Malformed;
        _ = node.subscribeFor(.{ .node = frame.node, .number = frame.number }, id, frame.extra, now_ms) catch
            return node.answer(frame.node, frame.number, .too_many);
    }

    /// Ends all subscriptions. Requests to subscribe that are under way fail with `flushed`, because the hub
    /// may handle them before or after the flush.
    fn flushAll(node: *Node) void {
        var at: usize = node.requests.count();
        while (at > 0) {
            at -= 1;
            if (at < node.requests.count() and node.requests.values()[at].subscribes != null) {
                node.finish(node.requests.keys()[at], .flushed, null);
            }
        }
        for (node.mailboxes.items) |*mailbox| {
            if (mailbox.id == 0) continue;
            node.empty(mailbox);
            while (mailbox.topics.getLastOrNull()) |topic| node.leave(mailbox, topic);
        }
    }

    // ---- Time

    const sweep_ms = 5000;

    /// Ends overdue requests and messages. Must be called once a second. True: the connection must be given
    /// up, because a request of which the caller was told that it failed would still be sent.
    pub fn tick(node: *Node, now_ms: u64) bool {
        defer node.invariants();
        var lost = false;
        var at: usize = node.requests.count();
        while (at > 0) {
            at -= 1;
            if (at >= node.requests.count()) continue;
            const what = node.requests.values()[at];
            if (now_ms < what.asked_ms + limits.request_ms) continue;
            const number = node.requests.keys()[at];
            if (what.reads) |id| {
                node.giveUpReading(id, number);
                continue;
            }
            const is_sent = what.sent_at <= node.sent_total;
            if (!is_sent and what.subscribes == null) lost = true;
            node.finish(number, if (is_sent and what.subscribes == null) .unknown else .unavailable, null);
        }
        if (lost) node.lose();
        node.tellTally();
        if (node.bytes > 0 and now_ms -% node.swept_ms >= sweep_ms) {
            node.swept_ms = now_ms;
            for (node.mailboxes.items) |*mailbox| node.expire(mailbox, now_ms);
        }
        if (now_ms -% node.trimmed_ms >= sweep_ms) {
            node.trimmed_ms = now_ms;
            node.readers.tick(now_ms);
            if (node.isMet()) node.sayFollows(.refused) catch node.lose();
        }
        return lost;
    }

    /// Reports the node's counts to the hub.
    fn tellTally(node: *Node) void {
        node.readers.countNow(&node.tally.now);
        if (!node.isMet() or !node.hasTally()) return;
        var out: [Tally.bytes]u8 = undefined;
        node.tally.write(&out);
        node.say(&.{ .kind = .tally, .payload = &out }) catch return;
        node.tally.events = .{};
        node.told_now = node.tally.now;
    }

    /// Whether the node's counts have changed since the last report.
    fn hasTally(node: *const Node) bool {
        return !std.meta.eql(node.tally.events, .{}) or !std.meta.eql(node.tally.now, node.told_now);
    }

    /// Ends a reader whose topic has not begun in time.
    fn giveUpReading(node: *Node, id: u64, number: u32) void {
        const name = node.readers.waitingFor(id, number).?;
        node.endReading(id, name, .unavailable);
    }

    /// Whether `tick` may have something to do.
    pub fn hasDeadlines(node: *const Node) bool {
        return node.requests.count() > 0 or node.bytes > 0 or node.readers.hasDeadlines() or
            // The hub must learn that there are no readers any more.
            node.hasTally() or !std.meta.eql(node.told_now, .{});
    }

    /// The next event, in order; null: there is none.
    pub fn next(node: *Node) ?Event {
        node.forgetTold();
        while (node.events_taken < node.events.items.len) {
            const event = node.events.items[node.events_taken];
            node.events_taken += 1;
            switch (event) {
                .reply => |reply| {
                    node.told = reply.present;
                    return event;
                },
                .mail => |about| if (node.find(about.mailbox) != null) return event,
                .readable => |about| if (node.find(about.mailbox) != null) return event,
            }
        }
        node.events.clearRetainingCapacity();
        node.events_taken = 0;
        return null;
    }

    pub fn invariants(node: *Node) void {
        if (!std.debug.runtime_safety or node.mailboxes.items.len > checked_mailboxes_max) return;
        var memberships: usize = 0;
        var open_count: usize = 0;
        for (node.mailboxes.items) |*mailbox| {
            if (mailbox.id == 0) {
                assert(mailbox.topics.items.len == 0 and mailbox.messages.items.len == 0);
                continue;
            }
            open_count += 1;
            memberships += mailbox.topics.items.len;
            assert(mailbox.waiting().len <= node.bounds.capacity);
            assert(mailbox.topics.items.len <= limits.channel_topics_max);
            for (mailbox.topics.items) |topic| assert(topic.mailboxes.contains(mailbox.id));
        }
        assert(open_count + node.free.items.len == node.mailboxes.items.len);
        var topics = node.topics.valueIterator();
        while (topics.next()) |topic| {
            assert(topic.*.mailboxes.count() > 0);
            memberships -= topic.*.mailboxes.count();
        }
        assert(memberships == 0);
        assert(node.requests.count() <= limits.requests_max);
        for (node.requests.keys(), node.requests.values()) |number, *what| if (what.reads) |id| {
            assert(node.readers.waitingFor(id, number) != null);
        };
        assert((node.state != .lost) or node.output.items.len == 0);
    }

    /// The number of mailboxes up to which all are checked after each message; more would take most of the
    /// node's time.
    const checked_mailboxes_max = 32;
};
