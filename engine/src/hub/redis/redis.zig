//! A hub's side of Redis: two connections, the feeds that the hub wants, and requests of nodes that wait for
//! answers of Redis. Does not know: sockets, and the content of frames.
const std = @import("std");
const assert = std.debug.assert;
const Config = @import("../config.zig").Config;
const limits = @import("../limits.zig");
const Loads = @import("../loads.zig").Loads;
const Load = @import("../loads.zig").Load;
const Owner = @import("../loads.zig").Owner;
const Part = @import("../loads.zig").Part;
const Shares = @import("../shares.zig").Shares;
const Position = @import("../position.zig").Position;
const Topics = @import("../topics.zig").Topics;
const Failure = @import("failure.zig").Failure;
const Fed = @import("keys.zig").Fed;
const hearer_file = @import("hearer.zig");
const Hearer = hearer_file.Hearer;
const link_file = @import("link.zig");
const Link = link_file.Link;
const messages_file = @import("messages.zig");
const publisher_file = @import("publisher.zig");
const Publisher = publisher_file.Publisher;
const Subscriptions = @import("subscriptions.zig").Subscriptions;
const Url = @import("url.zig").Url;
const Allocator = std.mem.Allocator;

pub const Outcome = publisher_file.Outcome;

/// The two connections.
pub const Line = enum { publisher, hearer };

/// A node, and the number of its request; 0: it wants no answer.
pub const Asker = struct { node: u64, number: u32 };

/// The party that answers a node's request.
pub const Answerer = enum {
    /// The hub, when Redis has got the message.
    hub,
    /// The node that gets the message.
    node,
    /// All hubs that get the message.
    hubs,
};

/// An event for the owner of the sockets, or for the hub.
pub const Event = union(enum) {
    nothing,
    /// The owner must open a socket for the line, then call `connected` or `lost`.
    connect,
    /// The owner must close the line's socket.
    close,
    /// A publication of a node has ended.
    published: struct { asker: Asker, topic: []const u8, len: usize, outcome: publisher_file.Outcome },
    /// A message of a node has ended.
    said: struct { asker: Asker, by: Answerer, outcome: messages_file.Outcome },
    /// Redis has confirmed the subscription to a feed.
    subscribed: Fed,
    /// A message of a feed, valid until the next call.
    message: struct { fed: Fed, bytes: []const u8 },
    /// The log of this topic may have changed; null: any log may.
    moved: ?[]const u8,
};

/// The reason why Redis is not connected.
pub const Trouble = union(enum) {
    none,
    /// The connection was refused, or ended.
    closed,
    silent,
    nonsense,
    refused: Failure,
    /// The server's host name has no address.
    no_address,
    insecure: Insecure,
};

/// Reasons why there is no TLS connection.
pub const Insecure = enum {
    other_name,
    dates,
    unknown_authority,
    /// The server does not speak TLS, or refuses our side.
    no_agreement,
    /// The files that the URL names cannot be read, or do not suit TLS.
    no_files,

    /// The reason in words for the operator.
    pub fn text(why: Insecure) [*:0]const u8 {
        return switch (why) {
            .other_name => "its certificate is for another name",
            .dates => "its certificate has expired, or is not valid yet",
            .unknown_authority => "its certificate is of no authority that is trusted here",
            .no_agreement => "TLS fails: it may speak none at this port, or want another certificate of ours",
            .no_files => "the files for TLS cannot be read",
        };
    }
};

const Request = struct {
    asker: Asker,
    share: Shares.Index,
    /// The length of the published content in bytes.
    len: usize,
    what: union(enum) {
        /// The topic of an entry.
        publication: []const u8,
        message: Answerer,
    },

    fn owner(request: *const Request) Owner {
        return .{ .node = request.asker.node, .share = request.share };
    }
};

