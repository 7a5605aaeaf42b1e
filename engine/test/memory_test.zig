//! A process that reaches its limit of memory, over the simulated network: whose requests are refused, in
//! which order, with which words, and who is served on.
const std = @import("std");
const per = @import("peregrine");
const testing = std.testing;
const gpa = testing.allocator;

const SimWorker = per.Worker(per.io.Sim, Host);

/// Asks for every body and keeps it, until it hears of the end; answers GET requests at once,
/// those for /wait never.
const Host = struct {
    pub const demand: per.Demand = .pull;

    reasons: std.ArrayList(per.Reason) = .empty,
    /// Bytes of bodies and messages that it holds, by ticket.
    kept: std.AutoHashMapUnmanaged(per.Ticket, usize) = .empty,
    wanting: std.ArrayList(per.Ticket) = .empty,
    notices: std.ArrayList([]u8) = .empty,
    waiting_ticket: ?per.Ticket = null,

    fn deinit(host: *Host) void {
        host.reasons.deinit(gpa);
        host.kept.deinit(gpa);
        host.wanting.deinit(gpa);
        for (host.notices.items) |text| gpa.free(text);
        host.notices.deinit(gpa);
    }

    pub fn waiting(host: *const Host) bool {
        return host.wanting.items.len > 0;
    }
    pub fn request(host: *Host, worker: *SimWorker, exchange: *per.Exchange, head: *const per.Head) void {
        const path = head.path.of(head.text);
        if (exchange.websocket != null) {
            worker.acceptWebSocket(exchange, .{}) catch unreachable;
            worker.setFlow(exchange, .on_demand) catch unreachable;
        } else if (std.mem.eql(u8, path, "/wait")) {
            host.waiting_ticket = exchange.ticket;
        } else if (exchange.inputComplete()) {
            _ = worker.start(exchange, .{ .status = 200, .body = "served", .end = true }) catch unreachable;
        } else host.wanting.append(gpa, exchange.ticket) catch unreachable;
    }
    pub fn body(host: *Host, _: *SimWorker, exchange: *per.Exchange, bytes: []const u8) void {
        host.keep(exchange, bytes.len);
        host.wanting.append(gpa, exchange.ticket) catch unreachable;
    }
    pub fn message(
        host: *Host,
        _: *SimWorker,
        exchange: *per.Exchange,
        _: per.WebSocketKind,
        bytes: []const u8,
    ) void {
        host.keep(exchange, bytes.len);
    }
    fn keep(host: *Host, exchange: *per.Exchange, bytes: usize) void {
        const entry = host.kept.getOrPutValue(gpa, exchange.ticket, 0) catch unreachable;
        entry.value_ptr.* += bytes;
    }
    pub fn aborted(host: *Host, _: *SimWorker, exchange: *per.Exchange, reason: per.Reason) void {
        _ = host.kept.remove(exchange.ticket);
        host.reasons.append(gpa, reason) catch unreachable;
    }
    pub fn closed(
        host: *Host,
        worker: *SimWorker,
        exchange: *per.Exchange,
        _: per.WebSocketClose,
        reason: ?per.Reason,
    ) void {
        host.aborted(worker, exchange, reason.?);
    }
    pub fn finished(_: *Host, _: *SimWorker, _: *per.Exchange) void {}
    pub fn trailers(_: *Host, _: *SimWorker, _: *per.Exchange, _: *const per.Head) void {}
    pub fn bodyEnd(_: *Host, _: *SimWorker, _: *per.Exchange) void {}
    pub fn drained(_: *Host, _: *SimWorker, _: *per.Exchange) void {}
    pub fn halfClosed(_: *Host, _: *SimWorker, _: *per.Exchange) void {}
    pub fn stopped(_: *Host, _: *SimWorker) void {}
    pub fn notice(host: *Host, _: *SimWorker, _: ?*per.Exchange, _: per.Level, text: []const u8) void {
        host.notices.append(gpa, gpa.dupe(u8, text) catch unreachable) catch unreachable;
    }
};

const mib = 1024 * 1024;

