//! The hub's thread: nodes come through the join socket, and speak over the socket that each of them sends
//! there. With Redis the thread has two connections to Redis, too.
//! Does not know: what nodes and Redis say.
const std = @import("std");
const peregrine = @import("peregrine");
const hub = @import("hub");
const platform = @import("platform");
const errors = @import("errors.zig");
const history = @import("history.zig");
const redis_line = @import("redis_line.zig");
const redis_trust = @import("redis_trust.zig");
const sized = @import("sized.zig");
const types = @import("types.zig");
const io = peregrine.io;
const polling = io.polling;
const sharing = io.sharing;
const Broker = hub.Broker;
const Redis = hub.Redis;
const Code = types.Code;
const gpa = platform.gpa;
const limits = hub.limits;

const stand_by_ms = peregrine.api_limits.hub_stand_by_ms;

/// The `peregrine_hub` of C.
pub const Hub = struct {
    broker: Broker,
    join_socket: i32,
    /// A file whose lock says which process is the hub, and in which a hub leaves its histories to the next
    /// one; -1: no other process has the join socket.
    lock: i32,
    wakeup: io.Wakeup,
    stops: std.atomic.Value(bool) = .init(false),
    /// Grows while the thread lives, within `tick_ms`.
    beats: std.atomic.Value(u32) = .init(0),
    thread: std.Thread = undefined,
    /// `fork.count` of the process that has the thread.
    forks: u32,
    /// The socket of each node of the broker's; -1: there is none.
    sockets: std.ArrayList(i32) = .empty,
    polls: std.ArrayList(polling.Poll) = .empty,
    /// Redis, with which other machines share topics; null: there is none.
    redis: ?*Redis,
    trust: redis_trust.Trust = .{},
    lines: [2]redis_line.Line,
    /// The text of `peregrine_hub_trouble`.
    trouble: std.atomic.Value(?[*:0]const u8) = .init(null),
    /// Nodes that could not join, because the process has no descriptor left for them.
    lacked: std.atomic.Value(u32) = .init(0),
    /// Entries in Redis that were passed over, because no hub has written them.
    foreign: std.atomic.Value(u32) = .init(0),

    pub const Error = error{ OutOfMemory, CannotStartThread, NoDescriptors, NoAddress, BadPrefix };

    /// Starts the thread. The descriptors stay the caller's, and must be open until `stop`. `address`: the
    /// URL of Redis, or "". `prefixes`: those of topics to which nodes will be confined, separated by blanks.
    pub fn start(
        join_socket: i32,
        lock: i32,
        address: []const u8,
        prefixes: []const u8,
        config: hub.Config,
    ) Error!*Hub {
        const self = try gpa.create(Hub);
        errdefer gpa.destroy(self);
        const redis = try redisAt(address, config);
        errdefer if (redis) |own| own.destroy();
        self.* = .{
            .redis = redis,
            .lines = .{
                .{ .name = .publisher, .trust = &self.trust },
                .{ .name = .hearer, .trust = &self.trust },
            },
            .broker = .init(gpa, io.randomSeed() orelse io.micros() ^ @intFromPtr(self)),
            .join_socket = join_socket,
            .lock = lock,
            .wakeup = io.Wakeup.init() catch return error.NoDescriptors,
            .forks = io.fork.count(),
        };
        errdefer self.wakeup.deinit();
        self.broker.limit(&config);
        if (redis) |own| {
            try self.broker.share(own);
            self.trouble.store(own.troubleText(), .monotonic);
        }
        errdefer self.broker.deinit();
        try self.shareAmong(prefixes);
        self.thread = try io.thread.spawn(run, .{self});
        return self;
    }

    /// Makes the shares before any node joins: nodes of the first share, which may wait, get no room of them.
    fn shareAmong(self: *Hub, prefixes: []const u8) error{ OutOfMemory, BadPrefix }!void {
        var each = std.mem.tokenizeScalar(u8, prefixes, ' ');
        while (each.next()) |prefix| {
            _ = self.broker.topics.shareOf(prefix) catch |err| switch (err) {
                error.OutOfMemory => return error.OutOfMemory,
                error.TooMany, error.Malformed => return error.BadPrefix,
            };
        }
    }

    fn redisAt(address: []const u8, config: hub.Config) error{ OutOfMemory, NoAddress }!?*Redis {
        if (address.len == 0) return null;
        if (peregrine_redis_problem(address.ptr, address.len) != null) return error.NoAddress;
        const seed = io.randomSeed() orelse io.micros();
        return Redis.create(gpa, address, seed, config) catch |err| switch (err) {
            error.OutOfMemory => error.OutOfMemory,
            else => error.NoAddress,
        };
    }

    /// Ends the thread, and waits for that. Nodes see the end of their connections.
    pub fn stop(self: *Hub) void {
        self.stops.store(true, .release);
        self.wakeup.raise();
        self.thread.join();
        for (self.sockets.items) |socket| if (socket >= 0) io.file.close(socket);
        self.sockets.deinit(gpa);
        self.polls.deinit(gpa);
        for (&self.lines) |*line| line.close();
        self.trust.forget();
        self.broker.deinit();
        if (self.redis) |redis| redis.destroy();
        self.wakeup.deinit();
        gpa.destroy(self);
    }

    fn run(self: *Hub) void {
        while (self.lock >= 0 and !io.file.lockForProcess(self.lock)) {
            _ = self.beats.fetchAdd(1, .monotonic);
            self.wakeup.wait(stand_by_ms);
            if (self.stops.load(.acquire)) return;
        }
        self.inherit();
        // A round fails for want of memory: the thread waits, and tries again.
        while (!self.stops.load(.acquire)) self.round() catch self.wakeup.wait(stand_by_ms);
        self.leave();
    }

    /// Takes over the histories of the hub before.
    fn inherit(self: *Hub) void {
        if (self.lock < 0 or self.redis != null) return;
        const bytes = taken(self.lock) orelse return;
        defer gpa.free(bytes);
        const now_ms = io.micros() / 1000;
        self.broker.tick(now_ms);
        // Without histories topics have new epochs, and readers get a reset.
        hub.histories.read(&self.broker.topics, bytes) catch return;
        self.broker.tick(now_ms);
    }

    /// The bytes of a file, which is empty afterwards: if this hub dies of them, the next hub must not find
    /// them. Null: there are none, or more than a hub leaves.
    fn taken(fd: i32) ?[]u8 {
        const size = io.file.size(fd) catch return null;
        if (size == 0) return null;
        const bytes = copied(fd, size);
        sharing.replaceContent(fd, "") catch {
            if (bytes) |own| gpa.free(own);
            return null;
        };
        return bytes;
    }

    fn copied(fd: i32, size: u64) ?[]u8 {
        if (size > hub.histories.bytes_max) return null;
        const bytes = gpa.alloc(u8, @intCast(size)) catch return null;
        var at: usize = 0;
        while (at < bytes.len) {
            const count = io.file.read(fd, bytes[at..], at) catch 0;
            if (count == 0) {
                gpa.free(bytes);
                return null;
            }
            at += count;
        }
        return bytes;
    }

    /// Reads what nodes have published, answers, and leaves the histories in the file for the next hub.
    fn leave(self: *Hub) void {
        if (self.lock < 0 or self.redis != null) return;
        for (self.sockets.items, 0..) |socket, index| {
            if (socket >= 0) self.receive(@intCast(index), limits.turn_bytes_max);
        }
        for (self.sockets.items, 0..) |socket, index| if (socket >= 0) self.send(@intCast(index));
        var bytes: std.ArrayList(u8) = .empty;
        defer bytes.deinit(gpa);
        hub.histories.write(&self.broker.topics, gpa, &bytes) catch return;
        sharing.replaceContent(self.lock, bytes.items) catch {};
    }

    /// The most milliseconds between two rounds, so that old entries of topics go.
    const tick_ms = 1000;

    /// Indices in `polls`: the wakeup, the join socket, two connections to Redis, then the nodes.
    const at_wakeup = 0;
    const at_join = 1;
    const at_lines = 2;
    const at_nodes = 4;

    fn round(self: *Hub) !void {
        _ = self.beats.fetchAdd(1, .monotonic);
        self.polls.clearRetainingCapacity();
        try self.polls.append(gpa, .read(self.wakeup.fd()));
        try self.polls.append(gpa, .read(self.join_socket));
        for (&self.lines) |*line| {
            try self.polls.append(gpa, if (self.redis) |redis| line.poll(redis) else .read(-1));
        }
        for (self.sockets.items, 0..) |socket, index| {
            const wants = socket >= 0 and self.broker.output(@intCast(index)).len > 0;
            try self.polls.append(gpa, if (wants) .readOrWrite(socket) else .read(socket));
        }
        polling.wait(self.polls.items, self.patience());
        self.wakeup.clear();
        const now_ms = io.micros() / 1000;
        self.broker.tick(now_ms);
        if (self.redis) |redis| self.turnLines(redis, now_ms);
        for (self.polls.items[at_nodes..], 0..) |*poll, index| {
            if (poll.isReadable()) self.receive(@intCast(index), self.broker.turnBytes(@intCast(index)));
        }
        if (self.polls.items[at_join].isReadable()) self.admit();
        for (self.sockets.items, 0..) |socket, index| if (socket >= 0) self.send(@intCast(index));
        for (self.sockets.items, 0..) |socket, index| {
            if (socket >= 0 and self.broker.isCut(@intCast(index))) self.close(@intCast(index));
        }
    }

    /// Milliseconds until a deadline, `tick_ms` at most.
    fn patience(self: *const Hub) i32 {
        var due: u64 = self.broker.rolls.deadline() orelse std.math.maxInt(u64);
        if (self.redis) |redis| {
            for (&self.lines) |*line| if (line.patience()) |ms| return ms;
            due = @min(due, redis.deadline());
        }
        return @intCast(@min(tick_ms, due -| io.micros() / 1000));
    }

    fn turnLines(self: *Hub, redis: *Redis, now_ms: u64) void {
        redis.setTime(now_ms, std.time.ms_per_s * io.wallSeconds());
        for (&self.lines, self.polls.items[at_lines..at_nodes]) |*line, *poll| {
            line.turn(&self.broker, redis, poll.isReady());
        }
        self.trouble.store(redis.troubleText(), .monotonic);
        self.foreign.store(redis.publisher.foreign, .monotonic);
    }

    /// Takes nodes that ask to join.
    fn admit(self: *Hub) void {
        var bytes: [1 + limits.name_bytes_max]u8 = undefined;
        var fds: [1]i32 = undefined;
        for (0..admitted_max) |_| switch (sharing.receive(self.join_socket, &bytes, &fds)) {
            .nothing => return,
            // The node sees the end of its connection, and tries again.
            .lacking => _ = self.lacked.fetchAdd(1, .monotonic),
            .ended => if (!polling.isOpen(self.join_socket)) {
                // All nodes have ended, and so have the processes that could make new ones.
                self.stops.store(true, .release);
                return;
            },
            .message => |message| if (message.fd_count == 1) {
                self.add(fds[0], bytes[1..message.len]) catch {
                    // The node sees the end of its connection, and tries again.
                    io.file.close(fds[0]);
                };
            },
        };
    }

    /// The most nodes that join in one round, so that they do not keep other nodes waiting.
    const admitted_max = 256;

    /// `prefix`: of the topics to which the node is confined. Processes that have the join socket are not;
    /// for others the hub's own process sends the prefix (Peregrine::Server::Hub).
    fn add(self: *Hub, socket: i32, prefix: []const u8) !void {
        if (self.sockets.items.len < limits.nodes_max) try self.sockets.ensureUnusedCapacity(gpa, 1);
        const index = try self.broker.connect(prefix);
        if (index == self.sockets.items.len) self.sockets.appendAssumeCapacity(-1);
        self.sockets.items[index] = socket;
    }

    fn receive(self: *Hub, index: Broker.Index, most: usize) void {
        var buffer: [64 << 10]u8 = undefined;
        var left = most;
        while (left > 0 and !self.broker.isCut(index)) {
            const room = buffer[0..@min(left, buffer.len)];
            switch (polling.receive(self.sockets.items[index], room)) {
                .done => |count| {
                    self.broker.receive(index, buffer[0..count]);
                    left -= count;
                },
                .blocked => return,
                .ended => return self.close(index),
            }
        }
    }

    fn send(self: *Hub, index: Broker.Index) void {
        while (!self.broker.isCut(index)) {
            const bytes = self.broker.output(index);
            if (bytes.len == 0) return;
            switch (polling.send(self.sockets.items[index], bytes)) {
                .done => |count| self.broker.noteSent(index, count),
                .blocked => return,
                .ended => return self.close(index),
            }
        }
    }

    fn close(self: *Hub, index: Broker.Index) void {
        io.file.close(self.sockets.items[index]);
        self.sockets.items[index] = -1;
        self.broker.disconnect(index);
    }
};

