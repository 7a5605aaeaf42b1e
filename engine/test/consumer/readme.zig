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

// README: const Monitored = struct

test "metrics" {
    const server: *per.Server(Monitored) = try .initWith(std.testing.allocator, 0, .{
        .ip = "127.0.0.1",
        .metrics = true,
    }, .{});
    defer server.deinit();
    server.handler().server = server;
    var text: std.Io.Writer.Allocating = .init(std.testing.allocator);
    defer text.deinit();
    try server.writeMetrics(&text.writer);
    try std.testing.expect(std.mem.find(u8, text.written(), "\nperegrine_connections_max ") != null);
    text.clearRetainingCapacity();
    try server.writeStatusPage(&text.writer);
    const row = "\n<tr><th>0<td>0<td>0<td>0<td>";
    try std.testing.expect(std.mem.find(u8, text.written(), row) != null);
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

const Condition = struct {
    fn watch(_: *Condition, server: *per.Server(App)) void {
        server.shutdown();
    }
};

// README: serveUntil

test "a thread stops the server" {
    var condition: Condition = .{};
    try serveUntil(std.heap.smp_allocator, &condition);
}

const Room = struct {
    said: usize = 0,

    fn say(room: *Room, text: []const u8) void {
        room.said += text.len;
    }
};

const Rooms = struct {
    room: Room = .{},

    fn find(rooms: *Rooms, path: []const u8) ?*Room {
        return if (std.mem.eql(u8, path, "/room")) &rooms.room else null;
    }

    // README: contextAs
};

test "rooms" {
    var simulation: per.Simulation(Rooms) = try .initWith(std.testing.allocator, .{}, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    for ([_]struct { []const u8, []const u8 }{
        .{ "http://test", "HTTP/1.1 101 " }, .{ "http://elsewhere", "HTTP/1.1 403 " },
    }) |case| {
        const client = try simulation.connect();
        var buffer: [400]u8 = undefined;
        try client.send(try std.fmt.bufPrint(&buffer, "GET /room HTTP/1.1\r\nHost: test\r\nOrigin: {s}\r\n" ++
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" ++
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", .{case[0]}));
        try simulation.settle();
        try std.testing.expect(std.mem.startsWith(u8, client.text(), case[1]));
        client.peer.reset();
        try simulation.settle();
    }
    // README: openWebSocket
    try std.testing.expectEqual(5, simulation.handler().room.said);
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

// README: const Export = struct

test "bodies that are written" {
    var simulation: per.Simulation(Export) = try .initWith(std.testing.allocator, .{}, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    const numbers = try simulation.request(.{ .target = "/numbers/250" });
    try std.testing.expect(std.mem.startsWith(u8, numbers.body, "0\n1\n"));
    try std.testing.expect(std.mem.endsWith(u8, numbers.body, "\n249\n"));
    try std.testing.expectEqual(250, std.mem.count(u8, numbers.body, "\n"));
}
