//! The worker over a simulated network: thousands of histories (history.zig), each from one number, and a few
//! that are told by hand.
//!
//! A failure prints its seed. PEREGRINE_SEED replays one; PEREGRINE_SEEDS says how many are run,
//! PEREGRINE_SEED_FIRST from which on.
const std = @import("std");
const per = @import("peregrine");
const history = @import("history.zig");
const Host = @import("host.zig").Host;
const Worker = @import("host.zig").Worker;
const testing = std.testing;
const gpa = testing.allocator;

const seeds_default = 2_000;

fn number(name: []const u8) !?u64 {
    const text = testing.environ.getPosix(name) orelse return null;
    return try std.fmt.parseInt(u64, text, 10);
}

test "every history ends as it should" {
    const only = try number("PEREGRINE_SEED");
    const first = only orelse try number("PEREGRINE_SEED_FIRST") orelse 0;
    const count = if (only != null) 1 else try number("PEREGRINE_SEEDS") orelse seeds_default;
    for (first..first + count) |seed| history.run(seed) catch |err| {
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
    try testing.expectEqual(1, worker.peers.count);
    try testing.expectEqual(0, worker.exchanges.count);
    try testing.expectEqual(0, worker.pool.taken_bytes);
    peer.close();
    for (0..50) |_| try worker.poll(0);
    try testing.expectEqual(0, worker.peers.count);
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
    try testing.expectEqual(0, worker.peers.count);
    const again = try worker.io.connect(listener);
    for (0..20) |_| try worker.poll(0);
    try testing.expectEqual(1, worker.peers.count);
    again.close();
}
