//! Several interpreters behind one engine: which of them gets a request, how long it waits for one, and what
//! becomes of it when its interpreter goes. Lives on the engine's thread. Does not know: how a channel works.
//!
//! Requests wait in one queue, first come, first served. The interpreter that has the least to do is offered
//! the next one; some are offered ahead, so that one that is fast need not wait for the engine.
//! An interpreter takes an offer by compare-and-swap in its slot (slots.zig), and so does the engine when it
//! takes it back: after `Seat.still_ms` in which the interpreter has not moved. So no request waits long
//! behind another one while an interpreter is idle. How many exchanges an interpreter has open says nothing
//! about that: those that wait for their clients, WebSockets above all, leave it idle.
const builtin = @import("builtin");
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const abi = @import("abi.zig");
const Batch = @import("batch.zig").Batch;
const EngineWorker = abi.EngineWorker;
const Host = @import("host.zig").Host;
const introduction = @import("introduction.zig");
const Offer = @import("offer.zig").Offer;
const ring = @import("ring.zig");
const Seat = @import("seat.zig").Seat;
const Wish = @import("shared.zig").Wish;
const types = @import("types.zig");
const unanswered = @import("unanswered.zig");
const Outcasts = @import("outcasts.zig").Outcasts;
const Exchange = peregrine.Exchange;
const Head = peregrine.Head;
const io = peregrine.io;

/// How interpreters get their requests.
pub const Manner = struct {
    /// A socket at whose other end interpreters introduce themselves. The pool's own.
    join_socket: i32,
    /// Exchanges that may wait for one of them at once; 0: as many as come. See `Seat.busyWith`.
    exchanges: u32,
};

