//! Lanes that wait for their turn: before the worker waits, for room in a round, or for their host. A lane
//! adds itself to a list at most once. Does not know: what happens in a turn (worker/turns.zig).
const std = @import("std");
const assert = std.debug.assert;
const api_limits = @import("config.zig").api_limits;
const Exchange = @import("exchange.zig").Exchange;
const Lane = @import("lane.zig").Lane;
const WebSocket = @import("websocket.zig").WebSocket;
const Slab = @import("slab.zig").Slab;
const Ticket = @import("slab.zig").Ticket;
const Transport = @import("transport.zig").Transport;

/// The lists of one worker. A lane that ends stays in them by its ticket, which then finds no lane, or after
/// many other lanes one whose flag tells whether it is in the list.
pub const Waiting = struct {
    /// Lanes with queued output or input that can be parsed, which have their turn before the worker waits.
    corked: List = .empty,
    /// Lanes for which the round had no room.
    backlog: List = .empty,
    /// WebSockets whose host is behind.
    parked: List = .empty,
    /// Lanes whose responses wait for a moment for the response to the next request.
    withheld: std.ArrayList(Withheld) = .empty,
    /// The time of the last pass over `withheld`, or of its first entry; null: it is empty.
    withheld_at: ?u64 = null,
    /// The list over which a pass goes at present.
    spare: List = .empty,

    /// The time since which a lane's responses wait, and their bytes at the last pass.
    pub const Withheld = struct {
        lane: Ticket,
        since: u64,
        bytes: usize,

        /// Whether the lane's responses wait on: others have come since the last pass, and the first one has
        /// not waited for too long.
        pub fn goesOn(withheld: *Withheld, bytes: usize, now: u64) bool {
            assert(withheld.since <= now);
            // The responses were sent meanwhile, and others have come.
            if (bytes < withheld.bytes) withheld.since = now;
            const has_changed = bytes != withheld.bytes;
            withheld.bytes = bytes;
            return has_changed and now - withheld.since < api_limits.withhold_most_ms;
        }
    };

    /// Each idle connection pays for room in three of these lists.
    const List = std.ArrayList(Ticket.Short);
    /// Lists that may have every lane.
    const lists = .{ "corked", "backlog", "spare" };

    pub fn deinit(waiting: *Waiting, gpa: std.mem.Allocator) void {
        inline for (lists) |name| @field(waiting, name).deinit(gpa);
        waiting.parked.deinit(gpa);
        waiting.withheld.deinit(gpa);
    }

    /// Makes room in each list for one more than `lanes` lanes, so that adding a lane later cannot fail.
    pub fn reserve(waiting: *Waiting, gpa: std.mem.Allocator, lanes: usize) error{OutOfMemory}!void {
        var listed: usize = 0;
        inline for (lists) |name| listed = @max(listed, @field(waiting, name).items.len);
        inline for (lists) |name| {
            try @field(waiting, name).ensureTotalCapacity(gpa, listed + lanes + 1);
        }
    }

    /// Makes room for one more than `websockets` WebSockets.
    pub fn reserveParked(
        waiting: *Waiting,
        gpa: std.mem.Allocator,
        websockets: usize,
    ) error{OutOfMemory}!void {
        const listed = waiting.parked.items.len;
        try waiting.parked.ensureTotalCapacity(gpa, listed + websockets + 1);
    }

    /// Whether lanes wait for the worker; lanes that wait for hosts do not count.
    pub fn isDue(waiting: *const Waiting) bool {
        return waiting.corked.items.len > 0 or waiting.backlog.items.len > 0;
    }

    /// Gives a lane a turn before the worker waits.
    pub inline fn cork(waiting: *Waiting, lane: *Lane) void {
        if (lane.corked) return;
        lane.corked = true;
        waiting.corked.appendAssumeCapacity(lane.ticket().short());
    }

    /// Gives a turn to a lane and to its transport, on which heads are queued.
    pub fn corkBoth(waiting: *Waiting, lane: *Lane) void {
        waiting.cork(&lane.transport.lane);
        waiting.cork(lane);
    }

    /// Lets a lane go on in the next round, because its turn is over or the round has no room for it.
    pub fn yield(waiting: *Waiting, lane: *Lane) void {
        if (lane.yielded) return;
        lane.yielded = true;
        waiting.backlog.appendAssumeCapacity(lane.ticket().short());
    }

    /// Lets a WebSocket wait, because its host has too many events to read.
    pub fn park(waiting: *Waiting, lane: *Lane) void {
        lane.websocket().?.incoming.parked = true;
        // A lane may be in the list already: its host let it go on before the next pass, and is behind again.
        if (lane.parked) return;
        lane.parked = true;
        waiting.parked.appendAssumeCapacity(lane.ticket().short());
    }

    /// Keeps a response back, to be sent with the next one of its lane if that comes soon. False: there is no
    /// memory to remember the lane, so the response is sent now.
    pub fn withhold(waiting: *Waiting, gpa: std.mem.Allocator, lane: *Lane, now: u64) bool {
        if (lane.withheld) return true;
        waiting.withheld.append(gpa, .{
            .lane = lane.ticket(),
            .since = now,
            .bytes = lane.out().queue.bytes,
        }) catch return false;
        lane.withheld = true;
        if (waiting.withheld_at == null) waiting.withheld_at = now;
        return true;
    }

    /// Ends a pass over withheld responses: the first `count` lanes wait on.
    pub fn keepWithheld(waiting: *Waiting, count: usize, now: u64) void {
        waiting.withheld.shrinkRetainingCapacity(count);
        waiting.withheld_at = if (count > 0) now else null;
    }

    // ---- Passes over a list

    /// Begins a pass over the corked lanes with `at`, which `end` ends. Lanes that are corked meanwhile come
    /// in the next pass.
    pub fn beginCorked(waiting: *Waiting) void {
        waiting.begin(&waiting.corked);
    }

    /// Begins a pass over the lanes that had no room, which `endBacklog` ends.
    pub fn beginBacklog(waiting: *Waiting) void {
        waiting.begin(&waiting.backlog);
    }

    inline fn begin(waiting: *Waiting, list: *List) void {
        assert(waiting.spare.items.len == 0); // there is one pass at a time
        std.mem.swap(List, list, &waiting.spare);
    }

    /// The lane at `place` in the pass; null: the pass is at its end. Opening lanes may move the list.
    pub inline fn at(waiting: *const Waiting, place: usize) ?Ticket.Short {
        return if (place < waiting.spare.items.len) waiting.spare.items[place] else null;
    }

    pub fn end(waiting: *Waiting) void {
        waiting.spare.clearRetainingCapacity();
        waiting.invariants();
    }

    /// Ends a pass over the backlog at `place`. Lanes that had no turn come before lanes that had one and
    /// have yielded again.
    pub fn endBacklog(waiting: *Waiting, place: usize) void {
        const rest = waiting.spare.items[place..];
        const backlog = &waiting.backlog;
        backlog.appendSliceAssumeCapacity(rest);
        std.mem.rotate(Ticket.Short, backlog.items, backlog.items.len - rest.len);
        waiting.end();
    }

    pub fn invariants(waiting: *const Waiting) void {
        assert(waiting.spare.items.len == 0);
        // Each list has room for the lanes of any other one.
        assert(waiting.spare.capacity >= waiting.corked.items.len);
        assert(waiting.spare.capacity >= waiting.backlog.items.len);
        assert((waiting.withheld_at == null) == (waiting.withheld.items.len == 0));
    }
};

