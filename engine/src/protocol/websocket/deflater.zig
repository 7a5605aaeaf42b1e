//! Deflates the messages of one permessage-deflate direction (RFC 7692 section 7.2.1, RFC 1951): pieces of a
//! message in, compressed bytes of limited size out. Made for messages: the cost of a short one depends only
//! on its bytes (no table is cleared or built for it), and the window may be as small as the peer or our
//! memory requires. std.compress.flate.Compress has one window size, 224 KiB of state, and cannot begin a
//! message without history except by starting over. Does not know: frames, which messages are worth
//! compressing, and the source of its memory.
const std = @import("std");
const assert = std.debug.assert;
const codes = @import("codes.zig");

/// The shortest match that is searched. Shorter ones save little, and four bytes are hashed in one load.
const match_sought_min = 4;
/// The maximum number of candidates for each match. Measured with 16: 1 MB of JSON in messages of 120 bytes
/// becomes 378 KB (with zlib's level 1: 441 KB; with its level 6, up to 128 candidates: 363 KB).
const chain_max = 16;
/// A match of this length is taken without searching for a longer one.
const match_good = 64;
/// The maximum number of tokens in a block; its table is on the stack (4 bytes each).
const block_tokens_max = 4096;
/// Blocks with fewer tokens use the fixed code: a code of their own would cost more than it saves (its
/// description takes at least 40 bytes).
const dynamic_tokens_min = 128;

