//! Bodies of responses that routes of `peregrine.web` write piece by piece, over the simulated network: slow
//! clients, errors, clients that leave, threads.
const std = @import("std");
const per = @import("peregrine");
const web = @import("peregrine.web");
const alike = @import("alike.zig");
const testing = std.testing;
const gpa = testing.allocator;

const App = struct {
    /// Calls of the producer.
    calls: usize = 0,
    ended: usize = 0,
    detached: bool = false,
    threads: ?*per.Threads = null,

    const Routes = web.Router(App, .{ .limits = .{ .piece_bytes = 1024 } }, &.{
        .produce("GET", "/lines/:count", begin, writeLines),
        .produce("POST", "/echo", begin, echo),
        .produce("GET", "/nothing", begin, writeNothing),
        .produce("GET", "/fails/:count", begin, fail),
        .produce("GET", "/sent", send, writeNothing),
        .produce("GET", "/large", begin, writeLarge),
        .group("/locked", &.{refuse}, &.{.produce("GET", "", begin, writeNothing)}),
    });

    const Lines = struct { next: u32 = 0 };

    pub fn handleRequest(app: *App, request: *per.Request, response: *per.Response) !void {
        if (app.threads) |threads| return threads.run(app, handleInThread, request, response);
        return Routes.handle(app, request, response);
    }

    fn handleInThread(app: *App, request: *per.Request, response: *per.Response) !void {
        return Routes.handle(app, request, response);
    }

    pub fn handleDrain(app: *App, request: *per.Request, response: *per.Response) !void {
        return Routes.handleDrain(app, request, response);
    }

    pub fn handleAbort(app: *App, request: *per.Request, _: per.Reason) void {
        if (Routes.contextOf(request)) |context| if (context.user != null) {
            app.ended += 1;
        };
    }

    fn begin(_: *App, context: *web.Context) !void {
        const lines = try context.arena().create(Lines);
        lines.* = .{};
        context.user = lines;
        try context.response.addNewHeader("Content-Type", "text/plain");
    }

    fn send(_: *App, context: *web.Context) !void {
        try context.text("no more");
        try context.response.send();
    }

    fn refuse(_: *App, context: *web.Context, _: web.Next(App)) !void {
        try context.text("locked");
    }

    fn writeLines(app: *App, context: *web.Context, body: *std.Io.Writer) !web.Progress {
        app.calls += 1;
        const lines: *Lines = @ptrCast(@alignCast(context.user.?));
        const count = try context.number(u32, "count");
        for (0..10) |_| {
            if (lines.next == count) return .done;
            lines.next += 1;
            try body.print("line {d}\n", .{lines.next});
        }
        return .more;
    }

    fn echo(_: *App, context: *web.Context, body: *std.Io.Writer) !web.Progress {
        try body.writeAll(context.request.body);
        try body.splatByteAll('!', 3000);
        return .done;
    }

    fn writeNothing(_: *App, _: *web.Context, _: *std.Io.Writer) !web.Progress {
        return .more;
    }

    fn fail(_: *App, context: *web.Context, body: *std.Io.Writer) !web.Progress {
        try body.splatByteAll('x', try context.number(usize, "count"));
        return error.Conflict;
    }

    fn writeLarge(app: *App, _: *web.Context, body: *std.Io.Writer) !web.Progress {
        app.calls += 1;
        try body.splatByteAll('y', 2_000_000);
        return .done;
    }
};

const marks: [3000]u8 = @splat('!');

fn linesOf(count: usize) ![]u8 {
    var all: std.Io.Writer.Allocating = .init(gpa);
    errdefer all.deinit();
    for (1..count + 1) |number| try all.writer.print("line {d}\n", .{number});
    return all.toOwnedSlice();
}

test "a body is produced as fast as the client takes it" {
    const count = 200_000;
    const expected = try linesOf(count);
    defer gpa.free(expected);
    for (0..5) |seed| {
        var simulation: alike.Simulation(App) = try .initWith(gpa, .{}, .{
            .seed = seed,
            .window_bytes = 4000,
        }, .{});
        defer simulation.deinit();
        const app = simulation.handler();
        const client = try simulation.connect();
        client.paused = true;
        try client.send("GET /lines/200000 HTTP/1.1\r\nHost: h\r\n\r\n");
        try simulation.settle();
        // The memory that a worker keeps for one client, and not the whole body.
        const calls = app.calls;
        try testing.expect(calls > 100 and calls < 1000);
        try simulation.advance(1000);
        try testing.expectEqual(calls, app.calls);
        // Another request lies where the first one lay when it came.
        try testing.expectEqual(200, (try simulation.request(.{ .target = "/lines/0" })).status);
        client.paused = false;
        try simulation.settle();
        const answer = (try client.nextAnswer(true)).?;
        try testing.expectEqual(200, answer.status);
        try testing.expectEqual(null, answer.header("content-length"));
        try testing.expectEqualStrings(expected, answer.body);
        try testing.expectEqual(count / 10 + 2, app.calls);
        try testing.expectEqual(0, app.ended);
        // The connection and the route's value are in order for the next one.
        const next = try client.request(.{ .target = "/lines/3" });
        try testing.expectEqualStrings("line 1\nline 2\nline 3\n", next.body);
    }
}

