//! Whole request bodies for handlers that want them so: in memory, or in a temporary file if they are long.
//! No handler gets a request before its body is complete, and nothing is left of a request whose body never
//! is.
const std = @import("std");
const per = @import("peregrine");
const alike = @import("alike.zig");
const loopback = @import("loopback.zig");
const testing = std.testing;
const gpa = testing.allocator;
const linux = std.os.linux;

/// A handler that answers with length and hash of the body, and with a trailer.
const Digest = struct {
    allocator: std.mem.Allocator,
    calls: std.atomic.Value(usize) = .init(0),
    aborts: usize = 0,
    /// Answers with the body itself, as fast as its client takes it.
    echoes: bool = false,
    /// Answers with a part of the body, left to the server or sent before the handler returns.
    returns: ?struct { from: usize, to: usize, early: bool = false } = null,

    pub fn init(allocator: std.mem.Allocator) !*Digest {
        const self = try allocator.create(Digest);
        self.* = .{ .allocator = allocator };
        return self;
    }

    pub fn deinit(self: *Digest) void {
        self.allocator.destroy(self);
    }

    pub fn handleRequest(self: *Digest, request: *per.Request, response: *per.Response) !void {
        _ = self.calls.fetchAdd(1, .monotonic);
        if (self.echoes) {
            var length: [24]u8 = undefined;
            const text = try std.fmt.bufPrint(&length, "{d}", .{request.body.len});
            try response.addNewHeader("Content-Length", text);
            request.context = @ptrFromInt(1); // bytes that are sent, and one more
            return pour(request, response);
        }
        if (self.returns) |part| {
            const hash = std.hash.Wyhash.hash(0, request.body);
            _ = try response.setBody(request.body); // replaced
            _ = try response.setBody(request.body[part.from..part.to]);
            if (part.early) try response.send();
            // The whole body can be read for as long as the handler has not returned.
            try testing.expectEqual(hash, std.hash.Wyhash.hash(0, request.body));
            return;
        }
        const text = try answerTo(request.body, request.findTrailer("x-sum") orelse "none");
        defer gpa.free(text);
        _ = try response.setBody(text);
    }

    pub fn handleDrain(_: *Digest, request: *per.Request, response: *per.Response) !void {
        try pour(request, response);
    }

    fn pour(request: *per.Request, response: *per.Response) !void {
        while (true) {
            const sent = @intFromPtr(request.context.?) - 1;
            const rest = request.body[sent..];
            if (rest.len == 0) return response.end();
            const piece = rest[0..@min(rest.len, 10_000)];
            request.context = @ptrFromInt(sent + piece.len + 1);
            if (try response.write(piece) == .wait) return;
        }
    }

    pub fn handleAbort(self: *Digest, _: *per.Request, _: per.Reason) void {
        self.aborts += 1;
    }
};

fn answerTo(body: []const u8, trailer: []const u8) ![]u8 {
    return std.fmt.allocPrint(gpa, "{d} {x} {s}", .{ body.len, std.hash.Wyhash.hash(0, body), trailer });
}

const Bench = alike.Simulation(Digest);

/// Returns `len` bytes in which no sequence repeats.
fn bytesOf(len: usize) ![]u8 {
    const bytes = try gpa.alloc(u8, len);
    var prng: std.Random.DefaultPrng = .init(len);
    prng.random().bytes(bytes);
    return bytes;
}

/// A request with this body: counted, or in chunks of this many bytes with a trailer.
fn requestWith(body: []const u8, chunk_bytes: ?usize) ![]u8 {
    var text: std.ArrayList(u8) = .empty;
    errdefer text.deinit(gpa);
    try text.appendSlice(gpa, "POST /some/path?query HTTP/1.1\r\nHost: h\r\n");
    const most = chunk_bytes orelse {
        try text.print(gpa, "Content-Length: {d}\r\n\r\n", .{body.len});
        try text.appendSlice(gpa, body);
        return text.toOwnedSlice(gpa);
    };
    try text.appendSlice(gpa, "Transfer-Encoding: chunked\r\n\r\n");
    var rest = body;
    while (rest.len > 0) {
        const piece = rest[0..@min(rest.len, most)];
        try text.print(gpa, "{x}\r\n", .{piece.len});
        try text.appendSlice(gpa, piece);
        try text.appendSlice(gpa, "\r\n");
        rest = rest[piece.len..];
    }
    try text.appendSlice(gpa, "0\r\nX-Sum: 9\r\n\r\n");
    return text.toOwnedSlice(gpa);
}

