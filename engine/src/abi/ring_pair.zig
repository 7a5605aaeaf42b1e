//! A worker whose engine runs on a thread of its own, seen from the application: two rings, what is known of
//! each exchange at any time, and the life of the thread. The application's calls are `answer` and `poll`;
//! all else is done between two rounds (`call`).
const std = @import("std");
const assert = std.debug.assert;
const application_end = @import("application_end.zig");
const annex = @import("annex.zig");
const Borrowed = @import("borrowed.zig").Borrowed;
const ApplicationEnd = application_end.ApplicationEnd;
const Depot = @import("depot.zig").Depot;
const Engine = @import("engine.zig").Engine;
const engine_end = @import("engine_end.zig");
const EngineEnd = engine_end.EngineEnd;
const hub = @import("hub");
const Lone = @import("lone.zig").Lone;
const platform = @import("platform");
const ring = @import("ring.zig");
const Slots = @import("slots.zig").Slots;
const types = @import("types.zig");

/// Never moves: both ends point into it.
pub const RingPair = struct {
    gpa: std.mem.Allocator,
    /// The engine whose worker the thread runs.
    local: *Engine,
    memory: [2][]align(std.atomic.cache_line) u8,
    annexes: annex.Both,
    slots: Slots,
    wakeup: platform.Wakeup,
    engine: EngineEnd align(std.atomic.cache_line),
    application: ApplicationEnd align(std.atomic.cache_line),
    /// The engine as the application's end knows it.
    way: application_end.Engine,
    /// The word of `application_end.Engine.loop_since`.
    loop_since: platform.Atomic(u64),
    thread: ?platform.Thread = null,

    /// The size of each ring: some of the longest records, and not more than fits into a processor's cache.
    const ring_bytes = ring.bytes_min;

    /// Makes a ring pair to a worker whose thread `start` starts.
    pub fn create(gpa: std.mem.Allocator, local: *Engine) !*RingPair {
        const pair = try gpa.create(RingPair);
        errdefer gpa.destroy(pair);
        pair.gpa = gpa;
        pair.local = local;
        pair.thread = null;
        pair.loop_since = .init(0);
        pair.slots = try .init();
        errdefer pair.slots.deinit();
        pair.wakeup = try .init();
        errdefer pair.wakeup.deinit();
        for (&pair.memory, 0..) |*memory, index| {
            errdefer for (pair.memory[0..index]) |other| gpa.free(other);
            memory.* = try gpa.alignedAlloc(
                u8,
                .fromByteUnits(std.atomic.cache_line),
                ring.memoryBytes(ring_bytes),
            );
            @memset(memory.*, 0);
        }
        errdefer for (pair.memory) |memory| gpa.free(memory);
        pair.annexes = .{ .commands = try newAnnex(), .events = undefined };
        errdefer freeAnnex(pair.annexes.commands);
        pair.annexes.events = try newAnnex();
        errdefer freeAnnex(pair.annexes.events);
        const borrowed: *Borrowed = try .create(gpa, pair.annexes.commands, .{
            .bytes = pair.annexes.commands,
            .close = freeAnnex,
        });
        errdefer gpa.destroy(borrowed);
        const commands, const events = pair.memory;
        pair.engine = try .init(
            gpa,
            &local.worker,
            &local.host,
            .{ .thread = &pair.wakeup },
            &pair.slots,
            .init(commands),
            .init(events),
            pair.annexes,
            borrowed,
            &pair.loop_since,
        );
        errdefer pair.engine.deinit();
        const ledger: @FieldType(ApplicationEnd, "ledger") = .init(
            gpa,
            &pair.slots,
            &local.worker.config,
        );
        pair.way = .{
            .calls = &calls,
            .is_remote = false,
            .shed = &pair.engine.link.shed,
            .returned = &pair.engine.returned,
            .loop_since = &pair.loop_since,
        };
        pair.application = try .init(
            gpa,
            &pair.way,
            .init(commands),
            .init(events),
            pair.annexes,
            &.{},
            ledger,
        );
        // The first poll starts the thread, so the program's loop has to call it.
        pair.wakeup.raise();
        return pair;
    }

    /// Ends the thread. The worker is the caller's own again.
    pub fn destroy(pair: *RingPair) void {
        pair.stop();
        assert(pair.thread == null and pair.engine.task.load(.monotonic) == null);
        pair.application.deinit();
        pair.engine.deinit();
        for (pair.memory) |memory| pair.gpa.free(memory);
        pair.engine.borrowed.leave();
        freeAnnex(pair.annexes.events);
        pair.wakeup.deinit();
        pair.slots.deinit();
        pair.gpa.destroy(pair);
    }

    /// Allocates an annex. Pages that nothing touches take no memory, so it is not filled.
    fn newAnnex() error{OutOfMemory}![]align(annex.alignment) u8 {
        const len = annex.region_bytes;
        const memory = pages.rawAlloc(len, .fromByteUnits(annex.alignment), @returnAddress()) orelse
            return error.OutOfMemory;
        return @alignCast(memory[0..len]);
    }

    fn freeAnnex(memory: []align(annex.alignment) u8) void {
        pages.rawFree(memory, .fromByteUnits(annex.alignment), @returnAddress());
    }

    const pages = std.heap.page_allocator;

    /// Starts the thread, which has the worker from now on.
    pub fn start(pair: *RingPair) error{CannotStartThread}!void {
        if (pair.thread != null) return;
        assert(pair.local.host.link == &pair.engine.link and !pair.engine.stopping.load(.monotonic));
        pair.openDepot();
        pair.thread = try platform.spawn(EngineEnd.run, .{&pair.engine});
    }

    /// Has the engine deliver topics to the application's exchanges. To be called before the thread runs.
    /// `join_socket` leads to the hub, and stays the caller's after an error.
    pub fn deliverTopics(pair: *RingPair, join_socket: i32, config: *const hub.Config) !void {
        assert(pair.thread == null);
        const engine = pair.local;
        const lone: *Lone = try .create(pair.gpa, &engine.worker, &engine.host, join_socket, config);
        engine.lone = lone;
        engine.host.interpreters = &lone.interpreters;
        pair.engine.delivery = lone.delivery;
    }

    /// Opens the depot; without memory for it bodies are copied. With several interpreters the engine has a
    /// depot that other processes can read (`Pool`).
    fn openDepot(pair: *RingPair) void {
        const engine = pair.local;
        if (engine.pool != null or engine.depot != null) return;
        pair.engine.depot = engine.openDepot(Depot.initOwn(pair.gpa) catch return);
        pair.application.beside.depot = .{ .memory = pair.engine.depot.?.view() };
    }

    fn stop(pair: *RingPair) void {
        const thread = pair.thread orelse return;
        pair.engine.stopping.store(true, .release);
        pair.engine.worker.io.wake();
        thread.join();
        pair.thread = null;
    }

    /// Has the thread answer a request that the application will never answer. Waits for nothing, and touches
    /// nothing that the application may be changing, so it may be called in a signal handler.
    pub fn giveUp(pair: *RingPair, ticket: types.Ticket) void {
        assert(pair.thread != null);
        pair.engine.given_up.store(ticket, .release);
        pair.engine.worker.io.wake();
    }

    const calls: application_end.Engine.Calls = .of(RingPair);

    pub fn isDeaf(pair: *const RingPair) bool {
        return pair.engine.broken.load(.acquire);
    }

    pub fn wakeEngine(pair: *RingPair) void {
        pair.engine.worker.io.wake();
    }

    pub fn clear(pair: *RingPair, _: bool) void {
        pair.wakeup.clear();
    }

    pub fn wait(pair: *RingPair, timeout_ms: c_int, loop: ?*application_end.HostLoop) void {
        const host_loop = loop orelse return pair.wakeup.wait(timeout_ms);
        host_loop.wait(pair.wakeup.fd(), timeout_ms);
    }

    pub fn waitForRoom(pair: *RingPair, commands: *ring.Writer) bool {
        pair.engine.made_room.reset();
        if (commands.awaitRoom() catch unreachable) return true; // the own engine is trusted
        if (pair.engine.broken.load(.acquire)) return false;
        pair.engine.made_room.wait();
        return true;
    }

    /// Calls a function on the engine's thread between two rounds, behind all commands that were given
    /// before, and waits for its result.
    pub fn call(
        pair: *RingPair,
        comptime function: anytype,
        arguments: std.meta.ArgsTuple(@TypeOf(function)),
    ) Result(function) {
        if (pair.thread == null) return @call(.auto, function, arguments);
        const Call = struct {
            task: engine_end.Task = .{ .run = run },
            arguments: std.meta.ArgsTuple(@TypeOf(function)),
            result: Result(function) = undefined,
            errno: c_int = 0,

            fn run(task: *engine_end.Task) void {
                const self: *@This() = @fieldParentPtr("task", task);
                self.result = @call(.auto, function, self.arguments);
                self.errno = std.c._errno().*;
            }
        };
        var wanted: Call = .{ .arguments = arguments };
        pair.application.flush();
        assert(pair.engine.task.load(.monotonic) == null);
        pair.engine.task.store(&wanted.task, .release);
        pair.engine.worker.io.wake();
        wanted.task.done.wait();
        std.c._errno().* = wanted.errno;
        return wanted.result;
    }
};

fn Result(comptime function: anytype) type {
    return @typeInfo(@TypeOf(function)).@"fn".return_type.?;
}
