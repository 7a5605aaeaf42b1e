//! A server that speaks TLS, over a simulated network that splits, delays and blocks: real sessions at
//! both ends, no sockets.
const std = @import("std");
const testing = std.testing;
const linux = std.os.linux;
const per = @import("peregrine");
const tls = per.tls;
const wanted = @import("wanted");
const certificates = @import("certificates.zig");
const path = certificates.path;
const files = certificates.files;
const gpa = testing.allocator;

/// The seeds of each test. Settings depend on a seed's rest by two and by three.
fn seedCount() u64 {
    return if (wanted.isBrief()) 6 else seeds_all;
}

const seeds_all = 20;

/// `/size/N`: N bytes; `/file/N`: the same from a file; `/cut`: half a response; everything else: what was
/// asked and how it came.
const Handler = struct {
    fd: i32,
    aborted: usize = 0,

    pub fn init(_: std.mem.Allocator) !*Handler {
        const self = try gpa.create(Handler);
        self.* = .{ .fd = @intCast(linux.memfd_create("peregrine-test", 0)) };
        const bytes = try pattern(file_bytes);
        defer gpa.free(bytes);
        var written: usize = 0;
        while (written < bytes.len) written += linux.write(self.fd, bytes.ptr + written, bytes.len - written);
        return self;
    }

    pub fn deinit(self: *Handler) void {
        per.io.file.close(self.fd);
        gpa.destroy(self);
    }

    pub fn handleRequest(self: *Handler, request: *per.Request, response: *per.Response) void {
        self.answer(request, response) catch |err| std.debug.panic("{t}", .{err});
    }

    fn answer(self: *Handler, request: *per.Request, response: *per.Response) !void {
        var parts = std.mem.tokenizeScalar(u8, request.getPath(), '/');
        const kind = parts.next() orelse "";
        const size = std.fmt.parseInt(usize, parts.next() orelse "0", 10) catch 0;
        if (std.mem.eql(u8, kind, "size")) {
            const bytes = try pattern(size);
            defer gpa.free(bytes);
            _ = try response.setBody(bytes);
        } else if (std.mem.eql(u8, kind, "cut")) {
            _ = try response.write("some");
            response.abort();
        } else if (std.mem.eql(u8, kind, "file")) {
            try response.setFile(.{ .fd = self.fd, .len = size, .ownership = .borrowed });
        } else {
            const client = (try request.clientCertificate()).?;
            const agreement = request.security().?;
            var text: [512]u8 = undefined;
            _ = try response.setBody(try std.fmt.bufPrint(&text, "{s} {x} {?s} {?s} {d} {?s}", .{
                request.body,   agreement.version, agreement.server_name, agreement.alpn, client.chain.len,
                client.subject,
            }));
        }
    }

    const file_bytes = 3_000_000;
};

fn pattern(len: usize) ![]u8 {
    const bytes = try gpa.alloc(u8, len);
    for (bytes, 0..) |*byte, i| byte.* = @truncate(i *% 31 +% i / 251);
    return bytes;
}

const Simulation = per.Simulation(Handler);