/// Memory: see `memoryBytes`. With context takeover each connection has a deflater; without it, one serves
/// all connections of a thread, message by message, with each connection's window (`limitWindow`). The struct
/// itself has less than 100 bytes; a call uses about 24 KiB of stack.
pub const Deflater = struct {
    /// The history and the input being compressed; the first `end` bytes are valid.
    buffer: []u8,
    /// The latest position for each hash; 0: none (position 0 is never found, which does no harm).
    head: []u16,
    /// For each position modulo the window: the previous position with the same hash.
    chain: []u16,
    takeover: bool,
    /// The window's size: matches must be nearer than this.
    reach: usize,
    end: usize = 0,
    /// The positions below this one are in `head` and `chain`.
    inserted: usize = 0,
    /// Matches must not begin before this position: the beginning of the message if there is no context
    /// takeover. Raising it drops the history without changing the tables.
    floor: usize = 0,
    /// The bits of an unfinished byte between two pieces.
    bits: u8 = 0,
    bit_count: u3 = 0,

    /// The number of bytes of memory for a window of 2^`window_bits` (8..15): 160 KiB for 15, 96 for 14, 48
    /// for 13, 24 for 12, 12 for 11, 8 for 10, 7 for 9, 6.5 for 8.
    pub fn memoryBytes(window_bits: u4) usize {
        return bufferBytes(window_bits) + 2 * (windowBytes(window_bits) + hashSlots(window_bits));
    }

    fn windowBytes(window_bits: u4) usize {
        assert(window_bits >= 8);
        return @as(usize, 1) << window_bits;
    }

    /// A multiple of the window, so that a slide does not change the index of positions in `chain`.
    fn bufferBytes(window_bits: u4) usize {
        return @max(2 * windowBytes(window_bits), 4096);
    }

    fn hashSlots(window_bits: u4) usize {
        return @as(usize, 1) << std.math.clamp(window_bits, 10, 14);
    }

    /// Makes a deflater. `memory` has exactly `memoryBytes(window_bits)` bytes, which are borrowed and need
    /// not be initialised. `takeover`: history is kept between messages (no server_no_context_takeover was
    /// agreed).
    pub fn init(memory: []align(2) u8, window_bits: u4, takeover: bool) Deflater {
        assert(memory.len == memoryBytes(window_bits));
        const window = windowBytes(window_bits);
        const words: []u16 = @ptrCast(memory[0 .. 2 * (window + hashSlots(window_bits))]);
        const d: Deflater = .{
            .buffer = memory[2 * words.len ..],
            .head = words[window..],
            .chain = words[0..window],
            .takeover = takeover,
            .reach = window,
        };
        assert(d.buffer.len == bufferBytes(window_bits));
        @memset(d.head, 0);
        return d;
    }

    /// Limits the window to 2^`window_bits`, at most that of `init`. Must be called between messages, and
    /// only without takeover.
    pub fn limitWindow(d: *Deflater, window_bits: u4) void {
        assert(!d.takeover and d.bit_count == 0);
        d.reach = @min(windowBytes(window_bits), d.chain.len);
    }

    /// Drops the history, because the last compressed message will not reach the peer. A sender may do so at
    /// any time.
    pub fn forget(d: *Deflater) void {
        d.floor = d.end;
        d.bits = 0;
        d.bit_count = 0;
    }

    /// Returns the room that `deflate` needs in `out` for a piece of `len` bytes. Little more than `len`,
    /// because incompressible data is stored.
    pub fn outputBytesMax(len: usize) usize {
        const blocks = len / block_tokens_max + 1;
        // For each block: header bits, padding to a byte, and two lengths if it is stored. Besides: bits from
        // earlier pieces, the empty block's header, and eight bytes that are written for any number of bits.
        return len + blocks * 6 + 16;
    }

    /// Compresses the next piece of a message into `out`, which has room for `outputBytesMax(piece.len)`
    /// bytes, and returns the number of bytes written. `last`: the message is complete, and ends as RFC 7692
    /// section 7.2.1 demands; otherwise up to seven bits wait for the next piece. The rest of `piece` is in
    /// the output, so pieces may be frames.
    pub fn deflate(d: *Deflater, piece: []const u8, last: bool, out: []u8) usize {
        assert(out.len >= outputBytesMax(piece.len));
        var writer: BitWriter = .{ .out = out, .bits = d.bits, .count = d.bit_count };
        var block: Block = .{};
        var block_at: usize = 0;
        var behind: usize = 0;
        while (behind < piece.len) {
            if (d.end == d.buffer.len) d.slide();
            const len = @min(piece.len - behind, d.buffer.len - d.end);
            var at = d.end;
            @memcpy(d.buffer[at..][0..len], piece[behind..][0..len]);
            d.end += len;
            while (at < d.end) {
                const token = d.next(at);
                at += token.len();
                behind += token.len();
                block.add(token);
                if (block.count < block_tokens_max) continue;
                block.write(&writer, piece[block_at..behind]);
                block = .{};
                block_at = behind;
            }
        }
        if (block.count > 0) block.write(&writer, piece[block_at..behind]);
        if (last) {
            // An empty stored block, of which RFC 7692 section 7.2.1 removes the last four bytes; its header
            // and padding remain.
            writer.put(0, 3);
            writer.alignToByte();
            if (!d.takeover) d.floor = d.end;
        }
        d.bits = @truncate(writer.bits);
        d.bit_count = @intCast(writer.count);
        assert(!last or d.bit_count == 0);
        return writer.at;
    }

    /// Returns the literal or the match at `at`.
    fn next(d: *Deflater, at: usize) Token {
        d.insertUpTo(at);
        const literal: Token = .{ .distance = 0, .value = d.buffer[at] };
        if (d.end - at < match_sought_min) return literal;
        const limit = @min(d.end - at, codes.match_max);
        const wanted = std.mem.readInt(u32, d.buffer[at..][0..4], .little);
        // The chain is a ring of the window's size, at least `reach`: older positions in it were overwritten.
        const oldest = @max(d.floor, (at + 1) -| d.reach);
        var best_len: usize = match_sought_min - 1;
        var best_at: usize = 0;
        var candidate: usize = d.head[d.hash(at)];
        var tries: usize = chain_max;
        while (candidate >= @max(oldest, 1) and tries > 0) : (tries -= 1) {
            assert(candidate < at);
            if (std.mem.readInt(u32, d.buffer[candidate..][0..4], .little) == wanted) {
                const len = commonPrefix(d.buffer[candidate..], d.buffer[at..][0..limit]);
                if (len > best_len) {
                    best_len = len;
                    best_at = candidate;
                    if (len >= match_good or len == limit) break;
                }
            }
            const before = d.chain[candidate & (d.chain.len - 1)];
            assert(before < candidate);
            candidate = before;
        }
        if (best_len < match_sought_min) return literal;
        return .{ .distance = @intCast(at - best_at), .value = @intCast(best_len - codes.match_min) };
    }

    /// Adds positions before `at` to the tables, if four bytes are known there.
    fn insertUpTo(d: *Deflater, at: usize) void {
        const known = @min(at, d.end -| (match_sought_min - 1));
        while (d.inserted < known) : (d.inserted += 1) {
            const slot = &d.head[d.hash(d.inserted)];
            d.chain[d.inserted & (d.chain.len - 1)] = slot.*;
            slot.* = @intCast(d.inserted);
        }
    }

    fn hash(d: *const Deflater, at: usize) usize {
        const four = std.mem.readInt(u32, d.buffer[at..][0..4], .little);
        // Multiplying by 2^32 divided by the golden ratio spreads near values; the high bits are mixed best.
        return (four *% 0x9E3779B1) >> @intCast(32 - std.math.log2_int(usize, d.head.len));
    }

    /// Moves the last window of bytes to the front and adapts all positions.
    fn slide(d: *Deflater) void {
        const window = d.chain.len;
        const shift = d.end - window;
        assert(shift > 0 and shift % window == 0);
        d.insertUpTo(d.end);
        @memcpy(d.buffer[0..window], d.buffer[shift..d.end]);
        for (d.head) |*at| at.* -|= @intCast(shift);
        for (d.chain) |*at| at.* -|= @intCast(shift);
        d.end = window;
        d.inserted -= shift;
        d.floor -|= shift;
    }
};

