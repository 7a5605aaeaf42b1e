//! The socket of one of a hub's two connections to Redis: looks for the address, connects, agrees on TLS.
//! Does not know: what goes through it.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const hub = @import("hub");
const platform = @import("platform");
const redis_socket = @import("redis_socket.zig");
const Trust = @import("redis_trust.zig").Trust;
const Question = @import("resolver.zig").Question;
const Secure = redis_socket.Secure;
const Socket = redis_socket.Socket;
const io = peregrine.io;
const polling = io.polling;
const Broker = hub.Broker;
const Redis = hub.Redis;
const Name = hub.redis.joined.Line;

pub const Line = struct {
    name: Name,
    /// The TLS context for Redis, which the hub's connections for publishing and for hearing share.
    trust: *Trust,
    state: State = .closed,
    /// The number of attempts that have failed since the last success: it chooses the next address.
    failures: usize = 0,
    input: [1 << 16]u8 = undefined,
    start: usize = 0,
    end: usize = 0,
    /// Received bytes may wait of which the descriptor does not tell.
    has_more: bool = false,

    const State = union(enum) {
        closed,
        /// A thread looks for the addresses of the name.
        asks: *Question,
        connects: i32,
        /// The TLS handshake is under way.
        greets: Socket,
        open: Socket,
    };

    /// Milliseconds between two looks whether a question was answered.
    const look_ms = 20;

    pub fn close(line: *Line) void {
        switch (line.state) {
            .closed => {},
            .asks => |question| question.release(),
            .connects => |fd| io.file.close(fd),
            .greets, .open => |socket| socket.close(),
        }
        line.state = .closed;
        line.has_more = false;
        line.start = 0;
        line.end = 0;
    }

    /// The descriptor to wait for, and its events.
    pub fn poll(line: *const Line, redis: *const Redis) polling.Poll {
        return switch (line.state) {
            .closed, .asks => .read(-1),
            .connects => |fd| .readOrWrite(fd),
            .greets => |socket| if (socket.hasUnsent()) .readOrWrite(socket.fd()) else .read(socket.fd()),
            .open => |socket| if (socket.hasUnsent() or redis.pending(line.name).len > 0)
                .readOrWrite(socket.fd())
            else
                .read(socket.fd()),
        };
    }

    /// Milliseconds until there is work of which no descriptor tells; null: there is none.
    pub fn patience(line: *const Line) ?i32 {
        if (line.has_more) return 0;
        return if (line.state == .asks) look_ms else null;
    }

    /// Goes on with the connection as far as it can. `is_ready`: whether its descriptor is.
    pub fn turn(line: *Line, broker: *Broker, redis: *Redis, is_ready: bool) void {
        while (true) {
            const event = redis.tick(&broker.topics, line.name);
            if (event == .nothing) break;
            if (broker.take(event)) line.act(broker, redis, event);
        }
        switch (line.state) {
            .closed => {},
            .asks => |question| if (question.answer()) |found| line.choose(broker, redis, found),
            .connects => |fd| if (is_ready) line.finish(broker, redis, fd),
            .greets => |socket| if (is_ready) line.greet(broker, redis, socket),
            .open => |socket| {
                if (is_ready or line.has_more) line.receive(broker, redis, socket);
                line.send(broker, redis);
            },
        }
    }

    fn act(line: *Line, broker: *Broker, redis: *Redis, event: hub.redis.joined.Event) void {
        line.close();
        if (event == .close) return;
        switch (redis.url.place) {
            .unix => |path| {
                const address = io.Address.unixPath(path) catch return line.fail(broker, redis, .closed);
                line.connect(broker, redis, &address);
            },
            .tcp => |place| {
                const question = Question.ask(place.host, place.port) catch
                    return line.fail(broker, redis, .closed);
                line.state = .{ .asks = question };
            },
        }
    }

    /// Closes the connection to Redis, or gives up the attempt, and tells the hub why.
    fn fail(line: *Line, broker: *Broker, redis: *Redis, why: hub.redis.joined.Trouble) void {
        line.close();
        // The files may have changed and look the same, so they are read again.
        if (why == .insecure) line.trust.forget();
        redis.lost(&broker.topics, line.name, why);
    }

    fn choose(line: *Line, broker: *Broker, redis: *Redis, found: []const io.Address) void {
        if (found.len == 0) return line.fail(broker, redis, .no_address);
        const address = found[line.failures % found.len];
        line.close();
        line.connect(broker, redis, &address);
    }

    fn connect(line: *Line, broker: *Broker, redis: *Redis, address: *const io.Address) void {
        assert(line.state == .closed);
        const fd = polling.connect(address) catch {
            line.failures +%= 1;
            return line.fail(broker, redis, .closed);
        };
        line.state = .{ .connects = fd };
    }

    fn finish(line: *Line, broker: *Broker, redis: *Redis, fd: i32) void {
        if (!polling.isConnected(fd)) return line.failGreeting(broker, redis, .closed);
        const files, const host = switch (redis.url.place) {
            .unix => return line.begin(broker, redis, .{ .plain = fd }),
            .tcp => |place| .{
                place.tls orelse return line.begin(broker, redis, .{ .plain = fd }),
                place.host,
            },
        };
        const context = line.trust.of(files) catch |err| return switch (err) {
            error.OutOfMemory => line.fail(broker, redis, .closed),
            error.NoFiles => line.fail(broker, redis, .{ .insecure = .no_files }),
        };
        const secure = Secure.create(fd, host, context) catch return line.fail(broker, redis, .closed);
        line.state = .{ .greets = .{ .secure = secure } };
        line.greet(broker, redis, line.state.greets);
    }

    /// Like `fail`, and the next attempt takes the next address.
    fn failGreeting(line: *Line, broker: *Broker, redis: *Redis, why: hub.redis.joined.Trouble) void {
        line.failures +%= 1;
        line.fail(broker, redis, why);
    }

    fn greet(line: *Line, broker: *Broker, redis: *Redis, socket: Socket) void {
        assert(line.end == 0);
        switch (socket.receive(&line.input)) {
            .done => |count| {
                // A broken record has followed the bytes: the session is over.
                if (!socket.isOpen()) return line.failGreeting(broker, redis, .closed);
                // Redis sends before it is asked only if it has no room for a further connection.
                line.end = count;
            },
            .blocked => {},
            .ended => return line.failGreeting(broker, redis, .closed),
            .insecure => |why| return line.failGreeting(broker, redis, .{ .insecure = why }),
        }
        if (!socket.isOpen()) return;
        line.begin(broker, redis, socket);
        if (line.state == .open and line.end > 0) _ = line.read(broker, redis);
    }

    fn begin(line: *Line, broker: *Broker, redis: *Redis, socket: Socket) void {
        line.state = .{ .open = socket };
        redis.connected(line.name) catch return line.fail(broker, redis, .closed);
        line.failures = 0;
        // TLS may have received more already.
        line.has_more = true;
        line.send(broker, redis);
    }

    /// The most bytes that a round receives, so that nodes have their turn.
    const received_max = 1 << 20;

    fn receive(line: *Line, broker: *Broker, redis: *Redis, socket: Socket) void {
        var total: usize = 0;
        line.has_more = false;
        while (total < received_max) {
            std.mem.copyForwards(u8, &line.input, line.input[line.start..line.end]);
            line.end -= line.start;
            line.start = 0;
            // A line of an answer is shorter than the buffer.
            assert(line.end < line.input.len);
            switch (socket.receive(line.input[line.end..])) {
                .done => |count| {
                    line.end += count;
                    total += count;
                    if (!line.read(broker, redis)) return;
                },
                .blocked => return,
                .ended => return line.fail(broker, redis, .closed),
                .insecure => |why| return line.fail(broker, redis, .{ .insecure = why }),
            }
        }
        line.has_more = true;
    }

    /// False: the connection is gone.
    fn read(line: *Line, broker: *Broker, redis: *Redis) bool {
        while (true) {
            const step = redis.receive(&broker.topics, line.name, line.input[line.start..line.end]);
            line.start += step.consumed;
            if (step.event == .nothing) return true;
            if (!broker.take(step.event)) continue;
            line.act(broker, redis, step.event);
            return false;
        }
    }

    fn send(line: *Line, broker: *Broker, redis: *Redis) void {
        while (line.state == .open) {
            const socket = line.state.open;
            const bytes = redis.pending(line.name);
            if (bytes.len == 0 and !socket.hasUnsent()) return;
            switch (socket.send(bytes)) {
                .done => |count| redis.written(&broker.topics, line.name, count),
                .blocked => return,
                .ended => return line.fail(broker, redis, .closed),
            }
        }
    }
};