/// Adds a transport, for tests, and returns its lane.
fn addLane(transports: *Slab(Transport)) !*Lane {
    const limits = @import("types.zig").limitsOf(&.{});
    const transport = (try transports.add()).item;
    transport.init(.none, &limits, 1, 0, 0);
    return &transport.lane;
}

test "a lane that yields again comes behind lanes that had no turn" {
    const gpa = std.testing.allocator;
    var waiting: Waiting = .{};
    defer waiting.deinit(gpa);
    var transports: Slab(Transport) = .init(gpa, .transport);
    defer transports.deinit();
    var lanes: [3]*Lane = undefined;
    for (&lanes, 1..) |*place, number| {
        const lane = try addLane(&transports);
        place.* = lane;
        try waiting.reserve(gpa, number);
        waiting.yield(lane);
        waiting.yield(lane);
    }
    try std.testing.expect(waiting.isDue());
    waiting.beginBacklog();
    try std.testing.expectEqual(lanes[0].ticket().short(), waiting.at(0).?);
    lanes[0].yielded = false;
    waiting.yield(lanes[0]);
    waiting.endBacklog(1);
    try std.testing.expect(waiting.isDue());
    var order: [3]Ticket.Short = undefined;
    for (&order, [_]usize{ 1, 2, 0 }) |*name, index| name.* = lanes[index].ticket().short();
    try std.testing.expectEqualSlices(Ticket.Short, &order, waiting.backlog.items);
    try std.testing.expectEqual(null, waiting.at(0));
}

test "a lane that is corked while the list is gone through comes in the next pass" {
    const gpa = std.testing.allocator;
    var waiting: Waiting = .{};
    defer waiting.deinit(gpa);
    var transports: Slab(Transport) = .init(gpa, .transport);
    defer transports.deinit();
    const lane = try addLane(&transports);
    try std.testing.expect(!waiting.isDue());
    try waiting.reserve(gpa, 0);
    waiting.cork(lane);
    waiting.cork(lane);
    try std.testing.expect(waiting.isDue() and lane.corked);
    waiting.beginCorked();
    try std.testing.expectEqual(lane.ticket().short(), waiting.at(0).?);
    try std.testing.expectEqual(null, waiting.at(1));
    lane.corked = false;
    waiting.cork(lane);
    try std.testing.expectEqual(null, waiting.at(1));
    waiting.end();
    try std.testing.expectEqualSlices(Ticket.Short, &.{lane.ticket().short()}, waiting.corked.items);
}

test "a WebSocket that its host has let go on waits in the list once" {
    const gpa = std.testing.allocator;
    var waiting: Waiting = .{};
    defer waiting.deinit(gpa);
    var transports: Slab(Transport) = .init(gpa, .transport);
    defer transports.deinit();
    const lane = try addLane(&transports);
    var websocket: WebSocket = .init(null, "", &.{}, &.{});
    websocket.state = .open;
    var exchange: Exchange = .{ .ticket = .none, .lane = lane, .active_at = 0, .websocket = &websocket };
    lane.phase = .{ .exchange = &exchange };
    try waiting.reserveParked(gpa, 0);
    for (0..2 * waiting.parked.capacity) |_| {
        waiting.park(lane);
        try std.testing.expect(websocket.incoming.isStalled());
        websocket.setFlow(.all);
        try std.testing.expect(!websocket.incoming.isStalled());
    }
    try std.testing.expectEqualSlices(Ticket.Short, &.{lane.ticket().short()}, waiting.parked.items);
}