/// Returns the number of equal leading bytes, at most `b.len`; `a` must be as long.
fn commonPrefix(a: []const u8, b: []const u8) usize {
    var at: usize = 0;
    while (b.len - at >= 8) : (at += 8) {
        const x = std.mem.readInt(u64, a[at..][0..8], .little);
        const y = std.mem.readInt(u64, b[at..][0..8], .little);
        if (x != y) return at + @ctz(x ^ y) / 8;
    }
    while (at < b.len and a[at] == b[at]) at += 1;
    return at;
}

/// A literal (distance 0, value = the byte) or a match (value = length - 3).
const Token = packed struct(u32) {
    distance: u16,
    value: u16,

    fn len(token: Token) usize {
        return if (token.distance == 0) 1 else @as(usize, token.value) + codes.match_min;
    }
};

/// Writes bits, the lowest first (RFC 1951 section 3.1.1).
const BitWriter = struct {
    out: []u8,
    at: usize = 0,
    bits: u64,
    count: u6,

    /// Writes at most 48 bits at once.
    inline fn put(w: *BitWriter, value: u64, count: u6) void {
        assert(count <= 48 and w.count < 8 and value >> count == 0);
        w.bits |= value << w.count;
        w.count += count;
        std.mem.writeInt(u64, w.out[w.at..][0..8], w.bits, .little);
        const whole = w.count / 8;
        w.at += whole;
        w.bits >>= whole * 8;
        w.count %= 8;
    }

    fn alignToByte(w: *BitWriter) void {
        if (w.count > 0) w.put(0, 8 - w.count);
    }

    fn bytes(w: *BitWriter, raw: []const u8) void {
        assert(w.count == 0);
        @memcpy(w.out[w.at..][0..raw.len], raw);
        w.at += raw.len;
    }
};

