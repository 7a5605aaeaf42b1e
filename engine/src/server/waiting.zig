//! Lanes that wait to be looked at: before the next wait, for room in a round, or for their host. A lane is
//! in each list once at most. Does not know: what is done when a lane has its turn (worker/turns.zig).
const std = @import("std");
const assert = std.debug.assert;
const api_limits = @import("config.zig").api_limits;
const Exchange = @import("exchange.zig").Exchange;
const Lane = @import("lane.zig").Lane;
const WebSocket = @import("websocket.zig").WebSocket;
const Ticket = @import("slab.zig").Ticket;

/// The lists of one worker. A lane that goes stays in them by its name, which is then of no lane.
pub const Waiting = struct {
    /// Lanes to look at before the next wait: queued output, or input that may go on.
    corked: List = .empty,
    /// Lanes that the round has no room for.
    backlog: List = .empty,
    /// WebSockets that wait for a host which is behind.
    parked: List = .empty,
    /// Lanes whose answers wait for a moment, because the answer of the request behind them may come.
    withheld: std.ArrayList(Withheld) = .empty,
    /// When these were last gone through, or the first one came; null: there is none.
    withheld_at: ?u64 = null,
    /// The list that is gone through at the moment.
    spare: List = .empty,

    /// Since when a lane's answers wait, and their bytes when they were last looked at.
    pub const Withheld = struct {
        lane: Ticket,
        since: u64,
        bytes: usize,

        /// Whether further answers have come since the last look, and the first one has not waited too long.
        pub fn goesOn(withheld: *Withheld, bytes: usize, now: u64) bool {
            assert(withheld.since <= now);
            // The answers were sent meanwhile, and others have come.
            if (bytes < withheld.bytes) withheld.since = now;
            const has_changed = bytes != withheld.bytes;
            withheld.bytes = bytes;
            return has_changed and now - withheld.since < api_limits.withhold_most_ms;
        }
    };

    const List = std.ArrayList(Ticket);
    /// Lists that each lane may be in.
    const lists = .{ "corked", "backlog", "spare" };

    pub fn deinit(waiting: *Waiting, gpa: std.mem.Allocator) void {
        inline for (lists) |name| @field(waiting, name).deinit(gpa);
        waiting.parked.deinit(gpa);
        waiting.withheld.deinit(gpa);
    }

    /// Makes room for one more lane beside `lanes` that there are, so that no lane has to be turned away
    /// later.
    pub fn reserve(waiting: *Waiting, gpa: std.mem.Allocator, lanes: usize) error{OutOfMemory}!void {
        var listed: usize = 0;
        inline for (lists) |name| listed = @max(listed, @field(waiting, name).items.len);
        inline for (lists) |name| {
            try @field(waiting, name).ensureTotalCapacity(gpa, listed + lanes + 1);
        }
    }

    /// Likewise for one more WebSocket.
    pub fn reserveParked(
        waiting: *Waiting,
        gpa: std.mem.Allocator,
        websockets: usize,
    ) error{OutOfMemory}!void {
        const listed = waiting.parked.items.len;
        try waiting.parked.ensureTotalCapacity(gpa, listed + websockets + 1);
    }

    /// Whether lanes wait for this worker, and not for their hosts.
    pub fn isDue(waiting: *const Waiting) bool {
        return waiting.corked.items.len > 0 or waiting.backlog.items.len > 0;
    }

    /// Has a lane looked at once more before the next wait.
    pub inline fn cork(waiting: *Waiting, lane: *Lane) void {
        if (lane.corked) return;
        lane.corked = true;
        waiting.corked.appendAssumeCapacity(lane.ticket);
    }

    /// Has a lane looked at, and its transport, which heads are queued on.
    pub fn corkBoth(waiting: *Waiting, lane: *Lane) void {
        waiting.cork(&lane.transport.lane);
        waiting.cork(lane);
    }

    /// A lane has had its turn, or the round has no room for it: it goes on in the next one.
    pub fn yield(waiting: *Waiting, lane: *Lane) void {
        if (lane.yielded) return;
        lane.yielded = true;
        waiting.backlog.appendAssumeCapacity(lane.ticket);
    }

    /// The host has more to read than it should: a WebSocket waits until that has changed.
    pub fn park(waiting: *Waiting, lane: *Lane) void {
        lane.websocket().?.incoming.parked = true;
        // Its host may let it read on before the list is gone through, and it may have to wait again.
        if (lane.parked) return;
        lane.parked = true;
        waiting.parked.appendAssumeCapacity(lane.ticket);
    }

    /// An answer is to leave together with the next one of its lane, if that comes soon. False: there is no
    /// memory to remember it, so it leaves now.
    pub fn withhold(waiting: *Waiting, gpa: std.mem.Allocator, lane: *Lane, now: u64) bool {
        if (lane.withheld) return true;
        waiting.withheld.append(gpa, .{
            .lane = lane.ticket,
            .since = now,
            .bytes = lane.out().queue.bytes,
        }) catch return false;
        lane.withheld = true;
        if (waiting.withheld_at == null) waiting.withheld_at = now;
        return true;
    }

    /// The withheld answers were gone through, and those of the first lanes, so many, wait on.
    pub fn keepWithheld(waiting: *Waiting, count: usize, now: u64) void {
        waiting.withheld.shrinkRetainingCapacity(count);
        waiting.withheld_at = if (count > 0) now else null;
    }

    // ---- Going through a list

    /// Goes through the corked lanes with `at`; lanes that are corked meanwhile come in the next pass. `end`
    /// follows.
    pub fn beginCorked(waiting: *Waiting) void {
        waiting.begin(&waiting.corked);
    }

    /// Goes through the lanes that had no room. `endBacklog` follows.
    pub fn beginBacklog(waiting: *Waiting) void {
        waiting.begin(&waiting.backlog);
    }

    inline fn begin(waiting: *Waiting, list: *List) void {
        assert(waiting.spare.items.len == 0); // nobody goes through one list within the other
        std.mem.swap(List, list, &waiting.spare);
    }

    /// The lane at this place of the list; null: at its end. The list may move: lanes are opened meanwhile.
    pub inline fn at(waiting: *const Waiting, place: usize) ?Ticket {
        return if (place < waiting.spare.items.len) waiting.spare.items[place] else null;
    }

    /// The list was gone through.
    pub fn end(waiting: *Waiting) void {
        waiting.spare.clearRetainingCapacity();
        waiting.invariants();
    }

    /// The backlog was gone through up to this place. Lanes that had their turn and yielded again come behind
    /// lanes that had none.
    pub fn endBacklog(waiting: *Waiting, place: usize) void {
        const rest = waiting.spare.items[place..];
        const backlog = &waiting.backlog;
        backlog.appendSliceAssumeCapacity(rest);
        std.mem.rotate(Ticket, backlog.items, backlog.items.len - rest.len);
        waiting.end();
    }

    /// Asserts what always holds.
    pub fn invariants(waiting: *const Waiting) void {
        assert(waiting.spare.items.len == 0);
        // Each list has room for what any other one has.
        assert(waiting.spare.capacity >= waiting.corked.items.len);
        assert(waiting.spare.capacity >= waiting.backlog.items.len);
        assert((waiting.withheld_at == null) == (waiting.withheld.items.len == 0));
    }
};

