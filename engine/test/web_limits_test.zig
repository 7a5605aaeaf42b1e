//! Limits and timeouts of single routes of `peregrine.web`, over the simulated network.
const std = @import("std");
const per = @import("peregrine");
const web = @import("peregrine.web");
const testing = std.testing;
const gpa = testing.allocator;

const App = struct {
    detached: ?per.Detached = null,
    aborted: ?per.Reason = null,
    pieces: usize = 0,
    threads: ?*per.Threads = null,

    const Routes = web.Router(App, .{}, &.{
        .post("/free", size),
        .limit(.{ .body_bytes_max = 100, .idle_ms = 2000 }, &.{
            .post("/small", size),
            .group("/stopped", &.{answerAtOnce}, &.{.stream("POST", "", begin, takePiece)}),
            .get("/late", detach),
            .stream("POST", "/pieces", begin, takePiece),
            .produce("GET", "/produced", begin, produce),
            .group("/inner", &.{pass}, &.{
                .limit(.{ .body_bytes_max = 3_000_000 }, &.{.post("/large", size)}),
                .limit(.{ .idle_ms = 0 }, &.{.get("/ever", detach)}),
            }),
        }),
    });

    pub fn handleRequest(app: *App, request: *per.Request, response: *per.Response) !void {
        if (app.threads) |threads| return threads.run(app, handleInThread, request, response);
        return Routes.handle(app, request, response);
    }

    fn handleInThread(app: *App, request: *per.Request, response: *per.Response) !void {
        return Routes.handle(app, request, response);
    }

    pub fn handleBody(
        app: *App,
        request: *per.Request,
        response: *per.Response,
        piece: []const u8,
        last: bool,
    ) !void {
        return Routes.handleBody(app, request, response, piece, last);
    }

    pub fn handleDrain(app: *App, request: *per.Request, response: *per.Response) !void {
        return Routes.handleDrain(app, request, response);
    }

    pub fn handleAbort(app: *App, _: *per.Request, reason: per.Reason) void {
        app.aborted = reason;
    }

    fn pass(app: *App, context: *web.Context, next: web.Next(App)) !void {
        return next.run(app, context);
    }

    fn answerAtOnce(_: *App, context: *web.Context, _: web.Next(App)) !void {
        _ = try context.response.write("no");
    }

    fn begin(_: *App, _: *web.Context) void {}

    fn size(_: *App, context: *web.Context) !void {
        try context.sendJson(context.request.body.len);
    }

    fn detach(app: *App, context: *web.Context) !void {
        app.detached = try context.response.detach();
    }

    fn takePiece(app: *App, context: *web.Context, piece: []const u8, last: bool) !void {
        app.pieces += piece.len;
        if (last) try context.text("all");
    }

    fn produce(_: *App, _: *web.Context, body: *std.Io.Writer) !web.Progress {
        try body.splatByteAll('x', 1000);
        return .more;
    }
};

fn post(client: *per.Simulation(App).Client, target: []const u8, len: usize, chunked: bool) !u16 {
    const body = try gpa.alloc(u8, len);
    defer gpa.free(body);
    @memset(body, 'a');
    if (!chunked) {
        return (try client.request(.{ .method = "POST", .target = target, .body = body })).status;
    }
    var bytes: std.Io.Writer.Allocating = .init(gpa);
    defer bytes.deinit();
    try bytes.writer.print("POST {s} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", .{target});
    try bytes.writer.print("{x}\r\n{s}\r\n0\r\n\r\n", .{ len, body });
    try client.send(bytes.written());
    try client.simulation.settle();
    return ((try client.nextAnswer(true)) orelse return error.NoResponse).status;
}

test "bodies are as large as their routes say, counted or chunked" {
    for ([_]struct { []const u8, usize, u16 }{
        .{ "/small", 100, 200 },
        .{ "/small", 101, 413 },
        .{ "/pieces", 100, 200 },
        .{ "/pieces", 101, 413 },
        .{ "/free", 1000, 200 },
        .{ "/free", 2_000_000, 413 }, // what bodies are put together for
        .{ "/inner/large", 3_000_000, 200 },
        .{ "/inner/large", 3_000_001, 413 },
    }) |case| for ([_]bool{ false, true }) |chunked| {
        var simulation: per.Simulation(App) = try .initWith(gpa, .{}, .{ .seed = 1 }, .{});
        defer simulation.deinit();
        const client = try simulation.connect();
        try testing.expectEqual(case[2], try post(client, case[0], case[1], chunked));
    };
}