/// Tokens that wait for a code.
const Block = struct {
    tokens: [block_tokens_max]Token = undefined,
    count: usize = 0,
    literals: [codes.literal_symbols]u16 = @splat(0),
    distances: [codes.distance_symbols]u16 = @splat(0),
    /// The number of extra bits after symbols of lengths and distances.
    extra_bits: u32 = 0,

    fn add(b: *Block, token: Token) void {
        b.tokens[b.count] = token;
        b.count += 1;
        if (token.distance == 0) {
            b.literals[token.value] += 1;
            return;
        }
        const length = codes.lengthSymbol(token.value + codes.match_min);
        const distance = codes.distanceSymbol(token.distance);
        b.literals[@as(usize, 257) + length] += 1;
        b.distances[distance] += 1;
        b.extra_bits += @as(u32, codes.lengths[length].extra) + codes.distances[distance].extra;
    }

    /// Writes the block in its shortest form. `raw`: the bytes of its tokens.
    fn write(b: *Block, w: *BitWriter, raw: []const u8) void {
        b.literals[codes.end_of_block] = 1;
        const fixed_bits = b.bodyBits(fixed_book.literal_bits, fixed_book.distance_bits);
        // A stored block begins at a byte boundary: at most seven bits are padded.
        const stored_bits: u64 = if (raw.len > 0xFFFF)
            std.math.maxInt(u64)
        else
            7 + 32 + 8 * @as(u64, raw.len);
        var code: Code = undefined;
        const own = b.count >= dynamic_tokens_min;
        if (own) code.init(b);
        const own_bits: u64 = if (own)
            code.header_bits + b.bodyBits(&code.literals, &code.distances)
        else
            std.math.maxInt(u64);
        if (stored_bits < @min(fixed_bits, own_bits)) {
            w.put(0b000, 3);
            w.alignToByte();
            w.put(@as(u32, @intCast(raw.len)) | (0xFFFF ^ @as(u32, @intCast(raw.len))) << 16, 32);
            w.bytes(raw);
        } else if (own_bits < fixed_bits) {
            w.put(0b100, 3);
            code.write(w);
            var book: Book = .{ .literal_bits = &code.literals, .distance_bits = &code.distances };
            codes.assign(book.literal_bits, &book.literals);
            codes.assign(book.distance_bits, &book.distances);
            b.writeBody(w, &book);
        } else {
            w.put(0b010, 3);
            b.writeBody(w, &fixed_book);
        }
    }

    fn bodyBits(
        b: *const Block,
        literals: *const [codes.literal_symbols]u4,
        distances: *const [codes.distance_symbols]u4,
    ) u64 {
        var bits: u64 = b.extra_bits;
        for (b.literals, literals) |count, len| bits += @as(u32, count) * len;
        for (b.distances, distances) |count, len| bits += @as(u32, count) * len;
        return bits;
    }

    fn writeBody(b: *const Block, w: *BitWriter, book: *const Book) void {
        for (b.tokens[0..b.count]) |token| {
            if (token.distance == 0) {
                w.put(book.literals[token.value], book.literal_bits[token.value]);
                continue;
            }
            const length = codes.lengthSymbol(token.value + codes.match_min);
            const symbol = @as(usize, 257) + length;
            w.put(book.literals[symbol], book.literal_bits[symbol]);
            w.put(token.value + codes.match_min - codes.lengths[length].base, codes.lengths[length].extra);
            const distance = codes.distanceSymbol(token.distance);
            w.put(book.distances[distance], book.distance_bits[distance]);
            w.put(token.distance - codes.distances[distance].base, codes.distances[distance].extra);
        }
        w.put(book.literals[codes.end_of_block], book.literal_bits[codes.end_of_block]);
    }
};

/// Codes by symbol, and their lengths.
const Book = struct {
    literals: [codes.literal_symbols]u16 = undefined,
    distances: [codes.distance_symbols]u16 = undefined,
    literal_bits: *const [codes.literal_symbols]u4,
    distance_bits: *const [codes.distance_symbols]u4,
};

const fixed_book: Book = make: {
    @setEvalBranchQuota(10_000);
    // The two symbols that never occur are needed to make the code.
    var literals: [codes.fixed_literal_lengths.len]u16 = undefined;
    codes.assign(&codes.fixed_literal_lengths, &literals);
    var book: Book = .{
        .literals = literals[0..codes.literal_symbols].*,
        .literal_bits = codes.fixed_literal_lengths[0..codes.literal_symbols],
        .distance_bits = &codes.fixed_distance_lengths,
    };
    codes.assign(&codes.fixed_distance_lengths, &book.distances);
    break :make book;
};

