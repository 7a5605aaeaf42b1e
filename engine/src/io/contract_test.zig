//! Tests of the io contract (io.zig), which run with every io: epoll, io_uring and (over a stand-in for its
//! kernel) kqueue, each with IPv4, IPv6 and Unix sockets, and the simulation with several seeds
//! (contract_harness.zig). Does not know: how an io works. Tests of abilities that one io has alone are in
//! its own file.

const std = @import("std");
const harness_file = @import("contract_harness.zig");
const io = @import("io.zig");
const sys = @import("sys.zig");
const linux = std.os.linux;
const testing = std.testing;

const Epoll = io.Epoll;
const Sim = io.Sim;
const Socket = io.Socket;
const Stage = harness_file.Stage;
const everywhere = harness_file.everywhere;
const pattern = harness_file.pattern;

fn acceptsBurst(comptime Harness: type) !void {
    var stage: Stage(Harness) = try .init(.{ .accepts_per_wait = 4 });
    defer stage.deinit();
    const listener = try stage.harness.listen();
    try testing.expect((stage.harness.io.listenerAddress(listener).port() orelse 1) != 0);
    var peers: [10]Harness.Peer = undefined;
    for (&peers) |*peer| peer.* = try stage.harness.connect(listener);
    defer for (&peers) |*peer| peer.close();
    while (stage.accepted.items.len < peers.len) {
        const before = stage.accepted.items.len;
        try stage.round();
        try testing.expect(stage.accepted.items.len - before <= 4);
    }
    try stage.quiet();
    try testing.expectEqual(peers.len, stage.accepted.items.len);
    for (stage.accepted.items, 0..) |socket, index| {
        try testing.expect(std.mem.indexOfScalar(Socket, stage.accepted.items[0..index], socket) == null);
    }
    for (stage.accepted.items) |socket| stage.harness.io.close(socket);
    for (&peers) |*peer| {
        var nothing: std.ArrayList(u8) = .empty;
        while (peer.ended() == null) {
            try stage.round();
            try peer.read(&nothing);
        }
        try testing.expectEqual(io.Ended.eof, peer.ended().?);
    }
}

test "contract: a burst of connections, within the budget of a round" {
    try everywhere(acceptsBurst);
}

fn echoes(comptime Harness: type) !void {
    var stage: Stage(Harness) = try .init(.{});
    defer stage.deinit();
    const listener = try stage.harness.listen();
    var peer, const socket = try stage.join(listener, 3);
    defer peer.close();
    var answer: std.ArrayList(u8) = .empty;
    defer answer.deinit(testing.allocator);
    for ([_][]const u8{ "hello", "again" }) |word| {
        stage.logs[3].bytes.clearRetainingCapacity();
        answer.clearRetainingCapacity();
        try testing.expectEqual(word.len, try peer.write(word));
        while (stage.logs[3].bytes.items.len < word.len) try stage.round();
        try testing.expectEqualStrings(word, stage.logs[3].bytes.items);
        try stage.sendAll(socket, 3, stage.logs[3].bytes.items, &peer, null);
        while (answer.items.len < word.len) {
            try stage.round();
            try peer.read(&answer);
        }
        try testing.expectEqualStrings(word, answer.items);
    }
    try testing.expectEqual(io.SendResult{ .sent = 0 }, stage.harness.io.send(socket, &.{}, false));
}

test "contract: echo" {
    try everywhere(echoes);
}

