//! The seeds of a simulation of this layer. PEREGRINE_SEED sets a single one; PEREGRINE_SEED_FIRST, which
//! script/test sets by the date, moves the first one.
const std = @import("std");
const testing = std.testing;

pub const Seeds = struct {
    first: u64,
    end: u64,

    /// Seeds from `base` on, unless a variable says otherwise.
    pub fn init(base: u64, count: u64) !Seeds {
        if (try number("PEREGRINE_SEED")) |only| return .{ .first = only, .end = only + 1 };
        const first = base + (try number("PEREGRINE_SEED_FIRST") orelse 0);
        return .{ .first = first, .end = first + count };
    }

    /// Whether there are enough seeds for each possible event to happen in one of them.
    pub fn areMany(seeds: Seeds) bool {
        return seeds.end - seeds.first > 1;
    }
};

fn number(name: []const u8) !?u64 {
    const text = testing.environ.getPosix(name) orelse return null;
    return try std.fmt.parseInt(u64, text, 10);
}
