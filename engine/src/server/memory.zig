//! Whether the process holds more memory than it may, by how much, and when to measure again. The size of the
//! process counts, because most of a body that an application collects is the application's memory. Does not
//! know: connections, and how memory is given back.
const std = @import("std");
const assert = std.debug.assert;
const io = @import("io");
const config_file = @import("config.zig");
const Config = config_file.Config;
const worker_limits = config_file.worker_limits;

/// The number of workers in this process with a limit: each frees its part of the memory beyond the limit.
var workers: std.atomic.Value(u32) = .init(0);

/// Bytes of temporary files on a file system that keeps files in memory: they belong to no process, but take
/// the machine's memory.
var files: std.atomic.Value(u64) = .init(0);

/// Counts `bytes` more of a temporary file that is kept in memory.
pub fn noteFiles(bytes: u64) void {
    _ = files.fetchAdd(bytes, .monotonic);
}

/// Takes `bytes` of temporary files out of the count.
pub fn forgetFiles(bytes: u64) void {
    assert(files.load(.monotonic) >= bytes);
    _ = files.fetchSub(bytes, .monotonic);
}

/// A worker's view of the memory of its process.
pub const Memory = struct {
    /// The largest physical memory of the process in bytes; `none`: no limit.
    resident_max: u64 = none,
    /// The largest address space of the process in bytes, below RLIMIT_AS, at which malloc fails.
    address_max: u64 = none,
    /// The function that asks the system; tests have their own.
    gauge: *const fn () ?io.memory.Usage = io.memory.usage,
    heap: *const fn () ?io.memory.Heap = io.memory.heap,
    sharing: *const fn () ?u64 = io.memory.shared,
    /// Physical memory that belongs to other processes, at the last question, and the time of the next one.
    shared: struct { bytes: u64 = 0, ask_at: u64 = 0 } = .{},
    /// Physical memory and mappings beside the heap, when the worker began.
    base: Beside = .{},
    /// Bytes that were received since the last measurement.
    received: u64 = 0,
    /// Bytes that were queued for peers at the last measurement.
    queued: u64 = 0,
    /// The next measurement is due after `step` further bytes, or at `look_at`.
    step: u64 = none,
    look_at: u64 = none,
    /// Bytes that were taken from requests and that the host may still hold, until it is told after the
    /// round.
    pending: u64 = 0,
    pending_rounds: u8 = 0,
    /// The limit is reached and nothing is left to take, so nothing new is accepted.
    full: bool = false,
    /// Requests that end now are ended because memory is short.
    sheds: bool = false,
    /// The worker counts in `workers`.
    counts: bool = false,

    pub const none = std.math.maxInt(u64);
    const Beside = struct { resident: u64 = 0, address_space: u64 = 0 };

    const interval_ms = worker_limits.memory_interval_ms;
    /// The least number of bytes between two measurements, as a part of the limit. A measurement costs some
    /// microseconds, and up to a millisecond at the limit.
    const part_of_step = 64;
    /// Memory that a received byte may cost at once: an application that decodes bytes takes many times their
    /// size.
    const cost_factor = 16;
    /// The part of a limit that connections may hold even if the rest of the process takes all of it: without
    /// it, a large application would keep all requests out.
    const part_of_connections = 8;
    /// The part of a limit that free memory of the heap may be worth: half of the memory between three
    /// quarters of the system's limit and all of it.
    const part_of_credit = 6;
    /// The part of a limit by which memory goes below the limit, so that the limit is not reached again at
    /// once.
    const part_of_room = 16;

    /// Counts a worker of this process, if it has a limit.
    pub fn join(memory: *Memory, config: *const Config) void {
        memory.counts = config.memory_bytes_max != 0;
        if (memory.counts) _ = workers.fetchAdd(1, .monotonic);
        memory.set(config, io.memory.limits());
        memory.rebase();
    }

    /// Ends the count of a worker.
    pub fn leave(memory: *Memory) void {
        assert(!memory.counts or workers.load(.monotonic) > 0);
        if (memory.counts) _ = workers.fetchSub(1, .monotonic);
    }

    /// Takes the limits from the configuration, or three quarters of those of the system.
    pub fn set(memory: *Memory, config: *const Config, system: io.memory.Limits) void {
        const wanted = config.memory_bytes_max;
        memory.resident_max = if (wanted > 0)
            @intCast(wanted)
        else if (wanted < 0)
            share(system.group)
        else
            none;
        memory.address_max = if (wanted == 0) none else share(system.address_space);
        memory.full = false;
        memory.look_at = if (memory.isOff()) none else 0;
        memory.step = memory.look_at;
        memory.invariants();
    }

    fn share(allowed: ?u64) u64 {
        return if (allowed) |bytes| bytes / 4 * 3 else none;
    }

    /// Notes the memory that the process has beside the heap.
    fn rebase(memory: *Memory) void {
        const usage = memory.gauge() orelse return;
        const heap = memory.heap() orelse return;
        memory.base = .{
            .resident = usage.resident -| (heap.held -| heap.free),
            .address_space = usage.address_space -| heap.held,
        };
    }

    /// Whether there is no limit.
    pub fn isOff(memory: *const Memory) bool {
        return memory.leastMax() == none;
    }

    /// The smaller of the two limits in bytes; 0: there is no limit.
    pub fn limit(memory: *const Memory) u64 {
        return if (memory.isOff()) 0 else memory.leastMax();
    }

    fn leastMax(memory: *const Memory) u64 {
        return @min(memory.resident_max, memory.address_max);
    }

    /// Begins a round, after which hosts have freed memory of ended requests.
    pub fn beginRound(memory: *Memory) void {
        if (memory.pending_rounds == 0) return;
        memory.pending_rounds -= 1;
        if (memory.pending_rounds == 0) memory.pending = 0;
        memory.invariants();
    }

    /// Whether a measurement is due. `queued`: bytes that are queued for peers now, at most (a string that is
    /// lent to several connections counts for each).
    pub fn isDue(memory: *const Memory, queued: u64, now: u64) bool {
        return memory.received +| (queued -| memory.queued) >= memory.step or now >= memory.look_at;
    }

    /// The result of a measurement that has found too much memory in use.
    pub const Finding = struct {
        /// Bytes in use, of the limit that is nearer or exceeded by more.
        used: u64,
        max: u64,
        /// Bytes that this worker must free: its part of the excess, and some more.
        goal: u64,
    };

    /// Whether so many bytes were queued since the last measurement that another one is due before hosts get
    /// more input.
    pub fn hasGrown(memory: *const Memory, queued: u64) bool {
        return queued -| memory.queued >= memory.step;
    }

    /// Measures memory and sets the time of the next measurement. Null: there is enough memory. `counted`:
    /// bytes that the engine itself holds, for systems without figures. `queued`: see `isDue`.
    pub fn look(memory: *Memory, counted: u64, queued: u64, now: u64) ?Finding {
        assert(!memory.isOff());
        const usage = memory.gauge() orelse io.memory.Usage{ .resident = counted, .address_space = counted };
        const in_files = files.load(.monotonic);
        var worst = memory.compare(usage.resident + in_files, usage.address_space);
        // The kernel and the heap are asked only beyond the limit, because that takes longer.
        if (usage.resident + in_files > memory.resident_max) {
            const resident = usage.resident -| memory.sharedBytes(usage.resident, now);
            worst = memory.compare(resident + in_files, usage.address_space);
        }
        if (worst.used > worst.max) if (memory.heap()) |heap| {
            // Pages that the heap keeps free may be other processes', too: the process that loaded the
            // application has freed them. The sum would count them twice.
            const not_in_use = @max(memory.freeOf(usage, heap), memory.shared.bytes);
            worst = memory.compare(
                usage.resident -| not_in_use + in_files,
                usage.address_space -| creditOf(heap.free, memory.address_max),
            );
        };
        worst.used -|= memory.pending;
        memory.received = 0;
        memory.queued = queued;
        memory.look_at = now + interval_ms;
        memory.step = @max(worst.max / part_of_step, (worst.max -| worst.used) / cost_factor);
        if (worst.used <= worst.max) return null;
        const too_much = worst.used - worst.max;
        worst.goal = (too_much + worst.max / part_of_room) / @max(workers.load(.monotonic), 1);
        return worst;
    }

    /// Resident memory that belongs to other processes: what a process that loaded the application has in
    /// common with those that were forked from it.
    fn sharedBytes(memory: *Memory, resident: u64, now: u64) u64 {
        if (now >= memory.shared.ask_at) memory.shared = .{
            .bytes = memory.sharing() orelse 0,
            .ask_at = now + @max(
                worker_limits.memory_shared_interval_ms,
                resident / worker_limits.memory_shared_bytes_per_ms,
            ),
        };
        return memory.shared.bytes;
    }

    /// Most of the heap's free memory that is resident. All memory that was mapped beside the heap since the
    /// worker began counts as in use.
    fn freeOf(memory: *const Memory, usage: io.memory.Usage, heap: io.memory.Heap) u64 {
        const mapped = (usage.address_space -| heap.held) -| memory.base.address_space;
        const in_use = memory.base.resident + mapped + (heap.held -| heap.free);
        return creditOf(usage.resident -| in_use, memory.resident_max);
    }

    /// The bytes by which free memory of the heap reduces the memory in use: not all of it, because many free
    /// pieces are too small for later allocations.
    fn creditOf(free: u64, max: u64) u64 {
        assert(max > 0);
        return @min(free, max / part_of_credit);
    }

    fn compare(memory: *const Memory, resident: u64, address_space: u64) Finding {
        const physical: Finding = .{ .used = resident, .max = memory.resident_max, .goal = 0 };
        const virtual: Finding = .{ .used = address_space, .max = memory.address_max, .goal = 0 };
        return if (room(physical) <= room(virtual)) physical else virtual;
    }

    fn room(finding: Finding) i128 {
        return @as(i128, finding.max) - finding.used;
    }

    /// Notes an ended request, of which the host holds `pending` bytes until it is told. `queued`: the bytes
    /// that are still queued, as in `isDue`.
    pub fn noteShed(memory: *Memory, pending: u64, queued: u64) void {
        memory.pending += pending;
        memory.pending_rounds = 2;
        memory.queued = queued;
        memory.invariants();
    }

    pub fn invariants(memory: *const Memory) void {
        assert(memory.pending == 0 or memory.pending_rounds > 0);
        assert(!memory.isOff() or (memory.step == none and memory.look_at == none));
    }

    /// Bytes that this worker's connections may hold, however much the rest of the process holds.
    pub fn allowance(finding: Finding) u64 {
        return finding.max / part_of_connections / @max(workers.load(.monotonic), 1);
    }
};