fn receivesMuch(comptime Harness: type) !void {
    var stage: Stage(Harness) = try .init(.{ .receive_buffer_bytes = 10_000 });
    defer stage.deinit();
    const listener = try stage.harness.listen();
    var peer, const socket = try stage.join(listener, 0);
    defer peer.close();
    const block = try pattern(1 << 20);
    defer testing.allocator.free(block);
    const log = &stage.logs[0];

    // The socket is paused: the peer can write until buffers are full, and no bytes come.
    stage.harness.io.pause(socket);
    var written: usize = 0;
    var refused: u32 = 0;
    while (refused < 20) {
        const count = try peer.write(block[written % block.len ..]);
        written += count;
        refused = if (count == 0) refused + 1 else 0;
        try stage.round();
    }
    try testing.expect(written > 0 and written < 64 << 20);
    try testing.expectEqual(@as(usize, 0), log.bytes.items.len);
    peer.shutdown();

    // After `resumeReading` all bytes come, without a new edge of the kernel. Pauses in between lose no
    // bytes.
    stage.harness.io.resumeReading(socket);
    stage.harness.io.resumeReading(socket);
    var next_pause: usize = 100_000;
    while (log.eofs == 0) {
        try stage.round();
        if (log.bytes.items.len < next_pause or log.eofs > 0) continue;
        next_pause += 100_000;
        stage.harness.io.pause(socket);
        const before = log.bytes.items.len;
        try stage.round();
        try stage.round();
        try testing.expectEqual(before, log.bytes.items.len);
        stage.harness.io.resumeReading(socket);
    }
    try testing.expectEqual(written, log.bytes.items.len);
    var at: usize = 0;
    while (at < written) : (at += block.len) {
        const part = log.bytes.items[at..@min(at + block.len, written)];
        try testing.expectEqualSlices(u8, block[0..part.len], part);
    }
}

test "contract: pausing slows the peer down and loses nothing" {
    try everywhere(receivesMuch);
}

fn sendsMuch(comptime Harness: type) !void {
    var stage: Stage(Harness) = try .init(.{});
    defer stage.deinit();
    const listener = try stage.harness.listen();
    var peer, const socket = try stage.join(listener, 0);
    defer peer.close();
    const bytes = try pattern(12 << 20);
    defer testing.allocator.free(bytes);
    var got: std.ArrayList(u8) = .empty;
    defer got.deinit(testing.allocator);
    try stage.sendAll(socket, 0, bytes, &peer, &got);
    try testing.expect(stage.logs[0].sents > 0);
    stage.harness.io.shutdownSend(socket);
    while (peer.ended() == null) {
        try stage.round();
        try peer.read(&got);
    }
    try testing.expectEqual(io.Ended.eof, peer.ended().?);
    try testing.expectEqualSlices(u8, bytes, got.items);
}

test "contract: a slow reader blocks the sender, and room is reported" {
    try everywhere(sendsMuch);
}

/// Sends until the kernel is full: three refusals in a row, each followed by rounds without an event. A
/// single refusal may be the simulation's whim.
fn fill(stage: anytype, socket: io.Socket, bytes: []const u8) !void {
    var refused: u32 = 0;
    while (refused < 3) switch (stage.harness.io.send(socket, &.{io.slice(bytes)}, false)) {
        .sent => refused = 0,
        .blocked => {
            refused += 1;
            try stage.quiet();
        },
        else => return error.TestUnexpectedResult,
    };
}

fn noRoomNoEvent(comptime Harness: type) !void {
    var stage: Stage(Harness) = try .init(.{});
    defer stage.deinit();
    const listener = try stage.harness.listen();
    var peer, const socket = try stage.join(listener, 0);
    defer peer.close();
    const bytes = try pattern(1 << 20);
    defer testing.allocator.free(bytes);
    try fill(&stage, socket, bytes);
    const before = stage.logs[0].sents;
    try stage.quiet();
    try testing.expectEqual(before, stage.logs[0].sents);
    const held = stage.harness.io.held(socket);
    try testing.expect(held > 0);
    var got: std.ArrayList(u8) = .empty;
    defer got.deinit(testing.allocator);
    while (stage.logs[0].sents == before) {
        try peer.read(&got);
        try stage.round();
    }
    try stage.quiet();
    try testing.expect(stage.harness.io.held(socket) < held);
    try testing.expectEqual(before + 1, stage.logs[0].sents);

    // While no send waits for room, received bytes cause no event about room.
    const word = "unrelated";
    try testing.expectEqual(word.len, try peer.write(word));
    while (stage.logs[0].bytes.items.len < word.len) try stage.round();
    try testing.expectEqual(before + 1, stage.logs[0].sents);
}

