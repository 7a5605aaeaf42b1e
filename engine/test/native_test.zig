//! The Zig face end to end, over the simulated network: bodies, streams, drains, detached answers, aborts,
//! and no allocation after warm-up.
const std = @import("std");
const per = @import("peregrine");
const alike = @import("alike.zig");
const testing = std.testing;
const gpa = testing.allocator;

/// A handler made of functions, so that each test only writes what it is about.
fn Handler(comptime State: type, comptime functions: type) type {
    return struct {
        const Self = @This();
        allocator: std.mem.Allocator,
        state: State,

        pub fn init(allocator: std.mem.Allocator) !*Self {
            const self = try allocator.create(Self);
            self.* = .{ .allocator = allocator, .state = .{} };
            return self;
        }

        pub fn deinit(self: *Self) void {
            self.allocator.destroy(self);
        }

        pub fn handleRequest(self: *Self, request: *per.Request, response: *per.Response) void {
            functions.request(&self.state, request, response) catch |err| {
                std.debug.panic("handler: {t}", .{err});
            };
        }
    };
}

fn expectStart(text: []const u8, start: []const u8) !void {
    if (!std.mem.startsWith(u8, text, start)) {
        return testing.expectEqualStrings(start, text[0..@min(text.len, start.len + 40)]);
    }
}

fn expectEnd(text: []const u8, end: []const u8) !void {
    if (!std.mem.endsWith(u8, text, end)) {
        return testing.expectEqualStrings(end, text[text.len -| (end.len + 40)..]);
    }
}

fn expectPart(text: []const u8, part: []const u8) !void {
    if (std.mem.find(u8, text, part) == null) {
        std.debug.print("no \"{s}\" in:\n{s}\n", .{ part, text });
        return error.TestUnexpectedResult;
    }
}

const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

// ---- Whole bodies

const Echo = Handler(struct { digest: u64 = 0 }, struct {
    fn request(state: anytype, request_: *per.Request, response: *per.Response) !void {
        state.digest = std.hash.Wyhash.hash(0, request_.body);
        _ = try response.setBody(request_.body);
        if (request_.findTrailer("x-sum")) |sum| try response.addNewHeader("X-Sum", sum);
    }
});

test "a request body is there as a whole, counted or chunked, on any network" {
    for (0..10) |seed| {
        var simulation: alike.Simulation(Echo) = try .init(gpa, .{}, .{ .seed = seed });
        defer simulation.deinit();
        try expectEnd(
            try simulation.exchange("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"),
            "\r\n\r\nhello",
        );
        const chunked = try simulation.exchange(
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" ++
                "2\r\nhe\r\n3\r\nllo\r\n0\r\nX-Sum: 9\r\n\r\n",
        );
        try expectEnd(chunked, "\r\n\r\nhello");
        try expectPart(chunked, "X-Sum: 9\r\n");
    }
}

test "large bodies in both directions, and pipelined requests behind them" {
    const size = 300_000;
    const body = try gpa.alloc(u8, size);
    defer gpa.free(body);
    var random: std.Random.DefaultPrng = .init(1);
    random.random().bytes(body);
    for (0..6) |seed| {
        var simulation: alike.Simulation(Echo) = try .init(gpa, .{}, .{ .seed = seed });
        defer simulation.deinit();
        const client = try simulation.connect();
        for (0..2) |_| {
            try client.send(std.fmt.comptimePrint(
                "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {d}\r\n\r\n",
                .{size},
            ));
            try client.send(body);
        }
        try client.send(get);
        try simulation.settle();
        try expectStart(client.text(), "HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n");
        const head_len = std.mem.find(u8, client.text(), "\r\n\r\n").? + 4;
        try testing.expectEqualSlices(u8, body, client.text()[head_len..][0..size]);
        const second = client.text()[head_len + size ..];
        try testing.expectEqualSlices(u8, body, second[head_len..][0..size]);
        try expectPart(second[head_len + size ..], "Content-Length: 0\r\n");
    }
}

