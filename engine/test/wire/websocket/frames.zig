//! Autobahn classes 1 (framing), 2 (pings and pongs), 3 (reserved bits), 4 (opcodes) and 5 (fragmentation).
const std = @import("std");
const harness = @import("harness.zig");
const Case = harness.Case;
const Seen = harness.Seen;

const long_125: [125]u8 = @splat('*');
const long_126: [126]u8 = @splat('*');
const long_65535: [65535]u8 = @splat('*');
const long_65536: [65536]u8 = @splat(0xfe);
const all_bytes: [256]u8 = table: {
    var table: [256]u8 = undefined;
    for (&table, 0..) |*byte, n| byte.* = n;
    break :table table;
};

const framing = [_]Case{
    .{ .name = "1.1.1 empty text", .frames = &.{.{ .op = .text }}, .expect = &.{.{ .text = "" }} },
    .{
        .name = "1.1.2 125 bytes",
        .frames = &.{.{ .op = .text, .payload = &long_125 }},
        .expect = &.{.{ .text = &long_125 }},
    },
    .{
        .name = "1.1.3 126 bytes",
        .frames = &.{.{ .op = .text, .payload = &long_126 }},
        .expect = &.{.{ .text = &long_126 }},
    },
    .{
        .name = "1.1.6 65535 bytes",
        .frames = &.{.{ .op = .text, .payload = &long_65535 }},
        .expect = &.{.{ .text = &long_65535 }},
    },
    .{ .name = "1.2.1 empty binary", .frames = &.{.{ .op = .binary }}, .expect = &.{.{ .binary = "" }} },
    .{
        .name = "1.2.4 every byte",
        .frames = &.{.{ .op = .binary, .payload = &all_bytes }},
        .expect = &.{.{ .binary = &all_bytes }},
    },
    .{
        .name = "1.2.7 65536 bytes",
        .frames = &.{.{ .op = .binary, .payload = &long_65536 }},
        .expect = &.{.{ .binary = &long_65536 }},
    },
    .{
        .name = "length not minimal, 16 bits",
        .raw = "\x82\xfe\x00\x7d\x01\x02\x03\x04",
        .expect = &.{.{ .fail = 1002 }},
        .fails_at = 8,
    },
    .{
        .name = "length not minimal, 64 bits",
        .raw = "\x82\xff\x00\x00\x00\x00\x00\x00\xff\xff\x01\x02\x03\x04",
        .expect = &.{.{ .fail = 1002 }},
        .fails_at = 14,
    },
    .{
        .name = "length with the highest bit",
        .raw = "\x82\xff\x80\x00\x00\x00\x00\x00\x00\x00\x01\x02\x03\x04",
        .expect = &.{.{ .fail = 1002 }},
        .fails_at = 14,
    },
    .{
        .name = "a frame that is not masked",
        .frames = &.{.{ .op = .text, .payload = "x", .masked = false }},
        .expect = &.{.{ .fail = 1002 }},
        .fails_at = 2,
    },
    .{
        .name = "a ping that is not masked",
        .frames = &.{ .{ .op = .text, .payload = "x" }, .{ .op = .ping, .masked = false } },
        .expect = &.{ .{ .text = "x" }, .{ .fail = 1002 } },
    },
};

const pings = [_]Case{
    .{ .name = "2.1 empty", .frames = &.{.{ .op = .ping }}, .expect = &.{.{ .ping = "" }} },
    .{
        .name = "2.3 binary payload",
        .frames = &.{.{ .op = .ping, .payload = "\x00\xff\xfe" }},
        .expect = &.{.{ .ping = "\x00\xff\xfe" }},
    },
    .{
        .name = "2.4 125 bytes",
        .frames = &.{.{ .op = .ping, .payload = &long_125 }},
        .expect = &.{.{ .ping = &long_125 }},
    },
    .{
        .name = "2.5 126 bytes",
        .frames = &.{.{ .op = .ping, .payload = &long_126 }},
        .expect = &.{.{ .fail = 1002 }},
        .fails_at = 8,
    },
    .{ .name = "2.7 pong out of the blue", .frames = &.{.{ .op = .pong }}, .expect = &.{.{ .pong = "" }} },
    .{
        .name = "2.9 pong, then ping",
        .frames = &.{ .{ .op = .pong, .payload = "a" }, .{ .op = .ping, .payload = "b" } },
        .expect = &.{ .{ .pong = "a" }, .{ .ping = "b" } },
    },
    .{
        .name = "2.10 ten pings",
        .frames = &@as([10]harness.Frame, @splat(.{ .op = .ping, .payload = "p" })),
        .expect = &@as([10]Seen, @splat(.{ .ping = "p" })),
    },
};