test "contract: sent comes once, when there is room and not before" {
    try everywhere(noRoomNoEvent);
}

fn boundsUnsent(comptime Harness: type) !void {
    var stage: Stage(Harness) = try .init(.{});
    defer stage.deinit();
    const listener = try stage.harness.listen();
    var peer, const socket = try stage.join(listener, 0);
    defer peer.close();
    var other, const free = try stage.join(listener, 1);
    defer other.close();
    const bytes = try pattern(1 << 20);
    defer testing.allocator.free(bytes);
    stage.harness.io.limitUnsent(socket, 64 * 1024);
    try fill(&stage, socket, bytes);
    try fill(&stage, free, bytes);
    if (Harness.bounds_unsent) {
        try testing.expect(stage.harness.io.held(socket) < stage.harness.io.held(free) / 2);
    }
    var got: std.ArrayList(u8) = .empty;
    defer got.deinit(testing.allocator);
    const before = stage.logs[0].sents;
    while (stage.logs[0].sents == before) {
        try peer.read(&got);
        try stage.round();
    }
}

test "contract: what is unsent is bounded, and room is reported" {
    try everywhere(boundsUnsent);
}

fn answersHalfClose(comptime Harness: type) !void {
    var stage: Stage(Harness) = try .init(.{});
    defer stage.deinit();
    const listener = try stage.harness.listen();
    var peer, const socket = try stage.join(listener, 5);
    defer peer.close();
    const log = &stage.logs[5];
    _ = try peer.write("question");
    peer.shutdown();
    while (log.eofs == 0) try stage.round();
    try testing.expectEqualStrings("question", log.bytes.items);
    try stage.quiet();
    try stage.sendAll(socket, 5, "answer", &peer, null);
    stage.harness.io.shutdownSend(socket);
    var answer: std.ArrayList(u8) = .empty;
    defer answer.deinit(testing.allocator);
    while (peer.ended() == null) {
        try stage.round();
        try peer.read(&answer);
    }
    try testing.expectEqualStrings("answer", answer.items);
    try testing.expectEqual(io.Ended.eof, peer.ended().?);
    try stage.quiet();
    try testing.expectEqual(@as(u32, 1), log.eofs);
    try testing.expectEqual(@as(u32, 0), log.resets);
}

test "contract: a half-closed peer still gets its answer" {
    try everywhere(answersHalfClose);
}

fn tellsEnding(comptime Harness: type) !void {
    // Unread bytes before the end: none, a few, and more than one receive takes.
    for ([_]usize{ 0, 5, 50_000 }) |unread| for ([_]bool{ false, true }) |ends_first| {
        var stage: Stage(Harness) = try .init(.{ .receive_buffer_bytes = 1000 });
        defer stage.deinit();
        const listener = try stage.harness.listen();
        var peer, const socket = try stage.join(listener, 3);
        defer peer.close();
        const log = &stage.logs[3];
        const bytes = try pattern(unread);
        defer testing.allocator.free(bytes);
        if (!ends_first) stage.harness.io.pause(socket);
        var written: usize = 0;
        while (written < unread) written += try peer.write(bytes[written..]);
        peer.shutdown();
        if (ends_first) stage.harness.io.pause(socket);
        while (log.endings == 0) try stage.round();
        try stage.quiet();
        try testing.expectEqual(@as(u32, 0), log.eofs);
        stage.harness.io.resumeReading(socket);
        while (log.eofs == 0) try stage.round();
        try testing.expectEqualSlices(u8, bytes, log.bytes.items);
        stage.harness.io.pause(socket);
        try stage.quiet();
        try testing.expectEqual(@as(u32, 1), log.endings);
    };
}

test "contract: of the end of a paused peer there is word, once, and everything before it can still be read" {
    try everywhere(tellsEnding);
}