/// Descriptors of this process that are temporary files.
fn filesOpen() usize {
    var count: usize = 0;
    for (0..1024) |fd| {
        var space: [32]u8 = undefined;
        const name = std.fmt.bufPrintSentinel(&space, "/proc/self/fd/{d}", .{fd}, 0) catch unreachable;
        var target: [256]u8 = undefined;
        const rc = linux.readlink(name, &target, target.len);
        if (linux.errno(rc) != .SUCCESS) continue;
        if (std.mem.endsWith(u8, target[0..rc], " (deleted)")) count += 1;
    }
    return count;
}

/// Nothing is left of any request.
fn expectNothingLeft(bench: *Bench) !void {
    bench.worker().invariants();
    try testing.expectEqual(0, bench.worker().exchanges.count);
    try testing.expectEqual(0, bench.worker().bodies.held_bytes);
    try testing.expectEqual(0, bench.worker().pool.taken_bytes);
    try testing.expectEqual(0, filesOpen());
}

test "a body that is sent back is not copied, and whole" {
    const body = try bytesOf(200_000);
    defer gpa.free(body);
    for ([_]?usize{ null, 7_000 }) |chunk_bytes| for ([_]u32{ 1_000_000, 5_000 }) |limit| {
        for ([_][2]usize{ .{ 0, 200_000 }, .{ 1, 199_999 }, .{ 150_000, 200_000 }, .{ 7, 9 } }) |part| {
            for ([_]bool{ false, true }) |early| {
                const request = try requestWith(body, chunk_bytes);
                defer gpa.free(request);
                const config: per.ServerConfig = .{ .limits = .{ .body_memory_bytes_max = limit } };
                var bench: Bench = try .init(gpa, config, .{ .seed = part[0] });
                defer bench.deinit();
                bench.handler().returns = .{ .from = part[0], .to = part[1], .early = early };
                const client = try bench.connect();
                for (0..2) |_| {
                    client.clear();
                    try client.send(request);
                    try bench.settle();
                    try testing.expect(std.mem.endsWith(u8, client.text(), body[part[0]..part[1]]));
                }
                try expectNothingLeft(&bench);
            }
        }
    };
}

test "a client that goes while it is sent its own body leaves nothing behind" {
    const body = try bytesOf(200_000);
    defer gpa.free(body);
    const request = try requestWith(body, null);
    defer gpa.free(request);
    var bench: Bench = try .init(gpa, .{}, .{ .window_bytes = 10_000 });
    defer bench.deinit();
    bench.handler().returns = .{ .from = 0, .to = body.len };
    const client = try bench.connect();
    client.paused = true;
    try client.send(request);
    try bench.settle();
    // The body waits to be sent in the memory where it was gathered: in one piece, larger than any block.
    var lanes = bench.worker().lanes();
    var slices: [1][]const u8 = undefined;
    _ = lanes.next().?.out().queue.front(&slices);
    try testing.expect(slices[0].len > 100_000);
    client.peer.reset();
    try bench.settle();
    try expectNothingLeft(&bench);
}

