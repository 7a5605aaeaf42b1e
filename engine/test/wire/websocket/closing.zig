//! Autobahn class 7 (closing).
const std = @import("std");
const harness = @import("harness.zig");

const reason_123: [123]u8 = @splat('*');

fn closeFrame(buffer: *[125]u8, code: u16, reason: []const u8) harness.Frame {
    std.mem.writeInt(u16, buffer[0..2], code, .big);
    @memcpy(buffer[2..][0..reason.len], reason);
    return .{ .op = .close, .payload = buffer[0 .. 2 + reason.len] };
}

test "7.1 nothing is read after a close frame" {
    try harness.run(.{
        .name = "7.1.1 to 7.1.5",
        .frames = &.{
            .{ .op = .text, .fin = false, .payload = "never complete" },
            .{ .op = .close },
            .{ .op = .continuation, .payload = "x" },
            .{ .op = .ping },
            .{ .op = .close },
        },
        .expect = &.{.{ .close = .{ 1005, "" } }},
    });
}

test "7.3 payloads of every length" {
    var buffer: [125]u8 = undefined;
    const Close = struct { code: u16, reason: []const u8 };
    for ([_]Close{
        .{ .code = 1000, .reason = "" },
        .{ .code = 1000, .reason = "Hello World!" },
        .{ .code = 1000, .reason = &reason_123 },
        .{ .code = 1000, .reason = "\u{20ac}" },
    }) |close| try harness.run(.{
        .name = "7.3.3 to 7.3.5",
        .frames = &.{closeFrame(&buffer, close.code, close.reason)},
        .expect = &.{.{ .close = .{ close.code, close.reason } }},
    });
    try harness.run(.{
        .name = "7.3.2 one byte",
        .frames = &.{.{ .op = .close, .payload = "\x03" }},
        .expect = &.{.{ .fail = 1002 }},
        .fails_at = 6,
    });
    try harness.run(.{
        .name = "7.3.6 too long",
        .frames = &.{.{ .op = .close, .payload = "\x03\xe8" ++ reason_123 ++ "*" }},
        .expect = &.{.{ .fail = 1002 }},
    });
}

test "7.5 a reason that is not UTF-8" {
    try harness.run(.{
        .name = "7.5.1",
        .frames = &.{.{
            .op = .close,
            .payload = "\x03\xe8\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
        }},
        .expect = &.{.{ .fail = 1007 }},
    });
    try harness.run(.{
        .name = "a reason cut within a character",
        .frames = &.{.{ .op = .close, .payload = "\x03\xe8\xe2\x82" }},
        .expect = &.{.{ .fail = 1007 }},
    });
}

test "7.7, 7.9, 7.13 every code there is" {
    var buffer: [125]u8 = undefined;
    // All low ones, and the borders of the rest.
    var code: u32 = 0;
    while (code <= 0xFFFF) : (code += if (code < 1100 or code % 1000 >= 998 or code % 1000 < 2) 1 else 83) {
        const legal = switch (code) {
            1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014 => true,
            3000...4999 => true,
            else => false,
        };
        const seen: harness.Seen = if (legal) .{ .close = .{ @intCast(code), "" } } else .{ .fail = 1002 };
        try harness.run(.{
            .name = "7.7, 7.9",
            .frames = &.{closeFrame(&buffer, @intCast(code), "")},
            .expect = &.{seen},
        });
    }
}
