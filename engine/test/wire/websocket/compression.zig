//! Autobahn classes 12 and 13 (permessage-deflate): streams made by zlib at every window size, fragmented and
//! split anywhere; what is corrupt; bombs; and our own output read back.
const std = @import("std");
const websocket = @import("protocol").websocket;
const harness = @import("harness.zig");
const vectors = @import("zlib_vectors.zig");
const Deflater = websocket.deflate.Deflater;
const gpa = std.testing.allocator;

const text_sizes = [3]usize{ 700, 1500, 90 };

/// The plain text of message `seed` (1..3) of every set. The same in Python, where the vectors come from: a
/// linear congruence x = (x * 1103515245 + 12345) mod 2^31 from x = seed; a word by (x >> 16) mod 16; then,
/// if (x >> 20) mod 5 = 0, x mod 2^16.
fn writeText(seed: u31, out: []u8) void {
    const words = [16][]const u8{
        "alpha", "beta",  "gamma",  "delta", "epsilon", "zeta", "eta",     "theta",
        "iota",  "kappa", "lambda", "mu",    "nu",      "xi",   "omicron", "pi",
    };
    var buffer: [2048]u8 = undefined;
    var writer: std.Io.Writer = .fixed(&buffer);
    var x = seed;
    while (writer.end < out.len) {
        x = x *% 1103515245 +% 12345;
        writer.print("{s} ", .{words[(x >> 16) % 16]}) catch unreachable;
        if ((x >> 20) % 5 == 0) writer.print("{d} ", .{x & 0xFFFF}) catch unreachable;
    }
    @memcpy(out, buffer[0..out.len]);
}

fn decode(arena: std.mem.Allocator, lines: []const u8) ![]u8 {
    var text: std.ArrayList(u8) = .empty;
    for (lines) |char| if (char != '\n') try text.append(arena, char);
    const decoder = std.base64.standard.Decoder;
    const out = try arena.alloc(u8, try decoder.calcSizeForSlice(text.items));
    try decoder.decode(out, text.items);
    return out;
}

test "12, 13 what zlib sends, at every window size" {
    var plain: [3][1500]u8 = undefined;
    var seen: [3]harness.Seen = undefined;
    for (&plain, &seen, text_sizes, 1..) |*buffer, *event, size, seed| {
        writeText(@intCast(seed), buffer[0..size]);
        event.* = .{ .text = buffer[0..size] };
    }
    for (vectors.sets) |set| {
        var arena: std.heap.ArenaAllocator = .init(gpa);
        defer arena.deinit();
        var frames: std.ArrayList(harness.Frame) = .empty;
        for (set.messages, 0..) |lines, n| {
            const bytes = try decode(arena.allocator(), lines);
            // The second message in three fragments, of which one is empty; RSV1 is on the first only.
            const cut = if (n == 1) bytes.len / 3 else bytes.len;
            try frames.append(
                arena.allocator(),
                .{ .op = .text, .rsv = 4, .fin = n != 1, .payload = bytes[0..cut] },
            );
            if (n != 1) continue;
            try frames.append(arena.allocator(), .{ .op = .continuation, .fin = false });
            try frames.append(arena.allocator(), .{ .op = .continuation, .payload = bytes[cut..] });
        }
        try harness.run(.{
            .name = set.name,
            .frames = frames.items,
            .expect = &seen,
            .deflate = true,
            .takeover = set.takeover,
            .window_bits = set.window_bits,
        });
    }
}

const hello = "\xf2\x48\xcd\xc9\xc9\x07\x00";

test "compressed and plain messages may alternate" {
    try harness.run(.{
        .name = "RSV1 is per message",
        .frames = &.{
            .{ .op = .text, .rsv = 4, .payload = hello },
            .{ .op = .text, .payload = "plain" },
            .{ .op = .text, .rsv = 4, .payload = "\xf2\x00\x11\x00\x00" }, // a match into the first
        },
        .expect = &.{ .{ .text = "Hello" }, .{ .text = "plain" }, .{ .text = "Hello" } },
        .deflate = true,
    });
}

