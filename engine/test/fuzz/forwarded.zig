//! Fuzz target `forwarded`: what a client writes into X-Forwarded-For and Forwarded never hides what
//! its proxy adds behind it; and the trail, which goes from the left to the right, against a walk in
//! the other direction.
const std = @import("std");
const proxy = @import("protocol").proxy;
const forwarded = proxy.forwarded;
const testing = std.testing;

const hops_max = 256;

pub fn run(input: []const u8) !void {
    try expectTrail(input, forwarded.ForHops);
    try expectTrail(input, forwarded.Hops);
    try expectAdded(input, forwarded.ForHops, "192.0.2.1:80", null);
    try expectAdded(input, forwarded.Hops, "for=\"192.0.2.1:80\";proto=https", true);
    try expectAdded(input, forwarded.Hops, "by=\"[::1]\";for=192.0.2.1:80", null);
}

/// Half of all addresses are trusted here.
fn isTrusted(hop: forwarded.Hop) bool {
    return switch (hop.from) {
        .address => |from| switch (from.address) {
            inline else => |bytes| bytes[bytes.len - 1] & 1 == 0,
        },
        .hidden, .malformed => false,
    };
}

fn expectTrail(input: []const u8, comptime Hops: type) !void {
    var hops: [hops_max]forwarded.Hop = undefined;
    var count: usize = 0;
    var trail: forwarded.Trail = .{};
    var it: Hops = .init(input);
    while (it.next()) |hop| : (count += 1) {
        if (count == hops.len) return;
        hops[count] = hop;
        trail.add(hop, isTrusted(hop));
    }
    try testing.expect(count <= input.len);

    var client: ?proxy.Endpoint = null;
    var secure: ?bool = null;
    while (count > 0) : (count -= 1) {
        const hop = hops[count - 1];
        if (hop.from == .malformed) break;
        if (hop.secure) |said| secure = said;
        if (hop.from == .hidden) break;
        client = hop.from.address;
        if (!isTrusted(hop)) break;
    }
    try testing.expectEqualDeep(client, trail.client);
    try testing.expectEqual(secure, trail.secure);
}

fn expectAdded(input: []const u8, comptime Hops: type, comptime added: []const u8, secure: ?bool) !void {
    const value = try std.mem.concat(std.heap.smp_allocator, u8, &.{ input, ", ", added });
    defer std.heap.smp_allocator.free(value);
    var last: ?forwarded.Hop = null;
    var it: Hops = .init(value);
    while (it.next()) |hop| last = hop;
    const expected: forwarded.Hop = .{
        .from = .{ .address = .{ .address = .{ .v4 = .{ 192, 0, 2, 1 } }, .port = 80 } },
        .secure = secure,
    };
    try testing.expectEqualDeep(expected, last.?);
}
