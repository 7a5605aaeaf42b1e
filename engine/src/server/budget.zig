//! The bytes that a worker hands to its host in one round of its loop, counted after decoding: heads, bodies
//! without their chunks, messages inflated. The budget bounds the memory of a batch of events, and the time
//! that other connections wait. Does not know: connections, and what a host does with the bytes.
const std = @import("std");
const assert = std.debug.assert;

/// The bytes that a round may still hand to the host.
pub const Budget = struct {
    /// Below 0 once the last thing that was handed over cost more than there was.
    left: i64 = 0,
    /// No large message was handed over in this round.
    large_left: bool = true,

    /// Added to the bytes of each event: the cost of an empty event for a host, in time as much as in memory.
    pub const event_bytes = 512;
    /// Like `event_bytes`, for each piece of a body: several become one event where they can.
    pub const piece_bytes = 64;
    pub const large_bytes = @import("config.zig").worker_limits.large_message_bytes;
    /// The cost of a byte of compressed input, in bytes of output: a block that describes its own codes takes
    /// long to read, and need not put out anything.
    pub const compressed_factor = 16;

    /// A round begins. Half of it is for lanes that earlier rounds had no room for.
    pub fn begin(budget: *Budget, round_bytes: u32) void {
        budget.* = .{ .left = round_bytes / 2 };
    }

    /// Adds the second half of a round's bytes, for those that come now.
    pub fn proceed(budget: *Budget, round_bytes: u32) void {
        budget.left += round_bytes - round_bytes / 2;
    }

    /// Whether everything else waits for the next round.
    pub fn isSpent(budget: *const Budget) bool {
        return budget.left <= 0;
    }

    /// The end of a connection's turn that begins now: when it has had a part of the round, or the round is
    /// spent.
    pub fn turn(budget: *const Budget, round_bytes: u32) i64 {
        return @max(budget.left - round_bytes / turns, 0);
    }

    const turns = 16;

    /// Whether a turn is over.
    pub fn isOver(budget: *const Budget, end: i64) bool {
        return budget.left <= end;
    }

    /// Counts work, or bytes of an event.
    pub fn charge(budget: *Budget, bytes: u64) void {
        budget.left -= std.math.lossyCast(i32, bytes);
    }

    /// Whether a message of this length may be handed over in this round.
    pub fn takesMessage(budget: *const Budget, bytes: usize) bool {
        return !budget.isSpent() and (bytes <= large_bytes or budget.large_left);
    }

    /// A message was handed over. What a large one costs beyond the bound is paid by the next one, which
    /// waits: small events need not.
    pub fn chargeMessage(budget: *Budget, bytes: usize) void {
        assert(bytes <= large_bytes or budget.large_left);
        if (bytes > large_bytes) budget.large_left = false;
        budget.charge(event_bytes + @min(bytes, large_bytes));
    }
};

test "a round's bytes are bounded, and a large message a round is let through" {
    const testing = std.testing;
    var budget: Budget = .{};
    budget.begin(2001);
    try testing.expect(!budget.isSpent() and budget.takesMessage(1 << 30));
    budget.charge(1000);
    try testing.expect(budget.isSpent() and !budget.takesMessage(0));
    budget.proceed(2001);
    budget.chargeMessage(1 << 30);
    try testing.expect(budget.isSpent());
    budget.begin(1600);
    const turn = budget.turn(1600);
    budget.charge(99);
    try testing.expect(!budget.isOver(turn));
    budget.charge(1);
    try testing.expect(budget.isOver(turn) and !budget.isSpent());
    budget.begin(1 << 20);
    budget.chargeMessage(1 << 30);
    try testing.expect(!budget.takesMessage(1 << 30) and budget.takesMessage(Budget.large_bytes));
    budget.charge(std.math.maxInt(u64));
    try testing.expect(budget.isSpent());
}

test "a round is spent with its last byte, in both of its halves" {
    const testing = std.testing;
    try testing.expect((Budget{}).isSpent());
    var budget: Budget = .{};
    budget.begin(2001);
    budget.charge(999);
    try testing.expect(!budget.isSpent());
    budget.charge(1);
    try testing.expect(budget.isSpent());
    budget.proceed(2001);
    budget.charge(1000);
    try testing.expect(!budget.isSpent());
    budget.charge(1);
    try testing.expect(budget.isSpent());
}

test "a message costs its bytes and those of an event" {
    const testing = std.testing;
    var budget: Budget = .{};
    budget.begin(2048);
    budget.chargeMessage(511);
    try testing.expect(!budget.isSpent());
    budget.begin(2048);
    budget.chargeMessage(512);
    try testing.expect(budget.isSpent());
}

test "only what is longer than 64 KiB is large" {
    const testing = std.testing;
    var budget: Budget = .{};
    budget.begin(1 << 20);
    budget.chargeMessage(0);
    budget.chargeMessage(64 * 1024);
    try testing.expect(budget.takesMessage(64 * 1024 + 1));
    budget.chargeMessage(64 * 1024 + 1);
    try testing.expect(!budget.takesMessage(64 * 1024 + 1));
}

test "a turn ends with the round if that is nearer" {
    const testing = std.testing;
    var budget: Budget = .{};
    budget.begin(1600);
    budget.charge(750);
    const turn = budget.turn(1600);
    budget.charge(49);
    try testing.expect(!budget.isOver(turn));
    budget.charge(1);
    try testing.expect(budget.isOver(turn));
}