fn reportsReset(comptime Harness: type) !void {
    if (!Harness.can_reset) return;
    const Way = enum { reading, paused, after_eof };
    for ([_]Way{ .reading, .paused, .after_eof }) |way| {
        var stage: Stage(Harness) = try .init(.{});
        defer stage.deinit();
        const listener = try stage.harness.listen();
        var peer, const socket = try stage.join(listener, 1);
        const log = &stage.logs[1];
        switch (way) {
            .reading => {},
            .paused => stage.harness.io.pause(socket),
            .after_eof => {
                peer.shutdown();
                while (log.eofs == 0) try stage.round();
            },
        }
        peer.reset();
        while (log.resets == 0) try stage.round();
        try testing.expectEqual(@as(u32, @intFromBool(way == .after_eof)), log.eofs);
        try testing.expect(stage.harness.io.send(socket, &.{io.slice("late")}, false) == .failed);
        if (way == .paused) stage.harness.io.resumeReading(socket);
        try stage.quiet();
        try testing.expectEqual(@as(u32, 1), log.resets);
        stage.harness.io.close(socket);
        try stage.quiet();
    }
}

test "contract: a reset is reported once, while reading, paused or after the end" {
    try everywhere(reportsReset);
}

fn failedSendEnds(comptime Harness: type) !void {
    if (!Harness.can_reset) return;
    var stage: Stage(Harness) = try .init(.{});
    defer stage.deinit();
    const listener = try stage.harness.listen();
    var peer, const socket = try stage.join(listener, 1);
    var closer, const closed_at_once = try stage.join(listener, 2);
    peer.reset();
    closer.reset();
    stage.harness.pass(5);
    // All kernels take these bytes at once.
    const bytes = try pattern(64 * 1024);
    defer testing.allocator.free(bytes);
    for ([_]Socket{ socket, closed_at_once }) |one| {
        while (true) switch (stage.harness.io.send(one, &.{io.slice(bytes)}, false)) {
            .failed => |errno| break try testing.expect(errno != 0),
            else => try stage.harness.io.alarm(null),
        };
        try testing.expect(stage.harness.readable());
    }
    stage.harness.io.close(closed_at_once);
    while (stage.logs[1].resets == 0) try stage.round();
    try testing.expect(stage.harness.io.send(socket, &.{io.slice("x")}, false) == .failed);
    try stage.quiet();
    try testing.expectEqual(@as(u32, 1), stage.logs[1].resets);
    try testing.expectEqual(@as(u32, 0), stage.logs[2].resets);
}

test "contract: a failed send is followed by one reset, unless closed" {
    try everywhere(failedSendEnds);
}

fn noticesAbsence(comptime Harness: type) !void {
    var stage: Stage(Harness) = try .init(.{});
    defer stage.deinit();
    const listener = try stage.harness.listen();
    var peer, const socket = try stage.join(listener, 1);
    peer.close();
    while (stage.logs[1].eofs == 0) try stage.round();
    try stage.quiet();
    try testing.expectEqual(@as(u32, 0), stage.logs[1].resets);
    // The peer has closed its socket, which only a send finds out. With Unix sockets the kernel reports
    // nothing afterwards.
    while (stage.logs[1].resets == 0) {
        const result = stage.harness.io.send(socket, &.{io.slice("anybody there?")}, false);
        try testing.expect(result != .end_of_file);
        try stage.round();
    }
    try stage.quiet();
    try testing.expectEqual(@as(u32, 1), stage.logs[1].eofs);
    try testing.expectEqual(@as(u32, 1), stage.logs[1].resets);
}

test "contract: a peer that left is noticed by sending" {
    try everywhere(noticesAbsence);
}