const shared_content: [300_000]u8 = @splat('x');

const Lender = Handler(struct { released: usize = 0 }, struct {
    fn request(state: anytype, request_: *per.Request, response: *per.Response) !void {
        const len = try std.fmt.parseInt(usize, request_.getPath()[1..], 10);
        const release = struct {
            fn release(holder: *anyopaque) void {
                const released: *usize = @ptrCast(@alignCast(holder));
                released.* += 1;
            }
        }.release;
        try response.setBodyShared(.{
            .bytes = shared_content[0..len],
            .holder = &state.released,
            .release = release,
        });
    }
});

test "a shared body is released once: when it was sent, need not be, or will not be" {
    for (0..6) |seed| {
        var simulation: alike.Simulation(Lender) = try .init(gpa, .{}, .{ .seed = seed });
        defer simulation.deinit();
        const released = &simulation.handler().state.released;
        for ([_]usize{ 0, 100, 300_000 }, 1..) |len, count| {
            var request: [64]u8 = undefined;
            const answer = try simulation.exchange(
                try std.fmt.bufPrint(&request, "GET /{d} HTTP/1.1\r\nHost: h\r\n\r\n", .{len}),
            );
            const head_len = std.mem.find(u8, answer, "\r\n\r\n").? + 4;
            try testing.expectEqualStrings(answer[head_len..], shared_content[0..len]);
            try testing.expectEqual(count, released.*);
        }
        const head = try simulation.exchange("HEAD /300000 HTTP/1.1\r\nHost: h\r\n\r\n");
        try expectPart(head, "Content-Length: 300000\r\n");
        try expectEnd(head, "\r\n\r\n");
        try testing.expectEqual(4, released.*);
        const client = try simulation.connect();
        client.paused = true;
        try client.send("GET /300000 HTTP/1.1\r\nHost: h\r\n\r\n");
        try simulation.settle();
        try testing.expectEqual(4, released.*);
        client.peer.reset();
        try simulation.settle();
        try testing.expectEqual(5, released.*);
        try testing.expectEqual(0, simulation.worker().pool.taken_bytes);
        try testing.expectEqual(0, simulation.worker().pool.loans.bytes);
    }
}

test "a shared body that streams of a connection have is released once, though a stream or its client ends" {
    const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" ++ settings;
    // GET /300000 on a stream, and room for 2^24 bytes on it; the client's, before, for the connection.
    const ask = "\x00\x00\x0e\x01\x05\x00\x00\x00{c}\x82\x86\x04\x07/300000\x41\x01h" ++
        "\x00\x00\x04\x08\x00\x00\x00\x00{c}\x01\x00\x00\x00";
    const room = "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x01\x00\x00\x00";
    const reset = "\x00\x00\x04\x03\x00\x00\x00\x00{c}\x00\x00\x00\x08";
    for (0..30) |seed| {
        var simulation: alike.Simulation(Lender) = try .init(
            gpa,
            .{ .limits = .{ .http2 = .everywhere } },
            .{ .seed = seed },
        );
        defer simulation.deinit();
        const released = &simulation.handler().state.released;
        const client = try simulation.connect();
        try client.send(preface ++ room);
        var bytes: [128]u8 = undefined;
        // The client reads the first answer, cancels the second in the middle, and leaves during the third.
        try client.send(try std.fmt.bufPrint(&bytes, ask, .{ 1, 1 }));
        try simulation.settle();
        try testing.expect(client.text().len > 300_000);
        try testing.expectEqual(1, released.*);
        client.paused = true;
        try client.send(try std.fmt.bufPrint(&bytes, ask, .{ 3, 3 }));
        try simulation.settle();
        try testing.expectEqual(1, released.*);
        try client.send(try std.fmt.bufPrint(&bytes, reset, .{3}));
        try simulation.settle();
        client.paused = false;
        try simulation.settle();
        try testing.expectEqual(2, released.*);
        try testing.expectEqual(0, simulation.worker().pool.loans.bytes);
        client.paused = true;
        try client.send(try std.fmt.bufPrint(&bytes, ask, .{ 5, 5 }));
        try simulation.settle();
        try testing.expectEqual(2, released.*);
        client.peer.reset();
        try simulation.settle();
        try testing.expectEqual(3, released.*);
        try testing.expectEqual(0, simulation.worker().pool.taken_bytes);
        try testing.expectEqual(0, simulation.worker().pool.loans.bytes);
    }
}

