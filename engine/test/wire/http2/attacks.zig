//! Attacks by which a client makes the server work: each attack ends its connection, or makes no more work
//! per byte that it sends than honest requests do. RFC 9113 section 10.5, CVE-2019-9511 to 9518,
//! CVE-2023-44487 (rapid reset), CVE-2024-27316 (CONTINUATION), CVE-2025-8671 (made you reset).
//!
//! Work is counted in bytes: what is decoded, what is answered, and so much for each step and for each
//! request that somebody is told of.
const std = @import("std");
const b = @import("bytes.zig");
const harness = @import("harness.zig");
const frame = @import("protocol").http2.frame;
const session_file = @import("protocol").http2.session;
const Harness = harness.Harness;
const flag = b.flag;
const testing = std.testing;

/// The bytes for which each step of the session counts, and each request in addition.
const step_bytes = 16;
const request_bytes = 500;

/// A flood is over when so much was sent without an end.
const flood_bytes = 4 << 20;

/// Bytes for a client that takes its time: a hundred megabits per second.
const bytes_per_ms = 12_500;

/// A connection under fire.
const Target = struct {
    h: Harness,
    received: usize = 0,
    answered: usize = 0,
    next: u32 = 1,
    out: [64 * 1024]u8 = undefined,

    fn open(t: *Target, with: *const session_file.Config) !void {
        t.* = .{ .h = undefined };
        const room_bytes = session_file.roomBytes(with);
        const is_large = room_bytes > t.h.room.len;
        const large: session_file.Room = if (is_large)
            try testing.allocator.alignedAlloc(u8, .of(u64), room_bytes)
        else
            &.{};
        t.h.init(with, large);
        errdefer t.close();
        t.h.quiet = true;
        t.h.releases = .at_once;
        try t.h.feed(b.hello ++ b.window(0, 1 << 30));
        t.h.sent.clearRetainingCapacity();
        t.h.events = 0;
    }

    fn close(t: *Target) void {
        if (t.h.large_room.len > 0) testing.allocator.free(t.h.large_room);
        t.h.deinit();
    }

    fn work(t: *const Target) usize {
        const decoded = t.h.session.decoder.copied + t.received;
        return decoded + t.answered + t.h.events * step_bytes + t.h.requests * request_bytes;
    }

    /// Sends bytes; false: the connection has ended.
    fn send(t: *Target, bytes: []const u8) !bool {
        t.received += bytes.len;
        t.h.session.wait(1_000_000 + t.received / bytes_per_ms);
        try t.h.feed(bytes);
        try t.h.emitAll(1 << 20);
        t.answered += t.h.sent.items.len;
        t.h.sent.clearRetainingCapacity();
        return !t.h.failed;
    }

    fn sendFrame(t: *Target, kind: frame.Kind, flags: u8, stream: u32, payload: []const u8) !bool {
        return t.send(b.write(kind, flags, stream, payload, &t.out));
    }

    /// Opens the next stream with a block; its number.
    fn request(t: *Target, flags: u8, block: []const u8) !u32 {
        const stream = t.next;
        t.next += 2;
        _ = try t.sendFrame(.headers, flags | flag.end_headers, stream, block);
        return stream;
    }

    fn answer(t: *Target, stream: u32, content: []const u8) !void {
        const response: session_file.Response = .{ .status = 200, .content = content, .end = true };
        var out: [2048]u8 = undefined;
        const started = try t.h.session.start(stream, response, &out);
        t.answered += started.len;
        try t.h.emitAll(1 << 20);
        t.answered += t.h.sent.items.len;
        t.h.sent.clearRetainingCapacity();
    }

    fn perByte(t: *const Target) usize {
        return t.work() / t.received;
    }
};

/// The work that an honest client makes for each of its bytes.
fn honest() !usize {
    var t: Target = undefined;
    try t.open(&harness.config);
    defer t.close();
    while (t.received < flood_bytes / 16) {
        try t.answer(try t.request(flag.end_stream, b.get_block), "hello");
    }
    try testing.expect(!t.h.failed);
    return t.perByte();
}

/// Sends the same frames again and again until the connection ends or much was sent, and looks at the price.
fn flood(name: []const u8, comptime once: fn (t: *Target) anyerror!void, must_end: bool) !void {
    errdefer std.debug.print("{s}\n", .{name});
    var t: Target = undefined;
    try t.open(&harness.config);
    defer t.close();
    while (!t.h.failed and t.received < flood_bytes) {
        once(&t) catch |err| if (!t.h.failed) return err;
    }
    errdefer std.debug.print("{d} bytes, {d} work\n", .{ t.received, t.work() });
    if (must_end) try testing.expect(t.h.failed);
    try testing.expect(t.perByte() <= try honest());
}

