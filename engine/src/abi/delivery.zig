//! Topics that the engine delivers by itself: the engine is a node of the hub, and an exchange that reads
//! topics gets the entries without its interpreter. All readers of a topic share its frames; a slow reader
//! has a place in the history, no queue. A connection that only reads outlives its interpreter.
//! Does not know: how interpreters say what they wish (engine_end.zig), and which interpreters die
//! (pool.zig).
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const hub = @import("hub");
const Account = @import("account.zig").Account;
const Claim = @import("claim.zig").Claim;
const Deadlines = @import("deadlines.zig").Deadlines;
const Hold = @import("hold.zig").Hold;
const drawSecret = @import("node.zig").drawSecret;
const resultOf = @import("node.zig").resultOf;
const EngineWorker = @import("engine_worker.zig").EngineWorker;
const Host = @import("host.zig").Host;
const TopicWish = @import("topic_wish.zig").TopicWish;
const types = @import("types.zig");
const unanswered = @import("unanswered.zig");
const Work = @import("offer.zig").Work;
const Exchange = peregrine.Exchange;
const Frames = hub.frames.Frames;
const Position = hub.position.Position;
const io = peregrine.io;
const polling = io.polling;
const sharing = io.sharing;

/// An exchange that reads topics. Its claim points here.
pub const Subscriber = struct {
    /// In the list of subscribers that may have something to read.
    node: std.DoublyLinkedList.Node = .{},
    is_ready: bool = false,
    delivery: *Delivery,
    ticket: peregrine.Ticket,
    /// The number of the subscriber's mailbox at the delivery's node.
    mailbox: u64,
    /// The host of the interpreter that hears of the exchange; null: the interpreter has gone, and no other
    /// interpreter hears of it.
    host: ?*Host,
    /// The work of that interpreter; null: there is none, or the application is alone. Written by claim.zig.
    work: ?*Work,
    /// Messages to the interpreter that it has yet to confirm (`heard`). Entries wait meanwhile, so that the
    /// interpreter's output about a message goes before further entries.
    unheard: u32 = 0,
    /// Since the subscription the application has sent output of its own, or its client has sent something:
    /// without an interpreter such an exchange cannot go on.
    is_mixed: bool = false,
    held: Held = .no,
};

/// Whether the engine holds the response of a subscriber, which has no interpreter then.
const Held = union(enum) {
    no,
    /// The engine has yet to get the topics: nothing was sent.
    opening: *Response,
    /// The response waits for its first entry, or until it is due: nothing was sent.
    awaiting: *Response,
    /// The response has begun.
    streaming: *Account,

    /// The account of the group that has given the response.
    fn account(held: Held) ?*Account {
        return switch (held) {
            .no => null,
            .streaming => |its| its,
            .opening, .awaiting => |response| response.account,
        };
    }

    /// The response, while nothing of it was sent.
    fn unsent(held: Held) ?*Response {
        return switch (held) {
            .no, .streaming => null,
            .opening, .awaiting => |response| response,
        };
    }
};

/// A response that an interpreter has given to the engine.
const Response = struct {
    ticket: peregrine.Ticket,
    account: *Account,
    /// The encoded wish, into which `hold` points. Owned.
    bytes: []const u8,
    hold: Hold,
    /// The number of topics that the hub has yet to confirm.
    missing: u8 = 0,
    /// When the response is sent without an entry, if it waits for one.
    due: Deadlines.Deadline = .{ .at = 0 },

    /// `wish` was decoded before, so it is well formed.
    fn create(
        gpa: std.mem.Allocator,
        ticket: peregrine.Ticket,
        account: *Account,
        wish: []const u8,
    ) error{OutOfMemory}!*Response {
        const response = try gpa.create(Response);
        errdefer gpa.destroy(response);
        const bytes = try gpa.dupe(u8, wish);
        const hold = Hold.decode(bytes) catch unreachable; // see above
        response.* = .{ .ticket = ticket, .account = account, .bytes = bytes, .hold = hold };
        return response;
    }

    fn destroy(response: *Response, gpa: std.mem.Allocator) void {
        gpa.free(response.bytes);
        gpa.destroy(response);
    }
};

/// An interpreter that asks for topics.
pub const Speaker = struct {
    /// The account of the interpreter's group.
    account: *Account,
    /// The first node that the interpreter has named, as that of its channels; wishes for others are refused.
    node: ?hub.wire.Secret = null,

    fn mayRead(speaker: *const Speaker, wish: *const TopicWish.Follow) bool {
        if (speaker.node) |node| if (node != wish.secret) return false;
        return speaker.account.mayRead(wish.name);
    }
};

