//! Fuzz target `proxy`: the header parser against a second one that is written the plain way and sees all of
//! the input, and against itself with every prefix.
const std = @import("std");
const proxy = @import("protocol").proxy;
const testing = std.testing;

pub fn run(input: []const u8) !void {
    const verdict = proxy.parse(input);
    try expectPlain(input, verdict);
    switch (verdict) {
        .need_more => try testing.expect(input.len < proxy.bytes_max),
        .header => |header| {
            try testing.expect(header.len <= @min(input.len, proxy.bytes_max));
            try expectPrefixes(input, header.len, verdict);
        },
        .malformed => try expectPrefixes(input, @min(input.len, proxy.bytes_max), verdict),
    }
}

/// Shorter inputs ask for more until the verdict is there, and then it stays.
fn expectPrefixes(input: []const u8, enough: usize, verdict: proxy.Verdict) !void {
    try testing.expectEqualDeep(verdict, proxy.parse(input[0..enough]));
    var decided = false;
    for (0..enough) |len| {
        const early = proxy.parse(input[0..len]);
        if (early == .need_more) {
            try testing.expect(!decided);
            continue;
        }
        decided = true;
        try testing.expectEqualDeep(verdict, early);
    }
}

const signature = "\r\n\r\n\x00\r\nQUIT\n";

fn expectPlain(input: []const u8, verdict: proxy.Verdict) !void {
    if (std.mem.startsWith(u8, input, "PROXY ")) {
        const end = std.mem.find(u8, input, "\r\n") orelse return testing.expect(verdict != .header);
        if (std.mem.findScalar(u8, input[0..end], '\n') != null or end + 2 > proxy.bytes_max) {
            return testing.expect(verdict == .malformed);
        }
        return expectLine(input[0..end], verdict);
    }
    if (!std.mem.startsWith(u8, input, signature) or input.len < 16) {
        return testing.expect(verdict != .header);
    }
    const command = input[12];
    const family = input[13];
    if ((command != 0x20 and command != 0x21) or family & 0xf0 > 0x30 or family & 0x0f > 2) {
        return testing.expect(verdict == .malformed);
    }
    const len = @as(usize, input[14]) * 256 + input[15];
    const size: usize = if (command == 0x20) 0 else if (family == 0x11) 12 else if (family == 0x21) 36 else 0;
    if (len < size) return testing.expect(verdict == .malformed);
    if (input.len < 16 + size) return testing.expect(verdict == .need_more);
    try testing.expectEqual(16 + size, verdict.header.len);
    try testing.expectEqual(len - size, verdict.header.rest);
    try testing.expectEqual(size > 0, verdict.header.ends != null);
    const ends = verdict.header.ends orelse return;
    const ports = input[16 + size - 4 ..];
    try testing.expectEqual(@as(u16, ports[0]) * 256 + ports[1], ends.source.port);
    try testing.expectEqual(@as(u16, ports[2]) * 256 + ports[3], ends.destination.port);
    switch (ends.source.address) {
        inline else => |*bytes| try testing.expectEqualSlices(u8, input[16..][0..bytes.len], bytes),
    }
    switch (ends.destination.address) {
        inline else => |*bytes| try testing.expectEqualSlices(
            u8,
            input[16 + bytes.len ..][0..bytes.len],
            bytes,
        ),
    }
}

/// A line that is written again from its parsed values is the same, but for the spelling of IPv6.
fn expectLine(text: []const u8, verdict: proxy.Verdict) !void {
    const header = switch (verdict) {
        .header => |header| header,
        .malformed => return,
        .need_more => return error.TestUnexpectedResult,
    };
    try testing.expectEqual(text.len + 2, header.len);
    try testing.expectEqual(0, header.rest);
    const ends = header.ends orelse return testing.expect(std.mem.startsWith(u8, text, "PROXY UNKNOWN"));
    const ports = .{ ends.source.port, ends.destination.port };
    var buffer: [128]u8 = undefined;
    if (ends.source.address == .v4) {
        const a = ends.source.address.v4;
        const b = ends.destination.address.v4;
        const again = try std.fmt.bufPrint(
            &buffer,
            "PROXY TCP4 {d}.{d}.{d}.{d} {d}.{d}.{d}.{d} {d} {d}",
            .{ a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3] } ++ ports,
        );
        return testing.expectEqualStrings(text, again);
    }
    const ending = try std.fmt.bufPrint(&buffer, " {d} {d}", ports);
    try testing.expect(std.mem.startsWith(u8, text, "PROXY TCP6 ") and std.mem.endsWith(u8, text, ending));
}
