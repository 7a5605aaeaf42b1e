//! The name of a group of interpreters, for logs: bounded, and of harmless bytes, whatever C gives. Does not
//! know: groups.
const std = @import("std");
const bytes_max = @import("peregrine").api_limits.group_name_bytes_max;

/// Empty: the group has no name.
pub const GroupName = struct {
    bytes: [bytes_max]u8 = undefined,
    len: u8 = 0,

    /// Bytes that a log would escape are percent-encoded, as in a URL. A longer text is cut at its end.
    pub fn init(text: []const u8) GroupName {
        var name: GroupName = .{};
        for (text) |byte| {
            var buffer: [3]u8 = undefined;
            const piece = if (isHarmless(byte))
                &[1]u8{byte}
            else
                std.fmt.bufPrint(&buffer, "%{x:0>2}", .{byte}) catch unreachable;
            if (piece.len > name.bytes.len - name.len) break;
            @memcpy(name.bytes[name.len..][0..piece.len], piece);
            name.len += @intCast(piece.len);
        }
        std.debug.assert(name.len <= bytes_max);
        return name;
    }

    pub fn slice(name: *const GroupName) []const u8 {
        return name.bytes[0..name.len];
    }

    fn isHarmless(byte: u8) bool {
        return byte > ' ' and byte <= '~' and byte != '"' and byte != '\\' and byte != '%';
    }
};

test "bytes that a log would escape are percent-encoded, and a long name is cut between them" {
    const testing = std.testing;
    try testing.expectEqualStrings("", GroupName.init("").slice());
    try testing.expectEqualStrings("example.org/shop", GroupName.init("example.org/shop").slice());
    try testing.expectEqualStrings("/a%20%22%5c%25%0a%c3%a4", GroupName.init("/a \"\\%\n\xc3\xa4").slice());
    const long: [bytes_max - 1]u8 = @splat('x');
    try testing.expectEqualStrings(&long, GroupName.init(&long ++ " x").slice());
    try testing.expectEqualStrings(&long ++ "x", GroupName.init(&long ++ "xyz").slice());
}