fn forgetsClosed(comptime Harness: type) !void {
    var stage: Stage(Harness) = try .init(.{});
    defer stage.deinit();
    const listener = try stage.harness.listen();
    var peers: [4]Harness.Peer = undefined;
    var sockets: [4]Socket = undefined;
    for (&peers, &sockets, 0..) |*peer, *socket, token| peer.*, socket.* = try stage.join(listener, token);
    defer for (&peers) |*peer| peer.close();
    // All peers send bytes, and a connection waits that will get a free number.
    for (&peers) |*peer| _ = try peer.write("secret");
    var heir = try stage.harness.connect(listener);
    defer heir.close();
    stage.harness.pass(5);

    var heard: ?io.Token = null;
    const accepted_before = stage.accepted.items.len;
    var reused = false;
    while (heard == null or stage.accepted.items.len == accepted_before) {
        stage.rounds += 1;
        try testing.expect(stage.rounds < 10_000);
        _ = try stage.harness.io.wait(2);
        while (stage.harness.io.next()) |event| switch (event) {
            .received => |some| {
                if (heard) |first| try testing.expectEqual(first, some.token) else {
                    heard = some.token;
                    for (sockets, 0..) |socket, token| {
                        if (token != some.token) stage.harness.io.close(socket);
                    }
                }
            },
            .accepted => |one| {
                try stage.accepted.append(testing.allocator, one.socket);
                reused = heard != null and std.mem.indexOfScalar(Socket, &sockets, one.socket) != null;
                try stage.harness.io.add(one.socket, 7);
            },
            else => return error.TestUnexpectedResult,
        };
    }
    // epoll accepts last in a round, so the number was used again in the same round.
    if (Harness.Io == Epoll) try testing.expect(reused);
    try stage.quiet();
    try testing.expectEqual(@as(usize, 0), stage.logs[7].bytes.items.len);
    try testing.expectEqual(@as(u32, 0), stage.logs[7].eofs + stage.logs[7].resets);
    _ = try heir.write("mine");
    while (stage.logs[7].bytes.items.len < 4) try stage.round();
    try testing.expectEqualStrings("mine", stage.logs[7].bytes.items);
}

test "contract: a closed socket's events reach nobody, not even the next owner of its number" {
    try everywhere(forgetsClosed);
}

fn takesTurns(comptime Harness: type) !void {
    var stage: Stage(Harness) = try .init(.{ .receive_buffer_bytes = 100 });
    defer stage.deinit();
    const listener = try stage.harness.listen();
    var loud, _ = try stage.join(listener, 0);
    defer loud.close();
    var quiet, _ = try stage.join(listener, 1);
    defer quiet.close();
    const bytes = try pattern(5000);
    defer testing.allocator.free(bytes);
    try testing.expectEqual(bytes.len, try loud.write(bytes));
    try testing.expectEqual(@as(usize, 2), try quiet.write("me"));
    stage.harness.pass(5);
    while (stage.logs[1].bytes.items.len < 2) {
        const before = stage.logs[0].bytes.items.len;
        try stage.round();
        try testing.expect(stage.logs[0].bytes.items.len - before <= 100);
    }
    // A host that watches the descriptor is called again for the remaining bytes, without a new edge.
    try testing.expect(stage.logs[0].bytes.items.len < bytes.len);
    while (stage.logs[0].bytes.items.len < bytes.len) {
        try testing.expect(stage.harness.readable());
        try stage.round();
    }
    try testing.expectEqualSlices(u8, bytes, stage.logs[0].bytes.items);
    try stage.quiet();
    try testing.expect(!stage.harness.readable());
}

test "contract: one receive per socket and round; leftovers keep fd readable" {
    try everywhere(takesTurns);
}

