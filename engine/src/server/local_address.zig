//! The local address of a connection. Nearly all connections of a listener have the same local address, and
//! share it.
const std = @import("std");
const assert = std.debug.assert;
const AddressText = @import("address_text.zig").AddressText;

/// A numeric address and a port, with the number of their users.
pub const LocalAddress = struct {
    text: AddressText,
    port: u16,
    users: u32 = 1,

    /// Returns the address for a new user, who ends its use with `leave`. `latest` has the address of the
    /// latest connection, and counts as a user. On an error nothing has changed.
    pub fn share(
        latest: *?*LocalAddress,
        gpa: std.mem.Allocator,
        text: []const u8,
        port: u16,
    ) error{OutOfMemory}!*LocalAddress {
        const known = latest.* orelse return renew(latest, gpa, text, port);
        if (known.port != port or !std.mem.eql(u8, known.text.slice(), text)) {
            return renew(latest, gpa, text, port);
        }
        known.users += 1;
        return known;
    }

    fn renew(
        latest: *?*LocalAddress,
        gpa: std.mem.Allocator,
        text: []const u8,
        port: u16,
    ) error{OutOfMemory}!*LocalAddress {
        const address = try gpa.create(LocalAddress);
        address.* = .{ .text = .empty, .port = port, .users = 2 };
        address.text.set(text);
        leave(latest, gpa);
        latest.* = address;
        return address;
    }

    /// Ends a user's use of the address. The last user frees it.
    pub fn leave(user: *?*LocalAddress, gpa: std.mem.Allocator) void {
        const address = user.* orelse return;
        assert(address.users > 0);
        user.* = null;
        address.users -= 1;
        if (address.users == 0) gpa.destroy(address);
    }
};

test "connections share an address until another one comes, and the last of its users frees it" {
    const gpa = std.testing.allocator;
    var latest: ?*LocalAddress = null;
    var users: [4]?*LocalAddress = undefined;
    for (&users, [_]u16{ 80, 80, 81, 80 }) |*user, port| {
        user.* = try LocalAddress.share(&latest, gpa, "192.0.2.1", port);
    }
    try std.testing.expectEqual(users[0], users[1]);
    try std.testing.expectEqual(81, users[2].?.port);
    try std.testing.expectEqual(80, users[3].?.port);
    try std.testing.expect(users[3] != users[0]);
    try std.testing.expectEqual(latest, users[3]);
    for (&users) |*user| LocalAddress.leave(user, gpa);
    try std.testing.expectEqual(1, latest.?.users);
    LocalAddress.leave(&latest, gpa);
    LocalAddress.leave(&latest, gpa);
}

test "an address that finds no memory leaves the latest one as it is" {
    const gpa = std.testing.allocator;
    var latest: ?*LocalAddress = null;
    defer LocalAddress.leave(&latest, gpa);
    var user: ?*LocalAddress = try .share(&latest, gpa, "192.0.2.1", 80);
    defer LocalAddress.leave(&user, gpa);
    try std.testing.expectError(
        error.OutOfMemory,
        LocalAddress.share(&latest, std.testing.failing_allocator, "192.0.2.2", 80),
    );
    try std.testing.expectEqual(user, latest);
}
