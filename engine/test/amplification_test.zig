//! Little that becomes much: compressed messages, empty frames, tiny chunks, pipelined requests. What counts
//! is what comes out: how much memory is held, and how much of others a bystander has to wait for. Counted in
//! bytes and events, so that no machine is too slow.
const std = @import("std");
const per = @import("peregrine");
const Client = @import("websocket_client.zig").Client;
const testing = std.testing;
const gpa = testing.allocator;

const message_bytes = 2 * 1024 * 1024;
/// A network without whims, so that rounds can be counted.
const network: per.io.Sim.Options = .{
    .seed = 1,
    .window_bytes = 1 << 20,
    .short_read_permille = 0,
    .late_permille = 0,
    .block_permille = 0,
    .partial_send_permille = 0,
};
const limits: per.Config = .{ .message_bytes_max = message_bytes, .frame_bytes_max = 1 << 20 };

/// Sends back what is short, and counts the rest.
const Echo = struct {
    allocator: std.mem.Allocator,
    bytes: usize = 0,
    events: usize = 0,

    pub fn init(allocator: std.mem.Allocator) !*Echo {
        const self = try allocator.create(Echo);
        self.* = .{ .allocator = allocator };
        return self;
    }

    pub fn deinit(self: *Echo) void {
        self.allocator.destroy(self);
    }

    pub fn handleRequest(self: *Echo, request: *per.Request, response: *per.Response) void {
        self.events += 1;
        per.ws.upgrader.handleUpgrade(self.allocator, request, response) catch {
            _ = response.setBody("hello") catch unreachable;
        };
    }

    pub fn handleBody(
        self: *Echo,
        _: *per.Request,
        response: *per.Response,
        bytes: []const u8,
        last: bool,
    ) void {
        self.events += 1;
        self.bytes += bytes.len;
        if (last) _ = response.setBody("done") catch unreachable;
    }

    pub fn handleWSFrame(self: *Echo, socket: *per.ws.WebSocket, message: *per.ws.Frame) void {
        self.events += 1;
        self.bytes += message.payload.len;
        if (message.opcode == .text) _ = socket.send(.text, message.payload) catch unreachable;
    }
};

const Network = per.Simulation(Echo);

/// A server for Zig handlers, clients that do it harm, and a bystander.
const Bench = struct {
    simulation: Network,
    wires: [bad_max + 1]*Network.Client,
    clients: [bad_max + 1]*Client,
    count: usize,

    const bad_max = 6;

    fn init(bench: *Bench, config: per.Config, count: usize) !void {
        bench.count = count;
        bench.simulation = try .init(gpa, .{ .limits = config, .websocket_buffer_size = 1 << 30 }, network);
        errdefer bench.simulation.deinit();
        for (bench.wires[0..count], bench.clients[0..count]) |*wire, *client| {
            wire.* = try bench.simulation.connect();
            client.* = try .create(gpa);
            const request = try Client.handshake(gpa, "permessage-deflate");
            defer gpa.free(request);
            try wire.*.send(request);
            try bench.simulation.settle();
            try client.*.take(wire.*.text());
            wire.*.clear();
        }
    }

    fn deinit(bench: *Bench) void {
        for (bench.clients[0..bench.count]) |client| client.destroy();
        bench.simulation.deinit();
    }

    /// Sends what a client has written, as fast as the network takes it; the server goes on meanwhile.
    fn send(bench: *Bench, number: usize) !void {
        const out = &bench.clients[number].out;
        try bench.wires[number].send(out.items);
        out.clearRetainingCapacity();
    }

    /// The last client's message is answered: how much of the others the handler got until then.
    fn echo(bench: *Bench) !struct { bytes: usize, events: usize } {
        const number = bench.count - 1;
        const client = bench.clients[number];
        try client.send(.text, "a bystander", .{ .compressed = true });
        const before = bench.simulation.handler().*;
        try bench.send(number);
        for (0..100_000) |_| {
            _ = try bench.simulation.step();
            try client.take(bench.wires[number].text());
            bench.wires[number].clear();
            if (client.messages.items.len == 0) continue;
            try testing.expectEqualStrings("a bystander", client.messages.pop().?.bytes);
            const now = bench.simulation.handler();
            return .{ .bytes = now.bytes - before.bytes, .events = now.events - before.events };
        }
        return error.NeverAnswered;
    }
};

