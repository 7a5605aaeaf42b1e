//! Several interpreters behind one engine: which interpreter gets a request, how long a request waits for
//! one, and what becomes of it when its interpreter goes. Lives on the engine's thread. Does not know: how a
//! ring pair works.
//!
//! Requests for interpreters of one group wait in one queue, first come, first served. The interpreter that
//! has the least to do is offered the next request; some are offered ahead, so that a fast interpreter need
//! not wait for the engine. An interpreter takes an offer by compare-and-swap in its slot (slots.zig); by the
//! same means the engine takes the offer back, if the interpreter has not moved for `Seat.still_ms`. So no
//! request waits long behind another one while an interpreter is idle. The number of open exchanges does not
//! tell whether an interpreter is idle: exchanges that wait for their clients, WebSockets above all, need
//! none.
const builtin = @import("builtin");
const std = @import("std");
const assert = std.debug.assert;
const hub = @import("hub");
const peregrine = @import("peregrine");
const Account = @import("account.zig").Account;
const Claim = @import("claim.zig").Claim;
const Depot = @import("depot.zig").Depot;
const Delivery = @import("delivery.zig").Delivery;
const EngineWorker = @import("engine_worker.zig").EngineWorker;
const host_file = @import("host.zig");
const Hearer = host_file.Hearer;
const Host = host_file.Host;
const Interpreters = host_file.Interpreters;
const introduction = @import("introduction.zig");
const Offer = @import("offer.zig").Offer;
const Handed = @import("offer.zig").Handed;
const Offers = @import("offer.zig").Offers;
const ring = @import("ring.zig");
const Seat = @import("seat.zig").Seat;
const Shared = @import("shared.zig").Shared;
const Wish = @import("shared.zig").Wish;
const types = @import("types.zig");
const unanswered = @import("unanswered.zig");
const Outcasts = @import("outcasts.zig").Outcasts;
const Exchange = peregrine.Exchange;
const Head = peregrine.Head;
const io = peregrine.io;

/// How interpreters get their requests.
pub const Manner = struct {
    /// The socket through which interpreters of the first group join.
    join_socket: i32,
    limits: Limits,
    account: Account,
    /// Requests that may wait after interpreters have handed them over; 0: interpreters may hand over none.
    handed_max: u32,
};

/// Limits of one group; null: the limit of the engine holds.
pub const Limits = struct {
    /// Exchanges that may wait for one interpreter at the same time; 0: no limit. See `Seat.busyWith`.
    exchanges: u32 = 0,
    /// Interpreters that may have joined at the same time.
    seats: u32 = Pool.seats_max,
    queue_max: ?u32 = null,
    queue_ms: ?u32 = null,
    request_idle_ms: ?u32 = null,
    /// The engine delivers topics to exchanges of the group, if it delivers any.
    topics: bool = true,

    pub fn of(wanted: *const types.Interpreters) Limits {
        const own = wanted.own;
        return .{
            .exchanges = wanted.exchanges,
            .seats = if (wanted.seats == 0) Pool.seats_max else wanted.seats,
            .queue_max = if (own & types.Own.queue_max != 0) wanted.queue_max else null,
            .queue_ms = if (own & types.Own.queue_ms != 0) wanted.queue_ms else null,
            .request_idle_ms = if (own & types.Own.request_idle_ms != 0) wanted.request_idle_ms else null,
            .topics = wanted.no_topics == 0,
        };
    }
};

/// Interpreters that get the requests of some routes, and no others.
const Group = struct {
    /// The socket through which interpreters join the group. The pool closes it.
    join_socket: i32,
    limits: Limits,
    account: Account,
    /// Requests that wait for an interpreter of the group.
    queue: Offers = .{},
    /// The number of interpreters that have joined the group, and not gone.
    count: u32 = 0,
    /// The join socket may have more messages, which the next round reads.
    more_join: bool = false,

    fn isFull(group: *const Group) bool {
        return group.count >= group.limits.seats;
    }
};

