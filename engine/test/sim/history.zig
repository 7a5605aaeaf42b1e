//! A history: a worker, a network and a handful of clients, all drawn from a seed. Whatever the network does,
//! a client gets exactly the bytes that are due to it, or a prefix of them if the connection broke; and at
//! the end no slot, ticket or buffer is left behind.
const std = @import("std");
const per = @import("peregrine");
const host_file = @import("host.zig");
const Cast = @import("cast.zig").Cast;
const Client = @import("client.zig").Client;
const HttpClient = @import("http_client.zig").HttpClient;
const SocketClient = @import("socket_client.zig").SocketClient;
const StreamsClient = @import("streams_client.zig").StreamsClient;
const Flaky = @import("flaky.zig").Flaky;
const Wire = @import("wire.zig").Wire;
const testing = std.testing;
const gpa = testing.allocator;

const clients_max = 6;
/// A history that has not ended after so many rounds never ends.
const rounds_max = 300_000;

/// The properties of a history that are drawn first.
const Scene = struct {
    network: per.io.Sim.Options,
    /// The clock moves by less than this in each round; 0: it stands still, and no deadline comes.
    jump_ms: u64,
    config: per.Config,
    /// See Host.meddling_permille.
    meddling_permille: u16,
    /// Allocations of the worker's out of 1000 that fail.
    starved_permille: u16,
    /// See Host.flushes.
    flushes: bool,
    /// See Host.lags.
    lags: bool,
    retirement: ?Retirement,
    /// The connections speak TLS.
    is_secured: bool,
    /// The connections begin with the header of a proxy.
    proxy_header: []const u8,

    fn draw(seed: u64, random: std.Random) Scene {
        const rough = random.boolean();
        const is_secured = per.tls.enabled and random.boolean();
        const windows = [_]u32{ 50, 1_000, 20_000, 64 * 1024 };
        return .{
            .network = .{
                .seed = seed,
                .window_bytes = windows[random.weightedIndex(u8, &.{ 1, 4, 8, 4 })],
                .short_read_permille = random.uintLessThan(u16, 900),
                .late_permille = random.uintLessThan(u16, 700),
                .block_permille = random.uintLessThan(u16, 500),
                .partial_send_permille = random.uintLessThan(u16, 900),
                .reset_permille = if (rough and random.boolean()) random.intRangeAtMost(u16, 1, 10) else 0,
                .accept_failure_permille = if (rough) random.uintLessThan(u16, 200) else 0,
                .seals = is_secured and random.boolean(),
                .slow_file_permille = ([_]u16{ 0, 300, 900 })[random.uintLessThan(usize, 3)],
            },
            .jump_ms = if (random.uintLessThan(u8, 4) == 0) random.intRangeAtMost(u64, 1, 3_000) else 0,
            .config = .{
                .http2 = .everywhere,
                .receive_bytes = ([_]u32{ 4096, 64 * 1024 })[random.uintLessThan(usize, 2)],
                .frame_bytes_max = 1 << 20,
                .write_high_bytes = 8_000,
                .write_low_bytes = 2_000,
                .body_memory_bytes_max = ([_]u32{ 1, 1_000, 20_000, 1 << 20 })[random.uintLessThan(usize, 4)],
                .pipeline_pass_max = random.intRangeAtMost(u16, 1, 5),
                .round_bytes = ([_]u32{ 4096, 20_000, 1 << 20 })[random.uintLessThan(usize, 3)],
                .file_loop_bytes_max = ([_]u32{ 1, 2_000, 65_536 })[random.uintLessThan(usize, 3)],
                .handshakes_pass_max = random.intRangeAtMost(u16, 1, 4),
            },
            .meddling_permille = if (random.uintLessThan(u8, 4) == 0)
                random.intRangeAtMost(u16, 1, 300)
            else
                0,
            .starved_permille = if (random.uintLessThan(u8, 6) == 0)
                random.intRangeAtMost(u16, 1, 300)
            else
                0,
            .flushes = random.uintLessThan(u8, 4) == 0,
            .lags = random.uintLessThan(u8, 6) == 0,
            .retirement = if (random.uintLessThan(u8, 4) == 0) .draw(random) else null,
            .is_secured = is_secured,
            .proxy_header = if (random.uintLessThan(u8, 6) == 0)
                proxy_headers[random.uintLessThan(usize, proxy_headers.len)]
            else
                "",
        };
    }

    const proxy_headers = [_][]const u8{
        "PROXY TCP4 192.0.2.1 192.0.2.9 4000 443\r\n",
        // Addresses, and a field that says nothing.
        "\r\n\r\n\x00\r\nQUIT\n" ++ "\x21\x11\x00\x14" ++ "\xc0\x00\x02\x01\xc0\x00\x02\x09" ++
            "\x0f\xa0\x01\xbb" ++ "\x04\x00\x05.....",
    };

    /// Whether every connection lasts as long as its client wants.
    fn calm(scene: *const Scene) bool {
        return scene.network.reset_permille == 0 and scene.jump_ms == 0 and scene.meddling_permille == 0 and
            scene.starved_permille == 0;
    }
};

