//! Twenty-eight mistakes of an earlier Peregrine, each as a test of the right behaviour. The numbers are
//! those of the list that the project was started with. Most run on the simulated network; what is about
//! sockets and threads runs on loopback. What acceptors have to do with 16, 17 and 19 is in
//! acceptors_test.zig, 22 to 25 are in websocket_test.zig, 26 has its details in static_test.zig, 28 is that
//! all examples build, and a project that uses the package (`zig build examples consumer`).
const std = @import("std");
const per = @import("peregrine");
const alike = @import("alike.zig");
const loopback = @import("loopback.zig");
const linux = std.os.linux;
const testing = std.testing;
const gpa = testing.allocator;

/// Answers by path; tells in headers what it saw.
const Probe = struct {
    allocator: std.mem.Allocator,
    served: std.atomic.Value(usize) = .init(0),
    detached: ?per.Detached = null,

    pub fn init(allocator: std.mem.Allocator) !*Probe {
        const self = try allocator.create(Probe);
        self.* = .{ .allocator = allocator };
        return self;
    }

    pub fn deinit(self: *Probe) void {
        self.allocator.destroy(self);
    }

    pub fn handleRequest(self: *Probe, request: *per.Request, response: *per.Response) void {
        _ = self.served.fetchAdd(1, .monotonic);
        self.respond(request, response) catch unreachable;
    }

    fn respond(self: *Probe, request: *per.Request, response: *per.Response) !void {
        const path = request.getPath();
        try response.addNewHeader("X-Path", path);
        try response.addNewHeader("X-Method", request.methodText());
        if (request.findHeader("x-a")) |value| try response.addNewHeader("X-A", value);
        if (std.mem.eql(u8, path, "/missing")) {
            response.status = .not_found;
        } else if (std.mem.eql(u8, path, "/204")) {
            response.status = .no_content;
        } else if (std.mem.eql(u8, path, "/304")) {
            response.status = .not_modified;
        } else if (std.mem.eql(u8, path, "/large")) {
            _ = try response.setBody(&large);
        } else if (std.mem.eql(u8, path, "/later")) {
            self.detached = try response.detach();
        } else if (request.body.len > 0) {
            _ = try response.setBody(request.body);
        } else _ = try response.setBody("the secret of " ++ "somebody");
    }

    const large: [200_000]u8 = @splat('L');
};

const Bench = alike.Simulation(Probe);

fn bench(seed: u64, config: per.ServerConfig) !Bench {
    return .init(gpa, config, .{ .seed = seed });
}

fn has(text: []const u8, part: []const u8) bool {
    return std.mem.find(u8, text, part) != null;
}

fn expectHas(text: []const u8, part: []const u8) !void {
    if (!has(text, part)) {
        std.debug.print("no \"{s}\" in:\n{s}\n", .{ part, text });
        return error.TestUnexpectedResult;
    }
}

fn expectStart(text: []const u8, start: []const u8) !void {
    if (!std.mem.startsWith(u8, text, start)) {
        std.debug.print("expected \"{s}\" before:\n{s}\n", .{ start, text });
        return error.TestUnexpectedResult;
    }
}

fn answers(text: []const u8) usize {
    return std.mem.count(u8, text, "HTTP/1.1 ");
}

/// `text`, this many times over.
fn times(comptime text: []const u8, comptime count: usize) *const [text.len * count]u8 {
    comptime var all: [text.len * count]u8 = undefined;
    @setEvalBranchQuota(10 * all.len);
    inline for (0..count) |i| all[i * text.len ..][0..text.len].* = text[0..text.len].*;
    const frozen = all;
    return &frozen;
}

const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

test "defect 1: a response without a body carries nobody else's" {
    var b = try bench(1, .{});
    defer b.deinit();
    try expectHas(try b.exchange("GET /secret HTTP/1.1\r\nHost: h\r\n\r\n"), "the secret of somebody");
    const other = try b.exchange("GET /missing HTTP/1.1\r\nHost: h\r\n\r\n");
    try expectStart(other, "HTTP/1.1 404 ");
    try testing.expect(!has(other, "secret"));
    try expectHas(other, "Content-Length: 0\r\n");
}

