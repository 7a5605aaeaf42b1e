//! A history: an engine, an application, the ring pair between them, a network and its clients, all drawn
//! from a seed. However the two threads are scheduled, clients get the answers of the application, each call
//! returns the same as without a thread, no thread sleeps while it has work, and nothing is left at the end.
const std = @import("std");
const abi = @import("abi");
const peregrine = @import("peregrine");
const platform = @import("platform");
const types = abi.types;
const Code = types.Code;
const Schedule = platform.schedule.Schedule;
const application_file = @import("application.zig");
const Application = application_file.Application;
const asleep = @import("asleep.zig");
const Client = @import("client").Client;
const record_file = @import("record.zig");
const Record = record_file.Record;
const Speech = @import("speech.zig").Speech;
const Visitor = @import("visitor.zig").Visitor;
const testing = std.testing;
const gpa = testing.allocator;

const visitors_max = 6;
/// Far more than any history takes.
const steps_max = 20_000_000;
/// Rounds that an engine makes without a wait while nothing happens: those of a blocked send, and of much
/// that has come.
const restless_max = 2_000;
/// So often nothing happens before a history counts as quiet: more than any delay of the network or the
/// clients.
const quiet_steps = 600;
/// Longer than an application computes. What is further away is a deadline.
const near_ms = 600;

/// The properties of a history that are drawn first.
pub const Scene = struct {
    network: peregrine.io.Sim.Options,
    /// The clock moves by less than this now and then; 0: only when all wait, and no further than anybody
    /// waits for.
    jump_ms: u64,
    character: platform.schedule.Character,
    manners: application_file.Manners,
    write_high: i64,
    receive: i64,
    round: i64,
    /// The application wants whole bodies of requests: in memory up to so many bytes, in files beyond.
    whole: ?i64,

    pub fn draw(seed: u64, random: std.Random) Scene {
        const rough = random.uintLessThan(u8, 3) == 0;
        return .{
            .network = .{
                .seed = seed,
                .window_bytes = ([_]u32{ 1_000, 20_000, 64 * 1024, 1 << 20 })[
                    random.weightedIndex(u8, &.{ 2, 8, 8, 4 })
                ],
                .short_read_permille = random.uintLessThan(u16, 900),
                .late_permille = random.uintLessThan(u16, 700),
                .block_permille = random.uintLessThan(u16, 500),
                .partial_send_permille = random.uintLessThan(u16, 900),
                .reset_permille = if (rough and random.boolean()) random.intRangeAtMost(u16, 1, 10) else 0,
                .accept_failure_permille = if (rough) random.uintLessThan(u16, 200) else 0,
            },
            .jump_ms = if (rough and random.boolean()) random.intRangeAtMost(u64, 1, 3_000) else 0,
            .character = .{
                .run_max = ([_]u32{ 3, 30, 300, 100_000 })[random.uintLessThan(usize, 4)],
                .rest_permille = ([_]u16{ 0, 10, 200 })[random.uintLessThan(usize, 3)],
                .buffers_stores = random.uintLessThan(u8, 4) > 0,
                .spurious_permille = ([_]u16{ 0, 50 })[random.uintLessThan(usize, 2)],
            },
            .manners = .{
                .seed = seed,
                .mistakes = ([_]u8{ 0, 10, 40 })[random.uintLessThan(usize, 3)],
                .slow_percent = ([_]u8{ 0, 10, 60 })[random.uintLessThan(usize, 3)],
                .slow_ms = ([_]u64{ 1, 10, 500 })[random.uintLessThan(usize, 3)],
                .late_percent = ([_]u8{ 0, 30, 90 })[random.uintLessThan(usize, 3)],
                .watches = random.boolean(),
                .leaves_at = if (rough and random.uintLessThan(u8, 4) == 0)
                    random.uintLessThan(usize, 60)
                else
                    null,
            },
            .write_high = ([_]i64{ 8_000, 64_000 })[random.uintLessThan(usize, 2)],
            .receive = ([_]i64{ 4096, 64 * 1024 })[random.uintLessThan(usize, 2)],
            .round = ([_]i64{ 4096, 20_000, 1 << 20 })[random.uintLessThan(usize, 3)],
            .whole = ([_]?i64{ null, 50_000, 1 << 20 })[random.weightedIndex(u8, &.{ 2, 1, 2 })],
        };
    }

    /// Whether every connection lasts as long as its client and the application want.
    fn calm(scene: *const Scene) bool {
        const network = &scene.network;
        if (network.reset_permille > 0 or network.accept_failure_permille > 0) return false;
        return scene.jump_ms == 0 and scene.manners.leaves_at == null;
    }

    fn config(scene: *const Scene) !*peregrine.Config {
        const made = abi.peregrine_config_new().?;
        errdefer abi.peregrine_config_free(made);
        const limits = .{
            .{ "write_high_bytes", scene.write_high }, .{ "write_low_bytes", 2_000 },
            .{ "receive_bytes", scene.receive },       .{ "round_bytes", scene.round },
            .{ "message_bytes_max", 1 << 20 },         .{ "frame_bytes_max", 1 << 20 },
            .{ "pipeline_pass_max", 3 },
        };
        inline for (limits) |limit| try expectOk(abi.peregrine_config_set(made, limit[0], limit[1]));
        const whole = scene.whole orelse 1 << 20;
        try expectOk(abi.peregrine_config_set(made, "body_memory_bytes_max", whole));
        if (scene.jump_ms == 0) inline for (.{ "idle_ms", "body_ms", "write_ms" }) |name| {
            try expectOk(abi.peregrine_config_set(made, name, 0));
        };
        if (scene.jump_ms == 0) inline for (.{ "head_ms", "close_ms", "linger_ms" }) |name| {
            try expectOk(abi.peregrine_config_set(made, name, 24 * 3600 * 1000));
        };
        return made;
    }
};

