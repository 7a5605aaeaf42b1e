//! Requests that threads answer (`per.Threads`): over the simulated network done at once, over real sockets
//! with real threads, where clients leave meanwhile and the queue is full. And servers that several threads
//! stop while they start, run and are freed. Run under ThreadSanitizer as well (`zig build test-threads`).
const std = @import("std");
const per = @import("peregrine");
const alike = @import("alike.zig");
const loopback = @import("loopback.zig");
const linux = std.os.linux;
const testing = std.testing;

const large_bytes = 700_000;

/// Everything is answered by threads.
const Blocking = struct {
    threads: *per.Threads,
    /// Requests that have reached a thread.
    begun: std.atomic.Value(u32) = .init(0),
    /// Handlers of /wait wait until this is set.
    go: per.io.Latch = .{},
    errors: std.atomic.Value(u32) = .init(0),

    pub fn handleRequest(self: *Blocking, request: *per.Request, response: *per.Response) !void {
        try self.threads.run(self, answer, request, response);
    }

    fn answer(self: *Blocking, request: *per.Request, response: *per.Response) !void {
        _ = self.begun.fetchAdd(1, .acq_rel);
        const path = request.getPath();
        try response.addNewHeader("X-Path", path);
        if (std.mem.eql(u8, path, "/wait")) self.go.wait();
        if (std.mem.eql(u8, path, "/missing")) return error.NotFound;
        if (std.mem.eql(u8, path, "/wrong")) return error.Unforeseen;
        if (std.mem.eql(u8, path, "/cut")) {
            _ = try response.write("some");
            return error.Unforeseen;
        }
        if (std.mem.eql(u8, path, "/stream")) {
            for (0..10) |_| _ = try response.write("0123456789");
            return;
        }
        if (std.mem.eql(u8, path, "/large")) {
            const bytes = try request.arena.alloc(u8, large_bytes);
            @memset(bytes, 'x');
            return response.setBody(bytes);
        }
        if (std.mem.eql(u8, path, "/nothing")) {
            response.status = .no_content;
            return;
        }
        const name = try request.param("name") orelse "nobody";
        try response.setBody(try std.mem.concat(request.arena, u8, &.{ name, ":", request.body }));
    }

    pub fn handleError(self: *Blocking, _: *per.Request, response: *per.Response, err: anyerror) void {
        _ = self.errors.fetchAdd(1, .monotonic);
        response.setBody(@errorName(err)) catch {};
    }
};

test "without threads requests are done at once, on any network" {
    const threads: *per.Threads = try .init(testing.allocator, .{ .threads = 0 });
    defer threads.deinit();
    for (0..5) |seed| {
        var simulation: alike.Simulation(Blocking) = try .initWith(
            testing.allocator,
            .{},
            .{ .seed = seed },
            .{ .threads = threads },
        );
        defer simulation.deinit();
        const client = try simulation.connect();
        const answer = try client.request(.{ .method = "POST", .target = "/?name=Ada+L", .body = "body" });
        try testing.expectEqual(200, answer.status);
        try testing.expectEqualStrings("Ada L:body", answer.body);
        try testing.expectEqualStrings("/", answer.header("x-path").?);
        const missing = try client.request(.{ .target = "/missing" });
        try testing.expectEqual(404, missing.status);
        try testing.expectEqualStrings("NotFound", missing.body);
        try testing.expectEqual(null, missing.header("x-path"));
        try testing.expectEqual(500, (try client.request(.{ .target = "/wrong" })).status);
        try testing.expectEqual(204, (try client.request(.{ .target = "/nothing" })).status);
        const large = try client.request(.{ .target = "/large" });
        try testing.expectEqual(large_bytes, large.body.len);
        try testing.expectEqualStrings("700000", large.header("content-length").?);
        try testing.expectEqualStrings("", (try client.request(.{ .target = "/", .method = "HEAD" })).body);
        const stream = try client.request(.{ .target = "/stream" });
        try testing.expectEqual(100, stream.body.len);
        try testing.expectEqual(10, std.mem.count(u8, stream.body, "0123456789"));
        try testing.expectError(error.NoResponse, client.request(.{ .target = "/cut" }));
        try testing.expectEqual(0, simulation.worker().exchanges.count);
    }
}

const gpa = std.heap.smp_allocator;

