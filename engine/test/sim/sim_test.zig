//! The worker over a simulated network: thousands of histories (history.zig), each from one number, and a few
//! that are told by hand. In half of the histories all connections speak TLS (cast.zig), in half of these the
//! kernel seals.
//!
//! A failure prints its seed. PEREGRINE_SEED replays one; PEREGRINE_SEEDS says how many are run,
//! PEREGRINE_SEED_FIRST from which on; script/test takes others each day.
const std = @import("std");
const per = @import("peregrine");
const certificates = @import("certificates");
const wanted = @import("wanted");
const history = @import("history.zig");
const Host = @import("host.zig").Host;
const Worker = @import("host.zig").Worker;
const testing = std.testing;
const gpa = testing.allocator;

test "every history ends as it should" {
    const seeds: wanted.Seeds = try .init(1_000, 30);
    defer certificates.remove();
    for (seeds.first..seeds.first + seeds.count) |seed| history.run(seed) catch |err| {
        std.debug.print(
            "\nseed {d}: {t}; PEREGRINE_SEED={d} script/fuzz sim 0 replays it\n",
            .{ seed, err, seed },
        );
        return err;
    };
}

test "an idle keep-alive connection holds no buffer" {
    var prng: std.Random.DefaultPrng = .init(1);
    var host: Host = .{ .gpa = gpa, .random = prng.random() };
    defer host.deinit();
    const worker = try gpa.create(Worker);
    defer gpa.destroy(worker);
    worker.* = try .init(gpa, .{}, &host, .{ .seed = 1 });
    defer worker.deinit();
    const listener = try worker.listen(try per.io.Address.parse("127.0.0.1", 80), .{});
    const peer = try worker.io.connect(listener);
    const request = "GET /whole/1/300 HTTP/1.1\r\nHost: sim\r\n\r\n";
    var sent: usize = 0;
    while (host.finished_count == 0) {
        if (sent < request.len) sent += try peer.write(request[sent .. sent + 1]);
        try worker.poll(0);
        try host.step(worker);
        _ = peer.read();
    }
    for (0..50) |_| {
        try worker.poll(0);
        _ = peer.read();
    }
    try testing.expectEqual(1, worker.transports.count);
    try testing.expectEqual(0, worker.exchanges.count);
    try testing.expectEqual(0, worker.pool.taken_bytes);
    peer.close();
    for (0..50) |_| try worker.poll(0);
    try testing.expectEqual(0, worker.transports.count);
}

test "every connection over the limit gets a 503 or at least an end, and service goes on" {
    var prng: std.Random.DefaultPrng = .init(2);
    var host: Host = .{ .gpa = gpa, .random = prng.random() };
    defer host.deinit();
    const worker = try gpa.create(Worker);
    defer gpa.destroy(worker);
    worker.* = try .init(gpa, .{ .connections_max = 1, .descriptors_reserved = 2 }, &host, .{ .seed = 2 });
    defer worker.deinit();
    const listener = try worker.listen(try per.io.Address.parse("127.0.0.1", 80), .{});
    const first = try worker.io.connect(listener);
    for (0..20) |_| try worker.poll(0);
    var others: [6]per.io.SimPeer = undefined;
    for (&others) |*other| other.* = try worker.io.connect(listener);
    for (0..100) |_| try worker.poll(0);
    for (others) |other| {
        var answer: std.ArrayList(u8) = .empty;
        defer answer.deinit(gpa);
        for (0..100) |_| {
            try answer.appendSlice(gpa, other.read());
            try worker.poll(0);
        }
        try testing.expectStringStartsWith(answer.items, "HTTP/1.1 503 ");
        try testing.expect(std.mem.indexOf(u8, answer.items, "Retry-After: 5\r\n") != null);
        other.close();
    }
    try testing.expectEqual(6, worker.stats.rejected);
    first.close();
    for (0..100) |_| {
        worker.io.advance(100);
        try worker.poll(0);
    }
    try testing.expectEqual(0, worker.transports.count);
    const again = try worker.io.connect(listener);
    for (0..20) |_| try worker.poll(0);
    try testing.expectEqual(1, worker.transports.count);
    again.close();
}

/// A worker, its host and a listener, on a network that does nothing by itself.
const Stage = struct {
    prng: std.Random.DefaultPrng,
    host: Host,
    worker: *Worker,
    listener: u32,

    fn open(stage: *Stage) !void {
        stage.prng = .init(3);
        stage.host = .{ .gpa = gpa, .random = stage.prng.random() };
        stage.worker = try gpa.create(Worker);
        errdefer gpa.destroy(stage.worker);
        stage.worker.* = try .init(gpa, .{}, &stage.host, .{ .seed = 3 });
        stage.listener = try stage.worker.listen(try per.io.Address.parse("127.0.0.1", 80), .{});
    }

    fn close(stage: *Stage) void {
        stage.worker.deinit();
        gpa.destroy(stage.worker);
        stage.host.deinit();
    }

    /// A client that has sent this, all of which has been read.
    fn enter(stage: *Stage, text: []const u8) !per.io.SimPeer {
        const peer = try stage.worker.io.connect(stage.listener);
        try stage.send(peer, text);
        return peer;
    }

    fn send(stage: *Stage, peer: per.io.SimPeer, text: []const u8) !void {
        try testing.expectEqual(text.len, try peer.write(text));
        for (0..10) |_| try stage.worker.poll(0);
    }

    /// The host, which takes its time, answers what it has been asked; some milliseconds pass.
    fn pass(stage: *Stage, milliseconds: u64) !void {
        for (0..100) |_| {
            try stage.host.step(stage.worker);
            try stage.worker.poll(0);
        }
        stage.worker.io.advance(milliseconds);
        for (0..10) |_| try stage.worker.poll(0);
    }
};

