//! The engine's side of one of several interpreters: the engine's end of the ring pair, the requests that the
//! interpreter was offered, and how busy it is. Does not know: which requests it gets (pool.zig).
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const Account = @import("account.zig").Account;
const Borrowed = @import("borrowed.zig").Borrowed;
const Claim = @import("claim.zig").Claim;
const Depot = @import("depot.zig").Depot;
const Delivery = @import("delivery.zig").Delivery;
const Speaker = @import("delivery.zig").Speaker;
const engine_end = @import("engine_end.zig");
const EngineEnd = engine_end.EngineEnd;
const EngineWorker = @import("engine_worker.zig").EngineWorker;
const Host = @import("host.zig").Host;
const introduction = @import("introduction.zig");
const DescriptorError = introduction.DescriptorError;
const offer_file = @import("offer.zig");
const Offer = offer_file.Offer;
const Offers = offer_file.Offers;
const Handed = offer_file.Handed;
const Takers = offer_file.Takers;
const TopicWish = @import("topic_wish.zig").TopicWish;
const Work = offer_file.Work;
const Shared = @import("shared.zig").Shared;
const types = @import("types.zig");
const unanswered = @import("unanswered.zig");
const Exchange = peregrine.Exchange;
const io = peregrine.io;
const sharing = io.sharing;