test "a short body has its length, HEAD has no body, a request's body may be there" {
    var simulation: alike.Simulation(App) = try .initWith(gpa, .{}, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    const client = try simulation.connect();
    const short = try client.request(.{ .target = "/lines/3" });
    try testing.expectEqualStrings("21", short.header("content-length").?);
    const empty = try client.request(.{ .target = "/lines/0" });
    try testing.expectEqualStrings("0", empty.header("content-length").?);
    const calls = simulation.handler().calls;
    const head = try client.request(.{ .method = "HEAD", .target = "/lines/3" });
    try testing.expectEqualStrings("text/plain", head.header("content-type").?);
    try testing.expectEqual(null, head.header("content-length"));
    try testing.expectEqual(calls, simulation.handler().calls);
    const sent = try client.request(.{ .target = "/sent" });
    try testing.expectEqualStrings("no more", sent.body);
    const locked = try client.request(.{ .target = "/locked" });
    try testing.expectEqualStrings("locked", locked.body);
    const echoed = try client.request(.{ .method = "POST", .target = "/echo", .body = "loud" });
    try testing.expectEqualStrings("loud" ++ marks, echoed.body);
}

test "errors of a producer: a status before the first piece, a cut connection behind it" {
    var simulation: alike.Simulation(App) = try .initWith(gpa, .{
        .response_body_buffer_size = 1_000_000,
    }, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    const client = try simulation.connect();
    for ([_]struct { []const u8, u16 }{
        .{ "/nothing", 500 }, .{ "/fails/10", 409 }, .{ "/lines/none", 404 },
    }) |case| {
        const answer = try client.request(.{ .target = case[0] });
        try testing.expectEqual(case[1], answer.status);
        try testing.expect(std.mem.find(u8, answer.body, "xxx") == null);
    }
    for ([_][]const u8{ "/fails/10000", "/large" }) |target| {
        const cut = try simulation.connect();
        try testing.expectError(error.NoResponse, cut.request(.{ .target = target }));
        try testing.expect(cut.ended() != null);
    }
    try testing.expectEqual(0, simulation.worker().exchanges.count);
}

test "a client that leaves in the middle of a body is told to handleAbort, with the context" {
    const network: per.io.Sim.Options = .{ .seed = 1, .window_bytes = 4000 };
    var simulation: alike.Simulation(App) = try .initWith(gpa, .{}, network, .{});
    defer simulation.deinit();
    const app = simulation.handler();
    const client = try simulation.connect();
    client.paused = true;
    try client.send("GET /lines/200000 HTTP/1.1\r\nHost: h\r\n\r\n");
    try simulation.settle();
    const calls = app.calls;
    try simulation.advance(simulation.server.config.limits.write_ms + 1000);
    try testing.expectEqual(1, app.ended);
    try testing.expectEqual(calls, app.calls);
    try testing.expectEqual(0, simulation.worker().exchanges.count);
}

test "the same routes in threads" {
    const threads = try per.Threads.init(gpa, .{ .threads = 0 });
    defer threads.deinit();
    var simulation: alike.Simulation(App) = try .initWith(gpa, .{}, .{ .seed = 1 }, .{ .threads = threads });
    defer simulation.deinit();
    const expected = try linesOf(2000);
    defer gpa.free(expected);
    const client = try simulation.connect();
    const long = try client.request(.{ .target = "/lines/2000" });
    try testing.expectEqualStrings(expected, long.body);
    const short = try client.request(.{ .target = "/lines/2" });
    try testing.expectEqualStrings("14", short.header("content-length").?);
    const echoed = try client.request(.{ .method = "POST", .target = "/echo", .body = "loud" });
    try testing.expectEqualStrings("loud" ++ marks, echoed.body);
    try testing.expectEqual(409, (try client.request(.{ .target = "/fails/10" })).status);
}
