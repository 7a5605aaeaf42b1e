//! Autobahn classes 9 (big messages, many fragments) and 10 (miscellaneous), and what happens at the limits.
const std = @import("std");
const harness = @import("harness.zig");

const kib = 1024;
const text: [64 * kib]u8 = @splat('C');
const big: [1024 * kib]u8 = @splat('B');

test "9.1, 9.2 one frame of 64 KiB and of 1 MiB" {
    try harness.run(.{
        .name = "9.1.1",
        .frames = &.{.{ .op = .text, .payload = &text }},
        .expect = &.{.{ .text = &text }},
    });
    try harness.run(.{
        .name = "9.2.3",
        .frames = &.{.{ .op = .binary, .payload = big[0..kib], .times = kib }},
        .expect = &.{.{ .binary = &big }},
    });
}

test "9.3, 9.4 fragments of 64 bytes and of 4 KiB" {
    for ([_]usize{ 64, 4 * kib }) |size| {
        var frames: [kib]harness.Frame = undefined;
        const count = text.len / size;
        for (frames[0..count], 0..) |*frame, n| frame.* = .{
            .op = if (n == 0) .text else .continuation,
            .fin = n + 1 == count,
            .payload = text[0..size],
        };
        try harness.run(.{ .name = "9.3", .frames = frames[0..count], .expect = &.{.{ .text = &text }} });
    }
}

test "10.1 a message in fragments that do not divide it" {
    const size = 1300;
    var frames: [text.len / size + 1]harness.Frame = undefined;
    for (&frames, 0..) |*frame, n| frame.* = .{
        .op = if (n == 0) .text else .continuation,
        .fin = n + 1 == frames.len,
        .payload = text[n * size .. @min(text.len, (n + 1) * size)],
    };
    try harness.run(.{ .name = "10.1.1", .frames = &frames, .expect = &.{.{ .text = &text }} });
}

test "a frame at its limit and one byte more" {
    const at: harness.Case = .{
        .name = "frame limit",
        .frames = &.{.{ .op = .binary, .payload = big[0..1000] }},
        .frame_bytes_max = 1000,
        .expect = &.{.{ .binary = big[0..1000] }},
    };
    try harness.run(at);
    var over = at;
    over.frame_bytes_max = 999;
    over.expect = &.{.{ .fail = 1009 }};
    over.fails_at = 8; // the header says it all
    try harness.run(over);
}

test "a message at its limit and one byte more" {
    const frames = [_]harness.Frame{
        .{ .op = .text, .fin = false, .payload = text[0..100] },
        .{ .op = .continuation, .fin = false, .payload = text[0..100] },
        .{ .op = .continuation, .payload = text[0..100] },
    };
    const at: harness.Case = .{
        .name = "message limit",
        .frames = &frames,
        .message_bytes_max = 300,
        .expect = &.{.{ .text = text[0..300] }},
    };
    try harness.run(at);
    var over = at;
    over.message_bytes_max = 299;
    over.expect = &.{.{ .fail = 1009 }};
    over.fails_at = 3 * 6 + 200;
    try harness.run(over);
}

test "a frame of 2^63 - 1 bytes is refused before any of them" {
    try harness.run(.{
        .name = "the longest frame",
        .raw = "\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x01\x02\x03\x04",
        .expect = &.{.{ .fail = 1009 }},
        .fails_at = 14,
    });
}