/// The rounds in which the worker retires and, perhaps, ends its WebSockets.
const Retirement = struct {
    round: usize,
    ends_sockets_in: ?usize,
    /// How many requests there may be in all: each connection has one more.
    requests_max: ?u64 = null,
    /// Requests on streams, which may all have been sent before their client knows of the retirement.
    on_streams: u64 = 0,

    fn draw(random: std.Random) Retirement {
        const round = random.uintLessThan(usize, ([_]usize{ 3, 30, 300 })[random.uintLessThan(usize, 3)]);
        return .{
            .round = round,
            .ends_sockets_in = if (random.boolean()) round + random.uintLessThan(usize, 200) else null,
        };
    }

    fn step(retirement: *Retirement, worker: anytype, round: usize) void {
        if (round == retirement.round) retirement.begin(worker);
        if (round == retirement.ends_sockets_in) worker.endWebSockets();
    }

    fn begin(retirement: *Retirement, worker: anytype) void {
        if (retirement.requests_max != null) return;
        retirement.requests_max = worker.stats.requests + worker.transports.count + retirement.on_streams;
        worker.retire();
    }
};

const Actor = union(enum) {
    http: HttpClient,
    socket: SocketClient,
    streams: StreamsClient,

    fn client(actor: *Actor) *Client {
        return switch (actor.*) {
            inline else => |*one| &one.client,
        };
    }
};

/// Runs the history of a number, and fails if it is not as it should be.
pub fn run(seed: u64) !void {
    return switch (seed % 4) {
        0, 1 => play(host_file.Host, seed),
        2 => play(host_file.HostOf(.push), seed),
        3 => play(host_file.HostOf(.{ .pace = .pull, .body = .whole }), seed),
        else => unreachable,
    };
}

