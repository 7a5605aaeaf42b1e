//! Tests of what engine/README.md prints: script/lib/package.t puts its pieces where a line names the text
//! that they have, and its first program before all. Alone it does not compile.

// README: test "greets by name"

test "places" {
    const config: per.ServerConfig = .{
        // README: .listeners = &.{
    };
    try std.testing.expectEqual(4, config.listeners.len);
}

const Echo = struct {
    allocator: std.mem.Allocator,
    dir: *per.util.DirServer,

    pub fn init(_: std.mem.Allocator) !*Echo {
        return error.NotForReal;
    }

    pub fn deinit(_: *Echo) void {}

    // README: handleUpgrade
};

test "WebSockets" {
    _ = &per.Server(Echo).init;
    _ = &per.Server(Echo).start;
}

// README: const App = struct

test "a value" {
    var simulation: per.Simulation(App) = try .initWith(
        std.testing.allocator,
        .{},
        .{ .seed = 1 },
        .{ .greeting = "hi" },
    );
    defer simulation.deinit();
    try std.testing.expectEqualStrings("hi", (try simulation.request(.{})).body);
    const missing = try simulation.request(.{ .target = "/x" });
    try std.testing.expectEqual(404, missing.status);
    try std.testing.expectEqualStrings("Something is wrong.\n", missing.body);
    _ = &serve;
}

const Feed = struct {
    stream: ?per.EventStream = null,

    // README: per.EventStream
};

test "events" {
    var simulation: per.Simulation(Feed) = try .initWith(std.testing.allocator, .{}, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    const client = try simulation.connect();
    try client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    try simulation.settle();
    try std.testing.expect(std.mem.find(u8, client.text(), "data: welcome") != null);
    client.peer.reset();
    try simulation.settle();
    try std.testing.expectEqual(null, simulation.handler().stream);
}

const Reports = struct {
    // README: makeReport
};

test "threads" {
    const threads: *per.Threads = try .init(std.testing.allocator, .{ .threads = 0 });
    defer threads.deinit();
    var simulation: per.Simulation(Reports) = try .initWith(
        std.testing.allocator,
        .{},
        .{ .seed = 1 },
        .{ .threads = threads },
    );
    defer simulation.deinit();
    const answer = try simulation.request(.{ .target = "/?of=all" });
    try std.testing.expectEqualStrings("all", answer.body);
}

// README: const Shop = struct

test "routes" {
    var simulation: per.Simulation(Shop) = try .initWith(std.testing.allocator, .{}, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    const goods = try simulation.request(.{ .target = "/goods/7" });
    const Goods = struct { id: u32, name: []const u8, unit: ?[]const u8 };
    try std.testing.expectEqualStrings("lamp", (try goods.json(Goods)).name);
    const order = try simulation.request(.{
        .method = "POST",
        .target = "/orders",
        .headers = &.{try .init("Content-Type", "application/json")},
        .body = "{\"goods\": [1, 2]}",
    });
    try std.testing.expectEqual(201, order.status);
    const login = try simulation.request(.{ .method = "DELETE", .target = "/admin/orders" });
    try std.testing.expectEqual(303, login.status);
    const cleared = try simulation.request(.{
        .method = "DELETE",
        .target = "/admin/orders",
        .headers = &.{try .init("Cookie", "session=secret")},
    });
    try std.testing.expectEqual(204, cleared.status);
}
