//! The word by which a host knows an exchange. Does not know: what a host's word means.
const std = @import("std");
const assert = std.debug.assert;

/// A value that the host has set, or `unheard`.
pub const HostWord = enum(usize) {
    /// The host has not written its word, or has taken it back.
    none = 0,
    _,

    /// An address that no host can have. `unheard` is its value.
    const mark: u64 = 0;

    /// The word of an exchange of which the host hears nothing, because the engine answers it or has yet to
    /// announce it.
    pub inline fn unheard() HostWord {
        return @fromBackingInt(@intFromPtr(&mark));
    }

    pub inline fn of(address: ?*anyopaque) HostWord {
        return @fromBackingInt(@intFromPtr(address));
    }

    /// The pointer that the host has set; null: it has set none, or hears nothing of the exchange.
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