fn expectOk(code: c_int) !void {
    try testing.expectEqual(@as(c_int, Code.ok), code);
}

/// The thread on which the engine runs.
pub const Placement = enum { own_thread, ring_pair };

const World = struct {
    scene: Scene,
    random: std.Random,
    handle: *abi.Handle,
    schedule: Schedule = undefined,
    application: Application = undefined,
    records: []Record,
    visitors: []Visitor,

    // ---- The course of events

    fn play(world: *World) !void {
        const application = &world.application;
        var idle: usize = 0;
        var steps: usize = 0;
        while (!application.stopped) : (steps += 1) {
            if (steps > steps_max) {
                world.describe();
                return error.NeverEnds;
            }
            if (world.random.uintLessThan(u8, 8) == 0) {
                if (try world.stepVisitors()) {
                    idle = 0;
                    world.schedule.restless = 0;
                }
                if (world.scene.jump_ms > 0 and world.random.uintLessThan(u8, 8) == 0) {
                    world.sim().advance(world.random.uintLessThan(u64, world.scene.jump_ms));
                }
            }
            if (world.schedule.step()) {
                idle = 0;
                if (world.schedule.restless > restless_max and world.handle.home == .thread) {
                    world.describe();
                    return error.EngineNeverWaits;
                }
                continue;
            }
            if (application.failure) |failure| return failure;
            // Both threads wait, and have seen all that was stored.
            if (asleep.pairOf(world.handle)) |pair| try asleep.check(pair);
            world.sim().elapse();
            if (try world.stepVisitors()) idle = 0 else idle += 1;
            if (idle % 4 == 3) world.passTime(idle);
            if (idle > quiet_steps) {
                if (application.closing) {
                    // A client that has closed its sending side only waits for an answer that never comes.
                    if (!application.hurries and idle > 10 * quiet_steps) world.hurry();
                    if (idle > 40 * quiet_steps) {
                        world.describe();
                        return error.NeverStops;
                    }
                } else try world.becomeQuiet();
            }
        }
        if (application.failure) |failure| return failure;
    }

    fn sim(world: *World) *peregrine.io.Sim {
        return &world.handle.ownEngine().?.worker.io;
    }

    fn stepVisitors(world: *World) !bool {
        var moved = false;
        for (world.visitors) |*visitor| moved = try visitor.step(world.random) or moved;
        return moved;
    }

    /// To the next moment for which somebody waits, unless that is a deadline of the engine's in a calm
    /// history.
    fn passTime(world: *World, idle: usize) void {
        var next: ?u64 = null;
        for (world.schedule.threads[0..world.schedule.count]) |*thread| {
            const wait = thread.wait orelse continue;
            if (wait.until) |at| next = @min(next orelse at, at);
        }
        const at = next orelse return;
        const now = world.sim().now_ms;
        const is_due = world.application.closing or (idle > quiet_steps / 2 and world.scene.jump_ms > 0);
        if (is_due or at <= now + near_ms) world.sim().now_ms = @max(at, now);
    }

    /// Nothing happens any more, so that everybody must have got what is due.
    fn becomeQuiet(world: *World) !void {
        const calm = world.scene.calm();
        for (world.visitors) |*visitor| {
            if (visitor.client.done) continue;
            if (calm and !excused(visitor)) {
                std.debug.print("\nclient {d} waits for ever: {d} of {d} bytes sent, {d} got\n", .{
                    visitor.records[0].id,
                    visitor.client.sent,
                    visitor.client.script.items.len,
                    visitor.client.got.items.len,
                });
                world.describe();
                return error.Stuck;
            }
            visitor.dismiss();
        }
        world.application.closing = true;
        abi.peregrine_wake(world.handle);
    }

    fn hurry(world: *World) void {
        world.application.hurries = true;
        abi.peregrine_wake(world.handle);
    }

    /// Prints which thread waits for what, to help with finding the cause of a failure.
    fn describe(world: *World) void {
        const print = std.debug.print;
        for (world.application.jobs.items) |job| {
            print(
                "job {d}: {t}, waits for {t}, {d} polls\n",
                .{ job.record.id, job.stage, job.waits, job.pause },
            );
        }
        for (world.visitors) |*visitor| {
            const client = &visitor.client;
            const all = client.script.items.len;
            print("client {d}: {t}, {d} of {d} sent, {d} got, done {}\n", .{
                visitor.records[0].id, visitor.kind, client.sent, all, client.got.items.len, client.done,
            });
        }
        var it = world.handle.ownEngine().?.worker.lanes();
        while (it.next()) |lane| {
            const transport = lane.transport;
            print("connection {d}: {t}, {t}, output {t}, {d} bytes; input paused {}, {d} bytes\n", .{
                transport.number,        transport.phase,        lane.phase,
                lane.out().state,        lane.out().queue.bytes, transport.paused,
                lane.input.unread().len,
            });
        }
        for (world.schedule.threads[0..world.schedule.count]) |*thread| {
            print(
                "thread: ready {}, rests {d}, waits {}\n",
                .{ thread.isReady(), thread.resting, thread.wait != null },
            );
        }
        if (asleep.pairOf(world.handle)) |pair| asleep.describe(pair);
    }

    /// Whether the application has left a client without an answer.
    fn excused(visitor: *const Visitor) bool {
        if (visitor.client.manners.leaves_after != null) return true;
        if (visitor.kind == .malformed) return true;
        for (visitor.records) |*record| if (record.cuts) return true;
        return false;
    }

    // ---- What must hold

    fn betweenRounds(context: *anyopaque) void {
        const world: *World = @ptrCast(@alignCast(context));
        world.handle.ownEngine().?.worker.invariants();
        if (asleep.pairOf(world.handle)) |pair| pair.engine.invariants();
    }

    fn checkEnds(world: *World) !void {
        const calm = world.scene.calm();
        for (world.visitors) |*visitor| {
            try visitor.check(calm);
            for (visitor.records) |*record| {
                if (!record.came) continue;
                if (world.scene.manners.leaves_at == null and record.end == .none) return error.NoEnd;
            }
        }
        if (world.scene.manners.leaves_at == null) try testing.expectEqual(
            0,
            world.application.speech.lent.items.len,
        );
    }

    fn checkEmpty(world: *World) !void {
        const worker = &world.handle.ownEngine().?.worker;
        try testing.expectEqual(0, worker.transports.count);
        try testing.expectEqual(0, worker.exchanges.count);
        try testing.expectEqual(0, worker.websockets.count);
        try testing.expectEqual(0, worker.pool.taken_bytes);
        try testing.expectEqual(0, world.application.jobs.items.len);
        if (asleep.pairOf(world.handle)) |pair| try asleep.checkEmpty(pair);
    }
};

