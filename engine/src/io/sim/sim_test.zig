//! Job: tests of the `Sim` beyond the contract suite: repeatable histories, and random faults.
const std = @import("std");
const io = @import("../io.zig");
const sys = @import("../sys.zig");
const Peer = @import("peer.zig").Peer;
const Sim = @import("../sim.zig").Sim;
const Socket = io.Socket;
const testing = std.testing;

/// Runs an echo over a faulty network and returns a digest of all events.
fn history(seed: u64) !u64 {
    var sim: Sim = try .init(testing.allocator, .{
        .seed = seed,
        .window_bytes = 300,
        .reset_permille = 2,
        .accept_failure_permille = 100,
    });
    defer sim.deinit();
    const listener = try sim.listen(try .parse("127.0.0.1", 0), .{});
    var peers: [5]Peer = undefined;
    for (&peers) |*peer| peer.* = try sim.connect(listener);
    var sockets: [5]Socket = undefined;
    var accepted: usize = 0;
    var digest: std.hash.Fnv1a_64 = .init();
    for (0..400) |round| {
        for (&peers) |peer| {
            if (round < 300) {
                _ = try peer.write("how is the weather over there?");
            } else if (round == 300) {
                peer.shutdown();
            }
            digest.update(peer.read());
        }
        try sim.resumeAccept(listener);
        digest.update(std.mem.asBytes(&try sim.wait(-1)));
        while (sim.next()) |event| {
            digest.update(@tagName(event));
            switch (event) {
                .accepted => |one| {
                    sockets[accepted] = one.socket;
                    try sim.add(one.socket, accepted);
                    accepted += 1;
                },
                .received => |some| {
                    digest.update(std.mem.asBytes(&some.token));
                    _ = sim.send(sockets[some.token], &.{io.slice(some.bytes)}, false);
                },
                .ended => |end| digest.update(std.mem.asBytes(&end.token)),
                else => {},
            }
        }
    }
    try testing.expectEqual(peers.len, accepted);
    return digest.final();
}

test "a seed replays its history, another seed has another" {
    const first = try history(1);
    try testing.expectEqual(first, try history(1));
    try testing.expect(first != try history(2));
}

test "resets and accept failures come by themselves when asked for" {
    var sim: Sim = try .init(testing.allocator, .{
        .seed = 7,
        .reset_permille = 100,
        .accept_failure_permille = 500,
    });
    defer sim.deinit();
    const listener = try sim.listen(try .parse("::1", 0), .{});
    var failures: usize = 0;
    var resets: usize = 0;
    for (0..20) |_| _ = try sim.connect(listener);
    for (0..1000) |_| {
        try sim.resumeAccept(listener);
        _ = try sim.wait(0);
        while (sim.next()) |event| switch (event) {
            .accepted => |one| try sim.add(one.socket, 0),
            .accept_failed => |failed| {
                try testing.expect(failed.exhausted);
                failures += 1;
            },
            .ended => |end| {
                try testing.expectEqual(io.Ended.reset, end.how);
                resets += 1;
            },
            else => return error.TestUnexpectedResult,
        };
    }
    try testing.expectEqual(@as(usize, 20), resets);
    try testing.expect(failures > 0);
}

test "closing with unread bytes resets the peer" {
    var sim: Sim = try .init(testing.allocator, .{ .late_permille = 0 });
    defer sim.deinit();
    const listener = try sim.listen(try .parse("127.0.0.1", 80), .{});
    try testing.expectError(error.AddressInUse, sim.listen(try .parse("127.0.0.1", 80), .{}));
    for ([_]?[]const u8{ "unread", null }, [_]io.Ended{ .reset, .eof }) |bytes, end| {
        const peer = try sim.connect(listener);
        if (bytes) |some| try testing.expectEqual(some.len, try peer.write(some));
        _ = try sim.wait(0);
        sim.close(sim.next().?.accepted.socket);
        try testing.expectEqual(@as(?io.Ended, end), peer.ended());
    }
}