test "bombs: one large message is in memory, and a bystander waits for one" {
    var bench: Bench = undefined;
    try bench.init(limits, 1 + Bench.bad_max);
    defer bench.deinit();
    const zeros = try gpa.alloc(u8, message_bytes);
    defer gpa.free(zeros);
    @memset(zeros, 0);
    const count = 4;
    const worker = bench.simulation.worker();
    for (0..Bench.bad_max) |number| {
        for (0..count) |_| try bench.clients[number].send(.binary, zeros, .{ .compressed = true });
        try bench.send(number);
    }
    const all = Bench.bad_max * count * zeros.len;
    try testing.expect(bench.simulation.handler().bytes < all / 2);
    var most: usize = 0;
    var echoes: usize = 0;
    while (bench.simulation.handler().bytes < all) : (echoes += 1) {
        if (echoes > 10_000) return error.NeverEnds;
        const waited = try bench.echo();
        try testing.expect(waited.bytes <= 2 * message_bytes + 1000);
        most = @max(most, worker.pool.taken_bytes);
        // As fast as inflating goes, whatever the bystander does.
    }
    try testing.expect(echoes > Bench.bad_max * count / 2);
    // The message, its double while it grows where memory cannot be moved, and what the clients have sent.
    try testing.expect(most < 2 * message_bytes + Bench.bad_max * 128 * 1024);
    try bench.simulation.settle();
    try testing.expectEqual(0, worker.pool.taken_bytes);
}

test "short messages that inflate to 64 KiB" {
    var bench: Bench = undefined;
    try bench.init(limits, 1 + Bench.bad_max);
    defer bench.deinit();
    const zeros: [64 * 1024]u8 = @splat(0);
    for (0..Bench.bad_max) |number| {
        for (0..200) |_| try bench.clients[number].send(.binary, &zeros, .{ .compressed = true });
        try bench.send(number);
        const waited = try bench.echo();
        // A round's worth before its bytes are read, and one behind.
        try testing.expect(waited.bytes < 3 * limits.round_bytes);
    }
    try testing.expectEqual(0, bench.simulation.worker().pool.taken_bytes - unread(&bench));
}

/// Bytes of the buffers that hold received bytes which were not parsed yet.
fn unread(bench: *Bench) usize {
    var bytes: usize = 0;
    var lanes = bench.simulation.worker().lanes();
    while (lanes.next()) |lane| if (lane.input.buffer) |buffer| {
        bytes += buffer.len;
    };
    return bytes;
}

fn repeated(bytes: []const u8, count: usize) ![]u8 {
    const all = try gpa.alloc(u8, bytes.len * count);
    for (0..count) |number| @memcpy(all[number * bytes.len ..][0..bytes.len], bytes);
    return all;
}

test "messages that are nearly nothing but take long to inflate" {
    // Blocks without content: none of them puts anything out.
    const stored = try repeated("\x00\x00\x00\xff\xff", 100_000);
    defer gpa.free(stored);
    // The last stored block begins here and ends with the bytes that a sender leaves out.
    for ([_]usize{ 10_001, stored.len - 4 }) |len| {
        var bench: Bench = undefined;
        var config = limits;
        config.receive_bytes = 1 << 20;
        try bench.init(config, Bench.bad_max);
        defer bench.deinit();
        const handler = bench.simulation.handler();
        const first = handler.events;
        const count = 4;
        for (0..Bench.bad_max) |number| {
            const client = bench.clients[number];
            for (0..count) |_| try client.sendFrames(.binary, stored[0..len], .{ .compressed = true });
            // Bytes that do not fit are sent in a later round.
            const sent = try bench.wires[number].peer.write(client.out.items);
            client.out.replaceRangeAssumeCapacity(0, sent, &.{});
        }
        // Each byte of input is charged sixteenfold.
        const round_max = 1 + limits.round_bytes / (16 * len);
        var rounds: usize = 0;
        while (handler.events < first + Bench.bad_max * count) : (rounds += 1) {
            if (rounds > 10_000) return error.NeverInflated;
            const before = handler.events;
            _ = try bench.simulation.step();
            try testing.expect(handler.events - before <= round_max);
            for (0..Bench.bad_max) |number| try bench.send(number);
        }
        try testing.expect(rounds >= Bench.bad_max * count * len * 16 / (2 * limits.round_bytes));
        try bench.simulation.settle();
        try testing.expectEqual(0, bench.simulation.worker().pool.taken_bytes);
    }
}

