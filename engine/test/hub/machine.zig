//! The part of a hub that a test needs: one topic in Redis, its log, and a reader of the log that notes all
//! that it gets. Sockets and clock are real. Does not know: which faults happen.
const std = @import("std");
const hub = @import("hub");
const server_file = @import("server.zig");
const redis = hub.redis;
const linux = std.os.linux;
const testing = std.testing;

pub const config: hub.Config = .{
    .redis_ping_ms = 200,
    .redis_answer_ms = 2_000,
    .redis_retry_ms = 10,
    .redis_retry_ms_max = 50,
    .publish_ms = server_file.patience_ms,
    .history_pause_ms = 1,
    .history_page = 7,
};
const topic = "room.42";

/// An entry that the reader has got, or the reset of its topic.
pub const Seen = union(enum) { number: u64, reset };

pub const Options = struct {
    name: u48,
    path: []const u8,
    account: redis.link.Account = .{},
    prefix: []const u8 = "test:",
};

pub const Machine = struct {
    path: []const u8,
    prng: std.Random.DefaultPrng,
    publisher: redis.Publisher,
    hearer: redis.Hearer,
    log: hub.Log,
    follower: redis.Follower,
    sockets: [2]Socket = .{ .{}, .{} },
    cursor: ?hub.log.Cursor = null,
    seen: std.ArrayList(Seen) = .empty,
    /// The last end of a connection that a server has said the reason for.
    refused: ?redis.Failure = null,
    outcomes: std.EnumArray(std.meta.Tag(redis.publisher.Outcome), usize) = .initFill(0),
    last_refusal: ?redis.Failure = null,
    /// Nothing is read from the publisher's socket.
    is_deaf: bool = false,

    const Socket = struct {
        fd: ?i32 = null,
        input: [1 << 16]u8 = undefined,
        start: usize = 0,
        end: usize = 0,

        fn close(socket: *Socket) void {
            if (socket.fd) |fd| _ = linux.close(fd);
            socket.fd = null;
            socket.start = 0;
            socket.end = 0;
        }

        /// False: the other end has closed.
        fn fill(socket: *Socket) bool {
            std.mem.copyForwards(u8, &socket.input, socket.input[socket.start..socket.end]);
            socket.end -= socket.start;
            socket.start = 0;
            const room = socket.input[socket.end..];
            std.debug.assert(room.len > 0);
            const count = linux.recvfrom(socket.fd.?, room.ptr, room.len, linux.MSG.DONTWAIT, null, null);
            switch (linux.errno(count)) {
                .SUCCESS => {},
                .AGAIN => return true,
                else => return false,
            }
            socket.end += count;
            return count > 0;
        }

        fn drainIf(socket: *Socket, link: *redis.link.Link) void {
            if (socket.fd == null) return;
            const bytes = link.pending();
            if (bytes.len == 0) return;
            const flags = linux.MSG.DONTWAIT | linux.MSG.NOSIGNAL;
            const count = linux.sendto(socket.fd.?, bytes.ptr, bytes.len, flags, null, 0);
            // An error shows when the socket is read.
            if (linux.errno(count) == .SUCCESS) link.written(count);
        }
    };

    pub fn create(options: Options) !*Machine {
        const gpa = testing.allocator;
        const machine = try gpa.create(Machine);
        machine.* = .{
            .path = options.path,
            .prng = .init(options.name),
            .publisher = try .init(gpa, &config, .{
                .hub = options.name,
                .prefix = options.prefix,
            }, options.account),
            .hearer = try .init(gpa, &config, options.prefix, options.account),
            .log = .init(gpa, .of(&config), options.name, .origin),
            .follower = .init(&machine.log),
        };
        return machine;
    }

    pub fn destroy(machine: *Machine) void {
        for (&machine.sockets) |*socket| socket.close();
        if (machine.cursor) |*cursor| machine.log.release(cursor);
        machine.publisher.deinit();
        machine.hearer.deinit();
        machine.log.deinit();
        machine.seen.deinit(testing.allocator);
        testing.allocator.destroy(machine);
    }

    pub fn moment(machine: *Machine) redis.link.Moment {
        return .{
            .now_ms = server_file.now(),
            .wall_ms = server_file.now(),
            .random = machine.prng.random().int(u64),
        };
    }

    /// Publishes a number.
    pub fn publish(machine: *Machine, number: u64) !void {
        var text: [20]u8 = undefined;
        const bytes = try std.fmt.bufPrint(&text, "{d}", .{number});
        try machine.publisher.publish(topic, "", bytes, number, machine.moment());
    }

    /// Whether nothing of it waits.
    pub fn isIdle(machine: *const Machine) bool {
        return machine.publisher.waiting.len == 0 and machine.follower.state == .live and
            machine.cursor != null and machine.cursor.?.offset == machine.log.tip.offset and
            machine.cursor.?.generation == machine.log.generation;
    }

    /// Ends both connections.
    pub fn disconnect(machine: *Machine) void {
        for (&machine.sockets) |*socket| socket.close();
        if (machine.publisher.link.state != .waiting) machine.publisher.lost(machine.moment());
        if (machine.hearer.link.state != .waiting) machine.hearer.lost(machine.moment());
        machine.follower.broken();
        machine.follower.unheard();
    }

    /// Does what there is to do now.
    pub fn turn(machine: *Machine) !void {
        try machine.publisherEvent(machine.publisher.tick(machine.moment()));
        try machine.hearerEvent(machine.hearer.tick(machine.moment()));
        if (!machine.is_deaf) try machine.serve(.publisher);
        try machine.serve(.hearer);
        if (machine.publisher.link.isReady() and !machine.publisher.isReading()) {
            if (machine.follower.begin()) |from| {
                try machine.publisher.read(topic, "", from, machine.moment());
            }
        }
        machine.sockets[0].drainIf(&machine.publisher.link);
        machine.sockets[1].drainIf(&machine.hearer.link);
        if (machine.follower.state == .live) try machine.readOn();
    }

    const Which = enum { publisher, hearer };

    fn serve(machine: *Machine, which: Which) !void {
        const socket = &machine.sockets[@backingInt(which)];
        if (socket.fd == null) return;
        const is_open = socket.fill();
        while (socket.fd != null) {
            const bytes = socket.input[socket.start..socket.end];
            const consumed = switch (which) {
                .publisher => publisher: {
                    const step = machine.publisher.receive(bytes, machine.moment());
                    socket.start += step.consumed;
                    try machine.publisherEvent(step.event);
                    break :publisher step.event == .need_more;
                },
                .hearer => hearer: {
                    const step = machine.hearer.receive(bytes, machine.moment());
                    socket.start += step.consumed;
                    try machine.hearerEvent(step.event);
                    break :hearer step.event == .need_more;
                },
            };
            if (consumed) break;
        }
        if (is_open or socket.fd == null) return;
        socket.close();
        switch (which) {
            .publisher => {
                machine.publisher.lost(machine.moment());
                machine.follower.broken();
            },
            .hearer => {
                machine.hearer.lost(machine.moment());
                machine.follower.unheard();
            },
        }
    }

    fn open(machine: *Machine, socket: *Socket) bool {
        socket.fd = server_file.connect(machine.path) catch return false;
        return true;
    }

    fn publisherEvent(machine: *Machine, event: redis.publisher.Event) !void {
        switch (event) {
            .need_more, .ready, .said => {},
            .connect => if (machine.open(&machine.sockets[0])) {
                try machine.publisher.link.connected(machine.moment());
            } else machine.publisher.lost(machine.moment()),
            .lost => |why| {
                if (why == .refused) machine.refused = why.refused;
                machine.sockets[0].close();
                machine.follower.broken();
            },
            .done => |done| {
                const count = machine.outcomes.getPtr(done.outcome);
                count.* += 1;
                if (done.outcome == .refused) machine.last_refusal = done.outcome.refused;
            },
            .head => |at| machine.follower.head(at),
            .entry => |placed| machine.follower.entry(placed, machine.moment().now_ms),
            .read => |read| machine.follower.end(read.full),
            .read_refused => |failure| {
                machine.refused = failure;
                machine.follower.broken();
            },
        }
    }

    fn hearerEvent(machine: *Machine, event: redis.hearer.Event) !void {
        switch (event) {
            .need_more, .foreign, .message => {},
            .connect => if (machine.open(&machine.sockets[1])) {
                try machine.hearer.link.connected(machine.moment());
            } else machine.hearer.lost(machine.moment()),
            .ready => try machine.hearer.subscribe(.{ .feed = .entries, .name = topic }),
            .lost => |why| {
                if (why == .refused) machine.refused = why.refused;
                machine.sockets[1].close();
                machine.follower.unheard();
            },
            .subscribed => |fed| {
                try testing.expectEqualStrings(topic, fed.name);
                machine.follower.subscribed();
            },
            .entry => |entry| {
                try testing.expectEqualStrings(topic, entry.topic);
                machine.follower.hear(entry.placed, machine.moment().now_ms);
            },
        }
    }

    /// The reader takes what the log has for it. The first time, all that there is.
    fn readOn(machine: *Machine) !void {
        const cursor = if (machine.cursor) |*cursor| cursor else {
            machine.cursor = switch (machine.log.begin(.{ .after = .{
                .epoch = machine.log.epoch,
                .mark = machine.log.base,
            } })) {
                .current, .behind => |cursor| cursor,
                .reset => unreachable,
            };
            return;
        };
        const want: hub.log.Want = .{ .variant = .{ .websocket = .binary } };
        const framer: hub.frames.Framer = .{ .deflater = undefined, .deflate_bytes_min = 0 };
        while (true) switch (try machine.log.next(cursor, want, framer)) {
            .nothing => return,
            .bytes => |bytes| {
                var rest = bytes;
                while (rest.len > 0) {
                    const len = rest[1];
                    const number = try std.fmt.parseInt(u64, rest[2..][0..len], 10);
                    try machine.seen.append(testing.allocator, .{ .number = number });
                    rest = rest[2 + len ..];
                }
                machine.log.sent(cursor, bytes.len);
            },
            .reset => try machine.seen.append(testing.allocator, .reset),
            .skipped, .cut => return error.TestUnexpectedResult,
        };
    }
};

/// Lets machines work until a condition holds.
pub fn runUntil(
    machines: []const *Machine,
    context: anytype,
    comptime holds: fn (@TypeOf(context)) bool,
) !void {
    const end = server_file.now() + server_file.patience_ms;
    while (server_file.now() < end) {
        for (machines) |machine| try machine.turn();
        if (holds(context)) return;
        server_file.sleep(1);
    }
    for (machines) |machine| std.debug.print("waits: {d} publications, {t}, {t}, {t}\n", .{
        machine.publisher.waiting.len,
        machine.follower.state,
        machine.publisher.link.state,
        machine.hearer.link.state,
    });
    return error.Timeout;
}
