//! Wishes of the environment for tests: a brief run, and the seeds of simulations. All test programs import
//! this file as the module `wanted`.
const std = @import("std");
const testing = std.testing;

/// Whether script/test runs without --all. Tests that try many cases of one kind try some of them then.
pub fn isBrief() bool {
    const text = testing.environ.getPosix("PEREGRINE_BRIEF") orelse return false;
    return text.len > 0;
}

/// The numbers of the histories that a simulation plays.
pub const Seeds = struct {
    first: u64,
    count: u64,

    /// PEREGRINE_SEED is the only seed. Otherwise PEREGRINE_SEED_FIRST is the first of PEREGRINE_SEEDS, or of
    /// `usual`, and in a brief run of `brief`.
    pub fn init(usual: u64, brief: u64) !Seeds {
        if (try number("PEREGRINE_SEED")) |only| return .{ .first = only, .count = 1 };
        return .{
            .first = try number("PEREGRINE_SEED_FIRST") orelse 0,
            .count = try number("PEREGRINE_SEEDS") orelse if (isBrief()) brief else usual,
        };
    }
};

fn number(name: []const u8) !?u64 {
    const text = testing.environ.getPosix(name) orelse return null;
    return try std.fmt.parseInt(u64, text, 10);
}