test "frames, fragments and chunks of a few bytes count for more than their bytes" {
    const most = 3 * limits.round_bytes / per.Budget.event_bytes;
    // Whole messages of nothing.
    var bench: Bench = undefined;
    try bench.init(limits, 1 + Bench.bad_max);
    defer bench.deinit();
    for (0..Bench.bad_max) |number| {
        for (0..10_000) |_| try bench.clients[number].send(.binary, "", .{});
        try bench.send(number);
        const waited = try bench.echo();
        try testing.expect(waited.events < most);
    }
    try bench.simulation.settle();
    // Fragments are put together, empty ones cost nothing.
    const before = bench.simulation.handler().*;
    try bench.clients[0].send(.binary, "fragments", .{ .frame_bytes = 1 });
    try bench.send(0);
    try bench.simulation.settle();
    try testing.expectEqual(before.events + 1, bench.simulation.handler().events);
    // A body in chunks of one byte.
    const chunks = try repeated("1\r\nx\r\n", 50_000);
    defer gpa.free(chunks);
    const poster = try bench.simulation.connect();
    try poster.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    try poster.send(chunks);
    var last = bench.simulation.handler().events;
    for (0..10_000) |_| {
        const moved = try bench.simulation.step();
        const events = bench.simulation.handler().events;
        try testing.expect(events - last <= limits.round_bytes / per.Budget.piece_bytes);
        last = events;
        if (!moved and bench.simulation.handler().bytes - before.bytes >= 50_000) break;
    } else return error.NeverRead;
}

test "pipelined requests" {
    var bench: Bench = undefined;
    try bench.init(limits, 2);
    defer bench.deinit();
    const requests = try repeated("GET / HTTP/1.1\r\nHost: h\r\n\r\n", 1000);
    defer gpa.free(requests);
    for (0..20) |_| {
        const client = try bench.simulation.connect();
        client.paused = true;
        _ = try client.peer.write(requests);
    }
    for (0..20) |_| {
        const before = bench.simulation.handler().events;
        _ = try bench.simulation.step();
        const events = bench.simulation.handler().events - before;
        try testing.expect(events <= 2 * limits.round_bytes / per.Budget.event_bytes);
    }
    try testing.expect((try bench.echo()).events <= 4 * limits.round_bytes / per.Budget.event_bytes);
}

// ---- A host that pulls

const PullWorker = per.Worker(per.io.Sim, PullHost);

/// Takes messages over, and asks for one when the test says so.
const PullHost = struct {
    pub const demand: per.Demand = .pull;

    ticket: per.Ticket = .none,
    messages: std.ArrayList(struct { bytes: usize, first: u8 }) = .empty,
    kept: std.ArrayList(per.Pool.Buffer) = .empty,
    lost: ?per.Reason = null,

    pub fn waiting(_: *const PullHost) bool {
        return false;
    }

    pub fn request(host: *PullHost, _: *PullWorker, exchange: *per.Exchange, _: *const per.Head) void {
        host.ticket = exchange.ticket;
    }

    pub fn message(
        host: *PullHost,
        _: *PullWorker,
        exchange: *per.Exchange,
        _: per.WebSocketKind,
        bytes: []const u8,
    ) void {
        host.messages.append(gpa, .{ .bytes = bytes.len, .first = if (bytes.len > 0) bytes[0] else 0 }) catch
            unreachable;
        const buffer = exchange.openWebSocket().?.incoming.surrender(bytes) orelse return;
        host.kept.append(gpa, buffer) catch unreachable;
    }

    pub fn closed(
        host: *PullHost,
        _: *PullWorker,
        _: *per.Exchange,
        _: per.WebSocketClose,
        reason: ?per.Reason,
    ) void {
        host.lost = reason orelse .client_closed;
    }

    pub fn body(_: *PullHost, _: *PullWorker, _: *per.Exchange, _: []const u8) void {}
    pub fn trailers(_: *PullHost, _: *PullWorker, _: *per.Exchange, _: *const per.Head) void {}
    pub fn bodyEnd(_: *PullHost, _: *PullWorker, _: *per.Exchange) void {}
    pub fn drained(_: *PullHost, _: *PullWorker, _: *per.Exchange) void {}
    pub fn finished(_: *PullHost, _: *PullWorker, _: *per.Exchange) void {}
    pub fn aborted(_: *PullHost, _: *PullWorker, _: *per.Exchange, _: per.Reason) void {}
    pub fn halfClosed(_: *PullHost, _: *PullWorker, _: *per.Exchange) void {}
    pub fn stopped(_: *PullHost, _: *PullWorker) void {}
    pub fn notice(_: *PullHost, _: *PullWorker, _: ?*per.Exchange, _: per.Level, _: []const u8) void {}
};

