//! The memory that both ends of a ring pair map when they are in different processes: words for each other,
//! the limits that the application's end needs, both rings and the slots. Does not know: which processes map
//! it, and how they meet.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const annex = @import("annex.zig");
const depot = @import("depot.zig");
const platform = @import("platform");
const ring = @import("ring.zig");
const Slots = @import("slots.zig").Slots;
const Config = peregrine.Config;
const io = peregrine.io;

const page = std.heap.page_size_min;

/// The words at the beginning of the memory.
pub const Words = extern struct {
    /// Set by the engine: it reads no commands of this application any more.
    broken: platform.Atomic(u32) align(std.atomic.cache_line),
    /// Set by the application: what it wants of the engine, bits of `Wish`.
    wishes: platform.Atomic(u32) align(std.atomic.cache_line),
    /// Set by the application: the ticket of a request that it will never answer; 0: none.
    given_up: platform.Atomic(u64),
    /// Set by the application: how many of its exchanges wait for their clients, and not for it.
    parked: platform.Atomic(u32),
    /// Set by the application: when it began to handle events of its own loop, in milliseconds of the
    /// monotonic clock; 0: it does not handle any now.
    loop_since: platform.Atomic(u64),
    /// Set by the engine, taken by the application: requests wait until more of its exchanges are parked, or
    /// until it has left its own loop.
    is_short: platform.Atomic(u32),
    /// Set by the engine: it wants to know when requests are taken, for counters or logs.
    counts: platform.Atomic(u32),
    /// The engine's process.
    engine: u32,
    /// Set by the engine: the application may hand requests over.
    hands: u32,
    /// Set by the application: routes whose requests it hands over, a bit each.
    passed_routes: [4]platform.Atomic(u64),
    /// The engine's limits when the ring pair was made, in the order of `Config`.
    limits: [limits_count]i64,

    const limits_count = @typeInfo(Config).@"struct".field_names.len;

    /// Whether the application hands over all requests of a route.
    pub fn passesOn(words: *const Words, route: u8) bool {
        const bits = words.passed_routes[route / 64].load(.acquire);
        return bits >> @intCast(route % 64) & 1 != 0;
    }

    /// The application hands over all requests of a route from now on.
    pub fn passOn(words: *Words, route: u8) void {
        _ = words.passed_routes[route / 64].fetchOr(@as(u64, 1) << @intCast(route % 64), .acq_rel);
    }
};

/// Wishes of an application to its engine, beside commands.
pub const Wish = struct {
    /// No further requests; `stopped` follows when the present ones are over.
    pub const leave = 1;
    /// The application's WebSockets are to be closed.
    pub const end_websockets = 2;
    /// All of the application's exchanges are to end at once.
    pub const cut = 4;
    /// Interpreters that have equally little to do are to get requests in turns, so that this one gets its
    /// share of few requests, too. The only wish that is taken back.
    pub const turns = 8;
};

/// The parts of the memory.
pub const Shared = struct {
    memory: io.sharing.Memory,
    words: *Words,
    commands: []align(std.atomic.cache_line) u8,
    events: []align(std.atomic.cache_line) u8,
    slots: Slots,
    annexes: annex.Both,

    const words_bytes = std.mem.alignForward(usize, @sizeOf(Words), page);
    const slots_bytes = std.mem.alignForward(usize, Slots.bytes, page);
    const ring_bytes = std.mem.alignForward(usize, ring.memoryBytes(ring.bytes_min), page);
    /// Only touched pages take memory: of the slots a line for each exchange that was open at once.
    pub const bytes = words_bytes + 2 * ring_bytes + slots_bytes + 2 * annex.region_bytes;

    /// `bytes`, rounded up, for people.
    pub const mebibytes = std.math.divCeil(usize, bytes, 1 << 20) catch unreachable;

    /// The way in which the ends wake each other.
    const wakes = "counters";

    /// A number that changes with the layout: both ends have to be of the same build.
    pub const layout: u64 = blk: {
        @setEvalBranchQuota(100_000);
        var hash = std.hash.Fnv1a_64.init();
        for (@typeInfo(Config).@"struct".field_names) |name| hash.update(name);
        const parts = .{ peregrine.version, wakes, bytes, @sizeOf(Words), depot.bytes };
        hash.update(std.fmt.comptimePrint("{s} {s} {d} {d} {d}", parts));
        break :blk hash.final();
    };

    /// The parts of memory that both ends map; it has the length `bytes`.
    pub fn of(memory: io.sharing.Memory) Shared {
        comptime assert(annex.region_bytes % page == 0);
        assert(memory.bytes.len == bytes);
        const all = memory.bytes;
        const first = words_bytes;
        const second = first + ring_bytes;
        const third = second + ring_bytes;
        const fourth = third + slots_bytes;
        return .{
            .memory = memory,
            .words = @ptrCast(all.ptr),
            .commands = @alignCast(all[first..][0..ring.memoryBytes(ring.bytes_min)]),
            .events = @alignCast(all[second..][0..ring.memoryBytes(ring.bytes_min)]),
            .slots = .of(@alignCast(all[third..][0..Slots.bytes])),
            .annexes = .{
                .commands = @alignCast(all[fourth..][0..annex.region_bytes]),
                .events = @alignCast(all[fourth + annex.region_bytes ..][0..annex.region_bytes]),
            },
        };
    }

    /// Tells the other end the limits.
    pub fn putLimits(shared: *const Shared, config: *const Config, counts: bool) void {
        shared.noteCounting(counts);
        shared.words.engine = io.thread.ids().process;
        inline for (@typeInfo(Config).@"struct".field_names, &shared.words.limits) |name, *limit| {
            limit.* = config.get(name) catch unreachable;
        }
    }

    /// Tells the application whether the engine counts how long requests wait.
    pub fn noteCounting(shared: *const Shared, counts: bool) void {
        shared.words.counts.store(@intFromBool(counts), .monotonic);
    }

    /// The limits, as the other process has written them.
    pub fn limits(shared: *const Shared) error{Malformed}!Config {
        var config: Config = .{};
        inline for (@typeInfo(Config).@"struct".field_names, shared.words.limits) |name, limit| {
            config.set(name, limit) catch return error.Malformed;
        }
        return config;
    }
};

test "limits come out as they were put in" {
    if (!io.sharing.is_supported) return error.SkipZigTest;
    const memory, const fd = try io.sharing.Memory.create(Shared.bytes);
    defer memory.close();
    io.file.close(fd);
    const shared: Shared = .of(memory);
    shared.putLimits(&.{ .write_high_bytes = 4711, .deflate = false }, true);
    const found = try shared.limits();
    try std.testing.expectEqual(4711, found.write_high_bytes);
    try std.testing.expect(!found.deflate);
    shared.words.limits[0] = -1;
    try std.testing.expectError(error.Malformed, shared.limits());
}