/// The results of the application's calls in a history, by the ids of its requests.
pub const Outcome = struct {
    records: []Record,
    calm: bool,
    /// Requests of which the client may have heard less than the application has said.
    excused: bool,

    pub fn deinit(outcome: *Outcome) void {
        for (outcome.records) |*record| record.deinit();
        gpa.free(outcome.records);
    }
};

/// Plays the history of a number, and fails if it is not as it should be. What was answered is the caller's.
pub fn run(seed: u64, placement: Placement) !Outcome {
    var prng: std.Random.DefaultPrng = .init(seed);
    const random = prng.random();
    const scene: Scene = .draw(seed, random);
    const config = try scene.config();
    defer abi.peregrine_config_free(config);
    const handle = abi.peregrine_worker_new(config) orelse return error.NoWorker;
    var freed = false;
    // Threads are in the middle of something then: nothing can be freed.
    errdefer if (!freed) {
        Schedule.present = null;
    };
    // The network has a generator of its own, so that all else is drawn as it is in the other placement.
    const sim = &handle.ownEngine().?.worker.io;
    sim.options = scene.network;
    sim.options.receive_buffer_bytes = @intCast(scene.receive);
    sim.random = .init(seed);
    sim.waiter = &platform.waiter;

    var storage: [visitors_max]Visitor = undefined;
    const visitors = storage[0..random.intRangeAtMost(usize, 1, visitors_max)];
    const records = try gpa.alloc(Record, visitors_max * Visitor.requests_max);
    for (records, 0..) |*record, id| record.* = .{ .gpa = gpa, .id = id };
    var outcome: Outcome = .{ .records = records, .calm = scene.calm(), .excused = false };
    errdefer outcome.deinit();

    var world: World = .{
        .scene = scene,
        .random = random,
        .handle = handle,
        .records = records,
        .visitors = visitors,
    };
    try world.schedule.init(gpa, random, scene.character, &sim.now_ms);
    world.schedule.between_rounds = World.betweenRounds;
    world.schedule.between_context = &world;
    const route: types.Route = .{ .size = @sizeOf(types.Route), .flags = types.RouteFlag.whole_body };
    if (scene.whole != null) {
        try testing.expectEqual(1, abi.serving.peregrine_add_route(handle, @ptrCast(&route)));
    }
    if (placement == .ring_pair) try expectOk(abi.peregrine_use_thread(handle));
    const listener = abi.peregrine_listen(handle, "127.0.0.1", 80, 16, 0);
    try testing.expectEqual(0, listener);
    const log: types.AccessLog = .{ .size = @sizeOf(types.AccessLog) };
    try expectOk(abi.peregrine_access_log_open(handle, @ptrCast(&log)));

    try invite(visitors, records, sim, random);
    defer for (visitors) |*visitor| visitor.deinit();

    const descriptor = try lowestFree();
    const file = try openFile();
    errdefer if (!freed) peregrine.io.file.close(file);
    world.application = .{
        .gpa = gpa,
        .random = random,
        .manners = scene.manners,
        .handle = handle,
        .speech = .{ .gpa = gpa, .handle = handle, .file = file },
        .records = records,
    };
    defer {
        world.application.deinit();
        world.application.speech.deinit();
    }
    _ = world.schedule.spawn(Application.run, &world.application);
    try world.play();
    try settle(&world);
    if (scene.manners.leaves_at == null) try world.checkEmpty();
    abi.peregrine_worker_free(handle);
    freed = true;
    world.schedule.deinit();
    try world.checkEnds();
    peregrine.io.file.close(file);
    try testing.expectEqual(descriptor, try lowestFree());
    return outcome;
}

