//! The limits per client address, and the health path, which the engine answers by itself, over the simulated
//! network.
const std = @import("std");
const per = @import("peregrine");
const alike = @import("alike.zig");
const testing = std.testing;
const gpa = testing.allocator;

/// Answers everything with "handled".
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

    pub fn handleRequest(_: *Answering, _: *per.Request, response: *per.Response) void {
        _ = response.setBody("handled") catch unreachable; // far below the limit
    }
};

const Bench = alike.Simulation(Answering);

fn expectPart(text: []const u8, part: []const u8) !void {
    if (std.mem.find(u8, text, part) != null) return;
    std.debug.print("no \"{s}\" in:\n{s}\n", .{ part, text });
    return error.TestUnexpectedResult;
}

const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const health = "GET /health HTTP/1.1\r\nHost: h\r\n\r\n";

test "the health path is answered without the handler, however the network cuts" {
    for (0..20) |seed| {
        var bench: Bench = try .init(gpa, .{ .health_path = "/health" }, .{ .seed = seed });
        defer bench.deinit();
        const answer = try bench.exchange(health);
        try expectPart(answer, "HTTP/1.1 200 OK\r\n");
        try expectPart(answer, "\r\nConnection: close\r\n");
        try testing.expect(std.mem.endsWith(u8, answer, "\r\n\r\nok\n"));
        const head = try bench.exchange("HEAD /health?x HTTP/1.1\r\nHost: h\r\n\r\n");
        try expectPart(head, "\r\nContent-Length: 3\r\n");
        try testing.expect(std.mem.endsWith(u8, head, "\r\n\r\n"));
        try expectPart(
            try bench.exchange("POST /health HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"),
            "handled",
        );
        try expectPart(try bench.exchange("GET /healthy HTTP/1.1\r\nHost: h\r\n\r\n"), "handled");
    }
    try testing.expectError(error.BadPath, Bench.init(gpa, .{ .health_path = "health" }, .{ .seed = 1 }));
}

test "over the limit of connections only the health path is answered, and silence ends" {
    var bench: Bench = try .init(
        gpa,
        .{ .health_path = "/health", .limits = .{ .connections_max = 1, .linger_ms = 500 } },
        .{ .seed = 3 },
    );
    defer bench.deinit();
    const first = try bench.connect();
    try first.send(get);
    try bench.settle();
    try expectPart(first.text(), "handled");
    try expectPart(try bench.exchange(health), "HTTP/1.1 200 OK\r\n");
    try expectPart(try bench.exchange(get), "HTTP/1.1 503 ");
    const silent = try bench.connect();
    const slow = try bench.connect();
    try slow.send("GET /hea");
    try bench.settle();
    try testing.expectEqualStrings("", silent.text());
    try bench.advance(600);
    try expectPart(silent.text(), "HTTP/1.1 503 ");
    try expectPart(slow.text(), "HTTP/1.1 503 ");
    try bench.advance(600);
    try testing.expectEqual(1, bench.worker().transports.count);
    try first.send(get);
    try bench.settle();
    try testing.expectEqual(2, std.mem.count(u8, first.text(), "handled"));
}

test "connections that have had their last answer go where descriptors run out, and others go on" {
    var bench: Bench = try .init(gpa, .{ .limits = .{ .linger_ms = 60_000 } }, .{ .seed = 5 });
    defer bench.deinit();
    const kept = try bench.connect();
    try kept.send(get);
    for (0..3) |_| {
        // An HTTP/1.0 client that keeps its side open.
        const answered = try bench.connect();
        try answered.send("GET / HTTP/1.0\r\n\r\n");
        try bench.settle();
        try expectPart(answered.text(), "handled");
    }
    try testing.expectEqual(4, bench.worker().transports.count);
    bench.network().exhaust(true);
    const waiting = try bench.connect();
    try bench.settle();
    try testing.expectEqual(1, bench.worker().transports.count);
    try kept.send(get);
    try bench.settle();
    try testing.expectEqual(2, std.mem.count(u8, kept.text(), "handled"));
    // Further pauses of the same second are counted.
    for (0..5) |_| try bench.advance(bench.worker().config.accept_pause_ms);
    try testing.expect(bench.worker().troubles.accepting.untold > 2);
    bench.network().exhaust(false);
    try waiting.send(get);
    try bench.advance(bench.worker().config.accept_pause_ms);
    try expectPart(waiting.text(), "handled");
}