pub const Redis = struct {
    gpa: Allocator,
    config: Config,
    /// Memory for the parts of the URL.
    memory: []u8,
    url: Url,
    random: std.Random.DefaultPrng,
    /// This hub's name.
    hub: u48,
    publisher: Publisher,
    hearer: Hearer,
    subscriptions: Subscriptions,
    requests: std.AutoHashMapUnmanaged(u64, Request) = .empty,
    loads: Loads = .{},
    last_token: u64 = 0,
    now_ms: u64 = 0,
    wall_ms: u64 = 0,
    /// The latest trouble of a line that is not ready.
    troubles: std.EnumArray(Line, Trouble) = .initFill(.none),
    /// The topic of the last `published` event.
    told: ?[]const u8 = null,
    counts: Counts = .{},

    /// The pause in milliseconds after a read that Redis has refused.
    const refused_read_pause_ms = 1000;

    /// Counts of events since the hub's start.
    pub const Counts = struct {
        /// Connections that were ready and ended.
        lost: u64 = 0,
        /// Publications and messages that Redis has refused, or that did not reach it.
        failed: u64 = 0,
    };

    pub const Error = Url.ParseError || Allocator.Error;

    /// Creates the hub's side of the Redis at the URL `text`. `seed` must be random, so that hubs have
    /// different names.
    pub fn create(gpa: Allocator, text: []const u8, seed: u64, config: Config) Error!*Redis {
        const redis = try gpa.create(Redis);
        errdefer gpa.destroy(redis);
        const memory = try gpa.alloc(u8, text.len);
        errdefer gpa.free(memory);
        const url: Url = try .parse(text, memory);
        redis.gpa = gpa;
        redis.* = .{
            .gpa = gpa,
            .config = config,
            .memory = memory,
            .url = url,
            .random = .init(seed),
            .hub = undefined,
            .publisher = undefined,
            .hearer = undefined,
            .subscriptions = .init(gpa),
        };
        // A message may be a frame of channels, with names of channels that do not get it.
        redis.config.message_bytes_max += limits.exclude_bytes_max;
        redis.hub = redis.random.random().int(u48);
        const account: link_file.Account = .{
            .user = url.user,
            .password = url.password,
            .database = url.database,
        };
        redis.publisher = try .init(gpa, &redis.config, .{ .hub = redis.hub, .prefix = url.prefix }, account);
        errdefer redis.publisher.deinit();
        redis.hearer = try .init(gpa, &redis.config, url.prefix, account);
        return redis;
    }

    pub fn destroy(redis: *Redis) void {
        const gpa = redis.gpa;
        redis.forgetTold();
        var requests = redis.requests.valueIterator();
        while (requests.next()) |request| switch (request.what) {
            .publication => |topic| gpa.free(topic),
            .message => {},
        };
        redis.requests.deinit(gpa);
        redis.loads.deinit(gpa);
        redis.publisher.deinit();
        redis.hearer.deinit();
        redis.subscriptions.deinit();
        gpa.free(redis.memory);
        gpa.destroy(redis);
    }

    fn moment(redis: *Redis) link_file.Moment {
        return .{
            .now_ms = redis.now_ms,
            .wall_ms = redis.wall_ms,
            .random = redis.random.random().int(u64),
        };
    }

    /// Sets the time. Must be called before other functions at that time.
    pub fn setTime(redis: *Redis, now_ms: u64, wall_ms: u64) void {
        redis.now_ms = @max(now_ms, redis.now_ms);
        redis.wall_ms = wall_ms;
    }

    pub fn isReady(redis: *const Redis) bool {
        return redis.publisher.link.isReady() and redis.hearer.link.isReady();
    }

    /// The reason why Redis is not available, in words for the operator; null: it is available.
    pub fn troubleText(redis: *const Redis) ?[*:0]const u8 {
        if (redis.isReady()) return redis.refusalText();
        const line: Line = if (redis.linkOf(.publisher).isReady()) .hearer else .publisher;
        return switch (redis.troubles.get(line)) {
            .none => "it was not reached yet",
            .closed => "the connection was refused, or ended",
            .silent => "it does not answer",
            .nonsense => "its answers are not those of Redis",
            .no_address => "its name has no address",
            .refused => |failure| failure.text(),
            .insecure => |why| why.text(),
        };
    }

    /// The reason why a server refuses subscriptions, also while it is connected again.
    fn refusalText(redis: *const Redis) ?[*:0]const u8 {
        if (redis.subscriptions.pending == 0) return null;
        return switch (redis.troubles.get(.hearer)) {
            .refused => |failure| failure.text(),
            else => null,
        };
    }

    fn linkOf(redis: anytype, line: Line) if (@TypeOf(redis) == *Redis) *Link else *const Link {
        return switch (line) {
            .publisher => &redis.publisher.link,
            .hearer => &redis.hearer.link,
        };
    }

    // ---- Requests

    const EnterError = error{ OutOfMemory, Full, TooMany };

    /// Counts a request. `TooMany`: the node or its share has its limit of requests under way. Answers of
    /// this hub to another hub belong to no node, and have no limit, because the questions were counted here.
    fn enter(redis: *Redis, request: Request, most: Load) EnterError!u64 {
        if (redis.requests.count() >= 2 * redis.config.publications_max) return error.Full;
        try redis.requests.ensureUnusedCapacity(redis.gpa, 1);
        if (request.asker.node != 0) {
            const config = &redis.config;
            try redis.loads.add(redis.gpa, request.owner(), request.len, .{
                .node = .{
                    .count = config.interpreter_publications_max,
                    .bytes = config.interpreter_publications_bytes_max,
                },
                .share = most,
            });
        }
        redis.last_token += 1;
        redis.requests.putAssumeCapacityNoClobber(redis.last_token, request);
        return redis.last_token;
    }

    /// Ends the count of a request.
    fn leave(redis: *Redis, token: u64) Request {
        const request = redis.requests.fetchRemove(token).?.value;
        if (request.asker.node != 0) redis.loads.remove(request.owner(), request.len);
        return request;
    }

    /// Publishes an entry of a topic. `prefix`: that of the share for which the topic counts; it must stay
    /// valid.
    pub fn append(
        redis: *Redis,
        topic: []const u8,
        prefix: []const u8,
        bytes: []const u8,
        asker: Asker,
        part: Part,
    ) (EnterError || error{TooLong})!void {
        const own = try redis.gpa.dupe(u8, topic);
        errdefer redis.gpa.free(own);
        const token = try redis.enter(.{
            .asker = asker,
            .share = part.share,
            .len = bytes.len,
            .what = .{ .publication = own },
        }, part.most);
        errdefer _ = redis.leave(token);
        return redis.publisher.publish(topic, prefix, bytes, token, redis.moment());
    }

    /// Publishes a message to a feed.
    pub fn say(
        redis: *Redis,
        fed: Fed,
        bytes: []const u8,
        asker: Asker,
        part: Part,
        by: Answerer,
    ) EnterError!void {
        const token = try redis.enter(.{
            .asker = asker,
            .share = part.share,
            .len = bytes.len,
            .what = .{ .message = by },
        }, part.most);
        errdefer _ = redis.leave(token);
        return redis.publisher.say(fed, bytes, token, redis.moment());
    }

    fn finish(redis: *Redis, token: u64, end: union(enum) {
        publication: publisher_file.Outcome,
        message: messages_file.Outcome,
    }) Event {
        const request = redis.leave(token);
        const has_failed = switch (end) {
            .publication => |outcome| outcome != .published,
            .message => |outcome| outcome != .heard,
        };
        redis.counts.failed += @intFromBool(has_failed);
        switch (request.what) {
            .publication => |topic| {
                redis.told = topic;
                return .{ .published = .{
                    .asker = request.asker,
                    .topic = topic,
                    .len = request.len,
                    .outcome = end.publication,
                } };
            },
            .message => |by| return .{ .said = .{
                .asker = request.asker,
                .by = by,
                .outcome = end.message,
            } },
        }
    }

    fn forgetTold(redis: *Redis) void {
        if (redis.told) |topic| redis.gpa.free(topic);
        redis.told = null;
    }

    // ---- Connections

    /// Acts on the present time, up to one event of the line; `nothing`: nothing is due any more.
    pub fn tick(redis: *Redis, topics: *Topics, line: Line) Event {
        redis.forgetTold();
        const was_ready = redis.linkOf(line).isReady();
        const event = switch (line) {
            .publisher => redis.takePublisher(topics, redis.publisher.tick(redis.moment()), was_ready),
            .hearer => redis.takeHearer(topics, redis.hearer.tick(redis.moment()), was_ready),
        };
        redis.pump(topics);
        return event orelse .nothing;
    }

    /// The time at which `tick` is due next, in milliseconds.
    pub fn deadline(redis: *const Redis) u64 {
        return @min(redis.publisher.deadline(), redis.hearer.deadline());
    }

    /// Notes that the line's socket is connected.
    pub fn connected(redis: *Redis, line: Line) error{OutOfMemory}!void {
        return redis.linkOf(line).connected(redis.moment());
    }

    /// Notes that the line's socket is gone.
    pub fn lost(redis: *Redis, topics: *Topics, line: Line, why: Trouble) void {
        const was_ready = redis.linkOf(line).isReady();
        switch (line) {
            .publisher => redis.publisher.lost(redis.moment()),
            .hearer => redis.hearer.lost(redis.moment()),
        }
        redis.noteLost(topics, line, why, was_ready);
    }

    fn troubleOf(why: link_file.Why) Trouble {
        return switch (why) {
            .closed => .closed,
            .silent => .silent,
            .nonsense, .too_long => .nonsense,
            .refused => |failure| .{ .refused = failure },
            .wanted => .none,
        };
    }

    fn noteLost(redis: *Redis, topics: *Topics, line: Line, why: Trouble, was_ready: bool) void {
        redis.counts.lost += @intFromBool(was_ready);
        redis.troubles.set(line, why);
        switch (line) {
            .publisher => topics.read(.broken),
            .hearer => {
                redis.subscriptions.disconnected();
                topics.unheard();
            },
        }
    }

    /// Bytes for the line's socket, valid until the next call.
    pub fn pending(redis: *const Redis, line: Line) []const u8 {
        return switch (redis.linkOf(line).state) {
            .greeting, .ready => redis.linkOf(line).pending(),
            .waiting, .connecting => "",
        };
    }

    /// Notes that the line's socket has taken the first `count` bytes.
    pub fn written(redis: *Redis, topics: *Topics, line: Line, count: usize) void {
        redis.linkOf(line).written(count);
        redis.pump(topics);
    }

    pub const Step = struct { consumed: usize, event: Event };

    /// Parses bytes that the line's socket has received, up to one event; `nothing`: all was parsed.
    pub fn receive(redis: *Redis, topics: *Topics, line: Line, bytes: []const u8) Step {
        redis.forgetTold();
        var consumed: usize = 0;
        while (true) {
            const was_ready = redis.linkOf(line).isReady();
            const event = switch (line) {
                .publisher => event: {
                    const step = redis.publisher.receive(bytes[consumed..], redis.moment());
                    consumed += step.consumed;
                    break :event redis.takePublisher(topics, step.event, was_ready);
                },
                .hearer => event: {
                    const step = redis.hearer.receive(bytes[consumed..], redis.moment());
                    consumed += step.consumed;
                    break :event redis.takeHearer(topics, step.event, was_ready);
                },
            };
            redis.pump(topics);
            if (event) |found| return .{ .consumed = consumed, .event = found };
        }
    }

    /// Handles an event of the publisher; null: there may be further ones.
    fn takePublisher(
        redis: *Redis,
        topics: *Topics,
        event: publisher_file.Event,
        was_ready: bool,
    ) ?Event {
        switch (event) {
            .need_more => return .nothing,
            .connect => return .connect,
            .ready => return null,
            .lost => |why| {
                redis.noteLost(topics, .publisher, troubleOf(why), was_ready);
                return .close;
            },
            .done => |done| return redis.finish(done.token, .{ .publication = done.outcome }),
            .said => |said| return redis.finish(said.token, .{ .message = said.outcome }),
            .head => |at| topics.read(.{ .head = at }),
            .entry => |placed| topics.read(.{ .entry = placed }),
            .read => |end| topics.read(.{ .end = .{ .full = end.full } }),
            .read_refused => {
                redis.publisher.read_ms = redis.now_ms + refused_read_pause_ms;
                topics.read(.broken);
            },
        }
        return .{ .moved = null };
    }

    fn takeHearer(redis: *Redis, topics: *Topics, event: hearer_file.Event, was_ready: bool) ?Event {
        switch (event) {
            .need_more => return .nothing,
            .connect => return .connect,
            .ready => return null,
            .lost => |why| {
                redis.noteLost(topics, .hearer, troubleOf(why), was_ready);
                return .close;
            },
            .subscribed => |fed| {
                if (!redis.subscriptions.confirmed(fed)) return null;
                if (redis.subscriptions.pending == 0) redis.troubles.set(.hearer, .none);
                if (fed.feed == .entries) topics.subscribed(fed.name);
                return .{ .subscribed = fed };
            },
            .entry => |entry| {
                topics.hear(entry.topic, entry.placed);
                return .{ .moved = entry.topic };
            },
            .message => |message| return .{ .message = .{ .fed = message.fed, .bytes = message.bytes } },
            .foreign => return null,
        }
    }

    /// Writes commands for feeds that are wanted or no longer wanted, and begins the next read of a history.
    /// Without memory they wait.
    fn pump(redis: *Redis, topics: *Topics) void {
        if (redis.hearer.link.isReady()) {
            while (redis.subscriptions.next()) |order| {
                switch (order.verb) {
                    .subscribe => redis.hearer.subscribe(order.fed) catch break,
                    .unsubscribe => redis.hearer.unsubscribe(order.fed) catch break,
                }
                redis.subscriptions.sent();
            }
        }
        if (!redis.publisher.link.isReady() or redis.publisher.isReading()) return;
        const next = topics.nextRead() orelse return;
        redis.publisher.read(next.name, next.prefix, next.from, redis.moment()) catch topics.read(.broken);
    }
};

comptime {
    // Nodes give requests up after `request_ms`, and should learn the result before.
    assert((Config{}).publish_ms < limits.request_ms);
}
