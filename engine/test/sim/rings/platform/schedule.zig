//! Two threads that are none: a schedule says which of them runs, and how far, so that a history is the same
//! again from the same seed.
//!
//! A thread goes on until an access to shared memory, where the schedule may put the other one in. What a
//! thread stores there may be seen late by the other one: it lies in a buffer first, as in a processor, and
//! comes out in an order that the orderings of the stores allow. An exchange (swap and its like) finds the
//! newest value, and what its thread stored before comes out before it.
//!
//! Time passes only if the one who drives the schedule says so. Does not know: what the threads do.
const std = @import("std");
const assert = std.debug.assert;
const Fiber = @import("fiber.zig").Fiber;

/// How a history is scheduled.
pub const Character = struct {
    /// Accesses that a thread makes in a row, at most.
    run_max: u32 = 100,
    /// How often out of 1000 a thread that could go on rests for a while instead.
    rest_permille: u16 = 0,
    /// Other threads see a store only some time after it.
    buffers_stores: bool = true,
    /// Waits out of 1000 that end without a reason.
    spurious_permille: u16 = 0,
};

/// Why a thread does not go on.
pub const Wait = struct {
    context: *anyopaque,
    isOver: *const fn (*anyopaque) bool,
    /// By the schedule's clock; null: it waits without bound.
    until: ?u64,
};

/// A thread. The first of the two is the application's.
pub const Thread = struct {
    schedule: *Schedule,
    fiber: Fiber,
    start: *const fn (*anyopaque) void = undefined,
    argument: *anyopaque = undefined,
    wait: ?Wait = null,
    /// Accesses until the schedule decides again.
    fuel: u32 = 0,
    /// Choices of the schedule for which the thread does not go on.
    resting: u32 = 0,
    stored: std.ArrayList(Store) = .empty,

    const stored_max = 8;

    /// Waits for the end of the thread. Called on another thread.
    pub fn join(thread: *Thread) void {
        const schedule = thread.schedule;
        if (schedule.running == null) return schedule.finish(thread);
        schedule.waitFor(.{ .context = thread, .isOver = isFinished, .until = null });
    }

    fn isFinished(context: *anyopaque) bool {
        const thread: *Thread = @ptrCast(@alignCast(context));
        return thread.fiber.finished;
    }

    /// Whether it is there and waits for nothing.
    pub fn isReady(thread: *Thread) bool {
        if (thread.fiber.finished) return false;
        const wait = thread.wait orelse return true;
        if (wait.isOver(wait.context)) return true;
        return if (wait.until) |at| at <= thread.schedule.clock.* else false;
    }

    /// Shows the other threads all that this thread has stored.
    pub fn showAll(thread: *Thread) void {
        for (thread.stored.items) |store| store.show();
        thread.stored.clearRetainingCapacity();
    }

    /// Makes another store of the thread visible.
    fn showOne(thread: *Thread, random: std.Random) void {
        const stores = thread.stored.items;
        var index = random.uintLessThan(usize, stores.len);
        // A release comes behind everything before it, and a word has its values in order.
        for (stores[0..index]) |earlier| {
            if (stores[index].releases or earlier.place == stores[index].place) {
                index = 0;
                break;
            }
        }
        thread.stored.orderedRemove(index).show();
    }
};

/// A store that only its own thread has seen yet.
pub const Store = struct {
    place: usize,
    size: u8,
    value: u64,
    releases: bool,

    fn show(store: Store) void {
        switch (store.size) {
            inline 1, 4, 8 => |size| {
                const Word = @Int(.unsigned, size * 8);
                @as(*Word, @ptrFromInt(store.place)).* = @intCast(store.value);
            },
            else => unreachable,
        }
    }
};

