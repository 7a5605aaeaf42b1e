//! Responses that `peregrine.web` compresses, over the simulated network.
const std = @import("std");
const per = @import("peregrine");
const web = @import("peregrine.web");
const alike = @import("alike.zig");
const testing = std.testing;
const gpa = testing.allocator;

const App = struct {
    threads: ?*per.Threads = null,

    const Routes = web.Router(App, .{}, &.{
        .group("", &.{web.compress(App, .{ .bytes_max = 300_000 })}, &.{
            .get("/text/:len", text),
            .get("/noise", noise),
            .get("/fields", fields),
            .get("/later", detach),
            .produce("GET", "/lines/:count", begin, writeLines),
            .produce("GET", "/flushed", begin, writeFlushed),
        }),
        .group("/all", &.{web.compress(App, .{ .authenticated = true })}, &.{.get("/:len", text)}),
    });

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

    fn text(_: *App, context: *web.Context) !void {
        const bytes = try context.arena().alloc(u8, try context.number(usize, "len"));
        for (bytes, 0..) |*byte, at| byte.* = "0123456789"[at % 10];
        try context.text(bytes);
    }

    fn noise(_: *App, context: *web.Context) !void {
        var random: std.Random.DefaultPrng = .init(1);
        const bytes = try context.arena().alloc(u8, 5000);
        random.random().bytes(bytes);
        try context.text(bytes);
    }

    /// The query names a field of the response.
    fn fields(_: *App, context: *web.Context) !void {
        const name = try context.query("name") orelse "X-Nothing";
        const bytes = try context.arena().alloc(u8, 5000);
        @memset(bytes, 'a');
        if (!std.mem.eql(u8, name, "Content-Type")) {
            try context.response.addNewHeader("Content-Type", "application/vnd.x+json; charset=utf-8");
        }
        try context.response.addNewHeader(name, try context.query("value") orelse "");
        try context.response.setBody(bytes);
    }

    fn detach(_: *App, context: *web.Context) !void {
        const detached = try context.response.detach();
        try detached.answer(.{ .body = "0123456789" });
    }

    fn begin(_: *App, context: *web.Context) !void {
        const next = try context.arena().create(u32);
        next.* = 0;
        context.user = next;
        try context.response.addNewHeader("Content-Type", "text/plain");
    }

    fn writeLines(_: *App, context: *web.Context, body: *std.Io.Writer) !web.Progress {
        const next: *u32 = @ptrCast(@alignCast(context.user.?));
        const count = try context.number(u32, "count");
        for (0..10) |_| {
            if (next.* == count) return .done;
            next.* += 1;
            try body.print("line {d}\n", .{next.* *% 2_654_435_761});
        }
        return .more;
    }

    fn writeFlushed(_: *App, context: *web.Context, body: *std.Io.Writer) !web.Progress {
        const next: *u32 = @ptrCast(@alignCast(context.user.?));
        next.* += 1;
        if (next.* == 200_000) return .done;
        try body.print("{d},", .{next.*});
        try body.flush();
        return .more;
    }
};

const Simulation = alike.Simulation(App);

fn get(client: *Simulation.Client, target: []const u8, headers: []const per.Header) !per.Answer {
    return client.request(.{ .target = target, .headers = headers });
}

const gzip: per.Header = .{ .name = "Accept-Encoding", .text = "br, gzip" };

fn expectPlain(expected: []const u8, answer: per.Answer) !void {
    var memory: std.heap.ArenaAllocator = .init(gpa);
    defer memory.deinit();
    try testing.expectEqualStrings("gzip", answer.header("content-encoding").?);
    var in: std.Io.Reader = .fixed(answer.body);
    const window = try memory.allocator().alloc(u8, std.compress.flate.max_window_len);
    var stream: std.compress.flate.Decompress = .init(&in, .gzip, window);
    const plain = try stream.reader.allocRemaining(memory.allocator(), .unlimited);
    try testing.expectEqualStrings(expected, plain);
    if (answer.header("content-length")) |text| {
        try testing.expectEqual(answer.body.len, try std.fmt.parseInt(usize, text, 10));
    }
}

test "a body is compressed for clients that want it, if it is long enough and not too long" {
    const threads = try per.Threads.init(gpa, .{ .threads = 0 });
    defer threads.deinit();
    for ([_]?*per.Threads{ null, threads }) |with| {
        var simulation: Simulation = try .initWith(gpa, .{}, .{ .seed = 1 }, .{ .threads = with });
        defer simulation.deinit();
        const client = try simulation.connect();
        for ([_]usize{ 1024, 5000, 100_000, 300_000 }) |len| {
            const expected = try gpa.alloc(u8, len);
            defer gpa.free(expected);
            for (expected, 0..) |*byte, at| byte.* = "0123456789"[at % 10];
            var buffer: [40]u8 = undefined;
            const target = try std.fmt.bufPrint(&buffer, "/text/{d}", .{len});
            const answer = try get(client, target, &.{gzip});
            try expectPlain(expected, answer);
            try testing.expect(answer.body.len < len / 4);
            try testing.expectEqualStrings("Accept-Encoding", answer.header("vary").?);
            const head = try client.request(.{ .method = "HEAD", .target = target, .headers = &.{gzip} });
            const length = answer.header("content-length").?;
            try testing.expectEqualStrings(length, head.header("content-length").?);
            const plain = try get(client, target, &.{});
            try testing.expectEqualStrings(expected, plain.body);
            try testing.expectEqual(null, plain.header("content-encoding"));
            try testing.expectEqualStrings("Accept-Encoding", plain.header("vary").?);
        }
        for ([_][]const u8{ "/text/1023", "/text/300001", "/later" }) |target| {
            const answer = try get(client, target, &.{gzip});
            try testing.expectEqual(null, answer.header("content-encoding"));
            try testing.expectEqual(null, answer.header("vary"));
        }
        const noise = try get(client, "/noise", &.{gzip});
        try testing.expectEqual(5000, noise.body.len);
        try testing.expectEqual(null, noise.header("content-encoding"));
    }
}

