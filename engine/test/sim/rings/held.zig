//! A history of responses that are left to the engine, which holds them open for topics: clients, an
//! application that only asks for that, a hub, and a publisher, all drawn from a seed. Each client gets a
//! response to its request: an entry, the response as it is, a stream of entries without a gap, or a refusal;
//! the application hears nothing more of it; nothing is left at the end.
const std = @import("std");
const abi = @import("abi");
const hub = @import("hub");
const peregrine = @import("peregrine");
const platform = @import("platform");
const types = abi.types;
const Client = @import("client").Client;
const Code = types.Code;
const Schedule = platform.schedule.Schedule;
const io = peregrine.io;
const testing = std.testing;
const gpa = testing.allocator;

const steps_max = 1_000_000;
/// So often both threads wait behind the last entry before the server stops.
const quiet_steps = 600;
const clients_max = 5;
const requests_max = 4;
const topic_names = [_][]const u8{ "a", "b", "c" };

/// The request of a client, and the way in which it is answered.
const Request = struct {
    kind: enum { plain, response, events, bytes } = .plain,
    /// The topics, a bit each.
    topics: u3 = 1,
    timeout_ms: u32 = 0,
    keepalive_ms: u32 = 0,
    /// A signal handler of the application gives the request up right behind the response.
    gives_up: bool = false,

    fn draw(random: std.Random) Request {
        return .{
            .kind = random.enumValue(@FieldType(Request, "kind")),
            .topics = random.intRangeAtMost(u3, 1, 7),
            .timeout_ms = ([_]u32{ 1, 60, 5_000 })[random.uintLessThan(usize, 3)],
            .keepalive_ms = ([_]u32{ 0, 40 })[random.uintLessThan(usize, 2)],
            .gives_up = random.uintLessThan(u8, 10) == 0,
        };
    }
};

/// Runs on the first thread of the schedule.
const Application = struct {
    handle: *abi.Handle,
    requests: []const Request,
    closing: bool = false,
    drained: bool = false,
    stopped: bool = false,
    failure: ?anyerror = null,
    polls: usize = 0,
    /// Exchanges that were left to the engine, and the polls that brought their requests.
    held: std.AutoHashMapUnmanaged(types.Ticket, usize) = .empty,

    fn run(argument: *anyopaque) void {
        const application: *Application = @ptrCast(@alignCast(argument));
        application.live() catch |err| {
            application.failure = err;
        };
        application.stopped = true;
    }

    fn live(application: *Application) !void {
        while (!application.stopped) {
            var events: [*]const types.Event = undefined;
            const count = abi.peregrine_poll(application.handle, -1, &events);
            if (count < 0) return error.PollFailed;
            application.polls += 1;
            for (events[0..@intCast(count)]) |*event| switch (event.kind) {
                .stopped => application.stopped = true,
                .notice, .lines, .ending => {},
                .request => try application.answer(event),
                // An event may have come with the request.
                else => if (application.held.get(event.ticket)) |poll| {
                    if (poll < application.polls) return error.HeardOfHeld;
                },
            };
            if (application.closing and !application.drained) {
                application.drained = true;
                abi.peregrine_drain(application.handle);
            }
        }
    }

    fn answer(application: *Application, event: *const types.Event) !void {
        const head = event.request.?;
        const path = head.text[head.path.at..][0..head.path.len];
        const id = try std.fmt.parseInt(usize, path[1..], 10);
        const request = &application.requests[id];
        var text: [32]u8 = undefined;
        const body = try std.fmt.bufPrint(&text, "{t} {d}\n", .{ request.kind, id });
        const response: types.Response = .{
            .size = @sizeOf(types.Response),
            .status = 200,
            .flags = types.RespondFlag.end,
            .body = body.ptr,
            .body_len = body.len,
        };
        if (request.kind == .plain) {
            const code = abi.peregrine_respond(application.handle, event.ticket, @ptrCast(&response));
            return if (code < 0 and code != Code.gone) error.NotAnswered;
        }
        var topics: [topic_names.len]types.HeldTopic = undefined;
        var topic_count: usize = 0;
        for (topic_names, 0..) |name, at| if (request.topics >> @intCast(at) & 1 != 0) {
            topics[topic_count] = .{
                .size = @sizeOf(types.HeldTopic),
                .as = if (request.kind == .events) types.HeldAs.events else types.HeldAs.bytes,
                .name = name.ptr,
                .name_len = name.len,
            };
            topic_count += 1;
        };
        const keepalive = ":\n\n";
        const ask: types.HeldAsk = .{
            .size = @sizeOf(types.HeldAsk),
            .kind = if (request.kind == .response) types.HeldKind.response else types.HeldKind.stream,
            .timeout_ms = request.timeout_ms,
            .keepalive_ms = if (request.kind == .events) request.keepalive_ms else 0,
            .keepalive = keepalive,
            .keepalive_len = if (request.kind == .events and request.keepalive_ms > 0) keepalive.len else 0,
            .topics = @ptrCast(&topics),
            .topic_count = topic_count,
        };
        const hold = abi.interpreters.peregrine_hold;
        const code = hold(application.handle, event.ticket, @ptrCast(&response), @ptrCast(&ask));
        if (code == Code.gone) return;
        if (code != Code.done) return error.NotHeld;
        if (request.gives_up) _ = abi.peregrine_give_up(application.handle, event.ticket);
        try application.held.put(gpa, event.ticket, application.polls);
    }
};