test "a body beyond request_buffer_size is refused with 413, announced or not" {
    var simulation: alike.Simulation(Echo) = try .init(gpa, .{ .request_buffer_size = 10 }, .{ .seed = 3 });
    defer simulation.deinit();
    try expectStart(
        try simulation.exchange("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\nhello world"),
        "HTTP/1.1 413 ",
    );
    try expectStart(
        try simulation.exchange(
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n",
        ),
        "HTTP/1.1 413 ",
    );
    try expectStart(
        try simulation.exchange("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhelloworld"),
        "HTTP/1.1 200 ",
    );
}

test "a client that waits for 100 Continue gets it before its body is read" {
    var simulation: alike.Simulation(Echo) = try .init(gpa, .{}, .{ .seed = 4 });
    defer simulation.deinit();
    const client = try simulation.connect();
    try client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    try simulation.settle();
    try testing.expectEqualStrings("HTTP/1.1 100 Continue\r\n\r\n", client.text());
    try client.send("ok");
    try simulation.settle();
    try expectEnd(client.text(), "\r\n\r\nok");
}

// ---- Streamed bodies

/// Counts pieces; answers when the body is complete, at its first byte, or not before it is asked to.
const Counter = struct {
    allocator: std.mem.Allocator,
    aborted: ?per.Reason = null,
    open: usize = 0,

    pub fn init(allocator: std.mem.Allocator) !*Counter {
        const self = try allocator.create(Counter);
        self.* = .{ .allocator = allocator };
        return self;
    }

    pub fn deinit(self: *Counter) void {
        self.allocator.destroy(self);
    }

    const Tally = struct { bytes: usize = 0, ends: usize = 0 };

    pub fn handleRequest(self: *Counter, request: *per.Request, response: *per.Response) void {
        const tally = request.arena.create(Tally) catch unreachable;
        tally.* = .{};
        request.context = tally;
        self.open += 1;
        if (std.mem.eql(u8, request.getPath(), "/early")) {
            response.status = .forbidden;
            response.send() catch unreachable;
            self.open -= 1;
        }
        if (!request.hasBody()) {
            self.open -= 1;
            _ = response.setBody("no body") catch unreachable;
        }
    }

    pub fn handleBody(
        self: *Counter,
        request: *per.Request,
        response: *per.Response,
        piece: []const u8,
        last: bool,
    ) void {
        const tally: *Tally = @ptrCast(@alignCast(request.context.?));
        tally.bytes += piece.len;
        if (!last) return;
        tally.ends += 1;
        self.open -= 1;
        var buffer: [64]u8 = undefined;
        const text = std.fmt.bufPrint(
            &buffer,
            "{s}: {d} bytes, {d} end",
            .{ request.getPath(), tally.bytes, tally.ends },
        ) catch unreachable;
        _ = response.setBody(text) catch unreachable;
    }

    pub fn handleAbort(self: *Counter, request: *per.Request, reason: per.Reason) void {
        _ = request.getPath(); // still readable
        self.aborted = reason;
        self.open -= 1;
    }
};

