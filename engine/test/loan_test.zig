//! Bytes that a response borrows, over the simulated network: they go out in their place, come back when
//! nothing needs them any more, and do not keep others waiting. And what happens to memory afterwards.
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
    listener: u32,

    fn open(window_bytes: u32, seed: u64) !*Bench {
        const bench = try gpa.create(Bench);
        bench.* = .{ .worker = undefined, .listener = undefined };
        bench.worker = try .init(gpa, .{}, &bench.host, .{ .seed = seed, .window_bytes = window_bytes });
        bench.listener = try bench.worker.listen(try per.io.Address.parse("127.0.0.1", 80), .{});
        return bench;
    }

    fn deinit(bench: *Bench) void {
        bench.worker.deinit();
        gpa.destroy(bench);
    }

    /// Connects and asks; comes back when the host has the request.
    fn ask(bench: *Bench, request: []const u8, name: u8) !per.io.SimPeer {
        const peer = try bench.worker.io.connect(bench.listener);
        var sent: usize = 0;
        while (bench.host.tickets[name] == null) {
            if (sent < request.len) sent += try peer.write(request[sent..]);
            try bench.worker.poll(0);
        }
        return peer;
    }

    fn ticket(bench: *const Bench, name: u8) per.Ticket {
        return bench.host.tickets[name].?;
    }

    fn start(bench: *Bench, name: u8) !void {
        _ = try bench.worker.apply(bench.ticket(name), .{ .start = .{ .status = 200 } });
    }

    fn isBack(bench: *Bench, loan: *per.Loan) !bool {
        const back = bench.worker.pool.loans.take() orelse return false;
        try testing.expectEqual(loan, back);
        try testing.expectEqual(null, back.next);
        return true;
    }
};

const get_a = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";

test "a lent body goes out between what surrounds it, and comes back when it is with the kernel" {
    const large: [100_000]u8 = @splat('l');
    for (0..20) |seed| {
        const bench: *Bench = try .open(10_000, seed);
        defer bench.deinit();
        const peer = try bench.ask(get_a, 'a');
        try bench.start('a');
        var loan: per.Loan = .{};
        _ = try bench.worker.apply(bench.ticket('a'), .{ .body = .{ .bytes = "before" } });
        _ = try bench.worker.apply(bench.ticket('a'), .{ .body = .{ .bytes = &large, .loan = &loan } });
        _ = try bench.worker.apply(
            bench.ticket('a'),
            .{ .body = .{ .bytes = "behind", .last = true, .close = true } },
        );
        var got: std.ArrayList(u8) = .empty;
        defer got.deinit(gpa);
        var rounds: usize = 0;
        var back_at: ?usize = null;
        while (peer.ended() == null) : (rounds += 1) {
            try testing.expect(rounds < 10_000);
            try bench.worker.poll(0);
            if (try bench.isBack(&loan)) back_at = got.items.len;
            try got.appendSlice(gpa, peer.read());
        }
        const body = got.items[std.mem.find(u8, got.items, "\r\n\r\n").? + 4 ..];
        try testing.expectEqualStrings(
            "6\r\nbefore\r\n186a0\r\n" ++ large ++ "\r\n6\r\nbehind\r\n0\r\n\r\n",
            body,
        );
        // The loan came back after the content was sent, when only the window behind it was still on its way.
        try testing.expect(back_at.? >= large.len - 20_000);
        try testing.expectEqual(0, bench.worker.pool.taken_bytes);
    }
}

test "a refused loan is not taken, and a loan that need not be sent comes back at once" {
    const bench: *Bench = try .open(1_000_000, 1);
    defer bench.deinit();
    const large: [50_000]u8 = @splat('l');
    var loan: per.Loan = .{};
    _ = try bench.ask(get_a, 'a');
    const lent: per.Command = .{ .body = .{ .bytes = &large, .loan = &loan, .last = true } };
    try testing.expectError(error.OutOfOrder, bench.worker.apply(bench.ticket('a'), lent));
    const fields = [_]per.Field{.init("Content-Length", "100")};
    _ = try bench.worker.apply(bench.ticket('a'), .{ .start = .{ .status = 200, .fields = &fields } });
    try testing.expectError(error.TooLong, bench.worker.apply(bench.ticket('a'), lent));
    try testing.expect(!try bench.isBack(&loan));
    _ = try bench.ask("HEAD /h HTTP/1.1\r\nHost: h\r\n\r\n", 'h');
    try bench.start('h');
    try testing.expectEqual(.done, try bench.worker.apply(bench.ticket('h'), lent));
    try testing.expect(try bench.isBack(&loan));
    try testing.expectError(error.Gone, bench.worker.apply(bench.ticket('h'), lent));
    try testing.expect(!try bench.isBack(&loan));
    try testing.expectEqual(0, bench.worker.pool.loans.bytes);
}

