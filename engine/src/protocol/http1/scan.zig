//! Finds the line ends and the colons after names in a head's field lines, in one pass over the bytes. Does
//! not know: the meaning of lines, and which ends are legal (head.zig). RFC 9112 section 5.
//!
//! A search for each line and byte class would start and end a vector loop two or three times for each of
//! these short lines, which takes longer than the loop itself. Here two words of marks stand for 64 bytes,
//! and counting their zeros gives the lines: 8 fields of a browser take 1,300 instructions instead of 3,200.
const std = @import("std");
const assert = std.debug.assert;
const syntax = @import("../http/syntax.zig");

/// Marks for the special bytes among 64; bit 0 is the first byte. Bits after the last byte are 0.
pub const Marks = struct {
    /// Controls except HTAB: CR, which ends a line, and bytes that no line may contain.
    controls: u64 = 0,
    colons: u64 = 0,

    pub const window_bytes = 64;

    /// The number of bytes per vector: the machine's, but at most 32.
    const lane = syntax.block_bytes;

    /// Returns the marks of the first 64 bytes of `bytes[at..]`, or of fewer if there are no more.
    pub fn of(bytes: []const u8, at: usize) Marks {
        const rest = bytes[at..];
        var marks: Marks = .{};
        if (rest.len >= window_bytes) {
            inline for (0..window_bytes / lane) |i| marks.note(rest[i * lane ..][0..lane].*, 0, i * lane);
            return marks;
        }
        if (bytes.len < lane) return ofScalar(bytes, at);
        var seen: usize = 0;
        while (rest.len - seen >= lane) : (seen += lane) marks.note(rest[seen..][0..lane].*, 0, seen);
        if (seen < rest.len) {
            // The lane at the end of the bytes; those before `seen` are shifted out.
            marks.note(bytes[bytes.len - lane ..][0..lane].*, lane - (rest.len - seen), seen);
        }
        return marks;
    }

    /// The scalar twin of `of`: the same result, one byte at a time.
    pub fn ofScalar(bytes: []const u8, at: usize) Marks {
        var marks: Marks = .{};
        const rest = bytes[at..];
        for (rest[0..@min(rest.len, window_bytes)], 0..) |byte, i| {
            const bit = @as(u64, 1) << @intCast(i);
            if (syntax.Class.control.has(byte)) marks.controls |= bit;
            if (syntax.Class.colon.has(byte)) marks.colons |= bit;
        }
        return marks;
    }

    /// Adds the marks of `block`, without its first `skipped` bytes, from bit `at` on.
    inline fn note(marks: *Marks, block: [lane]u8, skipped: usize, at: usize) void {
        const Lane = @Int(.unsigned, lane);
        const controls: Lane = @bitCast(syntax.Class.control.hits(lane, block));
        const colons: Lane = @bitCast(syntax.Class.colon.hits(lane, block));
        marks.controls |= @as(u64, controls) >> @intCast(skipped) << @intCast(at);
        marks.colons |= @as(u64, colons) >> @intCast(skipped) << @intCast(at);
    }
};

/// Finds the lines of `text` from left to right, reading each byte once.
pub const Lines = struct {
    text: []const u8,
    /// The index of the first byte of `marks`.
    base: usize,
    marks: Marks,

    /// The ends of a line and of its field name.
    pub const Line = struct {
        /// The index of the first control at or after the requested position; the text's length: none.
        end: usize,
        /// The index of the first colon at or after that position; if the line has none, `end` or more.
        colon: usize,
    };

    /// Starts at index `at`.
    pub fn init(text: []const u8, at: usize) Lines {
        return .{ .text = text, .base = at, .marks = .of(text, at) };
    }

    /// Returns the end of the line that contains `from`, which must not be less than in the last call.
    pub inline fn next(lines: *Lines, from: usize) Line {
        assert(from >= lines.base);
        // The distance of windows does not depend on the lines, so the processor can load ahead.
        while (from - lines.base >= Marks.window_bytes) lines.advance();
        var live = @as(u64, std.math.maxInt(u64)) << @truncate(from - lines.base);
        var colon: usize = lines.text.len;
        while (true) {
            const colons = lines.marks.colons & live;
            if (colons != 0 and colon == lines.text.len) colon = lines.base + @ctz(colons);
            const controls = lines.marks.controls & live;
            if (controls != 0) return .{ .end = lines.base + @ctz(controls), .colon = colon };
            if (lines.text.len - lines.base <= Marks.window_bytes) {
                return .{ .end = lines.text.len, .colon = colon };
            }
            lines.advance();
            live = std.math.maxInt(u64);
        }
    }

    inline fn advance(lines: *Lines) void {
        lines.base += Marks.window_bytes;
        lines.marks = .of(lines.text, lines.base);
    }
};

test "the marks and their scalar twin agree at every length, start and place" {
    var buffer: [3 * Marks.window_bytes]u8 = @splat('a');
    for (0..buffer.len) |place| {
        for ([_]u8{ '\r', ':', 0x7f, '\t', ' ', 0xff }) |byte| {
            buffer[place] = byte;
            for ([_]usize{ place + 1, place + 2, place + 17, place + 40, place + 64, buffer.len }) |len| {
                const bytes = buffer[0..@min(len, buffer.len)];
                for (0..bytes.len + 1) |at| {
                    try std.testing.expectEqual(Marks.ofScalar(bytes, at), Marks.of(bytes, at));
                }
            }
        }
        buffer[place] = 'a';
    }
}

test "the marks and their scalar twin agree on random bytes" {
    var prng: std.Random.DefaultPrng = .init(11);
    const random = prng.random();
    var buffer: [200]u8 = undefined;
    for (0..2000) |_| {
        random.bytes(&buffer);
        const bytes = buffer[0..random.uintAtMost(usize, buffer.len)];
        const at = random.uintAtMost(usize, bytes.len);
        try std.testing.expectEqual(Marks.ofScalar(bytes, at), Marks.of(bytes, at));
    }
}

test "lines come out as a byte by byte search finds them" {
    var prng: std.Random.DefaultPrng = .init(12);
    const random = prng.random();
    var buffer: [400]u8 = undefined;
    for (0..500) |round| {
        // The texts have a control byte at every second position, or hardly any.
        const rarity = 2 + round % 150;
        for (&buffer) |*byte| byte.* = switch (random.uintLessThan(usize, rarity)) {
            0 => '\r',
            1 => ':',
            else => 'x',
        };
        const text = buffer[0..random.uintAtMost(usize, buffer.len)];
        var at = random.uintAtMost(usize, text.len);
        var lines: Lines = .init(text, at);
        while (at < text.len) {
            const line = lines.next(at);
            const end = syntax.findScalar(.control, text, at);
            try std.testing.expectEqual(end, line.end);
            const colon = syntax.findScalar(.colon, text[0..end], at);
            try std.testing.expectEqual(colon, @min(line.colon, end));
            at = end + 1 + random.uintLessThan(usize, 3);
        }
    }
}