/// A worker that may have 10 MiB, and its clients.
const Bench = struct {
    host: Host = .{},
    worker: SimWorker,
    listener: u32,
    clients: std.ArrayList(*Client) = .empty,
    /// Bytes that the process is said to hold beside the memory that this test counts.
    beside: usize = 0,

    const Client = struct {
        peer: per.io.SimPeer,
        left: []const u8 = "",
        got: std.ArrayList(u8) = .empty,

        fn status(client: *const Client) []const u8 {
            const got = client.got.items;
            return if (got.len < 12) "" else got[9..12];
        }
    };

    var current: *Bench = undefined;

    fn measured() ?per.io.memory.Usage {
        var bytes = current.beside + current.worker.pool.taken_bytes;
        var it = current.host.kept.valueIterator();
        while (it.next()) |kept| bytes += kept.*;
        return .{ .resident = bytes, .address_space = bytes };
    }

    fn noHeap() ?per.io.memory.Heap {
        return null;
    }

    fn alone() ?u64 {
        return 0;
    }

    fn open(config: per.Config) !*Bench {
        const bench = try gpa.create(Bench);
        current = bench;
        bench.* = .{ .worker = undefined, .listener = undefined };
        var own = config;
        own.memory_bytes_max = 10 * mib;
        bench.worker = try .init(gpa, own, &bench.host, .{ .seed = 1, .window_bytes = 1 << 20 });
        bench.worker.memory.gauge = measured;
        bench.worker.memory.heap = noHeap;
        bench.worker.memory.sharing = alone;
        bench.worker.memory.base = .{};
        bench.listener = try bench.worker.listen(try per.io.Address.parse("127.0.0.1", 80), .{});
        return bench;
    }

    fn deinit(bench: *Bench) void {
        for (bench.clients.items) |client| {
            client.got.deinit(gpa);
            gpa.destroy(client);
        }
        bench.clients.deinit(gpa);
        bench.worker.deinit();
        bench.host.deinit();
        gpa.destroy(bench);
    }

    /// A connection that sends this, and then nothing.
    fn connect(bench: *Bench, bytes: []const u8) !*Client {
        const client = try gpa.create(Client);
        client.* = .{ .peer = try bench.worker.io.connect(bench.listener), .left = bytes };
        try bench.clients.append(gpa, client);
        for (0..3) |_| try bench.round();
        return client;
    }

    /// A request that has come and waits for its answer.
    fn ask(bench: *Bench) !*per.Exchange {
        bench.host.waiting_ticket = null;
        _ = try bench.connect("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
        while (bench.host.waiting_ticket == null) try bench.round();
        return bench.worker.find(bench.host.waiting_ticket.?).?;
    }

    fn round(bench: *Bench) !void {
        for (bench.clients.items) |client| {
            client.left = client.left[try client.peer.write(client.left)..];
            try client.got.appendSlice(gpa, client.peer.read());
        }
        try bench.worker.poll(0);
        for (bench.host.wanting.items) |ticket| {
            if (bench.worker.find(ticket)) |exchange| try bench.worker.read(exchange);
        }
        bench.host.wanting.clearRetainingCapacity();
    }

    fn pass(bench: *Bench, ms: u64) !void {
        for (0..ms / 20) |_| {
            try bench.round();
            bench.worker.io.advance(20);
        }
        for (0..30) |_| try bench.round();
    }

    fn expectServed(bench: *Bench) !void {
        const client = try bench.connect("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        try bench.pass(0);
        try testing.expectEqualStrings("200", client.status());
    }
};

/// A POST whose body is to be far longer than what comes of it.
fn upload(comptime target: []const u8, comptime bytes: usize) []const u8 {
    return "POST " ++ target ++ " HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\n\r\n" ++ comptime blk: {
        const filler: [bytes]u8 = @splat('u');
        break :blk filler;
    };
}

/// A head without its end.
fn partial(comptime bytes: usize) []const u8 {
    return "GET / HTTP/1.1\r\nHost: h\r\nX: " ++ comptime blk: {
        const filler: [bytes]u8 = @splat('h');
        break :blk filler;
    };
}

test "the largest go first, the newest of those that are about as large, and no more than is needed" {
    const bench: *Bench = try .open(.{});
    defer bench.deinit();
    bench.beside = 7 * mib;
    const small = try bench.connect(comptime upload("/", 300_000));
    const head = try bench.connect(comptime partial(7000));
    const older = try bench.connect(comptime upload("/", 1_000_000));
    const newer = try bench.connect(comptime upload("/", 900_000));
    try bench.pass(200);
    try testing.expectEqual(0, bench.worker.statistics().shed);
    bench.beside = 8 * mib + 100_000;
    try bench.pass(200);
    try testing.expectEqualStrings("413", newer.status());
    try testing.expect(std.mem.indexOf(u8, newer.got.items, "\r\nRetry-After: 5\r\n") != null);
    for ([_]*Bench.Client{ small, head, older }) |client| try testing.expectEqualStrings("", client.status());
    try testing.expectEqual(1, bench.worker.statistics().shed);
    try testing.expectEqualSlices(per.Reason, &.{.server_error}, bench.host.reasons.items);
    bench.beside = 9 * mib;
    try bench.pass(200);
    try testing.expectEqualStrings("413", older.status());
    for ([_]*Bench.Client{ small, head }) |client| try testing.expectEqualStrings("", client.status());
    try bench.expectServed();
    try testing.expectEqual(2, bench.worker.statistics().shed);
    try testing.expectEqual(10 * mib, bench.worker.statistics().memory_max);
}

test "connections hold a bounded part when the rest of the process takes all; it is logged once a second" {
    const bench: *Bench = try .open(.{});
    defer bench.deinit();
    bench.beside = 20 * mib;
    for (0..400) |_| _ = try bench.connect(comptime partial(7500));
    try bench.pass(500);
    var refused: usize = 0;
    for (bench.clients.items) |client| {
        if (client.status().len == 0) continue;
        try testing.expectEqualStrings("503", client.status());
        try testing.expect(std.mem.indexOf(u8, client.got.items, "\r\nRetry-After: 5\r\n") != null);
        refused += 1;
    }
    try testing.expectEqual(refused, bench.worker.statistics().shed);
    // An eighth of the limit is theirs.
    try testing.expect(bench.worker.pool.taken_bytes <= 10 * mib / 8 + 8192 and
        bench.worker.pool.taken_bytes > mib);
    try testing.expectEqual(400 - refused, bench.worker.pool.taken_bytes / 8192);
    try bench.expectServed();
    try testing.expect(bench.host.notices.items.len <= 3);
    try testing.expect(std.mem.indexOf(u8, bench.host.notices.items[0], "memory_max is 10 MB") != null);
}

test "a WebSocket whose messages nobody takes, and what comes behind a request that waits for its answer" {
    const bench: *Bench = try .open(.{});
    defer bench.deinit();
    bench.beside = 9 * mib;
    var messages: std.ArrayList(u8) = .empty;
    defer messages.deinit(gpa);
    try messages.appendSlice(
        gpa,
        "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" ++
            "Sec-WebSocket-Version: 13\r\n" ++
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    const payload: [4096]u8 = @splat(0);
    for (0..100) |_| try messages.appendSlice(gpa, "\x82\xFE\x10\x00\x00\x00\x00\x00" ++ payload);
    const socket = try bench.connect(messages.items);
    const pipelined = try bench.connect("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n" ++ comptime partial(60_000));
    try bench.pass(100);
    try testing.expectEqual(0, bench.worker.statistics().shed);
    bench.beside = 10 * mib + 1;
    // The part for memory, an eighth, is less than either of the two connections holds.
    bench.worker.memory.resident_max = mib / 8;
    try bench.pass(200);
    try testing.expectEqual(2, bench.worker.statistics().shed);
    // The close frame: 1013, try again later.
    try testing.expect(std.mem.endsWith(u8, socket.got.items, "\x88\x02\x03\xF5"));
    try testing.expectEqualSlices(per.Reason, &.{.server_error}, bench.host.reasons.items);
    try testing.expectEqual(0, bench.worker.pool.taken_bytes);
    // Further requests of the peer are thrown away. The answer comes, and is the last.
    pipelined.left = comptime partial(60_000);
    try bench.pass(100);
    try testing.expectEqual(0, bench.worker.pool.taken_bytes);
    const exchange = bench.worker.find(bench.host.waiting_ticket.?).?;
    _ = try bench.worker.start(exchange, .{ .status = 200, .body = "late", .end = true });
    try bench.pass(100);
    try testing.expectEqualStrings("200", pipelined.status());
    try testing.expect(std.mem.indexOf(u8, pipelined.got.items, "Connection: close") != null);
    try testing.expect(pipelined.peer.ended() != null);
}

test "a response that nobody reads counts as what is unread; when all is given up nobody is let in" {
    const bench: *Bench = try .open(.{});
    defer bench.deinit();
    bench.beside = 9 * mib;
    _ = try bench.connect("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    const other = try bench.connect(comptime upload("/", 100_000));
    const page = try gpa.alloc(u8, 4 * mib);
    defer gpa.free(page);
    @memset(page, 'p');
    const exchange = bench.worker.find(bench.host.waiting_ticket.?).?;
    // The simulated network takes a mebibyte.
    _ = try bench.worker.start(exchange, .{ .status = 200, .body = page });
    bench.worker.sendNow(exchange);
    for (0..10) |_| {
        try bench.worker.poll(0);
        bench.worker.io.advance(50);
    }
    try testing.expectEqual(1, bench.worker.statistics().shed);
    try testing.expectEqualSlices(per.Reason, &.{.server_error}, bench.host.reasons.items);
    try testing.expectEqual(0, bench.worker.pool.taken_bytes);
    try bench.pass(100);
    try testing.expectEqualStrings("", other.status());
    // Requests that wait for their application hold more than its part, and none of that can be shed.
    bench.beside = 11 * mib;
    for (0..100) |_| _ = try bench.connect("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    const idle = try bench.connect("");
    try bench.pass(200);
    const late = try bench.connect("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    idle.left = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    try bench.pass(100);
    try testing.expectEqualStrings("413", other.status());
    for ([_]*Bench.Client{ late, idle }) |refused| {
        try testing.expectEqualStrings("503", refused.status());
        try testing.expect(std.mem.endsWith(u8, refused.got.items, "The server is short of memory.\n"));
    }
    bench.beside = 5 * mib;
    try bench.pass(200);
    try bench.expectServed();
}

/// HTTP/2 of a client with windows of nothing or of a gigabyte, and its requests for /wait.
fn withWindow(comptime window: enum { nothing, gigabyte }, comptime requests: usize) []const u8 {
    return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" ++ "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04" ++
        (if (window == .nothing) "\x00\x00\x00\x00" else "\x40\x00\x00\x00" ++
            "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x40\x00\x00\x00") ++ comptime blk: {
        var frames: []const u8 = "";
        for (0..requests) |number| frames = frames ++ "\x00\x00\x0c\x01\x05\x00\x00\x00" ++
            .{@as(u8, @intCast(2 * number + 1))} ++ "\x82\x86\x04\x05/wait\x41\x01h";
        break :blk frames;
    };
}

/// The codes of RST_STREAM frames that a client got, by stream; where the connection ends: that code as 0.
fn resets(client: *const Bench.Client) [32]?u32 {
    var codes: [32]?u32 = @splat(null);
    var rest: []const u8 = client.got.items;
    while (rest.len >= 9) {
        const len = std.mem.readInt(u24, rest[0..3], .big);
        const stream = std.mem.readInt(u32, rest[5..9], .big);
        const payload = rest[9..][0..len];
        if (rest[3] == 3) codes[stream] = std.mem.readInt(u32, payload[0..4], .big);
        if (rest[3] == 7) codes[0] = std.mem.readInt(u32, payload[4..8], .big);
        rest = rest[9 + len ..];
    }
    return codes;
}

const enhance_your_calm = 11;

test "a connection counts with all of its streams: those that have waited longest are reset" {
    for ([_]bool{ false, true }) |trusted| {
        const bench: *Bench = try .open(.{ .http2 = .everywhere });
        defer bench.deinit();
        const reader = try bench.connect("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
        const small = bench.worker.find(bench.host.waiting_ticket.?).?;
        _ = try bench.worker.start(small, .{ .status = 200, .body = &@as([1_800_000]u8, @splat('r')) });
        const page: [200_000]u8 = @splat('p');
        const holder = try bench.connect(comptime withWindow(.nothing, 15));
        var it = bench.worker.lanes();
        while (it.next()) |lane| lane.transport.trusted = trusted;
        var order: [15]usize = undefined;
        var number: usize = 0;
        var exchanges = bench.worker.exchanges.iterator();
        while (exchanges.next()) |exchange| if (exchange.lane.isStream()) {
            order[number] = exchange.lane.stream;
            number += 1;
            _ = try bench.worker.start(exchange, .{ .status = 200, .body = &page });
            bench.worker.io.advance(10);
            for (0..2) |_| try bench.worker.poll(0);
        };
        try testing.expectEqual(15, number);
        for (0..10) |_| {
            try bench.worker.poll(0);
            bench.worker.io.advance(20);
        }
        try testing.expectEqual(0, bench.worker.statistics().shed);
        // `reader` holds more than any single stream, and less than all of them.
        bench.beside = 10 * mib - bench.worker.pool.taken_bytes + 1000;
        for (0..10) |_| {
            try bench.worker.poll(0);
            bench.worker.io.advance(20);
        }
        try holder.got.appendSlice(gpa, holder.peer.read());
        const first = resets(holder);
        for (order[0..4]) |stream| try testing.expectEqual(enhance_your_calm, first[stream].?);
        for (order[4..]) |stream| try testing.expectEqual(null, first[stream]);
        try testing.expectEqual(4, bench.worker.statistics().shed);
        try testing.expectEqual(null, first[0]);
        try testing.expectEqual(null, reader.peer.ended());
        try testing.expectEqual(null, holder.peer.ended());
    }
}

test "a string that is lent to many readers counts once, in equal parts" {
    const readers = 20;
    for ([_]bool{ false, true }) |with_other| {
        const bench: *Bench = try .open(.{});
        defer bench.deinit();
        const page = try gpa.alloc(u8, 4 * mib);
        defer gpa.free(page);
        @memset(page, 'p');
        var loans: [readers]per.Loan = @splat(.{});
        var exchanges: [readers + 1]*per.Exchange = undefined;
        for (&exchanges) |*exchange| exchange.* = try bench.ask();
        for (&loans, exchanges[0..readers]) |*loan, exchange| {
            _ = try bench.worker.start(exchange, .{ .status = 200 });
            _ = try bench.worker.write(exchange, .{ .lent = .{ .bytes = page, .loan = loan } }, .{});
        }
        // Has less than the string, and more than a reader's part of it.
        if (with_other) {
            _ = try bench.worker.start(exchanges[readers], .{ .status = 200, .body = page[0 .. 3 * mib] });
        }
        for (0..10) |_| {
            try bench.worker.poll(0);
            bench.worker.io.advance(50);
        }
        try testing.expectEqual(0, bench.worker.statistics().shed);
        try testing.expectEqual(null, bench.worker.pool.loans.take());
        bench.beside = 10 * mib - bench.worker.pool.taken_bytes + 1000;
        for (0..3) |_| {
            try bench.worker.poll(0);
            bench.worker.io.advance(50);
        }
        var cut: usize = 0;
        var back = bench.worker.pool.loans.take();
        while (back) |loan| : (back = loan.next) cut += 1;
        // A sixteenth of the limit is to become free: 640 KiB, in parts of 205 KiB.
        try testing.expectEqual(@as(usize, if (with_other) 0 else 4), cut);
        try testing.expectEqual(@as(u64, if (with_other) 1 else 4), bench.worker.statistics().shed);
    }
}

test "a connection that takes nothing is given up with its streams, but not one of a trusted proxy" {
    for ([_]bool{ false, true }) |trusted| {
        const bench: *Bench = try .open(.{ .http2 = .everywhere });
        defer bench.deinit();
        const page: [200_000]u8 = @splat('p');
        _ = try bench.connect(comptime withWindow(.gigabyte, 15));
        var it = bench.worker.lanes();
        while (it.next()) |lane| lane.transport.trusted = trusted;
        var exchanges = bench.worker.exchanges.iterator();
        while (exchanges.next()) |exchange| {
            _ = try bench.worker.start(exchange, .{ .status = 200, .body = &page });
        }
        // The peer's network takes a mebibyte, and then nothing.
        for (0..10) |_| {
            try bench.worker.poll(0);
            bench.worker.io.advance(50);
        }
        try testing.expectEqual(0, bench.worker.statistics().shed);
        try testing.expect(bench.worker.pool.taken_bytes > mib);
        bench.beside = 10 * mib;
        bench.worker.memory.resident_max = 1;
        for (0..10) |_| {
            try bench.worker.poll(0);
            bench.worker.io.advance(50);
        }
        var left: usize = 0;
        exchanges = bench.worker.exchanges.iterator();
        while (exchanges.next()) |_| left += 1;
        try testing.expectEqual(0, left);
        it = bench.worker.lanes();
        try testing.expectEqual(trusted, it.next() != null);
    }
}