test "a streamed body comes in pieces, and the answer when it is complete" {
    const size = 200_000;
    const body: [size]u8 = @splat('b');
    for (0..6) |seed| {
        var simulation: alike.Simulation(Counter) = try .init(
            gpa,
            .{ .request_buffer_size = 1 },
            .{ .seed = seed },
        );
        defer simulation.deinit();
        const client = try simulation.connect();
        try client.send(std.fmt.comptimePrint(
            "POST /count HTTP/1.1\r\nHost: h\r\nContent-Length: {d}\r\n\r\n",
            .{size},
        ));
        try client.send(&body);
        try client.send("GET /next HTTP/1.1\r\nHost: h\r\n\r\n");
        try simulation.settle();
        try expectPart(client.text(), "\r\n\r\n/count: 200000 bytes, 1 end");
        try expectEnd(client.text(), "Content-Length: 7\r\n" ++ date_line ++ "\r\nno body");
        try testing.expectEqual(0, simulation.handler().open);
    }
}

const date_line = "Date: Tue, 14 Nov 2023 22:13:20 GMT\r\n";

test "handleBody has a last call for each request that has a body, and none for others" {
    for (0..6) |seed| {
        var simulation: alike.Simulation(Counter) = try .init(gpa, .{}, .{ .seed = seed });
        defer simulation.deinit();
        inline for (.{
            .{ "", "no body" },
            .{ "Content-Length: 0\r\n", "no body" },
            .{ "Transfer-Encoding: chunked\r\n", "/: 0 bytes, 1 end" },
        }) |case| {
            const tail = if (case[0].len > 20) "0\r\n\r\n" else "";
            try expectEnd(
                try simulation.exchange("POST / HTTP/1.1\r\nHost: h\r\n" ++ case[0] ++ "\r\n" ++ tail),
                "\r\n\r\n" ++ case[1],
            );
        }
        try testing.expectEqual(0, simulation.handler().open);
    }
}

test "a streamed request can be answered before its body, which is thrown away" {
    var simulation: alike.Simulation(Counter) = try .init(gpa, .{}, .{ .seed = 2 });
    defer simulation.deinit();
    const client = try simulation.connect();
    try client.send("POST /early HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345");
    try simulation.settle();
    try expectStart(client.text(), "HTTP/1.1 403 ");
    try client.send("67890GET /next HTTP/1.1\r\nHost: h\r\n\r\n");
    try simulation.settle();
    try expectPart(client.text(), "HTTP/1.1 200 OK\r\n");
}

test "a client that goes in the middle of its body: handleAbort, once" {
    var simulation: alike.Simulation(Counter) = try .init(gpa, .{}, .{ .seed = 2 });
    defer simulation.deinit();
    const client = try simulation.connect();
    try client.send("POST /count HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345");
    try simulation.settle();
    try testing.expectEqual(1, simulation.handler().open);
    client.close();
    try simulation.settle();
    try testing.expectEqual(.client_closed, simulation.handler().aborted.?);
    try testing.expectEqual(0, simulation.handler().open);
    try testing.expectEqual(0, simulation.worker().exchanges.count);
}

// ---- Streamed responses

/// Sends `total` bytes, as fast as the client takes them.
const Fountain = struct {
    allocator: std.mem.Allocator,
    waits: usize = 0,
    ends: usize = 0,
    aborts: usize = 0,

    const total = 400_000;
    const piece: [5000]u8 = @splat('f');

    pub fn init(allocator: std.mem.Allocator) !*Fountain {
        const self = try allocator.create(Fountain);
        self.* = .{ .allocator = allocator };
        return self;
    }

    pub fn deinit(self: *Fountain) void {
        self.allocator.destroy(self);
    }

    pub fn handleRequest(self: *Fountain, request: *per.Request, response: *per.Response) void {
        const sent = request.arena.create(usize) catch unreachable;
        sent.* = 0;
        request.context = sent;
        response.addNewHeader("X-Path", request.getPath()) catch unreachable;
        self.handleDrain(request, response);
    }

    pub fn handleDrain(self: *Fountain, request: *per.Request, response: *per.Response) void {
        const sent: *usize = @ptrCast(@alignCast(request.context.?));
        while (sent.* < total) {
            const flow = response.write(&piece) catch return;
            sent.* += piece.len;
            if (flow == .wait) {
                self.waits += 1;
                return;
            }
        }
        self.ends += 1;
        response.end() catch return;
    }

    pub fn handleAbort(self: *Fountain, _: *per.Request, _: per.Reason) void {
        self.aborts += 1;
    }
};

