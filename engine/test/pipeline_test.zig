//! Answers of a pipeline whose application is elsewhere, over the simulated network: they leave together, but
//! none waits long for the next one.
const std = @import("std");
const per = @import("peregrine");
const ticket_host = @import("ticket_host.zig");
const testing = std.testing;
const gpa = testing.allocator;

const Host = ticket_host.Host;
const SimWorker = ticket_host.SimWorker;

const Bench = struct {
    host: Host = .{ .is_elsewhere = true },
    worker: SimWorker,
    peer: per.io.SimPeer,

    /// A worker with a connection that has sent these bytes.
    fn open(text: []const u8) !*Bench {
        const bench = try gpa.create(Bench);
        bench.* = .{ .worker = undefined, .peer = undefined };
        bench.worker = try .init(gpa, .{}, &bench.host, .{ .seed = 1, .window_bytes = 100_000 });
        const listener = try bench.worker.listen(try per.io.Address.parse("127.0.0.1", 80), .{});
        bench.peer = try bench.worker.io.connect(listener);
        var sent: usize = 0;
        while (sent < text.len) sent += try bench.peer.write(text[sent..]);
        return bench;
    }

    fn deinit(bench: *Bench) void {
        bench.worker.deinit();
        gpa.destroy(bench);
    }

    /// Answers the request that the host hears of next.
    fn answer(bench: *Bench, text: []const u8) !void {
        try bench.await();
        const exchange = bench.worker.find(bench.host.tickets['/'].?).?;
        bench.host.tickets['/'] = null;
        const response: per.Start = .{ .status = 200, .body = text, .end = true };
        try testing.expectEqual(.done, bench.worker.start(exchange, response));
    }

    fn await(bench: *Bench) !void {
        while (bench.host.tickets['/'] == null) try bench.worker.poll(0);
    }

    fn rounds(bench: *Bench) !void {
        for (0..5) |_| try bench.worker.poll(0);
    }
};

const request = "GET / HTTP/1.1\r\nHost: sim\r\n\r\n";

test "answers of a pipeline leave together with the last one" {
    const bench: *Bench = try .open(request ++ request ++ request);
    defer bench.deinit();
    for ([_][]const u8{ "one", "two" }) |text| {
        try bench.answer(text);
        try bench.await();
        try bench.rounds();
        try testing.expectEqualStrings("", bench.peer.read());
    }
    try bench.answer("three");
    try bench.rounds();
    const got = bench.peer.read();
    try testing.expectEqual(3, std.mem.count(u8, got, "HTTP/1.1 200"));
    try testing.expect(std.mem.find(u8, got, "one").? < std.mem.find(u8, got, "two").?);
    try testing.expect(std.mem.endsWith(u8, got, "three"));
}

test "an answer does not wait longer than withhold_ms for the next one" {
    const bench: *Bench = try .open(request ++ request);
    defer bench.deinit();
    try bench.answer("one");
    try bench.await();
    bench.worker.io.advance(per.api_limits.withhold_ms);
    try bench.rounds();
    try testing.expect(std.mem.endsWith(u8, bench.peer.read(), "one"));
    try bench.answer("two");
    try bench.rounds();
    try testing.expect(std.mem.endsWith(u8, bench.peer.read(), "two"));
}

test "answers that go on coming wait for each other, and for withhold_most_ms at most" {
    const limits = per.api_limits;
    const looks = limits.withhold_most_ms / limits.withhold_ms;
    const requests: [looks + 2][request.len]u8 = @splat(request.*);
    const bench: *Bench = try .open(std.mem.asBytes(&requests));
    defer bench.deinit();
    try bench.answer("first");
    for (1..looks + 1) |look| {
        try bench.answer("next");
        try bench.await();
        try testing.expectEqualStrings("", bench.peer.read());
        bench.worker.io.advance(limits.withhold_ms);
        try bench.rounds();
        if (look < looks) try testing.expectEqualStrings("", bench.peer.read());
    }
    try testing.expectEqual(looks + 1, std.mem.count(u8, bench.peer.read(), "HTTP/1.1 200"));
    // The answers were sent: those behind them begin anew.
    try bench.answer("last");
    try bench.rounds();
    try testing.expect(std.mem.endsWith(u8, bench.peer.read(), "last"));
}

test "an answer does not wait for a request that has not come, or has not come whole" {
    const half = "POST / HTTP/1.1\r\nHost: sim\r\nContent-Length: 5\r\n\r\nab";
    for ([_][]const u8{ "", request[0..20], half }) |rest| {
        var buffer: [200]u8 = undefined;
        const bench: *Bench = try .open(try std.fmt.bufPrint(&buffer, "{s}{s}", .{ request, rest }));
        defer bench.deinit();
        try bench.answer("one");
        try bench.rounds();
        try testing.expect(std.mem.endsWith(u8, bench.peer.read(), "one"));
    }
}
