//! Fuzz target `inflate`. The input's first two bytes choose window, history and limit; the rest is
//! - two compressed messages of a peer: inflated whole, in pieces and into little room, with the same result,
//!   and like the standard library's;
//! - a message of ours: what `Deflater` makes of it comes out of `Inflater` again, and so it does when it
//!   is sent once more.
const std = @import("std");
const Cuts = @import("cuts.zig").Cuts;
const deflate = @import("protocol").websocket.deflate;
const testing = std.testing;

const message_bytes_max = 16 * 1024;
/// RFC 7692 section 7.2.2.
const tail = "\x00\x00\xff\xff";

/// The settings that the first bytes of the input choose.
const Choice = struct {
    window_bits: u4,
    takeover: bool,
    /// Bytes that a message may have, inflated.
    limit: u64,
    /// Bytes of the first message, out of 256.
    share: u8,

    fn from(input: *const [2]u8) Choice {
        return .{
            .window_bits = 9 + @as(u4, @intCast(input[0] % 7)),
            .takeover = input[0] & 0x80 != 0,
            .limit = if (input[0] & 0x40 != 0) message_bytes_max else 100,
            .share = input[1],
        };
    }
};

/// A message as it came out. There is room for a byte more than the limit allows.
const Result = struct {
    bytes: [message_bytes_max + 1]u8 = undefined,
    len: usize = 0,
    problem: ?deflate.InflateError = null,

    fn text(result: *const Result) []const u8 {
        return result.bytes[0..result.len];
    }
};

pub fn run(input: []const u8) !void {
    if (input.len < 2) return;
    const choice: Choice = .from(input[0..2]);
    const stream = input[2..];
    try receive(choice, stream);
    if (stream.len <= message_bytes_max) try send(choice, stream);
}

fn receive(choice: Choice, stream: []const u8) !void {
    const cut = stream.len * choice.share / 256;
    const messages = [2][]const u8{ stream[0..cut], stream[cut..] };
    var first: [2]Result = .{ .{}, .{} };
    inflateBoth(choice, messages, .whole, message_bytes_max, &first);
    if (first[0].problem == null) try expectLikeStandard(messages[0], first[0].text());
    if (!choice.takeover and first[1].problem == null and first[0].problem == null) {
        try expectLikeStandard(messages[1], first[1].text());
    }
    for ([_]usize{ 1, 7, 300 }, [_]Cuts{ .bytes, .seeded(stream.len), .whole }) |room, cuts| {
        var other: [2]Result = .{ .{}, .{} };
        inflateBoth(choice, messages, cuts, room, &other);
        for (&first, &other) |*one, *two| {
            try testing.expectEqual(one.problem, two.problem);
            // How much of a bad message came out before it turned bad depends on the pieces.
            if (one.problem == null) try testing.expectEqualSlices(u8, one.text(), two.text());
        }
    }
}

fn inflateBoth(choice: Choice, messages: [2][]const u8, cuts: Cuts, room: usize, results: *[2]Result) void {
    var window: [1 << 15]u8 = undefined;
    var history: deflate.History = .init(window[0 .. @as(usize, 1) << choice.window_bits]);
    var inflater: deflate.Inflater = .{};
    for (messages, results) |message, *result| {
        if (!choice.takeover) history.clear();
        inflater.begin(&history, choice.limit);
        inflateOne(&inflater, message, cuts, room, result);
        if (result.problem != null) return;
    }
}

fn inflateOne(
    inflater: *deflate.Inflater,
    message: []const u8,
    way: Cuts,
    room: usize,
    result: *Result,
) void {
    var cuts = way;
    var at: usize = 0;
    var arrived: usize = 0;
    while (true) {
        arrived += cuts.next(message.len - arrived);
        while (true) {
            const out = result.bytes[result.len..][0..@min(room, result.bytes.len - result.len)];
            const step = inflater.inflate(message[at..arrived], arrived == message.len, out) catch |problem| {
                result.problem = problem;
                return;
            };
            at += step.consumed;
            result.len += step.produced;
            switch (step.state) {
                .done => return,
                .output_full => std.debug.assert(step.produced == out.len),
                .need_input => break,
            }
        }
        std.debug.assert(at == arrived and arrived < message.len);
    }
}

/// The standard library reads a stream to its final block, and knows no message's end: up to there it must
/// find the same bytes.
fn expectLikeStandard(message: []const u8, text: []const u8) !void {
    var both: [64 * 1024]u8 = undefined;
    if (message.len + tail.len > both.len) return;
    @memcpy(both[0..message.len], message);
    @memcpy(both[message.len..][0..tail.len], tail);
    var reader: std.Io.Reader = .fixed(both[0 .. message.len + tail.len]);
    var window: [std.compress.flate.max_window_len]u8 = undefined;
    var decompress: std.compress.flate.Decompress = .init(&reader, .raw, &window);
    var standard: [message_bytes_max + 1]u8 = undefined;
    var writer: std.Io.Writer = .fixed(&standard);
    _ = decompress.reader.streamRemaining(&writer) catch {};
    const found = writer.buffered();
    try testing.expect(found.len <= text.len);
    try testing.expectEqualSlices(u8, found, text[0..found.len]);
}

fn send(choice: Choice, message: []const u8) !void {
    var memory: [deflate.Deflater.memoryBytes(15)]u8 align(2) = undefined;
    var deflater: deflate.Deflater = .init(
        memory[0..deflate.Deflater.memoryBytes(choice.window_bits)],
        choice.window_bits,
        choice.takeover,
    );
    var window: [1 << 15]u8 = undefined;
    var history: deflate.History = .init(window[0 .. @as(usize, 1) << choice.window_bits]);
    var inflater: deflate.Inflater = .{};
    for (0..2) |_| {
        const compressed_max = comptime deflate.Deflater.outputBytesMax(message_bytes_max) +
            deflate.Deflater.outputBytesMax(0);
        var compressed: [compressed_max]u8 = undefined;
        const cut = message.len * choice.share / 256;
        var len = deflater.deflate(
            message[0..cut],
            false,
            compressed[0..deflate.Deflater.outputBytesMax(cut)],
        );
        const rest = message[cut..];
        len += deflater.deflate(rest, true, compressed[len..][0..deflate.Deflater.outputBytesMax(rest.len)]);
        if (!choice.takeover) history.clear();
        inflater.begin(&history, message_bytes_max + 1);
        var text: [message_bytes_max + 1]u8 = undefined;
        const step = try inflater.inflate(compressed[0..len], true, &text);
        try testing.expectEqual(.done, step.state);
        try testing.expectEqualSlices(u8, message, text[0..step.produced]);
    }
}
