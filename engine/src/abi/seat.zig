//! The engine's side of one of several interpreters: its end of the channel, the requests that were offered
//! to it, and how much it is at. Does not know: which requests it gets (pool.zig).
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const EngineEnd = @import("engine_end.zig").EngineEnd;
const Host = @import("host.zig").Host;
const introduction = @import("introduction.zig");
const Offer = @import("offer.zig").Offer;
const Pool = @import("pool.zig").Pool;
const Shared = @import("shared.zig").Shared;
const Exchange = peregrine.Exchange;
const io = peregrine.io;
const sharing = io.sharing;

/// Never moves: its end and its host point to it.
pub const Seat = struct {
    pool: *Pool,
    /// In `Exchange.seat` of what it works on: from 1 on.
    number: u8,
    /// Where descriptors come from, and its end is seen.
    socket: i32,
    /// By which the interpreter and the engine wake each other.
    waker: i32,
    shared: Shared,
    /// A descriptor of the interpreter's process; null if it is the engine's own process or its parent.
    process: ?i32,
    /// The interpreter has closed its end of the waker.
    is_deaf: bool = false,
    /// Gathers events of its exchanges.
    host: Host,
    end: EngineEnd,
    /// What it has not taken yet, as far as is known; the oldest first.
    offered: std.DoublyLinkedList = .{},
    /// How many there are of them.
    offers: u32 = 0,
    /// Exchanges that it works on, those that it was offered included.
    load: u32 = 0,
    /// So many may be offered to it at a time.
    ahead: u32 = 1,
    /// Which request of the pool's was the last one that it was offered.
    last_offer: u64 = 0,
    /// When it last took, said or read something, was woken, or was offered something while it had no offer.
    moved_at: u64,
    /// What it had given back of the ring of events by then.
    released: u64 = 0,
    state: State = .open,
    /// As many exchanges wait for it as may.
    is_full: bool = false,

    const State = enum {
        open,
        /// It was offered something and did not take it: it gets nothing until it moves.
        busy,
        /// It wants no more.
        leaving,
        /// It was told that nothing is left.
        left,
    };

    /// Answers who has asked to join, and has a place then. `socket` stays the caller's after an error.
    pub fn create(pool: *Pool, number: u8, socket: i32) !*Seat {
        const gpa = pool.gpa;
        const memory, const fd = try sharing.Memory.create(Shared.bytes);
        defer io.file.close(fd);
        errdefer memory.close();
        const waker, const its_waker = try sharing.wakers();
        defer io.file.close(its_waker);
        errdefer io.file.close(waker);
        const seat = try gpa.create(Seat);
        errdefer gpa.destroy(seat);
        const worker = pool.worker;
        seat.* = .{
            .pool = pool,
            .number = number,
            .socket = socket,
            .waker = waker,
            .shared = .of(memory),
            .process = sharing.processBehind(socket),
            .host = try .init(gpa),
            .end = undefined,
            .moved_at = worker.now,
        };
        errdefer if (seat.process) |process| io.file.close(process);
        errdefer seat.host.abandon();
        const shared = &seat.shared;
        shared.putLimits(&worker.config, worker.counting.wants_taken);
        seat.end = try .init(
            gpa,
            worker,
            &seat.host,
            .{ .seat = seat },
            &shared.slots,
            .init(shared.commands),
            .init(shared.events),
        );
        errdefer seat.end.deinit();
        seat.host.link = &seat.end;
        try worker.io.watchForeign(socket);
        errdefer worker.io.unwatchForeign(socket);
        try worker.io.watchWaker(waker, @intCast(number - 1));
        errdefer worker.io.unwatchForeign(waker);
        if (!introduction.welcome(socket, fd, its_waker)) return error.Gone;
        return seat;
    }

    /// When none of its exchanges is left.
    pub fn destroy(seat: *Seat) void {
        assert(seat.offered.first == null);
        const worker = seat.pool.worker;
        seat.shared.words.broken.store(1, .release);
        worker.io.unwatchForeign(seat.socket);
        worker.io.unwatchForeign(seat.waker);
        seat.end.deinit();
        seat.host.deinit(&worker.pool);
        io.file.close(seat.socket);
        io.file.close(seat.waker);
        if (seat.process) |process| io.file.close(process);
        seat.shared.memory.close();
        seat.pool.gpa.destroy(seat);
    }

    /// Makes it look around.
    pub fn raise(seat: *Seat) void {
        seat.moved_at = seat.pool.worker.now;
        sharing.raise(seat.waker);
    }

    /// The interpreter has raised its waker. False: it has closed its end.
    pub fn lower(seat: *Seat) bool {
        if (sharing.lower(seat.waker) == .ended) seat.is_deaf = true;
        return !seat.is_deaf;
    }

    /// The process of an interpreter that breaks the rules and has not ended. The caller's from now on.
    pub fn takeRogue(seat: *Seat) ?i32 {
        if (!seat.is_deaf and !seat.end.broken.load(.monotonic)) return null;
        if (sharing.hasEnded(seat.socket)) return null;
        defer seat.process = null;
        return seat.process;
    }

    // ---- How much it is at

    /// Exchanges that wait for it, those that it was offered included. The others wait for their clients, as
    /// its own words have it; and it cannot have taken more than that from what it was offered.
    pub fn busyWith(seat: *const Seat) u32 {
        return seat.load - seat.parked();
    }

    /// Exchanges of its that wait for their clients.
    pub fn parked(seat: *const Seat) u32 {
        return @min(seat.shared.words.parked.load(.acquire), seat.load - seat.offers);
    }

    /// Whether it is to be offered a request rather than another one: it has less to do. Of two that are
    /// alike the first one comes first, which lets the others sleep; but if clients stay with them, with
    /// WebSockets for instance, they take turns, so that each gets its share.
    pub fn precedes(seat: *const Seat, other: *const Seat) bool {
        const own = seat.busyWith();
        const others = other.busyWith();
        if (own != others) return own < others;
        if (seat.parked() + other.parked() == 0) return seat.number < other.number;
        return seat.last_offer < other.last_offer;
    }

    /// Whether it is to be offered a WebSocket rather than another one. A WebSocket stays, so the number of
    /// exchanges counts: by the work of the moment, an interpreter that the system gives more time would end
    /// with most of them.
    pub fn hasFewer(seat: *const Seat, other: *const Seat) bool {
        if (seat.load != other.load) return seat.load < other.load;
        return seat.precedes(other);
    }

    /// Whether it works on something for long: when it is done with that it gives room back.
    pub fn isHeldUp(seat: *const Seat) bool {
        const events = &seat.end.events;
        return seat.isStill() and seat.released != events.at and events.isReaderAtWork();
    }

    /// Whether it has been at one thing for so long that nobody should count on it.
    pub fn isStuck(seat: *const Seat) bool {
        if (seat.pool.worker.now -| seat.moved_at < stuck_ms) return false;
        return seat.state == .busy or seat.isHeldUp();
    }

    /// As long as PAGI::Server::Status waits for a process.
    const stuck_ms = 10_000;

    /// Whether it has not moved for long.
    pub fn isStill(seat: *const Seat) bool {
        return seat.pool.worker.now -| seat.moved_at >= still_ms;
    }

    /// An offer that an interpreter has not come to in this time, in which it did nothing else, goes to
    /// another one.
    pub const still_ms = 2;

    /// Whether it has gone, or does not keep to the rules.
    pub fn isLost(seat: *const Seat) bool {
        return seat.end.broken.load(.monotonic) or seat.is_deaf or sharing.hasEnded(seat.socket);
    }

    /// It has said or read something: it is not stuck.
    pub fn moved(seat: *Seat) void {
        seat.moved_at = seat.pool.worker.now;
        if (seat.state == .busy) seat.state = .open;
    }

    // ---- What its end asks

    /// Whether it may say something to an exchange. If so it works on that.
    pub fn hears(seat: *Seat, exchange: *Exchange) bool {
        if (exchange.seat != seat.number) return false;
        seat.moved();
        if (Offer.of(exchange)) |offer| seat.pool.taken(offer);
        return true;
    }

    /// It is done with an exchange, whatever is still to be sent.
    pub fn noteOver(seat: *Seat, exchange: *Exchange) void {
        if (!exchange.at_work) return;
        exchange.at_work = false;
        seat.load -= 1;
    }

    /// The same about one that ends.
    pub fn noteEnd(seat: *Seat, ticket: u64) void {
        if (seat.pool.worker.exchanges.get(@fromBackingInt(ticket))) |exchange| seat.noteOver(exchange);
    }

    /// The file of a command, whose descriptor came before it.
    pub fn takeFile(seat: *Seat, file: *const peregrine.Command.File) error{Malformed}!i32 {
        if (file.length == null) return error.Malformed;
        const fd = try seat.takeDescriptor();
        // Anything else could make the engine wait. So could the question, where storage is slow: what it is
        // then its reader, a thread, will see.
        if (!file.is_slow) _ = io.file.size(fd) catch {
            io.file.close(fd);
            return error.Malformed;
        };
        return fd;
    }

    /// The descriptor that came before a command.
    pub fn takeDescriptor(seat: *Seat) error{Malformed}!i32 {
        var bytes: [introduction.file_message.len]u8 = undefined;
        var fds: [1]i32 = undefined;
        return switch (sharing.receive(seat.socket, &bytes, &fds)) {
            .message => |message| if (message.fd_count == 1) fds[0] else error.Malformed,
            .nothing, .ended => error.Malformed,
        };
    }

    /// Sends the file that is the body of a request, before that. False: there is no room for now.
    pub fn sendBody(seat: *Seat, offer: *const Offer) bool {
        const request = offer.batch.events.items[0].request.?;
        if (request.body_fd < 0) return true;
        return sharing.send(seat.socket, introduction.file_message, &.{request.body_fd}) == .sent;
    }
};