const attacks = struct {
    fn rapidReset(t: *Target) !void {
        const stream = try t.request(flag.end_stream, b.get_block);
        _ = try t.sendFrame(.rst_stream, 0, stream, "\x00\x00\x00\x08");
    }

    fn madeYouResetByWindow(t: *Target) !void {
        const stream = try t.request(flag.end_stream, b.get_block);
        _ = try t.sendFrame(.window_update, 0, stream, "\x00\x00\x00\x00");
    }

    fn madeYouResetByOverflow(t: *Target) !void {
        const stream = try t.request(flag.end_stream, b.get_block);
        _ = try t.sendFrame(.window_update, 0, stream, "\x7f\xff\xff\xff");
    }

    fn madeYouResetByData(t: *Target) !void {
        const stream = try t.request(flag.end_stream, b.get_block);
        _ = try t.sendFrame(.data, 0, stream, "a");
    }

    fn madeYouResetByPriority(t: *Target) !void {
        const stream = try t.request(flag.end_stream, b.get_block);
        _ = try t.sendFrame(.priority, 0, stream, "\x00\x00\x00");
    }

    fn malformed(t: *Target) !void {
        _ = try t.request(flag.end_stream, "\x82");
    }

    fn tooManyStreams(t: *Target) !void {
        _ = try t.request(0, b.post_block);
    }

    fn upperCase(t: *Target) !void {
        _ = try t.request(flag.end_stream, b.get_block ++ b.field("X-Upper", "1"));
    }

    fn pings(t: *Target) !void {
        _ = try t.sendFrame(.ping, 0, 0, "12345678");
    }

    fn settings(t: *Target) !void {
        _ = try t.sendFrame(.settings, 0, 0, b.setting(4, 65_535));
    }

    fn manySettings(t: *Target) !void {
        var payload: [2700 * 6]u8 = undefined;
        for (0..2700) |index| {
            const value: [6]u8 = if (index % 2 == 0) b.setting(1, 0)[0..6].* else b.setting(1, 4096)[0..6].*;
            payload[index * 6 ..][0..6].* = value;
        }
        _ = try t.sendFrame(.settings, 0, 0, &payload);
    }

    fn emptyData(t: *Target) !void {
        if (t.next == 1) _ = try t.request(0, b.post_block);
        _ = try t.sendFrame(.data, 0, 1, "");
    }

    fn paddingOnly(t: *Target) !void {
        if (t.next == 1) _ = try t.request(0, b.post_block);
        _ = try t.sendFrame(.data, flag.padded, 1, "\x00");
    }

    fn priorities(t: *Target) !void {
        _ = try t.sendFrame(.priority, 0, 1_000_001, "\x00\x00\x00\x01\x10");
    }

    fn priorityUpdates(t: *Target) !void {
        _ = try t.sendFrame(.priority_update, 0, 0, "\x00\x00\x00\x01u=1");
    }

    fn windowUpdates(t: *Target) !void {
        _ = try t.sendFrame(.window_update, 0, 0, "\x00\x00\x00\x01");
    }

    fn unknown(t: *Target) !void {
        _ = try t.sendFrame(@fromBackingInt(0xf0), 0, 0, "");
    }

    fn goaways(t: *Target) !void {
        _ = try t.sendFrame(.goaway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00");
    }

    fn tinyWindows(t: *Target) !void {
        if (t.next == 1) {
            _ = try t.sendFrame(.settings, 0, 0, b.setting(4, 1));
            const stream = try t.request(flag.end_stream, b.get_block);
            var out: [256]u8 = undefined;
            _ = try t.h.session.start(stream, .{ .status = 200 }, &out);
            t.h.session.apply(stream, try t.h.session.planBody(stream, .{ .len = 1 << 30 }));
        }
        _ = try t.sendFrame(.window_update, 0, 1, "\x00\x00\x00\x01");
    }

    fn tableSizes(t: *Target) !void {
        const sizes = "\x20\x3f\xe1\x1f";
        const stream = try t.request(flag.end_stream, sizes ++ b.get_block ++ "\x40\x01a\x01b");
        if (!t.h.failed) try t.answer(stream, "hello");
    }

    fn bombs(t: *Target) !void {
        const value: [3900]u8 = @splat('v');
        var block: [8192]u8 = undefined;
        var len: usize = 0;
        if (t.next == 1) {
            const start = "\x82\x86\x84\x01\x01a\x40\x01n\x7f\xbd\x1d";
            @memcpy(block[0..start.len], start);
            @memcpy(block[start.len..][0..value.len], &value);
            len = start.len + value.len;
        } else {
            @memcpy(block[0..6], b.get_block);
            @memset(block[6..4000], 0xbe);
            len = 4000;
        }
        const stream = try t.request(flag.end_stream, block[0..len]);
        if (t.h.session.streams.find(stream) != null) try t.answer(stream, "hello");
    }
};

test "floods end" {
    inline for (.{
        "rapidReset",             "madeYouResetByWindow", "madeYouResetByData", "madeYouResetByOverflow",
        "madeYouResetByPriority", "malformed",            "tooManyStreams",     "upperCase",
        "pings",                  "settings",             "emptyData",          "paddingOnly",
        "priorities",             "priorityUpdates",      "windowUpdates",      "unknown",
        "goaways",                "tinyWindows",
    }) |name| try flood(name, @field(attacks, name), true);
}

test "bytes that mean more than they seem cost no more than honest requests" {
    inline for (.{ "manySettings", "tableSizes", "bombs" }) |name| {
        try flood(name, @field(attacks, name), false);
    }
}

test "requests that mean as much as the table holds, again and again" {
    // The limit on a head is that of a server: sixteen times the table.
    const wide: session_file.Config = .{ .streams_max = 4 };
    var t: Target = undefined;
    try t.open(&wide);
    defer t.close();
    const value: [3900]u8 = @splat('v');
    var block: [4096]u8 = undefined;
    const start = b.get_block ++ "\x40\x01n\x7f\xbd\x1d";
    @memcpy(block[0..start.len], start);
    @memcpy(block[start.len..][0..value.len], &value);
    try t.answer(try t.request(flag.end_stream, block[0 .. start.len + value.len]), "hello");
    @memcpy(block[0..6], b.get_block);
    @memset(block[6..21], 0xbe);
    var copied: u64 = 0;
    while (!t.h.failed and t.received < flood_bytes) {
        const stream = try t.request(flag.end_stream, block[0..21]);
        if (!t.h.failed) try t.answer(stream, "hello");
        copied = t.h.session.decoder.copied;
    }
    try testing.expect(t.h.failed);
    try testing.expect(copied < 2 << 20);
}

test "a header block without end" {
    inline for (.{ "", "\x82" }) |part| {
        var t: Target = undefined;
        try t.open(&harness.config);
        defer t.close();
        var wire: [harness.config.list_bytes_max * 16]u8 = undefined;
        var len: usize = b.write(.headers, 0, 1, b.get_block, &wire).len;
        var frames: usize = 0;
        while (!t.h.failed and len + 16 < wire.len) : (frames += 1) {
            len += b.write(.continuation, 0, 1, part, wire[len..]).len;
            const used = try t.h.feedPart(wire[0..len]);
            try testing.expect(used == 0 or t.h.failed);
        }
        try testing.expect(t.h.failed and frames <= 64);
    }
    // Long frames are refused by their length, before they are there.
    var t: Target = undefined;
    try t.open(&harness.config);
    defer t.close();
    _ = try t.h.feedPart("\x00\x40\x00\x01\x00\x00\x00\x00\x01");
    try testing.expect(t.h.failed);
}

test "streams that are opened and forgotten, or may not be sent on, are no more than there may be" {
    var t: Target = undefined;
    try t.open(&harness.config);
    defer t.close();
    try testing.expect(try t.sendFrame(.settings, 0, 0, b.setting(4, 0)));
    for (0..100) |index| {
        const stream = try t.request(if (index % 2 == 0) 0 else flag.end_stream, b.post_block);
        try testing.expectEqual(@min(index + 1, harness.config.streams_max), t.h.session.streams.count);
        if (t.h.session.streams.find(stream) != null) try t.answer(stream, "0123456789");
    }
    try testing.expectEqual(harness.config.streams_max, t.h.session.streams.count);
}

test "a client that does much, and nothing wrong, is served" {
    var t: Target = undefined;
    try t.open(&harness.config);
    defer t.close();
    for (0..20_000) |round| {
        // Frames that browsers and gRPC clients send.
        const stream = try t.request(flag.end_stream, b.get_block ++ b.field("priority", "u=1"));
        _ = try t.sendFrame(.priority_update, 0, 0, "\x00\x00\x00\x01u=1, i");
        if (round % 5 == 0) _ = try t.sendFrame(.ping, 0, 0, "12345678");
        if (round % 50 == 0) {
            _ = try t.sendFrame(.rst_stream, 0, stream, "\x00\x00\x00\x08");
        } else try t.answer(stream, "hello");
        _ = try t.sendFrame(.window_update, 0, 0, "\x00\x00\x10\x00");
        // A millisecond passes.
        t.received += bytes_per_ms;
        try testing.expect(!t.h.failed);
    }
    const upload = try t.request(0, b.post_block);
    for (0..90) |_| try testing.expect(try t.sendFrame(.data, 0, upload, "a few bytes of a message"));
    try testing.expect(try t.sendFrame(.data, flag.end_stream, upload, ""));
}

test "a client with small windows gets its download" {
    var t: Target = undefined;
    try t.open(&harness.config);
    defer t.close();
    try testing.expect(try t.sendFrame(.settings, 0, 0, b.setting(4, 4095)));
    const stream = try t.request(flag.end_stream, b.get_block);
    var out: [256]u8 = undefined;
    _ = try t.h.session.start(stream, .{ .status = 200 }, &out);
    t.h.session.apply(stream, try t.h.session.planBody(stream, .{ .len = 16 << 20, .last = true }));
    while (t.h.session.streams.find(stream) != null) {
        // As h2load does: it tells of half a window, on the stream and on the connection.
        for ([_]u32{ stream, 0 }) |on| {
            try testing.expect(try t.sendFrame(.window_update, 0, on, "\x00\x00\x08\x00"));
        }
    }
    try testing.expect(t.answered > 16 << 20);
}
