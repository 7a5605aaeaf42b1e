//! Wire fixtures for the PROXY protocol: the first bytes of a connection, and what they say. Each
//! fixture runs at every split point: until the verdict is there more bytes are asked for, and what
//! follows it changes nothing.
const std = @import("std");
const proxy = @import("protocol").proxy;
const testing = std.testing;

/// `says`: "source > destination", "own", or "malformed: why"; `rest`: bytes to be skipped.
const Fixture = struct { wire: []const u8, says: []const u8, len: usize = 0, rest: u16 = 0 };

fn times(comptime byte: u8, comptime count: usize) [count]u8 {
    return @splat(byte);
}

const v2 = "\r\n\r\n\x00\r\nQUIT\n";
const loopback = "\x7f\x00\x00\x01\x7f\x00\x00\x01\x30\x39\x01\xbb";
const loopback6 = times(0, 15) ++ "\x01" ++ "\x20\x01\x0d\xb8" ++ times(0, 11) ++ "\x02" ++
    "\xff\xff\x00\x00";

fn line(comptime text: []const u8, comptime says: []const u8) Fixture {
    return .{ .wire = text ++ "\r\n", .says = says, .len = text.len + 2 };
}

fn bad(comptime text: []const u8, comptime why: []const u8) Fixture {
    return .{ .wire = text, .says = "malformed: " ++ why };
}

const no_addresses = "the line of version 1 has no valid addresses";

const fixtures = [_]Fixture{
    // Version 1.
    line("PROXY TCP4 192.0.2.1 198.51.100.2 56324 443", "192.0.2.1:56324 > 198.51.100.2:443"),
    line("PROXY TCP4 255.255.255.255 0.0.0.0 65535 0", "255.255.255.255:65535 > 0.0.0.0:0"),
    line("PROXY TCP6 2001:db8::1 ::1 1 2", "2001:db8::1:1 > ::1:2"),
    line(
        "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 " ++
            "65535",
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff:65535 > ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff:65535",
    ),
    line("PROXY UNKNOWN", "own"),
    line("PROXY UNKNOWN whatever it thinks \x01 it knows", "own"),
    line("PROXY UNKNOWN " ++ times('x', 91), "own"),
    bad("PROXY UNKNOWN " ++ times('x', 93), "the line of version 1 does not end"),
    bad("PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\n", "the line of version 1 does not end with CR LF"),
    bad("PROXY \n", "the line of version 1 does not end with CR LF"),
    bad("PROXY \r\n", no_addresses),
    bad("PROXY TCP4\r\n", no_addresses),
    bad("PROXY TCP4 192.0.2.1 198.51.100.2 56324\r\n", no_addresses),
    bad("PROXY TCP4 192.0.2.1 198.51.100.2 56324 443 1\r\n", no_addresses),
    bad("PROXY TCP4 192.0.2.1 198.51.100.2 56324 443 \r\n", no_addresses),
    bad("PROXY TCP4  192.0.2.1 198.51.100.2 56324 443\r\n", no_addresses),
    bad("PROXY TCP4 192.0.2.1 198.51.100.2 056324 443\r\n", no_addresses),
    bad("PROXY TCP4 192.0.2.1 198.51.100.2 65536 443\r\n", no_addresses),
    bad("PROXY TCP4 192.0.2.1 198.51.100.2 -1 443\r\n", no_addresses),
    bad("PROXY TCP4 192.0.2.01 198.51.100.2 1 443\r\n", no_addresses),
    bad("PROXY TCP4 192.0.2 198.51.100.2 1 443\r\n", no_addresses),
    bad("PROXY TCP4 ::1 ::1 1 2\r\n", no_addresses),
    bad("PROXY TCP6 192.0.2.1 198.51.100.2 1 2\r\n", no_addresses),
    bad("PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", no_addresses),
    bad("PROXY tcp4 192.0.2.1 198.51.100.2 1 2\r\n", no_addresses),
    bad("PROXY UDP4 192.0.2.1 198.51.100.2 1 2\r\n", no_addresses),
    bad("PROXY\tTCP4", "there is no header"),
    bad("GET / HTTP/1.1\r\n", "there is no header"),
    bad("POST / HTTP/1.1\r\n", "there is no header"),
    bad("\x16\x03\x01", "there is no header"),
    // Version 2.
    .{ .wire = v2 ++ "\x21\x11\x00\x0c" ++ loopback, .says = "127.0.0.1:12345 > 127.0.0.1:443", .len = 28 },
    .{
        .wire = v2 ++ "\x21\x11\x00\x10" ++ loopback ++ "\x04\x00\x01x",
        .says = "127.0.0.1:12345 > 127.0.0.1:443",
        .len = 28,
        .rest = 4,
    },
    .{
        .wire = v2 ++ "\x21\x11\xff\xff" ++ loopback,
        .says = "127.0.0.1:12345 > 127.0.0.1:443",
        .len = 28,
        .rest = 65_523,
    },
    .{ .wire = v2 ++ "\x21\x21\x00\x24" ++ loopback6, .says = "::1:65535 > 2001:db8::2:0", .len = 52 },
    .{ .wire = v2 ++ "\x20\x00\x00\x00", .says = "own", .len = 16 },
    .{ .wire = v2 ++ "\x20\x11\x00\x0c" ++ loopback, .says = "own", .len = 16, .rest = 12 },
    .{ .wire = v2 ++ "\x21\x00\x00\x05abcde", .says = "own", .len = 16, .rest = 5 },
    .{ .wire = v2 ++ "\x21\x12\x00\x0c" ++ loopback, .says = "own", .len = 16, .rest = 12 },
    .{ .wire = v2 ++ "\x21\x31\x00\xd8" ++ times(0, 216), .says = "own", .len = 16, .rest = 216 },
    bad(v2 ++ "\x21\x11\x00\x0b" ++ loopback, "version 2 is too short for its addresses"),
    bad(v2 ++ "\x21\x21\x00\x23" ++ loopback6, "version 2 is too short for its addresses"),
    bad(v2 ++ "\x31", "version 2 has an unknown version or command"),
    bad(v2 ++ "\x11\x11\x00\x0c" ++ loopback, "version 2 has an unknown version or command"),
    bad(v2 ++ "\x22\x11\x00\x0c" ++ loopback, "version 2 has an unknown version or command"),
    bad(v2 ++ "\x21\x41\x00\x0c" ++ loopback, "version 2 has an unknown address family or transport"),
    bad(v2 ++ "\x21\x13\x00\x0c" ++ loopback, "version 2 has an unknown address family or transport"),
    bad("\r\nGET / HTTP/1.1\r\n", "there is no header"),
};

