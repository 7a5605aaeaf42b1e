//! `load rate`: an open loop. Requests are due at times that do not depend on the answers (exponentially
//! distributed gaps, as of many independent clients), and a latency counts from the time when its request was
//! due, so the latency of every request that had to wait counts. Without a run the connections are
//! idle after one answered request. Does not know: sockets.
const std = @import("std");
const request = @import("request.zig");
const Driver = @import("driver.zig").Driver(Rate);
const Histogram = @import("histogram.zig");
const Opening = @import("driver.zig").Opening;
const mark = @import("arrive.zig").mark;
const Watch = @import("watch.zig").Watch;
const stopped_ns = @import("watch.zig").stopped_ns;

/// Digits of a time in a body.
const digits = 19;

/// Requests that may be due and wait for a free connection. More means that the server does
/// not keep up at all.
const waiting_max = 1 << 18;

/// The time of a request that does not become due.
const never = std.math.maxInt(u64);

/// Time after the run for requests that are under way.
const grace_ns = 2 * std.time.ns_per_s;

pub const Rate = struct {
    pub const Options = struct {
        port: u16 = 0,
        path: []const u8 = "/",
        connections: usize = 64,
        ramp: usize = 64,
        /// Requests per second; 0: each connection has its next request as soon as it is free.
        rate: f64 = 1000,
        /// Bytes of a body that each request has; it begins with the time when the request was due, for
        /// `load arrive`. 0: requests have none.
        bytes: usize = 0,
        /// The server's core, to be watched for stops; -1: do without.
        watch: i32 = -1,
    };

    pub const State = struct { under_way: bool = false, due_at: u64 = 0 };

    pub const Result = struct {
        responses: u64,
        unanswered: u64,
        mean_us: f64,
        deviation_us: f64,
        p50_us: f64,
        p99_us: f64,
        p999_us: f64,
        max_us: f64,
        /// Responses set aside because this program or the server's core was stopped, in permille of all.
        aside_permille: f64,
        /// How late this program sent a request that was due while a connection was free, on the average:
        /// what it adds itself.
        late_us: f64,
    };

    options: *const Options,
    get: []const u8,
    /// A request with a body for each connection, behind one another; empty where requests have none.
    posts: []u8 = "",
    random: std.Random.DefaultPrng = .init(1),
    /// Rings of requests that are due, and of connections that are free.
    waiting: Ring(u64),
    free: Ring(*Driver.Peer),
    next_at: u64 = 0,
    until: u64 = 0,
    under_way: usize = 0,
    latency: Histogram = .{},
    late: Histogram = .{},
    watch: Watch = .{},
    watching: bool = false,
    stops_seen: u64 = 0,
    setting_aside: bool = false,
    aside: u64 = 0,

    pub fn init(arena: std.mem.Allocator, options: *const Options) !Rate {
        if (!(options.rate >= 0)) return error.NoRate;
        return .{
            .options = options,
            .get = try request.get(arena, options.path, ""),
            .posts = try postsOf(arena, options),
            .waiting = .{ .items = try arena.alloc(u64, waiting_max) },
            .free = .{ .items = try arena.alloc(*Driver.Peer, options.connections) },
        };
    }

    fn postsOf(arena: std.mem.Allocator, options: *const Options) ![]u8 {
        if (options.bytes == 0) return "";
        if (options.bytes < mark.len + digits) return error.ShortBody;
        const head = try request.post(arena, options.path, options.bytes);
        const posts = try arena.alloc(u8, options.connections * (head.len + options.bytes));
        @memset(posts, 'x');
        var rest = posts;
        while (rest.len > 0) : (rest = rest[head.len + options.bytes ..]) {
            @memcpy(rest[0..head.len], head);
            @memcpy(rest[head.len..][0..mark.len], mark);
        }
        return posts;
    }

    /// The request of a connection, which was due at a time.
    fn requestOf(load: *Rate, number: usize, due_at: u64) []const u8 {
        if (load.posts.len == 0) return load.get;
        const size = load.posts.len / load.options.connections;
        const post = load.posts[number * size ..][0..size];
        const body = post[size - load.options.bytes ..];
        _ = std.fmt.bufPrint(body[mark.len..][0..digits], "{d:0>19}", .{due_at}) catch unreachable;
        return post;
    }

    pub fn opening(load: *Rate) Opening {
        if (load.posts.len > 0) return .nothing;
        return .{ .request = .{ .bytes = load.get, .status = 200, .until = .end } };
    }

    pub fn prepare(load: *Rate, _: *Driver, peer: *Driver.Peer) !void {
        load.free.push(peer) catch unreachable;
    }

    pub fn begin(load: *Rate, _: *Driver, now: u64, until: u64) !void {
        if (load.options.watch >= 0 and !load.watching) {
            try load.watch.start(std.math.cast(u16, load.options.watch) orelse return error.CannotWatch);
            load.watching = true;
        }
        load.stops_seen = load.watch.stops.load(.acquire);
        load.until = until;
        load.latency = .{};
        load.late = .{};
        load.setting_aside = false;
        load.aside = 0;
        load.next_at = now +| load.gap();
    }

    fn gap(load: *Rate) u64 {
        if (load.options.rate == 0) return never;
        return @trunc(load.random.random().floatExp(f64) * std.time.ns_per_s / load.options.rate);
    }

    /// Leaves out requests that waited while this program or the server's core was stopped, and the crowd of
    /// requests after that, until the server has nothing left to do: their times say nothing about the
    /// server. `tick` asks to be called when the next request is due. A call that comes long after that was
    /// late because this program did not run.
    fn look(load: *Rate, now: u64) void {
        const stops = load.watch.stops.load(.acquire);
        if (stops != load.stops_seen or now > load.next_at +| stopped_ns and now <= load.until) {
            load.setting_aside = true;
        }
        load.stops_seen = stops;
    }

    pub fn tick(load: *Rate, driver: *Driver, now: u64) !?u64 {
        load.look(now);
        while (load.next_at <= @min(now, load.until)) : (load.next_at += load.gap()) {
            load.waiting.push(load.next_at) catch return error.ServerDoesNotKeepUp;
            if (load.free.count > 0) load.late.add(now - load.next_at);
        }
        if (load.options.rate == 0 and now < load.until) {
            while (load.waiting.count < load.free.count) try load.waiting.push(now);
        }
        while (load.waiting.count > 0 and load.free.count > 0) {
            const peer = load.free.pop();
            if (peer.phase != .open) continue;
            peer.state = .{ .under_way = true, .due_at = load.waiting.pop() };
            load.under_way += 1;
            try driver.send(peer, load.requestOf(peer.number, peer.state.due_at));
        }
        if (now < load.until) return @min(load.next_at, load.until);
        const open = load.under_way > 0 or load.waiting.count > 0;
        return if (open and now < load.until + grace_ns) now else null;
    }

    pub fn received(load: *Rate, _: *Driver, peer: *Driver.Peer, bytes: []const u8, now: u64) !void {
        load.look(now);
        var rest = bytes;
        while (rest.len > 0) {
            const step = try peer.http.feed(rest);
            rest = rest[step.consumed..];
            if (!step.complete) continue;
            // Some say that what was sent to them is created, or accepted.
            const status_max: u16 = if (load.posts.len == 0) 200 else 202;
            if (peer.http.status < 200 or peer.http.status > status_max) return error.Status;
            if (!peer.state.under_way) return error.Unasked;
            if (load.setting_aside) load.aside += 1 else load.latency.add(now - peer.state.due_at);
            load.lost(peer);
            if (load.under_way == 0 and load.waiting.count == 0 and load.next_at > now) {
                load.setting_aside = false;
            }
            load.free.push(peer) catch unreachable;
        }
    }

    /// The connection has ended, and its request with it.
    pub fn lost(load: *Rate, peer: *Driver.Peer) void {
        load.under_way -= @intFromBool(peer.state.under_way);
        peer.state.under_way = false;
    }

    pub fn result(load: *Rate, _: f64) Result {
        const unanswered = load.under_way + load.waiting.count;
        load.waiting = .{ .items = load.waiting.items };
        const all: f64 = @floatFromInt(@max(load.latency.count + load.aside, 1));
        return .{
            .responses = load.latency.count + load.aside,
            .unanswered = unanswered,
            .mean_us = load.latency.mean() / 1000,
            .deviation_us = load.latency.deviation() / 1000,
            .p50_us = load.latency.permille(500) / 1000,
            .p99_us = load.latency.permille(990) / 1000,
            .p999_us = load.latency.permille(999) / 1000,
            .max_us = @as(f64, @floatFromInt(load.latency.max)) / 1000,
            .aside_permille = 1000 * @as(f64, @floatFromInt(load.aside)) / all,
            .late_us = load.late.mean() / 1000,
        };
    }
};