fn unchunk(text: []const u8, out: *std.ArrayList(u8)) !void {
    var rest = text;
    while (true) {
        const line = std.mem.find(u8, rest, "\r\n") orelse return error.Truncated;
        const len = try std.fmt.parseInt(usize, rest[0..line], 16);
        if (len == 0) return;
        try out.appendSlice(gpa, rest[line + 2 ..][0..len]);
        rest = rest[line + 2 + len + 2 ..];
    }
}

test "a stream stops for a slow client and goes on; memory stays near the high-water mark" {
    for (0..6) |seed| {
        var simulation: alike.Simulation(Fountain) = try .init(gpa, .{}, .{ .seed = seed });
        defer simulation.deinit();
        const client = try simulation.connect();
        client.paused = true;
        try client.send(get);
        try simulation.settle();
        try testing.expect(simulation.handler().waits >= 1);
        try testing.expect(
            simulation.worker().pool.taken_bytes < 4 * simulation.worker().config.write_high_bytes,
        );
        client.paused = false;
        try simulation.settle();
        try testing.expectEqual(1, simulation.handler().ends);
        try expectPart(client.text(), "X-Path: /\r\n");
        try expectPart(client.text(), "Transfer-Encoding: chunked\r\n");
        var body: std.ArrayList(u8) = .empty;
        defer body.deinit(gpa);
        try unchunk(client.text()[std.mem.find(u8, client.text(), "\r\n\r\n").? + 4 ..], &body);
        try testing.expectEqual(Fountain.total, body.items.len);
        try testing.expectEqual(0, simulation.handler().aborts);
    }
}

test "a client that goes while a stream waits for it: handleAbort, once, and nothing is left" {
    for (0..6) |seed| {
        var simulation: alike.Simulation(Fountain) = try .init(gpa, .{}, .{ .seed = seed });
        defer simulation.deinit();
        const client = try simulation.connect();
        client.paused = true;
        try client.send(get);
        try simulation.settle();
        client.peer.reset();
        try simulation.settle();
        try testing.expectEqual(1, simulation.handler().aborts);
        try testing.expectEqual(0, simulation.worker().exchanges.count);
        try testing.expectEqual(0, simulation.worker().pool.taken_bytes);
    }
}

const Careless = Handler(struct { small: bool = false }, struct {
    fn request(_: anytype, request_: *per.Request, response: *per.Response) !void {
        // Never looks at the flow, never ends.
        const piece: [1000]u8 = @splat('c');
        const count = try std.fmt.parseInt(usize, request_.getPath()[1..], 10);
        for (0..count) |_| {
            _ = response.write(&piece) catch |err| return testing.expectEqual(
                error.ResponseBodyBufferTooSmall,
                err,
            );
        }
    }
});

test "a stream without handleDrain is ended by the server, and bounded" {
    testing.log_level = .err; // the warning of the last response belongs there
    var simulation: alike.Simulation(Careless) = try .init(
        gpa,
        .{ .response_body_buffer_size = 300_000 },
        .{ .seed = 1 },
    );
    defer simulation.deinit();
    try expectEnd(try simulation.exchange("GET /3 HTTP/1.1\r\nHost: h\r\n\r\n"), "\r\n0\r\n\r\n");
    try expectEnd(try simulation.exchange("GET /200 HTTP/1.1\r\nHost: h\r\n\r\n"), "\r\n0\r\n\r\n");
    const client = try simulation.connect();
    client.paused = true;
    try client.send("GET /100000 HTTP/1.1\r\nHost: h\r\n\r\n");
    try simulation.settle();
    try testing.expect(simulation.worker().pool.taken_bytes < 1_000_000);
}