/// The hub's process, and a publisher there.
const Desk = struct {
    broker: hub.Broker,
    join_socket: i32,
    /// The engine's connection; -1: there is none.
    socket: i32 = -1,
    index: hub.Broker.Index = undefined,
    publisher: hub.Node,
    publisher_index: hub.Broker.Index = undefined,
    /// The number of the newest entry of each topic.
    entries: [topic_names.len]u32 = @splat(0),

    fn deinit(desk: *Desk) void {
        desk.lose();
        desk.publisher.deinit();
        desk.broker.deinit();
        io.file.close(desk.join_socket);
    }

    fn lose(desk: *Desk) void {
        if (desk.socket < 0) return;
        desk.broker.disconnect(desk.index);
        io.file.close(desk.socket);
        desk.socket = -1;
    }

    fn step(desk: *Desk, now: u64) !void {
        try desk.admit();
        desk.broker.tick(now);
        _ = desk.publisher.tick(now);
        desk.serveEngine();
        desk.servePublisher(now);
    }

    fn admit(desk: *Desk) !void {
        var bytes: [8]u8 = undefined;
        var fds: [1]i32 = undefined;
        switch (io.sharing.receive(desk.join_socket, &bytes, &fds)) {
            .message => |message| try testing.expectEqual(1, message.fd_count),
            .nothing => return,
            else => return error.NotJoined,
        }
        desk.lose();
        desk.socket = fds[0];
        desk.index = try desk.broker.connect("");
    }

    fn serveEngine(desk: *Desk) void {
        var buffer: [4096]u8 = undefined;
        while (desk.socket >= 0) switch (io.polling.receive(desk.socket, &buffer)) {
            .done => |count| {
                desk.broker.receive(desk.index, buffer[0..count]);
                if (desk.broker.isCut(desk.index)) desk.lose();
            },
            .blocked => break,
            .ended => desk.lose(),
        };
        while (desk.socket >= 0) {
            const bytes = desk.broker.output(desk.index);
            if (bytes.len == 0) break;
            switch (io.polling.send(desk.socket, bytes)) {
                .done => |count| desk.broker.noteSent(desk.index, count),
                .blocked => break,
                .ended => desk.lose(),
            }
        }
    }

    fn servePublisher(desk: *Desk, now: u64) void {
        const said = desk.publisher.toSend();
        if (said.len > 0) {
            desk.broker.receive(desk.publisher_index, said);
            desk.publisher.noteSent(said.len);
        }
        const heard = desk.broker.output(desk.publisher_index);
        if (heard.len > 0) {
            desk.publisher.receive(heard, now);
            desk.broker.noteSent(desk.publisher_index, heard.len);
        }
        while (desk.publisher.next()) |_| {}
    }

    /// The next entry of a topic: the topic's name, and how many it has.
    fn publish(desk: *Desk, topic: usize, now: u64) !void {
        desk.entries[topic] += 1;
        var text: [32]u8 = undefined;
        const entry = try std.fmt.bufPrint(&text, "{s}{d};", .{ topic_names[topic], desk.entries[topic] });
        _ = try desk.publisher.append(topic_names[topic], entry, now);
    }
};

