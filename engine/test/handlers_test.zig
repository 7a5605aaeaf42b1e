//! Features of Zig handlers beside the plain one: a value in place of `init`, errors of hooks, bodies whole
//! or in pieces by request, event streams. Over the simulated network.
const std = @import("std");
const per = @import("peregrine");
const alike = @import("alike.zig");
const loopback = @import("loopback.zig");
const testing = std.testing;
const gpa = testing.allocator;

/// An object that a program has made before its server, such as a pool or a database.
const Shared = struct { greeting: []const u8, freed: usize = 0 };

const Value = struct {
    shared: *Shared,
    seen: usize = 0,

    pub fn deinit(self: *Value) void {
        self.shared.freed += 1;
    }

    pub fn handleRequest(self: *Value, request: *per.Request, response: *per.Response) !void {
        self.seen += 1;
        if (!std.mem.eql(u8, request.getPath(), "/")) return error.NotFound;
        try response.setBody(self.shared.greeting);
    }
};

test "a server takes a handler's value, keeps it where it stays, and ends it once" {
    var shared: Shared = .{ .greeting = "hello" };
    {
        var simulation: alike.Simulation(Value) = try .initWith(
            gpa,
            .{},
            .{ .seed = 1 },
            .{ .shared = &shared },
        );
        defer simulation.deinit();
        try testing.expectEqualStrings("hello", (try simulation.request(.{})).body);
        try testing.expectEqual(404, (try simulation.request(.{ .target = "/x" })).status);
        try testing.expectEqual(2, simulation.handler().seen);
        try testing.expectEqual(0, shared.freed);
    }
    try testing.expectEqual(1, shared.freed);
    // The server runs on the kernel's io. A server that fails to start leaves the value to the program.
    const server = try alike.serveWith(Value, gpa, 0, config, .{ .shared = &shared });
    try testing.expectEqual(&shared, server.handler().as(Value).shared);
    try testing.expectError(
        error.AddressInUse,
        alike.serveWith(Value, gpa, server.port(), config, .{ .shared = &shared }),
    );
    try testing.expectEqual(1, shared.freed);
    server.deinit();
    try testing.expectEqual(2, shared.freed);
}

const config: per.ServerConfig = .{ .ip = "127.0.0.1", .worker_thread_count = 1, .handle_signals = false };

/// A handler that fails as its path says, where its path says.
fn fail(detached: *?per.Detached, request: *per.Request, response: *per.Response) !void {
    try response.addNewHeader("X-Prepared", "yes");
    try response.setBody("prepared");
    const path = request.getPath();
    if (std.mem.eql(u8, path, "/missing")) return error.NotFound;
    if (std.mem.eql(u8, path, "/middle")) _ = try response.write("some");
    if (std.mem.eql(u8, path, "/detached")) detached.* = try response.detach();
    return error.Unforeseen;
}

const Failing = struct {
    detached: ?per.Detached = null,

    pub fn handleRequest(self: *Failing, request: *per.Request, response: *per.Response) !void {
        return fail(&self.detached, request, response);
    }
};

const Explaining = struct {
    detached: ?per.Detached = null,
    told: usize = 0,
    last: ?anyerror = null,

    pub fn handleRequest(self: *Explaining, request: *per.Request, response: *per.Response) !void {
        return fail(&self.detached, request, response);
    }

    pub fn handleError(
        self: *Explaining,
        request: *per.Request,
        response: *per.Response,
        err: anyerror,
    ) void {
        self.told += 1;
        self.last = err;
        if (request.findHeader("x-leave") != null) return;
        if (request.findHeader("x-stream") != null) {
            _ = response.write("one ") catch return;
            _ = response.write("two") catch return;
            return;
        }
        if (err == error.Unforeseen) response.status = .bad_gateway;
        response.setBody(@errorName(err)) catch {};
    }
};