const testing = std.testing;
const mib = 1024 * 1024;

const Fake = struct {
    var usage: ?io.memory.Usage = null;
    var heap: ?io.memory.Heap = null;
    var shared: ?u64 = null;
    var questions: u32 = 0;

    fn askUsage() ?io.memory.Usage {
        return usage;
    }
    fn askHeap() ?io.memory.Heap {
        return heap;
    }

    fn askShared() ?u64 {
        questions += 1;
        return shared;
    }

    fn memory() Memory {
        return .{ .gauge = askUsage, .heap = askHeap, .sharing = askShared };
    }
};

test "limits come from the configuration or the system, or there are none" {
    const system: io.memory.Limits = .{ .group = 400 * mib, .address_space = 200 * mib };
    var memory: Memory = Fake.memory();
    try testing.expect(memory.isOff() and !memory.isDue(1 << 50, 1 << 60));
    memory.set(&.{}, system);
    try testing.expectEqual(300 * mib, memory.resident_max);
    try testing.expectEqual(150 * mib, memory.address_max);
    try testing.expectEqual(150 * mib, memory.limit());
    memory.set(&.{ .memory_bytes_max = 50 * mib }, system);
    try testing.expectEqual(50 * mib, memory.resident_max);
    try testing.expectEqual(150 * mib, memory.address_max);
    memory.set(&.{ .memory_bytes_max = 0 }, system);
    try testing.expect(memory.isOff() and memory.limit() == 0);
    memory.set(&.{}, .{});
    try testing.expect(memory.isOff());
}