fn keepsFdReadable(comptime Harness: type) !void {
    var stage: Stage(Harness) = try .init(.{});
    defer stage.deinit();
    const listener = try stage.harness.listen();
    var first, const socket = try stage.join(listener, 0);
    defer first.close();
    var second, _ = try stage.join(listener, 1);
    defer second.close();
    try stage.quiet();
    try testing.expect(!stage.harness.readable());

    // A caller whose batch is full returns to its host within a round.
    _ = try first.write("a");
    _ = try second.write("b");
    stage.harness.pass(5);
    try testing.expect(stage.harness.readable());
    while (true) {
        _ = try stage.harness.io.wait(0);
        if (stage.harness.io.next()) |event| break try stage.record(event);
    }
    try stage.harness.io.alarm(null);
    try testing.expect(stage.harness.readable());
    while (stage.logs[0].bytes.items.len + stage.logs[1].bytes.items.len < 2) try stage.round();
    try stage.quiet();
    try testing.expect(!stage.harness.readable());

    // Reading is resumed while the host works.
    stage.harness.io.pause(socket);
    _ = try first.write("c");
    stage.harness.pass(5);
    try stage.quiet();
    try testing.expect(!stage.harness.readable());
    stage.harness.io.resumeReading(socket);
    try testing.expect(stage.harness.readable());
    while (stage.logs[0].bytes.items.len < 2) try stage.round();
    try testing.expectEqual(@as(u32, 0), stage.wakes);
}

test "contract: fd stays readable while events are undelivered" {
    try everywhere(keepsFdReadable);
}

/// Announced bytes (`askFirst`) are received to the caller's memory, postponed, or received as usual; an end
/// follows them.
fn isAskedFirst(comptime Harness: type) !void {
    if (comptime !io.hasReceiveTo(Harness.Io)) return error.SkipZigTest;
    var stage: Stage(Harness) = try .init(.{});
    defer stage.deinit();
    const listener = try stage.harness.listen();
    var peer, const socket = try stage.join(listener, 0);
    defer peer.close();
    const sent = try pattern(400_000);
    defer testing.allocator.free(sent);
    var done: usize = 0;
    var arrivals: usize = 0;
    var taken: usize = 0;
    var space: [100_000]u8 = undefined;
    const log = &stage.logs[0];
    stage.harness.io.askFirst(socket);
    while (log.eofs == 0) {
        stage.rounds += 1;
        try testing.expect(stage.rounds < 10_000);
        if (done < sent.len) {
            done += try peer.write(sent[done..]);
            if (done == sent.len) peer.shutdown();
        }
        _ = try stage.harness.io.wait(2);
        var arrived_in_round = false;
        while (stage.harness.io.next()) |event| {
            if (event != .arrived) {
                try stage.record(event);
                if (event == .received) stage.harness.io.askFirst(socket);
                continue;
            }
            try testing.expectEqual(@as(io.Token, 0), event.arrived.token);
            arrivals += 1;
            switch (arrivals % 4) {
                0 => continue,
                1 => {
                    try testing.expect(!arrived_in_round);
                    stage.harness.io.postpone(socket);
                },
                else => {
                    const part = space[0 .. space.len >> @intCast(arrivals % 5)];
                    if (stage.harness.io.receiveTo(socket, part)) |bytes| {
                        taken += bytes.len;
                        try log.bytes.appendSlice(testing.allocator, bytes);
                        stage.harness.io.askFirst(socket);
                    }
                },
            }
            arrived_in_round = true;
        }
    }
    try testing.expectEqualSlices(u8, sent, log.bytes.items);
    try testing.expect(taken > 0 and taken < sent.len and log.resets == 0);
    try stage.quiet();
    try testing.expectEqual(@as(u32, 1), log.eofs);
}

test "contract: who asks first may take bytes to where it likes" {
    try everywhere(isAskedFirst);
}

fn wakes(comptime Harness: type) !void {
    var stage: Stage(Harness) = try .init(.{});
    defer stage.deinit();
    _ = stage.harness.readable(); // a host watches the io from now on
    var no_descriptors: [0]linux.pollfd = .{};
    for (1..4) |times| {
        const started = stage.harness.io.now();
        const thread = try std.Thread.spawn(.{}, struct {
            fn run(target: *Harness.Io) void {
                for (0..50) |_| target.wake();
            }
        }.run, .{&stage.harness.io});
        while (stage.wakes < times) {
            stage.rounds += 1;
            _ = try stage.harness.io.wait(10_000);
            while (stage.harness.io.next()) |event| try stage.record(event);
            // The simulation does not sleep, so this leaves the processor to the other thread.
            if (Harness.Io == Sim) _ = linux.poll(&no_descriptors, 0, 1);
        }
        thread.join();
        try testing.expect(stage.harness.io.now() - started < 5_000);
        try stage.quiet();
        try testing.expect(stage.wakes <= times * 50);
        stage.wakes = @intCast(times);
    }
    stage.harness.io.wake();
    stage.harness.io.wake();
    try testing.expect(stage.harness.readable());
    try stage.round();
    try testing.expectEqual(@as(u32, 4), stage.wakes);
    try stage.quiet();
    try testing.expectEqual(@as(u32, 4), stage.wakes);
    try testing.expect(!stage.harness.readable());
}

