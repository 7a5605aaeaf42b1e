//! What the two ends of a channel have in common when they are in different processes: a piece of memory with
//! words for each other, the limits that the application's end needs, both rings and the slots.
//! Does not know: who is at its ends, and how they meet.
const std = @import("std");
const assert = std.debug.assert;
const peregrine = @import("peregrine");
const platform = @import("platform");
const ring = @import("ring.zig");
const Slots = @import("slots.zig").Slots;
const Config = peregrine.Config;
const io = peregrine.io;

const page = std.heap.page_size_min;

/// How the memory begins.
pub const Words = extern struct {
    /// Set by the engine: it hears nothing from here any more.
    broken: platform.Atomic(u32) align(std.atomic.cache_line),
    /// Set by the application: what it wants of the engine, bits of `Wish`.
    wishes: platform.Atomic(u32) align(std.atomic.cache_line),
    /// Set by the application: the ticket of a request that it will never answer; 0: none.
    given_up: platform.Atomic(u64),
    /// Set by the application: how many of its exchanges wait for their clients, and not for it.
    parked: platform.Atomic(u32),
    /// Set by the engine, taken by the application: requests wait until more of its exchanges are parked.
    is_short: platform.Atomic(u32),
    /// Set by the engine: somebody asks how long requests wait.
    counts: platform.Atomic(u32),
    /// The engine's limits when the channel was made, in the order of `Config`.
    limits: [limits_count]i64,

    const limits_count = @typeInfo(Config).@"struct".field_names.len;
};

/// What an application wants of its engine, beside commands.
pub const Wish = struct {
    /// No further requests; `stopped` follows when those that it has are over.
    pub const leave = 1;
    /// Its WebSockets are closed.
    pub const end_websockets = 2;
    /// All that it has ends now.
    pub const cut = 4;
};

/// Where everything is.
pub const Shared = struct {
    memory: io.sharing.Memory,
    words: *Words,
    commands: []align(std.atomic.cache_line) u8,
    events: []align(std.atomic.cache_line) u8,
    slots: Slots,

    const words_bytes = std.mem.alignForward(usize, @sizeOf(Words), page);
    const ring_bytes = std.mem.alignForward(usize, ring.memoryBytes(ring.bytes_min), page);
    /// Only what is touched takes memory: a line for each exchange that was ever open at once.
    pub const bytes = words_bytes + 2 * ring_bytes + Slots.bytes;

    /// A number that changes with the layout: both ends have to be of the same build.
    pub const layout: u64 = blk: {
        @setEvalBranchQuota(100_000);
        var hash = std.hash.Fnv1a_64.init();
        for (@typeInfo(Config).@"struct".field_names) |name| hash.update(name);
        hash.update(std.fmt.comptimePrint("{s} {d} {d}", .{ peregrine.version, bytes, @sizeOf(Words) }));
        break :blk hash.final();
    };

    /// In memory of this length, which both ends map.
    pub fn of(memory: io.sharing.Memory) Shared {
        assert(memory.bytes.len == bytes);
        const all = memory.bytes;
        const first = words_bytes;
        const second = first + ring_bytes;
        return .{
            .memory = memory,
            .words = @ptrCast(all.ptr),
            .commands = @alignCast(all[first..][0..ring.memoryBytes(ring.bytes_min)]),
            .events = @alignCast(all[second..][0..ring.memoryBytes(ring.bytes_min)]),
            .slots = .of(@alignCast(all[second + ring_bytes ..])),
        };
    }

    /// Tells the other end the limits.
    pub fn putLimits(shared: *const Shared, config: *const Config, counts: bool) void {
        shared.noteCounting(counts);
        inline for (@typeInfo(Config).@"struct".field_names, &shared.words.limits) |name, *limit| {
            limit.* = config.get(name) catch unreachable;
        }
    }

    /// Somebody asks how long requests wait, or does not any longer.
    pub fn noteCounting(shared: *const Shared, counts: bool) void {
        shared.words.counts.store(@intFromBool(counts), .monotonic);
    }

    /// The limits as the other end told them.
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