test "a look is due after a while, or after so much that memory might run out" {
    var memory: Memory = Fake.memory();
    Fake.heap = null;
    Fake.usage = .{ .resident = 36 * mib, .address_space = 900 * mib };
    memory.set(&.{ .memory_bytes_max = 100 * mib }, .{});
    try testing.expect(memory.isDue(0, 1));
    try testing.expectEqual(null, memory.look(0, 0, 1));
    try testing.expect(!memory.isDue(0, 100) and memory.isDue(0, 101));
    memory.received = 4 * mib - 1;
    try testing.expect(!memory.isDue(0, 2));
    memory.received += 1;
    try testing.expect(memory.isDue(0, 2));
    // Some systems tell no figures, so only the engine's own count is known.
    Fake.usage = null;
    try testing.expectEqual(null, memory.look(100 * mib, 0, 2));
    try testing.expectEqual(101 * mib, memory.look(101 * mib, 0, 2).?.used);
}

test "memory that the heap keeps free is not in use; shed memory counts as free until its host is told" {
    var memory: Memory = Fake.memory();
    // 20 MiB beside the heap, and 10 in it.
    Fake.usage = .{ .resident = 30 * mib, .address_space = 60 * mib };
    Fake.heap = .{ .held = 10 * mib, .free = 0 };
    memory.set(&.{ .memory_bytes_max = 100 * mib }, .{});
    memory.rebase();
    Fake.usage = .{ .resident = 115 * mib, .address_space = 145 * mib };
    Fake.heap = .{ .held = 95 * mib, .free = 15 * mib };
    try testing.expectEqual(null, memory.look(0, 0, 0));
    Fake.heap.?.free = 10 * mib;
    const finding = memory.look(0, 0, 0).?;
    try testing.expectEqual(105 * mib, finding.used);
    try testing.expectEqual(5 * mib + 100 * mib / 16, finding.goal);
    // 7 MiB are mapped beside the heap since.
    Fake.heap = .{ .held = 88 * mib, .free = 8 * mib };
    try testing.expectEqual(107 * mib, memory.look(0, 0, 0).?.used);
    // The heap has given pages back: memory in use cannot be more than resident memory.
    Fake.usage.?.resident = 99 * mib;
    try testing.expectEqual(null, memory.look(0, 0, 0));
    // Much of the heap is free, and only a part of that counts as free.
    Fake.usage = .{ .resident = 120 * mib, .address_space = 150 * mib };
    Fake.heap = .{ .held = 100 * mib, .free = 90 * mib };
    try testing.expectEqual(120 * mib - 100 * mib / 6, memory.look(0, 0, 0).?.used);
    memory.noteShed(4 * mib, 0);
    try testing.expectEqual(null, memory.look(0, 0, 0));
    memory.beginRound();
    try testing.expectEqual(null, memory.look(0, 0, 0));
    memory.beginRound();
    try testing.expect(memory.look(0, 0, 0) != null);
}

