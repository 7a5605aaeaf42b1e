//! A hub with Redis and its nodes, as one machine has them. The sockets to Redis and the clock are real;
//! nodes are reached without sockets. Does not know: which faults happen.
const std = @import("std");
const hub = @import("hub");
const server_file = @import("server.zig");
const redis = hub.redis;
const linux = std.os.linux;
const testing = std.testing;
const gpa = testing.allocator;

pub const config: hub.Config = .{
    .redis_ping_ms = 200,
    .redis_answer_ms = 2_000,
    .redis_retry_ms = 10,
    .redis_retry_ms_max = 50,
};

/// Entries that a reader has got.
pub const Seen = union(enum) { number: u64, reset };

/// A connection of an application that reads one topic.
pub const Reader = struct {
    node: usize,
    mailbox: u64,
    topic: []const u8,
    asked: ?u32 = null,
    /// The place of the newest entry that it has got.
    at: ?hub.position.Position = null,
    seen: std.ArrayList(Seen) = .empty,

    pub fn resets(reader: *const Reader) usize {
        var count: usize = 0;
        for (reader.seen.items) |seen| count += @intFromBool(seen == .reset);
        return count;
    }
};

const Socket = struct {
    fd: ?i32 = null,
    input: std.ArrayList(u8) = .empty,

    fn close(socket: *Socket) void {
        if (socket.fd) |fd| _ = linux.close(fd);
        socket.fd = null;
        socket.input.clearRetainingCapacity();
    }

    /// False: the other end has closed.
    fn fill(socket: *Socket) !bool {
        var buffer: [1 << 16]u8 = undefined;
        const count = linux.recvfrom(socket.fd.?, &buffer, buffer.len, linux.MSG.DONTWAIT, null, null);
        switch (linux.errno(count)) {
            .SUCCESS => {},
            .AGAIN => return true,
            else => return false,
        }
        try socket.input.appendSlice(gpa, buffer[0..count]);
        return count > 0;
    }
};

