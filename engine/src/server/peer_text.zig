//! The address of a peer as text, which its connection keeps. Does not know: the form of addresses.
const std = @import("std");
const assert = std.debug.assert;
const AddressText = @import("address_text.zig").AddressText;

/// A numeric address; empty for Unix sockets. Each idle connection has one, so only IPv4 addresses fit it; a
/// longer text lies in memory of its own.
pub const PeerText = struct {
    len: u8 = 0,
    /// The text with a NUL behind it, or a pointer to a longer text.
    bytes: [short_max + 1]u8 = @splat(0),

    const short_max = "255.255.255.255".len;

    comptime {
        assert(@sizeOf(*AddressText) <= short_max + 1);
    }

    /// Replaces the text by a copy of `value`. On an error the text is empty.
    pub fn set(text: *PeerText, gpa: std.mem.Allocator, value: []const u8) error{OutOfMemory}!void {
        text.clear(gpa);
        if (value.len <= short_max) {
            @memcpy(text.bytes[0..value.len], value);
            text.bytes[value.len] = 0;
            text.len = @intCast(value.len);
        } else {
            const long = try gpa.create(AddressText);
            long.set(value);
            std.mem.bytesAsValue(*AddressText, text.bytes[0..@sizeOf(*AddressText)]).* = long;
            text.len = long.len;
        }
    }

    /// Frees the memory of a long text, and empties the text.
    pub fn clear(text: *PeerText, gpa: std.mem.Allocator) void {
        if (text.longOne()) |long| gpa.destroy(long);
        text.* = .{};
    }

    /// The text, with a NUL behind it for C.
    pub fn slice(text: *const PeerText) [:0]const u8 {
        if (text.longOne()) |long| return long.slice();
        return text.bytes[0..text.len :0];
    }

    fn longOne(text: *const PeerText) ?*AddressText {
        if (text.len <= short_max) return null;
        return std.mem.bytesToValue(*AddressText, text.bytes[0..@sizeOf(*AddressText)]);
    }
};

test "an address of any length is kept, and the next one takes its place" {
    const gpa = std.testing.allocator;
    var text: PeerText = .{};
    defer text.clear(gpa);
    try std.testing.expectEqualStrings("", text.slice());
    const texts = .{
        "192.0.2.1",
        "2001:db8:1234:5678:9abc:def0:1234:5678",
        "2001:db8:1:2::3:4",
        "255.255.255.255",
        "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255",
        "::1",
    };
    inline for (texts) |one| {
        try text.set(gpa, one);
        try std.testing.expectEqualStrings(one, text.slice());
        try std.testing.expectEqual(0, text.slice().ptr[one.len]);
    }
    try std.testing.expectError(error.OutOfMemory, text.set(std.testing.failing_allocator, texts[1]));
    try std.testing.expectEqualStrings("", text.slice());
}