/// A client with a session of its own.
const Client = struct {
    wire: *Simulation.Client,
    session: tls.Session,
    /// Ciphertext that came and is not read yet begins here.
    read: usize = 0,
    outgoing: std.ArrayList(u8) = .empty,
    plaintext: std.ArrayList(u8) = .empty,
    event: tls.Event = .want_more,

    fn init(simulation: *Simulation, context: *tls.Context) !Client {
        return .{ .wire = try simulation.connect(), .session = try .initClient(context, "localhost", null) };
    }

    fn deinit(client: *Client) void {
        client.session.deinit();
        client.outgoing.deinit(gpa);
        client.plaintext.deinit(gpa);
    }

    fn append(context: *anyopaque, bytes: []const u8) tls.Sink.Error!void {
        const client: *Client = @ptrCast(@alignCast(context));
        try client.outgoing.appendSlice(gpa, bytes);
    }

    fn sink(client: *Client) tls.Sink {
        return .{ .context = client, .appendFn = append };
    }

    /// Takes the step of the handshake after which the client may write. What it has to say stays here.
    fn agree(client: *Client) !void {
        while (!client.session.isHandshakeDone()) {
            const text = client.wire.text()[client.read..];
            var window: [1000]u8 = undefined;
            const received = client.session.receive(text, &window, client.sink());
            client.read += received.consumed;
            if (client.session.isHandshakeDone()) return;
            try client.sendAll();
            try client.wire.simulation.settle();
        }
    }

    fn sendAll(client: *Client) !void {
        try client.wire.send(client.outgoing.items);
        client.outgoing.clearRetainingCapacity();
    }

    /// Lets both ends talk until nothing moves.
    fn settle(client: *Client) !void {
        var window: [1000]u8 = undefined;
        while (true) {
            const received = client.session.receive(
                client.wire.text()[client.read..],
                &window,
                client.sink(),
            );
            client.read += received.consumed;
            switch (received.event) {
                .plaintext => |len| {
                    try client.plaintext.appendSlice(gpa, window[0..len]);
                    continue;
                },
                else => client.event = received.event,
            }
            if (client.outgoing.items.len > 0) try client.sendAll();
            const before = client.wire.text().len;
            try client.wire.simulation.settle();
            if (client.wire.text().len == before) return;
        }
    }

    /// Sends a request; everything that came by then.
    fn ask(client: *Client, request: []const u8) ![]const u8 {
        try client.settle();
        client.plaintext.clearRetainingCapacity();
        try client.session.write(request, client.sink());
        try client.settle();
        return client.plaintext.items;
    }
};

const Scene = struct {
    simulation: Simulation,
    context: *tls.Context,

    fn init(config: per.ServerConfig, client: tls.ClientConfig, options: per.io.Sim.Options) !Scene {
        var diagnostic: tls.Diagnostic = .{};
        const context = try tls.Context.initClient(gpa, client, &diagnostic);
        errdefer context.deinit();
        return .{ .simulation = try .init(gpa, config, options), .context = context };
    }

    fn deinit(scene: *Scene) void {
        scene.simulation.deinit();
        scene.context.deinit();
    }

    fn connect(scene: *Scene) !Client {
        return .init(&scene.simulation, scene.context);
    }
};

fn secure() per.ServerConfig {
    return .{ .tls = .{ .certificates = certificates.list(&.{files("server")}) } };
}

const trusting: tls.ClientConfig = .{ .alpn = &.{ "none of ours", "http/1.1" } };

test "requests and answers of every size over many networks, with both versions" {
    for (0..seedCount()) |seed| {
        const version: tls.Version = if (seed % 2 == 0) .tls1_3 else .tls1_2;
        const options: per.io.Sim.Options = .{
            .seed = seed,
            .window_bytes = if (seed < seedCount() / 2) 500 else 200_000,
            .seals = seed % 3 == 0,
        };
        var scene: Scene = try .init(
            secure(),
            .{ .authorities = .{ .file = path("ca.pem") }, .alpn = trusting.alpn, .max_version = version },
            options,
        );
        defer scene.deinit();
        var client = try scene.connect();
        defer client.deinit();
        const answer = try client.ask("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody");
        var expected: [64]u8 = undefined;
        const tail = try std.fmt.bufPrint(
            &expected,
            "\r\n\r\nbody {x} localhost http/1.1 0 null",
            .{@backingInt(version)},
        );
        try testing.expect(std.mem.endsWith(u8, answer, tail));
        for ([_]usize{ 0, 1, 16_384, 16_385, 100_000 }) |size| for ([_][]const u8{ "size", "file" }) |kind| {
            var request: [64]u8 = undefined;
            const bytes = try pattern(size);
            defer gpa.free(bytes);
            const got = try client.ask(try std.fmt.bufPrint(
                &request,
                "GET /{s}/{d} HTTP/1.1\r\nHost: h\r\n\r\n",
                .{ kind, size },
            ));
            try testing.expect(std.mem.startsWith(u8, got, "HTTP/1.1 200 OK\r\n"));
            const body_at = std.mem.indexOf(u8, got, "\r\n\r\n").? + 4;
            try testing.expectEqualSlices(u8, bytes, got[body_at..]);
        };
    }
}