pub const Site = struct {
    path: []const u8,
    name: u64,
    redis: *hub.Redis,
    broker: hub.Broker,
    nodes: [2]hub.Node,
    connections: [2]hub.Broker.Index = undefined,
    replies: std.AutoHashMapUnmanaged(u32, hub.wire.Code) = .empty,
    places: std.AutoHashMapUnmanaged(u32, hub.position.Position) = .empty,
    /// How many were said to be subscribed.
    counts: std.AutoHashMapUnmanaged(u32, u64) = .empty,
    readers: std.ArrayList(*Reader) = .empty,
    sockets: [2]Socket = .{ .{}, .{} },
    /// Nothing gets through to Redis or from there.
    is_cut: bool = false,

    pub fn create(name: u64, path: []const u8) !*Site {
        const site = try gpa.create(Site);
        site.* = .{
            .path = path,
            .name = name,
            .redis = undefined,
            .broker = undefined,
            .nodes = .{ .init(gpa, name * 10 + 1), .init(gpa, name * 10 + 2) },
        };
        // Requests of the two nodes have numbers of their own.
        site.nodes[1].last_number = 1 << 20;
        site.redis = try .create(gpa, "unix:/x?prefix=test:", name, config);
        site.broker = .init(gpa, name);
        try site.broker.share(site.redis);
        try site.join();
        return site;
    }

    fn join(site: *Site) !void {
        for (&site.nodes, &site.connections) |*node, *connection| {
            try node.connected();
            connection.* = try site.broker.connect("");
        }
    }

    pub fn destroy(site: *Site) void {
        for (&site.sockets) |*socket| {
            socket.close();
            socket.input.deinit(gpa);
        }
        for (site.readers.items) |reader| {
            reader.seen.deinit(gpa);
            gpa.destroy(reader);
        }
        site.readers.deinit(gpa);
        site.replies.deinit(gpa);
        site.places.deinit(gpa);
        site.counts.deinit(gpa);
        for (&site.nodes) |*node| node.deinit();
        site.broker.deinit();
        site.redis.destroy();
        gpa.destroy(site);
    }

    /// The hub dies, and another one takes its place.
    pub fn replaceHub(site: *Site) !void {
        for (&site.sockets) |*socket| socket.close();
        for (&site.nodes) |*node| node.lose();
        site.broker.deinit();
        site.redis.destroy();
        site.name += 1000;
        site.redis = try .create(gpa, "unix:/x?prefix=test:", site.name, config);
        site.broker = .init(gpa, site.name);
        try site.broker.share(site.redis);
        try site.join();
    }

    /// Does what there is to do now.
    pub fn turn(site: *Site) !void {
        const now = server_file.now();
        site.redis.setTime(now, now);
        site.broker.tick(now);
        for ([_]redis.joined.Line{ .publisher, .hearer }) |line| {
            const socket = &site.sockets[@backingInt(line)];
            while (true) {
                const event = site.redis.tick(&site.broker.topics, line);
                if (event == .nothing) break;
                if (site.broker.take(event)) try site.act(line, event);
            }
            if (socket.fd != null and !site.is_cut) try site.serve(line);
        }
        for (&site.nodes, site.connections) |*node, connection| {
            if (node.tick(now)) return error.NodeGaveUp;
            while (true) {
                const said = node.toSend();
                site.broker.receive(connection, said);
                node.noteSent(said.len);
                const heard = site.broker.output(connection);
                if (said.len + heard.len == 0) break;
                node.receive(heard, now);
                site.broker.noteSent(connection, heard.len);
            }
            while (node.next()) |event| switch (event) {
                .reply => |reply| {
                    try site.replies.put(gpa, reply.number, reply.code);
                    if (reply.place) |place| try site.places.put(gpa, reply.number, place);
                    if (reply.present) |bytes| {
                        const present: hub.Present = try .read(bytes);
                        try testing.expect(present.is_complete);
                        try site.counts.put(gpa, reply.number, present.count);
                    }
                },
                .mail, .readable => {},
            };
        }
        for (site.readers.items) |reader| try site.read(reader);
    }

    fn act(site: *Site, line: redis.joined.Line, event: redis.joined.Event) !void {
        const socket = &site.sockets[@backingInt(line)];
        socket.close();
        if (event == .close) return;
        socket.fd = if (site.is_cut) null else server_file.connect(site.path) catch null;
        if (socket.fd != null) return site.redis.connected(line);
        // A link that is cut is silent.
        if (!site.is_cut) site.redis.lost(&site.broker.topics, line, .closed);
    }

    fn serve(site: *Site, line: redis.joined.Line) !void {
        const socket = &site.sockets[@backingInt(line)];
        const is_open = try socket.fill();
        while (socket.fd != null) {
            const step = site.redis.receive(&site.broker.topics, line, socket.input.items);
            socket.input.replaceRangeAssumeCapacity(0, step.consumed, "");
            if (step.event == .nothing) break;
            if (site.broker.take(step.event)) try site.act(line, step.event);
        }
        if (socket.fd == null) return;
        if (!is_open) {
            socket.close();
            return site.redis.lost(&site.broker.topics, line, .closed);
        }
        const bytes = site.redis.pending(line);
        if (bytes.len == 0) return;
        const flags = linux.MSG.DONTWAIT | linux.MSG.NOSIGNAL;
        const count = linux.sendto(socket.fd.?, bytes.ptr, bytes.len, flags, null, 0);
        // An error shows when the socket is read.
        if (linux.errno(count) == .SUCCESS) site.redis.written(&site.broker.topics, line, count);
    }

    // ---- Applications

    /// Publishes a number to a topic with history, on the first node.
    pub fn append(site: *Site, topic: []const u8, number: u64) !u32 {
        var text: [20]u8 = undefined;
        const bytes = try std.fmt.bufPrint(&text, "{d}", .{number});
        return site.nodes[0].append(topic, bytes, server_file.now());
    }

    /// Appends the number with zeros in front, as a long entry.
    pub fn appendLong(site: *Site, topic: []const u8, number: u64) !u32 {
        var text: [4096]u8 = undefined;
        const bytes = try std.fmt.bufPrint(&text, "{d:0>4096}", .{number});
        return site.nodes[0].append(topic, bytes, server_file.now());
    }

    /// A reader on a node, from now on or behind a place.
    pub fn addReader(site: *Site, node: usize, topic: []const u8, since: ?hub.position.Position) !*Reader {
        const reader = try gpa.create(Reader);
        reader.* = .{ .node = node, .mailbox = try site.nodes[node].open(0), .topic = topic };
        try site.readers.append(gpa, reader);
        reader.asked = try site.nodes[node].follow(reader.mailbox, topic, .{
            .as = .binary,
            .since = if (since) |at| .{ .after = at } else .now,
        }, server_file.now());
        reader.at = since;
        return reader;
    }

    fn read(site: *Site, reader: *Reader) !void {
        if (reader.asked) |number| {
            if (!site.replies.contains(number)) return;
            try testing.expectEqual(.ok, site.replies.get(number).?);
            reader.asked = null;
            reader.at = site.places.get(number).?;
        }
        const node = &site.nodes[reader.node];
        while (true) switch (try node.read(reader.mailbox)) {
            .nothing => return,
            .cut => return error.WasCut,
            .reset => |told| {
                try reader.seen.append(gpa, .reset);
                reader.at = told.position;
            },
            .bytes => |found| {
                const number = try std.fmt.parseInt(u64, found.bytes, 10);
                try reader.seen.append(gpa, .{ .number = number });
                const offset = reader.at.?.mark.offset + 1;
                const log = &node.readers.topics.get(reader.topic).?.log.?;
                reader.at = .{ .epoch = log.epoch, .mark = log.markAt(offset) };
                node.noteRead(reader.mailbox, found.bytes.len);
            },
        };
    }
};

/// Lets sites work until a condition holds.
pub fn runUntil(sites: []const *Site, context: anytype, comptime holds: fn (@TypeOf(context)) bool) !void {
    const end = server_file.now() + server_file.patience_ms;
    while (server_file.now() < end) {
        for (sites) |site| try site.turn();
        if (holds(context)) return;
        server_file.sleep(1);
    }
    for (sites) |site| std.debug.print("{d}: {t} {t}, {d} pending, trouble {?s}\n", .{
        site.name,
        site.redis.publisher.link.state,
        site.redis.hearer.link.state,
        site.redis.subscriptions.pending,
        site.redis.troubleText(),
    });
    return error.Timeout;
}

/// Lets sites work for a time.
pub fn runFor(sites: []const *Site, ms: u64) !void {
    const end = server_file.now() + ms;
    while (server_file.now() < end) {
        for (sites) |site| try site.turn();
        server_file.sleep(1);
    }
}