test "a body of any size is there as a whole, counted or chunked, in memory or in a file" {
    const limit = 5_000;
    const sizes = [_]usize{ 0, 1, limit - 1, limit, limit + 1, 2 * limit, 2 * limit + 1, 70_000, 400_000 };
    for (sizes, 0..) |size, seed| for ([_]?usize{ null, 7_000, 100 }) |chunk_bytes| {
        const body = try bytesOf(size);
        defer gpa.free(body);
        const request = try requestWith(body, chunk_bytes);
        defer gpa.free(request);
        const answer = try answerTo(body, if (chunk_bytes == null) "none" else "9");
        defer gpa.free(answer);
        const config: per.ServerConfig = .{ .limits = .{ .body_memory_bytes_max = limit } };
        var bench: Bench = try .init(gpa, config, .{ .seed = seed });
        defer bench.deinit();
        const client = try bench.connect();
        for (1..4) |turn| {
            client.clear();
            try client.send(request[0 .. request.len - 1]);
            try bench.settle();
            // A file is there as soon as it is needed, and the handler hears of nothing before the end.
            const come = if (chunk_bytes == null) size -| 1 else size;
            try testing.expectEqual(@intFromBool(come > limit), filesOpen());
            try testing.expectEqual(turn - 1, bench.handler().calls.raw);
            try client.send(request[request.len - 1 ..]);
            try bench.settle();
            try testing.expectStringStartsWith(client.text(), "HTTP/1.1 200 OK\r\n");
            try testing.expect(std.mem.endsWith(u8, client.text(), answer));
            try testing.expectEqual(turn, bench.handler().calls.raw);
        }
        try expectNothingLeft(&bench);
    };
}

test "a long upload takes a bounded part of memory" {
    const body = try bytesOf(8 << 20);
    defer gpa.free(body);
    const request = try requestWith(body, null);
    defer gpa.free(request);
    var bench: Bench = try .init(gpa, .{
        .request_buffer_size = body.len,
        .limits = .{ .body_memory_bytes_max = 100_000 },
    }, .{ .seed = 1, .window_bytes = 1 << 20 });
    defer bench.deinit();
    const client = try bench.connect();
    var most: usize = 0;
    var rest: []const u8 = request;
    while (rest.len > 0) {
        rest = rest[try client.peer.write(rest)..];
        _ = try bench.step();
        most = @max(most, bench.worker().pool.taken_bytes);
    }
    try bench.settle();
    const answer = try answerTo(body, "none");
    defer gpa.free(answer);
    try testing.expect(std.mem.endsWith(u8, client.text(), answer));
    try testing.expect(most > 100_000 and most < 1 << 20);
    try expectNothingLeft(&bench);
}

test "a handler may use the body as long as it answers, while its client is slow" {
    const body = try bytesOf(300_000);
    defer gpa.free(body);
    for ([_]usize{ 1 << 20, 1000 }) |memory_max| {
        const request = try requestWith(body, 5_000);
        defer gpa.free(request);
        var bench: Bench = try .init(gpa, .{
            .limits = .{ .body_memory_bytes_max = @intCast(memory_max) },
        }, .{ .seed = 2, .window_bytes = 20_000 });
        defer bench.deinit();
        bench.handler().echoes = true;
        const client = try bench.connect();
        try client.send(request);
        try bench.settle();
        try testing.expect(std.mem.endsWith(u8, client.text(), body));
        try expectNothingLeft(&bench);
        // A client that leaves in the middle of its body.
        const other = try bench.connect();
        other.paused = true;
        try other.send(request);
        try bench.settle();
        try testing.expectEqual(@intFromBool(memory_max == 1000), filesOpen());
        other.peer.reset();
        try bench.settle();
        try testing.expectEqual(1, bench.handler().aborts);
        try expectNothingLeft(&bench);
    }
}

