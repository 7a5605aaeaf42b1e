//! Job: tests of a `Uring` beyond the contract suite: sends after sends, ends after sends, buffers of paused
//! sockets.
const std = @import("std");
const linux = std.os.linux;
const io = @import("../io.zig");
const sys = @import("../sys.zig");
const SendResult = io.SendResult;
const Socket = io.Socket;
const outgoing_file = @import("outgoing.zig");
const Uring = @import("../uring.zig").Uring;
const testing = std.testing;

test {
    _ = @import("listener.zig");
    _ = @import("ring.zig");
    _ = @import("pieces.zig");
    _ = @import("outgoing.zig");
}

/// An io with one added socket, and the peer of that socket.
const Bench = struct {
    uring: Uring,
    socket: Socket,
    peer: sys.Fd,

    fn init(bench: *Bench) !void {
        bench.uring = Uring.init(testing.allocator, .{}) catch |err| switch (err) {
            error.AccessDenied, error.Unsupported => return error.SkipZigTest,
            else => return err,
        };
        errdefer bench.uring.deinit();
        var pair: [2]sys.Fd = undefined;
        try testing.expectEqual(
            linux.E.SUCCESS,
            linux.errno(linux.socketpair(linux.AF.UNIX, linux.SOCK.STREAM, 0, &pair)),
        );
        try sys.setNonblockCloexec(pair[0]);
        bench.socket = @fromBackingInt(pair[0]);
        bench.peer = pair[1];
        try bench.uring.add(bench.socket, 7);
    }

    fn deinit(bench: *Bench) void {
        sys.close(bench.peer);
        bench.uring.deinit();
    }

    /// Reads in another thread until the end, and then wakes the io.
    fn readToEnd(bench: *Bench, total: *usize) void {
        var buffer: [64 * 1024]u8 = undefined;
        while (true) {
            // Unlike sys.receive(), this blocks.
            const count = linux.read(bench.peer, &buffer, buffer.len);
            if (linux.errno(count) == .INTR) continue;
            if (linux.errno(count) != .SUCCESS) return;
            total.* += count;
            if (count == 0) return bench.uring.wake();
        }
    }

    /// Returns the number of bytes that the peer has received at the end. Rounds may sleep for a long time,
    /// so a round that sleeps although work is left makes the test fail.
    fn bytesToEnd(bench: *Bench) !usize {
        const started = bench.uring.now();
        var total: usize = 0;
        const thread: std.Thread = try .spawn(.{}, readToEnd, .{ bench, &total });
        defer thread.join();
        while (true) {
            _ = try bench.uring.wait(10_000);
            try testing.expect(bench.uring.now() - started < 5_000);
            while (bench.uring.next()) |event| if (event == .woken) return total;
        }
    }
};

test "a send behind a send is told when it may try again, without a sleep" {
    var bench: Bench = undefined;
    try bench.init();
    defer bench.deinit();
    try testing.expectEqual(
        SendResult{ .sent = 3 },
        bench.uring.send(bench.socket, &.{io.slice("one")}, false),
    );
    try testing.expectEqual(SendResult.blocked, bench.uring.send(bench.socket, &.{io.slice("two")}, false));
    const started = bench.uring.now();
    var sents: usize = 0;
    while (sents == 0) {
        _ = try bench.uring.wait(10_000);
        while (bench.uring.next()) |event| sents += @intFromBool(event == .sent);
    }
    try testing.expect(bench.uring.now() - started < 5_000);
    try testing.expectEqual(
        SendResult{ .sent = 3 },
        bench.uring.send(bench.socket, &.{io.slice("two")}, false),
    );
    try bench.uring.alarm(null);
    var buffer: [10]u8 = undefined;
    try testing.expectEqual(sys.Moved{ .done = 6 }, sys.receive(bench.peer, &buffer));
}

test "bytes that were sent arrive before the end, however soon that was asked for" {
    for ([_]bool{ false, true }) |closes| {
        var bench: Bench = undefined;
        try bench.init();
        defer bench.deinit();
        try testing.expectEqual(
            SendResult{ .sent = 3 },
            bench.uring.send(bench.socket, &.{io.slice("one")}, false),
        );
        if (closes) bench.uring.close(bench.socket) else bench.uring.shutdownSend(bench.socket);
        try testing.expectEqual(3, try bench.bytesToEnd());
    }
}