test "contract: wake from another thread" {
    try everywhere(wakes);
}

fn alarms(comptime Harness: type) !void {
    var stage: Stage(Harness) = try .init(.{});
    defer stage.deinit();
    const harness = &stage.harness;
    try testing.expect(!harness.readable());
    for (0..2) |_| {
        const at = harness.io.now() + 40;
        try harness.io.alarm(at + 1_000_000);
        try harness.io.alarm(at);
        try testing.expect(!harness.readable());
        harness.pass(50);
        try testing.expect(harness.readable());
        // The clock has reached the alarm's time, so the caller need not set the alarm again.
        try testing.expect(harness.io.now() >= at);
        try stage.round();
        try testing.expect(!harness.readable());
    }
    // An alarm in the past comes at once.
    try harness.io.alarm(harness.io.now());
    harness.pass(2);
    try testing.expect(harness.readable());
    try stage.round();
    try harness.io.alarm(null);
    try testing.expect(!harness.readable());
    try testing.expect(harness.io.wallSeconds() > 1_600_000_000);
}

test "contract: an alarm makes fd readable in time" {
    try everywhere(alarms);
}

fn runsOutOfDescriptors(comptime Harness: type) !void {
    var stage: Stage(Harness) = try .init(.{});
    defer stage.deinit();
    const listener = try stage.harness.listen();
    var first = try stage.harness.connect(listener);
    defer first.close();
    stage.harness.exhaust(true);
    while (stage.accept_failures == 0) try stage.round();
    try stage.quiet();
    try testing.expectEqual(@as(u32, 1), stage.accept_failures);
    try testing.expect(!stage.harness.readable());
    try stage.harness.io.resumeAccept(listener);
    while (stage.accept_failures == 1) try stage.round();
    try testing.expectEqual(@as(usize, 0), stage.accepted.items.len);

    stage.harness.exhaust(false);
    try stage.quiet();
    try testing.expectEqual(@as(usize, 0), stage.accepted.items.len);
    try stage.harness.io.resumeAccept(listener);
    while (stage.accepted.items.len == 0) try stage.round();
    try testing.expectEqual(@as(u32, 2), stage.accept_failures);
    stage.harness.io.close(stage.accepted.items[0]);
}

test "contract: without descriptors accepting pauses itself, and resumes" {
    try everywhere(runsOutOfDescriptors);
}

fn pausesAccept(comptime Harness: type) !void {
    var stage: Stage(Harness) = try .init(.{});
    defer stage.deinit();
    const listener = try stage.harness.listen();
    stage.harness.io.pauseAccept(listener);
    var peer = try stage.harness.connect(listener);
    defer peer.close();
    try stage.quiet();
    try testing.expectEqual(@as(usize, 0), stage.accepted.items.len);
    try stage.harness.io.resumeAccept(listener);
    while (stage.accepted.items.len == 0) try stage.round();
    try stage.harness.io.add(stage.accepted.items[0], 0);

    // After closeListeners connections are refused; accepted ones go on.
    stage.harness.io.closeListeners();
    stage.harness.io.closeListeners();
    try testing.expectError(error.Refused, stage.harness.connect(listener));
    _ = try peer.write("alive");
    while (stage.logs[0].bytes.items.len < 5) try stage.round();
}

test "contract: accepting pauses, resumes, and ends" {
    try everywhere(pausesAccept);
}