test "of a body that never comes to its end nobody hears, and nothing is left" {
    const body = try bytesOf(100_000);
    defer gpa.free(body);
    const request = try requestWith(body, 3_000);
    defer gpa.free(request);
    var prng: std.Random.DefaultPrng = .init(1);
    for (0..100) |seed| {
        var bench: Bench = try .init(gpa, .{
            .limits = .{ .body_memory_bytes_max = if (seed % 2 == 0) 2_000 else 1 << 20 },
        }, .{ .seed = seed });
        defer bench.deinit();
        const client = try bench.connect();
        try client.send(request[0..prng.random().uintLessThan(usize, request.len)]);
        for (0..seed % 5) |_| _ = try bench.step();
        switch (seed % 4) {
            0 => client.close(),
            1 => client.peer.reset(),
            2 => client.peer.shutdown(),
            // The client stalls, and gets 408.
            else => {
                try bench.settle();
                try bench.advance(60_000);
                try testing.expectStringStartsWith(client.text(), "HTTP/1.1 408 ");
            },
        }
        try bench.settle();
        try bench.advance(60_000);
        try testing.expectEqual(0, bench.handler().calls.raw);
        try testing.expectEqual(0, bench.handler().aborts);
        try expectNothingLeft(&bench);
    }
}

test "a client that ends its sending side behind its body gets its answer" {
    const body = try bytesOf(20_000);
    defer gpa.free(body);
    const request = try requestWith(body, null);
    defer gpa.free(request);
    for (0..20) |seed| {
        const config: per.ServerConfig = .{ .limits = .{ .body_memory_bytes_max = 1_000 } };
        var bench: Bench = try .init(gpa, config, .{ .seed = seed });
        defer bench.deinit();
        const client = try bench.connect();
        try client.send(request);
        client.peer.shutdown();
        try bench.settle();
        try testing.expectStringStartsWith(client.text(), "HTTP/1.1 200 OK\r\n");
        client.close();
        try bench.advance(60_000);
        try expectNothingLeft(&bench);
    }
}

test "the bytes in all files of a worker are bounded (507), and come free again" {
    const body = try bytesOf(40_000);
    defer gpa.free(body);
    const request = try requestWith(body, null);
    defer gpa.free(request);
    var bench: Bench = try .init(gpa, .{
        .limits = .{ .body_memory_bytes_max = 1_000, .body_file_bytes_max = 100_000 },
    }, .{ .seed = 3 });
    defer bench.deinit();
    const first = try bench.connect();
    try first.send(request[0 .. request.len - 1]);
    const second = try bench.connect();
    try second.send(request[0 .. request.len - 1]);
    try bench.settle();
    try testing.expectEqual(2, filesOpen());
    const third = try bench.exchange(request);
    try testing.expectStringStartsWith(third, "HTTP/1.1 507 Insufficient Storage\r\n");
    for ([_]*Bench.Client{ first, second }) |client| {
        try client.send(request[request.len - 1 ..]);
        try bench.settle();
        try testing.expectStringStartsWith(client.text(), "HTTP/1.1 200 OK\r\n");
    }
    try testing.expectStringStartsWith(try bench.exchange(request), "HTTP/1.1 200 OK\r\n");
    for (bench.simulation.clients.items) |client| client.close();
    try bench.advance(60_000);
    try expectNothingLeft(&bench);
}

test "a folder in which no file can be made: 507, while what is short is served" {
    const body = try bytesOf(2_000);
    defer gpa.free(body);
    var bench: Bench = try .init(gpa, .{
        .body_folder = "/nonexistent/folder",
        .limits = .{ .body_memory_bytes_max = 1_000 },
    }, .{ .seed = 4 });
    defer bench.deinit();
    for ([_]usize{ 1_000, 1_001 }, [_][]const u8{ "200", "507" }) |len, status| {
        const request = try requestWith(body[0..len], null);
        defer gpa.free(request);
        const answer = try bench.exchange(request);
        try testing.expectEqualStrings(status, answer["HTTP/1.1 ".len..][0..3]);
    }
    for (bench.simulation.clients.items) |client| client.close();
    try bench.advance(60_000);
    try expectNothingLeft(&bench);
}

