//! The access log of a server over the simulated network: who gets a line, and what it says.
const std = @import("std");
const per = @import("peregrine");
const alike = @import("alike.zig");
const linux = std.os.linux;
const testing = std.testing;
const gpa = testing.allocator;

/// Answers by path.
const Answering = struct {
    allocator: std.mem.Allocator,

    pub fn init(allocator: std.mem.Allocator) !*Answering {
        const self = try allocator.create(Answering);
        self.* = .{ .allocator = allocator };
        return self;
    }

    pub fn deinit(self: *Answering) void {
        self.allocator.destroy(self);
    }

    pub fn handleRequest(self: *Answering, request: *per.Request, response: *per.Response) void {
        self.answer(request, response) catch |err| std.debug.panic("handler: {t}", .{err});
    }

    fn answer(self: *Answering, request: *per.Request, response: *per.Response) !void {
        const path = request.getPath();
        if (std.mem.eql(u8, path, "/ws")) {
            return per.ws.upgrader.handleUpgrade(self.allocator, request, response);
        }
        if (std.mem.eql(u8, path, "/large")) {
            _ = try response.setBody(&large);
        } else if (std.mem.eql(u8, path, "/missing")) {
            response.status = .not_found;
        } else _ = try response.setBody("hello");
    }

    pub fn handleWSFrame(_: *Answering, socket: *per.ws.WebSocket, frame: *per.ws.Frame) void {
        _ = socket.send(.text, frame.getPayload()) catch {};
    }

    const large: [300_000]u8 = @splat('L');
};

/// A server whose log goes to memory.
const Bench = struct {
    simulation: alike.Simulation(Answering),
    memory: i32,

    fn init(format: []const u8, limits: per.Config) !Bench {
        return initAt("127.0.0.1", format, limits);
    }

    fn initAt(ip: []const u8, format: []const u8, limits: per.Config) !Bench {
        const memory: i32 = @intCast(linux.memfd_create("access", 0));
        errdefer per.io.file.close(memory);
        return .{ .simulation = try .init(gpa, .{
            .ip = ip,
            .access_log = .{ .target = .{ .fd = memory }, .format = format },
            .limits = limits,
        }, .{ .seed = 1, .window_bytes = 100_000, .short_read_permille = 0 }), .memory = memory };
    }

    /// Ends the server, so that its log is complete, and compares.
    fn expectLog(bench: *Bench, expected: []const u8) !void {
        bench.simulation.deinit();
        defer per.io.file.close(bench.memory);
        var buffer: [4096]u8 = undefined;
        const len = linux.pread(bench.memory, &buffer, buffer.len, 0);
        try testing.expectEqualStrings(expected, buffer[0..len]);
    }
};

test "answered requests, in the order of their ends" {
    var bench: Bench = try .init("%r %s %b %X %L", .{});
    const client = try bench.simulation.connect();
    try client.send(
        "GET /one HTTP/1.1\r\nHost: h\r\n\r\nHEAD /two HTTP/1.1\r\nHost: h\r\n\r\n" ++
            "GET /missing HTTP/1.1\r\nHost: h\r\n\r\n",
    );
    try bench.simulation.settle();
    _ = try bench.simulation.exchange("GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    try bench.expectLog(
        \\GET /one HTTP/1.1 200 5 + 1-1
        \\HEAD /two HTTP/1.1 200 - + 1-2
        \\GET /missing HTTP/1.1 404 - + 1-3
        \\GET /large HTTP/1.1 200 300000 - 2-1
        \\
    );
}

test "a request that the parser refuses has a line as well, and cannot break it" {
    var bench: Bench = try .init("%r|%m %s %X", .{
        .head_bytes_max = 100,
        .request_line_bytes_max = 64,
        .body_bytes_max = 10,
    });
    const simulation = &bench.simulation;
    _ = try simulation.exchange("GET\x01/ HTTP/1.1\r\n\r\n");
    _ = try simulation.exchange("\x16\x03\x01\x02\x00\x01");
    _ = try simulation.exchange("GET /" ++ "x" ++
        "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy HTTP/1.1\r\n\r\n");
    _ = try simulation.exchange("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n");
    _ = try simulation.exchange(
        "POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n",
    );
    _ = try simulation.exchange("GET /slow HTTP/1.1\r\nHost:");
    try simulation.advance(20_000);
    try bench.expectLog("GET\\x01/ HTTP/1.1|- 400 -\n" ++
        "\\x16\\x03\\x01\\x02\\x00\\x01|- 400 -\n" ++
        "GET /xyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy HTTP/1.1|- 414 -\n" ++
        "GET / HTTP/1.1|GET 413 -\n" ++
        "POST /p HTTP/1.1|POST 413 -\n" ++
        "GET /slow HTTP/1.1|GET 408 -\n");
}

