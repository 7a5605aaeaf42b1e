//! The seeds that a simulation of this layer runs. PEREGRINE_SEED replays one; PEREGRINE_SEED_FIRST, which
//! script/test sets by the date, chooses others.
const std = @import("std");
const testing = std.testing;

pub const Seeds = struct {
    first: u64,
    end: u64,

    /// `base` is the first seed where no variable says another one.
    pub fn init(base: u64, count: u64) !Seeds {
        if (try number("PEREGRINE_SEED")) |only| return .{ .first = only, .end = only + 1 };
        const first = base + (try number("PEREGRINE_SEED_FIRST") orelse 0);
        return .{ .first = first, .end = first + count };
    }

    /// Whether there are so many seeds that each event which a history may have ought to happen in one of
    /// them.
    pub fn areMany(seeds: Seeds) bool {
        return seeds.end - seeds.first > 1;
    }
};

fn number(name: []const u8) !?u64 {
    const text = testing.environ.getPosix(name) orelse return null;
    return try std.fmt.parseInt(u64, text, 10);
}
