//! The word by which a host knows an exchange. Does not know: what a host's word means.
const std = @import("std");
const assert = std.debug.assert;

/// A value of the host's, or `unheard`.
pub const HostWord = enum(usize) {
    /// The host has not written its word, or has taken it back.
    none = 0,
    _,

    /// Of this address `unheard` is made: no host can have a pointer to it.
    const mark: u64 = 0;

    /// The engine answers the exchange, or has yet to announce it: its host hears nothing of it.
    pub inline fn unheard() HostWord {
        return @fromBackingInt(@intFromPtr(&mark));
    }

    pub inline fn of(address: ?*anyopaque) HostWord {
        return @fromBackingInt(@intFromPtr(address));
    }

    /// The pointer that the host has written; null: it has not, or hears nothing of the exchange.
    pub inline fn pointer(word: HostWord) ?*anyopaque {
        return if (word == unheard()) null else @ptrFromInt(@backingInt(word));
    }
};

test "a word has its host's pointer or none" {
    var thing: u8 = 0;
    try std.testing.expectEqual(@as(?*anyopaque, &thing), HostWord.of(&thing).pointer());
    try std.testing.expectEqual(null, HostWord.none.pointer());
    try std.testing.expectEqual(null, HostWord.of(null).pointer());
    try std.testing.expectEqual(null, HostWord.unheard().pointer());
    try std.testing.expect(HostWord.unheard() != .none);
}
