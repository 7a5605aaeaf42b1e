//! The C API's host while memory runs out, over the simulated network, in hundreds of histories: C hears of
//! the end of every exchange that it has heard of, once, whatever could not be allocated in between; and
//! the process lives.
const std = @import("std");
const abi = @import("abi");
const per = @import("peregrine");
const Flaky = @import("sim/flaky.zig").Flaky;
const testing = std.testing;
const gpa = testing.allocator;

const Worker = per.Worker(per.io.Sim, abi.Host);

const script = "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" ++
    "5\r\nhello\r\n5\r\nworld\r\n0\r\nTrailer: t\r\n\r\n" ++
    "GET /b HTTP/1.1\r\nHost: h\r\n\r\n" ++
    "GET /c HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" ++
    "Sec-WebSocket-Version: 13\r\n" ++
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n" ++
    // A message, a compressed one, a ping, the end.
    "\x82\x85\x00\x00\x00\x00hello\xc2\x87\x00\x00\x00\x00\xf2\x48\xcd\xc9\xc9\x07\x00" ++
    "\x89\x80\x00\x00\x00\x00\x88\x80\x00\x00\x00\x00";

/// A C program that answers every request, sooner or later.
const Program = struct {
    worker: *Worker,
    host: *abi.Host,
    random: std.Random,
    /// Exchanges that the application has heard of and that have not ended.
    open: std.AutoHashMapUnmanaged(per.Ticket, Kind) = .empty,
    heard: usize = 0,
    stopped: bool = false,

    const Kind = enum { http, handshake, websocket };

    fn take(program: *Program, events: []const abi.types.Event) !void {
        for (events) |*event| {
            const ticket: per.Ticket = @fromBackingInt(event.ticket);
            switch (event.kind) {
                .request => {
                    program.heard += 1;
                    const kind: Kind = if (event.flags & abi.types.EventFlag.handshake != 0)
                        .handshake
                    else
                        .http;
                    try program.open.putNoClobber(gpa, ticket, kind);
                },
                .finished, .aborted, .closed => try testing.expect(program.open.remove(ticket)),
                .body, .message, .drained, .flushed, .half_closed, .topic => try testing.expect(
                    program.open.contains(ticket),
                ),
                .stopped => program.stopped = true,
                .notice, .lines, .ending => {},
            }
        }
    }

    fn round(program: *Program) !void {
        program.host.release(&program.worker.pool);
        try program.worker.poll(0);
        try program.take(program.host.take());
    }

    /// Goes on with some of the open exchanges.
    fn act(program: *Program) !void {
        var tickets: std.ArrayList(per.Ticket) = .empty;
        defer tickets.deinit(gpa);
        var it = program.open.keyIterator();
        while (it.next()) |ticket| try tickets.append(gpa, ticket.*);
        for (tickets.items) |ticket| {
            if (program.random.boolean()) continue;
            const kind = program.open.getPtr(ticket) orelse continue;
            const body: [3000]u8 = @splat('x');
            const command: per.Command = switch (kind.*) {
                .http => if (program.random.boolean())
                    .read
                else
                    .{ .start = .{ .status = 200, .body = &body, .end = true } },
                .handshake => .{ .accept = .{} },
                .websocket => if (program.random.boolean())
                    .read
                else
                    .{ .message = .{ .kind = .binary, .bytes = &body } },
            };
            const outcome = program.worker.apply(ticket, command) catch |err| switch (err) {
                error.OutOfMemory => continue,
                // the end of the exchange is on the way
                error.OutOfOrder, error.NotOpen, error.Gone => continue,
                else => return err,
            };
            if (kind.* == .handshake) kind.* = .websocket;
            if (outcome == .done) _ = program.open.remove(ticket);
        }
    }
};

fn history(seed: u64, client_count: usize) !usize {
    var prng: std.Random.DefaultPrng = .init(seed);
    const random = prng.random();
    var memory: Flaky = .{ .child = gpa, .random = random, .permille = random.uintLessThan(u16, 400) };
    var host: abi.Host = while (true) break abi.Host.init(memory.allocator()) catch continue;
    var worker: Worker = try .init(gpa, .{}, &host, .{ .seed = seed, .window_bytes = 1000 });
    defer worker.deinit();
    defer host.deinit(&worker.pool);
    const listener = try worker.listen(try per.io.Address.parse("127.0.0.1", 80), .{});
    inline for (.{
        &worker,           &worker.pool,       &worker.transports,  &worker.open_streams,
        &worker.exchanges, &worker.websockets, &worker.compression,
    }) |part| {
        part.gpa = memory.allocator();
    }
    var program: Program = .{ .worker = &worker, .host = &host, .random = random };
    defer program.open.deinit(gpa);
    var places: [4]per.io.SimPeer = undefined;
    const clients = places[0..client_count];
    var sent: [places.len]usize = @splat(0);
    for (clients) |*client| client.* = try worker.io.connect(listener);
    var rounds: usize = 0;
    while (worker.transports.count > 0 or rounds < 100) : (rounds += 1) {
        if (rounds > 100_000) return error.NeverEnds;
        for (clients, sent[0..clients.len]) |client, *at| {
            if (client.ended() != null) continue;
            const len = @min(script.len - at.*, random.uintLessThan(usize, 300));
            at.* += try client.write(script[at.*..][0..len]);
            _ = client.read();
            if (rounds > 300) client.close();
        }
        try program.round();
        try program.act();
        // An accept that failed goes on when some time has passed; in the end, deadlines pass.
        if (worker.accepting.short_until != null or rounds > 300) worker.io.advance(1000);
    }
    worker.drain();
    try program.round();
    try testing.expect(program.stopped);
    host.release(&worker.pool);
    try testing.expectEqual(0, worker.exchanges.count);
    try testing.expectEqual(0, program.open.count());
    try testing.expectEqual(0, worker.pool.taken_bytes);
    return program.heard;
}

test "C hears of every end" {
    var heard: usize = 0;
    for (0..300) |seed| heard += history(seed, 4) catch |err| {
        std.debug.print("seed {d}\n", .{seed});
        return err;
    };
    try testing.expect(heard > 300);
}

test "C hears of the end of a worker that has served nobody" {
    for (0..10) |seed| try testing.expectEqual(0, try history(seed, 0));
}