test "a loan comes back when the peer leaves, and when the response is cut" {
    const large: [100_000]u8 = @splat('l');
    for (0..2) |way| {
        const bench: *Bench = try .open(1000, 1);
        defer bench.deinit();
        var loan: per.Loan = .{};
        const peer = try bench.ask(get_a, 'a');
        try bench.start('a');
        try testing.expectEqual(
            .blocked,
            try bench.worker.apply(bench.ticket('a'), .{ .body = .{ .bytes = &large, .loan = &loan } }),
        );
        for (0..50) |_| try bench.worker.poll(0);
        try testing.expect(!try bench.isBack(&loan));
        if (way == 0) peer.reset() else _ = try bench.worker.apply(bench.ticket('a'), .abort);
        var rounds: usize = 0;
        while (!try bench.isBack(&loan)) : (rounds += 1) {
            try testing.expect(rounds < 100);
            try bench.worker.poll(0);
        }
    }
}

test "a lent WebSocket message is one frame, and what is compressed or small comes back at once" {
    const large: [100_000]u8 = @splat('l');
    const handshake = "GET /w HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" ++
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
    for ([_][]const u8{ "", "Sec-WebSocket-Extensions: permessage-deflate\r\n" }) |extension| {
        const bench: *Bench = try .open(10_000, 1);
        defer bench.deinit();
        var text: [400]u8 = undefined;
        const peer = try bench.ask(try std.fmt.bufPrint(&text, "{s}{s}\r\n", .{ handshake, extension }), 'w');
        _ = try bench.worker.apply(bench.ticket('w'), .{ .accept = .{} });
        for (0..50) |_| try bench.worker.poll(0);
        _ = peer.read();
        var loan: per.Loan = .{};
        _ = try bench.worker.apply(
            bench.ticket('w'),
            .{ .message = .{ .kind = .text, .bytes = "small", .loan = &loan } },
        );
        try testing.expect(try bench.isBack(&loan));
        _ = try bench.worker.apply(
            bench.ticket('w'),
            .{ .message = .{ .kind = .binary, .bytes = &large, .loan = &loan } },
        );
        try testing.expectEqual(extension.len > 0, try bench.isBack(&loan));
        if (extension.len > 0) continue;
        var got: std.ArrayList(u8) = .empty;
        defer got.deinit(gpa);
        while (!try bench.isBack(&loan)) {
            try got.appendSlice(gpa, peer.read());
            try bench.worker.poll(0);
        }
        for (0..200) |_| {
            try bench.worker.poll(0);
            try got.appendSlice(gpa, peer.read());
        }
        try testing.expectEqualStrings(
            "\x81\x05small" ++ "\x82\x7f\x00\x00\x00\x00\x00\x01\x86\xa0" ++ large,
            got.items,
        );
    }
}

test "large responses of many go out in turns, however much the kernel would take at once" {
    const count = 40;
    const mib = 1024 * 1024;
    const large = try gpa.alloc(u8, mib);
    defer gpa.free(large);
    @memset(large, 'l');
    const bench: *Bench = try .open(10_000_000, 1);
    defer bench.deinit();
    var peers: [count]per.io.SimPeer = undefined;
    var loans: [count]per.Loan = @splat(.{});
    for (&peers, 'A'..) |*peer, name| {
        var request: [get_a.len]u8 = get_a.*;
        request["GET /".len] = @intCast(name);
        peer.* = try bench.ask(&request, @intCast(name));
    }
    for (&loans, 'A'..) |*loan, name| {
        try bench.start(@intCast(name));
        _ = try bench.worker.apply(
            bench.ticket(@intCast(name)),
            .{ .body = .{ .bytes = large, .loan = loan, .last = true } },
        );
    }
    var got: usize = 0;
    var rounds: usize = 0;
    while (got < count * large.len) : (rounds += 1) {
        try testing.expect(rounds < 1000);
        var got_now: usize = 0;
        for (&peers) |peer| got_now += peer.read().len;
        try testing.expect(got_now <= 9 * mib + count * 128 * 1024);
        got += got_now;
        try bench.worker.poll(0);
    }
    try testing.expectEqual(0, bench.worker.pool.loans.bytes);
    for (0..50) |_| try bench.worker.poll(0);
    // Some had sent all before their turn was over.
    try testing.expect(bench.host.finished_count >= count / 2);
}

test "the host is asked to give memory back some time after a burst" {
    const bench: *Bench = try .open(1000, 1);
    defer bench.deinit();
    const large = try gpa.alloc(u8, 40_000_000);
    defer gpa.free(large);
    @memset(large, 'l');
    var loan: per.Loan = .{};
    const peer = try bench.ask(get_a, 'a');
    try bench.start('a');
    _ = try bench.worker.apply(bench.ticket('a'), .{ .body = .{ .bytes = large, .loan = &loan } });
    for (0..10) |_| try bench.worker.poll(0);
    peer.reset();
    for (0..10) |_| try bench.worker.poll(0);
    try testing.expect(try bench.isBack(&loan));
    try testing.expectEqual(0, bench.host.relieved_count);
    for (0..10) |_| {
        bench.worker.io.advance(200);
        try bench.worker.poll(0);
    }
    // Twice the host was not ready.
    try testing.expectEqual(3, bench.host.relieved_count);
}