test "an error of a handler is answered with its status, or the connection ends" {
    var simulation: alike.Simulation(Failing) = try .initWith(gpa, .{}, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    const missing = try simulation.request(.{ .target = "/missing" });
    try testing.expectEqual(404, missing.status);
    try testing.expectEqualStrings("404 Not Found", missing.body);
    try testing.expectEqual(null, missing.header("x-prepared"));
    try testing.expectEqual(500, (try simulation.request(.{ .target = "/wrong" })).status);
    try testing.expectEqual(500, (try simulation.request(.{ .target = "/detached" })).status);
    simulation.handler().detached.?.drop();
    try testing.expectError(error.NoResponse, simulation.request(.{ .target = "/middle" }));
    try testing.expectEqual(0, simulation.worker().exchanges.count);
}

test "the error hook makes the answer, unless there is one" {
    var simulation: alike.Simulation(Explaining) = try .initWith(gpa, .{}, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    const missing = try simulation.request(.{ .target = "/missing" });
    try testing.expectEqual(404, missing.status);
    try testing.expectEqualStrings("NotFound", missing.body);
    try testing.expectEqual(null, missing.header("x-prepared"));
    const wrong = try simulation.request(.{ .target = "/wrong" });
    try testing.expectEqual(502, wrong.status);
    try testing.expectEqualStrings("Unforeseen", wrong.body);
    const left = try simulation.request(.{ .target = "/missing", .headers = &.{try .init("X-Leave", "1")} });
    try testing.expectEqualStrings("404 Not Found", left.body);
    const streamed = try simulation.request(.{
        .target = "/missing",
        .headers = &.{try .init("X-Stream", "1")},
    });
    try testing.expectEqual(404, streamed.status);
    try testing.expectEqualStrings("one two", streamed.body);
    try testing.expectEqual(502, (try simulation.request(.{ .target = "/detached" })).status);
    simulation.handler().detached.?.drop();
    try testing.expectError(error.NoResponse, simulation.request(.{ .target = "/middle" }));
    try testing.expectEqual(6, simulation.handler().told);
    try testing.expectEqual(error.Unforeseen, simulation.handler().last.?);
    try testing.expectEqual(0, simulation.worker().exchanges.count);
    try testing.expectEqual(0, simulation.worker().pool.taken_bytes);
}

/// Takes bodies of /whole in one, all others in pieces.
const Bodies = struct {
    calls: usize = 0,
    bytes: usize = 0,
    aborts: usize = 0,

    pub fn handleRequest(_: *Bodies, request: *per.Request, response: *per.Response) !void {
        if (std.mem.eql(u8, request.getPath(), "/whole")) request.gatherBody();
        if (!request.hasBody()) try response.setBody("none");
    }

    pub fn handleBody(
        self: *Bodies,
        request: *per.Request,
        response: *per.Response,
        piece: []const u8,
        last: bool,
    ) !void {
        self.calls += 1;
        self.bytes += piece.len;
        if (!last) return;
        try response.setBody(request.body);
        try testing.expectEqualStrings(request.body, piece);
    }

    pub fn handleAbort(self: *Bodies, _: *per.Request, _: per.Reason) void {
        self.aborts += 1;
    }
};

test "a body comes whole or in pieces, as the handler says for each request" {
    const chunked = "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n5\r\ndefgh\r\n0\r\n\r\n";
    for (0..10) |seed| {
        var simulation: alike.Simulation(Bodies) = try .initWith(gpa, .{
            .request_buffer_size = 20_000,
        }, .{ .seed = seed, .window_bytes = 3000 }, .{});
        defer simulation.deinit();
        const handler = simulation.handler();
        const client = try simulation.connect();
        const long: [20_000]u8 = @splat('x');
        const whole = try client.request(.{ .method = "POST", .target = "/whole", .body = &long });
        try testing.expectEqualStrings(&long, whole.body);
        try testing.expectEqual(1, handler.calls);
        try client.send("POST /whole HTTP/1.1\r\nHost: h\r\n" ++ chunked);
        try simulation.settle();
        try testing.expectEqualStrings("abcdefgh", (try client.nextAnswer(true)).?.body);
        try testing.expectEqual(2, handler.calls);
        try testing.expectEqualStrings("none", (try client.request(.{ .target = "/whole" })).body);
        handler.* = .{};
        const pieces = try client.request(.{ .method = "POST", .target = "/pieces", .body = &long });
        try testing.expectEqualStrings("", pieces.body);
        try testing.expectEqual(20_000, handler.bytes);
        try testing.expect(handler.calls > 1);
        // Too long: announced, and found out.
        const longer: [20_001]u8 = @splat('x');
        handler.* = .{};
        try testing.expectEqual(
            413,
            (try simulation.request(.{ .method = "POST", .target = "/whole", .body = &longer })).status,
        );
        const other = try simulation.connect();
        try other.send("POST /whole HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4e21\r\n");
        try other.send(&longer);
        try simulation.settle();
        try testing.expectEqual(413, (try other.nextAnswer(true)).?.status);
        try testing.expectEqual(0, handler.calls);
        // The client leaves in the middle.
        const leaving = try simulation.connect();
        try leaving.send("POST /whole HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
        try simulation.settle();
        leaving.peer.reset();
        try simulation.settle();
        try testing.expectEqual(1, handler.aborts);
        try testing.expectEqual(0, simulation.worker().exchanges.count);
        try testing.expectEqual(0, simulation.worker().pool.taken_bytes);
    }
}

test "a client that waits for 100 Continue gets it, or 413" {
    var simulation: alike.Simulation(Bodies) = try .initWith(gpa, .{
        .request_buffer_size = 10,
    }, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    const head = "POST /whole HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: ";
    try testing.expect(std.mem.startsWith(
        u8,
        try simulation.exchange(head ++ "10\r\n\r\n"),
        "HTTP/1.1 100 Continue\r\n\r\n",
    ));
    const refused = try simulation.exchange(head ++ "11\r\n\r\n");
    try testing.expect(std.mem.startsWith(u8, refused, "HTTP/1.1 413 "));
}

const Ticker = struct {
    stream: ?per.EventStream = null,
    gone: usize = 0,
    stops: usize = 0,
    seen: [20]u8 = undefined,
    seen_len: usize = 0,

    pub fn handleRequest(self: *Ticker, request: *per.Request, response: *per.Response) !void {
        if (per.EventStream.lastEventId(request)) |id| {
            @memcpy(self.seen[0..id.len], id);
            self.seen_len = id.len;
        }
        try response.addNewHeader("Access-Control-Allow-Origin", "*");
        self.stream = try .open(response, .{ .retry_ms = 2000, .heartbeat_ms = 10_000 });
    }

    pub fn handleAbort(self: *Ticker, _: *per.Request, _: per.Reason) void {
        self.gone += 1;
        self.stream.?.end();
    }

    pub fn handleStop(self: *Ticker) void {
        self.stops += 1;
        self.stream.?.end();
    }
};

test "an event stream: events, heartbeats, the id of a client that comes back, and its end" {
    var simulation: alike.Simulation(Ticker) = try .initWith(gpa, .{}, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    const handler = simulation.handler();
    const client = try simulation.connect();
    try client.send("GET / HTTP/1.1\r\nHost: h\r\nLast-Event-ID: 41\r\n\r\n");
    try simulation.settle();
    try testing.expectEqualStrings("41", handler.seen[0..handler.seen_len]);
    try testing.expect(std.mem.find(u8, client.text(), "Content-Type: text/event-stream\r\n") != null);
    try testing.expect(std.mem.find(u8, client.text(), "Access-Control-Allow-Origin: *\r\n") != null);
    try testing.expect(std.mem.find(u8, client.text(), "retry: 2000\n\n") != null);
    try testing.expectEqual(0, std.mem.count(u8, client.text(), "\n:\n\n"));
    try simulation.advance(11_000);
    try simulation.advance(11_000);
    try testing.expectEqual(2, std.mem.count(u8, client.text(), "\n:\n\n"));
    try handler.stream.?.send(.{ .data = "one\ntwo", .id = "42" });
    const long: [3000]u8 = @splat('x');
    try handler.stream.?.send(.{ .data = &long });
    try testing.expectError(error.InvalidEvent, handler.stream.?.send(.{ .data = "", .name = "a\nb" }));
    handler.stream.?.end();
    try simulation.settle();
    const answer = (try client.nextAnswer(true)).?;
    try testing.expect(std.mem.startsWith(u8, answer.body, "retry: 2000\n\n:\n\n:\n\n"));
    try testing.expect(std.mem.endsWith(
        u8,
        answer.body,
        "id: 42\ndata: one\ndata: two\n\ndata: " ++ long ++ "\n\n",
    ));
    // A client that leaves: the handler hears of it, and events for it are no mistake.
    const other = try simulation.connect();
    try other.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    try simulation.settle();
    other.peer.reset();
    try handler.stream.?.send(.{ .data = "late" });
    try simulation.settle();
    try testing.expectEqual(1, handler.gone);
    try testing.expectEqual(0, simulation.worker().exchanges.count);
    try testing.expectEqual(0, simulation.worker().pool.taken_bytes);
}

test "a handler hears that its server stops, so that nobody waits for streams without an end" {
    var simulation: alike.Simulation(Ticker) = try .initWith(gpa, .{}, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    const client = try simulation.connect();
    try client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    try simulation.settle();
    simulation.server.shutdown();
    try simulation.settle();
    try testing.expectEqual(1, simulation.handler().stops);
    try testing.expectEqual(0, simulation.handler().gone);
    try testing.expect((try client.nextAnswer(true)) != null);
    try testing.expectEqual(0, simulation.worker().exchanges.count);
}

/// A server that runs in a thread of its own.
const Stopped = struct {
    ended: std.atomic.Value(bool) = .init(false),

    fn run(stopped: *Stopped, server: *per.Server(alike.Plain)) void {
        server.start() catch |err| std.debug.panic("{t}", .{err});
        stopped.ended.store(true, .release);
    }
};

test "a server ends when its last response does, also if what is left of it was only to be sent" {
    const server = try alike.serveWith(Ticker, std.heap.smp_allocator, 0, .{
        .ip = "127.0.0.1",
        .worker_thread_count = 1,
        .handle_signals = false,
        .stop_ms = 0, // waits for ever
    }, .{});
    const port = server.port();
    var stopped: Stopped = .{};
    const thread: std.Thread = try .spawn(.{}, Stopped.run, .{ &stopped, server });
    const client = try loopback.connect(port);
    try loopback.send(client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    var space: [4096]u8 = undefined;
    _ = try loopback.receive(client, &space);
    // The client ends its sending side. The server notices, and goes on answering.
    _ = std.os.linux.shutdown(client, std.os.linux.SHUT.WR);
    per.io.sleep(50);
    server.shutdown();
    for (0..6000) |_| {
        if (stopped.ended.load(.acquire)) break;
        per.io.sleep(10);
    } else std.debug.panic("the server waits for nobody", .{});
    thread.join();
    _ = std.os.linux.close(client);
}

test "statistics of a running server" {
    var shared: Shared = .{ .greeting = "hello" };
    var simulation: alike.Simulation(Value) = try .initWith(gpa, .{}, .{ .seed = 1 }, .{ .shared = &shared });
    defer simulation.deinit();
    for (0..3) |_| _ = try simulation.request(.{});
    const statistics = simulation.server.statistics();
    try testing.expectEqual(3, statistics.requests);
    try testing.expectEqual(3, statistics.accepted);
    try testing.expectEqual(3, statistics.connections);
    try testing.expectEqual(0, statistics.exchanges);
    try testing.expect(statistics.memory_bytes > 0);
}

/// Has a page for 404 and 4xx of the engine, and none for the rest.
const Paged = struct {
    dir: *per.util.DirServer,

    const page = "<!doctype html><title>Oh</title>";

    pub fn deinit(self: *Paged) void {
        self.dir.deinit();
    }

    pub fn handleErrorPage(_: *const Paged, status: per.Status) ?per.ErrorPage {
        return switch (status) {
            .not_found, .bad_request, .content_too_large, .method_not_allowed => .{ .body = page },
            .forbidden => .{ .content_type = "text/plain\r\nX: y", .body = page },
            else => null,
        };
    }

    pub fn handleRequest(self: *Paged, request: *per.Request, response: *per.Response) !void {
        const path = request.getPath();
        if (std.mem.eql(u8, path, "/missing")) return error.NotFound;
        if (std.mem.eql(u8, path, "/status")) return response.answerStatus(.not_found);
        if (std.mem.eql(u8, path, "/forbidden")) return error.Forbidden;
        if (std.mem.eql(u8, path, "/gone")) return error.Gone;
        if (std.mem.eql(u8, path, "/fine")) return;
        if (request.method == .POST) return response.setBody("posted");
        try self.dir.serve(request, response);
    }
};

test "error pages: of errors, statuses, folders and the engine's own refusals" {
    var tmp = testing.tmpDir(.{});
    defer tmp.cleanup();
    const path = try tmp.dir.realPathFileAlloc(testing.io, ".", gpa);
    defer gpa.free(path);
    const dir: *per.util.DirServer = try .init(gpa, path, .{});
    var simulation: alike.Simulation(Paged) = try .initWith(
        gpa,
        .{ .request_buffer_size = 10 },
        .{ .seed = 1 },
        .{ .dir = dir },
    );
    defer simulation.deinit();
    const long: [11]u8 = @splat('x');
    for ([_]struct { u16, []const u8, per.Question }{
        .{ 404, Paged.page, .{ .target = "/missing" } },
        .{ 404, Paged.page, .{ .target = "/status" } },
        .{ 404, Paged.page, .{ .target = "/nowhere" } },
        .{ 404, "", .{ .target = "/nowhere", .method = "HEAD" } },
        .{ 405, Paged.page, .{ .target = "/nowhere", .method = "PUT" } },
        .{ 403, "403 Forbidden", .{ .target = "/forbidden" } },
        .{ 410, "410 Gone", .{ .target = "/gone" } },
        .{ 200, "", .{ .target = "/fine" } },
        .{ 200, "posted", .{ .target = "/", .method = "POST", .body = long[0..10] } },
        // The engine's: no handler hears of these.
        .{ 413, Paged.page, .{ .target = "/", .method = "POST", .body = &long } },
        .{ 400, Paged.page, .{ .headers = &.{try .init("Transfer-Encoding", "chunked, chunked")} } },
        .{ 400, "", .{ .method = "HEAD", .headers = &.{try .init("Host", "another")} } },
        .{ 501, "This method is not implemented here.\n", .{ .method = "CONNECT", .target = "h:1" } },
    }) |case| {
        const answer = try simulation.request(case[2]);
        errdefer std.debug.print("{s}: {d} {s}\n", .{ case[2].target, answer.status, answer.body });
        try testing.expectEqual(case[0], answer.status);
        if (case[0] != 501) try testing.expectEqualStrings(case[1], answer.body);
        if (case[1].ptr == Paged.page.ptr) {
            try testing.expectEqualStrings("text/html; charset=utf-8", answer.header("content-type").?);
        }
        if (std.mem.eql(u8, case[2].method, "HEAD")) {
            var digits: [20]u8 = undefined;
            const length = try std.fmt.bufPrint(&digits, "{d}", .{Paged.page.len});
            try testing.expectEqualStrings(length, answer.header("content-length").?);
        }
    }
}