test "a body beyond the limit of its size is refused, wherever it lies" {
    const body = try bytesOf(30_000);
    defer gpa.free(body);
    const request = try requestWith(body, 1_000);
    defer gpa.free(request);
    var bench: Bench = try .init(gpa, .{
        .request_buffer_size = body.len - 1,
        .limits = .{ .body_memory_bytes_max = 1_000 },
    }, .{ .seed = 5 });
    defer bench.deinit();
    const client = try bench.connect();
    try client.send(request);
    try bench.settle();
    try testing.expectStringStartsWith(client.text(), "HTTP/1.1 413 ");
    client.close();
    try bench.advance(60_000);
    try expectNothingLeft(&bench);
}

test "when nothing is there to give, a request ends and the worker lives" {
    const body = try bytesOf(20_000);
    defer gpa.free(body);
    const request = try requestWith(body, 1_500);
    defer gpa.free(request);
    var refused: usize = 0;
    for (0..60) |seed| {
        const config: per.ServerConfig = .{ .limits = .{ .body_memory_bytes_max = 1_000 } };
        var bench: Bench = try .init(gpa, config, .{ .seed = seed });
        defer bench.deinit();
        var failing: testing.FailingAllocator = .init(gpa, .{ .fail_index = seed });
        const pool = &bench.worker().pool;
        pool.gpa = failing.allocator();
        defer pool.gpa = gpa;
        const answer = try bench.exchange(request);
        failing.fail_index = std.math.maxInt(usize);
        if (!std.mem.startsWith(u8, answer, "HTTP/1.1 200 ")) refused += 1;
        for (bench.simulation.clients.items) |client| client.close();
        try bench.advance(60_000);
        try expectNothingLeft(&bench);
    }
    try testing.expect(refused > 0 and refused < 60);
}

// ---- Over the loopback, with the thread that writes

const Real = per.Server(Digest);

fn upload(port: u16, request: []const u8, answer: []const u8, failed: *std.atomic.Value(bool)) void {
    uploadTwice(port, request, answer) catch failed.store(true, .seq_cst);
}

fn uploadTwice(port: u16, request: []const u8, answer: []const u8) !void {
    const fd = try loopback.connect(port);
    defer _ = linux.close(fd);
    for (0..2) |_| {
        try loopback.send(fd, request);
        var text: [1000]u8 = undefined;
        var len: usize = 0;
        while (!std.mem.endsWith(u8, text[0..len], answer)) {
            const got = try loopback.receive(fd, text[len..]);
            if (got.len == 0) return error.EndedEarly;
            len += got.len;
        }
        try testing.expectStringStartsWith(&text, "HTTP/1.1 200 OK\r\n");
    }
}

test "long uploads over real sockets, some of which never end, and a stop in the middle" {
    const size = 6 << 20;
    const body = try bytesOf(size);
    defer gpa.free(body);
    const request = try requestWith(body, null);
    defer gpa.free(request);
    const answer = try answerTo(body, "none");
    defer gpa.free(answer);
    const before = filesOpen();
    const server: *Real = try .init(std.heap.smp_allocator, 0, .{
        .ip = "127.0.0.1",
        .worker_thread_count = 1,
        .handle_signals = false,
        .request_buffer_size = size,
        .stop_ms = 1,
        .limits = .{ .body_memory_bytes_max = 200_000 },
    });
    const port = server.port();
    const thread: std.Thread = try .spawn(.{}, run, .{server});
    {
        defer thread.join();
        defer server.shutdown();
        var failed: std.atomic.Value(bool) = .init(false);
        var uploads: [3]std.Thread = undefined;
        for (&uploads) |*one| one.* = try .spawn(.{}, upload, .{ port, request, answer, &failed });
        for (0..10) |_| {
            const fd = try loopback.connect(port);
            defer _ = linux.close(fd);
            try loopback.send(fd, request[0 .. size / 2]);
        }
        for (uploads) |one| one.join();
        try testing.expect(!failed.load(.seq_cst));
        const half = try loopback.connect(port);
        defer _ = linux.close(half);
        try loopback.send(half, request[0 .. size / 2]);
    }
    try testing.expectEqual(before, filesOpen());
}

fn run(server: *Real) void {
    server.start() catch |err| std.debug.panic("{t}", .{err});
}