test "a client address may have so many connections, and the place of one that left is free" {
    // The simulated clients have IPv6 addresses of one /64.
    var bench: Bench = try .init(
        gpa,
        .{ .ip = "::1", .limits = .{ .address_connections_max = 2, .linger_ms = 100 } },
        .{ .seed = 4 },
    );
    defer bench.deinit();
    const first = try bench.connect();
    try first.send(get);
    const second = try bench.connect();
    try second.send(get);
    try bench.settle();
    for (0..20) |_| {
        const answer = try bench.exchange("");
        try expectPart(answer, "HTTP/1.1 429 Too Many Requests\r\n");
        try expectPart(answer, "\r\nRetry-After: 5\r\n");
        try expectPart(answer, "\r\nConnection: close\r\n");
        // Beyond a few at the same time they are cut.
        try bench.advance(200);
    }
    try testing.expectEqual(20, bench.worker().stats.rejected);
    first.peer.reset();
    try bench.advance(1000);
    try testing.expectEqual(1, bench.worker().transports.count);
    try expectPart(try bench.exchange(get), "handled");
}

test "a connection may bring so many requests, and the answer to the last one closes it" {
    for ([_]u32{ 1, 3 }) |most| {
        var bench: Bench = try .init(
            gpa,
            .{ .limits = .{ .connection_requests_max = most } },
            .{ .seed = most },
        );
        defer bench.deinit();
        const answers = try bench.exchange(get ++ get ++ get ++ get ++ get);
        try testing.expectEqual(most, std.mem.count(u8, answers, "handled"));
        try testing.expectEqual(1, std.mem.count(u8, answers, "Connection: close\r\n"));
    }
}

test "new connections per second" {
    var bench: Bench = try .init(gpa, .{ .ip = "::1", .limits = .{ .address_rate_max = 2 } }, .{ .seed = 5 });
    defer bench.deinit();
    for (0..2) |_| try expectPart(try bench.exchange(get), "handled");
    const refused = try bench.exchange("");
    try expectPart(refused, "HTTP/1.1 429 ");
    try expectPart(refused, "\r\nRetry-After: 1\r\n");
    try bench.advance(1100);
    for (0..2) |_| try expectPart(try bench.exchange(get), "handled");
}

/// Answers with more than the network holds.
const Large = struct {
    allocator: std.mem.Allocator,

    const body: [300_000]u8 = @splat('L');

    pub fn init(allocator: std.mem.Allocator) !*Large {
        const self = try allocator.create(Large);
        self.* = .{ .allocator = allocator };
        return self;
    }

    pub fn deinit(self: *Large) void {
        self.allocator.destroy(self);
    }

    pub fn handleRequest(_: *Large, _: *per.Request, response: *per.Response) void {
        _ = response.setBody(&body) catch unreachable; // far below the limit
    }
};

/// A server that gives a reader of 500 bytes in a second all the time that it needs, and others five seconds,
/// behind a kernel that tells of room when a third of what it may hold is free.
fn slowBench(seed: u64) !alike.Simulation(Large) {
    return .init(
        gpa,
        .{ .limits = .{ .write_ms = 5000, .write_rate_min = 500, .idle_ms = 0 } },
        .{ .seed = seed, .window_bytes = 200_000, .room_permille = 333 },
    );
}

test "a reader that is slow but not too slow gets everything, though the kernel tells late of what it took" {
    for (0..4) |seed| {
        var bench = try slowBench(seed);
        defer bench.deinit();
        const client = try bench.connect();
        client.paused = true;
        try client.send(get);
        try bench.settle();
        var got: usize = 0;
        while (client.ended() == null and got < Large.body.len) {
            got += (try client.peer.readSome(1000)).len;
            try bench.advance(1000);
        }
        try testing.expect(got >= Large.body.len);
    }
}

test "a reader that takes too little is cut in its time, whatever its kernel took at once" {
    for ([_]usize{ 0, 100 }) |piece| {
        var bench = try slowBench(1);
        defer bench.deinit();
        const client = try bench.connect();
        client.paused = true;
        try client.send(get);
        try bench.settle();
        _ = try client.peer.readSome(50_000);
        var seconds: usize = 0;
        while (bench.worker().transports.count > 0) : (seconds += 1) {
            try testing.expect(seconds < 8);
            _ = try client.peer.readSome(piece);
            try bench.advance(1000);
        }
        try testing.expect(seconds >= 5);
    }
}
