//! A budget for frames that cause work without any benefit for either side. Such frames use it up; time and
//! useful frames refill it. A peer that has used it up gets ENHANCE_YOUR_CALM (RFC 9113 section 10.5). Does
//! not know: frames; the session decides what each costs.
const std = @import("std");
const assert = std.debug.assert;

/// A budget: its size, and the amount that is refilled per second.
pub const Allowance = struct {
    burst: u32,
    per_second: u32,
};

/// The state of a budget.
pub const Patience = struct {
    /// The rest of the budget, in thousandths of a unit.
    left: u64,
    burst: u64,
    per_ms: u64,
    since: u64 = 0,

    /// Makes a full budget. Time begins with the first `wait`.
    pub fn init(allowance: Allowance) Patience {
        const burst = @as(u64, allowance.burst) * unit;
        return .{ .left = burst, .burst = burst, .per_ms = allowance.per_second };
    }

    const unit = 1000;

    /// Refills the budget for the time since the last call. `now` is in milliseconds.
    pub fn wait(patience: *Patience, now: u64) void {
        const passed = now -| patience.since;
        patience.since = now;
        patience.left = @min(patience.burst, patience.left +| passed *| patience.per_ms);
    }

    /// Takes an amount from the budget; false: too little is left, and nothing was taken.
    pub fn spend(patience: *Patience, amount: u32) bool {
        const cost = @as(u64, amount) * unit;
        if (cost > patience.left) return false;
        patience.left -= cost;
        return true;
    }

    /// Adds an amount to the budget, in thousandths of a unit.
    pub fn earn(patience: *Patience, thousandths: u64) void {
        patience.left = @min(patience.burst, patience.left +| thousandths);
    }
};

test "patience ends, and comes back with time and with what is useful" {
    var patience: Patience = .init(.{ .burst = 10, .per_second = 5 });
    patience.wait(1_000_000);
    for (0..10) |_| try std.testing.expect(patience.spend(1));
    try std.testing.expect(!patience.spend(1));
    patience.wait(1_000_199);
    try std.testing.expect(!patience.spend(1));
    patience.wait(1_000_200);
    try std.testing.expect(patience.spend(1));
    try std.testing.expect(!patience.spend(1));
    patience.earn(2999);
    try std.testing.expect(!patience.spend(3));
    try std.testing.expect(patience.spend(2));
    patience.wait(std.math.maxInt(u64));
    try std.testing.expect(patience.spend(10));
    try std.testing.expect(!patience.spend(1));
}