test "a worker that retires answers each connection once more" {
    var stage: Stage = undefined;
    try stage.open();
    defer stage.close();
    const worker = stage.worker;
    const request = "GET /whole/1/3 HTTP/1.1\r\nHost: sim\r\n\r\n";
    const answer = "HTTP/1.1 200 OK\r\nDate: now\r\nContent-Length: 3\r\n";
    const idle = try stage.enter(request);
    const quiet = try stage.enter(request);
    try stage.pass(0);
    for ([_]per.io.SimPeer{ idle, quiet }) |peer| {
        try testing.expectEqualStrings(answer ++ "\r\nhij", peer.read());
    }
    const fresh = try stage.enter("");
    const busy = try stage.enter(request);
    const missed = try worker.io.connect(stage.listener);

    worker.retire();
    worker.retire();
    try testing.expect(missed.ended() != null);
    try stage.pass(4_900);
    try testing.expectEqualStrings(answer ++ "Connection: close\r\n\r\nhij", busy.read());
    try testing.expect(busy.ended() != null);
    for ([_]per.io.SimPeer{ idle, fresh }) |peer| {
        try testing.expectEqual(null, peer.ended());
        try stage.send(peer, request ++ request);
        try stage.pass(0);
        try testing.expectEqualStrings(answer ++ "Connection: close\r\n\r\nhij", peer.read());
        try testing.expect(peer.ended() != null);
    }
    try testing.expect(quiet.ended() == null and !stage.host.stopped_seen);
    try stage.pass(200);
    try testing.expect(quiet.ended() != null);
    try testing.expectEqualStrings("", quiet.read());
    for ([_]per.io.SimPeer{ busy, idle, fresh, quiet }) |peer| peer.close();
    try stage.pass(worker.config.linger_ms);
    try testing.expectEqual(0, worker.transports.count);
    try testing.expect(stage.host.stopped_seen);
}

test "WebSockets of a worker that retires go on until they are ended" {
    var stage: Stage = undefined;
    try stage.open();
    defer stage.close();
    const handshake = "GET /socket/1/0 HTTP/1.1\r\nHost: sim\r\nUpgrade: websocket\r\n" ++
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" ++
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    const message = "\x81\x82\x00\x00\x00\x00hi";
    const open = try stage.enter(handshake);
    const later = try stage.enter("");
    const late = try stage.enter("");
    try stage.pass(0);
    try testing.expectStringStartsWith(open.read(), "HTTP/1.1 101 ");

    stage.worker.retire();
    try stage.send(later, handshake);
    try stage.pass(60_000);
    try testing.expectStringStartsWith(later.read(), "HTTP/1.1 101 ");
    for ([_]per.io.SimPeer{ open, later }) |peer| {
        try stage.send(peer, message);
        try stage.pass(0);
        try testing.expectEqualStrings("\x81\x02hi", peer.read());
    }
    try testing.expect(late.ended() != null);
    try testing.expect(!stage.worker.endsWebSockets());

    stage.worker.endWebSockets();
    try testing.expect(stage.worker.endsWebSockets());
    for ([_]per.io.SimPeer{ open, later }) |peer| {
        try stage.pass(0);
        try testing.expectEqualStrings("\x88\x02\x03\xf4", peer.read());
        try stage.send(peer, "\x88\x82\x00\x00\x00\x00\x03\xf4");
        try stage.pass(0);
        try testing.expect(peer.ended() != null);
    }
    for ([_]per.io.SimPeer{ open, later, late }) |peer| peer.close();
    try stage.pass(stage.worker.config.linger_ms);
    try testing.expect(stage.host.stopped_seen);
}

test "a handshake on a connection of a worker that ends its WebSockets is completed, and closed with 1012" {
    var stage: Stage = undefined;
    try stage.open();
    defer stage.close();
    const handshake = "GET /socket/1/0 HTTP/1.1\r\nHost: sim\r\nUpgrade: websocket\r\n" ++
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" ++
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    const accepted = try stage.enter("");
    stage.worker.retire();
    stage.worker.endWebSockets();
    try stage.send(accepted, handshake);
    try stage.pass(0);
    const answer = accepted.read();
    try testing.expectStringStartsWith(answer, "HTTP/1.1 101 ");
    try testing.expectStringEndsWith(answer, "\r\n\r\n\x88\x02\x03\xf4");
    try stage.send(accepted, "\x88\x82\x00\x00\x00\x00\x03\xf4");
    try stage.pass(0);
    try testing.expect(accepted.ended() != null);
    accepted.close();
    try stage.pass(stage.worker.config.linger_ms);
    try testing.expect(stage.host.stopped_seen);
}