/// A pool never moves.
pub const Pool = struct {
    gpa: std.mem.Allocator,
    worker: *EngineWorker,
    /// The pool as its engine's host knows it.
    interpreters: Interpreters = .{ .calls = &calls },
    groups: [groups_max]Group = undefined,
    group_count: u32,
    /// Memory with long bodies that interpreters can read; null: the engine has none.
    depot: ?*Depot = null,
    /// Requests that may wait after interpreters have handed them over.
    handed_max: u32,
    seats: [seats_max]?*Seat = @splat(null),
    /// The highest number of a seat that an interpreter ever had.
    top: u32 = 0,
    handed: Handed = .{},
    /// The number of interpreters that get requests that were handed over.
    handed_count: u32 = 0,
    arrivals: u64 = 0,
    /// An interpreter wants that all take turns (`Wish.turns`).
    in_turns: bool = false,
    /// The value of `arrivals` when requests were last offered to interpreters.
    dispatched: u64 = 0,
    /// An interpreter that has time could not be given a request, for want of room in its ring, or of memory
    /// or descriptors; or an interpreter could not be told of the end, for want of memory. No event tells the
    /// engine when these are available again.
    is_stalled: bool = false,
    /// Offers that are free, at most `spare_max`.
    spare: Offers = .{},
    /// The delivery of topics; null: the engine delivers none.
    delivery: ?*Delivery = null,
    /// Interpreters that were shut out and may still run.
    outcasts: Outcasts = .{},

    /// The most interpreters of one engine.
    pub const seats_max = peregrine.api_limits.interpreters_max;
    const groups_max = peregrine.api_limits.groups_max;
    const ahead_max = Seat.ahead_max;
    const spare_max = peregrine.api_limits.spare_offers_max;
    const offer_retry_ms = peregrine.api_limits.offer_retry_ms;

    /// `manner.join_socket` is the pool's from now on, unless there is an error.
    pub fn create(gpa: std.mem.Allocator, worker: *EngineWorker, manner: Manner) !*Pool {
        const pool = try gpa.create(Pool);
        errdefer gpa.destroy(pool);
        pool.* = .{ .gpa = gpa, .worker = worker, .group_count = 0, .handed_max = manner.handed_max };
        const first = try pool.addGroup(manner.join_socket, manner.limits, manner.account);
        assert(first == 0);
        return pool;
    }

    /// To be called before the engine's thread runs. `join_socket` is the pool's from now on, unless there is
    /// an error. Returns the group's number.
    pub fn addGroup(pool: *Pool, join_socket: i32, limits: Limits, account: Account) !u8 {
        if (pool.group_count == groups_max) return error.TooManyGroups;
        if (pool.delivery) |delivery| _ = try delivery.node.readers.shares.of(account.topicsOf());
        try pool.worker.io.watchForeign(join_socket);
        pool.groups[pool.group_count] = .{
            .join_socket = join_socket,
            .limits = limits,
            .account = account,
        };
        pool.group_count += 1;
        pool.shareOut();
        return @intCast(pool.group_count - 1);
    }

    /// Has the engine deliver topics. To be called before the engine's thread runs. `join_socket` leads to
    /// the hub, and stays the caller's after an error.
    pub fn deliverTopics(pool: *Pool, join_socket: i32, config: *const hub.Config) !void {
        assert(pool.delivery == null);
        var shares: hub.Shares = .init(pool.gpa);
        errdefer shares.deinit();
        for (pool.ownGroups()) |*group| _ = try shares.of(group.account.topicsOf());
        const delivery: *Delivery = try .create(pool.gpa, pool.worker, join_socket, config);
        delivery.node.readers.shares = shares;
        pool.delivery = delivery;
        pool.interpreters.calls = &delivering_calls;
        pool.shareOut();
    }

    /// Gives each group that may have topics a share of the places for held responses.
    fn shareOut(pool: *Pool) void {
        const delivery = pool.delivery orelse return;
        var with_topics: u32 = 0;
        for (pool.ownGroups()) |*group| with_topics += @intFromBool(group.limits.topics);
        delivery.groups = @max(1, with_topics);
    }

    /// To be called when the engine's thread has ended. No interpreter hears of the exchanges that are left.
    pub fn destroy(pool: *Pool) void {
        for (pool.ownGroups()) |*group| pool.worker.io.unwatchForeign(group.join_socket);
        var it = pool.worker.exchanges.iterator();
        while (it.next()) |exchange| pool.release(exchange);
        for (pool.places()) |place| if (place) |seat| {
            pool.collectFreed(seat);
            seat.destroy();
        };
        pool.outcasts.deinit();
        while (pool.spare.pop()) |offer| pool.free(offer);
        for (pool.ownGroups()) |*group| io.file.close(group.join_socket);
        if (pool.delivery) |delivery| delivery.destroy();
        pool.gpa.destroy(pool);
    }

    fn free(pool: *Pool, offer: *Offer) void {
        offer.batch.deinit(&pool.worker.pool);
        pool.gpa.destroy(offer);
    }

    // ---- Work of the engine's thread between two rounds

    /// Obeys commands of interpreters, admits and buries interpreters, and offers requests. True: there is
    /// more to do.
    fn turn(pool: *Pool) bool {
        var more = false;
        pool.outcasts.sweep(pool.worker);
        for (pool.places()) |place| if (place) |seat| {
            more = seat.end.drain() or more;
        };
        const foreign = pool.worker.io.takeForeign();
        for (pool.ownGroups()) |*group| {
            if (foreign or group.more_join) pool.admit(group);
            more = more or group.more_join;
        }
        if (foreign) pool.look();
        pool.in_turns = false;
        for (pool.places()) |place| if (place) |seat| {
            pool.collectFreed(seat);
            pool.grant(seat);
        };
        for (pool.places()) |place| if (place) |seat| pool.review(seat);
        pool.dispatch();
        if (pool.worker.endsWebSockets()) pool.tellOfEnding();
        pool.refuseLate();
        for (pool.places()) |place| if (place) |seat| {
            seat.end.deliver();
            // An interpreter that was shut out since is buried in the next turn.
            more = more or seat.end.broken.load(.monotonic);
        };
        if (builtin.is_test) pool.invariants();
        return more;
    }

    /// Tells interpreters whether the engine wants to know when they take requests, for counters and logs.
    pub fn noteWishes(pool: *const Pool) void {
        const wants_taken = pool.worker.counting.wants_taken;
        for (pool.places()) |place| if (place) |seat| seat.shared.noteCounting(wants_taken);
    }

    /// Whether events were gathered for an interpreter that has room for them.
    fn isWaiting(pool: *const Pool) bool {
        for (pool.places()) |place| if (place) |seat| if (seat.host.hasGathered()) return true;
        return false;
    }

    /// The numbers of interpreters that are idle, busy and stuck. Interpreters that leave do not count.
    fn countStates(pool: *const Pool) [3]u32 {
        var counts: [3]u32 = @splat(0);
        for (pool.places()) |place| if (place) |seat| {
            // Interpreters for requests that were handed over do not count: their applications block on
            // purpose.
            if (seat.takers == .handed or seat.state == .leaving or seat.state == .left) continue;
            assert(seat.number <= pool.top);
            const at: usize = if (seat.isStuck()) 2 else if (seat.busyWith() > 0) 1 else 0;
            counts[at] += 1;
        };
        return counts;
    }

    /// Publishes the states when an interpreter comes or goes: readiness must not wait for the next counting.
    fn publishStates(pool: *Pool) void {
        pool.worker.counting.stir(pool.worker.clock.now);
        if (pool.worker.counting.counters) |counters| counters.publishInterpreters(&pool.countStates());
    }

    /// The seats up to the last one that was ever taken.
    fn places(pool: *const Pool) []const ?*Seat {
        return pool.seats[0..pool.top];
    }

    /// The milliseconds that the engine may wait, `wanted_ms` at most (negative: without bound).
    fn patience(pool: *Pool, wanted_ms: i32) i32 {
        // A request has come since the last dispatch, out of bytes that its connection had sent before.
        if (pool.dispatched != pool.arrivals) return 0;
        var ms = pool.outcasts.patience(pool.worker.clock.now, wanted_ms);
        if (pool.is_stalled) ms = shorter(ms, offer_retry_ms);
        if (pool.depot) |depot| if (depot.rest(pool.worker.clock.now)) |wait_ms| {
            ms = shorter(ms, @intCast(wait_ms));
        };
        for (pool.places()) |place| if (place) |seat| {
            if (ms == 0) return 0;
            ms = seat.end.patience(ms);
            if (seat.work.offered.first()) |offer| {
                ms = shorter(ms, if (pool.takesBack(seat)) Seat.still_ms else pool.patienceFor(offer));
            }
            if (pool.queueFor(seat).count > 0 and ms != 0 and pool.hasTimeSoon(seat)) return 0;
        };
        for (0..pool.queues()) |at| {
            if (pool.queueAt(at).first()) |offer| ms = shorter(ms, pool.patienceFor(offer));
        }
        return ms;
    }

    /// Interpreters that have joined and not gone.
    pub fn count(pool: *const Pool) u32 {
        var sum = pool.handed_count;
        for (pool.groups[0..pool.group_count]) |*group| sum += group.count;
        return sum;
    }

    /// The number of requests that wait.
    pub fn waiting(pool: *const Pool) u32 {
        var sum = pool.handed.queue.count;
        for (pool.groups[0..pool.group_count]) |*group| sum += group.queue.count;
        return sum;
    }

    /// Whether offers that an interpreter lets wait are taken back at once. A request that was handed over
    /// counts among those that wait, so it is taken back even if only the same interpreter can get it.
    fn takesBack(pool: *const Pool, seat: *const Seat) bool {
        return switch (seat.takers) {
            .first => pool.groups[seat.group].count > 1,
            .handed => true,
        };
    }

    fn countFor(pool: *Pool, seat: *const Seat) *u32 {
        return switch (seat.takers) {
            .first => &pool.groups[seat.group].count,
            .handed => &pool.handed_count,
        };
    }

    fn ownGroups(pool: *Pool) []Group {
        return pool.groups[0..pool.group_count];
    }

    /// The queue of requests for an interpreter, or of an offer.
    fn queueFor(pool: *Pool, whose: anytype) *Offers {
        return switch (whose.takers) {
            .first => &pool.groups[whose.group].queue,
            .handed => &pool.handed.queue,
        };
    }

    /// The number of queues: one of each group, and one of requests that were handed over.
    fn queues(pool: *const Pool) usize {
        return pool.group_count + 1;
    }

    fn queueAt(pool: *Pool, at: usize) *Offers {
        assert(at <= pool.group_count);
        return if (at == pool.group_count) &pool.handed.queue else &pool.groups[at].queue;
    }

    /// Whether an interpreter has time already. If not, the engine is woken when the interpreter reads on,
    /// parks its exchanges, or leaves its own loop, because an interpreter does not report that it has time.
    fn hasTimeSoon(pool: *const Pool, seat: *Seat) bool {
        if (seat.end.events.awaitRelease(seat.released) catch false) return true;
        if (seat.state != .open or !seat.is_full and !seat.isInLoop()) return false;
        _ = seat.shared.words.is_short.swap(1, .acq_rel);
        if (seat.isInLoop()) return false;
        return !seat.is_full or seat.busyWith() < pool.most(seat);
    }

    /// Exchanges that may wait for an interpreter at the same time; 0: no limit.
    fn most(pool: *const Pool, seat: *const Seat) u32 {
        return switch (seat.takers) {
            .first => pool.groups[seat.group].limits.exchanges,
            .handed => 0,
        };
    }

    /// The milliseconds for which a request may still wait for an interpreter.
    fn patienceFor(pool: *const Pool, offer: *const Offer) i32 {
        const left = offer.arrived_at + pool.queueMs(offer) -| pool.worker.clock.now;
        return @intCast(@min(left, std.math.maxInt(i32)));
    }

    fn queueMs(pool: *const Pool, offer: *const Offer) u32 {
        const own = switch (offer.takers) {
            .first => pool.groups[offer.group].limits.queue_ms,
            .handed => null,
        };
        return own orelse pool.worker.config.queue_ms;
    }

    fn shorter(ms: i32, other_ms: i32) i32 {
        return if (ms < 0) other_ms else @min(ms, other_ms);
    }

    /// The engine has waited, and is awake.
    fn waited(pool: *Pool) void {
        for (pool.places()) |place| if (place) |seat| seat.end.waited();
    }

    // ---- Interpreters

    fn admit(pool: *Pool, group: *Group) void {
        group.more_join = false;
        for (0..joins_max) |_| {
            const asked = switch (introduction.next(group.join_socket)) {
                .nothing => return,
                .malformed => continue,
                .lacking => {
                    pool.tellLeftOut(error.ProcessDescriptorsExhausted);
                    continue;
                },
                .asked => |asked| asked,
            };
            pool.seatInterpreter(group, &asked) catch |err| {
                io.file.close(asked.socket);
                if (err != error.Gone) pool.tellLeftOut(err); // an interpreter that has gone has not waited
            };
        }
        group.more_join = true;
    }

    fn tellLeftOut(pool: *Pool, err: anyerror) void {
        const others = pool.worker.troubles.joins.add(pool.worker.clock.now) orelse return;
        var buffer: [256]u8 = undefined;
        const text = "An interpreter cannot join the engine: {s}{f}";
        pool.worker.say(.err, &buffer, text, .{ reasonText(err), others });
    }

    /// A reason in words for operators; a rare reason's name.
    fn reasonText(err: anyerror) []const u8 {
        return switch (err) {
            error.OutOfMemory, error.SystemResources => io.failureText(@backingInt(std.posix.E.NOMEM)),
            error.ProcessDescriptorsExhausted => io.failureText(@backingInt(std.posix.E.MFILE)),
            error.SystemDescriptorsExhausted => io.failureText(@backingInt(std.posix.E.NFILE)),
            error.TooManyInterpreters => "there are too many interpreters",
            error.FileTooLarge => std.fmt.comptimePrint("the memory that it shares with the engine counts " ++
                "as a file of {d} MiB, and files may not be so long: see ulimit -f", .{Shared.mebibytes}),
            error.VersionDiffers => "another version of the program has started the interpreter",
            else => @errorName(err),
        };
    }

    const joins_max = peregrine.api_limits.joins_per_round_max;

    fn seatInterpreter(pool: *Pool, group: *Group, asked: *const introduction.JoinRequest) !void {
        if (asked.is_other_version) return error.VersionDiffers;
        // The interpreter that this one replaces may have ended just now.
        if (pool.freePlace() == null or group.isFull()) pool.look();
        // Interpreters of one group, whatever they do, take no places of others.
        if (asked.takers == .first and group.isFull()) return error.TooManyInterpreters;
        const place = pool.freePlace() orelse return error.TooManyInterpreters;
        const index: u8 = @intCast(group - &pool.groups[0]);
        // Requests of a group stay in the group, whatever its interpreters say.
        if (index > 0 and asked.takers == .handed) return error.HandedInGroup;
        const may_hand = pool.handed_max > 0 and index == 0 and asked.takers == .first;
        const hands = if (may_hand or asked.takers == .handed) &pool.handed else null;
        const number: u8 = @intCast(place + 1);
        const seat: *Seat = try .create(
            pool.gpa,
            pool.worker,
            number,
            asked.socket,
            asked.takers,
            hands,
            pool.depot,
            if (group.limits.topics) pool.delivery else null,
            &group.account,
        );
        if (asked.takers == .first) seat.group = index;
        pool.seats[place] = seat;
        pool.top = @max(pool.top, number);
        pool.countFor(seat).* += 1;
        pool.publishStates();
    }

    fn freePlace(pool: *const Pool) ?usize {
        return for (&pool.seats, 0..) |seat, place| {
            if (seat == null) break place;
        } else null;
    }

    /// Buries interpreters that have gone, after the commands that they have given before.
    fn look(pool: *Pool) void {
        for (pool.places()) |place| if (place) |seat| if (seat.isLost()) {
            seat.end.drainAll();
            if (pool.answerFor(seat)) |failed|
                pool.buryAfter(seat, "is stuck", failed)
            else
                pool.bury(seat, "has gone");
        };
    }

    /// Grants the wishes of an interpreter (`Wish`), or buries it if it is stuck or breaks the rules.
    fn grant(pool: *Pool, seat: *Seat) void {
        if (seat.end.broken.load(.monotonic)) return pool.bury(seat, "does not keep to the rules");
        if (pool.answerFor(seat)) |failed| return pool.buryAfter(seat, "is stuck", failed);
        const wishes = seat.shared.words.wishes.load(.acquire);
        if (wishes == 0) return;
        if (wishes & Wish.turns != 0) pool.in_turns = true;
        if (wishes & Wish.cut != 0) {
            seat.end.drainAll();
            return pool.bury(seat, "has cut what it had");
        }
        if (wishes & Wish.end_websockets != 0) pool.endWebSockets(seat);
        if (wishes & Wish.leave != 0) pool.letLeave(seat);
    }

    /// Answers the request in which an interpreter is stuck, whose process is about to be killed, or whose
    /// thread is left alone. The number of requests that have failed with that, 0 or 1; null: it is not known
    /// to be stuck.
    fn answerFor(pool: *Pool, seat: *Seat) ?u32 {
        const given_up = &seat.shared.words.given_up;
        if (given_up.load(.monotonic) == 0) return null;
        seat.end.drainAll();
        const exchange = pool.worker.find(@fromBackingInt(given_up.swap(0, .acquire))) orelse return 0;
        if (Seat.of(exchange) != seat) return 0;
        pool.release(exchange);
        unanswered.fail(pool.worker, exchange, 504, "The application takes too long.\n");
        return 1;
    }

    /// Tells each interpreter once that the engine ends WebSockets: event streams, which only applications
    /// know, would go on until the time of the stop is up.
    fn tellOfEnding(pool: *Pool) void {
        for (pool.places()) |place| if (place) |seat| {
            if (seat.is_told_of_ending or seat.state == .left) continue;
            seat.host.ending() catch {
                pool.is_stalled = true;
                continue;
            };
            seat.is_told_of_ending = true;
        };
    }

    fn letLeave(pool: *Pool, seat: *Seat) void {
        if (seat.state == .left) return;
        if (seat.state != .leaving) {
            pool.recall(seat);
            seat.state = .leaving;
        }
        if (seat.work.load > 0 or seat.end.hasUndelivered()) return;
        seat.state = .left;
        seat.host.stopped(pool.worker);
    }

    fn endWebSockets(pool: *Pool, seat: *const Seat) void {
        var it = pool.worker.exchanges.iterator();
        while (it.next()) |exchange| {
            if (exchange.isEnded() or Seat.of(exchange) != seat) continue;
            const websocket = exchange.openWebSocket() orelse continue;
            if (!websocket.isOpen()) continue;
            // Without memory the pool tries again in the next round.
            pool.worker.closeWebSocket(exchange, close_restart, "") catch continue;
        }
    }

    /// A close code of IANA's registry (RFC 6455 section 11.7): "Service Restart".
    const close_restart = 1012;

    /// An interpreter has gone. Its offers go to other interpreters, the requests that it had taken fail.
    fn bury(pool: *Pool, seat: *Seat, why: []const u8) void {
        pool.buryAfter(seat, why, 0);
    }

    /// Like `bury`, after `failed_before` requests have failed with the interpreter.
    fn buryAfter(pool: *Pool, seat: *Seat, why: []const u8, failed_before: u32) void {
        const worker = pool.worker;
        pool.recall(seat);
        var failed = failed_before;
        // Requests that come meanwhile, behind those that fail, wait for other interpreters.
        var it = worker.exchanges.iterator();
        while (it.next()) |exchange| {
            if (Seat.of(exchange) != seat or pool.keeps(seat, exchange)) continue;
            failed += @intFromBool(Claim.of(exchange).isLoad());
            pool.release(exchange);
            if (!exchange.isEnded()) unanswered.fail(worker, exchange, 502, "The application has failed.\n");
        }
        assert(pool.seats[seat.number - 1] == seat and pool.countFor(seat).* > 0);
        pool.seats[seat.number - 1] = null;
        pool.countFor(seat).* -= 1;
        pool.publishStates();
        const orderly = seat.state == .left;
        pool.collectFreed(seat);
        if (seat.takeRogue()) |process| pool.outcasts.add(process, worker);
        seat.destroy();
        if (orderly) return;
        var buffer: [160]u8 = undefined;
        const text = "An interpreter {s}; requests that have failed with it: {d}";
        worker.say(.warn, &buffer, text, .{ why, failed });
    }

    /// Whether an exchange goes on without its interpreter, which has gone without having cut it.
    fn keeps(pool: *Pool, seat: *Seat, exchange: *Exchange) bool {
        const delivery = pool.delivery orelse return false;
        const wishes = seat.shared.words.wishes.load(.acquire);
        return wishes & Wish.cut == 0 and delivery.keep(exchange);
    }

    /// Ends the claim of an exchange: no interpreter gets events of it any more.
    fn release(pool: *Pool, exchange: *Exchange) void {
        const seat = Seat.of(exchange);
        defer if (seat) |its| its.noteReleased();
        const offer = switch (Claim.release(exchange)) {
            .waiting => |offer| offer: {
                pool.queueFor(offer).remove(offer);
                break :offer offer;
            },
            .offered, .kept => |offer| offer: {
                // The interpreter may have begun to read the body.
                seat.?.end.lend(&offer.batch);
                break :offer offer;
            },
            .subscribed => |subscriber| return subscriber.delivery.free(subscriber),
            .taken, .answered, .answered_by_engine => return,
        };
        assert(offer.ticket == exchange.ticket);
        pool.putAside(offer);
    }

    fn exchangeOf(pool: *Pool, offer: *const Offer) *Exchange {
        return pool.worker.exchanges.get(offer.ticket).?; // an exchange that ends releases its offer
    }

    // ---- Requests

    /// Looks which offers an interpreter has taken, and how far it has read. Takes offers back from an
    /// interpreter that has not moved for too long; the only one keeps them until a request has waited as
    /// long as it may.
    fn review(pool: *Pool, seat: *Seat) void {
        const released = seat.end.events.released() catch return seat.end.breakOff();
        if (released != seat.released) {
            seat.released = released;
            seat.moved();
        }
        while (seat.work.offered.first()) |offer| {
            const view = seat.shared.slots.look(@backingInt(offer.ticket));
            if (view != null and view.?.state == .offered) break;
            pool.taken(offer);
        }
        const first = seat.work.offered.first() orelse return;
        const is_late = pool.patienceFor(first) == 0;
        if (!is_late and (!pool.takesBack(seat) or !seat.letsWait())) return;
        pool.recall(seat);
        seat.ahead = 1;
        if (seat.state == .open) seat.state = .busy;
    }

    /// Takes back the offers that an interpreter has not taken.
    fn recall(pool: *Pool, seat: *Seat) void {
        while (seat.work.offered.last()) |offer| {
            if (!seat.shared.slots.recall(@backingInt(offer.ticket))) {
                pool.taken(offer);
                continue;
            }
            Claim.recall(offer);
            pool.queueFor(offer).insert(offer);
        }
    }

    /// An interpreter has taken the request of an offer.
    fn taken(pool: *Pool, offer: *Offer) void {
        Seat.ofWork(offer.work.?).noteTaken(pool.exchangeOf(offer), offer);
    }

    /// Keeps a free offer for the next request.
    fn putAside(pool: *Pool, offer: *Offer) void {
        assert(offer.work == null);
        offer.batch.giveBack(&pool.worker.pool);
        if (pool.spare.count == spare_max) return pool.free(offer);
        pool.spare.prepend(offer);
    }

    /// Collects the offers whose requests the interpreter has taken.
    fn collectFreed(pool: *Pool, seat: *Seat) void {
        while (seat.freed.pop()) |offer| {
            seat.end.lend(&offer.batch);
            pool.putAside(offer);
        }
    }

    fn take(pool: *Pool) error{OutOfMemory}!*Offer {
        if (pool.spare.pop()) |offer| {
            offer.batch.clear();
            return offer;
        }
        const offer = try pool.gpa.create(Offer);
        offer.* = .{ .batch = .init(pool.gpa) };
        return offer;
    }

    /// Offers requests to the interpreters that have the least to do, and WebSockets to the interpreters with
    /// the fewest exchanges.
    fn dispatch(pool: *Pool) void {
        pool.dispatched = pool.arrivals;
        var full: u64 = 0;
        var given: u64 = 0;
        for (0..pool.queues()) |at| while (pool.queueAt(at).first()) |offer| {
            const seat = pool.bestFor(offer, full) orelse break;
            if (seat.passesOn(pool.exchangeOf(offer).route)) {
                pool.queueFor(offer).remove(offer);
                seat.hands.?.wait(offer, pool.worker.clock.now);
                continue;
            }
            if (pool.give(offer, seat)) given |= bit(seat) else full |= bit(seat);
        };
        pool.is_stalled = full != 0;
        for (pool.places()) |place| if (place) |seat| if (given & bit(seat) != 0) seat.end.publish();
    }

    fn bit(seat: *const Seat) u64 {
        comptime assert(seats_max <= 64);
        return @as(u64, 1) << @intCast(seat.number - 1);
    }

    fn bestFor(pool: *Pool, offer: *const Offer, full: u64) ?*Seat {
        const stays = pool.exchangeOf(offer).websocket != null;
        var best: ?*Seat = null;
        for (pool.places()) |place| if (place) |seat| {
            if (pool.queueFor(seat) != pool.queueFor(offer)) continue;
            if (seat.state != .open or full & bit(seat) != 0) continue;
            if (!pool.hasTime(seat, if (stays) ahead_max else seat.ahead)) continue;
            if (best) |other| {
                const turns = pool.in_turns;
                if (!(if (stays) seat.hasFewer(other, turns) else seat.precedes(other, turns))) continue;
            }
            best = seat;
        };
        return best;
    }

    /// Whether an interpreter may be offered one more request, where `ahead` offers are allowed.
    fn hasTime(pool: *const Pool, seat: *Seat, ahead: u32) bool {
        const most_exchanges = pool.most(seat);
        seat.is_full = most_exchanges != 0 and seat.busyWith() >= most_exchanges;
        if (seat.is_full or seat.work.offered.count >= ahead) return false;
        // No request is to wait behind the event, or the request, that holds the interpreter up.
        return !seat.isHeldUp() and !seat.isInLongRequest();
    }

    /// Offers a request. False: there is no room for it.
    fn give(pool: *Pool, offer: *Offer, seat: *Seat) bool {
        assert(offer.work == null and seat.state == .open);
        const worker = pool.worker;
        const exchange = pool.exchangeOf(offer);
        const event = &offer.batch.events.items[0];
        const first_len = offer.sizeAt(0);
        const way = seat.end.wayOf(event, first_len);
        var size = if (way == .record) first_len else first_len - event.len + @sizeOf(u64);
        for (1..offer.batch.events.items.len) |index| size += offer.sizeAt(index);
        if (size > ring.Writer.room_max) {
            pool.release(exchange);
            unanswered.answer(pool.worker, exchange, 431, "The request head is too large.\n");
            return true;
        }
        // An event that is partly in the ring comes first.
        if (seat.end.hasUndelivered() or !(seat.end.events.hasRoomFor(size) catch false)) return false;
        // A request whose body is in a file already may need several records because of its head.
        if (way == .records and event.len > 0) {
            // The ring has room again when the interpreter has taken the requests that it was offered.
            if (seat.work.offered.count > 0) return false;
            offer.keepAsFile(event) catch return false;
        }
        seat.host.keepRoom(worker) catch return false;
        if (!seat.sendBody(offer)) return false;
        const ticket = @backingInt(exchange.ticket);
        seat.shared.slots.begin(ticket, Host.outputOf(exchange));
        for (offer.batch.events.items) |*next| {
            if (!(seat.end.put(next) catch false)) {
                seat.end.breakOff();
                break;
            }
        }
        if (seat.work.offered.count == 0) seat.moved_at = worker.clock.now;
        pool.queueFor(offer).remove(offer);
        Claim.offerTo(offer, &seat.work);
        seat.last_offer = offer.arrival;
        if (exchange.half_closed) seat.host.halfClosed(worker, exchange);
        return true;
    }

    /// Refuses requests that find no room in the queue, or that have waited long enough.
    fn refuseLate(pool: *Pool) void {
        const config = &pool.worker.config;
        for (pool.ownGroups()) |*group| {
            const most_waiting = group.limits.queue_max orelse config.queue_max;
            while (group.queue.count > most_waiting) pool.refuse(group.queue.last().?, .queue_max);
        }
        const handed = &pool.handed.queue;
        while (handed.count > pool.handed_max) pool.refuse(handed.last().?, .queue_max);
        for (0..pool.queues()) |at| while (pool.queueAt(at).first()) |offer| {
            if (pool.patienceFor(offer) > 0) break;
            pool.refuse(offer, .queue_ms);
        };
    }

    /// The time of a stop is over: refuses the requests that no interpreter has taken, and each request that
    /// comes from now on. Returns how many were waiting.
    pub fn refuseWaiting(pool: *Pool) u32 {
        pool.worker.config.queue_ms = 0;
        for (pool.ownGroups()) |*group| group.limits.queue_ms = 0;
        for (pool.places()) |place| if (place) |seat| pool.recall(seat);
        const late = pool.waiting();
        // If the worker does not stop, connections may bring further requests: the next turn refuses these.
        pool.refuseLate();
        return late;
    }

    /// No interpreter of a group comes any more: the same for its requests. Returns how many were waiting.
    pub fn refuseGroup(pool: *Pool, number: u8) u32 {
        if (number >= pool.group_count) return 0;
        const group = &pool.groups[number];
        group.limits.queue_ms = 0;
        const late = group.queue.count;
        pool.refuseLate();
        return late;
    }

    fn refuse(pool: *Pool, offer: *Offer, cause: peregrine.RefusalCause) void {
        assert(offer.work == null);
        const exchange = pool.exchangeOf(offer);
        const account = &pool.groups[offer.group].account;
        pool.release(exchange);
        account.countRefusal();
        const name = account.name.slice();
        var buffer: [peregrine.api_limits.group_name_bytes_max + 64]u8 = undefined;
        const text = "all interpreters of the mount {s} are busy";
        const detail = if (name.len == 0)
            "all of the application's interpreters are busy"
        else
            std.fmt.bufPrint(&buffer, text, .{name}) catch unreachable; // the buffer has room for any name
        pool.worker.tellRefusalBy(&account.told, exchange.lane, cause, 503, detail);
        unanswered.answer(pool.worker, exchange, 503, "All of the application's interpreters are busy.\n");
    }

    // ---- Calls of the host

    /// The calls of a pool whose engine delivers topics.
    const delivering_calls: Interpreters.Calls = blk: {
        var with = calls;
        with.turn = deliveringTurn;
        with.isWaiting = deliveringIsWaiting;
        with.patience = deliveringPatience;
        break :blk with;
    };

    fn deliveringTurn(several: *Interpreters) bool {
        const pool = of(several);
        const delivery = pool.delivery.?;
        delivery.hear(pool.worker.io.hasForeign());
        const more = pool.turn();
        return delivery.serve() or more;
    }

    fn deliveringIsWaiting(several: *Interpreters) bool {
        const pool = of(several);
        return pool.isWaiting() or pool.delivery.?.ready.first != null;
    }

    fn deliveringPatience(several: *Interpreters, wanted_ms: i32) i32 {
        const pool = of(several);
        const ms = pool.delivery.?.patience(wanted_ms);
        return if (ms == 0) 0 else pool.patience(ms);
    }

    const calls: Interpreters.Calls = .{
        .turn = turnOf,
        .request = request,
        .release = releaseOf,
        .drained = drainedOf,
        .asked = askedOf,
        .unheard = unheardOf,
        .hearerOf = hearerOf,
        .isWaiting = isWaitingOf,
        .patience = patienceOf,
        .waited = waitedOf,
        .countStates = countStatesOf,
        .groupOf = groupNameOf,
    };

    fn of(several: *Interpreters) *Pool {
        return @alignCast(@fieldParentPtr("interpreters", several));
    }

    fn turnOf(several: *Interpreters) bool {
        return of(several).turn();
    }

    fn releaseOf(several: *Interpreters, exchange: *Exchange) void {
        of(several).release(exchange);
    }

    fn isWaitingOf(several: *Interpreters) bool {
        return of(several).isWaiting();
    }

    fn patienceOf(several: *Interpreters, wanted_ms: i32) i32 {
        return of(several).patience(wanted_ms);
    }

    fn waitedOf(several: *Interpreters) void {
        of(several).waited();
    }

    fn countStatesOf(several: *Interpreters) [3]u32 {
        return of(several).countStates();
    }

    fn groupNameOf(several: *const Interpreters, exchange: *const Exchange) []const u8 {
        const pool: *const Pool = @alignCast(@fieldParentPtr("interpreters", several));
        return pool.groups[pool.groupOf(exchange)].account.name.slice();
    }

    fn hearerOf(_: *Interpreters, exchange: *const Exchange) Hearer {
        return switch (Claim.of(exchange)) {
            .answered_by_engine => .nobody,
            .waiting => |offer| .{ .waiting = &offer.batch },
            .offered, .kept => |offer| .{ .host = &Seat.ofWork(offer.work.?).host },
            .taken, .answered => |work| .{ .host = &Seat.ofWork(work).host },
            .subscribed => |subscriber| if (subscriber.work) |work|
                .{ .host = &Seat.ofWork(work).host }
            else
                .nobody,
        };
    }

    /// Output of an exchange has found room: entries of topics follow.
    fn drainedOf(exchange: *const Exchange) void {
        switch (Claim.of(exchange)) {
            .subscribed => |subscriber| subscriber.delivery.makeReady(subscriber),
            else => {},
        }
    }

    /// A client has sent something for its interpreter, which may owe an answer from now on.
    fn askedOf(exchange: *const Exchange) void {
        switch (Claim.of(exchange)) {
            .subscribed => |subscriber| subscriber.is_mixed = true,
            else => {},
        }
    }

    /// A message has come that no interpreter hears.
    fn unheardOf(exchange: *Exchange) void {
        switch (Claim.of(exchange)) {
            .subscribed => |subscriber| subscriber.delivery.unheard(exchange),
            else => {},
        }
    }

    /// A request has come: it waits until the end of the round at least.
    fn request(several: *Interpreters, exchange: *Exchange, head: *const Head) void {
        const pool = of(several);
        const worker = pool.worker;
        const offer = pool.take() catch return lackMemory(worker, exchange);
        Host.addRequest(&offer.batch, worker, exchange, head, 0, true) catch {
            pool.free(offer);
            return lackMemory(worker, exchange);
        };
        offer.ticket = exchange.ticket;
        pool.arrivals += 1;
        offer.arrival = pool.arrivals;
        offer.arrived_at = worker.clock.now;
        offer.takers = .first;
        offer.group = pool.groupOf(exchange);
        if (pool.groups[offer.group].limits.request_idle_ms) |ms| worker.limitRequest(exchange, ms);
        Claim.wait(exchange, offer);
        const queue = pool.queueFor(offer);
        assert(if (queue.last()) |last| last.arrival < offer.arrival else true);
        queue.append(offer);
    }

    fn lackMemory(worker: *EngineWorker, exchange: *Exchange) void {
        unanswered.answer(worker, exchange, 503, "Out of memory.\n");
    }

    /// The group of a request's route. A route may name a group that was never added.
    fn groupOf(pool: *const Pool, exchange: *const Exchange) u8 {
        const group = pool.worker.host.routes.groupOf(exchange.route);
        return if (group < pool.group_count) group else 0;
    }

    /// Asserts what always holds between two rounds. Looks at every exchange: for tests.
    pub fn invariants(pool: *Pool) void {
        var loads: [seats_max]u32 = @splat(0);
        var found: u32 = 0;
        var it = pool.worker.exchanges.iterator();
        while (it.next()) |exchange| {
            const claim: Claim = .of(exchange);
            if (Seat.of(exchange)) |seat| loads[seat.number - 1] += @intFromBool(claim.isLoad());
            found += @intFromBool(claim == .waiting);
        }
        for (pool.seats, loads) |place, load| if (place) |seat| {
            assert(seat.work.load == load);
            seat.work.offered.invariants();
            seat.invariants();
            seat.end.commands.invariants();
            seat.end.events.invariants();
        };
        for (0..pool.queues()) |at| pool.queueAt(at).invariants();
        if (pool.delivery) |delivery| delivery.invariants();
        assert(pool.waiting() == found and pool.spare.count <= spare_max);
    }
};
