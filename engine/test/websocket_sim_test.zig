//! WebSockets over a simulated network with a host that pulls and answers late: hundreds of histories,
//! each from one number. Whatever the network does, every message comes back once, whole and in order;
//! what was sent before a close frame, or before a fault, is answered first; and when all is over
//! nothing is left behind.
//!
//! A failure prints its seed; PEREGRINE_SEED replays that one. PEREGRINE_SEEDS says how many are run,
//! PEREGRINE_SEED_FIRST from which on; script/test takes others each day.
const std = @import("std");
const wanted = @import("wanted");
const per = @import("peregrine");
const Client = @import("websocket_client.zig").Client;
const testing = std.testing;
const gpa = testing.allocator;

const SimWorker = per.Worker(per.io.Sim, EchoHost);

/// Answers when `step` is called, as a program behind the C API does after each poll.
const EchoHost = struct {
    pub const demand: per.Demand = .pull;

    const Event = union(enum) {
        accept,
        echo: struct { kind: per.WebSocketKind, bytes: []u8 },
    };

    /// The host asks for each message after it has answered the message before.
    asks: bool = false,
    asked: bool = false,
    /// The host takes no message, whatever the WebSocket's flow is.
    is_behind: bool = false,
    ticket: per.Ticket = .none,
    events: std.ArrayList(struct { ticket: per.Ticket, event: Event }) = .empty,
    codes: std.ArrayList(u16) = .empty,
    reasons: std.ArrayList(?per.Reason) = .empty,

    fn deinit(host: *EchoHost) void {
        host.clear();
        host.events.deinit(gpa);
        host.codes.deinit(gpa);
        host.reasons.deinit(gpa);
    }

    fn clear(host: *EchoHost) void {
        for (host.events.items) |item| switch (item.event) {
            .accept => {},
            .echo => |echo| gpa.free(echo.bytes),
        };
        host.events.clearRetainingCapacity();
    }

    pub fn isBehind(host: *const EchoHost, _: *const per.Exchange) bool {
        return host.is_behind;
    }

    pub fn waiting(host: *const EchoHost) bool {
        return host.events.items.len > 0;
    }

    pub fn request(host: *EchoHost, _: *SimWorker, exchange: *per.Exchange, _: *const per.Head) void {
        host.events.append(gpa, .{ .ticket = exchange.ticket, .event = .accept }) catch unreachable;
    }

    pub fn message(
        host: *EchoHost,
        _: *SimWorker,
        exchange: *per.Exchange,
        kind: per.WebSocketKind,
        bytes: []const u8,
    ) void {
        if (host.asks) testing.expect(host.asked or bytes.len <= per.Budget.large_bytes) catch unreachable;
        host.asked = false;
        const copy = gpa.dupe(u8, bytes) catch unreachable;
        host.events.append(gpa, .{
            .ticket = exchange.ticket,
            .event = .{ .echo = .{ .kind = kind, .bytes = copy } },
        }) catch unreachable;
    }

    pub fn closed(
        host: *EchoHost,
        _: *SimWorker,
        _: *per.Exchange,
        close: per.WebSocketClose,
        reason: ?per.Reason,
    ) void {
        host.codes.append(gpa, close.code) catch unreachable;
        host.reasons.append(gpa, reason) catch unreachable;
    }

    pub fn body(_: *EchoHost, _: *SimWorker, _: *per.Exchange, _: []const u8) void {
        unreachable;
    }
    pub fn trailers(_: *EchoHost, _: *SimWorker, _: *per.Exchange, _: *const per.Head) void {
        unreachable;
    }
    pub fn bodyEnd(_: *EchoHost, _: *SimWorker, _: *per.Exchange) void {
        unreachable;
    }
    pub fn drained(_: *EchoHost, _: *SimWorker, _: *per.Exchange) void {}
    pub fn finished(_: *EchoHost, _: *SimWorker, _: *per.Exchange) void {
        unreachable;
    }
    pub fn aborted(_: *EchoHost, _: *SimWorker, _: *per.Exchange, _: per.Reason) void {}
    pub fn halfClosed(_: *EchoHost, _: *SimWorker, _: *per.Exchange) void {
        unreachable;
    }
    pub fn stopped(_: *EchoHost, _: *SimWorker) void {}
    pub fn notice(_: *EchoHost, _: *SimWorker, _: ?*per.Exchange, _: per.Level, _: []const u8) void {}

    fn step(host: *EchoHost, worker: *SimWorker) !void {
        for (host.events.items) |item| {
            const exchange = worker.find(item.ticket) orelse continue;
            switch (item.event) {
                .accept => {
                    try worker.acceptWebSocket(exchange, .{});
                    if (host.asks) try worker.setFlow(exchange, .on_demand);
                },
                .echo => |echo| _ = worker.sendMessage(
                    exchange,
                    echo.kind,
                    echo.bytes,
                ) catch |err| try testing.expectEqual(error.NotOpen, err),
            }
        }
        const ticket = if (host.events.items.len > 0) host.events.items[0].ticket else host.ticket;
        host.clear();
        host.ticket = ticket;
        if (host.asks and !host.asked) if (worker.find(ticket)) |exchange| {
            host.asked = true;
            try worker.read(exchange);
        };
    }
};