test "a full socket gets the rest later, and is closed when it has" {
    var bench: Bench = undefined;
    try bench.init();
    defer bench.deinit();
    var total: usize = 0;
    const piece: [outgoing_file.copy_bytes_max]u8 = @splat('p');
    while (total < 10_000_000) {
        switch (bench.uring.send(bench.socket, &.{io.slice(&piece)}, false)) {
            .sent => |count| total += count,
            .blocked => {},
            else => return error.TestUnexpectedResult,
        }
        _ = try bench.uring.wait(0);
        while (bench.uring.next()) |event| try testing.expect(event == .sent);
        const entry = bench.uring.entryOf(bench.socket);
        if (entry.block != null) break;
    } else return error.NeverFull;
    bench.uring.close(bench.socket);
    try testing.expectEqual(1, bench.uring.outgoing.orphans);
    try testing.expectEqual(total, try bench.bytesToEnd());
    try testing.expectEqual(0, bench.uring.outgoing.orphans);
}

test "paused sockets keep no buffer from others, however much they were sent" {
    var bench: Bench = undefined;
    try bench.init();
    defer bench.deinit();
    const piece: [1000]u8 = @splat('p');
    try sys.setNonblockCloexec(bench.peer);
    bench.uring.pause(bench.socket);
    var sent: usize = 0;
    for (0..200) |_| {
        switch (sys.send(bench.peer, &.{io.slice(&piece)}, false)) {
            .done => |count| sent += count,
            .blocked => break,
            .failed => return error.TestUnexpectedResult,
        }
        _ = try bench.uring.wait(0);
        try testing.expectEqual(null, bench.uring.next());
        try testing.expectEqual(0, bench.uring.buffers.held);
    }
    bench.uring.resumeReading(bench.socket);
    var got: usize = 0;
    while (got < sent) {
        _ = try bench.uring.wait(1000);
        while (bench.uring.next()) |event| got += event.received.bytes.len;
    }
    try testing.expectEqual(sent, got);
}

test "bytes that do not fit into the batch go out at once, and all of them arrive" {
    var bench: Bench = undefined;
    try bench.init();
    defer bench.deinit();
    const answer: [outgoing_file.copy_bytes_max]u8 = @splat('a');
    var peers: [6]sys.Fd = undefined;
    for (&peers, 0..) |*peer, token| {
        var pair: [2]sys.Fd = undefined;
        try testing.expectEqual(
            linux.E.SUCCESS,
            linux.errno(linux.socketpair(linux.AF.UNIX, linux.SOCK.STREAM, 0, &pair)),
        );
        try sys.setNonblockCloexec(pair[0]);
        peer.* = pair[1];
        try bench.uring.add(@fromBackingInt(pair[0]), token);
        try testing.expectEqual(
            SendResult{ .sent = answer.len },
            bench.uring.send(@fromBackingInt(pair[0]), &.{io.slice(&answer)}, false),
        );
    }
    const together = bench.uring.outgoing.current().len;
    try testing.expect(together > 1 and together < peers.len);
    _ = try bench.uring.wait(0);
    try testing.expectEqual(0, bench.uring.outgoing.current().len);
    var buffer: [answer.len + 1]u8 = undefined;
    for (peers) |peer| {
        try testing.expectEqual(sys.Moved{ .done = answer.len }, sys.receive(peer, &buffer));
        sys.close(peer);
    }
}

test "a socket that is reset behind a send is closed once" {
    var bench: Bench = undefined;
    try bench.init();
    defer bench.deinit();
    try testing.expectEqual(
        SendResult{ .sent = 3 },
        bench.uring.send(bench.socket, &.{io.slice("one")}, false),
    );
    bench.uring.reset(bench.socket);
    try bench.uring.alarm(null);
    // The number is free again: closing it must not hit its next owner.
    const next_owner = try sys.socket(linux.AF.UNIX);
    defer sys.close(next_owner);
    try testing.expectEqual(@as(sys.Fd, @backingInt(bench.socket)), next_owner);
    _ = try bench.uring.wait(0);
    try bench.uring.alarm(null);
    try testing.expect(sys.look(next_owner) != null);
}