const Scene = struct {
    /// The network, or the hub, loses connections.
    rough: bool,
    held_max: i64,

    fn draw(random: std.Random) Scene {
        return .{
            .rough = random.boolean(),
            .held_max = ([_]i64{ 1, 3, 100 })[random.weightedIndex(u8, &.{ 1, 1, 3 })],
        };
    }

    fn config(scene: *const Scene) !*peregrine.Config {
        const made = abi.peregrine_config_new().?;
        errdefer abi.peregrine_config_free(made);
        const day = 24 * 3600 * 1000;
        inline for (.{
            .{ "held_max", scene.held_max }, .{ "idle_ms", 0 },    .{ "body_ms", 0 },     .{ "write_ms", 0 },
            .{ "head_ms", day },             .{ "close_ms", day }, .{ "linger_ms", day },
        }) |limit| try testing.expectEqual(Code.ok, abi.peregrine_config_set(made, limit[0], limit[1]));
        return made;
    }
};

const Visitor = struct { client: Client, first: usize, count: usize };

const World = struct {
    scene: Scene,
    random: std.Random,
    handle: *abi.Handle,
    schedule: Schedule = undefined,
    application: Application,
    desk: Desk,
    visitors: []Visitor,
    published: u32 = 0,
    /// How often both threads have waited since the last entry.
    idle: usize = 0,

    const published_max = 60;

    fn sim(world: *World) *io.Sim {
        return &world.handle.ownEngine().?.worker.io;
    }

    fn play(world: *World) !void {
        for (0..steps_max) |_| {
            if (world.application.failure) |failure| return failure;
            if (world.application.stopped) return;
            if (world.random.uintLessThan(u8, 4) == 0) try world.stepOthers();
            if (world.schedule.step()) continue;
            try world.stepOthers();
            world.sim().elapse();
            world.sim().advance(world.random.uintLessThan(u64, 20));
            world.idle += 1;
            if (world.idle == quiet_steps) {
                world.application.closing = true;
                abi.peregrine_wake(world.handle);
            }
            // Clients that keep their side open keep the engine from its end.
            if (world.idle == 3 * quiet_steps) for (world.visitors) |*visitor| if (!visitor.client.done) {
                visitor.client.done = true;
                visitor.client.wire.peer().reset();
            };
        }
        return error.NeverEnds;
    }

    /// The clients, the publisher and the hub.
    fn stepOthers(world: *World) !void {
        const now = world.sim().now_ms;
        try world.desk.step(now);
        for (world.visitors) |*visitor| try visitor.client.step(world.random);
        if (world.published < published_max and world.random.uintLessThan(u8, 10) == 0) {
            world.published += 1;
            world.idle = 0;
            try world.desk.publish(world.random.uintLessThan(usize, topic_names.len), now);
        }
        if (world.scene.rough and world.random.uintLessThan(u16, 2_000) == 0) world.desk.lose();
    }

    fn betweenRounds(context: *anyopaque) void {
        const world: *World = @ptrCast(@alignCast(context));
        world.handle.ownEngine().?.worker.invariants();
        world.handle.home.thread.engine.invariants();
    }

    fn checkEmpty(world: *World) !void {
        const engine = world.handle.ownEngine().?;
        const delivery = engine.lone.?.delivery;
        try testing.expectEqual(0, engine.worker.exchanges.count);
        try testing.expectEqual(0, delivery.subscribers);
        try testing.expectEqual(0, delivery.held);
        try testing.expectEqual(0, delivery.held_bytes);
        try testing.expectEqual(null, delivery.ready.first);
        try testing.expectEqual(0, engine.worker.pool.taken_bytes);
    }
};