/// A worker with its host, and one client.
const Bench = struct {
    host: EchoHost,
    worker: SimWorker,
    peer: per.io.SimPeer,
    client: *Client,

    fn init(bench: *Bench, config: per.Config, options: per.io.Sim.Options) !void {
        bench.host = .{};
        bench.worker = try .init(gpa, config, &bench.host, options);
        errdefer bench.worker.deinit();
        const listener = try bench.worker.listen(try per.io.Address.parse("127.0.0.1", 80), .{});
        bench.peer = try bench.worker.io.connect(listener);
        bench.client = try .create(gpa);
        errdefer bench.client.destroy();
        const request = try Client.handshake(gpa, "permessage-deflate; client_max_window_bits");
        defer gpa.free(request);
        try bench.client.out.appendSlice(gpa, request);
    }

    fn deinit(bench: *Bench) void {
        bench.client.destroy();
        bench.worker.deinit();
        bench.host.deinit();
    }

    /// Runs a round: the client sends some bytes and reads, the worker polls, the host answers.
    fn round(bench: *Bench, some: usize) !void {
        const out = &bench.client.out;
        if (out.items.len > 0) {
            const sent = try bench.peer.write(out.items[0..@min(some, out.items.len)]);
            out.replaceRangeAssumeCapacity(0, sent, &.{});
        }
        try bench.worker.poll(0);
        try bench.host.step(&bench.worker);
        try bench.client.take(bench.peer.read());
    }

    /// Plays rounds until the worker has ended the connection.
    fn finish(bench: *Bench) !void {
        for (0..100_000) |_| {
            if (bench.peer.ended() != null) break;
            try bench.round(std.math.maxInt(usize));
        } else return error.NeverEnded;
        bench.client.out.clearRetainingCapacity();
        bench.peer.close();
        while (bench.worker.transports.count > 0) try bench.round(0);
    }
};