/// A server in a thread of its own.
const Running = struct {
    threads: *per.Threads,
    server: *per.Server(Blocking),
    thread: std.Thread,
    port: u16,

    fn start(options: per.Threads.Options) !Running {
        const threads: *per.Threads = try .init(gpa, options);
        errdefer threads.deinit();
        const server: *per.Server(Blocking) = try .initWith(gpa, 0, .{
            .ip = "127.0.0.1",
            .worker_thread_count = 2,
            .handle_signals = false,
            .stop_ms = 60_000,
        }, .{ .threads = threads });
        errdefer server.deinit();
        const port = server.port();
        return .{
            .threads = threads,
            .server = server,
            .thread = try .spawn(.{}, serve, .{server}),
            .port = port,
        };
    }

    fn serve(server: *per.Server(Blocking)) void {
        server.start() catch |err| std.debug.panic("{t}", .{err});
    }

    fn stop(running: *Running) void {
        running.server.shutdown();
        running.thread.join();
        running.threads.deinit();
    }

    fn ask(running: *const Running, target: []const u8) !i32 {
        const fd = try loopback.connect(running.port);
        errdefer _ = linux.close(fd);
        var buffer: [200]u8 = undefined;
        try loopback.send(fd, try std.fmt.bufPrint(
            &buffer,
            "GET {s} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
            .{target},
        ));
        return fd;
    }
};

/// Reads to the end of the connection, and closes it; what came begins and ends like this.
fn expectAnswer(fd: i32, start: []const u8, end: []const u8) !void {
    defer _ = linux.close(fd);
    var all: std.ArrayList(u8) = .empty;
    defer all.deinit(gpa);
    var space: [64 * 1024]u8 = undefined;
    while (true) {
        const piece = try loopback.receive(fd, &space);
        if (piece.len == 0) break;
        try all.appendSlice(gpa, piece);
    }
    if (!std.mem.startsWith(u8, all.items, start) or !std.mem.endsWith(u8, all.items, end)) {
        std.debug.print("{s}\n", .{all.items[0..@min(all.items.len, 1000)]});
        return error.TestUnexpectedResult;
    }
}

fn waitFor(word: *const std.atomic.Value(u32), wanted: u32) !void {
    for (0..6000) |_| {
        if (word.load(.acquire) >= wanted) return;
        per.io.sleep(10);
    }
    return error.TestTimedOut;
}

test "many clients, several threads: each gets its own answer" {
    var running: Running = try .start(.{ .threads = 3 });
    defer running.stop();
    for (0..20) |turn| {
        var clients: [8]i32 = undefined;
        for (&clients, 0..) |*client, number| {
            var buffer: [40]u8 = undefined;
            client.* = try running.ask(try std.fmt.bufPrint(&buffer, "/?name={d}", .{turn * 8 + number}));
        }
        for (clients, 0..) |client, number| {
            var buffer: [40]u8 = undefined;
            const end = try std.fmt.bufPrint(&buffer, "\r\n\r\n{d}:", .{turn * 8 + number});
            try expectAnswer(client, "HTTP/1.1 200 OK\r\n", end);
        }
    }
    try expectAnswer(try running.ask("/large"), "HTTP/1.1 200 OK\r\n", "xxxx");
    try expectAnswer(try running.ask("/stream"), "HTTP/1.1 200 OK\r\n", "0\r\n\r\n");
    try expectAnswer(try running.ask("/missing"), "HTTP/1.1 404 Not Found\r\n", "\r\n\r\nNotFound");
}

test "the queue has an end, and clients may leave while threads work for them" {
    var running: Running = try .start(.{ .threads = 1, .queue_max = 2 });
    defer running.stop();
    const handler = running.server.handler();
    // A request is at work, two wait, in this order, because they come when the thread is busy.
    const first = try running.ask("/wait");
    try waitFor(&handler.begun, 1);
    const second = try running.ask("/?name=second");
    for (0..6000) |_| {
        if (running.threads.waiting() == 1) break;
        per.io.sleep(10);
    } else return error.TestTimedOut;
    const leaving = try running.ask("/?name=leaving");
    for (0..6000) |_| {
        if (running.threads.waiting() == 2) break;
        per.io.sleep(10);
    } else return error.TestTimedOut;
    try expectAnswer(try running.ask("/"), "HTTP/1.1 503 Service Unavailable\r\n", "\r\n\r\nQueueFull");
    // Two of them leave; the worker notices the one whose request is at work, too.
    _ = linux.close(leaving);
    _ = linux.close(first);
    handler.go.set();
    try expectAnswer(second, "HTTP/1.1 200 OK\r\n", "\r\n\r\nsecond:");
    try waitFor(&handler.begun, 3);
    try expectAnswer(try running.ask("/?name=last"), "HTTP/1.1 200 OK\r\n", "\r\n\r\nlast:");
}

test "copies of requests have a bound" {
    const threads: *per.Threads = try .init(testing.allocator, .{ .threads = 0, .queue_bytes_max = 1 });
    defer threads.deinit();
    var simulation: alike.Simulation(Blocking) = try .initWith(
        testing.allocator,
        .{},
        .{ .seed = 1 },
        .{ .threads = threads },
    );
    defer simulation.deinit();
    // A single body at a time is let through, whatever its size.
    const answer = try simulation.request(.{ .method = "POST", .body = "body" });
    try testing.expectEqualStrings("nobody:body", answer.body);
    try testing.expectEqual(0, threads.held_bytes);
    threads.held_bytes = 1;
    defer threads.held_bytes = 0;
    try testing.expectEqual(503, (try simulation.request(.{})).status);
}