/// Plays the history of a number, and fails if it is not as it should be. Adds the entries that clients got.
pub fn run(seed: u64, entries: *usize) !void {
    var prng: std.Random.DefaultPrng = .init(seed);
    const random = prng.random();
    const scene: Scene = .draw(random);
    const config = try scene.config();
    defer abi.peregrine_config_free(config);
    const handle = abi.peregrine_worker_new(config).?;
    errdefer Schedule.present = null; // threads are in the middle of something
    const sim = &handle.ownEngine().?.worker.io;
    sim.options.seed = seed;
    sim.options.reset_permille = if (scene.rough) random.uintLessThan(u16, 3) else 0;
    sim.random = .init(seed);
    sim.waiter = &platform.waiter;
    sim.foreign = .empty;

    var requests: [clients_max * requests_max]Request = undefined;
    for (&requests) |*request| request.* = .draw(random);
    const ours, const theirs = try io.sharing.pair();
    defer io.file.close(theirs);
    var storage: [clients_max]Visitor = undefined;
    var world: World = .{
        .scene = scene,
        .random = random,
        .handle = handle,
        .application = .{ .handle = handle, .requests = &requests },
        .desk = .{ .broker = .init(gpa, seed), .join_socket = ours, .publisher = .init(gpa, 1) },
        .visitors = storage[0..random.intRangeAtMost(usize, 1, clients_max)],
    };
    defer world.application.held.deinit(gpa);
    defer world.desk.deinit();
    world.desk.broker.limit(&.{});
    try world.desk.publisher.connected();
    world.desk.publisher_index = try world.desk.broker.connect("");
    try world.schedule.init(gpa, random, .{ .run_max = 100 }, &sim.now_ms);
    world.schedule.between_rounds = World.betweenRounds;
    world.schedule.between_context = &world;
    try testing.expectEqual(Code.ok, abi.peregrine_use_thread(handle));
    const history: types.History = .{ .size = @sizeOf(types.History) };
    const delivers = abi.interpreters.peregrine_deliver_topics(handle, theirs, @ptrCast(&history));
    try testing.expectEqual(Code.ok, delivers);
    try testing.expectEqual(0, abi.peregrine_listen(handle, "127.0.0.1", 80, 16, 0));
    try invite(world.visitors, sim, random);
    defer for (world.visitors) |*visitor| visitor.client.deinit();
    _ = world.schedule.spawn(Application.run, &world.application);
    try world.play();
    const thread = &world.schedule.threads[0];
    while (!thread.fiber.finished) if (!world.schedule.step()) return error.NeverEnds;
    thread.showAll();
    while (world.schedule.step()) {}
    try world.checkEmpty();
    abi.peregrine_worker_free(handle);
    world.schedule.deinit();
    for (world.visitors) |*visitor| entries.* += try check(visitor, &requests);
}

fn invite(visitors: []Visitor, sim: *io.Sim, random: std.Random) !void {
    for (visitors, 0..) |*visitor, index| {
        visitor.* = .{
            .client = .{ .gpa = gpa, .wire = .{ .plain = try sim.connect(0) }, .manners = .draw(random) },
            .first = index * requests_max,
            .count = random.intRangeAtMost(usize, 1, requests_max),
        };
        const script = &visitor.client.script;
        for (0..visitor.count) |at| {
            try script.print(gpa, "GET /{d} HTTP/1.1\r\nHost: sim\r\n\r\n", .{visitor.first + at});
        }
    }
}

// ---- What clients got

