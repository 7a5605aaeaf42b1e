//! The seeds of a simulation of this layer. PEREGRINE_SEED sets a single one; PEREGRINE_SEED_FIRST, which
//! script/test sets by the date, moves the first one. With PEREGRINE_BRIEF, as script/test without --all has
//! it, a test takes an eighth of its seeds.
const std = @import("std");
const testing = std.testing;

pub const Seeds = struct {
    first: u64,
    end: u64,
    /// Whether there are enough seeds for each possible event to happen in one of them.
    are_many: bool,

    /// Seeds from `base` on, unless a variable says otherwise.
    pub fn init(base: u64, count: u64) !Seeds {
        if (try number("PEREGRINE_SEED")) |only| {
            return .{ .first = only, .end = only + 1, .are_many = false };
        }
        const first = base + (try number("PEREGRINE_SEED_FIRST") orelse 0);
        const is_brief = if (testing.environ.getPosix("PEREGRINE_BRIEF")) |text| text.len > 0 else false;
        const taken = if (is_brief) count / 8 else count;
        return .{ .first = first, .end = first + taken, .are_many = !is_brief };
    }
};

fn number(name: []const u8) !?u64 {
    const text = testing.environ.getPosix(name) orelse return null;
    return try std.fmt.parseInt(u64, text, 10);
}