const Hints = Handler(struct { unused: bool = false }, struct {
    fn request(_: anytype, _: *per.Request, response: *per.Response) !void {
        try response.inform(.early_hints, &.{try .init("Link", "</a.css>; rel=preload")});
        _ = try response.setBody("done");
    }
});

test "informational answers go first" {
    var simulation: alike.Simulation(Hints) = try .init(gpa, .{}, .{ .seed = 1 });
    defer simulation.deinit();
    const answer = try simulation.exchange(get);
    try expectStart(
        answer,
        "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\n",
    );
    try expectEnd(answer, "done");
}

// ---- Detached answers

const Later = Handler(struct { waiting: std.ArrayList(per.Detached) = .empty }, struct {
    fn request(state: anytype, _: *per.Request, response: *per.Response) !void {
        try state.waiting.append(gpa, try response.detach());
        try testing.expectError(error.Closed, response.detach());
    }
});

test "detached answers, whole and streamed, in any order" {
    for (0..6) |seed| {
        var simulation: alike.Simulation(Later) = try .init(gpa, .{}, .{ .seed = seed });
        defer simulation.deinit();
        const state = &simulation.handler().state;
        defer state.waiting.deinit(gpa);
        const first = try simulation.connect();
        const second = try simulation.connect();
        try first.send(get ++ get);
        try simulation.settle();
        try second.send(get);
        try simulation.settle();
        // Pipelined requests wait for the answers before them.
        try testing.expectEqual(2, state.waiting.items.len);
        try testing.expectEqual(0, first.text().len + second.text().len);
        try state.waiting.items[1].answer(.{
            .status = .created,
            .headers = &.{try .init("X-Late", "yes")},
            .body = "two",
        });
        const one = state.waiting.items[0];
        try one.start(.{});
        try one.write("on");
        try one.write("e");
        try one.end();
        try simulation.settle();
        try expectStart(second.text(), "HTTP/1.1 201 Created\r\nX-Late: yes\r\nContent-Length: 3\r\n");
        try expectEnd(second.text(), "two");
        try expectEnd(first.text(), "\r\n\r\n2\r\non\r\n1\r\ne\r\n0\r\n\r\n");
        try testing.expectEqual(3, state.waiting.items.len);
        state.waiting.items[2].drop();
        first.clear();
        try simulation.settle();
        try expectStart(first.text(), "HTTP/1.1 500 ");
    }
}

const Forgetful = Handler(struct { waiting: ?per.Detached = null }, struct {
    fn request(state: anytype, _: *per.Request, response: *per.Response) !void {
        response.status = .not_found;
        try response.addNewHeader("X-Before", "dropped");
        _ = try response.setBody("dropped");
        state.waiting = try response.detach();
    }
});

test "fields set before detach are dropped, whichever way the answer comes" {
    for ([_]bool{ false, true }) |streamed| {
        var simulation: alike.Simulation(Forgetful) = try .init(gpa, .{}, .{ .seed = 1 });
        defer simulation.deinit();
        const client = try simulation.connect();
        try client.send(get);
        try simulation.settle();
        const detached = simulation.handler().state.waiting.?;
        if (streamed) {
            try detached.start(.{});
            try detached.end();
        } else try detached.answer(.{});
        try simulation.settle();
        try expectStart(client.text(), "HTTP/1.1 200 OK\r\n");
        try testing.expectEqual(null, std.mem.find(u8, client.text(), "dropped"));
    }
}