pub export fn peregrine_hub_new(
    join_socket: c_int,
    lock: c_int,
    redis: [*]const u8,
    redis_len: usize,
    prefixes: [*]const u8,
    prefixes_len: usize,
    given: *const sized.Header,
    made: *?*Hub,
) callconv(.c) c_int {
    const config = history.limited(&sized.read(types.History, given));
    const address = redis[0..redis_len];
    const all = prefixes[0..prefixes_len];
    made.* = Hub.start(join_socket, lock, address, all, config) catch |err| switch (err) {
        error.OutOfMemory => return Code.memory,
        error.NoAddress, error.BadPrefix => return Code.range,
        error.CannotStartThread, error.NoDescriptors => {
            errors.setErrno(.AGAIN);
            return Code.system;
        },
    };
    return Code.ok;
}

pub export fn peregrine_hub_file() callconv(.c) c_int {
    return sharing.fileForChildren() catch {
        errors.setErrno(.AGAIN);
        return Code.system;
    };
}

pub export fn peregrine_hub_trouble(own: *const Hub) callconv(.c) ?[*:0]const u8 {
    return own.trouble.load(.monotonic);
}

pub export fn peregrine_hub_lacked(own: *const Hub) callconv(.c) u32 {
    return own.lacked.load(.monotonic);
}