test "memory of other processes is not in use; beyond the limit the kernel is asked for it now and then" {
    const interval_ms = 160 * mib / worker_limits.memory_shared_bytes_per_ms;
    var memory: Memory = Fake.memory();
    Fake.usage = .{ .resident = 100 * mib, .address_space = 200 * mib };
    Fake.heap = null;
    Fake.questions = 0;
    Fake.shared = 60 * mib;
    defer Fake.shared = null;
    memory.set(&.{ .memory_bytes_max = 100 * mib }, .{});
    try testing.expectEqual(null, memory.look(0, 0, 0));
    try testing.expectEqual(0, Fake.questions);
    Fake.usage.?.resident = 160 * mib;
    try testing.expectEqual(null, memory.look(0, 0, 1));
    Fake.usage.?.resident = 161 * mib;
    try testing.expectEqual(101 * mib, memory.look(0, 0, interval_ms).?.used);
    try testing.expectEqual(1, Fake.questions);
    // The process has changed some of these pages meanwhile.
    Fake.shared = 50 * mib;
    try testing.expectEqual(111 * mib, memory.look(0, 0, interval_ms + 1).?.used);
    try testing.expectEqual(2, Fake.questions);
    // The heap keeps 10 MiB free, which may be other processes', too.
    Fake.heap = .{ .held = 30 * mib, .free = 12 * mib };
    Fake.usage.?.resident = 150 * mib;
    memory.rebase();
    Fake.usage.?.resident = 160 * mib;
    try testing.expectEqual(110 * mib, memory.look(0, 0, interval_ms + 2).?.used);
    Fake.shared = 6 * mib;
    try testing.expectEqual(150 * mib, memory.look(0, 0, 3 * interval_ms).?.used);
    // Where the kernel does not tell, all is this process's.
    Fake.shared = null;
    try testing.expectEqual(150 * mib, memory.look(0, 0, 5 * interval_ms).?.used);
    try testing.expectEqual(0, memory.shared.bytes);
}