/// First in, first out, of bounded size.
fn Ring(comptime T: type) type {
    return struct {
        items: []T,
        first: usize = 0,
        count: usize = 0,

        fn push(ring: *@This(), item: T) error{Full}!void {
            if (ring.count == ring.items.len) return error.Full;
            ring.items[(ring.first + ring.count) % ring.items.len] = item;
            ring.count += 1;
        }

        fn pop(ring: *@This()) T {
            std.debug.assert(ring.count > 0);
            defer ring.first = (ring.first + 1) % ring.items.len;
            ring.count -= 1;
            return ring.items[ring.first];
        }
    };
}

test "a ring gives back in order, and refuses what it cannot hold" {
    var items: [3]u32 = undefined;
    var ring: Ring(u32) = .{ .items = &items };
    for (0..10) |i| {
        try ring.push(@intCast(2 * i));
        try ring.push(@intCast(2 * i + 1));
        try std.testing.expectEqual(2 * i, ring.pop());
        try std.testing.expectEqual(2 * i + 1, ring.pop());
    }
    for (0..3) |_| try ring.push(0);
    try std.testing.expectError(error.Full, ring.push(0));
}

test "requests after a stop of ours or of the server's core are set aside" {
    const options: Rate.Options = .{};
    var load: Rate = .{
        .options = &options,
        .get = "",
        .waiting = .{ .items = &.{} },
        .free = .{ .items = &.{} },
    };
    load.until = 100 * stopped_ns;
    load.next_at = 10 * stopped_ns;
    load.look(11 * stopped_ns);
    try std.testing.expect(!load.setting_aside);
    load.look(11 * stopped_ns + 1);
    try std.testing.expect(load.setting_aside);
    load.watch.stops.store(1, .release);
    for ([_]bool{ true, false }) |noticed| {
        load.setting_aside = false;
        load.look(10 * stopped_ns);
        try std.testing.expectEqual(noticed, load.setting_aside);
    }
}