test "a body that is announced too long is refused before it comes" {
    var simulation: per.Simulation(App) = try .initWith(gpa, .{}, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    for ([_][]const u8{ "/small", "/pieces" }) |target| {
        const client = try simulation.connect();
        var buffer: [200]u8 = undefined;
        try client.send(try std.fmt.bufPrint(
            &buffer,
            "POST {s} HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 101\r\n\r\n",
            .{target},
        ));
        try simulation.settle();
        try testing.expect(std.mem.startsWith(u8, client.text(), "HTTP/1.1 413"));
    }
    try testing.expectEqual(0, simulation.handler().pieces);
}

test "an action that middleware has kept from its request gets no piece" {
    var simulation: per.Simulation(App) = try .initWith(gpa, .{}, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    const client = try simulation.connect();
    const answer = try client.request(.{ .method = "POST", .target = "/stopped", .body = "abc" });
    try testing.expectEqualStrings("no", answer.body);
    try testing.expectEqual(0, simulation.handler().pieces);
}

test "a request without an answer is a 504 after its route's time, and its handler is told" {
    const threads = try per.Threads.init(gpa, .{ .threads = 0 });
    defer threads.deinit();
    for ([_]?*per.Threads{ null, threads }) |with| {
        var simulation: per.Simulation(App) = try .initWith(gpa, .{}, .{ .seed = 1 }, .{ .threads = with });
        defer simulation.deinit();
        const app = simulation.handler();
        const client = try simulation.connect();
        try client.send("GET /late HTTP/1.1\r\nHost: h\r\n\r\n");
        try simulation.settle();
        try simulation.advance(1500);
        try testing.expectEqual(0, client.text().len);
        try simulation.advance(1000);
        const answer = (try client.nextAnswer(true)).?;
        try testing.expectEqual(504, answer.status);
        try testing.expectEqual(.idle_timeout, app.aborted);
        // The answer comes to nobody.
        try app.detached.?.answer(.{ .body = "late" });
        try simulation.settle();
        try testing.expectEqual(0, simulation.worker().exchanges.count);
    }
}

test "in time it is answered, and without a limit it waits" {
    var simulation: per.Simulation(App) = try .initWith(gpa, .{}, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    const app = simulation.handler();
    const client = try simulation.connect();
    for ([_]struct { []const u8, u64 }{ .{ "/late", 1500 }, .{ "/inner/ever", 100_000 } }) |case| {
        var buffer: [100]u8 = undefined;
        try client.send(try std.fmt.bufPrint(&buffer, "GET {s} HTTP/1.1\r\nHost: h\r\n\r\n", .{case[0]}));
        try simulation.settle();
        try simulation.advance(case[1]);
        try app.detached.?.answer(.{ .body = "in time" });
        try simulation.settle();
        try testing.expectEqualStrings("in time", (try client.nextAnswer(true)).?.body);
    }
    try testing.expectEqual(null, app.aborted);
}

test "slow bodies: of a request a 504, of a response a cut connection" {
    var simulation: per.Simulation(App) = try .initWith(gpa, .{}, .{ .seed = 1, .window_bytes = 4000 }, .{});
    defer simulation.deinit();
    const app = simulation.handler();
    const sender = try simulation.connect();
    try sender.send("POST /pieces HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
    try simulation.settle();
    try simulation.advance(2500);
    try testing.expect(std.mem.startsWith(u8, sender.text(), "HTTP/1.1 504"));
    const reader = try simulation.connect();
    reader.paused = true;
    app.aborted = null;
    try reader.send("GET /produced HTTP/1.1\r\nHost: h\r\n\r\n");
    try simulation.settle();
    try simulation.advance(1500);
    try testing.expectEqual(null, app.aborted);
    try simulation.advance(1000);
    try testing.expectEqual(.idle_timeout, app.aborted);
    reader.paused = false;
    try simulation.settle();
    try testing.expectError(error.InvalidResponse, unless(reader));
    try testing.expectEqual(0, simulation.worker().exchanges.count);
}

fn unless(reader: *per.Simulation(App).Client) !void {
    if (try reader.nextAnswer(true) == null) return error.InvalidResponse;
}
