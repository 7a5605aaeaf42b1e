//! The figures of one group of interpreters at its engine, and how logs name the group. Does not know: why a
//! request is refused.
const std = @import("std");
const assert = std.debug.assert;
const hub = @import("hub");
const peregrine = @import("peregrine");
const GroupName = @import("group_name.zig").GroupName;
const types = @import("types.zig");

/// The account of a group. Seats and held responses point to it, so it does not move while an engine runs.
pub const Account = struct {
    name: GroupName = .{},
    /// The number of requests that were refused, in memory that other processes may read. The engine alone
    /// writes it.
    refused: ?*u64 = null,
    /// Refusals of which no log line has told yet: each group and cause gets at most one line a second.
    told: peregrine.Refused = .initFill(.{}),
    /// Responses that the engine holds for the group, and the bytes that wait to be sent with these.
    held: u32 = 0,
    held_bytes: usize = 0,
    /// Wishes about topics that the hub has yet to answer.
    asked: u32 = 0,
    /// The prefix of the names of topics that exchanges of the group may read.
    topics: [hub.limits.name_bytes_max]u8 = undefined,
    topics_len: u8 = 0,

    pub fn of(wanted: *const types.Interpreters) Account {
        const name = if (wanted.name) |text| std.mem.span(text) else "";
        var account: Account = .{ .name = .init(name), .refused = wanted.refused };
        const topics = if (wanted.topics) |text| std.mem.span(text) else "";
        assert(topics.len <= account.topics.len); // peregrine_add_group() has refused longer ones
        @memcpy(account.topics[0..topics.len], topics);
        account.topics_len = @intCast(topics.len);
        return account;
    }

    pub fn topicsOf(account: *const Account) []const u8 {
        return account.topics[0..account.topics_len];
    }

    /// Whether exchanges of the group may read a topic.
    pub fn mayRead(account: *const Account, topic: []const u8) bool {
        return std.mem.startsWith(u8, topic, account.topicsOf());
    }

    pub fn countRefusal(account: *const Account) void {
        const word = account.refused orelse return;
        @atomicStore(u64, word, @atomicLoad(u64, word, .monotonic) +% 1, .monotonic);
    }
};