/// The engine as a node of the hub. Never moves, and is used by the engine's thread only.
pub const Delivery = struct {
    gpa: std.mem.Allocator,
    worker: *EngineWorker,
    /// The application is the only one, and its exchanges have no claims (lone.zig).
    is_lone: bool = false,
    node: hub.Node,
    /// The socket on which the hub takes new connections. Owned.
    join_socket: i32,
    /// The connection to the hub; -1: there is none.
    socket: i32 = -1,
    /// When the next attempt to reach the hub is due, and after how many milliseconds the one behind it.
    join_at: u64 = 0,
    join_ms: u64 = join_ms_min,
    ticked_at: u64 = 0,
    /// The last round has left bytes of the hub unread.
    has_more: bool = false,
    /// The wishes that the hub has yet to answer, by their numbers at the node.
    asked: std.AutoArrayHashMapUnmanaged(u32, Asked) = .empty,
    ready: std.DoublyLinkedList = .{},
    subscribers: u32 = 0,
    /// Subscribers without interpreter.
    orphans: u32 = 0,
    /// Subscribers among them with held responses, and the bytes of those responses that were not sent.
    held: u32 = 0,
    held_bytes: usize = 0,
    /// The number of groups that may have responses held: each has a share of the places.
    groups: u32 = 1,
    /// The subscribers without interpreter that a stop has ended; no further ones are kept in a stop.
    ended: enum { none, held, all } = .none,
    /// The account of a lone application.
    lone_account: Account = .{},
    lone_speaker: Speaker,
    /// The deadlines of responses that wait for an entry.
    awaiting: Deadlines = .{},
    fields: std.ArrayList(peregrine.Field) = .empty,

    const Asked = struct { ticket: peregrine.Ticket, number: u32, account: *Account };

    const join_ms_min = 20;
    const join_ms_max = 1000;
    /// Milliseconds between two looks for requests that the hub has not answered in time.
    const tick_ms = 1000;
    /// Milliseconds until bytes are offered again to a hub that has not taken them all.
    const unsent_ms = 10;
    const received_max = peregrine.api_limits.hub_bytes_per_round_max;
    const served_max = peregrine.api_limits.subscribers_per_round_max;
    /// Exchanges whose output is sent together, while their state lies in the processor's caches.
    const sent_together = 32;

    /// `join_socket` stays the caller's after an error.
    pub fn create(
        gpa: std.mem.Allocator,
        worker: *EngineWorker,
        join_socket: i32,
        config: *const hub.Config,
    ) !*Delivery {
        const delivery = try gpa.create(Delivery);
        delivery.* = .{
            .gpa = gpa,
            .worker = worker,
            .node = .init(gpa, drawSecret(delivery)),
            .join_socket = join_socket,
            .lone_speaker = .{ .account = &delivery.lone_account },
        };
        delivery.node.readers.bounds = .of(config);
        return delivery;
    }

    /// To be called when no exchange reads topics any more.
    pub fn destroy(delivery: *Delivery) void {
        assert(delivery.subscribers == 0 and delivery.orphans == 0 and delivery.ready.first == null);
        assert(delivery.held == 0 and delivery.held_bytes == 0 and delivery.awaiting.list.first == null);
        delivery.leave();
        delivery.node.deinit();
        delivery.fields.deinit(delivery.gpa);
        delivery.asked.deinit(delivery.gpa);
        io.file.close(delivery.join_socket);
        delivery.gpa.destroy(delivery);
    }

    // ---- The hub

    fn join(delivery: *Delivery) void {
        const now = delivery.worker.io.now();
        if (delivery.socket >= 0 or now < delivery.join_at) return;
        delivery.tryToJoin() catch {
            delivery.join_at = now + delivery.join_ms;
            delivery.join_ms = @min(2 * delivery.join_ms, join_ms_max);
            return;
        };
        delivery.send();
    }

    fn tryToJoin(delivery: *Delivery) !void {
        const ours, const theirs = try sharing.streams();
        defer io.file.close(theirs);
        errdefer io.file.close(ours);
        try delivery.worker.io.watchForeign(ours);
        errdefer delivery.worker.io.unwatchForeign(ours);
        if (sharing.send(delivery.join_socket, "j", &.{theirs}) != .sent) return error.NoHub;
        try delivery.node.connected();
        delivery.socket = ours;
    }

    fn leave(delivery: *Delivery) void {
        if (delivery.socket < 0) return;
        delivery.worker.io.unwatchForeign(delivery.socket);
        io.file.close(delivery.socket);
        delivery.socket = -1;
        delivery.has_more = false;
        delivery.join_at = delivery.worker.io.now() + delivery.join_ms;
        delivery.join_ms = @min(2 * delivery.join_ms, join_ms_max);
    }

    fn lose(delivery: *Delivery) void {
        delivery.node.lose();
        delivery.leave();
    }

    fn send(delivery: *Delivery) void {
        while (delivery.socket >= 0) {
            const bytes = delivery.node.toSend();
            if (bytes.len == 0) return;
            switch (polling.send(delivery.socket, bytes)) {
                .done => |count| delivery.node.noteSent(count),
                .blocked => return,
                .ended => delivery.lose(),
            }
        }
    }

    fn receive(delivery: *Delivery) void {
        var buffer: [64 << 10]u8 = undefined;
        var total: usize = 0;
        delivery.has_more = false;
        while (delivery.socket >= 0) {
            if (total >= received_max) {
                delivery.has_more = true;
                return;
            }
            switch (polling.receive(delivery.socket, &buffer)) {
                .done => |count| {
                    total += count;
                    delivery.node.receive(buffer[0..count], delivery.worker.io.now());
                    if (!delivery.node.isConnected()) delivery.lose();
                },
                .blocked => return,
                .ended => delivery.lose(),
            }
        }
        if (delivery.node.isMet()) delivery.join_ms = join_ms_min;
    }

    /// Receives what the hub has sent (`signal`: bytes may have come), keeps up the connection and sends to
    /// it.
    pub fn hear(delivery: *Delivery, signal: bool) void {
        if (delivery.socket < 0 and delivery.subscribers == 0) return;
        if (signal or delivery.has_more) delivery.receive();
        if (delivery.node.isMet()) delivery.join_ms = join_ms_min;
        const now = delivery.worker.io.now();
        if (now -| delivery.ticked_at >= tick_ms) {
            delivery.ticked_at = now;
            delivery.node.tally.now.orphans = delivery.orphans;
            if (delivery.node.tick(now) and delivery.socket >= 0) delivery.leave();
        }
        if (delivery.subscribers > 0) delivery.join();
        delivery.send();
        delivery.takeEvents();
    }

    fn takeEvents(delivery: *Delivery) void {
        while (delivery.node.next()) |event| switch (event) {
            .reply => |reply| delivery.answer(reply.number, reply.code, reply.place),
            .readable => |about| if (delivery.subscriberOf(@fromBackingInt(about.user))) |subscriber| {
                delivery.makeReady(subscriber);
            },
            .mail => {}, // only interpreters get mail
        };
    }

    fn answer(delivery: *Delivery, number: u32, code: hub.wire.Code, place: ?Position) void {
        const asked = delivery.asked.fetchSwapRemove(number) orelse return;
        asked.value.account.asked -= 1;
        var buffer: [Position.text_bytes_max]u8 = undefined;
        const text = if (place) |position| position.print(&buffer) else "";
        const subscriber = delivery.subscriberOf(asked.value.ticket) orelse return;
        if (subscriber.held == .opening) return delivery.noteTopic(subscriber, code);
        delivery.tell(subscriber, asked.value.number, resultOf(code), text);
    }

    /// The subscriber of an exchange; null: the exchange has ended, or reads nothing.
    fn subscriberOf(delivery: *Delivery, ticket: peregrine.Ticket) ?*Subscriber {
        const exchange = delivery.worker.exchanges.get(ticket) orelse return null;
        return switch (Claim.of(exchange)) {
            .subscribed => |subscriber| subscriber,
            else => null,
        };
    }

    /// The milliseconds that the engine may wait, `wanted_ms` at most; negative: without bound.
    pub fn patience(delivery: *const Delivery, wanted_ms: i32) i32 {
        if (delivery.ready.first != null or delivery.has_more) return 0;
        if (delivery.socket < 0 and delivery.subscribers == 0) return wanted_ms;
        const now = delivery.worker.io.now();
        var due: u64 = std.math.maxInt(u64);
        if (delivery.node.hasDeadlines()) due = delivery.ticked_at + tick_ms;
        if (delivery.awaiting.lookAt()) |at| due = @min(due, at);
        if (delivery.socket < 0) {
            due = @min(due, delivery.join_at);
        } else if (delivery.node.toSend().len > 0) due = @min(due, now + unsent_ms);
        const left = due -| now;
        if (wanted_ms >= 0 and left >= @as(u64, @intCast(wanted_ms))) return wanted_ms;
        return std.math.cast(i32, left) orelse wanted_ms;
    }

    // ---- Wishes of interpreters

    /// Obeys a wish of the interpreter of an exchange. `number`: the wish's, which its answer repeats.
    pub fn obey(
        delivery: *Delivery,
        host: *Host,
        speaker: *Speaker,
        exchange: *Exchange,
        number: u32,
        bytes: []const u8,
    ) error{Malformed}!void {
        const wish = try TopicWish.decode(bytes);
        switch (wish) {
            .follow => |*how| delivery.follow(host, speaker, exchange, number, how) catch |err| {
                const result: u32 = switch (err) {
                    error.Gone => types.NodeResult.gone,
                    error.Unavailable => types.NodeResult.unavailable,
                    error.TooMany, error.OutOfMemory => types.NodeResult.too_many,
                    error.Forbidden => types.NodeResult.forbidden,
                };
                // The interpreter of an exchange that reads topics confirms this answer, too: `tell` counts
                // it.
                if (Claim.of(exchange) == .subscribed)
                    delivery.tell(Claim.of(exchange).subscribed, number, result, "")
                else
                    host.tellTopic(exchange, number, result, "") catch delivery.worker.abort(exchange);
            },
            .unfollow => |name| switch (Claim.of(exchange)) {
                .subscribed => |subscriber| delivery.node.unfollow(subscriber.mailbox, name),
                else => {},
            },
            .heard => switch (Claim.of(exchange)) {
                // The answer to a wish that failed before the exchange had a subscriber was not counted.
                .subscribed => |subscriber| if (subscriber.unheard > 0) {
                    subscriber.unheard -= 1;
                    if (subscriber.unheard == 0) delivery.makeReady(subscriber);
                },
                else => {},
            },
        }
        delivery.send();
    }

    fn follow(
        delivery: *Delivery,
        host: *Host,
        speaker: *Speaker,
        exchange: *Exchange,
        number: u32,
        wish: *const TopicWish.Follow,
    ) error{ OutOfMemory, TooMany, Unavailable, Gone, Forbidden }!void {
        if (!speaker.mayRead(wish)) return error.Forbidden;
        speaker.node = wish.secret;
        if (exchange.isEnded() or exchange.status == 0) return error.Gone;
        const window_bits = if (exchange.openWebSocket()) |websocket| websocket.sentWindowBits() else null;
        if ((wish.as == .events) != (exchange.openWebSocket() == null)) return error.Gone;
        const as: hub.readers.As = switch (wish.as) {
            .text => if (window_bits == null) .text_frames else .text_deflated,
            .binary => if (window_bits == null) .binary_frames else .binary_deflated,
            .events => .events,
        };
        if (window_bits != null) delivery.node.readers.framer = .{
            .deflater = try delivery.worker.compression.sharedDeflater(),
            .deflate_bytes_min = delivery.worker.config.deflate_bytes_min,
        };
        try delivery.makeRoomToAsk(speaker.account, 1);
        try delivery.node.speakFor(wish.secret);
        const is_new = Claim.of(exchange) != .subscribed;
        const subscriber = try delivery.subscriberFor(host, exchange);
        errdefer if (is_new) {
            Claim.unsubscribe(exchange, subscriber);
            delivery.free(subscriber);
        };
        const asked = try delivery.node.follow(subscriber.mailbox, wish.name, .{
            .as = as,
            .window_bits = window_bits orelse 15,
            .since = hub.position.Since.ofReader(wish.since),
            .behind = if (wish.cuts) .cut else .skip,
            .channel = .{ .node = hub.wire.nodeOf(wish.secret), .mailbox = wish.mailbox },
        }, delivery.worker.io.now());
        delivery.noteAsked(asked, .{
            .ticket = exchange.ticket,
            .number = number,
            .account = speaker.account,
        });
        delivery.join();
    }

    /// Makes room for questions to the hub. Each group has a share of the questions that may be open.
    fn makeRoomToAsk(
        delivery: *Delivery,
        account: *const Account,
        count: u8,
    ) error{ OutOfMemory, TooMany }!void {
        const most = @max(count, hub.limits.requests_max / delivery.groups);
        if (account.asked + count > most) return error.TooMany;
        try delivery.asked.ensureUnusedCapacity(delivery.gpa, count);
    }

    fn noteAsked(delivery: *Delivery, number: u32, asked: Asked) void {
        delivery.asked.putAssumeCapacityNoClobber(number, asked);
        asked.account.asked += 1;
    }

    fn subscriberFor(
        delivery: *Delivery,
        host: *Host,
        exchange: *Exchange,
    ) error{ OutOfMemory, TooMany, Gone }!*Subscriber {
        const work: ?*Work = switch (Claim.of(exchange)) {
            .subscribed => |subscriber| return subscriber,
            .taken => |work| work,
            .answered_by_engine => if (exchange.isHeard() and delivery.is_lone) null else return error.Gone,
            else => return error.Gone,
        };
        const subscriber = try delivery.gpa.create(Subscriber);
        errdefer delivery.gpa.destroy(subscriber);
        subscriber.* = .{
            .delivery = delivery,
            .ticket = exchange.ticket,
            .mailbox = try delivery.node.open(@backingInt(exchange.ticket)),
            .host = host,
            .work = work,
        };
        if (work == null)
            Claim.subscribeLone(exchange, subscriber)
        else
            Claim.subscribe(exchange, subscriber);
        delivery.subscribers += 1;
        return subscriber;
    }

    /// Ends a subscriber, to which the claim of its exchange does not point any more.
    pub fn free(delivery: *Delivery, subscriber: *Subscriber) void {
        delivery.node.close(subscriber.mailbox);
        if (subscriber.is_ready) delivery.ready.remove(&subscriber.node);
        if (delivery.takeResponse(subscriber)) |response| response.destroy(delivery.gpa);
        if (subscriber.host == null) delivery.orphans -= 1;
        delivery.subscribers -= 1;
        delivery.gpa.destroy(subscriber);
    }

    /// Tells the interpreter, whose confirmation then comes before further entries (`unheard`). Does nothing
    /// without interpreter.
    fn tell(delivery: *Delivery, subscriber: *Subscriber, number: u32, code: u32, text: []const u8) void {
        // A subscriber never outlives its exchange.
        const exchange = delivery.worker.exchanges.get(subscriber.ticket).?;
        const host = subscriber.host orelse return;
        host.tellTopic(exchange, number, code, text) catch return delivery.worker.abort(exchange);
        subscriber.unheard += 1;
    }

    /// Called after a command about an exchange: a complete response reads no topic any more. True: it did
    /// until now.
    pub fn letEnd(delivery: *Delivery, exchange: *Exchange) bool {
        if (!exchange.isEnded()) return false;
        const subscriber = switch (Claim.of(exchange)) {
            .subscribed => |subscriber| subscriber,
            else => return false,
        };
        assert(subscriber.delivery == delivery and subscriber.host != null);
        Claim.unsubscribe(exchange, subscriber);
        delivery.free(subscriber);
        return true;
    }

    /// The interpreter of an exchange has died. True: the exchange reads on without it.
    pub fn keep(delivery: *Delivery, exchange: *Exchange) bool {
        const subscriber = switch (Claim.of(exchange)) {
            .subscribed => |subscriber| subscriber,
            else => return false,
        };
        if (subscriber.is_mixed or exchange.isEnded() or delivery.worker.stopping != .no) return false;
        // Without a topic the connection would wait for ever; a notice that the interpreter has not
        // confirmed, as of a reset, would be lost; so would the failure of a subscription later.
        if (exchange.half_closed or subscriber.unheard > 0 or delivery.asks(exchange.ticket)) return false;
        if (delivery.node.readers.any(subscriber.mailbox) == null) return false;
        if (exchange.openWebSocket()) |websocket| {
            if (!websocket.isOpen()) return false;
            // The WebSocket is read again, because its next message has to end it: see `unheard`.
            delivery.worker.setFlow(exchange, .all) catch return false;
        }
        Claim.orphan(exchange, subscriber);
        subscriber.host = null;
        delivery.orphans += 1;
        delivery.makeReady(subscriber);
        return true;
    }

    fn asks(delivery: *const Delivery, ticket: peregrine.Ticket) bool {
        for (delivery.asked.values()) |asked| if (asked.ticket == ticket) return true;
        return false;
    }

    /// The client of an exchange without interpreter has sent a message, or has closed its side of an event
    /// stream. The exchange ends, so that a client that is still there connects again, to another
    /// interpreter.
    pub fn unheard(delivery: *Delivery, exchange: *Exchange) void {
        if (Claim.of(exchange).subscribed.held.unsent() != null) return delivery.sendAsItIs(exchange);
        if (exchange.openWebSocket() == null) return delivery.worker.abort(exchange);
        delivery.worker.closeWebSocket(exchange, close_restart, "") catch {};
    }

    /// Close codes of IANA's registry (RFC 6455 section 11.7): "Service Restart" and "Try Again Later".
    const close_restart = 1012;
    const close_try_again = 1013;

    // ---- Entries

    pub fn makeReady(delivery: *Delivery, subscriber: *Subscriber) void {
        if (subscriber.is_ready) return;
        subscriber.is_ready = true;
        delivery.ready.append(&subscriber.node);
    }

    /// Sends entries to the exchanges that take some now. True: there is more to do.
    pub fn serve(delivery: *Delivery) bool {
        delivery.cutSlowest();
        if (delivery.subscribers == 0) return false;
        if (delivery.orphans > 0 and delivery.worker.stopping != .no) delivery.endOrphans();
        delivery.takeEvents();
        delivery.expire();
        for (0..served_max) |_| {
            const first = delivery.ready.popFirst() orelse return false;
            const subscriber: *Subscriber = @fieldParentPtr("node", first);
            subscriber.is_ready = false;
            delivery.serveOne(subscriber.ticket);
            if (delivery.worker.waiting.corked.items.len >= sent_together) delivery.worker.sendCorked();
        }
        return delivery.ready.first != null;
    }

    /// Cuts the slowest clients if they keep too much memory of old frames from being freed.
    fn cutSlowest(delivery: *Delivery) void {
        const lingering = &delivery.node.readers.lingering;
        if (!lingering.isDue()) return;
        lingering.choose();
        const count = delivery.worker.cutHolders(isOverdue);
        delivery.node.tally.events.readers_cut += count;
        lingering.noteCuts();
    }

    fn isOverdue(held: *const peregrine.Held) bool {
        if (held.release != &releaseFrames) return false;
        const frames: *const Frames = @ptrCast(@alignCast(held.holder));
        return frames.is_overdue;
    }

    /// Sends entries to an exchange, which each of them may end: so it is found by its ticket again.
    fn serveOne(delivery: *Delivery, ticket: peregrine.Ticket) void {
        while (true) {
            const exchange = delivery.worker.find(ticket) orelse return;
            const subscriber = switch (Claim.of(exchange)) {
                .subscribed => |subscriber| subscriber,
                else => return,
            };
            if (subscriber.unheard > 0 or !takesEntries(subscriber, exchange)) return;
            // Without memory the subscriber goes on at the next entry.
            switch (delivery.node.read(subscriber.mailbox) catch return) {
                .nothing => return,
                .bytes => |bytes| {
                    const frames = bytes.frames.retain();
                    if (subscriber.held == .awaiting) {
                        defer frames.release();
                        return delivery.sendEntry(exchange, subscriber, bytes.bytes);
                    }
                    delivery.node.noteRead(subscriber.mailbox, bytes.bytes.len);
                    delivery.sendEntries(exchange, bytes, frames) catch {
                        frames.release();
                        return delivery.worker.fail(exchange.lane, .server_error);
                    };
                },
                .reset => |reset| {
                    if (subscriber.held == .awaiting) return delivery.sendAsItIs(exchange);
                    // A response of plain bytes has no form for a notice of the reset.
                    if (reset.as == .bytes) return delivery.worker.abort(exchange);
                    delivery.sendReset(subscriber, exchange, reset.topic, reset.position);
                },
                .cut => return delivery.cut(subscriber, exchange),
            }
        }
    }

    fn takesEntries(subscriber: *const Subscriber, exchange: *const Exchange) bool {
        if (exchange.above_high or exchange.isEnded() or subscriber.held == .opening) return false;
        const websocket = exchange.openWebSocket() orelse return true;
        return websocket.isOpen();
    }

    /// After an error `frames` stays the caller's.
    fn sendEntries(
        delivery: *Delivery,
        exchange: *Exchange,
        found: hub.readers.Read.Bytes,
        frames: *Frames,
    ) !void {
        const held: peregrine.Held = .{
            .bytes = found.bytes,
            .holder = frames,
            .is_shared = true,
            .release = releaseFrames,
        };
        const worker = delivery.worker;
        switch (found.as) {
            .events, .bytes => {
                if (exchange.repeat) |repeat| repeat.postpone(worker.clock.now);
                _ = try worker.write(exchange, .{ .held = held }, .{});
            },
            .text_frames, .binary_frames, .text_deflated, .binary_deflated => {
                _ = try worker.sendFramed(exchange, held, found.count);
            },
            .text, .binary => unreachable, // `follow` and `tryToHold` ask for neither
        }
    }

    fn releaseFrames(holder: *anyopaque) void {
        const frames: *Frames = @ptrCast(@alignCast(holder));
        frames.release();
    }

    /// Tells of missing entries: the client of an event stream, with a position to come back with, or the
    /// application of a WebSocket. A WebSocket without application is closed, so that its client begins anew.
    fn sendReset(
        delivery: *Delivery,
        subscriber: *Subscriber,
        exchange: *Exchange,
        topic: []const u8,
        position: Position,
    ) void {
        var place: [Position.text_bytes_max]u8 = undefined;
        const id = position.print(&place);
        var buffer: [Position.text_bytes_max + hub.limits.name_bytes_max + 32]u8 = undefined;
        if (exchange.openWebSocket() == null) {
            // The buffer has room for the longest position and name, here and below.
            const text = std.fmt.bufPrint(
                &buffer,
                "id: {s}\nevent: reset\ndata: {s}\n\n",
                .{ id, topic },
            ) catch unreachable;
            _ = delivery.worker.write(exchange, .{ .bytes = text }, .{}) catch
                delivery.worker.fail(exchange.lane, .server_error);
            return;
        }
        if (subscriber.host == null) return delivery.unheard(exchange);
        const text = std.fmt.bufPrint(&buffer, "{s} {s}", .{ id, topic }) catch unreachable;
        delivery.tell(subscriber, 0, types.NodeRead.reset, text);
    }

    /// The client is too far behind a topic that was followed with `cut`: tells its interpreter, or ends it.
    fn cut(delivery: *Delivery, subscriber: *Subscriber, exchange: *Exchange) void {
        if (subscriber.host != null) return delivery.tell(subscriber, 0, types.NodeRead.cut, "");
        if (subscriber.held.unsent() != null) return delivery.sendAsItIs(exchange);
        if (subscriber.held == .streaming) return delivery.worker.abort(exchange);
        if (exchange.openWebSocket() != null) {
            delivery.worker.closeWebSocket(exchange, close_try_again, "too far behind a topic") catch {};
        } else delivery.end(exchange);
    }

    fn end(delivery: *Delivery, exchange: *Exchange) void {
        _ = delivery.worker.end(exchange, &.{}) catch delivery.worker.abort(exchange);
    }

    /// When the server stops: ends held responses, and event streams whose interpreter is gone and so cannot
    /// end them. The worker ends WebSockets. If another engine takes over, only held responses end, so that
    /// their clients come to that engine.
    fn endOrphans(delivery: *Delivery) void {
        const ends_all = delivery.worker.endsWebSockets();
        if (delivery.ended == .all or delivery.ended == .held and !ends_all) return;
        delivery.ended = if (ends_all) .all else .held;
        var it = delivery.worker.exchanges.iterator();
        while (it.next()) |exchange| switch (Claim.of(exchange)) {
            .subscribed => |subscriber| if (subscriber.host == null and !exchange.isEnded() and
                (subscriber.held != .no or ends_all and exchange.openWebSocket() == null))
            {
                const is_unsent = subscriber.held.unsent() != null;
                if (is_unsent) delivery.sendAsItIs(exchange) else delivery.end(exchange);
            },
            else => {},
        };
    }

    // ---- Held responses

    /// Holds a response that its interpreter leaves to the engine.
    pub fn hold(
        delivery: *Delivery,
        host: *Host,
        account: *Account,
        exchange: *Exchange,
        bytes: []const u8,
    ) error{Malformed}!void {
        const wish: Hold = try .decode(bytes);
        const start = wish.response(delivery.gpa, &delivery.fields) catch |err| switch (err) {
            error.Malformed => return error.Malformed,
            error.OutOfMemory => return delivery.refuse(exchange),
        };
        assert(exchange.isHeard() and exchange.status == 0);
        // A client that has ended its side may be gone without a sign, so its response is sent at once.
        if (delivery.worker.stopping != .no or exchange.half_closed) {
            return delivery.sendWhole(exchange, start);
        }
        if (foreignTopic(account, &wish)) |name| {
            delivery.tellForeign(account, exchange, name);
            delivery.letGo(exchange);
            const why = "The response is for a topic of others.\n";
            return unanswered.answer(delivery.worker, exchange, 500, why);
        }
        if (delivery.isFull(account, bytes.len)) {
            delivery.tellFull(account, exchange);
            return delivery.refuse(exchange);
        }
        delivery.tryToHold(host, account, exchange, bytes) catch delivery.refuse(exchange);
        delivery.send();
    }

    /// The first topic of a response that exchanges of its group may not read; null: they may read all.
    fn foreignTopic(account: *const Account, wish: *const Hold) ?[]const u8 {
        var topics = wish.topics.iterator();
        return while (topics.next()) |topic| {
            if (!account.mayRead(topic.name)) break topic.name;
        } else null;
    }

    fn tellForeign(delivery: *Delivery, account: *Account, exchange: *Exchange, topic: []const u8) void {
        const names_max = peregrine.api_limits.group_name_bytes_max + hub.limits.name_bytes_max;
        var buffer: [names_max + 64]u8 = undefined;
        const text = "the mount {s} may not have a response held for the topic {s}";
        const detail = std.fmt.bufPrint(&buffer, text, .{ account.name.slice(), topic }) catch
            unreachable; // the buffer has room for the longest names
        delivery.worker.tellRefusalBy(&account.told, exchange.lane, .foreign_topic, 500, detail);
    }

    /// Whether there is no place for a response, or none in the share of its group.
    fn isFull(delivery: *const Delivery, account: *const Account, len: usize) bool {
        const held_max = delivery.worker.config.held_max;
        assert(account.held <= delivery.held and account.held_bytes <= delivery.held_bytes);
        if (delivery.held >= held_max or len > held_bytes_max -| delivery.held_bytes) return true;
        return account.held >= @max(1, held_max / delivery.groups) or
            len > held_bytes_max / delivery.groups -| account.held_bytes;
    }

    fn tellFull(delivery: *Delivery, account: *Account, exchange: *Exchange) void {
        account.countRefusal();
        const name = account.name.slice();
        var buffer: [peregrine.api_limits.group_name_bytes_max + 64]u8 = undefined;
        const text = "too many responses of the mount {s} are held";
        const detail = if (name.len == 0)
            "too many responses are held"
        else
            std.fmt.bufPrint(&buffer, text, .{name}) catch unreachable; // the buffer has room for any name
        delivery.worker.tellRefusalBy(&account.told, exchange.lane, .held_max, 503, detail);
    }

    /// Whether the engine holds the response of an exchange.
    pub fn holds(delivery: *Delivery, exchange: *const Exchange) bool {
        const subscriber = delivery.subscriberOf(exchange.ticket) orelse return false;
        return subscriber.held != .no;
    }

    const held_bytes_max = peregrine.api_limits.held_bytes_max;

    fn tryToHold(
        delivery: *Delivery,
        host: *Host,
        account: *Account,
        exchange: *Exchange,
        bytes: []const u8,
    ) error{ OutOfMemory, TooMany, Unavailable, Gone }!void {
        const response: *Response = try .create(delivery.gpa, exchange.ticket, account, bytes);
        const subscriber = delivery.subscriberFor(host, exchange) catch |err| {
            response.destroy(delivery.gpa);
            return err;
        };
        subscriber.held = .{ .opening = response };
        if (subscriber.work != null) Claim.orphan(exchange, subscriber);
        subscriber.host = null;
        delivery.orphans += 1;
        delivery.countHeld(account, .added);
        delivery.held_bytes += bytes.len;
        account.held_bytes += bytes.len;
        delivery.worker.setIdleLimit(exchange, 0);
        const count = response.hold.topics.count;
        try delivery.makeRoomToAsk(account, count);
        var topics = response.hold.topics.iterator();
        while (topics.next()) |topic| {
            const asked = try delivery.node.follow(subscriber.mailbox, topic.name, .{
                .as = switch (response.hold.kind) {
                    .response => .binary,
                    .stream => switch (topic.as) {
                        .events => .events,
                        .bytes => .bytes,
                    },
                },
                .since = hub.position.Since.ofReader(topic.since),
                .behind = if (topic.as == .bytes) .cut else .skip,
            }, delivery.worker.io.now());
            delivery.noteAsked(asked, .{ .ticket = exchange.ticket, .number = 0, .account = account });
        }
        response.missing = count;
        delivery.join();
    }

    /// The hub has answered about a topic of a response that has not begun.
    fn noteTopic(delivery: *Delivery, subscriber: *Subscriber, code: hub.wire.Code) void {
        const exchange = delivery.worker.exchanges.get(subscriber.ticket).?; // a subscriber ends with it
        const response = subscriber.held.opening;
        if (code != .ok) return delivery.refuse(exchange);
        assert(response.missing > 0);
        response.missing -= 1;
        if (response.missing > 0) return;
        switch (response.hold.kind) {
            .stream => delivery.begin(exchange, subscriber),
            .response => {
                response.due.at = delivery.worker.clock.now + response.hold.timeout_ms;
                delivery.awaiting.add(&response.due);
                subscriber.held = .{ .awaiting = response };
                delivery.makeReady(subscriber);
            },
        }
    }

    /// Begins a held stream. Entries that are published from now on reach its client.
    fn begin(delivery: *Delivery, exchange: *Exchange, subscriber: *Subscriber) void {
        const worker = delivery.worker;
        const ticket = exchange.ticket;
        const response = delivery.takeResponse(subscriber).?;
        defer response.destroy(delivery.gpa);
        subscriber.held = .{ .streaming = response.account };
        delivery.countHeld(response.account, .added);
        const start = response.hold.response(delivery.gpa, &delivery.fields) catch
            return delivery.refuse(exchange);
        _ = worker.start(exchange, start) catch return delivery.refuse(exchange);
        const same = worker.find(ticket) orelse return;
        const wish = &response.hold;
        worker.setRepeat(same, wish.keepalive, wish.keepalive_ms) catch return worker.abort(same);
        delivery.makeReady(subscriber);
    }

    /// Ends the holding of a subscriber's response. Returns the response if nothing of it was sent; the
    /// caller owns it.
    fn takeResponse(delivery: *Delivery, subscriber: *Subscriber) ?*Response {
        const held = subscriber.held;
        subscriber.held = .no;
        delivery.countHeld(held.account() orelse return null, .removed);
        if (held == .awaiting) delivery.awaiting.remove(&held.awaiting.due);
        const response = held.unsent() orelse return null;
        delivery.held_bytes -= response.bytes.len;
        response.account.held_bytes -= response.bytes.len;
        return response;
    }

    fn countHeld(delivery: *Delivery, account: *Account, change: enum { added, removed }) void {
        for ([_]*u32{ &delivery.held, &account.held }) |count| switch (change) {
            .added => count.* += 1,
            .removed => count.* -= 1,
        };
        if (delivery.worker.counting.counters) |counters| counters.publishHeld(delivery.held);
    }

    /// Takes an exchange from its interpreter, and ends its subscription.
    fn letGo(delivery: *Delivery, exchange: *Exchange) void {
        switch (Claim.release(exchange)) {
            .subscribed => |subscriber| delivery.free(subscriber),
            .taken, .answered_by_engine => {},
            .waiting, .offered, .kept, .answered => unreachable, // such an exchange has no held response
        }
        exchange.silence();
    }

    /// Answers with 503, because the response cannot be held.
    fn refuse(delivery: *Delivery, exchange: *Exchange) void {
        delivery.letGo(exchange);
        unanswered.answer(delivery.worker, exchange, 503, "The response cannot be held open now.\n");
    }

    /// Sends a held response without an entry: its time is over, or it must not wait any longer.
    fn sendAsItIs(delivery: *Delivery, exchange: *Exchange) void {
        const response = delivery.takeResponse(Claim.of(exchange).subscribed).?;
        defer response.destroy(delivery.gpa);
        const start = response.hold.response(delivery.gpa, &delivery.fields) catch
            return delivery.refuse(exchange);
        delivery.sendWhole(exchange, start);
    }

    fn sendWhole(delivery: *Delivery, exchange: *Exchange, start: peregrine.Start) void {
        delivery.letGo(exchange);
        var whole = start;
        whole.end = true;
        whole.hold = false;
        _ = delivery.worker.start(exchange, whole) catch delivery.worker.abort(exchange);
    }

    /// Sends an entry as the content of a response that has waited for it. The entry's position is the ETag,
    /// so that the client can ask for the entries behind it.
    fn sendEntry(
        delivery: *Delivery,
        exchange: *Exchange,
        subscriber: *Subscriber,
        bytes: []const u8,
    ) void {
        var place: [Position.text_bytes_max]u8 = undefined;
        const id = delivery.node.readers.positionOf(subscriber.mailbox).print(&place);
        delivery.node.noteRead(subscriber.mailbox, bytes.len);
        var buffer: [Position.text_bytes_max + 2]u8 = undefined;
        const tag = std.fmt.bufPrint(&buffer, "\"{s}\"", .{id}) catch unreachable; // the buffer has room
        const response = delivery.takeResponse(subscriber).?;
        defer response.destroy(delivery.gpa);
        const start = response.hold.response(delivery.gpa, &delivery.fields) catch
            return delivery.refuse(exchange);
        const fields = &delivery.fields;
        fields.items.len = start.fields.len;
        defer fields.clearRetainingCapacity();
        fields.ensureUnusedCapacity(delivery.gpa, 1) catch return delivery.refuse(exchange);
        var count: usize = 0;
        for (fields.items) |field| if (!isOfContent(field.name())) {
            fields.items[count] = field;
            count += 1;
        };
        fields.shrinkRetainingCapacity(count);
        fields.appendAssumeCapacity(.init("ETag", tag));
        delivery.sendWhole(exchange, .{ .status = 200, .fields = fields.items, .body = bytes });
    }

    /// Whether a field is about the content that an entry replaces.
    fn isOfContent(name: []const u8) bool {
        for ([_][]const u8{ "content-length", "etag", "last-modified" }) |other| {
            if (std.ascii.eqlIgnoreCase(name, other)) return true;
        }
        return false;
    }

    /// Asserts what always holds between two rounds. Looks at every exchange: for tests.
    pub fn invariants(delivery: *Delivery) void {
        var subscribers: u32 = 0;
        var orphans: u32 = 0;
        var held: u32 = 0;
        var held_bytes: usize = 0;
        var ready: usize = 0;
        var it = delivery.worker.exchanges.iterator();
        while (it.next()) |exchange| switch (Claim.of(exchange)) {
            .subscribed => |subscriber| {
                assert(subscriber.ticket == exchange.ticket and subscriber.delivery == delivery);
                subscribers += 1;
                orphans += @intFromBool(subscriber.host == null);
                held += @intFromBool(subscriber.held != .no);
                ready += @intFromBool(subscriber.is_ready);
                if (subscriber.held.unsent()) |response| held_bytes += response.bytes.len;
            },
            else => {},
        };
        assert(subscribers == delivery.subscribers and orphans == delivery.orphans);
        assert(held == delivery.held and held_bytes == delivery.held_bytes);
        assert(ready == delivery.ready.len());
        if (delivery.is_lone) assert(delivery.lone_account.asked == delivery.asked.count());
        delivery.node.invariants();
    }

    /// Sends responses whose time is over. An exchange that ends may end others, which are on the same
    /// connection.
    fn expire(delivery: *Delivery) void {
        const now = delivery.worker.clock.now;
        for (0..served_max) |_| {
            const due = delivery.awaiting.next(now) orelse return;
            if (now < due.at) continue;
            const response: *Response = @fieldParentPtr("due", due);
            // The exchange exists, because its end removes the response from `awaiting`.
            delivery.sendAsItIs(delivery.worker.exchanges.get(response.ticket).?);
        }
    }
};