/// A seat never moves: its end and its host point to it.
pub const Seat = struct {
    gpa: std.mem.Allocator,
    worker: *EngineWorker,
    /// The seat's place among those of the pool, from 1 on.
    number: u8,
    /// The socket to the interpreter: it carries descriptors, and closes when the interpreter ends.
    socket: i32,
    /// The waker by which the engine wakes the interpreter.
    waker: sharing.Waker,
    /// The bell by which the interpreter wakes the engine.
    bell: i32,
    shared: Shared,
    takers: Takers,
    /// The interpreter's group, if it gets requests first.
    group: u8 = 0,
    /// The queue of requests that the interpreter hands over, or gives back; null: it may do neither.
    hands: ?*Handed,
    /// The delivery of topics; null: the engine delivers none.
    delivery: ?*Delivery,
    speaker: Speaker,
    /// A descriptor of the interpreter's process; null if it is the engine's own process or its parent.
    process: ?i32,
    /// Gathers the events of the interpreter's exchanges.
    host: Host,
    end: EngineEnd,
    work: Work = .{},
    /// The seat as its engine's end knows it.
    peer: engine_end.Peer = .{ .calls = &peer_calls },
    /// Offers whose requests the interpreter has taken, for the pool to use again.
    freed: Offers = .{},
    /// Offers that the interpreter may have at a time.
    ahead: u32 = 1,
    /// The number, in the order of arrival, of the last request that the interpreter was offered.
    last_offer: u64 = 0,
    /// When (ms) the interpreter last took a request, gave a command, read, was woken, or got its only offer.
    moved_at: u64,
    /// When the interpreter was last seen to take a request.
    took_at: u64 = 0,
    /// How far the interpreter had read the ring of events when it last moved.
    released: u64 = 0,
    state: State = .open,
    /// As many exchanges wait for the interpreter as its group allows (`pool.Limits.exchanges`).
    is_full: bool = false,
    /// The interpreter was told that the engine ends WebSockets.
    is_told_of_ending: bool = false,

    const State = enum {
        open,
        /// The interpreter did not take an offer in time: it gets no other one until it moves, and, if its
        /// application may block, has answered the request that it is at.
        busy,
        /// The interpreter wants no further requests.
        leaving,
        /// The interpreter was told that its last exchange has ended.
        left,
    };

    /// Gives an interpreter that has asked to join its ring pair. `socket` stays the caller's after an error.
    pub fn create(
        gpa: std.mem.Allocator,
        worker: *EngineWorker,
        number: u8,
        socket: i32,
        takers: Takers,
        hands: ?*Handed,
        depot: ?*Depot,
        delivery: ?*Delivery,
        account: *Account,
    ) !*Seat {
        const memory, const fd = try sharing.Memory.create(Shared.bytes);
        defer io.file.close(fd);
        errdefer memory.close();
        const waker, const its_waker = try sharing.Waker.create();
        defer io.file.close(its_waker);
        errdefer waker.close();
        const bell = try sharing.bell();
        errdefer io.file.close(bell);
        const seat = try gpa.create(Seat);
        errdefer gpa.destroy(seat);
        const process = sharing.processBehind(socket);
        errdefer if (process) |one| io.file.close(one);
        seat.* = .{
            .gpa = gpa,
            .worker = worker,
            .number = number,
            .socket = socket,
            .waker = waker,
            .bell = bell,
            .shared = .of(memory),
            .takers = takers,
            .hands = hands,
            .delivery = delivery,
            .speaker = .{ .account = account },
            .process = process,
            .host = try .init(gpa),
            .end = undefined,
            .moved_at = worker.clock.now,
        };
        errdefer seat.host.abandon();
        const shared = &seat.shared;
        const borrowed: *Borrowed = try .create(gpa, shared.annexes.commands, .{
            .bytes = memory.bytes,
            .close = closeMemory,
        });
        errdefer gpa.destroy(borrowed);
        shared.putLimits(&worker.config, worker.counting.wants_taken);
        shared.words.hands = @intFromBool(hands != null and takers == .first);
        seat.end = try .init(
            gpa,
            worker,
            &seat.host,
            .{ .peer = &seat.peer },
            &shared.slots,
            .init(shared.commands),
            .init(shared.events),
            shared.annexes,
            borrowed,
            &shared.words.loop_since,
        );
        errdefer seat.end.deinit();
        seat.end.depot = depot;
        seat.host.link = &seat.end.link;
        try worker.io.watchForeign(socket);
        errdefer worker.io.unwatchForeign(socket);
        try worker.io.watchBell(bell);
        errdefer worker.io.unwatchForeign(bell);
        const depot_fd = if (depot) |there| there.descriptor() else null;
        if (!introduction.welcome(socket, fd, its_waker, bell, depot_fd)) return error.Gone;
        return seat;
    }

    /// To be called when the interpreter has no exchange any more.
    pub fn destroy(seat: *Seat) void {
        assert(seat.work.load == 0 and seat.work.offered.count == 0 and seat.freed.count == 0);
        const worker = seat.worker;
        seat.shared.words.broken.store(1, .release);
        worker.io.unwatchForeign(seat.socket);
        worker.io.unwatchForeign(seat.bell);
        seat.end.deinit();
        seat.host.deinit(&worker.pool);
        io.file.close(seat.socket);
        seat.waker.close();
        io.file.close(seat.bell);
        if (seat.process) |process| io.file.close(process);
        seat.end.borrowed.leave();
        seat.gpa.destroy(seat);
    }

    fn closeMemory(bytes: []align(std.heap.page_size_min) u8) void {
        const memory: sharing.Memory = .{ .bytes = bytes };
        memory.close();
    }

    /// Wakes the interpreter.
    pub fn raise(seat: *Seat) void {
        assert(seat.moved_at <= seat.worker.clock.now);
        seat.moved_at = seat.worker.clock.now;
        seat.waker.raise();
    }

    /// The process of an interpreter that breaks the rules and has not ended. The caller has to end it.
    pub fn takeRogue(seat: *Seat) ?i32 {
        if (!seat.end.broken.load(.monotonic)) return null;
        if (sharing.hasEnded(seat.socket)) return null;
        defer seat.process = null;
        return seat.process;
    }

    // ---- Load of the interpreter

    /// The number of exchanges that wait for the interpreter, offers included. Other exchanges wait for their
    /// clients, as the interpreter says. An interpreter of requests that were handed over blocks meanwhile.
    pub fn busyWith(seat: *const Seat) u32 {
        assert(seat.work.load >= seat.work.offered.count);
        if (seat.takers == .handed) return seat.work.load;
        return seat.work.load - seat.parked();
    }

    /// Exchanges that wait for their clients. The interpreter says how many, but an offer is none of them,
    /// whatever the interpreter says.
    pub fn parked(seat: *const Seat) u32 {
        return @min(seat.shared.words.parked.load(.acquire), seat.work.load - seat.work.offered.count);
    }

    /// Whether this interpreter is to be offered a request rather than the other one, because it has less to
    /// do. Of two interpreters that are equally busy the one with the lower number gets the request, so that
    /// the other one can sleep. If clients stay with them, as with WebSockets, the two take turns, so that
    /// each gets its share; and so do all if one of them wants that (`in_turns`).
    pub fn precedes(seat: *const Seat, other: *const Seat, in_turns: bool) bool {
        const own = seat.busyWith();
        const others = other.busyWith();
        if (own != others) return own < others;
        if (!in_turns and seat.parked() + other.parked() == 0) return seat.number < other.number;
        return seat.last_offer < other.last_offer;
    }

    /// Whether this interpreter is to be offered a WebSocket rather than the other one. A WebSocket stays, so
    /// the number of exchanges counts: by the work of the moment, an interpreter that the system gives more
    /// time would end with most WebSockets.
    pub fn hasFewer(seat: *const Seat, other: *const Seat, in_turns: bool) bool {
        if (seat.work.load != other.work.load) return seat.work.load < other.work.load;
        return seat.precedes(other, in_turns);
    }

    /// Whether the interpreter has worked for `still_ms` on one event, of the engine or of its own loop. It
    /// gives room back in the ring of events when it is done with an event of the engine.
    pub fn isHeldUp(seat: *const Seat) bool {
        const events = &seat.end.events;
        if (seat.isInLoopFor(still_ms)) return true;
        return seat.isStill() and seat.released != events.at and events.isReaderAtWork();
    }

    /// Whether the interpreter says that it handles events of its own loop.
    pub fn isInLoop(seat: *const Seat) bool {
        return seat.end.loop_since.load(.acquire) != 0;
    }

    /// Whether the interpreter has been in its own loop for this time.
    fn isInLoopFor(seat: *const Seat, ms: u64) bool {
        const since = seat.end.loop_since.load(.monotonic);
        return since != 0 and seat.worker.clock.now -| since >= ms;
    }

    /// Whether the interpreter has been at one event for so long that it counts as stuck.
    pub fn isStuck(seat: *const Seat) bool {
        if (seat.isInLoopFor(stuck_ms)) return true;
        if (seat.worker.clock.now -| seat.moved_at < stuck_ms) return false;
        return seat.state == .busy or seat.isHeldUp();
    }

    const stuck_ms = peregrine.api_limits.stuck_ms;

    /// Whether the interpreter has not moved for `still_ms`.
    pub fn isStill(seat: *const Seat) bool {
        return seat.worker.clock.now -| seat.moved_at >= still_ms;
    }

    pub const still_ms = peregrine.api_limits.offer_still_ms;

    /// Whether offers of the interpreter have waited long enough for it. An interpreter that answers one
    /// request after another moves with each piece of a response, so the time of that request counts.
    pub fn letsWait(seat: *const Seat) bool {
        return if (seat.isInRequest()) seat.isInLongRequest() else seat.isStill();
    }

    /// Whether the interpreter answers one request after another, and has been at one for long.
    pub fn isInLongRequest(seat: *const Seat) bool {
        return seat.isInRequest() and seat.worker.clock.now -| seat.took_at >= still_ms;
    }

    /// Whether the interpreter answers one request after another, and is at one.
    fn isInRequest(seat: *const Seat) bool {
        return seat.takers == .handed and seat.work.load > seat.work.offered.count;
    }

    /// Whether requests of a route are handed over without having been offered to the interpreter.
    pub fn passesOn(seat: *const Seat, route: u8) bool {
        return seat.takers == .first and seat.hands != null and seat.shared.words.passesOn(route);
    }

    /// Whether the interpreter has gone, or does not keep to the rules.
    pub fn isLost(seat: *const Seat) bool {
        return seat.end.broken.load(.monotonic) or sharing.hasEnded(seat.socket);
    }

    /// The interpreter has given a command or read events, so it is not stuck.
    pub fn moved(seat: *Seat) void {
        assert(seat.moved_at <= seat.worker.clock.now);
        seat.moved_at = seat.worker.clock.now;
        seat.reopen();
    }

    /// An exchange of the interpreter has ended.
    pub fn noteReleased(seat: *Seat) void {
        if (seat.takers == .handed) seat.reopen();
    }

    fn reopen(seat: *Seat) void {
        if (seat.state == .busy and !seat.isInRequest()) seat.state = .open;
    }

    // ---- Functions for the engine's end

    const Peer = engine_end.Peer;

    const peer_calls: Peer.Calls = .{
        .raise = raisePeer,
        .hears = hears,
        .unreadMax = unreadMax,
        .noteSaid = noteSaid,
        .handOver = handOver,
        .wish = wish,
        .hold = hold,
        .takeDescriptor = takeDescriptor,
    };

    fn ofPeer(peer: *Peer) *Seat {
        return @alignCast(@fieldParentPtr("peer", peer));
    }

    fn raisePeer(peer: *Peer) void {
        ofPeer(peer).raise();
    }

    /// The seat of the interpreter that hears of an exchange; null: none does.
    pub fn of(exchange: *const Exchange) ?*Seat {
        return ofWork(Claim.of(exchange).workOf() orelse return null);
    }

    /// The seat that has these requests.
    pub fn ofWork(work: *Work) *Seat {
        return @alignCast(@fieldParentPtr("work", work));
    }

    /// Whether the exchange of a command is this interpreter's. If so, the interpreter has taken it.
    fn hears(peer: *Peer, exchange: *Exchange) bool {
        const seat = ofPeer(peer);
        const claim = Claim.of(exchange);
        if (claim.workOf() != &seat.work) return false;
        seat.moved();
        if (claim == .offered) seat.noteTaken(exchange, claim.offered);
        switch (Claim.of(exchange)) {
            .kept => |offer| {
                Claim.settle(exchange, offer);
                seat.freed.append(offer);
            },
            .waiting, .offered, .taken, .subscribed, .answered, .answered_by_engine => {},
        }
        return true;
    }

    /// The most events that the interpreter may leave unread when it gives a command.
    fn unreadMax(peer: *Peer) usize {
        const limits = peregrine.api_limits;
        const exchanges: usize = ofPeer(peer).work.load_max;
        return limits.unread_events_max + limits.unread_events_per_exchange * exchanges;
    }

    /// The interpreter hands a request over, or gives it back. False: the request is not its own, or the
    /// interpreter has given a command for it before.
    fn handOver(peer: *Peer, exchange: *Exchange) bool {
        const seat = ofPeer(peer);
        const claim = Claim.of(exchange);
        if (claim.workOf() != &seat.work) return false;
        seat.moved();
        if (claim == .offered) seat.noteTaken(exchange, claim.offered);
        const offer = switch (Claim.of(exchange)) {
            .kept => |offer| offer,
            .waiting, .offered, .taken, .subscribed, .answered, .answered_by_engine => return false,
        };
        Claim.handOver(exchange, offer);
        seat.shared.slots.end(@backingInt(exchange.ticket));
        switch (seat.takers) {
            .first => seat.hands.?.wait(offer, seat.worker.clock.now),
            .handed => {
                seat.hands.?.waitAgain(offer);
                if (seat.state == .open and seat.isInRequest()) seat.state = .busy;
            },
        }
        return true;
    }

    /// The interpreter has taken the request of an offer. After its last offer it may be offered more ahead.
    pub fn noteTaken(seat: *Seat, exchange: *Exchange, offer: *Offer) void {
        assert(offer.work == &seat.work);
        if (seat.hands != null) {
            Claim.keep(exchange, offer);
        } else {
            Claim.take(exchange, offer);
            seat.freed.append(offer);
        }
        seat.took_at = seat.worker.clock.now;
        if (seat.work.offered.count == 0) seat.ahead = @min(seat.ahead * 2, ahead_max);
        seat.invariants();
    }

    pub const ahead_max = peregrine.api_limits.offers_ahead_max;

    /// A command of the interpreter was done. A complete response ends the interpreter's work, even if some
    /// of it is still to be sent.
    fn noteSaid(peer: *Peer, exchange: *Exchange, command: *const peregrine.Command) void {
        if (!exchange.isEnded()) return noteSaidOnWay(exchange, command);
        switch (Claim.of(exchange)) {
            .taken => |work| {
                const seat = ofPeer(peer);
                assert(work == &seat.work);
                Claim.answer(exchange, work);
                seat.reopen();
            },
            .subscribed => |subscriber| {
                const work = subscriber.work.?;
                assert(subscriber.delivery.letEnd(exchange));
                Claim.answer(exchange, work);
            },
            .waiting, .offered, .kept, .answered, .answered_by_engine => {},
        }
    }

    fn noteSaidOnWay(exchange: *Exchange, command: *const peregrine.Command) void {
        switch (command.*) {
            .body, .message => switch (Claim.of(exchange)) {
                // Output upon a message about a topic belongs to the subscription.
                .subscribed => |subscriber| if (subscriber.unheard == 0) {
                    subscriber.is_mixed = true;
                },
                else => {},
            },
            else => {},
        }
    }

    /// Obeys a wish of the interpreter about topics, or tells it that the engine delivers none.
    fn wish(peer: *Peer, exchange: *Exchange, topic: *const peregrine.Command.Topic) error{Malformed}!void {
        const seat = ofPeer(peer);
        if (seat.delivery) |delivery| {
            return delivery.obey(&seat.host, &seat.speaker, exchange, topic.number, topic.wish);
        }
        // Other wishes get no answer: the answer to `heard` would be confirmed by `heard`, without end.
        if (try TopicWish.decode(topic.wish) != .follow) return;
        const result = types.NodeResult.unavailable;
        seat.host.tellTopic(exchange, topic.number, result, "") catch seat.worker.abort(exchange);
    }

    /// The interpreter leaves its response to the engine, and hears nothing more of it.
    fn hold(peer: *Peer, exchange: *Exchange, bytes: []const u8) error{Malformed}!void {
        const seat = ofPeer(peer);
        if (Claim.of(exchange) != .taken or exchange.status != 0) return error.Malformed;
        const ticket = @backingInt(exchange.ticket);
        if (seat.delivery) |delivery| {
            try delivery.hold(&seat.host, seat.speaker.account, exchange, bytes);
        } else {
            _ = Claim.release(exchange);
            unanswered.answer(seat.worker, exchange, 503, "The server delivers no topics.\n");
        }
        seat.shared.slots.end(ticket);
        seat.reopen();
    }

    pub fn invariants(seat: *const Seat) void {
        assert(seat.number > 0);
        seat.work.invariants();
        assert(seat.ahead > 0);
        // An interpreter that leaves has no offers, one that has left has no exchanges.
        if (seat.state == .leaving or seat.state == .left) assert(seat.work.offered.count == 0);
        if (seat.state == .left) assert(seat.work.load == 0);
    }

    /// The descriptor that came ahead of a command.
    fn takeDescriptor(peer: *Peer) DescriptorError!i32 {
        return introduction.receiveDescriptor(ofPeer(peer).socket);
    }

    /// Sends the file that is the body of a request, ahead of the request. False: the socket is full.
    pub fn sendBody(seat: *Seat, offer: *const Offer) bool {
        const request = offer.batch.events.items[0].request.?;
        if (request.body_fd < 0) return true;
        return sharing.send(seat.socket, introduction.file_message, &.{request.body_fd}) == .sent;
    }
};