fn sendsFile(comptime Harness: type) !void {
    var stage: Stage(Harness) = try .init(.{ .send_file_bytes_max = 50_000 });
    defer stage.deinit();
    const listener = try stage.harness.listen();
    var peer, const socket = try stage.join(listener, 0);
    defer peer.close();
    const bytes = try pattern(3 << 20);
    defer testing.allocator.free(bytes);
    const file: sys.Fd = @intCast(linux.memfd_create("contract", 0));
    defer sys.close(file);
    try testing.expectEqual(bytes.len, linux.write(file, bytes.ptr, bytes.len));

    var got: std.ArrayList(u8) = .empty;
    defer got.deinit(testing.allocator);
    const start = 1000;
    var offset: u64 = start;
    // The length is one byte more than the file has, as if the file had been truncated.
    const asked = bytes.len + 1;
    while (true) {
        const before = stage.logs[0].sents;
        switch (stage.harness.io.sendFile(socket, file, offset, asked - offset)) {
            .sent => |count| {
                try testing.expect(count > 0 and count <= 50_000);
                offset += count;
            },
            .blocked => {},
            .end_of_file => break,
            else => return error.TestUnexpectedResult,
        }
        while (stage.logs[0].sents == before) {
            try peer.read(&got);
            try stage.round();
        }
    }
    try testing.expectEqual(bytes.len, offset);
    try stage.sendAll(socket, 0, "trailer", &peer, &got);
    while (got.items.len < bytes.len - start + "trailer".len) {
        try stage.round();
        try peer.read(&got);
    }
    try testing.expectEqualSlices(u8, bytes[start..], got.items[0 .. bytes.len - start]);
    try testing.expectEqualStrings("trailer", got.items[bytes.len - start ..]);

    // A descriptor that is no file fails without an effect on the connection.
    while (true) {
        const before = stage.logs[0].sents;
        switch (stage.harness.io.sendFile(socket, 1_000_000, 0, 10)) {
            .file_failed => |errno| break try testing.expectEqual(sys.number(.BADF), errno),
            .blocked => while (stage.logs[0].sents == before) try stage.round(),
            else => return error.TestUnexpectedResult,
        }
    }
    try stage.quiet();
    try testing.expectEqual(@as(u32, 0), stage.logs[0].resets);
}

test "contract: a file is sent from an offset to its end, in turns" {
    try everywhere(sendsFile);
}

fn sharesSendTurns(comptime Harness: type) !void {
    var stage: Stage(Harness) = try .init(.{ .send_file_bytes_max = 100 });
    defer stage.deinit();
    const listener = try stage.harness.listen();
    var peer, const socket = try stage.join(listener, 0);
    defer peer.close();
    const file: sys.Fd = @intCast(linux.memfd_create("contract", 0));
    defer sys.close(file);
    const bytes: [2000]u8 = @splat('f');
    try testing.expectEqual(bytes.len, linux.write(file, &bytes, bytes.len));
    _ = try peer.write("go");
    // The server sends the next piece at each event, but gets one piece in a round.
    var offset: u64 = 0;
    while (offset < bytes.len) {
        stage.rounds += 1;
        try testing.expect(stage.rounds < 10_000);
        _ = try stage.harness.io.wait(2);
        var pieces: u32 = 0;
        while (stage.harness.io.next()) |event| switch (event) {
            .received, .sent => switch (stage.harness.io.sendFile(socket, file, offset, bytes.len - offset)) {
                .sent => |count| {
                    offset += count;
                    pieces += 1;
                },
                .blocked => {},
                else => return error.TestUnexpectedResult,
            },
            else => return error.TestUnexpectedResult,
        };
        try testing.expect(pieces <= 1);
        if (offset > 0 and offset < bytes.len and Harness.Io == Epoll) {
            try testing.expect(stage.harness.readable());
        }
    }
}

test "contract: a long file leaves room for others in a round" {
    try everywhere(sharesSendTurns);
}