/// A worker whose host is of this type.
fn play(comptime Host: type, seed: u64) !void {
    var prng: std.Random.DefaultPrng = .init(seed);
    const random = prng.random();
    var scene: Scene = .draw(seed, random);
    var host: Host = .{ .gpa = gpa, .random = random };
    defer host.deinit();
    const worker = try gpa.create(per.Worker(per.io.Sim, Host));
    defer gpa.destroy(worker);
    worker.* = try .init(gpa, scene.config, &host, scene.network);
    defer worker.deinit();
    var fault: per.AccessLogFault = .{};
    var errno: u16 = 0;
    try worker.setAccessLog(.{ .target = .host, .format = "combined", .bytes_max = 1 << 20 }, &fault, &errno);
    var cast: ?Cast = if (per.tls.enabled and scene.is_secured)
        try .init(gpa, seed, scene.network.seals, scene.starved_permille > 0)
    else
        null;
    defer if (cast) |*all| all.deinit();
    const own = if (cast) |*all| all else null;
    const listener = try listen(worker, own, &scene);
    var counters = std.mem.zeroes(per.Counters);
    worker.useCounters(&counters);

    // The network always has memory.
    var memory: Flaky = .{ .child = gpa, .random = random, .permille = scene.starved_permille };
    inline for (.{
        worker,            &worker.pool,       &worker.transports,  &worker.open_streams,
        &worker.exchanges, &worker.websockets, &worker.compression,
    }) |part| {
        part.gpa = memory.allocator();
    }
    var storage: [clients_max]Actor = undefined;
    const actors = storage[0..random.intRangeAtMost(usize, 1, clients_max)];
    var exchanges: usize = 0;
    for (actors) |*actor| {
        const peer = try worker.io.connect(listener);
        exchanges += try enter(actor, peer, own, scene.proxy_header, random, exchanges);
    }
    defer for (actors) |*actor| switch (actor.*) {
        inline else => |*one| one.deinit(),
    };
    if (scene.retirement) |*retirement| for (actors) |*actor| {
        if (actor.* == .streams) retirement.on_streams += actor.streams.count;
    };
    var ends: [clients_max]per.io.SimPeer = undefined;
    for (actors, ends[0..actors.len]) |*actor, *end| end.* = actor.client().wire.peer();
    host.clients = ends[0..actors.len];
    host.meddling_permille = scene.meddling_permille;
    host.flushes = scene.flushes;
    host.lags = scene.lags;

    var rounds: usize = 0;
    while (try goOn(actors, random)) : (rounds += 1) {
        if (rounds > rounds_max) return error.NeverEnds;
        if (scene.retirement) |*retirement| retirement.step(worker, rounds);
        try worker.poll(0);
        worker.invariants();
        try host.step(worker);
        worker.invariants();
        if (scene.jump_ms > 0) worker.io.advance(random.uintLessThan(u64, scene.jump_ms));
        // An accept that failed goes on when some time has passed.
        if (worker.accepting.short_until != null) worker.io.advance(1);
    }
    const has_stopped = host.has_stopped;
    const faithful = try judge(actors, &scene, actors.len - worker.stats.accepted, has_stopped);
    try settle(worker, &host, &scene);
    if (scene.retirement) |retirement| {
        try testing.expect(has_stopped or worker.stats.requests <= retirement.requests_max.?);
    }
    // Each request has a line if there was memory for it, and at most one more for a client whose
    // last head was refused.
    const unread = host.line_count -% worker.stats.requests;
    if (scene.starved_permille == 0) try testing.expect(unread <= actors.len);
    try checkCounters(&counters, if (scene.starved_permille == 0) host.line_count else null);
    const ended = host.finished_count + host.closed_count;
    if (faithful) try testing.expectEqual(exchanges, ended) else try testing.expect(ended <= exchanges);
}

/// The listener of a history; its number.
fn listen(worker: anytype, cast: ?*Cast, scene: *const Scene) !u32 {
    const listener = try worker.listen(try per.io.Address.parse("127.0.0.1", 80), .{});
    if (cast) |all| try worker.secureListener(listener, all.server);
    if (scene.proxy_header.len > 0) {
        var wrong: per.Networks.Fault = .{};
        worker.proxyListener(listener, try .parse(gpa, "10.0.0.0/8", &wrong));
    }
    return listener;
}

/// Whether each client got what it must get, and all of it. `unaccepted`: how many never came in.
fn judge(actors: []Actor, scene: *const Scene, unaccepted: usize, has_stopped: bool) !bool {
    var faithful = scene.calm() and scene.retirement == null;
    // Connections that were not accepted when the worker retired belong to another worker.
    const missed = if (scene.retirement == null) 0 else unaccepted;
    var unanswered: usize = 0;
    for (actors) |*actor| {
        const wire = actor.client().wire;
        const left = actor.client().manners.leaves_after != null or wire.isSpoiled();
        const broken = left or !scene.calm();
        faithful = faithful and !left;
        if (missed > 0 and actor.client().got.items.len == 0) {
            unanswered += @intFromBool(!broken);
            continue;
        }
        const retirement = scene.retirement;
        // A client of streams goes when it has all that it has asked for.
        if (!broken and actor.* != .streams) try testing.expect(wire.hasSaidEnd());
        switch (actor.*) {
            .socket => |*one| if (retirement != null and retirement.?.ends_sockets_in != null)
                try one.checkDismissed()
            else
                try one.check(broken),
            .streams => |*one| try one.check(broken or has_stopped),
            // A worker that stops adds to its answers that the connection closes.
            .http => |*one| if (has_stopped) {} else if (retirement == null)
                try one.check(broken)
            else
                try one.checkRetired(broken),
        }
    }
    try testing.expect(unanswered <= missed);
    return faithful;
}

