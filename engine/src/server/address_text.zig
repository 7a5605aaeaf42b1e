//! A numeric address as text, with room for the longest. Does not know: what an address is.
/// A numeric address (at most "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255"); empty for Unix sockets.
pub const AddressText = struct {
    len: u8,
    bytes: [46:0]u8,

    pub const empty: AddressText = .{ .len = 0, .bytes = @splat(0) };

    /// Keeps a copy, cut at the longest address.
    pub fn set(text: *AddressText, value: []const u8) void {
        text.len = @intCast(@min(value.len, text.bytes.len));
        @memcpy(text.bytes[0..text.len], value[0..text.len]);
        text.bytes[text.len] = 0;
    }

    /// The text, with a NUL behind it for C.
    pub fn slice(text: *const AddressText) [:0]const u8 {
        return text.bytes[0..text.len :0];
    }
};