fn render(verdict: proxy.Verdict, writer: *std.Io.Writer) !void {
    switch (verdict) {
        .need_more => try writer.writeAll("need more"),
        .malformed => |why| try writer.print("malformed: {s}", .{why}),
        .header => |header| if (header.ends) |ends| {
            try endpoint(ends.source, writer);
            try writer.writeAll(" > ");
            try endpoint(ends.destination, writer);
        } else try writer.writeAll("own"),
    }
}

fn endpoint(end: proxy.Endpoint, writer: *std.Io.Writer) !void {
    switch (end.address) {
        .v4 => |bytes| try writer.print("{d}.{d}.{d}.{d}", .{ bytes[0], bytes[1], bytes[2], bytes[3] }),
        .v6 => |bytes| {
            const address: std.Io.net.Ip6Address.Unresolved = .{ .bytes = bytes, .interface_name = null };
            try address.format(writer);
        },
    }
    try writer.print(":{d}", .{end.port});
}

test "every fixture, at every split point" {
    for (fixtures) |fixture| {
        errdefer std.debug.print("fixture: {f}\n", .{std.ascii.hexEscape(fixture.wire, .lower)});
        var decided = false;
        for (0..fixture.wire.len + 1) |len| {
            const verdict = proxy.parse(fixture.wire[0..len]);
            if (verdict == .need_more) {
                try testing.expect(!decided);
                try testing.expect(len < proxy.bytes_max);
                continue;
            }
            decided = true;
            try expectSays(fixture, verdict);
        }
        try testing.expect(decided);
        // The bytes behind a header do not belong to it.
        var longer: [512]u8 = undefined;
        @memcpy(longer[0..fixture.wire.len], fixture.wire);
        for ([_][]const u8{ "GET / HTTP/1.1\r\n\r\n", "\r\n", "\x00" }) |more| {
            @memcpy(longer[fixture.wire.len..][0..more.len], more);
            try expectSays(fixture, proxy.parse(longer[0 .. fixture.wire.len + more.len]));
        }
    }
}

fn expectSays(fixture: Fixture, verdict: proxy.Verdict) !void {
    var buffer: [256]u8 = undefined;
    var writer: std.Io.Writer = .fixed(&buffer);
    try render(verdict, &writer);
    try testing.expectEqualStrings(fixture.says, writer.buffered());
    if (verdict != .header) return;
    try testing.expectEqual(fixture.len, verdict.header.len);
    try testing.expectEqual(fixture.rest, verdict.header.rest);
}
