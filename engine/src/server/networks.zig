//! Lists of networks whose peers a server trusts.
//! Does not know: the statements of these peers.
const std = @import("std");
const assert = std.debug.assert;
const io = @import("io");

/// A list of networks. Peers on Unix sockets can belong to it, too.
pub const Networks = struct {
    gpa: std.mem.Allocator,
    items: []const Network = &.{},
    unix: bool = false,

    const Network = struct { bytes: [16]u8, bits: u8 };

    /// A fault in the text of a list: `len` bytes from `at` on, and the reason.
    pub const Fault = struct { at: usize = 0, len: usize = 0, reason: [:0]const u8 = "" };

    /// Reasons why a list cannot be used.
    pub const ParseError = error{ OutOfMemory, BadNetwork };

    /// Reads a list such as "10.0.0.0/8, 192.0.2.1, fd00::/8, unix". After BadNetwork `fault` has the bad
    /// network and the reason.
    pub fn parse(gpa: std.mem.Allocator, text: []const u8, fault: *Fault) ParseError!Networks {
        var list: std.ArrayList(Network) = .empty;
        errdefer list.deinit(gpa);
        var unix = false;
        var words = std.mem.tokenizeAny(u8, text, ", \t");
        while (words.next()) |word| {
            if (std.mem.eql(u8, word, "unix")) {
                unix = true;
                continue;
            }
            const network = switch (parseOne(word)) {
                .network => |network| network,
                .fault => |reason| {
                    fault.* = .{ .at = words.index - word.len, .len = word.len, .reason = reason };
                    return error.BadNetwork;
                },
            };
            try list.append(gpa, network);
        }
        return .{ .gpa = gpa, .items = try list.toOwnedSlice(gpa), .unix = unix };
    }

    pub fn deinit(networks: *Networks) void {
        networks.gpa.free(networks.items);
        networks.* = undefined;
    }

    fn parseOne(word: []const u8) union(enum) { network: Network, fault: [:0]const u8 } {
        const slash = std.mem.findScalar(u8, word, '/');
        const address = io.Address.parse(word[0 .. slash orelse word.len], 0) catch
            return .{ .fault = "is no IPv4 or IPv6 address" };
        const bytes, const offset: u8 = switch (address) {
            .v4 => |v4| .{ mapped(v4.bytes), 96 },
            .v6 => |v6| .{ v6.bytes, 0 },
            .unix => unreachable, // parse reads IP addresses
        };
        const length = if (slash) |at| std.fmt.parseInt(u8, word[at + 1 ..], 10) else 128 - offset;
        const bits = length catch return .{ .fault = "has no valid prefix length" };
        if (bits > 128 - offset) return .{ .fault = "has no valid prefix length" };
        const network: Network = .{ .bytes = bytes, .bits = offset + bits };
        if (number(bytes) & ~mask(network.bits) != 0) return .{ .fault = "has bits beyond its prefix" };
        return .{ .network = network };
    }

    /// Whether an address belongs to a network of the list. An IPv4 address that came over an IPv6 socket
    /// ("::ffff:192.0.2.1") counts as IPv4.
    pub fn contains(networks: *const Networks, address: *const io.Address) bool {
        const bytes = switch (address.*) {
            .v4 => |v4| mapped(v4.bytes),
            .v6 => |v6| v6.bytes,
            .unix => return networks.unix,
        };
        for (networks.items) |network| {
            if ((number(bytes) ^ number(network.bytes)) & mask(network.bits) == 0) return true;
        }
        return false;
    }

    /// IPv4 addresses as IPv6 addresses in ::ffff:0:0/96 (RFC 4291 section 2.5.5.2), so "::/0" contains them.
    fn mapped(bytes: [4]u8) [16]u8 {
        const prefix: [12]u8 = .{ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
        return prefix ++ bytes;
    }

    fn number(bytes: [16]u8) u128 {
        return std.mem.readInt(u128, &bytes, .big);
    }

    fn mask(bits: u8) u128 {
        assert(bits <= 128);
        return if (bits == 0) 0 else @as(u128, std.math.maxInt(u128)) << @intCast(128 - bits);
    }
};

const testing = std.testing;

fn expectMembers(list: []const u8, inside: []const []const u8, outside: []const []const u8) !void {
    var fault: Networks.Fault = .{};
    var networks: Networks = try .parse(testing.allocator, list, &fault);
    defer networks.deinit();
    for (inside) |text| try testing.expect(networks.contains(&try .parse(text, 80)));
    for (outside) |text| try testing.expect(!networks.contains(&try .parse(text, 80)));
}

test "members of networks" {
    try expectMembers("", &.{}, &.{ "127.0.0.1", "::1" });
    try expectMembers(
        "10.0.0.0/8",
        &.{ "10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3" },
        &.{ "11.0.0.0", "9.255.255.255", "::a00:0" },
    );
    try expectMembers(
        "192.0.2.1,fd00::/8",
        &.{ "192.0.2.1", "fd12::1" },
        &.{ "192.0.2.2", "fc00::1", "::1" },
    );
    try expectMembers("0.0.0.0/0", &.{ "1.2.3.4", "::ffff:1.2.3.4" }, &.{ "::1", "2001:db8::1" });
    try expectMembers("::/0", &.{ "::1", "1.2.3.4" }, &.{});
    try expectMembers(
        "2001:db8::/33 , ::1",
        &.{ "2001:db8:7fff::1", "::1" },
        &.{ "2001:db8:8000::1", "::2" },
    );
}

test "Unix sockets are members by name" {
    var fault: Networks.Fault = .{};
    const peer: io.Address = .{ .unix = .{ .buffer = @splat(0), .length = 0 } };
    for ([_][]const u8{ "unix", "10.0.0.0/8, unix", "::/0" }, [_]bool{ true, true, false }) |list, expected| {
        var networks: Networks = try .parse(testing.allocator, list, &fault);
        defer networks.deinit();
        try testing.expectEqual(expected, networks.contains(&peer));
    }
}

test "an error names the text that is no network" {
    for ([_]struct { []const u8, usize, []const u8 }{
        .{ "localhost", 0, "is no IPv4 or IPv6 address" },
        .{ "10.0.0.0/8, 1.2.3", 12, "is no IPv4 or IPv6 address" },
        .{ "/8", 0, "is no IPv4 or IPv6 address" },
        .{ "10.0.0.0/33", 0, "has no valid prefix length" },
        .{ "10.0.0.0/", 0, "has no valid prefix length" },
        .{ "::/129", 0, "has no valid prefix length" },
        .{ "10.0.0.1/8", 0, "has bits beyond its prefix" },
        .{ "fd00::1/8", 0, "has bits beyond its prefix" },
    }) |case| {
        var fault: Networks.Fault = .{};
        try testing.expectError(error.BadNetwork, Networks.parse(testing.allocator, case[0], &fault));
        try testing.expectEqual(case[1], fault.at);
        try testing.expectEqualStrings(case[2], fault.reason);
    }
}