/// Never moves. Its memory is that of the engine's handle.
pub const Pool = struct {
    gpa: std.mem.Allocator,
    worker: *EngineWorker,
    /// That of the engine's owner.
    owner: *Host,
    manner: Manner,
    seats: [seats_max]?*Seat = @splat(null),
    /// The number of the last one that was ever taken.
    top: u32 = 0,
    count: u32 = 0,
    /// Requests that wait.
    queue: std.DoublyLinkedList = .{},
    waiting: u32 = 0,
    arrivals: u64 = 0,
    /// How many of them there were when interpreters were last looked for.
    dispatched: u64 = 0,
    /// Offers that are free, at most `spare_max`.
    spare: std.DoublyLinkedList = .{},
    spare_count: u32 = 0,
    /// The join socket may have more messages, which the next round reads.
    more_join: bool = false,
    /// Interpreters that were shut out and may still run.
    outcasts: Outcasts = .{},
    /// Exchanges of an interpreter that goes.
    leftover: std.ArrayList(peregrine.Ticket) = .empty,

    /// More processes than any machine has use for.
    pub const seats_max = 64;
    /// Offered to an interpreter at a time, at most: as many as it has been seen to come to in time
    /// (`Seat.ahead`). At one, a hello costs twice as much as at 64, for two switches between processes.
    const ahead_max = 64;
    const spare_max = 256;
    /// A longer body goes to the interpreter as a file.
    const body_bytes_max = 64 * 1024;

    /// `manner.join_socket` is the pool's from now on.
    pub fn create(gpa: std.mem.Allocator, worker: *EngineWorker, owner: *Host, manner: Manner) !*Pool {
        const pool = try gpa.create(Pool);
        errdefer gpa.destroy(pool);
        try worker.io.watchForeign(manner.join_socket);
        pool.* = .{ .gpa = gpa, .worker = worker, .owner = owner, .manner = manner };
        return pool;
    }

    /// When the engine's thread has ended. Exchanges that are left are nobody's.
    pub fn destroy(pool: *Pool) void {
        pool.worker.io.unwatchForeign(pool.manner.join_socket);
        var it = pool.worker.exchanges.iterator();
        while (it.next()) |exchange| pool.dismiss(exchange);
        for (pool.places()) |place| if (place) |seat| seat.destroy();
        pool.outcasts.deinit();
        while (pool.spare.popFirst()) |node| pool.free(.at(node));
        pool.leftover.deinit(pool.gpa);
        io.file.close(pool.manner.join_socket);
        pool.gpa.destroy(pool);
    }

    fn free(pool: *Pool, offer: *Offer) void {
        offer.batch.deinit(&pool.worker.pool);
        pool.gpa.destroy(offer);
    }

    // ---- What the engine's thread does between two rounds

    /// Does what interpreters have said, sees who comes and goes, and tells what is to be told. True: there
    /// is more.
    pub fn turn(pool: *Pool) bool {
        var more = false;
        const deaf = pool.lower();
        pool.outcasts.sweep(pool.worker);
        for (pool.places()) |place| if (place) |seat| {
            more = seat.end.drain() or more;
        };
        const foreign = pool.worker.io.takeForeign();
        if (foreign or pool.more_join) pool.admit();
        if (foreign or deaf) pool.look();
        more = more or pool.more_join;
        for (pool.places()) |place| if (place) |seat| pool.grant(seat);
        for (pool.places()) |place| if (place) |seat| pool.review(seat);
        pool.dispatch();
        pool.refuseLate();
        for (pool.places()) |place| if (place) |seat| {
            seat.end.deliver();
            // One that was shut out since is buried next.
            more = more or seat.end.broken.load(.monotonic);
        };
        if (builtin.is_test) pool.invariants();
        return more;
    }

    /// Wakers that interpreters have raised are to be readable when they raise them again. True: some of them
    /// have closed theirs.
    fn lower(pool: *Pool) bool {
        var deaf = false;
        var raised = pool.worker.io.takeRaised();
        while (raised != 0) : (raised &= raised - 1) {
            if (pool.seats[@ctz(raised)]) |seat| deaf = !seat.lower() or deaf;
        }
        return deaf;
    }

    /// Counters or an access log have come, or gone.
    pub fn noteWishes(pool: *const Pool) void {
        const wants_taken = pool.worker.counting.wants_taken;
        for (pool.places()) |place| if (place) |seat| seat.shared.noteCounting(wants_taken);
    }

    /// Whether an interpreter is to be told something, and has room for it.
    pub fn isWaiting(pool: *const Pool) bool {
        for (pool.places()) |place| if (place) |seat| if (seat.host.hasGathered()) return true;
        return false;
    }

    /// How many of them are idle, busy and stuck; one that leaves serves no further request.
    pub fn countStates(pool: *const Pool) [3]u32 {
        var counts: [3]u32 = @splat(0);
        for (pool.places()) |place| if (place) |seat| {
            if (seat.state == .leaving or seat.state == .left) continue;
            const at: usize = if (seat.isStuck()) 2 else if (seat.busyWith() > 0) 1 else 0;
            counts[at] += 1;
        };
        return counts;
    }

    /// Interpreters come and go without a round of counting: readiness must not wait for the next one.
    fn publishStates(pool: *Pool) void {
        pool.worker.counting.stir(pool.worker.now);
        if (pool.worker.counting.counters) |counters| counters.publishInterpreters(&pool.countStates());
    }

    /// Those behind it are empty.
    fn places(pool: *const Pool) []const ?*Seat {
        return pool.seats[0..pool.top];
    }

    /// How long the engine may wait.
    pub fn patience(pool: *Pool, wanted_ms: i32) i32 {
        // One came since, out of what a connection had sent before.
        if (pool.dispatched != pool.arrivals) return 0;
        var ms = pool.outcasts.patience(pool.worker.now, wanted_ms);
        for (pool.places()) |place| if (place) |seat| {
            if (ms == 0) return 0;
            ms = seat.end.patience(ms);
            if (seat.offered.first) |node| {
                ms = shorter(ms, if (pool.count > 1) Seat.still_ms else pool.patienceFor(.at(node)));
            }
            if (pool.waiting > 0 and ms != 0 and pool.hasTimeSoon(seat)) return 0;
        };
        return if (pool.queue.first) |node| shorter(ms, pool.patienceFor(.at(node))) else ms;
    }

    /// An interpreter says nothing when it has time again, but it reads on, and its exchanges are parked.
    /// False: the engine is woken then.
    fn hasTimeSoon(pool: *const Pool, seat: *Seat) bool {
        if (seat.end.events.awaitRelease(seat.released) catch false) return true;
        if (seat.state != .open or !seat.is_full) return false;
        _ = seat.shared.words.is_short.swap(1, .acq_rel);
        return seat.busyWith() < pool.manner.exchanges;
    }

    /// How long a request may still wait for an interpreter.
    fn patienceFor(pool: *const Pool, offer: *const Offer) i32 {
        const left = offer.arrived_at + pool.worker.config.queue_ms -| pool.worker.now;
        return @intCast(@min(left, std.math.maxInt(i32)));
    }

    fn shorter(ms: i32, other_ms: i32) i32 {
        return if (ms < 0) other_ms else @min(ms, other_ms);
    }

    /// The wait is over.
    pub fn waited(pool: *Pool) void {
        for (pool.places()) |place| if (place) |seat| seat.end.waited();
    }

    // ---- Interpreters

    fn admit(pool: *Pool) void {
        pool.more_join = false;
        for (0..joins_max) |_| {
            const asked = switch (introduction.next(pool.manner.join_socket)) {
                .nothing => return,
                .malformed => continue,
                .asked => |asked| asked,
            };
            pool.seatInterpreter(&asked) catch |err| {
                io.file.close(asked.socket);
                if (err == error.Gone) continue; // it has not waited
                const others = pool.worker.troubles.joins.add(pool.worker.now) orelse continue;
                var buffer: [160]u8 = undefined;
                const text = "An interpreter cannot join the engine: {t}{f}";
                pool.worker.say(.err, &buffer, text, .{ err, others });
            };
        }
        pool.more_join = true;
    }

    /// Messages of one round at the join socket, which an interpreter can send without end.
    const joins_max = 16;

    fn seatInterpreter(pool: *Pool, asked: *const introduction.JoinRequest) !void {
        if (asked.is_other_version) return error.VersionDiffers;
        const place = for (&pool.seats, 1..) |*place, number| {
            if (place.* == null) break .{ place, number };
        } else return error.TooManyInterpreters;
        place[0].* = try .create(pool, @intCast(place[1]), asked.socket);
        pool.top = @max(pool.top, @as(u32, @intCast(place[1])));
        pool.count += 1;
        pool.publishStates();
    }

    /// Finds those that have gone. What they said before counts.
    fn look(pool: *Pool) void {
        for (pool.places()) |place| if (place) |seat| if (seat.isLost()) {
            while (seat.end.drain()) {}
            if (pool.answerFor(seat)) |failed|
                pool.buryAfter(seat, "is stuck", failed)
            else
                pool.bury(seat, "has gone");
        };
    }

    /// Does what it wants beside commands.
    fn grant(pool: *Pool, seat: *Seat) void {
        if (seat.end.broken.load(.monotonic)) return pool.bury(seat, "does not keep to the rules");
        if (pool.answerFor(seat)) |failed| return pool.buryAfter(seat, "is stuck", failed);
        const wishes = seat.shared.words.wishes.load(.acquire);
        if (wishes == 0) return;
        if (wishes & Wish.cut != 0) {
            while (seat.end.drain()) {}
            return pool.bury(seat, "has cut what it had");
        }
        if (wishes & Wish.end_websockets != 0) pool.endWebSockets(seat);
        if (wishes & Wish.leave != 0) pool.letLeave(seat);
    }

    /// An interpreter is stuck in a request: its process is about to be killed, or its thread is left alone.
    /// So many requests have failed with that, at most one; null: it is not stuck, as far as is known.
    fn answerFor(pool: *Pool, seat: *Seat) ?u32 {
        const given_up = &seat.shared.words.given_up;
        if (given_up.load(.monotonic) == 0) return null;
        while (seat.end.drain()) {}
        const exchange = pool.worker.find(@fromBackingInt(given_up.swap(0, .acquire))) orelse return 0;
        if (exchange.seat != seat.number) return 0;
        seat.noteOver(exchange);
        pool.dismiss(exchange);
        unanswered.fail(pool.worker, exchange, 504, "The application takes too long.\n");
        return 1;
    }

    fn letLeave(pool: *Pool, seat: *Seat) void {
        if (seat.state == .left) return;
        if (seat.state != .leaving) {
            pool.recall(seat);
            seat.state = .leaving;
        }
        if (seat.load > 0 or seat.end.hasUndelivered()) return;
        seat.state = .left;
        seat.host.stopped(pool.worker);
    }

    fn endWebSockets(pool: *Pool, seat: *Seat) void {
        pool.collect(seat) catch return; // it is tried again
        for (pool.leftover.items) |ticket| {
            const exchange = pool.worker.find(ticket) orelse continue;
            const websocket = exchange.openWebSocket() orelse continue;
            if (!websocket.isOpen()) continue;
            pool.worker.closeWebSocket(exchange, close_restart, "") catch continue;
        }
    }

    /// RFC 6455 section 7.4.1 and its registry.
    const close_restart = 1012;

    fn collect(pool: *Pool, seat: *const Seat) error{OutOfMemory}!void {
        pool.leftover.clearRetainingCapacity();
        var it = pool.worker.exchanges.iterator();
        while (it.next()) |exchange| if (exchange.seat == seat.number) {
            try pool.leftover.append(pool.gpa, exchange.ticket);
        };
    }

    /// An interpreter has gone. What it was only offered goes to others, what it had taken has failed.
    fn bury(pool: *Pool, seat: *Seat, why: []const u8) void {
        pool.buryAfter(seat, why, 0);
    }

    /// The same after so many requests have failed with it.
    fn buryAfter(pool: *Pool, seat: *Seat, why: []const u8, failed_before: u32) void {
        const worker = pool.worker;
        pool.recall(seat);
        // Without memory the worst comes at once: nobody is left who would answer.
        pool.collect(seat) catch {};
        var failed = failed_before;
        for (pool.leftover.items) |ticket| {
            const exchange = worker.exchanges.get(ticket) orelse continue;
            failed += @intFromBool(exchange.at_work);
            pool.dismiss(exchange);
            if (!exchange.ended) unanswered.fail(worker, exchange, 502, "The application has failed.\n");
        }
        pool.seats[seat.number - 1] = null;
        pool.count -= 1;
        pool.publishStates();
        const orderly = seat.state == .left;
        if (seat.takeRogue()) |process| pool.outcasts.add(process, worker);
        seat.destroy();
        if (orderly) return;
        var buffer: [160]u8 = undefined;
        const text = "An interpreter {s}; requests that have failed with it: {d}";
        worker.say(.warn, &buffer, text, .{ why, failed });
    }

    /// Nobody works on an exchange any more.
    fn dismiss(pool: *Pool, exchange: *Exchange) void {
        if (Offer.of(exchange)) |offer| pool.drop(offer);
        exchange.at_work = false;
        exchange.seat = 0;
    }

    // ---- Requests

    /// Looks at what an interpreter has taken and read; takes offers back if it has been at something else
    /// for too long, a lone one until a request has waited as long as it may.
    fn review(pool: *Pool, seat: *Seat) void {
        const released = seat.end.events.released() catch return seat.end.breakOff();
        if (released != seat.released) {
            seat.released = released;
            seat.moved();
        }
        while (seat.offered.first) |node| {
            const offer: *Offer = .at(node);
            const view = seat.shared.slots.look(@backingInt(offer.ticket));
            if (view != null and view.?.state == .offered) break;
            pool.taken(offer);
        }
        const first = seat.offered.first orelse return;
        const is_late = pool.patienceFor(.at(first)) == 0;
        if (!is_late and (pool.count == 1 or !seat.isStill())) return;
        pool.recall(seat);
        seat.ahead = 1;
        if (seat.state == .open) seat.state = .busy;
    }

    /// Takes back what an interpreter has not taken.
    fn recall(pool: *Pool, seat: *Seat) void {
        while (seat.offered.last) |node| {
            const offer: *Offer = .at(node);
            if (!seat.shared.slots.recall(@backingInt(offer.ticket))) {
                pool.taken(offer);
                continue;
            }
            seat.offered.remove(node);
            seat.offers -= 1;
            offer.seat = null;
            if (pool.worker.exchanges.get(offer.ticket)) |exchange| {
                seat.noteOver(exchange);
                exchange.seat = 0;
            }
            pool.enqueue(offer);
        }
    }

    /// In the order of arrival. What comes back is older than most.
    fn enqueue(pool: *Pool, offer: *Offer) void {
        pool.waiting += 1;
        var next = pool.queue.first;
        while (next) |node| : (next = node.next) if (Offer.at(node).arrival > offer.arrival) {
            return pool.queue.insertBefore(node, &offer.node);
        };
        pool.queue.append(&offer.node);
    }

    /// An interpreter works on it: it is nobody else's any more.
    pub fn taken(pool: *Pool, offer: *Offer) void {
        if (pool.worker.exchanges.get(offer.ticket)) |exchange| exchange.user = null;
        const seat = offer.seat.?;
        pool.putAside(offer);
        if (seat.offered.first == null) seat.ahead = @min(seat.ahead * 2, ahead_max);
    }

    /// The exchange of an offer ends.
    fn drop(pool: *Pool, offer: *Offer) void {
        const exchange = pool.worker.exchanges.get(offer.ticket).?;
        exchange.user = null;
        pool.putAside(offer);
    }

    fn putAside(pool: *Pool, offer: *Offer) void {
        if (offer.seat) |seat| {
            seat.offered.remove(&offer.node);
            seat.offers -= 1;
        } else {
            pool.queue.remove(&offer.node);
            pool.waiting -= 1;
        }
        offer.seat = null;
        offer.batch.giveBack(&pool.worker.pool);
        if (pool.spare_count == spare_max) return pool.free(offer);
        pool.spare.prepend(&offer.node);
        pool.spare_count += 1;
    }

    fn take(pool: *Pool) error{OutOfMemory}!*Offer {
        if (pool.spare.popFirst()) |node| {
            pool.spare_count -= 1;
            const offer: *Offer = .at(node);
            offer.batch.clear();
            return offer;
        }
        const offer = try pool.gpa.create(Offer);
        offer.* = .{ .batch = .init(pool.gpa) };
        return offer;
    }

    /// Offers what waits to whoever has the least to do, and WebSockets to whoever has the fewest exchanges.
    fn dispatch(pool: *Pool) void {
        pool.dispatched = pool.arrivals;
        var full: u64 = 0;
        var given: u64 = 0;
        while (pool.queue.first) |node| {
            const offer: *Offer = .at(node);
            const seat = pool.bestFor(offer, full) orelse break;
            if (pool.give(offer, seat)) given |= bit(seat) else full |= bit(seat);
        }
        for (pool.places()) |place| if (place) |seat| if (given & bit(seat) != 0) seat.end.publish();
    }

    fn bit(seat: *const Seat) u64 {
        return @as(u64, 1) << @intCast(seat.number - 1);
    }

    fn bestFor(pool: *Pool, offer: *const Offer, full: u64) ?*Seat {
        const stays = pool.worker.exchanges.get(offer.ticket).?.websocket != null;
        var best: ?*Seat = null;
        for (pool.places()) |place| if (place) |seat| {
            if (seat.state != .open or full & bit(seat) != 0) continue;
            if (!pool.hasTime(seat, if (stays) ahead_max else seat.ahead)) continue;
            if (best) |other| if (!(if (stays) seat.hasFewer(other) else seat.precedes(other))) continue;
            best = seat;
        };
        return best;
    }

    /// Whether it may be offered one more request, where so many may be ahead.
    fn hasTime(pool: *const Pool, seat: *Seat, ahead: u32) bool {
        seat.is_full = pool.manner.exchanges != 0 and seat.busyWith() >= pool.manner.exchanges;
        // Nothing is to wait behind what holds it up.
        return !seat.is_full and seat.offers < ahead and !seat.isHeldUp();
    }

    /// Offers a request. False: there is no room for it.
    fn give(pool: *Pool, offer: *Offer, seat: *Seat) bool {
        const worker = pool.worker;
        const exchange = worker.exchanges.get(offer.ticket).?;
        const size = offer.size();
        if (size > ring.Writer.room_max) {
            pool.drop(offer);
            unanswered.answer(pool.worker, exchange, 431, "The request head is too large.\n");
            return true;
        }
        // What is half delivered comes first.
        if (seat.end.hasUndelivered() or !(seat.end.events.hasRoomFor(size) catch false)) return false;
        seat.host.keepRoom(worker) catch return false;
        if (!seat.sendBody(offer)) return false;
        const ticket = @backingInt(exchange.ticket);
        seat.shared.slots.begin(ticket, Host.outputOf(exchange));
        for (offer.batch.events.items) |*event| {
            if (!(seat.end.put(event) catch false)) {
                seat.end.breakOff();
                break;
            }
        }
        if (seat.offers == 0) seat.moved_at = worker.now;
        pool.queue.remove(&offer.node);
        pool.waiting -= 1;
        offer.seat = seat;
        seat.offered.append(&offer.node);
        seat.offers += 1;
        seat.last_offer = offer.arrival;
        exchange.seat = seat.number;
        exchange.at_work = true;
        seat.load += 1;
        if (exchange.half_closed) seat.host.halfClosed(worker, exchange);
        return true;
    }

    /// Those for whom there is no room, and who have waited long enough.
    fn refuseLate(pool: *Pool) void {
        const config = &pool.worker.config;
        while (pool.waiting > config.queue_max) pool.refuse(.at(pool.queue.last.?), .queue_max);
        while (pool.queue.first) |node| {
            const offer: *Offer = .at(node);
            if (pool.patienceFor(offer) > 0) return;
            pool.refuse(offer, .queue_ms);
        }
    }

    fn refuse(pool: *Pool, offer: *Offer, cause: peregrine.RefusalCause) void {
        const exchange = pool.worker.exchanges.get(offer.ticket).?;
        pool.drop(offer);
        const detail = "all of the application's interpreters are busy";
        pool.worker.tellRefusal(exchange.lane, cause, 503, detail);
        unanswered.answer(pool.worker, exchange, 503, "All of the application's interpreters are busy.\n");
    }

    // ---- What the worker tells its host

    /// A request has come: it waits until the end of the round at least.
    pub fn request(pool: *Pool, exchange: *Exchange, head: *const Head) void {
        pool.note(exchange, head) catch {
            exchange.user = null;
            unanswered.answer(pool.worker, exchange, 503, "Out of memory.\n");
        };
    }

    fn note(pool: *Pool, exchange: *Exchange, head: *const Head) error{OutOfMemory}!void {
        const worker = pool.worker;
        const offer = try pool.take();
        errdefer pool.free(offer);
        offer.ticket = exchange.ticket;
        const local = worker.localText(exchange.lane);
        const event = try Host.addRequest(&offer.batch, worker, exchange, head, local, 0);
        try Host.addFacts(&offer.batch, exchange, event);
        if (event.len > body_bytes_max) try offer.keepAsFile(event);
        pool.arrivals += 1;
        offer.arrival = pool.arrivals;
        offer.arrived_at = worker.now;
        exchange.user = offer;
        pool.waiting += 1;
        pool.queue.append(&offer.node);
    }

    /// Who is to be told of an exchange; null: nobody.
    pub fn hostOf(pool: *Pool, exchange: *const Exchange) ?*Host {
        if (exchange.seat == 0) return null;
        return &pool.seats[exchange.seat - 1].?.host;
    }

    /// What is to be told of an exchange that waits goes with its request; null: it does not wait.
    pub fn batchOf(_: *Pool, exchange: *const Exchange) ?*Batch {
        const offer = Offer.of(exchange) orelse return null;
        return if (offer.seat == null) &offer.batch else null;
    }

    /// An exchange ends that nobody has taken.
    pub fn ended(pool: *Pool, exchange: *Exchange) void {
        if (Offer.of(exchange)) |offer| pool.drop(offer);
    }

    /// Asserts what always holds between two rounds.
    pub fn invariants(pool: *Pool) void {
        var loads: [seats_max + 1]u32 = @splat(0);
        var offers: u32 = 0;
        var it = pool.worker.exchanges.iterator();
        while (it.next()) |exchange| {
            loads[exchange.seat] += @intFromBool(exchange.at_work);
            offers += @intFromBool(exchange.user != null);
        }
        assert(loads[0] == 0);
        for (pool.seats, 1..) |place, number| if (place) |seat| {
            assert(seat.load == loads[number]);
            assert(seat.offers == seat.offered.len() and seat.offers <= seat.load);
            offers -= seat.offers;
            seat.end.commands.invariants();
            seat.end.events.invariants();
        };
        assert(offers == pool.waiting and pool.queue.len() == pool.waiting);
    }
};