fn history(seed: u64) !void {
    var prng: std.Random.DefaultPrng = .init(seed);
    const random = prng.random();
    const config: per.Config = .{
        .frame_bytes_max = 1 << 20,
        .round_bytes = ([_]u32{ 4096, 50_000, 1 << 20 })[random.uintLessThan(usize, 3)],
        .write_high_bytes = 8_000,
        .write_low_bytes = 2_000,
        .deflate = random.uintLessThan(u8, 4) > 0,
        .deflate_bytes_min = random.uintLessThan(u32, 300),
        .deflate_server_takeover = random.boolean(),
        .deflate_client_takeover = random.boolean(),
        .deflate_server_window_bits = random.intRangeAtMost(u8, 8, 15),
        .deflate_client_window_bits = 15,
    };
    var bench: Bench = undefined;
    try bench.init(config, .{ .seed = seed, .window_bytes = 20_000 });
    defer bench.deinit();
    bench.host.asks = random.boolean();
    while (bench.client.head == null) try bench.round(random.uintAtMost(usize, 100));
    var sent: std.ArrayList([]u8) = .empty;
    defer {
        for (sent.items) |bytes| gpa.free(bytes);
        sent.deinit(gpa);
    }
    for (0..random.uintAtMost(usize, 12)) |_| {
        const bytes = try gpa.alloc(
            u8,
            random.uintLessThan(usize, ([_]usize{ 60, 60, 60_000, 300_000 })[random.uintLessThan(usize, 4)]),
        );
        for (bytes) |*byte| byte.* = "compress me, "[random.uintLessThan(usize, 13)];
        try sent.append(gpa, bytes);
        try bench.client.send(random.enumValue(per.WebSocketKind), bytes, .{
            .compressed = config.deflate and random.boolean(),
            .frame_bytes = random.uintLessThan(usize, 9_000),
        });
        if (random.boolean()) try bench.client.ping("p");
        for (0..random.uintLessThan(usize, 6)) |_| try bench.round(random.uintAtMost(usize, 9_000));
    }
    // The last word comes right behind the last message.
    if (random.boolean()) try bench.client.close(4321) else {
        try bench.client.out.appendSlice(gpa, "\xf1"); // reserved bits
        try bench.client.out.appendSlice(gpa, "\x80\x00\x00\x00\x00");
    }
    const legal = bench.client.session.closeSent();
    try bench.finish();
    if (sent.items.len != bench.client.messages.items.len) {
        std.debug.print(
            "config {any} codes {any} closed {any} asks {} unread {d}\n",
            .{
                config,          bench.host.codes.items,        bench.client.closed,
                bench.host.asks, bench.client.unread.items.len,
            },
        );
        for (sent.items) |m| std.debug.print("sent {d}\n", .{m.len});
        for (bench.client.messages.items) |m| std.debug.print("got {d}\n", .{m.bytes.len});
    }
    try testing.expectEqual(sent.items.len, bench.client.messages.items.len);
    for (sent.items, bench.client.messages.items) |expected, message| {
        try testing.expectEqualStrings(expected, message.bytes);
    }
    try testing.expectEqual(@as(?u16, if (legal) 4321 else 1002), bench.client.closed);
    try testing.expectEqualSlices(u16, &.{if (legal) 4321 else 1002}, bench.host.codes.items);
    try testing.expectEqual(
        @as(?per.Reason, if (legal) null else .protocol_error),
        bench.host.reasons.items[0],
    );
    try testing.expectEqual(0, bench.worker.pool.taken_bytes);
    try testing.expectEqual(0, bench.worker.websockets.count);
}

test "every message comes back, and before the end" {
    const seeds: wanted.Seeds = try .init(60, 10);
    for (seeds.first..seeds.first + seeds.count) |seed| history(seed) catch |err| {
        std.debug.print("\nseed {d} fails: PEREGRINE_SEED={d} replays it\n", .{ seed, seed });
        return err;
    };
}

test "a client that closes and is gone at once has closed, and was answered before" {
    var bench: Bench = undefined;
    try bench.init(.{}, .{ .seed = 1 });
    defer bench.deinit();
    while (bench.client.head == null) try bench.round(1000);
    try bench.client.send(.text, "the last message", .{});
    try bench.client.close(1000);
    // The close frame comes in one read, and the end of the stream with it.
    try testing.expectEqual(bench.client.out.items.len, try bench.peer.write(bench.client.out.items));
    bench.client.out.clearRetainingCapacity();
    bench.peer.shutdown();
    try bench.finish();
    try testing.expectEqualStrings("the last message", bench.client.messages.items[0].bytes);
    try testing.expectEqual(1000, bench.client.closed.?);
    try testing.expectEqualSlices(u16, &.{1000}, bench.host.codes.items);
    try testing.expectEqual(null, bench.host.reasons.items[0]);
}

test "a host that is behind may change the flow of a WebSocket again and again" {
    var bench: Bench = undefined;
    try bench.init(.{ .deflate = false }, .{ .seed = 3 });
    defer bench.deinit();
    while (bench.client.head == null) try bench.round(1000);
    bench.host.is_behind = true;
    try bench.client.send(.text, "in time", .{});
    for (0..100) |_| {
        try bench.round(1000);
        const exchange = bench.worker.find(bench.host.ticket).?;
        try bench.worker.setFlow(exchange, .all);
        try testing.expect(bench.worker.waiting.parked.items.len <= 1);
    }
    try testing.expectEqual(0, bench.client.messages.items.len);
    bench.host.is_behind = false;
    bench.worker.unpark();
    try bench.client.close(1000);
    try bench.finish();
    try testing.expectEqualStrings("in time", bench.client.messages.items[0].bytes);
}

test "after its close frame a client may still be sent what was on the way" {
    var bench: Bench = undefined;
    try bench.init(.{ .deflate = false }, .{ .seed = 2 });
    defer bench.deinit();
    while (bench.client.head == null) try bench.round(1000);
    for (0..40) |_| try bench.client.send(.binary, "0123456789", .{});
    try bench.client.close(1001);
    try bench.finish();
    try testing.expectEqual(40, bench.client.messages.items.len);
    try testing.expectEqual(1001, bench.client.closed.?);
}