/// The code of one block, and its description (RFC 1951 section 3.2.7).
const Code = struct {
    literals: [codes.literal_symbols]u4,
    distances: [codes.distance_symbols]u4,
    literal_count: u16,
    distance_count: u16,
    order: [codes.order_symbols]u4,
    order_count: u8,
    runs: [codes.literal_symbols + codes.distance_symbols]Run,
    run_count: usize,
    header_bits: u64,

    /// A symbol of the code for code lengths, with the value of its extra bits.
    const Run = struct { symbol: u8, extra: u8 };

    fn init(code: *Code, block: *const Block) void {
        codes.build(codes.literal_symbols, &block.literals, codes.code_bits_max, &code.literals);
        codes.build(codes.distance_symbols, &block.distances, codes.code_bits_max, &code.distances);
        code.literal_count = @max(257, used(&code.literals));
        code.distance_count = @max(1, used(&code.distances));
        code.run_count = 0;
        var counts: [codes.order_symbols]u16 = @splat(0);
        code.addRuns(code.literals[0..code.literal_count], &counts);
        code.addRuns(code.distances[0..code.distance_count], &counts);
        codes.build(codes.order_symbols, &counts, codes.order_bits_max, &code.order);
        code.order_count = codes.order_symbols;
        while (code.order_count > 4 and code.order[codes.order[code.order_count - 1]] == 0) {
            code.order_count -= 1;
        }
        code.header_bits = 14 + 3 * @as(u64, code.order_count);
        for (counts, code.order, 0..) |count, len, symbol| {
            code.header_bits += count * (@as(u64, len) + extraBits(symbol));
        }
    }

    fn used(lens: []const u4) u16 {
        var count = lens.len;
        while (count > 0 and lens[count - 1] == 0) count -= 1;
        return @intCast(count);
    }

    fn extraBits(symbol: usize) u6 {
        return switch (symbol) {
            16 => 2,
            17 => 3,
            18 => 7,
            else => 0,
        };
    }

    fn addRuns(code: *Code, lens: []const u4, counts: *[codes.order_symbols]u16) void {
        var at: usize = 0;
        while (at < lens.len) {
            const len = lens[at];
            var same: usize = 1;
            while (at + same < lens.len and lens[at + same] == len and same < 138) same += 1;
            var run: Run = .{ .symbol = len, .extra = 0 };
            const repeats = len != 0 and at > 0 and lens[at - 1] == len;
            if (len == 0 and same >= 11) {
                run = .{ .symbol = 18, .extra = @intCast(same - 11) };
            } else if (len == 0 and same >= 3) {
                run = .{ .symbol = 17, .extra = @intCast(same - 3) };
            } else if (repeats and same >= 3) {
                same = @min(same, 6);
                run = .{ .symbol = 16, .extra = @intCast(same - 3) };
            } else {
                same = 1;
            }
            code.runs[code.run_count] = run;
            code.run_count += 1;
            counts[run.symbol] += 1;
            at += same;
        }
    }

    fn write(code: *const Code, w: *BitWriter) void {
        w.put(code.literal_count - 257, 5);
        w.put(code.distance_count - 1, 5);
        w.put(code.order_count - 4, 4);
        for (codes.order[0..code.order_count]) |symbol| w.put(code.order[symbol], 3);
        var order_codes: [codes.order_symbols]u16 = undefined;
        codes.assign(&code.order, &order_codes);
        for (code.runs[0..code.run_count]) |run| {
            w.put(order_codes[run.symbol], code.order[run.symbol]);
            w.put(run.extra, extraBits(run.symbol));
        }
    }
};

const testing = std.testing;
const Inflater = @import("inflater.zig").Inflater;
const History = @import("inflater.zig").History;

/// Sends messages through a deflater and an inflater with windows of the same size.
const Loop = struct {
    memory: [160 * 1024]u8 align(2) = undefined,
    window: [32768]u8 = undefined,
    wire: [Deflater.outputBytesMax(100_000) + 64]u8 = undefined,
    plain: [100_000]u8 = undefined,
    deflater: Deflater = undefined,
    history: History = undefined,
    inflater: Inflater = .{},

    fn init(loop: *Loop, window_bits: u4, takeover: bool) void {
        loop.deflater = .init(loop.memory[0..Deflater.memoryBytes(window_bits)], window_bits, takeover);
        loop.history = .init(loop.window[0 .. @as(usize, 1) << window_bits]);
    }

    /// Sends a message in two pieces and returns the compressed size.
    fn expect(loop: *Loop, message: []const u8, cut: usize) !usize {
        const at = loop.deflater.deflate(message[0..cut], false, &loop.wire);
        const len = at + loop.deflater.deflate(message[cut..], true, loop.wire[at..]);
        try testing.expect(len <= Deflater.outputBytesMax(message.len) + 8);
        if (!loop.deflater.takeover) loop.history.clear();
        loop.inflater.begin(&loop.history, message.len);
        const step = try loop.inflater.inflate(loop.wire[0..len], true, &loop.plain);
        try testing.expectEqual(.done, step.state);
        try testing.expectEqual(len, step.consumed);
        try testing.expectEqualSlices(u8, message, loop.plain[0..step.produced]);
        return len;
    }
};

const sample = "{\"type\":\"message\",\"user\":\"ann\",\"text\":\"Is anybody here?\",\"seen\":true}";