test "fields of request and response that forbid it" {
    var simulation: Simulation = try .initWith(gpa, .{}, .{ .seed = 1 }, .{});
    defer simulation.deinit();
    const client = try simulation.connect();
    for ([_]struct { []const u8, bool }{
        .{ "X-Nothing&value=1", true },
        .{ "ETag&value=W/%22a%22", true },
        .{ "ETag&value=%22a%22", false },
        .{ "Content-Encoding&value=br", false },
        .{ "Content-Range&value=bytes%200-1/2", false },
        .{ "Content-Digest&value=x", false },
        .{ "Cache-Control&value=private,%20No-Transform", false },
        .{ "Cache-Control&value=private", true },
        .{ "Set-Cookie&value=a=b", false },
        .{ "Content-Length&value=5000", true },
        .{ "Content-Type&value=TEXT/HTML", true },
        .{ "Content-Type&value=application/json%20;x=y", true },
        .{ "Content-Type&value=image/svg%2Bxml", true },
        .{ "Content-Type&value=image/png", false },
        .{ "Content-Type&value=text/event-stream", false },
    }) |case| {
        var buffer: [100]u8 = undefined;
        const target = try std.fmt.bufPrint(&buffer, "/fields?name={s}", .{case[0]});
        const answer = try get(client, target, &.{gzip});
        try testing.expectEqual(200, answer.status);
        const is_coded = std.mem.eql(u8, answer.header("content-encoding") orelse "", "gzip");
        testing.expectEqual(case[1], is_coded) catch |err| {
            std.debug.print("{s}\n", .{case[0]});
            return err;
        };
    }
    for ([_][2][]const u8{
        .{ "Accept-Encoding", "br, zstd" },       .{ "Accept-Encoding", "gzip;q=0, *" },
        .{ "Accept-Encoding", "identity" },       .{ "Cookie", "session=1" },
        .{ "Authorization", "Basic dXNlcjpwdw" },
    }) |field| {
        const only = field[0][0] == 'A' and field[0][1] == 'c';
        const headers = [_]per.Header{ .{ .name = field[0], .text = field[1] }, gzip };
        const answer = try get(client, "/text/5000", if (only) headers[0..1] else &headers);
        try testing.expectEqual(null, answer.header("content-encoding"));
        try testing.expectEqualStrings("Accept-Encoding", answer.header("vary").?);
    }
    const known = try get(client, "/all/5000", &.{ gzip, try .init("Cookie", "session=1") });
    try testing.expectEqualStrings("gzip", known.header("content-encoding").?);
}

test "a body that is produced is compressed piece by piece" {
    var expected: std.Io.Writer.Allocating = .init(gpa);
    defer expected.deinit();
    for (1..50_001) |number| {
        try expected.writer.print("line {d}\n", .{@as(u32, @intCast(number)) *% 2_654_435_761});
    }
    for (0..3) |seed| {
        var simulation: Simulation = try .initWith(gpa, .{}, .{ .seed = seed, .window_bytes = 4000 }, .{});
        defer simulation.deinit();
        const client = try simulation.connect();
        const long = try get(client, "/lines/50000", &.{gzip});
        try testing.expectEqual(null, long.header("content-length"));
        try expectPlain(expected.written(), long);
        const plain = try get(client, "/lines/50000", &.{});
        try testing.expectEqualStrings(expected.written(), plain.body);
        const short = try get(client, "/lines/1", &.{gzip});
        try testing.expect(short.header("content-length") != null);
        try expectPlain(expected.written()[0..16], short);
        const head = try client.request(.{ .method = "HEAD", .target = "/lines/1", .headers = &.{gzip} });
        try testing.expectEqualStrings("gzip", head.header("content-encoding").?);
    }
}

test "a flush reaches the client" {
    var simulation: Simulation = try .initWith(gpa, .{}, .{ .seed = 1, .window_bytes = 4000 }, .{});
    defer simulation.deinit();
    const client = try simulation.connect();
    client.paused = true;
    try client.send("GET /flushed HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n");
    try simulation.settle();
    client.paused = false;
    for (0..3) |_| _ = try simulation.step();
    // Each piece is a chunk of its own, with a few bytes.
    try testing.expect(std.mem.count(u8, client.text(), "\r\n") > 100);
    try simulation.settle();
    const answer = (try client.nextAnswer(true)).?;
    try testing.expectEqualStrings("gzip", answer.header("content-encoding").?);
}
