//! Autobahn class 6 (UTF-8): what is valid, and that what is not is known at its first impossible byte.
const std = @import("std");
const harness = @import("harness.zig");

/// Header of a short masked frame.
const header = 6;

const valid = [_][]const u8{
    "Hello-\u{b5}@\u{df}\u{f6}\u{e4}\u{fc}\u{e0}\u{e1}-UTF-8!!", // 6.2
    "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5", // 6.5
    "\x00",      "\u{80}",     "\u{800}",  "\u{10000}", // 6.6, 6.7
    "\x7f",      "\u{7ff}",    "\u{ffff}", "\u{10ffff}",
    "\u{d7ff}",  "\u{e000}",   "\u{fffd}",
    // 6.22: not characters, but code points
    "\u{fffe}",
    "\u{1fffe}", "\u{10fffe}",
};

/// Text and the index of its first impossible byte; null: it only ends too early.
const Bad = struct { []const u8, ?usize };
const invalid = [_]Bad{
    .{ "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited", 12 }, // 6.3: a surrogate
    // 6.4: past the last code point
    .{ "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80edited", 12 },
    .{ "\xf8\x88\x80\x80\x80", 0 }, // 6.8: five bytes
    .{ "\xf7\xbf\xbf\xbf", 0 }, // 6.9
    .{ "\x80", 0 }, // 6.11
    .{ "\x80\xbf\x80\xbf", 0 }, // 6.12
    .{ "\xc0\x20\xc1\x20", 0 }, // 6.13
    .{ "\xe1\x20", 1 },
    .{ "\xce", null }, // 6.14
    .{ "\xe1\xbd", null },
    .{ "\xf0\x90\x80", null },
    .{ "\xfe", 0 }, // 6.16
    .{ "a\xff", 1 },
    .{ "\xc0\xaf", 0 }, // 6.17 to 6.19: overlong
    .{ "\xe0\x80\xaf", 1 },
    .{ "\xf0\x80\x80\xaf", 1 },
    .{ "\xe0\x9f\xbf", 1 },
    .{ "\xf0\x8f\xbf\xbf", 1 },
    .{ "\xed\xa0\x80\xed\xb0\x80", 1 }, // 6.20, 6.21
    .{ "\xed\xbf\xbf", 1 },
};

test "6 valid texts, whole and a byte a fragment" {
    for (valid) |text| {
        try harness.run(.{
            .name = text,
            .frames = &.{.{ .op = .text, .payload = text }},
            .expect = &.{.{ .text = text }},
        });
        var frames: [64]harness.Frame = undefined;
        for (text, frames[0..text.len], 0..) |*byte, *frame, n| frame.* = .{
            .op = if (n == 0) .text else .continuation,
            .fin = n + 1 == text.len,
            .payload = byte[0..1],
        };
        try harness.run(.{ .name = text, .frames = frames[0..text.len], .expect = &.{.{ .text = text }} });
    }
}

test "6 invalid texts fail at the byte that makes them so" {
    for (invalid) |bad| {
        const index = bad[1] orelse bad[0].len - 1;
        try harness.run(.{
            .name = bad[0],
            .frames = &.{ .{ .op = .text, .payload = bad[0] }, .{ .op = .ping } },
            .expect = &.{.{ .fail = 1007 }},
            .fails_at = header + index + 1,
        });
        // The text comes in two fragments that meet before the bad byte.
        if (bad[1] != null) try harness.run(.{
            .name = bad[0],
            .frames = &.{
                .{ .op = .text, .fin = false, .payload = bad[0][0..index] },
                .{ .op = .continuation, .fin = false, .payload = bad[0][index..] },
            },
            .expect = &.{.{ .fail = 1007 }},
            .fails_at = header + index + header + 1,
        });
    }
}

test "binary messages may hold anything" {
    for (invalid) |bad| try harness.run(.{
        .name = bad[0],
        .frames = &.{.{ .op = .binary, .payload = bad[0] }},
        .expect = &.{.{ .binary = bad[0] }},
    });
}

test "a ping between the bytes of a character" {
    try harness.run(.{
        .name = "6 and 5.6",
        .frames = &.{
            .{ .op = .text, .fin = false, .payload = "\xe2\x82" },
            .{ .op = .ping },
            .{ .op = .continuation, .payload = "\xac" },
        },
        .expect = &.{ .{ .ping = "" }, .{ .text = "\u{20ac}" } },
    });
}