test "a ping within a compressed message" {
    try harness.run(.{
        .name = "RFC 7692 section 6.1",
        .frames = &.{
            .{ .op = .text, .rsv = 4, .fin = false, .payload = hello[0..3] },
            .{ .op = .ping, .payload = "p" },
            .{ .op = .continuation, .payload = hello[3..] },
        },
        .expect = &.{ .{ .ping = "p" }, .{ .text = "Hello" } },
        .deflate = true,
    });
}

test "messages that do not inflate, or not to text" {
    const bad = [_][]const u8{
        "\x06", // no such block
        "", // not even an empty message
        hello[0..4], // cut short
        "\xf2\x00\x11\x00\x00", // a match into a history that is not there
        "\x00\x02\x00\xfd\xff\xc3\x28\x00", // stored, not UTF-8
        "\x00\x01\x00\xfe\xff\xc3\x00", // stored, ends within a character
    };
    for (bad) |payload| try harness.run(.{
        .name = "corrupt",
        .frames = &.{.{ .op = .text, .rsv = 4, .payload = payload }},
        .expect = &.{.{ .fail = 1007 }},
        .deflate = true,
    });
}

test "a bomb is stopped at the limit, and a message that fits exactly is not" {
    const size = 200_000;
    const zeros = try gpa.alloc(u8, size);
    defer gpa.free(zeros);
    @memset(zeros, 0);
    const memory = try gpa.alignedAlloc(u8, .of(u16), Deflater.memoryBytes(15));
    defer gpa.free(memory);
    const out = try gpa.alloc(u8, Deflater.outputBytesMax(size));
    defer gpa.free(out);
    var deflater: Deflater = .init(memory, 15, false);
    const bomb = out[0..deflater.deflate(zeros, true, out)];
    try std.testing.expect(bomb.len < size / 200);
    const fits: harness.Case = .{
        .name = "bomb",
        .frames = &.{.{ .op = .binary, .rsv = 4, .payload = bomb }},
        .expect = &.{.{ .binary = zeros }},
        .deflate = true,
        .message_bytes_max = size,
    };
    try harness.run(fits);
    var over = fits;
    over.message_bytes_max = size - 1;
    over.expect = &.{.{ .fail = 1009 }};
    try harness.run(over);
}

test "an endless row of empty blocks counts against the limit, though nothing comes out" {
    try harness.run(.{
        .name = "empty blocks",
        .frames = &.{
            .{ .op = .binary, .rsv = 4, .fin = false, .payload = "\x00\x00\x00\xff\xff", .times = 200 },
            .{ .op = .continuation, .fin = false, .payload = "\x00\x00\x00\xff\xff", .times = 200 },
        },
        .expect = &.{.{ .fail = 1009 }},
        .deflate = true,
        .message_bytes_max = 100,
    });
}

test "messages that we send, fragment by fragment, read back at every window size" {
    var plain: [1500]u8 = undefined;
    writeText(2, &plain);
    const memory = try gpa.alignedAlloc(u8, .of(u16), Deflater.memoryBytes(15));
    defer gpa.free(memory);
    const room = comptime 2 * Deflater.outputBytesMax(1500);
    for (8..16) |bits| for ([_]bool{ true, false }) |takeover| {
        const window_bits: u4 = @intCast(bits);
        var deflater: Deflater = .init(memory[0..Deflater.memoryBytes(window_bits)], window_bits, takeover);
        var frames: [6]harness.Frame = undefined;
        var seen: [3]harness.Seen = undefined;
        var at: usize = 0;
        var buffers: [3][room]u8 = undefined;
        for (&seen, &buffers) |*event, *buffer| {
            const first = deflater.deflate(plain[0..600], false, buffer);
            const second = deflater.deflate(plain[600..], true, buffer[first..]);
            frames[at] = .{ .op = .text, .rsv = 4, .fin = false, .payload = buffer[0..first] };
            frames[at + 1] = .{ .op = .continuation, .payload = buffer[first..][0..second] };
            at += 2;
            event.* = .{ .text = &plain };
        }
        try harness.run(.{
            .name = "our own",
            .frames = &frames,
            .expect = &seen,
            .deflate = true,
            .takeover = takeover,
            .window_bits = window_bits,
        });
    };
}