test "a detached answer to a client that is gone, and to a server that is gone" {
    var simulation: alike.Simulation(Later) = try .init(gpa, .{}, .{ .seed = 1 });
    var running = true;
    defer if (running) simulation.deinit();
    const state = &simulation.handler().state;
    const client = try simulation.connect();
    try client.send(get);
    try simulation.settle();
    client.peer.reset();
    try simulation.settle();
    try testing.expectEqual(0, simulation.worker().exchanges.count);
    try state.waiting.items[0].answer(.{ .body = "too late" });
    const other = try simulation.connect();
    try other.send(get);
    try simulation.settle();
    const orphan = state.waiting.items[1];
    state.waiting.deinit(gpa);
    running = false;
    simulation.deinit();
    try testing.expectError(error.Gone, orphan.answer(.{}));
    orphan.drop();
}

test "a detached stream waits for a slow client, within its bound" {
    var simulation: alike.Simulation(Later) = try .init(
        gpa,
        .{ .detached_bytes_max = 500_000 },
        .{ .seed = 5 },
    );
    defer simulation.deinit();
    const state = &simulation.handler().state;
    defer state.waiting.deinit(gpa);
    const client = try simulation.connect();
    client.paused = true;
    try client.send(get);
    try simulation.settle();
    const detached = state.waiting.items[0];
    try detached.start(.{ .headers = &.{try .init("Content-Type", "text/plain")} });
    const piece: [10_000]u8 = @splat('d');
    var pieces: usize = 0;
    while (true) : (pieces += 1) {
        detached.write(&piece) catch |err| {
            try testing.expectEqual(error.Full, err);
            break;
        };
        try simulation.settle();
        try testing.expect(pieces < 100);
    }
    try detached.end();
    client.paused = false;
    try simulation.settle();
    var body: std.ArrayList(u8) = .empty;
    defer body.deinit(gpa);
    try unchunk(client.text()[std.mem.find(u8, client.text(), "\r\n\r\n").? + 4 ..], &body);
    try testing.expectEqual(pieces * piece.len, body.items.len);
    try testing.expectEqual(0, simulation.worker().pool.taken_bytes);
}

// ---- Faults of a handler

const long_value: [256 * 1024]u8 = @splat('v');

const Faulty = Handler(struct { unused: bool = false }, struct {
    fn request(_: anytype, request_: *per.Request, response: *per.Response) !void {
        _ = try response.setBody("seven b");
        if (std.mem.eql(u8, request_.getPath(), "/length")) try response.addNewHeader("Content-Length", "6");
        if (std.mem.eql(u8, request_.getPath(), "/status")) response.status = .fromCode(99);
        if (std.mem.eql(u8, request_.getPath(), "/head")) try response.addNewHeader("X-Long", &long_value);
        if (std.mem.eql(u8, request_.getPath(), "/right")) try response.addNewHeader("content-length", "7");
    }
});

test "a response that cannot be sent becomes a 500, and the connection lives" {
    testing.log_level = .err;
    var simulation: alike.Simulation(Faulty) = try .init(gpa, .{}, .{ .seed = 1 });
    defer simulation.deinit();
    const client = try simulation.connect();
    for ([_][]const u8{ "/length", "/status" }) |path| {
        client.clear();
        try client.send("GET ");
        try client.send(path);
        try client.send(" HTTP/1.1\r\nHost: h\r\n\r\n");
        try simulation.settle();
        try expectStart(client.text(), "HTTP/1.1 500 ");
    }
    client.clear();
    try client.send("GET /right HTTP/1.1\r\nHost: h\r\n\r\n");
    try simulation.settle();
    try expectStart(client.text(), "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n");
}

// ---- Memory

const Busy = Handler(struct { unused: bool = false }, struct {
    fn request(_: anytype, request_: *per.Request, response: *per.Response) !void {
        _ = try request_.parseQuery();
        const value = (try request_.param("x")).?;
        const text = try std.fmt.allocPrint(
            request_.arena,
            "{s} {s} {d}",
            .{ request_.query.get("x").?, value, request_.body.len },
        );
        try response.addNewHeader("Content-Type", "text/plain");
        try response.addNewHeader("X-Text", text);
        if (request_.body.len > 0) {
            _ = try response.setBody(request_.body);
        } else _ = try response.setBody(text);
    }
});