/// The schedule of one history. Never moves.
pub const Schedule = struct {
    gpa: std.mem.Allocator,
    random: std.Random,
    character: Character,
    /// The clock of the simulated world, in milliseconds.
    clock: *const u64,
    threads: [2]Thread,
    count: usize = 0,
    running: ?*Thread = null,
    /// Rounds of the engine in a row that did not wait, although nobody else did anything.
    restless: u32 = 0,
    /// Called where a thread waits for the network: between two rounds of the engine.
    between_rounds: ?*const fn (*anyopaque) void = null,
    between_context: *anyopaque = undefined,

    /// The schedule that is played now.
    pub var present: ?*Schedule = null;

    pub fn init(
        schedule: *Schedule,
        gpa: std.mem.Allocator,
        random: std.Random,
        character: Character,
        clock: *const u64,
    ) !void {
        schedule.* = .{
            .gpa = gpa,
            .random = random,
            .character = character,
            .clock = clock,
            .threads = undefined,
        };
        for (&schedule.threads, 0..) |*thread, index| {
            errdefer for (schedule.threads[0..index]) |*other| other.fiber.destroy();
            thread.* = .{ .schedule = schedule, .fiber = try .create() };
        }
        errdefer for (&schedule.threads) |*thread| thread.fiber.destroy();
        for (&schedule.threads) |*thread| try thread.stored.ensureTotalCapacity(gpa, Thread.stored_max);
        assert(present == null);
        present = schedule;
    }

    /// All threads have ended.
    pub fn deinit(schedule: *Schedule) void {
        for (&schedule.threads) |*thread| {
            assert(thread.fiber.finished and thread.stored.items.len == 0);
            thread.stored.deinit(schedule.gpa);
            thread.fiber.destroy();
        }
        present = null;
    }

    /// A thread that calls `start` when its turn comes.
    pub fn spawn(schedule: *Schedule, start: *const fn (*anyopaque) void, argument: *anyopaque) *Thread {
        const thread = &schedule.threads[schedule.count];
        schedule.count += 1;
        thread.start = start;
        thread.argument = argument;
        thread.fiber.begin(runThread);
        return thread;
    }

    fn runThread(fiber: *Fiber) void {
        const thread: *Thread = @fieldParentPtr("fiber", fiber);
        thread.start(thread.argument);
        thread.showAll();
    }

    // ---- What drives it

    /// Makes a choice: a thread goes on for a while, or a store of a thread becomes visible. False if all
    /// threads wait and all stores are visible.
    pub fn step(schedule: *Schedule) bool {
        assert(schedule.running == null);
        var ready: [2]*Thread = undefined;
        var count: usize = 0;
        var pending = false;
        for (schedule.threads[0..schedule.count]) |*thread| {
            pending = pending or thread.stored.items.len > 0;
            if (!thread.isReady()) continue;
            ready[count] = thread;
            count += 1;
        }
        if (count == 0) {
            for (schedule.threads[0..schedule.count]) |*thread| thread.showAll();
            return pending;
        }
        if (pending and schedule.random.boolean()) schedule.showSome();
        const thread = ready[schedule.random.uintLessThan(usize, count)];
        if (thread.resting > 0) {
            thread.resting -= 1;
        } else if (schedule.chance(schedule.character.rest_permille)) {
            thread.resting = schedule.random.uintLessThan(u32, 200);
        } else schedule.go(thread);
        return true;
    }

    fn go(schedule: *Schedule, thread: *Thread) void {
        if (thread == &schedule.threads[0]) schedule.restless = 0;
        thread.wait = null;
        thread.fuel = schedule.random.intRangeAtMost(u32, 1, schedule.character.run_max);
        schedule.running = thread;
        thread.fiber.go();
        schedule.running = null;
    }

    /// A thread runs to its end, alone.
    fn finish(schedule: *Schedule, thread: *Thread) void {
        while (!thread.fiber.finished) {
            if (!thread.isReady()) @panic("a thread that is to end waits");
            schedule.go(thread);
        }
    }

    fn showSome(schedule: *Schedule) void {
        for (schedule.threads[0..schedule.count]) |*thread| {
            if (thread.stored.items.len > 0) thread.showOne(schedule.random);
        }
    }

    pub fn chance(schedule: *Schedule, permille: u16) bool {
        return permille > 0 and schedule.random.uintLessThan(u16, 1000) < permille;
    }

    // ---- What threads do

    /// The running thread does not go on before this is over. Who is no thread cannot wait.
    pub fn waitFor(schedule: *Schedule, wait: Wait) void {
        const thread = schedule.running orelse {
            if (wait.isOver(wait.context)) return;
            @panic("who drives the schedule waits");
        };
        thread.wait = wait;
        const ends_early = wait.until != null and schedule.chance(schedule.character.spurious_permille);
        if (ends_early) thread.wait.?.until = schedule.clock.*;
        thread.fiber.leave();
    }

    /// Called before an access to shared memory.
    fn pass(schedule: *Schedule) ?*Thread {
        const thread = schedule.running orelse return null;
        thread.fuel -= 1;
        if (thread.fuel == 0) thread.fiber.leave();
        if (thread.stored.items.len > 0 and schedule.random.uintLessThan(u8, 4) == 0) thread.showOne(
            schedule.random,
        );
        return thread;
    }

    /// The value of a word as the running thread sees it.
    pub fn load(comptime Word: type, place: *const Word) Word {
        const schedule = present orelse return place.*;
        const thread = schedule.pass() orelse return place.*;
        var index = thread.stored.items.len;
        while (index > 0) {
            index -= 1;
            const own = &thread.stored.items[index];
            if (own.place == @intFromPtr(place)) return @intCast(own.value);
        }
        return place.*;
    }

    /// Changes a word; others may see that later.
    pub fn store(comptime Word: type, place: *Word, value: Word, releases: bool) void {
        const schedule = present orelse {
            place.* = value;
            return;
        };
        const thread = schedule.pass() orelse {
            place.* = value;
            return;
        };
        if (thread.stored.items.len == Thread.stored_max) thread.showOne(schedule.random);
        const late: Store = .{
            .place = @intFromPtr(place),
            .size = @sizeOf(Word),
            .value = value,
            .releases = releases,
        };
        if (schedule.character.buffers_stores) thread.stored.appendAssumeCapacity(late) else late.show();
    }

    /// Before a word is read and changed at once.
    pub fn exchange() void {
        const schedule = present orelse return;
        const thread = schedule.pass() orelse return;
        thread.showAll();
    }

    /// A system call that others see: what came before it can be seen as well.
    pub fn callKernel() void {
        exchange();
    }
};