/// A host that pulls, and one client with an open WebSocket.
const Pull = struct {
    host: PullHost,
    worker: PullWorker,
    peer: per.io.SimPeer,
    client: *Client,

    fn init(bench: *Pull, flow: per.Incoming.Flow) !void {
        bench.host = .{};
        bench.worker = try .init(gpa, limits, &bench.host, network);
        const listener = try bench.worker.listen(try per.io.Address.parse("127.0.0.1", 80), .{});
        bench.peer = try bench.worker.io.connect(listener);
        bench.client = try .create(gpa);
        const request = try Client.handshake(gpa, "permessage-deflate");
        defer gpa.free(request);
        try bench.client.out.appendSlice(gpa, request);
        while (bench.host.ticket == .none) try bench.round();
        try bench.worker.acceptWebSocket(bench.exchange(), .{});
        try bench.worker.setFlow(bench.exchange(), flow);
        while (bench.client.head == null) try bench.round();
    }

    fn deinit(bench: *Pull) void {
        bench.release();
        bench.client.destroy();
        bench.worker.deinit();
        bench.host.messages.deinit(gpa);
        bench.host.kept.deinit(gpa);
    }

    fn exchange(bench: *Pull) *per.Exchange {
        return bench.worker.find(bench.host.ticket).?;
    }

    fn release(bench: *Pull) void {
        for (bench.host.kept.items) |buffer| bench.worker.pool.give(buffer);
        bench.host.kept.clearRetainingCapacity();
    }

    fn round(bench: *Pull) !void {
        const out = &bench.client.out;
        if (out.items.len > 0) out.replaceRangeAssumeCapacity(0, try bench.peer.write(out.items), &.{});
        try bench.worker.poll(0);
        try bench.client.take(bench.peer.read());
    }

    /// Many rounds: whatever can happen has happened.
    fn settle(bench: *Pull) !void {
        for (0..200) |_| try bench.round();
    }
};

test "messages that nobody has asked for stay compressed, and in order" {
    var bench: Pull = undefined;
    try bench.init(.on_demand);
    defer bench.deinit();
    const text = try gpa.alloc(u8, message_bytes);
    defer gpa.free(text);
    const sizes = [_]usize{ message_bytes, 5, 100_000, message_bytes, 10, 3_000_000 };
    for (sizes[0..5], 'a'..) |size, letter| {
        @memset(text, @intCast(letter));
        try bench.client.send(.text, text[0..size], .{
            .compressed = size != 5,
            .frame_bytes = if (size == 10) 1 else 0,
        });
    }
    try bench.settle();
    try testing.expectEqual(0, bench.host.messages.items.len);
    try testing.expect(bench.worker.pool.taken_bytes < 64 * 1024);
    for (1..sizes.len) |asked| {
        try bench.worker.read(bench.exchange());
        try bench.settle();
        // Small ones came ahead of being asked for, but no large one.
        const got = bench.host.messages.items;
        const due: usize = switch (asked) {
            1 => 2,
            2 => 3,
            else => 5,
        };
        try testing.expectEqual(due, got.len);
        for (got, sizes[0..due], 'a'..) |message, size, letter| {
            try testing.expectEqual(size, message.bytes);
            try testing.expectEqual(letter, message.first);
        }
        try testing.expect(bench.worker.pool.taken_bytes < 2 * message_bytes + 256 * 1024);
        bench.release();
    }
    try testing.expectEqual(0, bench.worker.pool.taken_bytes);
}