/// Makes up the clients, and connects them.
fn invite(visitors: []Visitor, records: []Record, sim: *peregrine.io.Sim, random: std.Random) !void {
    for (visitors, 0..) |*visitor, index| {
        const kind: Visitor.Kind = @fromBackingInt(@intCast(random.weightedIndex(u8, &.{ 8, 4, 1 })));
        const count = if (kind == .socket) 1 else random.intRangeAtMost(usize, 1, Visitor.requests_max);
        visitor.* = .{
            .client = .{ .gpa = gpa, .wire = .{ .plain = try sim.connect(0) }, .manners = .draw(random) },
            .kind = kind,
            .records = records[index * Visitor.requests_max ..][0..count],
        };
        try visitor.plan(random);
    }
}

/// The next descriptor that is opened gets this number: the same again if all others are closed.
fn lowestFree() !i32 {
    const copy = try peregrine.io.file.duplicate(0);
    defer peregrine.io.file.close(copy);
    return copy;
}

/// The application has ended. The engine may have a round or two to go.
fn settle(world: *World) !void {
    const thread = &world.schedule.threads[0];
    while (!thread.fiber.finished) if (!world.schedule.step()) return error.NeverEnds;
    thread.showAll();
    while (world.schedule.step()) {}
}

fn openFile() !i32 {
    const fd: i32 = @intCast(std.os.linux.memfd_create("peregrine-sim", 0));
    var bytes: [Speech.file_bytes]u8 = undefined;
    record_file.pattern(&bytes, 0, 0);
    if (std.os.linux.write(fd, &bytes, bytes.len) != bytes.len) return error.NoFile;
    return fd;
}