test "defect 2: line ends in any place, lone newlines and cut request lines harm nobody" {
    var b = try bench(2, .{});
    defer b.deinit();
    const request = "GET /a HTTP/1.1\r\nHost: h\r\nX-A: 1\r\n\r\n";
    for (1..request.len) |cut| {
        const client = try b.connect();
        try client.send(request[0..cut]);
        try b.settle();
        try testing.expectEqual(0, client.text().len);
        try client.send(request[cut..]);
        try b.settle();
        try expectHas(client.text(), "X-Path: /a\r\n");
    }
    for ([_][]const u8{
        "\n", "GET /a HTTP/1.1\n", "\n\n\n\n", "GET /a HTTP/1.1\r\n\n", "GET /0123456789abc\n",
    }) |text| {
        const client = try b.connect();
        try client.send(text);
        client.peer.shutdown();
        try b.settle();
        try testing.expect(client.text().len == 0 or has(client.text(), "HTTP/1.1 400 "));
    }
    try expectStart(try b.exchange(get), "HTTP/1.1 200 ");
}

test "defect 3: a header's value begins behind the colon, with or without a space" {
    var b = try bench(3, .{});
    defer b.deinit();
    inline for (.{
        .{ "X-A:bar", "bar" }, .{ "X-A: bar", "bar" }, .{ "X-A:   bar ", "bar" },
        .{ "X-A:", "" },       .{ "X-A: ", "" },
    }) |case| {
        const answer = try b.exchange("GET / HTTP/1.1\r\nHost: h\r\n" ++ case[0] ++ "\r\n\r\n");
        try expectHas(answer, "\r\nX-A: " ++ case[1] ++ "\r\n");
    }
}

test "defect 4: keep-alive knows connections, not descriptor numbers, and as many as there are" {
    var b = try bench(4, .{ .limits = .{ .connections_max = 1000 } });
    defer b.deinit();
    var clients: [500]*Bench.Client = undefined;
    for (&clients) |*client| client.* = try b.connect();
    for (0..3) |_| {
        for (clients) |client| try client.send(get);
        try b.settle();
    }
    for (clients) |client| try testing.expectEqual(3, answers(client.text()));
    try testing.expectEqual(500, b.worker().transports.count);
}

test "defect 5: a method is its whole token, and the path does not depend on it" {
    var b = try bench(5, .{});
    defer b.deinit();
    inline for (.{ "GET", "GETTER", "G", "PUTT", "PROPFIND", "DELETE", "M-SEARCH" }) |method| {
        const answer = try b.exchange(method ++ " /path?q HTTP/1.1\r\nHost: h\r\n\r\n");
        try expectHas(answer, "X-Method: " ++ method ++ "\r\n");
        try expectHas(answer, "X-Path: /path\r\n");
    }
}

test "a method with a lower-case letter is no method, and we are no proxy: no handler hears of either" {
    var b = try bench(5, .{});
    defer b.deinit();
    inline for (.{ "get /path", "head /path", "DELETe /path", "CONNECT h:443" }) |line| {
        const answer = try b.exchange(line ++ " HTTP/1.1\r\nHost: h\r\n\r\n");
        try expectHas(answer, "HTTP/1.1 501 Not Implemented\r\n");
        try expectHas(answer, "Connection: close\r\n");
        try testing.expect(std.mem.find(u8, answer, "X-Method: ") == null);
    }
}

/// Whether the connection lives after this request was answered.
fn persists(b: *Bench, request: []const u8) !bool {
    const client = try b.connect();
    try client.send(request);
    try b.settle();
    try testing.expectEqual(1, answers(client.text()));
    return client.ended() == null;
}