test "large messages that were not compressed wait as well, and others are let through while they are small" {
    var bench: Pull = undefined;
    try bench.init(.on_demand);
    defer bench.deinit();
    const text = try gpa.alloc(u8, message_bytes);
    defer gpa.free(text);
    @memset(text, 'x');
    for ([_]usize{ 1000, per.Budget.large_bytes, message_bytes, 1000 }) |size| {
        try bench.client.send(.text, text[0..size], .{ .frame_bytes = 60_000 });
    }
    try bench.settle();
    try testing.expectEqual(2, bench.host.messages.items.len);
    // Held once, in a buffer that grew with it.
    try testing.expect(bench.worker.pool.taken_bytes <= 2 * message_bytes);
    try bench.worker.read(bench.exchange());
    try bench.settle();
    try testing.expectEqual(4, bench.host.messages.items.len);
    // Taken over, not copied.
    try testing.expectEqual(1, bench.host.kept.items.len);
}

test "a host that takes everything gets one large message a round" {
    var bench: Pull = undefined;
    try bench.init(.all);
    defer bench.deinit();
    const text = try gpa.alloc(u8, message_bytes);
    defer gpa.free(text);
    @memset(text, 'x');
    for (0..6) |number| {
        try bench.client.send(.text, text, .{ .compressed = number % 2 == 0, .frame_bytes = 60_000 });
    }
    var rounds: usize = 0;
    while (bench.host.messages.items.len < 6) : (rounds += 1) {
        if (rounds > 10_000) return error.NeverDelivered;
        const before = bench.host.messages.items.len;
        try bench.round();
        try testing.expect(bench.host.messages.items.len <= before + 1);
        bench.release();
    }
}

test "keepalive spares a peer whose message waits, and cuts it when it has been read and no pong comes" {
    var bench: Pull = undefined;
    try bench.init(.on_demand);
    defer bench.deinit();
    const text: [200_000]u8 = @splat('x');
    try bench.client.send(.text, &text, .{ .compressed = true });
    try bench.worker.setKeepalive(bench.exchange(), 100, 100);
    for (0..50) |_| {
        try bench.round();
        bench.worker.io.advance(50);
    }
    try testing.expectEqual(null, bench.host.lost);
    // Now it is read, and owes a pong.
    try bench.worker.read(bench.exchange());
    try bench.settle();
    try testing.expectEqual(1, bench.host.messages.items.len);
    for (0..50) |_| {
        try bench.round();
        bench.worker.io.advance(50);
    }
    try testing.expectEqual(per.Reason.keepalive_timeout, bench.host.lost.?);
}

test "a large message that turns out to be no text, too large or broken" {
    const Fault = enum { not_text, too_large, broken };
    for (std.enums.values(Fault)) |fault| {
        var bench: Pull = undefined;
        try bench.init(.on_demand);
        defer bench.deinit();
        const text = try gpa.alloc(u8, message_bytes + 1);
        defer gpa.free(text);
        @memset(text, 'x');
        // The message ends within its last character.
        if (fault == .not_text) text[message_bytes - 1] = '\xc3';
        const size: usize = if (fault == .too_large) message_bytes + 1 else message_bytes;
        const wire = try gpa.alloc(u8, 2 * text.len);
        defer gpa.free(wire);
        const len = bench.client.deflater.deflate(text[0..size], true, wire);
        // The lengths of the last block disagree.
        @memset(wire[len..][0..4], 0xff);
        try bench.client.sendFrames(
            .text,
            wire[0 .. len + @as(usize, if (fault == .broken) 4 else 0)],
            .{ .compressed = true },
        );
        try bench.settle();
        try testing.expectEqual(null, bench.client.closed);
        try bench.worker.read(bench.exchange());
        for (0..10_000) |_| {
            if (bench.client.closed != null) break;
            try bench.round();
        } else return error.NeverRefused;
        const code = bench.client.closed.?;
        if (fault == .too_large) try testing.expectEqual(1009, code) else try testing.expectEqual(1007, code);
        try testing.expectEqual(0, bench.host.messages.items.len);
        try testing.expectEqual(per.Reason.protocol_error, bench.host.lost.?);
        try testing.expectEqual(0, bench.worker.pool.taken_bytes);
    }
}