test "threads that end while requests wait: the clients are told" {
    var running: Running = try .start(.{ .threads = 1 });
    const handler = running.server.handler();
    const first = try running.ask("/wait");
    try waitFor(&handler.begun, 1);
    const second = try running.ask("/");
    for (0..6000) |_| {
        if (running.threads.waiting() == 1) break;
        per.io.sleep(10);
    } else return error.TestTimedOut;
    const Ending = struct {
        fn run(threads: *per.Threads) void {
            threads.deinit();
        }
    };
    const ending: std.Thread = try .spawn(.{}, Ending.run, .{running.threads});
    try expectAnswer(second, "HTTP/1.1 500 Internal Server Error\r\n", "");
    handler.go.set();
    ending.join();
    try expectAnswer(first, "HTTP/1.1 200 OK\r\n", "\r\n\r\nnobody:");
    running.server.shutdown();
    running.thread.join();
}

/// A server that any of its requests stops.
const Stoppable = struct {
    server: ?*per.Server(alike.Plain) = null,
    seen: std.atomic.Value(u32) = .init(0),

    pub fn handleRequest(self: *Stoppable, _: *per.Request, response: *per.Response) !void {
        _ = self.seen.fetchAdd(1, .monotonic);
        try response.setBody("stops");
        self.server.?.shutdown();
    }
};

/// A thread that calls a server until it is told that the server is about to be freed.
const Stopper = struct {
    server: *per.Server(alike.Plain),
    /// The thread waits for this before its first call.
    go: *per.io.Latch,
    is_over: std.atomic.Value(bool) = .init(false),
    calls: std.atomic.Value(u32) = .init(0),
    thread: std.Thread = undefined,

    fn run(stopper: *Stopper) void {
        stopper.go.wait();
        while (!stopper.is_over.load(.acquire)) {
            stopper.server.shutdown();
            _ = stopper.server.statistics();
            _ = stopper.server.port();
            _ = stopper.calls.fetchAdd(1, .acq_rel);
        }
    }
};

fn startStoppable(server: *per.Server(alike.Plain)) void {
    server.start() catch |err| std.debug.panic("{t}", .{err});
}

test "several threads stop a server while it starts, while it ends, and when start has freed it" {
    for (0..40) |turn| {
        // Finds what is used after it was freed, and what is never freed.
        var checked: std.heap.DebugAllocator(.{}) = .init;
        const server = try alike.serveWith(Stoppable, checked.allocator(), 0, stoppable_config, .{});
        var go: per.io.Latch = .{};
        var stoppers: [2]Stopper = @splat(.{ .server = server, .go = &go });
        for (&stoppers) |*one| one.thread = try .spawn(.{}, Stopper.run, .{one});
        const thread: std.Thread = try .spawn(.{}, startStoppable, .{server});
        if (turn % 2 == 0) per.io.sleep(1);
        go.set();
        thread.join();
        // `start` has freed everything that it had of the allocator, as a program that ends expects.
        try testing.expectEqual(0, server.port());
        const late = stoppers[0].calls.load(.acquire);
        try waitFor(&stoppers[0].calls, late + 2);
        for (&stoppers) |*one| one.is_over.store(true, .release);
        for (&stoppers) |*one| one.thread.join();
        try testing.expectEqual(.ok, checked.deinit());
        server.shutdown();
        server.deinit();
    }
}

test "run leaves handler and statistics there, and a request may stop its own server" {
    const server = try alike.serveWith(Stoppable, gpa, 0, stoppable_config, .{});
    defer server.deinit();
    server.handler().as(Stoppable).server = server;
    const thread: std.Thread = try .spawn(.{}, runStoppable, .{server});
    const fd = try loopback.connect(server.port());
    try loopback.send(fd, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    try expectAnswer(fd, "HTTP/1.1 200 OK\r\n", "\r\n\r\nstops");
    thread.join();
    try testing.expectEqual(1, server.handler().as(Stoppable).seen.load(.monotonic));
    try testing.expectEqual(1, server.statistics().requests);
    try testing.expect(server.port() != 0);
    // The answer went out, and nobody is let in any more.
    if (loopback.connect(server.port())) |other| {
        _ = linux.close(other);
        return error.TestStillListens;
    } else |err| try testing.expectEqual(error.NotConnected, err);
}

fn runStoppable(server: *per.Server(alike.Plain)) void {
    server.run() catch |err| std.debug.panic("{t}", .{err});
}

const stoppable_config: per.ServerConfig = .{
    .ip = "127.0.0.1",
    .worker_thread_count = 2,
    .handle_signals = false,
};