test "defect 6: whether a connection lives is decided by the request at hand" {
    var b = try bench(6, .{});
    defer b.deinit();
    try testing.expect(try persists(&b, get));
    try testing.expect(!try persists(&b, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
    try testing.expect(!try persists(&b, "GET / HTTP/1.0\r\n\r\n"));
    try testing.expect(try persists(&b, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    // The answer is not decided by the connection before.
    const client = try b.connect();
    try client.send(get);
    try b.settle();
    try client.send("GET / HTTP/1.0\r\n\r\n");
    try b.settle();
    try testing.expectEqual(2, answers(client.text()));
    try testing.expectEqual(.eof, client.ended().?);
}

test "defect 7: slow, pipelined and bodied requests are read one after the other" {
    const stream = get ++
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 30\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n12345" ++
        "GET /last HTTP/1.1\r\nHost: h\r\n\r\n";
    for (0..10) |seed| {
        var b = try bench(seed, .{});
        defer b.deinit();
        const client = try b.connect();
        for (stream) |byte| {
            try client.send(&.{byte});
            _ = try b.step();
        }
        try b.settle();
        try testing.expectEqual(3, answers(client.text()));
        try expectHas(client.text(), "X-Path: /last\r\n");
        try testing.expect(!has(client.text(), "X-Path: /smuggled"));
        try testing.expectEqual(3, b.handler().served.raw);
    }
}

test "defect 8: a request that was cut off is not executed" {
    var b = try bench(8, .{});
    defer b.deinit();
    for ([_][]const u8{
        "GET / HTTP/1.1\r\nHost: h\r\n",
        "GET / HTTP/1.1\r\nHost: h",
        "GET",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf",
    }) |text| {
        const client = try b.connect();
        try client.send(text);
        client.peer.shutdown();
        try b.settle();
    }
    try testing.expectEqual(0, b.handler().served.raw);
}

test "defect 9: many headers and long values are ordinary" {
    var b = try bench(9, .{});
    defer b.deinit();
    const many = times("X-Some-Header-With-A-Name-That-Is-Longer-Than-Sixty-Four-Bytes-In-All: v\r\n", 60);
    try expectStart(try b.exchange("GET / HTTP/1.1\r\nHost: h\r\n" ++ many ++ "\r\n"), "HTTP/1.1 200 ");
    const cookie = "X-A: " ++ times("c", 4000) ++ "\r\n";
    try expectHas(try b.exchange("GET / HTTP/1.1\r\nHost: h\r\n" ++ cookie ++ "\r\n"), cookie);
}

test "defect 10: what is refused is told so" {
    var b = try bench(10, .{ .request_buffer_size = 100 });
    defer b.deinit();
    inline for (.{
        .{ "GET\r\n\r\n", "400" },
        .{ "GET / HTTP/1.1\r\n\r\n", "400" },
        .{ "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n", "413" },
        .{ "GET /" ++ times("a", 9000) ++ " HTTP/1.1\r\nHost: h\r\n\r\n", "414" },
        .{ "GET / HTTP/1.1\r\nHost: h\r\n" ++ times("X: y\r\n", 101) ++ "\r\n", "431" },
        .{ "GET / HTTP/1.1\r\nHost: h\r\nX: " ++ times("y", 9000) ++ "\r\n\r\n", "431" },
        .{ "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "501" },
        .{ "GET / HTTP/3.0\r\nHost: h\r\n\r\n", "505" },
    }) |case| {
        const answer = try b.exchange(case[0]);
        try expectStart(answer, "HTTP/1.1 " ++ case[1] ++ " ");
        try expectHas(answer, "Connection: close\r\n");
    }
    const slow = try b.connect();
    try slow.send("GET / HT");
    try b.settle();
    try b.advance(b.server.config.limits.head_ms + 1000);
    try expectStart(slow.text(), "HTTP/1.1 408 ");
}

test "defect 11: Connection is a list of tokens in any case, and nothing else is Connection" {
    var b = try bench(11, .{});
    defer b.deinit();
    inline for (.{
        "Connection: Close",      "connection: foo, close",
        "CONNECTION: x,CLOSE ,y", "Connection: foo\r\nConnection: close",
    }) |line| {
        try testing.expect(!try persists(&b, "GET / HTTP/1.1\r\nHost: h\r\n" ++ line ++ "\r\n\r\n"));
    }
    inline for (.{
        "Connexion: close1", "Connection: closed", "Connected: abcdefghijk", "Connection: \"close\"",
    }) |line| {
        try testing.expect(try persists(&b, "GET / HTTP/1.1\r\nHost: h\r\n" ++ line ++ "\r\n\r\n"));
    }
    try testing.expect(try persists(&b, "GET / HTTP/1.0\r\nConnection: Foo, Keep-Alive\r\n\r\n"));
}

test "defect 12: HEAD, 204 and 304 have no body; lengths, Date, Host and line breaks are right" {
    var b = try bench(12, .{});
    defer b.deinit();
    const head = try b.exchange("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
    try expectHas(head, "Content-Length: 22\r\n");
    try testing.expect(std.mem.endsWith(u8, head, "\r\n\r\n"));
    inline for (.{ "/204", "/304" }) |path| {
        const answer = try b.exchange("GET " ++ path ++ " HTTP/1.1\r\nHost: h\r\n\r\n");
        try testing.expect(!has(answer, "Content-Length"));
        try testing.expect(std.mem.endsWith(u8, answer, "\r\n\r\n"));
        try expectHas(answer, "\r\nDate: ");
    }
    try expectStart(try b.exchange("GET / HTTP/1.1\r\nX: y\r\n\r\n"), "HTTP/1.1 400 ");
    // A line break never gets into a response; that addNewHeader refuses it is tested in response.zig.
    const split = try b.exchange("GET / HTTP/1.1\r\nHost: h\r\nX-A: a\rX-B: b\r\n\r\n");
    try expectStart(split, "HTTP/1.1 400 ");
    try testing.expect(!has(split, "X-B"));
}

test "defect 13: chunked bodies, 100-continue, HTTP/1.0 keep-alive" {
    var b = try bench(13, .{});
    defer b.deinit();
    const chunked = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" ++
        "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    try testing.expect(std.mem.endsWith(u8, try b.exchange(chunked), "\r\n\r\nabcde"));
    const waiting = try b.connect();
    try waiting.send("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    try b.settle();
    try expectStart(waiting.text(), "HTTP/1.1 100 Continue\r\n\r\n");
    const old = try b.exchange("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    try expectHas(old, "Connection: keep-alive\r\n");
}

test "defect 14: a large body reaches a slow reader whole" {
    var b: Bench = try .init(gpa, .{}, .{ .seed = 14, .window_bytes = 700, .partial_send_permille = 500 });
    defer b.deinit();
    const answer = try b.exchange("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    try expectHas(answer, "Content-Length: 200000\r\n");
    try testing.expect(std.mem.endsWith(u8, answer, &Probe.large));
}

test "defect 15: idle and trickling connections are ended in time" {
    var b = try bench(15, .{});
    defer b.deinit();
    const limits = b.server.config.limits;
    const idle = try b.connect();
    const used = try b.connect();
    try used.send(get);
    try b.settle();
    try b.advance(limits.idle_ms - 1000);
    try testing.expectEqual(2, b.worker().transports.count);
    try b.advance(2000);
    try testing.expectEqual(.eof, idle.ended().?);
    try testing.expectEqual(.eof, used.ended().?);
    const trickling = try b.connect();
    for (0..limits.head_ms / 1000 + 2) |_| {
        try trickling.send("G");
        try b.advance(1000);
        if (trickling.ended() != null) break;
    } else return error.StillOpen;
}

test "defect 16: failing to accept is not the end" {
    testing.log_level = .err; // the warning belongs there
    var b = try bench(16, .{});
    defer b.deinit();
    b.network().exhaust(true);
    const client = try b.connect();
    try client.send(get);
    try b.settle();
    try testing.expectEqual(0, client.text().len);
    b.network().exhaust(false);
    try b.advance(b.server.config.limits.accept_pause_ms + 100);
    try expectStart(client.text(), "HTTP/1.1 200 ");
}

// ---- On loopback

const Server = per.Server(alike.Kind(Probe));
const Backend = per.io.Backend;

/// On a kernel without io_uring the second backend is the same as the first.
const backends = [_]Backend{ .native, .uring };

fn listenerFd(server: *Server) i32 {
    return switch (server.running) {
        inline else => |running| running.units[0].worker.io.listeners.items[0].fd,
    };
}

/// Sends a request and reads until the server closes.
fn ask(port: u16, request: []const u8, buffer: []u8) ![]u8 {
    const fd = try loopback.connect(port);
    defer _ = linux.close(fd);
    try loopback.send(fd, request);
    var len: usize = 0;
    while (len < buffer.len) {
        const received = loopback.receive(fd, buffer[len..]) catch break;
        if (received.len == 0) break;
        len += received.len;
    }
    return buffer[0..len];
}

const last_get = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

fn expectServed(port: u16) !void {
    var buffer: [1000]u8 = undefined;
    try expectStart(try ask(port, last_get, &buffer), "HTTP/1.1 200 ");
}

fn runServer(server: *Server) void {
    server.start() catch unreachable;
}

fn milliseconds(count: u32) void {
    testing.io.sleep(.fromMilliseconds(count), .awake) catch unreachable;
}

test "defect 17: small packets leave at once unless told otherwise, and descriptors are closed on exec" {
    for (backends) |backend| for ([_]bool{ true, false }) |no_delay| {
        const server = try alike.serve(Probe, gpa, 0, .{
            .ip = "127.0.0.1",
            .worker_thread_count = 1,
            .tcp_nodelay = no_delay,
            .io = backend,
        });
        defer server.deinit();
        const fd = listenerFd(server);
        var value: c_int = 0;
        var len: linux.socklen_t = @sizeOf(c_int);
        _ = linux.getsockopt(fd, linux.IPPROTO.TCP, linux.TCP.NODELAY, @ptrCast(&value), &len);
        try testing.expectEqual(no_delay, value != 0); // accepted sockets inherit the option
        try testing.expect(linux.fcntl(fd, linux.F.GETFD, 0) & linux.FD_CLOEXEC != 0);
    };
}

test "defect 18: any number of accept threads works, 0 and 1 included, with the smallest stack" {
    for (backends) |backend| for ([_]usize{ 0, 1, 2 }) |accepting| for ([_]usize{ 1, 3 }) |working| {
        const server = try alike.serve(Probe, std.heap.smp_allocator, 0, .{
            .ip = "127.0.0.1",
            .worker_thread_count = working,
            .worker_stack_size = 512 * 1024, // the least that is allowed
            .accept_thread_count = accepting,
            .io = backend,
        });
        const port = server.port();
        const thread = try std.Thread.spawn(.{}, runServer, .{server});
        for (0..20) |_| try expectServed(port);
        server.shutdown();
        thread.join();
    };
}

test "defect 19: a request that takes long does not stall the others of its thread" {
    var b = try bench(19, .{});
    defer b.deinit();
    const slow = try b.connect();
    try slow.send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
    try b.settle();
    try expectStart(try b.exchange(get), "HTTP/1.1 200 ");
    try b.handler().detached.?.answer(.{ .body = "at last" });
    try b.settle();
    try testing.expect(std.mem.endsWith(u8, slow.text(), "at last"));
}

test "defect 20: an idle server sleeps" {
    for (backends) |backend| {
        const server = try alike.serve(Probe, std.heap.smp_allocator, 0, .{
            .ip = "127.0.0.1",
            .worker_thread_count = 2,
            .io = backend,
        });
        const thread = try std.Thread.spawn(.{}, runServer, .{server});
        try expectServed(server.port());
        milliseconds(20);
        const before = std.posix.getrusage(linux.rusage.SELF);
        milliseconds(300);
        const after = std.posix.getrusage(linux.rusage.SELF);
        // Timers of a lingering connection may fire; a poll of a millisecond would be hundreds.
        try testing.expect(after.nvcsw - before.nvcsw < 30);
        server.shutdown();
        thread.join();
    }
}

test "a server sleeps while a request, its body or its trailers lack bytes, however many came" {
    const request = "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n" ++
        "\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n";
    for (0..request.len) |len| {
        var simulation = try bench(len, .{});
        defer simulation.deinit();
        const client = try simulation.connect();
        try client.send(request[0..len]);
        // Fails if the worker has something to do in every round.
        try simulation.settle();
        try client.send(request[len..]);
        try simulation.settle();
        try testing.expectStringEndsWith(client.text(), "\r\n\r\nhello");
    }
}

test "defect 21: several servers in one process stop by one signal, each after what it has at hand" {
    var servers: [backends.len]*Server = undefined;
    var threads: [backends.len]std.Thread = undefined;
    for (backends, &servers, &threads) |backend, *server, *thread| {
        server.* = try alike.serve(Probe, std.heap.smp_allocator, 0, .{
            .ip = "127.0.0.1",
            .worker_thread_count = 2,
            .io = backend,
        });
        thread.* = try .spawn(.{}, runServer, .{server.*});
    }
    for (servers) |server| try expectServed(server.port());
    _ = linux.kill(linux.getpid(), .TERM);
    for (threads) |thread| thread.join();

    var b = try bench(21, .{});
    defer b.deinit();
    const client = try b.connect();
    try client.send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
    try b.settle();
    b.server.shutdown();
    try b.settle();
    try testing.expect(b.simulation.running);
    try testing.expectError(error.Refused, b.connect());
    try b.handler().detached.?.answer(.{ .body = "finished" });
    try b.settle();
    try testing.expect(std.mem.endsWith(u8, client.text(), "finished"));
    try expectHas(client.text(), "Connection: close\r\n");
    client.close();
    try b.settle();
    try testing.expect(!b.simulation.running);
}

test "defect 21: a stop does not wait for ever" {
    var b = try bench(21, .{ .stop_ms = 5000 });
    defer b.deinit();
    const client = try b.connect();
    try client.send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
    try b.settle();
    b.server.shutdown();
    try b.settle();
    try b.advance(4000);
    try testing.expect(b.simulation.running);
    try b.advance(1000);
    try testing.expect(!b.simulation.running);
    b.handler().detached.?.drop();
}

fn createAndFree(allocator: std.mem.Allocator, backend: Backend) !void {
    var name: [32]u8 = undefined;
    const path = std.fmt.bufPrint(&name, "\x00peregrine-defects-{d}", .{linux.getpid()}) catch unreachable;
    const server = try alike.serve(Probe, allocator, 0, .{
        .ip = "127.0.0.1",
        .worker_thread_count = 2,
        .accept_thread_count = 2,
        .listeners = &.{.{ .unix = .{ .path = path } }},
        .io = backend,
    });
    server.deinit();
}

test "defect 21: a server that cannot be created leaks nothing, on real sockets with acceptors" {
    for (backends) |backend| try testing.checkAllAllocationFailures(gpa, createAndFree, .{backend});
    // A port that is taken.
    testing.log_level = .err; // the log says which one
    const server = try alike.serve(Probe, gpa, 0, .{ .ip = "127.0.0.1", .worker_thread_count = 1 });
    defer server.deinit();
    try testing.expectError(
        error.AddressInUse,
        alike.serve(Probe, gpa, server.port(), .{ .ip = "127.0.0.1", .worker_thread_count = 1 }),
    );
}

test "defect 27: a bare flag in a query is a parameter, and nothing stale remains" {
    const Query = struct {
        allocator: std.mem.Allocator,
        const Self = @This();

        pub fn init(allocator: std.mem.Allocator) !*Self {
            const self = try allocator.create(Self);
            self.allocator = allocator;
            return self;
        }

        pub fn deinit(self: *Self) void {
            self.allocator.destroy(self);
        }

        pub fn handleRequest(_: *Self, request: *per.Request, response: *per.Response) void {
            const strict = request.parseQuery() catch unreachable;
            const flag = request.param("flag") catch unreachable;
            const x = request.param("x") catch unreachable;
            const text = std.fmt.allocPrint(request.arena, "{} {d} {s} {s}", .{
                strict != null, request.query.count(), flag orelse "-", x orelse "-",
            }) catch unreachable;
            _ = response.setBody(text) catch unreachable;
        }
    };
    var simulation: alike.Simulation(Query) = try .init(gpa, .{}, .{ .seed = 27 });
    defer simulation.deinit();
    inline for (.{
        .{ "/?x=1&y=2", "true 2 - 1" },
        .{ "/?flag&x=a%20b", "false 0  a b" },
        .{ "/", "false 0 - -" },
    }) |case| {
        const answer = try simulation.exchange("GET " ++ case[0] ++ " HTTP/1.1\r\nHost: h\r\n\r\n");
        try testing.expect(std.mem.endsWith(u8, answer, "\r\n\r\n" ++ case[1]));
    }
}
