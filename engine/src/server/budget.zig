//! The bytes that a worker hands to its host in one round of its loop, counted after decoding: heads, bodies
//! without their chunks, messages inflated. The budget bounds the memory of a batch of events, and the time
//! that other connections wait. Does not know: connections, and what a host does with the bytes.
const std = @import("std");
const assert = std.debug.assert;

pub const Budget = struct {
    /// Bytes left in this round. Negative once an event cost more than what was left.
    left: i64 = 0,
    /// Whether this round may still hand over a large message.
    large_left: bool = true,

    /// The cost of an event beside its bytes: a host spends time and memory on an empty event, too.
    pub const event_bytes = 512;
    /// The cost of a piece of a body beside its bytes. It is less than `event_bytes`, because several pieces
    /// can become one event.
    pub const piece_bytes = 64;
    pub const large_bytes = @import("config.zig").worker_limits.large_message_bytes;
    /// The cost of a byte of compressed input, in bytes of output: a block that describes its own codes takes
    /// long to read, and may put out nothing.
    pub const compressed_factor = 16;

    /// Begins a round with half of its bytes, for lanes that earlier rounds had no room for.
    pub fn begin(budget: *Budget, round_bytes: u32) void {
        budget.* = .{ .left = round_bytes / 2 };
    }

    /// Adds the other half of a round's bytes, for input that comes in this round.
    pub fn proceed(budget: *Budget, round_bytes: u32) void {
        budget.left += round_bytes - round_bytes / 2;
    }

    /// Whether the round's bytes are used up, so that further events wait for the next round.
    pub fn isSpent(budget: *const Budget) bool {
        return budget.left <= 0;
    }

    /// The value of `left` at which a connection's turn ends: its share of the round is used up, or the
    /// round's bytes are.
    pub fn turn(budget: *const Budget, round_bytes: u32) i64 {
        return @max(budget.left - round_bytes / turns, 0);
    }

    const turns = 16;

    /// Whether the turn that ends at `end` is over.
    pub fn isOver(budget: *const Budget, end: i64) bool {
        return budget.left <= end;
    }

    /// Counts the bytes or the cost of an event.
    pub fn charge(budget: *Budget, bytes: u64) void {
        budget.left -= std.math.lossyCast(i32, bytes);
    }

    /// Whether a message of this length may be handed over in this round.
    pub fn takesMessage(budget: *const Budget, bytes: usize) bool {
        return !budget.isSpent() and (bytes <= large_bytes or budget.large_left);
    }

    /// Counts a message that was handed over. A large message counts only `large_bytes`; in exchange, further
    /// large messages wait for the next round, and small events need not wait.
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