test "a lane that yields again comes behind lanes that had no turn" {
    const gpa = std.testing.allocator;
    var waiting: Waiting = .{};
    defer waiting.deinit(gpa);
    var lanes: [3]Lane = undefined;
    for (&lanes, 1..) |*lane, number| {
        lane.ticket = @fromBackingInt(number);
        lane.yielded = false;
        try waiting.reserve(gpa, number);
        waiting.yield(lane);
        waiting.yield(lane);
    }
    try std.testing.expect(waiting.isDue());
    waiting.beginBacklog();
    try std.testing.expectEqual(lanes[0].ticket, waiting.at(0).?);
    lanes[0].yielded = false;
    waiting.yield(&lanes[0]);
    waiting.endBacklog(1);
    try std.testing.expect(waiting.isDue());
    const order = [_]Ticket{ lanes[1].ticket, lanes[2].ticket, lanes[0].ticket };
    try std.testing.expectEqualSlices(Ticket, &order, waiting.backlog.items);
    try std.testing.expectEqual(null, waiting.at(0));
}

test "a lane that is corked while the list is gone through comes in the next pass" {
    const gpa = std.testing.allocator;
    var waiting: Waiting = .{};
    defer waiting.deinit(gpa);
    var lane: Lane = undefined;
    lane.ticket = @fromBackingInt(7);
    lane.corked = false;
    try std.testing.expect(!waiting.isDue());
    try waiting.reserve(gpa, 0);
    waiting.cork(&lane);
    waiting.cork(&lane);
    try std.testing.expect(waiting.isDue() and lane.corked);
    waiting.beginCorked();
    try std.testing.expectEqual(lane.ticket, waiting.at(0).?);
    try std.testing.expectEqual(null, waiting.at(1));
    lane.corked = false;
    waiting.cork(&lane);
    try std.testing.expectEqual(null, waiting.at(1));
    waiting.end();
    try std.testing.expectEqualSlices(Ticket, &.{lane.ticket}, waiting.corked.items);
}

test "a WebSocket that its host has let go on waits in the list once" {
    const gpa = std.testing.allocator;
    var waiting: Waiting = .{};
    defer waiting.deinit(gpa);
    var lane: Lane = undefined;
    var websocket: WebSocket = .init(null, "", &.{}, &.{});
    websocket.state = .open;
    var exchange: Exchange = .{ .ticket = .none, .lane = &lane, .active_at = 0, .websocket = &websocket };
    lane.ticket = @fromBackingInt(7);
    lane.phase = .{ .exchange = &exchange };
    lane.parked = false;
    try waiting.reserveParked(gpa, 0);
    for (0..2 * waiting.parked.capacity) |_| {
        waiting.park(&lane);
        try std.testing.expect(websocket.incoming.isStalled());
        websocket.setFlow(.all);
        try std.testing.expect(!websocket.incoming.isStalled());
    }
    try std.testing.expectEqualSlices(Ticket, &.{lane.ticket}, waiting.parked.items);
}