test "a refused request is described as far as it can be read, and its time is that since its first byte" {
    var bench: Bench = try .init("%h %m %U%q %H %{X-A}i %s %T", .{ .body_bytes_max = 10, .head_ms = 3000 });
    const simulation = &bench.simulation;
    _ = try simulation.exchange("POST /a?b=c HTTP/1.0\r\nX-A: told\r\nContent-Length: 11\r\n\r\n");
    _ = try simulation.exchange("GET /bad HTTP/1.1\r\nX-A: told\r\nno colon\r\nHost: h\r\n\r\n");
    const slow = try simulation.connect();
    try slow.send("\r\nGET /slow HTTP/1.1\r\nX-A: told\r\nX-B");
    try simulation.settle();
    try slow.send(": x");
    try simulation.advance(3100);
    try bench.expectLog("10.0.0.0 POST /a?b=c HTTP/1.0 told 413 0\n" ++
        "10.0.0.1 GET /bad HTTP/1.1 told 400 0\n" ++
        "10.0.0.2 GET /slow HTTP/1.1 told 408 3\n");
}

test "a refusal has the bytes of its reason, and none for HEAD" {
    var bench: Bench = try .init("%m %s %B", .{ .body_bytes_max = 10 });
    const simulation = &bench.simulation;
    _ = try simulation.exchange("GET / HTTP/1.1\r\n\r\n");
    _ = try simulation.exchange("HEAD / HTTP/1.1\r\n\r\n");
    _ = try simulation.exchange(
        "HEAD / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n",
    );
    const reason = "missing Host field\n";
    try bench.expectLog(std.fmt.comptimePrint("GET 400 {d}\nHEAD 400 0\nHEAD 400 0\n", .{reason.len}));
}

test "a connection that is refused by a limit has a line" {
    var bench: Bench = try .init("%r %s %L", .{ .connections_max = 1, .descriptors_reserved = 4 });
    const held = try bench.simulation.connect();
    try held.send("GET /held HTTP/1.1\r\nHost: h\r\n\r\n");
    try bench.simulation.settle();
    // With a slot to read its 503 in; the third one has none.
    for (0..3) |_| _ = try bench.simulation.connect();
    try bench.simulation.settle();
    try bench.expectLog("GET /held HTTP/1.1 200 1-1\n- 503 2-1\n- 503 3-1\n- 503 4-1\n");

    // The simulated clients with IPv6 addresses have those of one /64.
    bench = try .initAt("::1", "%r %s %L", .{ .address_connections_max = 1 });
    _ = try bench.simulation.connect();
    _ = try bench.simulation.connect();
    try bench.simulation.settle();
    try bench.expectLog("- 429 2-1\n");
}

test "a response that the client does not take is cut short, and only what it took counts" {
    var bench: Bench = try .init("%s %X", .{});
    const client = try bench.simulation.connect();
    client.paused = true;
    try client.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    try bench.simulation.settle();
    client.close();
    try bench.simulation.settle();
    try bench.expectLog("200 X\n");
}

test "a WebSocket has its line when it ends" {
    var bench: Bench = try .init("%m %U %s %B %X", .{});
    const client = try bench.simulation.connect();
    try client.send("GET /ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" ++
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n");
    // Two messages of three bytes (the masks are zero), then a close frame with 1000.
    try client.send("\x81\x83\x00\x00\x00\x00abc\x81\x83\x00\x00\x00\x00def");
    try bench.simulation.settle();
    _ = try bench.simulation.exchange("GET /meanwhile HTTP/1.1\r\nHost: h\r\n\r\n");
    try client.send("\x88\x82\x00\x00\x00\x00\x03\xe8");
    try bench.simulation.settle();
    try bench.expectLog("GET /meanwhile 200 5 +\nGET /ws 101 6 -\n");
}
