//! The routes of C: which requests it wants, and whether it wants their bodies whole.
//! Does not know: what C does with requests.
const std = @import("std");
const peregrine = @import("peregrine");
const Demand = peregrine.Demand;
const Exchange = peregrine.Exchange;
const Head = peregrine.Head;

/// Routes in the order in which they were added, the first one with number 1.
pub const Routes = struct {
    list: std.ArrayList(peregrine.Route) = .empty,
    /// The demand of requests that no route matches, then the demand of each route.
    demands: std.ArrayList(Demand) = .empty,
    /// The group of interpreters for requests that no route matches, then the group of each route.
    groups: std.ArrayList(u8) = .empty,
    texts: std.heap.ArenaAllocator,

    /// The highest number of a route for which an exchange has room.
    pub const count_max = std.math.maxInt(u8);

    /// Why a route is not added.
    pub const Error = error{ OutOfMemory, TooMany, BadPath };

    pub fn init(gpa: std.mem.Allocator) Routes {
        return .{ .texts = .init(gpa) };
    }

    pub fn deinit(routes: *Routes) void {
        const gpa = routes.texts.child_allocator;
        routes.list.deinit(gpa);
        routes.demands.deinit(gpa);
        routes.groups.deinit(gpa);
        routes.texts.deinit();
    }

    /// Adds a route and returns its number. `path` begins with "/" and has no "?", or is empty; both texts
    /// are copied.
    pub fn add(routes: *Routes, path: []const u8, host: []const u8, body: Demand.Body, group: u8) Error!u8 {
        const is_path = path.len == 0 or (path[0] == '/' and std.mem.findScalar(u8, path, '?') == null);
        if (!is_path) return error.BadPath;
        const number = routes.list.items.len + 1;
        if (number > count_max) return error.TooMany;
        const gpa = routes.texts.child_allocator;
        const arena = routes.texts.allocator();
        try routes.list.ensureUnusedCapacity(gpa, 1);
        try routes.demands.ensureTotalCapacity(gpa, number + 1);
        try routes.groups.ensureTotalCapacity(gpa, number + 1);
        const own_path = try arena.dupe(u8, path);
        const own_host = try arena.dupe(u8, host);
        if (routes.demands.items.len == 0) {
            routes.demands.appendAssumeCapacity(.pull);
            routes.groups.appendAssumeCapacity(0);
        }
        routes.list.appendAssumeCapacity(.{ .path = own_path, .host = own_host, .to = @intCast(number) });
        routes.demands.appendAssumeCapacity(.{ .pace = .pull, .body = body });
        routes.groups.appendAssumeCapacity(group);
        std.debug.assert(routes.demands.items.len == routes.list.items.len + 1);
        std.debug.assert(routes.groups.items.len == routes.demands.items.len);
        return @intCast(number);
    }

    /// The group of interpreters for the requests of a route; 0: none was named.
    pub fn groupOf(routes: *const Routes, route: u8) u8 {
        return if (route < routes.groups.items.len) routes.groups.items[route] else 0;
    }

    /// Notes on an exchange the number of its route, 0 for none, and the demand of that route.
    pub inline fn choose(routes: *const Routes, exchange: *Exchange, head: *const Head) void {
        if (routes.list.items.len == 0) return;
        const number = peregrine.findRoute(routes.list.items, head, exchange.websocket != null);
        exchange.chooseRoute(number, routes.demands.items[number]);
    }
};

test "routes are numbered as they are added, and choose for an exchange" {
    const testing = std.testing;
    var routes: Routes = .init(testing.allocator);
    defer routes.deinit();
    try testing.expectError(error.BadPath, routes.add("api", "", .whole, 0));
    try testing.expectError(error.BadPath, routes.add("/api?x", "", .whole, 0));
    try testing.expectEqual(1, try routes.add("/api", "", .streamed, 3));
    try testing.expectEqual(2, try routes.add("", "", .whole, 0));
    const head: Head = .{ .storage = &.{}, .text = "/apple", .path = .{ .at = 0, .len = 6 } };
    var exchange: Exchange = .{ .ticket = @fromBackingInt(0), .lane = undefined, .active_at = 0 };
    routes.choose(&exchange, &head);
    try testing.expectEqual(2, exchange.route);
    for ([_]u8{ 0, 3, 0, 0 }, 0..) |group, route| {
        try testing.expectEqual(group, routes.groupOf(@intCast(route)));
    }
    try testing.expectEqual(.whole, exchange.demand.body);
    for (3..Routes.count_max + 1) |number| {
        try testing.expectEqual(number, try routes.add("/x", "", .whole, 0));
    }
    try testing.expectError(error.TooMany, routes.add("/x", "", .whole, 0));
}