/// All connections have ended. `lines`: of the access log, each of which is a request that was counted.
fn checkCounters(counters: *const per.Counters, lines: ?usize) !void {
    const requests = total(&counters.requests);
    if (lines) |count| try testing.expectEqual(count, requests);
    for ([_]*const per.Counters.Histogram{
        &counters.request_time,
        &counters.queue_time,
        &counters.application_time,
        &counters.write_time,
    }) |histogram| {
        try testing.expect(total(&histogram.buckets) <= requests);
        try testing.expectEqual(total(&counters.request_time.buckets), total(&histogram.buckets));
    }
    try testing.expectEqual(counters.request_time.sum_us, counters.queue_time.sum_us +
        counters.application_time.sum_us + counters.write_time.sum_us);
    try testing.expectEqual(0, total(&counters.connections));
    try testing.expectEqual(0, total(&counters.requests_open));
}

fn total(words: []const u64) u64 {
    var sum: u64 = 0;
    for (words) |word| sum += word;
    return sum;
}

/// Makes up a client; how many exchanges it will have.
fn enter(
    actor: *Actor,
    peer: per.io.SimPeer,
    cast: ?*Cast,
    first: []const u8,
    random: std.Random,
    first_id: usize,
) !usize {
    const count = random.intRangeAtMost(usize, 1, HttpClient.requests_max);
    const is_socket = random.uintLessThan(u8, 4) == 0;
    const has_streams = !is_socket and random.uintLessThan(u8, 3) == 0;
    const wire: Wire = if (cast) |all|
        .{ .secured = try all.enter(peer, if (has_streams) .multiplexed else .single, first, random) }
    else
        .{ .plain = peer };
    var client: Client = .{ .gpa = gpa, .wire = wire, .manners = .draw(random) };
    if (cast == null) try client.script.appendSlice(gpa, first);
    if (is_socket) {
        actor.* = .{ .socket = .{ .client = client } };
        try actor.socket.plan(random, first_id);
        return 1;
    }
    if (has_streams) {
        actor.* = .{ .streams = .{ .client = client } };
        try actor.streams.plan(random, first_id, count);
        return count;
    }
    actor.* = .{ .http = .{ .client = client } };
    try actor.http.plan(random, first_id, count);
    return count;
}

/// A round of all clients; false when they are done.
fn goOn(actors: []Actor, random: std.Random) !bool {
    var busy = false;
    for (actors) |*actor| {
        switch (actor.*) {
            inline else => |*one| try one.step(random),
        }
        busy = busy or !actor.client().done;
    }
    return busy;
}

/// Everything is over: the worker stops and holds nothing any more.
fn settle(worker: anytype, host: anytype, scene: *Scene) !void {
    host.lags = false;
    host.setBehind(worker, false);
    // A worker that has retired stops by itself.
    if (scene.retirement) |*retirement| {
        retirement.begin(worker);
        worker.endWebSockets();
    } else worker.drain();
    var rounds: usize = 0;
    while (!host.stopped_seen) : (rounds += 1) {
        if (rounds > 10_000) return error.NeverStops;
        try worker.poll(0);
        try host.step(worker);
        worker.io.advance(@max(scene.jump_ms, 50));
    }
    try testing.expectEqual(0, worker.transports.count);
    try testing.expectEqual(0, worker.exchanges.count);
    try testing.expectEqual(0, worker.websockets.count);
    try testing.expectEqual(0, worker.bodies.held_bytes);
    try testing.expectEqual(0, worker.pool.taken_bytes);
    try testing.expectEqual(0, host.jobs.items.len);
}
