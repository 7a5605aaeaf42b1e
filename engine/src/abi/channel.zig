//! A worker whose engine runs on a thread of its own, seen from the application: two rings, what is known of
//! each exchange at any time, and the life of the thread. The application's calls are `answer` and `poll`;
//! all else is done between two rounds (`call`).
const std = @import("std");
const assert = std.debug.assert;
const application_end = @import("application_end.zig");
const ApplicationEnd = application_end.ApplicationEnd;
const Engine = @import("engine.zig").Engine;
const engine_end = @import("engine_end.zig");
const EngineEnd = engine_end.EngineEnd;
const platform = @import("platform");
const ring = @import("ring.zig");
const Slots = @import("slots.zig").Slots;
const types = @import("types.zig");

/// Never moves: both ends point into it.
pub const Channel = struct {
    gpa: std.mem.Allocator,
    /// The engine whose worker the thread runs.
    local: *Engine,
    memory: [2][]align(std.atomic.cache_line) u8,
    slots: Slots,
    wakeup: platform.Wakeup,
    engine: EngineEnd align(std.atomic.cache_line),
    application: ApplicationEnd align(std.atomic.cache_line),
    /// The engine as the application's end knows it.
    way: application_end.Engine,
    thread: ?platform.Thread = null,

    /// The size of each ring: some of the longest records, and not more than fits into a processor's cache.
    const ring_bytes = ring.bytes_min;

    /// A channel to a worker whose thread `start` starts.
    pub fn create(gpa: std.mem.Allocator, local: *Engine) !*Channel {
        const channel = try gpa.create(Channel);
        errdefer gpa.destroy(channel);
        channel.gpa = gpa;
        channel.local = local;
        channel.thread = null;
        channel.slots = try .init();
        errdefer channel.slots.deinit();
        channel.wakeup = try .init();
        errdefer channel.wakeup.deinit();
        for (&channel.memory, 0..) |*memory, index| {
            errdefer for (channel.memory[0..index]) |other| gpa.free(other);
            memory.* = try gpa.alignedAlloc(
                u8,
                .fromByteUnits(std.atomic.cache_line),
                ring.memoryBytes(ring_bytes),
            );
            @memset(memory.*, 0);
        }
        errdefer for (channel.memory) |memory| gpa.free(memory);
        const commands, const events = channel.memory;
        channel.engine = try .init(
            gpa,
            &local.worker,
            &local.host,
            .{ .thread = &channel.wakeup },
            &channel.slots,
            .init(commands),
            .init(events),
        );
        errdefer channel.engine.deinit();
        const ledger: @FieldType(ApplicationEnd, "ledger") = .init(
            gpa,
            &channel.slots,
            &local.worker.config,
        );
        channel.way = .{ .calls = &calls, .is_remote = false, .shed = &channel.engine.link.shed };
        channel.application = try .init(gpa, &channel.way, .init(commands), .init(events), ledger);
        // The first poll is what starts the thread.
        channel.wakeup.raise();
        return channel;
    }

    /// Ends the thread. The worker is the caller's own again.
    pub fn destroy(channel: *Channel) void {
        channel.stop();
        assert(channel.thread == null and channel.engine.task.load(.monotonic) == null);
        channel.application.deinit();
        channel.engine.deinit();
        for (channel.memory) |memory| channel.gpa.free(memory);
        channel.wakeup.deinit();
        channel.slots.deinit();
        channel.gpa.destroy(channel);
    }

    /// Starts the thread, which has the worker from now on.
    pub fn start(channel: *Channel) error{CannotStartThread}!void {
        if (channel.thread != null) return;
        assert(channel.local.host.link == &channel.engine.link and !channel.engine.stopping.load(.monotonic));
        channel.thread = try platform.spawn(EngineEnd.run, .{&channel.engine});
    }

    fn stop(channel: *Channel) void {
        const thread = channel.thread orelse return;
        channel.engine.stopping.store(true, .release);
        channel.engine.worker.io.wake();
        thread.join();
        channel.thread = null;
    }

    /// The thread answers a request that nobody will answer. Waits for nothing, and touches nothing that the
    /// application may be in the middle of: may be called in a signal handler.
    pub fn giveUp(channel: *Channel, ticket: types.Ticket) void {
        assert(channel.thread != null);
        channel.engine.given_up.store(ticket, .release);
        channel.engine.worker.io.wake();
    }

    const Way = application_end.Engine;

    const calls: Way.Calls = .{
        .isDeaf = isDeaf,
        .wake = wake,
        .clear = clear,
        .wait = wait,
        .waitForRoom = waitForRoom,
        .receiveFile = receiveFile,
        .sendFile = sendFile,
    };

    fn of(way: *Way) *Channel {
        return @alignCast(@fieldParentPtr("way", way));
    }

    fn isDeaf(way: *Way) bool {
        return of(way).engine.broken.load(.acquire);
    }

    fn wake(way: *Way) void {
        of(way).engine.worker.io.wake();
    }

    fn clear(way: *Way, _: bool) void {
        of(way).wakeup.clear();
    }

    fn wait(way: *Way, timeout_ms: c_int) void {
        of(way).wakeup.wait(timeout_ms);
    }

    fn waitForRoom(way: *Way, commands: *ring.Writer) bool {
        const channel = of(way);
        channel.engine.made_room.reset();
        if (commands.awaitRoom() catch unreachable) return true; // the engine is no stranger
        if (channel.engine.broken.load(.acquire)) return false;
        channel.engine.made_room.wait();
        return true;
    }

    fn receiveFile(_: *Way) error{Malformed}!i32 {
        unreachable; // a descriptor keeps its number between threads
    }

    fn sendFile(_: *Way, _: i32) bool {
        unreachable; // likewise
    }

    /// Calls a function on the engine's thread between two rounds, behind all commands that were said before,
    /// and waits for its result.
    pub fn call(
        channel: *Channel,
        comptime function: anytype,
        arguments: std.meta.ArgsTuple(@TypeOf(function)),
    ) Result(function) {
        if (channel.thread == null) return @call(.auto, function, arguments);
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
        channel.application.flush();
        assert(channel.engine.task.load(.monotonic) == null);
        channel.engine.task.store(&wanted.task, .release);
        channel.engine.worker.io.wake();
        wanted.task.done.wait();
        std.c._errno().* = wanted.errno;
        return wanted.result;
    }
};

fn Result(comptime function: anytype) type {
    return @typeInfo(@TypeOf(function)).@"fn".return_type.?;
}