const fragments = [_]Case{
    .{
        .name = "5.1 fragmented ping",
        .frames = &.{
            .{ .op = .ping, .fin = false, .payload = "a" }, .{ .op = .continuation, .payload = "b" },
        },
        .expect = &.{.{ .fail = 1002 }},
        .fails_at = 6,
    },
    .{
        .name = "5.2 fragmented pong",
        .frames = &.{.{ .op = .pong, .fin = false, .payload = "a" }},
        .expect = &.{.{ .fail = 1002 }},
    },
    .{
        .name = "5.3 text in two",
        .frames = &.{
            .{ .op = .text, .fin = false, .payload = "one" }, .{ .op = .continuation, .payload = "two" },
        },
        .expect = &.{.{ .text = "onetwo" }},
    },
    .{
        .name = "5.6 a ping in between",
        .frames = &.{
            .{ .op = .text, .fin = false, .payload = "one" },
            .{ .op = .ping, .payload = "now" },
            .{ .op = .continuation, .payload = "two" },
        },
        .expect = &.{ .{ .ping = "now" }, .{ .text = "onetwo" } },
    },
    .{
        .name = "5.9 nothing to continue",
        .frames = &.{ .{ .op = .continuation, .payload = "x" }, .{ .op = .text, .payload = "never seen" } },
        .expect = &.{.{ .fail = 1002 }},
        .fails_at = 6,
    },
    .{
        .name = "5.12 nothing to continue, not final",
        .frames = &.{.{ .op = .continuation, .fin = false, .payload = "x" }},
        .expect = &.{.{ .fail = 1002 }},
    },
    .{
        .name = "5.15 a continuation too many",
        .frames = &.{
            .{ .op = .text, .fin = false, .payload = "a" }, .{ .op = .continuation, .payload = "b" },
            .{ .op = .continuation, .payload = "c" },       .{ .op = .text, .payload = "d" },
        },
        .expect = &.{ .{ .text = "ab" }, .{ .fail = 1002 } },
    },
    .{
        .name = "5.18 a message within a message",
        .frames = &.{ .{ .op = .text, .fin = false, .payload = "a" }, .{ .op = .text, .payload = "b" } },
        .expect = &.{.{ .fail = 1002 }},
        .fails_at = 7 + 6,
    },
    .{
        .name = "5.19 five fragments, two pings",
        .frames = &.{
            .{ .op = .binary, .fin = false, .payload = "1" },
            .{ .op = .continuation, .fin = false, .payload = "2" },
            .{ .op = .ping, .payload = "x" },
            .{ .op = .continuation, .fin = false, .payload = "3" },
            .{ .op = .continuation, .fin = false, .payload = "4" },
            .{ .op = .ping, .payload = "y" },
            .{ .op = .continuation, .payload = "5" },
        },
        .expect = &.{ .{ .ping = "x" }, .{ .ping = "y" }, .{ .binary = "12345" } },
    },
    .{
        .name = "6.1.2 empty fragments",
        .frames = &.{
            .{ .op = .text, .fin = false }, .{ .op = .continuation, .fin = false }, .{ .op = .continuation },
        },
        .expect = &.{.{ .text = "" }},
    },
    .{
        .name = "6.1.3 empty fragments around a full one",
        .frames = &.{
            .{ .op = .text, .fin = false },
            .{ .op = .continuation, .fin = false, .payload = "m" },
            .{ .op = .continuation },
        },
        .expect = &.{.{ .text = "m" }},
    },
};

test "1 framing" {
    for (framing) |case| try harness.run(case);
}

test "2 pings and pongs" {
    for (pings) |case| try harness.run(case);
}

test "3 every combination of reserved bits, with and without deflate" {
    for ([_]bool{ false, true }) |agreed| for (1..8) |rsv| {
        const bits: u3 = @intCast(rsv);
        for ([_]harness.Frame{
            .{ .op = .text, .rsv = bits, .payload = "\x00" },
            .{ .op = .binary, .rsv = bits, .payload = "\x00" },
            .{ .op = .ping, .rsv = bits },
            .{ .op = .close, .rsv = bits },
        }) |bad| {
            const compressed = agreed and rsv == 4 and !bad.op.isControl();
            const seen: Seen = if (!compressed)
                .{ .fail = 1002 }
            else if (bad.op == .text)
                .{ .text = "" }
            else
                .{ .binary = "" };
            try harness.run(.{
                .name = "3.*",
                .frames = &.{ .{ .op = .text, .payload = "before" }, bad },
                .expect = &.{ .{ .text = "before" }, seen },
                .deflate = agreed,
            });
        }
        try harness.run(.{
            .name = "3.* on a continuation",
            .frames = &.{
                .{ .op = .text, .fin = false, .payload = "a" }, .{ .op = .continuation, .rsv = bits },
            },
            .expect = &.{.{ .fail = 1002 }},
            .deflate = agreed,
        });
    };
}

test "4 every reserved opcode" {
    for ([_]u4{ 3, 4, 5, 6, 7, 11, 12, 13, 14, 15 }) |opcode| {
        const bad: harness.Frame = .{ .op = @fromBackingInt(@intCast(opcode)), .payload = "x" };
        try harness.run(.{
            .name = "4.*",
            .frames = &.{bad},
            .expect = &.{.{ .fail = 1002 }},
            .fails_at = 6,
        });
        try harness.run(.{
            .name = "4.* after a message",
            .frames = &.{ .{ .op = .text, .payload = "before" }, bad, .{ .op = .ping } },
            .expect = &.{ .{ .text = "before" }, .{ .fail = 1002 } },
        });
    }
}

test "5 fragmentation" {
    for (fragments) |case| try harness.run(case);
}