pub export fn peregrine_hub_foreign(own: *const Hub) callconv(.c) u32 {
    return own.foreign.load(.monotonic);
}

/// The last answer of `peregrine_redis_problem` about files of TLS, which has words of the TLS library.
threadlocal var problem_words: [peregrine.tls.Diagnostic.bytes_max + 1]u8 = undefined;

pub export fn peregrine_redis_problem(text: [*]const u8, len: usize) callconv(.c) ?[*:0]const u8 {
    var memory: [hub.redis.Url.text_bytes_max]u8 = undefined;
    const url = hub.redis.Url.parse(text[0..len], &memory) catch |err| return switch (err) {
        error.UnknownScheme => "it begins with none of redis://, rediss:// and unix:",
        error.NoHost => "it names no host, or no path",
        error.BadPort => "its port is none",
        error.BadEscape => "a percent sign is not followed by two hexadecimal digits",
        error.BadDatabase => "its database is no number",
        error.UnknownParameter => "its parameters are db, prefix, ca, cert and key",
        error.NotTls => "ca, cert and key are for rediss:// alone",
        error.KeyAlone => "a key needs a cert",
        error.TooLong => "it is too long",
    };
    return switch (url.place) {
        .tcp => |place| problemOfTls(place.tls orelse return null),
        .unix => |path| if (path.len > io.Address.path_bytes_max) "its path is too long" else null,
    };
}

fn problemOfTls(files: hub.redis.Url.Tls) ?[*:0]const u8 {
    var diagnostic: peregrine.tls.Diagnostic = .{};
    const words = redis_trust.problem(files, &diagnostic) orelse return null;
    @memcpy(problem_words[0..words.len], words);
    problem_words[words.len] = 0;
    return problem_words[0..words.len :0];
}

pub export fn peregrine_hub_free(hub_or_null: ?*Hub) callconv(.c) void {
    // A forked process has no copy of the thread.
    if (hub_or_null) |own| if (own.forks == io.fork.count()) own.stop();
}

pub export fn peregrine_hub_beats(own: *const Hub) callconv(.c) u32 {
    return own.beats.load(.monotonic);
}