const Counting = struct {
    child: std.mem.Allocator,
    calls: usize = 0,

    fn allocator(self: *Counting) std.mem.Allocator {
        return .{
            .ptr = self,
            .vtable = &.{ .alloc = alloc, .resize = resize, .remap = remap, .free = free },
        };
    }

    fn alloc(context: *anyopaque, len: usize, alignment: std.mem.Alignment, address: usize) ?[*]u8 {
        const self: *Counting = @ptrCast(@alignCast(context));
        self.calls += 1;
        return self.child.rawAlloc(len, alignment, address);
    }

    fn resize(
        context: *anyopaque,
        memory: []u8,
        alignment: std.mem.Alignment,
        len: usize,
        address: usize,
    ) bool {
        const self: *Counting = @ptrCast(@alignCast(context));
        return self.child.rawResize(memory, alignment, len, address);
    }

    fn remap(
        context: *anyopaque,
        memory: []u8,
        alignment: std.mem.Alignment,
        len: usize,
        address: usize,
    ) ?[*]u8 {
        const self: *Counting = @ptrCast(@alignCast(context));
        return self.child.rawRemap(memory, alignment, len, address);
    }

    fn free(context: *anyopaque, memory: []u8, alignment: std.mem.Alignment, address: usize) void {
        const self: *Counting = @ptrCast(@alignCast(context));
        self.child.rawFree(memory, alignment, address);
    }
};

test "after warm-up no request allocates: query, arena, headers, access log, bodies both ways" {
    var counting: Counting = .{ .child = gpa };
    // A smooth network, so that its own buffers find their size at once.
    const config: per.ServerConfig = .{ .access_log = .{ .target = .{ .path = "/dev/null" } } };
    var simulation: alike.Simulation(Busy) = try .init(counting.allocator(), config, .{
        .short_read_permille = 0,
        .late_permille = 0,
        .block_permille = 0,
        .partial_send_permille = 0,
        .window_bytes = 1 << 20,
    });
    defer simulation.deinit();
    const large: [100_000]u8 = @splat('l');
    const client = try simulation.connect();
    var warm: usize = 0;
    for (0..200) |turn| {
        if (turn == 20) warm = counting.calls;
        client.clear();
        try client.send("GET /?x=a%20b&y=2 HTTP/1.1\r\nHost: h\r\n\r\n");
        try client.send("POST /?x=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n");
        try client.send(&large);
        try simulation.settle();
        try expectPart(client.text(), "X-Text: a%20b a b 0\r\n");
        try testing.expect(client.text().len > 100_000);
    }
    try testing.expect(warm > 0);
    try testing.expectEqual(warm, counting.calls);
}

fn initAndDeinit(allocator: std.mem.Allocator) !void {
    const server: *per.ServerOn(per.io.Sim, Echo) = try .init(allocator, 0, .{
        .worker_thread_count = 2,
        .listeners = &.{.{ .ip = .{ .address = "::1", .port = 0 } }},
    });
    server.deinit();
}

test "a server that cannot be created leaks nothing, whatever fails" {
    try testing.checkAllAllocationFailures(gpa, initAndDeinit, .{});
}

test "a limit outside of its range: no server, instead of one that falls over its first client" {
    testing.log_level = .err;
    for ([_]per.Config{
        .{ .body_rate_min = 0 },
        .{ .receive_bytes = 0 },
        .{ .pipeline_pass_max = 0 },
        .{ .deflate_server_window_bits = 99 },
    }) |limits| {
        const config: per.ServerConfig = .{ .limits = limits };
        try testing.expectError(error.OutOfRange, alike.Simulation(Echo).init(gpa, config, .{}));
        try testing.expectError(error.OutOfRange, alike.serve(Echo, gpa, 0, config));
    }
}