test "a large file goes in turns, pipelined requests are answered in order, and the end is a close_notify" {
    var scene: Scene = try .init(secure(), trusting, .{ .window_bytes = 10_000_000 });
    defer scene.deinit();
    var client = try scene.connect();
    defer client.deinit();
    const got = try client.ask("GET /file/3000000 HTTP/1.1\r\nHost: h\r\n\r\n" ++
        "GET /size/5 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    const bytes = try pattern(Handler.file_bytes);
    defer gpa.free(bytes);
    const at = std.mem.indexOf(u8, got, "\r\n\r\n").? + 4;
    try testing.expectEqualSlices(u8, bytes, got[at..][0..bytes.len]);
    try testing.expect(std.mem.startsWith(u8, got[at + bytes.len ..], "HTTP/1.1 200 OK\r\n"));
    try testing.expect(std.mem.endsWith(u8, got, bytes[0..5]));
    try testing.expectEqual(.closed, client.event);
    try testing.expectEqual(.eof, client.wire.ended());
}

test "a client's close_notify half-closes: its last request is answered, then the server goes too" {
    for (0..seedCount()) |seed| {
        // An idle connection sends close_notify once, whether the kernel takes it or not.
        var scene: Scene = try .init(
            secure(),
            trusting,
            .{ .seed = seed, .block_permille = 0, .partial_send_permille = 0 },
        );
        defer scene.deinit();
        var client = try scene.connect();
        defer client.deinit();
        try client.settle();
        try client.session.write("GET /size/7 HTTP/1.1\r\nHost: h\r\n\r\n", client.sink());
        try client.session.shutdown(client.sink());
        try client.settle();
        try testing.expect(std.mem.startsWith(u8, client.plaintext.items, "HTTP/1.1 200 OK\r\n"));
        try testing.expectEqual(.closed, client.event);
        try testing.expectEqual(0, scene.simulation.worker().statistics().connections);
    }
}

test "a client that answers the end of an HTTP/2 connection and is gone before the close_notify" {
    for (0..seedCount()) |seed| {
        const options: per.io.Sim.Options = .{ .seed = seed, .seals = seed % 2 == 0 };
        var scene: Scene = try .init(secure(), .{ .alpn = &.{"h2"} }, options);
        defer scene.deinit();
        var client = try scene.connect();
        defer client.deinit();
        try client.settle();
        const settings = "\x00\x00\x00\x04\x00" ++ "\x00\x00\x00\x00";
        try client.session.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" ++ settings, client.sink());
        try client.settle();
        scene.simulation.server.shutdown();
        try client.settle();
        // The PING that came with GOAWAY is answered, and nobody is there for the second GOAWAY.
        const answer = "\x00\x00\x08\x06\x01" ++ "\x00\x00\x00\x00" ++ "draining";
        try client.session.write(answer, client.sink());
        try client.sendAll();
        client.wire.close();
        try scene.simulation.settle();
        try testing.expectEqual(0, scene.simulation.worker().statistics().connections);
    }
}

/// A record that no session has sealed.
const broken_record = "\x17\x03\x03\x00\x20" ++ @as([32]u8, @splat('n'));

test "a broken record behind a request, in the flight that ends the handshake or later" {
    const requests = [_][]const u8{
        "GET /size/7 HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        "GET /file/100000 HTTP/1.1\r\nHost: h\r\n\r\n",
        "none of HTTP's\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" ++ "no frame",
    };
    for (0..seedCount()) |seed| for (requests) |request| for ([_]bool{ true, false }) |at_once| {
        var options: per.io.Sim.Options = .{ .seed = seed, .seals = seed % 3 == 1 };
        // All of a flight comes together, and all of an answer goes at once.
        if (seed % 2 == 0) {
            options.short_read_permille = 0;
            options.block_permille = 0;
            options.partial_send_permille = 0;
        }
        const is_framed = std.mem.startsWith(u8, request, "PRI ");
        const alpn: []const []const u8 = if (is_framed) &.{"h2"} else trusting.alpn;
        const version: tls.Version = if (seed % 3 == 0) .tls1_2 else .tls1_3;
        var scene: Scene = try .init(secure(), .{ .alpn = alpn, .max_version = version }, options);
        defer scene.deinit();
        var client = try scene.connect();
        defer client.deinit();
        if (at_once) try client.agree() else try client.settle();
        try client.session.write(request, client.sink());
        try client.outgoing.appendSlice(gpa, broken_record);
        try client.sendAll();
        try client.settle();
        try scene.simulation.advance(secure().limits.linger_ms + 200);
        try testing.expectEqual(0, scene.simulation.worker().statistics().connections);
    };
}

test "a client that ends its session with the handshake leaves no connection behind" {
    for (0..seedCount()) |seed| for ([_]u32{ 1, 2 }) |most| {
        testing.log_level = .err;
        var config = secure();
        config.limits.connections_max = most;
        config.limits.idle_ms = 0;
        var scene: Scene = try .init(config, trusting, .{ .seed = seed });
        defer scene.deinit();
        var first = try scene.connect();
        defer first.deinit();
        try first.settle();
        var client = try scene.connect();
        defer client.deinit();
        try client.agree();
        try client.session.shutdown(client.sink());
        try client.sendAll();
        try client.settle();
        try testing.expectEqual(.closed, client.event);
        try testing.expectEqual(1, scene.simulation.worker().statistics().connections);
    };
}

test "a client whose sending side ends behind its handshake is answered" {
    for (0..seedCount()) |seed| {
        var config = secure();
        config.limits.handshakes_pass_max = 1;
        var scene: Scene = try .init(config, trusting, .{ .seed = seed });
        defer scene.deinit();
        var client = try scene.connect();
        defer client.deinit();
        try client.agree();
        // The handshake waits for its turn, behind others.
        const greeting = try hello(scene.context);
        defer gpa.free(greeting);
        for (0..10) |_| {
            const other = try scene.simulation.connect();
            try other.send(greeting);
            other.close();
        }
        try client.session.write("GET /size/7 HTTP/1.1\r\nHost: h\r\n\r\n", client.sink());
        try client.sendAll();
        client.wire.peer.shutdown();
        try client.settle();
        try testing.expectStringStartsWith(client.plaintext.items, "HTTP/1.1 200 OK\r\n");
        try testing.expectEqual(.closed, client.event);
        try testing.expectEqual(0, scene.simulation.worker().statistics().connections);
    }
}

test "a broken record while a thread reads the file of the response" {
    for (0..seedCount()) |seed| {
        var scene: Scene = try .init(secure(), trusting, .{
            .seed = seed,
            .window_bytes = 10_000_000,
            .block_permille = 0,
            .slow_file_permille = 900,
        });
        defer scene.deinit();
        var client = try scene.connect();
        defer client.deinit();
        try client.settle();
        try client.session.write("GET /file/3000000 HTTP/1.1\r\nHost: h\r\n\r\n", client.sink());
        try client.sendAll();
        // A brief run has breaks as late as a whole one.
        for (0..seed * seeds_all / seedCount()) |_| _ = try scene.simulation.step();
        try client.wire.send(broken_record);
        try client.settle();
        try scene.simulation.advance(secure().limits.linger_ms + 200);
        try testing.expectEqual(0, scene.simulation.worker().statistics().connections);
    }
}

test "a response that is cut ends without a close_notify" {
    for (0..seedCount()) |seed| {
        var scene: Scene = try .init(secure(), trusting, .{ .seed = seed });
        defer scene.deinit();
        var client = try scene.connect();
        defer client.deinit();
        _ = try client.ask("GET /cut HTTP/1.1\r\nHost: h\r\n\r\n");
        try testing.expect(client.event != .closed);
        try testing.expectEqual(.reset, client.wire.ended());
    }
}

test "requests and the end in one flight: all are answered, but for one that the end cuts short" {
    for (0..seedCount()) |seed| for ([_]bool{ true, false }) |whole| {
        var scene: Scene = try .init(
            secure(),
            trusting,
            .{ .seed = seed, .block_permille = 0, .partial_send_permille = 0 },
        );
        defer scene.deinit();
        var client = try scene.connect();
        defer client.deinit();
        try client.settle();
        try client.session.write("GET /size/7 HTTP/1.1\r\nHost: h\r\n\r\n", client.sink());
        const head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: ";
        try client.session.write(if (whole) head ++ "8\r\n\r\n" else head ++ "9\r\n\r\n", client.sink());
        try client.session.write("the body", client.sink());
        try client.session.shutdown(client.sink());
        try client.settle();
        const answers = std.mem.count(u8, client.plaintext.items, "HTTP/1.1 200 OK\r\n");
        try testing.expectEqual(@as(usize, if (whole) 2 else 1), answers);
        try testing.expectEqual(0, scene.simulation.worker().statistics().connections);
    };
}

test "HTTP without TLS gets a 400 in words, garbage an alert" {
    var scene: Scene = try .init(secure(), trusting, .{});
    defer scene.deinit();
    const answer = try scene.simulation.exchange("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    try testing.expect(std.mem.startsWith(u8, answer, "HTTP/1.1 400 Bad Request\r\n"));
    try testing.expect(std.mem.indexOf(u8, answer, "use https") != null);
    const alert = try scene.simulation.exchange("\x16\x03\x01\x00\x08rubbish!");
    try testing.expectEqual(0x15, alert[0]);
    try scene.simulation.advance(10_000);
    try testing.expectEqual(0, scene.simulation.worker().statistics().connections);
}

test "a handshake has its deadline, whoever trickles it" {
    var config = secure();
    config.limits.handshake_ms = 3000;
    var scene: Scene = try .init(config, trusting, .{});
    defer scene.deinit();
    const silent = try scene.simulation.connect();
    const slow = try scene.simulation.connect();
    var client = try scene.connect();
    defer client.deinit();
    try client.settle();
    for (0..3) |_| {
        try slow.send("\x16");
        try scene.simulation.advance(1100);
    }
    try testing.expect(silent.ended() != null and slow.ended() != null);
    try testing.expectEqual(null, client.wire.ended());
    try testing.expectEqual(1, scene.simulation.worker().statistics().connections);
    // An idle connection ends with a goodbye.
    try scene.simulation.advance(config.limits.idle_ms);
    try client.settle();
    try testing.expectEqual(.closed, client.event);
}

/// A client's first bytes.
fn hello(context: *tls.Context) ![]const u8 {
    var link: Client = .{ .wire = undefined, .session = try .initClient(context, "localhost", null) };
    defer link.deinit();
    var window: [1]u8 = undefined;
    _ = link.session.receive("", &window, link.sink());
    return link.outgoing.toOwnedSlice(gpa);
}

fn answered(flood: []const *Simulation.Client) usize {
    var count: usize = 0;
    for (flood) |client| count += @intFromBool(client.text().len > 0);
    return count;
}

test "in a flood of handshakes established connections are served first, then new ones, then all" {
    for (0..seedCount()) |seed| {
        var config = secure();
        config.limits.handshakes_pass_max = 1;
        var scene: Scene = try .init(config, trusting, .{
            .seed = seed,
            .short_read_permille = 0,
            .block_permille = 0,
            .partial_send_permille = 0,
        });
        defer scene.deinit();
        var established = try scene.connect();
        defer established.deinit();
        try established.settle();
        const greeting = try hello(scene.context);
        defer gpa.free(greeting);
        var flood: [60]*Simulation.Client = undefined;
        for (&flood) |*client| {
            client.* = try scene.simulation.connect();
            try client.*.send(greeting);
        }
        // The flood has come in.
        for (0..flood.len) |_| if (try scene.simulation.step() and answered(&flood) >= 5) break;
        const before = answered(&flood);
        try testing.expect(before < 10);
        established.wire.clear();
        established.read = 0;
        try established.session.write("GET /size/1 HTTP/1.1\r\nHost: h\r\n\r\n", established.sink());
        try established.wire.send(established.outgoing.items);
        const newcomer = try scene.simulation.connect();
        try newcomer.send(greeting);
        while (established.wire.text().len == 0) _ = try scene.simulation.step();
        try testing.expect(answered(&flood) < before + 10);
        while (newcomer.text().len == 0) _ = try scene.simulation.step();
        try testing.expect(answered(&flood) < before + 20);
        try scene.simulation.settle();
        try testing.expectEqual(flood.len, answered(&flood));
    }
}

test "a handshake that waits for its turn holds few bytes, which go with its connection" {
    var config = secure();
    config.limits.handshakes_pass_max = 1;
    var scene: Scene = try .init(config, trusting, .{
        .window_bytes = 1 << 20,
        .late_permille = 0,
        .reset_permille = 0,
    });
    defer scene.deinit();
    const greeting = try hello(scene.context);
    defer gpa.free(greeting);
    var flood: [20]*Simulation.Client = undefined;
    const flight = try pattern(500_000);
    defer gpa.free(flight);
    for (&flood) |*client| {
        client.* = try scene.simulation.connect();
        try client.*.send(greeting);
        try client.*.send(flight);
    }
    const worker = scene.simulation.worker();
    while (worker.handshakes.isEmpty()) _ = try scene.simulation.step();
    for (0..3) |_| _ = try scene.simulation.step();
    try testing.expect(worker.pool.taken_bytes <= flood.len * (64 + 32) * 1024);
    for (flood) |client| client.close();
    try scene.simulation.settle();
    try testing.expect(worker.handshakes.isEmpty());
    try testing.expectEqual(0, worker.statistics().connections);
    try testing.expectEqual(0, worker.pool.taken_bytes);
}

test "a connection too many finishes its handshake and is told so" {
    testing.log_level = .err;
    var config = secure();
    config.limits.connections_max = 1;
    var scene: Scene = try .init(config, trusting, .{});
    defer scene.deinit();
    var first = try scene.connect();
    defer first.deinit();
    try first.settle();
    var second = try scene.connect();
    defer second.deinit();
    try second.settle();
    try testing.expect(std.mem.startsWith(u8, second.plaintext.items, "HTTP/1.1 503 "));
    try testing.expectEqual(.closed, second.event);
    try testing.expectEqual(1, scene.simulation.worker().statistics().rejected);
    const answer = try first.ask("GET /size/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    try testing.expect(std.mem.startsWith(u8, answer, "HTTP/1.1 200 OK\r\n"));
}

test "the handler sees the client's certificate; a cut response has no close_notify" {
    var config = secure();
    config.tls.?.ca_file = path("ca.pem");
    config.tls.?.verify_client = .request;
    config.limits.write_ms = 1000;
    var scene: Scene = try .init(config, .{ .certificate = files("client") }, .{ .window_bytes = 5000 });
    defer scene.deinit();
    var client = try scene.connect();
    defer client.deinit();
    const answer = try client.ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    try testing.expect(std.mem.endsWith(
        u8,
        answer,
        " 304 localhost null 2 CN=Zo\\C3\\AB,O=Falcon\\, Inc.,C=DE",
    ));
    client.wire.paused = true;
    try client.session.write("GET /size/1000000 HTTP/1.1\r\nHost: h\r\n\r\n", client.sink());
    try client.settle();
    try scene.simulation.advance(5000);
    client.wire.paused = false;
    try client.settle();
    try testing.expectEqual(0, scene.simulation.worker().statistics().connections);
    try testing.expectEqual(tls.Ending.truncated, client.session.ending());
}

test "no connection, idle, busy or in its handshake, stops a shutdown, and nothing leaks" {
    var scene: Scene = try .init(
        secure(),
        trusting,
        .{ .window_bytes = 5000, .block_permille = 0, .partial_send_permille = 0 },
    );
    defer scene.deinit();
    var idle = try scene.connect();
    defer idle.deinit();
    try idle.settle();
    _ = try scene.simulation.connect();
    var busy = try scene.connect();
    defer busy.deinit();
    try busy.settle();
    busy.wire.paused = true;
    try busy.session.write("GET /size/100000 HTTP/1.1\r\nHost: h\r\n\r\n", busy.sink());
    try busy.settle();
    scene.simulation.server.shutdown();
    try scene.simulation.settle();
    // The first request of the other two may be on its way; not for longer than linger_ms.
    try scene.simulation.advance(1900);
    try testing.expectEqual(3, scene.simulation.worker().statistics().connections);
    try scene.simulation.advance(200);
    try testing.expectEqual(1, scene.simulation.worker().statistics().connections);
    try idle.settle();
    try testing.expectEqual(.closed, idle.event);
    busy.wire.paused = false;
    try busy.settle();
    const bytes = try pattern(100_000);
    defer gpa.free(bytes);
    try testing.expect(std.mem.endsWith(u8, busy.plaintext.items, bytes));
    try testing.expectEqual(.closed, busy.event);
    busy.wire.close();
    try scene.simulation.settle();
    try testing.expect(!scene.simulation.running);
}

test "the certificates are removed (keep this test last)" {
    certificates.remove();
}
