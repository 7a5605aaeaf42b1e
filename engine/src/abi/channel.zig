//! A worker whose engine runs on a thread of its own, seen from the application: two rings, what is known of
//! each exchange at any time, and the life of the thread. The application's calls are `answer` and `poll`;
//! all else is done between two rounds (`call`).
const std = @import("std");
const ApplicationEnd = @import("application_end.zig").ApplicationEnd;
const Handle = @import("abi.zig").Handle;
const engine_end = @import("engine_end.zig");
const EngineEnd = engine_end.EngineEnd;
const platform = @import("platform");
const ring = @import("ring.zig");
const Slots = @import("slots.zig").Slots;
const types = @import("types.zig");

/// Never moves: both ends point into it.
pub const Channel = struct {
    gpa: std.mem.Allocator,
    memory: [2][]align(std.atomic.cache_line) u8,
    slots: Slots,
    wakeup: platform.Wakeup,
    engine: EngineEnd align(std.atomic.cache_line),
    application: ApplicationEnd align(std.atomic.cache_line),
    thread: ?platform.Thread = null,

    /// Of each ring: a few of the longest records, and not more than fits into a processor's cache.
    const ring_bytes = ring.bytes_min;

    /// A channel to a worker whose thread `start` starts.
    pub fn create(gpa: std.mem.Allocator, handle: *Handle) !*Channel {
        const channel = try gpa.create(Channel);
        errdefer gpa.destroy(channel);
        channel.gpa = gpa;
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
            &handle.worker,
            &handle.host,
            .{ .thread = &channel.wakeup },
            &channel.slots,
            .init(commands),
            .init(events),
        );
        errdefer channel.engine.deinit();
        const ledger: @FieldType(ApplicationEnd, "ledger") = .init(
            gpa,
            &channel.slots,
            &handle.worker.config,
        );
        channel.application = try .init(gpa, .{ .thread = channel }, .init(commands), .init(events), ledger);
        // The first poll is what starts the thread.
        channel.wakeup.raise();
        return channel;
    }

    /// Ends the thread. The worker is the caller's own again.
    pub fn destroy(channel: *Channel) void {
        channel.stop();
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
        channel.engine.given_up.store(ticket, .release);
        channel.engine.worker.io.wake();
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
