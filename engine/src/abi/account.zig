//! The figures of one group of interpreters at its engine, and how logs name the group. Does not know: why a
//! request is refused.
const std = @import("std");
const peregrine = @import("peregrine");
const GroupName = @import("group_name.zig").GroupName;
const types = @import("types.zig");

/// An account never moves once its engine's thread runs.
pub const Account = struct {
    name: GroupName = .{},
    /// The number of requests that were refused, in memory that other processes may read. The engine alone
    /// writes it.
    refused: ?*u64 = null,
    /// Refusals, for one line a second of each group and cause.
    told: peregrine.Refused = .initFill(.{}),
    /// Responses that the engine holds for the group, and the bytes that wait to be sent with these.
    held: u32 = 0,
    held_bytes: usize = 0,

    pub fn of(wanted: *const types.Interpreters) Account {
        const name = if (wanted.name) |text| std.mem.span(text) else "";
        return .{ .name = .init(name), .refused = wanted.refused };
    }

    pub fn countRefusal(account: *const Account) void {
        const word = account.refused orelse return;
        @atomicStore(u64, word, @atomicLoad(u64, word, .monotonic) +% 1, .monotonic);
    }
};