test "the larger the process, the longer the time until the kernel is asked again" {
    var memory: Memory = Fake.memory();
    const resident = 2000 * mib;
    Fake.usage = .{ .resident = resident, .address_space = 2 * resident };
    Fake.heap = null;
    Fake.questions = 0;
    memory.set(&.{ .memory_bytes_max = 100 * mib }, .{});
    const next = resident / worker_limits.memory_shared_bytes_per_ms;
    for ([_]u64{ 0, worker_limits.memory_shared_interval_ms, next - 1 }) |now| {
        _ = memory.look(0, 0, now);
        try testing.expectEqual(1, Fake.questions);
    }
    _ = memory.look(0, 0, next);
    try testing.expectEqual(2, Fake.questions);
}

test "temporary files in memory count as physical memory" {
    var memory: Memory = Fake.memory();
    Fake.usage = .{ .resident = 30 * mib, .address_space = 60 * mib };
    Fake.heap = null;
    memory.set(&.{ .memory_bytes_max = 100 * mib }, .{});
    noteFiles(71 * mib);
    try testing.expectEqual(101 * mib, memory.look(0, 0, 0).?.used);
    forgetFiles(2 * mib);
    try testing.expectEqual(null, memory.look(0, 0, 0));
    forgetFiles(69 * mib);
}

test "address space counts where it has a limit" {
    var memory: Memory = Fake.memory();
    Fake.usage = .{ .resident = 10 * mib, .address_space = 100 * mib };
    Fake.heap = .{ .held = 60 * mib, .free = 10 * mib };
    memory.set(&.{}, .{ .address_space = 100 * mib });
    Fake.usage.?.address_space = 85 * mib;
    try testing.expectEqual(null, memory.look(0, 0, 0));
    Fake.usage.?.address_space = 95 * mib;
    const finding = memory.look(0, 0, 0).?;
    try testing.expectEqual(85 * mib, finding.used);
    try testing.expectEqual(75 * mib, finding.max);
    try testing.expectEqual(75 * mib / 8, Memory.allowance(finding));
}