test "memory is what the comment says" {
    for ([_]usize{ 160, 96, 48, 24, 12, 8, 7 }, 0..) |kib, n| {
        try testing.expectEqual(kib * 1024, Deflater.memoryBytes(@intCast(15 - n)));
    }
    try testing.expectEqual(6656, Deflater.memoryBytes(8));
    try testing.expect(@sizeOf(Deflater) <= 100);
}

test "the empty message is one byte, RFC 7692 section 7.2.3.6" {
    const loop = try testing.allocator.create(Loop);
    defer testing.allocator.destroy(loop);
    loop.init(15, true);
    try testing.expectEqual(1, try loop.expect("", 0));
    try testing.expectEqual(0, loop.wire[0]);
}

test "Hello twice, with and without context takeover, RFC 7692 section 7.2.3" {
    const loop = try testing.allocator.create(Loop);
    defer testing.allocator.destroy(loop);
    loop.init(15, false);
    for (0..2) |_| {
        const len = try loop.expect("Hello", 0);
        try testing.expectEqualSlices(u8, "\xf2\x48\xcd\xc9\xc9\x07\x00", loop.wire[0..len]);
    }
    loop.init(15, true);
    _ = try loop.expect("Hello", 0);
    try testing.expect(try loop.expect("Hello", 0) < 7);
}

test "every kind of data comes back, at every window size" {
    const loop = try testing.allocator.create(Loop);
    defer testing.allocator.destroy(loop);
    const message = try testing.allocator.alloc(u8, 100_000);
    defer testing.allocator.free(message);
    var random = std.Random.DefaultPrng.init(0xdef1);
    for (8..16) |window_bits| for ([_]bool{ true, false }) |takeover| {
        loop.init(@intCast(window_bits), takeover);
        for (0..10) |round| {
            const len = random.random().uintLessThan(usize, if (round % 2 == 0) 400 else message.len);
            for (message[0..len], 0..) |*byte, at| byte.* = switch (round % 5) {
                0 => sample[at % sample.len],
                1 => random.random().int(u8),
                2 => if (at % 7 == 0) random.random().int(u8) else sample[(at * at) % sample.len],
                3 => 'x',
                else => "aeiounrst "[random.random().uintLessThan(usize, 10)],
            };
            _ = try loop.expect(message[0..len], if (round % 3 == 0) 0 else len / 3);
        }
    };
}

test "repetition across messages is found only with context takeover, and one deflater then serves many" {
    const loop = try testing.allocator.create(Loop);
    defer testing.allocator.destroy(loop);
    loop.init(12, true);
    const first = try loop.expect(sample, 0);
    try testing.expect(try loop.expect(sample, 0) < 12); // a single match
    loop.init(12, false);
    for (0..200) |_| try testing.expectEqual(first, try loop.expect(sample, 0));
}

test "text shrinks to what a code of its own allows" {
    const loop = try testing.allocator.create(Loop);
    defer testing.allocator.destroy(loop);
    loop.init(15, true);
    var random = std.Random.DefaultPrng.init(9);
    var message: [20_000]u8 = undefined;
    for (&message) |*byte| byte.* = "etao"[random.random().uintLessThan(usize, 4)];
    // Two bits per letter would be 5000 bytes; short matches waste some of it (zlib's level 6 needs 6174
    // bytes).
    try testing.expect(try loop.expect(&message, 0) < 6300);
}

test "a deflater serves windows of any size, and does not refer to bytes that never left" {
    const loop = try testing.allocator.create(Loop);
    defer testing.allocator.destroy(loop);
    loop.init(15, false);
    var message: [5000]u8 = undefined;
    for (&message, 0..) |*byte, at| byte.* = sample[(at * at / 7) % sample.len];
    @memcpy(message[4000..], message[0..1000]);
    var lens: [8]usize = undefined;
    for (&lens, 8..) |*len, bits| {
        loop.deflater.limitWindow(@intCast(bits));
        loop.history = .init(loop.window[0 .. @as(usize, 1) << @intCast(bits)]);
        len.* = try loop.expect(&message, 0);
    }
    try testing.expect(lens[7] < lens[0]);

    loop.init(12, true);
    _ = try loop.expect(sample, 0);
    _ = loop.deflater.deflate("a message that is thrown away " ++ sample, false, &loop.wire);
    loop.deflater.forget();
    _ = try loop.expect(sample ++ "a message that is thrown away", 20);
}
