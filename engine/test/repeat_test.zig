//! Bytes that a response repeats, over the simulated network: on time, framed, left out while the peer does
//! not read, gone with the response.
const std = @import("std");
const per = @import("peregrine");
const ticket_host = @import("ticket_host.zig");
const testing = std.testing;
const gpa = testing.allocator;

const Host = ticket_host.Host;
const SimWorker = ticket_host.SimWorker;

const Bench = struct {
    host: Host = .{},
    worker: SimWorker,
    peer: per.io.SimPeer,
    got: std.ArrayList(u8) = .empty,

    /// A worker with one connection whose request has been read.
    fn open(config: per.Config) !*Bench {
        const bench = try gpa.create(Bench);
        bench.* = .{ .worker = undefined, .peer = undefined };
        bench.worker = try .init(gpa, config, &bench.host, .{ .seed = 1, .window_bytes = 2_000 });
        const listener = try bench.worker.listen(try per.io.Address.parse("127.0.0.1", 80), .{});
        bench.peer = try bench.worker.io.connect(listener);
        const request = "GET / HTTP/1.1\r\nHost: sim\r\n\r\n";
        var sent: usize = 0;
        while (bench.host.tickets['/'] == null) {
            if (sent < request.len) sent += try bench.peer.write(request[sent..]);
            try bench.worker.poll(0);
        }
        return bench;
    }

    fn deinit(bench: *Bench) void {
        bench.got.deinit(gpa);
        bench.worker.deinit();
        gpa.destroy(bench);
    }

    fn exchange(bench: *Bench) *per.Exchange {
        return bench.worker.find(bench.host.tickets['/'].?).?;
    }

    /// Starts a chunked response and reads its head.
    fn start(bench: *Bench) !void {
        _ = try bench.worker.start(bench.exchange(), .{ .status = 200, .fields = &.{} });
        try bench.pass(0, .reading);
        try testing.expect(std.mem.endsWith(u8, bench.got.items, "\r\n\r\n"));
        bench.got.clearRetainingCapacity();
    }

    /// Lets time go by in small steps; what came is in `got`.
    fn pass(bench: *Bench, ms: u64, reader: enum { reading, deaf }) !void {
        for (0..ms / 20 + 20) |_| {
            try bench.worker.poll(0);
            if (reader == .reading) try bench.got.appendSlice(gpa, bench.peer.read());
            if (ms > 0) bench.worker.io.advance(20);
        }
    }

    fn count(bench: *const Bench, text: []const u8) usize {
        return std.mem.count(u8, bench.got.items, text);
    }
};

test "bytes are repeated as chunks at their interval, replaced, and stopped" {
    const bench: *Bench = try .open(.{});
    defer bench.deinit();
    try testing.expectError(error.OutOfOrder, bench.worker.setRepeat(bench.exchange(), "x", 10));
    try bench.start();
    try bench.worker.setRepeat(bench.exchange(), "one", 1000);
    try bench.pass(10_000, .reading);
    try testing.expect(bench.count("3\r\none\r\n") >= 8 and bench.count("3\r\none\r\n") <= 11);
    try testing.expectEqual(bench.got.items.len, bench.count("3\r\none\r\n") * 8);
    try bench.worker.setRepeat(bench.exchange(), "two", 500);
    bench.got.clearRetainingCapacity();
    try bench.pass(5_000, .reading);
    try testing.expect(bench.count("3\r\ntwo\r\n") >= 8);
    try testing.expectEqual(0, bench.count("one"));
    try bench.worker.setRepeat(bench.exchange(), "", 0);
    bench.got.clearRetainingCapacity();
    try bench.pass(5_000, .reading);
    try testing.expectEqualStrings("", bench.got.items);
}

test "repeated bytes do not pile up for a peer that does not read, and its time still runs out" {
    const bench: *Bench = try .open(.{ .write_ms = 60_000 });
    defer bench.deinit();
    try bench.start();
    const bytes: [500]u8 = @splat('r');
    try bench.worker.setRepeat(bench.exchange(), &bytes, 100);
    try bench.pass(30_000, .deaf);
    try testing.expect(bench.worker.buffered(bench.exchange()) < 2 * bytes.len);
    try bench.pass(60_000, .deaf);
    try testing.expectEqual(.write_timeout, bench.host.reason);
}

test "a repeated comment counts as activity, and ends with the response" {
    const bench: *Bench = try .open(.{});
    defer bench.deinit();
    try bench.start();
    bench.worker.setIdleLimit(bench.exchange(), 2_000);
    try bench.worker.setRepeat(bench.exchange(), "r", 1_000);
    try bench.pass(10_000, .reading);
    try testing.expectEqual(null, bench.host.reason);
    bench.got.clearRetainingCapacity();
    try testing.expectEqual(
        .done,
        try bench.worker.write(bench.exchange(), .{ .bytes = "" }, .{ .last = true, .close = true }),
    );
    try bench.pass(5_000, .reading);
    try testing.expectEqualStrings("0\r\n\r\n", bench.got.items);
    try testing.expectEqual(0, bench.worker.transports.count);
}