/// Checks the responses of a client, of which the last one may be cut short. Returns the entries in them.
fn check(visitor: *const Visitor, requests: []const Request) !usize {
    errdefer std.debug.print("\nclient {d} got: {s}\n", .{ visitor.first, visitor.client.got.items });
    var rest: []const u8 = visitor.client.got.items;
    var entries: usize = 0;
    for (visitor.first..visitor.first + visitor.count) |id| {
        const head_end = std.mem.find(u8, rest, "\r\n\r\n") orelse return entries;
        const head = rest[0 .. head_end + 2];
        rest = rest[head_end + 4 ..];
        const status = head["HTTP/1.1 ".len..][0..3];
        const request = &requests[id];
        var content: std.ArrayList(u8) = .empty;
        defer content.deinit(gpa);
        const whole = try takeContent(head, &rest, &content);
        if (std.mem.eql(u8, status, "503")) {
            if (request.kind == .plain) return error.Refused;
        } else if (std.mem.eql(u8, status, "504")) {
            if (!request.gives_up) return error.GivenUp;
        } else {
            try testing.expectEqualStrings("200", status);
            var text: [32]u8 = undefined;
            const begin = try std.fmt.bufPrint(&text, "{t} {d}\n", .{ request.kind, id });
            const is_entry = std.ascii.findIgnoreCase(head, "ETag: ") != null;
            if (!is_entry and whole) try testing.expect(std.mem.startsWith(u8, content.items, begin));
            if (content.items.len > begin.len or is_entry) {
                const after = content.items[if (is_entry) 0 else begin.len..];
                entries += try checkEntries(request, after, is_entry, whole);
            }
        }
        if (!whole) return entries;
    }
    return entries;
}

/// Takes a response's content off the front of `rest`. False: it is cut short.
fn takeContent(head: []const u8, rest: *[]const u8, content: *std.ArrayList(u8)) !bool {
    const mark = "Content-Length: ";
    if (std.ascii.findIgnoreCase(head, mark)) |at| {
        const digits = std.mem.sliceTo(head[at + mark.len ..], '\r');
        const len = try std.fmt.parseInt(usize, digits, 10);
        try content.appendSlice(gpa, rest.*[0..@min(len, rest.len)]);
        if (rest.len < len) return false;
        rest.* = rest.*[len..];
        return true;
    }
    if (std.ascii.findIgnoreCase(head, "Transfer-Encoding: chunked") == null) return error.NoLength;
    while (std.mem.find(u8, rest.*, "\r\n")) |line_end| {
        const len = try std.fmt.parseInt(usize, rest.*[0..line_end], 16);
        const chunk = rest.*[line_end + 2 ..];
        if (chunk.len < len + 2) return false;
        try content.appendSlice(gpa, chunk[0..len]);
        rest.* = chunk[len + 2 ..];
        if (len == 0) return true;
    }
    return false;
}

/// Entries of a topic come in order, and none is left out, but behind a reset of an event stream.
fn checkEntries(request: *const Request, text: []const u8, is_one: bool, whole: bool) !usize {
    var last: [topic_names.len]?u32 = @splat(null);
    var count: usize = 0;
    if (request.kind == .events and !is_one) {
        var lines = std.mem.splitScalar(u8, text, '\n');
        var resets = false;
        while (lines.next()) |line| {
            if (std.mem.eql(u8, line, "event: reset")) resets = true;
            if (!std.mem.startsWith(u8, line, "data: ")) continue;
            if (resets) last = @splat(null);
            if (!resets and std.mem.endsWith(u8, line, ";")) {
                try checkEntry(request, line["data: ".len..], &last);
                count += 1;
            }
            resets = false;
        }
        return count;
    }
    var pieces = std.mem.splitScalar(u8, text, ';');
    while (pieces.next()) |piece| {
        if (pieces.peek() == null) {
            if (piece.len > 0 and whole) return error.HalfAnEntry;
            break;
        }
        try checkEntry(request, piece, &last);
        count += 1;
    }
    if (is_one and whole) try testing.expectEqual(1, count);
    return count;
}

fn checkEntry(request: *const Request, entry: []const u8, last: *[topic_names.len]?u32) !void {
    const topic = entry[0] - 'a';
    try testing.expect(request.topics >> @intCast(topic) & 1 != 0);
    const number = try std.fmt.parseInt(u32, std.mem.trimEnd(u8, entry[1..], ";"), 10);
    if (last[topic]) |before| try testing.expectEqual(before + 1, number);
    last[topic] = number;
}
